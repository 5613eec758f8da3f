//! A target prepared for sending: the bytes of the request, its origin, and the conditions on its response.
//!
//! All checks of a target happen here, once, before the first byte is sent; a [`PreparedRequest`] can be sent. Sending one costs
//! the send loop only a `write` of bytes that exist already.
//!
//! The request line, `Host`, body and given headers are those that vegeta sends (spelling kept, repeats kept). Two headers of
//! vegeta are not sent: `Accept-Encoding: gzip`, which makes vegeta count inflated bytes, and `X-Vegeta-Seq`.

mod head_and_body;
mod shared_request_parts;
mod url_parts;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use url::Url;

use self::head_and_body::{CHUNKED_END, write_body};
pub use self::shared_request_parts::RequestBuilder;
use self::shared_request_parts::RequestShape;
pub use self::url_parts::normalized_host;
use self::url_parts::{UrlAuthority, push_origin_form, split_url};
pub(crate) use self::url_parts::{percent_decoded, shorten_for_error_message, without_secrets};
use crate::expectation::ExpectationSet;
use crate::proxy::ProxyRules;
use crate::target::{Target, Weight};
use crate::variant::Variant;

/// The origin of a request, to which its connection is made and under which the connection is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// True for https, false for http.
    pub tls: bool,
    /// The name or address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The variant of the target, if it has one.
    pub variant: Option<Arc<Variant>>,
}

impl Origin {
    /// True if the host and the port are the same, whatever the route.
    fn is_same_place(&self, other: &Self) -> bool {
        (self.tls, &self.host, self.port) == (other.tls, &other.host, other.port)
    }

    /// Returns the name that the certificate of the server must have.
    pub(crate) fn server_name(&self) -> &str {
        self.variant.as_ref().and_then(|variant| variant.server_name.as_deref()).unwrap_or(&self.host)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The reason why a target cannot become a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestBuildError {
    /// The URL is not an absolute URL.
    #[error("bad URL {url:?}: {reason}")]
    Url {
        /// The URL as written; the beginning of a long one.
        url: String,
        /// The mistake.
        reason: String,
    },
    /// The engine does not support the scheme.
    #[error("bad URL {0:?}: expected http:// or https://")]
    Scheme(String),
    /// HTTP does not allow the header.
    #[error("bad header {0:?}: the name must be a token, and the value must have no control characters")]
    Header(String),
}

impl RequestBuildError {
    fn bad_url(url: &str, reason: &str) -> Self {
        Self::Url { url: shorten_for_error_message(url), reason: reason.to_owned() }
    }
}

/// The framing of requests, which is the same for a whole run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestFraming {
    /// `-chunked`: send bodies in chunked coding.
    pub chunked: bool,
    /// `-keepalive=false`: ask for the connection to be closed.
    pub close: bool,
    /// True if the run may use HTTP/2.
    pub may_use_http2: bool,
    /// True if HTTP/2 is used only with TLS, so that targets of the scheme http need no HTTP/2 head.
    pub http2_needs_tls: bool,
    /// The proxies of the run. A request that goes to a proxy without a tunnel contains its whole URL (RFC 9112 section 3.2.2).
    pub proxies: Arc<ProxyRules>,
}

/// A target that can be sent. Small, because a list may have millions of them, which share their common parts.
#[derive(Debug, Clone)]
pub struct PreparedRequest {
    shape: Arc<RequestShape>,
    /// The URL as written, followed by everything that goes to the socket.
    text: Bytes,
    url_length: u32,
    path_length: u32,
    /// The length of its body, as the record shows it.
    pub body_length: u64,
}

impl PreparedRequest {
    /// Checks a target and makes a request of it.
    ///
    /// # Errors
    /// [`RequestBuildError`].
    pub fn new(target: &Target, style: &RequestFraming) -> Result<Self, RequestBuildError> {
        let mut text = Vec::with_capacity(256 + 2 * target.url.len() + target.body.len());
        let (base, path) = split_url(&target.url)?;
        let shape = Arc::new(RequestShape::new(target, base, style)?);
        let request = Self::assemble(shape, target, path, style, &mut text)?;
        request.with_text(Bytes::from(text))
    }

