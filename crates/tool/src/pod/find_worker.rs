//! `find` in a pod: shares of trials and experiments, block by block.
//!
//! The coordinator knows what is searched for, and when a trial is long enough. This module has the local driver of `find`, and
//! its observations. Readers of the server side and reports of runs do not concern pods.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{bail, ensure};
use seawall_fleet::protocol::{BeginTrial, ControlCommand, PodReport};
use seawall_lab::remote_tasks::find_tasks::{
    BlockList, CalibrationResult, ExperimentPartResult, SearchTask, SearchTaskResult, TrialPartResult,
};
use seawall_lab::remote_tasks::{QuotaWatch, max_in_flight_for_memory};
use seawall_lab::rig::{LoadPart, LocalDriver, StopSwitch};
use seawall_lab::target_driver::TargetDriver as _;
use seawall_load::input_files::InputFiles;
use seawall_probe::LocalFiles;
use seawall_search::observation::{BLOCKS_PER_SECOND, BlockCounts};

use super::command_listener::TrialReceiver;
use super::pod_output::PodOutput;
use super::trial_control::{TrialController, TrialHandle};
use super::{PodPosition, ready, serve};
use crate::find::{FindArgs, plan, search_setup};

/// The number of blocks in one report: the end of a trial is decided in steps of as many.
const TOGETHER: usize = 3;

/// Gets ready, and carries out orders until the end.
pub(super) fn run(
    mut args: FindArgs,
    cpus: usize,
    place: PodPosition,
    voice: &Arc<PodOutput>,
) -> anyhow::Result<ExitCode> {
    args.check()?;
    ensure!(args.compare.is_empty(), "--compare does not work with --on, because --compare sends no load");
    if args.closed_loop {
        bail!("--closed-loop does not work with --on, because pods send at a given rate");
    }
    ensure!(
        args.url.is_some() || !matches!(args.targets.as_str(), "stdin" | "-"),
        "-targets: give a file of targets, because pods read commands from standard input"
    );
    (args.resume, args.server_metrics, args.server_cgroup) = (None, None, Vec::new());
    let (_, mut kit) = plan::plan_find(&args, cpus, &InputFiles::default())?;
    kit.transport.max_connections =
        kit.transport.max_connections.min(max_in_flight_for_memory(&LocalFiles).unwrap_or(usize::MAX));
    let hand = Arc::new(TrialController::default());
    let ears = TrialReceiver::<SearchTask>::listen(place.heartbeat, &hand, voice)?;
    let teller = Arc::new(Mutex::new(BlockReporter::new(voice)));
    let observer = Arc::clone(&teller);
    let (rig, _) = search_setup::build_local_driver(kit)?;
    let mut rig = rig.with_block_observer(Box::new(move |_, blocks| {
        observer.lock().unwrap_or_else(PoisonError::into_inner).add(blocks, TOGETHER);
    }));
    rig.prepare().map_err(anyhow::Error::msg)?;
    voice.send(&PodReport::<(), ()>::Ready(ready(place, 0)));
    Ok(serve(&ears, place, (&hand, voice), |begin| {
        let enough = Arc::new(AtomicBool::new(false));
        hand.attach_trial(Box::new(FindHandle { enough: Arc::clone(&enough), stop: rig.stop_switch() }));
        let part = LoadPart {
            start_at: begin.at,
            shard: begin.shard,
            load_number: begin.trial,
            stop_requested: enough,
        };
        let result = carry_out(&mut rig, begin, &part, &teller);
        hand.detach_trial();
        voice.send(&PodReport::<(), SearchTaskResult>::Done { trial: begin.trial, result });
        Ok(())
    }))
}

fn carry_out(
    rig: &mut LocalDriver,
    begin: &BeginTrial<SearchTask>,
    part: &LoadPart,
    teller: &Mutex<BlockReporter>,
) -> SearchTaskResult {
    let teller = || teller.lock().unwrap_or_else(PoisonError::into_inner);
    match &begin.work {
        SearchTask::Offer(offer) => {
            teller().begin(begin);
            let (mut seen, total) = rig.run_trial_part(offer, part);
            // Those that were not told with others.
            teller().add(&std::mem::take(&mut seen.blocks), 1);
            SearchTaskResult::Offer(Box::new(TrialPartResult::new(seen, total)))
        }
        SearchTask::Experiment(experiment) => {
            teller().begin(begin);
            SearchTaskResult::Experiment(ExperimentPartResult(rig.run_experiment_part(experiment, part)))
        }
        SearchTask::Calibrate => {
            let calibration = rig.calibrate();
            SearchTaskResult::Calibrated(CalibrationResult::new(calibration, rig.max_clients()))
        }
        SearchTask::HangUp => {
            rig.close_connections();
            SearchTaskResult::HungUp
        }
    }
}

/// Reports blocks as they are completed.
struct BlockReporter {
    trial: u64,
    /// The number of blocks that were reported.
    sent_blocks: usize,
    quota: QuotaWatch<LocalFiles>,
    voice: Arc<PodOutput>,
}

impl BlockReporter {
    fn new(voice: &Arc<PodOutput>) -> Self {
        let quota = QuotaWatch::watch(LocalFiles, std::process::id());
        Self { trial: 0, sent_blocks: 0, quota, voice: Arc::clone(voice) }
    }

    /// A load begins when it is ordered to, or not at all: of one that comes too late that is said at its end.
    fn begin(&mut self, begin: &BeginTrial<SearchTask>) {
        (self.trial, self.sent_blocks) = (begin.trial, 0);
        // What it was stopped for before is not this load's.
        let _ = self.quota.describe_throttling();
        self.voice.send(&PodReport::<(), ()>::Begun { trial: begin.trial, at: begin.at });
    }

    /// Reports the blocks that were not reported yet, if they are enough for a report.
    fn add(&mut self, blocks: &[BlockCounts], together: usize) {
        let new = blocks.get(self.sent_blocks..).unwrap_or_default();
        if new.len() < together {
            return;
        }
        let is_another_second = self.sent_blocks / BLOCKS_PER_SECOND != blocks.len() / BLOCKS_PER_SECOND;
        let doubts =
            is_another_second.then(|| self.quota.describe_throttling()).flatten().into_iter().collect();
        self.sent_blocks = blocks.len();
        self.voice.send(&PodReport::<_, ()>::Part {
            trial: self.trial,
            part: BlockList(new.to_vec()),
            doubts,
        });
    }
}

/// The control handle of a trial.
struct FindHandle {
    enough: Arc<AtomicBool>,
    stop: StopSwitch,
}

impl TrialHandle for FindHandle {
    fn steer(&self, steer: &ControlCommand) -> Option<String> {
        Some(format!("rejected {:?}: the rate of a trial is fixed", steer.line))
    }

    /// Stops the trial. Outstanding responses are awaited for as long as the trial says, even if this is called again.
    fn stop(&self) {
        self.enough.store(true, Ordering::Relaxed);
    }

    fn abort(&self) {
        self.stop.stop();
    }
}
