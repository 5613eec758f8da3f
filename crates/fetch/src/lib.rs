//! Sends one HTTP/1.1 request to another program's server on its own connection, with a deadline and a size limit.
//!
//! This is neither the load engine nor an HTTP library on purpose. Any thread may use it now and then, and it must not share a
//! connection, a queue or a thread with the measured load. It supports no TLS, no redirects and no name lookups: the caller gives
//! the address and the clock, and interprets the response. `lab` fetches pages of metrics with it, and `doctor` asks metadata
//! servers and Envoy.

mod response;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use seawall_http::head_writer;

pub use response::FetchResponse;

/// A monotonic clock.
pub type NowFn<'a> = dyn Fn() -> Duration + 'a;

/// A request. Nothing is escaped: for untrusted parts, the caller first checks [`FetchRequest::is_sendable`].
#[derive(Debug, Clone, Copy)]
pub struct FetchRequest<'a> {
    /// The method: `GET`, or `PUT` without a body.
    pub method: &'a str,
    /// The value of the `Host` header.
    pub host: &'a str,
    /// The path and the query.
    pub target: &'a str,
    /// Further headers. The crate itself writes `Host`, `Connection` and `Content-Length`.
    pub headers: &'a [(&'a str, &'a str)],
}

impl<'a> FetchRequest<'a> {
    /// Creates a GET request without further headers.
    #[must_use]
    pub fn get(host: &'a str, target: &'a str) -> Self {
        Self { method: "GET", host, target, headers: &[] }
    }

    /// Returns whether every part is valid in a head (RFC 9110 section 5, RFC 9112 section 3), so that none ends its line.
    #[must_use]
    pub fn is_sendable(&self) -> bool {
        head_writer::is_token(self.method)
            && head_writer::is_request_target(self.target)
            && head_writer::is_header_value(self.host.as_bytes())
            && self.headers.iter().all(|(name, value)| {
                head_writer::is_token(name) && head_writer::is_header_value(value.as_bytes())
            })
    }

    fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        head_writer::write_request_line(&mut head, self.method, self.target);
        head_writer::write_header(&mut head, "Host", self.host.as_bytes());
        for (name, value) in self.headers {
            head_writer::write_header(&mut head, name, value.as_bytes());
        }
        if self.method != "GET" {
            head_writer::write_header(&mut head, "Content-Length", b"0");
        }
        head_writer::write_header(&mut head, "Connection", b"close");
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// The limits of an exchange.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// The time from the start of the connection to the last byte.
    pub timeout: Duration,
    /// The largest body in bytes.
    pub max_body_bytes: usize,
}

/// The reason why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No program listens at the address.
    #[error("connection refused")]
    ConnectionRefused,
    /// The system forbids this process to connect to the address.
    #[error("this machine forbids the connection")]
    ConnectionForbidden,
    /// The connection failed for another reason.
    #[error("{0}")]
    ConnectFailed(String),
    /// The connection was established, but it broke or ended before the end of the response.
    #[error("{0}")]
    ConnectionBroken(String),
    /// No connection was established within the deadline: the machine does not exist, or a firewall drops the packets.
    #[error("no connection within {} s", .0.as_secs_f64())]
    ConnectTimeout(Duration),
    /// The connection was established, but the response was incomplete at the deadline.
    #[error("no complete response within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The response is larger than the limit.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    /// The response is not HTTP/1.1.
    #[error("the response is not HTTP/1.1: {0}")]
    InvalidResponse(String),
    /// A part of the request has a character that would end its line.
    #[error("the request's path, host or header has a character that HTTP forbids")]
    InvalidRequest,
}

/// Sends the request and waits for the whole response, whatever its status.
///
/// # Errors
/// The reason why there is no response.
pub fn exchange(
    address: SocketAddr,
    request: &FetchRequest,
    bounds: &FetchLimits,
    now: &NowFn,
) -> Result<FetchResponse, FetchError> {
    if !request.is_sendable() {
        return Err(FetchError::InvalidRequest);
    }
    let patience = FetchDeadline { until: now() + bounds.timeout, deadline: bounds.timeout, now };
    carried(address, request, bounds, &patience).map_err(|error| patience.reason(error))
}

