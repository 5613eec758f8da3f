//! Defines the response to a refused request: a status, a metric label, and one sentence.

use crate::RequestError;

/// A refusal. Each dialect defines its own refusals as constants. The agent adds refusals for other causes, such as an unknown
/// pod or a failed upstream.
///
/// The message is a `&'static str`, so no text from a client, an upstream or an internal error can reach a response body. The
/// message needs no escaping and leaks no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status. The SDKs retry after a 503 and treat nearly every 4xx status as final, so the status decides whether
    /// the SDK retries.
    pub status: u16,
    /// A short name of the cause, from a fixed set, so it can be the value of a metric label.
    pub code: &'static str,
    /// One plain sentence for the reader of the client's error message.
    pub message: &'static str,
}

impl Refusal {
    /// Creates a refusal from its three parts.
    pub const fn new(status: u16, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message }
    }

    /// True if the same request can succeed later without a change by an operator.
    pub const fn is_retryable(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

impl From<RequestError> for Refusal {
    /// Returns the refusal for bytes that are not a request. The connection then closes.
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
