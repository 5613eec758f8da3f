//! Handles contradicting trials and an unreliable generator.
//!
//! A trial may be bad at a rate below a good one. There are three reasons: an overload has degraded the target until a pause, the target
//! has become slower, or a quota ran out. The search pauses and then repeats the rate for a longer time. A degraded target then holds the
//! rate; a quota that the pause refilled runs out again.

use std::time::Duration;

use super::{Phase, RateSearch, SearchStep};
use crate::evidence::Dispersion;
use crate::observation::BLOCK_SECONDS;
use crate::report::{QuotaExhaustion, RateTrial, SearchOutcome};
use crate::trial_spec::TrialPurpose;
use crate::trial_verdict::TrialVerdict;

/// The factor below a good rate at which a bad trial contradicts it.
const BELOW: f64 = 0.98;
/// A pause without even single requests.
const SILENCE: Duration = Duration::from_secs(12);
/// The weight of a trial that is no longer true.
const STALE: f64 = 0.05;
/// The time in seconds from which a rate that broke later was not too high from the start.
const HELD: f64 = 1.5;
/// The time in seconds without a queue that is not chance; below, the share of the in-flight bound that means an endless queue.
const LONG: f64 = 3.0;
const OVER: f64 = 0.6;
/// The number of standard deviations of random requests in flight. A heavy tail has bad seconds, too.
const CHANCE: f64 = 5.0;
/// The factor of the duration of a repeated trial.
const LONGER: f64 = 1.5;
/// The number of consecutive invalid trials that ends the search, at a rate that the generator has not offered before.
const INVALID: usize = 3;
/// The number of consecutive invalid trials that ends the search, at a rate that the generator has offered before. It only bounds
/// a search whose trials fail at once.
const DISTURBED: usize = 12;

impl RateSearch {
    /// Schedules a pause and a repetition if the last, bad trial contradicts an earlier one; true if it does.
    pub(super) fn retest_if_contradicted(&mut self) -> bool {
        let Some((last, before)) = self.trials.split_last() else { return false };
        let contradicted = before.iter().any(|trial| says_more(trial, last.spec.rate));
        if contradicted && !self.manners.spent {
            let longer = last.seen.blocks.len() as f64 * BLOCK_SECONDS * LONGER;
            let time = self.profile.max_trial_duration.max(Duration::from_secs_f64(longer));
            let offer = self.full_duration_trial(TrialPurpose::RepeatAfterIdle, last.spec.rate, time);
            self.agenda.extend([SearchStep::Pause(SILENCE), SearchStep::RunTrial(offer)]);
        }
        contradicted && !self.manners.spent
    }

    /// Returns whether a trial went well for most of its time and then reached its bound of requests in flight, because the
    /// capacity fell.
    pub(super) fn broke_midway(&self, at: usize) -> bool {
        let trial = &self.trials[at];
        let lasted = trial.seen.blocks.len() as f64 * BLOCK_SECONDS;
        let (held, over) =
            (trial.evidence.unqueued_seconds, trial.evidence.in_flight_end > OVER * trial.spec.in_flight_cap);
        let chance = (self.dispersion() * trial.spec.rate * (lasted - held).max(BLOCK_SECONDS)).sqrt();
        over && held >= LONG && held >= lasted / 2.0 && trial.evidence.in_flight_end > CHANCE * chance
    }

    /// Returns the dispersion of responses in trials that held to their end.
    fn dispersion(&self) -> f64 {
        let held = self.trials.iter().filter(|trial| {
            trial.evidence.unqueued_seconds >= trial.seen.blocks.len() as f64 * BLOCK_SECONDS
        });
        let counting = held.filter(|trial| trial.weight > 0.0);
        counting
            .fold(Dispersion::default(), |sum, trial| sum.combine(trial.evidence.response_dispersion))
            .variance_ratio_shrunk_toward(1.0, 5.0)
    }

    /// Repeats the rate at once, or as soon as single requests are quick, to see whether it breaks from the start.
    pub(super) fn plan_repeat_after_midway_break(&mut self) {
        let Some(rate) = self.trials.last().map(|trial| trial.spec.rate) else { return };
        self.cool_down();
        self.agenda.push_back(SearchStep::RunTrial(self.trial(
            TrialPurpose::RepeatNow,
            rate,
            self.profile.max_trial_duration,
        )));
    }

