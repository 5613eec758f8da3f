//! What serves simulated requests, one at a time in the order of arrival, so that what becomes of a request is known when it
//! arrives (Lindley, "The theory of queues with a single server", 1952, with one instant per worker). Times are in seconds.

use std::collections::VecDeque;

use fastrand::Rng;

use crate::watched::How;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fate {
    /// When its answer is there; infinite if there will be none.
    pub end: f64,
    /// What it is.
    pub how: How,
}

impl Fate {
    fn new(end: f64, how: How) -> Self {
        Self { end, how }
    }

    fn good(end: f64) -> Self {
        Self::new(end, How::Good)
    }

    fn never() -> Self {
        Self::new(f64::INFINITY, How::TimedOut)
    }
}

/// Serves requests.
pub trait Server {
    /// What becomes of a request that arrives now. Instants never go back.
    fn serve(&mut self, at: f64, rng: &mut Rng) -> Fate;
}

/// How long a request takes: lognormal with this mean in seconds and this coefficient of variation.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// Seconds.
    pub mean: f64,
    /// Standard deviation as a share of the mean.
    pub variation: f64,
}

impl Service {
    /// One draw.
    pub fn draw(self, rng: &mut Rng) -> f64 {
        let variance = (self.variation * self.variation).ln_1p();
        self.mean * (normal(rng) * variance.sqrt() - variance / 2.0).exp()
    }
}

/// One draw of the exponential distribution with mean 1.
pub fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

fn normal(rng: &mut Rng) -> f64 {
    (2.0 * exponential(rng)).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

/// Serves everybody at once.
#[derive(Debug, Clone)]
pub struct Quick {
    /// How long that takes.
    pub service: Service,
}

impl Server for Quick {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> Fate {
        Fate::good(at + self.service.draw(rng))
    }
}

/// A token bucket that is filled a little or a lot at a time; whoever finds no token is refused at once, or hangs.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Tokens a second.
    pub fill: f64,
    /// Most tokens.
    pub size: f64,
    /// Seconds between fillings; 0: it fills all the time.
    pub step: f64,
    /// Tokens there are.
    pub left: f64,
    /// When they were counted.
    pub at: f64,
    /// How long an answer takes.
    pub service: Service,
    /// The status of a refusal; none: the request hangs.
    pub status: Option<u16>,
}

impl Bucket {
    fn count(&mut self, at: f64) {
        let until = if self.step > 0.0 { (at / self.step).floor() * self.step } else { at };
        if until > self.at {
            self.left = (self.left + (until - self.at) * self.fill).min(self.size);
            self.at = until;
        }
    }
}

impl Server for Bucket {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> Fate {
        self.count(at);
        if self.left >= 0.999 {
            self.left -= 1.0;
            return Fate::good(at + self.service.draw(rng));
        }
        self.status.map_or(Fate::never(), |status| Fate::new(at, How::Status(status)))
    }
}

/// Lets one request through in each `1 / rate`, in line.
#[derive(Debug, Clone)]
pub struct Spaced {
    /// Requests a second.
    pub rate: f64,
    /// When the next one may pass.
    pub next: f64,
    /// Who would wait longer is refused, in seconds.
    pub most: f64,
    /// How long an answer takes then.
    pub service: Service,
}

impl Server for Spaced {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> Fate {
        let start = self.next.max(at);
        if start - at > self.most {
            return Fate::new(at, How::Status(503));
        }
        self.next = start + 1.0 / self.rate;
        Fate::good(start + self.service.draw(rng))
    }
}

/// Workers behind one line.
#[derive(Debug, Clone)]
pub struct Workers {
    /// When each is free again.
    pub free: Vec<f64>,
    /// What a request takes of one.
    pub service: Service,
    /// Places in the line; whoever finds none is refused at once. None: those who find no worker free are refused.
    pub room: usize,
    /// What they are refused with.
    pub status: u16,
    starts: VecDeque<f64>,
}

impl Workers {
    /// So many workers.
    #[must_use]
    pub fn new(count: usize, service: Service, room: usize) -> Self {
        Self { free: vec![0.0; count.max(1)], service, room, status: 503, starts: VecDeque::new() }
    }

    fn next(&self) -> usize {
        (1..self.free.len()).fold(
            0,
            |first, index| {
                if self.free[index] < self.free[first] { index } else { first }
            },
        )
    }

    fn full(&mut self, at: f64) -> bool {
        while self.starts.front().is_some_and(|start| *start <= at) {
            self.starts.pop_front();
        }
        self.starts.len() >= self.room && self.free[self.next()] > at
    }
}

impl Server for Workers {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> Fate {
        if self.full(at) {
            return Fate::new(at, How::Status(self.status));
        }
        let worker = self.next();
        let start = self.free[worker].max(at);
        self.free[worker] = start + self.service.draw(rng);
        self.starts.push_back(start);
        Fate::good(self.free[worker])
    }
}

/// CPU time granted per period, debt carried over (Linux, `sched-bwc`): work waits for the next period once it is spent.
#[derive(Debug, Clone)]
pub struct Quota {
    /// Seconds.
    pub period: f64,
    /// Seconds of work granted in each.
    pub granted: f64,
    /// When the period began that work is accounted to.
    pub began: f64,
    /// Work done in it, in seconds.
    pub used: f64,
    /// When the core is free.
    pub free: f64,
    /// Work of a request.
    pub service: Service,
}

impl Quota {
    fn account(&mut self, at: f64) {
        let passed = ((at - self.began) / self.period).floor().max(0.0);
        self.began += passed * self.period;
        self.used = (self.used - passed * self.granted).max(0.0);
    }
}

impl Server for Quota {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> Fate {
        let mut start = at.max(self.free);
        self.account(start);
        while self.used >= self.granted {
            self.began += self.period;
            self.used -= self.granted;
            start = start.max(self.began);
        }
        let work = self.service.draw(rng);
        self.used += work;
        self.free = start + work;
        Fate::good(self.free)
    }
}

/// A proxy that gives up on what is behind it, and tries again; what it gave up on is done all the same.
#[derive(Debug, Clone)]
pub struct Chain {
    /// What is behind it.
    pub behind: Workers,
    /// When it gives up, in seconds.
    pub gives_up: f64,
    /// How often it tries.
    pub tries: u32,
    /// What it answers then.
    pub status: u16,
    /// Tries that are still to be made: when.
    pub later: VecDeque<f64>,
}

impl Server for Chain {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> Fate {
        while let Some(again) = self.later.front().copied().filter(|again| *again <= at) {
            self.later.pop_front();
            self.behind.serve(again, rng);
        }
        let fate = self.behind.serve(at, rng);
        if fate.end - at <= self.gives_up {
            return fate;
        }
        // Later tries find the line no shorter: none of those in time is followed.
        for _ in 1..self.tries {
            self.later.push_back(at + self.gives_up);
        }
        Fate::new(at + self.gives_up * f64::from(self.tries), How::Status(self.status))
    }
}

/// Several servers that get as much each, whatever they can do.
#[derive(Debug, Clone)]
pub struct Uneven {
    /// They.
    pub servers: Vec<Workers>,
    /// Whose turn it is.
    pub turn: usize,
}

impl Server for Uneven {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> Fate {
        self.turn = (self.turn + 1) % self.servers.len();
        self.servers[self.turn].serve(at, rng)
    }
}
