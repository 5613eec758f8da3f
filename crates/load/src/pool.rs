//! The connections of one thread: which are free, which may be opened, and who waits for one.
//!
//! Connections are kept per [`Route`] (an origin, its addresses, and what it speaks). Of HTTP/1.1 connections the one
//! that was freed last is used first: few stay hot, and the rest are let go by the server rather than kept warm for
//! nobody. Of HTTP/2 connections the one with the fewest streams is used. New ones are opened on demand up to the route's
//! share of the limit; beyond it flights wait in order. What a failure means for a flight is the shard's business.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use slab::Slab;

use crate::clock::{Nanos, RunClock};
use crate::connection::{Connection, Path, Protocol, Received};
use crate::exchange::{Answer, Keep};
use crate::fault::Fault;
use crate::flights::{FlightKey, Flights, Which};
use crate::http2::Done;
use crate::poller::{EventFlags, Poller};
use crate::request::{Origin, Request};
use crate::resolve::{Dial, Found, Question, Resolved};
use crate::route::{Addresses, Choice, Route, Speaks};
use crate::socket::{Address, ConnectError, Socket};
use crate::sources::Sources;
use crate::stats::Stats;

/// Bytes read at once. Larger than most answers, so that one read tells that the socket is drained.
const SCRATCH: usize = 64 * 1024;

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
    /// HTTP/2 connections of one route as long as their streams suffice.
    pub(crate) http2_connections: usize,
    /// Where they come from.
    pub(crate) sources: Sources,
}

/// What connections are made of, the same for all of them.
#[derive(Debug, Clone)]
pub(crate) struct Making {
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// HTTP/2 may come out of a handshake.
    pub(crate) http2: bool,
    /// HTTP/2 without TLS and without asking.
    pub(crate) h2c: bool,
    /// Most streams on one HTTP/2 connection.
    pub(crate) streams: usize,
    pub(crate) dial: Arc<Dial>,
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
    making: Making,
    keep: Keep,
    scratch: Box<[u8]>,
    clock: RunClock,
    generation: u32,
    /// Flights in all queues.
    waiting: usize,
    /// The time as the loop told it last.
    now: Nanos,
    /// HTTP/2 connections that have something to send.
    dirty: Vec<usize>,
    resolver: Resolver,
}

/// How this thread asks for addresses.
pub(crate) struct Resolver {
    pub(crate) questions: Sender<Question>,
    pub(crate) reply: Sender<Resolved>,
    pub(crate) replies: Receiver<Resolved>,
    /// Questions without an answer.
    pub(crate) asked: usize,
}

/// A flight that needs a connection.
pub(crate) struct Want<'f> {
    pub(crate) key: FlightKey,
    pub(crate) which: &'f Which,
    pub(crate) request: &'f Request,
    /// Where its connection is to be noted.
    pub(crate) connection: &'f mut Option<usize>,
}

/// What an event on a connection is about.
#[derive(Debug)]
pub(crate) enum Readiness {
    /// An HTTP/1.1 connection that nobody waits for.
    Idle,
    /// An HTTP/1.1 connection with this flight on it.
    Busy(FlightKey),
    /// It is open now, and this flight may begin.
    Opened(FlightKey),
    /// The connection of this flight could not be made.
    Refused(FlightKey, Fault),
    /// Still being made.
    Opening,
    /// An HTTP/2 connection: see [`Pool::next_dirty`].
    Streams,
}

