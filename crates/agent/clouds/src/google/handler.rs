//! Answers one request in Google's dialect.
//!
//! Libraries detect a metadata server by certain answers ([`DetectionResponder`]). These answers are public: refused and
//! unidentified clients also get them. All other answers depend on the pod's own [`GoogleEntitlement`]. The client resolver finds
//! the pod by the connection, so no request can select the entitlement of another pod.

use std::sync::Arc;
use std::time::Duration;

use seawall_broker::google::{CredentialRequest, CredentialRequestRef};
use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use seawall_core::kubernetes_events::EventReason;
use seawall_http::{Refusal, RequestHead, ResponseContext};
use seawall_protocols::google::federate::{NO_ACCOUNT, NO_ACCOUNT_FOR_ID_TOKEN};
use seawall_protocols::google::{
    CredentialQuery, DetectionResponder, LongPollTarget, MetadataServerKind, MetadataTree, ResponseFormat,
    TreeResource, TreeResponse, WaitForChange,
};
use seawall_server::handler::{MetadataDialect, RequestContext};
use seawall_server::repeated_request_cache::ReplayableQuery;
use seawall_server::route;
use seawall_server::route::MetadataRoute;
use seawall_server::upstream::long_poll_limit::LongPollPermit;

use super::entitlement::{FederatedPod, GoogleEntitlement};
use super::long_polls::{FormattedCredentialRequest, LongPollAnswerer};
use super::passthrough::GooglePassthrough;
use super::{long_polls, request_kind_labels, response};
use crate::entitlements::EntitlementState;
use crate::kubernetes_events;
use crate::pod::{PodEntry, PodHandlerOutcome, PodOrUnknownClient};

/// Google's dialect on one traffic thread.
#[derive(Debug)]
pub(super) struct GoogleDialect {
    /// Answers detection requests, even of clients that are refused or not identified yet.
    detection: DetectionResponder,
    serves: GoogleDialectMode,
    waits: LongPollAnswerer,
    /// Forwards the requests of every client to the real metadata server in `conceal` mode.
    passthrough: GooglePassthrough,
}

/// The mode of the dialect. The mode decides all answers except the answers to detection requests.
#[derive(Clone, Debug)]
pub(super) enum GoogleDialectMode {
    /// Pods have their own credentials. The readiness probe reads a tree with the node's facts and without an account.
    Federate { probe: Arc<MetadataTree> },
    /// All requests go through a filter to the real metadata server.
    Conceal,
}

const ANYONE: Refusal =
    Refusal::new(403, "unknown_client", "The agent gives credentials only to identified pods.");

const READINESS_PROBE: Refusal =
    Refusal::new(403, "readiness_probe", "The readiness probe has no credentials.");

impl MetadataDialect<PodEntry> for GoogleDialect {
    fn cloud(&self) -> CloudName {
        CloudName::Google
    }

    /// True for the paths of the metadata server's API versions, and for the paths above them. Libraries request `/` to detect a
    /// metadata server.
    fn serves_path(&self, path: &str) -> bool {
        matches!(path, "/" | "/computeMetadata")
            || path.starts_with("/computeMetadata/")
            || path.starts_with("/0.1/")
    }

    fn keeps_alive_after(&self, method: &str) -> bool {
        matches!(method, "GET" | "HEAD")
    }

    /// Returns the longest wait for an identity: 400 ms for Go's clients and 500 ms for others.
    ///
    /// The strictest of Go's clients gives up after 500 ms. Node's client allows 3 s for all its tries, with pauses of 0.1, 0.5
    /// and 1.5 s. If the agent waited longer, Node's client would give up during its third try and report a timeout instead of
    /// the agent's refusal.
    fn identity_timeout(&self, head: &RequestHead<'_, '_>) -> Duration {
        // The package cloud.google.com/go/compute/metadata sends `gcloud-golang/0.1`. The package net/http sends
        // `Go-http-client/`.
        let is_go = |agent: &[u8]| {
            ["Go-http-client/", "gcloud-golang/"].iter().any(|known| agent.starts_with(known.as_bytes()))
        };
        let millis = if head.header("user-agent").is_some_and(is_go) { 400 } else { 500 };
        Duration::from_millis(millis)
    }

