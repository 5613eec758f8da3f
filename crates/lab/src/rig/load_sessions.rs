//! The sessions of a setup: the plain session stays warm for a whole search, and the session of a variation lives as long as its
//! experiment.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use seawall_cause::experiment::Variation;
use seawall_load::load_session::{LoadSession, TrialStartError};
use seawall_load::plan::{SessionSetup, TransportOptions};
use seawall_load::request::{Origin, PreparedRequest, RequestBuildError, RequestFraming};
use seawall_load::request_source::{RequestList, RequestSource};

use crate::generator_resources::{self, HostsAndStreams, RESERVED_DESCRIPTORS};

/// The requests of a session and their transport.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// The requests, sent in turn again and again.
    pub request_list: RequestList,
    /// The transport options of the requests.
    pub transport: TransportOptions,
    /// The framing of the requests, which is that of the list.
    pub request_framing: RequestFraming,
    /// The highest number of sending threads.
    pub max_sender_threads: usize,
    /// The longest wait that threads busy-poll. `None`: as long as the machine allows.
    pub max_busy_poll: Option<Duration>,
}

/// The most sessions that are open at the same time: the plain one, one with more threads, and one of a variation.
pub(super) const MAX_SESSIONS: usize = 3;

/// The reason why a session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The experiment is impossible with this target or from this machine.
    #[error("{0}")]
    Impossible(String),
    /// The system refuses to start a session or a trial.
    #[error(transparent)]
    Start(#[from] TrialStartError),
}

impl From<RequestBuildError> for SessionError {
    fn from(error: RequestBuildError) -> Self {
        Self::Impossible(error.to_string())
    }
}

impl SessionConfig {
    /// Returns true if any request uses TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.requests().iter().any(|request| request.origin().tls)
    }

    /// Returns true if any target has a host name that needs a lookup.
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

    /// Limits the connections so that there are descriptors for them, whatever idle sessions keep, and returns the limit for all
    /// targets. If an active session finds fewer descriptors, each missing connection is a fault of this machine.
    pub(super) fn limit_connections(&mut self, files: u64) -> usize {
        let room = usize::try_from(files.saturating_sub(RESERVED_DESCRIPTORS)).unwrap_or(usize::MAX);
        let each = room / self.origins().len().max(1);
        self.transport.max_connections = self.transport.max_connections.min(each.max(1));
        self.transport.max_idle_connections =
            self.transport.max_idle_connections.min((each / MAX_SESSIONS).max(1));
        room
    }

    /// Returns true if a connection can carry several requests at once.
    pub(super) fn multiplexes(&self) -> bool {
        HostsAndStreams::of(&RequestSource::List(self.request_list.clone()), &self.transport, true)
            .is_multiplexed()
    }

    /// Opens a session, which has no connection yet.
    pub(super) fn open(self, threads: usize) -> Result<LoadSession, SessionError> {
        let busy_poll = self.max_busy_poll.unwrap_or_else(|| generator_resources::max_busy_poll(threads));
        let Self { request_list: list, transport: travel, request_framing: style, .. } = self;
        Ok(LoadSession::open(SessionSetup {
            source: RequestSource::List(list),
            transport: travel,
            framing: style,
            max_threads: threads,
            busy_poll_max_wait: busy_poll,
        })?)
    }

    /// Returns the setup with the variation of an experiment, except its idle connections.
    fn with_variation(mut self, variation: &Variation) -> Result<Self, SessionError> {
        self.reframe(variation)?;
        if let Some(connections) = variation.max_connections {
            self.transport.max_connections = self.transport.max_connections.min(connections.max(1));
        }
        if variation.timeout.is_some() {
            self.transport.timeout = variation.timeout;
        }
        if variation.uses_another_source {
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
            (self.transport.keep_alive, self.request_framing.close) = (keep_alive, !keep_alive);
        }
        if variation.uses_head_method || variation.keep_alive.is_some() {
            self.request_list = self
                .request_list
                .reframed(&self.request_framing, variation.uses_head_method.then_some("HEAD"))?;
        }
        Ok(())
    }

    /// Returns an unused source address of this machine. Only loopback addresses are possible: if a remote target cannot reach an
    /// address, it looks like a target that hangs.
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

    /// Pins each name to its current addresses.
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
        let found = self.transport.dial.resolve_tcp_addresses(origin);
        found.map_err(|_| SessionError::Impossible(format!("found no address for {origin}")))
    }
}

fn is_name(origin: &Origin) -> bool {
    origin.host.parse::<IpAddr>().is_err()
}

/// The sessions of a setup.
pub(super) struct SessionPool {
    kit: SessionConfig,
    /// The plain sessions by their number of threads.
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

    /// Returns the plain session for this many requests per second.
    pub(super) fn unvaried_session(&mut self, rate: f64) -> Result<&mut LoadSession, SessionError> {
        let threads = generator_resources::sender_threads(rate, self.kit.max_sender_threads);
        let known = self.plain.iter().position(|(of, _)| *of == threads);
        let index = match known {
            Some(index) => index,
            None => {
                // The session with one thread stays warm. A session with another number of threads stays as long as that number
                // is needed.
                self.plain.retain(|(of, _)| *of == 1);
                self.plain.push((threads, self.kit.clone().open(threads)?));
                self.plain.len() - 1
            }
        };
        Ok(&mut self.plain[index].1)
    }

    /// Returns the session for an experiment: the plain one if nothing differs.
    pub(super) fn varied_session(
        &mut self,
        variation: &Variation,
        rate: f64,
    ) -> Result<&mut LoadSession, SessionError> {
        if (Variation { held_idle_connections: 0, ..variation.clone() }) == Variation::NONE {
            return self.unvaried_session(rate);
        }
        // A target that serves one connection at a time would wait for the next request on an idle connection of the plain session.
        self.close_all();
        let kit = self.kit.clone().with_variation(variation)?;
        let threads = generator_resources::sender_threads(rate, kit.max_sender_threads);
        Ok(self.varied.insert(kit.open(threads)?))
    }

    /// Closes the session of an experiment.
    pub(super) fn close_varied_session(&mut self) {
        self.varied = None;
    }

    /// Closes all sessions; the next load opens new ones.
    pub(super) fn close_all(&mut self) {
        self.plain.clear();
        self.varied = None;
    }
}
