//! Checks the request heads of conceal mode and federate mode: the method, the headers of proxies, and the flavour header.

use seawall_http::RequestHead;

use crate::request_head_rules::{PROXIED_REQUEST, is_proxy_header};
use seawall_http::Refusal;

/// The refusal for a request without the flavour header.
pub const MISSING_METADATA_FLAVOR: Refusal = Refusal::new(
    403,
    "missing_metadata_flavor",
    "The request lacks the required header Metadata-Flavor: Google.",
);

/// The message for a POST with which google-auth requests a certificate-bound token ([`asks_for_binding`]).
///
/// google-auth for Python (since 2.59) and for Java read the variable that the message names. With the value `false`, they send
/// GET like every other client.
pub(super) const CERTIFICATE_BINDING_MESSAGE: &str = "Use GET or HEAD to read metadata. google-auth sends POST to request a certificate-bound \
    token, which the agent does not issue: set GOOGLE_API_ENABLE_RUNTIME_BOUND_TOKEN=false in the workload's environment.";

/// The headers that the rules check. One pass over the head collects them.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardHeaders {
    proxied: bool,
    flavored: bool,
}

impl GuardHeaders {
    pub(super) fn from_request(head: &RequestHead<'_, '_>) -> Self {
        let mut marks = Self { proxied: false, flavored: false };
        for header in head.headers {
            marks.proxied |= is_proxy_header(header.name);
            marks.flavored |= is_flavor(header.name, header.value);
        }
        marks
    }

    /// Refuses a proxied request.
    ///
    /// # Errors
    /// [`PROXIED_REQUEST`].
    pub(super) fn require_not_proxied(self) -> Result<(), Refusal> {
        if self.proxied { Err(PROXIED_REQUEST) } else { Ok(()) }
    }

    /// Refuses a request without the flavour header.
    ///
    /// # Errors
    /// [`MISSING_METADATA_FLAVOR`].
    pub(super) fn require_flavor(self) -> Result<(), Refusal> {
        if self.flavored { Ok(()) } else { Err(MISSING_METADATA_FLAVOR) }
    }
}

/// True for `Metadata-Flavor: Google`, or for the older `X-Google-Metadata-Request: True`, which the real server still accepts.
///
/// The header protects the agent, because a cross-site form or a simple URL fetcher cannot add a header with this *name*. Like
/// the real server, the function compares the value `Google` exactly. It ignores the letter case of the value `True`, because
/// clients use different cases.
fn is_flavor(name: &str, value: &[u8]) -> bool {
    (name.eq_ignore_ascii_case("Metadata-Flavor") && value == b"Google")
        || (name.eq_ignore_ascii_case("X-Google-Metadata-Request") && value.eq_ignore_ascii_case(b"true"))
}

/// Refuses methods other than GET and HEAD. Method names are case-sensitive (RFC 9110 section 9.1).
///
/// # Errors
/// `binding` if the request [`asks_for_binding`], otherwise `method`.
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

/// True for a POST with which google-auth requests a certificate-bound token.
///
/// The body of this POST is the client's certificate chain (`compute_engine/_metadata.py`). The function checks only the end of
/// the path, because the result only selects the message of a refusal.
fn asks_for_binding(head: &RequestHead<'_, '_>) -> bool {
    let path = head.target.split('?').next().unwrap_or_default();
    head.method == "POST" && (path.ends_with("/token") || path.ends_with("/identity"))
}
