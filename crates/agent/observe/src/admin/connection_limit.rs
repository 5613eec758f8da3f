//! Limits the admin port's connections and still accepts every new connection.
//!
//! If the agent refused connections at the limit, one client could lock out the kubelet's probes. The kubelet would then kill the
//! agent. So at the limit the agent evicts an open connection to make room for the new connection. The agent selects the client
//! address with the most connections. Of this address's connections, it evicts the connection that has been idle for the longest
//! time. A client loses nothing when the agent closes its idle keep-alive connection. The agent evicts a busy connection only if
//! all connections of that address are busy. This module does not know HTTP.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use seawall_core::{Clock, Moment};
use tokio::sync::Notify;

/// The maximum number of open connections. There are only a few scrapers and probes. Each connection can need memory for a copy
/// of a page such as `/metrics`, and for about 16 KiB of buffers.
const PLACES: usize = 32;

/// The number of open connections above which each connection closes after its response.
const CROWDED: usize = PLACES / 2;

/// The open connections of the admin port. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct AdminConnectionLimit {
    clock: Clock,
    /// The open connections. One thread uses them, but the runtime needs `Send` tasks, so a lock guards them.
    taken: Arc<Mutex<OpenConnections>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    by_number: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    /// True while the agent handles a request of this connection. `since` is the time of the last change of `is_busy`.
    is_busy: bool,
    since: Moment,
    ending: Arc<Notify>,
}

/// The permit of one open connection. Dropping the permit makes room for another connection.
#[derive(Debug)]
pub(super) struct AdminPermit {
    number: u64,
    places: AdminConnectionLimit,
    ending: Arc<Notify>,
}

impl AdminConnectionLimit {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, taken: Arc::default() }
    }

    /// Returns a permit for a connection from this address. At the limit, the function evicts another connection.
    pub(super) fn take_or_evict(&self, address: IpAddr) -> AdminPermit {
        let (since, ending) = (self.clock.now(), Arc::new(Notify::new()));
        let mut taken = self.taken();
        if taken.by_number.len() >= PLACES {
            taken.end_one();
        }
        let number = taken.next;
        taken.next += 1;
        let entry = Entry { address, is_busy: false, since, ending: ending.clone() };
        taken.by_number.insert(number, entry);
        AdminPermit { number, places: self.clone(), ending }
    }

    /// Evicts the connection that [`Self::take_or_evict`] would evict at the limit.
    pub(super) fn evict_one(&self) {
        self.taken().end_one();
    }

    fn taken(&self) -> MutexGuard<'_, OpenConnections> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    fn end_one(&mut self) {
        let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
        for entry in self.by_number.values() {
            *of_address.entry(entry.address).or_default() += 1;
        }
        let most = of_address.values().copied().max();
        let is_eligible = |entry: &Entry| of_address.get(&entry.address).copied() == most;
        let eligible = self.by_number.iter().filter(|(_, entry)| is_eligible(entry));
        let oldest = eligible.min_by_key(|(number, entry)| (entry.is_busy, entry.since, **number));
        let Some(number) = oldest.map(|(number, _)| *number) else { return };
        if let Some(entry) = self.by_number.remove(&number) {
            entry.ending.notify_one();
        }
    }
}

impl AdminPermit {
    /// Waits until the connection must close to make room for another connection.
    pub(super) async fn wait_for_eviction(&self) {
        self.ending.notified().await;
    }

    /// Records that a request starts or ends.
    pub(super) fn set_busy(&self, is_busy: bool) {
        let since = self.places.clock.now();
        if let Some(entry) = self.places.taken().by_number.get_mut(&self.number) {
            (entry.is_busy, entry.since) = (is_busy, since);
        }
    }

    /// True if more than [`CROWDED`] connections are open. Each connection must then close after its response.
    pub(super) fn is_crowded(&self) -> bool {
        self.places.taken().by_number.len() > CROWDED
    }
}

impl Drop for AdminPermit {
    fn drop(&mut self) {
        self.places.taken().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seawall_core::clock::ManualClock;

    use super::*;

    const CROWD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const KUBELET: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn places() -> (AdminConnectionLimit, ManualClock) {
        let (clock, hand) = Clock::manual();
        (AdminConnectionLimit::new(clock), hand)
    }

    impl AdminPermit {
        fn is_ended(&self) -> bool {
            !self.places.taken().by_number.contains_key(&self.number)
        }
    }

    #[test]
    fn a_newcomer_ends_the_connection_that_was_without_a_request_for_longest() {
        let (places, hand) = places();
        let held: Vec<_> = (0..PLACES).map(|_| places.take_or_evict(CROWD)).collect();
        hand.advance(Duration::from_secs(1));
        held[0].set_busy(true);
        held[1].set_busy(true);
        held[1].set_busy(false);
        let newcomers: Vec<_> = (0..PLACES - 2).map(|_| places.take_or_evict(CROWD)).collect();
        assert!(held[2..].iter().all(AdminPermit::is_ended));
        assert!(!held[0].is_ended() && !held[1].is_ended());
        assert!(newcomers.iter().all(|newcomer| !newcomer.is_ended()));
        assert_eq!(places.taken().by_number.len(), PLACES);
    }

    #[test]
    fn who_has_few_connections_keeps_them_whatever_another_opens() {
        let (places, hand) = places();
        let probe = places.take_or_evict(KUBELET);
        hand.advance(Duration::from_secs(1));
        let crowd: Vec<_> = (0..100 * PLACES).map(|_| places.take_or_evict(CROWD)).collect();
        crowd.iter().for_each(|place| place.set_busy(true));
        drop(places.take_or_evict(CROWD));
        assert!(!probe.is_ended());
    }

    #[tokio::test]
    async fn a_connection_is_told_of_its_end_and_a_place_given_back_is_free() {
        let (places, _hand) = places();
        let held: Vec<_> = (0..PLACES).map(|_| places.take_or_evict(CROWD)).collect();
        let _newcomer = places.take_or_evict(CROWD);
        held[0].wait_for_eviction().await;
        drop(held);
        assert_eq!(places.taken().by_number.len(), 1);
    }
}
