//! Models of servers. They take requests in the order of arrival, so the fate of a request is known when it arrives (Lindley, "The theory
//! of queues with a single server", 1952, with one instant per worker). Times are in seconds.

use std::collections::VecDeque;

use fastrand::Rng;

use crate::observed_requests::ObservedOutcome;

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelOutcome {
    /// The time of the response; infinite if there is none.
    pub end: f64,
    /// The outcome.
    pub outcome: ObservedOutcome,
}

impl ModelOutcome {
    fn new(end: f64, how: ObservedOutcome) -> Self {
        Self { end, outcome: how }
    }

    fn good(end: f64) -> Self {
        Self::new(end, ObservedOutcome::Good)
    }

    fn never() -> Self {
        Self::new(f64::INFINITY, ObservedOutcome::TimedOut)
    }
}

/// A model that serves requests.
pub trait ServerModel {
    /// Returns the fate of a request that arrives now. Calls must be in the order of time.
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome;
}

/// A lognormal service time with a mean in seconds and a coefficient of variation.
#[derive(Debug, Clone, Copy)]
pub struct LognormalServiceTime {
    /// The mean in seconds.
    pub mean: f64,
    /// The standard deviation divided by the mean.
    pub variation: f64,
}

impl LognormalServiceTime {
    /// Draws one service time.
    pub fn draw(self, rng: &mut Rng) -> f64 {
        let variance = (self.variation * self.variation).ln_1p();
        self.mean * (normal(rng) * variance.sqrt() - variance / 2.0).exp()
    }
}

/// Draws from the exponential distribution with mean 1.
pub fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

fn normal(rng: &mut Rng) -> f64 {
    (2.0 * exponential(rng)).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

/// A server that serves all requests concurrently.
#[derive(Debug, Clone)]
pub struct UnlimitedServer {
    /// The service time.
    pub service_time: LognormalServiceTime,
}

impl ServerModel for UnlimitedServer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
        ModelOutcome::good(at + self.service_time.draw(rng))
    }
}

/// A token bucket. A request without a token is refused or hangs.
#[derive(Debug, Clone)]
pub struct TokenBucketServer {
    /// The fill rate in tokens per second.
    pub fill_rate: f64,
    /// The size in tokens.
    pub size: f64,
    /// The seconds between two fillings; 0 if the bucket fills continuously.
    pub refill_interval: f64,
    /// The current number of tokens.
    pub left: f64,
    /// The time at which the tokens were counted.
    pub counted_at: f64,
    /// The service time of an admitted request.
    pub service_time: LognormalServiceTime,
    /// The status of a refusal; none if excess requests hang.
    pub refusal_status: Option<u16>,
}

impl TokenBucketServer {
    fn count(&mut self, at: f64) {
        let until = if self.refill_interval > 0.0 {
            (at / self.refill_interval).floor() * self.refill_interval
        } else {
            at
        };
        if until > self.counted_at {
            self.left = (self.left + (until - self.counted_at) * self.fill_rate).min(self.size);
            self.counted_at = until;
        }
    }
}

impl ServerModel for TokenBucketServer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
        self.count(at);
        if self.left >= 0.999 {
            self.left -= 1.0;
            return ModelOutcome::good(at + self.service_time.draw(rng));
        }
        self.refusal_status.map_or(ModelOutcome::never(), |status| {
            ModelOutcome::new(at, ObservedOutcome::BadResponse(status))
        })
    }
}

/// A leaky bucket that passes one request each `1 / rate` seconds.
#[derive(Debug, Clone)]
pub struct LeakyBucketServer {
    /// The rate in requests per second.
    pub rate: f64,
    /// The time at which the next request may pass.
    pub next_pass_at: f64,
    /// The longest wait in seconds; a request that would wait longer is refused.
    pub max_wait: f64,
    /// The service time after the wait.
    pub service_time: LognormalServiceTime,
}

impl ServerModel for LeakyBucketServer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
        let start = self.next_pass_at.max(at);
        if start - at > self.max_wait {
            return ModelOutcome::new(at, ObservedOutcome::BadResponse(503));
        }
        self.next_pass_at = start + 1.0 / self.rate;
        ModelOutcome::good(start + self.service_time.draw(rng))
    }
}

