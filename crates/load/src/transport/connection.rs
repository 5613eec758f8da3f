//! One connection, whatever is spoken on it: opening, open, or waiting for the last of its requests.
//!
//! Moves bytes and tells [`ConnectionEvent`]s and [`RequestEvent`]s; which request comes next, and what a failure means for it, is not known here.

use super::http1::{Http1Connection, Http1Outcome};
use super::http2::Http2Connection;
use super::opening::{OpeningTimes, PendingConnection};
use super::{
    ConnectionEvent, ConnectionTurn, FailureStage, RequestEvent, Stream, TimeSource, TransportContext,
    TransportFailure,
};
use crate::clock::Nanos;
use crate::in_flight::InFlightKey;
use crate::poller::EventFlags;
use crate::record::ConnectionTimings;
use crate::request_fault::RequestFault;

/// A connection in the pool's table.
#[derive(Debug)]
pub(crate) struct PooledConnection<S: 'static> {
    pub(crate) route: usize,
    pub(crate) opening_started: Nanos,
    /// Addresses that may still be tried if this one refuses.
    pub(crate) untried_addresses: usize,
    /// Tells events of this connection from those of an earlier one in the same place.
    pub(crate) generation: u32,
    /// The pool knows that there is room on it.
    pub(crate) is_in_ready_list: bool,
    /// Something is to be done without an event.
    pub(crate) needs_drive: bool,
    /// It is for one request.
    pub(crate) single_request: bool,
    /// Requests that it was given.
    pub(crate) requests_begun: u64,
    /// Answers that it has brought.
    served: u64,
    /// Its number in the run.
    number: u64,
    /// The durations of the steps of opening.
    took: OpeningTimes,
    /// Since when it carries nothing, if that is to be told.
    idle_since: Nanos,
    stage: ConnectionStage,
    speaks: ConnectionProtocol<S>,
    peer_closed: bool,
    /// Something may have come while it was opened, of which the poller will not speak again.
    missed_readiness: bool,
}

/// The stage of a connection's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionStage {
    Opening,
    Open,
    /// Carries what it has, and nothing new.
    Retiring,
}

/// The protocol of a connection.
#[derive(Debug)]
pub(crate) enum ConnectionProtocol<S: 'static> {
    Opening(Box<PendingConnection<S>>),
    Http1(Http1Connection<S>),
    Http2(Box<Http2Connection<S>>),
    /// It is over.
    None,
}

impl<S: Stream> PooledConnection<S> {
    /// A connection whose stream has been told to connect.
    pub(crate) fn new(
        stream: S,
        route: usize,
        alternatives: usize,
        opened: Nanos,
        (generation, number): (u32, u64),
    ) -> Self {
        Self {
            route,
            opening_started: opened,
            untried_addresses: alternatives,
            generation,
            is_in_ready_list: false,
            needs_drive: false,
            single_request: false,
            requests_begun: 0,
            served: 0,
            number,
            took: OpeningTimes::default(),
            idle_since: opened,
            stage: ConnectionStage::Opening,
            speaks: ConnectionProtocol::Opening(Box::new(PendingConnection::new(stream, opened))),
            peer_closed: false,
            missed_readiness: false,
        }
    }

    #[inline]
    pub(crate) fn stage(&self) -> ConnectionStage {
        self.stage
    }

    /// Returns the time when the present step of opening began.
    pub(crate) fn opening_step_started(&self) -> Option<Nanos> {
        match &self.speaks {
            ConnectionProtocol::Opening(opening) => Some(opening.step_started),
            _ => None,
        }
    }

    /// True if the connection must be driven once it is open, although the poller reports nothing: HTTP/2 sends first, and data can have come with
    /// the end of the TLS handshake.
    pub(crate) fn has_more_to_do(&self) -> bool {
        self.missed_readiness || self.is_http2()
    }

