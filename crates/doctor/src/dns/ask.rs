//! One DNS query as glibc sends it: A and AAAA at once from one port, then truncated responses (or all) over TCP.
//!
//! The crate `domain` writes and reads the messages. A message that does not answer the question is ignored.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::message_builder::StreamTarget;
use domain::base::{Message, MessageBuilder, Name, Rtype};

/// The monotonic time.
pub(super) type MonotonicNow<'a> = &'a dyn Fn() -> Duration;

/// The result of both questions about a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DnsExchange {
    /// The time until both questions were answered or given up.
    pub(super) took: Duration,
    /// The sent questions, including those over TCP.
    pub(super) sent_count: u32,
    /// The answers over the first transport.
    pub(super) answered_count: u32,
    /// The responses with a failure or refusal.
    pub(super) failure_responses: u32,
    /// The responses with a failure (SERVFAIL).
    pub(super) servfail_responses: u32,
    /// The responses after which the C library asks the next server.
    pub(super) next_server_triggers: u32,
    /// The addresses in the responses.
    pub(super) address_count: u32,
    /// The truncated responses, which the client requests again over TCP.
    pub(super) truncated_count: u32,
    /// The truncated responses that did not come over TCP.
    pub(super) tcp_lost_count: u32,
    /// The system's error for a missing TCP response, if any.
    pub(super) tcp_error: Option<ErrorKind>,
    /// The system's error for an unsent question or a missing response, if any.
    pub(super) error: Option<ErrorKind>,
}

impl DnsExchange {
    /// Returns the unanswered questions. A truncated response counts once, although the client asks twice.
    pub(super) fn lost_count(&self) -> u32 {
        let over_tcp = self.truncated_count - self.tcp_lost_count;
        self.sent_count - self.answered_count - over_tcp
    }

    /// Returns whether the C library asks the next server at once. It does so if the server is unreachable (perhaps only over
    /// TCP) or if no response is usable.
    pub(super) fn tries_next_server(&self) -> bool {
        let cannot = self.answered_count == 0 && self.error.is_some();
        let cannot_over_tcp = self.tcp_error.is_some() && self.lost_count() == self.tcp_lost_count;
        cannot
            || cannot_over_tcp
            || self.lost_count() == 0 && self.next_server_triggers == self.answered_count
    }

    fn take(&mut self, answer: DnsAnswer) {
        self.address_count += answer.addresses;
        self.failure_responses += u32::from(answer.is_failure);
        self.servfail_responses += u32::from(answer.is_broken);
        self.next_server_triggers += u32::from(answer.is_passed_over);
    }
}

const KINDS: [Rtype; 2] = [Rtype::A, Rtype::AAAA];

type DnsQuery = StreamTarget<Vec<u8>>;

/// A server and the transport to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameServerPath {
    pub(super) server: SocketAddr,
    pub(super) over_tcp: bool,
}

/// Asks one server for the addresses of a name, within a time limit.
///
/// # Errors
/// The name is too long for a DNS query.
pub(super) fn ask(
    way: NameServerPath,
    name: &str,
    patience: Duration,
    now: MonotonicNow,
) -> Result<DnsExchange, InvalidDnsName> {
    // The random port protects against forged responses; the ids only tell the two questions apart.
    let queries = (1..).zip(KINDS).map(|(id, kind)| query(id, name, kind).ok_or(InvalidDnsName));
    let queries = queries.collect::<Result<Vec<_>, _>>()?;
    // If the system cannot send, the result is like that of a silent server, but with the error.
    let unsent =
        |error: io::Error| DnsExchange { sent_count: 2, error: Some(error.kind()), ..DnsExchange::default() };
    let exchange = if way.over_tcp { exchange_over_tcp } else { exchange };
    Ok(exchange(way.server, queries, patience, now).unwrap_or_else(unsent))
}

/// The error for a name that is too long for a DNS query: at most 63 bytes between dots and 253 in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InvalidDnsName;

fn exchange(
    server: SocketAddr,
    mut open: Vec<DnsQuery>,
    patience: Duration,
    now: MonotonicNow,
) -> io::Result<DnsExchange> {
    let begun = now();
    let left = || patience.checked_sub(now().saturating_sub(begun)).filter(|left| !left.is_zero());
    let any: SocketAddr =
        if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any)?;
    // A connected socket receives only this server's datagrams.
    socket.connect(server)?;
    let mut heard = DnsExchange::default();
    for query in &open {
        socket.send(query.as_dgram_slice())?;
        heard.sent_count += 1;
    }
    let mut buffer = [0; 4096];
    while let (false, Some(left_now)) = (open.is_empty(), left()) {
        socket.set_read_timeout(Some(left_now))?;
        // A rejection by the server's machine also arrives as an error.
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) => {
                heard.error = told(&error);
                break;
            }
        };
        let Some(at) = open.iter().position(|query| answers(&buffer[..length], query).is_some()) else {
            continue;
        };
        let query = open.swap_remove(at);
        let mut answer = answers(&buffer[..length], &query).unwrap_or_default();
        heard.answered_count += 1;
        if answer.is_cut {
            heard.truncated_count += 1;
            heard.sent_count += 1;
            answer = over_tcp(server, &query, &left).unwrap_or_else(|error| {
                heard.tcp_lost_count += 1;
                heard.tcp_error = told(&error);
                DnsAnswer::default()
            });
        }
        heard.take(answer);
    }
    heard.took = now().saturating_sub(begun);
    Ok(heard)
}

