//! The broker's promises, each with a clock moved by hand and a cloud that does what the test says.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use seawall_broker::google::{
    self, BROKER_SETTINGS, CredentialRequest, CredentialRequestRef, GooglePodCredentialsSpec,
};
use seawall_broker::{BrokerSettings, ExchangeFault, LeaseError, RefetchProgress};

use crate::world::{self, HOUR, Holder, MINUTE, Mood, SECRET, Subject, TOKEN, World, run, settle};

const SECOND: Duration = Duration::from_secs(1);

fn world() -> World {
    World::new(BROKER_SETTINGS)
}

fn audience(text: &str) -> CredentialRequestRef<'_> {
    CredentialRequestRef::IdToken { audience: text, include_email: false }
}

fn text(answer: &world::Answer) -> &str {
    answer.as_ref().unwrap().value.text()
}

#[test]
fn a_thousand_askers_cost_one_call() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        let asked: Vec<_> = (0..1000).map(|_| world.ask(&pod, TOKEN)).collect();
        world.pass(SECOND).await;
        let mut texts = Vec::new();
        for answer in asked {
            texts.push(text(&answer.await.unwrap()).to_owned());
        }
        texts.dedup();
        assert_eq!(texts.len(), 1);
        assert_eq!(world.cloud.count(), 1);
        assert_eq!(world.broker.counters().coalesced_total(), 999);
    });
}

async fn refetch(client: &Holder, before: &Holder) -> RefetchProgress {
    let progress = Mutex::default();
    client.refetch_leases_of_previous_client(before, &progress).await;
    progress.into_inner().unwrap()
}

/// A credential that is right for one exchange need not be right for another. The cloud's limits do not change with the exchange.
#[test]
fn a_broker_that_succeeds_holds_nothing_and_goes_on_at_the_same_pace_and_count() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        world.answer(&pod, TOKEN).await.unwrap();
        world.answer(&pod, audience("a")).await.unwrap();
        world.cloud.next.lock().unwrap().push_back(Mood::Fails(ExchangeFault::Throttled));
        let other = world.pod("pay-0", "pay");
        world.answer(&other, TOKEN).await.unwrap_err();

        let next = world.broker.with_exchange(world.cloud.clone());
        let again = next.new_pod_client(world::spec("cart-0", "cart", Arc::default()));
        assert!(again.uses_broker(&next) && !again.uses_broker(&world.broker));
        assert!(again.cached_lease(TOKEN, world.now()).is_none());
        assert_eq!(next.counters().fetches_by_result(), world.broker.counters().fetches_by_result());
        assert_eq!(next.upstream_rate_limit(), world.broker.upstream_rate_limit());

        let before = world.cloud.count();
        let caught_up = tokio::spawn({
            let (again, pod) = (again.clone(), pod.clone());
            async move { refetch(&again, &pod).await }
        });
        world.pass(10 * SECOND).await;
        let progress = caught_up.await.unwrap();
        assert!(
            progress.begun == 2 && progress.fetched == 2 && progress.last_error.is_none(),
            "{progress:?}"
        );
        assert_eq!(world.cloud.count(), before + 2);
        assert!(
            again.cached_lease(TOKEN, world.now()).is_some()
                && again.cached_lease(audience("a"), world.now()).is_some()
        );
    });
}

/// A cloud that fails for good is not waited for, and the calling code bounds the rest.
#[test]
fn who_catches_up_asks_once_for_each_credential() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        world.answer(&pod, TOKEN).await.unwrap();
        let next = world.broker.with_exchange(world.cloud.clone());
        let again = next.new_pod_client(world::spec("cart-0", "cart", Arc::default()));
        world.cloud.turns(Mood::Fails(ExchangeFault::AccessDenied));
        let before = world.cloud.count();
        let caught_up = tokio::spawn(async move { refetch(&again, &pod).await });
        world.pass(10 * SECOND).await;
        let RefetchProgress { begun, fetched, last_error } = caught_up.await.unwrap();
        assert_eq!((begun, fetched), (1, 0));
        assert_eq!(last_error.unwrap().fault(), Some(ExchangeFault::AccessDenied));
        assert_eq!(world.cloud.count(), before + 1);
    });
}

