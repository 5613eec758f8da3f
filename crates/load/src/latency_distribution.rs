//! A latency distribution with a stated error, in memory that does not grow with the number of values.
//!
//! Quantiles come from its buckets; count, sum and extremes are exact. Adding loses nothing, so parts of a run, and runs of
//! several generators, sum up to the whole. This module knows nothing of requests.

use std::ops::RangeInclusive;

use hdrhistogram::Histogram;

/// The precision with which a [`Distribution`] distinguishes values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Two significant digits: a quantile is at most 1 % above the true value. For rows, of which there are many.
    #[default]
    Two,
    /// Three significant digits: at most 0.1 % above. For whole runs.
    Three,
}

impl Precision {
    fn digits(self) -> u8 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

/// A distribution of nanoseconds: an HDR histogram, with count, sum, smallest and largest kept exactly.
///
/// Takes no memory until the first value. Then it takes from a few to some hundred kilobytes, by the largest value and the
/// precision, never by the count. Merging two distributions of the same precision loses nothing.
#[derive(Debug, Clone, Default)]
pub struct Distribution {
    precision: Precision,
    buckets: Option<Histogram<u64>>,
    count: u64,
    sum: i128,
    min: i64,
    max: i64,
}

impl Distribution {
    /// Makes an empty distribution.
    #[must_use]
    pub fn new(precision: Precision) -> Self {
        Self { precision, ..Self::default() }
    }

    /// Adds a value. A negative value (from a clock that was set back) counts as zero in the quantiles.
    pub fn record(&mut self, ns: i64) {
        self.min = if self.count == 0 { ns } else { self.min.min(ns) };
        self.max = if self.count == 0 { ns } else { self.max.max(ns) };
        self.count += 1;
        self.sum += i128::from(ns);
        let precision = self.precision;
        let buckets = self.buckets.get_or_insert_with(|| histogram(precision));
        // Not saturating_record, which cuts at the present range instead of growing it.
        let recorded = buckets.record(u64::try_from(ns).unwrap_or(0));
        debug_assert!(recorded.is_ok(), "a histogram that resizes itself accepts every value");
    }

    /// Adds all values of another distribution. If the other one is less precise, its error stays. If the sum of both counts does
    /// not fit, nothing is added.
    pub fn merge(&mut self, other: &Self) {
        let Some(theirs) = other.buckets.as_ref().filter(|_| other.count > 0) else { return };
        let Some(count) = self.count.checked_add(other.count) else { return };
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = if self.count == 0 { other.max } else { self.max.max(other.max) };
        self.count = count;
        self.sum = self.sum.saturating_add(other.sum);
        let precision = self.precision;
        let ours = self.buckets.get_or_insert_with(|| histogram(precision));
        let added = ours.add(theirs);
        debug_assert!(added.is_ok(), "a histogram that resizes itself accepts every value");
    }

    /// Removes all values and keeps the memory.
    pub fn clear(&mut self) {
        let buckets = self.buckets.take().map(|mut buckets| {
            buckets.reset();
            buckets
        });
        *self = Self { precision: self.precision, buckets, ..Self::default() };
    }

