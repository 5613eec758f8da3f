//! The pods that are known, by their UIDs.
//!
//! What a pod may have are its [entitlements](seawall_clouds::entitlements::Entitlements), which `follow` replaces as the cluster changes. Refuses to know how somebody
//! is told to be a pod: that is attestation's, and here stands only its [basis](seawall_core::attestation::AttestedAddresses), unread. A pod that is gone, or whose
//! basis is another, is closed for good, and its next connection is decided anew. Read by `resolver` and the dialects.

use std::sync::Arc;

use arc_swap::ArcSwap;
use seawall_clouds::pod::PodEntry;
use seawall_core::PodUid;
use tokio::sync::watch;

/// The pods. One writer; readers take no lock.
#[derive(Debug, Default)]
pub(crate) struct PodRegistry {
    /// In the order of UIDs: a map of the same is three times as large, and there are two of them whenever one replaces the other.
    pods: ArcSwap<Box<[Arc<PodEntry>]>>,
    versions: watch::Sender<u64>,
}

impl PodRegistry {
    /// These, for good.
    pub(crate) fn fixed(pods: impl Iterator<Item = PodEntry>) -> Arc<Self> {
        let mut pods: Box<[_]> = pods.map(Arc::new).collect();
        pods.sort_unstable_by(|one, other| one.pod.uid.cmp(&other.pod.uid));
        let roster = Self::default();
        roster.publish(pods);
        Arc::new(roster)
    }

    /// Everybody in it.
    pub(crate) fn pods(&self) -> Vec<Arc<PodEntry>> {
        self.pods.load().to_vec()
    }

    /// Replaces everybody by these, in the order of their UIDs; wakes requests that wait for a pod.
    pub(crate) fn publish(&self, pods: Box<[Arc<PodEntry>]>) {
        debug_assert!(pods.is_sorted_by_key(|caller| caller.pod.uid.0.clone()), "looked up by bisection");
        self.pods.store(Arc::new(pods));
        self.versions.send_modify(|version| *version += 1);
    }

    /// Told of each [`Self::publish`].
    pub(crate) fn subscribe_versions(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// The pod with this UID.
    pub(crate) fn find(&self, uid: &PodUid) -> Option<Arc<PodEntry>> {
        let pods = self.pods.load();
        let at = pods.binary_search_by(|caller| caller.pod.uid.0.cmp(&uid.0)).ok()?;
        pods.get(at).cloned()
    }
}
