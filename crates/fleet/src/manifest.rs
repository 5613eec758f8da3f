//! The Kubernetes objects of one load: a Job and its Secret.
//!
//! An Indexed Job (batch/v1) creates the pods, each with its index. It does not replace a pod that ends, nor does one end affect the others
//! (`backoffLimitPerIndex: 0`). It ends all pods at a deadline (`activeDeadlineSeconds`) or when it is deleted. The pods meet the profile
//! `restricted` of Pod Security Standards, hold no credentials and listen on no port. The functions are pure: they turn a [`LoadJobSpec`]
//! into JSON.

pub mod spec;

use serde_json::{Map, Value, json};

pub use self::spec::LoadJobSpec;
use self::spec::Volume;
use crate::json_to_yaml;
use crate::pod_inputs::{ARGUMENTS_PATH, JobInputs};

/// The name of the container, for attachments and logs.
pub const CONTAINER: &str = "seawall";

/// The annotation of the Job with the [`JobInputs::digest`] of its inputs.
pub const INPUTS_DIGEST_ANNOTATION: &str = "seawall/materials";

/// The annotation of each pod with its index (Kubernetes documentation, "Jobs", completion mode). The program reads the index from
/// [`crate::protocol::INDEX_VARIABLE`].
pub const INDEX_ANNOTATION: &str = "batch.kubernetes.io/job-completion-index";

/// The label of each pod with the name of its Job.
pub const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";

/// The user id of the pods; the image has no users.
const USER: u32 = 65_532;

/// The seconds between the deletion of a pod and its SIGKILL. The program stops sending at SIGTERM; this limit is for a program that hangs.
const GRACE_SECONDS: u32 = 1;

/// The Job that owns a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwningJob {
    /// The name of the Job.
    pub name: String,
    /// The UID from the API server.
    pub uid: String,
}

/// Returns the Job. A suspended Job creates no pods until it is resumed.
#[must_use]
pub fn job(spec: &LoadJobSpec, materials: &JobInputs, is_suspended: bool) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(spec),
        "spec": {
            "completionMode": "Indexed",
            "completions": spec.pod_count,
            "parallelism": spec.pod_count,
            "backoffLimitPerIndex": 0,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": spec.deadline_seconds,
            "template": {
                "metadata": { "labels": labels(spec), "annotations": {"kubectl.kubernetes.io/default-container": CONTAINER} },
                "spec": pod(spec, materials),
            },
        },
    });
    job["metadata"]["annotations"] = json!({ INPUTS_DIGEST_ANNOTATION: materials.digest() });
    if is_suspended {
        job["spec"]["suspend"] = true.into();
    }
    if let Some(seconds) = spec.ttl_seconds {
        job["spec"]["ttlSecondsAfterFinished"] = seconds.into();
    }
    job
}

/// Returns the Secret. With an owner, Kubernetes deletes it together with the Job.
#[must_use]
pub fn secret(spec: &LoadJobSpec, materials: &JobInputs, owner: Option<&OwningJob>) -> Value {
    let mut secret = bare_secret(spec);
    secret["data"] = materials.secret_data();
    if let Some(OwningJob { name, uid }) = owner {
        let reference = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid});
        secret["metadata"]["ownerReferences"] = json!([reference]);
    }
    secret
}

/// Returns both objects as YAML for `kubectl apply`, the Secret first. `command` is the command that joins the pods.
#[must_use]
pub fn to_yaml(spec: &LoadJobSpec, materials: &JobInputs, command: &str) -> String {
    let mut secret = bare_secret(spec);
    let (texts, others) = materials.readable_secret_data();
    for (key, values) in [("stringData", texts), ("data", others)] {
        if values.as_object().is_some_and(|values| !values.is_empty()) {
            secret[key] = values;
        }
    }
    let job = job(spec, materials, false);
    format!("{}{}---\n{}", head(spec, command), json_to_yaml::to_yaml(&secret), json_to_yaml::to_yaml(&job))
}

