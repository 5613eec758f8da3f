//! What is no good request gets an answer that its sender can read, and its connection ends in order.

use std::io::Write;

use crate::support::client::{ConnectionEnd, format_get, format_get_with_headers, format_request};
use crate::support::world::{CART, PROJECT, PROJECT_ID, Plan, TOKEN, World};

/// The first bytes of a TLS 1.2 ClientHello (RFC 8446 appendix D): a record header and a handshake header.
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x01\x02\x03";

/// A header line that makes the head longer than 16 KiB.
fn long_header() -> String {
    format!("X-Long: {}\r\n", "x".repeat(20 * 1024))
}

#[test]
fn bytes_that_are_no_request_are_answered_and_the_connection_closes() {
    let world = World::start(&Plan::federate());
    let long = format_get_with_headers(PROJECT_ID, &long_header());
    let many = format_get_with_headers(PROJECT_ID, &"X-Header: 1\r\n".repeat(100));
    let target = format_get(&format!("/{}", "a".repeat(9000)));
    let lengths = format_get_with_headers(PROJECT_ID, "Content-Length: 0\r\nContent-Length: 5\r\n");
    let both = format_get_with_headers(PROJECT_ID, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n");
    let folded = format_get_with_headers(PROJECT_ID, "X-A: 1\r\n folded\r\n");
    let spaced = format_get_with_headers(PROJECT_ID, "X-A : 1\r\n");
    let fragment = format_get("/computeMetadata/v1/#x");
    let wrong: [(&str, &[u8], u16, &str); 19] = [
        ("a malformed request line", b"GET /a b HTTP/1.1\r\n\r\n", 400, "malformed_request"),
        ("no request at all", b"\x00\x01\x02\x03\r\n\r\n", 400, "malformed_request"),
        ("a head of 20 KiB", long.as_bytes(), 431, "head_too_large"),
        ("a hundred headers", many.as_bytes(), 431, "head_too_large"),
        ("a target of 9,000 bytes", target.as_bytes(), 414, "target_too_long"),
        ("two lengths", lengths.as_bytes(), 400, "ambiguous_body_length"),
        ("a length and chunks", both.as_bytes(), 400, "ambiguous_body_length"),
        ("a folded header", folded.as_bytes(), 400, "malformed_request"),
        ("a space before a colon", spaced.as_bytes(), 400, "malformed_request"),
        ("a fragment", fragment.as_bytes(), 400, "malformed_request"),
        ("a bare line feed", b"GET / HTTP/1.1\nHost: a\n\n", 400, "malformed_request"),
        ("no host", b"GET / HTTP/1.1\r\n\r\n", 400, "malformed_request"),
        ("HTTP/0.9", b"GET /\r\n", 400, "missing_http_version"),
        ("a tab in the target", b"GET /\ta HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("no target", b"GET  HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("a byte that is no text", b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "unsupported_http_version"),
        ("TLS", CLIENT_HELLO, 400, "malformed_request"),
        ("an authority", b"CONNECT metadata:80 HTTP/1.1\r\nHost: metadata\r\n\r\n", 400, "malformed_request"),
    ];
    for (what, bytes, status, code) in wrong {
        let mut client = world.client(&CART);
        client.write_bytes(bytes);
        let answer = client.receive_answer();
        assert_eq!(answer.status_and_refusal_code(), (status, code), "{what}: {answer:?}");
        assert_eq!(answer.header("connection"), "close", "{what}");
        assert_eq!(client.wait_for_end(), ConnectionEnd::Closed, "{what}");
    }
}

#[test]
fn requests_that_are_well_formed_and_refused_say_why() {
    let world = World::start(&Plan::federate());
    let flavor = "Metadata-Flavor: Google\r\n";
    for (method, target, headers, status, code) in [
        ("POST", TOKEN, flavor, 405, "method_not_allowed"),
        ("BREW", TOKEN, flavor, 405, "method_not_allowed"),
        ("get", TOKEN, flavor, 405, "method_not_allowed"),
        ("GET", TOKEN, "", 403, "missing_metadata_flavor"),
        ("GET", TOKEN, "Metadata-Flavor: google\r\n", 403, "missing_metadata_flavor"),
        ("GET", TOKEN, "Metadata-Flavor: Google\r\nX-Forwarded-For: 1.2.3.4\r\n", 403, "proxied_request"),
        ("GET", "/computeMetadata/v1/instance/%2e%2e%2fattributes", flavor, 400, "bad_path"),
        ("GET", "/computeMetadata/v1/nothing", flavor, 404, "not_found"),
        ("GET", "/computeMetadata/v1/instance/?alt=json", flavor, 400, "recursive_required"),
    ] {
        let mut client = world.client(&CART);
        client.write_bytes(format_request(method, target, "HTTP/1.1", headers));
        let answer = client.receive_answer();
        assert_eq!(
            answer.status_and_refusal_code(),
            (status, code),
            "{method} {target} {headers}: {answer:?}"
        );
        assert_eq!(answer.header("metadata-flavor"), "Google");
        assert_eq!(answer.header("allow"), if status == 405 { "GET, HEAD" } else { "" });
        if code == "method_not_allowed" {
            assert_eq!(client.wait_for_end(), ConnectionEnd::Closed, "{method}");
            continue;
        }
        // It was understood, so the connection lives on.
        assert_eq!(client.ask(&format_get(PROJECT_ID)).body, PROJECT);
    }
}

/// google-auth's error holds what is said of its POST; whoever insisted on a bound token was given any other.
#[test]
fn who_wants_a_token_bound_to_a_certificate_is_told_what_to_do() {
    let world = World::start(&Plan::federate());
    let mut client = world.client(&CART);
    let chain = r#"{"certificate_chain": "-----BEGIN CERTIFICATE-----"}"#;
    let headers = format!(
        "Metadata-Flavor: Google\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        chain.len()
    );
    client.write_bytes(format_request("POST", TOKEN, "HTTP/1.1", &headers) + chain);
    let answer = client.receive_answer();
    assert_eq!(answer.status_and_refusal_code(), (405, "method_not_allowed"), "{answer:?}");
    assert!(answer.body.contains("GOOGLE_API_ENABLE_RUNTIME_BOUND_TOKEN=false"), "{answer:?}");
    assert_eq!(client.wait_for_end(), ConnectionEnd::Closed);
    let insists = format!("{TOKEN}?transport=mtls&binding-enforcement=on");
    assert_eq!(world.ask(&CART, &insists).status_and_refusal_code(), (400, "bound_token_unsupported"));
    assert_eq!(world.ask(&CART, &format!("{TOKEN}?transport=mtls")).status, 200);
}

#[test]
fn a_body_is_refused_and_never_taken_for_the_next_request() {
    let world = World::start(&Plan::federate());
    let smuggled = format_get(TOKEN);
    for headers in
        [format!("Content-Length: {}\r\n", smuggled.len()), "Transfer-Encoding: chunked\r\n".into()]
    {
        let mut client = world.client(&CART);
        client.write_bytes(format_get_with_headers(PROJECT_ID, &headers) + &smuggled);
        let answer = client.receive_answer();
        assert_eq!(answer.status_and_refusal_code(), (400, "unexpected_body"), "{answer:?}");
        assert_eq!(answer.header("connection"), "close");
        assert_eq!(client.wait_for_end(), ConnectionEnd::Closed);
    }
}

/// The connection used to be closed after each such request.
#[test]
fn a_length_of_zero_is_no_body_and_keeps_the_connection() {
    let world = World::start(&Plan::federate());
    let mut client = world.client(&CART);
    for _ in 0..3 {
        let answer = client.ask(&format_get_with_headers(PROJECT_ID, "Content-Length: 0\r\n"));
        assert_eq!((answer.status, answer.header("connection")), (200, ""), "{answer:?}");
    }
}

/// The head did not fit the buffer with the empty line before it, and the connection closed without a word.
#[test]
fn an_empty_line_before_a_head_that_is_too_large_changes_nothing() {
    let world = World::start(&Plan::federate());
    let mut client = world.client(&CART);
    client.write_bytes(format!("\r\n{}", format_get_with_headers(PROJECT_ID, &long_header())));
    assert_eq!(client.receive_answer().status_and_refusal_code(), (431, "head_too_large"));
    assert_eq!(client.wait_for_end(), ConnectionEnd::Closed);
}

#[test]
fn who_goes_on_sending_after_a_refusal_is_cut_off() {
    let world = World::start(&Plan::federate());
    let mut client = world.client(&CART);
    client.write_bytes("nonsense\r\n");
    assert_eq!(client.receive_answer().status_and_refusal_code(), (400, "malformed_request"));
    let mut sent = 0;
    while client.stream.write_all(&[b'x'; 64 * 1024]).is_ok() {
        sent += 64 * 1024;
        assert!(sent < 1 << 30, "it reads for ever");
    }
    assert_eq!(world.ask(&CART, PROJECT_ID).status, 200);
}

#[test]
fn http_1_0_is_closed_unless_it_asks_to_be_kept() {
    let world = World::start(&Plan::federate());
    let flavor = "Metadata-Flavor: Google\r\n";
    let mut once = world.client(&CART);
    let answer = once.ask(&format_request("GET", PROJECT_ID, "HTTP/1.0", flavor));
    assert_eq!((answer.body.as_str(), answer.header("connection")), (PROJECT, "close"));
    assert_eq!(once.wait_for_end(), ConnectionEnd::Closed);

    let mut kept = world.client(&CART);
    let keep = format!("{flavor}Connection: keep-alive\r\n");
    for _ in 0..3 {
        let answer = kept.ask(&format_request("GET", PROJECT_ID, "HTTP/1.0", &keep));
        assert_eq!((answer.body.as_str(), answer.header("connection")), (PROJECT, "keep-alive"));
    }
    let mut bare = world.client(&CART);
    bare.write_bytes(format!("GET {PROJECT_ID} HTTP/1.0\r\n{flavor}\r\n"));
    assert_eq!(bare.receive_answer().body, PROJECT, "1.0 needs no Host");
}

#[test]
fn connection_close_is_obeyed() {
    let world = World::start(&Plan::federate());
    let mut client = world.client(&CART);
    let answer = client.ask(&format_get_with_headers(PROJECT_ID, "Connection: close\r\n"));
    assert_eq!((answer.status, answer.header("connection")), (200, "close"));
    assert_eq!(client.wait_for_end(), ConnectionEnd::Closed);
}

#[test]
fn head_has_the_length_of_the_body_and_not_the_body() {
    let world = World::start(&Plan::federate());
    let mut client = world.client(&CART);
    for path in [PROJECT_ID, TOKEN, TOKEN, "/computeMetadata/v1/nothing"] {
        client.write_bytes(format_request("HEAD", path, "HTTP/1.1", "Metadata-Flavor: Google\r\n"));
        let head = client.receive_answer_to_head();
        let full = client.ask(&format_get(path));
        let length: usize = head.header("content-length").parse().unwrap();
        // `expires_in` may lose a digit's worth between the two; its length does not change.
        assert_eq!((head.status, length), (full.status, full.body.len()), "{path}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let world = World::start(&Plan::federate());
    let mut client = world.client(&CART);
    // The cold token in the middle takes longer than what stands behind it.
    let paths = [
        PROJECT_ID,
        "/computeMetadata/v1/instance/zone",
        TOKEN,
        PROJECT_ID,
        "/computeMetadata/v1/nothing",
        TOKEN,
        "/",
    ];
    client.write_bytes(paths.map(format_get).concat());
    let answers = paths.map(|_| client.receive_answer());
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 200, 200, 200, 404, 200, 200]);
    assert_eq!(answers[0].body, PROJECT);
    assert_eq!(answers[1].body, "projects/123456789012/zones/europe-west1-b");
    assert_eq!(answers[2].token(), answers[5].token());
    assert_eq!(answers[3].body, PROJECT);
}

/// It used to claim a length of zero in conceal mode.
#[test]
fn head_is_answered_alike_in_conceal_mode() {
    let world = World::start(&Plan::conceal());
    let mut client = world.client(&CART);
    client.write_bytes(format_request("HEAD", PROJECT_ID, "HTTP/1.1", "Metadata-Flavor: Google\r\n"));
    let head = client.receive_answer_to_head();
    assert_eq!((head.status, head.header("content-length")), (200, "16"));
    assert_eq!(client.ask(&format_get(PROJECT_ID)).body, PROJECT);
}

#[test]
fn a_head_may_come_byte_by_byte() {
    let world = World::start(&Plan::federate());
    let mut client = world.client(&CART);
    for _ in 0..2 {
        for byte in format_get(PROJECT_ID).as_bytes() {
            client.write_bytes([*byte]);
        }
        assert_eq!(client.receive_answer().body, PROJECT);
    }
}
