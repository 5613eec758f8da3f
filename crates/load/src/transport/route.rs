//! One route, an origin as a thread reaches it: where it leads, which of its connections have room, who waits for one, and
//! what those who wait lack.
//!
//! Decides and keeps count; opening, closing and asking for addresses are the pool's.

use std::collections::VecDeque;

use slab::Slab;

use super::Stream;
use super::connection::PooledConnection;
use super::connector_config::{ConnectionLimits, RouteConfig};
use super::socket::PeerAddress;
use crate::clock::{Nanos, SECOND, nanos};
use crate::in_flight::InFlightKey;
use crate::request::Origin;
use crate::request_fault::{NameFault, RequestFault};
use crate::resolve::{AddressLifetime, LookupResult};

/// A name without an address is asked for again after this long.
const ASK_AGAIN: Nanos = SECOND;

/// The state of the connections to one origin.
pub(crate) struct OriginRoute {
    pub(crate) origin: Origin,
    pub(crate) config: RouteConfig,
    pub(crate) protocol: DetectedProtocol,
    pub(crate) addresses: RouteAddresses,
    /// Connections with room on them, the last used at the end.
    pub(crate) ready: Vec<usize>,
    /// Connections not yet open.
    pub(crate) opening_count: usize,
    /// All connections, those included.
    pub(crate) connection_count: usize,
    /// Connections still to be opened that no flight waits for.
    pub(crate) warming_count: usize,
    /// The time when a request last asked for the route; the maximum for routes that stay.
    pub(crate) last_used: Nanos,
    queue: VecDeque<InFlightKey>,
    /// Those for whom only a new connection will do.
    fresh: VecDeque<InFlightKey>,
}

/// The protocol that the connections of a route turned out to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetectedProtocol {
    /// The first handshake will tell; until then there is only one.
    Unknown,
    Http1,
    Http2,
}

/// The addresses of a route, and the time for which they are valid.
pub(crate) struct RouteAddresses {
    list: Vec<PeerAddress>,
    /// The reason why there is no address.
    pub(crate) lookup_fault: NameFault,
    /// The one whose turn it is.
    turn: usize,
    /// Nobody needs to be asked, ever.
    pub(crate) is_literal: bool,
    /// Answers that are awaited.
    pub(crate) pending_lookups: usize,
    /// The time of the last response.
    found: Nanos,
    /// Connections that may be opened with it.
    permits: usize,
}

/// The resources that a route needs for waiting requests.
pub(crate) enum RouteNeed {
    Nothing,
    Connection,
    /// They are to be asked for.
    Addresses,
    /// There will be no connection.
    Unreachable(RequestFault),
}

impl OriginRoute {
    /// A route without connections.
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
            ready: Vec::new(),
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
                let requests = limits.requests(self.config.single_request);
                let each = usize::try_from(requests).unwrap_or(usize::MAX).min(self.config.max_streams);
                self.waiting_requests().div_ceil(each.max(1)) + self.warming_count
            }
            // The first tells what the others are good for.
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

    /// Since when it has carried nothing and nobody has waited for it, roughly; none of one that does, or that stays.
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

    /// The connection for the next flight: the one used last, so that few stay hot and the rest are let go by the server
    /// rather than kept warm for nobody; of HTTP/2 connections the one with the fewest streams.
    #[inline]
    pub(crate) fn best_connection<S: Stream>(
        &self,
        connections: &Slab<PooledConnection<S>>,
    ) -> Option<usize> {
        match self.protocol {
            DetectedProtocol::Http2 => {
                self.ready.iter().copied().min_by_key(|&index| connections[index].active_requests())
            }
            DetectedProtocol::Http1 | DetectedProtocol::Unknown => self.ready.last().copied(),
        }
    }

    #[inline]
    pub(crate) fn unlist(&mut self, index: usize) {
        if self.ready.last() == Some(&index) {
            self.ready.pop();
        } else {
            self.ready.retain(|&ready| ready != index);
        }
    }

    /// Wants as many connections as are lacking to so many, without a flight for them.
    pub(crate) fn warm(&mut self, connections: usize, limits: &ConnectionLimits) {
        let idle = limits.idle(self.config.single_request);
        let kept = if self.protocol == DetectedProtocol::Http2 { limits.http2_connections } else { idle };
        self.warming_count =
            connections.min(kept).min(limits.connections).saturating_sub(self.connection_count);
    }

    /// A connection that was wanted without a flight stands. Over HTTP/2 that may be enough of them.
    pub(crate) fn record_warmed(&mut self, limits: &ConnectionLimits) {
        self.warming_count = self.warming_count.saturating_sub(1);
        if self.protocol == DetectedProtocol::Http2 {
            self.warming_count =
                self.warming_count.min(limits.http2_connections.saturating_sub(self.connection_count));
        }
    }

    /// One that was wanted without a flight is not to be had.
    pub(crate) fn record_warming_failed(&mut self) {
        self.warming_count = self.warming_count.saturating_sub(1);
    }

    /// Connections that are waited for, by flights or to be warm.
    #[inline]
    pub(crate) fn wanted_connections(&self) -> usize {
        self.waiting_requests() + self.warming_count
    }

    /// Flights that wait.
    #[inline]
    pub(crate) fn waiting_requests(&self) -> usize {
        self.queue.len() + self.fresh.len()
    }

    pub(crate) fn add_waiting(&mut self, key: InFlightKey, fresh: bool) {
        if fresh { self.fresh.push_back(key) } else { self.queue.push_back(key) }
    }

    /// Lets one wait no longer.
    pub(crate) fn stop_waiting(&mut self, key: InFlightKey) {
        for queue in [&mut self.queue, &mut self.fresh] {
            if let Some(at) = queue.iter().position(|waiting| *waiting == key) {
                queue.remove(at);
            }
        }
    }

    /// Whose turn it is on a connection, which is new or is not.
    #[inline]
    pub(crate) fn next_waiting(&mut self, new: bool) -> Option<InFlightKey> {
        let fresh = if new { self.fresh.pop_front() } else { None };
        fresh.or_else(|| self.queue.pop_front())
    }
}

impl RouteAddresses {
    /// Of an origin that nobody needs to be asked about.
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

    /// As they were found before the run.
    pub(crate) fn from_lookup(found: LookupResult, lifetime: AddressLifetime) -> Self {
        let mut addresses = Self { is_literal: false, ..Self::literal(Vec::new()) };
        addresses.take(found);
        addresses.permits = if lifetime == AddressLifetime::Connection { 1 } else { usize::MAX };
        addresses
    }

    /// Of an origin that has just come up.
    pub(crate) fn unknown(lifetime: AddressLifetime) -> Self {
        let permits = if lifetime == AddressLifetime::Connection { 0 } else { usize::MAX };
        Self { is_literal: false, permits, ..Self::literal(Vec::new()) }
    }

    /// The address whose turn it is, for a connection that is about to be opened, and how many there are.
    pub(crate) fn next(&mut self) -> Option<(&PeerAddress, usize)> {
        let address = self.list.get(self.turn % self.list.len().max(1))?;
        self.turn = self.turn.wrapping_add(1);
        self.permits = self.permits.saturating_sub(1);
        Some((address, self.list.len()))
    }

    /// An answer without addresses does not replace one with.
    fn take(&mut self, found: LookupResult) {
        match found {
            Ok(list) => self.list = list,
            Err(missing) => self.lookup_fault = missing,
        }
    }

    /// Takes an answer that was asked for. If each connection is to have one of its own it is good for one, and for none if
    /// nobody waits any more.
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
