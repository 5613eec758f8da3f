//! A search on pods: all pods carry out each trial and each experiment, each pod its shard, and the results count as one.
//!
//! This module decides, because here the blocks of all pods come together. A lost or late pod makes a trial invalid; it never
//! counts as a limit of the target. The remaining pods share the later trials. If the pods are the limit, more pods are made, up
//! to the allowed number, and the trial is repeated.

use std::sync::Arc;
use std::time::Duration;

use seawall_cause::experiment::Experiment;
use seawall_cause::experiment_target::ExperimentTarget;
use seawall_cause::observed_requests::ExperimentObservation;
use seawall_fleet::fleet::{PodUpdate, PodUpdateKind, StartedTrial};
use seawall_lab::remote_tasks::find_tasks::{
    BlockList, CalibrationResult, ExperimentPartResult, SearchTask, SearchTaskResult, TrialPartResult,
};
use seawall_lab::rig::{self, StopSwitch};
use seawall_lab::target_driver::{Calibration, TargetDriver};
use seawall_load::clock::{Nanos, nanos};
use seawall_load::stats::LoadStats;
use seawall_search::closed_loop;
use seawall_search::observation::{BlockCounts, TrialObservation};
use seawall_search::target::SearchTarget;
use seawall_search::trial_spec::TrialSpec;

use super::progress::BlockObserver;
use crate::distributed::OnPodLoss;
use crate::distributed::ready_pods::{self, ReadyPods};

/// Longest wait for news before it is looked whether anything is to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// A pod that reports nothing for this long, while others report, is late.
const LATE: Nanos = 2_000_000_000;

/// The longest wait beyond the duration of a trial: orders and logs take time to travel.
const AROUND: Duration = Duration::from_secs(10);

/// The longest wait beyond the duration of a calibration or an experiment.
const LONG: Duration = Duration::from_secs(60);

/// The factor by which pods are added when they are the limit.
const GROWTH: usize = 2;

/// The pods of a search.
pub(super) struct FindPodGroup {
    crew: ReadyPods<SearchTask, BlockList, SearchTaskResult>,
    stop: StopSwitch,
    observer: Option<BlockObserver>,
    on_pod_loss: OnPodLoss,
    /// The largest number of pods.
    max_pods: usize,
    /// The rate and the number of clients that each pod sustains; `None` before the calibration.
    per_pod_capacity: Option<(f64, u32)>,
    /// The reason why no more pods can be made, if that was tried.
    growth_error: Option<String>,
}

/// The results of all pods for one task.
struct WorkResults {
    present: Vec<usize>,
    blocks: Vec<Vec<BlockCounts>>,
    done: Vec<Option<SearchTaskResult>>,
    /// The time of the last report of each pod, by the clock of the fleet.
    last_heard: Vec<Nanos>,
    invalid: Option<String>,
}

impl FindPodGroup {
    /// Makes a group of ready pods that can grow to `max_pods`; `observer` is called for each new block of a trial.
    pub(super) fn new(
        crew: ReadyPods<SearchTask, BlockList, SearchTaskResult>,
        on_pod_loss: OnPodLoss,
        max_pods: usize,
        observer: Option<BlockObserver>,
    ) -> Self {
        Self {
            crew,
            stop: StopSwitch::default(),
            observer,
            on_pod_loss,
            max_pods,
            per_pod_capacity: None,
            growth_error: None,
        }
    }

    /// Returns the switch that stops everything at once.
    pub(super) fn stop_switch(&self) -> StopSwitch {
        self.stop.clone()
    }

    fn present(&self) -> Vec<usize> {
        let fleet = &self.crew.fleet;
        (0..fleet.size()).filter(|&pod| fleet.loss_reason(pod).is_none()).collect()
    }

