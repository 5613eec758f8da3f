//! A path, and segments carried out on it.

use fastrand::Rng;

use crate::segment::{Design, Segment};
use crate::slot::{Cell, CellStats};

/// How a path is disturbed. Deviations are of logarithms of times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// What tables call it.
    pub name: &'static str,
    /// Of single requests.
    pub request: f64,
    /// Of the level, correlated over some seconds.
    pub level: f64,
    /// Of the level's walk in a minute.
    pub walk: f64,
    /// Seconds between stalls, on average; none without stalls.
    pub stalls: Option<f64>,
    /// Of connections.
    pub connection: f64,
}

/// Nobody else is there.
pub const QUIET: Noise =
    Noise { name: "quiet", request: 0.25, level: 0.02, walk: 0.02, stalls: None, connection: 0.005 };
/// As in a cluster by day.
pub const MEDIUM: Noise =
    Noise { name: "medium", request: 0.4, level: 0.05, walk: 0.05, stalls: Some(60.0), connection: 0.01 };
/// Neighbours that stop everybody for a second or three.
pub const NOISY: Noise =
    Noise { name: "noisy", request: 0.6, level: 0.1, walk: 0.1, stalls: Some(20.0), connection: 0.02 };
/// The three kinds of path.
pub const PATHS: [Noise; 3] = [QUIET, MEDIUM, NOISY];

/// Connections of each variant in a segment.
const CONNECTIONS: usize = 8;
/// The level changes so often, in seconds.
const STEP: f64 = 0.1;
/// Seconds over which it is correlated.
const MEMORY: f64 = 3.0;
/// A stall multiplies times by this.
const STALL: f64 = 1.65;
/// Share of requests in the tail, and what multiplies them.
const TAIL: (f64, f64) = (0.02, 4.0);
/// Seconds that a request takes in the middle.
const USUAL: f64 = 0.02;

/// What a variant is like.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Effect {
    /// A logarithm: above zero it is slower than the reference.
    pub time: f64,
    /// The same for the tail's requests alone.
    pub tail: f64,
    /// Share of its requests that fail.
    pub failing: f64,
}

/// A path with its variants, the reference first.
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
    /// At so many requests a second.
    #[must_use]
    pub fn new(noise: Noise, effects: Vec<Effect>, rate: f64, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let wave = noise.level * normal(&mut random);
        Self { noise, effects, rate, random, now: 0.0, stepped: 0.0, wave, walk: 0.0, stalled_until: 0.0 }
    }

    /// Cells of a segment.
    pub fn carry_out(&mut self, segment: &Segment) -> Vec<Cell> {
        let offsets: Vec<Vec<f64>> = (0..self.effects.len())
            .map(|_| (0..CONNECTIONS).map(|_| self.noise.connection * normal(&mut self.random)).collect())
            .collect();
        match segment.design {
            Design::Interleaved => self.interleaved(segment, &offsets),
            Design::Blocks => self.blocks(segment, &offsets),
        }
    }

    fn interleaved(&mut self, segment: &Segment, offsets: &[Vec<f64>]) -> Vec<Cell> {
        self.now += segment.settle.as_secs_f64();
        let turns = (segment.each.as_secs_f64() * self.rate) as usize;
        let rounds = segment.rounds(turns * segment.cells / segment.members.len() + 1);
        let mut order = rounds.iter().flatten().copied();
        let mut cells = Vec::new();
        for _ in 0..segment.cells {
            let turns: Vec<_> = order.by_ref().take(turns).collect();
            cells.push(self.cell(&turns, offsets));
        }
        cells
    }

    fn blocks(&mut self, segment: &Segment, offsets: &[Vec<f64>]) -> Vec<Cell> {
        let requests = (segment.each.as_secs_f64() * self.rate) as usize;
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

    /// One request after the other, each of the variant whose turn it is.
    fn cell(&mut self, turns: &[usize], offsets: &[Vec<f64>]) -> Cell {
        let mut times = vec![(Vec::new(), 0, 0); self.effects.len()];
        for &member in turns {
            self.now += 1.0 / self.rate;
            let offset = offsets[member][self.random.usize(..CONNECTIONS)];
            let time = self.request(member, offset);
            let (times, requests, failed) = &mut times[member];
            *requests += 1;
            if self.random.f64() < self.effects[member].failing { *failed += 1 } else { times.push(time) }
        }
        let slot =
            |(times, requests, failed)| (requests > 0).then(|| CellStats::of(times, requests, failed, false));
        times.into_iter().map(slot).collect()
    }

    fn request(&mut self, member: usize, offset: f64) -> f64 {
        let Effect { time, tail, .. } = self.effects[member];
        let own = self.noise.request * normal(&mut self.random);
        let in_tail = self.random.f64() < TAIL.0;
        let tail = if in_tail { tail + TAIL.1.ln() } else { 0.0 };
        USUAL * (self.level() + offset + own + time + tail).exp()
    }

    fn level(&mut self) -> f64 {
        let keep = (-STEP / MEMORY).exp();
        while self.stepped < self.now {
            self.stepped += STEP;
            let innovation = self.noise.level * (1.0 - keep * keep).sqrt();
            self.wave = keep * self.wave + innovation * normal(&mut self.random);
            self.walk += self.noise.walk * (STEP / 60.0).sqrt() * normal(&mut self.random);
            let begins = self.noise.stalls.is_some_and(|every| self.random.f64() < STEP / every);
            if begins {
                self.stalled_until = self.stepped + 1.0 + 2.0 * self.random.f64();
            }
        }
        let stall = if self.now < self.stalled_until { STALL.ln() } else { 0.0 };
        self.wave + self.walk + stall
    }
}

/// Standard normal (Box and Muller).
fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}
