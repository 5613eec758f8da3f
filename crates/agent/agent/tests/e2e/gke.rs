//! A cluster that limits the system's priority classes to namespaces with a quota for them, as GKE does.

use serde_json::json;

use crate::install::fetch;
use crate::node::Node;
use crate::pods::{Class, pod};
use crate::real_metadata_server::SAYS;
use crate::support::{TOKEN, wait_until_true};

const EVENTS: &str = "/api/v1/namespaces/seawall/events?fieldSelector=reason=FailedCreate";

/// The DaemonSet had 0 pods on each GKE cluster. The API server reports no version of GKE's here, so the quota is asked for.
#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn where_critical_pods_need_a_quota_the_charts_quota_admits_the_agents_and_the_uninstall_hook() {
    let node = Node::like_gke(&["cart"]);
    let mut cart = node.run(&pod("cart", "cart", Class::Burstable));
    // The check before the installation has no priority class, so it needs no quota.
    let without = json!({"resourceQuota": {"enabled": "never"}});
    assert!(node.install_with(&without).wait().unwrap().success());
    wait_until_true("the API server to refuse the agent's pod", || {
        let events = node.api.call_expecting_success("GET", EVENTS, None).to_string();
        events.contains("insufficient quota to match these scopes")
    });
    assert!(node.agents().is_empty());
    assert_eq!(fetch(&mut cart, TOKEN), format!("200 {SAYS}"));

    // The annotation makes the controller try at once, and not when its next turn comes.
    let with =
        json!({"resourceQuota": {"enabled": "always"}, "podAnnotations": {"seawall.test/revision": "2"}});
    node.upgrade(&with);
    wait_until_true("cart's credentials", || node.token(&fetch(&mut cart, TOKEN)).is_some());
    // Its pods have the class, too.
    node.uninstall();
    assert_eq!(fetch(&mut cart, TOKEN), format!("200 {SAYS}"));
}
