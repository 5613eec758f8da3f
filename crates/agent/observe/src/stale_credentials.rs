//! Reports credentials that the agent could not renew and whose remaining life is below the floor.
//!
//! There are three causes:
//!
//! - The cloud is unreachable for too long.
//! - The cloud refuses credentials that it granted before.
//! - The cloud throttles the agent so much that a renewal only waits in the agent's queue ([`overdue`]).
//!
//! Pods still get their current credentials, so nothing fails yet and no operator would see the problem. Three times a minute the
//! control thread checks all leases. Each affected pod gets one event. The event says:
//!
//! - when the failures began and which call fails;
//! - which SDKs are affected first, and when;
//! - when all clients of the pod will fail;
//! - what to check.
//!
//! The log has one line when the problem begins and one line when the problem ends. A metric counts the affected pods. A pod
//! without any credentials gets no event here, because the refusal of its requests states the reason. No event reports the end of
//! the problem, because the end needs no action. Each cloud says which of its SDKs are affected first ([`SdksFetchingEveryCall`]).
//!
//! Each scan creates only a limited number of events, and the cluster's event reporter applies a second limit. A pod whose event
//! was dropped gets the event at a later scan. The monitor's memory grows only with the number of pods.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use seawall_broker::ExchangeFault;
use seawall_clouds::CurrentClouds;
use seawall_clouds::entitlements::{LeaseState, PodLeases, RenewalFailure};
use seawall_clouds::pod::PodEntry;
use seawall_clouds::sdk_refresh_times::SdksFetchingEveryCall;
use seawall_core::cloud::CloudName;
use seawall_core::kubernetes_events::{EventReason, PodEventRecorder};
use seawall_core::{Clock, Moment, PodUid};

use super::periodic_pod_checks::{PodScanner, ReportedPodsGauge};

/// The time between two scans. When a credential falls below its floor, minutes pass before the first SDK has problems, so the
/// scan reports the credential in time.
pub const SCAN_INTERVAL: Duration = Duration::from_secs(20);

/// The maximum number of events per scan and cloud. This number is somewhat below the node's event limit, so other events still
/// have room.
const AT_A_LOOK: usize = 15;

/// The time after which a due renewal without a result counts as never started.
///
/// This time is longer than any call takes. It is far shorter than the time from the due renewal until the remaining life reaches
/// the floor (AWS: 9 minutes, Google: 4 minutes).
const OVERDUE: Duration = Duration::from_secs(120);

/// The time for which a pod still counts as affected after its credentials have expired. The pod no longer counts when it gets
/// new credentials.
const AFTER_THE_END: Duration = Duration::from_secs(3600);

/// Monitors the leases of all pods, for each cloud.
#[derive(Debug)]
pub struct RenewalMonitor {
    clouds: Arc<CurrentClouds>,
    clock: Clock,
    found: ReportedPodsGauge,
    known: [HashMap<PodUid, StalePod>; CloudName::ALL.len()],
}

/// A pod whose credentials the agent has not renewed in time.
#[derive(Clone, Copy, Debug)]
struct StalePod {
    /// The time at which the pod's credentials expire or expired.
    ends: Moment,
    is_told: bool,
}

impl PodScanner for RenewalMonitor {
    const INTERVAL: Duration = SCAN_INTERVAL;

    fn scan(&mut self, pods: &[Arc<PodEntry>]) {
        self.inspect_pods(pods, |complainer, message| {
            complainer.record(EventReason::RenewalFailing, message)
        });
    }
}

impl RenewalMonitor {
    /// Creates a monitor that has not scanned any pod yet.
    pub fn new(clouds: Arc<CurrentClouds>, clock: Clock, found: ReportedPodsGauge) -> Self {
        Self { clouds, clock, found, known: std::array::from_fn(|_| HashMap::new()) }
    }

