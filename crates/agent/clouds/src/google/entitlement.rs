//! A pod's Google entitlement: what the pod may get from Google.
//!
//! `RunningGoogle::decide_entitlement` decides the entitlement, the pod's entry stores it, and the dialect reads it for each
//! request.

use std::sync::Arc;

use seawall_broker::google::GooglePodLeaseClient;
use seawall_core::kubernetes_events::PodEventRecorder;
use seawall_http::Refusal;
use seawall_protocols::google;

/// A pod's entitlement to Google.
#[derive(Clone, Debug)]
pub enum GoogleEntitlement {
    /// The pod gets its own credentials.
    Federated(FederatedPod),
    /// The pod's requests go through the filter to the real metadata server.
    Passthrough,
    /// The pod can read facts about the node, but a request that needs an account gets this refusal.
    Refused(Arc<google::MetadataTree>, Refusal),
}

/// One pod's metadata tree and the client for its leases.
#[derive(Clone, Debug)]
pub struct FederatedPod {
    pub(super) metadata_tree: Arc<google::MetadataTree>,
    pub(super) lease_client: Arc<GooglePodLeaseClient>,
    /// The Google service account that the pod impersonates, if any.
    pub(super) account: Option<Arc<str>>,
    /// Records an event on the pod when the agent refuses a credential.
    pub(super) event_recorder: PodEventRecorder,
}
