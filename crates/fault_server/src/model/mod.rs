//! What becomes of a request, and when: the plants as pure functions of instants, without sockets and clock.
//!
//! A request goes through the plants in the order in which they were given, each as if it stood before those that follow: what one
//! delays reaches the next that much later. [`Model`] must be told of requests and of those that go on in the order of time; the
//! server's loop does so.

mod chance;
mod limiter;
mod link;
mod weather;
mod workers;

use fastrand::Rng;

use self::chance::Time;
pub(super) use self::limiter::Bucket;
use self::limiter::{Spaced, Window};
use self::link::Link;
use self::weather::Weather;
use self::workers::{Balancer, Chain, Pool, Quota, Try};
use super::text::Plant;

/// Time since the server was started, in nanoseconds.
pub(super) type Nanos = u64;

/// All plants of a server.
#[derive(Debug)]
pub(super) struct Model {
    stages: Vec<Stage>,
    weather: Weather,
    rng: Rng,
}

/// A request on its way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    /// The next stage.
    next: u8,
    /// Tries at this stage so far.
    tries: u8,
    /// The places that it has, by stage.
    holds: u32,
    /// Which server of a balancer answered, where that is told.
    pub(super) server: Option<u8>,
    /// How long its answer is, in bytes.
    bytes: usize,
}

impl Course {
    /// The beginning of one whose answer has so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes, ..Self::default() }
    }
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// [`Model::proceed`] at that instant.
    Wait(Nanos),
    /// Compute for so long, then [`Model::computed`].
    Compute(Nanos),
    /// It ends then; [`Model::end`] when it does.
    End(Nanos, Fate),
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is answered with this status.
    Answer(u16),
    /// Its connection is closed.
    Close,
}

/// Status of what is served.
const OK: u16 = 200;

/// Status of a chain that has given up, of a gateway (RFC 9110 section 15.6.5).
const GATEWAY_TIMEOUT: u16 = 504;

#[derive(Debug)]
enum Stage {
    Delay(Time),
    Refusing { bucket: Bucket, status: u16 },
    Window { window: Window, status: u16 },
    Hanging { bucket: Bucket, hang: Nanos },
    Spaced { spaced: Spaced, status: u16 },
    Pool { pool: Pool, status: u16 },
    Cpu { work: Nanos, queue: usize, waiting: usize, status: u16 },
    Cap { places: usize, used: usize, service: Time, status: u16 },
    Quota(Quota),
    Chain(Chain),
    Balancer(Balancer),
    Link(Link),
}

/// What a stage says.
enum Passage {
    On(Nanos),
    Again(Nanos),
    Compute(Nanos),
    End(Nanos, Fate),
}

/// The status of a full queue that has no key for it.
const FULL: u16 = 503;

impl Model {
    /// Of these plants, with a time that every request takes before them.
    pub(super) fn new(plants: &[Plant], service: Nanos, seed: u64) -> Self {
        let mut stages = vec![Stage::Delay(Time::new(service, 0.0))];
        // Answers are sent last, wherever the link was named.
        let (links, others): (Vec<_>, Vec<_>) =
            plants.iter().partition(|plant| plant.kind.name == "bandwidth");
        stages.extend(others.into_iter().chain(links).filter_map(Stage::new));
        Self { stages, weather: Weather::new(plants, seed), rng: Rng::with_seed(!seed) }
    }

    /// A request that has come.
    pub(super) fn enter(&mut self, at: Nanos, course: &mut Course) -> Step {
        let awake = self.weather.awake(at);
        if awake > at { Step::Wait(awake) } else { self.proceed(at, course) }
    }

    /// One that was told to wait until this instant.
    pub(super) fn proceed(&mut self, at: Nanos, course: &mut Course) -> Step {
        loop {
            let Some(stage) = self.stages.get_mut(usize::from(course.next)) else {
                return Step::End(self.weather.awake(at), Fate::Answer(OK));
            };
            match stage.pass(at, course, &mut self.weather, &mut self.rng) {
                Passage::On(then) => {
                    (course.next, course.tries) = (course.next + 1, 0);
                    if then > at {
                        return Step::Wait(then);
                    }
                }
                Passage::Again(then) => return Step::Wait(then),
                Passage::Compute(work) => return Step::Compute(work),
                Passage::End(then, fate) => return Step::End(self.weather.awake(then), fate),
            }
        }
    }

    /// One that has had its computing.
    pub(super) fn computed(&mut self, at: Nanos, course: &mut Course) -> Step {
        if let Some(Stage::Cpu { waiting, .. }) = self.stages.get_mut(usize::from(course.next)) {
            *waiting = waiting.saturating_sub(1);
        }
        (course.next, course.tries) = (course.next + 1, 0);
        self.proceed(at, course)
    }

