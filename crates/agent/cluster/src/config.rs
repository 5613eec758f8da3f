//! Plain values that say whom to ask, about which node, and how patiently. Reading them from a file is the agent's.

use std::time::Duration;

use seawall_core::annotations::AnnotationKeys;
use seawall_core::names::is_dns_subdomain;
use seawall_kube::{KubeAccess, KubeTimeouts};

/// What the cluster view needs to know.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The node whose pods are served, as `spec.nodeName` names it.
    pub node: NodeName,
    /// How to reach the API server.
    pub access: KubeAccess,
    /// The key of the taint to take off the node once the agent is ready; `None` leaves the node alone and needs no
    /// permission on nodes.
    pub startup_taint: Option<String>,
    /// How long a pod's token is asked to live. The API server accepts 600 s and more, and may shorten it.
    pub token_lifetime: Duration,
    /// Which annotations are told of, each cloud's; of the others, nothing is kept.
    pub selections: Vec<AnnotationKeys>,
    /// How long to wait for what.
    pub timeouts: KubeTimeouts,
}

/// A node's name. Checked, because it becomes part of a selector: an empty one would select the pods that no node has,
/// and a comma would begin another condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName(String);

impl NodeName {
    /// A DNS subdomain (RFC 1123) of at most 253 characters, as the API server demands of nodes; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        is_dns_subdomain(text).then(|| Self(text.to_owned()))
    }

    /// As the API server writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ClusterConfig {
    /// The defaults for a node: in-cluster access, no taint, tokens of an hour as the kubelet asks for, no annotations.
    pub fn for_node(node: NodeName) -> Self {
        Self {
            node,
            access: KubeAccess::InCluster,
            startup_taint: None,
            token_lifetime: Duration::from_secs(3600),
            selections: Vec::new(),
            timeouts: KubeTimeouts::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_name_cannot_change_the_selector() {
        for good in ["node1", "ip-10-0-0-1.eu-west-1.compute.internal", "1"] {
            assert_eq!(NodeName::parse(good).unwrap().as_str(), good);
        }
        for wrong in
            ["", "a,spec.nodeName!=a", "a=b", "a b", "A", "-a", "a-", "a..b", "a.", "ä", &"a".repeat(254)]
        {
            assert_eq!(NodeName::parse(wrong), None, "{wrong}");
        }
    }
}
