//! `seawall pod`: the program in a pod of `--on`, which carries out a part of the user's command.
//!
//! It reads the command line of the user, gets ready as that command would, and then follows orders on standard input. It writes
//! results to standard output, one per line ([`seawall_fleet::protocol`]). [`pod_output`] writes these lines.
//! [`command_listener`] hears orders, and notices their absence. [`trial_control`] lets it control the current trial.
//! [`attack_worker`] does the work of `attack`, [`find_worker`] that of `find`, and [`isolate_worker`] that of `isolate`. This
//! module knows nothing of Kubernetes except its place among the pods.

mod attack_worker;
mod command_listener;
mod find_worker;
mod isolate_worker;
mod pod_output;
mod pod_share;
mod records;
mod trial_control;

use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use seawall_fleet::pod_inputs::ARGUMENTS_PATH;
use seawall_fleet::protocol::{BeginTrial, HEARTBEAT_TIMEOUT_SECONDS, INDEX_VARIABLE, PodReady, VERSION};
use seawall_lab::generator_resources;
use seawall_lab::remote_tasks::QuotaWatch;
use seawall_probe::LocalFiles;
use serde::de::DeserializeOwned;

use self::command_listener::TrialReceiver;
use self::pod_output::PodOutput;
use self::trial_control::{PodExitReason, TrialController};
use crate::{Cli, Command, exit, go_flags};

/// The flags that a pod gets when it is created.
#[derive(Debug, clap::Args)]
pub(crate) struct PodArgs {
    /// The user's command line after the program's name, as a JSON array of strings
    #[arg(long, value_name = "FILE", default_value = ARGUMENTS_PATH)]
    arguments: PathBuf,
    /// Number of pods that share the load
    #[arg(long, value_name = "N", default_value = "1")]
    pods: NonZero<u64>,
    /// Time without a message after which the pod treats the coordinator as lost
    #[arg(long, value_name = "DURATION", hide = true, value_parser = seawall_load::rate::parse_duration)]
    heartbeat: Option<Duration>,
}

/// The place of this pod among all pods.
#[derive(Debug, Clone, Copy)]
struct PodPosition {
    index: u64,
    of: u64,
    heartbeat: Duration,
}

/// Runs the command. Errors are reported to the coordinator, which reads nothing else.
pub(crate) fn run(args: &PodArgs) -> ExitCode {
    let voice = Arc::new(PodOutput);
    run_pod(args, &voice).unwrap_or_else(|error| {
        voice.send_failure(format!("{error:#}"));
        ExitCode::from(exit::ERROR)
    })
}

fn run_pod(args: &PodArgs, voice: &Arc<PodOutput>) -> anyhow::Result<ExitCode> {
    let heartbeat = args.heartbeat.unwrap_or(Duration::from_secs(HEARTBEAT_TIMEOUT_SECONDS));
    let place = PodPosition { index: index()?, of: args.pods.get(), heartbeat };
    let Cli { cpus, command, .. } = command(&args.arguments)?;
    let cpus = cpus.map_or_else(generator_resources::available_cores, NonZero::get);
    match command {
        Command::Attack(attack) => attack_worker::run(*attack, cpus, place, voice),
        Command::Find(find) => find_worker::run(*find, cpus, place, voice),
        Command::Isolate(isolate) => isolate_worker::run(&isolate, cpus, place, voice),
        _ => bail!("a pod runs attack, find or isolate only"),
    }
}

/// Returns the place of this pod.
fn index() -> anyhow::Result<u64> {
    let told = std::env::var(INDEX_VARIABLE).with_context(|| INDEX_VARIABLE)?;
    told.parse().with_context(|| format!("{INDEX_VARIABLE}: {told:?} is not a pod index"))
}

fn command(file: &Path) -> anyhow::Result<Cli> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let words: Vec<String> = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not a list of arguments", file.display()))?;
    let words = std::iter::once("seawall".to_owned()).chain(words).map(OsString::from);
    Ok(Cli::try_parse_from(go_flags::normalise_flags(words))?)
}

/// Returns the report that the pod is ready.
fn ready(place: PodPosition, connections: usize) -> PodReady {
    let quota = QuotaWatch::watch(LocalFiles, std::process::id()).cores();
    PodReady {
        protocol: VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        index: place.index,
        connections,
        cores: quota.unwrap_or_else(|| generator_resources::available_cores() as f64),
    }
}

/// Carries out trials as they are ordered, and returns the exit code. An error is one that kept a trial from starting.
fn serve<W: DeserializeOwned + Send + 'static>(
    ears: &TrialReceiver<W>,
    place: PodPosition,
    (hand, voice): (&TrialController, &PodOutput),
    mut carry_out: impl FnMut(&BeginTrial<W>) -> anyhow::Result<()>,
) -> ExitCode {
    while let Some(begin) = ears.next() {
        if let Err(error) = carry_out(&begin) {
            hand.cancel_next_trial();
            voice.send_failure(format!("{error:#}"));
        }
        if hand.exit_reason().is_some() {
            break;
        }
    }
    let why = hand.exit_reason().unwrap_or(PodExitReason::Requested);
    if why == PodExitReason::HeartbeatLost {
        voice.send_failure(format!("received no heartbeat for {} s", place.heartbeat.as_secs_f64()));
    }
    ExitCode::from(command_listener::exit_code(why))
}
