//! A refusal as AWS's clients read one: JSON with `code` and `message`, which SDKs for Go, Python and Java put into their own
//! errors. The metadata service's real body is HTML that nobody reads; Java's first generation reads this one there, too.

use crate::hex::hex;
use crate::json::write_string;
use seawall_http::{Refusal, ResponseContext};

/// Writes a refusal. Nothing of the request is in it.
///
/// No `Retry-After`: five clients wait for as long as it says, and their callers with them. No `WWW-Authenticate` on 401,
/// as on the real service: HTTP libraries would take it for a scheme of their own.
pub(super) fn write(
    out: &mut Vec<u8>,
    frame: &ResponseContext<'_>,
    always: &[u8],
    allow: &[u8],
    refusal: &Refusal,
    request: u64,
) {
    frame.begin(out, refusal.status, always);
    if refusal.status == 405 {
        out.extend_from_slice(allow);
    }
    out.extend_from_slice(b"Content-Type: application/json\r\n");
    frame.end(out, &[body(refusal, request).as_bytes()]);
}

/// Who refuses, why, by which code, under which id the agent logged it, and whether trying again can help.
fn body(refusal: &Refusal, request: u64) -> String {
    let request = hex(request).map(char::from);
    let mut body = format!("{{\"code\":\"{}\",\"message\":", refusal.code);
    write_string(&mut body, &format!("seawall: {}", refusal.message));
    body.push_str(",\"request\":\"");
    body.extend(request);
    body.push_str(if refusal.is_retryable() { "\",\"retry\":true}" } else { "\",\"retry\":false}" });
    body
}
