//! Computes the growing waits between retries, with jitter and a maximum.

use std::time::Duration;

/// An exponential back-off. Each wait is `factor` times the previous wait, up to `ceiling`, with a jitter of ±`spread`.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    ceiling: Duration,
    factor: f64,
    spread: f64,
    tries: u32,
}

impl Backoff {
    /// Returns a back-off that doubles from `first` to `ceiling`, with a jitter of ±10 %.
    pub fn doubling(first: Duration, ceiling: Duration) -> Self {
        Self { first, ceiling, factor: 2.0, spread: 0.1, tries: 0 }
    }

    /// Returns the wait before the next try. `draw` is a random number from 0 to 1 that selects the jitter.
    pub fn next_delay(&mut self, draw: f64) -> Duration {
        // The exponent is limited to 60, where the power already exceeds any useful maximum.
        let grown =
            self.first.as_secs_f64() * self.factor.powi(i32::try_from(self.tries.min(60)).unwrap_or(60));
        self.tries = self.tries.saturating_add(1);
        let base = grown.min(self.ceiling.as_secs_f64());
        Duration::from_secs_f64(base * (1.0 - self.spread + 2.0 * self.spread * draw.clamp(0.0, 1.0)))
    }

    /// Resets the wait to the first value, after a success.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_the_ceiling_and_starts_over() {
        let mut backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(32));
        let waits: Vec<u64> = (0..8).map(|_| backoff.next_delay(0.5).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 32, 32]);
        backoff.reset();
        assert_eq!(backoff.next_delay(0.5), Duration::from_secs(1));
    }

    #[test]
    fn no_count_of_failures_overflows() {
        let mut backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));
        for _ in 0..10_000 {
            assert!(backoff.next_delay(1.0) <= Duration::from_secs(66));
        }
    }
}
