//! A target of which nobody is there any more, or nobody but a proxy: it has died, or is started anew.
//!
//! What is seen of it then is no word on any rate. It is waited for, and what was asked is asked again; a target that goes away a second
//! time at a rate is brought down by it.

use std::time::Duration;

use super::{RateSearch, SearchStep};
use crate::belief::Bracket;
use crate::offer::{StopRule, TrialPurpose, TrialSpec};
use crate::report::{RateTrial, SearchOutcome};
use crate::seen::{BLOCKS_PER_SECOND, BlockCounts, TrialObservation, sum};
use crate::vote::{FailureMode, TrialVerdict};

/// How often a second somebody is called, and for how long: a container that died for the first time is started after some seconds,
/// and again after ten (the kubelet's back-off, Kubernetes documentation of the Pod lifecycle).
const CALL: (f64, Duration) = (5.0, Duration::from_secs(20));
/// A rate from here on, of one at which it went, is the same.
const SAME: f64 = 0.98;
/// Whoever goes away more often is not searched any more.
const OFTEN: usize = 6;

/// Nothing but errors for a second and a half, and no fewer.
const MUTE: (usize, f64) = (3 * BLOCKS_PER_SECOND / 2, 10.0);

impl RateSearch {
    /// Nobody was there at the end of the last trial.
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
            // Overloads before a trial and after the last one follow of what is planned next.
            if !matches!(offer.purpose, TrialPurpose::BurstDrain | TrialPurpose::Recovery) {
                self.agenda.push_back(SearchStep::RunTrial(offer));
            }
        }
    }

    /// Whether whoever is there, a proxy perhaps, has nobody to ask: nothing at all is answered well, and as much or more once was. A limiter lets
    /// through what it lets through, a window once a second.
    pub(super) fn is_unanswered(&self, offer: &TrialSpec, seen: &TrialObservation) -> bool {
        let answered = |blocks: &[BlockCounts]| sum(blocks, |block| block.good) > 0.0;
        let long = seen.blocks.len() >= MUTE.0 && sum(&seen.blocks, |block| block.errors) >= MUTE.1;
        let was_answered =
            || self.trials.iter().any(|trial| trial.spec.rate >= offer.rate && answered(&trial.seen.blocks));
        offer.purpose != TrialPurpose::BurstDrain && long && !answered(&seen.blocks) && was_answered()
    }

    /// How many failed says when it died, and nothing of what it bears: the rates that it survived and those that it did not are all that
    /// there is.
    pub(super) fn bracket_of_deaths(&self) -> Option<Bracket> {
        let died = |trial: &&RateTrial| trial.failure_mode == Some(FailureMode::Crashing);
        let upper = self.trials.iter().filter(died).map(|trial| trial.spec.rate).reduce(f64::min)?;
        let survived =
            self.trials.iter().filter(|trial| trial.weight > 0.1 && trial.verdict != TrialVerdict::Bad);
        let below = survived.map(|trial| trial.spec.rate).filter(|rate| *rate < upper);
        let lower = below.fold(self.range.0.min(upper), f64::max);
        Some(Bracket { lower, estimate: (lower * upper).sqrt(), upper })
    }

    /// Single requests until somebody answers.
    fn call(&self) -> TrialSpec {
        let (rate, most) = CALL;
        let offer = self.trial(TrialPurpose::RecoveryProbe, rate, most);
        TrialSpec {
            least: Duration::ZERO,
            rule: StopRule::Calm(f64::INFINITY),
            most_in_flight: 200.0,
            ..offer
        }
    }
}
