//! A trial reduced to what it says about growth, errors and lateness.
//!
//! Pure sums over blocks. What they mean for a limit is [`crate::belief`]'s, which way they point [`crate::vote`]'s.

use crate::seen::{BLOCK_SECONDS, BLOCKS_PER_CHUNK, BLOCKS_PER_SECOND, BlockCounts, mean_latency, sum};
use crate::vote::TrialCriteria;

/// Counts that vary: their squared deviations from what is expected, over it, and of how many.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Dispersion {
    /// Sum of squared deviations, each over its expectation.
    pub sum: f64,
    /// Degrees of freedom.
    pub of: f64,
}

impl Dispersion {
    /// Variance over mean, drawn towards a guess that weighs so many observations.
    #[must_use]
    pub fn shrunk(self, guess: f64, weight: f64) -> f64 {
        (self.sum + guess * weight) / (self.of + weight)
    }

    /// Both.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, of: self.of + other.of }
    }
}

/// So many of so many, and how much more than by chance that varies from half second to half second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Proportion {
    /// How many.
    pub count: f64,
    /// Of how many.
    pub of: f64,
    /// Variance over that of independent draws.
    pub inflation: f64,
}

impl Proportion {
    /// Counted block by block.
    fn counted(
        blocks: &[BlockCounts],
        count: impl Fn(&BlockCounts) -> u32 + Copy,
        of: impl Fn(&BlockCounts) -> u32 + Copy,
    ) -> Self {
        let (all, whole) = (sum(blocks, count), sum(blocks, of));
        let share = if whole > 0.0 { all / whole } else { 0.0 };
        let mut spread = Dispersion { sum: 0.0, of: -1.0 };
        for chunk in blocks.chunks_exact(BLOCKS_PER_CHUNK).filter(|chunk| sum(chunk, of) > 0.0) {
            let (part, of) = (sum(chunk, count), sum(chunk, of));
            let expected = of * share * (1.0 - share);
            spread =
                spread.combine(Dispersion { sum: (part - of * share).powi(2) / expected.max(1e-9), of: 1.0 });
        }
        let known = all > 0.0 && all < whole && spread.of > 0.0;
        // Prior 2 with the weight of three half seconds, as in the study that this follows.
        let inflation = if known { spread.shrunk(2.0, 3.0).max(1.0) } else { 2.0 };
        Self { count: all, of: whole, inflation }
    }

    /// The share itself; none of nothing is nothing.
    #[must_use]
    pub fn value(self) -> f64 {
        if self.of > 0.0 { self.count / self.of } else { 0.0 }
    }

    /// By how many standard deviations it is above a bound.
    #[must_use]
    pub fn deviations_above(self, bound: f64) -> f64 {
        let deviation = (self.inflation * self.of * bound * (1.0 - bound)).sqrt();
        if deviation > 0.0 { (self.count - self.of * bound) / deviation } else { 0.0 }
    }

    /// Logarithm of the likelihood of the share itself: no other is likelier.
    #[must_use]
    pub fn max_ln_likelihood(self) -> f64 {
        let value = self.value().clamp(1e-9, 1.0 - 1e-9);
        self.count * value.ln() + (self.of - self.count) * (-value).ln_1p()
    }

    /// The inflation for who compares it with a curve about which the logarithm of the odds varies by so much.
    #[must_use]
    pub fn inflation_with_doubt(self, doubt: f64) -> f64 {
        let value = self.value();
        self.inflation + doubt * self.of * value * (1.0 - value)
    }
}

/// What a trial says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialEvidence {
    /// Requests a second, as sent.
    pub rate: f64,
    /// From when it had settled to its end, in seconds.
    pub seconds: f64,
    /// Requests sent in that time.
    pub sent: f64,
    /// In flight when it had settled.
    pub from: f64,
    /// In flight at its end.
    pub to: f64,
    /// How much in flight it gained a second, as the median of all slopes (Theil 1950, Sen 1968), in requests.
    pub slope: f64,
    /// How answers vary from half second to half second.
    pub answers: Dispersion,
    /// Good answers a second.
    pub goodput: f64,
    /// Of all that ended.
    pub errors: Proportion,
    /// Of all of which it is known whether they were in time, once two thirds of the trial are left.
    pub late: Proportion,
    /// Stretches of half seconds in which some were late, one after the other.
    pub bursts: f64,
    /// Mean response time of the last 0.3 s's good answers, in seconds.
    pub latency: Option<f64>,
    /// That of its first three stretches with any, in seconds.
    pub first: Option<f64>,
    /// The slowest answer of each of the last three blocks, the middle one of them, in seconds: one may be chance.
    pub slowest: f64,
    /// Of the slowest answers of each block of its last second the second, in seconds: what serves many at a time answers them at once.
    pub slow: f64,
    /// Seconds from its begin during which no more was in flight than without a queue.
    pub held: f64,
}

/// Blocks over which what is in flight is averaged.
const ENDS: usize = 3;

