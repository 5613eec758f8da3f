//! Netfilter rules: the drop rules beside the programs, and the DNAT rules without the programs.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;

use rustix::thread::CapabilitySet;
use seawall_core::PodUid;
use seawall_redirect::netfilter::AgentPorts;
use seawall_redirect::{detach, netfilter, nft_rules};

use crate::support::agent::{at_node, gate};
use crate::support::*;

fn load(rules: &str) {
    within("node", || nft_rules::load_rules(rules)).unwrap_or_else(|error| panic!("{error}\n{rules}"));
}

/// Answers `text` to every client at an address of the node. It ends with the test's process.
fn serve_at_node(address: &str, port: u16, text: &'static [u8]) {
    let server = within("node", || TcpListener::bind((address, port)).unwrap());
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(text);
        }
    });
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn packets_written_by_hand_reach_the_real_server_until_the_net_is_there() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    let (mut one, mut host) = (lab.pod(ONE), lab.pod(HOST));
    assert_eq!(one.ask("ask raw_syn 169.254.169.254 80"), "answered");
    assert!(!within("node", || netfilter::has_drop_rules(&AgentPorts::default())).unwrap());
    // A second time changes nothing.
    within("node", || netfilter::load_drop_rules(&AgentPorts::default())).unwrap();
    within("node", || netfilter::load_drop_rules(&AgentPorts::default())).unwrap();
    assert!(within("node", || netfilter::has_drop_rules(&AgentPorts::default())).unwrap());
    for port in [80, 443, 8080].into_iter().chain(1000..1100) {
        assert_eq!(one.ask(&format!("ask raw_syn 169.254.169.254 {port}")), "nothing", "{port}");
    }
    assert_eq!(one.ask("ask raw_syn 169.254.170.23 80"), "nothing");
    // All else is as before.
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
    assert_eq!(one.fetch_from_server("fd20:ce::254"), "agent:one");
    assert_eq!(host.fetch_from_server("169.254.169.254"), "agent:host");
    assert_eq!(one.ask("ask udp 169.254.169.254 53"), "real");
    assert_eq!(one.ask("ask udp fd20:ce::254 53"), "real");
    assert_eq!(one.ask("ask connect 169.254.169.254 53"), "real");
    assert_eq!(lab.outside().fetch_from_server("169.254.169.254"), "real");
    within("node", netfilter::remove_rules).unwrap();
    within("node", netfilter::remove_rules).unwrap();
    assert!(!within("node", || netfilter::has_drop_rules(&AgentPorts::default())).unwrap());
    assert_eq!(one.ask("ask raw_syn 169.254.169.254 80"), "answered");
}

/// One is for nodes that load rules when they boot, the other for agents.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn the_drop_rules_as_text_and_over_netlink_are_the_same() {
    let _lab = Lab::new();
    let listed = || {
        let listed =
            within("node", || Command::new("nft").args(["list", "table", "inet", "seawall"]).output());
        String::from_utf8(listed.unwrap().stdout).unwrap()
    };
    load(&nft_rules::format_drop_rules());
    let by_text = listed();
    assert!(within("node", || netfilter::has_drop_rules(&AgentPorts::default())).unwrap());
    within("node", || netfilter::load_drop_rules(&AgentPorts::default())).unwrap();
    assert_eq!(listed(), by_text);
    assert!(
        by_text.contains("priority raw; policy accept;")
            && by_text.contains("ip daddr 169.254.169.254 tcp dport 53 accept"),
        "{by_text}"
    );
}

/// Kubernetes refuses link-local endpoints of a Service, but not `fd00:ec2::254`. The programs see the Service's address, and so did the rules.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_service_whose_endpoint_is_a_metadata_address_leads_no_pod_there() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    let mut one = lab.pod(ONE);
    let service = "ip6 daddr fd45::99 tcp dport 80 dnat ip6 to fd00:ec2::254";
    load(&format!(
        "table ip6 kube-proxy {{\nchain services {{ type nat hook prerouting priority -100; {service}; }}\n}}\n"
    ));
    assert_eq!(one.fetch_from_server("fd45::99"), "real");
    for load_rules in [
        || netfilter::load_drop_rules(&AgentPorts::default()).map(drop),
        || nft_rules::load_rules(&nft_rules::format_drop_rules()),
    ] {
        within("node", load_rules).unwrap();
        assert_ne!(one.fetch_from_server("fd45::99"), "real");
    }
}

