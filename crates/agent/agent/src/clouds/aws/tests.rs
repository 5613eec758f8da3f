//! The room from a request to STS and back, over a day of a clock moved by hand.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use seawall_core::cloud::CloudName;
use seawall_core::events::Complainer;
use seawall_core::facts::{Annotations, Beside, Text};
use seawall_core::pod::{SubjectFuture, SubjectTokens};
use seawall_core::{Clock, ManualClock};
use seawall_emulator::aws::{self, Endpoint, Options, Provider, Role, Running};
use seawall_emulator::faults::Faults;
use seawall_emulator::keys::Algorithm;
use seawall_emulator::kubernetes::{Issuer, Workload};
use serde_json::Value;

use super::policy::annotations::ROLE_ARN;
use super::sdk_matrix_tests::{bearer, seconds};
use crate::clouds::entitlements::Decided;
use crate::clouds::pod::PodCaller;
use crate::clouds::tests::World;
use crate::observe::stale_credentials::Seen;

const MINUTE: Duration = Duration::from_secs(60);
const ROLE: &str = "arn:aws:iam::123456789012:role/cart";
const TILL: &str = "arn:aws:iam::123456789012:role/till";
const SUBJECT: &str = "system:serviceaccount:shop:cart";
const LISTING: &str = "/latest/meta-data/iam/security-credentials/";

/// Tokens of the world's pod, by the cluster that the emulated STS trusts.
#[derive(Debug)]
struct Tokens {
    issuer: Issuer,
    clock: Clock,
}

impl SubjectTokens for Tokens {
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a> {
        let workload = Workload::service_account("shop", "cart").in_pod("cart-0");
        let token = self.issuer.mint(&workload, &[audience], 60 * MINUTE, self.clock.wall()).unwrap();
        Box::pin(std::future::ready(Ok(token)))
    }
}

pub(crate) async fn start(longest: Duration) -> (World, Running) {
    start_with(ROLE, "", longest).await
}

/// A pod that may have this role, for so long at most.
pub(super) async fn start_as(role: &str, longest: Duration) -> (World, Running) {
    start_with(role, "", longest).await
}

/// With these lines in the section.
async fn start_on(lines: &str, longest: Duration) -> (World, Running) {
    start_with(ROLE, lines, longest).await
}

async fn start_with(role: &str, lines: &str, longest: Duration) -> (World, Running) {
    start_among(&[role.to_owned()], lines, longest).await
}

/// In an account that has these roles; the pod may have the first.
async fn start_among(roles: &[String], lines: &str, longest: Duration) -> (World, Running) {
    let (clock, hand): (Clock, ManualClock) = Clock::manual();
    let issuer = Issuer::generate("https://cluster.example", Algorithm::Es256).unwrap();
    let provider = Provider {
        issuer: issuer.url().into(),
        keys: issuer.key_set().unwrap(),
        audiences: ["sts.amazonaws.com".to_owned()].into(),
    };
    let role = |arn: &String| Role { longest, ..Role::open(arn).trusting(SUBJECT) };
    let roles_there = roles.iter().map(role).chain([Role::open(TILL).trusting(SUBJECT)]).collect();
    let options = Options { providers: vec![provider], roles: roles_there, ..Options::default() };
    let running = aws::start(options, clock.clone()).await.unwrap();
    let url = running.url();
    let section = format!(
        "aws: {{ region: eu-west-1, stsUrl: \"{url}\", imds: {{ tokens: optional, upstream: \"{url}\" }}{lines}, \
         podIdentity: {{ cluster: reef, url: \"{url}\" }} }}\n"
    );
    let tokens = Arc::new(Tokens { issuer, clock: clock.clone() });
    let world = World::with(&section, (clock, hand), tokens);
    world.pod().replace(world.entitlements(naming(&roles[0])));
    (world, running)
}

