//! The inputs that each cloud gets: facts about a pod for an entitlement decision, and resources for the cloud's dialects.

use std::sync::Arc;

use seawall_core::kubernetes_events::PodEventRecorder;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Pod, PodAnnotations};
use seawall_server::upstream::Forwarder;
use seawall_server::upstream::long_poll_limit::LongPollLimit;
use seawall_server::upstream::permits::UpstreamPermits;

/// The input of an entitlement decision about one pod.
pub struct EntitlementRequest<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The annotations that the clouds need: annotations of the pod, of its ServiceAccount and of its namespace.
    pub annotations: &'a PodAnnotations,
    /// Creates the source of the pod's Kubernetes tokens.
    pub create_subject_token_source: &'a dyn Fn() -> Arc<dyn SubjectTokens>,
    /// Records an event on the pod when the agent refuses a credential.
    pub event_recorder: PodEventRecorder,
    /// True if the agent should fetch the pod's first credential before the pod requests it.
    pub should_prefetch: bool,
}

/// The resources that each dialect on a traffic thread uses.
#[derive(Debug)]
pub struct DialectResources {
    /// The limit on long polls. All threads share this limit.
    pub long_poll_limit: LongPollLimit,
    /// Permits for requests to real metadata servers. All threads share these permits.
    pub upstream_permits: Arc<UpstreamPermits>,
    /// The maximum number of idle connections that a thread keeps to one metadata server.
    pub max_idle_connections: usize,
}

impl DialectResources {
    /// Creates a client for the real metadata server at `url`.
    pub(crate) fn forwarder(&self, url: &str) -> Forwarder {
        Forwarder::new(
            url,
            self.upstream_permits.clone(),
            self.max_idle_connections,
            self.long_poll_limit.clone(),
        )
    }
}
