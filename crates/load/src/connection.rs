//! One connection: a link on its way to being open, then HTTP/1.1 or HTTP/2 on it.
//!
//! Moves bytes and says what that came to; which request comes next, and what a failure means for it, is the shard's
//! business.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::clock::{Nanos, RunClock};
use crate::exchange::{Answer, Exchange, Keep, Step};
use crate::fault::Fault;
use crate::flights::FlightKey;
use crate::http2::Session;
use crate::link::Link;
use crate::poller::EventFlags;
use crate::socket::{Moved, Socket};
use crate::stats::Stats;

/// What stands between a socket and the first request on it; the same for all connections of a route.
#[derive(Debug, Clone, Default)]
pub(crate) struct Path {
    /// A CONNECT request to the proxy that the socket goes to.
    pub(crate) tunnel: Option<Vec<u8>>,
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// HTTP/2 without asking.
    pub(crate) prior_knowledge: bool,
    /// Most streams on one HTTP/2 connection.
    pub(crate) streams: usize,
}

/// A connection in the shard's table.
pub(crate) struct Connection {
    pub(crate) route: usize,
    pub(crate) opened: Nanos,
    /// Answers it has brought.
    pub(crate) served: u64,
    /// Addresses that may still be tried for its first flight if this one refuses.
    pub(crate) alternatives: usize,
    /// Tells events of this connection from those of an earlier one in the same place.
    pub(crate) generation: u32,
    pub(crate) speaks: Protocol,
    stage: Stage,
    /// When the present stage began.
    since: Nanos,
    peer_closed: bool,
}

/// What is spoken on it.
pub(crate) enum Protocol {
    Http1(Http1),
    Http2(Box<Session>),
    /// Being replaced; never seen outside [`Connection::prepare`].
    Changing,
}

/// One request at a time.
pub(crate) struct Http1 {
    /// Before the connection is open, the flight that it was opened for.
    pub(crate) flight: Option<FlightKey>,
    link: Link,
    exchange: Exchange,
    written: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    Tunnelling,
    Securing,
    Open,
}

/// Full reads from one connection before others have their turn: a fast endless body must not stop the schedule.
const READS_IN_A_ROW: usize = 8;

/// What a readable connection brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// Nothing yet, or not all.
    More {
        /// Whether any byte of the answer has come.
        begun: bool,
    },
    /// A good deal, and more is there already: others have their turn first.
    Rest,
    /// A complete answer.
    Done {
        /// The connection may carry another request.
        reusable: bool,
    },
}

