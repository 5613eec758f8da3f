//! Tests with statuses as a cluster of version 1.34 writes them.

use serde_json::json;

use super::*;

fn place() -> KubectlContext {
    KubectlContext { context: None, namespace: "load".to_owned() }
}

fn pod(status: &Value) -> Value {
    json!({
        "metadata": {"name": "run-3-abcde", "annotations": {INDEX_ANNOTATION: "3"}},
        "spec": {"nodeName": "node-7", "containers": [{"image": "r.test/seawall:1"}]},
        "status": status,
    })
}

fn waits(reason: &str, message: &str) -> Value {
    let state = json!({"waiting": {"reason": reason, "message": message}});
    pod(
        &json!({"phase": "Pending", "containerStatuses": [{"name": "seawall", "image": "r.test/seawall:1", "state": state}]}),
    )
}

fn ended(reason: &str, code: i64, message: &str) -> Value {
    let state = json!({"terminated": {"reason": reason, "exitCode": code, "message": message}});
    pod(&json!({"phase": "Failed", "containerStatuses": [{"name": "seawall", "state": state}]}))
}

fn event(kind: &str, name: &str, reason: &str, message: &str) -> Value {
    json!({"involvedObject": {"kind": kind, "name": name}, "reason": reason, "message": message})
}

#[test]
fn a_right_that_is_missing_is_named_with_the_command_that_shows_it() {
    let refused = [PERMISSIONS[0], PERMISSIONS[8]];
    let told = permission_obstacle(&refused, &KubectlContext { context: Some("far".to_owned()), ..place() })
        .unwrap();
    assert!(
        told.message.contains("create jobs.batch, get pods --subresource=attach in the namespace load"),
        "{told}"
    );
    assert!(told.message.contains("deploy/load-rbac.yaml"));
    assert_eq!(told.shown_by, "kubectl --context far --namespace load auth can-i create jobs.batch");
    assert_eq!(permission_obstacle(&[], &place()), None);
}

#[test]
fn who_joins_a_job_need_not_be_able_to_make_one() {
    let needed: Vec<_> =
        PERMISSIONS.iter().filter(|right| right.is_needed_to_join()).map(ToString::to_string).collect();
    assert!(
        needed.contains(&"get jobs.batch".to_owned()) && needed.contains(&"list pods".to_owned()),
        "{needed:?}"
    );
    assert!(
        !needed.iter().any(|right| right.contains("create jobs") || right.contains("secrets")),
        "{needed:?}"
    );
}

/// The shipped role has exactly the permissions that the preflight checks.
#[test]
fn the_role_that_is_shipped_grants_what_is_asked_for_and_nothing_else() {
    let shipped = include_str!("../../../../deploy/load-rbac.yaml");
    let role = shipped.split("---\n").find(|part| part.contains("kind: Role\n")).unwrap();
    let role: Value = serde_saphyr::from_str(role).unwrap();
    let words = |rule: &Value, key: &str| -> Vec<String> {
        rule[key].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut granted = Vec::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in words(rule, "apiGroups") {
            for resource in words(rule, "resources") {
                granted.extend(
                    words(rule, "verbs").into_iter().map(|verb| format!("{verb} {resource} {group}")),
                );
            }
        }
    }
    let asked = |right: &Permission| {
        let part =
            if right.subresource.is_empty() { String::new() } else { format!("/{}", right.subresource) };
        format!("{} {}{part} {}", right.verb, right.resource, right.group)
    };
    let mut asked: Vec<_> = PERMISSIONS.iter().map(asked).collect();
    granted.sort();
    asked.sort();
    assert_eq!(granted, asked);
}

#[test]
fn the_page_lists_every_right_and_none_that_is_not_asked_for() {
    let page = include_str!("../../../../docs/kubernetes.md");
    let rights: Vec<_> = PERMISSIONS.iter().map(ToString::to_string).collect();
    let table = page.split("| right | for |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let listed: Vec<_> = rows.map(|row| row.split('`').nth(1).unwrap()).collect();
    assert_eq!(listed, rights);
}

#[test]
fn an_image_that_cannot_be_had_is_named_with_the_kubelets_reason() {
    for reason in ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"] {
        let told = pod_obstacle(&waits(reason, "not found"), &[], &place()).unwrap();
        assert_eq!(
            told.message,
            format!("cannot pull the image r.test/seawall:1 on node-7: {reason}: not found")
        );
        assert_eq!(told.shown_by, "kubectl --namespace load describe pod run-3-abcde");
        assert_eq!(told.wait, ObstacleWait::Never);
    }
    assert_eq!(pod_obstacle(&waits("ContainerCreating", ""), &[], &place()), None);
    let told = pod_obstacle(&waits("CreateContainerConfigError", "secret \"run\" not found"), &[], &place())
        .unwrap();
    assert!(
        told.message.contains(
            "cannot create the container on node-7: CreateContainerConfigError: secret \"run\" not found"
        ),
        "{told}"
    );
}

#[test]
fn a_cluster_without_room_says_so_and_may_be_given_more() {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient cpu."});
    let pending = pod(&json!({"phase": "Pending", "conditions": [condition]}));
    let told = pod_obstacle(&pending, &[], &place()).unwrap();
    assert_eq!(
        told.message,
        "no node has room for run-3-abcde: 0/3 nodes are available: 3 Insufficient cpu."
    );
    assert_eq!(told.wait, ObstacleWait::Briefly);
    for reason in GROWING {
        let events = [event("Pod", "run-3-abcde", reason, "pod triggered scale-up")];
        assert_eq!(
            pod_obstacle(&pending, &events, &place()).unwrap().wait,
            ObstacleWait::UntilTimeout,
            "{reason}"
        );
    }
    let gated = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"});
    assert_eq!(pod_obstacle(&pod(&json!({"phase": "Pending", "conditions": [gated]})), &[], &place()), None);
}

