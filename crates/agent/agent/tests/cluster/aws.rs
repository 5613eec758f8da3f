//! AWS's roles by the annotations of real objects: what is said of a pod, its ServiceAccount and its namespace, and what changes.

use seawall_testkit::objects::service_accounts_path;
use serde_json::json;

use crate::support::aws::{
    BASE, ROLES, annotate, annotated, arn, containers_token, give_role, give_roles, permit, start,
};
use crate::support::network::CONTAINERS;
use crate::support::*;

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_service_accounts_role_and_a_pods_own_are_theirs_by_their_annotations() {
    let (mut world, sts) = start("required");
    give_roles(&world);
    let irsa = world.pod("irsa-0", "irsa");
    let kiam =
        annotated(&mut world, "kiam-0", "plain-kiam", &json!({"iam.amazonaws.com/role": "kiam-reader"}));
    assert_eq!(sts.role_of(&irsa.document()), format!("{BASE}irsa"));
    assert_eq!(sts.role_of(&kiam.document()), format!("{BASE}kiam-reader"));
    // Google's beside them, at the same address.
    world.check_pod(&irsa);

    let token = containers_token(&world, &irsa);
    let ask = |pod: &Pod| {
        let request =
            format!("GET /v1/credentials HTTP/1.1\r\nHost: {CONTAINERS}\r\nAuthorization: {token}\r\n\r\n");
        pod.send(CONTAINERS, &request)
    };
    assert_eq!(sts.role_of(&ask(&irsa).json()), format!("{BASE}irsa"));
    assert_eq!(ask(&kiam).json()["code"], "token_pod_mismatch");
}

/// EKS's webhook acts on its own annotation alone, and on a pod that it gave a token file the SDK never asks the agent.
#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_role_at_an_annotation_that_the_webhook_ignores_is_given_and_a_pod_of_the_webhook_is_named() {
    let (mut world, sts) = start("required");
    give_role(&world, "irsa");
    let others = format!("{}/plain-none", service_accounts_path());
    annotate(&world, &others, &json!({"seawall.example/role-arn": arn("irsa-other")}));
    let irsa = world.pod("irsa-0", "irsa");
    assert_eq!(sts.role_of(&irsa.document()), format!("{BASE}irsa"));
    world.reconfigure(|text| {
        text.replacen("  roleSources:", "  irsaAnnotationPrefix: seawall.example\n  roleSources:", 1)
    });
    let other = world.pod("other-0", "plain-none");
    assert_eq!(sts.role_of(&other.document()), format!("{BASE}irsa-other"));
    assert_eq!(irsa.get(ROLES).status, 404, "its annotation is the webhook's alone");

    let env = json!([{"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": "/var/run/secrets/token"}]);
    let containers = json!([{"name": "main", "image": "local/none:1", "env": env}]);
    world.api.make_pod_with("webhook-0", "irsa", &json!({ "containers": containers }));
    world.api.set_pod_status("webhook-0", "Running", "10.88.77.9");
    let shown = wait_until_some("the pod to be known", || {
        let pods = world.admin("/debug/pods").json()["pods"].take();
        pods.as_array()?.iter().find(|pod| pod["pod"] == "webhook-0").cloned()
    });
    assert_eq!(shown["aws"]["credential_variables"], json!(["AWS_WEB_IDENTITY_TOKEN_FILE"]));
    assert_eq!(shown["google"]["credential_variables"], json!([]));
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_namespace_that_does_not_permit_a_role_is_named_in_an_event_and_permits_it_once_it_says_so() {
    let (mut world, sts) = start("required");
    let role = json!({"iam.amazonaws.com/role": "kiam-reader"});
    let kiam = annotated(&mut world, "kiam-0", "plain-kiam", &role);
    wait_until_true("the refusal", || kiam.get(ROLES).status == 403);
    assert_eq!(kiam.get(ROLES).json()["code"], "no_permitted_annotation");
    let (reason, message) = world.events(&kiam).remove(0);
    assert_eq!(reason, "CredentialsRefusedByPolicy");
    assert!(message.contains("iam.amazonaws.com/permitted"), "{message}");

    permit(&world, ".*");
    wait_until_true("the namespace to permit it", || kiam.get(ROLES).status == 200);
    assert_eq!(sts.role_of(&kiam.document()), format!("{BASE}kiam-reader"));
    permit(&world, "other");
    wait_until_true("the namespace to take it back", || kiam.get(ROLES).status == 403);
}
