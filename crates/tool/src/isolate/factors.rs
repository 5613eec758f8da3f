//! `--factors`: the built-in factors, and the variants that they make for a target.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use seawall_load::origin_resolution::HostPort;
use seawall_load::plan::TransportOptions;
use seawall_load::proxy::ProxyRules;
use seawall_load::request::{Origin, PreparedRequest};
use seawall_load::variant::{VariantProtocol, parse_host_port};

use super::variant_draft::{
    self, MAX_BODY_BYTES, VariantDraft, is_ip_address, method_takes_body, parse_proxy_rules, protocol_name,
};
use crate::find::formatting::pluralize;

/// One of `--factors`, with a value that it can have.
#[derive(Debug, Clone)]
pub(super) struct FactorSpec {
    /// The factor as typed.
    text: String,
    factor: Factor,
}

#[derive(Debug, Clone)]
enum Factor {
    NameResolution,
    Address,
    KeepAlive,
    Connections(usize),
    /// The protocol that the reference does not use, or this one.
    Protocol(Option<VariantProtocol>),
    /// The URL with the other scheme, or this URL.
    Tls(Option<String>),
    ConnectTo(HostPort),
    /// The size of the body in bytes.
    BodyBytes(usize),
    SourceAddress(IpAddr),
    Proxy(Arc<ProxyRules>),
}

/// The names of the factors as they are typed.
pub(super) const FACTOR_NAMES: [&str; 10] = [
    "name",
    "address",
    "keep-alive",
    "connections",
    "protocol",
    "tls",
    "connect-to",
    "body",
    "source",
    "proxy",
];

impl FromStr for FactorSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, value) = text.split_once('=').map_or((text, None), |(word, value)| (word, Some(value)));
        Ok(Self { text: text.to_owned(), factor: factor(word, value)? })
    }
}

fn factor(word: &str, value: Option<&str>) -> Result<Factor, String> {
    let alone =
        |factor| if value.is_none() { Ok(factor) } else { Err("the factor takes no value".to_owned()) };
    let expected = |what: &str| format!("expected {what}");
    match word {
        "name" => alone(Factor::NameResolution),
        "address" => alone(Factor::Address),
        "keep-alive" => alone(Factor::KeepAlive),
        "connections" => {
            let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
            let number = value.map_or(Some(1), number);
            number.map(Factor::Connections).ok_or_else(|| expected("a number above 0"))
        }
        "protocol" => {
            let asked = value
                .map(|text| variant_draft::parse_protocol(text).ok_or_else(|| expected("http1 or http2")));
            asked.transpose().map(Factor::Protocol)
        }
        "tls" => Ok(Factor::Tls(value.map(str::to_owned))),
        "connect-to" => value
            .and_then(parse_host_port)
            .map(Factor::ConnectTo)
            .ok_or_else(|| expected("connect-to=HOST:PORT, with an IPv6 address in brackets")),
        "body" => {
            let bytes = value.and_then(|text| text.parse().ok()).filter(|bytes| *bytes <= MAX_BODY_BYTES);
            bytes.map(Factor::BodyBytes).ok_or_else(|| expected("body=BYTES"))
        }
        "source" => {
            let source = value.and_then(|text| text.parse().ok());
            source.map(Factor::SourceAddress).ok_or_else(|| expected("source=IP"))
        }
        "proxy" => {
            let proxies = value.and_then(parse_proxy_rules);
            proxies.map(Factor::Proxy).ok_or_else(|| expected("proxy=URL or proxy=none"))
        }
        _ => Err(format!("{word:?} is not a factor: expected one of {}", FACTOR_NAMES.join(", "))),
    }
}

/// The request path of the reference, from which the variants are made.
pub(super) struct FactorContext<'a> {
    /// The first request of the reference.
    pub(super) first_request: &'a PreparedRequest,
    /// All requests of the reference.
    pub(super) requests: &'a [PreparedRequest],
    /// The transport of the reference.
    pub(super) transport: &'a TransportOptions,
    /// The current addresses of the reference.
    pub(super) addresses: &'a [SocketAddr],
    /// The absolute name (with a final dot) that leads to these addresses; `None` if none was found.
    pub(super) absolute_name: Option<String>,
}

/// Name or address that the reference is connected to, and port.
pub(super) fn connect_address(origin: &Origin) -> HostPort {
    let own = origin.variant.as_ref().and_then(|variant| variant.address.clone());
    own.unwrap_or_else(|| (origin.host.clone(), origin.port))
}

