//! `attack` in a pod: a shard of the load, second by second.
//!
//! The plan is that of `attack`. Numbers of the whole load (clients, workers, errors) are divided; the shard and the start come
//! with the order.

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use seawall_fleet::protocol::{BeginTrial, ControlCommand, MAX_LOG_BYTES_PER_SECOND, PodReport};
use seawall_lab::remote_tasks::load::LoadPartResult;
use seawall_lab::remote_tasks::{QuotaWatch, max_in_flight_for_memory};
use seawall_lab::running_trial::{RunningTrial, TrialProgress};
use seawall_lab::selfcheck;
use seawall_load::clock::SECOND;
use seawall_load::control::Control;
use seawall_load::engine::{LoadSession, LoadSpec, ResultsOutput, RunPlan};
use seawall_load::input_files::InputFiles;
use seawall_load::interval::{CompactInterval, IntervalStats};
use seawall_load::request_failure_reason::RequestFault;
use seawall_load::schedule::{ArrivalModel, ScheduleShard};
use seawall_probe::LocalFiles;

use super::command_listener::TrialReceiver;
use super::pod_output::PodOutput;
use super::pod_share::pod_share;
use super::records::{self, RecordLineWriter};
use super::trial_control::{TrialController, TrialHandle};
use super::{PodPosition, ready, serve};
use crate::attack::control_socket::ControlSocketCommand;
use crate::attack::{AttackArgs, plan};

/// The number of warm connections at the start of an open loop; further ones are opened when needed.
const WARM: usize = 8;

/// The length of an interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// The longest wait for figures before other work is checked.
const PATIENCE: Duration = Duration::from_millis(200);

/// Bytes per second of lines that are not intervals: a pong, and the frame of an interval.
const AROUND: usize = 256;

/// Gets ready, and carries out orders until the end.
pub(super) fn run(
    args: AttackArgs,
    cpus: usize,
    place: PodPosition,
    voice: &Arc<PodOutput>,
) -> anyhow::Result<ExitCode> {
    check(&args)?;
    let clients = whole(&args);
    let mut args = args;
    take_share(&mut args, (place.index % place.of, place.of));
    let mut plan = plan::plan_attack(&args, cpus, &InputFiles::default(), 1)?;
    let memory = max_in_flight_for_memory(&LocalFiles).unwrap_or(usize::MAX);
    if args.concurrency.is_some_and(|clients| clients > memory as u64) {
        bail!(
            "a pod's memory has room for {memory} clients, but the pod's share is larger: raise --pods or --memory"
        );
    }
    plan.load.in_flight_limit.limit = plan.load.in_flight_limit.limit.min(memory);
    plan.session.transport.max_connections = plan.session.transport.max_connections.min(memory);
    let warm = warm(&plan, place.of);
    let hand = Arc::new(TrialController::default());
    let ears = TrialReceiver::<()>::listen(place.heartbeat, &hand, voice)?;
    let room = plan::max_closed_loop_clients()?.max(plan.load.in_flight_limit.limit).min(memory);
    let (setup, mut load) = plan.split();
    // For sample responses and for metrics of each target there is no room in what a pod tells.
    (load.interval, load.collect_target_outcomes, load.max_response_samples_per_outcome) =
        (INTERVAL, false, 0);
    let threads = setup.max_threads;
    let session = LoadSession::open(setup)?;
    let voice = Arc::clone(voice);
    let mut sender =
        AttackWorker { args, session, load, clients, max_clients: room, threads, place, hand, voice };
    let connections = sender.session.warm(warm)?;
    sender.voice.send(&PodReport::<(), ()>::Ready(ready(place, connections)));
    let (hand, voice) = (Arc::clone(&sender.hand), Arc::clone(&sender.voice));
    Ok(serve(&ears, place, (&hand, &voice), |begin| sender.carry_out(begin)))
}

/// Refuses flags that the coordinator decides.
fn check(args: &AttackArgs) -> anyhow::Result<()> {
    if !args.shard.is_whole() || args.start_at.is_some() {
        bail!(
            "--shard and --start-at do not work with --on, because the coordinator divides the load among pods"
        );
    }
    if args.urls.is_empty() && matches!(args.targets.as_str(), "stdin" | "-") {
        bail!("-targets: give a file of targets, because pods read commands from standard input");
    }
    Ok(())
}

/// Returns the number of clients or workers of the whole load; `None` without a limit.
fn whole(args: &AttackArgs) -> Option<u64> {
    args.in_flight_limit()
}

fn take_share(args: &mut AttackArgs, shard: (u64, u64)) {
    if args.max_workers == u64::MAX {
        args.concurrency = args.in_flight_limit().map(|clients| pod_share(clients, shard));
    }
    args.max_workers = pod_share(args.max_workers, shard);
}

