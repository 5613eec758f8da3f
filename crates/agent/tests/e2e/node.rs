//! This machine as a node of a cluster: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd and a kubelet.
//!
//! Everything is made in the namespaces of `scripts/e2e` and ends with them, containers included: nothing here is put back. Files are below
//! [`FOLDER`], on a file system of the mount namespace.

use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use seawall_testkit::api::Api;
use seawall_testkit::control_plane::{ADMIN, CONTROLLERS, ControlPlane, KUBELET, Program, SCHEDULER};
use seawall_testkit::objects::{self, NODE};
use seawall_testkit::plane::Plane;
use serde_json::{Value, json};

use crate::real::Real;
use crate::support::cloud::{Cloud, email};
use crate::support::until_true;

/// The node's.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 89, 0, 1);

/// The service `kubernetes`: the first of its range. Nothing translates services here, so that the node has the address itself.
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 1);

/// The pods' addresses: few, so that each is soon another pod's.
const RANGE: [&str; 3] = ["10.88.0.0/24", "10.88.0.2", "10.88.0.61"];

const FOLDER: &str = "/run/node";

/// What `ctr` and `crictl` call the kubelet's containers.
const CONTAINERS: &str = "k8s.io";

/// A node that is ready, without an agent.
pub(crate) struct Node {
    pub(crate) api: Api,
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) real: Real,
    containerd: Option<Program>,
    _kubelet: Program,
    _parts: [Program; 2],
    plane: Plane,
}

/// What `scripts/e2e` has said.
pub(crate) fn given(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| panic!("SKIPPED: run scripts/e2e, which sets {name}"))
}

/// The pods' group, below the root of the tree.
pub(crate) fn kubepods() -> String {
    format!("{}/kubepods", given("SEAWALL_E2E_GROUP").to_str().unwrap())
}

impl Node {
    /// With these ServiceAccounts; each has a Google service account of its own, unless its name begins with `plain`.
    pub(crate) fn start(accounts: &[&str]) -> Self {
        Self::with(accounts, &[])
    }

    /// The same, with taints with which the node joins, as `key=value:effect`.
    pub(crate) fn with(accounts: &[&str], taints: &[&str]) -> Self {
        let folder = Path::new(FOLDER);
        fs::create_dir(folder).unwrap();
        let containerd = start_containerd(folder);
        have_network();
        let plane = Plane::ready(ControlPlane::of_node(folder, ADDRESS));
        let api = plane.admin();
        let parts = [start_controllers(&plane, folder), start_scheduler(&plane, folder)];
        import_images();
        let kubelet = start_kubelet(&plane, folder, taints);
        let accounts: Vec<_> = accounts.iter().map(|name| (name.to_string(), google(name))).collect();
        api.must("POST", "/api/v1/namespaces", Some(&objects::namespace()));
        for (name, email) in &accounts {
            api.make_account(name, email.as_deref());
        }
        let cloud = Arc::new(Cloud::start(&api, &accounts));
        until_true("the node to be ready", || is_ready(&api));
        let containerd = Some(containerd);
        Self { real: Real::start(), api, cloud, containerd, _kubelet: kubelet, _parts: parts, plane }
    }

    /// One of Kubernetes' own programs or of its users', as who may do everything.
    pub(crate) fn command(&self, program: impl Into<PathBuf>) -> Command {
        let mut command = Command::new(program.into());
        command.arg("--kubeconfig").arg(self.plane.kubeconfig_of(ADMIN));
        // What helm remembers of charts.
        command.env("HOME", FOLDER);
        command
    }

    pub(crate) fn kubectl(&self) -> Command {
        self.command(self.plane.programs().join("kubectl"))
    }

    /// Ends containerd at once and starts another; containers go on, sandboxes as well.
    pub(crate) fn restart_containerd(&mut self) {
        self.containerd = None;
        self.containerd = Some(run_containerd(Path::new(FOLDER)));
        until_true("containerd", is_answering);
    }

    /// Keys of the node's taints.
    pub(crate) fn taints(&self) -> Vec<String> {
        let node = self.api.must("GET", &format!("/api/v1/nodes/{NODE}"), None);
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
    }
}

fn google(account: &str) -> Option<String> {
    (!account.starts_with("plain")).then(|| email(account))
}

fn is_ready(api: &Api) -> bool {
    let Ok((200, node)) = api.call("GET", &format!("/api/v1/nodes/{NODE}"), None) else { return false };
    let node: Value = serde_json::from_str(&node).unwrap();
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// What must succeed; what it printed.
pub(crate) fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let (said, error) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{said}{error}");
    said.into_owned()
}

/// A network without a way out. The address of the metadata server is the node's own: whoever is not captured reaches the stand-in.
fn have_network() {
    for change in [
        "link add node0 type bridge".into(),
        format!("address add {ADDRESS}/24 dev node0"),
        "link set node0 up".into(),
        format!("address add {SERVICE}/32 dev lo"),
        format!("address add {}/32 dev lo", crate::support::network::METADATA),
    ] {
        done(Command::new("ip").args(change.split(' ')));
    }
}

