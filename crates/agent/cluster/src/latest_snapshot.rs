//! What the writer of the view writes and everybody reads: the latest snapshot, and how the watches do that it is made of.

use std::sync::Arc;

use arc_swap::ArcSwap;
use seawall_core::Moment;
use tokio::sync::watch as version;

use crate::index::Snapshot;
use crate::related_objects::{Kind, Selected};
use crate::watch_health::{Pulse, WatchHealth};

/// What the writer writes and everybody reads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) snapshot: ArcSwap<Snapshot>,
    pub(crate) versions: version::Sender<u64>,
    pub(crate) pods: Arc<Pulse>,
    pub(crate) accounts: Arc<Pulse>,
    /// Only if somebody asks about them.
    pub(crate) namespaces: Option<Arc<Pulse>>,
}

impl Shared {
    pub(crate) fn new(selected: &Selected) -> Self {
        let asked = selected.namespace.as_ref();
        Self {
            snapshot: ArcSwap::default(),
            versions: version::Sender::new(0),
            pods: Arc::new(Pulse::new("pods")),
            accounts: Arc::new(Pulse::new("serviceaccounts")),
            namespaces: asked.map(|_| Arc::new(Pulse::new("namespaces"))),
        }
    }

    /// The watches beside that of pods.
    pub(crate) fn beside(&self) -> impl Iterator<Item = (Kind, &Arc<Pulse>)> {
        let namespaces = self.namespaces.iter().map(|pulse| (Kind::Namespace, pulse));
        std::iter::once((Kind::ServiceAccount, &self.accounts)).chain(namespaces)
    }

    pub(crate) fn health(&self, now: Moment) -> Vec<WatchHealth> {
        let all = std::iter::once(&self.pods).chain(self.beside().map(|(_, pulse)| pulse));
        all.map(|pulse| pulse.health(now)).collect()
    }
}
