//! The refusals that a pod receives if the broker has no credential: one for each cause, in the cloud's own words.
//!
//! The cloud chooses the status too, because each cloud's clients react to statuses in their own way.

use seawall_broker::{ExchangeFault, LeaseError};
use seawall_http::Refusal;

/// One cloud's refusals.
pub(super) struct CloudRefusals {
    /// The pod is not entitled to any credential of the requested kind.
    pub(super) not_entitled: Refusal,
    /// The pod asks for too many new credentials at once.
    pub(super) too_many: Refusal,
    /// The fetch takes longer than the pod's client waits.
    pub(super) slow: Refusal,
    pub(super) denied: Refusal,
    pub(super) rejected: Refusal,
    /// The cloud refuses the node itself, and would refuse it for every pod.
    pub(super) node: Refusal,
    pub(super) unassigned: Refusal,
    pub(super) subject: Refusal,
    pub(super) throttled: Refusal,
    pub(super) upstream: Refusal,
    pub(super) short_lived: Refusal,
}

/// The refusal for a Kubernetes token that the API server denies. It is the same for every cloud.
const SUBJECT_REFUSED: Refusal = Refusal::new(
    403,
    "subject_refused",
    "The API server gives no token for this pod: its ServiceAccount is gone, or the agent may not ask.",
);

impl CloudRefusals {
    /// The refusal that a pod receives for this error.
    pub(super) fn of(&self, unavailable: &LeaseError) -> Refusal {
        match unavailable {
            LeaseError::NotEntitled(_) => self.not_entitled,
            LeaseError::RateLimited { .. } => self.too_many,
            LeaseError::TimedOut => self.slow,
            LeaseError::Failed(error) if error.is_permanent_node_error() => self.node,
            LeaseError::Failed(error) => match error.fault {
                ExchangeFault::Denied => self.denied,
                ExchangeFault::Rejected => self.rejected,
                ExchangeFault::Unassigned => self.unassigned,
                ExchangeFault::Subject => self.subject,
                ExchangeFault::SubjectRefused => SUBJECT_REFUSED,
                ExchangeFault::Throttled => self.throttled,
                ExchangeFault::Upstream => self.upstream,
                ExchangeFault::ShortLived => self.short_lived,
            },
        }
    }
}
