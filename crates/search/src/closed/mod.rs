//! Concurrency in place of a rate: how many clients, each of which waits for its answer before it asks again, a target bears.
//!
//! Two figures are looked for. The *limit* is the greatest number of clients at which the goal holds: few enough errors, few enough
//! answers later than the bound *from the send*, as nothing is due while a client waits. The *saturation* is the rate beyond which
//! more clients get no more, and the number of clients that reach it. A closed loop slows down with its target, so neither says what
//! users who do not wait for each other would see; that is [`crate::search`]'s. Like that, without sockets, threads and clock:
//! [`ClosedSearch::next_step`] says what is wanted, [`ClosedSearch::record_trial`] is told what came of it. What is used up and what degrades is not looked
//! for here. Called by the tool.

mod narrow;
mod offer;
mod report;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use crate::belief::{Bracket, FailureCurves, WeightedEvidence};
use crate::goal::SearchGoal;
use crate::offer::TrialPurpose;
use crate::profile::Profile;
use crate::report::SearchOutcome;
use crate::seen::{TrialObservation, mean_latency};
use crate::vote::{FailureMode, TrialVerdict};

pub use offer::{ClosedCriteria, ClosedEvidence, ClosedStopRule, ClosedTrialSpec};
pub use report::{ClientLimit, ClosedReport, ClosedTrial, SaturationPoint};

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClosedStep {
    /// Carry this out.
    RunTrial(ClosedTrialSpec),
    /// Send nothing.
    Pause(Duration),
    /// Nothing: the search is over.
    Finished,
}

/// What carries offers out: a session of the load engine, or a simulated target.
pub trait ClosedTarget {
    /// Keeps so many clients busy and says what was seen of it; lateness is from the send. Whenever a block of it is complete,
    /// [`ClosedTrialSpec::is_enough`] is asked whether to stop; then what is outstanding is waited for as long as [`ClosedTrialSpec::drain`] says, and closed.
    fn carry_out(&mut self, offer: &ClosedTrialSpec) -> TrialObservation;

    /// Sends nothing for that long; `false` if somebody wants the search to end.
    fn rest(&mut self, time: Duration) -> bool;
}

/// Searches to the end.
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

/// What it is about at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Baseline,
    Ramp,
    Narrow,
    Knee,
    Over,
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct ClosedSearch {
    goal: SearchGoal,
    curves: FailureCurves,
    profile: Profile,
    /// `--max-clients`, or what the generator can keep.
    most: u32,
    phase: Phase,
    agenda: VecDeque<ClosedStep>,
    outcome: Option<SearchOutcome>,
    elapsed: Duration,
    /// Mean response time of a single client, in seconds.
    service: f64,
    /// Where the limit is looked for, in clients.
    range: (f64, f64),
    trials: Vec<ClosedTrial>,
    witnesses: Vec<WeightedEvidence>,
    bracket: Option<Bracket>,
    /// How it failed last.
    kind: Option<FailureMode>,
    /// When the present phase began.
    since: Duration,
    invalid: usize,
    turn: usize,
}

/// Length of the baseline.
const BASELINE: Duration = Duration::from_secs(2);
/// A step of the ramp, once it has settled.
const RAMP_STEP: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));
/// What is left of a queue is worked off in it.
const REST: Duration = Duration::from_secs(1);
/// Somebody who is away is waited for: a container that died is started anew after some seconds.
const AWAY: Duration = Duration::from_secs(10);
/// Trials in a row that cannot be believed.
const INVALID: usize = 3;
/// Where the limit is looked for at first, from the last good step and the first bad one.
const RANGE: (f64, f64) = (0.7, 1.3);
/// How long what is outstanding is waited for.
const DRAIN: Duration = Duration::from_millis(600);

