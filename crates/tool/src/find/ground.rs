//! What offers the load: the one place where a run is joined to the load engine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use seawall_lab::find::answer::Arrivals;
use seawall_lab::find::witness::Sight;
use seawall_lab::ground::Ground;
use seawall_lab::rig::{self, Rig};
use seawall_lab::server_side::ServerSide;
use seawall_load::clock::RunClock;
use seawall_load::engine::Travel;
use seawall_load::request::Style;
use seawall_load::schedule::Spacing;
use seawall_load::supply::List;
use seawall_probe::files::System;

use super::progress::Observer;
use super::reach::Reach;

/// What is sent, and how.
#[derive(Debug)]
pub(crate) struct Kit {
    /// The requests, sent in turn again and again.
    pub(super) list: List,
    /// How they travel.
    pub(crate) travel: Travel,
    /// How they are framed.
    pub(super) style: Style,
    /// Most threads that send.
    pub(super) cpus: usize,
    /// How they are spaced.
    pub(super) arrivals: Arrivals,
    /// Of everything random.
    pub(super) seed: u64,
    /// Later is late; none: nothing is.
    pub(super) late: Option<Duration>,
    /// The target's own side.
    pub(super) side: ServerSide,
}

/// A ground, and what stops at once what happens on it.
pub(super) struct Site {
    pub(super) ground: Box<dyn Ground>,
    pub(super) stop: Arc<dyn Fn() + Send + Sync>,
    /// Who looks at the target's own side, and when an answer is late.
    pub(super) sight: Sight,
    pub(super) bound: Option<Duration>,
    /// What finds out whether there is a target at all; none where that is known.
    pub(super) reach: Option<Reach>,
}

/// The ground that a kit is for, which tells of each offer while it goes on.
///
/// # Errors
/// Nothing can be sent from here.
pub(super) fn open(kit: Kit, observer: Option<Observer>) -> anyhow::Result<Site> {
    let reach = Some(Reach::of(kit.list.requests(), &kit.travel, &kit.style)?);
    let (bound, (rig, side)) = (kit.late, rig(kit)?);
    let rig = match observer {
        Some(observer) => rig.observed(observer),
        None => rig,
    };
    let stop = rig.stop();
    let stop = Arc::new(move || stop.now());
    Ok(Site { ground: Box::new(rig), stop, sight: sight(side), bound, reach })
}

/// What sends what is in a kit, and the target's own side.
///
/// # Errors
/// The system refuses so many open files.
pub(crate) fn rig(kit: Kit) -> anyhow::Result<(Rig, ServerSide)> {
    let Kit { list, travel, style, cpus, arrivals, seed, late, side } = kit;
    let spacing = match arrivals {
        Arrivals::Even => Spacing::Even,
        Arrivals::Poisson => Spacing::Poisson(seed),
    };
    let kit = rig::Kit { list, travel, style, cpus, spin: None };
    let rig = Rig::new(kit, spacing, late).context("cannot raise the open files limit")?;
    Ok((rig, side))
}

/// A look at the target's own side, from this machine and by its clock.
pub(super) fn sight(side: ServerSide) -> Sight {
    let clock = RunClock::start();
    Sight { side, files: Box::new(System), now: Box::new(move || Duration::from_nanos(clock.now())) }
}
