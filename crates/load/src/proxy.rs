//! Selects the requests that go through an HTTP proxy, by the rules of Go's programs.
//!
//! Source: Go `golang.org/x/net/http/httpproxy`: `HTTP_PROXY` for http, `HTTPS_PROXY` for https, `NO_PROXY` for
//! exceptions, lower-case names, too; loopback never goes through a proxy that the environment names.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use url::{Host, Url};

use crate::origin_resolution::HostPort;
use crate::request::Origin;

/// The proxies of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProxyRules {
    http: Option<HttpProxy>,
    https: Option<HttpProxy>,
    exceptions: Vec<Exception>,
    /// True if the environment named the proxies: loopback is an exception then.
    from_environment: bool,
}

/// An HTTP proxy, with the headers that are sent to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HttpProxy {
    /// The address of the proxy.
    pub address: HostPort,
    /// The `Proxy-Authorization` header with its line end, if the proxy's URL has credentials; else empty.
    authorization: String,
    /// The other headers of CONNECT requests, each with its line end.
    headers: String,
}

/// An exception: a host for which no proxy is used.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Exception {
    Everything,
    /// A domain and its subdomains, or only its subdomains.
    Domain {
        name: String,
        itself: bool,
        port: Option<u16>,
    },
    Address {
        ip: IpAddr,
        bits: u8,
        port: Option<u16>,
    },
}

/// The reason why a proxy cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a supported proxy: expected http://[user:password@]host[:port]")]
pub struct ProxyError(String);

impl ProxyRules {
    /// Reads the proxy settings of the environment; `variable` returns the value of a variable.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let either = |upper: &str| {
            let value = variable(upper).or_else(|| variable(&upper.to_ascii_lowercase()));
            value.filter(|value| !value.is_empty())
        };
        let proxy = |name: &str| either(name).map(|url| HttpProxy::parse(&url)).transpose();
        let exceptions = either("NO_PROXY").unwrap_or_default();
        Ok(Self {
            http: proxy("HTTP_PROXY")?,
            https: proxy("HTTPS_PROXY")?,
            exceptions: exceptions.split(',').filter_map(|text| Exception::parse(text.trim())).collect(),
            from_environment: true,
        })
    }

    /// Makes rules that send all requests through one proxy.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn for_all(url: &str) -> Result<Self, ProxyError> {
        let proxy = HttpProxy::parse(url)?;
        Ok(Self { http: Some(proxy.clone()), https: Some(proxy), ..Self::default() })
    }

    /// Adds a header to CONNECT requests.
    pub fn add_connect_header(&mut self, name: &str, value: &str) {
        for proxy in [&mut self.http, &mut self.https].into_iter().flatten() {
            proxy.headers.push_str(&format!("{name}: {value}\r\n"));
        }
    }

    /// Returns the proxy for an origin, if its requests go through one.
    #[must_use]
    pub fn for_origin(&self, origin: &Origin) -> Option<&HttpProxy> {
        let proxy = if origin.tls { &self.https } else { &self.http };
        let ip = origin.host.parse::<IpAddr>().ok();
        let loopback = origin.host == "localhost" || ip.is_some_and(|ip| ip.is_loopback());
        let excepted = (self.from_environment && loopback)
            || self.exceptions.iter().any(|exception| exception.covers(&origin.host, ip, origin.port));
        proxy.as_ref().filter(|_| !excepted)
    }

    /// True if no request goes through a proxy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.http.is_none() && self.https.is_none()
    }
}

impl HttpProxy {
    /// Parses a URL, or `host:port`, as Go does.
    fn parse(text: &str) -> Result<Self, ProxyError> {
        let bad = || ProxyError(text.to_owned());
        let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&url).ok().filter(|url| url.scheme() == "http").ok_or_else(bad)?;
        let host = match url.host().ok_or_else(bad)? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(ip) => ip.to_string(),
            Host::Ipv6(ip) => ip.to_string(),
        };
        let authorization = match url.username() {
            "" => String::new(),
            user => {
                let plain = format!("{user}:{}", url.password().unwrap_or(""));
                format!(
                    "Proxy-Authorization: Basic {}\r\n",
                    STANDARD.encode(crate::request::percent_decoded(&plain))
                )
            }
        };
        let port = url.port_or_known_default().ok_or_else(bad)?;
        Ok(Self { address: (host, port), authorization, headers: String::new() })
    }

    /// Returns the CONNECT request that opens a tunnel to an origin (RFC 9110 section 9.3.6).
    pub(crate) fn connect_request(&self, origin: &Origin) -> Vec<u8> {
        let Self { authorization, headers, .. } = self;
        format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n{authorization}{headers}\r\n").into_bytes()
    }

    /// Returns the header that a request without a tunnel carries to the proxy, with its line end; empty if there is none.
    pub(crate) fn authorization_header_line(&self) -> &str {
        &self.authorization
    }
}