    fn answer(
        &self,
        caller: &PodOrUnknownClient,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> PodHandlerOutcome {
        let step = match (&self.serves, caller) {
            (_, PodOrUnknownClient::Refused(refusal)) => self.detect(asked, out).ok_or(*refusal),
            (_, PodOrUnknownClient::Unidentified) => Ok(self.not_yet(asked, out)),
            (GoogleDialectMode::Federate { .. }, PodOrUnknownClient::Anyone) => Err(ANYONE),
            (GoogleDialectMode::Federate { .. }, PodOrUnknownClient::Pod(pod)) => {
                self.federate(pod, asked, out)
            }
            (GoogleDialectMode::Federate { probe }, PodOrUnknownClient::OwnReadinessRequest) => {
                self.look(probe, asked, out)
            }
            (GoogleDialectMode::Conceal, PodOrUnknownClient::Pod(pod)) => {
                let later = self.passthrough.forward(Some(pod), asked.shares, asked.head);
                later.map(|later| {
                    PodHandlerOutcome::Deferred(long_polls::cancel_on_revocation(pod, later, self.server()))
                })
            }
            (GoogleDialectMode::Conceal, _) => {
                self.passthrough.forward(None, asked.shares, asked.head).map(PodHandlerOutcome::Deferred)
            }
        };
        self.answer_or_refuse(step, asked, out)
    }

    fn refuse(&self, refusal: &Refusal, frame: &ResponseContext<'_>, out: &mut Vec<u8>) {
        self.server().write_refusal(out, frame, refusal);
    }
}

impl GoogleDialect {
    pub(super) fn new(
        serves: GoogleDialectMode,
        waits: LongPollAnswerer,
        passthrough: GooglePassthrough,
    ) -> Self {
        Self { detection: DetectionResponder::default(), serves, waits, passthrough }
    }

    /// Returns the kind of metadata server that the answers imitate. The kind determines the headers.
    fn server(&self) -> MetadataServerKind {
        match self.serves {
            GoogleDialectMode::Federate { .. } => MetadataServerKind::Gke,
            GoogleDialectMode::Conceal => MetadataServerKind::Vm,
        }
    }

    /// Answers a detection request of any client. The answer confirms that this is a metadata server.
    ///
    /// A library that gets a refusal here concludes permanently that there is no metadata server, and hides the reason. A library
    /// that gets this answer requests a token and then shows the agent's refusal to its user.
    fn detect(&self, asked: RequestContext<'_, '_, '_>, out: &mut Vec<u8>) -> Option<PodHandlerOutcome> {
        let status = self.write_text(&self.detection.answer(asked.head)?, asked.response_context, out);
        Some(PodHandlerOutcome::Answered { route: &route::PROBE, status })
    }

    /// Answers detection requests immediately. Other requests wait until the client's identity and entitlement are known.
    fn not_yet(&self, asked: RequestContext<'_, '_, '_>, out: &mut Vec<u8>) -> PodHandlerOutcome {
        self.detect(asked, out).unwrap_or(PodHandlerOutcome::AwaitIdentity)
    }

