//! The refusals that a pod receives when there is no credential, in words for Google's users.

use seawall_http::Refusal;

use crate::refusals::CloudRefusals;

/// Google's refusals, with the statuses that SDKs handle correctly: they retry 503, while 403 and 404 are final.
///
/// 429 is never sent: Go's client (cloud.google.com/go/compute/metadata) does not retry it.
pub(super) const REFUSALS: CloudRefusals = CloudRefusals {
    not_entitled: Refusal::new(
        404,
        "no_account",
        "This pod acts as no Google service account, and identity tokens are issued to service accounts only.",
    ),
    too_many: Refusal::new(
        503,
        "too_many_new",
        "This pod asks for too many different credentials at once; try again shortly.",
    ),
    slow: Refusal::new(
        503,
        "upstream_slow",
        "The credential is being fetched and takes long; try again shortly.",
    ),
    denied: Refusal::new(
        403,
        "denied",
        "Google refuses this credential to this pod's Kubernetes ServiceAccount.",
    ),
    rejected: Refusal::new(
        403,
        "rejected",
        "Google rejects the exchange; the agent's or the account's configuration is wrong.",
    ),
    node: Refusal::new(
        403,
        "rejected",
        "Google rejects the exchange; the agent's or the account's configuration is wrong.",
    ),
    unassigned: Refusal::new(
        403,
        "denied",
        "Google refuses this credential to this pod's Kubernetes ServiceAccount.",
    ),
    subject: Refusal::new(
        503,
        "subject",
        "This pod's Kubernetes token cannot be had right now; try again shortly.",
    ),
    throttled: Refusal::new(
        503,
        "upstream_throttled",
        "Google asks for fewer requests right now; try again shortly.",
    ),
    upstream: Refusal::new(503, "upstream_down", "Google cannot be asked right now; try again shortly."),
    short_lived: Refusal::new(
        503,
        "upstream_short_lived",
        "Google issued this credential for so short a time that it had ended when it came.",
    ),
};
