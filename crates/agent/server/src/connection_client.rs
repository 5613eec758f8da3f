//! Defines the client of a connection, from the server's point of view.
//!
//! Two traits describe pods to the server. Other crates implement these traits, so this crate does not depend on those crates:
//! - The crate `clouds` implements [`ServedPod`].
//! - The crate `identity` implements [`ClientResolver`].
//!
//! For each [`ClientId`], the server counts the use of all shared resources. Two connections with the same [`ClientId`] belong to
//! one client. The id has no other meaning.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seawall_core::attestation::{AttestFuture, ConnectionEnds};
use seawall_core::cloud::CloudName;
use seawall_http::Refusal;

use crate::connection_permits::PermitCounter;
use crate::route::MetadataRoute;

/// The id of a client, valid while the process runs.
/// A pod has the same id on all threads. Under the strategy `anyone`, the agent serves every address, and each thread creates an
/// id for each address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(u64);

impl ClientId {
    /// The id that all clients without a known identity share. The server counts them as one client.
    pub const UNKNOWN: Self = Self(0);

    /// Returns a new id.
    /// The process never reuses an id. Otherwise a new client could get the data that the server stored under an old client's id.
    pub fn new_unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The client whose shares a request uses.
/// The whole process has a limited number of upstream permits and of long polls. Each client has a share of both.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamChargedClient<'a> {
    /// The id of the client.
    pub client: ClientId,
    /// Counts the client's long polls on all threads.
    pub long_poll_counter: &'a Arc<PermitCounter>,
}

/// A pod, from the server's point of view. The crate `clouds` implements this trait.
pub trait ServedPod: Debug + Send + Sync + 'static {
    /// Returns the pod's client id. No other client has the same id.
    fn id(&self) -> ClientId;

    /// Returns the counter of the pod's open connections on all threads.
    /// The agent closes the counter when the pod is deleted or loses one of its attested addresses.
    fn connections(&self) -> &Arc<PermitCounter>;

    /// Returns the counter of the pod's long polls on all threads.
    fn long_polls(&self) -> &Arc<PermitCounter>;

    /// Waits until the pod's entitlements at this cloud are decided.
    fn wait_for_entitlements(&self, cloud: CloudName) -> AttestFuture<'_, ()>;

    /// Records that the pod received a credential.
    /// `head` is the request head. For a deferred response, `head` is `None`, because [`Self::record_pending_fetch`] already
    /// received the head.
    fn record_fetch(&self, route: &MetadataRoute, head: Option<&[u8]>);

    /// Records that the pod requested a credential with this head, and that the credential is not ready yet.
    fn record_pending_fetch(&self, route: &MetadataRoute, head: &[u8]);
}

/// Identifies the pod at the other end of a connection.
/// The crate `identity` implements this trait. A traffic thread calls [`Self::resolve`] once per connection. The thread calls the
/// other functions only while the client or its entitlements are unknown.
pub trait ClientResolver<P>: Debug + Send + Sync {
    /// Identifies the client of the connection. This function never waits.
    fn resolve(&self, ends: &ConnectionEnds<'_>) -> Client<P>;

    /// Returns the pod that is probably the client.
    /// The server counts the connection toward this pod's limits, but never sends credentials because of this guess.
    fn likely_pod(&self, ends: &ConnectionEnds<'_>) -> Option<Arc<P>>;

    /// Waits for attestation, then returns the pod.
    /// Returns `None` if the client is still unknown, or if the pod's entitlements at this cloud are still undecided.
    fn attest_pod<'a>(
        &'a self,
        ends: ConnectionEnds<'a>,
        cloud: CloudName,
    ) -> AttestFuture<'a, Option<Arc<P>>>;

    /// Waits until the client's pod is known and the pod's entitlements at this cloud are decided, then returns the pod.
    /// If that never happens, the future never completes.
    fn wait_for_pod<'a>(&'a self, ends: ConnectionEnds<'a>, cloud: CloudName) -> AttestFuture<'a, Arc<P>>;

    /// Returns the reason why this client gets no credentials of this cloud.
    fn explain_refusal(&self, ends: &ConnectionEnds<'_>, cloud: CloudName) -> Refusal;
}

/// The client of one connection.
#[derive(Debug)]
pub enum Client<P> {
    /// A pod that attestation identified.
    Pod(Arc<P>),
    /// Any client under the strategy `anyone`, which serves every address.
    Anyone,
    /// The readiness request that this agent sends to itself.
    OwnReadinessRequest,
    /// A client whose pod is not known yet. The pod can become known later.
    Unidentified,
    /// A client that the agent refuses. The value is the reason.
    Refused(Refusal),
}

impl<P> Clone for Client<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Pod(pod) => Self::Pod(pod.clone()),
            Self::Anyone => Self::Anyone,
            Self::OwnReadinessRequest => Self::OwnReadinessRequest,
            Self::Unidentified => Self::Unidentified,
            Self::Refused(refusal) => Self::Refused(*refusal),
        }
    }
}

impl<P: ServedPod> Client<P> {
    /// True if the client is a deleted pod.
    pub fn is_pod_gone(&self) -> bool {
        matches!(self, Self::Pod(pod) if pod.connections().is_closed())
    }

    /// True if a later connection from the same address can belong to another client.
    pub fn can_address_change_client(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.is_retryable(),
            Self::Unidentified => true,
            Self::Pod(_) => self.is_pod_gone(),
            Self::Anyone | Self::OwnReadinessRequest => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_clients_have_one_number_and_none_is_a_stranger() {
        let (one, other) = (ClientId::new_unique(), ClientId::new_unique());
        assert!(one != other && one != ClientId::UNKNOWN && other != ClientId::UNKNOWN);
    }
}
