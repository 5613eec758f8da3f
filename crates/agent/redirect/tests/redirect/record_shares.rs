//! Each pod's share of the connection records: 512 connections that wait for accept.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::TcpListener;

use seawall_redirect::{ConnectionMap, RedirectCounts, TrustedProxyMap};

use crate::support::agent::{captured, listen, point, who};
use crate::support::filler_records::{delete_filling, fill_with_records};
use crate::support::*;

/// An IPv4 address and an IPv6 address of the metadata server.
const FAMILIES: [&str; 2] = ["169.254.169.254", "fd20:ce::254"];

const FULL: &str = "EPERM=88 connecting=512";

/// Makes room for each connection of a test. Otherwise the kernel drops packets of connections that wait, and tries again later.
fn widen(listener: &TcpListener) {
    rustix::net::listen(listener, 4096).unwrap();
}

fn refused(lab: &Lab) -> u64 {
    let counts = RedirectCounts::read(&lab.pins).unwrap();
    counts.connect4.too_many_waiting + counts.connect6.too_many_waiting
}

/// Accepts connections until none waits. Returns the number that the named pod owns.
fn take_all(lab: &Lab, listener: &TcpListener, callers: &mut ConnectionMap, name: &str) -> usize {
    listener.set_nonblocking(true).unwrap();
    let mut taken = 0;
    until(|| match listener.accept() {
        Ok((stream, peer)) => {
            let owner = who(lab, callers, peer, stream.local_addr().unwrap());
            taken += usize::from(owner == name);
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            callers.waiting_count() == 0
        }
    });
    taken
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn one_pods_waiting_connections_push_out_no_other_pods_record_and_are_refused_beyond_its_share() {
    for to in FAMILIES {
        let (lab, listener, mut callers) = captured();
        let (mut one, mut two) = (lab.pod(ONE), lab.pod(TWO));
        two.ask(&format!("hold {to} 80"));
        let begun = one.ask(&format!("flood {to} 80 600"));
        // The other pod's record can be in a place that both pods have.
        assert!([FULL, "EPERM=89 connecting=511"].contains(&&*begun), "{begun}");
        assert_eq!(callers.waiting_count() as u64 + refused(&lab), 601);
        // Another process of the pod has no share of its own, and another pod has.
        assert_eq!(lab.pod(ONE).fetch_from_server(to), "EPERM");
        assert_eq!(two.ask(&format!("flood {to} 80 100")), "connecting=100");
        let (stream, peer) = listener.accept().unwrap();
        assert_eq!(who(&lab, &mut callers, peer, stream.local_addr().unwrap()), "two");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_pods_share_is_free_again_however_its_connections_end() {
    for to in FAMILIES {
        let (lab, listener, mut callers) = captured();
        widen(&listener);
        let flood = format!("flood {to} 80 600");
        let mut one = lab.pod(ONE);
        assert_eq!(one.ask(&flood), FULL);
        one.ask("release");
        until(|| callers.waiting_count() == 0);
        // The process is killed while all of them wait.
        assert_eq!(one.ask(&flood), FULL);
        drop(one);
        until(|| callers.waiting_count() == 0);
        // The agent takes them.
        let mut one = lab.pod(ONE);
        assert_eq!(one.ask(&flood), FULL);
        assert_eq!(take_all(&lab, &listener, &mut callers, "one"), 512);
        // The agent ends.
        assert_eq!(one.ask(&flood), FULL);
        drop(listener);
        until(|| callers.waiting_count() == 0);
        let listener = listen();
        point(&lab, &listener);
        assert_eq!(one.ask(&flood), FULL);
        let dropped = RedirectCounts::read(&lab.pins).unwrap().unrecorded;
        assert_eq!(dropped, 0);
    }
}

/// The agent accepts the oldest first, so the share must go round: 200 places free, 200 connects pass.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_pod_at_its_share_connects_as_often_as_the_agent_takes_one() {
    let (lab, listener, mut callers) = captured();
    widen(&listener);
    let mut one = lab.pod(ONE);
    assert_eq!(one.ask("flood 169.254.169.254 80 600"), FULL);
    for _ in 0..10 {
        for _ in 0..200 {
            let (stream, peer) = listener.accept().unwrap();
            assert_eq!(who(&lab, &mut callers, peer, stream.local_addr().unwrap()), "one");
        }
        assert_eq!(one.ask("flood 169.254.169.254 80 250"), "EPERM=50 connecting=200");
    }
}

/// The kernel asks the programs at the `connect` and sends the SYN with the first data, so 600 connects pass before the first record.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_pod_that_delays_its_first_packets_has_no_more_records_than_its_share() {
    for to in FAMILIES {
        let (lab, listener, mut callers) = captured();
        widen(&listener);
        let mut one = lab.pod(ONE);
        assert_eq!(one.ask(&format!("delayed {to} 80 600")), "sent=600");
        let counts = RedirectCounts::read(&lab.pins).unwrap();
        assert_eq!((callers.waiting_count(), counts.unrecorded), (512, 89));
        assert_eq!(one.fetch_from_server(to), "EPERM");
        assert_eq!(take_all(&lab, &listener, &mut callers, "one"), 512);
    }
}

/// Connects 100,000 times, or `SEAWALL_REDIRECT_CHURN` times. Clients are killed, agents end, and the map of records is full.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn after_killed_clients_ended_agents_and_full_maps_a_pod_has_its_whole_share() {
    let connects = std::env::var("SEAWALL_REDIRECT_CHURN").map_or(100_000, |times| times.parse().unwrap());
    let (lab, first, callers) = captured();
    drop(first);
    let captured = || {
        let counts = RedirectCounts::read(&lab.pins).unwrap();
        counts.connect4.captured + counts.connect6.captured
    };
    const ROUNDS: u64 = 20;
    for round in 1..=ROUNDS {
        let listener = listen();
        point(&lab, &listener);
        fill_with_records(&lab);
        let (mut one, to) = (lab.pod(ONE), FAMILIES[round as usize % 2]);
        one.ask(&format!("flood {to} 80 400"));
        one.send_line(&format!("churn {to} 80 1000000000"));
        while captured() < connects * round / ROUNDS {
            std::thread::yield_now();
        }
    }
    delete_filling(&lab);
    until(|| callers.waiting_count() == 0);
    let listener = listen();
    point(&lab, &listener);
    let mut one = lab.pod(ONE);
    assert_eq!(one.ask("flood 169.254.169.254 80 600"), FULL);
    assert_eq!(callers.waiting_count(), 512);
}

