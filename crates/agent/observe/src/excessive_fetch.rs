//! Finds pods that fetch the same credentials over and over.
//!
//! There are two causes:
//!
//! - The credentials' remaining life is always below the SDK's refresh window, so the SDK refreshes at each call.
//! - A program creates a new client for each call.
//!
//! In both cases the program fetches credentials for each of its calls to the cloud. The calls succeed, so only their latency
//! shows the problem.
//!
//! A traffic thread only increments the pod's counter ([`seawall_clouds::pod::FetchCounters`]). Once a minute the control thread
//! checks all counters ([`FetchMonitor`]). The monitor reports a pod that meets all of these conditions:
//!
//! - It fetched the credentials of one lease more than [`PER_LEASE`] times.
//! - In an hour it fetched more often than is normal for its cloud.
//! - It continues to fetch without a break ([`History::goes_on`]).
//! - Its SDK is not known to poll at this rate.
//!
//! The report is one log line, one event on the pod and a metric. The monitor reports the pod again only after an hour with a
//! normal rate.
//!
//! The third condition excludes bursts of many clients: fifty threads fetch once each when their container starts, and sixteen
//! workers fetch each new lease once. Such bursts end within some minutes. Each cloud lists its SDKs' names and refresh windows
//! ([`SdkProfiles`]). The monitor's memory grows only with the number of pods. Reports contain no text that a pod sends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seawall_clouds::CurrentClouds;
use seawall_clouds::entitlements::{LeaseState, PodLeases};
use seawall_clouds::pod::PodEntry;
use seawall_clouds::sdk_refresh_times::{SdkProfile, SdkProfiles};
use seawall_core::cloud::CloudName;
use seawall_core::kubernetes_events::EventReason;
use seawall_core::{Clock, Moment, PodUid};

use super::periodic_pod_checks::{PodScanner, ReportedPodsGauge};

/// The normal number of fetches of one lease. An SDK fetches a renewed lease within minutes. Shortly before the renewal, an SDK
/// can fetch the old lease a few more times.
const PER_LEASE: u32 = 3;

/// The time between two scans.
const LOOK: Duration = Duration::from_secs(60);

/// The number of scans in an hour.
const HOUR: usize = 60;

/// If each of this many consecutive scans sees a fetch, the fetches are not a burst.
///
/// 12 scans take 12 minutes. AWS's older SDKs fetch at each call in the last 15 minutes of a lease, so the monitor finds them
/// before the lease expires.
const ON_END: u32 = 12;

/// The number of scans in one group. A pod fetches without a break if every group of the last hour has a fetch.
///
/// A group takes five minutes, because more than 12 fetches in an hour mean more than one fetch in five minutes on average.
const BREAK: usize = 5;

/// The history of one pod's fetches from one cloud.
#[derive(Debug)]
struct History {
    /// The counter's value at the last scan.
    last: u32,
    /// The number of scans since the first fetch.
    looks: u32,
    /// The number of fetches since the previous scan, for each scan of the last hour.
    minutes: [u16; HOUR],
    /// The number of consecutive scans, up to now, that each saw a fetch.
    on_end: u32,
    /// The time at which the newest lease was issued.
    ///
    /// `from_lease` counts the fetches since that time. `from_last` counts the fetches of the previous lease.
    issued: Option<Moment>,
    from_lease: u32,
    from_last: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Normal,
    /// The pod fetches too often. The monitor waits for the User-Agent of the pod's next request.
    AwaitingUserAgent,
    Reported,
}

impl Default for History {
    fn default() -> Self {
        let (minutes, stage) = ([0; HOUR], Stage::Normal);
        Self { last: 0, looks: 0, minutes, on_end: 0, issued: None, from_lease: 0, from_last: 0, stage }
    }
}

