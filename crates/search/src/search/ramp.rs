//! The start of a search: the latency at very low load, and the doubled rate at which the target breaks.

use std::time::Duration;

use super::unreachable_goal::{is_alike, pooled};
use super::{BaselineLatency, Phase, RateSearch, SearchStep};
use crate::observation::{mean_latency, sum};
use crate::report::{RateTrial, SearchOutcome};
use crate::trial_spec::{StopRule, TrialPurpose, TrialSpec};
use crate::trial_verdict::{TrialCriteria, TrialVerdict};

/// The rate in requests per second down to which the first rate is halved while too many requests fail.
const LEAST_FIRST: f64 = 4.0;
/// The duration of the baseline.
const BASELINE: Duration = Duration::from_secs(2);
/// The shortest and longest duration of a ramp step.
const RAMP_STEP: (Duration, Duration) = (Duration::from_millis(400), Duration::from_secs(2));
/// The growth that a good ramp step may show.
const RAMP_STEP_TOLERANCE: f64 = 0.25;
/// The first range of the search, as factors of the last good step and the first bad one.
const RANGE: (f64, f64) = (0.3, 1.3);
/// The largest share of errors that may come from a limit just below the step, or from a target that fails at any rate.
const FEW_ERRORS: f64 = 0.05;
/// The factor of the rate at which the same errors are expected; below, the expected number of errors that ends that trial, and the least
/// that makes it worthwhile.
const HALF: f64 = 0.5;
const ENOUGH: f64 = 8.0;
const FEWEST: f64 = 1.5;
/// The number of errors in all trials of the highest rate below which they are bad luck.
const SOME: f64 = 3.0;
/// The most trials of the highest rate; below, the number of standard deviations that is not chance then.
const LOOKS: usize = 5;
const SURE: f64 = 2.5;

impl RateSearch {
    pub(super) fn plan_baseline(&mut self) {
        let rate = self.bounds.first_rate.min(self.bounds.ceiling().0);
        let offer = self.trial(TrialPurpose::Baseline, rate, BASELINE);
        self.agenda.push_back(SearchStep::RunTrial(TrialSpec {
            min_duration: BASELINE,
            in_flight_cap: 30.0 + rate,
            ..offer
        }));
    }

    pub(super) fn learn_baseline(&mut self) {
        let Some(blocks) = self.trials.last().map(|trial| &trial.seen.blocks) else { return };
        let (good, errors) = (sum(blocks, |block| block.good), sum(blocks, |block| block.errors));
        let slowest = blocks.iter().map(|block| block.slowest).fold(0.0, f64::max);
        match mean_latency(blocks).filter(|_| errors <= 0.2 * (good + errors)) {
            // Some responses are good, so a limit below the first rate is possible.
            None if good > 0.0 && self.bounds.first_rate > LEAST_FIRST => self.bounds.first_rate /= 2.0,
            None => self.end(SearchOutcome::GoalUnreachable),
            Some(service) => {
                self.calm = Some(BaselineLatency { service, slowest });
                self.enter(Phase::Ramp);
            }
        }
    }

    pub(super) fn plan_ramp_step(&mut self) {
        let (ceiling, whose) = self.bounds.ceiling();
        // The trial below a bad step was invalid.
        if self.first_bad().is_some() {
            return self.break_at_lowest();
        }
        // An invalid step does not count as passed.
        let steps = self.trials.iter().filter(|trial| trial.spec.purpose == TrialPurpose::Ramp);
        let passed = steps.filter(|trial| trial.verdict != TrialVerdict::Invalid);
        let last = passed.map(|trial| trial.spec.rate).fold(0.0, f64::max);
        if last >= ceiling {
            return self.hold_ceiling(whose);
        }
        let rate = if last > 0.0 { 2.0 * last } else { self.bounds.first_rate };
        let (least, most) = RAMP_STEP;
        let rule = StopRule::Decided(TrialCriteria {
            growth_tolerance: RAMP_STEP_TOLERANCE,
            min_settled_seconds_for_good: 0.2,
            ..self.standard()
        });
        let offer = self.trial(TrialPurpose::Ramp, rate, most);
        self.agenda.push_back(SearchStep::RunTrial(TrialSpec { min_duration: least, rule, ..offer }));
    }

    /// Returns the lowest rate of a bad trial that still counts.
    fn first_bad(&self) -> Option<f64> {
        let bad = self.trials.iter().filter(|trial| trial.verdict == TrialVerdict::Bad && trial.weight > 0.0);
        bad.map(|trial| trial.spec.rate).reduce(f64::min)
    }

