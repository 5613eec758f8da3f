//! One route, which is an origin as a thread reaches it: its addresses, its connections with room, its waiting requests, and the
//! resources that they need.
//!
//! A route decides and counts; the pool opens and closes connections and looks up addresses.

use std::collections::VecDeque;

use slab::Slab;

use super::Stream;
use super::connection::PooledConnection;
use super::connector_config::{ConnectionLimits, RouteConfig};
use super::socket::PeerAddress;
use crate::clock::{Nanos, SECOND, nanos};
use crate::in_flight::InFlightKey;
use crate::origin_resolution::{AddressLifetime, LookupResult};
use crate::request::Origin;
use crate::request_failure_reason::{NameFault, RequestFault};

/// The time after which a name without an address is looked up again.
const ASK_AGAIN: Nanos = SECOND;

/// The state of the connections to one origin.
pub(crate) struct OriginRoute {
    pub(crate) origin: Origin,
    pub(crate) config: RouteConfig,
    pub(crate) protocol: DetectedProtocol,
    pub(crate) addresses: RouteAddresses,
    /// The connections with room, the last used one at the end.
    pub(crate) ready_connections: Vec<usize>,
    /// The number of connections that are not open yet.
    pub(crate) opening_count: usize,
    /// The number of connections, open or being opened.
    pub(crate) connection_count: usize,
    /// The number of connections still to be opened that no request waits for.
    pub(crate) warming_count: usize,
    /// The time when a request last asked for the route; the maximum for routes that stay.
    pub(crate) last_used: Nanos,
    queue: VecDeque<InFlightKey>,
    /// Requests that wait for a new connection.
    fresh: VecDeque<InFlightKey>,
}

/// The protocol that the connections of a route turned out to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetectedProtocol {
    /// The first handshake will tell; until then the route opens only one connection.
    Unknown,
    Http1,
    Http2,
}

/// The addresses of a route, and the time for which they are valid.
pub(crate) struct RouteAddresses {
    list: Vec<PeerAddress>,
    /// The reason why there is no address.
    pub(crate) lookup_fault: NameFault,
    /// The number of the next address to use.
    turn: usize,
    /// True if the addresses never need a lookup.
    pub(crate) is_literal: bool,
    /// The number of lookups without a response.
    pub(crate) pending_lookups: usize,
    /// The time of the last response.
    found: Nanos,
    /// The number of connections that may be opened with these addresses.
    permits: usize,
}

/// The resources that a route needs for waiting requests.
pub(crate) enum RouteNeed {
    Nothing,
    Connection,
    /// The addresses must be looked up.
    Addresses,
    /// There is no connection for this reason.
    Unreachable(RequestFault),
}

impl OriginRoute {
    /// Makes a route without connections.
    pub(crate) fn new(
        origin: Origin,
        path: RouteConfig,
        speaks: DetectedProtocol,
        addresses: RouteAddresses,
    ) -> Self {
        Self {
            origin,
            config: path,
            protocol: speaks,
            addresses,
            ready_connections: Vec::new(),
            opening_count: 0,
            connection_count: 0,
            warming_count: 0,
            last_used: 0,
            queue: VecDeque::new(),
            fresh: VecDeque::new(),
        }
    }

    /// Returns the resources that waiting requests or the warm-up need.
    #[inline]
    pub(crate) fn needs(&self, limits: &ConnectionLimits) -> RouteNeed {
        let wanted = match self.protocol {
            DetectedProtocol::Http1 => self.wanted_connections(),
            DetectedProtocol::Http2 => {
                let requests = limits.max_requests_for(self.config.single_request);
                let each = usize::try_from(requests).unwrap_or(usize::MAX).min(self.config.max_streams);
                self.waiting_requests().div_ceil(each.max(1)) + self.warming_count
            }
            // The first connection shows the protocol, which decides how many others are needed.
            DetectedProtocol::Unknown => self.wanted_connections().min(1),
        };
        let lacking = wanted
            .saturating_sub(self.opening_count)
            .min(limits.connections.saturating_sub(self.connection_count));
        let RouteAddresses { list, pending_lookups: asked, permits, lookup_fault: missing, .. } =
            &self.addresses;
        match asked {
            _ if lacking == 0 => RouteNeed::Nothing,
            0 if list.is_empty() => RouteNeed::Unreachable(RequestFault::Resolve(*missing)),
            _ if !list.is_empty() && *permits > 0 => RouteNeed::Connection,
            asked if *permits == 0 && *asked < lacking => RouteNeed::Addresses,
            _ => RouteNeed::Nothing,
        }
    }

    /// Returns roughly the time since which the route has had no connections and no waiting requests; `None` if it has any, or is
    /// permanent.
    pub(crate) fn unused_since(&self) -> Option<Nanos> {
        let bare =
            self.connection_count == 0 && self.waiting_requests() == 0 && self.addresses.pending_lookups == 0;
        (bare && !self.is_permanent()).then_some(self.last_used)
    }

    /// True if a listed request uses the route.
    pub(crate) fn is_permanent(&self) -> bool {
        self.last_used == Nanos::MAX
    }

    /// True if requests should use a further HTTP/2 connection, although there is a connection.
    #[inline]
    pub(crate) fn may_spread(&self, limits: &ConnectionLimits) -> bool {
        self.protocol == DetectedProtocol::Http2
            && self.connection_count > 0
            && self.connection_count < limits.http2_connections.min(limits.connections)
            && self.addresses.permits > 0
    }