/// A reload swapped brokers two seconds after it had asked a cloud that needed four, and pods found no credentials.
#[test]
fn who_catches_up_waits_for_a_cloud_that_takes_longer_than_a_pod_waits() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        world.answer(&pod, TOKEN).await.unwrap();
        let next = world.broker.with_exchange(world.cloud.clone());
        let again = next.new_pod_client(world::spec("cart-0", "cart", Arc::default()));
        *world.cloud.latency.lock().unwrap() = 4 * SECOND;
        let before = world.cloud.count();
        let caught_up = tokio::spawn({
            let again = again.clone();
            async move { refetch(&again, &pod).await }
        });
        world.pass(3 * SECOND).await;
        assert!(!caught_up.is_finished());
        world.pass(2 * SECOND).await;
        assert_eq!(caught_up.await.unwrap().fetched, 1);
        assert!(again.cached_lease(TOKEN, world.now()).is_some());
        assert_eq!(world.cloud.count(), before + 1);
    });
}

#[test]
fn all_waiters_get_the_failure() {
    run(|| async {
        let world = world();
        world.cloud.turns(Mood::Fails(ExchangeFault::AccessDenied));
        let pod = world.pod("cart-0", "cart");
        let asked: Vec<_> = (0..100).map(|_| world.ask(&pod, TOKEN)).collect();
        world.pass(SECOND).await;
        for answer in asked {
            let unavailable = answer.await.unwrap().unwrap_err();
            assert_eq!(unavailable.fault(), Some(ExchangeFault::AccessDenied));
        }
        assert_eq!(world.cloud.count(), 1);
    });
}

#[test]
fn a_caller_that_goes_away_leaves_its_call_to_the_next() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        let asked = world.ask(&pod, TOKEN);
        settle().await;
        asked.abort();
        world.pass(SECOND).await;
        assert!(pod.cached_lease(TOKEN, world.now()).is_some());
        assert_eq!(world.cloud.count(), 1);
    });
}

