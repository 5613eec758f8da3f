//! Why a cloud gave no credential: whose move it is, and what may be said of it.

use std::fmt;
use std::time::Duration;

use seawall_core::pod::SubjectError;

/// Whose move it is after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeFault {
    /// This identity may not have this credential; somebody must change a policy.
    Denied,
    /// The cloud rejects what was sent: no such account, a wrong provider or audience. Somebody must change a configuration.
    Rejected,
    /// The cloud knows of nothing that this identity has. Somebody may give it something at any time.
    Unassigned,
    /// The pod's own Kubernetes token could not be had just now, or the cloud does not take this one.
    Subject,
    /// The pod's own Kubernetes token is refused: no ServiceAccount, no permission. Somebody must change something.
    SubjectRefused,
    /// The upstream asks for fewer requests.
    Throttled,
    /// The upstream is down, unreachable, or talks nonsense.
    Upstream,
    /// What the upstream issued had no second of life left when it came.
    ShortLived,
}

impl ExchangeFault {
    /// Every fault, for metrics.
    pub const ALL: [Self; 8] = [
        Self::Denied,
        Self::Rejected,
        Self::Unassigned,
        Self::Subject,
        Self::SubjectRefused,
        Self::Throttled,
        Self::Upstream,
        Self::ShortLived,
    ];

    /// A word from a closed set.
    pub fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Rejected => "rejected",
            Self::Unassigned => "unassigned",
            Self::Subject => "subject",
            Self::SubjectRefused => "subject_refused",
            Self::Throttled => "throttled",
            Self::Upstream => "upstream",
            Self::ShortLived => "short_lived",
        }
    }

    /// Whether who asks again and again is answered from memory for as long as a renewal would wait: a node may be full of pods that
    /// nobody has given anything, and each may ask every second.
    pub(crate) fn uses_backoff(self) -> bool {
        matches!(self, Self::Unassigned)
    }

    /// Whether it was the pod's Kubernetes token that could not be had, or was not taken: another pod's may be.
    pub(crate) fn is_token_error(self) -> bool {
        matches!(self, Self::Subject | Self::SubjectRefused)
    }

    /// How long a failure is remembered, so that a pod that asks again at once is not another upstream call: hopeless
    /// ones 30 s, refusals 5 s, passing ones 1 s: Go's clients themselves pause for 1 to 5 s between tries. What nobody has given yet
    /// is remembered ever longer ([`ExchangeFault::uses_backoff`]).
    pub fn negative_cache_ttl(self) -> Duration {
        Duration::from_secs(match self {
            Self::Rejected => 30,
            Self::Denied | Self::SubjectRefused | Self::Unassigned => 5,
            Self::Subject | Self::Throttled | Self::Upstream | Self::ShortLived => 1,
        })
    }
}

/// A failed exchange. The text is for logs and `/debug/pods`; it names the step and the provider's code and holds no secret.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{step}: {detail}")]
pub struct ExchangeError {
    /// Whose move it is.
    pub fault: ExchangeFault,
    /// Which call failed.
    pub step: &'static str,
    /// What happened, bounded and printable.
    pub detail: String,
    /// When the upstream wants to be asked again, if it said so.
    pub retry_after: Option<Duration>,
    /// Whether it was the node's own credentials that could not be had: of the pod for which they were wanted nothing was asked yet.
    pub is_node_error: bool,
}

/// Longest detail of an error, in characters.
const DETAIL: usize = 200;

impl ExchangeError {
    /// An error whose detail is cut to a bound and freed of control characters: parts of it are an upstream's words.
    pub fn new(fault: ExchangeFault, step: &'static str, detail: impl fmt::Display) -> Self {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let detail = detail.to_string().chars().take(DETAIL).map(plain).collect();
        Self { fault, step, detail, retry_after: None, is_node_error: false }
    }

    /// Whether the node was refused its own credentials: its operator's move, and no pod's owner's.
    pub fn is_permanent_node_error(&self) -> bool {
        self.is_node_error && matches!(self.fault, ExchangeFault::Denied | ExchangeFault::Rejected)
    }

    /// The same, of the node's own credentials.
    pub(crate) fn into_node_error(self) -> Self {
        Self { is_node_error: true, ..self }
    }
}

impl From<SubjectError> for ExchangeError {
    fn from(error: SubjectError) -> Self {
        let fault = if error.retryable { ExchangeFault::Subject } else { ExchangeFault::SubjectRefused };
        Self::new(fault, "kubernetes token", error.reason)
    }
}
