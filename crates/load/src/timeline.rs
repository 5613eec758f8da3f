//! A run over time in constant memory: the model behind the charts.
//!
//! A [`Timeline`] is a row per interval. It starts with fine intervals and doubles their width whenever the run has
//! outgrown [`MAX_ROWS`], adding neighbours up; histograms add exactly, so nothing is lost but time resolution. It is fed
//! with records (`report`, `plot`), which do not say what was really sent when; HDR logs beside them say how late that was. It
//! refuses to know how anything is drawn.
//!
//! [`Spread`] is a latency distribution with a stated error. Quantiles are never averaged, rows never dropped.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use hdrhistogram::Histogram;

use crate::record::Record;

/// Widest run in rows; 900 rows of an eighth of a second are almost two minutes, of a second a quarter of an hour.
pub const MAX_ROWS: usize = 900;

/// The first width of a row, in nanoseconds. Doubling it meets the whole second.
pub const FINEST_NS: i128 = 125_000_000;

/// A run, interval by interval.
#[derive(Debug, Clone)]
pub struct Timeline {
    width_ns: i128,
    rows: BTreeMap<i128, Row>,
}

/// What happened in one interval.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Requests that were due in it.
    pub offered: u64,
    /// Requests that were given up in it and never sent.
    pub dropped: u64,
    /// Good answers that ended in it.
    pub good: u64,
    /// Bad answers and failures that ended in it.
    pub errors: u64,
    /// Sum of the due instants in it, each from the row's start, in nanoseconds.
    due_ns: i128,
    /// Sum of the instants of its answers and failures, likewise.
    ended_ns: i128,
    /// Response times of the requests *due* in it, good and bad.
    pub response: Spread,
    /// The same from the real send; empty unless an HDR log filled it.
    pub service: Spread,
    /// Real send minus due instant; empty unless an HDR log filled it.
    pub lag: Spread,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { width_ns: FINEST_NS, rows: BTreeMap::new() }
    }
}

impl Timeline {
    /// Adds one answered request: offered when it was due, good or bad when it ended.
    pub fn add(&mut self, record: &Record) {
        let (due, ended) = (record.timestamp.unix_ns(), record.end_unix_ns());
        // Both first, for each may double the width.
        self.make_room(due);
        self.make_room(ended);
        let width = self.width_ns;
        let row = self.row_mut(due);
        row.offered += 1;
        row.due_ns += due.rem_euclid(width);
        row.response.record(record.latency_ns);
        let row = self.row_mut(ended);
        row.ended_ns += ended.rem_euclid(width);
        let outcome = if record.is_success() { &mut row.good } else { &mut row.errors };
        *outcome += 1;
    }

    /// The row that covers an instant, made if need be.
    pub fn row_mut(&mut self, unix_ns: i128) -> &mut Row {
        self.make_room(unix_ns);
        self.rows.entry(unix_ns.div_euclid(self.width_ns)).or_default()
    }

    fn make_room(&mut self, unix_ns: i128) {
        while !self.fits(unix_ns) {
            self.double();
        }
        self.rows.entry(unix_ns.div_euclid(self.width_ns)).or_default();
    }

    fn fits(&self, unix_ns: i128) -> bool {
        let at = unix_ns.div_euclid(self.width_ns);
        let first = self.rows.first_key_value().map_or(at, |(first, _)| at.min(*first));
        let last = self.rows.last_key_value().map_or(at, |(last, _)| at.max(*last));
        last - first < MAX_ROWS as i128
    }

    /// Adds each odd row to the even one in front of it.
    pub fn double(&mut self) {
        for (at, mut row) in std::mem::take(&mut self.rows) {
            if at.rem_euclid(2) == 1 {
                row.shift(self.width_ns);
            }
            self.rows.entry(at.div_euclid(2)).or_default().merge(&row);
        }
        self.width_ns *= 2;
    }

