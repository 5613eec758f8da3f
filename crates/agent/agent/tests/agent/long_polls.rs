//! Requests that wait for a change: bounded in time and number, answered when they should be.

use std::time::Duration;

use seawall_core::Clock;
use seawall_emulator::faults::Faults;
use seawall_emulator::google::GoogleEndpoint;

use crate::support::client::{ConnectionEnd, format_get};
use crate::support::wait_until_true;
use crate::support::world::{CART, PAY, Plan, TOKEN, World};

const ZONE: &str = "/computeMetadata/v1/instance/zone";

fn wait(path: &str, rest: &str) -> String {
    format_get(&format!("{path}?wait_for_change=true{rest}"))
}

#[test]
fn it_returns_at_its_timeout_with_what_there_is() {
    let world = World::start(&Plan::federate());
    let clock = Clock::system();
    let asked = clock.now();
    let answer = world.client(&CART).ask(&wait(ZONE, "&timeout_sec=1"));
    assert!(clock.now().since(asked) >= Duration::from_secs(1));
    assert_eq!((answer.status, answer.body.as_str()), (200, "projects/123456789012/zones/europe-west1-b"));
    // With a tag that still holds it waits just so; and the connection is kept.
    let tag = answer.header("etag").to_owned();
    let mut client = world.client(&CART);
    for _ in 0..2 {
        let asked = clock.now();
        assert_eq!(client.ask(&wait(ZONE, &format!("&timeout_sec=1&last_etag={tag}"))).body, answer.body);
        assert!(clock.now().since(asked) >= Duration::from_secs(1));
    }
    assert_eq!(world.ask(&CART, &format!("{ZONE}?wait_for_change=true&timeout_sec=0")).status, 200);
}

#[test]
fn with_another_tag_it_returns_at_once() {
    let world = World::start(&Plan::federate());
    for path in [ZONE, TOKEN, TOKEN] {
        // The client gives up long before five minutes are over.
        let answer = world.client(&CART).ask(&wait(path, "&timeout_sec=300&last_etag=NONE"));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!answer.header("etag").is_empty());
    }
}

#[test]
fn on_a_token_it_returns_with_the_next_one() {
    let world = World::start(&Plan::federate());
    world.cloud.set_max_token_lifetime(Duration::from_secs(4));
    let first = world.client(&CART).ask(&wait(TOKEN, "&timeout_sec=300&last_etag=NONE"));
    let tag = first.header("etag");
    let next = world.client(&CART).ask(&wait(TOKEN, &format!("&timeout_sec=300&last_etag={tag}")));
    assert_ne!(next.token(), first.token());
    assert_ne!(next.header("etag"), tag);
}

/// The first request for a credential used to watch nothing, and slept through its renewal.
#[test]
fn on_a_cold_token_it_returns_with_the_next_one_too() {
    let world = World::start(&Plan::federate());
    world.cloud.set_max_token_lifetime(Duration::from_secs(4));
    let answer = world.client(&CART).ask(&wait(TOKEN, "&timeout_sec=300"));
    assert!(world.cloud.endpoint_request_counts(GoogleEndpoint::AccessToken).answered >= 2);
    assert!(world.cloud.read_access_token(&answer.token()).is_some());
}

/// The lease from before the wait used to be answered with, however long it had been dead.
#[test]
fn at_its_timeout_it_does_not_return_a_token_that_has_expired_meanwhile() {
    let world = World::start(&Plan::federate());
    world.cloud.set_max_token_lifetime(Duration::from_secs(4));
    assert_eq!(world.ask(&CART, TOKEN).status, 200);
    world.cloud.set_faults(&Faults { error_rate: 1.0, ..Faults::default() });
    let answer = world.client(&CART).ask(&wait(TOKEN, "&timeout_sec=6"));
    assert_eq!(answer.status_and_refusal_code(), (503, "upstream_unavailable"), "{answer:?}");
}

#[test]
fn a_client_that_hangs_up_frees_its_place() {
    let world = World::start(&Plan::federate().limits("longPollsPerPod: 1"));
    let gone = world.held(&CART, &wait(ZONE, "&timeout_sec=300"));
    assert_eq!(
        world.client(&CART).ask(&wait(ZONE, "")).status_and_refusal_code(),
        (503, "too_many_long_polls")
    );
    drop(gone);
    wait_until_true("the place to be free", || world.metric("seawall_long_polls_open") == 0.0);
    assert_eq!(world.client(&CART).ask(&wait(ZONE, "&timeout_sec=1")).status, 200);
}

/// One byte more, and its end was not noticed.
#[test]
fn a_client_that_has_begun_its_next_request_frees_its_place_too() {
    let world = World::start(&Plan::federate().limits("longPollsPerPod: 1"));
    let mut gone = world.held(&CART, &wait(ZONE, "&timeout_sec=300"));
    gone.write_bytes("G");
    assert_eq!(
        world.client(&CART).ask(&wait(ZONE, "")).status_and_refusal_code(),
        (503, "too_many_long_polls")
    );
    drop(gone);
    wait_until_true("the place to be free", || world.metric("seawall_long_polls_open") == 0.0);
}

/// A byte that is not the end must not lose what stands behind it.
#[test]
fn a_request_that_came_during_a_long_poll_is_answered_after_it() {
    let world = World::start(&Plan::federate());
    let mut client = world.held(&CART, &wait(ZONE, "&timeout_sec=1"));
    client.write_bytes(format_get(TOKEN));
    assert_eq!(client.receive_answer().status, 200);
    assert!(!client.receive_answer().token().is_empty());
}

#[test]
fn there_are_so_many_for_a_pod_and_so_many_for_all() {
    let world = World::start(&Plan::federate().limits("longPolls: 3, longPollsPerPod: 2"));
    let forever = wait(ZONE, "&timeout_sec=300");
    let _cart = [(); 2].map(|()| world.held(&CART, &forever));
    let answer = world.client(&CART).ask(&forever);
    assert_eq!(
        (answer.status_and_refusal_code(), answer.header("retry-after")),
        ((503, "too_many_long_polls"), "1")
    );
    let _pay = world.held(&PAY, &forever);
    assert_eq!(world.client(&PAY).ask(&forever).status_and_refusal_code(), (503, "too_many_long_polls"));
    // What does not wait is not kept waiting.
    for pod in [CART, PAY] {
        assert_eq!(world.ask(&pod, ZONE).status, 200);
        assert_eq!(world.ask(&pod, TOKEN).status, 200);
    }
}

#[test]
fn a_drain_answers_them_with_what_there_is() {
    let mut world = World::start(&Plan::federate());
    assert_eq!(world.ask(&CART, TOKEN).status, 200);
    let mut polls = [ZONE, TOKEN].map(|path| world.held(&CART, &wait(path, "&timeout_sec=300")));
    assert_eq!(world.agent.stop().code(), Some(0));
    for poll in &mut polls {
        let answer = poll.receive_answer();
        assert_eq!((answer.status, answer.header("connection")), (200, "close"));
        assert_eq!(poll.wait_for_end(), ConnectionEnd::Closed);
    }
}
