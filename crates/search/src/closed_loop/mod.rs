//! Searches the number of concurrent clients that a target bears. Each client waits for its response before it sends the next request.
//!
//! There are two results. The *limit* is the largest number of clients at which the goal holds. Lateness counts *from the send*, because
//! nothing is due while a client waits. The *saturation* is the rate that more clients do not raise, with the number of clients that reach
//! it.
//!
//! A closed loop slows down with its target, so neither result shows the experience of independent users; [`crate::search`] does. Like that
//! search, this one has no sockets, threads or clock. The caller asks [`ClosedSearch::next_step`] for a step and records the result with
//! [`ClosedSearch::record_trial`]. This search does not look for quotas or degradation. The tool calls it.

mod narrow;
mod report;
#[cfg(test)]
mod tests;
mod trial_spec;

use std::collections::VecDeque;
use std::time::Duration;

use crate::goal::SearchGoal;
use crate::limit_posterior::{Bracket, FailureCurves, WeightedEvidence};
use crate::observation::{TrialObservation, mean_latency};
use crate::report::SearchOutcome;
use crate::search_profile::Profile;
use crate::trial_spec::TrialPurpose;
use crate::trial_verdict::{FailureMode, TrialVerdict};

pub use report::{ClientLimit, ClosedReport, ClosedTrial, SaturationPoint};
pub use trial_spec::{ClosedCriteria, ClosedEvidence, ClosedStopRule, ClosedTrialSpec};

/// The next step of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClosedStep {
    /// Run this trial.
    RunTrial(ClosedTrialSpec),
    /// Send nothing for this time.
    Pause(Duration),
    /// The search has finished.
    Finished,
}

/// The target of trials: a session of the load engine, or a simulated target.
pub trait ClosedTarget {
    /// Keeps this many clients busy and returns the observation; lateness counts from the send. After each complete block, it asks
    /// [`ClosedTrialSpec::is_enough`] whether to stop. Then it waits for outstanding requests for [`ClosedTrialSpec::drain`] and closes
    /// them.
    fn carry_out(&mut self, offer: &ClosedTrialSpec) -> TrialObservation;

    /// Sends nothing for this time; returns `false` if the user interrupted the pause.
    fn rest(&mut self, time: Duration) -> bool;
}

/// Runs a search to its end.
pub fn search(search: &mut ClosedSearch, target: &mut impl ClosedTarget) {
    loop {
        match search.next_step() {
            ClosedStep::RunTrial(offer) => {
                let seen = target.carry_out(&offer);
                search.record_trial(&offer, seen);
            }
            ClosedStep::Pause(time) => {
                let goes_on = target.rest(time);
                search.record_pause(time, goes_on);
            }
            ClosedStep::Finished => return,
        }
    }
}

/// The current phase of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Baseline,
    Ramp,
    Narrow,
    Saturation,
    Finished,
}

/// A search in progress.
#[derive(Debug, Clone)]
pub struct ClosedSearch {
    goal: SearchGoal,
    curves: FailureCurves,
    profile: Profile,
    /// The most clients: `--max-clients`, or the number that the generator can run.
    most: u32,
    phase: Phase,
    agenda: VecDeque<ClosedStep>,
    outcome: Option<SearchOutcome>,
    elapsed: Duration,
    /// The mean response time of a single client, in seconds.
    service: f64,
    /// The range of clients in which the limit is searched.
    range: (f64, f64),
    trials: Vec<ClosedTrial>,
    witnesses: Vec<WeightedEvidence>,
    bracket: Option<Bracket>,
    /// The last failure mode.
    kind: Option<FailureMode>,
    /// The time when the current phase began.
    since: Duration,
    invalid: usize,
    turn: usize,
}

/// The duration of the baseline.
const BASELINE: Duration = Duration::from_secs(2);
/// The shortest and longest duration of a ramp step after settling.
const RAMP_STEP: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));
/// The pause in which the target clears its queue.
const REST: Duration = Duration::from_secs(1);
/// The wait for a target that is down: a crashed container restarts after some seconds.
const AWAY: Duration = Duration::from_secs(10);
/// The number of consecutive invalid trials that ends the search, with more clients than any valid trial had, and otherwise.
const INVALID: usize = 3;
const DISTURBED: usize = 12;
/// The first range of the search, as factors of the last good step and the first bad one.
const RANGE: (f64, f64) = (0.7, 1.3);
/// The time to wait for outstanding requests.
const DRAIN: Duration = Duration::from_millis(600);

impl ClosedSearch {
    /// Creates a search with at most this many clients that has run no trial.
    #[must_use]
    pub fn new(goal: SearchGoal, profile: Profile, most: u32) -> Self {
        Self {
            goal,
            curves: FailureCurves::over_client_count(&goal),
            profile,
            most: most.max(1),
            phase: Phase::Baseline,
            agenda: VecDeque::new(),
            outcome: None,
            elapsed: Duration::ZERO,
            service: 0.0,
            range: (0.0, 0.0),
            trials: Vec::new(),
            witnesses: Vec::new(),
            bracket: None,
            kind: None,
            since: Duration::ZERO,
            invalid: 0,
            turn: 0,
        }
    }

