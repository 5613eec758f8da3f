//! The transport without a system: streams in memory, a clock moved by hand, a server that does what a seed says, and readiness
//! reported only where something is new, as an edge-triggered poller does. Whatever the order of events, what must hold holds.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard};

use rustls::{ServerConfig, ServerConnection};
use seawall_testkit::frames::{self, Frame, Frames};
use seawall_testkit::tls::Authority;

use super::connection::Stage;
use super::making::{Limits, Making};
use super::pool::Pool;
use super::retry::{Again, Policy, retry};
use super::routes::{Resolver, Routes};
use super::socket::{Address, ConnectError, Moved};
use super::sources::Sources;
use super::{Desk, Event, Network, Place, Stream, Time};
use crate::clock::{Nanos, RunClock, SECOND};
use crate::fault::Fault;
use crate::flights::{FlightKey, Flights, Which};
use crate::poller::{EventFlags, Poller};
use crate::request::{Request, Style};
use crate::resolve::Dial;
use crate::schedule::Hit;
use crate::stats::Stats;
use crate::supply::{List, Supply};
use crate::target::{Target, Weight};
use crate::tls::Tls;

/// All streams there ever were, and the time.
#[derive(Debug, Default)]
struct World {
    now: Nanos,
    pipes: Vec<Pipe>,
}

/// Both directions of one stream.
#[derive(Debug, Default)]
struct Pipe {
    /// How the attempt to connect ended, if it has.
    connected: Option<bool>,
    to_server: Vec<u8>,
    to_client: VecDeque<u8>,
    /// Bytes that are made up where `to_client` is empty.
    endless: Option<&'static [u8]>,
    /// Bytes that the client may write now.
    room: usize,
    /// The server's end: politely or by a reset.
    ended: Option<bool>,
    /// The client has let go of it.
    dropped: bool,
    token: u64,
    /// Something is to be reported.
    news: bool,
}

#[derive(Debug, Clone, Default)]
struct SimNetwork(Arc<Mutex<World>>);

#[derive(Debug)]
struct SimStream {
    world: Arc<Mutex<World>>,
    index: usize,
}

impl SimNetwork {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

impl Time for SimNetwork {
    fn now(&self) -> Nanos {
        self.world().now
    }
}

impl Network for SimNetwork {
    type Stream = SimStream;

    fn connect(&self, _: &Address, _: Option<IpAddr>) -> Result<(SimStream, bool), ConnectError> {
        let mut world = self.world();
        world.pipes.push(Pipe { room: 1 << 20, ..Pipe::default() });
        Ok((SimStream { world: Arc::clone(&self.0), index: world.pipes.len() - 1 }, false))
    }

    fn watch(&self, stream: &SimStream, token: u64) -> Result<(), Fault> {
        self.world().pipes[stream.index].token = token;
        Ok(())
    }

    fn watch_again(&self, stream: &SimStream, _: u64) -> Result<(), Fault> {
        self.world().pipes[stream.index].news = true;
        Ok(())
    }
}

impl SimStream {
    fn with<R>(&self, act: impl FnOnce(&mut Pipe) -> R) -> R {
        act(&mut self.world.lock().unwrap().pipes[self.index])
    }
}

impl Stream for SimStream {
    fn finish_connect(&self) -> io::Result<()> {
        self.with(|pipe| match pipe.connected {
            Some(true) => Ok(()),
            _ => Err(io::ErrorKind::ConnectionRefused.into()),
        })
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<Moved> {
        self.with(|pipe| {
            if pipe.ended == Some(false) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            while let Some(endless) = pipe.endless.filter(|_| pipe.to_client.len() < buffer.len()) {
                pipe.to_client.extend(endless);
            }
            pipe.to_client.make_contiguous();
            match pipe.to_client.read(buffer)? {
                0 if pipe.ended.is_none() => Ok(Moved::Later),
                count => Ok(Moved::Bytes(count)),
            }
        })
    }

    fn write(&self, bytes: &[u8]) -> io::Result<Moved> {
        self.with(|pipe| {
            if pipe.ended == Some(false) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let count = bytes.len().min(pipe.room);
            pipe.room -= count;
            pipe.to_server.extend_from_slice(&bytes[..count]);
            Ok(if count == 0 { Moved::Later } else { Moved::Bytes(count) })
        })
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.with(|pipe| pipe.dropped = true);
    }
}

/// The server's end of one stream.
struct Server {
    secure: Option<ServerConnection>,
    http2: Option<Frames>,
    greeted: bool,
    /// Plain bytes of HTTP/1.1 requests.
    read: Vec<u8>,
    /// Requests that wait for an answer, by stream.
    requests: Vec<u32>,
}

impl Server {
    fn new(protocol: &Protocol) -> Self {
        let secure = protocol.tls.as_ref().map(|config| ServerConnection::new(Arc::clone(config)).unwrap());
        let http2 = protocol.http2.then(Frames::default);
        Self { secure, http2, greeted: false, read: Vec::new(), requests: Vec::new() }
    }

