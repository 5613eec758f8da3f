//! What of a URL the request line and the connection need, in Go's spelling.
//!
//! Knows nothing of headers and bodies but the credentials that a URL may hold.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, percent_decode_str, utf8_percent_encode};
use url::{Host, Url};

use super::{Origin, RequestBuildError};

/// The parts of a URL that the request line and the connection need. The path stays as written: a load test of
/// `/a/../b` must send `/a/../b`.
pub(super) struct UrlParts {
    pub(super) origin: Origin,
    pub(super) authority: String,
    pub(super) path: String,
    pub(super) credentials: Option<String>,
}

impl UrlParts {
    pub(super) fn of(text: &str) -> Result<Self, RequestBuildError> {
        let bad = |reason: &str| RequestBuildError::Url { url: text.to_owned(), reason: reason.to_owned() };
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err(bad("a control character must be percent-encoded"));
        }
        let url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(RequestBuildError::Scheme(text.to_owned())),
        };
        let rest = text.split_once("://").ok_or_else(|| bad("expected scheme://host/path"))?.1;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains([' ', '\\']) {
            return Err(bad("a host must not contain a space or a backslash"));
        }
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = match url.host().filter(|_| !authority.is_empty()).ok_or_else(|| bad("no host"))? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        let port = url.port_or_known_default().ok_or_else(|| bad("no port"))?;
        let authority =
            if authority.is_ascii() { authority.to_owned() } else { host_header(&host, url.port()) };
        Ok(Self {
            origin: Origin { tls, host, port, variant: None },
            authority,
            path: origin_form(path),
            credentials: basic_credentials(&url),
        })
    }
}

fn host_header(host: &str, port: Option<u16>) -> String {
    port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Path and query without the fragment, a `/` in front. What a request line cannot hold is percent-encoded, and so is what
/// Go encodes in a path (net/url `shouldEscape`); the rest stays as written.
fn origin_form(path: &str) -> String {
    let path = path.split_once('#').map_or(path, |(path, _)| path);
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{slash}{}{}", utf8_percent_encode(path, PATH), utf8_percent_encode(query, LINE))
}

/// What a request line cannot hold. Bytes outside ASCII are encoded with every set, control characters were refused.
const LINE: &AsciiSet = &AsciiSet::EMPTY.add(b' ');

/// What Go encodes in a path besides (net/url `shouldEscape`).
const PATH: &AsciiSet =
    &LINE.add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

/// What the `http` crate does not hold as it is.
pub(super) const HTTP2: &AsciiSet = &LINE.add(b'"').add(b'<').add(b'>');

/// `http://user:password@host/` becomes an Authorization header, as in Go.
fn basic_credentials(url: &Url) -> Option<String> {
    let password = url.password().unwrap_or("");
    let given = !url.username().is_empty() || url.password().is_some();
    given.then(|| {
        let plain = format!("{}:{password}", url.username());
        format!("Basic {}", STANDARD.encode(percent_decoded(&plain)))
    })
}

pub(crate) fn percent_decoded(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}
