//! The figures of each second as numbers to show: rates, quantiles and counts, of the second and of the run so far.
//!
//! All live views of a run share this model, which is built from [`IntervalStats`]; it knows no terminal, no text and no page.
//! Rates are counts over the time in which the senders counted them.

use std::collections::{BTreeMap, VecDeque};

use crate::clock::{Nanos, SECOND};
use crate::control::Control;
use crate::interval::IntervalStats;
use crate::request_failure_reason::{OutcomeClass, RequestFault};
use crate::stats::{LatencyHistogram, LoadStats, RequestTimes};

/// The facts about a run that do not change.
#[derive(Debug)]
pub struct RunInfo {
    /// The target of the requests.
    pub target: String,
    /// The arrivals of the requests.
    pub load_description: String,
    /// The end of the schedule, if it has one.
    pub end: Option<Nanos>,
    /// The number of requests after which the run ends, if there is such a limit.
    pub max_requests: Option<u64>,
    /// The maximum number of requests in flight.
    pub max_in_flight: usize,
    /// True if each request has an instant at which it is due, so that it can be late.
    pub is_open_loop: bool,
    /// True if the rate can be changed here.
    pub steerable: bool,
    /// The end of the warm-up; requests that are due before it are not counted.
    pub warm_up_end: Nanos,
}

/// The state of a run at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunStatus {
    /// Time since the run began.
    pub elapsed: Nanos,
    /// Requests in flight.
    pub in_flight: usize,
    /// Connections that are open or being opened.
    pub connections: usize,
    /// True if no more requests are sent.
    pub ending: bool,
}

impl RunStatus {
    /// Reads the state of a run whose schedule ends at `end`.
    #[must_use]
    pub fn of(control: &Control, end: Option<Nanos>) -> Self {
        let elapsed = control.elapsed();
        let ending = control.is_ending() || end.is_some_and(|end| elapsed >= end);
        Self { elapsed, in_flight: control.in_flight(), connections: control.connections(), ending }
    }
}

/// The figures of one second, and of the run so far.
#[derive(Debug, Clone, Default)]
pub struct LiveRow {
    /// The state at the end of the second.
    pub status: RunStatus,
    /// The length of this row, which is about a second.
    pub length: Nanos,
    /// Due requests per second; `None` in a closed loop.
    pub offered_rate: Option<f64>,
    /// Sent requests that ended in this second, with or without a good response, per second.
    pub achieved_rate: f64,
    /// Good responses per second.
    pub goodput: f64,
    /// The times of the second.
    pub latencies: LatencyBreakdown,
    /// The times of the run so far.
    pub run_latencies: LatencyBreakdown,
    /// Requests sent so far.
    pub total_sent: u64,
    /// Requests so far whose outcome is known.
    pub total_completed: u64,
    /// The errors so far, the most frequent first.
    pub errors: Vec<ErrorCount>,
}

/// One kind of failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorCount {
    /// The status, or the engine's name of the failure.
    pub kind: String,
    /// The count in the run so far.
    pub count: u64,
    /// The count in the last second.
    pub last_second_count: u64,
}

impl LiveRow {
    /// Returns the number of outcomes that are not good.
    #[must_use]
    pub fn total_failed(&self) -> u64 {
        self.errors.iter().map(|error| error.count).sum()
    }

    /// True if requests ended and none of them had a connection.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.total_sent == 0 && self.total_completed > 0
    }
}

/// The distributions of response time, service time and send lag.
#[derive(Debug, Clone, Copy, Default)]
pub struct LatencyBreakdown {
    /// The time from the intended instant to the end.
    pub response_time: Quantiles,
    /// The time from the send to the end.
    pub service_time: Quantiles,
    /// The time from the intended instant to the send.
    pub send_lag: Quantiles,
}

