//! Properties that hold for any bytes given to `parse_request`.

use seawall_http::limits::MAX_HEADERS;
use seawall_http::request::header_buffer;
use seawall_http::{Framing, HeadLimits, HttpVersion, Parsed, head_writer, parse_request};

use super::{HeadParseResult, check_prefixes, owned, split_headers, values};

/// A head as the oracle compares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The method, as sent.
    pub method: String,
    /// The target, as sent.
    pub target: String,
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
        check_prefixes(input, |prefix| parse_head(prefix, &limits));
        match parse_head(input, &limits) {
            HeadParseResult::Complete(head, taken) => check_head(&head, &input[..taken], &limits),
            HeadParseResult::Incomplete => assert!(input.len() < limits.max_head_bytes + 2),
            HeadParseResult::Refused => {}
        }
    }
}

/// Parses the bytes as a request head.
pub fn parse_head(input: &[u8], limits: &HeadLimits) -> HeadParseResult<Head> {
    let mut room = header_buffer();
    match parse_request(input, &mut room, limits) {
        Err(error) => {
            assert!([400, 414, 431, 505].contains(&error.status()));
            HeadParseResult::Refused
        }
        Ok(Parsed::Partial) => HeadParseResult::Incomplete,
        Ok(Parsed::Complete(head, taken)) => {
            let whole = Head {
                method: head.method.to_owned(),
                target: head.target.to_owned(),
                version: head.version,
                headers: owned(head.headers),
                framing: head.framing,
                keep_alive: head.keep_alive,
            };
            HeadParseResult::Complete(whole, taken)
        }
    }
}

fn check_head(head: &Head, taken: &[u8], limits: &HeadLimits) {
    let bytes = taken.strip_prefix(b"\r\n").unwrap_or(taken);
    assert!(bytes.len() <= limits.max_head_bytes && head.target.len() <= limits.max_target_bytes);
    check_bytes(bytes);
    check_tokenizer_agrees(head, bytes);
    assert_eq!(head.headers, split_headers(bytes));
    assert_eq!(head.framing, framing_by_the_book(head));
    check_host(head);
    check_round_trip(head);
}

/// No line end but CRLF, no control character but tab, exactly one empty line, at the end.
fn check_bytes(head: &[u8]) {
    let text: String = head.iter().map(|&byte| char::from(byte)).collect();
    let without_line_ends = text.replace("\r\n", "");
    assert!(!without_line_ends.contains(|char: char| char.is_ascii_control() && char != '\t'));
    assert_eq!(text.find("\r\n\r\n"), Some(text.len() - 4));
}

/// Checks that httparse accepts the head and reads the same.
fn check_tokenizer_agrees(head: &Head, bytes: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    assert_eq!(request.parse(bytes), Ok(httparse::Status::Complete(bytes.len())));
    assert_eq!(request.method, Some(head.method.as_str()));
    assert_eq!(request.path, Some(head.target.as_str()));
    assert_eq!(owned(request.headers), head.headers);
}

fn framing_by_the_book(head: &Head) -> Framing {
    let lengths = values(&head.headers, "content-length");
    let codings = values(&head.headers, "transfer-encoding");
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Framing::None,
        ([], [coding]) => {
            assert!(coding.eq_ignore_ascii_case(b"chunked") && head.version == HttpVersion::Http11);
            Framing::Chunked
        }
        ([length, more @ ..], []) => {
            let number = |digits: &[u8]| {
                assert!(digits.iter().all(u8::is_ascii_digit));
                String::from_utf8_lossy(digits).parse::<u64>().expect("a length that fits")
            };
            assert!(more.iter().all(|other| number(other) == number(length)));
            Framing::Length(number(length))
        }
        _ => panic!("accepted both a length and a transfer coding, or two codings"),
    }
}

fn check_host(head: &Head) {
    let hosts = values(&head.headers, "host");
    assert!(hosts.len() == 1 || (hosts.is_empty() && head.version == HttpVersion::Http10));
    assert!(hosts.iter().all(|host| !host.iter().any(|byte| b"/\\@#? \t".contains(byte))));
}

/// A head that was read can be written and reads the same again.
fn check_round_trip(head: &Head) {
    let mut out = Vec::new();
    head_writer::write_request_line(&mut out, &head.method, &head.target);
    for (name, value) in &head.headers {
        head_writer::write_header(&mut out, name, value);
    }
    out.extend_from_slice(b"\r\n");
    if head.version == HttpVersion::Http11 {
        let wide = HeadLimits { max_head_bytes: out.len(), ..HeadLimits::default() };
        assert_eq!(parse_head(&out, &wide), HeadParseResult::Complete(head.clone(), out.len()));
    }
}
