//! Tests of whole requests, from the pod to STS and back. A manual clock simulates up to a day.

use std::time::Duration;

use seawall_core::Clock;
use seawall_core::annotations::{Annotations, RelatedAnnotations};
use seawall_core::kubernetes_events::PodEventRecorder;
use seawall_emulator::aws::AwsEndpoint;
use seawall_emulator::faults::Faults;

use crate::entitlements::EntitlementState;
use crate::testing::PodFixture;
use crate::testing::aws::{
    MINUTE, OTHER_ROLE_ARN, POD_ROLE_ARN, ROLE_LISTING_PATH, TRUSTED_SUBJECT, annotations_naming_role, start,
    start_with_config_lines,
};

#[tokio::test]
async fn a_days_documents_have_sixteen_minutes_left_though_sts_is_away_for_nine() {
    let (world, sts) = start(60 * MINUTE).await;
    world.wait_for_first_credentials().await;
    let mut least = Duration::MAX;
    for minute in 0..24 * 60 {
        // STS is down for nine minutes of every 35. The agent renews a lease about once in 35 minutes too, so during the day
        // renewals are due at many different minutes of an outage.
        let is_away = minute % 35 >= 26;
        let faults = Faults { error_rate: f64::from(u8::from(is_away)), ..Faults::default() };
        sts.set_faults(&faults);
        world.manual_clock.advance(MINUTE);
        world.run_until_idle().await;
        least = least.min(world.remaining_credentials_lifetime().await.unwrap());
    }
    assert!(least >= 16 * MINUTE, "{least:?}");
}

#[tokio::test]
async fn a_long_outage_costs_a_pod_nothing_before_its_credentials_end_and_then_is_told_at_the_listing() {
    let (world, sts) = start(60 * MINUTE).await;
    world.wait_for_first_credentials().await;
    sts.set_faults(&Faults { error_rate: 1.0, ..Faults::default() });
    for minute in 1..59 {
        world.manual_clock.advance(MINUTE);
        world.run_until_idle().await;
        assert!(world.remaining_credentials_lifetime().await.is_some(), "minute {minute}");
    }
    world.manual_clock.advance(2 * MINUTE);
    world.run_until_idle().await;
    assert_eq!(world.remaining_credentials_lifetime().await, None);
    sts.set_faults(&Faults::default());
    world.manual_clock.advance(2 * MINUTE);
    world.wait_for_first_credentials().await;
}

#[tokio::test]
async fn an_association_is_found_when_it_is_made_followed_when_it_changes_and_ends_with_its_lease() {
    let (world, eks) = start_with_config_lines(", roleSources: [pod-identity]", 60 * MINUTE).await;
    world.pod().replace_entitlements(
        world.entitlements_with_service_account_annotations(RelatedAnnotations::NotRead),
    );
    let pause = || async {
        world.manual_clock.advance(MINUTE + MINUTE / 9);
        world.run_until_idle().await;
    };
    let listed_in_the_end = || async {
        let mut listed = world.request_role_listing().await;
        while listed.0 == 503 {
            world.run_until_idle().await;
            listed = world.request_role_listing().await;
        }
        listed
    };
    for _ in 0..3 {
        let (status, body) = listed_in_the_end().await;
        assert!(status == 404 && body.contains("no_association"), "{status} {body}");
        pause().await;
    }
    eks.set_association(TRUSTED_SUBJECT, Some(POD_ROLE_ARN));
    assert_eq!(listed_in_the_end().await, (200, "cart".to_owned()));
    assert!(world.remaining_credentials_lifetime().await.unwrap() > 5 * 60 * MINUTE);
    let calls = eks.endpoint_request_counts(AwsEndpoint::PodIdentity).calls;
    eks.set_association(TRUSTED_SUBJECT, Some("arn:aws:iam::123456789012:role/till"));
    assert_eq!(
        world.request_role_listing().await.1,
        "cart",
        "the cached credentials belong to the old role until they are renewed"
    );
    for _ in 0..4 * 60 {
        world.manual_clock.advance(MINUTE);
        world.run_until_idle().await;
        // List the role in each minute, as an SDK would, because the agent drops credentials that no client requests.
        world.request_role_listing().await;
    }
    assert_eq!(world.request_role_listing().await, (200, "till".to_owned()));
    let (old, _) = world.send_with_header("GET", &format!("{ROLE_LISTING_PATH}cart"), "A: b").await;
    assert!(old.starts_with("HTTP/1.1 403 "), "{old}");
    assert_eq!(eks.endpoint_request_counts(AwsEndpoint::PodIdentity).calls, calls + 1);
    eks.set_association(TRUSTED_SUBJECT, None);
    let mut minutes = 0;
    while world.request_role_listing().await.0 == 200 {
        world.manual_clock.advance(MINUTE);
        world.run_until_idle().await;
        minutes += 1;
        assert!(minutes <= 6 * 60, "credentials outlive every session");
    }
    assert!(minutes > 4 * 60, "the agent answers with valid credentials until they expire");
    let (status, body) = listed_in_the_end().await;
    assert!(status == 404 && body.contains("no_association"), "{status} {body}");
    let calls = eks.endpoint_request_counts(AwsEndpoint::PodIdentity).calls - calls;
    assert!(calls < 6 * 60, "{calls} calls: at most one a minute");
}

