//! The begin: how quick the target is with nothing to do, and the rate, doubled, at which it breaks.

use std::time::Duration;

use super::unkept::{is_alike, pooled};
use super::{BaselineLatency, Phase, RateSearch, SearchStep};
use crate::offer::{StopRule, TrialPurpose, TrialSpec};
use crate::report::{RateTrial, SearchOutcome};
use crate::seen::{mean_latency, sum};
use crate::vote::{TrialCriteria, TrialVerdict};

/// The first rate is halved while too much of it fails, down to this or half of it, requests a second.
const LEAST_FIRST: f64 = 4.0;
/// Length of the baseline.
const BASELINE: Duration = Duration::from_secs(2);
/// A step of the ramp.
const RAMP_STEP: (Duration, Duration) = (Duration::from_millis(400), Duration::from_secs(2));
/// Growth that a step of the ramp may overlook.
const RAMP_STEP_TOLERANCE: f64 = 0.25;
/// Where the cliff is looked for at first, from the last good step and the first bad one.
const RANGE: (f64, f64) = (0.3, 1.3);
/// A share of errors that a limit shows just below a step of the ramp, and a target that fails once in a while at any rate.
const FEW_ERRORS: f64 = 0.05;
/// As much is looked for at so much of the rate, until so many errors would have been seen; not where even the fewest would not be.
const HALF: f64 = 0.5;
const ENOUGH: f64 = 8.0;
const FEWEST: f64 = 1.5;
/// Errors of all looks at the highest rate: fewer are bad luck.
const SOME: f64 = 3.0;
/// How often the highest rate is held at most, and standard deviations that are no chance then.
const LOOKS: usize = 5;
const SURE: f64 = 2.5;

impl RateSearch {
    pub(super) fn plan_baseline(&mut self) {
        let rate = self.bounds.first.min(self.bounds.ceiling().0);
        let offer = self.trial(TrialPurpose::Baseline, rate, BASELINE);
        self.agenda.push_back(SearchStep::RunTrial(TrialSpec {
            least: BASELINE,
            most_in_flight: 30.0 + rate,
            ..offer
        }));
    }

    pub(super) fn learn_baseline(&mut self) {
        let Some(blocks) = self.trials.last().map(|trial| &trial.seen.blocks) else { return };
        let (good, errors) = (sum(blocks, |block| block.good), sum(blocks, |block| block.errors));
        let slowest = blocks.iter().map(|block| block.slowest).fold(0.0, f64::max);
        match mean_latency(blocks).filter(|_| errors <= 0.2 * (good + errors)) {
            // What a limit below the first rate lets through is answered well.
            None if good > 0.0 && self.bounds.first > LEAST_FIRST => self.bounds.first /= 2.0,
            None => self.end(SearchOutcome::UnstableBaseline),
            Some(service) => {
                self.calm = Some(BaselineLatency { service, slowest });
                self.enter(Phase::Ramp);
            }
        }
    }

    pub(super) fn plan_ramp_step(&mut self) {
        let (ceiling, whose) = self.bounds.ceiling();
        // What was to be held below a bad step could not be believed.
        if self.first_bad().is_some() {
            return self.break_at_lowest();
        }
        // A step that cannot be believed was not passed.
        let steps = self.trials.iter().filter(|trial| trial.spec.purpose == TrialPurpose::Ramp);
        let passed = steps.filter(|trial| trial.verdict != TrialVerdict::Invalid);
        let last = passed.map(|trial| trial.spec.rate).fold(0.0, f64::max);
        if last >= ceiling {
            return self.hold_ceiling(whose);
        }
        let rate = if last > 0.0 { 2.0 * last } else { self.bounds.first };
        let (least, most) = RAMP_STEP;
        let rule = StopRule::Decided(TrialCriteria {
            tolerance: RAMP_STEP_TOLERANCE,
            least: 0.2,
            ..self.standard()
        });
        let offer = self.trial(TrialPurpose::Ramp, rate, most);
        self.agenda.push_back(SearchStep::RunTrial(TrialSpec { least, rule, ..offer }));
    }

    /// The lowest rate at which a trial was bad and is not forgiven.
    fn first_bad(&self) -> Option<f64> {
        let bad = self.trials.iter().filter(|trial| trial.verdict == TrialVerdict::Bad && trial.weight > 0.0);
        bad.map(|trial| trial.spec.rate).reduce(f64::min)
    }

    /// Nothing broke up to the highest rate that may be offered: that rate is held for longer.
    fn hold_ceiling(&mut self, whose: SearchOutcome) {
        let (ceiling, _) = self.bounds.ceiling();
        // One that cannot be believed held nothing; and errors above the goal that may be chance are looked at for longer.
        let held =
            |trial: &&RateTrial| trial.spec.rate >= ceiling && trial.spec.purpose == TrialPurpose::Confirm;
        let held = self.trials.iter().filter(held).filter(|trial| trial.verdict != TrialVerdict::Invalid);
        let errors = pooled(held.clone().map(|trial| trial.evidence.errors));
        let late = pooled(held.clone().map(|trial| trial.evidence.late));
        let is_late = |sure| self.goal.late.is_some_and(|bound| late.deviations_above(bound.share) > sure);
        let doubtful =
            errors.count > 1.0 && errors.value() > self.goal.errors || is_late(0.0) && !is_late(SURE);
        let times = held.count();
        if times == 0 || doubtful && times < LOOKS {
            let offer = self.whole_trial(TrialPurpose::Confirm, ceiling, self.profile.confirm);
            return self.agenda.push_back(SearchStep::RunTrial(offer));
        }
        if errors.count >= SOME && errors.deviations_above(self.goal.errors) > SURE {
            return self.doubt(ceiling, errors.value(), false);
        }
        self.leave_ceiling(whose, is_late(SURE));
    }

