//! Handles the consequences of a trial: whether the target must recover, and whether it used up an allowance.

use std::time::Duration;

use super::{RateSearch, SearchStep};
use crate::report::RateTrial;
use crate::trial_spec::{StopRule, TrialPurpose, TrialSpec};
use crate::trial_verdict::{FailureMode, TrialVerdict};

/// The shortest and longest duration of single requests after an overload, and their allowed slowdown over the slowest baseline response.
const PROBE: (Duration, Duration, f64) = (Duration::from_millis(600), Duration::from_secs(30), 3.0);
/// The share of the bad rate for single requests, with the least and the highest rate per second. Few requests are no load; too few could
/// miss one busy server among several.
const SINGLE: (f64, f64, f64) = (0.05, 5.0, 20.0);
/// The pause instead of single requests, if even those keep the target from recovering.
const SILENCE: Duration = Duration::from_secs(6);

/// The largest factor of extra load to empty an allowance. If even that is not enough, the target has changed.
const MOST_ABOVE: f64 = 4.0;

impl RateSearch {
    pub(super) fn learn_trial(&mut self) {
        let Some(last) = self.trials.last() else { return };
        let (vote, cold) = (last.verdict, last.spec.purpose == TrialPurpose::AboveBracketAfterIdle);
        if vote == TrialVerdict::Bad
            && !self.broke_midway(self.trials.len() - 1)
            && !self.retest_if_contradicted()
        {
            self.handle_bad_trial();
        } else if self.broke_midway(self.trials.len() - 1) && !self.manners.spent {
            self.plan_repeat_after_midway_break();
        } else if vote == TrialVerdict::Good && cold {
            self.learn_rested_target_held();
        } else if vote != TrialVerdict::Bad {
            self.doubt_arming();
        }
    }

    /// Records the failure mode after a bad trial, and schedules the recovery, or keeps the allowance empty.
    pub(super) fn handle_bad_trial(&mut self) {
        let Some(kind) = self.failed() else { return };
        // After the target has queued once, a single trial with another failure mode may be bad luck.
        let alike = self
            .trials
            .iter()
            .filter(|trial| trial.failure_mode.is_some_and(FailureMode::is_quota_like))
            .count();
        let first = self.manners.kind.is_none();
        if first || kind.is_quota_like() && !self.manners.spent && alike > 1 {
            self.manners.kind = Some(kind);
        }
        if kind.is_quota_like() && !self.manners.spent && (first || alike > 1) {
            self.spend();
        }
        if !self.manners.spent {
            self.cool_down();
        }
    }

    /// Returns the failure mode of the last bad trial. Hanging is only inferred from missing responses. If an earlier trial at
    /// this rate had slow responses, the target has a queue.
    fn failed(&self) -> Option<FailureMode> {
        let last = self.last_bad()?;
        let alike = self.trials.iter().filter(|trial| trial.spec.rate == last.spec.rate);
        let queued = alike.filter_map(|trial| trial.failure_mode).any(|kind| kind == FailureMode::Queueing);
        if queued && last.failure_mode == Some(FailureMode::Hanging) {
            Some(FailureMode::Queueing)
        } else {
            last.failure_mode
        }
    }

    /// Makes each later trial need an empty refilling allowance. Earlier trials do not count, because saved allowance may have
    /// helped them, even the trial that used it up.
    fn spend(&mut self) {
        self.manners.spent = true;
        let goodput = self.last_bad().map_or(0.0, |bad| bad.evidence.goodput);
        self.range.0 = self.range.0.min(0.4 * goodput).max(self.range.1 / 1000.0);
        for index in 0..self.trials.len() {
            self.reweigh(index, 0.0);
        }
    }

    /// Returns the last bad trial. Other trials may have run since.
    pub(super) fn last_bad(&self) -> Option<&RateTrial> {
        self.trials.iter().rev().find(|trial| trial.verdict == TrialVerdict::Bad)
    }

    pub(super) fn cool_down(&mut self) {
        if self.manners.needs_silence {
            return self.agenda.push_back(SearchStep::Pause(SILENCE));
        }
        let (least, most, slower) = PROBE;
        let (share, few, enough) = SINGLE;
        let rate = self.last_bad().map_or(few, |bad| (share * bad.spec.rate).clamp(few, enough));
        let slowest = self.calm.map_or(0.0, |calm| calm.slowest);
        let rule = StopRule::FastResponses(slower * slowest);
        let offer = self.trial(TrialPurpose::RecoveryProbe, rate, most);
        self.agenda.push_back(SearchStep::RunTrial(TrialSpec {
            rule,
            min_duration: least,
            in_flight_cap: 200.0,
            ..offer
        }));
    }

    pub(super) fn learn_recovery_probe(&mut self) {
        let Some(last) =
            self.trials.last().filter(|last| last.spec.rule != StopRule::FastResponses(f64::INFINITY))
        else {
            return;
        };
        let was_calm = last.seen.took < PROBE.1;
        let calm = &mut self.manners.recovery.time_to_recover;
        *calm = was_calm.then(|| calm.unwrap_or(Duration::ZERO).max(last.seen.took));
    }

    /// Handles an allowance that was not emptied before this trial. Its good result does not count, and the next attempt sends more.
    fn doubt_arming(&mut self) {
        let at = self.trials.len() - 1;
        let arm = at.checked_sub(1).map(|before| &self.trials[before]);
        if arm.is_some_and(|arm| {
            arm.spec.purpose == TrialPurpose::BurstDrain && !arm.spec.has_drained_burst(&arm.seen.blocks)
        }) {
            self.reweigh(at, 0.0);
            self.manners.above = (2.0 * self.manners.above).min(MOST_ABOVE);
        }
    }
}
