//! Writes heads into a reused buffer. It does not use Rust's formatting functions, and allocates nothing once the buffer is
//! large enough. The agent writes responses with this module. The load engine and the `fetch` crate build requests with it.
//!
//! These functions do not escape text, because HTTP has no escape for line ends. A CR or LF in a value would let another party
//! inject headers. The code that parses text from outside (a flag, a peer or a cloud) must check this text with [`is_token`] or
//! [`is_header_value`]. A debug build checks every value again.

use crate::bytes;

/// True if `text` is a token, the form of a method or a header name (RFC 9110 section 5.6.2).
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(bytes::is_token_byte)
}

/// True if `value` can be a header value (RFC 9110 section 5.5): no CR, LF, NUL or other control character except tab.
/// White space at either end is allowed, but receivers drop it.
pub fn is_header_value(value: &[u8]) -> bool {
    value.iter().copied().all(bytes::is_header_value_byte)
}

/// True if `target` can be a request target on the wire: visible ASCII, at least one character.
pub fn is_request_target(target: &str) -> bool {
    !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Appends a request line such as `GET / HTTP/1.1`, including the line end.
/// The arguments must pass [`is_token`] and [`is_request_target`].
pub fn write_request_line(out: &mut Vec<u8>, method: &str, target: &str) {
    debug_assert!(is_token(method), "not a method: {method:?}");
    debug_assert!(is_request_target(target), "not a target: {target:?}");
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Appends a decimal number.
pub fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a status line such as `HTTP/1.1 200 OK`, including the line end.
pub fn write_status_line(out: &mut Vec<u8>, status: u16) {
    if status == 200 {
        // Nearly every answer has this status.
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    write_decimal(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends one header line. The arguments must pass [`is_token`] and [`is_header_value`].
pub fn write_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    debug_assert!(is_token(name), "not a header name: {name:?}");
    debug_assert!(is_header_value(value), "not a header value: {}", value.escape_ascii());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends `Content-Length` and the empty line that ends a head.
pub fn write_content_length_and_head_end(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    write_decimal(out, length);
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends one chunk of a chunked body (RFC 9112 section 7.1). Writes nothing for an empty part, because an empty chunk would
/// end the body.
pub fn write_chunk(out: &mut Vec<u8>, part: &[u8]) {
    if !part.is_empty() {
        out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the last chunk, which ends a chunked body.
pub fn write_last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

/// Returns the reason phrase of a status (RFC 9110 section 15, RFC 6585), or an empty text if the status is not listed.
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 9, 10, 200, u64::MAX] {
            assert_eq!(written(|out| write_decimal(out, number)), number.to_string());
        }
    }

    #[test]
    fn heads_are_written_line_by_line() {
        assert_eq!(written(|out| write_status_line(out, 404)), "HTTP/1.1 404 Not Found\r\n");
        assert_eq!(written(|out| write_status_line(out, 299)), "HTTP/1.1 299 \r\n");
        assert_eq!(written(|out| write_request_line(out, "PUT", "/a?b")), "PUT /a?b HTTP/1.1\r\n");
        assert_eq!(written(|out| write_header(out, "A", b"b c")), "A: b c\r\n");
        assert_eq!(written(|out| write_content_length_and_head_end(out, 12)), "Content-Length: 12\r\n\r\n");
    }

    #[test]
    fn every_refusal_has_a_reason_phrase() {
        use crate::RequestError::{Framing, Malformed, NoVersion, TargetTooLong, TooLarge, Version};
        for error in
            [Malformed(crate::RequestFlaw::NoHost), TooLarge, TargetTooLong, NoVersion, Version, Framing]
        {
            assert_ne!(reason_phrase(error.status()), "", "{error:?}");
        }
    }

    #[test]
    fn parts_that_would_end_their_line_are_no_parts() {
        assert!(
            is_token("X-Aws-Ec2-Metadata-Token") && !is_token("") && !is_token("a:") && !is_token("a\r\nb")
        );
        assert!(
            is_header_value(b"")
                && is_header_value(b"a\tb\xe9")
                && !is_header_value(b"a\r\nb: c")
                && !is_header_value(b"\0")
        );
        assert!(
            is_request_target("/a?b")
                && !is_request_target("")
                && !is_request_target("/a b")
                && !is_request_target("/a\r\n")
        );
    }

    #[test]
    #[should_panic(expected = "not a header value")]
    #[cfg(debug_assertions)]
    fn a_debug_build_stops_an_injected_header() {
        written(|out| write_header(out, "Location", b"/\r\nSet-Cookie: a"));
    }
}
