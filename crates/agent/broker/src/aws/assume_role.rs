//! Makes one call to STS or EKS Auth, and interprets the response.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::Full;
use seawall_core::{Clock, Secret, ServiceAccount};
use serde_json::Value;

use super::credential::{AwsCredential, AwsCredentialParts};
use super::node_signing_keys::AwsAccessKeys;
use super::principal::{KeySignedRole, TokenRole};
use super::refusal::{AwsCallAuth, AwsCallError, error_from_response};
use super::response_parser;
use super::sign::{SigningScope, sign_request};
use super::validated_names::{ClusterName, RoleArn, is_role_name};
use crate::failure::{ExchangeError, ExchangeFault};
use crate::https::{HttpsClient, parse_date_header};
use crate::upstream_bodies::encode_form;

/// A session of a role, with its lifetime. The lifetime counts from the start of the call.
#[derive(Debug)]
pub(super) struct AssumedSession {
    pub(super) credential: AwsCredential,
    pub(super) lifetime: Duration,
}

/// The endpoint of STS or EKS Auth, and its region.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceEndpoint<'a> {
    pub(super) url: &'a str,
    /// The region for signatures.
    pub(super) region: &'a str,
}

/// The parameters of a call to EKS Auth, in which the node sends a pod's Kubernetes token.
#[derive(Clone, Copy, Debug)]
pub(super) struct EksAuthRequest<'a> {
    pub(super) cluster: &'a ClusterName,
    pub(super) token: &'a Secret<String>,
    /// The ServiceAccount of the token.
    pub(super) workload: &'a ServiceAccount,
}

/// The client for STS and EKS Auth.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwsApiClient<'a> {
    pub(super) https: &'a HttpsClient,
    pub(super) clock: &'a Clock,
}

/// The only version of the STS API.
const VERSION: &str = "2011-06-15";

/// The longest session that a role can allow (IAM API reference, `CreateRole`, `MaxSessionDuration`). The agent applies this
/// limit to EKS Auth, too. Requests to EKS Auth contain no duration, and the EKS Auth reference states no maximum.
const LONGEST: Duration = Duration::from_secs(12 * 3600);

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

type Members<'a> = Vec<(Cow<'static, str>, Cow<'a, str>)>;

fn members<'a>(action: &'a str, arn: &'a str, session_name: &'a str, length: Duration) -> Members<'a> {
    let member = |name: &'static str, value: &'a str| (Cow::Borrowed(name), Cow::Borrowed(value));
    vec![
        member("Action", action),
        member("Version", VERSION),
        member("RoleArn", arn),
        member("RoleSessionName", session_name),
        (Cow::Borrowed("DurationSeconds"), Cow::Owned(length.as_secs().to_string())),
    ]
}

fn tagged(members: &mut Members<'_>, role: &KeySignedRole) {
    for (n, tag) in role.tags.iter().enumerate() {
        let n = n + 1;
        members.push((format!("Tags.member.{n}.Key").into(), tag.key.to_string().into()));
        members.push((format!("Tags.member.{n}.Value").into(), tag.value.to_string().into()));
    }
    for (n, tag) in role.tags.iter().filter(|tag| tag.is_transitive).enumerate() {
        let n = n + 1;
        members.push((format!("TransitiveTagKeys.member.{n}").into(), tag.key.to_string().into()));
    }
}

