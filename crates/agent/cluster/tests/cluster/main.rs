//! Tests the crate against a real kube-apiserver and etcd, under the RBAC of `deploy/`. `scripts/cluster-test` runs these
//! tests. A plain `cargo test` skips them and prints the reason: they need their own network namespace and programs that take
//! minutes to build.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stdout,
    reason = "a test prints its measurement, and a child process responds to its parent"
)]

mod support;

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use seawall_cluster::{ClientConfigSource, ClusterConfig, NodeName, NodePods, PodLookupError, PodSnapshot};
use seawall_core::annotations::{Annotations, LengthCheckedAnnotation, RelatedAnnotations};
use seawall_core::kubernetes_events::EventReason;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Clock, Moment};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt;

use support::*;

const AUDIENCE: &str =
    "//iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/pool/providers/cluster";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(pods: &NodePods, address: &str) -> Result<String, PodLookupError> {
    pods.snapshot().pod_at(ip(address)).map(|record| record.pod.name.to_string())
}

/// Starts a control plane with one ServiceAccount, and a cluster client like the agent's.
async fn watched() -> (ControlPlane, Api, Node) {
    let (plane, admin, token) = prepared().await;
    admin.make_account("coral", None).await;
    let cluster = cluster(&plane, &token).await;
    (plane, admin, cluster)
}

/// Creates a pod of the ServiceAccount `coral`, and waits until the snapshot has the pod at this address.
async fn run(admin: &Api, pods: &NodePods, name: &str, address: &str) {
    admin.make_pod(name, "coral").await;
    admin.report(name, "Running", &[address]).await;
    until(pods, name, |snapshot| snapshot.pod_at(ip(address)).is_ok()).await;
}

/// Returns the annotations of a ServiceAccount that the agent has read, with this value.
fn says(email: &str) -> RelatedAnnotations {
    RelatedAnnotations::of_object([(ACCOUNT, LengthCheckedAnnotation::from(email))].into_iter().collect())
}

/// Returns the annotations of a ServiceAccount that the agent has read and that has no selected annotation.
fn says_nothing() -> RelatedAnnotations {
    RelatedAnnotations::of_object(Annotations::default())
}

