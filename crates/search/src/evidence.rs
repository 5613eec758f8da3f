//! Reduces a trial to its evidence about growth, errors and lateness.
//!
//! These are pure sums over blocks. [`crate::limit_posterior`] derives limits from them, and [`crate::trial_verdict`] a verdict
//! on a single trial.

use crate::observation::{
    BLOCK_SECONDS, BLOCKS_PER_CHUNK, BLOCKS_PER_SECOND, BlockCounts, mean_latency, sum,
};
use crate::trial_verdict::TrialCriteria;

/// The dispersion of counts: a sum of squared deviations with its degrees of freedom.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Dispersion {
    /// The sum of squared deviations, each divided by its expectation.
    pub squared_deviation_sum: f64,
    /// The degrees of freedom.
    pub degrees_of_freedom: f64,
}

impl Dispersion {
    /// Returns the variance over the mean, shrunk towards a guess with the weight of this many observations.
    #[must_use]
    pub fn variance_ratio_shrunk_toward(self, guess: f64, weight: f64) -> f64 {
        (self.squared_deviation_sum + guess * weight) / (self.degrees_of_freedom + weight)
    }

    /// Returns the dispersion of both samples together.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        Self {
            squared_deviation_sum: self.squared_deviation_sum + other.squared_deviation_sum,
            degrees_of_freedom: self.degrees_of_freedom + other.degrees_of_freedom,
        }
    }
}

/// A share of events, with its overdispersion between half seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Proportion {
    /// The number of events.
    pub count: f64,
    /// The number of trials of the share.
    pub total: f64,
    /// The variance divided by that of independent draws.
    pub inflation: f64,
}

impl Proportion {
    /// Counts a share block by block.
    fn counted(
        blocks: &[BlockCounts],
        count: impl Fn(&BlockCounts) -> u32 + Copy,
        of: impl Fn(&BlockCounts) -> u32 + Copy,
    ) -> Self {
        let (all, whole) = (sum(blocks, count), sum(blocks, of));
        let share = if whole > 0.0 { all / whole } else { 0.0 };
        let mut spread = Dispersion { squared_deviation_sum: 0.0, degrees_of_freedom: -1.0 };
        for chunk in blocks.chunks_exact(BLOCKS_PER_CHUNK).filter(|chunk| sum(chunk, of) > 0.0) {
            let (part, of) = (sum(chunk, count), sum(chunk, of));
            let expected = of * share * (1.0 - share);
            spread = spread.combine(Dispersion {
                squared_deviation_sum: (part - of * share).powi(2) / expected.max(1e-9),
                degrees_of_freedom: 1.0,
            });
        }
        let known = all > 0.0 && all < whole && spread.degrees_of_freedom > 0.0;
        // The prior is 2 with the weight of three half seconds, as in the study behind this method.
        let inflation = if known { spread.variance_ratio_shrunk_toward(2.0, 3.0).max(1.0) } else { 2.0 };
        Self { count: all, total: whole, inflation }
    }

    /// Returns the share; 0 without trials.
    #[must_use]
    pub fn value(self) -> f64 {
        if self.total > 0.0 { self.count / self.total } else { 0.0 }
    }

    /// Returns the number of standard deviations above a bound.
    #[must_use]
    pub fn deviations_above(self, bound: f64) -> f64 {
        let deviation = (self.inflation * self.total * bound * (1.0 - bound)).sqrt();
        if deviation > 0.0 { (self.count - self.total * bound) / deviation } else { 0.0 }
    }

    /// Returns the log-likelihood at the observed share, which is the maximum.
    #[must_use]
    pub fn max_ln_likelihood(self) -> f64 {
        let value = self.value().clamp(1e-9, 1.0 - 1e-9);
        self.count * value.ln() + (self.total - self.count) * (-value).ln_1p()
    }

    /// Returns the inflation for a comparison with a curve whose log-odds are uncertain by this variance.
    #[must_use]
    pub fn inflation_against_uncertain_curve(self, doubt: f64) -> f64 {
        let value = self.value();
        self.inflation + doubt * self.total * value * (1.0 - value)
    }
}

/// The evidence of one trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialEvidence {
    /// The sent rate in requests per second; the offered rate of a very short trial, or the number of clients in a closed loop.
    pub rate: f64,
    /// The seconds between the middle of the first three blocks after settling and the middle of the last three.
    pub seconds_after_settling: f64,
    /// The requests sent in that time.
    pub sent_count: f64,
    /// The requests in flight after settling.
    pub in_flight_settled: f64,
    /// The requests in flight at the end.
    pub in_flight_end: f64,
    /// The growth of the requests in flight per second, as the median of all slopes (Theil 1950, Sen 1968).
    pub in_flight_slope: f64,
    /// The dispersion of responses between half seconds.
    pub response_dispersion: Dispersion,
    /// The good responses per second.
    pub goodput: f64,
    /// The share of errors among all ended requests.
    pub errors: Proportion,
    /// The share of late responses in the last two thirds of the trial, among requests whose lateness is known.
    pub late: Proportion,
    /// The number of runs of half seconds with late responses.
    pub late_streak_count: f64,
    /// The mean response time of the good responses in the last 0.3 s, in seconds.
    pub mean_latency_at_end: Option<f64>,
    /// The mean response time of the first three blocks with good responses, in seconds.
    pub mean_latency_at_start: Option<f64>,
    /// The median of the slowest responses of the last three blocks, in seconds. A single slow response may be chance.
    pub median_of_last_block_maxima: f64,
    /// The second largest of the slowest responses per block in the last second, in seconds. A server that works in batches responds to
    /// many requests at once.
    pub second_largest_block_maximum: f64,
    /// The seconds from the start during which no more requests were in flight than without a queue.
    pub unqueued_seconds: f64,
}