    /// Adds another run's rows, each at its own instant.
    pub fn merge(&mut self, other: &Self) {
        while self.width_ns < other.width_ns {
            self.double();
        }
        for (at, row) in &other.rows {
            let start = at * other.width_ns;
            self.make_room(start);
            let mut row = row.clone();
            row.shift(start.rem_euclid(self.width_ns));
            self.row_mut(start).merge(&row);
        }
    }

    /// Width of a row in seconds.
    #[must_use]
    pub fn width_seconds(&self) -> f64 {
        self.width_ns as f64 / 1e9
    }

    /// When the first row starts, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn start_unix_ns(&self) -> Option<i128> {
        self.rows.first_key_value().map(|(first, _)| first * self.width_ns)
    }

    /// How many rows the run spans, those in which nothing happened included.
    #[must_use]
    pub fn span(&self) -> usize {
        let ends = self.rows.first_key_value().zip(self.rows.last_key_value());
        ends.map_or(0, |((first, _), (last, _))| usize::try_from(last - first + 1).unwrap_or(usize::MAX))
    }

    /// Every row of the span in order, `None` where nothing happened.
    pub fn rows(&self) -> impl Iterator<Item = Option<&Row>> {
        let first = self.rows.first_key_value().map_or(0, |(first, _)| *first);
        (first..first + self.span() as i128).map(|at| self.rows.get(&at))
    }

    /// The mean number of requests in flight in each row: due and not yet ended (Little's law, exact whatever the
    /// width of the rows). Requires that the rows were filled by [`Timeline::add`].
    pub fn in_flight(&self) -> impl Iterator<Item = f64> {
        let width = self.width_ns;
        self.rows().scan(0_i128, move |open, row| {
            let before = *open;
            let Some(row) = row else { return Some(before as f64) };
            let (due, ended) = (i128::from(row.offered), i128::from(row.good + row.errors));
            *open += due - ended;
            // What was open stayed so for the whole row; each due request adds the rest of it, each ended one takes it.
            let area = *open * width - row.due_ns + row.ended_ns;
            Some(area as f64 / width as f64)
        })
    }
}

impl Row {
    /// Counts the row's instants from a start that lies so much earlier.
    fn shift(&mut self, by_ns: i128) {
        self.due_ns += by_ns * i128::from(self.offered);
        self.ended_ns += by_ns * i128::from(self.good + self.errors);
    }

    /// Adds another row's counts and distributions.
    pub fn merge(&mut self, other: &Self) {
        self.offered += other.offered;
        self.dropped += other.dropped;
        self.good += other.good;
        self.errors += other.errors;
        self.due_ns += other.due_ns;
        self.ended_ns += other.ended_ns;
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.lag.merge(&other.lag);
    }
}

/// How finely a [`Spread`] tells values apart.
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
/// Takes no memory until the first value; then a few kilobytes to some hundred, by the largest value and the precision,
/// never by the count. Adding two spreads loses nothing.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    precision: Precision,
    buckets: Option<Histogram<u64>>,
    count: u64,
    sum: i128,
    min: i64,
    max: i64,
}

impl Spread {
    /// Nothing yet.
    #[must_use]
    pub fn new(precision: Precision) -> Self {
        Self { precision, ..Self::default() }
    }

    /// Adds a value. A negative one (a clock that was set back) counts as zero among the quantiles.
    pub fn record(&mut self, ns: i64) {
        self.min = if self.count == 0 { ns } else { self.min.min(ns) };
        self.max = if self.count == 0 { ns } else { self.max.max(ns) };
        self.count += 1;
        self.sum += i128::from(ns);
        let precision = self.precision;
        let buckets = self.buckets.get_or_insert_with(|| histogram(precision));
        // Not saturating_record, which cuts at the present range instead of growing it.
        let recorded = buckets.record(u64::try_from(ns).unwrap_or(0));
        debug_assert!(recorded.is_ok(), "a histogram that resizes itself takes every value");
    }