    /// Makes the request without its text, which is left in `text`.
    fn assemble(
        shape: Arc<RequestShape>,
        target: &Target,
        path: &str,
        style: &RequestFraming,
        text: &mut Vec<u8>,
    ) -> Result<Self, RequestBuildError> {
        text.clear();
        text.extend_from_slice(target.url.as_bytes());
        text.extend_from_slice(target.method.as_bytes());
        text.push(b' ');
        text.extend_from_slice(shape.absolute_form_prefix.as_bytes());
        let start = text.len();
        push_origin_form(text, path);
        let length = |bytes: usize| {
            u32::try_from(bytes).map_err(|_| RequestBuildError::bad_url(&target.url, "it is too long"))
        };
        let path_length = length(text.len() - start)?;
        text.extend_from_slice(&shape.head_lines);
        write_body(text, target, style);
        Ok(Self {
            shape,
            text: Bytes::new(),
            url_length: length(target.url.len())?,
            path_length,
            body_length: target.body.len() as u64,
        })
    }

    /// Returns the conditions on the response, apart from its status.
    #[inline]
    #[must_use]
    pub fn expectations(&self) -> Option<&Arc<ExpectationSet>> {
        self.shape.expect.as_ref()
    }

    /// Sets the text. If the run may use HTTP/2, checks that HTTP/2 can send the path.
    fn with_text(mut self, text: Bytes) -> Result<Self, RequestBuildError> {
        self.text = text;
        if let Some(http2) = &self.shape.http2_head {
            let checked = http2.with_path(self.path());
            checked.map_err(|error| RequestBuildError::bad_url(self.url(), &error.to_string()))?;
        }
        Ok(self)
    }

    /// Returns the method, as the record shows it.
    #[inline]
    #[must_use]
    pub fn method(&self) -> &str {
        &self.shape.method
    }

    /// Returns the URL, as the record shows it.
    #[must_use]
    pub fn url(&self) -> &str {
        // The bytes come from a string, so the conversion does not fail.
        std::str::from_utf8(&self.text[..self.url_length as usize]).unwrap_or_default()
    }

    /// Returns the origin of the request.
    #[inline]
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.shape.origin
    }

    /// True if the connection is not reused after this request.
    #[inline]
    #[must_use]
    pub fn closes(&self) -> bool {
        self.shape.close
    }

