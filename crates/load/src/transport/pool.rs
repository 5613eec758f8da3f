//! The connections of one thread: which have room, which may be opened, and who waits for one.
//!
//! Connections are kept per [`Route`](super::route::Route). Opening one is the route's business, not a flight's: as many are opened as flights
//! wait, up to the route's share of the limit, and whoever has waited longest gets whichever is free first. What a failure
//! means for a flight is the loop's business.

use slab::Slab;

use super::connection::Connection;
use super::exchange::Keep;
use super::making::Limits;
use super::route::Speaks;
use super::routes::Routes;
use super::told::Told;
use super::{Budget, Change, Desk, Event, Network, Place, Turn};
use crate::clock::Nanos;
use crate::flights::FlightKey;
use crate::poller::EventFlags;

/// Bytes read at once. Larger than most answers, so that one read tells that the socket is drained.
const SCRATCH: usize = 64 * 1024;

/// The connections of one thread.
pub(crate) struct Pool<N: Network> {
    pub(crate) network: N,
    pub(super) connections: Slab<Connection<N::Stream>>,
    pub(super) routes: Routes,
    pub(super) limits: Limits,
    /// What is kept of answers, which a trial says.
    pub(crate) keep: Keep,
    scratch: Box<[u8]>,
    pub(super) generation: u32,
    /// The time as the loop told it last.
    pub(super) now: Nanos,
    /// What has become of flights.
    pub(super) events: Told<Event>,
    /// Connections with something to do without an event, by token.
    dirty: Vec<u64>,
    /// Routes that may lack a connection.
    pub(super) stirred: Vec<usize>,
    /// Connections being opened, by token, and some that no longer are.
    pub(super) attempts: Vec<u64>,
}

impl<N: Network> Pool<N> {
    pub(crate) fn new(network: N, routes: Routes, limits: Limits) -> Self {
        Self {
            network,
            connections: Slab::new(),
            routes,
            limits,
            keep: Keep::default(),
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            generation: 0,
            now: 0,
            events: Told::new(),
            dirty: Vec::new(),
            stirred: Vec::new(),
            attempts: Vec::new(),
        }
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.connections.len()
    }

    /// Connections that have come to be open.
    pub(crate) fn standing(&self) -> usize {
        self.connections.iter().filter(|(_, connection)| connection.opening_since().is_none()).count()
    }

