//! One behaviour over four protocols: HTTP/1.1 and HTTP/2, in the clear and over TLS. What a server does, and what comes of it,
//! has the same name in all of them.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustls::ServerConfig;
use seawall_load::clock::{SECOND, nanos};
use seawall_load::engine::{self, Http2Options, LoadSession, RunOutcome, RunPlan};
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::request_failure_reason::{OutcomeClass, RequestFault};
use seawall_load::request_source::{RequestList, RequestSource};
use seawall_load::schedule::{ArrivalModel, ArrivalSpacing, Schedule, StopCondition};
use seawall_load::stats_collector::NextIntervalResult;
use seawall_load::target::{Target, Weight};
use seawall_load::tls::TlsOptions;
use seawall_testkit::closure_server::{Peer, Server};
use seawall_testkit::http2_frames::{self, ClientFrameReader, Frame};
use seawall_testkit::tls::CertificateAuthority;

/// How a connection is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Protocol {
    http2: bool,
    tls: bool,
}

const FOUR: [Protocol; 4] = [
    Protocol { http2: false, tls: false },
    Protocol { http2: false, tls: true },
    Protocol { http2: true, tls: false },
    Protocol { http2: true, tls: true },
];

/// What a server does with a request.
#[derive(Debug, Clone, Copy)]
enum Act {
    Answer,
    Silence,
    /// Closes before a byte of an answer.
    Close,
    /// The same, rudely.
    Reset,
    /// Closes within an answer.
    Cut,
    /// An answer whose body has no end.
    Endless,
}

/// By the number of the connection and that of the request on it.
type Script = Arc<dyn Fn(usize, usize) -> Act + Send + Sync>;

/// A piece of an endless body takes so many bytes on the way, in things so small that a client has far more work with them
/// than a server that sends them as they are: the next is always there already.
const PIECE: usize = 16_000;

/// What of it is on its way, so that a server that has to wait for its turn is still ahead.
const AHEAD: usize = 4 << 20;

/// Of HTTP/1.1: one byte in each chunk.
fn chunks() -> Vec<u8> {
    b"1\r\nx\r\n".repeat(PIECE / 6)
}

/// Of HTTP/2: one byte, so that the window lasts, among frames that say nothing.
fn frames_around(stream: u32) -> Vec<u8> {
    [http2_frames::data(stream, b"x", false), http2_frames::unknown().repeat(PIECE / 40)].concat()
}

impl Protocol {
    fn server(self, script: impl Fn(usize, usize) -> Act + Send + Sync + 'static) -> Server {
        let play = self.play(script);
        let server = match self.config() {
            Some(config) => Server::start_tls(config, play),
            None => Server::start(play),
        };
        server.unwrap()
    }

    fn play(
        self,
        script: impl Fn(usize, usize) -> Act + Send + Sync + 'static,
    ) -> impl Fn(Peer, usize) -> io::Result<()> + Send + Sync + 'static {
        let script: Script = Arc::new(script);
        move |peer, number| match self.http2 {
            true => Streams::new(peer).play(number, &script),
            false => http1(peer, number, &script),
        }
    }

    fn config(self) -> Option<Arc<ServerConfig>> {
        let offered: &[&[u8]] = if self.http2 { &[b"h2"] } else { &[b"http/1.1"] };
        self.tls.then(|| CertificateAuthority::new().unwrap().server_config(offered, false).unwrap())
    }

    /// A closed loop of so many clients and requests.
    fn plan(self, server: &Server, requests: u64, clients: usize) -> RunPlan {
        let scheme = if self.tls { "https" } else { "http" };
        let url = format!("{scheme}://localhost:{}/", server.address().port());
        let style = RequestFraming { may_use_http2: true, ..RequestFraming::default() };
        let target = Target { method: "GET".into(), url, ..Target::default() };
        let request = PreparedRequest::new(&target, &style).unwrap();
        let list = RequestList::new(vec![(request, Weight::default())]).unwrap();
        let mut plan = RunPlan::new(RequestSource::List(list), ArrivalModel::Closed);
        plan.session.framing = style;
        plan.load.stop_condition.max_requests = requests;
        plan.load.in_flight_limit.limit = clients;
        plan.session.transport.http2 =
            Http2Options { over_tls: self.http2, prior_knowledge: self.http2, ..Http2Options::default() };
        plan.session.transport.tls =
            Some(TlsOptions { insecure: true, http2: self.http2, ..TlsOptions::default() }.config().unwrap());
        plan
    }

    /// The same, where requests are due at a rate for a time.
    fn open(self, server: &Server, rate: &str, length: Duration) -> RunPlan {
        let mut plan = self.plan(server, u64::MAX, 10_000);
        plan.load.arrivals =
            ArrivalModel::Open(Schedule::constant(rate.parse().unwrap(), ArrivalSpacing::Constant));
        plan.load.stop_condition = StopCondition { stop_time: nanos(length), ..StopCondition::default() };
        plan.load.late_send_time_after_end = Duration::from_secs(10);
        plan
    }
}

