//! What lies between a simulated client and its server: doors that count connections, handshakes, names, ports, a link, stalls.

use std::collections::VecDeque;

use fastrand::Rng;

use super::servers::{LognormalServiceTime, exponential};

/// Who takes connections on.
#[derive(Debug, Clone)]
pub struct SimulatedListener {
    /// How many are served at once.
    pub most: usize,
    /// How many more are connected by the kernel, and read by nobody until one of those ends; none: one too many is closed.
    pub backlog: Option<usize>,
    served: usize,
    line: VecDeque<usize>,
}

/// What becomes of a connection at the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptOutcome {
    /// It is read.
    Served,
    /// It stands, and nobody reads it.
    Queued,
    /// It stands, and is closed.
    Closed,
    /// No answer: the kernel asks again after a second.
    Dropped,
}

impl SimulatedListener {
    /// One that takes everybody.
    #[must_use]
    pub fn open() -> Self {
        Self::new(usize::MAX, None)
    }

    /// One that serves so many.
    #[must_use]
    pub fn new(most: usize, backlog: Option<usize>) -> Self {
        Self { most, backlog, served: 0, line: VecDeque::new() }
    }

    /// A connection comes.
    pub fn accept(&mut self, connection: usize) -> AcceptOutcome {
        if self.served < self.most {
            self.served += 1;
            return AcceptOutcome::Served;
        }
        match self.backlog {
            None => AcceptOutcome::Closed,
            // Linux completes one more than `listen` was told (causes-study.md, section 8).
            Some(backlog) if self.line.len() > backlog => AcceptOutcome::Dropped,
            Some(_) => {
                self.line.push_back(connection);
                AcceptOutcome::Queued
            }
        }
    }

    /// A served connection ends; who is served in its place.
    pub fn close_connection(&mut self) -> Option<usize> {
        let next = self.line.pop_front();
        if next.is_none() {
            self.served -= 1;
        }
        next
    }

    /// All are gone.
    pub fn clear(&mut self) {
        self.served = 0;
        self.line.clear();
    }
}

/// When a server ends connections, without a word: the next request on it is reset.
#[derive(Debug, Clone, Copy)]
pub struct KeepAlivePolicy {
    /// After so many requests.
    pub requests: u64,
    /// After so much silence, in seconds.
    pub idle: f64,
    /// After each answer it closes them, and says so.
    pub closes: bool,
    /// The client sends again what met such an end.
    pub resent: bool,
}

impl KeepAlivePolicy {
    /// For ever.
    pub const EVER: Self = Self { requests: u64::MAX, idle: f64::INFINITY, closes: false, resent: true };
}

/// Work that is done one piece after another: handshakes on a core, lookups at a resolver.
#[derive(Debug, Clone, Copy)]
pub struct SerialServer {
    /// How long a piece takes.
    pub each: LognormalServiceTime,
    /// Everybody waits for those before.
    pub alone: bool,
    /// When it is free.
    pub free: f64,
}

impl SerialServer {
    /// When a piece that comes now is done.
    pub fn pass(&mut self, at: f64, rng: &mut Rng) -> f64 {
        let start = if self.alone { self.free.max(at) } else { at };
        self.free = start + self.each.draw(rng);
        self.free
    }
}

/// Bytes a second, one answer after another.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedLink {
    /// Bytes a second.
    pub rate: f64,
    /// When it is free.
    pub free: f64,
}

impl SimulatedLink {
    /// When so many bytes that are ready now have passed.
    pub fn pass(&mut self, ready: f64, bytes: u64) -> f64 {
        self.free = self.free.max(ready) + bytes as f64 / self.rate;
        self.free
    }
}

/// Everything stands still now and then.
#[derive(Debug, Clone, Copy)]
pub struct StallSchedule {
    /// Seconds from one's end to the next's begin.
    pub every: f64,
    /// Share by which that varies.
    pub varies: f64,
    /// Least and most seconds of one.
    pub length: (f64, f64),
    /// When the next one begins.
    pub next: f64,
    /// How long it is.
    pub lasts: f64,
    /// When the one before began and ended: instants that were put off lie ahead of others.
    before: (f64, f64),
}

impl StallSchedule {
    /// None yet.
    #[must_use]
    pub fn new(every: f64, varies: f64, length: (f64, f64)) -> Self {
        Self { every, varies, length, next: every, lasts: length.0, before: (0.0, 0.0) }
    }

    /// When what would happen now does. Instants may go back to the stall before.
    pub fn put_off(&mut self, at: f64, rng: &mut Rng) -> f64 {
        if at.is_infinite() {
            return at;
        }
        while self.next + self.lasts < at {
            self.before = (self.next, self.next + self.lasts);
            let chance = 1.0 - self.varies + self.varies * exponential(rng);
            self.next += self.lasts + self.every * chance;
            self.lasts = self.length.0 + (self.length.1 - self.length.0) * rng.f64();
        }
        let (began, ended) = self.before;
        match at {
            at if at >= self.next => self.next + self.lasts,
            at if (began..ended).contains(&at) => ended,
            at => at,
        }
    }
}
