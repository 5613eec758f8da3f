//! This machine as a node of a cluster: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd and a kubelet.
//!
//! Everything is made in the namespaces of `scripts/e2e` and ends with them, containers included: nothing here is put back. Files are below
//! [`NODE_FOLDER`], on a file system of the mount namespace. What is tested on the node it does not know: images are named by the tests.
//!
//! Its network has no way out, no names and nothing that translates services: pods reach each other and the node by their addresses.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cpu_throttling;
mod node_services;
mod pods;

use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::control_plane::{ADMIN_TOKEN, ControlPlane, PERSON_NAME, PERSON_TOKEN, ServiceProcess};
use crate::kubernetes_client::KubernetesApi;
use crate::objects::{self, NAMESPACE, NODE_NAME, service_accounts_path};
use crate::ready_control_plane::ReadyControlPlane;
use crate::waiting::wait_until_true;
pub use cpu_throttling::CpuThrottling;
use node_services::{
    configure_and_start_containerd, run_containerd, start_controllers, start_kubelet, start_scheduler,
};

/// The node's.
pub const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 89, 0, 1);

/// The service `kubernetes`: the first of its range. Nothing translates services here, so that the node has the address itself.
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 1);

/// The pods' addresses: few, so that each is soon another pod's.
const RANGE: [&str; 3] = ["10.88.0.0/24", "10.88.0.2", "10.88.0.61"];

/// The folder of all files of the node.
pub const NODE_FOLDER: &str = "/run/node";

/// The containerd namespace of the kubelet's containers.
const CONTAINERS: &str = "k8s.io";

/// The image of a program that waits, which every node has.
pub const PAUSE_IMAGE: &str = "seawall.local/pause:1";

/// A node with its control plane; ends with everything it started when dropped.
#[derive(Debug)]
pub struct Node {
    /// A client of the API server with all rights.
    pub api: KubernetesApi,
    containerd: Option<ServiceProcess>,
    _kubelet: ServiceProcess,
    _parts: [ServiceProcess; 2],
    plane: ReadyControlPlane,
}

/// Returns an environment variable that `scripts/e2e` sets.
///
/// # Panics
/// The variable is not set.
pub fn required_env_var(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| panic!("SKIPPED: run scripts/e2e, which sets {name}"))
}

/// The pods' group, below the root of the tree.
pub fn kubepods_cgroup() -> String {
    format!("{}/kubepods", required_env_var("SEAWALL_E2E_GROUP").to_str().unwrap())
}

/// A file that `scripts/e2e` made beside the images.
pub fn e2e_artifact_path(name: &str) -> PathBuf {
    PathBuf::from(required_env_var("SEAWALL_E2E_IMAGES")).join(name)
}

impl Node {
    /// One that is about to be ready, has these images (`NAME.oci.tar` among those that `scripts/e2e` made) beside [`PAUSE_IMAGE`], and joins with
    /// these taints, as `key=value:effect`. The tests' namespace is there.
    pub fn launch(images: &[&str], taints: &[&str]) -> Self {
        Self::launch_with(images, taints, |plane| plane)
    }

    /// The same, with a control plane that `change` has changed before it starts.
    pub fn launch_with(
        images: &[&str],
        taints: &[&str],
        change: impl FnOnce(ControlPlane) -> ControlPlane,
    ) -> Self {
        let folder = Path::new(NODE_FOLDER);
        fs::create_dir(folder).unwrap();
        let containerd = configure_and_start_containerd(folder);
        have_network();
        let plane = change(ControlPlane::start_storage_for_node(folder, NODE_ADDRESS));
        let plane = ReadyControlPlane::from_control_plane(plane);
        let api = plane.admin_api();
        let parts = [start_controllers(&plane, folder), start_scheduler(&plane, folder)];
        wait_until_true("containerd", is_answering);
        ["pause"].iter().chain(images).for_each(|name| import(name));
        let kubelet = start_kubelet(&plane, folder, taints);
        api.call_expecting_success("POST", "/api/v1/namespaces", Some(&objects::namespace_object()));
        Self { api, containerd: Some(containerd), _kubelet: kubelet, _parts: parts, plane }
    }

    /// One that is ready.
    pub fn start(images: &[&str]) -> Self {
        let node = Self::launch(images, &[]);
        node.wait_until_ready();
        node
    }

