//! The transport of a request: connections that are opened for a route, carry requests and report their outcomes.
//!
//! A [`connection::PooledConnection`] moves bytes over a `maybe_tls_stream` and speaks `http1` or `http2`. It reports
//! [`ConnectionEvent`]s to the [`pool::ConnectionPool`], and [`RequestEvent`]s to the send loop. Nothing here knows a schedule.
//! Only [`NetworkBackend`] knows the system: tests use a simulated one.

use std::io;
use std::net::IpAddr;

use crate::clock::{KernelReceiveWallTime, Nanos};
use crate::in_flight::{InFlightKey, InFlightTable};
use crate::poller::EventPoller;
use crate::request::PreparedRequest;
use crate::request_failure_reason::RequestFault;
use crate::request_source::SenderRequests;
use crate::stats::LoadStats;

pub(crate) mod connection;
mod connection_opener;
mod connection_setup;
pub(crate) mod connector_config;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod maybe_tls_stream;
#[cfg(any(test, feature = "rehearsal"))]
mod memory_network;
mod pending_events;
pub(crate) mod pool;
#[cfg(test)]
mod random_server_tests;
mod ready_connections;
pub(crate) mod response_parser;
pub(crate) mod retry;
pub(crate) mod route;
pub(crate) mod route_table;
pub(crate) mod socket;
pub(crate) mod source_addresses;
#[cfg(any(test, feature = "rehearsal"))]
pub mod transport_harness;

use connector_config::RouteConfig;
use pending_events::PendingEvents;
use response_parser::{CaptureOptions, ReceivedResponse};
use socket::{ConnectError, IoProgress, PeerAddress, StreamSocket};

/// An event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEvent {
    /// The connection is open and can carry requests.
    Opened,
    /// The connection could not be opened.
    Refused(RequestFault),
    /// The connection can take another request.
    Free,
    /// The connection has ended. Its requests have ended, too, with events of their own.
    Closed,
}

/// An event of a request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEvent {
    /// The first byte of the request was sent.
    Sent(InFlightKey, Nanos),
    /// The last byte of the request was handed to the system.
    Wrote(InFlightKey, Nanos),
    /// The first byte of the response has come; over HTTP/2, its head.
    FirstResponseByte(InFlightKey, ArrivalTime),
    /// The response is complete.
    Done(InFlightKey, ArrivalTime),
    /// There will be no response.
    Failed(TransportFailure),
    /// No connection can be opened for the request.
    NoConnection(InFlightKey, RequestFault),
}

impl RequestEvent {
    /// Returns the key of the request.
    #[inline]
    pub(crate) fn key(&self) -> InFlightKey {
        match self {
            Self::Sent(key, _) | Self::Wrote(key, _) => *key,
            Self::FirstResponseByte(key, _) | Self::Done(key, _) => *key,
            Self::Failed(failure) => failure.key,
            Self::NoConnection(key, _) => *key,
        }
    }
}

/// The arrival time of bytes of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrivalTime {
    /// The kernel's time, if the kernel was asked and knows it.
    received: Option<Nanos>,
    /// The time when this thread had read the bytes.
    pub(crate) read_at: Nanos,
}

impl ArrivalTime {
    #[inline]
    pub(crate) fn new(received: Option<Nanos>, seen: Nanos) -> Self {
        Self { received, read_at: seen }
    }

    /// Returns the arrival time of a response to a request that was sent at `sent`. A kernel time before `sent`, or in the
    /// future, comes from a clock that was set, and is ignored.
    #[inline]
    pub(crate) fn for_request_sent_at(self, sent: Nanos) -> Nanos {
        self.received.filter(|at| (sent..=self.read_at).contains(at)).unwrap_or(self.read_at)
    }
}

/// The failure of a request on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransportFailure {
    pub(crate) key: InFlightKey,
    pub(crate) cause: RequestFault,
    pub(crate) stage: FailureStage,
    /// True if the connection had received responses before.
    pub(crate) reused: bool,
    pub(crate) at: Nanos,
}

/// The stage that a request had reached when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureStage {
    /// The server has not processed the request: the server reported it, or nothing was sent.
    NotProcessed,
    /// The server may have processed the request.
    Sent,
    /// The server has begun to respond, or has reset this request.
    Answering,
}

/// The location of a request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestLocation {
    Nowhere,
    /// The request waits for a connection of this route.
    Waiting(usize),
    /// The request is on the connection with this token.
    OnConnection(u64),
}

/// The data that a connection reads and writes while it works: requests, responses, figures.
pub(crate) struct TransportContext<'d> {
    pub(crate) flights: &'d mut InFlightTable,
    pub(crate) requests: &'d SenderRequests,
    pub(crate) stats: &'d mut LoadStats,
}

impl TransportContext<'_> {
    #[inline]
    fn call(&mut self, key: InFlightKey) -> (&PreparedRequest, &mut ReceivedResponse) {
        let flight = self.flights.get_mut(key);
        (self.requests.request(&flight.request), &mut flight.answer)
    }
}

