//! The test's own hand on the API server: plain JSON to plain paths, playing scheduler, kubelet and administrator.

use http::Request;
use seawall_testkit::objects;
use serde_json::{Value, json};

pub(crate) use seawall_testkit::objects::{NAMESPACE, NODE, accounts, pods};

/// A client for raw requests.
#[derive(Clone)]
pub(crate) struct Api(pub(crate) kube::Client);

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
        for (path, object) in objects::of_yaml(yaml) {
            self.must("POST", &path, Some(&object)).await;
        }
    }

    /// A namespace with a ServiceAccount in it.
    pub(crate) async fn make_account(&self, name: &str, google: Option<&str>) {
        // Already there is fine.
        let _ = self.text("POST", "/api/v1/namespaces", Some(&objects::namespace())).await;
        self.must("POST", &accounts(), Some(&objects::account(name, google))).await;
    }

    /// A pod that the scheduler has put on the node, without address or phase yet. Returns its UID.
    pub(crate) async fn make_pod(&self, name: &str, account: &str) -> String {
        self.make_pod_with(name, account, &json!({})).await
    }

    /// As [`Self::make_pod`], with more in its spec.
    pub(crate) async fn make_pod_with(&self, name: &str, account: &str, spec: &Value) -> String {
        let pod = self.must("POST", &pods(), Some(&objects::pod(name, account, spec))).await;
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// What the kubelet reports: phase and addresses.
    pub(crate) async fn report(&self, name: &str, phase: &str, addresses: &[&str]) {
        let path = format!("{}/{name}/status", pods());
        self.must("PATCH", &path, Some(&objects::report(phase, addresses))).await;
    }

    /// What a kubelet reports that tells of sandboxes.
    pub(crate) async fn report_sandbox(&self, name: &str, address: &str, is_ready: bool, since: &str) {
        let path = format!("{}/{name}/status", pods());
        self.must("PATCH", &path, Some(&objects::report_of_sandbox(address, is_ready, since))).await;
    }

    /// Asks for a pod's deletion. With grace it stays, marked, until the kubelet removes it; without it is gone.
    pub(crate) async fn delete_pod(&self, name: &str, grace: u32) {
        let path = format!("{}/{name}", pods());
        self.must("DELETE", &path, Some(&json!({ "gracePeriodSeconds": grace }))).await;
    }
}
