//! Trials that contradict each other, and a generator that cannot be believed.
//!
//! Bad at a rate below one that was good: either the target is degraded by an overload and silence brings it back, or it has become
//! slower, or it had something that is used up. A silence and the same rate again, held for longer than it was before, tells them
//! apart: what silence gives back is used up again.

use std::time::Duration;

use super::{Phase, RateSearch, SearchStep};
use crate::evidence::Dispersion;
use crate::offer::TrialPurpose;
use crate::report::{QuotaExhaustion, RateTrial, SearchOutcome};
use crate::seen::BLOCK_SECONDS;
use crate::vote::TrialVerdict;

/// How far below a good rate a bad one contradicts it.
const BELOW: f64 = 0.98;
/// Silence, in which not even single requests are sent.
const SILENCE: Duration = Duration::from_secs(12);
/// What is left of the word of a trial that is no longer true.
const STALE: f64 = 0.05;
/// A trial that held this long before it broke was not too much from its begin.
const HELD: f64 = 1.5;
/// Longer than that without a queue, in seconds, is no chance; and this share of the bound is a queue that never ends.
const LONG: f64 = 3.0;
const OVER: f64 = 0.6;
/// Standard deviations of what chance leaves in flight: a heavy tail has its bad seconds, too.
const CHANCE: f64 = 5.0;
/// How much longer than before a rate is held the second time.
const LONGER: f64 = 1.5;
/// Trials in a row that cannot be believed.
const INVALID: usize = 3;

impl RateSearch {
    /// Whether the last trial, a bad one, contradicts an earlier one; then it is asked again after silence.
    pub(super) fn retest_if_contradicted(&mut self) -> bool {
        let Some((last, before)) = self.trials.split_last() else { return false };
        let contradicted = before.iter().any(|trial| says_more(trial, last.spec.rate));
        if contradicted && !self.manners.spent {
            let longer = last.seen.blocks.len() as f64 * BLOCK_SECONDS * LONGER;
            let time = self.profile.most.max(Duration::from_secs_f64(longer));
            let offer = self.whole_trial(TrialPurpose::RepeatAfterIdle, last.spec.rate, time);
            self.agenda.extend([SearchStep::Pause(SILENCE), SearchStep::RunTrial(offer)]);
        }
        contradicted && !self.manners.spent
    }

    /// Whether a trial held for most of its time and then ended at its bound of what may be in flight: its capacity fell.
    pub(super) fn broke(&self, at: usize) -> bool {
        let trial = &self.trials[at];
        let lasted = trial.seen.blocks.len() as f64 * BLOCK_SECONDS;
        let (held, over) = (trial.evidence.held, trial.evidence.to > OVER * trial.spec.most_in_flight);
        let chance = (self.dispersion() * trial.spec.rate * (lasted - held).max(BLOCK_SECONDS)).sqrt();
        over && held >= LONG && held >= lasted / 2.0 && trial.evidence.to > CHANCE * chance
    }

    /// How answers vary in trials that held to their end.
    fn dispersion(&self) -> f64 {
        let held = self
            .trials
            .iter()
            .filter(|trial| trial.evidence.held >= trial.seen.blocks.len() as f64 * BLOCK_SECONDS);
        let counting = held.filter(|trial| trial.weight > 0.0);
        counting
            .fold(Dispersion::default(), |sum, trial| sum.combine(trial.evidence.answers))
            .shrunk(1.0, 5.0)
    }

    /// The same rate at once, or as soon as single requests are quick: does it break from its begin now?
    pub(super) fn plan_repeat(&mut self) {
        let Some(rate) = self.trials.last().map(|trial| trial.spec.rate) else { return };
        self.cool_down();
        self.agenda.push_back(SearchStep::RunTrial(self.trial(
            TrialPurpose::RepeatNow,
            rate,
            self.profile.most,
        )));
    }

    /// If it does, something is used up or degraded. What is degraded holds after silence; what is used up breaks again.
    pub(super) fn learn_repeat(&mut self) {
        let at = self.trials.len() - 1;
        if self.trials[at].verdict != TrialVerdict::Bad {
            return;
        }
        if self.trials[at].evidence.held > HELD {
            return self.after_bad();
        }
        let rate = self.trials[at].spec.rate;
        let same = self.trials.iter().filter(|trial| trial.spec.rate == rate);
        let held = same.map(|trial| trial.evidence.held).fold(0.0, f64::max);
        let time = self.profile.most.max(Duration::from_secs_f64(LONGER * held));
        let offer = self.whole_trial(TrialPurpose::RepeatAfterIdle, rate, time);
        self.agenda.extend([SearchStep::Pause(SILENCE), SearchStep::RunTrial(offer)]);
    }

    pub(super) fn learn_retest(&mut self) {
        let at = self.trials.len() - 1;
        let Some(first) = at.checked_sub(1) else { return };
        let longer = self.trials[at].evidence.held > self.trials[first].evidence.held + HELD;
        let bad = self.trials[at].verdict == TrialVerdict::Bad;
        if self.broke(at) || bad && longer {
            self.deplete();
        } else if bad {
            self.forget(self.trials[at].spec.rate);
            self.after_bad();
        } else {
            // Silence brought it back: what was bad before was degraded.
            self.reweigh(first, 0.0);
            self.manners.needs_silence = true;
        }
    }

    /// The target has become slower: what was good above this rate is so no longer.
    fn forget(&mut self, rate: f64) {
        for index in 0..self.trials.len() {
            if says_more(&self.trials[index], rate) {
                self.reweigh(index, STALE);
            }
        }
    }

    /// It had something that is used up: all that was measured with it says nothing of what lasts.
    fn deplete(&mut self) {
        let at = self.trials.len() - 1;
        let last = &self.trials[at];
        let (rate, held) = (last.spec.rate, last.evidence.held);
        let tail = last.seen.blocks.iter().skip((held / BLOCK_SECONDS) as usize);
        let (good, blocks) =
            tail.fold((0.0, 0.0), |(good, n), block| (good + f64::from(block.good), n + 1.0));
        let goodput = good / (f64::max(blocks, 1.0) * BLOCK_SECONDS);
        self.manners.depletion = Some(QuotaExhaustion { after: rate * held, goodput });
        self.manners.spent = true;
        (0..=at).for_each(|index| self.reweigh(index, 0.0));
        self.range = (0.5 * goodput, rate);
        self.enter(Phase::Narrow);
    }

    /// A rested target takes what it did not take before: those trials met it degraded, and only what was good still is.
    pub(super) fn learn_warmed_up(&mut self) {
        let Some(rate) = self.trials.last().map(|trial| trial.spec.rate) else { return };
        let degraded = |trial: &RateTrial| trial.verdict != TrialVerdict::Good && trial.spec.rate <= rate;
        for index in 0..self.trials.len() - 1 {
            if degraded(&self.trials[index]) {
                self.reweigh(index, 0.0);
            }
        }
        self.manners.needs_silence = true;
        self.range = (0.8 * rate, self.range.1.max(1.3 * rate));
    }

    /// Too many trials that cannot be believed: the generator is the limit.
    pub(super) fn doubt_generator(&mut self) {
        self.invalid += 1;
        if self.invalid >= INVALID {
            self.end(SearchOutcome::GeneratorLimited);
        }
    }
}

/// Whether a trial was good at a higher rate than one that was bad.
fn says_more(trial: &RateTrial, bad: f64) -> bool {
    trial.verdict == TrialVerdict::Good && trial.weight > 0.1 && bad < BELOW * trial.spec.rate
}
