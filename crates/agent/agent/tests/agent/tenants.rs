//! What one pod does costs another pod nothing: turns, bytes, places and connections are shared by caller.

use std::io::Read;
use std::process::Stdio;

use rustix::process::Signal;
use seawall_testkit::closure_server::{Peer, Server};

use crate::support::client::{Client, format_get, format_request};
use crate::support::process::{self, Agent};
use crate::support::world::{
    CART, DIRECT, Files, MALLORY, PAY, PROJECT, PROJECT_ID, Plan, STRANGER, TOKEN, World,
};
use crate::support::{PROGRAM, wait_until_true};

/// An agent in `conceal` before a server that is played by the test.
struct Concealed {
    agent: Agent,
    _upstream: Server,
    _files: Files,
}

impl Concealed {
    fn before(play: impl Fn(&mut Peer, &str) -> std::io::Result<()> + Send + Sync + 'static) -> Self {
        Self::as_planned(Plan::conceal(), play)
    }

    fn as_planned(
        plan: Plan,
        play: impl Fn(&mut Peer, &str) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let upstream = Server::start(move |mut peer, _| {
            loop {
                let head = peer.read_request_head()?;
                let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
                play(&mut peer, &target)?;
            }
        });
        let upstream = upstream.unwrap();
        let files = Files::new(&plan.threads("1"), upstream.address());
        Self { agent: Agent::start(PROGRAM, &files.config()), _upstream: upstream, _files: files }
    }

    fn client(&self, from: std::net::Ipv4Addr) -> Client {
        Client::connect(from, self.agent.first_listener_address())
    }
}

fn answer(body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Some text in which every place differs from its neighbours.
fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| b'a' + (at % 23) as u8).collect()
}

const ZONE: &str = "/computeMetadata/v1/instance/zone";

/// Pipelines of one pod, or of nobody known, used to be answered to their end before anybody else was looked at.
#[test]
fn pipelines_are_answered_in_turns_with_everybody_else() {
    for hostile in [MALLORY.at, STRANGER] {
        let world = World::start(&Plan::federate().threads("1"));
        assert_eq!(world.ask(&CART, TOKEN).status, 200);
        let address = world.agent.first_listener_address();
        // While it stands still all come; the one that matters comes last.
        world.agent.signal(Signal::STOP);
        let mut storm: Vec<_> = (0..48)
            .map(|_| {
                let mut client = Client::connect(hostile, address);
                client.write_bytes(format_get("/").repeat(100));
                client
            })
            .collect();
        let mut quiet = Client::connect(CART.at, address);
        quiet.write_bytes(format_get(TOKEN));
        world.agent.signal(Signal::CONT);
        quiet.receive_answer().token();
        let before: usize = storm.iter_mut().map(answered_so_far).sum();
        assert!(before < 48 * 100 / 4, "{before} of the storm's requests were answered first");
    }
}

/// Counts the answers that lie in the socket.
fn answered_so_far(client: &mut Client) -> usize {
    client.stream.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let mut chunk = [0; 64 * 1024];
    while let Ok(n @ 1..) = client.stream.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..n]);
    }
    String::from_utf8_lossy(&bytes).matches("HTTP/1.1 ").count()
}