    /// Takes what the client has written.
    fn hear(&mut self, pipe: &mut Pipe) {
        let bytes = std::mem::take(&mut pipe.to_server);
        let plain = match &mut self.secure {
            None => bytes,
            Some(session) => decrypt(session, &bytes),
        };
        self.say(pipe, &[]);
        if self.secure.as_ref().is_some_and(|session| session.is_handshaking()) {
            return;
        }
        match &mut self.http2 {
            None => {
                self.read.extend_from_slice(&plain);
                while let Some(end) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                    self.read.drain(..end + 4);
                    self.requests.push(0);
                }
            }
            Some(frames) => {
                frames.feed(&plain);
                let mut answer = if self.greeted { Vec::new() } else { frames::settings() };
                self.greeted = true;
                while let Some(frame) = frames.next_frame() {
                    match frame {
                        Frame::Settings => answer.extend(frames::acknowledgement()),
                        Frame::Request(stream, _) => self.requests.push(stream),
                        Frame::Reset(stream) => self.requests.retain(|waiting| *waiting != stream),
                        _ => {}
                    }
                }
                self.say(pipe, &answer);
            }
        }
    }

    fn say(&mut self, pipe: &mut Pipe, bytes: &[u8]) {
        let before = pipe.to_client.len();
        match &mut self.secure {
            None => pipe.to_client.extend(bytes),
            Some(session) => {
                session.writer().write_all(bytes).unwrap();
                while session.wants_write() {
                    session.write_tls(&mut pipe.to_client).unwrap();
                }
            }
        }
        pipe.news |= pipe.to_client.len() > before;
    }

    /// Answers one of those that wait, whole or in part.
    fn answer(&mut self, pipe: &mut Pipe, which: usize, whole: bool) {
        let stream = self.requests.remove(which % self.requests.len());
        let bytes = match (&self.http2, whole) {
            (None, true) => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec(),
            (None, false) => b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi".to_vec(),
            (Some(_), last) => [frames::head(stream), frames::data(stream, b"hi", last)].concat(),
        };
        self.say(pipe, &bytes);
    }
}

fn decrypt(session: &mut ServerConnection, mut bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while !bytes.is_empty() {
        session.read_tls(&mut bytes).unwrap();
        session.process_new_packets().unwrap();
        // Nothing more for now.
        _ = session.reader().read_to_end(&mut plain);
    }
    plain
}

#[derive(Debug, Clone)]
struct Protocol {
    http2: bool,
    tls: Option<Arc<ServerConfig>>,
}

impl Protocol {
    fn four() -> [Self; 4] {
        let authority = Authority::new().unwrap();
        let tls = |protocol: &[u8]| Some(authority.server(&[protocol], false).unwrap());
        [
            Self { http2: false, tls: None },
            Self { http2: true, tls: None },
            Self { http2: false, tls: tls(b"http/1.1") },
            Self { http2: true, tls: tls(b"h2") },
        ]
    }

    fn request(&self) -> Request {
        let url = if self.tls.is_some() { "https://127.0.0.1/" } else { "http://127.0.0.1/" };
        let target = Target { method: "GET".into(), url: url.into(), ..Target::default() };
        Request::new(&target, &Style { http2: true, ..Style::default() }).unwrap()
    }