    /// Returns everything that goes to the socket.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.text[self.url_length as usize..]
    }

    /// Returns the path of the request line.
    fn path(&self) -> Bytes {
        let start =
            self.url_length as usize + self.shape.method.len() + 1 + self.shape.absolute_form_prefix.len();
        self.text.slice(start..start + self.path_length as usize)
    }

    /// Returns the body without its framing.
    fn body(&self) -> Bytes {
        let length = usize::try_from(self.body_length).unwrap_or_default();
        let end = self.text.len() - if self.shape.chunked && length > 0 { CHUNKED_END.len() } else { 0 };
        self.text.slice(end - length..end)
    }

    /// Returns head and body for HTTP/2, if the run may use it.
    pub(crate) fn http2_request(&self) -> Option<(http::Request<()>, Bytes)> {
        let head = self.shape.http2_head.as_ref()?.with_path(self.path()).ok()?;
        Some((head, self.body()))
    }

    /// True if Go's client considers it harmless to send the request twice (net/http `Request.isReplayable`). Such a request is
    /// sent again if the server closed an idle connection just when the request was written. RFC 9110 (section 9.2.2) also calls
    /// PUT and DELETE idempotent, but Go's client repeats them only if a header says so.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        let says_so = |(name, _): &(String, String)| {
            ["Idempotency-Key", "X-Idempotency-Key"].iter().any(|key| name.eq_ignore_ascii_case(key))
        };
        matches!(self.method(), "GET" | "HEAD" | "OPTIONS" | "TRACE")
            || self.shape.headers.iter().any(says_so)
    }

    /// Returns the target of which the request was made, without its weight.
    fn target(&self) -> Target {
        Target {
            method: self.method().to_owned(),
            url: self.url().to_owned(),
            headers: self.shape.headers.clone(),
            body: Arc::from(&self.body()[..]),
            weight: Weight::default(),
            variant: self.origin().variant.clone(),
            expect: self.shape.expect.clone(),
        }
    }

    /// Makes the request for the same target with other framing, and with another method if one is given.
    pub(crate) fn reframed(
        &self,
        style: &RequestFraming,
        method: Option<&str>,
    ) -> Result<Self, RequestBuildError> {
        let mut target = self.target();
        if let Some(method) = method {
            method.clone_into(&mut target.method);
        }
        Self::new(&target, style)
    }

    /// Returns the request that a redirect asks for, as Go's client makes it (net/http `Client.do`, `redirectBehavior`). The
    /// statuses 301, 302 and 303 change the method to GET (HEAD stays) and drop the body with its headers; 307 and 308 keep both.
    /// Credentials go to the same host and its subdomains. A `Host` that the target gave stays if the location names no other.
    ///
    /// # Errors
    /// [`RequestBuildError`] if the location is not a URL that the engine can use.
    pub fn redirected(
        &self,
        status: u16,
        location: &str,
        style: &RequestFraming,
    ) -> Result<Self, RequestBuildError> {
        let bad = |reason: url::ParseError| RequestBuildError::bad_url(location, &reason.to_string());
        let mut url = Url::parse(self.url()).and_then(|base| base.join(location)).map_err(bad)?;
        url.set_fragment(None);
        let mut target = Target { url: url.into(), ..self.target() };
        if matches!(status, 301..=303) {
            target.body = Arc::default();
            target.headers.retain(|(name, _)| !is_one_of(name, &OF_BODIES));
            if target.method != "HEAD" {
                target.method = "GET".to_owned();
            }
        }
        let origin = UrlAuthority::of(split_url(&target.url)?.0, &target.url)?.origin;
        let same_place = origin.is_same_place(self.origin());
        // A location with a scheme or an authority names its host; any other location goes to the same host.
        if Url::parse(location).is_ok() || !same_place {
            target.headers.retain(|(name, _)| !is_one_of(name, &["host"]));
        }
        if !same_place {
            target.variant = target.variant.map(|variant| Arc::new(variant.for_other_host()));
        }
        if !is_same_or_below(&origin.host, &self.origin().host) {
            target.headers.retain(|(name, _)| !is_one_of(name, &CREDENTIALS));
        }
        Self::new(&target, style)
    }
}

/// Headers that go only to their original host and its subdomains (Go net/http `makeHeadersCopier`).
const CREDENTIALS: [&str; 6] =
    ["authorization", "cookie", "cookie2", "www-authenticate", "proxy-authorization", "proxy-authenticate"];

/// Headers that describe a body (Go net/http `makeHeadersCopier`).
const OF_BODIES: [&str; 4] = ["content-encoding", "content-language", "content-location", "content-type"];

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|one| name.eq_ignore_ascii_case(one))
}

