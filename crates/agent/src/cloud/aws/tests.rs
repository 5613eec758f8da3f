//! The room from a request to STS and back, over a day of a clock moved by hand.

use std::sync::Arc;
use std::time::Duration;

use seawall_core::facts::{Beside, Text};
use seawall_core::pod::{SubjectFuture, SubjectTokens};
use seawall_core::{Clock, ManualClock};
use seawall_emulator::aws::{self, Options, Provider, Role, Running};
use seawall_emulator::faults::Faults;
use seawall_emulator::keys::Algorithm;
use seawall_emulator::kubernetes::{Issuer, Workload};
use serde_json::Value;

use super::annotations::ROLE_ARN;
use crate::cloud::tests::World;

const MINUTE: Duration = Duration::from_secs(60);
const ROLE: &str = "arn:aws:iam::123456789012:role/cart";

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

async fn start(longest: Duration) -> (World, Running) {
    start_as(ROLE, longest).await
}

/// A pod that may have this role, for so long at most.
pub(super) async fn start_as(role: &str, longest: Duration) -> (World, Running) {
    let (clock, hand): (Clock, ManualClock) = Clock::manual();
    let issuer = Issuer::generate("https://cluster.example", Algorithm::Es256).unwrap();
    let provider = Provider {
        issuer: issuer.url().into(),
        keys: issuer.key_set().unwrap(),
        audiences: ["sts.amazonaws.com".to_owned()].into(),
    };
    let arn = role;
    let role = Role { longest, ..Role::open(arn).trusting("system:serviceaccount:shop:cart") };
    let options = Options { providers: vec![provider], roles: vec![role], ..Options::default() };
    let running = aws::start(options, clock.clone()).await.unwrap();
    let section = format!(
        "aws: {{ region: eu-west-1, stsUrl: \"{}\", imds: {{ tokens: optional }} }}\n",
        running.url()
    );
    let tokens = Arc::new(Tokens { issuer, clock: clock.clone() });
    let world = World::with(&section, (clock, hand), tokens);
    world.pod().replace(world.entitlements(naming(arn)));
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

    /// The life left of what the document says, if one is answered.
    async fn life(&self) -> Option<Duration> {
        let listing = "/latest/meta-data/iam/security-credentials/";
        let (listed, _) = self.ask_with("GET", listing, "A: b").await;
        let is_listed = listed.ends_with("\r\n\r\ncart");
        let (answer, _) = self.ask_with("GET", &format!("{listing}cart"), "A: b").await;
        assert!(!is_listed || answer.starts_with("HTTP/1.1 200 "), "listed, and then: {answer}");
        let document: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1)?).ok()?;
        let end: jiff::Timestamp = document["Expiration"].as_str()?.parse().unwrap();
        Some(std::time::SystemTime::from(end).duration_since(self.clock.wall()).unwrap_or_default())
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
