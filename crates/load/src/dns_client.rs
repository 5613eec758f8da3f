//! Resolves names with DNS servers that the user names (`-resolvers`), instead of the system's own.
//!
//! This is a minimal stub resolver: it asks for A and AAAA at once, over UDP first and over TCP when a response was truncated. It
//! asks each server in turn, in two rounds. Search domains are those of the system (resolv.conf(5)), because names like
//! `my-service` mean nothing without them. The crate `domain` writes and reads messages; it knows DNS and no sockets. Its own
//! resolver needs an async runtime; this one runs on the resolver's thread and may block.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::message_builder::StreamTarget;
use domain::base::rdata::ParseRecordData;
use domain::base::wire::ParseError;
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa};

use crate::clock::RunClock;
use crate::request_failure_reason::NameFault;

/// The time limit for one response of one server.
const PATIENCE: Duration = Duration::from_secs(2);

/// The number of times that each server is asked.
const ROUNDS: usize = 2;

/// The servers, which are asked in turn from lookup to lookup.
#[derive(Debug, Default)]
pub struct DnsServers {
    addresses: Vec<SocketAddr>,
    next: AtomicUsize,
    search: SearchDomains,
}

/// The domains that are appended to a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SearchDomains {
    domains: Vec<String>,
    /// A name with at least this number of dots is first tried as it is.
    dots: usize,
}

impl DnsServers {
    /// Makes a resolver from server addresses and the text of a resolv.conf, which has the search domains.
    #[must_use]
    pub fn new(addresses: Vec<SocketAddr>, resolv_conf: &str) -> Self {
        Self { addresses, next: AtomicUsize::new(0), search: SearchDomains::parse(resolv_conf) }
    }

    /// True if there are no servers, so that the system's resolver is used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Returns the addresses of a name, IPv4 first; at least one.
    ///
    /// # Errors
    /// [`NameFault::NoHost`] if there is none, [`NameFault::NoAnswer`] if a query had no response.
    pub fn lookup(&self, name: &str) -> Result<Vec<IpAddr>, NameFault> {
        let mut why = NameFault::NoHost;
        for name in self.search.candidates(name) {
            let answers = self.ask(&name);
            if answers.iter().any(Option::is_none) {
                why = NameFault::NoAnswer;
            }
            let addresses: Vec<_> = answers.into_iter().flatten().flatten().collect();
            if !addresses.is_empty() {
                return Ok(addresses);
            }
        }
        Err(why)
    }

    /// Asks for each record type and returns the first server's response for each type.
    fn ask(&self, name: &str) -> Answers {
        if query(0, name, Rtype::A).is_none() {
            // A name that cannot be in a query has no addresses.
            return KINDS.map(|_| Some(Vec::new()));
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut answers = Answers::default();
        for turn in 0..ROUNDS * self.addresses.len() {
            let server = self.addresses[(first + turn) % self.addresses.len()];
            // If this server fails, the next one is asked.
            let _ = exchange(server, name, &mut answers);
            if answers.iter().all(Option::is_some) {
                break;
            }
        }
        answers
    }
}

/// The record types, in the order in which their addresses are used.
const KINDS: [Rtype; 2] = [Rtype::A, Rtype::AAAA];

/// The addresses of each record type; `None` without a response.
type Answers = [Option<Vec<IpAddr>>; 2];

impl SearchDomains {
    fn parse(resolv_conf: &str) -> Self {
        let mut search = Self { domains: Vec::new(), dots: 1 };
        for line in resolv_conf.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("search" | "domain") => search.domains = words.map(str::to_owned).collect(),
                Some("options") => {
                    let dots = words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok()).next_back();
                    search.dots = dots.unwrap_or(search.dots).min(15);
                }
                _ => {}
            }
        }
        search
    }

    /// Returns the names to ask for, in order.
    fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let searched = self.domains.iter().map(|domain| format!("{name}.{domain}"));
        let own = std::iter::once(name.to_owned());
        if name.matches('.').count() >= self.dots {
            own.chain(searched).collect()
        } else {
            searched.chain(own).collect()
        }
    }
}

/// A query, with the length in front that TCP needs.
type Query = StreamTarget<Vec<u8>>;