#[test]
fn a_call_that_hangs_ends_at_its_deadline() {
    run(|| async {
        let world = world();
        world.cloud.turns(Mood::Hangs);
        let pod = world.pod("cart-0", "cart");
        let started = world.now();
        assert!(matches!(world.answer(&pod, TOKEN).await, Err(LeaseError::TimedOut | LeaseError::Failed(_))));
        assert_eq!(world.now().since(started), BROKER_SETTINGS.max_request_wait);
        world.pass(BROKER_SETTINGS.call_deadline).await;
        assert_eq!(world.cloud.in_air.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_call_that_panics_fails_like_any_other() {
    run(|| async {
        let world = world();
        world.cloud.turns(Mood::Panics);
        let pod = world.pod("cart-0", "cart");
        assert_eq!(world.answer(&pod, TOKEN).await.unwrap_err().fault(), Some(ExchangeFault::Unavailable));
        world.cloud.turns(Mood::Issues);
        world.pass(SECOND).await;
        assert!(world.answer(&pod, TOKEN).await.is_ok());
    });
}

/// SPECIFICATION: the floor. A pod that asks every minute of a day.
#[test]
fn a_day_of_answers_never_carries_less_than_the_floor() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        let mut least = Duration::MAX;
        for _ in 0..24 * 60 {
            let lease = world.answer(&pod, TOKEN).await.unwrap();
            least = least.min(lease.remaining(world.now()));
            world.pass(MINUTE).await;
        }
        assert!(least >= google::LIFETIME_FLOOR.min_remaining, "{least:?}");
        // Renewed after 45 to 50 minutes: 28 to 32 times a day after the first.
        assert!((29..=30).contains(&world.cloud.count()), "{} calls", world.cloud.count());
    });
}

/// SPECIFICATION: the floor, for a hundred pods that started together. The jitter keeps their renewals apart.
#[test]
fn renewals_of_pods_that_started_together_are_spread() {
    run(|| async {
        let world = world();
        let pods: Vec<_> = (0..100).map(|n| world.pod(&format!("p{n}"), &format!("a{n}"))).collect();
        let asked: Vec<_> = pods.iter().map(|pod| world.ask(pod, TOKEN)).collect();
        world.pass(5 * SECOND).await;
        assert!(asked.iter().all(tokio::task::JoinHandle::is_finished));
        world.pass(HOUR).await;
        let calls = world.cloud.calls.lock().unwrap();
        let (first, last) = (calls[100].at, calls[199].at);
        assert!(last.since(first) >= 3 * MINUTE / 2, "{:?}", last.since(first));
    });
}

#[test]
fn what_nobody_asks_for_is_not_renewed_and_never_handed_out_below_the_floor() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        world.answer(&pod, TOKEN).await.unwrap();
        for _ in 0..10 * 60 {
            world.pass(MINUTE).await;
        }
        assert_eq!(world.cloud.count(), 2, "one renewal in case the pod still lives by the first");
        // Whenever the pod comes back, what it gets has the floor's life.
        for minutes in 1..180 {
            let pod = world.pod(&format!("late-{minutes}"), &format!("late-{minutes}"));
            world.answer(&pod, TOKEN).await.unwrap();
            world.pass(MINUTE * minutes).await;
            let lease = world.answer(&pod, TOKEN).await.unwrap();
            let left = lease.remaining(world.now());
            assert!(left >= google::LIFETIME_FLOOR.min_remaining, "after {minutes} min: {left:?}");
        }
    });
}

/// An SDK asks once per lease, shortly before its end, and is always answered from memory.
#[test]
fn a_pod_whose_sdk_caches_is_never_idle() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        let mut lease = world.answer(&pod, TOKEN).await.unwrap();
        for _ in 0..24 {
            world.pass(lease.remaining(world.now()) - Duration::from_secs(225)).await;
            lease = pod.cached_lease(TOKEN, world.now()).expect("a renewed lease in memory");
        }
        assert!(world.cloud.count() <= 30, "{} calls", world.cloud.count());
    });
}

#[test]
fn an_outage_is_served_from_memory_until_the_true_expiry() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        let lease = world.answer(&pod, TOKEN).await.unwrap();
        world.cloud.turns(Mood::Fails(ExchangeFault::Unavailable));
        while world.now() < lease.expires {
            let held = pod.cached_lease(TOKEN, world.now()).expect("served while it lives");
            assert_eq!(held.value.text(), lease.value.text());
            world.pass(Duration::from_secs(20).min(lease.remaining(world.now()))).await;
        }
        assert!(pod.cached_lease(TOKEN, world.now()).is_none());
        let unavailable = world.answer(&pod, TOKEN).await.unwrap_err();
        assert_eq!(unavailable.fault(), Some(ExchangeFault::Unavailable));
        let tries = world.cloud.count();
        assert!(
            (10..=40).contains(&tries),
            "{tries} calls: back-off to a minute over the last quarter of an hour"
        );
        assert!(world.broker.counters().responses_below_floor_total() > 0);
        world.cloud.turns(Mood::Issues);
        world.pass(SECOND).await;
        assert!(world.answer(&pod, TOKEN).await.is_ok());
    });
}

#[test]
fn an_outage_that_ends_is_mended_without_anybody_asking() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        let lease = world.answer(&pod, TOKEN).await.unwrap();
        world.cloud.turns(Mood::Fails(ExchangeFault::Unavailable));
        world.pass(lease.remaining(world.now()) - 5 * MINUTE).await;
        world.cloud.turns(Mood::Issues);
        world.pass(Duration::from_secs(70)).await;
        let renewed = pod.cached_lease(TOKEN, world.now()).unwrap();
        assert!(renewed.remaining(world.now()) > 50 * MINUTE);
    });
}

