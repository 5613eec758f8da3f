//! Finds the request headers on which the decision about a request depends.

use seawall_http::RequestHead;

use super::REPEATED_HEADER;
use crate::request_head_rules::{PROXIED_REQUEST, is_proxy_header};
use seawall_http::Refusal;

/// Returns the value of a header that a request may contain only once. The comparison of names ignores letter case, because the
/// SDK for C++ sends lower-case names.
///
/// # Errors
/// [`REPEATED_HEADER`].
pub(super) fn find_single<'b>(head: &RequestHead<'_, 'b>, name: &str) -> Result<Option<&'b [u8]>, Refusal> {
    let mut found = None;
    for header in head.headers {
        if header.name.eq_ignore_ascii_case(name) && found.replace(header.value).is_some() {
            return Err(REPEATED_HEADER);
        }
    }
    Ok(found)
}

/// Refuses a proxied request.
///
/// # Errors
/// [`PROXIED_REQUEST`].
pub fn require_not_proxied(head: &RequestHead<'_, '_>) -> Result<(), Refusal> {
    if head.headers.iter().any(|header| is_proxy_header(header.name)) { Err(PROXIED_REQUEST) } else { Ok(()) }
}
