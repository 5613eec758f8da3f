//! Answers in Google's shapes.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};

/// An answer of the emulator.
pub(crate) type Reply = Response<Full<Bytes>>;

/// An answer with a content type.
pub(crate) fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    reply
}

/// JSON, as Google's APIs label it.
pub(crate) fn json(status: StatusCode, body: &Value) -> Reply {
    reply(status, "application/json; charset=UTF-8", body.to_string())
}

/// The error of an API (google.rpc.Status over HTTP, cloud.google.com/apis/design/errors).
pub(crate) fn api_error(status: StatusCode, name: &str, message: &str) -> Reply {
    json(status, &json!({"error": {"code": status.as_u16(), "message": message, "status": name}}))
}

/// The error of a token endpoint (RFC 6749 section 5.2).
pub(crate) fn oauth_error(status: StatusCode, error: &str, description: &str) -> Reply {
    json(status, &json!({"error": error, "error_description": description}))
}
