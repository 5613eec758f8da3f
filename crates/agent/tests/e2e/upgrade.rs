//! Agents that follow one another while pods ask.

use serde_json::{Value, json};

use seawall_core::Clock;
use seawall_testkit::objects::NAMESPACE;

use crate::node::Node;
use crate::pods::{Class, running};
use crate::support::{TOKEN, until_true};

const RATE: u64 = 300;
/// Longer than the rollouts take; a run that they outlast proves nothing, and is said to.
const SECONDS: u64 = 75;
const ROLLOUTS: usize = 4;

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn no_request_fails_while_agents_are_rolled_out() {
    let node = Node::start(&["cart", "search"]);
    node.install();
    targets(&node);
    let loads = [("fresh", "cart", "--keepalive=false"), ("kept", "search", "--keepalive=true")];
    for (name, account, kept) in loads {
        node.create(&load(name, account, kept));
        node.until_running(name);
    }
    let clock = Clock::system();
    for revision in 1..=ROLLOUTS {
        let (start, before) = (clock.now(), node.agents());
        node.upgrade(&json!({"podAnnotations": {"seawall.test/revision": revision.to_string()}}));
        until_true("another agent", || node.agents() != before);
        eprintln!("rollout {revision}: {:?}", clock.now().since(start));
    }
    for (name, ..) in loads {
        assert_eq!(node.pod(name)["status"]["phase"], "Running", "{name} ended before the last rollout");
    }
    for (name, account, _) in loads {
        node.until_ended(name);
        judge(&node, name, account);
    }
    assert_eq!(node.real.pods(), 0);
}

/// What the load's pods ask for, as a file.
fn targets(node: &Node) {
    let target = format!("GET http://169.254.169.254{TOKEN}\nMetadata-Flavor: Google\n");
    let map = json!({"metadata": {"name": "targets"}, "data": {"targets": target}});
    node.api.must("POST", &format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), Some(&map));
}

/// The project's own load tool in a pod.
fn load(name: &str, account: &str, kept: &str) -> Value {
    let (rate, duration) = (format!("--rate={RATE}"), format!("--duration={SECONDS}s"));
    let words = ["/seawall", "attack", "--targets=/targets/targets", &rate, &duration, kept];
    let shown = ["--output=none", "--summary=json", "--live=none", "--evidence=2", "--timeout=5s"];
    let mut pod = running(name, account, Class::Burstable, &[&words[..], &shown[..]].concat());
    pod["spec"]["containers"][0]["image"] =
        json!(concat!("seawall.local/seawall:", env!("CARGO_PKG_VERSION")));
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "targets", "mountPath": "/targets"}]);
    pod["spec"]["volumes"] = json!([{"name": "targets", "configMap": {"name": "targets"}}]);
    pod
}

fn judge(node: &Node, name: &str, account: &str) {
    let log = node.log_of(name);
    let summary: Value = serde_json::from_str(log.trim()).unwrap_or_else(|_| panic!("{log}"));
    let (requests, codes) = (summary["requests"].as_u64().unwrap(), &summary["status_codes"]);
    eprintln!("{name} ({account}): {requests} requests, {codes}");
    assert!(requests >= 18_000, "{log}");
    assert_eq!(codes, &json!({"200": requests}), "{log}");
}