/// A real server that hangs on one path used to be everybody's: all places were the hanging ones.
#[test]
fn requests_that_hang_upstream_leave_places_for_other_pods() {
    let world = Concealed::before(|peer, target| {
        if target.starts_with(ZONE) {
            peer.read_request_head().map(drop)
        } else {
            peer.send(&answer(PROJECT.as_bytes()))
        }
    });
    let _storm: Vec<_> = (0..200)
        .map(|_| {
            let mut client = world.client(MALLORY.at);
            client.write_bytes(format_get(ZONE));
            client
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(world.client(CART.at).ask(&format_get(PROJECT_ID)).body, PROJECT);
    }
}

/// Each used to take half of what was left, until nothing was.
#[test]
fn pods_that_hang_upstream_one_after_another_leave_a_place_for_the_next() {
    let hangs = |peer: &mut Peer, target: &str| {
        if target.starts_with(ZONE) {
            peer.read_request_head().map(drop)
        } else {
            peer.send(&answer(PROJECT.as_bytes()))
        }
    };
    let world = Concealed::as_planned(Plan::conceal().limits("upstreamRequests: 6"), hangs);
    let mut storm = Vec::new();
    for pod in [MALLORY, PAY, DIRECT] {
        for _ in 0..8 {
            let mut client = world.client(pod.at);
            client.write_bytes(format_get(ZONE));
            storm.push(client);
        }
        // What was sent before has been looked at once this is refused.
        let concealed = "/computeMetadata/v1/instance/attributes/kube-env";
        assert_eq!(world.client(pod.at).ask(&format_get(concealed)).status / 100, 4);
    }
    assert_eq!(world.client(CART.at).ask(&format_get(PROJECT_ID)).body, PROJECT);
}

/// A body larger than a window is passed on as it comes; whatever the client and the server speak, it arrives whole.
#[test]
fn long_answers_arrive_whole() {
    let long = text(250_000);
    let chunked = text(40_000);
    let world = Concealed::before({
        let (long, chunked) = (long.clone(), chunked.clone());
        move |peer, target| {
            if target == ZONE {
                peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                for byte in &chunked {
                    peer.send(&[b'1', b'\r', b'\n', *byte, b'\r', b'\n'])?;
                }
                return peer.send(b"0\r\n\r\n");
            }
            peer.send(&answer(&long))
        }
    });
    let mut client = world.client(CART.at);
    for _ in 0..2 {
        assert!(client.ask(&format_get(PROJECT_ID)).body.as_bytes() == long);
    }
    client.write_bytes(format_request(
        "GET",
        ZONE,
        "HTTP/1.1",
        "Metadata-Flavor: Google\r\nConnection: close\r\n",
    ));
    let mut answer = String::new();
    client.stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
    assert!(unchunked(body) == chunked, "{} bytes", body.len());
    let mut old = world.client(CART.at);
    old.write_bytes(format_request("GET", ZONE, "HTTP/1.0", "Metadata-Flavor: Google\r\n"));
    let mut answer = Vec::new();
    old.stream.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&chunked) && answer.starts_with(b"HTTP/1.1 200"));
}

fn unchunked(mut body: &str) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.extend_from_slice(&rest.as_bytes()[..size]);
        body = &rest[size + 2..];
    }
}

#[test]
fn a_long_answer_that_breaks_off_ends_its_connection() {
    let world = Concealed::before(|peer, _| {
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
        peer.send(&text(50_000))?;
        Err(std::io::ErrorKind::Other.into())
    });
    let mut client = world.client(CART.at);
    client.write_bytes(format_get(PROJECT_ID));
    let mut all = Vec::new();
    // Ended or reset: it is not taken for the whole answer.
    let _ = client.stream.read_to_end(&mut all);
    assert!(all.len() < 100_000, "{}", all.len());
}