    /// Returns the next step. The result stays the same until the caller records that step.
    pub fn next_step(&mut self) -> ClosedStep {
        while self.agenda.is_empty() && self.phase != Phase::Finished {
            match self.phase {
                Phase::Baseline => self.offer(TrialPurpose::Baseline, 1, (BASELINE, BASELINE)),
                Phase::Ramp => self.plan_ramp_step(),
                Phase::Narrow => self.plan_next_limit_trial(),
                Phase::Saturation => self.plan_next_saturation_trial(),
                Phase::Finished => {}
            }
        }
        self.agenda.front().copied().unwrap_or(ClosedStep::Finished)
    }

    /// Records the result of a trial.
    pub fn record_trial(&mut self, offer: &ClosedTrialSpec, seen: TrialObservation) {
        self.agenda.pop_front();
        let began = self.elapsed;
        self.elapsed += seen.took;
        let (interrupted, invalid, away) =
            (seen.interrupted, seen.invalid_reason.is_some(), seen.target_is_down);
        self.note(offer, seen, began);
        self.invalid = if invalid { self.invalid + 1 } else { 0 };
        if interrupted {
            self.end(SearchOutcome::Interrupted);
        } else if away && self.was_away() {
            self.end(SearchOutcome::TargetDied);
        } else if away {
            self.wait_for_it(offer);
        } else if self.invalid >= self.most_invalid() {
            self.end(SearchOutcome::GeneratorLimited);
        } else if !invalid {
            self.learn(offer.purpose);
        }
    }

    /// Records a pause; `goes_on` is false if the user interrupted it.
    pub fn record_pause(&mut self, time: Duration, goes_on: bool) {
        self.agenda.pop_front();
        self.elapsed += time;
        if !goes_on {
            self.end(SearchOutcome::Interrupted);
        }
    }

    /// Returns the number of consecutive invalid trials that ends the search. If a valid trial kept at least as many clients
    /// busy, the generator is able to, and something disturbs single trials.
    fn most_invalid(&self) -> usize {
        let Some((last, before)) = self.trials.split_last() else { return INVALID };
        let valid = before.iter().filter(|trial| trial.trial_verdict != TrialVerdict::Invalid);
        let had_more = valid.map(|trial| trial.spec.clients).any(|clients| clients >= last.spec.clients);
        if had_more { DISTURBED } else { INVALID }
    }

    /// Returns whether the target was down in the trial before, too.
    fn was_away(&self) -> bool {
        self.trials.iter().rev().nth(1).is_some_and(|trial| trial.seen.target_is_down)
    }

    /// Schedules a pause and a repetition. A trial against a target that is down says nothing about its number of clients.
    fn wait_for_it(&mut self, offer: &ClosedTrialSpec) {
        self.agenda.clear();
        self.agenda.extend([ClosedStep::Pause(AWAY), ClosedStep::RunTrial(*offer)]);
        if let (Some(trial), Some(witness)) = (self.trials.last_mut(), self.witnesses.last_mut()) {
            trial.counts_for_limit = false;
            (witness.growth_and_errors_weight, witness.late_weight) = (0.0, 0.0);
        }
    }

    /// Adds a trial to the record.
    fn note(&mut self, offer: &ClosedTrialSpec, seen: TrialObservation, began: Duration) {
        let standard = offer.criteria;
        let finding = standard.evidence(offer.clients, &seen.blocks);
        let vote =
            if seen.invalid_reason.is_some() { TrialVerdict::Invalid } else { standard.judge(&finding) };
        let kind = (vote == TrialVerdict::Bad).then(|| standard.failure_mode(&finding));
        let counts = vote != TrialVerdict::Invalid
            && !matches!(offer.purpose, TrialPurpose::Baseline | TrialPurpose::BurstDrain);
        let weight = f64::from(u8::from(counts));
        let evidence = finding.evidence.clone();
        self.witnesses.push(WeightedEvidence {
            evidence,
            growth_and_errors_weight: weight,
            late_weight: weight,
            is_overloaded: vote == TrialVerdict::Bad,
        });
        let response = mean_latency(&seen.blocks[seen.blocks.len() / 3..]);
        self.trials.push(ClosedTrial {
            spec: *offer,
            began,
            seen,
            evidence: finding,
            mean_response_time: response,
            trial_verdict: vote,
            failure_mode: kind,
            counts_for_limit: counts,
        });
    }

    fn learn(&mut self, purpose: TrialPurpose) {
        match purpose {
            TrialPurpose::Baseline => self.learn_baseline(),
            TrialPurpose::Ramp => self.learn_ramp_step(),
            TrialPurpose::BurstDrain => {}
            _ => self.learn_trial(),
        }
    }

    fn learn_baseline(&mut self) {
        let Some(blocks) = self.trials.last().map(|trial| &trial.seen.blocks) else { return };
        match mean_latency(blocks) {
            None => self.end(SearchOutcome::GoalUnreachable),
            Some(service) => {
                self.service = service;
                self.enter(Phase::Ramp);
            }
        }
    }

