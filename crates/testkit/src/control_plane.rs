//! A real kube-apiserver on a real etcd, one pair for each test, on loopback. No scheduler, no controllers, no kubelet: most
//! tests play them, so that they decide what happens when; `scripts/e2e` has real ones, for whom the API server is at an address of a node.
//!
//! Runs only where nothing can get out: `scripts/cluster-test` and `scripts/e2e` make the network and process namespaces, and this refuses
//! to start anywhere else. It speaks no HTTP: whether the API server is ready, the client of the tests that called it finds out.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustix::process::{Pid, Signal, kill_process};

use crate::objects::NODE_NAME;

/// The token of whoever may do everything.
pub const ADMIN_TOKEN: &str = "admin-token";

/// The token of the kubelet of [`NODE_NAME`].
pub const KUBELET_TOKEN: &str = "kubelet-token";

/// The token of kube-scheduler.
pub const SCHEDULER_TOKEN: &str = "scheduler-token";

/// The token of kube-controller-manager.
pub const CONTROLLERS_TOKEN: &str = "controllers-token";

/// The token of [`PERSON_NAME`].
pub const PERSON_TOKEN: &str = "person-token";

/// A person who may do what a test permits, and beforehand nothing.
pub const PERSON_NAME: &str = "jane";

/// The token of somebody whose group may have pods send load, if deploy/load-rbac.yaml says so.
pub const LOAD_SENDER_TOKEN: &str = "loader-token";

/// Admission as GKE has it: a pod of the system's priority classes needs a ResourceQuota in its namespace that selects its class
/// (<https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default>).
const CRITICAL_PODS_NEED_A_QUOTA: &str = r#"{
    "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
    "plugins": [{ "name": "ResourceQuota", "configuration": {
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{ "resource": "pods", "matchScopes": [{
            "scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical", "system-cluster-critical"]
        }] }]
    } }]
}"#;

/// `iss` of the ServiceAccounts' tokens.
pub const ISSUER: &str = "https://issuer.test";

/// A control plane; ends with everything it started when dropped.
#[derive(Debug)]
pub struct ControlPlane {
    programs: PathBuf,
    folder: PathBuf,
    /// Ends before what it stores in.
    api_server: Option<ServiceProcess>,
    _etcd: ServiceProcess,
    etcd_port: u16,
    door: Door,
    limits_critical_pods: bool,
}

/// The address to which clients of the API server connect, and the address at which it listens.
#[derive(Clone, Copy, Debug)]
struct Door {
    asked: SocketAddr,
    listens: Ipv4Addr,
}

/// A child that does not outlive its owner.
#[derive(Debug)]
pub struct ServiceProcess(Child);

impl ControlPlane {
    /// Starts the storage alone. The API server has its address, but does not listen yet. All files are in the folder.
    pub fn without_api_server(folder: &Path) -> Self {
        let listens = Ipv4Addr::LOCALHOST;
        Self::behind(folder, Door { asked: (listens, free_port()).into(), listens })
    }

    /// Starts the storage for a node with this address. The API server will listen at all addresses of the node, on the port of
    /// the service `kubernetes`, so that the address of the service need only be one of them.
    pub fn start_storage_for_node(folder: &Path, node: Ipv4Addr) -> Self {
        Self::behind(folder, Door { asked: (node, 443).into(), listens: Ipv4Addr::UNSPECIFIED })
    }

    /// The API server will admit pods of the system's priority classes only where a ResourceQuota selects their class, as on GKE.
    #[must_use]
    pub fn limiting_critical_pods(mut self) -> Self {
        self.limits_critical_pods = true;
        self
    }

    fn behind(folder: &Path, door: Door) -> Self {
        let programs = programs();
        let (etcd_port, peer_port) = (free_port(), free_port());
        fs::write(folder.join("tokens.csv"), users()).unwrap();
        // RSA, because that is what clouds verify.
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
        fs::write(folder.join("service-account.key"), key.serialize_pem()).unwrap();
        let (clients, peers) = (local("http", etcd_port), local("http", peer_port));
        let etcd = ServiceProcess::start(
            Command::new(programs.join("etcd"))
                .arg("--data-dir")
                .arg(folder.join("etcd"))
                .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
                .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
                .args(["--initial-cluster", &format!("default={peers}"), "--unsafe-no-fsync"]),
            &folder.join("etcd.log"),
        );
        let folder = folder.into();
        Self { programs, folder, api_server: None, _etcd: etcd, etcd_port, door, limits_critical_pods: false }
    }

