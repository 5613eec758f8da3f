//! Answers the requests to the EC2 metadata service (IMDS) on one traffic thread.
//!
//! The order of the checks follows from how clients react to each status. Every client gets a session token, even if the agent
//! does not know the client's pod. After a refusal, the client would send its requests without a token, in some cases until its
//! process ends. If the agent expects a pod at the client's address, the dialect first waits briefly for the pod's attestation.
//! If a pod gets a refusal or must wait for credentials, this happens at the pod's request for the *listing* of roles. The
//! listing names a role only if the dialect can then answer the request for the role's document, which contains the credentials.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use seawall_broker::aws::AwsCredential;
use seawall_core::cloud::CloudName;
use seawall_core::{Clock, Lease, Moment};
use seawall_http::path::PathCharset;
use seawall_http::{Refusal, RequestHead, ResponseContext};
use seawall_protocols::aws::imds::{NO_TOKEN, method_keeps_alive, respond};
use seawall_protocols::aws::{
    DocumentFormat, IMDS_PATH_CHARSET, Imds, ImdsQuery, ImdsRequest, ImdsResource, Iso8601Time,
    RequestedRole, RoleName, TokenClient, TokenRequirement, TokenRules, TokenSubject, TtlLimit, UnixTime,
    imds,
};
use seawall_server::handler::{MetadataDialect, RequestContext};
use seawall_server::repeated_request_cache::ReplayableQuery;
use seawall_server::response::{CompletedDeferredResponse, DeferredResponse, WriteContext, WriteOutcome};
use seawall_server::route::MetadataRoute;

use super::awaited_credentials::AnswerDeadline;
use super::config::AwsConfig;
use super::entitlement::{AwsEntitlement, PodRole, RoleState};
use super::passthrough::{ImdsPassthrough, PassthroughRequest};
use super::response::FormattedDateCache;
use super::session_token_keys::TokenKeyStore;
use super::{awaited_credentials, response, routes};
use crate::entitlements::EntitlementState;
use crate::pod::{PodEntry, PodHandlerOutcome, PodOrUnknownClient};
use crate::self_test_request::ReadinessRequest;

/// The readiness request. Like the first request of each library, it requests a session token.
pub(super) const READINESS_REQUEST: ReadinessRequest = ReadinessRequest {
    method: "PUT",
    target: "/latest/api/token",
    headers: "X-aws-ec2-metadata-token-ttl-seconds: 1\r\n",
    expected_header: "x-aws-ec2-metadata-token-ttl-seconds: ",
};

/// The state of this dialect that all threads share.
#[derive(Debug)]
pub(super) struct ImdsService {
    imds: Imds,
    keys: Arc<TokenKeyStore>,
    tokens: TokenRequirement,
    longest: TtlLimit,
    clock: Clock,
    /// The number of requests without a session token, whether or not a token is required.
    pub(super) tokenless_requests: Counter,
}

/// The dialect of this service, as one traffic thread uses it.
#[derive(Debug)]
pub(super) struct ImdsDialect {
    service: Arc<ImdsService>,
    passthrough: ImdsPassthrough,
}

const ANYONE: Refusal =
    Refusal::new(403, "unknown_client", "The agent gives credentials and metadata only to identified pods.");

const READINESS_PROBE: Refusal =
    Refusal::new(403, "readiness_probe", "The readiness probe has no credentials.");

impl ImdsService {
    /// Creates the service from the `aws` section of the configuration.
    ///
    /// # Errors
    /// An expression does not compile, although the configuration accepted it.
    pub(super) fn new(section: &AwsConfig, keys: Arc<TokenKeyStore>, clock: Clock) -> anyhow::Result<Self> {
        Ok(Self {
            imds: Imds::new(&section.served_instance_metadata, section.imds.compile_passthrough_patterns()?),
            keys,
            tokens: section.imds.http_tokens,
            longest: TtlLimit::new(section.imds.max_token_lifetime).unwrap_or_default(),
            clock,
            tokenless_requests: Counter::default(),
        })
    }

