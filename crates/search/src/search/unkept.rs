//! A goal that is kept at no rate: as much fails, or is late, far below the highest rate that was offered as there. Then there is no limit
//! to look for, and to name one would blame the load for what it has no part in.

use super::RateSearch;
use crate::evidence::Proportion;
use crate::offer::TrialPurpose;
use crate::report::RateTrial;
use crate::vote::TrialVerdict;

/// Failures below which a share is bad luck, and standard deviations above the bound that are none: of errors, which do not come and go with
/// what else a machine has to do, and of late answers, which do.
const FEW: f64 = 3.0;
const ERRORS: f64 = 1.0;
const LATE: f64 = 2.0;
/// Far below the highest rate.
const BELOW: f64 = 0.5;
/// As much: no less than this part of the share there, and no more than so many times as much, which is what a bucket that has run
/// dry refuses of half as much.
const ALIKE: (f64, f64) = (1.0 / 3.0, 2.0);

/// Whether two shares may be one.
pub(super) fn is_alike(low: f64, high: f64) -> bool {
    low > 0.0 && (ALIKE.0 * high..=ALIKE.1 * high).contains(&low)
}

impl RateSearch {
    /// Whether errors are.
    pub(super) fn fails_at_any_rate(&self) -> bool {
        self.at_any_rate((self.goal.errors, ERRORS), |trial| trial.evidence.errors)
    }

    /// Whether late answers are.
    pub(super) fn is_late_at_any_rate(&self) -> bool {
        self.goal.late.is_some_and(|late| self.at_any_rate((late.share, LATE), |trial| trial.evidence.late))
    }

    fn at_any_rate(&self, (bound, sure): (f64, f64), share: impl Fn(&RateTrial) -> Proportion) -> bool {
        let said = || self.trials.iter().filter(|trial| says(trial));
        let highest = said().map(|trial| trial.spec.rate).fold(0.0, f64::max);
        let (low, high): (Vec<_>, Vec<_>) = said().partition(|trial| trial.spec.rate <= BELOW * highest);
        let (low, high) = (pooled(low.into_iter().map(&share)), pooled(high.into_iter().map(&share)));
        low.count >= FEW && low.deviations_above(bound) > sure && is_alike(low.value(), high.value())
    }
}

/// Those that count for the cliff, and the baseline.
fn says(trial: &RateTrial) -> bool {
    trial.verdict != TrialVerdict::Invalid
        && (trial.weight > 0.1 || trial.spec.purpose == TrialPurpose::Baseline)
}

/// All of them together, which vary as those do that weigh most.
pub(super) fn pooled(shares: impl Iterator<Item = Proportion>) -> Proportion {
    let all = shares.fold(Proportion::default(), |all, share| Proportion {
        count: all.count + share.count,
        of: all.of + share.of,
        inflation: all.inflation + share.inflation * share.of,
    });
    Proportion { inflation: all.inflation / all.of.max(1.0), ..all }
}
