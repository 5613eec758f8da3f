//! Finds pods that fetch the same credentials over and over: an SDK that refreshes what has less life left than it is given, or a
//! program that makes a new client for each call. Each of its calls then costs a fetch, which nobody sees but as latency.
//!
//! A traffic thread adds one to the pod's count and knows nothing more ([`Fetches`]). Once a minute the control thread looks at all
//! counts ([`Watch`]): a pod that fetched more than [`PER_LEASE`] times from one lease *and* more than [`PER_HOUR`] times in an hour is
//! told of once, in the log, on the pod and as a metric, until it has calmed down; unless it is found to be a client that asks by a
//! clock and no oftener than that. The minutes of its start do not count, because fifty threads of one program begin with a fetch each. What the SDKs are called and when they refresh is each cloud's to say
//! ([`Client`]). Memory is bounded by the pods that there are; nothing of what a pod sends is repeated.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use seawall_cluster::Complaint;
use seawall_core::{Clock, Moment, PodUid};

use crate::callers::{Caller, Callers};
use crate::cloud::Clouds;
use crate::cloud::names::CloudName;
use crate::entitlements::{LeaseState, Lending};
use crate::roster::PodCaller;
use crate::route::Route;

/// Fetches from one lease that are nobody's trouble: an SDK takes a new lease within minutes of its renewal, and asks some more while
/// it has not come.
const PER_LEASE: u32 = 3;

/// Fetches of one lease in an hour that are nobody's trouble: the SDK for C++ asks every five minutes, whatever it has. Those of one
/// hour are thirteen, its ends included.
const PER_HOUR: u32 = 13;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(60);

/// Looks in an hour.
const HOUR: usize = 60;

const HOUR_LONG: Duration = Duration::from_secs(3600);

/// Looks after a pod's first fetch that count as its start: the first ends within a minute, so there are two.
const START: u32 = 2;

/// Longest User-Agent that is looked at; what tells an SDK stands at its beginning.
const AGENT: usize = 128;

/// A client of a cloud's, by what it calls itself.
#[derive(Debug)]
pub(crate) struct Client {
    /// What its User-Agent begins with, or has after a space.
    pub(crate) agent: &'static str,
    /// As its users call it.
    pub(crate) name: &'static str,
    /// It refreshes what has less life left than this.
    pub(crate) window: Duration,
    /// It asks so often, whatever it has.
    pub(crate) every: Option<Duration>,
}

impl Client {
    /// Whether so many fetches in an hour are what this client makes by a clock of its own, that hour's ends included.
    fn is_usual(&self, in_hour: u32) -> bool {
        self.every.is_some_and(|every| every * in_hour.saturating_sub(1) <= HOUR_LONG)
    }
}

/// Those that fetch one cloud's credentials.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    /// Of two that fit, the first is meant.
    pub(crate) known: &'static [Client],
    /// What makes its credentials live longer: a sentence for the pod's owner.
    pub(crate) longer: &'static str,
    /// Who is troubled first by credentials that are not renewed.
    pub(crate) first: Option<First>,
}

/// Clients that fetch anew on every call what has less life left than this, and fail if that fetch does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    pub(crate) left: Duration,
    /// As their users call them.
    pub(crate) who: &'static str,
}

impl Default for Clients {
    fn default() -> Self {
        Self { known: &[], longer: "Let its credentials live longer, or use a newer release.", first: None }
    }
}

/// Counts a credential that a caller was given who asked for it by this head.
pub(crate) fn fetched(caller: &Caller, route: &Route, head: &[u8]) {
    if let (Caller::Pod(pod), Some(cloud)) = (caller, route.whose()) {
        pod.fetches.count(cloud, head);
    }
}

/// How often a pod fetched credentials of each cloud.
#[derive(Debug, Default)]
pub(crate) struct Fetches([OfCloud; CloudName::ALL.len()]);

#[derive(Debug, Default)]
struct OfCloud {
    count: AtomicU32,
    /// Whether it is to be noted who asks.
    is_asked: AtomicBool,
    agent: Mutex<Option<Box<[u8]>>>,
}

