//! Scores of searches: the coverage of a bracket, the error of its estimate, the overload time and the failed requests.

use super::target_specs::{SimulatedClass, SimulatedTargetSpec, TrueLimits};
use crate::closed_loop;
use crate::goal::SearchGoal;
use crate::report::{LimitEstimate, SearchReport};
use crate::search::{RateBounds, RateSearch};
use crate::search_profile::Profile;
use crate::target::search;

/// The score of one search.
#[derive(Debug, Clone)]
pub struct SearchScore {
    /// The class of the target.
    pub class: SimulatedClass,
    /// The planted capacity in requests per second.
    pub capacity: f64,
    /// The true limits.
    pub truth: TrueLimits,
    /// The report of the search.
    pub report: SearchReport,
    /// The seconds with a rate above the cliff.
    pub overload_seconds: f64,
    /// The failed requests.
    pub failed_requests: u64,
}

impl SearchScore {
    /// Runs a search on a simulated target and scores it.
    #[must_use]
    pub fn run_search(
        plant: &SimulatedTargetSpec,
        truth: TrueLimits,
        goal: SearchGoal,
        profile: Profile,
        seed: u64,
    ) -> Self {
        let mut target = plant.build_target(&goal, seed);
        let mut procedure = RateSearch::new(goal, profile, RateBounds::default());
        search(&mut procedure, &mut target);
        let report = procedure.report();
        let trials = report.trials.iter().filter(|trial| trial.spec.rate > truth.cliff);
        let over = trials.map(|trial| trial.seen.took.as_secs_f64()).sum();
        Self {
            class: plant.class,
            capacity: plant.capacity,
            truth,
            report,
            overload_seconds: over,
            failed_requests: target.failed_count,
        }
    }

    /// Returns whether the cliff's bracket contains the true cliff.
    #[must_use]
    pub fn covers_cliff(&self) -> bool {
        covers(&self.report.cliff, self.truth.cliff)
    }

    /// Returns whether the knee's bracket contains the true knee; none without a bracket.
    #[must_use]
    pub fn covers_knee(&self) -> Option<bool> {
        let knee = self.report.knee.as_ref().filter(|knee| knee.bracket.is_some())?;
        Some(covers(knee, self.truth.knee))
    }

    /// Returns the relative error of the cliff's estimate.
    #[must_use]
    pub fn cliff_error(&self) -> f64 {
        self.report.cliff.bracket.map_or(1.0, |cliff| (cliff.estimate / self.truth.cliff - 1.0).abs())
    }

    /// Returns the relative error of the knee's estimate.
    #[must_use]
    pub fn knee_error(&self) -> Option<f64> {
        let bracket = self.report.knee?.bracket?;
        Some((bracket.estimate / self.truth.knee - 1.0).abs())
    }
}

/// The score of one search for a number of clients.
#[derive(Debug, Clone)]
pub struct ClosedLoopScore {
    /// The class of the target.
    pub class: SimulatedClass,
    /// The planted capacity in requests per second.
    pub capacity: f64,
    /// The most clients at which the goal holds.
    pub truth: u32,
    /// The report of the search.
    pub report: closed_loop::ClosedReport,
}

impl ClosedLoopScore {
    /// Runs a search with at most this many clients. The true limit comes from runs with this many requests.
    #[must_use]
    pub fn run_search(
        plant: &SimulatedTargetSpec,
        goal: SearchGoal,
        profile: Profile,
        (most, requests): (u32, u32),
        seed: u64,
    ) -> Self {
        let mut procedure = closed_loop::ClosedSearch::new(goal, profile, most);
        closed_loop::search(&mut procedure, &mut plant.build_target(&goal, seed));
        let report = procedure.report();
        let truth = plant.true_client_limit(&goal, report.service_time, requests);
        Self { class: plant.class, capacity: plant.capacity, truth, report }
    }

    /// Returns whether the bracket contains the true limit; none without a bracket.
    #[must_use]
    pub fn covers(&self) -> Option<bool> {
        let [lower, _, upper] = self.report.limit.lower_estimate_upper?;
        Some(lower <= self.truth && self.truth <= upper)
    }

    /// Returns the relative error of the estimate.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let [_, point, _] = self.report.limit.lower_estimate_upper?;
        Some((f64::from(point) / f64::from(self.truth.max(1)) - 1.0).abs())
    }
}

fn covers(limit: &LimitEstimate, truth: f64) -> bool {
    limit.bracket.is_some_and(|bracket| bracket.lower <= truth && truth <= bracket.upper)
}

/// Returns a quantile of the numbers; NaN without numbers.
#[must_use]
pub fn quantile(figures: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<_> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len() as f64) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Returns the percentage of true values.
#[must_use]
pub fn percent_true(all: impl IntoIterator<Item = bool>) -> f64 {
    let (mut are, mut count) = (0.0, 0.0);
    for is in all {
        are += f64::from(u8::from(is));
        count += 1.0;
    }
    100.0 * are / count
}