/// Returns the kind of an error; none for a timeout.
fn told(error: &io::Error) -> Option<ErrorKind> {
    let is_late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    (!is_late).then(|| error.kind())
}

/// Sends both questions over one TCP connection, as with the option `use-vc`.
fn exchange_over_tcp(
    server: SocketAddr,
    mut open: Vec<DnsQuery>,
    patience: Duration,
    now: MonotonicNow,
) -> io::Result<DnsExchange> {
    let begun = now();
    let left = || patience.checked_sub(now().saturating_sub(begun)).filter(|left| !left.is_zero());
    let mut heard = DnsExchange { sent_count: open.len() as u32, ..DnsExchange::default() };
    let mut talk = || {
        let mut connection = Connection::open(server, &left)?;
        for query in &open {
            connection.stream.write_all(query.as_stream_slice())?;
        }
        while !open.is_empty() {
            let message = connection.message()?;
            let found = open.iter().enumerate().find_map(|(at, query)| Some((at, answers(&message, query)?)));
            if let Some((at, answer)) = found {
                open.swap_remove(at);
                heard.answered_count += 1;
                heard.take(answer);
            }
        }
        Ok(())
    };
    let talked: io::Result<()> = talk();
    heard.error = talked.err().as_ref().and_then(told);
    heard.took = now().saturating_sub(begun);
    Ok(heard)
}

/// Repeats truncated questions over TCP.
fn over_tcp(
    server: SocketAddr,
    query: &DnsQuery,
    left: &dyn Fn() -> Option<Duration>,
) -> io::Result<DnsAnswer> {
    let mut connection = Connection::open(server, left)?;
    connection.stream.write_all(query.as_stream_slice())?;
    let answer = answers(&connection.message()?, query).filter(|answer| !answer.is_cut);
    answer.ok_or_else(|| ErrorKind::InvalidData.into())
}

/// A TCP connection with one time limit for the whole exchange rather than for each read.
struct Connection<'a> {
    stream: TcpStream,
    left: &'a dyn Fn() -> Option<Duration>,
}

impl<'a> Connection<'a> {
    fn open(server: SocketAddr, left: &'a dyn Fn() -> Option<Duration>) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, left().ok_or(ErrorKind::TimedOut)?)?;
        Ok(Self { stream, left })
    }

    /// Reads a message with its length prefix (RFC 1035 section 4.2.2).
    fn message(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 2];
        self.fill(&mut length)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        self.fill(&mut message)?;
        Ok(message)
    }

    fn fill(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            self.stream.set_read_timeout(Some((self.left)().ok_or(ErrorKind::TimedOut)?))?;
            match self.stream.read(buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => buffer = &mut buffer[count..],
            }
        }
        Ok(())
    }
}

/// Returns a DNS query with recursion desired; none if the name is too long for a DNS query.
fn query(id: u16, name: &str, kind: Rtype) -> Option<DnsQuery> {
    let name: Name<Vec<u8>> = name.parse().ok()?;
    let mut question = MessageBuilder::from_target(StreamTarget::new_vec()).ok()?.question();
    question.header_mut().set_id(id);
    question.header_mut().set_rd(true);
    question.push((name, kind)).ok()?;
    Some(question.finish())
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct DnsAnswer {
    addresses: u32,
    is_cut: bool,
    is_failure: bool,
    is_broken: bool,
    is_passed_over: bool,
}

/// Reads a message; none if it does not answer this question. NXDOMAIN is an answer.
fn answers(message: &[u8], query: &DnsQuery) -> Option<DnsAnswer> {
    let message = Message::from_slice(message).ok()?;
    let asked = Message::from_slice(query.as_dgram_slice()).ok()?;
    if !message.is_answer(asked) {
        return None;
    }
    let kind = asked.sole_question().ok()?.qtype();
    let (header, counts) = (message.header(), message.header_counts());
    let code = header.rcode();
    let is_failure = !matches!(code, Rcode::NOERROR | Rcode::NXDOMAIN);
    // A lame response: the server neither knows the answer nor asks others (`send_dg` in glibc's `resolv/res_send.c`, which also defines
    // the codes).
    let is_lame = code == Rcode::NOERROR
        && !header.aa()
        && !header.ra()
        && counts.ancount() == 0
        && counts.arcount() == 0;
    let is_passed_over = is_lame || matches!(code, Rcode::SERVFAIL | Rcode::NOTIMP | Rcode::REFUSED);
    let records = message.answer().ok()?.flatten();
    let addresses = records.filter(|record| record.rtype() == kind).count() as u32;
    Some(DnsAnswer {
        addresses,
        is_cut: header.tc(),
        is_failure,
        is_broken: code == Rcode::SERVFAIL,
        is_passed_over,
    })
}
