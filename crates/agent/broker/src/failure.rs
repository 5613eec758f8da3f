//! Failed exchanges with a cloud: who must act, and what logs may say about the failure.

use std::fmt;
use std::time::Duration;

use seawall_core::pod::SubjectError;

/// The cause of a failed exchange, which tells who must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeFault {
    /// This identity may not get this credential. An operator must change a policy.
    AccessDenied,
    /// The cloud rejects the request: no such account, a wrong provider or audience. An operator must change a configuration.
    ExchangeRejected,
    /// The cloud has no credential assigned to this identity. An operator may assign one at any time.
    NoAssociation,
    /// The agent could not get the pod's own Kubernetes token just now, or the cloud does not accept this one.
    PodTokenUnavailable,
    /// Kubernetes refuses a token for the pod: no ServiceAccount, no permission. An operator must change something.
    PodTokenDenied,
    /// The upstream asks for fewer requests.
    Throttled,
    /// The upstream is down, unreachable, or sends an invalid response.
    Unavailable,
    /// The credential had less than one second of life left when it arrived.
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

    /// The fault's name, one of a fixed set of words.
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

    /// True if the failure is cached for as long as a renewal would back off. A node may be full of pods without an assigned
    /// credential, and each pod may ask every second.
    pub(crate) fn uses_backoff(self) -> bool {
        matches!(self, Self::NoAssociation)
    }

    /// True if the pod's Kubernetes token was missing or not accepted. Another pod's token may work.
    pub(crate) fn is_token_error(self) -> bool {
        matches!(self, Self::PodTokenUnavailable | Self::PodTokenDenied)
    }

    /// The time for which a failure is cached, so that a pod that retries at once causes no other upstream call. It is 30 s for
    /// configuration errors, 5 s for refusals and 1 s for transient errors. Go's clients themselves pause for 1 to 5 s between
    /// tries. [`ExchangeFault::NoAssociation`] is cached ever longer ([`ExchangeFault::uses_backoff`]).
    pub fn negative_cache_ttl(self) -> Duration {
        Duration::from_secs(match self {
            Self::ExchangeRejected => 30,
            Self::AccessDenied | Self::PodTokenDenied | Self::NoAssociation => 5,
            Self::PodTokenUnavailable | Self::Throttled | Self::Unavailable | Self::ShortLived => 1,
        })
    }
}

/// A failed exchange. The text is for logs and `/debug/pods`. It names the step and the provider's code and holds no secret.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{step}: {detail}")]
pub struct ExchangeError {
    /// The cause, which tells who must act.
    pub fault: ExchangeFault,
    /// The name of the call that failed.
    pub step: &'static str,
    /// The description of the failure, bounded in length and printable.
    pub detail: String,
    /// The pause that the upstream asked for, if any.
    pub retry_after: Option<Duration>,
    /// True if the node's own credentials were unavailable. Then no call was made yet for the pod that needed them.
    pub is_node_error: bool,
}

/// The longest detail of an error, in characters.
const DETAIL: usize = 200;

impl ExchangeError {
    /// Returns an error. Cuts the detail to a bound and replaces control characters, because parts of it are an upstream's words.
    pub fn new(fault: ExchangeFault, step: &'static str, detail: impl fmt::Display) -> Self {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let detail = detail.to_string().chars().take(DETAIL).map(plain).collect();
        Self { fault, step, detail, retry_after: None, is_node_error: false }
    }

    /// True if the node was refused its own credentials: the node's operator must act, not a pod's owner.
    pub fn is_permanent_node_error(&self) -> bool {
        self.is_node_error
            && matches!(self.fault, ExchangeFault::AccessDenied | ExchangeFault::ExchangeRejected)
    }

    /// Marks this error as a failure to get the node's own credentials.
    pub(crate) fn into_node_error(self) -> Self {
        Self { is_node_error: true, ..self }
    }
}

impl From<SubjectError> for ExchangeError {
    fn from(error: SubjectError) -> Self {
        let fault =
            if error.retryable { ExchangeFault::PodTokenUnavailable } else { ExchangeFault::PodTokenDenied };
        Self::new(fault, "kubernetes token", error.reason)
    }
}
