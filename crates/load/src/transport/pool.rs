//! The connections of one thread: which have room, which may be opened, and which requests wait.
//!
//! Connections are kept per [`OriginRoute`](super::route::OriginRoute). The route opens connections, not a single request: as
//! many as requests wait, up to the route's share of the limit. The request that has waited longest gets the connection that is
//! free first. The send loop handles failures of requests.

use slab::Slab;

use super::connection::PooledConnection;
use super::connector_config::ConnectionLimits;
use super::pending_events::PendingEvents;
use super::response_parser::CaptureOptions;
use super::route::DetectedProtocol;
use super::route_table::RouteTable;
use super::{
    ConnectionEvent, ConnectionTurn, NetworkBackend, ReadBudget, RequestEvent, RequestLocation,
    TransportContext,
};
use crate::clock::Nanos;
use crate::in_flight::InFlightKey;
use crate::poller::EventFlags;

/// The size of a read. It is larger than most responses, so that one read shows that the socket is drained.
const SCRATCH: usize = 64 * 1024;

/// The connections of one thread.
pub(crate) struct ConnectionPool<N: NetworkBackend> {
    pub(crate) network: N,
    pub(super) connections: Slab<PooledConnection<N::Stream>>,
    pub(super) routes: RouteTable,
    pub(super) limits: ConnectionLimits,
    /// The parts of responses to keep, as set by the trial.
    pub(crate) capture: CaptureOptions,
    scratch: Box<[u8]>,
    pub(super) last_token_generation: u32,
    /// The time that the loop set last.
    pub(super) now: Nanos,
    /// The events of requests in flight.
    pub(super) events: PendingEvents<RequestEvent>,
    /// The tokens of connections that must be driven without an event.
    dirty: Vec<u64>,
    /// The routes that may need a connection.
    pub(super) routes_to_check: Vec<usize>,
    /// The tokens of connections that are being opened, and of some that are open already.
    pub(super) opening_tokens: Vec<u64>,
}

impl<N: NetworkBackend> ConnectionPool<N> {
    pub(crate) fn new(network: N, routes: RouteTable, limits: ConnectionLimits) -> Self {
        Self {
            network,
            connections: Slab::new(),
            routes,
            limits,
            capture: CaptureOptions::default(),
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            last_token_generation: 0,
            now: 0,
            events: PendingEvents::new(),
            dirty: Vec::new(),
            routes_to_check: Vec::new(),
            opening_tokens: Vec::new(),
        }
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Returns the number of open connections.
    pub(crate) fn established_count(&self) -> usize {
        self.connections.iter().filter(|(_, connection)| connection.opening_step_started().is_none()).count()
    }

    /// Returns the next event of a request in flight, in the order of the events.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<RequestEvent> {
        self.events.next()
    }

    /// Puts a request on a connection with room, or makes it wait for one.
    #[inline]
    pub(crate) fn assign(&mut self, key: InFlightKey, now: Nanos, desk: &mut TransportContext<'_>) {
        self.now = now;
        let flight = desk.flights.get_mut(key);
        let route = self.routes.route_for_request(&flight.request, desk.requests, now);
        if self.routes[route].may_spread(&self.limits) {
            self.open(route, None, desk);
        }
        match self.connection_with_room(route) {
            Some(index) => {
                let change = self.begin(index, key, now, desk);
                self.apply_event(index, change, desk);
            }
            None => self.wait(route, key, false, desk),
        }
        self.open_missing(desk);
    }

    /// Makes a request wait for a new connection, even if others are idle.
    pub(crate) fn assign_to_new_connection(
        &mut self,
        key: InFlightKey,
        now: Nanos,
        desk: &mut TransportContext<'_>,
    ) {
        self.now = now;
        let flight = desk.flights.get_mut(key);
        let route = self.routes.route_for_request(&flight.request, desk.requests, now);
        if self.routes[route].protocol == DetectedProtocol::Http2 {
            return self.assign(key, now, desk);
        }
        self.wait(route, key, true, desk);
        self.open_missing(desk);
    }

    fn wait(&mut self, route: usize, key: InFlightKey, fresh: bool, desk: &mut TransportContext<'_>) {
        desk.flights.get_mut(key).transport_location = RequestLocation::Waiting(route);
        self.routes[route].add_waiting(key, fresh);
        self.routes_to_check.push(route);
    }

    #[inline]
    fn begin(
        &mut self,
        index: usize,
        key: InFlightKey,
        now: Nanos,
        desk: &mut TransportContext<'_>,
    ) -> Option<ConnectionEvent> {
        let flight = desk.flights.get_mut(key);
        flight.transport_location = RequestLocation::OnConnection(self.token(index));
        if self.capture.keep_connection_timings {
            flight.connection_timings = Some(self.connections[index].timings(now));
        }
        let change = self.with(index, |connection, turn| connection.begin_request(key, now, turn, desk));
        let connection = &mut self.connections[index];
        if !self.limits.allow(connection, self.now) {
            connection.retire();
        }
        if connection.is_http2() {
            self.unlist_if_full(index);
            self.mark_needs_drive(index);
        } else if std::mem::take(&mut connection.is_in_ready_list) {
            self.routes[connection.route_index].unlist(index);
        }
        change
    }