/// Checks that at most five seconds have passed since the API server's return at `back`.
fn check_soon_after(back: Moment) {
    let took = Clock::system().now().since(back);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn a_pod_is_known_when_bound_has_its_address_when_reported_and_leaves() {
    let (plane, admin, token) = prepared().await;
    admin.make_account("coral", Some("coral@shop.iam.gserviceaccount.com")).await;
    let cluster = cluster(&plane, &token).await;
    let pods = cluster.pods();
    until(&pods, "the first list", |snapshot| snapshot.has_complete_pod_list()).await;

    let uid = admin.make_pod("web-0", "coral").await;
    let appeared = until_known(&pods, &uid).await;
    assert_eq!(appeared.pod.service_account.to_string(), "reef/coral");
    assert!(appeared.addresses.is_empty());

    admin.report("web-0", "Running", &["10.244.1.7", "fd00::7"]).await;
    let email = says("coral@shop.iam.gserviceaccount.com");
    let is_ready = |snapshot: &PodSnapshot| {
        snapshot
            .pod_by_uid(&uid)
            .is_some_and(|now| !now.addresses.is_empty() && now.annotations.service_account == email)
    };
    until(&pods, "address and account are known", is_ready).await;
    for address in ["10.244.1.7", "fd00::7", "::ffff:10.244.1.7"] {
        assert_eq!(at(&pods, address), Ok("web-0".into()), "{address}");
    }
    assert_eq!(at(&pods, "192.0.2.1"), Err(PodLookupError::Absent), "the node's own address names no pod");

    admin.delete_pod("web-0", 0).await;
    until(&pods, "the pod is gone", |snapshot| snapshot.pod_by_uid(&uid).is_none()).await;
    assert_eq!(at(&pods, "10.244.1.7"), Err(PodLookupError::Absent));
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn an_address_that_is_used_again_never_names_the_old_pod() {
    let (_plane, admin, cluster) = watched().await;
    let pods = cluster.pods();

    run(&admin, &pods, "old", "10.244.1.7").await;
    admin.delete_pod("old", 30).await;
    until(&pods, "the old pod is terminating", |s| s.pods().any(|pod| pod.is_terminating)).await;
    assert_eq!(
        at(&pods, "10.244.1.7"),
        Ok("old".into()),
        "a pod keeps its identity during its graceful shutdown"
    );

    let new = admin.make_pod("new", "coral").await;
    until(&pods, "the new pod could have any address", |s| {
        s.pod_by_uid(&new).is_some() && matches!(s.pod_at(ip("10.244.1.7")), Err(PodLookupError::Ambiguous))
    })
    .await;
    admin.report("new", "Running", &["10.244.1.8"]).await;
    until(&pods, "the new pod has another address", |s| s.pod_at(ip("10.244.1.7")).is_ok()).await;
    assert_eq!(at(&pods, "10.244.1.7"), Ok("old".into()));
    admin.report("new", "Running", &["10.244.1.7"]).await;
    until(&pods, "two pods claim the address", |s| {
        matches!(s.pod_at(ip("10.244.1.7")), Err(PodLookupError::Ambiguous))
    })
    .await;
    admin.delete_pod("old", 0).await;
    until(&pods, "the old pod is gone", |s| s.pod_at(ip("10.244.1.7")).is_ok()).await;
    assert_eq!(at(&pods, "10.244.1.7"), Ok("new".into()));

    // The API server keeps a finished pod, but the pod's address is free.
    admin.report("new", "Succeeded", &["10.244.1.7"]).await;
    until(&pods, "the finished pod is gone", |s| s.pod_by_uid(&new).is_none()).await;
    run(&admin, &pods, "next", "10.244.1.7").await;
    assert_eq!(at(&pods, "10.244.1.7"), Ok("next".into()));
}

/// The container runtime restarts, which ends every sandbox. The kubelet reports this.
#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn pods_whose_sandboxes_are_rebuilt_and_swap_addresses_are_never_taken_for_each_other() {
    let (_plane, admin, cluster) = watched().await;
    let pods = cluster.pods();
    let (x, y) = ("10.244.1.7", "10.244.1.8");
    admin.make_pod("one", "coral").await;
    admin.make_pod("two", "coral").await;
    // This time is certainly after the start of this machine.
    let now = "2100-01-01T00:00:00Z";
    admin.report_sandbox("one", x, true, now).await;
    admin.report_sandbox("two", y, true, now).await;
    until(&pods, "both run", |s| s.pod_at(ip(x)).is_ok() && s.pod_at(ip(y)).is_ok()).await;

    // The kubelet reports the end of a sandbox before it creates the next one. The reported address belongs to the previous
    // sandbox.
    admin.report_sandbox("one", x, false, now).await;
    admin.report_sandbox("two", y, false, now).await;
    until(&pods, "neither address names a pod", |s| s.pod_at(ip(x)).is_err() && s.pod_at(ip(y)).is_err())
        .await;
    assert_eq!(at(&pods, x), Err(PodLookupError::Absent));
    admin.report_sandbox("two", x, true, now).await;
    until(&pods, "the pod `two` has its next sandbox", |s| s.pod_at(ip(x)).is_ok()).await;
    assert_eq!((at(&pods, x), at(&pods, y)), (Ok("two".into()), Err(PodLookupError::Absent)));
    admin.report_sandbox("one", y, true, now).await;
    until(&pods, "the pod `one` has its next sandbox", |s| s.pod_at(ip(y)).is_ok()).await;
    assert_eq!((at(&pods, x), at(&pods, y)), (Ok("two".into()), Ok("one".into())));
}

/// The agent starts with the machine, and the API server still has the statuses from before the reboot.
#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn after_a_reboot_what_was_told_before_it_names_nobody() {
    let (plane, admin, token) = prepared().await;
    admin.make_account("coral", None).await;
    let (x, y) = ("10.244.1.7", "10.244.1.8");
    for (name, address) in [("one", x), ("two", y)] {
        admin.make_pod(name, "coral").await;
        admin.report_sandbox(name, address, true, "2025-06-01T00:00:02Z").await;
    }
    // An older kubelet does not report sandboxes. This pod's container started after the machine.
    admin.make_pod("older", "coral").await;
    let started = json!({"name": "main", "image": "local/none:1", "imageID": "", "ready": true, "restartCount": 1,
                         "state": {"running": {"startedAt": "2026-01-01T00:00:20Z"}}});
    let mut report = seawall_testkit::objects::pod_status("Running", &["10.244.1.9"]);
    report["status"]["startTime"] = json!("2025-06-01T00:00:00Z");
    report["status"]["containerStatuses"] = json!([started]);
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/older/status");
    admin.must("PATCH", &path, Some(&report)).await;

    // The manual clock's machine has just started, at 2026-01-01T00:00:00Z.
    let (clock, _hand) = Clock::manual();
    let mut config = ClusterConfig::for_node(NodeName::parse(NODE_NAME).unwrap());
    config.kube_access =
        ClientConfigSource::Kubeconfig(plane.write_kubeconfig_with_port(&token, plane.api_server_port()));
    let cluster = Node::start_by(clock, config).await;
    let pods = cluster.pods();
    until(&pods, "the list", |s| names(s).len() == 3).await;
    assert_eq!((at(&pods, x), at(&pods, y)), (Err(PodLookupError::Absent), Err(PodLookupError::Absent)));
    assert_eq!(at(&pods, "10.244.1.9"), Ok("older".into()));
    admin.report_sandbox("two", x, true, "2026-01-01T00:00:30Z").await;
    until(&pods, "the pod `two` has its next sandbox", |s| s.pod_at(ip(x)).is_ok()).await;
    assert_eq!((at(&pods, x), at(&pods, y)), (Ok("two".into()), Err(PodLookupError::Absent)));
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn a_pod_on_the_nodes_network_and_a_pod_of_another_node_have_no_address_here() {
    let (_plane, admin, cluster) = watched().await;
    let pods = cluster.pods();

    let host = admin.make_pod_with("host", "coral", &json!({"hostNetwork": true})).await;
    admin.report("host", "Running", &["10.89.0.9"]).await;
    let far = admin.make_pod_with("far", "coral", &json!({"nodeName": "node2"})).await;
    admin.report("far", "Running", &["10.244.2.9"]).await;
    run(&admin, &pods, "last", "10.244.1.9").await;

    assert!(until_known(&pods, &host).await.uses_host_network);
    assert_eq!(at(&pods, "10.89.0.9"), Err(PodLookupError::Absent));
    assert!(pods.snapshot().pod_by_uid(&far).is_none());
    assert_eq!(at(&pods, "10.244.2.9"), Err(PodLookupError::Absent));
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn a_service_account_that_changes_is_told_for_its_pods() {
    let (plane, admin, token) = prepared().await;
    admin.make_account("coral", Some("coral@shop.iam.gserviceaccount.com")).await;
    let uid = admin.make_pod("web-0", "coral").await;
    let cluster = cluster(&plane, &token).await;
    let pods = cluster.pods();
    let path = format!("{}/coral", service_accounts_path());
    until(&pods, "the agent has read the ServiceAccount", |s| {
        s.pods().any(|p| p.annotations.service_account == says("coral@shop.iam.gserviceaccount.com"))
    })
    .await;

    for (value, wanted) in [
        (json!("other@shop.iam.gserviceaccount.com"), says("other@shop.iam.gserviceaccount.com")),
        (json!("nonsense"), says("nonsense")),
        (Value::Null, says_nothing()),
    ] {
        let patch = json!({"metadata": {"annotations": {ACCOUNT: value}}});
        admin.must("PATCH", &path, Some(&patch)).await;
        let changed = |snapshot: &PodSnapshot| {
            snapshot.pod_by_uid(&uid).is_some_and(|now| now.annotations.service_account == wanted)
        };
        until(&pods, "the change", changed).await;
    }
    admin.must("DELETE", &path, None).await;
    until(&pods, "the ServiceAccount is missing", |s| {
        s.pods().any(|p| p.annotations.service_account == RelatedAnnotations::of_missing_object())
    })
    .await;
    admin.make_account("coral", Some("coral@shop.iam.gserviceaccount.com")).await;
    until(&pods, "the ServiceAccount is back", |s| {
        s.pods().any(|p| p.annotations.service_account == says("coral@shop.iam.gserviceaccount.com"))
    })
    .await;
}

async fn review(admin: &Api, token: &str, audience: &str) -> Value {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    });
    admin.must("POST", "/apis/authentication.k8s.io/v1/tokenreviews", Some(&review)).await["status"].clone()
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn a_token_is_bound_to_its_pod_and_dies_with_it() {
    let (plane, admin, token) = prepared().await;
    admin.make_account("coral", None).await;
    let uid = admin.make_pod("web-0", "coral").await;
    let cluster = cluster(&plane, &token).await;
    let record = until_known(&cluster.pods(), &uid).await;

    let tokens = cluster.tokens_for(&record);
    let token = tokens.subject_token(AUDIENCE).await.unwrap();
    let status = review(&admin, token.expose(), AUDIENCE).await;
    assert_eq!(status["authenticated"], true, "{status}");
    assert_eq!(status["user"]["username"], "system:serviceaccount:reef:coral");
    assert_eq!(status["user"]["extra"]["authentication.kubernetes.io/pod-uid"], json!([uid]));
    let elsewhere = review(&admin, token.expose(), "https://issuer.test").await;
    assert_ne!(elsewhere["authenticated"], true, "the API server must not accept the token for itself");

    // All handles of a pod share its cached tokens. Each audience has its own token.
    let again = cluster.tokens_for(&record).subject_token(AUDIENCE).await.unwrap();
    assert_eq!(again.expose(), token.expose());
    let other = tokens.subject_token("sts.amazonaws.com").await.unwrap();
    assert_ne!(other.expose(), token.expose());

    admin.delete_pod("web-0", 0).await;
    until_true("the API server rejects the token", || async {
        review(&admin, token.expose(), AUDIENCE).await["authenticated"] != true
    })
    .await;
    let refused = tokens.subject_token("another").await.unwrap_err();
    assert!(!refused.is_retryable && refused.reason.contains("web-0 is gone"), "{refused:?}");

    // A new pod with the same name does not give the old pod's handle a token.
    admin.make_pod("web-0", "coral").await;
    let refused = tokens.subject_token("another").await.unwrap_err();
    assert!(!refused.is_retryable && refused.reason.contains("web-0 is gone"), "{refused:?}");
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn a_token_that_cannot_be_had_says_why() {
    let (mut plane, admin, token) = prepared().await;
    admin.make_account("coral", None).await;
    let uid = admin.make_pod("web-0", "coral").await;
    let cluster = cluster(&plane, &token).await;
    let tokens = cluster.tokens_for(&*until_known(&cluster.pods(), &uid).await);

    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/seawall-agent";
    admin.must("DELETE", binding, None).await;
    // The API server's authorizer applies the deletion after a delay.
    until_true("the agent is forbidden", || forbids(tokens.as_ref())).await;

    let created = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "seawall-agent"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "seawall-agent"},
        "subjects": [{"kind": "ServiceAccount", "name": "seawall-agent", "namespace": "seawall"}],
    });
    admin.must("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", Some(&created)).await;
    until_true("the agent is allowed again", || async { !forbids(tokens.as_ref()).await }).await;

    admin.must("DELETE", &format!("{}/coral", service_accounts_path()), None).await;
    let gone = tokens.subject_token("after the account").await.unwrap_err();
    assert!(!gone.is_retryable && gone.reason == "the ServiceAccount reef/coral does not exist", "{gone:?}");

    plane.kill_api_server();
    let away = tokens.subject_token("after the API server").await.unwrap_err();
    assert!(away.is_retryable && away.reason.contains("does not answer"), "{away:?}");
}

