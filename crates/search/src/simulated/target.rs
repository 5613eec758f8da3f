//! Offers load to a simulated target on a manual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use fastrand::Rng;

use super::servers::{SimulatedServer, exponential};
use crate::closed_loop;
use crate::observation::{BLOCK_SECONDS, BlockCounts, TrialObservation};
use crate::target::SearchTarget;
use crate::trial_spec::TrialSpec;

/// The arrival process of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimulatedArrivals {
    /// Constant spacing, apart from the generator's lag.
    Constant,
    /// Poisson arrivals, like those of independent users.
    Poisson,
}

/// The largest lag of the generator, in seconds; the lag is uniform.
const LAG: f64 = 0.000_1;

/// A simulated server with a load generator.
pub struct SimulatedTarget {
    server: Box<dyn SimulatedServer>,
    arrivals: SimulatedArrivals,
    /// The time in seconds above which a response is late.
    bound: f64,
    /// The highest rate of the generator, in requests per second.
    generator: f64,
    rng: Rng,
    now: f64,
    /// The time at which the user interrupts the search.
    until: f64,
    /// The number of requests that were sent and failed.
    pub failed_count: u64,
}

impl SimulatedTarget {
    /// Creates a target in front of a fresh server. Responses after `bound` seconds are late.
    #[must_use]
    pub fn new(server: Box<dyn SimulatedServer>, arrivals: SimulatedArrivals, bound: f64, seed: u64) -> Self {
        let rng = Rng::with_seed(seed);
        let (generator, until) = (f64::INFINITY, f64::INFINITY);
        Self { server, arrivals, bound, generator, rng, now: 0.0, until, failed_count: 0 }
    }

    /// Returns the target with a generator that sends at most this many requests per second.
    #[must_use]
    pub fn with_generator_max_rate(self, generator: f64) -> Self {
        Self { generator, ..self }
    }

    /// Returns the target with a user who interrupts the search at this time, in seconds.
    #[must_use]
    pub fn interrupted_at(self, until: f64) -> Self {
        Self { until, ..self }
    }

    fn gap(&mut self, rate: f64) -> f64 {
        match self.arrivals {
            SimulatedArrivals::Constant => 1.0 / rate,
            SimulatedArrivals::Poisson => exponential(&mut self.rng) / rate,
        }
    }
}

/// Records blocks, some ahead of time, because the fate of a request is known when it is sent.
struct BlockRecorder {
    blocks: Vec<BlockCounts>,
    last_end: f64,
    in_flight: i64,
}

impl BlockRecorder {
    fn at(&mut self, after: f64) -> &mut BlockCounts {
        let index = (after.max(0.0) / BLOCK_SECONDS) as usize;
        if index >= self.blocks.len() {
            self.blocks.resize(index + 1, BlockCounts::default());
        }
        &mut self.blocks[index]
    }

    /// Records a request with the times when it was due, sent and ended, in seconds since the first block began.
    fn request(&mut self, due: f64, sent: f64, (end, good): (f64, bool), bound: f64) {
        self.at(sent).sent += 1;
        self.last_end = self.last_end.max(end);
        let block = self.at(end);
        if good {
            block.good += 1;
            block.latency_sum += end - due;
            block.slowest = block.slowest.max(end - due);
        } else {
            block.errors += 1;
        }
        if good && end - due <= bound {
            block.timely += 1;
        } else {
            self.at(end.min(due + bound)).late += 1;
        }
    }

    /// Completes a block, after which nothing more is sent in it.
    fn complete(&mut self, index: usize) {
        self.at((index as f64 + 0.5) * BLOCK_SECONDS);
        let block = &mut self.blocks[index];
        self.in_flight += i64::from(block.sent) - i64::from(block.ended_count());
        block.in_flight = u32::try_from(self.in_flight).unwrap_or(0);
    }
}

impl SearchTarget for SimulatedTarget {
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation {
        let began = self.now;
        let mut filling = BlockRecorder { blocks: Vec::new(), last_end: 0.0, in_flight: 0 };
        let rate = offer.rate.min(self.generator);
        let (mut due, mut sent, mut index) = (0.0, 0.0_f64, 0);
        loop {
            due += self.gap(rate);
            while due >= (index + 1) as f64 * BLOCK_SECONDS {
                filling.complete(index);
                index += 1;
                if offer.is_enough(&filling.blocks[..index])
                    || began + index as f64 * BLOCK_SECONDS > self.until
                {
                    let invalid = offer.rate > 1.01 * self.generator;
                    return self.close(offer.drain, invalid, filling, index);
                }
            }
            sent = sent.max(due + LAG * self.rng.f64());
            let fate = self.server.serve(began + sent, &mut self.rng);
            filling.request(due, sent, (fate.end - began, fate.is_good), self.bound);
        }
    }

    fn rest(&mut self, time: Duration) -> bool {
        self.now += time.as_secs_f64();
        self.now <= self.until
    }
}

/// Runs closed-loop trials. The generator's limit is then a number of clients.
impl closed_loop::ClosedTarget for SimulatedTarget {
    fn carry_out(&mut self, offer: &closed_loop::ClosedTrialSpec) -> TrialObservation {
        let began = self.now;
        let mut filling = BlockRecorder { blocks: Vec::new(), last_end: 0.0, in_flight: 0 };
        let (invalid, mut index) = (f64::from(offer.clients) > self.generator, 0);
        let mut free: BinaryHeap<_> = (0..offer.clients).map(|_| Reverse(SimulatedInstant(0))).collect();
        loop {
            let sent = free.pop().map_or(f64::INFINITY, |Reverse(at)| at.seconds());
            while sent >= (index + 1) as f64 * BLOCK_SECONDS {
                filling.complete(index);
                index += 1;
                if offer.is_enough(&filling.blocks[..index])
                    || began + index as f64 * BLOCK_SECONDS > self.until
                {
                    return self.close(offer.drain, invalid, filling, index);
                }
            }
            let fate = self.server.serve(began + sent, &mut self.rng);
            filling.request(sent, sent, (fate.end - began, fate.is_good), self.bound);
            let pause = if fate.is_good { 0.0 } else { offer.pause_after_failure.as_secs_f64() };
            free.push(Reverse(SimulatedInstant::of(fate.end - began + pause + LAG * self.rng.f64())));
        }
    }

    fn rest(&mut self, time: Duration) -> bool {
        SearchTarget::rest(self, time)
    }
}

/// A sortable instant in nanoseconds since the start of the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SimulatedInstant(u64);

impl SimulatedInstant {
    pub(crate) fn of(seconds: f64) -> Self {
        Self((seconds * 1e9) as u64)
    }

    pub(crate) fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl SimulatedTarget {
    /// Waits for outstanding requests and closes them.
    fn close(
        &mut self,
        drain: Duration,
        invalid: bool,
        filling: BlockRecorder,
        complete: usize,
    ) -> TrialObservation {
        let lasted = complete as f64 * BLOCK_SECONDS;
        let drained = (filling.last_end - lasted).clamp(0.0, drain.as_secs_f64());
        self.now += lasted + drained;
        self.server.drop_waiting(self.now);
        let mut blocks = filling.blocks;
        blocks.truncate(complete);
        self.failed_count += blocks.iter().map(|block| u64::from(block.errors)).sum::<u64>();
        let invalid = invalid.then(|| "fewer requests were sent than were due".to_owned());
        let took = Duration::from_secs_f64(lasted + drained);
        TrialObservation {
            blocks,
            took,
            invalid_reason: invalid,
            interrupted: self.now > self.until,
            ..TrialObservation::default()
        }
    }
}
