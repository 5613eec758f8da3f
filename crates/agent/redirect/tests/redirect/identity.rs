//! The owner of a connection, and a pod's attempts to forge it.

use std::sync::Arc;

use rustix::thread::CapabilitySet;
use seawall_redirect::{AgentAddress as Listens, AgentHeartbeat, ConnectionMap, Error};

use crate::support::agent::{at_node, captured, gate, learn, listen, point, port, who};
use crate::support::filler_records::fill_with_records;
use crate::support::*;

/// Returns the pod that the victim is taken for under an attack.
///
/// The victim connects from a port of its own and waits for accept. The attacker connects with the same ends from a namespace that it
/// created without any right.
fn poisoned(lab: &Lab, victim: &str, victims_address: &str, first: Turn) -> String {
    let listener = listen();
    learn(lab);
    point(lab, &listener);
    let mut callers = ConnectionMap::open(&lab.pins).unwrap();
    let (mut victim, mut attacker) = (lab.pod(victim), lab.pod(TWO));
    let attack = format!("attack {victims_address} 40000 {NODE} {}", port(&listener));
    let told = format!("connected to {NODE} {}", port(&listener));
    let hold = format!("hold 169.254.169.254 80 {victims_address} 40000");
    let held = format!("{victims_address} 40000");
    match first {
        Turn::Victim => {
            assert_eq!(victim.ask(&hold), held);
            assert_eq!(attacker.ask(&attack), told);
        }
        Turn::Attacker => {
            assert_eq!(attacker.ask(&attack), told);
            assert_eq!(victim.ask(&hold), held);
        }
    }
    // Both are there: the attacker's entry waits beside the victim's and not in its place.
    assert_eq!(callers.waiting_count(), 2);
    let (stream, peer) = listener.accept().unwrap();
    assert_eq!(peer.port(), 40000);
    who(lab, &mut callers, peer, stream.local_addr().unwrap())
}

