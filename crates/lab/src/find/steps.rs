//! Takes the steps of a search and of an inquiry, one after the other, within a budget, and reports each to a watcher.
//!
//! If little time is left, a trial is shortened, provided that a shorter one is worth as much per second. A trial is not begun if
//! it would be useless when cut short, or if there is no time for the trial that must follow.

mod closed_loop;

use std::time::Duration;

use seawall_cause::experiment::{Experiment, ExperimentLoad};
use seawall_cause::experiment_selection::{self, Inquiry};
use seawall_cause::experiment_target::ExperimentTarget;
use seawall_search::search::{self, RateSearch};
use seawall_search::target::SearchTarget;
use seawall_search::trial_spec::{StopRule, TrialPurpose, TrialSpec};

use super::find_report::{FindReport, FindStopReason};
use super::plan::FindPlan;
use super::progress::{BudgetStatus, FindStep, FindWatcher};
use super::report_builder;

/// Runs steps, counts their time and reports them to a watcher.
pub(super) struct StepRunner<'w, W> {
    plan: &'w FindPlan,
    spent: Duration,
    watcher: &'w mut W,
}

/// The shortest useful trial at a rate.
const SHORTEST: Duration = Duration::from_millis(2200);

/// The single requests per second before an inquiry. They are few for any target, unless its limit is lower.
const SINGLE: f64 = 10.0;
/// The maximum time for which these single requests are sent.
const PATIENCE: Duration = Duration::from_secs(5);

impl<'w, W: FindWatcher> StepRunner<'w, W> {
    pub(super) fn new(plan: &'w FindPlan, watcher: &'w mut W) -> Self {
        Self { plan, spent: Duration::ZERO, watcher }
    }

    pub(super) fn spent(&self) -> Duration {
        self.spent
    }

    /// Returns the remaining budget; none without a budget.
    pub(super) fn remaining_budget(&self) -> Option<Duration> {
        self.plan.budget.map(|budget| budget.saturating_sub(self.spent))
    }

    fn time(&self) -> BudgetStatus {
        BudgetStatus { spent: self.spent, left: self.remaining_budget() }
    }

    /// Runs one step that has no trial to report.
    pub(super) fn step<T>(
        &mut self,
        step: FindStep<'_>,
        make: impl FnOnce() -> T,
        took: impl FnOnce(&T) -> Duration,
    ) -> T {
        self.watcher.step_started(&step, self.time());
        let made = make();
        self.spent += took(&made);
        self.watcher.step_finished(&step, None, self.time());
        made
    }

    /// Searches to the end, or until this much more time is spent. Returns the reason if the search ended early.
    pub(super) fn run_search(
        &mut self,
        target: &mut (impl SearchTarget + ?Sized),
        search: &mut RateSearch,
        until: Option<Duration>,
    ) -> Option<FindStopReason> {
        let end = until.map(|until| self.spent + until);
        loop {
            let left = end.map_or(Duration::MAX, |end| end.saturating_sub(self.spent));
            let cut = match search.next_step() {
                search::SearchStep::Finished => return report_builder::stop_reason(search),
                search::SearchStep::Pause(time) if time > left => Some(FindStopReason::Budget),
                search::SearchStep::Pause(time) => {
                    let goes_on = self.step(FindStep::Pause(time), || target.rest(time), |_| time);
                    search.record_pause(time, goes_on);
                    None
                }
                search::SearchStep::RunTrial(offer) => self.offer(target, search, offer, left),
            };
            if cut.is_some() {
                return cut;
            }
        }
    }

    fn offer(
        &mut self,
        target: &mut (impl SearchTarget + ?Sized),
        search: &mut RateSearch,
        offer: TrialSpec,
        left: Duration,
    ) -> Option<FindStopReason> {
        let Some(fitted) = fitted(&offer, left) else { return Some(FindStopReason::Budget) };
        self.watcher.step_started(&FindStep::RateTrial(&fitted), self.time());
        let seen = target.carry_out(&fitted);
        self.spent += seen.took;
        // If the wait was cut short, the recovery of the target is unknown.
        let unfinished = fitted.purpose == TrialPurpose::RecoveryProbe
            && fitted.max_duration < offer.max_duration
            && seen.took >= fitted.max_duration;
        if unfinished && !seen.interrupted {
            return Some(FindStopReason::Budget);
        }
        search.record_trial(&fitted, seen);
        let came = search.last_trial().map(report_builder::build_reported_trial);
        self.watcher.step_finished(&FindStep::RateTrial(&fitted), came.as_ref(), self.time());
        self.watcher.report_changed(&|| report_builder::search_report(self.plan, &search.report(), None));
        None
    }

