//! Google's requests and responses on the wire, against a server that reads from a script.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seawall_broker::google::{
    CredentialRequest, GoogleExchange, GoogleExchangeApi, GoogleExchangeConfig, GooglePrincipal,
    GoogleTokenText,
};
use seawall_broker::{ExchangeError, ExchangeFault, IssuedCredential, TokenExchange};
use seawall_core::pod::{SubjectFuture, SubjectTokenError, SubjectTokens};
use seawall_core::{Clock, ManualClock, Secret, ServiceAccount};
use seawall_testkit::closure_server::{Peer, Server};
use seawall_testkit::tls::CertificateAuthority;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const ACCOUNT: &str = "cart@my-project.iam.gserviceaccount.com";
const PROVIDER: &str =
    "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/cluster";
const SUBJECT: &str = "eyJhbGciOiJSUzI1NiJ9.c3ViamVjdA.c2ln";
const SCOPES: &str =
    "https://www.googleapis.com/auth/devstorage.read_only https://www.googleapis.com/auth/pubsub";

/// The manual clock starts at 2026-01-01T00:00:00Z.
const START: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

const FEDERATED: &str = r#"{"access_token":"federated","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3599}"#;
const ACCESS: &str = r#"{"accessToken":"ya29.account","expireTime":"2026-01-01T01:00:00Z"}"#;

#[derive(Clone, Debug)]
struct Asked {
    method: String,
    path: String,
    headers: HashMap<String, String>,
    body: String,
}