    fn plan_ramp_step(&mut self) {
        let steps = self.trials.iter().filter(|trial| trial.counts_for_limit);
        let last = steps.map(|trial| trial.spec.clients).max().unwrap_or(0);
        if last >= self.most {
            return self.hold_most();
        }
        let clients = last.saturating_mul(2).clamp(1, self.most);
        self.offer(TrialPurpose::Ramp, clients, RAMP_STEP);
    }

    /// Holds the highest number of clients for longer.
    fn hold_most(&mut self) {
        let held = self.trials.iter().any(|trial| trial.spec.purpose == TrialPurpose::Confirm);
        if held {
            self.outcome = Some(SearchOutcome::NoLimitFound);
            return self.enter(Phase::Saturation);
        }
        self.offer(
            TrialPurpose::Confirm,
            self.most,
            (self.profile.confirm_duration, self.profile.confirm_duration),
        );
    }

    fn learn_ramp_step(&mut self) {
        let Some(last) = self.trials.last().filter(|last| last.trial_verdict == TrialVerdict::Bad) else {
            return;
        };
        let clients = last.spec.clients;
        if clients == 1 {
            // The target does not bear even one client without pauses, so there is no bracket to search.
            return self.end(SearchOutcome::Found);
        }
        self.break_at(clients);
    }

    /// Starts the search below the first number of clients that is too high.
    fn break_at(&mut self, bad: u32) {
        let good = self
            .trials
            .iter()
            .filter(|trial| trial.counts_for_limit && trial.trial_verdict != TrialVerdict::Bad);
        let good = good.map(|trial| trial.spec.clients).filter(|good| *good < bad).max().unwrap_or(1);
        self.range = (RANGE.0 * f64::from(good), RANGE.1 * f64::from(bad));
        self.enter(Phase::Narrow);
        self.after_bad();
    }

    fn learn_trial(&mut self) {
        let Some(last) = self.trials.last().filter(|last| last.trial_verdict == TrialVerdict::Bad) else {
            return;
        };
        match self.phase {
            Phase::Ramp => self.break_at(last.spec.clients),
            _ => self.after_bad(),
        }
    }

    fn after_bad(&mut self) {
        let before = self.kind;
        self.kind = before
            .filter(|kind| kind.is_quota_like())
            .or(self.trials.last().and_then(|last| last.failure_mode));
        let spent = self.kind.is_some_and(FailureMode::is_quota_like);
        if spent && !before.is_some_and(FailureMode::is_quota_like) {
            self.spend();
        }
        if !spent {
            self.agenda.push_back(ClosedStep::Pause(REST));
        }
    }

    /// Makes each later trial need an empty refilling allowance. Earlier trials do not count, because the target's allowance was
    /// not empty.
    fn spend(&mut self) {
        self.range.0 = 1.0_f64.min(self.range.0);
        self.trials.iter_mut().for_each(|trial| trial.counts_for_limit = false);
        for witness in &mut self.witnesses {
            (witness.growth_and_errors_weight, witness.late_weight) = (0.0, 0.0);
        }
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.turn, self.since) = (phase, 0, self.elapsed);
        self.agenda.clear();
    }

    fn end(&mut self, outcome: SearchOutcome) {
        self.outcome = Some(outcome);
        self.enter(Phase::Finished);
    }

    fn offer(&mut self, purpose: TrialPurpose, clients: u32, lasting: (Duration, Duration)) {
        let offer = self.trial(purpose, clients, lasting);
        self.agenda.push_back(ClosedStep::RunTrial(offer));
    }

    /// Returns a trial with this many clients. The shortest and longest duration count after settling.
    fn trial(
        &self,
        purpose: TrialPurpose,
        clients: u32,
        (least, most): (Duration, Duration),
    ) -> ClosedTrialSpec {
        let settle = self.settle(clients);
        let whole = matches!(
            purpose,
            TrialPurpose::Baseline | TrialPurpose::Confirm | TrialPurpose::LatencyBreakingRate
        );
        let aside = Duration::from_secs_f64(settle);
        ClosedTrialSpec {
            purpose,
            clients: clients.min(self.most),
            pause_after_failure: Duration::from_secs_f64(self.service),
            min_duration: least + aside,
            max_duration: most + aside,
            rule: if whole { ClosedStopRule::FullDurationUnlessBad } else { ClosedStopRule::Decided },
            criteria: ClosedCriteria { goal: self.goal, settle, service_time: self.service },
            drain: DRAIN,
        }
    }

    /// Returns the settling time in seconds: two rounds of all clients at the best rate so far, because all clients start at
    /// once.
    fn settle(&self, clients: u32) -> f64 {
        let rates = self.trials.iter().map(|trial| trial.evidence.evidence.goodput);
        let best = rates.fold(0.0, f64::max);
        let round = if best > 0.0 { f64::from(clients) / best } else { 0.0 };
        (2.0 * round.max(self.service)).clamp(0.3, 4.0)
    }
}
