//! Whether the first target can be reached at all: one request, before any load.
//!
//! Looks at the connection and at nothing that comes over it: a target that answers, however badly, or that is silent, is the baseline's
//! business.

use std::time::Duration;

use anyhow::{Context as _, bail};
use seawall_lab::running_trial::RunningTrial;
use seawall_load::plan::{LoadSpec, SessionSetup, TransportOptions};
use seawall_load::request::{Origin, PreparedRequest, RequestFraming};
use seawall_load::request_fault::RequestFault;
use seawall_load::request_source::{RequestList, RequestSource};
use seawall_load::resolve::DialOptions;
use seawall_load::schedule::{ArrivalModel, StopCondition};
use seawall_load::session::LoadSession;
use seawall_load::target::Weight;

/// A connection that takes longer is none that a load could be put on; a request that does is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked whether somebody wants the end of it.
const LOOK: Duration = Duration::from_millis(100);

/// What asks, with a session of its own.
pub(crate) struct ReachCheck {
    setup: SessionSetup,
    /// Where the connection goes if not to the target.
    by: String,
}

impl ReachCheck {
    /// The first of the targets, as all are asked.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn for_first_target(
        requests: &[PreparedRequest],
        travel: &TransportOptions,
        style: &RequestFraming,
    ) -> anyhow::Result<Self> {
        let first = requests.first().context("no target")?.clone();
        let origin = first.origin().clone();
        let list = RequestList::new(vec![(first, Weight::default())])?;
        let mut setup =
            SessionSetup { framing: style.clone(), ..SessionSetup::new(RequestSource::List(list)) };
        setup.transport = travel.clone();
        setup.transport.timeout =
            Some(setup.transport.timeout.map_or(PATIENCE, |timeout| timeout.min(PATIENCE)));
        let by = describe_route(&setup.transport.dial, &origin);
        Ok(Self { setup, by })
    }

    /// Sends the request, and waits for no answer once it is to end.
    ///
    /// # Errors
    /// There is no connection, and why.
    pub(crate) fn run(self, url: &str, is_ended: impl Fn() -> bool) -> anyhow::Result<()> {
        let mut session = LoadSession::open(self.setup)?;
        let until = StopCondition { hits: 1, ..StopCondition::default() };
        let load = LoadSpec {
            until,
            per_request_outcomes: true,
            interval: LOOK,
            ..LoadSpec::new(ArrivalModel::Closed, 1)
        };
        let mut carriage = RunningTrial::new(session.start_trial(&load, None)?, load.warm_up);
        let control = carriage.control();
        let mut fault = None;
        carriage.run_to_end(|interval| {
            if is_ended() {
                control.abort();
            }
            fault = interval.stats.completed_requests.iter().find_map(|fate| fate.outcome.err()).or(fault);
        });
        drop(carriage);
        match fault.filter(|fault| is_unreachable(*fault)) {
            Some(fault) => bail!("cannot reach {url}{}: {fault}; no load was sent", self.by),
            None => Ok(()),
        }
    }
}

/// Who has to let a connection through, as far as that is not the target itself.
pub(super) fn describe_route(dial: &DialOptions, origin: &Origin) -> String {
    if let Some(path) = &dial.unix_socket {
        return format!(" at {}", path.display());
    }
    let place = |(host, port): &(String, u16)| format!("{host}:{port}");
    if let Some(proxy) = dial.proxies.for_origin(origin) {
        return format!(" through the proxy {}", place(&proxy.address));
    }
    let elsewhere = dial.connect_to.get(&(origin.host.clone(), origin.port));
    let places = elsewhere.map(|places| places.iter().map(place).collect::<Vec<_>>().join(" or "));
    places.map_or_else(String::new, |places| format!(" at {places}"))
}

/// Whether nothing stands on which a request could be sent.
fn is_unreachable(fault: RequestFault) -> bool {
    matches!(
        fault,
        RequestFault::Resolve(_)
            | RequestFault::Connect(_)
            | RequestFault::Local(_)
            | RequestFault::SourceAddress(..)
            | RequestFault::Tls(_)
            | RequestFault::Proxy(_)
            | RequestFault::NoConnection
    )
}
