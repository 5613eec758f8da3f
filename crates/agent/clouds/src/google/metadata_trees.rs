//! The metadata trees in `federate` mode: the node's facts, and one tree per account. All pods with the same account share a
//! tree.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use seawall_protocols::google;
use seawall_protocols::google::node_metadata::DEFAULT_ACCOUNT_SCOPES;

/// The metadata trees of the node, and the facts that they share.
#[derive(Debug)]
pub(super) struct MetadataTreeCache {
    /// The workload pool. As on GKE, pods without a Google service account see this text instead of an e-mail address.
    pool: Arc<str>,
    /// The tree without an account. Trees with an account share its node facts.
    bare: Arc<google::MetadataTree>,
    /// The scopes that the tree of every account lists.
    scopes: google::AccountScopes,
    /// The trees with an account, by e-mail address.
    ///
    /// The map needs a lock because the agent adds trees while it runs. Pods share trees, because a tree takes one KiB and a
    /// hundred pods often use only a few accounts.
    of_accounts: Mutex<HashMap<Arc<str>, Weak<google::MetadataTree>>>,
}

impl MetadataTreeCache {
    pub(super) fn new(node: &google::NodeMetadata, pool: &str) -> Self {
        let (bare, scopes) = (
            google::MetadataTree::for_workload(node, None).into(),
            google::AccountScopes::new(&DEFAULT_ACCOUNT_SCOPES),
        );
        Self { pool: pool.into(), bare, scopes, of_accounts: Mutex::default() }
    }

    /// Returns the tree with the node's facts and without an account.
    pub(super) fn tree_without_account(&self) -> Arc<google::MetadataTree> {
        self.bare.clone()
    }

    /// Returns the tree for pods that impersonate this Google service account, or the tree for pods with their own identity if
    /// `account` is `None`.
    pub(super) fn tree_for_account(&self, account: Option<&Arc<str>>) -> Arc<google::MetadataTree> {
        let email = account.unwrap_or(&self.pool);
        let mut trees = self.of_accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = trees.get(email).and_then(Weak::upgrade) {
            return tree;
        }
        trees.retain(|_, tree| tree.strong_count() > 0);
        let account = google::GoogleIdentity {
            email_or_workload_pool: email.to_string(),
            is_impersonated: account.is_some(),
            scopes: self.scopes.clone(),
        };
        let tree = Arc::new(self.bare.with_account(&account));
        trees.insert(email.clone(), Arc::downgrade(&tree));
        tree
    }
}
