//! What the other tests stand on: pods of the image reach each other and the node, and the node tells truly what came of them.

use std::net::IpAddr;
use std::process::Stdio;

use seawall_testkit::counting_server::CountingServer;
use seawall_testkit::node::{NODE_ADDRESS, Node, run_successfully};
use seawall_testkit::objects::{NAMESPACE, pods_path};
use seawall_testkit::waiting::wait_until_true;
use serde_json::{Value, json};

use crate::pods::{attacking, limited, node, planted, pod};

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn a_pod_of_the_image_serves_and_another_attacks_it_to_the_end() {
    let node = node();
    let url = planted(&node, "server", &["--service-time", "1ms"]);
    let said = attack(&node, "client", &url, 200, 3);
    assert_eq!((&said["offered"], &said["good"]), (&json!(600), &json!(600)), "{said}");
}

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn the_counter_on_the_node_has_what_pods_sent_each_at_its_own_address() {
    let node = node();
    let counter = CountingServer::start(NODE_ADDRESS.into()).unwrap();
    for (name, rate) in [("one", 100), ("other", 300)] {
        let said = attack(&node, name, &counter.url(), rate, 2);
        let address: IpAddr = node.wait_for_pod_address(name).parse().unwrap();
        let caller = counter.callers()[&address];
        assert_eq!((said["good"].as_u64(), caller.requests), (Some(caller.requests), 2 * u64::from(rate)));
        assert_eq!(said["connections"].as_u64(), Some(caller.connections), "{said}");
        let (first, last) = caller.first_and_last_request.unwrap();
        eprintln!("{name}: {} requests in {:?}", caller.requests, last.since(first));
    }
    assert_eq!(counter.request_count(), 800);
}

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn a_killed_container_and_a_felt_quota_are_told_of() {
    let node = node();
    // Far more than the quota lets it send.
    let counter = CountingServer::start(NODE_ADDRESS.into()).unwrap();
    node.create_pod(&limited(attacking(&node, "slow", &counter.url(), 20_000, 60), "50m"));
    wait_until_true("the quota to be felt", || {
        node.pod("slow")["status"]["phase"] == "Running"
            && node.pod_cpu_throttling("slow").throttled_periods > 10
    });
    eprintln!("{:?}", node.pod_cpu_throttling("slow"));
    node.kill_container("slow");
    assert_eq!(node.wait_for_exit_code("slow"), 137);
    let kinds = [("/api/v1", "pods"), ("/api/v1", "secrets"), ("/apis/batch/v1", "jobs")];
    assert_eq!(node.list_object_names(NAMESPACE, &kinds), ["pods/slow"]);
    node.delete_pod_and_wait("slow");
    assert!(node.list_object_names(NAMESPACE, &kinds).is_empty());
}

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn a_person_may_do_what_a_role_permits_and_nothing_else() {
    let node = node();
    node.create_pod(&pod("server", &["emulate", "server"]));
    let may = |file: &std::path::Path, verb: &str, what: &str| {
        let mut kubectl = node.kubectl_command_with_kubeconfig(file);
        kubectl.args(["auth", "can-i", "--quiet", "--namespace", NAMESPACE, verb, what]);
        kubectl.stdin(Stdio::null()).status().unwrap().success()
    };
    let rules = |verbs: Value| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]);
    let file = node.grant_person_and_write_kubeconfig(&rules(json!(["get"])));
    assert_eq!((may(&file, "get", "pods"), may(&file, "create", "pods")), (true, false));
    run_successfully(node.kubectl_command_with_kubeconfig(&file).args([
        "get",
        "--raw",
        &format!("{}/server", pods_path()),
    ]));
    let file = node.grant_person_and_write_kubeconfig(&rules(json!(["create"])));
    assert_eq!((may(&file, "get", "pods"), may(&file, "create", "pods")), (false, true));
    run_successfully(node.seawall_command(&file).arg("--version"));
}

/// What a pod says that attacks and has ended well.
fn attack(node: &Node, name: &str, url: &str, rate: u32, seconds: u32) -> Value {
    node.create_pod(&attacking(node, name, url, rate, seconds));
    let code = node.wait_for_exit_code(name);
    let log = node.pod_log(name);
    assert_eq!(code, 0, "{log}");
    serde_json::from_str(log.trim()).unwrap_or_else(|_| panic!("{log}"))
}
