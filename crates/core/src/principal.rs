//! What credentials are held under.

use std::fmt;
use std::sync::Arc;

use crate::pod::ServiceAccount;

/// A cloud whose credentials are brokered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cloud {
    /// Google Cloud.
    Google,
}

/// Everything that decides which credential is the right one.
///
/// Two requests share credentials only if every field is equal. The Kubernetes ServiceAccount is one of
/// the fields even when both impersonate the same Google account: whether impersonation is allowed is decided
/// per ServiceAccount by the cloud, so an answer for one must never serve another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// Whose cloud.
    pub cloud: Cloud,
    /// The Kubernetes identity that proves itself.
    pub workload: ServiceAccount,
    /// The cloud account that is impersonated (an e-mail at Google); `None` is the federated identity itself.
    pub account: Option<Arc<str>>,
    /// What is wanted.
    pub want: Want,
}

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
        /// Whether the account's e-mail is to be in it (`format=full` at Google).
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
    pub fn as_ref(&self) -> WantRef<'_> {
        match self {
            Self::AccessToken { scopes } => WantRef::AccessToken { scopes },
            Self::IdToken { audience, include_email } => {
                WantRef::IdToken { audience, include_email: *include_email }
            }
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {}", self.workload, self.account.as_deref().unwrap_or("itself"))?;
        match &self.want {
            Want::AccessToken { scopes } => write!(f, " access({scopes})"),
            Want::IdToken { audience, .. } => write!(f, " identity({audience})"),
        }
    }
}
