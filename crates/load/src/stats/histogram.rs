//! Latencies as counts: nanoseconds in, quantiles out.
//!
//! Knows nothing of requests and of why a latency is measured. Filled by [`super::LoadStats`] and by whoever keeps figures of
//! its own; how values become counts is [`crate::latency_distribution`]'s business.

use crate::clock::{Nanos, SECOND};
use crate::latency_distribution::{Distribution, Precision};

/// Up to a second every latency may come, if only because this machine was busy. A histogram for so much takes 168 KiB;
/// with room for less the outliers of a long run would add megabytes to it, and with room for any the collector would be
/// slower each second.
const USUAL: Nanos = SECOND;

/// A [`Distribution`] of whole nanoseconds with three significant digits. Costs nothing until something is recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyHistogram(pub(super) Distribution);

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self(Distribution::new(Precision::Three))
    }
}

impl LatencyHistogram {
    /// One more value.
    #[inline]
    pub fn record(&mut self, value: Nanos) {
        self.0.record(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Adds another's counts, exactly.
    pub fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    /// Makes room for what is usual.
    pub(super) fn reserve(&mut self) {
        self.0.reserve(USUAL);
    }

    /// Forgets the counts and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// The value at a quantile from 0 to 1; 0 when empty.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Nanos {
        self.0.quantile(quantile).unsigned_abs()
    }

    /// The value that `rank` values do not exceed, counted from 1; none when there are fewer.
    #[must_use]
    pub fn at_rank(&self, rank: u64) -> Option<Nanos> {
        // Half a value below, so that no rounding makes it the next one.
        let quantile = (rank as f64 - 0.5) / self.count() as f64;
        (1..=self.count()).contains(&rank).then(|| self.quantile(quantile))
    }

    /// The mean; 0 when empty.
    #[must_use]
    pub fn mean(&self) -> Nanos {
        self.0.mean().unsigned_abs()
    }

    /// The smallest value; 0 when empty.
    #[must_use]
    pub fn min(&self) -> Nanos {
        self.0.min().unsigned_abs()
    }

    /// The largest value; 0 when empty.
    #[must_use]
    pub fn max(&self) -> Nanos {
        self.0.max().unsigned_abs()
    }

    /// The distribution itself, for logs and charts.
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
