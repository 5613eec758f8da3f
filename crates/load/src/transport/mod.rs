//! How a request travels: connections that are opened for a route, carry calls, and tell what came of it.
//!
//! A [`connection::Connection`] moves bytes over a `link` and speaks `http1` or `http2`. What it has to tell are [`Change`]s
//! of its own, which the [`pool::Pool`] takes, and [`Event`]s of flights, which the loop takes. Nothing here knows a schedule, and nothing but [`Network`] knows the system: tests put a simulated one in
//! its place.

use std::io;
use std::net::IpAddr;

use crate::clock::Nanos;
use crate::fault::Fault;
use crate::flights::{FlightKey, Flights};
use crate::poller::Poller;
use crate::request::Request;
use crate::stats::Stats;
use crate::supply::Supply;

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

use exchange::{Answer, Keep};
use making::Path;
use socket::{Address, ConnectError, Moved, Socket};
use told::Told;

/// What a connection has to tell of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It may carry requests.
    Opened,
    /// It could not be opened.
    Refused(Fault),
    /// There is room on it again.
    Free,
    /// It is over; so is whatever was on it, which is told apart.
    Closed,
}

/// What a connection has to tell of a flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The first byte of a request leaves.
    Sent(FlightKey, Nanos),
    /// The last byte of a request was handed to the system.
    Wrote(FlightKey, Nanos),
    /// The first byte of an answer has come, over HTTP/2 its head.
    Head(FlightKey, Nanos),
    /// The answer is complete.
    Done(FlightKey, Nanos),
    /// There will be no answer.
    Failed(Failure),
    /// There is no connection to be had for this flight.
    Unreached(FlightKey, Fault),
}

impl Event {
    /// The flight that it is about.
    #[inline]
    pub(crate) fn flight(&self) -> FlightKey {
        match self {
            Self::Sent(key, _) | Self::Wrote(key, _) | Self::Head(key, _) | Self::Done(key, _) => *key,
            Self::Failed(failure) => failure.key,
            Self::Unreached(key, _) => *key,
        }
    }
}

/// A request that gets no answer on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) key: FlightKey,
    pub(crate) cause: Fault,
    pub(crate) progress: Progress,
    /// The connection had brought answers before.
    pub(crate) reused: bool,
    pub(crate) at: Nanos,
}

/// How far a request had come when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The server has not looked at it: it says so, or nothing has left.
    Unseen,
    /// The server may have looked at it.
    Sent,
    /// The server has begun to answer, or has reset it by name.
    Answering,
}

/// Where a flight is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Nowhere,
    /// It waits for a connection of this route.
    Waiting(usize),
    /// On the connection with this token.
    On(u64),
}

/// What a connection may look at and write to while it works: requests, answers, figures.
pub(crate) struct Desk<'d> {
    pub(crate) flights: &'d mut Flights,
    pub(crate) supply: &'d Supply,
    pub(crate) stats: &'d mut Stats,
}

impl Desk<'_> {
    #[inline]
    fn call(&mut self, key: FlightKey) -> (&Request, &mut Answer) {
        let flight = self.flights.of(key);
        (self.supply.request(&flight.which), &mut flight.answer)
    }
}

/// What a connection works with in one turn.
pub(crate) struct Turn<'t, T> {
    pub(crate) time: &'t T,
    pub(crate) path: &'t Path,
    pub(crate) keep: Keep,
    pub(crate) budget: Budget<'t>,
    pub(crate) events: &'t mut Told<Event>,
    /// What has become of the connection. An end has the last word.
    pub(crate) change: Option<Change>,
}

impl<T: Time> Turn<'_, T> {
    #[inline]
    fn tell(&mut self, event: Event) {
        self.events.tell(event);
    }

    #[inline]
    fn change(&mut self, change: Change) {
        self.change = Some(change);
    }
}

/// How much a connection may read before others have their turn: a fast endless body must not stop the schedule, and what
/// was read and not yet looked at must not fill memory.
pub(crate) struct Budget<'t> {
    /// For one read.
    pub(crate) scratch: &'t mut [u8],
    /// It stopped reading while there may be more.
    pub(crate) spent: bool,
}

impl Budget<'_> {
    /// Full reads in one turn.
    const READS: usize = 8;

    /// Bytes in one turn, where reads are smaller than the scratch.
    fn bytes(&self) -> usize {
        Self::READS * self.scratch.len()
    }
}

/// Who knows the time.
pub(crate) trait Time {
    fn now(&self) -> Nanos;
}

/// A stream of bytes that never waits.
pub(crate) trait Stream: std::fmt::Debug + Send + 'static {
    /// How a connection attempt ended, once the stream is writable.
    fn finish_connect(&self) -> io::Result<()>;
    fn read(&self, buffer: &mut [u8]) -> io::Result<Moved>;
    fn write(&self, bytes: &[u8]) -> io::Result<Moved>;
}

/// Where streams come from, and who tells when they are ready.
pub(crate) trait Network: Time {
    type Stream: Stream;

    /// Begins a connection. True when it stands already.
    fn connect(&self, to: &Address, from: Option<IpAddr>) -> Result<(Self::Stream, bool), ConnectError>;

    /// Has a stream reported under a token until it is closed.
    fn watch(&self, stream: &Self::Stream, token: u64) -> Result<(), Fault>;

    /// Has a stream reported again that has not been drained.
    fn watch_again(&self, stream: &Self::Stream, token: u64) -> Result<(), Fault>;
}

impl Time for Poller {
    #[inline]
    fn now(&self) -> Nanos {
        self.clock().now()
    }
}

impl Network for Poller {
    type Stream = Socket;

    fn connect(&self, to: &Address, from: Option<IpAddr>) -> Result<(Socket, bool), ConnectError> {
        Socket::connect(to, from)
    }

    fn watch(&self, stream: &Socket, token: u64) -> Result<(), Fault> {
        Self::watch(self, std::os::fd::AsFd::as_fd(stream), token).map_err(local)
    }

    fn watch_again(&self, stream: &Socket, token: u64) -> Result<(), Fault> {
        Self::watch_again(self, std::os::fd::AsFd::as_fd(stream), token).map_err(local)
    }
}

fn local(error: rustix::io::Errno) -> Fault {
    Fault::Local(io::Error::from(error).kind())
}
