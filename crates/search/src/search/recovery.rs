//! The end of a search: the recovery from overload, and the report.

use std::time::Duration;

use super::{LATE, Phase, RateSearch, SearchStep};
use crate::limit_posterior::Bracket;
use crate::observation::BLOCK_SECONDS;
use crate::report::{
    LimitEstimate, OverloadRecovery, RateTrial, SearchOutcome, SearchReport, UnexcludedBurst,
};
use crate::trial_spec::{StopRule, TrialPurpose, TrialSpec};
use crate::trial_verdict::TrialVerdict;

/// The overload before the recovery trial: a factor of the upper bound, and the duration.
const OVERLOAD: (f64, Duration) = (1.3, Duration::from_secs(2));
/// The width of the knee's bracket, as a share, above which the tested rates say more.
const TOLD: f64 = 0.6;
/// The number of standard deviations above a share that is not chance.
const SURE: f64 = 2.0;
/// The share of the lower bound that must hold after the overload.
const AGAIN: f64 = 0.9;

impl RateSearch {
    pub(super) fn plan_recovery(&mut self) {
        // If nothing broke, there is only a knee and no overload to recover from.
        self.cliff = self.cliff.filter(|_| !self.unbroken);
        let Some(cliff) = self.cliff else { return self.end(SearchOutcome::Found) };
        if self.cliff_limit().lowest_bad.is_none() {
            return self.end_untold();
        }
        self.turn += 1;
        if self.turn > 1 || self.manners.spent {
            // After an allowance was found, earlier trials do not count. Without a rate that held since then, the bracket may be a guess.
            let is_some_idea = self.cliff_limit().is_at_least_roughly_bracketed();
            return if is_some_idea { self.end(self.verdict()) } else { self.enter(Phase::Finished) };
        }
        let (above, time) = OVERLOAD;
        let overload = self.trial(TrialPurpose::BurstDrain, above * cliff.upper, time);
        let overload = TrialSpec { rule: StopRule::FailingShare(1.0), min_duration: time, ..overload };
        let again = self.trial(TrialPurpose::Recovery, AGAIN * cliff.lower, self.profile.recovery_duration);
        self.agenda.extend([SearchStep::RunTrial(overload), SearchStep::RunTrial(again)]);
    }

    pub(super) fn learn_recovery(&mut self) {
        self.manners.recovery.holds_after_overload =
            self.trials.last().map(|trial| trial.verdict != TrialVerdict::Bad);
        let overload =
            self.trials.iter().rev().nth(1).filter(|trial| trial.spec.purpose == TrialPurpose::BurstDrain);
        let cliff = self.cliff.map(|cliff| cliff.estimate).filter(|rate| *rate > 0.0);
        self.manners.recovery.queue_seconds =
            overload.zip(cliff).map(|(overload, rate)| waiting(overload) / rate);
    }

    /// Ends a search without a bad trial: the highest allowed rate held, or the time was too short.
    fn end_untold(&mut self) {
        self.cliff = None;
        match self.ceiling_outcome() {
            Some(whose) => self.end(whose),
            None => self.enter(Phase::Finished),
        }
    }

    fn verdict(&self) -> SearchOutcome {
        let degraded = match self.manners.recovery.holds_after_overload {
            Some(holds) => !holds,
            None => self.manners.needs_silence,
        };
        if degraded { SearchOutcome::Metastable } else { SearchOutcome::Found }
    }

    /// Returns the current result.
    #[must_use]
    pub fn report(&self) -> SearchReport {
        SearchReport {
            outcome: self.outcome,
            goal: self.goal,
            search_profile_name: self.profile.name,
            max_rate: self.bounds.max_rate,
            cliff: self.cliff_limit(),
            knee: self.knee_limit(),
            failure_mode: self.manners.kind,
            overload_goodput: self.goodput(),
            burst_allowance: self.burst(),
            quota_exhaustion: self.manners.depletion,
            unexcluded_burst: self.allowance(),
            recovery: stated(self.manners.recovery),
            trials: self.trials.clone(),
            took: self.elapsed,
        }
    }

    pub(super) fn cliff_limit(&self) -> LimitEstimate {
        let cliff = self.cliff.map(|cliff| cliff.widened_by_share(self.profile.cliff_bracket_widening));
        self.limit(cliff, |trial| trial.verdict)
    }

    /// Returns the knee; none without a latency goal. If the bracket is too wide, only the tested rates are given.
    pub(super) fn knee_limit(&self) -> Option<LimitEstimate> {
        let share = self.goal.latency_goal?.max_late_share;
        let knee = self.knee.map(|knee| knee.widened_by_share(self.profile.knee_margin));
        let told = knee.filter(|knee| knee.width_relative_to_lower() <= TOLD);
        Some(self.limit(told, |trial| match trial.evidence.late {
            _ if trial.verdict == TrialVerdict::Bad => TrialVerdict::Bad,
            late if late.total <= 0.0 => TrialVerdict::Undecided,
            // A ramp step is too short for a queue to grow.
            late if late.deviations_above(share) > SURE && trial.evidence.seconds_after_settling >= LATE => {
                TrialVerdict::Bad
            }
            late if late.value() <= share => TrialVerdict::Good,
            _ => TrialVerdict::Undecided,
        }))
    }

