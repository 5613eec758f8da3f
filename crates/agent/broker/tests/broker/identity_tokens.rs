//! Identity tokens live an hour from when they are got, say Go's clients: with 55 minutes left they are handed out, and what
//! that costs is bounded.

use std::sync::Arc;
use std::time::Duration;

use seawall_broker::google::{BROKER_SETTINGS, CredentialRequestRef};
use seawall_broker::{BrokerSettings, ExchangeFault};
use seawall_core::Moment;

use crate::world::{HOUR, Holder, MINUTE, Mood, World, run};

const SECOND: Duration = Duration::from_secs(1);
const FLOOR: Duration = Duration::from_secs(55 * 60);
const WANT: CredentialRequestRef<'static> =
    CredentialRequestRef::IdToken { audience: "https://shop.example", include_email: false };

fn world() -> World {
    World::new(BROKER_SETTINGS)
}

/// The life left in an answer, and how long it took.
async fn ask(world: &World, pod: &Arc<Holder>) -> (Duration, Duration) {
    let started = world.now();
    let lease = world.answer(pod, WANT).await.unwrap();
    (lease.remaining(world.now()), world.now().since(started))
}

/// Asks in steps for a span; the least life left and the longest wait.
async fn ask_every(world: &World, pod: &Arc<Holder>, step: Duration, span: Duration) -> (Duration, Duration) {
    let end: Moment = world.now() + span;
    let (mut least, mut longest) = (Duration::MAX, Duration::ZERO);
    while world.now() < end {
        let (left, took) = ask(world, pod).await;
        (least, longest) = (least.min(left), longest.max(took));
        world.pass(step).await;
    }
    (least, longest)
}

#[test]
fn a_day_of_identity_tokens_has_55_minutes_left_and_costs_twelve_calls_an_hour() {
    run(|| async {
        let world = world();
        let pods: Vec<_> = (0..3).map(|n| world.pod(&format!("cart-{n}"), "cart")).collect();
        let mut least = Duration::MAX;
        for _ in 0..24 * 60 * 2 {
            for pod in &pods {
                least = least.min(ask(&world, pod).await.0);
            }
            world.pass(30 * SECOND).await;
        }
        assert!(least >= FLOOR, "{least:?}");
        let calls = world.cloud.count();
        assert!(calls <= 24 * 12, "{calls} calls for a principal that is asked for all the time");
        assert_eq!(world.broker.counters().responses_below_floor_total(), 0);
    });
}

/// Asks as Go's clients do, once each 55 minutes.
#[test]
fn a_client_that_caches_costs_two_calls_an_hour() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        let (least, _) = ask_every(&world, &pod, 55 * MINUTE, 24 * HOUR).await;
        assert!(least >= FLOOR, "{least:?}");
        assert!(world.cloud.count() <= 2 * 27, "{} calls", world.cloud.count());
    });
}

#[test]
fn what_nobody_asks_for_is_renewed_once() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        ask(&world, &pod).await;
        world.pass(24 * HOUR).await;
        assert_eq!(world.cloud.count(), 2);
    });
}

#[test]
fn askers_of_an_old_token_share_one_call() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        ask(&world, &pod).await;
        world.pass(6 * MINUTE).await;
        let asked: Vec<_> = (0..1000).map(|_| world.ask(&pod, WANT)).collect();
        world.pass(SECOND).await;
        for answer in asked {
            assert!(answer.await.unwrap().unwrap().remaining(world.now()) >= FLOOR);
        }
        assert_eq!(world.cloud.count(), 2);
    });
}

#[test]
fn in_an_outage_the_older_token_is_served_until_it_expires_and_after_one_failure_at_once() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        ask(&world, &pod).await;
        world.pass(10 * MINUTE).await;
        world.cloud.turns(Mood::Fails(ExchangeFault::Unavailable));
        let (left, took) = ask(&world, &pod).await;
        assert!(left > 49 * MINUTE && took <= SECOND, "{left:?} after {took:?}");
        let before = world.cloud.count();
        let (_, longest) = ask_every(&world, &pod, SECOND, 48 * MINUTE).await;
        assert_eq!(longest, Duration::ZERO, "from memory");
        let calls = world.cloud.count() - before;
        assert!(calls <= 48 + 8, "{calls} calls in 48 minutes of outage");
        world.pass(3 * MINUTE).await;
        assert_eq!(world.answer(&pod, WANT).await.unwrap_err().fault(), Some(ExchangeFault::Unavailable));
        assert!(world.broker.counters().responses_below_floor_total() > 0);
    });
}

#[test]
fn after_an_outage_tokens_are_young_again_within_the_back_off() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        ask(&world, &pod).await;
        world.pass(10 * MINUTE).await;
        world.cloud.turns(Mood::Fails(ExchangeFault::Unavailable));
        ask_every(&world, &pod, SECOND, 20 * MINUTE).await;
        world.cloud.turns(Mood::Issues);
        world.pass(70 * SECOND).await;
        let (least, _) = ask_every(&world, &pod, SECOND, 20 * MINUTE).await;
        assert!(least >= FLOOR, "{least:?}");
    });
}

/// Only the first request of an outage waits; a wait for each would be a stall for each.
#[test]
fn while_the_cloud_hangs_the_older_token_comes_within_one_wait_and_then_at_once() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        ask(&world, &pod).await;
        world.pass(10 * MINUTE).await;
        world.cloud.turns(Mood::Hangs);
        let (left, took) = ask(&world, &pod).await;
        assert!(left > 49 * MINUTE && took <= 5 * SECOND / 2, "{left:?} after {took:?}");
        let (_, longest) = ask_every(&world, &pod, SECOND, 10 * MINUTE).await;
        assert_eq!(longest, Duration::ZERO);
        world.cloud.turns(Mood::Issues);
        world.pass(70 * SECOND).await;
        assert!(ask(&world, &pod).await.0 >= FLOOR);
    });
}

/// A pod that has used up its misses still gets what it holds, however old.
#[test]
fn a_pod_that_may_not_ask_for_more_gets_what_it_holds() {
    run(|| async {
        let world = World::new(BrokerSettings { queued_calls_per_pod: 1, ..BROKER_SETTINGS });
        let pod = world.pod("cart-0", "cart");
        ask(&world, &pod).await;
        world.pass(10 * MINUTE).await;
        world.cloud.turns(Mood::Hangs);
        let _other = world.ask(&pod, CredentialRequestRef::AccessToken { scopes: "a" });
        world.pass(SECOND).await;
        world.ask(&pod, CredentialRequestRef::AccessToken { scopes: "b" });
        assert!(ask(&world, &pod).await.0 > 49 * MINUTE);
    });
}

#[test]
fn identity_tokens_too_short_for_the_floor_are_shared_for_a_while() {
    run(|| async {
        let world = world();
        *world.cloud.lifetime.lock().unwrap() = 30 * MINUTE;
        let pod = world.pod("cart-0", "cart");
        let (least, _) = ask_every(&world, &pod, 10 * SECOND, HOUR).await;
        assert!(least >= 25 * MINUTE - SECOND, "{least:?}");
        assert!(world.cloud.count() <= 13, "{} calls", world.cloud.count());
    });
}
