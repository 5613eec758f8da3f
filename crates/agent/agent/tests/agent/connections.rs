//! What clients hold open: timeouts, caps, clients that do not read, clients that only half go away.

use std::io::Write;
use std::time::Duration;

use rustix::net::{SendFlags, send};
use rustix::process::Signal;
use seawall_core::Clock;
use seawall_emulator::faults::Faults;
use seawall_emulator::google::GoogleEndpoint;
use socket2::{SockFilter, SockRef};

use crate::support::client::{Client, ConnectionEnd, format_get};
use crate::support::wait_until_true;
use crate::support::world::{CART, MALLORY, PAY, PROJECT, PROJECT_ID, Plan, STRANGER, TOKEN, World};

/// A request that stays under way until the test is over.
const HELD: &str = "/computeMetadata/v1/instance/zone?wait_for_change=true&timeout_sec=300";

#[test]
fn a_head_that_does_not_end_is_closed_after_the_header_timeout() {
    let world = World::start(&Plan::federate());
    let mut clients = ["G", "GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n"].map(|part| {
        let mut client = world.client(&CART);
        client.write_bytes(part);
        client
    });
    assert_eq!(clients.each_mut().map(Client::wait_for_end), [ConnectionEnd::Closed; 3]);
    // They are counted just after they were closed.
    wait_until_true("three to be counted", || world.metric("seawall_connections_timed_out_total") == 3.0);
}

#[test]
fn a_byte_now_and_then_does_not_prolong_the_header_timeout() {
    let world = World::start(&Plan::federate().limits("headerTimeout: 300ms"));
    let mut client = world.client(&CART);
    client.write_bytes("GET / HTTP/1.1\r\nX: ");
    wait_until_true("the connection to be closed", || client.stream.write_all(b"x").is_err());
}

#[test]
fn an_idle_connection_is_closed_after_the_idle_timeout() {
    let world = World::start(&Plan::federate().limits("idleTimeout: 300ms"));
    let mut client = world.client(&CART);
    assert_eq!(client.ask(&format_get(PROJECT_ID)).status, 200);
    assert_eq!(client.wait_for_end(), ConnectionEnd::Closed);
}

/// A read stops at urgent data, and what stood behind it used to be forgotten.
#[test]
fn what_comes_behind_urgent_data_is_answered() {
    let world = World::start(&Plan::federate());
    let request = format_get(PROJECT_ID);
    let mut client = world.client(&CART);
    for _ in 0..3 {
        // All of it is there before the agent looks.
        world.agent.signal(Signal::STOP);
        client.write_bytes(&request);
        send(&client.stream, b"!", SendFlags::OOB).unwrap();
        client.write_bytes(&request);
        world.agent.signal(Signal::CONT);
        assert_eq!(client.receive_answer().body, PROJECT);
        assert_eq!(client.receive_answer().body, PROJECT);
    }
}

/// A pipeline cut inside a head again and again used to be taken for one slow head.
#[test]
fn a_client_that_makes_progress_is_not_timed_out() {
    let world = World::start(&Plan::federate());
    let request = format_get(PROJECT_ID);
    let (start, end) = request.split_at(30);
    let mut client = world.client(&CART);
    let clock = Clock::system();
    let enough = clock.now() + Duration::from_millis(3500);
    client.write_bytes(start);
    while clock.now() < enough {
        // The end of one request and the start of the next in one segment.
        client.write_bytes(format!("{end}{start}"));
        assert_eq!(client.receive_answer().body, PROJECT);
    }
    client.write_bytes(end);
    assert_eq!(client.receive_answer().body, PROJECT);
}

#[test]
fn a_client_that_never_reads_costs_a_bounded_amount_and_delays_nobody() {
    let world = World::start(&Plan::federate().threads("1"));
    let before = world.agent.resident_kib();
    let mut client = world.client(&CART);
    client.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let pipeline = format_get("/computeMetadata/v1/?recursive=true").repeat(1000);
    let mut sent = 0;
    // Until nothing more is taken: the agent has stopped reading, because nobody reads its answers.
    while let Ok(n) = client.stream.write(pipeline.as_bytes()) {
        sent += n;
        assert!(sent < 1 << 30, "it reads for ever");
    }
    let cost = world.agent.resident_kib().saturating_sub(before);
    assert!(cost < 2048, "{cost} KiB for one client");
    // Meanwhile the same thread serves others.
    assert_eq!(world.ask(&PAY, PROJECT_ID).body, PROJECT);
}

