//! The state of each pod of an attack, during the run and at its end.
//!
//! The run updates [`PodTracker`], and the live output reads it from any thread. [`page_table`] makes the table of the page,
//! [`text`] the text of lines and of the terminal view.

mod page_table;
mod text;

use std::io::{Write as _, stderr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall_fleet::gather::LATE_AFTER;
use seawall_lab::generator_verdict::VerdictReason;
use seawall_lab::remote_tasks::load::{LoadPartResult, MachineCheckResult};
use seawall_load::clock::{Nanos, SECOND, nanos};
use seawall_load::interval::IntervalStats;
use serde::Serialize;

use self::page_table::{PodCompletions, merge_gap};
pub(super) use self::text::{describe_problem, format_table};
use super::distributed_attack::AttackFleet;
use crate::brief_time::format_brief_time;
use crate::text_wrap::clean;

/// Doubts that are kept of a pod: the first say what there is to be said.
const KEPT: usize = 8;

/// News that are said: a thousand pods that are lost at once say no more by being named one after the other, and the end names them all.
const SAID: usize = 100;

/// The state of all pods. Clones are cheap and share the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodTracker {
    known: Arc<Mutex<PodTrackerState>>,
}

#[derive(Debug, Default)]
struct PodTrackerState {
    rows: Vec<AttackPodStatus>,
    parts: Vec<Option<Box<LoadPartResult>>>,
    /// The intervals in which the share of a pod was missing.
    gaps: Vec<(Nanos, Nanos)>,
    tracks: PodCompletions,
    /// News go to standard error as they come.
    is_stderr_free: bool,
    /// News that wait to be said.
    unprinted_messages: Vec<String>,
    printed: usize,
}

/// The state of a pod at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PodRunState {
    /// The pod reports nothing more, and its part of the run is not finished.
    Lost,
    /// A report of the pod is overdue.
    Late,
    /// The pod reports what it measures.
    Running,
    /// The pod has reported all of its run.
    Finished,
}

/// An offset and how exactly it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct MeasuredOffset {
    /// The offset in nanoseconds.
    #[serde(rename = "seconds", with = "seawall_load::duration_json")]
    pub(crate) offset: i64,
    /// The largest error of the offset.
    #[serde(rename = "error_seconds", with = "seawall_load::duration_json")]
    pub(crate) max_error: Nanos,
}

/// The status of a pod, as data. Times hold nanoseconds, and documents seconds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct AttackPodStatus {
    /// The place of the pod among all pods, from 0.
    pub(crate) index: usize,
    /// The name of the pod, and where it runs.
    pub(crate) name: String,
    /// The time by which the clock of the pod is ahead. `None` if it is unknown.
    pub(crate) clock_offset: Option<MeasuredOffset>,
    /// The delay of the start of the pod against the agreed start. `None` if the pod did not start.
    pub(crate) start_delay: Option<MeasuredOffset>,
    /// Requests sent.
    pub(crate) sent: u64,
    /// Responses with a status from 200 to 399.
    pub(crate) good: u64,
    /// Requests whose outcome is known.
    pub(crate) completed: u64,
    /// The 99th percentile of the response times. While the run goes on: of the last second.
    #[serde(rename = "response_time_p99_seconds", with = "seawall_load::duration_json")]
    pub(crate) response_time_p99: Nanos,
    /// The 99th percentile of the generator lag. While the run goes on: of the last second.
    #[serde(rename = "generator_lag_p99_seconds", with = "seawall_load::duration_json")]
    pub(crate) generator_lag_p99: Nanos,
    /// Most requests in flight at once.
    pub(crate) in_flight: u64,
    /// The end of the last interval that the pod reported, counted from the start of the run.
    #[serde(rename = "reported_until_seconds", with = "seawall_load::duration_json")]
    pub(crate) reported_until: Nanos,
    /// Why the pod is lost, and since when. `None` if it is not lost.
    pub(crate) lost_reason: Option<String>,
    /// When the loss of the pod was known, counted from the start of the run.
    #[serde(rename = "lost_at_seconds", with = "seawall_load::duration_json")]
    pub(crate) lost_at: Option<Nanos>,
    /// The time for which the figures lack the share of the pod.
    #[serde(rename = "missing_seconds", with = "seawall_load::duration_json")]
    pub(crate) missing_time: Nanos,
    /// The first things that spoke against the pod while it sent.
    pub(crate) warnings: Vec<String>,
    /// The findings against the pod at the end.
    pub(crate) findings: Vec<VerdictReason>,
    /// Each check of the machine of the pod.
    pub(crate) machine: Vec<MachineCheckResult>,
    /// The errors of the pod.
    pub(crate) errors: Vec<String>,
    /// The longest interval that the pod has reported.
    #[serde(skip)]
    pub(super) longest_interval: Nanos,
    /// True if the pod has reported all of its run.
    #[serde(skip)]
    pub(super) is_done: bool,
    /// True if the last check found the pod late.
    #[serde(skip)]
    pub(super) was_late_at_last_check: bool,
}

