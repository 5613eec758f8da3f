//! What serves simulated requests: queues, limiters, caps and quotas, a request at a time in the order of arrival.
//!
//! Every server here is first come, first served, so that what becomes of a request is known when it arrives (Lindley, "The theory
//! of queues with a single server", 1952, with one instant per worker). Times are seconds on the target's clock.

use std::collections::VecDeque;

use fastrand::Rng;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedOutcome {
    /// When its answer is there, or its failure.
    pub end: f64,
    /// Whether it is a good one.
    pub good: bool,
}

/// Serves requests.
pub trait SimulatedServer {
    /// What becomes of a request that arrives now. Instants never go back.
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome;

    /// Everybody who waited is gone.
    fn drop_waiting(&mut self, at: f64);
}

/// How long a request keeps a worker busy, as a distribution with a mean of seconds.
#[derive(Debug, Clone, Copy)]
pub enum ServiceDistribution {
    /// Always the same.
    Fixed(f64),
    /// Exponential.
    Exponential(f64),
    /// Lognormal, with this squared coefficient of variation.
    Lognormal(f64, f64),
    /// One in twenty takes twenty times as long as the others.
    Bimodal(f64),
}

impl ServiceDistribution {
    /// The mean, in seconds.
    #[must_use]
    pub fn mean(self) -> f64 {
        let (Self::Fixed(mean) | Self::Exponential(mean) | Self::Lognormal(mean, _) | Self::Bimodal(mean)) =
            self;
        mean
    }

