//! Handles a goal that fails at every rate: far below the highest rate, as many requests fail or are late as there. Then there is no limit
//! to report, because the load is not the reason.

use super::RateSearch;
use crate::evidence::Proportion;
use crate::report::RateTrial;
use crate::trial_spec::TrialPurpose;
use crate::trial_verdict::TrialVerdict;

/// The number of failures below which a share may be bad luck. Below: the standard deviations above the bound that are not chance, for
/// errors and for late responses. Late responses vary more with the other work of a machine.
const FEW: f64 = 3.0;
const ERRORS: f64 = 1.0;
const LATE: f64 = 2.0;
/// The factor of the highest rate up to which a rate counts as low.
const BELOW: f64 = 0.5;
/// The ratios of the share at a low rate to the share at the highest rate between which both count as alike. The upper ratio allows for a
/// token bucket that has run dry.
const ALIKE: (f64, f64) = (1.0 / 3.0, 2.0);

/// Returns whether two shares may be equal.
pub(super) fn is_alike(low: f64, high: f64) -> bool {
    low > 0.0 && (ALIKE.0 * high..=ALIKE.1 * high).contains(&low)
}

impl RateSearch {
    /// Returns whether equally many requests fail at any rate.
    pub(super) fn fails_at_any_rate(&self) -> bool {
        self.at_any_rate((self.goal.max_error_share, ERRORS), |trial| trial.evidence.errors)
    }

    /// Returns whether equally many responses are late at any rate.
    pub(super) fn is_late_at_any_rate(&self) -> bool {
        self.goal
            .latency_goal
            .is_some_and(|late| self.at_any_rate((late.max_late_share, LATE), |trial| trial.evidence.late))
    }

    fn at_any_rate(&self, (bound, sure): (f64, f64), share: impl Fn(&RateTrial) -> Proportion) -> bool {
        let said = || self.trials.iter().filter(|trial| says(trial));
        let highest = said().map(|trial| trial.spec.rate).fold(0.0, f64::max);
        let (low, high): (Vec<_>, Vec<_>) = said().partition(|trial| trial.spec.rate <= BELOW * highest);
        let (low, high) = (pooled(low.into_iter().map(&share)), pooled(high.into_iter().map(&share)));
        low.count >= FEW && low.deviations_above(bound) > sure && is_alike(low.value(), high.value())
    }
}

/// Returns whether a trial counts: the trials with weight, and the baseline.
fn says(trial: &RateTrial) -> bool {
    trial.verdict != TrialVerdict::Invalid
        && (trial.weight > 0.1 || trial.spec.purpose == TrialPurpose::Baseline)
}

/// Pools shares. The overdispersion is the mean, weighted by the size of each sample.
pub(super) fn pooled(shares: impl Iterator<Item = Proportion>) -> Proportion {
    let all = shares.fold(Proportion::default(), |all, share| Proportion {
        count: all.count + share.count,
        total: all.total + share.total,
        inflation: all.inflation + share.inflation * share.total,
    });
    Proportion { inflation: all.inflation / all.total.max(1.0), ..all }
}
