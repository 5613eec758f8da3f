//! The rules on a request head that all dialects share: no proxied requests, and no body. Each dialect adds rules of its own.

use seawall_http::{Framing, RequestHead};

use seawall_http::Refusal;

/// The refusal of a request that announces a body. Its bytes are still in the connection: close it.
pub const UNEXPECTED_BODY: Refusal =
    Refusal::new(400, "unexpected_body", "A metadata request must not have a body.");
/// The refusal of a proxied request.
pub const PROXIED_REQUEST: Refusal = Refusal::new(
    403,
    "proxied_request",
    "The request has a header that proxies add (X-Forwarded-For or Forwarded). Only direct clients may read metadata.",
);

/// True for a header that proxies add to a proxied request. A proxy that an attacker steers announces itself so.
///
/// The real servers of Google and of AWS (AWS: for session tokens) refuse `X-Forwarded-For`. `Forwarded` is the same statement in its
/// standard form (RFC 7239), and no SDK sends either. `Via` and `X-Forwarded-Proto` are allowed, because sidecars add them to honest
/// traffic.
///
/// Names match in any case, and the HTTP parser refuses a name with a space. The agent sends no client header upstream, so a variant such
/// as `X_Forwarded_For` reaches no server that could read it as this one.
pub(crate) fn is_relay_mark(name: &str) -> bool {
    name.eq_ignore_ascii_case("X-Forwarded-For") || name.eq_ignore_ascii_case("Forwarded")
}

/// Refuses a request with a body. A length of zero is allowed: some HTTP libraries send it with every request.
///
/// # Errors
/// [`UNEXPECTED_BODY`].
pub(crate) fn require_no_body(head: &RequestHead<'_, '_>) -> Result<(), Refusal> {
    match head.framing {
        Framing::None | Framing::Length(0) => Ok(()),
        _ => Err(UNEXPECTED_BODY),
    }
}
