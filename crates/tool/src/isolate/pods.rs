//! An experiment on pods: each segment is carried out by all of them, each with its part, and seen as one.
//!
//! A pod that is gone, or tells nothing in time, has no part in what is seen: both of a pair lack the same requests, and what is left is
//! still fair. That is said, and the others go on, unless it was asked for another end.

use std::time::Duration;

use anyhow::{bail, ensure};
use seawall_fleet::fleet::{PodUpdate, PodUpdateKind};
use seawall_isolate::cell::CellStatsByVariant;
use seawall_isolate::segment::{Segment, VariantOrder};
use seawall_lab::isolate::local_runner::add_block_to_cell;
use seawall_lab::isolate::{IsolateStopReason, SegmentResult, VariantRunner};
use seawall_lab::remote_tasks::isolate_tasks::{
    SegmentPartResult, SegmentTask, SegmentTaskResult, VariantList,
};
use seawall_lab::rig::StopSwitch;
use seawall_load::clock::nanos;

use crate::distributed::OnPodLoss;
use crate::distributed::ready_pods::{self, ReadyPods};

/// Longest wait for news before it is looked whether anything is to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// The longest wait beyond the sending time: late responses take a second, and orders and logs take time to travel.
const AROUND: Duration = Duration::from_secs(5);

/// The longest time for opening connections.
const OPENING: Duration = Duration::from_secs(30);

/// The longest wait for measurements after a stop.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The overhead of a segment: from the order to the first request and from the last request to the result, and the addition for
/// each pod. Orders are written one after the other, and logs come through the API server.
const GAP: (Duration, Duration) = (Duration::from_millis(800), Duration::from_millis(1));

/// Returns the overhead of each segment that this many pods send.
pub(super) fn segment_overhead(pods: usize) -> Duration {
    GAP.0 + GAP.1 * u32::try_from(pods).unwrap_or(u32::MAX)
}

/// The pods of a comparison.
pub(super) struct IsolatePods {
    crew: ReadyPods<SegmentTask, (), SegmentTaskResult>,
    stop: StopSwitch,
    on_pod_loss: OnPodLoss,
    /// The messages about pods that are missing in the current segment.
    losses: Vec<(usize, String)>,
    /// The message about the first lost pod.
    first_loss: Option<String>,
    /// The number of variants.
    ways: usize,
}

impl IsolatePods {
    /// Makes a group of ready pods.
    pub(super) fn new(crew: ReadyPods<SegmentTask, (), SegmentTaskResult>, on_pod_loss: OnPodLoss) -> Self {
        Self { crew, stop: StopSwitch::default(), on_pod_loss, losses: Vec::new(), first_loss: None, ways: 0 }
    }

    /// Returns the switch that stops everything at once.
    pub(super) fn stop_switch(&self) -> StopSwitch {
        self.stop.clone()
    }

    /// Returns the number of pods.
    pub(super) fn pod_count(&self) -> usize {
        self.crew.fleet.size()
    }

    /// Returns the variants, which must be the same on all pods.
    ///
    /// # Errors
    /// The pods have different variants, or did not report them.
    pub(super) fn fetch_variants(&mut self) -> anyhow::Result<VariantList> {
        let told = self.carry_out_work(&SegmentTask::Ways, AROUND);
        if let Some(lost) = &self.first_loss {
            bail!("{lost}");
        }
        let mut all = told.into_iter().filter_map(|(pod, done)| match done {
            SegmentTaskResult::Ways(ways) => Some((pod, ways)),
            _ => None,
        });
        let Some((first, ways)) = all.next() else { bail!("no pod reported its variants") };
        for (pod, others) in all {
            ensure!(
                others == ways,
                "{} and {} have different variants ({}; {}); no load was sent",
                self.crew.fleet.pod_name(first),
                self.crew.fleet.pod_name(pod),
                said(&ways),
                said(&others)
            );
        }
        self.ways = ways.ways.len();
        Ok(ways)
    }

    fn is_over(&self) -> bool {
        self.stop.is_stopped() || self.is_given_up()
    }

    /// Returns true if a pod was lost and a lost pod ends the run.
    fn is_given_up(&self) -> bool {
        self.first_loss.is_some() && self.on_pod_loss == OnPodLoss::Abort
    }

