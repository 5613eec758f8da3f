//! Which bytes may stand where (RFC 9110 section 5, RFC 3986 section 3.2). Called by the parsers, the body
//! decoder and the writer, so that they cannot disagree.

/// Whether a byte may stand in a token: a method or a header name (RFC 9110 section 5.6.2).
pub(crate) const fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// Whether a byte may stand in a header value (RFC 9110 section 5.5): visible ASCII, space, tab and obs-text.
/// CR, LF, NUL and every other control character may not.
pub(crate) const fn is_value(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// Whether a byte may stand in a host with port (RFC 3986 sections 3.2.2 and 3.2.3). `@` may not: HTTP refuses
/// user information (RFC 9110 section 4.2.4).
pub(crate) const fn is_host(byte: u8) -> bool {
    HOST[byte as usize]
}

const TOKEN: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");
const HOST: [bool; 256] = alphanumeric_and(b"-._~%!$&'()*+,;=:[]");

const fn alphanumeric_and(more: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < more.len() {
        table[more[at] as usize] = true;
        at += 1;
    }
    table
}
