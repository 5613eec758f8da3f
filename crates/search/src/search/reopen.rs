//! Opens a search again that ended without an answer, when it is granted more time.
//!
//! A search that ended undecided, or after invalid trials, can learn more from further trials. All other outcomes stay as they are.

use super::{Phase, RateSearch};
use crate::report::SearchOutcome;
use crate::trial_verdict::TrialVerdict;

impl RateSearch {
    /// Goes back to the phase in which further trials decide, if the search has ended, or is about to end, without an answer.
    pub(super) fn reopen_if_unanswered(&mut self) {
        let is_disturbed = self.is_ended_by_invalid_trials();
        if !is_disturbed && !self.is_about_to_end_undecided() {
            return;
        }
        (self.outcome, self.invalid) = (None, 0);
        self.repeated.clear();
        let phase = match () {
            () if self.calm.is_none() => Phase::Baseline,
            () if self.range.1 <= 0.0 => Phase::Ramp,
            () if is_disturbed && self.cliff_by.is_some() => Phase::Knee,
            () => Phase::Narrow,
        };
        if phase == Phase::Narrow {
            self.cliff_by = None;
        }
        self.enter(phase);
    }

    fn is_ended_by_invalid_trials(&self) -> bool {
        let last = self.trials.last();
        self.outcome == Some(SearchOutcome::GeneratorLimited)
            && last.is_some_and(|last| last.verdict == TrialVerdict::Invalid)
    }

    /// Returns whether all trials have run, and do not show between which rates the limit lies, or contradict the bracket.
    fn is_about_to_end_undecided(&self) -> bool {
        let is_ending = self.phase == Phase::Recovery && self.agenda.is_empty() && self.outcome.is_none();
        if !is_ending || self.unbroken || self.cliff.is_none() {
            return false;
        }
        let limit = self.cliff_limit();
        if limit.lowest_bad.is_none() {
            return self.ceiling_outcome().is_none();
        }
        let has_recovered = self.turn > 0 || self.manners.spent;
        has_recovered && (!limit.is_at_least_roughly_bracketed() || self.report().contradiction().is_some())
    }
}
