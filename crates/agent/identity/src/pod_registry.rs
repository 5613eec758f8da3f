//! Holds the known pods, by their UIDs.
//!
//! Each pod has [entitlements](seawall_clouds::entitlements::Entitlements): what it may get from each cloud.
//! [`crate::reconcile`] replaces the entitlements when a pod, its annotations or the configuration changes. The registry
//! contains no attestation code. It only stores each pod's [basis](seawall_core::attestation::AttestedAddresses): the addresses
//! by which the pod was attested. If a pod is deleted or its basis changes, the reconciler closes all connections of the pod's
//! entry, and no new connection uses that entry.

use std::sync::Arc;

use arc_swap::ArcSwap;
use seawall_clouds::pod::PodEntry;
use seawall_core::PodUid;
use tokio::sync::watch;

/// Holds the known pods. Only one task replaces the pods, and readers take no lock.
#[derive(Debug, Default)]
pub(crate) struct PodRegistry {
    /// The pods, sorted by UID. A map would need three times the memory. During each replacement, the old and the new pods are
    /// in memory at the same time.
    pods: ArcSwap<Box<[Arc<PodEntry>]>>,
    versions: watch::Sender<u64>,
}

impl PodRegistry {
    /// Creates a registry whose set of pods does not change.
    pub(crate) fn with_fixed_pods(pods: impl Iterator<Item = PodEntry>) -> Arc<Self> {
        let mut pods: Box<[_]> = pods.map(Arc::new).collect();
        pods.sort_unstable_by(|one, other| one.pod.uid.cmp(&other.pod.uid));
        let roster = Self::default();
        roster.publish(pods);
        Arc::new(roster)
    }

    /// Returns all pods, sorted by UID.
    pub(crate) fn pods(&self) -> Vec<Arc<PodEntry>> {
        self.pods.load().to_vec()
    }

    /// Replaces all pods with the given pods, which must be sorted by UID. Wakes requests that wait until their pod is
    /// identified or until the pod's entitlements are decided.
    pub(crate) fn publish(&self, pods: Box<[Arc<PodEntry>]>) {
        debug_assert!(
            pods.is_sorted_by_key(|caller| caller.pod.uid.0.clone()),
            "`find` needs pods that are sorted by UID"
        );
        self.pods.store(Arc::new(pods));
        self.versions.send_modify(|version| *version += 1);
    }

    /// Returns a receiver that is notified of each call of [`Self::publish`].
    pub(crate) fn subscribe_versions(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// Returns the pod with this UID.
    pub(crate) fn find(&self, uid: &PodUid) -> Option<Arc<PodEntry>> {
        let pods = self.pods.load();
        let at = pods.binary_search_by(|caller| caller.pod.uid.0.cmp(&uid.0)).ok()?;
        pods.get(at).cloned()
    }
}