/// Names with a final dot that a name may stand for: itself, and with each search domain of a `resolv.conf`.
pub(super) fn absolute_name_candidates(host: &str, resolv_conf: &str) -> Vec<String> {
    let lines = resolv_conf.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("search" | "domain")).then_some(words)
    });
    let domains = lines.flatten().map(|domain| format!("{host}.{}.", domain.trim_matches('.')));
    std::iter::once(format!("{host}.")).chain(domains).collect()
}

impl FactorSpec {
    /// Returns true if the factor varies how the host name is resolved; then each connection of every variant has its own lookup.
    pub(super) fn varies_name_resolution(&self) -> bool {
        matches!(self.factor, Factor::NameResolution)
    }

    /// Returns true if the variants depend on the addresses of the host name, so that only the sending machine can make them.
    pub(super) fn needs_resolved_addresses(&self) -> bool {
        matches!(self.factor, Factor::NameResolution | Factor::Address)
    }

    /// Makes the variants of this factor.
    ///
    /// # Errors
    /// The factor has no variants for this target; the text says why.
    pub(super) fn build_drafts(&self, aimed: &FactorContext<'_>) -> Result<Vec<VariantDraft>, String> {
        let ways = match &self.factor {
            Factor::NameResolution => by_name(aimed),
            Factor::Address => by_address(aimed),
            Factor::KeepAlive => Ok(vec![keep_alive(aimed)]),
            Factor::Connections(number) => connections(aimed, *number),
            Factor::Protocol(asked) => protocol(aimed, *asked),
            Factor::Tls(url) => tls(aimed, url.as_deref()),
            Factor::ConnectTo(to) => Ok(vec![self.connect_to(to)]),
            Factor::BodyBytes(bytes) => self.body(aimed, *bytes),
            Factor::SourceAddress(source) => Ok(vec![self.source(*source)]),
            Factor::Proxy(proxies) => Ok(vec![proxy(proxies)]),
        };
        ways.map_err(|why| format!("--factors {}: {why}", self.text))
    }

    fn connect_to(&self, to: &HostPort) -> VariantDraft {
        let what = format!("connected to {}:{}", to.0, to.1);
        VariantDraft { address: Some(to.clone()), ..VariantDraft::new(&self.text, what) }
    }

    fn body(&self, aimed: &FactorContext<'_>, bytes: usize) -> Result<Vec<VariantDraft>, String> {
        if let Some(method) =
            aimed.requests.iter().map(PreparedRequest::method).find(|method| !method_takes_body(method))
        {
            return Err(format!(
                "a {method} request has no body: list POST, PUT or PATCH targets in a file and pass it with -targets"
            ));
        }
        let what = format!("a body of {}", pluralize(bytes as u64, "byte"));
        Ok(vec![VariantDraft { body_bytes: Some(bytes), ..VariantDraft::new(&self.text, what) }])
    }

    fn source(&self, source: IpAddr) -> VariantDraft {
        VariantDraft {
            source_address: Some(source),
            ..VariantDraft::new(&self.text, format!("sent from {source}"))
        }
    }
}

/// Checks that all targets have one host and port, because a variant leads all requests there.
fn to_one_place(aimed: &FactorContext<'_>) -> Result<(), String> {
    let is_there = |request: &PreparedRequest| request.origin() == aimed.first_request.origin();
    if aimed.requests.iter().all(is_there) {
        return Ok(());
    }
    Err("the targets have several hosts or ports, but this factor needs targets with one host and port"
        .to_owned())
}

fn by_name(aimed: &FactorContext<'_>) -> Result<Vec<VariantDraft>, String> {
    to_one_place(aimed)?;
    let (host, port) = connect_address(aimed.first_request.origin());
    if is_ip_address(&host) {
        return Err(format!("{host} is an address, not a name"));
    }
    let first = aimed.addresses.first().ok_or("the name has no address")?;
    let literal =
        VariantDraft { lookup_per_connection: true, ..to("literal address", "no DNS lookup: ", *first) };
    if host.ends_with('.') {
        return Ok(vec![literal]);
    }
    let Some(name) = &aimed.absolute_name else {
        let description = format!("{}; no full name with a final dot has this address", literal.description);
        return Ok(vec![VariantDraft { description, ..literal }]);
    };
    let absolute = VariantDraft {
        address: Some((name.clone(), port)),
        lookup_per_connection: true,
        ..VariantDraft::new("absolute name", format!("looked up as {name}"))
    };
    Ok(vec![absolute, literal])
}

