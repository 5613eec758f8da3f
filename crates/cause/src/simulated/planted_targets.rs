//! Simulated targets of each class, drawn from a seed. Limits are 34 to 1,600 requests per second and service times 1 to 120 ms, as in the
//! study behind the inquiry's rules.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;

use super::client::ModelTarget;
use super::network_parts::{
    KeepAlivePolicy, SetupStepServer, SimulatedLink, SimulatedListener, StallSchedule,
};
use super::servers::{
    CfsQuotaServer, LeakyBucketServer, LognormalServiceTime, RetryingProxyServer,
    RoundRobinOverUnequalServers, ServerModel, TokenBucketServer, UnlimitedServer, WorkerPoolServer,
};
use crate::cause_size_estimates::concurrency_at_permille_refusals;
use crate::class::CauseClass;
use crate::experiment_selection::SearchFindings;

/// A simulated target with its known properties and its hidden truth.
pub struct PlantedTarget {
    /// The planted causes, one or two.
    pub truth: Vec<CauseClass>,
    /// The results that a search would have.
    pub search_findings: SearchFindings,
    /// The simulated target.
    pub simulated_target: ModelTarget,
}

/// The classes that are planted alone.
pub const SINGLE_CAUSES: [CauseClass; 17] = [
    CauseClass::RateLimiter,
    CauseClass::HangingLimiter,
    CauseClass::DelayingLimiter,
    CauseClass::CpuSaturation,
    CauseClass::PoolSaturation,
    CauseClass::ConcurrencyCap,
    CauseClass::ConnectionCap,
    CauseClass::CfsThrottling,
    CauseClass::ChurnCost,
    CauseClass::KeepAliveRace,
    CauseClass::TimeoutChain,
    CauseClass::Pauses,
    CauseClass::UnevenBalancing,
    CauseClass::Dns,
    CauseClass::Ports,
    CauseClass::Bandwidth,
    CauseClass::Generator,
];

/// The pairs of classes that are planted together.
pub const PAIRS: [[CauseClass; 2]; 8] = [
    [CauseClass::PoolSaturation, CauseClass::Pauses],
    [CauseClass::CpuSaturation, CauseClass::KeepAliveRace],
    [CauseClass::RateLimiter, CauseClass::KeepAliveRace],
    [CauseClass::RateLimiter, CauseClass::Pauses],
    [CauseClass::PoolSaturation, CauseClass::KeepAliveRace],
    [CauseClass::RateLimiter, CauseClass::Dns],
    [CauseClass::HangingLimiter, CauseClass::KeepAliveRace],
    [CauseClass::ConnectionCap, CauseClass::CpuSaturation],
];

impl PlantedTarget {
    /// Draws a target of a class from a seed.
    #[must_use]
    pub fn draw(class: CauseClass, seed: u64) -> Self {
        let mut drawer = TargetBuilder::new(seed ^ (class as u64) << 40);
        drawer.plant(class);
        drawer.finish(vec![class])
    }

    /// Draws a target on the client's own machine: responses take 0.05 to 0.5 ms if no worker or core limits them.
    #[must_use]
    pub fn draw_local(class: CauseClass, seed: u64) -> Self {
        let mut drawer = TargetBuilder::new(seed ^ (class as u64) << 40);
        drawer.service_between = (0.000_05, 0.000_5);
        (drawer.subject.trip, drawer.subject.mean_machine_delay) = (0.000_03, 0.000_03);
        drawer.plant(class);
        drawer.finish(vec![class])
    }

    /// Draws a target with two classes of causes.
    #[must_use]
    pub fn draw_pair(pair: [CauseClass; 2], seed: u64) -> Self {
        let mut drawer = TargetBuilder::new(seed ^ (pair[0] as u64) << 40 ^ (pair[1] as u64) << 48);
        drawer.paired = true;
        drawer.plant(pair[0]);
        drawer.add(pair[1]);
        drawer.finish(pair.to_vec())
    }

    /// Draws a target that has no fault at this rate.
    #[must_use]
    pub fn draw_faultless(seed: u64) -> Self {
        let mut drawer = TargetBuilder::new(seed ^ 0xff << 40);
        let service = drawer.quick();
        drawer.limit = drawer.between(100.0, 800.0);
        drawer.serve(UnlimitedServer { service_time: service });
        drawer.finish(vec![CauseClass::Unknown])
    }

    /// Draws a target that serves a few connections for 100 ms per request; the others wait in a backlog of 1,024.
    #[must_use]
    pub fn draw_connection_capped(seed: u64) -> Self {
        let mut drawer = TargetBuilder::new(seed ^ 0xfe << 40);
        drawer.limit = 150.0;
        drawer.serve(UnlimitedServer { service_time: LognormalServiceTime { mean: 0.1, variation: 0.02 } });
        drawer.subject.listener = SimulatedListener::new(15, Some(1_024));
        drawer.finish(vec![CauseClass::ConnectionCap])
    }
}

