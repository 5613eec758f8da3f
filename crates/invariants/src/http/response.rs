//! Properties that hold for any bytes given to `parse_response`.

use seawall_http::limits::MAX_HEADERS;
use seawall_http::request::header_buffer;
use seawall_http::{Framing, HeadLimits, HttpVersion, Parsed, parse_response};

use super::{HeadParseResult, check_prefixes, owned, values};

/// A head as the oracle compares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The status code, as sent.
    pub status: u16,
    /// The reason phrase, as sent.
    pub reason: Vec<u8>,
    /// The version, as sent.
    pub version: HttpVersion,
    /// The header lines as sent, in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The framing of the body.
    pub framing: Framing,
    /// True if the connection is kept.
    pub keep_alive: bool,
}

/// Checks all of it.
pub fn check(input: &[u8]) {
    for limits in [HeadLimits::default(), HeadLimits { max_head_bytes: 128, max_target_bytes: 16 }] {
        for method in ["GET", "HEAD", "CONNECT"] {
            check_prefixes(input, |prefix| parse_head(prefix, method, &limits));
            match parse_head(input, method, &limits) {
                HeadParseResult::Complete(head, taken) => check_head(&head, &input[..taken], method, &limits),
                HeadParseResult::Incomplete => assert!(input.len() < limits.max_head_bytes),
                HeadParseResult::Refused => {}
            }
        }
    }
}

/// Parses the bytes as a response head.
pub fn parse_head(input: &[u8], method: &str, limits: &HeadLimits) -> HeadParseResult<Head> {
    let mut room = header_buffer();
    match parse_response(input, method, &mut room, limits) {
        Err(_) => HeadParseResult::Refused,
        Ok(Parsed::Partial) => HeadParseResult::Incomplete,
        Ok(Parsed::Complete(head, taken)) => {
            let whole = Head {
                status: head.status,
                reason: head.reason.to_owned(),
                version: head.version,
                headers: owned(head.headers),
                framing: head.framing,
                keep_alive: head.keep_alive,
            };
            HeadParseResult::Complete(whole, taken)
        }
    }
}

fn check_head(head: &Head, bytes: &[u8], method: &str, limits: &HeadLimits) {
    assert!(bytes.len() <= limits.max_head_bytes && (100..=999).contains(&head.status));
    assert!(head.reason.iter().all(|&byte| byte == b'\t' || byte >= b' ' && byte != 0x7f));
    check_tokenizer_agrees(head, bytes);
    check_end(head, method);
}

/// Checks that httparse accepts the head and reads the same.
fn check_tokenizer_agrees(head: &Head, bytes: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let mut tokenizer = httparse::ParserConfig::default();
    tokenizer.allow_obsolete_multiline_headers_in_responses(true);
    assert_eq!(tokenizer.parse_response(&mut response, bytes), Ok(httparse::Status::Complete(bytes.len())));
    assert_eq!(response.code, Some(head.status));
    assert_eq!(owned(response.headers), head.headers);
}

/// A connection is reused only behind a body whose end is certain.
fn check_end(head: &Head, method: &str) {
    let bodiless = method == "HEAD"
        || matches!(head.status, 100..=199 | 204 | 304)
        || (method == "CONNECT" && head.status / 100 == 2);
    let lengths = values(&head.headers, "content-length");
    let codings = values(&head.headers, "transfer-encoding");
    match head.framing {
        Framing::None => assert!(bodiless),
        Framing::UntilClose => assert!(!head.keep_alive && lengths.is_empty() && codings.is_empty()),
        Framing::Chunked => {
            assert!(codings.len() == 1 && head.version == HttpVersion::Http11);
        }
        Framing::Length(_) => assert!(!lengths.is_empty() && codings.is_empty()),
    }
    assert!(!bodiless || head.framing == Framing::None);
}