impl History {
    /// Records one scan with the counter's value and the pod's current leases.
    fn look(&mut self, count: u32, leases: &[LeaseState]) {
        // A smaller value than before means that the counter started again at 0.
        let more = count.checked_sub(self.last).unwrap_or(count);
        self.last = count;
        if self.looks == 0 && more == 0 {
            return;
        }
        let newest = leases.iter().map(|lease| lease.issued_at).max();
        if newest != self.issued {
            (self.issued, self.from_last, self.from_lease) = (newest, self.from_lease, 0);
        }
        self.from_lease = self.from_lease.saturating_add(more);
        self.on_end = if more == 0 { 0 } else { self.on_end.saturating_add(1) };
        self.minutes[self.looks as usize % HOUR] = u16::try_from(more).unwrap_or(u16::MAX);
        // At its maximum, the number wraps to the same position in the hour. It never wraps to 0, because 0 means that no scan
        // has seen a fetch yet.
        self.looks = if self.looks == u32::MAX { u32::MAX % HOUR as u32 + 1 } else { self.looks + 1 };
    }

    fn in_hour(&self) -> u32 {
        self.minutes.iter().map(|fetches| u32::from(*fetches)).sum()
    }

    fn of_one_lease(&self) -> u32 {
        self.from_lease.max(self.from_last)
    }

    /// Counts the fetches of the last hour, but at most one per lease and minute. So simultaneous fetches of a lease count once.
    fn turns_in_hour(&self, leases: u32) -> u32 {
        self.minutes.iter().map(|fetches| u32::from(*fetches).min(leases)).sum()
    }

    /// True if the pod fetched without a break: at each of the last [`ON_END`] scans, or throughout the last hour.
    fn goes_on(&self, leases: u32, most: u32) -> bool {
        let is_seen = |looks: &[u16]| looks.iter().any(|fetches| *fetches > 0);
        self.on_end >= ON_END
            || (self.turns_in_hour(leases) > most && self.minutes.chunks(BREAK).all(is_seen))
    }

    /// True if the pod fetches too often. `per_hour` fetches of one lease in an hour are normal. A pod can have several leases.
    fn is_too_often(&self, leases: usize, per_hour: u32) -> bool {
        let leases = u32::try_from(leases.max(1)).unwrap_or(u32::MAX);
        let most = per_hour.saturating_mul(leases);
        // A reported pod stays reported until its rate was normal for an hour, because its fetches per lease vary.
        let is_known = self.stage == Stage::Reported;
        let is_found =
            || self.of_one_lease() > PER_LEASE.saturating_mul(leases) && self.goes_on(leases, most);
        self.in_hour() > most && (is_known || is_found())
    }
}

/// Monitors the fetch counters of all pods.
#[derive(Debug)]
pub struct FetchMonitor {
    clouds: Arc<CurrentClouds>,
    clock: Clock,
    found: ReportedPodsGauge,
    known: HashMap<PodUid, [History; CloudName::ALL.len()]>,
}

impl PodScanner for FetchMonitor {
    const INTERVAL: Duration = LOOK;

    fn scan(&mut self, pods: &[Arc<PodEntry>]) {
        self.inspect_pods(pods);
    }
}

impl FetchMonitor {
    /// Creates a monitor that has not scanned any pod yet.
    pub fn new(clouds: Arc<CurrentClouds>, clock: Clock, found: ReportedPodsGauge) -> Self {
        Self { clouds, clock, found, known: HashMap::new() }
    }

    /// Scans these pods and forgets all other pods.
    pub fn inspect_pods(&mut self, pods: &[Arc<PodEntry>]) {
        let mut before = std::mem::take(&mut self.known);
        let mut found = [0; CloudName::ALL.len()];
        for pod in pods {
            let mut histories = before.remove(&pod.pod.uid).unwrap_or_default();
            for ((cloud, history), found) in CloudName::ALL.iter().zip(&mut histories).zip(&mut found) {
                self.look_at(pod, *cloud, history);
                *found += usize::from(history.stage == Stage::Reported);
            }
            self.known.insert(pod.pod.uid.clone(), histories);
        }
        CloudName::ALL.iter().zip(found).for_each(|(cloud, found)| self.found.set(*cloud, found));
    }

