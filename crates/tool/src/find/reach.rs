//! Whether the first target can be reached at all: one request, before any load.
//!
//! Looks at the connection and at nothing that comes over it: a target that answers, however badly, or that is silent, is the baseline's
//! business.

use std::time::Duration;

use anyhow::{Context as _, bail};
use seawall_lab::carry::Carriage;
use seawall_load::fault::Fault;
use seawall_load::plan::{Load, Setup};
use seawall_load::schedule::{Arrivals, Until};
use seawall_load::session::Session;
use seawall_load::supply::{List, Source};
use seawall_load::target::Weight;

use super::ground::Kit;

/// A connection that takes longer is none that a load could be put on; a request that does is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What asks, with a session of its own.
pub(super) struct Reach(Setup);

impl Reach {
    /// The first of the targets, as all are asked.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn of(kit: &Kit) -> anyhow::Result<Self> {
        let first = kit.list.requests().first().context("no target")?.clone();
        let list = List::new(vec![(first, Weight::default())])?;
        let mut setup = Setup { style: kit.style.clone(), ..Setup::new(Source::List(list)) };
        setup.travel = kit.travel.clone();
        setup.travel.timeout = Some(setup.travel.timeout.map_or(PATIENCE, |timeout| timeout.min(PATIENCE)));
        Ok(Self(setup))
    }

    /// Sends the request.
    ///
    /// # Errors
    /// There is no connection, and why.
    pub(super) fn ask(self, url: &str) -> anyhow::Result<()> {
        let mut session = Session::open(self.0)?;
        let until = Until { hits: 1, ..Until::default() };
        let load = Load { until, by_hit: true, ..Load::new(Arrivals::Closed, 1) };
        let mut carriage = Carriage::new(session.trial(&load, None)?, load.warm_up);
        let mut fault = None;
        carriage.watch(|interval| {
            fault = interval.stats.fates.iter().find_map(|fate| fate.outcome.err()).or(fault);
        });
        drop(carriage);
        match fault.filter(|fault| is_unreachable(*fault)) {
            Some(fault) => bail!("cannot reach {url}: {fault}; no load was sent"),
            None => Ok(()),
        }
    }
}

/// Whether nothing stands on which a request could be sent.
fn is_unreachable(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::Resolve(_)
            | Fault::Connect(_)
            | Fault::Local(_)
            | Fault::Source(..)
            | Fault::Tls(_)
            | Fault::Proxy(_)
            | Fault::Unconnected
    )
}
