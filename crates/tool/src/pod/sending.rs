//! `attack` in a pod: a slice of the load, second by second.
//!
//! The plan is the one that `attack` makes by itself. What the whole has of a number (clients, workers, errors) is shared; the slice and
//! the first instant come with the order.

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use seawall_fleet::protocol::{Begin, LOG_BYTES_PER_SECOND, Steer, Told};
use seawall_lab::carry::{Carriage, Step};
use seawall_lab::remote::load::Part;
use seawall_lab::remote::{Quota, most_in_flight};
use seawall_lab::selfcheck;
use seawall_load::clock::SECOND;
use seawall_load::control::Control;
use seawall_load::engine::{Load, Plan, Results, Session};
use seawall_load::fault::Fault;
use seawall_load::files::Files;
use seawall_load::interval::{Brief, Interval};
use seawall_load::schedule::{Arrivals, Slice};
use seawall_probe::System;

use super::ears::Ears;
use super::hand::{Grip, Hand};
use super::records::{self, Lines};
use super::share::share;
use super::voice::Voice;
use super::{Place, ready, serve};
use crate::attack::helm::Command;
use crate::attack::{Args, plan};

/// Connections that are warm when an open loop begins: more show soon enough whether they are needed.
const WARM: usize = 8;

/// How long an interval is.
const CADENCE: Duration = Duration::from_secs(1);

/// Longest wait for figures before it is looked whether there is anything else to do.
const PATIENCE: Duration = Duration::from_millis(200);

/// Bytes of a second's lines that are no interval: a pong, and what stands around an interval.
const AROUND: usize = 256;

/// Gets ready, and carries out what is ordered until the end.
pub(super) fn run(args: Args, cpus: usize, place: Place, voice: &Arc<Voice>) -> anyhow::Result<ExitCode> {
    check(&args)?;
    let clients = whole(&args);
    let mut args = args;
    take_share(&mut args, (place.index % place.of, place.of));
    let mut plan = plan::plan(&args, cpus, &Files::default(), 1)?;
    let memory = most_in_flight(&System).unwrap_or(usize::MAX);
    if args.concurrency.is_some_and(|clients| clients > memory as u64) {
        bail!(
            "{memory} clients fit into a pod's memory, and its share are more: more --pods, or more --memory"
        );
    }
    plan.load.in_flight.most = plan.load.in_flight.most.min(memory);
    plan.setup.travel.connections = plan.setup.travel.connections.min(memory);
    let warm = warm(&plan, place.of);
    let hand = Arc::new(Hand::default());
    let ears = Ears::<()>::open(place.heartbeat, &hand, voice)?;
    let room = plan::most_clients()?.max(plan.load.in_flight.most).min(memory);
    let (setup, mut load) = plan.split();
    // For answers kept as evidence and for metrics of each target there is no room in what a pod tells.
    (load.cadence, load.by_outcome, load.evidence) = (CADENCE, false, 0);
    let threads = setup.threads;
    let session = Session::open(setup)?;
    let voice = Arc::clone(voice);
    let mut sender = Sender { args, session, load, clients, room, threads, place, hand, voice };
    let connections = sender.session.warm(warm)?;
    sender.voice.tell(&Told::<(), ()>::Ready(ready(place, connections)));
    let (hand, voice) = (Arc::clone(&sender.hand), Arc::clone(&sender.voice));
    Ok(serve(&ears, place, (&hand, &voice), |begin| sender.carry_out(begin)))
}

/// What whoever gives orders decides.
fn check(args: &Args) -> anyhow::Result<()> {
    if !args.slice.is_whole() || args.start_at.is_some() {
        bail!("--slice and --start-at are what pods are told: the load is divided among them");
    }
    if matches!(args.targets.as_str(), "stdin" | "-") {
        bail!("-targets: on standard input a pod hears orders, and targets must be in a file");
    }
    Ok(())
}

/// Clients or workers of the whole; none where there is no bound.
fn whole(args: &Args) -> Option<u64> {
    args.concurrency.or((args.max_workers != u64::MAX).then_some(args.max_workers))
}

