//! Checks request heads with the rules that all dialects share. These rules refuse proxied requests and requests with a body.
//! Each dialect adds its own rules.

use seawall_http::{Framing, RequestHead};

use seawall_http::Refusal;

/// The refusal for a request that announces a body. The caller must close the connection, because the body's bytes are still
/// unread.
pub const UNEXPECTED_BODY: Refusal =
    Refusal::new(400, "unexpected_body", "A metadata request must not have a body.");
/// The refusal for a proxied request.
pub const PROXIED_REQUEST: Refusal = Refusal::new(
    403,
    "proxied_request",
    "The request has a header that proxies add (X-Forwarded-For or Forwarded). Only direct clients may read metadata.",
);

/// True for a header that proxies add to a request. If an attacker sends a request through a proxy in a pod, this header
/// reveals the proxy.
///
/// The real servers of Google and AWS refuse `X-Forwarded-For` (AWS: only in requests for session tokens). `Forwarded` is the
/// standard header with the same meaning (RFC 7239). No SDK sends either header. `Via` and `X-Forwarded-Proto` are allowed,
/// because sidecars add them to legitimate requests.
///
/// The comparison ignores letter case, and the HTTP parser refuses a name with a space. A variant such as `X_Forwarded_For` is
/// harmless, because the agent sends no client headers to a server that could treat the variant like `X-Forwarded-For`.
pub(crate) fn is_proxy_header(name: &str) -> bool {
    name.eq_ignore_ascii_case("X-Forwarded-For") || name.eq_ignore_ascii_case("Forwarded")
}

/// Refuses a request with a body. `Content-Length: 0` is allowed, because some HTTP libraries send it with every request.
///
/// # Errors
/// [`UNEXPECTED_BODY`].
pub(crate) fn require_no_body(head: &RequestHead<'_, '_>) -> Result<(), Refusal> {
    match head.framing {
        Framing::None | Framing::Length(0) => Ok(()),
        _ => Err(UNEXPECTED_BODY),
    }
}
