//! Identifies the pod at the other end of a connection.
//!
//! Each attestation strategy has one file in this folder. A strategy returns an [`AttestationVerdict`] and the addresses on
//! which the verdict is based. The configuration selects one strategy; the agent never falls back to another strategy. If the
//! strategy does not know an address, the agent refuses every request from that address. The agent never assumes a default pod
//! or the node's identity, because a wrong credential is worse than none. This module does not know which credentials a pod is
//! allowed to get, or the text of a refusal. The agent attests each connection once.

mod kernel;
mod source_ip;
mod static_file;
mod token_file;

use std::fmt::Debug;
use std::net::IpAddr;

use seawall_core::PodUid;
use seawall_core::attestation::{AttestFuture, AttestedAddresses, ConnectionEnds};

pub(crate) use kernel::{ConnectionRecords, KernelAttestation, PodLookup, RecordOwner, SocketPair};
pub(crate) use source_ip::{AddressLookupError, PodsByAddress, SourceIpAttestation};
pub(crate) use static_file::{StaticIdentity, StaticPod};
pub(crate) use token_file::TokenFile;

/// The result of attesting one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttestationVerdict {
    /// The connection comes from this pod.
    Pod(PodUid),
    /// No pod is known yet. Waiting can help.
    Pending,
    /// The client is not a known pod, and waiting does not help.
    Rejected(RejectionReason),
}

/// The reason why attestation names no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectionReason {
    /// No pod has this address, and that will not change.
    UnknownAddress,
    /// The connection comes from the node's own network, where addresses do not identify pods.
    HostNetwork,
    /// No known pod has this address. A pod that is not known yet may have it.
    UnknownPod,
    /// The API server has not listed the node's pods yet.
    PodsNotSynced,
    /// More than one pod may have this address.
    Ambiguous,
    /// A pod is known at this address, but the view is not proven current.
    StaleView,
    /// The kernel has no record of the connection that matches the pod at this address.
    NoConnectionRecord,
}

/// A running attestation strategy, shared by all traffic threads.
pub(crate) trait Attestation: Debug + Send + Sync {
    /// Identifies the pod without waiting.
    fn verdict(&self, ends: &ConnectionEnds<'_>) -> AttestationVerdict;

    /// Returns the likely pod after [`AttestationVerdict::Pending`]. The latest view decides, even if it is not proven current.
    /// Use the result for fair shares and refusal reasons, never for credentials.
    ///
    /// # Errors
    /// The reason why no pod is named.
    fn guess(&self, ends: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason>;

    /// Identifies the pod after [`AttestationVerdict::Pending`], as soon as the pod is certain. The returned future waits for a
    /// proof if the strategy needs one. Set a timeout, because this wait can be long.
    ///
    /// # Errors
    /// No pod can be named at present; the error is the reason. Call again when [`Self::wait_for_change`] returns.
    fn attest<'a>(&'a self, ends: ConnectionEnds<'a>) -> AttestFuture<'a, Result<PodUid, RejectionReason>>;

    /// Waits until [`Self::attest`] could return another result than at the time of this call. If the result can never change,
    /// the future never ends. Create the future before you call `attest`, so that no change is missed. The resolver separately
    /// waits for the decision on a pod's entitlements.
    fn wait_for_change(&self) -> AttestFuture<'_, ()>;

    /// Discards the evidence for this connection, because the agent has assigned the connection to this pod.
    fn discard_evidence(&self, _uid: &PodUid, _ends: &ConnectionEnds<'_>) {}

    /// True if `basis`, the addresses by which a pod was attested, covers this connection. Check this for each connection,
    /// because the registry that stores the basis may be slightly older than the view that named the pod.
    fn covers(&self, basis: &AttestedAddresses, ends: &ConnectionEnds<'_>) -> bool;

    /// Returns the addresses in `basis`, for display.
    fn addresses<'b>(&self, basis: &'b AttestedAddresses) -> &'b [IpAddr];
}

/// A pod's network data in one view of the cluster.
pub(crate) struct PodNetwork<'a> {
    /// The pod's own addresses.
    pub(crate) addresses: &'a [IpAddr],
    /// True if the pod shares the node's network.
    pub(crate) host_network: bool,
    /// Returns true if only this pod claims the address in this view.
    pub(crate) claims: &'a dyn Fn(IpAddr) -> bool,
}
