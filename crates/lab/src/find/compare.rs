//! Compares two runs: better, worse, the same, or undecided.
//!
//! [`seawall_search::compare`] compares two limits. This module reads the report of a run, and defines when two limits are the
//! same. A run without a limit says only that its cliff is at least the highest rate that it sustained.

use std::fmt;

use seawall_search::compare::{self as search, ComparedRun};
use seawall_search::limit_posterior::Bracket;
use seawall_search::report;

use super::find_report::{FindOutcome, FindReport};
use super::resume::{ResumeError, route};

/// The result of a comparison of two breaking rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ComparisonVerdict {
    /// The breaking rate is higher.
    Better,
    /// The whole interval of the change is within a tenth.
    Same,
    /// A cap ended the later run, and its sustained rate is at most a tenth below what is known of the earlier run.
    NotWorse,
    /// The breaking rate is lower.
    Worse,
    /// The runs show neither.
    Undecided,
}

/// The verdict on a change, with its size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunComparison {
    /// The result of the comparison.
    pub verdict: ComparisonVerdict,
    /// The later cliff divided by the earlier one. Without a later cliff, the upper bound is infinite; without an earlier cliff,
    /// the lower bound is 0.
    pub ratio_interval: Bracket,
}

/// The reason why two runs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunComparisonError {
    /// The runs have different configurations.
    #[error("the runs differ in {0}: repeat one run with the settings of the other run")]
    Config(&'static str),
    /// Both runs searched for a number of clients.
    #[error(
        "both runs searched for a number of clients (--closed-loop); --compare needs searches for a rate"
    )]
    ClosedLoop,
    /// A run has no rate that can be compared.
    #[error(
        "one of the two runs has no rate to compare: it found neither a breaking rate nor proof that the target sustains --max-rate"
    )]
    NoRateFound,
    /// A run used up the target's burst allowance, so its breaking rate does not last.
    #[error(
        "one run used up the target's burst allowance, so this run's breaking rate is not a sustainable rate"
    )]
    BurstAllowanceDepleted,
    /// A number in a report is invalid.
    #[error(transparent)]
    InvalidValue(#[from] ResumeError),
}

/// The interval within which the ratio of two limits counts as the same: within a tenth.
const SAME: (f64, f64) = (0.9, 1.0 / 0.9);

/// Compares a later run with an earlier run.
///
/// # Errors
/// [`RunComparisonError`].
pub fn compare(before: &FindReport, after: &FindReport) -> Result<RunComparison, RunComparisonError> {
    match (before.closed_loop.is_some(), after.closed_loop.is_some()) {
        (false, false) => {}
        (true, true) => return Err(RunComparisonError::ClosedLoop),
        _ => {
            return Err(RunComparisonError::Config(
                "the type of search (only one of the two runs used --closed-loop)",
            ));
        }
    }
    compared(before, after, &run(after)?)
}

/// Compares the limit of a variant with that of the reference. Their connection settings may differ.
///
/// # Errors
/// [`RunComparisonError`].
pub fn compare_variant_reports(
    reference: &FindReport,
    way: &FindReport,
) -> Result<RunComparison, RunComparisonError> {
    let connections = run(reference)?.connection_use;
    compared(reference, way, &ComparedRun { connection_use: connections, ..run(way)? })
}

fn compared(
    before: &FindReport,
    after: &FindReport,
    is: &ComparedRun,
) -> Result<RunComparison, RunComparisonError> {
    let search::Comparison { change, ratio_bracket: ratio } =
        search::compare(&run(before)?, is).map_err(RunComparisonError::from)?;
    Ok(match (highest_held_rate(before), highest_held_rate(after)) {
        (None, None) => closed_interval(change, ratio),
        (before, after) => open_interval(ratio, before.is_some(), after.is_some()),
    })
}

/// Compares two cliffs.
fn closed_interval(change: search::LimitChange, ratio: Bracket) -> RunComparison {
    let change = match change {
        search::LimitChange::Better => ComparisonVerdict::Better,
        search::LimitChange::Worse => ComparisonVerdict::Worse,
        search::LimitChange::Undecided if ratio.lower >= SAME.0 && ratio.upper <= SAME.1 => {
            ComparisonVerdict::Same
        }
        search::LimitChange::Undecided => ComparisonVerdict::Undecided,
    };
    RunComparison { verdict: change, ratio_interval: ratio }
}

