//! Assigns each connection to a [`Tenant`], which holds a client's shares of one thread's resources.
//!
//! Each client has one tenant per thread, and only that thread uses the tenant. A pod is a client. Under the strategy `anyone`,
//! which serves every address, each address is a client. All clients without entitlements count as *one* client, because a sender
//! with many addresses must not get many shares. Clients without entitlements are unknown clients, processes of the node, and
//! pods that the agent does not know yet.
//!
//! This module assigns shares and never credentials. [`ClientResolver`](crate::connection_client::ClientResolver) identifies clients.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::{buffer_budget, scheduler};
use crate::connection_client::{Client, ClientId, ServedPod, UpstreamChargedClient};
use crate::connection_permits::PermitCounter;
use crate::repeated_request_cache::SingleRequestReplayCache;

/// The resources of one client on a thread.
#[derive(Debug)]
pub(crate) struct Tenant<P> {
    pub(crate) id: ClientId,
    /// Counts the client's connections, on all threads.
    pub(crate) connection_counter: Arc<PermitCounter>,
    /// Counts the client's long polls, on all threads.
    pub(crate) long_poll_counter: Arc<PermitCounter>,
    pub(crate) turns: Rc<scheduler::ClientTurns>,
    pub(crate) buffer_share: Rc<buffer_budget::BufferShare>,
    /// A recent request of the client that the thread answered with a cached credential.
    pub(crate) parsed_request_cache: SingleRequestReplayCache<P>,
    /// The number of guests since the last sweep. A guest is a connection that ends after one answer.
    guests: Cell<u32>,
    /// The number of connections that the client must still give up. Each of them ends after its next answer.
    giving_back: Cell<u32>,
}

/// The tenants of a thread.
#[derive(Debug)]
pub(crate) struct Tenants<P> {
    budget: Rc<buffer_budget::BufferBudget>,
    strangers: Rc<Tenant<P>>,
    pods: BTreeMap<ClientId, Rc<Tenant<P>>>,
    addresses: HashMap<IpAddr, Rc<Tenant<P>>>,
}

impl<P> Tenant<P> {
    fn new(
        id: ClientId,
        connections: Arc<PermitCounter>,
        long_polls: Arc<PermitCounter>,
        budget: &Rc<buffer_budget::BufferBudget>,
    ) -> Rc<Self> {
        let (held, memory) =
            (buffer_budget::BufferShare::new_empty(budget), SingleRequestReplayCache::default());
        Rc::new(Self {
            id,
            connection_counter: connections,
            long_poll_counter: long_polls,
            turns: Rc::default(),
            buffer_share: held,
            parsed_request_cache: memory,
            guests: Cell::default(),
            giving_back: Cell::default(),
        })
    }

    /// Records a guest: a connection that this client may not keep open.
    pub(crate) fn record_guest(&self) {
        self.guests.set(self.guests.get().saturating_add(1));
    }

    /// True if the connection of the current request must end after the answer, so that another connection can stay open.
    pub(crate) fn should_give_back_connection(&self) -> bool {
        let left = self.giving_back.get();
        left > 0 && {
            self.giving_back.set(left - 1);
            true
        }
    }

    /// Returns the client's id and long-poll counter. The upstream limits count this client's requests by these values.
    pub(crate) fn client_shares(&self) -> UpstreamChargedClient<'_> {
        UpstreamChargedClient { client: self.id, long_poll_counter: &self.long_poll_counter }
    }
}

impl<P: ServedPod> Tenants<P> {
    /// Returns an empty set of tenants. All tenants together may buffer `held` bytes.
    /// `strangers` counts the connections of clients without entitlements, on all threads.
    pub(crate) fn new(held: usize, strangers: Arc<PermitCounter>) -> Self {
        let budget = buffer_budget::BufferBudget::new(held);
        let strangers = Tenant::new(ClientId::UNKNOWN, strangers, Arc::default(), &budget);
        Self { budget, strangers, pods: BTreeMap::new(), addresses: HashMap::new() }
    }

