//! The offered, achieved and good rate of a run, computed from its results. `attack` defines these rates in the same way.
//!
//! A request counts in the offered rate at its scheduled time. It counts in the achieved rate, and perhaps in the good rate, at
//! the time when it ended. These two rates count the requests that ended during the schedule, and divide their number by the
//! schedule's length. In results, the schedule lasts from the first scheduled request to one interval after the last. No rate
//! counts the requests that ended later; reports show their number apart. The rows of vegeta's own report use other definitions
//! ([`super::totals`]).

use std::collections::BTreeMap;

use seawall_load::record::Record;
use seawall_load::stats::AfterSchedule;
use serde::Serialize;

use super::runs::RunResults;
use super::totals::{Totals, is_never_sent};

/// Seconds. Within less, requests are as far apart as their sender took to get round to them, which is no rate; a run in
/// which all were due at once has none at all and shows plain counts, as in vegeta.
pub(crate) const MIN_RATE_SPAN_SECONDS: f64 = 1e-3;

/// The rates of a whole run.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rates {
    /// Requests due per second: N requests have N - 1 intervals, where vegeta's `rate` divides by one too few.
    pub(crate) offered: f64,
    /// Requests sent that came to an end, well or badly, per second. Results do not say when a request was sent.
    pub(crate) achieved: f64,
    /// Good answers per second.
    pub(crate) good: f64,
    /// The requests that ended after the schedule, which are in no rate.
    pub(crate) after_schedule: AfterSchedule,
}

impl Rates {
    /// Computes the rates of a run.
    pub(crate) fn from_run(run: &RunResults) -> Self {
        let (totals, due) = (&run.totals, due_span_seconds(&run.totals));
        let all = AfterSchedule { completed: totals.requests - totals.unsent, good: totals.successes };
        if due == 0.0 {
            let [offered, achieved, good] =
                [totals.requests, all.completed, all.good].map(|count| count as f64);
            return Self { offered, achieved, good, after_schedule: AfterSchedule::default() };
        }
        let seconds = schedule_seconds(totals);
        let inside =
            run.completion_histogram.until(totals.earliest().unix_ns() + (seconds * 1e9).round() as i128);
        Self {
            offered: totals.requests.saturating_sub(1) as f64 / due,
            achieved: inside.completed as f64 / seconds,
            good: inside.good as f64 / seconds,
            after_schedule: AfterSchedule {
                completed: all.completed - inside.completed,
                good: all.good - inside.good,
            },
        }
    }
}

/// Offered rates that differ by more than this share are different loads; a machine's clock makes less of it.
const OTHER_LOAD: f64 = 0.02;

impl Rates {
    /// Returns true if its offered load differs from that of the other run, so that times and rates of both do not compare. It
    /// mostly does for two closed loops, whose load follows from the responses.
    pub(crate) fn differs_in_offered_load(&self, than: &Self) -> bool {
        (self.offered - than.offered).abs() > than.offered.abs() * OTHER_LOAD
    }
}

/// Returns the time from the first request due to the last, for rates.
pub(crate) fn due_span_seconds(totals: &Totals) -> f64 {
    let seconds = totals.duration().as_seconds();
    if seconds > 0.0 { seconds.max(MIN_RATE_SPAN_SECONDS) } else { 0.0 }
}

/// From the first request due to when the one after the last would have been: N requests fill N intervals.
pub(crate) fn schedule_seconds(totals: &Totals) -> f64 {
    let due = due_span_seconds(totals);
    due + due / totals.requests.saturating_sub(1).max(1) as f64
}

/// Intervals in which ends are counted; with so many the one that an instant falls into holds a two-thousandth of the run.
const MOST: usize = 4096;

/// When requests ended, in memory that does not grow with the run: counts in intervals that become wider with it.
#[derive(Debug, Clone)]
pub(crate) struct CompletionHistogram {
    width_ns: i128,
    counts: BTreeMap<i128, AfterSchedule>,
    last_ns: i128,
}

