//! Google credentials, which are tokens. The agent checks each token once, when it receives the token.

use seawall_core::Secret;
use seawall_core::name_syntax::needs_no_escape;

/// An access token or an identity token.
///
/// The text consists of visible ASCII characters except `"` and `\`. So responses can contain it in JSON and in headers without
/// escapes.
#[derive(Debug)]
pub struct GoogleTokenText(Secret<String>);

/// The error for a token that is empty, too long, or contains invalid characters.
/// RFC 6750 section 2.1 allows fewer characters than this check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's token is empty, too long, or contains characters that are not allowed")]
pub struct GoogleCredentialError;

/// The maximum length of a token in bytes. Google's federated tokens have several thousand bytes, and their limit is reported to
/// be 16 KiB.
const LONGEST: usize = 16 * 1024;

impl GoogleTokenText {
    /// Checks a token.
    ///
    /// # Errors
    /// The token is empty, too long, or contains characters that need escapes.
    pub fn new(text: Secret<String>) -> Result<Self, GoogleCredentialError> {
        if !needs_no_escape(text.expose(), LONGEST) {
            return Err(GoogleCredentialError);
        }
        Ok(Self(text))
    }

    /// Returns the token, which is a secret. In code reviews, check each use of this method.
    pub fn text(&self) -> &str {
        self.0.expose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_that_needs_no_escape_is_a_credential() {
        assert!(GoogleTokenText::new(Secret::new("ya29.a-b_c~d+/=".into())).is_ok());
        for odd in ["", "a b", "a\"b", "a\\b", "a\nb", "é", &"x".repeat(LONGEST + 1)] {
            assert!(GoogleTokenText::new(Secret::new(odd.into())).is_err(), "{odd:.8}");
        }
    }

    #[test]
    fn debug_shows_nothing() {
        let credential = GoogleTokenText::new(Secret::new("ya29.secret".into())).unwrap();
        assert!(!format!("{credential:?}").contains("ya29"));
    }
}
