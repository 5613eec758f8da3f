//! One POST to a cloud: TLS, pool, bounds, and what a failed status means. Knows no token format.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use seawall_core::Secret;

use super::reply;
use crate::exchange::{ExchangeError, Fault};

/// Largest answer read. Tokens take a few KiB.
const BODY: usize = 64 * 1024;

/// Longest `Retry-After` that is honoured: a pod that starts meanwhile waits for it, too.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Connections kept open per host while unused.
const IDLE_CONNECTIONS: usize = 8;

/// Longest connect, all addresses of a name together: what takes longer misses the deadline of the chain anyway.
const CONNECT: Duration = Duration::from_secs(3);

/// What a success says.
pub(super) struct Answer {
    pub(super) body: Secret<Vec<u8>>,
    /// The upstream's own time, if it told it.
    pub(super) date: Option<SystemTime>,
}

/// An upstream that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The URL would carry tokens in the clear, or is none.
    #[error("{0}: expected an https URL, or http to a loopback address")]
    Url(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// Refuses what would send a token over a network in the clear: every request here carries one.
pub(super) fn check_url(url: &str) -> Result<(), ConfigError> {
    let refused = || ConfigError::Url(url.to_owned());
    let parsed: Uri = url.parse().map_err(|_| refused())?;
    let host = parsed.host().ok_or_else(refused)?;
    let is_loopback = || {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    match parsed.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_loopback() => Ok(()),
        _ => Err(refused()),
    }
}

#[derive(Debug)]
pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Http {
    pub(super) fn new() -> Result<Self, ConfigError> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let tls = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|error| ConfigError::Tls(error.to_string()))?
            .with_webpki_roots()
            .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http1_max_buf_size(BODY)
            .build(connector);
        Ok(Self { client })
    }

    /// Posts and reads the whole answer; anything but 200 is an error.
    pub(super) async fn post(
        &self,
        step: &'static str,
        url: &str,
        content_type: &'static str,
        bearer: Option<&Secret<String>>,
        body: &Secret<String>,
    ) -> Result<Answer, ExchangeError> {
        let failed = |what: &dyn std::fmt::Display| ExchangeError::new(Fault::Upstream, step, what);
        let mut request = Request::post(url)
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(Bytes::copy_from_slice(body.expose().as_bytes())))
            .map_err(|error| failed(&error))?;
        if let Some(token) = bearer {
            request.headers_mut().insert(AUTHORIZATION, authorization(step, token)?);
        }
        let response = self.client.request(request).await.map_err(|error| failed(&causes(&error)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, BODY).collect().await.map_err(|error| failed(&error))?;
        let body = Secret::new(body.to_bytes().to_vec());
        if head.status == StatusCode::OK {
            return Ok(Answer { body, date: date(&head.headers) });
        }
        Err(refusal(step, head.status, &head.headers, body.expose()))
    }
}

fn authorization(step: &'static str, token: &Secret<String>) -> Result<HeaderValue, ExchangeError> {
    let text = Secret::new(format!("Bearer {}", token.expose()));
    let mut value = HeaderValue::from_str(text.expose()).map_err(|_| {
        ExchangeError::new(Fault::Upstream, step, "the federated token does not fit a header")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// An error and what caused it: hyper's outermost text alone says only "client error".
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// An IMF-fixdate (RFC 9110 section 5.6.7) is a date of RFC 2822, too.
fn date(headers: &HeaderMap) -> Option<SystemTime> {
    let text = headers.get(DATE)?.to_str().ok()?;
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok().map(SystemTime::from)
}

/// What a failed status means (section 5.8): 401 and 403 are a policy's no, other 4xx a configuration's, 429 asks for less,
/// everything else is the upstream's own trouble. `invalid_grant` is STS's word for a Kubernetes token that it does not
/// take, and a 503 that says when to come back asks for less, too.
fn refusal(step: &'static str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ExchangeError {
    let provider = reply::ProviderError::read(body);
    let retry_after = retry_after(headers);
    let fault = match status {
        StatusCode::TOO_MANY_REQUESTS => Fault::Throttled,
        StatusCode::SERVICE_UNAVAILABLE if retry_after.is_some() => Fault::Throttled,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Fault::Denied,
        StatusCode::BAD_REQUEST if provider.code == "invalid_grant" => Fault::Denied,
        StatusCode::REQUEST_TIMEOUT => Fault::Upstream,
        status if status.is_client_error() => Fault::Rejected,
        _ => Fault::Upstream,
    };
    let error = ExchangeError::new(fault, step, format_args!("{status}: {provider}"));
    ExchangeError { retry_after, ..error }
}

/// Whole seconds; the form with a date is not used by Google's APIs.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_travel_in_the_clear_only_on_loopback() {
        for good in
            ["https://sts.googleapis.com", "http://127.0.0.1:9", "http://[::1]:9", "http://localhost:9"]
        {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        for bad in
            ["http://sts.googleapis.com", "http://127.0.0.1.evil.example", "ftp://127.0.0.1", "", "sts"]
        {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_status_says_whose_move_it_is() {
        let fault =
            |status| refusal("sts", StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), b"").fault;
        assert_eq!(
            [400, 401, 403, 404].map(fault),
            [Fault::Rejected, Fault::Denied, Fault::Denied, Fault::Rejected]
        );
        assert_eq!(
            [408, 429, 500, 503].map(fault),
            [Fault::Upstream, Fault::Throttled, Fault::Upstream, Fault::Upstream]
        );
        let refused =
            refusal("sts", StatusCode::BAD_REQUEST, &HeaderMap::new(), br#"{"error":"invalid_grant"}"#);
        assert_eq!(refused.fault, Fault::Denied);
        let later = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("1"))]);
        assert_eq!(refusal("sts", StatusCode::SERVICE_UNAVAILABLE, &later, b"").fault, Fault::Throttled);
    }

    #[test]
    fn a_retry_after_is_bounded() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("86400"));
        let error = refusal("sts", StatusCode::TOO_MANY_REQUESTS, &headers, b"");
        assert_eq!(error.retry_after, Some(LONGEST_RETRY_AFTER));
    }
}
