//! A real kube-apiserver on a real etcd, on the node's loopback. No scheduler, no controllers, no kubelet: the test plays
//! them, so that it decides what happens when.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use seawall_emulator::keys::{Algorithm, SigningKey};

use super::api::Api;
use super::until;

/// Who may do everything.
const ADMIN: &str = "admin-token";

/// `iss` of the ServiceAccounts' tokens.
pub(crate) const ISSUER: &str = "https://issuer.test";

/// A running control plane; ends with everything it started when dropped.
pub(crate) struct Plane {
    programs: PathBuf,
    folder: PathBuf,
    _etcd: Program,
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
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Plane {
    /// Storage and API server, ready.
    pub(crate) fn start(folder: &Path) -> Self {
        let mut plane = Self::without_api_server(folder);
        plane.start_api_server();
        plane
    }

    /// Storage alone; the API server's address is known and nobody listens there.
    pub(crate) fn without_api_server(folder: &Path) -> Self {
        let programs = programs();
        let (etcd_port, peer_port, port) = (free_port(), free_port(), free_port());
        fs::write(folder.join("tokens.csv"), format!("{ADMIN},admin,admin,system:masters\n")).unwrap();
        // RSA, because that is what clouds verify.
        let key = SigningKey::generate(Algorithm::Rs256).unwrap().to_pem().unwrap();
        fs::write(folder.join("service-account.key"), key.expose()).unwrap();
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
        Self { programs, folder: folder.into(), _etcd: etcd, api_server: None, etcd_port, port }
    }

    /// Starts the API server and waits until it is ready, which takes it some seconds.
    pub(crate) fn start_api_server(&mut self) {
        let folder = &self.folder;
        let key = folder.join("service-account.key").display().to_string();
        self.api_server = Some(Program::start(
            Command::new(self.programs.join("kube-apiserver"))
                .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
                .args(["--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.90.0.0/24"])
                .args(["--authorization-mode=RBAC", &format!("--service-account-issuer={ISSUER}")])
                .arg(format!("--etcd-servers={}", local("http", self.etcd_port)))
                .arg(format!("--secure-port={}", self.port))
                .arg(format!("--cert-dir={}", folder.join("certificates").display()))
                .arg(format!("--token-auth-file={}", folder.join("tokens.csv").display()))
                .arg(format!("--service-account-key-file={key}"))
                .arg(format!("--service-account-signing-key-file={key}")),
            &folder.join("kube-apiserver.log"),
        ));
        let certificate = self.certificate();
        until("kube-apiserver to be ready", || {
            let is_there = fs::metadata(&certificate).is_ok_and(|file| file.len() > 0);
            (is_there && self.admin().call("GET", "/readyz", None).is_ok_and(|(status, _)| status == 200))
                .then_some(())
        });
    }

    /// Ends the API server at once, as a crash does. Storage stays.
    pub(crate) fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    /// Who may do everything.
    pub(crate) fn admin(&self) -> Api {
        Api::new(self.port, &self.certificate(), ADMIN)
    }

    /// A kubeconfig file for whoever has this token.
    pub(crate) fn kubeconfig(&self, token: &str) -> PathBuf {
        let path = self.folder.join("kubeconfig");
        let text = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": local("https", self.port),
                "certificate-authority": self.certificate(),
            }}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        fs::write(&path, text.to_string()).unwrap();
        path
    }

    /// The certificate that the API server makes for itself on its first start, with its issuer.
    fn certificate(&self) -> PathBuf {
        self.folder.join("certificates/apiserver.crt")
    }
}

/// Where `scripts/kube/build` put the programs; a refusal where the world could be reached.
fn programs() -> PathBuf {
    let programs =
        std::env::var_os("SEAWALL_KUBE").expect("run scripts/cluster-test, which sets SEAWALL_KUBE");
    let routes = fs::read_to_string("/proc/net/route").unwrap();
    let is_default = |line: &str| line.split_ascii_whitespace().nth(1) == Some("00000000");
    assert!(!routes.lines().any(is_default), "there is a route out: run scripts/cluster-test");
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