    /// Returns the tested rates next to the bracket. The good rate is below every bad one. A bad rate below the bracket is
    /// ignored if possible, because all trials together show that it was bad luck.
    fn limit(&self, bracket: Option<Bracket>, votes: impl Fn(&RateTrial) -> TrialVerdict) -> LimitEstimate {
        let counting = self.trials.iter().filter(|trial| trial.weight > 0.1);
        let voted: Vec<_> = counting.map(|trial| (votes(trial), trial.spec.rate)).collect();
        let of = |vote| voted.iter().filter(move |(voted, _)| *voted == vote).map(|(_, rate)| *rate);
        let lower = bracket.map_or(0.0, |bracket| bracket.lower);
        let within = of(TrialVerdict::Bad).filter(|rate| *rate >= lower).reduce(f64::min);
        let bad = within
            .or_else(|| of(TrialVerdict::Bad).reduce(f64::min))
            .or_else(|| self.lowest_bad_after_allowance());
        let good = of(TrialVerdict::Good).filter(|rate| bad.is_none_or(|bad| *rate < bad)).reduce(f64::max);
        LimitEstimate { bracket, highest_good: good, lowest_bad: bad }
    }

    /// Returns the lowest bad rate that still counts after an allowance was found. Good rates from before do not count, but bad
    /// ones do.
    pub(super) fn lowest_bad_after_allowance(&self) -> Option<f64> {
        let used_up = self.manners.depletion.is_some();
        let too_much =
            |trial: &&RateTrial| trial.failure_mode.is_some_and(|kind| used_up || kind.is_quota_like());
        let bad = self.trials.iter().filter(too_much);
        bad.filter(|_| self.manners.spent).map(|trial| trial.spec.rate).reduce(f64::min)
    }

    fn goodput(&self) -> Option<f64> {
        let bad = self.trials.iter().filter(|trial| {
            trial.verdict == TrialVerdict::Bad && trial.evidence.seconds_after_settling > 0.0
        });
        let mut all: Vec<_> = bad.map(|trial| trial.evidence.goodput).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// Returns the requests that the trials up to the first bad one got above the fill rate.
    fn burst(&self) -> Option<f64> {
        let fill = self.cliff.filter(|_| self.manners.spent && self.manners.depletion.is_none())?.estimate;
        let bad = self.trials.iter().position(|trial| trial.verdict == TrialVerdict::Bad)?;
        let above = self.trials[..=bad].iter().filter(|trial| trial.spec.rate > fill);
        let given = above.map(|trial| {
            let good: f64 = trial.seen.blocks.iter().map(|block| f64::from(block.good)).sum();
            good - fill * trial.seen.blocks.len() as f64 * BLOCK_SECONDS
        });
        Some(given.sum::<f64>().max(0.0))
    }

    /// Returns the most requests in one trial that held, without a pause.
    fn allowance(&self) -> Option<UnexcludedBurst> {
        let held =
            self.trials.iter().filter(|trial| trial.verdict != TrialVerdict::Bad && trial.weight > 0.1);
        let of = |trial: &RateTrial| {
            let held = Duration::from_secs_f64(trial.seen.blocks.len() as f64 * BLOCK_SECONDS);
            UnexcludedBurst {
                rate: trial.spec.rate,
                duration: held,
                requests: trial.spec.rate * held.as_secs_f64(),
            }
        };
        held.map(of).max_by(|a, b| a.requests.total_cmp(&b.requests))
    }
}

/// A shorter queue, in seconds of work, says nothing of a target that collapses under a queue.
const REAL_QUEUE: f64 = 0.2;

/// Requests that waited for the target when the overload ended.
fn waiting(overload: &RateTrial) -> f64 {
    overload.seen.blocks.last().map_or(0.0, |block| f64::from(block.in_flight))
}

/// Says that the target recovers only if the overload left a queue to recover from (a stop-gap until recovery is tried with longer queues).
fn stated(recovery: OverloadRecovery) -> OverloadRecovery {
    let is_tested = recovery.queue_seconds.is_some_and(|queue| queue >= REAL_QUEUE);
    OverloadRecovery {
        holds_after_overload: recovery.holds_after_overload.filter(|holds| !holds || is_tested),
        ..recovery
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that collapsed under a queue of more than half a second was said to hold its rate again, after an overload that left none.
    #[test]
    fn recovery_is_only_stated_after_an_overload_that_left_a_queue() {
        let of = |holds, queue| {
            stated(OverloadRecovery {
                time_to_recover: None,
                holds_after_overload: Some(holds),
                queue_seconds: queue,
            })
            .holds_after_overload
        };
        assert_eq!(of(true, Some(0.01)), None);
        assert_eq!(of(true, None), None);
        assert_eq!(of(true, Some(0.4)), Some(true));
        assert_eq!(of(false, Some(0.01)), Some(false));
    }
}
