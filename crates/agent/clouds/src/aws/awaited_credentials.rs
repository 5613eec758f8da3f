//! Requests that wait for credentials that nobody holds yet, for as long as their client does.

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

/// Until when a request is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    /// When it came.
    pub(super) received_at: Moment,
    pub(super) now: Moment,
    /// How long its client waits.
    pub(super) timeout: Duration,
}

/// A lease of what the pod may have by then, with that; or why there is none. What is fetched is fetched to its end, for the client's
/// next try.
///
/// # Errors
/// The refusal, told to the pod's owner, too.
pub(super) async fn lease(
    pod: &PodEntry,
    deadline: Deadline,
) -> Result<(PodRole, Arc<Lease<AwsCredential>>), Refusal> {
    let left = deadline.timeout.saturating_sub(deadline.now.since(deadline.received_at));
    let fetched = tokio::time::timeout(left, current(pod, deadline.received_at)).await;
    fetched.map_err(|_| refusals::REFUSALS.slow)?
}

/// What the pod may have is looked at whenever it is replaced: it may have been taken back while its credentials were fetched, and
/// whoever waits would be the last to get them.
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

/// The role that the pod may have now; nothing while that is not decided.
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