    /// Returns the connection for the next request. For HTTP/1.1 that is the one used last, so that few connections stay in use
    /// and the server closes the others. For HTTP/2 it is the one with the fewest streams.
    #[inline]
    pub(crate) fn best_connection<S: Stream>(
        &self,
        connections: &Slab<PooledConnection<S>>,
    ) -> Option<usize> {
        match self.protocol {
            DetectedProtocol::Http2 => self
                .ready_connections
                .iter()
                .copied()
                .min_by_key(|&index| connections[index].active_requests()),
            DetectedProtocol::Http1 | DetectedProtocol::Unknown => self.ready_connections.last().copied(),
        }
    }

    #[inline]
    pub(crate) fn unlist(&mut self, index: usize) {
        if self.ready_connections.last() == Some(&index) {
            self.ready_connections.pop();
        } else {
            self.ready_connections.retain(|&ready| ready != index);
        }
    }

    /// Requests the opening of further connections, up to `connections`, without a request for them.
    pub(crate) fn warm(&mut self, connections: usize, limits: &ConnectionLimits) {
        let idle = limits.max_idle_for(self.config.single_request);
        let kept = if self.protocol == DetectedProtocol::Http2 { limits.http2_connections } else { idle };
        self.warming_count =
            connections.min(kept).min(limits.connections).saturating_sub(self.connection_count);
    }

    /// Counts an open connection for the warm-up. Over HTTP/2, the number of wanted connections may shrink.
    pub(crate) fn record_warmed(&mut self, limits: &ConnectionLimits) {
        self.warming_count = self.warming_count.saturating_sub(1);
        if self.protocol == DetectedProtocol::Http2 {
            self.warming_count =
                self.warming_count.min(limits.http2_connections.saturating_sub(self.connection_count));
        }
    }

    /// Counts a failed connection for the warm-up.
    pub(crate) fn record_warming_failed(&mut self) {
        self.warming_count = self.warming_count.saturating_sub(1);
    }

    /// Returns the number of connections that requests or the warm-up wait for.
    #[inline]
    pub(crate) fn wanted_connections(&self) -> usize {
        self.waiting_requests() + self.warming_count
    }

    /// Returns the number of waiting requests.
    #[inline]
    pub(crate) fn waiting_requests(&self) -> usize {
        self.queue.len() + self.fresh.len()
    }

    pub(crate) fn add_waiting(&mut self, key: InFlightKey, fresh: bool) {
        if fresh { self.fresh.push_back(key) } else { self.queue.push_back(key) }
    }

    /// Removes a waiting request.
    pub(crate) fn stop_waiting(&mut self, key: InFlightKey) {
        for queue in [&mut self.queue, &mut self.fresh] {
            if let Some(at) = queue.iter().position(|waiting| *waiting == key) {
                queue.remove(at);
            }
        }
    }

    /// Returns the next waiting request for a connection, which is `new` or not.
    #[inline]
    pub(crate) fn next_waiting(&mut self, new: bool) -> Option<InFlightKey> {
        let fresh = if new { self.fresh.pop_front() } else { None };
        fresh.or_else(|| self.queue.pop_front())
    }
}

impl RouteAddresses {
    /// Makes the addresses of an origin that needs no lookup.
    pub(crate) fn literal(list: Vec<PeerAddress>) -> Self {
        let missing = NameFault::System;
        Self {
            list,
            lookup_fault: missing,
            turn: 0,
            is_literal: true,
            pending_lookups: 0,
            found: 0,
            permits: usize::MAX,
        }
    }

    /// Makes addresses of a lookup before the run.
    pub(crate) fn from_lookup(found: LookupResult, lifetime: AddressLifetime) -> Self {
        let mut addresses = Self { is_literal: false, ..Self::literal(Vec::new()) };
        addresses.take(found);
        addresses.permits = if lifetime == AddressLifetime::Connection { 1 } else { usize::MAX };
        addresses
    }

    /// Makes the empty addresses of an origin that has just appeared.
    pub(crate) fn unknown(lifetime: AddressLifetime) -> Self {
        let permits = if lifetime == AddressLifetime::Connection { 0 } else { usize::MAX };
        Self { is_literal: false, permits, ..Self::literal(Vec::new()) }
    }

    /// Returns the next address to connect to, and the number of addresses.
    pub(crate) fn next(&mut self) -> Option<(&PeerAddress, usize)> {
        let address = self.list.get(self.turn % self.list.len().max(1))?;
        self.turn = self.turn.wrapping_add(1);
        self.permits = self.permits.saturating_sub(1);
        Some((address, self.list.len()))
    }

    /// Takes the result of a lookup. A result without addresses does not replace addresses.
    fn take(&mut self, found: LookupResult) {
        match found {
            Ok(list) => self.list = list,
            Err(missing) => self.lookup_fault = missing,
        }
    }

    /// Takes the result of a lookup during the run. If each connection needs a lookup of its own, the result permits one
    /// connection, or none if no request waits any more.
    pub(crate) fn adopt(
        &mut self,
        found: LookupResult,
        now: Nanos,
        waiting: usize,
        lifetime: AddressLifetime,
    ) {
        self.take(found);
        self.found = now;
        self.pending_lookups = self.pending_lookups.saturating_sub(1);
        self.permits = match lifetime {
            AddressLifetime::Connection => self.permits.saturating_add(1).min(waiting),
            AddressLifetime::Run | AddressLifetime::For(_) => usize::MAX,
        };
    }

    /// True if the addresses must be looked up again.
    #[inline]
    pub(crate) fn are_old(&self, now: Nanos, lifetime: AddressLifetime) -> bool {
        let after = match lifetime {
            _ if self.is_literal || self.pending_lookups > 0 => return false,
            _ if self.list.is_empty() => ASK_AGAIN,
            AddressLifetime::For(span) => nanos(span),
            AddressLifetime::Run | AddressLifetime::Connection => return false,
        };
        now.saturating_sub(self.found) >= after
    }
}
