//! Access control of the page: pure decisions about the head of a request.
//!
//! The token of the link guards the page. A loopback address alone does not: every user of this machine reaches it, and so does
//! every page in a browser on it. Such a page can send requests here. It cannot read the responses, because its origin is
//! another, unless it lets a name of its own resolve to this address (DNS rebinding). So a request must name the address that was
//! bound, and a request that a page of another origin sent is always refused. The response is 403 in each case, so that it
//! reveals nothing about the token.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::anyhow;
use aws_lc_rs::{constant_time, rand};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Method, Request, StatusCode};

/// The token of the link: 128 random bits that nobody can guess.
pub(super) struct PageToken(String);

impl PageToken {
    /// Draws a new token.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(super) fn generate() -> anyhow::Result<Self> {
        let mut bits = [0; 16];
        rand::fill(&mut bits)
            .map_err(|_| anyhow!("--live-page: cannot get random numbers from the system"))?;
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bits))))
    }

    /// Compares in constant time, so that the time does not tell how much was right.
    fn matches(&self, offered: &str) -> bool {
        constant_time::verify_slices_are_equal(self.0.as_bytes(), offered.as_bytes()).is_ok()
    }
}

impl fmt::Debug for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The resources of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageRoute {
    /// The page.
    Page,
    /// The stream of changes.
    Events,
    /// The offline file.
    Report,
    /// A command.
    Control,
}

impl PageRoute {
    /// Finds the resource of a path; only the path is public.
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/" => Self::Page,
            "/events" => Self::Events,
            "/report.html" => Self::Report,
            "/control" => Self::Control,
            _ => return None,
        })
    }

    /// Returns the only allowed method: a request that changes something cannot be a link or an image.
    fn method(self) -> Method {
        if self == Self::Control { Method::POST } else { Method::GET }
    }
}

/// The reason to refuse a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageRefusal {
    /// The request is for another host, comes from another page, or lacks the token.
    Forbidden,
    /// The resource does not exist.
    NotFound,
    /// The resource needs this method.
    WrongMethod(&'static str),
}

impl PageRefusal {
    /// Returns the HTTP status.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::WrongMethod(_) => StatusCode::METHOD_NOT_ALLOWED,
        }
    }
}

/// Decides about requests for one address and one token.
#[derive(Debug)]
pub(super) struct PageAuth {
    address: SocketAddr,
    token: PageToken,
}

/// The port that browsers leave out.
const USUAL_PORT: u16 = 80;

impl PageAuth {
    pub(super) fn new(address: SocketAddr, token: PageToken) -> Self {
        Self { address, token }
    }

    /// Returns the link to the page.
    pub(super) fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token.0)
    }

    /// Returns the resource that a request may access.
    pub(super) fn authorize<B>(&self, request: &Request<B>) -> Result<PageRoute, PageRefusal> {
        let host = self.host(request).ok_or(PageRefusal::Forbidden)?;
        let uri = request.uri();
        let mut pairs = uri.query().unwrap_or_default().split('&');
        let offered = pairs.find_map(|pair| pair.strip_prefix("token="));
        if !offered.is_some_and(|offered| self.token.matches(offered)) {
            return Err(PageRefusal::Forbidden);
        }
        let way = PageRoute::of(uri.path()).ok_or(PageRefusal::NotFound)?;
        if is_cross_origin(request.headers(), host, way) {
            return Err(PageRefusal::Forbidden);
        }
        if request.method() != way.method() {
            return Err(PageRefusal::WrongMethod(if way == PageRoute::Control { "POST" } else { "GET" }));
        }
        Ok(way)
    }

    /// Returns the host that a request names, if it is this server.
    fn host<'r, B>(&self, request: &'r Request<B>) -> Option<&'r str> {
        let mut named = request.headers().get_all(HOST).iter();
        let host = named.next()?.to_str().ok()?;
        let one = named.next().is_none();
        let same = request.uri().authority().is_none_or(|authority| authority.as_str() == host);
        (one && same && self.is_ours(host)).then_some(host)
    }

    /// Returns true for the bound address and its port, also for `localhost` if the address is 127.0.0.1 or ::1.
    fn is_ours(&self, host: &str) -> bool {
        let port = self.address.port();
        let bare = match host.strip_suffix(&format!(":{port}")) {
            Some(bare) => bare,
            None if port == USUAL_PORT => host,
            None => return false,
        };
        let address = self.address.ip();
        let is_usual = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].contains(&address);
        let ours = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        bare == ours || (is_usual && bare.eq_ignore_ascii_case("localhost"))
    }
}