impl Fetches {
    /// One more, asked for by this head. Threads that count at once may lose one, which does no harm; an addition that others cannot
    /// interrupt would cost each request more than all else here.
    pub(crate) fn count(&self, cloud: CloudName, head: &[u8]) {
        let own = &self.0[cloud as usize];
        own.count.store(own.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if own.is_asked.load(Ordering::Relaxed) {
            own.note(head);
        }
    }

    fn of(&self, cloud: CloudName) -> &OfCloud {
        &self.0[cloud as usize]
    }
}

impl OfCloud {
    fn note(&self, head: &[u8]) {
        let agent = user_agent(head).unwrap_or_default();
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(agent[..agent.len().min(AGENT)].into());
        self.is_asked.store(false, Ordering::Relaxed);
    }

    fn take_agent(&self) -> Option<Box<[u8]>> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The value of that header in a head that was found to be one.
fn user_agent(head: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"user-agent:";
    let lines = head.split(|byte| *byte == b'\n');
    let value = |line: &'_ [u8]| line.get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME));
    lines.into_iter().find(|line| value(line)).map(|line| line[NAME.len()..].trim_ascii())
}

/// What is known of one pod's fetches of one cloud.
#[derive(Debug)]
struct History {
    /// The count at the last look.
    last: u32,
    /// Looks since the first fetch.
    looks: u32,
    /// Fetches between two looks, of the last hour.
    minutes: [u16; HOUR],
    /// When its newest lease was issued, and fetches since then, and from the one before.
    issued: Option<Moment>,
    from_lease: u32,
    from_last: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Calm,
    /// It fetches too often; who does is being found out.
    Asked,
    Told,
}

impl Default for History {
    fn default() -> Self {
        let (minutes, stage) = ([0; HOUR], Stage::Calm);
        Self { last: 0, looks: 0, minutes, issued: None, from_lease: 0, from_last: 0, stage }
    }
}

impl History {
    /// One more look: so many fetches were counted by now, and these leases are held.
    fn look(&mut self, count: u32, leases: &[LeaseState]) {
        // Less than before: another count, begun anew.
        let more = count.checked_sub(self.last).unwrap_or(count);
        self.last = count;
        if self.looks == 0 && more == 0 {
            return;
        }
        let newest = leases.iter().map(|lease| lease.issued).max();
        if newest != self.issued {
            (self.issued, self.from_last, self.from_lease) = (newest, self.from_lease, 0);
        }
        let counted = if self.looks < START { 0 } else { more };
        self.from_lease = self.from_lease.saturating_add(counted);
        self.minutes[self.looks as usize % HOUR] = u16::try_from(counted).unwrap_or(u16::MAX);
        // Wraps to where it stands in the hour, and never to the start.
        self.looks = if self.looks == u32::MAX { HOUR as u32 * 2 } else { self.looks + 1 };
    }

    fn in_hour(&self) -> u32 {
        self.minutes.iter().map(|fetches| u32::from(*fetches)).sum()
    }

    fn of_one_lease(&self) -> u32 {
        self.from_lease.max(self.from_last)
    }

