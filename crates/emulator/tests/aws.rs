//! AWS's emulator on the wire: what it answers, what it refuses, and that it believes no token and no signature unchecked.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at once")]

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use seawall_core::{Clock, ManualClock};
use seawall_emulator::aws::{self, AwsEmulator, AwsEmulatorOptions, AwsEndpoint, IamRole, OidcProvider};
use seawall_emulator::faults::{ExcessAction, Faults, Throttle};
use seawall_emulator::keys::Algorithm;
use seawall_emulator::service_account_tokens::{Issuer, Workload};

const ROLE: &str = "arn:aws:iam::123456789012:role/shop/cart";
const SUBJECT: &str = "system:serviceaccount:shop:cart";
const AUDIENCE: &str = "sts.amazonaws.com";

struct Aws {
    running: AwsEmulator,
    issuer: Issuer,
    clock: Clock,
    hand: ManualClock,
}

async fn start() -> Aws {
    let issuer = Issuer::generate("https://cluster.example", Algorithm::Es256).unwrap();
    let provider = OidcProvider {
        issuer: issuer.url().into(),
        keys: issuer.key_set().unwrap(),
        audiences: [AUDIENCE.to_owned()].into(),
    };
    let options = AwsEmulatorOptions {
        providers: vec![provider],
        roles: vec![IamRole::trusting_everyone(ROLE).with_trusted_caller(SUBJECT)],
        ..AwsEmulatorOptions::default()
    };
    let (clock, hand) = Clock::manual();
    Aws { running: aws::start(options, clock.clone()).await.unwrap(), issuer, clock, hand }
}

impl Aws {
    fn token(&self, name: &str, audience: &str) -> String {
        let workload = Workload::for_service_account("shop", name).in_pod("pod-1");
        let life = Duration::from_secs(600);
        self.issuer.mint(&workload, &[audience], life, self.clock.wall_time()).unwrap().expose().clone()
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Option<Response<String>> {
        let stream = tokio::net::TcpStream::connect(self.running.address()).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await.ok()?.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        driver.abort();
        Some(Response::from_parts(head, String::from_utf8(body.to_vec()).unwrap()))
    }

    async fn form(&self, members: &[(&str, &str)]) -> (u16, String) {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(members).finish();
        let request = Request::post("/").header("host", "sts.amazonaws.com").body(Full::new(body.into()));
        let answer = self.send(request.unwrap()).await.unwrap();
        (answer.status().as_u16(), answer.into_body())
    }

    /// A good request, but for one member.
    async fn web_identity(&self, token: &str, changed: (&str, &str)) -> (u16, String) {
        let mut members = vec![
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", "2011-06-15"),
            ("RoleArn", ROLE),
            ("RoleSessionName", "cart"),
            ("WebIdentityToken", token),
        ];
        members.retain(|(name, _)| *name != changed.0);
        members.push(changed);
        self.form(&members).await
    }

    async fn metadata(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Response<String> {
        let base = Request::builder().method(method).uri(path).header("host", "169.254.169.254");
        let all = headers.iter().fold(base, |request, (name, value)| request.header(*name, *value));
        self.send(all.body(Full::default()).unwrap()).await.unwrap()
    }
}

fn between<'a>(text: &'a str, name: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("<{name}>")).unwrap_or_else(|| panic!("{name} in {text}"));
    rest.split_once("</").unwrap().0
}

#[tokio::test]
async fn a_trusted_token_gets_a_session_that_says_whose_it_is() {
    let aws = start().await;
    let (status, body) = aws.web_identity(&aws.token("cart", AUDIENCE), ("DurationSeconds", "3600")).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(between(&body, "Expiration"), "2026-01-01T01:00:00Z");
    assert_eq!(between(&body, "Arn"), "arn:aws:sts::123456789012:assumed-role/cart/cart");
    let session = aws.running.session_of_token(between(&body, "SessionToken")).unwrap();
    assert_eq!((&*session.taken_by, &*session.access_key_id), (SUBJECT, between(&body, "AccessKeyId")));
    aws.running.set_fractional_expiry(true);
    let (_, body) = aws.web_identity(&aws.token("cart", AUDIENCE), ("DurationSeconds", "900")).await;
    assert_eq!(between(&body, "Expiration"), "2026-01-01T00:15:00.250Z");
    aws.hand.advance(Duration::from_secs(3600));
    assert!(aws.running.session_of_token(between(&body, "SessionToken")).is_none());
}