fn carried(
    address: SocketAddr,
    request: &FetchRequest,
    bounds: &FetchLimits,
    patience: &FetchDeadline,
) -> Result<FetchResponse, Broken> {
    let mut stream = connected(address, patience)?;
    stream.set_write_timeout(Some(patience.left()?))?;
    stream.write_all(&request.head())?;
    let mut coming = response::PartialResponse::new(request.method, bounds.max_body_bytes);
    let mut buffer = [0; 16 << 10];
    loop {
        stream.set_read_timeout(Some(patience.left()?))?;
        let length = stream.read(&mut buffer)?;
        if coming.feed(&buffer[..length])? {
            return Ok(coming.into_response());
        }
    }
}

fn connected(address: SocketAddr, patience: &FetchDeadline) -> Result<TcpStream, Broken> {
    let stream = patience.left().and_then(|left| TcpStream::connect_timeout(&address, left));
    stream.map_err(|error| unconnected(error, patience.deadline))
}

/// Returns the reason why there is no connection.
fn unconnected(error: io::Error, deadline: Duration) -> Broken {
    match error.kind() {
        ErrorKind::TimedOut => FetchError::ConnectTimeout(deadline).into(),
        // A server may accept a connection and reset it before this process knows that it was established.
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => error.into(),
        ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied => error.into(),
        _ => FetchError::ConnectFailed(error.to_string()).into(),
    }
}

/// The deadline of an exchange.
struct FetchDeadline<'a> {
    until: Duration,
    deadline: Duration,
    now: &'a NowFn<'a>,
}

impl FetchDeadline<'_> {
    fn left(&self) -> Result<Duration, io::Error> {
        let left = self.until.saturating_sub((self.now)());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn reason(&self, broken: Broken) -> FetchError {
        let error = match broken {
            Broken::Socket(error) => error,
            Broken::Answer(why) => return why,
        };
        match error.kind() {
            // Some systems report a socket's timeout as `TimedOut`, others as `WouldBlock`.
            ErrorKind::TimedOut | ErrorKind::WouldBlock => FetchError::Timeout(self.deadline),
            ErrorKind::ConnectionRefused => FetchError::ConnectionRefused,
            ErrorKind::PermissionDenied => FetchError::ConnectionForbidden,
            _ => FetchError::ConnectionBroken(error.to_string()),
        }
    }
}