/// A distribution in five numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantiles {
    /// The number of values; if it is 0, the other fields mean nothing.
    pub count: u64,
    /// The median.
    pub p50: Nanos,
    /// The 90th percentile.
    pub p90: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The percentile 99.9.
    pub p999: Nanos,
    /// The largest value.
    pub max: Nanos,
}

impl From<&LatencyHistogram> for Quantiles {
    fn from(values: &LatencyHistogram) -> Self {
        Self {
            count: values.count(),
            p50: values.quantile(0.5),
            p90: values.quantile(0.9),
            p99: values.quantile(0.99),
            p999: values.quantile(0.999),
            max: values.max(),
        }
    }
}

/// Adds intervals up to seconds, and to the run so far.
#[derive(Debug, Default)]
pub struct LiveRowBuilder {
    second: IntervalStats,
    times: RequestTimes,
    lag: LatencyHistogram,
    sent: u64,
    done: u64,
    errors: BTreeMap<String, u64>,
}

impl LiveRowBuilder {
    /// Adds an interval, which must follow the one before it. Returns a row once the intervals since the last row make up a
    /// second. `due` returns the number of requests that were due before an instant, in an open loop ([`Control::due_before`]).
    pub fn add_interval(
        &mut self,
        interval: &IntervalStats,
        now: RunStatus,
        due: impl Fn(Nanos) -> Option<u64>,
    ) -> Option<LiveRow> {
        self.second.to = interval.to;
        self.second.stats.merge(&interval.stats);
        let length = self.second.to.saturating_sub(self.second.from);
        if length < SECOND {
            return None;
        }
        let IntervalStats { from, to, mut stats } = std::mem::take(&mut self.second);
        let due = due(to).zip(due(from)).map(|(now, before)| now.saturating_sub(before));
        let row = self.sum_up(&stats, length, now, due);
        stats.clear();
        self.second = IntervalStats { from: to, to, stats };
        Some(row)
    }

    fn sum_up(&mut self, stats: &LoadStats, length: Nanos, now: RunStatus, due: Option<u64>) -> LiveRow {
        let per_second = |count: u64| count as f64 * SECOND as f64 / length as f64;
        let times = stats.all_times();
        self.times.response_time.merge(&times.response_time);
        self.times.service_time.merge(&times.service_time);
        self.lag.merge(&stats.send_lag);
        self.sent += stats.sent;
        self.done += stats.completed;
        LiveRow {
            status: now,
            length,
            offered_rate: due.map(per_second),
            achieved_rate: per_second(stats.ended_after_send_count()),
            goodput: per_second(stats.good_count()),
            latencies: three(&times, &stats.send_lag),
            run_latencies: three(&self.times, &self.lag),
            total_sent: self.sent,
            total_completed: self.done,
            errors: self.failures(stats),
        }
    }

    fn failures(&mut self, stats: &LoadStats) -> Vec<ErrorCount> {
        let statuses = stats
            .statuses
            .iter()
            .filter(|(status, _)| OutcomeClass::of_status(*status) != OutcomeClass::Good);
        let statuses = statuses.map(|(status, count)| (status.to_string(), count));
        let faults = stats.failures.iter().enumerate().filter(|(_, count)| **count > 0);
        let faults = faults.map(|(kind, count)| (RequestFault::name_of_kind(kind).to_owned(), *count));
        let fresh: BTreeMap<String, u64> = statuses.chain(faults).collect();
        for (kind, count) in &fresh {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        let mut failures: Vec<_> = self
            .errors
            .iter()
            .map(|(kind, &count)| ErrorCount {
                kind: kind.clone(),
                count,
                last_second_count: fresh.get(kind).copied().unwrap_or(0),
            })
            .collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
        failures
    }
}

fn three(times: &RequestTimes, lag: &LatencyHistogram) -> LatencyBreakdown {
    LatencyBreakdown {
        response_time: (&times.response_time).into(),
        service_time: (&times.service_time).into(),
        send_lag: lag.into(),
    }
}

/// The last rows, more than any terminal is wide.
#[derive(Debug, Default)]
pub struct LiveRowHistory(VecDeque<LiveRow>);

const KEPT: usize = 512;

impl LiveRowHistory {
    /// Adds a row and drops the oldest one if there is no room.
    pub fn push(&mut self, row: LiveRow) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(row);
    }

