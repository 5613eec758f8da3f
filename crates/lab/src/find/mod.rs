//! Finds the rate at which a target breaks, and why: a whole run on any driver.
//!
//! [`find`] calibrates the generator, searches, looks for the cause, and builds a [`find_report::FindReport`]. It takes each step
//! of the search and of the inquiry itself. So a [`progress::FindWatcher`] sees each step, and the whole run stays within the
//! budget of the [`plan::FindPlan`].
//!
//! - [`report_builder`] builds the report, and [`read_report`] reads it back.
//! - [`resume`] restores the search of an earlier run.
//! - [`compare`] compares two runs.
//! - [`server_evidence`] reads the target's own data meanwhile.
//! - [`closed_loop`] searches for a number of clients instead of a rate.
//!
//! This module knows no sockets, clocks, pages or exit codes: the driver reports how long each step took. The tool calls it.

pub mod closed_loop;
pub mod compare;
pub mod find_report;
pub mod plan;
pub mod progress;
pub mod read_report;
pub mod report_builder;
pub mod resume;
pub mod server_evidence;
mod steps;
#[cfg(test)]
mod tests;

use std::time::Duration;

use seawall_cause::experiment_selection::{self, Inquiry, SearchFindings};
use seawall_search::report::{SearchOutcome, SearchReport};
use seawall_search::search::{self, RateSearch};

use self::find_report::{
    BudgetGrant, FindOutcome, FindReport, FindStopReason, GeneratorCapacity, ReportedVerdict,
};
use self::plan::FindPlan;
use self::progress::{FindStep, FindWatcher};
use self::resume::ResumeError;
use self::steps::StepRunner;
use crate::target_driver::{Calibration, TargetDriver};

/// Runs a search, or continues an earlier run.
///
/// # Errors
/// [`ResumeError`]: the earlier run cannot be continued. Then nothing was sent.
pub fn find(
    ground: &mut (impl TargetDriver + ?Sized),
    plan: &FindPlan,
    before: Option<&FindReport>,
    watcher: &mut impl FindWatcher,
) -> Result<FindReport, ResumeError> {
    let mut earlier = before.map(|before| ResumeState::of(plan, before)).transpose()?;
    if let (Some(whole), Some(earlier)) = (before, &mut earlier)
        && is_whole(plan, whole, earlier)
    {
        return Ok(whole.clone());
    }
    let mut steps = StepRunner::new(plan, watcher);
    // A run that was stopped before its first trial did not measure the generator either.
    let earlier = match earlier.filter(|earlier| earlier.search.last_trial().is_some()) {
        Some(earlier) => earlier,
        None => match calibrate(ground, &mut steps) {
            (generator, false) => ResumeState::none(plan, generator),
            (generator, true) => return Ok(report_builder::unstarted_report(plan, generator, steps.spent())),
        },
    };
    let ResumeState { generator, mut search, mut grants, took } = earlier;
    let until = steps.remaining_budget().map(|left| plan.search_budget(left));
    grants.push(grant(&mut search, plan, until));
    let mut cut = steps.run_search(ground, &mut search, until);
    let is_shortened = plan.shortens_search(until);
    // Without a limit there is no cause to look for, so the search gets part of the reserved time. It may find a limit then.
    let has_time = matches!(cut, Some(FindStopReason::Budget | FindStopReason::Inconclusive))
        || cut.is_none() && report_builder::is_contradicted(&search.report());
    if has_time && plan.looks_for_cause && !report_builder::is_found(&search.report()) {
        // The search is rebuilt with its new budget, in the same way as for a run that is continued from its file.
        let so_far = FindReport {
            generator_capacity: generator.clone(),
            budget_log: grants.clone(),
            ..report_builder::search_report(plan, &search.report(), cut)
        };
        search = resume::restore_search(plan, &so_far)?;
        let until = steps.remaining_budget().map(|left| left / 3);
        grants.push(grant(&mut search, plan, until));
        cut = steps.run_search(ground, &mut search, until);
    }
    // A search with less time than its profile asks for was ended by the budget. A search with all of its time ended by itself.
    if cut == Some(FindStopReason::Inconclusive) && is_shortened {
        cut = Some(FindStopReason::Budget);
    }
    let report = search.report();
    let mut answer = report_builder::search_report(plan, &report, cut);
    (answer.generator_capacity, answer.budget_log) = (generator, grants);
    if plan.looks_for_cause {
        look_for_cause(ground, plan, &report, &mut answer, &mut steps);
    }
    answer.duration_seconds = (took + steps.spent()).as_secs_f64();
    Ok(answer)
}

