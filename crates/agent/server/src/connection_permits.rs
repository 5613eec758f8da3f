//! Counts open connections and long polls, in one counter for the whole process and one counter for each client.
//!
//! This module only counts: it never reads, writes or closes a connection. A traffic thread takes permits when it accepts a connection, and returns them when the
//! connection ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use seawall_core::fair_share;

/// A client with fewer permits than this may take another permit, even if other clients have many permits.
pub(crate) const GUARANTEED_CONNECTIONS: u32 = 8;

/// A counter of open permits. Dropping a permit returns it to the counter.
#[derive(Debug, Default)]
pub struct PermitCounter {
    open: AtomicU32,
    /// True after the counter was closed, for example because the pod was deleted.
    /// A closed counter grants no permits, and the traffic threads end the client's open connections.
    closed: AtomicBool,
}

impl PermitCounter {
    /// True if this client's share allows one more permit. `process` counts all clients' permits, and `most` is their limit.
    ///
    /// The last quarter of all permits is reserved for clients with fewer than eight permits. Therefore a new client gets a permit even if
    /// all other clients take as many as they can. From the other three quarters, a client can take up to eight times as many
    /// permits as then remain free. This is the rule of [`seawall_core::fair_share`], with eight permits as one place. A single
    /// active client can therefore get two thirds of all permits. Several greedy clients together leave enough free permits for
    /// at least one more greedy client.
    pub fn has_share_left(&self, process: &Self, most: u32) -> bool {
        let free = fair_share::free_for_large_holders(u64::from(most), u64::from(process.open_count()));
        self.open_count() < GUARANTEED_CONNECTIONS
            || fair_share::may_take(u64::from(self.open_count() / 8), free)
    }

    /// Takes a permit. Returns `None` if `most` permits are already open or the counter is closed.
    pub fn take(self: &Arc<Self>, most: u32) -> Option<Permit> {
        if self.is_closed() {
            return None;
        }
        let taken =
            self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < most).then_some(n + 1));
        taken.is_ok().then(|| Permit(self.clone()))
    }

    /// Returns the number of open permits.
    pub fn open_count(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Closes the counter. A closed counter grants no permits.
    /// In its next sweep, each thread ends the connections that hold permits of this counter.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// True if the counter is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// One permit of a counter. For example, each open connection holds a permit of its client's counter.
#[derive(Debug)]
pub struct Permit(Arc<PermitCounter>);

impl Permit {
    /// Returns the number of open permits of this permit's counter.
    pub(crate) fn open_count(&self) -> u32 {
        self.0.open_count()
    }

    /// True if this permit's counter is closed. The connection that holds this permit must then end.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hoarders_leave_connections_for_others_and_a_few_are_never_refused() {
        let process = Arc::new(PermitCounter::default());
        let mut permits = Vec::new();
        let mut open = |cap: &Arc<PermitCounter>| {
            let taken = cap
                .has_share_left(&process, 1600)
                .then(|| (cap.take(1600).unwrap(), process.take(1600).unwrap()));
            taken.map(|pair| permits.push(pair)).is_some()
        };
        let hoarders: [Arc<PermitCounter>; 9] = Default::default();
        // One client after another takes permits, and none releases any.
        hoarders.iter().for_each(|hoarder| while open(hoarder) {});
        assert!((1000..1200).contains(&hoarders[0].open_count()), "{hoarders:?}");
        let callers: [Arc<PermitCounter>; 32] = std::array::from_fn(|_| Arc::default());
        assert!(callers.iter().all(|quiet| (0..8).all(|_| open(quiet))), "{callers:?}");
    }

    #[test]
    fn a_cap_gives_back_what_is_dropped() {
        let cap = Arc::new(PermitCounter::default());
        let first = cap.take(2).unwrap();
        let _second = cap.take(2).unwrap();
        assert!(cap.take(2).is_none());
        drop(first);
        assert_eq!(cap.open_count(), 1);
        assert!(cap.take(2).is_some());
    }
}
