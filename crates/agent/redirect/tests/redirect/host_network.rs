//! Pods on the node's network: they keep the real metadata server, and no other pod gets it by imitating them.

use std::fs;
use std::sync::Arc;

use seawall_redirect::attach::AttachOutcome;
use seawall_redirect::{Error, RedirectCounts, read_status};

use crate::support::agent::gate;
use crate::support::*;

const ADDRESSES: [&str; 6] = [
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "fd20:ce::254",
    "fd00:ec2::254",
    "169.254.170.23",
    "fd00:ec2::23",
];

/// A VPC CNI on the node's network got 404 for its interfaces, and new nodes had no pods.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn pods_on_the_nodes_network_keep_the_real_server_before_beside_and_after_an_agent() {
    let lab = Arc::new(Lab::new());
    assert_eq!(lab.attach_for_pods_with_networks(NODE).unwrap(), AttachOutcome::Attached);
    let (mut one, mut host) = (lab.pod(ONE), lab.pod(HOST));
    let mut everywhere = |expected: &str, when: &str| {
        for to in ADDRESSES {
            assert_eq!(host.fetch_from_server(to), "real", "{to} {when}");
            let own = if expected == "EPERM" || !to.contains("23") { expected } else { "EPERM" };
            assert_eq!(one.fetch_from_server(to), own, "{to} {when}");
        }
        assert_eq!(host.ask("ask connect 169.254.169.254 443"), "real", "{when}");
        assert_eq!(one.ask("ask connect 169.254.169.254 443"), "EPERM", "{when}");
    };
    everywhere("EPERM", "before the first agent");
    let agent = Agent::start(&lab);
    everywhere("agent:one", "beside an agent");
    assert_eq!(lab.attach_for_pods_with_networks(NODE).unwrap(), AttachOutcome::AlreadyAttached);
    everywhere("agent:one", "while the next agent's pod starts");
    drop(agent);
    everywhere("EPERM", "after the agent");
    gate(&lab).clear_target().unwrap();
    everywhere("EPERM", "without a target");
    let counts = RedirectCounts::read(&lab.pins).unwrap();
    assert_eq!((counts.connect4.node_network, counts.connect6.node_network), (5 * 3, 5 * 4));
    let status = read_status(&lab.pins, &lab.site).unwrap();
    assert!(status.passes_host_network_pods && status.is_fully_attached(), "{status}");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn the_identity_of_pods_on_the_nodes_network_follows_the_last_attach() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    let mut host = lab.pod(HOST);
    assert_eq!(host.fetch_from_server("169.254.169.254"), "agent:host");
    lab.attach_for_pods_with_networks(NODE6).unwrap();
    assert_eq!(host.fetch_from_server("169.254.169.254"), "real");
    lab.attach();
    assert_eq!(host.fetch_from_server("169.254.169.254"), "agent:host");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn the_nodes_address_in_a_namespace_of_a_pods_own_does_not_pass() {
    let lab = Arc::new(Lab::new());
    lab.attach_for_pods_with_networks(NODE).unwrap();
    let mut attacker = lab.pod(TWO);
    for own in [NODE, "10.44.0.11", "127.0.0.1"] {
        assert_eq!(attacker.ask(&format!("attack {own} 40000 10.44.0.99 80")), "EPERM", "{own}");
    }
    assert_eq!(RedirectCounts::read(&lab.pins).unwrap().connect4.node_network, 0);
}

/// The threat model names it: who has a process on the node's network can hand out the node's identity.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_socket_of_the_nodes_network_passes_in_the_hands_of_another_pod() {
    let lab = Arc::new(Lab::new());
    lab.attach_for_pods_with_networks(NODE).unwrap();
    let (mut one, mut host) = (lab.pod(ONE), lab.pod(HOST));
    one.ask("expect /run/given");
    assert_eq!(host.ask("give /run/given"), "given");
    assert_eq!(one.ask("use 169.254.169.254 80"), "real");
    fs::remove_file("/run/given").unwrap();
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn attach_refuses_where_it_cannot_recognise_the_nodes_network_and_cuts_off_no_pod() {
    let lab = Lab::new();
    // An address of a pod's network, as `status.hostIP` is none of a process that runs there.
    let elsewhere = lab.attach_for_pods_with_networks("10.44.0.11").unwrap_err();
    assert!(matches!(elsewhere, Error::NotOnNodeNetwork { .. }), "{elsewhere}");
    // A process in a group that the programs do not reach.
    fs::write(lab.base.parent().unwrap().join("home/cgroup.procs"), "0").unwrap();
    let node = seawall_redirect::HostNetworkPods::Node(address(NODE));
    let unseen = within("node", || seawall_redirect::attach(&lab.pins, &lab.site, node)).unwrap_err();
    assert!(matches!(unseen, Error::UnknownNodeNetwork), "{unseen}");
    assert!(!lab.pins.directory().parent().unwrap().exists(), "{:?}", lab.pin_names());
    assert_eq!(lab.pod(ONE).fetch_from_server("169.254.169.254"), "real");
}
