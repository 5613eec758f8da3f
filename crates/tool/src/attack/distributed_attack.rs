//! An attack whose senders are pods: begun at one instant, steered by the same hand, its intervals those of all, judged with what each
//! says of itself.
//!
//! A pod whose share is missing is never silently less load: it is named when that is seen, the interval without it is told to be so, and
//! the judgement says what was not sent.

pub(super) mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::bail;
use seawall_fleet::fleet::{CHANGE_NOTICE, Fleet, PodUpdate, PodUpdateKind, StartedTrial};
use seawall_fleet::gather::{IntervalMerger, MergedInterval};
use seawall_lab::generator_verdict::{GeneratorVerdict, VerdictReason, worst};
use seawall_lab::objective::Objectives;
use seawall_lab::remote_tasks::load::LoadPartResult;
use seawall_lab::running_trial::TrialResult;
use seawall_lab::selfcheck;
use seawall_lab::trial_judgement::Judgement;
use seawall_load::clock::{Nanos, nanos};
use seawall_load::control::{Control, RemoteCommand, RemoteSendersRunState, RunStopReason};
use seawall_load::engine::{LoadSpec, RunOutcome};
use seawall_load::interval::IntervalStats;
use seawall_load::stats::LoadStats;
use seawall_load::summary::Summary;

use self::records::AllPodsRecords;
use super::generator_pods::{AttackPodStatus, MeasuredOffset, PodObservation, PodTracker};
use super::running_attack::{self, FinishedAttack, RunningAttack};
use crate::brief_time::format_brief_time;
use crate::distributed::ready_pods::ReadyPods;
use crate::distributed::{CleanupGuard, OnPodLoss};

/// Longest wait for news before it is looked whether anything is to be told.
const PATIENCE: Duration = Duration::from_millis(50);

/// The extra delay before a start without `--start-at`, so that a pod that is held up for a moment still starts in time.
const CALM: Nanos = 1_000_000_000;

/// The time after the agreed start by which a pod must have started; later it is dropped.
const BEGUN: Nanos = 10_000_000_000;

/// The longest wait for the reasons of early ends, after all reports have arrived.
const REASONS: Nanos = 4_000_000_000;

/// A share of the load that may be missing without the rest saying nothing of the target.
const LITTLE: f64 = 0.01;

/// Pods whose starts are further apart did not begin together.
const APART: Nanos = 5_000_000;

/// Pods of an attack.
pub(super) type AttackFleet = Fleet<(), IntervalStats, LoadPartResult>;

/// A running attack from many pods.
pub(crate) struct DistributedAttack {
    fleet: AttackFleet,
    run: RemoteSendersRunState,
    changes: Receiver<RemoteCommand>,
    begun: StartedTrial,
    gather: IntervalMerger,
    pods: PodTracker,
    /// The records of pods that report them.
    records: Option<AllPodsRecords>,
    on_pod_loss: OnPodLoss,
    warm_up: Nanos,
    /// The time from which no more requests are due.
    end: Option<Nanos>,
    /// The number of requests after which no more are due.
    hits: Option<u64>,
    /// Pods that have told all, and ended before their load did.
    ended_early: BTreeSet<usize>,
    /// Those of them of which it is not known why.
    pods_without_reason: BTreeSet<usize>,
    /// From where to where somebody's share was missing, by pod.
    missing: BTreeMap<usize, Nanos>,
    /// Ends the pods, and what they were made of, when it is dropped.
    _ended: CleanupGuard,
}

