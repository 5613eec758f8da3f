//! The engine over TLS and HTTP/2.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use h2::Reason;
use h2::server::SendResponse;
use rustls::ServerConfig;
use seawall_load::clock::{RunClock, nanos};
use seawall_load::engine::{self, Http2Options, RunOutcome, RunPlan};
use seawall_load::expectation::ExpectationSet;
use seawall_load::proxy::ProxyRules;
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::request_failure_reason::{CertificateFault, OutcomeClass, RequestFault, TlsFault};
use seawall_load::request_source::{RequestList, RequestSource};
use seawall_load::schedule::ArrivalModel;
use seawall_load::target::{self, Target, Weight};
use seawall_load::tls::TlsOptions;
use seawall_testkit::closure_server::Server;
use seawall_testkit::tls::{CertificateAuthority, self_signed_server_config};
use tokio::io::{AsyncRead, AsyncWrite};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// A closed loop of so many requests, one at a time.
fn some(method: &str, url: &str, body: &str, requests: u64) -> RunPlan {
    let target =
        Target { method: method.into(), url: url.into(), body: body.as_bytes().into(), ..Target::default() };
    let style = RequestFraming { may_use_http2: true, ..RequestFraming::default() };
    let request = PreparedRequest::new(&target, &style).unwrap();
    let list = RequestList::new(vec![(request, Weight::default())]).unwrap();
    let mut plan = RunPlan::new(RequestSource::List(list), ArrivalModel::Closed);
    plan.session.framing = style;
    plan.load.stop_condition.max_requests = requests;
    plan.load.in_flight_limit.limit = 1;
    plan
}

fn run(plan: RunPlan) -> RunOutcome {
    engine::start_single_trial(plan, None).unwrap().finish()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn trusting(authority: &CertificateAuthority) -> (TlsOptions, tempfile::NamedTempFile) {
    let roots = file(&authority.certificate());
    (TlsOptions { roots: vec![roots.path().to_owned()], http2: true, ..TlsOptions::default() }, roots)
}

fn answering(config: Arc<ServerConfig>) -> Server {
    let server = Server::start_tls(config, |mut peer, _| {
        loop {
            peer.read_request_head()?;
            peer.send(OK)?;
        }
    });
    server.unwrap()
}

fn https(server: &Server) -> String {
    format!("https://localhost:{}/", server.address().port())
}

#[test]
fn a_trusted_server_is_asked_over_one_handshake() {
    let authority = CertificateAuthority::new().unwrap();
    let server = answering(authority.server_config(&[b"http/1.1"], false).unwrap());
    let mut plan = some("GET", &https(&server), "", 50);
    let (tls, _roots) = trusting(&authority);
    plan.session.transport.tls = Some(tls.config().unwrap());
    let outcome = run(plan);
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.tls.count(), server.connection_count()),
        (50, 1, 1)
    );
}

/// The end had come with the last bytes, and was waited for until the timeout.
#[test]
fn a_server_that_ends_without_a_close_notify_has_ended() {
    let authority = CertificateAuthority::new().unwrap();
    let (tls, _roots) = trusting(&authority);
    let ended = |last: &'static [u8]| {
        let config = authority.server_config(&[b"http/1.1"], false).unwrap();
        let server = Server::start_tls(config, move |mut peer, _| {
            peer.read_request_head()?;
            peer.send_and_shut_down_write(last)?;
            peer.wait_for_close()
        });
        let server = server.unwrap();
        let mut plan = some("GET", &https(&server), "", 3);
        plan.session.transport.tls = Some(tls.config().unwrap());
        run(plan).total_stats
    };
    assert_eq!(ended(b"HTTP/1.1 200 OK\r\n\r\nuntil the end").good_count(), 3);
    assert_eq!(
        ended(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut").fault_count(RequestFault::Truncated),
        3
    );
    assert_eq!(ended(b"").fault_count(RequestFault::ClosedEarly), 3);
}

