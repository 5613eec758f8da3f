//! The test's own hand on the API server: plain JSON to plain paths, playing scheduler, kubelet and administrator.
//!
//! Its calls are made on threads of the node, whoever asks: a thread that has entered a pod's network cannot reach the API
//! server.

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

/// The node that the tests are about.
pub(crate) const NODE: &str = "node1";

/// The namespace of the tests' pods.
pub(crate) const NAMESPACE: &str = "reef";

/// A client for raw requests.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: Arc<str>,
    token: Arc<str>,
}

/// The runtime of every call: its threads stay where they were made, on the node.
fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    })
}

impl Api {
    /// As whoever has this token.
    pub(crate) fn new(port: u16, certificate: &Path, token: &str) -> Self {
        // Made now, by a thread of the node.
        let _ = runtime();
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
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Self { client, base: format!("https://127.0.0.1:{port}").into(), token: token.into() }
    }

    /// Any request; status and text of the answer.
    pub(crate) fn call(
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
    pub(crate) fn must(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        match self.call(method, path, body) {
            Ok((200..=299, text)) => serde_json::from_str(&text).unwrap(),
            other => panic!("{method} {path}: {other:?}"),
        }
    }

    /// Creates every object of a YAML file, in order.
    pub(crate) fn apply(&self, yaml: &str) {
        for document in yaml.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            self.must("POST", &collection_of(&object), Some(&object));
        }
    }

    /// A ServiceAccount of the tests' namespace.
    pub(crate) fn make_account(&self, name: &str, google: Option<&str>) {
        let annotations = google.map_or(json!({}), |email| json!({"iam.gke.io/gcp-service-account": email}));
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "annotations": annotations},
        });
        self.must("POST", &accounts(), Some(&account));
    }

    /// Changes what a ServiceAccount says.
    pub(crate) fn annotate(&self, name: &str, google: Option<&str>) {
        let patch = json!({"metadata": {"annotations": {"iam.gke.io/gcp-service-account": google}}});
        self.must("PATCH", &format!("{}/{name}", accounts()), Some(&patch));
    }

    /// A pod that the scheduler has put on the node, without address or phase yet. Returns its UID.
    pub(crate) fn make_pod(&self, name: &str, account: &str) -> String {
        self.make_pod_with(name, account, &json!({}))
    }

    /// As [`Self::make_pod`], with more in its spec.
    pub(crate) fn make_pod_with(&self, name: &str, account: &str, spec: &Value) -> String {
        let pod = self.must("POST", &pods(), Some(&pod(name, account, spec)));
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// What the kubelet reports: phase and address.
    pub(crate) fn report(&self, name: &str, phase: &str, address: &str) {
        let status = json!({
            "phase": phase, "podIP": address, "podIPs": [{"ip": address}],
            "hostIP": "192.0.2.1", "hostIPs": [{"ip": "192.0.2.1"}],
        });
        self.must("PATCH", &format!("{}/{name}/status", pods()), Some(&json!({ "status": status })));
    }

    /// Asks for a pod's deletion. With grace it stays, marked, until the kubelet removes it; without it is gone.
    pub(crate) fn delete_pod(&self, name: &str, grace: u32) {
        let body = json!({ "gracePeriodSeconds": grace });
        self.must("DELETE", &format!("{}/{name}", pods()), Some(&body));
    }

    /// The warnings about a pod: reason and message.
    pub(crate) fn events(&self, pod: &str) -> Vec<(String, String)> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=involvedObject.name={pod}");
        let list = self.must("GET", &path, None);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let items = list["items"].as_array().unwrap().iter();
        items.map(|event| (text(&event["reason"]), text(&event["message"]))).collect()
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
