//! The programs of a node, and what each is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{NODE_ADDRESS, PAUSE_IMAGE, RANGE, required_env_var};
use crate::control_plane::{CONTROLLERS_TOKEN, KUBELET_TOKEN, SCHEDULER_TOKEN, ServiceProcess};
use crate::objects::NODE_NAME;
use crate::ready_control_plane::ReadyControlPlane;

pub(super) fn configure_and_start_containerd(folder: &Path) -> ServiceProcess {
    let at = |name: &str| folder.join(name).display().to_string();
    let config = format!(
        "version = 2\nroot = {root:?}\nstate = {state:?}\n[grpc]\naddress = {socket:?}\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = {PAUSE_IMAGE:?}\n\
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

pub(super) fn run_containerd(folder: &Path) -> ServiceProcess {
    let mut command = Command::new("containerd");
    command.arg("--config").arg(folder.join("containerd.toml"));
    ServiceProcess::start(&mut command, &folder.join("containerd.log"))
}

pub(super) fn start_controllers(plane: &ReadyControlPlane, folder: &Path) -> ServiceProcess {
    let mut command = Command::new(plane.programs_folder().join("kube-controller-manager"));
    command.arg("--kubeconfig").arg(plane.write_kubeconfig(CONTROLLERS_TOKEN));
    command.arg("--service-account-private-key-file").arg(plane.service_account_key_path());
    command.arg("--root-ca-file").arg(plane.certificate_path());
    command.args(["--leader-elect=false", "--use-service-account-credentials", "--secure-port=0"]);
    ServiceProcess::start(&mut command, &folder.join("kube-controller-manager.log"))
}

pub(super) fn start_scheduler(plane: &ReadyControlPlane, folder: &Path) -> ServiceProcess {
    let mut command = Command::new(plane.programs_folder().join("kube-scheduler"));
    command.arg("--kubeconfig").arg(plane.write_kubeconfig(SCHEDULER_TOKEN));
    command.args(["--leader-elect=false", "--secure-port=0"]);
    ServiceProcess::start(&mut command, &folder.join("kube-scheduler.log"))
}

pub(super) fn start_kubelet(plane: &ReadyControlPlane, folder: &Path, taints: &[&str]) -> ServiceProcess {
    fs::write(folder.join("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
    let config = folder.join("kubelet.json");
    fs::create_dir_all(static_pods(folder)).unwrap();
    fs::write(&config, kubelet(folder).to_string()).unwrap();
    let mut command = Command::new(plane.programs_folder().join("kubelet"));
    command.arg("--kubeconfig").arg(plane.write_kubeconfig(KUBELET_TOKEN)).arg("--config").arg(config);
    command.arg("--root-dir").arg(folder.join("kubelet")).arg("--cert-dir").arg(folder.join("kubelet-pki"));
    command.args(["--hostname-override", NODE_NAME, "--node-ip", &NODE_ADDRESS.to_string()]);
    command.arg(format!("--register-with-taints={}", taints.join(",")));
    ServiceProcess::start(&mut command, &folder.join("kubelet.log"))
}

/// Returns the folder from which the kubelet runs static pods.
pub(super) fn static_pods(folder: &Path) -> PathBuf {
    folder.join("static-pods")
}

/// The kubelet's configuration (kubelet.config.k8s.io/v1beta1): all that it keeps is in the folder, all groups are in ours.
fn kubelet(folder: &Path) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}", folder.join("containerd.sock").display()),
        "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{}", required_env_var("SEAWALL_E2E_GROUP").to_str().unwrap()),
        // The tree of version 2 beside version 1's is enough for the redirect, and not for the kubelet's taste.
        "failCgroupV1": false,
        "failSwapOn": false, "localStorageCapacityIsolation": false, "readOnlyPort": 0, "healthzPort": 0,
        "staticPodPath": static_pods(folder), "fileCheckFrequency": "1s",
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