/// What a ServiceAccount says that names this role.
pub(super) fn naming(role: &str) -> Beside {
    Beside::read([(ROLE_ARN, Text::from(role))].into_iter().collect())
}

impl World {
    /// Lets everybody act whom a moment woke, until no call is in the air.
    pub(super) async fn settle(&self) {
        loop {
            for _ in 0..256 {
                tokio::task::yield_now().await;
            }
            let shown = self.pod().entitlements().describe(self.clock.now());
            let principals = shown["aws"]["principals"].as_array().cloned().unwrap_or_default();
            if principals.iter().all(|principal| principal["callInTheAir"] == false) {
                return;
            }
        }
    }

    /// What the listing answers: its status and its body.
    async fn listed(&self) -> (u16, String) {
        let (answer, _) = self.ask_with("GET", LISTING, "A: b").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    /// The life left of what the document says, if one is answered.
    async fn life(&self) -> Option<Duration> {
        let (listed, _) = self.ask_with("GET", LISTING, "A: b").await;
        let is_listed = listed.ends_with("\r\n\r\ncart");
        let (answer, _) = self.ask_with("GET", &format!("{LISTING}cart"), "A: b").await;
        assert!(!is_listed || answer.starts_with("HTTP/1.1 200 "), "listed, and then: {answer}");
        let document: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1)?).ok()?;
        let end: jiff::Timestamp = document["Expiration"].as_str()?.parse().unwrap();
        Some(std::time::SystemTime::from(end).duration_since(self.clock.wall()).unwrap_or_default())
    }

    /// The same at the endpoint of containers, of which clients have another name than at the listing.
    pub(crate) async fn at_containers(&self, agent: &str) -> String {
        let token = bearer(self.pod(), seconds(self.clock.wall()));
        let bytes = format!(
            "GET /v1/credentials HTTP/1.1\r\nHost: 169.254.170.23\r\nAuthorization: {token}\r\nUser-Agent: {agent}\r\n\r\n"
        );
        self.ask_as(&self.caller, bytes.as_bytes()).await.0
    }

    async fn first(&self) {
        while self.life().await.is_none() {
            self.settle().await;
        }
    }
}

#[tokio::test]
async fn a_days_documents_have_sixteen_minutes_left_though_sts_is_away_for_nine() {
    let (world, sts) = start(60 * MINUTE).await;
    world.first().await;
    let mut least = Duration::MAX;
    for minute in 0..24 * 60 {
        // Nine minutes of every 35, which is about as often as a lease is renewed: the two meet in every way.
        let is_away = minute % 35 >= 26;
        let faults = Faults { error_rate: f64::from(u8::from(is_away)), ..Faults::default() };
        sts.set_faults(&faults);
        world.hand.advance(MINUTE);
        world.settle().await;
        least = least.min(world.life().await.unwrap());
    }
    assert!(least >= 16 * MINUTE, "{least:?}");
}

#[tokio::test]
async fn a_long_outage_costs_a_pod_nothing_before_its_credentials_end_and_then_is_told_at_the_listing() {
    let (world, sts) = start(60 * MINUTE).await;
    world.first().await;
    sts.set_faults(&Faults { error_rate: 1.0, ..Faults::default() });
    for minute in 1..59 {
        world.hand.advance(MINUTE);
        world.settle().await;
        assert!(world.life().await.is_some(), "minute {minute}");
    }
    world.hand.advance(2 * MINUTE);
    world.settle().await;
    assert_eq!(world.life().await, None);
    sts.set_faults(&Faults::default());
    world.hand.advance(2 * MINUTE);
    world.first().await;
}

