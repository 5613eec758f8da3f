//! Connects without a live agent: the programs refuse them and never let them through.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;

use seawall_redirect::{Error, RedirectCounts, detach};

use crate::support::agent::{at_node, gate, listen};
use crate::support::*;

const ADDRESSES: [&str; 4] = ["169.254.169.254", "::ffff:169.254.169.254", "fd20:ce::254", "fd00:ec2::254"];

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn before_the_first_agent_every_pod_is_refused() {
    let lab = Lab::attached();
    let (mut one, mut host, mut outside) = (lab.pod(ONE), lab.pod(HOST), lab.outside());
    for to in ADDRESSES.into_iter().chain(["169.254.170.23", "fd00:ec2::23"]) {
        assert_eq!(one.fetch_from_server(to), "EPERM", "{to}");
        assert_eq!(host.fetch_from_server(to), "EPERM", "{to}");
    }
    assert_eq!(outside.fetch_from_server("169.254.169.254"), "real");
    let counts = RedirectCounts::read(&lab.pins).unwrap();
    assert_eq!((counts.connect4.no_agent, counts.connect6.no_agent), (4, 8));
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn when_the_agent_has_died_pods_are_refused_and_the_node_is_not() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    let (mut one, mut host, mut outside) = (lab.pod(ONE), lab.pod(HOST), lab.outside());
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
    drop(agent);
    for to in ADDRESSES {
        assert_eq!(one.fetch_from_server(to), "EPERM", "{to}");
        assert_eq!(host.fetch_from_server(to), "EPERM", "{to}");
    }
    assert_eq!(outside.fetch_from_server("169.254.169.254"), "real");
    let _restarted = Agent::start(&lab);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
    assert_eq!(host.fetch_from_server("169.254.169.254"), "agent:host");
}

/// A pod on the node's network needs no right to listen at the port of a dead agent, where it would answer all pods.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn nobody_is_sent_to_who_listens_where_an_agent_died() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    let (dead, mut one, mut host) = (agent.at(), lab.pod(ONE), lab.pod(HOST));
    assert!(gate(&lab).is_listening(dead).unwrap());
    drop(agent);
    assert!(!gate(&lab).is_listening(dead).unwrap());
    let port = dead.metadata_port.unwrap();
    assert_eq!(host.ask(&format!("squat {NODE} {port}")), "listening");
    for to in ADDRESSES.into_iter().chain([NODE]) {
        let port = if to == NODE { port.get() } else { 80 };
        assert_eq!(one.ask(&format!("ask connect {to} {port}")), "EPERM", "{to}");
        assert_eq!(host.ask(&format!("ask connect {to} {port}")), "EPERM", "{to}");
    }
    // Nor while the next agent listens already and is not ready.
    let next = Agent::beside(&lab);
    assert!(!gate(&lab).is_listening(dead).unwrap());
    assert_eq!(one.fetch_from_server("169.254.169.254"), "EPERM");
    assert!(gate(&lab).take_over_from(dead, next.at()).unwrap());
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
}

/// An agent with a fixed port was never ready after another one had died there: the programs refused its connection to itself.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn an_agent_reaches_itself_at_the_port_of_a_dead_one_and_nobody_else_does() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    gate(&lab).exempt_pod(lab.id(AGENT)).unwrap();
    let port = agent.at().metadata_port.unwrap();
    drop(agent);
    let _next = within("node", || TcpListener::bind((NODE, port.get())).unwrap());
    let itself = lab.pod(AGENT).ask(&format!("hold {NODE} {port}"));
    assert!(itself.starts_with(NODE), "{itself}");
    for uid in [ONE, HOST] {
        assert_eq!(lab.pod(uid).ask(&format!("hold {NODE} {port}")), "EPERM");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn as_many_agents_are_known_as_live_and_no_more_than_there_is_room_for() {
    let lab = Arc::new(Lab::attached());
    let mut gate = gate(&lab);
    let mut living: Vec<_> = (0..16).map(|_| listen()).collect();
    let seats: Vec<_> = living.iter().map(|listener| gate.register_listener(listener).unwrap()).collect();
    assert_eq!(seats, (0..16).collect::<Vec<_>>());
    let one_more = listen();
    assert!(matches!(gate.register_listener(&one_more), Err(Error::TooManyAgents { .. })));
    drop(living.remove(5));
    assert_eq!(gate.register_listener(&one_more).unwrap(), 5);
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_closed_gate_and_an_endpoint_that_no_agent_answers_refuse() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    let mut one = lab.pod(ONE);
    assert_eq!(one.fetch_from_server("169.254.170.23"), "EPERM");
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
    gate(&lab).clear_target().unwrap();
    assert_eq!(one.fetch_from_server("169.254.169.254"), "EPERM");
    gate(&lab).clear_target().unwrap();
    gate(&lab).set_target(at_node(None, Some(agent.port))).unwrap();
    assert_eq!(one.fetch_from_server("169.254.169.254"), "EPERM");
    assert_eq!(one.fetch_from_server("169.254.170.23"), "agent:one");
    assert!(gate(&lab).set_target(at_node(None, None)).is_err());
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn other_ports_of_the_real_server_are_refused() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    for uid in [ONE, HOST] {
        let mut pod = lab.pod(uid);
        assert_eq!(pod.ask("ask connect 169.254.169.254 443"), "EPERM");
        assert_eq!(pod.ask("ask connect fd20:ce::254 443"), "EPERM");
    }
    assert_eq!(lab.outside().ask("ask connect 169.254.169.254 443"), "real");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn who_is_in_the_pods_tree_and_in_no_pod_is_refused() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    for group in ["", "burstable"] {
        let mut process = PodProcess::start(Some("pod1"), &lab.site.kubepods_directory().join(group));
        let got = process.fetch_from_server("169.254.169.254");
        // A class of service is no pod; nor is the pods' group itself.
        assert_eq!(got, "EPERM", "{group}");
    }
    assert_eq!(RedirectCounts::read(&lab.pins).unwrap().connect4.unidentified_pod, 2);
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_pods_socket_in_the_hands_of_a_task_outside_is_refused() {
    let lab = Arc::new(Lab::attached());
    let _agent = Agent::start(&lab);
    // As deep as a container of a pod, and in none.
    let deep = lab.base.join("outside/a/b/c");
    fs::create_dir_all(&deep).unwrap();
    let (mut one, mut outside) = (lab.pod(ONE), PodProcess::start(Some("pod1"), &deep));
    // Below a mount that is this run's own.
    outside.ask("expect /run/given");
    assert_eq!(one.ask("give /run/given"), "given");
    assert_eq!(outside.ask("use 169.254.169.254 80"), "EPERM");
    assert_eq!(RedirectCounts::read(&lab.pins).unwrap().connect4.unidentified_pod, 1);
    fs::remove_file("/run/given").unwrap();
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn after_removal_nothing_is_left_and_pods_reach_the_real_server() {
    let lab = Arc::new(Lab::attached());
    let agent = Agent::start(&lab);
    let mut one = lab.pod(ONE);
    assert_eq!(one.fetch_from_server("169.254.169.254"), "agent:one");
    drop(agent);
    for _ in 0..2 {
        detach(&lab.pins).unwrap();
        assert_eq!(one.fetch_from_server("169.254.169.254"), "real");
        assert_eq!(one.fetch_from_server("fd20:ce::254"), "real");
        assert!(!lab.pins.directory().parent().unwrap().exists());
    }
    let error = seawall_redirect::read_status(&lab.pins, &lab.site).unwrap_err();
    assert!(matches!(error, Error::NotAttached { .. }), "{error}");
}
