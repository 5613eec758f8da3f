//! Which number of clients next: trials that narrow the limit's bracket, then those that find where more clients get no more.

use std::time::Duration;

use super::offer::{ClosedStopRule, ClosedTrialSpec};
use super::{ClosedSearch, ClosedStep, Phase, RANGE};
use crate::belief::{Bracket, LimitKind, LimitPosterior, WeightedEvidence};
use crate::offer::TrialPurpose;
use crate::report::SearchOutcome;
use crate::vote::{FailureMode, TrialVerdict};

/// Trials of one phase: with a few clients brackets of whole numbers are narrow long before.
const TURNS: usize = 40;
/// A lower bound counts as held if so many clients were.
const HELD: f64 = 0.97;
/// An upper bound counts as broken if so many clients were too many, and is tried so far above.
const BROKE: f64 = 1.1;
const BEYOND: f64 = 1.03;
/// What time gives back is spent by so many times the upper bound, until this share fails, for no longer than that.
const ARM: (f64, f64, Duration) = (2.0, 0.15, Duration::from_secs(4));
/// Shortest trial of the limit, once it has settled.
const LEAST: Duration = Duration::from_secs(3);
/// How often what broke once is asked again until it breaks without what it had.
const AGAIN: usize = 3;
/// Trials that find where more clients get no more: how long once settled, and how near is enough.
const KNEE: (Duration, f64) = (Duration::from_secs(2), 1.1);

impl ClosedSearch {
    pub(super) fn plan_limit(&mut self) {
        self.believe();
        if self.hangs() || self.turn >= TURNS {
            return self.leave(SearchOutcome::Found);
        }
        let Some(limit) = self.bracket else { return self.break_again() };
        let (lower, upper) = whole(&limit);
        let spent = self.elapsed >= self.since + self.profile.budget;
        let narrow = upper <= lower || limit.width() <= self.profile.width;
        if spent || narrow && self.held(lower) && self.broke(upper) {
            return self.leave(SearchOutcome::Found);
        }
        self.turn += 1;
        if narrow && !self.broke(upper) {
            // A bracket is not to rest on a curve alone.
            let above = (BEYOND * f64::from(upper)).ceil() as u32;
            return self.armed(
                TrialPurpose::NarrowBracket,
                above.max(upper.saturating_add(1)),
                (LEAST, self.profile.most),
            );
        }
        if narrow {
            let hold = (self.profile.confirm, self.profile.confirm);
            return self.armed(TrialPurpose::Confirm, lower.max(1), hold);
        }
        let clients = self.next_clients(&limit);
        self.armed(TrialPurpose::NarrowBracket, clients, (LEAST, self.profile.most));
    }

    /// What broke has spent what it had, and is asked again without that.
    fn break_again(&mut self) {
        self.turn += 1;
        if self.turn > AGAIN {
            return self.leave(SearchOutcome::Found);
        }
        let clients = (self.range.1 / RANGE.1).round() as u32;
        self.armed(TrialPurpose::NarrowBracket, clients, (LEAST, self.profile.most));
    }

    fn leave(&mut self, outcome: SearchOutcome) {
        self.outcome = Some(outcome);
        self.enter(Phase::Knee);
    }

    /// Errors and lateness each count for the limit only where one of them broke the goal: a share that is nothing anywhere says
    /// where the limit is not, for as far as was looked. Where clients hang, how many a target bears is a matter of how long one looks:
    /// then there is no bracket.
    fn believe(&mut self) {
        let counting = self.trials.iter().filter(|trial| trial.counts);
        let breaks = counting.map(|trial| trial.spec.standard.breaks(&trial.finding));
        let (errors, late) = breaks.fold((false, false), |all, one| (all.0 || one.0, all.1 || one.1));
        let witnesses = clustered(&self.witnesses);
        let belief = LimitPosterior::new(&self.curves, self.service, &witnesses);
        let breaks = (errors || late) && !self.hangs();
        self.bracket = breaks.then(|| belief.bracket(LimitKind::Shares { errors, late }, self.range));
    }

