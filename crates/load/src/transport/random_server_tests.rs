//! A simulation of the transport with a server whose behaviour depends on a seed. Invariants hold for every order of events.

mod arrivals;

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};
use seawall_testkit::http2_frames::{self, ClientFrameReader, Frame};
use seawall_testkit::tls::CertificateAuthority;

use super::connection::ConnectionStage;
use super::connector_config::{ConnectionLimits, ConnectorConfig};
use super::memory_network::Pipe;
use super::response_parser::CaptureOptions;
use super::source_addresses::SourceAddresses;
use super::transport_harness::{HarnessEvent, HarnessEventKind, TransportHarness};
use crate::clock::{Nanos, SECOND};
use crate::origin_resolution::DialOptions;
use crate::request::{PreparedRequest, RequestFraming};
use crate::target::Target;
use crate::tls::TlsOptions;

/// The server's end of one stream.
struct Server {
    secure: Option<ServerConnection>,
    http2: Option<ClientFrameReader>,
    greeted: bool,
    /// The plain bytes of HTTP/1.1 requests.
    read: Vec<u8>,
    /// The requests that wait for a response, by stream.
    requests: Vec<u32>,
}

impl Server {
    fn new(protocol: &Protocol) -> Self {
        let secure = protocol.tls.as_ref().map(|config| ServerConnection::new(Arc::clone(config)).unwrap());
        let http2 = protocol.http2.then(ClientFrameReader::default);
        Self { secure, http2, greeted: false, read: Vec::new(), requests: Vec::new() }
    }

    /// Reads the data that the client has written.
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
                let mut answer = if self.greeted { Vec::new() } else { http2_frames::settings() };
                self.greeted = true;
                while let Some(frame) = frames.next_frame() {
                    match frame {
                        Frame::Settings => answer.extend(http2_frames::settings_ack()),
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
        pipe.has_unreported_change |= pipe.to_client.len() > before;
    }

    /// Responds to one of the waiting requests, wholly or in part.
    fn answer(&mut self, pipe: &mut Pipe, which: usize, whole: bool) {
        let stream = self.requests.remove(which % self.requests.len());
        let bytes = match (&self.http2, whole) {
            (None, true) => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec(),
            (None, false) => b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi".to_vec(),
            (Some(_), last) => {
                [http2_frames::headers(stream), http2_frames::data(stream, b"hi", last)].concat()
            }
        };
        self.say(pipe, &bytes);
    }
}

fn decrypt(session: &mut ServerConnection, mut bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while !bytes.is_empty() {
        session.read_tls(&mut bytes).unwrap();
        session.process_new_packets().unwrap();
        // The rest is not sent now.
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
        let authority = CertificateAuthority::new().unwrap();
        let tls = |protocol: &[u8]| Some(authority.server_config(&[protocol], false).unwrap());
        [
            Self { http2: false, tls: None },
            Self { http2: true, tls: None },
            Self { http2: false, tls: tls(b"http/1.1") },
            Self { http2: true, tls: tls(b"h2") },
        ]
    }

    fn request(&self) -> PreparedRequest {
        let url = if self.tls.is_some() { "https://127.0.0.1/" } else { "http://127.0.0.1/" };
        let target = Target { method: "GET".into(), url: url.into(), ..Target::default() };
        PreparedRequest::new(&target, &RequestFraming { may_use_http2: true, ..RequestFraming::default() })
            .unwrap()
    }

    fn client(&self, limits: ConnectionLimits) -> TransportHarness {
        let making = ConnectorConfig {
            tls: Some(
                TlsOptions { insecure: true, http2: self.http2, ..TlsOptions::default() }.config().unwrap(),
            ),
            may_negotiate_http2: self.http2,
            h2c: self.http2,
            max_streams: 3,
            keep_alive: true,
            dial: Arc::new(DialOptions::default()),
            connections_begun: Arc::default(),
        };
        TransportHarness::from_requests(vec![self.request()], making, limits, CaptureOptions::default())
            .unwrap()
    }
}

/// The reported events of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Track {
    hit: u64,
    sent: bool,
    wrote: bool,
    head: bool,
    at: Nanos,
}