/// A pool of workers with one queue.
#[derive(Debug, Clone)]
pub struct WorkerPoolServer {
    /// The time at which each worker is free.
    pub worker_free_times: Vec<f64>,
    /// The service time of a request.
    pub service_time: LognormalServiceTime,
    /// The length of the queue; a request that finds the queue full is refused. With 0, a request that finds no free worker is refused.
    pub max_queue_length: usize,
    /// The status of a refusal.
    pub refusal_status: u16,
    starts: VecDeque<f64>,
}

impl WorkerPoolServer {
    /// Creates a pool of this many workers.
    #[must_use]
    pub fn new(count: usize, service: LognormalServiceTime, room: usize) -> Self {
        Self {
            worker_free_times: vec![0.0; count.max(1)],
            service_time: service,
            max_queue_length: room,
            refusal_status: 503,
            starts: VecDeque::new(),
        }
    }

    fn next(&self) -> usize {
        (1..self.worker_free_times.len()).fold(0, |first, index| {
            if self.worker_free_times[index] < self.worker_free_times[first] { index } else { first }
        })
    }

    fn full(&mut self, at: f64) -> bool {
        while self.starts.front().is_some_and(|start| *start <= at) {
            self.starts.pop_front();
        }
        self.starts.len() >= self.max_queue_length && self.worker_free_times[self.next()] > at
    }
}

impl ServerModel for WorkerPoolServer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
        if self.full(at) {
            return ModelOutcome::new(at, ObservedOutcome::BadResponse(self.refusal_status));
        }
        let worker = self.next();
        let start = self.worker_free_times[worker].max(at);
        self.worker_free_times[worker] = start + self.service_time.draw(rng);
        self.starts.push_back(start);
        ModelOutcome::good(self.worker_free_times[worker])
    }
}

/// A thread under a CPU quota per period that carries its debt over (Linux, `sched-bwc`). Work waits for the next period after the quota is
/// spent.
#[derive(Debug, Clone)]
pub struct CfsQuotaServer {
    /// The period in seconds.
    pub period: f64,
    /// The CPU time per period, in seconds.
    pub granted: f64,
    /// The start of the period that the current work counts against.
    pub began: f64,
    /// The CPU time used in that period, in seconds.
    pub used: f64,
    /// The time at which the core is free.
    pub free_at: f64,
    /// The CPU time of a request.
    pub cpu_time: LognormalServiceTime,
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
        let mut start = at.max(self.free_at);
        self.account(start);
        while self.used >= self.granted {
            self.began += self.period;
            self.used -= self.granted;
            start = start.max(self.began);
        }
        let work = self.cpu_time.draw(rng);
        self.used += work;
        self.free_at = start + work;
        ModelOutcome::good(self.free_at)
    }
}

/// A proxy that times out and retries. The pool behind it still finishes the timed-out requests.
#[derive(Debug, Clone)]
pub struct RetryingProxyServer {
    /// The pool behind the proxy.
    pub upstream_pool: WorkerPoolServer,
    /// The timeout of one try, in seconds.
    pub try_timeout: f64,
    /// The number of tries.
    pub tries: u32,
    /// The status after the last try.
    pub status: u16,
    /// The times of the retries that are still due.
    pub pending_retries: VecDeque<f64>,
}

impl ServerModel for RetryingProxyServer {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
        while let Some(again) = self.pending_retries.front().copied().filter(|again| *again <= at) {
            self.pending_retries.pop_front();
            self.upstream_pool.serve(again, rng);
        }
        let fate = self.upstream_pool.serve(at, rng);
        if fate.end - at <= self.try_timeout {
            return fate;
        }
        // Later tries find the queue just as long, so the model does not follow them.
        for _ in 1..self.tries {
            self.pending_retries.push_back(at + self.try_timeout);
        }
        ModelOutcome::new(
            at + self.try_timeout * f64::from(self.tries),
            ObservedOutcome::BadResponse(self.status),
        )
    }
}

/// A balancer that gives several unequal servers the same number of requests.
#[derive(Debug, Clone)]
pub struct RoundRobinOverUnequalServers {
    /// The servers.
    pub servers: Vec<WorkerPoolServer>,
    /// The index of the server that got the last request.
    pub last_server: usize,
}

impl ServerModel for RoundRobinOverUnequalServers {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> ModelOutcome {
        self.last_server = (self.last_server + 1) % self.servers.len();
        self.servers[self.last_server].serve(at, rng)
    }
}