impl DistributedAttack {
    /// Has pods that are ready begin.
    pub(crate) fn begin(
        crew: ReadyPods<(), IntervalStats, LoadPartResult>,
        load: &LoadSpec,
        pods: PodTracker,
        records: Option<AllPodsRecords>,
        fails: OnPodLoss,
    ) -> anyhow::Result<Self> {
        let ReadyPods { fleet: mut crew, cleanup: ended, .. } = crew;
        let at = start_instant(&crew, load.start_unix_ns)?;
        let begun = crew.start_trial_at(&(), at);
        let (sender, changes) = channel();
        let run = RemoteSendersRunState::new(load, crew.clock(), begun.at, nanos(CHANGE_NOTICE), sender);
        let end = load.known_end();
        let hits = Some(load.stop_condition.max_requests).filter(|&hits| hits != u64::MAX);
        pods.track_pods(&crew);
        Ok(Self {
            gather: IntervalMerger::new(crew.size()),
            fleet: crew,
            run,
            changes,
            begun,
            pods,
            records,
            on_pod_loss: fails,
            warm_up: nanos(load.warm_up),
            end,
            hits,
            ended_early: BTreeSet::new(),
            pods_without_reason: BTreeSet::new(),
            missing: BTreeMap::new(),
            _ended: ended,
        })
    }

    /// Returns the time since the start of the run.
    fn now(&self) -> Nanos {
        self.fleet.now().saturating_sub(self.begun.at)
    }

    fn forward(&self) {
        for change in self.changes.try_iter() {
            match change {
                RemoteCommand::Rate(rate, from) => {
                    self.fleet.send_control(&format!("rate {}", rate.to_exact_string()), from);
                }
                RemoteCommand::Clients(clients) => {
                    self.fleet.send_control(&format!("concurrency {clients}"), self.now());
                }
                RemoteCommand::Pause(from) => self.fleet.send_control("pause", from),
                RemoteCommand::Resume(from) => self.fleet.send_control("resume", from),
                RemoteCommand::Drain | RemoteCommand::Abort => self.fleet.stop_trial(),
            }
        }
    }

    /// True if there is something that somebody should know at once.
    fn handle_pod_update(
        &mut self,
        PodUpdate { pod_index: pod, kind: what, .. }: PodUpdate<IntervalStats, LoadPartResult>,
    ) -> bool {
        let trial = self.begun.trial;
        match what {
            PodUpdateKind::Started { trial: of, at, within } if of == trial => {
                let late = at.saturating_sub(self.begun.unix_ns);
                self.pods.record(pod, PodObservation::Began { late, within })
            }
            PodUpdateKind::PartialResult { trial: of, part, doubts } if of == trial => {
                self.measured(pod, &part, doubts)
            }
            PodUpdateKind::TrialDone { trial: of, result } if of == trial => self.done(pod, result),
            PodUpdateKind::Ended(why) | PodUpdateKind::OrderFailed(why) => self.lost(pod, why),
            PodUpdateKind::Unreachable(why) => self.pods.record(pod, PodObservation::ReportsUnreadable(why)),
            PodUpdateKind::Records { trial: of, chunk } if of == trial => {
                if let Some(records) = &mut self.records {
                    records.add_base64_chunk(pod, &chunk);
                }
                false
            }
            PodUpdateKind::Records { .. }
            | PodUpdateKind::Ready
            | PodUpdateKind::Started { .. }
            | PodUpdateKind::PartialResult { .. }
            | PodUpdateKind::TrialDone { .. } => false,
        }
    }

    fn measured(&mut self, pod: usize, part: &IntervalStats, doubts: Vec<String>) -> bool {
        match self.gather.add(pod, part) {
            Ok(()) => self.pods.record(pod, PodObservation::IntervalMeasured { interval: part, doubts }),
            Err(gap) => self.lost(pod, format!("the pod's report has a gap: {gap}")),
        }
    }

    /// A pod has come to its end: that of its schedule, or one that it was told of, or one that somebody else has made. An evicted one
    /// tells all that it has measured, and its share is missing from then on.
    fn done(&mut self, pod: usize, part: LoadPartResult) -> bool {
        let early = part.early.filter(|_| self.run.requested_stop().is_none());
        let at = self.now();
        if early.is_none() {
            self.gather.mark_finished(pod);
        }
        let is_news = self.pods.record(pod, PodObservation::Done(Box::new(part)));
        if early.is_none() {
            return is_news;
        }
        self.ended_early.insert(pod);
        self.pods_without_reason.insert(pod);
        self.record_loss(pod, "the pod ended before its load was complete".into(), at)
    }

