//! Tests the tokens against a fake API server and a manual clock.

use std::sync::Arc;

use seawall_core::{Clock, ManualClock, PodUid, ServiceAccount};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::*;
use crate::fake_api_server::{FakeCall, client_of_fake_server};

const AUDIENCE: &str = "sts.amazonaws.com";

fn pod_tokens() -> (Arc<PodTokenSource>, UnboundedReceiver<FakeCall>, ManualClock) {
    let (clock, hand) = Clock::manual();
    let (link, asked) = client_of_fake_server(clock);
    let service_account = ServiceAccount { namespace: "reef".into(), name: "coral".into() };
    let pod = Pod { uid: PodUid("u1".into()), name: "web-0".into(), service_account };
    let tokens = PodTokenSource {
        pod,
        cache: Arc::default(),
        kube_client: link.into(),
        lifetime: Duration::from_secs(3600),
    };
    (Arc::new(tokens), asked, hand)
}

fn ask(tokens: &Arc<PodTokenSource>) -> JoinHandle<Result<String, SubjectTokenError>> {
    ask_for(tokens, AUDIENCE)
}

fn ask_for(
    tokens: &Arc<PodTokenSource>,
    audience: &'static str,
) -> JoinHandle<Result<String, SubjectTokenError>> {
    let tokens = tokens.clone();
    tokio::spawn(async move { Ok(tokens.subject_token(audience).await?.expose().clone()) })
}

fn answer(token: &str, seconds: u64) -> Value {
    json!({"kind": "TokenRequest", "spec": {"expirationSeconds": seconds}, "status": {"token": token}})
}

fn refusal(code: u16, details: &Value) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "details": details})
}

/// Requests a token that lives for an hour.
async fn with_token(tokens: &Arc<PodTokenSource>, asked: &mut UnboundedReceiver<FakeCall>) {
    let asking = ask(tokens);
    asked.recv().await.unwrap().answer(201, &answer("first", 3600));
    assert_eq!(asking.await.unwrap().unwrap(), "first");
}

#[tokio::test]
async fn the_request_is_bound_to_the_pod() {
    let (tokens, mut asked, _hand) = pod_tokens();
    let asking = ask(&tokens);
    let request = asked.recv().await.unwrap();
    assert_eq!(request.method_and_uri, "POST /api/v1/namespaces/reef/serviceaccounts/coral/token");
    assert_eq!(
        request.body["spec"],
        json!({
            "audiences": [AUDIENCE], "expirationSeconds": 3600,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "u1"},
        })
    );
    request.answer(201, &answer("first", 3600));
    asking.await.unwrap().unwrap();
}