#[tokio::test]
async fn an_association_is_found_when_it_is_made_followed_when_it_changes_and_ends_with_its_lease() {
    let (world, eks) = start_on(", ways: [pod-identity]", 60 * MINUTE).await;
    world.pod().replace(world.entitlements(Beside::NotRead));
    let pause = || async {
        world.hand.advance(MINUTE + MINUTE / 9);
        world.settle().await;
    };
    let listed_in_the_end = || async {
        let mut listed = world.listed().await;
        while listed.0 == 503 {
            world.settle().await;
            listed = world.listed().await;
        }
        listed
    };
    for _ in 0..3 {
        let (status, body) = listed_in_the_end().await;
        assert!(status == 404 && body.contains("no_association"), "{status} {body}");
        pause().await;
    }
    eks.set_association(SUBJECT, Some(ROLE));
    assert_eq!(listed_in_the_end().await, (200, "cart".to_owned()));
    assert!(world.life().await.unwrap() > 5 * 60 * MINUTE);
    let calls = eks.counts(Endpoint::PodIdentity).calls;
    eks.set_association(SUBJECT, Some("arn:aws:iam::123456789012:role/till"));
    assert_eq!(world.listed().await.1, "cart", "what is held is the old role's until it is renewed");
    for _ in 0..4 * 60 {
        world.hand.advance(MINUTE);
        world.settle().await;
        // An SDK asks now and then; what nobody asks for is let go.
        world.listed().await;
    }
    assert_eq!(world.listed().await, (200, "till".to_owned()));
    let (old, _) = world.ask_with("GET", &format!("{LISTING}cart"), "A: b").await;
    assert!(old.starts_with("HTTP/1.1 403 "), "{old}");
    assert_eq!(eks.counts(Endpoint::PodIdentity).calls, calls + 1);
    eks.set_association(SUBJECT, None);
    let mut minutes = 0;
    while world.listed().await.0 == 200 {
        world.hand.advance(MINUTE);
        world.settle().await;
        minutes += 1;
        assert!(minutes <= 6 * 60, "longer than any session");
    }
    assert!(minutes > 4 * 60, "what is valid is lent to its end");
    let (status, body) = listed_in_the_end().await;
    assert!(status == 404 && body.contains("no_association"), "{status} {body}");
    let calls = eks.counts(Endpoint::PodIdentity).calls - calls;
    assert!(calls < 6 * 60, "{calls} calls: at most one a minute");
}

/// Minutes of the clock, each with a look for credentials that are not renewed; what the pod was told.
async fn watched(world: &World, seen: &mut Seen, seconds: u64) -> Vec<String> {
    let mut told = Vec::new();
    for _ in 0..seconds / 20 {
        world.hand.advance(Duration::from_secs(20));
        world.settle().await;
        world.listed().await;
        seen.look(&[world.pod().clone()], |_, message| {
            told.push(message.to_owned());
            true
        });
    }
    world.hand.advance(Duration::from_secs(seconds % 20));
    told
}

#[tokio::test]
async fn a_pod_is_told_of_an_outage_that_outlasts_the_margin_and_of_no_shorter_one() {
    let (world, sts) = start(60 * MINUTE).await;
    world.first().await;
    let mut seen = Seen::new(world.in_force(), world.clock.clone(), Arc::default());
    let down = Faults { error_rate: 1.0, ..Faults::default() };
    assert!(watched(&world, &mut seen, 33 * 60).await.is_empty());
    // Away until shortly before the floor, however early the renewal began.
    sts.set_faults(&down);
    let until_floor = world.life().await.unwrap() - 16 * MINUTE;
    assert!(watched(&world, &mut seen, until_floor.as_secs() - 15).await.is_empty());
    sts.set_faults(&Faults::default());
    assert!(watched(&world, &mut seen, 2 * 60).await.is_empty());
    let life = world.life().await.unwrap();
    assert!(life > 55 * MINUTE, "{life:?}");
    // A second of the life is not counted on.
    let ends = jiff::Timestamp::try_from(world.clock.wall() + life - Duration::from_secs(1)).unwrap();
    sts.set_faults(&down);
    let told = watched(&world, &mut seen, life.as_secs() - 15 * 60).await;
    let [message] = &told[..] else { panic!("once: {told:?}") };
    let first = ends - jiff::Span::new().minutes(15);
    for at in [ends.strftime("at %H:%M UTC."), first.strftime("from %H:%M UTC on")] {
        assert!(message.contains(&at.to_string()), "{message} lacks {at}");
    }
    assert!(message.contains("(AssumeRoleWithWebIdentity: upstream)"), "{message}");
    assert!(watched(&world, &mut seen, 15 * 60).await.is_empty(), "not again");
}

