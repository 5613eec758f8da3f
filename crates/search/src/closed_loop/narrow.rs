//! Chooses the number of clients: first trials that narrow the bracket of the limit, then trials that find the saturation.

use std::time::Duration;

use super::trial_spec::{ClosedStopRule, ClosedTrialSpec};
use super::{ClosedSearch, ClosedStep, Phase, RANGE};
use crate::limit_posterior::{Bracket, LimitKind, LimitPosterior, WeightedEvidence};
use crate::report::SearchOutcome;
use crate::trial_spec::TrialPurpose;
use crate::trial_verdict::{FailureMode, TrialVerdict};

/// The most trials of one phase. With few clients, the whole-number bracket is narrow long before.
const TURNS: usize = 40;
/// The share of the lower bound that a confirmed number of clients must reach.
const HELD: f64 = 0.97;
/// The factor of the upper bound up to which a bad trial confirms that bound; below, the factor above it at which such a trial runs.
const BROKE: f64 = 1.1;
const BEYOND: f64 = 1.03;
/// Settings of the trial that empties a refilling allowance: a multiple of the upper bound, the share of failures that ends it, its longest
/// duration.
const ARM: (f64, f64, Duration) = (2.0, 0.15, Duration::from_secs(4));
/// The shortest trial of the limit after settling.
const LEAST: Duration = Duration::from_secs(3);
/// The most attempts to break the target again without its allowance.
const AGAIN: usize = 3;
/// Settings of saturation trials: the duration after settling, and the ratio of the two numbers of clients that is close enough.
const KNEE: (Duration, f64) = (Duration::from_secs(2), 1.1);

impl ClosedSearch {
    pub(super) fn plan_next_limit_trial(&mut self) {
        self.believe();
        if self.hangs() || self.turn >= TURNS {
            return self.leave(SearchOutcome::Found);
        }
        let Some(limit) = self.bracket else { return self.break_again() };
        let (lower, upper) = whole_client_bounds(&limit);
        let spent = self.elapsed >= self.since + self.profile.cliff_budget;
        let narrow =
            upper <= lower || limit.width_relative_to_lower() <= self.profile.cliff_stop_bracket_width;
        if spent || narrow && self.held(lower) && self.broke(upper) {
            return self.leave(SearchOutcome::Found);
        }
        self.turn += 1;
        if narrow && !self.broke(upper) {
            // The curve alone must not determine the bracket, so a trial above the upper bound confirms it.
            let above = (BEYOND * f64::from(upper)).ceil() as u32;
            return self.armed(
                TrialPurpose::NarrowBracket,
                above.max(upper.saturating_add(1)),
                (LEAST, self.profile.max_trial_duration),
            );
        }
        if narrow {
            let hold = (self.profile.confirm_duration, self.profile.confirm_duration);
            return self.armed(TrialPurpose::Confirm, lower.max(1), hold);
        }
        let clients = self.next_clients(&limit);
        self.armed(TrialPurpose::NarrowBracket, clients, (LEAST, self.profile.max_trial_duration));
    }

    /// Repeats the number of clients that broke the target, now with an empty allowance.
    fn break_again(&mut self) {
        self.turn += 1;
        if self.turn > AGAIN {
            return self.leave(SearchOutcome::Found);
        }
        let clients = (self.range.1 / RANGE.1).round() as u32;
        self.armed(TrialPurpose::NarrowBracket, clients, (LEAST, self.profile.max_trial_duration));
    }

    fn leave(&mut self, outcome: SearchOutcome) {
        self.outcome = Some(outcome);
        self.enter(Phase::Saturation);
    }

    /// Computes the bracket. Errors or lateness count only if one trial broke the goal by them; otherwise they would only show the absence
    /// of a limit in the tested range. If clients hang, the number depends on the duration of a trial, so there is no bracket.
    fn believe(&mut self) {
        let counting = self.trials.iter().filter(|trial| trial.counts_for_limit);
        let breaks =
            counting.map(|trial| trial.spec.criteria.errors_and_lateness_exceed_goal(&trial.evidence));
        let (errors, late) = breaks.fold((false, false), |all, one| (all.0 || one.0, all.1 || one.1));
        let witnesses = clustered(&self.witnesses);
        let belief = LimitPosterior::new(&self.curves, self.service, &witnesses);
        let breaks = (errors || late) && !self.hangs();
        self.bracket = breaks.then(|| belief.bracket(LimitKind::WithoutGrowth { errors, late }, self.range));
    }

