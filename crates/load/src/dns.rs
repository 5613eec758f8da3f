//! Names to addresses by DNS servers that the user names (`-resolvers`), past the system's own.
//!
//! A stub resolver of the smallest kind (RFC 1035, RFC 3596): A and AAAA, UDP first and TCP when an answer was cut,
//! each server in turn, two rounds. Search domains are those of the system (resolv.conf(5)), because names like
//! `my-service` mean nothing without them. Runs on the resolver's thread and may block.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long one server gets for one answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Times that each server is asked.
const ROUNDS: usize = 2;

/// Servers that are asked, in turn from lookup to lookup.
#[derive(Debug, Default)]
pub struct Servers {
    addresses: Vec<SocketAddr>,
    next: AtomicUsize,
    search: Search,
}

/// What is tried behind a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Search {
    domains: Vec<String>,
    /// Names with this many dots are tried as they are first.
    dots: usize,
}

/// Record types (RFC 1035 section 3.2.2, RFC 3596 section 2.1).
const A: u16 = 1;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;

impl Servers {
    /// These servers, and the search domains of the text of a resolv.conf.
    #[must_use]
    pub fn new(addresses: Vec<SocketAddr>, resolv_conf: &str) -> Self {
        Self { addresses, next: AtomicUsize::new(0), search: Search::parse(resolv_conf) }
    }

    /// True when the system is to be asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// The addresses of a name, IPv4 first; none if no server knows any.
    #[must_use]
    pub fn lookup(&self, name: &str) -> Vec<IpAddr> {
        let known = self.search.candidates(name).into_iter().map(|name| {
            let mut addresses = self.ask(&name, A);
            addresses.extend(self.ask(&name, AAAA));
            addresses
        });
        known.into_iter().find(|addresses| !addresses.is_empty()).unwrap_or_default()
    }

    fn ask(&self, name: &str, kind: u16) -> Vec<IpAddr> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let turns = (0..ROUNDS * self.addresses.len())
            .map(|turn| self.addresses[(first + turn) % self.addresses.len()]);
        turns.filter_map(|server| exchange(server, name, kind).ok()).next().unwrap_or_default()
    }
}

impl Search {
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

    /// The names to ask for, in order.
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

/// Asks one server, over TCP if its answer over UDP was cut.
fn exchange(server: SocketAddr, name: &str, kind: u16) -> io::Result<Vec<IpAddr>> {
    let id = fastrand::u16(..);
    let query = query(id, name, kind).ok_or(io::ErrorKind::InvalidInput)?;
    let answer = over_udp(server, &query)?;
    match read(&answer, id, kind).ok_or(io::ErrorKind::InvalidData)? {
        Answer::Addresses(addresses) => Ok(addresses),
        Answer::Cut => match read(&over_tcp(server, &query)?, id, kind) {
            Some(Answer::Addresses(addresses)) => Ok(addresses),
            _ => Err(io::ErrorKind::InvalidData.into()),
        },
    }
}

fn over_udp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    // Connected: only this server's datagrams are received.
    socket.connect(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(query)?;
    let mut buffer = vec![0; 4096];
    let length = socket.recv(&mut buffer)?;
    buffer.truncate(length);
    Ok(buffer)
}

/// With a length in front of each message (RFC 1035 section 4.2.2).
fn over_tcp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), query].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// A question with recursion desired; `None` if the name fits no question.
fn query(id: u16, name: &str, kind: u16) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(name.len() + 18);
    message.extend_from_slice(&id.to_be_bytes());
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?;
        message.push(length);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&INTERNET.to_be_bytes());
    (name.len() <= 253).then_some(message)
}

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// None, if the name does not exist or has no address of this kind.
    Addresses(Vec<IpAddr>),
    /// To be asked for over TCP.
    Cut,
}

/// Reads an answer; `None` if it is none, is another question's, or says that the server failed. Aliases need not be
/// followed: a recursive server sends the addresses along.
fn read(message: &[u8], id: u16, kind: u16) -> Option<Answer> {
    let word = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    let flags = word(2)?;
    if word(0)? != id || flags & 0x8000 == 0 {
        return None;
    }
    if flags & 0x0200 != 0 {
        return Some(Answer::Cut);
    }
    // NOERROR and NXDOMAIN are answers; anything else is a server that could not say.
    if !matches!(flags & 0xf, 0 | 3) {
        return None;
    }
    let mut at = 12;
    for _ in 0..word(4)? {
        at = after_name(message, at)? + 4;
    }
    let mut addresses = Vec::new();
    for _ in 0..word(6)? {
        at = after_name(message, at)?;
        let length = usize::from(word(at + 8)?);
        let data = message.get(at + 10..at + 10 + length)?;
        if word(at)? == kind && word(at + 2)? == INTERNET {
            addresses.push(address(kind, data)?);
        }
        at += 10 + length;
    }
    Some(Answer::Addresses(addresses))
}