    fn federate(
        &self,
        pod: &Arc<PodEntry>,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<PodHandlerOutcome, Refusal> {
        match pod.entitlements().google() {
            EntitlementState::Decided(GoogleEntitlement::Federated(own)) => self.own(pod, own, asked, out),
            EntitlementState::Decided(GoogleEntitlement::Passthrough) => {
                let later = self.passthrough.forward(Some(pod), asked.shares, asked.head)?;
                Ok(PodHandlerOutcome::Deferred(long_polls::cancel_on_revocation(pod, later, self.server())))
            }
            EntitlementState::Decided(GoogleEntitlement::Refused(tree, why)) => {
                self.bare(pod, tree, *why, asked, out)
            }
            EntitlementState::Pending => Ok(self.not_yet(asked, out)),
            // These cases do not occur: `RealServerDialect` answers pods in `realServer`, and no listener speaks a dialect of a
            // disabled cloud.
            EntitlementState::RealServer | EntitlementState::CloudDisabled => Err(ANYONE),
        }
    }

    fn own(
        &self,
        pod: &Arc<PodEntry>,
        own: &FederatedPod,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<PodHandlerOutcome, Refusal> {
        let query = own.metadata_tree.parse_request(asked.head).inspect_err(|refusal| {
            if *refusal == NO_ACCOUNT_FOR_ID_TOKEN {
                kubernetes_events::report_refusal(&own.event_recorder, EventReason::RefusedByPolicy, refusal);
            }
        })?;
        let hold = self.place(query.long_poll, asked)?;
        let wanted = match &query.resource {
            TreeResource::WithoutCredential(text) => return self.text(pod, text, hold, asked, out),
            TreeResource::Credential(credential) => wanted(credential),
        };
        match hold {
            Some((hold, place)) => {
                Ok(PodHandlerOutcome::Deferred(self.waits.await_lease_change(pod, wanted, &hold, place)))
            }
            None => Ok(credential(own, wanted, asked, out)),
        }
    }

    /// Answers a pod without an account: with the node's facts, or with the refusal `why` if the request needs an account.
    fn bare(
        &self,
        pod: &Arc<PodEntry>,
        tree: &MetadataTree,
        why: Refusal,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<PodHandlerOutcome, Refusal> {
        let query = tree
            .parse_request(asked.head)
            .map_err(|refusal| if refusal == NO_ACCOUNT { why } else { refusal })?;
        let hold = self.place(query.long_poll, asked)?;
        match query.resource {
            TreeResource::WithoutCredential(text) => self.text(pod, &text, hold, asked, out),
            TreeResource::Credential(_) => Err(why),
        }
    }

    /// Answers the readiness probe from a tree without credentials.
    fn look(
        &self,
        tree: &MetadataTree,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<PodHandlerOutcome, Refusal> {
        match tree.parse_request(asked.head)?.resource {
            TreeResource::WithoutCredential(text @ TreeResponse::Text(_)) => {
                let status = self.write_text(&text, asked.response_context, out);
                Ok(PodHandlerOutcome::Answered { route: &route::PROBE, status })
            }
            TreeResource::WithoutCredential(TreeResponse::Redirect(_)) | TreeResource::Credential(_) => {
                Err(READINESS_PROBE)
            }
        }
    }

    /// Takes a long-poll permit if the request waits for a change.
    fn place<'b>(
        &self,
        hold: Option<WaitForChange<'b>>,
        asked: RequestContext<'_, '_, '_>,
    ) -> Result<Option<(WaitForChange<'b>, LongPollPermit)>, Refusal> {
        hold.map(|hold| Ok((hold, self.waits.acquire_permit(asked.shares)?))).transpose()
    }

    /// Answers with a text that is already known, or defers the answer if the client waits for a change.
    fn text(
        &self,
        pod: &Arc<PodEntry>,
        text: &TreeResponse<'_, '_>,
        hold: Option<(WaitForChange<'_>, LongPollPermit)>,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<PodHandlerOutcome, Refusal> {
        if let (TreeResponse::Text(known), Some((hold, place))) = (text, hold) {
            let look = LongPollTarget::from_request(asked.head)?;
            return Ok(PodHandlerOutcome::Deferred(self.waits.await_text_change(
                pod,
                look,
                known.clone(),
                &hold,
                place,
            )));
        }
        let status = self.write_text(text, asked.response_context, out);
        Ok(PodHandlerOutcome::Answered { route: &request_kind_labels::METADATA, status })
    }

    /// Writes a text or a redirect and returns its status.
    fn write_text(&self, text: &TreeResponse<'_, '_>, frame: &ResponseContext<'_>, out: &mut Vec<u8>) -> u16 {
        match text {
            TreeResponse::Text(known) => {
                self.server().write_text(out, frame, known);
                200
            }
            TreeResponse::Redirect(redirect) => {
                self.server().write_redirect(out, frame, redirect);
                301
            }
        }
    }
}

fn wanted<'a>(credential: &'a CredentialQuery<'_, '_>) -> FormattedCredentialRequest<'a> {
    match credential {
        CredentialQuery::AccessToken { scopes, alt } => FormattedCredentialRequest {
            credential_request: CredentialRequestRef::AccessToken { scopes: scopes.canonical_text() },
            response_format: *alt,
        },
        CredentialQuery::IdToken { audience, include_email } => FormattedCredentialRequest {
            credential_request: CredentialRequestRef::IdToken { audience, include_email: *include_email },
            response_format: ResponseFormat::Text,
        },
    }
}

/// Answers with a credential. If a lease is cached, the answer comes at once, otherwise when the broker has a lease.
fn credential(
    own: &FederatedPod,
    wanted: FormattedCredentialRequest<'_>,
    asked: RequestContext<'_, '_, '_>,
    out: &mut Vec<u8>,
) -> PodHandlerOutcome {
    let Some(route) = lend(own, wanted, asked.response_context, asked.now, out) else {
        return PodHandlerOutcome::Deferred(long_polls::deferred_credential_response(
            own,
            wanted,
            asked.received_at,
        ));
    };
    let question = || {
        let (tree, want, alt) =
            (own.metadata_tree.clone(), wanted.credential_request.to_request(), wanted.response_format);
        Box::new(CredentialReplay { tree, want, alt }) as Box<dyn ReplayableQuery<PodEntry>>
    };
    PodHandlerOutcome::CacheHit { route, question: asked.should_return_replayable_query.then(question) }
}

/// Writes a cached credential. Returns `None` if there is no lease.
fn lend(
    own: &FederatedPod,
    wanted: FormattedCredentialRequest<'_>,
    frame: &ResponseContext<'_>,
    now: Moment,
    out: &mut Vec<u8>,
) -> Option<&'static MetadataRoute> {
    let lease = own.lease_client.cached_lease(wanted.credential_request, now)?;
    match wanted.credential_request {
        CredentialRequestRef::AccessToken { .. } => {
            response::write_access_token(out, frame, &lease, now, wanted.response_format, None);
        }
        CredentialRequestRef::IdToken { .. } => response::write_id_token(out, frame, &lease),
    }
    Some(request_kind_labels::route_of_request(wanted.credential_request))
}

/// A recorded credential request. The replay cache uses the record to answer when the same bytes arrive again.
#[derive(Debug)]
struct CredentialReplay {
    /// The tree with which the request was parsed.
    tree: Arc<MetadataTree>,
    want: CredentialRequest,
    alt: ResponseFormat,
}

impl ReplayableQuery<PodEntry> for CredentialReplay {
    /// Answers with the pod's current credentials, if the pod's tree is still the same.
    ///
    /// Another tree can interpret the same path differently, because the tree decides which account the path names and which
    /// scopes are the default.
    fn answer(
        &self,
        caller: &PodOrUnknownClient,
        frame: &ResponseContext<'_>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<&'static MetadataRoute> {
        let PodOrUnknownClient::Pod(pod) = caller else { return None };
        let entitlements = pod.entitlements();
        match entitlements.google() {
            EntitlementState::Decided(GoogleEntitlement::Federated(own))
                if Arc::ptr_eq(&own.metadata_tree, &self.tree) =>
            {
                lend(
                    own,
                    FormattedCredentialRequest {
                        credential_request: self.want.as_ref(),
                        response_format: self.alt,
                    },
                    frame,
                    now,
                    out,
                )
            }
            _ => None,
        }
    }
}