/// Asks one server for each record type that has no response yet, and again over TCP if a response over UDP was truncated.
/// Responses are kept even if a later step fails.
fn exchange(server: SocketAddr, name: &str, answers: &mut Answers) -> io::Result<()> {
    let clock = RunClock::start();
    let socket = towards(server)?;
    let id = fastrand::u16(..);
    let mut pending = Vec::new();
    for (place, kind) in KINDS.into_iter().enumerate().filter(|(place, _)| answers[*place].is_none()) {
        let query = query(id.wrapping_add(place as u16), name, kind).ok_or(io::ErrorKind::InvalidInput)?;
        socket.send(query.as_dgram_slice())?;
        pending.push((place, kind, query));
    }
    while !pending.is_empty() {
        let datagram = receive(&socket, left(clock, PATIENCE)?)?;
        let at =
            pending.iter().position(|(_, _, query)| datagram.get(..2) == query.as_dgram_slice().get(..2));
        // A datagram that is not a response to one of the queries, such as a late response to an earlier query, is ignored, as
        // resolvers do.
        let Some(at) = at else { continue };
        let (place, kind, query) = pending.swap_remove(at);
        answers[place] = match read(&datagram, &query, kind) {
            Some(DnsReply::Addresses(addresses)) => Some(addresses),
            Some(DnsReply::Truncated) => retry_over_tcp(server, &query, kind),
            None => None,
        };
    }
    Ok(())
}

/// Asks a server over TCP.
fn retry_over_tcp(server: SocketAddr, query: &Query, kind: Rtype) -> Option<Vec<IpAddr>> {
    match read(&over_tcp(server, query.as_stream_slice(), PATIENCE).ok()?, query, kind) {
        Some(DnsReply::Addresses(addresses)) => Some(addresses),
        Some(DnsReply::Truncated) | None => None,
    }
}

fn towards(server: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    // Connected: only this server's datagrams are received.
    socket.connect(server)?;
    Ok(socket)
}

fn receive(socket: &UdpSocket, patience: Duration) -> io::Result<Vec<u8>> {
    socket.set_read_timeout(Some(patience))?;
    let mut buffer = vec![0; 4096];
    let length = socket.recv(&mut buffer)?;
    buffer.truncate(length);
    Ok(buffer)
}

/// Returns the remaining time of a time limit.
fn left(since: RunClock, patience: Duration) -> io::Result<Duration> {
    let left = patience.checked_sub(Duration::from_nanos(since.now())).filter(|left| !left.is_zero());
    Ok(left.ok_or(io::ErrorKind::TimedOut)?)
}

