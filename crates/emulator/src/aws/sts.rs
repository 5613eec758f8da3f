//! STS's query interface: it turns a form into a decision. Every check fails closed, and a token's claims count only after its signature.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use http::request::Parts;

use super::mint::{AwsSession, SessionCredentials};
use super::reply::{self, EmulatorReply, element, text_element};
use super::role::{IamRole, RoleArnParts};
use super::sigv4::SignatureError;
use super::state::{AwsState, KubernetesTokenRefusal};
use crate::jwt::JwtError;

const VERSION: &str = "2011-06-15";

/// The allowed session durations in seconds; below, the limit of chained sessions.
const DURATIONS: std::ops::RangeInclusive<u64> = 900..=43_200;
const CHAINED: Duration = Duration::from_secs(3600);

/// The default duration in seconds.
const HOUR: u64 = 3600;

/// The most tags of a session.
const TAGS: usize = 50;

/// The reason why a request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AwsStsRefusal {
    #[error("Could not find operation {0} for version {VERSION}")]
    Action(String),
    #[error("1 validation error detected: Value at '{0}' failed to satisfy constraint")]
    Validation(&'static str),
    #[error("The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")]
    DurationTooLong,
    #[error(
        "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining."
    )]
    ChainedDurationTooLong,
    #[error("Not authorized to perform sts:AssumeRoleWithWebIdentity")]
    NotTrusted,
    #[error("User: {0} is not authorized to perform: sts:AssumeRole on resource: {1}")]
    Denied(String, String),
    #[error(transparent)]
    Token(#[from] KubernetesTokenRefusal),
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

impl AwsStsRefusal {
    fn status_and_code(&self) -> (StatusCode, &'static str) {
        let (bad, forbidden) = (StatusCode::BAD_REQUEST, StatusCode::FORBIDDEN);
        match self {
            Self::Action(_) => (bad, "InvalidAction"),
            Self::Validation(_) | Self::DurationTooLong | Self::ChainedDurationTooLong => {
                (bad, "ValidationError")
            }
            Self::NotTrusted | Self::Denied(..) => (forbidden, "AccessDenied"),
            Self::Token(KubernetesTokenRefusal::Token(JwtError::Expired)) => (bad, "ExpiredTokenException"),
            Self::Token(_) => (bad, "InvalidIdentityToken"),
            Self::Signature(SignatureError::Missing) => (forbidden, "MissingAuthenticationToken"),
            Self::Signature(SignatureError::Incomplete) => (bad, "IncompleteSignature"),
            Self::Signature(SignatureError::UnknownKey) => (forbidden, "InvalidClientTokenId"),
            Self::Signature(SignatureError::ExpiredSessionToken) => (forbidden, "ExpiredToken"),
            Self::Signature(SignatureError::Scope | SignatureError::Time | SignatureError::Mismatch) => {
                (forbidden, "SignatureDoesNotMatch")
            }
        }
    }

    pub(super) fn reply(&self) -> EmulatorReply {
        let (status, code) = self.status_and_code();
        reply::error_reply(status, code, &self.to_string())
    }
}

/// The action of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StsAction {
    WebIdentity,
    AssumeRole,
    CallerIdentity,
    Unknown,
}

/// The fields of a form by name. If a field occurs twice, the last one counts.
#[derive(Debug)]
pub(super) struct StsForm(BTreeMap<String, String>);

