//! The party at the other end of a connection, as far as the server needs to know it.
//!
//! Two traits invert the dependency on purpose, because the server stands below the crates that implement them:
//! - [`ServedPod`] is implemented by the crate that keeps pods.
//! - [`ClientResolver`] is implemented by the crate that identifies the pod at the other end of a connection.
//!
//! The server accounts everything that clients share by [`ClientId`]. A [`ClientId`] says only that two connections belong to one
//! client.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seawall_core::attestation::{AttestFuture, ConnectionEnds};
use seawall_core::cloud::CloudName;
use seawall_http::Refusal;

use crate::permit_counter::PermitCounter;
use crate::route::MetadataRoute;

/// Identifies a client on every thread, for as long as the process runs.
/// The crate that keeps clients gives each client one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(u64);

impl ClientId {
    /// The id that all clients without a known identity share. They count as one client.
    pub const UNKNOWN: Self = Self(0);

    /// Returns an id that no client has had.
    /// The process never reuses a number, so nothing that is kept by an id passes to another client.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The client whose shares of process-wide resources a request uses: upstream permits and long polls.
#[derive(Clone, Copy, Debug)]
pub struct ClientShares<'a> {
    /// The client.
    pub client: ClientId,
    /// Counts the client's long polls on all threads.
    pub long_polls: &'a Arc<PermitCounter>,
}

/// A pod, as the server needs to know it.
/// The crate that keeps pods implements this trait once; the trait inverts the dependency between the two crates.
pub trait ServedPod: Debug + Send + Sync + 'static {
    /// Returns the pod's client id, which differs from every other client's.
    fn id(&self) -> ClientId;

    /// Counts its open connections, on all threads. Closed when the pod is gone.
    fn connections(&self) -> &Arc<PermitCounter>;

    /// Counts the pod's long polls, on all threads.
    fn long_polls(&self) -> &Arc<PermitCounter>;

    /// Returns once the pod's entitlements at this cloud are decided.
    fn wait_for_entitlements(&self, cloud: CloudName) -> AttestFuture<'_, ()>;

    /// Records that the pod received a credential.
    /// `head` is the request's head. It is `None` if the answer took time: then [`Self::record_pending_fetch`] received the head.
    fn record_fetch(&self, route: &MetadataRoute, head: Option<&[u8]>);

    /// Records that the pod requests, by this head, a credential that takes time.
    fn record_pending_fetch(&self, route: &MetadataRoute, head: &[u8]);
}

/// Identifies the pod at the other end of a connection.
/// The `identity` crate, which stands above the server, implements this trait once; the trait inverts that dependency. A thread calls
/// it once for each connection, and once more for each wait.
pub trait ClientResolver<P>: Debug + Send + Sync {
    /// Returns the client, without waiting.
    fn resolve(&self, ends: &ConnectionEnds<'_>) -> Client<P>;

    /// Returns the pod that is probably at the other end. Use it for shares, never for credentials.
    fn likely_pod(&self, ends: &ConnectionEnds<'_>) -> Option<Arc<P>>;

    /// Returns the pod as soon as it is proven.
    /// Returns `None` if it is proven that no known pod has decided entitlements at this cloud.
    fn attest_pod<'a>(
        &'a self,
        ends: ConnectionEnds<'a>,
        cloud: CloudName,
    ) -> AttestFuture<'a, Option<Arc<P>>>;

    /// Returns the pod once one is known and its entitlements at this cloud are decided. Otherwise the future never ends.
    fn wait_for_pod<'a>(&'a self, ends: ConnectionEnds<'a>, cloud: CloudName) -> AttestFuture<'a, Arc<P>>;

    /// Explains why no pod can be given anything of this cloud.
    fn explain_refusal(&self, ends: &ConnectionEnds<'_>, cloud: CloudName) -> Refusal;
}

/// The party at the other end of one connection.
#[derive(Debug)]
pub enum Client<P> {
    /// A pod that attestation named.
    Pod(Arc<P>),
    /// A client of the strategy `anyone`, which serves every address.
    Anyone,
    /// This agent's own readiness request.
    Probe,
    /// The pod is not known at this moment. Waiting can help.
    Unidentified,
    /// A client that is refused, with the reason.
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
    /// True if the client is a pod that is gone.
    pub fn is_pod_gone(&self) -> bool {
        matches!(self, Self::Pod(pod) if pod.connections().is_closed())
    }

    /// True if the next connection from the same address may resolve to another client.
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
