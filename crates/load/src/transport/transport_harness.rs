//! The transport on a network in memory. Each step is controlled, and the events of the pool are returned.
//!
//! The harness handles events like the send loop, and retries failed requests by the same table. It knows nothing of the server's
//! behaviour or of the properties to check. The simulation uses it and, with the feature `rehearsal`, so does
//! `seawall-invariants`, which fuzzing and its corpus use.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;

use super::connector_config::{ConnectionLimits, ConnectorConfig};
use super::memory_network::{MemoryNetwork, Pipe};
use super::pool::ConnectionPool;
use super::response_parser::CaptureOptions;
use super::retry::{RetryDecision, RetryPolicy, decide_retry};
use super::route_table::{RouteResolver, RouteTable};
use super::source_addresses::SourceAddresses;
use super::{RequestEvent, RequestLocation, TransportContext, TransportFailure};
use crate::clock::{Nanos, RunClock, SECOND};
use crate::in_flight::{InFlightKey, InFlightTable, RequestRef};
use crate::poller::EventPoller;
use crate::request::{PreparedRequest, RequestFraming};
use crate::request_source::{RequestList, SenderRequests};
use crate::schedule::Arrival;
use crate::stats::LoadStats;
use crate::target::{Target, Weight};

/// One client and its end of the network.
pub struct TransportHarness {
    pub(super) network: MemoryNetwork,
    pub(super) pool: ConnectionPool<MemoryNetwork>,
    pub(super) flights: InFlightTable,
    /// The number of requests in the source.
    targets: usize,
    supply: SenderRequests,
    stats: Box<LoadStats>,
    /// The requests in flight, with their numbers.
    keys: Vec<(InFlightKey, u64)>,
    hits: u64,
}

/// One event of a request, with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarnessEvent {
    /// The number of the request; `None` if it had ended before.
    pub request_number: Option<u64>,
    /// The time.
    pub at: Nanos,
    /// The event.
    pub kind: HarnessEventKind,
}

/// The kind of an event of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HarnessEventKind {
    /// The first byte of the request was sent.
    Sent,
    /// The last byte of the request was sent.
    LastRequestByte,
    /// The response has begun.
    FirstResponseByte,
    /// The request ended with a complete response.
    Answered(HarnessResponse),
    /// The request is sent again.
    Retried,
    /// The request ended without a response.
    Failed,
}

/// A complete response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarnessResponse {
    /// The index of the stream that carried it, in the order of opening.
    pub stream_index: usize,
    /// The status of the response.
    pub status: u16,
    /// The number of bytes of its body.
    pub body_byte_count: u64,
    /// The number of those bytes that were kept.
    pub kept_byte_count: usize,
    /// The method of the request.
    pub method: String,
}

/// The reason why there is no harness.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// The system refuses the descriptors that wake a thread.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The harness has no requests, or one of them is invalid.
    #[error("the rehearsal has no requests")]
    NoRequests,
}

/// The address of the simulated server.
const SERVER: &str = "http://127.0.0.1/";

/// Returns the targets, by number.
fn targets() -> [Target; 4] {
    let target = |method: &str, body: usize, headers: &[(&str, &str)]| Target {
        method: method.into(),
        url: SERVER.into(),
        body: vec![b'x'; body].into(),
        headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        ..Target::default()
    };
    [
        target("GET", 0, &[]),
        target("HEAD", 0, &[]),
        target("POST", 70_000, &[]),
        target("GET", 0, &[("Connection", "close")]),
    ]
}

impl TransportHarness {
    /// The maximum number of connections at once.
    pub const MAX_CONNECTIONS: usize = 3;

    /// The maximum number of streams on one HTTP/2 connection.
    pub const MAX_STREAMS: usize = 5;

    /// The maximum number of bytes kept of each response body.
    pub const MAX_KEPT_BYTES: usize = 1000;

    /// The number of responses after which a connection is not reused.
    const REQUESTS: u64 = 4;

    /// Makes a client of one server without TLS that speaks HTTP/1.1, or HTTP/2 with prior knowledge.
    ///
    /// # Errors
    /// [`HarnessError`].
    pub fn new(http2: bool) -> Result<Self, HarnessError> {
        let style = RequestFraming { may_use_http2: http2, ..RequestFraming::default() };
        let requests = targets()
            .iter()
            .map(|target| PreparedRequest::new(target, &style))
            .collect::<Result<Vec<_>, _>>();
        let requests = requests.map_err(|_| HarnessError::NoRequests)?;
        let making = ConnectorConfig {
            tls: None,
            may_negotiate_http2: false,
            h2c: http2,
            max_streams: Self::MAX_STREAMS,
            keep_alive: true,
            dial: Arc::default(),
            connections_begun: Arc::default(),
        };
        let limits = ConnectionLimits {
            connections: Self::MAX_CONNECTIONS,
            max_idle: Self::MAX_CONNECTIONS,
            requests: Self::REQUESTS,
            age: Nanos::MAX,
            http2_connections: 2,
            opening_step_timeout: SECOND,
            source_addresses: SourceAddresses::default(),
        };
        Self::from_requests(
            requests,
            making,
            limits,
            CaptureOptions {
                keep_location: true,
                record_body_limit: Some(Self::MAX_KEPT_BYTES),
                keep_connection_timings: true,
            },
        )
    }

