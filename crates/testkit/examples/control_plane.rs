//! A real control plane for a bench: one node full of pods, the shipped RBAC, and the agent's own credentials.
//!
//!   control_plane FOLDER COUNT     pods pod-0, pod-1, … of 40 ServiceAccounts, at 10.244.1.0 and following
//!
//! Runs where nothing can get out, with SEAWALL_KUBE set to what `scripts/kube/build` printed. It leaves `kubeconfig` (the agent's)
//! and `jwks.json` (the keys of the pods' tokens) in the folder, says "ready", and ends with everything it started when its
//! standard input does.

#![expect(clippy::print_stdout, reason = "a script waits for a word")]
#![expect(clippy::disallowed_methods, reason = "it waits for programs, by the machine's time")]

use std::error::Error;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use seawall_testkit::control_plane::{ADMIN_TOKEN, ControlPlane};
use seawall_testkit::objects;
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Longer than an API server takes to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const ACCOUNTS: usize = 40;

const RBAC: &str = include_str!("../../../deploy/rbac.yaml");

/// The administrator's hand on the API server: a connection for each call.
struct Api {
    port: u16,
    tls: Arc<ClientConfig>,
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, count] = &arguments[..] else { return Err("usage: control_plane FOLDER COUNT".into()) };
    let folder = Path::new(folder);
    let mut plane = ControlPlane::without_api_server(folder);
    plane.launch_api_server();
    let api = Api::when_ready(&plane)?;
    furnish(&api)?;
    for n in 0..ACCOUNTS {
        api.must(
            "POST",
            &objects::service_accounts_path(),
            &objects::service_account(&account(n), Some(&email(n))),
        )?;
    }
    for n in 0..count.parse()? {
        make_pod(&api, n)?;
    }
    api.must("POST", objects::AGENT_PODS_PATH, &objects::agent_pod())?;
    let granted = api.must("POST", objects::AGENT_TOKEN_PATH, &objects::agent_token_request())?;
    let token = granted["status"]["token"].as_str().ok_or("no token was granted")?;
    fs::write(folder.join("kubeconfig"), plane.kubeconfig_text(token, plane.api_server_port()))?;
    fs::write(folder.join("jwks.json"), api.call("GET", "/openid/v1/jwks", &Value::Null)?.1)?;
    println!("ready");
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// What a cluster has before its pods.
fn furnish(api: &Api) -> Outcome<()> {
    for (path, object) in objects::parse_yaml_objects(RBAC) {
        api.must("POST", &path, &object)?;
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": objects::NODE_NAME}});
    api.must("POST", "/api/v1/nodes", &node)?;
    api.must("POST", "/api/v1/namespaces", &objects::namespace_object())?;
    Ok(())
}

/// A pod that runs, as scheduler and kubelet would have it.
fn make_pod(api: &Api, n: u32) -> Outcome<()> {
    let name = format!("pod-{n}");
    api.must(
        "POST",
        &objects::pods_path(),
        &objects::pod(&name, &account(n as usize % ACCOUNTS), &json!({})),
    )?;
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 244, 1, 0)) + n).to_string();
    let report = objects::pod_status("Running", &[&address]);
    api.must("PATCH", &format!("{}/{name}/status", objects::pods_path()), &report)?;
    Ok(())
}

fn account(n: usize) -> String {
    format!("sa-{n}")
}

fn email(n: usize) -> String {
    format!("{}@demo-project.iam.gserviceaccount.com", account(n))
}

impl Api {
    fn when_ready(plane: &ControlPlane) -> Outcome<Self> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if plane.has_certificate() {
                let api = Self { port: plane.api_server_port(), tls: trusting(&plane.certificate_path())? };
                if api.call("GET", "/readyz", &Value::Null).is_ok_and(|(status, _)| status == 200) {
                    return Ok(api);
                }
            }
            thread::sleep(Duration::from_millis(100));
        }
        Err(format!("the API server is not ready; it said last: {}", plane.api_server_log_tail()).into())
    }

    /// A request that must succeed.
    fn must(&self, method: &str, path: &str, body: &Value) -> Outcome<Value> {
        match self.call(method, path, body)? {
            (200..=299, text) => Ok(serde_json::from_str(&text)?),
            (status, text) => Err(format!("{method} {path}: {status} {text}").into()),
        }
    }

    /// Status and body. The answer ends with its connection: HTTP/1.0, so that no body comes in chunks.
    fn call(&self, method: &str, path: &str, body: &Value) -> Outcome<(u16, String)> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let session = ClientConnection::new(Arc::clone(&self.tls), ServerName::from(Ipv4Addr::LOCALHOST))?;
        let mut stream = StreamOwned::new(session, TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?);
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("not an answer")?;
        let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
        Ok((status, body.to_owned()))
    }
}

fn trusting(certificate: &Path) -> Outcome<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(certificate)? {
        roots.add(certificate?)?;
    }
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let config =
        ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
