//! A real kube-apiserver on a real etcd, one pair for each test, on loopback.
//!
//! Runs only where nothing can get out: `scripts/cluster-test` makes the network and process namespaces, and this
//! refuses to start anywhere else. No scheduler, no controllers, no kubelet: the test plays them, so that it decides
//! what happens when.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::process::{Pid, Signal, kill_process};

use super::api::Api;

/// Who may do everything.
const ADMIN: &str = "admin-token";

/// A running control plane; ends with everything it started when dropped.
pub(crate) struct ControlPlane {
    programs: PathBuf,
    folder: PathBuf,
    etcd: Program,
    api_server: Option<Program>,
    etcd_port: u16,
    port: u16,
}

/// A child that does not outlive its owner.
struct Program(Child);

impl Program {
    fn start(command: &mut Command, log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).unwrap();
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn();
        Self(child.unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program())))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl ControlPlane {
    /// Storage and API server, ready.
    pub(crate) async fn start() -> Self {
        let mut plane = Self::without_api_server();
        plane.start_api_server().await;
        plane
    }

    /// Storage alone; the API server's address is known and nobody listens there.
    pub(crate) fn without_api_server() -> Self {
        let programs = programs();
        let (etcd_port, peer_port, port) = (free_port(), free_port(), free_port());
        let folder = std::env::temp_dir().join(format!("seawall-kube-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("tokens.csv"), format!("{ADMIN},admin,admin,system:masters\n")).unwrap();
        fs::write(folder.join("service-account.key"), rsa_key()).unwrap();
        let (clients, peers) = (local("http", etcd_port), local("http", peer_port));
        let etcd = Program::start(
            Command::new(programs.join("etcd"))
                .arg("--data-dir")
                .arg(folder.join("etcd"))
                .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
                .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
                .args(["--initial-cluster", &format!("default={peers}"), "--unsafe-no-fsync"]),
            &folder.join("etcd.log"),
        );
        Self { programs, folder, etcd, api_server: None, etcd_port, port }
    }

    /// Starts the API server and waits until it is ready, which takes it about four seconds.
    pub(crate) async fn start_api_server(&mut self) {
        let folder = &self.folder;
        let key = folder.join("service-account.key").display().to_string();
        self.api_server = Some(Program::start(
            Command::new(self.programs.join("kube-apiserver"))
                .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
                .args(["--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.90.0.0/24"])
                .args(["--authorization-mode=RBAC", "--service-account-issuer=https://issuer.test"])
                .arg(format!("--etcd-servers={}", local("http", self.etcd_port)))
                .arg(format!("--secure-port={}", self.port))
                .arg(format!("--cert-dir={}", folder.join("certificates").display()))
                .arg(format!("--token-auth-file={}", folder.join("tokens.csv").display()))
                .arg(format!("--service-account-key-file={key}"))
                .arg(format!("--service-account-signing-key-file={key}")),
            &folder.join("kube-apiserver.log"),
        ));
        self.wait_until_ready().await;
    }

    async fn wait_until_ready(&self) {
        let certificate = self.certificate();
        for _ in 0..1200 {
            if fs::metadata(&certificate).is_ok_and(|file| file.len() > 0)
                && self.admin().await.text("GET", "/readyz", None).await.is_ok_and(|text| text == "ok")
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = fs::read_to_string(self.folder.join("kube-apiserver.log")).unwrap_or_default();
        panic!("kube-apiserver is not ready; its log ends with:\n{}", last(&log, 4000));
    }

    /// Ends the API server at once, as a crash does. Storage stays.
    pub(crate) fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    /// Stops the API server in mid-air: connections stay open, nothing is answered.
    pub(crate) fn freeze(&self) {
        self.api_server.as_ref().unwrap().signal(Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.api_server.as_ref().unwrap().signal(Signal::CONT);
    }

    /// Where the API server listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A client that may do everything.
    pub(crate) async fn admin(&self) -> Api {
        self.client_with(ADMIN).await
    }

    /// A client with this token.
    pub(crate) async fn client_with(&self, token: &str) -> Api {
        let file = Kubeconfig::from_yaml(&self.kubeconfig_text(token, self.port)).unwrap();
        let mut config =
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        Api(kube::Client::try_from(config).unwrap())
    }

    /// A kubeconfig file with this token, for an API server that may be behind another port.
    pub(crate) fn kubeconfig(&self, token: &str, port: u16) -> PathBuf {
        let path = self.folder.join(format!("kubeconfig-{port}"));
        fs::write(&path, self.kubeconfig_text(token, port)).unwrap();
        path
    }

    /// The files of a pod's ServiceAccount, where every pod finds them. `scripts/cluster-test` made that place private.
    pub(crate) fn give_pod_files(&self, token: &str) {
        let folder = Path::new("/var/run/secrets/kubernetes.io/serviceaccount");
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("token"), token).unwrap();
        fs::write(folder.join("namespace"), "seawall").unwrap();
        fs::copy(self.certificate(), folder.join("ca.crt")).unwrap();
    }

    fn kubeconfig_text(&self, token: &str, port: u16) -> String {
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": local("https", port),
                "certificate-authority": self.certificate(),
            }}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        })
        .to_string()
    }

    /// The certificate that the API server makes for itself on its first start, with its issuer.
    fn certificate(&self) -> PathBuf {
        self.folder.join("certificates/apiserver.crt")
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.api_server = None;
        self.etcd.signal(Signal::KILL);
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Where `scripts/kube/build` put the programs; a refusal where the world could be reached.
fn programs() -> PathBuf {
    let programs =
        std::env::var_os("SEAWALL_KUBE").expect("run scripts/cluster-test, which sets SEAWALL_KUBE");
    let routes = fs::read_to_string("/proc/net/route").unwrap();
    assert_eq!(routes.lines().count(), 1, "there is a route out: run scripts/cluster-test");
    programs.into()
}

/// A port that nobody else gets: below those that the kernel gives to outgoing connections (32768 and above), one of which
/// may take a port between the look at it and its use.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn local(scheme: &str, port: u16) -> String {
    format!("{scheme}://127.0.0.1:{port}")
}

/// RSA, because that is what clouds verify.
fn rsa_key() -> String {
    let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
    let text = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
}

fn last(text: &str, bytes: usize) -> &str {
    text.get(text.len().saturating_sub(bytes)..).unwrap_or(text)
}
