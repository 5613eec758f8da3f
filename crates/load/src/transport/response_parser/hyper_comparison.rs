//! Compares the verdicts of hyper and of this parser on the same bytes.
//!
//! The table lists the cases in which the two may differ, with the reason.

use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{CaptureOptions, ParseProgress, ReceivedResponse, ResponseParser};

/// The status and the body, if the response is complete.
type Verdict = Option<(u16, Vec<u8>)>;

/// Parses the bytes of a connection that is then closed.
fn ours(method: &str, bytes: &[u8], piece: usize) -> Verdict {
    let (mut exchange, mut answer) = (ResponseParser::new(), ReceivedResponse::default());
    let keep = CaptureOptions { record_body_limit: Some(usize::MAX), ..CaptureOptions::default() };
    for piece in bytes.chunks(piece) {
        if let ParseProgress::Done { .. } = exchange.feed(piece, method, keep, &mut answer).ok()? {
            return Some((answer.status, answer.capture.body));
        }
    }
    exchange.end_of_input().ok()?;
    Some((answer.status, answer.capture.body))
}

async fn hypers(method: &str, bytes: &[u8]) -> Verdict {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let (mut sender, connection) = http1::Builder::new()
        .allow_obsolete_multiline_headers_in_responses(true)
        .handshake(TokioIo::new(near))
        .await
        .ok()?;
    let connection = tokio::spawn(connection);
    let bytes = bytes.to_vec();
    let server = tokio::spawn(async move {
        let mut request = [0; 1024];
        let read = far.read(&mut request).await;
        if read.is_ok() {
            // The client may have closed before it read everything.
            let _ = far.write_all(&bytes).await;
        }
    });
    let request =
        http::Request::builder().method(method).uri("/").header("host", "a").body(String::new()).ok()?;
    let verdict = async {
        let response = sender.send_request(request).await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.into_body().collect().await.ok()?.to_bytes().to_vec()))
    };
    let verdict = verdict.await;
    drop(sender);
    let _ = (connection.await, server.await);
    verdict
}

/// The responses that two parsers could read differently. After the bytes of a case, the connection ends.
const CASES: [(&str, &str); 42] = [
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0 \r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nA: b\r\n\tc\r\nContent-Length: 1\r\n\r\na"),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd"),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\n\r\nabc"),
    ("GET", "HTTP/1.1 200 OK\r\n\r\n"),
    ("GET", "HTTP/1.0 200 OK\r\n\r\nabc"),
    ("GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nabc"),
    ("GET", "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na"),
    ("GET", "HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\na"),
    ("GET", "HTTP/1.1 200 OK\nContent-Length: 1\n\na"),
    ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
    ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
    ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
    ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ("GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"),
    ("GET", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"),
    ("GET", "HTTP/1.1 100 Continue\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nA : b\r\n\r\n"),
    ("GET", "HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n"),
    ("GET", "HTTP/2.0 200 OK\r\n\r\n"),
    ("GET", "ICY 200 OK\r\n\r\n"),
    ("GET", "HTTP/1.1 20 OK\r\n\r\n"),
    ("GET", "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"),
    ("GET", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"),
    ("GET", ""),
];

/// A length that hyper guesses and this parser does not, because the next response would be read from a place that a server might
/// not mean.
const STRICTER: [&str; 1] = ["HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc"];

fn run<T>(verdict: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(verdict)
}

#[test]
fn hyper_and_this_engine_read_the_same_answers() {
    let mut whole = 0;
    for (method, text) in CASES {
        let reference = run(hypers(method, text.as_bytes()));
        whole += usize::from(reference.is_some());
        for piece in [1, 3, usize::MAX] {
            assert_eq!(
                ours(method, text.as_bytes(), piece),
                reference,
                "{method} {text:?} in pieces of {piece} bytes"
            );
        }
    }
    assert!((15..CASES.len() - 10).contains(&whole), "{whole} of the responses are complete");
}

#[test]
fn where_this_engine_is_stricter_than_hyper_it_refuses() {
    for text in STRICTER {
        assert!(run(hypers("GET", text.as_bytes())).is_some(), "hyper refuses it, too: {text:?}");
        assert_eq!(ours("GET", text.as_bytes(), usize::MAX), None, "{text:?}");
    }
}