impl Exception {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        if text == "*" {
            return Some(Self::Everything);
        }
        if let Some((ip, bits)) = text.split_once('/') {
            return Some(Self::Address { ip: ip.parse().ok()?, bits: bits.parse().ok()?, port: None });
        }
        let (name, port) = split_port(text);
        if let Ok(ip) = name.trim_matches(['[', ']']).parse() {
            return Some(Self::Address { ip, bits: 128, port });
        }
        let name = name.to_ascii_lowercase();
        let below = name.strip_prefix("*.").or_else(|| name.strip_prefix('.'));
        let itself = below.is_none();
        Some(Self::Domain { name: below.unwrap_or(&name).to_owned(), itself, port })
    }

    fn covers(&self, host: &str, ip: Option<IpAddr>, port: u16) -> bool {
        match self {
            Self::Everything => true,
            Self::Domain { name, itself, port: only } => {
                let host = host.to_ascii_lowercase();
                let below = host.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.'));
                only.is_none_or(|only| only == port) && (below || *itself && host == *name)
            }
            Self::Address { ip: network, bits, port: only } => {
                only.is_none_or(|only| only == port) && ip.is_some_and(|ip| same_network(ip, *network, *bits))
            }
        }
    }
}

/// Splits `host:port`; a bare IPv6 address has no port.
fn split_port(text: &str) -> (&str, Option<u16>) {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().ok()),
        _ => (text, None),
    }
}

fn same_network(a: IpAddr, b: IpAddr, bits: u8) -> bool {
    // A shift by the whole width leaves no bits that can differ.
    let prefix =
        |address: u128, width: u32| address.checked_shr(width.saturating_sub(u32::from(bits))).unwrap_or(0);
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => prefix(a.to_bits().into(), 32) == prefix(b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => prefix(a.to_bits(), 128) == prefix(b.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(no_proxy: &str) -> ProxyRules {
        let variable = |name: &str| match name {
            "http_proxy" => Some("proxy:3128".to_owned()),
            "HTTPS_PROXY" => Some("http://u%40:p@[::1]:8080".to_owned()),
            "NO_PROXY" => Some(no_proxy.to_owned()),
            _ => None,
        };
        ProxyRules::from_environment(variable).unwrap()
    }

    fn origin(tls: bool, host: &str, port: u16) -> Origin {
        Origin { tls, host: host.to_owned(), port, variant: None }
    }

    #[test]
    fn http_and_https_have_their_own_and_loopback_has_none() {
        let proxies = environment("");
        let place = |tls, host| proxies.for_origin(&origin(tls, host, 80)).map(|proxy| proxy.address.clone());
        assert_eq!(place(false, "a"), Some(("proxy".to_owned(), 3128)));
        assert_eq!(place(true, "a"), Some(("::1".to_owned(), 8080)));
        assert_eq!((place(false, "localhost"), place(true, "127.3.2.1")), (None, None));
        assert!(
            ProxyRules::for_all("http://p:1").unwrap().for_origin(&origin(false, "localhost", 80)).is_some(),
            "the user said so"
        );
    }

    #[test]
    fn exceptions_are_names_domains_networks_and_ports() {
        let through = |no_proxy: &str, host: &str, port| {
            environment(no_proxy).for_origin(&origin(false, host, port)).is_some()
        };
        assert!(!through("a.example", "a.example", 80) && !through("a.example", "x.a.example", 80));
        assert!(through("a.example", "ba.example", 80));
        assert!(through(".a.example", "a.example", 80) && !through("*.a.example", "x.A.example", 80));
        assert!(!through("a:8080", "a", 8080) && through("a:8080", "a", 80));
        assert!(!through("10.0.0.0/8, b", "10.1.2.3", 80) && through("10.0.0.0/8", "11.0.0.1", 80));
        assert!(!through("fd00::/8", "fd12::1", 80) && !through("192.0.2.1", "192.0.2.1", 80));
        assert!(!through("0.0.0.0/0", "192.0.2.1", 80) && !through("*", "anything", 80));
    }

    #[test]
    fn a_tunnel_is_asked_for_with_credentials_and_headers() {
        let mut proxies = environment("");
        proxies.add_connect_header("X-A", "b");
        let asked =
            proxies.for_origin(&origin(true, "a", 443)).unwrap().connect_request(&origin(true, "a", 443));
        let expected =
            "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nProxy-Authorization: Basic dUA6cA==\r\nX-A: b\r\n\r\n";
        assert_eq!(String::from_utf8(asked).unwrap(), expected);
    }

    #[test]
    fn other_kinds_of_proxy_are_refused() {
        for url in ["https://p", "socks5://p:1080", "http://", "http://p:x"] {
            assert!(ProxyRules::for_all(url).is_err(), "{url}");
        }
    }
}