#[test]
fn failures_are_remembered_as_long_as_they_deserve() {
    for (fault, seconds) in [
        (ExchangeFault::Unavailable, 1),
        (ExchangeFault::AccessDenied, 5),
        (ExchangeFault::ExchangeRejected, 30),
    ] {
        run(|| async move {
            let world = world();
            world.cloud.turns(Mood::Fails(fault));
            let pod = world.pod("cart-0", "cart");
            let first = world.answer(&pod, TOKEN).await.unwrap_err();
            assert_eq!(first.fault(), Some(fault));
            world.pass(Duration::from_secs(seconds) - Duration::from_millis(1)).await;
            assert!(world.answer(&pod, TOKEN).await.is_err());
            assert_eq!(world.cloud.count(), 1, "{fault:?}");
            world.pass(Duration::from_millis(1)).await;
            assert!(world.answer(&pod, TOKEN).await.is_err());
            assert_eq!(world.cloud.count(), 2, "{fault:?}");
        });
    }
}

#[test]
fn throttling_of_several_accounts_halves_the_rate_and_success_brings_it_back() {
    run(|| async {
        let world = world();
        let most = world.broker.upstream_rate_limit();
        for n in 0..3 {
            assert_eq!(world.broker.upstream_rate_limit(), most, "one or two are their own affair");
            world.cloud.next.lock().unwrap().push_back(Mood::Fails(ExchangeFault::Throttled));
            let pod = world.pod(&format!("t{n}"), &format!("t{n}"));
            assert_eq!(world.answer(&pod, TOKEN).await.unwrap_err().fault(), Some(ExchangeFault::Throttled));
        }
        assert_eq!(world.broker.upstream_rate_limit(), most / 2.0);
        let half = (most / 2.0) as usize;
        for n in 0..half {
            let pod = world.pod(&format!("p{n}"), &format!("a{n}"));
            world.answer(&pod, TOKEN).await.unwrap();
        }
        let rate = world.broker.upstream_rate_limit();
        assert!(
            (most / 2.0 + 0.9..most / 2.0 + 1.1).contains(&rate),
            "one more after a second's worth: {rate}"
        );
    });
}

/// Five hundred pods at once against a cloud that serves twenty calls a second: every pod is served within two minutes, and few
/// calls are wasted.
#[test]
fn a_node_that_restarts_finds_the_rate_that_the_cloud_stands() {
    run(|| async {
        let world = world();
        world.cloud.quota.store(20, Ordering::Relaxed);
        let pods: Vec<_> = (0..500).map(|n| world.pod(&format!("p{n}"), &format!("a{n}"))).collect();
        for _ in 0..60 {
            for pod in pods.iter().filter(|pod| pod.cached_lease(TOKEN, world.now()).is_none()) {
                world.ask(pod, TOKEN);
            }
            world.pass(2 * SECOND).await;
        }
        assert!(pods.iter().all(|pod| pod.cached_lease(TOKEN, world.now()).is_some()));
        let calls = world.cloud.count();
        assert!(calls < 700, "{calls} calls for 500 credentials");
    });
}

#[test]
fn inventions_are_bounded_in_memory_and_calls() {
    run(|| async {
        let world = world();
        let settings = BROKER_SETTINGS;
        let mallory = world.pod("mallory", "mallory");
        for n in 0..5000 {
            world.ask(&mallory, audience(&world::address(n)));
            if n % 100 == 0 {
                world.pass(SECOND).await;
            }
        }
        world.pass(5 * SECOND).await;
        assert!(world.broker.principals().len() <= settings.principals_per_pod);
        let bound = settings.miss_burst_per_pod + 60 * settings.misses_per_second_per_pod;
        assert!(world.cloud.count() <= bound as usize, "{} calls", world.cloud.count());
        assert!(world.broker.counters().refused_by_pod_limit_total() > 0);
        let before = world.cloud.count();
        world.pass(24 * HOUR).await;
        let renewals = world.cloud.count() - before;
        assert!(renewals <= settings.principals_per_pod, "{renewals} renewals of what nobody asks for");
    });
}