#[test]
fn an_untrusted_server_is_refused_unless_anyone_will_do() {
    let authority = CertificateAuthority::new().unwrap();
    let server = answering(authority.server_config(&[], false).unwrap());
    let (tls, _roots) = trusting(&CertificateAuthority::new().unwrap());
    let mut plan = some("GET", &https(&server), "", 2);
    plan.session.transport.tls = Some(tls.config().unwrap());
    let outcome = run(plan);
    assert_eq!(
        outcome
            .total_stats
            .fault_count(RequestFault::Tls(TlsFault::Certificate(CertificateFault::Untrusted))),
        2
    );
    let mut plan = some("GET", &https(&server), "", 2);
    plan.session.transport.tls =
        Some(TlsOptions { insecure: true, ..TlsOptions::default() }.config().unwrap());
    assert_eq!(run(plan).total_stats.good_count(), 2);
}

#[test]
fn a_self_signed_certificate_that_the_user_trusts_is_good_for_itself() {
    let (config, certificate) = self_signed_server_config("localhost").unwrap();
    let server = answering(config);
    let roots = file(&certificate);
    let tls = TlsOptions { roots: vec![roots.path().to_owned()], ..TlsOptions::default() };
    let good = |url: &str| {
        let mut plan = some("GET", url, "", 1);
        plan.session.transport.tls = Some(tls.config().unwrap());
        let outcome = run(plan);
        (outcome.total_stats.good_count(), outcome.total_stats.failure_examples.into_iter().flatten().next())
    };
    assert_eq!(good(&https(&server)), (1, None));
    let elsewhere = format!("https://{}/", server.address());
    let name = RequestFault::Tls(TlsFault::Certificate(CertificateFault::Name));
    let named = format!("GET {elsewhere}: {name}").into();
    assert_eq!(good(&elsewhere), (0, Some(named)));
}

#[test]
fn a_client_certificate_is_presented() {
    let authority = CertificateAuthority::new().unwrap();
    let server = answering(authority.server_config(&[], true).unwrap());
    let (tls, _roots) = trusting(&authority);
    let mut plan = some("GET", &https(&server), "", 1);
    plan.session.transport.tls = Some(tls.config().unwrap());
    assert_eq!(run(plan).total_stats.good_count(), 0);
    let identity = authority.sign_client_identity().unwrap();
    let both = file(&(identity.certificate_pem + &identity.key_pem));
    let tls = TlsOptions { identity: Some((both.path().to_owned(), both.path().to_owned())), ..tls };
    let mut plan = some("GET", &https(&server), "", 1);
    plan.session.transport.tls = Some(tls.config().unwrap());
    assert_eq!(run(plan).total_stats.good_count(), 1);
}

#[test]
fn sessions_are_resumed_when_wanted() {
    let authority = CertificateAuthority::new().unwrap();
    for resume in [false, true] {
        let resumed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&resumed);
        let config = authority.server_config(&[], false).unwrap();
        let server = Server::start_tls(config, move |mut peer, _| {
            peer.read_request_head()?;
            let kind = peer.tls_session().and_then(|session| session.handshake_kind());
            count.fetch_add(usize::from(kind == Some(rustls::HandshakeKind::Resumed)), Ordering::SeqCst);
            peer.send(OK)?;
            peer.wait_for_close()
        });
        let server = server.unwrap();
        let mut plan = some("GET", &https(&server), "", 3);
        let (tls, _roots) = trusting(&authority);
        plan.session.transport.tls = Some(TlsOptions { resume, ..tls }.config().unwrap());
        plan.session.transport.keep_alive = false;
        assert_eq!((run(plan).total_stats.good_count(), server.connection_count()), (3, 3));
        assert_eq!(resumed.load(Ordering::SeqCst), if resume { 2 } else { 0 });
    }
}

#[test]
fn a_large_body_over_tls_arrives_whole() {
    let authority = CertificateAuthority::new().unwrap();
    let length = 5_000_000;
    let server = Server::start_tls(authority.server_config(&[], false).unwrap(), move |mut peer, _| {
        loop {
            peer.read_request_head()?;
            peer.read_body(1_000_000)?;
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes())?;
            peer.send(&vec![b'x'; length])?;
        }
    });
    let server = server.unwrap();
    let mut plan = some("POST", &https(&server), &"y".repeat(1_000_000), 3);
    plan.session.transport.tls =
        Some(TlsOptions { insecure: true, ..TlsOptions::default() }.config().unwrap());
    let outcome = run(plan);
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.bytes_in, outcome.total_stats.bytes_out),
        (3, 15_000_000, 3_000_000)
    );
}

