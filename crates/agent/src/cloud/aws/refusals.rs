//! What a pod is told when there are no credentials, in words for AWS's users.

use seawall_broker::{Fault, Unavailable};
use seawall_cloud::Refusal;

/// The credentials take longer than the client waits.
pub(super) const SLOW: Refusal =
    Refusal::new(503, "upstream_slow", "The credentials are being fetched and take long; try again shortly.");

/// What a pod is told when there are no credentials. 503 is tried again by the SDKs for Go, Rust and JavaScript's first generation,
/// and is as final as 403 to the others, which ask anew with the next call.
pub(super) fn of(unavailable: &Unavailable) -> Refusal {
    const NO_ROLE: Refusal = Refusal::new(
        404,
        "no_role",
        "No AWS role is configured for this pod or its Kubernetes ServiceAccount.",
    );
    const TOO_MANY: Refusal = Refusal::new(
        503,
        "too_many_new",
        "This pod asks too fast for credentials that it has not; try again shortly.",
    );
    const DENIED: Refusal = Refusal::new(
        403,
        "denied",
        "AWS refuses this role to this pod: its trust policy, or a policy of who takes it for the pod, does not allow it.",
    );
    const REJECTED: Refusal = Refusal::new(
        403,
        "rejected",
        "AWS rejects the exchange; the agent's or the role's configuration is wrong.",
    );
    const NODE: Refusal = Refusal::new(
        403,
        "node_refused",
        "AWS refuses the node its own credentials (aws.credentials), with which this pod's role would be taken: not this pod's, but its \
         operator's to mend.",
    );
    const UNASSIGNED: Refusal = Refusal::new(
        404,
        "no_association",
        "Nothing names an AWS role for this pod, and EKS associates none with its Kubernetes ServiceAccount in the cluster of \
         aws.podIdentity.cluster. One that is made is found within a minute or so.",
    );
    const SUBJECT: Refusal = Refusal::new(
        503,
        "subject",
        "This pod's Kubernetes token cannot be had, or AWS does not take it, right now; try again shortly.",
    );
    const SUBJECT_REFUSED: Refusal = Refusal::new(
        403,
        "subject_refused",
        "The API server gives no token for this pod: its ServiceAccount is gone, or the agent may not ask.",
    );
    const THROTTLED: Refusal =
        Refusal::new(503, "upstream_throttled", "AWS asks for fewer requests right now; try again shortly.");
    const UPSTREAM: Refusal =
        Refusal::new(503, "upstream_down", "AWS cannot be asked right now; try again shortly.");
    const SHORT_LIVED: Refusal = Refusal::new(
        503,
        "upstream_short_lived",
        "AWS issued these credentials for so short a time that they had ended when they came.",
    );
    match unavailable {
        Unavailable::NotEntitled(_) => NO_ROLE,
        Unavailable::TooMany { .. } => TOO_MANY,
        Unavailable::Slow => SLOW,
        Unavailable::Failed(error) if error.is_hopeless_of_the_node() => NODE,
        Unavailable::Failed(error) => match error.fault {
            Fault::Denied => DENIED,
            Fault::Rejected => REJECTED,
            Fault::Unassigned => UNASSIGNED,
            Fault::Subject => SUBJECT,
            Fault::SubjectRefused => SUBJECT_REFUSED,
            Fault::Throttled => THROTTLED,
            Fault::Upstream => UPSTREAM,
            Fault::ShortLived => SHORT_LIVED,
        },
    }
}