    /// A pod will tell nothing more. One that has told all of its run is of no further interest.
    fn lost(&mut self, pod: usize, why: String) -> bool {
        if self.pods.is_pod_done(pod) && !self.ended_early.contains(&pod) {
            return false;
        }
        self.pods_without_reason.remove(&pod);
        let at = self.now();
        self.record_loss(pod, why, at)
    }

    fn record_loss(&mut self, pod: usize, why: String, at: Nanos) -> bool {
        self.gather.mark_lost(pod);
        if self.on_pod_loss == OnPodLoss::Abort {
            self.run.control().drain();
        }
        self.pods.record(pod, PodObservation::Lost { why, at })
    }

    /// Pods that have not begun long after they were to have no part in it any more.
    fn drop_unstarted_pods(&mut self) {
        for row in
            self.pods.statuses().iter().filter(|row| row.start_delay.is_none() && row.lost_reason.is_none())
        {
            self.lost(row.index, "the pod did not start at the agreed time".into());
        }
    }

    fn publish_interval(&mut self, gathered: &MergedInterval) {
        let IntervalStats { from, to, stats } = &gathered.interval;
        for &pod in &gathered.missing_pods {
            *self.missing.entry(pod).or_default() += to - from;
            self.pods.record(pod, PodObservation::ShareMissing { from: *from, to: *to });
        }
        let total = self.gather.running_total();
        let (done, good) = (total.completed, total.good_count());
        let in_flight = usize::try_from(stats.in_flight_peak).unwrap_or(usize::MAX);
        let opened = usize::try_from(total.connections).unwrap_or(usize::MAX);
        self.run.publish_sender_gauges(in_flight, opened, done, done.saturating_sub(good));
    }

    /// Hits that the whole schedule made due, of which any were counted; none in a closed loop.
    fn scheduled(&self) -> Option<u64> {
        let control = self.run.control();
        let due = |at| control.due_before(at, self.end, self.hits);
        let all = due(self.end.unwrap_or_else(|| self.gather.merged_until()))?;
        Some(all.saturating_sub(due(self.warm_up)?))
    }

    fn outcome(&self) -> RunOutcome {
        let parts: Vec<LoadPartResult> = self.pods.finished_results().collect();
        let is_whole = parts.len() == self.fleet.size();
        let total = if is_whole { sum(&parts) } else { self.gather.total() };
        let most = |of: fn(&LoadPartResult) -> Nanos| parts.iter().map(of).max();
        let is_short = self.pods.statuses().iter().any(|row| row.lost_reason.is_some());
        let counted = self.planned().saturating_sub(self.warm_up);
        let scheduled = parts.iter().map(|part| part.scheduled).sum::<Option<u64>>();
        let early = self.run.requested_stop().map(|(_, why)| why);
        RunOutcome {
            scheduled_count: if is_whole && self.ended_early.is_empty() {
                scheduled
            } else {
                self.scheduled()
            },
            began_unix_ns: self.begun.unix_ns,
            counted_duration: most(|part| part.scheduled_for).filter(|_| !is_short).unwrap_or(counted),
            elapsed_after_warm_up: most(|part| part.elapsed).unwrap_or(0).max(if is_short {
                counted
            } else {
                0
            }),
            threads: parts.iter().map(|part| part.threads).sum::<usize>().max(1),
            records_written: Ok(parts.iter().map(|part| part.records).sum()),
            stop_reason: early,
            ..RunOutcome::from_stats(total, counted)
        }
    }

    /// Until when requests were to be sent, in the time of the run: to the plan's end, or until somebody ended it.
    fn planned(&self) -> Nanos {
        let ended = self.run.requested_stop().map(|(at, _)| at);
        let until = [ended, self.end].into_iter().flatten().min();
        until.unwrap_or_else(|| self.gather.merged_until()).max(1)
    }