/// The state that a connection uses while it handles one event.
pub(crate) struct ConnectionTurn<'t, T> {
    pub(crate) time: &'t T,
    pub(crate) route_config: &'t RouteConfig,
    pub(crate) capture: CaptureOptions,
    pub(crate) budget: ReadBudget<'t>,
    pub(crate) events: &'t mut PendingEvents<RequestEvent>,
    /// The change of the connection's state. An end replaces every other change.
    pub(crate) change: Option<ConnectionEvent>,
}

impl<T: TimeSource> ConnectionTurn<'_, T> {
    #[inline]
    fn tell(&mut self, event: RequestEvent) {
        self.events.push(event);
    }

    /// Returns the arrival time of the data that was read: the stamp of the read, if the kernel was asked.
    #[inline]
    fn arrival(&self, stamp: Option<KernelReceiveWallTime>, seen: Nanos) -> ArrivalTime {
        ArrivalTime::new(stamp.and_then(|stamp| self.time.received(stamp)), seen)
    }

    #[inline]
    fn change(&mut self, change: ConnectionEvent) {
        self.change = Some(change);
    }
}

/// The limit of data that a connection reads before other connections are handled. A fast endless body must not stop the
/// schedule, and unparsed data must not fill the memory.
pub(crate) struct ReadBudget<'t> {
    /// The buffer for one read.
    pub(crate) scratch: &'t mut [u8],
    /// True if reading stopped although there may be more data.
    pub(crate) is_spent: bool,
}

impl ReadBudget<'_> {
    /// The maximum number of full reads in one turn.
    const READS: usize = 8;

    /// Returns the number of bytes in one turn, for reads that are smaller than the buffer.
    fn bytes(&self) -> usize {
        Self::READS * self.scratch.len()
    }
}

/// A source of time.
pub(crate) trait TimeSource {
    fn now(&self) -> Nanos;

    /// True if the data that is read now waited before this thread read it.
    fn is_late(&self) -> bool {
        false
    }

    /// Returns the time of a kernel stamp, if it is known.
    fn received(&self, _: KernelReceiveWallTime) -> Option<Nanos> {
        None
    }
}

/// A stream of bytes that never waits.
pub(crate) trait Stream: std::fmt::Debug + Send + 'static {
    /// Returns the outcome of the connection attempt, once the stream is writable.
    fn finish_connect(&self) -> io::Result<()>;
    fn read(&self, buffer: &mut [u8]) -> io::Result<IoProgress>;
    /// Reads bytes, and returns the time when the kernel received the last of them, if the kernel tells it.
    fn read_stamped(&self, buffer: &mut [u8]) -> io::Result<(IoProgress, Option<KernelReceiveWallTime>)> {
        Ok((self.read(buffer)?, None))
    }

    fn write(&self, bytes: &[u8]) -> io::Result<IoProgress>;
}

/// Opens streams and reports when they are ready.
pub(crate) trait NetworkBackend: TimeSource {
    type Stream: Stream;

    /// Begins a connection. Returns true if it is already open.
    fn connect(&self, to: &PeerAddress, from: Option<IpAddr>) -> Result<(Self::Stream, bool), ConnectError>;

    /// Registers a stream, whose events are reported under a token until it is closed.
    fn watch(&self, stream: &Self::Stream, token: u64) -> Result<(), RequestFault>;

    /// Reports a stream again that has not been drained.
    fn watch_again(&self, stream: &Self::Stream, token: u64) -> Result<(), RequestFault>;
}

impl TimeSource for EventPoller {
    #[inline]
    fn now(&self) -> Nanos {
        self.read_clock()
    }

    #[inline]
    fn is_late(&self) -> bool {
        Self::may_data_have_waited(self)
    }

    fn received(&self, stamp: KernelReceiveWallTime) -> Option<Nanos> {
        self.clock().run_time_of_kernel_stamp(stamp)
    }
}

impl NetworkBackend for EventPoller {
    type Stream = StreamSocket;

    fn connect(&self, to: &PeerAddress, from: Option<IpAddr>) -> Result<(StreamSocket, bool), ConnectError> {
        StreamSocket::connect(to, from)
    }

    fn watch(&self, stream: &StreamSocket, token: u64) -> Result<(), RequestFault> {
        Self::watch(self, std::os::fd::AsFd::as_fd(stream), token).map_err(local)
    }

    fn watch_again(&self, stream: &StreamSocket, token: u64) -> Result<(), RequestFault> {
        Self::watch_again(self, std::os::fd::AsFd::as_fd(stream), token).map_err(local)
    }
}

