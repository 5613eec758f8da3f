//! The rules on a request head that every dialect shares: who relays is no direct caller, and who asks for metadata sends no
//! body. What else a head must have is a dialect's own.

use seawall_http::{Framing, RequestHead};

use seawall_http::Refusal;

/// The refusal of a request that announces a body. Its bytes are still in the connection: close it.
pub const BODY: Refusal =
    Refusal::new(400, "body", "Metadata requests have no body, so this one is not read further.");
/// The refusal of a relayed request.
pub const RELAYED: Refusal = Refusal::new(
    403,
    "relayed",
    "The request carries a header that proxies add (X-Forwarded-For or Forwarded), and metadata is for direct callers only.",
);

/// A proxy that an attacker steers announces itself so. The real servers of Google and of AWS (there: where session
/// tokens are asked for) refuse `X-Forwarded-For`; `Forwarded` is the same statement in its standard form (RFC 7239),
/// and no SDK sends either. Other marks are let be: `Via` and `X-Forwarded-Proto` come from sidecars that carry honest
/// traffic. Names match in any case; the wire refuses a name with a space, and no header of the client's is ever sent
/// upstream, so a variant such as `X_Forwarded_For` reaches nobody who could take it for this one.
pub(crate) fn is_relay_mark(name: &str) -> bool {
    name.eq_ignore_ascii_case("X-Forwarded-For") || name.eq_ignore_ascii_case("Forwarded")
}

/// A length of zero is no body: some HTTP libraries send it with every request.
///
/// # Errors
/// [`BODY`].
pub(crate) fn require_no_body(head: &RequestHead<'_, '_>) -> Result<(), Refusal> {
    match head.framing {
        Framing::None | Framing::Length(0) => Ok(()),
        _ => Err(BODY),
    }
}