/// A node's own metadata server, or a proxy of the node at the metadata address, timed out for the node's processes.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn what_the_node_sends_to_an_address_of_its_own_is_not_dropped() {
    let lab = Arc::new(Lab::attached());
    assert!(ip("-n node address add 169.254.169.254/32 dev lo"));
    serve_at_node("169.254.169.254", 80, b"own");
    for load_rules in [
        || netfilter::load_drop_rules(&AgentPorts::default()).map(drop),
        || nft_rules::load_rules(&nft_rules::format_drop_rules()),
    ] {
        within("node", load_rules).unwrap();
        assert_eq!(lab.outside().fetch_from_server("169.254.169.254"), "own");
    }
}

/// The steps of docs/migrate-from-metadata-concealment.md: Seawall takes the pods over while the proxy and its rule are there, and
/// gives them back.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_concealing_proxys_rule_catches_pods_before_the_programs_and_after_them() {
    let lab = Arc::new(Lab::new());
    let mut one = lab.pod(ONE);
    let mut fetch = || one.fetch_from_server("169.254.169.254");
    assert!(ip("-n node address add 169.254.169.252/32 dev lo"));
    let rule = "iifname != \"up0\" ip daddr 169.254.169.254 tcp dport 80 dnat to 169.254.169.252:988";
    load(&format!(
        "table ip proxy {{\nchain pods {{ type nat hook prerouting priority dstnat; {rule}; }}\n}}\n"
    ));
    assert_eq!(fetch(), "ECONNREFUSED", "the rule without the proxy leads pods nowhere");
    serve_at_node("169.254.169.252", 988, b"proxy");
    assert_eq!(fetch(), "proxy");
    lab.attach();
    within("node", || netfilter::load_drop_rules(&AgentPorts::default())).unwrap();
    assert_eq!(fetch(), "EPERM");
    let agent = Agent::start(&lab);
    assert_eq!(fetch(), "agent:one");
    drop(agent);
    detach(&lab.pins).unwrap();
    within("node", netfilter::remove_rules).unwrap();
    assert_eq!(fetch(), "proxy");
}

/// firewalld flushes all rules when it starts, and an operator can remove single ones.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn lost_drop_rules_are_noticed() {
    let _lab = Lab::new();
    let nft = |words: &str| {
        within("node", || Command::new("nft").args(words.split(' ')).status()).unwrap().success()
    };
    for lost in ["flush ruleset", "delete table inet seawall", "flush chain inet seawall drop_rules"] {
        within("node", || netfilter::load_drop_rules(&AgentPorts::default())).unwrap();
        // The rules of others do not count.
        assert!(nft("add table inet other") && nft("add chain inet other drop_rules"));
        assert!(nft("add rule inet other drop_rules accept"));
        assert!(within("node", || netfilter::has_drop_rules(&AgentPorts::default())).unwrap());
        assert!(nft(lost), "{lost}");
        assert!(!within("node", || netfilter::has_drop_rules(&AgentPorts::default())).unwrap(), "{lost}");
    }
    let refused = within("node", || {
        without(CapabilitySet::NET_ADMIN, || netfilter::load_drop_rules(&AgentPorts::default()))
    })
    .unwrap_err();
    assert!(refused.to_string().contains("lacks CAP_NET_ADMIN"), "{refused}");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn without_programs_translation_leads_pods_to_the_agent_and_the_node_to_the_real_server() {
    let lab = Arc::new(Lab::attached());
    // Programs for the maps that the agent opens; the pods' are detached.
    let agent = Agent::beside(&lab);
    let other = Agent::saying(&lab, "containers");
    let captured = |agent_pod_uid| Some(nft_rules::HostNetworkMatch { site: &lab.site, agent_pod_uid });
    gate(&lab).clear_target().unwrap();
    for name in lab.pin_names().iter().filter(|name| name.contains('-')) {
        std::fs::remove_file(lab.pins.directory().join(name)).unwrap();
    }
    let (mut one, mut host, mut outside) = (lab.pod(ONE), lab.pod(HOST), lab.outside());
    until(|| {
        one.fetch_from_server("169.254.169.254") == "real" && one.fetch_from_server("fd20:ce::254") == "real"
    });
    load(
        &nft_rules::format_dnat_rules(&at_node(Some(agent.port), Some(other.port)), captured(None)).unwrap(),
    );
    for to in ["169.254.169.254", "::ffff:169.254.169.254", "fd20:ce::254", "fd00:ec2::254"] {
        assert_eq!(one.fetch_from_server(to), "agent:nobody", "{to}");
        assert_eq!(host.fetch_from_server(to), "agent:nobody", "{to}");
        assert_eq!(outside.fetch_from_server(to), "real", "{to}");
    }
    assert_eq!(one.fetch_from_server("169.254.170.23"), "containers:nobody");
    assert_eq!(host.fetch_from_server("fd00:ec2::23"), "containers:nobody");
    // The agent's own pod asks the real server for what it passes on.
    let own = PodUid(HOST.into());
    load(&nft_rules::format_dnat_rules(&at_node(Some(agent.port), None), captured(Some(&own))).unwrap());
    assert_eq!(host.fetch_from_server("169.254.169.254"), "real");
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:nobody");
    let gone = PodUid("gone".into());
    let of_nobody = nft_rules::format_dnat_rules(&at_node(Some(agent.port), None), captured(Some(&gone)));
    assert!(of_nobody.unwrap_err().to_string().contains("the pod gone"));
    load(
        &nft_rules::format_dnat_rules(&at_node(Some(agent.port), Some(other.port)), captured(None)).unwrap(),
    );
    // What is not translated does not pass either.
    assert_eq!(one.ask("ask raw_syn 169.254.169.254 443"), "nothing");
    assert_eq!(one.ask("ask udp 169.254.169.254 53"), "real");
    drop(agent);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "ECONNREFUSED");
    assert_eq!(host.fetch_from_server("169.254.169.254"), "ECONNREFUSED");
    assert_eq!(outside.fetch_from_server("169.254.169.254"), "real");
    // Without the match, pods on the node's network keep the real server, also while no agent listens.
    load(&nft_rules::format_dnat_rules(&at_node(Some(other.port), None), None).unwrap());
    assert_eq!(one.fetch_from_server("169.254.169.254"), "containers:nobody");
    assert_eq!(host.fetch_from_server("169.254.169.254"), "real");
    drop(other);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "ECONNREFUSED");
    assert_eq!(host.fetch_from_server("fd00:ec2::254"), "real");
    load(&nft_rules::format_cleanup_rules());
    assert_eq!(one.fetch_from_server("169.254.169.254"), "real");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn what_nft_says_of_bad_rules_is_told() {
    let _lab = Lab::new();
    let refused = within("node", || nft_rules::load_rules("table inet seawall { nonsense }\n"))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("nonsense"), "{refused}");
}

