//! The whole way from a Kubernetes token to a service account's tokens, and everything that is refused on it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at once")]

mod common;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::{
    AUDIENCE, CLOUD_PLATFORM, EMAIL, Google, ISSUER, PROVIDER, exchange_request, form, get, start, start_with,
};
use seawall_emulator::google::{EmulatedAccessToken, GoogleEndpoint, ImpersonationPolicy};
use seawall_emulator::keys::Algorithm;
use seawall_emulator::service_account_tokens::Issuer;
use serde_json::{Value, json};

#[tokio::test]
async fn a_kubernetes_token_becomes_a_federated_one_and_that_a_service_accounts() {
    let google = start().await;
    let federated = google.exchange(&google.token("coral")).await;
    assert_eq!(federated.status, 200, "{federated:?}");
    assert!(federated.header("content-type").starts_with("application/json"));
    let federated = federated.json();
    assert_eq!(federated["issued_token_type"], "urn:ietf:params:oauth:token-type:access_token");
    assert_eq!((&federated["token_type"], &federated["expires_in"]), (&json!("Bearer"), &json!(3600)));
    let federated = federated["access_token"].as_str().unwrap();
    assert_eq!(EmulatedAccessToken::peek(federated).unwrap().sub, "system:serviceaccount:reef:coral");

    let answer = google.access_token(federated).await.json();
    assert_eq!(answer["expireTime"], "2026-01-01T01:00:00Z");
    let read = google.running.read_access_token(answer["accessToken"].as_str().unwrap()).unwrap();
    assert_eq!(
        (read.account.as_deref(), read.sub.as_str()),
        (Some(EMAIL), "system:serviceaccount:reef:coral")
    );
    assert_eq!(read.scopes, [CLOUD_PLATFORM]);

    assert_eq!(google.running.exchange_counts(), [("system:serviceaccount:reef:coral".into(), 1)].into());
    assert_eq!(google.running.impersonation_counts().len(), 1);
    let counts = google.running.endpoint_request_counts(GoogleEndpoint::Exchange);
    assert_eq!((counts.calls, counts.answered, counts.refused, counts.in_flight), (1, 1, 0, 0));
    google.running.shutdown().await;
}

#[tokio::test]
async fn no_two_tokens_are_equal_and_each_says_whose_it_is() {
    let google = start().await;
    let tokens =
        [google.federated("coral").await, google.federated("coral").await, google.federated("kelp").await];
    assert_ne!(tokens[0], tokens[1]);
    let subjects = tokens.map(|token| EmulatedAccessToken::peek(&token).unwrap().sub);
    assert_eq!(subjects[2], "system:serviceaccount:reef:kelp");
}

#[tokio::test]
async fn tokeninfo_tells_the_truth_until_the_token_expires() {
    let google = start().await;
    let bearer = google.federated("coral").await;
    let token = google.access_token(&bearer).await.json()["accessToken"].as_str().unwrap().to_owned();
    google.hand.advance(Duration::from_secs(600));
    let target = format!("/tokeninfo?access_token={token}");
    let info = google.send(get(&target, &[])).await.json();
    assert_eq!((&info["email"], &info["scope"]), (&json!(EMAIL), &json!(CLOUD_PLATFORM)));
    assert_eq!(info["expires_in"], "3000");
    assert_eq!(info["kubernetes_subject"], "system:serviceaccount:reef:coral");
    let own = google.send(get(&format!("/tokeninfo?access_token={bearer}"), &[])).await.json();
    assert_eq!(own["email"], Value::Null);
    let pool = PROVIDER.split("/providers/").next().unwrap();
    assert_eq!(own["sub"], format!("principal:{pool}/subject/system:serviceaccount:reef:coral"));

    google.hand.advance(Duration::from_secs(3000));
    let gone = google.send(get(&target, &[])).await;
    assert_eq!((gone.status.as_u16(), &gone.json()["error"]), (400, &json!("invalid_token")));
    let forged = google.send(get(&format!("/tokeninfo?access_token={token}x"), &[])).await;
    assert_eq!(forged.status, 400);
}

