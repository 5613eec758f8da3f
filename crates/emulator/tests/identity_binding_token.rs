//! The exchange of GKE's own pools: JSON at `/v1/identitybindingtoken`, with the checks of the form at `/v1/token`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at once")]

mod common;

use common::{AUDIENCE, Answer, CLOUD_PLATFORM, EMAIL, Google, ISSUER, PROVIDER, get, start_with};
use http::Request;
use seawall_emulator::google::{EmulatedAccessToken, GoogleEndpoint, WorkloadIdentityProvider};
use serde_json::{Value, json};

const POOL: &str = AUDIENCE;
const CLUSTER: &str =
    "https://container.googleapis.com/v1/projects/reef/locations/europe-west1/clusters/reef";

fn provider() -> String {
    format!("identitynamespace:{POOL}:{CLUSTER}")
}

/// An emulator that also trusts GKE's own pool, which accepts tokens for the pool.
async fn start() -> Google {
    start_with(|options| {
        let WorkloadIdentityProvider { issuer, keys, .. } = options.providers[0].clone();
        let audiences = std::collections::BTreeSet::new();
        options.providers.push(WorkloadIdentityProvider { name: provider(), issuer, keys, audiences });
    })
    .await
}

/// The body that secrets-store-csi-driver-provider-gcp sends.
fn body(token: &str) -> Value {
    json!({
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token": token,
        "audience": provider(),
        "scope": CLOUD_PLATFORM,
    })
}

/// The body that istio sends.
fn camel_case_body(token: &str) -> Value {
    json!({
        "audience": provider(),
        "grantType": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requestedTokenType": "urn:ietf:params:oauth:token-type:access_token",
        "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt",
        "subjectToken": token,
        "scope": CLOUD_PLATFORM,
    })
}

async fn send_as(google: &Google, content_type: &str, body: String) -> Answer {
    let request = Request::post("/v1/identitybindingtoken")
        .header("host", "securetoken.googleapis.com")
        .header("content-type", content_type);
    google.send(request.body(http_body_util::Full::new(body.into())).unwrap()).await
}

async fn exchange(google: &Google, body: &Value) -> Answer {
    send_as(google, "application/json", body.to_string()).await
}

#[tokio::test]
async fn a_kubernetes_token_becomes_a_federated_one_in_both_spellings_and_that_a_service_accounts() {
    let google = start().await;
    for body in [body(&google.token("coral")), camel_case_body(&google.token("coral"))] {
        let federated = exchange(&google, &body).await;
        assert_eq!(federated.status, 200, "{federated:?}");
        let federated = federated.json();
        assert_eq!(federated["issued_token_type"], "urn:ietf:params:oauth:token-type:access_token");
        assert_eq!((&federated["token_type"], &federated["expires_in"]), (&json!("Bearer"), &json!(3600)));
        let federated = federated["access_token"].as_str().unwrap();
        assert_eq!(EmulatedAccessToken::peek(federated).unwrap().sub, "system:serviceaccount:reef:coral");
        let account = google.access_token(federated).await.json();
        let read = google.running.read_access_token(account["accessToken"].as_str().unwrap()).unwrap();
        assert_eq!(read.account.as_deref(), Some(EMAIL));
        // Google's name for such an identity in policies.
        let info = google.send(get(&format!("/tokeninfo?access_token={federated}"), &[])).await.json();
        assert_eq!(info["sub"], format!("serviceAccount:{POOL}[reef/coral]"));
    }
    let counts = google.running.endpoint_request_counts(GoogleEndpoint::Exchange);
    assert_eq!((counts.calls, counts.answered, counts.refused), (2, 2, 0));
}

#[tokio::test]
async fn a_token_for_another_audience_of_another_issuer_or_expired_is_refused() {
    let google = start().await;
    let now = 1_767_225_600_u64;
    for (name, value, part) in [
        ("aud", json!([provider()]), "audiences"),
        ("aud", json!([CLUSTER]), "audiences"),
        ("aud", json!([PROVIDER]), "audiences"),
        ("aud", json!([]), "audiences"),
        ("iss", json!(CLUSTER), "issuer"),
        ("iss", json!(format!("{ISSUER}/")), "issuer"),
        ("exp", json!(now), "expired"),
        ("nbf", json!(now + 11), "not yet"),
    ] {
        let mut claims = google.claims("coral");
        claims[name] = value;
        let answer = exchange(&google, &body(&google.issuer.sign(&claims).unwrap())).await;
        let error = answer.json();
        assert_eq!((answer.status.as_u16(), &error["error"]), (400, &json!("invalid_grant")), "{error}");
        assert!(error["error_description"].as_str().unwrap().contains(part), "{part} in {error}");
    }
    let forged = format!("{}x", google.token("coral"));
    assert_eq!(exchange(&google, &body(&forged)).await.json()["error"], "invalid_grant");
    assert!(google.running.exchange_counts().is_empty());
}

#[tokio::test]
async fn only_the_configured_identity_namespace_is_an_audience() {
    let google = start().await;
    for audience in [
        // The emulator trusts this provider, but its tokens are those of `/v1/token`.
        PROVIDER,
        POOL,
        CLUSTER,
        "",
        "identitynamespace:",
        &format!("identitynamespace:{POOL}"),
        &format!("identitynamespace:{POOL}:"),
        &format!("identitynamespace::{CLUSTER}"),
        &format!("identitynamespace:other.svc.id.goog:{CLUSTER}"),
        &format!("identitynamespace:{POOL}:{CLUSTER}-2"),
        &format!("IdentityNamespace:{POOL}:{CLUSTER}"),
    ] {
        let mut body = body(&google.token("coral"));
        body["audience"] = json!(audience);
        let answer = exchange(&google, &body).await;
        let expected = if audience.is_empty() { "invalid_request" } else { "invalid_target" };
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]), (400, &json!(expected)), "{audience}");
    }
}

#[tokio::test]
async fn a_wrong_body_is_refused_with_the_code_of_the_standard() {
    let google = start().await;
    let good = body(&google.token("coral"));
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    for (body, code) in [
        (with("grant_type", json!("authorization_code")), "unsupported_grant_type"),
        (with("grant_type", json!("")), "invalid_request"),
        (with("scope", json!([CLOUD_PLATFORM])), "invalid_request"),
        (with("scope", Value::Null), "invalid_request"),
        (with("subject_token", json!("")), "invalid_request"),
        (with("requested_token_type", json!("urn:ietf:params:oauth:token-type:id_token")), "invalid_request"),
        (with("subject_token_type", json!("urn:ietf:params:aws:token-type:aws4_request")), "invalid_request"),
        (with("options", json!("{")), "invalid_request"),
        (with("unknown", json!("1")), "invalid_request"),
        // The same member in the other spelling.
        (with("subjectToken", good["subject_token"].clone()), "invalid_request"),
        (json!([good]), "invalid_request"),
    ] {
        let answer = exchange(&google, &body).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]), (400, &json!(code)), "{body}");
    }
    let text = good.to_string();
    let twice = text.replacen('{', &format!("{{\"audience\":{},", good["audience"]), 1);
    for (content_type, body) in [
        ("application/json", twice),
        ("application/json", "{".to_owned()),
        ("application/json", String::new()),
        ("application/x-www-form-urlencoded", text.clone()),
    ] {
        let answer = send_as(&google, content_type, body).await;
        assert_eq!(answer.json()["error"], "invalid_request", "{answer:?}");
    }
    let charset = send_as(&google, "application/json; charset=UTF-8", text).await;
    assert_eq!(charset.status, 200, "{charset:?}");
}