fn hanging() -> Faults {
    Faults { hang_rate: 1.0, ..Faults::default() }
}

/// Measures how long requests of several SDKs wait at both endpoints while STS does not respond.
#[tokio::test]
async fn while_sts_hangs_whoever_waits_is_answered_before_its_client_gives_up_and_told_no_time_to_wait() {
    let (world, sts) = start(60 * MINUTE).await;
    sts.set_faults(&hanging());
    let clock = Clock::system();
    let go = "aws-sdk-go-v2/1.47.7 ua/2.1 ft/ec2-imds";
    for (at, agent, most) in [
        (ROLE_LISTING_PATH, go, 500),
        (ROLE_LISTING_PATH, "Boto3/1.44.5 Botocore/1.44.5", 1000),
        ("", "Go-http-client/1.1", 1000),
        ("", go, 1000),
        ("", "python-urllib3/2.8.0", 1000),
    ] {
        let mut waited = Duration::MAX;
        // On a busy machine an answer may be late, but not in every try.
        for _ in 0..5 {
            let began = clock.now();
            let answer = if at.is_empty() {
                world.request_container_credentials(agent).await
            } else {
                world.send_with_header("GET", at, &format!("User-Agent: {agent}")).await.0
            };
            waited = waited.min(clock.now().since(began));
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("upstream_timeout"), "{answer}");
            assert!(!answer.to_ascii_lowercase().contains("retry-after"), "{answer}");
            if waited < Duration::from_millis(most) {
                break;
            }
        }
        let in_time = Duration::from_millis(most / 2)..Duration::from_millis(most);
        assert!(in_time.contains(&waited), "{agent} at {at:?}: {waited:?}");
    }
}

/// Regression: when a pod's role changed, requests that already waited got the credentials of the old role.
#[tokio::test]
async fn what_is_taken_back_or_changed_while_a_request_waits_for_it_is_not_what_it_gets() {
    let (world, sts) = start(60 * MINUTE).await;
    let other = world.another_pod("u2", annotations_naming_role(OTHER_ROLE_ARN), PodEventRecorder::default());
    while !world.get_as_client(&other, ROLE_LISTING_PATH).await.ends_with("till") {
        world.run_until_idle().await;
    }
    sts.set_faults(&hanging());
    for is_at_containers in [false, true] {
        for (now, status, holds) in [
            (RelatedAnnotations::of_object(Annotations::default()), "404", "no_role"),
            (annotations_naming_role(OTHER_ROLE_ARN), "200", "till"),
        ] {
            let mut answer = "upstream_timeout".to_owned();
            // On a busy machine the client's timeout may come first, but not in every try.
            for _ in 0..5 {
                if answer.contains("upstream_timeout") {
                    answer = changed_meanwhile(&world, is_at_containers, now.clone()).await;
                }
            }
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert!(answer.contains(holds) && !answer.contains("role/cart"), "{answer}");
        }
    }
}

/// Returns the answer to a pod whose entitlement changes while it waits for its role's credentials.
async fn changed_meanwhile(world: &PodFixture, is_at_containers: bool, now: RelatedAnnotations) -> String {
    world.pod().replace_entitlements(
        world.entitlements_with_service_account_annotations(annotations_naming_role(POD_ROLE_ARN)),
    );
    let ask = async {
        if is_at_containers {
            return world.request_container_credentials("a").await;
        }
        world.send_with_header("GET", ROLE_LISTING_PATH, "A: b").await.0
    };
    let change = async {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        world.pod().replace_entitlements(world.entitlements_with_service_account_annotations(now));
    };
    tokio::join!(ask, change).0
}

/// Returns the remaining lifetime of the pod's credentials.
fn held(world: &PodFixture) -> Duration {
    let entitlements = world.pod().entitlements();
    let EntitlementState::Decided(own) = entitlements.aws() else { panic!("not decided") };
    let now = world.clock.now();
    own.role().unwrap().lease_client.cached_lease((), now).unwrap().remaining(now)
}

#[tokio::test]
async fn a_role_is_listed_while_its_credentials_live_long_enough_to_be_asked_for() {
    let (world, sts) = start(60 * MINUTE).await;
    world.wait_for_first_credentials().await;
    sts.set_faults(&Faults { error_rate: 1.0, ..Faults::default() });
    for (left, status) in [(11, 200), (9, 503), (1, 503)] {
        world.manual_clock.advance(held(&world) - Duration::from_secs(left));
        world.run_until_idle().await;
        let mut listed = world.request_role_listing().await;
        while listed.1.contains("upstream_timeout") {
            listed = world.request_role_listing().await;
        }
        assert_eq!(listed.0, status, "{left} s left: {listed:?}");
        assert!(status == 200 || listed.1.contains("upstream_unavailable"), "{listed:?}");
        let (document, _) = world.send_with_header("GET", &format!("{ROLE_LISTING_PATH}cart"), "A: b").await;
        assert!(document.starts_with("HTTP/1.1 200 "), "a role that was listed has a document: {document}");
    }
}
