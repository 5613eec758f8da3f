//! Targets of twenty classes, drawn from a seed, with their true limits.
//!
//! The limits depend on the goal and the arrival process. They come from a formula if there is one (workers, fill rates, quotas), otherwise
//! from a bisection over long runs of the same server. Passing disturbances are averaged. The limits are those of a target that is warm,
//! has no saved allowance and is not degraded.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;

use super::servers::{
    ServiceDistribution, SimulatedBucket, SimulatedConcurrencyCap, SimulatedCpuQuota, SimulatedOutcome,
    SimulatedServer, SimulatedWindowLimiter, SimulatedWorkers, Slowdown, exponential,
};
use super::target::{SimulatedArrivals, SimulatedInstant, SimulatedTarget};
use crate::goal::SearchGoal;

/// The class of a simulated target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "`planted` shows the parts of each class")]
pub enum SimulatedClass {
    QueueFixed,
    QueueExponential,
    QueueHeavy,
    QueueBimodal,
    QueuePoisson,
    BoundedQueue,
    Limiter,
    LimiterBig,
    LimiterHanging,
    ConcurrencyCap,
    CpuQuota,
    Pauses,
    Drift,
    Neighbour,
    WarmUp,
    Credits,
    Metastable,
    Collapse,
    /// A rate limiter with fixed time windows.
    Window,
    /// A worker pool that times out requests and retries once.
    Retries,
}

impl SimulatedClass {
    /// All classes.
    pub const ALL: [Self; 20] = [
        Self::QueueFixed,
        Self::QueueExponential,
        Self::QueueHeavy,
        Self::QueueBimodal,
        Self::QueuePoisson,
        Self::BoundedQueue,
        Self::Limiter,
        Self::LimiterBig,
        Self::LimiterHanging,
        Self::ConcurrencyCap,
        Self::CpuQuota,
        Self::Pauses,
        Self::Drift,
        Self::Neighbour,
        Self::WarmUp,
        Self::Credits,
        Self::Metastable,
        Self::Collapse,
        Self::Window,
        Self::Retries,
    ];

    /// Returns whether the target has one constant capacity, without drift, quotas or degradation.
    #[must_use]
    pub fn is_steady(self) -> bool {
        !matches!(self, Self::Drift | Self::Credits | Self::Metastable)
    }

    /// Returns whether the cliff is a planted number.
    fn is_planted(self) -> bool {
        !matches!(self, Self::BoundedQueue | Self::ConcurrencyCap | Self::Retries)
    }
}

/// A recipe for a simulated target that can be built any number of times.
#[derive(Debug, Clone)]
pub struct SimulatedTargetSpec {
    /// The class.
    pub class: SimulatedClass,
    /// The planted capacity in requests per second.
    pub capacity: f64,
    /// The arrival process.
    pub arrivals: SimulatedArrivals,
    server: ServerSpec,
}

#[derive(Debug, Clone)]
enum ServerSpec {
    Workers(SimulatedWorkers),
    Bucket(SimulatedBucket),
    Window(SimulatedWindowLimiter),
    ConcurrencyCap(SimulatedConcurrencyCap),
    Quota(SimulatedCpuQuota),
}

/// The most clients of the search for a number of clients.
const MOST: u32 = 1 << 16;
/// The least and the largest capacity.
const CAPACITY: (f64, f64) = (50.0, 20_000.0);

impl SimulatedTargetSpec {
    /// Draws a target of a class from a seed.
    #[must_use]
    pub fn draw(class: SimulatedClass, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let capacity = log_uniform(&mut rng, CAPACITY.0, CAPACITY.1);
        let arrivals = if class == SimulatedClass::QueuePoisson {
            SimulatedArrivals::Poisson
        } else {
            SimulatedArrivals::Constant
        };
        let server = planted(class, capacity, &mut rng);
        Self { class, capacity: capacity * server.share(), arrivals, server }
    }

    /// Returns the target with this share of its capacity.
    #[must_use]
    pub fn with_capacity_share(&self, share: f64) -> Self {
        Self { capacity: self.capacity * share, server: self.server.clone().slowed(share), ..self.clone() }
    }

    /// Builds a fresh target. The goal's latency limit decides which responses are late.
    #[must_use]
    pub fn build_target(&self, goal: &SearchGoal, seed: u64) -> SimulatedTarget {
        let bound = goal.latency_goal.map_or(f64::INFINITY, |late| late.latency_limit.as_secs_f64());
        SimulatedTarget::new(self.server.clone().boxed(), self.arrivals, bound, seed)
    }