/// An HTTP/2 server on a runtime of its own; counts its connections.
struct Http2Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _runtime: tokio::runtime::Runtime,
}

/// What it does with the n-th request of a connection.
type Play = fn(
    usize,
    http::Request<h2::RecvStream>,
    SendResponse<bytes::Bytes>,
    &Mutex<Vec<SendResponse<bytes::Bytes>>>,
);

impl Http2Server {
    fn start(tls: Option<Arc<ServerConfig>>, streams: u32, goaway_after: usize, play: Play) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                match tls.clone() {
                    None => drop(tokio::spawn(serve(stream, streams, goaway_after, play))),
                    Some(config) => drop(tokio::spawn(async move {
                        let stream = tokio_rustls::TlsAcceptor::from(config).accept(stream).await.unwrap();
                        serve(stream, streams, goaway_after, play).await;
                    })),
                }
            }
        });
        Self { address, connections, _runtime: runtime }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, streams: u32, goaway_after: usize, play: Play) {
    let mut builder = h2::server::Builder::new();
    let Ok(mut connection) = builder.max_concurrent_streams(streams).handshake(stream).await else { return };
    let kept = Mutex::new(Vec::new());
    let mut number = 0;
    while let Some(Ok((request, respond))) = connection.accept().await {
        play(number, request, respond, &kept);
        number += 1;
        if number == goaway_after {
            connection.graceful_shutdown();
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of a `Play`")]
fn answer(
    _: usize,
    request: http::Request<h2::RecvStream>,
    mut respond: SendResponse<bytes::Bytes>,
    _: &Mutex<Vec<SendResponse<bytes::Bytes>>>,
) {
    let status = match request.uri().path() {
        "/missing" => 404,
        "/odd" => 720,
        _ => 200,
    };
    let head = http::Response::builder().status(status).body(()).unwrap();
    // The client may have let go.
    if let Ok(mut body) = respond.send_response(head, false) {
        let _ = body.send_data(bytes::Bytes::from_static(b"hello"), true);
    }
}

fn h2c(server: &Http2Server, path: &str, requests: u64, in_flight: usize) -> RunPlan {
    let mut plan = some("GET", &format!("http://{}{path}", server.address), "", requests);
    plan.load.in_flight_limit.limit = in_flight;
    plan.session.transport.http2 = Http2Options { prior_knowledge: true, ..Http2Options::default() };
    plan
}

#[test]
fn http2_is_spoken_where_the_handshake_says_so_and_one_connection_carries_many() {
    let authority = CertificateAuthority::new().unwrap();
    let config = authority.server_config(&[b"h2", b"http/1.1"], false).unwrap();
    let server = Http2Server::start(Some(config), 100, usize::MAX, answer);
    let (tls, _roots) = trusting(&authority);
    let mut plan = some("POST", &format!("https://localhost:{}/", server.address.port()), "ping", 500);
    plan.load.in_flight_limit.limit = 50;
    plan.session.transport.tls = Some(tls.config().unwrap());
    let outcome = run(plan);
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.bytes_in, server.connections()),
        (500, 2500, 1)
    );
    assert_eq!(outcome.total_stats.in_flight_peak, 50);
    assert_eq!(outcome.total_stats.first_byte.count(), 500);
}

#[test]
fn without_tls_http2_is_spoken_when_it_is_known_and_statuses_are_what_they_are() {
    let server = Http2Server::start(None, 100, usize::MAX, answer);
    let outcome = run(h2c(&server, "/missing", 20, 4));
    assert_eq!(outcome.total_stats.statuses.iter().collect::<Vec<_>>(), [(404, 20)]);
    assert_eq!(outcome.total_stats.times_of_class(OutcomeClass::BadStatus).response_time.count(), 20);
}

/// What a gRPC server answers to a path: `/trailer/14` in a trailer, `/head/8` in a head without a body, `/none` nowhere.
#[expect(clippy::needless_pass_by_value, reason = "the shape of a `Play`")]
fn call(
    _: usize,
    request: http::Request<h2::RecvStream>,
    mut respond: SendResponse<bytes::Bytes>,
    _: &Mutex<Vec<SendResponse<bytes::Bytes>>>,
) {
    let head = http::Response::builder().header("content-type", "application/grpc+proto");
    let (place, code) = request.uri().path()[1..].split_once('/').unwrap_or_default();
    if place == "head" {
        drop(respond.send_response(head.header("grpc-status", code).body(()).unwrap(), true));
        return;
    }
    let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
    body.send_data(bytes::Bytes::from_static(&[0; 5]), place.is_empty()).unwrap();
    if !place.is_empty() {
        let trailers = [(http::HeaderName::from_static("grpc-status"), code.parse().unwrap())];
        body.send_trailers(trailers.into_iter().collect()).unwrap();
    }
}

/// Status 14 in the trailer counted as good, and so did 8 in an answer of trailers only.
#[test]
fn a_grpc_call_is_good_only_with_status_0_wherever_the_status_stands() {
    let server = Http2Server::start(None, 100, usize::MAX, call);
    for (path, reason) in [
        ("/trailer/0", None),
        ("/head/0", None),
        ("/trailer/14", Some("grpc-status is 14 UNAVAILABLE")),
        ("/head/8", Some("grpc-status is 8 RESOURCE_EXHAUSTED")),
        ("/trailer/99", Some("grpc-status is not a number from 0 to 16")),
        ("/none", Some("grpc-status is missing")),
    ] {
        let total = run(h2c(&server, path, 6, 3)).total_stats;
        let wrong: Vec<_> = total.wrong_answers.iter().collect();
        assert_eq!(wrong, reason.map(|reason| (reason, 6)).into_iter().collect::<Vec<_>>(), "{path}");
        assert_eq!(total.good_count(), if reason.is_some() { 0 } else { 6 }, "{path}: {:?}", total.failures);
    }
}

#[test]
fn a_condition_is_tested_over_http2_too() {
    let server = Http2Server::start(None, 100, usize::MAX, answer);
    for (condition, good) in [("body~hello", 4), ("length>5", 0), ("header:content-type~json", 0)] {
        let target = Target {
            method: "GET".into(),
            url: format!("http://{}/", server.address),
            expect: ExpectationSet::new(vec![condition.parse().unwrap()]),
            ..Target::default()
        };
        let style = RequestFraming { may_use_http2: true, ..RequestFraming::default() };
        let request = PreparedRequest::new(&target, &style).unwrap();
        let mut plan = h2c(&server, "/", 4, 2);
        plan.session.source =
            RequestSource::List(RequestList::new(vec![(request, Weight::default())]).unwrap());
        assert_eq!(run(plan).total_stats.good_count(), good, "{condition}");
    }
}

#[test]
fn a_status_that_nobody_registered_is_counted_over_http2() {
    let server = Http2Server::start(None, 100, usize::MAX, answer);
    assert_eq!(run(h2c(&server, "/odd", 2, 1)).total_stats.statuses.iter().collect::<Vec<_>>(), [(720, 2)]);
}

#[test]
fn what_http2_forbids_is_not_sent_over_it() {
    let server = Http2Server::start(None, 100, usize::MAX, |number, request, respond, kept| {
        let mut names: Vec<_> = request.headers().keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["te", "user-agent", "x"]);
        answer(number, request, respond, kept);
    });
    let given = ["TE: gzip", "TE: trailers", "Connection: X", "Keep-Alive: 1", "Upgrade: y", "X: z"];
    let target = Target {
        method: "GET".into(),
        url: format!("http://{}/", server.address),
        headers: given.iter().filter_map(|line| target::parse_header(line).ok()).collect(),
        ..Target::default()
    };
    let request =
        PreparedRequest::new(&target, &RequestFraming { may_use_http2: true, ..RequestFraming::default() })
            .unwrap();
    let mut plan = h2c(&server, "/", 3, 1);
    plan.session.source = RequestSource::List(RequestList::new(vec![(request, Weight::default())]).unwrap());
    let outcome = run(plan);
    assert_eq!((outcome.total_stats.good_count(), server.connections()), (3, 1));
}

