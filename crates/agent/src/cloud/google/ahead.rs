//! First credentials, fetched before a pod asks: its first container's first request is then a read of memory.

use std::sync::{Arc, Weak};

use seawall_broker::google::{Holder, WantRef};
use seawall_cloud::gce::Tree;
use tokio::sync::{Semaphore, mpsc};

use super::refusals;
use crate::complain::Complainer;

/// First credentials that are fetched ahead at once. The broker's limiter bounds the calls; this bounds how many of its
/// turns are waited for by pods that have not asked yet.
const AT_ONCE: usize = 16;

/// First credentials that wait for that. More pods are not on a node; what is beyond is left to the pod's own request.
pub(super) const WAITING: usize = 4096;

/// A first credential to be fetched.
#[derive(Debug)]
pub(super) struct Ahead {
    tree: Arc<Tree>,
    /// Weak: a pod that is gone before its turn is let go.
    holder: Weak<Holder>,
    complainer: Complainer,
}

impl Ahead {
    pub(super) fn new(tree: &Arc<Tree>, holder: &Arc<Holder>, complainer: &Complainer) -> Self {
        Self { tree: tree.clone(), holder: Arc::downgrade(holder), complainer: complainer.clone() }
    }

    fn is_gone(&self) -> bool {
        self.holder.strong_count() == 0
    }

    /// Fetches the credential that every library asks for first. Once: if it fails the pod's own request is the next try.
    async fn fetch(self) {
        let Some(holder) = self.holder.upgrade() else { return };
        let want = WantRef::AccessToken { scopes: self.tree.default_scopes() };
        if let Err(unavailable) = holder.lease(want).await {
            self.complainer.unavailable(&unavailable, &refusals::of(&unavailable));
        }
    }
}

/// Fetches for one pod after another, [`AT_ONCE`] at once. A task for each pod that waits would be the largest thing that a pod
/// costs when many start together. Ends with what sends.
pub(super) async fn fetch_all(mut waiting: mpsc::Receiver<Ahead>) {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    while let Some(ahead) = waiting.recv().await {
        if ahead.is_gone() {
            continue;
        }
        let Ok(turn) = turns.clone().acquire_owned().await else { return };
        tokio::spawn(async move {
            ahead.fetch().await;
            drop(turn);
        });
    }
}
