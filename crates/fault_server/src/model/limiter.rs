//! Rate limiters in closed form. They do not add up ticks, so they do not drift.

use super::NanosSinceStart;

/// A token bucket, stored as the time at which it will be full (GCRA).
#[derive(Debug)]
pub(crate) struct GcraBucket {
    /// The nanoseconds between two tokens.
    spacing: f64,
    /// The size of the bucket without the first token, in nanoseconds.
    slack: f64,
    full_at: f64,
}

impl GcraBucket {
    /// Creates a full bucket with this many tokens per second.
    pub(crate) fn new(rate: f64, size: f64) -> Self {
        let spacing = 1e9 / rate;
        Self { spacing, slack: (size - 1.0) * spacing, full_at: 0.0 }
    }

    /// Takes a token if there is one.
    pub(crate) fn take(&mut self, at: NanosSinceStart) -> bool {
        let at = at as f64;
        let from = self.full_at.max(at);
        // Arrival times are whole nanoseconds, so one may be rounded up and the next one down.
        let taken = from - at <= self.slack + 1.0;
        if taken {
            self.full_at = from + self.spacing;
        }
        taken
    }
}

/// A limiter with a maximum per time window. Windows start at multiples of their length.
#[derive(Debug)]
pub(super) struct FixedWindowLimiter {
    length: NanosSinceStart,
    most: u64,
    current: u64,
    used: u64,
}

impl FixedWindowLimiter {
    pub(super) fn new(rate: f64, length: NanosSinceStart) -> Self {
        let most = (rate * length as f64 / 1e9).round() as u64;
        Self { length: length.max(1), most, current: 0, used: 0 }
    }

    pub(super) fn take(&mut self, at: NanosSinceStart) -> bool {
        let window = at / self.length;
        if window > self.current {
            (self.current, self.used) = (window, 0);
        }
        let taken = self.used < self.most;
        self.used += u64::from(taken);
        taken
    }
}

/// A leaky bucket that passes requests at a fixed distance and has a bounded queue.
#[derive(Debug)]
pub(super) struct LeakyBucketLimiter {
    spacing: f64,
    longest_wait: f64,
    free_at: f64,
}

impl LeakyBucketLimiter {
    pub(super) fn new(rate: f64, queue: f64) -> Self {
        let spacing = 1e9 / rate;
        Self { spacing, longest_wait: queue * spacing, free_at: 0.0 }
    }

    /// Returns the time at which the request passes; none if the queue is full.
    pub(super) fn take(&mut self, at: NanosSinceStart) -> Option<NanosSinceStart> {
        let at = at as f64;
        let start = self.free_at.max(at);
        if start - at > self.longest_wait + 0.5 {
            return None;
        }
        self.free_at = start + self.spacing;
        Some(start.round() as NanosSinceStart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: NanosSinceStart = 1_000_000_000;

    #[test]
    fn a_bucket_admits_rate_times_time_and_what_it_holds() {
        for (rate, size) in [(200.0, 40.0), (7.3, 1.0), (19_999.9, 512.0)] {
            let mut bucket = GcraBucket::new(rate, size);
            let offered = 5 * (rate as u64) + 1;
            let admitted = (0..10 * offered).filter(|n| bucket.take(n * SECOND / offered)).count();
            let expected = rate * 10.0 + size;
            assert!(
                (admitted as f64 - expected).abs() <= 1.0 + 10.0 * rate / offered as f64,
                "{admitted} {expected}"
            );
        }
    }

    #[test]
    fn a_bucket_admits_exactly_what_it_holds_at_once_and_is_full_again_after_size_over_rate() {
        let mut bucket = GcraBucket::new(200.0, 40.0);
        let at_once = |bucket: &mut GcraBucket, at| (0..500).filter(|_| bucket.take(at)).count();
        assert_eq!(at_once(&mut bucket, 0), 40);
        assert_eq!(at_once(&mut bucket, SECOND / 10), 20);
        assert_eq!(at_once(&mut bucket, SECOND), 40);
        assert_eq!(at_once(&mut bucket, 20 * SECOND), 40);
    }

    #[test]
    fn requests_at_exactly_the_rate_are_admitted_for_ever() {
        // If the distance is not a whole number of nanoseconds, rounding makes some requests late, which matters for a bucket of one.
        for (rate, size) in [(3.0, 2.0), (333.3, 2.0), (160.0, 1.0), (200.0, 1.0)] {
            let mut bucket = GcraBucket::new(rate, size);
            let at = |n: u64| (n as f64 * 1e9 / rate).round() as NanosSinceStart;
            assert!((0..100_000).all(|n| bucket.take(at(n))), "{rate}");
        }
    }

    #[test]
    fn a_window_admits_the_same_number_in_each_wherever_requests_come_in_it() {
        let mut window = FixedWindowLimiter::new(200.0, SECOND / 4);
        for (n, at) in [0, 240, 250, 499, 500, 1750].into_iter().enumerate() {
            let admitted = (0..80).filter(|_| window.take(at * SECOND / 1000)).count();
            // The second and the fourth burst arrive in windows that are used up.
            assert_eq!(admitted, if n == 1 || n == 3 { 0 } else { 50 }, "{at}");
        }
    }

    #[test]
    fn what_is_spaced_leaves_at_its_rate_and_waits_for_no_longer_than_the_queue() {
        let mut spaced = LeakyBucketLimiter::new(200.0, 100.0);
        let left: Vec<_> = (0..500).filter_map(|_| spaced.take(SECOND)).collect();
        assert_eq!(left.len(), 101);
        assert_eq!((left[0], left[1], left[100]), (SECOND, SECOND + 5_000_000, SECOND + SECOND / 2));
        // A single request does not wait.
        assert_eq!(spaced.take(9 * SECOND), Some(9 * SECOND));
    }
}