/// Returns the number of connections to open before the first request of one of `of` shards: one per client, else at most one per
/// request in a second.
fn warm(plan: &RunPlan, of: u64) -> usize {
    let most = plan.load.in_flight_limit.limit;
    match &plan.load.arrivals {
        _ if !plan.session.transport.keep_alive => 0,
        ArrivalModel::Closed => most,
        ArrivalModel::Open(schedule) => most.min(WARM).min((schedule.peak() / of as f64).ceil() as usize),
    }
}

/// The sender of the load.
struct AttackWorker {
    args: AttackArgs,
    session: LoadSession,
    load: LoadSpec,
    /// The number of clients or workers of the whole load.
    clients: Option<u64>,
    /// The largest number of clients on this machine.
    max_clients: usize,
    threads: usize,
    place: PodPosition,
    hand: Arc<TrialController>,
    voice: Arc<PodOutput>,
}

impl AttackWorker {
    fn carry_out(&mut self, begin: &BeginTrial<()>) -> anyhow::Result<()> {
        let cut = Arc::default();
        let (load, results) = (self.load_of(begin)?, self.results(begin.trial, &cut)?);
        let Self { session, hand, voice, max_clients: room, threads, .. } = self;
        let trial = session.start_trial(&load, results).context("cannot start the load at that instant")?;
        let mut carriage = RunningTrial::new(trial, load.warm_up);
        let grip = AttackHandle { control: carriage.control(), shard: begin.shard, max_clients: *room };
        hand.attach_trial(Box::new(grip));
        voice.send(&PodReport::<(), ()>::Begun { trial: begin.trial, at: carriage.began_unix_ns() });
        let mut teller = IntervalReporter::new(begin.trial, hand, voice);
        teller.watch(&mut carriage, *threads);
        let mut result = LoadPartResult::from(carriage.finish(None));
        if cut.load(Ordering::Relaxed) {
            result.mistakes.push(TOO_MANY.into());
        }
        hand.detach_trial();
        voice.send(&PodReport::<(), LoadPartResult>::Done { trial: begin.trial, result });
        Ok(())
    }

    /// Returns the share of the load that this pod sends.
    fn load_of(&self, begin: &BeginTrial<()>) -> anyhow::Result<LoadSpec> {
        let (index, of) = begin.shard;
        let mut load = self.load.clone();
        (load.shard, load.start_unix_ns) = (ScheduleShard::new(index, of)?, Some(begin.at));
        if let Some(clients) = self.clients {
            let share = usize::try_from(pod_share(clients, begin.shard)).unwrap_or(usize::MAX);
            load.in_flight_limit.limit = share.min(self.max_clients);
        }
        Ok(load)
    }

    fn results(&self, trial: u64, cut: &Arc<AtomicBool>) -> anyhow::Result<Option<ResultsOutput>> {
        let lines = || RecordLineWriter::new(trial, &self.voice, cut);
        let output = records::open_records_output(
            self.args.output.as_deref().unwrap_or("none"),
            self.place.index,
            lines,
        )?;
        Ok(output.map(|output| plan::build_results_output(&self.args, output)))
    }
}

const TOO_MANY: &str = "a pod can send 4 MiB of records; this pod dropped the records beyond that. Let the pods write the records \
                        with --volume and -output in it, or use -output=none and --timeseries";

/// Reports on a trial, second by second.
struct IntervalReporter {
    trial: u64,
    /// The intervals that were not reported yet because there was no room.
    pending: Option<IntervalStats>,
    doubts: Vec<String>,
    /// The kinds of failure of which an example was reported: another one adds nothing.
    known: [bool; RequestFault::KIND_COUNT],
    quota: QuotaWatch<LocalFiles>,
    /// The largest number of requests in flight that fits into the memory.
    max_in_flight: usize,
    hand: Arc<TrialController>,
    voice: Arc<PodOutput>,
}

impl IntervalReporter {
    fn new(trial: u64, hand: &Arc<TrialController>, voice: &Arc<PodOutput>) -> Self {
        let quota = QuotaWatch::watch(LocalFiles, std::process::id());
        let max_in_flight = max_in_flight_for_memory(&LocalFiles).unwrap_or(usize::MAX);
        let (hand, voice) = (Arc::clone(hand), Arc::clone(voice));
        Self {
            trial,
            pending: None,
            doubts: Vec::new(),
            known: [false; RequestFault::KIND_COUNT],
            quota,
            max_in_flight,
            hand,
            voice,
        }
    }

