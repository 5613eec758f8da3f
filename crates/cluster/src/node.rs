//! Opens the node for pods once the agent can serve them: takes one configured taint off this node.
//!
//! Nodes join the cluster with the taint (kubelet's `--register-with-taints`), so that no pod starts where nobody gives it
//! credentials yet. Needs `get` and `patch` on nodes, which deploy/rbac-taint.yaml grants and deploy/rbac.yaml does not.

use http::{Method, Request, header};
use kube::api::GetParams;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::client::Link;
use crate::failure::{Failure, Pauses};

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

/// Takes the taint off, however long it takes; ends when it is off.
pub(crate) async fn open(link: &Link, node: &str, taint: &str) {
    let mut pauses = Pauses::new(&link.patience);
    while let Err(failure) = remove(link, node, taint).await {
        warn!(node, taint, reason = %failure, "the taint is still on the node");
        link.clock.sleep(pauses.after(&failure)).await;
    }
    info!(node, taint, "the node is open");
}

/// One try. Somebody else's change in between makes it fail: the patch names the taints that it saw.
async fn remove(link: &Link, name: &str, taint: &str) -> Result<(), Failure> {
    let request = kube::api::Request::new("/api/v1/nodes").get(name, &GetParams::default());
    let node: Node = link.client.call(request, link.patience.answer).await?;
    let seen = node.spec.taints;
    let kept: Vec<&Value> = seen.iter().filter(|entry| entry["key"] != taint).collect();
    if kept.len() == seen.len() {
        return Ok(());
    }
    let patch = json!([
        {"op": "test", "path": "/spec/taints", "value": seen},
        {"op": "replace", "path": "/spec/taints", "value": kept},
    ]);
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("/api/v1/nodes/{name}"))
        .header(header::CONTENT_TYPE, "application/json-patch+json")
        .body(patch.to_string().into_bytes())
        .map_err(kube::core::request::Error::BuildRequest);
    link.client.call::<IgnoredAny>(request, link.patience.answer).await.map(drop)
}