impl Connection {
    /// A connection whose socket has been told to connect, for a flight.
    pub(crate) fn new(
        socket: Socket,
        flight: FlightKey,
        route: usize,
        alternatives: usize,
        opened: Nanos,
        generation: u32,
    ) -> Self {
        let http1 =
            Http1 { flight: Some(flight), link: Link::new(socket), exchange: Exchange::new(), written: 0 };
        Self {
            route,
            opened,
            served: 0,
            alternatives,
            generation,
            speaks: Protocol::Http1(http1),
            stage: Stage::Connecting,
            since: opened,
            peer_closed: false,
        }
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Remembers what the poller said.
    #[inline]
    pub(crate) fn note(&mut self, flags: EventFlags) {
        self.peer_closed |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match &mut self.speaks {
            Protocol::Http1(http1) => http1.link.note_readable(self.peer_closed),
            Protocol::Http2(session) => session.note_readable(self.peer_closed),
            Protocol::Changing => {}
        }
    }

    /// Goes on with what must be done before the first request. True when the connection is open.
    ///
    /// `connected` says that the socket has connected or failed to.
    pub(crate) fn prepare(
        &mut self,
        connected: bool,
        path: &Path,
        clock: &RunClock,
        stats: &mut Stats,
    ) -> Result<bool, Fault> {
        loop {
            let Protocol::Http1(http1) = &mut self.speaks else { return Ok(true) };
            match self.stage {
                Stage::Connecting if !connected => return Ok(false),
                Stage::Connecting => {
                    let made = http1.link.socket().finish_connect();
                    made.map_err(|error| Fault::Connect(error.kind()))?;
                    stats.connections += 1;
                    stats.connect.record(self.lap(clock));
                    self.stage = Stage::Tunnelling;
                }
                Stage::Tunnelling => {
                    if !http1.tunnel(path.tunnel.as_deref())? {
                        return Ok(false);
                    }
                    if let Some((config, name)) = &path.tls {
                        http1.link.secure(config, name)?;
                    }
                    self.lap(clock);
                    self.stage = Stage::Securing;
                }
                Stage::Securing => {
                    if !http1.link.handshake()? {
                        return Ok(false);
                    }
                    if path.tls.is_some() {
                        stats.tls.record(self.lap(clock));
                    }
                    self.stage = Stage::Open;
                    self.choose(path);
                    return Ok(true);
                }
                Stage::Open => return Ok(true),
            }
        }
    }

    /// Time since the last stage ended.
    fn lap(&mut self, clock: &RunClock) -> Nanos {
        let now = clock.now();
        now.saturating_sub(std::mem::replace(&mut self.since, now))
    }

    /// HTTP/2 if the server chose it, or if it was known before.
    fn choose(&mut self, path: &Path) {
        self.speaks = match std::mem::replace(&mut self.speaks, Protocol::Changing) {
            Protocol::Http1(http1) if path.prior_knowledge || http1.link.chose_h2() => {
                Protocol::Http2(Box::new(Session::new(http1.link, path.streams)))
            }
            other => other,
        };
    }

    /// Whether requests that failed here may be sent again: the connection was an old one.
    pub(crate) fn is_old(&self) -> bool {
        self.served > 0
    }

    /// The flights that end with this connection.
    pub(crate) fn flights(&mut self) -> Vec<FlightKey> {
        match &mut self.speaks {
            Protocol::Http1(http1) => http1.flight.take().into_iter().collect(),
            Protocol::Http2(session) => session.flights(),
            Protocol::Changing => Vec::new(),
        }
    }

    /// Reads what there is of an answer; `None` on an HTTP/2 connection.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        method: &str,
        keep: Keep,
        answer: &mut Answer,
    ) -> Result<Received, Fault> {
        let (peer_closed, old) = (self.peer_closed, self.served > 0);
        match &mut self.speaks {
            Protocol::Http1(http1) => http1.receive(scratch, method, keep, answer, peer_closed, old),
            Protocol::Http2(_) | Protocol::Changing => Ok(Received::More { begun: false }),
        }
    }

    /// Whether a failed request was the one that met the closing of an idle connection.
    pub(crate) fn was_stale(&self) -> bool {
        self.is_old() && self.http1().is_none_or(|http1| http1.exchange.is_untouched())
    }