/// The client, the network and the server.
struct Sim {
    client: TransportHarness,
    protocol: Protocol,
    servers: Vec<Server>,
    tracks: Vec<Track>,
    /// The numbers of complete responses, and of requests that ended without one.
    ended: [u64; 2],
    limits: ConnectionLimits,
    rng: fastrand::Rng,
}

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        connections: 2,
        max_idle: usize::MAX,
        requests: u64::MAX,
        age: Nanos::MAX,
        http2_connections: 1,
        opening_step_timeout: SECOND,
        source_addresses: SourceAddresses::default(),
    }
}

impl Sim {
    fn new(protocol: &Protocol, limits: ConnectionLimits, seed: u64) -> Self {
        Self {
            client: protocol.client(limits.clone()),
            protocol: protocol.clone(),
            servers: Vec::new(),
            tracks: Vec::new(),
            ended: [0; 2],
            limits,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Handles the reported events.
    fn heed(&mut self) {
        while let Some(news) = self.client.next_event() {
            self.note(&news);
        }
        while self.servers.len() < self.client.stream_count() {
            self.servers.push(Server::new(&self.protocol));
        }
        self.check();
    }

    fn track(&mut self, hit: u64, at: Nanos) -> &mut Track {
        let track = self.tracks.iter_mut().find(|track| track.hit == hit).expect("no event after the end");
        assert!(at >= track.at, "events are reported in the order in which they happened");
        track.at = at;
        track
    }

    fn note(&mut self, news: &HarnessEvent) {
        let hit = news.request_number.expect("no event after the end");
        let track = self.track(hit, news.at);
        match news.kind {
            HarnessEventKind::Sent => track.sent = true,
            HarnessEventKind::LastRequestByte => {
                assert!(track.sent && !std::mem::replace(&mut track.wrote, true));
            }
            HarnessEventKind::FirstResponseByte => {
                assert!(track.sent && !std::mem::replace(&mut track.head, true));
            }
            HarnessEventKind::Retried => (track.sent, track.wrote, track.head) = (false, false, false),
            HarnessEventKind::Answered(_) => {
                assert!(track.head);
                self.end(hit, true);
            }
            HarnessEventKind::Failed => self.end(hit, false),
        }
    }

    fn end(&mut self, hit: u64, well: bool) {
        self.tracks.retain(|track| track.hit != hit);
        self.ended[usize::from(!well)] += 1;
    }

    fn launch(&mut self) -> u64 {
        let at = self.client.now();
        let hit = self.client.launch(0);
        self.tracks.push(Track { hit, sent: false, wrote: false, head: false, at });
        self.heed();
        hit
    }

    fn cancel(&mut self, hit: u64) {
        assert!(self.client.cancel(hit));
        self.end(hit, false);
        self.heed();
    }

    fn flush(&mut self) {
        self.client.drive_marked_connections();
        self.heed();
    }

    fn look_after(&mut self) {
        self.client.expire_attempts();
        self.heed();
    }

    fn report(&mut self, index: usize) -> bool {
        let reported = self.client.deliver_poller_report(index);
        self.heed();
        reported
    }

    fn pipe<R>(&mut self, index: usize, act: impl FnOnce(&mut Server, &mut Pipe) -> R) -> R {
        let server = &mut self.servers[index];
        self.client.with_pipe(index, |pipe| act(server, pipe))
    }

    fn hear(&mut self, index: usize) {
        self.pipe(index, |server, pipe| {
            if pipe.connect_outcome == Some(true) && pipe.closed_cleanly.is_none() && !pipe.dropped_by_client
            {
                server.hear(pipe);
            }
        });
    }

    fn answer(&mut self, index: usize, which: usize, whole: bool) {
        self.pipe(index, |server, pipe| {
            if pipe.closed_cleanly.is_none() && !server.requests.is_empty() {
                server.answer(pipe, which, whole);
            }
        });
    }

    fn say(&mut self, index: usize, bytes: &[u8]) {
        self.pipe(index, |server, pipe| {
            if server.greeted && server.http2.is_some() && pipe.closed_cleanly.is_none() {
                server.say(pipe, bytes);
            }
        });
    }

    /// Takes one of the possible next steps.
    fn step(&mut self) {
        let count = self.servers.len();
        if count == 0 || self.rng.u8(..6) == 0 {
            self.launch();
            return;
        }
        // Mostly the latest stream is chosen, because the others have ended.
        let index = count - 1 - self.rng.usize(..count.min(4));
        let which = self.rng.usize(..8);
        match self.rng.u8(..40) {
            0..8 => self.client.decide_connect_attempt(index, true),
            8 => self.client.decide_connect_attempt(index, false),
            9..16 => self.hear(index),
            16..22 => self.answer(index, which, true),
            22 => self.answer(index, which, false),
            23..30 => _ = self.report(index),
            30..33 => self.flush(),
            33 => self.client.end_stream(index, which.is_multiple_of(2)),
            34 => self.client.set_write_room(index, [0, 10, 1 << 20][which % 3]),
            35 => self.client.advance_time([1, 1_000, SECOND / 3][which % 3]),
            36 => self.look_after(),
            37 => self.say(index, &http2_frames::goaway(1)),
            38 => {
                let stream = self.servers[index].requests.pop().unwrap_or(1);
                self.say(index, &http2_frames::rst_stream(stream, [7, 2][which % 2]));
            }
            _ => {
                if let Some(track) = self.tracks.get(which) {
                    self.cancel(track.hit);
                }
            }
        }
    }

    /// Lets the server behave correctly until nothing is left to do.
    fn calm_down(&mut self) {
        for _ in 0..200 {
            self.flush();
            let mut busy = false;
            for index in 0..self.servers.len() {
                self.client.decide_connect_attempt(index, true);
                self.client.set_write_room(index, 1 << 20);
                busy |= self.report(index);
                self.hear(index);
                while !self.servers[index].requests.is_empty()
                    && self.client.with_pipe(index, |pipe| pipe.closed_cleanly.is_none())
                {
                    self.answer(index, 0, true);
                }
                busy |= self.report(index);
            }
            if !busy {
                return;
            }
        }
        panic!("the simulation does not end");
    }

    /// Checks that every connection is listed, opening, full or draining, and that waiting requests have a connection to wait
    /// for.
    fn check(&self) {
        let pool = &self.client.pool;
        let route = &pool.routes[0];
        let mut opening = 0;
        for (index, connection) in &pool.connections {
            let listed = route.ready_connections.contains(&index);
            assert_eq!(listed, connection.is_in_ready_list);
            match connection.stage() {
                ConnectionStage::Opening => opening += 1,
                ConnectionStage::Open => {
                    assert!(
                        listed || connection.free_capacity() == 0 || connection.needs_drive,
                        "{connection:?}"
                    );
                }
                ConnectionStage::Retiring => {
                    assert!(
                        !listed && (connection.active_requests() > 0 || connection.needs_drive),
                        "{connection:?}"
                    );
                }
            }
        }
        assert_eq!((route.connection_count, route.opening_count), (pool.connections.len(), opening));
        assert!(route.connection_count <= self.limits.connections);
        let hope = route.opening_count > 0 || route.connection_count == self.limits.connections;
        assert!(
            route.waiting_requests() == 0 || hope,
            "a request waits although no connection can become free"
        );
        let held = self.client.held_resources();
        assert_eq!(held.streams, held.connections, "each open stream belongs to a connection");
    }

    /// Checks the state that is left when there are no more requests.
    fn check_rest(&self) {
        let held = self.client.held_resources();
        assert_eq!((held.requests_on_connections, held.waiting_requests), (0, 0));
    }
}

fn run(protocol: &Protocol, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let limits = ConnectionLimits {
        connections: rng.usize(1..5),
        max_idle: [0, 1, usize::MAX][rng.usize(..3)],
        requests: [1, 3, u64::MAX][rng.usize(..3)],
        age: [SECOND / 2, Nanos::MAX][rng.usize(..2)],
        http2_connections: rng.usize(1..3),
        ..limits()
    };
    let mut sim = Sim::new(protocol, limits, seed);
    (0..150).for_each(|_| sim.step());
    // The client gives up half a response that the server does not complete.
    sim.calm_down();
    while let Some(track) = sim.tracks.first() {
        sim.cancel(track.hit);
        sim.calm_down();
    }
    sim.check_rest();
    // The connection still works.
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
    /// Returns a simulation with one request on one open connection, whose server has the request.
    fn with_one(protocol: &Protocol) -> (Self, u64) {
        let mut sim = Self::new(protocol, limits(), 0);
        let key = sim.launch();
        sim.client.decide_connect_attempt(0, true);
        while sim.servers[0].requests.is_empty() {
            sim.report(0);
            sim.flush();
            sim.hear(0);
        }
        (sim, key)
    }
}

/// The body used to be read to its end, whatever else was due.
#[test]
fn a_body_that_never_ends_is_read_for_one_turn() {
    static HTTP1: [u8; 16_384] = [b'x'; 16_384];
    for protocol in Protocol::four().iter().filter(|protocol| protocol.tls.is_none()) {
        let (mut sim, _) = Sim::with_one(protocol);
        let head = match protocol.http2 {
            true => http2_frames::headers(1),
            false => b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        };
        let piece = if protocol.http2 { http2_frames::data(1, &HTTP1, false) } else { HTTP1.to_vec() };
        sim.pipe(0, |server, pipe| {
            server.say(pipe, &head);
            pipe.endless_data = Some(piece.leak());
        });
        for turn in 1..=100 {
            let before = sim.bytes_in();
            assert!(sim.report(0), "the unread rest is reported again");
            let read = sim.bytes_in() - before;
            assert!((1..=1 << 20).contains(&read), "{protocol:?}, turn {turn}: {read} bytes read");
            // These are the bytes that window updates requested.
            sim.pipe(0, |_, pipe| pipe.to_server.clear());
        }
    }
}

/// The request used to be dated when it was handed to the library.
#[test]
fn a_request_is_sent_when_its_frames_leave() {
    for protocol in Protocol::four() {
        let (mut sim, _) = Sim::with_one(&protocol);
        sim.answer(0, 0, true);
        sim.report(0);
        sim.client.set_write_room(0, 0);
        sim.client.network.lock_state().now = 100;
        let key = sim.launch();
        sim.flush();
        let sent = |sim: &Sim| {
            let track = sim.tracks.iter().find(|track| track.hit == key).unwrap();
            (track.sent, track.wrote, track.at)
        };
        // A write that was tried counts, if there is no buffer in between.
        let tried = !protocol.http2;
        assert_eq!(sent(&sim), (tried, false, 100), "{protocol:?}");
        sim.client.network.lock_state().now = 300;
        sim.client.set_write_room(0, 1 << 20);
        sim.report(0);
        assert_eq!(sent(&sim), (true, true, 300), "{protocol:?}");
    }
}

impl Sim {
    /// Makes the server respond to everything on one connection.
    fn serve(&mut self, index: usize) {
        self.client.decide_connect_attempt(index, true);
        for _ in 0..50 {
            self.report(index);
            self.flush();
            self.hear(index);
            self.answer(index, 0, true);
        }
    }

    fn streams(&self) -> usize {
        self.client.stream_count()
    }

    /// Returns the number of body bytes of the first response that is not complete.
    fn bytes_in(&mut self) -> u64 {
        let key = self.client.flights.first_to_expire().unwrap();
        self.client.flights.get_mut(key).answer.bytes_in
    }
}

/// Each request used to be bound to the connection that it had opened.
#[test]
fn whoever_waits_takes_the_connection_that_is_open_first() {
    for protocol in Protocol::four() {
        let mut sim = Sim::new(&protocol, ConnectionLimits { connections: 4, ..limits() }, 0);
        (0..9).for_each(|_| _ = sim.launch());
        sim.serve(0);
        assert_eq!(sim.ended, [9, 0], "{}", sim.streams());
    }
}

/// The handshake used to end with the request that had begun it.
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
        sim.client.network.lock_state().now = SECOND;
        sim.look_after();
        assert_eq!(sim.streams(), 2);
        sim.serve(1);
        assert_eq!(sim.ended, [1, 0]);
    }
}