    /// Makes a client that sends these requests.
    pub(super) fn from_requests(
        requests: Vec<PreparedRequest>,
        making: ConnectorConfig,
        limits: ConnectionLimits,
        keep: CaptureOptions,
    ) -> Result<Self, HarnessError> {
        let list =
            RequestList::new(requests.into_iter().map(|request| (request, Weight::default())).collect());
        let list = list.map_err(|_| HarnessError::NoRequests)?;
        let targets = list.requests().len();
        let waker = EventPoller::new(RunClock::start()).map_err(io::Error::from)?.waker();
        let (questions, (reply, replies)) = (channel().0, channel());
        let resolver = RouteResolver {
            lookup_request_sender: questions,
            reply_sender: reply,
            reply_receiver: replies,
            waker,
            pending_lookups: 0,
        };
        let mut routes = RouteTable::new(&HashMap::new(), making, SourceAddresses::default(), resolver);
        routes.register_requests(list.requests());
        let network = MemoryNetwork::default();
        let mut pool = ConnectionPool::new(network.clone(), routes, limits);
        pool.capture = keep;
        let supply = SenderRequests::from_list(list, &RequestFraming::default());
        Ok(Self {
            pool,
            targets,
            network,
            flights: InFlightTable::new(),
            supply,
            stats: Box::default(),
            keys: Vec::new(),
            hits: 0,
        })
    }

