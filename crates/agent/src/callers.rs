//! Who is at the other end of a connection, decided once when it is accepted.
//!
//! The strategy is named in the configuration and there is no fallback from one to another. An address that the
//! strategy does not know is nobody's: it is refused whatever it asks. There is no default pod and no node identity to
//! fall back to, because a wrong credential is worse than none.
//!
//! With `source-ip` the answer can also be "not known yet" ([`Caller::Unsettled`]): the API server tells of a pod's
//! address about when its first container starts, so a request may wait a moment ([`Callers::settled`]) before it is
//! refused. What a pod may have are its [`Entitlements`], which `follow` replaces as the cluster changes; a pod that loses its
//! address is closed for good, and its next connection is decided anew.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use seawall_attest::StaticIdentity;
use seawall_cloud::Refusal;
use seawall_cluster::{NoPod, Pods};
use seawall_core::{Pod, PodUid};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};

use crate::cloud::Entitlements;
use crate::connections::Cap;
use crate::ready::ProbeAddress;

/// A pod as connections know it.
#[derive(Debug)]
pub(crate) struct PodCaller {
    pub(crate) pod: Pod,
    pub(crate) addresses: Box<[IpAddr]>,
    entitlements: ArcSwap<Entitlements>,
    /// Tells long polls that they were replaced. No channel: one of those is larger than all else here.
    replaced: Notify,
    /// Closed when the pod no longer has one of its addresses for itself.
    pub(crate) connections: Arc<Cap>,
    pub(crate) long_polls: Arc<Cap>,
}

impl PodCaller {
    pub(crate) fn new(pod: Pod, addresses: Box<[IpAddr]>, entitlements: Entitlements) -> Self {
        Self {
            pod,
            addresses,
            entitlements: ArcSwap::from_pointee(entitlements),
            replaced: Notify::new(),
            connections: Arc::default(),
            long_polls: Arc::default(),
        }
    }

    /// What it may have now: one atomic read.
    pub(crate) fn entitlements(&self) -> Guard<Arc<Entitlements>> {
        self.entitlements.load()
    }

    /// Gives it others and wakes whoever waits for a change.
    pub(crate) fn replace(&self, entitlements: Entitlements) {
        self.entitlements.store(Arc::new(entitlements));
        self.replaced.notify_waiters();
    }

    /// The next change of what it may have after this call, whether or not it is being waited for by then.
    pub(crate) fn change(&self) -> Notified<'_> {
        self.replaced.notified()
    }
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
    /// Nobody known at this moment. Waiting can help.
    Unsettled,
    /// Nobody: refused, and why.
    Nobody(Refusal),
}

impl Caller {
    /// Whether this was a pod that is gone, or has lost its address.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Pod(pod) if pod.connections.is_closed())
    }

    /// Whether this may be another caller on the next connection, so that this one must end.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Nobody(refusal) => refusal.is_retryable(),
            Self::Unsettled => true,
            Self::Pod(_) => self.is_gone(),
            Self::Anyone | Self::Probe => false,
        }
    }
}

/// The pods that `follow` keeps in step with the cluster. One writer; readers take no lock.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// In the order of UIDs: a map of the same is three times as large, and there are two of them whenever one replaces the other.
    pods: ArcSwap<Box<[Arc<PodCaller>]>>,
    versions: watch::Sender<u64>,
}

impl Roster {
    /// Everybody in it.
    pub(crate) fn pods(&self) -> Vec<Arc<PodCaller>> {
        self.pods.load().to_vec()
    }

    /// Replaces everybody by these, in the order of their UIDs; wakes requests that wait for a pod.
    pub(crate) fn publish(&self, pods: Box<[Arc<PodCaller>]>) {
        debug_assert!(pods.is_sorted_by_key(|caller| caller.pod.uid.0.clone()), "looked up by bisection");
        self.pods.store(Arc::new(pods));
        self.versions.send_modify(|version| *version += 1);
    }

    fn find(&self, uid: &PodUid) -> Option<Arc<PodCaller>> {
        let pods = self.pods.load();
        let at = pods.binary_search_by(|caller| caller.pod.uid.0.cmp(&uid.0)).ok()?;
        pods.get(at).cloned()
    }
}

/// The strategy's knowledge, shared by the traffic threads.
#[derive(Debug)]
pub(crate) struct Callers {
    known: Known,
    probe: ProbeAddress,
}

#[derive(Debug)]
enum Known {
    File(HashMap<IpAddr, Arc<PodCaller>>),
    Cluster { pods: Pods, roster: Arc<Roster> },
    Anyone,
}

/// 403 and not 503: in `static` identity nothing changes by trying again, and SDKs would retry a 503.
const UNKNOWN_CALLER: Refusal = Refusal::new(
    403,
    "unknown_caller",
    "No pod is known at this source address, so nothing is answered to it.",
);

const UNKNOWN_POD: Refusal = Refusal::new(
    503,
    "unknown_pod",
    "The cluster has not yet told of a pod at this source address; try again shortly.",
);

const NOT_LISTED: Refusal = Refusal::new(
    503,
    "not_listed",
    "The API server has not yet been heard, so no pod of this node is known; try again shortly.",
);

const LAGGING: Refusal = Refusal::new(
    503,
    "lagging",
    "The agent has not yet applied what the API server told it, so nobody is answered; try again shortly.",
);

const AMBIGUOUS: Refusal = Refusal::new(
    503,
    "ambiguous_address",
    "More than one live pod has this source address, so nobody is answered at it; try again shortly.",
);

