//! What Google issues: text, checked once where it enters.

use seawall_core::Secret;
use seawall_core::names::needs_no_escape;

/// An access token or an identity token.
///
/// The text is visible ASCII without `"` and `\`, so answers can carry it in JSON and in headers unescaped.
#[derive(Debug)]
pub struct GoogleCredential(Secret<String>);

/// A token with a character that has no place in one (RFC 6750 section 2.1 allows fewer than this), or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's token is empty, too long, or holds characters that no token has")]
pub struct GoogleCredentialError;

/// Longest token in bytes. Google's federated tokens reach some thousands; 16 KiB is said to be their limit.
const LONGEST: usize = 16 * 1024;

impl GoogleCredential {
    /// Checks a token.
    ///
    /// # Errors
    /// It cannot be handed on unescaped.
    pub fn new(text: Secret<String>) -> Result<Self, GoogleCredentialError> {
        if !needs_no_escape(text.expose(), LONGEST) {
            return Err(GoogleCredentialError);
        }
        Ok(Self(text))
    }

    /// The token. Each caller is a place to review.
    pub fn text(&self) -> &str {
        self.0.expose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_that_needs_no_escape_is_a_credential() {
        assert!(GoogleCredential::new(Secret::new("ya29.a-b_c~d+/=".into())).is_ok());
        for odd in ["", "a b", "a\"b", "a\\b", "a\nb", "é", &"x".repeat(LONGEST + 1)] {
            assert!(GoogleCredential::new(Secret::new(odd.into())).is_err(), "{odd:.8}");
        }
    }

    #[test]
    fn debug_shows_nothing() {
        let credential = GoogleCredential::new(Secret::new("ya29.secret".into())).unwrap();
        assert!(!format!("{credential:?}").contains("ya29"));
    }
}
