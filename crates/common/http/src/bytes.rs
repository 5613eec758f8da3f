//! Defines which bytes each part of a head may contain (RFC 9110 section 5, RFC 3986 section 3.2). The parsers, the body
//! decoder and the writer share these tables, so they cannot disagree.

/// True if a token may contain this byte. Methods and header names are tokens (RFC 9110 section 5.6.2).
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// True if a header value may contain this byte (RFC 9110 section 5.5): visible ASCII, space, tab and obs-text.
/// CR, LF, NUL and all other control characters are not allowed.
pub(crate) const fn is_header_value_byte(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// True if a host with an optional port may contain this byte (RFC 3986 sections 3.2.2 and 3.2.3).
/// `@` is not allowed, because HTTP refuses user information (RFC 9110 section 4.2.4).
pub(crate) const fn is_host_byte(byte: u8) -> bool {
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