    fn look_at(&self, pod: &PodEntry, cloud: CloudName, history: &mut History) {
        let fetches = pod.fetch_counters.for_cloud(cloud);
        let count = fetches.count.load(Ordering::Relaxed);
        if count == 0 && history.looks == 0 {
            return;
        }
        let lending = pod.entitlements().leases_for_cloud(cloud);
        let leases = lending.as_ref().map(|lending| &lending.leases[..]).unwrap_or_default();
        history.look(count, leases);
        let is_too_often = history.is_too_often(
            leases.len(),
            self.clouds.current().sdk_profiles(cloud).max_normal_fetches_per_hour,
        );
        history.stage = match (is_too_often, history.stage) {
            (false, _) => Stage::Normal,
            (true, Stage::Normal) => {
                fetches.wants_user_agent.store(true, Ordering::Relaxed);
                Stage::AwaitingUserAgent
            }
            (true, Stage::AwaitingUserAgent) => fetches
                .take_user_agent()
                .map_or(Stage::AwaitingUserAgent, |agent| self.judge(pod, cloud, history, lending, &agent)),
            (true, Stage::Reported) => Stage::Reported,
        };
    }

    /// Identifies the SDK of a pod that fetches too often, and reports the pod unless the SDK is known to poll at this rate.
    fn judge(
        &self,
        pod: &PodEntry,
        cloud: CloudName,
        history: &History,
        lending: Option<PodLeases>,
        agent: &[u8],
    ) -> Stage {
        let clients = self.clouds.current().sdk_profiles(cloud);
        let client = clients.find_by_user_agent(agent);
        let leases = lending.as_ref().map_or(1, |lending| lending.leases.len().max(1));
        let leases = u32::try_from(leases).unwrap_or(u32::MAX);
        let of_each = history.turns_in_hour(leases).div_ceil(leases);
        if client.is_some_and(|client| client.is_within_poll_rate(of_each)) {
            return Stage::Normal;
        }
        let unnamed = if agent.is_empty() { clients.no_user_agent_description } else { UNKNOWN };
        self.tell(pod, cloud, history, lending, (&clients, client.ok_or(unnamed)));
        Stage::Reported
    }

    fn tell(
        &self,
        pod: &PodEntry,
        cloud: CloudName,
        history: &History,
        lending: Option<PodLeases>,
        (clients, client): (&SdkProfiles, Result<&SdkProfile, &'static str>),
    ) {
        let now = self.clock.now();
        let lives =
            lending.iter().flat_map(|lending| &lending.leases).map(|lease| lease.expires_at.since(now));
        let left = lives.min().unwrap_or_default();
        let (in_hour, from_lease) = (history.in_hour(), history.of_one_lease());
        let name = client.map_or_else(|unknown| unknown, |client| client.name);
        let client = client.ok();
        let fix = fix(clients, client, left);
        tracing::warn!(
            cloud = cloud.as_str(), pod = %pod.pod.name, namespace = %pod.pod.service_account.namespace,
            client = name, in_hour, from_lease, left_seconds = left.as_secs(),
            window_seconds = client.map(|client| client.refresh_window.as_secs()), fix,
            "a pod fetches the same credentials too often"
        );
        let message = format!(
            "This pod fetched its {} credentials {in_hour} times within an hour. {from_lease} of these fetches returned the same \
             credentials, which have {} min left. The client is {name}{}. {fix}",
            cloud.title(),
            left.as_secs() / 60,
            client
                .map(|client| format!(
                    ", which refreshes when less than {} min are left",
                    client.refresh_window.as_secs() / 60
                ))
                .unwrap_or_default(),
        );
        if let Some(lending) = lending {
            lending.event_recorder.record(EventReason::FetchedTooOften, &message);
        }
    }
}

const UNKNOWN: &str = "unknown (its User-Agent is not in the agent's list)";

/// Returns the advice for the report: the lease is too short for the SDK, or the program does not reuse its client.
fn fix(clients: &SdkProfiles, client: Option<&SdkProfile>, left: Duration) -> &'static str {
    match client {
        Some(client) if left < client.refresh_window => clients.lifetime_advice,
        _ => {
            "Create one client or credential provider and reuse it: each new client and each new process fetches again."
        }
    }
}

