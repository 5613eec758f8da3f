//! Reads the data about the node and the agent's own pod that Kubernetes' downward API provides.
//!
//! All nodes share one configuration file, so environment variables provide the data that differs between nodes.

use std::net::IpAddr;

use seawall_core::PodUid;

/// Holds the node's name, the node's address and the UID of the agent's own pod. A field is `None` if the agent's manifest does
/// not set the field's environment variable.
#[derive(Clone, Debug, Default)]
pub struct DownwardApi {
    /// The node's name: `spec.nodeName` of the agent's pod.
    pub node_name: Option<String>,
    /// The node's address: `status.hostIP` of the agent's pod.
    pub node_address: Option<IpAddr>,
    /// The UID of the agent's own pod: its `metadata.uid`.
    pub own_pod_uid: Option<PodUid>,
}

impl DownwardApi {
    /// The name of the environment variable that contains the node's name.
    pub const NODE_NAME_VARIABLE: &str = "NODE_NAME";
    /// The name of the environment variable that contains the node's address.
    pub const NODE_ADDRESS_VARIABLE: &str = "NODE_IP";
    /// The name of the environment variable that contains the UID of the agent's own pod.
    pub(crate) const POD_UID_VARIABLE: &str = "POD_UID";

    /// Reads the environment variables of this process. Ignores an address that cannot be parsed.
    pub fn from_env() -> Self {
        let told = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            node_name: told(Self::NODE_NAME_VARIABLE),
            node_address: told(Self::NODE_ADDRESS_VARIABLE).and_then(|text| text.parse().ok()),
            own_pod_uid: told(Self::POD_UID_VARIABLE).map(|uid| PodUid(uid.into())),
        }
    }

    /// Returns the UID of the agent's own pod, if the agent's manifest sets the environment variable.
    pub fn own_pod(&self) -> Option<&PodUid> {
        self.own_pod_uid.as_ref()
    }

    /// Replaces missing values with placeholders. Use this function to check a configuration outside a pod, where the variables
    /// are not set.
    pub fn with_placeholders(self) -> Self {
        // This address is reserved for documentation (RFC 5737), so no node has it.
        const ANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
        Self {
            node_name: self.node_name.or_else(|| Some("node".into())),
            node_address: self.node_address.or(Some(ANY)),
            own_pod_uid: self.own_pod_uid.or_else(|| Some(PodUid("pod".into()))),
        }
    }

    /// Returns data that contains only the node's name.
    pub fn for_node(node: &str) -> Self {
        Self { node_name: Some(node.into()), ..Self::default() }
    }
}
