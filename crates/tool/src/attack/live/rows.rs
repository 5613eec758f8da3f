//! A second's figures as numbers to show: rates, quantiles and counts, of the second and of the run so far.
//!
//! Knows no terminal. Rates are counts over the time in which the senders counted them: they hand over at tenths of
//! a second, and the moment at which the collector has them all is a little later.

use std::collections::{BTreeMap, VecDeque};

use seawall_load::clock::{Nanos, SECOND};
use seawall_load::control::Control;
use seawall_load::engine::{Plan, Tick};
use seawall_load::fault::{Class, Fault};
use seawall_load::schedule::Arrivals;
use seawall_load::stats::{Histogram, Stats, Times};
use seawall_load::supply::Source;

use crate::attack::args::Args;

/// What does not change during a run.
#[derive(Debug)]
pub(super) struct Facts {
    /// What is sent where.
    pub(super) target: String,
    /// How hits arrive.
    pub(super) load: String,
    /// When the schedule ends, if it does.
    pub(super) end: Option<Nanos>,
    /// Hits in all, if that is a rule.
    pub(super) hits: Option<u64>,
    /// Most in flight.
    pub(super) in_flight: usize,
    /// The rate can be changed.
    pub(super) steerable: bool,
    /// Hits before this are not counted.
    pub(super) warm_up: Nanos,
}

impl Facts {
    /// Of a plan that came from these flags.
    pub(super) fn of(args: &Args, plan: &Plan) -> Self {
        let (end, steerable) = match &plan.arrivals {
            Arrivals::Open(schedule) => (schedule.end(), plan.slice.is_whole()),
            Arrivals::Closed => (None, false),
        };
        let end = end.unwrap_or(Nanos::MAX).min(plan.until.after);
        Self {
            target: target(args, &plan.source),
            load: load(args, plan),
            end: Some(end).filter(|&end| end != Nanos::MAX),
            hits: Some(plan.until.hits).filter(|&hits| hits != u64::MAX),
            in_flight: plan.in_flight.most,
            steerable,
            warm_up: seawall_load::clock::nanos(plan.warm_up),
        }
    }
}

fn target(args: &Args, source: &Source) -> String {
    let Source::List(list) = source else { return format!("targets read from {}", args.targets) };
    let requests = list.requests();
    let first = requests.first().map(|first| format!("{} {}", first.method, first.url)).unwrap_or_default();
    match requests.len() {
        0 | 1 => first,
        many => format!("{many} targets, {first} and on"),
    }
}

fn load(args: &Args, plan: &Plan) -> String {
    match (&plan.arrivals, &args.profile) {
        (Arrivals::Closed, _) => format!("closed loop of {}", plan.in_flight.most),
        (Arrivals::Open(_), Some(profile)) => profile.clone(),
        (Arrivals::Open(schedule), None) => format!("open loop at {}/s", schedule.rate_at(0)),
    }
}

/// What is true at this moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Now {
    /// Time since the run began.
    pub(super) elapsed: Nanos,
    /// Hits per second; none in a closed loop.
    pub(super) offered: Option<f64>,
    /// Requests in flight.
    pub(super) in_flight: usize,
    /// Open connections.
    pub(super) connections: usize,
    /// Nothing more is sent.
    pub(super) ending: bool,
}

impl Now {
    /// Of a run whose schedule ends then.
    pub(super) fn of(control: &Control, end: Option<Nanos>) -> Self {
        let elapsed = control.elapsed();
        let ending = control.is_ending() || end.is_some_and(|end| elapsed >= end);
        Self {
            elapsed,
            offered: control.offered().map(|rate| if ending { 0.0 } else { rate }),
            in_flight: control.in_flight(),
            connections: control.connections(),
            ending,
        }
    }
}

