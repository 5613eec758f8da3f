//! The parts between a simulated client and its server: listeners that count connections, handshakes, DNS, ports, a link, stalls.

use std::collections::VecDeque;

use fastrand::Rng;

use super::servers::{LognormalServiceTime, exponential};

/// A listener that accepts connections.
#[derive(Debug, Clone)]
pub struct SimulatedListener {
    /// The most connections that the server serves at once.
    pub max_connections: usize,
    /// The number of further connections that wait in the backlog; none if the listener closes further connections.
    pub backlog: Option<usize>,
    served: usize,
    line: VecDeque<usize>,
}

/// The fate of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptOutcome {
    /// The server reads the connection.
    Served,
    /// The connection waits in the backlog.
    Queued,
    /// The server closes the connection.
    ClosedByFullServer,
    /// The kernel drops the SYN, and the client retransmits it after a second.
    Dropped,
}

impl SimulatedListener {
    /// Returns a listener without a limit.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(usize::MAX, None)
    }

    /// Creates a listener that serves at most this many connections.
    #[must_use]
    pub fn new(most: usize, backlog: Option<usize>) -> Self {
        Self { max_connections: most, backlog, served: 0, line: VecDeque::new() }
    }

    /// Accepts a connection.
    pub fn accept(&mut self, connection: usize) -> AcceptOutcome {
        if self.served < self.max_connections {
            self.served += 1;
            return AcceptOutcome::Served;
        }
        match self.backlog {
            None => AcceptOutcome::ClosedByFullServer,
            // Linux completes one connection more than the backlog of `listen` (causes-study.md, section 8).
            Some(backlog) if self.line.len() > backlog => AcceptOutcome::Dropped,
            Some(_) => {
                self.line.push_back(connection);
                AcceptOutcome::Queued
            }
        }
    }

    /// Closes a served connection and returns the connection from the backlog that the server serves next.
    pub fn close_connection(&mut self) -> Option<usize> {
        let next = self.line.pop_front();
        if next.is_none() {
            self.served -= 1;
        }
        next
    }

    /// Closes all connections.
    pub fn close_all(&mut self) {
        self.served = 0;
        self.line.clear();
    }
}

/// The rules by which a server closes connections, and whether the client retries a request on a connection that closed without
/// notice.
#[derive(Debug, Clone, Copy)]
pub struct KeepAlivePolicy {
    /// The number of requests after which the server closes a connection.
    pub max_requests_per_connection: u64,
    /// The idle time after which the server closes a connection, in seconds.
    pub idle_timeout: f64,
    /// True if the server closes each connection after a response and announces it.
    pub closes_after_each_response: bool,
    /// True if the client silently retries a request on a closed connection.
    pub client_retries: bool,
}

impl KeepAlivePolicy {
    /// Connections stay open for ever.
    pub const EVER: Self = Self {
        max_requests_per_connection: u64::MAX,
        idle_timeout: f64::INFINITY,
        closes_after_each_response: false,
        client_retries: true,
    };
}

/// A server for small pieces of work, such as handshakes or lookups; it does one at a time if `is_serial` is true.
#[derive(Debug, Clone, Copy)]
pub struct SetupStepServer {
    /// The time that one piece takes.
    pub service_time: LognormalServiceTime,
    /// True if each piece waits for the earlier ones.
    pub is_serial: bool,
    /// The time at which the server is free.
    pub free_at: f64,
}

impl SetupStepServer {
    /// Returns the time at which a piece that arrives now is done.
    pub fn finish_time(&mut self, at: f64, rng: &mut Rng) -> f64 {
        let start = if self.is_serial { self.free_at.max(at) } else { at };
        self.free_at = start + self.service_time.draw(rng);
        self.free_at
    }
}

/// A link that sends one response after another.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedLink {
    /// The bandwidth in bytes per second.
    pub bytes_per_second: f64,
    /// The time at which the link is free.
    pub free_at: f64,
}

impl SimulatedLink {
    /// Returns the time at which these bytes have passed.
    pub fn finish_time(&mut self, ready: f64, bytes: u64) -> f64 {
        self.free_at = self.free_at.max(ready) + bytes as f64 / self.bytes_per_second;
        self.free_at
    }
}

/// Random stalls of a server or a machine.
#[derive(Debug, Clone, Copy)]
pub struct StallSchedule {
    /// The mean seconds from the end of one stall to the start of the next.
    pub mean_gap: f64,
    /// The variation of that distance, as a share.
    pub gap_variation: f64,
    /// The shortest and longest stall, in seconds.
    pub length_range: (f64, f64),
    /// The start of the next stall.
    pub next: f64,
    /// The length of the next stall, in seconds.
    pub next_length: f64,
    /// The start and end of the previous stall, because events may be processed out of order.
    before: (f64, f64),
}

impl StallSchedule {
    /// Creates a schedule that has not begun.
    #[must_use]
    pub fn new(every: f64, varies: f64, length: (f64, f64)) -> Self {
        Self {
            mean_gap: every,
            gap_variation: varies,
            length_range: length,
            next: every,
            next_length: length.0,
            before: (0.0, 0.0),
        }
    }

    /// Returns the time at which an event takes place: now, or at the end of the stall. Times may go back to the previous stall.
    pub fn delay_past_stall(&mut self, at: f64, rng: &mut Rng) -> f64 {
        if at.is_infinite() {
            return at;
        }
        while self.next + self.next_length < at {
            self.before = (self.next, self.next + self.next_length);
            let chance = 1.0 - self.gap_variation + self.gap_variation * exponential(rng);
            self.next += self.next_length + self.mean_gap * chance;
            self.next_length = self.length_range.0 + (self.length_range.1 - self.length_range.0) * rng.f64();
        }
        let (began, ended) = self.before;
        match at {
            at if at >= self.next => self.next + self.next_length,
            at if (began..ended).contains(&at) => ended,
            at => at,
        }
    }
}
