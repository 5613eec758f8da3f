//! A run of intervals as numbers ready to be drawn, in memory that does not grow with the run.
//!
//! Data that intervals lack is left out: targets, and the scheduled times of requests. So there is no offered rate over time
//! unless the caller knows how many requests were due.

use seawall_load::clock::{Nanos, SECOND};
use seawall_load::interval::IntervalStats;
use seawall_load::latency_distribution::Distribution;
use seawall_load::run_outcome::RunOutcome;
use seawall_load::summary::Summary;

use crate::report::rates::Rates;
use crate::report::series::{
    MIN_POINTS, MIN_REQUESTS_PER_POINT, MIN_RESPONSES_ABOVE_QUANTILE, RunFigures, RunSeries, quantile_curve,
};

/// The text for requests that were due and still waited at the end of the run.
const UNSENT: &str = "requests of the schedule that were not sent before its end";

/// Several intervals as one.
#[derive(Debug, Clone, Default)]
struct Row {
    from: Nanos,
    to: Nanos,
    /// The requests that were due, if that is known of all intervals.
    due: Option<u64>,
    sent: u64,
    ended: u64,
    good: u64,
    done: u64,
    response: Distribution,
    service: Distribution,
    lag: Distribution,
}

/// The intervals of a run, merged as it grows.
#[derive(Debug)]
pub(crate) struct DownsampledIntervals {
    rows: Vec<Row>,
    most: usize,
    /// Intervals in each row but the last.
    intervals_per_row: usize,
    /// Intervals in the last row.
    last_row_len: usize,
}

impl DownsampledIntervals {
    /// Makes at most this many rows, and at least two.
    pub(crate) fn new(most: usize) -> Self {
        Self { rows: Vec::new(), most: most.max(2), intervals_per_row: 1, last_row_len: 1 }
    }

    /// Adds the next interval, with the number of requests that were due in it, if that is known.
    pub(crate) fn add_interval(&mut self, interval: &IntervalStats, due: Option<u64>) {
        if self.last_row_len < self.intervals_per_row {
            self.last_row_len += 1;
        } else {
            if self.rows.len() == self.most {
                self.intervals_per_row *= 2;
                self.rows = paired(&self.rows);
            }
            self.last_row_len = 1;
            self.rows.push(Row { from: interval.from, due: Some(0), ..Row::default() });
        }
        if let Some(row) = self.rows.last_mut() {
            row.add(interval);
            row.due = both(row.due, due);
        }
    }

    /// Merges rows until one request more or less does not visibly move a rate.
    fn readable(&self) -> Vec<Row> {
        let done = self.rows.iter().map(|row| row.done).fold(0, u64::saturating_add);
        let mut rows = self.rows.clone();
        while rows.len() > MIN_POINTS && done < MIN_REQUESTS_PER_POINT * rows.len() as u64 {
            rows = paired(&rows);
        }
        rows
    }
}

fn both(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.saturating_add(other?))
}

fn paired(rows: &[Row]) -> Vec<Row> {
    rows.chunks(2).map(|pair| pair.iter().skip(1).fold(pair[0].clone(), Row::merge)).collect()
}

impl Row {
    fn add(&mut self, IntervalStats { to, stats, .. }: &IntervalStats) {
        let times = stats.all_times();
        self.to = *to;
        self.sent = self.sent.saturating_add(stats.sent);
        self.ended = self.ended.saturating_add(stats.ended_after_send_count());
        self.good = self.good.saturating_add(stats.good_count());
        self.done = self.done.saturating_add(stats.completed);
        self.response.merge(times.response_time.distribution());
        self.service.merge(times.service_time.distribution());
        self.lag.merge(stats.send_lag.distribution());
    }

    fn merge(mut self, next: &Self) -> Self {
        self.to = next.to;
        self.due = both(self.due, next.due);
        self.sent = self.sent.saturating_add(next.sent);
        self.ended = self.ended.saturating_add(next.ended);
        self.good = self.good.saturating_add(next.good);
        self.done = self.done.saturating_add(next.done);
        self.response.merge(&next.response);
        self.service.merge(&next.service);
        self.lag.merge(&next.lag);
        self
    }

    fn length(&self) -> Nanos {
        self.to - self.from
    }
}

