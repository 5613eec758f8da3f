//! The agent pod's own data from Kubernetes' downward API.
//!
//! The downward API can put this data into environment variables, and nowhere else that a file for all nodes could refer to.

use std::net::IpAddr;

use seawall_core::PodUid;

/// The node, its address and the agent's own pod, as far as the pod's manifest passes them.
#[derive(Clone, Debug, Default)]
pub struct DownwardApi {
    /// `spec.nodeName`.
    pub node: Option<String>,
    /// `status.hostIP`.
    pub address: Option<IpAddr>,
    /// `metadata.uid`.
    pub pod: Option<PodUid>,
}

impl DownwardApi {
    /// The environment variable with the node's name.
    pub const NODE: &str = "NODE_NAME";
    /// The environment variable with the node's address.
    pub const ADDRESS: &str = "NODE_IP";
    /// The environment variable with the UID of the agent's own pod.
    pub(crate) const POD: &str = "POD_UID";

    /// Reads the environment of this process. Ignores an address that cannot be parsed.
    pub fn from_env() -> Self {
        let told = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            node: told(Self::NODE),
            address: told(Self::ADDRESS).and_then(|text| text.parse().ok()),
            pod: told(Self::POD).map(|uid| PodUid(uid.into())),
        }
    }

    /// The UID of the agent's own pod, if the manifest passes it.
    pub fn own_pod(&self) -> Option<&PodUid> {
        self.pod.as_ref()
    }

    /// Fills in placeholders for missing values. For checks of the configuration outside a pod, where the variables are not set.
    pub fn or_placeholders(self) -> Self {
        // An address of documentation (RFC 5737).
        const ANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
        Self {
            node: self.node.or_else(|| Some("node".into())),
            address: self.address.or(Some(ANY)),
            pod: self.pod.or_else(|| Some(PodUid("pod".into()))),
        }
    }

    /// The data of a node of this name, without address and pod.
    pub fn for_node(node: &str) -> Self {
        Self { node: Some(node.into()), ..Self::default() }
    }
}