    /// Takes the readiness that the poller reported before the connection could handle it.
    pub(crate) fn take_missed_readiness(&mut self) -> EventFlags {
        if std::mem::take(&mut self.missed_readiness) { EventFlags::IN } else { EventFlags::empty() }
    }

    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.speaks, ConnectionProtocol::Http2(_))
    }

    /// Requests on it.
    #[inline]
    pub(crate) fn active_requests(&self) -> usize {
        match &self.speaks {
            ConnectionProtocol::Http1(http1) => usize::from(!http1.is_free()),
            ConnectionProtocol::Http2(http2) => http2.active_requests(),
            ConnectionProtocol::Opening(_) | ConnectionProtocol::None => 0,
        }
    }

    /// Requests that may be put on it now: of HTTP/1.1 one at a time.
    #[inline]
    pub(crate) fn free_capacity(&self) -> usize {
        match &self.speaks {
            _ if self.stage != ConnectionStage::Open => 0,
            ConnectionProtocol::Http1(http1) => usize::from(http1.is_free()),
            ConnectionProtocol::Http2(http2) => http2.free_capacity(),
            ConnectionProtocol::Opening(_) | ConnectionProtocol::None => 0,
        }
    }

    /// Returns the timings of the connection for the next request that it carries.
    pub(crate) fn timings(&self, now: Nanos) -> ConnectionTimings {
        let idle = if self.active_requests() == 0 { now.saturating_sub(self.idle_since) } else { 0 };
        let OpeningTimes { connect, tls } = self.took;
        ConnectionTimings {
            connection_id: self.number,
            reuse_count: self.requests_begun,
            idle,
            connect,
            tls,
            first_byte: None,
        }
    }

    /// Takes a flight on. HTTP/1.1 writes at once; what HTTP/2 has to write leaves with the next [`PooledConnection::drive`], in
    /// one go with what else was begun.
    #[inline]
    pub(crate) fn begin_request<T: TimeSource>(
        &mut self,
        key: InFlightKey,
        now: Nanos,
        turn: &mut ConnectionTurn<'_, T>,
        desk: &mut TransportContext<'_>,
    ) {
        self.requests_begun += 1;
        match &mut self.speaks {
            ConnectionProtocol::Http1(http1) => {
                if let Some(end) = http1.begin_request(key, now, turn, desk) {
                    self.ended(end, turn);
                }
            }
            ConnectionProtocol::Http2(http2) => {
                if let Err((cause, progress)) = http2.begin_request(key, desk.call(key).0) {
                    self.retire();
                    self.failed(key, cause, progress, turn);
                }
            }
            ConnectionProtocol::Opening(_) | ConnectionProtocol::None => {
                self.failed(key, RequestFault::ClosedEarly, FailureStage::Unseen, turn);
            }
        }
    }

    /// Moves bytes both ways, and tells what that came to. Without a word of the poller there is nothing new to be read.
    #[inline]
    pub(crate) fn drive<T: TimeSource>(
        &mut self,
        readiness: EventFlags,
        turn: &mut ConnectionTurn<'_, T>,
        desk: &mut TransportContext<'_>,
    ) {
        if !readiness.is_empty() {
            self.note(readiness, turn.time.is_late());
        }
        match &mut self.speaks {
            ConnectionProtocol::Http1(http1) if http1.is_free() => {
                let said = readiness.contains(EventFlags::IN) && !http1.is_quiet(turn);
                if said || self.peer_closed {
                    self.close(turn);
                }
            }
            ConnectionProtocol::Http1(http1) => {
                if let Some(end) = http1.drive(self.peer_closed, turn, desk) {
                    self.ended(end, turn);
                }
            }
            ConnectionProtocol::Http2(_) => self.drive_streams(turn, desk),
            ConnectionProtocol::Opening(_) => self.go_on_opening(readiness, turn, desk),
            ConnectionProtocol::None => {}
        }
    }

    /// Remembers what the poller said, and whether it may have been long ago.
    #[inline]
    fn note(&mut self, flags: EventFlags, late: bool) {
        self.peer_closed |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match &mut self.speaks {
            ConnectionProtocol::Opening(opening) => opening.stream.note_readable(self.peer_closed, late),
            ConnectionProtocol::Http1(http1) => http1.stream.note_readable(self.peer_closed, late),
            ConnectionProtocol::Http2(http2) => http2.note_readable(self.peer_closed, late),
            ConnectionProtocol::None => {}
        }
    }

    #[cold]
    fn go_on_opening<T: TimeSource>(
        &mut self,
        readiness: EventFlags,
        turn: &mut ConnectionTurn<'_, T>,
        desk: &mut TransportContext<'_>,
    ) {
        let ConnectionProtocol::Opening(opening) = &mut self.speaks else { return };
        let connected = readiness.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP);
        match opening.advance(connected, turn.route_config, turn.time, desk.stats) {
            Ok(false) => {}
            Ok(true) => {
                (self.took, self.idle_since) = (opening.opening_times, opening.step_started);
                if let ConnectionProtocol::Opening(opening) =
                    std::mem::replace(&mut self.speaks, ConnectionProtocol::None)
                {
                    self.speaks = opening.open(turn.route_config);
                }
                self.stage = ConnectionStage::Open;
                let told = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP;
                self.missed_readiness = readiness.intersects(told) || turn.route_config.tls.is_some();
                turn.change(ConnectionEvent::Opened);
            }
            Err(fault) => turn.change(ConnectionEvent::Refused(fault)),
        }
    }

    /// A request on an HTTP/1.1 connection has ended.
    #[inline]
    fn ended<T: TimeSource>(&mut self, end: Http1Outcome, turn: &mut ConnectionTurn<'_, T>) {
        let Http1Outcome { key, outcome, at } = end;
        let reused = self.served > 0;
        match outcome {
            Ok(reusable) => {
                self.served += 1;
                self.idle_since = at.for_request_sent_at(0);
                turn.tell(RequestEvent::Done(key, at));
                if reusable && self.stage == ConnectionStage::Open {
                    turn.change(ConnectionEvent::Free);
                } else {
                    self.close(turn);
                }
            }
            Err((cause, progress)) => {
                turn.tell(RequestEvent::Failed(TransportFailure {
                    key,
                    cause,
                    stage: progress,
                    reused,
                    at: at.seen,
                }));
                self.close(turn);
            }
        }
    }

    fn failed<T: TimeSource>(
        &mut self,
        key: InFlightKey,
        cause: RequestFault,
        progress: FailureStage,
        turn: &mut ConnectionTurn<'_, T>,
    ) {
        let failure =
            TransportFailure { key, cause, stage: progress, reused: self.served > 0, at: turn.time.now() };
        turn.tell(RequestEvent::Failed(failure));
    }

    fn drive_streams<T: TimeSource>(
        &mut self,
        turn: &mut ConnectionTurn<'_, T>,
        desk: &mut TransportContext<'_>,
    ) {
        let ConnectionProtocol::Http2(http2) = &mut self.speaks else { return };
        let served = http2.drive(self.served > 0, turn, desk);
        let (closed, empty) = (http2.is_closed(), http2.active_requests() == 0);
        self.served += served;
        if served > 0 && empty && turn.capture.connection_timings {
            self.idle_since = turn.arrival(http2.receive_stamp(), turn.time.now()).for_request_sent_at(0);
        }
        // What it has still to say to a server that is gone is of no use, and may never leave.
        let last = self.stage == ConnectionStage::Retiring || self.peer_closed;
        if closed || last && empty {
            self.close(turn);
        } else if !self.is_in_ready_list && self.free_capacity() > 0 {
            turn.change(ConnectionEvent::Free);
        }
    }

    /// Lets go of a flight that nobody waits for any more.
    pub(crate) fn cancel<T: TimeSource>(&mut self, key: InFlightKey, turn: &mut ConnectionTurn<'_, T>) {
        match &mut self.speaks {
            // Its answer would be taken for the next one's.
            ConnectionProtocol::Http1(http1) => {
                http1.take_request();
                self.close(turn);
            }
            ConnectionProtocol::Http2(http2) => http2.cancel(key),
            ConnectionProtocol::Opening(_) | ConnectionProtocol::None => {}
        }
    }

    /// No more requests; it ends with the last that it has.
    pub(crate) fn retire(&mut self) {
        if self.stage == ConnectionStage::Open {
            self.stage = ConnectionStage::Retiring;
        }
    }

    /// The end of it; what is on it has failed with it.
    pub(crate) fn break_off<T: TimeSource>(&mut self, cause: RequestFault, turn: &mut ConnectionTurn<'_, T>) {
        match &mut self.speaks {
            ConnectionProtocol::Opening(_) => return turn.change(ConnectionEvent::Refused(cause)),
            ConnectionProtocol::Http1(http1) => {
                if let Some(key) = http1.take_request() {
                    self.failed(key, cause, FailureStage::Answering, turn);
                }
            }
            ConnectionProtocol::Http2(http2) => http2.break_off(cause, self.served > 0, turn),
            ConnectionProtocol::None => {}
        }
        self.close(turn);
    }

    fn close<T: TimeSource>(&mut self, turn: &mut ConnectionTurn<'_, T>) {
        self.stage = ConnectionStage::Retiring;
        turn.change(ConnectionEvent::Closed);
    }

    /// Lets the network have the stream.
    pub(crate) fn with_stream<R>(&self, use_it: impl FnOnce(&S) -> R) -> Option<R> {
        match &self.speaks {
            ConnectionProtocol::Opening(opening) => Some(use_it(opening.stream.stream())),
            ConnectionProtocol::Http1(http1) => Some(use_it(http1.stream.stream())),
            ConnectionProtocol::Http2(http2) => Some(http2.with_stream(use_it)),
            ConnectionProtocol::None => None,
        }
    }
}
