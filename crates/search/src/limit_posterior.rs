//! Estimates the limits from all trials together, as posteriors over the logarithm of the rate.
//!
//! There are three kinds of limits. *Growth*: the requests in flight follow reflected Brownian motion, whose drift is the rate minus the
//! capacity. *Errors*: above the limit the excess fails, as with a rate limiter, or errors rise with the rate, as with a loss system.
//! *Lateness* rises with the rate. The cliff is the lower one of growth and errors, and the knee is the lowest of all three. These are pure
//! functions of [`TrialEvidence`].

use crate::evidence::{Dispersion, Proportion, TrialEvidence};
use crate::failure_curves::{self, FailureCurve};
use crate::goal::SearchGoal;
use crate::normal::ReflectedBrownian;

/// The evidence of a trial with its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedEvidence {
    /// The evidence of the trial.
    pub evidence: TrialEvidence,
    /// The weight for growth and errors, between 0 and 1.
    pub growth_and_errors_weight: f64,
    /// The weight for lateness, between 0 and 1.
    pub late_weight: f64,
    /// True if the target was overloaded. Its goodput is then its capacity, and late responses are not a burst.
    pub is_overloaded: bool,
}

/// A range that contains a limit with the stated credibility, and an estimate; in requests per second, in clients, or as a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bracket {
    /// The lower bound.
    pub lower: f64,
    /// The estimate.
    pub estimate: f64,
    /// The upper bound.
    pub upper: f64,
}

impl Bracket {
    /// Returns the distance between the bounds, as a share of the lower bound.
    #[must_use]
    pub fn width_relative_to_lower(&self) -> f64 {
        self.upper / self.lower - 1.0
    }

    /// Widens the bracket by this share on each side.
    #[must_use]
    pub fn widened_by_share(self, margin: f64) -> Self {
        Self { lower: self.lower / (1.0 + margin), upper: self.upper * (1.0 + margin), ..self }
    }
}

/// The quantiles of the posterior that bound a bracket; 97 % lie between them.
const BOUNDS: (f64, f64) = (0.015, 0.985);
/// The largest ratio between the bounds of a first range.
const WIDEST: f64 = 1000.0;
/// The number of grid points. The grid is built twice, the second time around the bulk of the posterior.
const POINTS: usize = 120;
/// The assumed standard deviations of the capacity from trial to trial, as shares. The likelihood averages over them.
const NOISE: [f64; 3] = [0.004, 0.015, 0.05];
/// The assumed share of outlier trials; below, the share of overloads in which goodput collapses.
const LAPSE: f64 = 0.02;
const COLLAPSE: f64 = 0.1;
/// The assumed dispersions of responses in overload. The likelihood averages over them.
const DISPERSIONS: [f64; 6] = [0.1, 0.35, 0.9, 2.0, 4.0, 9.0];
/// The prior of the logarithm of the dispersion: mean and standard deviation.
const GUESS: (f64, f64) = (-0.36, 1.0);

/// The share of requests that goes through the limiting queue, with its prior probability: all requests, or the part of one slow server
/// among several.
const WHOLE: (f64, f64) = (1.0, 0.985);
const PARTS: [(f64, f64); 3] = [(0.5, 0.005), (0.333, 0.005), (0.2, 0.005)];

/// A model of the queue before the limit.
#[derive(Debug, Clone, Copy)]
struct QueueModel {
    /// The dispersion of the responses: variance over mean.
    dispersion: f64,
    /// The standard deviation of the capacity from trial to trial, as a share.
    noise: f64,
    /// The share of requests that enters this queue.
    part: f64,
}

/// The posterior of the limits, given all trials.
#[derive(Debug, Clone)]
pub struct LimitPosterior<'w> {
    curves: &'w FailureCurves,
    witnesses: &'w [WeightedEvidence],
    /// The dispersion of responses in overload.
    answers: Dispersion,
    /// The mean response time without a queue, in seconds.
    service: f64,
    /// The mean number of late responses per burst.
    burst: f64,
}

