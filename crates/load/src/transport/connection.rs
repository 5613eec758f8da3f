//! One connection with any protocol: opening, open, or waiting for the last of its requests.
//!
//! Moves bytes and reports [`ConnectionEvent`]s and [`RequestEvent`]s. The pool decides which request comes next, and the send
//! loop handles failures.

use super::connection_setup::{OpeningTimes, PendingConnection};
use super::http1::{Http1Connection, Http1Outcome};
use super::http2::Http2Connection;
use super::{
    ConnectionEvent, ConnectionTurn, FailureStage, RequestEvent, Stream, TimeSource, TransportContext,
    TransportFailure,
};
use crate::clock::Nanos;
use crate::in_flight::InFlightKey;
use crate::poller::EventFlags;
use crate::record::ConnectionTimings;
use crate::request_failure_reason::RequestFault;

/// A connection in the pool's table.
#[derive(Debug)]
pub(crate) struct PooledConnection<S: 'static> {
    pub(crate) route_index: usize,
    pub(crate) opening_started: Nanos,
    /// The number of addresses that may still be tried if this one refuses.
    pub(crate) untried_address_count: usize,
    /// Distinguishes events of this connection from those of an earlier one at the same index.
    pub(crate) slot_generation: u32,
    /// True if the route's list of ready connections contains this one.
    pub(crate) is_in_ready_list: bool,
    /// True if the connection must be driven without an event.
    pub(crate) needs_drive: bool,
    /// True if the connection is for one request only.
    pub(crate) single_request: bool,
    /// The number of requests that it was given.
    pub(crate) requests_begun: u64,
    /// The number of responses that it has received.
    served: u64,
    /// The number of the connection in the run.
    number: u64,
    /// The durations of the steps of opening.
    took: OpeningTimes,
    /// The time since which it carries no request, if the run keeps connection timings.
    idle_since: Nanos,
    stage: ConnectionStage,
    speaks: ConnectionProtocol<S>,
    peer_closed: bool,
    /// True if data may have come while it was opened; the poller does not report it again.
    missed_readiness: bool,
}

/// The stage of a connection's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionStage {
    Opening,
    Open,
    /// Carries its requests in flight, and no new ones.
    Retiring,
}

/// The protocol of a connection.
#[derive(Debug)]
pub(crate) enum ConnectionProtocol<S: 'static> {
    Opening(Box<PendingConnection<S>>),
    Http1(Http1Connection<S>),
    Http2(Box<Http2Connection<S>>),
    /// The connection has ended.
    Ended,
}

impl<S: Stream> PooledConnection<S> {
    /// Makes a connection whose stream has begun to connect.
    pub(crate) fn new(
        stream: S,
        route: usize,
        alternatives: usize,
        opened: Nanos,
        (generation, number): (u32, u64),
    ) -> Self {
        Self {
            route_index: route,
            opening_started: opened,
            untried_address_count: alternatives,
            slot_generation: generation,
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

    /// True if the connection must be driven once it is open, although the poller reports nothing: HTTP/2 sends first, and data
    /// can have come with the end of the TLS handshake.
    pub(crate) fn needs_drive_when_open(&self) -> bool {
        self.missed_readiness || self.is_http2()
    }

    /// Takes the readiness that the poller reported before the connection could handle it.
    pub(crate) fn take_missed_readiness(&mut self) -> EventFlags {
        if std::mem::take(&mut self.missed_readiness) { EventFlags::IN } else { EventFlags::empty() }
    }

    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.speaks, ConnectionProtocol::Http2(_))
    }

    /// Returns the number of requests on the connection.
    #[inline]
    pub(crate) fn active_requests(&self) -> usize {
        match &self.speaks {
            ConnectionProtocol::Http1(http1) => usize::from(!http1.is_free()),
            ConnectionProtocol::Http2(http2) => http2.active_requests(),
            ConnectionProtocol::Opening(_) | ConnectionProtocol::Ended => 0,
        }
    }

    /// Returns the number of requests that the connection can take now; HTTP/1.1 takes one at a time.
    #[inline]
    pub(crate) fn free_capacity(&self) -> usize {
        match &self.speaks {
            _ if self.stage != ConnectionStage::Open => 0,
            ConnectionProtocol::Http1(http1) => usize::from(http1.is_free()),
            ConnectionProtocol::Http2(http2) => http2.free_capacity(),
            ConnectionProtocol::Opening(_) | ConnectionProtocol::Ended => 0,
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

    /// Takes a request. HTTP/1.1 writes it at once; HTTP/2 writes it with the next [`PooledConnection::drive`], together with
    /// other new requests.
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
            ConnectionProtocol::Opening(_) | ConnectionProtocol::Ended => {
                self.failed(key, RequestFault::ClosedEarly, FailureStage::NotProcessed, turn);
            }
        }
    }

