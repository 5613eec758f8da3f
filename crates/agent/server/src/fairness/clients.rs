//! Assigns each connection to a [`Tenant`], which holds a client's shares of one thread's resources.
//!
//! Each client has one tenant per thread, and only that thread uses the tenant. A pod is a client. Under the strategy `anyone`,
//! which serves every address, each address is a client. All clients without entitlements count as *one* client, because a sender
//! with many addresses must not get many shares. Such clients are unknown clients, processes of the node, and pods that are not
//! known yet.
//!
//! This module assigns shares and never credentials. [`ClientResolver`](crate::client::ClientResolver) identifies clients.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::{buffer_budget, scheduler};
use crate::client::{Client, ClientId, ClientShares, ServedPod};
use crate::connection_permits::PermitCounter;
use crate::repeated_request_cache::ReplayCache;

/// The resources of one client on a thread.
#[derive(Debug)]
pub(crate) struct Tenant<P> {
    pub(crate) id: ClientId,
    /// Counts the client's connections, on all threads.
    pub(crate) connections: Arc<PermitCounter>,
    /// Counts the client's long polls, on all threads.
    pub(crate) long_polls: Arc<PermitCounter>,
    pub(crate) turns: Rc<scheduler::ClientTurns>,
    pub(crate) buffers: Rc<buffer_budget::BufferShare>,
    /// The client's last request that a cached credential answered.
    pub(crate) replay_cache: ReplayCache<P>,
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
        let (held, memory) = (buffer_budget::BufferShare::of(budget), ReplayCache::default());
        Rc::new(Self {
            id,
            connections,
            long_polls,
            turns: Rc::default(),
            buffers: held,
            replay_cache: memory,
        })
    }

    /// Returns the client's shares of the resources that all threads share.
    pub(crate) fn shares(&self) -> ClientShares<'_> {
        ClientShares { client: self.id, long_polls: &self.long_polls }
    }
}

impl<P: ServedPod> Tenants<P> {
    /// Returns an empty set of tenants that together may buffer `held` bytes.
    /// `strangers` counts the connections of clients without entitlements, on all threads.
    pub(crate) fn new(held: usize, strangers: Arc<PermitCounter>) -> Self {
        let budget = buffer_budget::BufferBudget::new(held);
        let strangers = Tenant::new(ClientId::UNKNOWN, strangers, Arc::default(), &budget);
        Self { budget, strangers, pods: BTreeMap::new(), addresses: HashMap::new() }
    }

    /// Returns the tenant of a client. While attestation has not finished, `likely` is the pod that probably has the address.
    pub(crate) fn of(&mut self, caller: &Client<P>, likely: Option<&Arc<P>>, ip: IpAddr) -> Rc<Tenant<P>> {
        match (caller, likely) {
            (Client::Pod(pod), _) | (Client::Unidentified, Some(pod)) => self.pod(pod),
            (Client::Anyone | Client::Probe, _) => {
                let new = || Tenant::new(ClientId::unique(), Arc::default(), Arc::default(), &self.budget);
                self.addresses.entry(ip.to_canonical()).or_insert_with(new).clone()
            }
            (Client::Unidentified | Client::Refused(_), _) => self.strangers.clone(),
        }
    }

    /// Returns the tenant of a pod.
    pub(crate) fn pod(&mut self, pod: &P) -> Rc<Tenant<P>> {
        let new = || Tenant::new(pod.id(), pod.connections().clone(), pod.long_polls().clone(), &self.budget);
        self.pods.entry(pod.id()).or_insert_with(new).clone()
    }

    /// Removes all tenants that have no connection on this thread.
    pub(crate) fn sweep(&mut self) {
        let has_connections = |tenant: &Rc<Tenant<P>>| Rc::strong_count(tenant) > 1;
        self.pods.retain(|_, tenant| has_connections(tenant));
        self.addresses.retain(|_, tenant| has_connections(tenant));
    }
}
