//! OAuth scopes in canonical form: sorted, without repeats, joined by one space. Equal requests become equal
//! principals, so they share a lease. How many *different* sets a pod may ask for is the broker's bound.

use std::sync::Arc;

use seawall_http::Refusal;

/// Most scopes in one request. Google's consent screens stop at fewer; a workload names under ten.
const MAX_SCOPES: usize = 32;

/// Longest scope. Google's longest published ones are under 100 characters.
const MAX_SCOPE: usize = 256;

/// The refusal of scopes that cannot be scopes.
pub const BAD_SCOPES: Refusal =
    Refusal::new(400, "bad_scopes", "The scopes parameter is not a short list of OAuth scopes.");

/// The scopes of a token request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scopes<'t> {
    /// The account's own; nothing else was asked. The agent can use a lease it found when it built its index.
    Default(&'t Arc<str>),
    /// Others, canonical.
    Requested(String),
}

impl Scopes<'_> {
    /// The canonical text, as the broker wants it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Default(scopes) => scopes,
            Self::Requested(scopes) => scopes,
        }
    }
}

/// The canonical form of a decoded list, separated by commas (the documented form) or spaces (OAuth's own, RFC 6749
/// section 3.3). `None` when it names no scope.
///
/// # Errors
/// [`BAD_SCOPES`]: too many, too long, or a character that no scope URL needs. The narrow alphabet keeps quotes,
/// percent signs and separators out of everything this text is later put into.
pub fn canonical(list: &str) -> Result<Option<String>, Refusal> {
    let scopes: Vec<&str> = list.split([',', ' ']).filter(|scope| !scope.is_empty()).collect();
    if scopes.len() > MAX_SCOPES || !scopes.iter().all(|scope| is_scope(scope)) {
        return Err(BAD_SCOPES);
    }
    Ok((!scopes.is_empty()).then(|| joined(scopes)))
}

/// These in canonical form.
pub(super) fn joined(mut scopes: Vec<&str>) -> String {
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
            assert_eq!(canonical(list), Ok(Some("a b".into())), "{list}");
        }
        assert_eq!(canonical(" , "), Ok(None));
    }

    #[test]
    fn what_no_scope_holds_is_refused() {
        let (many, long) = (vec!["a"; MAX_SCOPES + 1].join(","), "a".repeat(MAX_SCOPE + 1));
        for list in ["a\"b", "a%62", "a;b", "a\\b", "a\nb", "é", "a&b=c", "<a>", &many, &long] {
            assert_eq!(canonical(list), Err(BAD_SCOPES), "{list}");
        }
    }
}