fn by_address(aimed: &FactorContext<'_>) -> Result<Vec<VariantDraft>, String> {
    to_one_place(aimed)?;
    if aimed.addresses.len() < 2 {
        return Err(format!(
            "{} has only one address, but this factor needs two",
            aimed.first_request.origin()
        ));
    }
    let each = aimed.addresses.iter();
    Ok(each.map(|address| to(&address.ip().to_string(), "connected to ", *address)).collect())
}

fn connections(aimed: &FactorContext<'_>, number: usize) -> Result<Vec<VariantDraft>, String> {
    if aimed.transport.max_connections == number {
        return Err(format!("the reference already has this limit (--max-connections {number})"));
    }
    let name = if number == 1 { "one connection".to_owned() } else { pluralize(number as u64, "connection") };
    let what =
        "at most this many connections; this variant and the reference take turns, each at the whole rate";
    Ok(vec![VariantDraft { connections: Some(number), ..VariantDraft::new(name, what) }])
}

fn protocol(aimed: &FactorContext<'_>, asked: Option<VariantProtocol>) -> Result<Vec<VariantDraft>, String> {
    let speaks_2 = aimed.transport.multiplexes(aimed.first_request.origin());
    let other = if speaks_2 { VariantProtocol::Http1 } else { VariantProtocol::Http2 };
    let asked = asked.unwrap_or(other);
    if asked != other {
        return Err("the reference already uses this protocol".into());
    }
    let name = protocol_name(asked);
    Ok(vec![VariantDraft { protocol: Some(asked), ..VariantDraft::new(name, format!("speaks {name}")) }])
}

fn tls(aimed: &FactorContext<'_>, url: Option<&str>) -> Result<Vec<VariantDraft>, String> {
    let url = match url {
        Some(url) => url.to_owned(),
        None => other_scheme(aimed.first_request.url())?,
    };
    let tls = url.starts_with("https:");
    if tls == aimed.first_request.origin().tls {
        return Err(format!("expected a URL {} TLS", if tls { "without" } else { "with" }));
    }
    let name = if tls { "TLS" } else { "without TLS" };
    let what = crate::find::plan::redact_url(&url);
    Ok(vec![VariantDraft { url: Some(url), ..VariantDraft::new(name, what) }])
}

fn proxy(proxies: &Arc<ProxyRules>) -> VariantDraft {
    let [name, what] = if proxies.is_empty() {
        ["around the proxy", "through no proxy"]
    } else {
        ["proxy", "through a proxy"]
    };
    VariantDraft { proxies: Some(Arc::clone(proxies)), ..VariantDraft::new(name, what) }
}

fn to(name: &str, what: &str, address: SocketAddr) -> VariantDraft {
    let place = (address.ip().to_string(), address.port());
    VariantDraft { address: Some(place), ..VariantDraft::new(name, format!("{what}{address}")) }
}

fn keep_alive(aimed: &FactorContext<'_>) -> VariantDraft {
    let kept = aimed.first_request.closes();
    let [name, what] = if kept {
        ["kept connections", "keep-alive"]
    } else {
        ["new connections", "a new connection for each request"]
    };
    VariantDraft { keep_alive: Some(kept), ..VariantDraft::new(name, what) }
}

/// Returns the URL with the other scheme. The port must be the default.
fn other_scheme(url: &str) -> Result<String, String> {
    let (scheme, rest) = url.split_once("://").ok_or("expected a URL")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| port.parse::<u16>().is_ok());
    if let Some(port) = port {
        return Err(format!(
            "port {port} serves only one scheme: give a URL with the other scheme and another port, as tls=URL"
        ));
    }
    Ok(format!("{}://{rest}", if scheme == "https" { "http" } else { "https" }))
}

#[cfg(test)]
mod tests {
    use seawall_load::request::RequestFraming;
    use seawall_load::target::Target;

    use super::*;

    /// Returns the names of the variants of a factor for a target, or the reason why there are none.
    fn told(text: &str, method: &str, url: &str) -> Result<Vec<String>, String> {
        told_of(text, &[(method, url)])
    }