    /// Scans these pods and forgets all other pods. `tell` queues an event, and returns true if the queue accepts the event.
    pub fn inspect_pods(
        &mut self,
        pods: &[Arc<PodEntry>],
        mut tell: impl FnMut(&PodEventRecorder, &str) -> bool,
    ) {
        for cloud in CloudName::ALL {
            let held = pods.iter().map(|pod| (&pod.pod.uid, pod.entitlements().leases_for_cloud(*cloud)));
            self.look_at(*cloud, held, &mut tell);
        }
    }

    /// Scans each pod's leases of one cloud.
    fn look_at<'p>(
        &mut self,
        cloud: CloudName,
        held: impl Iterator<Item = (&'p PodUid, Option<PodLeases>)>,
        tell: &mut impl FnMut(&PodEventRecorder, &str) -> bool,
    ) {
        let now = self.clock.now();
        let before = std::mem::take(&mut self.known[cloud as usize]);
        let mut room = AT_A_LOOK;
        let mut worst: Option<FailingLease> = None;
        for (pod, lending) in held {
            let leases = lending.as_ref().map(|lending| &lending.leases[..]).unwrap_or_default();
            let known = before.get(pod).copied();
            let Some(trouble) = FailingLease::of(leases, now) else {
                if let Some(known) = known.filter(|known| is_without(leases, known.ends, now)) {
                    self.known[cloud as usize].insert(pod.clone(), known);
                }
                continue;
            };
            let mut is_told = known.is_some_and(|known| known.is_told);
            if let Some(lending) = lending.filter(|_| !is_told && room > 0) {
                room -= 1;
                is_told = tell(&lending.event_recorder, &self.message(cloud, &trouble, now));
            }
            self.known[cloud as usize].insert(pod.clone(), StalePod { ends: trouble.ends, is_told });
            worst = worst.into_iter().chain([trouble]).min_by_key(|trouble| trouble.failing.failing_since);
        }
        self.count(cloud, !before.is_empty(), worst, now);
    }

    /// Sets the gauge, and writes a log line when the problem begins or ends.
    fn count(&self, cloud: CloudName, was_on: bool, worst: Option<FailingLease>, now: Moment) {
        let pods = self.known[cloud as usize].len();
        self.found.set(cloud, pods);
        match (was_on, worst) {
            (false, Some(trouble)) => tracing::warn!(
                cloud = cloud.as_str(),
                pods,
                step = trouble.failing.step,
                fault = trouble.failing.fault.name(),
                failing_seconds = now.since(trouble.failing.failing_since).as_secs(),
                left_seconds = trouble.ends.since(now).as_secs(),
                "the agent could not renew credentials in time, so their remaining life is below the floor; each affected pod has an event"
            ),
            (true, _) if pods == 0 => {
                tracing::info!(cloud = cloud.as_str(), "no pod has credentials below their floor any more");
            }
            _ => {}
        }
    }

    fn message(&self, cloud: CloudName, trouble: &FailingLease, now: Moment) -> String {
        let wall = self.clock.wall_time();
        let FailingLease { ends, failing: RenewalFailure { failing_since: since, step, fault } } = *trouble;
        let since = hour(wall - now.since(since));
        let at_the_end = hour(wall + ends.since(now));
        let first = self.clouds.current().sdk_profiles(cloud).sdks_fetching_every_call.map(|SdksFetchingEveryCall { fetch_every_call_below: left, sdk_names: who }| {
            let at = hour(wall + ends.saturating_sub_duration(left).since(now));
            format!(
                " From {at} UTC on, {who} request new credentials, some on every call, and fail if the agent restarts."
            )
        });
        format!(
            "The agent has failed to renew the {} credentials of this pod since {since} UTC ({step}: {}). The agent still serves the old credentials. All \
             clients fail when these credentials expire at {at_the_end} UTC.{} {}",
            cloud.title(),
            fault.name(),
            first.unwrap_or_default(),
            advice(fault),
        )
    }
}

/// The lease that expires first among the pod's leases that the agent could not renew.
#[derive(Clone, Copy, Debug)]
struct FailingLease {
    ends: Moment,
    failing: RenewalFailure,
}

