//! Removes the startup taint from this node once the agent can serve pods.
//!
//! Nodes join the cluster with the taint (kubelet's `--register-with-taints`), so that no pod starts before the agent can give
//! it credentials. To remove the taint, the agent needs the permissions `get` and `patch` on nodes. deploy/rbac-taint.yaml
//! grants these permissions; deploy/rbac.yaml does not.

use seawall_kube::request::{self, ObjectRepresentation};
use seawall_kube::{KubeError, RetryBackoff, TimedKubeClient};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tracing::{info, warn};

#[derive(Debug, Deserialize)]
struct Node {
    #[serde(default)]
    spec: NodeSpec,
}

#[derive(Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    taints: Vec<Value>,
}

/// Removes the taint, with unlimited retries. Returns once the taint is gone.
pub(crate) async fn remove_with_retries(link: &TimedKubeClient, node: &str, taint: &str) {
    let mut pauses = RetryBackoff::new(&link.timeouts);
    while let Err(failure) = remove(link, node, taint).await {
        warn!(node, taint, reason = %failure, "cannot remove the startup taint from the node; the agent tries again");
        link.clock.sleep(pauses.delay_after(&failure)).await;
    }
    info!(node, taint, "the node no longer has the startup taint; pods can start there");
}

/// Tries once to remove the taint. Returns `true` if the node had the taint. The patch fails if another client changes the
/// node's taints after this function has read them.
pub(crate) async fn remove(link: &TimedKubeClient, name: &str, taint: &str) -> Result<bool, KubeError> {
    let path = format!("/api/v1/nodes/{name}");
    let node: Node = link
        .client
        .call(request::build_get(&path, ObjectRepresentation::Whole), link.timeouts.response)
        .await?;
    let seen = node.spec.taints;
    let kept: Vec<&Value> = seen.iter().filter(|entry| entry["key"] != taint).collect();
    if kept.len() == seen.len() {
        return Ok(false);
    }
    let patch = json!([
        {"op": "test", "path": "/spec/taints", "value": seen},
        {"op": "replace", "path": "/spec/taints", "value": kept},
    ]);
    link.client
        .call::<IgnoredAny>(request::build_patch(&path, &patch), link.timeouts.response)
        .await
        .map(|_| true)
}
