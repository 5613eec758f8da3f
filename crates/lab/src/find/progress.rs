//! The progress reports of a run.

use std::time::Duration;

use seawall_search::closed_loop;
use seawall_search::trial_spec::TrialSpec;

use super::find_report::{FindReport, ReportedTrial};

/// Observes each step of a run, at its start and at its end. The thread of the search calls it, so a slow watcher delays the run.
pub trait FindWatcher {
    /// A step begins.
    fn step_started(&mut self, step: &FindStep<'_>, time: BudgetStatus);

    /// A step has ended. `came` is its trial, if the step was one.
    fn step_finished(&mut self, step: &FindStep<'_>, came: Option<&ReportedTrial>, time: BudgetStatus);

    /// The report has changed. The argument builds the report so far, which takes a moment. It lacks the cause and the
    /// capacity of the generator.
    fn report_changed(&mut self, _so_far: &dyn Fn() -> FindReport) {}
}

/// Two watchers that observe the same steps, one after the other.
impl<A: FindWatcher, B: FindWatcher> FindWatcher for (A, B) {
    fn step_started(&mut self, step: &FindStep<'_>, time: BudgetStatus) {
        self.0.step_started(step, time);
        self.1.step_started(step, time);
    }

    fn step_finished(&mut self, step: &FindStep<'_>, came: Option<&ReportedTrial>, time: BudgetStatus) {
        self.0.step_finished(step, came, time);
        self.1.step_finished(step, came, time);
    }

    fn report_changed(&mut self, so_far: &dyn Fn() -> FindReport) {
        self.0.report_changed(so_far);
        self.1.report_changed(so_far);
    }
}

/// An optional watcher.
impl<W: FindWatcher> FindWatcher for Option<W> {
    fn step_started(&mut self, step: &FindStep<'_>, time: BudgetStatus) {
        self.iter_mut().for_each(|watcher| watcher.step_started(step, time));
    }

    fn step_finished(&mut self, step: &FindStep<'_>, came: Option<&ReportedTrial>, time: BudgetStatus) {
        self.iter_mut().for_each(|watcher| watcher.step_finished(step, came, time));
    }

    fn report_changed(&mut self, so_far: &dyn Fn() -> FindReport) {
        self.iter_mut().for_each(|watcher| watcher.report_changed(so_far));
    }
}

/// A step of the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FindStep<'a> {
    /// The generator's capacity is measured.
    CalibrateGenerator,
    /// A trial at a rate runs.
    RateTrial(&'a TrialSpec),
    /// A trial with a number of clients runs.
    ClosedLoopTrial(&'a closed_loop::ClosedTrialSpec),
    /// Nothing is sent for this time.
    Pause(Duration),
    /// An experiment with this name runs.
    Experiment(&'static str),
}

/// The used and the remaining part of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetStatus {
    /// The time since the start of the run.
    pub spent: Duration,
    /// The remaining budget; none without a budget.
    pub left: Option<Duration>,
}

/// A watcher that ignores all steps.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopWatcher;

impl FindWatcher for NoopWatcher {
    fn step_started(&mut self, _: &FindStep<'_>, _: BudgetStatus) {}

    fn step_finished(&mut self, _: &FindStep<'_>, _: Option<&ReportedTrial>, _: BudgetStatus) {}
}
