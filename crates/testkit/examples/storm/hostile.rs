//! Many connections that behave alike: one thread, one poller, and a habit.
//!
//! It does not mind what becomes of it: refused, closed and reset connections are opened again at once, because that is what a
//! hostile pod would do. On its end it says on standard error what it did, for whoever wonders whether there was a storm.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use memchr::memmem;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::arguments::Arguments;

/// How often what goes by the clock is looked at: paced requests, slow reads, connections that could not be opened.
const TICK: Duration = Duration::from_millis(50);

/// What a slow reader takes in each tick: enough that the connection is never without progress.
const SIP: usize = 64;

/// Connections opened before the poller is looked at again: the first of them must not wait for the last.
const AT_ONCE: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    Loop,
    Pace,
    Churn,
    Touch,
    Silent,
    Half,
    Drip,
    Slow,
}

/// One connection, or the place of one that is to be opened.
struct Place {
    from: Ipv4Addr,
    stream: Option<TcpStream>,
    /// What is to be written, and how much of it has been.
    out: Vec<u8>,
    written: usize,
    /// Requests whose answers have not begun.
    owed: usize,
    answers: StatusLines,
}

struct Storm {
    to: SocketAddr,
    habit: Habit,
    depth: usize,
    path: String,
    half: usize,
    /// Requests a second from each address.
    rate: f64,
    poll: Poll,
    places: Vec<Place>,
    /// Places without a connection.
    vacant: Vec<usize>,
    next_number: u64,
    per_address: usize,
    paced: f64,
    turn: usize,
    told: Told,
}

#[derive(Default)]
struct Told {
    opened: u64,
    ended: u64,
    sent: u64,
    answered: u64,
    bytes: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let mut storm = Storm::of(arguments)?;
    let end = arguments.seconds("seconds")?.map(|time| Instant::now() + time);
    storm.blow(end).map_err(|error| format!("the poller: {error}"))?;
    let Told { opened, ended, sent, answered, bytes } = storm.told;
    eprintln!("opened={opened} ended={ended} sent={sent} answered={answered} bytes={bytes}");
    Ok(())
}

impl Storm {
    fn of(arguments: &Arguments) -> Result<Self, String> {
        let per_address = arguments.or("connections", 1)?;
        let from = arguments.addresses("from")?;
        // In turns, so that no address is late because another's connections come first.
        let places: Vec<Place> =
            (0..per_address).flat_map(|_| from.iter().copied()).map(Place::new).collect();
        let vacant = (0..places.len()).rev().collect();
        Ok(Self {
            to: arguments.address("to")?,
            habit: Habit::named(arguments.required("habit")?)?,
            depth: arguments.or("depth", 1)?,
            path: arguments.text("path").unwrap_or("/").to_owned(),
            half: arguments.or("bytes", 40)?,
            rate: arguments.or("rate", 10.0)?,
            poll: Poll::new().map_err(|error| error.to_string())?,
            places,
            vacant,
            next_number: 0,
            per_address,
            paced: 0.0,
            turn: 0,
            told: Told::default(),
        })
    }