/// The wait used to count as the server's time.
#[test]
fn what_waits_for_room_is_sent_when_there_is_room() {
    for protocol in Protocol::four() {
        let mut sim = Sim::new(&protocol, ConnectionLimits { connections: 1, requests: 1, ..limits() }, 0);
        sim.launch();
        let second = sim.launch();
        sim.client.network.lock_state().now = 500;
        sim.serve(0);
        let sent = |sim: &Sim| sim.tracks.iter().find(|track| track.hit == second).unwrap().sent;
        assert!(!sent(&sim));
        sim.client.network.lock_state().now = 900;
        sim.client.decide_connect_attempt(1, true);
        while sim.servers[1].requests.is_empty() {
            sim.report(1);
            sim.flush();
            sim.hear(1);
        }
        assert!(sent(&sim) && sim.tracks[0].at == 900);
    }
}

/// The poller used to report it together with the connection, and it was ignored: the request waited for its timeout.
#[test]
fn a_server_that_had_closed_by_the_time_its_connection_opened_is_noticed() {
    for protocol in Protocol::four().iter().filter(|protocol| protocol.tls.is_none()) {
        let mut sim = Sim::new(protocol, limits(), 0);
        sim.launch();
        sim.client.decide_connect_attempt(0, true);
        sim.client.end_stream(0, true);
        sim.report(0);
        sim.flush();
        assert_eq!(sim.ended, [0, 1], "{protocol:?}");
    }
}

