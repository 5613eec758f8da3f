//! HTTP requests to servers that a check names.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use seawall_fetch::{FetchError, FetchLimits, FetchRequest, FetchResponse, exchange};

/// An HTTP client: the real one, or that of a test.
pub trait HttpFetcher {
    /// Requests a page of the server, within the given bounds.
    ///
    /// # Errors
    /// The reason why there is no response.
    fn fetch(
        &self,
        place: &HttpUrl,
        request: &FetchRequest,
        bounds: &FetchLimits,
    ) -> Result<FetchResponse, FetchError>;
}

/// The URL of a server over plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    /// The host and port, with an IPv6 address in brackets.
    pub authority: String,
    /// The path and query of the URL; empty for the host alone.
    pub path: String,
}

impl HttpUrl {
    /// Parses `http://HOST[:PORT][/PATH]`; none if the text is another URL. The query counts as a part of the path.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        let rest = url.trim().strip_prefix("http://")?;
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let place = Self::of_host(host)?;
        // The URLs with and without `/` are equal (RFC 9110 section 4.2.3).
        Some(Self { path: if path == "/" { "" } else { path }.to_owned(), ..place })
    }

    /// Returns the IP address of the host; none if the host is a name.
    #[must_use]
    pub fn ip_address(&self) -> Option<IpAddr> {
        let host = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }

    /// Returns the path to request, unchanged.
    #[must_use]
    pub fn target(&self) -> String {
        if self.path.starts_with('/') { self.path.clone() } else { format!("/{}", self.path) }
    }

    /// Returns the path to request for a path below this URL.
    #[must_use]
    pub fn request_path_below(&self, path: &str) -> String {
        [self.path.trim_end_matches('/'), path].concat()
    }

    /// Parses `HOST[:PORT]`; the default port is 80. The host is a name or an address; an IPv6 address is in brackets.
    #[must_use]
    pub fn of_host(host: &str) -> Option<Self> {
        let host = host.trim();
        let is_bare = host.rsplit_once(':').is_none_or(|(_, port)| port.ends_with(']'));
        let authority = if is_bare { format!("{host}:80") } else { host.to_owned() };
        let (name, port) = authority.rsplit_once(':')?;
        let is_fit = is_host(name) && port.parse::<u16>().is_ok();
        is_fit.then(|| Self { authority: authority.clone(), path: String::new() })
    }
}

/// Returns whether the text is an address or a host name of a valid length (RFC 1035 section 2.3.4). Underscores are valid, as in
/// resolvers.
fn is_host(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => (1..=253).contains(&text.len()) && text.bytes().all(is_letter),
    }
}

/// An HTTP client in the network namespace of this program.
pub struct NetworkFetcher<'a> {
    /// The monotonic time.
    pub now: &'a dyn Fn() -> Duration,
}

impl HttpFetcher for NetworkFetcher<'_> {
    fn fetch(
        &self,
        place: &HttpUrl,
        request: &FetchRequest,
        bounds: &FetchLimits,
    ) -> Result<FetchResponse, FetchError> {
        let begun = (self.now)();
        let address = address(&place.authority, bounds.timeout)?;
        let deadline = bounds.timeout.saturating_sub((self.now)().saturating_sub(begun));
        exchange(address, request, &FetchLimits { timeout: deadline, ..*bounds }, self.now)
    }
}

/// Resolves the host. The system's lookup has no time limit, so a slow lookup stays behind in its own thread.
fn address(authority: &str, patience: Duration) -> Result<SocketAddr, FetchError> {
    if let Ok(address) = authority.parse() {
        return Ok(address);
    }
    let (told, heard) = mpsc::channel();
    let authority = authority.to_owned();
    thread::spawn(move || told.send(authority.to_socket_addrs().map(|mut all| all.next())));
    match heard.recv_timeout(patience) {
        Ok(Ok(Some(address))) => Ok(address),
        Ok(Ok(None)) => Err(FetchError::ConnectFailed("its name has no address".to_owned())),
        Ok(Err(error)) => Err(FetchError::ConnectFailed(error.to_string())),
        Err(_) => Err(FetchError::ConnectTimeout(patience)),
    }
}

/// An HTTP client that refuses every request.
pub(crate) struct ForbiddenFetcher;

