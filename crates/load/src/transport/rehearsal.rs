//! The transport without a system: its pool over a network in memory, told step by step what happens, and telling what it made
//! of it.
//!
//! Does what the loop does with events and no more: what fails is sent again as the one table says. Knows neither what a server
//! is to say nor what must hold. Called by the simulation beside it and, with the feature `rehearsal`, by
//! `seawall-invariants`, which fuzzing and its corpus go through.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;

use super::exchange::Keep;
use super::making::{Limits, Making};
use super::memory::{Memory, Pipe};
use super::pool::Pool;
use super::retry::{Again, Policy, retry};
use super::routes::{Resolver, Routes};
use super::sources::Sources;
use super::{Desk, Event, Failure, Place};
use crate::clock::{Nanos, RunClock, SECOND};
use crate::flights::{FlightKey, Flights, Which};
use crate::poller::Poller;
use crate::request::{Request, Style};
use crate::schedule::Hit;
use crate::stats::Stats;
use crate::supply::{List, Supply};
use crate::target::{Target, Weight};

/// One client and its end of the network.
pub struct Rehearsal {
    pub(super) network: Memory,
    pub(super) pool: Pool<Memory>,
    pub(super) flights: Flights,
    /// Requests in the supply.
    targets: usize,
    supply: Supply,
    stats: Box<Stats>,
    /// Hits under way.
    keys: Vec<(FlightKey, u64)>,
    hits: u64,
}

/// What became of a hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// Which; none if it had ended before.
    pub hit: Option<u64>,
    /// When.
    pub at: Nanos,
    /// What.
    pub what: What,
}

/// A step on the way of a hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The first byte of its request leaves.
    Sent,
    /// The last byte of its request has left.
    Wrote,
    /// Its answer has begun.
    Head,
    /// It ended with a complete answer.
    Answered(Answered),
    /// It is sent again.
    Again,
    /// It ended without an answer.
    Failed,
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Which of the streams brought it, in the order in which they were opened.
    pub stream: usize,
    /// Its status.
    pub status: u16,
    /// Bytes of its body.
    pub bytes: u64,
    /// Those of them that were kept.
    pub kept: usize,
    /// The method of its request.
    pub method: String,
}

/// Why there is no rehearsal.
#[derive(Debug, thiserror::Error)]
pub enum Unready {
    /// The system refuses what wakes a thread.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The requests are none.
    #[error("no requests to rehearse with")]
    Requests,
}

/// The address of the server that there is not.
const SERVER: &str = "http://127.0.0.1/";

/// What is asked for, by number.
fn targets() -> [Target; 4] {
    let target = |method: &str, body: usize, headers: &[(&str, &str)]| Target {
        method: method.into(),
        url: SERVER.into(),
        body: vec![b'x'; body].into(),
        headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        ..Target::default()
    };
    [
        target("GET", 0, &[]),
        target("HEAD", 0, &[]),
        target("POST", 70_000, &[]),
        target("GET", 0, &[("Connection", "close")]),
    ]
}

impl Rehearsal {
    /// Most connections at once.
    pub const CONNECTIONS: usize = 3;

    /// Most streams on one HTTP/2 connection.
    pub const STREAMS: usize = 5;

    /// Bytes kept of each answer's body.
    pub const KEPT: usize = 1000;

    /// Answers after which a connection is not used again.
    const REQUESTS: u64 = 4;

    /// A client of one server without TLS that speaks HTTP/1.1, or HTTP/2 without asking.
    ///
    /// # Errors
    /// [`Unready`].
    pub fn new(http2: bool) -> Result<Self, Unready> {
        let style = Style { http2, ..Style::default() };
        let requests =
            targets().iter().map(|target| Request::new(target, &style)).collect::<Result<Vec<_>, _>>();
        let requests = requests.map_err(|_| Unready::Requests)?;
        let making = Making {
            tls: None,
            http2: false,
            h2c: http2,
            streams: Self::STREAMS,
            keep_alive: true,
            dial: Arc::default(),
            begun: Arc::default(),
        };
        let limits = Limits {
            connections: Self::CONNECTIONS,
            idle: Self::CONNECTIONS,
            requests: Self::REQUESTS,
            age: Nanos::MAX,
            http2_connections: 2,
            step: SECOND,
            sources: Sources::default(),
        };
        Self::of(requests, making, limits, Keep { location: true, record: Some(Self::KEPT), carriage: true })
    }

