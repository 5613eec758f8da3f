//! Chooses the rates of trials that narrow the bracket of the cliff, then that of the knee.

use std::time::Duration;

use super::{Phase, RateSearch, SearchStep};
use crate::limit_posterior::Bracket;
use crate::report::{LimitEstimate, RateTrial, SearchOutcome};
use crate::trial_spec::{StopRule, TrialPurpose, TrialSpec};
use crate::trial_verdict::{FailureMode, TrialVerdict};

/// The ratio of the bounds above which the bracket is wide, so that a trial in the middle narrows it most.
const WIDE: f64 = 1.25;
/// The variation of middle rates, so that a rate that interferes with a period of the target is not repeated.
const JITTER: f64 = 0.03;
/// The lowest rate of a trial, in requests per second: below, hardly a request is due before the trial ends.
const LEAST_RATE: f64 = 0.05;
/// The distance of an overload trial above the estimate, as a multiple of the upper bound's distance. A clear overload shows the capacity
/// by its goodput.
const BEYOND: f64 = 1.3;
/// The number of overload trials that the bracket needs.
const BADS: usize = 2;
/// The share of the lower bound that a confirmed rate must reach.
const HELD: f64 = 0.97;
/// The pause before the trial on the rested target.
const REST: Duration = Duration::from_secs(10);
/// The factor above the upper bound for the trial on the rested target.
const COLD: f64 = 1.03;
/// The ratio of the bounds from which the trial on the rested target may run.
const EARLY: f64 = 1.2;
/// The shortest trial with an empty allowance: one second to settle and one whole second, for limiters with time windows.
const SPENT: Duration = Duration::from_millis(2200);
/// Settings of the trial that empties the allowance: a factor of the upper bound, the share of failures that ends it, its longest duration.
const ARM: (f64, f64, Duration) = (1.5, 0.15, Duration::from_secs(4));

/// The least factor above the lower bound at which a trial is useful.
const JUST: f64 = 1.02;
/// The factor of the overload goodput for the first guess.
const GUESS: f64 = 0.97;
/// The highest rate for a hanging target, as a factor of the goodput and an offset. A trial stops at 0.25 s of its rate plus 30 requests in
/// flight. With goodput g it gets there after 2.4 s, slightly more than [`SPENT`], at the rate (2.4 g + 30) / (2.4 - 0.25).
const LONG: (f64, f64) = (1.12, 14.0);
/// The highest rate for other targets, as a factor of the goodput. A trial stops when half of its requests fail, which is at twice the
/// goodput.
const FAILING: f64 = 1.8;

impl RateSearch {
    pub(super) fn plan_cliff(&mut self) {
        self.believe();
        let Some(cliff) = self.cliff else { return };
        let spent = self.elapsed >= self.profile.cliff_budget;
        let narrow = cliff.width_relative_to_lower() <= self.profile.cliff_stop_bracket_width;
        if spent || narrow && self.overloads() >= BADS && self.held(&cliff) {
            return self.leave_cliff(&cliff);
        }
        self.turn += 1;
        if self.wants_cold_look(&cliff) {
            return self.look_cold(&cliff);
        }
        if narrow && !self.held(&cliff) {
            return self.schedule_trial(self.full_duration_trial(
                TrialPurpose::Confirm,
                cliff.lower,
                self.hold(),
            ));
        }
        let rate = self.next_rate(&cliff).max(LEAST_RATE);
        self.schedule_trial(self.trial(TrialPurpose::NarrowBracket, rate, self.profile.max_trial_duration));
    }

    /// Returns the duration of a trial at the lower bound. It uses the remaining time, because only a long trial shows a quota
    /// that runs out.
    fn hold(&self) -> Duration {
        let confirm = self.profile.confirm_duration;
        let left = self.profile.cliff_budget.saturating_sub(self.elapsed);
        if self.manners.spent { confirm } else { left.clamp(confirm, 3 * confirm) }
    }