/// The answer of a pod whose connect got no answer.
const TIMED_OUT: &str = "TimeoutError('timed out')";

/// The node's address, the victim's and the attacker's in each family, with the words of nft and a metadata address.
const FAMILIES: [[&str; 5]; 2] = [
    ["ip", NODE, "10.44.0.11", "10.44.0.12", "169.254.169.254"],
    ["ip6", NODE6, "fd44::11", "fd44::12", "fd20:ce::254"],
];

/// Returns the number of established connections of a network.
fn established(network: &str) -> usize {
    let of_file = |file| within(network, || std::fs::read_to_string(file).unwrap());
    let sockets = of_file("/proc/thread-self/net/tcp") + &of_file("/proc/thread-self/net/tcp6");
    sockets.lines().filter(|line| line.split_whitespace().nth(3) == Some("01")).count()
}

/// Connection tracking took a victim's connection to the agent for an answer to a pod's connection from the agent's port, and led it there.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn no_connection_from_the_agents_port_leads_a_victims_requests_to_a_pod() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    let (mut victim, mut attacker) = (lab.pod(ONE), lab.pod(TWO));
    let port = agent.port.get();
    let ports = AgentPorts { addresses: vec![address(NODE), address(NODE6)], ports: vec![port] };
    for [family, node, victims, attackers, metadata] in FAMILIES {
        within("node", netfilter::remove_rules).unwrap();
        // A Service whose endpoints are the victim's ports, on a node that replaces the sources of such connections by its own address, and one
        // where it also replaces the port.
        load(&format!(
            "table {family} kube-proxy {{\n\
             chain prerouting {{ type nat hook prerouting priority -100;\n\
             {family} daddr {node} tcp dport 40000-40009 meta mark set 1 dnat to {victims}\n\
             {family} daddr {node} tcp dport 40010-40019 meta mark set 2 dnat to {victims}\n}}\n\
             chain postrouting {{ type nat hook postrouting priority 100;\n\
             meta mark 1 snat to {node}\nmeta mark 2 meta l4proto tcp snat to {target}\n}}\n}}\n",
            target = std::net::SocketAddr::new(address(node), port),
        ));
        assert_eq!(attacker.ask(&format!("squat {attackers} {port}")), "listening");
        let mut plant = |at: u16, from: u16| attacker.ask(&format!("plant {node} {at} {attackers} {from}"));
        let connect =
            |victim: &mut PodProcess, from: u16| victim.ask(&format!("hold {metadata} 80 {victims} {from}"));
        let before = established("pod2");
        let led_astray = || established("pod2") - before;
        // Without the rules the victim's connection ends at the attacker, or nowhere on some kernels (6.1).
        assert_eq!(plant(40000, port), "sent");
        let without_rules = connect(&mut victim, 40000);
        let led_at_first = usize::from(without_rules == format!("{victims} 40000"));
        assert!(led_at_first == 1 || without_rules == TIMED_OUT, "{without_rules}");
        until(|| led_astray() == led_at_first);
        assert_eq!(plant(40001, port), "sent");

        assert_eq!(within("node", || netfilter::load_drop_rules(&ports)).unwrap(), ports);
        assert!(within("node", || netfilter::has_drop_rules(&ports)).unwrap());
        assert_eq!(plant(40002, port), "sent");
        assert_eq!(plant(40010, 50_000), "sent");
        for from in [40002, 40010] {
            assert_eq!(connect(&mut victim, from), format!("{victims} {from}"));
            assert_eq!(victim.ask("last"), "agent:one");
        }
        // What was planted before the rules leads nowhere.
        assert_eq!(connect(&mut victim, 40001), TIMED_OUT);
        assert_eq!(led_astray(), led_at_first);
    }
}

