//! Identifies the pod at the other end of a connection.
//!
//! Each attestation strategy has one file in this folder. For each connection, a strategy returns an [`AttestationVerdict`].
//! The configuration selects one strategy; the agent never falls back to another strategy. If the strategy does not know an
//! address, the agent refuses every request from that address. The agent never assumes a default pod or the node's identity,
//! because a wrong credential is worse than no credential. This module does not decide which credentials a pod is allowed to
//! get, and contains no texts of refusals. The agent attests each connection once.

mod egress;
mod evidence;
mod kernel;
mod source_ip;
mod static_file;
mod token_file;
#[cfg(test)]
mod view_fixture;

use std::fmt::Debug;
use std::net::IpAddr;

use seawall_core::PodUid;
use seawall_core::attestation::{AttestFuture, AttestedAddresses, ConnectionEnds};

pub(crate) use egress::{EgressAddresses, EgressFinder, NodeRoutes};
pub(crate) use evidence::{ConnectionRecords, PodAddressClaims, RecordOwner, SocketPair};
pub(crate) use kernel::KernelAttestation;
pub(crate) use source_ip::{AddressLookupError, PodsByAddress, SourceIpAttestation};
pub(crate) use static_file::{StaticPod, StaticPodsByAddress};
pub(crate) use token_file::TokenFile;

/// The result of attesting one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttestationVerdict {
    /// The connection comes from this pod.
    Pod(PodUid),
    /// The pod at the other end is not known yet, but waiting can help.
    Pending,
    /// The client is not a known pod, and waiting does not help.
    Rejected(RejectionReason),
}

/// The reason why attestation finds no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectionReason {
    /// No pod has this address, and that will not change.
    UnknownAddress,
    /// The connection comes from the node's own network, where addresses do not identify pods.
    HostNetwork,
    /// No known pod has this address. A pod that the API server has not reported yet can have this address.
    UnknownPod,
    /// The API server has not listed the node's pods yet.
    PodsNotSynced,
    /// More than one pod may have this address.
    Ambiguous,
    /// The client is a static pod. Static pods have no ServiceAccount.
    NoServiceAccount,
    /// A pod is known at this address, but the agent has no proof that its view of pods is current.
    StaleView,
    /// The address is one that the API server does not report, and the node's route to it leads into no pod's network namespace.
    NoRouteToPod,
    /// The kernel has no record of the connection that matches the pod at this address.
    NoConnectionRecord,
}

/// A running attestation strategy, shared by all traffic threads.
pub(crate) trait Attestation: Debug + Send + Sync {
    /// Identifies the pod without waiting.
    fn verdict(&self, ends: &ConnectionEnds<'_>) -> AttestationVerdict;

    /// Returns the likely pod of a connection whose verdict is [`AttestationVerdict::Pending`]. The result comes from the
    /// latest view of pods, even if that view is outdated. Use the result to divide capacity among pods and to explain
    /// refusals, never to give credentials.
    ///
    /// # Errors
    /// Attestation finds no pod; the error is the reason.
    fn guess(&self, ends: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason>;

    /// Identifies the pod of a connection whose verdict is [`AttestationVerdict::Pending`]. If the strategy needs a proof that
    /// its view of pods is current, the returned future waits for the proof. The caller must set a timeout, because this wait
    /// can be long.
    ///
    /// # Errors
    /// Attestation finds no pod at present; the error is the reason. Call again when [`Self::wait_for_change`] returns.
    fn attest<'a>(&'a self, ends: ConnectionEnds<'a>) -> AttestFuture<'a, Result<PodUid, RejectionReason>>;

    /// Waits until the result of [`Self::attest`] may have changed since this call. If the result can never change, the future
    /// never completes. Create the future before you call `attest`, so that the future reports every later change. The future
    /// does not wait for decisions about a pod's entitlements; the resolver waits for these decisions separately.
    fn wait_for_change(&self) -> AttestFuture<'_, ()>;

    /// Deletes the kernel's record of this connection, after the agent has assigned the connection to this pod. Strategies
    /// without records do nothing.
    fn discard_evidence(&self, _uid: &PodUid, _ends: &ConnectionEnds<'_>) {}

    /// True if `basis`, the addresses by which a pod was attested, covers this connection. Check this for each connection,
    /// because the registry that stores the basis may be slightly older than the view that named the pod.
    fn covers(&self, basis: &AttestedAddresses, ends: &ConnectionEnds<'_>) -> bool;

    /// Returns the addresses in `basis`, for display.
    fn addresses<'b>(&self, basis: &'b AttestedAddresses) -> &'b [IpAddr];
}

/// A pod's network data in one snapshot of the node's pods.
pub(crate) struct PodNetwork<'a> {
    /// The pod's own addresses.
    pub(crate) addresses: &'a [IpAddr],
    /// True if the pod shares the node's network.
    pub(crate) uses_host_network: bool,
    /// Returns true if this pod claims the address and no other pod in the snapshot does.
    pub(crate) is_only_claimant_of: &'a dyn Fn(IpAddr) -> bool,
}