/// HTTP/1.0 knows the end of such a body by the end of the connection alone.
#[test]
fn an_answer_that_breaks_off_before_http_1_0_ends_by_a_reset() {
    let world = Concealed::before(|peer, _| {
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        peer.send(format!("{:x}\r\n", 50_000).as_bytes())?;
        peer.send(&text(50_000))?;
        Err(std::io::ErrorKind::Other.into())
    });
    let mut client = world.client(CART.at);
    client.write_bytes(format_request("GET", PROJECT_ID, "HTTP/1.0", "Metadata-Flavor: Google\r\n"));
    let end = client.stream.read_to_end(&mut Vec::new());
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

/// Answers on their way to clients that do not read were in nobody's budget: 275 MiB for a thousand of 250 KB.
#[test]
fn answers_that_are_not_read_cost_a_bounded_amount() {
    let long = text(250_000);
    let world = Concealed::before(move |peer, target| {
        if target == ZONE { peer.send(&answer(&long)) } else { peer.send(&answer(PROJECT.as_bytes())) }
    });
    assert_eq!(world.client(CART.at).ask(&format_get(PROJECT_ID)).body, PROJECT);
    let before = world.agent.resident_kib();
    let _storm: Vec<_> = (0..400)
        .map(|_| {
            let mut client = world.client(MALLORY.at);
            client.write_bytes(format_get(ZONE));
            client
        })
        .collect();
    assert_eq!(world.client(CART.at).ask(&format_get(PROJECT_ID)).body, PROJECT);
    let cost = world.agent.resident_kib().saturating_sub(before);
    assert!(cost < 12 * 1024, "{cost} KiB");
}

/// Slow readers and half heads of one pod used to use up the budget of all.
#[test]
fn what_one_pod_makes_the_agent_hold_leaves_room_for_anothers_half_head() {
    let world = World::start(&Plan::federate().threads("1").limits("headerTimeout: 1m"));
    let half = |length| format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(length));
    let mut storm: Vec<_> = (0..1000).map(|_| world.client(&MALLORY)).collect();
    let refused = || world.metric("seawall_requests_total{cloud=\"none\",route=\"refused\",status=\"5xx\"}");
    // First the large ones, then the gaps.
    let (large, small) = storm.split_at_mut(600);
    large.iter_mut().for_each(|client| client.write_bytes(half(15 * 1024)));
    wait_until_true("what is too much to be refused", || refused() > 50.0);
    small.iter_mut().for_each(|client| client.write_bytes(half(100)));
    wait_until_true("what is too much to be refused", || refused() > 100.0);
    let whole = format_get(&format!("{PROJECT_ID}?x={}", "x".repeat(400)));
    let (start, end) = whole.split_at(400);
    for _ in 0..20 {
        let mut client = world.client(&PAY);
        client.write_bytes(start);
        // Until the first part has been read; were it refused, the answer would come now.
        wait_until_true("the part to be read", || world.metric("seawall_connections_open") > 0.0);
        client.write_bytes(end);
        assert_eq!(client.receive_answer().body, PROJECT);
    }
}

/// One address used to have all of them where everybody is served.
#[test]
fn requests_that_wait_for_a_change_are_shared_by_caller_whoever_it_is() {
    let plan = Plan { identity: "{ strategy: anyone }", ..Plan::conceal() }
        .limits("longPolls: 8, longPollsPerPod: 8");
    let world = World::start(&plan);
    let poll = format_get(&format!("{ZONE}?wait_for_change=true&timeout_sec=300"));
    let _greedy: Vec<_> = (0..4).map(|_| world.held(&MALLORY, &poll)).collect();
    assert_eq!(world.client(&MALLORY).ask(&poll).status_and_refusal_code(), (503, "too_many_long_polls"));
    let _quiet = world.held(&CART, &poll);
}

/// An answer that was not taken at once used to turn a half head behind it into an idle connection, which may stay for long.
#[test]
fn half_a_head_behind_answers_that_are_read_late_keeps_its_time() {
    let world = World::start(&Plan::federate().threads("1").limits("idleTimeout: 1h"));
    let mut client = world.client(&MALLORY);
    let many = format_get("/computeMetadata/v1/?recursive=true").repeat(400);
    client.write_bytes(&many[..many.len() - 10]);
    for _ in 0..399 {
        assert_eq!(client.receive_answer().status, 200);
    }
    assert_eq!(client.wait_for_end(), crate::support::client::ConnectionEnd::Closed);
}

