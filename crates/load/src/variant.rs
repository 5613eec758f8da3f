//! Ways of their own that some targets travel, so that one run can compare them: another address, another protocol, a new
//! connection for each request or the same for all, around the proxy.
//!
//! A variant is read with its target, is part of the [`crate::request::Origin`] that connections are kept under, and changes only
//! what it names. It knows nothing of connections; [`crate::transport`] and [`crate::resolve`] ask it.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use serde::Deserialize;

use crate::proxy::{ProxyError, ProxyRules};
use crate::resolve::HostPort;

/// One way. What it does not name is as the run has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "Written")]
pub struct Variant {
    /// The name of the variant in figures.
    pub name: String,
    /// Connections go here, whatever the URL says. Not those of a redirect to somewhere else.
    pub address: Option<HostPort>,
    /// The name that the server's certificate must have, and that the server is told.
    pub server_name: Option<String>,
    /// The protocol.
    pub protocol: Option<VariantProtocol>,
    /// Connections are used again, or each request has one of its own.
    pub keep_alive: Option<bool>,
    /// Any certificate will do.
    pub insecure: bool,
    /// Instead of the run's; without any it goes around them.
    pub proxies: Option<Arc<ProxyRules>>,
}

/// The protocol of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VariantProtocol {
    /// HTTP/1.1, and with TLS nothing else is offered.
    Http1,
    /// HTTP/2, without TLS without asking.
    Http2,
}

/// A variant as a target says it.
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
    /// Figures need something to call it.
    #[error("a variant needs a name of 1 to {MOST_NAME} bytes")]
    Name,
    /// Nowhere to go.
    #[error("{0:?} is not an address: expected host:port, such as 10.0.0.1:80 or [::1]:80")]
    Address(String),
    /// No certificate has it.
    #[error("{0:?} is not a valid TLS server name")]
    ServerName(String),
    /// A proxy that cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
}

/// Longest name, in bytes.
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

/// A proxy's URL, or `none`.
///
/// # Errors
/// It cannot be used.
pub fn parse_proxy(url: &str) -> Result<ProxyRules, ProxyError> {
    if url == "none" { Ok(ProxyRules::default()) } else { ProxyRules::for_all(url) }
}

/// `host:port`, an IPv6 address in brackets; none of anything else.
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
    /// The same for another host: what names this one does not lead there.
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