impl AwsApiClient<'_> {
    /// Gets a session for a Kubernetes token. This call is not signed.
    pub(super) async fn assume_with_web_identity(
        self,
        place: ServiceEndpoint<'_>,
        role: &TokenRole,
        token: &Secret<String>,
        length: Duration,
    ) -> Result<AssumedSession, AwsCallError> {
        const ACTION: &str = "AssumeRoleWithWebIdentity";
        let mut members = members(ACTION, role.arn.as_str(), role.session_name.as_str(), length);
        members.push(("WebIdentityToken".into(), token.expose().into()));
        let request = post(ACTION, place.url, FORM, &encode_form(&members))?;
        let (body, date) = self.send(ACTION, AwsCallAuth::Token, request).await?;
        let parts = response_parser::parse_sts_session(ACTION, ACTION, body.expose())?;
        Ok(of_role(&role.arn, ACTION, self.session(ACTION, parts, date, length)?)?)
    }

    /// Gets a session with a call that is signed with `keys`.
    pub(super) async fn assume_role(
        self,
        place: ServiceEndpoint<'_>,
        role: &KeySignedRole,
        keys: &AwsAccessKeys,
        length: Duration,
    ) -> Result<AssumedSession, AwsCallError> {
        const ACTION: &str = "AssumeRole";
        let mut members = members(ACTION, role.arn.as_str(), role.session_name.as_str(), length);
        members.extend(role.external_id.as_ref().map(|id| ("ExternalId".into(), id.as_str().into())));
        tagged(&mut members, role);
        let body = encode_form(&members);
        let request = post(ACTION, place.url, FORM, &body)?;
        let scope = SigningScope { service: "sts", region: place.region };
        let request =
            sign_request(ACTION, request, body.expose().as_bytes(), keys, scope, self.clock.wall_time())?;
        let (body, date) = self.send(ACTION, AwsCallAuth::Keys, request).await?;
        let parts = response_parser::parse_sts_session(ACTION, ACTION, body.expose())?;
        Ok(of_role(&role.arn, ACTION, self.session(ACTION, parts, date, length)?)?)
    }

    /// Gets a session from EKS Auth for a Kubernetes token. The call is signed with `keys`.
    pub(super) async fn assume_for_pod_identity(
        self,
        place: ServiceEndpoint<'_>,
        shown: EksAuthRequest<'_>,
        keys: &AwsAccessKeys,
    ) -> Result<AssumedSession, AwsCallError> {
        const ACTION: &str = "AssumeRoleForPodIdentity";
        let url = format!("{}/clusters/{}/assume-role-for-pod-identity", place.url, shown.cluster.as_str());
        let body = Secret::new(format!("{{\"token\":{}}}", Value::from(shown.token.expose().as_str())));
        let request = post(ACTION, &url, "application/json", &body)?;
        let scope = SigningScope { service: "eks-auth", region: place.region };
        let request =
            sign_request(ACTION, request, body.expose().as_bytes(), keys, scope, self.clock.wall_time())?;
        let (body, date) = self.send(ACTION, AwsCallAuth::Both, request).await?;
        let parts = response_parser::parse_pod_identity_session(ACTION, body.expose(), shown.workload)?;
        let session = self.session(ACTION, parts, date, LONGEST)?;
        // EKS Auth chooses this role, and pods put the role's name into a URL path. So the agent checks the name.
        if !is_role_name(session.credential.role_name()) {
            let detail = "answered with a role whose name is invalid";
            return Err(ExchangeError::new(ExchangeFault::Unavailable, ACTION, detail).into());
        }
        Ok(session)
    }

    /// Sends a request. Returns the body and the time of the `Date` header, if present. Any status except 200 is an error.
    async fn send(
        self,
        step: &'static str,
        proof: AwsCallAuth,
        request: Request<Full<Bytes>>,
    ) -> Result<(Secret<Vec<u8>>, Option<SystemTime>), AwsCallError> {
        let (head, body) = self.https.send(step, request).await?;
        if head.status == StatusCode::OK {
            return Ok((body, parse_date_header(&head.headers)));
        }
        Err(error_from_response(step, proof, head.status, &head.headers, body.expose()))
    }

    /// Returns a session that expires at the time that AWS states, but no later than `longest` from now.
    /// The agent never requests a session longer than `longest`. AWS could state a later expiry by mistake. Without this limit,
    /// the broker and the clients would then renew too late.
    fn session(
        self,
        step: &'static str,
        parts: AwsCredentialParts,
        date: Option<SystemTime>,
        longest: Duration,
    ) -> Result<AssumedSession, ExchangeError> {
        let nonsense = |what: String| ExchangeError::new(ExchangeFault::Unavailable, step, what);
        let now = upstream_now(date, self.clock);
        let expires = parts.expires.min(now + longest);
        let credential = AwsCredential::new(AwsCredentialParts { expires, ..parts })
            .map_err(|error| nonsense(error.to_string()))?;
        let lifetime = since(now, credential.expires());
        if lifetime < Duration::from_secs(1) {
            return Err(nonsense("answered with an expired session".to_owned()));
        }
        Ok(AssumedSession { credential, lifetime })
    }
}

/// Returns the session if it belongs to the requested role. STS returns the role's name without the role's path.
/// Role names are unique within an account, whatever their path and letter case (IAM user guide, "IAM and AWS STS quotas").
fn of_role(
    asked: &RoleArn,
    step: &'static str,
    session: AssumedSession,
) -> Result<AssumedSession, ExchangeError> {
    let AssumedSession { credential, .. } = &session;
    let is_same_name = credential.role_name().eq_ignore_ascii_case(asked.name());
    if is_same_name && credential.account() == asked.account() {
        return Ok(session);
    }
    Err(ExchangeError::new(
        ExchangeFault::ExchangeRejected,
        step,
        "answered with a session of a role that the agent did not request",
    ))
}

/// Returns the time from now until `end`.
/// If the response has a `Date`, the current time and `end` both come from AWS's clock. So the result is correct even if the
/// node's clock is wrong.
pub(super) fn lifetime_until(end: SystemTime, date: Option<SystemTime>, clock: &Clock) -> Duration {
    since(upstream_now(date, clock), end)
}

/// Returns AWS's time, or the node's time if the response has no `Date`.
/// A `Date` is truncated to seconds, so this function adds one second.
fn upstream_now(date: Option<SystemTime>, clock: &Clock) -> SystemTime {
    date.map_or_else(|| clock.wall_time(), |date| date + Duration::from_secs(1))
}

fn since(now: SystemTime, end: SystemTime) -> Duration {
    end.duration_since(now).unwrap_or_default()
}

fn post(
    step: &'static str,
    url: &str,
    content_type: &'static str,
    body: &Secret<String>,
) -> Result<Request<Full<Bytes>>, ExchangeError> {
    Request::post(url)
        .header(CONTENT_TYPE, content_type)
        // STS would answer in JSON if the request accepted JSON.
        .header(ACCEPT, if content_type == FORM { "text/xml" } else { "application/json" })
        .body(Full::new(Bytes::copy_from_slice(body.expose().as_bytes())))
        .map_err(|error| ExchangeError::new(ExchangeFault::Unavailable, step, error))
}
