//! Requests for Google credentials, in an owned and a borrowed form.

use std::sync::Arc;

/// The credential that a client requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CredentialRequest {
    /// An OAuth 2 access token.
    AccessToken {
        /// The scopes, sorted, without duplicates, and joined by single spaces.
        scopes: Arc<str>,
    },
    /// An OpenID Connect identity token.
    IdToken {
        /// The audience (`aud`) of the token.
        audience: Arc<str>,
        /// True if the token contains the account's e-mail address (`format=full`).
        include_email: bool,
    },
}

/// A [`CredentialRequest`] that borrows from a request, so a cache lookup copies nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialRequestRef<'a> {
    /// An access token, like [`CredentialRequest::AccessToken`].
    AccessToken {
        /// The scopes in canonical form.
        scopes: &'a str,
    },
    /// An identity token, like [`CredentialRequest::IdToken`].
    IdToken {
        /// The audience (`aud`) of the token.
        audience: &'a str,
        /// True if the token contains the account's e-mail address.
        include_email: bool,
    },
}

impl CredentialRequestRef<'_> {
    /// Returns the owned form of this request.
    pub fn to_request(self) -> CredentialRequest {
        match self {
            Self::AccessToken { scopes } => CredentialRequest::AccessToken { scopes: scopes.into() },
            Self::IdToken { audience, include_email } => {
                CredentialRequest::IdToken { audience: audience.into(), include_email }
            }
        }
    }
}

impl CredentialRequest {
    /// Returns the borrowed form of this request.
    #[inline]
    pub fn as_ref(&self) -> CredentialRequestRef<'_> {
        match self {
            Self::AccessToken { scopes } => CredentialRequestRef::AccessToken { scopes },
            Self::IdToken { audience, include_email } => {
                CredentialRequestRef::IdToken { audience, include_email: *include_email }
            }
        }
    }
}
