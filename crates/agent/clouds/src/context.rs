//! What a cloud is handed: the pod that it is to decide about, and what its dialects are made with.
//!
//! Knows no cloud, so that each can take these from whoever knows all of them.

use std::sync::Arc;

use seawall_core::events::PodEventRecorder;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Pod, PodAnnotations};
use seawall_server::upstream::long_polls::LongPollLimit;
use seawall_server::upstream::permits::UpstreamPermits;

/// A pod that is to be given what it may have.
pub struct EntitlementRequest<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What is told of it, as far as the clouds' sections asks.
    pub facts: &'a PodAnnotations,
    /// Its Kubernetes tokens.
    pub subject_tokens: &'a dyn Fn() -> Arc<dyn SubjectTokens>,
    /// Told when it is refused something.
    pub event_recorder: PodEventRecorder,
    /// Whether what it will ask for first is to be fetched before it asks.
    pub prefetch: bool,
}

/// What a dialect on a traffic thread is made with.
#[derive(Debug)]
pub struct DialectResources {
    /// Long polls, bounded for all threads together.
    pub long_polls: LongPollLimit,
    /// Places at real metadata servers, which all threads share.
    pub upstream_permits: Arc<UpstreamPermits>,
    /// Idle connections that a thread keeps to one of them.
    pub max_idle: usize,
}
