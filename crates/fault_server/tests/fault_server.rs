//! The server of plants over real sockets: each plant does what it says. Counts and least times alone, never speed.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use seawall_core::Clock;
use seawall_fault_server::{FaultServer, FaultServerOptions, PlantedFault, start};

/// Longer than any machine takes; who waits for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn serve(plants: &[&str]) -> FaultServer {
    serve_with_body(plants, 2)
}

fn serve_with_body(plants: &[&str], body: usize) -> FaultServer {
    let plants = PlantedFault::parse_all(plants).unwrap();
    let listen = ([127, 0, 0, 1], 0).into();
    start(&FaultServerOptions {
        listen,
        planted_faults: plants,
        service_time: Duration::ZERO,
        body_bytes: body,
        seed: 1,
    })
    .unwrap()
}

struct Client(TcpStream);

impl Client {
    fn new(server: &FaultServer) -> Self {
        let socket = TcpStream::connect(server.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    fn ask(&mut self, requests: usize) -> &mut Self {
        self.say(&"GET / HTTP/1.1\r\nHost: h\r\n\r\n".repeat(requests))
    }

    fn say(&mut self, text: &str) -> &mut Self {
        self.0.write_all(text.as_bytes()).unwrap();
        self
    }

    /// Head and body of the next answer; none where the connection has ended.
    fn answer(&mut self) -> Option<(String, usize)> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match self.0.read(&mut byte) {
                Ok(0) => return None,
                Ok(_) => head.push(byte[0]),
                // Closed with something unread: as good an end as any.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                failed => drop(failed.unwrap()),
            }
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        Some((head, body.len()))
    }

    fn status(&mut self) -> Option<u16> {
        self.answer().map(|(head, _)| head[9..12].parse().unwrap())
    }

    /// The statuses of so many answers, counted.
    fn count(&mut self, answers: usize, status: u16) -> usize {
        (0..answers).filter(|_| self.status() == Some(status)).count()
    }
}

/// How long this took.
fn timed(what: impl FnOnce()) -> Duration {
    let clock = Clock::system();
    let began = clock.now();
    what();
    clock.now().since(began)
}

#[test]
fn a_limiter_admits_its_bucket_and_refuses_the_rest() {
    for (plant, status) in [
        ("rate-limiter,rate=0.01,bucket=40,status=403", 403),
        ("rate-limiter,rate=0.012,window=3600s,status=503", 503),
    ] {
        let server = serve(&[plant]);
        let mut client = Client::new(&server);
        let admitted = client.ask(500).count(500, 200);
        // A window may end in between.
        assert!((40..=86).contains(&admitted), "{plant}: {admitted}");
        assert_eq!(client.ask(1).status(), Some(status), "{plant}");
    }
}

#[test]
fn a_hanging_limiter_answers_nothing_and_closes_in_the_end() {
    let server = serve(&["hanging-limiter,rate=0.01,bucket=2,hang=50ms"]);
    let mut client = Client::new(&server);
    assert_eq!(client.ask(2).count(2, 200), 2);
    let took = timed(|| assert_eq!(client.ask(1).answer(), None));
    assert!(took >= Duration::from_millis(50), "{took:?}");
}

#[test]
fn a_delaying_limiter_spaces_what_it_lets_through_and_refuses_what_does_not_fit_its_queue() {
    let server = serve(&["delaying-limiter,rate=100,queue=5"]);
    let mut clients: Vec<_> = (0..4).map(|_| Client::new(&server)).collect();
    let took = timed(|| {
        for client in &mut clients {
            client.ask(1);
        }
        assert!(clients.iter_mut().all(|client| client.status() == Some(200)));
    });
    assert!(took >= Duration::from_millis(29), "{took:?}");
    let server = serve(&["delaying-limiter,rate=0.001,queue=0"]);
    assert_eq!(Client::new(&server).ask(2).count(2, 200), 1);
}

#[test]
fn what_is_full_refuses() {
    for plant in
        ["pool,workers=2,service=1h,queue=3", "concurrency-cap,places=5,service=1h", "cpu,work=1h,queue=4"]
    {
        let server = serve(&[plant]);
        let mut inside: Vec<_> = (0..5).map(|_| Client::new(&server)).collect();
        for client in &mut inside {
            // Whoever is refused a garbled request has been read, and so has what was sent before.
            client.ask(1);
            assert_eq!(Client::new(&server).say("x\r\n\r\n").status(), Some(400));
        }
        let refused = (0..3).filter(|_| Client::new(&server).ask(1).status() == Some(503)).count();
        assert_eq!(refused, 3, "{plant}");
    }
}

#[test]
fn a_client_that_leaves_keeps_no_place_of_a_cap_of_connections() {
    let server = serve(&["connection-cap,connections=1,service=1h,how=backlog"]);
    let mut leaves = Client::new(&server);
    leaves.ask(1);
    drop(leaves);
    let mut next = Client::new(&server);
    next.say("x\r\n\r\n");
    assert_eq!(next.status(), Some(400));
}

#[test]
fn one_connection_too_many_is_closed() {
    let server = serve(&["connection-cap,connections=3,service=0s"]);
    let mut inside: Vec<_> = (0..3).map(|_| Client::new(&server)).collect();
    assert!(inside.iter_mut().all(|client| client.ask(1).status() == Some(200)));
    assert_eq!(Client::new(&server).answer(), None);
    assert!(inside.iter_mut().all(|client| client.ask(1).status() == Some(200)));
}

#[test]
fn a_backlog_completes_one_more_than_it_says_and_nobody_reads_them_until_there_is_room() {
    let server = serve(&["connection-cap,connections=2,service=0s,how=backlog,backlog=6"]);
    let mut served: Vec<_> = (0..2).map(|_| Client::new(&server)).collect();
    assert!(served.iter_mut().all(|client| client.ask(1).status() == Some(200)));
    // On loopback a connection completes within the call, or not while the queue is full.
    let soon = Duration::from_millis(300);
    let connects = |_: &i32| TcpStream::connect_timeout(&server.address(), soon);
    let mut waiting: Vec<_> = (0..9).map_while(|n| connects(&n).ok()).map(Client).collect();
    assert_eq!(waiting.len(), 7);
    let first = &mut waiting[0];
    first.ask(1).0.set_read_timeout(Some(soon)).unwrap();
    assert_eq!(first.0.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    served.pop();
    first.0.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(first.status(), Some(200));
}

#[test]
fn a_connection_is_cut_after_exactly_so_many_requests() {
    for how in ["cut", "close"] {
        let server = serve(&[&format!("keep-alive,after=7,how={how}")]);
        for _ in 0..3 {
            let mut client = Client::new(&server);
            client.ask(7);
            for _ in 0..7 {
                let (head, _) = client.answer().unwrap();
                assert!(!head.contains("Connection"), "nobody is told: {head}");
            }
            if how == "cut" {
                client.ask(1);
            }
            assert_eq!(client.answer(), None);
        }
    }
}

#[test]
fn an_idle_connection_is_closed_and_one_that_waits_for_its_answer_is_not() {
    let server = serve(&["keep-alive,after=0,idle=20ms", "pool,workers=1,service=200ms"]);
    let mut client = Client::new(&server);
    // From the request on: between the answer and a second clock this process may be held up for longer than the connection idles.
    let took = timed(|| {
        assert_eq!(client.ask(1).status(), Some(200));
        assert_eq!(client.answer(), None);
    });
    assert!(took >= Duration::from_millis(215), "{took:?}");
}

#[test]
fn new_connections_cost_one_after_the_other_and_kept_ones_nothing() {
    let server = serve(&["churn,cost=20ms"]);
    let mut clients = Vec::new();
    let took = timed(|| {
        clients.extend((0..5).map(|_| Client::new(&server)));
        for client in &mut clients {
            client.ask(1);
        }
        assert!(clients.iter_mut().all(|client| client.status() == Some(200)));
    });
    assert!(took >= Duration::from_millis(95), "{took:?}");
    assert_eq!(clients[0].ask(100).count(100, 200), 100);
}

#[test]
fn a_chain_gives_up_after_its_tries() {
    let server = serve(&["timeout-chain,workers=1,service=1h,timeout=20ms,tries=3"]);
    let took = timed(|| assert_eq!(Client::new(&server).ask(1).status(), Some(504)));
    assert!(took >= Duration::from_millis(60), "{took:?}");
}

#[test]
fn a_pool_takes_as_long_as_its_service() {
    let server = serve(&["pool,workers=2,service=30ms"]);
    let mut clients: Vec<_> = (0..6).map(|_| Client::new(&server)).collect();
    let took = timed(|| {
        for client in &mut clients {
            client.ask(1);
        }
        assert!(clients.iter_mut().all(|client| client.status() == Some(200)));
    });
    assert!(took >= Duration::from_millis(85), "{took:?}");
}

#[test]
fn what_computes_uses_cpu_time() {
    let server = serve(&["cpu,work=10ms"]);
    let before = seawall_core::clock::process_cpu_time();
    assert_eq!(Client::new(&server).ask(10).count(10, 200), 10);
    let used = seawall_core::clock::process_cpu_time() - before;
    assert!(used >= Duration::from_millis(100), "{used:?}");
}

#[test]
fn a_balancer_s_answers_name_the_server() {
    let server = serve(&["uneven,servers=3,service=1ms,slow=1"]);
    let mut client = Client::new(&server);
    client.ask(6);
    let named: Vec<_> = (0..6).map(|_| client.answer().unwrap().0).collect();
    for (number, head) in named.iter().enumerate() {
        assert!(head.contains(&format!("Server-Id: {}\r\n", number % 3)), "{head}");
    }
}

#[test]
fn a_link_carries_its_bytes_and_an_answer_to_head_has_none() {
    let server = serve(&["bandwidth,rate=100000,body=10000"]);
    let took = timed(|| assert_eq!(Client::new(&server).ask(2).count(2, 200), 2));
    assert!(took >= Duration::from_millis(200), "{took:?}");
    let mut client = Client::new(&server);
    client.say("HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n");
    let mut text = String::new();
    client.0.read_to_string(&mut text).unwrap();
    assert!(text.contains("Content-Length: 10000") && text.ends_with("\r\n\r\n"), "{text}");
}

#[test]
fn names_are_told_after_their_time() {
    let server = serve(&["dns,delay=20ms"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let question = [&[1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1][..], b"x\x00", &[0, 1, 0, 1]].concat();
    let mut answer = [0; 512];
    let took = timed(|| {
        socket.send_to(&question, server.dns_address().unwrap()).unwrap();
        let length = socket.recv(&mut answer).unwrap();
        assert_eq!(answer[length - 4..length], [127, 0, 0, 1]);
    });
    assert!(took >= Duration::from_millis(20), "{took:?}");
}

#[test]
fn bodies_of_requests_are_read_and_thrown_away() {
    let server = serve(&[]);
    let mut client = Client::new(&server);
    client.say("POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n").say(&"y".repeat(100_000));
    assert_eq!(client.ask(1).count(2, 200), 2);
}

#[test]
fn what_is_no_request_is_refused_and_ends_the_connection() {
    let server = serve(&[]);
    let long = format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(16 * 1024));
    for (text, status) in [
        ("hello\r\n\r\n", 400),
        (&*long, 431),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
    ] {
        let mut client = Client::new(&server);
        assert_eq!(client.say(text).status(), Some(status));
        assert_eq!(client.answer(), None);
    }
}

#[test]
fn answers_arrive_whole_at_who_reads_late() {
    let body = 1 << 20;
    let server = serve_with_body(&[], body);
    let mut client = Client::new(&server);
    client.ask(12);
    assert!((0..12).all(|_| client.answer().unwrap().1 == body));
}

#[test]
fn an_end_closes_the_listener_and_whoever_waits() {
    let server = serve(&["hanging-limiter,rate=0.01,bucket=1,hang=1h", "cpu,work=1h"]);
    let (address, mut computes, mut hangs) = (server.address(), Client::new(&server), Client::new(&server));
    computes.ask(1);
    hangs.ask(1);
    assert_eq!(Client::new(&server).say("x\r\n\r\n").status(), Some(400));
    server.shutdown().unwrap();
    assert_eq!((computes.answer(), hangs.answer()), (None, None));
    assert!(TcpStream::connect(address).is_err());
}