    /// Holds the highest allowed rate for longer, because nothing broke up to it.
    fn hold_ceiling(&mut self, whose: SearchOutcome) {
        let (ceiling, _) = self.bounds.ceiling();
        // An invalid trial has held nothing. More trials follow if errors above the goal may be chance.
        let held =
            |trial: &&RateTrial| trial.spec.rate >= ceiling && trial.spec.purpose == TrialPurpose::Confirm;
        let held = self.trials.iter().filter(held).filter(|trial| trial.verdict != TrialVerdict::Invalid);
        let errors = pooled(held.clone().map(|trial| trial.evidence.errors));
        let late = pooled(held.clone().map(|trial| trial.evidence.late));
        let is_late = |sure| {
            self.goal.latency_goal.is_some_and(|bound| late.deviations_above(bound.max_late_share) > sure)
        };
        let doubtful = errors.count > 1.0 && errors.value() > self.goal.max_error_share
            || is_late(0.0) && !is_late(SURE);
        let times = held.count();
        if times == 0 || doubtful && times < LOOKS {
            let offer =
                self.full_duration_trial(TrialPurpose::Confirm, ceiling, self.profile.confirm_duration);
            return self.agenda.push_back(SearchStep::RunTrial(offer));
        }
        if errors.count >= SOME && errors.deviations_above(self.goal.max_error_share) > SURE {
            return self.doubt(ceiling, errors.value(), false);
        }
        self.leave_ceiling(whose, is_late(SURE));
    }

    /// Ends the ramp after the highest rate held. The goal may still fail at every rate, or responses may be late without a break.
    /// `is_late` is true if too many responses were late in all trials of that rate.
    fn leave_ceiling(&mut self, whose: SearchOutcome, is_late: bool) {
        if self.fails_at_any_rate() || self.is_late_at_any_rate() {
            return self.end(SearchOutcome::GoalUnreachable);
        }
        let (ceiling, _) = self.bounds.ceiling();
        let late = self.knee_limit().and_then(|knee| knee.lowest_bad).or_else(|| is_late.then_some(ceiling));
        let Some(late) = late else { return self.end(whose) };
        self.range = (RANGE.0 * late / 2.0, ceiling);
        (self.unbroken, self.cliff_by) = (true, Some(self.elapsed));
        self.enter(Phase::Knee);
    }

    /// Learns from a long trial during the ramp: at the highest rate, or at half the rate of a bad step.
    pub(super) fn learn_long_trial(&mut self) {
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

    /// Returns the share of errors in the last trial at a rate.
    fn share_at(&self, rate: f64) -> f64 {
        let last = self.trials.iter().rev().find(|trial| (trial.spec.rate / rate - 1.0).abs() < 1e-9);
        last.map_or(0.0, |trial| trial.evidence.errors.value())
    }

    /// Tests whether few errors depend on the rate. It holds half the rate, and then half of that, long enough to see equally many errors,
    /// if that is possible. `below` is true if this rate had as many errors as twice the rate.
    fn doubt(&mut self, rate: f64, share: f64, below: bool) {
        let seen = HALF * rate * share;
        let most = self.profile.max_trial_duration.as_secs_f64();
        if share > FEW_ERRORS || seen * most < FEWEST {
            let never = share <= FEW_ERRORS && (below || self.fails_at_any_rate());
            return if never { self.end(SearchOutcome::GoalUnreachable) } else { self.break_at_lowest() };
        }
        let enough = Duration::from_secs_f64((ENOUGH / seen).min(most)).max(RAMP_STEP.1);
        let offer = self.full_duration_trial(TrialPurpose::Confirm, HALF * rate, enough);
        // The trial expects errors, so a few of them must not end it early.
        self.agenda.push_back(SearchStep::RunTrial(TrialSpec { min_duration: enough, ..offer }));
    }

    /// Breaks at the lowest bad step, or at the highest rate if only all its trials together are bad.
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
        // A stall at the start of a step looks like a target that hangs, so the step is repeated.
        self.cool_down();
        self.agenda.push_back(SearchStep::RunTrial(offer));
    }

    /// Forgives a bad ramp step whose repetition held.
    fn forgive_ramp_step(&mut self, rate: f64) {
        for index in 0..self.trials.len() {
            if self.trials[index].verdict == TrialVerdict::Bad && self.trials[index].spec.rate == rate {
                self.reweigh(index, 0.0);
            }
        }
    }

    /// Starts the search below the first rate that is too high.
    fn break_at(&mut self, bad: f64) {
        let good =
            self.trials.iter().filter(|trial| trial.weight > 0.0 && trial.verdict == TrialVerdict::Good);
        let good = good.map(|trial| trial.spec.rate).fold(bad / 16.0, f64::max);
        self.range = (RANGE.0 * good, RANGE.1 * bad);
        self.enter(Phase::Narrow);
        self.handle_bad_trial();
    }
}
