//! Reads an [`FindReport`] back: strictly, and no more of a file than a run can have written.

use std::io::Read;

use seawall_cause::class::CauseClass;
use seawall_search::profile::Profile;
use serde::Deserialize;

use super::answer::{
    ClosedLoopResult, FindReport, ReportedBlock, ReportedClientLimit, ReportedLimit, ReportedTrial, SCHEMA,
    ServerSideWindow,
};
use super::witness;

/// Bytes of a file: some hundred times those of a thorough run.
const MOST: u64 = 64 << 20;
/// Trials of a run; a thorough one has some hundred, and whoever goes on with it looks at all of them after each.
const TRIALS: usize = 2_000;
/// Times are shorter, in seconds, and rates and counts lower.
const BEYOND: f64 = 1e12;

/// Why a file is no run's.
#[derive(Debug, thiserror::Error)]
pub enum FindReportError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(std::io::Error),
    /// It is longer than any run's.
    #[error("is longer than {MOST} bytes, and so nothing that find --json has written")]
    TooLong,
    /// It has another form.
    #[error("is nothing that find --json has written: {0}")]
    Json(serde_json::Error),
    /// Another version wrote it.
    #[error("is of schema {0}, and this version reads schema {SCHEMA}")]
    Schema(u32),
    /// It says what no run says.
    #[error("is nothing that find --json has written: {0}")]
    InvalidValue(&'static str),
}

/// Reads a run to its end.
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

/// Of bytes.
///
/// # Errors
/// [`FindReportError`].
pub fn parse(text: &[u8]) -> Result<FindReport, FindReportError> {
    let Versioned { schema } = serde_json::from_slice(text).map_err(FindReportError::Json)?;
    if schema != SCHEMA {
        return Err(FindReportError::Schema(schema));
    }
    let answer: FindReport = serde_json::from_slice(text).map_err(FindReportError::Json)?;
    check(&answer)?;
    Ok(answer)
}

/// All that another version's files have for certain.
#[derive(Deserialize)]
struct Versioned {
    schema: u32,
}

fn check(answer: &FindReport) -> Result<(), FindReportError> {
    let says = |wrong: bool, what| if wrong { Err(FindReportError::InvalidValue(what)) } else { Ok(()) };
    let asked = &answer.asked;
    let profiles = [Profile::QUICK, Profile::THOROUGH];
    says(!profiles.iter().any(|profile| profile.name == asked.profile), "there is no such profile")?;
    let late = asked.goal.late.is_none_or(|late| is_share(late.share) && is_figure(late.than));
    says(!is_share(asked.goal.errors) || !late, "a goal is a share between 0 and 1")?;
    let rates = [asked.max_rate, answer.generator.most, answer.goodput];
    says(!rates.into_iter().all(is_rate), "a rate is above 0")?;
    says(![answer.cliff, answer.knee].iter().all(is_limit), "a limit has its bounds in order")?;
    says(answer.closed.is_some_and(|closed| !is_closed(&closed)), "clients have their bounds in order")?;
    let is_alike = |trial: &ReportedTrial| trial.clients.is_some() == answer.closed.is_some();
    says(!answer.trials.iter().all(is_alike), "a trial is of a rate or of clients, as the others are")?;
    says(answer.trials.len() > TRIALS, "there are too many trials")?;
    says(!answer.trials.iter().all(is_trial), "a trial has a rate, times and counts")?;
    says(
        !answer.grants.iter().all(|grant| is_figure(grant.cliff) && is_figure(grant.knee)),
        "a time is no less than 0",
    )?;
    says(!is_figure(answer.took), "a time is no less than 0")?;
    says(answer.server_side.len() > witness::MAX_WINDOWS, "there are too many looks at the target itself")?;
    says(!answer.server_side.iter().all(is_window), "a look at the target itself has times and ratios")?;
    says(!classes(answer).all(is_class), "there is no such class of causes")
}

/// Goodput may be nothing at all.
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
    let ReportedLimit { lower, upper, point, good, good_for, bad } = *limit;
    let figures = [lower, upper, point, good, good_for, bad]
        .into_iter()
        .flatten()
        .all(|figure| figure > 0.0 && figure < BEYOND);
    match (lower, point, upper) {
        (Some(lower), Some(point), Some(upper)) => figures && lower <= point && point <= upper,
        (None, None, None) => figures,
        _ => false,
    }
}

fn is_closed(closed: &ClosedLoopResult) -> bool {
    let ReportedClientLimit { lower, upper, point, good_for, .. } = closed.limit;
    let saturation = closed.saturation.iter();
    let figures = saturation.flat_map(|found| [found.rate, found.deviation, found.little]);
    let in_order = match (lower, point, upper) {
        (Some(lower), Some(point), Some(upper)) => lower <= point && point <= upper,
        (lower, point, upper) => lower.or(point).or(upper).is_none(),
    };
    in_order && figures.chain(closed.service).chain(good_for).all(is_figure)
}

fn is_trial(trial: &ReportedTrial) -> bool {
    let figures = [trial.began, trial.took, trial.goodput, trial.weight, trial.errors];
    // Clients that hang come to no rate at all.
    (trial.rate > 0.0 || trial.clients.is_some())
        && is_figure(trial.rate)
        && figures.into_iter().all(is_figure)
        && trial.blocks.iter().all(is_block)
}

/// No two counts of a fifteenth of a second add up to more than there is room for.
fn is_block(&(sent, good, errors, timely, late, in_flight, latency, slowest): &ReportedBlock) -> bool {
    let counts = [sent, good, errors, timely, late, in_flight];
    counts.into_iter().all(|count| count < 1 << 30) && is_figure(latency) && is_figure(slowest)
}

fn is_window(window: &ServerSideWindow) -> bool {
    let ratios = window.facts.iter().filter_map(|said| said.ratio);
    is_figure(window.from)
        && is_figure(window.to)
        && ratios.into_iter().all(|ratio| ratio > 0.0 && is_figure(ratio))
}

fn classes(answer: &FindReport) -> impl Iterator<Item = &str> {
    let causes = answer.cause.iter().chain(&answer.also).map(|cause| cause.class.as_str());
    let ties = answer.ties.iter().flat_map(|tie| &tie.between).map(String::as_str);
    let out = answer.excluded.iter().map(|out| out.class.as_str());
    let said = answer.server_side.iter().flat_map(|window| &window.facts);
    let said = said.filter_map(|said| said.class.as_deref());
    causes.chain(ties).chain(out).chain(said).chain(answer.untested.iter().map(|not| not.class.as_str()))
}

fn is_class(slug: &str) -> bool {
    CauseClass::ALL.iter().any(|class| class.slug() == slug)
}
