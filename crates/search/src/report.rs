//! The report of a search, as data for its display.

use std::time::Duration;

use crate::evidence::TrialEvidence;
use crate::goal::SearchGoal;
use crate::limit_posterior::Bracket;
use crate::observation::TrialObservation;
use crate::trial_spec::TrialSpec;
use crate::trial_verdict::{FailureMode, TrialVerdict};

/// The outcome of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SearchOutcome {
    /// The cliff lies between two rates. If nothing broke, the knee does.
    Found,
    /// The cliff lies between two rates, and the target stays weaker after an overload.
    Metastable,
    /// The target bears the highest allowed rate.
    NoLimitFound,
    /// The target bears the highest rate that the generator can send, or the trials are invalid.
    GeneratorLimited,
    /// The target fails the goal at very low load, or fails equally often at low and high rates, so the rate is not the reason.
    GoalUnreachable,
    /// The target stopped responding and did not come back.
    TargetDied,
    /// The user interrupted the search.
    Interrupted,
}

/// An estimate of a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LimitEstimate {
    /// The credible bracket; none if the trials do not give one. Then only the tested rates are known.
    pub bracket: Option<Bracket>,
    /// The highest rate of a good trial below all bad ones, in requests per second.
    pub highest_good: Option<f64>,
    /// The lowest rate of a bad trial, in requests per second.
    pub lowest_bad: Option<f64>,
}

/// The ratio of the bounds above which a bracket without a confirmed lower rate is only a hint, if the search ran out of time.
const GUESS: f64 = 2.0;
/// The ratio of the bounds above which a bracket is always only a guess.
const NO_IDEA: f64 = 5.0;

impl LimitEstimate {
    /// Returns whether the limit lies between two rates. At low rates, single trials stay undecided, and only all of them
    /// together give a bracket. It counts unless it is a guess.
    #[must_use]
    pub fn is_bracketed(&self) -> bool {
        self.is_within(GUESS)
    }

    /// Returns whether the bracket is narrow enough to be more than a guess.
    #[must_use]
    pub(crate) fn is_at_least_roughly_bracketed(&self) -> bool {
        self.is_within(NO_IDEA)
    }

    fn is_within(&self, factor: f64) -> bool {
        let narrow =
            |bracket: Bracket| self.highest_good.is_some() || bracket.upper <= factor * bracket.lower;
        self.lowest_bad.is_some() && self.bracket.is_some_and(narrow)
    }
}

/// A burst allowance that the search cannot exclude, because its trials were not long enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnexcludedBurst {
    /// The rate that the target held, in requests per second.
    pub rate: f64,
    /// The duration without a pause.
    pub duration: Duration,
    /// The requests in that time. An allowance for more requests than these could explain the whole result.
    pub requests: f64,
}

/// A quota of the target that ran out: the target was faster until then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuotaExhaustion {
    /// The requests of a trial before the quota ran out.
    pub requests_before: f64,
    /// The good responses per second afterwards.
    pub goodput: f64,
}

/// The recovery of the target from overload.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OverloadRecovery {
    /// The longest time until single requests were quick again.
    pub time_to_recover: Option<Duration>,
    /// True if a rate that the target held before an overload holds again without a pause; none if not tested.
    pub holds_after_overload: Option<bool>,
    /// The queue that the overload left, in seconds of work at the rate of the cliff; none: there was no overload.
    pub queue_seconds: Option<f64>,
}

/// A trial with its result.
#[derive(Debug, Clone, PartialEq)]
pub struct RateTrial {
    /// The specification of the trial.
    pub spec: TrialSpec,
    /// The start of the trial, since the start of the search.
    pub began: Duration,
    /// The observation.
    pub seen: TrialObservation,
    /// The evidence of the observation.
    pub evidence: TrialEvidence,
    /// The verdict on this trial alone.
    pub verdict: TrialVerdict,
    /// The failure mode of a bad trial.
    pub failure_mode: Option<FailureMode>,
    /// The weight for the cliff, between 0 and 1. A trial that another one contradicts has less weight.
    pub weight: f64,
}

