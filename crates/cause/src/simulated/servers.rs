//! What serves simulated requests, one at a time in the order of arrival, so that what becomes of a request is known when it
//! arrives (Lindley, "The theory of queues with a single server", 1952, with one instant per worker). Times are in seconds.

use std::collections::VecDeque;

use fastrand::Rng;

use crate::watched::ObservedOutcome;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelOutcome {
    /// When its answer is there; infinite if there will be none.
    pub end: f64,
    /// What it is.
    pub how: ObservedOutcome,
}

impl ModelOutcome {
    fn new(end: f64, how: ObservedOutcome) -> Self {
        Self { end, how }
    }

    fn good(end: f64) -> Self {
        Self::new(end, ObservedOutcome::Good)
    }

    fn never() -> Self {
        Self::new(f64::INFINITY, ObservedOutcome::TimedOut)
    }
}

/// Serves requests.
pub trait ServerModel {
    /// What becomes of a request that arrives now. Instants never go back.
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome;
}

/// How long a request takes: lognormal with this mean in seconds and this coefficient of variation.
#[derive(Debug, Clone, Copy)]
pub struct LognormalServiceTime {
    /// Seconds.
    pub mean: f64,
    /// Standard deviation as a share of the mean.
    pub variation: f64,
}

impl LognormalServiceTime {
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
pub struct UnlimitedServer {
    /// How long that takes.
    pub service: LognormalServiceTime,
}

impl ServerModel for UnlimitedServer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
        ModelOutcome::good(at + self.service.draw(rng))
    }
}

/// A token bucket that is filled a little or a lot at a time; whoever finds no token is refused at once, or hangs.
#[derive(Debug, Clone)]
pub struct TokenBucketServer {
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
    pub service: LognormalServiceTime,
    /// The status of a refusal; none: the request hangs.
    pub status: Option<u16>,
}

impl TokenBucketServer {
    fn count(&mut self, at: f64) {
        let until = if self.step > 0.0 { (at / self.step).floor() * self.step } else { at };
        if until > self.at {
            self.left = (self.left + (until - self.at) * self.fill).min(self.size);
            self.at = until;
        }
    }
}

impl ServerModel for TokenBucketServer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
        self.count(at);
        if self.left >= 0.999 {
            self.left -= 1.0;
            return ModelOutcome::good(at + self.service.draw(rng));
        }
        self.status
            .map_or(ModelOutcome::never(), |status| ModelOutcome::new(at, ObservedOutcome::Status(status)))
    }
}

/// Lets one request through in each `1 / rate`, in line.
#[derive(Debug, Clone)]
pub struct LeakyBucketServer {
    /// Requests a second.
    pub rate: f64,
    /// When the next one may pass.
    pub next: f64,
    /// Who would wait longer is refused, in seconds.
    pub most: f64,
    /// How long an answer takes then.
    pub service: LognormalServiceTime,
}

impl ServerModel for LeakyBucketServer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
        let start = self.next.max(at);
        if start - at > self.most {
            return ModelOutcome::new(at, ObservedOutcome::Status(503));
        }
        self.next = start + 1.0 / self.rate;
        ModelOutcome::good(start + self.service.draw(rng))
    }
}

/// Workers behind one line.
#[derive(Debug, Clone)]
pub struct WorkerPoolServer {
    /// When each is free again.
    pub free: Vec<f64>,
    /// What a request takes of one.
    pub service: LognormalServiceTime,
    /// Places in the line; whoever finds none is refused at once. None: those who find no worker free are refused.
    pub room: usize,
    /// What they are refused with.
    pub status: u16,
    starts: VecDeque<f64>,
}

impl WorkerPoolServer {
    /// So many workers.
    #[must_use]
    pub fn new(count: usize, service: LognormalServiceTime, room: usize) -> Self {
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

impl ServerModel for WorkerPoolServer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
        if self.full(at) {
            return ModelOutcome::new(at, ObservedOutcome::Status(self.status));
        }
        let worker = self.next();
        let start = self.free[worker].max(at);
        self.free[worker] = start + self.service.draw(rng);
        self.starts.push_back(start);
        ModelOutcome::good(self.free[worker])
    }
}

/// CPU time granted per period, debt carried over (Linux, `sched-bwc`): work waits for the next period once it is spent.
#[derive(Debug, Clone)]
pub struct CfsQuotaServer {
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
    pub service: LognormalServiceTime,
}

impl CfsQuotaServer {
    fn account(&mut self, at: f64) {
        let passed = ((at - self.began) / self.period).floor().max(0.0);
        self.began += passed * self.period;
        self.used = (self.used - passed * self.granted).max(0.0);
    }
}

impl ServerModel for CfsQuotaServer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
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
        ModelOutcome::good(self.free)
    }
}

/// A proxy that gives up on what is behind it, and tries again; what it gave up on is done all the same.
#[derive(Debug, Clone)]
pub struct RetryingProxyServer {
    /// What is behind it.
    pub behind: WorkerPoolServer,
    /// When it gives up, in seconds.
    pub gives_up: f64,
    /// How often it tries.
    pub tries: u32,
    /// What it answers then.
    pub status: u16,
    /// Tries that are still to be made: when.
    pub later: VecDeque<f64>,
}

impl ServerModel for RetryingProxyServer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
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
        ModelOutcome::new(at + self.gives_up * f64::from(self.tries), ObservedOutcome::Status(self.status))
    }
}

/// Several servers that get as much each, whatever they can do.
#[derive(Debug, Clone)]
pub struct UnevenBalancer {
    /// They.
    pub servers: Vec<WorkerPoolServer>,
    /// Whose turn it is.
    pub turn: usize,
}

impl ServerModel for UnevenBalancer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
        self.turn = (self.turn + 1) % self.servers.len();
        self.servers[self.turn].serve(at, rng)
    }
}