    /// Adds all values of another one. If that is the less precise one, its error is kept.
    pub fn merge(&mut self, other: &Self) {
        let Some(theirs) = other.buckets.as_ref().filter(|_| other.count > 0) else { return };
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = if self.count == 0 { other.max } else { self.max.max(other.max) };
        self.count += other.count;
        self.sum += other.sum;
        let precision = self.precision;
        let ours = self.buckets.get_or_insert_with(|| histogram(precision));
        let added = ours.add(theirs);
        debug_assert!(added.is_ok(), "a histogram that resizes itself takes every value");
    }

    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        let buckets = self.buckets.take().map(|mut buckets| {
            buckets.reset();
            buckets
        });
        *self = Self { precision: self.precision, buckets, ..Self::default() };
    }

    /// Makes room for values up to `most`, so that they take no memory any more when they come.
    pub(crate) fn reserve(&mut self, most: u64) {
        let precision = self.precision;
        let buckets = self.buckets.get_or_insert_with(|| histogram(precision));
        let grown = buckets.record(most);
        debug_assert!(grown.is_ok(), "a histogram that resizes itself takes every value");
        self.clear();
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> i128 {
        self.sum
    }

    /// The smallest; 0 without any.
    #[must_use]
    pub fn min(&self) -> i64 {
        self.min
    }

    /// The largest; 0 without any.
    #[must_use]
    pub fn max(&self) -> i64 {
        self.max
    }

    /// The mean, cut to whole nanoseconds; 0 without any.
    #[must_use]
    pub fn mean(&self) -> i64 {
        let mean = self.sum.checked_div(i128::from(self.count)).unwrap_or(0);
        i64::try_from(mean).unwrap_or(i64::MAX)
    }

    /// The value that the share `q` of all values does not exceed: of `n` sorted values the one at rank `ceil(q n)`,
    /// overstated by the precision at most, never understated. The ends (0 and 1) are exact.
    #[must_use]
    pub fn quantile(&self, q: f64) -> i64 {
        let Some(buckets) = &self.buckets else { return 0 };
        if q <= 0.0 {
            return self.min;
        }
        let value = buckets.value_at_quantile(q.min(1.0));
        i64::try_from(value).unwrap_or(i64::MAX).clamp(self.min, self.max)
    }

    /// Of buckets made elsewhere, and what is known exactly beside them; none if that does not fit together.
    pub(crate) fn told(
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

    /// The histogram itself, if there is any value.
    pub(crate) fn histogram(&self) -> Option<&Histogram<u64>> {
        self.buckets.as_ref().filter(|_| self.count > 0)
    }

    /// How many values lie in each bucket that has any: the bucket's largest value, and the count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let recorded = self.buckets.iter().flat_map(Histogram::iter_recorded);
        recorded.map(|step| (step.value_iterated_to(), step.count_at_value()))
    }
}

/// Room that was made beforehand is no difference.
impl PartialEq for Spread {
    fn eq(&self, other: &Self) -> bool {
        let known = |spread: &Self| (spread.precision, spread.count, spread.sum, spread.min, spread.max);
        known(self) == known(other) && self.buckets().eq(other.buckets())
    }
}

/// From a histogram of nanoseconds made elsewhere: its buckets exactly; sum, smallest and largest as precise as those.
impl From<&Histogram<u64>> for Spread {
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
    use crate::record::{Timestamp, Zone};

    fn answered(at_ms: i64, latency_ms: i64, code: u16) -> Record {
        Record {
            timestamp: Timestamp::from_unix_ns(at_ms * 1_000_000, Zone::Utc),
            latency_ns: latency_ms * 1_000_000,
            code,
            ..Record::default()
        }
    }

    #[test]
    fn a_second_without_values_made_the_smallest_zero() {
        let mut sum = Spread::default();
        let mut second = Spread::default();
        second.record(500);
        sum.merge(&second);
        second.clear();
        sum.merge(&second);
        assert_eq!((sum.count(), sum.min(), sum.max()), (1, 500, 500));
    }