/// True if a host equals another host or is a subdomain of it (Go net/http `isDomainOrSubdomain`). An IP address has no
/// subdomains.
fn is_same_or_below(host: &str, parent: &str) -> bool {
    let below = || host.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    host == parent || !host.contains(':') && below()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> Target {
        Target {
            method: method.into(),
            url: url.into(),
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            body: body.as_bytes().into(),
            ..Target::default()
        }
    }

    fn sent(target: &Target, style: &RequestFraming) -> String {
        String::from_utf8(PreparedRequest::new(target, style).unwrap().bytes().to_vec()).unwrap()
    }

    const AGENT: &str = concat!("User-Agent: seawall/", env!("CARGO_PKG_VERSION"), "\r\n");

    #[test]
    fn what_may_be_sent_again_is_what_go_sends_again() {
        let may = |method: &str, headers: &[&str]| {
            let headers = headers.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
            let target =
                Target { method: method.into(), url: "http://h/".into(), headers, ..Target::default() };
            PreparedRequest::new(&target, &RequestFraming::default()).unwrap().is_idempotent()
        };
        assert!(["GET", "HEAD", "OPTIONS", "TRACE"].iter().all(|method| may(method, &[])));
        assert!(!["PUT", "DELETE", "POST", "PATCH"].iter().any(|method| may(method, &["Accept"])));
        assert!(may("POST", &["idempotency-key"]) && may("PUT", &["X-Idempotency-Key"]));
    }

    #[test]
    fn a_plain_get() {
        let target = target("GET", "http://a.example:8080/x?y#z", &[("Metadata-Flavor", "Google")], "");
        let expected =
            format!("GET /x?y HTTP/1.1\r\nHost: a.example:8080\r\n{AGENT}Metadata-Flavor: Google\r\n\r\n");
        assert_eq!(sent(&target, &RequestFraming::default()), expected);
    }

    #[test]
    fn given_headers_replace_ours_and_repeat_as_given() {
        let given = [("host", "b"), ("user-agent", "me"), ("X", "1"), ("X", "2"), ("Content-Length", "9")];
        let text = sent(&target("POST", "http://a", &given, "hi"), &RequestFraming::default());
        let expected =
            "POST / HTTP/1.1\r\nHost: b\r\nuser-agent: me\r\nX: 1\r\nX: 2\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(text, expected);
    }

    #[test]
    fn chunked_bodies_and_closing_connections() {
        let style = &RequestFraming { chunked: true, close: true, ..RequestFraming::default() };
        let text = sent(&target("POST", "http://a/", &[("User-Agent", "me")], "hello, hello, hello"), style);
        assert!(text.ends_with(
            "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n13\r\nhello, hello, hello\r\n0\r\n\r\n"
        ));
        assert!(sent(&target("GET", "http://a/", &[], ""), style).ends_with("Connection: close\r\n\r\n"));
    }

    #[test]
    fn the_path_stays_as_written_and_credentials_become_a_header() {
        let text = sent(&target("GET", "http://u%40:p@a/../b//c?d=ü", &[], ""), &RequestFraming::default());
        assert!(text.starts_with("GET /../b//c?d=%C3%BC HTTP/1.1\r\nHost: a\r\n"), "{text}");
        assert!(text.contains("Authorization: Basic dUA6cA==\r\n"), "{text}");
    }

    #[test]
    fn a_percent_sign_without_two_digits_behind_it_stands_for_itself() {
        assert_eq!(percent_decoded("%41%zz%+f%4%"), b"A%zz%+f%4%");
    }

    #[test]
    fn what_vegeta_encodes_in_a_path_is_encoded_whether_or_not_http2_may_be_spoken() {
        let all = r##"/ !"$%26'()*+,-.:;<=>@[\]^_`{|}~é? !"$'<>[\]^`{|}~#<>"##;
        let target = target("GET", &format!("http://a{all}"), &[], "");
        for http2 in [false, true] {
            let text = sent(&target, &RequestFraming { may_use_http2: http2, ..RequestFraming::default() });
            let expected = r#"GET /%20!%22$%26'()*+,-.:;%3C=%3E@[%5C]%5E_%60%7B%7C%7D~%C3%A9?%20!"$'<>[\]^`{|}~ HTTP/1.1"#;
            assert_eq!(text.lines().next(), Some(expected));
        }
        let over = PreparedRequest::new(
            &target,
            &RequestFraming { may_use_http2: true, ..RequestFraming::default() },
        )
        .unwrap();
        assert_eq!(over.http2_request().unwrap().0.uri().query(), Some("%20!%22$'%3C%3E[\\]^`{|}~"));
    }

    #[test]
    fn origins() {
        let origin = |url: &str| {
            PreparedRequest::new(&target("GET", url, &[], ""), &RequestFraming::default())
                .unwrap()
                .origin()
                .to_string()
        };
        assert_eq!(origin("http://a"), "a:80");
        assert_eq!(origin("https://a/"), "a:443");
        assert_eq!(origin("http://[::1]:8080/"), "[::1]:8080");
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let refused = |url: &str, headers: &[(&str, &str)]| {
            PreparedRequest::new(&target("GET", url, headers, ""), &RequestFraming::default()).is_err()
        };
        for url in [
            "",
            "/x",
            "a",
            "ftp://a/",
            "http://",
            "http:///x",
            "http://a b/",
            "http://a\\b/",
            "http://a:99999/",
            "http://a/\n",
        ] {
            assert!(refused(url, &[]), "{url:?}");
        }
        assert!(refused("http://a/", &[("X Y", "z")]));
        assert!(refused("http://a/", &[("X", "a\r\nB: c")]));
    }

    fn refusal(url: &str) -> String {
        PreparedRequest::new(&target("GET", url, &[], ""), &RequestFraming::default())
            .unwrap_err()
            .to_string()
    }

    /// Such a URL used to be refused by an unnamed limit, and was printed whole.
    #[test]
    fn a_url_above_the_limit_is_refused_with_the_limit_and_the_beginning_of_it() {
        let url = format!("http://a/{}", "é".repeat(50_000));
        let said = refusal(&url);
        assert!(said.len() < 500 && said.starts_with("bad URL \"http://a/é"), "{said}");
        assert!(said.ends_with("it has 100009 bytes; the limit is 65534"), "{said}");
        for http2 in [false, true] {
            let style = RequestFraming { may_use_http2: http2, ..RequestFraming::default() };
            let longest = format!("http://a/{}", "x".repeat(65_534 - 9));
            assert!(PreparedRequest::new(&target("GET", &longest, &[], ""), &style).is_ok());
        }
    }

    /// The error text used to be "invalid IPv6 address".
    #[test]
    fn an_ipv6_zone_is_refused_by_name() {
        for url in ["http://[fe80::1%25eth0]/", "https://[fe80::1%eth0]:8443/x"] {
            assert!(
                refusal(url)
                    .ends_with("IPv6 zones, such as %25eth0, are not supported: use an address without one")
            );
        }
    }

    #[test]
    fn redirects_as_go_follows_them() {
        let given = [("Authorization", "secret"), ("Host", "b"), ("X", "1")];
        let post =
            PreparedRequest::new(&target("POST", "http://a/x", &given, "hi"), &RequestFraming::default())
                .unwrap();
        let see_other = post.redirected(303, "y?z#w", &RequestFraming::default()).unwrap();
        assert_eq!((see_other.method(), see_other.url(), see_other.body_length), ("GET", "http://a/y?z", 0));
        let same = post.redirected(307, "http://c/", &RequestFraming::default()).unwrap();
        let text = String::from_utf8(same.bytes().to_vec()).unwrap();
        assert!(text.starts_with("POST / HTTP/1.1\r\nHost: c\r\n") && text.ends_with("\r\n\r\nhi"), "{text}");
        assert!(!text.contains("secret") && text.contains("X: 1"), "{text}");
        assert!(post.redirected(302, "gopher://a/", &RequestFraming::default()).is_err());
    }

    /// Returns the target and the text of a request with a body and credentials after a redirect.
    fn after(status: u16, location: &str) -> String {
        let given = [("Host", "shop"), ("Cookie", "c"), ("Content-Type", "t")];
        let request = PreparedRequest::new(
            &target("POST", "http://a.b:8080/x", &given, "hi"),
            &RequestFraming::default(),
        );
        let next = request.unwrap().redirected(status, location, &RequestFraming::default()).unwrap();
        String::from_utf8(next.bytes().to_vec()).unwrap().replace(AGENT, "").replace("\r\n", " ")
    }

    #[test]
    fn the_given_host_stays_where_the_location_names_none() {
        for location in ["/b", "b", "?q", "//a.b:8080/b"] {
            assert!(after(307, location).contains(" Host: shop "), "{location}");
        }
        for (location, host) in
            [("http://a.b:8080/b", "a.b:8080"), ("//c/b", "c"), ("//a.b/b", "a.b"), ("/\\c/b", "c")]
        {
            assert!(after(307, location).contains(&format!(" Host: {host} ")), "{}", after(307, location));
        }
    }

    #[test]
    fn credentials_go_to_the_same_host_and_below_and_no_further() {
        for location in ["/b", "http://a.b/", "http://x.a.b/", "https://a.b/"] {
            assert!(after(307, location).contains(" Cookie: c "), "{location}");
        }
        for location in ["http://b/", "http://xa.b/", "http://a.b.c/", "http://[::1]/"] {
            assert!(!after(307, location).contains("Cookie"), "{location}");
        }
    }

    #[test]
    fn what_describes_a_body_goes_with_it() {
        assert_eq!(after(302, "/b"), "GET /b HTTP/1.1 Host: shop Cookie: c  ");
        assert_eq!(
            after(308, "/b"),
            "POST /b HTTP/1.1 Host: shop Cookie: c Content-Type: t Content-Length: 2  hi"
        );
    }
}