/// The name and the help text of the metric that counts the pods that fetch too often.
pub const METRIC_NAME_AND_HELP: (&str, &str) =
    ("seawall_pods_fetching_excessively", "Pods that fetch the same credentials too often");

#[cfg(test)]
mod tests {
    use seawall_clouds::testing::aws::start;
    use seawall_clouds::testing::{BOTH_CLOUDS_BROKERED_CONFIG, PodFixture};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const PER_HOUR: u32 = 13;

    fn of_an_hour(issued: Moment) -> LeaseState {
        LeaseState {
            issued_at: issued,
            renewal_due_at: issued + 35 * MINUTE,
            expires_at: issued + 60 * MINUTE,
            lifetime_floor: 6 * MINUTE,
            renewal_failure: None,
        }
    }

    /// Simulates a day of scans, and returns the number of scans that report the pod. `fetch` returns the fetches in a minute.
    /// Leases live for an hour and are renewed after 35 minutes.
    fn too_often_in_a_day(mut fetch: impl FnMut(u32) -> u32) -> u32 {
        let (mut history, mut count, mut minutes) = (History::default(), 0, 0);
        for minute in 0..24 * 60 {
            count += fetch(minute);
            let issued = Moment::from_nanos(0) + MINUTE * (minute / 35 * 35);
            history.look(count, &[of_an_hour(issued)]);
            minutes += u32::from(history.is_too_often(1, PER_HOUR));
        }
        minutes
    }

    #[test]
    fn a_start_with_a_burst_is_no_thrash_and_neither_is_any_sdk_at_its_usual_pace() {
        assert_eq!(too_often_in_a_day(|minute| if minute < 2 { 75 } else { 0 }), 0, "fifty threads");
        assert_eq!(too_often_in_a_day(|minute| u32::from(minute % 5 == 0)), 0, "C++");
        assert_eq!(too_often_in_a_day(|minute| u32::from(minute % 40 == 0)), 0, "nearly all");
        assert_eq!(too_often_in_a_day(|_| 0), 0);
    }

    /// Regression: the monitor ignored only a burst at a pod's first fetch. But a sidecar can send the first fetch.
    #[test]
    fn a_burst_of_many_threads_is_no_thrash_however_late_and_however_often_their_container_starts() {
        let bursts = |minute| match minute {
            0 | 40 | 200 => 1,
            5 | 300 | 306 | 312 => 45,
            6 | 313 => 29,
            _ => u32::from(minute % 35 == 11),
        };
        assert_eq!(too_often_in_a_day(bursts), 0);
    }

    /// Simulates 16 workers. Each keeps a one-hour lease until 15 minutes are left, and calls about once in `every` minutes.
    fn workers(every: u32) -> impl FnMut(u32) -> u32 {
        let (mut due, mut random) = ([0; 16], 1_u32);
        move |minute| {
            let mut fetches = 0;
            for due in &mut due {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if minute >= *due && (random >> 16) % every == 0 {
                    *due = minute / 35 * 35 + 45;
                    fetches += 1;
                }
            }
            fetches
        }
    }

    /// Regression: the monitor reported these workers at their second lease, and from then on without end.
    #[test]
    fn workers_that_each_take_each_lease_once_are_no_thrash_however_many_and_however_idle() {
        for every in [1, 2, 4] {
            let mut all = 0;
            let mut worker = workers(every);
            let told = too_often_in_a_day(|minute| {
                let fetches = worker(minute);
                all += fetches;
                fetches
            });
            assert_eq!(told, 0, "one call in {every} min");
            assert!(all > 20 * 24, "one client with this rate would be reported: {all}");
        }
    }

    #[test]
    fn a_fetch_for_each_call_is_found_within_minutes_and_forgotten_within_the_hour() {
        let found = too_often_in_a_day(|minute| if minute < 120 { 3 } else { 0 });
        assert!((105..180).contains(&found), "{found}");
        // KIAM's clients fetched like this: 40 times an hour.
        assert!(too_often_in_a_day(|minute| u32::from(minute % 3 != 0)) > 20 * 60);
    }

