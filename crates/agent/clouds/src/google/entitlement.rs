//! What a pod may have of Google: the value that is decided for it, kept with it, and read by the dialect.
//!
//! Knows neither who decides it nor who answers by it.

use std::sync::Arc;

use seawall_broker::google::GooglePodCredentials;
use seawall_core::events::PodEventRecorder;
use seawall_http::Refusal;
use seawall_protocols::google;

/// What a pod may have of Google.
#[derive(Clone, Debug)]
pub enum GoogleEntitlement {
    /// Credentials of its own.
    Federated(FederatedPod),
    /// The real metadata server, through the filter.
    Passthrough,
    /// The node's facts, and instead of an account the reason why there is none.
    Refused(Arc<google::MetadataTree>, Refusal),
}

/// One pod's view of the metadata tree and the way to its leases.
#[derive(Clone, Debug)]
pub struct FederatedPod {
    pub(super) tree: Arc<google::MetadataTree>,
    pub(super) credentials: Arc<GooglePodCredentials>,
    /// The Google service account it acts as, if any.
    pub(super) account: Option<Arc<str>>,
    /// Told when the pod is refused something.
    pub(super) event_recorder: PodEventRecorder,
}