    fn pool(&self, network: SimNetwork, limits: Limits, listed: &[Request]) -> Pool<SimNetwork> {
        let (questions, (reply, replies)) = (channel().0, channel());
        let waker = Poller::new(RunClock::start()).unwrap().waker();
        let resolver = Resolver { questions, reply, replies, waker, asked: 0 };
        let making = Making {
            tls: Some(Tls { insecure: true, http2: self.http2, ..Tls::default() }.config().unwrap()),
            http2: self.http2,
            h2c: self.http2,
            streams: 3,
            dial: Arc::new(Dial::default()),
        };
        let mut routes = Routes::new(&HashMap::new(), making, Sources::default(), resolver);
        routes.list(listed);
        Pool::new(network, routes, limits)
    }
}

/// What has been told of a flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Track {
    key: FlightKey,
    sent: bool,
    wrote: bool,
    head: bool,
    at: Nanos,
}

/// Client, network and server.
struct Sim {
    network: SimNetwork,
    protocol: Protocol,
    pool: Pool<SimNetwork>,
    flights: Flights,
    supply: Supply,
    stats: Box<Stats>,
    servers: Vec<Server>,
    tracks: Vec<Track>,
    /// Answers, and ends without one.
    ended: [u64; 2],
    limits: Limits,
    rng: fastrand::Rng,
}

fn limits() -> Limits {
    Limits {
        connections: 2,
        idle: usize::MAX,
        requests: u64::MAX,
        age: Nanos::MAX,
        http2_connections: 1,
        step: SECOND,
        sources: Sources::default(),
    }
}

