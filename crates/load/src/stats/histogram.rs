//! Latencies as counts: nanoseconds in, quantiles out.
//!
//! This module knows nothing of requests. [`super::LoadStats`] and other figures use it; [`crate::latency_distribution`] turns
//! values into counts.

use crate::clock::{Nanos, SECOND};
use crate::latency_distribution::{Distribution, Precision};

/// The largest latency for which memory is allocated in advance. Every latency up to a second can occur, if only because this
/// machine was busy. A histogram up to a second takes 168 KiB. With a smaller one, the outliers of a long run would add
/// megabytes; with a larger one, the collector would be slower each second.
const USUAL: Nanos = SECOND;

/// A [`Distribution`] of whole nanoseconds with three significant digits. Takes no memory until the first value.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyHistogram(pub(super) Distribution);

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self(Distribution::new(Precision::Three))
    }
}

impl LatencyHistogram {
    /// Adds a value.
    #[inline]
    pub fn record(&mut self, value: Nanos) {
        self.0.record(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Adds all values of another histogram, exactly.
    pub fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    /// Allocates memory for the usual latencies.
    pub(super) fn reserve_usual_latencies(&mut self) {
        self.0.preallocate_up_to_value(USUAL);
    }

    /// Removes all values and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// Returns the value at a quantile from 0 to 1; 0 without values.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Nanos {
        self.0.quantile(quantile).unsigned_abs()
    }

    /// Returns the value that `rank` values do not exceed, counted from 1; `None` if there are fewer values.
    #[must_use]
    pub fn at_rank(&self, rank: u64) -> Option<Nanos> {
        // The rank is reduced by a half, so that rounding does not make it the next one.
        let quantile = (rank as f64 - 0.5) / self.count() as f64;
        (1..=self.count()).contains(&rank).then(|| self.quantile(quantile))
    }

    /// Returns the mean; 0 without values.
    #[must_use]
    pub fn mean(&self) -> Nanos {
        self.0.mean().unsigned_abs()
    }

    /// Returns the smallest value; 0 without values.
    #[must_use]
    pub fn min(&self) -> Nanos {
        self.0.min().unsigned_abs()
    }

    /// Returns the largest value; 0 without values.
    #[must_use]
    pub fn max(&self) -> Nanos {
        self.0.max().unsigned_abs()
    }

    /// Returns the distribution itself, for logs and charts.
    #[must_use]
    pub fn distribution(&self) -> &Distribution {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_exact_to_the_value_and_beyond_the_last_there_is_none() {
        let mut values = LatencyHistogram::default();
        (1..=300).for_each(|value| values.record(value));
        assert_eq!(
            (1..=300).map(|rank| values.at_rank(rank)).collect::<Vec<_>>(),
            (1..=300).map(Some).collect::<Vec<_>>()
        );
        assert_eq!(
            (values.at_rank(0), values.at_rank(301), LatencyHistogram::default().at_rank(1)),
            (None, None, None)
        );
    }
}
