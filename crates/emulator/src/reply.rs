//! HTTP responses and request bodies for all clouds.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;

/// A response of an emulator.
pub(crate) type EmulatorReply = Response<Full<Bytes>>;

/// The longest request body in bytes. A Kubernetes token has one or two KiB.
const BODY_LIMIT: usize = 256 * 1024;

/// The time limit for a body, on the machine's clock. It protects the memory; see [`crate::server`].
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestBodyError {
    #[error("the body is longer than 256 KiB or could not be read")]
    TooLong,
    #[error("the body did not arrive within 30 s")]
    TooSlow,
}

/// Reads the whole body, within the limits of size and time.
pub(crate) async fn read_body(request: Request<Incoming>) -> Result<Bytes, RequestBodyError> {
    let whole = Limited::new(request.into_body(), BODY_LIMIT).collect();
    match tokio::time::timeout(BODY_TIMEOUT, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(RequestBodyError::TooLong),
        Err(_) => Err(RequestBodyError::TooSlow),
    }
}

/// The content type of a form.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// Returns whether a request has this content type. Parameters such as `charset` do not count.
pub(crate) fn has_content_type(request: &Request<Incoming>, expected: &str) -> bool {
    let stated = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = stated.unwrap_or_default().split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(expected)
}

/// Returns a response with a content type.
pub(crate) fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> EmulatorReply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// Returns a small HTML page, like the response of a proxy in front of the service.
pub(crate) fn html_reply(status: StatusCode, sentence: &str) -> EmulatorReply {
    let body = format!(
        "<!DOCTYPE html>\n<html><head><title>Error {status}</title></head><body><p>{sentence}</p></body></html>\n"
    );
    reply(status, "text/html; charset=UTF-8", body)
}

/// Returns the response with half of its body: valid HTTP with invalid content.
pub(crate) async fn truncated(reply: EmulatorReply) -> EmulatorReply {
    let (head, body) = reply.into_parts();
    let whole = body.collect().await.map_or_else(|never| match never {}, |body| body.to_bytes());
    let half = whole.slice(..whole.len() / 2);
    Response::from_parts(head, Full::new(half))
}
