//! The chart as it is shipped, installed by helm, with the image as it is built.

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use seawall_testkit::objects::NODE_NAME;
use serde_json::{Value, json};

use crate::node::{Node, kubepods_cgroup, required_env_var, run_successfully};
use crate::support::cloud::PROVIDER;
use crate::support::{wait_until_some, wait_until_true};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../deploy/helm/seawall");
const NAMESPACE: &str = "seawall";

/// The path of the agent's pods.
pub(crate) const AGENTS: &str = "/api/v1/namespaces/seawall/pods";

/// The path of its DaemonSet.
pub(crate) const DAEMON_SET: &str = "/apis/apps/v1/namespaces/seawall/daemonsets/seawall-agent";

impl Node {
    /// Installs the chart and waits until agents are ready.
    pub(crate) fn install(&self) {
        let installed = self.install_with(&json!({})).wait().unwrap();
        assert!(installed.success());
        self.until_rolled_out();
    }

    /// Installs the chart so that pods on the node's network get their own credentials, and waits until the agent is ready.
    pub(crate) fn install_capturing_host_network(&self) {
        let installed = self.install_with(&json!({"hostNetworkPods": "seawall"})).wait().unwrap();
        assert!(installed.success());
        self.until_rolled_out();
    }

    /// Begins to install it, with these values more.
    pub(crate) fn install_with(&self, more: &Value) -> Child {
        let mut command = self.helm(&["install", "seawall", CHART, "--create-namespace"], more);
        command.stdout(Stdio::null()).spawn().unwrap()
    }

    /// Installs it as far as its hook lets helm. Returns whether helm succeeded, and what it printed.
    pub(crate) fn try_install(&self, more: &Value) -> (bool, String) {
        let mut command = self.helm(&["install", "seawall", CHART, "--create-namespace"], more);
        let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
        (status.success(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
    }

    /// Another revision of it.
    pub(crate) fn upgrade(&self, more: &Value) {
        assert!(self.start_upgrade(more).wait().unwrap().success());
        self.until_rolled_out();
    }

    /// Begins another revision of it.
    pub(crate) fn start_upgrade(&self, more: &Value) -> Child {
        self.helm(&["upgrade", "seawall", CHART], more).stdout(Stdio::null()).spawn().unwrap()
    }

    pub(crate) fn uninstall(&self) {
        run_successfully(self.helm_command().args(["uninstall", "seawall", "--wait"]));
    }

    fn helm(&self, words: &[&str], more: &Value) -> Command {
        let values = format!("/run/values-{}.json", words[0]);
        fs::write(&values, merged(self.values(), more).to_string()).unwrap();
        let mut command = self.helm_command();
        command.args(words).args(["--values", &values]);
        command
    }

    fn helm_command(&self) -> Command {
        let mut command = self.admin_command(required_env_var("SEAWALL_HELM"));
        command.args(["--namespace", NAMESPACE, "--timeout", "60s"]);
        command
    }

    fn values(&self) -> Value {
        let cloud = format!("http://{}", self.cloud.address());
        json!({
            "image": {"repository": "seawall.local/seawall-agent", "tag": env!("CARGO_PKG_VERSION"), "pullPolicy": "Never"},
            "redirect": {"kubepodsCgroup": kubepods_cgroup()},
            "config": {"google": {
                "projectId": "seawall-emulator", "numericProjectId": 123_456_789_012_u64, "zone": "europe-west1-b",
                "instance": {"id": 42, "name": NODE_NAME, "hostname": format!("{NODE_NAME}.example")},
                "cluster": {"name": "reef", "location": "europe-west1"},
                "workloadIdentityProvider": PROVIDER, "stsUrl": cloud, "iamUrl": cloud,
            }},
        })
    }

    /// Waits until every agent is of the last revision, and ready.
    pub(crate) fn until_rolled_out(&self) {
        wait_until_true("the rollout", || {
            let set = self.api.call_expecting_success("GET", DAEMON_SET, None);
            let (wanted, status) = (&set["metadata"]["generation"], &set["status"]);
            let is_one = |count: &str| status[count] == 1;
            status["observedGeneration"] == *wanted
                && ["updatedNumberScheduled", "numberReady", "currentNumberScheduled"].into_iter().all(is_one)
                && self.agents().len() == 1
        });
    }

    /// Names of the agent's pods.
    pub(crate) fn agents(&self) -> Vec<String> {
        let list = self.api.call_expecting_success(
            "GET",
            &format!("{AGENTS}?labelSelector=app.kubernetes.io/component=agent"),
            None,
        );
        let pods = list["items"].as_array().unwrap().iter();
        pods.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The process of the one agent that there is.
    pub(crate) fn agent_process(&self) -> u32 {
        wait_until_some("the agent's process", || match processes("/seawall-agent")[..] {
            [only] => Some(only),
            _ => None,
        })
    }
}

/// The processes that are this program without a word more: what it serves with, and not what a probe or an operator runs beside.
fn processes(program: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let line = format!("{program}\0");
    numbers
        .filter(|number| {
            fs::read(format!("/proc/{number}/cmdline")).is_ok_and(|words| words == line.as_bytes())
        })
        .collect()
}

/// One set of values over another, as helm does it.
fn merged(mut below: Value, above: &Value) -> Value {
    let (Some(has), Some(more)) = (below.as_object_mut(), above.as_object()) else { return above.clone() };
    for (key, value) in more {
        let merged = merged(has.remove(key).unwrap_or(Value::Null), value);
        has.insert(key.clone(), merged);
    }
    below
}
