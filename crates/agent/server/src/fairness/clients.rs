//! Whose connection it is, for everything that is shared: one [`Tenant`] for each caller on a thread. Used by the thread only.
//!
//! A pod is a caller. So is an address where everybody is served (`anyone`). Those whom nothing is given to (strangers, the
//! node's own processes, pods not known yet) are *one* caller together: whoever can send from many addresses must not have
//! many shares for it.
//!
//! This is about shares and never about credentials: who somebody is, and what it may have, is decided by whoever resolves clients.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::{buffer_budget, scheduler};
use crate::client::{Client, ClientId, ClientShares, ServedPod};
use crate::permit_counter::PermitCounter;
use crate::replay_cache::ReplayCache;

/// One caller's shares of a thread.
#[derive(Debug)]
pub(crate) struct Tenant<P> {
    pub(crate) id: ClientId,
    /// How many connections it has, on all threads.
    pub(crate) connections: Arc<PermitCounter>,
    /// How many of its requests wait for a change, on all threads.
    pub(crate) long_polls: Arc<PermitCounter>,
    pub(crate) turns: Rc<scheduler::ClientTurns>,
    pub(crate) buffers: Rc<buffer_budget::BufferShare>,
    /// What it asked last.
    pub(crate) replay_cache: ReplayCache<P>,
}

/// A thread's tenants.
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

    /// Its shares of what the threads share.
    pub(crate) fn shares(&self) -> ClientShares<'_> {
        ClientShares { client: self.id, long_polls: &self.long_polls }
    }
}

impl<P: ServedPod> Tenants<P> {
    /// Who may hold `held` bytes together; `strangers` counts the connections of those whom nothing is given to, on all threads.
    pub(crate) fn new(held: usize, strangers: Arc<PermitCounter>) -> Self {
        let budget = buffer_budget::BufferBudget::new(held);
        let strangers = Tenant::new(ClientId::UNKNOWN, strangers, Arc::default(), &budget);
        Self { budget, strangers, pods: BTreeMap::new(), addresses: HashMap::new() }
    }

    /// The tenant of a caller. `likely` is the pod that an address is thought to be of while that is not certain.
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

    /// The tenant of a pod.
    pub(crate) fn pod(&mut self, pod: &P) -> Rc<Tenant<P>> {
        let new = || Tenant::new(pod.id(), pod.connections().clone(), pod.long_polls().clone(), &self.budget);
        self.pods.entry(pod.id()).or_insert_with(new).clone()
    }

    /// Forgets those without a connection here.
    pub(crate) fn sweep(&mut self) {
        let has_connections = |tenant: &Rc<Tenant<P>>| Rc::strong_count(tenant) > 1;
        self.pods.retain(|_, tenant| has_connections(tenant));
        self.addresses.retain(|_, tenant| has_connections(tenant));
    }
}