    /// Creates the service for a new section, with the keys and the counter of this service.
    ///
    /// # Errors
    /// An expression does not compile, although the configuration accepted it.
    pub(super) fn with_config(&self, section: &AwsConfig) -> anyhow::Result<Self> {
        let without_token = self.tokenless_requests.clone();
        Ok(Self {
            tokenless_requests: without_token,
            ..Self::new(section, self.keys.clone(), self.clock.clone())?
        })
    }

    fn now(&self) -> UnixTime {
        UnixTime::from(self.clock.wall_time())
    }

    /// Converts `end` to the monotonic clock. The result can be slightly early, because the caller read `now` a little before
    /// this call.
    fn moment(&self, end: UnixTime, now: Moment) -> Moment {
        now + end.time_left(self.clock.wall_time())
    }

    fn query<'t, 'b>(
        &'t self,
        asked: RequestContext<'_, '_, 'b>,
        visitor: &TokenClient,
    ) -> Result<ImdsRequest<'t, 'b>, Refusal> {
        let keys = self.keys.current_keys();
        let sessions = TokenRules { keys: &keys, requirement: self.tokens, ttl_limit: self.longest };
        self.imds.parse_request(asked.head, &sessions, visitor, self.now())
    }

    /// Counts the request if it has no session token.
    /// The dialect handles a waiting request twice. So call this function only when the dialect answers the request.
    fn note(&self, wanted: &Result<ImdsRequest<'_, '_>, Refusal>) {
        let is_without = match wanted {
            Ok(ImdsRequest::Read(query)) => query.token_expires_at.is_none(),
            Ok(ImdsRequest::Token(_)) => false,
            Err(refusal) => *refusal == NO_TOKEN,
        };
        if is_without {
            self.tokenless_requests.inc();
        }
    }
}

impl MetadataDialect<PodEntry> for ImdsDialect {
    fn cloud(&self) -> CloudName {
        CloudName::Aws
    }

    fn path_charset(&self) -> &'static PathCharset {
        &IMDS_PATH_CHARSET
    }

    fn serves_path(&self, path: &str) -> bool {
        imds::is_imds_path(path)
    }

    fn keeps_alive_after(&self, method: &str) -> bool {
        method_keeps_alive(method)
    }

    fn answers_any_client(&self, method: &str) -> bool {
        method == "PUT"
    }

    fn identity_timeout(&self, head: &RequestHead<'_, '_>) -> Duration {
        patience(head)
    }

    fn answer(
        &self,
        caller: &PodOrUnknownClient,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> PodHandlerOutcome {
        let answered = match caller {
            PodOrUnknownClient::Pod(pod) => match pod.entitlements().aws() {
                EntitlementState::Decided(own) => self.of_pod(pod, own, asked, out),
                EntitlementState::Pending => {
                    let visitor =
                        TokenClient::with_known_pod(TokenSubject::from_pod_uid(&pod.pod.uid), asked.peer_ip);
                    self.of_nobody(visitor, Err(PodHandlerOutcome::AwaitIdentity), asked, out)
                }
                // These cases do not occur: `RealServerDialect` answers pods in `realServer`, and no listener speaks a dialect
                // of a disabled cloud.
                EntitlementState::RealServer | EntitlementState::CloudDisabled => Err(ANYONE),
            },
            // Wait for the attestation before issuing a token, because a token for an attested pod is valid for hours. A token
            // for an address is valid only for minutes. The wait is too short for a client to notice.
            PodOrUnknownClient::Unidentified if asked.has_likely_pod && asked.head.method == "PUT" => {
                Ok(PodHandlerOutcome::AwaitIdentity)
            }
            PodOrUnknownClient::Unidentified => self.of_nobody(
                TokenClient::with_unknown_pod(asked.peer_ip),
                Err(PodHandlerOutcome::AwaitIdentity),
                asked,
                out,
            ),
            PodOrUnknownClient::Refused(refusal) => {
                self.of_nobody(TokenClient::with_unknown_pod(asked.peer_ip), Ok(*refusal), asked, out)
            }
            PodOrUnknownClient::Anyone => {
                self.of_nobody(TokenClient::with_unknown_pod(asked.peer_ip), Ok(ANYONE), asked, out)
            }
            PodOrUnknownClient::OwnReadinessRequest => {
                self.of_nobody(TokenClient::with_unknown_pod(asked.peer_ip), Ok(READINESS_PROBE), asked, out)
            }
        };
        self.answer_or_refuse(answered, asked, out)
    }

    fn refuse(&self, refusal: &Refusal, frame: &ResponseContext<'_>, out: &mut Vec<u8>) {
        respond::write_refusal(out, frame, refusal);
    }
}

