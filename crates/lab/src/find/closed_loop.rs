//! Searches for a number of clients instead of a rate. Each client waits for its response before it sends again.
//!
//! [`find`] searches within the plan's budget and builds a [`FindReport`]. It has [`FindReport::closed_loop`] instead of cliff
//! and knee. The run does not calibrate the generator, because it needs no rate; each trial is judged by itself. It does not look
//! for the cause either: the experiments on causes offer rates from users who do not wait. The tool calls it.

use std::time::Duration;

use seawall_search::closed_loop::{self as search, ClosedReport, ClosedSearch};
use seawall_search::observation::{BLOCK_SECONDS, sum};
use seawall_search::report::SearchOutcome as Ended;
use seawall_search::search::RateSearch as OfRates;
use seawall_search::search_profile::Profile;
use seawall_search::trial_verdict;

use super::find_report::{
    ClosedLoopResult, FindOutcome, FindReport, FindStopReason, GeneratorCapacity, ReportedMaxClients,
    ReportedSaturationPoint, ReportedTrial,
};
use super::plan::FindPlan;
use super::progress::FindWatcher;
use super::report_builder;
use super::steps::StepRunner;
use crate::target_driver::TargetDriver;

/// The default maximum number of clients. Without a latency objective, a queue holds any number of clients.
pub const DEFAULT_MAX_CLIENTS: u32 = 4096;

/// The time of a search in addition to its profile: the baseline, a ramp up to [`DEFAULT_MAX_CLIENTS`], and the last trial at the lower
/// bound.
const AROUND: Duration = Duration::from_secs(35);

/// Runs a search with at most this many clients.
pub fn find(
    ground: &mut (impl TargetDriver + ?Sized),
    plan: &FindPlan,
    most: Option<u32>,
    watcher: &mut impl FindWatcher,
) -> FindReport {
    let asked = most.unwrap_or(DEFAULT_MAX_CLIENTS);
    let room = ground.max_clients();
    let mut search = ClosedSearch::new(plan.goal, within(plan), asked.min(room));
    let mut steps = StepRunner::new(plan, watcher);
    let cut = steps.run_client_search(ground, &mut search);
    let answer = build_report(plan, &search.report(), cut, room < asked);
    let how = format!(
        "not measured, but each trial checks whether the generator keeps up; this machine can run {room} clients"
    );
    let generator = GeneratorCapacity { max_rate: None, method: how };
    FindReport { generator_capacity: generator, duration_seconds: steps.spent().as_secs_f64(), ..answer }
}

/// Returns the profile, shortened to the available time.
fn within(plan: &FindPlan) -> Profile {
    let profile = plan.profile;
    let whole = profile.cliff_budget + profile.knee_budget + AROUND;
    let share = plan.budget.map_or(1.0, |budget| (budget.as_secs_f64() / whole.as_secs_f64()).min(1.0));
    let (budget, knee_budget) = (profile.cliff_budget.mul_f64(share), profile.knee_budget.mul_f64(share));
    Profile { cliff_budget: budget, knee_budget, ..profile }
}

/// Returns the reason why a finished search ended early.
pub(super) fn stop_reason(search: &ClosedSearch) -> Option<FindStopReason> {
    (search.report().outcome == Some(Ended::Interrupted)).then_some(FindStopReason::Signal)
}

/// Builds the report of a search for clients. `is_short` means that the generator could not run all the clients that were asked for.
pub(super) fn build_report(
    plan: &FindPlan,
    report: &ClosedReport,
    cut: Option<FindStopReason>,
    is_short: bool,
) -> FindReport {
    // All other fields are empty, as before a search for a rate.
    let nothing = OfRates::new(plan.goal, plan.profile, plan.bounds(None)).report();
    let outcome = outcome(report, is_short);
    FindReport {
        outcome,
        closed_loop: Some(ClosedLoopResult {
            max_clients: report.max_clients,
            service_time_seconds: Some(report.service_time).filter(|service| *service > 0.0),
            client_limit: limit(report, outcome),
            saturation: report.saturation.map(saturation),
        }),
        failure_mode: report.failure_mode.map(Into::into),
        trials: report.trials.iter().map(build_reported_trial).collect(),
        ..report_builder::search_report(plan, &nothing, cut)
    }
}