    #[test]
    fn who_holds_several_leases_fetches_each_of_them() {
        let mut history = History::default();
        let leases = [of_an_hour(Moment::from_nanos(0)); 4];
        for minute in 0..60 {
            history.look(minute / 2, &leases);
        }
        assert!(history.is_too_often(1, PER_HOUR) && !history.is_too_often(4, PER_HOUR));
    }

    #[test]
    fn whoever_was_told_is_not_told_again_until_an_hour_is_calm() {
        let mut history = History { stage: Stage::Reported, ..History::default() };
        let lease = |minute: u32| [of_an_hour(Moment::from_nanos(0) + MINUTE * minute)];
        // The pod fetches every four minutes, each time from a new lease.
        (0..120).for_each(|minute| history.look(minute / 4, &lease(minute / 4)));
        assert!(history.is_too_often(1, PER_HOUR) && history.of_one_lease() <= PER_LEASE);
        (0..60).for_each(|_| history.look(29, &lease(29)));
        assert!(!history.is_too_often(1, PER_HOUR));
    }

    #[test]
    fn a_count_that_begins_anew_is_not_taken_for_a_giant_one() {
        let mut history = History::default();
        [5, 6, 7, 1, 2].into_iter().for_each(|count| history.look(count, &[]));
        assert_eq!(history.in_hour(), 9);
    }

    fn head(agent: &str) -> String {
        format!("GET / HTTP/1.1\r\nHost: a\r\nuser-AGENT:  {agent}\r\n\r\n")
    }

    /// Regression: the agent no longer has the request's head when it sends a late response. The monitor took this for a missing
    /// User-Agent.
    #[tokio::test]
    async fn an_answer_that_took_time_names_who_asked_for_it_and_not_nobody() {
        let (world, _sts) = start(60 * MINUTE).await;
        let own = world.pod().fetch_counters.for_cloud(CloudName::Aws);
        own.wants_user_agent.store(true, Ordering::Relaxed);
        let answer = world.request_container_credentials("aws-sdk-java/1.11").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(
            (own.take_user_agent().as_deref(), own.count.load(Ordering::Relaxed)),
            (Some(&b"aws-sdk-java/1.11"[..]), 1)
        );
    }

    #[test]
    fn the_fix_is_by_the_clients_window() {
        let java = SdkProfile {
            user_agent_prefix: "aws-sdk-java/1.",
            name: "Java 1",
            refresh_window: 15 * MINUTE,
            poll_interval: None,
        };
        let fix = |left| fix(&SdkProfiles::default(), Some(&java), left);
        assert!(fix(8 * MINUTE).contains("Raise the lifetime") && fix(20 * MINUTE).contains("reuse it"));
    }

    #[tokio::test]
    async fn a_pod_that_fetches_for_each_call_is_found_told_of_once_and_let_go_when_it_is_gone() {
        let world = PodFixture::with_sections(BOTH_CLOUDS_BROKERED_CONFIG);
        let (found, aws) = (ReportedPodsGauge::default(), CloudName::Aws);
        let clouds = world.new_current_clouds();
        let mut seen = FetchMonitor::new(clouds, world.clock.clone(), found.clone());
        let pods = [world.pod().clone()];
        let stages: Vec<_> = (0..14)
            .map(|_| {
                (0..7).for_each(|_| {
                    pods[0].fetch_counters.record_fetch(aws);
                    pods[0].fetch_counters.record_user_agent(aws, head("a").as_bytes());
                });
                seen.inspect_pods(&pods);
                seen.known[&pods[0].pod.uid][aws as usize].stage
            })
            .collect();
        assert_eq!(stages[..11], [Stage::Normal; 11], "a burst of clients has ended by then");
        assert_eq!(stages[11..], [Stage::AwaitingUserAgent, Stage::Reported, Stage::Reported]);
        assert_eq!(CloudName::ALL.iter().map(|cloud| found.reported_pod_count(*cloud)).sum::<usize>(), 1);
        seen.inspect_pods(&[]);
        assert!(seen.known.is_empty() && found.reported_pod_count(aws) == 0);
    }
}
