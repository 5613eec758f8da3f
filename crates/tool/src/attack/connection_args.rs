//! The flags about connections, names, TLS and HTTP/2, and the transport options that they become.

use std::collections::BTreeSet;
use std::io::{Write as _, stderr};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use seawall_load::dns_client::DnsServers;
use seawall_load::engine::{Http2Options, TransportOptions};
use seawall_load::input_files::InputFiles;
use seawall_load::origin_resolution::{AddressLifetime, DialOptions, HostPort};
use seawall_load::proxy::ProxyRules;
use seawall_load::rate;
use seawall_load::request::{Origin, RequestFraming, normalized_host};
use seawall_load::target::parse_header;
use seawall_load::tls::TlsOptions;

use super::targets::RequestLimits;

/// The connection flags: vegeta's flags with vegeta's defaults, then Seawall's flags.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connections")]
pub(crate) struct ConnectionArgs {
    /// Keep connections open after a response
    #[arg(short = 'k', long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    keepalive: bool,
    /// Send a request again, as Go does, if the server closed an idle connection or did not process the request
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    retries: bool,
    /// Maximum number of idle connections per host
    #[arg(long, value_name = "N", default_value_t = IDLE_CONNECTIONS)]
    connections: usize,
    /// Maximum number of connections per host; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) max_connections: usize,
    /// Number of requests after which seawall closes a connection
    #[arg(long, value_name = "N")]
    requests_per_connection: Option<u64>,
    /// Maximum age of a connection; an older connection gets no new request
    #[arg(long, value_name = "DURATION", value_parser = rate::parse_duration)]
    connection_age: Option<Duration>,
    /// Source addresses; connections use the addresses in turn; repeatable, or a comma-separated list
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    laddr: Vec<IpAddr>,
    /// Connect to this Unix socket instead of the target's address
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    unix_socket: String,
    /// Connect to another address, host:port:host:port; repeatable; if one source has several destinations,
    /// connections use them in turn
    #[arg(long, value_name = "FROM:TO")]
    connect_to: Vec<ConnectTo>,
    /// Comma-separated list of DNS servers, IP or IP:PORT, to use instead of the system's resolver
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    resolvers: Vec<Resolver>,
    /// How long seawall uses a resolved address; 0: forever; -1: for one connection only
    #[arg(long, value_name = "DURATION", default_value = "0s", allow_hyphen_values = true)]
    dns_ttl: DnsTtl,
    /// HTTP proxy: a URL, env (uses HTTP_PROXY, HTTPS_PROXY and NO_PROXY) or none
    #[arg(long, value_name = "PROXY", default_value = "env")]
    proxy: String,
    /// Header of CONNECT requests to a proxy; repeatable
    #[arg(long, value_name = "HEADER")]
    proxy_header: Vec<String>,
    /// Client certificate (PEM file)
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    cert: String,
    /// Key of the client certificate (PEM file), if the file of --cert has no key
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    key: String,
    /// Comma-separated list of PEM files with certificates to trust, instead of the system's certificates
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    root_certs: Vec<PathBuf>,
    /// Accept any server certificate
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    insecure: bool,
    /// Resume TLS sessions
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    session_tickets: bool,
    /// Use HTTP/2 if the server selects HTTP/2 in the TLS handshake
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    http2: bool,
    /// Use HTTP/2 without TLS
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    h2c: bool,
    /// Maximum number of streams on one HTTP/2 connection
    #[arg(long, value_name = "N", default_value_t = 100)]
    streams: usize,
    /// Number of HTTP/2 connections per host and thread; seawall opens more when all streams are in use
    #[arg(long, value_name = "N", default_value_t = 1)]
    http2_connections: usize,
}

/// vegeta's default.
const IDLE_CONNECTIONS: usize = 10_000;

/// `-connect-to`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ConnectTo {
    from: HostPort,
    to: HostPort,
}

impl FromStr for ConnectTo {
    type Err = String;

