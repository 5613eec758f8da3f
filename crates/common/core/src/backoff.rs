//! Waits between tries that grow, with jitter, up to a ceiling.

use std::time::Duration;

/// Exponential back-off: each wait is `factor` times the last, up to `ceiling`, spread by ±`spread`.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    ceiling: Duration,
    factor: f64,
    spread: f64,
    tries: u32,
}

impl Backoff {
    /// Doubling waits from `first` to `ceiling` with a tenth of jitter.
    pub fn doubling(first: Duration, ceiling: Duration) -> Self {
        Self { first, ceiling, factor: 2.0, spread: 0.1, tries: 0 }
    }

    /// The wait before the next try. `draw` in 0..=1 places it inside the jitter band.
    pub fn next(&mut self, draw: f64) -> Duration {
        // The exponent is capped where the power already exceeds any sensible ceiling.
        let grown =
            self.first.as_secs_f64() * self.factor.powi(i32::try_from(self.tries.min(60)).unwrap_or(60));
        self.tries = self.tries.saturating_add(1);
        let base = grown.min(self.ceiling.as_secs_f64());
        Duration::from_secs_f64(base * (1.0 - self.spread + 2.0 * self.spread * draw.clamp(0.0, 1.0)))
    }

    /// Starts over after a success.
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
        let waits: Vec<u64> = (0..8).map(|_| backoff.next(0.5).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 32, 32]);
        backoff.reset();
        assert_eq!(backoff.next(0.5), Duration::from_secs(1));
    }

    #[test]
    fn no_count_of_failures_overflows() {
        let mut backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));
        for _ in 0..10_000 {
            assert!(backoff.next(1.0) <= Duration::from_secs(66));
        }
    }
}
