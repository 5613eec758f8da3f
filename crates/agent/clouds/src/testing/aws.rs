//! A pod with an emulated AWS and a manual clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use seawall_core::annotations::{LengthCheckedAnnotation, RelatedAnnotations};
use seawall_core::pod::{SubjectFuture, SubjectTokens};
use seawall_core::{Clock, ManualClock};
use seawall_emulator::aws::{self, AwsEmulator, AwsEmulatorOptions, IamRole, OidcProvider};
use seawall_emulator::keys::Algorithm;
use seawall_emulator::service_account_tokens::{Issuer, Workload};
use serde_json::{Value, json};

use super::PodFixture;
use crate::aws::ROLE_ARN_ANNOTATION;
use crate::pod::PodEntry;

/// A duration of one minute.
pub const MINUTE: Duration = Duration::from_secs(60);
/// The role that the pod may have.
pub const POD_ROLE_ARN: &str = "arn:aws:iam::123456789012:role/cart";
/// Another role in the same account.
pub const OTHER_ROLE_ARN: &str = "arn:aws:iam::123456789012:role/till";
/// The subject that the roles trust.
pub const TRUSTED_SUBJECT: &str = "system:serviceaccount:shop:cart";
/// The path of the role listing at the metadata service.
pub const ROLE_LISTING_PATH: &str = "/latest/meta-data/iam/security-credentials/";

/// A source of tokens for the fixture's pod. The emulated STS trusts their issuer.
#[derive(Debug)]
struct Tokens {
    issuer: Issuer,
    clock: Clock,
}

impl SubjectTokens for Tokens {
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a> {
        let workload = Workload::for_service_account("shop", "cart").in_pod("cart-0");
        let token = self.issuer.mint(&workload, &[audience], 60 * MINUTE, self.clock.wall_time()).unwrap();
        Box::pin(std::future::ready(Ok(token)))
    }
}

/// Starts AWS and a pod that may have [`POD_ROLE_ARN`] in sessions of at most `longest`.
pub async fn start(longest: Duration) -> (PodFixture, AwsEmulator) {
    start_with(POD_ROLE_ARN, "", longest).await
}

/// Starts AWS and a pod that may have this role in sessions of at most `longest`.
pub async fn start_with_role(role: &str, longest: Duration) -> (PodFixture, AwsEmulator) {
    start_with(role, "", longest).await
}

/// Starts AWS and a pod that may have [`POD_ROLE_ARN`], with this additional text in the `aws` section.
pub async fn start_with_config_lines(lines: &str, longest: Duration) -> (PodFixture, AwsEmulator) {
    start_with(POD_ROLE_ARN, lines, longest).await
}

async fn start_with(role: &str, lines: &str, longest: Duration) -> (PodFixture, AwsEmulator) {
    start_with_roles(&[role.to_owned()], lines, longest).await
}

/// Starts AWS with these roles and a pod that may have the first of them.
pub async fn start_with_roles(roles: &[String], lines: &str, longest: Duration) -> (PodFixture, AwsEmulator) {
    let (clock, hand): (Clock, ManualClock) = Clock::manual();
    let issuer = Issuer::generate("https://cluster.example", Algorithm::Es256).unwrap();
    let provider = OidcProvider {
        issuer: issuer.url().into(),
        keys: issuer.key_set().unwrap(),
        audiences: ["sts.amazonaws.com".to_owned()].into(),
    };
    let role = |arn: &String| IamRole {
        max_session_duration: longest,
        ..IamRole::trusting_everyone(arn).with_trusted_caller(TRUSTED_SUBJECT)
    };
    let roles_there = roles
        .iter()
        .map(role)
        .chain([IamRole::trusting_everyone(OTHER_ROLE_ARN).with_trusted_caller(TRUSTED_SUBJECT)])
        .collect();
    let options =
        AwsEmulatorOptions { providers: vec![provider], roles: roles_there, ..AwsEmulatorOptions::default() };
    let running = aws::start(options, clock.clone()).await.unwrap();
    let url = running.url();
    let section = format!(
        "aws: {{ region: eu-west-1, stsUrl: \"{url}\", imds: {{ httpTokens: optional, upstreamUrl: \"{url}\" }}{lines}, \
         podIdentity: {{ clusterName: reef, eksAuthUrl: \"{url}\" }} }}\n"
    );
    let tokens = Arc::new(Tokens { issuer, clock: clock.clone() });
    let world = PodFixture::with_clock_and_tokens(&section, (clock, hand), tokens);
    world.pod().replace_entitlements(
        world.entitlements_with_service_account_annotations(annotations_naming_role(&roles[0])),
    );
    (world, running)
}

