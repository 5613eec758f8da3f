//! The connections of one thread: which are free, which may be opened, and who waits for one.
//!
//! Connections are kept per [`Route`] (an origin and its addresses). The one that was freed last is used first: few
//! connections stay hot, and the rest are let go by the server rather than kept warm for nobody. New ones are opened on
//! demand up to the route's share of the limit; beyond it flights wait in order. What a failure means for a flight is
//! the shard's business.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender};

use slab::Slab;

use crate::clock::{Nanos, RunClock, SECOND};
use crate::connection::{Connection, Received};
use crate::exchange::{Answer, Keep};
use crate::fault::Fault;
use crate::flights::{FlightKey, Which};
use crate::poller::{EventFlags, Poller};
use crate::request::{Origin, Request};
use crate::resolve::{self, Question, Resolved};
use crate::socket::{Address, ConnectError, Socket};
use crate::stats::Stats;

/// Bytes read at once. Larger than most answers, so that one read tells that the socket is drained.
const SCRATCH: usize = 64 * 1024;

/// A name without an address is asked for again after this long.
const ASK_AGAIN: Nanos = SECOND;

/// What one thread may open and keep.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Connections of one route.
    pub(crate) connections: usize,
    /// Idle connections kept of one route.
    pub(crate) idle: usize,
    /// Requests after which a connection is not used again.
    pub(crate) requests: u64,
    /// Age after which a connection is not used again.
    pub(crate) age: Nanos,
    /// Source addresses, used in turn.
    pub(crate) sources: Vec<IpAddr>,
}

/// The connections of one thread.
pub(crate) struct Pool {
    pub(crate) poller: Poller,
    connections: Slab<Connection>,
    routes: Vec<Route>,
    by_origin: HashMap<Origin, usize>,
    /// Routes of the listed requests.
    listed: Vec<usize>,
    limits: Limits,
    keep: Keep,
    scratch: Box<[u8]>,
    clock: RunClock,
    generation: u32,
    next_source: usize,
    /// Flights in all queues.
    waiting: usize,
    /// Questions without an answer.
    asked: usize,
    resolver: Resolver,
}

/// A flight that needs a connection.
pub(crate) struct Want<'f> {
    pub(crate) key: FlightKey,
    pub(crate) which: &'f Which,
    pub(crate) request: &'f Request,
    /// Where its connection is to be noted.
    pub(crate) connection: &'f mut Option<usize>,
}

/// How this thread asks for addresses.
pub(crate) struct Resolver {
    pub(crate) questions: Sender<Question>,
    pub(crate) reply: Sender<Resolved>,
    pub(crate) replies: Receiver<Resolved>,
}

struct Route {
    addresses: Addresses,
    /// The address whose turn it is.
    next: usize,
    /// Free connections, the last used at the end.
    idle: Vec<usize>,
    open: usize,
    queue: VecDeque<FlightKey>,
}

enum Addresses {
    Known(Vec<Address>),
    Asked,
    /// Nothing was found, at this instant.
    Nowhere(Nanos),
}

/// What an event on a connection is about.
#[derive(Debug)]
pub(crate) enum Readiness {
    /// Nobody waits for it.
    Idle,
    /// This flight has the connection.
    Busy(FlightKey),
    /// The connection of this flight could not be made.
    Refused(FlightKey, Fault),
    /// Still being made.
    Connecting,
}

impl Pool {
    /// A pool that knows these addresses and asks for others.
    pub(crate) fn new(
        poller: Poller,
        clock: RunClock,
        known: &HashMap<Origin, Vec<Address>>,
        limits: Limits,
        keep: Keep,
        resolver: Resolver,
    ) -> Self {
        let mut pool = Self {
            poller,
            connections: Slab::new(),
            routes: Vec::new(),
            by_origin: HashMap::new(),
            listed: Vec::new(),
            limits,
            keep,
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            clock,
            generation: 0,
            next_source: 0,
            waiting: 0,
            asked: 0,
            resolver,
        };
        for (origin, addresses) in known {
            pool.add_route(origin, found(addresses.clone(), 0));
        }
        pool
    }

    /// Remembers the routes of the listed requests, so that choosing one costs an index.
    pub(crate) fn list(&mut self, requests: &[Request]) {
        self.listed = requests.iter().map(|request| self.route_to(&request.origin)).collect();
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.connections.len()
    }

