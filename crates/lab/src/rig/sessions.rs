//! The requests and the transport of a rig, and the sessions made of them: the plain session stays warm for a whole search, and the session of a
//! variation lives as long as its experiment.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use seawall_cause::experiment::Variation;
use seawall_load::plan::{SessionSetup, TransportOptions};
use seawall_load::request::{Origin, PreparedRequest, RequestBuildError, RequestFraming};
use seawall_load::request_source::{RequestList, RequestSource};
use seawall_load::session::{LoadSession, TrialStartError};

use crate::generator_resources::{self, ConnectionPlan, RESERVED_DESCRIPTORS};

/// The requests of a session and their transport.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// The requests, sent in turn again and again.
    pub request_list: RequestList,
    /// The transport options of the requests.
    pub transport: TransportOptions,
    /// The framing of the requests, which is that of the list.
    pub framing: RequestFraming,
    /// Most threads that send.
    pub max_sender_threads: usize,
    /// Threads busy-poll waits shorter than this. `None`: as long as the machine allows.
    pub max_busy_poll: Option<Duration>,
}

/// Sessions that stand at the same time at most: the plain one, one with more threads, one of a variation.
pub(super) const MAX_SESSIONS: usize = 3;

/// The reason why a session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The experiment is impossible with this target or from this machine.
    #[error("{0}")]
    Impossible(String),
    /// The system refuses.
    #[error(transparent)]
    Start(#[from] TrialStartError),
}

impl From<RequestBuildError> for SessionError {
    fn from(error: RequestBuildError) -> Self {
        Self::Impossible(error.to_string())
    }
}

impl SessionConfig {
    /// True if any request uses TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.requests().iter().any(|request| request.origin().tls)
    }

    /// True if any target has a host name that needs a lookup.
    #[must_use]
    pub fn has_host_name(&self) -> bool {
        self.transport.dial.unix_socket.is_none()
            && self.requests().iter().any(|request| is_name(request.origin()))
    }

    fn requests(&self) -> &[PreparedRequest] {
        self.request_list.requests()
    }

    fn origins(&self) -> BTreeSet<&Origin> {
        self.requests().iter().map(|request| request.origin()).collect()
    }

    /// Limits connections, so that there are descriptors for them whatever the sessions that rest keep idle; returns how many that
    /// are. Where a session that does not rest finds fewer, each connection that it lacks is a fault of this machine's.
    pub(super) fn limit_connections(&mut self, files: u64) -> usize {
        let room = usize::try_from(files.saturating_sub(RESERVED_DESCRIPTORS)).unwrap_or(usize::MAX);
        let each = room / self.origins().len().max(1);
        self.transport.max_connections = self.transport.max_connections.min(each.max(1));
        self.transport.max_idle_connections =
            self.transport.max_idle_connections.min((each / MAX_SESSIONS).max(1));
        room
    }

    /// True if a connection can carry several requests at once.
    pub(super) fn multiplexes(&self) -> bool {
        ConnectionPlan::of(&RequestSource::List(self.request_list.clone()), &self.transport, true)
            .is_multiplexed()
    }

    /// A session, which has no connection yet.
    pub(super) fn open(self, threads: usize) -> Result<LoadSession, SessionError> {
        let busy_poll = self.max_busy_poll.unwrap_or_else(|| generator_resources::max_busy_poll(threads));
        let Self { request_list: list, transport: travel, framing: style, .. } = self;
        Ok(LoadSession::open(SessionSetup {
            source: RequestSource::List(list),
            transport: travel,
            framing: style,
            threads,
            busy_poll,
        })?)
    }

    /// The same with what an experiment has different, held connections aside.
    fn with_variation(mut self, variation: &Variation) -> Result<Self, SessionError> {
        self.reframe(variation)?;
        if let Some(connections) = variation.connections {
            self.transport.max_connections = self.transport.max_connections.min(connections.max(1));
        }
        if variation.timeout.is_some() {
            self.transport.timeout = variation.timeout;
        }
        if variation.another_source {
            self.transport.source_addresses = vec![self.another_source()?];
        }
        if variation.skip_dns {
            self.name_addresses()?;
        }
        Ok(self)
    }

    fn reframe(&mut self, variation: &Variation) -> Result<(), SessionError> {
        if variation.uses_head_method && self.requests().iter().any(|request| request.method() != "GET") {
            return Err(SessionError::Impossible(
                "the HEAD experiment needs targets that all use GET".into(),
            ));
        }
        if let Some(keep_alive) = variation.keep_alive {
            (self.transport.keep_alive, self.framing.close) = (keep_alive, !keep_alive);
        }
        if variation.uses_head_method || variation.keep_alive.is_some() {
            self.request_list =
                self.request_list.reframed(&self.framing, variation.uses_head_method.then_some("HEAD"))?;
        }
        Ok(())
    }

    /// An address of this machine that connections do not come from already. Of others than those on loopback nobody is asked: an
    /// address that cannot be reached from the target would look like a target that hangs.
    fn another_source(&self) -> Result<IpAddr, SessionError> {
        let addresses = self.addresses()?;
        let on_loopback = |address: &SocketAddr| matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback());
        if addresses.is_empty() || !addresses.iter().all(on_loopback) {
            let why = "a second source address is known only for targets on this machine's IPv4 loopback";
            return Err(SessionError::Impossible(why.into()));
        }
        let used = |ip: &IpAddr| self.transport.source_addresses.contains(ip);
        let mut others = (2..=254).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
        let other = others.find(|ip| !used(ip));
        other.ok_or_else(|| {
            SessionError::Impossible("all loopback addresses are already in use as source addresses".into())
        })
    }

    /// Connects each name to the addresses that it has now.
    fn name_addresses(&mut self) -> Result<(), SessionError> {
        if !self.has_host_name() {
            return Err(SessionError::Impossible("the target is an IP address, not a name".into()));
        }
        let named: Vec<_> = self.origins().into_iter().filter(|origin| is_name(origin)).cloned().collect();
        for origin in named {
            let addresses = self.addresses_of(&origin)?;
            let places = addresses.iter().map(|address| (address.ip().to_string(), address.port())).collect();
            self.transport.dial.connect_to.insert((origin.host, origin.port), places);
        }
        Ok(())
    }

    /// Returns the addresses of all targets.
    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>, SessionError> {
        let all: Result<Vec<_>, _> =
            self.origins().into_iter().map(|origin| self.addresses_of(origin)).collect();
        let all: Vec<_> = all?.into_iter().flatten().collect();
        if all.is_empty() {
            return Err(SessionError::Impossible("the target is a Unix socket".into()));
        }
        Ok(all)
    }

    fn addresses_of(&self, origin: &Origin) -> Result<Vec<SocketAddr>, SessionError> {
        let found = self.transport.dial.addresses(origin);
        found.map_err(|_| SessionError::Impossible(format!("found no address for {origin}")))
    }
}