/// The agent with room for 256 open files, and its world.
fn with_few_open_files() -> (World, Agent) {
    let world = World::start(&Plan::federate().threads("1"));
    let program = process::command(PROGRAM, &[]);
    let script = "ulimit -n 256; exec \"$0\" --config \"$1\"";
    let mut limited = std::process::Command::new("bash");
    limited.args(["-c", script]).arg(program.get_program()).arg(world.files.config());
    let agent =
        Agent::wait_until_serving(limited.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    (world, agent)
}

fn accept_errors(agent: &Agent) -> String {
    let metrics =
        Client::connect(crate::support::ip(1), agent.admin_address).ask(&format_get("/metrics")).body;
    let sample = "seawall_connections_accept_errors_total ";
    metrics.lines().find_map(|line| line.strip_prefix(sample)).unwrap().to_owned()
}

/// An agent that starts with fewer was ready, and one pod took the descriptors of all others.
#[test]
fn an_agent_with_too_few_open_files_says_how_many_it_needs_and_does_not_start() {
    let world = World::start(&Plan::federate().threads("1"));
    let program = process::command(PROGRAM, &[]);
    let script = "ulimit -n 40; exec \"$0\" --config \"$1\"";
    let mut limited = std::process::Command::new("bash");
    limited.args(["-c", script]).arg(program.get_program()).arg(world.files.config());
    let ended = limited.stdin(Stdio::null()).output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("the limit on open files is 40; expected at least "), "{said}");
}

/// A storm of connections used to leave the quiet pod waiting for accepts that backed off for up to a second.
#[test]
fn few_open_files_are_shared_as_memory_is() {
    let (_world, agent) = with_few_open_files();
    let most = agent.log_lines_with_message("serving")[0]["fields"]["connections"].as_u64().unwrap();
    assert!((32..256).contains(&most), "{most}");
    let _storm: Vec<_> =
        (0..600).map(|_| Client::begin_connect(MALLORY.at, agent.first_listener_address())).collect();
    for _ in 0..20 {
        assert_eq!(
            Client::connect(CART.at, agent.first_listener_address()).ask(&format_get(TOKEN)).status,
            200
        );
    }
    assert_eq!(accept_errors(&agent), "0", "it never ran out of descriptors");
}

/// Bursts from hundreds of addresses were accepted to their end before what made room for them was closed: four times as many
/// sockets as may be open, and the end of the agent.
#[test]
fn a_burst_from_hundreds_of_addresses_opens_no_more_than_may_be_open() {
    let (_world, agent) = with_few_open_files();
    agent.signal(Signal::STOP);
    let strangers = (0..240).map(|n| std::net::Ipv4Addr::new(127, 2, 0, n + 1));
    let _burst: Vec<_> = strangers
        .flat_map(|from| (0..8).map(move |_| from))
        .map(|from| Client::try_connect(from, agent.first_listener_address()).unwrap())
        .collect();
    agent.signal(Signal::CONT);
    for _ in 0..20 {
        assert_eq!(
            Client::connect(CART.at, agent.first_listener_address()).ask(&format_get(TOKEN)).status,
            200
        );
    }
    assert_eq!(accept_errors(&agent), "0", "it never ran out of descriptors");
}

/// Eight pods with a thousand silent connections each used to be more than 25 MiB.
#[test]
fn silent_connections_of_many_make_room_for_whoever_comes() {
    let world = World::start(&Plan::federate().threads("1").limits("connections: 200, headerTimeout: 1m"));
    let mut storm = Vec::new();
    for hostile in [MALLORY.at, PAY.at, STRANGER] {
        storm.extend((0..300).map(|_| Client::begin_connect(hostile, world.agent.first_listener_address())));
    }
    wait_until_true("the storm to be there", || world.metric("seawall_connections_open") > 100.0);
    let mut quiet: Vec<_> = (0..8).map(|_| world.client(&CART)).collect();
    for client in &mut quiet {
        assert_eq!(client.ask(&format_get(PROJECT_ID)).body, PROJECT);
    }
    assert!(world.metric("seawall_connections_open") <= 200.0);
}
