//! Models of servers: queues, limiters, caps and quotas. They take one request at a time, in the order of arrival.
//!
//! Every model serves first come, first served, so the fate of a request is known when it arrives (Lindley, "The theory of queues with a
//! single server", 1952, with one instant per worker). Times are seconds on the target's clock.

use std::collections::VecDeque;

use fastrand::Rng;

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedOutcome {
    /// The time of the response or failure.
    pub end: f64,
    /// True if the response is good.
    pub is_good: bool,
}

/// A model that serves requests.
pub trait SimulatedServer {
    /// Returns the fate of a request that arrives now. Calls must be in the order of time.
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome;

    /// Drops all waiting requests.
    fn drop_waiting(&mut self, at: f64);
}

/// The distribution of service times, with a mean in seconds.
#[derive(Debug, Clone, Copy)]
pub enum ServiceDistribution {
    /// A constant time.
    Fixed(f64),
    /// An exponential distribution.
    Exponential(f64),
    /// A lognormal distribution with this squared coefficient of variation.
    Lognormal(f64, f64),
    /// A mixture in which one request in twenty takes twenty times as long as the others.
    Bimodal(f64),
}

impl ServiceDistribution {
    /// Returns the mean in seconds.
    #[must_use]
    pub fn mean(self) -> f64 {
        let (Self::Fixed(mean) | Self::Exponential(mean) | Self::Lognormal(mean, _) | Self::Bimodal(mean)) =
            self;
        mean
    }

    pub(crate) fn scaled(self, factor: f64) -> Self {
        match self {
            Self::Fixed(mean) => Self::Fixed(mean * factor),
            Self::Exponential(mean) => Self::Exponential(mean * factor),
            Self::Lognormal(mean, scv) => Self::Lognormal(mean * factor, scv),
            Self::Bimodal(mean) => Self::Bimodal(mean * factor),
        }
    }

    pub(crate) fn draw(self, rng: &mut Rng) -> f64 {
        match self {
            Self::Fixed(mean) => mean,
            Self::Exponential(mean) => mean * exponential(rng),
            Self::Lognormal(mean, scv) => {
                let variance = scv.ln_1p();
                mean * (normal(rng) * variance.sqrt() - variance / 2.0).exp()
            }
            Self::Bimodal(mean) => mean / 1.95 * if rng.u8(..20) == 0 { 20.0 } else { 1.0 },
        }
    }
}

/// Draws from the exponential distribution with mean 1.
pub(crate) fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

/// Draws from the standard normal distribution (Box and Muller, 1958).
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    (2.0 * exponential(rng)).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

/// A temporary slowdown of the workers, in seconds, shares and factors. [`Slowdown::apply`] updates the state.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the comment of each variant explains its fields")]
pub enum Slowdown {
    /// No slowdown.
    NoSlowdown,
    /// A drifting speed: AR(1) in steps of one second, with this deviation and this memory in seconds.
    Drift { deviation: f64, memory: f64, level: f64, next: f64 },
    /// Stalls of all workers for `length`, once in `every` seconds on average.
    Pauses { every: f64, length: f64, next: f64 },
    /// A noisy neighbour that takes this share for `length`, once in `every` seconds on average.
    Neighbour { every: f64, length: f64, share: f64, next: f64 },
    /// A warm-up: the first request is slower by this share, and the slowdown fades with this time constant.
    WarmUp { share: f64, memory: f64, first: Option<f64> },
    /// CPU credits: workers are `times` as fast while credits last. Credits refill at `rate` up to `cap`, both in requests.
    Credits { times: f64, rate: f64, cap: f64, left: f64, at: f64 },
    /// A metastable slowdown by this factor: it starts when a request waits for `wait`, and ends after `rest` seconds without requests.
    Metastable { factor: f64, wait: f64, rest: f64, degraded: bool, last: f64 },
    /// A slowdown by this factor for requests that wait this long.
    Collapse { factor: f64, wait: f64 },
}