impl HttpFetcher for ForbiddenFetcher {
    fn fetch(&self, _: &HttpUrl, _: &FetchRequest, _: &FetchLimits) -> Result<FetchResponse, FetchError> {
        Err(FetchError::ConnectionForbidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_of_what_environments_and_flags_hold() {
        let url = |url| HttpUrl::of_url(url).map(|place| (place.authority, place.path));
        let some = |authority: &str, path: &str| Some((authority.to_owned(), path.to_owned()));
        assert_eq!(url("http://127.0.0.1:15000"), some("127.0.0.1:15000", ""));
        assert_eq!(url("http://localhost/"), some("localhost:80", ""));
        assert_eq!(url("http://localhost/a/"), some("localhost:80", "/a/"));
        assert_eq!(url("http://[fd00:ec2::254]/a/b?c"), some("[fd00:ec2::254]:80", "/a/b?c"));
        for none in
            ["https://a/", "a:80", "http://", "http://:80", "http://u@a/", "http://a:b/", "http://a b/"]
        {
            assert_eq!(url(none), None, "{none}");
        }
        for none in ["", "[::1", "[a]:80", "::1", "a\u{1b}", "a?b", &"a".repeat(254)] {
            assert_eq!(HttpUrl::of_host(none), None, "{none}");
        }
        assert_eq!(
            HttpUrl::of_host("metadata.google.internal").unwrap().authority,
            "metadata.google.internal:80"
        );
    }

    #[test]
    fn a_place_is_asked_for_as_it_was_named_and_what_is_below_it_behind_one_slash() {
        for (url, target, below) in [
            ("http://a", "/", "/b"),
            ("http://a/", "/", "/b"),
            ("http://a/c", "/c", "/c/b"),
            ("http://a/c/", "/c/", "/c/b"),
        ] {
            let place = HttpUrl::of_url(url).unwrap();
            assert_eq!(
                (place.target(), place.request_path_below("/b")),
                (target.to_owned(), below.to_owned()),
                "{url}"
            );
        }
        for (url, target) in
            [("http://a?q=/", "/?q=/"), ("http://a/?q", "/?q"), ("http://a/c?q=d/", "/c?q=d/")]
        {
            assert_eq!(HttpUrl::of_url(url).unwrap().target(), target);
        }
    }

    #[test]
    fn a_name_is_looked_up_and_what_has_no_address_is_told() {
        let bounds = FetchLimits { timeout: Duration::from_secs(60), max_body_bytes: 64 };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = address(&format!("localhost:{port}"), bounds.timeout).unwrap();
        assert!(found.ip().is_loopback() && found.port() == port);
        assert!(matches!(address("a..b:80", bounds.timeout), Err(FetchError::ConnectFailed(_))));
    }
}

/// Fake servers for tests.
#[cfg(test)]
pub(crate) mod fake {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// The reply to a method and a target, such as `GET /a`, at an authority.
    type Reply<'a> = Box<dyn Fn(&FetchRequest) -> Result<FetchResponse, FetchError> + 'a>;

    /// Fake servers by authority; other authorities refuse connections. It records requests and may let time pass.
    #[derive(Default)]
    pub(crate) struct Servers<'a> {
        replies: RefCell<Vec<(String, Reply<'a>)>>,
        pub(crate) asked: RefCell<Vec<String>>,
        /// The total time spent on waiting.
        pub(crate) passed: Cell<Duration>,
        /// The time per response, at most the time limit.
        pub(crate) slow: Cell<Duration>,
    }

    impl<'a> Servers<'a> {
        pub(crate) fn serve(
            &self,
            authority: &str,
            reply: impl Fn(&FetchRequest) -> Result<FetchResponse, FetchError> + 'a,
        ) {
            self.replies.borrow_mut().insert(0, (authority.to_owned(), Box::new(reply)));
        }
    }

    impl HttpFetcher for Servers<'_> {
        fn fetch(
            &self,
            place: &HttpUrl,
            request: &FetchRequest,
            bounds: &FetchLimits,
        ) -> Result<FetchResponse, FetchError> {
            if !request.is_sendable() {
                return Err(FetchError::InvalidRequest);
            }
            self.asked
                .borrow_mut()
                .push(format!("{} {} {}", request.method, place.authority, request.target));
            self.passed.set(self.passed.get() + self.slow.get().min(bounds.timeout));
            let replies = self.replies.borrow();
            let (_, reply) = replies
                .iter()
                .find(|(authority, _)| *authority == place.authority)
                .ok_or(FetchError::ConnectionRefused)?;
            match reply(request) {
                _ if self.slow.get() > bounds.timeout => Err(FetchError::Timeout(bounds.timeout)),
                Ok(answer) if answer.body().len() > bounds.max_body_bytes => {
                    Err(FetchError::TooLarge(bounds.max_body_bytes))
                }
                answer => answer,
            }
        }
    }

    pub(crate) fn answer(body: &str) -> Result<FetchResponse, FetchError> {
        Ok(FetchResponse::new(200, &[], body.as_bytes()))
    }

    pub(crate) fn status(status: u16) -> Result<FetchResponse, FetchError> {
        Ok(FetchResponse::new(status, &[], b"no"))
    }
}