#[tokio::test]
async fn what_sts_refuses_it_refuses_in_its_words() {
    let aws = start().await;
    let good = aws.token("cart", AUDIENCE);
    let other = Issuer::generate("https://cluster.example", Algorithm::Es256).unwrap();
    let workload = Workload::for_service_account("shop", "cart");
    let forged = other.mint(&workload, &[AUDIENCE], Duration::from_secs(600), aws.clock.wall_time()).unwrap();
    let (foreign, stranger) = (aws.token("cart", "vault"), aws.token("till", AUDIENCE));
    for (token, changed, status, code) in [
        (&*forged.expose().clone(), ("X", ""), 400, "InvalidIdentityToken"),
        (&foreign, ("X", ""), 400, "InvalidIdentityToken"),
        (&stranger, ("X", ""), 403, "AccessDenied"),
        (&good, ("RoleArn", "arn:aws:iam::123456789012:role/none"), 403, "AccessDenied"),
        (&good, ("RoleArn", "cart"), 400, "ValidationError"),
        (&good, ("RoleSessionName", "a b"), 400, "ValidationError"),
        (&good, ("DurationSeconds", "60"), 400, "ValidationError"),
        (&good, ("DurationSeconds", "3601"), 400, "ValidationError"),
        (&good, ("Version", "2010-01-01"), 400, "InvalidAction"),
        (&good, ("Action", "AssumeRole"), 403, "MissingAuthenticationToken"),
        (&good, ("Action", "GetCallerIdentity"), 403, "MissingAuthenticationToken"),
    ] {
        let (got, body) = aws.web_identity(token, changed).await;
        assert_eq!((got, between(&body, "Code")), (status, code), "{changed:?} {body}");
    }
    aws.hand.advance(Duration::from_secs(601));
    let (status, body) = aws.web_identity(&good, ("X", "")).await;
    assert_eq!((status, between(&body, "Code")), (400, "ExpiredTokenException"));
    assert!(aws.running.session_counts().is_empty());
}

#[tokio::test]
async fn faults_look_as_aws_fails() {
    let aws = start().await;
    let token = aws.token("cart", AUDIENCE);
    let throttle = Some(Throttle { per_second: 1, burst: 1, excess: ExcessAction::Refuse });
    aws.running.set_faults_on(AwsEndpoint::WebIdentity, Faults { throttle, ..Faults::default() });
    assert_eq!(aws.web_identity(&token, ("X", "")).await.0, 200);
    let (status, body) = aws.web_identity(&token, ("X", "")).await;
    assert_eq!((status, between(&body, "Code")), (400, "Throttling"));
    let failing = Faults { error_rate: 1.0, error_status: Some(503), ..Faults::default() };
    aws.running.set_faults(&failing);
    let (status, body) = aws.web_identity(&token, ("X", "")).await;
    assert_eq!((status, between(&body, "Code")), (503, "ServiceUnavailable"));
    aws.running.set_faults(&Faults { truncated_body_rate: 1.0, ..Faults::default() });
    let (status, body) = aws.web_identity(&token, ("X", "")).await;
    assert!(status == 200 && !body.contains("</AssumeRoleWithWebIdentityResponse>"), "{body}");
    let counts = aws.running.endpoint_request_counts(AwsEndpoint::WebIdentity);
    assert_eq!((counts.calls, counts.answered, counts.faulted), (4, 1, 3));
}

#[tokio::test]
async fn the_metadata_service_gives_the_nodes_role_for_a_token_and_to_nobody_behind_a_proxy() {
    let aws = start().await;
    let listing = "/latest/meta-data/iam/security-credentials/";
    assert_eq!(aws.metadata(Method::GET, listing, &[]).await.status(), 401);
    for (ttl, status) in [("21600", 200), ("0", 400), ("21601", 400), ("x", 400)] {
        let header = [("X-aws-ec2-metadata-token-ttl-seconds", ttl)];
        assert_eq!(aws.metadata(Method::PUT, "/latest/api/token", &header).await.status(), status, "{ttl}");
    }
    let token = aws
        .metadata(Method::PUT, "/latest/api/token", &[("x-aws-ec2-metadata-token-ttl-seconds", "60")])
        .await;
    assert_eq!(token.headers()["x-aws-ec2-metadata-token-ttl-seconds"], "60");
    let token = token.into_body();
    let with = [("x-aws-ec2-metadata-token", &*token)];
    assert_eq!(aws.metadata(Method::GET, listing, &with).await.into_body(), "node");
    let document = aws.metadata(Method::GET, &format!("{listing}node"), &with).await.into_body();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(
        (&document["Code"], &document["Expiration"]),
        (&"Success".into(), &"2026-01-01T06:00:00Z".into())
    );
    let identity = aws.metadata(Method::GET, "/latest/meta-data/identity-credentials/ec2/info", &with).await;
    let identity: serde_json::Value = serde_json::from_str(&identity.into_body()).unwrap();
    assert_eq!((&identity["Code"], &identity["AccountId"]), (&"Success".into(), &"123456789012".into()));
    assert_eq!(aws.metadata(Method::GET, &format!("{listing}other"), &with).await.status(), 404);
    let behind = [("x-aws-ec2-metadata-token", &*token), ("x-forwarded-for", "10.0.0.1")];
    assert_eq!(aws.metadata(Method::GET, listing, &behind).await.status(), 403);
    aws.hand.advance(Duration::from_secs(60));
    assert_eq!(aws.metadata(Method::GET, listing, &with).await.status(), 401);
}
