//! The client of a connection, as the server sees it.
//!
//! Two traits invert the dependency, because the crates that implement them depend on this crate:
//! - [`ServedPod`] is implemented by the crate that keeps the registry of pods.
//! - [`ClientResolver`] is implemented by the crate that identifies the pod of a connection.
//!
//! The server accounts all shared resources by [`ClientId`]. Two connections with the same [`ClientId`] belong to one client. The
//! id has no other meaning.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seawall_core::attestation::{AttestFuture, ConnectionEnds};
use seawall_core::cloud::CloudName;
use seawall_http::Refusal;

use crate::connection_permits::PermitCounter;
use crate::route::MetadataRoute;

/// The id of a client on all threads, while the process runs.
/// The crate with the registry of pods gives each client one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(u64);

impl ClientId {
    /// The id of all clients without a known identity. They count as one client.
    pub const UNKNOWN: Self = Self(0);

    /// Returns a new id.
    /// The process never reuses an id, so data that is stored under an id cannot pass to another client.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The client whose shares of process-wide resources a request uses. The resources are upstream permits and long polls.
#[derive(Clone, Copy, Debug)]
pub struct ClientShares<'a> {
    /// The client.
    pub client: ClientId,
    /// Counts the client's long polls on all threads.
    pub long_polls: &'a Arc<PermitCounter>,
}

/// A pod, as the server sees it.
/// The crate with the registry of pods implements this trait. The trait inverts the dependency between the two crates.
pub trait ServedPod: Debug + Send + Sync + 'static {
    /// Returns the pod's client id. No other client has the same id.
    fn id(&self) -> ClientId;

    /// Counts the pod's open connections on all threads. The counter is closed when the pod is deleted.
    fn connections(&self) -> &Arc<PermitCounter>;

    /// Counts the pod's long polls, on all threads.
    fn long_polls(&self) -> &Arc<PermitCounter>;

    /// Returns once the pod's entitlements at this cloud are decided.
    fn wait_for_entitlements(&self, cloud: CloudName) -> AttestFuture<'_, ()>;

    /// Records that the pod received a credential.
    /// `head` is the head of the request. It is `None` for a delayed answer, because [`Self::record_pending_fetch`] already
    /// received the head.
    fn record_fetch(&self, route: &MetadataRoute, head: Option<&[u8]>);

    /// Records that the pod requested a credential with this head, and that the credential is not ready yet.
    fn record_pending_fetch(&self, route: &MetadataRoute, head: &[u8]);
}

/// Identifies the pod at the other end of a connection.
/// The `identity` crate implements this trait. The trait inverts the dependency between the two crates. A thread calls it once per
/// connection, and once more per wait.
pub trait ClientResolver<P>: Debug + Send + Sync {
    /// Returns the client without waiting.
    fn resolve(&self, ends: &ConnectionEnds<'_>) -> Client<P>;

    /// Returns the pod that is probably the client. Use it for shares, never for credentials.
    fn likely_pod(&self, ends: &ConnectionEnds<'_>) -> Option<Arc<P>>;

    /// Waits for attestation, then returns the pod.
    /// Returns `None` if attestation shows that no known pod with decided entitlements at this cloud is the client.
    fn attest_pod<'a>(
        &'a self,
        ends: ConnectionEnds<'a>,
        cloud: CloudName,
    ) -> AttestFuture<'a, Option<Arc<P>>>;

    /// Returns the pod after it is known and its entitlements at this cloud are decided. Otherwise the future never completes.
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
    /// This agent's own readiness request.
    Probe,
    /// A client whose pod is not known yet. A wait can help.
    Unidentified,
    /// A client that the agent refuses, and the reason.
    Refused(Refusal),
}

impl<P> Clone for Client<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Pod(pod) => Self::Pod(pod.clone()),
            Self::Anyone => Self::Anyone,
            Self::Probe => Self::Probe,
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

    /// True if a later connection from the same address may resolve to another client.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.is_retryable(),
            Self::Unidentified => true,
            Self::Pod(_) => self.is_pod_gone(),
            Self::Anyone | Self::Probe => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_clients_have_one_number_and_none_is_a_stranger() {
        let (one, other) = (ClientId::unique(), ClientId::unique());
        assert!(one != other && one != ClientId::UNKNOWN && other != ClientId::UNKNOWN);
    }
}