#[tokio::test]
async fn an_identity_token_verifies_with_the_published_keys_in_another_library() {
    let google = start().await;
    let bearer = google.federated("coral").await;
    let body = json!({"audience": "https://service.example", "includeEmail": true});
    let token = google.call(&bearer, EMAIL, "generateIdToken", &body).await.json()["token"].clone();
    let keys = google.send(get("/oauth2/v3/certs", &[])).await;
    let claims =
        read_with_another_library(token.as_str().unwrap(), &keys.body, "https://service.example").unwrap();
    assert_eq!((&claims["iss"], &claims["email"]), (&json!("https://accounts.google.com"), &json!(EMAIL)));
    assert_eq!((&claims["email_verified"], &claims["azp"]), (&json!(true), &claims["sub"]));
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 3600);

    let plain = json!({"audience": "https://service.example"});
    let token = google.call(&bearer, EMAIL, "generateIdToken", &plain).await.json()["token"].clone();
    let claims =
        read_with_another_library(token.as_str().unwrap(), &keys.body, "https://service.example").unwrap();
    assert_eq!((&claims["email"], &claims["email_verified"]), (&Value::Null, &Value::Null));
    assert!(read_with_another_library(token.as_str().unwrap(), &keys.body, "https://other.example").is_err());
}

/// Both kinds of issuer: what we sign, jsonwebtoken verifies; and the shape is the API server's.
#[test]
fn kubernetes_tokens_verify_in_another_library() {
    for algorithm in [Algorithm::Rs256, Algorithm::Es256] {
        let issuer = Issuer::generate(ISSUER, algorithm).unwrap();
        let again =
            seawall_emulator::keys::SigningKey::from_pem(issuer.key().to_pem().unwrap().expose()).unwrap();
        assert_eq!(again.id(), issuer.key().id());
        let workload =
            seawall_emulator::service_account_tokens::Workload::for_service_account("reef", "coral")
                .in_pod("pod-1");
        let now = std::time::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
        let token =
            Issuer::new(ISSUER, again).mint(&workload, &[AUDIENCE], Duration::from_secs(600), now).unwrap();
        let claims = read_with_another_library(token.expose(), &issuer.jwks(), AUDIENCE).unwrap();
        assert_eq!(claims["sub"], "system:serviceaccount:reef:coral");
        assert_eq!(claims["aud"], json!([AUDIENCE]));
        assert_eq!((&claims["nbf"], &claims["exp"]), (&json!(1_767_225_600), &json!(1_767_226_200)));
        let bound = &claims["kubernetes.io"];
        assert_eq!((&bound["namespace"], &bound["pod"]["name"]), (&json!("reef"), &json!("pod-1")));
        assert_eq!(bound["serviceaccount"]["name"], "coral");
        assert_eq!(bound["pod"]["uid"].as_str().unwrap().len(), 36);
        let header = jsonwebtoken::decode_header(token.expose()).unwrap();
        assert_eq!((header.kid.as_deref(), header.typ), (Some(issuer.key().id()), None));
    }
}

fn read_with_another_library(token: &str, keys: &str, audience: &str) -> jsonwebtoken::errors::Result<Value> {
    let keys: jsonwebtoken::jwk::JwkSet = serde_json::from_str(keys).unwrap();
    let header = jsonwebtoken::decode_header(token)?;
    let key = keys.find(header.kid.as_deref().unwrap()).unwrap();
    let mut rules = jsonwebtoken::Validation::new(header.alg);
    rules.set_audience(&[audience]);
    // The tokens live in the manual clock's time.
    rules.validate_exp = false;
    Ok(jsonwebtoken::decode::<Value>(token, &jsonwebtoken::DecodingKey::from_jwk(key)?, &rules)?.claims)
}

async fn assert_refused(google: &Google, token: &str, code: &str, part: &str) {
    let answer = google.exchange(token).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    let error = answer.json();
    assert_eq!(error["error"], code, "{error}");
    assert!(error["error_description"].as_str().unwrap().contains(part), "{part} in {error}");
    assert!(google.running.exchange_counts().is_empty());
}