/// The report of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchReport {
    /// The outcome; none while the search runs.
    pub outcome: Option<SearchOutcome>,
    /// The goal of the search.
    pub goal: SearchGoal,
    /// The name of the profile.
    pub search_profile_name: &'static str,
    /// The highest allowed rate in requests per second.
    pub max_rate: Option<f64>,
    /// The cliff, where errors exceed the goal or the requests in flight grow.
    pub cliff: LimitEstimate,
    /// The knee, where too many responses are late; none without a latency goal.
    pub knee: Option<LimitEstimate>,
    /// The failure mode above the cliff.
    pub failure_mode: Option<FailureMode>,
    /// The good responses per second in overload.
    pub overload_goodput: Option<f64>,
    /// The burst that the target admitted above its fill rate before the trials that count, in requests.
    pub burst_allowance: Option<f64>,
    /// The quota that ran out during the search, if any.
    pub quota_exhaustion: Option<QuotaExhaustion>,
    /// The burst allowance that the trials are too short to exclude.
    pub unexcluded_burst: Option<UnexcludedBurst>,
    /// The recovery after overload.
    pub recovery: OverloadRecovery,
    /// All trials in order.
    pub trials: Vec<RateTrial>,
    /// The duration of the search, including pauses.
    pub took: Duration,
}

/// A contradiction between a bracket and the trials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BracketContradiction {
    /// A trial at this rate, below the bracket, was bad.
    BadBelow(f64),
    /// The bracket ends above this rate, the highest that was offered.
    EndsAboveHighestOffered(f64),
}

/// A bracket may end above the highest offered rate by this factor: its margins widen it.
const BEYOND_OFFERED: f64 = 1.1;
/// A trial with at most this weight was contradicted by another one, and does not count.
const COUNTS: f64 = 0.1;

impl SearchReport {
    /// Returns why the bracket of the cliff is no answer. (A stop-gap, until verdicts on rates are made of all trials together.)
    #[must_use]
    pub fn contradiction(&self) -> Option<BracketContradiction> {
        let bracket = self.cliff.bracket.filter(|_| self.cliff.lowest_bad.is_some())?;
        if self.quota_exhaustion.is_some() || self.burst_allowance.is_some() {
            return None;
        }
        let valid = || self.trials.iter().filter(|trial| trial.verdict != TrialVerdict::Invalid);
        let bad = valid().filter(|trial| trial.verdict == TrialVerdict::Bad && trial.weight > COUNTS);
        let below = bad.map(|trial| trial.spec.rate).filter(|rate| *rate < bracket.lower).reduce(f64::min);
        let offered = valid().map(|trial| trial.spec.rate).reduce(f64::max)?;
        let is_beyond = bracket.upper > BEYOND_OFFERED * offered;
        below
            .map(BracketContradiction::BadBelow)
            .or_else(|| is_beyond.then_some(BracketContradiction::EndsAboveHighestOffered(offered)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: with one slow server among several, the report said "found, 0.7 to 368/s".
    #[test]
    fn a_bracket_over_orders_of_magnitude_is_told_only_beside_a_rate_that_held() {
        let of = |lower: f64, upper: f64, good| {
            let bracket = Bracket { lower, estimate: (lower * upper).sqrt(), upper };
            let limit = LimitEstimate { bracket: Some(bracket), highest_good: good, lowest_bad: Some(upper) };
            (limit.is_bracketed(), limit.is_at_least_roughly_bracketed())
        };
        assert_eq!(of(0.7, 368.0, None), (false, false));
        assert_eq!(of(12.7, 44.0, None), (false, true));
        assert_eq!(of(90.0, 110.0, None), (true, true));
        assert_eq!(of(0.7, 368.0, Some(0.9)), (true, true));
        assert!(
            !LimitEstimate { lowest_bad: None, ..LimitEstimate::default() }.is_at_least_roughly_bracketed()
        );
    }
}