    /// A client that sends these requests.
    pub(super) fn of(
        requests: Vec<Request>,
        making: Making,
        limits: Limits,
        keep: Keep,
    ) -> Result<Self, Unready> {
        let list = List::new(requests.into_iter().map(|request| (request, Weight::default())).collect());
        let list = list.map_err(|_| Unready::Requests)?;
        let targets = list.requests().len();
        let waker = Poller::new(RunClock::start()).map_err(io::Error::from)?.waker();
        let (questions, (reply, replies)) = (channel().0, channel());
        let resolver = Resolver { questions, reply, replies, waker, asked: 0 };
        let mut routes = Routes::new(&HashMap::new(), making, Sources::default(), resolver);
        routes.list(list.requests());
        let network = Memory::default();
        let mut pool = Pool::new(network.clone(), routes, limits);
        pool.keep = keep;
        let supply = Supply::list(list, &Style::default());
        Ok(Self {
            pool,
            targets,
            network,
            flights: Flights::new(),
            supply,
            stats: Box::default(),
            keys: Vec::new(),
            hits: 0,
        })
    }

    /// Has the pool do something.
    pub(super) fn act(&mut self, act: impl FnOnce(&mut Pool<Memory>, Nanos, &mut Desk<'_>)) {
        let now = self.now();
        let (flights, supply, stats) = (&mut self.flights, &self.supply, &mut *self.stats);
        act(&mut self.pool, now, &mut Desk { flights, supply, stats });
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.network.world().now
    }

    /// Lets time pass.
    pub fn pass(&mut self, span: Nanos) {
        let mut world = self.network.world();
        world.now = world.now.saturating_add(span);
    }

    /// Begins a hit with one of the requests; says its number.
    pub fn launch(&mut self, request: usize) -> u64 {
        let (now, seq) = (self.now(), self.hits);
        self.hits += 1;
        let which = request % self.targets;
        let key = self.flights.insert(Hit { seq, due: now }, Which::Listed(which), which, now + SECOND);
        self.keys.push((key, seq));
        self.act(|pool, now, desk| pool.place(key, now, desk));
        seq
    }

    /// Hits that have not ended.
    pub fn under_way(&self) -> impl Iterator<Item = u64> {
        self.keys.iter().map(|(_, hit)| *hit)
    }

    /// Gives a hit up, as its timeout does. False if it had ended.
    pub fn cancel(&mut self, hit: u64) -> bool {
        let Some(&(key, _)) = self.keys.iter().find(|(_, under_way)| *under_way == hit) else { return false };
        self.act(|pool, _, desk| pool.cancel(key, desk));
        self.forget(key);
        true
    }

    fn forget(&mut self, key: FlightKey) {
        self.keys.retain(|(under_way, _)| *under_way != key);
        self.flights.remove(key);
    }

    /// Moves what may be moved without an event.
    pub fn flush(&mut self) {
        self.act(Pool::flush);
    }

    /// Looks after what takes too long to open.
    pub fn look_after(&mut self) {
        self.act(Pool::look_after);
    }

    /// The next thing that was told.
    pub fn news(&mut self) -> Option<News> {
        let event = self.pool.next_event()?;
        let (key, at) = match event {
            Event::Sent(key, at) | Event::Wrote(key, at) | Event::Head(key, at) | Event::Done(key, at) => {
                (key, at)
            }
            Event::Failed(Failure { key, at, .. }) => (key, at),
            Event::Unreached(key, _) => (key, self.now()),
        };
        let hit = self.keys.iter().find(|(under_way, _)| *under_way == key).map(|(_, hit)| *hit);
        let what = match event {
            Event::Sent(..) => What::Sent,
            Event::Wrote(..) => What::Wrote,
            Event::Head(..) => What::Head,
            // Told of a hit that has ended: there is nothing to look at.
            _ if hit.is_none() => What::Failed,
            Event::Done(..) => self.answered(key),
            Event::Failed(failure) => self.failed(failure),
            Event::Unreached(..) => {
                self.forget(key);
                What::Failed
            }
        };
        Some(News { hit, at, what })
    }

    fn answered(&mut self, key: FlightKey) -> What {
        let flight = self.flights.of(key);
        let (status, bytes, kept) =
            (flight.answer.status, flight.answer.bytes_in, flight.answer.kept.body.len());
        let method = self.supply.request(&flight.which).method.clone();
        let place = flight.place;
        let stream = self.network.world().pipes.iter().rposition(|pipe| place == Place::On(pipe.token));
        self.forget(key);
        let stream = stream.unwrap_or(usize::MAX);
        What::Answered(Answered { stream, status, bytes, kept, method })
    }

    fn failed(&mut self, failure: Failure) -> What {
        let key = failure.key;
        let flight = self.flights.of(key);
        let idempotent = self.supply.request(&flight.which).is_idempotent();
        flight.place = Place::Nowhere;
        flight.retries += 1;
        flight.answer.clear();
        let attempts = flight.retries - 1;
        match retry(failure.progress, failure.reused, idempotent, attempts, Policy::GO) {
            Again::No => {
                self.forget(key);
                return What::Failed;
            }
            Again::Anywhere => self.act(|pool, now, desk| pool.place(key, now, desk)),
            Again::Fresh => self.act(|pool, now, desk| pool.place_fresh(key, now, desk)),
        }
        What::Again
    }

    /// Streams there ever were.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.network.world().pipes.len()
    }

