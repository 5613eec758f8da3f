//! Which rate next: trials that narrow the bracket of the cliff, then that of the knee.

use std::time::Duration;

use super::{Phase, RateSearch, SearchStep};
use crate::belief::Bracket;
use crate::offer::{StopRule, TrialPurpose, TrialSpec};
use crate::report::{LimitEstimate, RateTrial, SearchOutcome};
use crate::vote::{FailureMode, TrialVerdict};

/// A bracket is wide while its upper bound is beyond its lower by this factor: then its middle halves it best.
const WIDE: f64 = 1.25;
/// By how much middles differ, so that a rate on which something else beats is not asked twice.
const JITTER: f64 = 0.03;
/// How far above the upper bound: an overload that is clear, and tells the capacity by what is answered.
const BEYOND: f64 = 1.3;
/// How often the bracket must have been overloaded.
const BADS: usize = 2;
/// A lower bound counts as held if a rate this near to it was.
const HELD: f64 = 0.97;
/// Silence before the look at the rested target.
const REST: Duration = Duration::from_secs(10);
/// A rested target is looked at so far above the upper bound.
const COLD: f64 = 1.03;
/// It is looked at when the bracket is no wider than this factor.
const EARLY: f64 = 1.2;
/// Shortest trial of what is spent: a second to settle and a whole one, for limiters that count in windows.
const SPENT: Duration = Duration::from_millis(2200);
/// What is spent is spent by this much above the upper bound, until this share fails, for no longer than that.
const ARM: (f64, f64, Duration) = (1.5, 0.15, Duration::from_secs(4));

/// Never that little above a lower bound that nothing would come of it.
const JUST: f64 = 1.02;
/// Of what was answered in overload, where nothing else is known.
const GUESS: f64 = 0.97;
/// A trial stops at a quarter of a second of its rate and 30 requests in flight. What hangs above a goodput g gets there after 2.4 s, a
/// little more than [`SPENT`], at a rate of (2.4 g + 30) / (2.4 - 0.25).
const LONG: (f64, f64) = (1.12, 14.0);
/// It stops where half fails: at twice the goodput.
const FAILING: f64 = 1.8;

impl RateSearch {
    pub(super) fn plan_cliff(&mut self) {
        self.believe();
        let Some(cliff) = self.cliff else { return };
        let spent = self.elapsed >= self.profile.budget;
        let narrow = cliff.width() <= self.profile.width;
        if spent || narrow && self.overloads() >= BADS && self.held(&cliff) {
            return self.leave_cliff(&cliff);
        }
        self.turn += 1;
        if self.wants_cold_look(&cliff) {
            return self.look_cold(&cliff);
        }
        if narrow && !self.held(&cliff) {
            return self.offer(self.whole_trial(TrialPurpose::Confirm, cliff.lower, self.hold()));
        }
        let rate = self.next_rate(&cliff);
        self.offer(self.trial(TrialPurpose::NarrowBracket, rate, self.profile.most));
    }

    /// What time is left is spent on holding a queue's lower bound: only that tells what is used up from what lasts.
    fn hold(&self) -> Duration {
        let confirm = self.profile.confirm;
        let left = self.profile.budget.saturating_sub(self.elapsed);
        if self.manners.spent { confirm } else { left.clamp(confirm, 3 * confirm) }
    }

    fn next_rate(&self, cliff: &Bracket) -> f64 {
        let Bracket { lower, estimate: point, upper } = *cliff;
        let rejects = self.manners.kind.is_some_and(|kind| kind != FailureMode::Queueing);
        if let Some(rate) = self.first_guess() {
            return rate;
        }
        if upper / lower > WIDE {
            // At a limit by errors a trial sees one in a thousand; above it they tell one curve from another.
            let beyond = rejects && self.turn.is_multiple_of(2);
            let rate = if beyond { upper } else { point * (1.0 + JITTER * jitter(self.turn)) };
            return self.longest_overload().map_or(rate, |most| rate.min(most.max(JUST * lower)));
        }
        if self.turn.is_multiple_of(2) {
            point + BEYOND * (upper - point)
        } else {
            (point * (lower / point).sqrt()).min(0.995 * point)
        }
    }

    /// Where nothing that was seen counts any more, what was answered in overload is the best that there is: more of it may have been saved
    /// up, and then the next trial says so.
    fn first_guess(&self) -> Option<f64> {
        let counts = self.trials.iter().any(|trial| trial.weight > 0.1);
        self.overloaded().filter(|_| self.manners.spent && !counts).map(|goodput| GUESS * goodput)
    }

    /// The highest rate, of what is spent, at which an overload lasts as long as a trial must to say something: beyond it is damage before
    /// it has settled.
    fn longest_overload(&self) -> Option<f64> {
        let goodput = self.overloaded().filter(|_| self.manners.spent)?;
        Some(match self.manners.kind? {
            FailureMode::Hanging => LONG.0 * goodput + LONG.1,
            _ => FAILING * goodput,
        })
    }

    /// Good answers a second in the last overload.
    fn overloaded(&self) -> Option<f64> {
        self.last_bad().map(|trial| trial.evidence.goodput).filter(|goodput| *goodput > 0.0)
    }