/// Compares two runs of which at least one has no cliff. Its cliff is only known to be at least the sustained rate, so a verdict
/// "better" or "worse" is a lower bound of the change.
fn open_interval(ratio: Bracket, before: bool, after: bool) -> RunComparison {
    let change = match (before, after) {
        (false, true) if ratio.lower > 1.0 => ComparisonVerdict::Better,
        (true, false) if ratio.upper < 1.0 => ComparisonVerdict::Worse,
        (false, true) if ratio.lower >= SAME.0 => ComparisonVerdict::NotWorse,
        // Without a cliff in either run, the check only asks whether the target still sustains the earlier rate.
        (true, true) if ratio.estimate >= SAME.0 => ComparisonVerdict::NotWorse,
        _ => ComparisonVerdict::Undecided,
    };
    let ratio = Bracket {
        lower: if before { 0.0 } else { ratio.lower },
        upper: if after { f64::INFINITY } else { ratio.upper },
        ..ratio
    };
    RunComparison { verdict: change, ratio_interval: ratio }
}

/// Returns the highest rate, in requests per second, that a run sustained until a cap or the generator ended it; none if the run
/// found a cliff or ended otherwise. If the goal needs more responses than there were, the rate that broke nothing counts as
/// sustained.
#[must_use]
pub fn highest_held_rate(answer: &FindReport) -> Option<f64> {
    let untold =
        answer.untested_burst.map(|held| held.rate).filter(|_| answer.outcome == FindOutcome::NoLimitFound);
    let is_ended = matches!(answer.outcome, FindOutcome::NoLimitFound | FindOutcome::GeneratorLimited);
    answer
        .breaking_rate
        .highest_good_rate
        .or(untold)
        .filter(|rate| is_ended && rate.is_normal() && *rate > 0.0)
}

/// Returns the differences between two comparable runs, because a user can compare staging and production, which are two targets.
#[must_use]
pub fn differences(before: &FindReport, after: &FindReport) -> Vec<String> {
    let (before, after) = (&before.config, &after.config);
    let is_one_target = before.target == after.target && before.target_count == after.target_count;
    let mut differences = Vec::new();
    let mut differ = |what: &str, before: &dyn fmt::Display, after: &dyn fmt::Display| {
        let (before, after) = (before.to_string(), after.to_string());
        if before != after {
            differences.push(format!("{what} differs: {before} before, {after} after"));
        }
    };
    differ("target", &before.target, &after.target);
    differ("number of targets", &before.target_count, &after.target_count);
    let seconds =
        |timeout: Option<f64>| timeout.map_or_else(|| "none".to_owned(), |time| format!("{time} s"));
    differ("--timeout", &seconds(before.timeout_seconds), &seconds(after.timeout_seconds));
    if let Some((before, after)) = before.request_fingerprint.as_ref().zip(after.request_fingerprint.as_ref())
    {
        differ("route", &route(before), &route(after));
        differ("set of connection flags", &before.settings, &after.settings);
        // Requests contain their target, so those of different targets always differ.
        if is_one_target {
            differ("set of requests", &before.requests_digest, &after.requests_digest);
        }
    }
    differences
}

impl From<search::IncomparableRuns> for RunComparisonError {
    fn from(unlike: search::IncomparableRuns) -> Self {
        match unlike {
            search::IncomparableRuns::Goal => Self::Config("--slo"),
            search::IncomparableRuns::Profile => Self::Config("effort (--quick or --thorough)"),
            search::IncomparableRuns::MaxRate => Self::Config("--max-rate"),
            search::IncomparableRuns::Arrivals => Self::Config("--arrivals"),
            search::IncomparableRuns::Connections => Self::Config("connection policy"),
            search::IncomparableRuns::NoCliffFound => Self::NoRateFound,
            search::IncomparableRuns::QuotaExhausted => Self::BurstAllowanceDepleted,
        }
    }
}

/// Returns the figures that the search compares. For a run without a breaking rate, these are the figures of the highest rate
/// that was held.
fn run(answer: &FindReport) -> Result<ComparedRun, ResumeError> {
    let asked = &answer.config;
    let limit = answer.breaking_rate;
    let bracket = limit.lower.zip(limit.upper).zip(limit.estimate);
    let found = answer
        .is_found()
        .then(|| bracket.map(|((lower, upper), point)| Bracket { lower, estimate: point, upper }));
    let held = highest_held_rate(answer).map(|rate| Bracket { lower: rate, estimate: rate, upper: rate });
    let cliff = found.flatten().or(held);
    Ok(ComparedRun {
        goal: asked.slo.to_search_goal()?,
        profile_name: asked.effort.clone(),
        max_rate: asked.max_rate,
        arrivals: format!("{:?}", asked.arrivals),
        connection_use: format!("{:?}", asked.connections),
        outcome: cliff.map(|_| report::SearchOutcome::Found),
        quota_exhausted: answer.quota_exhaustion.is_some(),
        cliff_bracket: cliff,
    })
}