    /// Whether that is too often. A pod that holds several leases fetches each.
    fn is_too_often(&self, leases: usize) -> bool {
        let leases = u32::try_from(leases.max(1)).unwrap_or(u32::MAX);
        // Who was told stays so until an hour is calm: from one lease it fetches more, from the next less.
        let is_known = self.stage == Stage::Told;
        (is_known || self.of_one_lease() > PER_LEASE.saturating_mul(leases))
            && self.in_hour() > PER_HOUR.saturating_mul(leases)
    }
}

/// Looks at all pods' counts, on the control thread.
#[derive(Debug)]
pub(crate) struct Watch {
    callers: Arc<Callers>,
    clock: Clock,
    seen: Seen,
}

/// What was seen at each look.
#[derive(Debug)]
pub(crate) struct Seen {
    clouds: Arc<Clouds>,
    clock: Clock,
    found: Arc<Found>,
    known: HashMap<PodUid, [History; CloudName::ALL.len()]>,
}

/// How many pods fetch too often now, of each cloud.
#[derive(Debug, Default)]
pub(crate) struct Found([AtomicUsize; CloudName::ALL.len()]);

impl Watch {
    pub(crate) fn new(callers: Arc<Callers>, clouds: Arc<Clouds>, clock: Clock, found: Arc<Found>) -> Self {
        Self { callers, seen: Seen::new(clouds, clock.clone(), found), clock }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        loop {
            self.clock.sleep(LOOK).await;
            let pods = self.callers.pods();
            self.seen.look(&pods);
        }
    }
}

impl Seen {
    /// Nobody has been looked at yet.
    pub(crate) fn new(clouds: Arc<Clouds>, clock: Clock, found: Arc<Found>) -> Self {
        Self { clouds, clock, found, known: HashMap::new() }
    }

    /// Looks at these pods, and forgets all others.
    pub(crate) fn look(&mut self, pods: &[Arc<PodCaller>]) {
        let mut before = std::mem::take(&mut self.known);
        let mut found = [0; CloudName::ALL.len()];
        for pod in pods {
            let mut histories = before.remove(&pod.pod.uid).unwrap_or_default();
            for ((cloud, history), found) in CloudName::ALL.iter().zip(&mut histories).zip(&mut found) {
                self.look_at(pod, *cloud, history);
                *found += usize::from(history.stage == Stage::Told);
            }
            self.known.insert(pod.pod.uid.clone(), histories);
        }
        self.found.0.iter().zip(found).for_each(|(gauge, found)| gauge.store(found, Ordering::Relaxed));
    }

    fn look_at(&self, pod: &PodCaller, cloud: CloudName, history: &mut History) {
        let fetches = pod.fetches.of(cloud);
        let count = fetches.count.load(Ordering::Relaxed);
        if count == 0 && history.looks == 0 {
            return;
        }
        let lending = pod.entitlements().lending(cloud);
        let leases = lending.as_ref().map(|lending| &lending.leases[..]).unwrap_or_default();
        history.look(count, leases);
        let is_too_often = history.is_too_often(leases.len());
        history.stage = match (is_too_often, history.stage) {
            (false, _) => Stage::Calm,
            (true, Stage::Calm) => {
                fetches.is_asked.store(true, Ordering::Relaxed);
                Stage::Asked
            }
            (true, Stage::Asked) => fetches
                .take_agent()
                .map_or(Stage::Asked, |agent| self.judge(pod, cloud, history, lending, &agent)),
            (true, Stage::Told) => Stage::Told,
        };
    }

    /// Who it is that fetches too often is found out: told of, unless it is how that client is.
    fn judge(
        &self,
        pod: &PodCaller,
        cloud: CloudName,
        history: &History,
        lending: Option<Lending>,
        agent: &[u8],
    ) -> Stage {
        let clients = self.clouds.clients(cloud);
        let client = known(clients.known, agent);
        let leases = lending.as_ref().map_or(1, |lending| lending.leases.len().max(1));
        let of_each = history.in_hour().div_ceil(u32::try_from(leases).unwrap_or(u32::MAX));
        if client.is_some_and(|client| client.is_usual(of_each)) {
            return Stage::Calm;
        }
        self.tell(pod, cloud, history, lending, (&clients, client));
        Stage::Told
    }

