//! A run that looks for a number of clients, each of which waits for its answer before it asks again, in place of a rate.
//!
//! [`find`] searches within the plan's budget and makes an [`FindReport`] of what came of it: the same form, with [`FindReport::closed_loop`] where
//! cliff and knee would be. The generator is not looked at before, because no rate is asked of it; each trial is judged by itself. Nobody looks for
//! the cause: what tells causes apart is offered at rates, to users who do not wait, which is what a closed loop is not about. Called by the tool.

use std::time::Duration;

use seawall_search::closed_loop::{self as search, ClosedReport, ClosedSearch};
use seawall_search::observation::{BLOCK_SECONDS, sum};
use seawall_search::profile::Profile;
use seawall_search::report::SearchOutcome as Ended;
use seawall_search::search::RateSearch as OfRates;
use seawall_search::trial_verdict;

use super::find_report::{
    ClosedLoopResult, FindOutcome, FindReport, FindStopReason, GeneratorCapacity, ReportedClientLimit,
    ReportedSaturationPoint, ReportedTrial,
};
use super::plan::FindPlan;
use super::progress::FindWatcher;
use super::report_builder;
use super::steps::StepRunner;
use crate::target_driver::TargetDriver;

/// Most clients where nobody says otherwise: without a bound on latency a queue bears any number of them.
pub const MAX_CLIENTS: u32 = 4096;

/// Of a search, beside the times of its profile: the baseline, a ramp up to [`MAX_CLIENTS`], and the last look at the lower bound.
const AROUND: Duration = Duration::from_secs(35);

/// Carries out a run with so many clients at most.
pub fn find(
    ground: &mut (impl TargetDriver + ?Sized),
    plan: &FindPlan,
    most: Option<u32>,
    watcher: &mut impl FindWatcher,
) -> FindReport {
    let asked = most.unwrap_or(MAX_CLIENTS);
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

/// The profile with as much time as there is.
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
    // Everything that an answer has beside clients is empty, as it is before a search for a rate.
    let nothing = OfRates::new(plan.goal, plan.profile, plan.bounds(None)).report();
    let outcome = outcome(report, is_short);
    FindReport {
        outcome,
        closed_loop: Some(ClosedLoopResult {
            max_clients: report.most,
            service_time_seconds: Some(report.service_time).filter(|service| *service > 0.0),
            client_limit: limit(report, outcome),
            saturation: report.saturation.map(saturation),
        }),
        failure_mode: report.failure_mode.map(Into::into),
        trials: report.trials.iter().map(reported_trial).collect(),
        ..report_builder::search_report(plan, &nothing, cut)
    }
}

/// A search that had no more time has found what was between two numbers that were tested. Where nothing broke with as many as the
/// generator can keep, nothing is said of the target.
fn outcome(report: &ClosedReport, is_short: bool) -> FindOutcome {
    let is_tested = report.limit.bracket.is_some()
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

/// A bracket is stated where numbers to both sides of the limit were tested.
fn limit(report: &ClosedReport, outcome: FindOutcome) -> ReportedClientLimit {
    let search::ClientLimit { bracket, highest_good: good, lowest_bad: bad } = report.limit;
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
    ReportedClientLimit {
        lower: bracket.map(|[lower, ..]| lower),
        estimate: bracket.map(|[lower, point, upper]| point.clamp(lower, upper)),
        upper: bracket.map(|[.., upper]| upper),
        most_good_clients: good,
        held_seconds: held.map(|held| reported_trial(held).sending_seconds()).reduce(f64::max),
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

/// One trial.
pub(super) fn reported_trial(trial: &search::ClosedTrial) -> ReportedTrial {
    let (evidence, blocks) = (&trial.evidence.evidence, &trial.seen.blocks);
    let seconds = (blocks.len() as f64 * BLOCK_SECONDS).max(BLOCK_SECONDS);
    ReportedTrial {
        purpose: report_builder::purpose_name(trial.spec.purpose).to_owned(),
        rate: sum(blocks, |block| block.ended()) / seconds,
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
        blocks: blocks.iter().map(report_builder::reported_block).collect(),
    }
}

/// True if the trial judged lateness. Without a latency goal, only failures count as late.
fn is_judged_late(trial: &search::ClosedTrial) -> bool {
    trial.spec.criteria.goal.late.is_some() && trial.evidence.evidence.late.total > 0.0
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