impl FailingLease {
    /// Finds the failing lease that expires first.
    ///
    /// The function skips leases whose floor is more than half of their lifetime. Such leases are below the floor even if all
    /// renewals succeed.
    fn of(leases: &[LeaseState], now: Moment) -> Option<Self> {
        let of = |lease: &LeaseState| {
            let failing = lease.renewal_failure.or_else(|| overdue(lease, now))?;
            let left = lease.expires_at.since(now);
            let could_be_kept = lease.expires_at.since(lease.issued_at) / 2 >= lease.lifetime_floor;
            let is_below = !left.is_zero() && left < lease.lifetime_floor;
            (could_be_kept && is_below).then_some(Self { ends: lease.expires_at, failing })
        };
        leases.iter().filter_map(of).min_by_key(|trouble| trouble.ends)
    }
}

/// Returns a failure for a renewal that never started.
///
/// No call of such a renewal has failed, but the credentials still expire. The renewal waits in the agent's own queue. The agent
/// processes that queue at the rate that the cloud permits.
fn overdue(lease: &LeaseState, now: Moment) -> Option<RenewalFailure> {
    (now >= lease.renewal_due_at + OVERDUE).then_some(RenewalFailure {
        failing_since: lease.renewal_due_at,
        step: "waiting in the agent's queue",
        fault: ExchangeFault::Throttled,
    })
}

/// True if all of the pod's leases have expired, and less than [`AFTER_THE_END`] has passed since `ended`.
fn is_without(leases: &[LeaseState], ended: Moment, now: Moment) -> bool {
    leases.iter().all(|lease| lease.expires_at <= now) && now.since(ended) < AFTER_THE_END
}

/// Returns the advice to the operator for this fault.
fn advice(fault: ExchangeFault) -> &'static str {
    match fault {
        ExchangeFault::Unavailable | ExchangeFault::ShortLived => {
            "Check the node's path to the cloud (DNS, proxy, firewall) and the cloud's status page."
        }
        ExchangeFault::Throttled => {
            "The cloud limits the calls of this account: find the programs that make these calls."
        }
        ExchangeFault::AccessDenied | ExchangeFault::ExchangeRejected | ExchangeFault::NoAssociation => {
            "Check recent policy changes of the role or account; the agent's log has the cloud's message."
        }
        ExchangeFault::PodTokenUnavailable | ExchangeFault::PodTokenDenied => {
            "The API server gives no token for this pod: check the API server and the agent's log."
        }
    }
}