/// A tenant can change the account of a ServiceAccount as often as the API server allows. The pod then gets a new client.
#[test]
fn a_pod_with_a_new_client_has_the_allowance_that_it_had_left() {
    run(|| async {
        let world = world();
        for account in ["a", "b"].into_iter().cycle().take(100) {
            let mallory = world.pod("mallory", account);
            for n in 0..20 {
                world.ask(&mallory, audience(&world::address(n)));
            }
            world.pass(SECOND / 10).await;
        }
        let settings = BROKER_SETTINGS;
        let bound = settings.miss_burst_per_pod + 11 * settings.misses_per_second_per_pod;
        assert!(world.cloud.count() <= bound as usize, "{} calls", world.cloud.count());
    });
}

#[test]
fn a_pod_may_show_its_whole_allowance_at_once() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        let names: Vec<_> = (0..BROKER_SETTINGS.miss_burst_per_pod).map(world::address).collect();
        let asked: Vec<_> = names.iter().map(|name| world.ask(&pod, audience(name))).collect();
        world.pass(3 * SECOND).await;
        for answer in asked {
            answer.await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_hostile_pod_does_not_delay_its_neighbour() {
    run(|| async {
        let world = world();
        let mallory = world.pod("mallory", "mallory");
        *world.cloud.latency.lock().unwrap() = SECOND;
        for n in 0..BROKER_SETTINGS.miss_burst_per_pod {
            world.ask(&mallory, audience(&world::address(n)));
        }
        settle().await;
        let alice = world.pod("alice", "alice");
        let started = world.now();
        world.answer(&alice, TOKEN).await.unwrap();
        assert!(world.now().since(started) < 2 * SECOND);
    });
}

#[test]
fn the_credential_unused_longest_makes_room() {
    run(|| async {
        let world = World::new(BrokerSettings { principals_per_pod: 3, ..BROKER_SETTINGS });
        let pod = world.pod("cart-0", "cart");
        for name in ["a", "b", "c", "a", "d"] {
            world.answer(&pod, audience(name)).await.unwrap();
            world.pass(SECOND).await;
        }
        let held: Vec<_> =
            ["a", "b", "c", "d"].map(|name| pod.cached_lease(audience(name), world.now()).is_some()).into();
        assert_eq!(held, [true, false, true, true]);
        assert_eq!(world.broker.counters().evicted_total(), 1);
    });
}

#[test]
fn pods_of_one_account_share_and_the_last_one_takes_everything_along() {
    run(|| async {
        let world = world();
        let (one, two) = (world.pod("cart-0", "cart"), world.pod("cart-1", "cart"));
        let first = world.answer(&one, TOKEN).await.unwrap();
        assert_eq!(text(&world.answer(&two, TOKEN).await), first.value.text());
        assert_eq!(world.cloud.count(), 1);
        drop(one);
        world.pass(HOUR).await;
        assert_eq!(world.cloud.count(), 2, "renewed for the one that lives");
        let lease = Arc::downgrade(&two.cached_lease(TOKEN, world.now()).unwrap());
        drop(two);
        world.pass(10 * HOUR).await;
        assert!(lease.upgrade().is_none(), "the credential outlived its pods");
        assert!(world.broker.principals().len() == 0);
        assert_eq!(world.cloud.count(), 2);
    });
}

#[test]
fn no_task_is_left_when_the_broker_is_gone() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        world.answer(&pod, TOKEN).await.unwrap();
        assert!(tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0);
        let World { broker, .. } = world;
        drop((broker, pod));
        settle().await;
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    });
}