impl Default for CompletionHistogram {
    fn default() -> Self {
        Self { width_ns: 1, counts: BTreeMap::new(), last_ns: i128::MIN }
    }
}

impl CompletionHistogram {
    /// Adds a result.
    pub(crate) fn add_record(&mut self, record: &Record) {
        if is_never_sent(record) {
            return;
        }
        let end = record.end_unix_ns();
        self.last_ns = self.last_ns.max(end);
        let count = self.counts.entry(end.div_euclid(self.width_ns)).or_default();
        count.completed += 1;
        count.good += u64::from(record.is_success());
        while self.counts.len() > MOST {
            self.double();
        }
    }

    fn double(&mut self) {
        for (at, count) in std::mem::take(&mut self.counts) {
            let sum = self.counts.entry(at.div_euclid(2)).or_default();
            sum.completed += count.completed;
            sum.good += count.good;
        }
        self.width_ns *= 2;
    }

    /// Counts the requests that ended by an instant: exactly if there are few, else as if the ends were spread evenly over the
    /// interval of the instant, or over its part before the last end.
    fn until(&self, at_ns: i128) -> AfterSchedule {
        let last = at_ns.div_euclid(self.width_ns);
        let start = last * self.width_ns;
        let covered = self.width_ns.min(self.last_ns.saturating_sub(start) + 1).max(1);
        let share = ((at_ns - start + 1) as f64 / covered as f64).min(1.0);
        let mut sum = AfterSchedule::default();
        for (&at, count) in self.counts.range(..=last) {
            let part = |count: u64| if at < last { count } else { (count as f64 * share).round() as u64 };
            sum.completed += part(count.completed);
            sum.good += part(count.good);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use seawall_load::record::{Zone, ZonedTimestamp};

    use super::*;
    use crate::report::input::RecordSink;
    use crate::report::runs::Runs;

    const MILLI: i64 = 1_000_000;

    /// So many requests, one due each `every_ms`, answered `latency_ms(i)` after it.
    fn rates(requests: i64, every_ms: i64, latency_ms: impl Fn(i64) -> i64) -> Rates {
        let mut runs = Runs::new(&[]);
        for i in 0..requests {
            let timestamp =
                ZonedTimestamp::from_unix_ns(1_735_787_045_000_000_000 + i * every_ms * MILLI, Zone::Utc);
            let record = Record {
                code: 200,
                latency_ns: latency_ms(i) * MILLI,
                due_timestamp: timestamp,
                ..Record::default()
            };
            runs.add(0, &record);
        }
        Rates::from_run(runs.iter_with_names().next().unwrap().1)
    }

    /// A server of 20/s that is offered 40/s for 5 s works for 10 s.
    #[test]
    fn what_was_answered_after_the_schedule_is_in_no_rate() {
        let Rates { offered, achieved, good, after_schedule } = rates(200, 25, |i| (i + 1) * 50 - i * 25);
        assert_eq!((offered, achieved, good), (40.0, 20.0, 20.0));
        assert_eq!(after_schedule, AfterSchedule { completed: 100, good: 100 });
    }

    #[test]
    fn loads_are_other_loads_from_two_percent_on() {
        let [base, near, far] = [100, 99, 50].map(|every_ms| rates(1000, every_ms, |_| 1));
        assert!(!base.differs_in_offered_load(&base) && !near.differs_in_offered_load(&base));
        assert!(far.differs_in_offered_load(&base) && base.differs_in_offered_load(&far));
    }

    #[test]
    fn a_long_run_is_counted_as_exactly_as_it_is_drawn() {
        let Rates { achieved, after_schedule, .. } = rates(100_000, 1, |i| i + 1);
        assert!((achieved - 500.0).abs() < 0.5, "{achieved}");
        assert!(after_schedule.completed.abs_diff(50_000) < 50, "{after_schedule:?}");
        let healthy = rates(100_000, 1, |_| 0);
        assert_eq!((healthy.achieved, healthy.after_schedule.completed), (1000.0, 0));
    }
}
