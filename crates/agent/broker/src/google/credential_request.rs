//! Requests for Google's credentials, owned and borrowed.

use std::sync::Arc;

/// The credential that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CredentialRequest {
    /// An OAuth 2 access token.
    AccessToken {
        /// Scopes, sorted and without repeats, joined by one space.
        scopes: Arc<str>,
    },
    /// An OpenID Connect identity token.
    IdToken {
        /// The audience (`aud`) it is for.
        audience: Arc<str>,
        /// True if the token contains the account's e-mail (`format=full`).
        include_email: bool,
    },
}

/// A [`CredentialRequest`] that borrows from a request, so that looking one up copies nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialRequestRef<'a> {
    /// As [`CredentialRequest::AccessToken`].
    AccessToken {
        /// Canonical scopes.
        scopes: &'a str,
    },
    /// As [`CredentialRequest::IdToken`].
    IdToken {
        /// The audience.
        audience: &'a str,
        /// True if the token contains the account's e-mail.
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
