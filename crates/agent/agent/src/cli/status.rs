//! `seawall-agent status`: prints the state of the agent in this pod as readable text.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::admin_query::get_from_admin_server;
use crate::config::AdminEndpoint;

/// Returns the output of `status`: readiness, the configuration in force, and each pod with its credentials.
///
/// # Errors
/// No process responds, or the response does not come from an agent.
pub(crate) fn status(path: &Path) -> anyhow::Result<String> {
    let door = AdminEndpoint::from_file(path)?;
    let (_, ready) = get_from_admin_server(&door, "/readyz")?;
    let (status, pods) = get_from_admin_server(&door, "/debug/pods")?;
    anyhow::ensure!(status == 200, "/debug/pods: {status} {}", pods.trim_end());
    let pods: Value = serde_json::from_str(&pods).context("/debug/pods")?;
    let mut text = ready;
    configuration(&pods["configuration"], &mut text);
    let pods = pods["pods"].as_array().context("/debug/pods has no list of pods")?;
    let _ = writeln!(text, "{} pod(s)", pods.len());
    for pod in pods {
        describe(pod, &mut text);
    }
    Ok(text)
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
    for (cloud, has) in pod.as_object().into_iter().flatten().filter(|(_, has)| has["status"].is_string()) {
        let held = has["principals"].as_array().map(Vec::as_slice).unwrap_or_default();
        let lives = held.iter().filter_map(|principal| principal["expires_in_seconds"].as_u64());
        let least =
            lives.min().map_or(String::new(), |least| format!(", the shortest with {} min left", least / 60));
        let status = has["status"].as_str().unwrap_or("-");
        let _ = writeln!(out, "    {cloud}: {status}, {} credential(s){least}", held.len());
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
            "google": { "status": "federated", "principals": [{ "expires_in_seconds": 3000 }, { "expires_in_seconds": 1860 }] },
            "aws": { "status": "no_role", "principals": [] },
        });
        let mut out = String::new();
        describe(&pod, &mut out);
        let expected = "shop/cart-0  10.4.0.7  as cart  2 connection(s)\n    aws: no_role, 0 credential(s)\n    \
                        google: federated, 2 credential(s), the shortest with 31 min left\n";
        assert_eq!(out, expected);
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