    /// Moves bytes both ways and reports the events. Nothing new can be read unless the poller reported readiness.
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
            ConnectionProtocol::Ended => {}
        }
    }

    /// Notes the readiness that the poller reported, and if this thread is late.
    #[inline]
    fn note(&mut self, flags: EventFlags, late: bool) {
        self.peer_closed |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match &mut self.speaks {
            ConnectionProtocol::Opening(opening) => opening.stream.note_readable(self.peer_closed, late),
            ConnectionProtocol::Http1(http1) => http1.stream.note_readable(self.peer_closed, late),
            ConnectionProtocol::Http2(http2) => http2.note_readable(self.peer_closed, late),
            ConnectionProtocol::Ended => {}
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
                    std::mem::replace(&mut self.speaks, ConnectionProtocol::Ended)
                {
                    self.speaks = opening.into_http1_or_http2(turn.route_config);
                }
                self.stage = ConnectionStage::Open;
                let told = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP;
                self.missed_readiness = readiness.intersects(told) || turn.route_config.tls.is_some();
                turn.change(ConnectionEvent::Opened);
            }
            Err(fault) => turn.change(ConnectionEvent::Refused(fault)),
        }
    }

    /// Handles the end of a request on an HTTP/1.1 connection.
    #[inline]
    fn ended<T: TimeSource>(&mut self, end: Http1Outcome, turn: &mut ConnectionTurn<'_, T>) {
        let Http1Outcome { key, reusable_or_fault: outcome, at } = end;
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
                    at: at.read_at,
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
        if served > 0 && empty && turn.capture.keep_connection_timings {
            self.idle_since = turn.arrival(http2.receive_stamp(), turn.time.now()).for_request_sent_at(0);
        }
        // Unsent data to a server that has closed its side is useless and may never leave.
        let last = self.stage == ConnectionStage::Retiring || self.peer_closed;
        if closed || last && empty {
            self.close(turn);
        } else if !self.is_in_ready_list && self.free_capacity() > 0 {
            turn.change(ConnectionEvent::Free);
        }
    }

    /// Cancels a request that has been given up.
    pub(crate) fn cancel<T: TimeSource>(&mut self, key: InFlightKey, turn: &mut ConnectionTurn<'_, T>) {
        match &mut self.speaks {
            // The next request would get the response to this one.
            ConnectionProtocol::Http1(http1) => {
                http1.take_request();
                self.close(turn);
            }
            ConnectionProtocol::Http2(http2) => http2.cancel(key),
            ConnectionProtocol::Opening(_) | ConnectionProtocol::Ended => {}
        }
    }

    /// Takes no more requests; the connection ends with its last request.
    pub(crate) fn retire(&mut self) {
        if self.stage == ConnectionStage::Open {
            self.stage = ConnectionStage::Retiring;
        }
    }

    /// Ends the connection with a fault, which is also that of its requests.
    pub(crate) fn break_off<T: TimeSource>(&mut self, cause: RequestFault, turn: &mut ConnectionTurn<'_, T>) {
        match &mut self.speaks {
            ConnectionProtocol::Opening(_) => return turn.change(ConnectionEvent::Refused(cause)),
            ConnectionProtocol::Http1(http1) => {
                if let Some(key) = http1.take_request() {
                    self.failed(key, cause, FailureStage::Answering, turn);
                }
            }
            ConnectionProtocol::Http2(http2) => http2.break_off(cause, self.served > 0, turn),
            ConnectionProtocol::Ended => {}
        }
        self.close(turn);
    }

    fn close<T: TimeSource>(&mut self, turn: &mut ConnectionTurn<'_, T>) {
        self.stage = ConnectionStage::Retiring;
        turn.change(ConnectionEvent::Closed);
    }

    /// Passes the stream to a function of the network.
    pub(crate) fn with_stream<R>(&self, use_it: impl FnOnce(&S) -> R) -> Option<R> {
        match &self.speaks {
            ConnectionProtocol::Opening(opening) => Some(use_it(opening.stream.stream())),
            ConnectionProtocol::Http1(http1) => Some(use_it(http1.stream.stream())),
            ConnectionProtocol::Http2(http2) => Some(http2.with_stream(use_it)),
            ConnectionProtocol::Ended => None,
        }
    }
}
