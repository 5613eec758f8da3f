//! IAM Credentials: tokens of a service account for a caller that may impersonate it.
//!
//! Format: cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts (generateAccessToken, generateIdToken);
//! google-auth-library-python `google/auth/impersonated_credentials.py` and `google/auth/iam.py`.

use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::impersonation::ImpersonationPolicy;
use super::reply::{EmulatorReply, api_error};
use super::token::{CLOUD_PLATFORM_SCOPE, EmulatedAccessToken};

/// A caller's token needs this scope or the cloud-platform scope.
const IAM_SCOPE: &str = "https://www.googleapis.com/auth/iam";

/// The longest lifetime; below, the longest with the organisation policy.
const HOUR: Duration = Duration::from_secs(3600);
const TWELVE_HOURS: Duration = Duration::from_secs(12 * 3600);

/// The issuer of Google's identity tokens.
pub(super) const ISSUER: &str = "https://accounts.google.com";

/// The reason why a request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IamCredentialsRefusal {
    #[error("the request has no valid access token: expected an OAuth 2 access token")]
    Unauthenticated,
    #[error("the access token lacks the scopes that IAM Credentials needs")]
    Scope,
    #[error(
        "permission iam.serviceAccounts.{0} is denied on the service account, or the service account does not exist"
    )]
    Denied(&'static str),
    #[error("the body is not the expected JSON object: {0}")]
    Body(String),
    #[error("scope must name at least one scope")]
    NoScope,
    #[error("audience must not be empty")]
    NoAudience,
    #[error("lifetime must be a number of seconds such as 3600s, above 0 and at most {0}s")]
    Lifetime(u64),
    #[error("delegates must have the form projects/-/serviceAccounts/EMAIL")]
    MalformedDelegates,
}

impl IamCredentialsRefusal {
    pub(super) fn reply(&self) -> EmulatorReply {
        let (status, name) = match self {
            Self::Unauthenticated => (StatusCode::UNAUTHORIZED, "UNAUTHENTICATED"),
            Self::Scope | Self::Denied(_) => (StatusCode::FORBIDDEN, "PERMISSION_DENIED"),
            _ => (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT"),
        };
        api_error(status, name, &self.to_string())
    }
}

/// The body of generateAccessToken. Unknown members are ignored, because newer libraries may send more.
#[derive(Debug, Deserialize)]
pub(super) struct AccessTokenRequest {
    #[serde(default, deserialize_with = "null_is_default")]
    scope: Vec<String>,
    lifetime: Option<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    delegates: Vec<String>,
}

/// The body of generateIdToken.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IdTokenRequest {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) audience: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) include_email: bool,
    #[serde(default, deserialize_with = "null_is_default")]
    use_email_azp: bool,
    #[serde(default, deserialize_with = "null_is_default")]
    delegates: Vec<String>,
}

/// Reads `null` as the default value, as in protobuf's JSON. google-auth sends `"delegates": null`.
fn null_is_default<'b, D: Deserializer<'b>, T: Deserialize<'b> + Default>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// Parses a body.
pub(super) fn parse_body<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, IamCredentialsRefusal> {
    // The error shows only the place and the kind of the mistake, because serde_json's text may quote a value.
    serde_json::from_slice(body).map_err(|error| {
        IamCredentialsRefusal::Body(format!("error at line {}, column {}", error.line(), error.column()))
    })
}

/// Checks the caller's token before anything else.
pub(super) fn check_token_scopes(
    token: Option<EmulatedAccessToken>,
) -> Result<EmulatedAccessToken, IamCredentialsRefusal> {
    let token = token.ok_or(IamCredentialsRefusal::Unauthenticated)?;
    if token.allows(CLOUD_PLATFORM_SCOPE) || token.allows(IAM_SCOPE) {
        Ok(token)
    } else {
        Err(IamCredentialsRefusal::Scope)
    }
}

impl AccessTokenRequest {
    /// Checks the request and returns the scopes and the lifetime of the token.
    pub(super) fn authorize(
        self,
        caller: &EmulatedAccessToken,
        account: &str,
        policy: &ImpersonationPolicy,
        long_lifetimes: bool,
    ) -> Result<(Vec<String>, Duration), IamCredentialsRefusal> {
        let longest = if long_lifetimes { TWELVE_HOURS } else { HOUR };
        let lifetime = self.lifetime.as_deref().map_or(Some(HOUR), seconds);
        let lifetime = lifetime.filter(|life| !life.is_zero() && *life <= longest);
        let lifetime = lifetime.ok_or(IamCredentialsRefusal::Lifetime(longest.as_secs()))?;
        if self.scope.is_empty() {
            return Err(IamCredentialsRefusal::NoScope);
        }
        allow(policy, caller, &self.delegates, account, "getAccessToken")?;
        Ok((self.scope, lifetime))
    }
}

impl IdTokenRequest {
    /// Checks whether the token may be issued.
    pub(super) fn authorize(
        &self,
        caller: &EmulatedAccessToken,
        account: &str,
        policy: &ImpersonationPolicy,
    ) -> Result<(), IamCredentialsRefusal> {
        if self.audience.is_empty() {
            return Err(IamCredentialsRefusal::NoAudience);
        }
        allow(policy, caller, &self.delegates, account, "getOpenIdToken")
    }

    /// Returns the claims of the token.
    pub(super) fn claims(&self, account: &str, now: u64, lifetime: Duration) -> Value {
        let id = service_account_unique_id(account);
        let azp = if self.use_email_azp { account } else { &id };
        let mut claims = json!({
            "aud": self.audience, "azp": azp, "exp": now.saturating_add(lifetime.as_secs()), "iat": now,
            "iss": ISSUER, "sub": id,
        });
        if self.include_email {
            claims["email"] = account.into();
            claims["email_verified"] = true.into();
        }
        claims
    }
}

/// Checks every link of the chain from the caller through the delegates to the account.
fn allow(
    policy: &ImpersonationPolicy,
    caller: &EmulatedAccessToken,
    delegates: &[String],
    account: &str,
    permission: &'static str,
) -> Result<(), IamCredentialsRefusal> {
    let mut from = caller.account.as_deref().unwrap_or(&caller.sub);
    for delegate in delegates {
        let to = delegate
            .strip_prefix("projects/-/serviceAccounts/")
            .ok_or(IamCredentialsRefusal::MalformedDelegates)?;
        if !policy.allows(from, to) {
            return Err(IamCredentialsRefusal::Denied(permission));
        }
        from = to;
    }
    if policy.allows(from, account) { Ok(()) } else { Err(IamCredentialsRefusal::Denied(permission)) }
}

/// Parses a duration in JSON (protobuf's `google.protobuf.Duration`): seconds with an `s`.
fn seconds(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    number.parse().ok().map(Duration::from_secs)
}

/// Returns the unique id of a service account: 21 digits, computed from its e-mail.
pub(super) fn service_account_unique_id(account: &str) -> String {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, account.as_bytes());
    let digits: String = hash.as_ref().iter().take(20).map(|byte| char::from(b'0' + byte % 10)).collect();
    format!("1{digits}")
}
