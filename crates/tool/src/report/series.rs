//! Runs as numbers ready to be drawn: what the HTML page and the SVG pictures share.

use seawall_load::charted_timeline::{Timeline, TimelineRow};
use seawall_load::latency_distribution::Distribution;
use serde::Serialize;

use super::rates::{MIN_RATE_SPAN_SECONDS, Rates, schedule_seconds};
use super::runs::{RunResults, TargetTotals};
use super::totals::Totals;

/// More points than this cannot be told apart on a screen.
pub(crate) const MAX_POINTS: usize = 300;

/// The fewest requests per point, so that one more or less does not visibly move a rate. Rows with fewer are merged, down to
/// [`MIN_POINTS`].
pub(super) const MIN_REQUESTS_PER_POINT: u64 = 100;
/// Fewest points of a curve, however few requests there are.
pub(super) const MIN_POINTS: usize = 15;

/// Answers that a quantile must have above it to be more than a guess (load-testing practice: below about four there is
/// no upper bound at 95 % confidence).
pub(crate) const MIN_RESPONSES_ABOVE_QUANTILE: f64 = 4.0;

/// The data of one run. The page gets its charts as [`super::chart::Charts`].
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunSeries {
    pub(crate) name: String,
    /// True if the run is known to be a closed loop, in which nothing is due at a rate.
    #[serde(skip)]
    pub(crate) is_closed_loop: bool,
    pub(crate) figures: RunFigures,
    pub(crate) codes: Vec<(u16, u64)>,
    /// Texts with counts; a last one without a count says what was left out.
    pub(crate) errors: Vec<(String, Option<u64>)>,
    #[serde(rename = "targets")]
    pub(crate) target_figures: Vec<TargetFigures>,
    /// `-log10(1 - q)` and the response time at q, in nanoseconds.
    #[serde(skip)]
    pub(crate) quantile_curve: Vec<(f64, i64)>,
    /// The position on the curve from which fewer than four responses remain.
    #[serde(skip)]
    pub(crate) few_responses_from: f64,
    /// Seconds since the first request was due, where each point starts.
    #[serde(skip)]
    pub(crate) point_start_seconds: Vec<f64>,
    #[serde(skip)]
    pub(crate) offered_rate: Vec<Option<f64>>,
    #[serde(skip)]
    pub(crate) achieved_rate: Vec<Option<f64>>,
    #[serde(skip)]
    pub(crate) good_rate: Vec<Option<f64>>,
    #[serde(skip)]
    pub(crate) error_rate: Vec<Option<f64>>,
    #[serde(skip)]
    pub(crate) mean_in_flight: Vec<Option<f64>>,
    #[serde(skip)]
    pub(crate) response_time_p50: Vec<Option<i64>>,
    #[serde(skip)]
    pub(crate) response_time_p90: Vec<Option<i64>>,
    #[serde(skip)]
    pub(crate) response_time_p99: Vec<Option<i64>>,
    #[serde(skip)]
    pub(crate) max_response_time: Vec<Option<i64>>,
    #[serde(skip)]
    pub(crate) service_time_p99: Vec<Option<i64>>,
    #[serde(skip)]
    pub(crate) send_lag_p99: Vec<Option<i64>>,
}

/// One number each about a whole run; nanoseconds unless said otherwise.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunFigures {
    pub(crate) requests: u64,
    /// Requests that have a response time; percentiles are of these.
    pub(crate) timed: u64,
    /// From the first request due to the last.
    pub(crate) seconds: f64,
    /// The rates during the schedule, per second.
    #[serde(flatten)]
    pub(crate) rates: Rates,
    /// From the end of the schedule to the last answer.
    pub(crate) after_seconds: f64,
    /// 0 to 1.
    pub(crate) success: f64,
    pub(crate) min: i64,
    pub(crate) mean: i64,
    pub(crate) p50: i64,
    pub(crate) p90: i64,
    pub(crate) p95: i64,
    pub(crate) p99: i64,
    pub(crate) p999: i64,
    pub(crate) max: i64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// The figures of one target, fewer than those of a run.
