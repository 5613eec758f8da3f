//! Defines what kernel attestation reads: the kernel's records of connections, and the pods that claim addresses.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};

use seawall_core::PodUid;

use super::PodsByAddress;

/// The two ends of a connection, as the accepting side sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketPair {
    /// The address and port of the client.
    pub(crate) peer: SocketAddr,
    /// The address and port of this agent.
    pub(crate) local: SocketAddr,
}

/// The owner under which the kernel stores the record of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOwner<'a> {
    /// A pod with its own network namespace.
    Pod(&'a PodUid),
    /// The node's own network.
    Node,
}

/// The kernel's records of newly opened connections.
pub(crate) trait ConnectionRecords: Debug + Send + Sync {
    /// Returns the pod that opened this connection, if the kernel has a record of the connection under this owner.
    fn find(&self, owner: RecordOwner<'_>, pair: SocketPair) -> Option<PodUid>;

    /// Deletes the record of this connection, so that no later connection with the same two ends can use it.
    fn forget(&self, owner: RecordOwner<'_>, pair: SocketPair);

    /// Counts a connection that comes from a pod's address but has no matching record. The strategy calls this function once
    /// per connection.
    fn count_missed(&self) {}
}

/// Looks up the node's pods, including pods on the node's network.
pub(crate) trait PodAddressClaims: PodsByAddress {
    /// Returns the only pod that claims this address. If this pod is shutting down, another pod can already have the address.
    /// The kernel's record then shows which of the two pods opened a connection.
    fn claimant_at(&self, address: IpAddr) -> Option<PodUid>;

    /// Returns all addresses that exactly one pod with a network of its own claims.
    fn claimed_addresses(&self) -> Vec<IpAddr>;

    /// Returns the version of the view of pods. It changes with each change of the pods.
    fn version(&self) -> u64;

    /// True if the pod with this UID is alive and uses the node's network.
    fn is_host_network(&self, uid: &PodUid) -> bool;

    /// Returns the live pods of the trusted proxies (`identity.trustedProxies`).
    fn trusted_proxies(&self) -> Vec<PodUid> {
        Vec::new()
    }
}