fn is_name(origin: &Origin) -> bool {
    origin.host.parse::<IpAddr>().is_err()
}

/// The sessions of a kit.
pub(super) struct SessionPool {
    kit: SessionConfig,
    /// By their threads.
    plain: Vec<(usize, LoadSession)>,
    varied: Option<LoadSession>,
}

impl SessionPool {
    pub(super) fn new(kit: SessionConfig) -> Self {
        Self { kit, plain: Vec::new(), varied: None }
    }

    pub(super) fn config(&self) -> &SessionConfig {
        &self.kit
    }

    /// The plain one for so many requests a second.
    pub(super) fn plain_session(&mut self, rate: f64) -> Result<&mut LoadSession, SessionError> {
        let threads = generator_resources::sender_threads(rate, self.kit.max_sender_threads);
        let known = self.plain.iter().position(|(of, _)| *of == threads);
        let index = match known {
            Some(index) => index,
            None => {
                // One thread stays warm all along, one other number of them as long as it is asked for.
                self.plain.retain(|(of, _)| *of == 1);
                self.plain.push((threads, self.kit.clone().open(threads)?));
                self.plain.len() - 1
            }
        };
        Ok(&mut self.plain[index].1)
    }

    /// One for an experiment: the plain one, if nothing is different.
    pub(super) fn varied_session(
        &mut self,
        variation: &Variation,
        rate: f64,
    ) -> Result<&mut LoadSession, SessionError> {
        if (Variation { held_idle_connections: 0, ..variation.clone() }) == Variation::NONE {
            return self.plain_session(rate);
        }
        // A target that serves one connection at a time would wait for the next request on an idle connection of the plain session.
        self.close_all();
        let kit = self.kit.clone().with_variation(variation)?;
        let threads = generator_resources::sender_threads(rate, kit.max_sender_threads);
        Ok(self.varied.insert(kit.open(threads)?))
    }

    /// Closes what was opened for an experiment.
    pub(super) fn close_varied_session(&mut self) {
        self.varied = None;
    }

    /// Closes everything, and begins anew.
    pub(super) fn close_all(&mut self) {
        self.plain.clear();
        self.varied = None;
    }
}