/// The number of blocks over which the requests in flight are averaged.
const ENDS: usize = 3;

impl TrialEvidence {
    /// Computes the evidence of a trial at this rate. A trial that hardly settled gives little evidence.
    #[must_use]
    pub fn of(rate: f64, blocks: &[BlockCounts], standard: &TrialCriteria) -> Self {
        // A trial that was stopped before it settled had far too high a rate, so its beginning is enough.
        let settled = ((standard.settle / BLOCK_SECONDS).ceil() as usize).min(blocks.len() / 3);
        let held = held(blocks, standard.max_unqueued_in_flight(rate));
        if blocks.len() < settled + ENDS + 1 {
            // The trial is too short to show growth, but its errors count.
            let errors = Proportion::counted(blocks, |block| block.errors, BlockCounts::ended_count);
            let goodput = sum(blocks, |block| block.good) / (blocks.len().max(1) as f64 * BLOCK_SECONDS);
            let (latency, first, slowest, slow) =
                (mean_latency(blocks), first(blocks), slowest(blocks), slow(blocks));
            return Self {
                rate,
                unqueued_seconds: held,
                errors,
                goodput,
                mean_latency_at_end: latency,
                mean_latency_at_start: first,
                median_of_last_block_maxima: slowest,
                second_largest_block_maximum: slow,
                ..Self::default()
            };
        }
        let (begin, rest) = (&blocks[settled..settled + ENDS], &blocks[settled..]);
        let between = &rest[ENDS.div_ceil(2)..rest.len() - ENDS / 2];
        let seconds = between.len() as f64 * BLOCK_SECONDS;
        let sent = sum(between, |block| block.sent);
        // Limiters with time windows fail in a part of each window, so only whole seconds count.
        let late = &blocks[settled.max(blocks.len() / 3)..];
        let whole = rest.len() % BLOCKS_PER_SECOND * usize::from(rest.len() > BLOCKS_PER_SECOND);
        Self {
            rate: sent / seconds,
            seconds_after_settling: seconds,
            sent_count: sent,
            in_flight_settled: in_flight(begin),
            in_flight_end: in_flight(&rest[rest.len() - ENDS..]),
            in_flight_slope: slope(rest),
            response_dispersion: answers(rest),
            goodput: sum(rest, |block| block.good) / (rest.len() as f64 * BLOCK_SECONDS),
            errors: Proportion::counted(&rest[whole..], |block| block.errors, BlockCounts::ended_count),
            late: Proportion::counted(late, |block| block.late, |block| block.late + block.timely),
            late_streak_count: bursts(late),
            mean_latency_at_end: mean_latency(&rest[rest.len() - ENDS..]),
            mean_latency_at_start: first(blocks),
            median_of_last_block_maxima: slowest(rest),
            second_largest_block_maximum: slow(rest),
            unqueued_seconds: held,
        }
    }

    /// Returns the requests left in flight, as a share of the sent requests.
    #[must_use]
    pub fn in_flight_growth_share(&self) -> f64 {
        if self.sent_count > 0.0 {
            (self.in_flight_end - self.in_flight_settled) / self.sent_count
        } else {
            0.0
        }
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

/// Returns the number of runs of half seconds with late responses.
fn bursts(blocks: &[BlockCounts]) -> f64 {
    let late: Vec<_> =
        blocks.chunks(BLOCKS_PER_CHUNK).map(|chunk| sum(chunk, |block| block.late) > 0.0).collect();
    let begins = (0..late.len()).filter(|at| late[*at] && (*at == 0 || !late[at - 1]));
    begins.count() as f64
}

/// Returns the dispersion of the requests that end per half second.
fn answers(blocks: &[BlockCounts]) -> Dispersion {
    let counts: Vec<_> =
        blocks.chunks_exact(BLOCKS_PER_CHUNK).map(|chunk| sum(chunk, BlockCounts::ended_count)).collect();
    let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
    if counts.len() < 2 || mean <= 0.0 {
        return Dispersion::default();
    }
    let sum = counts.iter().map(|count| (count - mean).powi(2) / mean).sum();
    Dispersion { squared_deviation_sum: sum, degrees_of_freedom: counts.len() as f64 - 1.0 }
}

/// The number of points for slopes. The cost grows with its square.
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