    /// What has become of flights, in the order in which it did.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.next()
    }

    /// Puts a flight on a connection with room, or lets it wait for one.
    #[inline]
    pub(crate) fn place(&mut self, key: FlightKey, now: Nanos, desk: &mut Desk<'_>) {
        self.now = now;
        let flight = desk.flights.of(key);
        let route = self.routes.of(&flight.which, desk.supply, now);
        if self.routes[route].may_spread(&self.limits) {
            self.open(route, None, desk);
        }
        match self.pick(route) {
            Some(index) => {
                let change = self.begin(index, key, now, desk);
                self.settle(index, change, desk);
            }
            None => self.wait(route, key, false, desk),
        }
        self.attend(desk);
    }

    /// The same on a new connection, whatever is idle.
    pub(crate) fn place_fresh(&mut self, key: FlightKey, now: Nanos, desk: &mut Desk<'_>) {
        self.now = now;
        let flight = desk.flights.of(key);
        let route = self.routes.of(&flight.which, desk.supply, now);
        if self.routes[route].speaks == Speaks::Http2 {
            return self.place(key, now, desk);
        }
        self.wait(route, key, true, desk);
        self.attend(desk);
    }

    fn wait(&mut self, route: usize, key: FlightKey, fresh: bool, desk: &mut Desk<'_>) {
        desk.flights.of(key).place = Place::Waiting(route);
        self.routes[route].wait(key, fresh);
        self.stirred.push(route);
    }

    #[inline]
    fn begin(&mut self, index: usize, key: FlightKey, now: Nanos, desk: &mut Desk<'_>) -> Option<Change> {
        let flight = desk.flights.of(key);
        flight.place = Place::On(self.token(index));
        if self.keep.carriage {
            flight.carrier = Some(self.connections[index].carrier(now));
        }
        let change = self.with(index, |connection, turn| connection.begin(key, now, turn, desk));
        let connection = &mut self.connections[index];
        if !self.limits.allow(connection, self.now) {
            connection.retire();
        }
        if connection.is_http2() {
            self.unlist_if_full(index);
            self.soil(index);
        } else if std::mem::take(&mut connection.listed) {
            self.routes[connection.route].unlist(index);
        }
        change
    }

    /// Has a connection driven at the end of the turn.
    pub(super) fn soil(&mut self, index: usize) {
        if !std::mem::replace(&mut self.connections[index].dirty, true) {
            self.dirty.push(self.token(index));
        }
    }

    /// Does what an event asks for.
    #[inline]
    pub(crate) fn drive(&mut self, token: u64, readiness: EventFlags, now: Nanos, desk: &mut Desk<'_>) {
        self.now = now;
        if let Some(index) = self.find(token) {
            self.drive_one(index, readiness, desk);
            self.attend(desk);
        }
    }

    #[inline]
    pub(super) fn drive_one(&mut self, index: usize, readiness: EventFlags, desk: &mut Desk<'_>) {
        let change = self.with(index, |connection, turn| connection.drive(readiness, turn, desk));
        self.settle(index, change, desk);
    }

    /// Moves the bytes of the connections that have any to move without an event.
    #[inline]
    pub(crate) fn flush(&mut self, now: Nanos, desk: &mut Desk<'_>) {
        self.now = now;
        while let Some(token) = self.dirty.pop() {
            if let Some(index) = self.find(token) {
                let connection = &mut self.connections[index];
                connection.dirty = false;
                let unheard = connection.take_unheard();
                self.drive_one(index, unheard, desk);
            }
        }
        self.attend(desk);
    }

    /// Lets go of a flight that nobody waits for any more.
    pub(crate) fn cancel(&mut self, key: FlightKey, desk: &mut Desk<'_>) {
        match desk.flights.of(key).place {
            Place::Nowhere => {}
            Place::Waiting(route) => self.routes[route].leave(key),
            Place::On(token) => {
                if let Some(index) = self.find(token) {
                    let change = self.with(index, |connection, turn| connection.cancel(key, turn));
                    if self.connections[index].is_http2() {
                        self.soil(index);
                    }
                    self.settle(index, change, desk);
                }
            }
        }
        self.attend(desk);
    }

    /// Has a connection do something in a turn of its own, and says what has become of it.
    #[inline]
    fn with(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Connection<N::Stream>, &mut Turn<'_, N>),
    ) -> Option<Change> {
        let connection = &mut self.connections[index];
        let path = &self.routes[connection.route].path;
        let budget = Budget { scratch: &mut self.scratch, spent: false };
        let (time, keep, events) = (&self.network, self.keep, &mut self.events);
        let mut turn = Turn { time, path, keep, budget, events, change: None };
        act(connection, &mut turn);
        if turn.budget.spent {
            let token = u64::from(connection.generation) << 32 | index as u64;
            let watched = connection.with_stream(|stream| time.watch_again(stream, token));
            if let Some(Err(fault)) = watched {
                connection.break_off(fault, &mut turn);
            }
        }
        turn.change
    }

    /// Takes to heart what has become of a connection.
    #[inline]
    pub(super) fn settle(&mut self, index: usize, change: Option<Change>, desk: &mut Desk<'_>) {
        match change {
            None => {}
            Some(Change::Free) => self.vacant(index, false, desk),
            Some(Change::Opened) => self.opened(index, desk),
            Some(Change::Refused(fault)) => self.refused(index, fault, desk),
            Some(Change::Closed) => self.close(index),
        }
    }

    /// There is room on a connection: for who waits, or for who will come.
    #[inline]
    pub(super) fn vacant(&mut self, index: usize, new: bool, desk: &mut Desk<'_>) {
        let route = self.connections[index].route;
        while self.routes[route].waiting() > 0 && self.has_room(index) {
            let new = new || self.connections[index].is_http2();
            let Some(key) = self.routes[route].next(new) else { break };
            let now = self.network.now();
            if let Some(change) = self.begin(index, key, now, desk) {
                return self.settle(index, Some(change), desk);
            }
        }
        self.list_or_end(index);
    }

    /// What names a connection, and no other in the same place later.
    pub(super) fn token(&self, index: usize) -> u64 {
        u64::from(self.connections[index].generation) << 32 | index as u64
    }

    /// The connection that a token names, if it is still there.
    #[inline]
    pub(super) fn find(&self, token: u64) -> Option<usize> {
        let index = (token & u64::from(u32::MAX)) as usize;
        let connection = self.connections.get(index)?;
        (u64::from(connection.generation) == token >> 32).then_some(index)
    }
}