    /// Runs an action of the pool.
    pub(super) fn with_pool(
        &mut self,
        act: impl FnOnce(&mut ConnectionPool<MemoryNetwork>, Nanos, &mut TransportContext<'_>),
    ) {
        let now = self.now();
        let (flights, supply, stats) = (&mut self.flights, &self.supply, &mut *self.stats);
        act(&mut self.pool, now, &mut TransportContext { flights, requests: supply, stats });
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.network.lock_state().now
    }

    /// Advances the time.
    pub fn advance_time(&mut self, span: Nanos) {
        let mut world = self.network.lock_state();
        world.now = world.now.saturating_add(span);
    }

    /// Begins one of the requests and returns its number.
    pub fn launch(&mut self, request: usize) -> u64 {
        let (now, seq) = (self.now(), self.hits);
        self.hits += 1;
        let which = request % self.targets;
        let key =
            self.flights.insert(Arrival { seq, due: now }, RequestRef::Listed(which), which, now + SECOND);
        self.keys.push((key, seq));
        self.with_pool(|pool, now, desk| pool.assign(key, now, desk));
        seq
    }

    /// Returns the numbers of the requests that have not ended.
    pub fn unfinished_request_numbers(&self) -> impl Iterator<Item = u64> {
        self.keys.iter().map(|(_, hit)| *hit)
    }

    /// Cancels a request, as its timeout does. Returns false if it had ended.
    pub fn cancel(&mut self, hit: u64) -> bool {
        let Some(&(key, _)) = self.keys.iter().find(|(_, under_way)| *under_way == hit) else { return false };
        self.with_pool(|pool, _, desk| pool.cancel(key, desk));
        self.forget(key);
        true
    }

    fn forget(&mut self, key: InFlightKey) {
        self.keys.retain(|(under_way, _)| *under_way != key);
        self.flights.remove(key);
    }

    /// Drives the connections that have something to do without an event.
    pub fn drive_marked_connections(&mut self) {
        self.with_pool(ConnectionPool::drive_marked_connections);
    }

    /// Gives up connections that take too long to open.
    pub fn expire_attempts(&mut self) {
        self.with_pool(ConnectionPool::expire_attempts);
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<HarnessEvent> {
        let event = self.pool.next_event()?;
        let (key, at) = match event {
            RequestEvent::Sent(key, at) | RequestEvent::Wrote(key, at) => (key, at),
            RequestEvent::FirstResponseByte(key, at) | RequestEvent::Done(key, at) => {
                (key, at.for_request_sent_at(0))
            }
            RequestEvent::Failed(TransportFailure { key, at, .. }) => (key, at),
            RequestEvent::NoConnection(key, _) => (key, self.now()),
        };
        let hit = self.keys.iter().find(|(under_way, _)| *under_way == key).map(|(_, hit)| *hit);
        let what = match event {
            RequestEvent::Sent(..) => HarnessEventKind::Sent,
            RequestEvent::Wrote(..) => HarnessEventKind::LastRequestByte,
            RequestEvent::FirstResponseByte(..) => HarnessEventKind::FirstResponseByte,
            // The event is of a request that has ended: there is nothing to look up.
            _ if hit.is_none() => HarnessEventKind::Failed,
            RequestEvent::Done(..) => self.answered(key),
            RequestEvent::Failed(failure) => self.failed(failure),
            RequestEvent::NoConnection(..) => {
                self.forget(key);
                HarnessEventKind::Failed
            }
        };
        Some(HarnessEvent { request_number: hit, at, kind: what })
    }

    fn answered(&mut self, key: InFlightKey) -> HarnessEventKind {
        let flight = self.flights.get_mut(key);
        let (status, bytes, kept) =
            (flight.answer.status, flight.answer.bytes_in, flight.answer.capture.body.len());
        let method = self.supply.request(&flight.request).method().to_owned();
        let place = flight.transport_location;
        let stream = self
            .network
            .lock_state()
            .pipes
            .iter()
            .rposition(|pipe| place == RequestLocation::OnConnection(pipe.token));
        self.forget(key);
        let stream = stream.unwrap_or(usize::MAX);
        HarnessEventKind::Answered(HarnessResponse {
            stream_index: stream,
            status,
            body_byte_count: bytes,
            kept_byte_count: kept,
            method,
        })
    }

    fn failed(&mut self, failure: TransportFailure) -> HarnessEventKind {
        let key = failure.key;
        let flight = self.flights.get_mut(key);
        let idempotent = self.supply.request(&flight.request).is_idempotent();
        flight.transport_location = RequestLocation::Nowhere;
        flight.retries += 1;
        flight.answer.clear();
        let attempts = flight.retries - 1;
        match decide_retry(failure.stage, failure.reused, idempotent, attempts, RetryPolicy::GO_CLIENT) {
            RetryDecision::GiveUp => {
                self.forget(key);
                return HarnessEventKind::Failed;
            }
            RetryDecision::AnyConnection => self.with_pool(|pool, now, desk| pool.assign(key, now, desk)),
            RetryDecision::NewConnection => {
                self.with_pool(|pool, now, desk| pool.assign_to_new_connection(key, now, desk));
            }
        }
        HarnessEventKind::Retried
    }

    /// Returns the number of streams that were ever opened.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.network.lock_state().pipes.len()
    }

    /// Returns the numbers of connections, of streams that the client holds, of requests on a connection, and of waiting
    /// requests.
    #[must_use]
    pub fn held_resources(&self) -> HeldResources {
        let carried = self.pool.connections.iter().map(|(_, connection)| connection.active_requests()).sum();
        HeldResources {
            connections: self.pool.connection_count(),
            streams: self.network.lock_state().pipes.iter().filter(|pipe| !pipe.dropped_by_client).count(),
            requests_on_connections: carried,
            waiting_requests: self.pool.routes[0].waiting_requests(),
        }
    }

    pub(super) fn with_pipe<R>(&mut self, stream: usize, act: impl FnOnce(&mut Pipe) -> R) -> R {
        act(&mut self.network.lock_state().pipes[stream])
    }

    /// Connects a stream or refuses it. Does nothing if that was decided before.
    pub fn decide_connect_attempt(&mut self, stream: usize, well: bool) {
        self.with_pipe(stream, |pipe| {
            if pipe.connect_outcome.is_none() {
                (pipe.connect_outcome, pipe.has_unreported_change) = (Some(well), true);
            }
        });
    }

    /// Sends bytes from the server; false if it cannot.
    pub fn send_from_server(&mut self, stream: usize, bytes: &[u8]) -> bool {
        self.with_pipe(stream, |pipe| {
            let can = pipe.connect_outcome == Some(true)
                && pipe.closed_cleanly.is_none()
                && !pipe.dropped_by_client;
            if can {
                pipe.to_client.extend(bytes);
                pipe.has_unreported_change |= !bytes.is_empty();
            }
            can
        })
    }

    /// Ends a stream from the server's side, normally or by a reset.
    pub fn end_stream(&mut self, stream: usize, well: bool) {
        self.with_pipe(stream, |pipe| {
            if pipe.connect_outcome == Some(true) && pipe.closed_cleanly.is_none() {
                (pipe.closed_cleanly, pipe.has_unreported_change) = (Some(well), true);
            }
        });
    }

    /// Sets the number of bytes that the client may write from now on.
    pub fn set_write_room(&mut self, stream: usize, room: usize) {
        self.with_pipe(stream, |pipe| {
            pipe.has_unreported_change |= pipe.room == 0 && room > 0;
            pipe.room = room;
        });
    }

    /// Returns the number of bytes that the server has sent and the client has not read.
    #[must_use]
    pub fn unread_byte_count(&self, stream: usize) -> usize {
        self.network.lock_state().pipes[stream].to_client.len()
    }

    /// Reports a stream, if there is anything new about it.
    pub fn deliver_poller_report(&mut self, stream: usize) -> bool {
        let Some((token, flags)) = self.with_pipe(stream, Pipe::take_poller_report) else { return false };
        self.with_pool(|pool, now, desk| pool.drive(token, flags, now, desk));
        true
    }
}

/// The resources that a client holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldResources {
    /// The connections at any stage.
    pub connections: usize,
    /// The streams that the client has not dropped.
    pub streams: usize,
    /// The requests on a connection.
    pub requests_on_connections: usize,
    /// The requests that wait for a connection.
    pub waiting_requests: usize,
}
