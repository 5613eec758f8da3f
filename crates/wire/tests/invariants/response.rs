//! What must hold for any bytes given to `parse_response`.

use seawall_wire::limits::MAX_HEADERS;
use seawall_wire::request::slots;
use seawall_wire::{Framing, Limits, Parsed, Version, parse_response};

use super::{Seen, check_prefixes, owned, values};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) reason: Vec<u8>,
    pub(crate) version: Version,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
}

pub(crate) fn check(input: &[u8]) {
    for limits in [Limits::default(), Limits { head: 128, target: 16 }] {
        for method in ["GET", "HEAD", "CONNECT"] {
            check_prefixes(input, |prefix| see(prefix, method, &limits));
            match see(input, method, &limits) {
                Seen::Whole(head, taken) => check_head(&head, &input[..taken], method, &limits),
                Seen::More => assert!(input.len() < limits.head),
                Seen::Refused => {}
            }
        }
    }
}

pub(crate) fn see(input: &[u8], method: &str, limits: &Limits) -> Seen<Head> {
    let mut slots = slots();
    match parse_response(input, method, &mut slots, limits) {
        Err(_) => Seen::Refused,
        Ok(Parsed::Partial) => Seen::More,
        Ok(Parsed::Complete(head, taken)) => {
            let whole = Head {
                status: head.status,
                reason: head.reason.to_owned(),
                version: head.version,
                headers: owned(head.headers),
                framing: head.framing,
                keep_alive: head.keep_alive,
            };
            Seen::Whole(whole, taken)
        }
    }
}

fn check_head(head: &Head, bytes: &[u8], method: &str, limits: &Limits) {
    assert!(bytes.len() <= limits.head && (100..=999).contains(&head.status));
    assert!(head.reason.iter().all(|&byte| byte == b'\t' || byte >= b' ' && byte != 0x7f));
    check_tokenizer_agrees(head, bytes);
    check_end(head, method);
}

/// What httparse refuses is never accepted, and what both accept is the same.
fn check_tokenizer_agrees(head: &Head, bytes: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    assert_eq!(response.parse(bytes), Ok(httparse::Status::Complete(bytes.len())));
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
            assert!(lengths.is_empty() && codings.len() == 1 && head.version == Version::Http11);
        }
        Framing::Length(_) => assert!(!lengths.is_empty() && codings.is_empty()),
    }
    assert!(!bodiless || head.framing == Framing::None);
}
