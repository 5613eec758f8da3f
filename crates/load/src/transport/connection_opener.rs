//! Opens the connections that routes need.

use super::connection::PooledConnection;
use super::pool::ConnectionPool;
use super::route::{DetectedProtocol, RouteNeed};
use super::socket::ConnectError;
use super::{NetworkBackend, RequestEvent, TransportContext};
use crate::clock::Nanos;
use crate::poller::EventFlags;
use crate::request_failure_reason::{NameFault, RequestFault};

impl<N: NetworkBackend> ConnectionPool<N> {
    #[cold]
    pub(super) fn handle_opened(&mut self, index: usize, desk: &mut TransportContext<'_>) {
        let connection = &self.connections[index];
        let route = &mut self.routes[connection.route_index];
        route.opening_count -= 1;
        route.protocol =
            if connection.is_http2() { DetectedProtocol::Http2 } else { DetectedProtocol::Http1 };
        route.record_warmed(&self.limits);
        self.routes_to_check.push(connection.route_index);
        if connection.needs_drive_when_open() {
            self.mark_needs_drive(index);
        }
        self.offer_room(index, true, desk);
    }

    /// Opens connections of the listed routes before requests need them, up to `connections` per route. Any request of the route
    /// can use them. A failed attempt is not repeated. Routes of redirects and of targets that are read during the run are
    /// excluded.
    pub(crate) fn warm(&mut self, connections: usize, now: Nanos, desk: &mut TransportContext<'_>) {
        self.now = now;
        let listed: Vec<_> = self.routes.listed_routes().map(|(route, _)| route).collect();
        for route in listed {
            self.routes[route].warm(connections, &self.limits);
            self.routes_to_check.push(route);
        }
        self.open_missing(desk);
    }

    /// True if some of these connections are still being opened.
    pub(crate) fn is_warming(&self) -> bool {
        self.routes.listed_routes().any(|(_, route)| route.warming_count > 0)
    }

    /// Tries the next address of the route. After the last address, the request that has waited longest gets no connection.
    #[cold]
    pub(super) fn handle_refused(
        &mut self,
        index: usize,
        fault: RequestFault,
        desk: &mut TransportContext<'_>,
    ) {
        let PooledConnection { route_index: route, untried_address_count: alternatives, .. } =
            self.connections[index];
        self.close(index);
        match alternatives.checked_sub(1).filter(|_| matches!(fault, RequestFault::Connect(_))) {
            Some(others) if self.routes[route].wanted_connections() > 0 => {
                self.open(route, Some(others), desk);
            }
            _ => self.disappoint(route, fault),
        }
    }

    fn disappoint(&mut self, route: usize, fault: RequestFault) {
        match self.routes[route].next_waiting(true) {
            Some(key) => self.events.push(RequestEvent::NoConnection(key, fault)),
            None => self.routes[route].record_warming_failed(),
        }
    }

    /// Opens the connections that routes need.
    #[inline]
    pub(super) fn open_missing(&mut self, desk: &mut TransportContext<'_>) {
        if !self.routes_to_check.is_empty() {
            self.attend_to_all(desk);
        }
    }

    fn attend_to_all(&mut self, desk: &mut TransportContext<'_>) {
        while let Some(route) = self.routes_to_check.pop() {
            loop {
                match self.routes[route].needs(&self.limits) {
                    RouteNeed::Nothing => break,
                    RouteNeed::Connection => self.open(route, None, desk),
                    RouteNeed::Unreachable(fault) => self.disappoint(route, fault),
                    RouteNeed::Addresses if self.routes.request_lookup(route, self.now) => {}
                    RouteNeed::Addresses => self.disappoint(route, RequestFault::Resolve(NameFault::Busy)),
                }
            }
        }
    }

    /// Begins a connection. If this is not the first attempt, only `others` of the route's addresses are left to try after this
    /// one.
    pub(super) fn open(&mut self, route: usize, others: Option<usize>, desk: &mut TransportContext<'_>) {
        let opened = self.network.now();
        let (stream, connected, others) = match self.connect(route, others) {
            Ok(made) => made,
            Err(fault) => return self.disappoint(route, fault),
        };
        self.last_token_generation = self.last_token_generation.wrapping_add(1);
        let names = (self.last_token_generation, self.routes.take_connection_number());
        let mut connection = PooledConnection::new(stream, route, others, opened, names);
        connection.single_request = self.routes[route].config.single_request;
        let index = self.connections.insert(connection);
        let token = self.token(index);
        self.routes[route].connection_count += 1;
        self.routes[route].opening_count += 1;
        self.opening_tokens.push(token);
        let watched = self.connections[index].with_stream(|stream| self.network.watch(stream, token));
        if let Some(Err(fault)) = watched {
            self.handle_refused(index, fault, desk);
        } else if connected {
            self.drive_one(index, EventFlags::OUT, desk);
        }
    }

    /// Connects to the next address. Returns the stream, true if it is already connected, and the number of other addresses left
    /// to try. An address that refuses at once, such as one without a route, is skipped.
    fn connect(
        &mut self,
        route: usize,
        mut others: Option<usize>,
    ) -> Result<(N::Stream, bool, usize), RequestFault> {
        loop {
            let missing = RequestFault::Resolve(self.routes[route].addresses.lookup_fault);
            let (address, addresses) = self.routes[route].addresses.next().ok_or(missing)?;
            let left = others.unwrap_or(addresses - 1);
            let source = self.limits.source_addresses.next(address)?;
            match (self.network.connect(address, source), source) {
                (Ok((stream, connected)), _) => return Ok((stream, connected, left)),
                (Err(ConnectError::Peer(_)), _) if left > 0 => others = Some(left - 1),
                (Err(ConnectError::Peer(error)), _) => return Err(RequestFault::Connect(error.kind())),
                (Err(ConnectError::Local(error)), None) => return Err(RequestFault::Local(error.kind())),
                (Err(ConnectError::Local(error)), Some(source)) => {
                    return Err(RequestFault::SourceAddress(source, error.kind()));
                }
            }
        }
    }

    /// Gives up connections whose present step of opening takes too long; waiting requests get new ones.
    pub(crate) fn expire_attempts(&mut self, now: Nanos, desk: &mut TransportContext<'_>) {
        self.now = now;
        let mut attempts = std::mem::take(&mut self.opening_tokens);
        attempts.retain(|&token| {
            let Some(index) = self.find(token) else { return false };
            let since = self.connections[index].opening_step_started();
            let late =
                since.is_some_and(|since| now.saturating_sub(since) >= self.limits.opening_step_timeout);
            if late {
                self.routes[self.connections[index].route_index].record_warming_failed();
                self.close(index);
            }
            since.is_some() && !late
        });
        self.opening_tokens = attempts;
        self.open_missing(desk);
    }

    /// Takes the addresses that were found.
    #[inline]
    pub(crate) fn adopt_resolved(&mut self, now: Nanos, desk: &mut TransportContext<'_>) {
        self.now = now;
        while let Some(route) = self.routes.adopt_resolved(now, desk.stats) {
            self.routes_to_check.push(route);
        }
        self.open_missing(desk);
    }
}
