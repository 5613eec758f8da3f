//! Pods: what they are told to run, and a test's hand in them.
//!
//! The image has nothing but a program that waits. What else runs is the machine's, mounted into the pod: Python, and the client libraries
//! that `scripts/setup test-parts` has installed.

use std::path::Path;
use std::process::Command;

use seawall_testkit::installed_test_parts::cached_test_part_path;
use seawall_testkit::node::PAUSE_IMAGE;
use seawall_testkit::objects::NAMESPACE;
use seawall_testkit::pod_process::PodProcess;
use serde_json::{Value, json};

use crate::node::Node;

pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// Where the tests' own programs are, in pods and on the machine.
pub(crate) fn program(name: &str) -> String {
    let testkit = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testkit"));
    testkit.canonicalize().unwrap().join(name).display().to_string()
}

/// What a kubelet makes of a pod's requests and limits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Class {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Class {
    fn resources(self) -> Value {
        let few = json!({"cpu": "10m", "memory": "64Mi"});
        match self {
            Self::Guaranteed => json!({ "requests": few, "limits": few }),
            Self::Burstable => json!({ "requests": few }),
            Self::BestEffort => json!({}),
        }
    }
}

/// A pod that waits for what is done in it.
pub(crate) fn pod(name: &str, account: &str, class: Class) -> Value {
    running(name, account, class, &["/pause"])
}

/// What of the machine is in the pods, at the same places: its libraries and its Python, the tests' own programs, and the client
/// libraries, whose Python may be another.
fn places() -> Vec<String> {
    let interpreter = cached_test_part_path("python/bin/python").canonicalize().unwrap();
    let installed = interpreter.ancestors().nth(2).unwrap().to_owned();
    let installed = Some(installed).filter(|place| !place.starts_with("/usr"));
    let cache = cached_test_part_path("python").parent().unwrap().to_owned();
    let shown = [Some(cache), installed].into_iter().flatten().map(|place| place.display().to_string());
    ["/usr", "/lib", "/lib64"].map(str::to_owned).into_iter().chain([program("")]).chain(shown).collect()
}

/// One that runs this of the machine's programs.
pub(crate) fn running(name: &str, account: &str, class: Class, command: &[&str]) -> Value {
    let places = places();
    let named = places.iter().enumerate().map(|(number, path)| (format!("place-{number}"), path));
    let mount = |(name, path)| json!({"name": name, "mountPath": path, "readOnly": true});
    let volume = |(name, path)| json!({"name": name, "hostPath": {"path": path}});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "serviceAccountName": account, "automountServiceAccountToken": false, "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "main", "image": PAUSE_IMAGE, "imagePullPolicy": "Never",
                "command": command, "resources": class.resources(),
                "volumeMounts": named.clone().map(mount).collect::<Vec<_>>(),
            }],
            "volumes": named.map(volume).collect::<Vec<_>>(),
        },
    })
}

/// The same on the node's own network.
pub(crate) fn on_the_nodes_network(mut pod: Value) -> Value {
    pod["spec"]["hostNetwork"] = json!(true);
    pod
}

impl Node {
    /// Creates a pod and waits until it runs; a hand in it.
    pub(crate) fn run(&self, pod: &Value) -> PodProcess {
        self.create_pod(pod);
        let name = pod["metadata"]["name"].as_str().unwrap();
        self.wait_until_pod_running(name);
        self.inside(name)
    }

    /// A process in a pod that is asked line by line.
    pub(crate) fn inside(&self, pod: &str) -> PodProcess {
        PodProcess::from_command(self.exec_command(pod, &[PYTHON, &program("src/pod.py")]))
    }

    /// The same on the node, outside of every pod.
    pub(crate) fn outside(&self) -> PodProcess {
        let mut command = Command::new(PYTHON);
        command.arg(program("src/pod.py"));
        PodProcess::from_command(command)
    }

    /// Whether a pod is given a token of this ServiceAccount.
    pub(crate) fn check(&self, answer: &str, account: &str) {
        let token = self.token(answer).unwrap_or_else(|| panic!("{account}: {answer}"));
        assert_eq!(token.sub, crate::support::cloud::subject(account));
    }

    /// What the token in an answer says, if there is one.
    pub(crate) fn token(&self, answer: &str) -> Option<seawall_emulator::google::EmulatedAccessToken> {
        let body: Value = serde_json::from_str(answer.strip_prefix("200 ")?).ok()?;
        self.cloud.read_access_token(body["access_token"].as_str()?)
    }
}