/// Regression: unsent data to a server that was gone kept the connection.
#[test]
fn an_idle_connection_ends_with_its_server_although_nothing_can_be_written() {
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], b"12345678"].concat();
    for protocol in Protocol::four().iter().filter(|protocol| protocol.http2) {
        let (mut sim, _) = Sim::with_one(protocol);
        sim.answer(0, 0, true);
        sim.report(0);
        assert_eq!((sim.ended, sim.client.held_resources().connections), ([1, 0], 1));
        sim.client.set_write_room(0, 0);
        sim.say(0, &ping);
        sim.client.end_stream(0, true);
        sim.report(0);
        assert_eq!(sim.client.held_resources().connections, 0, "{protocol:?}");
    }
}

/// The library used to count each as a mistake of the server, and ended the connection with the 1,025th.
#[test]
fn answers_that_come_after_their_timeout_end_no_connection_however_many_they_are() {
    for protocol in Protocol::four().iter().filter(|protocol| protocol.http2 && protocol.tls.is_none()) {
        let (mut sim, first) = Sim::with_one(protocol);
        sim.cancel(first);
        for _ in 0..18_000 {
            let hit = sim.launch();
            sim.flush();
            // The request is there, and the one before is answered before the server reads its reset.
            sim.answer(0, 0, true);
            sim.hear(0);
            sim.cancel(hit);
            sim.report(0);
        }
        sim.launch();
        sim.calm_down();
        assert_eq!((sim.ended, sim.streams()), ([1, 18_001], 1), "{protocol:?}");
    }
}
