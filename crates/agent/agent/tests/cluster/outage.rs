//! The API server goes away and comes back.

use std::time::Duration;

use seawall_core::Clock;

use crate::support::client::{Client, format_get};
use crate::support::network::METADATA;
use crate::support::*;

/// How long the API server stays away. Five minutes are promised; the default proves the same in less, because nothing
/// that happens during an outage takes longer: the longest pause between tries (3 s) is reached after six of them, and a
/// watch that says nothing is given up after 90 s, but here its connection is closed at once. SEAWALL_OUTAGE_SECONDS=300
/// plays it in full.
fn outage() -> Duration {
    let seconds = std::env::var("SEAWALL_OUTAGE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn while_the_api_server_is_away_known_pods_are_served_and_new_ones_are_told_so() {
    let mut world = World::start(&["cart", "pay"], "");
    let pods = [world.pod("cart-0", "cart"), world.pod("cart-1", "cart"), world.pod("pay-0", "pay")];
    pods.iter().for_each(|pod| world.check_pod(pod));
    // Bound and not yet told of; its address comes up during the outage.
    let new = world.bound("pay-1", "pay");
    let leaving = world.pod("pay-2", "pay");
    world.check_pod(&leaving);

    world.plane.kill_api_server();
    let clock = Clock::system();
    let back = clock.now() + outage();
    let mut kept: Vec<_> = pods
        .iter()
        .map(|pod| pod.sandbox.run(|| Client::connect(pod.sandbox.address, (METADATA, 80).into())))
        .collect();
    let (mut served, mut refused) = (0, 0);
    while clock.now() < back {
        for (pod, client) in pods.iter().zip(&mut kept) {
            world.check(&client.ask(&format_get(TOKEN)).token(), &pod.account);
            world.check_pod(pod);
            served += 2;
        }
        assert_eq!(new.ask(TOKEN).status_and_refusal_code(), (503, "unknown_pod"));
        refused += 1;
    }
    assert!(served > 10 && refused > 5, "{served} {refused}");
    let ready = world.admin("/readyz");
    assert_eq!(ready.status, 200);
    assert!(ready.body.contains("the watch of pods is interrupted"), "{}", ready.body);
    assert!(world.metric("seawall_cluster_staleness_seconds") >= outage().as_secs_f64() - 2.0);

    world.plane.start_api_server();
    let returned = clock.now();
    world.api.set_pod_status("pay-1", "Running", &new.sandbox.address.to_string());
    world.api.delete_pod("pay-2", 0);
    wait_until_true("the new pod is served", || new.ask(TOKEN).status == 200);
    wait_until_true("the one that left is not", || leaving.ask(TOKEN).status == 503);
    let took = clock.now().since(returned);
    eprintln!(
        "API server away for {:?}: {served} answers, {refused} refusals, current after {took:?}",
        outage()
    );
    assert!(took < Duration::from_secs(5), "{took:?}");
    world.check_pod(&new);
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn an_api_server_that_is_absent_at_the_start_is_a_state() {
    let mut world = World::start(&["cart"], "");
    let pod = world.pod("cart-0", "cart");
    world.check_pod(&pod);
    world.plane.kill_api_server();
    world.restart_agent();
    let ready = world.admin("/readyz");
    assert_eq!(ready.status, 503);
    assert!(
        ready.body.contains("the agent has not received this node's pods from the API server yet"),
        "{}",
        ready.body
    );
    assert_eq!(pod.ask(TOKEN).status_and_refusal_code(), (503, "pods_not_synced"));
    world.plane.start_api_server();
    wait_until_true("the agent is ready", || world.admin("/readyz").status == 200);
    wait_until_true("the pod is served", || pod.ask(TOKEN).status == 200);
    world.check_pod(&pod);
}