/// Asks a server over TCP, with a length in front of each message (RFC 1035 section 4.2.2). `patience` limits the whole exchange,
/// not each read.
fn over_tcp(server: SocketAddr, query: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let clock = RunClock::start();
    let mut stream = TcpStream::connect_timeout(&server, patience)?;
    stream.write_all(query)?;
    let mut fill = |mut buffer: &mut [u8]| {
        while !buffer.is_empty() {
            stream.set_read_timeout(Some(left(clock, patience)?))?;
            match stream.read(buffer) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    let mut length = [0; 2];
    fill(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    fill(&mut answer)?;
    Ok(answer)
}

/// Makes a query with recursion desired; `None` if the name cannot be in a query.
fn query(id: u16, name: &str, kind: Rtype) -> Option<Query> {
    let name: Name<Vec<u8>> = name.parse().ok()?;
    let mut question = MessageBuilder::from_target(StreamTarget::new_vec()).ok()?.question();
    question.header_mut().set_id(id);
    question.header_mut().set_rd(true);
    question.push((name, kind)).ok()?;
    Some(question.finish())
}

/// A server's response.
#[derive(Debug, PartialEq, Eq)]
enum DnsReply {
    /// The addresses; empty if the name does not exist or has no address of this kind.
    Addresses(Vec<IpAddr>),
    /// The response was truncated, so the query must be repeated over TCP.
    Truncated,
}

/// Reads a response. Returns `None` if the message is not a response, belongs to another query, or reports a failure of the
/// server.
fn read(message: &[u8], query: &Query, kind: Rtype) -> Option<DnsReply> {
    let message = Message::from_slice(message).ok()?;
    if !message.is_answer(Message::from_slice(query.as_dgram_slice()).ok()?) {
        return None;
    }
    if message.header().tc() {
        return Some(DnsReply::Truncated);
    }
    // Any other code means that the server could not answer.
    if !matches!(message.header().rcode(), Rcode::NOERROR | Rcode::NXDOMAIN) {
        return None;
    }
    let addresses = match kind {
        Rtype::A => records(message, |a: A| a.addr().into()),
        _ => records(message, |aaaa: Aaaa| aaaa.addr().into()),
    };
    addresses.ok().map(DnsReply::Addresses)
}

/// Returns the addresses in a response. Aliases need not be followed: a recursive server sends their addresses along.
fn records<'a, Data: ParseRecordData<'a, [u8]>>(
    message: &'a Message<[u8]>,
    address: impl Fn(Data) -> IpAddr,
) -> Result<Vec<IpAddr>, ParseError> {
    let records = message.answer()?.limit_to_in::<Data>();
    records.map(|record| record.map(|record| address(record.into_data()))).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use proptest::prelude::*;

    use super::*;

    /// The function by which a test server responds to a question.
    type Reply = fn(&[u8]) -> Vec<u8>;

    /// Starts a server that responds to `questions` queries over UDP, and over TCP to each query whose response is truncated.
    fn server(questions: usize, udp: Reply, tcp: Reply) -> (SocketAddr, JoinHandle<()>) {
        let (socket, listener) = both_at_one_port();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let address = socket.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            for _ in 0..questions {
                let mut buffer = [0; 512];
                let (length, peer) = socket.recv_from(&mut buffer).unwrap();
                let answer = udp(&buffer[..length]);
                socket.send_to(&answer, peer).unwrap();
                if answer.get(2).is_some_and(|flags| flags & 2 != 0) {
                    over_stream(&listener, &buffer[..length], tcp);
                }
            }
        });
        (address, thread)
    }

    /// Binds one port for UDP and TCP. A port that is free for UDP may be taken for TCP, so another is tried.
    fn both_at_one_port() -> (UdpSocket, TcpListener) {
        let mut tries = (0..100).map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let listener = TcpListener::bind(socket.local_addr().unwrap()).ok()?;
            Some((socket, listener))
        });
        tries.find_map(|both| both).unwrap()
    }

    fn over_stream(listener: &TcpListener, question: &[u8], tcp: Reply) {
        let (mut stream, _) = listener.accept().unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut again = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut again).unwrap();
        assert_eq!(again, question, "asked over TCP what was asked over UDP");
        let answer = tcp(question);
        stream.write_all(&(answer.len() as u16).to_be_bytes()).unwrap();
        stream.write_all(&answer).unwrap();
    }

    /// Makes a response with an alias and then an address of the requested type, under the alias's name.
    fn reply(query: &[u8]) -> Vec<u8> {
        let kind = query[query.len() - 3];
        let mut reply = query.to_vec();
        (reply[2], reply[3], reply[7]) = (0x81, 0x80, 2);
        let alias = reply.len() as u8 + 12;
        reply.extend_from_slice(b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x01\x00\x03\x01x\x00");
        reply.extend_from_slice(&[0xc0, alias, 0, kind, 0, 1, 0, 0, 0, 1, 0]);
        let address: Vec<u8> =
            if kind == 1 { vec![192, 0, 2, 1] } else { Ipv6Addr::LOCALHOST.octets().to_vec() };
        reply.push(address.len() as u8);
        reply.extend_from_slice(&address);
        reply
    }

    /// Makes the correct response with some bytes overwritten.
    fn spoilt(query: &[u8], spoil: &[(usize, u8)]) -> Vec<u8> {
        let mut reply = reply(query);
        spoil.iter().for_each(|&(at, byte)| reply[at] = byte);
        reply
    }

    fn cut(query: &[u8]) -> Vec<u8> {
        let mut short = query.to_vec();
        (short[2], short[3]) = (0x83, 0x80);
        short
    }

    fn expected() -> [IpAddr; 2] {
        [Ipv4Addr::new(192, 0, 2, 1).into(), Ipv6Addr::LOCALHOST.into()]
    }

    #[test]
    fn both_kinds_of_address_come_back_over_udp_and_over_tcp() {
        for udp in [reply, cut] {
            let (address, thread) = server(2, udp, reply);
            let servers = DnsServers::new(vec![address], "");
            assert_eq!(servers.lookup("a.example."), Ok(expected().to_vec()));
            thread.join().unwrap();
        }
    }

    #[test]
    fn after_a_wrong_answer_the_next_server_is_asked() {
        let wrong: [(&str, Reply, Reply); 7] = [
            ("another name", |query| spoilt(query, &[(13, b'b')]), reply),
            ("another kind", |query| spoilt(query, &[(query.len() - 3, 16)]), reply),
            ("no answer at all", |query| query.to_vec(), reply),
            ("the server failed", |query| spoilt(query, &[(3, 0x82)]), reply),
            ("not whole", |query| reply(query)[..query.len() + 20].to_vec(), reply),
            ("cut over TCP too", cut, cut),
            ("not whole over TCP", cut, |query| reply(query)[..query.len() + 20].to_vec()),
        ];
        for (what, udp, tcp) in wrong {
            let (first, first_thread) = server(2, udp, tcp);
            let (second, second_thread) = server(2, reply, reply);
            let servers = DnsServers::new(vec![first, second], "");
            assert_eq!(servers.lookup("a.example."), Ok(expected().to_vec()), "{what}");
            first_thread.join().unwrap();
            second_thread.join().unwrap();
        }
    }

    /// A late response to an earlier query is an example. Each such datagram used to fail the lookup.
    #[test]
    fn a_stray_datagram_fails_no_lookup() {
        let strays: [(&str, Reply); 3] = [
            ("of another question", |query| spoilt(query, &[(0, !query[0])])),
            ("empty", |_| Vec::new()),
            ("too short", |query| query[..1].to_vec()),
        ];
        for (what, stray) in strays {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let address = socket.local_addr().unwrap();
            let server = std::thread::spawn(move || {
                for _ in 0..2 {
                    let mut buffer = [0; 512];
                    let (length, peer) = socket.recv_from(&mut buffer).unwrap();
                    socket.send_to(&stray(&buffer[..length]), peer).unwrap();
                    socket.send_to(&reply(&buffer[..length]), peer).unwrap();
                }
            });
            assert_eq!(
                DnsServers::new(vec![address], "").lookup("a.example."),
                Ok(expected().to_vec()),
                "{what}"
            );
            server.join().unwrap();
        }
    }

    /// The second query used to wait for the response to the first.
    #[test]
    fn both_kinds_are_asked_for_before_either_is_answered() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let address = socket.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let questions = [(); 2].map(|()| {
                let mut buffer = [0; 512];
                let (length, peer) = socket.recv_from(&mut buffer).unwrap();
                (buffer[..length].to_vec(), peer)
            });
            // The responses come in the other order.
            for (question, peer) in questions.iter().rev() {
                socket.send_to(&reply(question), peer).unwrap();
            }
        });
        assert_eq!(DnsServers::new(vec![address], "").lookup("a.example."), Ok(expected().to_vec()));
        server.join().unwrap();
    }

    #[test]
    fn a_server_that_sent_an_answer_byte_by_byte_held_the_resolver() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The longest possible response is announced, and its bytes come one by one until the client gives up.
            stream.write_all(&[0xff, 0xff]).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            let mut pause = [0; 64];
            while stream.write_all(&[0]).is_ok() {
                let _ = stream.read(&mut pause);
            }
        });
        let error = over_tcp(address, b"a question", Duration::from_millis(50)).unwrap_err();
        // The system reports the last of the timeouts with its own error.
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn names_are_searched_as_the_system_does() {
        let search = SearchDomains::parse(
            "nameserver 10.0.0.1\nsearch ns.svc.cluster.local svc.cluster.local\noptions ndots:5 edns0\n",
        );
        assert_eq!(search.candidates("a"), ["a.ns.svc.cluster.local", "a.svc.cluster.local", "a"]);
        assert_eq!(search.candidates("a.b."), ["a.b"]);
        assert_eq!(SearchDomains::parse("search x").candidates("a.b"), ["a.b", "a.b.x"]);
    }

    #[test]
    fn search_domains_that_end_in_a_dot_were_never_asked_for() {
        // This server knows no other names.
        let knows: Reply =
            |query| if query[12..].starts_with(b"\x01a\x03svc\0") { reply(query) } else { Vec::new() };
        let (address, thread) = server(2, knows, reply);
        let servers = DnsServers::new(vec![address], "search svc.");
        assert_eq!(servers.lookup("a"), Ok(expected().to_vec()));
        thread.join().unwrap();
    }

    #[test]
    fn a_server_that_is_not_there_was_a_host_that_is_not_there() {
        let (address, thread) = server(1, |query| spoilt(query, &[(3, 0x83), (7, 0)]), reply);
        let knows_nothing = DnsServers::new(vec![address], "");
        // The second query gets no response.
        assert_eq!(knows_nothing.lookup("a.example."), Err(NameFault::NoAnswer));
        thread.join().unwrap();
        let (address, thread) = server(2, |query| spoilt(query, &[(3, 0x83), (7, 0)]), reply);
        assert_eq!(DnsServers::new(vec![address], "").lookup("a.example."), Err(NameFault::NoHost));
        thread.join().unwrap();
    }

    fn asked() -> Query {
        query(7, "a.b", Rtype::A).unwrap()
    }

    fn read_a(message: &[u8]) -> Option<DnsReply> {
        read(message, &asked(), Rtype::A)
    }

    #[test]
    fn a_question_is_what_the_protocol_says() {
        let bytes = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\x01b\0\0\x01\0\x01";
        assert_eq!(asked().as_dgram_slice(), bytes);
        assert_eq!(asked().as_stream_slice(), [b"\0\x15".as_slice(), bytes].concat());
    }

    #[test]
    fn names_that_fit_no_question_are_not_asked_for() {
        let long = ["a".repeat(63).as_str(); 4].join(".");
        for name in ["", "a..b", ".a", &"a".repeat(64), &long] {
            assert!(query(1, name, Rtype::A).is_none(), "{name}");
        }
        assert!(query(1, &long[2..], Rtype::A).is_some(), "253 bytes are allowed");
        assert!(query(1, "_a-b.c_d", Rtype::A).is_some());
    }

    #[test]
    fn an_answer_must_be_whole_and_to_our_question() {
        let reply = reply(asked().as_dgram_slice());
        let addresses = Some(DnsReply::Addresses(expected()[..1].to_vec()));
        assert_eq!(read_a(&reply), addresses);
        for end in 0..reply.len() {
            assert_eq!(read_a(&reply[..end]), None, "{end}");
        }
        assert_eq!(read_a(asked().as_dgram_slice()), None, "a question is no answer");
        let read_spoilt = |spoil: &[(usize, u8)]| read_a(&spoilt(asked().as_dgram_slice(), spoil));
        assert_eq!(read_spoilt(&[(13, b'A')]), addresses, "the case of names means nothing");
        assert_eq!(read_spoilt(&[(1, 8)]), None, "another id");
        assert_eq!(read_spoilt(&[(13, b'c')]), None, "another name");
        assert_eq!(read_spoilt(&[(18, 28)]), None, "another kind");
        assert_eq!(read_spoilt(&[(20, 3)]), None, "another class");
        assert_eq!(read_spoilt(&[(5, 0)]), None, "no question");
        assert_eq!(read_spoilt(&[(3, 0x82)]), None, "the server failed");
        assert_eq!(read_spoilt(&[(reply.len() - 5, 3)]), None, "an address of three bytes");
        let none = Some(DnsReply::Addresses(Vec::new()));
        assert_eq!(read_spoilt(&[(3, 0x83), (7, 0)]), none, "no such name");
        assert_eq!(read_spoilt(&[(reply.len() - 11, 3)]), none, "an address of another class");
        assert_eq!(read_a(&cut(asked().as_dgram_slice())), Some(DnsReply::Truncated));
    }

    #[test]
    fn names_that_lead_to_themselves_end() {
        let owner = asked().as_dgram_slice().len() as u8;
        let (first, second) = (owner as usize, owner as usize + 15);
        let loops: [&[(usize, u8)]; 5] = [
            &[(12, 0xc0), (13, 12)],
            &[(12, 0xc0), (13, 14), (14, 0xc0), (15, 12)],
            &[(first + 1, owner)],
            &[(first + 1, second as u8), (second + 1, owner)],
            &[(first, 0xff), (first + 1, 0xff)],
        ];
        for spoil in loops {
            assert_eq!(read_a(&spoilt(asked().as_dgram_slice(), spoil)), None, "{spoil:?}");
        }
    }

    proptest! {
        /// The header and the question are correct, because they are checked before everything else.
        #[test]
        fn no_answer_is_too_strange(counts: [u8; 6], rest in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut message = asked().as_dgram_slice().to_vec();
            (message[2], message[3]) = (0x81, 0x80);
            message[6..12].copy_from_slice(&counts);
            message.extend_from_slice(&rest);
            if let Some(DnsReply::Addresses(addresses)) = read_a(&message) {
                // Each record takes at least a name of one byte, ten bytes of header and four of address.
                prop_assert!(addresses.len() * 15 <= rest.len());
            }
            let _ = read_a(&rest);
        }

        #[test]
        fn a_right_answer_spoilt_is_an_answer_or_an_error(spoil in prop::collection::vec((0..52_usize, any::<u8>()), 1..6)) {
            let message = spoilt(asked().as_dgram_slice(), &spoil);
                if let Some(DnsReply::Addresses(addresses)) = read_a(&message) {
                prop_assert!(addresses.len() <= 2);
            }
        }

        #[test]
        fn no_name_is_too_strange(name in any::<String>()) {
            if let Some(query) = query(1, &name, Rtype::AAAA) {
                prop_assert!(query.as_dgram_slice().len() <= 12 + 255 + 4);
            }
        }
    }
}
