//! The exchange of a Kubernetes token at the security token service: it turns a form into a decision.
//!
//! Format: RFC 8693 section 2; google-auth-library-python `google/oauth2/sts.py`;
//! cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token. Every check fails closed, and a token's claims count only after its
//! signature.

use http::StatusCode;

use super::provider::WorkloadIdentityProvider;
use super::reply::{EmulatorReply, oauth_error};
use crate::jwt::{self, JwtError};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
pub(super) const ACCESS_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";
const SUBJECT_TYPES: [&str; 2] =
    ["urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token"];

/// The longest `google.subject` in bytes (the limit of Google's attribute mapping).
const SUBJECT_LIMIT: usize = 127;

/// The known fields of an exchange.
const FIELDS: [&str; 7] = [
    "grant_type",
    "audience",
    "scope",
    "requested_token_type",
    "subject_token_type",
    "subject_token",
    "options",
];

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
    #[error("the body is not application/x-www-form-urlencoded")]
    NotForm,
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
            Self::NotForm | Self::Missing(_) | Self::Repeated(_) | Self::Options => "invalid_request",
            Self::RequestedType | Self::SubjectType => "invalid_request",
            Self::GrantType => "unsupported_grant_type",
            Self::UnknownProvider => "invalid_target",
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
    form: &[u8],
    providers: &[WorkloadIdentityProvider],
    now: u64,
) -> Result<GrantedExchange, GoogleStsRefusal> {
    let form = TokenExchangeForm::parse(form)?;
    form.expect("grant_type", &[GRANT], GoogleStsRefusal::GrantType)?;
    form.expect("requested_token_type", &[ACCESS_TOKEN_TYPE], GoogleStsRefusal::RequestedType)?;
    form.expect("subject_token_type", &SUBJECT_TYPES, GoogleStsRefusal::SubjectType)?;
    form.check_options()?;
    let audience = form.required("audience")?;
    let provider =
        providers.iter().find(|each| each.name == audience).ok_or(GoogleStsRefusal::UnknownProvider)?;
    let subject = provider.subject(form.required("subject_token")?, now)?;
    let scopes: Vec<_> = form.required("scope")?.split_ascii_whitespace().map(str::to_owned).collect();
    Ok(GrantedExchange { principal: provider.principal(&subject), subject, scopes })
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
        if self.audiences.is_empty() {
            return audience.strip_prefix("https:").unwrap_or(audience) == self.name;
        }
        self.audiences.contains(audience)
    }

    /// Returns the name of a federated identity in policies and audit logs: `principal://…/POOL/subject/SUBJECT`.
    fn principal(&self, subject: &str) -> String {
        let pool = self.name.split("/providers/").next().unwrap_or_default();
        format!("principal:{pool}/subject/{subject}")
    }
}

/// A form in which each known field occurs at most once. Unknown fields are ignored, as RFC 6749 section 3.2 requires.
struct TokenExchangeForm(Vec<(&'static str, String)>);

impl TokenExchangeForm {
    fn parse(body: &[u8]) -> Result<Self, GoogleStsRefusal> {
        let mut fields: Vec<(&'static str, String)> = Vec::new();
        for (name, value) in url::form_urlencoded::parse(body) {
            let Some(known) = FIELDS.into_iter().find(|field| *field == name) else { continue };
            if fields.iter().any(|(seen, _)| *seen == known) {
                return Err(GoogleStsRefusal::Repeated(known));
            }
            fields.push((known, value.into_owned()));
        }
        Ok(Self(fields))
    }

    /// Returns a required field. An empty field counts as missing (RFC 6749 section 3.2).
    fn required(&self, name: &'static str) -> Result<&str, GoogleStsRefusal> {
        self.optional(name).ok_or(GoogleStsRefusal::Missing(name))
    }

    fn optional(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, value)| *known == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

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
}
