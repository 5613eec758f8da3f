//! Every pod gets its own credentials, and nobody gets another's.

use crate::support::client::{self, Client, format_get};
use crate::support::cloud::AUDIENCE;
use crate::support::seconds;
use crate::support::world::{
    CART, DIRECT, MALLORY, PAY, PODS, PROJECT, PROJECT_ID, Plan, Pod, STRANGER, TOKEN, World, identity,
};

const ACCOUNTS: &str = "/computeMetadata/v1/instance/service-accounts/";

/// What the cloud says of a token that the agent gave to `pod`.
fn truth(world: &World, pod: &Pod, token: &str) -> (String, Option<String>) {
    let told =
        world.cloud.read_access_token(token).unwrap_or_else(|| panic!("{}: not the cloud's token", pod.name));
    (told.sub, told.account)
}

#[test]
fn each_pod_gets_tokens_of_its_own_account_and_never_anothers() {
    let world = World::start(&Plan::federate());
    let mut clients: Vec<_> = PODS.iter().map(|pod| (pod, world.client(pod))).collect();
    // Interleaved, on kept connections: cold, warm, and warm again.
    for round in 0..3 {
        for (pod, client) in &mut clients {
            let answer = client.ask(&format_get(TOKEN));
            let own = (pod.subject(), pod.email.map(str::to_owned));
            assert_eq!(truth(&world, pod, &answer.token()), own, "{} in round {round}", pod.name);
        }
    }
}

#[test]
fn each_pod_gets_identity_tokens_of_its_own_account_and_never_anothers() {
    let world = World::start(&Plan::federate());
    // One audience for all: what tells the tokens apart is who asks.
    let path = identity("https://shop.example");
    for pod in [CART, PAY, MALLORY, CART, PAY, MALLORY] {
        let answer = world.ask(&pod, &path);
        assert_eq!(answer.status, 200, "{answer:?}");
        let claims = world.cloud.identity(&answer.body, "https://shop.example");
        assert_eq!(claims["email"].as_str(), pod.email, "{}", pod.name);
    }
    let answer = world.ask(&DIRECT, &path);
    assert_eq!(answer.status_and_refusal_code(), (404, "no_account"), "{answer:?}");
}

/// The exchange with GKE's own pools was tested against a scripted server only.
#[test]
fn gkes_own_pool_gives_each_pod_its_own_tokens_with_and_without_an_account() {
    let world = World::start(&Plan::gke_pool());
    for pod in PODS {
        let token = world.ask(&pod, TOKEN).token();
        assert_eq!(truth(&world, &pod, &token), (pod.subject(), pod.email.map(str::to_owned)));
        let principal = world.cloud.read_access_token(&token).unwrap().principal;
        let federated = format!("serviceAccount:{AUDIENCE}[{}/{}]", pod.namespace, pod.account);
        assert_eq!(principal, pod.email.is_none().then_some(federated), "{}", pod.name);
    }
    let answer = world.ask(&CART, &identity("https://shop.example"));
    assert_eq!(answer.status, 200, "{answer:?}");
    let claims = world.cloud.identity(&answer.body, "https://shop.example");
    assert_eq!(claims["email"].as_str(), CART.email);
}

#[test]
fn a_pod_sees_its_own_account_in_the_tree_and_no_other() {
    let world = World::start(&Plan::federate());
    for pod in [CART, PAY, MALLORY] {
        let own = pod.email.unwrap();
        let email = world.ask(&pod, &format!("{ACCOUNTS}default/email"));
        assert_eq!(email.body, own);
        for path in [
            ACCOUNTS.to_owned(),
            format!("{ACCOUNTS}?recursive=true"),
            "/computeMetadata/v1/?recursive=true".into(),
        ] {
            let answer = world.ask(&pod, &path);
            assert_eq!(answer.status, 200, "{answer:?}");
            for other in PODS.iter().filter_map(|other| other.email) {
                assert_eq!(answer.body.contains(other), other == own, "{} sees {other} at {path}", pod.name);
            }
        }
        for other in [CART, PAY, MALLORY].iter().filter(|other| **other != pod) {
            let answer = world.ask(&pod, &format!("{ACCOUNTS}{}/token", other.email.unwrap()));
            assert_eq!(
                answer.status_and_refusal_code(),
                (404, "not_found"),
                "{} asks for {}",
                pod.name,
                other.name
            );
        }
    }
}

#[test]
fn an_unknown_address_is_refused_everything_that_says_anything() {
    let world = World::start(&Plan::federate());
    // Warm first: what is in memory must not be for the asking.
    assert_eq!(world.ask(&CART, TOKEN).status, 200);
    let mut stranger = Client::connect(STRANGER, world.agent.first_listener_address());
    let identity = identity("https://shop.example");
    for path in [PROJECT_ID, TOKEN, &identity, "/computeMetadata/v1/?recursive=true"] {
        for _ in 0..2 {
            let answer = stranger.ask(&format_get(path));
            assert_eq!(answer.status_and_refusal_code(), (403, "unknown_client"), "{path}: {answer:?}");
            assert!(!answer.body.contains(PROJECT), "{answer:?}");
        }
    }
    // Its own word for who it is counts for nothing.
    let claimed = stranger
        .ask(&client::format_get_with_headers(TOKEN, "X-Real-IP: 127.0.0.11\r\nX-Client-IP: 127.0.0.11\r\n"));
    assert_eq!(claimed.status_and_refusal_code(), (403, "unknown_client"), "{claimed:?}");
}

/// Java's and Node's libraries ask once in a process whether there is a metadata server, and hide every later reason if not.
#[test]
fn an_unknown_address_is_told_that_this_is_a_metadata_server_and_nothing_of_it() {
    let world = World::start(&Plan::federate());
    let mut stranger = Client::connect(STRANGER, world.agent.first_listener_address());
    for path in ["/", "/computeMetadata/", "/computeMetadata/v1/", "/computeMetadata/v1/instance/"] {
        let answer = stranger.ask(&format_get(path));
        assert_eq!((answer.status, answer.header("metadata-flavor")), (200, "Google"), "{path}: {answer:?}");
        assert!(!answer.body.contains(PROJECT) && answer.body.len() < 64, "{answer:?}");
    }
    let redirect = stranger.ask(&format_get("/computeMetadata/v1/instance"));
    assert_eq!((redirect.status, redirect.header("location")), (301, "/computeMetadata/v1/instance/"));
    assert_eq!(
        stranger.ask(&format_get(TOKEN)).status_and_refusal_code(),
        (403, "unknown_client"),
        "on the same connection"
    );
}

#[test]
fn node_secrets_are_not_in_a_pods_tree() {
    let world = World::start(&Plan::federate());
    for name in ["kube-env", "kubelet-config", "configure-sh", "user-data", "ssh-keys"] {
        let answer = world.ask(&CART, &format!("/computeMetadata/v1/instance/attributes/{name}"));
        assert_eq!(answer.status_and_refusal_code(), (404, "not_found"), "{answer:?}");
    }
}

#[test]
fn no_answer_says_a_longer_life_than_the_token_has() {
    let world = World::start(&Plan::federate());
    for _ in 0..2 {
        let answer = world.ask(&CART, TOKEN);
        let told = world.cloud.read_access_token(&answer.token()).unwrap();
        let now = seconds();
        let says = answer.json()["expires_in"].as_u64().unwrap();
        assert!(says <= told.exp - now, "says {says} s, has {} s", told.exp - now);
        assert!(says > 6 * 60, "above the floor: {says} s");
        assert_eq!(answer.header("cache-control"), "no-store");
    }
}