#[tokio::test]
async fn a_token_with_a_changed_claim_is_refused() {
    let google = start().await;
    let signed = |name: &str, value: Value| {
        let mut claims = google.claims("coral");
        claims[name] = value;
        google.issuer.sign(&claims).unwrap()
    };
    let now = 1_767_225_600_u64;
    for (token, part) in [
        (signed("iss", json!("https://elsewhere.example")), "issuer"),
        (signed("iss", json!(format!("{ISSUER}/"))), "issuer"),
        (signed("iss", Value::Null), "claim iss"),
        (signed("aud", json!(["another"])), "audiences"),
        (signed("aud", json!([])), "audiences"),
        (signed("aud", json!(PROVIDER)), "audiences"),
        (signed("aud", json!(7)), "claim aud"),
        (signed("exp", json!(now)), "expired"),
        (signed("exp", json!(now - 3600)), "expired"),
        (signed("exp", Value::Null), "claim exp"),
        (signed("exp", json!("9999999999")), "claim exp"),
        (signed("nbf", json!(now + 11)), "not yet"),
        (signed("iat", json!(now + 11)), "not yet"),
        (signed("sub", Value::Null), "claim sub"),
        (signed("sub", json!(format!("system:serviceaccount:reef:{}", "x".repeat(101)))), "longer than"),
    ] {
        assert_refused(&google, &token, "invalid_grant", part).await;
    }
    assert_eq!(google.running.endpoint_request_counts(GoogleEndpoint::Exchange).refused, 15);
    // Both boundaries are exact: the forgiven difference between two clocks, the longest subject.
    let longest = format!("system:serviceaccount:reef:{}", "x".repeat(100));
    for token in [signed("nbf", json!(now + 10)), signed("sub", json!(longest))] {
        assert_eq!(google.exchange(&token).await.status, 200);
    }
}

#[tokio::test]
async fn a_forged_token_is_refused() {
    let google = start().await;
    let token = google.token("coral");
    let (header, claims, signature) = parts(&token);
    let stranger = Issuer::generate(ISSUER, Algorithm::Es256).unwrap();
    let admin = base64(&json!({"sub": "system:serviceaccount:kube-system:admin"}));
    let none = base64(&json!({"alg": "none"}));
    let kid = google.issuer.key().id().to_owned();
    let none_with_kid = base64(&json!({"alg": "none", "kid": kid}));
    let rs256 = base64(&json!({"alg": "RS256", "kid": kid}));
    for (forged, part) in [
        (stranger.sign(&google.claims("coral")).unwrap(), "key id"),
        (format!("{header}.{admin}.{signature}"), "signature"),
        (format!("{header}.{claims}."), "signature"),
        (format!("{header}.{claims}.AAAA"), "signature"),
        (critical_extension(&google), "not a JSON web token"),
        (format!("{none}.{claims}."), "algorithm"),
        (format!("{none_with_kid}.{claims}.{signature}"), "algorithm"),
        (format!("{rs256}.{claims}.{signature}"), "algorithm"),
        (hs256_with_the_public_key(&google), "algorithm"),
        (format!("{header}.{claims}.{signature}.{signature}"), "not a JSON web token"),
        (format!("{header}.{claims}"), "not a JSON web token"),
        ("garbage".into(), "not a JSON web token"),
        ("..".into(), "not a JSON web token"),
        ("é.é.é".into(), "not a JSON web token"),
    ] {
        assert_refused(&google, &forged, "invalid_grant", part).await;
    }
}

/// A header that demands an extension, which nobody here knows, under a good signature (RFC 7515 section 4.1.11).
fn critical_extension(google: &Google) -> String {
    let header = json!({"alg": "ES256", "kid": google.issuer.key().id(), "crit": ["exp"]});
    let message = format!("{}.{}", base64(&header), base64(&google.claims("coral")));
    let signature = google.issuer.key().sign(message.as_bytes()).unwrap();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The confusion of RFC 8725 section 2.1: the published key as the secret of a symmetric signature.
fn hs256_with_the_public_key(google: &Google) -> String {
    let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::HS256);
    header.kid = Some(google.issuer.key().id().into());
    let secret = jsonwebtoken::EncodingKey::from_secret(google.issuer.jwks().as_bytes());
    jsonwebtoken::encode(&header, &google.claims("coral"), &secret).unwrap()
}

fn parts(token: &str) -> (&str, &str, &str) {
    let mut parts = token.split('.');
    (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap())
}

