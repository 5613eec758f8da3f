//! Writes the effective configuration as YAML, for `check`. An agent that reads this YAML has the same configuration.
//!
//! Each section serialises itself with serde. This module writes the tables. The module writes scalars and lists as JSON, because
//! JSON is valid YAML.

use std::fmt::Write;

use serde::{Serialize, Serializer};
use serde_json::Value;

/// Returns all values of the configuration as YAML, including defaults.
pub(crate) fn effective_yaml(config: &impl Serialize) -> String {
    // Serialisation cannot fail, because all values were parsed from text.
    format_yaml(&serde_json::to_value(config).unwrap_or_default())
}

/// Returns a table as YAML.
pub(crate) fn format_yaml(table: &Value) -> String {
    let mut out = String::new();
    write(table, 0, &mut out);
    out
}

fn write(value: &Value, depth: usize, out: &mut String) {
    let Value::Object(table) = value else { return };
    let indent = "  ".repeat(depth);
    for (key, value) in table {
        // Writing to a String cannot fail.
        let _ = match value {
            Value::Object(_) => writeln!(out, "{indent}{key}:"),
            Value::Null => Ok(()),
            scalar => writeln!(out, "{indent}{key}: {scalar}"),
        };
        write(value, depth + 1, out);
    }
}

/// Serialises a count, or `auto` if the count is not set.
pub(super) fn serialize_count_or_auto<S: Serializer>(count: &Option<u32>, to: S) -> Result<S::Ok, S::Error> {
    match count {
        Some(count) => to.serialize_u32(*count),
        None => to.serialize_str("auto"),
    }
}

/// Serialises a log level by its name in the configuration.
pub(super) fn serialize_log_level<S: Serializer>(level: &tracing::Level, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&level.as_str().to_lowercase())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use seawall_core::PodUid;

    use super::*;
    use crate::config::{AgentConfig, DownwardApi};

    #[test]
    fn reading_the_effective_configuration_back_changes_nothing() {
        let downward = DownwardApi { own_pod_uid: Some(PodUid("5eaf".into())), ..DownwardApi::default() };
        let kernel = "{ strategy: kernel, nodeName: n1, redirect: { bpffs: /bpf, cgroupRoot: /cg, kubepodsCgroup: a/kubepods } }";
        let source_ip =
            "{ strategy: source-ip, nodeName: n1, kubeconfig: k, podTokenLifetime: 2h, startupTaint: a.b/c }";
        let gke = crate::config::DEFAULT_CONFIG_YAML
            .replace("strategy: static", "strategy: source-ip\n  nodeName: n1")
            .replace("\"//iam", "\"identitynamespace:p.svc.id.goog://iam")
            .replace("attributes: {}", "attributes: { team: 'shop: 1', empty: '' }")
            .replace(
                "exchange: sts",
                "exchange: identitybindingtoken\n  proxy: http://proxy:3128\n  caFile: ca.pem",
            );
        for text in [
            crate::config::DEFAULT_CONFIG_YAML,
            "google: { mode: conceal }\nidentity: { strategy: anyone }\nthreads: 2\n\
             listen: [{ address: \"[::1]:80\", dialects: [google] }]\n",
            &format!("realServer: [kube-system/dns]\ngoogle: {{ mode: conceal }}\nidentity: {source_ip}\n"),
            &format!("google: {{ mode: conceal }}\nidentity: {kernel}\nlisten: [\"10.0.0.1:0\"]\n"),
            &gke,
        ] {
            let config = AgentConfig::parse(text, Path::new("/etc"), &downward).unwrap();
            let printed = effective_yaml(&config);
            let back = AgentConfig::parse(&printed, Path::new("/elsewhere"), &downward).unwrap();
            assert_eq!(back, config, "{printed}");
        }
    }
}
