//! AWS's roles by the annotations of real objects: what is said of a pod, its ServiceAccount and its namespace, and what changes.

use seawall_testkit::objects::{NAMESPACE, accounts, pods};
use serde_json::{Value, json};

use crate::support::aws::{ROLES, Sts, USER, annotate, arn, give_role, role};
use crate::support::network::METADATA;
use crate::support::*;

const CONTAINERS: u16 = 8023;

/// A world whose agent speaks AWS's dialects, too.
fn start() -> (World, Sts) {
    let mut world = World::start(&["irsa", "plain-kiam"], "");
    let roles = vec![give_role(&world.api, "irsa"), role("kiam-reader", USER)];
    let sts = Sts::start(&world.api, roles);
    let section = sts.section(&world);
    let listener =
        format!("\"127.0.0.1:0\", {{ address: \"{METADATA}:{CONTAINERS}\", dialects: [aws-containers] }}]");
    world.reconfigure(|text| text.replacen("\"127.0.0.1:0\"]", &listener, 1) + &section);
    (world, sts)
}

/// A pod that runs, with these annotations from the beginning of its address on.
fn annotated(world: &mut World, name: &str, account: &str, annotations: &Value) -> Pod {
    let pod = world.bound(name, account);
    annotate(&world.api, &format!("{}/{name}", pods()), annotations);
    world.api.report(name, "Running", &pod.sandbox.address.to_string());
    pod
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_service_accounts_role_and_a_pods_own_are_theirs_by_their_annotations() {
    let (mut world, sts) = start();
    annotate(
        &world.api,
        &format!("/api/v1/namespaces/{NAMESPACE}"),
        &json!({"iam.amazonaws.com/permitted": "kiam-.*"}),
    );
    let irsa = world.pod("irsa-0", "irsa");
    let kiam =
        annotated(&mut world, "kiam-0", "plain-kiam", &json!({"iam.amazonaws.com/role": "kiam-reader"}));
    assert_eq!(sts.role_of(&irsa.document()), arn("irsa"));
    assert_eq!(sts.role_of(&kiam.document()), arn("kiam-reader"));
    // Google's beside them, at the same address.
    world.check_pod(&irsa);

    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {
            "audiences": ["pods.eks.amazonaws.com"],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "irsa-0"},
        },
    });
    let path = format!("{}/irsa/token", accounts());
    let token = world.api.must("POST", &path, Some(&request))["status"]["token"].as_str().unwrap().to_owned();
    let ask = |pod: &Pod| {
        let request = format!(
            "GET /v1/credentials HTTP/1.1\r\nHost: {METADATA}:{CONTAINERS}\r\nAuthorization: {token}\r\n\r\n"
        );
        pod.send(CONTAINERS, &request)
    };
    assert_eq!(sts.role_of(&ask(&irsa).json()), arn("irsa"));
    assert_eq!(ask(&kiam).json()["code"], "foreign_token");
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_namespace_that_does_not_permit_a_role_is_named_in_an_event_and_permits_it_once_it_says_so() {
    let (mut world, sts) = start();
    let role = json!({"iam.amazonaws.com/role": "kiam-reader"});
    let kiam = annotated(&mut world, "kiam-0", "plain-kiam", &role);
    until_true("the refusal", || kiam.get(ROLES).status == 403);
    assert_eq!(kiam.get(ROLES).json()["code"], "nothing_permitted");
    let (reason, message) = world.events(&kiam).remove(0);
    assert_eq!(reason, "CredentialsRefusedByPolicy");
    assert!(message.contains("iam.amazonaws.com/permitted"), "{message}");

    let namespace = format!("/api/v1/namespaces/{NAMESPACE}");
    annotate(&world.api, &namespace, &json!({"iam.amazonaws.com/permitted": ".*"}));
    until_true("the namespace to permit it", || kiam.get(ROLES).status == 200);
    assert_eq!(sts.role_of(&kiam.document()), arn("kiam-reader"));
    annotate(&world.api, &namespace, &json!({"iam.amazonaws.com/permitted": "other"}));
    until_true("the namespace to take it back", || kiam.get(ROLES).status == 403);
}