    /// Has all present pods carry out a task, and returns the results by pod. If one pod ends early, the others are told to stop.
    fn carry_out_work(&mut self, work: &SegmentTask, within: Duration) -> Vec<(usize, SegmentTaskResult)> {
        let fleet = &mut self.crew.fleet;
        let mut waiting: Vec<usize> =
            (0..fleet.size()).filter(|&pod| fleet.loss_reason(pod).is_none()).collect();
        let begun = fleet.start_trial(work);
        let mut by = begun.at.saturating_add(nanos(within));
        let (mut told, mut ends) = (Vec::new(), false);
        while !waiting.is_empty() && self.crew.fleet.now() < by {
            let is_cut = told.iter().any(|(_, done)| is_cut(done));
            if !ends && (is_cut || self.is_over()) {
                self.crew.fleet.stop_trial();
                by = by.min(self.crew.fleet.now().saturating_add(nanos(LAST_WORDS)));
                ends = true;
            }
            let Some(PodUpdate { pod_index: pod, kind: what, .. }) = self.crew.fleet.next_update(PATIENCE)
            else {
                continue;
            };
            match what {
                PodUpdateKind::TrialDone { trial, result } if trial == begun.trial => {
                    waiting.retain(|&other| other != pod);
                    match result {
                        SegmentTaskResult::Impossible(why) => self.note_loss(pod, &why),
                        result => told.push((pod, result)),
                    }
                }
                PodUpdateKind::OrderFailed(why) => {
                    waiting.retain(|&other| other != pod);
                    self.note_loss(pod, &why);
                }
                PodUpdateKind::Ended(why) => {
                    waiting.retain(|&other| other != pod);
                    self.note_loss(pod, &format!("lost: {why}"));
                }
                _ => {}
            }
        }
        if !ends {
            waiting.into_iter().for_each(|pod| self.note_loss(pod, "the pod reported nothing in time"));
        }
        told.sort_unstable_by_key(|(pod, _)| *pod);
        told
    }

    /// Reports a lost pod, once in each segment.
    fn note_loss(&mut self, pod: usize, why: &str) {
        if self.losses.iter().any(|(known, _)| *known == pod) {
            return;
        }
        let said = format!("{}: {why}", self.crew.fleet.pod_name(pod));
        ready_pods::print_to_stderr(&said);
        self.first_loss.get_or_insert_with(|| said.clone());
        self.losses.push((pod, format!("{said}; this pod's share of the requests is missing")));
    }

    /// Has the pods send a segment, or one variant of it, and merges their results.
    fn send(&mut self, member: Option<usize>, segment: &Segment) -> SegmentResult {
        let told = self.carry_out_work(&SegmentTask::Send(member), segment.send_duration() + AROUND);
        let named = told.into_iter().filter_map(|(pod, done)| match done {
            SegmentTaskResult::Sent(sent) => Some((self.crew.fleet.pod_name(pod).to_owned(), *sent)),
            _ => None,
        });
        SegmentPartResult::merge(&named.collect::<Vec<_>>())
    }

    fn blocks(&mut self, segment: &Segment) -> SegmentResult {
        let mut whole = SegmentResult::default();
        for round in segment.blocks() {
            let mut cell: Option<CellStatsByVariant> = Some(vec![None; self.ways]);
            for member in round {
                let block = self.send(Some(member), segment);
                whole.add_times_and_counts(&block);
                whole.generator_limits.extend(block.generator_limits);
                if block.stop_reason.is_some() || self.is_over() {
                    return SegmentResult { stop_reason: block.stop_reason, ..whole };
                }
                cell = add_block_to_cell(cell, member, block.cells.into_iter().next());
            }
            whole.cells.extend(cell);
        }
        whole
    }

    /// Returns the reason to stop sending, if there is one.
    fn cut(&self, seen: Option<IsolateStopReason>) -> Option<IsolateStopReason> {
        let fleet = &self.crew.fleet;
        let is_empty = || (0..fleet.size()).all(|pod| fleet.loss_reason(pod).is_some());
        if self.stop.is_stopped() {
            return Some(IsolateStopReason::Stopped);
        }
        let lost = self.first_loss.as_ref();
        let given_up =
            lost.filter(|_| self.is_given_up()).map(|lost| format!("{lost} (--on-pod-loss abort)"));
        let none_left = lost.filter(|_| is_empty()).map(|lost| format!("no pod is left; {lost}"));
        given_up.or(none_left).map(IsolateStopReason::Failed).or(seen)
    }
}

/// Returns true if a pod ended early.
fn is_cut(done: &SegmentTaskResult) -> bool {
    matches!(done, SegmentTaskResult::Sent(sent) if sent.cut.is_some())
}

fn said(ways: &VariantList) -> String {
    let each: Vec<_> = ways.ways.iter().map(|way| format!("{} ({})", way.name, way.what)).collect();
    each.join(", ")
}

impl VariantRunner for IsolatePods {
    fn carry_out(&mut self, segment: &Segment, rate: f64) -> SegmentResult {
        let before = self.crew.fleet.now();
        let open = SegmentTask::Open { segment: segment.clone(), rate };
        let are_open = !self.carry_out_work(&open, OPENING).is_empty();
        let mut seen = match segment.design {
            _ if self.is_over() => SegmentResult::default(),
            _ if !are_open => {
                let why = self.first_loss.clone().unwrap_or_else(|| "no pod has a connection".to_owned());
                SegmentResult {
                    stop_reason: Some(IsolateStopReason::Failed(why)),
                    ..SegmentResult::default()
                }
            }
            VariantOrder::Interleaved => self.send(None, segment),
            VariantOrder::OneVariantPerBlock => self.blocks(segment),
        };
        seen.stop_reason = self.cut(seen.stop_reason);
        let took = self.crew.fleet.now().saturating_sub(before);
        seen.generator_limits.extend(self.losses.drain(..).map(|(_, said)| said));
        SegmentResult { took: Duration::from_nanos(took), ..seen }
    }
}
