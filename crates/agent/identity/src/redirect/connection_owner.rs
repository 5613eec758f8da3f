//! Whose a captured connection is, by the kernel's notes and the pods' groups.
//!
//! Groups are listed anew when a group or a UID is asked for that is not known, and when a pod is not found under its group, which may
//! have been made anew; both at a bounded rate, because what a pod does brings them about. A list that anybody had made is
//! everybody's, so nobody can use up another's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::attestation::{ConnectionRecords, RecordOwner, SocketPair};
use arc_swap::ArcSwap;
use seawall_core::{Clock, Gcra, PodUid};
use seawall_redirect::{CgroupTree, ConnectionMap, Error, PodCgroups};

/// Lists in a second because something is not known; at 60 µs for 110 pods, about a thousandth of a core.
const LISTS_PER_SECOND: u32 = 20;

/// And because what is known may be old.
const RENEWALS_PER_SECOND: u32 = 1;

/// Lines in a second that tell of failures.
const COMPLAINTS_PER_SECOND: u32 = 1;

/// What attestation asks, shared by all who ask.
#[derive(Clone, Debug)]
pub struct KernelRecords(Arc<RecordTable>);

#[derive(Debug)]
struct RecordTable {
    /// A lock, because forgetting is writing to the library. Each use is one call of the system, a microsecond.
    callers: Mutex<ConnectionMap>,
    site: CgroupTree,
    groups: ArcSwap<PodCgroups>,
    lists: Gcra,
    renewals: Gcra,
    complaints: Gcra,
    clock: Clock,
    missed: AtomicU64,
}

impl KernelRecords {
    pub(crate) fn new(callers: ConnectionMap, site: CgroupTree, pods: PodCgroups, clock: Clock) -> Self {
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

    /// Connections of pods' addresses of which the kernel had noted nothing.
    pub fn missed_count(&self) -> u64 {
        self.0.missed.load(Ordering::Relaxed)
    }
}

impl RecordTable {
    fn under(&self, group: u64, pair: SocketPair) -> Option<PodUid> {
        self.look(seawall_redirect::ConnectionOwner::Pod(group), pair)
    }

    fn look(&self, owner: seawall_redirect::ConnectionOwner, pair: SocketPair) -> Option<PodUid> {
        // The lock ends with this line.
        let found = self.callers().find(owner, pair.peer, pair.local);
        let caller = self.told(found).flatten()?;
        let known = self.groups.load().pod(caller.pod).cloned();
        known.or_else(|| self.listed(&self.lists)?.pod(caller.pod).cloned())
    }

    fn group(&self, uid: &PodUid) -> Option<u64> {
        let known = self.groups.load().group(uid);
        known.or_else(|| self.listed(&self.lists)?.group(uid))
    }

    /// The group that a pod has by now, if it is another than this.
    fn renewed(&self, uid: &PodUid, group: u64) -> Option<u64> {
        self.listed(&self.renewals)?.group(uid).filter(|now| *now != group)
    }

    /// The groups as they are now, if their time has come.
    fn listed(&self, pace: &Gcra) -> Option<Arc<PodCgroups>> {
        pace.take(self.clock.now()).ok()?;
        let pods = Arc::new(self.told(PodCgroups::list(&self.site))?);
        self.groups.store(pods.clone());
        Some(pods)
    }

    /// What could not be read or written is nobody's word.
    fn told<T>(&self, result: Result<T, Error>) -> Option<T> {
        result
            .inspect_err(|error| {
                if self.complaints.take(self.clock.now()).is_ok() {
                    tracing::error!(%error, "what the kernel noted cannot be used");
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
