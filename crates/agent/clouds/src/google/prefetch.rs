//! A pod's first credential of Google's: an access token for the scopes that its libraries ask for if nobody names others.

use std::sync::{Arc, Weak};

use seawall_broker::google::{Holder, WantRef};
use seawall_core::events::Complainer;
use seawall_protocols::google::Tree;

use super::refusals;
use crate::{pod_events, prefetch};

/// A first credential to be fetched.
#[derive(Debug)]
pub(super) struct First {
    tree: Arc<Tree>,
    /// Weak: a pod that is gone before its turn is let go.
    holder: Weak<Holder>,
    complainer: Complainer,
}

impl First {
    pub(super) fn new(tree: &Arc<Tree>, holder: &Arc<Holder>, complainer: &Complainer) -> Self {
        Self { tree: tree.clone(), holder: Arc::downgrade(holder), complainer: complainer.clone() }
    }
}

impl prefetch::First for First {
    fn is_gone(&self) -> bool {
        self.holder.strong_count() == 0
    }

    async fn fetch(self) {
        let Some(holder) = self.holder.upgrade() else { return };
        let want = WantRef::AccessToken { scopes: self.tree.default_scopes() };
        if let Err(unavailable) = holder.lease(want).await {
            pod_events::unavailable(&self.complainer, &unavailable, &refusals::WORDS.of(&unavailable));
        }
    }
}