    /// Learns from that repetition. If the rate broke from the start, a longer trial after a pause decides: a degraded target holds the
    /// rate, and a quota runs out again.
    pub(super) fn learn_repeat(&mut self) {
        let at = self.trials.len() - 1;
        if self.trials[at].verdict != TrialVerdict::Bad {
            return;
        }
        if self.trials[at].evidence.unqueued_seconds > HELD {
            return self.handle_bad_trial();
        }
        let rate = self.trials[at].spec.rate;
        let same = self.trials.iter().filter(|trial| trial.spec.rate == rate);
        let held = same.map(|trial| trial.evidence.unqueued_seconds).fold(0.0, f64::max);
        let time = self.profile.max_trial_duration.max(Duration::from_secs_f64(LONGER * held));
        let offer = self.full_duration_trial(TrialPurpose::RepeatAfterIdle, rate, time);
        self.agenda.extend([SearchStep::Pause(SILENCE), SearchStep::RunTrial(offer)]);
    }

    pub(super) fn learn_retest(&mut self) {
        let at = self.trials.len() - 1;
        let Some(first) = at.checked_sub(1) else { return };
        let longer =
            self.trials[at].evidence.unqueued_seconds > self.trials[first].evidence.unqueued_seconds + HELD;
        let bad = self.trials[at].verdict == TrialVerdict::Bad;
        if self.broke_midway(at) || bad && longer {
            self.deplete();
        } else if bad {
            self.forget(self.trials[at].spec.rate);
            self.handle_bad_trial();
        } else {
            // The pause restored the target, so the earlier bad trial was degraded.
            self.reweigh(first, 0.0);
            self.manners.needs_silence = true;
        }
    }

    /// Reduces the weight of good trials above this rate, because the target has become slower.
    fn forget(&mut self, rate: f64) {
        for index in 0..self.trials.len() {
            if says_more(&self.trials[index], rate) {
                self.reweigh(index, STALE);
            }
        }
    }

    /// Learns that a quota ran out. Earlier trials say nothing about the sustained rate.
    fn deplete(&mut self) {
        let at = self.trials.len() - 1;
        let last = &self.trials[at];
        let (rate, held) = (last.spec.rate, last.evidence.unqueued_seconds);
        let tail = last.seen.blocks.iter().skip((held / BLOCK_SECONDS) as usize);
        let (good, blocks) =
            tail.fold((0.0, 0.0), |(good, n), block| (good + f64::from(block.good), n + 1.0));
        let goodput = good / (f64::max(blocks, 1.0) * BLOCK_SECONDS);
        self.manners.depletion = Some(QuotaExhaustion { requests_before: rate * held, goodput });
        self.manners.spent = true;
        (0..=at).for_each(|index| self.reweigh(index, 0.0));
        self.range = (0.5 * goodput, rate);
        self.enter(Phase::Narrow);
    }

    /// Learns that a rested target holds a rate that it did not hold before. The earlier bad trials met a degraded target and no longer
    /// count.
    pub(super) fn learn_rested_target_held(&mut self) {
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

    /// Ends the search after too many invalid trials, with the generator as the limit.
    ///
    /// If an earlier, valid trial offered at least this rate, the generator is able to. Then something disturbs single trials. They do not
    /// count, and the search goes on until its time is over.
    pub(super) fn count_invalid_trial(&mut self) {
        self.invalid += 1;
        let most = if self.has_offered_more() { DISTURBED } else { INVALID };
        if self.invalid >= most {
            self.end(SearchOutcome::GeneratorLimited);
        }
    }

    /// Returns whether the search for the bracket had trials, but no valid one.
    pub(super) fn are_all_narrowing_trials_invalid(&self) -> bool {
        let narrows = |trial: &&RateTrial| trial.spec.purpose == TrialPurpose::NarrowBracket;
        let mut narrowing = self.trials.iter().filter(narrows).peekable();
        narrowing.peek().is_some() && narrowing.all(|trial| trial.verdict == TrialVerdict::Invalid)
    }

    /// Returns whether a valid trial before the last one had at least its rate.
    fn has_offered_more(&self) -> bool {
        let Some((last, before)) = self.trials.split_last() else { return false };
        let valid = before.iter().filter(|trial| trial.verdict != TrialVerdict::Invalid);
        valid.map(|trial| trial.spec.rate).any(|rate| rate >= last.spec.rate)
    }
}

/// Returns whether a trial was good at a higher rate than this bad one.
fn says_more(trial: &RateTrial, bad: f64) -> bool {
    trial.verdict == TrialVerdict::Good && trial.weight > 0.1 && bad < BELOW * trial.spec.rate
}