    fn hangs(&self) -> bool {
        self.trials.iter().any(|trial| trial.evidence.most_clients_hang)
    }

    /// Chooses a number near the lower bound, near the upper bound, or in the middle, in turn.
    fn next_clients(&self, limit: &Bracket) -> u32 {
        let clients = match self.turn % 3 {
            1 => (limit.lower * limit.estimate).sqrt().floor(),
            2 => (limit.upper * limit.estimate).sqrt().ceil(),
            _ => limit.estimate.round(),
        };
        (clients as u32).clamp(1, self.most)
    }

    /// Returns whether a confirming trial held the lower bound for the profile's time.
    fn held(&self, lower: u32) -> bool {
        self.trials.iter().any(|trial| {
            trial.spec.purpose == TrialPurpose::Confirm
                && trial.trial_verdict != TrialVerdict::Bad
                && f64::from(trial.spec.clients) >= HELD * f64::from(lower.max(1))
        })
    }

    /// Returns whether a number of clients slightly above the upper bound was too high.
    fn broke(&self, upper: u32) -> bool {
        let most = BROKE * (f64::from(upper) + 1.0);
        let bad = self
            .trials
            .iter()
            .filter(|trial| trial.counts_for_limit && trial.trial_verdict == TrialVerdict::Bad);
        bad.map(|trial| f64::from(trial.spec.clients)).any(|clients| clients <= most)
    }

    /// Schedules a trial, after one that empties the target's refilling allowance if it has one.
    fn armed(&mut self, purpose: TrialPurpose, clients: u32, lasting: (Duration, Duration)) {
        if self.kind.is_some_and(FailureMode::is_quota_like) {
            let (above, share, most) = ARM;
            let upper = self.bracket.map_or(f64::from(clients), |limit| limit.upper);
            let arm = self.trial(TrialPurpose::BurstDrain, (above * upper).ceil() as u32, (most, most));
            let arm = ClosedTrialSpec {
                rule: ClosedStopRule::FailingShare(share),
                max_duration: most,
                drain: Duration::ZERO,
                ..arm
            };
            self.agenda.push_back(ClosedStep::RunTrial(arm));
        }
        self.offer(purpose, clients, lasting);
    }

    pub(super) fn plan_next_saturation_trial(&mut self) {
        let verdict = self.outcome.unwrap_or(SearchOutcome::Found);
        let Some(saturation) = self.saturation() else { return self.end(verdict) };
        let (enough, short) = (saturation.sufficient_clients, saturation.insufficient_clients.unwrap_or(0));
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

/// Applies the clustering of late responses to all trials. Stalls of the target make late responses come together, and a trial without
/// stalls would otherwise look too certain. The mean clustering comes from the trials with some late responses.
fn clustered(witnesses: &[WeightedEvidence]) -> Vec<WeightedEvidence> {
    let some =
        witnesses.iter().filter(|witness| witness.late_weight > 0.0).map(|witness| witness.evidence.late);
    let known = some.filter(|late| late.count > 0.0 && late.count < late.total);
    let (sum, count) = known.fold((0.0, 0.0), |(sum, count), late| (sum + late.inflation, count + 1.0));
    let pooled = if count > 0.0 { sum / count } else { 0.0 };
    let mut all = witnesses.to_vec();
    for witness in &mut all {
        let late = &mut witness.evidence.late;
        late.inflation = late.inflation.max(pooled);
    }
    all
}

/// Rounds both bounds down to whole numbers of clients.
pub(super) fn whole_client_bounds(limit: &Bracket) -> (u32, u32) {
    (limit.lower as u32, limit.upper as u32)
}