/// The result of a read request from a client without a decided entitlement: a refusal, or the outcome that makes the request
/// wait.
type Fallback = Result<Refusal, PodHandlerOutcome>;

impl ImdsDialect {
    pub(super) fn new(service: Arc<ImdsService>, passthrough: ImdsPassthrough) -> Self {
        Self { service, passthrough }
    }

    /// Answers a client without a decided entitlement. A token request gets a token, and every read request gets the result
    /// `instead`.
    fn of_nobody(
        &self,
        visitor: TokenClient,
        instead: Fallback,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<PodHandlerOutcome, Refusal> {
        let wanted = self.service.query(asked, &visitor);
        if !matches!((&wanted, &instead), (Ok(ImdsRequest::Read(_)), Err(_))) {
            self.service.note(&wanted);
        }
        match (wanted, instead) {
            (Ok(ImdsRequest::Token(grant)), _) => Ok(self.token(&grant, asked.response_context, out)),
            (Err(refusal), Err(_)) => Err(refusal),
            (Err(refusal), _) if asked.head.method == "PUT" => Err(refusal),
            (_, Ok(refusal)) => Err(refusal),
            (Ok(ImdsRequest::Read(_)), Err(step)) => Ok(step),
        }
    }

    fn token(
        &self,
        grant: &seawall_protocols::aws::GrantedToken,
        frame: &ResponseContext<'_>,
        out: &mut Vec<u8>,
    ) -> PodHandlerOutcome {
        self.service.keys.mark_used();
        respond::write_token(out, frame, grant);
        PodHandlerOutcome::Answered { route: &routes::TOKEN, status: 200 }
    }

    fn of_pod(
        &self,
        pod: &Arc<PodEntry>,
        own: &AwsEntitlement,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<PodHandlerOutcome, Refusal> {
        let visitor = TokenClient::with_known_pod(own.session_token_subject, asked.peer_ip);
        let wanted = self.service.query(asked, &visitor);
        self.service.note(&wanted);
        match wanted? {
            ImdsRequest::Token(grant) => Ok(self.token(&grant, asked.response_context, out)),
            ImdsRequest::Read(query) => self.read(pod, own, query, asked, out),
        }
    }

    fn read(
        &self,
        pod: &Arc<PodEntry>,
        own: &AwsEntitlement,
        query: ImdsQuery<'_, '_>,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<PodHandlerOutcome, Refusal> {
        let answered = |route| Ok(PodHandlerOutcome::Answered { route, status: 200 });
        let resident = || own.role().map(|own| PodAndRole { pod, own });
        match query.resource {
            ImdsResource::RoleListing(_) => resident().and_then(|own| list(own, asked, out)),
            ImdsResource::RoleCredentials { role, shape } => {
                let resident = resident()?;
                resident.own.check_before_lease(&role)?;
                self.document(resident, role, shape, query.token_expires_at, asked, out)
            }
            ImdsResource::RoleInfo => resident().map(|own| self.info(own, asked, out)),
            ImdsResource::Text(known) => {
                respond::write_text(out, asked.response_context, &known);
                answered(&routes::METADATA)
            }
            ImdsResource::Passthrough(path) => self.pass(own, &path, asked),
        }
    }

    fn pass(
        &self,
        own: &AwsEntitlement,
        path: &str,
        asked: RequestContext<'_, '_, '_>,
    ) -> Result<PodHandlerOutcome, Refusal> {
        let errand = PassthroughRequest {
            rate_limit: own.imds_passthrough_rate_limit.as_ref(),
            client_id: asked.shares.client,
            path,
            now: asked.now,
            timeout: patience(asked.head).saturating_sub(asked.now.since(asked.received_at)),
        };
        self.passthrough.forward(&errand).map(PodHandlerOutcome::Deferred)
    }

    /// Answers with a role's document, which contains the credentials.
    /// If a lease is cached, the answer comes at once, otherwise when the broker has a lease.
    fn document(
        &self,
        PodAndRole { pod, own }: PodAndRole<'_>,
        role: RequestedRole<'_>,
        shape: DocumentFormat,
        session: Option<UnixTime>,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<PodHandlerOutcome, Refusal> {
        let Some(lease) = own.lease_client.cached_lease((), asked.now) else {
            let role = role.into_owned();
            return Ok(later(pod, &routes::CREDENTIALS, asked, move |own, lease| {
                own.check_role(&role, &lease)?;
                Ok(AwaitedImdsResponse::RoleCredentials(lease, shape))
            }));
        };
        own.check_role(&role, &lease)?;
        respond::write_credentials(
            out,
            asked.response_context,
            &response::credentials_document(&lease),
            shape,
        );
        let question = || {
            let (service, role) = (self.service.clone(), role.into_owned());
            let session = session.map(|end| service.moment(end, asked.now));
            Box::new(DocumentReplay { service, role, shape, session, dates: FormattedDateCache::default() })
                as Box<dyn ReplayableQuery<PodEntry>>
        };
        let question = asked.should_return_replayable_query.then(question);
        Ok(PodHandlerOutcome::CacheHit { route: &routes::CREDENTIALS, question })
    }

    /// Answers with the role's account and name. If EKS chooses the role, only the credentials name the role. In that case the
    /// answer waits until the agent has credentials.
    fn info(
        &self,
        PodAndRole { pod, own }: PodAndRole<'_>,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> PodHandlerOutcome {
        let stamp = Iso8601Time::from_unix_time(self.service.now());
        let profile = match own.role_access.role() {
            Some(role) => role.as_str().replacen(":role/", ":instance-profile/", 1),
            None => match own.lease_client.cached_lease((), asked.now) {
                Some(lease) => profile_of(&lease.value),
                None => {
                    return later(pod, &routes::METADATA, asked, move |_, lease| {
                        Ok(AwaitedImdsResponse::RoleInfo(lease, stamp))
                    });
                }
            },
        };
        inform(&profile, stamp, asked.response_context, out);
        PodHandlerOutcome::Answered { route: &routes::METADATA, status: 200 }
    }
}

/// A pod and its current role. A waiting request reads the role from the pod again after the wait.
#[derive(Clone, Copy)]
struct PodAndRole<'a> {
    pod: &'a Arc<PodEntry>,
    own: &'a PodRole,
}

/// Writes the instance profile document. A pod has no instance profile, but tools read the role's account and name from this
/// document.
fn inform(profile: &str, last_updated: Iso8601Time, frame: &ResponseContext<'_>, out: &mut Vec<u8>) {
    respond::write_role_info(
        out,
        frame,
        &respond::RoleInfo { profile_arn: profile, profile_id: None, last_updated },
    );
}

fn profile_of(credential: &AwsCredential) -> String {
    let partition = credential.assumed_role_arn().split(':').nth(1).unwrap_or_default();
    let (account, name) = (credential.account(), credential.role_name());
    format!("arn:{partition}:iam::{account}:instance-profile/{name}")
}

/// Lists the pod's role once the agent has credentials that live for at least [`response::MIN_LISTED_LIFETIME`].
fn list(
    PodAndRole { pod, own }: PodAndRole<'_>,
    asked: RequestContext<'_, '_, '_>,
    out: &mut Vec<u8>,
) -> Result<PodHandlerOutcome, Refusal> {
    match own.lease_client.cached_lease((), asked.now) {
        Some(lease) if lease.remaining(asked.now) >= response::MIN_LISTED_LIFETIME => {
            respond::write_role_name(out, asked.response_context, &own.role_name_for_listing(&lease)?);
            Ok(PodHandlerOutcome::Answered { route: &routes::ROLE_LIST, status: 200 })
        }
        _ => Ok(later(pod, &routes::ROLE_LIST, asked, |own, lease| {
            let role = own.role_name_for_listing(&lease)?;
            Ok(AwaitedImdsResponse::RoleListing(lease, role))
        })),
    }
}

/// Returns the longest time that a request waits for credentials. This time is shorter than the SDK's own timeout, because few
/// SDKs retry. The SDK for Go waits half a second for the head of an answer, and most other SDKs wait one second.
fn patience(head: &RequestHead<'_, '_>) -> Duration {
    const GO: &[u8] = b"aws-sdk-go-v2/";
    if head.method == "PUT" {
        return awaited_credentials::TOKEN_ATTESTATION_WAIT_TIMEOUT;
    }
    let is_go = head.header("user-agent").is_some_and(|agent| agent.starts_with(GO));
    if is_go {
        awaited_credentials::GO_SDK_CREDENTIALS_WAIT_TIMEOUT
    } else {
        awaited_credentials::CREDENTIALS_WAIT_TIMEOUT
    }
}

fn later(
    pod: &Arc<PodEntry>,
    route: &'static MetadataRoute,
    asked: RequestContext<'_, '_, '_>,
    then: impl FnOnce(&PodRole, Arc<Lease<AwsCredential>>) -> Result<AwaitedImdsResponse, Refusal> + 'static,
) -> PodHandlerOutcome {
    let deadline =
        AnswerDeadline { received_at: asked.received_at, now: asked.now, timeout: patience(asked.head) };
    let pod = pod.clone();
    PodHandlerOutcome::Deferred(DeferredResponse::new(route, false, async move {
        let came =
            awaited_credentials::await_lease(&pod, deadline).await.and_then(|(own, lease)| then(&own, lease));
        Box::new(came.unwrap_or_else(AwaitedImdsResponse::Refused)) as Box<dyn CompletedDeferredResponse>
    }))
}

/// The result of a wait for credentials.
#[derive(Debug)]
enum AwaitedImdsResponse {
    RoleListing(Arc<Lease<AwsCredential>>, RoleName),
    RoleCredentials(Arc<Lease<AwsCredential>>, DocumentFormat),
    RoleInfo(Arc<Lease<AwsCredential>>, Iso8601Time),
    Refused(Refusal),
}

const ENDING: Refusal = Refusal::new(
    503,
    "upstream_unavailable",
    "AWS is not available right now, and the cached credentials are about to expire; try again shortly.",
);

impl CompletedDeferredResponse for AwaitedImdsResponse {
    fn write(self: Box<Self>, writing: &WriteContext<'_>, out: &mut Vec<u8>) -> WriteOutcome {
        let refusal = match *self {
            Self::RoleListing(lease, _) if lease.remaining(writing.now) < response::MIN_LISTED_LIFETIME => {
                ENDING
            }
            Self::RoleListing(_, role) => {
                respond::write_role_name(out, writing.response_context, &role);
                return WriteOutcome::whole(200);
            }
            Self::RoleCredentials(lease, shape) => {
                respond::write_credentials(
                    out,
                    writing.response_context,
                    &response::credentials_document(&lease),
                    shape,
                );
                return WriteOutcome::whole(200);
            }
            Self::RoleInfo(lease, stamp) => {
                inform(&profile_of(&lease.value), stamp, writing.response_context, out);
                return WriteOutcome::whole(200);
            }
            Self::Refused(refusal) => refusal,
        };
        respond::write_refusal(out, writing.response_context, &refusal);
        WriteOutcome::whole(refusal.status)
    }
}

/// A recorded request for a document. The replay cache uses the record to answer when the same bytes arrive again.
#[derive(Debug)]
struct DocumentReplay {
    service: Arc<ImdsService>,
    /// The role that the request names.
    role: RequestedRole<'static>,
    shape: DocumentFormat,
    /// The expiry time of the request's session token, on the monotonic clock.
    ///
    /// Each request already has a monotonic time, so the check does not read the wall clock. If the wall clock changes later, the
    /// token still expires at this moment.
    session: Option<Moment>,
    dates: FormattedDateCache,
}

impl ReplayableQuery<PodEntry> for DocumentReplay {
    /// Answers with the pod's current credentials. Returns `None` if the pod's role changed or the token expired.
    ///
    /// After `None`, the thread parses the request again. The token needs no other check, because the thread records the request
    /// only for this pod.
    fn answer(
        &self,
        caller: &PodOrUnknownClient,
        frame: &ResponseContext<'_>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<&'static MetadataRoute> {
        let PodOrUnknownClient::Pod(pod) = caller else { return None };
        if self.session.is_some_and(|end| end <= now) {
            return None;
        }
        let entitlements = pod.entitlements();
        let EntitlementState::Decided(AwsEntitlement { state: RoleState::Role(own), .. }) =
            entitlements.aws()
        else {
            return None;
        };
        let lease = own.lease_client.cached_lease((), now)?;
        own.check_role(&self.role, &lease).ok()?;
        if self.session.is_none() {
            self.service.tokenless_requests.inc();
        }
        respond::write_credentials(out, frame, &self.dates.credentials_document(&lease), self.shape);
        Some(&routes::CREDENTIALS)
    }
}

#[cfg(test)]
mod tests {
    use seawall_core::annotations::{Annotations, RelatedAnnotations};
    use seawall_http::request::header_buffer;
    use seawall_http::{HeadLimits, Parsed, parse_request};

    use super::*;
    use crate::testing::PodFixture;

    const SECTION: &str = "aws: { region: eu-central-1, imds: { maxTokenLifetime: 6h } }\n";
    const LISTING: &str = "/latest/meta-data/iam/security-credentials/";

    async fn token(world: &PodFixture) -> String {
        let ttl = "X-aws-ec2-metadata-token-ttl-seconds: 21600";
        let (answer, at_once) = world.send_with_header("PUT", "/latest/api/token", ttl).await;
        assert!(at_once && answer.starts_with("HTTP/1.1 200 "), "{answer}");
        format!("X-aws-ec2-metadata-token: {}", answer.split("\r\n\r\n").nth(1).unwrap())
    }

    #[tokio::test]
    async fn a_pod_that_is_not_decided_has_a_token_at_once_and_waits_at_the_listing() {
        let world = PodFixture::with_sections(SECTION);
        let shown = token(&world).await;
        let (answer, _) = world.send_with_header("GET", LISTING, &shown).await;
        assert!(answer.is_empty(), "not yet: {answer}");
        world.pod().replace_entitlements(world.entitlements_with_service_account_annotations(
            RelatedAnnotations::of_object(Annotations::default()),
        ));
        let (answer, at_once) = world.send_with_header("GET", LISTING, &shown).await;
        assert!(at_once && answer.starts_with("HTTP/1.1 404 ") && answer.contains("no_role"), "{answer}");
        let (fact, _) = world.send_with_header("GET", "/latest/meta-data/placement/region", &shown).await;
        assert!(fact.ends_with("\r\n\r\neu-central-1"), "{fact}");
    }

    /// Regression: the agent issued a token for the address instead of the pod. The token lived only for minutes, and the next
    /// pod at that address could have used it.
    #[tokio::test]
    async fn a_pod_that_is_expected_at_its_address_is_proven_there_before_its_token_is_made() {
        let mut world = PodFixture::with_sections(SECTION);
        let pod = std::mem::replace(&mut world.caller, PodOrUnknownClient::Unidentified);
        let ask = async |world: &PodFixture, method, target| {
            let ttl = "X-aws-ec2-metadata-token-ttl-seconds: 21600";
            world.send_with_header(method, target, ttl).await
        };
        world.is_pod_expected = true;
        let (answer, _) = ask(&world, "PUT", "/latest/api/token").await;
        assert!(answer.is_empty(), "not yet: {answer}");
        for (caller, life) in [(pod, "21600"), (PodOrUnknownClient::Refused(ANYONE), "300")] {
            world.caller = caller;
            let (answer, at_once) = ask(&world, "PUT", "/latest/api/token").await;
            let ttl = format!("token-ttl-seconds: {life}\r\n");
            assert!(at_once && answer.to_ascii_lowercase().contains(&ttl), "{answer}");
        }
        let mut room = header_buffer();
        let put = b"PUT /latest/api/token HTTP/1.1\r\nHost: a\r\nUser-Agent: aws-sdk-go-v2/1\r\n\r\n";
        let Ok(Parsed::Complete(head, _)) = parse_request(put, &mut room, &HeadLimits::default()) else {
            panic!()
        };
        assert_eq!(patience(&head), awaited_credentials::TOKEN_ATTESTATION_WAIT_TIMEOUT);
    }

    #[tokio::test]
    async fn a_request_without_a_token_that_waits_and_is_answered_then_is_counted_once() {
        let world =
            PodFixture::with_sections("aws: { region: eu-central-1, imds: { httpTokens: optional } }\n");
        let counted = || {
            let mut registry = prometheus_client::registry::Registry::default();
            world.new_current_clouds().register_metrics(&mut registry);
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            let count = text.lines().find_map(|line| line.strip_prefix("seawall_aws_imdsv1_requests_total "));
            count.unwrap().to_owned()
        };
        let (answer, _) = world.send_with_header("GET", LISTING, "A: b").await;
        assert_eq!((answer.as_str(), counted().as_str()), ("", "0"));
        world.pod().replace_entitlements(world.entitlements_with_service_account_annotations(
            RelatedAnnotations::of_object(Annotations::default()),
        ));
        let (answer, _) = world.send_with_header("GET", LISTING, "A: b").await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        assert_eq!(counted(), "1");
    }

    #[tokio::test]
    async fn whoever_is_not_known_has_a_token_and_waits_or_is_refused_for_the_rest() {
        let refusal = Refusal::new(503, "unknown_pod", "who");
        for (caller, expected) in
            [(PodOrUnknownClient::Unidentified, ""), (PodOrUnknownClient::Refused(refusal), "HTTP/1.1 503 ")]
        {
            let mut world = PodFixture::with_sections(SECTION);
            world.caller = caller;
            let shown = token(&world).await;
            let (answer, _) = world.send_with_header("GET", LISTING, &shown).await;
            assert!(answer.starts_with(expected) && answer.is_empty() == expected.is_empty(), "{answer}");
        }
    }

    #[test]
    fn gos_sdk_is_answered_before_it_gives_up_and_so_are_the_others() {
        for (agent, millis) in [
            ("aws-sdk-go-v2/1.47.7 ua/2.1 ft/ec2-imds", 400),
            ("aws-sdk-go/1.55.8 (go1.22)", 850),
            ("Boto3/1.44.5 Botocore/1.44.5", 850),
        ] {
            let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n");
            let mut room = header_buffer();
            let Ok(Parsed::Complete(head, _)) =
                parse_request(bytes.as_bytes(), &mut room, &HeadLimits::default())
            else {
                panic!("{agent}")
            };
            assert_eq!(patience(&head), Duration::from_millis(millis), "{agent}");
        }
    }
}