/// A kind of limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// The limit by growth or errors.
    Cliff,
    /// The limit by growth, errors or lateness.
    Knee,
    /// The limit by errors, lateness or both, but not by growth, because a closed loop has no growth.
    WithoutGrowth {
        /// True if errors count.
        errors: bool,
        /// True if lateness counts.
        late: bool,
    },
}

impl LimitKind {
    /// Returns whether growth, errors and lateness count.
    fn parts(self) -> [bool; 3] {
        match self {
            Self::Cliff => [true, true, false],
            Self::Knee => [true, true, true],
            Self::WithoutGrowth { errors, late } => [false, errors, late],
        }
    }
}

impl<'w> LimitPosterior<'w> {
    /// Creates the posterior from trials of a target with this response time at very low load.
    #[must_use]
    pub fn new(curves: &'w FailureCurves, service: f64, witnesses: &'w [WeightedEvidence]) -> Self {
        let busy = witnesses
            .iter()
            .filter(|witness| witness.is_overloaded && witness.growth_and_errors_weight > 0.0);
        let answers = busy
            .fold(Dispersion::default(), |sum, witness| sum.combine(witness.evidence.response_dispersion));
        Self { curves, witnesses, answers, service, burst: burst(witnesses) }
    }

    /// Returns the bracket of a limit near this range. The bracket may exceed the range.
    #[must_use]
    pub fn bracket(&self, of: LimitKind, range: (f64, f64)) -> Bracket {
        // A rate of 0 has no logarithm. A rest of a queue may be served faster than the offered rate.
        let most = range.1.max(f64::MIN_POSITIVE);
        let (mut low, mut high) = (range.0.clamp(most / WIDEST, most).ln(), most.ln());
        let mut posterior = self.posterior(of, self.grid(low, high));
        for _ in 0..6 {
            let step = (high - low) / POINTS as f64;
            let (first, last) = posterior.reach();
            let (short_below, short_above) = (first - low < 2.0 * step, high - last < 2.0 * step);
            if !short_below && !short_above {
                break;
            }
            low -= if short_below { 0.4 } else { 0.0 };
            high += if short_above { 0.3 } else { 0.0 };
            posterior = self.posterior(of, self.grid(low, high));
        }
        for _ in 0..2 {
            let (first, last) = posterior.reach();
            let aside = (0.1 * (last - first)).max(1e-4);
            posterior = self.posterior(of, self.grid(first - aside, last + aside));
        }
        posterior.bracket()
    }

    /// Returns an even grid with extra points at the limits of single trials, because a likelihood may be sharper than the grid.
    fn grid(&self, low: f64, high: f64) -> Vec<f64> {
        let mut grid = even(low, high);
        for WeightedEvidence { evidence, .. } in
            self.witnesses.iter().filter(|witness| witness.growth_and_errors_weight > 0.0)
        {
            for share in [evidence.errors.value(), evidence.in_flight_growth_share()]
                .into_iter()
                .filter(|share| *share > 0.0)
            {
                let limit = evidence.rate.ln() + (-share.min(0.99)).ln_1p();
                grid.extend([-0.004, -0.002, 0.0, 0.002, 0.004].map(|aside| limit + aside));
            }
        }
        grid.retain(|theta| (low..=high).contains(theta));
        grid.sort_by(f64::total_cmp);
        grid
    }

    fn posterior(&self, of: LimitKind, grid: Vec<f64>) -> Posterior {
        let [grows, fails, is_late] = of.parts();
        let growth = grows.then(|| cumulated(&grid, &self.growth(&grid)));
        let errors = fails.then(|| cumulated(&grid, &self.rising(&grid, RisingFailureShare::Errors)));
        let is_late = is_late && !self.curves.lateness.is_empty();
        let late = is_late.then(|| cumulated(&grid, &self.rising(&grid, RisingFailureShare::Lateness)));
        let limits = [growth, errors, late].into_iter().flatten();
        let lower = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(&b).map(|(a, b)| either(*a, *b)).collect();
        let below = limits.reduce(lower).unwrap_or_else(|| vec![0.0; grid.len()]);
        Posterior { grid, below }
    }