/// A pod with raw sockets could open a tracked connection whose answers are another pod's packets to the agent.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn no_packet_that_pretends_to_come_from_the_agents_port_reaches_a_pod() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    let (mut victim, mut attacker, mut host) = (lab.pod(ONE), lab.pod(TWO), lab.pod(HOST));
    let port = agent.port.get();
    for [_, node, victims, attackers, metadata] in FAMILIES {
        within("node", netfilter::remove_rules).unwrap();
        let mut heard = || {
            assert_eq!(victim.ask(&format!("hear {victims}")), "hearing");
            for (source, from) in [(node, port), (node, 40_003), (attackers, 40_004)] {
                assert_eq!(attacker.ask(&format!("forge {source} {from} {victims} 9")), "sent");
            }
            victim.ask("heard 40004")
        };
        assert_eq!(heard(), format!("{port} 40003 40004"));
        let ports = AgentPorts { addresses: vec![address(NODE), address(NODE6)], ports: vec![port] };
        assert_eq!(within("node", || netfilter::load_drop_rules(&ports)).unwrap(), ports);
        assert_eq!(heard(), "40003 40004");
        // The agent's own answers pass, also on the node's own network.
        assert_eq!(victim.fetch_from_server(metadata), "agent:one");
        assert_eq!(host.fetch_from_server(metadata), "agent:host");
    }
}

/// A Service with the node's address in `externalIPs`, or a `hostPort`, translated the agent's port to a tenant's pod.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn no_translation_of_the_node_leads_requests_from_the_agents_port_to_a_pod() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    let (mut one, mut two, mut host) = (lab.pod(ONE), lab.pod(TWO), lab.pod(HOST));
    let port = agent.port.get();
    for [family, node, _, pod, metadata] in FAMILIES {
        assert_eq!(two.ask(&format!("squat {pod} {port}")), "listening");
        // As kube-proxy writes it, for packets that arrive and for packets of the node.
        let service = |hook: &str| {
            format!(
                "chain {hook} {{ type nat hook {hook} priority -100; {family} daddr {node} tcp dport {port} dnat to {pod}; }}\n"
            )
        };
        load(&format!("table {family} kube-proxy {{\n{}{}}}\n", service("prerouting"), service("output")));
        one.ask(&format!("hold {metadata} 80"));
    }
    until(|| established("pod2") == 2);
    let ports = AgentPorts { addresses: vec![address(NODE), address(NODE6)], ports: vec![port] };
    within("node", || netfilter::load_drop_rules(&ports)).unwrap();
    assert!(within("node", || netfilter::has_drop_rules(&ports)).unwrap());
    // The rules that a node loads when it boots have no ports, so they are not enough.
    load(&nft_rules::format_drop_rules());
    assert!(!within("node", || netfilter::has_drop_rules(&ports)).unwrap());
    assert_eq!(within("node", || netfilter::load_drop_rules(&ports)).unwrap(), ports);
    for to in ["169.254.169.254", "fd20:ce::254", NODE, NODE6] {
        let at = if [NODE, NODE6].contains(&to) { port } else { 80 };
        assert_eq!(one.ask(&format!("ask connect {to} {at}")), "agent:one", "{to}");
        assert_eq!(host.ask(&format!("ask connect {to} {at}")), "agent:host", "{to}");
    }
    assert_eq!(established("pod2"), 2);
}