#[test]
fn more_requests_than_streams_open_more_connections_up_to_the_bound() {
    // The first five of each connection are answered together: by then every connection is full.
    let keep = |number: usize, request, respond, kept: &Mutex<Vec<SendResponse<bytes::Bytes>>>| {
        if number > 4 {
            return answer(number, request, respond, kept);
        }
        let mut kept = kept.lock().unwrap();
        kept.push(respond);
        if number == 4 {
            for mut respond in kept.drain(..) {
                let head = http::Response::builder().body(()).unwrap();
                let _ = respond.send_response(head, true);
            }
        }
    };
    let server = Http2Server::start(None, 5, usize::MAX, keep);
    let mut plan = h2c(&server, "/", 100, 20);
    plan.session.transport.http2.max_streams = 5;
    plan.session.transport.max_connections = 4;
    let outcome = run(plan);
    assert_eq!((outcome.total_stats.good_count(), server.connections()), (100, 4));
}

#[test]
fn a_timed_out_stream_is_reset_and_its_connection_stays() {
    let silent_once = |number: usize, request, respond, kept: &Mutex<Vec<SendResponse<bytes::Bytes>>>| {
        if number == 0 { kept.lock().unwrap().push(respond) } else { answer(number, request, respond, kept) }
    };
    let server = Http2Server::start(None, 100, usize::MAX, silent_once);
    let mut plan = h2c(&server, "/", 10, 1);
    plan.session.transport.timeout = Some(Duration::from_millis(200));
    let outcome = run(plan);
    assert_eq!(
        (
            outcome.total_stats.fault_count(RequestFault::Timeout),
            outcome.total_stats.good_count(),
            server.connections()
        ),
        (1, 9, 1)
    );
}

