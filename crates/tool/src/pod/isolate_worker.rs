//! `isolate` in a pod: parts of segments.
//!
//! The coordinator knows the next segment and the result of all segments. This module has the variants, with names looked up and
//! connections tried from this pod, and its observations.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::ensure;
use seawall_fleet::protocol::{BeginTrial, ControlCommand, PodReport};
use seawall_lab::isolate::generator_share::OpenSegment;
use seawall_lab::isolate::local_runner::LocalVariantRunner;
use seawall_lab::isolate::variant_setup::VariantLabel;
use seawall_lab::remote_tasks::isolate_tasks::{SegmentTask, SegmentTaskResult, VariantInfo, VariantList};
use seawall_lab::rig::StopSwitch;
use seawall_load::input_files::InputFiles;

use super::command_listener::TrialReceiver;
use super::pod_output::PodOutput;
use super::trial_control::{TrialController, TrialHandle};
use super::{PodPosition, ready, serve};
use crate::isolate::{IsolateArgs, plan};

/// Gets ready, and carries out orders until the end.
pub(super) fn run(
    args: &IsolateArgs,
    cpus: usize,
    place: PodPosition,
    voice: &Arc<PodOutput>,
) -> anyhow::Result<ExitCode> {
    args.check()?;
    ensure!(!args.searches_capacity(), plan::CAPACITY_NOT_WITH_PODS);
    ensure!(
        !args.reads_stdin(),
        "-targets: give a file of targets, because pods read commands from standard input"
    );
    let plan::IsolateRun { plan, runner: bench, reach_checks: reaches, .. } =
        plan::plan_inside_pod(args, cpus, &InputFiles::default())?;
    let known = |(VariantLabel { name, description: what }, design): (&VariantLabel, _)| VariantInfo {
        name: name.clone(),
        what: what.clone(),
        design,
    };
    let designs = plan.designs();
    let ways = VariantList {
        target: plan.target.clone(),
        ways: plan.variants.iter().zip(designs).map(known).collect(),
    };
    let hand = Arc::new(TrialController::default());
    let ears = TrialReceiver::<SegmentTask>::listen(place.heartbeat, &hand, voice)?;
    plan::check_reachability(reaches, || hand.exit_reason().is_some())?;
    let mut pod = IsolateWorker { bench, ways, standing: None };
    voice.send(&PodReport::<(), ()>::Ready(ready(place, 0)));
    Ok(serve(&ears, place, (&hand, voice), |begin| {
        hand.attach_trial(Box::new(IsolateHandle(pod.bench.stop_switch())));
        let result = pod.carry_out(begin);
        hand.detach_trial();
        voice.send(&PodReport::<(), SegmentTaskResult>::Done { trial: begin.trial, result });
        Ok(())
    }))
}

struct IsolateWorker {
    bench: LocalVariantRunner,
    ways: VariantList,
    /// The current segment.
    standing: Option<OpenSegment>,
}

impl IsolateWorker {
    fn carry_out(&mut self, begin: &BeginTrial<SegmentTask>) -> SegmentTaskResult {
        match &begin.work {
            SegmentTask::Ways => SegmentTaskResult::Ways(self.ways.clone()),
            SegmentTask::Open { segment, rate } => {
                // Connections of the one before are closed first, so that no target has to have both.
                self.standing = None;
                match self.bench.open_segment_part(segment, *rate, begin.shard) {
                    Ok(standing) => {
                        self.standing = Some(standing);
                        SegmentTaskResult::Open
                    }
                    Err(why) => SegmentTaskResult::Impossible(why),
                }
            }
            SegmentTask::Send(member) => {
                let Some(standing) = &mut self.standing else {
                    return SegmentTaskResult::Impossible("no segment is open".to_owned());
                };
                let sent = self.bench.send_segment_part(standing, *member, begin.at);
                sent.map_or_else(SegmentTaskResult::Impossible, |sent| {
                    SegmentTaskResult::Sent(Box::new(sent))
                })
            }
        }
    }
}

/// The control handle of a segment: a stop ends all sending, and awaits no responses.
struct IsolateHandle(StopSwitch);

impl TrialHandle for IsolateHandle {
    fn steer(&self, steer: &ControlCommand) -> Option<String> {
        Some(format!("rejected {:?}: the rate of an experiment is fixed", steer.line))
    }

    fn stop(&self) {
        self.0.stop();
    }

    fn abort(&self) {
        self.0.stop();
    }
}