/// Draws nothing; computes everything that is drawn. Counting began at `warm_up`.
pub(crate) fn build_run_series(
    name: String,
    (outcome, summary): (&RunOutcome, &Summary),
    rows: &DownsampledIntervals,
    warm_up: Nanos,
) -> RunSeries {
    let rows = counted(rows.readable(), warm_up);
    let usual = rows.iter().map(Row::length).max().unwrap_or(0);
    // The last row may be a moment, of which there is no rate.
    let rate = |row: &Row, count: u64| {
        (row.length() >= usual.div_ceil(2) && usual > 0)
            .then(|| count as f64 * SECOND as f64 / row.length() as f64)
    };
    let rates = |count: fn(&Row) -> u64| rows.iter().map(|row| rate(row, count(row))).collect();
    let quantiles =
        |times: fn(&Row) -> &Distribution, q: f64| rows.iter().map(|row| quantile(times(row), q)).collect();
    let response = outcome.total_stats.all_times().response_time;
    RunSeries {
        name,
        is_closed_loop: outcome.scheduled_count.is_none(),
        figures: figures(outcome, summary),
        codes: codes(summary, outcome.unsent_at_end()),
        errors: errors(summary, outcome.unsent_at_end()),
        target_figures: Vec::new(),
        quantile_curve: quantile_curve(response.distribution(), response.count()),
        few_responses_from: (response.count() as f64 / MIN_RESPONSES_ABOVE_QUANTILE).max(1.0).log10(),
        point_start_seconds: rows.iter().map(|row| (row.from - warm_up) as f64 / SECOND as f64).collect(),
        offered_rate: rows.iter().map(|row| rate(row, row.due?)).collect(),
        achieved_rate: rates(|row| row.ended),
        good_rate: rates(|row| row.good),
        error_rate: rates(|row| row.done.saturating_sub(row.good)),
        mean_in_flight: in_flight(&rows),
        response_time_p50: quantiles(|row| &row.response, 0.5),
        response_time_p90: quantiles(|row| &row.response, 0.9),
        response_time_p99: quantiles(|row| &row.response, 0.99),
        max_response_time: quantiles(|row| &row.response, 1.0),
        service_time_p99: quantiles(|row| &row.service, 0.99),
        send_lag_p99: quantiles(|row| &row.lag, 0.99),
    }
}

/// Returns the rows with counted requests, cut at the start of counting.
fn counted(rows: Vec<Row>, warm_up: Nanos) -> Vec<Row> {
    let from = |row: Row| Row { from: row.from.max(warm_up), ..row };
    rows.into_iter().filter(|row| row.to > warm_up).map(from).collect()
}

fn quantile(times: &Distribution, q: f64) -> Option<i64> {
    (times.count() > 0).then(|| times.quantile(q))
}

/// Returns the requests that were sent and had not ended: the mean of both ends of a row.
fn in_flight(rows: &[Row]) -> Vec<Option<f64>> {
    let ends = rows.iter().scan(0_u64, |open, row| {
        let before = *open;
        *open = before.saturating_add(row.sent).saturating_sub(row.ended);
        Some((before, *open))
    });
    ends.map(|(before, after)| Some((before as f64 + after as f64) / 2.0)).collect()
}

/// Returns the figures of a run. Unsent requests count as requests, but have no response time.
fn figures(outcome: &RunOutcome, summary: &Summary) -> RunFigures {
    let requests = summary.offered.max(outcome.total_stats.completed);
    let times = outcome.total_stats.all_times().response_time;
    let times = times.distribution();
    let quantile = |q| times.quantile(q);
    let seconds = |ns: Nanos| ns as f64 / SECOND as f64;
    RunFigures {
        requests,
        timed: times.count(),
        seconds: seconds(summary.counted_duration),
        rates: Rates {
            offered: summary.offered_rate,
            achieved: summary.achieved_rate,
            good: summary.goodput,
            after_schedule: summary.after_schedule,
        },
        after_seconds: seconds(summary.elapsed.saturating_sub(summary.counted_duration)),
        success: summary.good as f64 / requests.max(1) as f64,
        min: times.min(),
        mean: times.mean(),
        p50: quantile(0.5),
        p90: quantile(0.9),
        p95: quantile(0.95),
        p99: quantile(0.99),
        p999: quantile(0.999),
        max: times.max(),
        bytes_in: summary.bytes_in,
        bytes_out: summary.bytes_out,
    }
}

/// Counts requests by status; as in results, 0 means no response, an impossible one, or a wrong one (`--expect`).
fn codes(summary: &Summary, unsent: u64) -> Vec<(u16, u64)> {
    let failures = summary.failures.values().copied().fold(unsent, u64::saturating_add);
    let none = (failures > 0).then_some((0, failures));
    none.into_iter().chain(summary.status_codes.iter().map(|(code, count)| (*code, *count))).collect()
}

/// Returns the errors, the most frequent first. For responses that are not good, intervals hold only the status, where results
/// also have the reason.
fn errors(summary: &Summary, unsent: u64) -> Vec<(String, Option<u64>)> {
    let text = |kind: &str| summary.failure_examples.get(kind).map_or(kind, String::as_str).to_owned();
    let never_sent = (unsent > 0).then(|| (UNSENT.to_owned(), Some(unsent)));
    let failures = summary.failures.iter().map(|(kind, count)| (text(kind), Some(*count)));
    let refused = summary.status_codes.iter().filter(|(code, _)| !(200..400).contains(*code));
    let refused = refused.map(|(code, count)| (format!("status {code}"), Some(*count)));
    let mut errors: Vec<_> = never_sent.into_iter().chain(failures).chain(refused).collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    errors
}