    /// Returns the tenant of a client. Until attestation finishes, `likely` is the pod that probably has the client's address.
    pub(crate) fn tenant_of_client(
        &mut self,
        caller: &Client<P>,
        likely: Option<&Arc<P>>,
        ip: IpAddr,
    ) -> Rc<Tenant<P>> {
        match (caller, likely) {
            (Client::Pod(pod), _) | (Client::Unidentified, Some(pod)) => self.tenant_of_pod(pod),
            (Client::Anyone | Client::OwnReadinessRequest, _) => {
                let new =
                    || Tenant::new(ClientId::new_unique(), Arc::default(), Arc::default(), &self.budget);
                self.addresses.entry(ip.to_canonical()).or_insert_with(new).clone()
            }
            (Client::Unidentified | Client::Refused(_), _) => self.strangers.clone(),
        }
    }

    /// Returns the tenant of a pod.
    pub(crate) fn tenant_of_pod(&mut self, pod: &P) -> Rc<Tenant<P>> {
        let new = || Tenant::new(pod.id(), pod.connections().clone(), pod.long_polls().clone(), &self.budget);
        self.pods.entry(pod.id()).or_insert_with(new).clone()
    }

    /// Removes all tenants that have no connection on this thread, and decides which clients must give up connections.
    /// If `is_memory_short` is true, the client with the most connections must give up some connections to free memory.
    pub(crate) fn sweep(&mut self, is_memory_short: bool) {
        self.redistribute(is_memory_short);
        let has_connections = |tenant: &Rc<Tenant<P>>| Rc::strong_count(tenant) > 1;
        self.pods.retain(|_, tenant| has_connections(tenant));
        self.addresses.retain(|_, tenant| has_connections(tenant));
    }

    /// Decides how many connections each client must give up. Such a connection ends after its next answer.
    ///
    /// A client with guests gives up all its connections within a minute, a few at each sweep. Otherwise, those processes of the
    /// client that connected first would keep all connections of the client. In addition, the client with the most connections
    /// gives up one connection for each guest of a client with less than half as many connections. While memory is short, the
    /// client with the most connections also gives up a sixteenth of its connections at each sweep.
    fn redistribute(&self, is_memory_short: bool) {
        /// One minute, as a number of sweeps (`connection_table::SWEEP_INTERVAL`).
        const SWEEPS: u32 = 240;
        let all = || self.pods.values().chain(self.addresses.values()).chain([&self.strangers]);
        let open = |tenant: &Tenant<P>| tenant.connection_counter.open_count();
        let largest = all().max_by_key(|tenant| open(tenant));
        let mut wanted = 0;
        for tenant in all() {
            let guests = tenant.guests.replace(0);
            let in_turns = if guests > 0 { open(tenant).div_ceil(SWEEPS).min(guests) } else { 0 };
            tenant.giving_back.set(in_turns);
            if largest.is_some_and(|largest| open(tenant) < open(largest) / 2) {
                wanted += guests;
            }
        }
        if let Some(largest) = largest {
            let wanted = wanted + if is_memory_short { open(largest) / 16 } else { 0 };
            largest.giving_back.set(largest.giving_back.get() + wanted.min(open(largest) / 8));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakePod;

    fn given_back(tenant: &Tenant<FakePod>) -> usize {
        (0..1000).filter(|_| tenant.should_give_back_connection()).count()
    }

    #[test]
    fn the_largest_client_gives_connections_back_to_smaller_ones_and_no_other_does() {
        let mut tenants = Tenants::new(1024, Arc::default());
        let pods: [FakePod; 3] = Default::default();
        let [large, middle, small] = pods.each_ref().map(|pod| tenants.tenant_of_pod(pod));
        let of = |tenant: &Tenant<FakePod>, count: usize| -> Vec<_> {
            (0..count).map(|_| tenant.connection_counter.take(1000).unwrap()).collect()
        };
        let _open = [of(&large, 400), of(&middle, 300), of(&small, 100)];
        (0..20).for_each(|_| small.record_guest());
        tenants.sweep(false);
        assert_eq!([&large, &middle, &small].map(|tenant| given_back(tenant)), [20, 0, 1]);
        (0..20).for_each(|_| middle.record_guest());
        tenants.sweep(false);
        assert_eq!([&large, &middle, &small].map(|tenant| given_back(tenant)), [0, 2, 0]);
        tenants.sweep(false);
        assert_eq!([&large, &middle, &small].map(|tenant| given_back(tenant)), [0, 0, 0]);
        tenants.sweep(true);
        assert_eq!([&large, &middle, &small].map(|tenant| given_back(tenant)), [25, 0, 0]);
    }
}
