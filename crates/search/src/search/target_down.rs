//! Handles a target that is down, perhaps behind a proxy that still responds: it has crashed or restarts.
//!
//! Its observations then say nothing about a rate. The search waits for the target and repeats the trial. If the target goes down again at
//! the same or a higher rate, that rate crashes it.

use std::time::Duration;

use super::{RateSearch, SearchStep};
use crate::limit_posterior::Bracket;
use crate::observation::{BLOCKS_PER_SECOND, BlockCounts, TrialObservation, sum};
use crate::report::{RateTrial, SearchOutcome};
use crate::trial_spec::{StopRule, TrialPurpose, TrialSpec};
use crate::trial_verdict::{FailureMode, TrialVerdict};

/// The rate of requests to a target that is down, and their longest duration. A crashed container restarts after some seconds, and after
/// ten the next time (the kubelet's back-off, Kubernetes documentation of the Pod lifecycle).
const CALL: (f64, Duration) = (5.0, Duration::from_secs(20));
/// The factor of a crash rate from which another rate counts as the same.
const SAME: f64 = 0.98;
/// The number of unexplained outages that ends the search.
const OFTEN: usize = 6;

/// The number of blocks and the number of errors from which a target without good responses counts as down.
const MUTE: (usize, f64) = (3 * BLOCKS_PER_SECOND / 2, 10.0);

impl RateSearch {
    /// Learns that the target was down at the end of the last trial.
    pub(super) fn learn_target_down(&mut self) {
        let Some((last, before)) = self.trials.split_last() else { return };
        let (offer, at) = (last.spec, before.len());
        let outages = || before.iter().filter(|trial| trial.seen.target_is_down);
        let unexplained = outages().filter(|trial| trial.weight <= 0.0).count();
        if offer.purpose == TrialPurpose::RecoveryProbe || unexplained >= OFTEN {
            return self.end(SearchOutcome::TargetDied);
        }
        let is_brought_down = outages().any(|trial| {
            trial.failure_mode == Some(FailureMode::Crashing) || offer.rate >= SAME * trial.spec.rate
        });
        self.agenda.clear();
        self.agenda.push_back(SearchStep::RunTrial(self.call()));
        if is_brought_down && last.verdict == TrialVerdict::Bad {
            self.trials[at].failure_mode = Some(FailureMode::Crashing);
            self.learn(offer.purpose);
        } else {
            self.reweigh(at, 0.0);
            // Overload trials are not repeated: the next plan schedules them again if needed.
            if !matches!(offer.purpose, TrialPurpose::BurstDrain | TrialPurpose::Recovery) {
                self.agenda.push_back(SearchStep::RunTrial(offer));
            }
        }
    }

    /// Returns whether the target is down behind something that still responds, such as a proxy: no response is good, although an
    /// earlier trial at this rate or above had good responses. A rate limiter would still admit some requests.
    pub(super) fn is_down_behind_proxy(&self, offer: &TrialSpec, seen: &TrialObservation) -> bool {
        let answered = |blocks: &[BlockCounts]| sum(blocks, |block| block.good) > 0.0;
        let long = seen.blocks.len() >= MUTE.0 && sum(&seen.blocks, |block| block.errors) >= MUTE.1;
        let was_answered =
            || self.trials.iter().any(|trial| trial.spec.rate >= offer.rate && answered(&trial.seen.blocks));
        offer.purpose != TrialPurpose::BurstDrain && long && !answered(&seen.blocks) && was_answered()
    }

    /// Returns a bracket from the rates that the target survived and those that crashed it. The number of failures only shows
    /// when the target crashed.
    pub(super) fn crash_bracket(&self) -> Option<Bracket> {
        let died = |trial: &&RateTrial| trial.failure_mode == Some(FailureMode::Crashing);
        let upper = self.trials.iter().filter(died).map(|trial| trial.spec.rate).reduce(f64::min)?;
        let survived =
            self.trials.iter().filter(|trial| trial.weight > 0.1 && trial.verdict != TrialVerdict::Bad);
        let below = survived.map(|trial| trial.spec.rate).filter(|rate| *rate < upper);
        let lower = below.fold(self.range.0.min(upper), f64::max);
        Some(Bracket { lower, estimate: (lower * upper).sqrt(), upper })
    }

    /// Single requests until the target responds.
    fn call(&self) -> TrialSpec {
        let (rate, most) = CALL;
        let offer = self.trial(TrialPurpose::RecoveryProbe, rate, most);
        TrialSpec {
            min_duration: Duration::ZERO,
            rule: StopRule::FastResponses(f64::INFINITY),
            in_flight_cap: 200.0,
            ..offer
        }
    }
}
