//! The bytes of a request: head and body in HTTP/1.1, the head in HTTP/2.
//!
//! This module gets the URL in parts.

use std::borrow::Cow;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use percent_encoding::utf8_percent_encode;
use seawall_http::head_writer;

use super::url_parts::{HTTP2_ENCODE_SET, UrlAuthority};
use super::{RequestBuildError, RequestFraming, is_one_of, shorten_for_error_message};
use crate::proxy::HttpProxy;
use crate::target::Target;

/// The given headers: the settings that they decide, and the headers that are sent as given.
pub(super) struct TargetHeaders<'t> {
    pub(super) host: Option<&'t str>,
    pub(super) has_user_agent: bool,
    pub(super) has_authorization: bool,
    pub(super) close: bool,
    /// True if a verbatim `Connection` header contains `close`.
    pub(super) has_verbatim_close: bool,
    pub(super) verbatim_headers: Vec<(&'t str, &'t str)>,
}

impl<'t> TargetHeaders<'t> {
    pub(super) fn read(target: &'t Target) -> Result<Self, RequestBuildError> {
        let mut headers = Self {
            host: None,
            has_user_agent: false,
            has_authorization: false,
            close: false,
            has_verbatim_close: false,
            verbatim_headers: Vec::new(),
        };
        for (name, value) in &target.headers {
            if !is_header(name, value) {
                return Err(RequestBuildError::Header(shorten_for_error_message(&format!(
                    "{name}: {value}"
                ))));
            }
            headers.take(name, value);
        }
        Ok(headers)
    }

    fn take(&mut self, name: &'t str, value: &'t str) {
        match name.to_ascii_lowercase().as_str() {
            "host" => return self.host = self.host.or(Some(value)),
            // The framing follows from the body; a header that contradicts it would test for request smuggling by accident.
            "content-length" | "transfer-encoding" => return,
            "user-agent" => self.has_user_agent = true,
            "authorization" => self.has_authorization = true,
            "connection" => {
                self.has_verbatim_close |=
                    value.split(',').any(|word| word.trim().eq_ignore_ascii_case("close"));
            }
            _ => {}
        }
        self.verbatim_headers.push((name, value));
    }
}

/// True for a valid header (RFC 9110 section 5): the name is a token, and the value has no control characters.
fn is_header(name: &str, value: &str) -> bool {
    let token = !name.is_empty() && name.bytes().all(crate::record::is_token_byte);
    token && value.bytes().all(|b| b == b'\t' || b >= b' ' && b != 0x7f)
}

/// Writes the head after the request line, without the headers of the body's framing.
pub(super) fn write_head_lines(
    out: &mut Vec<u8>,
    place: &UrlAuthority,
    headers: &TargetHeaders<'_>,
    proxy: Option<&HttpProxy>,
) {
    out.extend_from_slice(b" HTTP/1.1\r\n");
    out.extend_from_slice(proxy.map_or("", HttpProxy::authorization_header_line).as_bytes());
    head_writer::write_header(out, "Host", headers.host.unwrap_or(&place.authority).as_bytes());
    if !headers.has_user_agent {
        head_writer::write_header(
            out,
            "User-Agent",
            concat!("seawall/", env!("CARGO_PKG_VERSION")).as_bytes(),
        );
    }
    if let Some(credentials) = place.authorization_value.as_deref().filter(|_| !headers.has_authorization) {
        head_writer::write_header(out, "Authorization", credentials.as_bytes());
    }
    for (name, value) in &headers.verbatim_headers {
        head_writer::write_header(out, name, value.as_bytes());
    }
    if headers.close && !headers.has_verbatim_close {
        head_writer::write_header(out, "Connection", b"close");
    }
}

/// Makes the HTTP/2 head without its path: no connection headers (RFC 9113 section 8.2.2), the host as the authority.
pub(super) fn http2_head(
    target: &Target,
    place: &UrlAuthority,
    headers: &TargetHeaders<'_>,
) -> Result<Http2Head, RequestBuildError> {
    let bad = |error: http::Error| RequestBuildError::bad_url(&target.url, &error.to_string());
    let scheme = if place.origin.tls { Scheme::HTTPS } else { Scheme::HTTP };
    let authority = Authority::try_from(headers.host.unwrap_or(&place.authority));
    let mut request = http::Request::builder().method(target.method.as_str());
    let agent = ("user-agent", concat!("seawall/", env!("CARGO_PKG_VERSION")));
    let credentials = place.authorization_value.as_deref().filter(|_| !headers.has_authorization);
    let length = target.body.len().to_string();
    let ours = [
        Some(agent).filter(|_| !headers.has_user_agent),
        credentials.map(|credentials| ("authorization", credentials)),
        (!target.body.is_empty()).then_some(("content-length", length.as_str())),
    ];
    let given = headers.verbatim_headers.iter().copied().filter(|(name, value)| !is_hop_by_hop(name, value));
    for (name, value) in ours.into_iter().flatten().chain(given) {
        request = request.header(name, value.as_bytes());
    }
    let (head, ()) = request.body(()).map_err(bad)?.into_parts();
    Ok(Http2Head {
        method: head.method,
        headers: head.headers,
        scheme,
        authority: authority.map_err(|error| bad(error.into()))?,
    })
}

/// The part of an HTTP/2 head that is common to requests that differ only in their paths.
#[derive(Debug)]
pub(super) struct Http2Head {
    method: http::Method,
    scheme: Scheme,
    authority: Authority,
    headers: http::HeaderMap,
}

impl Http2Head {
    /// Returns the head with this path, which is the path of the HTTP/1.1 request line.
    pub(super) fn with_path(&self, path: Bytes) -> Result<http::Request<()>, http::Error> {
        let text = std::str::from_utf8(&path).unwrap_or_default();
        let path = match Cow::from(utf8_percent_encode(text, HTTP2_ENCODE_SET)) {
            Cow::Borrowed(_) => PathAndQuery::from_maybe_shared(path)?,
            Cow::Owned(encoded) => PathAndQuery::try_from(encoded)?,
        };
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        let mut request = http::Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = http::Uri::from_parts(parts)?;
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }
}

/// True for headers that HTTP/2 does not allow. `TE` may only be `trailers`; Go lets others through, and servers end the
/// connection for them.
fn is_hop_by_hop(name: &str, value: &str) -> bool {
    is_one_of(name, &["connection", "keep-alive", "proxy-connection", "upgrade"])
        || name.eq_ignore_ascii_case("te") && value != "trailers"
}

/// The end of a body in chunked coding.
pub(super) const CHUNKED_END: &[u8] = b"\r\n0\r\n\r\n";

/// Writes the framing, the end of the head, and the body. An empty body has a length only if servers may require it.
pub(super) fn write_body(out: &mut Vec<u8>, target: &Target, style: &RequestFraming) {
    let body = &target.body;
    if body.is_empty() && !matches!(target.method.as_str(), "POST" | "PUT" | "PATCH") {
        out.extend_from_slice(b"\r\n");
    } else if style.chunked && !body.is_empty() {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        out.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
        out.extend_from_slice(CHUNKED_END);
    } else {
        head_writer::write_content_length_and_head_end(out, body.len() as u64);
        out.extend_from_slice(body);
    }
}