enum Broken {
    Socket(io::Error),
    Answer(FetchError),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<FetchError> for Broken {
    fn from(why: FetchError) -> Self {
        Self::Answer(why)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Starts a server that sends these bytes to one request and then closes. The thread returns the request.
    fn served(answer: Vec<u8>) -> (SocketAddr, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                request.push(byte[0]);
            }
            // The client may close before all bytes are sent.
            let _ = stream.write_all(&answer);
            String::from_utf8(request).unwrap()
        });
        (address, server)
    }

    /// Returns a clock's time that never advances, because the server under test responds at once.
    fn still() -> Duration {
        Duration::ZERO
    }

    const BOUNDS: FetchLimits = FetchLimits { timeout: MINUTE, max_body_bytes: 64 };

    fn asked(answer: &str) -> Result<FetchResponse, FetchError> {
        let (address, server) = served(answer.into());
        let answer = exchange(address, &FetchRequest::get("a", "/"), &BOUNDS, &still);
        server.join().unwrap();
        answer
    }

    #[test]
    fn an_answer_may_end_by_its_length_by_chunks_or_with_its_connection() {
        let head = "HTTP/1.1 404 Not Found\r\nServer: x\r\n";
        for answer in [
            format!("{head}Content-Length: 5\r\n\r\nhello"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
            format!("{head}\r\nhello"),
        ] {
            let answer = asked(&answer).unwrap();
            assert_eq!(
                (answer.status(), answer.header("server"), answer.body()),
                (404, "x", &b"hello"[..]),
                "{answer:?}"
            );
        }
    }

    #[test]
    fn what_is_sent_is_one_head_that_ends_its_connection() {
        let (address, server) = served("HTTP/1.1 204 No Content\r\n\r\n".into());
        let request = FetchRequest {
            method: "PUT",
            host: "a:1",
            target: "/latest/api/token",
            headers: &[("X-Ttl", "60")],
        };
        exchange(address, &request, &BOUNDS, &still).unwrap();
        let expected = "PUT /latest/api/token HTTP/1.1\r\nHost: a:1\r\nX-Ttl: 60\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert_eq!(server.join().unwrap(), expected);
    }

    #[test]
    fn a_part_that_would_end_its_line_is_not_sent() {
        let here: SocketAddr = "127.0.0.1:9".parse().unwrap();
        for (host, target, value) in
            [("a\r\nb", "/", "x"), ("a", "/a b", "x"), ("a", "", "x"), ("a", "/", "x\r\nY: z")]
        {
            let headers = [("X", value)];
            let request = FetchRequest { method: "GET", host, target, headers: &headers };
            assert_eq!(exchange(here, &request, &BOUNDS, &still).unwrap_err(), FetchError::InvalidRequest);
        }
    }

    #[test]
    fn what_is_no_answer_says_why() {
        for (answer, why) in [
            (
                "SSH-2.0\r\n",
                "the response is not HTTP/1.1: malformed HTTP response: it does not begin with HTTP",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na 1\n",
                "the connection ended before the end of the response",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
                "the response is not HTTP/1.1: malformed chunked body",
            ),
            ("", "the connection ended before the end of the response"),
        ] {
            assert_eq!(asked(answer).unwrap_err().to_string(), why, "{answer:?}");
        }
    }

    #[test]
    fn a_connection_that_ends_early_is_told_apart_from_one_that_nobody_takes() {
        assert!(matches!(asked(""), Err(FetchError::ConnectionBroken(_))));
        let nowhere = "255.255.255.255:9".parse().unwrap();
        let failed = exchange(nowhere, &FetchRequest::get("a", "/"), &BOUNDS, &still);
        assert!(
            matches!(failed, Err(FetchError::ConnectFailed(_) | FetchError::ConnectionForbidden)),
            "{failed:?}"
        );
    }

    /// Regression: such a reset sometimes counted as a failed connection.
    #[test]
    fn a_connection_that_is_reset_before_it_is_known_to_be_taken_is_a_broken_one() {
        let patience = FetchDeadline { until: MINUTE, deadline: MINUTE, now: &still };
        let failed = |kind: ErrorKind| patience.reason(unconnected(kind.into(), MINUTE));
        assert!(matches!(failed(ErrorKind::ConnectionReset), FetchError::ConnectionBroken(_)));
        assert!(matches!(failed(ErrorKind::NetworkUnreachable), FetchError::ConnectFailed(_)));
        assert_eq!(failed(ErrorKind::ConnectionRefused), FetchError::ConnectionRefused);
    }

    #[test]
    fn an_answer_without_an_end_is_read_no_further_than_its_bound() {
        let long = "#".repeat(1 << 20);
        assert_eq!(asked(&format!("HTTP/1.1 200 OK\r\n\r\n{long}")).unwrap_err(), FetchError::TooLarge(64));
        assert!(asked(&format!("HTTP/1.1 200 OK\r\nA: {long}")).is_err());
    }

    /// The deadline passes before a connection exists, as when a firewall drops the packets.
    #[test]
    fn a_connection_that_is_not_taken_is_told_apart_from_an_answer_that_is_late() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bounds = FetchLimits { timeout: Duration::ZERO, ..BOUNDS };
        let failed = exchange(listener.local_addr().unwrap(), &FetchRequest::get("a", "/"), &bounds, &still);
        assert_eq!(failed.unwrap_err(), FetchError::ConnectTimeout(Duration::ZERO));
    }

    /// The clock jumps beyond the deadline during the head, as for a server that sends very slowly.
    #[test]
    fn an_answer_that_trickles_is_given_up_at_the_deadline() {
        let (address, server) = served(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".into());
        let looks = Cell::new(0);
        let jumps = || {
            looks.set(looks.get() + 1);
            Duration::from_secs(if looks.get() > 4 { 61 } else { 0 })
        };
        let late = exchange(address, &FetchRequest::get("a", "/"), &BOUNDS, &jumps);
        assert_eq!(late.unwrap_err(), FetchError::Timeout(MINUTE));
        server.join().unwrap();
    }

    #[test]
    fn nobody_listening_is_told_as_such() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let refused = exchange(address, &FetchRequest::get("a", "/"), &BOUNDS, &still);
        assert_eq!(refused.unwrap_err(), FetchError::ConnectionRefused);
    }

    /// A response may contain a secret.
    #[test]
    fn an_answer_that_is_shown_shows_no_body() {
        let answer = asked("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
        let shown = format!("{answer:?}");
        assert!(!shown.contains("hello") && shown.contains("5 bytes"), "{shown}");
    }
}