    /// Connections there are, streams that the client holds, requests that are on a connection, and those that wait.
    #[must_use]
    pub fn held(&self) -> Held {
        let carried = self.pool.connections.iter().map(|(_, connection)| connection.load()).sum();
        Held {
            connections: self.pool.open_connections(),
            streams: self.network.world().pipes.iter().filter(|pipe| !pipe.dropped).count(),
            carried,
            waiting: self.pool.routes[0].waiting(),
        }
    }

    pub(super) fn pipe<R>(&mut self, stream: usize, act: impl FnOnce(&mut Pipe) -> R) -> R {
        act(&mut self.network.world().pipes[stream])
    }

    /// A stream comes to be connected, or is refused. Nothing if that was decided before.
    pub fn connect(&mut self, stream: usize, well: bool) {
        self.pipe(stream, |pipe| {
            if pipe.connected.is_none() {
                (pipe.connected, pipe.news) = (Some(well), true);
            }
        });
    }

    /// The server says something; false if it cannot.
    pub fn say(&mut self, stream: usize, bytes: &[u8]) -> bool {
        self.pipe(stream, |pipe| {
            let can = pipe.connected == Some(true) && pipe.ended.is_none() && !pipe.dropped;
            if can {
                pipe.to_client.extend(bytes);
                pipe.news |= !bytes.is_empty();
            }
            can
        })
    }

    /// The server ends a stream, politely or by a reset.
    pub fn end(&mut self, stream: usize, well: bool) {
        self.pipe(stream, |pipe| {
            if pipe.connected == Some(true) && pipe.ended.is_none() {
                (pipe.ended, pipe.news) = (Some(well), true);
            }
        });
    }

    /// The client may write so many bytes from now on.
    pub fn make_room(&mut self, stream: usize, room: usize) {
        self.pipe(stream, |pipe| {
            pipe.news |= pipe.room == 0 && room > 0;
            pipe.room = room;
        });
    }

    /// Forgets what the client has written.
    pub fn swallow(&mut self, stream: usize) {
        self.pipe(stream, |pipe| pipe.to_server.clear());
    }

    /// Bytes that the server has said and the client has not read.
    #[must_use]
    pub fn unread(&self, stream: usize) -> usize {
        self.network.world().pipes[stream].to_client.len()
    }

    /// Reports a stream, if there is anything new about it.
    pub fn report(&mut self, stream: usize) -> bool {
        let Some((token, flags)) = self.pipe(stream, Pipe::report) else { return false };
        self.act(|pool, now, desk| pool.drive(token, flags, now, desk));
        true
    }
}

/// What a client holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Connections, whatever their stage.
    pub connections: usize,
    /// Streams that it has not let go.
    pub streams: usize,
    /// Requests on a connection.
    pub carried: usize,
    /// Hits that wait for one.
    pub waiting: usize,
}
