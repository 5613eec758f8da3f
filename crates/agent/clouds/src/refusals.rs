//! The refusals that a pod gets if the broker has no credential for the pod. There is one refusal per cause, in the cloud's own
//! terms.
//!
//! Each cloud also chooses the HTTP status, because the clients of different clouds react differently to a status.

use seawall_broker::{ExchangeFault, LeaseError};
use seawall_http::Refusal;

/// The refusals of one cloud, by cause.
pub(super) struct CloudRefusals {
    /// The pod is not entitled to a credential of the requested kind.
    pub(super) not_entitled: Refusal,
    /// The pod requests too many new credentials at once.
    pub(super) fetch_rate_limited: Refusal,
    /// The fetch takes longer than the pod's client waits.
    pub(super) upstream_timeout: Refusal,
    pub(super) access_denied: Refusal,
    pub(super) exchange_rejected: Refusal,
    /// The cloud refuses the node's own credentials, which affects every pod.
    pub(super) node_credentials_denied: Refusal,
    pub(super) no_association: Refusal,
    pub(super) pod_token_unavailable: Refusal,
    pub(super) throttled: Refusal,
    pub(super) upstream_unavailable: Refusal,
    pub(super) lifetime_too_short: Refusal,
}

/// The refusal if the API server issues no Kubernetes token for the pod. The refusal is the same for every cloud.
const POD_TOKEN_DENIED: Refusal = Refusal::new(
    403,
    "pod_token_denied",
    "The API server gives no token for this pod: its ServiceAccount does not exist, or the agent is not allowed to request tokens.",
);

impl CloudRefusals {
    /// Returns the refusal for this error.
    pub(super) fn for_lease_error(&self, unavailable: &LeaseError) -> Refusal {
        match unavailable {
            LeaseError::NotEntitled(_) => self.not_entitled,
            LeaseError::TooManyNewCredentials { .. } => self.fetch_rate_limited,
            LeaseError::TimedOut => self.upstream_timeout,
            LeaseError::Failed(error) if error.is_permanent_node_error() => self.node_credentials_denied,
            LeaseError::Failed(error) => match error.fault {
                ExchangeFault::AccessDenied => self.access_denied,
                ExchangeFault::ExchangeRejected => self.exchange_rejected,
                ExchangeFault::NoAssociation => self.no_association,
                ExchangeFault::PodTokenUnavailable => self.pod_token_unavailable,
                ExchangeFault::PodTokenDenied => POD_TOKEN_DENIED,
                ExchangeFault::Throttled => self.throttled,
                ExchangeFault::Unavailable => self.upstream_unavailable,
                ExchangeFault::ShortLived => self.lifetime_too_short,
            },
        }
    }
}
