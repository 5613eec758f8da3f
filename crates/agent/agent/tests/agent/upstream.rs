//! A cloud that is down, slow, throttled or mad, and pods whose Kubernetes token is missing: states, not ends.

use std::time::Duration;

use seawall_emulator::faults::Faults;
use seawall_emulator::google::{GoogleEndpoint, ImpersonationPolicy};
use socket2::{Domain, Socket, Type};

use crate::support::client::{self, format_get};
use crate::support::cloud::Cloud;
use crate::support::process::Agent;
use crate::support::world::{CART, Files, MALLORY, PAY, PODS, Plan, TOKEN, World, identity, token_for};
use crate::support::{PROGRAM, seconds, wait_until_true};

fn failing(status: u16, html_errors: bool) -> Faults {
    Faults { error_rate: 1.0, error_status: Some(status), html_errors, ..Faults::default() }
}

#[test]
fn whatever_the_cloud_does_held_leases_are_served_and_misses_get_a_status() {
    let world = World::start(&Plan::federate());
    let held = world.ask(&CART, TOKEN).token();
    let broken: [(&str, Faults, (u16, &str)); 8] = [
        ("errors in HTML", failing(500, true), (503, "upstream_unavailable")),
        ("errors in JSON", failing(500, false), (503, "upstream_unavailable")),
        ("a bad gateway", failing(502, true), (503, "upstream_unavailable")),
        ("throttling", failing(429, false), (503, "upstream_throttled")),
        ("a policy's no", failing(403, false), (403, "access_denied")),
        ("an unknown account", failing(404, false), (403, "exchange_rejected")),
        ("garbage", Faults { truncated_body_rate: 1.0, ..Faults::default() }, (503, "upstream_unavailable")),
        ("closing", Faults { close_rate: 1.0, ..Faults::default() }, (503, "upstream_unavailable")),
    ];
    for endpoint in [GoogleEndpoint::Exchange, GoogleEndpoint::AccessToken] {
        for (n, (what, faults, refusal)) in broken.iter().enumerate() {
            world.cloud.set_faults_on(endpoint, faults.clone());
            // A scope of its own each time: what failed before is remembered for a while.
            let miss = world.ask(&PAY, &token_for(&format!("{}.{n}", endpoint.name())));
            assert_eq!(miss.status_and_refusal_code(), *refusal, "{what} at {}: {miss:?}", endpoint.name());
            assert_eq!(miss.header("retry-after"), if miss.status == 503 { "1" } else { "" });
            assert_eq!(world.ask(&CART, TOKEN).token(), held, "{what}");
        }
        world.cloud.set_faults_on(endpoint, Faults::default());
    }
    assert_eq!(world.ask(&PAY, TOKEN).status, 200);
}

#[test]
fn a_cloud_that_hangs_is_503_in_time_and_keeps_nobody_else_waiting() {
    let world = World::start(&Plan::federate().threads("1"));
    let held = world.ask(&CART, TOKEN).token();
    world.cloud.set_faults_on(GoogleEndpoint::AccessToken, Faults { hang_rate: 1.0, ..Faults::default() });
    let mut slow = world.client(&PAY);
    slow.write_bytes(format_get(TOKEN));
    wait_until_true("the call to hang", || {
        world.cloud.endpoint_request_counts(GoogleEndpoint::AccessToken).in_flight == 1
    });
    assert_eq!(world.ask(&CART, TOKEN).token(), held);
    // Google's libraries give up on a server after much longer than this in all.
    let answer = slow.receive_answer();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(["upstream_timeout", "upstream_unavailable"].contains(&answer.refusal_code()), "{answer:?}");
    world.cloud.set_faults(&Faults::default());
    wait_until_true("recovery", || world.ask(&PAY, TOKEN).status == 200);
}

#[test]
fn a_slow_cloud_is_waited_for() {
    let world = World::start(&Plan::federate());
    world.cloud.set_faults(&Faults { latency: Duration::from_millis(600), ..Faults::default() });
    // Two calls, one after the other.
    assert_eq!(world.ask(&CART, TOKEN).status, 200);
}

#[test]
fn a_denied_impersonation_is_403_and_ends_with_the_policy() {
    let world = World::start(&Plan::federate());
    world.cloud.set_impersonation(ImpersonationPolicy::default());
    for path in [TOKEN.to_owned(), identity("https://shop.example")] {
        let answer = world.ask(&CART, &path);
        assert_eq!(answer.status_and_refusal_code(), (403, "access_denied"), "{answer:?}");
    }
    let failure = &world.debug(&CART)["google"]["principals"][0]["last_failure"];
    assert_eq!(failure["fault"], "access_denied", "{failure}");
    // Granted now; the refusal is remembered for 5 s and then forgotten.
    world.cloud.set_impersonation(ImpersonationPolicy::Everyone);
    wait_until_true("the grant to be seen", || world.ask(&CART, TOKEN).status == 200);
}

