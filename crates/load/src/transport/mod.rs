//! How a request travels: connections that are opened for a route, carry calls, and tell what came of it.
//!
//! A [`connection::PooledConnection`] moves bytes over a `link` and speaks `http1` or `http2`. What it has to tell are [`ConnectionEvent`]s
//! of its own, which the [`pool::ConnectionPool`] takes, and [`RequestEvent`]s of flights, which the loop takes. Nothing here knows a schedule, and nothing but [`NetworkBackend`] knows the system: tests put a simulated one in
//! its place.

use std::io;
use std::net::IpAddr;

use crate::clock::Nanos;
use crate::fault::RequestFault;
use crate::flights::{InFlightKey, InFlightTable};
use crate::poller::EventPoller;
use crate::request::PreparedRequest;
use crate::stats::LoadStats;
use crate::supply::SenderRequests;

pub(crate) mod connection;
mod dialling;
pub(crate) mod exchange;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod link;
pub(crate) mod making;
#[cfg(any(test, feature = "rehearsal"))]
mod memory;
mod opening;
pub(crate) mod pool;
#[cfg(any(test, feature = "rehearsal"))]
pub mod rehearsal;
pub(crate) mod retry;
mod room;
pub(crate) mod route;
pub(crate) mod routes;
#[cfg(test)]
mod simulation;
pub(crate) mod socket;
pub(crate) mod sources;
mod told;

use exchange::{CaptureOptions, ReceivedResponse};
use making::RouteConfig;
use socket::{ConnectError, IoProgress, PeerAddress, StreamSocket};
use told::PendingEvents;

/// What a connection has to tell of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEvent {
    /// It may carry requests.
    Opened,
    /// It could not be opened.
    Refused(RequestFault),
    /// There is room on it again.
    Free,
    /// It is over; so is whatever was on it, which is told apart.
    Closed,
}

/// What a connection has to tell of a flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEvent {
    /// The first byte of a request leaves.
    Sent(InFlightKey, Nanos),
    /// The last byte of a request was handed to the system.
    Wrote(InFlightKey, Nanos),
    /// The first byte of an answer has come, over HTTP/2 its head.
    Head(InFlightKey, Nanos),
    /// The answer is complete.
    Done(InFlightKey, Nanos),
    /// There will be no answer.
    Failed(TransportFailure),
    /// There is no connection to be had for this flight.
    NoConnection(InFlightKey, RequestFault),
}

impl RequestEvent {
    /// The flight that it is about.
    #[inline]
    pub(crate) fn key(&self) -> InFlightKey {
        match self {
            Self::Sent(key, _) | Self::Wrote(key, _) | Self::Head(key, _) | Self::Done(key, _) => *key,
            Self::Failed(failure) => failure.key,
            Self::NoConnection(key, _) => *key,
        }
    }
}

/// A request that gets no answer on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransportFailure {
    pub(crate) key: InFlightKey,
    pub(crate) cause: RequestFault,
    pub(crate) progress: FailureStage,
    /// The connection had brought answers before.
    pub(crate) reused: bool,
    pub(crate) at: Nanos,
}

/// How far a request had come when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureStage {
    /// The server has not looked at it: it says so, or nothing has left.
    Unseen,
    /// The server may have looked at it.
    Sent,
    /// The server has begun to answer, or has reset it by name.
    Answering,
}

/// Where a flight is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestLocation {
    Nowhere,
    /// It waits for a connection of this route.
    Waiting(usize),
    /// On the connection with this token.
    On(u64),
}

/// What a connection may look at and write to while it works: requests, answers, figures.
pub(crate) struct TransportContext<'d> {
    pub(crate) flights: &'d mut InFlightTable,
    pub(crate) supply: &'d SenderRequests,
    pub(crate) stats: &'d mut LoadStats,
}

impl TransportContext<'_> {
    #[inline]
    fn call(&mut self, key: InFlightKey) -> (&PreparedRequest, &mut ReceivedResponse) {
        let flight = self.flights.get_mut(key);
        (self.supply.request(&flight.request), &mut flight.answer)
    }
}

/// What a connection works with in one turn.
pub(crate) struct ConnectionTurn<'t, T> {
    pub(crate) time: &'t T,
    pub(crate) path: &'t RouteConfig,
    pub(crate) keep: CaptureOptions,
    pub(crate) budget: ReadBudget<'t>,
    pub(crate) events: &'t mut PendingEvents<RequestEvent>,
    /// What has become of the connection. An end has the last word.
    pub(crate) change: Option<ConnectionEvent>,
}

impl<T: TimeSource> ConnectionTurn<'_, T> {
    #[inline]
    fn tell(&mut self, event: RequestEvent) {
        self.events.push(event);
    }

    #[inline]
    fn change(&mut self, change: ConnectionEvent) {
        self.change = Some(change);
    }
}

/// How much a connection may read before others have their turn: a fast endless body must not stop the schedule, and what
/// was read and not yet looked at must not fill memory.
pub(crate) struct ReadBudget<'t> {
    /// For one read.
    pub(crate) scratch: &'t mut [u8],
    /// It stopped reading while there may be more.
    pub(crate) spent: bool,
}

impl ReadBudget<'_> {
    /// Full reads in one turn.
    const READS: usize = 8;

    /// Bytes in one turn, where reads are smaller than the scratch.
    fn bytes(&self) -> usize {
        Self::READS * self.scratch.len()
    }
}

/// Who knows the time.
pub(crate) trait TimeSource {
    fn now(&self) -> Nanos;
}

/// A stream of bytes that never waits.
pub(crate) trait Stream: std::fmt::Debug + Send + 'static {
    /// How a connection attempt ended, once the stream is writable.
    fn finish_connect(&self) -> io::Result<()>;
    fn read(&self, buffer: &mut [u8]) -> io::Result<IoProgress>;
    fn write(&self, bytes: &[u8]) -> io::Result<IoProgress>;
}

/// Where streams come from, and who tells when they are ready.
pub(crate) trait NetworkBackend: TimeSource {
    type Stream: Stream;

    /// Begins a connection. True when it stands already.
    fn connect(&self, to: &PeerAddress, from: Option<IpAddr>) -> Result<(Self::Stream, bool), ConnectError>;

    /// Has a stream reported under a token until it is closed.
    fn watch(&self, stream: &Self::Stream, token: u64) -> Result<(), RequestFault>;

    /// Has a stream reported again that has not been drained.
    fn watch_again(&self, stream: &Self::Stream, token: u64) -> Result<(), RequestFault>;
}

impl TimeSource for EventPoller {
    #[inline]
    fn now(&self) -> Nanos {
        self.clock().now()
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
