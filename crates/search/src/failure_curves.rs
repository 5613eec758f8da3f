//! Curves of the failure share over the rate. There is one curve for each known kind of failure, and each passes through the goal at its
//! limit.
//!
//! A curve is a table over the logarithm of rate over limit, computed once per search.

use crate::normal::{logistic, logit};

/// The numbers of places of a loss system (Erlang, 1917). A rate limiter is the case of unlimited places.
const PLACES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// The queue lengths before one worker with random arrivals and service times (Kendall's M/M/1/K).
const LINE: [i32; 7] = [4, 8, 16, 32, 64, 256, 1024];
/// The slopes of the log-odds over the logarithm of the rate, for unknown kinds of failure.
const SLOPES: [f64; 8] = [2.0, 4.0, 7.0, 12.0, 22.0, 45.0, 100.0, 300.0];
/// The slopes for a sharp limit, where one more client may be one too many.
const STEEP: [f64; 2] = [1000.0, 3000.0];
/// The ratios of failures per response of an excess client: refused clients come back sooner than served ones.
const SOONER: [f64; 7] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0];

/// The reach of a table on both sides; below, its number of points.
const REACH: f64 = 4.0;
const POINTS: usize = 641;

/// A table of the logarithms of a share and of its complement, over the logarithm of rate over limit.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureCurve {
    /// The prior weight of the curve. Only ratios of weights count.
    pub weight: f64,
    /// The variance of the log-odds around the curve, for targets that follow it only roughly.
    pub log_odds_variance: f64,
    table: Vec<(f64, f64)>,
}

impl FailureCurve {
    fn new((weight, doubt): (f64, f64), share: impl Fn(f64) -> f64) -> Self {
        let at = |point: usize| {
            let place = 2.0 * point as f64 / (POINTS - 1) as f64 - 1.0;
            REACH * place * place.abs()
        };
        let entry = |share: f64| (share.ln(), (-share).ln_1p());
        let table = (0..POINTS).map(|point| entry(share(at(point)).clamp(1e-6, 1.0 - 1e-6))).collect();
        Self { weight, log_odds_variance: doubt * doubt, table }
    }

    /// Returns both logarithms at a rate whose logarithm exceeds the limit's by `above`.
    #[must_use]
    pub fn log_shares_at(&self, above: f64) -> (f64, f64) {
        // The points are densest at the limit, where some curves bend.
        let aside = (above.abs() / REACH).min(1.0).sqrt().copysign(above);
        let place = (aside + 1.0) / 2.0 * (POINTS - 1) as f64;
        let (index, part) = (place as usize, place.fract());
        let (low, high) = (self.table[index], self.table[(index + 1).min(POINTS - 1)]);
        (low.0 + part * (high.0 - low.0), low.1 + part * (high.1 - low.1))
    }
}

/// Returns the curves of errors for this goal. A limiter predicts errors exactly, so its prior may be high: three trials that
/// differ by 2 % refute it. Loss systems and queues are equally likely, and unknown kinds are half as likely.
#[must_use]
pub fn error_curves(goal: f64) -> Vec<FailureCurve> {
    let excess =
        FailureCurve::new((10.0, 0.02), |above| (1.0 - (1.0 - goal) * (-above).exp()).max(goal / 50.0));
    let places = PLACES.iter().map(|places| rising((1.0 / 9.0, 0.1), goal, |load| erlang_b(*places, load)));
    let lines = LINE.iter().map(|places| rising((1.0 / 7.0, 0.1), goal, |load| line(*places, load)));
    std::iter::once(excess).chain(places).chain(lines).chain(odds(goal, (0.5 / 8.0, 0.2))).collect()
}

/// Returns the curves of lateness for this goal.
#[must_use]
pub fn lateness_curves(goal: f64) -> Vec<FailureCurve> {
    odds(goal, (1.0, 0.1)).collect()
}

/// Returns the curves of errors or lateness over the number of clients. One more client may be one too many and may come back
/// sooner or later than the served clients.
#[must_use]
pub fn client_curves(goal: f64) -> Vec<FailureCurve> {
    let steep = STEEP.iter().map(|slope| power(goal, (1.0, 0.1), *slope));
    let refused = SOONER.iter().map(|sooner| {
        let odds = goal / (1.0 - goal);
        FailureCurve::new((1.0, 0.05), move |above: f64| match sooner * above.exp_m1() {
            more if more > 0.0 => (odds + more) / (1.0 + odds + more),
            _ => goal / 50.0,
        })
    });
    odds(goal, (1.0, 0.1)).chain(steep).chain(refused).collect()
}

fn odds(goal: f64, weight: (f64, f64)) -> impl Iterator<Item = FailureCurve> {
    SLOPES.iter().map(move |slope| power(goal, weight, *slope))
}

fn power(goal: f64, weight: (f64, f64), slope: f64) -> FailureCurve {
    FailureCurve::new(weight, |above| logistic(logit(goal) + slope * above))
}

/// Returns a curve over the load, scaled so that it meets the goal at the limit.
fn rising(weight: (f64, f64), goal: f64, share: impl Fn(f64) -> f64) -> FailureCurve {
    let (mut low, mut high) = (1e-6_f64, 1e6_f64);
    while high / low > 1.000_01 {
        let middle = (low * high).sqrt();
        if share(middle) < goal { low = middle } else { high = middle }
    }
    FailureCurve::new(weight, |above| share(low * above.exp()))
}

/// Returns the blocking probability at an offered load in erlangs (Erlang B, by its recursion).
#[must_use]
pub fn erlang_b(places: u32, load: f64) -> f64 {
    (1..=places).fold(1.0, |lost, place| load * lost / (f64::from(place) + load * lost))
}

/// Returns the probability that the queue is full, at a load of the worker.
fn line(places: i32, load: f64) -> f64 {
    // Division by the largest term avoids overflow.
    if load <= 1.0 {
        let filled = load.powi(places);
        if load > 1.0 - 1e-9 {
            1.0 / f64::from(places + 1)
        } else {
            filled * (1.0 - load) / (1.0 - filled * load)
        }
    } else {
        (load - 1.0) / (load - load.powi(-places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erlang_b_agrees_with_its_tables() {
        assert!((erlang_b(10, 5.0) - 0.018_38).abs() < 1e-5);
        assert!((erlang_b(50, 40.0) - 0.018_69).abs() < 1e-4);
    }

    #[test]
    fn every_curve_is_at_the_goal_where_the_limit_is_and_never_falls() {
        for (shape, goal) in error_curves(0.001)
            .iter()
            .zip(std::iter::repeat(0.001))
            .chain(lateness_curves(0.01).iter().zip(std::iter::repeat(0.01)))
        {
            let share = |above| shape.log_shares_at(above).0.exp();
            assert!((share(0.0) / goal - 1.0).abs() < 0.05, "{}", share(0.0));
            let all: Vec<_> = (-100..100).map(|step| share(f64::from(step) / 30.0)).collect();
            assert!(all.is_sorted());
        }
    }
}
