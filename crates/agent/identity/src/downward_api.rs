//! What a pod is told of itself by Kubernetes' downward API, which can put it into environment variables and nowhere else that a
//! file for all nodes could refer to.

use std::net::IpAddr;

use seawall_core::PodUid;

/// Where the agent runs, as far as its pod's manifest has it told.
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
    /// The variable that names the node.
    pub const NODE: &str = "NODE_NAME";
    /// That of its address.
    pub const ADDRESS: &str = "NODE_IP";
    /// That of the agent's own pod.
    pub(crate) const POD: &str = "POD_UID";

    /// As this process is told. What is no address is none.
    pub fn from_env() -> Self {
        let told = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            node: told(Self::NODE),
            address: told(Self::ADDRESS).and_then(|text| text.parse().ok()),
            pod: told(Self::POD).map(|uid| PodUid(uid.into())),
        }
    }

    /// The agent's own pod, as far as it is told.
    pub fn own_pod(&self) -> Option<&PodUid> {
        self.pod.as_ref()
    }

    /// With something in the place of what is not told, where only the configuration is looked at and nobody tells it.
    pub fn or_placeholders(self) -> Self {
        // An address of documentation (RFC 5737).
        const ANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
        Self {
            node: self.node.or_else(|| Some("node".into())),
            address: self.address.or(Some(ANY)),
            pod: self.pod.or_else(|| Some(PodUid("pod".into()))),
        }
    }

    /// On a node of this name.
    pub fn for_node(node: &str) -> Self {
        Self { node: Some(node.into()), ..Self::default() }
    }
}
