//! The metadata server: its tree as golden files, its manners, its secrets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at once")]

mod common;

use std::time::Duration;

use common::{get, start};
use seawall_emulator::google::{EmulatedAccessToken, SECRET_VALUE_MARKER};
use serde_json::{Value, json};

const NODE: &str = "node@seawall-emulator.iam.gserviceaccount.com";

#[tokio::test]
async fn the_tree_is_as_reviewed() {
    let google = start().await;
    let tree = google.metadata("/computeMetadata/v1/?recursive=true").await;
    assert_eq!(tree.header("content-type"), "application/json");
    insta::assert_snapshot!("v1_json", serde_json::to_string_pretty(&tree.json()).unwrap());
    let lines = google.metadata("/computeMetadata/v1/?recursive=true&alt=text").await;
    assert_eq!(lines.header("content-type"), "application/text");
    insta::assert_snapshot!("v1_text", lines.body);
    insta::assert_snapshot!(
        "first_version_text",
        google.metadata("/0.1/meta-data/?recursive=true&alt=text").await.body
    );
    let mut listings = String::new();
    for directory in [
        "/",
        "/0.1/",
        "/0.1/meta-data/",
        "/computeMetadata/",
        "/computeMetadata/v1/",
        "/computeMetadata/v1beta1/",
        "/computeMetadata/v1/instance/",
        "/computeMetadata/v1/instance/attributes/",
        "/computeMetadata/v1/instance/disks/",
        "/computeMetadata/v1/instance/network-interfaces/0/",
        "/computeMetadata/v1/instance/service-accounts/",
        "/computeMetadata/v1/instance/service-accounts/default/",
        "/computeMetadata/v1/instance/guest-attributes/",
        "/computeMetadata/v1/project/",
        "/computeMetadata/v1/universe/",
    ] {
        listings += &format!("{directory}\n{}\n", google.metadata(directory).await.body);
    }
    insta::assert_snapshot!("listings", listings);
}

#[tokio::test]
async fn leaves_are_text_or_json() {
    let google = start().await;
    for (path, kind, body) in [
        ("instance/id", "application/text", "8087716956832600001"),
        ("instance/id?alt=json", "application/json", "8087716956832600001"),
        ("instance/zone", "application/text", "projects/123456789012/zones/europe-west1-b"),
        ("instance/name?alt=json", "application/json", "\"node-1\""),
        ("instance/tags", "application/json", "[\"node\"]"),
        ("instance/network-interfaces/0/mtu", "application/text", "1460"),
        ("instance/network-interfaces/0/dns-servers", "application/text", "169.254.169.254\n"),
        ("instance/service-accounts/default/aliases", "application/text", "default\n"),
        ("instance/service-accounts/default/email", "application/text", NODE),
        ("universe/universe-domain", "application/text", "googleapis.com"),
        ("project/numeric-project-id", "application/text", "123456789012"),
    ] {
        let leaf = google.metadata(&format!("/computeMetadata/v1/{path}")).await;
        assert_eq!(
            (leaf.status.as_u16(), leaf.header("content-type"), leaf.body.as_str()),
            (200, kind, body),
            "{path}"
        );
        assert_eq!(leaf.header("etag").len(), 16);
    }
}

#[tokio::test]
async fn every_answer_has_the_headers_of_the_real_one() {
    let google = start().await;
    for target in ["/", "/computeMetadata/v1/instance/id", "/nothing", "/computeMetadata/v1/instance?alt=xml"]
    {
        for headers in [&[][..], &[("metadata-flavor", "Google")], &[("x-forwarded-for", "10.0.0.1")]] {
            let answer = google.send(get(target, headers)).await;
            assert_eq!(answer.header("metadata-flavor"), "Google", "{target}");
            assert_eq!(answer.header("server"), "Metadata Server for VM");
            assert_eq!(
                (answer.header("x-frame-options"), answer.header("x-xss-protection")),
                ("SAMEORIGIN", "0")
            );
        }
    }
}

#[tokio::test]
async fn the_header_is_demanded_by_the_current_version_alone() {
    let google = start().await;
    let v1 = "/computeMetadata/v1/instance/id";
    for (target, headers, status) in [
        (v1, &[][..], 403),
        (v1, &[("metadata-flavor", "google")], 403),
        ("//computemetadata//V1/instance/id", &[], 403),
        ("/computeMetadata%2Fv1/instance/id", &[], 403),
        (v1, &[("metadata-flavor", "Google")], 200),
        (v1, &[("x-google-metadata-request", "True")], 200),
        (v1, &[("metadata-flavor", "Google"), ("x-forwarded-for", "1.2.3.4")], 403),
        ("/", &[], 200),
        ("/", &[("x-forwarded-for", "1.2.3.4")], 403),
        ("/computeMetadata/v1beta1/instance/id", &[], 200),
        ("/0.1/meta-data/instance-id", &[], 200),
    ] {
        assert_eq!(google.send(get(target, headers)).await.status, status, "{target} {headers:?}");
    }
}

