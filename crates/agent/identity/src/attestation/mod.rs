//! Identifies the pod at the other end of a connection.
//!
//! Each attestation strategy is a file here: it answers with an [`AttestationVerdict`] and names the addresses that the verdict
//! rests on. The configuration names one strategy, and there is no fallback to another one: an address that the strategy does not
//! know belongs to no pod, and every request from it is refused. There is no default pod and no node identity to fall back to,
//! because a wrong credential is worse than none. Does not know what a pod may have, nor how a refusal is worded; both belong to
//! the agent, which asks once per connection.

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
    /// No pod is known at this moment. Waiting can help.
    Pending,
    /// No pod is at the other end, and waiting does not help.
    Rejected(RejectionReason),
}

/// The reason why no pod is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectionReason {
    /// No pod has this address, and none will.
    UnknownAddress,
    /// The connection comes from the node's own network, where addresses do not identify pods.
    HostNetwork,
    /// No known pod has this address. A pod that is not known yet may have it.
    UnknownPod,
    /// The API server has not listed the node's pods yet.
    PodsNotSynced,
    /// More than one pod has this address, or may have it.
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

    /// Returns the likely pod after [`AttestationVerdict::Pending`]: by the last view, proven or not. Use it for shares and for
    /// refusal reasons, never for credentials.
    ///
    /// # Errors
    /// The reason why no pod is named.
    fn guess(&self, ends: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason>;

    /// Identifies the pod after [`AttestationVerdict::Pending`], as soon as that is certain. It waits for the proof by itself, so
    /// do not call it again meanwhile. Set a timeout.
    ///
    /// # Errors
    /// It is certain that no pod is named at this moment; the error is the reason. [`Self::wait_for_change`] says when to ask again.
    fn attest<'a>(&'a self, ends: ConnectionEnds<'a>) -> AttestFuture<'a, Result<PodUid, RejectionReason>>;

    /// Waits until [`Self::attest`] may give a different answer than at the moment of this call; for ever if it never does.
    /// Call it before asking, so that no change is missed. It does not cover the decision on a pod's entitlements, which the resolver
    /// awaits separately.
    fn wait_for_change(&self) -> AttestFuture<'_, ()>;

    /// Discards the evidence for this connection, because the connection now belongs to this pod for good.
    fn discard_evidence(&self, _uid: &PodUid, _ends: &ConnectionEnds<'_>) {}

    /// True if a pod's stored basis covers this connection. The registry may be a moment behind the view that named the pod.
    fn covers(&self, basis: &AttestedAddresses, ends: &ConnectionEnds<'_>) -> bool;

    /// The addresses of a pod for display, from the basis on which it is identified.
    fn addresses<'b>(&self, basis: &'b AttestedAddresses) -> &'b [IpAddr];
}

/// A pod's network, as a view of the cluster reports it.
pub(crate) struct PodNetwork<'a> {
    /// The pod's own addresses.
    pub(crate) addresses: &'a [IpAddr],
    /// True if the pod shares the node's network.
    pub(crate) host_network: bool,
    /// Returns true if the pod alone claims an address in this view.
    pub(crate) claims: &'a dyn Fn(IpAddr) -> bool,
}
