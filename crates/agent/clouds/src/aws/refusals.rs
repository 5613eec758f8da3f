//! The refusals for a pod without credentials, in AWS's terms.

use seawall_http::Refusal;

use crate::refusals::CloudRefusals;

/// The refusals for AWS's clients. The SDKs for Go and Rust and the first generation of the SDK for JavaScript retry a 503.
///
/// The other SDKs treat a 503 like a 403: they request credentials again only at the program's next API call.
pub(super) const REFUSALS: CloudRefusals = CloudRefusals {
    not_entitled: Refusal::new(
        404,
        "no_role",
        "No AWS role is configured for this pod or its Kubernetes ServiceAccount.",
    ),
    fetch_rate_limited: Refusal::new(
        503,
        "fetch_rate_limited",
        "This pod requests new credentials too fast; try again shortly.",
    ),
    upstream_timeout: Refusal::new(
        503,
        "upstream_timeout",
        "The agent is still fetching the credentials; try again shortly.",
    ),
    access_denied: Refusal::new(
        403,
        "access_denied",
        "AWS denies this role to this pod. Check the role's trust policy, and the policies of the principal that assumes the role for the pod.",
    ),
    exchange_rejected: Refusal::new(
        403,
        "exchange_rejected",
        "AWS rejects the exchange; the agent's or the role's configuration is wrong.",
    ),
    node_credentials_denied: Refusal::new(
        403,
        "node_credentials_denied",
        "AWS rejects the node's own credentials (aws.credentials), which the agent needs to assume this pod's role. The operator of the \
         cluster must correct these credentials.",
    ),
    no_association: Refusal::new(
        404,
        "no_association",
        "No setting names an AWS role for this pod, and EKS has no association for its Kubernetes ServiceAccount in the cluster of \
         aws.podIdentity.clusterName. The agent finds a new association within about a minute.",
    ),
    pod_token_unavailable: Refusal::new(
        503,
        "pod_token_unavailable",
        "The agent cannot get this pod's Kubernetes token, or AWS does not accept this token; try again shortly.",
    ),
    throttled: Refusal::new(
        503,
        "upstream_throttled",
        "AWS limits the request rate right now; try again shortly.",
    ),
    upstream_unavailable: Refusal::new(
        503,
        "upstream_unavailable",
        "AWS is not available right now; try again shortly.",
    ),
    lifetime_too_short: Refusal::new(
        503,
        "upstream_short_lived",
        "AWS issued these credentials with too short a lifetime: they expired before they arrived.",
    ),
};