fn local(error: rustix::io::Errno) -> RequestFault {
    RequestFault::Local(io::Error::from(error).kind())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;
    use seawall_testkit::closure_server::Server;

    use super::pool::ConnectionPool;
    use super::route_table::{RouteResolver, RouteTable};
    use super::*;
    use crate::clock::{RunClock, SECOND};
    use crate::in_flight::RequestRef;
    use crate::poller::Event;
    use crate::request::RequestFraming;
    use crate::request_source::RequestList;
    use crate::schedule::Arrival;
    use crate::target::{Target, Weight};

    #[test]
    fn a_stamp_from_before_the_request_or_from_the_future_is_not_believed() {
        let came = |received| ArrivalTime::new(received, 30).for_request_sent_at(10);
        assert_eq!([Some(10), Some(20), Some(30)].map(came), [10, 20, 30]);
        assert_eq!([Some(9), Some(31), None].map(came), [30; 3]);
    }

    /// A client of one server, whose thread is the test's.
    struct Client {
        pool: ConnectionPool<EventPoller>,
        flights: InFlightTable,
        supply: SenderRequests,
        stats: LoadStats,
        events: Vec<Event>,
    }

    impl Client {
        fn of(url: String) -> Self {
            let target = Target { method: "GET".into(), url, ..Target::default() };
            let request = PreparedRequest::new(&target, &RequestFraming::default()).unwrap();
            let list = RequestList::new(vec![(request, Weight::default())]).unwrap();
            let network = EventPoller::new(RunClock::start()).unwrap();
            let (reply, replies) = channel();
            let waker = network.waker();
            let resolver = RouteResolver {
                lookup_request_sender: channel().0,
                reply_sender: reply,
                reply_receiver: replies,
                waker,
                pending_lookups: 0,
            };
            let making = connector_config::ConnectorConfig {
                tls: None,
                may_negotiate_http2: false,
                h2c: false,
                max_streams: 1,
                keep_alive: true,
                dial: Arc::default(),
                connections_begun: Arc::default(),
            };
            let limits = connector_config::ConnectionLimits {
                connections: 1,
                max_idle: 1,
                requests: u64::MAX,
                age: Nanos::MAX,
                http2_connections: 1,
                opening_step_timeout: SECOND,
                source_addresses: source_addresses::SourceAddresses::default(),
            };
            let sources = source_addresses::SourceAddresses::default();
            let mut routes = RouteTable::new(&HashMap::new(), making, sources, resolver);
            routes.register_requests(list.requests());
            Self {
                pool: ConnectionPool::new(network, routes, limits),
                flights: InFlightTable::new(),
                supply: SenderRequests::from_list(list, &RequestFraming::default()),
                stats: LoadStats::default(),
                events: EventPoller::new_event_buffer(),
            }
        }

        fn act(
            &mut self,
            act: impl FnOnce(&mut ConnectionPool<EventPoller>, Nanos, &mut TransportContext<'_>),
        ) {
            let now = self.pool.network.now();
            let Self { pool, flights, supply, stats, .. } = self;
            act(pool, now, &mut TransportContext { flights, requests: supply, stats });
        }

        fn ask(&mut self) {
            let hit = Arrival { seq: 0, due: 0 };
            let key = self.flights.insert(hit, RequestRef::Listed(0), 0, Nanos::MAX);
            self.act(|pool, now, desk| pool.assign(key, now, desk));
        }

        /// Runs turns of the loop until an event of this kind is reported.
        fn until<R>(&mut self, told: impl Fn(RequestEvent) -> Option<R>) -> R {
            loop {
                if let Some(event) = self.pool.next_event() {
                    if let Some(it) = told(event) {
                        return it;
                    }
                    continue;
                }
                let mut events = std::mem::take(&mut self.events);
                self.pool.network.poll(&mut events).unwrap();
                for event in &events {
                    let token = crate::poller::event_socket_token(event).unwrap();
                    self.act(|pool, now, desk| pool.drive(token, event.flags, now, desk));
                }
                self.act(ConnectionPool::drive_marked_connections);
                self.events = events;
            }
        }

        /// Waits outside the loop until the kernel has a response, and then for the time after which this thread is late.
        fn be_late(&self) -> Nanos {
            let (_, connection) = self.pool.connections.iter().next().unwrap();
            let wait = |stream: &StreamSocket| {
                while poll(&mut [PollFd::new(stream, PollFlags::IN)], None) == Err(Errno::INTR) {}
            };
            connection.with_stream(wait).unwrap();
            let clock = *self.pool.network.clock();
            let there = clock.now();
            while clock.now() < there + SECOND / 1000 {}
            there
        }
    }

    #[test]
    fn a_late_reader_dates_an_answer_by_the_kernel() {
        let server = Server::start_answering(*b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        let mut client = Client::of(format!("http://{}/", server.address()));
        // The kernel may not be ready yet to stamp the first data.
        for _ in 0..100 {
            client.ask();
            let sent = client.until(|event| match event {
                RequestEvent::Sent(_, at) => Some(at),
                _ => None,
            });
            let there = client.be_late();
            let (key, at) = client.until(|event| match event {
                RequestEvent::Done(key, at) => Some((key, at)),
                _ => None,
            });
            client.flights.remove(key);
            assert!(at.read_at > there + SECOND / 1000);
            // The time is later only if this thread lost the CPU between two looks at clocks.
            if (sent..=there).contains(&at.for_request_sent_at(sent)) {
                return;
            }
        }
        panic!("no answer is dated by the kernel");
    }
}
