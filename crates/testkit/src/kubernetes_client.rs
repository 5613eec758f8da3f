//! The client of tests for the API server: plain JSON to plain paths, in the roles of scheduler, kubelet and administrator.
//!
//! Threads of the node make its calls: a thread of a test that has entered the network of a pod cannot reach the API server.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::objects::{self, NAMESPACE, pods_path, service_accounts_path};

/// A client for raw requests.
#[derive(Clone, Debug)]
pub struct KubernetesApi {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: Arc<str>,
    token: Arc<str>,
}

/// The runtime of every call: its threads stay where they were made, on the node.
pub(crate) fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    })
}

/// The TLS of a client that trusts the certificates in this file alone.
pub(crate) fn tls_trusting(certificates: &Path) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(certificates).into_iter().flatten() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

impl KubernetesApi {
    /// Makes a client that authenticates with this token.
    pub fn new(address: SocketAddr, certificate: &Path, token: &str) -> Self {
        // Made now, by a thread of the node.
        let _ = runtime();
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls_trusting(certificate))
            .https_only()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Self { client, base: format!("https://{address}").into(), token: token.into() }
    }

    /// Any request; status and text of the answer.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, String), String> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(|value| value.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", kind)
            .body(Full::from(body))
            .unwrap();
        let asking = self.client.request(request);
        let (sender, answer) = std::sync::mpsc::channel();
        runtime().spawn(async move {
            let answer = async {
                let response = asking.await.map_err(|error| format!("{error:?}"))?;
                let status = response.status().as_u16();
                let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
                Ok((status, String::from_utf8(body.to_bytes().to_vec()).unwrap()))
            };
            let _ = sender.send(answer.await);
        });
        answer.recv().unwrap()
    }

    /// A request that must succeed.
    pub fn call_expecting_success(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        match self.call(method, path, body) {
            Ok((200..=299, text)) => serde_json::from_str(&text).unwrap(),
            other => panic!("{method} {path}: {other:?}"),
        }
    }

    /// Creates every object of a YAML file, in order.
    pub fn create_from_yaml(&self, yaml: &str) {
        for (path, object) in objects::parse_yaml_objects(yaml) {
            self.call_expecting_success("POST", &path, Some(&object));
        }
    }

    /// A ServiceAccount of the tests' namespace.
    pub fn create_service_account(&self, name: &str, google: Option<&str>) {
        self.call_expecting_success(
            "POST",
            &service_accounts_path(),
            Some(&objects::service_account(name, google)),
        );
    }

    /// Changes what a ServiceAccount says.
    pub fn set_google_account_annotation(&self, name: &str, google: Option<&str>) {
        let patch = json!({"metadata": {"annotations": {"iam.gke.io/gcp-service-account": google}}});
        self.call_expecting_success("PATCH", &format!("{}/{name}", service_accounts_path()), Some(&patch));
    }

    /// A pod that the scheduler has put on the node, without address or phase yet. Returns its UID.
    pub fn make_pod(&self, name: &str, account: &str) -> String {
        self.make_pod_with(name, account, &json!({}))
    }

    /// Makes a pod as [`Self::make_pod`] does, with more fields in its spec.
    pub fn make_pod_with(&self, name: &str, account: &str, spec: &Value) -> String {
        let pod = self.call_expecting_success("POST", &pods_path(), Some(&objects::pod(name, account, spec)));
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Reports a status as the kubelet does: phase and address.
    pub fn set_pod_status(&self, name: &str, phase: &str, address: &str) {
        self.set_pod_addresses(name, phase, &[address]);
    }

    /// Reports a pod's phase and all its addresses, one of each IP family at most, as a kubelet does.
    pub fn set_pod_addresses(&self, name: &str, phase: &str, addresses: &[&str]) {
        let report = objects::pod_status(phase, addresses);
        self.call_expecting_success("PATCH", &format!("{}/{name}/status", pods_path()), Some(&report));
    }

    /// Reports the statuses of a pod's containers.
    pub fn report_containers(&self, name: &str, statuses: &Value) {
        let report = json!({"status": {"containerStatuses": statuses}});
        self.call_expecting_success("PATCH", &format!("{}/{name}/status", pods_path()), Some(&report));
    }

    /// Reports a status with sandbox conditions, as newer kubelets do. Its date is after the start of this machine.
    pub fn set_pod_sandbox_status(&self, name: &str, address: &str, is_ready: bool) {
        let report = objects::pod_status_with_sandbox(address, is_ready, "2100-01-01T00:00:00Z");
        self.call_expecting_success("PATCH", &format!("{}/{name}/status", pods_path()), Some(&report));
    }

    /// Asks for a pod's deletion. With grace it stays, marked, until the kubelet removes it; without it is gone.
    pub fn delete_pod(&self, name: &str, grace: u32) {
        let body = json!({ "gracePeriodSeconds": grace });
        self.call_expecting_success("DELETE", &format!("{}/{name}", pods_path()), Some(&body));
    }

    /// Returns the reason and the message of each event of this pod.
    pub fn pod_events(&self, pod: &str) -> Vec<(String, String)> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=involvedObject.name={pod}");
        let list = self.call_expecting_success("GET", &path, None);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let items = list["items"].as_array().unwrap().iter();
        items.map(|event| (text(&event["reason"]), text(&event["message"]))).collect()
    }
}
