//! Describes the obstacles of a load's pods: missing permissions, and problems that the API server reports about a Job and its pods.
//!
//! The functions are pure readers of JSON from [`crate::job`]. Each [`Obstacle`] comes with a kubectl command that shows the same problem,
//! so that the user can check it. Sources: Kubernetes documentation, "Pod Lifecycle" and "Authorization"; reasons of waiting containers:
//! kubernetes/kubernetes pkg/kubelet/images/types.go and pkg/kubelet/kuberuntime/kuberuntime_container.go.

mod pod_exit_reasons;

use std::fmt;

use serde_json::Value;

pub use self::pod_exit_reasons::end_reason;
use crate::manifest::INDEX_ANNOTATION;

/// A permission in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural name of the resource.
    pub resource: &'static str,
    /// The subresource; empty without one.
    pub subresource: &'static str,
    /// The verb.
    pub verb: &'static str,
}

const fn right(
    group: &'static str,
    resource: &'static str,
    part: &'static str,
    verb: &'static str,
) -> Permission {
    Permission { group, resource, subresource: part, verb }
}

/// All permissions that a load needs; `deploy/load-rbac.yaml` grants them.
pub const PERMISSIONS: [Permission; 11] = [
    right("batch", "jobs", "", "create"),
    right("batch", "jobs", "", "get"),
    right("batch", "jobs", "", "patch"),
    right("batch", "jobs", "", "delete"),
    right("", "secrets", "", "create"),
    right("", "pods", "", "list"),
    right("", "pods", "", "watch"),
    right("", "pods", "log", "get"),
    right("", "pods", "attach", "get"),
    right("", "pods", "attach", "create"),
    right("", "events", "", "list"),
];

impl Permission {
    /// Returns whether joining an existing Job needs this permission.
    #[must_use]
    pub fn is_needed_to_join(&self) -> bool {
        !(self.resource == "secrets" || (self.resource == "jobs" && ["create", "patch"].contains(&self.verb)))
    }
}

impl fmt::Display for Permission {
    /// Writes the permission in the notation of `kubectl auth can-i`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, resource, subresource: part, verb } = self;
        write!(f, "{verb} {resource}")?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        if part.is_empty() { Ok(()) } else { write!(f, " --subresource={part}") }
    }
}

/// The context and the namespace for kubectl commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubectlContext {
    /// The context of the kubeconfig; none for the current one.
    pub context: Option<String>,
    /// The namespace of the Job.
    pub namespace: String,
}

impl KubectlContext {
    /// Returns a kubectl command line for this place.
    #[must_use]
    pub fn kubectl(&self, words: &str) -> String {
        let context =
            self.context.as_ref().map_or_else(String::new, |context| format!(" --context {context}"));
        format!("kubectl{context} --namespace {} {words}", self.namespace)
    }
}

/// An obstacle of a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The problem, with its fix if known.
    pub message: String,
    /// The command that shows the problem.
    pub shown_by: String,
    /// The time for which the obstacle may pass.
    pub wait: ObstacleWait,
}

/// The time to wait for an [`Obstacle`] to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObstacleWait {
    /// Wait until the time limit, because the cluster works on the problem.
    UntilTimeout,
    /// Wait some seconds, because no controller may have seen the problem yet.
    Briefly,
    /// Do not wait.
    Never,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (see: {})", self.message, self.shown_by)
    }
}

/// Returns the obstacle of refused permissions, if there are any.
#[must_use]
pub fn permission_obstacle(refused: &[Permission], place: &KubectlContext) -> Option<Obstacle> {
    let first = refused.first()?;
    let all: Vec<_> = refused.iter().map(ToString::to_string).collect();
    let what = format!(
        "you are not allowed to {} in the namespace {}: apply the role in deploy/load-rbac.yaml",
        all.join(", "),
        place.namespace
    );
    Some(Obstacle {
        message: what,
        shown_by: place.kubectl(&format!("auth can-i {first}")),
        wait: ObstacleWait::Never,
    })
}

/// Returns the obstacle of an API server that is too old for the Job's fields.
#[must_use]
pub fn unsupported_server(job: &Value, place: &KubectlContext) -> Option<Obstacle> {
    let knows = job.pointer("/spec/backoffLimitPerIndex").is_some();
    let what = "this cluster's Jobs have no backoffLimitPerIndex, so Kubernetes would replace a failed pod during the load: use Kubernetes 1.29 or later";
    (!knows).then(|| Obstacle {
        message: what.to_owned(),
        shown_by: place.kubectl("version"),
        wait: ObstacleWait::Never,
    })
}

/// Returns the obstacle that keeps a Job from creating pods, from its events: quota, Pod Security or other admission.
#[must_use]
pub fn job_obstacle(events: &[Value], job: &str, place: &KubectlContext) -> Option<Obstacle> {
    let is_of_job = |event: &&Value| {
        text(event, "/involvedObject/kind") == "Job" && text(event, "/involvedObject/name") == job
    };
    let failed = events.iter().filter(is_of_job).find(|event| text(event, "/reason") == "FailedCreate")?;
    let why = text(failed, "/message");
    let shown_by = place.kubectl(&format!("describe job {job}"));
    let (what, passes) = if why.contains("exceeded quota") {
        let what = format!("the namespace's quota is too small for all pods: {}", after(why, "forbidden: "));
        (what, ObstacleWait::Never)
    } else if why.contains("violates PodSecurity") {
        (format!("Pod Security rejects the pods: {}", after(why, "forbidden: ")), ObstacleWait::Never)
    } else {
        // A webhook may be down; the Job's controller retries.
        (format!("cannot create pods: {why}"), ObstacleWait::Briefly)
    };
    Some(Obstacle { message: what, shown_by, wait: passes })
}