#[test]
fn a_client_that_floods_does_not_keep_others_from_being_answered() {
    let world = World::start(&Plan::federate().threads("1"));
    let mut flood = world.client(&MALLORY);
    let (mut answers, end) = (flood.stream.try_clone().unwrap(), flood.stream.try_clone().unwrap());
    let pipeline = format_get(PROJECT_ID).repeat(200);
    let sender = std::thread::spawn(move || while flood.stream.write_all(pipeline.as_bytes()).is_ok() {});
    let reader = std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
    let mut client = world.client(&CART);
    for _ in 0..200 {
        assert_eq!(client.ask(&format_get(PROJECT_ID)).body, PROJECT);
    }
    end.shutdown(std::net::Shutdown::Both).unwrap();
    sender.join().unwrap();
    let _ = reader.join().unwrap();
}

#[test]
fn at_a_pods_cap_a_newcomer_gets_one_answer_and_no_connection_is_ended_for_it() {
    let world = World::start(&Plan::federate().threads("1").limits("connectionsPerPod: 2"));
    let mut kept = [(); 2].map(|()| world.client(&CART));
    kept.iter_mut()
        .for_each(|client| assert_eq!(client.ask(&format_get(PROJECT_ID)).header("connection"), ""));
    for _ in 0..20 {
        let mut guest = world.client(&CART);
        let answer = guest.ask(&format_get(PROJECT_ID));
        assert_eq!((answer.status, answer.header("connection")), (200, "close"));
        assert_eq!(guest.wait_for_end(), ConnectionEnd::Closed);
    }
    kept.iter_mut().for_each(|client| assert_eq!(client.ask(&format_get(PROJECT_ID)).status, 200));
    assert_eq!(world.metric("seawall_connections_guests_total"), 20.0);
    assert_eq!(world.metric("seawall_connections_evicted_idle_total"), 0.0);
}

/// A client needs no privilege to drop all packets after its request (SO_ATTACH_FILTER). The kernel kept each of its closed connections with
/// the unread response for ten seconds, and nothing counted them: one pod had the agent killed.
#[test]
fn a_client_that_acknowledges_nothing_leaves_a_bounded_number_of_connections_behind() {
    const RETURN_CONSTANT: u16 = 0x06;
    const GONE: usize = 400;
    // What one thread keeps (`closing_connections.rs`).
    const KEPT: usize = 256;
    let world = World::start(&Plan::federate().threads("1").limits("connectionsPerPod: 1"));
    let mut kept = world.client(&CART);
    assert_eq!(kept.ask(&format_get(PROJECT_ID)).status, 200);
    let gone: Vec<Client> = (0..GONE)
        .map(|_| {
            let mut guest = world.client(&CART);
            let drop_all = [SockFilter::new(RETURN_CONSTANT, 0, 0, 0)];
            SockRef::from(&guest.stream).attach_filter(&drop_all).unwrap();
            guest.write_bytes(format_get(PROJECT_ID));
            guest
        })
        .collect();
    let resets = || world.metric("seawall_connections_reset_unacknowledged_total");
    wait_until_true("those beyond the bound to be reset", || resets() >= (GONE - KEPT) as f64);
    let port = format!(":{:04X}", world.agent.first_listener_address().port());
    let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let is_left = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        // The agent's end, in the state FIN_WAIT1.
        words[1].ends_with(&port) && words[3] == "04"
    };
    let left = sockets.lines().skip(1).filter(is_left).count();
    assert!(left <= KEPT, "{left}");
    assert_eq!(kept.ask(&format_get(PROJECT_ID)).status, 200);
    assert_eq!(world.ask(&PAY, PROJECT_ID).body, PROJECT);
    drop(gone);
}

#[test]
fn a_guest_gets_no_long_poll() {
    let world = World::start(&Plan::federate().threads("1").limits("connectionsPerPod: 2"));
    let _busy = [(); 2].map(|()| world.held(&CART, &format_get(HELD)));
    let answer = world.ask(&CART, HELD);
    assert_eq!(answer.status_and_refusal_code(), (503, "too_many_connections"), "{answer:?}");
    assert_eq!((answer.header("retry-after"), answer.header("connection")), ("1", "close"));
    assert_eq!(world.ask(&CART, PROJECT_ID).status, 200);
    assert_eq!(world.ask(&PAY, PROJECT_ID).status, 200);
}

