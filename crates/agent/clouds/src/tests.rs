//! Tests of [`Clouds`] on a listener that both clouds share.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use seawall_config::Document;
use seawall_http::ResponseContext;
use seawall_server::testing::TestThread;
use seawall_server::thread::{TestNextAction, TestTurnOutcome};
use serde_json::json;

use super::*;
use crate::pod::PodOrUnknownClient;
use crate::testing::{BOTH_CLOUDS_BROKERED_CONFIG, PodFixture, RESPONSE_DATE};

#[tokio::test]
async fn the_path_chooses_among_the_dialects_of_a_listener() {
    let world = PodFixture::new();
    assert!(world.dialects.dialect_for_target("/latest/api/token").keeps_alive_after("PUT"));
    assert!(!world.dialects.dialect_for_target("/computeMetadata/v1/").keeps_alive_after("PUT"));
    let (answer, _) = world.send_request("GET /computeMetadata/v1/instance/attributes/kube-env").await;
    assert!(answer.contains("Metadata-Flavor: Google"), "{answer}");
    let (answer, _) = world.send_request("GET /latest/elsewhere").await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && !answer.contains("Google"), "{answer}");
    let (answer, _) = world.send_request("GET http://a/%6catest/elsewhere").await;
    assert!(
        answer.starts_with("HTTP/1.1 404 ") && !answer.contains("Google"),
        "an escaped path has the same dialect: {answer}"
    );
    let (answer, _) = world.send_request("GET /nobodys").await;
    assert!(
        answer.contains("Metadata-Flavor: Google"),
        "the first dialect refuses a path that no dialect claims: {answer}"
    );
}

#[tokio::test]
async fn a_pod_is_shown_with_what_each_cloud_says_under_its_name() {
    let world = PodFixture::with_sections(BOTH_CLOUDS_BROKERED_CONFIG);
    let shown = world.pod().entitlements().to_debug_json(world.clock.now());
    assert_eq!(shown["google"], json!({ "status": "pending" }));
    assert_eq!(shown["aws"], json!({ "status": "no_role" }));
    assert!(PodFixture::new().pod().entitlements().to_debug_json(world.clock.now())["google"].is_object());
}

#[tokio::test]
async fn what_the_list_tells_it_tells_of_each_cloud() {
    let world = PodFixture::with_sections(BOTH_CLOUDS_BROKERED_CONFIG);
    let floors: Vec<_> =
        world.clouds.floor_states().iter().map(|state| (state.cloud, state.was_always_kept)).collect();
    assert_eq!(floors, CloudName::ALL.iter().map(|cloud| (*cloud, true)).collect::<Vec<_>>());
    let routes = world.clouds.routes();
    for cloud in CloudName::ALL {
        assert!(routes.iter().any(|route| route.cloud_label() == cloud.as_str()), "{cloud:?}");
    }
    let document = Document::parse(BOTH_CLOUDS_BROKERED_CONFIG).unwrap();
    let sections = CloudsConfig::read(&document.root(), Path::new("/"), &[]);
    assert_eq!(
        (sections.names(), sections.annotation_keys().len()),
        (CloudName::ALL.to_vec(), CloudName::ALL.len())
    );
}

#[tokio::test]
async fn readiness_is_answered_by_the_dialect_that_it_asks() {
    let mut world = PodFixture::new();
    world.caller = PodOrUnknownClient::OwnReadinessRequest;
    // In `conceal` mode the real server answers Google's readiness request, so this test omits it.
    for probe in world.clouds.readiness_requests(&[DialectName::AwsImds, DialectName::AwsContainers]) {
        let headers = probe.headers.trim_end();
        let (answer, at_once) = world.send_with_header(probe.method, probe.target, headers).await;
        assert!(at_once && answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.to_ascii_lowercase().contains(probe.expected_header), "{answer}");
    }
}

#[tokio::test]
async fn a_dialect_is_made_once_for_all_listeners_of_a_thread() {
    let world = PodFixture::new();
    let [one, two] =
        &world.clouds.build_dialects(&vec![vec![DialectName::Google]; 2], &world.resources).unwrap()[..]
    else {
        panic!("two listeners")
    };
    assert!(std::ptr::addr_eq(one.dialect_for_target("/"), two.dialect_for_target("/")));
}

#[test]
fn what_is_no_request_is_refused_in_the_words_of_the_first_dialect() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(async { PodFixture::new() });
    let mut out = Vec::new();
    let refusal = seawall_http::Refusal::new(400, "malformed_request", "no");
    world.dialects.first().refuse(&refusal, &ResponseContext::for_invalid_request(RESPONSE_DATE), &mut out);
    assert!(String::from_utf8(out).unwrap().contains("Metadata-Flavor: Google"));
}

