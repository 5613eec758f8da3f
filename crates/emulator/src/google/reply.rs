//! Answers in Google's shapes.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

/// An answer of the emulator.
pub(crate) type Reply = Response<Full<Bytes>>;

/// An answer with a content type.
pub(super) fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// JSON, as Google's APIs label it.
pub(super) fn json(status: StatusCode, body: &Value) -> Reply {
    reply(status, "application/json; charset=UTF-8", body.to_string())
}

/// The error of an API (google.rpc.Status over HTTP, cloud.google.com/apis/design/errors).
pub(super) fn api_error(status: StatusCode, name: &str, message: &str) -> Reply {
    json(status, &json!({"error": {"code": status.as_u16(), "message": message, "status": name}}))
}

/// The error of a token endpoint (RFC 6749 section 5.2).
pub(super) fn oauth_error(status: StatusCode, error: &str, description: &str) -> Reply {
    json(status, &json!({"error": error, "error_description": description}))
}

/// A small page, as a front end in front of the service answers.
pub(super) fn html(status: StatusCode, sentence: &str) -> Reply {
    let body = format!(
        "<!DOCTYPE html>\n<html><head><title>Error {status}</title></head><body><p>{sentence}</p></body></html>\n"
    );
    reply(status, "text/html; charset=UTF-8", body)
}

/// The answer of a broken service, in the shape of an API.
pub(super) fn failure(status: StatusCode) -> Reply {
    let name = if status == StatusCode::SERVICE_UNAVAILABLE { "UNAVAILABLE" } else { "INTERNAL" };
    api_error(status, name, "The emulator was told to fail.")
}

/// 429 with `Retry-After` in whole seconds, at least one (RFC 9110 section 10.2.3 knows no fractions).
pub(super) fn throttled(mut reply: Reply, wait: Duration) -> Reply {
    *reply.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    reply
}
