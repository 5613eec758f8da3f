//! Which pod is at the other end of a connection.
//!
//! A way of attestation is a file here: it answers with a [`AttestationVerdict`], and says what that rests on. One of them per
//! configuration, named in it, and no fallback from one to another: an address that it does not know is nobody's, and the caller
//! is refused whatever it asks. There is no default pod and no node identity to fall back to, because a wrong credential is
//! worse than none. Refuses to know what a pod may have, and how a refusal is worded; both are the agent's, which asks once
//! per connection.

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

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttestationVerdict {
    /// This pod.
    Pod(PodUid),
    /// Nobody known at this moment. Waiting can help.
    Pending,
    /// Nobody, and waiting does not help.
    Rejected(RejectionReason),
}

/// Why no pod is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectionReason {
    /// No pod has this address, and none will.
    UnknownAddress,
    /// It comes from the node's own network, where pods cannot be told apart by their addresses.
    HostNetwork,
    /// No pod that has been told of has this address. One that has not may.
    UnknownPod,
    /// Nothing has been told of the node's pods at all.
    NotListed,
    /// More than one pod has this address, or may have.
    Ambiguous,
    /// One was told of, and it is not proven that nothing else has been told since.
    StaleView,
    /// The kernel kept no word of it that fits the pod at this address.
    NoConnectionRecord,
}

/// A way of attestation at work, asked by all traffic threads.
pub(crate) trait Attestation: Debug + Send + Sync {
    /// Who it is, decided without waiting.
    fn verdict(&self, ends: &ConnectionEnds<'_>) -> AttestationVerdict;

    /// Who it probably is, after [`AttestationVerdict::Pending`]: by what was told last, proven or not. For shares and for reasons, never
    /// for credentials.
    ///
    /// # Errors
    /// Why nobody is named.
    fn guess(&self, ends: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason>;

    /// Who it is, after [`AttestationVerdict::Pending`], as soon as it can be said for certain. Waits for that itself, and is woken by whoever
    /// brings the proof; nobody need ask again meanwhile. Put a limit around it.
    ///
    /// # Errors
    /// It is certain that nobody is named at this moment, and why. [`Self::wait_for_change`] says when to ask again.
    fn attest<'a>(&'a self, ends: ConnectionEnds<'a>) -> AttestFuture<'a, Result<PodUid, RejectionReason>>;

    /// Waits until [`Self::attest`] may say something else than it says at the moment of this call; for ever where it never does.
    /// Taken before asking, it misses nothing. What else makes somebody of a connection (that what its pod may have is decided) is
    /// not attestation's, and is waited for beside it.
    fn wait_for_change(&self) -> AttestFuture<'_, ()>;

    /// This connection was taken for this pod's, for good: what spoke for it is not needed again.
    fn discard_evidence(&self, _uid: &PodUid, _ends: &ConnectionEnds<'_>) {}

    /// Whether what is known of a pod was known when this connection was taken for its: who keeps pods may be a moment behind.
    fn covers(&self, basis: &AttestedAddresses, ends: &ConnectionEnds<'_>) -> bool;

    /// The addresses of a pod, for people, by what it rests on that it is told from others.
    fn addresses<'b>(&self, basis: &'b AttestedAddresses) -> &'b [IpAddr];
}

/// A pod as a view of the cluster tells of it.
pub(crate) struct PodNetwork<'a> {
    /// Its own addresses.
    pub(crate) addresses: &'a [IpAddr],
    /// Whether it shares the node's network.
    pub(crate) host_network: bool,
    /// Whether it alone claims an address in this view.
    pub(crate) claims: &'a dyn Fn(IpAddr) -> bool,
}