    /// Returns the log-likelihood of each capacity, averaged over dispersion and capacity noise.
    fn growth(&self, grid: &[f64]) -> Vec<f64> {
        let likely = DISPERSIONS.map(|dispersion| (dispersion, self.ln_dispersion(dispersion)));
        let most = likely.iter().map(|(_, ln)| *ln).fold(f64::NEG_INFINITY, f64::max);
        let likely: Vec<_> = likely.into_iter().filter(|(_, ln)| *ln > most - 6.0).collect();
        let likeliest = likely.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1));
        let lines = || {
            let whole = likely.iter().flat_map(|pair| NOISE.map(|noise| (*pair, noise, WHOLE)));
            // For a partial queue, only the most likely dispersion is tried: overloaded trials tell the parts apart far better than the
            // dispersion does.
            whole.chain(PARTS.into_iter().flat_map(move |part| {
                likeliest.into_iter().flat_map(move |pair| NOISE.map(|noise| (pair, noise, part)))
            }))
        };
        let of = |theta: f64| {
            ln_mean(lines().map(|((dispersion, ln), noise, (part, prior))| {
                ln + prior.ln() + self.growth_at(theta, QueueModel { dispersion, noise, part })
            }))
        };
        grid.iter().map(|theta| of(theta.exp())).collect()
    }

    /// Returns the log-likelihood of a dispersion: squared deviations divided by the dispersion follow a chi-squared
    /// distribution.
    fn ln_dispersion(&self, dispersion: f64) -> f64 {
        let guess = (dispersion.ln() - GUESS.0) / GUESS.1;
        -(self.answers.degrees_of_freedom * dispersion.ln()
            + self.answers.squared_deviation_sum / dispersion
            + guess * guess)
            / 2.0
    }

    fn growth_at(&self, theta: f64, line: QueueModel) -> f64 {
        let all = self
            .witnesses
            .iter()
            .filter(|witness| witness.growth_and_errors_weight > 0.0 && witness.evidence.sent_count > 0.0);
        all.map(|witness| witness.growth_and_errors_weight * self.grown(&witness.evidence, theta, line).ln())
            .sum()
    }

    /// Returns the probability density of the requests left in flight, as a share of the sent ones.
    fn grown(&self, evidence: &TrialEvidence, theta: f64, line: QueueModel) -> f64 {
        let QueueModel { dispersion, noise, part } = line;
        let TrialEvidence { rate, seconds_after_settling: seconds, sent_count: sent, .. } = *evidence;
        let working =
            (rate.min(theta) * self.service).min(evidence.in_flight_settled.min(evidence.in_flight_end));
        // The number in flight is a mean of three samples, and the number without a queue is uncertain.
        let blur = 1.0 + (0.15 * working).powi(2);
        let variance = dispersion * rate.min(theta) + (noise * theta).powi(2) * seconds + blur / seconds;
        // An empty queue gives no more information about the capacity than this uncertainty allows.
        let drift = (part * (rate - theta)).max(-variance / (2.0 * blur));
        let motion = ReflectedBrownian { from: evidence.in_flight_settled - working, drift, variance };
        let plain = sent * motion.density(evidence.in_flight_end - working, seconds);
        let least = part * (1.0 - theta / rate);
        let (share, collapse) = match least > 0.0 {
            true if evidence.in_flight_growth_share() > least => (COLLAPSE, rate / theta.max(1e-3 * rate)),
            true => (COLLAPSE, 0.0),
            false => (0.0, 0.0),
        };
        (1.0 - LAPSE) * ((1.0 - share) * plain + share * collapse) + LAPSE
    }

    fn rising(&self, grid: &[f64], limit: RisingFailureShare) -> Vec<f64> {
        let shapes = match limit {
            RisingFailureShare::Errors => &self.curves.errors,
            RisingFailureShare::Lateness => &self.curves.lateness,
        };
        let all: Vec<Vec<f64>> = shapes.iter().map(|shape| self.shaped(grid, limit, shape)).collect();
        (0..grid.len()).map(|at| ln_mean(all.iter().map(|shape| shape[at]))).collect()
    }

    fn shaped(&self, grid: &[f64], limit: RisingFailureShare, shape: &FailureCurve) -> Vec<f64> {
        let mut ln = vec![shape.weight.ln(); grid.len()];
        for witness in self.witnesses {
            let (weight, mut share) = limit.of(witness);
            if limit == RisingFailureShare::Lateness {
                share.inflation = share.inflation.max(self.burst);
            }
            if weight > 0.0 && share.total > 0.0 {
                // A curve with more doubt must not win by its doubt, so the quasi-likelihood has its own normaliser.
                let doubted = share.inflation_against_uncertain_curve(shape.log_odds_variance);
                let (most, rate) = (share.max_ln_likelihood(), witness.evidence.rate.ln());
                for (ln, theta) in ln.iter_mut().zip(grid) {
                    let (is, is_not) = shape.log_shares_at(rate - theta);
                    let off = share.count * is + (share.total - share.count) * is_not - most;
                    *ln += weight * (off / doubted - doubted.ln() / 2.0);
                }
            }
        }
        ln
    }
}

