//! What is known of each pod of an attack, for whoever shows it: while it goes on and in the end.
//!
//! [`PodTracker`] is told by the run and asked by whoever shows it, in any thread; [`drawn`] makes of it what a page has, [`words`] what stands in
//! lines and in the terminal's view.

mod drawn;
mod words;

use std::io::{Write as _, stderr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall_fleet::gather::LATE_AFTER;
use seawall_lab::remote::load::{LoadPartResult, MachineCheck};
use seawall_lab::verdict::VerdictReason;
use seawall_load::clock::{Nanos, SECOND, nanos};
use seawall_load::interval::IntervalStats;
use serde::Serialize;

use self::drawn::{PodCompletions, merge_gap};
pub(super) use self::words::{problem, table};
use super::many::AttackFleet;
use crate::times::brief_time;
use crate::wrap::clean;

/// Doubts that are kept of a pod: the first say what there is to be said.
const KEPT: usize = 8;

/// News that are said: a thousand pods that are lost at once say no more by being named one after the other, and the end names them all.
const SAID: usize = 100;

/// What is known of all pods. Cheap to clone; copies know the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodTracker {
    known: Arc<Mutex<PodTrackerState>>,
}

#[derive(Debug, Default)]
struct PodTrackerState {
    rows: Vec<AttackPodStatus>,
    parts: Vec<Option<Box<LoadPartResult>>>,
    /// From where to where somebody's share was missing.
    gaps: Vec<(Nanos, Nanos)>,
    tracks: PodCompletions,
    /// News go to standard error as they come.
    is_stderr_free: bool,
    /// News that wait to be said.
    pending_messages: Vec<String>,
    printed: usize,
}

/// How a pod is at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PodRunState {
    /// It tells nothing more, and its run was not over.
    Gone,
    /// It should have told of itself, and did not.
    Late,
    /// It tells what it measures.
    Running,
    /// It has told all of its run.
    Over,
}

/// A pod, as data.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct AttackPodStatus {
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
    pub(crate) findings: Vec<VerdictReason>,
    /// Every check of its machine.
    pub(crate) machine: Vec<MachineCheck>,
    /// What it could not do.
    pub(crate) mistakes: Vec<String>,
    /// How long its intervals are at most.
    #[serde(skip)]
    pub(super) cadence: Nanos,
    /// It has told all of its run.
    #[serde(skip)]
    pub(super) is_done: bool,
    /// That it is late was said.
    #[serde(skip)]
    pub(super) is_late: bool,
}

/// What was seen of a pod.
pub(super) enum PodObservation<'s> {
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
        interval: &'s IntervalStats,
        /// What speaks against it.
        doubts: Vec<String>,
    },
    /// It has come to its end.
    Done(Box<LoadPartResult>),
    /// It will tell nothing more.
    Gone {
        /// Why.
        why: String,
        /// Since when.
        at: Nanos,
    },
    /// Nothing comes of it for now.
    Silent(String),
    /// Its share is missing.
    Missing {
        /// From.
        from: Nanos,
        /// To.
        to: Nanos,
    },
}

impl PodTracker {
    /// Nothing is known yet. News go to standard error as they come, or wait until that is free ([`Self::flush_messages`]).
    pub(crate) fn new(aloud: bool) -> Self {
        Self {
            known: Arc::new(Mutex::new(PodTrackerState {
                is_stderr_free: aloud,
                ..PodTrackerState::default()
            })),
        }
    }

    /// Of these pods, which begin.
    pub(super) fn begin(&self, crew: &AttackFleet) {
        let mut known = self.lock();
        known.rows = (0..crew.size())
            .map(|index| {
                let clock = crew.offset(index).map(|offset| (offset.ahead_nanos, offset.error_nanos));
                AttackPodStatus { index, name: clean(crew.name(index)), clock, ..AttackPodStatus::default() }
            })
            .collect();
        known.parts = (0..crew.size()).map(|_| None).collect();
        known.tracks = PodCompletions::of(crew.size());
    }

    /// Of which this is known.
    #[cfg(test)]
    pub(crate) fn of(rows: Vec<AttackPodStatus>) -> Self {
        Self { known: Arc::new(Mutex::new(PodTrackerState { rows, ..PodTrackerState::default() })) }
    }

    fn lock(&self) -> MutexGuard<'_, PodTrackerState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All pods, as of now.
    pub(crate) fn rows(&self) -> Vec<AttackPodStatus> {
        self.lock().rows.clone()
    }

    /// Whether a pod has told all of its run.
    pub(super) fn is_done(&self, pod: usize) -> bool {
        self.lock().parts.get(pod).is_some_and(Option::is_some)
    }

    /// What pods came to that have told all of their run.
    pub(super) fn parts(&self) -> impl Iterator<Item = LoadPartResult> {
        let parts: Vec<LoadPartResult> =
            self.lock().parts.iter().flatten().map(|part| (**part).clone()).collect();
        parts.into_iter()
    }

