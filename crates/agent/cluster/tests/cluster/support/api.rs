//! Sends plain JSON requests to the API server, in the roles of scheduler, kubelet and administrator.

use std::path::Path;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use seawall_testkit::objects;
use serde_json::{Value, json};

pub(crate) use seawall_testkit::objects::{NAMESPACE, NODE_NAME, pods_path, service_accounts_path};

/// A client for raw requests.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    token: String,
}

impl Api {
    /// Creates a client that authenticates with this token.
    pub(crate) fn new(port: u16, certificate: &Path, token: &str) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(certificate).into_iter().flatten() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let tls = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls);
        let client =
            Client::builder(TokioExecutor::new()).build(connector.https_only().enable_http1().build());
        Self { client, base: format!("https://127.0.0.1:{port}"), token: token.into() }
    }

    /// Sends a request and returns the status and the text of the response.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, String), String> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(|value| value.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", kind)
            .body(Full::from(body));
        let answer = self.client.request(request.unwrap()).await.map_err(|error| format!("{error:?}"))?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        Ok((status, String::from_utf8(body.into()).unwrap()))
    }

    /// Sends a request and returns the JSON of a successful response.
    pub(crate) async fn json(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        match self.call(method, path, body).await? {
            (200..=299, text) => Ok(serde_json::from_str(&text).unwrap()),
            refusal => Err(format!("{refusal:?}")),
        }
    }

    /// Sends a request that must succeed. Panics otherwise.
    pub(crate) async fn must(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        self.json(method, path, body).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Sends a request that the API server must refuse. Returns the HTTP status.
    pub(crate) async fn refusal(&self, method: &str, path: &str, body: Option<&Value>) -> u16 {
        match self.call(method, path, body).await {
            Ok((status @ 400.., _)) => status,
            other => panic!("{method} {path} is not refused: {other:?}"),
        }
    }

    /// Creates all objects of a YAML file, in the file's order.
    pub(crate) async fn apply(&self, yaml: &str) {
        for (path, object) in objects::parse_yaml_objects(yaml) {
            self.must("POST", &path, Some(&object)).await;
        }
    }

    /// Creates a ServiceAccount, and its namespace if that does not exist.
    pub(crate) async fn make_account(&self, name: &str, google: Option<&str>) {
        // The call fails if the namespace already exists. The test ignores this error.
        let _ = self.call("POST", "/api/v1/namespaces", Some(&objects::namespace_object())).await;
        self.must("POST", &service_accounts_path(), Some(&objects::service_account(name, google))).await;
    }

    /// Creates a pod that is already bound to the node, still without address and phase. Returns its UID.
    pub(crate) async fn make_pod(&self, name: &str, account: &str) -> String {
        self.make_pod_with(name, account, &json!({})).await
    }

    /// Creates a pod like [`Self::make_pod`], with additional fields in its spec.
    pub(crate) async fn make_pod_with(&self, name: &str, account: &str, spec: &Value) -> String {
        let pod = self.must("POST", &pods_path(), Some(&objects::pod(name, account, spec))).await;
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Reports a pod's phase and addresses, like a kubelet.
    pub(crate) async fn report(&self, name: &str, phase: &str, addresses: &[&str]) {
        let path = format!("{}/{name}/status", pods_path());
        self.must("PATCH", &path, Some(&objects::pod_status(phase, addresses))).await;
    }

    /// Reports a pod's address and sandbox condition, like a kubelet since Kubernetes 1.29.
    pub(crate) async fn report_sandbox(&self, name: &str, address: &str, is_ready: bool, since: &str) {
        let path = format!("{}/{name}/status", pods_path());
        self.must("PATCH", &path, Some(&objects::pod_status_with_sandbox(address, is_ready, since))).await;
    }

    /// Deletes a pod. With a grace period (in seconds), the pod stays, marked as deleted, until the kubelet removes it. With 0,
    /// the pod is gone at once.
    pub(crate) async fn delete_pod(&self, name: &str, grace: u32) {
        let path = format!("{}/{name}", pods_path());
        self.must("DELETE", &path, Some(&json!({ "gracePeriodSeconds": grace }))).await;
    }
}
