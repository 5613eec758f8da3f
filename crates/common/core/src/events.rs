//! Why a pod's owner is told something, and the voice that tells it.
//!
//! Knows neither pods nor the API server. The clouds and whoever watches pods complain by a [`PodEventRecorder`]; `cluster` gives it a voice, an
//! event on the pod.

use std::fmt::Debug;
use std::sync::Arc;

/// Why a pod was refused. A closed set: it is the event's `reason` and a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventReason {
    /// The agent's own policy.
    RefusedByPolicy,
    /// The cloud.
    RefusedByCloud,
    /// The ServiceAccount's annotation is malformed.
    MalformedAccount,
    /// The API server gave no token for the pod.
    NoToken,
    /// The pod is given credentials, and fetches them over and over.
    FetchedTooOften,
    /// The pod's credentials could not be renewed in time.
    NotRenewed,
    /// Of the agent itself: another configuration was refused, and the one in force stays.
    ConfigurationRefused,
}

impl EventReason {
    /// As the event's `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RefusedByPolicy => "CredentialsRefusedByPolicy",
            Self::RefusedByCloud => "CredentialsRefusedByCloud",
            Self::MalformedAccount => "MalformedCloudAccount",
            Self::NoToken => "NoServiceAccountToken",
            Self::FetchedTooOften => "CredentialsFetchedTooOften",
            Self::NotRenewed => "CredentialsNotRenewed",
            Self::ConfigurationRefused => "ConfigurationRefused",
        }
    }
}

/// One pod's voice; none where there is no cluster.
#[derive(Clone, Debug, Default)]
pub struct PodEventRecorder(Option<Arc<dyn EventBackend>>);

/// Where a pod's owner hears it. The clouds complain of pods, and what posts an event stands above them: this trait inverts that arrow.
pub trait EventBackend: Debug + Send + Sync {
    /// Returns at once: whether there was room for it.
    fn record(&self, complaint: EventReason, message: &str) -> bool;
}

impl PodEventRecorder {
    /// With this voice.
    pub fn with(voice: Arc<dyn EventBackend>) -> Self {
        Self(Some(voice))
    }

    /// Something about the pod that no answer can say; whether that is all that can be done about it, or there was no room for it just
    /// now.
    pub fn record(&self, complaint: EventReason, message: &str) -> bool {
        self.0.as_ref().is_none_or(|voice| voice.record(complaint, message))
    }
}
