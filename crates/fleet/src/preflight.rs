//! What stands in the way of a load's pods, in words: rights that are missing, and what the API server tells of a Job and its pods.
//!
//! Pure readers of JSON that [`crate::job`] fetches. Each [`Obstacle`] comes with the kubectl command that shows the same, so that nobody need
//! believe us. Sources: Kubernetes documentation, "Pod Lifecycle" and "Authorization"; reasons of containers that wait: kubernetes/kubernetes
//! pkg/kubelet/images/types.go and pkg/kubelet/kuberuntime/kuberuntime_container.go.

mod ends;

use std::fmt;

use serde_json::Value;

pub use self::ends::end_reason;
use crate::manifest::INDEX_ANNOTATION;

/// A right in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// API group; empty is the core's.
    pub group: &'static str,
    /// Plural.
    pub resource: &'static str,
    /// Part of it, or nothing.
    pub subresource: &'static str,
    /// What is done.
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

/// All that a load takes, and `deploy/load-rbac.yaml` grants.
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
    /// Whether it takes it to join a Job that somebody else has made.
    #[must_use]
    pub fn is_needed_to_join(&self) -> bool {
        !(self.resource == "secrets" || (self.resource == "jobs" && ["create", "patch"].contains(&self.verb)))
    }
}

impl fmt::Display for Permission {
    /// As `kubectl auth can-i` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, resource, subresource: part, verb } = self;
        write!(f, "{verb} {resource}")?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        if part.is_empty() { Ok(()) } else { write!(f, " --subresource={part}") }
    }
}

/// How kubectl is told where: the context and the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubectlContext {
    /// Of the kubeconfig; none is its current one.
    pub context: Option<String>,
    /// Where the Job is.
    pub namespace: String,
}

impl KubectlContext {
    /// A command line.
    #[must_use]
    pub fn kubectl(&self, words: &str) -> String {
        let context =
            self.context.as_ref().map_or_else(String::new, |context| format!(" --context {context}"));
        format!("kubectl{context} --namespace {} {words}", self.namespace)
    }
}

/// What stands in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// What it is, and what is to be done if that is known.
    pub message: String,
    /// The command that shows it.
    pub shown_by: String,
    /// Whether it may yet go away by itself.
    pub wait: ObstacleWait,
}

/// How long an [`Obstacle`] is borne.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObstacleWait {
    /// As long as anything is waited for: somebody is at work on it.
    UntilTimeout,
    /// Some seconds: it may be that nobody has looked at it yet.
    Briefly,
    /// Not at all.
    Never,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (see: {})", self.message, self.shown_by)
    }
}

/// Rights that were refused, if any were.
#[must_use]
pub fn missing_permissions(refused: &[Permission], place: &KubectlContext) -> Option<Obstacle> {
    let first = refused.first()?;
    let all: Vec<_> = refused.iter().map(ToString::to_string).collect();
    let what = format!(
        "you may not {} in the namespace {}: apply the role in deploy/load-rbac.yaml",
        all.join(", "),
        place.namespace
    );
    Some(Obstacle {
        message: what,
        shown_by: place.kubectl(&format!("auth can-i {first}")),
        wait: ObstacleWait::Never,
    })
}

/// Why a Job is not what was asked for: made by an API server that knows less than is needed.
#[must_use]
pub fn unsupported_server(job: &Value, place: &KubectlContext) -> Option<Obstacle> {
    let knows = job.pointer("/spec/backoffLimitPerIndex").is_some();
    let what = "this cluster's Jobs have no backoffLimitPerIndex, so Kubernetes would replace a failed pod during the \
                load: Kubernetes 1.29 or later is needed";
    (!knows).then(|| Obstacle {
        message: what.to_owned(),
        shown_by: place.kubectl("version"),
        wait: ObstacleWait::Never,
    })
}

/// What keeps a Job from having pods, by its events: quota, Pod Security, other admission.
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
        // A webhook that was away; the Job's controller tries again.
        (format!("cannot create pods: {why}"), ObstacleWait::Briefly)
    };
    Some(Obstacle { message: what, shown_by, wait: passes })
}

/// What keeps a pod from running, as far as it tells; `events` are those of the namespace.
#[must_use]
pub fn pod_obstacle(pod: &Value, events: &[Value], place: &KubectlContext) -> Option<Obstacle> {
    waiting(pod, place).or_else(|| unscheduled(pod, events, place)).or_else(|| unmounted(pod, events, place))
}

/// A container that waits for something that does not come.
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

/// Events of who gives a cluster another node: cluster-autoscaler (`TriggeredScaleUp`) and Karpenter (`Nominated`).
const GROWING: [&str; 2] = ["TriggeredScaleUp", "Nominated"];

fn unscheduled(pod: &Value, events: &[Value], place: &KubectlContext) -> Option<Obstacle> {
    let condition =
        condition(pod, "PodScheduled").filter(|condition| text(condition, "/status") == "False")?;
    // A gate (`SchedulingGated`) is somebody's who will open it.
    if text(condition, "/reason") != "Unschedulable" {
        return None;
    }
    let is_growing = of_object(events, pod).any(|event| GROWING.contains(&text(event, "/reason")));
    let what = format!("no node has room for {}: {}", pod_name(pod), text(condition, "/message"));
    let passes = if is_growing { ObstacleWait::UntilTimeout } else { ObstacleWait::Briefly };
    Some(Obstacle { message: what, shown_by: describe(pod, place), wait: passes })
}

/// A volume that cannot be mounted is told by events alone, and tried again for ever.
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
    // The Secret comes after the Job; a kubelet that was too quick looks again.
    Some(Obstacle { message: what, shown_by: describe(pod, place), wait: ObstacleWait::Briefly })
}

fn of_object<'a>(events: &'a [Value], pod: &'a Value) -> impl Iterator<Item = &'a Value> {
    let is_its = move |event: &&Value| {
        text(event, "/involvedObject/kind") == "Pod" && text(event, "/involvedObject/name") == pod_name(pod)
    };
    events.iter().filter(is_its)
}

/// A pod's place among those of its Job.
#[must_use]
pub fn pod_index(pod: &Value) -> Option<usize> {
    let of = |kind: &str| pod.get("metadata")?.get(kind)?.get(INDEX_ANNOTATION)?.as_str()?.parse().ok();
    of("annotations").or_else(|| of("labels"))
}

/// Whether its program runs.
#[must_use]
pub fn is_pod_running(pod: &Value) -> bool {
    let running = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let is_running = |status: &Value| status.pointer("/state/running").is_some();
    text(pod, "/status/phase") == "Running"
        && pod.pointer("/metadata/deletionTimestamp").is_none()
        && running.is_some_and(|statuses| statuses.iter().any(is_running))
}

/// A pod's name.
#[must_use]
pub fn pod_name(pod: &Value) -> &str {
    text(pod, "/metadata/name")
}

/// The node that has it, in words where none has.
#[must_use]
pub fn node_name(pod: &Value) -> &str {
    Some(text(pod, "/spec/nodeName")).filter(|node| !node.is_empty()).unwrap_or("an unknown node")
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| text(condition, "/type") == kind)
}

/// Why a Job is at its end, if it is.
#[must_use]
pub fn job_failed(job: &Value) -> Option<String> {
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

/// A text in an object; empty where there is none.
fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// What follows the last of such words.
fn after<'a>(text: &'a str, words: &str) -> &'a str {
    text.rsplit_once(words).map_or(text, |(_, rest)| rest)
}

#[cfg(test)]
mod tests;
