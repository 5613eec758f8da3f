//! A run over time in constant memory: the model behind the charts.
//!
//! A [`Timeline`] has a row per interval. It starts with short intervals and doubles their width whenever the run exceeds
//! [`MAX_ROWS`], adding neighbours up. Histograms add exactly, so only time resolution is lost. It is built from records
//! (`report`, `plot`), which do not have the time of the real send; HDR logs beside them have the send lag. The module does not
//! draw. Quantiles are never averaged, rows never dropped.

use std::collections::BTreeMap;

use crate::latency_distribution::Distribution;
use crate::record::Record;

/// The maximum number of rows: 900 rows of an eighth of a second are almost two minutes, of a second a quarter of an hour.
pub const MAX_ROWS: usize = 900;

/// The first width of a row, in nanoseconds. Doubling it reaches a whole second.
pub const FINEST_NS: i128 = 125_000_000;

/// A run, interval by interval.
#[derive(Debug, Clone)]
pub struct Timeline {
    width_ns: i128,
    rows: BTreeMap<i128, TimelineRow>,
}

/// The events of one interval.
#[derive(Debug, Clone, Default)]
pub struct TimelineRow {
    /// Requests that were due in the interval.
    pub offered: u64,
    /// Requests that were given up in the interval and never sent.
    pub dropped: u64,
    /// Good responses that ended in the interval.
    pub good: u64,
    /// Bad responses and failures that ended in the interval.
    pub errors: u64,
    /// The sum of the due instants in the interval, each from the row's start, in nanoseconds.
    due_ns: i128,
    /// The sum of the end instants in the interval, each from the row's start, in nanoseconds.
    ended_ns: i128,
    /// The response times of the requests that were *due* in the interval, good and bad.
    pub response_times: Distribution,
    /// The service times, by the real send; empty unless an HDR log filled it.
    pub service_times: Distribution,
    /// The send lag; empty unless an HDR log filled it.
    pub send_lags: Distribution,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { width_ns: FINEST_NS, rows: BTreeMap::new() }
    }
}

impl Timeline {
    /// Adds one answered request: offered when it was due, good or bad when it ended.
    pub fn add_record(&mut self, record: &Record) {
        let (due, ended) = (record.due_timestamp.unix_ns(), record.end_unix_ns());
        // Room for both is made first, because each may double the width.
        self.make_room(due);
        self.make_room(ended);
        let width = self.width_ns;
        let row = self.row_mut(due);
        row.offered += 1;
        row.due_ns += due.rem_euclid(width);
        row.response_times.record(record.latency_ns);
        let row = self.row_mut(ended);
        row.ended_ns += ended.rem_euclid(width);
        let outcome = if record.is_success() { &mut row.good } else { &mut row.errors };
        *outcome += 1;
    }

    /// Returns the row of an instant, and adds the row if it is missing.
    pub fn row_mut(&mut self, unix_ns: i128) -> &mut TimelineRow {
        self.make_room(unix_ns);
        self.rows.entry(unix_ns.div_euclid(self.width_ns)).or_default()
    }

    fn make_room(&mut self, unix_ns: i128) {
        while !self.fits(unix_ns) {
            self.double_row_width();
        }
        self.rows.entry(unix_ns.div_euclid(self.width_ns)).or_default();
    }

    fn fits(&self, unix_ns: i128) -> bool {
        let at = unix_ns.div_euclid(self.width_ns);
        let first = self.rows.first_key_value().map_or(at, |(first, _)| at.min(*first));
        let last = self.rows.last_key_value().map_or(at, |(last, _)| at.max(*last));
        last - first < MAX_ROWS as i128
    }

    /// Doubles the width of the rows; each odd row is added to the even row before it.
    pub fn double_row_width(&mut self) {
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
            self.double_row_width();
        }
        for (at, row) in &other.rows {
            let start = at * other.width_ns;
            self.make_room(start);
            let mut row = row.clone();
            row.shift(start.rem_euclid(self.width_ns));
            self.row_mut(start).merge(&row);
        }
    }

    /// Returns the width of a row in seconds.
    #[must_use]
    pub fn width_seconds(&self) -> f64 {
        self.width_ns as f64 / 1e9
    }

    /// Returns the start of the first row, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn start_unix_ns(&self) -> Option<i128> {
        self.rows.first_key_value().map(|(first, _)| first * self.width_ns)
    }

    /// Returns the number of rows that the run spans, with the rows in which nothing happened.
    #[must_use]
    pub fn span_rows(&self) -> usize {
        let ends = self.rows.first_key_value().zip(self.rows.last_key_value());
        ends.map_or(0, |((first, _), (last, _))| usize::try_from(last - first + 1).unwrap_or(usize::MAX))
    }

    /// Returns every row of the span in order; `None` for a row in which nothing happened.
    pub fn rows(&self) -> impl Iterator<Item = Option<&TimelineRow>> {
        let first = self.rows.first_key_value().map_or(0, |(first, _)| *first);
        (first..first + self.span_rows() as i128).map(|at| self.rows.get(&at))
    }

    /// Returns the mean number of requests in flight in each row: due and not yet ended (Little's law, exact for any width of the
    /// rows). Requires that the rows were filled by [`Timeline::add_record`].
    pub fn mean_in_flight_by_row(&self) -> impl Iterator<Item = f64> {
        let width = self.width_ns;
        self.rows().scan(0_i128, move |open, row| {
            let before = *open;
            let Some(row) = row else { return Some(before as f64) };
            let (due, ended) = (i128::from(row.offered), i128::from(row.good + row.errors));
            *open += due - ended;
            // Requests that were open stay so for the whole row; each due request adds the rest of the row, each ended one takes
            // it.
            let area = *open * width - row.due_ns + row.ended_ns;
            Some(area as f64 / width as f64)
        })
    }
}

