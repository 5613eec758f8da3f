//! Headers as a MIME block: how vegeta's CSV carries them, in base64.

use crate::record::{Headers, is_token};

/// Appends `Name: value` lines in name order and the empty line that ends them; nothing when there was no response.
///
/// As Go's `http.Header.Write`: names that are not tokens are left out, line breaks in values become spaces, and
/// values lose the space around them.
pub(super) fn append(out: &mut Vec<u8>, headers: &Headers) {
    if headers.is_absent() {
        return;
    }
    for (name, value) in headers.iter().filter(|(name, _)| is_name(name)) {
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        let breaks_to_spaces = |&byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
        out.extend(value.trim_ascii().iter().map(breaks_to_spaces));
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| is_token(byte))
}