    fn blow(&mut self, end: Option<Instant>) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut next_tick = Instant::now() + TICK;
        while end.is_none_or(|end| Instant::now() < end) {
            self.fill();
            self.drip();
            let wait = if self.vacant.is_empty() && self.habit != Habit::Drip {
                next_tick.saturating_duration_since(Instant::now())
            } else {
                Duration::ZERO
            };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                let at = event.token().0;
                let gone = event.is_error() || event.is_read_closed() && self.habit != Habit::Loop;
                if gone || self.react(at, event.is_writable(), event.is_readable()).is_err() {
                    self.end(at);
                }
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                self.tick();
            }
        }
        Ok(())
    }

    /// Opens connections for vacant places, not all in one go.
    fn fill(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(at) = self.vacant.pop() else { return };
            if self.open(at).is_err() {
                // No port or no descriptor: later.
                self.vacant.push(at);
                return;
            }
        }
    }

    fn open(&mut self, at: usize) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.bind(&SocketAddr::from((self.places[at].from, 0)).into())?;
        socket.set_tcp_nodelay(true)?;
        if self.habit == Habit::Slow {
            // What the kernel would take on its behalf is not slow.
            socket.set_recv_buffer_size(2048)?;
        }
        match socket.connect(&self.to.into()) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        let mut stream = TcpStream::from_std(socket.into());
        self.poll.registry().register(&mut stream, Token(at), Interest::READABLE | Interest::WRITABLE)?;
        let first = self.first_words();
        let place = &mut self.places[at];
        (place.out, place.written, place.owed, place.answers) = (first.0, 0, first.1, StatusLines::default());
        place.stream = Some(stream);
        self.told.opened += 1;
        Ok(())
    }

    /// What a new connection says first, and how many requests that is.
    fn first_words(&mut self) -> (Vec<u8>, usize) {
        match self.habit {
            Habit::Touch | Habit::Silent | Habit::Pace => (Vec::new(), 0),
            Habit::Half | Habit::Drip => (self.half_head(), 0),
            Habit::Churn => (self.requests(1), 1),
            Habit::Loop | Habit::Slow => (self.requests(self.depth), self.depth),
        }
    }

    fn half_head(&self) -> Vec<u8> {
        let mut head = format!("GET {} HTTP/1.1\r\nHost: metadata\r\n", self.path).into_bytes();
        head.extend_from_slice(b"X: ");
        head.resize(self.half.max(20), b'a');
        head
    }

    fn requests(&mut self, count: usize) -> Vec<u8> {
        self.told.sent += count as u64;
        if !self.path.contains('#') {
            return self.request("").repeat(count).into_bytes();
        }
        let numbers = self.next_number..self.next_number + count as u64;
        self.next_number = numbers.end;
        // Numbers of other processes of the same storm are others.
        numbers
            .map(|number| self.request(&format!("{}-{number}", std::process::id())))
            .collect::<String>()
            .into_bytes()
    }

    fn request(&self, number: &str) -> String {
        let path = self.path.replace('#', number);
        format!("GET {path} HTTP/1.1\r\nHost: {}\r\nMetadata-Flavor: Google\r\n\r\n", self.to)
    }

    /// Goes on where the kernel says that there is something to do.
    fn react(&mut self, at: usize, writable: bool, readable: bool) -> io::Result<()> {
        if writable {
            self.places[at].write()?;
            if self.habit == Habit::Touch {
                return Err(ErrorKind::Other.into());
            }
        }
        if readable && self.habit != Habit::Slow {
            self.read(at)?;
        }
        Ok(())
    }

    fn read(&mut self, at: usize) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        let taken = self.places[at].read(&mut buffer)?;
        self.told.bytes += taken.0;
        self.told.answered += taken.1;
        if self.habit == Habit::Churn && taken.1 > 0 {
            return Err(ErrorKind::Other.into());
        }
        // Half of the depth at a time, so that there is always something ahead.
        if self.habit == Habit::Loop && self.places[at].owed <= self.depth / 2 {
            let count = self.depth - self.places[at].owed;
            let more = self.requests(count);
            self.places[at].say(&more, count)?;
        }
        Ok(())
    }

    fn tick(&mut self) {
        match self.habit {
            Habit::Pace => self.pace(),
            Habit::Slow => self.sip(),
            _ => {}
        }
    }

    /// Another byte of each head, as fast as it goes.
    fn drip(&mut self) {
        if self.habit != Habit::Drip {
            return;
        }
        for at in 0..self.places.len() {
            if self.places[at].stream.is_some() && self.places[at].say(b"a", 0).is_err() {
                self.end(at);
            }
        }
    }

    /// As many requests as this tick's share, each on the next connection of each address.
    fn pace(&mut self) {
        self.paced += self.rate * TICK.as_secs_f64();
        while self.paced >= 1.0 {
            self.paced -= 1.0;
            let addresses = self.places.len() / self.per_address;
            for address in 0..addresses {
                let at = (self.turn % self.per_address) * addresses + address;
                let request = self.requests(1);
                if self.places[at].stream.is_some() && self.places[at].say(&request, 1).is_err() {
                    self.end(at);
                }
            }
            self.turn += 1;
        }
    }

    fn sip(&mut self) {
        let mut buffer = [0; SIP];
        for at in 0..self.places.len() {
            let Some(stream) = &mut self.places[at].stream else { continue };
            match stream.read(&mut buffer) {
                Ok(0) => self.end(at),
                Ok(n) => self.told.bytes += n as u64,
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock || error.kind() == ErrorKind::NotConnected => {}
                Err(_) => self.end(at),
            }
        }
    }

    /// Without the wait that TCP asks of whoever closes first: ports would run out.
    fn end(&mut self, at: usize) {
        if let Some(stream) = self.places[at].stream.take() {
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            self.told.ended += 1;
            self.vacant.push(at);
        }
    }
}

impl Place {
    fn new(from: Ipv4Addr) -> Self {
        Self { from, stream: None, out: Vec::new(), written: 0, owed: 0, answers: StatusLines::default() }
    }

    fn say(&mut self, bytes: &[u8], requests: usize) -> io::Result<()> {
        self.out.drain(..self.written);
        self.written = 0;
        self.out.extend_from_slice(bytes);
        self.owed += requests;
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.written < self.out.len() {
            match stream.write(&self.out[self.written..]) {
                Ok(n) => self.written += n,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// All there is: how many bytes, and how many answers began in them.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<(u64, u64)> {
        let Some(stream) = &mut self.stream else { return Ok((0, 0)) };
        let (mut bytes, mut answers) = (0, 0);
        loop {
            match stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    bytes += n as u64;
                    answers += self.answers.count(&buffer[..n]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.owed = self.owed.saturating_sub(usize::try_from(answers).unwrap_or(usize::MAX));
        Ok((bytes, answers))
    }
}

/// Counts the beginnings of answers in a stream that is cut anywhere. No body here holds these bytes.
#[derive(Default)]
struct StatusLines {
    /// The end of what came before: what may be the beginning of a beginning.
    tail: Vec<u8>,
}

impl StatusLines {
    const BEGINNING: &[u8] = b"HTTP/1.1 ";

    fn count(&mut self, bytes: &[u8]) -> u64 {
        let most = Self::BEGINNING.len() - 1;
        self.tail.extend_from_slice(&bytes[..bytes.len().min(most)]);
        // In the seam are only those that are cut by it: either side of it is too short for a whole one.
        let in_seam = memmem::find_iter(&self.tail, Self::BEGINNING).count();
        let count = in_seam + memmem::find_iter(bytes, Self::BEGINNING).count();
        if bytes.len() >= most {
            self.tail.clear();
            self.tail.extend_from_slice(&bytes[bytes.len() - most..]);
        } else {
            self.tail.drain(..self.tail.len().saturating_sub(most));
        }
        count as u64
    }
}

impl Habit {
    fn named(name: &str) -> Result<Self, String> {
        Ok(match name {
            "loop" => Self::Loop,
            "pace" => Self::Pace,
            "churn" => Self::Churn,
            "touch" => Self::Touch,
            "silent" => Self::Silent,
            "half" => Self::Half,
            "drip" => Self::Drip,
            "slow" => Self::Slow,
            other => return Err(format!("there is no habit {other:?}")),
        })
    }
}