const HOST_NETWORK: Refusal = Refusal::new(
    403,
    "host_network",
    "This request comes from the node's own network, where pods cannot be told apart by their addresses.",
);

impl Callers {
    /// `static` identity: the pods of a file. `entitle` says what each may have.
    pub(crate) fn of_file(
        identity: &StaticIdentity,
        probe: ProbeAddress,
        entitle: impl Fn(&seawall_attest::Attested) -> Entitlements,
    ) -> Self {
        let caller = |(address, attested): (IpAddr, &Arc<seawall_attest::Attested>)| {
            let caller = PodCaller::new(attested.pod.clone(), [address].into(), entitle(attested));
            (address, Arc::new(caller))
        };
        Self { known: Known::File(identity.pods().map(caller).collect()), probe }
    }

    /// `source-ip`: the pods of this node, as the API server tells.
    pub(crate) fn of_cluster(pods: Pods, roster: Arc<Roster>, probe: ProbeAddress) -> Self {
        Self { known: Known::Cluster { pods, roster }, probe }
    }

    /// `anyone`: every address is served; only `conceal` may be configured so.
    pub(crate) fn anyone(probe: ProbeAddress) -> Self {
        Self { known: Known::Anyone, probe }
    }

    /// Who is at `peer`, on a connection to `local`, which is asked for only where it matters.
    ///
    /// The probe is recognised by address *and* port, both owned by this process's own socket while the probe lasts; no
    /// other socket on this node can have them towards the same listener.
    pub(crate) fn at(&self, peer: SocketAddr, local: impl FnOnce() -> Option<SocketAddr>) -> Caller {
        let ip = peer.ip().to_canonical();
        if self.probe.load().as_deref() == Some(&SocketAddr::new(ip, peer.port())) {
            return Caller::Probe;
        }
        match &self.known {
            Known::Anyone => Caller::Anyone,
            Known::File(pods) => {
                pods.get(&ip).map_or(Caller::Nobody(UNKNOWN_CALLER), |pod| Caller::Pod(pod.clone()))
            }
            // Whoever has the address that it connects to is on this very machine.
            Known::Cluster { .. }
                if ip.is_loopback() || local().is_some_and(|own| own.ip().to_canonical() == ip) =>
            {
                Caller::Nobody(HOST_NETWORK)
            }
            // A view that lags may name the last pod at an address that is another's by now.
            Known::Cluster { pods, .. } if !pods.is_current() => Caller::Unsettled,
            Known::Cluster { pods, roster } => {
                in_cluster(pods, roster, ip).map_or(Caller::Unsettled, Caller::Pod)
            }
        }
    }

    /// Who is probably at an address: by the last view, current or not. For shares, never for credentials.
    pub(crate) fn likely_at(&self, ip: IpAddr) -> Option<Arc<PodCaller>> {
        let Known::Cluster { pods, roster } = &self.known else { return None };
        in_cluster(pods, roster, ip.to_canonical()).ok()
    }

    /// Who is at an address by a view that is current. Never ends but in `source-ip`.
    pub(crate) async fn currently_at(&self, peer: SocketAddr) -> Option<Arc<PodCaller>> {
        let Known::Cluster { pods, roster } = &self.known else { return std::future::pending().await };
        pods.current().await;
        in_cluster(pods, roster, peer.ip().to_canonical()).ok()
    }

    /// Who is at an address that was nobody's: as soon as it is somebody's. Never ends otherwise.
    pub(crate) async fn settled(&self, peer: SocketAddr) -> Arc<PodCaller> {
        let Known::Cluster { pods, roster } = &self.known else { return std::future::pending().await };
        let ip = peer.ip().to_canonical();
        let mut versions = roster.versions.subscribe();
        loop {
            versions.borrow_and_update();
            pods.current().await;
            if let Ok(pod) = in_cluster(pods, roster, ip) {
                return pod;
            }
            if versions.changed().await.is_err() {
                // The writer is gone, so nothing will ever be told.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Why an address is nobody's.
    pub(crate) fn why_nobody(&self, peer: SocketAddr) -> Refusal {
        match &self.known {
            Known::Cluster { pods, roster } => {
                in_cluster(pods, roster, peer.ip().to_canonical()).err().unwrap_or(LAGGING)
            }
            Known::File(_) | Known::Anyone => UNKNOWN_CALLER,
        }
    }

    /// Every known pod, in the order of addresses.
    pub(crate) fn pods(&self) -> Vec<Arc<PodCaller>> {
        let mut pods: Vec<_> = match &self.known {
            Known::File(pods) => pods.values().cloned().collect(),
            Known::Cluster { roster, .. } => roster.pods(),
            Known::Anyone => Vec::new(),
        };
        pods.sort_by(|a, b| a.addresses.cmp(&b.addresses));
        pods
    }
}

/// Whose the address is, by the latest snapshot of the cluster: `follow` may be a moment behind it, and then the address
/// of a pod that has just gone is already nobody's.
fn in_cluster(pods: &Pods, roster: &Roster, ip: IpAddr) -> Result<Arc<PodCaller>, Refusal> {
    let snapshot = pods.snapshot();
    let record = snapshot.pod_at(ip).map_err(|none| match none {
        NoPod::Ambiguous => AMBIGUOUS,
        NoPod::Absent if snapshot.is_complete() => UNKNOWN_POD,
        NoPod::Absent => NOT_LISTED,
    })?;
    let caller = roster.find(&record.pod.uid).ok_or(UNKNOWN_POD)?;
    let is_settled = caller.addresses.contains(&ip) && !caller.entitlements().is_pending();
    if is_settled { Ok(caller) } else { Err(UNKNOWN_POD) }
}
