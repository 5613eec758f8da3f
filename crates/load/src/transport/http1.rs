//! HTTP/1.1 on an open stream: one request at a time.

use super::maybe_tls_stream::MaybeTlsStream;
use super::response_parser::{CaptureOptions, ParseProgress, ReceivedResponse, ResponseParser};
use super::socket::IoProgress;
use super::{
    ArrivalTime, ConnectionTurn, FailureStage, ReadBudget, RequestEvent, Stream, TimeSource, TransportContext,
};
use crate::clock::{KernelReceiveWallTime, Nanos};
use crate::in_flight::InFlightKey;
use crate::request::PreparedRequest;
use crate::request_failure_reason::RequestFault;

/// An HTTP/1.1 connection, which carries one request at a time.
#[derive(Debug)]
pub(crate) struct Http1Connection<S> {
    pub(crate) stream: MaybeTlsStream<S>,
    flight: Option<InFlightKey>,
    exchange: ResponseParser,
    /// The number of request bytes that the stream has accepted.
    written: usize,
    /// True if the system has accepted the whole request, including data that TLS held back.
    wrote: bool,
    /// True if the response has begun.
    headed: bool,
    /// The time when the kernel received the start of the response, if the kernel was asked.
    began: Option<KernelReceiveWallTime>,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Http1Outcome {
    pub(crate) key: InFlightKey,
    /// True if the connection can carry another request; or the fault, with the stage that the request had reached.
    pub(crate) reusable_or_fault: Result<bool, (RequestFault, FailureStage)>,
    pub(crate) at: ArrivalTime,
}

/// The result of a read.
enum Received {
    /// The response is not complete.
    More,
    /// The response is complete; `clean` is false if bytes came after its end.
    Done { clean: bool },
}

impl<S: Stream> Http1Connection<S> {
    pub(crate) fn new(link: MaybeTlsStream<S>) -> Self {
        Self {
            stream: link,
            flight: None,
            exchange: ResponseParser::new(),
            written: 0,
            wrote: false,
            headed: false,
            began: None,
        }
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.flight.is_none()
    }

    /// True if the server sent no data without a request; messages of TLS itself do not count.
    #[cold]
    pub(crate) fn is_quiet<T: TimeSource>(&mut self, turn: &mut ConnectionTurn<'_, T>) -> bool {
        matches!(self.stream.read(turn.budget.scratch), Ok(IoProgress::WouldBlock))
    }

    /// Removes and returns the request on the connection.
    pub(crate) fn take_request(&mut self) -> Option<InFlightKey> {
        self.flight.take()
    }

    /// Takes a request, and writes as much of it as the stream accepts.
    #[inline]
    pub(crate) fn begin_request<T: TimeSource>(
        &mut self,
        key: InFlightKey,
        now: Nanos,
        turn: &mut ConnectionTurn<'_, T>,
        desk: &mut TransportContext<'_>,
    ) -> Option<Http1Outcome> {
        self.flight = Some(key);
        (self.written, self.wrote, self.headed, self.began) = (0, false, false, None);
        self.exchange.reset();
        turn.tell(RequestEvent::Sent(key, now));
        self.write(key, turn, desk).err().map(|fault| self.unwritable(key, fault, turn, desk))
    }

    /// Goes on with the request and the response.
    #[inline]
    pub(crate) fn drive<T: TimeSource>(
        &mut self,
        peer_closed: bool,
        turn: &mut ConnectionTurn<'_, T>,
        desk: &mut TransportContext<'_>,
    ) -> Option<Http1Outcome> {
        let key = self.flight?;
        if !self.wrote
            && let Err(fault) = self.write(key, turn, desk)
        {
            return Some(self.unwritable(key, fault, turn, desk));
        }
        let (request, answer) = desk.call(key);
        let received = self.receive(&mut turn.budget, request, turn.capture, answer, peer_closed);
        // After half a request, the server takes the next request for the other half (RFC 9112, section 9.3).
        let reusable = self.wrote && !request.closes() && answer.keep_alive && !peer_closed;
        let at = self.look(key, turn);
        match received {
            Ok(Received::More) => None,
            Ok(Received::Done { clean }) => self.end(key, Ok(clean && reusable), at),
            Err(fault) => self.end(key, Err((fault, self.progress())), at),
        }
    }

