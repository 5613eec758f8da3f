//! A view of the cluster and the node's routes, for the tests of attestation.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use seawall_core::PodUid;
use seawall_core::attestation::AttestFuture;
use seawall_redirect::PodNamespace;

use super::{AddressLookupError, NodeRoutes, PodAddressClaims, PodsByAddress};

pub(super) fn uid(text: &str) -> PodUid {
    PodUid(text.into())
}

/// A view of the cluster: the pod that claims each address, and the pods on the node's network.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) claims: HashMap<IpAddr, &'static str>,
    pub(super) on_node: Vec<&'static str>,
    pub(super) proxies: Vec<&'static str>,
    /// The addresses whose pod shuts down, so that another pod can already have them.
    pub(super) reassignable: Vec<IpAddr>,
    /// True if the view is proven current. Kernel attestation depends on this only for connections of trusted proxies.
    pub(super) is_current: bool,
    /// The version of the view.
    pub(super) version: u64,
}

impl PodsByAddress for View {
    fn uid_at(&self, address: IpAddr) -> Result<PodUid, AddressLookupError> {
        if self.reassignable.contains(&address) {
            return Err(AddressLookupError::Ambiguous);
        }
        self.claimant_at(address).ok_or(AddressLookupError::Absent)
    }

    fn is_current(&self) -> bool {
        self.is_current
    }

    fn wait_until_current(&self) -> AttestFuture<'_, ()> {
        if self.is_current { Box::pin(async {}) } else { Box::pin(std::future::pending()) }
    }

    fn wait_for_newer(&self) -> AttestFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

impl PodAddressClaims for View {
    fn claimant_at(&self, address: IpAddr) -> Option<PodUid> {
        self.claims.get(&address).map(|uid| self::uid(uid))
    }

    fn claimed_addresses(&self) -> Vec<IpAddr> {
        self.claims.keys().copied().collect()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn is_host_network(&self, uid: &PodUid) -> bool {
        self.on_node.iter().any(|known| *known == &*uid.0)
    }

    fn trusted_proxies(&self) -> Vec<PodUid> {
        self.proxies.iter().map(|name| uid(name)).collect()
    }
}

/// The node's routes: the number of the namespace that each address leads to. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes(Arc<Mutex<RouteTable>>);

#[derive(Debug, Default)]
struct RouteTable {
    leads: HashMap<IpAddr, u32>,
    /// The address whose route changes after its next reading.
    then: Option<(IpAddr, u32)>,
    readings: usize,
}

impl Routes {
    pub(super) fn lead(&self, address: &str, number: Option<u32>) {
        let (address, mut table) = (address.parse().unwrap(), self.0.lock().unwrap());
        match number {
            Some(number) => table.leads.insert(address, number),
            None => table.leads.remove(&address),
        };
    }

    pub(super) fn lead_then(&self, address: &str, number: u32) {
        self.0.lock().unwrap().then = Some((address.parse().unwrap(), number));
    }

    pub(super) fn readings(&self) -> usize {
        self.0.lock().unwrap().readings
    }
}

impl NodeRoutes for Routes {
    fn namespace_of(&mut self, address: IpAddr, _: Option<IpAddr>) -> Option<PodNamespace> {
        let mut table = self.0.lock().unwrap();
        table.readings += 1;
        let found = table.leads.get(&address).copied();
        if let Some((changed, to)) = table.then.take_if(|(changed, _)| *changed == address) {
            table.leads.insert(changed, to);
        }
        found.map(PodNamespace::from_number)
    }
}
