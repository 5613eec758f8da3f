//! The settings for opening connections, and the limits on their number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::Stream;
use super::connection::PooledConnection;
use super::route::DetectedProtocol;
use super::source_addresses::SourceAddresses;
use crate::clock::Nanos;
use crate::origin_resolution::DialOptions;
use crate::request::Origin;
use crate::tls;
use crate::variant::VariantProtocol;

/// The limits on the connections of one thread.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimits {
    /// The maximum number of connections of one route.
    pub(crate) connections: usize,
    /// The maximum number of idle connections of one route.
    pub(crate) max_idle: usize,
    /// The number of requests after which a connection is not reused; it always carries its first one.
    pub(crate) requests: u64,
    /// The age after which a connection is not reused.
    pub(crate) age: Nanos,
    /// The number of HTTP/2 connections of one route, as long as their streams suffice.
    pub(crate) http2_connections: usize,
    /// The time limit for each step of opening a connection: TCP, tunnel, TLS.
    pub(crate) opening_step_timeout: Nanos,
    /// The source addresses.
    pub(crate) source_addresses: SourceAddresses,
}

impl ConnectionLimits {
    /// Returns the number of requests that a connection may carry; 1 if it is for one request only.
    #[inline]
    pub(crate) fn max_requests_for(&self, once: bool) -> u64 {
        if once { 1 } else { self.requests }
    }

    /// Returns the number of idle connections that a route keeps; 0 if connections are for one request only.
    #[inline]
    pub(crate) fn max_idle_for(&self, once: bool) -> usize {
        if once { 0 } else { self.max_idle }
    }

    /// True if a connection can carry another request.
    #[inline]
    pub(crate) fn allow<S: Stream>(&self, connection: &PooledConnection<S>, now: Nanos) -> bool {
        connection.requests_begun < self.max_requests_for(connection.single_request)
            && now.saturating_sub(connection.opening_started) < self.age
    }
}

/// The settings for opening connections, which are the same for all connections.
#[derive(Debug, Clone)]
pub(crate) struct ConnectorConfig {
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// True if a TLS handshake may choose HTTP/2.
    pub(crate) may_negotiate_http2: bool,
    /// True to use HTTP/2 without TLS, with prior knowledge.
    pub(crate) h2c: bool,
    /// The maximum number of streams on one HTTP/2 connection.
    pub(crate) max_streams: usize,
    /// True if connections are reused, unless a variant says otherwise.
    pub(crate) keep_alive: bool,
    pub(crate) dial: Arc<DialOptions>,
    /// The number of connections begun so far, by all threads of the run.
    pub(crate) connections_begun: Arc<AtomicU64>,
}

/// The steps between a socket and its first request; they are the same for all connections of a route.
#[derive(Debug, Clone, Default)]
pub(crate) struct RouteConfig {
    /// The CONNECT request to the proxy, if the route needs a tunnel.
    pub(crate) connect_request: Option<Vec<u8>>,
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// True to use HTTP/2 with prior knowledge.
    pub(crate) prior_knowledge: bool,
    /// The maximum number of streams on one HTTP/2 connection.
    pub(crate) max_streams: usize,
    /// True if each request has a connection of its own.
    pub(crate) single_request: bool,
}