/// An event of a pod.
pub(super) enum PodObservation<'s> {
    /// The pod has started.
    Began {
        /// The delay against the agreed start, in nanoseconds.
        late: i64,
        /// The largest error of the delay.
        within: Duration,
    },
    /// The pod has reported an interval.
    IntervalMeasured {
        /// The last interval.
        interval: &'s IntervalStats,
        /// The warnings that the pod reported.
        doubts: Vec<String>,
    },
    /// The pod has finished.
    Done(Box<LoadPartResult>),
    /// The pod will report nothing more.
    Lost {
        /// The reason.
        why: String,
        /// The time of the loss.
        at: Nanos,
    },
    /// Reports of the pod cannot be read for now.
    ReportsUnreadable(String),
    /// The figures lack the share of the pod for a time.
    ShareMissing {
        /// The start of that time.
        from: Nanos,
        /// The end of that time.
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

    /// Starts to track the pods of this fleet.
    pub(super) fn track_pods(&self, crew: &AttackFleet) {
        let mut known = self.lock();
        known.rows = (0..crew.size())
            .map(|index| {
                let clock_offset = crew
                    .clock_offset(index)
                    .map(|clock| MeasuredOffset { offset: clock.ahead_nanos, max_error: clock.error_nanos });
                let name = clean(crew.pod_name(index));
                AttackPodStatus { index, name, clock_offset, ..AttackPodStatus::default() }
            })
            .collect();
        known.parts = (0..crew.size()).map(|_| None).collect();
        known.tracks = PodCompletions::new(crew.size());
    }

    /// Makes a tracker with these rows.
    #[cfg(test)]
    pub(crate) fn from_rows(rows: Vec<AttackPodStatus>) -> Self {
        Self { known: Arc::new(Mutex::new(PodTrackerState { rows, ..PodTrackerState::default() })) }
    }

    fn lock(&self) -> MutexGuard<'_, PodTrackerState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All pods, as of now.
    pub(crate) fn statuses(&self) -> Vec<AttackPodStatus> {
        self.lock().rows.clone()
    }

    /// Returns true if a pod has reported all of its run.
    pub(super) fn is_pod_done(&self, pod: usize) -> bool {
        self.lock().parts.get(pod).is_some_and(Option::is_some)
    }

    /// Returns the results of the pods that have reported all of their run.
    pub(super) fn finished_results(&self) -> impl Iterator<Item = LoadPartResult> {
        let parts: Vec<LoadPartResult> =
            self.lock().parts.iter().flatten().map(|part| (**part).clone()).collect();
        parts.into_iter()
    }

    /// Records an event of a pod, and prints it if it is news. Returns true in that case.
    pub(super) fn record(&self, pod: usize, seen: PodObservation<'_>) -> bool {
        let mut known = self.lock();
        let PodTrackerState { rows, parts, gaps, tracks, .. } = &mut *known;
        let Some((row, part)) = rows.get_mut(pod).zip(parts.get_mut(pod)) else { return false };
        match &seen {
            PodObservation::ShareMissing { from, to } => merge_gap(gaps, (*from, *to)),
            PodObservation::IntervalMeasured { interval, .. } => tracks.add_interval(pod, interval),
            _ => {}
        }
        let said = row.apply(seen, part).map(|said| format!("{}: {said}", row.name));
        let is_news = said.is_some();
        said.into_iter().for_each(|said| known.say(said));
        is_news
    }

    /// Checks whether pods are late, or report again, at this time of the run, and prints changes. Returns true if there is any.
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
        std::mem::take(&mut known.unprinted_messages)
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
                "further events of pods are not shown here; the summary lists all".to_owned()
            }
            _ => return,
        };
        if self.is_stderr_free {
            // Standard error may be closed; the end says it, too.
            let _ = writeln!(stderr(), "seawall: {said}");
        } else {
            self.unprinted_messages.push(said);
        }
    }
}