impl StsForm {
    pub(super) fn parse(body: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(body).into_owned().collect())
    }

    pub(super) fn action(&self) -> StsAction {
        match self.field("Action") {
            _ if self.field("Version") != Some(VERSION) => StsAction::Unknown,
            Some("AssumeRoleWithWebIdentity") => StsAction::WebIdentity,
            Some("AssumeRole") => StsAction::AssumeRole,
            Some("GetCallerIdentity") => StsAction::CallerIdentity,
            _ => StsAction::Unknown,
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn checked(&self, name: &'static str, is_good: impl Fn(&str) -> bool) -> Result<&str, AwsStsRefusal> {
        self.field(name).filter(|text| is_good(text)).ok_or(AwsStsRefusal::Validation(name))
    }

    fn role(&self) -> Result<&str, AwsStsRefusal> {
        self.checked("RoleArn", |arn| RoleArnParts::of(arn).is_some())
    }

    fn session_name(&self) -> Result<&str, AwsStsRefusal> {
        let is_in = |b: u8| b.is_ascii_alphanumeric() || b"_+=,.@-".contains(&b);
        self.checked("RoleSessionName", |name| (2..=64).contains(&name.len()) && name.bytes().all(is_in))
    }

    fn duration(&self) -> Result<Duration, AwsStsRefusal> {
        let stated = self.field("DurationSeconds").map_or(Ok(HOUR), str::parse);
        let seconds = stated.ok().filter(|seconds| DURATIONS.contains(seconds));
        seconds.map(Duration::from_secs).ok_or(AwsStsRefusal::Validation("DurationSeconds"))
    }

    fn tags(&self) -> Result<BTreeMap<String, String>, AwsStsRefusal> {
        let tag = |n: usize| {
            let part = |part| self.field(&format!("Tags.member.{n}.{part}")).map(str::to_owned);
            part("Key").zip(part("Value"))
        };
        let tags: BTreeMap<_, _> = (1..=TAGS + 1).map_while(tag).collect();
        let is_good = tags.len() <= TAGS && tags.keys().all(|key| (1..=128).contains(&key.chars().count()));
        if is_good { Ok(tags) } else { Err(AwsStsRefusal::Validation("Tags")) }
    }

    fn session(&self, taken_by: &str) -> Result<AwsSession, AwsStsRefusal> {
        Ok(AwsSession {
            access_key_id: String::new(),
            role: self.role()?.to_owned(),
            name: self.session_name()?.to_owned(),
            taken_by: taken_by.to_owned(),
            tags: BTreeMap::new(),
            exp: 0,
        })
    }
}

/// Answers a request.
pub(super) fn answer(state: &AwsState, form: &StsForm, request: &Parts, body: &[u8]) -> EmulatorReply {
    let answered = match form.action() {
        StsAction::WebIdentity => web_identity(state, form),
        StsAction::AssumeRole => assume_role(state, form, request, body),
        StsAction::CallerIdentity => caller_identity(state, request, body),
        StsAction::Unknown => Err(AwsStsRefusal::Action(form.field("Action").unwrap_or_default().to_owned())),
    };
    answered.unwrap_or_else(|refused| refused.reply())
}

fn web_identity(state: &AwsState, form: &StsForm) -> Result<EmulatorReply, AwsStsRefusal> {
    let (arn, duration) = (form.role()?, form.duration()?);
    let token = form.checked("WebIdentityToken", |token| (4..=20_000).contains(&token.len()))?;
    let claims = state.verify_token(token, None)?;
    let session = form.session(&claims.subject)?;
    let role = state
        .role_by_arn(arn)
        .filter(|role| role.admits(&claims.subject))
        .ok_or(AwsStsRefusal::NotTrusted)?;
    check_duration(&role, duration)?;
    let issued = state.issue(session, duration);
    let about = text_element("SubjectFromWebIdentityToken", &claims.subject)
        + &text_element("Audience", claims.audiences.first().map_or("", String::as_str))
        + &text_element("Provider", &claims.issuer);
    Ok(reply::success_reply("AssumeRoleWithWebIdentity", &(result(state, &issued) + &about)))
}

fn assume_role(
    state: &AwsState,
    form: &StsForm,
    request: &Parts,
    body: &[u8],
) -> Result<EmulatorReply, AwsStsRefusal> {
    let caller = state.verify_signer("sts", request, body)?;
    let (arn, duration) = (form.role()?, form.duration()?);
    let session = AwsSession { tags: form.tags()?, ..form.session(&caller.arn)? };
    let role =
        state.role_by_arn(arn).filter(|role| role.admits_signer(&caller.arn, form.field("ExternalId")));
    let role = role.ok_or_else(|| AwsStsRefusal::Denied(caller.audit_arn(), arn.to_owned()))?;
    check_duration(&role, duration)?;
    if caller.session.is_some() && duration > CHAINED {
        return Err(AwsStsRefusal::ChainedDurationTooLong);
    }
    let issued = state.issue(session, duration);
    Ok(reply::success_reply("AssumeRole", &result(state, &issued)))
}

fn check_duration(role: &IamRole, duration: Duration) -> Result<(), AwsStsRefusal> {
    if duration > role.max_session_duration { Err(AwsStsRefusal::DurationTooLong) } else { Ok(()) }
}

fn result(state: &AwsState, issued: &SessionCredentials) -> String {
    let session = &issued.session;
    let credentials = text_element("AccessKeyId", &session.access_key_id)
        + &text_element("SecretAccessKey", issued.secret.expose())
        + &text_element("SessionToken", issued.token.expose())
        + &text_element("Expiration", &state.format_expiry(session.exp));
    let id = format!("AROAEMULATEDROLE00000:{}", session.name);
    let user = text_element("Arn", &session.arn()) + &text_element("AssumedRoleId", &id);
    element("Credentials", &credentials) + &element("AssumedRoleUser", &user)
}

fn caller_identity(state: &AwsState, request: &Parts, body: &[u8]) -> Result<EmulatorReply, AwsStsRefusal> {
    let caller = state.verify_signer("sts", request, body)?;
    let (arn, session) = (caller.audit_arn(), caller.session);
    let account = arn.split(':').nth(4).unwrap_or_default();
    let id = session
        .map_or_else(|| "AIDAEMULATEDUSER00000".to_owned(), |s| format!("AROAEMULATEDROLE00000:{}", s.name));
    let told = text_element("Arn", &arn) + &text_element("UserId", &id) + &text_element("Account", account);
    Ok(reply::success_reply("GetCallerIdentity", &told))
}
