//! The resolver's configuration from `resolv.conf` and the environment, read as glibc does (resolv.conf(5)), and the names that it tries.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

/// The most name servers that the resolver uses (`MAXNS`).
pub(super) const MOST_SERVERS: usize = 3;

/// The configuration of the C library's resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolverConfig {
    /// All configured servers, even beyond the third. Without any, this is the default server of glibc and musl.
    pub(super) servers: Vec<SocketAddr>,
    /// True if the file names no server.
    pub(super) lists_no_server: bool,
    pub(super) search: Vec<String>,
    /// The number of dots from which the resolver tries a name as it is before the search domains.
    pub(super) ndots: usize,
    /// The time limit for one server.
    pub(super) timeout: Duration,
    /// True if all questions use TCP (`use-vc`).
    pub(super) over_tcp: bool,
    /// True if each tried name starts with the next server (`rotate`).
    pub(super) rotates: bool,
}

/// A name that the resolver tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CandidateName {
    pub(super) name: String,
    /// True if the name is under a search domain.
    pub(super) is_from_search_domain: bool,
}

impl ResolverConfig {
    /// Parses the text; `links` is the content of `/proc/net/if_inet6`. Like glibc, it ignores unknown words and invalid addresses, and the
    /// last list of domains is valid.
    pub(super) fn parse(text: &str, links: &str) -> Self {
        let mut config = Self {
            servers: Vec::new(),
            lists_no_server: false,
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            over_tcp: false,
            rotates: false,
        };
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => {
                    config.servers.extend(words.next().and_then(|address| server(address, links)));
                }
                Some("search" | "domain") => config.search = domains(words),
                Some("options") => words.for_each(|option| config.option(option)),
                _ => {}
            }
        }
        if config.servers.is_empty() {
            config.lists_no_server = true;
            config.servers.push((Ipv4Addr::LOCALHOST, PORT).into());
        }
        config
    }

    /// Applies the environment: its search domains replace those of the file, and its options come last.
    pub(super) fn with_environment(mut self, environment: &dyn Fn(&str) -> Option<String>) -> Self {
        if let Some(list) = environment("LOCALDOMAIN") {
            self.search = domains(list.split_ascii_whitespace());
        }
        let options = environment("RES_OPTIONS").unwrap_or_default();
        options.split_ascii_whitespace().for_each(|option| self.option(option));
        self
    }

    fn option(&mut self, option: &str) {
        match option {
            "use-vc" => self.over_tcp = true,
            "rotate" => self.rotates = true,
            _ => {}
        }
        let Some((name, value)) = option.split_once(':') else { return };
        let Ok(value) = value.parse::<u32>() else { return };
        match name {
            // The upper limits of glibc: `RES_MAXNDOTS`, `RES_MAXRETRANS`.
            "ndots" => self.ndots = value.min(15) as usize,
            "timeout" => self.timeout = Duration::from_secs(u64::from(value.clamp(1, 30))),
            _ => {}
        }
    }

    /// Returns the servers that the resolver uses.
    pub(super) fn queried_servers(&self) -> &[SocketAddr] {
        &self.servers[..self.servers.len().min(MOST_SERVERS)]
    }

    /// Returns the names that the resolver tries in turn until one has an address.
    pub(super) fn candidates(&self, name: &str) -> Vec<CandidateName> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![CandidateName { name: absolute.to_owned(), is_from_search_domain: false }];
        }
        let below =
            |domain: &String| if domain.is_empty() { name.to_owned() } else { format!("{name}.{domain}") };
        let searched = self
            .search
            .iter()
            .map(|domain| CandidateName { name: below(domain), is_from_search_domain: true });
        let own = std::iter::once(CandidateName { name: name.to_owned(), is_from_search_domain: false });
        if name.matches('.').count() >= self.ndots {
            own.chain(searched).collect()
        } else {
            searched.chain(own).collect()
        }
    }
}

fn domains<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    words.map(|domain| domain.trim_end_matches('.').to_owned()).collect()
}

const PORT: u16 = 53;

fn server(address: &str, links: &str) -> Option<SocketAddr> {
    if let Some(ip) = short(address) {
        return Some((ip, PORT).into());
    }
    let (ip, scope) = address.split_once('%').map_or((address, None), |(ip, scope)| (ip, Some(scope)));
    let ip: Ipv6Addr = ip.parse().ok()?;
    let scope = scope.map_or(0, |scope| scope_of(ip, scope, links));
    Some(SocketAddrV6::new(ip, PORT, 0, scope).into())
}

/// Returns the index of an interface by its name, if the address is link-local, or by its number; 0 if the text is neither
/// (`__inet6_scopeid_pton`, glibc `inet/inet6_scopeid_pton.c`).
fn scope_of(ip: Ipv6Addr, scope: &str, links: &str) -> u32 {
    let is_of_link = ip.is_unicast_link_local() || ip.segments()[0] & 0xff0f == 0xff02;
    let named = links.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let index = u32::from_str_radix(words.nth(1)?, 16).ok()?;
        (words.last()? == scope).then_some(index)
    });
    named.filter(|_| is_of_link).or_else(|| scope.parse().ok()).unwrap_or(0)
}

