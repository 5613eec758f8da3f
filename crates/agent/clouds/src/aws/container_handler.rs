//! Answers the requests to the containers' credentials endpoint on one traffic thread.
//!
//! The endpoint answers soon even if AWS does not respond, because five of AWS's SDKs wait without a timeout.

use std::sync::Arc;
use std::time::Duration;

use seawall_broker::aws::AwsCredential;
use seawall_core::cloud::CloudName;
use seawall_core::{Clock, Lease, Moment};
use seawall_http::path::PathCharset;
use seawall_http::{Refusal, RequestHead, ResponseContext};
use seawall_protocols::aws::containers::{self as endpoint, is_endpoint_path};
use seawall_protocols::aws::{
    ContainerCredentialsEndpoint, CredentialsDocument, REQUEST_PATH_CHARSET, UnixTime,
};
use seawall_server::handler::{MetadataDialect, RequestContext};
use seawall_server::repeated_request_cache::ReplayableQuery;
use seawall_server::response::{CompletedDeferredResponse, DeferredResponse, WriteContext, WriteOutcome};
use seawall_server::route;
use seawall_server::route::MetadataRoute;

use super::awaited_credentials::AnswerDeadline;
use super::entitlement::{AwsEntitlement, PodRole, RoleState};
use super::{awaited_credentials, presented_pod_token, response, routes};
use crate::entitlements::EntitlementState;
use crate::pod::{PodEntry, PodHandlerOutcome, PodOrUnknownClient};
use crate::self_test_request::ReadinessRequest;

/// The readiness request. The endpoint recognises the readiness probe, and answers it with an empty JSON object.
pub(super) const READINESS_REQUEST: ReadinessRequest = ReadinessRequest {
    method: "GET",
    target: "/v1/credentials",
    headers: "",
    expected_header: "content-type: application/json",
};

/// The dialect of this endpoint, as one traffic thread uses it.
#[derive(Debug)]
pub(super) struct ContainerCredentialsDialect {
    endpoint: ContainerCredentialsEndpoint,
    audience: Arc<str>,
    clock: Clock,
}

const ANYONE: Refusal =
    Refusal::new(403, "unknown_client", "The agent gives credentials only to identified pods.");

impl MetadataDialect<PodEntry> for ContainerCredentialsDialect {
    fn cloud(&self) -> CloudName {
        CloudName::Aws
    }

    fn path_charset(&self) -> &'static PathCharset {
        &REQUEST_PATH_CHARSET
    }

    fn serves_path(&self, path: &str) -> bool {
        is_endpoint_path(path)
    }

    fn keeps_alive_after(&self, method: &str) -> bool {
        matches!(method, "GET" | "HEAD")
    }

    fn identity_timeout(&self, _: &RequestHead<'_, '_>) -> Duration {
        awaited_credentials::CREDENTIALS_WAIT_TIMEOUT
    }

    fn answer(
        &self,
        caller: &PodOrUnknownClient,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> PodHandlerOutcome {
        let answered = match caller {
            PodOrUnknownClient::OwnReadinessRequest => Ok(probed(asked.response_context, out)),
            PodOrUnknownClient::Refused(refusal) => Err(*refusal),
            PodOrUnknownClient::Anyone => Err(ANYONE),
            PodOrUnknownClient::Unidentified => {
                self.endpoint.parse_request(asked.head).map(|_| PodHandlerOutcome::AwaitIdentity)
            }
            PodOrUnknownClient::Pod(pod) => self.of_pod(pod, asked, out),
        };
        self.answer_or_refuse(answered, asked, out)
    }

    fn refuse(&self, refusal: &Refusal, frame: &ResponseContext<'_>, out: &mut Vec<u8>) {
        endpoint::write_refusal(out, frame, refusal);
    }
}

fn probed(frame: &ResponseContext<'_>, out: &mut Vec<u8>) -> PodHandlerOutcome {
    frame.begin_head(out, 200, b"Content-Type: application/json\r\n");
    frame.end_with_body(out, &[b"{}"]);
    PodHandlerOutcome::Answered { route: &route::PROBE, status: 200 }
}

/// The refusal for a pod in `realServer`. The real metadata server has no endpoint of this kind.
const REAL_SERVER: Refusal = Refusal::new(
    403,
    "real_server",
    "This pod's ServiceAccount is in realServer, so it has the node's credentials, which the metadata service at 169.254.169.254 \
     serves. This endpoint has none for it.",
);

impl ContainerCredentialsDialect {
    pub(super) fn new(endpoint: ContainerCredentialsEndpoint, audience: Arc<str>, clock: Clock) -> Self {
        Self { endpoint, audience, clock }
    }

