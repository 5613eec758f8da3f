//! The variants of targets, so that one run can compare them: another address, another protocol, a new connection for each
//! request or the same for all, without the proxy.
//!
//! A variant is read with its target and is part of the [`crate::request::Origin`] under which connections are kept. It changes
//! only the settings that it names. It knows nothing of connections; [`crate::transport`] and [`crate::origin_resolution`] read it.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use serde::Deserialize;

use crate::origin_resolution::HostPort;
use crate::proxy::{ProxyError, ProxyRules};

/// One variant. Settings that it does not name are those of the run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "Written")]
pub struct Variant {
    /// The name of the variant in figures.
    pub name: String,
    /// The address to which connections go, whatever the URL says. Redirects to another host do not use it.
    pub address: Option<HostPort>,
    /// The name that the server's certificate must have, and that the client sends to the server.
    pub server_name: Option<String>,
    /// The protocol.
    pub protocol: Option<VariantProtocol>,
    /// True if connections are reused, false if each request has its own.
    pub keep_alive: Option<bool>,
    /// True to accept any certificate.
    pub insecure: bool,
    /// The proxies to use instead of the run's; if empty, no proxy is used.
    pub proxies: Option<Arc<ProxyRules>>,
}

/// The protocol of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VariantProtocol {
    /// HTTP/1.1; with TLS, no other protocol is offered.
    Http1,
    /// HTTP/2; without TLS, it is used with prior knowledge.
    Http2,
}

/// A variant as a target contains it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    address: Option<String>,
    server_name: Option<String>,
    protocol: Option<VariantProtocol>,
    keepalive: Option<bool>,
    insecure: Option<bool>,
    proxy: Option<String>,
}

/// The reason why a variant is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VariantError {
    /// The name is empty or too long.
    #[error("a variant needs a name of 1 to {MOST_NAME} bytes")]
    Name,
    /// The address is not a host and port.
    #[error("{0:?} is not an address: expected host:port, such as 10.0.0.1:80 or [::1]:80")]
    Address(String),
    /// The text is not a valid name of a certificate.
    #[error("{0:?} is not a valid TLS server name")]
    ServerName(String),
    /// A proxy that cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
}

/// The maximum length of a name, in bytes.
pub const MOST_NAME: usize = 64;

impl TryFrom<Written> for Variant {
    type Error = VariantError;

    fn try_from(written: Written) -> Result<Self, VariantError> {
        let Written { name, address, server_name, protocol, keepalive, insecure, proxy } = written;
        if !(1..=MOST_NAME).contains(&name.len()) {
            return Err(VariantError::Name);
        }
        if let Some(name) = server_name.as_ref().filter(|name| ServerName::try_from(name.as_str()).is_err()) {
            return Err(VariantError::ServerName(name.clone()));
        }
        let address =
            address.map(|text| parse_host_port(&text).ok_or(VariantError::Address(text))).transpose()?;
        let proxies = proxy.map(|url| parse_proxy(&url)).transpose()?.map(Arc::new);
        let (keep_alive, insecure) = (keepalive, insecure.unwrap_or(false));
        Ok(Self { name, address, server_name, protocol, keep_alive, insecure, proxies })
    }
}

/// Parses a proxy's URL, or `none`.
///
/// # Errors
/// The proxy cannot be used.
pub fn parse_proxy(url: &str) -> Result<ProxyRules, ProxyError> {
    if url == "none" { Ok(ProxyRules::default()) } else { ProxyRules::for_all(url) }
}

/// Parses `host:port`, with an IPv6 address in brackets; `None` for any other text.
#[must_use]
pub fn parse_host_port(text: &str) -> Option<HostPort> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = bare.unwrap_or(host);
    let fits = !host.is_empty() && bare.is_some() == host.contains(':');
    let port = port.parse().ok().filter(|&port| port > 0)?;
    fits.then(|| (host.to_ascii_lowercase(), port))
}

impl Variant {
    /// Returns the variant for another host: without its address and its server name.
    #[must_use]
    pub fn for_other_host(&self) -> Self {
        Self { address: None, server_name: None, ..self.clone() }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Variant, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_variant_says_what_differs_and_nothing_else() {
        let plain = read(r#"{"name":"a"}"#).unwrap();
        assert_eq!(plain.for_other_host(), plain);
        let full = r#"{"name":"a","address":"[::1]:80","server_name":"b","protocol":"http2","keepalive":false,
            "insecure":true,"proxy":"none"}"#;
        let expected = Variant {
            name: "a".into(),
            address: Some(("::1".into(), 80)),
            server_name: Some("b".into()),
            protocol: Some(VariantProtocol::Http2),
            keep_alive: Some(false),
            insecure: true,
            proxies: Some(Arc::default()),
        };
        assert_eq!(read(full).unwrap(), expected);
    }

    #[test]
    fn what_is_no_variant_is_refused_with_the_reason() {
        for (text, why) in [
            ("{}", "name"),
            (r#"{"name":""}"#, "a name of 1 to 64 bytes"),
            (r#"{"name":"a","adress":"b:1"}"#, "unknown field"),
            (r#"{"name":"a","address":"b"}"#, "host:port"),
            (r#"{"name":"a","address":"::1:80"}"#, "[::1]:80"),
            (r#"{"name":"a","address":"b:0"}"#, "host:port"),
            (r#"{"name":"a","server_name":"b c"}"#, "is not a valid TLS server name"),
            (r#"{"name":"a","keepalive":"yes"}"#, "expected a boolean"),
            (r#"{"name":"a","protocol":"http3"}"#, "unknown variant"),
            (r#"{"name":"a","proxy":"ftp://b"}"#, "not a supported proxy"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