    /// Four fields with colons between them; IPv6 addresses in brackets, which vegeta has no place for. Names are equal
    /// whatever their case, and lower in the URLs that these are compared with.
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let ((host, port), rest) = host_port(text)?;
            let from = (normalized_host(&host), port);
            let (to, rest) = host_port(rest.strip_prefix(':')?)?;
            rest.is_empty().then_some(Self { from, to })
        };
        parse().ok_or_else(|| {
            format!(
                "{text:?} is not a mapping: expected host:port:host:port, with IPv6 addresses in brackets"
            )
        })
    }
}

/// The first `host:port` of a text, and what follows.
fn host_port(text: &str) -> Option<(HostPort, &str)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(text) => text.split_once("]:")?,
        None => text.split_once(':')?,
    };
    let (port, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    (!host.is_empty()).then_some(((host.to_owned(), port.parse().ok()?), rest))
}

/// One of `-resolvers`.
#[derive(Debug, Clone, Copy)]
struct Resolver(SocketAddr);

impl FromStr for Resolver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let alone = || Some(SocketAddr::new(text.trim_matches(['[', ']']).parse().ok()?, 53));
        let address = text.parse().ok().or_else(alone);
        address
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not an address of a DNS server: expected ip or ip:port"))
    }
}

/// `-dns-ttl`.
#[derive(Debug, Clone, Copy)]
struct DnsTtl(AddressLifetime);

impl FromStr for DnsTtl {
    type Err = rate::RateParseError;

    fn from_str(text: &str) -> Result<Self, rate::RateParseError> {
        if matches!(text, "-1" | "-1s" | "-1ns") {
            return Ok(Self(AddressLifetime::Connection));
        }
        let time = rate::parse_duration(text)?;
        Ok(Self(if time.is_zero() { AddressLifetime::Run } else { AddressLifetime::For(time) }))
    }
}

impl ConnectionArgs {
    /// Returns an error for each invalid combination of flags.
    pub(crate) fn validation_errors(&self) -> Vec<String> {
        let mut mistakes: Vec<String> =
            self.proxy_header.iter().filter_map(|line| Some(parse_header(line).err()?.to_string())).collect();
        let mut refuse = |wrong: bool, text: &str| {
            if wrong {
                mistakes.push(text.to_owned());
            }
        };
        refuse(self.requests_per_connection == Some(0), "--requests-per-connection must be above 0");
        refuse(self.streams == 0, "--streams must be above 0");
        refuse(self.http2_connections == 0, "--http2-connections must be above 0");
        refuse(!self.key.is_empty() && self.cert.is_empty(), "-key needs -cert");
        // Only an address of this machine can be bound, whatever the protocol.
        mistakes.extend(self.laddr.iter().filter_map(|&ip| {
            let error = UdpSocket::bind((ip, 0)).err()?;
            Some(format!("-laddr: cannot send from {ip}: {error}"))
        }));
        mistakes
    }

    /// Returns true if `-connections` is not the default.
    pub(crate) fn has_custom_idle_limit(&self) -> bool {
        self.connections != IDLE_CONNECTIONS
    }