/// A second, and the run so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    /// As of the end of the second.
    pub(super) now: Now,
    /// What is called a second here.
    pub(super) length: Nanos,
    /// Sent before and ended now, well or badly, per second.
    pub(super) achieved: f64,
    /// Answered well, per second.
    pub(super) good: f64,
    /// Times of the second.
    pub(super) second: Three,
    /// Times of the run so far.
    pub(super) whole: Three,
    /// Requests sent so far.
    pub(super) sent: u64,
    /// Requests of which the outcome is known so far.
    pub(super) done: u64,
    /// What went wrong so far, the most frequent first.
    pub(super) errors: Vec<Failure>,
}

/// One kind of failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// A status or the engine's name.
    pub(super) kind: String,
    /// In the run so far.
    pub(super) count: u64,
    /// Of which in the last second.
    pub(super) fresh: u64,
}

impl Row {
    /// Outcomes that are not good.
    pub(super) fn failed(&self) -> u64 {
        self.errors.iter().map(|error| error.count).sum()
    }
}

/// The three distributions that stand side by side.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Three {
    /// From the intended instant.
    pub(super) response: Quantiles,
    /// From the send.
    pub(super) service: Quantiles,
    /// Between the two.
    pub(super) lag: Quantiles,
}

/// A distribution in five numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Quantiles {
    /// Nothing was recorded if this is 0.
    pub(super) count: u64,
    pub(super) p50: Nanos,
    pub(super) p90: Nanos,
    pub(super) p99: Nanos,
    pub(super) p999: Nanos,
    pub(super) max: Nanos,
}