    fn overloads(&self) -> usize {
        self.trials.iter().filter(|trial| trial.verdict == TrialVerdict::Bad && trial.weight > 0.1).count()
    }

    fn held(&self, cliff: &Bracket) -> bool {
        self.trials.iter().any(|trial| {
            trial.spec.purpose == TrialPurpose::Confirm
                && trial.verdict != TrialVerdict::Bad
                && trial.weight > 0.1
                && trial.spec.rate >= HELD * cliff.lower
        })
    }

    /// A trial that is held to its end.
    pub(super) fn whole_trial(&self, purpose: TrialPurpose, rate: f64, time: Duration) -> TrialSpec {
        let offer = self.trial(purpose, rate, time);
        TrialSpec { least: Duration::from_secs(1).min(time), rule: StopRule::Whole(self.standard()), ..offer }
    }

    /// Puts a trial on the agenda, and before it what makes the target what it must be for it.
    pub(super) fn offer(&mut self, offer: TrialSpec) {
        if self.manners.spent {
            // Where nothing that was seen counts any more, a bracket may reach far above what is known to be too much.
            let upper = self.cliff.map_or(offer.rate, |cliff| cliff.upper);
            let upper = self.spent_bad().map_or(upper, |bad| upper.min(bad));
            let (above, _, most) = ARM;
            let rate = above * self.manners.above * upper.max(offer.rate);
            let share = self.spending(rate);
            let arm = self.trial(TrialPurpose::BurstDrain, rate, most);
            self.agenda.push_back(SearchStep::RunTrial(TrialSpec {
                least: Duration::ZERO,
                rule: StopRule::Fails(share),
                drain: Duration::ZERO,
                ..arm
            }));
        }
        let least = if self.manners.spent { SPENT.min(offer.most) } else { offer.least };
        self.agenda.push_back(SearchStep::RunTrial(TrialSpec { least, ..offer }));
    }

    /// Which share fails once all is spent: where no more may be offered than hardly too much, half of what failed there.
    fn spending(&self, rate: f64) -> f64 {
        let share = ARM.1;
        if rate <= self.bounds.ceiling().0 {
            return share;
        }
        let failed = |bad: &RateTrial| bad.evidence.errors.value().max(bad.evidence.growth());
        self.last_bad().map_or(share, |bad| share.min(failed(bad) / 2.0))
    }

    /// As soon as the bracket is not wide: what was learnt of a degraded target is of no use, so that is found out early.
    fn wants_cold_look(&self, cliff: &Bracket) -> bool {
        let near = cliff.upper / cliff.lower < EARLY && self.overloads() > 0;
        near && self.may_look_cold(cliff)
    }

    /// Not where the rate above the bracket may not be offered: the same rate again is no look at a rested target.
    fn may_look_cold(&self, cliff: &Bracket) -> bool {
        !self.manners.spent && !self.looked_cold && COLD * cliff.upper <= self.bounds.ceiling().0
    }

    /// A rate above the bracket after silence.
    fn look_cold(&mut self, cliff: &Bracket) {
        self.looked_cold = true;
        self.agenda.push_back(SearchStep::Pause(REST));
        let offer = self.trial(TrialPurpose::AfterIdle, COLD * cliff.upper, self.profile.most);
        self.agenda.push_back(SearchStep::RunTrial(offer));
    }

    /// The bracket is as narrow as it gets: is the target as weak when it is rested?
    fn leave_cliff(&mut self, cliff: &Bracket) {
        if self.may_look_cold(cliff) {
            return self.look_cold(cliff);
        }
        self.cliff_by = Some(self.elapsed);
        if self.is_at_ceiling().is_some() {
            return self.enter(Phase::Recovery);
        }
        self.enter(if self.goal.late.is_some() { Phase::Knee } else { Phase::Recovery });
    }

    /// What broke once held ever after, up to the highest rate: whose limit that is.
    pub(super) fn is_at_ceiling(&self) -> Option<SearchOutcome> {
        let (ceiling, whose) = self.bounds.ceiling();
        let LimitEstimate { highest_good: good, lowest_bad: bad, .. } = self.cliff_limit();
        (bad.is_none() && good.is_some_and(|good| good >= HELD * ceiling)).then_some(whose)
    }

    pub(super) fn plan_knee(&mut self) {
        self.believe();
        let (Some(knee), Some(by)) = (self.knee, self.cliff_by) else { return self.enter(Phase::Recovery) };
        let spent = self.elapsed >= by + self.profile.knee_budget;
        if spent || knee.width() <= self.profile.knee_width {
            return self.enter(Phase::Recovery);
        }
        self.turn += 1;
        let rate = match self.turn % 3 {
            1 => (knee.lower * knee.estimate).sqrt(),
            2 => (knee.upper * knee.estimate).sqrt(),
            _ => knee.estimate,
        };
        self.offer(self.whole_trial(TrialPurpose::LatencyBreakingRate, rate, self.profile.most));
    }
}

/// Between -1 and 1, evenly spread: multiples of the golden ratio.
fn jitter(turn: usize) -> f64 {
    2.0 * (turn as f64 * 0.618_033_988_749_894_9).fract() - 1.0
}