    /// Returns an error for each flag that depends on this machine and does not work in pods.
    pub(crate) fn unsupported_in_pods(&self) -> Vec<String> {
        let refused = [
            (!self.laddr.is_empty(), "-laddr does not work with --on, because each pod has its own address"),
            (
                !self.unix_socket.is_empty(),
                "-unix-socket does not work with --on, because the socket does not exist in the pods",
            ),
        ];
        refused.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, why)| why.to_owned()).collect()
    }

    /// Returns the framing of the requests.
    pub(crate) fn request_framing(&self, chunked: bool) -> anyhow::Result<RequestFraming> {
        Ok(RequestFraming {
            chunked,
            close: !self.keepalive,
            may_use_http2: self.http2 || self.h2c,
            http2_needs_tls: !self.h2c,
            proxies: Arc::new(self.proxies()?),
        })
    }

    /// Returns the proxy rules, and prints a note if requests will use a proxy of the environment, which nobody typed.
    fn proxies(&self) -> anyhow::Result<ProxyRules> {
        let mut proxies = match self.proxy.as_str() {
            "none" => ProxyRules::default(),
            "env" => ProxyRules::from_environment(|name| std::env::var(name).ok())?,
            url => ProxyRules::for_all(url)?,
        };
        if self.proxy == "env" && !proxies.is_empty() {
            // Nothing is lost if nobody can read it.
            let _ = writeln!(
                stderr(),
                "seawall: the environment variables name a proxy, and requests use that proxy; --proxy=none turns the proxy off"
            );
        }
        for line in &self.proxy_header {
            let (name, value) = parse_header(line)?;
            proxies.add_connect_header(&name, &value);
        }
        Ok(proxies)
    }

    /// Warns of each `-connect-to` that no target uses; a redirect may still use it.
    pub(crate) fn warn_of_unused_connect_to<'o>(&self, origins: impl Iterator<Item = &'o Origin>) {
        for ConnectTo { from: (host, port), .. } in self.unused_connect_to(origins) {
            // Nothing is lost if nobody can read it.
            let _ = writeln!(
                stderr(),
                "seawall: --connect-to: no target has the host {host} and the port {port}"
            );
        }
    }

    fn unused_connect_to<'o>(&self, origins: impl Iterator<Item = &'o Origin>) -> Vec<&ConnectTo> {
        if self.connect_to.is_empty() {
            return Vec::new();
        }
        let places: BTreeSet<(&str, u16)> =
            origins.map(|origin| (origin.host.as_str(), origin.port)).collect();
        let is_unused = |to: &&ConnectTo| !places.contains(&(to.from.0.as_str(), to.from.1));
        self.connect_to.iter().filter(is_unused).collect()
    }

    /// The client certificate's file.
    pub(crate) fn client_certificate_path(&self) -> Option<&Path> {
        (!self.cert.is_empty()).then_some(Path::new(&self.cert))
    }

    /// Describes retries, connect-to, source addresses, resolvers, connection age, streams and HTTP/2 connections in one line.
    pub(crate) fn describe_settings(&self) -> String {
        let Self { retries, streams, http2_connections, .. } = self;
        let ages = self.connection_age.map_or_else(|| "no end".to_owned(), |age| format!("{age:?}"));
        let list = |texts: Vec<String>| if texts.is_empty() { "none".to_owned() } else { texts.join(" ") };
        let sources = list(self.laddr.iter().map(ToString::to_string).collect());
        let resolvers = list(self.resolvers.iter().map(|resolver| resolver.0.to_string()).collect());
        let place = |(host, port): &HostPort| format!("{host}:{port}");
        let elsewhere = |to: &ConnectTo| format!("{}:{}", place(&to.from), place(&to.to));
        let elsewhere = list(self.connect_to.iter().map(elsewhere).collect());
        format!(
            "retries {retries}; connect-to {elsewhere}; from {sources}; resolvers {resolvers}; connection age {ages}; \
             {streams} streams; {http2_connections} HTTP/2 connections"
        )
    }

    /// The engine's form of it. TLS is made ready whether or not a target wants it: a redirect may.
    pub(crate) fn to_transport_options(
        &self,
        waits: RequestLimits,
        style: &RequestFraming,
        files: &InputFiles,
    ) -> anyhow::Result<TransportOptions> {
        if !self.unix_socket.is_empty() && !Path::new(&self.unix_socket).exists() {
            // Nothing is lost if nobody can read it.
            let _ = writeln!(stderr(), "seawall: --unix-socket: there is no socket at {}", self.unix_socket);
        }
        let unlimited = |n: usize| if n == 0 { usize::MAX } else { n };
        Ok(TransportOptions {
            timeout: (!waits.timeout.is_zero()).then_some(waits.timeout),
            deadline: waits.deadline,
            max_redirects: u32::try_from(waits.max_redirects).ok(),
            retries_enabled: self.retries,
            keep_alive: self.keepalive,
            max_connections: unlimited(self.max_connections),
            max_idle_connections: self.connections,
            max_requests_per_connection: self.requests_per_connection.unwrap_or(u64::MAX),
            max_connection_age: self.connection_age,
            source_addresses: self.laddr.iter().copied().filter(|ip| !ip.is_unspecified()).collect(),
            dial: self.dial(style),
            tls: Some(self.tls().config_with_files(files)?),
            http2: Http2Options {
                over_tls: self.http2,
                prior_knowledge: self.h2c,
                max_streams: self.streams,
                connections_per_origin_and_thread: self.http2_connections,
            },
        })
    }

    fn tls(&self) -> TlsOptions {
        let key = if self.key.is_empty() { &self.cert } else { &self.key };
        TlsOptions {
            insecure: self.insecure,
            roots: self.root_certs.clone(),
            identity: (!self.cert.is_empty()).then(|| (self.cert.clone().into(), key.into())),
            resume: self.session_tickets,
            http2: self.http2,
        }
    }

    fn dial(&self, style: &RequestFraming) -> DialOptions {
        let mut dial = DialOptions {
            unix_socket: (!self.unix_socket.is_empty()).then(|| self.unix_socket.clone().into()),
            proxies: Arc::clone(&style.proxies),
            dns_servers: Arc::new(self.servers()),
            address_lifetime: self.dns_ttl.0,
            ..DialOptions::default()
        };
        for ConnectTo { from, to } in &self.connect_to {
            dial.connect_to.entry(from.clone()).or_default().push(to.clone());
        }
        dial
    }

    fn servers(&self) -> DnsServers {
        let addresses = self.resolvers.iter().map(|resolver| resolver.0).collect();
        // A system without the file has no search domains.
        DnsServers::new(addresses, &std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_to_takes_names_and_addresses_of_both_kinds() {
        let places = |text: &str| {
            let ConnectTo { from, to } = text.parse().ok()?;
            Some((from, to))
        };
        let place = |host: &str, port| (host.to_owned(), port);
        assert_eq!(places("a:80:b:8080"), Some((place("a", 80), place("b", 8080))));
        assert_eq!(places("Example.Test:80:b:8080"), Some((place("example.test", 80), place("b", 8080))));
        let unicode = "b\u{fc}cher.example:80:b:8080";
        assert_eq!(places(unicode), Some((place("xn--bcher-kva.example", 80), place("b", 8080))));
        assert_eq!(places("[::1]:80:[fe80::1]:81"), Some((place("::1", 80), place("fe80::1", 81))));
        for text in ["a:80", "a:80:b", "a:80:b:c", ":80:b:81", "a:80:b:81:c", "a:99999:b:1", "::1:80:b:81"] {
            assert_eq!(places(text), None, "{text}");
        }
    }

    #[test]
    fn a_connect_to_that_matches_no_target_is_named() {
        #[derive(clap::Parser)]
        struct Typed {
            #[command(flatten)]
            travel: ConnectionArgs,
        }
        let typed =
            <Typed as clap::Parser>::parse_from(["x", "--connect-to=a:80:b:1", "--connect-to=c:80:b:1"]);
        let origin = Origin { tls: false, host: "a".to_owned(), port: 80, variant: None };
        let unused = typed.travel.unused_connect_to([&origin].into_iter());
        assert_eq!(unused.iter().map(|to| to.from.0.as_str()).collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn dns_servers_have_a_port_of_their_own_or_53() {
        let port = |text: &str| text.parse::<Resolver>().ok().map(|resolver| resolver.0.port());
        assert_eq!((port("10.0.0.1"), port("10.0.0.1:5353")), (Some(53), Some(5353)));
        assert_eq!((port("::1"), port("[::1]:5353"), port("dns.example")), (Some(53), Some(5353), None));
    }
}