impl TimelineRow {
    /// Moves the row's start back by this time, and adapts the sums of instants.
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
        self.response_times.merge(&other.response_times);
        self.service_times.merge(&other.service_times);
        self.send_lags.merge(&other.send_lags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Zone, ZonedTimestamp};

    fn answered(at_ms: i64, latency_ms: i64, code: u16) -> Record {
        Record {
            due_timestamp: ZonedTimestamp::from_unix_ns(at_ms * 1_000_000, Zone::Utc),
            latency_ns: latency_ms * 1_000_000,
            code,
            ..Record::default()
        }
    }

    #[test]
    fn a_request_is_offered_when_due_and_counted_when_it_ends() {
        let mut timeline = Timeline::default();
        timeline.add_record(&answered(0, 10, 200));
        timeline.add_record(&answered(100, 200, 500));
        timeline.add_record(&answered(200, 1, 304));
        let rows: Vec<_> =
            timeline.rows().map(|row| row.map(|row| (row.offered, row.good, row.errors))).collect();
        assert_eq!(rows, [Some((2, 1, 0)), Some((1, 1, 0)), Some((0, 0, 1))]);
    }

    #[test]
    fn the_mean_in_flight_is_littles_law_at_any_width() {
        let mut timeline = Timeline::default();
        // From 50 ms on a request every 10 ms, each in the air for 25 ms: two and a half at a time.
        (0..1000).for_each(|i| timeline.add_record(&answered(50 + i * 10, 25, 200)));
        let means: Vec<f64> = timeline.mean_in_flight_by_row().collect();
        // Six requests with all of their 25 ms, one with 15, one with 5, in 125 ms.
        assert!((means[0] - 170.0 / 125.0).abs() < 1e-9, "{means:?}");
        for _ in 0..3 {
            let steady: Vec<f64> = timeline.mean_in_flight_by_row().skip(1).take(8).collect();
            assert!(steady.iter().all(|mean| (mean - 2.5).abs() < 0.11), "{steady:?}");
            let area: f64 = timeline.mean_in_flight_by_row().sum::<f64>() * timeline.width_seconds();
            assert!((area - 25.0).abs() < 1e-6, "{area}");
            timeline.double_row_width();
        }
    }

    #[test]
    fn a_long_run_gets_wider_rows_and_loses_no_request() {
        let mut timeline = Timeline::default();
        // Backwards, as slow answers come: rows are also added in front.
        (0..100_000).rev().for_each(|second| timeline.add_record(&answered(second * 1000, 1, 200)));
        assert!(timeline.span_rows() <= MAX_ROWS, "{}", timeline.span_rows());
        assert_eq!(timeline.rows().flatten().map(|row| row.offered).sum::<u64>(), 100_000);
        assert_eq!(timeline.rows().flatten().map(|row| row.response_times.count()).sum::<u64>(), 100_000);
        assert!((timeline.width_seconds() - 128.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_lost_clock_widens_the_rows_and_does_no_harm() {
        let mut timeline = Timeline::default();
        timeline.add_record(&Record::default());
        timeline.add_record(&answered(1_700_000_000_000, i64::MAX / 1_000_000, 200));
        assert!(timeline.span_rows() <= MAX_ROWS);
    }

    #[test]
    fn merged_runs_are_one_run() {
        let (mut even, mut odd, mut all) = (Timeline::default(), Timeline::default(), Timeline::default());
        for second in 0..2000 {
            let record = answered(second * 1000, second, 200);
            (if second % 2 == 0 { &mut even } else { &mut odd }).add_record(&record);
            all.add_record(&record);
        }
        even.merge(&odd);
        let counts = |timeline: &Timeline| {
            timeline.rows().map(|row| row.map_or(0, |row| row.response_times.count())).collect::<Vec<_>>()
        };
        assert_eq!(counts(&even), counts(&all));
    }
}