/// Returns the report of a run before anything is sent.
#[must_use]
pub fn empty_report(plan: &FindPlan) -> FindReport {
    FindReport {
        stop_reason: None,
        ..report_builder::unstarted_report(plan, GeneratorCapacity::default(), Duration::ZERO)
    }
}

/// Returns true if an earlier run left nothing to do, so that [`find`] would send nothing.
///
/// # Errors
/// [`ResumeError`], as for [`find`].
pub fn has_nothing_left(plan: &FindPlan, before: &FindReport) -> Result<bool, ResumeError> {
    Ok(is_whole(plan, before, &mut ResumeState::of(plan, before)?))
}

/// Returns true if an earlier run left nothing to do. The program does not repeat what that run decided.
fn is_whole(plan: &FindPlan, before: &FindReport, earlier: &mut ResumeState) -> bool {
    let asked = !plan.looks_for_cause || before.cause.is_some() || !before.is_found();
    before.stop_reason.is_none()
        && asked
        && !is_open(before)
        && earlier.search.next_step() == search::SearchStep::Finished
}

/// Returns whether more trials may give an earlier run the answer that it did not find.
fn is_open(before: &FindReport) -> bool {
    match before.outcome {
        FindOutcome::Undecided => true,
        // Otherwise the target sustained the highest rate that the generator can send.
        FindOutcome::GeneratorLimited => {
            before.trials.last().is_some_and(|trial| trial.invalid_reason.is_some())
        }
        _ => false,
    }
}

/// The state of a search before this run sends anything.
struct ResumeState {
    generator: GeneratorCapacity,
    search: RateSearch,
    grants: Vec<BudgetGrant>,
    took: Duration,
}

impl ResumeState {
    /// Returns the state at the start of a new run.
    fn none(plan: &FindPlan, generator: GeneratorCapacity) -> Self {
        let search = RateSearch::new(plan.goal, plan.profile, plan.bounds(generator.max_rate));
        Self { generator, search, grants: Vec::new(), took: Duration::ZERO }
    }

    /// Restores the state in which an earlier run ended.
    fn of(plan: &FindPlan, before: &FindReport) -> Result<Self, ResumeError> {
        let search = resume::restore_search(plan, before)?;
        let (generator, grants) = (before.generator_capacity.clone(), before.budget_log.clone());
        let took = resume::duration_from_seconds(before.duration_seconds)?;
        Ok(Self { generator, search, grants, took })
    }
}

/// Measures the generator's capacity. Also returns true if the run is to stop.
fn calibrate(
    ground: &mut (impl TargetDriver + ?Sized),
    steps: &mut StepRunner<'_, impl FindWatcher>,
) -> (GeneratorCapacity, bool) {
    let Calibration { max_rate: most, explanation: how, interrupted, .. } =
        steps.step(FindStep::CalibrateGenerator, || ground.calibrate(), |calibration| calibration.took);
    (GeneratorCapacity { max_rate: most, method: how }, interrupted)
}