    /// Returns the names of the variants of a factor for several targets.
    fn told_of(text: &str, targets: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let request = |&(method, url): &(&str, &str)| {
            let target = Target { method: method.into(), url: url.into(), ..Target::default() };
            PreparedRequest::new(&target, &RequestFraming::default()).unwrap()
        };
        let requests: Vec<_> = targets.iter().map(request).collect();
        let addresses = ["10.0.0.1:80", "[::1]:80"].map(|address| address.parse().unwrap());
        let aimed = FactorContext {
            first_request: &requests[0],
            requests: &requests,
            transport: &TransportOptions::default(),
            addresses: &addresses,
            absolute_name: Some("a.test.".into()),
        };
        let ways = text.parse::<FactorSpec>()?.build_drafts(&aimed)?;
        assert!(ways.iter().all(VariantDraft::has_differences), "{ways:?}");
        Ok(ways.into_iter().map(|way| way.name).collect())
    }

    /// All targets were sent to the host of the first, and a body to those that have none.
    #[test]
    fn what_holds_for_the_first_of_several_targets_alone_is_refused() {
        let two = [("POST", "http://a.test/"), ("POST", "http://b.test/")];
        for factor in ["name", "address"] {
            let told = told_of(factor, &two).unwrap_err();
            assert!(told.contains("the targets have several hosts or ports"), "{told}");
            assert!(told_of(factor, &[("GET", "http://a.test/x"), ("GET", "http://a.test/y")]).is_ok());
        }
        assert!(told_of("body=1", &two).is_ok());
        let told = told_of("body=1", &[two[0], ("GET", "http://a.test/")]).unwrap_err();
        assert!(told.contains("a GET request has no body"), "{told}");
    }

    #[test]
    fn each_factor_has_its_ways() {
        let (plain, tls) = ("http://a.test/", "https://a.test/");
        for (factor, url, ways) in [
            ("name", plain, &["absolute name", "literal address"][..]),
            ("name", "http://a.test./", &["literal address"]),
            ("address", plain, &["10.0.0.1", "::1"]),
            ("keep-alive", plain, &["new connections"]),
            ("connections", plain, &["one connection"]),
            ("connections=4", plain, &["4 connections"]),
            ("protocol", plain, &["HTTP/2"]),
            ("protocol", tls, &["HTTP/1.1"]),
            ("tls", plain, &["TLS"]),
            ("tls", tls, &["without TLS"]),
            ("tls=https://a.test:8443/", "http://a.test:8080/", &["TLS"]),
            ("connect-to=[::1]:81", plain, &["connect-to=[::1]:81"]),
            ("source=127.0.0.2", plain, &["source=127.0.0.2"]),
            ("proxy=none", plain, &["around the proxy"]),
            ("proxy=http://p:3128", plain, &["proxy"]),
        ] {
            assert_eq!(told(factor, "GET", url).unwrap(), ways, "{factor} of {url}");
        }
        assert_eq!(told("body=100", "POST", plain).unwrap(), ["body=100"]);
    }

    #[test]
    fn a_short_name_may_stand_for_itself_with_each_search_domain() {
        let conf = "nameserver 10.0.0.10\nsearch a.svc.cluster.local svc.cluster.local.\noptions ndots:5\n";
        let names = ["shop.b.", "shop.b.a.svc.cluster.local.", "shop.b.svc.cluster.local."];
        assert_eq!(absolute_name_candidates("shop.b", conf), names);
        assert_eq!(absolute_name_candidates("shop", ""), ["shop."]);
    }

    #[test]
    fn a_factor_that_contradicts_the_target_or_itself_is_refused_with_the_reason() {
        for (factor, url, why) in [
            ("nane", "http://a/", "is not a factor: expected one of name, address"),
            ("name", "http://10.0.0.1/", "10.0.0.1 is an address, not a name"),
            ("name=x", "http://a/", "the factor takes no value"),
            ("connections=0", "http://a/", "a number above 0"),
            ("protocol=http1", "http://a/", "the reference already uses this protocol"),
            ("protocol=http3", "http://a/", "expected http1 or http2"),
            ("tls", "http://a:8080/", "port 8080 serves only one scheme"),
            ("tls=http://b/", "http://a/", "expected a URL with TLS"),
            ("connect-to", "http://a/", "expected connect-to=HOST:PORT"),
            ("body=10", "http://a/", "a GET request has no body"),
            ("source=x", "http://a/", "expected source=IP"),
            ("proxy=ftp://x", "http://a/", "expected proxy=URL or proxy=none"),
        ] {
            let told = told(factor, "GET", url).unwrap_err();
            assert!(told.contains(why), "{factor}: {told}");
        }
    }
}