#[test]
fn a_missing_token_file_is_a_state_of_that_pod_alone() {
    let world = World::start(&Plan::federate());
    let path = world.files.path("tokens/cart-0");
    let token = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let answer = world.ask(&CART, TOKEN);
    assert_eq!(answer.status_and_refusal_code(), (503, "pod_token_unavailable"), "{answer:?}");
    let failure = &world.debug(&CART)["google"]["principals"][0]["last_failure"];
    assert_eq!(failure["fault"], "pod_token_unavailable", "{failure}");
    assert!(failure["detail"].as_str().unwrap().contains("No such file"), "{failure}");
    assert!(
        world.admin("/readyz").body.contains("warning: the last fetch failed for 1 of"),
        "the agent is ready, and says so"
    );
    assert_eq!(world.ask(&PAY, TOKEN).status, 200);
    // What is there but no token is no better.
    world.files.write("tokens/cart-0", "not a token");
    assert_eq!(world.ask(&CART, &token_for("a")).status_and_refusal_code(), (503, "pod_token_unavailable"));
    world.files.write("tokens/cart-0", &token);
    wait_until_true("the token to be found", || world.ask(&CART, TOKEN).status == 200);
}

#[test]
fn another_pods_kubernetes_token_gives_no_access_to_this_pods_account() {
    let world = World::start(&Plan::federate());
    // The operator mixed up two files: the cloud decides, and the agent adds nothing.
    let mallory = std::fs::read_to_string(world.files.path("tokens/mallory-0")).unwrap();
    world.files.write("tokens/cart-0", &mallory);
    assert_eq!(world.ask(&CART, TOKEN).status_and_refusal_code(), (403, "access_denied"));
    assert_eq!(world.ask(&MALLORY, TOKEN).status, 200);
}

#[test]
fn a_cloud_that_cannot_be_reached_is_503_until_it_can() {
    // A bound port on which nobody listens: refused, and nobody else's meanwhile.
    let reserved = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    reserved.set_reuse_address(true).unwrap();
    reserved.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let upstream = reserved.local_addr().unwrap().as_socket().unwrap();
    let files = Files::new(&Plan::federate(), upstream);
    // Tokens of a cloud that is not there yet are not those of the later one; they only have to look like tokens.
    for pod in PODS {
        files.write(&format!("tokens/{}", pod.name), "e30.e30.c2ln");
    }
    let agent = Agent::start(PROGRAM, &files.config());
    let ask = || client::ask(CART.at, agent.first_listener_address(), TOKEN);
    assert_eq!(ask().status_and_refusal_code(), (503, "upstream_unavailable"));
    drop(reserved);
    let cloud = Cloud::start_at(upstream, &PODS);
    files.project(&cloud, &CART);
    wait_until_true("the cloud to be found", || ask().status == 200);
}

#[test]
fn while_the_cloud_is_down_a_lease_is_served_until_it_truly_expires() {
    let world = World::start(&Plan::federate());
    world.cloud.set_max_token_lifetime(Duration::from_secs(4));
    let first = world.ask(&CART, TOKEN).token();
    world.cloud.set_faults(&failing(500, true));
    let expires = world.cloud.read_access_token(&first).unwrap().exp;
    wait_until_true("the lease to expire", || {
        let before = seconds();
        let answer = world.ask(&CART, TOKEN);
        if answer.status == 200 {
            assert_eq!(answer.token(), first);
            assert!(before <= expires, "served {} s after its end", before - expires);
            let says = answer.json()["expires_in"].as_u64().unwrap();
            assert!((1..=expires - before).contains(&says), "says {says} s, has {} s", expires - before);
        }
        answer.status != 200
    });
    assert_eq!(world.ask(&CART, TOKEN).status_and_refusal_code(), (503, "upstream_unavailable"));
    // Google tells its time in whole seconds, which hides up to one, and the last one is nothing to a client.
    assert!(seconds() + 2 >= expires, "given up {} s early", expires - seconds());
    world.cloud.set_faults(&Faults::default());
    wait_until_true("recovery", || world.ask(&CART, TOKEN).status == 200);
}

#[test]
fn a_lease_is_renewed_without_anybody_asking() {
    let world = World::start(&Plan::federate());
    world.cloud.set_max_token_lifetime(Duration::from_secs(4));
    let first = world.ask(&CART, TOKEN).token();
    wait_until_true("the renewal", || {
        world.cloud.endpoint_request_counts(GoogleEndpoint::AccessToken).answered >= 2
    });
    // It is called answered a moment before the agent has read it.
    wait_until_true("the next token", || world.ask(&CART, TOKEN).token() != first);
}
