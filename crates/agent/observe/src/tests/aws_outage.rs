//! Tests credentials that cannot be renewed. An emulated STS refuses the calls; pods and operators must get their events.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use seawall_clouds::pod::PodEntry;
use seawall_clouds::testing::PodFixture;
use seawall_clouds::testing::aws::{MINUTE, POD_ROLE_ARN, annotations_naming_role, start, start_with_roles};
use seawall_core::cloud::CloudName;
use seawall_emulator::faults::Faults;

use crate::metrics::broker;
use crate::periodic_pod_checks::ReportedPodsGauge;
use crate::stale_credentials::RenewalMonitor;

/// Advances the clock in steps of 20 s, with a scan after each step, and returns the messages for the pod.
async fn watched(world: &PodFixture, seen: &mut RenewalMonitor, seconds: u64) -> Vec<String> {
    let mut told = Vec::new();
    for _ in 0..seconds / 20 {
        world.manual_clock.advance(Duration::from_secs(20));
        world.run_until_idle().await;
        world.request_role_listing().await;
        seen.inspect_pods(&[world.pod().clone()], |_, message| {
            told.push(message.to_owned());
            true
        });
    }
    world.manual_clock.advance(Duration::from_secs(seconds % 20));
    told
}

#[tokio::test]
async fn a_pod_is_told_of_an_outage_that_outlasts_the_margin_and_of_no_shorter_one() {
    let (world, sts) = start(60 * MINUTE).await;
    world.wait_for_first_credentials().await;
    let mut seen =
        RenewalMonitor::new(world.new_current_clouds(), world.clock.clone(), ReportedPodsGauge::default());
    let down = Faults { error_rate: 1.0, ..Faults::default() };
    assert!(watched(&world, &mut seen, 33 * 60).await.is_empty());
    // STS stays down until shortly before the credentials' remaining life reaches the floor.
    sts.set_faults(&down);
    let until_floor = world.remaining_credentials_lifetime().await.unwrap() - 16 * MINUTE;
    assert!(watched(&world, &mut seen, until_floor.as_secs() - 15).await.is_empty());
    sts.set_faults(&Faults::default());
    assert!(watched(&world, &mut seen, 2 * 60).await.is_empty());
    let life = world.remaining_credentials_lifetime().await.unwrap();
    assert!(life > 55 * MINUTE, "{life:?}");
    // The agent counts the last second of the life as expired.
    let ends = jiff::Timestamp::try_from(world.clock.wall_time() + life - Duration::from_secs(1)).unwrap();
    sts.set_faults(&down);
    let told = watched(&world, &mut seen, life.as_secs() - 15 * 60).await;
    let [message] = &told[..] else { panic!("once: {told:?}") };
    let first = ends - jiff::Span::new().minutes(15);
    for at in [ends.strftime("at %H:%M UTC."), first.strftime("From %H:%M UTC on,")] {
        assert!(message.contains(&at.to_string()), "{message} lacks {at}");
    }
    assert!(message.contains("(AssumeRoleWithWebIdentity: unavailable)"), "{message}");
    assert!(watched(&world, &mut seen, 15 * 60).await.is_empty(), "not again");
}

/// The account is at its rate limit. The agent limits calls to a throttled STS to one in 15 seconds, so most renewals do not
/// start before the remaining life reaches the floor. No call of these renewals has failed, and their pods once got no event.
#[tokio::test]
async fn all_pods_of_a_throttled_account_are_told_those_whose_renewal_had_no_turn_too() {
    let roles: Vec<_> = (0..90).map(|number| format!("{POD_ROLE_ARN}-{number}")).collect();
    let (world, sts) = start_with_roles(&roles, "", 60 * MINUTE).await;
    let pods: Vec<_> =
        roles.iter().map(|role| world.another_prefetching_pod(role, annotations_naming_role(role))).collect();
    let pass = async |seconds: u64| {
        for _ in 0..seconds {
            world.manual_clock.advance(Duration::from_secs(1));
            for _ in 0..128 {
                tokio::task::yield_now().await;
            }
        }
    };
    let leases = || -> Vec<_> {
        let lending = |pod: &Arc<PodEntry>| pod.entitlements().leases_for_cloud(CloudName::Aws);
        pods.iter().filter_map(lending).flat_map(|lending| lending.leases).collect()
    };
    while leases().len() < pods.len() {
        pass(1).await;
    }
    world.manual_clock.advance(30 * MINUTE);
    let throttled =
        Faults { error_rate: 1.0, error_status: Some(429), html_errors: true, ..Faults::default() };
    sts.set_faults(&throttled);
    let mut seen =
        RenewalMonitor::new(world.new_current_clouds(), world.clock.clone(), ReportedPodsGauge::default());
    let (mut told, mut without) = (Vec::new(), 0);
    for _ in 0..20 * 3 {
        pass(20).await;
        seen.inspect_pods(&pods, |_, message| {
            told.push(message.to_owned());
            true
        });
        without = without.max(leases().iter().filter(|lease| lease.renewal_failure.is_none()).count());
    }
    assert!(without > 0, "the test needs renewals that never started");
    assert_eq!(told.len(), pods.len(), "each once");
    assert!(told.iter().any(|message| message.contains("waiting in the agent's queue")), "{}", told[0]);
}

#[tokio::test]
async fn a_role_that_allows_too_little_is_counted_told_to_the_operator_and_keeps_a_node_from_being_called_good()
 {
    let (world, _sts) = start(15 * MINUTE).await;
    world.wait_for_first_credentials().await;
    assert!(world.remaining_credentials_lifetime().await.unwrap() <= 15 * MINUTE);
    let mut registry = Registry::default();
    broker::register(&world.new_current_clouds(), &mut registry, &world.clock);
    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &registry).unwrap();
    for line in [
        r#"seawall_requested_lifetime_reductions_total{cloud="aws"} 1"#,
        r#"seawall_short_lived_credentials_total{cloud="aws"} 1"#,
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
    }
    let breaches =
        metrics.lines().find(|line| line.starts_with("seawall_responses_below_floor_total")).unwrap();
    assert!(!breaches.ends_with(" 0"), "{breaches}");
    assert!(world.clouds.floor_states().iter().all(|state| !state.was_always_kept));
    let remarks = world.clouds.warnings();
    assert!(
        remarks
            .iter()
            .any(|remark| remark.contains("renewal cannot keep them above the floor of 16 minutes")),
        "{remarks:?}"
    );
}