#[test]
fn a_server_that_says_goodbye_gets_its_requests_on_a_new_connection() {
    let server = Http2Server::start(None, 100, 10, answer);
    let outcome = run(h2c(&server, "/", 50, 1));
    assert_eq!(outcome.total_stats.good_count(), 50, "{:?}", outcome.total_stats.failures);
    assert!(server.connections() >= 4, "{}", server.connections());
}

/// They counted as failures, whatever the server had said: POSTs always, GETs on a new connection.
#[test]
fn requests_that_a_server_says_it_has_not_looked_at_go_out_again() {
    for method in ["GET", "POST"] {
        let all_good = |server: &Http2Server, in_flight: usize, connections: usize| {
            let mut plan = some(method, &format!("http://{}/", server.address), "", 400);
            plan.load.in_flight_limit.limit = in_flight;
            plan.session.transport.http2 = Http2Options { prior_knowledge: true, ..Http2Options::default() };
            plan.session.transport.max_connections = connections;
            let outcome = run(plan);
            assert_eq!(outcome.total_stats.good_count(), 400, "{method} {:?}", outcome.total_stats.failures);
        };
        // A hundred streams are begun before the server has said that it takes ten.
        let refusing = Http2Server::start(None, 10, usize::MAX, answer);
        all_good(&refusing, 100, 1);
        assert_eq!(refusing.connections(), 1, "what goes out again keeps to the limits");
        all_good(&Http2Server::start(None, 100, 20, answer), 20, 10);
    }
}

#[test]
fn requests_per_connection_are_counted_when_they_begin() {
    for keep_alive in [true, false] {
        let server = Http2Server::start(None, 100, usize::MAX, answer);
        let mut plan = h2c(&server, "/", 30, 10);
        plan.session.transport.keep_alive = keep_alive;
        plan.session.transport.max_requests_per_connection = if keep_alive { 1 } else { u64::MAX };
        assert_eq!((run(plan).total_stats.good_count(), server.connections()), (30, 30), "{keep_alive}");
    }
}