/// Formats a time as hour and minute, in UTC.
fn hour(at: SystemTime) -> String {
    let minutes = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 60;
    format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

/// The name and the help text of the metric that counts the affected pods.
pub const METRIC_NAME_AND_HELP: (&str, &str) = (
    "seawall_pods_with_stale_credentials",
    "Pods whose credentials have expired, or have a remaining lifetime below the floor (Google 6 minutes, AWS 16), because the agent could not renew the credentials",
);

#[cfg(test)]
mod tests {
    use seawall_clouds::testing::PodFixture;
    use seawall_core::ManualClock;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    struct Node {
        clock: Clock,
        hand: ManualClock,
        seen: RenewalMonitor,
        found: ReportedPodsGauge,
        /// Each pod's AWS leases.
        held: Vec<(PodUid, Vec<LeaseState>)>,
        /// The messages for pods.
        told: Vec<String>,
    }

    impl Node {
        fn new(pods: usize) -> Self {
            let PodFixture { clouds, clock, manual_clock: hand, .. } =
                PodFixture::with_sections("aws: { region: eu-central-1 }\n");
            let found = ReportedPodsGauge::default();
            let seen =
                RenewalMonitor::new(Arc::new(CurrentClouds::new(clouds)), clock.clone(), found.clone());
            let mut node = Self { clock, hand, seen, found, held: vec![], told: vec![] };
            (0..pods).for_each(|number| node.add(number));
            node
        }

        fn add(&mut self, number: usize) {
            self.held.push((PodUid(format!("cart-{number}").into()), Vec::new()));
        }

        /// Gives all pods a lease of one hour that starts now.
        fn renew(&mut self) {
            let issued = self.clock.now();
            let (due, ends) = (issued + 35 * MINUTE, issued + 60 * MINUTE);
            let lease = LeaseState {
                issued_at: issued,
                renewal_due_at: due,
                expires_at: ends,
                lifetime_floor: 16 * MINUTE,
                renewal_failure: None,
            };
            self.hold(&[lease]);
        }

        fn hold(&mut self, leases: &[LeaseState]) {
            self.held.iter_mut().for_each(|(_, held)| *held = leases.to_vec());
        }

        fn fail(&mut self, fault: ExchangeFault) {
            let failing = RenewalFailure { failing_since: self.clock.now(), step: "AssumeRole", fault };
            let leases = self.held.iter_mut().flat_map(|(_, held)| held);
            leases.for_each(|lease| lease.renewal_failure = Some(failing));
        }

        fn pass(&mut self, span: Duration) {
            let end = self.clock.now() + span;
            while self.clock.now() < end {
                self.hand.advance(SCAN_INTERVAL.min(end.since(self.clock.now())));
                self.look(true);
            }
        }

        fn look(&mut self, is_heard: bool) {
            let told = &mut self.told;
            let lending = |leases: &Vec<LeaseState>| {
                Some(PodLeases { leases: leases.clone(), event_recorder: PodEventRecorder::default() })
            };
            let held = self.held.iter().map(|(pod, leases)| (pod, lending(leases)));
            self.seen.look_at(CloudName::Aws, held, &mut |_, message| {
                told.push(message.to_owned());
                is_heard
            });
        }

        fn count(&self) -> usize {
            self.found.reported_pod_count(CloudName::Aws)
        }
    }

    #[test]
    fn an_outage_that_the_margin_outlasts_is_no_event_and_a_longer_one_is_one_for_each_pod_with_its_times() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let mut node = Node::new(3);
        node.renew();
        for (outage, told) in [(9 * MINUTE - Duration::from_secs(1), 0), (10 * MINUTE, 3)] {
            node.pass(35 * MINUTE);
            node.fail(ExchangeFault::Unavailable);
            node.pass(outage);
            assert_eq!((node.told.len(), node.count()), (told, told), "{outage:?}");
            node.renew();
        }
        // At 00:43:59 the first problem ended. The second lease starts at that time.
        let message = &node.told[0];
        for part in [
            "renew the AWS credentials",
            "since 01:18 UTC (AssumeRole: unavailable)",
            "From 01:28 UTC on, boto3 and older AWS SDKs for Java request new credentials",
            "when these credentials expire at 01:43 UTC.",
            "status page",
        ] {
            assert!(message.contains(part), "{message} lacks {part}");
        }
        assert!(message.len() <= 500, "the reporter cuts what is longer: {}", message.len());
        node.pass(MINUTE);
        assert_eq!((node.told.len(), node.count()), (3, 0), "no event reports the end of the problem");
    }

    /// Regression: such pods had no event, no log line and no count, because none of their calls had failed.
    #[test]
    fn credentials_whose_renewal_only_queues_are_told_of_as_those_whose_renewal_fails() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let mut node = Node::new(2);
        node.renew();
        node.pass(44 * MINUTE);
        assert_eq!((node.told.len(), node.count()), (0, 0), "the credentials are above the floor");
        node.pass(SCAN_INTERVAL);
        assert_eq!((node.told.len(), node.count()), (2, 2));
        let message = &node.told[0];
        for part in
            ["since 00:35 UTC (waiting in the agent's queue: throttled)", "limits the calls of this account"]
        {
            assert!(message.contains(part), "{message} lacks {part}");
        }
        assert!(message.len() <= 500, "the reporter cuts what is longer: {}", message.len());
        node.renew();
        node.pass(MINUTE);
        assert_eq!((node.told.len(), node.count()), (2, 0));
    }

    #[test]
    fn nobody_is_told_twice_in_an_outage_and_of_the_next_one_anew() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let mut node = Node::new(1);
        for outage in 1..=2 {
            node.renew();
            node.pass(35 * MINUTE);
            node.fail(ExchangeFault::Throttled);
            node.pass(25 * MINUTE - Duration::from_secs(1));
            assert_eq!((node.told.len(), node.count()), (outage, 1));
        }
        node.pass(MINUTE);
        assert_eq!(node.count(), 1, "the credentials expired and the pod has no new ones");
        node.hold(&[]);
        node.pass(60 * MINUTE);
        assert_eq!((node.told.len(), node.count()), (2, 0), "no pod uses the credentials any more");
    }

    #[test]
    fn a_full_node_is_told_within_three_minutes_each_pod_once_and_who_is_not_heard_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let mut node = Node::new(110);
        node.renew();
        node.pass(35 * MINUTE);
        node.fail(ExchangeFault::AccessDenied);
        node.pass(9 * MINUTE);
        node.hand.advance(SCAN_INTERVAL);
        node.look(false);
        assert_eq!(node.told.len(), AT_A_LOOK, "the other pods' events exceed the limit per scan");
        node.told.clear();
        node.pass(3 * MINUTE);
        assert_eq!((node.told.len(), node.count()), (110, 110));
        node.pass(3 * MINUTE);
        assert_eq!(node.told.len(), 110);
    }

    #[test]
    fn neither_an_agent_that_begins_anew_nor_pods_that_come_and_go_are_a_storm() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let mut node = Node::new(5);
        node.pass(10 * MINUTE);
        assert_eq!(node.told.len(), 0, "a pod without credentials gets the refusal instead of an event");
        node.renew();
        node.pass(35 * MINUTE);
        node.fail(ExchangeFault::Unavailable);
        node.pass(9 * MINUTE);
        // At each scan, 500 new pods hold the same leases.
        let leases = node.held[0].1.clone();
        for look in 1..=6 {
            node.held.clear();
            (0..500).for_each(|number| node.add(1000 * look + number));
            node.hold(&leases);
            node.pass(SCAN_INTERVAL);
            assert_eq!(node.told.len(), look * AT_A_LOOK);
            assert_eq!(node.seen.known[CloudName::Aws as usize].len(), 500, "deleted pods are forgotten");
        }
    }

    #[test]
    fn what_is_below_its_floor_every_time_or_is_being_renewed_is_no_trouble() {
        let start = Moment::from_nanos(0);
        let failing =
            Some(RenewalFailure { failing_since: start, step: "sts", fault: ExchangeFault::Unavailable });
        let lease = |minutes: u32, floor: u32, failing| LeaseState {
            issued_at: start,
            renewal_due_at: start + 44 * MINUTE,
            expires_at: start + minutes * MINUTE,
            lifetime_floor: floor * MINUTE,
            renewal_failure: failing,
        };
        let at = |minutes: u32| start + minutes * MINUTE;
        for (leases, now, ends) in [
            (&[lease(60, 16, failing)][..], at(44), None),
            (&[lease(60, 16, failing)], at(45), Some(at(60))),
            (&[lease(60, 16, None)], at(45), None),
            (&[lease(60, 16, None)], at(46), Some(at(60))),
            (&[lease(60, 16, failing)], at(60), None),
            (&[lease(15, 16, failing)], at(10), None),
            // Google's identity tokens have such a high floor.
            (&[lease(60, 55, failing)], at(30), None),
            (&[lease(62, 16, failing), lease(60, 16, failing)], at(50), Some(at(60))),
            (&[], at(1), None),
        ] {
            assert_eq!(FailingLease::of(leases, now).map(|trouble| trouble.ends), ends, "{leases:?} {now:?}");
        }
    }

    #[tokio::test]
    async fn whoever_is_troubled_first_is_so_some_looks_after_the_floor() {
        let clouds = PodFixture::with_sections("aws: { region: eu-central-1 }\n").clouds;
        let first = clouds.sdk_profiles(CloudName::Aws).sdks_fetching_every_call.unwrap();
        assert!(
            seawall_broker::aws::LIFETIME_FLOOR.min_remaining - first.fetch_every_call_below
                >= 3 * SCAN_INTERVAL
        );
    }
}
