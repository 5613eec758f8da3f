//! What is known of each pod of an attack, for whoever shows it: while it goes on and in the end.
//!
//! [`Pods`] is told by the run and asked by whoever shows it, in any thread; [`drawn`] makes of it what a page has, [`words`] what stands in
//! lines and in the terminal's view.

mod drawn;
mod words;

use std::io::{Write as _, stderr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall_fleet::gather::PATIENCE;
use seawall_lab::remote::load::{Check, Part};
use seawall_lab::verdict::Reason;
use seawall_load::clock::{Nanos, SECOND, nanos};
use seawall_load::interval::Interval;
use serde::Serialize;

use self::drawn::{Tracks, joined};
pub(super) use self::words::{problem, table};
use super::many::Senders;
use crate::times::brief;
use crate::wrap::clean;

/// Doubts that are kept of a pod: the first say what there is to be said.
const KEPT: usize = 8;

/// News that are said: a thousand pods that are lost at once say no more by being named one after the other, and the end names them all.
const SAID: usize = 100;

/// What is known of all pods. Cheap to clone; copies know the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pods {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    rows: Vec<Row>,
    parts: Vec<Option<Box<Part>>>,
    /// From where to where somebody's share was missing.
    gaps: Vec<(Nanos, Nanos)>,
    tracks: Tracks,
    /// News go to standard error as they come.
    aloud: bool,
    /// News that wait to be said.
    unsaid: Vec<String>,
    said: usize,
}

/// How a pod is at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
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
        interval: &'s Interval,
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
    /// Nothing is known yet. News go to standard error as they come, or wait until that is free ([`Self::speak`]).
    pub(crate) fn new(aloud: bool) -> Self {
        Self { known: Arc::new(Mutex::new(Known { aloud, ..Known::default() })) }
    }

    /// Of these pods, which begin.
    pub(super) fn begin(&self, crew: &Senders) {
        let mut known = self.lock();
        known.rows = (0..crew.size())
            .map(|index| {
                let clock = crew.offset(index).map(|offset| (offset.ahead, offset.within));
                Row { index, name: clean(crew.name(index)), clock, ..Row::default() }
            })
            .collect();
        known.parts = (0..crew.size()).map(|_| None).collect();
        known.tracks = Tracks::of(crew.size());
    }

    /// Of which this is known.
    #[cfg(test)]
    pub(crate) fn of(rows: Vec<Row>) -> Self {
        Self { known: Arc::new(Mutex::new(Known { rows, ..Known::default() })) }
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

    /// Learns of a pod, and says what somebody should know at once. True if there was any such thing.
    pub(super) fn note(&self, pod: usize, seen: Seen<'_>) -> bool {
        let mut known = self.lock();
        let Known { rows, parts, gaps, tracks, .. } = &mut *known;
        let Some((row, part)) = rows.get_mut(pod).zip(parts.get_mut(pod)) else { return false };
        match &seen {
            Seen::Missing { from, to } => joined(gaps, (*from, *to)),
            Seen::Measured { interval, .. } => tracks.add(pod, interval),
            _ => {}
        }
        let said = row.learn(seen, part).map(|said| format!("{}: {said}", row.name));
        let is_news = said.is_some();
        said.into_iter().for_each(|said| known.say(said));
        is_news
    }

    /// Looks whether a pod is late, or no longer, at this time of the run. True if there is any such news.
    pub(super) fn look(&self, now: Nanos) -> bool {
        let mut known = self.lock();
        let said: Vec<_> = known
            .rows
            .iter_mut()
            .filter_map(|row| row.look(now).map(|said| format!("{}: {said}", row.name)))
            .collect();
        let is_news = !said.is_empty();
        said.into_iter().for_each(|said| known.say(said));
        is_news
    }

    /// Standard error is free from now on: says what waits to be said.
    pub(super) fn speak(&self) {
        let mut known = self.lock();
        known.aloud = true;
        // Standard error may be closed; the end says it, too.
        std::mem::take(&mut known.unsaid).iter().for_each(|said| _ = writeln!(stderr(), "seawall: {said}"));
    }
}

impl Known {
    fn say(&mut self, said: String) {
        self.said += 1;
        let said = match self.said {
            ..=SAID => said,
            over if over == SAID + 1 => {
                "there is more news of pods than is said here: the end has all of it".to_owned()
            }
            _ => return,
        };
        if self.aloud {
            // Standard error may be closed; the end says it, too.
            let _ = writeln!(stderr(), "seawall: {said}");
        } else {
            self.unsaid.push(said);
        }
    }
}

impl Row {
    /// What is to be said of it at once, if anything.
    fn learn(&mut self, seen: Seen<'_>, part: &mut Option<Box<Part>>) -> Option<String> {
        match seen {
            Seen::Began { late, within } => self.began = Some((late, nanos(within))),
            Seen::Measured { interval, doubts } => {
                self.measured(interval);
                return self.doubted(&doubts);
            }
            Seen::Done(done) => {
                let all = &done.total.stats;
                (self.sent, self.good, self.done) = (all.sent, all.good(), all.done);
                (self.p99, self.lag) = (all.all().response.quantile(0.99), all.own_lag.quantile(0.99));
                self.findings.clone_from(&done.findings);
                self.machine.clone_from(&done.machine);
                self.mistakes.clone_from(&done.mistakes);
                self.is_done = true;
                // Its mistakes are said in the end.
                *part = Some(done);
            }
            Seen::Gone { why, at } => {
                let why = format!("{}, after {}", clean(&why), brief(at));
                self.gone = Some(why.clone());
                self.known.get_or_insert(at);
                return Some(why);
            }
            Seen::Away(why) => return self.doubted(&[format!("nothing comes of it for now: {why}")]),
            Seen::Missing { from, to } => self.missing += to - from,
        }
        None
    }

    fn measured(&mut self, Interval { from, to, stats }: &Interval) {
        self.sent += stats.sent;
        self.good += stats.good();
        self.done += stats.done;
        self.in_flight = self.in_flight.max(stats.in_flight_peak);
        (self.p99, self.lag) = (stats.all().response.quantile(0.99), stats.own_lag.quantile(0.99));
        self.cadence = self.cadence.max(to - from);
        self.to = *to;
    }

    /// What it could not do, with its name.
    pub(super) fn mistakes(&self) -> impl Iterator<Item = String> {
        self.mistakes.iter().map(|mistake| format!("{}: {mistake}", self.name))
    }

    /// How it is at this time of the run.
    pub(crate) fn state(&self, now: Nanos) -> State {
        let due = self.to + self.cadence.max(SECOND) + PATIENCE;
        match self {
            _ if self.gone.is_some() => State::Gone,
            _ if self.is_done => State::Over,
            _ if now >= due => State::Late,
            _ => State::Running,
        }
    }

    /// What is to be said of that, if it is new.
    fn look(&mut self, now: Nanos) -> Option<String> {
        let is_late = self.state(now) == State::Late;
        if is_late == self.is_late {
            return None;
        }
        self.is_late = is_late;
        match self.state(now) {
            State::Late => Some(format!("late: nothing has come of it since {} of the run", brief(self.to))),
            State::Running | State::Over => Some("tells again".to_owned()),
            // That is said by itself.
            State::Gone => None,
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
