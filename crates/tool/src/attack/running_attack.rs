//! A running attack, wherever its senders are: the interface to show, steer, record and judge it.

use seawall_lab::objective::Objectives;
use seawall_lab::running_trial::{RunningTrial, TrialResult};
use seawall_load::control::Control;
use seawall_load::interval::IntervalStats;

use super::generator_pods::{AttackPodStatus, PodTracker};

/// A running attack. Dropping it ends it.
pub(crate) trait RunningAttack {
    /// Returns the control handle of the attack.
    fn control(&self) -> Control;

    /// Returns the start of the attack, in nanoseconds since the Unix epoch.
    fn began_unix_ns(&self) -> i64;

    /// Returns the state of its pods, updated during the attack; empty if there are no pods.
    fn pods(&self) -> PodTracker {
        PodTracker::default()
    }

    /// Follows the attack to its end, and calls `each` for each update.
    fn watch(&mut self, each: &mut dyn FnMut(RunUpdate<'_>));

    /// Ends the attack and judges its outcome.
    fn finish(self: Box<Self>, objectives: Option<&Objectives>) -> FinishedAttack;
}

/// An update of a running attack.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunUpdate<'a> {
    /// The next measured interval.
    IntervalMeasured(&'a IntervalStats),
    /// The state of its pods has changed.
    PodsChanged,
}

/// A run that is over.
pub(crate) struct FinishedAttack {
    /// The result of the trial.
    pub(crate) trial_result: TrialResult,
    /// The final status of each pod; empty if there are no pods.
    pub(crate) pods: Vec<AttackPodStatus>,
    /// The errors of pods.
    pub(crate) pod_errors: Vec<String>,
}

impl RunningAttack for RunningTrial<'_> {
    fn control(&self) -> Control {
        RunningTrial::control(self)
    }

    fn began_unix_ns(&self) -> i64 {
        RunningTrial::began_unix_ns(self)
    }

    fn watch(&mut self, each: &mut dyn FnMut(RunUpdate<'_>)) {
        RunningTrial::run_to_end(self, &mut |interval: &IntervalStats| {
            each(RunUpdate::IntervalMeasured(interval));
        });
    }

    fn finish(self: Box<Self>, objectives: Option<&Objectives>) -> FinishedAttack {
        FinishedAttack {
            trial_result: RunningTrial::finish(*self, objectives),
            pods: Vec::new(),
            pod_errors: Vec::new(),
        }
    }
}