    fn next_rate(&self, cliff: &Bracket) -> f64 {
        let Bracket { lower, estimate: point, upper } = *cliff;
        let rejects = self.manners.kind.is_some_and(|kind| kind != FailureMode::Queueing);
        if let Some(rate) = self.first_guess() {
            return rate;
        }
        if upper / lower > WIDE {
            // At the limit, a trial sees one error in a thousand. Above the limit, errors tell the curves apart.
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

    /// Returns the first guess if no earlier trial counts: the goodput in overload. Part of that goodput may come from an
    /// allowance; the next trial shows it.
    fn first_guess(&self) -> Option<f64> {
        let counts = self.trials.iter().any(|trial| trial.weight > 0.1);
        self.overloaded().filter(|_| self.manners.spent && !counts).map(|goodput| GUESS * goodput)
    }

    /// Returns the highest rate at which an overload without allowance lasts long enough for evidence. Above it, the trial stops
    /// before it has settled.
    fn longest_overload(&self) -> Option<f64> {
        let goodput = self.overloaded().filter(|_| self.manners.spent)?;
        Some(match self.manners.kind? {
            FailureMode::Hanging => LONG.0 * goodput + LONG.1,
            _ => FAILING * goodput,
        })
    }

    /// Returns the good responses per second in the last overload.
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

    /// Returns a trial that runs to its end.
    pub(super) fn full_duration_trial(&self, purpose: TrialPurpose, rate: f64, time: Duration) -> TrialSpec {
        let offer = self.trial(purpose, rate, time);
        TrialSpec {
            min_duration: Duration::from_secs(1).min(time),
            rule: StopRule::FullDurationUnlessBad(self.standard()),
            ..offer
        }
    }

    /// Schedules a trial, after one that empties the allowance if the target has one.
    pub(super) fn schedule_trial(&mut self, offer: TrialSpec) {
        if self.manners.spent {
            // If no earlier trial counts, the bracket may reach far above the lowest known bad rate.
            let upper = self.cliff.map_or(offer.rate, |cliff| cliff.upper);
            let upper = self.lowest_bad_after_allowance().map_or(upper, |bad| upper.min(bad));
            let (above, _, most) = ARM;
            let rate = above * self.manners.above * upper.max(offer.rate);
            let share = self.spending(rate);
            let arm = self.trial(TrialPurpose::BurstDrain, rate, most);
            self.agenda.push_back(SearchStep::RunTrial(TrialSpec {
                min_duration: Duration::ZERO,
                rule: StopRule::FailingShare(share),
                drain: Duration::ZERO,
                ..arm
            }));
        }
        let least = if self.manners.spent { SPENT.min(offer.max_duration) } else { offer.min_duration };
        self.agenda.push_back(SearchStep::RunTrial(TrialSpec { min_duration: least, ..offer }));
    }

    /// Returns the share of failures that shows an empty allowance. If `--max-rate` allows only a slight overload, it is half of
    /// the share that failed there.
    fn spending(&self, rate: f64) -> f64 {
        let share = ARM.1;
        if rate <= self.bounds.ceiling().0 {
            return share;
        }
        let failed = |bad: &RateTrial| bad.evidence.errors.value().max(bad.evidence.in_flight_growth_share());
        self.last_bad().map_or(share, |bad| share.min(failed(bad) / 2.0))
    }

    /// Returns whether to try the rested target now. The search does so early, because results of a degraded target are of no
    /// use.
    fn wants_cold_look(&self, cliff: &Bracket) -> bool {
        let near = cliff.upper / cliff.lower < EARLY && self.overloads() > 0;
        near && self.may_look_cold(cliff)
    }

    /// Returns whether the rested target can be tried: the rate above the bracket must be allowed, because repeating a lower rate
    /// shows nothing.
    fn may_look_cold(&self, cliff: &Bracket) -> bool {
        !self.manners.spent && !self.looked_cold && COLD * cliff.upper <= self.bounds.ceiling().0
    }

    /// Schedules a pause and then a trial above the bracket.
    fn look_cold(&mut self, cliff: &Bracket) {
        self.looked_cold = true;
        self.agenda.push_back(SearchStep::Pause(REST));
        let offer = self.trial(
            TrialPurpose::AboveBracketAfterIdle,
            COLD * cliff.upper,
            self.profile.max_trial_duration,
        );
        self.agenda.push_back(SearchStep::RunTrial(offer));
    }

    /// Ends the search for the cliff, after a trial on the rested target.
    fn leave_cliff(&mut self, cliff: &Bracket) {
        if self.may_look_cold(cliff) {
            return self.look_cold(cliff);
        }
        if let Some(again) = self.next_repeat_of_contradicting_trial() {
            return self.schedule_trial(again);
        }
        if self.are_all_narrowing_trials_invalid() {
            return self.end(SearchOutcome::GeneratorLimited);
        }
        self.cliff_by = Some(self.elapsed);
        if self.ceiling_outcome().is_some() {
            return self.enter(Phase::Recovery);
        }
        self.enter(if self.goal.latency_goal.is_some() { Phase::Knee } else { Phase::Recovery });
    }

    /// Returns the outcome if the target broke once but later held every rate up to the highest allowed one.
    pub(super) fn ceiling_outcome(&self) -> Option<SearchOutcome> {
        let (ceiling, whose) = self.bounds.ceiling();
        let LimitEstimate { highest_good: good, lowest_bad: bad, .. } = self.cliff_limit();
        (bad.is_none() && good.is_some_and(|good| good >= HELD * ceiling)).then_some(whose)
    }

    pub(super) fn plan_knee(&mut self) {
        self.believe();
        let (Some(knee), Some(by)) = (self.knee, self.cliff_by) else { return self.enter(Phase::Recovery) };
        let spent = self.elapsed >= by + self.profile.knee_budget;
        if spent || knee.width_relative_to_lower() <= self.profile.knee_stop_bracket_width {
            return self.enter(Phase::Recovery);
        }
        self.turn += 1;
        let rate = match self.turn % 3 {
            1 => (knee.lower * knee.estimate).sqrt(),
            2 => (knee.upper * knee.estimate).sqrt(),
            _ => knee.estimate,
        };
        self.schedule_trial(self.full_duration_trial(
            TrialPurpose::LatencyBreakingRate,
            rate,
            self.profile.max_trial_duration,
        ));
    }
}

/// Returns a number between -1 and 1 from an even sequence: multiples of the golden ratio.
fn jitter(turn: usize) -> f64 {
    2.0 * (turn as f64 * 0.618_033_988_749_894_9).fract() - 1.0
}
