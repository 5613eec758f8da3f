//! What a pod may have of Google: the value that is decided for it, kept with it, and read by the dialect.
//!
//! Knows neither who decides it nor who answers by it.

use std::sync::Arc;

use seawall_broker::google::Holder;
use seawall_core::events::Complainer;
use seawall_http::Refusal;
use seawall_protocols::google;

/// What a pod may have of Google.
#[derive(Clone, Debug)]
pub enum Entitlement {
    /// Credentials of its own.
    Federated(Federated),
    /// The real metadata server, through the filter.
    Passthrough,
    /// The node's facts, and instead of an account the reason why there is none.
    Refused(Arc<google::Tree>, Refusal),
}

/// One pod's view of the metadata tree and the way to its leases.
#[derive(Clone, Debug)]
pub struct Federated {
    pub(super) tree: Arc<google::Tree>,
    pub(super) holder: Arc<Holder>,
    /// The Google service account it acts as, if any.
    pub(super) account: Option<Arc<str>>,
    /// Told when the pod is refused something.
    pub(super) complainer: Complainer,
}
