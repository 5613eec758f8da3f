//! The procedure: baseline, ramp, trials that narrow the brackets, a look at the rested target, the knee, recovery.
//!
//! Says what it wants next ([`RateSearch::next_step`]) and is told what came of it ([`RateSearch::record_trial`], [`RateSearch::record_pause`]); between the
//! two it does nothing, and [`RateSearch::report`] says at any moment what is known. What was learnt and why each step is there stands
//! in docs/find-search.md. [`ramp`] begins, [`narrow`] decides about rates, [`told`] what follows of a trial, [`doubts`]
//! about trials that contradict each other, [`away`] about a target that has gone, [`unkept`] whether there is a limit at all, [`recovery`] ends and reports.

mod away;
mod doubts;
mod narrow;
mod ramp;
mod recovery;
mod told;
mod unkept;

use std::collections::VecDeque;
use std::time::Duration;

use crate::belief::{Bracket, FailureCurves, LimitKind, LimitPosterior, WeightedEvidence};
use crate::goal::SearchGoal;
use crate::offer::{StopRule, TrialPurpose, TrialSpec};
use crate::profile::Profile;
use crate::report::{OverloadRecovery, QuotaExhaustion, RateTrial, SearchOutcome};
use crate::seen::TrialObservation;
use crate::vote::{FailureMode, TrialCriteria, TrialVerdict};

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchStep {
    /// Carry this out.
    RunTrial(TrialSpec),
    /// Send nothing.
    Pause(Duration),
    /// Nothing: the search is over.
    Finished,
}

/// What a search may offer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateBounds {
    /// The first rate, requests a second.
    pub first: f64,
    /// `--max-rate`, requests a second.
    pub max_rate: Option<f64>,
    /// What the generator was found to be able to offer to this target, requests a second.
    pub generator: Option<f64>,
}

impl Default for RateBounds {
    fn default() -> Self {
        Self { first: 20.0, max_rate: None, generator: None }
    }
}

impl RateBounds {
    /// The highest rate, and whose limit it is.
    fn ceiling(&self) -> (f64, SearchOutcome) {
        let [max_rate, generator] = [self.max_rate, self.generator].map(|rate| rate.unwrap_or(f64::INFINITY));
        if generator < max_rate {
            (generator, SearchOutcome::GeneratorLimited)
        } else {
            (max_rate, SearchOutcome::NoLimitFound)
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
    Recovery,
    Over,
}

/// The target when it has nothing to do.
#[derive(Debug, Clone, Copy)]
struct BaselineLatency {
    /// Mean response time, in seconds.
    service: f64,
    /// The slowest answer, in seconds.
    slowest: f64,
}

/// What was found out about the target's manners.
#[derive(Debug, Clone)]
struct TargetTraits {
    /// How it failed first.
    kind: Option<FailureMode>,
    /// It has something that time gives back: every trial is to find that spent.
    spent: bool,
    /// After overload it is itself again only when nothing was sent for a while.
    needs_silence: bool,
    /// How much more than usual must be offered to spend it.
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
        recovery: OverloadRecovery { calm: None, holds: None },
    };
}

/// A search under way.
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
    /// Where the cliff is looked for.
    range: (f64, f64),
    trials: Vec<RateTrial>,
    witnesses: Vec<WeightedEvidence>,
    cliff: Option<Bracket>,
    knee: Option<Bracket>,
    manners: TargetTraits,
    /// Nothing broke up to the highest rate: there is no cliff, and a knee at most.
    unbroken: bool,
    /// When the search for the cliff ended.
    cliff_by: Option<Duration>,
    /// Whether the rested target was looked at.
    looked_cold: bool,
    invalid: usize,
    /// Steps of the present phase: what alternates does so by it.
    turn: usize,
}

