//! `find` in a pod: parts of offers and experiments, block by block.
//!
//! What is searched for, and when an offer was enough, whoever gives orders knows; here is a rig, as `find` makes it, and what it sees.
//! What looks at the target's own side, and files of runs, are no matter of pods.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{bail, ensure};
use seawall_fleet::protocol::{Begin, Steer, Told};
use seawall_lab::ground::Ground as _;
use seawall_lab::remote::search::{Blocks, Calibrated, Done, Offered, Tried, Work};
use seawall_lab::remote::{Quota, most_in_flight};
use seawall_lab::rig::{Part, Rig, Stop};
use seawall_load::files::Files;
use seawall_probe::System;
use seawall_search::seen::{Block, SECOND};

use super::ears::Ears;
use super::hand::{Grip, Hand};
use super::voice::Voice;
use super::{Place, ready, serve};
use crate::find::{Args, ground, plan};

/// Blocks that are told together: what ends an offer is looked at in as many.
const TOGETHER: usize = 3;

/// Gets ready, and carries out what is ordered until the end.
pub(super) fn run(mut args: Args, cpus: usize, place: Place, voice: &Arc<Voice>) -> anyhow::Result<ExitCode> {
    args.check()?;
    ensure!(args.compare.is_empty(), "--compare sends nothing, and pods have nothing to do with it");
    if args.closed {
        bail!("--closed: pods offer rates, and no clients");
    }
    ensure!(
        args.url.is_some() || !matches!(args.targets.as_str(), "stdin" | "-"),
        "-targets: on standard input a pod hears orders, and targets must be in a file"
    );
    (args.from, args.metrics, args.cgroup) = (None, None, Vec::new());
    let (_, mut kit) = plan::plan(&args, cpus, &Files::default())?;
    kit.travel.connections = kit.travel.connections.min(most_in_flight(&System).unwrap_or(usize::MAX));
    let hand = Arc::new(Hand::default());
    let ears = Ears::<Work>::open(place.heartbeat, &hand, voice)?;
    let teller = Arc::new(Mutex::new(Teller::new(voice)));
    let observer = Arc::clone(&teller);
    let (rig, _) = ground::rig(kit)?;
    let mut rig = rig.observed(Box::new(move |_, blocks| {
        observer.lock().unwrap_or_else(PoisonError::into_inner).add(blocks, TOGETHER);
    }));
    rig.prepare().map_err(anyhow::Error::msg)?;
    voice.tell(&Told::<(), ()>::Ready(ready(place, 0)));
    Ok(serve(&ears, place, (&hand, voice), |begin| {
        let enough = Arc::new(AtomicBool::new(false));
        hand.takes(Box::new(Ending { enough: Arc::clone(&enough), stop: rig.stop() }));
        let part = Part { start_at: begin.at, place: begin.slice, load: begin.trial, enough };
        let result = carry_out(&mut rig, begin, &part, &teller);
        hand.lets_go();
        voice.tell(&Told::<(), Done>::Done { trial: begin.trial, result });
        Ok(())
    }))
}

fn carry_out(rig: &mut Rig, begin: &Begin<Work>, part: &Part, teller: &Mutex<Teller>) -> Done {
    let teller = || teller.lock().unwrap_or_else(PoisonError::into_inner);
    match &begin.work {
        Work::Offer(offer) => {
            teller().begin(begin);
            let (mut seen, total) = rig.carry_out_part(offer, part);
            // Those that were not told with others.
            teller().add(&std::mem::take(&mut seen.blocks), 1);
            Done::Offer(Box::new(Offered::new(seen, total)))
        }
        Work::Experiment(experiment) => {
            teller().begin(begin);
            Done::Experiment(Tried(rig.watch_part(experiment, part)))
        }
        Work::Calibrate => {
            let calibration = rig.calibrate();
            Done::Calibrated(Calibrated::new(calibration, rig.most_clients()))
        }
        Work::HangUp => {
            rig.hang_up();
            Done::HungUp
        }
    }
}

/// Tells blocks as they are complete.
struct Teller {
    trial: u64,
    /// Blocks of it that were told.
    told: usize,
    quota: Quota<System>,
    voice: Arc<Voice>,
}

impl Teller {
    fn new(voice: &Arc<Voice>) -> Self {
        let quota = Quota::watch(System, std::process::id());
        Self { trial: 0, told: 0, quota, voice: Arc::clone(voice) }
    }

    /// A load begins when it is ordered to, or not at all: of one that comes too late that is said at its end.
    fn begin(&mut self, begin: &Begin<Work>) {
        (self.trial, self.told) = (begin.trial, 0);
        // What it was stopped for before is not this load's.
        let _ = self.quota.stopped();
        self.voice.tell(&Told::<(), ()>::Begun { trial: begin.trial, at: begin.at });
    }

    /// All blocks so far, of which those are told that were not yet, if there are so many of them.
    fn add(&mut self, blocks: &[Block], together: usize) {
        let new = blocks.get(self.told..).unwrap_or_default();
        if new.len() < together {
            return;
        }
        let is_another_second = self.told / SECOND != blocks.len() / SECOND;
        let doubts = is_another_second.then(|| self.quota.stopped()).flatten().into_iter().collect();
        self.told = blocks.len();
        self.voice.tell(&Told::<_, ()>::Part { trial: self.trial, part: Blocks(new.to_vec()), doubts });
    }
}

/// The hand on an offer.
struct Ending {
    enough: Arc<AtomicBool>,
    stop: Stop,
}

impl Grip for Ending {
    fn steer(&self, steer: &Steer) -> Option<String> {
        Some(format!("did not obey {:?}: the rate of an offer does not change", steer.line))
    }

    /// What is outstanding is waited for as long as the offer says, and no longer however often this is said.
    fn stop(&self) {
        self.enough.store(true, Ordering::Relaxed);
    }

    fn abort(&self) {
        self.stop.now();
    }
}