/// Returns annotations of a ServiceAccount that name this role.
pub fn annotations_naming_role(role: &str) -> RelatedAnnotations {
    RelatedAnnotations::of_object(
        [(ROLE_ARN_ANNOTATION, LengthCheckedAnnotation::from(role))].into_iter().collect(),
    )
}

impl PodFixture {
    /// Runs all tasks that can run, until none of the pod's upstream calls is in flight.
    pub async fn run_until_idle(&self) {
        loop {
            for _ in 0..256 {
                tokio::task::yield_now().await;
            }
            let shown = self.pod().entitlements().to_debug_json(self.clock.now());
            let principals = shown["aws"]["principals"].as_array().cloned().unwrap_or_default();
            if principals.iter().all(|principal| principal["is_fetching"] == false) {
                return;
            }
        }
    }

    /// Requests the role listing. Returns the status and the body.
    pub async fn request_role_listing(&self) -> (u16, String) {
        let (answer, _) = self.send_with_header("GET", ROLE_LISTING_PATH, "A: b").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    /// Returns the remaining lifetime that the role's document states, or `None` if there is no document.
    pub async fn remaining_credentials_lifetime(&self) -> Option<Duration> {
        let (listed, _) = self.send_with_header("GET", ROLE_LISTING_PATH, "A: b").await;
        let is_listed = listed.ends_with("\r\n\r\ncart");
        let (answer, _) = self.send_with_header("GET", &format!("{ROLE_LISTING_PATH}cart"), "A: b").await;
        assert!(!is_listed || answer.starts_with("HTTP/1.1 200 "), "listed, and then: {answer}");
        let document: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1)?).ok()?;
        let end: jiff::Timestamp = document["Expiration"].as_str()?.parse().unwrap();
        Some(SystemTime::from(end).duration_since(self.clock.wall_time()).unwrap_or_default())
    }

    /// Requests credentials from the containers' endpoint with this User-Agent. Returns the answer.
    pub async fn request_container_credentials(&self, agent: &str) -> String {
        let token = new_pod_token(self.pod(), unix_seconds(self.clock.wall_time()));
        let bytes = format!(
            "GET /v1/credentials HTTP/1.1\r\nHost: 169.254.170.23\r\nAuthorization: {token}\r\nUser-Agent: {agent}\r\n\r\n"
        );
        self.send_as_client(&self.caller, bytes.as_bytes()).await.0
    }

    /// Waits until the pod has its first credentials.
    pub async fn wait_for_first_credentials(&self) {
        while self.remaining_credentials_lifetime().await.is_none() {
            self.run_until_idle().await;
        }
    }
}

/// Returns a new pod token for the containers' endpoint.
pub fn new_pod_token(pod: &PodEntry, now: i64) -> String {
    let claims = json!({
        "aud": ["pods.eks.amazonaws.com"], "exp": now + 3600,
        "kubernetes.io": {
            "namespace": "shop", "pod": { "name": &*pod.pod.name, "uid": "u" },
            "serviceaccount": { "name": "cart", "uid": "u" },
        },
    });
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// Returns a time in the format of a token: seconds since 1970.
pub fn unix_seconds(wall: SystemTime) -> i64 {
    i64::try_from(wall.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()).unwrap()
}