/// A full account: what STS throttles is paced to one call in fifteen seconds, so between renewal and floor there is no turn for most of
/// these. No call of theirs has failed, and they were told nothing.
#[tokio::test]
async fn all_pods_of_a_throttled_account_are_told_those_whose_renewal_had_no_turn_too() {
    let roles: Vec<_> = (0..90).map(|number| format!("{ROLE}-{number}")).collect();
    let (world, sts) = start_among(&roles, "", 60 * MINUTE).await;
    let pods: Vec<_> = roles.iter().map(|role| world.ahead(role, naming(role))).collect();
    let pass = async |seconds: u64| {
        for _ in 0..seconds {
            world.hand.advance(Duration::from_secs(1));
            for _ in 0..128 {
                tokio::task::yield_now().await;
            }
        }
    };
    let leases = || -> Vec<_> {
        let lending = |pod: &Arc<PodCaller>| pod.entitlements().lending(CloudName::Aws);
        pods.iter().filter_map(lending).flat_map(|lending| lending.leases).collect()
    };
    while leases().len() < pods.len() {
        pass(1).await;
    }
    world.hand.advance(30 * MINUTE);
    let throttled =
        Faults { error_rate: 1.0, error_status: Some(429), html_errors: true, ..Faults::default() };
    sts.set_faults(&throttled);
    let mut seen = Seen::new(world.in_force(), world.clock.clone(), Arc::default());
    let (mut told, mut without) = (Vec::new(), 0);
    for _ in 0..20 * 3 {
        pass(20).await;
        seen.look(&pods, |_, message| {
            told.push(message.to_owned());
            true
        });
        without = without.max(leases().iter().filter(|lease| lease.failing.is_none()).count());
    }
    assert!(without > 0, "each had a turn");
    assert_eq!(told.len(), pods.len(), "each once");
    assert!(told.iter().any(|message| message.contains("no turn in the agent's queue")), "{}", told[0]);
}

#[tokio::test]
async fn a_role_that_allows_too_little_is_counted_told_to_the_operator_and_keeps_a_node_from_being_called_good()
 {
    let (world, _sts) = start(15 * MINUTE).await;
    world.first().await;
    assert!(world.life().await.unwrap() <= 15 * MINUTE);
    let mut registry = Registry::default();
    world.in_force().register(&mut registry, &world.clock);
    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &registry).unwrap();
    for line in [r#"seawall_cut_short_total{cloud="aws"} 1"#, r#"seawall_below_floor_total{cloud="aws"} 1"#] {
        assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
    }
    let breaches = metrics.lines().find(|line| line.starts_with("seawall_floor_breaches_total")).unwrap();
    assert!(!breaches.ends_with(" 0"), "{breaches}");
    assert!(world.clouds.floors().iter().all(|state| !state.is_kept));
    let remarks = world.clouds.remarks();
    assert!(
        remarks.iter().any(|remark| remark.contains("too short for the floor of 16 minutes")),
        "{remarks:?}"
    );
}

fn hanging() -> Faults {
    Faults { hang_rate: 1.0, ..Faults::default() }
}

