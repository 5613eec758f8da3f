//! Decides the fate of each request: the faults as pure functions of time, without sockets or a clock.
//!
//! A request passes the faults in the given order. A delay by one fault delays the arrival at the next. The caller must report events to
//! the [`FaultModel`] in the order of time, as the server's loop does.

mod chance;
mod disturbance;
mod limiter;
mod link;
mod workers;

use fastrand::Rng;

use self::chance::RandomDuration;
use self::disturbance::Disturbances;
pub(super) use self::limiter::GcraBucket;
use self::limiter::{FixedWindowLimiter, LeakyBucketLimiter};
use self::link::SharedLink;
use self::workers::{AttemptResult, Balancer, QuotaThread, TimeoutProxy, WorkerPool};
use super::fault_syntax::PlantedFault;

/// The time since the start of the server, in nanoseconds.
pub(super) type NanosSinceStart = u64;

/// All faults of a server.
#[derive(Debug)]
pub(super) struct FaultModel {
    stages: Vec<Stage>,
    weather: Disturbances,
    rng: Rng,
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestProgress {
    /// The index of the next stage.
    next: u8,
    /// The number of tries at this stage so far.
    tries: u8,
    /// The places that the request holds, as a bit per stage.
    holds: u32,
    /// The server of a balancer that responded, if the response names it.
    pub(super) server: Option<u8>,
    /// The size of the response in bytes.
    bytes: usize,
}

impl RequestProgress {
    /// Returns the progress of a new request with a response of this size.
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes, ..Self::default() }
    }
}

/// The next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelStep {
    /// Call [`FaultModel::continue_request`] at this time.
    Wait(NanosSinceStart),
    /// Compute for this time, then call [`FaultModel::resume_computed`].
    Compute(NanosSinceStart),
    /// The request ends at this time; call [`FaultModel::end_request`] then.
    End(NanosSinceStart, PlannedResponse),
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlannedResponse {
    /// A response with this status.
    Answer(u16),
    /// The connection is closed.
    Close,
}

/// The status of a served request.
const OK: u16 = 200;

/// The status of a proxy that has given up: a gateway timeout (RFC 9110 section 15.6.5).
const GATEWAY_TIMEOUT: u16 = 504;

#[derive(Debug)]
enum Stage {
    Delay(RandomDuration),
    RefusingLimiter { bucket: GcraBucket, status: u16 },
    WindowLimiter { window: FixedWindowLimiter, status: u16 },
    HangingLimiter { bucket: GcraBucket, hang: NanosSinceStart },
    DelayingLimiter { spaced: LeakyBucketLimiter, status: u16 },
    Pool { pool: WorkerPool, status: u16 },
    Cpu { work: NanosSinceStart, queue: usize, waiting: usize, status: u16 },
    ConcurrencyCap { places: usize, used: usize, service: RandomDuration, status: u16 },
    Quota(QuotaThread),
    TimeoutChain(TimeoutProxy),
    Balancer(Balancer),
    Link(SharedLink),
}

/// The result of a stage.
enum StageResult {
    NextStage(NanosSinceStart),
    RetryStage(NanosSinceStart),
    Compute(NanosSinceStart),
    End(NanosSinceStart, PlannedResponse),
}

/// The status of a full queue without a `status` parameter.
const FULL: u16 = 503;

impl FaultModel {
    /// Creates the model of these faults. Every request first takes `service`.
    pub(super) fn new(plants: &[PlantedFault], service: NanosSinceStart, seed: u64) -> Self {
        let mut stages = vec![Stage::Delay(RandomDuration::new(service, 0.0))];
        // Responses are sent last, so the link is the last stage wherever it was given.
        let (links, others): (Vec<_>, Vec<_>) =
            plants.iter().partition(|plant| plant.kind.name == "bandwidth");
        stages.extend(others.into_iter().chain(links).filter_map(Stage::new));
        Self { stages, weather: Disturbances::new(plants, seed), rng: Rng::with_seed(!seed) }
    }

    /// Handles a new request.
    pub(super) fn enter(&mut self, at: NanosSinceStart, course: &mut RequestProgress) -> ModelStep {
        let awake = self.weather.end_of_pause(at);
        if awake > at { ModelStep::Wait(awake) } else { self.continue_request(at, course) }
    }

    /// Continues a request whose wait has ended.
    pub(super) fn continue_request(
        &mut self,
        at: NanosSinceStart,
        course: &mut RequestProgress,
    ) -> ModelStep {
        loop {
            let Some(stage) = self.stages.get_mut(usize::from(course.next)) else {
                return ModelStep::End(self.weather.end_of_pause(at), PlannedResponse::Answer(OK));
            };
            match stage.pass(at, course, &mut self.weather, &mut self.rng) {
                StageResult::NextStage(then) => {
                    (course.next, course.tries) = (course.next + 1, 0);
                    if then > at {
                        return ModelStep::Wait(then);
                    }
                }
                StageResult::RetryStage(then) => return ModelStep::Wait(then),
                StageResult::Compute(work) => return ModelStep::Compute(work),
                StageResult::End(then, fate) => return ModelStep::End(self.weather.end_of_pause(then), fate),
            }
        }
    }

    /// Continues a request whose computing has ended.
    pub(super) fn resume_computed(&mut self, at: NanosSinceStart, course: &mut RequestProgress) -> ModelStep {
        if let Some(Stage::Cpu { waiting, .. }) = self.stages.get_mut(usize::from(course.next)) {
            *waiting = waiting.saturating_sub(1);
        }
        (course.next, course.tries) = (course.next + 1, 0);
        self.continue_request(at, course)
    }

