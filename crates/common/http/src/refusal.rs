//! A refused request's response: a status, a label for metrics, and one sentence.

use crate::RequestError;

/// A refusal. Each dialect defines its own as constants; the agent adds those that arise behind the dialect
/// (pod unknown, upstream down).
///
/// The message is `&'static str` on purpose: no text of a client, an upstream or an internal error can reach a
/// response body through a refusal, so nothing needs escaping and nothing can leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status, chosen so that real SDKs do the right thing: they retry a 503; other 4xx are final.
    pub status: u16,
    /// A word from a closed set, fit for a metric label.
    pub code: &'static str,
    /// One plain sentence for the person who reads the client's error message.
    pub message: &'static str,
}

impl Refusal {
    /// Creates a refusal from its three parts.
    pub const fn new(status: u16, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message }
    }

    /// True if the same request may succeed later without a change by an operator.
    pub const fn is_retryable(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

impl From<RequestError> for Refusal {
    /// Returns the refusal of bytes that are not a request; the connection closes after it.
    fn from(error: RequestError) -> Self {
        let (code, message) = match error {
            RequestError::Malformed(_) => ("malformed_request", "The request is not valid HTTP/1.1."),
            RequestError::TooLarge => {
                ("head_too_large", "The request head is larger than this server accepts.")
            }
            RequestError::TargetTooLong => {
                ("target_too_long", "The request target is longer than this server accepts.")
            }
            RequestError::NoVersion => ("missing_http_version", "The request line has no HTTP version."),
            RequestError::Version => {
                ("unsupported_http_version", "This server supports HTTP/1.0 and HTTP/1.1 only.")
            }
            RequestError::Framing => {
                ("ambiguous_body_length", "The length of the request body is ambiguous.")
            }
        };
        Self::new(error.status(), code, message)
    }
}
