//! Whatever is wrong with an account or a token has a name: in the refusal that the pod reads, and in one event on the pod.
//! None of it is a storm of calls.

use std::time::Duration;

use seawall_core::Clock;
use seawall_testkit::objects::service_accounts_path;
use serde_json::json;

use crate::support::cloud::Cloud;
use crate::support::*;

/// Asks many times; every answer is this refusal.
fn refused(pod: &Pod, refusal: (u16, &str)) {
    for _ in 0..50 {
        assert_eq!(pod.ask(TOKEN).status_and_refusal_code(), refusal);
    }
}

/// One event, with this reason, however often the pod asked.
fn one_event(world: &World, pod: &Pod, reason: &str) {
    let events = world.events(pod);
    let reasons: Vec<_> = events.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!(reasons, [reason], "{events:?}");
}

/// With this changed in the agent's file, the cloud refuses a pod at the first call of the chain, by name and few times.
fn exchange_is_denied(world: &mut World, from: &str, to: &str) {
    let path = world.folder.path().join("agent.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(from, to)).unwrap();
    world.restart_agent();
    let pod = world.pod("cart-0", "cart");
    wait_until_true("it is refused", || pod.ask(TOKEN).status_and_refusal_code() == (403, "access_denied"));
    refused(&pod, (403, "access_denied"));
    one_event(world, &pod, "CredentialsRefusedByCloud");
    let [exchanges, impersonations, _] = world.cloud.calls();
    assert!((1..=10).contains(&exchanges) && impersonations == 0, "{exchanges} {impersonations}");
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_malformed_annotation_is_named_and_never_taken_for_none() {
    let mut world = World::start(&["cart"], "");
    for (n, wrong) in
        ["nonsense", "a@b@c", "cart@evil.example", "../x@y.iam.gserviceaccount.com"].iter().enumerate()
    {
        world.api.set_google_account_annotation("cart", Some(wrong));
        let pod = world.pod(&format!("cart-{n}"), "cart");
        wait_until_true("the account is known", || pod.ask(TOKEN).status == 403);
        refused(&pod, (403, "malformed_account"));
        assert_eq!(
            pod.ask(&identity("https://a.example")).status_and_refusal_code(),
            (403, "malformed_account")
        );
        // What is the node's is told.
        assert_eq!(pod.ask("/computeMetadata/v1/project/project-id").body, "seawall-emulator");
        one_event(&world, &pod, "InvalidIdentityAnnotation");
    }
    assert_eq!(world.cloud.calls(), [0, 0, 0]);
    // Mended, it serves, without anybody restarting anything.
    world.api.set_google_account_annotation("cart", Some(&cloud::email("cart")));
    let pod = world.pod("cart-mended", "cart");
    wait_until_true("it is mended", || pod.ask(TOKEN).status == 200);
    world.check_pod(&pod);
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_deleted_service_account_ends_what_its_pods_hold() {
    let mut world = World::start(&["cart"], "");
    let pod = world.pod("cart-0", "cart");
    world.check_pod(&pod);
    world.api.call_expecting_success("DELETE", &format!("{}/cart", service_accounts_path()), None);
    wait_until_true("it is gone", || pod.ask(TOKEN).status == 403);
    refused(&pod, (403, "no_service_account"));
    one_event(&world, &pod, "ServiceAccountTokenFailed");
    wait_until_true("its lease is gone", || {
        world.metric("seawall_cached_credentials{cloud=\"google\"}") == 0.0
    });
    assert_eq!(world.cloud.calls(), [1, 1, 0]);
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_forbidden_token_request_is_named_and_not_tried_in_a_loop() {
    let mut world = World::start(&["cart"], "");
    // The rule that the agent needs is taken away from it.
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/seawall-agent";
    let mut rules = world.api.call_expecting_success("GET", role, None)["rules"].clone();
    rules.as_array_mut().unwrap().retain(|rule| rule["resources"] != json!(["serviceaccounts/token"]));
    world.api.call_expecting_success("PATCH", role, Some(&json!({ "rules": rules })));
    let pod = world.pod("cart-0", "cart");
    wait_until_true("it is refused for good", || {
        pod.ask(TOKEN).status_and_refusal_code() == (403, "pod_token_denied")
    });
    refused(&pod, (403, "pod_token_denied"));
    one_event(&world, &pod, "ServiceAccountTokenFailed");
    assert_eq!(world.cloud.calls(), [0, 0, 0]);
    // Remembered for five seconds, so however often the pod asks, the API server hears of it every five seconds at most.
    let tried =
        world.metric("seawall_credential_fetches_total{cloud=\"google\",outcome=\"pod_token_denied\"}");
    assert!((1.0..=10.0).contains(&tried), "{tried}");
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_cloud_that_refuses_is_named_and_not_asked_in_a_loop() {
    let mut world = World::start(&["cart"], "");
    // The cloud lets nobody become anybody.
    world.cloud.set_impersonation(Default::default());
    let pod = world.pod("cart-0", "cart");
    wait_until_true("it is refused", || pod.ask(TOKEN).status_and_refusal_code() == (403, "access_denied"));
    refused(&pod, (403, "access_denied"));
    one_event(&world, &pod, "CredentialsRefusedByCloud");
    let [_, impersonations, _] = world.cloud.calls();
    assert!((1..=10).contains(&impersonations), "{impersonations}");
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_token_of_the_wrong_audience_is_refused_by_the_cloud_by_name() {
    let mut world = World::start(&["cart"], "");
    exchange_is_denied(&mut world, "stsUrl:", "tokenAudience: sts.amazonaws.com\n  stsUrl:");
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_token_that_has_expired_is_refused_by_the_cloud_by_name() {
    let mut world = World::start(&["cart"], "");
    // The same cloud, where it is years later: whatever the API server issues has expired there.
    let (clock, hand) = Clock::manual();
    hand.advance(Duration::from_secs(10 * 365 * 24 * 3600));
    let before = world.cloud.address().to_string();
    world.cloud = Cloud::start_by(clock, &world.api, &[("cart".into(), Some(cloud::email("cart")))]);
    let now = world.cloud.address().to_string();
    exchange_is_denied(&mut world, &before, &now);
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn an_identity_token_without_an_account_is_refused_with_the_annotation_to_set() {
    let mut world = World::start(&["plain"], "");
    let pod = world.pod("plain-0", "plain");
    world.check_pod(&pod);
    let answer = pod.ask(&identity("https://a.example"));
    assert_eq!(answer.status_and_refusal_code(), (404, "no_account"));
    assert!(world.events(&pod)[0].1.contains("iam.gke.io/gcp-service-account"));
    one_event(&world, &pod, "CredentialsRefusedByPolicy");
}
