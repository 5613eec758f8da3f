//! Checks the parsers' invariants on the fuzzers' corpus, on random bytes, on scrambled fragments of HTTP, and on heads that the module
//! `write` wrote.

#![expect(clippy::expect_used, reason = "helpers of tests stop like tests")]

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::select;
use seawall_http::{Framing, HeadLimits, head_writer};
use seawall_invariants::http::{HeadParseResult, body, request, response};

/// Runs a property over every file in the corpus of the fuzzer with this name.
fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(target);
    let mut files = 0;
    for entry in std::fs::read_dir(&corpus).expect("the corpus is committed") {
        let path = entry.expect("a readable folder").path();
        let input = std::fs::read(&path).expect("a readable file");
        let kept = std::panic::catch_unwind(|| check(&input)).is_ok();
        assert!(kept, "{} breaks an invariant; the reason is above", path.display());
        files += 1;
    }
    assert!(files > 10, "{target}: the corpus is missing");
}

#[test]
fn the_corpus_of_requests_keeps_every_invariant() {
    replay("request", request::check);
}

#[test]
fn the_corpus_of_responses_keeps_every_invariant() {
    replay("response", response::check);
}

#[test]
fn the_corpus_of_bodies_keeps_every_invariant() {
    replay("body", body::check);
}

/// Pieces of HTTP in random order: they reach far deeper into the parser than random bytes.
fn scrambled() -> impl Strategy<Value = Vec<u8>> {
    let heads = ["GET / HTTP/1.1\r\nHost: a\r\n", "HTTP/1.1 200 OK\r\n", "5\r\nhello\r\n"];
    let fragments = vec![
        "GET",
        "HEAD",
        "PRI",
        " ",
        "/",
        "*",
        "http://a/",
        " HTTP/1.1",
        " HTTP/1.0",
        " HTTP/2.0",
        "HTTP/1.1",
        " 200",
        " 204",
        " OK",
        "\r\n",
        "\r\n\r\n",
        "\r",
        "\n",
        "\0",
        "\t",
        ":",
        "Host: a",
        "Host: b",
        "X: y",
        "X : y",
        "Content-Length: 5",
        "Content-Length: 6",
        "Content-Length: +5",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Connection: close",
        "Connection: keep-alive",
        "0\r\n",
        "1\r\na",
        "f",
        "5;a=b",
        "ffffffffffffffff",
        "\u{e9}",
        ",",
        "#",
        "\\",
        "@",
    ];
    let tail = prop::collection::vec(select(fragments), 0..12);
    (select([""].into_iter().chain(heads).collect::<Vec<_>>()), tail)
        .prop_map(|(head, tail)| [head.as_bytes(), tail.concat().as_bytes()].concat())
}

proptest! {
    #[test]
    fn random_bytes_keep_every_invariant(input in prop::collection::vec(any::<u8>(), 0..200)) {
        request::check(&input);
        response::check(&input);
        body::check(&input);
    }

    #[test]
    fn scrambled_http_keeps_every_invariant(input in scrambled()) {
        request::check(&input);
        response::check(&input);
        body::check(&input);
    }

    #[test]
    fn a_changed_byte_keeps_every_invariant(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let request: &[u8] = b"PUT /a?b=c HTTP/1.1\r\nHost: a:80\r\nContent-Length: 5\r\nConnection: close\r\n\r\n";
        let response: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n";
        let body: &[u8] = b"5;a=b\r\nhello\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nX: y\r\n\r\n";
        for (bytes, check) in [(request, request::check as fn(&[u8])), (response, response::check), (body, body::check)] {
            let mut changed = bytes.to_vec();
            changed[at.index(bytes.len())] = byte;
            check(&changed);
        }
    }

    #[test]
    fn a_written_request_reads_back_equal(method in token(), target in "/[!-~&&[^#\\\\]]{0,40}", headers in headers(), length in any::<u64>()) {
        let mut out = Vec::new();
        head_writer::write_request_line(&mut out, &method, &target);
        head_writer::write_header(&mut out, "Host", b"a");
        write_headers(&mut out, &headers);
        head_writer::write_header(&mut out, "Content-Length", length.to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
        let HeadParseResult::Complete(head, taken) = request::parse_head(&out, &HeadLimits::default()) else {
            panic!("refused: {}", out.escape_ascii())
        };
        prop_assert_eq!((head.method, head.target, taken), (method, target, out.len()));
        prop_assert_eq!(&head.headers[1..=headers.len()], headers.as_slice());
        prop_assert_eq!(head.framing, Framing::Length(length));
    }

    #[test]
    fn a_written_response_reads_back_equal(status in 200u16..204, headers in headers(), length in any::<u32>()) {
        let mut out = Vec::new();
        head_writer::write_status_line(&mut out, status);
        write_headers(&mut out, &headers);
        head_writer::write_content_length_and_head_end(&mut out, length as u64);
        let HeadParseResult::Complete(head, taken) = response::parse_head(&out, "GET", &HeadLimits::default()) else {
            panic!("refused: {}", out.escape_ascii())
        };
        prop_assert_eq!((head.status, head.reason.as_slice(), taken), (status, head_writer::reason_phrase(status).as_bytes(), out.len()));
        prop_assert_eq!(&head.headers[..headers.len()], headers.as_slice());
        prop_assert_eq!(head.framing, Framing::Length(u64::from(length)));
    }

    #[test]
    fn a_chunked_body_reads_back_equal_however_it_arrives(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut out = Vec::new();
        for chunk in &chunks {
            out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(out.len())).chain([0, out.len()]).collect();
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &out[cut[0]..cut[1]]).collect();
        let seen = body::decode(Framing::Chunked, &pieces);
        prop_assert_eq!(seen.payload, chunks.concat());
        prop_assert_eq!((seen.end, seen.is_complete_at_eof), (Ok(Some(out.len())), true));
    }
}

fn token() -> impl Strategy<Value = String> {
    "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,20}"
}

/// Headers that a client may write, except the headers that frame a message. Values neither begin nor end with white space, because a
/// parser drops it there.
fn headers() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let visible = || prop_oneof![0x21u8..=0x7e, 0x80u8..=0xff];
    let inner = prop::collection::vec(prop_oneof![visible(), select(&b" \t"[..])], 0..20);
    let value = (visible(), inner, visible())
        .prop_map(|(first, inner, last)| [vec![first], inner, vec![last]].concat());
    let value = prop_oneof![Just(Vec::new()), value];
    prop::collection::vec((token().prop_map(|name| format!("X-{name}")), value), 0..20)
}

fn write_headers(out: &mut Vec<u8>, headers: &[(String, Vec<u8>)]) {
    for (name, value) in headers {
        head_writer::write_header(out, name, value);
    }
}
