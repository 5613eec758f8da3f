//! Keeps what pods may have in step with what the cluster says: the only writer of the [`Roster`].
//!
//! Runs on the cluster thread, beside what hears the API server, once for each snapshot, and whenever another configuration takes
//! the place of the one in force (`changeover`); asks nobody. What a pod that appears may
//! have is each cloud's to say, and each fetches ahead what its libraries ask for first. A pod that is gone, or is told from
//! others by something else than before (attestation says what that is), is closed: its connections end; its leases go with its
//! holder, if it is gone. Pods that attestation could never name are left out and never get anything.

use std::sync::Arc;

use crate::attestation::Sighting;
use seawall_clouds::entitlements::Entitlements;
use seawall_clouds::pod::PodCaller;
use seawall_clouds::{Applicant, Clouds};
use seawall_cluster::{Cluster, PodRecord, Snapshot};
use seawall_core::attestation::Basis;

use super::attester::Attester;
use super::entitlement_swap::{Keeper, Orders, Prepared};
use super::pod_registry::Roster;

/// Follows the cluster.
#[derive(Debug)]
pub(crate) struct Follower {
    cluster: Arc<Cluster>,
    roster: Arc<Roster>,
    clouds: Arc<Clouds>,
    attestation: Attester,
    /// In the order of UIDs, as snapshots are.
    known: Vec<Entry>,
    orders: Orders,
}

/// A pod as it was last seen.
#[derive(Clone, Debug)]
struct Entry {
    record: Arc<PodRecord>,
    caller: Arc<PodCaller>,
}

impl Follower {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        roster: Arc<Roster>,
        clouds: Arc<Clouds>,
        attestation: Attester,
        orders: Orders,
    ) -> Self {
        Self { cluster, roster, clouds, attestation, known: Vec::new(), orders }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let pods = self.cluster.pods();
        let (mut version, mut prepared) = (0, Prepared::default());
        loop {
            tokio::select! {
                snapshot = pods.newer_than(version) => {
                    version = snapshot.version();
                    self.follow(&snapshot);
                }
                Some(order) = self.orders.recv() => {
                    if let Some(clouds) = prepared.obey(order, &self).await {
                        self.clouds = clouds;
                    }
                }
            }
        }
    }

    fn follow(&mut self, snapshot: &Snapshot) {
        let before = std::mem::take(&mut self.known);
        let founded = snapshot.pods().filter_map(|record| Some((record, self.basis(snapshot, record)?)));
        self.known =
            founded.map(|(record, basis)| self.entry(find(&before, record), record, basis)).collect();
        // Published before anybody is closed: a pod whose connections end asks again at once.
        self.roster.publish(self.known.iter().map(|entry| entry.caller.clone()).collect());
        for was in &before {
            match find(&self.known, &was.record) {
                Some(now) if now.caller.id == was.caller.id => {}
                Some(_) => was.caller.connections.close(),
                None => {
                    was.caller.connections.close();
                    // A connection may hold the caller for a moment; the leases go now.
                    was.caller.replace(Entitlements::default());
                }
            }
        }
    }

    fn entry(&self, before: Option<&Entry>, record: &Arc<PodRecord>, basis: Basis) -> Entry {
        let Some(Entry { record: was, caller }) = before else {
            let caller =
                PodCaller::new(record.pod.clone(), basis, self.decide(record, &Entitlements::default()))
                    .into();
            return Entry { record: record.clone(), caller };
        };
        let tells_the_same = was.facts == record.facts;
        let caller = if caller.basis == basis {
            if !tells_the_same {
                caller.replace(self.decide(record, &caller.entitlements()));
            }
            caller.clone()
        } else {
            let before = caller.entitlements();
            let entitlements = if tells_the_same { (**before).clone() } else { self.decide(record, &before) };
            Arc::new(PodCaller::new(record.pod.clone(), basis, entitlements))
        };
        Entry { record: record.clone(), caller }
    }

    /// What it rests on, by this view, that somebody is this pod.
    fn basis(&self, snapshot: &Snapshot, record: &PodRecord) -> Option<Basis> {
        let claims = |ip| snapshot.claimant(ip).is_some_and(|holder| holder.pod.uid == record.pod.uid);
        let (addresses, host_network) = (&*record.addresses, record.host_network);
        self.attestation.basis(&Sighting { addresses, host_network, claims: &claims })
    }

    fn decide(&self, record: &Arc<PodRecord>, before: &Entitlements) -> Entitlements {
        self.decide_of(&self.clouds, record, before)
    }

    /// What a pod may have of each cloud. What it will ask for first is fetched ahead.
    fn decide_of(&self, clouds: &Clouds, record: &Arc<PodRecord>, before: &Entitlements) -> Entitlements {
        let applicant = Applicant {
            pod: &record.pod,
            facts: &record.facts,
            subject: &|| self.cluster.tokens_for(record),
            complainer: self.cluster.reporter().of_pod(record.clone()),
            ahead: true,
        };
        clouds.entitle(&applicant, before)
    }
}

impl Keeper for Follower {
    fn callers(&self) -> Vec<Arc<PodCaller>> {
        self.known.iter().map(|entry| entry.caller.clone()).collect()
    }

    fn entitle(&self, place: usize, clouds: &Clouds, before: &Entitlements) -> Entitlements {
        self.known.get(place).map(|entry| self.decide_of(clouds, &entry.record, before)).unwrap_or_default()
    }

    fn wake(&self) {
        self.roster.publish(self.callers().into());
    }
}

/// What is known of the pod that the record is of.
fn find<'k>(known: &'k [Entry], record: &PodRecord) -> Option<&'k Entry> {
    let at = known.binary_search_by(|entry| entry.record.pod.uid.0.cmp(&record.pod.uid.0)).ok()?;
    known.get(at)
}
