//! The check that the first target is reachable: one request, before any load.
//!
//! It checks the connection, and nothing that comes over it. The baseline judges a target that responds badly or not at all.

use std::time::Duration;

use anyhow::{Context as _, bail};
use seawall_lab::running_trial::RunningTrial;
use seawall_load::load_session::LoadSession;
use seawall_load::origin_resolution::DialOptions;
use seawall_load::plan::{LoadSpec, SessionSetup, TransportOptions};
use seawall_load::request::{Origin, PreparedRequest, RequestFraming};
use seawall_load::request_failure_reason::RequestFault;
use seawall_load::request_source::{RequestList, RequestSource};
use seawall_load::schedule::{ArrivalModel, StopCondition};
use seawall_load::target::Weight;

/// A connection that takes longer is none that a load could be put on; a request that does is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The interval at which the check looks whether it should stop.
const LOOK: Duration = Duration::from_millis(100);

/// A check of one target, with a session of its own.
pub(crate) struct ReachCheck {
    setup: SessionSetup,
    /// The route of the connection if it does not go to the target itself.
    by: String,
}

impl ReachCheck {
    /// Makes a check of the first target, with the transport of all requests.
    ///
    /// # Errors
    /// There is no target.
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
        let until = StopCondition { max_requests: 1, ..StopCondition::default() };
        let load = LoadSpec {
            stop_condition: until,
            report_each_request: true,
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

/// Describes the route of a connection (Unix socket, proxy, other address) if it is not the target itself.
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

/// Returns true if no connection was made over which a request could be sent.
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