#[derive(Debug, Serialize)]
pub(crate) struct TargetFigures {
    pub(crate) name: String,
    pub(crate) requests: u64,
    pub(crate) success: f64,
    pub(crate) p50: i64,
    pub(crate) p99: i64,
    pub(crate) max: i64,
}

impl RunFigures {
    /// From the sums.
    pub(crate) fn new(run: &RunResults) -> Self {
        let totals = &run.totals;
        let quantile = |q| totals.latency_quantile(q).0;
        Self {
            requests: totals.requests,
            timed: totals.requests,
            seconds: totals.duration().as_seconds(),
            rates: Rates::from_run(run),
            after_seconds: (totals.duration_with_wait().as_seconds() - schedule_seconds(totals)).max(0.0),
            success: totals.success_ratio(),
            min: totals.latency.min(),
            mean: totals.mean_latency().0,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: totals.max_latency().0,
            bytes_in: totals.bytes_in,
            bytes_out: totals.bytes_out,
        }
    }
}

impl TargetFigures {
    pub(crate) fn new(target: &TargetTotals) -> Self {
        Self {
            name: target.name(),
            requests: target.requests,
            success: target.successes as f64 / target.requests.max(1) as f64,
            p50: target.latency.quantile(0.5),
            p99: target.latency.quantile(0.99),
            max: target.latency.max(),
        }
    }
}

impl RunSeries {
    /// Draws nothing; computes everything that is drawn.
    pub(crate) fn new(name: String, run: &RunResults, most_points: usize) -> Self {
        let timeline = readable(&run.timeline, most_points);
        let time = TimeAxis::new(&timeline, &run.totals);
        let rows: Vec<Option<&TimelineRow>> = timeline.rows().collect();
        let offering = rows.iter().rposition(|row| row.is_some_and(|row| row.offered > 0)).unwrap_or(0);
        let rate = |at: usize, count: fn(&TimelineRow) -> u64| time.rate(at, rows[at].map_or(0, count));
        let due = |at: usize, count: fn(&TimelineRow) -> u64| {
            (at <= offering).then(|| time.due_rate(at, rows[at].map_or(0, count)))
        };
        let all = 0..rows.len();
        let quantile = |q: f64| {
            rows.iter()
                .map(|row| row.filter(|row| row.offered > 0).map(|row| row.response_times.quantile(q)))
                .collect()
        };
        Self {
            name,
            // Results do not say.
            is_closed_loop: false,
            figures: RunFigures::new(run),
            codes: run.totals.codes.iter().map(|(code, count)| (*code, *count)).collect(),
            errors: errors(&run.totals),
            target_figures: run.targets.iter().map(TargetFigures::new).collect(),
            quantile_curve: quantile_curve(&run.totals.latency, run.totals.requests),
            few_responses_from: (run.totals.requests as f64 / MIN_RESPONSES_ABOVE_QUANTILE).max(1.0).log10(),
            point_start_seconds: all.clone().map(|at| time.since_start(at)).collect(),
            offered_rate: all.clone().map(|at| due(at, |row| row.offered).flatten()).collect(),
            achieved_rate: all
                .clone()
                .map(|at| rate(at, |row| row.good + row.errors - row.dropped))
                .collect(),
            good_rate: all.clone().map(|at| rate(at, |row| row.good)).collect(),
            error_rate: all.clone().map(|at| rate(at, |row| row.errors)).collect(),
            mean_in_flight: timeline
                .mean_in_flight_by_row()
                .enumerate()
                .map(|(at, mean)| time.mean(at, mean))
                .collect(),
            response_time_p50: quantile(0.5),
            response_time_p90: quantile(0.9),
            response_time_p99: quantile(0.99),
            max_response_time: quantile(1.0),
            service_time_p99: tails(&rows, |row| &row.service_times),
            send_lag_p99: tails(&rows, |row| &row.send_lags),
        }
    }
}