#[test]
fn a_volume_that_is_not_mounted_is_told_by_events() {
    let pending = pod(&json!({"phase": "Pending"}));
    let events = [
        event("Pod", "run-3-abcde", "FailedMount", "claim \"x\" not found"),
        event("Pod", "other", "FailedMount", "y"),
    ];
    let told = pod_obstacle(&pending, &events, &place()).unwrap();
    assert!(
        told.message.ends_with("on node-7: claim \"x\" not found") && told.wait == ObstacleWait::Briefly,
        "{told}"
    );
    assert_eq!(pod_obstacle(&pending, &events[1..], &place()), None);
}

#[test]
fn quota_and_pod_security_are_told_by_the_jobs_events() {
    let quota = "Error creating: pods \"run-0-x\" is forbidden: exceeded quota: small, requested: limits.cpu=1, used: limits.cpu=2, limited: limits.cpu=2";
    let security = "Error creating: pods \"run-0-x\" is forbidden: violates PodSecurity \"restricted:latest\": seccompProfile";
    for (message, told) in [
        (
            quota,
            "the namespace's quota is too small for all pods: exceeded quota: small, requested: limits.cpu=1, used: limits.cpu=2, limited: limits.cpu=2",
        ),
        (
            security,
            "Pod Security rejects the pods: violates PodSecurity \"restricted:latest\": seccompProfile",
        ),
        (
            "Error creating: admission webhook denied",
            "cannot create pods: Error creating: admission webhook denied",
        ),
    ] {
        let events =
            [event("Job", "other", "FailedCreate", "x"), event("Job", "run", "FailedCreate", message)];
        let found = job_obstacle(&events, "run", &place()).unwrap();
        assert_eq!((&*found.message, &*found.shown_by), (told, "kubectl --namespace load describe job run"));
    }
    assert_eq!(job_obstacle(&[event("Job", "run", "SuccessfulCreate", "")], "run", &place()), None);
}

#[test]
fn a_cluster_that_would_replace_pods_is_told_from_one_that_does_not() {
    assert_eq!(unsupported_server(&json!({"spec": {"backoffLimitPerIndex": 0}}), &place()), None);
    assert!(unsupported_server(&json!({"spec": {}}), &place()).unwrap().message.contains("Kubernetes 1.29"));
}

#[test]
fn each_end_of_a_pod_has_its_words() {
    let disrupted = |reason: &str| {
        let condition =
            json!({"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m"});
        pod(&json!({"phase": "Failed", "conditions": [condition]}))
    };
    let status =
        |reason: &str, message: &str| pod(&json!({"phase": "Failed", "reason": reason, "message": message}));
    let last = "seawall: cannot read targets.txt\n{\"ready\":{}}\n";
    for (pod, words) in [
        (ended("Error", 137, ""), "killed (exit code 137)"),
        (ended("OOMKilled", 137, ""), "killed: out of memory (OOMKilled); raise --memory"),
        (ended("Error", 143, ""), "terminated (exit code 143)"),
        (ended("Completed", 0, ""), "ended"),
        (ended("Error", 1, last), "ended with exit code 1: seawall: cannot read targets.txt"),
        (ended("Error", 2, ""), "ended with exit code 2"),
        (ended("StartError", 128, "no such file"), "cannot start the container: StartError: no such file"),
        (
            status("Evicted", "The node was low on resource: memory."),
            "evicted: The node was low on resource: memory.",
        ),
        (status("DeadlineExceeded", ""), "its Job reached its deadline (activeDeadlineSeconds)"),
        (status("NodeLost", ""), "the node node-7 does not respond"),
        (status("OutOfcpu", "no room"), "rejected by node-7: OutOfcpu: no room"),
        (disrupted("PreemptionByScheduler"), "preempted by a pod of higher priority"),
        (disrupted("DeletionByTaintManager"), "the node node-7 does not respond or was tainted"),
        (disrupted("DeletionByPodGC"), "the node node-7 was deleted"),
        (disrupted("EvictionByEvictionAPI"), "evicted through the eviction API (for example kubectl drain)"),
        (disrupted("TerminationByKubelet"), "evicted: m"),
        (pod(&json!({"phase": "Unknown"})), "the node node-7 does not respond"),
    ] {
        assert_eq!(end_reason(&pod, false).as_deref(), Some(words), "{pod}");
    }
    let running = pod(&json!({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}));
    assert_eq!((end_reason(&running, false), end_reason(&running, true).as_deref()), (None, Some("deleted")));
    assert!(is_pod_running(&running) && !is_pod_running(&ended("Error", 1, "")));
    assert_eq!(pod_index(&running), Some(3));
}

#[test]
fn a_job_that_is_over_says_why() {
    let job = |kind: &str, reason: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status, "reason": reason, "message": "m"}]}});
    assert!(
        job_failure_reason(&job("Failed", "DeadlineExceeded", "True"))
            .unwrap()
            .contains("activeDeadlineSeconds")
    );
    assert_eq!(
        job_failure_reason(&job("FailureTarget", "PodFailurePolicy", "True")).as_deref(),
        Some("PodFailurePolicy: m")
    );
    assert_eq!(job_failure_reason(&job("Failed", "x", "False")), None);
    assert_eq!(job_failure_reason(&job("Complete", "x", "True")), None);
}
