//! What a broken cloud does on the wire.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at once")]

mod common;

use std::time::Duration;

use common::{CLOUD_PLATFORM, EMAIL, Google, get, start, start_with};
use seawall_emulator::faults::{ExcessAction, Faults, Throttle};
use seawall_emulator::google::GoogleEndpoint;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn throttle(per_second: u32, burst: u32, excess: ExcessAction) -> Faults {
    Faults { throttle: Some(Throttle { per_second, burst, excess }), ..Faults::default() }
}

#[tokio::test]
async fn errors_have_the_shape_of_the_api_and_end_when_mended() {
    let google = start().await;
    let token = google.token("coral");
    google.running.set_faults(&Faults { error_rate: 1.0, ..Faults::default() });
    let broken = google.exchange(&token).await;
    assert_eq!((broken.status.as_u16(), &broken.json()["error"]["status"]), (500, &json!("INTERNAL")));
    google.running.set_faults(&Faults { error_rate: 1.0, error_status: Some(503), ..Faults::default() });
    let broken = google.exchange(&token).await;
    assert_eq!((broken.status.as_u16(), &broken.json()["error"]["status"]), (503, &json!("UNAVAILABLE")));
    google.running.set_faults(&Faults { error_rate: 1.0, html_errors: true, ..Faults::default() });
    let broken = google.exchange(&token).await;
    assert!(
        broken.header("content-type").starts_with("text/html") && broken.body.starts_with("<!DOCTYPE html>")
    );
    google.running.set_faults(&Faults::default());
    assert_eq!(google.exchange(&token).await.status, 200);
    let counts = google.running.endpoint_request_counts(GoogleEndpoint::Exchange);
    assert_eq!((counts.calls, counts.faulted, counts.answered), (4, 3, 1));
}

#[tokio::test]
async fn a_broken_metadata_server_keeps_its_headers() {
    let google = start_with(|options| options.faults = throttle(1, 1, ExcessAction::Refuse)).await;
    assert_eq!(google.metadata("/computeMetadata/v1/instance/id").await.status, 200);
    let refused = google.metadata("/computeMetadata/v1/instance/id").await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "1"));
    assert_eq!(refused.header("metadata-flavor"), "Google");
    assert!(refused.header("content-type").starts_with("text/html"));
}

#[tokio::test]
async fn faults_on_one_endpoint_leave_the_others_and_the_truth_alone() {
    let google = start().await;
    let bearer = google.federated("coral").await;
    google.running.set_faults(&Faults { close_rate: 1.0, ..Faults::default() });
    google.running.set_faults_on(GoogleEndpoint::AccessToken, Faults::default());
    assert_eq!(google.access_token(&bearer).await.status, 200);
    assert_eq!(google.send(get(&format!("/tokeninfo?access_token={bearer}"), &[])).await.status, 200);
    assert_eq!(google.send(get("/emulator/counts", &[])).await.json()["endpoints"]["exchange"]["calls"], 1);
    assert!(google.try_send(get("/", &[])).await.is_err());
}

#[tokio::test]
async fn a_refusing_throttle_says_when_to_come_back() {
    let google = start().await;
    let token = google.token("coral");
    google.running.set_faults_on(GoogleEndpoint::Exchange, throttle(1, 2, ExcessAction::Refuse));
    for status in [200, 200, 429] {
        assert_eq!(google.exchange(&token).await.status, status);
    }
    let refused = google.exchange(&token).await;
    assert_eq!(refused.json()["error"]["status"], "RESOURCE_EXHAUSTED");
    assert_eq!(refused.header("retry-after"), "1");
    google.hand.advance(Duration::from_secs(1));
    assert_eq!(google.exchange(&token).await.status, 200);
}

#[tokio::test]
async fn latency_holds_every_answer_back_on_the_callers_clock() {
    let google = start().await;
    google.running.set_faults(&Faults { latency: Duration::from_secs(5), ..Faults::default() });
    let token = google.token("coral");
    let asked = google.clock.now();
    let (answer, ()) = tokio::join!(google.exchange(&token), async {
        while google.hand.next_deadline() != Some(asked + Duration::from_secs(5)) {
            tokio::task::yield_now().await;
        }
        assert_eq!(google.running.endpoint_request_counts(GoogleEndpoint::Exchange).in_flight, 1);
        google.hand.advance(Duration::from_secs(5));
    });
    assert_eq!(answer.status, 200);
}

/// Returns once that many requests are in the air at the exchange.
async fn until_in_flight(google: &Google, wanted: u64) {
    while google.running.endpoint_request_counts(GoogleEndpoint::Exchange).in_flight != wanted {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_that_hangs_is_let_go_with_its_client_and_with_the_emulator() {
    let google = start().await;
    google.running.set_faults(&Faults { hang_rate: 1.0, ..Faults::default() });
    let token = google.token("coral");
    tokio::select! {
        _ = google.exchange(&token) => panic!("it was answered"),
        () = until_in_flight(&google, 1) => {}
    }
    until_in_flight(&google, 0).await;
    assert_eq!(google.running.endpoint_request_counts(GoogleEndpoint::Exchange).faulted, 1);

    let mut stream = tokio::net::TcpStream::connect(google.running.address()).await.unwrap();
    stream.write_all(b"POST /v1/token HTTP/1.1\r\nhost: sts\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    until_in_flight(&google, 1).await;
    google.running.shutdown().await;
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_limit_that_hangs_answers_up_to_its_rate_only() {
    let google = start().await;
    google.running.set_faults(&throttle(100, 3, ExcessAction::Hang));
    let token = google.token("coral");
    for _ in 0..3 {
        assert_eq!(google.exchange(&token).await.status, 200);
    }
    tokio::select! {
        _ = google.exchange(&token) => panic!("it was answered"),
        () = until_in_flight(&google, 1) => {}
    }
}

#[tokio::test]
async fn a_cut_body_is_well_formed_http_around_ill_formed_json() {
    let google = start().await;
    let bearer = google.federated("coral").await;
    google.running.set_faults(&Faults { truncated_body_rate: 1.0, ..Faults::default() });
    let body = json!({"scope": [CLOUD_PLATFORM]});
    let cut = google.call(&bearer, EMAIL, "generateAccessToken", &body).await;
    assert_eq!(cut.status, 200);
    assert!(cut.body.starts_with('{') && serde_json::from_str::<serde_json::Value>(&cut.body).is_err());
}

#[tokio::test]
async fn bytes_that_are_not_http_end_the_connection_and_nothing_else() {
    let google = start().await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost",
        &[0; 40_000],
    ] {
        let mut stream = tokio::net::TcpStream::connect(google.running.address()).await.unwrap();
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
    }
    assert_eq!(google.metadata("/").await.status, 200);
}