    /// Answers a pod's request. The function checks the token before the role, because a bad token is an error for every role.
    fn of_pod(
        &self,
        pod: &Arc<PodEntry>,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<PodHandlerOutcome, Refusal> {
        let query = self.endpoint.parse_request(asked.head)?;
        let now = UnixTime::from(self.clock.wall_time());
        let token_ends = presented_pod_token::check(query.token, &pod.pod, &self.audience, now)?;
        match pod.entitlements().aws() {
            EntitlementState::Decided(own) => Ok(self.lend(pod, own.role()?, token_ends, asked, out)),
            EntitlementState::Pending => Ok(PodHandlerOutcome::AwaitIdentity),
            EntitlementState::RealServer => Err(REAL_SERVER),
            EntitlementState::CloudDisabled => Err(ANYONE),
        }
    }

    fn lend(
        &self,
        pod: &Arc<PodEntry>,
        own: &PodRole,
        token_ends: UnixTime,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> PodHandlerOutcome {
        let Some(lease) = own.lease_client.cached_lease((), asked.now) else { return later(pod, asked) };
        endpoint::write_credentials(out, asked.response_context, &credentials(own, &lease));
        let question = || {
            Box::new(CredentialsReplay { clock: self.clock.clone(), token_ends })
                as Box<dyn ReplayableQuery<PodEntry>>
        };
        PodHandlerOutcome::CacheHit {
            route: &routes::CONTAINER_CREDENTIALS,
            question: asked.should_return_replayable_query.then(question),
        }
    }
}

fn credentials<'a>(own: &'a PodRole, lease: &'a Lease<AwsCredential>) -> CredentialsDocument<'a> {
    let role_arn = own.role_access.role().map(seawall_broker::aws::RoleArn::as_str);
    CredentialsDocument { role_arn, ..response::credentials_document(lease) }
}

fn later(pod: &Arc<PodEntry>, asked: RequestContext<'_, '_, '_>) -> PodHandlerOutcome {
    let deadline = AnswerDeadline {
        received_at: asked.received_at,
        now: asked.now,
        timeout: awaited_credentials::CREDENTIALS_WAIT_TIMEOUT,
    };
    let pod = pod.clone();
    PodHandlerOutcome::Deferred(DeferredResponse::new(&routes::CONTAINER_CREDENTIALS, false, async move {
        Box::new(AwaitedCredentialsResponse(awaited_credentials::await_lease(&pod, deadline).await))
            as Box<dyn CompletedDeferredResponse>
    }))
}

/// The result of a wait for credentials: the role with its lease, or a refusal.
#[derive(Debug)]
struct AwaitedCredentialsResponse(Result<(PodRole, Arc<Lease<AwsCredential>>), Refusal>);

impl CompletedDeferredResponse for AwaitedCredentialsResponse {
    fn write(self: Box<Self>, writing: &WriteContext<'_>, out: &mut Vec<u8>) -> WriteOutcome {
        match &self.0 {
            Ok((own, lease)) => {
                endpoint::write_credentials(out, writing.response_context, &credentials(own, lease));
                WriteOutcome::whole(200)
            }
            Err(refusal) => {
                endpoint::write_refusal(out, writing.response_context, refusal);
                WriteOutcome::whole(refusal.status)
            }
        }
    }
}

/// A recorded request for credentials. The replay cache uses the record to answer when the same bytes arrive again.
#[derive(Debug)]
struct CredentialsReplay {
    clock: Clock,
    /// The expiry time of the request's Kubernetes token.
    token_ends: UnixTime,
}

impl ReplayableQuery<PodEntry> for CredentialsReplay {
    /// Answers with the pod's current credentials. The function checks only the token's expiry time. The thread fully checked the
    /// token before it recorded the request, and the record is only for this pod.
    fn answer(
        &self,
        caller: &PodOrUnknownClient,
        frame: &ResponseContext<'_>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<&'static MetadataRoute> {
        let PodOrUnknownClient::Pod(pod) = caller else { return None };
        if self.token_ends <= UnixTime::from(self.clock.wall_time()) {
            return None;
        }
        let entitlements = pod.entitlements();
        let EntitlementState::Decided(AwsEntitlement { state: RoleState::Role(own), .. }) =
            entitlements.aws()
        else {
            return None;
        };
        let lease = own.lease_client.cached_lease((), now)?;
        endpoint::write_credentials(out, frame, &credentials(own, &lease));
        Some(&routes::CONTAINER_CREDENTIALS)
    }
}
