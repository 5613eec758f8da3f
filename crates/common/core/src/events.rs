//! The reasons for events on a pod, and the recorder that posts them.
//!
//! The module knows neither pods nor the API server. The clouds and the watch of pods report through a [`PodEventRecorder`]; `cluster`
//! supplies the [`EventBackend`], which posts an event on the pod.

use std::fmt::Debug;
use std::sync::Arc;

/// The reason of an event, such as a refusal of a pod's credentials. A closed set: it is the event's `reason` and a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventReason {
    /// The agent's own policy refused the credentials.
    RefusedByPolicy,
    /// The cloud refused the credentials.
    RefusedByCloud,
    /// The ServiceAccount's annotation is malformed.
    InvalidAnnotation,
    /// The API server gave no token for the pod.
    TokenFailed,
    /// The pod gets credentials, and fetches them over and over.
    FetchedTooOften,
    /// The pod's credentials could not be renewed in time.
    RenewalFailing,
    /// An event about the agent itself: a new configuration was refused, and the previous one stays in force.
    ConfigReloadFailed,
}

impl EventReason {
    /// The text of the event's `reason`.
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

/// Records events on one pod; it has no backend where there is no cluster.
#[derive(Clone, Debug, Default)]
pub struct PodEventRecorder(Option<Arc<dyn EventBackend>>);

/// Posts events on one pod. The clouds report events, but the poster is in a layer above them: this trait inverts the dependency.
pub trait EventBackend: Debug + Send + Sync {
    /// Takes an event and returns at once; false if there was no room for the event.
    fn record(&self, complaint: EventReason, message: &str) -> bool;
}

impl PodEventRecorder {
    /// Creates a recorder with this backend.
    pub fn with(voice: Arc<dyn EventBackend>) -> Self {
        Self(Some(voice))
    }

    /// Records a fact about the pod that a response cannot carry.
    ///
    /// Returns false if there was no room for the event just now; true without a backend.
    pub fn record(&self, complaint: EventReason, message: &str) -> bool {
        self.0.as_ref().is_none_or(|voice| voice.record(complaint, message))
    }
}
