//! Helpers for the requests and responses of all clouds.
//! They encode forms, parse JSON that may contain secrets, and remove long words from a service's message.

use seawall_core::Secret;
use serde::Deserialize;

use crate::failure::{ExchangeError, ExchangeFault};

/// Returns the URL-encoded body of a form.
pub(crate) fn encode_form<K: AsRef<str>, V: AsRef<str>>(members: &[(K, V)]) -> Secret<String> {
    Secret::new(url::form_urlencoded::Serializer::new(String::new()).extend_pairs(members).finish())
}

/// Parses JSON that may contain a secret.
///
/// # Errors
/// The body is not JSON, or does not have the expected structure. The error contains only the position, because serde's error
/// text can quote the input.
pub(crate) fn parse_json<'a, T: Deserialize<'a>>(
    step: &'static str,
    body: &'a [u8],
) -> Result<T, ExchangeError> {
    let what = |error: serde_json::Error| {
        let place = format!("line {} column {}", error.line(), error.column());
        let what = format!("answered 200 with a body that is not the expected JSON ({place})");
        ExchangeError::new(ExchangeFault::Unavailable, step, what)
    };
    serde_json::from_slice(body).map_err(what)
}

/// Replaces words of more than `longest` bytes in a service's message by `…`, because a token in the message would be one long
/// word.
pub(crate) fn redact_long_words(text: &str, longest: usize) -> String {
    let short = |word| if str::len(word) > longest { "…" } else { word };
    text.split_whitespace().map(short).collect::<Vec<_>>().join(" ")
}
