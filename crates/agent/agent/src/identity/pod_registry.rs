//! What pods may have: the pods that are known, by their UIDs.
//!
//! What a pod may have are its [`Entitlements`], which `follow` replaces as the cluster changes. Refuses to know how somebody
//! is told to be a pod: that is attestation's, and here stands only its [`Basis`], unread. A pod that is gone, or whose
//! basis is another, is closed for good, and its next connection is decided anew. Read by `callers` and the dialects.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use seawall_core::attestation::Basis;
use seawall_core::cloud::CloudName;
use seawall_core::{Pod, PodUid};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};

use crate::clouds::entitlements::Entitlements;
use crate::observe::excessive_fetch::Fetches;
use crate::server::client::ClientId;
use crate::server::connection_table::Cap;

/// A pod as connections know it.
#[derive(Debug)]
pub(crate) struct PodCaller {
    /// By this the server knows it.
    pub(crate) id: ClientId,
    pub(crate) pod: Pod,
    /// What it rests on that somebody is this pod. Never changes: one that rests on something else is another caller.
    pub(crate) basis: Basis,
    entitlements: ArcSwap<Entitlements>,
    /// Tells long polls that they were replaced. No channel: one of those is larger than all else here.
    replaced: Notify,
    /// Closed when the pod no longer has all of its basis.
    pub(crate) connections: Arc<Cap>,
    pub(crate) long_polls: Arc<Cap>,
    pub(crate) fetches: Fetches,
}

impl PodCaller {
    pub(crate) fn new(pod: Pod, basis: Basis, entitlements: Entitlements) -> Self {
        Self {
            id: ClientId::unique(),
            pod,
            basis,
            entitlements: ArcSwap::from_pointee(entitlements),
            replaced: Notify::new(),
            connections: Arc::default(),
            long_polls: Arc::default(),
            fetches: Fetches::default(),
        }
    }

    /// What it may have now: one atomic read.
    pub(crate) fn entitlements(&self) -> Guard<Arc<Entitlements>> {
        self.entitlements.load()
    }

    /// Gives it others and wakes whoever waits for a change.
    pub(crate) fn replace(&self, entitlements: Entitlements) {
        self.entitlements.store(Arc::new(entitlements));
        self.replaced.notify_waiters();
    }

    /// Returns once it is decided what it may have of this cloud.
    pub(crate) async fn decided(&self, cloud: CloudName) {
        loop {
            let change = self.change();
            if !self.entitlements().is_pending(cloud) {
                return;
            }
            change.await;
        }
    }

    /// The next change of what it may have after this call, whether or not it is being waited for by then.
    pub(crate) fn change(&self) -> Notified<'_> {
        self.replaced.notified()
    }
}

/// The pods. One writer; readers take no lock.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// In the order of UIDs: a map of the same is three times as large, and there are two of them whenever one replaces the other.
    pods: ArcSwap<Box<[Arc<PodCaller>]>>,
    versions: watch::Sender<u64>,
}

impl Roster {
    /// These, for good.
    pub(crate) fn fixed(pods: impl Iterator<Item = PodCaller>) -> Arc<Self> {
        let mut pods: Box<[_]> = pods.map(Arc::new).collect();
        pods.sort_unstable_by(|one, other| one.pod.uid.cmp(&other.pod.uid));
        let roster = Self::default();
        roster.publish(pods);
        Arc::new(roster)
    }

    /// Everybody in it.
    pub(crate) fn pods(&self) -> Vec<Arc<PodCaller>> {
        self.pods.load().to_vec()
    }

    /// Replaces everybody by these, in the order of their UIDs; wakes requests that wait for a pod.
    pub(crate) fn publish(&self, pods: Box<[Arc<PodCaller>]>) {
        debug_assert!(pods.is_sorted_by_key(|caller| caller.pod.uid.0.clone()), "looked up by bisection");
        self.pods.store(Arc::new(pods));
        self.versions.send_modify(|version| *version += 1);
    }

    /// Told of each [`Self::publish`].
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// The pod with this UID.
    pub(crate) fn find(&self, uid: &PodUid) -> Option<Arc<PodCaller>> {
        let pods = self.pods.load();
        let at = pods.binary_search_by(|caller| caller.pod.uid.0.cmp(&uid.0)).ok()?;
        pods.get(at).cloned()
    }
}
