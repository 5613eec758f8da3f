//! HTTP/1.1 on an open link: one request at a time.

use super::exchange::{Answer, Exchange, Keep, Step};
use super::link::Link;
use super::socket::Moved;
use super::{Budget, Desk, Event, Progress, Stream, Time, Turn};
use crate::clock::Nanos;
use crate::fault::Fault;
use crate::flights::FlightKey;
use crate::request::Request;

/// One request at a time.
#[derive(Debug)]
pub(crate) struct Http1<S> {
    pub(crate) link: Link<S>,
    flight: Option<FlightKey>,
    exchange: Exchange,
    /// Bytes of the request that the link has taken.
    written: usize,
    /// The system has taken all of it, also what TLS held.
    wrote: bool,
    /// The answer has begun.
    headed: bool,
}

/// How a request ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub(crate) key: FlightKey,
    /// Whether the connection may carry another one; or why there is no answer, and how far it had come.
    pub(crate) outcome: Result<bool, (Fault, Progress)>,
    pub(crate) at: Nanos,
}

/// What a readable link brought.
enum Received {
    /// Nothing yet, or not all.
    More,
    /// A complete answer, after which the connection is where it should be or not.
    Done { clean: bool },
}

impl<S: Stream> Http1<S> {
    pub(crate) fn new(link: Link<S>) -> Self {
        Self { link, flight: None, exchange: Exchange::new(), written: 0, wrote: false, headed: false }
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.flight.is_none()
    }

    /// Whether a server that nobody has asked says nothing; what TLS has to say for itself is nothing.
    #[cold]
    pub(crate) fn is_quiet<T: Time>(&mut self, turn: &mut Turn<'_, T>) -> bool {
        matches!(self.link.read(turn.budget.scratch), Ok(Moved::Later))
    }

    /// The flight on it, which is let go.
    pub(crate) fn take(&mut self) -> Option<FlightKey> {
        self.flight.take()
    }

    /// Takes a flight on, and writes what the link takes of its request.
    #[inline]
    pub(crate) fn begin<T: Time>(
        &mut self,
        key: FlightKey,
        now: Nanos,
        turn: &mut Turn<'_, T>,
        desk: &mut Desk<'_>,
    ) -> Option<End> {
        self.flight = Some(key);
        (self.written, self.wrote, self.headed) = (0, false, false);
        self.exchange.reset();
        turn.tell(Event::Sent(key, now));
        self.write(key, turn, desk).err().map(|fault| self.unwritable(key, fault, turn, desk))
    }

    /// Goes on with the request and the answer.
    #[inline]
    pub(crate) fn drive<T: Time>(
        &mut self,
        peer_closed: bool,
        turn: &mut Turn<'_, T>,
        desk: &mut Desk<'_>,
    ) -> Option<End> {
        let key = self.flight?;
        if !self.wrote
            && let Err(fault) = self.write(key, turn, desk)
        {
            return Some(self.unwritable(key, fault, turn, desk));
        }
        let (request, answer) = desk.call(key);
        let received = self.receive(&mut turn.budget, request, turn.keep, answer, peer_closed);
        // After half a request the server takes the next one for the other half (RFC 9112, section 9.3).
        let reusable = self.wrote && !request.close && answer.keep_alive && !peer_closed;
        let at = self.look(key, turn);
        match received {
            Ok(Received::More) => None,
            Ok(Received::Done { clean }) => self.end(key, Ok(clean && reusable), at),
            Err(fault) => self.end(key, Err((fault, self.progress())), at),
        }
    }

    /// Tells when the answer has begun.
    #[inline]
    fn look<T: Time>(&mut self, key: FlightKey, turn: &mut Turn<'_, T>) -> Nanos {
        let at = turn.time.now();
        if !self.headed && !self.exchange.is_untouched() {
            self.headed = true;
            turn.tell(Event::Head(key, at));
        }
        at
    }

    #[expect(clippy::unnecessary_wraps, reason = "how its callers end")]
    #[inline]
    fn end(&mut self, key: FlightKey, outcome: Result<bool, (Fault, Progress)>, at: Nanos) -> Option<End> {
        self.flight = None;
        Some(End { key, outcome, at })
    }

    fn progress(&self) -> Progress {
        if self.exchange.is_untouched() { Progress::Sent } else { Progress::Answering }
    }

    #[inline]
    fn write<T: Time>(
        &mut self,
        key: FlightKey,
        turn: &mut Turn<'_, T>,
        desk: &mut Desk<'_>,
    ) -> Result<(), Fault> {
        let (request, _) = desk.call(key);
        self.wrote = self.link.write_all(request.bytes(), &mut self.written)?;
        if self.wrote {
            turn.tell(Event::Wrote(key, turn.time.now()));
        }
        Ok(())
    }

    /// A request cannot be written. A server that closes while it is being written to may have said why (RFC 9112,
    /// section 9.5).
    #[cold]
    fn unwritable<T: Time>(
        &mut self,
        key: FlightKey,
        fault: Fault,
        turn: &mut Turn<'_, T>,
        desk: &mut Desk<'_>,
    ) -> End {
        let (request, answer) = desk.call(key);
        let heard = matches!(fault, Fault::Broken(_))
            && matches!(
                self.receive(&mut turn.budget, request, turn.keep, answer, true),
                Ok(Received::Done { .. })
            );
        let at = self.look(key, turn);
        self.flight = None;
        let outcome = if heard { Ok(false) } else { Err((fault, self.progress())) };
        End { key, outcome, at }
    }

    #[inline]
    fn receive(
        &mut self,
        budget: &mut Budget<'_>,
        request: &Request,
        keep: Keep,
        answer: &mut Answer,
        peer_closed: bool,
    ) -> Result<Received, Fault> {
        let room = budget.scratch.len();
        for _ in 0..Budget::READS {
            let count = match self.link.read(budget.scratch)? {
                Moved::Bytes(count) => count,
                Moved::Later => return Ok(Received::More),
            };
            if count == 0 {
                self.exchange.end()?;
                return Ok(Received::Done { clean: false });
            }
            let more = self.link.may_have_more(count, room);
            let input = &budget.scratch[..count];
            if let Step::Done { clean } = self.exchange.feed(input, &request.method, keep, answer)? {
                // A full buffer may be the end of an answer by chance: what follows it is not known.
                return Ok(Received::Done { clean: clean && count < room });
            }
            if !more && !peer_closed {
                return Ok(Received::More);
            }
        }
        budget.spent = true;
        Ok(Received::More)
    }
}
