//! The test's own hand on the API server: plain JSON to plain paths, playing scheduler, kubelet and administrator.

use http::Request;
use serde_json::{Value, json};

/// A client for raw requests.
#[derive(Clone)]
pub(crate) struct Api(pub(crate) kube::Client);

/// The node that the tests are about.
pub(crate) const NODE: &str = "node1";

/// The namespace of the tests' pods.
pub(crate) const NAMESPACE: &str = "reef";

impl Api {
    /// Any request; the answer as text.
    pub(crate) async fn text(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<String, kube::Error> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(|value| value.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body);
        self.0.request_text(request.unwrap()).await
    }

    /// Any request; the answer as JSON.
    pub(crate) async fn json(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, kube::Error> {
        Ok(serde_json::from_str(&self.text(method, path, body).await?).unwrap())
    }

    /// A request that must succeed.
    pub(crate) async fn must(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        self.json(method, path, body).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// The HTTP status of a request's refusal.
    pub(crate) async fn refusal(&self, method: &str, path: &str, body: Option<&Value>) -> u16 {
        match self.text(method, path, body).await {
            Err(kube::Error::Api(status)) => status.code,
            other => panic!("{method} {path} is not refused: {other:?}"),
        }
    }

    /// Creates every object of a YAML file, in order.
    pub(crate) async fn apply(&self, yaml: &str) {
        for document in yaml.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            self.must("POST", &collection_of(&object), Some(&object)).await;
        }
    }

    /// A namespace with a ServiceAccount in it.
    pub(crate) async fn make_account(&self, name: &str, google: Option<&str>) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        // Already there is fine.
        let _ = self.text("POST", "/api/v1/namespaces", Some(&namespace)).await;
        let annotations = google.map_or(json!({}), |email| json!({"iam.gke.io/gcp-service-account": email}));
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "annotations": annotations},
        });
        self.must("POST", &accounts(), Some(&account)).await;
    }

    /// A pod that the scheduler has put on the node, without address or phase yet. Returns its UID.
    pub(crate) async fn make_pod(&self, name: &str, account: &str) -> String {
        self.make_pod_with(name, account, &json!({})).await
    }

    /// As [`Self::make_pod`], with more in its spec.
    pub(crate) async fn make_pod_with(&self, name: &str, account: &str, spec: &Value) -> String {
        let pod = self.must("POST", &pods(), Some(&pod(name, account, spec))).await;
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// What the kubelet reports: phase and addresses.
    pub(crate) async fn report(&self, name: &str, phase: &str, addresses: &[&str]) {
        let all: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        let status = json!({
            "phase": phase, "podIP": addresses.first(), "podIPs": all,
            "hostIP": "192.0.2.1", "hostIPs": [{"ip": "192.0.2.1"}],
        });
        let path = format!("{}/{name}/status", pods());
        self.must("PATCH", &path, Some(&json!({ "status": status }))).await;
    }

    /// Asks for a pod's deletion. With grace it stays, marked, until the kubelet removes it; without it is gone.
    pub(crate) async fn delete_pod(&self, name: &str, grace: u32) {
        let path = format!("{}/{name}", pods());
        self.must("DELETE", &path, Some(&json!({ "gracePeriodSeconds": grace }))).await;
    }
}

/// The path of the tests' pods.
pub(crate) fn pods() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

/// The path of the tests' ServiceAccounts.
pub(crate) fn accounts() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts")
}

fn pod(name: &str, account: &str, extra: &Value) -> Value {
    let mut spec = json!({
        "nodeName": NODE, "serviceAccountName": account, "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": "local/none:1"}],
    });
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
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