impl ConnectorConfig {
    /// Returns the number, from 1, of the connection that is begun next.
    pub(crate) fn take_connection_number(&self) -> u64 {
        self.connections_begun.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn route_config(&self, origin: &Origin) -> RouteConfig {
        let own = origin.variant.as_ref().and_then(|variant| variant.keep_alive);
        let name = ServerName::try_from(origin.server_name().to_owned()).ok();
        let tls = self.tls_for(origin).zip(name).filter(|_| origin.tls);
        RouteConfig {
            connect_request: self.dial.connect_request(origin),
            tls,
            prior_knowledge: self.expected_protocol(origin) == DetectedProtocol::Http2,
            max_streams: self.max_streams,
            single_request: !own.unwrap_or(self.keep_alive),
        }
    }

    fn tls_for(&self, origin: &Origin) -> Option<Arc<ClientConfig>> {
        let config = self.tls.as_ref()?;
        let Some(variant) = &origin.variant else { return Some(Arc::clone(config)) };
        let protocols: Option<&[&[u8]]> = match variant.protocol {
            None => None,
            Some(VariantProtocol::Http1) => Some(&[b"http/1.1"]),
            Some(VariantProtocol::Http2) => Some(&[b"h2"]),
        };
        Some(tls::with_alpn_and_verification(config, protocols, variant.insecure))
    }

    pub(crate) fn expected_protocol(&self, origin: &Origin) -> DetectedProtocol {
        let wanted = origin.variant.as_ref().and_then(|variant| variant.protocol);
        let http2 = |run: bool| wanted.map_or(run, |protocol| protocol == VariantProtocol::Http2);
        match (origin.tls, http2(self.may_negotiate_http2), http2(self.h2c)) {
            (true, true, _) => DetectedProtocol::Unknown,
            (false, _, true) => DetectedProtocol::Http2,
            _ => DetectedProtocol::Http1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::PreparedRequest;
    use crate::target::Target;
    use crate::tls::TlsOptions;
    use crate::variant::Variant;

    fn origin(url: &str, variant: &str) -> Origin {
        let variant: Option<Variant> = serde_json::from_str(variant).unwrap();
        let target = Target {
            method: "GET".into(),
            url: url.into(),
            variant: variant.map(Arc::new),
            ..Target::default()
        };
        PreparedRequest::new(&target, &crate::request::RequestFraming::default()).unwrap().origin().clone()
    }

    /// Returns protocol and configuration of a route in a run that may use HTTP/2 over TLS.
    fn made(url: &str, variant: &str) -> (DetectedProtocol, RouteConfig) {
        let tls = Some(TlsOptions { http2: true, insecure: true, ..TlsOptions::default() }.config().unwrap());
        let making = ConnectorConfig {
            tls,
            may_negotiate_http2: true,
            h2c: false,
            max_streams: 1,
            keep_alive: true,
            dial: Arc::default(),
            connections_begun: Arc::default(),
        };
        let origin = origin(url, variant);
        (making.expected_protocol(&origin), making.route_config(&origin))
    }

    #[test]
    fn a_variant_offers_only_the_protocol_that_it_names() {
        let offered = |variant| {
            let (speaks, path) = made("https://a.example/", variant);
            (speaks, path.tls.unwrap().0.alpn_protocols.clone())
        };
        let (http1, http2) = (b"http/1.1".to_vec(), b"h2".to_vec());
        assert_eq!(offered("null"), (DetectedProtocol::Unknown, vec![http2.clone(), http1.clone()]));
        assert_eq!(offered(r#"{"name":"a","protocol":"http1"}"#), (DetectedProtocol::Http1, vec![http1]));
        assert_eq!(offered(r#"{"name":"a","protocol":"http2"}"#), (DetectedProtocol::Unknown, vec![http2]));
    }

    #[test]
    fn without_tls_http2_is_spoken_without_asking() {
        let spoken = |variant| {
            let (speaks, path) = made("http://a.example/", variant);
            (speaks, path.prior_knowledge)
        };
        assert_eq!(spoken("null"), (DetectedProtocol::Http1, false));
        assert_eq!(spoken(r#"{"name":"a","protocol":"http2"}"#), (DetectedProtocol::Http2, true));
    }

    #[test]
    fn a_certificate_must_have_the_name_that_the_variant_names() {
        let (_, path) = made("https://10.0.0.1/", r#"{"name":"a","server_name":"a.example"}"#);
        assert_eq!(path.tls.unwrap().1, ServerName::try_from("a.example").unwrap());
    }
}
