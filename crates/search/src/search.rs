//! The procedure: baseline, ladder, trials that narrow the brackets, a look at the rested target, the knee, recovery.
//!
//! Says what it wants next ([`Search::next_step`]) and is told what came of it ([`Search::saw`], [`Search::rested`]); between the
//! two it does nothing, and [`Search::report`] says at any moment what is known. What was learnt and why each step is there stands
//! in docs/find-search.md. [`ladder`] begins, [`narrow`] decides about rates, [`told`] what follows of a trial, [`doubts`]
//! about trials that contradict each other, [`away`] about a target that has gone, [`unkept`] whether there is a limit at all, [`recovery`] ends and reports.

mod away;
mod doubts;
mod ladder;
mod narrow;
mod recovery;
mod told;
mod unkept;

use std::collections::VecDeque;
use std::time::Duration;

use crate::belief::{Belief, Bracket, Curves, Of, Witness};
use crate::goal::Goal;
use crate::offer::{Offer, Purpose, Rule};
use crate::profile::Profile;
use crate::report::{Depletion, Outcome, Recovery, Trial};
use crate::seen::Seen;
use crate::vote::{Kind, Standard, Vote};

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Carry this out.
    Offer(Offer),
    /// Send nothing.
    Rest(Duration),
    /// Nothing: the search is over.
    Over,
}

/// What a search may offer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// The first rate, requests a second.
    pub first: f64,
    /// `--max-rate`, requests a second.
    pub max_rate: Option<f64>,
    /// What the generator was found to be able to offer to this target, requests a second.
    pub generator: Option<f64>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { first: 20.0, max_rate: None, generator: None }
    }
}

impl Bounds {
    /// The highest rate, and whose limit it is.
    fn ceiling(&self) -> (f64, Outcome) {
        let [max_rate, generator] = [self.max_rate, self.generator].map(|rate| rate.unwrap_or(f64::INFINITY));
        if generator < max_rate {
            (generator, Outcome::GeneratorLimited)
        } else {
            (max_rate, Outcome::Capped)
        }
    }
}

/// What it is about at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Baseline,
    Ladder,
    Narrow,
    Knee,
    Recovery,
    Over,
}

/// The target when it has nothing to do.
#[derive(Debug, Clone, Copy)]
struct Calm {
    /// Mean response time, in seconds.
    service: f64,
    /// The slowest answer, in seconds.
    slowest: f64,
}

/// What was found out about the target's manners.
#[derive(Debug, Clone)]
struct Manners {
    /// How it failed first.
    kind: Option<Kind>,
    /// It has something that time gives back: every trial is to find that spent.
    spent: bool,
    /// After overload it is itself again only when nothing was sent for a while.
    needs_silence: bool,
    /// How much more than usual must be offered to spend it.
    above: f64,
    depletion: Option<Depletion>,
    recovery: Recovery,
}

