//! The progress reports of a run.

use std::time::Duration;

use seawall_search::closed_loop;
use seawall_search::trial_spec::TrialSpec;

use super::find_report::{FindReport, ReportedTrial};

/// Is told of each step when it begins and when it has ended. Called by the thread that runs the search: whoever takes long
/// here keeps the target waiting.
pub trait FindWatcher {
    /// A step begins.
    fn step_started(&mut self, step: &FindStep<'_>, time: BudgetStatus);

    /// It has ended, and this came of it; none where there is nothing to tell.
    fn step_finished(&mut self, step: &FindStep<'_>, came: Option<&ReportedTrial>, time: BudgetStatus);

    /// More is known than before. Who wants all of it asks for it, which takes a moment; of what the run came to it has neither the cause nor
    /// what the generator can do.
    fn report_changed(&mut self, _so_far: &dyn Fn() -> FindReport) {}
}

/// Two that hear the same, one after the other.
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

/// One who may not be there.
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
    /// The generator is looked at.
    Calibrate,
    /// This is offered.
    RateTrial(&'a TrialSpec),
    /// So many clients are kept busy.
    ClosedLoopTrial(&'a closed_loop::ClosedTrialSpec),
    /// Nothing is sent for so long.
    Pause(Duration),
    /// This experiment is carried out.
    Experiment(&'static str),
}

/// The used and the remaining part of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetStatus {
    /// Since the begin.
    pub spent: Duration,
    /// Of the budget; none: there is none.
    pub left: Option<Duration>,
}

/// Wants to know nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopWatcher;

impl FindWatcher for NoopWatcher {
    fn step_started(&mut self, _: &FindStep<'_>, _: BudgetStatus) {}

    fn step_finished(&mut self, _: &FindStep<'_>, _: Option<&ReportedTrial>, _: BudgetStatus) {}
}
