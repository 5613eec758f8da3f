//! An API server that a test plays on loopback, and the kubeconfig that leads there.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use seawall_core::Clock;
use seawall_kube::ClientConfigError;
use seawall_kubectl::{Api, ContextInfo, KubeconfigSelection};
use seawall_testkit::closure_server::{Peer, Server};
use seawall_testkit::tls::CertificateAuthority;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The server, what it was asked, and the folder with the files of whoever asks.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) authority: CertificateAuthority,
    pub(crate) stub: Server,
    /// Heads of requests as they came, with their bodies.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

/// What a test answers to a request: all bytes, from the head on.
pub(crate) type Answer = dyn Fn(&str) -> String + Send + Sync;

impl World {
    /// Over TLS, each request answered so.
    pub(crate) fn answering(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let answer: Arc<Answer> = Arc::new(answer);
        Self::playing(false, move |peer, asked| serve(peer, asked, &answer))
    }

    /// Over TLS, with a client's certificate if `is_mutual`; each connection played so.
    pub(crate) fn playing(
        is_mutual: bool,
        play: impl Fn(&mut Peer, &Mutex<Vec<String>>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let authority = CertificateAuthority::new().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let told = asked.clone();
        let config = authority.server_config(&[], is_mutual).unwrap();
        let stub = Server::start_tls(config, move |mut peer, _| play(&mut peer, &told)).unwrap();
        let world = Self { folder: TempDir::new().unwrap(), authority, stub, asked };
        world.write("ca.crt", &world.authority.certificate());
        world.write("token", "good");
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A program of the user's.
    pub(crate) fn program(&self, name: &str, script: &str) {
        self.write(name, &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o700)).unwrap();
    }

    /// A kubeconfig with this in its cluster, beside the URL, and this as its user.
    pub(crate) fn choice(&self, cluster: Value, user: &Value) -> KubeconfigSelection {
        let mut entry = json!({"server": format!("https://{}", self.stub.address())});
        let Value::Object(cluster) = cluster else { panic!("a table") };
        cluster.into_iter().for_each(|(key, value)| entry[key] = value);
        let text = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "shop"}}],
            "clusters": [{"name": "c", "cluster": entry}], "users": [{"name": "c", "user": user}],
        });
        self.write("config", &text.to_string());
        KubeconfigSelection { context: None, kubeconfig: Some(self.path("config")) }
    }

    pub(crate) async fn open_with(
        &self,
        cluster: Value,
        user: &Value,
        clock: Clock,
    ) -> Result<(Api, ContextInfo), ClientConfigError> {
        Api::open(&self.choice(cluster, user), provider(), clock).await
    }

    /// By its certificate authority, as this user.
    pub(crate) async fn open_as(&self, user: &Value) -> Result<Api, ClientConfigError> {
        let trusted = json!({"certificate-authority": "ca.crt"});
        Ok(self.open_with(trusted, user, Clock::system()).await?.0)
    }

    /// As whoever has the token `good`.
    pub(crate) async fn open(&self) -> Api {
        self.open_as(&json!({"tokenFile": "token"})).await.unwrap()
    }

    /// All that was asked so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Reads requests and answers them, until the client closes.
fn serve(peer: &mut Peer, asked: &Mutex<Vec<String>>, answer: &Arc<Answer>) -> io::Result<()> {
    loop {
        let request = request(peer)?;
        let answer = answer(&request);
        asked.lock().unwrap().push(request);
        peer.send(answer.as_bytes())?;
    }
}

/// A request's head and its body.
pub(crate) fn request(peer: &mut Peer) -> io::Result<String> {
    let head = peer.read_request_head()?;
    let length = header(&head, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    let body = peer.read_body(length)?;
    Ok(head + &String::from_utf8_lossy(&body))
}

/// A header of a head.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// An answer in JSON.
pub(crate) fn said(status: &str, body: &Value) -> String {
    let body = body.to_string();
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