#[test]
fn at_the_cap_of_all_newcomers_are_guests_whoever_they_are() {
    let world = World::start(&Plan::federate().threads("1").limits("connections: 2, connectionsPerPod: 2"));
    let mut cart = world.client(&CART);
    cart.ask(&format_get(PROJECT_ID));
    let pay = world.held(&PAY, &format_get(HELD));
    assert_eq!(world.ask(&MALLORY, PROJECT_ID).header("connection"), "close");
    assert_eq!(world.ask(&MALLORY, HELD).status_and_refusal_code(), (503, "too_many_connections"));
    assert_eq!(cart.ask(&format_get(PROJECT_ID)).status, 200);
    assert!(pay.is_open_without_unread_bytes());
}

/// An agent that closes a connection with an unread request resets it, and the reset can overtake the answer.
#[test]
fn the_answer_to_a_guest_is_not_followed_by_a_reset() {
    let world = World::start(&Plan::federate().threads("1").limits("connectionsPerPod: 1"));
    let _busy = world.held(&CART, &format_get(HELD));
    // While the agent stands still the kernel takes connection and request, so that both are there when it accepts.
    world.agent.signal(Signal::STOP);
    let mut client = world.client(&CART);
    client.write_bytes(format_get(PROJECT_ID));
    world.agent.signal(Signal::CONT);
    assert_eq!(client.receive_answer().status, 200);
    assert_eq!(client.wait_for_end(), ConnectionEnd::Closed);
}

#[test]
fn strangers_are_capped_as_pods_are() {
    let world = World::start(&Plan::federate().threads("1").limits("connections: 8, connectionsPerPod: 2"));
    let mut strangers = [(); 4].map(|()| Client::connect(STRANGER, world.agent.first_listener_address()));
    let kept = strangers.each_mut().map(|client| {
        let answer = client.ask(&format_get(PROJECT_ID));
        assert_eq!(answer.status, 403);
        answer.header("connection") != "close"
    });
    assert_eq!(kept, [true, true, false, false]);
}

/// A pod without CPU time needs seconds between its connect and its request. It used to be closed without an answer.
#[test]
fn a_client_that_sends_late_is_answered() {
    let world = World::start(&Plan::federate().limits("headerTimeout: 100ms"));
    let mut late = world.client(&CART);
    let mut ended = world.client(&CART);
    ended.write_bytes("GET / HT");
    assert_eq!(ended.wait_for_end(), ConnectionEnd::Closed, "the head timeout and a sweep have passed");
    assert_eq!(late.ask(&format_get(PROJECT_ID)).status, 200);
}

#[test]
fn what_breaks_off_leaves_nothing_behind() {
    let world = World::start(&Plan::federate().limits("headerTimeout: 1m, idleTimeout: 1m"));
    world.cloud.set_faults_on(
        GoogleEndpoint::Exchange,
        Faults { latency: Duration::from_millis(200), ..Faults::default() },
    );
    for bytes in [
        "",
        "GET / HT",
        &format_get(PROJECT_ID),
        &format_get(HELD),
        &format_get(TOKEN),
        "nonsense\r\n",
        &format_get(PROJECT_ID).repeat(500),
    ] {
        for at_once in [true, false] {
            let mut client = world.client(&CART);
            client.write_bytes(bytes);
            // With no time to linger the end is a reset, else it is in order, unless answers are unread.
            SockRef::from(&client.stream).set_linger(at_once.then_some(Duration::ZERO)).unwrap();
        }
    }
    // The kernel itself drops a connection that is reset before its client has sent a byte.
    wait_until_true("every other connection to be accepted", || {
        world.metric("seawall_connections_accepted_total") == 13.0
    });
    for gauge in ["seawall_connections_open", "seawall_long_polls_open"] {
        wait_until_true("nothing to be left", || world.metric(gauge) == 0.0);
    }
    assert_eq!(world.debug(&CART)["open_connections"], 0);
}

/// Over a cold credential it used to be taken for gone, and got no answer.
#[test]
fn a_client_that_only_ends_its_sending_side_is_answered() {
    let world = World::start(&Plan::federate());
    world.cloud.set_faults_on(
        GoogleEndpoint::Exchange,
        Faults { latency: Duration::from_millis(200), ..Faults::default() },
    );
    for target in [PROJECT_ID, TOKEN, TOKEN] {
        let mut client = world.client(&CART);
        client.write_bytes(format_get(target));
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.receive_answer().status, 200, "{target}");
        assert_eq!(client.wait_for_end(), ConnectionEnd::Closed);
    }
}
