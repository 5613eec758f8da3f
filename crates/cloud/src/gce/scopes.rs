//! OAuth scopes in canonical form: sorted, without repeats, joined by one space.

use std::sync::Arc;

/// The scopes of a token request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scopes<'t> {
    /// The account's own; nothing else was asked. The agent can use a lease it found when it built its index.
    Default(&'t Arc<str>),
    /// Others, canonical.
    Asked(String),
}

impl Scopes<'_> {
    /// The canonical text, as `Want::AccessToken` wants it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Default(scopes) => scopes,
            Self::Asked(scopes) => scopes,
        }
    }
}
