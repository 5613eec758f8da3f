//! Keeps the pods' entitlements up to date with the cluster. Only the reconciler writes the [`PodRegistry`].
//!
//! The reconciler runs on the cluster thread together with the watches. It updates the registry after each snapshot of the
//! node's pods and whenever a new configuration replaces the present configuration ([`super::entitlement_swap`]). It also
//! applies snapshots while the traffic threads switch to a new configuration. It sends no requests. Each cloud decides the
//! entitlements of a new pod and prefetches the credentials that the cloud's client libraries request first. If a pod is gone
//! or its attested addresses changed, the reconciler closes the pod's connections. If the pod is gone, the reconciler also
//! drops the pod's leases. The reconciler does not register pods that attestation can never identify, so these pods never get
//! credentials.

use std::sync::Arc;

use crate::attestation::PodNetwork;
use seawall_clouds::entitlements::Entitlements;
use seawall_clouds::pod::PodEntry;
use seawall_clouds::{Clouds, EntitlementRequest};
use seawall_cluster::{ClusterClient, PodRecord, PodSnapshot};
use seawall_core::PodUid;
use seawall_core::attestation::AttestedAddresses;

use super::cluster_attester::ClusterAttester;
use super::entitlement_swap::{EntitlementStore, EntitlementSwapper, SwapCommandReceiver};
use super::pod_registry::PodRegistry;

/// Updates the registry after each snapshot of the node's pods.
#[derive(Debug)]
pub(crate) struct PodReconciler {
    cluster: Arc<ClusterClient>,
    roster: Arc<PodRegistry>,
    clouds: Arc<Clouds>,
    attestation: ClusterAttester,
    /// The pods of the last snapshot, sorted by UID as in the snapshot.
    known: Vec<KnownPod>,
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
    ) -> Self {
        Self { cluster, roster, clouds, attestation, known: Vec::new() }
    }

    /// Applies snapshots and executes the commands that arrive, until the future is dropped.
    pub(crate) async fn run(mut self, commands: SwapCommandReceiver) {
        let mut swapper = EntitlementSwapper::new(commands);
        let pods = self.cluster.pods();
        let mut version = 0;
        loop {
            tokio::select! {
                // Apply snapshots first, so that the end of a swap gives no entitlements to a pod that is known to be gone.
                biased;
                snapshot = pods.wait_for_newer(version) => {
                    version = snapshot.version();
                    self.follow(&snapshot, &mut swapper);
                }
                Some(step) = swapper.next_step() => {
                    if let Some(clouds) = swapper.execute_step(step, &self) {
                        self.clouds = clouds;
                    }
                }
            }
        }
    }

    fn follow(&mut self, snapshot: &PodSnapshot, swapper: &mut EntitlementSwapper) {
        let before = std::mem::take(&mut self.known);
        let founded = snapshot.pods().filter_map(|record| Some((record, self.basis(snapshot, record)?)));
        self.known = founded
            .map(|(record, basis)| self.entry(find(&before, &record.pod.uid), record, &basis, swapper))
            .collect();
        swapper.retain_pods(|uid| find(&self.known, uid).is_some());
        // Publish the new entries before closing connections. A client whose connection is closed connects again at once, and
        // the resolver must then find the pod's new entry.
        self.roster.publish(self.known.iter().map(|entry| entry.caller.clone()).collect());
        for was in &before {
            match find(&self.known, &was.record.pod.uid) {
                Some(now) if now.caller.id == was.caller.id => {}
                Some(_) => was.caller.connection_counter.close(),
                None => {
                    was.caller.connection_counter.close();
                    // A connection that closes can keep the pod's entry alive for a moment longer, so drop the pod's leases
                    // now.
                    was.caller.replace_entitlements(Entitlements::default());
                }
            }
        }
    }

    fn entry(
        &self,
        before: Option<&KnownPod>,
        record: &Arc<PodRecord>,
        basis: &AttestedAddresses,
        swapper: &mut EntitlementSwapper,
    ) -> KnownPod {
        let mut decide = |before: &Entitlements| self.decide(record, before, swapper);
        let create = |entitlements| {
            let entry = PodEntry::new(record.pod.clone(), basis.clone(), entitlements);
            Arc::new(entry.with_pod_facts(record.credential_variables, record.uses_host_network))
        };
        let Some(KnownPod { record: was, caller }) = before else {
            let caller = create(decide(&Entitlements::default()));
            return KnownPod { record: record.clone(), caller };
        };
        let tells_the_same = was.annotations == record.annotations;
        let caller = if caller.attested_addresses == *basis {
            if !tells_the_same {
                caller.replace_entitlements(decide(&caller.entitlements()));
            }
            caller.clone()
        } else {
            let before = caller.entitlements();
            let entitlements = if tells_the_same { (**before).clone() } else { decide(&before) };
            create(entitlements)
        };
        KnownPod { record: record.clone(), caller }
    }

    /// Returns the addresses by which this pod is attested in this snapshot, or `None` if the pod cannot be attested.
    fn basis(&self, snapshot: &PodSnapshot, record: &PodRecord) -> Option<AttestedAddresses> {
        let claims = |ip| snapshot.claimant(ip).is_some_and(|holder| holder.pod.uid == record.pod.uid);
        let (addresses, host_network) = (&*record.addresses, record.uses_host_network);
        self.attestation.attested_addresses(&PodNetwork {
            addresses,
            uses_host_network: host_network,
            is_only_claimant_of: &claims,
        })
    }

    fn decide(
        &self,
        record: &Arc<PodRecord>,
        before: &Entitlements,
        swapper: &mut EntitlementSwapper,
    ) -> Entitlements {
        let decide = |clouds: &Clouds, before: &Entitlements| self.decide_of(clouds, record, before);
        swapper.decide_entitlements(&record.pod.uid, &self.clouds, before, decide)
    }

    /// Lets each cloud decide the pod's entitlements and prefetch the credentials that the pod will request first.
    fn decide_of(&self, clouds: &Clouds, record: &Arc<PodRecord>, before: &Entitlements) -> Entitlements {
        let applicant = EntitlementRequest {
            pod: &record.pod,
            annotations: &record.annotations,
            create_subject_token_source: &|| self.cluster.tokens_for(record),
            event_recorder: self.cluster.event_reporter().for_pod(record.clone()),
            should_prefetch: true,
        };
        clouds.decide_entitlements(&applicant, before)
    }
}

impl EntitlementStore for PodReconciler {
    fn pods(&self) -> Vec<Arc<PodEntry>> {
        self.known.iter().map(|entry| entry.caller.clone()).collect()
    }

    fn entitle(&self, place: usize, clouds: &Clouds, before: &Entitlements) -> Entitlements {
        self.known.get(place).map(|entry| self.decide_of(clouds, &entry.record, before)).unwrap_or_default()
    }

    fn wake(&self) {
        self.roster.publish(self.pods().into());
    }
}

fn find<'k>(known: &'k [KnownPod], uid: &PodUid) -> Option<&'k KnownPod> {
    let at = known.binary_search_by(|entry| entry.record.pod.uid.0.cmp(&uid.0)).ok()?;
    known.get(at)
}

#[cfg(test)]
mod tests;
