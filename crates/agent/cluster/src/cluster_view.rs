//! Holds the state that the watch thread shares with all readers: the latest snapshot and the state of the watches.

use std::sync::Arc;

use arc_swap::ArcSwap;
use seawall_core::Moment;
use tokio::sync::watch as version;

use crate::index::PodSnapshot;
use crate::related_objects::{RelatedObjectKind, SelectedAnnotationKeys};
use crate::watch_health::{WatchHealth, WatchState};

/// Holds the latest snapshot and the state of the watches. The watch thread writes these values; all threads read them.
#[derive(Debug)]
pub(crate) struct ClusterView {
    pub(crate) snapshot: ArcSwap<PodSnapshot>,
    pub(crate) version_sender: version::Sender<u64>,
    pub(crate) pod_watch: Arc<WatchState>,
    pub(crate) account_watch: Arc<WatchState>,
    /// The watch of namespaces; `None` if no cloud selects annotations of namespaces.
    pub(crate) namespace_watch: Option<Arc<WatchState>>,
}

impl ClusterView {
    pub(crate) fn new(selected: &SelectedAnnotationKeys) -> Self {
        let asked = selected.namespace.as_ref();
        Self {
            snapshot: ArcSwap::default(),
            version_sender: version::Sender::new(0),
            pod_watch: Arc::new(WatchState::new("pods")),
            account_watch: Arc::new(WatchState::new("serviceaccounts")),
            namespace_watch: asked.map(|_| Arc::new(WatchState::new("namespaces"))),
        }
    }

    /// Returns the watches of objects other than pods.
    pub(crate) fn related_watches(&self) -> impl Iterator<Item = (RelatedObjectKind, &Arc<WatchState>)> {
        let namespaces = self.namespace_watch.iter().map(|pulse| (RelatedObjectKind::Namespace, pulse));
        std::iter::once((RelatedObjectKind::ServiceAccount, &self.account_watch)).chain(namespaces)
    }

    pub(crate) fn health_per_watch(&self, now: Moment) -> Vec<WatchHealth> {
        let all = std::iter::once(&self.pod_watch).chain(self.related_watches().map(|(_, pulse)| pulse));
        all.map(|pulse| pulse.health(now)).collect()
    }
}
