//! A real kube-apiserver on a real etcd, one pair for each test, on loopback. No scheduler, no controllers, no kubelet: the
//! test plays them, so that it decides what happens when.
//!
//! Runs only where nothing can get out: `scripts/cluster-test` makes the network and process namespaces, and this refuses to
//! start anywhere else. It speaks no HTTP: whether the API server is ready, the client of the tests that called it finds out.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustix::process::{Pid, Signal, kill_process};

/// The token of whoever may do everything.
pub const ADMIN: &str = "admin-token";

/// `iss` of the ServiceAccounts' tokens.
pub const ISSUER: &str = "https://issuer.test";

/// A control plane; ends with everything it started when dropped.
#[derive(Debug)]
pub struct ControlPlane {
    programs: PathBuf,
    folder: PathBuf,
    /// Ends before what it stores in.
    api_server: Option<Program>,
    _etcd: Program,
    etcd_port: u16,
    port: u16,
}

/// A child that does not outlive its owner.
#[derive(Debug)]
struct Program(Child);

impl ControlPlane {
    /// Storage alone; the API server's address is known and nobody listens there. All files are in the folder.
    pub fn without_api_server(folder: &Path) -> Self {
        let programs = programs();
        let (etcd_port, peer_port, port) = (free_port(), free_port(), free_port());
        fs::write(folder.join("tokens.csv"), format!("{ADMIN},admin,admin,system:masters\n")).unwrap();
        // RSA, because that is what clouds verify.
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
        fs::write(folder.join("service-account.key"), key.serialize_pem()).unwrap();
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
        Self { programs, folder: folder.into(), api_server: None, _etcd: etcd, etcd_port, port }
    }

    /// Starts the API server, which takes some seconds to be ready.
    pub fn launch_api_server(&mut self) {
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
            &self.log(),
        ));
    }

    /// Ends the API server at once, as a crash does. Storage stays.
    pub fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    /// Stops the API server in mid-air: connections stay open, nothing is answered.
    pub fn freeze(&self) {
        self.api_server.as_ref().unwrap().signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.api_server.as_ref().unwrap().signal(Signal::CONT);
    }

    /// Where the API server listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate that the API server makes for itself on its first start, with its issuer.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("certificates/apiserver.crt")
    }

    /// Whether that certificate has been written.
    pub fn has_certificate(&self) -> bool {
        fs::metadata(self.certificate()).is_ok_and(|file| file.len() > 0)
    }

    /// What the API server wrote last, for whoever has waited for it in vain.
    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.get(log.len().saturating_sub(4000)..).unwrap_or(&log).to_owned()
    }

    /// A kubeconfig file for whoever has this token, for an API server that may be behind another port.
    pub fn kubeconfig(&self, token: &str, port: u16) -> PathBuf {
        let path = self.folder.join(format!("kubeconfig-{port}"));
        fs::write(&path, self.kubeconfig_text(token, port)).unwrap();
        path
    }

    /// What stands in such a file.
    pub fn kubeconfig_text(&self, token: &str, port: u16) -> String {
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

    fn log(&self) -> PathBuf {
        self.folder.join("kube-apiserver.log")
    }
}

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
