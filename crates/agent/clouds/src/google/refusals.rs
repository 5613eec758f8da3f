//! The refusals for a pod without a credential, in Google Cloud's terms.

use seawall_http::Refusal;

use crate::refusals::CloudRefusals;

/// Google's refusals. SDKs retry a 503 and treat 403 and 404 as final.
///
/// The agent never sends 429, because Go's client (cloud.google.com/go/compute/metadata) does not retry it.
pub(super) const REFUSALS: CloudRefusals = CloudRefusals {
    not_entitled: Refusal::new(
        404,
        "no_account",
        "This pod has no Google service account, and Google issues identity tokens to service accounts only.",
    ),
    fetch_rate_limited: Refusal::new(
        503,
        "fetch_rate_limited",
        "This pod requests too many different credentials at once; try again shortly.",
    ),
    upstream_timeout: Refusal::new(
        503,
        "upstream_timeout",
        "The agent is still fetching the credential; try again shortly.",
    ),
    access_denied: Refusal::new(
        403,
        "access_denied",
        "Google denies this credential to this pod's Kubernetes ServiceAccount.",
    ),
    exchange_rejected: Refusal::new(
        403,
        "exchange_rejected",
        "Google rejects the exchange; the agent's or the account's configuration is wrong.",
    ),
    node_credentials_denied: Refusal::new(
        403,
        "exchange_rejected",
        "Google rejects the exchange; the agent's or the account's configuration is wrong.",
    ),
    no_association: Refusal::new(
        403,
        "access_denied",
        "Google denies this credential to this pod's Kubernetes ServiceAccount.",
    ),
    pod_token_unavailable: Refusal::new(
        503,
        "pod_token_unavailable",
        "The agent cannot get this pod's Kubernetes token right now; try again shortly.",
    ),
    throttled: Refusal::new(
        503,
        "upstream_throttled",
        "Google limits the request rate right now; try again shortly.",
    ),
    upstream_unavailable: Refusal::new(
        503,
        "upstream_unavailable",
        "Google is not available right now; try again shortly.",
    ),
    lifetime_too_short: Refusal::new(
        503,
        "upstream_short_lived",
        "Google issued this credential with too short a lifetime: it expired before it arrived.",
    ),
};
