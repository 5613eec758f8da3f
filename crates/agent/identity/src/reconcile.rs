//! Updates the pods' entitlements when the cluster changes. This module is the only writer of the [`PodRegistry`].
//!
//! The reconciler runs on the cluster thread together with the watches. It runs once for each snapshot, and whenever the
//! configuration changes ([`super::entitlement_swap`]). It sends no requests. Each cloud decides the entitlements of a new pod
//! and prefetches what the pod's client libraries request first. The reconciler closes a pod that is gone or whose attested
//! addresses changed: the pod's connections end. It also drops the leases of a pod that is gone. It ignores pods that attestation
//! can never name.

use std::sync::Arc;

use crate::attestation::PodNetwork;
use seawall_clouds::entitlements::Entitlements;
use seawall_clouds::pod::PodEntry;
use seawall_clouds::{Clouds, EntitlementRequest};
use seawall_cluster::{ClusterClient, PodRecord, PodSnapshot};
use seawall_core::attestation::AttestedAddresses;

use super::cluster_attester::ClusterAttester;
use super::entitlement_swap::{EntitlementStore, StagedEntitlements, SwapCommands};
use super::pod_registry::PodRegistry;

/// Follows the cluster's snapshots and updates the registry.
#[derive(Debug)]
pub(crate) struct PodReconciler {
    cluster: Arc<ClusterClient>,
    roster: Arc<PodRegistry>,
    clouds: Arc<Clouds>,
    attestation: ClusterAttester,
    /// The known pods, sorted by UID like the snapshots.
    known: Vec<KnownPod>,
    orders: SwapCommands,
}

/// A pod as the last snapshot showed it.
#[derive(Clone, Debug)]
struct KnownPod {
    record: Arc<PodRecord>,
    caller: Arc<PodEntry>,
}

impl PodReconciler {
    pub(crate) fn new(
        cluster: Arc<ClusterClient>,
        roster: Arc<PodRegistry>,
        clouds: Arc<Clouds>,
        attestation: ClusterAttester,
        orders: SwapCommands,
    ) -> Self {
        Self { cluster, roster, clouds, attestation, known: Vec::new(), orders }
    }

    /// Runs until the future is dropped.
    pub(crate) async fn run(mut self) {
        let pods = self.cluster.pods();
        let (mut version, mut prepared) = (0, StagedEntitlements::default());
        loop {
            tokio::select! {
                snapshot = pods.newer_than(version) => {
                    version = snapshot.version();
                    self.follow(&snapshot);
                }
                Some(order) = self.orders.recv() => {
                    if let Some(clouds) = prepared.execute(order, &self).await {
                        self.clouds = clouds;
                    }
                }
            }
        }
    }

    fn follow(&mut self, snapshot: &PodSnapshot) {
        let before = std::mem::take(&mut self.known);
        let founded = snapshot.pods().filter_map(|record| Some((record, self.basis(snapshot, record)?)));
        self.known =
            founded.map(|(record, basis)| self.entry(find(&before, record), record, basis)).collect();
        // Publish first, and close afterwards: a client whose connection ends connects again at once.
        self.roster.publish(self.known.iter().map(|entry| entry.caller.clone()).collect());
        for was in &before {
            match find(&self.known, &was.record) {
                Some(now) if now.caller.id == was.caller.id => {}
                Some(_) => was.caller.connections.close(),
                None => {
                    was.caller.connections.close();
                    // A connection can still hold the pod entry for a moment. Drop the leases now.
                    was.caller.replace_entitlements(Entitlements::default());
                }
            }
        }
    }

    fn entry(
        &self,
        before: Option<&KnownPod>,
        record: &Arc<PodRecord>,
        basis: AttestedAddresses,
    ) -> KnownPod {
        let Some(KnownPod { record: was, caller }) = before else {
            let caller =
                PodEntry::new(record.pod.clone(), basis, self.decide(record, &Entitlements::default()))
                    .into();
            return KnownPod { record: record.clone(), caller };
        };
        let tells_the_same = was.annotations == record.annotations;
        let caller = if caller.basis == basis {
            if !tells_the_same {
                caller.replace_entitlements(self.decide(record, &caller.entitlements()));
            }
            caller.clone()
        } else {
            let before = caller.entitlements();
            let entitlements = if tells_the_same { (**before).clone() } else { self.decide(record, &before) };
            Arc::new(PodEntry::new(record.pod.clone(), basis, entitlements))
        };
        KnownPod { record: record.clone(), caller }
    }

    /// Returns the addresses by which this pod is attested in this view; `None` if it cannot be attested.
    fn basis(&self, snapshot: &PodSnapshot, record: &PodRecord) -> Option<AttestedAddresses> {
        let claims = |ip| snapshot.claimant(ip).is_some_and(|holder| holder.pod.uid == record.pod.uid);
        let (addresses, host_network) = (&*record.addresses, record.host_network);
        self.attestation.attested_addresses(&PodNetwork { addresses, host_network, claims: &claims })
    }

    fn decide(&self, record: &Arc<PodRecord>, before: &Entitlements) -> Entitlements {
        self.decide_of(&self.clouds, record, before)
    }

    /// Decides a pod's entitlements at each cloud, and prefetches what the pod will request first.
    fn decide_of(&self, clouds: &Clouds, record: &Arc<PodRecord>, before: &Entitlements) -> Entitlements {
        let applicant = EntitlementRequest {
            pod: &record.pod,
            facts: &record.annotations,
            subject_tokens: &|| self.cluster.tokens_for(record),
            event_recorder: self.cluster.event_reporter().for_pod(record.clone()),
            prefetch: true,
        };
        clouds.entitle(&applicant, before)
    }
}

impl EntitlementStore for PodReconciler {
    fn callers(&self) -> Vec<Arc<PodEntry>> {
        self.known.iter().map(|entry| entry.caller.clone()).collect()
    }

    fn entitle(&self, place: usize, clouds: &Clouds, before: &Entitlements) -> Entitlements {
        self.known.get(place).map(|entry| self.decide_of(clouds, &entry.record, before)).unwrap_or_default()
    }

    fn wake(&self) {
        self.roster.publish(self.callers().into());
    }
}

/// Returns the known pod with the UID of this record.
fn find<'k>(known: &'k [KnownPod], record: &PodRecord) -> Option<&'k KnownPod> {
    let at = known.binary_search_by(|entry| entry.record.pod.uid.0.cmp(&record.pod.uid.0)).ok()?;
    known.get(at)
}
