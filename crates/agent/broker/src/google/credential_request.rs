//! What may be asked of Google, owned and as a request spells it.

use std::sync::Arc;

/// The credential that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// An OAuth 2 access token.
    AccessToken {
        /// Scopes, sorted and without repeats, joined by one space.
        scopes: Arc<str>,
    },
    /// An OpenID Connect identity token.
    IdToken {
        /// The audience (`aud`) it is for.
        audience: Arc<str>,
        /// Whether the account's e-mail is to be in it (`format=full`).
        include_email: bool,
    },
}

/// A [`Want`] that borrows from a request, so that looking one up copies nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantRef<'a> {
    /// As [`Want::AccessToken`].
    AccessToken {
        /// Canonical scopes.
        scopes: &'a str,
    },
    /// As [`Want::IdToken`].
    IdToken {
        /// The audience.
        audience: &'a str,
        /// Whether the e-mail is to be in it.
        include_email: bool,
    },
}

impl WantRef<'_> {
    /// The same, owned.
    pub fn to_want(self) -> Want {
        match self {
            Self::AccessToken { scopes } => Want::AccessToken { scopes: scopes.into() },
            Self::IdToken { audience, include_email } => {
                Want::IdToken { audience: audience.into(), include_email }
            }
        }
    }
}

impl Want {
    /// The same, borrowed.
    #[inline]
    pub fn as_ref(&self) -> WantRef<'_> {
        match self {
            Self::AccessToken { scopes } => WantRef::AccessToken { scopes },
            Self::IdToken { audience, include_email } => {
                WantRef::IdToken { audience, include_email: *include_email }
            }
        }
    }
}