impl AttackPodStatus {
    /// Applies an event; returns a message if it is news.
    fn apply(&mut self, seen: PodObservation<'_>, part: &mut Option<Box<LoadPartResult>>) -> Option<String> {
        match seen {
            PodObservation::Began { late, within } => {
                self.start_delay = Some(MeasuredOffset { offset: late, max_error: nanos(within) });
            }
            PodObservation::IntervalMeasured { interval, doubts } => {
                self.measured(interval);
                return self.doubted(&doubts);
            }
            PodObservation::Done(done) => {
                let all = &done.total.stats;
                (self.sent, self.good, self.completed) = (all.sent, all.good_count(), all.completed);
                (self.response_time_p99, self.generator_lag_p99) =
                    (all.all_times().response_time.quantile(0.99), all.generator_lag.quantile(0.99));
                self.findings.clone_from(&done.findings);
                self.machine.clone_from(&done.machine);
                self.errors.clone_from(&done.mistakes);
                self.is_done = true;
                // Its mistakes are said in the end.
                *part = Some(done);
            }
            PodObservation::Lost { why, at } => {
                let why = format!("{}, after {}", clean(&why), format_brief_time(at));
                self.lost_reason = Some(why.clone());
                self.lost_at.get_or_insert(at);
                return Some(why);
            }
            PodObservation::ReportsUnreadable(why) => {
                return self.doubted(&[format!("cannot read its reports at the moment: {why}")]);
            }
            PodObservation::ShareMissing { from, to } => self.missing_time += to - from,
        }
        None
    }

    fn measured(&mut self, IntervalStats { from, to, stats }: &IntervalStats) {
        self.sent += stats.sent;
        self.good += stats.good_count();
        self.completed += stats.completed;
        self.in_flight = self.in_flight.max(stats.in_flight_peak);
        (self.response_time_p99, self.generator_lag_p99) =
            (stats.all_times().response_time.quantile(0.99), stats.generator_lag.quantile(0.99));
        self.longest_interval = self.longest_interval.max(to - from);
        self.reported_until = *to;
    }

    /// Returns each error of the pod, with the name of the pod.
    pub(super) fn errors_with_pod_name(&self) -> impl Iterator<Item = String> {
        self.errors.iter().map(|mistake| format!("{}: {mistake}", self.name))
    }

    /// Returns the state of the pod at this time of the run.
    pub(crate) fn state(&self, now: Nanos) -> PodRunState {
        let due = self.reported_until + self.longest_interval.max(SECOND) + LATE_AFTER;
        match self {
            _ if self.lost_reason.is_some() => PodRunState::Lost,
            _ if self.is_done => PodRunState::Finished,
            _ if now >= due => PodRunState::Late,
            _ => PodRunState::Running,
        }
    }

    /// Returns a message if the pod is late, or reports again, and that is new.
    fn check_lateness(&mut self, now: Nanos) -> Option<String> {
        let is_late = self.state(now) == PodRunState::Late;
        if is_late == self.was_late_at_last_check {
            return None;
        }
        self.was_late_at_last_check = is_late;
        match self.state(now) {
            PodRunState::Late => Some(format!(
                "late: its last report covers only the first {} of the load",
                format_brief_time(self.reported_until)
            )),
            PodRunState::Running | PodRunState::Finished => Some("reports again".to_owned()),
            // That is said by itself.
            PodRunState::Lost => None,
        }
    }

    /// The first of many say it.
    fn doubted(&mut self, doubts: &[String]) -> Option<String> {
        let is_first = self.warnings.is_empty();
        let said = doubts.first().map(|doubt| clean(doubt));
        self.warnings.extend(doubts.iter().map(|doubt| clean(doubt)));
        self.warnings.truncate(KEPT);
        said.filter(|_| is_first)
    }
}