/// A server that answers each request with the next text of its script, then closes.
struct Scripted {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Scripted {
    async fn serve(script: impl IntoIterator<Item = String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut script: VecDeque<_> = script.into_iter().collect();
        let log = asked.clone();
        tokio::spawn(async move {
            while let Some(answer) = script.pop_front() {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await;
                log.lock().unwrap().push(request);
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn read(stream: &mut TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut request = lines[0].split(' ');
    let (method, path) = (request.next().unwrap().to_owned(), request.next().unwrap().to_owned());
    let header = |line: &String| line.split_once(": ").map(|(k, v)| (k.to_ascii_lowercase(), v.to_owned()));
    let headers: HashMap<_, _> = lines[1..].iter().filter_map(header).collect();
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    reader.read_exact(&mut body).await.unwrap();
    Asked { method, path, headers, body: String::from_utf8(body).unwrap() }
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

fn ok(body: &str) -> String {
    answer("200 OK", &format!("Content-Type: application/json\r\nDate: {START}\r\n"), body)
}

#[derive(Debug)]
struct Subject(&'static str);

impl SubjectTokens for Subject {
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a> {
        assert_eq!(audience, "my-project.svc.id.goog");
        let token = match self.0 {
            "" => Err(SubjectTokenError {
                reason: "the token file /x: no such file".into(),
                is_retryable: true,
            }),
            token => Ok(Secret::new(token.to_owned())),
        };
        Box::pin(std::future::ready(token))
    }
}

fn principal(account: Option<&str>, want: CredentialRequest) -> GooglePrincipal {
    let workload = ServiceAccount { namespace: "shop".into(), name: "cart".into() };
    GooglePrincipal { workload, account: account.map(Into::into), requested_credential: want }
}

fn access() -> CredentialRequest {
    CredentialRequest::AccessToken { scopes: SCOPES.into() }
}

fn identity() -> CredentialRequest {
    CredentialRequest::IdToken { audience: "https://till.example/?a=b&c".into(), include_email: true }
}

fn exchange(url: &str) -> (GoogleExchange, ManualClock) {
    let (clock, hand) = Clock::manual();
    (GoogleExchange::new(config(url), clock).unwrap(), hand)
}

fn config(url: &str) -> GoogleExchangeConfig {
    GoogleExchangeConfig {
        exchange_api: GoogleExchangeApi::Sts,
        sts_url: url.into(),
        iam_url: url.into(),
        workload_identity_provider: PROVIDER.into(),
        token_audience: "my-project.svc.id.goog".into(),
        extra_roots: None,
        proxy: None,
    }
}

/// Calls once against a script. Returns the result and the requests.
async fn ask(
    principal: GooglePrincipal,
    script: &[String],
) -> (Result<IssuedCredential<GoogleTokenText>, ExchangeError>, Vec<Asked>) {
    let server = Scripted::serve(script.to_vec()).await;
    let (google, _hand) = exchange(&server.url);
    let issued = google.issue(&principal, &Subject(SUBJECT)).await;
    (issued, server.asked())
}

/// Returns the result of a call whose IAM response is given.
async fn iam(
    want: CredentialRequest,
    reply: String,
) -> Result<IssuedCredential<GoogleTokenText>, ExchangeError> {
    ask(principal(Some(ACCOUNT), want), &[ok(FEDERATED), reply]).await.0
}

/// Returns the result of a call whose STS response is given.
async fn sts(reply: String) -> Result<IssuedCredential<GoogleTokenText>, ExchangeError> {
    ask(principal(None, access()), &[reply]).await.0
}

fn form(body: &str) -> HashMap<String, String> {
    url::form_urlencoded::parse(body.as_bytes()).into_owned().collect()
}

/// A JWT with this payload, whose base64url was made by `base64`.
fn jwt(payload_base64url: &str) -> String {
    format!(r#"{{"token":"eyJhbGciOiJSUzI1NiJ9.{payload_base64url}.c2ln"}}"#)
}

#[tokio::test]
async fn a_pod_without_an_account_gets_its_federated_token() {
    let (issued, asked) = ask(principal(None, access()), &[ok(FEDERATED)]).await;
    let issued = issued.unwrap();
    assert_eq!(issued.credential.text(), "federated");
    assert_eq!(issued.lifetime, Duration::from_secs(3599));
    let [sts] = asked.try_into().unwrap();
    assert_eq!((sts.method.as_str(), sts.path.as_str()), ("POST", "/v1/token"));
    assert_eq!(sts.headers["content-type"], "application/x-www-form-urlencoded");
    assert!(!sts.headers.contains_key("authorization"));
    let form = form(&sts.body);
    for (name, value) in [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("audience", PROVIDER),
        ("scope", SCOPES),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
        ("subject_token", SUBJECT),
    ] {
        assert_eq!(form[name], value, "{name}");
    }
    assert_eq!(form.len(), 6);
}

#[tokio::test]
async fn gkes_own_pools_are_asked_in_json() {
    let server = Scripted::serve([ok(FEDERATED), ok(ACCESS)]).await;
    let provider = "identitynamespace:my-project.svc.id.goog:https://container.googleapis.com/v1/projects/\
                    my-project/locations/europe-west1/clusters/c";
    let config = GoogleExchangeConfig {
        exchange_api: GoogleExchangeApi::IdentityBindingToken,
        workload_identity_provider: provider.into(),
        ..config(&server.url)
    };
    let google = GoogleExchange::new(config, Clock::manual().0).unwrap();
    let issued = google.issue(&principal(Some(ACCOUNT), access()), &Subject(SUBJECT)).await.unwrap();
    assert_eq!(issued.credential.text(), "ya29.account");
    let [exchange, iam] = server.asked().try_into().unwrap();
    assert_eq!(exchange.path, "/v1/identitybindingtoken");
    assert_eq!(exchange.headers["content-type"], "application/json");
    let body: serde_json::Value = serde_json::from_str(&exchange.body).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "subject_token": SUBJECT,
            "audience": provider,
            "scope": "https://www.googleapis.com/auth/cloud-platform",
        })
    );
    assert_eq!(iam.headers["authorization"], "Bearer federated");
}

/// A proxy that carries out CONNECT; its URL, and the targets that it was asked for.
async fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let targets = Arc::new(Mutex::new(Vec::new()));
    let log = targets.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let target = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap().to_owned();
            let mut upstream = TcpStream::connect(&target).await.unwrap();
            log.lock().unwrap().push(target);
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut upstream).await });
        }
    });
    (url, targets)
}

#[tokio::test]
async fn everything_goes_through_the_proxy() {
    let server = Scripted::serve([ok(FEDERATED), ok(ACCESS)]).await;
    let (proxy, targets) = proxy().await;
    let config = GoogleExchangeConfig { proxy: Some(proxy), ..config(&server.url) };
    let google = GoogleExchange::new(config, Clock::manual().0).unwrap();
    google.issue(&principal(Some(ACCOUNT), access()), &Subject(SUBJECT)).await.unwrap();
    let target = server.url.strip_prefix("http://").unwrap().to_owned();
    assert_eq!(*targets.lock().unwrap(), [target.clone(), target]);
}

#[test]
fn a_proxy_never_reads_a_token() {
    let made = |url: &str, proxy: &str| {
        let config = GoogleExchangeConfig { proxy: Some(proxy.into()), ..config(url) };
        GoogleExchange::new(config, Clock::manual().0).map(drop)
    };
    assert!(made("https://sts.googleapis.com", "http://proxy.example:3128").is_ok());
    assert!(made("http://127.0.0.1:9", "http://127.0.0.1:3128").is_ok());
    assert!(made("http://127.0.0.1:9", "http://proxy.example:3128").is_err());
    assert!(made("https://sts.googleapis.com", "socks5://127.0.0.1:1").is_err());
}