    /// For how much of that a pod's share is missing.
    fn lacks(&self, row: &AttackPodStatus) -> Nanos {
        let planned = self.planned();
        match row.lost_reason {
            Some(_) => planned.saturating_sub(row.reported_until),
            None => self.missing.get(&row.index).copied().unwrap_or(0).min(planned),
        }
    }

    /// Returns this missing time as a share of the whole load.
    fn share(&self, lacks: Nanos) -> f64 {
        lacks as f64 / self.planned() as f64 / self.fleet.size() as f64
    }

    /// Returns the findings against this load: those of the whole load, and those of each pod.
    fn reasons(&self, outcome: &RunOutcome) -> Vec<VerdictReason> {
        let rows = self.pods.statuses();
        let whole = selfcheck::reasons_against_run(outcome).into_iter().chain(self.short(&rows));
        whole.chain(rows.iter().flat_map(|row| self.reasons_of_pod(row))).collect()
    }

    /// Returns a finding about the share of the load that is missing from all pods together, if any pod was lost or late.
    fn short(&self, rows: &[AttackPodStatus]) -> Option<VerdictReason> {
        let lacking: Vec<Nanos> = rows.iter().map(|row| self.lacks(row)).collect();
        let is_lost = rows.iter().any(|row| row.lost_reason.is_some());
        let share: f64 = lacking.iter().map(|lacks| self.share(*lacks)).sum();
        let pods =
            rows.iter().zip(&lacking).filter(|(row, lacks)| **lacks > 0 || row.lost_reason.is_some()).count();
        let ends = is_lost && self.on_pod_loss == OnPodLoss::Abort;
        let verdict = if share > LITTLE || ends {
            GeneratorVerdict::GeneratorLimited
        } else {
            GeneratorVerdict::Degraded
        };
        let text = format!(
            "{:.1} % of the load is missing: {pods} of {} pods were lost or late",
            100.0 * share,
            rows.len()
        );
        (pods > 0).then(|| VerdictReason::new("pods", verdict, text))
    }

    fn reasons_of_pod(&self, row: &AttackPodStatus) -> Vec<VerdictReason> {
        let mut reasons: Vec<VerdictReason> = row
            .findings
            .iter()
            .map(|found| VerdictReason {
                measured: format!("{}: {}", row.name, found.measured),
                ..found.clone()
            })
            .collect();
        let missing = self.lacks(row);
        let share = self.share(missing);
        let verdict =
            if share > LITTLE { GeneratorVerdict::GeneratorLimited } else { GeneratorVerdict::Degraded };
        let lacks = format!("{:.1} % of the load", 100.0 * share);
        match &row.lost_reason {
            Some(reason) => {
                let text = format!("{}: {reason}; {lacks} is missing", row.name);
                reasons.push(VerdictReason::new("pod-lost", verdict, text));
            }
            None if missing > 0 => {
                let text = format!(
                    "{}: sent no report for {}; {lacks} is unknown",
                    row.name,
                    format_brief_time(missing)
                );
                reasons.push(VerdictReason::new("pod-late", verdict, text));
            }
            None => {}
        }
        if let Some(MeasuredOffset { offset, max_error: error }) =
            row.start_delay.filter(|delay| delay.offset.unsigned_abs() > APART + delay.max_error)
        {
            let side = if offset > 0 { "after" } else { "before" };
            let text = format!(
                "{}: began {} {side} the agreed start (± {})",
                row.name,
                format_brief_time(offset.unsigned_abs()),
                format_brief_time(error)
            );
            reasons.push(VerdictReason::new("pod-start", GeneratorVerdict::Degraded, text));
        }
        reasons
    }
}