/// Sets the time budgets of the search from now on and returns them.
fn grant(search: &mut RateSearch, plan: &FindPlan, until: Option<Duration>) -> BudgetGrant {
    let report = search.report();
    let (cliff, knee) = plan.split_budget(until);
    let cliff = report.took + cliff;
    search.set_budgets(cliff, knee);
    BudgetGrant {
        after_trials: report.trials.len(),
        breaking_rate_seconds: cliff.as_secs_f64(),
        latency_breaking_rate_seconds: knee.as_secs_f64(),
    }
}

/// Looks for the cause if there is a limit and the target still responds.
fn look_for_cause(
    ground: &mut (impl TargetDriver + ?Sized),
    plan: &FindPlan,
    report: &SearchReport,
    answer: &mut FindReport,
    steps: &mut StepRunner<'_, impl FindWatcher>,
) {
    if answer.outcome == FindOutcome::GeneratorLimited {
        report_builder::blame_generator(answer);
    }
    let lacked_ports = report_builder::highest_port_limited_rate(answer);
    let limit = lacked_ports.or_else(|| broken_at(report, answer));
    let Some(limit) = limit.filter(|_| answer.stop_reason != Some(FindStopReason::Signal)) else {
        return;
    };
    // Connections of the search may fill the backlog and would keep those of the inquiry out.
    ground.close_connections();
    if lacked_ports.is_none() && steps.wait_until_answering(ground, limit) {
        answer.stop_reason = Some(FindStopReason::Signal);
        return;
    }
    let mut inquiry = Inquiry::new(SearchFindings {
        limit_rate: limit,
        service_time: report_builder::baseline_response_time(report).unwrap_or(0.0),
        timeout: plan.timeout.map_or(f64::INFINITY, |timeout| timeout.as_secs_f64()),
        failure_share_at_any_rate: report_builder::load_independent_error_share(report),
        keep_alive: plan.connections.keep_alive,
        tls: plan.target_info.uses_tls,
        target_is_name: plan.target_info.has_host_name,
        max_rate: plan.max_rate,
        generator_max_rate: answer.generator_capacity.max_rate,
        time_budget: steps.remaining_budget().unwrap_or(Duration::MAX),
    });
    let cut = steps.run_inquiry(ground, &mut inquiry, answer);
    if cut == Some(FindStopReason::Budget) {
        let next = inquiry.next_step();
        report_builder::add_not_run(
            answer,
            if let experiment_selection::InquiryStep::RunExperiment(next) = &next {
                Some(next.name)
            } else {
                None
            },
        );
    }
    answer.stop_reason = cut.or(answer.stop_reason);
    let tell = if lacked_ports.is_some() {
        report_builder::add_port_findings
    } else {
        report_builder::add_diagnosis
    };
    tell(answer, inquiry.report());
}

/// Returns whether at least two trials of a run without a limit were bad, and no signal stopped the run.
fn is_broken_twice(answer: &FindReport) -> bool {
    let bad =
        answer.trials.iter().filter(|trial| trial.verdict == ReportedVerdict::Bad && trial.weight > 0.1);
    matches!(answer.outcome, FindOutcome::Undecided | FindOutcome::Interrupted)
        && answer.stop_reason != Some(FindStopReason::Signal)
        && bad.count() > 1
}

/// Returns the rate at which the target breaks: the cliff, or the knee if nothing broke, or the highest offered rate if the goal
/// is missed at any rate. It is none if experiments would have no reference.
fn broken_at(report: &SearchReport, answer: &FindReport) -> Option<f64> {
    match report.outcome {
        Some(SearchOutcome::GoalUnreachable) => report_builder::highest_offered_rate(report),
        _ if answer.is_found() => {
            let FindReport { breaking_rate: cliff, latency_breaking_rate: knee, .. } = answer;
            cliff.estimate.or(cliff.lowest_bad_rate).or(knee.estimate).or(knee.lowest_bad_rate)
        }
        // The target breaks, although the limit is unknown. The experiments show how it breaks.
        _ if is_broken_twice(answer) => answer.breaking_rate.estimate,
        _ => None,
    }
}