/// Returns the obstacle that keeps a pod from running, if visible; `events` are those of the namespace.
#[must_use]
pub fn pod_obstacle(pod: &Value, events: &[Value], place: &KubectlContext) -> Option<Obstacle> {
    waiting(pod, place).or_else(|| unscheduled(pod, events, place)).or_else(|| unmounted(pod, events, place))
}

/// Returns the obstacle of a container that waits in vain.
fn waiting(pod: &Value, place: &KubectlContext) -> Option<Obstacle> {
    let statuses = pod.pointer("/status/containerStatuses")?.as_array()?;
    let (image, state) = statuses
        .iter()
        .find_map(|status| Some((text(status, "/image"), status.pointer("/state/waiting")?)))?;
    let (reason, message) = (text(state, "/reason"), text(state, "/message"));
    let image = pod.pointer("/spec/containers/0/image").and_then(Value::as_str).unwrap_or(image);
    let what = match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "ErrImageNeverPull"
        | "InvalidImageName"
        | "ImageInspectError"
        | "RegistryUnavailable" => {
            format!("cannot pull the image {image} on {}: {reason}: {message}", node_name(pod))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            format!("cannot create the container on {}: {reason}: {message}", node_name(pod))
        }
        _ => return None,
    };
    Some(Obstacle { message: what, shown_by: describe(pod, place), wait: ObstacleWait::Never })
}

/// The event reasons of node autoscalers: cluster-autoscaler (`TriggeredScaleUp`) and Karpenter (`Nominated`).
const GROWING: [&str; 2] = ["TriggeredScaleUp", "Nominated"];

fn unscheduled(pod: &Value, events: &[Value], place: &KubectlContext) -> Option<Obstacle> {
    let condition =
        condition(pod, "PodScheduled").filter(|condition| text(condition, "/status") == "False")?;
    // Another controller will remove a scheduling gate (`SchedulingGated`).
    if text(condition, "/reason") != "Unschedulable" {
        return None;
    }
    let is_growing = of_object(events, pod).any(|event| GROWING.contains(&text(event, "/reason")));
    let what = format!("no node has room for {}: {}", pod_name(pod), text(condition, "/message"));
    let passes = if is_growing { ObstacleWait::UntilTimeout } else { ObstacleWait::Briefly };
    Some(Obstacle { message: what, shown_by: describe(pod, place), wait: passes })
}

/// Returns the obstacle of a volume that cannot be mounted. Only events show it, and the kubelet retries for ever.
fn unmounted(pod: &Value, events: &[Value], place: &KubectlContext) -> Option<Obstacle> {
    if text(pod, "/status/phase") != "Pending" {
        return None;
    }
    let failed = of_object(events, pod)
        .find(|event| ["FailedMount", "FailedAttachVolume"].contains(&text(event, "/reason")))?;
    let what = format!(
        "cannot mount a volume of {} on {}: {}",
        pod_name(pod),
        node_name(pod),
        text(failed, "/message")
    );
    // The Secret is created after the Job; a kubelet that was too early retries.
    Some(Obstacle { message: what, shown_by: describe(pod, place), wait: ObstacleWait::Briefly })
}

fn of_object<'a>(events: &'a [Value], pod: &'a Value) -> impl Iterator<Item = &'a Value> {
    let is_its = move |event: &&Value| {
        text(event, "/involvedObject/kind") == "Pod" && text(event, "/involvedObject/name") == pod_name(pod)
    };
    events.iter().filter(is_its)
}

/// Returns the index of a pod in its Job.
#[must_use]
pub fn pod_index(pod: &Value) -> Option<usize> {
    let of = |kind: &str| pod.get("metadata")?.get(kind)?.get(INDEX_ANNOTATION)?.as_str()?.parse().ok();
    of("annotations").or_else(|| of("labels"))
}

/// Returns whether the pod's program runs.
#[must_use]
pub fn is_pod_running(pod: &Value) -> bool {
    let running = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let is_running = |status: &Value| status.pointer("/state/running").is_some();
    text(pod, "/status/phase") == "Running"
        && pod.pointer("/metadata/deletionTimestamp").is_none()
        && running.is_some_and(|statuses| statuses.iter().any(is_running))
}

/// Returns the name of a pod.
#[must_use]
pub fn pod_name(pod: &Value) -> &str {
    text(pod, "/metadata/name")
}

/// Returns the node of a pod, or "an unknown node".
#[must_use]
pub fn node_name(pod: &Value) -> &str {
    Some(text(pod, "/spec/nodeName")).filter(|node| !node.is_empty()).unwrap_or("an unknown node")
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| text(condition, "/type") == kind)
}

/// Returns the reason why a Job has failed, if it has.
#[must_use]
pub fn job_failure_reason(job: &Value) -> Option<String> {
    let failed = condition(job, "Failed").or_else(|| condition(job, "FailureTarget"))?;
    let (is, reason, message) = (text(failed, "/status"), text(failed, "/reason"), text(failed, "/message"));
    let why = if reason == "DeadlineExceeded" {
        "it reached its deadline (activeDeadlineSeconds)".to_owned()
    } else {
        format!("{reason}: {message}")
    };
    (is == "True").then_some(why)
}

fn describe(pod: &Value, place: &KubectlContext) -> String {
    place.kubectl(&format!("describe pod {}", pod_name(pod)))
}

/// Returns a text in an object; empty if it does not exist.
fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the text after the last occurrence of `words`.
fn after<'a>(text: &'a str, words: &str) -> &'a str {
    text.rsplit_once(words).map_or(text, |(_, rest)| rest)
}

#[cfg(test)]
mod tests;