    /// Has the pods carry out a task, and collects all results; calls `enough` whenever all pods have reported another block.
    fn carry_out_work(
        &mut self,
        work: &SearchTask,
        within: Duration,
        mut enough: impl FnMut(&[BlockCounts]) -> bool,
    ) -> WorkResults {
        let there = self.present();
        let begun = self.crew.fleet.start_trial(work);
        let size = self.crew.fleet.size();
        let mut heard = WorkResults {
            blocks: vec![Vec::new(); size],
            done: (0..size).map(|_| None).collect(),
            last_heard: vec![begun.at; size],
            present: there,
            invalid: None,
        };
        if heard.present.is_empty() {
            heard.invalid = Some("no pod is left".to_owned());
            return heard;
        }
        let by = begun.at.saturating_add(nanos(within));
        let (mut known, mut ends) = (0, StopCount::default());
        while !heard.is_over() {
            if let Some(news) = self.crew.fleet.next_update(PATIENCE) {
                self.handle_event(&mut heard, begun, news);
            }
            let now = self.crew.fleet.now();
            let together = heard.merged_blocks();
            if together.len() > known {
                known = together.len();
                if enough(&together) {
                    ends.once(|| self.crew.fleet.stop_trial());
                }
            }
            if let Some(late) = heard.late_pod(now) {
                let name = self.crew.fleet.pod_name(late);
                heard.invalid.get_or_insert_with(|| format!("{name} reported nothing for two seconds"));
            }
            if heard.invalid.is_some() {
                ends.once(|| self.crew.fleet.stop_trial());
            }
            if self.stop.is_stopped() {
                ends.twice(|| self.crew.fleet.stop_trial());
            }
            if now > by {
                ends.twice(|| self.crew.fleet.stop_trial());
                heard.invalid.get_or_insert_with(|| "the pods did not finish in time".to_owned());
                break;
            }
        }
        heard
    }

    fn handle_event(
        &self,
        heard: &mut WorkResults,
        begun: StartedTrial,
        PodUpdate { pod_index: pod, at, kind: what }: PodUpdate<BlockList, SearchTaskResult>,
    ) {
        heard.last_heard[pod] = heard.last_heard[pod].max(at);
        match what {
            PodUpdateKind::PartialResult { trial, part, .. } if trial == begun.trial => {
                heard.blocks[pod].extend(part.0);
            }
            PodUpdateKind::TrialDone { trial, result } if trial == begun.trial => {
                heard.done[pod] = Some(result);
            }
            PodUpdateKind::OrderFailed(why) => {
                let name = self.crew.fleet.pod_name(pod);
                // It waits for the next one.
                heard.present.retain(|&there| there != pod);
                heard.invalid.get_or_insert_with(|| format!("{name}: {why}"));
            }
            PodUpdateKind::Ended(why) => {
                let name = self.crew.fleet.pod_name(pod);
                heard.present.retain(|&there| there != pod);
                ready_pods::print_to_stderr(&format!("{name} was lost: {why}"));
                if self.on_pod_loss == OnPodLoss::Abort {
                    self.stop.stop();
                }
                heard.invalid.get_or_insert_with(|| format!("{name} was lost: {why}"));
            }
            _ => {}
        }
    }

    fn try_offer(&mut self, offer: &TrialSpec) -> TrialObservation {
        let within = offer.max_duration + offer.drain + AROUND;
        let mut observer = self.observer.take();
        let heard = self.carry_out_work(&SearchTask::Offer(*offer), within, |blocks| {
            if let Some(observer) = &mut observer {
                observer(offer, blocks);
            }
            offer.is_enough(blocks)
        });
        self.observer = observer;
        let blocks = heard.merged_blocks();
        let mut seen = TrialObservation {
            blocks,
            invalid_reason: heard.invalid.clone(),
            target_is_down: true,
            ..TrialObservation::default()
        };
        let mut total = LoadStats::default();
        for (pod, done) in heard.done.iter().enumerate() {
            let Some(SearchTaskResult::Offer(told)) = done else { continue };
            let TrialPartResult { took, invalid, no_port, away, interrupted, total: part } = &**told;
            total.merge_concurrent(&part.stats);
            seen.took = seen.took.max(*took);
            seen.requests_without_port += no_port;
            seen.target_is_down &= away;
            // By somebody else: it has ended, and its part is not whole.
            let cut = interrupted.then_some("the pod was stopped");
            let named =
                invalid.as_deref().or(cut).map(|why| format!("{}: {why}", self.crew.fleet.pod_name(pod)));
            seen.invalid_reason = seen.invalid_reason.or(named);
        }
        seen.target_is_down &= seen.invalid_reason.is_none();
        seen.details = rig::summarize(&total);
        seen.interrupted = self.stop.is_stopped();
        seen
    }