/// It was measured nowhere, at one endpoint, of one client.
#[tokio::test]
async fn while_sts_hangs_whoever_waits_is_answered_before_its_client_gives_up_and_told_no_time_to_wait() {
    let (world, sts) = start(60 * MINUTE).await;
    sts.set_faults(&hanging());
    let clock = Clock::system();
    let go = "aws-sdk-go-v2/1.47.7 ua/2.1 ft/ec2-imds";
    for (at, agent, most) in [
        (LISTING, go, 500),
        (LISTING, "Boto3/1.44.5 Botocore/1.44.5", 1000),
        ("", "Go-http-client/1.1", 1000),
        ("", go, 1000),
        ("", "python-urllib3/2.8.0", 1000),
    ] {
        let mut waited = Duration::MAX;
        // On a machine that is busy an answer may be late, but not each time.
        for _ in 0..5 {
            let began = clock.now();
            let answer = if at.is_empty() {
                world.at_containers(agent).await
            } else {
                world.ask_with("GET", at, &format!("User-Agent: {agent}")).await.0
            };
            waited = waited.min(clock.now().since(began));
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("upstream_slow"), "{answer}");
            assert!(!answer.to_ascii_lowercase().contains("retry-after"), "{answer}");
            if waited < Duration::from_millis(most) {
                break;
            }
        }
        let in_time = Duration::from_millis(most / 2)..Duration::from_millis(most);
        assert!(in_time.contains(&waited), "{agent} at {at:?}: {waited:?}");
    }
}

/// Whoever already waited was given the old role's credentials when they came.
#[tokio::test]
async fn what_is_taken_back_or_changed_while_a_request_waits_for_it_is_not_what_it_gets() {
    let (world, sts) = start(60 * MINUTE).await;
    let other = world.another("u2", naming(TILL), Complainer::default());
    while !world.get_as(&other, LISTING).await.ends_with("till") {
        world.settle().await;
    }
    sts.set_faults(&hanging());
    for is_at_containers in [false, true] {
        for (now, status, holds) in
            [(Beside::read(Annotations::default()), "404", "no_role"), (naming(TILL), "200", "till")]
        {
            let mut answer = "upstream_slow".to_owned();
            // On a machine that is busy its patience may be over first, but not each time.
            for _ in 0..5 {
                if answer.contains("upstream_slow") {
                    answer = changed_meanwhile(&world, is_at_containers, now.clone()).await;
                }
            }
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert!(answer.contains(holds) && !answer.contains("role/cart"), "{answer}");
        }
    }
}

/// What a pod is answered that waits for its role's credentials while it is given something else.
async fn changed_meanwhile(world: &World, is_at_containers: bool, now: Beside) -> String {
    world.pod().replace(world.entitlements(naming(ROLE)));
    let ask = async {
        if is_at_containers {
            return world.at_containers("a").await;
        }
        world.ask_with("GET", LISTING, "A: b").await.0
    };
    let change = async {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        world.pod().replace(world.entitlements(now));
    };
    tokio::join!(ask, change).0
}

/// How long the credentials live that the pod holds.
fn held(world: &World) -> Duration {
    let entitlements = world.pod().entitlements();
    let Decided::Is(own) = entitlements.aws() else { panic!("not decided") };
    let now = world.clock.now();
    own.own().unwrap().holder.held((), now).unwrap().remaining(now)
}

#[tokio::test]
async fn a_role_is_listed_while_its_credentials_live_long_enough_to_be_asked_for() {
    let (world, sts) = start(60 * MINUTE).await;
    world.first().await;
    sts.set_faults(&Faults { error_rate: 1.0, ..Faults::default() });
    for (left, status) in [(11, 200), (9, 503), (1, 503)] {
        world.hand.advance(held(&world) - Duration::from_secs(left));
        world.settle().await;
        let mut listed = world.listed().await;
        while listed.1.contains("upstream_slow") {
            listed = world.listed().await;
        }
        assert_eq!(listed.0, status, "{left} s left: {listed:?}");
        assert!(status == 200 || listed.1.contains("upstream_down"), "{listed:?}");
        let (document, _) = world.ask_with("GET", &format!("{LISTING}cart"), "A: b").await;
        assert!(document.starts_with("HTTP/1.1 200 "), "once listed it is there: {document}");
    }
}
