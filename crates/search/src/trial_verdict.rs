//! Judges a single trial as good, bad or undecided, with the failure mode of a bad one.
//!
//! The verdict ends a trial and appears in the report. The bracket comes from [`crate::limit_posterior`] instead, because just
//! above a limit any affordable trial looks good.

use crate::evidence::{Dispersion, TrialEvidence};
use crate::goal::SearchGoal;

/// The verdict on a single trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrialVerdict {
    /// Growth is within the tolerance, and errors are within the goal.
    Good,
    /// Requests in flight grow, or errors exceed the goal.
    Bad,
    /// The trial shows neither.
    Undecided,
    /// The trial is invalid because of the generator.
    Invalid,
}

/// A way in which a target fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureMode {
    /// Responses stay quick, and some are errors.
    Rejecting,
    /// Responses stay quick, and some requests get none.
    Hanging,
    /// Responses are slow, and some are errors.
    BoundedQueue,
    /// Responses are slow.
    Queueing,
    /// The target stops responding at this rate.
    Crashing,
}

impl FailureMode {
    /// Returns whether the target uses up an allowance that time refills. A pause before a trial would then improve its result.
    #[must_use]
    pub fn is_quota_like(self) -> bool {
        matches!(self, Self::Rejecting | Self::Hanging)
    }
}

/// The criteria for the trials of one search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialCriteria {
    /// The goal of the search.
    pub goal: SearchGoal,
    /// The growth that a good trial may show, as a share of the sent requests.
    pub growth_tolerance: f64,
    /// The time until the requests in flight settle, in seconds.
    pub settle: f64,
    /// The shortest time after settling for a good verdict, in seconds.
    pub min_settled_seconds_for_good: f64,
    /// The mean response time at very low load, in seconds.
    pub service_time: f64,
    /// The slowest response at very low load, in seconds.
    pub baseline_slowest: f64,
}

/// The number of standard deviations that shows growth, for about ten interim checks per trial.
const GROWS: f64 = 3.5;
/// The one-sided 95 % quantile.
const SURE: f64 = 1.64;
/// The number of errors below which errors may be bad luck.
const FEW_ERRORS: f64 = 5.0;
/// The prior dispersion of responses, and its weight in half seconds.
const DISPERSION: (f64, f64) = (0.7, 5.0);

impl TrialCriteria {
    /// Returns the most requests in flight at a rate without a queue (Little's law with room for chance).
    #[must_use]
    pub fn max_unqueued_in_flight(&self, rate: f64) -> f64 {
        let little = rate * self.service_time;
        8.0 + 3.0 * little + 3.0 * little.sqrt()
    }

    /// Judges the evidence of a trial.
    #[must_use]
    pub fn judge(&self, evidence: &TrialEvidence) -> TrialVerdict {
        let error = self.deviation(evidence);
        let errors = evidence.errors.deviations_above(self.goal.max_error_share);
        let failing = errors > GROWS && evidence.errors.count >= FEW_ERRORS;
        if failing || self.grows(evidence, error) {
            TrialVerdict::Bad
        } else if evidence.seconds_after_settling >= self.min_settled_seconds_for_good
            && errors <= 0.5
            && evidence.in_flight_growth_share() + SURE * error < self.growth_tolerance
        {
            TrialVerdict::Good
        } else {
            TrialVerdict::Undecided
        }
    }

    /// Returns the standard deviation of [`TrialEvidence::in_flight_growth_share`].
    fn deviation(&self, evidence: &TrialEvidence) -> f64 {
        let sent = evidence.sent_count.max(1.0);
        let spread = Dispersion { ..evidence.response_dispersion };
        (spread.variance_ratio_shrunk_toward(DISPERSION.0, DISPERSION.1).max(1.5 / sent) / sent).sqrt()
    }

    fn grows(&self, evidence: &TrialEvidence, error: f64) -> bool {
        let growth = evidence.in_flight_growth_share();
        evidence.sent_count > 0.0
            && growth > GROWS * error
            && evidence.in_flight_end > self.max_unqueued_in_flight(evidence.rate)
            // A single stall of 200 ms is not growth.
            && evidence.in_flight_slope > 0.4 * growth * evidence.rate
    }

    /// Returns the failure mode of a bad trial.
    #[must_use]
    pub fn failure_mode(&self, evidence: &TrialEvidence) -> FailureMode {
        let failing = evidence.errors.value() > self.goal.max_error_share;
        // If all requests fail, there is no slow response. If no response comes at all, a worker is stuck.
        let quick =
            evidence.mean_latency_at_end.map_or(failing, |latency| latency < 3.0 * self.service_time + 0.005);
        // If one of several servers is the limit, it responds slowly and so rarely that the mean does not show it. Its slowest responses
        // do.
        let quick =
            quick && (failing || evidence.median_of_last_block_maxima < 3.0 * self.baseline_slowest + 0.005);
        // A server that works in batches responds rarely and to many requests at once. Other servers may have short queues, too.
        let slower = evidence
            .mean_latency_at_end
            .zip(evidence.mean_latency_at_start)
            .is_some_and(|(last, first)| last > 1.5 * first + 0.05);
        let quick = quick
            && (failing
                || !slower && evidence.second_largest_block_maximum < 1.6 * self.baseline_slowest + 0.1);
        match (quick, failing) {
            (true, true) => FailureMode::Rejecting,
            (true, false) => FailureMode::Hanging,
            (false, true) => FailureMode::BoundedQueue,
            (false, false) => FailureMode::Queueing,
        }
    }
}
