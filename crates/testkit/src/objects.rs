//! The Kubernetes objects that tests make, as plain JSON, and the paths where an API server keeps them. Sends nothing: that
//! is [`crate::kubernetes_client`]'s, which blocks, and of `cluster`'s tests a client of their own, which waits as a future.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use crate::control_plane::ISSUER;

/// The node that the tests are about.
pub const NODE_NAME: &str = "node1";

/// The namespace of the tests' pods.
pub const NAMESPACE: &str = "reef";

/// The path of the agent's own pods.
pub const AGENT_PODS_PATH: &str = "/api/v1/namespaces/seawall/pods";

/// The path for token requests of the agent's ServiceAccount.
pub const AGENT_TOKEN_PATH: &str = "/api/v1/namespaces/seawall/serviceaccounts/seawall-agent/token";

/// The path of the tests' pods.
pub fn pods_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

/// The path of the tests' ServiceAccounts.
pub fn service_accounts_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts")
}

/// The tests' namespace.
pub fn namespace_object() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
}

/// A ServiceAccount, with this Google service account.
pub fn service_account(name: &str, google: Option<&str>) -> Value {
    let annotations = google.map_or(json!({}), |email| json!({"iam.gke.io/gcp-service-account": email}));
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "annotations": annotations},
    })
}

/// A pod that the scheduler has put on the node, with more in its spec.
pub fn pod(name: &str, account: &str, extra: &Value) -> Value {
    let mut spec = json!({
        "nodeName": NODE_NAME, "serviceAccountName": account, "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": "local/none:1"}],
    });
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// The status of a pod as the kubelet reports it: phase and addresses.
pub fn pod_status(phase: &str, addresses: &[&str]) -> Value {
    let all: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"status": {
        "phase": phase, "podIP": addresses.first(), "podIPs": all,
        "hostIP": "192.0.2.1", "hostIPs": [{"ip": "192.0.2.1"}],
    }})
}

/// The status of a running pod as kubelets since 1.29 report it: whether it has a sandbox, and since when (RFC 3339).
pub fn pod_status_with_sandbox(address: &str, is_ready: bool, since: &str) -> Value {
    let mut report = pod_status("Running", &[address]);
    let said = if is_ready { "True" } else { "False" };
    report["status"]["startTime"] = json!("2025-06-01T00:00:00Z");
    report["status"]["conditions"] = json!([
        {"type": "PodReadyToStartContainers", "status": said, "lastProbeTime": null, "lastTransitionTime": since},
        {"type": "Ready", "status": said, "lastProbeTime": null, "lastTransitionTime": since},
    ]);
    report
}

/// The agent's own pod.
pub fn agent_pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "seawall-agent"},
        "spec": {
            "nodeName": NODE_NAME, "serviceAccountName": "seawall-agent", "automountServiceAccountToken": false,
            "hostNetwork": true, "containers": [{"name": "agent", "image": "local/none:1"}],
        },
    })
}

/// A request for a token of that pod, for the API server itself.
pub fn agent_token_request() -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600, "audiences": [ISSUER],
                 "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "seawall-agent"}},
    })
}

/// Parses a YAML file with one document.
pub fn parse_yaml_document(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Every object of a YAML file, in order, each with the path where it is made.
pub fn parse_yaml_objects(yaml: &str) -> Vec<(String, Value)> {
    let objects = yaml.split("\n---\n").map(parse_yaml_document);
    objects.map(|object| (collection_of(&object), object)).collect()
}

fn collection_of(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let base = if version == "v1" { "/api/v1".into() } else { format!("/apis/{version}") };
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let plural = kind.strip_suffix('y').map_or(format!("{kind}s"), |stem| format!("{stem}ies"));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{base}/namespaces/{namespace}/{plural}"),
        None => format!("{base}/{plural}"),
    }
}
