//! The exchange of a Kubernetes token at the security token service: it turns a request into a decision.
//!
//! Format: RFC 8693 section 2; google-auth-library-python `google/oauth2/sts.py`;
//! cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token; `exchange_request` for the JSON API. Every check fails closed, and
//! a token's claims count only after its signature. Both APIs make the same checks. The JSON API also requires an audience of the form
//! `identitynamespace:POOL:PROVIDER`. Google does not document the errors of the JSON API, so the emulator returns the form's.

use http::StatusCode;

use super::exchange_request::{ExchangeApi, ExchangeRequest};
use super::provider::{IdentityNamespace, WorkloadIdentityProvider};
use super::reply::{EmulatorReply, oauth_error};
use crate::jwt::{self, JwtError};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
pub(super) const ACCESS_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";
const SUBJECT_TYPES: [&str; 2] =
    ["urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token"];

/// The longest `google.subject` in bytes (the limit of Google's attribute mapping).
const SUBJECT_LIMIT: usize = 127;

/// A granted exchange.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GrantedExchange {
    /// The `sub` of the Kubernetes token.
    pub(super) subject: String,
    /// The principal in Google's policies.
    pub(super) principal: String,
    pub(super) scopes: Vec<String>,
}

/// The reason why an exchange is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GoogleStsRefusal {
    #[error("the content type is not {0}")]
    ContentType(&'static str),
    #[error("the body is not a JSON object")]
    NotJson,
    #[error("the body has an unknown member")]
    UnknownMember,
    #[error("the member {0} is not a text")]
    NotText(&'static str),
    #[error("the parameter {0} is missing")]
    Missing(&'static str),
    #[error("the parameter {0} is given more than once")]
    Repeated(&'static str),
    #[error("the parameter options is not a JSON object")]
    Options,
    #[error("grant_type must be {GRANT}")]
    GrantType,
    #[error("requested_token_type must be {ACCESS_TOKEN_TYPE}")]
    RequestedType,
    #[error("subject_token_type must be the type of a JWT or of an ID token")]
    SubjectType,
    #[error("audience must be identitynamespace:POOL:PROVIDER")]
    NotIdentityNamespace,
    #[error("audience names an unknown workload identity provider")]
    UnknownProvider,
    #[error("the token's issuer is not the provider's issuer")]
    Issuer,
    #[error("the provider allows none of the token's audiences")]
    TokenAudienceNotAllowed,
    #[error("the token's subject is longer than {SUBJECT_LIMIT} bytes")]
    SubjectLength,
    #[error(transparent)]
    Token(#[from] JwtError),
}

impl GoogleStsRefusal {
    /// Returns the error code (RFC 6749 section 5.2, RFC 8693 section 2.2.2).
    fn code(&self) -> &'static str {
        match self {
            Self::ContentType(_) | Self::NotJson | Self::UnknownMember | Self::NotText(_) => {
                "invalid_request"
            }
            Self::Missing(_) | Self::Repeated(_) | Self::Options => "invalid_request",
            Self::RequestedType | Self::SubjectType => "invalid_request",
            Self::GrantType => "unsupported_grant_type",
            Self::NotIdentityNamespace | Self::UnknownProvider => "invalid_target",
            Self::Issuer | Self::TokenAudienceNotAllowed | Self::SubjectLength | Self::Token(_) => {
                "invalid_grant"
            }
        }
    }

    pub(super) fn reply(&self) -> EmulatorReply {
        oauth_error(StatusCode::BAD_REQUEST, self.code(), &self.to_string())
    }
}

/// Decides about an exchange at `now`, in seconds since 1970.
pub(super) fn decide_exchange(
    request: &ExchangeRequest,
    providers: &[WorkloadIdentityProvider],
    now: u64,
) -> Result<GrantedExchange, GoogleStsRefusal> {
    request.expect("grant_type", &[GRANT], GoogleStsRefusal::GrantType)?;
    request.expect("requested_token_type", &[ACCESS_TOKEN_TYPE], GoogleStsRefusal::RequestedType)?;
    request.expect("subject_token_type", &SUBJECT_TYPES, GoogleStsRefusal::SubjectType)?;
    request.check_options()?;
    let audience = request.required("audience")?;
    request.check_audience_form(audience)?;
    let provider =
        providers.iter().find(|each| each.name == audience).ok_or(GoogleStsRefusal::UnknownProvider)?;
    let subject = provider.subject(request.required("subject_token")?, now)?;
    let scopes: Vec<_> = request.required("scope")?.split_ascii_whitespace().map(str::to_owned).collect();
    Ok(GrantedExchange { principal: provider.principal(&subject), subject, scopes })
}

impl ExchangeRequest {
    fn expect(
        &self,
        name: &'static str,
        allowed: &[&str],
        otherwise: GoogleStsRefusal,
    ) -> Result<(), GoogleStsRefusal> {
        if allowed.contains(&self.required(name)?) { Ok(()) } else { Err(otherwise) }
    }

    fn check_options(&self) -> Result<(), GoogleStsRefusal> {
        let Some(options) = self.optional("options") else { return Ok(()) };
        let object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(options);
        object.map(drop).map_err(|_| GoogleStsRefusal::Options)
    }

    fn check_audience_form(&self, audience: &str) -> Result<(), GoogleStsRefusal> {
        let is_named = IdentityNamespace::parse(audience).is_some();
        if self.api == ExchangeApi::IdentityBindingToken && !is_named {
            return Err(GoogleStsRefusal::NotIdentityNamespace);
        }
        Ok(())
    }
}

impl WorkloadIdentityProvider {
    /// Returns the subject of a token, if this provider accepts the token.
    fn subject(&self, token: &str, now: u64) -> Result<String, GoogleStsRefusal> {
        let claims = jwt::verify(token, &self.keys)?;
        if claims.issuer != self.issuer {
            return Err(GoogleStsRefusal::Issuer);
        }
        claims.check_times(now)?;
        if !claims.audiences.iter().any(|audience| self.accepts(audience)) {
            return Err(GoogleStsRefusal::TokenAudienceNotAllowed);
        }
        if claims.subject.len() > SUBJECT_LIMIT {
            return Err(GoogleStsRefusal::SubjectLength);
        }
        Ok(claims.subject)
    }

    fn accepts(&self, audience: &str) -> bool {
        match IdentityNamespace::parse(&self.name) {
            _ if !self.audiences.is_empty() => self.audiences.contains(audience),
            Some(IdentityNamespace { pool }) => audience == pool,
            None => audience.strip_prefix("https:").unwrap_or(audience) == self.name,
        }
    }

    /// Returns the name of a federated identity in policies and audit logs: `principal://…/POOL/subject/SUBJECT`, or for GKE's own
    /// pools `serviceAccount:POOL[NAMESPACE/SERVICEACCOUNT]`.
    fn principal(&self, subject: &str) -> String {
        if let Some(IdentityNamespace { pool }) = IdentityNamespace::parse(&self.name) {
            let workload = subject.strip_prefix("system:serviceaccount:").unwrap_or(subject);
            return format!("serviceAccount:{pool}[{}]", workload.replacen(':', "/", 1));
        }
        let pool = self.name.split("/providers/").next().unwrap_or_default();
        format!("principal:{pool}/subject/{subject}")
    }
}