#[test]
fn calls_are_proved_by_a_pod_that_lives() {
    run(|| async {
        let world = world();
        let (old, young) = (Subject::default(), Subject::default());
        let (of_old, of_young) = (old.asked.clone(), young.asked.clone());
        let old = world.pod_with("cart-0", "cart", old);
        world.answer(&old, TOKEN).await.unwrap();
        let young = world.pod_with("cart-1", "cart", young);
        world.answer(&young, TOKEN).await.unwrap();
        assert_eq!((of_old.load(Ordering::Relaxed), of_young.load(Ordering::Relaxed)), (1, 0));
        drop(old);
        world.pass(HOUR).await;
        assert_eq!((of_old.load(Ordering::Relaxed), of_young.load(Ordering::Relaxed)), (1, 1));
    });
}

/// The youngest pod's token file was the only one tried, so one broken pod starved its siblings.
#[test]
fn a_pod_without_a_token_does_not_spoil_its_siblings() {
    run(|| async {
        let world = world();
        let good = world.pod("cart-0", "cart");
        world.answer(&good, TOKEN).await.unwrap();
        let broken = world.pod_with("cart-1", "cart", Subject { broken: true, ..Subject::default() });
        world.answer(&broken, TOKEN).await.unwrap();
        world.pass(HOUR).await;
        assert!(good.cached_lease(TOKEN, world.now()).unwrap().remaining(world.now()) > 40 * MINUTE);
        let alone = world.pod_with("till-0", "till", Subject { broken: true, ..Subject::default() });
        assert_eq!(
            world.answer(&alone, TOKEN).await.unwrap_err().fault(),
            Some(ExchangeFault::PodTokenUnavailable)
        );
    });
}

/// A pod that had just gone could no longer prove itself, and for seconds its failure was the next pod's answer.
#[test]
fn what_a_pod_that_is_gone_could_not_prove_is_not_held_against_the_next() {
    run(|| async {
        let world = world();
        let gone = world.pod_with("cart-0", "cart", Subject { broken: true, ..Subject::default() });
        assert_eq!(
            world.answer(&gone, TOKEN).await.unwrap_err().fault(),
            Some(ExchangeFault::PodTokenUnavailable)
        );
        world.answer(&world.pod("cart-1", "cart"), TOKEN).await.unwrap();
    });
}

#[test]
fn credentials_too_short_for_the_floor_are_counted_and_still_served() {
    run(|| async {
        let world = world();
        *world.cloud.lifetime.lock().unwrap() = 5 * MINUTE;
        let pod = world.pod("cart-0", "cart");
        for _ in 0..60 {
            world.answer(&pod, TOKEN).await.unwrap();
            world.pass(MINUTE).await;
        }
        assert!(world.broker.counters().issued_below_twice_floor_total() > 0);
        assert!(world.broker.counters().responses_below_floor_total() > 0);
        assert!(world.broker.counters().min_response_lifetime().unwrap() >= 2 * MINUTE);
        assert!(world.cloud.count() <= 30);
    });
}

/// A tiny lifetime must not become a loop.
#[test]
fn an_upstream_whose_credentials_die_soon_is_asked_at_most_once_a_second() {
    run(|| async {
        let world = world();
        *world.cloud.lifetime.lock().unwrap() = Duration::from_millis(2100);
        *world.cloud.latency.lock().unwrap() = Duration::from_millis(10);
        let pod = world.pod("cart-0", "cart");
        world.answer(&pod, TOKEN).await.unwrap();
        for _ in 0..600 {
            assert!(pod.cached_lease(TOKEN, world.now()).is_some());
            world.pass(SECOND / 10).await;
        }
        assert!((55..=60).contains(&world.cloud.count()), "{} calls", world.cloud.count());
    });
}

