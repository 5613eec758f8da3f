//! A simulated path that runs segments.

use fastrand::Rng;

use crate::cell::{CellStats, CellStatsByVariant};
use crate::segment::{Segment, VariantOrder};

/// The noise of a path. Deviations are of logarithms of times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// The name in tables.
    pub name: &'static str,
    /// The deviation of single requests.
    pub request: f64,
    /// The deviation of the level, which is correlated over some seconds.
    pub level_deviation: f64,
    /// The deviation of the level's random walk per minute.
    pub walk: f64,
    /// The mean seconds between stalls; none without stalls.
    pub seconds_between_stalls: Option<f64>,
    /// The deviation of connections.
    pub connection: f64,
}

/// A path without other load.
pub const QUIET: Noise = Noise {
    name: "quiet",
    request: 0.25,
    level_deviation: 0.02,
    walk: 0.02,
    seconds_between_stalls: None,
    connection: 0.005,
};
/// A path as in a cluster by day.
pub const MEDIUM: Noise = Noise {
    name: "medium",
    request: 0.4,
    level_deviation: 0.05,
    walk: 0.05,
    seconds_between_stalls: Some(60.0),
    connection: 0.01,
};
/// A path with neighbours that stall everything for one to three seconds.
pub const NOISY: Noise = Noise {
    name: "noisy",
    request: 0.6,
    level_deviation: 0.1,
    walk: 0.1,
    seconds_between_stalls: Some(20.0),
    connection: 0.02,
};
/// The three kinds of path.
pub const PATHS: [Noise; 3] = [QUIET, MEDIUM, NOISY];

/// The number of connections of each variant in a segment.
const CONNECTIONS: usize = 8;
/// The interval in seconds at which the level changes.
const STEP: f64 = 0.1;
/// The correlation time of the level, in seconds.
const MEMORY: f64 = 3.0;
/// The factor of response times during a stall.
const STALL: f64 = 1.65;
/// The share of requests in the tail, and their factor.
const TAIL: (f64, f64) = (0.02, 4.0);
/// The median response time in seconds.
const USUAL: f64 = 0.02;

/// The effect of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Effect {
    /// The effect on the time, as a logarithm: a positive variant is slower than the reference.
    pub log_time_factor: f64,
    /// The additional effect on requests in the tail.
    pub tail: f64,
    /// The share of requests that fail.
    pub failing: f64,
}

/// A simulated path with its variants, the reference first.
#[derive(Debug)]
pub struct SimulatedPath {
    noise: Noise,
    effects: Vec<Effect>,
    rate: f64,
    random: Rng,
    now: f64,
    stepped: f64,
    wave: f64,
    walk: f64,
    stalled_until: f64,
}

impl SimulatedPath {
    /// Creates a path at this many requests per second.
    #[must_use]
    pub fn new(noise: Noise, effects: Vec<Effect>, rate: f64, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let wave = noise.level_deviation * normal(&mut random);
        Self { noise, effects, rate, random, now: 0.0, stepped: 0.0, wave, walk: 0.0, stalled_until: 0.0 }
    }

    /// Runs a segment and returns its cells.
    pub fn carry_out(&mut self, segment: &Segment) -> Vec<CellStatsByVariant> {
        let offsets: Vec<Vec<f64>> = (0..self.effects.len())
            .map(|_| (0..CONNECTIONS).map(|_| self.noise.connection * normal(&mut self.random)).collect())
            .collect();
        match segment.design {
            VariantOrder::Interleaved => self.interleaved(segment, &offsets),
            VariantOrder::OneVariantPerBlock => self.blocks(segment, &offsets),
        }
    }

    fn interleaved(&mut self, segment: &Segment, offsets: &[Vec<f64>]) -> Vec<CellStatsByVariant> {
        self.now += segment.settle.as_secs_f64();
        let turns = (segment.measured_time_per_variant.as_secs_f64() * self.rate) as usize;
        let rounds = segment.rounds(turns * segment.cell_count / segment.members.len() + 1);
        let mut order = rounds.iter().flatten().copied();
        let mut cells = Vec::new();
        for _ in 0..segment.cell_count {
            let turns: Vec<_> = order.by_ref().take(turns).collect();
            cells.push(self.cell(&turns, offsets));
        }
        cells
    }

    fn blocks(&mut self, segment: &Segment, offsets: &[Vec<f64>]) -> Vec<CellStatsByVariant> {
        let requests = (segment.measured_time_per_variant.as_secs_f64() * self.rate) as usize;
        let mut cells = Vec::new();
        for order in segment.blocks() {
            let mut cell = vec![None; self.effects.len()];
            for member in order {
                self.now += segment.settle.as_secs_f64();
                cell[member] = self.cell(&vec![member; requests], offsets)[member];
            }
            cells.push(cell);
        }
        cells
    }

    /// Runs one cell, request by request in the order of `turns`.
    fn cell(&mut self, turns: &[usize], offsets: &[Vec<f64>]) -> CellStatsByVariant {
        let mut times = vec![(Vec::new(), 0, 0); self.effects.len()];
        for &member in turns {
            self.now += 1.0 / self.rate;
            let offset = offsets[member][self.random.usize(..CONNECTIONS)];
            let time = self.request(member, offset);
            let (times, requests, failed) = &mut times[member];
            *requests += 1;
            if self.random.f64() < self.effects[member].failing { *failed += 1 } else { times.push(time) }
        }
        let slot = |(times, requests, failed)| {
            (requests > 0).then(|| CellStats::from_response_times(times, requests, failed, false))
        };
        times.into_iter().map(slot).collect()
    }

    fn request(&mut self, member: usize, offset: f64) -> f64 {
        let Effect { log_time_factor: time, tail, .. } = self.effects[member];
        let own = self.noise.request * normal(&mut self.random);
        let in_tail = self.random.f64() < TAIL.0;
        let tail = if in_tail { tail + TAIL.1.ln() } else { 0.0 };
        USUAL * (self.level() + offset + own + time + tail).exp()
    }

    fn level(&mut self) -> f64 {
        let keep = (-STEP / MEMORY).exp();
        while self.stepped < self.now {
            self.stepped += STEP;
            let innovation = self.noise.level_deviation * (1.0 - keep * keep).sqrt();
            self.wave = keep * self.wave + innovation * normal(&mut self.random);
            self.walk += self.noise.walk * (STEP / 60.0).sqrt() * normal(&mut self.random);
            let begins =
                self.noise.seconds_between_stalls.is_some_and(|every| self.random.f64() < STEP / every);
            if begins {
                self.stalled_until = self.stepped + 1.0 + 2.0 * self.random.f64();
            }
        }
        let stall = if self.now < self.stalled_until { STALL.ln() } else { 0.0 };
        self.wave + self.walk + stall
    }
}

/// Draws from the standard normal distribution (Box and Muller).
fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}
