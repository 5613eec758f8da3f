//! A pod's entitlement to Google: decided for the pod, stored with it, and read by the dialect.
//!
//! This module knows neither the code that decides nor the code that answers.

use std::sync::Arc;

use seawall_broker::google::GooglePodCredentials;
use seawall_core::events::PodEventRecorder;
use seawall_http::Refusal;
use seawall_protocols::google;

/// A pod's entitlement to Google.
#[derive(Clone, Debug)]
pub enum GoogleEntitlement {
    /// The pod gets its own credentials.
    Federated(FederatedPod),
    /// The pod's requests go through the filter to the real metadata server.
    Passthrough,
    /// The pod gets the node's facts and, instead of an account, the reason why it has none.
    Refused(Arc<google::MetadataTree>, Refusal),
}

/// One pod's view of the metadata tree and the way to its leases.
#[derive(Clone, Debug)]
pub struct FederatedPod {
    pub(super) tree: Arc<google::MetadataTree>,
    pub(super) credentials: Arc<GooglePodCredentials>,
    /// The Google service account that the pod acts as, if any.
    pub(super) account: Option<Arc<str>>,
    /// Records an event on the pod when it is refused something.
    pub(super) event_recorder: PodEventRecorder,
}
