//! Answers and bodies as HTTP carries them, whichever cloud's they are.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;

/// An answer of an emulator.
pub(crate) type EmulatorReply = Response<Full<Bytes>>;

/// Longest request body, in bytes. A Kubernetes token has one or two KiB.
const BODY_LIMIT: usize = 256 * 1024;

/// How long a body may take, on the machine's clock: it guards memory, see [`crate::server`].
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestBodyError {
    #[error("the body is too long")]
    TooLong,
    #[error("the body took too long")]
    TooSlow,
}

/// The whole body, within its bounds of size and time.
pub(crate) async fn read_body(request: Request<Incoming>) -> Result<Bytes, RequestBodyError> {
    let whole = Limited::new(request.into_body(), BODY_LIMIT).collect();
    match tokio::time::timeout(BODY_TIMEOUT, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(RequestBodyError::TooLong),
        Err(_) => Err(RequestBodyError::TooSlow),
    }
}

/// Whether a request says that its body is a form.
pub(crate) fn is_form(request: &Request<Incoming>) -> bool {
    let stated = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = stated.unwrap_or_default().split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// An answer with a content type.
pub(crate) fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> EmulatorReply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// A small page, as a front end in front of the service answers.
pub(crate) fn html(status: StatusCode, sentence: &str) -> EmulatorReply {
    let body = format!(
        "<!DOCTYPE html>\n<html><head><title>Error {status}</title></head><body><p>{sentence}</p></body></html>\n"
    );
    reply(status, "text/html; charset=UTF-8", body)
}

/// The answer with half of its body: well-formed HTTP around ill-formed content.
pub(crate) async fn truncated(reply: EmulatorReply) -> EmulatorReply {
    let (head, body) = reply.into_parts();
    let whole = body.collect().await.map_or_else(|never| match never {}, |body| body.to_bytes());
    let half = whole.slice(..whole.len() / 2);
    Response::from_parts(head, Full::new(half))
}