    /// Allocates memory for values up to `most`, so that adding them allocates none.
    pub(crate) fn preallocate_up_to_value(&mut self, most: u64) {
        let precision = self.precision;
        let buckets = self.buckets.get_or_insert_with(|| histogram(precision));
        let grown = buckets.record(most);
        debug_assert!(grown.is_ok(), "a histogram that resizes itself accepts every value");
        self.clear();
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all values.
    #[must_use]
    pub fn sum(&self) -> i128 {
        self.sum
    }

    /// Returns the smallest value; 0 without values.
    #[must_use]
    pub fn min(&self) -> i64 {
        self.min
    }

    /// Returns the largest value; 0 without values.
    #[must_use]
    pub fn max(&self) -> i64 {
        self.max
    }

    /// Returns the mean, cut to whole nanoseconds; 0 without values.
    #[must_use]
    pub fn mean(&self) -> i64 {
        let mean = self.sum.checked_div(i128::from(self.count)).unwrap_or(0);
        i64::try_from(mean).unwrap_or(i64::MAX)
    }

    /// Returns the value that the share `q` of all values does not exceed: the one at rank `ceil(q n)` of `n` sorted values. The
    /// result exceeds the true value by at most the precision and is never below it. The ends (0 and 1) are exact.
    #[must_use]
    pub fn quantile(&self, q: f64) -> i64 {
        let Some(buckets) = &self.buckets else { return 0 };
        if q <= 0.0 {
            return self.min;
        }
        let value = buckets.value_at_quantile(q.min(1.0));
        i64::try_from(value).unwrap_or(i64::MAX).clamp(self.min, self.max)
    }

    /// Makes a distribution from buckets and their exact sum and extremes; `None` if these do not fit together.
    pub(crate) fn from_buckets(
        buckets: Histogram<u64>,
        precision: Precision,
        sum: i128,
        ends: RangeInclusive<i64>,
    ) -> Option<Self> {
        let ((min, max), count) = (ends.into_inner(), buckets.len());
        let [least, most] = [min, max].map(|ns| u64::try_from(ns).ok());
        let bound = |ns: i64| i128::from(ns).checked_mul(i128::from(count));
        let fits = count > 0
            && (buckets.low(), buckets.sigfig()) == (1, precision.digits())
            && buckets.equivalent(buckets.min(), least?)
            && buckets.equivalent(buckets.max(), most?)
            && (bound(min)?..=bound(max)?).contains(&sum);
        fits.then_some(Self { precision, buckets: Some(buckets), count, sum, min, max })
    }

    /// Returns the histogram, if there is any value.
    pub(crate) fn histogram(&self) -> Option<&Histogram<u64>> {
        self.buckets.as_ref().filter(|_| self.count > 0)
    }

    /// Returns the largest value and the number of values of each bucket that is not empty.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let recorded = self.buckets.iter().flat_map(Histogram::iter_recorded);
        recorded.map(|step| (step.value_iterated_to(), step.count_at_value()))
    }
}

/// Two distributions are equal if their values are equal; reserved memory does not matter.
impl PartialEq for Distribution {
    fn eq(&self, other: &Self) -> bool {
        let known = |spread: &Self| (spread.precision, spread.count, spread.sum, spread.min, spread.max);
        known(self) == known(other) && self.buckets().eq(other.buckets())
    }
}

/// Copies the buckets of a histogram of nanoseconds exactly; sum, smallest and largest are only as precise as the buckets.
impl From<&Histogram<u64>> for Distribution {
    fn from(values: &Histogram<u64>) -> Self {
        let count = values.len();
        let bound = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let ends = if count == 0 { (0, 0) } else { (bound(values.min()), bound(values.max())) };
        let precision = if values.sigfig() < 3 { Precision::Two } else { Precision::Three };
        let sum = (values.mean() * count as f64) as i128;
        let buckets = (count > 0).then(|| values.clone());
        Self { precision, buckets, count, sum, min: ends.0, max: ends.1 }
    }
}

#[expect(clippy::expect_used, reason = "the number of digits is one of two constants, both valid")]
fn histogram(precision: Precision) -> Histogram<u64> {
    Histogram::new(precision.digits()).expect("0 to 5 digits are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_without_values_made_the_smallest_zero() {
        let mut sum = Distribution::default();
        let mut second = Distribution::default();
        second.record(500);
        sum.merge(&second);
        second.clear();
        sum.merge(&second);
        assert_eq!((sum.count(), sum.min(), sum.max()), (1, 500, 500));
    }

    #[test]
    fn room_made_beforehand_is_no_value_and_is_used() {
        let mut spread = Distribution::new(Precision::Three);
        spread.preallocate_up_to_value(1_000_000);
        assert_eq!((spread.count(), spread.min(), spread.max(), spread.buckets().count()), (0, 0, 0, 0));
        let room = spread.buckets.as_ref().map(Histogram::distinct_values);
        spread.record(1_000_000);
        assert_eq!(spread.buckets.as_ref().map(Histogram::distinct_values), room);
        assert_eq!((spread.count(), spread.max()), (1, 1_000_000));
    }

    /// Compares quantiles with those of sorted values, within the stated error, for a long-tailed set.
    #[test]
    fn quantiles_keep_their_stated_error() {
        for (precision, error) in [(Precision::Two, 0.01), (Precision::Three, 0.001)] {
            let mut random = 0x2545_f491_4f6c_dd1d_u64;
            let mut values: Vec<i64> = (0..20_000).map(|_| long_tailed(&mut random)).collect();
            let mut spread = Distribution::new(precision);
            values.iter().for_each(|value| spread.record(*value));
            values.sort_unstable();
            for q in [0.0, 0.001, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0] {
                // 0.001 x 20,000 is a hair above 20 in floating point, and is 20.
                let rank = (q * values.len() as f64 - 1e-9).ceil().max(1.0) as usize;
                let (exact, got) = (values[rank - 1], spread.quantile(q));
                assert!(got >= exact, "p{q}: {got} below {exact}");
                assert!(got as f64 <= exact as f64 * (1.0 + error), "p{q}: {got} too far above {exact}");
            }
            assert_eq!((spread.min(), spread.max()), (values[0], values[19_999]));
            assert_eq!(spread.sum(), values.iter().map(|value| i128::from(*value)).sum());
        }
    }

    fn long_tailed(random: &mut u64) -> i64 {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        let unit = (*random >> 11) as f64 / (1_u64 << 53) as f64;
        (50_000.0 / (1.0 - unit).powf(1.3)) as i64
    }
}
