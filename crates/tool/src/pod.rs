//! `seawall pod`: the program in a pod of `--on`, which does a part of what its user asked for.
//!
//! Reads the user's own command line, gets ready as that command would by itself, and then does what it is told on standard input;
//! what comes of it goes to standard output, a line each ([`seawall_fleet::protocol`]). [`voice`] writes those lines, [`ears`] hears orders
//! and that nobody gives any, [`hand`] is what both have on the trial under way; [`sending`] does what `attack` asks for, [`searching`] what `find` does, [`comparing`] what `isolate` does. Knows nothing
//! of Kubernetes: its place among the pods is all that it is told.

mod comparing;
mod ears;
mod hand;
mod records;
mod searching;
mod sending;
mod share;
mod voice;

use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use seawall_fleet::materials::ARGUMENTS;
use seawall_fleet::protocol::{Begin, HEARTBEAT_SECONDS, PLACE, Ready, VERSION};
use seawall_lab::means;
use seawall_lab::remote::Quota;
use seawall_probe::System;
use serde::de::DeserializeOwned;

use self::ears::Ears;
use self::hand::{End, Hand};
use self::voice::Voice;
use crate::{Cli, Command, exit, flags};

/// What a pod is told when it is made.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The user's command line after the program's name, as a JSON array of strings
    #[arg(long, value_name = "FILE", default_value = ARGUMENTS)]
    arguments: PathBuf,
    /// How many pods there are, so that this one makes ready for its part alone
    #[arg(long, value_name = "N", default_value = "1")]
    pods: NonZero<u64>,
    /// Silence after which whoever gives orders is taken to be gone
    #[arg(long, value_name = "DURATION", hide = true, value_parser = seawall_load::rate::duration)]
    heartbeat: Option<Duration>,
}

/// This pod among the others.
#[derive(Debug, Clone, Copy)]
struct Place {
    index: u64,
    of: u64,
    heartbeat: Duration,
}

/// Runs the command. What cannot be done is told to whoever gives orders, who reads nothing else.
pub(crate) fn run(args: &Args) -> ExitCode {
    let voice = Arc::new(Voice);
    obey(args, &voice).unwrap_or_else(|error| {
        voice.failed(format!("{error:#}"));
        ExitCode::from(exit::BAD_INPUT)
    })
}

fn obey(args: &Args, voice: &Arc<Voice>) -> anyhow::Result<ExitCode> {
    let heartbeat = args.heartbeat.unwrap_or(Duration::from_secs(HEARTBEAT_SECONDS));
    let place = Place { index: index()?, of: args.pods.get(), heartbeat };
    let Cli { cpus, command, .. } = command(&args.arguments)?;
    let cpus = cpus.map_or_else(means::cores, NonZero::get);
    match command {
        Command::Attack(attack) => sending::run(*attack, cpus, place, voice),
        Command::Find(find) => searching::run(*find, cpus, place, voice),
        Command::Isolate(isolate) => comparing::run(&isolate, cpus, place, voice),
        _ => bail!("pods carry out attack, find and isolate, and no other command"),
    }
}

/// Its place.
fn index() -> anyhow::Result<u64> {
    let told = std::env::var(PLACE).with_context(|| PLACE)?;
    told.parse().with_context(|| format!("{PLACE}: {told:?} is no place among pods"))
}

fn command(file: &Path) -> anyhow::Result<Cli> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let words: Vec<String> = serde_json::from_slice(&text)
        .with_context(|| format!("{} is no list of arguments", file.display()))?;
    let words = std::iter::once("seawall".to_owned()).chain(words).map(OsString::from);
    Ok(Cli::try_parse_from(flags::normalise(words))?)
}

/// What is said before anything is sent.
fn ready(place: Place, connections: usize) -> Ready {
    let quota = Quota::watch(System, std::process::id()).cores();
    Ready {
        protocol: VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        index: place.index,
        connections,
        cores: quota.unwrap_or_else(|| means::cores() as f64),
    }
}

/// Has trials carried out as they are ordered, until the end; the exit code. An error is one that kept a trial from beginning.
fn serve<W: DeserializeOwned + Send + 'static>(
    ears: &Ears<W>,
    place: Place,
    (hand, voice): (&Hand, &Voice),
    mut carry_out: impl FnMut(&Begin<W>) -> anyhow::Result<()>,
) -> ExitCode {
    while let Some(begin) = ears.next() {
        if let Err(error) = carry_out(&begin) {
            hand.skips();
            voice.failed(format!("{error:#}"));
        }
        if hand.ended().is_some() {
            break;
        }
    }
    let why = hand.ended().unwrap_or(End::Left);
    if why == End::Silence {
        voice.failed(format!("nobody was heard for {} s", place.heartbeat.as_secs_f64()));
    }
    ExitCode::from(ears::code(why))
}
