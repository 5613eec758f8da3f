//! Limits how many requests of unknown clients wait for identity.
//!
//! All unknown clients count as one client ([`crate::fairness::tenants`]), and the thread cannot evict a connection with a waiting request.
//! Without this limit, a sender with one or a few addresses could hold all connections that unknown clients may have. Then a pod
//! that the cluster has not reported yet would get no connection, and so no session token. If some AWS SDKs fail once to get a
//! session token, they work without session tokens until their process ends. When the number of waiting requests reaches this
//! limit, the agent refuses another request of an unknown client immediately.
//!
//! This module only counts: it never reads, writes or closes a connection. Each thread has a separate limit. All connections of one address are on the same thread
//! (`listen`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

/// The maximum number of waiting requests from one address.
/// A process in a pod can start fifty SDK clients at once, and each client sends a request. For example, boto3 takes no lock when
/// it loads credentials for the first time, so fifty boto3 sessions load their credentials at the same time.
const PER_ADDRESS: u32 = 64;

/// The number of waiting requests on a thread, and the limit for this number.
#[derive(Debug)]
pub(super) struct UnidentifiedWaitLimit {
    most: u32,
    taken: Cell<u32>,
    by_address: RefCell<HashMap<IpAddr, u32>>,
}

/// The permit of one waiting request. Dropping this value returns the permit.
#[derive(Debug)]
pub(super) struct UnidentifiedWaitPermit {
    of: Rc<UnidentifiedWaitLimit>,
    address: IpAddr,
}

impl UnidentifiedWaitLimit {
    /// Returns a limit of a quarter of the process's connections.
    /// There are at most two threads, so waiting requests take at most half of all connections. Unknown clients can have two thirds
    /// of all connections ([`crate::connection_permits::PermitCounter::has_share_left`]).
    pub(super) fn new(connections: u32) -> Rc<Self> {
        Rc::new(Self { most: (connections / 4).max(1), taken: Cell::new(0), by_address: RefCell::default() })
    }

    /// Takes a permit for this address, or returns `None` if the address or the thread is at its limit.
    pub(super) fn take(self: &Rc<Self>, address: IpAddr) -> Option<UnidentifiedWaitPermit> {
        let address = address.to_canonical();
        let mut by_address = self.by_address.borrow_mut();
        let own = by_address.get(&address).copied().unwrap_or_default();
        if own >= PER_ADDRESS || self.taken.get() >= self.most {
            return None;
        }
        by_address.insert(address, own + 1);
        self.taken.set(self.taken.get() + 1);
        Some(UnidentifiedWaitPermit { of: self.clone(), address })
    }
}

impl Drop for UnidentifiedWaitPermit {
    fn drop(&mut self) {
        let mut by_address = self.of.by_address.borrow_mut();
        self.of.taken.set(self.of.taken.get().saturating_sub(1));
        if let Some(own) = by_address.get_mut(&self.address) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 4, 0, last].into()
    }

    #[test]
    fn an_address_has_its_own_few_places_and_all_together_leave_room_for_connections() {
        let places = UnidentifiedWaitLimit::new(800);
        let taken: Vec<_> = (1..=8)
            .map(|last| (0..100).map_while(|_| places.take(address(last))).collect::<Vec<_>>())
            .collect();
        let counts: Vec<_> = taken.iter().map(Vec::len).collect();
        assert_eq!(counts, [64, 64, 64, 8, 0, 0, 0, 0]);
        drop(taken);
        assert_eq!((places.taken.get(), places.by_address.borrow().len()), (0, 0));
        assert!(places.take("::ffff:10.4.0.1".parse().unwrap()).is_some());
    }
}