#[test]
fn more_roots_are_certificates_or_a_mistake() {
    let made = |roots: &str| {
        let config =
            GoogleExchangeConfig { extra_roots: Some(roots.into()), ..config("https://sts.googleapis.com") };
        GoogleExchange::new(config, Clock::manual().0).map(drop).map_err(|error| error.to_string())
    };
    assert!(made("").unwrap_err().contains("no certificate"));
    assert!(made("not PEM at all").unwrap_err().contains("no certificate"));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(made(broken).is_err());
}

#[tokio::test]
async fn an_account_is_impersonated_with_the_federated_token() {
    let (issued, asked) = ask(principal(Some(ACCOUNT), access()), &[ok(FEDERATED), ok(ACCESS)]).await;
    let issued = issued.unwrap();
    assert_eq!(issued.credential.text(), "ya29.account");
    assert_eq!(issued.lifetime, Duration::from_secs(3599));
    let [sts, iam] = asked.try_into().unwrap();
    assert_eq!(form(&sts.body)["scope"], "https://www.googleapis.com/auth/cloud-platform");
    assert_eq!(iam.path, format!("/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken"));
    assert_eq!(iam.headers["authorization"], "Bearer federated");
    assert_eq!(iam.headers["content-type"], "application/json");
    let body: serde_json::Value = serde_json::from_str(&iam.body).unwrap();
    let scopes: Vec<_> = SCOPES.split(' ').collect();
    assert_eq!(body, serde_json::json!({"scope": scopes, "lifetime": "3600s"}));
}

#[tokio::test]
async fn an_identity_token_lives_as_long_as_it_says() {
    // {"exp":1767228000}: 2026-01-01T00:40:00Z.
    let token = jwt("eyJleHAiOjE3NjcyMjgwMDB9");
    let (issued, asked) = ask(principal(Some(ACCOUNT), identity()), &[ok(FEDERATED), ok(&token)]).await;
    // But for the second that a Date may be short of.
    assert_eq!(issued.unwrap().lifetime, Duration::from_secs(2399));
    assert_eq!(asked[1].path, format!("/v1/projects/-/serviceAccounts/{ACCOUNT}:generateIdToken"));
    let body: serde_json::Value = serde_json::from_str(&asked[1].body).unwrap();
    assert_eq!(body, serde_json::json!({"audience": "https://till.example/?a=b&c", "includeEmail": true}));
}

#[tokio::test]
async fn a_node_whose_clock_is_wrong_tells_the_true_life() {
    let late = |reply: &str| reply.replace(START, "Thu, 01 Jan 2026 00:10:00 GMT");
    // The upstream's clock says ten past, ours midnight: fifty minutes are left, not sixty; a
    // second less, because a Date is cut to the second.
    assert_eq!(iam(access(), late(&ok(ACCESS))).await.unwrap().lifetime, Duration::from_secs(2999));
    // The upstream tells no time: never longer than was asked for.
    let far = ACCESS.replace("01:00:00", "03:00:00");
    let undated = answer("200 OK", "Content-Type: application/json\r\n", &far);
    assert_eq!(iam(access(), undated).await.unwrap().lifetime, Duration::from_secs(3600));
}

