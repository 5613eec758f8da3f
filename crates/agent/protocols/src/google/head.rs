//! The rules on a request head that both modes share: method, the mark of a relay, the flavour header.

use seawall_http::RequestHead;

use crate::head::{RELAYED, is_relay_mark};
use seawall_http::Refusal;

/// The refusal of a request without the flavour header.
pub const NO_FLAVOR: Refusal =
    Refusal::new(403, "no_flavor", "The request lacks the required header Metadata-Flavor: Google.");

/// What is said of [`asks_for_binding`]. The variable is google-auth's, for Python since 2.59 and for Java: at `false` it asks
/// with GET as everybody does.
pub(super) const BINDING: &str = "Metadata is read with GET or HEAD. A POST for a token is how google-auth asks for one that is \
    bound to a certificate, which is not issued here: set GOOGLE_API_ENABLE_RUNTIME_BOUND_TOKEN=false in the workload's environment.";

/// What the rules need of a head, gathered in one pass over its headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardHeaders {
    relayed: bool,
    flavored: bool,
}

impl GuardHeaders {
    pub(super) fn of(head: &RequestHead<'_, '_>) -> Self {
        let mut marks = Self { relayed: false, flavored: false };
        for header in head.headers {
            marks.relayed |= is_relay_mark(header.name);
            marks.flavored |= is_flavor(header.name, header.value);
        }
        marks
    }

    /// # Errors
    /// [`RELAYED`].
    pub(super) fn require_direct(self) -> Result<(), Refusal> {
        if self.relayed { Err(RELAYED) } else { Ok(()) }
    }

    /// # Errors
    /// [`NO_FLAVOR`].
    pub(super) fn require_flavor(self) -> Result<(), Refusal> {
        if self.flavored { Ok(()) } else { Err(NO_FLAVOR) }
    }
}

/// `Metadata-Flavor: Google`, or the older `X-Google-Metadata-Request: True` that the real server still takes.
///
/// What protects is that a cross-site form or a naive URL fetcher cannot add a header of this *name*. The value
/// is compared exactly for the first, as the real server does, and in any case for the second, whose clients
/// disagreed on it.
fn is_flavor(name: &str, value: &[u8]) -> bool {
    (name.eq_ignore_ascii_case("Metadata-Flavor") && value == b"Google")
        || (name.eq_ignore_ascii_case("X-Google-Metadata-Request") && value.eq_ignore_ascii_case(b"true"))
}

/// Only GET and HEAD are answered. Methods are case-sensitive (RFC 9110 section 9.1).
///
/// # Errors
/// What is said of another method: `binding` if [`asks_for_binding`], else `method`.
pub(super) fn require_read_method(
    head: &RequestHead<'_, '_>,
    method: Refusal,
    binding: Refusal,
) -> Result<(), Refusal> {
    match head.method {
        "GET" | "HEAD" => Ok(()),
        _ if asks_for_binding(head) => Err(binding),
        _ => Err(method),
    }
}

/// Whether this is the POST by which google-auth asks for a token bound to a certificate that it found
/// (`compute_engine/_metadata.py`: the certificate chain is the body). Looks at the end of the path alone: it only chooses the
/// sentence of a refusal.
fn asks_for_binding(head: &RequestHead<'_, '_>) -> bool {
    let path = head.target.split('?').next().unwrap_or_default();
    head.method == "POST" && (path.ends_with("/token") || path.ends_with("/identity"))
}
