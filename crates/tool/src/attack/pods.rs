//! What is known of each pod of an attack, for whoever shows it: while it goes on and in the end.

use std::io::{Write as _, stderr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall_lab::remote::load::{Check, Part};
use seawall_lab::verdict::Reason;
use seawall_load::clock::{Nanos, nanos};
use seawall_load::stats::Stats;
use serde::Serialize;

use super::many::Senders;
use crate::go::aligned;
use crate::times::brief;

/// Doubts that are kept of a pod: the first say what there is to be said.
const KEPT: usize = 8;

/// What is known of all pods. Cheap to clone; copies know the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pods {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    rows: Vec<Row>,
    parts: Vec<Option<Box<Part>>>,
    /// News go to standard error as they come.
    aloud: bool,
}

/// A pod, as data.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Row {
    /// Its place.
    pub(crate) index: usize,
    /// What it is called, and where it is.
    pub(crate) name: String,
    /// How far its clock is ahead, in nanoseconds, and how well that is known.
    pub(crate) clock: Option<(i64, Nanos)>,
    /// How much later than agreed on it began, in nanoseconds, and how well that is known.
    pub(crate) began: Option<(i64, Nanos)>,
    /// Requests sent, answered well, and ended.
    pub(crate) sent: u64,
    /// Answered well.
    pub(crate) good: u64,
    /// Ended.
    pub(crate) done: u64,
    /// 99th hundredth of its response times, of the last second while the run goes on.
    pub(crate) p99: Nanos,
    /// The same of its own lag.
    pub(crate) lag: Nanos,
    /// Most in flight.
    pub(crate) in_flight: u64,
    /// Until when it has told.
    pub(crate) to: Nanos,
    /// Why it is gone, and since when.
    pub(crate) gone: Option<String>,
    /// When that was known, in the time of the run.
    pub(crate) known: Option<Nanos>,
    /// For how long its share was missing.
    pub(crate) missing: Nanos,
    /// What spoke against it while it sent, the first of it.
    pub(crate) doubts: Vec<String>,
    /// What speaks against it in the end.
    pub(crate) findings: Vec<Reason>,
    /// Every check of its machine.
    pub(crate) machine: Vec<Check>,
}

/// What was seen of a pod.
pub(super) enum Seen<'s> {
    /// It began so much later than agreed on.
    Began {
        /// Nanoseconds.
        late: i64,
        /// How well that is known.
        within: Duration,
    },
    /// What it measured.
    Measured {
        /// In the last interval.
        stats: &'s Stats,
        /// Which ended then.
        to: Nanos,
        /// What speaks against it.
        doubts: Vec<String>,
    },
    /// It has come to its end.
    Done(Box<Part>),
    /// It will tell nothing more.
    Gone {
        /// Why.
        why: String,
        /// Since when.
        at: Nanos,
    },
    /// Nothing comes of it for now.
    Away(String),
    /// Its share is missing.
    Missing {
        /// From.
        from: Nanos,
        /// To.
        to: Nanos,
    },
}

impl Pods {
    /// Nothing is known yet; with news on standard error, or without.
    pub(crate) fn new(aloud: bool) -> Self {
        Self { known: Arc::new(Mutex::new(Known { aloud, ..Known::default() })) }
    }

    /// Of these pods, which begin.
    pub(super) fn begin(&self, crew: &Senders) {
        let mut known = self.lock();
        known.rows = (0..crew.size())
            .map(|index| {
                let clock = crew.offset(index).map(|offset| (offset.ahead, offset.within));
                Row { index, name: crew.name(index).to_owned(), clock, ..Row::default() }
            })
            .collect();
        known.parts = (0..crew.size()).map(|_| None).collect();
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All pods, as of now.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.lock().rows.clone()
    }

    /// Whether a pod has told all of its run.
    pub(super) fn is_done(&self, pod: usize) -> bool {
        self.lock().parts.get(pod).is_some_and(Option::is_some)
    }