fn take_share(args: &mut Args, slice: (u64, u64)) {
    args.max_workers = share(args.max_workers, slice);
    args.concurrency = args.concurrency.map(|clients| share(clients, slice));
}

/// Connections to have before the first hit of one of so many slices: one for each client, else no more than are hits in a second.
fn warm(plan: &Plan, of: u64) -> usize {
    let most = plan.load.in_flight.most;
    match &plan.load.arrivals {
        _ if !plan.setup.travel.keep_alive => 0,
        Arrivals::Closed => most,
        Arrivals::Open(schedule) => most.min(WARM).min((schedule.peak() / of as f64).ceil() as usize),
    }
}

/// What sends.
struct Sender {
    args: Args,
    session: Session,
    load: Load,
    /// Clients or workers of the whole.
    clients: Option<u64>,
    /// Most clients that this machine can have.
    room: usize,
    threads: usize,
    place: Place,
    hand: Arc<Hand>,
    voice: Arc<Voice>,
}

impl Sender {
    fn carry_out(&mut self, begin: &Begin<()>) -> anyhow::Result<()> {
        let cut = Arc::default();
        let (load, results) = (self.load_of(begin)?, self.results(begin.trial, &cut)?);
        let Self { session, hand, voice, room, threads, .. } = self;
        let trial = session.trial(&load, results).context("the load cannot begin then")?;
        let mut carriage = Carriage::new(trial, load.warm_up);
        let grip = Steering { control: carriage.steer(), slice: begin.slice, room: *room };
        hand.takes(Box::new(grip));
        voice.tell(&Told::<(), ()>::Begun { trial: begin.trial, at: carriage.began_unix_ns() });
        let mut teller = Teller::new(begin.trial, hand, voice);
        teller.watch(&mut carriage, *threads);
        let mut result = Part::from(carriage.finish(None));
        if cut.load(Ordering::Relaxed) {
            result.mistakes.push(TOO_MANY.into());
        }
        hand.lets_go();
        voice.tell(&Told::<(), Part>::Done { trial: begin.trial, result });
        Ok(())
    }

    /// The load in this pod's share.
    fn load_of(&self, begin: &Begin<()>) -> anyhow::Result<Load> {
        let (index, of) = begin.slice;
        let mut load = self.load.clone();
        (load.slice, load.start_at) = (Slice::new(index, of)?, Some(begin.at));
        if let Some(clients) = self.clients {
            let share = usize::try_from(share(clients, begin.slice)).unwrap_or(usize::MAX);
            load.in_flight.most = share.min(self.room);
        }
        Ok(load)
    }

    fn results(&self, trial: u64, cut: &Arc<AtomicBool>) -> anyhow::Result<Option<Results>> {
        let lines = || Lines::new(trial, &self.voice, cut);
        let output = records::output(&self.args.output, self.place.index, lines)?;
        Ok(output.map(|output| plan::recorded(&self.args, output)))
    }
}

const TOO_MANY: &str = "there are more records than the 4 MiB that a pod tells: the others are left out; have pods write them, with --volume \
                        and -output in it, or do without: -output=none, and --intervals for all figures";

/// Tells of a trial, second by second.
struct Teller {
    trial: u64,
    /// What was not told yet, because there was no room for it.
    pending: Option<Interval>,
    doubts: Vec<String>,
    /// Failures of which an example was told: another second says nothing new.
    known: [bool; Fault::KINDS],
    quota: Quota<System>,
    /// Requests in flight for which there is memory.
    memory: usize,
    hand: Arc<Hand>,
    voice: Arc<Voice>,
}

impl Teller {
    fn new(trial: u64, hand: &Arc<Hand>, voice: &Arc<Voice>) -> Self {
        let quota = Quota::watch(System, std::process::id());
        let memory = most_in_flight(&System).unwrap_or(usize::MAX);
        let (hand, voice) = (Arc::clone(hand), Arc::clone(voice));
        Self {
            trial,
            pending: None,
            doubts: Vec::new(),
            known: [false; Fault::KINDS],
            quota,
            memory,
            hand,
            voice,
        }
    }