    fn tell(
        &self,
        pod: &PodCaller,
        cloud: CloudName,
        history: &History,
        lending: Option<Lending>,
        (clients, client): (&Clients, Option<&Client>),
    ) {
        let now = self.clock.now();
        let lives = lending.iter().flat_map(|lending| &lending.leases).map(|lease| lease.ends.since(now));
        let left = lives.min().unwrap_or_default();
        let (in_hour, from_lease) = (history.in_hour(), history.of_one_lease());
        let (name, fix) = (client.map_or(UNKNOWN, |client| client.name), fix(clients, client, left));
        tracing::warn!(
            cloud = cloud.as_str(), pod = %pod.pod.name, namespace = %pod.pod.service_account.namespace,
            client = name, in_hour, from_lease, left_seconds = left.as_secs(),
            window_seconds = client.map(|client| client.window.as_secs()), fix,
            "a pod fetches its credentials over and over"
        );
        let message = format!(
            "This pod fetched its {} credentials {in_hour} times within an hour, {from_lease} of them from one lease, which has \
             {} min left. The client is {name}{}. {fix}",
            cloud.as_str(),
            left.as_secs() / 60,
            client
                .map(|client| format!(", which refreshes below {} min", client.window.as_secs() / 60))
                .unwrap_or_default(),
        );
        if let Some(lending) = lending {
            lending.complainer.says(Complaint::FetchedTooOften, &message);
        }
    }
}

const UNKNOWN: &str = "of a family that is not known by its User-Agent";

/// What to do about it: the one cause is that what is given lives too short for the client, the other that nothing keeps it.
fn fix(clients: &Clients, client: Option<&Client>, left: Duration) -> &'static str {
    match client {
        Some(client) if left < client.window => clients.longer,
        _ => {
            "Make one client or credential provider and keep it: each new one, and each new process, fetches anew."
        }
    }
}

fn known<'c>(clients: &'c [Client], agent: &[u8]) -> Option<&'c Client> {
    let names = |client: &&Client| {
        let wanted = client.agent.as_bytes();
        agent
            .split(|byte| *byte == b' ')
            .any(|word| word.get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted)))
    };
    clients.iter().find(names)
}

/// Writes what was found at each scrape.
#[derive(Debug)]
pub(crate) struct ThrashCollector(pub(crate) Arc<Found>);