    /// What pods came to that have told all of their run.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part> {
        let parts: Vec<Part> = self.lock().parts.iter().flatten().map(|part| (**part).clone()).collect();
        parts.into_iter()
    }

    /// Learns of a pod, and says aloud what somebody should know at once.
    pub(super) fn note(&self, pod: usize, seen: Seen<'_>) {
        let mut known = self.lock();
        let Known { rows, parts, aloud } = &mut *known;
        let Some((row, part)) = rows.get_mut(pod).zip(parts.get_mut(pod)) else { return };
        let said = row.learn(seen, part);
        if let Some(said) = said.filter(|_| *aloud) {
            // Standard error may be closed; the end says it, too.
            let _ = writeln!(stderr(), "seawall: {}: {said}", row.name);
        }
    }
}

impl Row {
    /// What is to be said of it at once, if anything.
    fn learn(&mut self, seen: Seen<'_>, part: &mut Option<Box<Part>>) -> Option<String> {
        match seen {
            Seen::Began { late, within } => self.began = Some((late, nanos(within))),
            Seen::Measured { stats, to, doubts } => {
                self.measured(stats, to);
                return self.doubted(doubts);
            }
            Seen::Done(done) => {
                let all = &done.total.stats;
                (self.sent, self.good, self.done) = (all.sent, all.good(), all.done);
                (self.p99, self.lag) = (all.all().response.quantile(0.99), all.own_lag.quantile(0.99));
                self.findings.clone_from(&done.findings);
                self.machine.clone_from(&done.machine);
                let said = done.mistakes.first().cloned();
                *part = Some(done);
                return said;
            }
            Seen::Gone { why, at } => {
                let why = format!("{why}, after {}", brief(at));
                (self.gone, self.known) = (Some(why.clone()), Some(at));
                return Some(why);
            }
            Seen::Away(why) => return self.doubted(vec![format!("nothing comes of it for now: {why}")]),
            Seen::Missing { from, to } => {
                self.missing += to - from;
                return self
                    .gone
                    .is_none()
                    .then(|| format!("told nothing of {} to {}", brief(from), brief(to)));
            }
        }
        None
    }

    fn measured(&mut self, stats: &Stats, to: Nanos) {
        self.sent += stats.sent;
        self.good += stats.good();
        self.done += stats.done;
        self.in_flight = self.in_flight.max(stats.in_flight_peak);
        (self.p99, self.lag) = (stats.all().response.quantile(0.99), stats.own_lag.quantile(0.99));
        self.to = to;
    }

    /// The first of many say it.
    fn doubted(&mut self, doubts: Vec<String>) -> Option<String> {
        let is_first = self.doubts.is_empty();
        let said = doubts.first().cloned();
        self.doubts.extend(doubts);
        self.doubts.truncate(KEPT);
        said.filter(|_| is_first)
    }
}

/// A line per pod, under one head.
pub(super) fn table(rows: &[Row]) -> String {
    let mut out = "Pods\tsent\tgood\t99 %\town lag 99 %\tclock\tbegan\t\n".to_owned();
    for row in rows {
        let off = |value: Option<(i64, Nanos)>| match value {
            Some((off, within)) => {
                let sign = if off < 0 { "-" } else { "+" };
                format!("{sign}{} ± {}", brief(off.unsigned_abs()), brief(within))
            }
            None => "unknown".to_owned(),
        };
        let told = match (&row.gone, row.missing) {
            (Some(gone), _) => format!("GONE: {gone}"),
            (None, 0) => String::new(),
            (None, missing) => format!("LATE: nothing in time of {}", brief(missing)),
        };
        let figures = format!("{}\t{}\t{}\t{}", row.sent, row.good, brief(row.p99), brief(row.lag));
        let cells = [row.name.clone(), figures, off(row.clock), off(row.began), told];
        out.push_str(&cells.join("\t"));
        out.push('\n');
    }
    aligned(&out)
}