impl PlantedTarget {
    /// Draws a target that lets requests above 150/s hang and closes connections beyond 1,024.
    #[must_use]
    pub fn draw_hanging_limiter(seed: u64) -> Self {
        let mut drawer = TargetBuilder::new(seed ^ 0xfd << 40);
        drawer.limit = 150.0;
        let service = LognormalServiceTime { mean: 0.02, variation: 0.05 };
        let (fill, size) = (150.0, 20.0);
        drawer.serve(TokenBucketServer {
            fill_rate: fill,
            size,
            refill_interval: 0.0,
            left: size,
            counted_at: 0.0,
            service_time: service,
            refusal_status: None,
        });
        drawer.subject.listener = SimulatedListener::new(1_024, None);
        drawer.finish(vec![CauseClass::HangingLimiter, CauseClass::ConnectionCap])
    }
}

struct TargetBuilder {
    rng: Rng,
    /// The limit in requests per second.
    limit: f64,
    /// The service time in seconds.
    service: f64,
    /// The shortest and longest response time without a bottleneck, in seconds.
    service_between: (f64, f64),
    /// True if two causes are planted.
    paired: bool,
    subject: ModelTarget,
}

impl TargetBuilder {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let hiccups = StallSchedule::new(3.0, 1.0, (0.005, 0.02));
        let never = UnlimitedServer { service_time: LognormalServiceTime { mean: 0.001, variation: 0.0 } };
        let subject = ModelTarget {
            server: Box::new(never),
            listener: SimulatedListener::unlimited(),
            keep_alive_policy: KeepAlivePolicy::EVER,
            tls_handshake_server: None,
            resolver: None,
            link: None,
            bytes: rng.u64(100..12_000),
            answers_head: rng.u8(..5) > 0,
            ports_per_source: usize::MAX,
            stalls: None,
            client_stalls: hiccups,
            generator_max_rate: f64::INFINITY,
            has_one_source_address: rng.bool(),
            keep_alive: true,
            timeout: 30.0,
            trip: 0.000_15,
            mean_machine_delay: 0.000_25,
            rng: Rng::with_seed(rng.u64(..)),
            now: 0.0,
            interrupt_at: f64::INFINITY,
            ports_in_use_per_source: [0, 0],
        };
        Self { rng, limit: 0.0, service: 0.0, service_between: (0.001, 0.06), paired: false, subject }
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.rng.f64()
    }

    fn log_between(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.rng.f64())
    }

    fn serve(&mut self, server: impl ServerModel + 'static) {
        self.subject.server = Box::new(server);
    }

    fn variation(&mut self) -> f64 {
        [0.05, 0.2, 1.0][self.rng.usize(..3)]
    }

    /// Returns the service time of a server that is not a bottleneck.
    fn quick(&mut self) -> LognormalServiceTime {
        let (least, most) = self.service_between;
        self.service = self.log_between(least, most);
        LognormalServiceTime { mean: self.service, variation: self.variation() }
    }

    fn status(&mut self) -> u16 {
        [429, 503, 403][self.rng.usize(..3)]
    }

    fn plant(&mut self, class: CauseClass) {
        self.limit = self.log_between(34.0, 1_600.0);
        match class {
            CauseClass::RateLimiter => self.bucket(true),
            CauseClass::HangingLimiter => self.bucket(false),
            CauseClass::DelayingLimiter => self.spaced(),
            CauseClass::CpuSaturation => self.pool(1),
            CauseClass::PoolSaturation | CauseClass::ConcurrencyCap => {
                let workers = self.log_between(2.0, 32.9) as usize;
                if class == CauseClass::PoolSaturation { self.pool(workers) } else { self.cap(workers) }
            }
            CauseClass::ConnectionCap => self.connections(),
            CauseClass::CfsThrottling => self.quota(),
            CauseClass::ChurnCost => self.churn(),
            CauseClass::TimeoutChain => self.chain(),
            CauseClass::UnevenBalancing => self.uneven(),
            CauseClass::Bandwidth => self.bandwidth(),
            _ => self.beside(class),
        }
    }

    /// Adds the cause of this class to a server that is not a bottleneck.
    fn beside(&mut self, class: CauseClass) {
        let service = self.quick();
        self.serve(UnlimitedServer { service_time: service });
        self.add(class);
    }

    fn add(&mut self, class: CauseClass) {
        match class {
            CauseClass::KeepAliveRace => self.race(),
            CauseClass::Pauses => self.pauses(),
            // A resolver as slow as the other cause would hide that cause.
            CauseClass::Dns => self.names(self.paired),
            CauseClass::Ports => self.ports(),
            CauseClass::Generator => self.subject.generator_max_rate = self.limit * 0.3,
            // Each connection is served alone, and all share one core behind them.
            CauseClass::CpuSaturation => self.core_behind(),
            _ => {}
        }
    }

    fn bucket(&mut self, refuses: bool) {
        let service = self.quick();
        let (fill, window) = (self.limit, self.rng.u8(..5));
        let step = if refuses && window < 2 { [0.1, 1.0][usize::from(window)] } else { 0.0 };
        let size = if step > 0.0 { fill * step } else { self.log_between(1.0, fill) }.max(1.0);
        let status = refuses.then(|| self.status());
        self.serve(TokenBucketServer {
            fill_rate: fill,
            size,
            refill_interval: step,
            left: size,
            counted_at: 0.0,
            service_time: service,
            refusal_status: status,
        });
    }

    fn spaced(&mut self) {
        let service = self.quick();
        let most = self.log_between(0.1, 3.0);
        self.serve(LeakyBucketServer {
            rate: self.limit,
            next_pass_at: 0.0,
            max_wait: most,
            service_time: service,
        });
    }

    fn pool(&mut self, workers: usize) {
        // A worker is busy for 1 to 120 ms per request.
        let busy = (workers as f64 / self.limit).clamp(0.001, 0.12);
        self.limit = workers as f64 / busy;
        self.service = busy;
        let service = LognormalServiceTime { mean: busy, variation: self.variation() };
        let room = if self.rng.u8(..4) == 0 {
            (self.limit * self.log_between(0.05, 0.6)).ceil() as usize
        } else {
            usize::MAX
        };
        if workers > 1 && room == usize::MAX && self.rng.u8(..4) == 0 {
            // Each connection has its own worker.
            self.subject.listener = SimulatedListener::new(workers, Some(2_048));
            self.subject.keep_alive_policy.closes_after_each_response = true;
        }
        self.serve(WorkerPoolServer::new(workers, service, room));
    }

    fn cap(&mut self, places: usize) {
        let busy = (places as f64 / self.limit).clamp(0.001, 0.12);
        self.limit = places as f64 / busy;
        self.service = busy;
        let mut server = WorkerPoolServer::new(
            places,
            LognormalServiceTime { mean: busy, variation: self.variation() },
            0,
        );
        server.refusal_status = self.status();
        self.serve(server);
    }

    fn connections(&mut self) {
        let places = self.log_between(4.0, 40.9);
        let busy = (places / self.limit).clamp(0.003, 0.12);
        self.limit = places / busy;
        self.service = busy;
        let backlog = [None, Some(128), Some(1_024)][self.rng.usize(..3)];
        self.subject.listener = SimulatedListener::new(places as usize, backlog);
        let service = LognormalServiceTime { mean: busy, variation: self.variation().min(0.2) };
        self.serve(UnlimitedServer { service_time: service });
    }

    fn core_behind(&mut self) {
        // The core is saturated at four fifths of the rate that the connections would carry.
        self.limit *= 0.8;
        let mean = 1.0 / self.limit;
        self.service = mean;
        self.serve(WorkerPoolServer::new(1, LognormalServiceTime { mean, variation: 0.2 }, usize::MAX));
        let places = (self.limit * self.between(0.05, 0.15)).max(4.0);
        self.subject.listener = SimulatedListener::new(places as usize, None);
    }

    fn quota(&mut self) {
        let share = self.between(0.08, 0.6);
        let mean = (share / self.limit).clamp(0.000_5, 0.02);
        self.limit = share / mean;
        self.service = mean;
        let service = LognormalServiceTime { mean, variation: self.variation() };
        let began = self.rng.f64() * 0.1;
        self.serve(CfsQuotaServer {
            period: 0.1,
            granted: share * 0.1,
            began,
            used: 0.0,
            free_at: 0.0,
            cpu_time: service,
        });
    }

    fn churn(&mut self) {
        let service = self.quick();
        let each = LognormalServiceTime { mean: 1.0 / self.limit, variation: 0.1 };
        self.subject.tls_handshake_server =
            Some(SetupStepServer { service_time: each, is_serial: true, free_at: 0.0 });
        self.subject.keep_alive = false;
        self.service += each.mean;
        self.serve(UnlimitedServer { service_time: service });
    }

    fn race(&mut self) {
        let polled = self.rng.bool();
        let requests = [50, 100, 300][self.rng.usize(..3)];
        // A connection that never reaches its last request during an inquiry would show nothing.
        let requests =
            requests.min((3.0 / self.service.max(0.001)) as u64).min((1.2 * self.limit) as u64).max(10);
        let resent = self.rng.bool();
        // Half the distance between base requests on average, so that some connections are idle for longer.
        let idle = self.between(0.3, 0.9) * 2.0 / self.limit;
        let after = if polled { (requests, f64::INFINITY) } else { (u64::MAX, idle.max(0.002)) };
        self.subject.keep_alive_policy = KeepAlivePolicy {
            max_requests_per_connection: after.0,
            idle_timeout: after.1,
            closes_after_each_response: false,
            client_retries: resent,
        };
    }

    fn chain(&mut self) {
        let workers = self.log_between(2.0, 32.0) as usize;
        let busy = (workers as f64 / self.limit).clamp(0.001, 0.12);
        self.limit = workers as f64 / busy;
        self.service = busy;
        let behind = WorkerPoolServer::new(
            workers,
            LognormalServiceTime { mean: busy, variation: self.variation() },
            usize::MAX,
        );
        let gives_up = self.between(0.2, 1.2).max(4.0 * busy);
        let (tries, status) = (self.rng.u32(1..4), [502, 503, 504][self.rng.usize(..3)]);
        self.serve(RetryingProxyServer {
            upstream_pool: behind,
            try_timeout: gives_up,
            tries,
            status,
            pending_retries: VecDeque::new(),
        });
    }

    fn pauses(&mut self) {
        let length = self.between(0.06, 0.3);
        let every = self.between(0.4, 1.2);
        self.subject.stalls = Some(StallSchedule::new(every, 0.2, (length * 0.95, length * 1.05)));
    }

    fn uneven(&mut self) {
        let count = self.rng.usize(2..6);
        let mean = self.log_between(0.001, 0.05);
        // The slow server is full at the limit; the other servers have two to four times its capacity.
        let full = self.limit / count as f64;
        let slow = (full * mean).ceil().max(1.0);
        let mean = slow / full;
        self.service = mean;
        let variation = self.variation().min(0.2);
        let mut servers = vec![
            WorkerPoolServer::new(
                slow as usize * 3,
                LognormalServiceTime { mean, variation },
                usize::MAX
            );
            count
        ];
        servers[0] =
            WorkerPoolServer::new(slow as usize, LognormalServiceTime { mean, variation }, usize::MAX);
        self.serve(RoundRobinOverUnequalServers { servers, last_server: 0 });
    }

    fn names(&mut self, beside: bool) {
        let (mean, alone) = if !beside && self.rng.bool() {
            (1.0 / self.limit, true)
        } else {
            (self.between(0.03, 0.3), false)
        };
        self.subject.resolver = Some(SetupStepServer {
            service_time: LognormalServiceTime { mean, variation: 0.3 },
            is_serial: alone,
            free_at: 0.0,
        });
        self.subject.keep_alive = false;
        self.service += mean;
    }

    fn ports(&mut self) {
        self.subject.keep_alive = false;
        // The search has used some of the ports.
        self.subject.ports_per_source = (self.limit * self.between(0.2, 3.0)) as usize;
    }

    fn bandwidth(&mut self) {
        let service = self.quick();
        // The link sends responses in the order of their requests, so one late response would delay the others.
        let service = LognormalServiceTime { variation: service.variation.min(0.2), ..service };
        self.subject.bytes = self.log_between(4_000.0, 100_000.0) as u64;
        let rate = self.limit * self.subject.bytes as f64;
        self.service += 1.0 / self.limit;
        self.subject.link = Some(SimulatedLink { bytes_per_second: rate, free_at: 0.0 });
        self.serve(UnlimitedServer { service_time: service });
    }

    fn finish(mut self, truth: Vec<CauseClass>) -> PlantedTarget {
        // Half of the searches report the rate at which a cap refuses one request in a thousand, which is far below its capacity.
        let cap = matches!(truth[..], [CauseClass::ConcurrencyCap] | [CauseClass::ConnectionCap])
            && self.limit != 150.0;
        let first =
            concurrency_at_permille_refusals((self.limit * self.service).round().max(1.0)) / self.service;
        if cap && first > 34.0 && self.rng.bool() {
            self.limit = first;
        }
        let known = SearchFindings {
            limit_rate: self.limit * (1.0 + self.between(-0.03, 0.03)),
            service_time: (self.service + 2.0 * self.subject.mean_machine_delay) * self.between(0.9, 1.15),
            timeout: self.subject.timeout,
            failure_share_at_any_rate: 0.0,
            keep_alive: self.subject.keep_alive,
            tls: self.subject.tls_handshake_server.is_some(),
            target_is_name: self.subject.resolver.is_some(),
            max_rate: None,
            generator_max_rate: None,
            time_budget: Duration::from_secs(40),
        };
        PlantedTarget { truth, search_findings: known, simulated_target: self.subject }
    }
}