    /// Marks a connection to be driven at the end of the turn.
    pub(super) fn mark_needs_drive(&mut self, index: usize) {
        if !std::mem::replace(&mut self.connections[index].needs_drive, true) {
            self.dirty.push(self.token(index));
        }
    }

    /// Handles an event of the poller.
    #[inline]
    pub(crate) fn drive(
        &mut self,
        token: u64,
        readiness: EventFlags,
        now: Nanos,
        desk: &mut TransportContext<'_>,
    ) {
        self.now = now;
        if let Some(index) = self.find(token) {
            self.drive_one(index, readiness, desk);
            self.open_missing(desk);
        }
    }

    #[inline]
    pub(super) fn drive_one(&mut self, index: usize, readiness: EventFlags, desk: &mut TransportContext<'_>) {
        let change = self.with(index, |connection, turn| connection.drive(readiness, turn, desk));
        self.apply_event(index, change, desk);
    }

    /// Drives the connections that have something to do without an event.
    #[inline]
    pub(crate) fn drive_marked_connections(&mut self, now: Nanos, desk: &mut TransportContext<'_>) {
        self.now = now;
        while let Some(token) = self.dirty.pop() {
            if let Some(index) = self.find(token) {
                let connection = &mut self.connections[index];
                connection.needs_drive = false;
                let unheard = connection.take_missed_readiness();
                self.drive_one(index, unheard, desk);
            }
        }
        self.open_missing(desk);
    }

    /// Cancels a request that has been given up.
    pub(crate) fn cancel(&mut self, key: InFlightKey, desk: &mut TransportContext<'_>) {
        match desk.flights.get_mut(key).transport_location {
            RequestLocation::Nowhere => {}
            RequestLocation::Waiting(route) => self.routes[route].stop_waiting(key),
            RequestLocation::OnConnection(token) => {
                if let Some(index) = self.find(token) {
                    let change = self.with(index, |connection, turn| connection.cancel(key, turn));
                    if self.connections[index].is_http2() {
                        self.mark_needs_drive(index);
                    }
                    self.apply_event(index, change, desk);
                }
            }
        }
        self.open_missing(desk);
    }

    /// Runs an action of a connection in a turn of its own. Returns the change of the connection's state.
    #[inline]
    fn with(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut PooledConnection<N::Stream>, &mut ConnectionTurn<'_, N>),
    ) -> Option<ConnectionEvent> {
        let connection = &mut self.connections[index];
        let path = &self.routes[connection.route_index].config;
        let budget = ReadBudget { scratch: &mut self.scratch, is_spent: false };
        let (time, keep, events) = (&self.network, self.capture, &mut self.events);
        let mut turn =
            ConnectionTurn { time, route_config: path, capture: keep, budget, events, change: None };
        act(connection, &mut turn);
        if turn.budget.is_spent {
            let token = u64::from(connection.slot_generation) << 32 | index as u64;
            let watched = connection.with_stream(|stream| time.watch_again(stream, token));
            if let Some(Err(fault)) = watched {
                connection.break_off(fault, &mut turn);
            }
        }
        turn.change
    }

    /// Handles a change of a connection's state.
    #[inline]
    pub(super) fn apply_event(
        &mut self,
        index: usize,
        change: Option<ConnectionEvent>,
        desk: &mut TransportContext<'_>,
    ) {
        match change {
            None => {}
            Some(ConnectionEvent::Free) => self.offer_room(index, false, desk),
            Some(ConnectionEvent::Opened) => self.handle_opened(index, desk),
            Some(ConnectionEvent::Refused(fault)) => self.handle_refused(index, fault, desk),
            Some(ConnectionEvent::Closed) => self.close(index),
        }
    }

    /// Gives the room on a connection to waiting requests; lists the connection if there is still room.
    #[inline]
    pub(super) fn offer_room(&mut self, index: usize, new: bool, desk: &mut TransportContext<'_>) {
        let route = self.connections[index].route_index;
        while self.routes[route].waiting_requests() > 0 && self.has_room(index) {
            let new = new || self.connections[index].is_http2();
            let Some(key) = self.routes[route].next_waiting(new) else { break };
            let now = self.network.now();
            if let Some(change) = self.begin(index, key, now, desk) {
                return self.apply_event(index, Some(change), desk);
            }
        }
        self.mark_ready_or_retire(index);
    }

    /// Returns the token of a connection, which no later connection at the same index has.
    pub(super) fn token(&self, index: usize) -> u64 {
        u64::from(self.connections[index].slot_generation) << 32 | index as u64
    }

    /// Returns the index of the connection with this token, if it still exists.
    #[inline]
    pub(super) fn find(&self, token: u64) -> Option<usize> {
        let index = (token & u64::from(u32::MAX)) as usize;
        let connection = self.connections.get(index)?;
        (u64::from(connection.slot_generation) == token >> 32).then_some(index)
    }
}
