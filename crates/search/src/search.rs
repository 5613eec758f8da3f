//! The search procedure: baseline, ramp, trials that narrow the brackets, a trial on a rested target, the knee, recovery.
//!
//! The caller asks for a step with [`RateSearch::next_step`] and records its result with [`RateSearch::record_trial`] or
//! [`RateSearch::record_pause`]. [`RateSearch::report`] gives the current result at any time. docs/find-search.md has the reason for each
//! step.
//!
//! - [`ramp`] doubles the rate, and [`narrow`] chooses rates after that.
//! - [`trial_consequences`] handles the consequences of a trial, and [`contradictions`] contradicting trials.
//! - [`repeats`] repeats a bad trial that the bracket contradicts.
//! - [`reopen`] continues a search that ended without an answer.
//! - [`target_down`] handles a target that is down, and [`unreachable_goal`] a goal that fails at every rate.
//! - [`recovery`] ends the search and makes the report.

mod contradictions;
mod narrow;
mod ramp;
mod recovery;
mod reopen;
mod repeats;
mod target_down;
mod trial_consequences;
mod unreachable_goal;

use std::collections::VecDeque;
use std::time::Duration;

use crate::goal::SearchGoal;
use crate::limit_posterior::{Bracket, FailureCurves, LimitKind, LimitPosterior, WeightedEvidence};
use crate::observation::TrialObservation;
use crate::report::{OverloadRecovery, QuotaExhaustion, RateTrial, SearchOutcome};
use crate::search_profile::Profile;
use crate::trial_spec::{StopRule, TrialPurpose, TrialSpec};
use crate::trial_verdict::{FailureMode, TrialCriteria, TrialVerdict};

/// The next step of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchStep {
    /// Run this trial.
    RunTrial(TrialSpec),
    /// Send nothing for this time.
    Pause(Duration),
    /// The search has finished.
    Finished,
}

/// The rates that a search may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateBounds {
    /// The first rate in requests per second.
    pub first_rate: f64,
    /// The value of `--max-rate`, in requests per second.
    pub max_rate: Option<f64>,
    /// The highest rate that the generator can send to this target, in requests per second.
    pub generator_max_rate: Option<f64>,
}

impl Default for RateBounds {
    fn default() -> Self {
        Self { first_rate: 20.0, max_rate: None, generator_max_rate: None }
    }
}

impl RateBounds {
    /// Returns the highest rate, and the outcome if the target bears it.
    fn ceiling(&self) -> (f64, SearchOutcome) {
        let [max_rate, generator] =
            [self.max_rate, self.generator_max_rate].map(|rate| rate.unwrap_or(f64::INFINITY));
        if generator < max_rate {
            (generator, SearchOutcome::GeneratorLimited)
        } else {
            (max_rate, SearchOutcome::NoLimitFound)
        }
    }
}

/// The current phase of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Baseline,
    Ramp,
    Narrow,
    Knee,
    Recovery,
    Finished,
}

/// The latency of the target at very low load.
#[derive(Debug, Clone, Copy)]
struct BaselineLatency {
    /// The mean response time in seconds.
    service: f64,
    /// The slowest response in seconds.
    slowest: f64,
}

/// The properties of the target that the search has found.
#[derive(Debug, Clone)]
struct TargetTraits {
    /// The first failure mode.
    kind: Option<FailureMode>,
    /// True if the target has an allowance that time refills. Each trial must then find it empty.
    spent: bool,
    /// True if the target recovers from overload only during a pause.
    needs_silence: bool,
    /// The factor of extra load that empties the allowance.
    above: f64,
    depletion: Option<QuotaExhaustion>,
    recovery: OverloadRecovery,
}

impl TargetTraits {
    const NONE: Self = Self {
        kind: None,
        spent: false,
        needs_silence: false,
        above: 1.0,
        depletion: None,
        recovery: OverloadRecovery { time_to_recover: None, holds_after_overload: None, queue_seconds: None },
    };
}