/// Regression: the error said that the call took long.
#[test]
fn what_ends_before_it_comes_is_said_to_be_too_short() {
    run(|| async {
        let world = world();
        *world.cloud.lifetime.lock().unwrap() = SECOND;
        let pod = world.pod("cart-0", "cart");
        let unavailable = world.answer(&pod, TOKEN).await.unwrap_err();
        assert_eq!(unavailable.fault(), Some(ExchangeFault::ShortLived));
        assert!(unavailable.to_string().contains("for only 1 s"), "{unavailable}");
        let asked: Vec<_> = (0..100).map(|_| world.ask(&pod, TOKEN)).collect();
        world.pass(SECOND / 2).await;
        assert!(asked.iter().all(tokio::task::JoinHandle::is_finished));
        assert_eq!(world.cloud.count(), 1, "remembered for a moment");
    });
}

/// A request that was held before it came here has less time left than others.
#[test]
fn a_request_that_has_waited_already_is_answered_as_soon_as_others() {
    run(|| async {
        let world = world();
        world.cloud.turns(Mood::Hangs);
        let pod = world.pod("cart-0", "cart");
        let came = world.now();
        world.pass(SECOND / 2).await;
        let asked = tokio::spawn(async move { pod.lease_for_request_at(TOKEN, came).await });
        world.pass((came + BROKER_SETTINGS.max_request_wait).since(world.now())).await;
        assert!(matches!(asked.await.unwrap(), Err(LeaseError::TimedOut)));
    });
}

/// Node's library has 3 s for all its tries: when each waited anew, it gave up in the middle of its second.
#[test]
fn who_tries_again_waits_for_what_is_left_of_the_first_wait() {
    run(|| async {
        let world = world();
        world.cloud.turns(Mood::Hangs);
        let pod = world.pod("cart-0", "cart");
        let first = world.now();
        assert!(matches!(world.answer(&pod, TOKEN).await, Err(LeaseError::TimedOut)));
        let end = first + BROKER_SETTINGS.call_deadline;
        while world.now() + SECOND / 2 < end {
            world.pass(SECOND / 2).await;
            let asked = world.now();
            assert!(matches!(world.answer(&pod, TOKEN).await, Err(LeaseError::TimedOut)));
            assert_eq!(world.now(), asked, "at once");
        }
        assert_eq!(world.cloud.count(), 1);
    });
}

#[test]
fn a_holder_lists_its_own_principals_and_no_others() {
    run(|| async {
        let world = world();
        let (one, two) = (world.pod("cart-0", "cart"), world.pod("cart-1", "cart"));
        world.answer(&one, TOKEN).await.unwrap();
        world.answer(&two, TOKEN).await.unwrap();
        world.answer(&two, audience("a")).await.unwrap();
        let listed = [&one, &two].map(|pod| pod.principals());
        assert_eq!(listed.each_ref().map(Vec::len), [1, 2]);
        assert!(listed[1].iter().all(|view| view.lease_times.is_some()));
    });
}

#[test]
fn identity_tokens_need_an_account() {
    run(|| async {
        let world = world();
        let mut spec = world::spec("cart-0", "cart", Arc::default());
        spec.entitlement = None;
        let pod = world.broker.new_pod_client(spec);
        assert!(matches!(world.answer(&pod, audience("a")).await, Err(LeaseError::NotEntitled(_))));
        assert_eq!(world.cloud.count(), 0);
        assert!(world.answer(&pod, TOKEN).await.is_ok());
    });
}

#[test]
fn whoever_waits_for_a_change_hears_of_a_renewal_and_not_of_a_failure() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        let first = world.answer(&pod, TOKEN).await.unwrap();
        let mut changes = pod.watch_lease(TOKEN);
        let changed = tokio::spawn(async move { changes.changed().await });
        world.cloud.turns(Mood::Fails(ExchangeFault::Unavailable));
        world.pass(55 * MINUTE).await;
        assert!(world.cloud.count() > 1);
        assert!(!changed.is_finished(), "told of a failure");
        world.cloud.turns(Mood::Issues);
        world.pass(2 * MINUTE).await;
        changed.await.unwrap();
        assert_ne!(pod.cached_lease(TOKEN, world.now()).unwrap().value.text(), first.value.text());
    });
}

