//! Places of a closed loop that a failure has left and that stay empty for a while.
//!
//! A client that is refused at once and asks again at once loads a target that refuses a thousand times more than one that answers.
//! One thread's; the sender counts them as it counts what is in flight. Knows no clock.

use std::collections::VecDeque;

use crate::clock::Nanos;

/// The places, by when they are free again: as all rest equally long, that is the order in which they came.
#[derive(Debug)]
pub(crate) struct PausedSlots {
    time: Nanos,
    until: VecDeque<Nanos>,
}

impl PausedSlots {
    /// None yet; each is to rest that long.
    pub(crate) fn new(time: Nanos) -> Self {
        Self { time, until: VecDeque::new() }
    }

    /// A place was left by a failure; `false` if it does not rest.
    #[inline]
    pub(crate) fn begin(&mut self, now: Nanos) -> bool {
        if self.time > 0 {
            self.until.push_back(now.saturating_add(self.time));
        }
        self.time > 0
    }

    /// Frees the places whose rest is over. Returns true if there was at least one.
    #[inline]
    pub(crate) fn free_expired(&mut self, now: Nanos) -> bool {
        let before = self.len();
        while self.until.front().is_some_and(|until| *until <= now) {
            self.until.pop_front();
        }
        self.len() < before
    }

    /// Returns the number of resting places.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.until.len()
    }

    /// Returns the time when the next place is free again.
    #[inline]
    pub(crate) fn next_expiry(&self) -> Nanos {
        self.until.front().copied().unwrap_or(Nanos::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_time_is_over_and_not_before() {
        let mut resting = PausedSlots::new(10);
        assert!(resting.begin(5) && resting.begin(7));
        assert_eq!((resting.free_expired(14), resting.len(), resting.next_expiry()), (false, 2, 15));
        assert_eq!((resting.free_expired(15), resting.len(), resting.next_expiry()), (true, 1, 17));
        assert_eq!((resting.free_expired(99), resting.len(), resting.next_expiry()), (true, 0, Nanos::MAX));
    }

    #[test]
    fn without_a_time_nothing_rests() {
        let mut resting = PausedSlots::new(0);
        assert_eq!((resting.begin(5), resting.len()), (false, 0));
    }
}