/// A search in progress.
#[derive(Debug, Clone)]
pub struct RateSearch {
    goal: SearchGoal,
    curves: FailureCurves,
    profile: Profile,
    bounds: RateBounds,
    phase: Phase,
    agenda: VecDeque<SearchStep>,
    outcome: Option<SearchOutcome>,
    elapsed: Duration,
    calm: Option<BaselineLatency>,
    /// The range of rates in which the cliff is searched.
    range: (f64, f64),
    trials: Vec<RateTrial>,
    witnesses: Vec<WeightedEvidence>,
    cliff: Option<Bracket>,
    knee: Option<Bracket>,
    manners: TargetTraits,
    /// True if nothing broke up to the highest rate: then there is no cliff and perhaps a knee.
    unbroken: bool,
    /// The time when the search for the cliff ended.
    cliff_by: Option<Duration>,
    /// True if a trial on the rested target has run.
    looked_cold: bool,
    /// The rates of bad trials that were repeated because the bracket contradicts them.
    repeated: Vec<f64>,
    invalid: usize,
    /// The number of steps in the current phase. Alternating choices use it.
    turn: usize,
}

impl RateSearch {
    /// Creates a search that has run no trial.
    #[must_use]
    pub fn new(goal: SearchGoal, profile: Profile, bounds: RateBounds) -> Self {
        Self {
            curves: FailureCurves::new(&goal),
            goal,
            profile,
            bounds,
            phase: Phase::Baseline,
            agenda: VecDeque::new(),
            outcome: None,
            elapsed: Duration::ZERO,
            calm: None,
            range: (0.0, 0.0),
            trials: Vec::new(),
            witnesses: Vec::new(),
            cliff: None,
            knee: None,
            manners: TargetTraits::NONE,
            unbroken: false,
            cliff_by: None,
            looked_cold: false,
            repeated: Vec::new(),
            invalid: 0,
            turn: 0,
        }
    }

    /// Returns the next step. The result stays the same until the caller records that step.
    pub fn next_step(&mut self) -> SearchStep {
        while self.agenda.is_empty() && self.phase != Phase::Finished {
            self.plan();
        }
        self.agenda.front().copied().unwrap_or(SearchStep::Finished)
    }