    /// One that has ended gives back what it has.
    pub(super) fn end(&mut self, course: &Course) {
        for (number, stage) in self.stages.iter_mut().enumerate() {
            if let Stage::Cap { used, .. } = stage
                && course.holds & (1 << number) != 0
            {
                *used = used.saturating_sub(1);
            }
        }
    }
}

impl Stage {
    /// What requests go through; nothing for what is the connections' or the weather's.
    fn new(plant: &Plant) -> Option<Self> {
        let status = plant.number("status") as u16;
        let bucket = || Bucket::new(plant.number("rate"), plant.number("bucket"));
        Some(match plant.kind.name {
            "rate-limiter" if plant.number("window") > 0.0 => {
                Self::Window { window: Window::new(plant.number("rate"), plant.nanos("window")), status }
            }
            "rate-limiter" => Self::Refusing { bucket: bucket(), status },
            "hanging-limiter" => Self::Hanging { bucket: bucket(), hang: plant.nanos("hang") },
            "delaying-limiter" => {
                Self::Spaced { spaced: Spaced::new(plant.number("rate"), plant.number("queue")), status }
            }
            "pool" => Self::Pool { pool: Pool::new(plant, Some(plant.count("queue")), 1.0), status },
            "cpu" => Self::Cpu { work: plant.nanos("work"), queue: plant.count("queue"), waiting: 0, status },
            "concurrency-cap" => {
                let service = Time::new(plant.nanos("service"), plant.number("cv"));
                Self::Cap { places: plant.count("places"), used: 0, service, status }
            }
            "connection-cap" => Self::Delay(Time::new(plant.nanos("service"), plant.number("cv"))),
            "noise" => Self::Delay(Time::new(plant.nanos("delay"), 1.0)),
            "quota" => Self::Quota(Quota::new(plant)),
            "timeout-chain" => Self::Chain(Chain::new(plant)),
            "uneven" => Self::Balancer(Balancer::new(plant)),
            "bandwidth" => Self::Link(Link::new(plant.number("rate"))),
            _ => return None,
        })
    }

    fn pass(&mut self, at: Nanos, course: &mut Course, weather: &mut Weather, rng: &mut Rng) -> Passage {
        match self {
            Self::Delay(time) => Passage::On(at + time.draw(rng)),
            Self::Refusing { bucket, status } => admitted(bucket.take(at), at, *status),
            Self::Window { window, status } => admitted(window.take(at), at, *status),
            Self::Hanging { bucket, hang } => {
                if bucket.take(at) {
                    Passage::On(at)
                } else {
                    Passage::End(at + *hang, Fate::Close)
                }
            }
            Self::Spaced { spaced, status } => done(spaced.take(at), at, *status),
            Self::Pool { pool, status } => done(pool.take(at, weather, rng), at, *status),
            Self::Cpu { work, queue, waiting, status } => compute(*work, *queue, waiting, at, *status),
            Self::Cap { places, used, service, status } => {
                if used >= places {
                    return refused(at, *status);
                }
                *used += 1;
                course.holds |= 1 << course.next;
                Passage::On(weather.finish(at, service.draw(rng), 0, 1))
            }
            Self::Quota(quota) => done(quota.take(at, weather, rng), at, FULL),
            Self::Chain(chain) => attempt(chain, at, course, weather, rng),
            Self::Balancer(balancer) => {
                let (server, end) = balancer.take(at, weather, rng);
                course.server = balancer.names_server.then_some(server);
                done(end, at, FULL)
            }
            Self::Link(link) => Passage::On(link.send(at, course.bytes)),
        }
    }
}

fn refused(at: Nanos, status: u16) -> Passage {
    Passage::End(at, Fate::Answer(status))
}

fn admitted(is_admitted: bool, at: Nanos, status: u16) -> Passage {
    if is_admitted { Passage::On(at) } else { refused(at, status) }
}

fn done(end: Option<Nanos>, at: Nanos, status: u16) -> Passage {
    end.map_or_else(|| refused(at, status), Passage::On)
}

/// One computes, the others wait.
fn compute(work: Nanos, queue: usize, waiting: &mut usize, at: Nanos, status: u16) -> Passage {
    if *waiting > queue {
        return refused(at, status);
    }
    *waiting += 1;
    Passage::Compute(work)
}

fn attempt(
    chain: &mut Chain,
    at: Nanos,
    course: &mut Course,
    weather: &mut Weather,
    rng: &mut Rng,
) -> Passage {
    course.tries += 1;
    match chain.attempt(at, weather, rng) {
        Try::Done(end) => Passage::On(end),
        Try::GivenUp(then) if chain.gives_up_after(course.tries) => {
            Passage::End(then, Fate::Answer(GATEWAY_TIMEOUT))
        }
        Try::GivenUp(then) => Passage::Again(then),
    }
}

#[cfg(test)]
mod tests;