/// Parses an IPv4 address of one to four numbers, each decimal, octal or hexadecimal. The last number fills the remaining bytes
/// (inet_aton(3)).
fn short(address: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u32> = address.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    let left = 32_usize.checked_sub(8 * first.len()).filter(|bits| *bits > 0)?;
    if u64::from(*last) >> left > 0 || first.iter().any(|part| *part > 255) {
        return None;
    }
    let whole = first.iter().zip([24, 16, 8]).fold(*last, |whole, (part, shift)| whole | part << shift);
    Some(whole.into())
}

fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    // Rust's parser would accept a sign, which the C library does not.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, radix).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5 edns0\n";

    #[test]
    fn a_pods_configuration_is_read_as_glibc_reads_it() {
        let config = ResolverConfig::parse(POD, "");
        assert_eq!(config.servers, ["10.96.0.10:53".parse().unwrap()]);
        assert_eq!((config.ndots, config.search.len(), config.timeout.as_secs()), (5, 3, 5));
        let odd = ResolverConfig::parse(
            "domain a\nsearch b. c\nnameserver x\nnameserver ::1\noptions ndots:99 timeout:2 ndots: rotate\n",
            "",
        );
        assert_eq!(
            (odd.search, odd.ndots, odd.timeout.as_secs()),
            (vec!["b".to_owned(), "c".to_owned()], 15, 2)
        );
        assert_eq!(odd.servers, ["[::1]:53".parse().unwrap()]);
        assert_eq!(ResolverConfig::parse("", "").ndots, 1);
    }

    #[test]
    fn names_with_few_dots_are_searched_first_and_absolute_ones_not_at_all() {
        let config = ResolverConfig::parse(POD, "");
        let tried = config.candidates("db.example.com");
        assert_eq!(
            (tried.len(), tried[0].name.as_str(), tried[3].name.as_str()),
            (4, "db.example.com.shop.svc.cluster.local", "db.example.com")
        );
        let absolute = config.candidates("db.example.com.");
        assert_eq!((absolute.len(), absolute[0].name.as_str()), (1, "db.example.com"));
        assert_eq!(config.candidates("a.b.c.d.e.f")[0].name, "a.b.c.d.e.f");
    }

    /// Regression: these addresses were ignored, and link-local addresses lost their interface.
    #[test]
    fn addresses_are_read_in_all_forms_that_glibc_takes() {
        let links = "fe800000000000000000000000000001 0a 40 20 80 eth0\n00000000000000000000000000000001 01 80 10 80 lo\n";
        let read = |address: &str| {
            let config = ResolverConfig::parse(&format!("nameserver {address}\n"), links);
            (!config.lists_no_server).then(|| config.servers[0].to_string())
        };
        for (text, server) in [
            ("127.1", "127.0.0.1:53"),
            ("10.1.258", "10.1.1.2:53"),
            ("0x7f.0.0.1", "127.0.0.1:53"),
            ("010.0.0.012", "8.0.0.10:53"),
            ("2130706433", "127.0.0.1:53"),
            ("fe80::1%eth0", "[fe80::1%10]:53"),
            ("fe80::1%7", "[fe80::1%7]:53"),
            ("fe80::1%gone", "[fe80::1]:53"),
            ("fd00::1%lo", "[fd00::1]:53"),
            ("ff02::fb%lo", "[ff02::fb%1]:53"),
        ] {
            assert_eq!(read(text).as_deref(), Some(server), "{text}");
        }
        for none in [
            "127.0.0.256",
            "256.1",
            "1.2.3.4.5",
            "08",
            "0x",
            "127.",
            "+1",
            "1.-2",
            "4294967296",
            "",
            "fe80::g%eth0",
        ] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn where_no_server_is_named_the_one_on_this_machine_is_asked() {
        let config = ResolverConfig::parse("search a\n", "");
        assert_eq!((config.lists_no_server, config.servers), (true, vec!["127.0.0.1:53".parse().unwrap()]));
    }

    #[test]
    fn the_environments_options_come_last_and_its_domains_in_the_place_of_the_files() {
        let set = |name: &str| match name {
            "RES_OPTIONS" => Some("ndots:2 use-vc rotate".to_owned()),
            "LOCALDOMAIN" => Some("x.y z.".to_owned()),
            _ => None,
        };
        let config = ResolverConfig::parse(POD, "").with_environment(&set);
        assert_eq!((config.ndots, config.search.join(" ")), (2, "x.y z".to_owned()));
        assert!(config.over_tcp && config.rotates);
        assert_eq!(
            ResolverConfig::parse(POD, "").with_environment(&|_| None),
            ResolverConfig::parse(POD, "")
        );
        let told = ResolverConfig::parse("options rotate use-vc\n", "");
        assert!(told.over_tcp && told.rotates);
    }
}
