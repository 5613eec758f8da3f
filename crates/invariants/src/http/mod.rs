//! The heads and bodies of HTTP/1.1.
//!
//! The oracles are deliberately naive: they split at CRLF and compare, where the parser tokenises.

#![expect(clippy::expect_used, clippy::panic, reason = "a broken invariant panics")]

pub mod body;
pub mod request;
pub mod response;

/// The result of parsing a head from a growing buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum HeadParseResult<T> {
    /// More bytes are needed.
    Incomplete,
    /// A head, and the number of its bytes.
    Complete(T, usize),
    /// The bytes are not a head.
    Refused,
}

/// Bytes that arrive in pieces never change their meaning. A whole head is seen when its last byte is there, not
/// before, and stays the same head whatever follows. A refused start never becomes a whole head; it may read as
/// "more" again, because a line that has not ended is not looked at.
fn check_prefixes<'b, T: PartialEq + std::fmt::Debug>(
    input: &'b [u8],
    see: impl Fn(&'b [u8]) -> HeadParseResult<T>,
) {
    let (mut before, mut refused) = (HeadParseResult::Incomplete, false);
    for end in (0..=input.len()).step_by(1 + input.len() / 512).chain([input.len()]) {
        let now = see(&input[..end]);
        match (&before, &now) {
            (HeadParseResult::Complete(..), _) => {
                assert_eq!(before, now, "a whole head changed at byte {end}");
            }
            (_, HeadParseResult::Complete(_, taken)) => assert!(!refused && (1..=end).contains(taken)),
            (_, HeadParseResult::Refused) => refused = true,
            (_, HeadParseResult::Incomplete) => {}
        }
        before = now;
    }
    if let HeadParseResult::Complete(_, taken) = before {
        assert_eq!(see(&input[..taken]), before, "bytes behind the head changed it");
        assert_eq!(see(&input[..taken - 1]), HeadParseResult::Incomplete, "whole before its last byte");
    }
}

/// Owned copies of headers, as compared by the oracles.
fn owned(headers: &[seawall_http::Header<'_>]) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|header| (header.name.to_owned(), header.value.to_owned())).collect()
}

/// The headers of a head whose lines end with CRLF, by splitting.
fn split_headers(head: &[u8]) -> Vec<(String, Vec<u8>)> {
    let text: String = head.iter().map(|&byte| char::from(byte)).collect();
    let lines = text.strip_suffix("\r\n\r\n").expect("a head ends with an empty line").split("\r\n").skip(1);
    lines
        .map(|line| {
            let (name, value) = line.split_once(':').expect("a header has a colon");
            let value = value.trim_matches([' ', '\t']);
            (name.to_owned(), value.chars().map(|char| char as u32 as u8).collect())
        })
        .collect()
}

/// The values of one header.
fn values<'h>(headers: &'h [(String, Vec<u8>)], name: &str) -> Vec<&'h [u8]> {
    headers
        .iter()
        .filter(|header| header.0.eq_ignore_ascii_case(name))
        .map(|header| header.1.as_slice())
        .collect()
}
