//! `seawall-agent status`: prints the state of the agent in this pod as readable text.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use seawall_cluster::namespaces_without_baseline;
use seawall_core::Clock;
use serde_json::{Map, Value};
use tokio::runtime::Builder;

use super::admin_query::get_from_admin_server;
use crate::config::{AdminEndpoint, AgentConfig};

/// Returns the output of `status`: readiness, the configuration in force, each pod with its credentials, and the namespaces that put pods on
/// the node's network and do not enforce Pod Security's baseline.
///
/// # Errors
/// No process responds, or the response does not come from an agent.
pub(crate) fn status(path: &Path) -> anyhow::Result<String> {
    let door = AdminEndpoint::from_file(path)?;
    let (_, ready) = get_from_admin_server(&door, "/readyz")?;
    let (status, pods) = get_from_admin_server(&door, "/debug/pods")?;
    anyhow::ensure!(status == 200, "/debug/pods: {status} {}", pods.trim_end());
    let told: Value = serde_json::from_str(&pods).context("/debug/pods")?;
    let mut text = ready;
    configuration(&told["configuration"], &mut text);
    let pods = told["pods"].as_array().context("/debug/pods has no list of pods")?;
    let _ = writeln!(text, "{} pod(s)", pods.len());
    for pod in pods {
        describe(pod, &mut text);
    }
    if let Some(host_network) = told["host_network_pods"].as_object().filter(|counts| !counts.is_empty()) {
        text.push_str(&describe_host_network(host_network, without_baseline(path)));
    }
    Ok(text)
}

/// The file in which Kubernetes tells a pod its namespace.
const OWN_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Returns the namespaces that do not enforce Pod Security's baseline, without the agent's own.
fn without_baseline(path: &Path) -> anyhow::Result<BTreeSet<String>> {
    let config = AgentConfig::load(path)?;
    let own = std::fs::read_to_string(OWN_NAMESPACE).unwrap_or_default();
    let access = config.identity.kube_access().context("identity.strategy uses no API server")?;
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let mut namespaces = runtime.block_on(namespaces_without_baseline(access, Clock::system()))?;
    // The agent's own namespace cannot enforce the baseline, because agents are on the node's network.
    namespaces.remove(own.trim());
    Ok(namespaces)
}

/// Describes the namespaces of pods on the node's network. `counts` is the number of these pods by namespace.
fn describe_host_network(counts: &Map<String, Value>, without: anyhow::Result<BTreeSet<String>>) -> String {
    const HAVE: &str = "on the node's network: these have the node's identity";
    let all: u64 = counts.values().filter_map(Value::as_u64).sum();
    let mut text = format!("{all} pod(s) {HAVE}\n");
    match without {
        Ok(without) => {
            let named = counts.iter().filter(|(namespace, _)| without.contains(*namespace));
            for (namespace, count) in named {
                let _ = writeln!(
                    text,
                    "    {namespace} ({count} pod(s)): the namespace does not enforce Pod Security's baseline, so whoever can create a pod there can have it, too"
                );
            }
        }
        Err(error) => {
            let _ = writeln!(
                text,
                "    it is unknown which of their namespaces enforce Pod Security's baseline: {error:#}"
            );
        }
    }
    text
}

/// Appends the configuration in force, and a newer configuration that the agent refused.
fn configuration(told: &Value, out: &mut String) {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let _ =
        writeln!(out, "configuration {} in force since {}", text(&told["sha256"]), text(&told["applied_at"]));
    let refused = &told["refused"];
    if refused.is_object() {
        let (sha256, at, reason) =
            (text(&refused["sha256"]), text(&refused["refused_at"]), text(&refused["reason"]));
        let _ = writeln!(out, "    {sha256} was refused at {at}: {reason}");
    }
}

