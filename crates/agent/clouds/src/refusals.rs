//! What a pod is told when there is no credential: one answer for each way in which a broker has none, in a cloud's own words.
//!
//! The statuses are the words' too, because a cloud's clients decide what they make of one.

use seawall_broker::{ExchangeFault, LeaseError};
use seawall_http::Refusal;

/// One cloud's words.
pub(super) struct CloudRefusals {
    /// The pod may have nothing of what it asks for.
    pub(super) not_entitled: Refusal,
    /// It asks for more that it has not than is asked for at once.
    pub(super) too_many: Refusal,
    /// It takes longer than its client waits.
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

/// Said by the API server, of whatever cloud.
const SUBJECT_REFUSED: Refusal = Refusal::new(
    403,
    "subject_refused",
    "The API server gives no token for this pod: its ServiceAccount is gone, or the agent may not ask.",
);

impl CloudRefusals {
    /// What a pod is told that was refused for this reason.
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