    /// Reports the start of the response. Returns the arrival time of the data that was read last.
    #[inline]
    fn look<T: TimeSource>(&mut self, key: InFlightKey, turn: &mut ConnectionTurn<'_, T>) -> ArrivalTime {
        let seen = turn.time.now();
        let at = turn.arrival(self.stream.receive_stamp(), seen);
        if !self.headed && !self.exchange.is_untouched() {
            self.headed = true;
            let began =
                if self.began == self.stream.receive_stamp() { at } else { turn.arrival(self.began, seen) };
            turn.tell(RequestEvent::FirstResponseByte(key, began));
        }
        at
    }

    #[expect(clippy::unnecessary_wraps, reason = "the callers return this result")]
    #[inline]
    fn end(
        &mut self,
        key: InFlightKey,
        outcome: Result<bool, (RequestFault, FailureStage)>,
        at: ArrivalTime,
    ) -> Option<Http1Outcome> {
        self.flight = None;
        Some(Http1Outcome { key, reusable_or_fault: outcome, at })
    }

    fn progress(&self) -> FailureStage {
        if self.exchange.is_untouched() { FailureStage::Sent } else { FailureStage::Answering }
    }

    #[inline]
    fn write<T: TimeSource>(
        &mut self,
        key: InFlightKey,
        turn: &mut ConnectionTurn<'_, T>,
        desk: &mut TransportContext<'_>,
    ) -> Result<(), RequestFault> {
        let (request, _) = desk.call(key);
        self.wrote = self.stream.write_all(request.bytes(), &mut self.written)?;
        if self.wrote {
            turn.tell(RequestEvent::Wrote(key, turn.time.now()));
        }
        Ok(())
    }

    /// Handles a request that cannot be written. A server that closes during the request may have sent a response with the reason
    /// (RFC 9112, section 9.5).
    #[cold]
    fn unwritable<T: TimeSource>(
        &mut self,
        key: InFlightKey,
        fault: RequestFault,
        turn: &mut ConnectionTurn<'_, T>,
        desk: &mut TransportContext<'_>,
    ) -> Http1Outcome {
        let (request, answer) = desk.call(key);
        let heard = matches!(fault, RequestFault::ConnectionIoError(_))
            && matches!(
                self.receive(&mut turn.budget, request, turn.capture, answer, true),
                Ok(Received::Done { .. })
            );
        let at = self.look(key, turn);
        self.flight = None;
        let outcome = if heard { Ok(false) } else { Err((fault, self.progress())) };
        Http1Outcome { key, reusable_or_fault: outcome, at }
    }

    #[inline]
    fn receive(
        &mut self,
        budget: &mut ReadBudget<'_>,
        request: &PreparedRequest,
        keep: CaptureOptions,
        answer: &mut ReceivedResponse,
        peer_closed: bool,
    ) -> Result<Received, RequestFault> {
        let room = budget.scratch.len();
        for _ in 0..ReadBudget::READS {
            let count = match self.stream.read(budget.scratch)? {
                IoProgress::Bytes(count) => count,
                IoProgress::WouldBlock => return Ok(Received::More),
            };
            if count == 0 {
                self.exchange.end_of_input()?;
                return Ok(Received::Done { clean: false });
            }
            if !self.headed && self.exchange.is_untouched() {
                self.began = self.stream.receive_stamp();
            }
            let more = self.stream.may_have_more(count, room);
            let input = &budget.scratch[..count];
            if let ParseProgress::Done { clean } =
                self.exchange.feed(input, request.method(), keep, answer)?
            {
                // A full buffer may end with the response by chance: the data after it is not known.
                return Ok(Received::Done { clean: clean && count < room });
            }
            if !more && !peer_closed {
                return Ok(Received::More);
            }
        }
        budget.is_spent = true;
        Ok(Received::More)
    }
}
