//! Helpers that all tests with a real API server share.

mod api;
mod control_plane;
mod proxy;

use std::ops::Deref;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use seawall_cluster::{
    ClientConfigSource, ClusterClient, ClusterConfig, NodeName, NodePods, PodRecord, PodSnapshot,
    WatchThreadError,
};
use seawall_core::Clock;
use seawall_core::annotations::AnnotationKeys;
use seawall_testkit::objects;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

pub(crate) use api::{Api, NAMESPACE, NODE_NAME, service_accounts_path};
pub(crate) use control_plane::ControlPlane;
pub(crate) use proxy::Proxy;

/// The shipped file `deploy/rbac.yaml`.
pub(crate) const RBAC: &str = include_str!("../../../../../../deploy/rbac.yaml");
/// The shipped file `deploy/rbac-taint.yaml`.
pub(crate) const RBAC_TAINT: &str = include_str!("../../../../../../deploy/rbac-taint.yaml");
/// The shipped file `deploy/admission.yaml`.
pub(crate) const ADMISSION: &str = include_str!("../../../../../../deploy/admission.yaml");

/// An annotation key that a cloud reads.
pub(crate) const ACCOUNT: &str = "iam.gke.io/gcp-service-account";

/// Returns the annotation keys that the tests' agent reads.
pub(crate) fn selection() -> AnnotationKeys {
    AnnotationKeys { service_account: vec![ACCOUNT.into()], ..AnnotationKeys::default() }
}

/// The time limit for events that certainly happen. The limit is long, so that a slow machine does not fail a test.
pub(crate) const EVENTUALLY: Duration = Duration::from_secs(60);

/// Creates the agent's own pod and returns a token of it.
pub(crate) async fn agent_token(admin: &Api) -> String {
    admin.must("POST", objects::AGENT_PODS_PATH, Some(&objects::agent_pod())).await;
    let answer = admin.must("POST", objects::AGENT_TOKEN_PATH, Some(&objects::agent_token_request())).await;
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// Starts a control plane with the shipped RBAC, the node, and the agent's pod. Also returns the agent's token.
pub(crate) async fn prepared() -> (ControlPlane, Api, String) {
    let plane = ControlPlane::start().await;
    let admin = plane.admin().await;
    let token = prepare(&admin).await;
    (plane, admin, token)
}

/// Prepares a running control plane like [`prepared`]. Returns the agent's token.
pub(crate) async fn prepare(admin: &Api) -> String {
    admin.apply(RBAC).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME}});
    admin.must("POST", "/api/v1/nodes", Some(&node)).await;
    agent_token(admin).await
}

/// A cluster client like the agent's, with its watch thread. Dropping it ends the thread.
pub(crate) struct Node {
    cluster: ClusterClient,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), WatchThreadError>>>,
}

impl Node {
    pub(crate) async fn start(config: ClusterConfig) -> Self {
        Self::start_by(Clock::system(), config).await
    }

    /// Starts like [`Self::start`], with this clock.
    pub(crate) async fn start_by(clock: Clock, config: ClusterConfig) -> Self {
        let (cluster, hearing) = ClusterClient::create_with_watch_thread(config, clock).await.unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let ended = async move { drop(ended.await) };
        let thread = std::thread::spawn(move || hearing.run(std::future::pending(), ended));
        Self { cluster, end: Some(end), thread: Some(thread) }
    }
}

impl Deref for Node {
    type Target = ClusterClient;

    fn deref(&self) -> &ClusterClient {
        &self.cluster
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.end.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(Ok(())))), "{ended:?}");
    }
}

/// Starts a cluster client for the node, which authenticates with this token.
pub(crate) async fn cluster(plane: &ControlPlane, token: &str) -> Node {
    cluster_at(plane, token, plane.api_server_port(), |_| {}).await
}

/// Starts like [`cluster`], with another port of the API server and a changed configuration.
pub(crate) async fn cluster_at(
    plane: &ControlPlane,
    token: &str,
    port: u16,
    change: impl FnOnce(&mut ClusterConfig),
) -> Node {
    let mut config = ClusterConfig::for_node(NodeName::parse(NODE_NAME).unwrap());
    config.annotation_keys = vec![selection()];
    config.kube_access = ClientConfigSource::Kubeconfig(plane.write_kubeconfig_with_port(token, port));
    change(&mut config);
    Node::start(config).await
}

/// Waits for a snapshot for which `is` returns `true`, and returns it. `what` names the condition in the panic message.
pub(crate) async fn until(
    pods: &NodePods,
    what: &str,
    is: impl Fn(&PodSnapshot) -> bool,
) -> Arc<PodSnapshot> {
    until_within(EVENTUALLY, pods, what, is).await
}

/// Waits like [`until`], for at most this time.
pub(crate) async fn until_within(
    limit: Duration,
    pods: &NodePods,
    what: &str,
    is: impl Fn(&PodSnapshot) -> bool,
) -> Arc<PodSnapshot> {
    let wait = async {
        let mut snapshot = pods.snapshot();
        while !is(&snapshot) {
            snapshot = pods.wait_for_newer(snapshot.version()).await;
        }
        snapshot
    };
    match timeout(limit, wait).await {
        Ok(snapshot) => snapshot,
        Err(_) => panic!("never: {what}; last: {:#?}", pods.snapshot()),
    }
}

/// Waits until the snapshot has the pod with this UID.
pub(crate) async fn until_known(pods: &NodePods, uid: &str) -> Arc<PodRecord> {
    until(pods, "the pod is known", |snapshot| snapshot.pod_by_uid(uid).is_some())
        .await
        .pod_by_uid(uid)
        .unwrap()
        .clone()
}

/// Returns the sorted names of the tests' pods, without the agent's own pod.
pub(crate) fn names(snapshot: &PodSnapshot) -> Vec<String> {
    let here = snapshot.pods().filter(|record| &*record.pod.service_account.namespace == NAMESPACE);
    let mut names: Vec<String> = here.map(|record| record.pod.name.to_string()).collect();
    names.sort();
    names
}

/// Waits until `is` returns `true`. For conditions that do not depend on a snapshot.
pub(crate) async fn until_true<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    let wait = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(EVENTUALLY, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}