/// Returns the mean number of late responses per burst, over all trials. A trial without late responses may have missed one such
/// burst.
fn burst(witnesses: &[WeightedEvidence]) -> f64 {
    let all = witnesses.iter().filter(|witness| witness.late_weight > 0.0 && !witness.is_overloaded);
    let (late, bursts) = all.fold((0.0, 0.0), |(late, bursts), witness| {
        (late + witness.evidence.late.count, bursts + witness.evidence.late_streak_count)
    });
    if bursts > 0.0 { late / bursts } else { 2.0 }
}

/// The kind of failure share that rises with the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RisingFailureShare {
    Errors,
    Lateness,
}

impl RisingFailureShare {
    fn of(self, witness: &WeightedEvidence) -> (f64, Proportion) {
        match self {
            Self::Errors => (witness.growth_and_errors_weight, witness.evidence.errors),
            Self::Lateness => (witness.late_weight, witness.evidence.late),
        }
    }
}

/// The curves of errors and lateness over the rate.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureCurves {
    errors: Vec<FailureCurve>,
    lateness: Vec<FailureCurve>,
}

impl FailureCurves {
    /// Returns the curves for a goal.
    #[must_use]
    pub fn new(goal: &SearchGoal) -> Self {
        let lateness = goal
            .latency_goal
            .map(|late| failure_curves::lateness_curves(late.max_late_share))
            .unwrap_or_default();
        Self { errors: failure_curves::error_curves(goal.max_error_share), lateness }
    }

    /// Returns the curves over the number of clients, where one more client may be the first without a place.
    #[must_use]
    pub fn over_client_count(goal: &SearchGoal) -> Self {
        let lateness = goal
            .latency_goal
            .map(|late| failure_curves::client_curves(late.max_late_share))
            .unwrap_or_default();
        Self { errors: failure_curves::client_curves(goal.max_error_share), lateness }
    }
}

/// Returns the probability that the lower of two limits is below a point.
fn either(first: f64, second: f64) -> f64 {
    1.0 - (1.0 - first) * (1.0 - second)
}

/// Returns the logarithm of the mean of numbers that are given by their logarithms.
fn ln_mean(all: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = all.clone().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return most;
    }
    let (count, sum) = all.fold((0.0, 0.0), |(count, sum), ln| (count + 1.0, sum + (ln - most).exp()));
    most + f64::ln(sum / count)
}

