//! The `identity` section: by which strategy callers are told apart, and what that strategy needs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use seawall_cluster::NodeName;
use seawall_document::Table;
use serde::{Serialize, Serializer};

use super::effective::span;
use super::values::{dns_name, duration, path};
use crate::cloud::Sections;

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "strategy", rename_all = "kebab-case")]
pub(crate) enum Identity {
    Static { file: PathBuf },
    SourceIp(Box<SourceIp>),
    Anyone,
}

/// Pods are known from the API server and told apart by their addresses.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceIp {
    /// The node whose pods are served.
    #[serde(serialize_with = "node_name")]
    pub(crate) node: NodeName,
    /// How to reach the API server; `None`: as any pod does.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How long the pods' Kubernetes tokens are asked to live.
    #[serde(serialize_with = "span")]
    pub(crate) token_lifetime: Duration,
    /// The key of the taint to take off the node once ready.
    pub(crate) taint: Option<String>,
}

fn node_name<S: Serializer>(node: &NodeName, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(node.as_str())
}

impl Identity {
    /// `node` is the node's name where the section leaves it out.
    pub(super) fn read(table: &Table<'_>, clouds: &Sections, base: &Path, node: Option<&str>) -> Self {
        const STRATEGIES: [&str; 3] = ["static", "source-ip", "anyone"];
        let strategy = table.key("strategy");
        let file = table.key("file");
        let wanted = strategy
            .text("static, source-ip or anyone", |t| STRATEGIES.iter().find(|known| **known == t).copied());
        let path = file.text("the path of the identity file", |t| path(t, base));
        // Read whichever strategy is on, so that a file prepared for both is checked as a whole.
        let source_ip = SourceIp::read(table, base, node, wanted == Some("source-ip"));
        match (wanted, source_ip) {
            (Some("anyone"), _) => {
                // Handing every caller credentials of its own needs to know the caller; there is no default pod.
                if clouds.must_know_pods() {
                    strategy
                        .mistake("static or source-ip, because whoever gives credentials must know each pod");
                }
                Self::Anyone
            }
            (Some("source-ip"), Some(source_ip)) => Self::SourceIp(Box::new(source_ip)),
            // `source-ip` without a node was noted as a mistake.
            _ => Self::Static { file: path.unwrap_or_else(|| base.join("pods.yaml")) },
        }
    }
}

/// The API server accepts no shorter one (kubernetes, pkg/apis/authentication/validation).
const SHORTEST_TOKEN: Duration = Duration::from_secs(600);

impl SourceIp {
    fn read(table: &Table<'_>, base: &Path, node: Option<&str>, is_wanted: bool) -> Option<Self> {
        let name = table.key("node");
        let node = name.text("the node's name", NodeName::parse).or_else(|| node.and_then(NodeName::parse));
        if is_wanted && node.is_none() && !name.is_present() {
            name.mistake("the node's name, here or in the environment variable NODE_NAME");
        }
        let lifetime = table
            .key("tokenLifetime")
            .text("a duration from 10m to 24h", |text| duration(text).filter(|span| *span >= SHORTEST_TOKEN));
        let kubeconfig = table.key("kubeconfig").text("the path of a kubeconfig", |t| path(t, base));
        let taint = table.key("taint").text("a taint's key such as seawall.dev/not-ready", taint);
        table.moved("passthrough", "this key is now google.passthrough");
        let token_lifetime = lifetime.unwrap_or(Duration::from_secs(3600));
        node.map(|node| Self { node, kubeconfig, token_lifetime, taint })
    }
}

/// A qualified name (apimachinery `IsQualifiedName`): an optional DNS prefix and a name.
fn taint(text: &str) -> Option<String> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let fits = (1..=63).contains(&name.len()) && name.bytes().all(plain);
    (fits && prefix.is_none_or(|prefix| dns_name(prefix).is_some())).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taints_key_is_one_that_kubernetes_takes() {
        for good in ["seawall.dev/not-ready", "not-ready", "a"] {
            assert!(taint(good).is_some(), "{good}");
        }
        for wrong in ["", "/", "Seawall.dev/x", "seawall.dev/", "a b", "a/b/c"] {
            assert!(taint(wrong).is_none(), "{wrong:?}");
        }
    }
}
