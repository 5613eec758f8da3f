//! The begin: how quick the target is with nothing to do, and the rate, doubled, at which it breaks.

use std::time::Duration;

use super::{Calm, Phase, Search, Step};
use crate::offer::{Offer, Purpose, Rule};
use crate::report::Outcome;
use crate::seen::{mean_latency, sum};
use crate::vote::{Standard, Vote};

/// Length of the baseline.
const BASELINE: Duration = Duration::from_secs(2);
/// A rung of the ladder.
const RUNG: (Duration, Duration) = (Duration::from_millis(400), Duration::from_secs(2));
/// Growth that a rung may overlook.
const RUNG_TOLERANCE: f64 = 0.25;
/// Where the cliff is looked for at first, from the last good rung and the first bad one.
const RANGE: (f64, f64) = (0.3, 1.3);

impl Search {
    pub(super) fn plan_baseline(&mut self) {
        let rate = self.bounds.first.min(self.bounds.ceiling().0);
        let offer = self.trial(Purpose::Baseline, rate, BASELINE);
        self.agenda.push_back(Step::Offer(Offer { least: BASELINE, most_in_flight: 30.0 + rate, ..offer }));
    }

    pub(super) fn learn_baseline(&mut self) {
        let Some(blocks) = self.trials.last().map(|trial| &trial.seen.blocks) else { return };
        let (good, errors) = (sum(blocks, |block| block.good), sum(blocks, |block| block.errors));
        let slowest = blocks.iter().map(|block| block.slowest).fold(0.0, f64::max);
        match mean_latency(blocks).filter(|_| errors <= 0.2 * (good + errors)) {
            None => self.end(Outcome::UnstableBaseline),
            Some(service) => {
                self.calm = Some(Calm { service, slowest });
                self.enter(Phase::Ladder);
            }
        }
    }

    pub(super) fn plan_rung(&mut self) {
        let (ceiling, whose) = self.bounds.ceiling();
        let rungs = self.trials.iter().filter(|trial| trial.offer.purpose == Purpose::Ladder);
        let last = rungs.map(|trial| trial.offer.rate).fold(0.0, f64::max);
        if last >= ceiling {
            return self.hold_ceiling(whose);
        }
        let rate = if last > 0.0 { 2.0 * last } else { self.bounds.first };
        let (least, most) = RUNG;
        let rule = Rule::Decided(Standard { tolerance: RUNG_TOLERANCE, least: 0.2, ..self.standard() });
        let offer = self.trial(Purpose::Ladder, rate, most);
        self.agenda.push_back(Step::Offer(Offer { least, rule, ..offer }));
    }

    /// Nothing broke up to the highest rate that may be offered: that rate is held for longer.
    fn hold_ceiling(&mut self, whose: Outcome) {
        let (ceiling, _) = self.bounds.ceiling();
        if self.trials.iter().any(|trial| trial.offer.purpose == Purpose::Confirm) {
            return self.end(whose);
        }
        self.agenda.push_back(Step::Offer(self.whole(Purpose::Confirm, ceiling, self.profile.confirm)));
    }

    pub(super) fn learn_rung(&mut self) {
        let Some(last) = self.trials.last() else { return };
        let (rate, failing) = (last.offer.rate, last.evidence.errors.count > 0.0);
        if last.vote != Vote::Bad {
            return self.forgive_rung(rate);
        }
        let again = self.trials.iter().filter(|trial| trial.offer.rate == rate).count() > 1;
        if failing || again {
            return self.break_at(rate);
        }
        // One pause at its begin looks like a target that hangs.
        let offer = last.offer;
        self.cool_down();
        self.agenda.push_back(Step::Offer(offer));
    }

    /// A rung that held the second time was not too much the first time.
    fn forgive_rung(&mut self, rate: f64) {
        for index in 0..self.trials.len() {
            if self.trials[index].vote == Vote::Bad && self.trials[index].offer.rate == rate {
                self.reweigh(index, 0.0);
            }
        }
    }

    /// The first rate that is too much.
    pub(super) fn break_at(&mut self, bad: f64) {
        let good = self.trials.iter().filter(|trial| trial.weight > 0.0 && trial.vote == Vote::Good);
        let good = good.map(|trial| trial.offer.rate).fold(bad / 16.0, f64::max);
        self.range = (RANGE.0 * good, RANGE.1 * bad);
        self.enter(Phase::Narrow);
        self.after_bad();
    }
}