impl TrialEvidence {
    /// What these blocks of a trial at this rate say; little, if it had hardly settled.
    #[must_use]
    pub fn of(rate: f64, blocks: &[BlockCounts], standard: &TrialCriteria) -> Self {
        // What was stopped before it had settled was much too much: then its begin says enough.
        let settled = ((standard.settle / BLOCK_SECONDS).ceil() as usize).min(blocks.len() / 3);
        let held = held(blocks, standard.max_unqueued_in_flight(rate));
        if blocks.len() < settled + ENDS + 1 {
            // Too short for growth; what failed failed.
            let errors = Proportion::counted(blocks, |block| block.errors, BlockCounts::ended);
            let goodput = sum(blocks, |block| block.good) / (blocks.len().max(1) as f64 * BLOCK_SECONDS);
            let (latency, first, slowest, slow) =
                (mean_latency(blocks), first(blocks), slowest(blocks), slow(blocks));
            return Self { rate, held, errors, goodput, latency, first, slowest, slow, ..Self::default() };
        }
        let (begin, rest) = (&blocks[settled..settled + ENDS], &blocks[settled..]);
        let between = &rest[ENDS.div_ceil(2)..rest.len() - ENDS / 2];
        let seconds = between.len() as f64 * BLOCK_SECONDS;
        let sent = sum(between, |block| block.sent);
        // Limiters that count in windows fail in part of each: whole seconds, not parts of them.
        let late = &blocks[settled.max(blocks.len() / 3)..];
        let whole = rest.len() % BLOCKS_PER_SECOND * usize::from(rest.len() > BLOCKS_PER_SECOND);
        Self {
            rate: sent / seconds,
            seconds,
            sent,
            from: in_flight(begin),
            to: in_flight(&rest[rest.len() - ENDS..]),
            slope: slope(rest),
            answers: answers(rest),
            goodput: sum(rest, |block| block.good) / (rest.len() as f64 * BLOCK_SECONDS),
            errors: Proportion::counted(&rest[whole..], |block| block.errors, BlockCounts::ended),
            late: Proportion::counted(late, |block| block.late, |block| block.late + block.timely),
            bursts: bursts(late),
            latency: mean_latency(&rest[rest.len() - ENDS..]),
            first: first(blocks),
            slowest: slowest(rest),
            slow: slow(rest),
            held,
        }
    }

    /// Of the requests sent, the share that is left in flight.
    #[must_use]
    pub fn growth(&self) -> f64 {
        if self.sent > 0.0 { (self.to - self.from) / self.sent } else { 0.0 }
    }
}

fn in_flight(blocks: &[BlockCounts]) -> f64 {
    sum(blocks, |block| block.in_flight) / blocks.len().max(1) as f64
}

fn slowest(blocks: &[BlockCounts]) -> f64 {
    let mut last: Vec<_> = blocks.iter().rev().take(ENDS).map(|block| block.slowest).collect();
    last.sort_by(f64::total_cmp);
    last.get(last.len() / 2).copied().unwrap_or_default()
}

fn first(blocks: &[BlockCounts]) -> Option<f64> {
    let first: Vec<_> = blocks.iter().filter(|block| block.good > 0).take(ENDS).copied().collect();
    mean_latency(&first)
}

fn slow(blocks: &[BlockCounts]) -> f64 {
    let mut last: Vec<_> = blocks.iter().rev().take(BLOCKS_PER_SECOND).map(|block| block.slowest).collect();
    last.sort_by(|one, other| other.total_cmp(one));
    last.get(1).copied().unwrap_or_default()
}

fn held(blocks: &[BlockCounts], calm: f64) -> f64 {
    let last = blocks.iter().rposition(|block| f64::from(block.in_flight) <= calm);
    last.map_or(0.0, |at| (at + 1) as f64 * BLOCK_SECONDS)
}

/// How often lateness began.
fn bursts(blocks: &[BlockCounts]) -> f64 {
    let late: Vec<_> =
        blocks.chunks(BLOCKS_PER_CHUNK).map(|chunk| sum(chunk, |block| block.late) > 0.0).collect();
    let begins = (0..late.len()).filter(|at| late[*at] && (*at == 0 || !late[at - 1]));
    begins.count() as f64
}

/// Dispersion of what ends in half a second.
fn answers(blocks: &[BlockCounts]) -> Dispersion {
    let counts: Vec<_> =
        blocks.chunks_exact(BLOCKS_PER_CHUNK).map(|chunk| sum(chunk, BlockCounts::ended)).collect();
    let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
    if counts.len() < 2 || mean <= 0.0 {
        return Dispersion::default();
    }
    let sum = counts.iter().map(|count| (count - mean).powi(2) / mean).sum();
    Dispersion { sum, of: counts.len() as f64 - 1.0 }
}

/// Points of which slopes are taken: more would cost their square.
const POINTS: usize = 24;

fn slope(blocks: &[BlockCounts]) -> f64 {
    let step = blocks.len().div_ceil(POINTS).max(1);
    let points: Vec<_> = blocks.chunks_exact(step).map(in_flight).collect();
    let mut slopes: Vec<_> = (0..points.len())
        .flat_map(|to| (0..to).map(move |from| (from, to)))
        .map(|(from, to)| (points[to] - points[from]) / ((to - from) as f64 * step as f64 * BLOCK_SECONDS))
        .collect();
    slopes.sort_by(f64::total_cmp);
    slopes.get(slopes.len() / 2).copied().unwrap_or_default()
}