/// Returns the outcome. A search without time left has found the limit if it lies between two tested numbers. If the target
/// sustained all clients that the generator can run, the generator was the limit.
fn outcome(report: &ClosedReport, is_short: bool) -> FindOutcome {
    let is_tested = report.limit.lower_estimate_upper.is_some()
        && report.limit.highest_good.is_some()
        && report.limit.lowest_bad.is_some();
    match report.outcome {
        Some(Ended::Found) => FindOutcome::Found,
        Some(Ended::Metastable) => FindOutcome::Metastable,
        Some(Ended::NoLimitFound) if is_short => FindOutcome::GeneratorLimited,
        Some(Ended::NoLimitFound) => FindOutcome::NoLimitFound,
        Some(Ended::GeneratorLimited) => FindOutcome::GeneratorLimited,
        Some(Ended::GoalUnreachable) => FindOutcome::UnstableBaseline,
        Some(Ended::TargetDied) => FindOutcome::TargetDied,
        None if is_tested => FindOutcome::Found,
        Some(Ended::Interrupted) | None => FindOutcome::Interrupted,
    }
}

/// Returns the reported limit. It has a bracket only if the search tested numbers on both sides of the limit.
fn limit(report: &ClosedReport, outcome: FindOutcome) -> ReportedMaxClients {
    let search::ClientLimit { lower_estimate_upper: bracket, highest_good: good, lowest_bad: bad } =
        report.limit;
    let is_between = !matches!(
        outcome,
        FindOutcome::NoLimitFound
            | FindOutcome::GeneratorLimited
            | FindOutcome::UnstableBaseline
            | FindOutcome::TargetDied
    );
    let bracket = bracket.filter(|_| is_between && bad.is_some());
    let held = report.trials.iter().filter(|trial| {
        Some(trial.spec.clients) == good
            && trial.counts_for_limit
            && trial.trial_verdict != trial_verdict::TrialVerdict::Bad
    });
    ReportedMaxClients {
        lower: bracket.map(|[lower, ..]| lower),
        estimate: bracket.map(|[lower, point, upper]| point.clamp(lower, upper)),
        upper: bracket.map(|[.., upper]| upper),
        most_good_clients: good,
        held_seconds: held.map(|held| build_reported_trial(held).sending_seconds()).reduce(f64::max),
        fewest_bad_clients: bad,
    }
}

fn saturation(found: search::SaturationPoint) -> ReportedSaturationPoint {
    let search::SaturationPoint {
        rate,
        deviation,
        sufficient_clients: enough,
        insufficient_clients: short,
        littles_law_clients: little,
        is_confirmed: reached,
    } = found;
    ReportedSaturationPoint {
        rate,
        standard_deviation: deviation,
        clients: enough,
        highest_unsaturated_clients: short,
        littles_law_clients: little,
        is_confirmed: reached,
    }
}

/// Returns a trial as the report has it.
pub(super) fn build_reported_trial(trial: &search::ClosedTrial) -> ReportedTrial {
    let (evidence, blocks) = (&trial.evidence.evidence, &trial.seen.blocks);
    let seconds = (blocks.len() as f64 * BLOCK_SECONDS).max(BLOCK_SECONDS);
    ReportedTrial {
        purpose: report_builder::purpose_name(trial.spec.purpose).to_owned(),
        rate: sum(blocks, |block| block.ended_count()) / seconds,
        clients: Some(trial.spec.clients),
        start_seconds: trial.began.as_secs_f64(),
        duration_seconds: trial.seen.took.as_secs_f64(),
        verdict: trial.trial_verdict.into(),
        reason: why(trial),
        failure_mode: trial.failure_mode.map(Into::into),
        weight: f64::from(u8::from(trial.counts_for_limit)),
        goodput: evidence.goodput,
        error_ratio: evidence.errors.value(),
        top_failure: report_builder::top_failure(&trial.seen.details),
        response_seconds: report_builder::response_times(&trial.seen.details),
        late_ratio: is_judged_late(trial).then(|| evidence.late.value()),
        invalid_reason: trial.seen.invalid_reason.clone(),
        generator_delay: None,
        port_exhaustions: trial.seen.requests_without_port,
        is_target_down: trial.seen.target_is_down,
        is_interrupted: trial.seen.interrupted,
        blocks: blocks.iter().map(report_builder::build_reported_block).collect(),
    }
}

/// Returns true if the trial judged lateness. Without a latency goal, only failures count as late.
fn is_judged_late(trial: &search::ClosedTrial) -> bool {
    trial.spec.criteria.goal.latency_goal.is_some() && trial.evidence.evidence.late.total > 0.0
}

/// Describes the figures that led to the verdict on a trial.
fn why(trial: &search::ClosedTrial) -> String {
    if let Some(invalid) = &trial.seen.invalid_reason {
        return invalid.clone();
    }
    let evidence = &trial.evidence.evidence;
    let errors = report_builder::describe_errors(evidence.errors, &trial.seen.details);
    let late = format!("{} late responses", report_builder::format_percent(evidence.late.value()));
    match trial.trial_verdict {
        _ if trial.evidence.most_clients_hang => "most requests got no response".to_owned(),
        trial_verdict::TrialVerdict::Good => "sustained".to_owned(),
        _ if is_judged_late(trial) => format!("{errors}, {late}"),
        _ => errors,
    }
}