/// Returns a thread that handles the fixture's requests.
fn bench(world: &PodFixture) -> TestThread<PodEntry> {
    TestThread::new(&world.clock, &world.clouds.routes())
}

fn bytes(request: &str) -> String {
    format!("{request} HTTP/1.1\r\nHost: a\r\nMetadata-Flavor: Google\r\n\r\n")
}

/// Returns the thread's answer to one request of the fixture's pod.
fn ask(world: &PodFixture, request: &str) -> TestTurnOutcome {
    ask_of(world, &bytes(request))
}

fn ask_of(world: &PodFixture, bytes: &str) -> TestTurnOutcome {
    bench(world).answer(&world.dialects, &world.caller, &world.pod, bytes.as_bytes())
}

#[tokio::test]
async fn a_pod_that_is_gone_is_refused_whatever_dialect_it_asks() {
    let world = PodFixture::new();
    world.pod.connection_counter.close();
    for request in ["GET /latest/meta-data/", "GET /computeMetadata/v1/", "GET /nobodys"] {
        let TestTurnOutcome { answer_text: answer, next_action, .. } = ask(&world, request);
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("pod_gone"), "{request}: {answer}");
        assert_eq!(next_action, TestNextAction::Close, "{request}");
    }
}

/// Regression: the agent refused a deleted pod a session token. After this refusal a client sends requests without a token,
/// sometimes permanently.
#[tokio::test]
async fn a_pod_that_is_gone_is_given_what_whoever_asks_is_given_and_its_connection_ends() {
    let world = PodFixture::with_sections("aws: { region: eu-central-1 }\n");
    world.pod.connection_counter.close();
    let put = "PUT /latest/api/token HTTP/1.1\r\nHost: a\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\n\r\n";
    let TestTurnOutcome { answer_text: answer, next_action, .. } = ask_of(&world, put);
    assert!(answer.starts_with("HTTP/1.1 200 ") && next_action == TestNextAction::Close, "{answer}");
    let TestTurnOutcome { answer_text: answer, next_action, .. } = ask(&world, "PUT /latest/meta-data/");
    assert!(answer.starts_with("HTTP/1.1 405 ") && next_action == TestNextAction::Close, "{answer}");
    let TestTurnOutcome { answer_text: answer, .. } = ask(&world, "GET /latest/meta-data/");
    assert!(answer.contains("pod_gone"), "{answer}");
}

/// Regression: at the connection limit, the listener's first dialect refused every request with a `Retry-After` header, which AWS
/// clients must not get.
#[tokio::test]
async fn at_the_cap_a_session_token_is_given_and_the_rest_is_refused_by_the_dialect_that_is_asked() {
    let world = PodFixture::with_sections(BOTH_CLOUDS_BROKERED_CONFIG);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let put = "PUT /latest/api/token HTTP/1.1\r\nHost: a\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\n\r\n";
    for (request, status, is_told_when) in [
        (put.to_owned(), "200", false),
        (bytes("GET /latest/meta-data/"), "503", false),
        (bytes("GET /computeMetadata/v1/project/project-id"), "503", true),
        ("GET /latest/meta-data/".to_owned(), "503", true),
    ] {
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        bench(&world).refuse_deleted_pod(&mut stream, &world.dialects, &world.pod);
        drop(stream);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        let answer = answer.to_ascii_lowercase();
        assert!(answer.contains("connection: close"), "{answer}");
        assert_eq!(answer.contains("retry-after"), is_told_when, "{request}: {answer}");
    }
}

#[tokio::test]
async fn only_the_cloud_that_is_not_decided_holds_its_requests() {
    let world = PodFixture::with_sections(BOTH_CLOUDS_BROKERED_CONFIG);
    let TestTurnOutcome { answer_text: answer, consumed_bytes, next_action } =
        ask(&world, "GET /computeMetadata/v1/instance/service-accounts/default/token");
    assert_eq!(next_action, TestNextAction::AwaitIdentity(CloudName::Google, Duration::from_millis(500)));
    assert!(
        answer.is_empty() && consumed_bytes == 0,
        "the thread keeps the request until it can answer: {answer}"
    );
    let TestTurnOutcome { answer_text: answer, .. } =
        ask(&world, "GET /latest/meta-data/iam/security-credentials/");
    assert!(answer.starts_with("HTTP/1.1 404 "), "AWS answers at once: {answer}");
    let TestTurnOutcome { answer_text: answer, .. } = ask(&world, "GET /");
    assert!(answer.starts_with("HTTP/1.1 200 "), "a public answer needs no entitlement: {answer}");
}