    /// Ends a request and frees its places.
    pub(super) fn end_request(&mut self, course: &RequestProgress) {
        for (number, stage) in self.stages.iter_mut().enumerate() {
            if let Stage::ConcurrencyCap { used, .. } = stage
                && course.holds & (1 << number) != 0
            {
                *used = used.saturating_sub(1);
            }
        }
    }
}

impl Stage {
    /// Returns the stage of a fault; none for faults of connections and for disturbances.
    fn new(plant: &PlantedFault) -> Option<Self> {
        let status = plant.parameter_value("status") as u16;
        let bucket = || GcraBucket::new(plant.parameter_value("rate"), plant.parameter_value("bucket"));
        Some(match plant.kind.name {
            "rate-limiter" if plant.parameter_value("window") > 0.0 => Self::WindowLimiter {
                window: FixedWindowLimiter::new(
                    plant.parameter_value("rate"),
                    plant.parameter_as_nanos("window"),
                ),
                status,
            },
            "rate-limiter" => Self::RefusingLimiter { bucket: bucket(), status },
            "hanging-limiter" => {
                Self::HangingLimiter { bucket: bucket(), hang: plant.parameter_as_nanos("hang") }
            }
            "delaying-limiter" => Self::DelayingLimiter {
                spaced: LeakyBucketLimiter::new(
                    plant.parameter_value("rate"),
                    plant.parameter_value("queue"),
                ),
                status,
            },
            "pool" => Self::Pool {
                pool: WorkerPool::new(plant, Some(plant.parameter_as_usize("queue")), 1.0),
                status,
            },
            "cpu" => Self::Cpu {
                work: plant.parameter_as_nanos("work"),
                queue: plant.parameter_as_usize("queue"),
                waiting: 0,
                status,
            },
            "concurrency-cap" => {
                let service =
                    RandomDuration::new(plant.parameter_as_nanos("service"), plant.parameter_value("cv"));
                Self::ConcurrencyCap { places: plant.parameter_as_usize("places"), used: 0, service, status }
            }
            "connection-cap" => Self::Delay(RandomDuration::new(
                plant.parameter_as_nanos("service"),
                plant.parameter_value("cv"),
            )),
            "noise" => Self::Delay(RandomDuration::new(plant.parameter_as_nanos("delay"), 1.0)),
            "quota" => Self::Quota(QuotaThread::new(plant)),
            "timeout-chain" => Self::TimeoutChain(TimeoutProxy::new(plant)),
            "uneven" => Self::Balancer(Balancer::new(plant)),
            "bandwidth" => Self::Link(SharedLink::new(plant.parameter_value("rate"))),
            _ => return None,
        })
    }

    fn pass(
        &mut self,
        at: NanosSinceStart,
        course: &mut RequestProgress,
        weather: &mut Disturbances,
        rng: &mut Rng,
    ) -> StageResult {
        match self {
            Self::Delay(time) => StageResult::NextStage(at + time.draw(rng)),
            Self::RefusingLimiter { bucket, status } => admitted(bucket.take(at), at, *status),
            Self::WindowLimiter { window, status } => admitted(window.take(at), at, *status),
            Self::HangingLimiter { bucket, hang } => {
                if bucket.take(at) {
                    StageResult::NextStage(at)
                } else {
                    StageResult::End(at + *hang, PlannedResponse::Close)
                }
            }
            Self::DelayingLimiter { spaced, status } => done(spaced.take(at), at, *status),
            Self::Pool { pool, status } => done(pool.schedule(at, weather, rng), at, *status),
            Self::Cpu { work, queue, waiting, status } => compute(*work, *queue, waiting, at, *status),
            Self::ConcurrencyCap { places, used, service, status } => {
                if used >= places {
                    return refused(at, *status);
                }
                *used += 1;
                course.holds |= 1 << course.next;
                StageResult::NextStage(weather.end_of_work(at, service.draw(rng), 0, 1))
            }
            Self::Quota(quota) => done(quota.schedule(at, weather, rng), at, FULL),
            Self::TimeoutChain(chain) => attempt(chain, at, course, weather, rng),
            Self::Balancer(balancer) => {
                let (server, end) = balancer.schedule(at, weather, rng);
                course.server = balancer.names_server.then_some(server);
                done(end, at, FULL)
            }
            Self::Link(link) => StageResult::NextStage(link.send(at, course.bytes)),
        }
    }
}

fn refused(at: NanosSinceStart, status: u16) -> StageResult {
    StageResult::End(at, PlannedResponse::Answer(status))
}

fn admitted(is_admitted: bool, at: NanosSinceStart, status: u16) -> StageResult {
    if is_admitted { StageResult::NextStage(at) } else { refused(at, status) }
}

fn done(end: Option<NanosSinceStart>, at: NanosSinceStart, status: u16) -> StageResult {
    end.map_or_else(|| refused(at, status), StageResult::NextStage)
}

/// Starts computing if the queue has room; only one request computes at a time.
fn compute(
    work: NanosSinceStart,
    queue: usize,
    waiting: &mut usize,
    at: NanosSinceStart,
    status: u16,
) -> StageResult {
    if *waiting > queue {
        return refused(at, status);
    }
    *waiting += 1;
    StageResult::Compute(work)
}

fn attempt(
    chain: &mut TimeoutProxy,
    at: NanosSinceStart,
    course: &mut RequestProgress,
    weather: &mut Disturbances,
    rng: &mut Rng,
) -> StageResult {
    course.tries += 1;
    match chain.attempt(at, weather, rng) {
        AttemptResult::Done(end) => StageResult::NextStage(end),
        AttemptResult::GivenUp(then) if chain.is_last_try(course.tries) => {
            StageResult::End(then, PlannedResponse::Answer(GATEWAY_TIMEOUT))
        }
        AttemptResult::GivenUp(then) => StageResult::RetryStage(then),
    }
}

#[cfg(test)]
mod tests;