/// Points at equal distances.
fn even(low: f64, high: f64) -> Vec<f64> {
    (0..POINTS).map(|at| low + (high - low) * at as f64 / (POINTS - 1) as f64).collect()
}

/// Returns the cumulated probability at each grid point, by linear interpolation of the density.
fn cumulated(grid: &[f64], ln: &[f64]) -> Vec<f64> {
    let most = ln.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sums = vec![0.0; ln.len()];
    for at in 1..ln.len() {
        let height = ((ln[at - 1] - most).exp() + (ln[at] - most).exp()) / 2.0;
        sums[at] = sums[at - 1] + height * (grid[at] - grid[at - 1]);
    }
    let total = sums.last().copied().unwrap_or(1.0).max(1e-300);
    sums.iter().map(|sum| sum / total).collect()
}

/// The probability that the limit is below each grid point.
#[derive(Debug, Clone)]
struct Posterior {
    grid: Vec<f64>,
    below: Vec<f64>,
}

impl Posterior {
    fn quantile(&self, share: f64) -> f64 {
        let at = self.below.partition_point(|below| *below < share).clamp(1, self.below.len() - 1);
        let (before, after) = (self.below[at - 1], self.below[at]);
        let part = ((share - before) / (after - before).max(1e-12)).clamp(0.0, 1.0);
        self.grid[at - 1] + part * (self.grid[at] - self.grid[at - 1])
    }

    /// Returns the range that holds nearly all of the probability.
    fn reach(&self) -> (f64, f64) {
        (self.quantile(0.002), self.quantile(0.998))
    }

    fn bracket(&self) -> Bracket {
        let of = |share| self.quantile(share).exp();
        Bracket { lower: of(BOUNDS.0), estimate: of(0.5), upper: of(BOUNDS.1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(rate: f64, errors: f64, of: f64) -> WeightedEvidence {
        let errors = Proportion { count: errors * of, total: of, inflation: 1.2 };
        let evidence = TrialEvidence {
            rate,
            seconds_after_settling: 2.0,
            sent_count: of,
            in_flight_settled: 7.0,
            in_flight_end: 8.0,
            errors,
            ..TrialEvidence::default()
        };
        WeightedEvidence { evidence, growth_and_errors_weight: 1.0, late_weight: 0.0, is_overloaded: false }
    }

    /// Regression: the grid was empty for a range from 0 (a target that stopped responding) and for a reversed range (a target that
    /// responded to its backlog).
    #[test]
    fn a_range_from_nothing_or_upside_down_has_a_bracket_too() {
        let curves = FailureCurves::new(&SearchGoal::ERRORS_ONLY);
        for range in [(0.0, 5000.0), (5000.0, 5000.0), (9000.0, 5000.0), (0.0, 0.0)] {
            let bracket = LimitPosterior::new(&curves, 0.002, &[failing(6116.0, 0.4924, 14_600.0)])
                .bracket(LimitKind::Cliff, range);
            assert!(
                bracket.lower <= bracket.estimate && bracket.estimate <= bracket.upper,
                "{range:?}: {bracket:?}"
            );
        }
    }

    #[test]
    fn what_fails_at_a_limiter_is_what_is_too_much() {
        let curves = FailureCurves::new(&SearchGoal::ERRORS_ONLY);
        let all = [
            failing(6116.0, 0.4924, 14_600.0),
            failing(5042.0, 0.3845, 12_000.0),
            failing(3280.0, 0.0538, 7700.0),
        ];
        for count in 1..=3 {
            let bracket = LimitPosterior::new(&curves, 0.002, &all[..count])
                .bracket(LimitKind::Cliff, (100.0, 13_000.0));
            assert!(bracket.lower < 3104.0 && bracket.upper > 3104.0, "{bracket:?}");
        }
    }
}