    /// Sends single requests to a target that breaks at this rate, until some get good responses or the time is over. Returns
    /// true if the run is to stop.
    pub(super) fn wait_until_answering(
        &mut self,
        target: &mut (impl SearchTarget + ?Sized),
        limit: f64,
    ) -> bool {
        let (rate, most) = (SINGLE.min(limit / 2.0), PATIENCE);
        let offer = TrialSpec {
            purpose: TrialPurpose::RecoveryProbe,
            rate,
            min_duration: Duration::ZERO,
            max_duration: most,
            rule: StopRule::FastResponses(f64::INFINITY),
            in_flight_cap: rate * most.as_secs_f64(),
            drain: Duration::ZERO,
        };
        if !rate.is_normal() || self.remaining_budget().is_some_and(|left| most > left) {
            return false;
        }
        let step = FindStep::Experiment("waiting for a response");
        self.step(step, || target.carry_out(&offer), |seen| seen.took).interrupted
    }

    /// Runs the inquiry to its end, or to the end of the budget. `found` is the report of the search. Returns the reason if the
    /// inquiry ended early.
    pub(super) fn run_inquiry(
        &mut self,
        subject: &mut (impl ExperimentTarget + ?Sized),
        inquiry: &mut Inquiry,
        found: &FindReport,
    ) -> Option<FindStopReason> {
        loop {
            let left = self.remaining_budget().unwrap_or(Duration::MAX);
            match inquiry.next_step() {
                experiment_selection::InquiryStep::Finished => return None,
                experiment_selection::InquiryStep::Pause(time) if time > left => {
                    return Some(FindStopReason::Budget);
                }
                experiment_selection::InquiryStep::Pause(time) => {
                    let goes_on = self.step(FindStep::Pause(time), || subject.pause(time), |_| time);
                    inquiry.record_pause(time, goes_on);
                    if !goes_on {
                        return Some(FindStopReason::Signal);
                    }
                }
                experiment_selection::InquiryStep::RunExperiment(experiment)
                    if longest(&experiment) > left =>
                {
                    return Some(FindStopReason::Budget);
                }
                experiment_selection::InquiryStep::RunExperiment(experiment) => {
                    let step = FindStep::Experiment(experiment.name);
                    let watched =
                        self.step(step, || subject.run_experiment(&experiment), |watched| watched.took);
                    let interrupted = watched.interrupted;
                    inquiry.record_experiment(&experiment, watched);
                    self.watcher.report_changed(&|| {
                        report_builder::with_experiments(found.clone(), inquiry.report())
                    });
                    if interrupted {
                        return Some(FindStopReason::Signal);
                    }
                }
            }
        }
    }
}

/// Returns the trial, shortened to the available time; none if the time is too short.
fn fitted(offer: &TrialSpec, left: Duration) -> Option<TrialSpec> {
    let left = left.saturating_sub(offer.drain);
    let needed = match offer.purpose {
        TrialPurpose::Recovery | TrialPurpose::RepeatAfterIdle => offer.max_duration,
        // An overload is useless without time for the next trial.
        TrialPurpose::BurstDrain => offer.max_duration + SHORTEST,
        TrialPurpose::Baseline | TrialPurpose::RecoveryProbe => offer.min_duration,
        _ => SHORTEST.min(offer.max_duration),
    };
    (needed <= left).then(|| TrialSpec { max_duration: offer.max_duration.min(left), ..*offer })
}

/// Returns the longest duration of an experiment.
fn longest(experiment: &Experiment) -> Duration {
    let lasts = match experiment.load {
        ExperimentLoad::Rate { lasts, .. } | ExperimentLoad::Clients { lasts, .. } => lasts,
        ExperimentLoad::Bursts { times, every, quiet, .. } => {
            quiet + every.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX))
        }
    };
    lasts + experiment.drain
}