impl Slowdown {
    /// Returns the start and the service time of a request that could start at `start` and take `took`.
    fn apply(&mut self, arrived: f64, start: f64, took: f64, rng: &mut Rng) -> (f64, f64) {
        match self {
            Self::NoSlowdown => (start, took),
            Self::Drift { deviation, memory, level, next } => {
                while *next <= start {
                    let kept = (-1.0 / *memory).exp();
                    *level = *level * kept + normal(rng) * *deviation * (1.0 - kept * kept).sqrt();
                    *next += 1.0;
                }
                (start, took / (1.0 + *level).max(0.1))
            }
            Self::Pauses { every, length, next } => {
                while *next + *length <= start {
                    *next += *length + *every * exponential(rng);
                }
                let start = if start >= *next { *next + *length } else { start };
                (start, if start < *next && start + took > *next { took + *length } else { took })
            }
            Self::Neighbour { every, length, share, next } => {
                while *next + *length <= start {
                    *next += *length + *every * exponential(rng);
                }
                (start, if start >= *next { took / (1.0 - *share) } else { took })
            }
            Self::WarmUp { share, memory, first } => {
                let first = *first.get_or_insert(arrived);
                (start, took * (1.0 + *share * (-(start - first) / *memory).exp()))
            }
            Self::Credits { times, rate, cap, left, at } => {
                *left = (*left + (start - *at).max(0.0) * *rate).min(*cap);
                *at = at.max(start);
                let fast = *left >= 1.0;
                *left -= 1.0;
                (start, if fast { took / *times } else { took })
            }
            Self::Metastable { factor, wait, rest, degraded, last } => {
                *degraded =
                    if arrived - *last > *rest { false } else { *degraded || start - arrived > *wait };
                *last = arrived;
                (start, if *degraded { took * *factor } else { took })
            }
            Self::Collapse { factor, wait } => {
                (start, if start - arrived > *wait { took * *factor } else { took })
            }
        }
    }
}

/// A pool of workers with one queue.
#[derive(Debug, Clone)]
pub struct SimulatedWorkers {
    /// The time at which each worker is free.
    pub worker_free_times: Vec<f64>,
    /// The service time of a request.
    pub service_time: ServiceDistribution,
    /// The slowdown of the workers.
    pub slowdown: Slowdown,
    /// The time added to each response.
    pub added_latency: f64,
    /// The length of the queue; a request that finds the queue full is refused.
    pub max_queue_length: usize,
    /// The longest wait. A request that waits longer gets an error and is retried in the background, as in a pool with retries.
    pub max_queue_wait: f64,
    /// True if a closed connection frees its place.
    pub frees_on_close: bool,
    starts: VecDeque<f64>,
}

impl SimulatedWorkers {
    /// Creates a pool of this many workers with an unlimited queue.
    #[must_use]
    pub fn new(count: usize, service: ServiceDistribution, base: f64) -> Self {
        let (room, patience) = (usize::MAX, f64::INFINITY);
        let free = vec![0.0; count.max(1)];
        Self {
            worker_free_times: free,
            service_time: service,
            slowdown: Slowdown::NoSlowdown,
            added_latency: base,
            max_queue_length: room,
            max_queue_wait: patience,
            frees_on_close: true,
            starts: VecDeque::new(),
        }
    }

    /// Returns the index of the worker that is free first.
    fn next(&self) -> usize {
        let mut first = 0;
        for (index, free) in self.worker_free_times.iter().enumerate() {
            if *free < self.worker_free_times[first] {
                first = index;
            }
        }
        first
    }

    fn full(&mut self, at: f64) -> bool {
        while self.starts.front().is_some_and(|start| *start <= at) {
            self.starts.pop_front();
        }
        self.starts.len() >= self.max_queue_length
    }

    fn work(&mut self, at: f64, rng: &mut Rng) -> (f64, f64) {
        let worker = self.next();
        let took = self.service_time.draw(rng);
        let (start, took) = self.slowdown.apply(at, self.worker_free_times[worker].max(at), took, rng);
        self.worker_free_times[worker] = start + took;
        (start, start + took)
    }
}

impl SimulatedServer for SimulatedWorkers {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome {
        if self.max_queue_length < usize::MAX && self.full(at) {
            return SimulatedOutcome { end: at + self.added_latency, is_good: false };
        }
        let (start, end) = self.work(at, rng);
        if self.max_queue_length < usize::MAX {
            self.starts.push_back(start);
        }
        if start - at > self.max_queue_wait {
            self.work(at, rng);
            return SimulatedOutcome { end: at + self.max_queue_wait + self.added_latency, is_good: false };
        }
        SimulatedOutcome { end: end + self.added_latency, is_good: true }
    }

    fn drop_waiting(&mut self, at: f64) {
        if self.frees_on_close {
            let ahead = self.service_time.mean();
            self.worker_free_times.iter_mut().for_each(|free| *free = free.min(at + ahead));
            self.starts.clear();
        }
    }
}