fn start_containerd(folder: &Path) -> Program {
    let at = |name: &str| folder.join(name).display().to_string();
    let config = format!(
        "version = 2\nroot = {root:?}\nstate = {state:?}\n[grpc]\naddress = {socket:?}\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"seawall.local/pause:1\"\n\
         # That takes CAP_SYS_RESOURCE.\nrestrict_oom_score_adj = true\n\
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/usr/lib/cni\"\nconf_dir = {cni:?}\n",
        root = at("containerd"),
        state = at("containerd-state"),
        socket = at("containerd.sock"),
        cni = at("cni"),
    );
    fs::write(folder.join("containerd.toml"), config).unwrap();
    let [subnet, first, last] = RANGE;
    let plugin = json!({
        "type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true,
        "ipam": {
            "type": "host-local", "dataDir": at("addresses"),
            "ranges": [[{"subnet": subnet, "rangeStart": first, "rangeEnd": last}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    });
    let network = json!({"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]});
    fs::create_dir(folder.join("cni")).unwrap();
    fs::write(folder.join("cni/pods.conflist"), network.to_string()).unwrap();
    run_containerd(folder)
}

fn run_containerd(folder: &Path) -> Program {
    let mut command = Command::new("containerd");
    command.arg("--config").arg(folder.join("containerd.toml"));
    Program::start(&mut command, &folder.join("containerd.log"))
}

/// Asks containerd.
pub(crate) fn ctr(words: &[&str]) -> Command {
    let mut command = Command::new("ctr");
    command.args(["--address", &format!("{FOLDER}/containerd.sock"), "--namespace", CONTAINERS]).args(words);
    command
}

fn is_answering() -> bool {
    ctr(&["version"]).output().unwrap().status.success()
}

/// Those that `scripts/e2e` made: there is nobody here to fetch any from.
fn import_images() {
    until_true("containerd", is_answering);
    let images = PathBuf::from(given("SEAWALL_E2E_IMAGES"));
    for name in ["pause", "seawall-agent", "seawall"] {
        let file = images.join(format!("{name}.oci.tar"));
        done(&mut ctr(&["images", "import", file.to_str().unwrap()]));
    }
}

fn start_controllers(plane: &Plane, folder: &Path) -> Program {
    let mut command = Command::new(plane.programs().join("kube-controller-manager"));
    command.arg("--kubeconfig").arg(plane.kubeconfig_of(CONTROLLERS));
    command.arg("--service-account-private-key-file").arg(plane.account_key());
    command.arg("--root-ca-file").arg(plane.certificate());
    command.args(["--leader-elect=false", "--use-service-account-credentials", "--secure-port=0"]);
    Program::start(&mut command, &folder.join("kube-controller-manager.log"))
}

fn start_scheduler(plane: &Plane, folder: &Path) -> Program {
    let mut command = Command::new(plane.programs().join("kube-scheduler"));
    command.arg("--kubeconfig").arg(plane.kubeconfig_of(SCHEDULER));
    command.args(["--leader-elect=false", "--secure-port=0"]);
    Program::start(&mut command, &folder.join("kube-scheduler.log"))
}

fn start_kubelet(plane: &Plane, folder: &Path, taints: &[&str]) -> Program {
    fs::write(folder.join("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
    let config = folder.join("kubelet.json");
    fs::write(&config, kubelet(folder).to_string()).unwrap();
    let mut command = Command::new(plane.programs().join("kubelet"));
    command.arg("--kubeconfig").arg(plane.kubeconfig_of(KUBELET)).arg("--config").arg(config);
    command.arg("--root-dir").arg(folder.join("kubelet")).arg("--cert-dir").arg(folder.join("kubelet-pki"));
    command.args(["--hostname-override", NODE, "--node-ip", &ADDRESS.to_string()]);
    command.arg(format!("--register-with-taints={}", taints.join(",")));
    Program::start(&mut command, &folder.join("kubelet.log"))
}

/// The kubelet's configuration (kubelet.config.k8s.io/v1beta1): all that it keeps is in the folder, all groups are in ours.
fn kubelet(folder: &Path) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}", folder.join("containerd.sock").display()),
        "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{}", given("SEAWALL_E2E_GROUP").to_str().unwrap()),
        // The tree of version 2 beside version 1's is enough for the redirect, and not for the kubelet's taste.
        "failCgroupV1": false,
        "failSwapOn": false, "localStorageCapacityIsolation": false, "readOnlyPort": 0, "healthzPort": 0,
        "podLogsDir": folder.join("logs"), "volumePluginDir": folder.join("plugins"),
        "resolvConf": folder.join("resolv.conf"),
        "maxPods": 200, "kubeAPIQPS": 200, "kubeAPIBurst": 400,
        // A changed ConfigMap is brought to its pods at once.
        "syncFrequency": "1s",
        // Nobody is evicted for what else this machine does.
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
    })
}