    /// Returns the cliff and the knee for a goal, in requests per second, from a formula or from runs with this many requests.
    #[must_use]
    pub fn true_limits(&self, goal: &SearchGoal, requests: u32) -> TrueLimits {
        let errors =
            |rate| self.simulate_long_run(rate, f64::INFINITY, requests).error_share <= goal.max_error_share;
        let cliff = if self.class.is_planted() { self.capacity } else { bisect(self.capacity, errors) };
        let Some(late) = goal.latency_goal else { return TrueLimits { cliff, knee: cliff } };
        let timely = |rate| {
            self.simulate_long_run(rate, late.latency_limit.as_secs_f64(), requests).late_share
                <= late.max_late_share
        };
        let refuses = matches!(self.server, ServerSpec::Bucket(_) | ServerSpec::Window(_));
        TrueLimits { cliff, knee: if refuses { cliff } else { bisect(cliff, timely) } }
    }

    /// Returns the most clients at which a goal holds. Each client waits for its response, and after a failure for `pause`
    /// seconds.
    #[must_use]
    pub fn true_client_limit(&self, goal: &SearchGoal, pause: f64, requests: u32) -> u32 {
        let (bound, share) = goal
            .latency_goal
            .map_or((f64::INFINITY, 1.0), |late| (late.latency_limit.as_secs_f64(), late.max_late_share));
        let holds = |clients| {
            let run = self.simulate_closed_loop_run(clients, bound, pause, requests);
            run.error_share <= goal.max_error_share && run.late_share <= share
        };
        let (mut low, mut high) = (0, 1);
        while high < MOST && holds(high) {
            (low, high) = (high, 2 * high);
        }
        while high - low > 1 {
            let middle = u32::midpoint(low, high);
            if holds(middle) { low = middle } else { high = middle }
        }
        low
    }

    /// Returns the shares of errors and late responses in a long run with this many clients.
    #[must_use]
    pub fn simulate_closed_loop_run(&self, clients: u32, bound: f64, pause: f64, requests: u32) -> LongRun {
        let mut rng = Rng::with_seed(1);
        let mut server = self.server.clone().busy().boxed();
        let mut free: BinaryHeap<_> = (0..clients).map(|_| Reverse(SimulatedInstant::of(0.0))).collect();
        let mut run = LongRun::default();
        for request in 0..requests {
            let Some(at) = free.pop().map(|Reverse(at)| at.seconds()) else { break };
            let fate = server.serve(at, &mut rng);
            let wait = if fate.is_good { 0.0 } else { pause };
            free.push(Reverse(SimulatedInstant::of(fate.end + wait)));
            if request >= requests / 10 {
                run.count(at, fate, bound);
            }
        }
        run.shared()
    }

    /// Returns the shares of errors and late responses in a long run without disturbances.
    #[must_use]
    pub fn simulate_long_run(&self, rate: f64, bound: f64, requests: u32) -> LongRun {
        let mut rng = Rng::with_seed(1);
        let mut server = self.server.clone().undisturbed().boxed();
        let (mut at, mut run) = (0.0, LongRun::default());
        for request in 0..requests {
            at += if self.arrivals == SimulatedArrivals::Poisson {
                exponential(&mut rng) / rate
            } else {
                1.0 / rate
            };
            let fate = server.serve(at, &mut rng);
            if request >= requests / 10 {
                run.count(at, fate, bound);
            }
        }
        run.shared()
    }
}

/// The true limits of a target, in requests per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrueLimits {
    /// The limit by errors or growth.
    pub cliff: f64,
    /// The limit by errors, growth or lateness.
    pub knee: f64,
}

/// The result of a long run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LongRun {
    /// The share of errors.
    pub error_share: f64,
    /// The share of late responses, including errors.
    pub late_share: f64,
    /// The mean response time of good responses, in seconds.
    pub mean_response_time: f64,
    counted: f64,
}

impl LongRun {
    fn count(&mut self, at: f64, fate: SimulatedOutcome, bound: f64) {
        self.counted += 1.0;
        self.error_share += f64::from(u8::from(!fate.is_good));
        self.late_share += f64::from(u8::from(!fate.is_good || fate.end - at > bound));
        self.mean_response_time += if fate.is_good { fate.end - at } else { 0.0 };
    }

    fn shared(self) -> Self {
        let good = self.counted - self.error_share;
        Self {
            error_share: self.error_share / self.counted,
            late_share: self.late_share / self.counted,
            mean_response_time: self.mean_response_time / good,
            ..self
        }
    }
}

