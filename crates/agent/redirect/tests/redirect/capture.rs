//! Connections that are captured, and connections that are not.

use std::fs;
use std::sync::Arc;

use std::net::TcpListener;

use seawall_redirect::{AgentAddress, read_status};

use crate::support::agent::{at_node, gate};
use crate::support::*;

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn every_way_of_connecting_leads_to_the_agent_which_knows_the_pod() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    let (mut one, mut host) = (lab.pod(ONE), lab.pod(HOST));
    for (how, to) in [
        ("connect", "169.254.169.254"),
        ("bound", "169.254.169.254"),
        ("nonblocking", "169.254.169.254"),
        ("connect", "::ffff:169.254.169.254"),
        ("connect", "fd20:ce::254"),
        ("connect", "fd00:ec2::254"),
        ("nonblocking", "fd20:ce::254"),
        ("v6only", "fd20:ce::254"),
        ("mptcp", "169.254.169.254"),
        ("mptcp", "::ffff:169.254.169.254"),
        ("mptcp", "fd20:ce::254"),
        // The first brings a cookie, the second has its request in the SYN.
        ("tfo_send", "169.254.169.254"),
        ("tfo_send", "169.254.169.254"),
        ("tfo_send", "fd20:ce::254"),
        ("tfo_send", "fd20:ce::254"),
        ("tfo_connect", "169.254.169.254"),
        ("tfo_connect", "fd20:ce::254"),
    ] {
        assert_eq!(one.ask(&format!("ask {how} {to} 80")), "agent:one", "{how} {to}");
        assert_eq!(host.ask(&format!("ask {how} {to} 80")), "agent:host", "{how} {to}");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn each_address_of_an_endpoint_leads_to_the_endpoints_port() {
    let lab = Arc::new(Lab::attached());
    let metadata = Agent::saying(&lab, "metadata");
    let containers = Agent::saying(&lab, "containers");
    gate(&lab).set_target(at_node(Some(metadata.port), Some(containers.port))).unwrap();
    let mut one = lab.pod(ONE);
    for at in seawall_core::endpoint::METADATA_ADDRESSES {
        assert_eq!(one.fetch_from_server(&at.to_string()), "metadata:one", "{at}");
    }
    for at in seawall_core::endpoint::CONTAINER_CREDENTIALS_ADDRESSES {
        assert_eq!(one.fetch_from_server(&at.to_string()), "containers:one", "{at}");
    }
    assert_eq!(one.fetch_from_server("::ffff:169.254.170.23"), "containers:one");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn udp_and_dns_are_left_alone() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    let mut one = lab.pod(ONE);
    assert_eq!(one.ask("ask udp 169.254.169.254 53"), "real");
    assert_eq!(one.ask("ask udp fd20:ce::254 53"), "real");
    assert_eq!(one.ask("ask udp 169.254.169.254 80"), "real");
    assert_eq!(one.ask("ask connect 169.254.169.254 53"), "real");
    assert_eq!(one.ask("ask connect fd20:ce::254 53"), "real");
    assert_eq!(one.ask("ask connect 10.45.0.2 80"), "real");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn the_nodes_own_processes_reach_the_real_server() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    let mut outside = lab.outside();
    assert_eq!(outside.fetch_from_server("169.254.169.254"), "real");
    assert_eq!(outside.fetch_from_server("fd20:ce::254"), "real");
    // Who asks the agent itself from there is nobody.
    assert_eq!(outside.ask(&format!("ask connect {NODE} {}", agent.port)), "agent:nobody");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn groups_made_later_are_captured_whatever_they_are_called() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    let mut process = lab.outside();
    assert_eq!(process.fetch_from_server("169.254.169.254"), "real");
    // A container made after the programs were attached; in it another, and one that has the name of another pod.
    let container = lab.group(HOST).join("late");
    let nested = container.join("kubepods/burstable").join(format!("pod{ONE}"));
    fs::create_dir_all(&nested).unwrap();
    for group in [container, nested] {
        process.ask(&format!("join {}", group.display()));
        assert_eq!(process.fetch_from_server("169.254.169.254"), "agent:host");
    }
    // A whole pod made later, and a process that comes into its group and not its network: the node's, then.
    let late = lab.site.kubepods_directory().join("burstable/pod44444444-aaaa-bbbb-cccc-000000000004");
    fs::create_dir_all(late.join("c")).unwrap();
    process.ask(&format!("join {}", late.join("c").display()));
    assert_eq!(process.fetch_from_server("169.254.169.254"), "agent:another");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_systemd_nodes_pods_are_known() {
    let lab = Arc::new(Lab::systemds());
    lab.attach();
    let _agent = Agent::start(&lab);
    assert_eq!(lab.pod(ONE).fetch_from_server("169.254.169.254"), "agent:one");
    assert_eq!(lab.pod(TWO).fetch_from_server("169.254.169.254"), "agent:two");
    assert_eq!(lab.pod(HOST).fetch_from_server("169.254.169.254"), "agent:host");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn on_a_node_without_ipv6_who_asks_ipv6_is_sent_to_ipv4_if_its_socket_can() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::beside(&lab);
    gate(&lab).set_target(AgentAddress { v6: None, ..at_node(Some(agent.port), None) }).unwrap();
    let mut one = lab.pod(ONE);
    assert_eq!(one.fetch_from_server("fd20:ce::254"), "agent:one");
    assert_eq!(one.ask("ask v6only fd20:ce::254 80"), "ENETUNREACH");
}

/// An agent has a listener at each of the node's addresses, at the same port. One of the two stands for the agent in the programs.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn on_a_node_with_both_families_a_socket_of_each_reaches_the_listener_of_its_family() {
    let lab = Arc::new(Lab::attached());
    let at = |address: &'static str, port| within("node", || TcpListener::bind((address, port)).unwrap());
    let ipv4 = Agent::at_listener(&lab, "ipv4", at(NODE, 0));
    let _ipv6 = Agent::at_listener(&lab, "ipv6", at(NODE6, ipv4.port.get()));
    gate(&lab).set_target(ipv4.at()).unwrap();
    let mut one = lab.pod(ONE);
    for (how, to, expected) in [
        ("connect", "169.254.169.254", "ipv4:one"),
        ("connect", "::ffff:169.254.169.254", "ipv4:one"),
        ("v6only", "fd20:ce::254", "ipv6:one"),
        ("v6only", "fd00:ec2::254", "ipv6:one"),
        ("connect", "fd00:ec2::254", "ipv6:one"),
    ] {
        assert_eq!(one.ask(&format!("ask {how} {to} 80")), expected, "{how} {to}");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn on_a_node_without_ipv4_who_asks_ipv4_is_refused_and_counted_and_ipv6_is_served() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::beside(&lab);
    gate(&lab).set_target(AgentAddress { v4: None, ..agent.at() }).unwrap();
    let mut one = lab.pod(ONE);
    for address in ["169.254.169.254", "::ffff:169.254.169.254"] {
        assert_eq!(one.fetch_from_server(address), "EPERM", "{address}");
    }
    assert_eq!(one.ask("ask v6only fd00:ec2::254 80"), "agent:one");
    let counts = read_status(&lab.pins, &lab.site).unwrap().counts;
    assert_eq!((counts.connect4.no_family, counts.connect6.no_family), (1, 1));
    assert_eq!((counts.connect4.no_agent, counts.connect6.no_agent), (0, 0));
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn who_dials_the_agents_own_address_is_known_too() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    let mut two = lab.pod(TWO);
    for address in [NODE, NODE6, "::ffff:10.44.0.1"] {
        assert_eq!(two.ask(&format!("ask connect {address} {}", agent.port)), "agent:two", "{address}");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn an_agent_succeeds_only_the_one_it_found_dead_and_not_who_came_meanwhile() {
    let lab = Arc::new(Lab::attached());
    let (next, other) = (Agent::saying(&lab, "next"), Agent::saying(&lab, "other"));
    let dead = AgentAddress { listener_slot: 15, ..at_node(std::num::NonZeroU16::new(1), None) };
    gate(&lab).set_target(dead).unwrap();
    let mut one = lab.pod(ONE);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "EPERM");
    assert!(gate(&lab).take_over_from(dead, next.at()).unwrap());
    assert!(!gate(&lab).take_over_from(dead, other.at()).unwrap());
    assert_eq!(one.fetch_from_server("169.254.169.254"), "next:one");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn the_agents_own_pods_reach_the_real_server_two_of_them_at_once() {
    let lab = Arc::new(Lab::attached());
    let (mut one, mut two) = (lab.pod(ONE), lab.pod(TWO));
    // Before any agent is ready: it may have to ask the real server to become so.
    gate(&lab).exempt_pod(lab.id(ONE)).unwrap();
    assert_eq!(
        (&*one.fetch_from_server("169.254.169.254"), &*two.fetch_from_server("169.254.169.254")),
        ("real", "EPERM")
    );
    let _agent = Agent::start(&lab);
    assert_eq!(
        (&*one.fetch_from_server("169.254.169.254"), &*two.fetch_from_server("fd20:ce::254")),
        ("real", "agent:two")
    );
    gate(&lab).exempt_pod(lab.id(TWO)).unwrap();
    assert_eq!(
        (&*one.fetch_from_server("fd20:ce::254"), &*two.fetch_from_server("169.254.169.254")),
        ("real", "real")
    );
    gate(&lab).exempt_pod(lab.id(HOST)).unwrap();
    assert_eq!(
        (&*one.fetch_from_server("169.254.169.254"), &*two.fetch_from_server("169.254.169.254")),
        ("agent:one", "real")
    );
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_class_of_service_that_was_made_anew_is_nobodys_until_the_agent_looks() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    assert!(!gate(&lab).refresh_qos_cgroups().unwrap());
    let class = lab.site.kubepods_directory().join("burstable");
    for group in walk(&class).iter().rev() {
        fs::remove_dir(group).unwrap();
    }
    fs::create_dir_all(class.join(format!("pod{ONE}/c"))).unwrap();
    let mut one = lab.pod(ONE);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:nobody");
    assert!(gate(&lab).refresh_qos_cgroups().unwrap());
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
}
