//! Handles requests that must wait. They wait for a credential that is not cached, or for a change of a credential or the
//! metadata tree.
//!
//! Every wait has a time limit. [`LongPollLimit`] also limits the number of long polls.

use std::sync::Arc;
use std::time::Duration;

use seawall_broker::LeaseError;
use seawall_broker::google::{CredentialRequestRef, GoogleTokenText};
use seawall_core::cloud::CloudName;
use seawall_core::shutdown::StopSignal;
use seawall_core::{Lease, Moment};
use seawall_http::Refusal;
use seawall_protocols::google::{
    CredentialFreeBody, LongPollTarget, MetadataServerKind, ResponseFormat, WaitForChange,
};
use seawall_server::connection_client::UpstreamChargedClient;
use seawall_server::response::{CompletedDeferredResponse, DeferredResponse, WriteContext, WriteOutcome};
use seawall_server::upstream::long_poll_limit::{LongPollLimit, LongPollPermit};

use super::entitlement::{FederatedPod, GoogleEntitlement};
use super::response::{AwaitedGoogleResponse, token_etag};
use super::{refusals, request_kind_labels};
use crate::entitlements::EntitlementState;
use crate::kubernetes_events;
use crate::pod::PodEntry;

/// A credential request and the response format that the client requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormattedCredentialRequest<'a> {
    pub(super) credential_request: CredentialRequestRef<'a>,
    pub(super) response_format: ResponseFormat,
}

/// Answers long polls when their credential or tree text changes.
#[derive(Clone, Debug)]
pub(super) struct LongPollAnswerer(pub(super) LongPollLimit);

impl LongPollAnswerer {
    /// Takes a permit for one more long poll of this client.
    pub(super) fn acquire_permit(
        &self,
        shares: UpstreamChargedClient<'_>,
    ) -> Result<LongPollPermit, Refusal> {
        self.0.try_acquire(shares.long_poll_counter)
    }

    /// Waits until the tree's text differs from the text that the client knows, and returns the new text. At the timeout, the
    /// function returns the known text.
    ///
    /// The text can change when the annotations of the pod's ServiceAccount change.
    pub(super) fn await_text_change(
        &self,
        pod: &Arc<PodEntry>,
        look: LongPollTarget,
        known: CredentialFreeBody<'_>,
        hold: &WaitForChange<'_>,
        place: LongPollPermit,
    ) -> DeferredResponse {
        let (pod, known) = (pod.clone(), known.into_owned());
        let (timeout, mut stop) = (hold.timeout, self.0.stop_signal.clone());
        DeferredResponse::new(&request_kind_labels::METADATA, true, async move {
            let _place = place;
            // At the timeout, or during a drain, the client gets the content that it already has.
            let over = async {
                tokio::select! { other = other_text(&pod, &look, &known) => Some(other), () = stop.wait() => None }
            };
            let came = tokio::time::timeout(timeout, over).await.ok().flatten();
            Box::new(came.unwrap_or(AwaitedGoogleResponse::TreeText(known)))
                as Box<dyn CompletedDeferredResponse>
        })
    }

    /// Waits until the credential differs from the client's credential, and returns the new credential. At the timeout, the
    /// function returns the current credential.
    pub(super) fn await_lease_change(
        &self,
        pod: &Arc<PodEntry>,
        wanted: FormattedCredentialRequest<'_>,
        hold: &WaitForChange<'_>,
        place: LongPollPermit,
    ) -> DeferredResponse {
        let (pod, mut stop) = (pod.clone(), self.0.stop_signal.clone());
        let (want, alt) = (wanted.credential_request.to_request(), wanted.response_format);
        let (seen, timeout) = (hold.last_etag.as_deref().map(str::to_owned), hold.timeout);
        DeferredResponse::new(
            request_kind_labels::route_of_request(wanted.credential_request),
            true,
            async move {
                let _place = place;
                let lease = next_lease(&pod, want.as_ref(), seen.as_deref(), timeout, &mut stop).await;
                let came = lease.map_or_else(AwaitedGoogleResponse::Refused, |lease| {
                    AwaitedGoogleResponse::from_lease(&want, alt, lease).with_etag()
                });
                Box::new(came) as Box<dyn CompletedDeferredResponse>
            },
        )
    }
}

/// Waits until the text at the client's path changes in the pod's tree, and returns the new text.
async fn other_text(
    pod: &PodEntry,
    look: &LongPollTarget,
    known: &CredentialFreeBody<'_>,
) -> AwaitedGoogleResponse {
    loop {
        let change = pod.next_entitlements_change();
        match look_again(pod, look) {
            None => {}
            Some(Ok(now)) if now.etag == known.etag => {}
            Some(other) => {
                return other.map_or_else(AwaitedGoogleResponse::Refused, AwaitedGoogleResponse::TreeText);
            }
        }
        change.await;
    }
}

/// Reads the path again in the pod's current tree. Returns `None` while the pod's entitlement is pending.
fn look_again(pod: &PodEntry, look: &LongPollTarget) -> Option<Result<CredentialFreeBody<'static>, Refusal>> {
    match pod.entitlements().google() {
        EntitlementState::Decided(
            GoogleEntitlement::Federated(FederatedPod { metadata_tree: tree, .. })
            | GoogleEntitlement::Refused(tree, _),
        ) => Some(tree.reread_text(look).map(CredentialFreeBody::into_owned)),
        EntitlementState::Decided(GoogleEntitlement::Passthrough)
        | EntitlementState::RealServer
        | EntitlementState::CloudDisabled => Some(Err(NO_MORE)),
        EntitlementState::Pending => None,
    }
}

