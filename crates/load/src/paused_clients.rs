//! The clients of a closed loop that pause after a failure.
//!
//! A client that is refused at once and asks again at once would load a refusing target a thousand times more than one that
//! responds. Each thread has its own table; the sender counts paused clients like requests in flight. Reads no clock.

use std::collections::VecDeque;

use crate::clock::Nanos;

/// The end of each pause. All pauses are equally long, so the ends are in order.
#[derive(Debug)]
pub(crate) struct PausedSlots {
    time: Nanos,
    until: VecDeque<Nanos>,
}

impl PausedSlots {
    /// Makes an empty table whose pauses last `time`.
    pub(crate) fn new(time: Nanos) -> Self {
        Self { time, until: VecDeque::new() }
    }

    /// Begins a pause after a failure; returns `false` if the pause has no length.
    #[inline]
    pub(crate) fn begin(&mut self, now: Nanos) -> bool {
        if self.time > 0 {
            self.until.push_back(now.saturating_add(self.time));
        }
        self.time > 0
    }

    /// Ends the pauses that are over. Returns true if there was at least one.
    #[inline]
    pub(crate) fn free_expired(&mut self, now: Nanos) -> bool {
        let before = self.len();
        while self.until.front().is_some_and(|until| *until <= now) {
            self.until.pop_front();
        }
        self.len() < before
    }

    /// Returns the number of paused clients.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.until.len()
    }

    /// Returns the time when the next pause ends.
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
