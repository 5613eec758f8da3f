//! One lookup on the wire, as glibc makes it: A and AAAA at once from one port, over TCP what was cut, or all.
//!
//! Messages are written and read by `domain`; a message that is not the answer to what was asked is passed over.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::message_builder::StreamTarget;
use domain::base::{Message, MessageBuilder, Name, Rtype};

/// The time, on a clock that does not jump.
pub(super) type MonotonicNow<'a> = &'a dyn Fn() -> Duration;

/// What became of both questions about a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DnsExchange {
    /// Until both were answered, or given up.
    pub(super) took: Duration,
    /// Questions that were sent, those over TCP included.
    pub(super) sent: u32,
    /// Answers that came as they were first asked for.
    pub(super) answered: u32,
    /// Those that said that the server failed or refused.
    pub(super) failed: u32,
    /// Of these, that it failed (SERVFAIL).
    pub(super) server_failures: u32,
    /// Those after which the C library asks the next server.
    pub(super) skipped: u32,
    /// Addresses in them.
    pub(super) addresses: u32,
    /// Answers that were cut, and had to be asked for over TCP.
    pub(super) truncated: u32,
    /// Of these, that did not come over TCP.
    pub(super) tcp_lost: u32,
    /// Why one did not, where the system says it.
    pub(super) tcp_error: Option<ErrorKind>,
    /// Why a question could not be sent, or its answer not come, where the system says it.
    pub(super) error: Option<ErrorKind>,
}

impl DnsExchange {
    /// Questions that had no answer. What was cut was asked for twice, and `answered` counts its answer over UDP alone.
    pub(super) fn lost(&self) -> u32 {
        let over_tcp = self.truncated - self.tcp_lost;
        self.sent - self.answered - over_tcp
    }

    /// Whether the C library asks the next server at once: after a server that cannot be asked, also over TCP for what it cut, and one whose answers are all
    /// none.
    pub(super) fn tries_next_server(&self) -> bool {
        let cannot = self.answered == 0 && self.error.is_some();
        let cannot_over_tcp = self.tcp_error.is_some() && self.lost() == self.tcp_lost;
        cannot || cannot_over_tcp || self.lost() == 0 && self.skipped == self.answered
    }

    fn take(&mut self, answer: DnsAnswer) {
        self.addresses += answer.addresses;
        self.failed += u32::from(answer.is_failure);
        self.server_failures += u32::from(answer.is_broken);
        self.skipped += u32::from(answer.is_passed_over);
    }
}

const KINDS: [Rtype; 2] = [Rtype::A, Rtype::AAAA];

type DnsQuery = StreamTarget<Vec<u8>>;

/// A server, and how it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameServerPath {
    pub(super) server: SocketAddr,
    pub(super) over_tcp: bool,
}

/// Asks one server for the addresses of a name; waits so long at most.
///
/// # Errors
/// The name fits no question.
pub(super) fn ask(
    way: NameServerPath,
    name: &str,
    patience: Duration,
    now: MonotonicNow,
) -> Result<DnsExchange, InvalidDnsName> {
    // The port is the secret of a question; numbers only tell the two apart.
    let queries = (1..).zip(KINDS).map(|(id, kind)| query(id, name, kind).ok_or(InvalidDnsName));
    let queries = queries.collect::<Result<Vec<_>, _>>()?;
    // A system that sends nothing is as a server that says nothing, but that it is known why.
    let unsent =
        |error: io::Error| DnsExchange { sent: 2, error: Some(error.kind()), ..DnsExchange::default() };
    let exchange = if way.over_tcp { exchange_over_tcp } else { exchange };
    Ok(exchange(way.server, queries, patience, now).unwrap_or_else(unsent))
}

/// A name that fits no question: 63 bytes between dots, 253 together.
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
    // Connected: only this server's datagrams are received.
    socket.connect(server)?;
    let mut heard = DnsExchange::default();
    for query in &open {
        socket.send(query.as_dgram_slice())?;
        heard.sent += 1;
    }
    let mut buffer = [0; 4096];
    while let (false, Some(left_now)) = (open.is_empty(), left()) {
        socket.set_read_timeout(Some(left_now))?;
        // A refusal by the server's machine comes as an error, too.
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
        heard.answered += 1;
        if answer.is_cut {
            heard.truncated += 1;
            heard.sent += 1;
            answer = over_tcp(server, &query, &left).unwrap_or_else(|error| {
                heard.tcp_lost += 1;
                heard.tcp_error = told(&error);
                DnsAnswer::default()
            });
        }
        heard.take(answer);
    }
    heard.took = now().saturating_sub(begun);
    Ok(heard)
}

/// What the system says of an error, but that an answer did not come in time.
fn told(error: &io::Error) -> Option<ErrorKind> {
    let is_late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    (!is_late).then(|| error.kind())
}

/// Both questions in one connection, as `use-vc` asks for.
fn exchange_over_tcp(
    server: SocketAddr,
    mut open: Vec<DnsQuery>,
    patience: Duration,
    now: MonotonicNow,
) -> io::Result<DnsExchange> {
    let begun = now();
    let left = || patience.checked_sub(now().saturating_sub(begun)).filter(|left| !left.is_zero());
    let mut heard = DnsExchange { sent: open.len() as u32, ..DnsExchange::default() };
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
                heard.answered += 1;
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

/// What was cut, asked for once more.
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

/// To a server, for as long as is left for the whole, not for each piece of it.
struct Connection<'a> {
    stream: TcpStream,
    left: &'a dyn Fn() -> Option<Duration>,
}

impl<'a> Connection<'a> {
    fn open(server: SocketAddr, left: &'a dyn Fn() -> Option<Duration>) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, left().ok_or(ErrorKind::TimedOut)?)?;
        Ok(Self { stream, left })
    }

    /// With a length in front of each message (RFC 1035 section 4.2.2).
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

/// A question with recursion desired; none if the name fits no question.
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

/// Reads a message; none if it is no answer to this question. That there is no such name is an answer.
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
    // Of who neither knows nor asks others: `send_dg` of glibc's `resolv/res_send.c`, as are the codes.
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
