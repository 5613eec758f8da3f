//! What `resolv.conf` says, as glibc reads it (resolv.conf(5)), and which names it makes of one.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Name servers beyond these are not asked (`MAXNS`).
pub(super) const MOST_SERVERS: usize = 3;

/// The configuration of the C library's resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Config {
    /// All that are named, also those beyond the third.
    pub(super) servers: Vec<SocketAddr>,
    pub(super) search: Vec<String>,
    /// Names with fewer dots are tried below the search domains first.
    pub(super) ndots: usize,
    /// How long one server is waited for.
    pub(super) timeout: Duration,
}

impl Config {
    /// Reads the text. As glibc does, words that are not known and addresses that are none are passed over, and the last list of domains
    /// holds.
    pub(super) fn parse(text: &str) -> Self {
        let mut config =
            Self { servers: Vec::new(), search: Vec::new(), ndots: 1, timeout: Duration::from_secs(5) };
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => config.servers.extend(words.next().and_then(server)),
                Some("search" | "domain") => {
                    config.search = words.map(|domain| domain.trim_end_matches('.').to_owned()).collect();
                }
                Some("options") => words.for_each(|option| config.option(option)),
                _ => {}
            }
        }
        config
    }

    fn option(&mut self, option: &str) {
        let Some((name, value)) = option.split_once(':') else { return };
        let Ok(value) = value.parse::<u8>() else { return };
        match name {
            // Most of each: `RES_MAXNDOTS`, `RES_MAXRETRANS`.
            "ndots" => self.ndots = usize::from(value.min(15)),
            "timeout" => self.timeout = Duration::from_secs(u64::from(value.clamp(1, 30))),
            _ => {}
        }
    }

    /// The names that are asked for in turn until one has an address.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let searched = self
            .search
            .iter()
            .map(|domain| if domain.is_empty() { name.to_owned() } else { format!("{name}.{domain}") });
        let own = std::iter::once(name.to_owned());
        if name.matches('.').count() >= self.ndots {
            own.chain(searched).collect()
        } else {
            searched.chain(own).collect()
        }
    }
}

fn server(address: &str) -> Option<SocketAddr> {
    // A scope (`fe80::1%eth0`) names a link of this machine.
    let ip: IpAddr = address.split('%').next()?.parse().ok()?;
    Some(SocketAddr::new(ip, 53))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5 edns0\n";

    #[test]
    fn a_pods_configuration_is_read_as_glibc_reads_it() {
        let config = Config::parse(POD);
        assert_eq!(config.servers, ["10.96.0.10:53".parse().unwrap()]);
        assert_eq!((config.ndots, config.search.len(), config.timeout.as_secs()), (5, 3, 5));
        let odd = Config::parse(
            "domain a\nsearch b. c\nnameserver x\nnameserver ::1\noptions ndots:99 timeout:2 ndots: rotate\n",
        );
        assert_eq!(
            (odd.search, odd.ndots, odd.timeout.as_secs()),
            (vec!["b".to_owned(), "c".to_owned()], 15, 2)
        );
        assert_eq!(odd.servers, ["[::1]:53".parse().unwrap()]);
        assert_eq!(Config::parse("").ndots, 1);
    }

    #[test]
    fn names_with_few_dots_are_searched_first_and_absolute_ones_not_at_all() {
        let config = Config::parse(POD);
        let tried = config.candidates("db.example.com");
        assert_eq!(
            (tried.len(), tried[0].as_str(), tried[3].as_str()),
            (4, "db.example.com.shop.svc.cluster.local", "db.example.com")
        );
        assert_eq!(config.candidates("db.example.com."), ["db.example.com"]);
        assert_eq!(config.candidates("a.b.c.d.e.f")[0], "a.b.c.d.e.f");
    }
}