    /// Records the result of a trial.
    pub fn record_trial(&mut self, offer: &TrialSpec, mut seen: TrialObservation) {
        self.agenda.pop_front();
        seen.target_is_down |= self.is_down_behind_proxy(offer, &seen);
        let began = self.elapsed;
        self.elapsed += seen.took;
        let (interrupted, invalid, away) =
            (seen.interrupted, seen.invalid_reason.is_some(), seen.target_is_down);
        self.note(offer, seen, began);
        if interrupted {
            self.end(SearchOutcome::Interrupted);
        } else if away {
            self.learn_target_down();
        } else if invalid {
            self.count_invalid_trial();
        } else {
            // Trials that only empty a bucket or wait for recovery do not reset the count of invalid trials.
            if counts(offer.purpose) {
                self.invalid = 0;
            }
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

    /// Sets the total time for the cliff and the additional time for the knee. A search that ended without an answer goes on.
    pub fn set_budgets(&mut self, cliff: Duration, knee: Duration) {
        (self.profile.cliff_budget, self.profile.knee_budget) = (cliff, knee);
        self.reopen_if_unanswered();
    }

    /// Returns the last trial.
    #[must_use]
    pub fn last_trial(&self) -> Option<&RateTrial> {
        self.trials.last()
    }

    fn plan(&mut self) {
        match self.phase {
            Phase::Baseline => self.plan_baseline(),
            Phase::Ramp => self.plan_ramp_step(),
            Phase::Narrow => self.plan_cliff(),
            Phase::Knee => self.plan_knee(),
            Phase::Recovery => self.plan_recovery(),
            Phase::Finished => {}
        }
    }

    fn learn(&mut self, purpose: TrialPurpose) {
        match purpose {
            TrialPurpose::Baseline => self.learn_baseline(),
            TrialPurpose::Ramp => self.learn_ramp_step(),
            TrialPurpose::Confirm if self.phase == Phase::Ramp => self.learn_long_trial(),
            TrialPurpose::NarrowBracket
            | TrialPurpose::Confirm
            | TrialPurpose::LatencyBreakingRate
            | TrialPurpose::AboveBracketAfterIdle => {
                self.forgive_repeated();
                self.learn_trial();
            }
            TrialPurpose::RepeatNow => self.learn_repeat(),
            TrialPurpose::RepeatAfterIdle => self.learn_retest(),
            TrialPurpose::RecoveryProbe => self.learn_recovery_probe(),
            TrialPurpose::BurstDrain => {}
            TrialPurpose::Recovery => self.learn_recovery(),
        }
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.turn) = (phase, 0);
        self.agenda.clear();
    }

    fn end(&mut self, outcome: SearchOutcome) {
        self.outcome = Some(outcome);
        self.enter(Phase::Finished);
    }

    /// Adds a trial to the record.
    fn note(&mut self, offer: &TrialSpec, seen: TrialObservation, began: Duration) {
        let standard = self.standard();
        let evidence = crate::evidence::TrialEvidence::of(offer.rate, &seen.blocks, &standard);
        let vote =
            if seen.invalid_reason.is_some() { TrialVerdict::Invalid } else { standard.judge(&evidence) };
        let kind = (vote == TrialVerdict::Bad).then(|| standard.failure_mode(&evidence));
        let weight: f64 = f64::from(u8::from(vote != TrialVerdict::Invalid && counts(offer.purpose)));
        // A trial that was stopped before the end of a limiter's time window may have seen an untypical part of it.
        let short = self.manners.spent && seen.took < offer.min_duration;
        let weight = if short || seen.generator_delay_description.is_some() { 0.2 * weight } else { weight };
        let grew = kind.is_some_and(|kind| kind != FailureMode::Rejecting)
            && evidence.in_flight_growth_share() > 0.0;
        let late_weight = if grew || evidence.seconds_after_settling < LATE { 0.0 } else { weight };
        self.witnesses.push(WeightedEvidence {
            evidence: evidence.clone(),
            growth_and_errors_weight: weight,
            late_weight,
            is_overloaded: grew,
        });
        self.trials.push(RateTrial {
            spec: *offer,
            began,
            seen,
            evidence,
            verdict: vote,
            failure_mode: kind,
            weight,
        });
    }

    /// Changes the weight of a trial for the cliff.
    fn reweigh(&mut self, index: usize, weight: f64) {
        self.trials[index].weight = weight;
        self.witnesses[index].growth_and_errors_weight = weight;
        self.witnesses[index].late_weight *= weight;
    }

    fn believe(&mut self) {
        let service = self.calm.map_or(0.0, |calm| calm.service);
        let belief = LimitPosterior::new(&self.curves, service, &self.witnesses);
        self.cliff =
            Some(self.crash_bracket().unwrap_or_else(|| belief.bracket(LimitKind::Cliff, self.range)));
        self.knee = self.goal.latency_goal.map(|_| belief.bracket(LimitKind::Knee, self.range));
    }

    fn standard(&self) -> TrialCriteria {
        let (service, slowest) = self.calm.map_or((0.0, 0.0), |calm| (calm.service, calm.slowest));
        // An empty allowance is also used up for the limiter's current window, and windows of one second are common.
        let least = if self.manners.spent { 1.0 } else { 0.3 };
        let settle = (4.0 * service).clamp(least, 2.0);
        TrialCriteria {
            goal: self.goal,
            growth_tolerance: self.profile.growth_tolerance,
            settle,
            min_settled_seconds_for_good: 1.0,
            service_time: service,
            baseline_slowest: slowest,
        }
    }

    /// Returns a trial at a rate that stops as soon as its verdict is clear.
    fn trial(&self, purpose: TrialPurpose, rate: f64, most: Duration) -> TrialSpec {
        let rate = rate.min(self.bounds.ceiling().0);
        let little = rate * self.calm.map_or(0.0, |calm| calm.service);
        TrialSpec {
            purpose,
            rate,
            min_duration: Duration::from_secs(1).min(most),
            max_duration: most,
            rule: StopRule::Decided(self.standard()),
            in_flight_cap: 4.0 * little + DAMAGE * rate + 30.0,
            drain: DRAIN,
        }
    }
}

/// The shortest trial, in seconds, that says anything about lateness. A queue needs this time to grow.
const LATE: f64 = 2.5;
/// The allowed extra requests in flight, as seconds of the rate.
const DAMAGE: f64 = 0.25;
/// The time to wait for outstanding requests.
const DRAIN: Duration = Duration::from_millis(600);

/// Returns whether trials of this purpose are evidence about their rate.
fn counts(purpose: TrialPurpose) -> bool {
    !matches!(
        purpose,
        TrialPurpose::Baseline
            | TrialPurpose::BurstDrain
            | TrialPurpose::RecoveryProbe
            | TrialPurpose::Recovery
    )
}