    fn hangs(&self) -> bool {
        self.trials.iter().any(|trial| trial.finding.hangs)
    }

    /// From below, above and the middle in turn.
    fn next_clients(&self, limit: &Bracket) -> u32 {
        let clients = match self.turn % 3 {
            1 => (limit.lower * limit.estimate).sqrt().floor(),
            2 => (limit.upper * limit.estimate).sqrt().ceil(),
            _ => limit.estimate.round(),
        };
        (clients as u32).clamp(1, self.most)
    }

    /// At the lower bound, below every trial that was bad, for the profile's time.
    fn held(&self, lower: u32) -> bool {
        self.trials.iter().any(|trial| {
            trial.spec.purpose == TrialPurpose::Confirm
                && trial.trial_verdict != TrialVerdict::Bad
                && f64::from(trial.spec.clients) >= HELD * f64::from(lower.max(1))
        })
    }

    /// Whether hardly more clients than the upper bound were too many.
    fn broke(&self, upper: u32) -> bool {
        let most = BROKE * (f64::from(upper) + 1.0);
        let bad = self.trials.iter().filter(|trial| trial.counts && trial.trial_verdict == TrialVerdict::Bad);
        bad.map(|trial| f64::from(trial.spec.clients)).any(|clients| clients <= most)
    }

    /// A trial, and before it what spends what time gives back.
    fn armed(&mut self, purpose: TrialPurpose, clients: u32, lasting: (Duration, Duration)) {
        if self.kind.is_some_and(FailureMode::is_quota_like) {
            let (above, share, most) = ARM;
            let upper = self.bracket.map_or(f64::from(clients), |limit| limit.upper);
            let arm = self.trial(TrialPurpose::BurstDrain, (above * upper).ceil() as u32, (most, most));
            let arm =
                ClosedTrialSpec { rule: ClosedStopRule::Fails(share), most, drain: Duration::ZERO, ..arm };
            self.agenda.push_back(ClosedStep::RunTrial(arm));
        }
        self.offer(purpose, clients, lasting);
    }

    pub(super) fn plan_knee(&mut self) {
        let verdict = self.outcome.unwrap_or(SearchOutcome::Found);
        let Some(saturation) = self.saturation() else { return self.end(verdict) };
        let (enough, short) = (saturation.enough, saturation.below.unwrap_or(0));
        let near = enough <= short.saturating_add(1) || f64::from(enough) <= KNEE.1 * f64::from(short);
        let spent = self.elapsed >= self.since + self.profile.knee_budget || self.turn >= TURNS;
        if near || spent {
            return self.end(verdict);
        }
        self.turn += 1;
        let clients = (f64::from(enough) * f64::from(short)).sqrt().round() as u32;
        self.armed(TrialPurpose::LatencyBreakingRate, clients.clamp(short + 1, enough - 1), (KNEE.0, KNEE.0));
    }
}

/// Late answers come together where a target pauses; a trial that met no pause knows less than its answers are many. What clustering
/// trials showed that had some late answers holds for all.
fn clustered(witnesses: &[WeightedEvidence]) -> Vec<WeightedEvidence> {
    let some =
        witnesses.iter().filter(|witness| witness.late_weight > 0.0).map(|witness| witness.evidence.late);
    let known = some.filter(|late| late.count > 0.0 && late.count < late.of);
    let (sum, count) = known.fold((0.0, 0.0), |(sum, count), late| (sum + late.inflation, count + 1.0));
    let pooled = if count > 0.0 { sum / count } else { 0.0 };
    let mut all = witnesses.to_vec();
    for witness in &mut all {
        let late = &mut witness.evidence.late;
        late.inflation = late.inflation.max(pooled);
    }
    all
}

/// The greatest whole numbers that the bounds leave below a limit.
pub(super) fn whole(limit: &Bracket) -> (u32, u32) {
    (limit.lower as u32, limit.upper as u32)
}