    /// Starts the API server, which takes some seconds to be ready.
    pub fn launch_api_server(&mut self) {
        let folder = &self.folder;
        let key = folder.join("service-account.key").display().to_string();
        let admission = folder.join("admission.json");
        let admission = self.limits_critical_pods.then(|| {
            fs::write(&admission, CRITICAL_PODS_NEED_A_QUOTA).unwrap();
            format!("--admission-control-config-file={}", admission.display())
        });
        self.api_server = Some(ServiceProcess::start(
            Command::new(self.programs.join("kube-apiserver"))
                .arg(format!("--bind-address={}", self.door.listens))
                .arg(format!("--advertise-address={}", self.door.asked.ip()))
                .arg(format!("--secure-port={}", self.door.asked.port()))
                .args(["--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.90.0.0/24"])
                .args(["--authorization-mode=Node,RBAC", &format!("--service-account-issuer={ISSUER}")])
                // A node's name is nobody's to look up here.
                .arg("--kubelet-preferred-address-types=InternalIP")
                .arg(format!("--etcd-servers={}", local("http", self.etcd_port)))
                .arg(format!("--cert-dir={}", folder.join("certificates").display()))
                .arg(format!("--token-auth-file={}", folder.join("tokens.csv").display()))
                .arg(format!("--service-account-key-file={key}"))
                .arg(format!("--service-account-signing-key-file={key}"))
                .args(admission),
            &self.log(),
        ));
    }

    /// Ends the API server at once, as a crash does. Storage stays.
    pub fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    /// Stops the API server in mid-air: connections stay open, nothing is answered.
    pub fn freeze_api_server(&self) {
        self.api_server.as_ref().unwrap().signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw_api_server(&self) {
        self.api_server.as_ref().unwrap().signal(Signal::CONT);
    }

    /// The address of the API server.
    pub fn api_server_address(&self) -> SocketAddr {
        self.door.asked
    }

    /// The port of the API server.
    pub fn api_server_port(&self) -> u16 {
        self.door.asked.port()
    }

    /// The folder of the Kubernetes programs.
    pub fn programs_folder(&self) -> &Path {
        &self.programs
    }

    /// The path of the key that signs the tokens of ServiceAccounts.
    pub fn service_account_key_path(&self) -> PathBuf {
        self.folder.join("service-account.key")
    }

    /// The certificate that the API server makes for itself on its first start, with its issuer.
    pub fn certificate_path(&self) -> PathBuf {
        self.folder.join("certificates/apiserver.crt")
    }

    /// Returns true if the certificate of the API server has been written.
    pub fn has_certificate(&self) -> bool {
        fs::metadata(self.certificate_path()).is_ok_and(|file| file.len() > 0)
    }

    /// Returns the last 4000 bytes of the log of the API server, for messages of failed waits.
    pub fn api_server_log_tail(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.get(log.len().saturating_sub(4000)..).unwrap_or(&log).to_owned()
    }

    /// Writes a kubeconfig file with this token, for an API server that may be behind another port.
    pub fn write_kubeconfig_with_port(&self, token: &str, port: u16) -> PathBuf {
        let path = self.folder.join(format!("kubeconfig-{port}"));
        fs::write(&path, self.kubeconfig_text(token, port)).unwrap();
        path
    }

    /// Writes a kubeconfig file with this token, for this API server.
    pub fn write_kubeconfig(&self, token: &str) -> PathBuf {
        let path = self.folder.join(format!("{token}.kubeconfig"));
        fs::write(&path, self.kubeconfig_for(token, self.door.asked)).unwrap();
        path
    }

    /// Returns the text of a kubeconfig file with this token and port.
    pub fn kubeconfig_text(&self, token: &str, port: u16) -> String {
        self.kubeconfig_for(token, SocketAddr::new(self.door.asked.ip(), port))
    }

    fn kubeconfig_for(&self, token: &str, address: SocketAddr) -> String {
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://{address}"),
                "certificate-authority": self.certificate_path(),
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

impl ServiceProcess {
    /// Runs; what it says is added to a file.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).unwrap();
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn();
        Self(child.unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program())))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the token file of the API server: a line for each client.
fn users() -> String {
    let node = format!("{KUBELET_TOKEN},system:node:{NODE_NAME},{NODE_NAME},system:nodes\n");
    let parts =
        [(SCHEDULER_TOKEN, "system:kube-scheduler"), (CONTROLLERS_TOKEN, "system:kube-controller-manager")];
    let parts = parts.map(|(token, name)| format!("{token},{name},{name}\n")).concat();
    let loader = format!("{LOAD_SENDER_TOKEN},loader,loader,load-testers\n");
    let person = format!("{PERSON_TOKEN},{PERSON_NAME},{PERSON_NAME}\n");
    format!("{ADMIN_TOKEN},admin,admin,system:masters\n{person}{node}{parts}{loader}")
}

/// Returns the folder into which `scripts/kube/build` put the programs. Panics if this network has a gateway.
fn programs() -> PathBuf {
    let programs = std::env::var_os("SEAWALL_KUBE")
        .expect("run scripts/cluster-test or scripts/e2e, which set SEAWALL_KUBE");
    let routes = fs::read_to_string("/proc/net/route").unwrap();
    let is_gateway = |route: &str| route.split_whitespace().nth(2) != Some("00000000");
    assert!(
        !routes.lines().skip(1).any(is_gateway),
        "there is a route out: run scripts/cluster-test or scripts/e2e"
    );
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
