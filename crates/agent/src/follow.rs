//! Keeps what pods may have in step with what the cluster says: the only writer of the [`Roster`].
//!
//! Runs on the cluster thread, beside what hears the API server, once for each snapshot; asks nobody. What a pod that appears may
//! have is each cloud's to say, and each fetches ahead what its libraries ask for first. A pod that is gone, or no longer alone
//! at one of its addresses, is closed: its connections end, its leases go with its holder. Pods on the node's own network
//! have no address that tells them apart and never get anything.

use std::net::IpAddr;
use std::sync::Arc;

use seawall_cluster::{Cluster, PodRecord, Snapshot};

use crate::callers::{PodCaller, Roster};
use crate::cloud::{Applicant, Clouds, Entitlements};
use crate::complain::Complainer;

/// Follows the cluster.
#[derive(Debug)]
pub(crate) struct Follower {
    cluster: Arc<Cluster>,
    roster: Arc<Roster>,
    clouds: Arc<Clouds>,
    /// In the order of UIDs, as snapshots are.
    known: Vec<Entry>,
}

/// A pod as it was last seen.
#[derive(Clone, Debug)]
struct Entry {
    record: Arc<PodRecord>,
    caller: Arc<PodCaller>,
}

impl Follower {
    pub(crate) fn new(cluster: Arc<Cluster>, roster: Arc<Roster>, clouds: Arc<Clouds>) -> Self {
        Self { cluster, roster, clouds, known: Vec::new() }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let pods = self.cluster.pods();
        let mut version = 0;
        loop {
            let snapshot = pods.newer_than(version).await;
            version = snapshot.version();
            self.follow(&snapshot);
        }
    }

    fn follow(&mut self, snapshot: &Snapshot) {
        let before = std::mem::take(&mut self.known);
        let own = snapshot.pods().filter(|record| !record.host_network);
        self.known = own
            .map(|record| self.entry(find(&before, record), record, own_addresses(snapshot, record)))
            .collect();
        // Published before anybody is closed: a pod whose connections end asks again at once.
        self.roster.publish(self.known.iter().map(|entry| entry.caller.clone()).collect());
        for was in &before {
            match find(&self.known, &was.record) {
                Some(now) if Arc::ptr_eq(&now.caller, &was.caller) => {}
                Some(_) => was.caller.connections.close(),
                None => {
                    was.caller.connections.close();
                    // A connection may hold the caller for a moment; the leases go now.
                    was.caller.replace(Entitlements::default());
                }
            }
        }
    }

    fn entry(&self, before: Option<&Entry>, record: &Arc<PodRecord>, addresses: Box<[IpAddr]>) -> Entry {
        let Some(Entry { record: was, caller }) = before else {
            let caller = PodCaller::new(record.pod.clone(), addresses, self.entitle(record)).into();
            return Entry { record: record.clone(), caller };
        };
        let tells_the_same = was.facts == record.facts;
        let caller = if caller.addresses == addresses {
            if !tells_the_same {
                caller.replace(self.entitle(record));
            }
            caller.clone()
        } else {
            let entitlements =
                if tells_the_same { (**caller.entitlements()).clone() } else { self.entitle(record) };
            Arc::new(PodCaller::new(record.pod.clone(), addresses, entitlements))
        };
        Entry { record: record.clone(), caller }
    }

    /// What a pod may have of each cloud. What it will ask for first is fetched ahead.
    fn entitle(&self, record: &Arc<PodRecord>) -> Entitlements {
        self.clouds.entitle(&Applicant {
            pod: &record.pod,
            facts: &record.facts,
            subject: &|| self.cluster.tokens_for(record),
            complainer: Complainer::new(self.cluster.reporter(), record.clone()),
            ahead: true,
        })
    }
}

/// What is known of the pod that the record is of.
fn find<'k>(known: &'k [Entry], record: &PodRecord) -> Option<&'k Entry> {
    let at = known.binary_search_by(|entry| entry.record.pod.uid.0.cmp(&record.pod.uid.0)).ok()?;
    known.get(at)
}

/// The addresses that this pod alone claims. Not only those at which it would be named now: while another pod waits for an
/// address, a pod that shuts down is not named on new connections, which is decided where they are accepted; those that it has
/// were decided by views in which the address was its own, and end with it or when somebody else claims the address.
fn own_addresses(snapshot: &Snapshot, record: &PodRecord) -> Box<[IpAddr]> {
    let is_own =
        |ip: &&IpAddr| snapshot.claimant(**ip).is_some_and(|holder| holder.pod.uid == record.pod.uid);
    record.addresses.iter().filter(is_own).copied().collect()
}
