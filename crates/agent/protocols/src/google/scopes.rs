//! Converts OAuth scopes to canonical form: sorted, without duplicates, joined by single spaces.
//!
//! The scopes are part of the key (principal) under which the agent caches a token. So requests for the same account with equal
//! scopes share a token. The broker limits the number of *different* sets of scopes that a pod can request.

use std::sync::Arc;

use seawall_http::Refusal;

/// The maximum number of scopes in one request. Google's consent screens allow fewer; a workload uses fewer than ten.
const MAX_SCOPES: usize = 32;

/// The longest accepted scope, in characters. Google's longest published scopes have fewer than 100 characters.
const MAX_SCOPE: usize = 256;

/// The refusal for invalid scopes.
pub const BAD_SCOPES: Refusal =
    Refusal::new(400, "bad_scopes", "The scopes parameter is not a short list of OAuth scopes.");

/// The most characters of all scopes of a request in canonical form. A pod's scopes are part of its cache entries (64 at most), and each request
/// is compared with them. Sixteen typical scopes have half as many characters.
const MAX_CANONICAL_SCOPES: usize = 2048;

/// The scopes of a token request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scopes<'t> {
    /// The account's own scopes. The request contains no scopes, or exactly these scopes.
    Default(&'t Arc<str>),
    /// Other scopes, in canonical form.
    Requested(String),
}

impl Scopes<'_> {
    /// Returns the canonical text that the broker expects.
    pub fn canonical_text(&self) -> &str {
        match self {
            Self::Default(scopes) => scopes,
            Self::Requested(scopes) => scopes,
        }
    }
}

/// Returns the canonical form of a decoded list, or `None` if the list is empty.
///
/// Commas (the documented form) or spaces (OAuth's own form, RFC 6749 section 3.3) separate the scopes.
///
/// # Errors
/// [`BAD_SCOPES`]: there are too many scopes, a scope is too long, they are too long together, or a scope contains a character that no scope URL needs. The
/// allowed characters exclude quotes, percent signs and separators, so the agent can insert scopes into other texts without
/// escapes.
pub fn canonicalize_scopes(list: &str) -> Result<Option<String>, Refusal> {
    let scopes: Vec<&str> = list.split([',', ' ']).filter(|scope| !scope.is_empty()).collect();
    if scopes.len() > MAX_SCOPES || !scopes.iter().all(|scope| is_scope(scope)) {
        return Err(BAD_SCOPES);
    }
    let canonical = join_scopes(scopes);
    if canonical.len() > MAX_CANONICAL_SCOPES {
        return Err(BAD_SCOPES);
    }
    Ok((!canonical.is_empty()).then_some(canonical))
}

/// Joins scopes in canonical form.
pub(super) fn join_scopes(mut scopes: Vec<&str>) -> String {
    scopes.sort_unstable();
    scopes.dedup();
    scopes.join(" ")
}

fn is_scope(scope: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte);
    scope.len() <= MAX_SCOPE && scope.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_have_one_form() {
        for list in ["b,a", "a b", " a,, b ,a", "b a b"] {
            assert_eq!(canonicalize_scopes(list), Ok(Some("a b".into())), "{list}");
        }
        assert_eq!(canonicalize_scopes(" , "), Ok(None));
    }

    /// A pod could hold half a mebibyte of scopes in its cache entries, beyond every limit of memory.
    #[test]
    fn scopes_that_are_too_long_together_are_refused() {
        let scopes = |last: usize| {
            let mut scopes: Vec<_> = (0..7).map(|number| format!("{number}{}", "a".repeat(255))).collect();
            scopes.push("z".repeat(last));
            scopes.join(",")
        };
        // Seven scopes of 256 characters, seven spaces and the last one.
        assert_eq!(canonicalize_scopes(&scopes(249)).unwrap().unwrap().len(), MAX_CANONICAL_SCOPES);
        assert_eq!(canonicalize_scopes(&scopes(250)), Err(BAD_SCOPES));
    }

    #[test]
    fn what_no_scope_holds_is_refused() {
        let (many, long) = (vec!["a"; MAX_SCOPES + 1].join(","), "a".repeat(MAX_SCOPE + 1));
        for list in ["a\"b", "a%62", "a;b", "a\\b", "a\nb", "é", "a&b=c", "<a>", &many, &long] {
            assert_eq!(canonicalize_scopes(list), Err(BAD_SCOPES), "{list}");
        }
    }
}
