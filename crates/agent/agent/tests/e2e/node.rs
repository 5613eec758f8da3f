//! A node as the testkit makes it, and what the agent finds on it: an emulated cloud, which verifies pods' tokens by the keys that the API
//! server publishes, and a stand-in for the real metadata server.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use seawall_testkit::control_plane::ControlPlane;
use seawall_testkit::node;
pub(crate) use seawall_testkit::node::{
    NODE_ADDRESS, ctr_command, e2e_artifact_path, kubepods_cgroup, required_env_var, run_successfully,
};

use crate::real_metadata_server::Real;
use crate::support::cloud::{Cloud, email};

/// A node that is ready, without an agent.
pub(crate) struct Node {
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) real: Real,
    node: node::Node,
}

impl Node {
    /// With these ServiceAccounts; each has a Google service account of its own, unless its name begins with `plain`.
    pub(crate) fn start(accounts: &[&str]) -> Self {
        Self::with(accounts, &[])
    }

    /// The same, with taints with which the node joins, as `key=value:effect`.
    pub(crate) fn with(accounts: &[&str], taints: &[&str]) -> Self {
        Self::launched(accounts, |images| node::Node::launch(images, taints))
    }

    /// One whose API server admits pods of the system's priority classes only where a ResourceQuota allows them, as on GKE.
    pub(crate) fn like_gke(accounts: &[&str]) -> Self {
        let limiting = ControlPlane::limiting_critical_pods;
        Self::launched(accounts, |images| node::Node::launch_with(images, &[], limiting))
    }

    fn launched(accounts: &[&str], launch: impl FnOnce(&[&str]) -> node::Node) -> Self {
        // The address of the metadata server is the node's own: whoever is not captured reaches the stand-in.
        node::run_ip_command(&format!("address add {}/32 dev lo", crate::support::network::METADATA));
        let node = launch(&["seawall-agent", "seawall"]);
        let accounts: Vec<_> = accounts.iter().map(|name| (name.to_string(), google(name))).collect();
        for (name, email) in &accounts {
            node.api.create_service_account(name, email.as_deref());
        }
        let cloud = Arc::new(Cloud::start(&node.api, &accounts));
        node.wait_until_ready();
        Self { cloud, real: Real::start(), node }
    }
}

fn google(account: &str) -> Option<String> {
    (!account.starts_with("plain")).then(|| email(account))
}

impl Deref for Node {
    type Target = node::Node;

    fn deref(&self) -> &node::Node {
        &self.node
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut node::Node {
        &mut self.node
    }
}
