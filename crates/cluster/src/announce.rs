//! What changed from one snapshot to the next, told to whoever prefetches credentials, drops leases or closes connections.
//!
//! Derived by comparing two snapshots, so it cannot disagree with them. Bounded: a listener that is too slow is told that
//! it missed something and reads the snapshot instead.

use std::sync::Arc;

use tokio::sync::broadcast;

use crate::index::{PodRecord, Snapshot};

/// Announcements that wait for a slow listener: more than one relist of a full node.
const BACKLOG: usize = 1024;

/// One change.
#[derive(Clone, Debug)]
pub enum Announcement {
    /// A pod has been bound to this node; its containers have not necessarily started, its address may not be known.
    Appeared(Arc<PodRecord>),
    /// Something about a pod changed: its address, its deletion, or what its ServiceAccount stands for.
    Changed {
        /// As it was.
        before: Arc<PodRecord>,
        /// As it is.
        now: Arc<PodRecord>,
    },
    /// The pod is gone: close its connections, drop its leases.
    Gone(Arc<PodRecord>),
    /// The listener was too slow and some were lost: compare what you hold with the snapshot.
    Missed,
}

/// A listener's end.
#[derive(Debug)]
pub struct Announcements(broadcast::Receiver<Announcement>);

impl Announcements {
    /// The next change; `None` once the cluster view has ended.
    pub async fn next(&mut self) -> Option<Announcement> {
        match self.0.recv().await {
            Ok(announcement) => Some(announcement),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Announcement::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// The speaker's end. The listeners' streams end with its last clone.
#[derive(Clone, Debug)]
pub(crate) struct Announcer(broadcast::Sender<Announcement>);

impl Announcer {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(BACKLOG))
    }

    pub(crate) fn listen(&self) -> Announcements {
        Announcements(self.0.subscribe())
    }

    pub(crate) fn announce(&self, old: &Snapshot, new: &Snapshot) {
        for change in changes(old, new) {
            // Nobody listening is no error.
            let _ = self.0.send(change);
        }
    }
}

/// Those that left first, so that a listener frees before it takes.
fn changes<'s>(old: &'s Snapshot, new: &'s Snapshot) -> impl Iterator<Item = Announcement> + 's {
    let gone = old.pods().filter(|was| new.by_uid(&was.pod.uid.0).is_none()).cloned().map(Announcement::Gone);
    let other = new.pods().filter_map(|now| match old.by_uid(&now.pod.uid.0) {
        None => Some(Announcement::Appeared(now.clone())),
        Some(was) if Arc::ptr_eq(was, now) => None,
        Some(was) => Some(Announcement::Changed { before: was.clone(), now: now.clone() }),
    });
    gone.chain(other)
}
