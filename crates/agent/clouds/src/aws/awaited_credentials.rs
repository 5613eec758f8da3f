//! Handles requests for credentials that are not cached. Each request waits at most until shortly before its client's timeout.

use std::sync::Arc;
use std::time::Duration;

use seawall_broker::LeaseError;
use seawall_broker::aws::AwsCredential;
use seawall_core::{Lease, Moment};
use seawall_http::Refusal;

use super::entitlement::PodRole;
use super::refusals;
use crate::entitlements::EntitlementState;
use crate::kubernetes_events;
use crate::pod::PodEntry;

/// The longest time that a request waits for credentials. This time must be shorter than the client's own timeout.
///
/// Most SDKs wait one second. The SDK for Go waits half a second. These times come from the SDKs' sources, and measurements
/// confirmed them.
pub(super) const CREDENTIALS_WAIT_TIMEOUT: Duration = Duration::from_millis(850);

/// The longest time that a request of the SDK for Go waits for credentials. See [`CREDENTIALS_WAIT_TIMEOUT`].
pub(super) const GO_SDK_CREDENTIALS_WAIT_TIMEOUT: Duration = Duration::from_millis(400);

/// The longest time that a request for a session token waits for the attestation of its pod.
///
/// The request waits only if the agent expects a pod at the client's address. Attestation normally takes milliseconds. If
/// attestation takes longer, the client still gets a token.
pub(super) const TOKEN_ATTESTATION_WAIT_TIMEOUT: Duration = Duration::from_millis(100);

/// The time limit for the answer to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerDeadline {
    /// The time when the agent received the request.
    pub(super) received_at: Moment,
    pub(super) now: Moment,
    /// The longest time that the request waits, counted from `received_at`.
    pub(super) timeout: Duration,
}

/// Waits for a lease of the pod's current role. Returns the role and the lease.
///
/// The fetch continues after the time limit, so the client's next try can find the credentials in the cache.
///
/// # Errors
/// The request reaches the time limit, the pod is not allowed to have a role, or the fetch fails. If the fetch fails, the pod's
/// owner also gets an event.
pub(super) async fn await_lease(
    pod: &PodEntry,
    deadline: AnswerDeadline,
) -> Result<(PodRole, Arc<Lease<AwsCredential>>), Refusal> {
    let left = deadline.timeout.saturating_sub(deadline.now.since(deadline.received_at));
    let fetched = tokio::time::timeout(left, current(pod, deadline.received_at)).await;
    fetched.map_err(|_| refusals::REFUSALS.upstream_timeout)?
}

/// Fetches a lease of the pod's current role. The function starts again whenever the agent replaces the pod's entitlements.
///
/// The pod can lose the role during the fetch. Without the restart, waiting requests would still get credentials of the lost
/// role.
async fn current(pod: &PodEntry, came: Moment) -> Result<(PodRole, Arc<Lease<AwsCredential>>), Refusal> {
    loop {
        let replaced = pod.next_entitlements_change();
        let Some(own) = own(pod)? else {
            replaced.await;
            continue;
        };
        let fetched = tokio::select! {
            biased;
            () = replaced => continue,
            fetched = own.lease_client.lease_for_request_at((), came) => fetched,
        };
        return match fetched {
            Ok(lease) => Ok((own, lease)),
            Err(unavailable) => Err(refused(&own, &unavailable)),
        };
    }
}

/// Returns the role that the pod is allowed to have now. Returns `None` while the entitlement is pending, and for
/// pods without an entitlement at AWS.
fn own(pod: &PodEntry) -> Result<Option<PodRole>, Refusal> {
    match pod.entitlements().aws() {
        EntitlementState::Decided(entitlement) => entitlement.role().cloned().map(Some),
        EntitlementState::Pending | EntitlementState::RealServer | EntitlementState::CloudDisabled => {
            Ok(None)
        }
    }
}

fn refused(own: &PodRole, unavailable: &LeaseError) -> Refusal {
    let refusal = refusals::REFUSALS.for_lease_error(unavailable);
    kubernetes_events::report_lease_error(&own.event_recorder, unavailable, &refusal);
    refusal
}
