//! One connection: a socket, the answer on its way, and the flight it serves.
//!
//! Moves bytes and says what that came to; which request comes next, and what a failure means for it, is the shard's
//! business.

use std::os::fd::AsFd;

use crate::clock::Nanos;
use crate::exchange::{Answer, Exchange, Keep, Step};
use crate::fault::Fault;
use crate::flights::FlightKey;
use crate::poller::EventFlags;
use crate::socket::{Moved, Socket};

/// A connection in the shard's table.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) route: usize,
    pub(crate) flight: Option<FlightKey>,
    pub(crate) opened: Nanos,
    /// Answers it has brought.
    pub(crate) served: u64,
    /// Addresses that may still be tried for its first flight if this one refuses.
    pub(crate) alternatives: usize,
    /// Tells events of this connection from those of an earlier one in the same place.
    pub(crate) generation: u32,
    socket: Socket,
    connected: bool,
    exchange: Exchange,
    written: usize,
    peer_closed: bool,
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
    pub(crate) fn new(
        socket: Socket,
        connected: bool,
        route: usize,
        alternatives: usize,
        opened: Nanos,
        generation: u32,
    ) -> Self {
        Self {
            route,
            flight: None,
            opened,
            served: 0,
            alternatives,
            generation,
            socket,
            connected,
            exchange: Exchange::new(),
            written: 0,
            peer_closed: false,
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    /// The socket is writable or broken: says which.
    pub(crate) fn finish_connect(&mut self) -> Result<(), Fault> {
        self.socket.finish_connect().map_err(|error| Fault::Connect(error.kind()))?;
        self.connected = true;
        Ok(())
    }

    /// Remembers what the poller said about the other side.
    #[inline]
    pub(crate) fn note(&mut self, flags: EventFlags) {
        self.peer_closed |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    }

    /// Takes a flight on.
    #[inline]
    pub(crate) fn begin(&mut self, flight: FlightKey) {
        self.flight = Some(flight);
        self.written = 0;
        self.exchange.reset();
    }

    /// Writes what the socket takes of a request. True when all of it is out.
    #[inline]
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<bool, Fault> {
        while self.written < request.len() {
            match self.socket.write(&request[self.written..]) {
                Ok(Moved::Bytes(count)) => self.written += count,
                Ok(Moved::Later) => return Ok(false),
                Err(error) => return Err(Fault::Broken(error.kind())),
            }
        }
        Ok(true)
    }

    /// Whether a part of the request is still to be written.
    #[inline]
    pub(crate) fn is_sending(&self, request: &[u8]) -> bool {
        self.written < request.len()
    }

    /// Reads what there is.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        method: &str,
        keep: Keep,
        answer: &mut Answer,
    ) -> Result<Received, Fault> {
        for _ in 0..READS_IN_A_ROW {
            let count = match self.socket.read(scratch) {
                Ok(Moved::Bytes(count)) => count,
                Ok(Moved::Later) => return Ok(Received::More { begun: !self.exchange.is_untouched() }),
                Err(error) => return Err(self.read_fault(error.kind())),
            };
            if count == 0 {
                self.exchange.end()?;
                return Ok(Received::Done { reusable: false });
            }
            if let Step::Done { clean } = self.exchange.feed(&scratch[..count], method, keep, answer)? {
                let reusable = clean && answer.keep_alive && !self.peer_closed && count < scratch.len();
                return Ok(Received::Done { reusable });
            }
            if count < scratch.len() && !self.peer_closed {
                return Ok(Received::More { begun: true });
            }
        }
        Ok(Received::Rest)
    }

    /// A reset before the first byte of an answer is an early close, as far as a retry is concerned.
    fn read_fault(&self, kind: std::io::ErrorKind) -> Fault {
        if self.exchange.is_untouched() && kind == std::io::ErrorKind::ConnectionReset && self.served > 0 {
            Fault::ClosedEarly
        } else {
            Fault::Broken(kind)
        }
    }

    /// Whether a request that failed here may be sent again: the connection was an old one and nothing came back.
    pub(crate) fn was_stale(&self) -> bool {
        self.served > 0 && self.exchange.is_untouched()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
