//! The reasons for events on a pod, and the recorder that posts them.
//!
//! The module does not know pods or the API server. The clouds and the pod watch report events through a [`PodEventRecorder`].
//! `cluster` supplies the [`EventBackend`], which posts each event on the pod.

use std::fmt::Debug;
use std::sync::Arc;

/// The reason for an event, such as a refusal of a pod's credentials. The reason is the event's `reason` and the value of a
/// metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventReason {
    /// The agent's own policy refused the credentials.
    RefusedByPolicy,
    /// The cloud refused the credentials.
    RefusedByCloud,
    /// An annotation of the pod or of its ServiceAccount is malformed.
    InvalidAnnotation,
    /// The API server issued no token for the pod, or the pod's ServiceAccount does not exist.
    TokenFailed,
    /// The pod gets credentials but fetches them too often.
    FetchedTooOften,
    /// The agent could not renew the pod's credentials in time.
    RenewalFailing,
    /// The agent refused a new configuration, and continues with the previous configuration. This event concerns the agent
    /// itself.
    ConfigReloadFailed,
}

impl EventReason {
    /// Returns the text of the event's `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RefusedByPolicy => "CredentialsRefusedByPolicy",
            Self::RefusedByCloud => "CredentialsRefusedByCloud",
            Self::InvalidAnnotation => "InvalidIdentityAnnotation",
            Self::TokenFailed => "ServiceAccountTokenFailed",
            Self::FetchedTooOften => "CredentialsFetchedTooOften",
            Self::RenewalFailing => "CredentialRenewalFailing",
            Self::ConfigReloadFailed => "ConfigReloadFailed",
        }
    }
}

/// Records events on one pod. With identity strategies that use no API server, the recorder has no backend and does nothing.
#[derive(Clone, Debug, Default)]
pub struct PodEventRecorder(Option<Arc<dyn EventBackend>>);

/// Posts events on one pod. The trait inverts a dependency: `clouds` reports events but does not depend on `cluster`, which posts
/// them.
pub trait EventBackend: Debug + Send + Sync {
    /// Queues an event and returns immediately. Returns false if the queue is full.
    fn record(&self, complaint: EventReason, message: &str) -> bool;
}

impl PodEventRecorder {
    /// Creates a recorder with this backend.
    pub fn with_backend(voice: Arc<dyn EventBackend>) -> Self {
        Self(Some(voice))
    }

    /// Records an event on the pod.
    ///
    /// Returns false if the queue is full. Without a backend, the call does nothing and returns true.
    pub fn record(&self, complaint: EventReason, message: &str) -> bool {
        self.0.as_ref().is_none_or(|voice| voice.record(complaint, message))
    }
}