    /// Makes more pods if that is allowed; returns true if it made any.
    fn grow(&mut self) -> bool {
        let size = self.crew.fleet.size();
        let more = (size * GROWTH).min(self.max_pods);
        if more <= size || self.growth_error.is_some() || self.stop.is_stopped() {
            return false;
        }
        let stop = self.stop.clone();
        match self.crew.scale_up_to(more, || !stop.is_stopped()) {
            Ok(()) => true,
            Err(error) => {
                self.growth_error = Some(format!("{error:#}"));
                false
            }
        }
    }

    /// Returns the rate that this many pods can offer; `None` before the calibration.
    fn capacity(&self, pods: usize) -> Option<f64> {
        self.per_pod_capacity.map(|(rate, _)| rate * pods as f64)
    }
}

/// The number of stop orders that the pods have received.
#[derive(Default)]
struct StopCount(u8);

impl StopCount {
    fn once(&mut self, stop: impl Fn()) {
        self.up_to(1, stop);
    }

    fn twice(&mut self, stop: impl Fn()) {
        self.up_to(2, stop);
    }

    fn up_to(&mut self, times: u8, stop: impl Fn()) {
        while self.0 < times {
            stop();
            self.0 += 1;
        }
    }
}

impl WorkResults {
    fn is_over(&self) -> bool {
        self.present.iter().all(|&pod| self.done[pod].is_some())
    }

    /// Returns the merged blocks of all present pods.
    fn merged_blocks(&self) -> Vec<BlockCounts> {
        let parts: Vec<&[BlockCounts]> = self.present.iter().map(|&pod| &*self.blocks[pod]).collect();
        BlockList::merge(&parts)
    }

    /// Returns a pod that reports nothing while others report.
    fn late_pod(&self, now: Nanos) -> Option<usize> {
        let is_behind = |pod: &usize| {
            let most = self.blocks.iter().map(Vec::len).max().unwrap_or(0);
            self.done[*pod].is_none()
                && self.blocks[*pod].len() < most
                && now > self.last_heard[*pod].saturating_add(LATE)
        };
        self.present.iter().copied().find(is_behind)
    }
}

impl SearchTarget for FindPodGroup {
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation {
        if self.stop.is_stopped() {
            return TrialObservation { interrupted: true, ..TrialObservation::default() };
        }
        while self.capacity(self.crew.fleet.size()).is_some_and(|most| offer.rate > most) && self.grow() {}
        let mut seen = self.try_offer(offer);
        while seen.invalid_reason.is_some() && !seen.interrupted && self.grow() {
            seen = self.try_offer(offer);
        }
        if let (Some(invalid), Some(refused)) = (&mut seen.invalid_reason, &self.growth_error) {
            invalid.push_str(&format!("; cannot start more pods: {refused}"));
        }
        seen
    }

