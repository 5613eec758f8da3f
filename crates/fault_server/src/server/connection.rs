//! A client's connection: unread input, unsent output, and its state.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use super::NanosSinceStart;
use super::head::{self, Head, HeadError};

/// The index of a connection in the table, with a number that is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionToken {
    pub(super) table_index: u32,
    pub(super) number: u32,
}

impl ConnectionToken {
    pub(super) fn bits(self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.table_index)
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self { table_index: bits as u32, number: (bits >> 32) as u32 }
    }
}

#[derive(Debug)]
pub(super) struct FaultConnection {
    pub(super) socket: TcpStream,
    pub(super) number: u32,
    /// The received but unused bytes: at most the longest head and one read.
    unread: Vec<u8>,
    /// A request with an incomplete body, and the number of missing bytes.
    begun: Option<(Head, u64)>,
    /// True if the socket may have more input.
    pub(super) is_readable: bool,
    /// True if the peer has closed its side or the connection is broken.
    pub(super) is_over: bool,
    /// True if a request is in progress.
    pub(super) is_busy: bool,
    unwritten: Option<(Arc<[u8]>, usize)>,
    pub(super) closes: bool,
    /// The number of requests so far.
    pub(super) request_count: u32,
    /// The time at which the connection is set up.
    pub(super) ready_at: NanosSinceStart,
    /// The time of the last response, or of the start.
    pub(super) last_active: NanosSinceStart,
}

/// The next action for a connection.
#[derive(Debug)]
pub(super) enum ConnectionInput {
    Request(Head),
    Refused(HeadError),
    Nothing,
    Over,
}

impl FaultConnection {
    pub(super) fn new(socket: TcpStream, number: u32, now: NanosSinceStart, ready: NanosSinceStart) -> Self {
        Self {
            socket,
            number,
            unread: Vec::new(),
            begun: None,
            is_readable: false,
            is_over: false,
            is_busy: false,
            unwritten: None,
            closes: false,
            request_count: 0,
            ready_at: ready,
            last_active: now,
        }
    }

    /// Returns the next complete request. `room` is the read buffer.
    pub(super) fn next(&mut self, room: &mut [u8]) -> ConnectionInput {
        loop {
            match self.parsed() {
                Ok(Some(head)) => return ConnectionInput::Request(head),
                Ok(None) => {}
                Err(refusal) => return ConnectionInput::Refused(refusal),
            }
            if !self.is_readable {
                return ConnectionInput::Nothing;
            }
            match self.socket.read(room) {
                Ok(0) => return ConnectionInput::Over,
                Ok(count) => {
                    // A short read means that the socket is drained (epoll(7), question 9).
                    self.is_readable = count == room.len();
                    self.unread.extend_from_slice(&room[..count]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return ConnectionInput::Over,
            }
        }
    }

    fn parsed(&mut self) -> Result<Option<Head>, HeadError> {
        if self.begun.is_none() && !self.unread.is_empty() {
            self.begun = head::read(&self.unread)?.map(|head| (head, head.body_bytes));
            self.unread.drain(..self.begun.map_or(0, |(head, _)| head.head_bytes));
        }
        let Some((head, missing)) = &mut self.begun else { return Ok(None) };
        let come = usize::try_from(*missing).unwrap_or(usize::MAX).min(self.unread.len());
        self.unread.drain(..come);
        *missing -= come as u64;
        let whole = (*missing == 0).then_some(*head);
        if whole.is_some() {
            self.begun = None;
        }
        Ok(whole)
    }

    /// Returns whether another request may be waiting.
    pub(super) fn has_more(&self) -> bool {
        self.is_readable || !self.unread.is_empty()
    }

    pub(super) fn write(&mut self, answer: Arc<[u8]>) -> io::Result<()> {
        self.unwritten = Some((answer, 0));
        self.flush()
    }

    /// Writes as much output as possible.
    ///
    /// # Errors
    /// The peer has closed the connection.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some((answer, written)) = &mut self.unwritten {
            match self.socket.write(&answer[*written..]) {
                Ok(count) if *written + count < answer.len() => *written += count,
                Ok(_) => self.unwritten = None,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn is_written(&self) -> bool {
        self.unwritten.is_none()
    }
}