    /// Returns the newest row, if any.
    #[must_use]
    pub fn last(&self) -> Option<&LiveRow> {
        self.0.back()
    }

    /// Returns a figure of the newest `count` rows, oldest first.
    pub fn series(&self, count: usize, figure: impl Fn(&LiveRow) -> u64) -> Vec<u64> {
        self.0.iter().skip(self.0.len().saturating_sub(count)).map(figure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::FinishedRequest;

    /// Returns an interval with this number of responses, one of them with status 503.
    fn interval(from: Nanos, to: Nanos, answers: u64) -> IntervalStats {
        let mut stats = LoadStats { sent: answers, ..LoadStats::default() };
        for answer in 0..answers {
            let outcome = if answer == 0 { Ok(503) } else { Ok(200) };
            let (target, due, sent, first_byte) = (0, 0, Some(1_000), None);
            stats.record_finished(&FinishedRequest {
                target_index: target,
                outcome,
                due,
                sent_at: sent,
                first_response_byte_at: first_byte,
                end: 9_000,
                bytes_in: 1,
                bytes_out: 0,
            });
        }
        IntervalStats { from, to, stats }
    }

    #[test]
    fn rates_are_over_the_time_in_which_was_counted_and_rows_no_shorter_than_a_second() {
        let mut meter = LiveRowBuilder::default();
        let mut row = |from, to, answers| {
            meter.add_interval(
                &interval(from * SECOND / 20, to * SECOND / 20, answers),
                RunStatus::default(),
                |at| Some(at / 1_000_000),
            )
        };
        assert!((0..19).all(|at| row(at, at + 1, 10).is_none()));
        let first = row(19, 20, 10).unwrap();
        assert_eq!((first.length, first.achieved_rate, first.goodput), (SECOND, 200.0, 180.0));
        assert_eq!(first.offered_rate, Some(1000.0));
        let late = row(20, 50, 300).unwrap();
        assert_eq!((late.length, late.achieved_rate, late.goodput), (SECOND * 3 / 2, 200.0, 299.0 / 1.5));
        assert_eq!((late.total_sent, late.total_completed, late.total_failed()), (500, 500, 21));
        assert_eq!((late.latencies.response_time.count, late.run_latencies.response_time.count), (300, 500));
    }

    #[test]
    fn failures_come_by_their_number() {
        let mut meter = LiveRowBuilder::default();
        let mut second = interval(0, SECOND, 3);
        second.stats.failures[RequestFault::Timeout.kind_index()] = 6;
        let _ = meter.add_interval(&second, RunStatus::default(), |_| None);
        second.to = 2 * SECOND;
        let row = meter.add_interval(&second, RunStatus::default(), |_| None).unwrap();
        let failure =
            |kind: &str, count, fresh| ErrorCount { kind: kind.to_owned(), count, last_second_count: fresh };
        assert_eq!(row.errors, [failure("timeout", 12, 6), failure("503", 2, 1)]);
    }

    #[test]
    fn history_keeps_the_newest() {
        let mut history = LiveRowHistory::default();
        let now = |elapsed| RunStatus { elapsed, ..RunStatus::default() };
        (1..=KEPT as u64 + 3)
            .for_each(|at| history.push(LiveRow { status: now(at * SECOND), ..LiveRow::default() }));
        let seconds = history.series(2, |row| row.status.elapsed / SECOND);
        assert_eq!(seconds, [KEPT as u64 + 2, KEPT as u64 + 3]);
        assert_eq!(history.series(usize::MAX, |_| 0).len(), KEPT);
    }
}
