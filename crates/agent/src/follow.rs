//! Keeps what pods may have in step with what the cluster says: the only writer of the [`Roster`].
//!
//! Runs on the cluster thread, beside what hears the API server, once for each snapshot; asks nobody. A pod that appears is given a standing and its first credential is
//! fetched ahead, so that its first container's first request is a read of memory. A pod that is gone, or no longer alone
//! at one of its addresses, is closed: its connections end, its leases go with its holder. Pods on the node's own network
//! have no address that tells them apart and never get a standing.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use seawall_broker::google::{Broker, Holder, HolderSpec, WantRef};
use seawall_cloud::{Refusal, gce};
use seawall_cluster::{Account, Cluster, Complaint, PodRecord, Snapshot};
use seawall_core::ServiceAccount;
use tokio::sync::{Semaphore, mpsc};

use crate::callers::{Federated, PodCaller, Roster, Standing};
use crate::complain::Complainer;
use crate::federation::Federation;
use crate::later;

/// First credentials that are fetched ahead at once. The broker's limiter bounds the calls; this bounds how many of its
/// turns are waited for by pods that have not asked yet.
const AHEAD: usize = 16;

const MALFORMED: Refusal = Refusal::new(
    403,
    "malformed_account",
    "The annotation iam.gke.io/gcp-service-account of this pod's ServiceAccount is not a Google service account's e-mail.",
);

const NO_SERVICE_ACCOUNT: Refusal =
    Refusal::new(403, "no_service_account", "This pod's Kubernetes ServiceAccount does not exist.");

/// What the agent's configuration gives to pods.
#[derive(Debug)]
pub(crate) enum Terms {
    /// All share the real metadata server.
    Conceal,
    /// Each has its own, but those that `passthrough` names.
    Federate { broker: Broker, federation: Box<Federation>, passthrough: HashSet<ServiceAccount> },
}

/// Follows the cluster.
#[derive(Debug)]
pub(crate) struct Follower {
    cluster: Arc<Cluster>,
    roster: Arc<Roster>,
    terms: Terms,
    /// In the order of UIDs, as snapshots are.
    known: Vec<Entry>,
    ahead: mpsc::UnboundedSender<Ahead>,
}

/// A pod as it was last seen.
#[derive(Clone, Debug)]
struct Entry {
    record: Arc<PodRecord>,
    caller: Arc<PodCaller>,
}

impl Follower {
    /// The follower, for the cluster thread, and what it lets fetch ahead, for the control thread.
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        roster: Arc<Roster>,
        terms: Terms,
    ) -> (Self, impl Future<Output = ()>) {
        // As long as there are pods that wait for their turn.
        let (ahead, waiting) = mpsc::unbounded_channel();
        (Self { cluster, roster, terms, known: Vec::new(), ahead }, fetch_all(waiting))
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
                    was.caller.replace(Standing::Pending);
                }
            }
        }
    }

    fn entry(&self, before: Option<&Entry>, record: &Arc<PodRecord>, addresses: Box<[IpAddr]>) -> Entry {
        let Some(Entry { record: was, caller }) = before else {
            let standing = self.standing(record);
            let caller = Arc::new(PodCaller::new(record.pod.clone(), addresses, standing));
            return Entry { record: record.clone(), caller };
        };
        let is_same_account = was.account == record.account;
        let caller = if caller.addresses == addresses {
            if !is_same_account {
                caller.replace(self.standing(record));
            }
            caller.clone()
        } else {
            let standing =
                if is_same_account { (**caller.standing()).clone() } else { self.standing(record) };
            Arc::new(PodCaller::new(record.pod.clone(), addresses, standing))
        };
        Entry { record: record.clone(), caller }
    }

    fn standing(&self, record: &Arc<PodRecord>) -> Standing {
        let Terms::Federate { broker, federation, passthrough } = &self.terms else {
            return Standing::Passthrough;
        };
        if passthrough.contains(&record.pod.service_account) {
            return Standing::Passthrough;
        }
        let complainer = Complainer::new(self.cluster.reporter(), record.clone());
        let refused = |complaint, refusal: Refusal| {
            complainer.refused(complaint, &refusal);
            Standing::Refused(federation.bare_tree(), refusal)
        };
        let account = match &record.account {
            Account::Pending => return Standing::Pending,
            Account::Missing => return refused(Complaint::NoToken, NO_SERVICE_ACCOUNT),
            Account::Malformed { .. } => return refused(Complaint::MalformedAccount, MALFORMED),
            Account::Itself => None,
            Account::Google(email) => Some(email.clone()),
        };
        let spec = HolderSpec {
            pod: record.pod.clone(),
            entitlement: account.clone(),
            subject: self.cluster.tokens_for(record),
        };
        let (tree, holder) = (federation.tree(account.as_ref()), broker.holder(spec));
        let ahead =
            Ahead { tree: tree.clone(), holder: Arc::downgrade(&holder), complainer: complainer.clone() };
        // Nobody fetches any more only where the runtime ends.
        let _ = self.ahead.send(ahead);
        Standing::Federated(Federated { tree, holder, account, complainer })
    }
}

/// A first credential to be fetched.
#[derive(Debug)]
struct Ahead {
    tree: Arc<gce::Tree>,
    /// Weak: a pod that is gone before its turn is let go.
    holder: Weak<Holder>,
    complainer: Complainer,
}

impl Ahead {
    /// Fetches the credential that every library asks for first. Once: if it fails the pod's own request is the next try.
    async fn fetch(self) {
        let Some(holder) = self.holder.upgrade() else { return };
        let want = WantRef::AccessToken { scopes: self.tree.default_scopes() };
        if let Err(unavailable) = holder.lease(want).await {
            self.complainer.unavailable(&unavailable, &later::refusal(&unavailable));
        }
    }
}

/// Fetches for one pod after another, [`AHEAD`] at once. A task for each pod that waits would be the largest thing that a pod
/// costs when many start together. Ends with the follower.
async fn fetch_all(mut waiting: mpsc::UnboundedReceiver<Ahead>) {
    let turns = Arc::new(Semaphore::new(AHEAD));
    while let Some(ahead) = waiting.recv().await {
        let Ok(turn) = turns.clone().acquire_owned().await else { return };
        tokio::spawn(async move {
            ahead.fetch().await;
            drop(turn);
        });
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