    /// Learns of a pod, and says what somebody should know at once. True if there was any such thing.
    pub(super) fn record(&self, pod: usize, seen: PodObservation<'_>) -> bool {
        let mut known = self.lock();
        let PodTrackerState { rows, parts, gaps, tracks, .. } = &mut *known;
        let Some((row, part)) = rows.get_mut(pod).zip(parts.get_mut(pod)) else { return false };
        match &seen {
            PodObservation::Missing { from, to } => merge_gap(gaps, (*from, *to)),
            PodObservation::Measured { interval, .. } => tracks.add(pod, interval),
            _ => {}
        }
        let said = row.apply(seen, part).map(|said| format!("{}: {said}", row.name));
        let is_news = said.is_some();
        said.into_iter().for_each(|said| known.say(said));
        is_news
    }

    /// Looks whether a pod is late, or no longer, at this time of the run. True if there is any such news.
    pub(super) fn check_lateness(&self, now: Nanos) -> bool {
        let mut known = self.lock();
        let said: Vec<_> = known
            .rows
            .iter_mut()
            .filter_map(|row| row.check_lateness(now).map(|said| format!("{}: {said}", row.name)))
            .collect();
        let is_news = !said.is_empty();
        said.into_iter().for_each(|said| known.say(said));
        is_news
    }

    /// Standard error is free from now on: says what waits to be said.
    pub(super) fn flush_messages(&self) {
        let mut known = self.lock();
        known.is_stderr_free = true;
        // Standard error may be closed; the end says it, too.
        std::mem::take(&mut known.pending_messages)
            .iter()
            .for_each(|said| _ = writeln!(stderr(), "seawall: {said}"));
    }
}

impl PodTrackerState {
    fn say(&mut self, said: String) {
        self.printed += 1;
        let said = match self.printed {
            ..=SAID => said,
            over if over == SAID + 1 => {
                "there is more news of pods than is said here: the end has all of it".to_owned()
            }
            _ => return,
        };
        if self.is_stderr_free {
            // Standard error may be closed; the end says it, too.
            let _ = writeln!(stderr(), "seawall: {said}");
        } else {
            self.pending_messages.push(said);
        }
    }
}

impl AttackPodStatus {
    /// What is to be said of it at once, if anything.
    fn apply(&mut self, seen: PodObservation<'_>, part: &mut Option<Box<LoadPartResult>>) -> Option<String> {
        match seen {
            PodObservation::Began { late, within } => self.began = Some((late, nanos(within))),
            PodObservation::Measured { interval, doubts } => {
                self.measured(interval);
                return self.doubted(&doubts);
            }
            PodObservation::Done(done) => {
                let all = &done.total.stats;
                (self.sent, self.good, self.done) = (all.sent, all.good(), all.done);
                (self.p99, self.lag) = (all.all_times().response.quantile(0.99), all.own_lag.quantile(0.99));
                self.findings.clone_from(&done.findings);
                self.machine.clone_from(&done.machine);
                self.mistakes.clone_from(&done.mistakes);
                self.is_done = true;
                // Its mistakes are said in the end.
                *part = Some(done);
            }
            PodObservation::Gone { why, at } => {
                let why = format!("{}, after {}", clean(&why), brief_time(at));
                self.gone = Some(why.clone());
                self.known.get_or_insert(at);
                return Some(why);
            }
            PodObservation::Silent(why) => {
                return self.doubted(&[format!("nothing comes of it for now: {why}")]);
            }
            PodObservation::Missing { from, to } => self.missing += to - from,
        }
        None
    }

    fn measured(&mut self, IntervalStats { from, to, stats }: &IntervalStats) {
        self.sent += stats.sent;
        self.good += stats.good();
        self.done += stats.done;
        self.in_flight = self.in_flight.max(stats.in_flight_peak);
        (self.p99, self.lag) = (stats.all_times().response.quantile(0.99), stats.own_lag.quantile(0.99));
        self.cadence = self.cadence.max(to - from);
        self.to = *to;
    }

    /// What it could not do, with its name.
    pub(super) fn mistakes(&self) -> impl Iterator<Item = String> {
        self.mistakes.iter().map(|mistake| format!("{}: {mistake}", self.name))
    }

    /// How it is at this time of the run.
    pub(crate) fn state(&self, now: Nanos) -> PodRunState {
        let due = self.to + self.cadence.max(SECOND) + LATE_AFTER;
        match self {
            _ if self.gone.is_some() => PodRunState::Gone,
            _ if self.is_done => PodRunState::Over,
            _ if now >= due => PodRunState::Late,
            _ => PodRunState::Running,
        }
    }

    /// What is to be said of that, if it is new.
    fn check_lateness(&mut self, now: Nanos) -> Option<String> {
        let is_late = self.state(now) == PodRunState::Late;
        if is_late == self.is_late {
            return None;
        }
        self.is_late = is_late;
        match self.state(now) {
            PodRunState::Late => {
                Some(format!("late: nothing has come of it since {} of the run", brief_time(self.to)))
            }
            PodRunState::Running | PodRunState::Over => Some("tells again".to_owned()),
            // That is said by itself.
            PodRunState::Gone => None,
        }
    }

    /// The first of many say it.
    fn doubted(&mut self, doubts: &[String]) -> Option<String> {
        let is_first = self.doubts.is_empty();
        let said = doubts.first().map(|doubt| clean(doubt));
        self.doubts.extend(doubts.iter().map(|doubt| clean(doubt)));
        self.doubts.truncate(KEPT);
        said.filter(|_| is_first)
    }
}
