//! What pods see in `federate`: the node's facts, and the tree of each account, shared by all pods that act as it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use seawall_cloud::gce;
use seawall_cloud::gce::federate::DEFAULT_SCOPES;

use crate::config::Federate;

/// The node's facts and the trees made of them.
#[derive(Debug)]
pub(crate) struct Federation {
    /// The name that stands where an e-mail would, for pods that act as no Google service account, as on GKE.
    pool: Arc<str>,
    /// Without an account; those with one share the node's facts with it.
    bare: Arc<gce::Tree>,
    /// By e-mail. A lock, because trees are made while the agent runs, by one thread; a tree is a KiB, and a hundred
    /// pods often act as a handful of accounts.
    trees: Mutex<HashMap<Arc<str>, Weak<gce::Tree>>>,
}

impl Federation {
    pub(crate) fn new(federate: &Federate) -> Self {
        let bare = Arc::new(gce::Tree::new(&node(federate), None));
        Self { pool: federate.workload_pool.as_str().into(), bare, trees: Mutex::default() }
    }

    /// The node's facts without an account.
    pub(crate) fn bare_tree(&self) -> Arc<gce::Tree> {
        self.bare.clone()
    }

    /// What pods see that act as this Google service account, or as themselves.
    pub(crate) fn tree(&self, account: Option<&Arc<str>>) -> Arc<gce::Tree> {
        let email = account.unwrap_or(&self.pool);
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = trees.get(email).and_then(Weak::upgrade) {
            return tree;
        }
        trees.retain(|_, tree| tree.strong_count() > 0);
        let account = gce::Account {
            email: email.to_string(),
            impersonated: account.is_some(),
            scopes: DEFAULT_SCOPES.map(str::to_owned).to_vec(),
        };
        let tree = Arc::new(self.bare.beside(&account));
        trees.insert(email.clone(), Arc::downgrade(&tree));
        tree
    }
}

fn node(federate: &Federate) -> gce::Node {
    gce::Node {
        project_id: federate.project_id.clone(),
        numeric_project_id: federate.numeric_project_id,
        zone: Some(federate.zone.clone()),
        instance_id: Some(federate.instance_id),
        instance_name: Some(federate.instance_name.clone()),
        hostname: Some(federate.hostname.clone()),
        cluster_name: Some(federate.cluster_name.clone()),
        cluster_location: Some(federate.cluster_location.clone()),
        cluster_uid: Some(federate.cluster_uid.clone()).filter(|uid| !uid.is_empty()),
        universe_domain: federate.universe_domain.clone(),
    }
}