/// The 99 % of something that not every row knows.
fn tails(rows: &[Option<&TimelineRow>], of: fn(&TimelineRow) -> &Distribution) -> Vec<Option<i64>> {
    let tail = |row: &TimelineRow| {
        Some(of(row)).filter(|spread| spread.count() > 0).map(|spread| spread.quantile(0.99))
    };
    rows.iter().map(|row| row.and_then(tail)).collect()
}

/// Most frequent first, because the first ones are read.
fn errors(totals: &Totals) -> Vec<(String, Option<u64>)> {
    let mut errors: Vec<_> =
        totals.errors.iter().map(|(text, count)| (text.to_owned(), Some(count))).collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    errors.extend(totals.errors.omitted_message().map(|note| (note, None)));
    errors
}

/// The timeline with as few rows as the eye can use, and enough requests in each.
fn readable(timeline: &Timeline, most_points: usize) -> Timeline {
    let mut readable = timeline.clone();
    let requests: u64 = readable.rows().flatten().map(|row| row.offered).sum();
    while readable.span_rows() > most_points.max(2)
        || readable.span_rows() > MIN_POINTS
            && requests < MIN_REQUESTS_PER_POINT * readable.span_rows() as u64
    {
        readable.double_row_width();
    }
    readable
}

/// Response times at quantiles that are evenly spaced in nines, up to the last one that the count supports.
pub(super) fn quantile_curve(times: &Distribution, count: u64) -> Vec<(f64, i64)> {
    const STEPS: u32 = 240;
    let end = (count.max(1) as f64).log10();
    let mut curve: Vec<_> = (0..=STEPS)
        .map(|step| end * f64::from(step) / f64::from(STEPS))
        .map(|nines| (nines, times.quantile(1.0 - 10_f64.powf(-nines))))
        .collect();
    // The largest value stands for the last half request.
    curve.push((end + 2_f64.log10(), times.max().max(0)));
    curve
}

/// Instants of rows against the run's own start and end. The first and the last row are covered in part only: a rate
/// is per second of what is covered, and none is told where that is less than half of a row, or of a run shorter than
/// a row.
struct TimeAxis {
    width: f64,
    start: f64,
    length: f64,
    due_length: f64,
}

impl TimeAxis {
    fn new(timeline: &Timeline, totals: &Totals) -> Self {
        let start = timeline.start_unix_ns().unwrap_or(0) - totals.earliest().unix_ns();
        let due_length = schedule_seconds(totals);
        Self {
            width: timeline.width_seconds(),
            start: start as f64 / 1e9,
            length: totals.duration_with_wait().as_seconds().max(due_length),
            due_length,
        }
    }

    fn since_start(&self, at: usize) -> f64 {
        (self.start + at as f64 * self.width).max(0.0)
    }

    fn rate(&self, at: usize, count: u64) -> Option<f64> {
        self.per_covered(at, count, self.length)
    }

    fn due_rate(&self, at: usize, count: u64) -> Option<f64> {
        self.per_covered(at, count, self.due_length)
    }

    fn per_covered(&self, at: usize, count: u64, length: f64) -> Option<f64> {
        if self.due_length == 0.0 {
            return Some(count as f64);
        }
        self.covered(at, length).map(|covered| count as f64 / covered.max(MIN_RATE_SPAN_SECONDS))
    }

    /// A mean over the whole row as one over the part that the run covers.
    fn mean(&self, at: usize, mean: f64) -> Option<f64> {
        self.covered(at, self.length).map(|covered| mean * self.width / covered.max(1e-9))
    }