impl ClosedSearch {
    /// A search that has not begun, with at most so many clients.
    #[must_use]
    pub fn new(goal: SearchGoal, profile: Profile, most: u32) -> Self {
        Self {
            goal,
            curves: FailureCurves::closed(&goal),
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

    /// What is to be done next; the same again until it was told what came of it.
    pub fn next_step(&mut self) -> ClosedStep {
        while self.agenda.is_empty() && self.phase != Phase::Over {
            match self.phase {
                Phase::Baseline => self.offer(TrialPurpose::Baseline, 1, (BASELINE, BASELINE)),
                Phase::Ramp => self.plan_ramp_step(),
                Phase::Narrow => self.plan_limit(),
                Phase::Knee => self.plan_knee(),
                Phase::Over => {}
            }
        }
        self.agenda.front().copied().unwrap_or(ClosedStep::Finished)
    }

    /// An offer was carried out.
    pub fn record_trial(&mut self, offer: &ClosedTrialSpec, seen: TrialObservation) {
        self.agenda.pop_front();
        let began = self.elapsed;
        self.elapsed += seen.took;
        let (interrupted, invalid, away) = (seen.interrupted, seen.invalid.is_some(), seen.target_is_down);
        self.note(offer, seen, began);
        self.invalid = if invalid { self.invalid + 1 } else { 0 };
        if interrupted {
            self.end(SearchOutcome::Interrupted);
        } else if away && self.was_away() {
            self.end(SearchOutcome::TargetDied);
        } else if away {
            self.wait_for_it(offer);
        } else if self.invalid >= INVALID {
            self.end(SearchOutcome::GeneratorLimited);
        } else if !invalid {
            self.learn(offer.purpose);
        }
    }

    /// Nothing was sent for that long; `goes_on` is false if somebody wants the search to end.
    pub fn record_pause(&mut self, time: Duration, goes_on: bool) {
        self.agenda.pop_front();
        self.elapsed += time;
        if !goes_on {
            self.end(SearchOutcome::Interrupted);
        }
    }

    /// Whether nobody was there in the trial before, either.
    fn was_away(&self) -> bool {
        self.trials.iter().rev().nth(1).is_some_and(|trial| trial.seen.target_is_down)
    }

    /// What nobody was there to answer is no word on a number of clients: it is asked again.
    fn wait_for_it(&mut self, offer: &ClosedTrialSpec) {
        self.agenda.clear();
        self.agenda.extend([ClosedStep::Pause(AWAY), ClosedStep::RunTrial(*offer)]);
        if let (Some(trial), Some(witness)) = (self.trials.last_mut(), self.witnesses.last_mut()) {
            trial.counts = false;
            (witness.weight, witness.late_weight) = (0.0, 0.0);
        }
    }

    /// Enters a trial in the books.
    fn note(&mut self, offer: &ClosedTrialSpec, seen: TrialObservation, began: Duration) {
        let standard = offer.standard;
        let finding = standard.evidence(offer.clients, &seen.blocks);
        let vote = if seen.invalid.is_some() { TrialVerdict::Invalid } else { standard.judge(&finding) };
        let kind = (vote == TrialVerdict::Bad).then(|| standard.failure_mode(&finding));
        let counts = vote != TrialVerdict::Invalid
            && !matches!(offer.purpose, TrialPurpose::Baseline | TrialPurpose::BurstDrain);
        let weight = f64::from(u8::from(counts));
        let evidence = finding.evidence.clone();
        self.witnesses.push(WeightedEvidence {
            evidence,
            weight,
            late_weight: weight,
            busy: vote == TrialVerdict::Bad,
        });
        let response = mean_latency(&seen.blocks[seen.blocks.len() / 3..]);
        self.trials.push(ClosedTrial {
            spec: *offer,
            began,
            seen,
            finding,
            response,
            trial_verdict: vote,
            failure_mode: kind,
            counts,
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
            None => self.end(SearchOutcome::UnstableBaseline),
            Some(service) => {
                self.service = service;
                self.enter(Phase::Ramp);
            }
        }
    }

    fn plan_ramp_step(&mut self) {
        let steps = self.trials.iter().filter(|trial| trial.counts);
        let last = steps.map(|trial| trial.spec.clients).max().unwrap_or(0);
        if last >= self.most {
            return self.hold_most();
        }
        let clients = last.saturating_mul(2).clamp(1, self.most);
        self.offer(TrialPurpose::Ramp, clients, RAMP_STEP);
    }

    /// As many clients as there may be: they are kept for longer.
    fn hold_most(&mut self) {
        let held = self.trials.iter().any(|trial| trial.spec.purpose == TrialPurpose::Confirm);
        if held {
            self.outcome = Some(SearchOutcome::NoLimitFound);
            return self.enter(Phase::Knee);
        }
        self.offer(TrialPurpose::Confirm, self.most, (self.profile.confirm, self.profile.confirm));
    }

    fn learn_ramp_step(&mut self) {
        let Some(last) = self.trials.last().filter(|last| last.trial_verdict == TrialVerdict::Bad) else {
            return;
        };
        let clients = last.spec.clients;
        if clients == 1 {
            // Not even one client that asks as fast as it is answered: then there is no bracket to look for.
            return self.end(SearchOutcome::Found);
        }
        self.break_at(clients);
    }

    /// The first number of clients that is too much.
    fn break_at(&mut self, bad: u32) {
        let good =
            self.trials.iter().filter(|trial| trial.counts && trial.trial_verdict != TrialVerdict::Bad);
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

    /// From now on trials find spent what time gives back. Those before did not.
    fn spend(&mut self) {
        self.range.0 = 1.0_f64.min(self.range.0);
        self.trials.iter_mut().for_each(|trial| trial.counts = false);
        for witness in &mut self.witnesses {
            (witness.weight, witness.late_weight) = (0.0, 0.0);
        }
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.turn, self.since) = (phase, 0, self.elapsed);
        self.agenda.clear();
    }

    fn end(&mut self, outcome: SearchOutcome) {
        self.outcome = Some(outcome);
        self.enter(Phase::Over);
    }

    fn offer(&mut self, purpose: TrialPurpose, clients: u32, lasting: (Duration, Duration)) {
        let offer = self.trial(purpose, clients, lasting);
        self.agenda.push_back(ClosedStep::RunTrial(offer));
    }

    /// So many clients, from the least to the most of this time after everything has settled.
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
            pause: Duration::from_secs_f64(self.service),
            least: least + aside,
            most: most + aside,
            rule: if whole { ClosedStopRule::Whole } else { ClosedStopRule::Decided },
            standard: ClosedCriteria { goal: self.goal, settle, service: self.service },
            drain: DRAIN,
        }
    }

    /// All clients begin at once: two rounds of them, at the best rate that was seen, are not the rule.
    fn settle(&self, clients: u32) -> f64 {
        let rates = self.trials.iter().map(|trial| trial.finding.evidence.goodput);
        let best = rates.fold(0.0, f64::max);
        let round = if best > 0.0 { f64::from(clients) / best } else { 0.0 };
        (2.0 * round.max(self.service)).clamp(0.3, 4.0)
    }
}
