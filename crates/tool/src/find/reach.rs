//! Whether the first target can be reached at all: one request, before any load.
//!
//! Looks at the connection and at nothing that comes over it: a target that answers, however badly, or that is silent, is the baseline's
//! business.

use std::time::Duration;

use anyhow::{Context as _, bail};
use seawall_lab::carry::Carriage;
use seawall_load::fault::Fault;
use seawall_load::plan::{Load, Setup, Travel};
use seawall_load::request::{Origin, Request, Style};
use seawall_load::resolve::Dial;
use seawall_load::schedule::{Arrivals, Until};
use seawall_load::session::Session;
use seawall_load::supply::{List, Source};
use seawall_load::target::Weight;

/// A connection that takes longer is none that a load could be put on; a request that does is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked whether somebody wants the end of it.
const LOOK: Duration = Duration::from_millis(100);

/// What asks, with a session of its own.
pub(crate) struct Reach {
    setup: Setup,
    /// Where the connection goes if not to the target.
    by: String,
}

impl Reach {
    /// The first of the targets, as all are asked.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn of(requests: &[Request], travel: &Travel, style: &Style) -> anyhow::Result<Self> {
        let first = requests.first().context("no target")?.clone();
        let origin = first.origin.clone();
        let list = List::new(vec![(first, Weight::default())])?;
        let mut setup = Setup { style: style.clone(), ..Setup::new(Source::List(list)) };
        setup.travel = travel.clone();
        setup.travel.timeout = Some(setup.travel.timeout.map_or(PATIENCE, |timeout| timeout.min(PATIENCE)));
        let by = by_way_of(&setup.travel.dial, &origin);
        Ok(Self { setup, by })
    }

    /// Sends the request, and waits for no answer once it is to end.
    ///
    /// # Errors
    /// There is no connection, and why.
    pub(crate) fn ask(self, url: &str, is_ended: impl Fn() -> bool) -> anyhow::Result<()> {
        let mut session = Session::open(self.setup)?;
        let until = Until { hits: 1, ..Until::default() };
        let load = Load { until, by_hit: true, cadence: LOOK, ..Load::new(Arrivals::Closed, 1) };
        let mut carriage = Carriage::new(session.trial(&load, None)?, load.warm_up);
        let control = carriage.steer();
        let mut fault = None;
        carriage.watch(|interval| {
            if is_ended() {
                control.abort();
            }
            fault = interval.stats.fates.iter().find_map(|fate| fate.outcome.err()).or(fault);
        });
        drop(carriage);
        match fault.filter(|fault| is_unreachable(*fault)) {
            Some(fault) => bail!("cannot reach {url}{}: {fault}; no load was sent", self.by),
            None => Ok(()),
        }
    }
}

/// Who has to let a connection through, as far as that is not the target itself.
pub(super) fn by_way_of(dial: &Dial, origin: &Origin) -> String {
    if let Some(path) = &dial.unix_socket {
        return format!(" at {}", path.display());
    }
    let place = |(host, port): &(String, u16)| format!("{host}:{port}");
    if let Some(proxy) = dial.proxies.of(origin) {
        return format!(" through the proxy {}", place(&proxy.place));
    }
    let elsewhere = dial.connect_to.get(&(origin.host.clone(), origin.port));
    let places = elsewhere.map(|places| places.iter().map(place).collect::<Vec<_>>().join(" or "));
    places.map_or_else(String::new, |places| format!(" at {places}"))
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
