//! Failed exchanges with a cloud: the cause, which determines who must act, and a text that is safe for the log.

use std::fmt;
use std::time::Duration;

use seawall_core::pod::SubjectTokenError;

/// The cause of a failed exchange. It determines who must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeFault {
    /// The cloud does not allow this identity to get this credential. An operator must change a policy.
    AccessDenied,
    /// The cloud rejects the request, for example because of an unknown account or a wrong audience. An operator must change a
    /// configuration.
    ExchangeRejected,
    /// No credential is assigned to this identity in the cloud: EKS has no association for the ServiceAccount. An operator can
    /// create the association at any time.
    NoAssociation,
    /// The agent could not get the pod's own Kubernetes token, or the cloud rejected the token. A retry can succeed.
    PodTokenUnavailable,
    /// Kubernetes refuses a token for the pod: the ServiceAccount does not exist, or the agent has no permission. An operator
    /// must act.
    PodTokenDenied,
    /// The cloud throttled the call.
    Throttled,
    /// The upstream is down or unreachable, or sends an invalid response.
    Unavailable,
    /// The credential had a remaining lifetime of less than one second when it arrived.
    ShortLived,
}

impl ExchangeFault {
    /// Every fault, for metrics.
    pub const ALL: [Self; 8] = [
        Self::AccessDenied,
        Self::ExchangeRejected,
        Self::NoAssociation,
        Self::PodTokenUnavailable,
        Self::PodTokenDenied,
        Self::Throttled,
        Self::Unavailable,
        Self::ShortLived,
    ];

    /// Returns the fault's name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::AccessDenied => "access_denied",
            Self::ExchangeRejected => "exchange_rejected",
            Self::NoAssociation => "no_association",
            Self::PodTokenUnavailable => "pod_token_unavailable",
            Self::PodTokenDenied => "pod_token_denied",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::ShortLived => "short_lived",
        }
    }

    /// True if the agent doubles the cache time with each further failure, as it does with the pause between renewal attempts.
    /// On a node full of pods without an assigned credential, each pod can send a request every second. With a constant cache
    /// time, these requests would cause calls to the cloud continuously.
    pub(crate) fn grows_negative_cache_ttl(self) -> bool {
        matches!(self, Self::NoAssociation)
    }

    /// True if the pod's Kubernetes token was missing or rejected. Another pod's token may work.
    pub(crate) fn is_token_error(self) -> bool {
        matches!(self, Self::PodTokenUnavailable | Self::PodTokenDenied)
    }

    /// Returns the time for which the agent caches a failure. In this time, a pod's retries cause no call to the cloud.
    /// The time is 30 s for configuration errors, 5 s for refusals and 1 s for temporary errors. The short times suit Go's
    /// clients, which pause 1 to 5 s between tries. The cache time of [`ExchangeFault::NoAssociation`] grows
    /// ([`ExchangeFault::grows_negative_cache_ttl`]).
    pub fn negative_cache_ttl(self) -> Duration {
        Duration::from_secs(match self {
            Self::ExchangeRejected => 30,
            Self::AccessDenied | Self::PodTokenDenied | Self::NoAssociation => 5,
            Self::PodTokenUnavailable | Self::Throttled | Self::Unavailable | Self::ShortLived => 1,
        })
    }
}

/// A failed exchange. The text is for logs and `/debug/pods`. It names the step and the provider's code, and contains no secret.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{step}: {detail}")]
pub struct ExchangeError {
    /// The cause, which determines who must act.
    pub fault: ExchangeFault,
    /// The name of the call that failed.
    pub step: &'static str,
    /// The description of the failure. The text is printable and has a limited length.
    pub detail: String,
    /// The pause that the upstream requested, if any.
    pub retry_after: Option<Duration>,
    /// True if the agent could not get the node's own credentials. These credentials sign calls for pods, so the agent made no
    /// call for the pod.
    pub is_node_error: bool,
}

/// The maximum length of an error's detail, in characters.
const DETAIL: usize = 200;

impl ExchangeError {
    /// Returns an error with this detail, truncated and without control characters.
    /// The detail can contain text from the cloud, which the agent does not trust.
    pub fn new(fault: ExchangeFault, step: &'static str, detail: impl fmt::Display) -> Self {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let detail = detail.to_string().chars().take(DETAIL).map(plain).collect();
        Self { fault, step, detail, retry_after: None, is_node_error: false }
    }

    /// True if the agent cannot get the node's own credentials until the node's operator acts. The pod's owner cannot fix this
    /// error.
    pub fn is_permanent_node_error(&self) -> bool {
        self.is_node_error
            && matches!(self.fault, ExchangeFault::AccessDenied | ExchangeFault::ExchangeRejected)
    }

    /// Marks this error as a failure to get the node's own credentials.
    pub(crate) fn into_node_error(self) -> Self {
        Self { is_node_error: true, ..self }
    }
}

impl From<SubjectTokenError> for ExchangeError {
    fn from(error: SubjectTokenError) -> Self {
        let fault = if error.is_retryable {
            ExchangeFault::PodTokenUnavailable
        } else {
            ExchangeFault::PodTokenDenied
        };
        Self::new(fault, "kubernetes token", error.reason)
    }
}