impl Manners {
    const NONE: Self = Self {
        kind: None,
        spent: false,
        needs_silence: false,
        above: 1.0,
        depletion: None,
        recovery: Recovery { calm: None, holds: None },
    };
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct Search {
    goal: Goal,
    curves: Curves,
    profile: Profile,
    bounds: Bounds,
    phase: Phase,
    agenda: VecDeque<Step>,
    outcome: Option<Outcome>,
    elapsed: Duration,
    calm: Option<Calm>,
    /// Where the cliff is looked for.
    range: (f64, f64),
    trials: Vec<Trial>,
    witnesses: Vec<Witness>,
    cliff: Option<Bracket>,
    knee: Option<Bracket>,
    manners: Manners,
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

impl Search {
    /// A search that has not begun.
    #[must_use]
    pub fn new(goal: Goal, profile: Profile, bounds: Bounds) -> Self {
        Self {
            curves: Curves::new(&goal),
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
            manners: Manners::NONE,
            unbroken: false,
            cliff_by: None,
            looked_cold: false,
            invalid: 0,
            turn: 0,
        }
    }

    /// What is to be done next; the same again until it was told what came of it.
    pub fn next_step(&mut self) -> Step {
        while self.agenda.is_empty() && self.phase != Phase::Over {
            self.plan();
        }
        self.agenda.front().copied().unwrap_or(Step::Over)
    }

    /// An offer was carried out.
    pub fn saw(&mut self, offer: &Offer, mut seen: Seen) {
        self.agenda.pop_front();
        seen.away |= self.is_mute(offer, &seen);
        let began = self.elapsed;
        self.elapsed += seen.took;
        let (interrupted, invalid, away) = (seen.interrupted, seen.invalid.is_some(), seen.away);
        self.note(offer, seen, began);
        if interrupted {
            self.end(Outcome::Interrupted);
        } else if away {
            self.learn_away();
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
    pub fn rested(&mut self, time: Duration, goes_on: bool) {
        self.agenda.pop_front();
        self.elapsed += time;
        if !goes_on {
            self.end(Outcome::Interrupted);
        }
    }

    /// From now on it has so much time for the cliff, all together, and so much for the knee beside it.
    pub fn grant(&mut self, cliff: Duration, knee: Duration) {
        (self.profile.budget, self.profile.knee_budget) = (cliff, knee);
    }

    /// What was carried out last.
    #[must_use]
    pub fn last(&self) -> Option<&Trial> {
        self.trials.last()
    }

    fn plan(&mut self) {
        match self.phase {
            Phase::Baseline => self.plan_baseline(),
            Phase::Ladder => self.plan_rung(),
            Phase::Narrow => self.plan_cliff(),
            Phase::Knee => self.plan_knee(),
            Phase::Recovery => self.plan_recovery(),
            Phase::Over => {}
        }
    }

    fn learn(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Baseline => self.learn_baseline(),
            Purpose::Ladder => self.learn_rung(),
            Purpose::Confirm if self.phase == Phase::Ladder => self.learn_held(),
            Purpose::Narrow | Purpose::Confirm | Purpose::Knee | Purpose::Cold => self.learn_trial(),
            Purpose::Again => self.learn_again(),
            Purpose::Retest => self.learn_retest(),
            Purpose::Probe => self.learn_calm(),
            Purpose::Arm => {}
            Purpose::Recovery => self.learn_recovery(),
        }
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.turn) = (phase, 0);
        self.agenda.clear();
    }

    fn end(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
        self.enter(Phase::Over);
    }

    /// Enters a trial in the books.
    fn note(&mut self, offer: &Offer, seen: Seen, began: Duration) {
        let standard = self.standard();
        let evidence = crate::evidence::Evidence::of(offer.rate, &seen.blocks, &standard);
        let vote = if seen.invalid.is_some() { Vote::Invalid } else { standard.vote(&evidence) };
        let kind = (vote == Vote::Bad).then(|| standard.kind(&evidence));
        let weight: f64 = f64::from(u8::from(vote != Vote::Invalid && counts(offer.purpose)));
        // Stopped before a limiter's window was over, it may have seen the wrong part of one.
        let short = self.manners.spent && seen.took < offer.least;
        let weight = if short { 0.2 * weight } else { weight };
        let grew = kind.is_some_and(|kind| kind != Kind::Rejecting) && evidence.growth() > 0.0;
        let late_weight = if grew || evidence.seconds < LATE { 0.0 } else { weight };
        self.witnesses.push(Witness { evidence: evidence.clone(), weight, late_weight, busy: grew });
        self.trials.push(Trial { offer: *offer, began, seen, evidence, vote, kind, weight });
    }

    /// How much a trial counts for the cliff from now on.
    fn reweigh(&mut self, index: usize, weight: f64) {
        self.trials[index].weight = weight;
        self.witnesses[index].weight = weight;
        self.witnesses[index].late_weight *= weight;
    }

    fn believe(&mut self) {
        let service = self.calm.map_or(0.0, |calm| calm.service);
        let belief = Belief::new(&self.curves, service, &self.witnesses);
        self.cliff = Some(self.between_deaths().unwrap_or_else(|| belief.bracket(Of::Cliff, self.range)));
        self.knee = self.goal.late.map(|_| belief.bracket(Of::Knee, self.range));
    }

    fn standard(&self) -> Standard {
        let (service, slowest) = self.calm.map_or((0.0, 0.0), |calm| (calm.service, calm.slowest));
        // What was spent is spent of a limiter's present window, too, and windows of a second are common.
        let least = if self.manners.spent { 1.0 } else { 0.3 };
        let settle = (4.0 * service).clamp(least, 2.0);
        Standard { goal: self.goal, tolerance: self.profile.tolerance, settle, least: 1.0, service, slowest }
    }

    /// A trial of a rate, which ends when it is decided.
    fn trial(&self, purpose: Purpose, rate: f64, most: Duration) -> Offer {
        let rate = rate.min(self.bounds.ceiling().0);
        let little = rate * self.calm.map_or(0.0, |calm| calm.service);
        Offer {
            purpose,
            rate,
            least: Duration::from_secs(1).min(most),
            most,
            rule: Rule::Decided(self.standard()),
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
fn counts(purpose: Purpose) -> bool {
    !matches!(purpose, Purpose::Baseline | Purpose::Arm | Purpose::Probe | Purpose::Recovery)
}
