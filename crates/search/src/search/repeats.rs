//! Repeats a bad trial that the bracket contradicts.
//!
//! A disturbance of the target, such as another program on its machine, can make a single trial bad at a rate that the target
//! sustains. All other trials together then give a bracket above that rate. Before the search ends, it repeats the rate. If the
//! repetition is not bad, the bad trial no longer counts. Otherwise it stays, and the result says that the trials contradict each
//! other.

use std::time::Duration;

use super::RateSearch;
use crate::observation::BLOCK_SECONDS;
use crate::report::RateTrial;
use crate::trial_spec::{TrialPurpose, TrialSpec};
use crate::trial_verdict::TrialVerdict;

/// The most rates that a search repeats.
const REPEATS: usize = 3;
/// The factor of the duration of a repeated trial.
const LONGER: f64 = 1.5;
/// Two rates whose ratio differs by less are the same.
const SAME: f64 = 1e-9;

impl RateSearch {
    /// Returns a repetition of the lowest bad trial below the bracket; none if there is no such trial, or if its rate was
    /// repeated before.
    pub(super) fn next_repeat_of_contradicting_trial(&mut self) -> Option<TrialSpec> {
        // After an allowance ran out, trials from before do not count, and a bad one below the bracket may have found it empty.
        let lower = self.cliff_limit().bracket.filter(|_| !self.manners.spent)?.lower;
        let contradicts = |trial: &&RateTrial| {
            is_bad(trial) && trial.spec.rate < lower && !self.is_repeated(trial.spec.rate)
        };
        let contradicting = self.trials.iter().filter(contradicts);
        let bad = contradicting.min_by(|one, other| one.spec.rate.total_cmp(&other.spec.rate))?;
        if self.repeated.len() >= REPEATS {
            return None;
        }
        let longer = LONGER * bad.seen.blocks.len() as f64 * BLOCK_SECONDS;
        let time = self.profile.max_trial_duration.max(Duration::from_secs_f64(longer));
        let again = self.full_duration_trial(TrialPurpose::NarrowBracket, bad.spec.rate, time);
        self.repeated.push(again.rate);
        Some(again)
    }

    /// Bad trials at the rate of the last one no longer count if that was their repetition and is not bad.
    pub(super) fn forgive_repeated(&mut self) {
        let Some((last, before)) = self.trials.split_last() else { return };
        if last.verdict == TrialVerdict::Bad || !self.is_repeated(last.spec.rate) {
            return;
        }
        let rate = last.spec.rate;
        let forgiven = |trial: &RateTrial| is_bad(trial) && is_same(trial.spec.rate, rate);
        let forgiven: Vec<_> = (0..before.len()).filter(|&at| forgiven(&self.trials[at])).collect();
        forgiven.into_iter().for_each(|at| self.reweigh(at, 0.0));
    }

    fn is_repeated(&self, rate: f64) -> bool {
        self.repeated.iter().any(|repeated| is_same(*repeated, rate))
    }
}

/// Returns whether a trial was bad and counts.
fn is_bad(trial: &RateTrial) -> bool {
    trial.verdict == TrialVerdict::Bad && trial.weight > 0.1
}

fn is_same(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < SAME
}
