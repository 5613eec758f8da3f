//! A run that has begun, wherever its senders are: what the attack needs of it to show, steer, write down and judge it.

use seawall_lab::objective::Objectives;
use seawall_lab::running_trial::{RunningTrial, TrialResult};
use seawall_load::control::Control;
use seawall_load::interval::IntervalStats;

use super::pods::{AttackPodStatus, PodTracker};

/// A run under way. Dropping it ends it.
pub(crate) trait RunningAttack {
    /// The hand on it.
    fn control(&self) -> Control;

    /// When its first instant is, in nanoseconds since the Unix epoch.
    fn began_unix_ns(&self) -> i64;

    /// What is known of its pods while it goes on; nothing where there are none.
    fn pods(&self) -> PodTracker {
        PodTracker::default()
    }

    /// Sees it to its end, news by news.
    fn watch(&mut self, each: &mut dyn FnMut(RunUpdate<'_>));

    /// Ends the attack and judges its outcome.
    fn finish(self: Box<Self>, objectives: Option<&Objectives>) -> FinishedAttack;
}

/// What is new of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunUpdate<'a> {
    /// What was measured next.
    IntervalMeasured(&'a IntervalStats),
    /// Something of its pods that somebody should know at once.
    PodsChanged,
}

/// A run that is over.
pub(crate) struct FinishedAttack {
    /// What it came to.
    pub(crate) trial_result: TrialResult,
    /// What each pod came to; none where there are no pods.
    pub(crate) pods: Vec<AttackPodStatus>,
    /// What pods could not do of what they were to do, in words.
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