    /// That rate was held: but the goal may be broken at any rate, or answers be late where nothing breaks. `is_late`: in all looks at it
    /// together too many were.
    fn leave_ceiling(&mut self, whose: SearchOutcome, is_late: bool) {
        if self.fails_at_any_rate() || self.is_late_at_any_rate() {
            return self.end(SearchOutcome::UnstableBaseline);
        }
        let (ceiling, _) = self.bounds.ceiling();
        let late = self.knee_limit().and_then(|knee| knee.lowest_bad).or_else(|| is_late.then_some(ceiling));
        let Some(late) = late else { return self.end(whose) };
        self.range = (RANGE.0 * late / 2.0, ceiling);
        (self.unbroken, self.cliff_by) = (true, Some(self.elapsed));
        self.enter(Phase::Knee);
    }

    /// What was held while the rate was doubled: the highest rate, for longer than a step of the ramp, or one below a bad step.
    pub(super) fn learn_held(&mut self) {
        let Some(last) = self.trials.last() else { return };
        let (rate, bad) = (last.spec.rate, last.verdict == TrialVerdict::Bad);
        if rate >= self.bounds.ceiling().0 {
            return if bad { self.learn_bad() } else { self.forgive_ramp_step(rate) };
        }
        let (above, more) = (self.share_at(rate / HALF), last.evidence.errors.count > 1.0);
        if is_alike(self.share_at(rate), above) {
            self.doubt(rate, above, more);
        } else {
            self.break_at_lowest();
        }
    }

    /// Errors in the last trial of a rate, as a share.
    fn share_at(&self, rate: f64) -> f64 {
        let last = self.trials.iter().rev().find(|trial| (trial.spec.rate / rate - 1.0).abs() < 1e-9);
        last.map_or(0.0, |trial| trial.evidence.errors.value())
    }

    /// Few errors may have nothing to do with the rate: half of it, and half of that, is held for as long as it takes to see as many
    /// there, as long as that can be seen at all. `below`: as many were seen at this rate as at twice as much.
    fn doubt(&mut self, rate: f64, share: f64, below: bool) {
        let seen = HALF * rate * share;
        let most = self.profile.most.as_secs_f64();
        if share > FEW_ERRORS || seen * most < FEWEST {
            let never = share <= FEW_ERRORS && (below || self.fails_at_any_rate());
            return if never { self.end(SearchOutcome::UnstableBaseline) } else { self.break_at_lowest() };
        }
        let enough = Duration::from_secs_f64((ENOUGH / seen).min(most)).max(RAMP_STEP.1);
        let offer = self.whole_trial(TrialPurpose::Confirm, HALF * rate, enough);
        // Some errors are what is looked for: they end it no sooner than all of them.
        self.agenda.push_back(SearchStep::RunTrial(TrialSpec { least: enough, ..offer }));
    }

    /// At the lowest bad step; at the highest rate where only all looks at it together are bad.
    fn break_at_lowest(&mut self) {
        self.break_at(self.first_bad().unwrap_or(self.bounds.ceiling().0));
    }

    pub(super) fn learn_ramp_step(&mut self) {
        let Some(last) = self.trials.last() else { return };
        if last.verdict == TrialVerdict::Bad {
            self.learn_bad();
        } else {
            self.forgive_ramp_step(last.spec.rate);
        }
    }

    fn learn_bad(&mut self) {
        let Some(last) = self.trials.last() else { return };
        let (offer, failing) = (last.spec, last.evidence.errors.count > 0.0);
        let asked = |trial: &&RateTrial| (trial.spec.rate, trial.spec.purpose) == (offer.rate, offer.purpose);
        let again = self.trials.iter().filter(asked).count() > 1;
        if failing || again {
            return self.doubt(offer.rate, self.share_at(offer.rate), false);
        }
        // One pause at its begin looks like a target that hangs.
        self.cool_down();
        self.agenda.push_back(SearchStep::RunTrial(offer));
    }

    /// A step of the ramp that held the second time was not too much the first time.
    fn forgive_ramp_step(&mut self, rate: f64) {
        for index in 0..self.trials.len() {
            if self.trials[index].verdict == TrialVerdict::Bad && self.trials[index].spec.rate == rate {
                self.reweigh(index, 0.0);
            }
        }
    }

    /// The first rate that is too much.
    fn break_at(&mut self, bad: f64) {
        let good =
            self.trials.iter().filter(|trial| trial.weight > 0.0 && trial.verdict == TrialVerdict::Good);
        let good = good.map(|trial| trial.spec.rate).fold(bad / 16.0, f64::max);
        self.range = (RANGE.0 * good, RANGE.1 * bad);
        self.enter(Phase::Narrow);
        self.after_bad();
    }
}