fn http1(mut peer: Peer, number: usize, script: &Script) -> io::Result<()> {
    for request in 0.. {
        peer.read_request_head()?;
        match script(number, request) {
            Act::Answer => peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")?,
            Act::Silence => return peer.wait_for_close(),
            Act::Close => return peer.half_close_and_wait(),
            Act::Reset => return peer.reset(),
            Act::Cut => {
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi")?;
                return peer.half_close_and_wait();
            }
            Act::Endless => {
                peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                peer.set_send_buffer(AHEAD)?;
                let piece = chunks();
                loop {
                    peer.send(&piece)?;
                }
            }
        }
    }
    Ok(())
}

/// The server's end of an HTTP/2 connection.
struct Streams {
    peer: Peer,
    frames: ClientFrameReader,
}

impl Streams {
    fn new(peer: Peer) -> Self {
        Self { peer, frames: ClientFrameReader::default() }
    }

    fn play(mut self, number: usize, script: &Script) -> io::Result<()> {
        self.peer.send(&http2_frames::settings())?;
        let mut request = 0;
        loop {
            let Frame::Request(stream, _) = self.next()? else { continue };
            match script(number, request) {
                Act::Answer => {
                    self.peer.send(
                        &[http2_frames::headers(stream), http2_frames::data(stream, b"hi", true)].concat(),
                    )?;
                }
                Act::Silence => {}
                Act::Close => return self.peer.half_close_and_wait(),
                Act::Reset => return self.peer.reset(),
                Act::Cut => {
                    self.peer.send(
                        &[http2_frames::headers(stream), http2_frames::data(stream, b"hi", false)].concat(),
                    )?;
                    return self.peer.half_close_and_wait();
                }
                Act::Endless => self.endless(stream)?,
            }
            request += 1;
        }
    }

    fn next(&mut self) -> io::Result<Frame> {
        loop {
            if let Some(frame) = self.frames.next_frame() {
                if frame == Frame::Settings {
                    self.peer.send(&http2_frames::settings_ack())?;
                }
                return Ok(frame);
            }
            let bytes = self.peer.read_body(self.frames.missing_bytes())?;
            self.frames.feed(&bytes);
        }
    }

    fn endless(&mut self, stream: u32) -> io::Result<()> {
        self.peer.send(&http2_frames::headers(stream))?;
        self.peer.set_send_buffer(AHEAD)?;
        let piece = frames_around(stream);
        loop {
            self.peer.send(&piece)?;
        }
    }
}

fn run(plan: RunPlan) -> RunOutcome {
    engine::start_single_trial(plan, None).unwrap().finish()
}

/// What went wrong, and how often.
fn faults(outcome: &RunOutcome) -> Vec<(&'static str, u64)> {
    let all = outcome.total_stats.failures.iter().enumerate().filter(|(_, count)| **count > 0);
    all.map(|(kind, count)| (RequestFault::name_of_kind(kind), *count)).collect()
}

/// Most connections at any time of a run, as far as they are told of.
fn most_connections(plan: RunPlan) -> (usize, RunOutcome) {
    let mut running = engine::start_single_trial(plan, None).unwrap();
    let control = running.control();
    let mut most = 0;
    while !matches!(running.next_interval(Duration::from_millis(10)), NextIntervalResult::Ended) {
        most = most.max(control.connections());
    }
    (most, running.finish())
}

#[test]
fn connections_are_warm_before_the_first_hit_and_of_http2_no_more_than_streams_are_spread_over() {
    for protocol in FOUR {
        let server = protocol.server(|_, _| Act::Answer);
        let mut plan = protocol.plan(&server, 20, 3);
        plan.session.transport.http2.connections_per_origin_and_thread = 2;
        let (setup, load) = plan.split();
        let mut session = LoadSession::open(setup).unwrap();
        let warm = if protocol.http2 { 2 } else { 3 };
        assert_eq!(session.warm(3).unwrap(), warm, "{protocol:?}");
        let outcome = session.start_trial(&load, None).unwrap().finish();
        assert_eq!(
            (outcome.total_stats.good_count(), outcome.total_stats.connections),
            (20, 0),
            "{protocol:?}"
        );
        // It may not have accepted the last, which nobody used, yet.
        assert!(server.connection_count() <= warm, "{protocol:?}");
    }
}

