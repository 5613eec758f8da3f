//! Detects requests that a web page could have caused through a browser.
//!
//! The admin port has no password. The port is protected because few clients can reach it. But a web page can misuse a browser
//! that can reach the port. The page's owner can make the page's own host name resolve to the admin port's address (DNS
//! rebinding). Then the page could read the responses. So the port refuses requests whose Host is a host name.
//!
//! The port accepts IP addresses in the Host header, because kubelets and Prometheus send them. A page that uses the admin port's
//! address makes a cross-site request, and the browser does not let the page read the response. The port refuses cross-site
//! requests too, so that it does no work for them.

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Request};

/// The kind of attack that a refused request could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrowserAttack {
    /// The Host of the request is a host name instead of an IP address.
    DnsRebinding,
    /// A page of another site sent the request.
    CrossSite,
}

impl BrowserAttack {
    /// Checks the request's host and the headers that browsers add.
    ///
    /// # Errors
    /// The request could be an attack. The error states the kind of attack.
    pub(super) fn check<B>(request: &Request<B>) -> Result<(), Self> {
        let headers = request.headers();
        let mut hosts = headers.get_all(HOST).iter();
        let host = match request.uri().authority() {
            Some(authority) => authority.as_str(),
            None => hosts.next().map_or(Some(""), |host| host.to_str().ok()).ok_or(Self::DnsRebinding)?,
        };
        if !is_address(host) || hosts.next().is_some() {
            return Err(Self::DnsRebinding);
        }
        if headers.contains_key(ORIGIN) || is_cross_site(headers) { Err(Self::CrossSite) } else { Ok(()) }
    }
}

/// True for `localhost` or an IP address, with or without a port. Also true if the host is missing (HTTP/1.0).
fn is_address(host: &str) -> bool {
    let bare = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((bare, port)) => return is_port(port) && bare.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split_once(':').map_or(Some(host), |(bare, port)| {
            port.bytes().all(|digit| digit.is_ascii_digit()).then_some(bare)
        }),
    };
    bare.is_some_and(|bare| {
        bare.is_empty()
            || bare.eq_ignore_ascii_case("localhost")
            || bare.parse::<std::net::Ipv4Addr>().is_ok()
    })
}

fn is_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|digit| digit.is_ascii_digit()))
}

/// True if the browser says that a page of another site made the request (Fetch Metadata Request Headers).
///
/// False if a user followed a link. A followed link is harmless: the request changes nothing, and the page with the link sees no
/// response.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let is = |name: &str, wanted: &str| headers.get(name).is_some_and(|value| value == wanted);
    (is("sec-fetch-site", "cross-site") || is("sec-fetch-site", "same-site"))
        && !is("sec-fetch-mode", "navigate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(target: &str, headers: &[(&str, &str)]) -> Result<(), BrowserAttack> {
        let request =
            headers.iter().fold(Request::get(target), |request, (name, value)| request.header(*name, *value));
        BrowserAttack::check(&request.body(()).unwrap())
    }

    #[test]
    fn an_address_is_answered_and_a_name_is_not() {
        for host in [
            "127.0.0.1",
            "10.4.0.7:8989",
            "[::1]",
            "[fd00::1]:8989",
            "localhost",
            "LOCALHOST:8989",
            "",
            "127.0.0.1:",
        ] {
            assert_eq!(check("/metrics", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8989",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:8989.evil.example",
            "[::1].evil.example",
            "[::1]:x",
            "::1",
            "2130706433",
            "0x7f.1",
            "127.0.0.1@evil.example",
            "[evil.example]",
        ] {
            assert_eq!(check("/metrics", &[("host", host)]), Err(BrowserAttack::DnsRebinding), "{host}");
        }
        assert_eq!(
            check("http://evil.example/metrics", &[("host", "127.0.0.1")]),
            Err(BrowserAttack::DnsRebinding)
        );
        assert_eq!(
            check("/metrics", &[("host", "127.0.0.1"), ("host", "evil.example")]),
            Err(BrowserAttack::DnsRebinding)
        );
        assert_eq!(check("/metrics", &[]), Ok(()));
    }

    #[test]
    fn what_a_page_of_another_place_asks_is_told_from_what_people_and_scrapers_ask() {
        let with =
            |headers: &[(&str, &str)]| check("/metrics", &[&[("host", "127.0.0.1")], headers].concat());
        assert_eq!(with(&[("origin", "https://evil.example")]), Err(BrowserAttack::CrossSite));
        assert_eq!(
            with(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]),
            Err(BrowserAttack::CrossSite)
        );
        for headers in [
            &[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")][..],
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
            &[("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")],
            &[("user-agent", "Prometheus/3.0")],
        ] {
            assert_eq!(with(headers), Ok(()), "{headers:?}");
        }
    }
}
