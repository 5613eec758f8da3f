//! Defines the configuration of the cluster client. The agent fills these fields from its configuration file, except the
//! timeouts, which are constants.

use std::time::Duration;

use seawall_core::annotations::AnnotationKeys;
use seawall_core::name_syntax::is_dns_subdomain;
use seawall_kube::{ClientConfigSource, KubeTimeouts};

/// The configuration of the cluster client.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The name of the node whose pods this agent serves, as in a pod's `spec.nodeName`.
    pub node: NodeName,
    /// The source of the API server's address and credentials: the pod's in-cluster files or a kubeconfig.
    pub kube_access: ClientConfigSource,
    /// The key of the taint that the agent removes from the node once the agent is ready. With `None`, the agent does not
    /// change the node, so it needs no permissions for nodes.
    pub startup_taint: Option<String>,
    /// The lifetime that the agent requests for a pod's token. The API server accepts 600 s or more, and can grant a shorter
    /// lifetime.
    pub pod_token_lifetime: Duration,
    /// The annotation keys that each cloud reads. The agent keeps no other annotations.
    pub annotation_keys: Vec<AnnotationKeys>,
    /// The timeouts of API server requests.
    pub timeouts: KubeTimeouts,
}

/// A valid node name. The agent puts the name into a field selector. There, an empty name would select pods without a node, and
/// a comma would start another condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName(String);

impl NodeName {
    /// Parses a DNS subdomain (RFC 1123) of at most 253 characters, as the API server requires for nodes. Returns `None` for
    /// any other text.
    pub fn parse(text: &str) -> Option<Self> {
        is_dns_subdomain(text).then(|| Self(text.to_owned()))
    }

    /// Returns the name as the API server writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ClusterConfig {
    /// Returns the defaults for a node: in-cluster access, no taint, one-hour tokens like the kubelet's, no annotations.
    pub fn for_node(node: NodeName) -> Self {
        Self {
            node,
            kube_access: ClientConfigSource::InCluster,
            startup_taint: None,
            pod_token_lifetime: Duration::from_secs(3600),
            annotation_keys: Vec::new(),
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