#[tokio::test]
async fn one_request_serves_all_who_ask_at_once() {
    let (tokens, mut asked, _hand) = pod_tokens();
    let asking: Vec<_> = (0..50).map(|_| ask(&tokens)).collect();
    asked.recv().await.unwrap().answer(201, &answer("first", 3600));
    for one in asking {
        assert_eq!(one.await.unwrap().unwrap(), "first");
    }
    assert!(asked.try_recv().is_err());
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_take_the_others_along() {
    let (tokens, mut asked, _hand) = pod_tokens();
    let leaver = ask(&tokens);
    let first = asked.recv().await.unwrap();
    let stayer = ask(&tokens);
    leaver.abort();
    drop(first);
    asked.recv().await.unwrap().answer(201, &answer("second", 3600));
    assert_eq!(stayer.await.unwrap().unwrap(), "second");
}

#[tokio::test]
async fn a_token_is_renewed_at_four_fifths_of_the_life_that_it_was_given() {
    let (tokens, mut asked, hand) = pod_tokens();
    let asking = ask(&tokens);
    // The API server may shorten the requested lifetime.
    asked.recv().await.unwrap().answer(201, &answer("first", 1000));
    asking.await.unwrap().unwrap();
    hand.advance(Duration::from_secs(789));
    assert_eq!(ask(&tokens).await.unwrap().unwrap(), "first");
    hand.advance(Duration::from_secs(12));
    let asking = ask(&tokens);
    asked.recv().await.unwrap().answer(201, &answer("second", 1000));
    assert_eq!(asking.await.unwrap().unwrap(), "second");
}

/// A reload can remove an audience. The agent once kept that audience's token until the pod's end.
#[tokio::test]
async fn a_token_of_an_audience_that_nobody_asks_for_goes_when_it_has_ended() {
    let (tokens, mut asked, hand) = pod_tokens();
    let asking = ask_for(&tokens, "before.example");
    asked.recv().await.unwrap().answer(201, &answer("old", 600));
    asking.await.unwrap().unwrap();
    with_token(&tokens, &mut asked).await;
    let audiences =
        || tokens.cache.0.lock().unwrap().iter().map(|(known, _)| known.to_string()).collect::<Vec<_>>();
    assert_eq!(audiences(), ["before.example", AUDIENCE], "a reload can add the audience again");
    hand.advance(Duration::from_secs(600));
    ask(&tokens).await.unwrap().unwrap();
    assert_eq!(audiences(), [AUDIENCE]);
}

#[tokio::test]
async fn while_renewal_fails_the_old_token_serves_and_the_api_server_is_left_in_peace() {
    let (tokens, mut asked, hand) = pod_tokens();
    with_token(&tokens, &mut asked).await;
    hand.advance(Duration::from_secs(3000));
    let asking = ask(&tokens);
    drop(asked.recv().await.unwrap());
    assert_eq!(asking.await.unwrap().unwrap(), "first");
    // The agent does not retry at once, even if many requests arrive.
    for _ in 0..100 {
        assert_eq!(ask(&tokens).await.unwrap().unwrap(), "first");
    }
    assert!(asked.try_recv().is_err());

    // The agent no longer serves the token after it expires.
    hand.advance(Duration::from_secs(595));
    let asking = ask(&tokens);
    drop(asked.recv().await.unwrap());
    assert!(asking.await.unwrap().unwrap_err().is_retryable);
}

#[tokio::test]
async fn a_slow_renewal_is_cut_short_because_a_copy_is_at_hand() {
    let (tokens, mut asked, hand) = pod_tokens();
    with_token(&tokens, &mut asked).await;
    hand.advance(Duration::from_secs(3000));
    let asking = ask(&tokens);
    let _silent = asked.recv().await.unwrap();
    hand.advance(tokens.kube_client.timeouts.token_renewal);
    assert_eq!(asking.await.unwrap().unwrap(), "first");
}

#[tokio::test]
async fn a_pod_or_account_that_is_gone_takes_its_valid_tokens_along() {
    for (code, details) in
        [(404, json!({"kind": "pods"})), (404, json!({"kind": "serviceaccounts"})), (409, json!({}))]
    {
        let (tokens, mut asked, hand) = pod_tokens();
        with_token(&tokens, &mut asked).await;
        hand.advance(Duration::from_secs(3000));
        for _ in 0..2 {
            let asking = ask(&tokens);
            asked.recv().await.unwrap().answer(code, &refusal(code, &details));
            assert!(!asking.await.unwrap().unwrap_err().is_retryable);
        }
    }
}

#[tokio::test]
async fn each_failure_says_what_it_is_and_whether_to_try_again() {
    for (code, details, retryable, says) in [
        (403, json!({}), false, "does not allow the agent to request a token for reef/coral"),
        (404, json!({"kind": "serviceaccounts"}), false, "the ServiceAccount reef/coral does not exist"),
        (404, json!({"kind": "pods"}), false, "the pod web-0 is gone"),
        (409, json!({}), false, "the pod web-0 is gone"),
        (400, json!({}), false, "rejects the token request"),
        (429, json!({"retryAfterSeconds": 3}), true, "limits the rate"),
        (500, json!({}), true, "fails (500)"),
        (503, json!({}), true, "fails (503)"),
    ] {
        let (tokens, mut asked, _hand) = pod_tokens();
        let asking = ask(&tokens);
        asked.recv().await.unwrap().answer(code, &refusal(code, &details));
        let error = asking.await.unwrap().unwrap_err();
        assert_eq!(error.is_retryable, retryable, "{code}: {error}");
        assert!(error.reason.contains(says), "{code}: {error}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_never_repeated_in_an_error() {
    for wrong in [
        json!({"status": {"token": "eyJ-very-secret"}, "spec": []}),
        json!({"status": "eyJ-very-secret", "spec": {"expirationSeconds": 600}}),
        json!("eyJ-very-secret"),
    ] {
        let (tokens, mut asked, _hand) = pod_tokens();
        let asking = ask(&tokens);
        asked.recv().await.unwrap().answer(201, &wrong);
        let error = asking.await.unwrap().unwrap_err();
        assert!(error.reason.contains("cannot read") && !error.reason.contains("very-secret"), "{error}");
    }
}

#[test]
fn renewal_is_at_four_fifths_or_a_day_and_never_later_by_jitter() {
    let hour = Duration::from_secs(3600);
    assert_eq!(renewal(hour, 0.0), Duration::from_secs(2880));
    assert_eq!(renewal(hour, 1.0), Duration::from_secs(2870));
    assert_eq!(renewal(hour * 24 * 365, 0.0), DAY);
    assert_eq!(renewal(Duration::ZERO, 1.0), Duration::ZERO);
}