    /// Waits until it says so, and until pods can be made that name no ServiceAccount.
    pub fn wait_until_ready(&self) {
        wait_until_true("the node to be ready", || is_ready(&self.api));
        let account = format!("{}/default", service_accounts_path());
        wait_until_true("the namespace's account", || {
            matches!(self.api.call("GET", &account, None), Ok((200, _)))
        });
    }

    /// Builds a command for one of the Kubernetes programs, with all rights.
    pub fn admin_command(&self, program: impl Into<PathBuf>) -> Command {
        command_of(program.into(), &self.write_admin_kubeconfig())
    }

    /// Builds a command for kubectl, with all rights.
    pub fn kubectl_command(&self) -> Command {
        self.kubectl_command_with_kubeconfig(&self.write_admin_kubeconfig())
    }

    /// Builds a command for kubectl with this kubeconfig file.
    pub fn kubectl_command_with_kubeconfig(&self, kubeconfig: &Path) -> Command {
        command_of(self.plane.programs_folder().join("kubectl"), kubeconfig)
    }

    /// A kubeconfig file of who may do everything.
    pub fn write_admin_kubeconfig(&self) -> PathBuf {
        self.plane.write_kubeconfig(ADMIN_TOKEN)
    }

    /// One of a person who may do this in the tests' namespace and nothing else: a Role's `rules`. Called again, other rules are in force.
    pub fn grant_person_and_write_kubeconfig(&self, rules: &Value) -> PathBuf {
        let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": PERSON_NAME});
        let named = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": PERSON_NAME});
        for (kind, part) in [
            ("roles", json!({ "rules": rules })),
            ("rolebindings", json!({"subjects": [subject], "roleRef": named})),
        ] {
            let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/{kind}");
            let mut object = json!({"metadata": {"name": PERSON_NAME}});
            object.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
            // Made if it is not there.
            self.api.call_expecting_success("PUT", &format!("{path}/{PERSON_NAME}"), Some(&object));
        }
        self.plane.write_kubeconfig(PERSON_TOKEN)
    }

    /// The tool as it is shipped, on the node, for the cluster of this kubeconfig file.
    pub fn seawall_command(&self, kubeconfig: &Path) -> Command {
        let mut command = Command::new(e2e_artifact_path("seawall"));
        command.env("KUBECONFIG", kubeconfig).env("HOME", NODE_FOLDER).current_dir(NODE_FOLDER);
        command
    }

    /// Ends containerd at once and starts another; containers go on, sandboxes as well.
    pub fn restart_containerd(&mut self) {
        self.containerd = None;
        self.containerd = Some(run_containerd(Path::new(NODE_FOLDER)));
        wait_until_true("containerd", is_answering);
    }

    /// Keys of the node's taints.
    pub fn taint_keys(&self) -> Vec<String> {
        let node = self.api.call_expecting_success("GET", &format!("/api/v1/nodes/{NODE_NAME}"), None);
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
    }
}

fn command_of(program: PathBuf, kubeconfig: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(kubeconfig);
    // What helm remembers of charts.
    command.env("HOME", NODE_FOLDER);
    command
}

fn is_ready(api: &KubernetesApi) -> bool {
    let Ok((200, node)) = api.call("GET", &format!("/api/v1/nodes/{NODE_NAME}"), None) else { return false };
    let node: Value = serde_json::from_str(&node).unwrap();
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Runs a command that must succeed, and returns its standard output.
pub fn run_successfully(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let (said, error) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{said}{error}");
    said.into_owned()
}

/// Changes the network of the node with `ip`, given its arguments.
pub fn run_ip_command(change: &str) {
    run_successfully(Command::new("ip").args(change.split(' ')));
}

/// A network without a way out.
fn have_network() {
    run_ip_command("link add node0 type bridge");
    run_ip_command(&format!("address add {NODE_ADDRESS}/24 dev node0"));
    run_ip_command("link set node0 up");
    run_ip_command(&format!("address add {SERVICE}/32 dev lo"));
}

/// Builds a `ctr` command for the containerd of this node.
pub fn ctr_command(words: &[&str]) -> Command {
    let mut command = Command::new("ctr");
    command
        .args(["--address", &format!("{NODE_FOLDER}/containerd.sock"), "--namespace", CONTAINERS])
        .args(words);
    command
}

fn is_answering() -> bool {
    ctr_command(&["version"]).output().unwrap().status.success()
}

/// One that `scripts/e2e` made: there is nobody here to fetch any from.
fn import(name: &str) {
    run_successfully(&mut ctr_command(&[
        "images",
        "import",
        e2e_artifact_path(&format!("{name}.oci.tar")).to_str().unwrap(),
    ]));
}