/// Returns the highest rate up to `most` at which the predicate holds, to within 0.3 %.
fn bisect(most: f64, holds: impl Fn(f64) -> bool) -> f64 {
    if holds(most) {
        return most;
    }
    let (mut low, mut high) = (most / 2.0, most);
    while low > most / 200.0 && !holds(low) {
        (low, high) = (low / 2.0, low);
    }
    while high / low > 1.003 {
        let middle = (low * high).sqrt();
        if holds(middle) { low = middle } else { high = middle }
    }
    (low * high).sqrt()
}

fn log_uniform(rng: &mut Rng, least: f64, most: f64) -> f64 {
    least * (most / least).powf(rng.f64())
}

fn between(rng: &mut Rng, least: f64, most: f64) -> f64 {
    least + (most - least) * rng.f64()
}

fn planted(class: SimulatedClass, capacity: f64, rng: &mut Rng) -> ServerSpec {
    match class {
        SimulatedClass::Limiter => bucket(capacity, log_uniform(rng, 0.02, 1.0), 0.001, rng),
        SimulatedClass::LimiterBig => bucket(capacity, log_uniform(rng, 1.0, 10.0), 0.001, rng),
        SimulatedClass::LimiterHanging => bucket(capacity, log_uniform(rng, 0.02, 3.0), 30.0, rng),
        SimulatedClass::Window => window(capacity, rng),
        SimulatedClass::ConcurrencyCap => places(capacity, rng),
        SimulatedClass::CpuQuota => quota(capacity, rng),
        _ => ServerSpec::Workers(workers(class, capacity, rng)),
    }
}

/// Returns the service times of a server without a queue.
fn quick(rng: &mut Rng) -> ServiceDistribution {
    ServiceDistribution::Exponential(log_uniform(rng, 0.000_3, 0.005))
}

fn bucket(fill: f64, seconds: f64, refusal: f64, rng: &mut Rng) -> ServerSpec {
    let size = (fill * seconds).max(2.0);
    ServerSpec::Bucket(SimulatedBucket {
        fill_rate: fill,
        size,
        left: size,
        counted_at: 0.0,
        service_time: quick(rng),
        refusal_response_seconds: refusal,
    })
}

fn window(capacity: f64, rng: &mut Rng) -> ServerSpec {
    let length = [0.1, 0.25, 1.0][rng.usize(..3)];
    let most = (capacity * length).round();
    ServerSpec::Window(SimulatedWindowLimiter {
        max_requests_per_window: most,
        length,
        window_index: 0.0,
        used: 0.0,
        service_time: quick(rng),
        refusal_response_seconds: 0.001,
    })
}

fn places(capacity: f64, rng: &mut Rng) -> ServerSpec {
    let service = log_uniform(rng, 0.01, 0.1);
    let count = (capacity * service).ceil().clamp(1.0, 200.0);
    let mean = count / capacity;
    let service = if rng.bool() {
        ServiceDistribution::Exponential(mean)
    } else {
        ServiceDistribution::Lognormal(mean, 1.0)
    };
    ServerSpec::ConcurrencyCap(SimulatedConcurrencyCap {
        slot_free_times: vec![0.0; count as usize],
        service_time: service,
        refusal_response_seconds: 0.001,
    })
}

fn quota(capacity: f64, rng: &mut Rng) -> ServerSpec {
    let cpus = between(rng, 0.1, 0.9);
    let service = ServiceDistribution::Exponential(cpus / capacity);
    let (period, base) = (0.1, log_uniform(rng, 0.000_3, 0.005));
    ServerSpec::Quota(SimulatedCpuQuota {
        period,
        granted: cpus * period,
        began: 0.0,
        used: 0.0,
        last_start: 0.0,
        cpu_time: service,
        added_latency: base,
    })
}

fn workers(class: SimulatedClass, capacity: f64, rng: &mut Rng) -> SimulatedWorkers {
    // A worker is busy for at most 20 ms on average, so that the latency goal can hold.
    let most = (0.02 * capacity).clamp(1.0, 32.0);
    let count = log_uniform(rng, 1.0, most + 0.999).floor().max(1.0);
    let mean = count / capacity;
    let service = match class {
        SimulatedClass::QueueFixed => ServiceDistribution::Fixed(mean),
        SimulatedClass::QueueHeavy => ServiceDistribution::Lognormal(mean, 8.0),
        SimulatedClass::QueueBimodal => ServiceDistribution::Bimodal(mean),
        _ => ServiceDistribution::Exponential(mean),
    };
    let mut workers = SimulatedWorkers::new(count as usize, service, log_uniform(rng, 0.000_3, 0.005));
    workers.frees_on_close = rng.bool();
    workers.slowdown = pace(class, capacity, count, rng);
    if class == SimulatedClass::BoundedQueue {
        workers.max_queue_length = (capacity * log_uniform(rng, 0.01, 0.5)).max(5.0) as usize;
    }
    if class == SimulatedClass::Retries {
        workers.max_queue_wait = between(rng, 0.2, 1.0) + 10.0 * mean;
    }
    workers
}

