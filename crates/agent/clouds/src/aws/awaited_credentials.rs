//! Requests that wait for credentials that nobody holds yet, for as long as their client does.

use std::sync::Arc;
use std::time::Duration;

use seawall_broker::Unavailable;
use seawall_broker::aws::Credential;
use seawall_core::{Lease, Moment};
use seawall_http::Refusal;

use super::entitlement::Own;
use super::refusals;
use crate::entitlements::Decided;
use crate::pod::PodCaller;
use crate::pod_events;

/// Until when a request is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    /// When it came.
    pub(super) came: Moment,
    pub(super) now: Moment,
    /// How long its client waits.
    pub(super) patience: Duration,
}

/// A lease of what the pod may have by then, with that; or why there is none. What is fetched is fetched to its end, for the client's
/// next try.
///
/// # Errors
/// The refusal, told to the pod's owner, too.
pub(super) async fn lease(
    pod: &PodCaller,
    deadline: Deadline,
) -> Result<(Own, Arc<Lease<Credential>>), Refusal> {
    let left = deadline.patience.saturating_sub(deadline.now.since(deadline.came));
    let fetched = tokio::time::timeout(left, current(pod, deadline.came)).await;
    fetched.map_err(|_| refusals::WORDS.slow)?
}

/// What the pod may have is looked at whenever it is replaced: it may have been taken back while its credentials were fetched, and
/// whoever waits would be the last to get them.
async fn current(pod: &PodCaller, came: Moment) -> Result<(Own, Arc<Lease<Credential>>), Refusal> {
    loop {
        let replaced = pod.change();
        let Some(own) = own(pod)? else {
            replaced.await;
            continue;
        };
        let fetched = tokio::select! {
            biased;
            () = replaced => continue,
            fetched = own.holder.lease_since((), came) => fetched,
        };
        return match fetched {
            Ok(lease) => Ok((own, lease)),
            Err(unavailable) => Err(refused(&own, &unavailable)),
        };
    }
}

/// The role that the pod may have now; nothing while that is not decided.
fn own(pod: &PodCaller) -> Result<Option<Own>, Refusal> {
    match pod.entitlements().aws() {
        Decided::Is(entitlement) => entitlement.own().cloned().map(Some),
        Decided::NotYet | Decided::Off => Ok(None),
    }
}

fn refused(own: &Own, unavailable: &Unavailable) -> Refusal {
    let refusal = refusals::WORDS.of(unavailable);
    pod_events::unavailable(&own.complainer, unavailable, &refusal);
    refusal
}
