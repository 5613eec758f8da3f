//! Who is at the other end of a connection, decided once when it is accepted.
//!
//! The strategy is named in the configuration and there is no fallback from one to another. An address that the
//! strategy does not know is [`Caller::Unknown`]: it is refused whatever it asks. There is no default pod and no
//! node identity to fall back to, because a wrong credential is worse than none.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use seawall_attest::{Attested, StaticIdentity};
use seawall_broker::Holder;
use seawall_cloud::gce;

use crate::connections::Cap;
use crate::ready::ProbeAddress;

/// A pod that may ask for credentials of its own.
#[derive(Debug)]
pub(crate) struct PodCaller {
    pub(crate) attested: Arc<Attested>,
    pub(crate) address: IpAddr,
    /// What it sees and holds in `federate`; nothing of its own in `conceal`.
    pub(crate) federated: Option<Federated>,
    pub(crate) connections: Arc<Cap>,
    pub(crate) long_polls: Arc<Cap>,
}

/// One pod's view of the metadata tree and the way to its leases.
#[derive(Debug)]
pub(crate) struct Federated {
    pub(crate) tree: Arc<gce::Tree>,
    pub(crate) holder: Arc<Holder>,
}

/// The other end of one connection.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// A pod that attestation named.
    Pod(Arc<PodCaller>),
    /// Somebody, where the strategy is `anyone`.
    Anyone,
    /// This agent's own readiness request.
    Probe,
    /// Nobody known: refused.
    Unknown,
}

/// The strategy's knowledge; immutable, shared by the traffic threads.
#[derive(Debug)]
pub(crate) struct Callers {
    pods: HashMap<IpAddr, Arc<PodCaller>>,
    anyone: bool,
    probe: ProbeAddress,
}

impl Callers {
    /// `static` identity: the pods of a file. `federated` gives each pod its view and its leases, if it has any.
    pub(crate) fn of_pods(
        identity: &StaticIdentity,
        probe: ProbeAddress,
        federated: impl Fn(&Attested) -> Option<Federated>,
    ) -> Self {
        let caller = |address: IpAddr, attested: &Arc<Attested>| PodCaller {
            attested: attested.clone(),
            address,
            federated: federated(attested),
            connections: Arc::default(),
            long_polls: Arc::default(),
        };
        let pods = identity.pods().map(|(at, pod)| (at, Arc::new(caller(at, pod)))).collect();
        Self { pods, anyone: false, probe }
    }

    /// `anyone`: every address is served; only `conceal` may be configured so.
    pub(crate) fn anyone(probe: ProbeAddress) -> Self {
        Self { pods: HashMap::new(), anyone: true, probe }
    }

    /// Who is behind this address.
    ///
    /// The probe is recognised by address *and* port, both owned by this process's own socket while the probe lasts; no
    /// other socket on this node can have them towards the same listener.
    pub(crate) fn at(&self, peer: SocketAddr) -> Caller {
        let ip = peer.ip().to_canonical();
        let peer = SocketAddr::new(ip, peer.port());
        if self.probe.load().as_deref() == Some(&peer) {
            return Caller::Probe;
        }
        match self.pods.get(&ip) {
            Some(pod) => Caller::Pod(pod.clone()),
            None if self.anyone => Caller::Anyone,
            None => Caller::Unknown,
        }
    }

    /// Every known pod, in the order of addresses.
    pub(crate) fn pods(&self) -> Vec<&Arc<PodCaller>> {
        let mut pods: Vec<_> = self.pods.values().collect();
        pods.sort_by_key(|pod| pod.address);
        pods
    }
}
