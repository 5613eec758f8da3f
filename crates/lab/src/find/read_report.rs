//! Reads a [`FindReport`] back. It is strict and reads no more of a file than a run can have written.

use std::io::Read;

use seawall_cause::class::CauseClass;
use seawall_search::search_profile::Profile;
use serde::Deserialize;

use super::find_report::{
    ClosedLoopResult, FIND_VERSION, FindReport, ReportedBlock, ReportedLimit, ReportedMaxClients,
    ReportedTrial, ServerSideWindow,
};
use super::server_evidence;

/// The most bytes of a file: some hundred times those of a thorough run.
const MOST: u64 = 64 << 20;
/// The most trials of a run. A thorough run has some hundred, and a continued run examines all of them after each trial.
const TRIALS: usize = 2_000;
/// The longest kind that an error shows, in characters.
const KIND: usize = 32;
/// The bound on times in seconds, rates and counts.
const BEYOND: f64 = 1e12;

/// The reason why a file is not the report of a run.
#[derive(Debug, thiserror::Error)]
pub enum FindReportError {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Io(std::io::Error),
    /// The file is longer than the report of any run.
    #[error("the file is longer than {MOST} bytes, so it is not a document of find --json")]
    TooLong,
    /// The file is not valid JSON or lacks the form of a report.
    #[error("not a document of find --json: {0}")]
    Json(serde_json::Error),
    /// The document is not of the kind that `find --json` writes.
    #[error("not a document of find --json: \"kind\" is {0}, expected \"find\"")]
    Kind(String),
    /// The document has a version that this program does not read.
    #[error("the document has version {0}; this program reads version {FIND_VERSION}")]
    Version(u32),
    /// A value is impossible in the report of a run.
    #[error("not a document of find --json: {0}")]
    InvalidValue(&'static str),
}

/// Reads a report to its end.
///
/// # Errors
/// [`FindReportError`].
pub fn read(from: impl Read) -> Result<FindReport, FindReportError> {
    let mut text = Vec::new();
    from.take(MOST + 1).read_to_end(&mut text).map_err(FindReportError::Io)?;
    if text.len() as u64 > MOST {
        return Err(FindReportError::TooLong);
    }
    parse(&text)
}

/// Parses a report.
///
/// # Errors
/// [`FindReportError`].
pub fn parse(text: &[u8]) -> Result<FindReport, FindReportError> {
    let DocumentHead { kind, version } = serde_json::from_slice(text).map_err(FindReportError::Json)?;
    if kind.as_deref() != Some("find") {
        let kind = kind.map(|kind| format!("{:?}", kind.chars().take(KIND).collect::<String>()));
        return Err(FindReportError::Kind(kind.unwrap_or_else(|| "missing".to_owned())));
    }
    if let Some(version) = version.filter(|version| *version != FIND_VERSION) {
        return Err(FindReportError::Version(version));
    }
    let answer: FindReport = serde_json::from_slice(text).map_err(FindReportError::Json)?;
    check(&answer)?;
    Ok(answer)
}

/// The keys that every document has. Each missing key has its own error.
#[derive(Deserialize)]
struct DocumentHead {
    kind: Option<String>,
    version: Option<u32>,
}

fn check(answer: &FindReport) -> Result<(), FindReportError> {
    let says = |wrong: bool, what| if wrong { Err(FindReportError::InvalidValue(what)) } else { Ok(()) };
    let asked = &answer.config;
    let profiles = [Profile::QUICK, Profile::THOROUGH];
    says(
        !profiles.iter().any(|profile| profile.name == asked.effort),
        "unknown effort: expected \"quick\" or \"thorough\"",
    )?;
    let late =
        asked.slo.latency.is_none_or(|late| is_share(late.max_late_ratio) && is_figure(late.limit_seconds));
    says(!is_share(asked.slo.max_error_ratio) || !late, "a goal must be a share between 0 and 1")?;
    let rates = [asked.max_rate, answer.generator_capacity.max_rate, answer.goodput];
    says(!rates.into_iter().all(is_rate), "a rate must be above 0")?;
    says(
        ![answer.breaking_rate, answer.latency_breaking_rate].iter().all(is_limit),
        "the lower bound of a limit must not exceed the upper bound",
    )?;
    says(
        answer.closed_loop.is_some_and(|closed| !is_closed(&closed)),
        "the lower bound of clients must not exceed the upper bound",
    )?;
    let is_alike = |trial: &ReportedTrial| trial.clients.is_some() == answer.closed_loop.is_some();
    says(!answer.trials.iter().all(is_alike), "some trials have a number of clients and others do not")?;
    says(answer.trials.len() > TRIALS, "too many trials")?;
    says(!answer.trials.iter().all(is_trial), "the rate, a time or a count of a trial is out of range")?;
    says(
        !answer.budget_log.iter().all(|grant| {
            is_figure(grant.breaking_rate_seconds) && is_figure(grant.latency_breaking_rate_seconds)
        }),
        "a time in \"budget_log\" must be at least 0",
    )?;
    says(!is_figure(answer.duration_seconds), "\"duration_seconds\" must be at least 0")?;
    says(
        answer.server_metrics.len() > server_evidence::MAX_WINDOWS,
        "too many entries in \"server_metrics\"",
    )?;
    says(
        !answer.server_metrics.iter().all(is_window),
        "an entry of \"server_metrics\" needs times of at least 0 and likelihood ratios above 0",
    )?;
    says(!classes(answer).all(is_class), "unknown class of causes")
}

/// Returns true if a rate is missing or valid. Goodput may be zero.
fn is_rate(rate: Option<f64>) -> bool {
    rate.is_none_or(is_figure)
}

fn is_figure(figure: f64) -> bool {
    (0.0..BEYOND).contains(&figure)
}

fn is_share(share: f64) -> bool {
    share > 0.0 && share < 1.0
}

fn is_limit(limit: &ReportedLimit) -> bool {
    let ReportedLimit { lower, upper, estimate, highest_good_rate, held_seconds, lowest_bad_rate } = *limit;
    let figures = [lower, upper, estimate, highest_good_rate, held_seconds, lowest_bad_rate]
        .into_iter()
        .flatten()
        .all(|figure| figure > 0.0 && figure < BEYOND);
    match (lower, estimate, upper) {
        (Some(lower), Some(estimate), Some(upper)) => figures && lower <= estimate && estimate <= upper,
        (None, None, None) => figures,
        _ => false,
    }
}

fn is_closed(closed: &ClosedLoopResult) -> bool {
    let ReportedMaxClients { lower, upper, estimate, held_seconds, .. } = closed.client_limit;
    let saturation = closed.saturation.iter();
    let figures =
        saturation.flat_map(|found| [found.rate, found.standard_deviation, found.littles_law_clients]);
    let in_order = match (lower, estimate, upper) {
        (Some(lower), Some(estimate), Some(upper)) => lower <= estimate && estimate <= upper,
        (lower, estimate, upper) => lower.or(estimate).or(upper).is_none(),
    };
    in_order && figures.chain(closed.service_time_seconds).chain(held_seconds).all(is_figure)
}

fn is_trial(trial: &ReportedTrial) -> bool {
    let figures =
        [trial.start_seconds, trial.duration_seconds, trial.goodput, trial.weight, trial.error_ratio];
    // If all clients hang, the rate is zero.
    (trial.rate > 0.0 || trial.clients.is_some())
        && is_figure(trial.rate)
        && figures.into_iter().all(is_figure)
        && trial.blocks.iter().all(is_block)
}

/// Returns true if the numbers of a block are valid. The bound of the counts keeps their sums from overflowing.
fn is_block(&(sent, good, errors, timely, late, in_flight, latency, slowest): &ReportedBlock) -> bool {
    let counts = [sent, good, errors, timely, late, in_flight];
    counts.into_iter().all(|count| count < 1 << 30) && is_figure(latency) && is_figure(slowest)
}

fn is_window(window: &ServerSideWindow) -> bool {
    let ratios = window.facts.iter().filter_map(|said| said.likelihood_ratio);
    is_figure(window.start_seconds)
        && is_figure(window.end_seconds)
        && ratios.into_iter().all(|ratio| ratio > 0.0 && is_figure(ratio))
}

fn classes(answer: &FindReport) -> impl Iterator<Item = &str> {
    let causes = answer.cause.iter().chain(&answer.other_causes).map(|cause| cause.name.as_str());
    let ties = answer.ambiguous_causes.iter().flat_map(|tie| &tie.causes).map(String::as_str);
    let out = answer.excluded_causes.iter().map(|out| out.name.as_str());
    let said = answer.server_metrics.iter().flat_map(|window| &window.facts);
    let said = said.filter_map(|said| said.cause.as_deref());
    causes
        .chain(ties)
        .chain(out)
        .chain(said)
        .chain(answer.undecided_causes.iter().map(|not| not.name.as_str()))
}

fn is_class(slug: &str) -> bool {
    CauseClass::ALL.iter().any(|class| class.slug() == slug)
}
