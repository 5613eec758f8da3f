//! The parts of a URL that the request line and the connection need, in Go's spelling.
//!
//! This module knows nothing of headers and bodies, apart from the credentials that a URL may contain.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, percent_decode_str, utf8_percent_encode};
use url::{Host, Url};

use super::{Origin, RequestBuildError};

/// The maximum length of a URL: that of the `http` crate's `Uri`, which HTTP/2 needs.
const LONGEST_URL: usize = 65_534;

/// Splits a URL after its scheme and authority, as written.
///
/// # Errors
/// [`RequestBuildError`] if there is no authority, or a character that a URL cannot contain.
pub(super) fn split_url(text: &str) -> Result<(&str, &str), RequestBuildError> {
    let bad = |reason: &str| RequestBuildError::bad_url(text, reason);
    if text.len() > LONGEST_URL {
        return Err(bad(&format!("it has {} bytes; the limit is {LONGEST_URL}", text.len())));
    }
    if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err(bad("a control character must be percent-encoded"));
    }
    let authority = text.find("://").ok_or_else(|| bad("expected scheme://host/path"))? + 3;
    let end = text[authority..].find(['/', '?', '#']).map_or(text.len(), |length| authority + length);
    Ok(text.split_at(end))
}

/// The scheme and the authority of a URL. The path is not part of it and stays as written: a load test of `/a/../b` must send
/// `/a/../b`.
#[derive(Debug)]
pub(super) struct UrlAuthority {
    pub(super) origin: Origin,
    /// The authority as the `Host` header has it.
    pub(super) authority: String,
    pub(super) authorization_value: Option<String>,
}

impl UrlAuthority {
    /// Parses the first half of [`split_url`]; errors name the whole URL.
    pub(super) fn of(base: &str, whole: &str) -> Result<Self, RequestBuildError> {
        let bad = |reason: &str| RequestBuildError::bad_url(whole, reason);
        let authority = base.split_once("://").ok_or_else(|| bad("expected scheme://host/path"))?.1;
        if authority.contains([' ', '\\']) {
            return Err(bad("a host must not contain a space or a backslash"));
        }
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        if authority.starts_with('[') && authority.contains('%') {
            return Err(bad("IPv6 zones, such as %25eth0, are not supported: use an address without one"));
        }
        let url = Url::parse(base).map_err(|error| bad(&error.to_string()))?;
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(RequestBuildError::Scheme(shorten_for_error_message(whole))),
        };
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
            authorization_value: basic_credentials(&url),
        })
    }
}

/// Returns a host in the form of [`Origin::host`]: names in lower case and, outside ASCII, in Punycode. Any other text is only
/// converted to lower case.
#[must_use]
pub fn normalized_host(host: &str) -> String {
    match Host::parse(host) {
        Ok(Host::Domain(name)) => name,
        _ => host.to_ascii_lowercase(),
    }
}

/// Shortens a text of any length for an error text.
pub(crate) fn shorten_for_error_message(text: &str) -> String {
    match text.char_indices().nth(200) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// Returns a URL for a message: without user and password, and without its query, which may contain a token.
pub(crate) fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (path, query) = path.split_once('?').map_or((path, ""), |(path, _)| (path, "?..."));
    shorten_for_error_message(&format!("{scheme}://{host}{path}")) + query
}

fn host_header(host: &str, port: Option<u16>) -> String {
    port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Appends path and query without the fragment, with a `/` in front. Characters that a request line cannot contain are
/// percent-encoded, and so are those that Go encodes in a path (net/url `shouldEscape`); the rest stays as written.
pub(super) fn push_origin_form(out: &mut Vec<u8>, path: &str) {
    let path = path.split_once('#').map_or(path, |(path, _)| path);
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    if !path.starts_with('/') {
        out.push(b'/');
    }
    let pieces = utf8_percent_encode(path, PATH).chain(utf8_percent_encode(query, LINE));
    pieces.for_each(|piece| out.extend_from_slice(piece.as_bytes()));
}

/// The characters that a request line cannot contain. Every set encodes bytes outside ASCII, and control characters were refused
/// earlier.
const LINE: &AsciiSet = &AsciiSet::EMPTY.add(b' ');

/// The further characters that Go encodes in a path (net/url `shouldEscape`).
const PATH: &AsciiSet =
    &LINE.add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

/// The characters that the `http` crate does not accept unencoded.
pub(super) const HTTP2_ENCODE_SET: &AsciiSet = &LINE.add(b'"').add(b'<').add(b'>');

/// Returns the `Authorization` value for the credentials of a URL such as `http://user:password@host/`, as Go does.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_a_url_without_its_secrets() {
        assert_eq!(without_secrets("http://me:secret@host:8080/a?token=x#f"), "http://host:8080/a?...");
        assert_eq!(without_secrets("https://host"), "https://host");
        assert_eq!(without_secrets("http://host/a@b"), "http://host/a@b");
        assert_eq!(without_secrets("http://host?q=1"), "http://host?...");
        assert!(without_secrets(&format!("http://host/{}", "a".repeat(1_000))).len() < 250);
    }
}