    /// Reports intervals until the trial has ended.
    fn watch(&mut self, carriage: &mut RunningTrial<'_>, threads: usize) {
        loop {
            match carriage.wait(PATIENCE) {
                TrialProgress::Interval => self.add(carriage.interval(), threads),
                TrialProgress::Pending => {}
                TrialProgress::Finished => break,
            }
        }
        self.tell(usize::MAX);
    }

    fn add(&mut self, interval: &IntervalStats, threads: usize) {
        self.doubts.extend(selfcheck::reasons_against_interval(interval, threads));
        self.doubts.extend(self.quota.describe_throttling());
        if interval.stats.in_flight_peak >= self.max_in_flight as u64 {
            let most = self.max_in_flight;
            self.doubts.push(format!(
                "{most} requests were in flight, which is the limit of the pod's memory (--memory); further requests waited"
            ));
        }
        self.doubts.extend(self.hand.take_warnings());
        let mut pending = self.pending.take().unwrap_or(IntervalStats {
            from: interval.from,
            to: interval.from,
            ..IntervalStats::default()
        });
        let follows = pending.append_next_interval(interval);
        debug_assert!(follows.is_ok(), "intervals of one trial follow each other");
        let seconds = (pending.to.saturating_sub(pending.from)).div_ceil(SECOND).max(1);
        self.pending = Some(pending);
        self.tell(MAX_LOG_BYTES_PER_SECOND * usize::try_from(seconds).unwrap_or(1));
    }

    /// Reports the pending intervals, if they fit into this many bytes.
    fn tell(&mut self, bytes: usize) {
        let Some(mut pending) = self.pending.take() else { return };
        let of_doubts: usize = self.doubts.iter().map(|doubt| doubt.len() + 3).sum();
        let known = self.known.iter().zip(&mut pending.stats.failure_examples);
        known.filter(|(known, _)| **known).for_each(|(_, example)| *example = None);
        let Some(part) =
            CompactInterval::compacted_to_fit(&pending, bytes.saturating_sub(AROUND + of_doubts))
        else {
            self.pending = Some(pending);
            return;
        };
        let told = self.known.iter_mut().zip(&pending.stats.failure_examples);
        told.for_each(|(known, example)| *known |= example.is_some());
        let doubts = std::mem::take(&mut self.doubts);
        self.voice.send(&PodReport::<_, ()>::Part { trial: self.trial, part, doubts });
    }
}

/// The control handle of a load.
struct AttackHandle {
    control: Control,
    shard: (u64, u64),
    /// The largest number of clients on this machine.
    max_clients: usize,
}

impl TrialHandle for AttackHandle {
    fn steer(&self, steer: &ControlCommand) -> Option<String> {
        let ControlCommand { line, from } = steer;
        let late = self.control.lateness_if_changed_from(*from);
        let done = line.parse().and_then(|command| self.carry_out(command, *from));
        match done {
            Err(why) => Some(format!("rejected {line:?}: {why}")),
            Ok(what) => what
                .filter(|_| late > 0)
                .map(|what| format!("{what} {} ms later than other pods", late.div_ceil(SECOND / 1000))),
        }
    }

    fn stop(&self) {
        if self.control.is_ending() { self.control.abort() } else { self.control.drain() }
    }

    fn abort(&self) {
        self.control.abort();
    }
}

impl AttackHandle {
    /// Carries out a command; returns a description of the change if its time matters.
    fn carry_out(&self, command: ControlSocketCommand, from: u64) -> Result<Option<&'static str>, String> {
        let control = &self.control;
        match command {
            ControlSocketCommand::Rate(rate) => {
                let changed = control.set_rate_from(from, rate);
                changed
                    .then_some(Some("changed its rate"))
                    .ok_or_else(|| "the load is a closed loop or has ended".into())
            }
            ControlSocketCommand::Pause => {
                control.pause_from(from);
                Ok(Some("paused"))
            }
            ControlSocketCommand::Resume => {
                control.resume_from(from);
                Ok(Some("resumed"))
            }
            ControlSocketCommand::Concurrency(clients) => self.set_clients(clients),
            ControlSocketCommand::Stop => {
                self.stop();
                Ok(None)
            }
            ControlSocketCommand::Status => Ok(None),
        }
    }

    fn set_clients(&self, whole: NonZero<usize>) -> Result<Option<&'static str>, String> {
        let clients = usize::try_from(pod_share(whole.get() as u64, self.shard)).unwrap_or(usize::MAX);
        let clients = NonZero::new(clients.min(self.max_clients)).unwrap_or(NonZero::<usize>::MIN);
        let changed = self.control.set_concurrency(clients);
        changed.then_some(None).ok_or_else(|| "the load has a rate, so it has no number of clients".into())
    }
}