impl Sim {
    fn new(protocol: &Protocol, limits: Limits, seed: u64) -> Self {
        let network = SimNetwork::default();
        let list = List::new(vec![(protocol.request(), Weight::default())]).unwrap();
        let pool = protocol.pool(network.clone(), limits.clone(), list.requests());
        let supply = Supply::list(list, &Style { http2: true, ..Style::default() });
        Self {
            pool,
            network,
            protocol: protocol.clone(),
            flights: Flights::new(),
            supply,
            stats: Box::default(),
            servers: Vec::new(),
            tracks: Vec::new(),
            ended: [0; 2],
            limits,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    fn act(&mut self, act: impl FnOnce(&mut Pool<SimNetwork>, Nanos, &mut Desk<'_>)) {
        let now = self.network.now();
        let (flights, supply, stats) = (&mut self.flights, &self.supply, &mut *self.stats);
        act(&mut self.pool, now, &mut Desk { flights, supply, stats });
    }

    /// The same, and looks after what it came to, as the loop does.
    fn travel(&mut self, act: impl FnOnce(&mut Pool<SimNetwork>, Nanos, &mut Desk<'_>)) {
        self.act(act);
        while let Some(event) = self.pool.next_event() {
            self.note(event);
        }
        while self.servers.len() < self.network.world().pipes.len() {
            self.servers.push(Server::new(&self.protocol));
        }
        self.check();
    }

    fn track(&mut self, key: FlightKey, at: Nanos) -> &mut Track {
        let track = self.tracks.iter_mut().find(|track| track.key == key).expect("nothing after the end");
        assert!(at >= track.at, "told in the order in which it happened");
        track.at = at;
        track
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Sent(key, at) => self.track(key, at).sent = true,
            Event::Wrote(key, at) => {
                let track = self.track(key, at);
                assert!(track.sent && !std::mem::replace(&mut track.wrote, true));
            }
            Event::Head(key, at) => {
                let track = self.track(key, at);
                assert!(track.sent && !std::mem::replace(&mut track.head, true));
            }
            Event::Done(key, at) => {
                assert!(self.track(key, at).head);
                self.end(key, true);
            }
            Event::Failed(failure) => {
                let track = self.track(failure.key, failure.at);
                (track.sent, track.wrote, track.head) = (false, false, false);
                let flight = self.flights.of(failure.key);
                flight.place = Place::Nowhere;
                flight.retries += 1;
                let attempts = flight.retries - 1;
                match retry(failure.progress, failure.reused, true, attempts, Policy::GO) {
                    Again::No => self.end(failure.key, false),
                    Again::Anywhere => self.act(|pool, now, desk| pool.place(failure.key, now, desk)),
                    Again::Fresh => self.act(|pool, now, desk| pool.place_fresh(failure.key, now, desk)),
                }
            }
            Event::Unreached(key, _) => self.end(key, false),
        }
    }

    fn end(&mut self, key: FlightKey, well: bool) {
        self.tracks.retain(|track| track.key != key);
        self.ended[usize::from(!well)] += 1;
        self.flights.remove(key);
    }

    fn launch(&mut self) -> FlightKey {
        let at = self.network.now();
        let key = self.flights.insert(Hit { seq: 0, due: at }, Which::Listed(0), 0, at + SECOND);
        self.tracks.push(Track { key, sent: false, wrote: false, head: false, at });
        self.travel(|pool, now, desk| pool.place(key, now, desk));
        key
    }

    fn cancel(&mut self, key: FlightKey) {
        self.act(|pool, _, desk| pool.cancel(key, desk));
        self.end(key, false);
        self.travel(|_, _, _| ());
    }

    /// Reports a stream, if there is anything new about it.
    fn report(&mut self, index: usize) -> bool {
        let (token, flags) = {
            let pipe = &mut self.network.world().pipes[index];
            if pipe.dropped || !std::mem::take(&mut pipe.news) {
                return false;
            }
            let mut flags = EventFlags::OUT;
            flags.set(EventFlags::IN, !pipe.to_client.is_empty() || pipe.endless.is_some());
            flags.set(EventFlags::IN | EventFlags::RDHUP, pipe.ended.is_some());
            flags.set(EventFlags::ERR, pipe.ended == Some(false) || pipe.connected == Some(false));
            (pipe.token, flags)
        };
        self.travel(|pool, now, desk| pool.drive(token, flags, now, desk));
        true
    }

    fn pipe<R>(&mut self, index: usize, act: impl FnOnce(&mut Server, &mut Pipe) -> R) -> R {
        act(&mut self.servers[index], &mut self.network.world().pipes[index])
    }

    fn connect(&mut self, index: usize, well: bool) {
        self.pipe(index, |_, pipe| {
            if pipe.connected.is_none() {
                (pipe.connected, pipe.news) = (Some(well), true);
            }
        });
    }

    fn hear(&mut self, index: usize) {
        self.pipe(index, |server, pipe| {
            if pipe.connected == Some(true) && pipe.ended.is_none() && !pipe.dropped {
                server.hear(pipe);
            }
        });
    }

    fn answer(&mut self, index: usize, which: usize, whole: bool) {
        self.pipe(index, |server, pipe| {
            if pipe.ended.is_none() && !server.requests.is_empty() {
                server.answer(pipe, which, whole);
            }
        });
    }

    fn end_stream(&mut self, index: usize, well: bool) {
        self.pipe(index, |_, pipe| {
            if pipe.connected == Some(true) && pipe.ended.is_none() {
                (pipe.ended, pipe.news) = (Some(well), true);
            }
        });
    }

    fn make_room(&mut self, index: usize, room: usize) {
        self.pipe(index, |_, pipe| {
            pipe.news |= pipe.room == 0 && room > 0;
            pipe.room = room;
        });
    }

    fn say(&mut self, index: usize, bytes: &[u8]) {
        self.pipe(index, |server, pipe| {
            if server.greeted && server.http2.is_some() && pipe.ended.is_none() {
                server.say(pipe, bytes);
            }
        });
    }

    /// One of the things that may happen next.
    fn step(&mut self) {
        let count = self.servers.len();
        if count == 0 || self.rng.u8(..6) == 0 {
            self.launch();
            return;
        }
        // Mostly the latest: the others have ended.
        let index = count - 1 - self.rng.usize(..count.min(4));
        let which = self.rng.usize(..8);
        match self.rng.u8(..40) {
            0..8 => self.connect(index, true),
            8 => self.connect(index, false),
            9..16 => self.hear(index),
            16..22 => self.answer(index, which, true),
            22 => self.answer(index, which, false),
            23..30 => _ = self.report(index),
            30..33 => self.travel(Pool::flush),
            33 => self.end_stream(index, which.is_multiple_of(2)),
            34 => self.make_room(index, [0, 10, 1 << 20][which % 3]),
            35 => self.network.world().now += [1, 1_000, SECOND / 3][which % 3],
            36 => self.travel(Pool::look_after),
            37 => self.say(index, &frames::goaway(1)),
            38 => {
                let stream = self.servers[index].requests.pop().unwrap_or(1);
                self.say(index, &frames::reset(stream, [7, 2][which % 2]));
            }
            _ => {
                if let Some(track) = self.tracks.get(which) {
                    self.cancel(track.key);
                }
            }
        }
    }

    /// The server does from now on what it should, until nothing is left to do.
    fn calm_down(&mut self) {
        for _ in 0..200 {
            self.travel(Pool::flush);
            let mut busy = false;
            for index in 0..self.servers.len() {
                self.connect(index, true);
                self.make_room(index, 1 << 20);
                busy |= self.report(index);
                self.hear(index);
                while !self.servers[index].requests.is_empty()
                    && self.network.world().pipes[index].ended.is_none()
                {
                    self.answer(index, 0, true);
                }
                busy |= self.report(index);
            }
            if !busy {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// Every connection is listed, opening, full or draining, and those who wait have one to wait for.
    fn check(&self) {
        let pool = &self.pool;
        let route = &pool.routes[0];
        let mut opening = 0;
        for (index, connection) in &pool.connections {
            let listed = route.ready.contains(&index);
            assert_eq!(listed, connection.listed);
            match connection.stage() {
                Stage::Opening => opening += 1,
                Stage::Open => {
                    assert!(listed || connection.capacity() == 0 || connection.dirty, "{connection:?}");
                }
                Stage::Retiring => {
                    assert!(!listed && (connection.load() > 0 || connection.dirty), "{connection:?}");
                }
            }
        }
        assert_eq!((route.open, route.opening), (pool.connections.len(), opening));
        assert!(route.open <= self.limits.connections);
        let hope = route.opening > 0 || route.open == self.limits.connections;
        assert!(route.waiting() == 0 || hope, "somebody waits for nothing");
        let held = self.network.world().pipes.iter().filter(|pipe| !pipe.dropped).count();
        assert_eq!(held, pool.connections.len(), "no stream is open that no connection has");
    }

    /// What is left when nobody asks for anything.
    fn check_rest(&self) {
        let idle = self.pool.connections.iter().all(|(_, connection)| connection.load() == 0);
        assert!(idle && self.pool.routes[0].waiting() == 0);
    }
}

fn run(protocol: &Protocol, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let limits = Limits {
        connections: rng.usize(1..5),
        idle: [0, 1, usize::MAX][rng.usize(..3)],
        requests: [1, 3, u64::MAX][rng.usize(..3)],
        age: [SECOND / 2, Nanos::MAX][rng.usize(..2)],
        http2_connections: rng.usize(1..3),
        ..limits()
    };
    let mut sim = Sim::new(protocol, limits, seed);
    (0..150).for_each(|_| sim.step());
    // Half an answer that the server owes is given up by the client.
    sim.calm_down();
    while let Some(track) = sim.tracks.first() {
        sim.cancel(track.key);
        sim.calm_down();
    }
    sim.check_rest();
    // It still works.
    let before = sim.ended;
    sim.launch();
    sim.calm_down();
    assert_eq!((sim.ended[0], sim.ended[1]), (before[0] + 1, before[1]), "seed {seed}");
}

#[test]
fn whatever_the_order_of_events_every_flight_ends_and_every_connection_is_accounted_for() {
    let four = Protocol::four();
    for seed in 0..1000 {
        let ran =
            std::thread::scope(|scope| scope.spawn(|| run(&four[seed as usize % 4], seed)).join().is_ok());
        assert!(ran, "seed {seed}");
    }
}

impl Sim {
    /// One flight on one open connection, whose server has its request.
    fn with_one(protocol: &Protocol) -> (Self, FlightKey) {
        let mut sim = Self::new(protocol, limits(), 0);
        let key = sim.launch();
        sim.connect(0, true);
        while sim.servers[0].requests.is_empty() {
            sim.report(0);
            sim.travel(Pool::flush);
            sim.hear(0);
        }
        (sim, key)
    }
}

/// It was read to its end, whatever else was due.
#[test]
fn a_body_that_never_ends_is_read_for_one_turn() {
    static HTTP1: [u8; 16_384] = [b'x'; 16_384];
    for protocol in Protocol::four().iter().filter(|protocol| protocol.tls.is_none()) {
        let (mut sim, _) = Sim::with_one(protocol);
        let head = match protocol.http2 {
            true => frames::head(1),
            false => b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        };
        let piece = if protocol.http2 { frames::data(1, &HTTP1, false) } else { HTTP1.to_vec() };
        sim.pipe(0, |server, pipe| {
            server.say(pipe, &head);
            pipe.endless = Some(piece.leak());
        });
        for turn in 1..=100 {
            let before = sim.flights.any().map(|key| sim.flights.of(key).answer.bytes_in).unwrap();
            assert!(sim.report(0), "the rest is reported again");
            let read = sim.flights.any().map(|key| sim.flights.of(key).answer.bytes_in).unwrap() - before;
            assert!((1..=1 << 20).contains(&read), "{protocol:?} turn {turn}: {read}");
            // What was asked for by way of windows.
            sim.pipe(0, |_, pipe| pipe.to_server.clear());
        }
    }
}

/// It was dated when it was handed to the library.
#[test]
fn a_request_is_sent_when_its_frames_leave() {
    for protocol in Protocol::four() {
        let (mut sim, _) = Sim::with_one(&protocol);
        sim.answer(0, 0, true);
        sim.report(0);
        sim.make_room(0, 0);
        sim.network.world().now = 100;
        let key = sim.launch();
        sim.travel(Pool::flush);
        let sent = |sim: &Sim| {
            let track = sim.tracks.iter().find(|track| track.key == key).unwrap();
            (track.sent, track.wrote, track.at)
        };
        // A write that was tried is one, where nothing stands between.
        let tried = !protocol.http2;
        assert_eq!(sent(&sim), (tried, false, 100), "{protocol:?}");
        sim.network.world().now = 300;
        sim.make_room(0, 1 << 20);
        sim.report(0);
        assert_eq!(sent(&sim), (true, true, 300), "{protocol:?}");
    }
}

impl Sim {
    /// The server answers on one connection all that comes.
    fn serve(&mut self, index: usize) {
        self.connect(index, true);
        for _ in 0..50 {
            self.report(index);
            self.travel(Pool::flush);
            self.hear(index);
            self.answer(index, 0, true);
        }
    }

    fn streams(&self) -> usize {
        self.network.world().pipes.len()
    }
}

/// Each was bound to the connection that it had opened.
#[test]
fn whoever_waits_takes_the_connection_that_is_open_first() {
    for protocol in Protocol::four() {
        let mut sim = Sim::new(&protocol, Limits { connections: 4, ..limits() }, 0);
        (0..9).for_each(|_| _ = sim.launch());
        sim.serve(0);
        assert_eq!(sim.ended, [9, 0], "{}", sim.streams());
    }
}

/// The handshake ended with the hit that had begun it.
#[test]
fn a_handshake_outlives_the_hit_that_wanted_it() {
    for protocol in Protocol::four() {
        let mut sim = Sim::new(&protocol, limits(), 0);
        let key = sim.launch();
        sim.cancel(key);
        sim.launch();
        sim.serve(0);
        assert_eq!((sim.ended, sim.streams()), ([1, 1], 1));
    }
}

#[test]
fn a_step_of_opening_that_takes_too_long_is_tried_again_and_no_hit_fails_for_it() {
    for protocol in Protocol::four() {
        let mut sim = Sim::new(&protocol, limits(), 0);
        sim.launch();
        sim.network.world().now = SECOND;
        sim.travel(Pool::look_after);
        assert_eq!(sim.streams(), 2);
        sim.serve(1);
        assert_eq!(sim.ended, [1, 0]);
    }
}

/// It was the server's time.
#[test]
fn what_waits_for_room_is_sent_when_there_is_room() {
    for protocol in Protocol::four() {
        let mut sim = Sim::new(&protocol, Limits { connections: 1, requests: 1, ..limits() }, 0);
        sim.launch();
        let second = sim.launch();
        sim.network.world().now = 500;
        sim.serve(0);
        let sent = |sim: &Sim| sim.tracks.iter().find(|track| track.key == second).unwrap().sent;
        assert!(!sent(&sim));
        sim.network.world().now = 900;
        sim.connect(1, true);
        while sim.servers[1].requests.is_empty() {
            sim.report(1);
            sim.travel(Pool::flush);
            sim.hear(1);
        }
        assert!(sent(&sim) && sim.tracks[0].at == 900);
    }
}