#[derive(Clone, Copy)]
enum Turn {
    Victim,
    Attacker,
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_pod_with_anothers_address_in_a_namespace_of_its_own_is_not_taken_for_it_nor_it_for_the_other() {
    for first in [Turn::Victim, Turn::Attacker] {
        assert_eq!(poisoned(&Lab::attached(), ONE, "10.44.0.11", first), "one");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_pod_with_the_nodes_address_in_a_namespace_of_its_own_is_not_taken_for_one_on_the_nodes_network() {
    for first in [Turn::Victim, Turn::Attacker] {
        assert_eq!(poisoned(&Lab::attached(), HOST, NODE, first), "host");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn where_the_victims_own_entry_is_gone_it_is_nobody_and_not_the_attacker() {
    for (uid, address) in [(ONE, "10.44.0.11"), (HOST, NODE)] {
        let lab = Lab::attached();
        let listener = listen();
        learn(&lab);
        point(&lab, &listener);
        let mut callers = ConnectionMap::open(&lab.pins).unwrap();
        let (mut victim, mut attacker) = (lab.pod(uid), lab.pod(TWO));
        victim.ask(&format!("hold 169.254.169.254 80 {address} 40000"));
        let (stream, peer) = listener.accept().unwrap();
        let local = stream.local_addr().unwrap();
        assert_ne!(who(&lab, &mut callers, peer, local), "nobody");
        attacker.ask(&format!("attack {address} 40000 {NODE} {}", port(&listener)));
        assert_eq!(callers.waiting_count(), 1);
        assert_eq!(who(&lab, &mut callers, peer, local), "nobody");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_socket_that_ends_takes_no_later_sockets_entry_along() {
    let (lab, listener, mut callers) = captured();
    // The same owner and the same ends, in two namespaces of one pod.
    let (mut first, mut second) = (lab.pod(TWO), lab.pod(TWO));
    first.ask(&format!("attack 10.44.0.12 40000 {NODE} {}", port(&listener)));
    second.ask("hold 169.254.169.254 80 10.44.0.12 40000");
    assert_eq!(callers.waiting_count(), 1);
    first.ask("release");
    let (stream, peer) = listener.accept().unwrap();
    assert_eq!(who(&lab, &mut callers, peer, stream.local_addr().unwrap()), "two");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_connection_is_taken_once() {
    let (lab, listener, mut callers) = captured();
    let mut one = lab.pod(ONE);
    one.ask("hold 169.254.169.254 80");
    let (stream, peer) = listener.accept().unwrap();
    let local = stream.local_addr().unwrap();
    assert_eq!(who(&lab, &mut callers, peer, local), "one");
    assert_eq!(who(&lab, &mut callers, peer, local), "nobody");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn what_nobody_took_goes_with_its_connection() {
    let (lab, listener, callers) = captured();
    let mut one = lab.pod(ONE);
    for _ in 0..5 {
        one.ask("hold 169.254.169.254 80");
        one.ask("hold fd20:ce::254 80");
    }
    assert_eq!(callers.waiting_count(), 10);
    // Closed by the pod: its sockets linger until the other end is gone, too.
    one.ask("release");
    drop(listener);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "EPERM");
    until(|| callers.waiting_count() == 0);
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn who_was_pushed_out_of_a_full_map_is_nobody() {
    let (lab, listener, mut callers) = captured();
    let mut one = lab.pod(ONE);
    one.ask("hold 169.254.169.254 80");
    let (stream, peer) = listener.accept().unwrap();
    fill_with_records(&lab);
    assert!(callers.waiting_count() <= 32_768);
    assert_eq!(who(&lab, &mut callers, peer, stream.local_addr().unwrap()), "nobody");
    // And who comes next is known again.
    one.ask("hold 169.254.169.254 80");
    let (stream, peer) = listener.accept().unwrap();
    assert_eq!(who(&lab, &mut callers, peer, stream.local_addr().unwrap()), "one");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn an_agent_needs_no_capability_once_the_programs_are_attached() {
    let lab = Lab::attached();
    let listener = listen();
    let mut one = lab.pod(ONE);
    let known = without(CapabilitySet::all(), || {
        let (mut gate, mut callers) = (gate(&lab), ConnectionMap::open(&lab.pins).unwrap());
        let seat = gate.register_listener(&listener).unwrap();
        assert!(AgentHeartbeat::open(&lab.pins, seat).unwrap().beat().unwrap());
        gate.set_target(Listens { listener_slot: seat, ..at_node(Some(port(&listener)), None) }).unwrap();
        one.ask("hold 169.254.169.254 80");
        let (stream, peer) = listener.accept().unwrap();
        who(&lab, &mut callers, peer, stream.local_addr().unwrap())
    });
    assert_eq!(known, "one");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn as_long_as_the_node_is_not_known_who_comes_from_it_is_nobody() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::beside(&lab);
    gate(&lab).set_target(at_node(Some(agent.port), None)).unwrap();
    assert_eq!(lab.pod(ONE).fetch_from_server("169.254.169.254"), "agent:one");
    let mut host = lab.pod(HOST);
    assert_eq!(host.fetch_from_server("169.254.169.254"), "agent:nobody");
    learn(&lab);
    assert_eq!(host.fetch_from_server("169.254.169.254"), "agent:host");
    // The next agent finds it known, and learns the same.
    let known = gate(&lab).target().unwrap().unwrap().node_netns_cookie;
    learn(&lab);
    assert_eq!(gate(&lab).target().unwrap().unwrap().node_netns_cookie, known);
    assert_eq!(host.fetch_from_server("169.254.169.254"), "agent:host");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn an_agent_in_no_pod_cannot_learn_the_node() {
    let lab = Lab::attached();
    let mut callers = ConnectionMap::open(&lab.pins).unwrap();
    let learned = within("node", || gate(&lab).detect_node_netns(&mut callers, lab.id(AGENT), address(NODE)));
    assert!(matches!(learned, Err(Error::NotInPod)), "{learned:?}");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn what_was_written_down_is_good_for_one_connect_of_a_socket() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    let beside = Agent::saying(&lab, "beside");
    for uid in [ONE, HOST] {
        let mut pod = lab.pod(uid);
        assert_eq!(pod.ask(&format!("ask again {NODE} {}", beside.port)), "beside:nobody");
        let own = if uid == ONE { "agent:one" } else { "agent:host" };
        assert_eq!(pod.ask(&format!("ask again {NODE} {}", agent.port)), own);
    }
}