    pub(crate) fn times(self, factor: f64) -> Self {
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

/// One draw of the exponential distribution with mean 1.
pub(crate) fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

/// One draw of the standard normal distribution (Box and Muller, 1958).
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    (2.0 * exponential(rng)).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

/// What makes workers slower than they are for a while. Seconds, shares and factors; what a state is stands in [`Slowdown::apply`].
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each variant says what its parts are")]
pub enum Slowdown {
    /// Nothing.
    Even,
    /// Speed wanders about its mean: AR(1) in steps of a second, of this deviation and this memory in seconds.
    Drift { deviation: f64, memory: f64, level: f64, next: f64 },
    /// All stand still so long, once in `every` seconds on average.
    Pauses { every: f64, length: f64, next: f64 },
    /// A neighbour takes this share for so long, once in `every` seconds on average.
    Neighbour { every: f64, length: f64, share: f64, next: f64 },
    /// Slower by this share when the first request comes, which fades with this time.
    WarmUp { share: f64, memory: f64, first: Option<f64> },
    /// So many times faster while there are credits; they come back at the plain rate, up to a cap (both in requests).
    Credits { times: f64, rate: f64, cap: f64, left: f64, at: f64 },
    /// Slower by this factor once somebody waited so long, until nobody came for `rest` seconds.
    Metastable { factor: f64, wait: f64, rest: f64, degraded: bool, last: f64 },
    /// Slower by this factor for whoever has waited so long.
    Collapse { factor: f64, wait: f64 },
}

impl Slowdown {
    /// When a request that could start now starts, and by how much longer it takes.
    fn apply(&mut self, arrived: f64, start: f64, took: f64, rng: &mut Rng) -> (f64, f64) {
        match self {
            Self::Even => (start, took),
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

/// Workers behind one line.
#[derive(Debug, Clone)]
pub struct SimulatedWorkers {
    /// When each is free again.
    pub free: Vec<f64>,
    /// What a request takes of one.
    pub service: ServiceDistribution,
    /// What slows them down.
    pub pace: Slowdown,
    /// Added to each answer.
    pub base: f64,
    /// Places in the line; whoever finds none is refused at once.
    pub room: usize,
    /// Whoever waited longer is answered with an error then, and asked for once more behind the scenes: a pool with retries.
    pub patience: f64,
    /// Whether closed connections free their places.
    pub notices: bool,
    starts: VecDeque<f64>,
}

impl SimulatedWorkers {
    /// So many workers without limits on who waits.
    #[must_use]
    pub fn new(count: usize, service: ServiceDistribution, base: f64) -> Self {
        let (room, patience) = (usize::MAX, f64::INFINITY);
        let free = vec![0.0; count.max(1)];
        Self {
            free,
            service,
            pace: Slowdown::Even,
            base,
            room,
            patience,
            notices: true,
            starts: VecDeque::new(),
        }
    }

    /// The worker that is free first.
    fn next(&self) -> usize {
        let mut first = 0;
        for (index, free) in self.free.iter().enumerate() {
            if *free < self.free[first] {
                first = index;
            }
        }
        first
    }

    fn full(&mut self, at: f64) -> bool {
        while self.starts.front().is_some_and(|start| *start <= at) {
            self.starts.pop_front();
        }
        self.starts.len() >= self.room
    }

    fn work(&mut self, at: f64, rng: &mut Rng) -> (f64, f64) {
        let worker = self.next();
        let took = self.service.draw(rng);
        let (start, took) = self.pace.apply(at, self.free[worker].max(at), took, rng);
        self.free[worker] = start + took;
        (start, start + took)
    }
}

impl SimulatedServer for SimulatedWorkers {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome {
        if self.room < usize::MAX && self.full(at) {
            return SimulatedOutcome { end: at + self.base, good: false };
        }
        let (start, end) = self.work(at, rng);
        if self.room < usize::MAX {
            self.starts.push_back(start);
        }
        if start - at > self.patience {
            self.work(at, rng);
            return SimulatedOutcome { end: at + self.patience + self.base, good: false };
        }
        SimulatedOutcome { end: end + self.base, good: true }
    }

    fn drop_waiting(&mut self, at: f64) {
        if self.notices {
            let ahead = self.service.mean();
            self.free.iter_mut().for_each(|free| *free = free.min(at + ahead));
            self.starts.clear();
        }
    }
}

/// A token bucket: whoever finds no token is refused at once, or hangs.
#[derive(Debug, Clone)]
pub struct SimulatedBucket {
    /// Tokens a second.
    pub fill: f64,
    /// Most tokens.
    pub size: f64,
    /// Tokens there are.
    pub left: f64,
    /// When they were counted.
    pub at: f64,
    /// How long an answer takes.
    pub service: ServiceDistribution,
    /// How long whoever is refused waits for that, in seconds.
    pub refusal: f64,
}

impl SimulatedServer for SimulatedBucket {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome {
        self.left = (self.left + (at - self.at) * self.fill).min(self.size);
        self.at = at;
        if self.left < 1.0 {
            return SimulatedOutcome { end: at + self.refusal, good: false };
        }
        self.left -= 1.0;
        SimulatedOutcome { end: at + self.service.draw(rng), good: true }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

/// So many requests in each window, and no more.
#[derive(Debug, Clone)]
pub struct SimulatedWindowLimiter {
    /// Requests.
    pub most: f64,
    /// Seconds.
    pub length: f64,
    /// Which window it is.
    pub current: f64,
    /// Requests in it.
    pub used: f64,
    /// How long an answer takes.
    pub service: ServiceDistribution,
    /// How long a refusal takes, in seconds.
    pub refusal: f64,
}

impl SimulatedServer for SimulatedWindowLimiter {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome {
        let window = (at / self.length).floor();
        if window > self.current {
            (self.current, self.used) = (window, 0.0);
        }
        self.used += 1.0;
        if self.used > self.most {
            return SimulatedOutcome { end: at + self.refusal, good: false };
        }
        SimulatedOutcome { end: at + self.service.draw(rng), good: true }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

/// At most so many at once; whoever is one too many is refused.
#[derive(Debug, Clone)]
pub struct SimulatedSlots {
    /// When each place is free again.
    pub free: Vec<f64>,
    /// How long a request keeps its place.
    pub service: ServiceDistribution,
    /// How long a refusal takes, in seconds.
    pub refusal: f64,
}

impl SimulatedServer for SimulatedSlots {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome {
        match self.free.iter_mut().find(|free| **free <= at) {
            None => SimulatedOutcome { end: at + self.refusal, good: false },
            Some(free) => {
                *free = at + self.service.draw(rng);
                SimulatedOutcome { end: *free, good: true }
            }
        }
    }

    fn drop_waiting(&mut self, at: f64) {
        self.free.iter_mut().for_each(|free| *free = free.min(at));
    }
}

/// CPU time granted per period, debt carried over (Linux, `sched-bwc`): work waits for the next period once it is spent.
#[derive(Debug, Clone)]
pub struct SimulatedQuota {
    /// Seconds.
    pub period: f64,
    /// Seconds of work granted in each.
    pub granted: f64,
    /// When the period began that work is accounted to.
    pub began: f64,
    /// Work done in it.
    pub used: f64,
    /// When the last request started.
    pub last: f64,
    /// Work of a request.
    pub service: ServiceDistribution,
    /// Added to each answer.
    pub base: f64,
}

impl SimulatedServer for SimulatedQuota {
    fn serve(&mut self, at: f64, rng: &mut Rng) -> SimulatedOutcome {
        let passed = ((at - self.began) / self.period).floor().max(0.0);
        self.began += passed * self.period;
        self.used = (self.used - passed * self.granted).max(0.0);
        let mut start = at.max(self.last);
        while self.used >= self.granted {
            self.began += self.period;
            self.used -= self.granted;
            start = start.max(self.began);
        }
        self.last = start;
        let work = self.service.draw(rng);
        self.used += work;
        SimulatedOutcome { end: start + work + self.base, good: true }
    }

    fn drop_waiting(&mut self, at: f64) {
        if self.last > at {
            (self.last, self.used) = (at, self.granted);
            self.began = self.began.min((at / self.period).floor() * self.period);
        }
    }
}
