//! Another configuration while pods of a real cluster are served: nobody's request fails, and what is withdrawn is withdrawn.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use seawall_testkit::kubernetes_client::KubernetesApi;
use serde_json::json;

use crate::support::client::{Client, format_get};
use crate::support::network::METADATA;
use crate::support::process::{Agent, command};
use crate::support::*;

const APPLIED: &str = "seawall_config_reloads_total{outcome=\"applied\"}";

impl World {
    /// Writes what `edit` makes of the agent's file, as an editor does.
    fn edit(&self, edit: impl FnOnce(String) -> String) {
        let (file, new) = (self.folder.path().join("agent.yaml"), self.folder.path().join("agent.new"));
        std::fs::write(&new, edit(std::fs::read_to_string(&file).unwrap())).unwrap();
        std::fs::rename(&new, &file).unwrap();
    }

    /// The same, and returns once the agent has noticed and has it in force.
    fn reload(&self, edit: impl FnOnce(String) -> String) {
        let before = self.metric(APPLIED);
        self.edit(edit);
        wait_until_true("the configuration to be in force", || self.metric(APPLIED) > before);
    }

    /// Who sees the node's own metadata.
    fn let_through(&self, accounts: &str) {
        self.reload(|text| {
            let others = text.lines().filter(|line| !line.contains("realServer:"));
            let others: String = others.map(|line| format!("{line}\n")).collect();
            format!("realServer: [{accounts}]\n{others}")
        });
    }
}

/// A pod's requests on a kept connection and on a new one each, until it is told to stop; each must be answered with its own.
fn ask_on(world: &World, pod: &Pod, count: &AtomicU64, is_over: &AtomicBool) {
    pod.sandbox.run(|| {
        let mut kept = Client::connect(pod.sandbox.address, (METADATA, 80).into());
        while !is_over.load(Ordering::Relaxed) {
            world.check(&kept.ask(&format_get(TOKEN)).token(), &pod.account);
            world.check(&pod.ask_from_inside(TOKEN).token(), &pod.account);
            count.fetch_add(2, Ordering::Relaxed);
        }
    });
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn no_request_fails_and_no_connection_ends_through_reloads_and_access_is_withdrawn_at_once() {
    let mut world = World::start(&["cart", "pay", "manager"], "");
    let pods = [world.pod("cart-0", "cart"), world.pod("cart-1", "cart"), world.pod("pay-0", "pay")];
    let manager = world.pod("manager-0", "manager");
    for pod in pods.iter().chain([&manager]) {
        wait_until_true("it is known", || pod.ask(TOKEN).status == 200);
    }
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (world, count, is_over) = (&world, &count, &is_over);
        let asking: Vec<_> =
            pods.iter().map(|pod| scope.spawn(move || ask_on(world, pod, count, is_over))).collect();
        let more = || {
            let before = count.load(Ordering::Relaxed);
            wait_until_true("requests to be answered", || {
                assert!(asking.iter().all(|one| !one.is_finished()), "one failed");
                count.load(Ordering::Relaxed) >= before + 100
            });
        };
        let mut kept =
            manager.sandbox.run(|| Client::connect(manager.sandbox.address, (METADATA, 80).into()));
        let mut is_the_nodes =
            || world.cloud.read(&kept.ask(&format_get(TOKEN)).token()).sub != cloud::subject("manager");
        for _ in 0..3 {
            let calls = world.cloud.calls();
            world.let_through("reef/manager");
            assert!(is_the_nodes());
            more();
            assert_eq!(world.cloud.calls(), calls, "nobody's credentials were fetched for that");
            world.let_through("");
            assert!(!is_the_nodes(), "on the same connection");
            world.reload(|text| text.replace("stsUrl: \"http://127.0.0.1", "stsUrl: \"http://localhost"));
            more();
            world.reload(|text| {
                text.replace("http://localhost", "http://127.0.0.1")
                    .replace("europe-west1-b", "europe-west1-c")
            });
            more();
            world.reload(|text| text.replace("europe-west1-c", "europe-west1-b"));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let (answered, reloads) = (count.load(Ordering::Relaxed), world.metric(APPLIED));
    eprintln!("{answered} requests answered through {reloads} reloads, none failed");
}

/// Reason and message of the events on an object.
fn events_on(api: &KubernetesApi, namespace: &str, kind: &str) -> Vec<(String, String)> {
    let events = api.call_expecting_success("GET", &format!("/api/v1/namespaces/{namespace}/events"), None);
    let of_kind =
        events["items"].as_array().unwrap().iter().filter(|event| event["involvedObject"]["kind"] == kind);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    of_kind.map(|event| (text(&event["reason"]), text(&event["message"]))).collect()
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_bad_configuration_changes_nothing_and_is_told_on_the_node_or_on_the_agents_own_pod() {
    let mut world = World::start(&["cart"], "");
    let pod = world.pod("cart-0", "cart");
    let bad = |text: String| text.replace("zone: europe-west1-b", "zone: \"no zone\"");
    let good = |text: String| text.replace("zone: \"no zone\"", "zone: europe-west1-b");
    let mut kept = pod.sandbox.run(|| Client::connect(pod.sandbox.address, (METADATA, 80).into()));
    let token = kept.ask(&format_get(TOKEN)).token();
    world.edit(bad);
    let told = |api: &KubernetesApi, namespace: &str, kind: &str| {
        wait_until_some("an event", || events_on(api, namespace, kind).pop())
    };
    let (reason, message) = told(&world.api, "default", "Node");
    assert_eq!(reason, "ConfigReloadFailed");
    assert!(message.contains("google.zone: expected") && message.contains("stays in force"), "{message}");
    assert_eq!(world.metric("seawall_config_last_reload_successful"), 0.0);
    assert_eq!(kept.ask(&format_get(TOKEN)).token(), token);
    assert_eq!(world.admin("/readyz").status, 200);

    // Where the agent is told which pod it is, it is told there.
    world.edit(good);
    wait_until_true("it is good again", || world.metric("seawall_config_last_reload_successful") == 1.0);
    assert!(world.agent.stop().success());
    let own = world.api.call_expecting_success("GET", "/api/v1/namespaces/seawall/pods/seawall-agent", None);
    let uid = own["metadata"]["uid"].as_str().unwrap();
    let config = world.folder.path().join("agent.yaml");
    let mut program = command(env!("CARGO_BIN_EXE_seawall-agent"), &["--config", config.to_str().unwrap()]);
    world.agent =
        Agent::wait_until_serving(program.env("POD_UID", uid).stderr(Stdio::piped()).spawn().unwrap());
    wait_until_true("the agent to be ready", || world.admin("/readyz").status == 200);
    world.edit(bad);
    let (reason, message) = told(&world.api, "seawall", "Pod");
    assert_eq!(reason, "ConfigReloadFailed");
    assert!(message.contains("google.zone: expected"), "{message}");
    assert_eq!(
        events_on(&world.api, "default", "Node").len(),
        1,
        "{}",
        json!(events_on(&world.api, "default", "Node"))
    );
    assert_eq!(events_on(&world.api, "seawall", "Pod").len(), 1, "once for each content");
    world.check_pod(&pod);
}