fn base64(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

#[tokio::test]
async fn a_wrong_form_is_refused_with_the_code_of_the_standard() {
    let google = start().await;
    let token = google.token("coral");
    let with = |name: &str, value: &str| -> Vec<(String, String)> {
        form(&token)
            .iter()
            .map(|(n, v)| (n.to_string(), if *n == name { value } else { v }.to_owned()))
            .collect()
    };
    for (form, code) in [
        (with("grant_type", "authorization_code"), "unsupported_grant_type"),
        (with("grant_type", ""), "invalid_request"),
        (
            with(
                "audience",
                "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/a/providers/b",
            ),
            "invalid_target",
        ),
        (with("audience", &format!("https:{PROVIDER}")), "invalid_target"),
        (with("scope", ""), "invalid_request"),
        (with("requested_token_type", "urn:ietf:params:oauth:token-type:id_token"), "invalid_request"),
        (with("subject_token_type", "urn:ietf:params:aws:token-type:aws4_request"), "invalid_request"),
        (with("subject_token", ""), "invalid_request"),
        ([with("", ""), vec![("scope".into(), "again".into())]].concat(), "invalid_request"),
        ([with("", ""), vec![("options".into(), "{".into())]].concat(), "invalid_request"),
    ] {
        let form: Vec<_> = form.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let answer = google.exchange_form(&form).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]), (400, &json!(code)), "{form:?}");
    }
    let mut json = exchange_request(&form(&token));
    json.headers_mut().insert("content-type", "application/json".parse().unwrap());
    assert_eq!(google.send(json).await.json()["error"], "invalid_request");
    let with_options =
        [&form(&token)[..], &[("options", r#"{"userProject":"p"}"#), ("unknown", "1")]].concat();
    assert_eq!(google.exchange_form(&with_options).await.status, 200);
}

#[tokio::test]
async fn without_audiences_the_providers_own_name_is_the_audience() {
    let google = start_with(|options| options.providers[0].audiences.clear()).await;
    for (audience, status) in
        [(PROVIDER.to_owned(), 200), (format!("https:{PROVIDER}"), 200), (AUDIENCE.into(), 400)]
    {
        let mut claims = google.claims("coral");
        claims["aud"] = json!([audience]);
        let answer = google.exchange(&google.issuer.sign(&claims).unwrap()).await;
        assert_eq!(answer.status, status, "{audience}");
    }
}

#[tokio::test]
async fn impersonation_is_denied_unless_granted() {
    let google = start().await;
    let (coral, kelp) = (google.federated("coral").await, google.federated("kelp").await);
    assert_eq!(google.access_token(&coral).await.status, 200);
    let denied = google.access_token(&kelp).await;
    assert_eq!(
        (denied.status.as_u16(), &denied.json()["error"]["status"]),
        (403, &json!("PERMISSION_DENIED"))
    );
    assert_eq!(denied.json()["error"]["code"], 403);
    let id_token = google.call(&kelp, EMAIL, "generateIdToken", &json!({"audience": "a"})).await;
    assert_eq!(id_token.status, 403);
    let (other, body) = ("other@p.iam.gserviceaccount.com", json!({"scope": ["s"]}));
    assert_eq!(google.call(&coral, other, "generateAccessToken", &body).await.status, 403);

    google.running.set_impersonation(ImpersonationPolicy::Everyone);
    assert_eq!(google.access_token(&kelp).await.status, 200);
    google.running.set_impersonation(ImpersonationPolicy::default());
    assert_eq!(google.access_token(&coral).await.status, 403);
}

#[tokio::test]
async fn a_chain_of_delegates_needs_every_link() {
    let google = start().await;
    let coral = google.federated("coral").await;
    let target = "deep@seawall-emulator.iam.gserviceaccount.com";
    let body = json!({"scope": ["s"], "delegates": [format!("projects/-/serviceAccounts/{EMAIL}")]});
    assert_eq!(google.call(&coral, target, "generateAccessToken", &body).await.status, 403);
    let links = [("system:serviceaccount:reef:coral", EMAIL), (EMAIL, target)];
    let links = links.map(|(from, to)| (from.to_owned(), to.to_owned()));
    google.running.set_impersonation(ImpersonationPolicy::Only(links.into()));
    assert_eq!(google.call(&coral, target, "generateAccessToken", &body).await.status, 200);
    let direct = json!({"scope": ["s"]});
    assert_eq!(google.call(&coral, target, "generateAccessToken", &direct).await.status, 403);
}

#[tokio::test]
async fn a_bearer_that_is_not_ours_or_has_expired_is_unauthenticated() {
    let google = start().await;
    let bearer = google.federated("coral").await;
    let (body, mac) = bearer.rsplit_once('.').unwrap();
    for wrong in ["", "x", "ya29.emu.x.y", &format!("{body}x.{mac}"), body, &google.token("coral")] {
        let answer = google.access_token(wrong).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["error"]["status"]),
            (401, &json!("UNAUTHENTICATED")),
            "{wrong}"
        );
    }
    google.hand.advance(Duration::from_secs(3599));
    assert_eq!(google.access_token(&bearer).await.status, 200);
    google.hand.advance(Duration::from_secs(1));
    assert_eq!(google.access_token(&bearer).await.status, 401);
}