#[test]
fn nothing_that_is_printed_holds_a_credential() {
    run(|| async {
        let world = world();
        let pod = world.pod("cart-0", "cart");
        let lease = world.answer(&pod, TOKEN).await.unwrap();
        world.cloud.turns(Mood::Fails(ExchangeFault::AccessDenied));
        let failure = world.answer(&pod, audience("a")).await.unwrap_err();
        for printed in [
            format!("{:?}", world.broker),
            format!("{pod:?}"),
            format!("{lease:?}"),
            format!("{failure} {failure:?}"),
            format!("{:?}", world.broker.principals().collect::<Vec<_>>()),
            format!("{:?}", world.broker.counters()),
            format!("{:?}", pod.watch_lease(TOKEN)),
        ] {
            assert!(!printed.contains(SECRET), "{printed}");
        }
        assert!(text(&Ok(lease)).contains(SECRET), "the check could not fail");
    });
}

/// The agent's traffic threads have runtimes of their own.
#[test]
fn leases_are_asked_for_from_threads_of_other_runtimes() {
    let control = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let cloud = Arc::new(world::Cloud::default());
    let broker = seawall_broker::Broker::start(
        BROKER_SETTINGS,
        seawall_core::Clock::system(),
        cloud.clone(),
        control.handle().clone(),
    );
    let pod = broker.new_pod_client(world::spec("cart-0", "cart", Arc::default()));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let pod = pod.clone();
            std::thread::spawn(move || {
                let traffic = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                traffic.block_on(async {
                    let asked: Vec<_> = (0..50)
                        .map(|_| {
                            let pod = pod.clone();
                            tokio::spawn(async move { pod.lease(TOKEN).await.map(drop) })
                        })
                        .collect();
                    for answer in asked {
                        answer.await.unwrap().unwrap();
                    }
                });
            })
        })
        .collect();
    control.block_on(async {
        while threads.iter().any(|thread| !thread.is_finished()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(cloud.count(), 1);
}

/// Fields of a principal, from few values, so that pairs often differ in one field only. Values of one field look like
/// another's on purpose: joining them to one text would confuse them.
fn fields() -> impl Strategy<Value = (GooglePodCredentialsSpec, CredentialRequest)> {
    let word = || prop::sample::select(vec!["a", "b", "a b", "a/b", "b/a"]);
    let want = (word(), 0..3u8).prop_map(|(text, kind)| match kind {
        0 => CredentialRequest::AccessToken { scopes: text.into() },
        kind => CredentialRequest::IdToken { audience: text.into(), include_email: kind == 1 },
    });
    (word(), word(), word(), want).prop_map(|(namespace, name, account, want)| {
        let mut spec = world::spec("pod", name, Arc::default());
        spec.pod.service_account.namespace = namespace.into();
        spec.entitlement = Some(account.into());
        (spec, want)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn credentials_are_shared_only_if_every_field_is_equal((one, want_one) in fields(), (two, want_two) in fields()) {
        let same = one.pod.service_account == two.pod.service_account
            && one.entitlement == two.entitlement
            && want_one == want_two;
        run(|| async {
            let world = world();
            let (one, two) = (world.broker.new_pod_client(one), world.broker.new_pod_client(two));
            let first = world.answer(&one, want_one.as_ref()).await.unwrap();
            let second = world.answer(&two, want_two.as_ref()).await.unwrap();
            assert_eq!(first.value.text() == second.value.text(), same);
            // Neither holder reaches what the other asked for.
            assert_eq!(two.cached_lease(want_one.as_ref(), world.now()).is_some(), want_one == want_two);
        });
    }
}
