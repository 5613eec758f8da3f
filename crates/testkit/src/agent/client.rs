//! A client that sees bytes: it says what it sends, from which address, and how the connection ended.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use crate::waiting::PATIENCE;

const FLAVOR: &str = "Metadata-Flavor: Google\r\n";

/// One connection.
#[derive(Debug)]
pub struct Client {
    /// For what is not asked and answered.
    pub stream: TcpStream,
    received: Vec<u8>,
}

/// One response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    head: String,
    /// The body, which must be text.
    pub body: String,
}

/// The way in which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// An orderly end, after everything was read.
    Closed,
    /// A reset, which can destroy a response that is still in transit.
    Reset,
}

/// Formats a GET request as a metadata client sends it.
pub fn format_get(target: &str) -> String {
    format_request("GET", target, "HTTP/1.1", FLAVOR)
}

/// Formats a GET request of a metadata client with additional header lines, each with its line end.
pub fn format_get_with_headers(target: &str, headers: &str) -> String {
    format_request("GET", target, "HTTP/1.1", &format!("{FLAVOR}{headers}"))
}

/// Formats any request, with the IP address as its host: the admin port requires that, and the listeners for pods ignore it.
pub fn format_request(method: &str, target: &str, version: &str, headers: &str) -> String {
    format!("{method} {target} {version}\r\nHost: 169.254.169.254\r\n{headers}\r\n")
}

/// One request on a connection of its own.
pub fn ask(from: Ipv4Addr, to: SocketAddr, target: &str) -> Answer {
    let mut client = Client::connect(from, to);
    client.ask(&format_get(target))
}

impl Client {
    /// Connects from this address.
    pub fn connect(from: Ipv4Addr, to: SocketAddr) -> Self {
        Self::try_connect(from, to).unwrap()
    }

    /// Connects from this address, as [`Client::connect`] does, and returns an error instead of panicking.
    ///
    /// # Errors
    /// No socket, or no connection.
    pub fn try_connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect(&to.into())?;
        let stream = TcpStream::from(socket);
        // For broken programs, so that a test fails and does not hang.
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Begins a connection from this address and does not wait for the server, which may leave it in its backlog.
    ///
    /// # Errors
    /// No socket, or the kernel refuses the connection at once.
    pub fn begin_connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<Socket> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            // EINPROGRESS (connect(2)) is the only error of a connection that has begun.
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                Err(error)
            }
            _ => Ok(socket),
        }
    }

    /// Sends bytes.
    pub fn write_bytes(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends and reads one answer.
    pub fn ask(&mut self, request: &str) -> Answer {
        self.write_bytes(request);
        self.receive_answer()
    }

    /// Sends a request and reads one response; `None` if the connection has ended, which can happen to a kept one at any time.
    pub fn ask_if_open(&mut self, request: &str) -> Option<Answer> {
        let ended = |error: &std::io::Error| {
            matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
        };
        match self.stream.write_all(request.as_bytes()) {
            Err(error) if ended(&error) => return None,
            sent => sent.unwrap(),
        }
        loop {
            match self.stream.peek(&mut [0]) {
                Ok(0) => return None,
                Err(error) if ended(&error) => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                came => {
                    came.unwrap();
                    return Some(self.receive_answer());
                }
            }
        }
    }

    /// Reads one answer with a body as long as it says.
    pub fn receive_answer(&mut self) -> Answer {
        self.read_answer(true)
    }

    /// Reads the answer to a HEAD request.
    pub fn receive_answer_to_head(&mut self) -> Answer {
        self.read_answer(false)
    }

    fn read_answer(&mut self, with_body: bool) -> Answer {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            self.more();
        };
        let head = String::from_utf8(self.received[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: String::new() };
        let length = if with_body { answer.header("content-length").parse().unwrap() } else { 0 };
        while self.received.len() < end + 4 + length {
            self.more();
        }
        let rest = self.received.split_off(end + 4 + length);
        let whole = std::mem::replace(&mut self.received, rest);
        answer.body = String::from_utf8(whole[end + 4..].to_vec()).unwrap();
        answer
    }

    fn more(&mut self) {
        let mut bytes = [0; 16 * 1024];
        // A signal ends a read that has a time limit, whatever its handler wants.
        let n = loop {
            match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.unwrap(),
            }
        };
        let so_far = String::from_utf8_lossy(&self.received);
        assert!(n > 0, "closed in the middle of an answer, after {so_far:?}");
        self.received.extend_from_slice(&bytes[..n]);
    }

    /// Waits for the end of the connection; nothing more may come before it.
    pub fn wait_for_end(&mut self) -> ConnectionEnd {
        assert!(self.received.is_empty(), "unread: {:?}", String::from_utf8_lossy(&self.received));
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => ConnectionEnd::Closed,
            Ok(_) => panic!("more came: {byte:?}"),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => ConnectionEnd::Reset,
            Err(error) => panic!("no end: {error}"),
        }
    }

    /// True if the other side has neither ended the connection nor sent anything that waits to be read. Does not wait.
    pub fn is_open_without_unread_bytes(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

impl Answer {
    /// A header's value, or nothing.
    pub fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The access token in it.
    pub fn token(&self) -> String {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()["access_token"].as_str().unwrap().to_owned()
    }

    /// The code of a refusal.
    pub fn refusal_code(&self) -> &str {
        let code = self.body.split_once("(code: ").and_then(|(_, rest)| rest.split_once(';'));
        code.map_or("", |(code, _)| code)
    }

    /// Status and code, to compare at once.
    pub fn status_and_refusal_code(&self) -> (u16, &str) {
        (self.status, self.refusal_code())
    }
}