    /// Seconds of a row that belong to a run of this length, if they are enough.
    fn covered(&self, at: usize, length: f64) -> Option<f64> {
        // A little less than half, for two halves must not both be too short by a rounding.
        const ENOUGH_OF_IT: f64 = 0.499;
        let end = (self.start + (at + 1) as f64 * self.width).min(length);
        Some(end - self.since_start(at)).filter(|covered| *covered >= self.width.min(length) * ENOUGH_OF_IT)
    }
}

#[cfg(test)]
mod tests {
    use seawall_load::record::{Record, Zone, ZonedTimestamp};
    use seawall_load::request_failure_reason::RequestFault;

    use super::*;
    use crate::report::input::RecordSink;
    use crate::report::runs::Runs;

    /// Requests due so many nanoseconds after a time that a row straddles, answered after 1 ms.
    fn drawn(due_ns: &[i64]) -> RunSeries {
        const JUST_BEFORE_A_ROW_ENDS: i64 = 1_735_787_045_124_600_000;
        let mut runs = Runs::new(&[]);
        for due in due_ns {
            let timestamp = ZonedTimestamp::from_unix_ns(JUST_BEFORE_A_ROW_ENDS + due, Zone::Utc);
            runs.add(
                0,
                &Record { code: 200, latency_ns: 1_000_000, due_timestamp: timestamp, ..Record::default() },
            );
        }
        let (name, run) = runs.iter_with_names().next().unwrap();
        RunSeries::new(name, run, MAX_POINTS)
    }

    fn most(values: &[Option<f64>]) -> f64 {
        values.iter().flatten().copied().fold(0.0, f64::max)
    }

    #[test]
    fn one_request_was_drawn_at_a_billion_a_second() {
        for (due, count) in [(&[0][..], 1.0), (&[0, 0], 2.0)] {
            let series = drawn(due);
            assert_eq!((series.figures.rates.offered, series.figures.rates.good), (count, count), "{due:?}");
            assert_eq!((most(&series.offered_rate), most(&series.good_rate)), (count, count), "{due:?}");
        }
        let series = drawn(&[0, 1]);
        assert!(most(&series.offered_rate) <= 2000.0 && most(&series.good_rate) <= 2000.0, "{series:?}");
        assert_eq!((series.figures.rates.offered, series.figures.rates.good), (1000.0, 1000.0), "{series:?}");
    }

    /// Two a millisecond, of which one is answered, one refused by the server, and every fourth never sent.
    #[test]
    fn the_rate_that_was_achieved_was_not_drawn() {
        let mut runs = Runs::new(&[]);
        let start = 1_735_787_045_000_000_000;
        for i in 0..4000 {
            let timestamp = ZonedTimestamp::from_unix_ns(start + i * 500_000, Zone::Utc);
            let (code, error) = match i % 4 {
                0 | 2 => (200, String::new()),
                1 => (503, "503 Service Unavailable".to_owned()),
                _ => (0, RequestFault::Dropped.to_string()),
            };
            runs.add(
                0,
                &Record { code, error, latency_ns: 1, due_timestamp: timestamp, ..Record::default() },
            );
        }
        let (name, run) = runs.iter_with_names().next().unwrap();
        let series = RunSeries::new(name, run, MAX_POINTS);
        let Rates { offered, achieved, good, .. } = series.figures.rates;
        let rates = [offered, achieved, good, most(&series.achieved_rate)];
        for (rate, expected) in rates.into_iter().zip([2000.0, 1500.0, 1000.0, 1500.0]) {
            assert!((rate - expected).abs() < 0.01 * expected, "{rates:?}");
        }
    }

    #[test]
    fn a_run_shorter_than_a_row_keeps_its_rate() {
        let series = drawn(&(0..10).map(|i| i * 1_000_000).collect::<Vec<_>>());
        assert!((series.figures.rates.offered - 1000.0).abs() < 1e-6, "{:?}", series.figures);
        assert!((900.0..1100.0).contains(&most(&series.offered_rate)), "{:?}", series.offered_rate);
        assert!((900.0..1100.0).contains(&most(&series.good_rate)), "{:?}", series.good_rate);
    }
}