#[test]
fn one_connection_carries_what_is_answered() {
    for protocol in FOUR {
        let server = protocol.server(|_, _| Act::Answer);
        let outcome = run(protocol.plan(&server, 100, 1));
        assert_eq!((outcome.total_stats.good_count(), server.connection_count()), (100, 1), "{protocol:?}");
        let times = [&outcome.total_stats.write, &outcome.total_stats.first_byte, &outcome.total_stats.body];
        assert_eq!(times.map(|times| times.count()), [100; 3], "{protocol:?}");
    }
}

/// A reset, an early close and a cut answer were something else over HTTP/2.
#[test]
fn one_end_of_a_connection_has_one_name() {
    let ends = [(Act::Reset, "connection-broken"), (Act::Close, "closed-early"), (Act::Cut, "truncated")];
    for protocol in FOUR {
        for (end, name) in ends {
            let server = protocol.server(move |_, _| end);
            let outcome = run(protocol.plan(&server, 3, 1));
            assert_eq!((faults(&outcome), server.connection_count()), (vec![(name, 3)], 3), "{protocol:?}");
        }
    }
}

#[test]
fn a_request_that_an_old_connection_lost_goes_out_again() {
    for protocol in FOUR {
        let server = protocol.server(|_, request| if request == 0 { Act::Answer } else { Act::Close });
        let outcome = run(protocol.plan(&server, 5, 1));
        assert_eq!((outcome.total_stats.good_count(), outcome.total_stats.retried), (5, 4), "{protocol:?}");
    }
}

/// Over HTTP/2 such a connection was on no list any more, and stayed: 156 of 160 timed out.
#[test]
fn a_connection_that_retires_makes_way_once_its_last_request_is_given_up() {
    for protocol in FOUR {
        let first = |connection, request| {
            if connection == 0 && request == 2 { Act::Silence } else { Act::Answer }
        };
        let server = protocol.server(first);
        let mut plan = protocol.plan(&server, 160, 8);
        plan.session.transport.max_requests_per_connection = 5;
        plan.session.transport.max_connections = 1;
        plan.session.transport.timeout = Some(Duration::from_millis(300));
        let outcome = run(plan);
        let lost = 160 - outcome.total_stats.good_count();
        assert!((1..=8).contains(&lost), "{protocol:?}: {lost} of those that waited beside it at most");
        assert_eq!(outcome.total_stats.completed, 160);
    }
}

/// Over HTTP/2 as many connections stayed open as requests had been sent.
#[test]
fn a_connection_for_one_request_ends_when_that_is_given_up() {
    for protocol in FOUR {
        let server = protocol.server(|_, _| Act::Silence);
        let mut plan = protocol.plan(&server, 60, 6);
        plan.session.transport.keep_alive = false;
        plan.session.transport.timeout = Some(Duration::from_millis(60));
        let (most, outcome) = most_connections(plan);
        assert_eq!(
            outcome.total_stats.times_of_class(OutcomeClass::TimedOut).response_time.count(),
            60,
            "{protocol:?}"
        );
        assert!(most <= 12, "{protocol:?}: {most} connections for 6 in flight");
    }
}

#[test]
fn an_endless_body_ends_with_the_timeout_and_nobody_waits_for_it() {
    for protocol in FOUR {
        let first = AtomicBool::new(true);
        let server = protocol
            .server(move |_, _| if first.swap(false, Ordering::SeqCst) { Act::Endless } else { Act::Answer });
        let mut plan = protocol.plan(&server, 20, 2);
        plan.session.transport.timeout = Some(Duration::from_secs(1));
        // A connection for each of the two.
        plan.session.transport.http2.connections_per_origin_and_thread = 2;
        plan.session.transport.http2.max_streams = 1;
        let outcome = run(plan);
        assert_eq!(
            (faults(&outcome), outcome.total_stats.good_count()),
            (vec![("timeout", 1)], 19),
            "{protocol:?}"
        );
        assert!(outcome.total_stats.bytes_in > 2 * 19, "{protocol:?}: more than the others brought");
    }
}

