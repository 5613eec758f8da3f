//! What came of a search: data for whoever shows it.

use std::time::Duration;

use crate::belief::Bracket;
use crate::evidence::TrialEvidence;
use crate::goal::SearchGoal;
use crate::offer::TrialSpec;
use crate::seen::TrialObservation;
use crate::vote::{FailureMode, TrialVerdict};

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SearchOutcome {
    /// The cliff is between two rates; or, where nothing broke, the knee.
    Found,
    /// It is, and after overload the target stays weaker than it was before.
    Metastable,
    /// The highest rate that may be offered is below the cliff.
    NoLimitFound,
    /// The highest rate that the generator can offer is below the cliff, or trials cannot be believed.
    GeneratorLimited,
    /// The target fails with next to nothing to do; or as much far below the highest rate as there, so that no rate is to blame.
    UnstableBaseline,
    /// The target stopped answering and did not come back.
    TargetDied,
    /// Somebody ended it.
    Interrupted,
}

/// What is known of a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LimitEstimate {
    /// The credible bracket; none where trials do not carry one, and then the tested rates are all that there is.
    pub bracket: Option<Bracket>,
    /// Highest rate of a good trial below every bad one, requests a second.
    pub highest_good: Option<f64>,
    /// Lowest rate of a bad trial, requests a second.
    pub lowest_bad: Option<f64>,
}

/// A bracket beyond this factor, of which no lower rate held, says where to look, if time was all that ended the search.
const GUESS: f64 = 2.0;
/// Beyond this one it is a guess, whatever ended it.
const NO_IDEA: f64 = 5.0;

impl LimitEstimate {
    /// Whether it is between two rates. At low rates trials that hold end undecided: all of them together state the bracket, and it is one while
    /// it is no guess.
    #[must_use]
    pub fn is_bracketed(&self) -> bool {
        self.is_within(GUESS)
    }

    /// Whether it is no guess.
    #[must_use]
    pub(crate) fn is_roughly_bracketed(&self) -> bool {
        self.is_within(NO_IDEA)
    }

    fn is_within(&self, factor: f64) -> bool {
        let narrow =
            |bracket: Bracket| self.highest_good.is_some() || bracket.upper <= factor * bracket.lower;
        self.lowest_bad.is_some() && self.bracket.is_some_and(narrow)
    }
}

/// What a search cannot exclude, because it did not last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnexcludedBurst {
    /// The rate that was held, requests a second.
    pub rate: f64,
    /// How long without a rest.
    pub held: Duration,
    /// Requests in that time: an allowance for bursts of more than these could be behind the whole figure.
    pub requests: f64,
}

/// The target could do more for a while, and then no more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuotaExhaustion {
    /// Requests of a trial before it did less.
    pub after: f64,
    /// Good answers a second from then on.
    pub goodput: f64,
}

/// How the target comes back from overload.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OverloadRecovery {
    /// The longest that single requests took to be quick again.
    pub calm: Option<Duration>,
    /// Whether a rate that held before overload holds after it without a rest; none: not tested.
    pub holds: Option<bool>,
}

/// An offer and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RateTrial {
    /// What was asked for.
    pub spec: TrialSpec,
    /// When it began, since the search did.
    pub began: Duration,
    /// What was seen.
    pub seen: TrialObservation,
    /// What that says.
    pub evidence: TrialEvidence,
    /// Which way it points by itself.
    pub verdict: TrialVerdict,
    /// How the target failed, where it did.
    pub failure_mode: Option<FailureMode>,
    /// Between 0 and 1: how much it counts for the cliff. What another trial contradicts counts less.
    pub weight: f64,
}

/// Everything.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchReport {
    /// How it ended; none while it goes on.
    pub outcome: Option<SearchOutcome>,
    /// What was asked.
    pub goal: SearchGoal,
    /// Of the profile.
    pub profile: &'static str,
    /// Highest rate that might be offered, requests a second.
    pub max_rate: Option<f64>,
    /// Where errors are too many or what is in flight grows.
    pub cliff: LimitEstimate,
    /// Where answers are too late; none where nothing is said of latency.
    pub knee: Option<LimitEstimate>,
    /// How it fails above the cliff.
    pub failure_mode: Option<FailureMode>,
    /// Good answers a second in overload.
    pub goodput: Option<f64>,
    /// An allowance that was spent before the trials that count: requests answered beyond the fill.
    pub burst: Option<f64>,
    /// What it could do at first and then no more.
    pub quota_exhaustion: Option<QuotaExhaustion>,
    /// What the lengths of the trials do not exclude.
    pub unexcluded_burst: Option<UnexcludedBurst>,
    /// After overload.
    pub recovery: OverloadRecovery,
    /// All trials in order.
    pub trials: Vec<RateTrial>,
    /// Everything together, rests included.
    pub took: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of several servers was slow: "found, 0.7 to 368/s".
    #[test]
    fn a_bracket_over_orders_of_magnitude_is_told_only_beside_a_rate_that_held() {
        let of = |lower: f64, upper: f64, good| {
            let bracket = Bracket { lower, estimate: (lower * upper).sqrt(), upper };
            let limit = LimitEstimate { bracket: Some(bracket), highest_good: good, lowest_bad: Some(upper) };
            (limit.is_bracketed(), limit.is_roughly_bracketed())
        };
        assert_eq!(of(0.7, 368.0, None), (false, false));
        assert_eq!(of(12.7, 44.0, None), (false, true));
        assert_eq!(of(90.0, 110.0, None), (true, true));
        assert_eq!(of(0.7, 368.0, Some(0.9)), (true, true));
        assert!(!LimitEstimate { lowest_bad: None, ..LimitEstimate::default() }.is_roughly_bracketed());
    }
}
