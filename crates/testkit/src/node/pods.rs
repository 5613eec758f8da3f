//! Pods of the tests' namespace on the node, from their creation until nothing is left of them.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{Node, Throttling, ctr, done, kubepods};
use crate::objects::{NAMESPACE, pods};
use crate::waiting::{pause, until, until_true};

impl Node {
    /// Creates a pod.
    pub fn create(&self, pod: &Value) {
        self.api.must("POST", &pods(), Some(pod));
    }

    /// Waits until a pod runs.
    pub fn until_running(&self, name: &str) {
        until_true("the pod to run", || self.pod(name)["status"]["phase"] == "Running");
    }

    /// What the API server knows of a pod.
    pub fn pod(&self, name: &str) -> Value {
        self.api.must("GET", &format!("{}/{name}", pods()), None)
    }

    /// The pods that have these labels, such as `batch.kubernetes.io/job-name=load`, by name.
    pub fn pods_with(&self, labels: &str) -> Vec<Value> {
        let list = self.api.must("GET", &format!("{}?labelSelector={labels}", pods()), None);
        list["items"].as_array().unwrap().clone()
    }

    /// The address that a pod has.
    pub fn address(&self, name: &str) -> String {
        until("an address", || self.pod(name)["status"]["podIP"].as_str().map(str::to_owned))
    }

    /// Deletes a pod and waits until nothing is left of it.
    pub fn delete(&self, name: &str) {
        self.api.must("DELETE", &format!("{}/{name}", pods()), None);
        self.until_gone(name);
    }

    /// Waits until nothing is left of a pod.
    pub fn until_gone(&self, name: &str) {
        let path = format!("{}/{name}", pods());
        until_true("the pod to be gone", || {
            // Many wait for this at once, and the API server has the same processors as everybody.
            pause(Duration::from_millis(200));
            matches!(self.api.call("GET", &path, None), Ok((404, _)))
        });
    }

    /// What a pod's container has written so far.
    pub fn log(&self, name: &str) -> String {
        match self.api.call("GET", &format!("{}/{name}/log", pods()), None) {
            Ok((200, log)) => log,
            other => panic!("the log of {name}: {other:?}"),
        }
    }

    /// Waits until a pod's only container has ended; its exit code.
    pub fn until_ended(&self, name: &str) -> i64 {
        until("the container to end", || {
            self.pod(name)["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64()
        })
    }

    /// Kills every process of a pod's only container at once, as the kernel does that lacks memory.
    pub fn kill_container(&self, name: &str) {
        done(&mut ctr(&["tasks", "kill", "--all", "--signal", "SIGKILL", &self.container(name)]));
    }

    /// A pod's only container, as containerd calls it.
    fn container(&self, name: &str) -> String {
        until("a container", || {
            let pod = self.pod(name);
            let id = pod["status"]["containerStatuses"][0]["containerID"].as_str()?;
            Some(id.strip_prefix("containerd://")?.to_owned())
        })
    }

    /// How a pod's limit on processor time was felt so far.
    pub fn throttling(&self, name: &str) -> Throttling {
        let pod = self.pod(name);
        let class = match pod["status"]["qosClass"].as_str().unwrap() {
            "Guaranteed" => String::new(),
            class => format!("/{}", class.to_lowercase()),
        };
        let group = format!("{}{class}/pod{}", kubepods(), pod["metadata"]["uid"].as_str().unwrap());
        Throttling::of(&[group.clone(), format!("{group}/{}", self.container(name))])
    }

    /// Objects of these kinds (plural, below their group's path, such as `/apis/batch/v1` and `jobs`) that are in a namespace, as `KIND/NAME`.
    pub fn left(&self, namespace: &str, kinds: &[(&str, &str)]) -> Vec<String> {
        let of_kind = |(base, kind): &(&str, &str)| {
            let list = self.api.must("GET", &format!("{base}/namespaces/{namespace}/{kind}"), None);
            let name = |item: &Value| format!("{kind}/{}", item["metadata"]["name"].as_str().unwrap());
            list["items"].as_array().unwrap().iter().map(name).collect::<Vec<_>>()
        };
        kinds.iter().flat_map(of_kind).collect()
    }

    /// Deletes all objects of these kinds (as [`Self::left`] takes them) in the tests' namespace at once, and waits until none is left but
    /// what the controllers put into each namespace.
    pub fn clear(&self, kinds: &[(&str, &str)]) {
        for (base, kind) in kinds {
            let path = format!(
                "{base}/namespaces/{NAMESPACE}/{kind}?gracePeriodSeconds=0&propagationPolicy=Background"
            );
            self.api.must("DELETE", &path, None);
        }
        until_true("the namespace to be empty", || {
            pause(Duration::from_millis(50));
            self.left(NAMESPACE, kinds).iter().all(|object| object == "configmaps/kube-root-ca.crt")
        });
    }

    /// `kubectl exec` in a pod.
    pub fn exec(&self, pod: &str, words: &[&str]) -> Command {
        let mut command = self.kubectl();
        command.args(["exec", "--quiet", "--stdin", "--namespace", NAMESPACE, pod, "--"]).args(words);
        command
    }
}
