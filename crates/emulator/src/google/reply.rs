//! Responses in Google's formats.

use std::time::Duration;

use http::StatusCode;
use http::header::{self, HeaderValue};
use serde_json::{Value, json};

use crate::reply::RequestBodyError;
pub(super) use crate::reply::{EmulatorReply, has_content_type, html_reply, read_body, reply};

/// Returns a JSON response with the content type of Google's APIs.
pub(super) fn json_reply(status: StatusCode, body: &Value) -> EmulatorReply {
    reply(status, "application/json; charset=UTF-8", body.to_string())
}

/// Returns an error response of an API (google.rpc.Status over HTTP, cloud.google.com/apis/design/errors).
pub(super) fn api_error(status: StatusCode, name: &str, message: &str) -> EmulatorReply {
    json_reply(status, &json!({"error": {"code": status.as_u16(), "message": message, "status": name}}))
}

/// Returns an error response of a token endpoint (RFC 6749 section 5.2).
pub(super) fn oauth_error(status: StatusCode, error: &str, description: &str) -> EmulatorReply {
    json_reply(status, &json!({"error": error, "error_description": description}))
}

/// Returns the response of a broken service, in the format of an API.
pub(super) fn server_error_reply(status: StatusCode) -> EmulatorReply {
    let name = if status == StatusCode::SERVICE_UNAVAILABLE { "UNAVAILABLE" } else { "INTERNAL" };
    api_error(status, name, "The emulator returns this error because a fault is configured.")
}

/// Returns a 429 response with `Retry-After` in whole seconds, at least one (RFC 9110 section 10.2.3 has no fractions).
pub(super) fn throttled(mut reply: EmulatorReply, wait: Duration) -> EmulatorReply {
    *reply.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    reply
}

impl RequestBodyError {
    /// Google's response to an unreadable body.
    pub(super) fn reply(self) -> EmulatorReply {
        let (status, name) = match self {
            Self::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "INVALID_ARGUMENT"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "DEADLINE_EXCEEDED"),
        };
        api_error(status, name, &self.to_string())
    }
}