    fn rest(&mut self, time: Duration) -> bool {
        let by = self.crew.fleet.now().saturating_add(nanos(time));
        while self.crew.fleet.now() < by && !self.stop.is_stopped() {
            let left = Duration::from_nanos(by.saturating_sub(self.crew.fleet.now()));
            // Clocks are compared meanwhile; who is gone has no part in the next work.
            if let Some(PodUpdate { pod_index: pod, kind: PodUpdateKind::Ended(why), .. }) =
                self.crew.fleet.next_update(left.min(PATIENCE))
            {
                ready_pods::print_to_stderr(&format!("{} was lost: {why}", self.crew.fleet.pod_name(pod)));
            }
        }
        !self.stop.is_stopped()
    }
}

impl closed_loop::ClosedTarget for FindPodGroup {
    /// Clients are not asked of pods.
    fn carry_out(&mut self, _: &closed_loop::ClosedTrialSpec) -> TrialObservation {
        TrialObservation { interrupted: true, ..TrialObservation::default() }
    }

    fn rest(&mut self, time: Duration) -> bool {
        SearchTarget::rest(self, time)
    }
}

impl ExperimentTarget for FindPodGroup {
    fn run_experiment(&mut self, experiment: &Experiment) -> ExperimentObservation {
        if self.stop.is_stopped() {
            return ExperimentObservation { interrupted: true, ..ExperimentObservation::default() };
        }
        let heard = self.carry_out_work(&SearchTask::Experiment(experiment.clone()), LONG * 3, |_| false);
        let parts = heard.done.into_iter().flatten().filter_map(|done| match done {
            SearchTaskResult::Experiment(tried) => Some(tried),
            _ => None,
        });
        let watched = ExperimentPartResult::merge(parts.collect());
        let cut = watched.interrupted.then(|| "a pod was stopped".to_owned());
        let invalid = watched.invalid_reason.or(heard.invalid).or(cut);
        ExperimentObservation { invalid_reason: invalid, interrupted: self.stop.is_stopped(), ..watched }
    }

    fn pause(&mut self, time: Duration) -> bool {
        SearchTarget::rest(self, time)
    }
}

impl TargetDriver for FindPodGroup {
    fn calibrate(&mut self) -> Calibration {
        let before = self.crew.fleet.now();
        let heard = self.carry_out_work(&SearchTask::Calibrate, LONG, |_| false);
        let told: Vec<CalibrationResult> = heard
            .done
            .into_iter()
            .flatten()
            .filter_map(|done| if let SearchTaskResult::Calibrated(told) = done { Some(told) } else { None })
            .collect();
        let took = Duration::from_nanos(self.crew.fleet.now().saturating_sub(before));
        let interrupted = self.stop.is_stopped();
        let least = told.iter().map(|one| one.most).collect::<Option<Vec<_>>>();
        let least = least.and_then(|all| all.into_iter().reduce(f64::min));
        let clients = told.iter().map(|one| one.clients).min().unwrap_or(0);
        self.per_pod_capacity = least.map(|rate| (rate, clients));
        let pods = self.present().len();
        let how = match (least, told.first()) {
            (Some(rate), Some(first)) => format!(
                "{pods} of at most {} pods run; the slowest pod can send {rate:.0} requests/s; the rate of the first pod is {}",
                self.max_pods, first.how
            ),
            _ => "the pods' own limit could not be measured, but each trial checks whether the pods keep up"
                .to_owned(),
        };
        Calibration { max_rate: self.capacity(self.max_pods.max(pods)), explanation: how, took, interrupted }
    }

    fn close_connections(&mut self) {
        let _ = self.carry_out_work(&SearchTask::HangUp, LONG, |_| false);
    }

    fn max_clients(&self) -> u32 {
        let pods = u32::try_from(self.crew.fleet.size()).unwrap_or(u32::MAX);
        self.per_pod_capacity.map_or(0, |(_, clients)| clients.saturating_mul(pods))
    }
}

/// Returns a callback that stops everything, from any thread.
pub(super) fn stop_callback(stop: &StopSwitch) -> Arc<dyn Fn() + Send + Sync> {
    let stop = stop.clone();
    Arc::new(move || stop.stop())
}
