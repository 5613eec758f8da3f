//! Writes refusals in a format that AWS's clients parse: JSON with `code` and `message`.
//!
//! The SDKs for Go, Python and Java include both values in their errors. The real metadata service sends HTML, which no client
//! parses. The first generation of the Java SDK parses this JSON even in responses of the metadata service.

use crate::json::write_string;
use seawall_http::{Refusal, ResponseContext};

/// Writes a refusal. The response repeats no part of the request.
///
/// The response has no `Retry-After` header, because five clients would wait for the stated time and delay their programs. Like
/// the real service, the agent sends a 401 without a `WWW-Authenticate` header, because that header would make HTTP libraries
/// start an authentication.
pub(super) fn write_refusal(
    out: &mut Vec<u8>,
    frame: &ResponseContext<'_>,
    always: &[u8],
    allow: &[u8],
    refusal: &Refusal,
) {
    frame.begin_head(out, refusal.status, always);
    if refusal.status == 405 {
        out.extend_from_slice(allow);
    }
    out.extend_from_slice(b"Content-Type: application/json\r\n");
    frame.end_with_body(out, &[body(refusal).as_bytes()]);
}

/// Returns the JSON body. The body contains the program's name (`seawall`), the message, the code, and whether a retry can help.
fn body(refusal: &Refusal) -> String {
    let mut body = format!("{{\"code\":\"{}\",\"message\":", refusal.code);
    write_string(&mut body, &format!("seawall: {}", refusal.message));
    body.push_str(if refusal.is_retryable() {
        ",\"is_retryable\":true}"
    } else {
        ",\"is_retryable\":false}"
    });
    body
}
