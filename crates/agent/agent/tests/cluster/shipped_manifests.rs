//! What is shipped to be applied, and what the pages say to type, at a real API server: every field known, and all of it admitted.

use seawall_testkit::kubernetes_client::KubernetesApi;
use seawall_testkit::objects::{self, NODE_NAME};
use seawall_testkit::ready_control_plane::ReadyControlPlane;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::SHIPPED;

const DAEMONSET: &str = include_str!("../../../../../deploy/daemonset.yaml");
const PAGE: &str = include_str!("../../../../../docs/move-nodes.md");

/// Nothing is kept, and a field that is misspelt is an error.
const DRY_RUN: &str = "dryRun=All&fieldValidation=Strict";

fn daemonset() -> (String, Value) {
    objects::parse_yaml_objects(DAEMONSET).remove(0)
}

/// The patches of the page, in its order.
fn patches() -> Vec<Value> {
    let texts = PAGE.split("-p '").skip(1).filter_map(|rest| rest.split('\'').next());
    texts.map(|text| serde_json::from_str(text).unwrap()).collect()
}

/// An API server with what is shipped beside the DaemonSet.
fn start(folder: &TempDir) -> (ReadyControlPlane, KubernetesApi) {
    let plane = ReadyControlPlane::start(folder.path());
    let api = plane.admin_api();
    for yaml in SHIPPED {
        api.create_from_yaml(yaml);
    }
    (plane, api)
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn the_daemonset_is_taken_with_every_field_known_and_its_pod_is_admitted() {
    let folder = TempDir::with_prefix("seawall-shipped-").unwrap();
    let (_plane, api) = start(&folder);
    let (path, object) = daemonset();
    let made = api.call_expecting_success("POST", &format!("{path}?{DRY_RUN}"), Some(&object));
    let mut spec = made["spec"]["template"]["spec"].clone();
    spec["nodeName"] = NODE_NAME.into();
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "agent" }, "spec": spec });
    let pod =
        api.call_expecting_success("POST", &format!("{}?{DRY_RUN}", objects::AGENT_PODS_PATH), Some(&pod));
    // Admission gives it the priority of its class, and the credentials of its ServiceAccount.
    assert_eq!(pod["spec"]["priority"], 2_000_001_000, "{pod}");
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    assert!(mounts.iter().any(|mount| mount["mountPath"] == token), "{mounts:?}");
    let mut misspelt = object;
    misspelt["spec"]["template"]["spec"]["hostNetwrok"] = true.into();
    let refused = api.call("POST", &format!("{path}?{DRY_RUN}"), Some(&misspelt)).unwrap();
    assert_eq!(refused.0, 400, "a check that cannot fail: {refused:?}");
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn the_patches_of_the_page_keep_the_old_agent_off_and_send_pods_to_nodes_of_this_one() {
    let folder = TempDir::with_prefix("seawall-shipped-").unwrap();
    let (_plane, api) = start(&folder);
    let template = json!({ "metadata": { "labels": { "app": "x" } },
                           "spec": { "containers": [{ "name": "main", "image": "local/none:1" }] } });
    let make = |kind: &str, namespace: &str| {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/{}s", kind.to_lowercase());
        let object = json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": "x" },
                             "spec": { "selector": { "matchLabels": { "app": "x" } }, "template": template } });
        api.call_expecting_success("POST", &path, Some(&object));
        format!("{path}/x?fieldValidation=Strict")
    };
    let [old, workload] = &patches()[..] else { panic!("{:?}", patches()) };
    let wanted = daemonset().1["spec"]["template"]["spec"]["nodeSelector"].clone();
    let (key, value) = wanted.as_object().unwrap().iter().next().unwrap();

    let patched = api.call_expecting_success("PATCH", &make("DaemonSet", "kube-system"), Some(old));
    let affinity = &patched["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
    let expression = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]["matchExpressions"]
        [0];
    assert_eq!(expression, &json!({ "key": key, "operator": "NotIn", "values": [value] }));

    let patched = api.call_expecting_success("PATCH", &make("Deployment", "default"), Some(workload));
    let spec = &patched["spec"]["template"]["spec"];
    assert_eq!(spec["nodeSelector"], wanted);
    let toleration = json!({ "key": key, "operator": "Equal", "value": value, "effect": "NoSchedule" });
    assert_eq!(spec["tolerations"], json!([toleration]));
    let taint = format!("taint node $NODE {key}={}:NoSchedule", value.as_str().unwrap());
    assert!(PAGE.contains(&taint), "{taint}");
}
