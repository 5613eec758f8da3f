//! The refusals that a pod gets when there are no credentials, worded for users of AWS.

use seawall_http::Refusal;

use crate::refusals::CloudRefusals;

/// The refusals of AWS. The SDKs for Go, Rust and JavaScript's first generation retry a 503.
///
/// For the other SDKs a 503 is as final as a 403: they ask again with the next call.
pub(super) const REFUSALS: CloudRefusals = CloudRefusals {
    not_entitled: Refusal::new(
        404,
        "no_role",
        "No AWS role is configured for this pod or its Kubernetes ServiceAccount.",
    ),
    too_many: Refusal::new(
        503,
        "too_many_new",
        "This pod asks too fast for credentials that it has not; try again shortly.",
    ),
    slow: Refusal::new(
        503,
        "upstream_slow",
        "The credentials are being fetched and take long; try again shortly.",
    ),
    denied: Refusal::new(
        403,
        "denied",
        "AWS refuses this role to this pod: its trust policy, or a policy of who takes it for the pod, does not allow it.",
    ),
    rejected: Refusal::new(
        403,
        "rejected",
        "AWS rejects the exchange; the agent's or the role's configuration is wrong.",
    ),
    node: Refusal::new(
        403,
        "node_refused",
        "AWS refuses the node its own credentials (aws.credentials), with which this pod's role would be taken: not this pod's, but its \
         operator's to mend.",
    ),
    unassigned: Refusal::new(
        404,
        "no_association",
        "Nothing names an AWS role for this pod, and EKS associates none with its Kubernetes ServiceAccount in the cluster of \
         aws.podIdentity.cluster. One that is made is found within a minute or so.",
    ),
    subject: Refusal::new(
        503,
        "subject",
        "This pod's Kubernetes token cannot be had, or AWS does not take it, right now; try again shortly.",
    ),
    throttled: Refusal::new(
        503,
        "upstream_throttled",
        "AWS asks for fewer requests right now; try again shortly.",
    ),
    upstream: Refusal::new(503, "upstream_down", "AWS cannot be asked right now; try again shortly."),
    short_lived: Refusal::new(
        503,
        "upstream_short_lived",
        "AWS issued these credentials for so short a time that they had ended when they came.",
    ),
};