fn pace(class: SimulatedClass, capacity: f64, workers: f64, rng: &mut Rng) -> Slowdown {
    // The wait is long enough that the queue does not reach it by chance.
    let wait = between(rng, 0.1, 0.2).max(40.0 / capacity) + 2.0 * workers / capacity;
    match class {
        SimulatedClass::Drift => {
            let (deviation, memory) = (between(rng, 0.025, 0.05), between(rng, 20.0, 60.0));
            Slowdown::Drift { deviation, memory, level: 0.0, next: 0.0 }
        }
        SimulatedClass::Pauses => {
            let length = between(rng, 0.05, 0.25);
            Slowdown::Pauses { every: between(rng, 2.0, 10.0), length, next: 1.0 }
        }
        SimulatedClass::Neighbour => {
            let (every, length) = (between(rng, 10.0, 30.0), between(rng, 0.5, 2.0));
            Slowdown::Neighbour { every, length, share: between(rng, 0.1, 0.4), next: 5.0 }
        }
        SimulatedClass::WarmUp => {
            Slowdown::WarmUp { share: between(rng, 0.2, 0.6), memory: between(rng, 3.0, 10.0), first: None }
        }
        SimulatedClass::Credits => {
            let times = between(rng, 1.5, 3.0);
            let cap = (times - 1.0) * capacity * between(rng, 15.0, 30.0);
            Slowdown::Credits { times, rate: capacity, cap, left: cap, at: 0.0 }
        }
        SimulatedClass::Metastable => {
            let (factor, rest) = (between(rng, 1.2, 1.6), between(rng, 2.0, 5.0));
            Slowdown::Metastable { factor, wait, rest, degraded: false, last: 0.0 }
        }
        SimulatedClass::Collapse => Slowdown::Collapse { factor: between(rng, 1.2, 2.0), wait },
        _ => Slowdown::NoSlowdown,
    }
}

impl ServerSpec {
    fn boxed(self) -> Box<dyn SimulatedServer> {
        match self {
            Self::Workers(workers) => Box::new(workers),
            Self::Bucket(bucket) => Box::new(bucket),
            Self::Window(window) => Box::new(window),
            Self::ConcurrencyCap(places) => Box::new(places),
            Self::Quota(quota) => Box::new(quota),
        }
    }

    /// Slows the target: slower workers, fewer tokens or a smaller quota.
    fn slowed(mut self, share: f64) -> Self {
        match &mut self {
            Self::Workers(workers) => workers.service_time = workers.service_time.scaled(1.0 / share),
            Self::Bucket(bucket) => bucket.fill_rate *= share,
            Self::Window(window) => {
                window.max_requests_per_window = (window.max_requests_per_window * share).round();
            }
            Self::ConcurrencyCap(places) => places.service_time = places.service_time.scaled(1.0 / share),
            Self::Quota(quota) => quota.granted *= share,
        }
        self
    }

    /// Returns the mean share of the capacity that disturbances leave.
    fn share(&self) -> f64 {
        let Self::Workers(workers) = self else { return 1.0 };
        match workers.slowdown {
            Slowdown::Pauses { every, length, .. } => every / (every + length),
            Slowdown::Neighbour { every, length, share, .. } => 1.0 - share * length / (every + length),
            _ => 1.0,
        }
    }

    /// Returns the target under load, with an empty allowance and its degradation.
    fn busy(mut self) -> Self {
        match &mut self {
            Self::Bucket(bucket) => bucket.left = 0.0,
            Self::Workers(workers) if matches!(workers.slowdown, Slowdown::Collapse { .. }) => return self,
            _ => {}
        }
        self.undisturbed()
    }

    /// Returns the target without temporary slowdowns, except pauses and a noisy neighbour.
    fn undisturbed(mut self) -> Self {
        if let Self::Workers(workers) = &mut self {
            let lasting = matches!(workers.slowdown, Slowdown::Pauses { .. } | Slowdown::Neighbour { .. });
            workers.slowdown = if lasting { workers.slowdown.clone() } else { Slowdown::NoSlowdown };
        }
        self
    }
}
