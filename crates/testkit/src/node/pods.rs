//! Pods of the tests' namespace on the node, from their creation until nothing is left of them.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::Node;
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

    /// `kubectl exec` in a pod.
    pub fn exec(&self, pod: &str, words: &[&str]) -> Command {
        let mut command = self.kubectl();
        command.args(["exec", "--quiet", "--stdin", "--namespace", NAMESPACE, pod, "--"]).args(words);
        command
    }
}