fn head(spec: &LoadJobSpec, command: &str) -> String {
    let LoadJobSpec { name, pod_count: pods, deadline_seconds, .. } = spec;
    let within =
        spec.namespace.as_ref().map_or_else(String::new, |namespace| format!(" --namespace {namespace}"));
    let lines = [
        format!("These objects send one load from {pods} pods. `seawall {command} --on kubernetes` creates them itself. To create them by hand:"),
        format!("  kubectl{within} apply --filename FILE"),
        "The pods start and wait for commands. To start the load, add --attach-job to your command:".to_owned(),
        format!("  seawall {command} ... --on kubernetes{within} --attach-job {name}"),
        format!("Pods that get no command end after {deadline_seconds} seconds. To delete everything:"),
        format!("  kubectl{within} delete job,secret {name}"),
        "The Secret contains all files of the command: targets with their headers, bodies, certificates and keys.".to_owned(),
    ];
    lines.map(|line| format!("# {line}\n")).concat()
}

fn bare_secret(spec: &LoadJobSpec) -> Value {
    // An immutable Secret spares the kubelets a watch; the pods have read it already.
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata(spec), "type": "Opaque", "immutable": true})
}

fn metadata(spec: &LoadJobSpec) -> Value {
    let mut metadata = json!({"name": spec.name, "labels": labels(spec)});
    if let Some(namespace) = &spec.namespace {
        metadata["namespace"] = namespace.to_string().into();
    }
    metadata
}

fn labels(spec: &LoadJobSpec) -> Value {
    let mut labels = json!({
        "app.kubernetes.io/name": "seawall",
        "app.kubernetes.io/component": "load",
        "app.kubernetes.io/instance": spec.name,
        "app.kubernetes.io/managed-by": "seawall",
    });
    for (key, value) in &spec.labels {
        labels[key] = value.as_str().into();
    }
    labels
}

fn pod(spec: &LoadJobSpec, materials: &JobInputs) -> Value {
    let mut security = json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    if !spec.volumes.is_empty() {
        // The pods need write access to the volume.
        security["fsGroup"] = USER.into();
        security["fsGroupChangePolicy"] = "OnRootMismatch".into();
    }
    let mut pod = json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": security,
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/instance": spec.name}},
        }],
        "containers": [container(spec, materials)],
        "volumes": volumes(spec),
    });
    if !spec.node_selector.is_empty() {
        pod["nodeSelector"] = json!(spec.node_selector);
    }
    if !spec.tolerations.is_empty() {
        pod["tolerations"] = spec.tolerations.iter().map(spec::Toleration::as_json).collect();
    }
    pod
}

fn container(spec: &LoadJobSpec, materials: &JobInputs) -> Value {
    let resources = json!({"cpu": spec.cpu.to_string(), "memory": spec.memory.to_string()});
    let mut container = json!({
        "name": CONTAINER,
        "image": spec.image,
        "args": ["pod", "--arguments", ARGUMENTS_PATH, "--pods", spec.pod_count.to_string()],
        // Orders come through attachments to standard input, one attachment after another.
        "stdin": true,
        "stdinOnce": false,
        // Equal requests and limits give guaranteed quality of service, so a pod's capacity is known in advance.
        "resources": {"requests": resources, "limits": resources},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts(spec, materials),
    });
    if let Some(policy) = spec.pull_policy {
        container["imagePullPolicy"] = policy.word().into();
    }
    if let Some(place) = materials.working_dir() {
        container["workingDir"] = place.into();
    }
    container
}

fn mounts(spec: &LoadJobSpec, materials: &JobInputs) -> Value {
    let mut mounts: Vec<Value> = materials
        .mounts()
        .map(|(key, path)| json!({"name": "materials", "mountPath": path, "subPath": key, "readOnly": true}))
        .collect();
    mounts.extend(spec.volumes.iter().enumerate().map(|(place, volume)| {
        let (name, path) = (format!("records-{place}"), volume.path());
        match volume {
            // Each run has its own directory, and pods add their index to file names.
            Volume::Claim { .. } => json!({"name": name, "mountPath": path, "subPath": spec.name}),
            Volume::Empty { .. } => json!({"name": name, "mountPath": path}),
        }
    }));
    mounts.into()
}