    /// Puts a flight on a free connection, on a new one, or into the queue.
    #[inline]
    pub(crate) fn place(&mut self, want: &mut Want<'_>, stats: &mut Stats) -> Result<(), Fault> {
        let index = self.route_of(want);
        let route = &mut self.routes[index];
        if let Some(connection) = route.idle.pop() {
            return self.begin(connection, want);
        }
        match &route.addresses {
            Addresses::Nowhere(_) => Err(Fault::Resolve),
            Addresses::Known(addresses) if route.open < self.limits.connections => {
                let others = addresses.len() - 1;
                self.open(index, others, want, stats)
            }
            _ => {
                route.queue.push_back(want.key);
                self.waiting += 1;
                Ok(())
            }
        }
    }

    /// Opens a connection for a flight, whatever is idle: after a refusal to the next address, after a lost race for an
    /// old connection to a fresh one.
    pub(crate) fn reopen(
        &mut self,
        others: Option<usize>,
        want: &mut Want<'_>,
        stats: &mut Stats,
    ) -> Result<(), Fault> {
        let index = self.route_of(want);
        let Addresses::Known(addresses) = &self.routes[index].addresses else { return Err(Fault::Resolve) };
        let others = others.unwrap_or(addresses.len() - 1);
        self.open(index, others, want, stats)
    }

    fn open(
        &mut self,
        route_index: usize,
        others: usize,
        want: &mut Want<'_>,
        stats: &mut Stats,
    ) -> Result<(), Fault> {
        let opened = self.clock.now();
        let (socket, connected) = self.connect(route_index)?;
        self.generation = self.generation.wrapping_add(1);
        let connection = Connection::new(socket, connected, route_index, others, opened, self.generation);
        let index = self.connections.insert(connection);
        self.routes[route_index].open += 1;
        stats.connections += 1;
        if let Err(error) = self.poller.watch(&self.connections[index], self.token(index)) {
            self.close(index);
            return Err(Fault::Local(io::Error::from(error).kind()));
        }
        if connected {
            stats.connect.record(self.clock.now() - opened);
            self.begin(index, want)
        } else {
            *want.connection = Some(index);
            self.connections[index].begin(want.key);
            Ok(())
        }
    }

    /// A socket to the address whose turn it is.
    fn connect(&mut self, route_index: usize) -> Result<(Socket, bool), Fault> {
        let route = &mut self.routes[route_index];
        let Addresses::Known(addresses) = &route.addresses else { return Err(Fault::Resolve) };
        let address = &addresses[route.next % addresses.len()];
        route.next = route.next.wrapping_add(1);
        let sources = &self.limits.sources;
        let source = (!sources.is_empty()).then(|| sources[self.next_source % sources.len()]);
        self.next_source = self.next_source.wrapping_add(1);
        Socket::connect(address, source).map_err(|error| match error {
            ConnectError::Local(error) => Fault::Local(error.kind()),
            ConnectError::Peer(error) => Fault::Connect(error.kind()),
        })
    }

    #[inline]
    fn begin(&mut self, index: usize, want: &mut Want<'_>) -> Result<(), Fault> {
        *want.connection = Some(index);
        let connection = &mut self.connections[index];
        connection.begin(want.key);
        connection.send(want.request.bytes()).map(|_| ())
    }

    /// The connection that an event's token names, if it is still there.
    #[inline]
    pub(crate) fn find(&self, token: u64) -> Option<usize> {
        let index = (token & u64::from(u32::MAX)) as usize;
        let connection = self.connections.get(index)?;
        (u64::from(connection.generation) == token >> 32).then_some(index)
    }