impl Pool {
    /// A pool that knows these addresses and asks for others.
    pub(crate) fn new(
        poller: Poller,
        clock: RunClock,
        known: &HashMap<Origin, Found>,
        limits: Limits,
        making: Making,
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
            making,
            keep,
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            clock,
            generation: 0,
            waiting: 0,
            now: 0,
            dirty: Vec::new(),
            resolver,
        };
        for (origin, found) in known {
            let addresses = match pool.making.dial.known(origin) {
                Some(list) => Addresses::literal(pool.limits.sources.reachable(list)),
                None => {
                    let found = found.clone().map(|list| pool.limits.sources.reachable(list));
                    Addresses::found(found, pool.making.dial.lifetime)
                }
            };
            pool.add_route(origin, addresses);
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
    pub(crate) fn place(&mut self, want: &mut Want<'_>, now: Nanos, stats: &mut Stats) -> Result<(), Fault> {
        self.now = now;
        let index = self.route_of(want);
        loop {
            match self.routes[index].choose(&self.limits, &self.connections) {
                // It came of age while nothing ended on it.
                Choice::Use(old) if !self.limits.allow(&self.connections[old], now) => self.retire(old),
                Choice::Use(connection) => return self.begin(connection, want),
                Choice::Open => return self.open(index, None, want, stats),
                Choice::Nowhere => return Err(Fault::Resolve(self.routes[index].addresses.missing)),
                Choice::Wait => return self.queue(index, want.key),
                Choice::Ask => {
                    self.ask(index, &want.request.origin);
                    return self.queue(index, want.key);
                }
            }
        }
    }

    /// Lets a connection end that may serve no more: at once, or with the last of its streams.
    #[cold]
    fn retire(&mut self, index: usize) {
        let connection = &self.connections[index];
        let unused = connection.http2().is_none_or(|session| session.load() == 0);
        self.routes[connection.route].shared.retain(|&shared| shared != index);
        if unused {
            self.close(index);
        }
    }

    fn queue(&mut self, route: usize, key: FlightKey) -> Result<(), Fault> {
        self.routes[route].queue.push_back(key);
        self.waiting += 1;
        Ok(())
    }

    /// Opens a connection for a flight, whatever is idle: after a refusal to the next address (`others` are left after
    /// that), after a lost race for an old connection to a fresh one.
    pub(crate) fn reopen(
        &mut self,
        others: Option<usize>,
        want: &mut Want<'_>,
        stats: &mut Stats,
    ) -> Result<(), Fault> {
        let index = self.route_of(want);
        self.open(index, others, want, stats)
    }

    fn open(
        &mut self,
        route_index: usize,
        others: Option<usize>,
        want: &mut Want<'_>,
        stats: &mut Stats,
    ) -> Result<(), Fault> {
        let opened = self.clock.now();
        let (socket, connected, others) = self.connect(route_index, others)?;
        self.generation = self.generation.wrapping_add(1);
        let connection = Connection::new(socket, want.key, route_index, others, opened, self.generation);
        let index = self.connections.insert(connection);
        let route = &mut self.routes[route_index];
        route.open += 1;
        route.opening += 1;
        *want.connection = Some(index);
        self.watch(index, Poller::watch)?;
        if connected && self.prepare(index, true, stats)? { self.begin(index, want) } else { Ok(()) }
    }

    /// A socket to the address whose turn it is, whether it is connected, and how many others are left to try: of
    /// `others` if that is known. Those that refuse at once, such as one without a route, have had their turn.
    fn connect(&mut self, route: usize, mut others: Option<usize>) -> Result<(Socket, bool, usize), Fault> {
        loop {
            let missing = Fault::Resolve(self.routes[route].addresses.missing);
            let (address, addresses) = self.routes[route].addresses.next().ok_or(missing)?;
            let left = others.unwrap_or(addresses - 1);
            match connect(address, self.limits.sources.next(address)?) {
                Err(Fault::Connect(_)) if left > 0 => others = Some(left - 1),
                made => return made.map(|(socket, connected)| (socket, connected, left)),
            }
        }
    }

    fn watch(
        &self,
        index: usize,
        how: fn(&Poller, BorrowedFd<'_>, u64) -> rustix::io::Result<()>,
    ) -> Result<(), Fault> {
        let token = self.token(index);
        let watched = self.connections[index].with_fd(|fd| how(&self.poller, fd, token)).unwrap_or(Ok(()));
        watched.map_err(|error| Fault::Local(io::Error::from(error).kind()))
    }

    /// Goes on opening a connection. True when it has just become open.
    fn prepare(&mut self, index: usize, connected: bool, stats: &mut Stats) -> Result<bool, Fault> {
        let connection = &mut self.connections[index];
        let route = &mut self.routes[connection.route];
        if !connection.prepare(connected, &route.path, &self.clock, stats)? {
            return Ok(false);
        }
        route.opening -= 1;
        route.speaks = match &connection.speaks {
            Protocol::Http2(_) => {
                route.shared.push(index);
                self.dirty.push(index);
                Speaks::Http2
            }
            _ => Speaks::Http1,
        };
        Ok(true)
    }

    /// Begins a flight on an open connection.
    #[inline]
    pub(crate) fn begin(&mut self, index: usize, want: &mut Want<'_>) -> Result<(), Fault> {
        let connection = &mut self.connections[index];
        *want.connection = Some(index);
        match &mut connection.speaks {
            Protocol::Http1(http1) => {
                // The last of the idle ones, if it is one of them.
                self.routes[connection.route].idle.pop_if(|idle| *idle == index);
                http1.begin(want.key);
                http1.send(want.request.bytes()).map(|_| ())
            }
            Protocol::Http2(session) => {
                self.dirty.push(index);
                session.start(want.key, want.request)
            }
            Protocol::Changing => Err(Fault::Http2),
        }
    }

    /// What names a connection, and no other in the same place later.
    pub(crate) fn token(&self, index: usize) -> u64 {
        u64::from(self.connections[index].generation) << 32 | index as u64
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
        let flight = match &connection.speaks {
            Protocol::Http1(http1) => http1.flight,
            _ => {
                self.dirty.push(index);
                return Readiness::Streams;
            }
        };
        let Some(key) = flight else { return Readiness::Idle };
        if connection.is_open() { Readiness::Busy(key) } else { self.go_on_opening(index, key, flags, stats) }
    }

    #[cold]
    fn go_on_opening(
        &mut self,
        index: usize,
        key: FlightKey,
        flags: EventFlags,
        stats: &mut Stats,
    ) -> Readiness {
        let connected = flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP);
        match self.prepare(index, connected, stats) {
            Ok(false) => Readiness::Opening,
            Ok(true) => Readiness::Opened(key),
            Err(fault) => Readiness::Refused(key, fault),
        }
    }

    /// Goes on writing. True when this call wrote the last byte.
    #[inline]
    pub(crate) fn send(&mut self, index: usize, request: &Request) -> Result<bool, Fault> {
        match self.connections[index].http1_mut() {
            Some(http1) if http1.is_sending(request.bytes()) => http1.send(request.bytes()),
            _ => Ok(false),
        }
    }

    /// Whether a connection has taken all of a request.
    #[inline]
    pub(crate) fn has_sent(&self, index: usize, request: &Request) -> bool {
        self.connections[index].http1().is_some_and(|http1| !http1.is_sending(request.bytes()))
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
        self.watch(index, Poller::watch_again)
    }

    /// An HTTP/2 connection that has something to send or to read.
    #[inline]
    pub(crate) fn next_dirty(&mut self) -> Option<usize> {
        loop {
            let index = self.dirty.pop()?;
            if self.connections.get(index).is_some_and(|connection| connection.http2().is_some()) {
                return Some(index);
            }
        }
    }

    /// Moves the bytes of an HTTP/2 connection and finishes what can be finished. False when the connection has ended.
    pub(crate) fn drive(&mut self, index: usize, flights: &mut Flights, done: &mut Vec<Done>) -> bool {
        let Some(session) = self.connections[index].http2_mut() else { return true };
        session.drive(flights, self.keep, &self.clock, done);
        !session.is_closed()
    }

    /// Whether a request that failed on a connection may go out again.
    pub(crate) fn was_stale(&self, index: usize) -> bool {
        self.connections[index].was_stale()
    }

    /// Addresses not yet tried for the flight of a connection.
    pub(crate) fn alternatives(&self, index: usize) -> usize {
        self.connections[index].alternatives
    }

    /// An HTTP/1.1 connection has brought its answer: it is kept or closed.
    #[inline]
    pub(crate) fn release(&mut self, index: usize, reusable: bool, now: Nanos) {
        let connection = &mut self.connections[index];
        connection.served += 1;
        if let Some(http1) = connection.http1_mut() {
            http1.flight = None;
        }
        let idle = &mut self.routes[connection.route].idle;
        if reusable && self.limits.allow(connection, now) && idle.len() < self.limits.idle {
            idle.push(index);
        } else {
            self.close(index);
        }
    }

    /// An HTTP/2 connection has brought so many answers.
    pub(crate) fn served(&mut self, index: usize, answers: u64) {
        self.connections[index].served += answers;
    }

    /// After the answers of an HTTP/2 connection have been looked at: one that has ended is closed, and its flights are
    /// handed back; one that is old or has served enough gets no more.
    pub(crate) fn settle(&mut self, token: u64, alive: bool, now: Nanos) -> Vec<FlightKey> {
        let Some(index) = self.find(token) else { return Vec::new() };
        if !alive {
            return self.close(index);
        }
        if !self.limits.allow(&self.connections[index], now) {
            self.retire(index);
        }
        Vec::new()
    }

    /// Whether several flights are on a connection at once.
    pub(crate) fn is_shared(&self, index: usize) -> bool {
        self.connections[index].http2().is_some()
    }

    /// Lets go of a flight whose time is over.
    pub(crate) fn abandon(&mut self, index: usize, key: FlightKey) {
        match self.connections[index].http2_mut() {
            Some(session) => {
                session.abandon(key);
                self.dirty.push(index);
            }
            None => _ = self.close(index),
        }
    }

    /// Closes a connection, idle or not. Flights on it are the caller's to look after.
    pub(crate) fn close(&mut self, index: usize) -> Vec<FlightKey> {
        let mut connection = self.connections.remove(index);
        let route = &mut self.routes[connection.route];
        route.open -= 1;
        route.opening -= usize::from(!connection.is_open());
        let flights = connection.flights();
        match connection.speaks {
            Protocol::Http2(_) => route.shared.retain(|&shared| shared != index),
            _ if flights.is_empty() => route.idle.retain(|&idle| idle != index),
            _ => {}
        }
        flights
    }

    /// A flight that waited and can be placed now.
    #[inline]
    pub(crate) fn next_waiting(&mut self) -> Option<FlightKey> {
        if self.waiting == 0 {
            return None;
        }
        let (limits, connections) = (&self.limits, &self.connections);
        let mut routes = self.routes.iter_mut();
        let key = routes.find_map(|route| {
            let waits = route.queue.is_empty() || matches!(route.choose(limits, connections), Choice::Wait);
            if waits { None } else { route.queue.pop_front() }
        });
        self.waiting -= usize::from(key.is_some());
        key
    }

    /// Takes the addresses that have been found.
    #[inline]
    pub(crate) fn adopt_resolved(&mut self, now: Nanos, stats: &mut Stats) {
        self.now = now;
        while self.resolver.asked > 0
            && let Ok((origin, found)) = self.resolver.replies.try_recv()
        {
            self.resolver.asked -= 1;
            let index = self.route_to(&origin);
            let found = found.map(|list| self.limits.sources.reachable(list));
            let route = &mut self.routes[index];
            let asked = route.addresses.adopt(found, now, route.queue.len(), self.making.dial.lifetime);
            stats.lookup.record(now.saturating_sub(asked));
        }
    }

    /// The route of a request, whose addresses are asked for again if they are old.
    #[inline]
    fn route_of(&mut self, want: &Want<'_>) -> usize {
        let index = match want.which {
            Which::Listed(index) => self.listed[*index],
            Which::Own(_) => self.route_to(&want.request.origin),
        };
        if self.routes[index].addresses.are_old(self.now, self.making.dial.lifetime) {
            self.ask(index, &want.request.origin);
        }
        index
    }

    fn route_to(&mut self, origin: &Origin) -> usize {
        if let Some(&index) = self.by_origin.get(origin) {
            return index;
        }
        let addresses = match self.making.dial.known(origin) {
            Some(list) => Addresses::literal(self.limits.sources.reachable(list)),
            None => Addresses::unknown(),
        };
        let index = self.add_route(origin, addresses);
        if !self.routes[index].addresses.literal {
            self.ask(index, origin);
        }
        index
    }

    fn ask(&mut self, route: usize, origin: &Origin) {
        let addresses = &mut self.routes[route].addresses;
        if addresses.asked.is_some() {
            return;
        }
        let question = Question {
            origin: origin.clone(),
            reply: self.resolver.reply.clone(),
            waker: self.poller.waker(),
        };
        if self.resolver.questions.send(question).is_ok() {
            addresses.asked = Some(self.now);
            self.resolver.asked += 1;
        }
    }

    fn add_route(&mut self, origin: &Origin, addresses: Addresses) -> usize {
        let index = self.routes.len();
        self.by_origin.insert(origin.clone(), index);
        self.routes.push(Route::new(self.making.path(origin), self.making.speaks(origin), addresses));
        index
    }
}

fn connect(address: &Address, source: Option<IpAddr>) -> Result<(Socket, bool), Fault> {
    Socket::connect(address, source).map_err(|error| match (error, source) {
        (ConnectError::Local(error), None) => Fault::Local(error.kind()),
        (ConnectError::Local(error), Some(source)) => Fault::Source(source, error.kind()),
        (ConnectError::Peer(error), _) => Fault::Connect(error.kind()),
    })
}

impl Limits {
    /// Whether a connection may serve another request.
    #[inline]
    fn allow(&self, connection: &Connection, now: Nanos) -> bool {
        let under_way = connection.http2().map_or(0, |session| session.load() as u64);
        connection.served + under_way < self.requests && now.saturating_sub(connection.opened) < self.age
    }
}

impl Making {
    fn path(&self, origin: &Origin) -> Path {
        let name = ServerName::try_from(origin.host.clone()).ok();
        let tls = self.tls.clone().zip(name).filter(|_| origin.tls);
        Path {
            tunnel: self.dial.tunnel(origin),
            tls,
            prior_knowledge: self.h2c && !origin.tls,
            streams: self.streams,
        }
    }

    fn speaks(&self, origin: &Origin) -> Speaks {
        match (origin.tls, self.http2, self.h2c) {
            (true, true, _) => Speaks::Unknown,
            (false, _, true) => Speaks::Http2,
            _ => Speaks::Http1,
        }
    }
}