#[tokio::test]
async fn wrong_answers_of_sts_are_named_and_never_repeated() {
    let with = |from: &str, to: &str| ok(&FEDERATED.replace(from, to));
    for (reply, why) in [
        (with("3599", "0"), "implausible lifetime"),
        (with("3599", "-1"), "not the expected JSON"),
        (with("3599", "1e3"), "not the expected JSON"),
        (with("3599", "999999999999"), "implausible lifetime"),
        (with("3599", "99999999999999999999999"), "not the expected JSON"),
        (with("3599", "\"3599\""), "not the expected JSON"),
        (with("Bearer", "N_A"), "not a bearer token"),
        (with("federated", "feder ated"), "characters that are not allowed"),
        (with("federated", "feder\\\"ated"), "characters that are not allowed"),
        (with("federated", "federated\\u0000"), "characters that are not allowed"),
        (with("federated", "federatéd"), "characters that are not allowed"),
        (with("federated", ""), "characters that are not allowed"),
        (with("federated", &"x".repeat(20_000)), "characters that are not allowed"),
        (with("}", ""), "not the expected JSON"),
        (ok("[]"), "not the expected JSON"),
        (ok(""), "not the expected JSON"),
        (ok(&format!("{{\"federated\":\"{}\"}}", "x".repeat(100_000))), "length limit exceeded"),
        (answer("500 Oops", "Content-Type: text/html\r\n", "<h1>federated</h1>"), "500"),
        (answer("200 OK", "Content-Type: text/html\r\n", "<h1>federated</h1>"), "not the expected JSON"),
        (answer("302 Found", "Location: http://127.0.0.1:1/\r\n", "federated"), "302"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{".to_owned(), "sts"),
        (format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(200_000)), "sts"),
        ("federated\r\n\r\n".to_owned(), "sts"),
        (String::new(), "sts"),
    ] {
        let error = sts(reply.clone()).await.unwrap_err();
        assert_eq!(error.fault, ExchangeFault::Unavailable, "{reply:.300}: {error}");
        assert!(error.to_string().contains(why), "{reply:.300}: {error}");
        assert!(!error.to_string().contains("federated"), "{error}");
    }
}

#[tokio::test]
async fn wrong_answers_of_iam_are_named_and_never_repeated() {
    let with = |from: &str, to: &str| ok(&ACCESS.replace(from, to));
    for (want, reply, why) in [
        (access(), with("2026-01-01T01:00:00Z", "2025-12-31T23:59:59Z"), "implausible lifetime"),
        (access(), with("2026-01-01T01:00:00Z", "2026-01-01T01:00:00"), "not the expected JSON"),
        (access(), with("2026-01-01T01:00:00Z", "soon"), "not the expected JSON"),
        (access(), with("accessToken", "token"), "not the expected JSON"),
        (access(), with("ya29.account", "ya29 account"), "characters that are not allowed"),
        (identity(), ok(r#"{"token":"ya29.account"}"#), "whose expiry is unreadable"),
        (identity(), ok(&jwt("ya29account")), "whose expiry is unreadable"),
        // {"exp":"ya29.account"}, {"exp":-1}, {"exp":1}
        (identity(), ok(&jwt("eyJleHAiOiJ5YTI5LmFjY291bnQifQ")), "whose expiry is unreadable"),
        (identity(), ok(&jwt("eyJleHAiOi0xfQ")), "whose expiry is unreadable"),
        (identity(), ok(&jwt("eyJleHAiOjF9")), "implausible lifetime"),
    ] {
        let error = iam(want, reply.clone()).await.unwrap_err();
        assert_eq!(error.fault, ExchangeFault::Unavailable, "{reply}: {error}");
        assert!(error.to_string().contains(why), "{reply}: {error}");
        assert!(!error.to_string().contains("account\""), "{error}");
        assert!(!error.to_string().contains("ya29"), "{error}");
    }
}

#[tokio::test]
async fn refusals_say_whose_move_it_is() {
    let json = "Content-Type: application/json\r\n";
    let oauth = |code: &str| answer("400 Bad Request", json, &format!(r#"{{"error":"{code}"}}"#));
    for (reply, fault) in [
        (oauth("invalid_grant"), ExchangeFault::AccessDenied),
        (oauth("invalid_target"), ExchangeFault::ExchangeRejected),
        (oauth("invalid_request"), ExchangeFault::ExchangeRejected),
        (answer("429 Too Many Requests", json, "{}"), ExchangeFault::Throttled),
        (answer("503 Service Unavailable", "Retry-After: 7\r\n", ""), ExchangeFault::Throttled),
        (answer("503 Service Unavailable", "", ""), ExchangeFault::Unavailable),
    ] {
        let error = sts(reply).await.unwrap_err();
        assert_eq!(error.fault, fault, "{error}");
    }
    let api = |status: &str, name: &str| {
        let body = format!(r#"{{"error":{{"code":1,"message":"no such thing","status":"{name}"}}}}"#);
        answer(status, json, &body)
    };
    for (reply, fault) in [
        (api("403 Forbidden", "PERMISSION_DENIED"), ExchangeFault::AccessDenied),
        (api("404 Not Found", "NOT_FOUND"), ExchangeFault::ExchangeRejected),
        (api("429 Too Many Requests", "RESOURCE_EXHAUSTED"), ExchangeFault::Throttled),
        (api("500 Internal Server Error", "INTERNAL"), ExchangeFault::Unavailable),
    ] {
        let error = iam(access(), reply).await.unwrap_err();
        assert_eq!(error.fault, fault, "{error}");
        assert!(error.to_string().starts_with("generateAccessToken: "), "{error}");
        assert!(error.to_string().contains("no such thing"), "{error}");
    }
}

#[tokio::test]
async fn a_wait_that_the_upstream_asks_for_is_passed_on() {
    let reply = answer("429 Too Many Requests", "Retry-After: 7\r\n", "");
    assert_eq!(sts(reply).await.unwrap_err().retry_after, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn without_a_kubernetes_token_nobody_is_asked() {
    let server = Scripted::serve([ok(FEDERATED)]).await;
    let (google, _hand) = exchange(&server.url);
    let error = google.issue(&principal(None, access()), &Subject("")).await.unwrap_err();
    assert_eq!(error.fault, ExchangeFault::PodTokenUnavailable);
    assert!(error.to_string().contains("/x"), "{error}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn an_identity_token_without_an_account_is_refused_here() {
    let (issued, asked) = ask(principal(None, identity()), &[ok(FEDERATED)]).await;
    assert_eq!(issued.unwrap_err().fault, ExchangeFault::AccessDenied);
    assert!(asked.is_empty());
}

/// An account is part of a path: `a@b/../other@c` must not become another account.
#[tokio::test]
async fn an_account_that_is_no_email_reaches_no_method() {
    for account in ["a@b.c/../d@b.c", "a@b.c:x?", "a@b.c#", "a b@c", "%2e%2e"] {
        let (issued, asked) = ask(principal(Some(account), access()), &[ok(FEDERATED), ok(ACCESS)]).await;
        assert_eq!(issued.unwrap_err().fault, ExchangeFault::ExchangeRejected, "{account}");
        assert!(asked.len() <= 1, "{account}");
    }
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_named_with_its_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (google, _hand) = exchange(&url);
    let error = google.issue(&principal(None, access()), &Subject(SUBJECT)).await.unwrap_err();
    assert_eq!(error.fault, ExchangeFault::Unavailable);
    assert!(error.to_string().contains("Connection refused"), "{error}");
}

/// A server without a trusted TLS certificate learns nothing.
#[tokio::test]
async fn a_server_that_cannot_prove_its_name_is_told_no_token() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let heard = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // A plain answer where a TLS record is expected.
        stream.write_all(ok(FEDERATED).as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
        heard
    });
    let (google, _hand) = exchange(&url);
    let error = google.issue(&principal(None, access()), &Subject(SUBJECT)).await.unwrap_err();
    assert_eq!(error.fault, ExchangeFault::Unavailable, "{error}");
    let heard = heard.await.unwrap();
    assert_eq!(heard.first(), Some(&22), "a TLS handshake record (RFC 8446 section 5.1)");
    assert!(!heard.windows(8).any(|window| window == &SUBJECT.as_bytes()[..8]));
}

#[tokio::test]
async fn nothing_that_is_printed_holds_a_token() {
    let (google, _hand) = exchange("http://127.0.0.1:1");
    assert!(!format!("{google:?} {:?}", Subject("x")).contains(SUBJECT));
    let (issued, _) = ask(principal(None, access()), &[ok(FEDERATED)]).await;
    assert!(!format!("{issued:?}").contains("federated"));
    let echo = format!(r#"{{"error":"invalid_grant","error_description":"{}"}}"#, SUBJECT.repeat(4));
    let error =
        sts(answer("400 Bad Request", "Content-Type: application/json\r\n", &echo)).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(SUBJECT), "{error}");
}

/// An installation's own token service behind TLS, trusted because `caFile` says so, and by its own authority only.
#[tokio::test]
async fn an_upstream_with_an_authority_of_its_own_is_trusted_by_the_ca_file_and_by_nothing_else() {
    let (own, other) = (CertificateAuthority::new().unwrap(), CertificateAuthority::new().unwrap());
    let answer = ok(FEDERATED);
    let play = move |mut peer: Peer, _: usize| {
        let head = peer.read_request_head()?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        peer.read_body(length.unwrap_or(0))?;
        peer.send(answer.as_bytes())
    };
    let server = Server::start_tls(own.server_config(&[], false).unwrap(), play).unwrap();
    let url = format!("https://localhost:{}", server.address().port());
    let ask = async |roots: Option<String>| {
        let (clock, _hand) = Clock::manual();
        let google =
            GoogleExchange::new(GoogleExchangeConfig { extra_roots: roots, ..config(&url) }, clock).unwrap();
        google.issue(&principal(None, access()), &Subject(SUBJECT)).await
    };
    assert_eq!(ask(Some(own.certificate())).await.unwrap().credential.text(), "federated");
    for roots in [None, Some(other.certificate())] {
        let error = ask(roots).await.unwrap_err();
        assert_eq!(error.fault, ExchangeFault::Unavailable);
        assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    }
}