/// Where a name ends. A pointer ends it (RFC 1035 section 4.1.4) and is not followed: nobody here reads the name.
fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            0xc0.. => return Some(at + 2),
            length @ 1..64 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}

fn address(kind: u16, data: &[u8]) -> Option<IpAddr> {
    if kind == A {
        <[u8; 4]>::try_from(data).ok().map(IpAddr::from)
    } else {
        <[u8; 16]>::try_from(data).ok().map(IpAddr::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers two queries, the first over UDP with a cut, then everything over TCP; or all over UDP.
    fn server(cut: bool) -> (SocketAddr, std::thread::JoinHandle<()>) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let address = socket.local_addr().unwrap();
        let listener = std::net::TcpListener::bind(address).unwrap();
        let thread = std::thread::spawn(move || {
            for _ in 0..2 {
                let mut buffer = [0; 512];
                let (length, peer) = socket.recv_from(&mut buffer).unwrap();
                let reply = reply(&buffer[..length]);
                if !cut {
                    socket.send_to(&reply, peer).unwrap();
                    continue;
                }
                let mut short = buffer[..length].to_vec();
                (short[2], short[3]) = (0x82, 0);
                socket.send_to(&short, peer).unwrap();
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut buffer[..length + 2]).unwrap();
                stream.write_all(&(reply.len() as u16).to_be_bytes()).unwrap();
                stream.write_all(&reply).unwrap();
            }
        });
        (address, thread)
    }

    /// An alias, then an address of the kind that was asked for.
    fn reply(query: &[u8]) -> Vec<u8> {
        let kind = query[query.len() - 3];
        let mut reply = query.to_vec();
        (reply[2], reply[3], reply[7]) = (0x81, 0x80, 2);
        reply.extend_from_slice(b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x01\x00\x03\x01x\x00");
        reply.extend_from_slice(&[0xc0, 0x0c, 0, kind, 0, 1, 0, 0, 0, 1, 0]);
        let address: Vec<u8> =
            if kind == 1 { vec![192, 0, 2, 1] } else { Ipv6Addr::LOCALHOST.octets().to_vec() };
        reply.push(address.len() as u8);
        reply.extend_from_slice(&address);
        reply
    }

    #[test]
    fn both_kinds_of_address_come_back_over_udp_and_over_tcp() {
        for cut in [false, true] {
            let (address, thread) = server(cut);
            let servers = Servers::new(vec![address], "");
            let expected: [IpAddr; 2] = [Ipv4Addr::new(192, 0, 2, 1).into(), Ipv6Addr::LOCALHOST.into()];
            assert_eq!(servers.lookup("a.example."), expected);
            thread.join().unwrap();
        }
    }

    #[test]
    fn names_are_searched_as_the_system_does() {
        let search = Search::parse(
            "nameserver 10.0.0.1\nsearch ns.svc.cluster.local svc.cluster.local\noptions ndots:5 edns0\n",
        );
        assert_eq!(search.candidates("a"), ["a.ns.svc.cluster.local", "a.svc.cluster.local", "a"]);
        assert_eq!(search.candidates("a.b."), ["a.b"]);
        assert_eq!(Search::parse("search x").candidates("a.b"), ["a.b", "a.b.x"]);
    }

    #[test]
    fn an_answer_must_be_whole_and_to_our_question() {
        let query = query(7, "a.b", A).unwrap();
        let reply = reply(&query);
        assert!(read(&reply, 7, A).is_some());
        assert_eq!(read(&reply, 8, A), None);
        assert_eq!(read(&query, 7, A), None, "a question is no answer");
        for end in 0..reply.len() {
            assert_eq!(read(&reply[..end], 7, A), None, "{end}");
        }
        let mut failed = reply.clone();
        failed[3] = 0x82;
        assert_eq!(read(&failed, 7, A), None);
        assert_eq!(super::query(1, &"a".repeat(64), A), None);
        assert_eq!(super::query(1, "a..b", A), None);
    }
}