/// One pod behind a proxy would otherwise refuse all others behind it.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn behind_a_trusted_proxy_each_pods_network_has_a_share_of_its_own() {
    const FLOOD: &str = "flood 169.254.169.254 80 600";
    let (lab, listener, callers) = captured();
    widen(&listener);
    let proxy = |network: &str| PodProcess::start(Some(network), &lab.group(TWO).join("c"));
    let (mut for_one, mut for_two) = (proxy("pod1"), proxy("pod2"));
    assert_eq!(for_one.ask(FLOOD), FULL);
    assert_eq!(
        for_two.ask("flood 169.254.169.254 80 10"),
        "EPERM=10",
        "it is one pod for all that anybody knows"
    );
    for_one.ask("release");
    until(|| callers.waiting_count() == 0);
    let mut proxies = TrustedProxyMap::open(&lab.pins).unwrap();
    proxies.replace(&BTreeSet::from([lab.id(TWO), 7])).unwrap();
    assert_eq!(for_one.ask(FLOOD), FULL);
    // The other pod's record can be in a place that both have.
    let of_two = for_two.ask("flood 169.254.169.254 80 100");
    assert!(["connecting=100", "EPERM=1 connecting=99"].contains(&&*of_two), "{of_two}");
    // A pod that is no proxy has one share, whatever networks it has.
    for_one.ask("release");
    for_two.ask("release");
    until(|| callers.waiting_count() == 0);
    let mut one = lab.pod(ONE);
    assert_eq!(one.ask(FLOOD), FULL);
    let mut elsewhere = PodProcess::start(Some("pod2"), &lab.group(ONE).join("c"));
    assert_eq!(elsewhere.ask("flood 169.254.169.254 80 10"), "EPERM=10");
    proxies.replace(&BTreeSet::new()).unwrap();
    one.ask("release");
    until(|| callers.waiting_count() == 0);
    assert_eq!(for_one.ask(FLOOD), FULL);
    assert_eq!(for_two.ask("flood 169.254.169.254 80 10"), "EPERM=10", "both are charged to the pod again");
}