    /// What an event means for its connection.
    #[inline]
    pub(crate) fn readiness(&mut self, index: usize, flags: EventFlags, stats: &mut Stats) -> Readiness {
        let connection = &mut self.connections[index];
        connection.note(flags);
        let Some(key) = connection.flight else { return Readiness::Idle };
        if connection.is_connected() {
            return Readiness::Busy(key);
        }
        if !flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
            return Readiness::Connecting;
        }
        match connection.finish_connect() {
            Ok(()) => {
                stats.connect.record(self.clock.now() - connection.opened);
                Readiness::Busy(key)
            }
            Err(fault) => Readiness::Refused(key, fault),
        }
    }

    /// Goes on writing. True when this call wrote the last byte.
    #[inline]
    pub(crate) fn send(&mut self, index: usize, request: &Request) -> Result<bool, Fault> {
        let connection = &mut self.connections[index];
        let sending = connection.is_sending(request.bytes());
        Ok(sending && connection.send(request.bytes())?)
    }

    /// Whether a connection has taken all of a request.
    #[inline]
    pub(crate) fn has_sent(&self, index: usize, request: &Request) -> bool {
        !self.connections[index].is_sending(request.bytes())
    }

    #[inline]
    pub(crate) fn receive(
        &mut self,
        index: usize,
        request: &Request,
        answer: &mut Answer,
    ) -> Result<Received, Fault> {
        self.connections[index].receive(&mut self.scratch, &request.method, self.keep, answer)
    }

    /// Has a connection reported again that still has bytes to read.
    pub(crate) fn report_again(&self, index: usize) -> Result<(), Fault> {
        let again = self.poller.watch_again(&self.connections[index], self.token(index));
        again.map_err(|error| Fault::Local(io::Error::from(error).kind()))
    }

    fn token(&self, index: usize) -> u64 {
        u64::from(self.connections[index].generation) << 32 | index as u64
    }

    /// Whether a request that failed on a connection may go out again.
    pub(crate) fn was_stale(&self, index: usize) -> bool {
        self.connections[index].was_stale()
    }

    /// Addresses not yet tried for the flight of a connection.
    pub(crate) fn alternatives(&self, index: usize) -> usize {
        self.connections[index].alternatives
    }

    /// A connection has brought its answer: it is kept or closed.
    #[inline]
    pub(crate) fn release(&mut self, index: usize, reusable: bool, now: Nanos) {
        let connection = &mut self.connections[index];
        connection.flight = None;
        connection.served += 1;
        let route = &mut self.routes[connection.route];
        let young = connection.served < self.limits.requests && now - connection.opened < self.limits.age;
        if reusable && young && route.idle.len() < self.limits.idle {
            route.idle.push(index);
        } else {
            self.close(index);
        }
    }

    /// Closes a connection, idle or not.
    pub(crate) fn close(&mut self, index: usize) {
        let connection = self.connections.remove(index);
        let route = &mut self.routes[connection.route];
        route.open -= 1;
        if connection.flight.is_none()
            && let Some(place) = route.idle.iter().position(|&idle| idle == index)
        {
            route.idle.remove(place);
        }
    }

    /// A flight that waited and can be placed now.
    #[inline]
    pub(crate) fn next_waiting(&mut self) -> Option<FlightKey> {
        if self.waiting == 0 {
            return None;
        }
        let most = self.limits.connections;
        let key = self
            .routes
            .iter_mut()
            .filter(|route| route.has_room(most))
            .find_map(|route| route.queue.pop_front());
        self.waiting -= usize::from(key.is_some());
        key
    }

    /// Takes the addresses that have been found, and asks again where none were.
    pub(crate) fn adopt_resolved(&mut self, now: Nanos) {
        while self.asked > 0
            && let Ok((origin, addresses)) = self.resolver.replies.try_recv()
        {
            self.asked -= 1;
            let index = self.route_to(&origin);
            self.routes[index].addresses = found(addresses, now);
        }
    }

    /// The route of a request.
    #[inline]
    fn route_of(&mut self, want: &Want<'_>) -> usize {
        let index = match want.which {
            Which::Listed(index) => self.listed[*index],
            Which::Own(_) => self.route_to(&want.request.origin),
        };
        if let Addresses::Nowhere(since) = self.routes[index].addresses
            && self.clock.now() - since >= ASK_AGAIN
        {
            self.routes[index].addresses = self.ask(&want.request.origin);
        }
        index
    }

    fn route_to(&mut self, origin: &Origin) -> usize {
        if let Some(&index) = self.by_origin.get(origin) {
            return index;
        }
        let addresses = match resolve::literal(origin) {
            Some(address) => Addresses::Known(vec![address]),
            None => self.ask(origin),
        };
        self.add_route(origin, addresses)
    }

    fn ask(&mut self, origin: &Origin) -> Addresses {
        let question = Question {
            origin: origin.clone(),
            reply: self.resolver.reply.clone(),
            waker: self.poller.waker(),
        };
        if self.resolver.questions.send(question).is_err() {
            return Addresses::Nowhere(self.clock.now());
        }
        self.asked += 1;
        Addresses::Asked
    }

    fn add_route(&mut self, origin: &Origin, addresses: Addresses) -> usize {
        let index = self.routes.len();
        self.by_origin.insert(origin.clone(), index);
        self.routes.push(Route { addresses, next: 0, idle: Vec::new(), open: 0, queue: VecDeque::new() });
        index
    }
}

impl Route {
    /// Whether a flight at the head of the queue would not have to wait again.
    fn has_room(&self, most: usize) -> bool {
        match self.addresses {
            Addresses::Known(_) => !self.idle.is_empty() || self.open < most,
            Addresses::Nowhere(_) => true,
            Addresses::Asked => false,
        }
    }
}

fn found(addresses: Vec<Address>, now: Nanos) -> Addresses {
    if addresses.is_empty() { Addresses::Nowhere(now) } else { Addresses::Known(addresses) }
}
