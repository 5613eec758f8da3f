//! Describes how pods end.

use serde_json::Value;

use super::{condition, node_name, text};

/// The exit codes of killed programs: 128 plus the signal (bash(1), "Exit status").
const KILLED: i64 = 137;
const TERMINATED: i64 = 143;

/// The longest foreign text in a sentence, in bytes.
const LONGEST: usize = 300;

/// Returns the reason of a pod's end; none while it may still report. `is_gone` means that the API server no longer has the pod.
#[must_use]
pub fn end_reason(pod: &Value, is_gone: bool) -> Option<String> {
    of_pod(pod)
        .or_else(|| of_container(pod))
        .or_else(|| lost(pod))
        .or_else(|| is_gone.then(|| "deleted".to_owned()))
}

/// Returns the reason why the whole pod ended.
fn of_pod(pod: &Value) -> Option<String> {
    let (reason, message) = (text(pod, "/status/reason"), shortened(text(pod, "/status/message")));
    let disrupted =
        condition(pod, "DisruptionTarget").filter(|condition| text(condition, "/status") == "True");
    let why = match reason {
        "Evicted" => format!("evicted: {message}"),
        "DeadlineExceeded" => "its Job reached its deadline (activeDeadlineSeconds)".to_owned(),
        "NodeLost" => format!("the node {} does not respond", node_name(pod)),
        "Shutdown" | "NodeShutdown" | "Terminated" => format!("the node {} shut down", node_name(pod)),
        "" => return disrupted.and_then(|condition| disruption(pod, condition)),
        // The pod never ran: UnexpectedAdmissionError, OutOfcpu, NodeAffinity.
        reason if text(pod, "/status/phase") == "Failed" => {
            format!("rejected by {}: {reason}: {message}", node_name(pod))
        }
        _ => return None,
    };
    Some(why)
}

/// Returns the reasons of `DisruptionTarget`. Source: Kubernetes documentation, "Pod Lifecycle", disruption conditions.
fn disruption(pod: &Value, condition: &Value) -> Option<String> {
    let message = shortened(text(condition, "/message"));
    Some(match text(condition, "/reason") {
        "PreemptionByScheduler" => "preempted by a pod of higher priority".to_owned(),
        "DeletionByTaintManager" => format!("the node {} does not respond or was tainted", node_name(pod)),
        "EvictionByEvictionAPI" => "evicted through the eviction API (for example kubectl drain)".to_owned(),
        "DeletionByPodGC" => format!("the node {} was deleted", node_name(pod)),
        "TerminationByKubelet" => format!("evicted: {message}"),
        _ => return None,
    })
}

/// Returns the reason why the pod's program ended.
fn of_container(pod: &Value) -> Option<String> {
    let statuses = pod.pointer("/status/containerStatuses")?.as_array()?;
    let ended = statuses.iter().find_map(|status| status.pointer("/state/terminated"))?;
    let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
    let why = match (text(ended, "/reason"), code) {
        ("OOMKilled", _) => "killed: out of memory (OOMKilled); raise --memory".to_owned(),
        (_, KILLED) => format!("killed (exit code {KILLED})"),
        (_, TERMINATED) => format!("terminated (exit code {TERMINATED})"),
        (_, 0) => "ended".to_owned(),
        (reason @ ("ContainerCannotRun" | "StartError"), _) => {
            format!("cannot start the container: {reason}: {}", shortened(text(ended, "/message")))
        }
        (_, code) => match last_words(text(ended, "/message")) {
            Some(words) => format!("ended with exit code {code}: {words}"),
            None => format!("ended with exit code {code}"),
        },
    };
    Some(why)
}

/// Returns the reason for a pod that is lost, because its node is silent or it is being deleted. The program may still run, but
/// its output is lost.
fn lost(pod: &Value) -> Option<String> {
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return Some("deleted".to_owned());
    }
    (text(pod, "/status/phase") == "Unknown").then(|| format!("the node {} does not respond", node_name(pod)))
}

/// Returns the last line of a log that is not a line of the protocol.
fn last_words(message: &str) -> Option<&str> {
    let is_for_people = |line: &&str| !line.is_empty() && !line.starts_with(['{', '"']);
    message.lines().map(str::trim).rfind(is_for_people).map(shortened)
}

fn shortened(text: &str) -> &str {
    let text = text.trim();
    let end = (0..=LONGEST.min(text.len())).rfind(|&end| text.is_char_boundary(end)).unwrap_or_default();
    &text[..end]
}