/// Returns true if a page of another origin sent the request, according to the browser (Fetch Standard, "Origin header"; Fetch
/// Metadata Request Headers). Following a link to the page is allowed from anywhere.
fn is_cross_origin(headers: &HeaderMap, host: &str, way: PageRoute) -> bool {
    let ours = format!("http://{host}");
    let elsewhere = headers.get_all(ORIGIN).iter().any(|origin| origin != ours.as_str());
    let is = |name: &str, wanted: &str| headers.get(name).is_some_and(|value| value == wanted);
    let sent = is("sec-fetch-site", "cross-site") || is("sec-fetch-site", "same-site");
    elsewhere || (sent && !(way == PageRoute::Page && is("sec-fetch-mode", "navigate")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn door(address: &str) -> PageAuth {
        PageAuth::new(address.parse().unwrap(), PageToken(TOKEN.to_owned()))
    }

    fn asked(address: &str, line: &str, headers: &[(&str, &str)]) -> Result<PageRoute, PageRefusal> {
        let (method, target) = line.split_once(' ').unwrap();
        let target = target.replace("TOKEN", TOKEN);
        let request = Request::builder().method(method).uri(target);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        door(address).authorize(&request.body(()).unwrap())
    }

    fn here(line: &str, headers: &[(&str, &str)]) -> Result<PageRoute, PageRefusal> {
        asked("127.0.0.1:4000", line, &[&[("host", "127.0.0.1:4000")], headers].concat())
    }

    #[test]
    fn tokens_are_drawn_anew_and_are_not_shown() {
        let (one, other) = (PageToken::generate().unwrap(), PageToken::generate().unwrap());
        assert_eq!((one.0.len(), other.0.len()), (32, 32));
        assert_ne!(one.0, other.0);
        assert_eq!(format!("{one:?}"), "Token");
    }

    #[test]
    fn whoever_has_the_link_is_let_in() {
        assert_eq!(here("GET /?token=TOKEN", &[]), Ok(PageRoute::Page));
        assert_eq!(here("GET /events?token=TOKEN", &[]), Ok(PageRoute::Events));
        assert_eq!(here("GET /report.html?a=b&token=TOKEN", &[]), Ok(PageRoute::Report));
        assert_eq!(here("POST /control?token=TOKEN", &[]), Ok(PageRoute::Control));
    }

    #[test]
    fn without_the_token_there_is_nothing_not_even_an_unknown_path() {
        for line in [
            "GET /",
            "GET /?token=",
            "GET /?token=0123456789abcdef0123456789abcdee",
            "GET /?token=0123456789abcdef",
            "GET /?token=TOKEN0",
            "GET /?token=0123456789ABCDEF0123456789ABCDEF",
            "GET /?xtoken=TOKEN",
            "GET /?token=wrong&token=TOKEN",
            "GET /TOKEN",
            "GET /nothing",
            "POST /control",
        ] {
            assert_eq!(
                here(line, &[("referer", "http://127.0.0.1:4000/")]),
                Err(PageRefusal::Forbidden),
                "{line}"
            );
        }
    }

    #[test]
    fn a_name_that_is_made_to_resolve_here_is_refused() {
        let with = |address: &str, host: &str| asked(address, "GET /?token=TOKEN", &[("host", host)]);
        for (address, host) in [
            ("127.0.0.1:4000", "127.0.0.1:4000"),
            ("127.0.0.1:4000", "LocalHost:4000"),
            ("[::1]:4000", "[::1]:4000"),
            ("[::1]:4000", "localhost:4000"),
            ("127.0.0.9:4000", "127.0.0.9:4000"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("127.0.0.1:80", "localhost:80"),
        ] {
            assert_eq!(with(address, host), Ok(PageRoute::Page), "{host} at {address}");
        }
        for host in [
            "evil.example",
            "evil.example:4000",
            "localhost",
            "127.0.0.1",
            "127.0.0.1:4001",
            "127.0.0.1:04000",
            "localhost.evil.example:4000",
            "127.0.0.1.evil.example:4000",
            "127.0.0.2:4000",
            "[::1]:4000",
            "2130706433:4000",
            "",
        ] {
            assert_eq!(with("127.0.0.1:4000", host), Err(PageRefusal::Forbidden), "{host}");
        }
        assert_eq!(with("127.0.0.9:4000", "localhost:4000"), Err(PageRefusal::Forbidden));
        let line = "GET /?token=TOKEN";
        assert_eq!(asked("127.0.0.1:4000", line, &[]), Err(PageRefusal::Forbidden));
        assert_eq!(here(line, &[("host", "evil.example")]), Err(PageRefusal::Forbidden));
        assert_eq!(here("GET http://evil.example/?token=TOKEN", &[]), Err(PageRefusal::Forbidden));
    }

    #[test]
    fn what_a_page_of_another_place_sends_is_refused_even_with_the_token() {
        let line = "POST /control?token=TOKEN";
        assert_eq!(here(line, &[("origin", "http://127.0.0.1:4000")]), Ok(PageRoute::Control));
        for origin in [
            "http://evil.example",
            "null",
            "https://127.0.0.1:4000",
            "http://127.0.0.1:4001",
            "http://127.0.0.1",
            "http://localhost:4000",
            "",
        ] {
            assert_eq!(here(line, &[("origin", origin)]), Err(PageRefusal::Forbidden), "{origin}");
        }
        let ours = ("origin", "http://127.0.0.1:4000");
        assert_eq!(here(line, &[ours, ("origin", "http://evil.example")]), Err(PageRefusal::Forbidden));
        assert_eq!(here(line, &[ours, ("sec-fetch-site", "cross-site")]), Err(PageRefusal::Forbidden));
        assert_eq!(here(line, &[ours, ("sec-fetch-site", "same-origin")]), Ok(PageRoute::Control));
        let framed = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")];
        assert_eq!(here("GET /events?token=TOKEN", &framed), Err(PageRefusal::Forbidden));
        let followed = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert_eq!(here("GET /?token=TOKEN", &followed), Ok(PageRoute::Page));
        assert_eq!(here("GET /report.html?token=TOKEN", &followed), Err(PageRefusal::Forbidden));
    }

    #[test]
    fn only_a_post_steers_and_only_a_get_reads() {
        for method in ["GET", "HEAD", "PUT", "OPTIONS"] {
            let line = format!("{method} /control?token=TOKEN");
            assert_eq!(here(&line, &[]), Err(PageRefusal::WrongMethod("POST")), "{method}");
        }
        assert_eq!(here("POST /?token=TOKEN", &[]), Err(PageRefusal::WrongMethod("GET")));
        assert_eq!(here("GET /nothing?token=TOKEN", &[]), Err(PageRefusal::NotFound));
    }
}