#[tokio::test]
async fn a_bearer_without_the_scope_is_forbidden() {
    let google = start().await;
    let token = google.token("coral");
    let mut form = form(&token);
    form[2].1 = "https://www.googleapis.com/auth/devstorage.read_only";
    let narrow = google.exchange_form(&form).await.json()["access_token"].as_str().unwrap().to_owned();
    assert_eq!(google.access_token(&narrow).await.status, 403);
}

#[tokio::test]
async fn lifetimes_are_seconds_within_the_policy() {
    let google = start().await;
    let bearer = google.federated("coral").await;
    let ask = async |google: &Google, lifetime: Value| {
        let body = json!({"scope": [CLOUD_PLATFORM], "lifetime": lifetime});
        google.call(&bearer, EMAIL, "generateAccessToken", &body).await
    };
    for wrong in [
        json!("0s"),
        json!("3601s"),
        json!("3600"),
        json!("-1s"),
        json!("1h"),
        json!("+5s"),
        json!("s"),
        json!(3600),
    ] {
        let answer = ask(&google, wrong.clone()).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["error"]["status"]),
            (400, &json!("INVALID_ARGUMENT")),
            "{wrong}"
        );
    }
    assert_eq!(ask(&google, json!("600s")).await.json()["expireTime"], "2026-01-01T00:10:00Z");
    google.running.set_max_token_lifetime(Duration::from_secs(60));
    assert_eq!(ask(&google, json!("600s")).await.json()["expireTime"], "2026-01-01T00:01:00Z");
    assert_eq!(google.exchange(&google.token("coral")).await.json()["expires_in"], 60);

    let google = start_with(|options| {
        options.allows_long_token_lifetimes = true;
        options.max_token_lifetime = Duration::from_secs(43_200);
    });
    let google = google.await;
    let bearer = google.federated("coral").await;
    let body = json!({"scope": [CLOUD_PLATFORM], "lifetime": "43200s"});
    let answer = google.call(&bearer, EMAIL, "generateAccessToken", &body).await;
    assert_eq!(answer.json()["expireTime"], "2026-01-01T12:00:00Z");
}

#[tokio::test]
async fn a_wrong_body_of_iam_credentials_is_an_invalid_argument() {
    let google = start().await;
    let bearer = google.federated("coral").await;
    for (method, body) in [
        ("generateAccessToken", json!({"scope": []})),
        ("generateAccessToken", json!({})),
        ("generateAccessToken", json!([1])),
        ("generateAccessToken", json!({"scope": ["s"], "delegates": ["someone"]})),
        ("generateIdToken", json!({})),
        ("generateIdToken", json!({"audience": ""})),
    ] {
        let answer = google.call(&bearer, EMAIL, method, &body).await;
        assert_eq!(answer.status, 400, "{method} {body}");
    }
    let encoded =
        google.call(&bearer, &EMAIL.replace('@', "%40"), "generateIdToken", &json!({"audience": "a"})).await;
    assert_eq!(encoded.status, 200);
}

/// google-auth writes the members it has no value for as null.
#[tokio::test]
async fn members_that_are_null_count_as_omitted() {
    let google = start().await;
    let bearer = google.federated("coral").await;
    let body = json!({"delegates": null, "scope": [CLOUD_PLATFORM], "lifetime": null});
    assert_eq!(google.call(&bearer, EMAIL, "generateAccessToken", &body).await.status, 200);
    let body = json!({"audience": "a", "delegates": null, "includeEmail": null, "useEmailAzp": null});
    assert_eq!(google.call(&bearer, EMAIL, "generateIdToken", &body).await.status, 200);
}

#[tokio::test]
async fn a_body_above_the_bound_is_refused() {
    let google = start().await;
    let token = "x".repeat(256 * 1024);
    let answer = google.exchange(&token).await;
    assert_eq!(answer.status, 413);
}

#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let google = start().await;
    let options = seawall_emulator::google::GoogleEmulatorOptions {
        listen: google.running.address(),
        ..Default::default()
    };
    let error = seawall_emulator::google::start(options, google.clock.clone()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    let address = google.running.address();
    google.running.shutdown().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn dropping_the_handle_closes_the_listener() {
    let google = start().await;
    let address = google.running.address();
    drop(google);
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}
