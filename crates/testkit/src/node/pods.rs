//! Pods of the tests' namespace on the node, from their creation until nothing is left of them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::node_services::static_pods;
use super::{CpuThrottling, NODE_FOLDER, Node, ctr_command, kubepods_cgroup, run_successfully};
use crate::objects::{NAMESPACE, NODE_NAME, pods_path};
use crate::waiting::{pause, wait_until_some, wait_until_true};

impl Node {
    /// Creates a pod.
    pub fn create_pod(&self, pod: &Value) {
        self.api.call_expecting_success("POST", &pods_path(), Some(pod));
    }

    /// Runs a static pod, which the kubelet reads from a file, and returns the name of its mirror pod.
    pub fn run_static_pod(&self, mut pod: Value) -> String {
        // The kubelet refuses a static pod that names an object of the API server.
        pod["spec"].as_object_mut().unwrap().remove("serviceAccountName");
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        fs::write(static_pods(Path::new(NODE_FOLDER)).join(format!("{name}.json")), pod.to_string()).unwrap();
        let mirror = format!("{name}-{NODE_NAME}");
        let path = format!("{}/{mirror}", pods_path());
        wait_until_true("the mirror pod to be known", || {
            matches!(self.api.call("GET", &path, None), Ok((200, _)))
        });
        self.wait_until_pod_running(&mirror);
        mirror
    }

    /// Waits until a pod runs.
    pub fn wait_until_pod_running(&self, name: &str) {
        wait_until_true("the pod to run", || self.pod(name)["status"]["phase"] == "Running");
    }

    /// Returns the pod object from the API server.
    pub fn pod(&self, name: &str) -> Value {
        self.api.call_expecting_success("GET", &format!("{}/{name}", pods_path()), None)
    }

    /// The pods that have these labels, such as `batch.kubernetes.io/job-name=load`, by name.
    pub fn pods_with_labels(&self, labels: &str) -> Vec<Value> {
        let list =
            self.api.call_expecting_success("GET", &format!("{}?labelSelector={labels}", pods_path()), None);
        list["items"].as_array().unwrap().clone()
    }

    /// Waits until this pod has an address, and returns it.
    pub fn wait_for_pod_address(&self, name: &str) -> String {
        wait_until_some("an address", || self.pod(name)["status"]["podIP"].as_str().map(str::to_owned))
    }

    /// Deletes a pod and waits until nothing is left of it.
    pub fn delete_pod_and_wait(&self, name: &str) {
        self.api.call_expecting_success("DELETE", &format!("{}/{name}", pods_path()), None);
        self.wait_until_pod_gone(name);
    }

    /// Waits until nothing is left of a pod.
    pub fn wait_until_pod_gone(&self, name: &str) {
        let path = format!("{}/{name}", pods_path());
        wait_until_true("the pod to be gone", || {
            // Many wait for this at once, and the API server has the same processors as everybody.
            pause(Duration::from_millis(200));
            matches!(self.api.call("GET", &path, None), Ok((404, _)))
        });
    }

    /// Returns the log of the container of a pod so far.
    pub fn pod_log(&self, name: &str) -> String {
        match self.api.call("GET", &format!("{}/{name}/log", pods_path()), None) {
            Ok((200, log)) => log,
            other => panic!("the log of {name}: {other:?}"),
        }
    }

    /// Waits until a pod's only container has ended; its exit code.
    pub fn wait_for_exit_code(&self, name: &str) -> i64 {
        wait_until_some("the container to end", || {
            self.pod(name)["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64()
        })
    }

    /// Kills every process of a pod's only container at once, as the kernel does that lacks memory.
    pub fn kill_container(&self, name: &str) {
        run_successfully(&mut ctr_command(&[
            "tasks",
            "kill",
            "--all",
            "--signal",
            "SIGKILL",
            &self.container(name),
        ]));
    }

    /// A pod's only container, as containerd calls it.
    fn container(&self, name: &str) -> String {
        wait_until_some("a container", || {
            let pod = self.pod(name);
            let id = pod["status"]["containerStatuses"][0]["containerID"].as_str()?;
            Some(id.strip_prefix("containerd://")?.to_owned())
        })
    }

    /// Returns the CPU throttling of a pod so far.
    pub fn pod_cpu_throttling(&self, name: &str) -> CpuThrottling {
        let pod = self.pod(name);
        let class = match pod["status"]["qosClass"].as_str().unwrap() {
            "Guaranteed" => String::new(),
            class => format!("/{}", class.to_lowercase()),
        };
        let group = format!("{}{class}/pod{}", kubepods_cgroup(), pod["metadata"]["uid"].as_str().unwrap());
        CpuThrottling::max_of_cgroups(&[group.clone(), format!("{group}/{}", self.container(name))])
    }

    /// Objects of these kinds (plural, below their group's path, such as `/apis/batch/v1` and `jobs`) that are in a namespace, as `KIND/NAME`.
    pub fn list_object_names(&self, namespace: &str, kinds: &[(&str, &str)]) -> Vec<String> {
        let of_kind = |(base, kind): &(&str, &str)| {
            let list = self.api.call_expecting_success(
                "GET",
                &format!("{base}/namespaces/{namespace}/{kind}"),
                None,
            );
            let name = |item: &Value| format!("{kind}/{}", item["metadata"]["name"].as_str().unwrap());
            list["items"].as_array().unwrap().iter().map(name).collect::<Vec<_>>()
        };
        kinds.iter().flat_map(of_kind).collect()
    }

    /// Deletes all objects of these kinds (as [`Self::list_object_names`] takes them) in the tests' namespace at once, and waits until none is left but
    /// what the controllers put into each namespace.
    pub fn delete_all_objects(&self, kinds: &[(&str, &str)]) {
        for (base, kind) in kinds {
            let path = format!(
                "{base}/namespaces/{NAMESPACE}/{kind}?gracePeriodSeconds=0&propagationPolicy=Background"
            );
            self.api.call_expecting_success("DELETE", &path, None);
        }
        wait_until_true("the namespace to be empty", || {
            pause(Duration::from_millis(50));
            self.list_object_names(NAMESPACE, kinds)
                .iter()
                .all(|object| object == "configmaps/kube-root-ca.crt")
        });
    }

    /// `kubectl exec` in a pod.
    pub fn exec_command(&self, pod: &str, words: &[&str]) -> Command {
        let mut command = self.kubectl_command();
        command.args(["exec", "--quiet", "--stdin", "--namespace", NAMESPACE, pod, "--"]).args(words);
        command
    }
}
