//! What every pod gets, from its first request to its end.

use std::time::Duration;

use serde_json::json;

use crate::support::client::{Client, ConnectionEnd, format_get};
use crate::support::network::{METADATA, Sandbox};
use crate::support::*;

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn each_pod_gets_its_own_credentials_from_the_first_request_on() {
    let mut world = World::start(&["cart", "pay", "plain"], "");
    for (name, account) in [("cart-0", "cart"), ("cart-1", "cart"), ("pay-0", "pay"), ("plain-0", "plain")] {
        let pod = world.pod(name, account);
        world.check(&pod.ask(TOKEN).token(), account);
    }
    // cart's two pods share what one chain of calls brought.
    assert_eq!(world.cloud.calls(), [3, 2, 0]);
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn the_first_request_of_the_first_container_is_a_read_of_memory() {
    let mut world = World::start(&["cart"], "");
    let pod = world.bound("cart-0", "cart");
    wait_until_true("the first credential is fetched ahead", || {
        world.metric("seawall_cached_credentials{cloud=\"google\"}") == 1.0
    });
    world.api.set_pod_status("cart-0", "Running", &pod.sandbox.address.to_string());
    world.check(&pod.ask(TOKEN).token(), "cart");
    assert_eq!(world.metric("seawall_credential_cache_hits_total"), 1.0);
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_pod_that_is_gone_loses_its_connections_and_its_leases() {
    let mut world = World::start(&["cart", "pay"], "");
    let (cart, pay) = (world.pod("cart-0", "cart"), world.pod("pay-0", "pay"));
    let connect = |pod: &Pod| {
        pod.sandbox.run(|| {
            let mut client = Client::connect(pod.sandbox.address, (METADATA, 80).into());
            client.ask(&format_get(TOKEN)).token();
            client
        })
    };
    let (mut of_cart, mut of_pay) = (connect(&cart), connect(&pay));
    world.api.delete_pod("cart-0", 0);
    // By a reset: what is on its way to a pod that is gone is thrown away, not sent to the next one at its address.
    assert_eq!(of_cart.wait_for_end(), ConnectionEnd::Reset);
    of_pay.ask(&format_get(TOKEN)).token();
    wait_until_true("its lease is gone", || {
        world.metric("seawall_cached_credentials{cloud=\"google\"}") == 1.0
    });
    assert_eq!(world.metric("seawall_connections_closed_pod_deleted_total"), 1.0);
}

/// A pod without an address used to end the connections of every pod that was shutting down, for as long as it had none.
#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_pod_that_shuts_down_keeps_its_connections_while_another_waits_for_an_address() {
    let mut world = World::start(&["cart", "pay"], "");
    let cart = world.pod("cart-0", "cart");
    let mut kept = cart.sandbox.run(|| {
        let mut client = Client::connect(cart.sandbox.address, (METADATA, 80).into());
        client.ask(&format_get(TOKEN)).token();
        client
    });
    world.api.delete_pod("cart-0", 60);
    world.api.make_pod("pay-0", "pay");
    // Each is held before it is refused, for longer than the sweep takes that would have ended the other connection.
    wait_until_true("new connections are withheld", || {
        cart.ask(TOKEN).status_and_refusal_code() == (503, "ambiguous_address")
    });
    assert_eq!(cart.ask(TOKEN).status_and_refusal_code(), (503, "ambiguous_address"));
    world.check(&kept.ask(&format_get(TOKEN)).token(), "cart");
    assert_eq!(world.metric("seawall_connections_closed_pod_deleted_total"), 0.0);

    world.api.set_pod_status("pay-0", "Running", "10.244.9.9");
    wait_until_true("it got another", || cart.ask(TOKEN).status == 200);
    world.check(&kept.ask(&format_get(TOKEN)).token(), "cart");
    world.api.set_pod_status("pay-0", "Running", &cart.sandbox.address.to_string());
    assert_eq!(kept.wait_for_end(), ConnectionEnd::Reset);
}

/// The address of a sandbox that is gone used to name the pod until its kubelet told of another.
#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_pod_whose_sandbox_is_gone_is_nobody_until_it_has_another() {
    let mut world = World::start(&["cart"], "");
    let cart = world.bound("cart-0", "cart");
    let address = cart.sandbox.address.to_string();
    world.api.set_pod_sandbox_status("cart-0", &address, true);
    let mut kept = cart.sandbox.run(|| {
        wait_until_true("it is served", || cart.ask_from_inside(TOKEN).status == 200);
        let mut client = Client::connect(cart.sandbox.address, (METADATA, 80).into());
        client.ask(&format_get(TOKEN)).token();
        client
    });
    world.api.set_pod_sandbox_status("cart-0", &address, false);
    assert_eq!(kept.wait_for_end(), ConnectionEnd::Reset);
    assert_eq!(cart.ask(TOKEN).status_and_refusal_code(), (503, "unknown_pod"));
    world.api.set_pod_sandbox_status("cart-0", &address, true);
    wait_until_true("it is served again", || cart.ask(TOKEN).status == 200);
    world.check_pod(&cart);
    // What it held outlived the sandbox, as the pod did.
    assert_eq!(world.cloud.calls(), [1, 1, 0]);
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn what_hears_the_api_server_has_a_thread_and_ends_with_the_agent() {
    let mut world = World::start(&["cart"], "");
    let pod = world.pod("cart-0", "cart");
    world.check_pod(&pod);
    assert_eq!(
        world.agent.thread_names_and_statuses().iter().filter(|(name, _)| name.trim() == "cluster").count(),
        1
    );
    // In order, and within the grace period.
    let clock = seawall_core::Clock::system();
    let before = clock.now();
    assert!(world.agent.stop().success());
    assert!(clock.now().since(before) < Duration::from_secs(5));
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn an_account_that_changes_is_followed_on_open_connections_and_wakes_who_waits_for_it() {
    let mut world = World::start(&["cart", "pay"], "");
    let pod = world.pod("cart-0", "cart");
    let (mut client, mut waiting) = pod.sandbox.run(|| {
        let mut client = Client::connect(pod.sandbox.address, (METADATA, 80).into());
        assert_eq!(client.ask(&format_get(EMAIL)).body, cloud::email("cart"));
        let tag = client.ask(&format_get(EMAIL)).header("etag").to_owned();
        let mut waiting = Client::connect(pod.sandbox.address, (METADATA, 80).into());
        waiting.write_bytes(format_get(&format!(
            "{EMAIL}?wait_for_change=true&last_etag={tag}&timeout_sec=300"
        )));
        (client, waiting)
    });
    wait_until_true("it waits", || world.metric("seawall_long_polls_open") == 1.0);
    assert!(waiting.is_open_without_unread_bytes());
    world.api.set_google_account_annotation("cart", Some(&cloud::email("pay")));
    assert_eq!(waiting.receive_answer().body, cloud::email("pay"));
    assert_eq!(client.ask(&format_get(EMAIL)).body, cloud::email("pay"));
    // The cloud lets cart become cart's account only.
    assert_eq!(client.ask(&format_get(TOKEN)).status_and_refusal_code(), (403, "access_denied"));
    world.api.set_google_account_annotation("cart", None);
    wait_until_true("it is itself", || client.ask(&format_get(EMAIL)).body == cloud::POOL);
    assert_eq!(world.cloud.read(&client.ask(&format_get(TOKEN)).token()).account, None);
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn who_is_not_known_waits_a_moment_and_is_then_told_to_try_again() {
    let mut world = World::start(&["cart"], "");
    let pod = world.bound("cart-0", "cart");
    // Its address is not reported: held in vain. How long is the client's affair.
    let clock = seawall_core::Clock::system();
    let held = |agent: &str| {
        pod.sandbox.run(|| {
            let mut client = Client::connect(pod.sandbox.address, (METADATA, 80).into());
            let before = clock.now();
            let answer =
                client.ask(&client::format_get_with_headers(TOKEN, &format!("User-Agent: {agent}\r\n")));
            assert_eq!(answer.status_and_refusal_code(), (503, "unknown_pod"));
            assert_eq!(client.wait_for_end(), ConnectionEnd::Closed);
            clock.now().since(before)
        })
    };
    let (go, python) = (held("Go-http-client/1.1"), held("google-auth/2.0"));
    assert!(go >= Duration::from_millis(400) && python >= Duration::from_millis(500), "{go:?} {python:?}");

    // Reported while a request is held: answered, on the same connection.
    let before = world.metric("seawall_identity_waits_total{outcome=\"identified\"}");
    let answer = pod.sandbox.run(|| {
        let mut client = Client::connect(pod.sandbox.address, (METADATA, 80).into());
        client.write_bytes(format_get(TOKEN));
        world.api.set_pod_status("cart-0", "Running", &pod.sandbox.address.to_string());
        client.receive_answer()
    });
    world.check(&answer.token(), "cart");
    assert!(world.metric("seawall_identity_waits_total{outcome=\"identified\"}") <= before + 1.0);
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn the_nodes_own_network_and_an_ambiguous_address_are_refused() {
    let mut world = World::start(&["cart", "pay"], "");
    let at_loopback =
        world.agent.listener_addresses.iter().find(|at| at.ip().is_loopback()).copied().unwrap();
    let answer = client::ask(std::net::Ipv4Addr::LOCALHOST, at_loopback, TOKEN);
    assert_eq!(answer.status_and_refusal_code(), (403, "host_network"));
    let answer = client::ask(METADATA, (METADATA, 80).into(), TOKEN);
    assert_eq!(answer.status_and_refusal_code(), (403, "host_network"));

    let pod = world.pod("cart-0", "cart");
    pod.ask(TOKEN).token();
    world.api.make_pod("pay-0", "pay");
    world.api.set_pod_status("pay-0", "Running", &pod.sandbox.address.to_string());
    wait_until_true("both are refused", || {
        pod.ask(TOKEN).status_and_refusal_code() == (503, "ambiguous_address")
    });
    world.api.delete_pod("pay-0", 0);
    wait_until_true("the address is one pod's again", || pod.ask(TOKEN).status == 200);
    world.check(&pod.ask(TOKEN).token(), "cart");

    let host = json!({"hostNetwork": true});
    world.api.make_pod_with("host-0", "cart", &host);
    world.api.set_pod_status("host-0", "Running", "10.244.0.1");
    let answer = client::ask(std::net::Ipv4Addr::new(10, 244, 0, 1), (METADATA, 80).into(), TOKEN);
    assert_eq!(answer.status, 503, "{answer:?}");
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn pods_in_real_server_see_the_nodes_own_metadata_and_nobody_else_does() {
    let mut world =
        World::start_with(&["node-manager", "cart"], "realServer: [reef/node-manager]\n", "", &json!([]));
    let (manager, cart) = (world.pod("manager-0", "node-manager"), world.pod("cart-0", "cart"));
    wait_until_true("the manager is known", || manager.ask(TOKEN).status == 200);
    let token = world.cloud.read(&manager.ask(TOKEN).token());
    // The machine's own token comes from the metadata server and not from an exchange.
    assert_eq!(token.sub, token.account.unwrap());
    world.check(&cart.ask(TOKEN).token(), "cart");
    assert_eq!(world.cloud.calls(), [1, 1, 0]);
    // What conceal conceals stays concealed.
    let kube_env = "/computeMetadata/v1/instance/attributes/kube-env";
    assert_eq!(manager.ask(kube_env).status, 403);
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn the_nodes_taint_is_taken_off_once_pods_would_be_served() {
    let taints = json!([
        {"key": "seawall.dev/not-ready", "effect": "NoSchedule"}, {"key": "other", "effect": "NoSchedule"},
    ]);
    let world = World::start_with(&[], "  startupTaint: seawall.dev/not-ready\n", "", &taints);
    wait_until_true("the taint is off and the other one is not", || {
        let node = world.api.call_expecting_success("GET", "/api/v1/nodes/node1", None);
        let has =
            |key: &str| node["spec"]["taints"].as_array().unwrap().iter().any(|taint| taint["key"] == key);
        has("other") && !has("seawall.dev/not-ready")
    });
}

/// One address that sent from a thousand connections held all that strangers may have, until a new pod found none.
#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn an_address_of_nobody_cannot_hold_the_connections_of_pods_that_are_not_known_yet() {
    let mut world = World::start(&["cart"], "");
    let (crowd, early) = (world.network.sandbox(), world.network.sandbox());
    let connect = |from: &Sandbox| Client::connect(from.address, (METADATA, 80).into());
    let held: Vec<Client> = crowd.run(|| {
        let send = |_| {
            let mut client = connect(&crowd);
            client.write_bytes(format_get(TOKEN));
            client
        };
        (0..1500).map(send).collect()
    });
    let answer = early.run(|| connect(&early).ask(&format_get(TOKEN)));
    assert_eq!(answer.status_and_refusal_code(), (503, "unknown_pod"), "and not for want of connections");
    drop(held);
    let waited = world.metric("seawall_identity_waits_total{outcome=\"not_identified\"}");
    assert!(waited > 0.0);
}
