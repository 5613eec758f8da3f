//! The party at the other end of a connection, as far as the server needs to know it.
//!
//! Two traits invert arrows on purpose: the server stands below whoever keeps pods ([`ServedPod`]) and whoever tells which pod is at the
//! other end ([`ClientResolver`]), and asks both. Everything that clients share goes by [`ClientId`], which says that two connections are
//! one client's, and nothing else of who that is.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seawall_core::attestation::{AttestFuture, ConnectionEnds};
use seawall_core::cloud::CloudName;
use seawall_http::Refusal;

use crate::permit_counter::PermitCounter;
use crate::route::MetadataRoute;

/// Tells a client from all others, on every thread and for as long as the process runs. Whoever keeps clients gives each of them one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(u64);

impl ClientId {
    /// All those whom nothing is given to. They are one client together.
    pub const UNKNOWN: Self = Self(0);

    /// One that no client has had. A number is never used again, so nothing that is kept by it becomes another client's.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Whose shares a request takes, of what the threads share: places at the real server, and long polls.
#[derive(Clone, Copy, Debug)]
pub struct ClientShares<'a> {
    /// Who it is.
    pub client: ClientId,
    /// How many of its requests wait for a change, on all threads.
    pub long_polls: &'a Arc<PermitCounter>,
}

/// A pod, as the server needs to know it. Implemented once, by whoever keeps pods: it inverts the arrow between the two.
pub trait ServedPod: Debug + Send + Sync + 'static {
    /// Tells it from all other clients.
    fn id(&self) -> ClientId;

    /// Counts its open connections, on all threads. Closed when the pod is gone.
    fn connections(&self) -> &Arc<PermitCounter>;

    /// Counts its requests that wait for a change, on all threads.
    fn long_polls(&self) -> &Arc<PermitCounter>;

    /// Returns once it is decided what the pod may have of this cloud.
    fn wait_for_entitlements(&self, cloud: CloudName) -> AttestFuture<'_, ()>;

    /// The pod was given a credential. `head` is the request's, unless the answer took time: then [`Self::record_pending_fetch`] had it.
    fn record_fetch(&self, route: &MetadataRoute, head: Option<&[u8]>);

    /// The pod asks by this head for a credential that takes time.
    fn record_pending_fetch(&self, route: &MetadataRoute, head: &[u8]);
}

/// Tells which pod is at the other end of a connection. Implemented once, by `identity`, which stands above the server: it inverts that
/// arrow. Asked once for each connection, and once more for each wait.
pub trait ClientResolver<P>: Debug + Send + Sync {
    /// The client, decided without waiting.
    fn resolve(&self, ends: &ConnectionEnds<'_>) -> Client<P>;

    /// The pod that is probably there. For shares, never for credentials.
    fn likely_pod(&self, ends: &ConnectionEnds<'_>) -> Option<Arc<P>>;

    /// The pod, as soon as that can be proven; nothing if it is proven that no pod is named for which this cloud is decided.
    fn attest_pod<'a>(
        &'a self,
        ends: ConnectionEnds<'a>,
        cloud: CloudName,
    ) -> AttestFuture<'a, Option<Arc<P>>>;

    /// The pod, as soon as one is there of which it is decided what it may have of this cloud. Never ends otherwise.
    fn wait_for_pod<'a>(&'a self, ends: ConnectionEnds<'a>, cloud: CloudName) -> AttestFuture<'a, Arc<P>>;

    /// Why no pod is there that could be given anything of this cloud.
    fn explain_refusal(&self, ends: &ConnectionEnds<'_>, cloud: CloudName) -> Refusal;
}

/// The party at the other end of one connection.
#[derive(Debug)]
pub enum Client<P> {
    /// A pod that attestation named.
    Pod(Arc<P>),
    /// An address, where every address is served (the strategy `anyone`).
    Anyone,
    /// This agent's own readiness request.
    Probe,
    /// No pod is known at this moment. Waiting can help.
    Unidentified,
    /// No pod: refused, and why.
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
    /// Whether this was a pod that is gone.
    pub fn is_pod_gone(&self) -> bool {
        matches!(self, Self::Pod(pod) if pod.connections().is_closed())
    }

    /// Whether this may be another client on the next connection.
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