    pub(crate) fn http1(&self) -> Option<&Http1> {
        match &self.speaks {
            Protocol::Http1(http1) => Some(http1),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn http1_mut(&mut self) -> Option<&mut Http1> {
        match &mut self.speaks {
            Protocol::Http1(http1) => Some(http1),
            _ => None,
        }
    }

    pub(crate) fn http2(&self) -> Option<&Session> {
        match &self.speaks {
            Protocol::Http2(session) => Some(session),
            _ => None,
        }
    }

    pub(crate) fn http2_mut(&mut self) -> Option<&mut Session> {
        match &mut self.speaks {
            Protocol::Http2(session) => Some(session),
            _ => None,
        }
    }

    /// Lets the poller have the descriptor.
    pub(crate) fn with_fd<T>(&self, use_it: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        match &self.speaks {
            Protocol::Http1(http1) => Some(use_it(http1.link.as_fd())),
            Protocol::Http2(session) => Some(session.with_link(|link| use_it(link.as_fd()))),
            Protocol::Changing => None,
        }
    }
}

impl Http1 {
    /// Takes a flight on.
    #[inline]
    pub(crate) fn begin(&mut self, flight: FlightKey) {
        self.flight = Some(flight);
        self.written = 0;
        self.exchange.reset();
    }

    /// Writes what the link takes of a request. True when all of it is out.
    #[inline]
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<bool, Fault> {
        while self.written < request.len() {
            match self.link.write(&request[self.written..])? {
                Moved::Bytes(count) => self.written += count,
                Moved::Later => return Ok(false),
            }
        }
        self.link.flush()
    }

    /// Whether a part of the request is still to be written: also what TLS has taken and the system has not.
    #[inline]
    pub(crate) fn is_sending(&self, request: &[u8]) -> bool {
        self.written < request.len() || self.link.has_unsent()
    }

    #[inline]
    fn receive(
        &mut self,
        scratch: &mut [u8],
        method: &str,
        keep: Keep,
        answer: &mut Answer,
        peer_closed: bool,
        old: bool,
    ) -> Result<Received, Fault> {
        for _ in 0..READS_IN_A_ROW {
            let count = match self.link.read(scratch) {
                Ok(Moved::Bytes(count)) => count,
                Ok(Moved::Later) => return Ok(Received::More { begun: !self.exchange.is_untouched() }),
                // A reset before the first byte is an early close, as far as a retry is concerned.
                Err(Fault::Broken(std::io::ErrorKind::ConnectionReset))
                    if old && self.exchange.is_untouched() =>
                {
                    return Err(Fault::ClosedEarly);
                }
                Err(fault) => return Err(fault),
            };
            if count == 0 {
                self.exchange.end()?;
                return Ok(Received::Done { reusable: false });
            }
            let more = self.link.may_have_more(count, scratch.len());
            if let Step::Done { clean } = self.exchange.feed(&scratch[..count], method, keep, answer)? {
                // A full buffer may be the end of an answer by chance: what follows it is not known.
                let full = count == scratch.len();
                return Ok(Received::Done { reusable: clean && answer.keep_alive && !peer_closed && !full });
            }
            if !more && !peer_closed {
                return Ok(Received::More { begun: true });
            }
        }
        Ok(Received::Rest)
    }

    /// Asks the proxy for a tunnel. True when there is one, or none is wanted.
    fn tunnel(&mut self, request: Option<&[u8]>) -> Result<bool, Fault> {
        let Some(request) = request else { return Ok(true) };
        if !self.send(request)? {
            return Ok(false);
        }
        let mut buffer = [0; 4096];
        let mut answer = Answer::default();
        loop {
            // A proxy that speaks before the tunnel's other end could has something to say that is not for us.
            match self.link.read(&mut buffer)? {
                Moved::Later => return Ok(false),
                Moved::Bytes(0) => return Err(Fault::Proxy(0)),
                Moved::Bytes(count) => {
                    match self.exchange.feed(&buffer[..count], "CONNECT", Keep::default(), &mut answer) {
                        Ok(Step::More) => {}
                        Ok(Step::Done { clean: true }) if (200..300).contains(&answer.status) => {
                            self.exchange.reset();
                            self.written = 0;
                            return Ok(true);
                        }
                        Ok(Step::Done { .. }) => return Err(Fault::Proxy(answer.status)),
                        Err(_) => return Err(Fault::Proxy(0)),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use seawall_testkit::server::Server;
    use seawall_testkit::tls::Authority;
    use socket2::SockRef;

    use super::*;
    use crate::socket::Address;
    use crate::tls::Tls;

    /// Less than what TLS takes at once, more than the buffers of the system below.
    static LONG: [u8; 60_000] = [b'x'; 60_000];

    fn until(mut done: impl FnMut() -> bool) {
        while !done() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_tls_had_taken_when_the_system_took_no_more_was_never_sent() {
        let slow = Arc::new(Barrier::new(2));
        let waits = Arc::clone(&slow);
        let config = Authority::new().unwrap().server(&[], false).unwrap();
        let server = Server::start_tls(config, move |mut peer, _| {
            peer.receive_little(4096)?;
            peer.request()?;
            waits.wait();
            peer.body(LONG.len())?;
            waits.wait();
            Ok(())
        });
        let server = server.unwrap();
        let (socket, _) = Socket::connect(&Address::Tcp(server.address()), None).unwrap();
        SockRef::from(&socket).set_send_buffer_size(4096).unwrap();
        let mut http1 =
            Http1 { flight: None, link: Link::new(socket), exchange: Exchange::new(), written: 0 };
        until(|| http1.link.socket().finish_connect().is_ok());
        let tls = Tls { insecure: true, ..Tls::default() }.config().unwrap();
        http1.link.secure(&tls, &ServerName::try_from("localhost").unwrap()).unwrap();
        until(|| {
            http1.link.note_readable(false);
            http1.link.handshake().unwrap()
        });
        until(|| http1.send(b"GET / HTTP/1.1\r\n\r\n").unwrap());
        http1.written = 0;
        assert!(!http1.send(&LONG).unwrap());
        assert_eq!(http1.written, LONG.len());
        assert!(http1.is_sending(&LONG), "TLS holds the end");
        slow.wait();
        until(|| http1.send(&LONG).unwrap());
        assert!(!http1.is_sending(&LONG));
        slow.wait();
    }
}