#[tokio::test]
async fn directories_redirect_to_their_slash_and_leaves_have_none() {
    let google = start().await;
    let redirect = google.metadata("/computeMetadata/v1/instance?recursive=true").await;
    assert_eq!(redirect.status, 301);
    assert_eq!(redirect.header("location"), "/computeMetadata/v1/instance/?recursive=true");
    assert_eq!(redirect.body, "/computeMetadata/v1/instance/\n");
    let strange = google.metadata("/computeMetadata/v1/instance%0d%0aset-cookie:%20a=b").await;
    assert_eq!(strange.status, 404);
    for missing in [
        "instance/id/",
        "instance/nothing",
        "instance/disks/1/",
        "instance/service-accounts/x@y/token",
        "instance/id/x",
    ] {
        let answer = google.metadata(&format!("/computeMetadata/v1/{missing}")).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("content-type")),
            (404, "text/html; charset=UTF-8"),
            "{missing}"
        );
    }
    for wrong in ["alt=xml", "timeout_sec=soon", "recursive=perhaps"] {
        assert_eq!(
            google.metadata(&format!("/computeMetadata/v1/instance/?{wrong}")).await.status,
            400,
            "{wrong}"
        );
    }
    let mut post = get("/computeMetadata/v1/instance/id", &[("metadata-flavor", "Google")]);
    *post.method_mut() = http::Method::POST;
    assert_eq!(google.send(post).await.status, 405);
}

#[tokio::test]
async fn the_machines_tokens_are_its_own() {
    let google = start().await;
    for account in ["default", NODE, "NODE%40seawall-emulator.iam.gserviceaccount.com"] {
        let path = format!("/computeMetadata/v1/instance/service-accounts/{account}");
        let token = google.metadata(&format!("{path}/token?scopes=a,b")).await;
        assert_eq!(token.header("content-type"), "application/json");
        let token = token.json();
        assert_eq!((&token["expires_in"], &token["token_type"]), (&json!(3600), &json!("Bearer")));
        let read = EmulatedAccessToken::peek(token["access_token"].as_str().unwrap()).unwrap();
        assert_eq!(
            (read.account.as_deref(), read.scopes),
            (Some(NODE), vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(google.metadata(&format!("{path}/identity")).await.status, 400);
    }
    let old = google.metadata("/0.1/meta-data/service-accounts/default/acquire").await.json();
    assert!(EmulatedAccessToken::peek(old["accessToken"].as_str().unwrap()).is_some());
    let identity = google.metadata(
        "/computeMetadata/v1/instance/service-accounts/default/identity?audience=https://a.example&format=full",
    );
    let identity = identity.await;
    assert_eq!(identity.header("content-type"), "text/html");
    let claims: Value = jsonwebtoken::dangerous::insecure_decode(&identity.body).unwrap().claims;
    assert_eq!((&claims["aud"], &claims["email"]), (&json!("https://a.example"), &json!(NODE)));
    assert_eq!(claims["google"]["compute_engine"]["instance_name"], "node-1");
}

#[tokio::test]
async fn every_secret_is_marked_and_there_under_every_spelling() {
    let google = start().await;
    for target in [
        "/computeMetadata/v1/instance/attributes/kube-env",
        "/computeMetadata/v1beta1/instance/attributes/kube-env",
        "/0.1/meta-data/attributes/kube-env",
        "/computemetadata/v1/instance/attributes/KUBE-ENV",
        "/computeMetadata/v1/instance/attributes/kube%2Denv",
        "//computeMetadata/v1/instance//attributes/./x/../kube-env",
        "/computeMetadata/v1/instance/attributes/kube-env?alt=json",
        "/computeMetadata/v1/instance/attributes/?recursive=true",
        "/computeMetadata/v1/?recursive=1&alt=text",
        "/?recursive=true",
    ] {
        let shown = google.metadata(target).await;
        assert!(shown.body.contains(&format!("{SECRET_VALUE_MARKER}:kube-env")), "{target}: {}", shown.body);
    }
    let recursion = google.metadata("/?recursive=true").await;
    assert!(!recursion.body.contains("ya29.") && !recursion.body.contains("eyJ"));
}

#[tokio::test]
async fn waiting_for_a_change_ends_with_the_change() {
    let google = start().await;
    let attribute = "/computeMetadata/v1/instance/attributes/drain";
    google.running.set_instance_attribute("drain", "no");
    let now = google.metadata(attribute).await;
    assert_eq!(now.body, "no");
    let etag = now.header("etag").to_owned();

    let started = google.metadata(&format!("{attribute}?wait_for_change=true&last_etag=NONE")).await;
    assert_eq!((started.body.as_str(), started.header("etag")), ("no", etag.as_str()));

    let waiting = format!(
        "/computeMetadata/v1/instance/?recursive=true&wait_for_change=true&last_etag={}",
        whole(&google).await
    );
    let (changed, ()) = tokio::join!(google.metadata(&waiting), async {
        until_held(&google).await;
        google.running.set_instance_attribute("drain", "yes");
    });
    assert_eq!(changed.json()["attributes"]["drain"], "yes");
    assert_eq!(changed.header("etag"), whole(&google).await);
    assert_eq!(google.metadata("/0.1/meta-data/attributes/drain").await.body, "yes");
}

async fn whole(google: &common::Google) -> String {
    google.metadata("/computeMetadata/v1/instance/?recursive=true").await.header("etag").to_owned()
}

async fn until_held(google: &common::Google) {
    while google.running.endpoint_request_counts(seawall_emulator::google::GoogleEndpoint::Metadata).in_flight
        == 0
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn waiting_ends_at_its_timeout_with_what_is_there() {
    let google = start().await;
    let target = "/computeMetadata/v1/instance/name?wait_for_change=true&timeout_sec=60";
    let (answer, ()) = tokio::join!(google.metadata(target), async {
        while google.hand.next_deadline().is_none() {
            tokio::task::yield_now().await;
        }
        // A change elsewhere does not end the wait for this one.
        google.running.set_instance_attribute("drain", "yes");
        google.hand.advance(Duration::from_secs(60));
    });
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "node-1"));
}
