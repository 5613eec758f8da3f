//! The end: does the target recover from overload, and what is known at all.

use std::time::Duration;

use super::{LATE, Phase, Search, Step};
use crate::belief::Bracket;
use crate::offer::{Offer, Purpose, Rule};
use crate::report::{Allowance, Limit, Outcome, Report, Trial};
use crate::seen::BLOCK;
use crate::vote::Vote;

/// An overload to recover from: of the upper bound, and for how long.
const OVERLOAD: (f64, Duration) = (1.3, Duration::from_secs(2));
/// A bracket of the knee that is wider, as a share, says less than the rates that were tested.
const TOLD: f64 = 0.6;
/// Standard deviations above a share that are no chance.
const SURE: f64 = 2.0;
/// What must hold again after it, of the lower bound.
const AGAIN: f64 = 0.9;

impl Search {
    pub(super) fn plan_recovery(&mut self) {
        // Where nothing broke there is only the knee, and no overload to recover from.
        self.cliff = self.cliff.filter(|_| !self.unbroken);
        let Some(cliff) = self.cliff else { return self.end(Outcome::Found) };
        if self.cliff_limit().bad.is_none() {
            return self.end_untold();
        }
        self.turn += 1;
        if self.turn > 1 || self.manners.spent {
            // What was spent leaves nothing of what was seen before: without a rate that held since then the bracket may be a guess.
            let is_some_idea = self.cliff_limit().is_some_idea();
            return if is_some_idea { self.end(self.verdict()) } else { self.enter(Phase::Over) };
        }
        let (above, time) = OVERLOAD;
        let overload = self.trial(Purpose::Arm, above * cliff.upper, time);
        let overload = Offer { rule: Rule::Fails(1.0), least: time, ..overload };
        let again = self.trial(Purpose::Recovery, AGAIN * cliff.lower, self.profile.recovery);
        self.agenda.extend([Step::Offer(overload), Step::Offer(again)]);
    }

    pub(super) fn learn_recovery(&mut self) {
        self.manners.recovery.holds = self.trials.last().map(|trial| trial.vote != Vote::Bad);
    }

    /// No limit is between two rates where none was bad: the highest that may be offered was held, or its time did not tell.
    fn end_untold(&mut self) {
        self.cliff = None;
        match self.is_at_ceiling() {
            Some(whose) => self.end(whose),
            None => self.enter(Phase::Over),
        }
    }

    fn verdict(&self) -> Outcome {
        let degraded = match self.manners.recovery.holds {
            Some(holds) => !holds,
            None => self.manners.needs_silence,
        };
        if degraded { Outcome::Metastable } else { Outcome::Found }
    }

    /// What is known, at any moment.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            outcome: self.outcome,
            goal: self.goal,
            profile: self.profile.name,
            max_rate: self.bounds.max_rate,
            cliff: self.cliff_limit(),
            knee: self.knee_limit(),
            kind: self.manners.kind,
            goodput: self.goodput(),
            burst: self.burst(),
            depletion: self.manners.depletion,
            allowance: self.allowance(),
            recovery: self.manners.recovery,
            trials: self.trials.clone(),
            took: self.elapsed,
        }
    }

    pub(super) fn cliff_limit(&self) -> Limit {
        let cliff = self.cliff.map(|cliff| cliff.widened(self.profile.margin));
        self.limit(cliff, |trial| trial.vote)
    }

    /// Where trials do not carry a bracket that says something, the rates tested are all that there is. None without a bound on late answers.
    pub(super) fn knee_limit(&self) -> Option<Limit> {
        let share = self.goal.late?.share;
        let knee = self.knee.map(|knee| knee.widened(self.profile.knee_margin));
        let told = knee.filter(|knee| knee.width() <= TOLD);
        Some(self.limit(told, |trial| match trial.evidence.late {
            _ if trial.vote == Vote::Bad => Vote::Bad,
            late if late.of <= 0.0 => Vote::Undecided,
            // No queue has had the time in a rung of the ladder.
            late if late.above(share) > SURE && trial.evidence.seconds >= LATE => Vote::Bad,
            late if late.value() <= share => Vote::Good,
            _ => Vote::Undecided,
        }))
    }

    /// The tested rates next to the bracket; what was good below one that was bad, and bad, if it can be, not below the bracket: what was bad
    /// there was bad luck to all trials together.
    fn limit(&self, bracket: Option<Bracket>, votes: impl Fn(&Trial) -> Vote) -> Limit {
        let counting = self.trials.iter().filter(|trial| trial.weight > 0.1);
        let voted: Vec<_> = counting.map(|trial| (votes(trial), trial.offer.rate)).collect();
        let of = |vote| voted.iter().filter(move |(voted, _)| *voted == vote).map(|(_, rate)| *rate);
        let lower = bracket.map_or(0.0, |bracket| bracket.lower);
        let within = of(Vote::Bad).filter(|rate| *rate >= lower).reduce(f64::min);
        let bad = within.or_else(|| of(Vote::Bad).reduce(f64::min)).or_else(|| self.spent_bad());
        let good = of(Vote::Good).filter(|rate| bad.is_none_or(|bad| *rate < bad)).reduce(f64::max);
        Limit { bracket, good, bad }
    }

    /// What was good before something was spent, or used up, says nothing afterwards; what was too much was too much.
    pub(super) fn spent_bad(&self) -> Option<f64> {
        let used_up = self.manners.depletion.is_some();
        let too_much = |trial: &&Trial| trial.kind.is_some_and(|kind| used_up || kind.is_spent());
        let bad = self.trials.iter().filter(too_much);
        bad.filter(|_| self.manners.spent).map(|trial| trial.offer.rate).reduce(f64::min)
    }

    fn goodput(&self) -> Option<f64> {
        let bad = self.trials.iter().filter(|trial| trial.vote == Vote::Bad && trial.evidence.seconds > 0.0);
        let mut all: Vec<_> = bad.map(|trial| trial.evidence.goodput).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// What the trials until the first bad one were given above what fills it.
    fn burst(&self) -> Option<f64> {
        let fill = self.cliff.filter(|_| self.manners.spent && self.manners.depletion.is_none())?.point;
        let bad = self.trials.iter().position(|trial| trial.vote == Vote::Bad)?;
        let above = self.trials[..=bad].iter().filter(|trial| trial.offer.rate > fill);
        let given = above.map(|trial| {
            let good: f64 = trial.seen.blocks.iter().map(|block| f64::from(block.good)).sum();
            good - fill * trial.seen.blocks.len() as f64 * BLOCK
        });
        Some(given.sum::<f64>().max(0.0))
    }

    /// The most requests in one trial that held, without a rest.
    fn allowance(&self) -> Option<Allowance> {
        let held = self.trials.iter().filter(|trial| trial.vote != Vote::Bad && trial.weight > 0.1);
        let of = |trial: &Trial| {
            let held = Duration::from_secs_f64(trial.seen.blocks.len() as f64 * BLOCK);
            Allowance { rate: trial.offer.rate, held, requests: trial.offer.rate * held.as_secs_f64() }
        };
        held.map(of).max_by(|a, b| a.requests.total_cmp(&b.requests))
    }
}
