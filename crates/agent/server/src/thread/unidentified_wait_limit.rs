//! Places for requests that wait until it is known who asks, of callers whom nobody knows.
//!
//! All of these are one caller together ([`crate::fairness::clients`]), and while a request waits its connection cannot be ended to make room. So who may
//! send from one address, or from a few, could hold all that strangers may, and a pod of which the cluster has not told yet would find
//! no connection: not even for the session token without which some SDKs of AWS's go on for the rest of their process. Beyond these places
//! a stranger is told at once what he would be told in the end.
//!
//! Knows no connections; a thread has one of these. All connections of an address are on one thread (`listen`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

/// For one address: a process that starts with fifty clients at once, each of which asks, is one pod's (boto3 has no lock around its first
/// load, and neither have fifty sessions of it).
const PER_ADDRESS: u32 = 64;

/// A thread's places.
#[derive(Debug)]
pub(super) struct UnidentifiedWaitLimit {
    most: u32,
    taken: Cell<u32>,
    by_address: RefCell<HashMap<IpAddr, u32>>,
}

/// One request's, free again when it is dropped.
#[derive(Debug)]
pub(super) struct UnidentifiedWaitPermit {
    of: Rc<UnidentifiedWaitLimit>,
    address: IpAddr,
}

impl UnidentifiedWaitLimit {
    /// A quarter of the process's connections for each of at most two threads: strangers may have two thirds
    /// ([`crate::permit_counter::PermitCounter::is_within_share`]).
    pub(super) fn new(connections: u32) -> Rc<Self> {
        Rc::new(Self { most: (connections / 4).max(1), taken: Cell::new(0), by_address: RefCell::default() })
    }

    /// A place, if there is one for this address.
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