/// Nothing else had its turn while there was something to read: the run would never have ended. On a Unix socket, because a
/// TCP window that opens only when it is empty lets nobody read for long.
#[test]
fn an_endless_fast_body_holds_up_neither_the_schedule_nor_an_abort() {
    for protocol in FOUR {
        let first = AtomicBool::new(true);
        let play = protocol
            .play(move |_, _| if first.swap(false, Ordering::SeqCst) { Act::Endless } else { Act::Answer });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let server = Server::start_unix(&path, protocol.config(), play).unwrap();
        let mut plan = protocol.open(&server, "200", Duration::from_millis(100));
        plan.session.transport.dial.unix_socket = Some(path);
        plan.session.transport.timeout = None;
        plan.session.transport.http2.max_streams = 1;
        let (tell, told) = channel();
        std::thread::spawn(move || _ = tell.send(aborted_with_one_left(plan)));
        let outcome = told.recv_timeout(Duration::from_secs(60)).expect("an end");
        assert_eq!((outcome.total_stats.sent, outcome.total_stats.good_count()), (20, 19), "{protocol:?}");
        assert_eq!(faults(&outcome), [("aborted", 1)], "{protocol:?}");
        assert!(outcome.total_stats.bytes_in > 2 * 19, "{protocol:?}: more than the others brought");
    }
}

/// Aborts a run once its schedule is over and one hit is under way, as far as it tells.
fn aborted_with_one_left(plan: RunPlan) -> RunOutcome {
    let over = plan.load.stop_condition.stop_time;
    let mut running = engine::start_single_trial(plan, None).unwrap();
    let control = running.control();
    // What is told is up to a tenth of a second old.
    while control.elapsed() < over + SECOND / 5 || control.in_flight() != 1 {
        running.next_interval(Duration::from_millis(10));
    }
    control.abort();
    running.finish()
}

/// They had a service time, counted as sent, and were missing from the lag.
#[test]
fn hits_that_waited_for_a_connection_that_never_came_were_not_sent() {
    for protocol in FOUR {
        let server = protocol.server(|_, _| Act::Silence);
        let mut plan = protocol.open(&server, "100", Duration::from_millis(200));
        plan.session.transport.max_connections = 1;
        plan.session.transport.http2.max_streams = 1;
        plan.session.transport.timeout = Some(Duration::from_millis(400));
        let outcome = run(plan);
        let total = &outcome.total_stats;
        let waited = total.fault_count(RequestFault::NoConnection);
        assert_eq!(
            (total.completed, total.no_connection, outcome.unsent_at_end()),
            (20, waited, 0),
            "{protocol:?}"
        );
        assert_eq!(total.sent + waited, 20, "{protocol:?}");
        assert!(waited >= 10, "{protocol:?}: {waited}");
        let times = total.times_of_class(OutcomeClass::TimedOut);
        assert_eq!(
            (times.service_time.count(), times.response_time.count()),
            (total.sent, 20),
            "{protocol:?}"
        );
        assert_eq!(total.send_lag.count(), 20, "{protocol:?}");
        assert!(total.send_lag.max() >= SECOND / 5, "{protocol:?}: {}", total.send_lag.max());
    }
}

/// Both were a timeout, counted from a send that there had not been.
#[test]
fn a_handshake_that_never_ends_is_no_answer_that_never_came() {
    let mute = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    for protocol in FOUR {
        let mut plan = protocol.plan(&mute, 3, 3);
        plan.session.transport.timeout = Some(Duration::from_millis(50));
        let outcome = run(plan);
        let name = if protocol.tls { "no-connection" } else { "timeout" };
        assert_eq!((faults(&outcome), outcome.total_stats.completed), (vec![(name, 3)], 3), "{protocol:?}");
        assert_eq!(outcome.total_stats.sent, if protocol.tls { 0 } else { 3 }, "{protocol:?}");
    }
}

/// A hit was bound to the connection that it had opened: the time that a handshake took beyond its own was lost to all.
#[test]
fn whoever_waits_takes_the_connection_that_is_there_first() {
    for protocol in FOUR {
        let server = protocol.server(|_, _| Act::Answer);
        let mut plan = protocol.open(&server, "2000", Duration::from_millis(100));
        plan.session.transport.max_connections = 3;
        let outcome = run(plan);
        assert_eq!(
            (outcome.total_stats.good_count(), outcome.total_stats.completed),
            (200, 200),
            "{protocol:?}"
        );
        assert!(server.connection_count() <= 3, "{protocol:?}");
    }
}
