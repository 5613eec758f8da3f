//! The count of each status of responses.
//!
//! This module knows no times; [`super::LoadStats`] has them.

/// A counter per status from 100 to 999.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCounts(pub(super) Box<[u64; 900]>);

impl Default for StatusCounts {
    fn default() -> Self {
        Self(Box::new([0; 900]))
    }
}

impl StatusCounts {
    #[inline]
    pub(crate) fn record(&mut self, status: u16, times: u64) {
        if let Some(counter) = self.0.get_mut(usize::from(status.wrapping_sub(100))) {
            *counter = counter.saturating_add(times);
        }
    }

    /// True if no status came.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0.iter()).for_each(|(ours, theirs)| *ours = ours.saturating_add(*theirs));
    }

    /// Returns the statuses that came and their counts, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> {
        (100u16..).zip(self.0.iter().copied()).filter(|(_, count)| *count > 0)
    }
}