fn volumes(spec: &LoadJobSpec) -> Value {
    let mut volumes = vec![json!({"name": "materials", "secret": {"secretName": spec.name}})];
    volumes.extend(spec.volumes.iter().enumerate().map(|(place, volume)| {
        let mut entry = Map::from_iter([("name".to_owned(), format!("records-{place}").into())]);
        match volume {
            Volume::Claim { claim, .. } => {
                entry.insert("persistentVolumeClaim".to_owned(), json!({"claimName": claim.to_string()}))
            }
            Volume::Empty { .. } => entry.insert("emptyDir".to_owned(), json!({})),
        };
        entry.into()
    }));
    volumes.into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use seawall_load::input_files::{CapturedFile, CapturedInputs};

    use super::*;

    fn materials() -> JobInputs {
        let file =
            |path: &str, text: &str| CapturedFile { path: path.into(), bytes: text.as_bytes().to_vec() };
        let files = vec![
            file("targets.txt", "POST http://shop.default/\nX-Token: s3cret\n@/srv/body\n"),
            file("/srv/body", "{}"),
        ];
        let arguments = ["attack", "--targets=targets.txt", "--rate=4000"].map(str::to_owned);
        JobInputs::new(&arguments, CapturedInputs { files, stdin: None }, Path::new("/srv/load"), &[])
            .unwrap()
    }

    fn spec() -> LoadJobSpec {
        LoadJobSpec {
            namespace: Some("load".parse().unwrap()),
            node_selector: [("pool".to_owned(), "load".to_owned())].into(),
            tolerations: vec!["dedicated=load:NoSchedule".parse().unwrap()],
            volumes: vec!["pvc:results:/records".parse().unwrap()],
            ..LoadJobSpec::new(
                "seawall-attack-x1y2z".parse().unwrap(),
                4,
                "registry.test/seawall:0.1.0".parse().unwrap(),
            )
        }
    }

    #[test]
    fn the_manifest_is_kept_as_people_read_it() {
        insta::assert_snapshot!(to_yaml(&spec(), &materials(), "attack"));
    }

    #[test]
    fn what_is_applied_by_hand_is_yaml_of_the_objects_that_are_made() {
        let text = to_yaml(&spec(), &materials(), "attack");
        let (first, second) = text.split_once("---\n").unwrap();
        let [mut by_hand, job_by_hand]: [Value; 2] =
            [first, second].map(|text| serde_saphyr::from_str(text).unwrap());
        assert_eq!(job_by_hand, job(&spec(), &materials(), false));
        let texts = by_hand.as_object_mut().unwrap().remove("stringData").unwrap();
        assert_eq!(texts["file-0"], "POST http://shop.default/\nX-Token: s3cret\n@/srv/body\n");
        let mut made = secret(&spec(), &materials(), None);
        assert_eq!(made.as_object_mut().unwrap().remove("data").unwrap()["file-1"], "e30=");
        assert_eq!(by_hand, made);
    }

    #[test]
    fn a_job_that_is_made_is_suspended_until_its_secret_is_there_and_owns_it() {
        assert_eq!(job(&spec(), &materials(), true)["spec"]["suspend"], true);
        assert!(job(&spec(), &materials(), false)["spec"].get("suspend").is_none());
        let owner = OwningJob { name: "a".into(), uid: "u".into() };
        let reference = &secret(&spec(), &materials(), Some(&owner))["metadata"]["ownerReferences"];
        assert_eq!(reference, &json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u"}]));
    }

    #[test]
    fn nothing_of_a_secret_stands_in_the_job() {
        let job = job(&spec(), &materials(), true).to_string();
        assert!(!job.contains("s3cret") && !job.contains("shop.default") && !job.contains("4000"), "{job}");
    }
}
