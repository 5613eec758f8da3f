//! Requests that wait for credentials that nobody holds yet, for as long as their client does.

use std::sync::Arc;
use std::time::Duration;

use seawall_broker::aws::Credential;
use seawall_cloud::Refusal;
use seawall_core::{Lease, Moment};

use super::{Own, refusals};

/// Until when a request is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    /// When it came.
    pub(super) came: Moment,
    pub(super) now: Moment,
    /// How long its client waits.
    pub(super) patience: Duration,
}

/// A lease by then, or why there is none. What is fetched is fetched to its end, for the client's next try.
///
/// # Errors
/// The refusal, told to the pod's owner, too.
pub(super) async fn lease(own: &Own, deadline: Deadline) -> Result<Arc<Lease<Credential>>, Refusal> {
    let left = deadline.patience.saturating_sub(deadline.now.since(deadline.came));
    let fetched = tokio::time::timeout(left, own.holder.lease_since((), deadline.came)).await;
    fetched.map_err(|_| refusals::SLOW)?.map_err(|unavailable| {
        let refusal = refusals::of(&unavailable);
        own.complainer.unavailable(&unavailable, &refusal);
        refusal
    })
}
