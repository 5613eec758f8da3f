//! A rate that adapts to an unknown capacity. The rate halves when the cloud throttles a call, and grows with successful calls.
//! Several agents that follow this rule share the cloud's capacity fairly (Chiu and Jain, 1989). All calls to a cloud share one
//! such rate, and each throttled account also has its own rate.

use std::time::Duration;

use seawall_core::Moment;

/// Throttled calls within this time count as one signal, because the cloud throttles the calls of one burst together.
const ONE_SIGN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct AdaptiveRate {
    per_second: f64,
    least: f64,
    most: f64,
    spread: f64,
    halved: Option<Moment>,
    /// The time from which the next call can start.
    next: Moment,
}

impl AdaptiveRate {
    /// Returns a rate that starts at `most` and never falls below `least`. `spread` is the random part of each pause, as a
    /// fraction.
    pub(super) fn new(least: f64, most: f64, spread: f64) -> Self {
        Self { per_second: most, least, most, spread, halved: None, next: Moment::from_nanos(0) }
    }

    pub(super) fn calls_per_second(&self) -> f64 {
        self.per_second
    }

    pub(super) fn is_at_max(&self) -> bool {
        self.per_second >= self.most
    }

    pub(super) fn next_start_at(&self) -> Moment {
        self.next
    }

    pub(super) fn last_halved_at(&self) -> Option<Moment> {
        self.halved
    }

    pub(super) fn record_start(&mut self, now: Moment) {
        self.next = now + self.pause();
    }

    /// Raises the rate after a success. In total, the rate grows by one call per second in each second.
    /// A success must not add a whole call per second. Otherwise the rate would double each second, and the cloud would throttle
    /// half of all calls. Below one call per second, one success at most doubles the rate. Otherwise one success would raise a
    /// rate of 0.1 calls per second to 10.1.
    pub(super) fn record_success(&mut self) {
        let more = self.per_second.recip().min(self.per_second);
        self.per_second = (self.per_second + more).min(self.most);
    }

    pub(super) fn record_throttled(&mut self, now: Moment, retry_after: Option<Duration>) {
        if self.halved.is_none_or(|last| now.since(last) >= ONE_SIGN) {
            self.halved = Some(now);
            self.slow_down(now);
        }
        self.next = self.next.max(now + retry_after.unwrap_or_default());
    }

    /// Halves the rate, but not below `least`. If the rate falls, a new pause starts now.
    fn slow_down(&mut self, now: Moment) {
        let slower = (self.per_second / 2.0).max(self.least);
        if slower < self.per_second {
            self.per_second = slower;
            self.next = self.next.max(now + self.pause());
        }
    }

    fn pause(&self) -> Duration {
        let jitter = self.spread * (fastrand::f64() - 0.5);
        Duration::from_secs_f64(self.per_second.recip() * (1.0 + jitter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn halves_once_per_sign_and_grows_with_success() {
        let mut rate = AdaptiveRate::new(0.5, 100.0, 0.0);
        (0..10).for_each(|_| rate.record_throttled(at(0), None));
        assert_eq!(rate.calls_per_second(), 50.0);
        rate.record_throttled(at(1), None);
        assert_eq!(rate.calls_per_second(), 25.0);
        (0..25).for_each(|_| rate.record_success());
        assert!((25.9..26.1).contains(&rate.calls_per_second()), "one more after the calls of one second");
        (0..10_000).for_each(|_| rate.record_success());
        assert!(rate.is_at_max());
        (2..40).for_each(|second| rate.record_throttled(at(second), None));
        assert_eq!(rate.calls_per_second(), 0.5);
        rate.record_success();
        assert_eq!(rate.calls_per_second(), 1.0, "at most doubled");
    }

    #[test]
    fn a_wait_that_the_cloud_asks_for_is_kept() {
        let mut rate = AdaptiveRate::new(0.5, 10.0, 0.0);
        rate.record_throttled(at(1), Some(Duration::from_secs(7)));
        assert_eq!(rate.next_start_at(), at(8));
        rate.record_throttled(at(2), None);
        assert_eq!(rate.next_start_at(), at(8), "never brought forward");
    }
}
