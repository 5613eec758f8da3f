//! What a pod is told when there is no credential: one answer for each way in which a broker has none, in a cloud's own words.
//!
//! The statuses are the words' too, because a cloud's clients decide what they make of one.

use seawall_broker::{Fault, Unavailable};
use seawall_http::Refusal;

/// One cloud's words.
pub(super) struct Words {
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

impl Words {
    /// What a pod is told that was refused for this reason.
    pub(super) fn of(&self, unavailable: &Unavailable) -> Refusal {
        match unavailable {
            Unavailable::NotEntitled(_) => self.not_entitled,
            Unavailable::TooMany { .. } => self.too_many,
            Unavailable::Slow => self.slow,
            Unavailable::Failed(error) if error.is_hopeless_of_the_node() => self.node,
            Unavailable::Failed(error) => match error.fault {
                Fault::Denied => self.denied,
                Fault::Rejected => self.rejected,
                Fault::Unassigned => self.unassigned,
                Fault::Subject => self.subject,
                Fault::SubjectRefused => SUBJECT_REFUSED,
                Fault::Throttled => self.throttled,
                Fault::Upstream => self.upstream,
                Fault::ShortLived => self.short_lived,
            },
        }
    }
}
