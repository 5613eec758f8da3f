//! The HTTPS client for a cloud's services: TLS with public and configured root certificates, a proxy, a connection pool and size
//! limits. The client does not interpret the data. A cloud's module defines requests and interprets responses.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{DATE, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderMap, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use seawall_core::Secret;
use seawall_core::name_syntax::is_loopback_host;

use crate::failure::{ExchangeError, ExchangeFault};

/// The maximum size of a response body, in bytes. Tokens take a few KiB.
const BODY: usize = 64 * 1024;

/// The maximum number of idle connections per host.
const IDLE_CONNECTIONS: usize = 8;

/// The time limit for opening a connection, over all addresses of a host name.
/// A longer limit would leave too little of a fetch's deadline (`call_deadline`, 5 s) for the calls.
const CONNECT: Duration = Duration::from_secs(3);

/// The error for an unusable upstream configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamConfigError {
    /// The text is not a URL, or the agent would send tokens to the URL unencrypted.
    #[error("{0}: expected an https URL, or an http URL of a loopback address")]
    Url(String),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// The proxy's URL is invalid, or the proxy is not on loopback although an upstream is plain http.
    #[error(
        "the proxy {0}: expected an http URL such as http://proxy:3128. If an upstream's URL is plain http, the proxy must be on loopback"
    )]
    Proxy(String),
}

/// Refuses a URL if the agent would send tokens to it unencrypted over a network. The requests and responses of the clouds'
/// services contain tokens.
pub(crate) fn require_https_unless_loopback(url: &str) -> Result<(), UpstreamConfigError> {
    let refused = || UpstreamConfigError::Url(url.to_owned());
    let parsed: Uri = url.parse().map_err(|_| refused())?;
    let host = parsed.host().ok_or_else(refused)?;
    match parsed.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_loopback_host(host) => Ok(()),
        _ => Err(refused()),
    }
}

/// The longest `Retry-After` that the agent obeys. The agent limits the wait, because a pod that starts during the wait must
/// wait, too.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Returns the duration in `Retry-After`, at most [`LONGEST_RETRY_AFTER`]. The date format (RFC 9110 section 10.2.3) is not
/// supported.
pub(crate) fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
}

/// Returns the upstream's time from its `Date` header. The header's format, IMF-fixdate (RFC 9110 section 5.6.7), is also valid
/// in RFC 2822.
pub(crate) fn parse_date_header(headers: &HeaderMap) -> Option<SystemTime> {
    let text = headers.get(DATE)?.to_str().ok()?;
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok().map(SystemTime::from)
}

type Pool<C> = Client<HttpsConnector<C>, Full<Bytes>>;

/// The client for all services of a cloud.
#[derive(Debug)]
pub(crate) struct HttpsClient {
    pool: PooledClient,
    proxy: Option<Uri>,
}

#[derive(Debug)]
enum PooledClient {
    Direct(Pool<HttpConnector>),
    Proxied(Pool<Tunnel<HttpConnector>>),
}

impl HttpsClient {
    pub(crate) fn new(more_roots: Option<&str>, proxy: Option<&str>) -> Result<Self, UpstreamConfigError> {
        let tls = tls(more_roots)?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        let proxy = proxy.map(proxy_uri).transpose()?;
        let pool = match &proxy {
            None => PooledClient::Direct(pool(tls, connector)),
            Some(proxy) => PooledClient::Proxied(pool(tls, Tunnel::new(proxy.clone(), connector))),
        };
        Ok(Self { pool, proxy })
    }

    /// Refuses a proxy that is not on loopback if one of `urls` is plain http, because that proxy could read the tokens.
    pub(crate) fn check_proxy_for(&self, urls: &[&str]) -> Result<(), UpstreamConfigError> {
        match &self.proxy {
            Some(proxy) if !is_loopback_host(proxy.host().unwrap_or_default()) => {
                let is_plain = urls.iter().any(|url| url.starts_with("http://"));
                if is_plain { Err(UpstreamConfigError::Proxy(proxy.to_string())) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Sends a request and reads the whole response, whatever its status. Error messages call the request `step`.
    pub(crate) async fn send(
        &self,
        step: &'static str,
        request: Request<Full<Bytes>>,
    ) -> Result<(Parts, Secret<Vec<u8>>), ExchangeError> {
        let response = match &self.pool {
            PooledClient::Direct(pool) => pool.request(request).await,
            PooledClient::Proxied(pool) => pool.request(request).await,
        };
        let failed =
            |what: &dyn std::fmt::Display| ExchangeError::new(ExchangeFault::Unavailable, step, what);
        let (head, body) = response.map_err(|error| failed(&causes(&error)))?.into_parts();
        let body = Limited::new(body, BODY).collect().await.map_err(|error| failed(&error))?;
        Ok((head, Secret::new(body.to_bytes().to_vec())))
    }
}

fn proxy_uri(url: &str) -> Result<Uri, UpstreamConfigError> {
    let parsed =
        url.parse::<Uri>().ok().filter(|uri| uri.scheme_str() == Some("http") && uri.host().is_some());
    parsed.ok_or_else(|| UpstreamConfigError::Proxy(url.to_owned()))
}

/// Returns a TLS configuration that trusts the public root certificates and the operator's certificates in `more_roots`.
fn tls(more_roots: Option<&str>) -> Result<rustls::ClientConfig, UpstreamConfigError> {
    let failed = |error: &dyn std::fmt::Display| UpstreamConfigError::Tls(error.to_string());
    let mut roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(pem) = more_roots {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|_| failed(&"the CA file is not PEM"))?;
            roots.add(certificate).map_err(|error| failed(&error))?;
        }
        if roots.len() == before {
            return Err(failed(&"the CA file contains no certificate"));
        }
    }
    let provider = rustls::crypto::ring::default_provider();
    let builder = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn pool<C>(tls: rustls::ClientConfig, connector: C) -> Pool<C>
where
    HttpsConnector<C>: Connect + Clone,
{
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .http1_max_buf_size(BODY)
        .build(connector)
}

/// Returns the texts of an error and its causes. hyper's outermost error says only "client error".
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_travel_in_the_clear_only_on_loopback() {
        for good in
            ["https://sts.googleapis.com", "http://127.0.0.1:9", "http://[::1]:9", "http://localhost:9"]
        {
            assert_eq!(require_https_unless_loopback(good), Ok(()), "{good}");
        }
        for bad in
            ["http://sts.googleapis.com", "http://127.0.0.1.evil.example", "ftp://127.0.0.1", "", "sts"]
        {
            assert!(require_https_unless_loopback(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_retry_after_is_bounded() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, http::HeaderValue::from_static("86400"))]);
        assert_eq!(parse_retry_after(&headers), Some(LONGEST_RETRY_AFTER));
    }
}
