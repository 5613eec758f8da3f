//! What the clouds' answers have in common: forms, JSON that may hold secrets, and words of a service that errors repeat.

use seawall_core::Secret;
use serde::Deserialize;

use crate::failure::{ExchangeError, ExchangeFault};

/// The body of a form.
pub(crate) fn form<K: AsRef<str>, V: AsRef<str>>(members: &[(K, V)]) -> Secret<String> {
    Secret::new(url::form_urlencoded::Serializer::new(String::new()).extend_pairs(members).finish())
}

/// JSON that may hold a secret.
///
/// # Errors
/// It is another JSON, or none. serde's own text can quote the input, so the error names the place alone.
pub(crate) fn json<'a, T: Deserialize<'a>>(step: &'static str, body: &'a [u8]) -> Result<T, ExchangeError> {
    let what = |error: serde_json::Error| {
        let place = format!("line {} column {}", error.line(), error.column());
        let what = format!("answered 200 with what is not the expected JSON ({place})");
        ExchangeError::new(ExchangeFault::Upstream, step, what)
    };
    serde_json::from_slice(body).map_err(what)
}

/// A service's words without its long ones: a service that repeats a token repeats one long word.
pub(crate) fn redact_long_words(text: &str, longest: usize) -> String {
    let short = |word| if str::len(word) > longest { "…" } else { word };
    text.split_whitespace().map(short).collect::<Vec<_>>().join(" ")
}