    #[test]
    fn room_made_beforehand_is_no_value_and_is_used() {
        let mut spread = Spread::new(Precision::Three);
        spread.reserve(1_000_000);
        assert_eq!((spread.count(), spread.min(), spread.max(), spread.buckets().count()), (0, 0, 0, 0));
        let room = spread.buckets.as_ref().map(Histogram::distinct_values);
        spread.record(1_000_000);
        assert_eq!(spread.buckets.as_ref().map(Histogram::distinct_values), room);
        assert_eq!((spread.count(), spread.max()), (1, 1_000_000));
    }

    #[test]
    fn a_request_is_offered_when_due_and_counted_when_it_ends() {
        let mut timeline = Timeline::default();
        timeline.add(&answered(0, 10, 200));
        timeline.add(&answered(100, 200, 500));
        timeline.add(&answered(200, 1, 304));
        let rows: Vec<_> =
            timeline.rows().map(|row| row.map(|row| (row.offered, row.good, row.errors))).collect();
        assert_eq!(rows, [Some((2, 1, 0)), Some((1, 1, 0)), Some((0, 0, 1))]);
    }

    #[test]
    fn the_mean_in_flight_is_littles_law_at_any_width() {
        let mut timeline = Timeline::default();
        // From 50 ms on a request every 10 ms, each in the air for 25 ms: two and a half at a time.
        (0..1000).for_each(|i| timeline.add(&answered(50 + i * 10, 25, 200)));
        let means: Vec<f64> = timeline.in_flight().collect();
        // Six requests with all of their 25 ms, one with 15, one with 5, in 125 ms.
        assert!((means[0] - 170.0 / 125.0).abs() < 1e-9, "{means:?}");
        for _ in 0..3 {
            let steady: Vec<f64> = timeline.in_flight().skip(1).take(8).collect();
            assert!(steady.iter().all(|mean| (mean - 2.5).abs() < 0.11), "{steady:?}");
            let area: f64 = timeline.in_flight().sum::<f64>() * timeline.width_seconds();
            assert!((area - 25.0).abs() < 1e-6, "{area}");
            timeline.double();
        }
    }

    #[test]
    fn a_long_run_gets_wider_rows_and_loses_no_request() {
        let mut timeline = Timeline::default();
        // Backwards, as slow answers come: rows are also added in front.
        (0..100_000).rev().for_each(|second| timeline.add(&answered(second * 1000, 1, 200)));
        assert!(timeline.span() <= MAX_ROWS, "{}", timeline.span());
        assert_eq!(timeline.rows().flatten().map(|row| row.offered).sum::<u64>(), 100_000);
        assert_eq!(timeline.rows().flatten().map(|row| row.response.count()).sum::<u64>(), 100_000);
        assert!((timeline.width_seconds() - 128.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_lost_clock_widens_the_rows_and_does_no_harm() {
        let mut timeline = Timeline::default();
        timeline.add(&Record::default());
        timeline.add(&answered(1_700_000_000_000, i64::MAX / 1_000_000, 200));
        assert!(timeline.span() <= MAX_ROWS);
    }

    #[test]
    fn merged_runs_are_one_run() {
        let (mut even, mut odd, mut all) = (Timeline::default(), Timeline::default(), Timeline::default());
        for second in 0..2000 {
            let record = answered(second * 1000, second, 200);
            (if second % 2 == 0 { &mut even } else { &mut odd }).add(&record);
            all.add(&record);
        }
        even.merge(&odd);
        let counts = |timeline: &Timeline| {
            timeline.rows().map(|row| row.map_or(0, |row| row.response.count())).collect::<Vec<_>>()
        };
        assert_eq!(counts(&even), counts(&all));
    }

    /// Quantiles against sorting, with the error that the precision states, on a long-tailed set.
    #[test]
    fn quantiles_keep_their_stated_error() {
        for (precision, error) in [(Precision::Two, 0.01), (Precision::Three, 0.001)] {
            let mut random = 0x2545_f491_4f6c_dd1d_u64;
            let mut values: Vec<i64> = (0..20_000).map(|_| long_tailed(&mut random)).collect();
            let mut spread = Spread::new(precision);
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
