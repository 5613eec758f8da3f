//! Pods on the node's network: the node's own agents, which need the node's metadata server whatever happens to Seawall's.

use seawall_testkit::pod_process::PodProcess;
use serde_json::json;

use crate::chart::DAEMON_SET;
use crate::install::fetch;
use crate::node::Node;
use crate::pods::{Class, on_the_nodes_network, pod};
use crate::real_metadata_server::SAYS;
use crate::support::{TOKEN, wait_until_true};

/// The requests of AWS's VPC CNI at its start on a node with 15 interfaces, which it sends at once.
const BURST: usize = 150;

/// After the installation the VPC CNI got 404 for its interfaces, and new nodes had no pods.
#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn pods_on_the_nodes_network_keep_the_real_server_while_agents_start_change_and_go() {
    let node = Node::start(&["cart", "cni"]);
    let cni = node.run(&on_the_nodes_network(pod("cni", "cni", Class::BestEffort)));
    let control = node.run_static_pod(on_the_nodes_network(pod("etcd", "etcd", Class::Burstable)));
    let mut agents = [cni, node.inside(&control)];
    let mut cart = node.run(&pod("cart", "cart", Class::Burstable));
    let mut bursts = 0;
    let mut burst = |agents: &mut [PodProcess]| {
        bursts += 1;
        for agent in agents {
            for _ in 0..BURST {
                assert_eq!(fetch(agent, "/latest/meta-data/mac"), format!("200 {SAYS}"), "burst {bursts}");
            }
        }
    };
    burst(&mut agents);
    let mut helm = node.install_with(&json!({}));
    // Also between the attachment and the first agent.
    wait_until_true("cart's credentials", || {
        burst(&mut agents);
        fetch(&mut cart, TOKEN).starts_with("200 {")
    });
    assert!(helm.wait().unwrap().success());
    node.until_rolled_out();
    let mut upgrade = node.start_upgrade(&json!({"podAnnotations": {"seawall.test/revision": "2"}}));
    let before = node.agents();
    wait_until_true("the next agent", || {
        burst(&mut agents);
        upgrade.try_wait().unwrap().is_some() && node.agents().iter().all(|agent| !before.contains(agent))
    });
    node.until_rolled_out();
    assert!(node.token(&fetch(&mut cart, TOKEN)).is_some());
    node.api.call_expecting_success("DELETE", DAEMON_SET, Some(&json!({"propagationPolicy": "Foreground"})));
    wait_until_true("the agents to be gone", || {
        burst(&mut agents);
        node.agents().is_empty()
    });
    burst(&mut agents);
    assert_eq!(fetch(&mut cart, TOKEN), "EPERM");
}
