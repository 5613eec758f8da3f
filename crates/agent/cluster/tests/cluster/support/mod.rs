//! What the tests with a real API server share.

mod api;
mod control_plane;
mod proxy;

use std::ops::Deref;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use seawall_cluster::{
    ClusterClient, ClusterConfig, KubeAccess, NodeName, NodePods, PodRecord, PodSnapshot, WatchThreadError,
};
use seawall_core::Clock;
use seawall_core::annotations::AnnotationKeys;
use seawall_testkit::objects;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

pub(crate) use api::{Api, NAMESPACE, NODE, accounts};
pub(crate) use control_plane::ControlPlane;
pub(crate) use proxy::Proxy;

/// What is shipped, word for word.
pub(crate) const RBAC: &str = include_str!("../../../../../../deploy/rbac.yaml");
/// What is shipped, word for word.
pub(crate) const RBAC_TAINT: &str = include_str!("../../../../../../deploy/rbac-taint.yaml");
/// What is shipped, word for word.
pub(crate) const ADMISSION: &str = include_str!("../../../../../../deploy/admission.yaml");

/// An annotation that means something to a cloud.
pub(crate) const ACCOUNT: &str = "iam.gke.io/gcp-service-account";

/// What is read of objects here.
pub(crate) const SELECTION: AnnotationKeys =
    AnnotationKeys { pod: &[], service_account: &[ACCOUNT], namespace: &[] };

/// Long enough that only a thing that never happens exceeds it.
pub(crate) const EVENTUALLY: Duration = Duration::from_secs(60);

/// The agent's own pod, and a token of it.
pub(crate) async fn agent_token(admin: &Api) -> String {
    admin.must("POST", objects::AGENT_PODS, Some(&objects::agent_pod())).await;
    let answer = admin.must("POST", objects::AGENT_TOKENS, Some(&objects::agent_token_request())).await;
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// A control plane with the shipped RBAC, the node, and the agent's pod and token.
pub(crate) async fn prepared() -> (ControlPlane, Api, String) {
    let plane = ControlPlane::start().await;
    let admin = plane.admin().await;
    let token = prepare(&admin).await;
    (plane, admin, token)
}

/// As [`prepared`], for a control plane that runs.
pub(crate) async fn prepare(admin: &Api) -> String {
    admin.apply(RBAC).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    admin.must("POST", "/api/v1/nodes", Some(&node)).await;
    agent_token(admin).await
}

/// The agent's part, with the thread that hears. Ends it when dropped.
pub(crate) struct Node {
    cluster: ClusterClient,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), WatchThreadError>>>,
}

impl Node {
    pub(crate) async fn start(config: ClusterConfig) -> Self {
        Self::start_by(Clock::system(), config).await
    }

    /// As [`Self::start`], where it is another time.
    pub(crate) async fn start_by(clock: Clock, config: ClusterConfig) -> Self {
        let (cluster, hearing) = ClusterClient::start(config, clock).await.unwrap();
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

/// The agent's part, on the node, as whoever has the token.
pub(crate) async fn cluster(plane: &ControlPlane, token: &str) -> Node {
    cluster_at(plane, token, plane.port(), |_| {}).await
}

/// As [`cluster`], behind another port and with a changed configuration.
pub(crate) async fn cluster_at(
    plane: &ControlPlane,
    token: &str,
    port: u16,
    change: impl FnOnce(&mut ClusterConfig),
) -> Node {
    let mut config = ClusterConfig::for_node(NodeName::parse(NODE).unwrap());
    config.selections = vec![SELECTION];
    config.access = KubeAccess::Kubeconfig(plane.kubeconfig(token, port));
    change(&mut config);
    Node::start(config).await
}

/// Waits, by versions, for a snapshot of which something is true.
pub(crate) async fn until(
    pods: &NodePods,
    what: &str,
    is: impl Fn(&PodSnapshot) -> bool,
) -> Arc<PodSnapshot> {
    let wait = async {
        let mut snapshot = pods.snapshot();
        while !is(&snapshot) {
            snapshot = pods.newer_than(snapshot.version()).await;
        }
        snapshot
    };
    match timeout(EVENTUALLY, wait).await {
        Ok(snapshot) => snapshot,
        Err(_) => panic!("never: {what}; last: {:#?}", pods.snapshot()),
    }
}

/// Waits for the pod with this UID.
pub(crate) async fn until_known(pods: &NodePods, uid: &str) -> Arc<PodRecord> {
    until(pods, "the pod is known", |snapshot| snapshot.by_uid(uid).is_some())
        .await
        .by_uid(uid)
        .unwrap()
        .clone()
}

/// The names of the tests' pods, sorted; the agent's own is not among them.
pub(crate) fn names(snapshot: &PodSnapshot) -> Vec<String> {
    let here = snapshot.pods().filter(|record| &*record.pod.service_account.namespace == NAMESPACE);
    let mut names: Vec<String> = here.map(|record| record.pod.name.to_string()).collect();
    names.sort();
    names
}

/// Waits for something that has no version to wait on.
pub(crate) async fn until_true<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    let wait = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(EVENTUALLY, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}