    /// Until everything is told that is told in parts.
    fn watch(&mut self, carriage: &mut Carriage<'_>, threads: usize) {
        loop {
            match carriage.wait(PATIENCE) {
                Step::Interval => self.add(carriage.interval(), threads),
                Step::Nothing => {}
                Step::Over => break,
            }
        }
        self.tell(usize::MAX);
    }

    fn add(&mut self, interval: &Interval, threads: usize) {
        self.doubts.extend(selfcheck::of_stretch(interval, threads));
        self.doubts.extend(self.quota.stopped());
        if interval.stats.in_flight_peak >= self.memory as u64 {
            let most = self.memory;
            self.doubts.push(format!(
                "{most} requests were in flight, as many as its memory holds: more waited (--memory)"
            ));
        }
        self.doubts.extend(self.hand.doubts());
        let mut pending = self.pending.take().unwrap_or(Interval {
            from: interval.from,
            to: interval.from,
            ..Interval::default()
        });
        let follows = pending.extend(interval);
        debug_assert!(follows.is_ok(), "intervals of one trial follow each other");
        let seconds = (pending.to.saturating_sub(pending.from)).div_ceil(SECOND).max(1);
        self.pending = Some(pending);
        self.tell(LOG_BYTES_PER_SECOND * usize::try_from(seconds).unwrap_or(1));
    }

    /// Tells what there is, if it fits into so many bytes.
    fn tell(&mut self, bytes: usize) {
        let Some(mut pending) = self.pending.take() else { return };
        let of_doubts: usize = self.doubts.iter().map(|doubt| doubt.len() + 3).sum();
        let known = self.known.iter().zip(&mut pending.stats.examples);
        known.filter(|(known, _)| **known).for_each(|(_, example)| *example = None);
        let Some(part) = Brief::within(&pending, bytes.saturating_sub(AROUND + of_doubts)) else {
            self.pending = Some(pending);
            return;
        };
        let told = self.known.iter_mut().zip(&pending.stats.examples);
        told.for_each(|(known, example)| *known |= example.is_some());
        let doubts = std::mem::take(&mut self.doubts);
        self.voice.tell(&Told::<_, ()>::Part { trial: self.trial, part, doubts });
    }
}

/// The hand on a load.
struct Steering {
    control: Control,
    slice: (u64, u64),
    /// Most clients that this machine can have.
    room: usize,
}

impl Grip for Steering {
    fn steer(&self, steer: &Steer) -> Option<String> {
        let Steer { line, from } = steer;
        let late = self.control.late_by(*from);
        let done = line.parse().and_then(|command| self.carry_out(command, *from));
        match done {
            Err(why) => Some(format!("did not obey {line:?}: {why}")),
            Ok(what) => what
                .filter(|_| late > 0)
                .map(|what| format!("{what} {} ms later than the others", late.div_ceil(SECOND / 1000))),
        }
    }

    fn stop(&self) {
        if self.control.is_ending() { self.control.abort() } else { self.control.drain() }
    }

    fn abort(&self) {
        self.control.abort();
    }
}

impl Steering {
    /// What was done, if it matters when.
    fn carry_out(&self, command: Command, from: u64) -> Result<Option<&'static str>, String> {
        let control = &self.control;
        match command {
            Command::Rate(rate) => {
                let changed = control.set_rate_from(from, rate);
                changed
                    .then_some(Some("changed its rate"))
                    .ok_or_else(|| "nothing is sent at a rate any more".into())
            }
            Command::Pause => {
                control.pause_from(from);
                Ok(Some("paused"))
            }
            Command::Resume => {
                control.resume_from(from);
                Ok(Some("went on"))
            }
            Command::Concurrency(clients) => self.set_clients(clients),
            Command::Stop => {
                self.stop();
                Ok(None)
            }
            Command::Status => Ok(None),
        }
    }

    fn set_clients(&self, whole: NonZero<usize>) -> Result<Option<&'static str>, String> {
        let clients = usize::try_from(share(whole.get() as u64, self.slice)).unwrap_or(usize::MAX);
        let clients = NonZero::new(clients.min(self.room)).unwrap_or(NonZero::<usize>::MIN);
        let changed = self.control.set_concurrency(clients);
        changed.then_some(None).ok_or_else(|| "an open loop has no clients".into())
    }
}