impl From<&Histogram> for Quantiles {
    fn from(values: &Histogram) -> Self {
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

/// Adds seconds up.
#[derive(Default)]
pub(super) struct Meter {
    at: Nanos,
    times: Times,
    lag: Histogram,
    sent: u64,
    done: u64,
    errors: BTreeMap<String, u64>,
}

/// The senders hand over on a grid of this.
const GRID: Nanos = SECOND / 10;

impl Meter {
    /// The next second.
    pub(super) fn row(&mut self, tick: &Tick<'_>, now: Now) -> Row {
        self.add(tick.at, tick.stats, now)
    }

    fn add(&mut self, at: Nanos, stats: &Stats, now: Now) -> Row {
        let at = (at - at % GRID).max(self.at);
        let length = at - self.at;
        let seconds = length as f64 / SECOND as f64;
        self.at = at;
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let times = stats.all();
        self.times.response.add(&times.response);
        self.times.service.add(&times.service);
        self.lag.add(&stats.lag);
        self.sent += stats.sent;
        self.done += stats.done;
        Row {
            now,
            length,
            achieved: per_second(stats.ended()),
            good: per_second(stats.good()),
            second: three(&times, &stats.lag),
            whole: three(&self.times, &self.lag),
            sent: self.sent,
            done: self.done,
            errors: self.failures(stats),
        }
    }

    fn failures(&mut self, stats: &Stats) -> Vec<Failure> {
        let statuses = stats.statuses.iter().filter(|(status, _)| Class::of_status(*status) != Class::Good);
        let statuses = statuses.map(|(status, count)| (status.to_string(), count));
        let faults = stats.faults.iter().enumerate().filter(|(_, count)| **count > 0);
        let faults = faults.map(|(kind, count)| (Fault::name(kind).to_owned(), *count));
        let fresh: BTreeMap<String, u64> = statuses.chain(faults).collect();
        for (kind, count) in &fresh {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        let mut failures: Vec<_> = self
            .errors
            .iter()
            .map(|(kind, &count)| Failure {
                kind: kind.clone(),
                count,
                fresh: fresh.get(kind).copied().unwrap_or(0),
            })
            .collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
        failures
    }
}

fn three(times: &Times, lag: &Histogram) -> Three {
    Three { response: (&times.response).into(), service: (&times.service).into(), lag: lag.into() }
}

/// The last rows; more than any terminal is wide.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Row>);

const KEPT: usize = 512;

impl History {
    /// One more; the oldest goes when there is no room.
    pub(super) fn push(&mut self, row: Row) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(row);
    }

    /// The newest, if any.
    pub(super) fn last(&self) -> Option<&Row> {
        self.0.back()
    }

    /// A figure of the newest `count` rows, oldest first.
    pub(super) fn series(&self, count: usize, figure: impl Fn(&Row) -> u64) -> Vec<u64> {
        self.0.iter().skip(self.0.len().saturating_sub(count)).map(figure).collect()
    }
}

/// A rate, with a fraction only where that says something.
pub(super) fn rate(per_second: f64) -> String {
    if per_second < 100.0 && per_second.fract() != 0.0 {
        format!("{per_second:.1}")
    } else {
        format!("{per_second:.0}")
    }
}

/// A whole number of seconds as a clock shows it.
pub(super) fn clock(ns: Nanos) -> String {
    let seconds = ns / SECOND;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
pub(super) mod tests {
    use seawall_load::stats::Finished;

    use super::*;

    pub(crate) fn facts() -> Facts {
        Facts {
            target: "GET http://127.0.0.1:8080/token".to_owned(),
            load: "open loop at 1000/s".to_owned(),
            end: Some(60 * SECOND),
            hits: None,
            in_flight: 4096,
            steerable: true,
            warm_up: 0,
        }
    }

    pub(crate) fn now(elapsed: Nanos) -> Now {
        Now { elapsed, offered: Some(1000.0), in_flight: 12, connections: 64, ending: false }
    }

    /// The n-th second, in which 1000 were sent: 990 good, in waves of eight seconds; 6 timed out, 4 refused.
    fn second(n: u64) -> Stats {
        let mut stats = Stats { sent: 1000, ..Stats::default() };
        let mut finish = |outcome, end| {
            let (target, due, sent) = (0, 0, 1_000);
            stats.finish(&Finished {
                target,
                outcome,
                due,
                sent: Some(sent),
                first_byte: None,
                end,
                bytes_in: 1,
                bytes_out: 0,
            });
        };
        (0..990).for_each(|i| finish(Ok(200), 100_000 + i * (1 + n % 8) * 1_000));
        (0..6).for_each(|_| finish(Err(Fault::Timeout), SECOND));
        (0..4).for_each(|_| finish(Ok(503), 50_000));
        (0..1000).for_each(|i| stats.lag.record(i * 20));
        stats
    }

    /// So many such seconds.
    pub(crate) fn history(seconds: u64) -> History {
        let (mut meter, mut history) = (Meter::default(), History::default());
        for at in 1..=seconds {
            // The collector is late by a few milliseconds.
            history.push(meter.add(at * SECOND + 7_000_000, &second(at), now(at * SECOND)));
        }
        history
    }

    #[test]
    fn a_late_collector_does_not_bend_the_rates() {
        let history = history(3);
        let row = history.last().unwrap();
        assert_eq!((row.achieved, row.good), (1000.0, 990.0));
        assert_eq!((row.sent, row.done, row.failed()), (3000, 3000, 30));
        assert_eq!((row.second.response.count, row.whole.response.count), (1000, 3000));
    }

    #[test]
    fn failures_come_by_their_number() {
        let history = history(2);
        let failure = |kind: &str, count, fresh| Failure { kind: kind.to_owned(), count, fresh };
        assert_eq!(history.last().unwrap().errors, [failure("timeout", 12, 6), failure("503", 8, 4)]);
    }

    #[test]
    fn a_second_that_nothing_filled_has_no_rate() {
        let mut meter = Meter::default();
        let row = meter.add(0, &Stats::default(), now(0));
        assert_eq!((row.achieved, row.good), (0.0, 0.0));
    }

    #[test]
    fn history_keeps_the_newest() {
        let mut history = History::default();
        (1..=KEPT as u64 + 3).for_each(|at| history.push(Row { now: now(at * SECOND), ..Row::default() }));
        let seconds = history.series(2, |row| row.now.elapsed / SECOND);
        assert_eq!(seconds, [KEPT as u64 + 2, KEPT as u64 + 3]);
        assert_eq!(history.series(usize::MAX, |_| 0).len(), KEPT);
    }

    #[test]
    fn a_clock_shows_hours_only_once_there_are_any() {
        assert_eq!([59 * SECOND, 61 * SECOND, 3_661 * SECOND].map(clock), ["0:59", "1:01", "1:01:01"]);
    }
}
