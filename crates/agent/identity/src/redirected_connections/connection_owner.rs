//! Finds the pod that owns a captured connection, from the kernel's records and the pods' cgroups.
//!
//! The agent lists the cgroups again in two cases: a cgroup or UID is unknown, or a connection has no record under its pod's
//! cgroup. In the second case, the kubelet may have recreated the cgroup. Pods can cause both cases, so the agent limits the
//! rate of listings. Each listing contains the cgroups of all pods, so a pod that exhausts the limit does not harm other pods.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::attestation::{ConnectionRecords, RecordOwner, SocketPair};
use arc_swap::ArcSwap;
use seawall_core::{Clock, Gcra, PodUid};
use seawall_redirect::{ConnectionMap, Error, PodCgroups, PodsParentCgroup};

/// The maximum number of listings per second for unknown cgroups or UIDs. A listing takes 60 µs for 110 pods, so 20 per second
/// use about 0.1 % of one core.
const LISTS_PER_SECOND: u32 = 20;

/// The maximum number of listings per second to refresh known cgroups.
const RENEWALS_PER_SECOND: u32 = 1;

/// The maximum number of failures per second that the agent logs.
const COMPLAINTS_PER_SECOND: u32 = 1;

/// Reads the kernel's connection records for attestation. Clones share one table.
#[derive(Clone, Debug)]
pub struct KernelRecords(Arc<RecordTable>);

#[derive(Debug)]
struct RecordTable {
    /// The connection map. The map needs a lock because deleting a record requires a mutable map. Each use is one system call
    /// of about 1 µs.
    callers: Mutex<ConnectionMap>,
    site: PodsParentCgroup,
    groups: ArcSwap<PodCgroups>,
    lists: Gcra,
    renewals: Gcra,
    complaints: Gcra,
    clock: Clock,
    missed: AtomicU64,
}

impl KernelRecords {
    pub(crate) fn new(
        callers: ConnectionMap,
        site: PodsParentCgroup,
        pods: PodCgroups,
        clock: Clock,
    ) -> Self {
        Self(Arc::new(RecordTable {
            callers: Mutex::new(callers),
            site,
            groups: ArcSwap::from_pointee(pods),
            lists: Gcra::new(LISTS_PER_SECOND, LISTS_PER_SECOND),
            renewals: Gcra::new(RENEWALS_PER_SECOND, 1),
            complaints: Gcra::new(COMPLAINTS_PER_SECOND, 1),
            clock,
            missed: AtomicU64::new(0),
        }))
    }

    /// Returns the cgroup of this pod, or `None` if the pod has none yet.
    pub(crate) fn cgroup_of_pod(&self, uid: &PodUid) -> Option<u64> {
        self.0.group(uid)
    }

    /// Returns the number of connections from pods' addresses for which the kernel had no record.
    pub fn missed_count(&self) -> u64 {
        self.0.missed.load(Ordering::Relaxed)
    }
}

impl RecordTable {
    fn under(&self, group: u64, pair: SocketPair) -> Option<PodUid> {
        self.look(seawall_redirect::ConnectionOwner::Pod(group), pair)
    }

    fn look(&self, owner: seawall_redirect::ConnectionOwner, pair: SocketPair) -> Option<PodUid> {
        // This statement releases the lock at its end, so that no other thread waits while this thread lists the cgroups.
        let found = self.callers().find(owner, pair.peer, pair.local);
        let caller = self.told(found).flatten()?;
        let known = self.groups.load().pod_of_cgroup(caller.pod_cgroup_id).cloned();
        known.or_else(|| self.listed(&self.lists)?.pod_of_cgroup(caller.pod_cgroup_id).cloned())
    }

    fn group(&self, uid: &PodUid) -> Option<u64> {
        let known = self.groups.load().cgroup_of_pod(uid);
        known.or_else(|| self.listed(&self.lists)?.cgroup_of_pod(uid))
    }

    /// Lists the cgroups again, and returns the pod's present cgroup if it differs from `group`.
    fn renewed(&self, uid: &PodUid, group: u64) -> Option<u64> {
        self.listed(&self.renewals)?.cgroup_of_pod(uid).filter(|now| *now != group)
    }

    /// Lists the cgroups again if the rate limit allows it.
    fn listed(&self, pace: &Gcra) -> Option<Arc<PodCgroups>> {
        pace.take(self.clock.now()).ok()?;
        let pods = Arc::new(self.told(PodCgroups::list(&self.site))?);
        self.groups.store(pods.clone());
        Some(pods)
    }

    /// Returns the value, or `None` for an error. The calling code treats `None` like a missing record. Logs errors at a
    /// limited rate.
    fn told<T>(&self, result: Result<T, Error>) -> Option<T> {
        result
            .inspect_err(|error| {
                if self.complaints.take(self.clock.now()).is_ok() {
                    tracing::error!(%error, "cannot read the kernel's connection records; the agent refuses connections without a record");
                }
            })
            .ok()
    }

    fn callers(&self) -> MutexGuard<'_, ConnectionMap> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionRecords for KernelRecords {
    fn find(&self, owner: RecordOwner<'_>, pair: SocketPair) -> Option<PodUid> {
        let RecordOwner::Pod(uid) = owner else {
            return self.0.look(seawall_redirect::ConnectionOwner::Node, pair);
        };
        let group = self.0.group(uid)?;
        self.0.under(group, pair).or_else(|| self.0.under(self.0.renewed(uid, group)?, pair))
    }

    fn forget(&self, owner: RecordOwner<'_>, pair: SocketPair) {
        let owner = match owner {
            RecordOwner::Node => Some(seawall_redirect::ConnectionOwner::Node),
            RecordOwner::Pod(uid) => self.0.group(uid).map(seawall_redirect::ConnectionOwner::Pod),
        };
        if let Some(owner) = owner {
            let forgotten = self.0.callers().forget(owner, pair.peer, pair.local);
            self.0.told(forgotten);
        }
    }

    fn count_missed(&self) {
        self.0.missed.fetch_add(1, Ordering::Relaxed);
    }
}