/// Returns `true` if the API server forbids a token. Requests an audience that is not in the cache yet.
async fn forbids(tokens: &dyn SubjectTokens) -> bool {
    let fresh = format!("probe-{}", fastrand::u64(..));
    match tokens.subject_token(&fresh).await {
        Ok(_) => false,
        Err(error) => {
            assert!(!error.is_retryable && error.reason.contains("does not allow the agent"), "{error:?}");
            true
        }
    }
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn the_shipped_rules_are_all_that_the_agent_may_do() {
    let (plane, _, token) = prepared().await;
    let agent = plane.client_with(&token).await;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "kube-system"},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let status = agent.must("POST", path, Some(&review)).await["status"].clone();
    assert_eq!(status["incomplete"], false);
    let mut rules: Vec<String> = status["resourceRules"]
        .as_array()
        .unwrap()
        .iter()
        // Skip the rules that let each authenticated user review its own identity and permissions.
        .filter(|rule| !rule["resources"].to_string().contains("\"selfsubject"))
        .map(|rule| format!("{} {} {}", rule["verbs"], rule["apiGroups"], rule["resources"]))
        .collect();
    rules.sort();
    assert_eq!(
        rules,
        [
            r#"["create"] [""] ["events"]"#,
            r#"["create"] [""] ["serviceaccounts/token"]"#,
            r#"["get","list","watch"] [""] ["namespaces"]"#,
            r#"["get","list","watch"] [""] ["serviceaccounts"]"#,
            r#"["list","watch"] [""] ["pods"]"#,
        ]
    );
    for forbidden in [
        "/api/v1/secrets",
        "/api/v1/namespaces/kube-system/secrets",
        "/api/v1/configmaps",
        "/api/v1/nodes",
        "/api/v1/nodes/node1",
        "/api/v1/namespaces/seawall/pods/seawall-agent",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ] {
        assert_eq!(agent.refusal("GET", forbidden, None).await, 403, "{forbidden}");
    }
    let exec = "/api/v1/namespaces/seawall/pods/seawall-agent/exec?command=sh";
    assert_eq!(agent.refusal("POST", exec, None).await, 403);
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn a_stolen_agent_token_makes_no_token_for_the_api_server_and_changes_no_other_node() {
    let (plane, admin, token) = prepared().await;
    admin.apply(RBAC_TAINT).await;
    admin.apply(ADMISSION).await;
    admin.make_account("coral", None).await;
    let uid = admin.make_pod("web-0", "coral").await;
    for name in ["node2", "node3"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        admin.must("POST", "/api/v1/nodes", Some(&node)).await;
    }
    let thief = plane.client_with(&token).await;
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": uid});
    let ask = |spec: Value| {
        let thief = &thief;
        async move {
            let body =
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
            thief.json("POST", &format!("{}/coral/token", service_accounts_path()), Some(&body)).await
        }
    };
    let label = json!({"metadata": {"labels": {"stolen": "yes"}}});
    // The API server applies new policies after a delay.
    until_true("the policies are in force", || async {
        ask(json!({"audiences": [AUDIENCE]})).await.is_err()
            && thief.json("PATCH", "/api/v1/nodes/node2", Some(&label)).await.is_err()
    })
    .await;

    for (why, spec) in [
        ("only tokens that are bound to a pod", json!({"audiences": [AUDIENCE]})),
        ("only for the cloud audiences", json!({"boundObjectRef": bound})),
        (
            "only for the cloud audiences",
            json!({"audiences": ["https://issuer.test"], "boundObjectRef": bound}),
        ),
        (
            "only for the cloud audiences",
            json!({"audiences": [AUDIENCE, "https://issuer.test"], "boundObjectRef": bound}),
        ),
        (
            "that live for at most one day",
            json!({"audiences": [AUDIENCE], "boundObjectRef": bound, "expirationSeconds": 90000}),
        ),
    ] {
        let refusal = ask(spec).await.unwrap_err();
        assert!(refusal.contains(why), "{refusal}");
    }
    let cluster = cluster(&plane, &token).await;
    let tokens = cluster.tokens_for(&*until_known(&cluster.pods(), &uid).await);
    for audience in [AUDIENCE, "sts.amazonaws.com"] {
        tokens.subject_token(audience).await.unwrap();
    }
    for (node, patch) in [
        ("node2", &label),
        ("node3", &json!({"spec": {"unschedulable": true}})),
        (NODE_NAME, &label),
        (NODE_NAME, &json!({"spec": {"taints": [{"key": "added", "effect": "NoExecute"}]}})),
    ] {
        let status = thief.refusal("PATCH", &format!("/api/v1/nodes/{node}"), Some(patch)).await;
        assert!([403, 422].contains(&status), "{node} {patch}: {status}");
    }
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn the_node_is_opened_by_taking_off_one_taint() {
    let (plane, admin, token) = prepared().await;
    admin.apply(RBAC_TAINT).await;
    admin.apply(ADMISSION).await;
    let taints = json!({"spec": {"taints": [
        {"key": "seawall/not-ready", "effect": "NoSchedule"},
        {"key": "someone/elses", "value": "x", "effect": "NoExecute"},
        {"key": "seawall/not-ready", "effect": "NoExecute"},
    ]}});
    admin.must("PATCH", "/api/v1/nodes/node1", Some(&taints)).await;
    let cluster = cluster_at(&plane, &token, plane.api_server_port(), |config| {
        config.startup_taint = Some("seawall/not-ready".into());
    })
    .await;
    cluster.remove_startup_taint().await;
    let node = admin.must("GET", "/api/v1/nodes/node1", None).await;
    let keys: Vec<&str> = node["spec"]["taints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|taint| taint["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["someone/elses"]);
    // A second call succeeds, although the taint is already gone.
    cluster.remove_startup_taint().await;
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn a_frozen_api_server_leaves_the_snapshot_and_shows_its_age() {
    let (plane, admin, cluster) = watched().await;
    let pods = cluster.pods();
    run(&admin, &pods, "web-0", "10.244.1.7").await;

    plane.freeze_api_server();
    until_true("the age of the view grows", || async {
        pods.time_since_last_message().unwrap() > Duration::from_secs(3)
    })
    .await;
    assert_eq!(at(&pods, "10.244.1.7"), Ok("web-0".into()));
    plane.thaw_api_server();
    let thawed = Clock::system().now();
    admin.make_pod("web-1", "coral").await;
    until(&pods, "the new pod is known", |s| names(s).len() == 2).await;
    check_soon_after(thawed);
    assert!(pods.time_since_last_message().unwrap() < Duration::from_secs(3));
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn after_a_crash_of_the_api_server_news_come_within_five_seconds() {
    let (mut plane, admin, cluster) = watched().await;
    let pods = cluster.pods();
    run(&admin, &pods, "web-0", "10.244.1.7").await;

    plane.kill_api_server();
    // Wait until the pauses between attempts have reached their maximum.
    until_true("the outage lasts", || async {
        pods.time_since_last_message().unwrap() > Duration::from_secs(12)
    })
    .await;
    assert_eq!(at(&pods, "10.244.1.7"), Ok("web-0".into()));
    let health = cluster.health_per_watch().remove(0);
    assert!(health.failure_count >= 4 && health.current_failure.is_some(), "{health:?}");

    plane.start_api_server().await;
    let back = Clock::system().now();
    plane.admin().await.make_pod("web-1", "coral").await;
    until(&pods, "the new pod is known", |s| names(s).len() == 2).await;
    check_soon_after(back);
    assert!(cluster.health_per_watch()[0].current_failure.is_none());
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn an_api_server_that_is_not_there_yet_is_waited_for() {
    // Start the API server once, so that it creates the certificate that the kubeconfig names.
    let (mut plane, admin, token) = prepared().await;
    admin.make_account("coral", None).await;
    admin.make_pod("web-0", "coral").await;
    plane.kill_api_server();

    let cluster = cluster(&plane, &token).await;
    let pods = cluster.pods();
    until_true("the health shows three failures", || async {
        cluster.health_per_watch()[0].failure_count >= 3
    })
    .await;
    assert_eq!(pods.time_since_last_message(), None);
    assert!(!pods.snapshot().has_complete_pod_list());
    assert_eq!(at(&pods, "10.244.1.7"), Err(PodLookupError::Absent));

    plane.start_api_server().await;
    let back = Clock::system().now();
    until(&pods, "the pod", |s| names(s).len() == 1).await;
    check_soon_after(back);
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn a_position_that_has_expired_is_left_for_a_new_list() {
    let (mut plane, admin, token) = prepared().await;
    admin.make_account("coral", Some("coral@shop.iam.gserviceaccount.com")).await;
    let proxy = Proxy::to(plane.api_server_port()).await;
    let cluster = cluster_at(&plane, &token, proxy.port(), |_| {}).await;
    let pods = cluster.pods();
    admin.make_pod("left", "coral").await;
    let stays = admin.make_pod("stays", "coral").await;
    until(&pods, "both pods and the ServiceAccount are known", |s| {
        names(s).len() == 2 && !s.pods().any(|p| p.annotations.service_account == RelatedAnnotations::NotRead)
    })
    .await;

    proxy.cut();
    admin.delete_pod("left", 0).await;
    admin.make_pod("came", "coral").await;
    let patch = json!({"metadata": {"annotations": {ACCOUNT: null}}});
    admin.must("PATCH", &format!("{}/coral", service_accounts_path()), Some(&patch)).await;
    // The watch cache of a restarted API server starts at the present version. For older positions the API server returns 410.
    plane.kill_api_server();
    plane.start_api_server().await;
    proxy.mend();

    until(&pods, "the pod `came` is known and the pod `left` is gone", |s| names(s) == ["came", "stays"])
        .await;
    let knows = |s: &PodSnapshot| s.pod_by_uid(&stays).unwrap().annotations.service_account == says_nothing();
    until(&pods, "the ServiceAccount's change during the interruption", knows).await;
    let Ok([pods_health, accounts_health]) = <[_; 2]>::try_from(cluster.health_per_watch()) else {
        panic!("two watches")
    };
    assert_eq!((pods_health.start_count, accounts_health.start_count), (2, 2));
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn a_connection_that_died_silently_is_given_up() {
    let (plane, admin, token) = prepared().await;
    admin.make_account("coral", None).await;
    let proxy = Proxy::to(plane.api_server_port()).await;
    let cluster = cluster_at(&plane, &token, proxy.port(), |config| {
        config.timeouts.watch_idle = Duration::from_secs(3);
    })
    .await;
    let pods = cluster.pods();
    admin.make_pod("web-0", "coral").await;
    until(&pods, "the pod", |s| names(s).len() == 1).await;
    proxy.deaden();
    admin.make_pod("web-1", "coral").await;
    until(&pods, "the watch reports the new pod over a new connection", |s| names(s).len() == 2).await;
    assert_eq!(cluster.health_per_watch()[0].start_count, 1, "the watch resumed without a new list");
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn refusals_are_told_on_the_pod_once() {
    let (_plane, admin, cluster) = watched().await;
    let uid = admin.make_pod("web-0", "coral").await;
    let record = until_known(&cluster.pods(), &uid).await;
    let reporter = cluster.event_reporter();
    for _ in 0..1000 {
        reporter.report(&record, EventReason::RefusedByPolicy, "reef/coral is not in the policy's list");
    }
    reporter.report(&record, EventReason::RefusedByCloud, "the cloud says 403");
    until_true("both are posted", || async { reporter.posted_and_dropped_counts() == (2, 0) }).await;
    let events = admin.must("GET", &format!("/api/v1/namespaces/{NAMESPACE}/events"), None).await;
    let mut reasons: Vec<&str> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["involvedObject"]["uid"] == uid)
        .map(|event| event["reason"].as_str().unwrap())
        .collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["CredentialsRefusedByCloud", "CredentialsRefusedByPolicy"]);
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn one_kind_that_is_forbidden_does_not_hold_up_the_other() {
    let (plane, admin, token) = prepared().await;
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/seawall-agent";
    let pods_only =
        json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]});
    admin.must("PATCH", role, Some(&pods_only)).await;
    let agent = plane.client_with(&token).await;
    until_true("the rule is in force", || async {
        agent.json("GET", "/api/v1/serviceaccounts", None).await.is_err()
    })
    .await;
    admin.make_account("coral", None).await;
    let cluster = cluster(&plane, &token).await;
    let pods = cluster.pods();
    run(&admin, &pods, "web-0", "10.244.1.7").await;
    assert!(
        pods.snapshot()
            .pods()
            .all(|record| record.annotations.service_account == RelatedAnnotations::NotRead),
        "the annotations are unknown, which differs from no annotations"
    );
    let Ok([pods_health, accounts_health]) = <[_; 2]>::try_from(cluster.health_per_watch()) else {
        panic!("two watches")
    };
    assert!(pods_health.current_failure.is_none(), "{pods_health:?}");
    assert!(accounts_health.current_failure.unwrap().contains("the API server denies access: "));
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn the_files_that_kubernetes_gives_each_pod_are_enough() {
    let (plane, admin, token) = prepared().await;
    admin.make_account("coral", None).await;
    plane.give_pod_files(&token);
    let mut watcher = Watcher::start(None, plane.api_server_port());
    watcher.memory_once(0);
    admin.make_pod("web-0", "coral").await;
    admin.report("web-0", "Running", &["10.244.1.7"]).await;
    watcher.memory_once(1);
}

/// The number of pods in the memory test. A node has a few hundred pods at most.
const MANY: usize = 2000;

/// The limit of resident memory per pod, in bytes. It includes records, maps, strings, and memory that stays allocated after
/// lists and events.
const BYTES_PER_POD: u64 = 4096;

fn address(number: usize) -> String {
    format!("10.244.{}.{}", number / 200, number % 200 + 1)
}

/// Creates the pods with the numbers `range`, with addresses, spread over twenty ServiceAccounts. Each pod has about 6 KB of
/// JSON.
async fn make_many(admin: &Api, generation: u32, range: std::ops::Range<usize>) {
    let environment: Vec<Value> =
        (0..40).map(|i| json!({"name": format!("VARIABLE_{i}"), "value": "x".repeat(80)})).collect();
    let spec = json!({"containers": [{"name": "main", "image": "local/none:1", "env": environment}]});
    for_each(range, |number| {
        let (admin, spec) = (admin, &spec);
        async move {
            let name = format!("pod-{generation}-{number}");
            admin.make_pod_with(&name, &format!("account-{}", number % 20), spec).await;
            admin.report(&name, "Running", &[&address(number)]).await;
        }
    })
    .await;
}

async fn for_each<F: Future<Output = ()>>(range: std::ops::Range<usize>, act: impl FnMut(usize) -> F) {
    stream::iter(range.map(act)).buffer_unordered(16).collect::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn two_thousand_pods_come_and_go_and_cost_little() {
    let (mut plane, admin, token) = prepared().await;
    for number in 0..20 {
        admin.make_account(&format!("account-{number}"), Some("coral@shop.iam.gserviceaccount.com")).await;
    }
    let cluster = cluster(&plane, &token).await;
    let pods = cluster.pods();
    let mut watcher = Watcher::start(
        Some(&plane.write_kubeconfig_with_port(&token, plane.api_server_port())),
        plane.api_server_port(),
    );
    let before = watcher.memory_once(0);

    make_many(&admin, 1, 0..MANY).await;
    let addressed = |s: &PodSnapshot| (0..MANY).all(|number| s.pod_at(ip(&address(number))).is_ok());
    until(&pods, "all have their addresses", addressed).await;
    let full = watcher.memory_once(MANY);

    // Delete half of the pods. New pods get the deleted pods' addresses at once.
    for_each(0..MANY / 2, |number| {
        let admin = &admin;
        async move { admin.delete_pod(&format!("pod-1-{number}"), 0).await }
    })
    .await;
    make_many(&admin, 2, 0..MANY / 2).await;
    let turned_over = |s: &PodSnapshot| {
        names(s).len() == MANY
            && (0..MANY).all(|number| {
                let generation = if number < MANY / 2 { 2 } else { 1 };
                let expected = format!("pod-{generation}-{number}");
                s.pod_at(ip(&address(number))).is_ok_and(|record| *record.pod.name == *expected)
            })
    };
    until(&pods, "every address names its new pod", turned_over).await;
    let churned = watcher.memory_once(MANY);

    // Restart the API server, so that the watch lists all pods again.
    plane.kill_api_server();
    plane.start_api_server().await;
    plane.admin().await.make_pod("last", "account-0").await;
    until(&pods, "the last pod", |s| names(s).len() == MANY + 1).await;
    let listed = watcher.memory_once(MANY + 1);

    let each = |now: u64| now.saturating_sub(before) / MANY as u64;
    println!(
        "resident: {before} bytes with no pod; for each of {MANY} pods: {} after they came, {} after half were \
         replaced, {} after a restart of the API server",
        each(full),
        each(churned),
        each(listed)
    );
    for now in [full, churned, listed] {
        assert!(each(now) <= BYTES_PER_POD, "{} bytes for each pod", each(now));
    }
}

/// Cluster clients in a separate process, so that the memory of one can be measured alone, and so that many have enough descriptors.
struct Watcher {
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Watcher {
    /// Starts the process with a kubeconfig. `None` makes it use the in-cluster environment variables and files.
    fn start(kubeconfig: Option<&Path>, port: u16) -> Self {
        Self::start_clients(1, kubeconfig, port)
    }

    /// Starts the process with this number of clients, which start together.
    fn start_clients(count: usize, kubeconfig: Option<&Path>, port: u16) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "watch_in_a_process_of_its_own", "--ignored", "--nocapture"])
            .env("SEAWALL_WATCHER", kubeconfig.unwrap_or(Path::new("")))
            .env("SEAWALL_WATCHERS", count.to_string())
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, answers }
    }

    /// Waits until each client knows this number of the tests' pods, and returns the process's resident memory in bytes.
    fn memory_once(&mut self, pods: usize) -> u64 {
        self.ask(pods);
        self.answer()
    }

    fn ask(&mut self, pods: usize) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{pods}").unwrap();
    }

    fn answer(&mut self) -> u64 {
        let mut lines = self.answers.by_ref().map(Result::unwrap);
        let answer = lines.find_map(|line| Some(line.split_once("resident ")?.1.to_owned()));
        answer.unwrap().parse().unwrap()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test, but the process that [`Watcher`] starts. It reads the number of pods to wait for, and writes its resident memory
/// in bytes.
#[tokio::test]
#[ignore = "SKIPPED: a part of two_thousand_pods_come_and_go_and_cost_little"]
async fn watch_in_a_process_of_its_own() {
    let Some(kubeconfig) = std::env::var_os("SEAWALL_WATCHER") else { return };
    let mut config = ClusterConfig::for_node(NodeName::parse(NODE_NAME).unwrap());
    config.annotation_keys = vec![selection()];
    if !kubeconfig.is_empty() {
        config.kube_access = ClientConfigSource::Kubeconfig(kubeconfig.into());
    }
    let count = std::env::var("SEAWALL_WATCHERS").unwrap().parse().unwrap();
    // Other processes of this kind can start as many clients at the same time.
    let limit = EVENTUALLY * u32::try_from(1 + count / 50).unwrap();
    let starts = (0..count).map(|_| Node::start(config.clone()));
    let clusters: Vec<Node> = stream::iter(starts).buffer_unordered(count).collect().await;
    let mut questions = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Some(question) = questions.next_line().await.unwrap() {
        let wanted: usize = question.parse().unwrap();
        let ready = |s: &PodSnapshot| {
            s.has_complete_pod_list()
                && names(s).len() == wanted
                && s.pods().all(|pod| pod.annotations.service_account != RelatedAnnotations::NotRead)
                && s.pods().filter(|pod| !pod.addresses.is_empty()).count() >= wanted.saturating_sub(1)
        };
        for cluster in &clusters {
            until_within(limit, &cluster.pods(), "the wanted number of pods", ready).await;
        }
        println!("resident {}", resident());
    }
}

/// Returns the resident memory of this process in bytes (`VmRSS` in proc(5)).
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// The sum of the samples of a metric whose labels contain all of these texts.
async fn metric_sum(admin: &Api, name: &str, labels: &[&str]) -> f64 {
    let (status, text) = admin.call("GET", "/metrics", None).await.unwrap();
    assert_eq!(status, 200);
    let is_asked = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    };
    text.lines().filter(is_asked).map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

/// How many clients one process starts: each has about eight descriptors, and a process may have 4,096 on some machines.
const CLIENTS_OF_ONE_PROCESS: usize = 500;

/// A rollout starts agents on all nodes at once. etcd has no index by node, so each list that reaches it reads all pods of the cluster.
#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn agents_that_start_together_read_no_list_of_pods_from_etcd() {
    let agents = std::env::var("SEAWALL_TOGETHER").map_or(100, |count| count.parse().unwrap());
    let (plane, admin, token) = prepared().await;
    admin.make_account("coral", None).await;
    admin.make_pod("one", "coral").await;
    let lists = || metric_sum(&admin, "etcd_requests_total", &["operation=\"list\"", "\"pods\""]);
    let streamed = || metric_sum(&admin, "apiserver_watch_list_duration_seconds_count", &["\"pods\""]);
    let (before, streamed_before) = (lists().await, streamed().await);
    assert!(before >= 1.0, "the API server itself lists pods in etcd once, and the counter shows it");
    let kubeconfig = plane.write_kubeconfig_with_port(&token, plane.api_server_port());
    let start = |count| Watcher::start_clients(count, Some(&kubeconfig), plane.api_server_port());
    let shares = (0..agents).step_by(CLIENTS_OF_ONE_PROCESS);
    let shares = shares.map(|first| CLIENTS_OF_ONE_PROCESS.min(agents - first));
    let mut processes: Vec<Watcher> = shares.map(start).collect();
    processes.iter_mut().for_each(|process| process.ask(1));
    for process in &mut processes {
        process.answer();
    }
    assert_eq!(lists().await, before, "a start listed pods in etcd");
    // An agent streams its list again if it loses the connection meanwhile.
    let streams = streamed().await - streamed_before;
    assert!(streams >= agents as f64, "{streams}");
    println!("{agents} starts: {streams} streamed lists, 0 lists of pods in etcd");
}
