//! What a pod is told when there is no credential, in words for Google's users.

use seawall_broker::{Fault, Unavailable};
use seawall_cloud::Refusal;

/// What a pod is told when there is no credential, with the status its SDK acts rightly on: 503 is tried again, 403 and 404 are
/// final. 429 is never sent: Go's client (cloud.google.com/go/compute/metadata) does not try it again.
pub(super) fn of(unavailable: &Unavailable) -> Refusal {
    const NO_ACCOUNT: Refusal = Refusal::new(
        404,
        "no_account",
        "This pod acts as no Google service account, and identity tokens are issued to service accounts only.",
    );
    const TOO_MANY: Refusal = Refusal::new(
        503,
        "too_many_new",
        "This pod asks for too many different credentials at once; try again shortly.",
    );
    const SLOW: Refusal = Refusal::new(
        503,
        "upstream_slow",
        "The credential is being fetched and takes long; try again shortly.",
    );
    const DENIED: Refusal = Refusal::new(
        403,
        "denied",
        "Google refuses this credential to this pod's Kubernetes ServiceAccount.",
    );
    const REJECTED: Refusal = Refusal::new(
        403,
        "rejected",
        "Google rejects the exchange; the agent's or the account's configuration is wrong.",
    );
    const SUBJECT: Refusal = Refusal::new(
        503,
        "subject",
        "This pod's Kubernetes token cannot be had right now; try again shortly.",
    );
    const SUBJECT_REFUSED: Refusal = Refusal::new(
        403,
        "subject_refused",
        "The API server gives no token for this pod: its ServiceAccount is gone, or the agent may not ask.",
    );
    const THROTTLED: Refusal = Refusal::new(
        503,
        "upstream_throttled",
        "Google asks for fewer requests right now; try again shortly.",
    );
    const UPSTREAM: Refusal =
        Refusal::new(503, "upstream_down", "Google cannot be asked right now; try again shortly.");
    match unavailable {
        Unavailable::NotEntitled(_) => NO_ACCOUNT,
        Unavailable::TooMany { .. } => TOO_MANY,
        Unavailable::Slow => SLOW,
        Unavailable::Failed(error) => match error.fault {
            Fault::Denied | Fault::Unassigned => DENIED,
            Fault::Rejected => REJECTED,
            Fault::Subject => SUBJECT,
            Fault::SubjectRefused => SUBJECT_REFUSED,
            Fault::Throttled => THROTTLED,
            Fault::Upstream => UPSTREAM,
            Fault::ShortLived => SHORT_LIVED,
        },
    }
}

const SHORT_LIVED: Refusal = Refusal::new(
    503,
    "upstream_short_lived",
    "Google issued this credential for so short a time that it had ended when it came.",
);
