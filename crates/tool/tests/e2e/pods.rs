//! Pods of the tool's image.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use seawall_testkit::node::{Node, PAUSE_IMAGE};
use seawall_testkit::objects::NAMESPACE;
use serde_json::{Value, json};

/// As `scripts/image` calls it.
pub(crate) const IMAGE: &str = concat!("seawall.local/seawall:", env!("CARGO_PKG_VERSION"));

/// Where a planted server in a pod listens, at the pod's address.
pub(crate) const PORT: u16 = 8790;

/// The node of all tests in this process, which has the image; one test at a time has it.
static NODE: Mutex<Option<Node>> = Mutex::new(None);

/// The node, with nothing in the tests' namespace.
pub(crate) struct SharedNode(MutexGuard<'static, Option<Node>>);

impl Deref for SharedNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.0.as_ref().unwrap()
    }
}

/// The node, once nothing is left on it of the test before, whatever became of that.
pub(crate) fn node() -> SharedNode {
    let mut node = NODE.lock().unwrap_or_else(PoisonError::into_inner);
    node.get_or_insert_with(|| Node::start(&["seawall"])).delete_all_objects(&KINDS);
    SharedNode(node)
}

/// The kinds of objects that the tests make, by the path of their group. Jobs first: they would make pods anew.
const KINDS: [(&str, &str); 5] = [
    ("/apis/batch/v1", "jobs"),
    ("/api/v1", "pods"),
    ("/api/v1", "secrets"),
    ("/api/v1", "configmaps"),
    ("/api/v1", "resourcequotas"),
];

/// A pod that runs the tool with these words, by the strictest of Kubernetes' own rules (Pod Security Standards, "restricted").
pub(crate) fn pod(name: &str, words: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "automountServiceAccountToken": false, "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1, "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "args": words,
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    })
}

/// The same with a limit on its processor time, such as `100m`.
pub(crate) fn limited(mut pod: Value, cpu: &str) -> Value {
    let few = json!({"cpu": cpu, "memory": "64Mi"});
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": few, "limits": few });
    pod
}

/// The same with a file, at this absolute path.
pub(crate) fn with_file(node: &Node, mut pod: Value, path: &str, text: &str) -> Value {
    let name = format!("{}-files", pod["metadata"]["name"].as_str().unwrap());
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": {"file": text},
    });
    node.api.call_expecting_success(
        "POST",
        &format!("/api/v1/namespaces/{NAMESPACE}/configmaps"),
        Some(&map),
    );
    pod["spec"]["volumes"] = json!([{"name": "files", "configMap": {"name": name}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "files", "mountPath": path, "subPath": "file"}]);
    pod
}

/// A pod that serves what is planted; the URL where it answers.
pub(crate) fn planted(node: &Node, name: &str, plant: &[&str]) -> String {
    let listen = format!("0.0.0.0:{PORT}");
    serving(node, name, &pod(name, &[&["emulate", "server", "--listen", &listen], plant].concat()))
}

/// The same with so much of the processor for itself.
pub(crate) fn planted_with(node: &Node, name: &str, cpu: &str) -> String {
    let listen = format!("0.0.0.0:{PORT}");
    serving(node, name, &limited(pod(name, &["emulate", "server", "--listen", &listen]), cpu))
}

fn serving(node: &Node, name: &str, pod: &Value) -> String {
    node.create_pod(pod);
    node.wait_until_pod_running(name);
    // It says where it listens once it does.
    seawall_testkit::waiting::wait_until_true("the server to listen", || {
        node.pod_log(name).contains("\"url\"")
    });
    format!("http://{}:{PORT}/", node.wait_for_pod_address(name))
}

/// A pod that attacks a URL: so many requests a second, so many seconds. Its log is a summary as JSON.
pub(crate) fn attacking(node: &Node, name: &str, url: &str, rate: u32, seconds: u32) -> Value {
    let (rate, duration) = (format!("--rate={rate}"), format!("--duration={seconds}s"));
    let words =
        ["attack", "--targets=/targets", "--output=none", "--summary=json", "--live=none", &rate, &duration];
    with_file(node, pod(name, &words), "/targets", &format!("GET {url}\n"))
}

/// A pod that says what it is told: a program of the machine's, at the places that it has there.
pub(crate) fn echo(name: &str) -> Value {
    let places = ["/usr", "/lib", "/lib64"];
    let named = places.iter().map(|path| (path.replace('/', "place-"), path));
    let mounts: Vec<_> = named
        .clone()
        .map(|(name, path)| json!({"name": name, "mountPath": path, "readOnly": true}))
        .collect();
    let volumes: Vec<_> =
        named.map(|(name, path)| json!({"name": name, "hostPath": {"path": path}})).collect();
    let mut pod = pod(name, &[]);
    pod["spec"]["volumes"] = volumes.into();
    let container = &mut pod["spec"]["containers"][0];
    container["image"] = PAUSE_IMAGE.into();
    container["command"] = json!(["/usr/bin/cat"]);
    container["volumeMounts"] = mounts.into();
    // It stays open when whoever has attached goes.
    (container["stdin"], container["stdinOnce"]) = (true.into(), false.into());
    pod
}