impl RateSearch {
    /// A search that has not begun.
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
            invalid: 0,
            turn: 0,
        }
    }

    /// What is to be done next; the same again until it was told what came of it.
    pub fn next_step(&mut self) -> SearchStep {
        while self.agenda.is_empty() && self.phase != Phase::Over {
            self.plan();
        }
        self.agenda.front().copied().unwrap_or(SearchStep::Finished)
    }

    /// An offer was carried out.
    pub fn record_trial(&mut self, offer: &TrialSpec, mut seen: TrialObservation) {
        self.agenda.pop_front();
        seen.target_is_down |= self.is_unanswered(offer, &seen);
        let began = self.elapsed;
        self.elapsed += seen.took;
        let (interrupted, invalid, away) = (seen.interrupted, seen.invalid.is_some(), seen.target_is_down);
        self.note(offer, seen, began);
        if interrupted {
            self.end(SearchOutcome::Interrupted);
        } else if away {
            self.learn_target_down();
        } else if invalid {
            self.doubt_generator();
        } else {
            // What spends a bucket, or waits for it, may be believed and the trial after it never.
            if counts(offer.purpose) {
                self.invalid = 0;
            }
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

    /// From now on it has so much time for the cliff, all together, and so much for the knee beside it.
    pub fn set_budgets(&mut self, cliff: Duration, knee: Duration) {
        (self.profile.budget, self.profile.knee_budget) = (cliff, knee);
    }

    /// What was carried out last.
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
            Phase::Over => {}
        }
    }

    fn learn(&mut self, purpose: TrialPurpose) {
        match purpose {
            TrialPurpose::Baseline => self.learn_baseline(),
            TrialPurpose::Ramp => self.learn_ramp_step(),
            TrialPurpose::Confirm if self.phase == Phase::Ramp => self.learn_held(),
            TrialPurpose::NarrowBracket
            | TrialPurpose::Confirm
            | TrialPurpose::LatencyBreakingRate
            | TrialPurpose::AfterIdle => {
                self.learn_trial();
            }
            TrialPurpose::RepeatNow => self.learn_repeat(),
            TrialPurpose::RepeatAfterIdle => self.learn_retest(),
            TrialPurpose::RecoveryProbe => self.learn_calm(),
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
        self.enter(Phase::Over);
    }

    /// Enters a trial in the books.
    fn note(&mut self, offer: &TrialSpec, seen: TrialObservation, began: Duration) {
        let standard = self.standard();
        let evidence = crate::evidence::TrialEvidence::of(offer.rate, &seen.blocks, &standard);
        let vote = if seen.invalid.is_some() { TrialVerdict::Invalid } else { standard.judge(&evidence) };
        let kind = (vote == TrialVerdict::Bad).then(|| standard.failure_mode(&evidence));
        let weight: f64 = f64::from(u8::from(vote != TrialVerdict::Invalid && counts(offer.purpose)));
        // Stopped before a limiter's window was over, it may have seen the wrong part of one.
        let short = self.manners.spent && seen.took < offer.least;
        let weight = if short { 0.2 * weight } else { weight };
        let grew = kind.is_some_and(|kind| kind != FailureMode::Rejecting) && evidence.growth() > 0.0;
        let late_weight = if grew || evidence.seconds < LATE { 0.0 } else { weight };
        self.witnesses.push(WeightedEvidence { evidence: evidence.clone(), weight, late_weight, busy: grew });
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

    /// How much a trial counts for the cliff from now on.
    fn reweigh(&mut self, index: usize, weight: f64) {
        self.trials[index].weight = weight;
        self.witnesses[index].weight = weight;
        self.witnesses[index].late_weight *= weight;
    }

    fn believe(&mut self) {
        let service = self.calm.map_or(0.0, |calm| calm.service);
        let belief = LimitPosterior::new(&self.curves, service, &self.witnesses);
        self.cliff =
            Some(self.bracket_of_deaths().unwrap_or_else(|| belief.bracket(LimitKind::Cliff, self.range)));
        self.knee = self.goal.late.map(|_| belief.bracket(LimitKind::Knee, self.range));
    }

    fn standard(&self) -> TrialCriteria {
        let (service, slowest) = self.calm.map_or((0.0, 0.0), |calm| (calm.service, calm.slowest));
        // What was spent is spent of a limiter's present window, too, and windows of a second are common.
        let least = if self.manners.spent { 1.0 } else { 0.3 };
        let settle = (4.0 * service).clamp(least, 2.0);
        TrialCriteria {
            goal: self.goal,
            tolerance: self.profile.tolerance,
            settle,
            least: 1.0,
            service,
            slowest,
        }
    }

    /// A trial of a rate, which ends when it is decided.
    fn trial(&self, purpose: TrialPurpose, rate: f64, most: Duration) -> TrialSpec {
        let rate = rate.min(self.bounds.ceiling().0);
        let little = rate * self.calm.map_or(0.0, |calm| calm.service);
        TrialSpec {
            purpose,
            rate,
            least: Duration::from_secs(1).min(most),
            most,
            rule: StopRule::Decided(self.standard()),
            most_in_flight: 4.0 * little + DAMAGE * rate + 30.0,
            drain: DRAIN,
        }
    }
}

/// A trial that is shorter, in seconds, says nothing of lateness: no queue has had the time.
const LATE: f64 = 2.5;
/// In flight beyond what is usual, as seconds of the rate.
const DAMAGE: f64 = 0.25;
/// How long what is outstanding is waited for.
const DRAIN: Duration = Duration::from_millis(600);

/// Whether a trial says something about the rate that was offered.
fn counts(purpose: TrialPurpose) -> bool {
    !matches!(
        purpose,
        TrialPurpose::Baseline
            | TrialPurpose::BurstDrain
            | TrialPurpose::RecoveryProbe
            | TrialPurpose::Recovery
    )
}
