//! The bytes of a request: head and body in HTTP/1.1, the head in HTTP/2.
//!
//! Knows no URL as a whole: where a request goes has been taken apart already.

use percent_encoding::utf8_percent_encode;
use seawall_http::write;

use super::place::{HTTP2, UrlParts};
use super::{RequestBuildError, RequestFraming, is_one_of};
use crate::proxy::HttpProxy;
use crate::target::Target;

/// What the given headers decide, and those that go out as given.
pub(super) struct TargetHeaders<'t> {
    pub(super) host: Option<&'t str>,
    pub(super) user_agent: bool,
    pub(super) authorization: bool,
    pub(super) close: bool,
    /// One of those that go out as given says so.
    pub(super) says_close: bool,
    pub(super) verbatim: Vec<(&'t str, &'t str)>,
}

impl<'t> TargetHeaders<'t> {
    pub(super) fn read(target: &'t Target) -> Result<Self, RequestBuildError> {
        let mut headers = Self {
            host: None,
            user_agent: false,
            authorization: false,
            close: false,
            says_close: false,
            verbatim: Vec::new(),
        };
        for (name, value) in &target.headers {
            if !is_header(name, value) {
                return Err(RequestBuildError::Header(format!("{name}: {value}")));
            }
            headers.take(name, value);
        }
        Ok(headers)
    }

    fn take(&mut self, name: &'t str, value: &'t str) {
        match name.to_ascii_lowercase().as_str() {
            "host" => return self.host = self.host.or(Some(value)),
            // The body decides the framing; a second opinion would be a smuggling test by accident.
            "content-length" | "transfer-encoding" => return,
            "user-agent" => self.user_agent = true,
            "authorization" => self.authorization = true,
            "connection" => {
                self.says_close |= value.split(',').any(|word| word.trim().eq_ignore_ascii_case("close"));
            }
            _ => {}
        }
        self.verbatim.push((name, value));
    }
}

/// RFC 9110 section 5: a token, and a value without control characters.
fn is_header(name: &str, value: &str) -> bool {
    let token = !name.is_empty() && name.bytes().all(crate::record::is_token);
    token && value.bytes().all(|b| b == b'\t' || b >= b' ' && b != 0x7f)
}

pub(super) fn head(
    out: &mut Vec<u8>,
    target: &Target,
    place: &UrlParts,
    headers: &TargetHeaders<'_>,
    proxy: Option<&HttpProxy>,
) {
    let absolute = proxy.map_or_else(String::new, |_| format!("http://{}", place.authority));
    out.extend_from_slice(format!("{} {absolute}{} HTTP/1.1\r\n", target.method, place.path).as_bytes());
    out.extend_from_slice(proxy.map_or("", HttpProxy::authorization).as_bytes());
    write::header(out, "Host", headers.host.unwrap_or(&place.authority).as_bytes());
    if !headers.user_agent {
        write::header(out, "User-Agent", concat!("seawall/", env!("CARGO_PKG_VERSION")).as_bytes());
    }
    if let Some(credentials) = place.credentials.as_deref().filter(|_| !headers.authorization) {
        write::header(out, "Authorization", credentials.as_bytes());
    }
    for (name, value) in &headers.verbatim {
        write::header(out, name, value.as_bytes());
    }
    if headers.close && !headers.says_close {
        write::header(out, "Connection", b"close");
    }
}

/// The head as HTTP/2 has it: no connection headers (RFC 9113 section 8.2.2), the host as the authority.
pub(super) fn http2(
    target: &Target,
    place: &UrlParts,
    headers: &TargetHeaders<'_>,
) -> Result<http::Request<()>, RequestBuildError> {
    let scheme = if place.origin.tls { "https" } else { "http" };
    let authority = headers.host.unwrap_or(&place.authority);
    let path = utf8_percent_encode(&place.path, HTTP2);
    let mut request = http::Request::builder()
        .version(http::Version::HTTP_2)
        .method(target.method.as_str())
        .uri(format!("{scheme}://{authority}{path}"));
    let agent = ("user-agent", concat!("seawall/", env!("CARGO_PKG_VERSION")));
    let credentials = place.credentials.as_deref().filter(|_| !headers.authorization);
    let length = target.body.len().to_string();
    let ours = [
        Some(agent).filter(|_| !headers.user_agent),
        credentials.map(|credentials| ("authorization", credentials)),
        (!target.body.is_empty()).then_some(("content-length", length.as_str())),
    ];
    let given = headers.verbatim.iter().copied().filter(|(name, value)| !is_hop_by_hop(name, value));
    for (name, value) in ours.into_iter().flatten().chain(given) {
        request = request.header(name, value.as_bytes());
    }
    let bad =
        |error: http::Error| RequestBuildError::Url { url: target.url.clone(), reason: error.to_string() };
    request.body(()).map_err(bad)
}

/// `TE` may only say `trailers`; Go lets others through, and servers end the connection for them.
fn is_hop_by_hop(name: &str, value: &str) -> bool {
    is_one_of(name, &["connection", "keep-alive", "proxy-connection", "upgrade"])
        || name.eq_ignore_ascii_case("te") && value != "trailers"
}

/// The framing, the end of the head, and the body. An empty body has a length only where a server may insist on one.
pub(super) fn body(out: &mut Vec<u8>, target: &Target, style: &RequestFraming) {
    let body = &target.body;
    if body.is_empty() && !matches!(target.method.as_str(), "POST" | "PUT" | "PATCH") {
        out.extend_from_slice(b"\r\n");
    } else if style.chunked && !body.is_empty() {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        out.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
        out.extend_from_slice(b"\r\n0\r\n\r\n");
    } else {
        write::length_and_end(out, body.len() as u64);
        out.extend_from_slice(body);
    }
}