/// As over HTTP/1.1 in `servers.rs`.
#[test]
fn an_http2_connection_that_came_of_age_is_not_used_again_busy_or_idle() {
    const AGE: Duration = Duration::from_millis(20);
    let slowly = |number: usize, request, respond, kept: &Mutex<Vec<SendResponse<bytes::Bytes>>>| {
        let clock = RunClock::start();
        while clock.now() <= nanos(AGE) {
            std::thread::yield_now();
        }
        answer(number, request, respond, kept);
    };
    let quick = Http2Server::start(None, 100, usize::MAX, answer);
    let slow = Http2Server::start(None, 100, usize::MAX, slowly);
    for (age, connections) in [(Some(AGE), 3), (Some(Duration::from_secs(3600)), 1), (None, 1)] {
        let before = (quick.connections(), slow.connections());
        let mut plan = h2c(&quick, "/", 6, 1);
        let style = plan.session.framing.clone();
        let urls = [&quick, &slow].map(|server| format!("http://{}/", server.address));
        let requests = urls.map(|url| {
            let target = Target { method: "GET".into(), url, ..Target::default() };
            (PreparedRequest::new(&target, &style).unwrap(), Weight::default())
        });
        plan.session.source = RequestSource::List(RequestList::new(requests.into()).unwrap());
        plan.session.transport.max_connection_age = age;
        let outcome = run(plan);
        assert_eq!((outcome.total_stats.good_count(), outcome.total_stats.retried), (6, 0), "{age:?}");
        let opened = (quick.connections() - before.0, slow.connections() - before.1);
        assert_eq!(opened, (connections, connections), "{age:?}");
    }
}

#[test]
fn a_reset_stream_is_a_failure_of_its_own() {
    let reset_third = |number: usize,
                       request,
                       mut respond: SendResponse<bytes::Bytes>,
                       kept: &Mutex<Vec<SendResponse<bytes::Bytes>>>| {
        if number == 2 {
            respond.send_reset(Reason::INTERNAL_ERROR);
        } else {
            answer(number, request, respond, kept);
        }
    };
    let server = Http2Server::start(None, 100, usize::MAX, reset_third);
    let outcome = run(h2c(&server, "/", 10, 1));
    assert_eq!(
        (
            outcome.total_stats.fault_count(RequestFault::Http2),
            outcome.total_stats.good_count(),
            server.connections()
        ),
        (1, 9, 1)
    );
}

/// Sixteen megabytes were, on each of a hundred streams.
#[test]
fn a_head_larger_than_any_over_http1_is_no_answer_over_http2() {
    let boast = |number: usize,
                 request,
                 mut respond: SendResponse<bytes::Bytes>,
                 kept: &Mutex<Vec<SendResponse<bytes::Bytes>>>| {
        if number > 0 {
            return answer(number, request, respond, kept);
        }
        let head = http::Response::builder().header("x", "y".repeat(300 << 10)).body(()).unwrap();
        let _ = respond.send_response(head, true);
    };
    let server = Http2Server::start(None, 100, usize::MAX, boast);
    let outcome = run(h2c(&server, "/", 3, 1));
    assert_eq!(
        (outcome.total_stats.fault_count(RequestFault::Http2), outcome.total_stats.good_count()),
        (1, 2)
    );
}

#[test]
fn tls_goes_through_the_tunnel_of_a_proxy() {
    let authority = CertificateAuthority::new().unwrap();
    let server = answering(authority.server_config(&[], false).unwrap());
    let port = server.address().port();
    let proxy = Server::start(move |mut peer, _| {
        let head = peer.read_request_head()?;
        if !head.starts_with(&format!("CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"))
        {
            return peer.send(b"HTTP/1.1 400 x\r\n\r\n");
        }
        peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        peer.relay(std::net::TcpStream::connect(("127.0.0.1", port))?)
    });
    let proxy = proxy.unwrap();
    let mut plan = some("GET", &https(&server), "", 3);
    let (tls, _roots) = trusting(&authority);
    plan.session.transport.tls = Some(tls.config().unwrap());
    plan.session.transport.dial.proxies = Arc::new(ProxyRules::for_all(&proxy.url_of_path("")).unwrap());
    let outcome = run(plan);
    assert_eq!(
        (outcome.total_stats.good_count(), proxy.connection_count(), server.connection_count()),
        (3, 1, 1)
    );
}