/// Appends a line for the pod, and a line for each cloud of the configuration.
fn describe(pod: &Value, out: &mut String) {
    let name = |key: &str| pod[key].as_str().unwrap_or("-").to_owned();
    let _ = writeln!(
        out,
        "{}/{}  {}  as {}  {} connection(s)",
        name("namespace"),
        name("pod"),
        name("address"),
        name("service_account"),
        pod["open_connections"]
    );
    if pod["keeps_real_server"] == true {
        let _ = writeln!(
            out,
            "    on the node's network: it reaches the real metadata server, without the agent"
        );
        return;
    }
    for (cloud, has) in pod.as_object().into_iter().flatten().filter(|(_, has)| has["status"].is_string()) {
        let held = has["principals"].as_array().map(Vec::as_slice).unwrap_or_default();
        // A principal without a lease waits for its first credential.
        let lives: Vec<_> =
            held.iter().filter_map(|principal| principal["expires_in_seconds"].as_u64()).collect();
        let least = lives
            .iter()
            .min()
            .map_or(String::new(), |least| format!(", the shortest with {} min left", least / 60));
        let status = has["status"].as_str().unwrap_or("-");
        let failing: Vec<_> =
            held.iter().filter_map(|principal| principal["last_failure"]["fault"].as_str()).collect();
        let failed = failing
            .first()
            .map_or(String::new(), |fault| format!("; the last fetch of {} failed: {fault}", failing.len()));
        let of_node =
            if has["got_node_credentials"] == true { "; it got the node's credentials" } else { "" };
        let variables = has["credential_variables"].as_array().map(Vec::as_slice).unwrap_or_default();
        let variables: Vec<_> = variables.iter().filter_map(Value::as_str).collect();
        let elsewhere = if variables.is_empty() {
            String::new()
        } else {
            format!("; a container has {}, so its SDK does not ask the agent", variables.join(" and "))
        };
        let _ = writeln!(
            out,
            "    {cloud}: {status}, {} credential(s){least}{failed}{of_node}{elsewhere}",
            lives.len()
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_a_line_and_so_is_each_cloud_that_it_asks() {
        let pod = json!({
            "namespace": "shop", "pod": "cart-0", "address": "10.4.0.7", "service_account": "cart", "open_connections": 2,
            "google": { "status": "federated", "principals": [{ "expires_in_seconds": 3000 }, { "expires_in_seconds": 1860, "last_failure": { "fault": "access_denied" } }, { "expires_in_seconds": null }] },
            "aws": { "status": "no_role", "principals": [], "credential_variables": ["AWS_WEB_IDENTITY_TOKEN_FILE"] },
        });
        let mut out = String::new();
        describe(&pod, &mut out);
        let expected = "shop/cart-0  10.4.0.7  as cart  2 connection(s)\n    aws: no_role, 0 credential(s); a container has \
                        AWS_WEB_IDENTITY_TOKEN_FILE, so its SDK does not ask the agent\n    \
                        google: federated, 2 credential(s), the shortest with 31 min left; the last fetch of 1 \
                        failed: access_denied\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn a_pod_that_got_the_nodes_credentials_is_told_so() {
        let mut out = String::new();
        let pod = json!({
            "namespace": "shop", "pod": "cart-0", "address": "10.4.0.7", "service_account": "cart", "open_connections": 0,
            "aws": { "status": "no_role", "principals": [], "got_node_credentials": false },
            "google": { "status": "passthrough", "principals": [], "got_node_credentials": true },
        });
        describe(&pod, &mut out);
        let expected = "    aws: no_role, 0 credential(s)\n    \
                        google: passthrough, 0 credential(s); it got the node's credentials\n";
        assert!(out.ends_with(expected), "{out}");
    }

    #[test]
    fn a_pod_that_keeps_the_real_server_is_not_told_as_refused() {
        let mut out = String::new();
        let pod = json!({
            "namespace": "kube-system", "pod": "aws-node-1", "address": null, "service_account": "aws-node", "open_connections": 0,
            "keeps_real_server": true, "aws": { "status": "no_role", "principals": [] },
        });
        describe(&pod, &mut out);
        assert!(out.contains("on the node's network") && !out.contains("no_role"), "{out}");
    }

    #[test]
    fn namespaces_that_anybody_can_use_for_the_nodes_identity_are_named() {
        let counts = json!({ "kube-system": 3, "monitoring": 1 });
        let told = |without| describe_host_network(counts.as_object().unwrap(), without);
        let some = told(Ok(["default", "monitoring"].map(str::to_owned).into()));
        assert!(some.starts_with("4 pod(s) on the node's network"), "{some}");
        assert!(some.contains("\n    monitoring (1 pod(s)): ") && !some.contains("default"), "{some}");
        assert!(!some.contains("kube-system"), "{some}");
        let unknown = told(Err(anyhow::anyhow!("403 Forbidden")));
        assert!(unknown.contains("it is unknown") && unknown.contains("403 Forbidden"), "{unknown}");
    }

    #[test]
    fn the_configuration_is_a_line_and_so_is_one_that_was_refused() {
        let mut out = String::new();
        configuration(&json!({ "sha256": "ab", "applied_at": "T1", "refused": null }), &mut out);
        let refused = json!({ "sha256": "cd", "refused_at": "T2", "reason": "listen: expected a list" });
        configuration(&json!({ "sha256": "ab", "applied_at": "T1", "refused": refused }), &mut out);
        let expected = "configuration ab in force since T1\nconfiguration ab in force since T1\n    \
                        cd was refused at T2: listen: expected a list\n";
        assert_eq!(out, expected);
    }
}
