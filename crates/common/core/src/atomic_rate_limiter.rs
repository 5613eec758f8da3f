//! A rate limiter that keeps its state in one atomic word.
//!
//! The limiter implements the generic cell rate algorithm (ITU-T I.371). The word contains the theoretical arrival time of the
//! next conforming event. The limiter is part of the limited client's record and is dropped with that record. So the limiter
//! needs no map and no timer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;

/// A rate limiter. It allows `per_second` events per second in the long run, and `burst` events at once.
#[derive(Debug)]
pub struct Gcra {
    next: AtomicU64,
    interval: u64,
    tolerance: u64,
}

impl Gcra {
    /// Creates a limiter whose whole burst is available. A `per_second` or `burst` of 0 counts as 1.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let interval = 1_000_000_000 / u64::from(per_second.max(1));
        Self {
            next: AtomicU64::new(0),
            interval,
            tolerance: interval.saturating_mul(u64::from(burst.max(1)) - 1),
        }
    }

    /// Takes one permit, or returns the time until the next permit is available.
    ///
    /// # Errors
    /// Returns the wait until the next permit is available. The call took no permit.
    pub fn take(&self, now: Moment) -> Result<(), Duration> {
        let now = now.as_nanos();
        let mut next = self.next.load(Ordering::Relaxed);
        loop {
            let due = next.max(now);
            if due - now > self.tolerance {
                return Err(Duration::from_nanos(due - now - self.tolerance));
            }
            let after = due.saturating_add(self.interval);
            match self.next.compare_exchange_weak(next, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(seen) => next = seen,
            }
        }
    }

    /// True if the whole burst is available.
    pub fn has_whole_burst(&self, now: Moment) -> bool {
        self.next.load(Ordering::Relaxed) <= now.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_the_burst_then_the_rate() {
        let limit = Gcra::new(10, 5);
        let start = Moment::from_nanos(1_000_000_000);
        assert!(limit.has_whole_burst(start));
        assert_eq!((0..20).filter(|_| limit.take(start).is_ok()).count(), 5);
        let has_whole_burst = |millis| limit.has_whole_burst(start + Duration::from_millis(millis));
        assert!(has_whole_burst(500) && !has_whole_burst(499));
        let wait = limit.take(start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert!(limit.take(start + wait).is_ok());
        assert!(limit.take(start + wait).is_err());
    }

    #[test]
    fn a_second_admits_the_rate() {
        let limit = Gcra::new(50, 1);
        let admitted = (0..1000).filter(|ms| limit.take(Moment::from_nanos(ms * 1_000_000)).is_ok()).count();
        assert_eq!(admitted, 50);
    }
}
