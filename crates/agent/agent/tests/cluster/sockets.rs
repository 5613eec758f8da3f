//! `sock-diag` identity: a node without the redirect's programs, whose pods on its network are told by who made their sockets.

use seawall_testkit::pod::Process;

use crate::support::captured::{ADDRESS, Node, admin};
use crate::support::{EMAIL, TOKEN, until_true};

const AGENT: &str = "aaaaaaaa-0000-0000-0000-000000000001";

#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn pods_on_the_nodes_network_are_told_by_their_sockets_where_there_are_no_programs() {
    let mut node = Node::without_programs(&["cart", "logs", "metrics"]);
    let agent = node.agent(AGENT);
    node.translate(agent.address());
    let mut cart = node.pod("cart", "cart");
    let (mut logs, mut metrics) = (node.host_pod("logs", "logs"), node.host_pod("metrics", "metrics"));
    for pod in [&mut cart, &mut logs, &mut metrics] {
        until_true("the API server's word", || pod.fetch(EMAIL).starts_with("200 "));
        node.check(pod, "169.254.169.254");
    }
    // Without a translation between.
    let port = agent.address().port();
    for pod in [&mut logs, &mut metrics] {
        let direct = pod.process.ask(&format!("fetch {ADDRESS} {port} {TOKEN}"));
        node.check_answer(&direct, &pod.account);
        let mapped = pod.process.ask(&format!("fetch ::ffff:{ADDRESS} {port} {TOKEN}"));
        node.check_answer(&mapped, &pod.account);
    }
    let refused = node.outside().ask(&format!("fetch {ADDRESS} {port} {TOKEN}"));
    assert!(refused.starts_with("403 ") && refused.contains("host_network"), "{refused}");
    for (name, status) in agent.threads() {
        for line in ["Seccomp:\t2", "CapEff:\t0000000000000000"] {
            assert!(status.contains(line), "{name}: {line} in {status}");
        }
    }
}

/// A container that may make groups of its own gives them whatever names it likes.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn a_pod_is_itself_in_groups_that_it_made_whatever_it_called_them() {
    let mut node = Node::without_programs(&["logs", "metrics"]);
    let agent = node.agent(AGENT);
    let port = agent.address().port();
    let (mut logs, metrics) = (node.host_pod("logs", "logs"), node.host_pod("metrics", "metrics"));
    let direct = format!("fetch {ADDRESS} {port} ");
    until_true("the API server's word", || logs.process.ask(&format!("{direct}{EMAIL}")).starts_with("200 "));
    let own = node.group(&logs.uid).join(format!("pod{}/c", metrics.uid));
    std::fs::create_dir_all(&own).unwrap();
    let mut nested = Process::start(None, &own);
    node.check_answer(&nested.ask(&format!("{direct}{TOKEN}")), "logs");
    // Of more groups than are listed some are nobody's, and none is another pod's.
    (0..300).for_each(|n| std::fs::create_dir(own.join(format!("n{n}"))).unwrap());
    let answers: Vec<_> = ["n0", "n299"]
        .iter()
        .map(|last| Process::start(None, &own.join(last)).ask(&format!("{direct}{TOKEN}")))
        .collect();
    for answer in answers {
        assert!(answer.starts_with("403 ") || answer.starts_with("200 "), "{answer}");
        if answer.starts_with("200 ") {
            node.check_answer(&answer, "logs");
        }
    }
    // Others are known all the same.
    let mut metrics = metrics;
    node.check_answer(&metrics.process.ask(&format!("{direct}{TOKEN}")), "metrics");
}

#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn a_pod_with_an_address_is_not_told_by_a_socket_on_the_nodes_network() {
    let mut node = Node::without_programs(&["cart"]);
    let agent = node.agent(AGENT);
    let mut cart = node.pod("cart", "cart");
    let port = agent.address().port();
    until_true("the API server's word", || {
        cart.process.ask(&format!("fetch {ADDRESS} {port} {EMAIL}")).starts_with("200 ")
    });
    // Of the same pod's group, as the kubelet's exec of the node's would be.
    let mut on_node = Process::start(None, &node.group(&cart.uid));
    let refused = on_node.ask(&format!("fetch {ADDRESS} {port} {TOKEN}"));
    assert!(refused.starts_with("403 ") && refused.contains("host_network"), "{refused}");
    assert_eq!(admin(&agent, "/readyz").status, 200);
}

#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn an_agent_does_not_start_where_there_are_no_groups_of_pods_and_says_why() {
    let node = Node::without_programs(&[]);
    node.edit(|config| config.replace("kubepods }", "nothing }"));
    let output = node.command(AGENT).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && log.contains("sock-diag") && log.contains("no group of pods"),
        "{log}"
    );
}
