//! Which way a trial points, by itself: good, bad, or undecided; and how the target fails where it is bad.
//!
//! A vote ends a trial and is shown; the bracket does not follow of votes but of [`crate::belief`], because just above a limit a
//! vote is good for any length that somebody can afford.

use crate::evidence::{Dispersion, TrialEvidence};
use crate::goal::SearchGoal;

/// What a trial says by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrialVerdict {
    /// It does not grow by more than the tolerance, and errors are few enough.
    Good,
    /// It grows, or errors are too many.
    Bad,
    /// Neither can be said.
    Undecided,
    /// Not a word of it can be believed: the generator's fault.
    Invalid,
}

/// How a target fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureMode {
    /// Answers are as quick as ever, and some are errors.
    Rejecting,
    /// Answers are as quick as ever, and some do not come.
    Hanging,
    /// Answers are slow, and some are errors.
    BoundedQueue,
    /// Answers are slow.
    Queueing,
    /// The target stops answering whenever it gets this rate.
    Crashing,
}

impl FailureMode {
    /// Whether it spends something that time gives back: then a rest before a trial is a present.
    #[must_use]
    pub fn is_quota_like(self) -> bool {
        matches!(self, Self::Rejecting | Self::Hanging)
    }
}

/// What trials of one search are held to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialCriteria {
    /// The search's goal.
    pub goal: SearchGoal,
    /// Growth that may be overlooked, as a share of what is sent.
    pub tolerance: f64,
    /// Time until in flight is what the rate makes it, in seconds.
    pub settle: f64,
    /// No rate is good before it was seen for so many seconds after that.
    pub least: f64,
    /// Mean response time of the target when it has nothing to do, in seconds.
    pub service: f64,
    /// The slowest answer then, in seconds.
    pub slowest: f64,
}

/// Standard deviations beyond which growth is no chance, at some ten looks a trial.
const GROWS: f64 = 3.5;
/// One-sided, 95 %.
const SURE: f64 = 1.64;
/// Errors fewer than these are bad luck.
const FEW_ERRORS: f64 = 5.0;
/// Guess of the dispersion of answers, and how many half seconds it weighs.
const DISPERSION: (f64, f64) = (0.7, 5.0);

impl TrialCriteria {
    /// Most in flight at a rate without a queue, by Little's law with room for chance.
    #[must_use]
    pub fn max_unqueued_in_flight(&self, rate: f64) -> f64 {
        let little = rate * self.service;
        8.0 + 3.0 * little + 3.0 * little.sqrt()
    }

    /// Which way it points.
    #[must_use]
    pub fn judge(&self, evidence: &TrialEvidence) -> TrialVerdict {
        let error = self.deviation(evidence);
        let errors = evidence.errors.deviations_above(self.goal.errors);
        let failing = errors > GROWS && evidence.errors.count >= FEW_ERRORS;
        if failing || self.grows(evidence, error) {
            TrialVerdict::Bad
        } else if evidence.seconds >= self.least
            && errors <= 0.5
            && evidence.growth() + SURE * error < self.tolerance
        {
            TrialVerdict::Good
        } else {
            TrialVerdict::Undecided
        }
    }

    /// Of [`TrialEvidence::growth`].
    fn deviation(&self, evidence: &TrialEvidence) -> f64 {
        let sent = evidence.sent.max(1.0);
        let spread = Dispersion { ..evidence.answers };
        (spread.shrunk(DISPERSION.0, DISPERSION.1).max(1.5 / sent) / sent).sqrt()
    }

    fn grows(&self, evidence: &TrialEvidence, error: f64) -> bool {
        let growth = evidence.growth();
        evidence.sent > 0.0
            && growth > GROWS * error
            && evidence.to > self.max_unqueued_in_flight(evidence.rate)
            // One pause of 200 ms is no growth.
            && evidence.slope > 0.4 * growth * evidence.rate
    }

    /// How the target failed in a trial that was bad.
    #[must_use]
    pub fn failure_mode(&self, evidence: &TrialEvidence) -> FailureMode {
        let failing = evidence.errors.value() > self.goal.errors;
        // Where all fail there is nothing slow; where nothing comes at all, a worker is stuck.
        let quick = evidence.latency.map_or(failing, |latency| latency < 3.0 * self.service + 0.005);
        // One of several servers that is the limit answers slowly, and so few that the mean does not show it: its line comes with it.
        let quick = quick && (failing || evidence.slowest < 3.0 * self.slowest + 0.005);
        // And where it serves many at a time these come together, and seldom; or the others have their lines, too, which are yet short.
        let slower =
            evidence.latency.zip(evidence.first).is_some_and(|(last, first)| last > 1.5 * first + 0.05);
        let quick = quick && (failing || !slower && evidence.slow < 1.6 * self.slowest + 0.1);
        match (quick, failing) {
            (true, true) => FailureMode::Rejecting,
            (true, false) => FailureMode::Hanging,
            (false, true) => FailureMode::BoundedQueue,
            (false, false) => FailureMode::Queueing,
        }
    }
}