/// The longest time that an ended long poll waits for a pending decision about the pod's entitlement.
const CHANGING: Duration = Duration::from_secs(1);

/// Waits for a lease whose ETag differs from the ETag that the client has seen.
///
/// The function looks up the lease again after the wait, because during the wait the lease can expire or the pod's account can
/// change.
async fn next_lease(
    pod: &PodEntry,
    want: CredentialRequestRef<'_>,
    seen: Option<&str>,
    timeout: Duration,
    stop: &mut StopSignal,
) -> Result<Arc<Lease<GoogleTokenText>>, Refusal> {
    let replaced = pod.next_entitlements_change();
    let own = federated(pod)?;
    let first = own.lease_client.lease(want).await.map_err(|unavailable| refused(&own, &unavailable))?;
    let mut changes = own.lease_client.watch_lease(want);
    if seen.is_none_or(|seen| token_etag(&first).matches(seen)) {
        let over = async {
            tokio::select! {
                () = changes.changed() => {}
                () = replaced => {}
                () = stop.wait() => {}
            }
        };
        let _ = tokio::time::timeout(timeout, over).await;
        // The entitlement is pending for a moment while a new configuration replaces the current one.
        let _ = tokio::time::timeout(CHANGING, pod.wait_until_decided(CloudName::Google)).await;
    }
    let own = federated(pod)?;
    own.lease_client.lease(want).await.map_err(|unavailable| refused(&own, &unavailable))
}

/// Returns the pod's own tree and credentials, if the pod is entitled to its own credentials now.
fn federated(pod: &PodEntry) -> Result<FederatedPod, Refusal> {
    match pod.entitlements().google() {
        EntitlementState::Decided(GoogleEntitlement::Federated(own)) => Ok(own.clone()),
        EntitlementState::Decided(GoogleEntitlement::Passthrough | GoogleEntitlement::Refused(..))
        | EntitlementState::Pending
        | EntitlementState::RealServer
        | EntitlementState::CloudDisabled => Err(NO_MORE),
    }
}

/// Ends a long poll at the real server when the pod is no longer allowed to use that server.
///
/// A long poll can last for hours, and its answer can contain the node's own credentials. If `later` is not a long poll, the
/// function returns it unchanged, because its request ends soon.
pub(super) fn cancel_on_revocation(
    pod: &Arc<PodEntry>,
    later: DeferredResponse,
    server: MetadataServerKind,
) -> DeferredResponse {
    if later.is_long_poll { end_on_revocation(pod, later, server) } else { later }
}

/// Ends any request at the real server when the pod is no longer allowed to use that server.
pub(super) fn end_on_revocation(
    pod: &Arc<PodEntry>,
    later: DeferredResponse,
    server: MetadataServerKind,
) -> DeferredResponse {
    let (pod, DeferredResponse { route, is_long_poll, reply }) = (pod.clone(), later);
    DeferredResponse::new(route, is_long_poll, async move {
        tokio::select! {
            biased;
            () = no_more_let_through(&pod) => Box::new(RevokedResponse(server)),
            reply = reply => reply,
        }
    })
}

async fn no_more_let_through(pod: &PodEntry) {
    loop {
        let change = pod.next_entitlements_change();
        let entitlements = pod.entitlements();
        let is_passed_on = entitlements.use_real_server()
            || matches!(
                entitlements.google(),
                EntitlementState::Decided(GoogleEntitlement::Passthrough) | EntitlementState::Pending
            );
        drop(entitlements);
        if !is_passed_on {
            return;
        }
        change.await;
    }
}

/// The refusal [`NO_MORE`] in the format of this server.
struct RevokedResponse(MetadataServerKind);

impl CompletedDeferredResponse for RevokedResponse {
    fn write(self: Box<Self>, writing: &WriteContext<'_>, out: &mut Vec<u8>) -> WriteOutcome {
        self.0.write_refusal(out, writing.response_context, &NO_MORE);
        WriteOutcome::whole(NO_MORE.status)
    }
}

const NO_MORE: Refusal =
    Refusal::new(503, "account_changed", "The account of this pod has just changed; try again.");

/// Defers the response until the broker has the credential or the fetch fails. `came` is the time when the agent received the
/// request.
pub(super) fn deferred_credential_response(
    own: &FederatedPod,
    wanted: FormattedCredentialRequest<'_>,
    came: Moment,
) -> DeferredResponse {
    let (own, want, alt) = (own.clone(), wanted.credential_request.to_request(), wanted.response_format);
    DeferredResponse::new(
        request_kind_labels::route_of_request(wanted.credential_request),
        false,
        async move {
            let came = match own.lease_client.lease_for_request_at(want.as_ref(), came).await {
                Ok(lease) => AwaitedGoogleResponse::from_lease(&want, alt, lease),
                Err(unavailable) => AwaitedGoogleResponse::Refused(refused(&own, &unavailable)),
            };
            Box::new(came) as Box<dyn CompletedDeferredResponse>
        },
    )
}

/// Returns the refusal for this error and records it as an event for the pod's owner.
fn refused(own: &FederatedPod, unavailable: &LeaseError) -> Refusal {
    let refusal = refusals::REFUSALS.for_lease_error(unavailable);
    kubernetes_events::report_lease_error(&own.event_recorder, unavailable, &refusal);
    refusal
}