/// When the run is to begin, by the wire's clock: at that instant, in Unix nanoseconds, or as soon as pods can.
fn start_instant(crew: &AttackFleet, start_at: Option<i64>) -> anyhow::Result<Nanos> {
    let soonest = crew.earliest_start();
    let Some(at) = start_at else { return Ok(soonest.saturating_add(CALM)) };
    let before = crew.clock().unix_ns(soonest);
    match u64::try_from(at.saturating_sub(before)) {
        Ok(rest) => Ok(soonest.saturating_add(rest)),
        Err(_) => bail!(
            "--start-at: the start time is {:.3?} too early for the preparation of the pods; give a later time",
            Duration::from_nanos(before.abs_diff(at))
        ),
    }
}

fn sum(parts: &[LoadPartResult]) -> LoadStats {
    let mut total = LoadStats::default();
    parts.iter().for_each(|part| total.merge_concurrent(&part.total.stats));
    total
}

impl RunningAttack for DistributedAttack {
    fn control(&self) -> Control {
        self.run.control()
    }

    fn began_unix_ns(&self) -> i64 {
        self.begun.unix_ns
    }

    fn pods(&self) -> PodTracker {
        self.pods.clone()
    }

    fn watch(&mut self, each: &mut dyn FnMut(running_attack::RunUpdate<'_>)) {
        let (mut looked, mut has_missed) = (0, false);
        while !self.gather.is_over() {
            self.forward();
            let news = self.fleet.next_update(PATIENCE).is_some_and(|news| self.handle_pod_update(news));
            let now = self.now();
            // Of a thousand pods each line is news, and being late is no matter of milliseconds.
            let is_time = now.saturating_sub(looked) >= nanos(PATIENCE);
            if is_time {
                looked = now;
            }
            if now > BEGUN && !std::mem::replace(&mut has_missed, true) {
                self.drop_unstarted_pods();
            }
            if news | (is_time && self.pods.check_lateness(now)) {
                each(running_attack::RunUpdate::PodsChanged);
            }
            while let Some(gathered) = self.gather.next(self.now()) {
                self.publish_interval(&gathered);
                each(running_attack::RunUpdate::IntervalMeasured(&gathered.interval));
            }
        }
        self.run.mark_sending_stopped();
        self.fleet.shut_down();
        // Why somebody else had a pod end is known a moment after its last words.
        let by = self.now().saturating_add(REASONS);
        while !self.pods_without_reason.is_empty() && self.now() < by {
            let news = self.fleet.next_update(PATIENCE);
            news.into_iter().for_each(|news| _ = self.handle_pod_update(news));
        }
    }

    fn finish(mut self: Box<Self>, objectives: Option<&Objectives>) -> FinishedAttack {
        let mut outcome = self.outcome();
        let mut mistakes: Vec<_> =
            self.pods.statuses().iter().flat_map(AttackPodStatus::errors_with_pod_name).collect();
        if let Some(records) = self.records.take() {
            let lost: BTreeSet<_> = self
                .pods
                .statuses()
                .iter()
                .filter(|row| row.lost_reason.is_some())
                .map(|row| row.index)
                .collect();
            let (written, missing) = records.write(|pod| self.fleet.pod_name(pod).to_owned(), &lost);
            outcome.records_written = written;
            mistakes.extend(missing);
        }
        let summary = Summary::new(&outcome);
        let reasons = self.reasons(&outcome);
        let objectives = objectives.map(|objectives| objectives.check(&summary)).unwrap_or_default();
        let judgement = Judgement {
            generator_verdict: worst(&reasons),
            reasons,
            machine_findings: Vec::new(),
            objectives,
        };
        if self.on_pod_loss == OnPodLoss::Abort
            && self.pods.statuses().iter().any(|row| row.lost_reason.is_some())
        {
            outcome.stop_reason.get_or_insert(RunStopReason::Commanded);
        }
        let pods = self.pods.statuses();
        FinishedAttack {
            trial_result: TrialResult { outcome, summary, judgement },
            pods,
            pod_errors: mistakes,
        }
    }
}
