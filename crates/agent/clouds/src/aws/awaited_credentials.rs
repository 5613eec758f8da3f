//! Requests that wait for credentials that the agent does not hold yet, for as long as their client waits.

use std::sync::Arc;
use std::time::Duration;

use seawall_broker::LeaseError;
use seawall_broker::aws::AwsCredential;
use seawall_core::{Lease, Moment};
use seawall_http::Refusal;

use super::entitlement::PodRole;
use super::refusals;
use crate::entitlements::EntitlementState;
use crate::pod::PodEntry;
use crate::pod_events;

/// The time by which a request must be answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    /// The time at which the request was received.
    pub(super) received_at: Moment,
    pub(super) now: Moment,
    /// The time that the client waits for an answer, counted from `received_at`.
    pub(super) timeout: Duration,
}

/// Waits for a lease of the role that the pod has by then, and returns both.
///
/// A fetch that outlives the deadline continues, so that the client's next try finds its credentials.
///
/// # Errors
/// Returns the refusal. A lease error is also reported to the pod's owner.
pub(super) async fn lease(
    pod: &PodEntry,
    deadline: Deadline,
) -> Result<(PodRole, Arc<Lease<AwsCredential>>), Refusal> {
    let left = deadline.timeout.saturating_sub(deadline.now.since(deadline.received_at));
    let fetched = tokio::time::timeout(left, current(pod, deadline.received_at)).await;
    fetched.map_err(|_| refusals::REFUSALS.upstream_timeout)?
}

/// Fetches a lease of the pod's current role, and starts again each time the pod's entitlements are replaced.
///
/// The role may be revoked while its credentials are fetched. Without the restart, waiting requests would still get them.
async fn current(pod: &PodEntry, came: Moment) -> Result<(PodRole, Arc<Lease<AwsCredential>>), Refusal> {
    loop {
        let replaced = pod.entitlements_changed();
        let Some(own) = own(pod)? else {
            replaced.await;
            continue;
        };
        let fetched = tokio::select! {
            biased;
            () = replaced => continue,
            fetched = own.credentials.lease_received_after((), came) => fetched,
        };
        return match fetched {
            Ok(lease) => Ok((own, lease)),
            Err(unavailable) => Err(refused(&own, &unavailable)),
        };
    }
}

/// The role that the pod may have now. `None` while its entitlement is pending or off.
fn own(pod: &PodEntry) -> Result<Option<PodRole>, Refusal> {
    match pod.entitlements().aws() {
        EntitlementState::Decided(entitlement) => entitlement.role().cloned().map(Some),
        EntitlementState::Pending | EntitlementState::Off => Ok(None),
    }
}

fn refused(own: &PodRole, unavailable: &LeaseError) -> Refusal {
    let refusal = refusals::REFUSALS.of(unavailable);
    pod_events::report_lease_error(&own.event_recorder, unavailable, &refusal);
    refusal
}