impl Collector for ThrashCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Pods that fetch the same credentials over and over";
        let mut family =
            encoder.encode_descriptor("seawall_pods_thrashing", help, None, MetricType::Gauge)?;
        for (cloud, found) in CloudName::ALL.iter().zip(&self.0.0) {
            let labels = [("cloud", cloud.as_str())];
            let found = i64::try_from(found.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
            ConstGauge::new(found).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::tests::{BOTH_BROKERED, World};

    const MINUTE: Duration = Duration::from_secs(60);

    fn of_an_hour(issued: Moment) -> LeaseState {
        LeaseState { issued, ends: issued + 60 * MINUTE, floor: 6 * MINUTE, failing: None }
    }

    /// A day of looks. `fetch` says how many fetches the pod makes in a minute; leases of an hour are renewed after 35 minutes.
    fn too_often_in_a_day(fetch: impl Fn(u32) -> u32) -> u32 {
        let (mut history, mut count, mut minutes) = (History::default(), 0, 0);
        for minute in 0..24 * 60 {
            count += fetch(minute);
            let issued = Moment::from_nanos(0) + MINUTE * (minute / 35 * 35);
            history.look(count, &[of_an_hour(issued)]);
            minutes += u32::from(history.is_too_often(1));
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

    #[test]
    fn a_fetch_for_each_call_is_found_within_minutes_and_forgotten_within_the_hour() {
        let found = too_often_in_a_day(|minute| if minute < 120 { 3 } else { 0 });
        assert!((110..180).contains(&found), "{found}");
        // As KIAM's clients did: forty an hour.
        assert!(too_often_in_a_day(|minute| u32::from(minute % 3 != 0)) > 20 * 60);
    }

    #[test]
    fn who_holds_several_leases_fetches_each_of_them() {
        let mut history = History::default();
        let leases = [of_an_hour(Moment::from_nanos(0)); 4];
        for minute in 0..60 {
            history.look(minute / 2, &leases);
        }
        assert!(history.is_too_often(1) && !history.is_too_often(4));
    }

    #[test]
    fn who_asks_by_a_clock_is_usual_at_its_pace_and_no_further() {
        let client = |every| Client { agent: "a", name: "a", window: 5 * MINUTE, every };
        let polls = client(Some(2 * MINUTE));
        assert!(polls.is_usual(30) && polls.is_usual(31) && !polls.is_usual(32));
        assert!(!client(None).is_usual(1));
    }

    #[test]
    fn whoever_was_told_is_not_told_again_until_an_hour_is_calm() {
        let mut history = History { stage: Stage::Told, ..History::default() };
        let lease = |minute: u32| [of_an_hour(Moment::from_nanos(0) + MINUTE * minute)];
        // One fetch every four minutes, of a lease each.
        (0..120).for_each(|minute| history.look(minute / 4, &lease(minute / 4)));
        assert!(history.is_too_often(1) && history.of_one_lease() <= PER_LEASE);
        (0..60).for_each(|_| history.look(29, &lease(29)));
        assert!(!history.is_too_often(1));
    }

    #[test]
    fn a_count_that_begins_anew_is_not_taken_for_a_giant_one() {
        let mut history = History::default();
        [5, 6, 7, 1, 2].into_iter().for_each(|count| history.look(count, &[]));
        assert_eq!(history.in_hour(), 3);
    }

    #[test]
    fn who_asks_is_read_once_it_is_wanted_and_bounded() {
        let fetches = Fetches::default();
        let own = fetches.of(CloudName::ALL[0]);
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nuser-AGENT:  {}\r\n\r\n", "x".repeat(500));
        fetches.count(CloudName::ALL[0], head.as_bytes());
        assert!(own.take_agent().is_none(), "nothing is kept of the many");
        own.is_asked.store(true, Ordering::Relaxed);
        fetches.count(CloudName::ALL[0], head.as_bytes());
        assert_eq!(own.take_agent().map(|agent| agent.len()), Some(AGENT));
        assert!(!own.is_asked.load(Ordering::Relaxed), "once");
        assert_eq!(own.count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_client_is_known_by_a_word_of_its_user_agent_and_the_fix_by_its_window() {
        let clients = [Client { agent: "aws-sdk-java/1.", name: "Java 1", window: 15 * MINUTE, every: None }];
        let java = known(&clients, b"x aws-sdk-java/1.11.500 Linux");
        assert_eq!(java.map(|client| client.name), Some("Java 1"));
        for other in [&b"aws-sdk-java/2.17"[..], b"", b"notaws-sdk-java/1.1"] {
            assert!(known(&clients, other).is_none());
        }
        let fix = |left| fix(&Clients::default(), java, left);
        assert!(fix(8 * MINUTE).contains("longer") && fix(20 * MINUTE).contains("keep it"));
    }

    #[tokio::test]
    async fn a_pod_that_fetches_for_each_call_is_found_told_of_once_and_let_go_when_it_is_gone() {
        let world = World::of(BOTH_BROKERED);
        let (found, tide) = (Arc::<Found>::default(), CloudName::Tide);
        let clouds = world.clouds.clone();
        let mut seen = Seen::new(clouds, world.clock.clone(), found.clone());
        let pods = [world.pod().clone()];
        let stages: Vec<_> = (0..8)
            .map(|_| {
                (0..7).for_each(|_| pods[0].fetches.count(tide, b"GET / HTTP/1.1\r\nUser-Agent: a\r\n\r\n"));
                seen.look(&pods);
                seen.known[&pods[0].pod.uid][tide as usize].stage
            })
            .collect();
        let [Stage::Calm, Stage::Calm, Stage::Calm, Stage::Asked | Stage::Calm, ..] = stages[..] else {
            panic!("its start counts for nothing: {stages:?}")
        };
        assert_eq!(stages[6..], [Stage::Told, Stage::Told]);
        assert_eq!(found.0.each_ref().map(|found| found.load(Ordering::Relaxed)).iter().sum::<usize>(), 1);
        seen.look(&[]);
        assert!(seen.known.is_empty() && found.0[tide as usize].load(Ordering::Relaxed) == 0);
    }

    /// There is one in each pod's record.
    #[test]
    fn a_pods_counts_are_small() {
        assert!(size_of::<OfCloud>() <= 40, "{}", size_of::<OfCloud>());
    }
}
