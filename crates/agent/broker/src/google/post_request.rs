//! Sends one POST request to Google, and classifies failed statuses. This module does not know token formats.

use std::time::SystemTime;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::Full;
use seawall_core::Secret;

use super::response_parser;
use crate::failure::{ExchangeError, ExchangeFault};
use crate::https::{HttpsClient, parse_date_header, parse_retry_after};

pub(super) struct GoogleResponse {
    pub(super) body: Secret<Vec<u8>>,
    /// The upstream's time, if the response states a time.
    pub(super) server_time: Option<SystemTime>,
}

/// Sends a POST request and reads the whole response. Any status except 200 is an error.
pub(super) async fn send_post(
    https: &HttpsClient,
    step: &'static str,
    url: &str,
    content_type: &'static str,
    bearer: Option<&Secret<String>>,
    body: &Secret<String>,
) -> Result<GoogleResponse, ExchangeError> {
    let mut request = Request::post(url)
        .header(CONTENT_TYPE, content_type)
        .body(Full::new(Bytes::copy_from_slice(body.expose().as_bytes())))
        .map_err(|error| ExchangeError::new(ExchangeFault::Unavailable, step, error))?;
    if let Some(token) = bearer {
        request.headers_mut().insert(AUTHORIZATION, authorization(step, token)?);
    }
    let (head, body) = https.send(step, request).await?;
    if head.status == StatusCode::OK {
        return Ok(GoogleResponse { body, server_time: parse_date_header(&head.headers) });
    }
    Err(refusal(step, head.status, &head.headers, body.expose()))
}

fn authorization(step: &'static str, token: &Secret<String>) -> Result<HeaderValue, ExchangeError> {
    let text = Secret::new(format!("Bearer {}", token.expose()));
    let mut value = HeaderValue::from_str(text.expose()).map_err(|_| {
        ExchangeError::new(
            ExchangeFault::Unavailable,
            step,
            "the federated token contains characters that an HTTP header cannot contain",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the error for a failed status.
/// Statuses 401 and 403 mean that a policy denied the call. Status 400 with `invalid_grant` counts as denied, too: STS sends it
/// when it rejects the Kubernetes token. Status 429, and status 503 with `Retry-After`, mean throttling. The remaining 4xx
/// statuses except 408 mean a wrong configuration. All other statuses are errors of the upstream.
fn refusal(step: &'static str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ExchangeError {
    let provider = response_parser::ProviderError::parse(body);
    let retry_after = parse_retry_after(headers);
    let fault = match status {
        StatusCode::TOO_MANY_REQUESTS => ExchangeFault::Throttled,
        StatusCode::SERVICE_UNAVAILABLE if retry_after.is_some() => ExchangeFault::Throttled,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ExchangeFault::AccessDenied,
        StatusCode::BAD_REQUEST if provider.code == "invalid_grant" => ExchangeFault::AccessDenied,
        StatusCode::REQUEST_TIMEOUT => ExchangeFault::Unavailable,
        status if status.is_client_error() => ExchangeFault::ExchangeRejected,
        _ => ExchangeFault::Unavailable,
    };
    let error = ExchangeError::new(fault, step, format_args!("{status}: {provider}"));
    ExchangeError { retry_after, ..error }
}

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn a_status_says_whose_move_it_is() {
        let fault =
            |status| refusal("sts", StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), b"").fault;
        assert_eq!(
            [400, 401, 403, 404].map(fault),
            [
                ExchangeFault::ExchangeRejected,
                ExchangeFault::AccessDenied,
                ExchangeFault::AccessDenied,
                ExchangeFault::ExchangeRejected
            ]
        );
        assert_eq!(
            [408, 429, 500, 503].map(fault),
            [
                ExchangeFault::Unavailable,
                ExchangeFault::Throttled,
                ExchangeFault::Unavailable,
                ExchangeFault::Unavailable
            ]
        );
        let refused =
            refusal("sts", StatusCode::BAD_REQUEST, &HeaderMap::new(), br#"{"error":"invalid_grant"}"#);
        assert_eq!(refused.fault, ExchangeFault::AccessDenied);
        let later = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("1"))]);
        assert_eq!(
            refusal("sts", StatusCode::SERVICE_UNAVAILABLE, &later, b"").fault,
            ExchangeFault::Throttled
        );
    }
}