/// A token bucket. A request without a token is refused or hangs.
#[derive(Debug, Clone)]
pub struct SimulatedBucket {
    /// The fill rate in tokens per second.
    pub fill_rate: f64,
    /// The size in tokens.
    pub size: f64,
    /// The current number of tokens.
    pub left: f64,
    /// The time at which the tokens were counted.
    pub counted_at: f64,
    /// The service time of an admitted request.
    pub service_time: ServiceDistribution,
    /// The time until a refusal, in seconds.
    pub refusal_response_seconds: f64,
}

impl SimulatedServer for SimulatedBucket {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome {
        self.left = (self.left + (at - self.counted_at) * self.fill_rate).min(self.size);
        self.counted_at = at;
        if self.left < 1.0 {
            return SimulatedOutcome { end: at + self.refusal_response_seconds, is_good: false };
        }
        self.left -= 1.0;
        SimulatedOutcome { end: at + self.service_time.draw(rng), is_good: true }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

/// A rate limiter that admits a fixed number of requests per time window.
#[derive(Debug, Clone)]
pub struct SimulatedWindowLimiter {
    /// The number of requests per window.
    pub max_requests_per_window: f64,
    /// The length of a window in seconds.
    pub length: f64,
    /// The number of the current window.
    pub window_index: f64,
    /// The requests in the current window.
    pub used: f64,
    /// The service time of an admitted request.
    pub service_time: ServiceDistribution,
    /// The time until a refusal, in seconds.
    pub refusal_response_seconds: f64,
}

impl SimulatedServer for SimulatedWindowLimiter {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome {
        let window = (at / self.length).floor();
        if window > self.window_index {
            (self.window_index, self.used) = (window, 0.0);
        }
        self.used += 1.0;
        if self.used > self.max_requests_per_window {
            return SimulatedOutcome { end: at + self.refusal_response_seconds, is_good: false };
        }
        SimulatedOutcome { end: at + self.service_time.draw(rng), is_good: true }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

/// A concurrency cap; further requests are refused.
#[derive(Debug, Clone)]
pub struct SimulatedConcurrencyCap {
    /// The time at which each place is free.
    pub slot_free_times: Vec<f64>,
    /// The time that a request holds its place.
    pub service_time: ServiceDistribution,
    /// The time until a refusal, in seconds.
    pub refusal_response_seconds: f64,
}

impl SimulatedServer for SimulatedConcurrencyCap {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome {
        match self.slot_free_times.iter_mut().find(|free| **free <= at) {
            None => SimulatedOutcome { end: at + self.refusal_response_seconds, is_good: false },
            Some(free) => {
                *free = at + self.service_time.draw(rng);
                SimulatedOutcome { end: *free, is_good: true }
            }
        }
    }

    fn drop_waiting(&mut self, at: f64) {
        self.slot_free_times.iter_mut().for_each(|free| *free = free.min(at));
    }
}

/// A thread under a CPU quota per period that carries its debt over (Linux, `sched-bwc`). Work waits for the next period after the quota is
/// spent.
#[derive(Debug, Clone)]
pub struct SimulatedCpuQuota {
    /// The period in seconds.
    pub period: f64,
    /// The CPU time per period, in seconds.
    pub granted: f64,
    /// The start of the period that the current work counts against.
    pub began: f64,
    /// The CPU time used in that period.
    pub used: f64,
    /// The start of the last request.
    pub last_start: f64,
    /// The CPU time of a request.
    pub cpu_time: ServiceDistribution,
    /// The time added to each response.
    pub added_latency: f64,
}

impl SimulatedServer for SimulatedCpuQuota {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome {
        let passed = ((at - self.began) / self.period).floor().max(0.0);
        self.began += passed * self.period;
        self.used = (self.used - passed * self.granted).max(0.0);
        let mut start = at.max(self.last_start);
        while self.used >= self.granted {
            self.began += self.period;
            self.used -= self.granted;
            start = start.max(self.began);
        }
        self.last_start = start;
        let work = self.cpu_time.draw(rng);
        self.used += work;
        SimulatedOutcome { end: start + work + self.added_latency, is_good: true }
    }

    fn drop_waiting(&mut self, at: f64) {
        if self.last_start > at {
            (self.last_start, self.used) = (at, self.granted);
            self.began = self.began.min((at / self.period).floor() * self.period);
        }
    }
}
