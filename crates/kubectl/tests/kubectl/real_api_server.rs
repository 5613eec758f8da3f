//! Before a real API server: `scripts/cluster-test`. It has no kubelet, so no container writes a log or can be attached to; that is for
//! `scripts/e2e`.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use seawall_core::Clock;
use seawall_kube::KubeError;
use seawall_kubectl::{Api, KubeconfigSelection, LogOptions, ObjectChange, ResourceAttributes, WriteMode};
use seawall_testkit::control_plane::{ADMIN_TOKEN, ControlPlane, KUBELET_TOKEN};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest that the API server may take to be ready: it takes some four seconds, and more beside others.
const EVENTUALLY: Duration = Duration::from_secs(60);

struct World {
    plane: ControlPlane,
    folder: TempDir,
}

impl World {
    async fn start() -> Self {
        let folder = TempDir::with_prefix("seawall-kube-").unwrap();
        let mut plane = ControlPlane::without_api_server(folder.path());
        plane.launch_api_server();
        let world = Self { plane, folder };
        let ready = async {
            loop {
                // Ready, it says "ok", which is no JSON; until then 500, while its rules are loaded.
                let is_there = world.plane.has_certificate();
                if is_there
                    && matches!(
                        world.admin().await.get::<Value>("/readyz").await,
                        Err(KubeError::Unreadable(_))
                    )
                {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(EVENTUALLY, ready).await.is_err() {
            panic!("kube-apiserver is not ready; its log ends with:\n{}", world.plane.api_server_log_tail());
        }
        world
    }

    async fn open(&self, token: &str) -> Api {
        let choice = KubeconfigSelection {
            context: Some("test".into()),
            kubeconfig: Some(self.plane.write_kubeconfig(token)),
        };
        Api::open(&choice, Arc::new(aws_lc_rs::default_provider()), Clock::system()).await.unwrap().0
    }

    async fn admin(&self) -> Api {
        self.open(ADMIN_TOKEN).await
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, label: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"of": label}}})
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn what_is_made_is_found_followed_changed_and_taken_away() {
    let world = World::start().await;
    let api = world.admin().await;
    api.create(MAPS, &map("dry", "reef"), WriteMode::DryRun).await.unwrap();
    for number in 0..260 {
        api.create(MAPS, &map(&format!("a{number}"), "reef"), WriteMode::Persist).await.unwrap();
    }
    api.create(MAPS, &map("other", "shore"), WriteMode::Persist).await.unwrap();
    let again = api.create(MAPS, &map("a0", "reef"), WriteMode::Persist).await.unwrap_err();
    assert!(matches!(again, KubeError::Conflict(_)), "{again}");
    let listed = api.list(MAPS, Some("of=reef")).await.unwrap();
    assert_eq!(listed.items.len(), 260, "of two pages");
    let mut watching = api.watch(MAPS, Some("of=reef"), &listed.resource_version).await.unwrap();
    let one = format!("{MAPS}/a7");
    api.merge_patch(&one, &json!({"data": {"key": "value"}}), WriteMode::Persist).await.unwrap();
    api.delete(&one, WriteMode::DryRun).await.unwrap();
    api.delete(&one, WriteMode::Persist).await.unwrap();
    let Some(ObjectChange::Changed(now)) = watching.next().await.unwrap() else { panic!("a change") };
    assert_eq!((&now["metadata"]["name"], &now["data"]["key"]), (&json!("a7"), &json!("value")));
    let Some(ObjectChange::Deleted(gone)) = watching.next().await.unwrap() else { panic!("an end") };
    assert_eq!(gone["metadata"]["name"], json!("a7"));
    let failure = api.get::<Value>(&one).await.unwrap_err();
    assert!(matches!(failure, KubeError::NotFound { .. }), "{failure}");
    drop(world.folder);
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
async fn what_the_server_does_not_know_permit_or_have_is_told_in_its_words() {
    let world = World::start().await;
    let api = world.admin().await;
    let mut unknown = map("a", "reef");
    unknown["sailing"] = json!(true);
    let failure = api.create(MAPS, &unknown, WriteMode::DryRun).await.unwrap_err();
    assert!(
        matches!(failure, KubeError::Refused { code: 400, .. }) && failure.to_string().contains("sailing")
    );
    let jobs = ResourceAttributes {
        verb: "create",
        group: "batch",
        resource: "jobs",
        namespace: "default",
        ..ResourceAttributes::default()
    };
    assert!(api.review_access(&jobs).await.unwrap().is_allowed);
    let kubelet = world.open(KUBELET_TOKEN).await;
    assert!(!kubelet.review_access(&jobs).await.unwrap().is_allowed);
    let failure = kubelet.create(MAPS, &map("a", "reef"), WriteMode::DryRun).await.unwrap_err();
    assert!(
        matches!(failure, KubeError::Forbidden(_)) && failure.to_string().contains("configmaps"),
        "{failure}"
    );
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "stdin": true}], "automountServiceAccountToken": false}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    api.create("/api/v1/namespaces/default/serviceaccounts", &account, WriteMode::Persist).await.unwrap();
    api.create("/api/v1/namespaces/default/pods", &pod, WriteMode::Persist).await.unwrap();
    // No node has it yet.
    let mut log =
        api.log("default", "p", LogOptions { is_followed: true, ..LogOptions::default() }).await.unwrap();
    assert_eq!(log.next_line(|| {}).await, Ok(None));
    let failure = api.attach("default", "p", "c").await.unwrap_err();
    assert!(failure.to_string().contains("does not have a host assigned"), "{failure}");
    drop(world.folder);
}
