//! Restores the search of an earlier run from the observations in its report, because a search decides by nothing else.
//!
//! The trials go into a new search in their order, with the budgets of that time. The next trial that the search wants must be
//! the next trial of the report. If it differs, another version wrote the report or somebody changed the file, and the run cannot
//! be continued. A trial that was interrupted is repeated. The capacity of the generator is that of the earlier run.

use std::time::Duration;

use seawall_search::observation::{BlockCounts, TrialDetails, TrialObservation};
use seawall_search::search::{RateSearch, SearchStep};
use seawall_search::trial_spec::TrialSpec;

use super::find_report::{BudgetGrant, FindConfig, FindReport, ReportedTrial, RequestFingerprint};
use super::plan::FindPlan;
use super::report_builder;

/// The reason why a run cannot be continued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The earlier run had a different configuration.
    #[error("the earlier run had a different {0}: continue it with the same settings")]
    ConfigDiffers(&'static str),
    /// The earlier run connected by a different route.
    #[error(
        "the earlier run connected {before}, but this run would connect {now}: continue it with the same settings"
    )]
    RouteDiffers {
        /// The route of the earlier run.
        before: String,
        /// The route of this run.
        now: String,
    },
    /// The earlier run searched for a number of clients.
    #[error(
        "the earlier run searched for a number of clients (--closed-loop); only searches for a rate can be continued"
    )]
    ClosedLoop,
    /// This trial of the earlier run differs from the trial that the search would run now.
    #[error(
        "trial {0} of the file differs from the trial that this version would run: use the unchanged file with the seawall version that wrote it"
    )]
    TrialDiffers(usize),
    /// A duration in the report is invalid.
    #[error("{0} is not a number of seconds")]
    InvalidTime(String),
}

/// The relative difference up to which two rates count as the same, because the file has rounded decimal digits.
const SAME: f64 = 1e-6;

/// Rebuilds the search of an earlier run from its report.
///
/// # Errors
/// [`ResumeError`].
pub fn restore_search(plan: &FindPlan, before: &FindReport) -> Result<RateSearch, ResumeError> {
    check_compatible(plan, before)?;
    let mut search =
        RateSearch::new(plan.goal, plan.profile, plan.bounds(before.generator_capacity.max_rate));
    let mut grants = before.budget_log.iter().peekable();
    for (at, trial) in before.trials.iter().filter(|trial| !trial.is_interrupted).enumerate() {
        while let Some(grant) = grants.next_if(|grant| grant.after_trials <= at) {
            allow(&mut search, grant)?;
        }
        let offer = next_offer(&mut search)
            .filter(|offer| is_same(offer, trial))
            .ok_or(ResumeError::TrialDiffers(at + 1))?;
        search.record_trial(&offer, seen(trial)?);
    }
    Ok(search)
}

/// Checks that an earlier run had the same settings, so that it can be continued. The check does not look at the trials.
///
/// # Errors
/// [`ResumeError`]: the first thing that differs.
pub fn check_compatible(plan: &FindPlan, before: &FindReport) -> Result<(), ResumeError> {
    if before.closed_loop.is_some() {
        return Err(ResumeError::ClosedLoop);
    }
    alike(&plan.config(), &before.config)
}

/// Returns the first difference between two configurations as an error.
fn alike(now: &FindConfig, before: &FindConfig) -> Result<(), ResumeError> {
    let differences = [
        (now.slo != before.slo, "--slo"),
        (now.effort != before.effort, "effort (--quick or --thorough)"),
        (now.target != before.target || now.target_count != before.target_count, "target"),
        (now.arrivals != before.arrivals, "--arrivals"),
        (now.max_rate != before.max_rate, "--max-rate"),
        (now.connections != before.connections, "connection policy"),
        (now.timeout_seconds != before.timeout_seconds, "--timeout"),
    ];
    refuse_first(&differences)?;
    // Older versions did not record the fingerprint, so nothing is compared.
    now.request_fingerprint
        .as_ref()
        .zip(before.request_fingerprint.as_ref())
        .map_or(Ok(()), |(now, before)| sent_alike(now, before))
}

/// Returns the first difference in the route or the requests as an error.
fn sent_alike(now: &RequestFingerprint, before: &RequestFingerprint) -> Result<(), ResumeError> {
    if now.via != before.via {
        let [before, now] = [before, now].map(|sent| route(sent).to_owned());
        return Err(ResumeError::RouteDiffers { before, now });
    }
    refuse_first(&[
        (now.certificate_digest != before.certificate_digest, "client certificate (--cert)"),
        (
            now.requests_digest != before.requests_digest,
            "set of requests (targets, --header, --body, --expect, --template or --seed)",
        ),
        (now.settings != before.settings, SETTINGS),
    ])
}

/// The settings in [`RequestFingerprint::settings`].
const SETTINGS: &str = "set of connection flags (--connect-to, --laddr, --resolvers, --redirects, --retries, \
                        --connection-age, --streams or --http2-connections)";

/// Describes the route of the requests.
pub(super) fn route(sent: &RequestFingerprint) -> &str {
    sent.via.as_deref().unwrap_or("directly to the target")
}

fn refuse_first(differences: &[(bool, &'static str)]) -> Result<(), ResumeError> {
    let first = differences.iter().find(|(differs, _)| *differs);
    first.map_or(Ok(()), |(_, what)| Err(ResumeError::ConfigDiffers(what)))
}

fn allow(search: &mut RateSearch, grant: &BudgetGrant) -> Result<(), ResumeError> {
    search.set_budgets(
        duration_from_seconds(grant.breaking_rate_seconds)?,
        duration_from_seconds(grant.latency_breaking_rate_seconds)?,
    );
    Ok(())
}

/// Returns the next trial that the search wants and records the pauses before it; none if the search is finished.
fn next_offer(search: &mut RateSearch) -> Option<TrialSpec> {
    loop {
        match search.next_step() {
            SearchStep::RunTrial(offer) => return Some(offer),
            SearchStep::Pause(time) => search.record_pause(time, true),
            SearchStep::Finished => return None,
        }
    }
}

fn is_same(offer: &TrialSpec, trial: &ReportedTrial) -> bool {
    report_builder::purpose_name(offer.purpose) == trial.purpose
        && (offer.rate / trial.rate - 1.0).abs() < SAME
}

fn seen(trial: &ReportedTrial) -> Result<TrialObservation, ResumeError> {
    let block = |&(sent, good, errors, timely, late, in_flight, latency, slowest): &_| BlockCounts {
        sent,
        good,
        errors,
        timely,
        late,
        in_flight,
        latency_sum: latency,
        slowest,
    };
    Ok(TrialObservation {
        blocks: trial.blocks.iter().map(block).collect(),
        took: duration_from_seconds(trial.duration_seconds)?,
        invalid_reason: trial.invalid_reason.clone(),
        generator_delay_description: trial.generator_delay.clone(),
        requests_without_port: trial.port_exhaustions,
        target_is_down: trial.is_target_down,
        interrupted: false,
        details: TrialDetails {
            most_frequent_failure: trial.top_failure.clone().map(|failure| (failure.kind, failure.ratio)),
            median_and_p99: trial.response_seconds.map(|times| [times.p50, times.p99]),
        },
    })
}

/// Converts seconds of a report into a duration.
///
/// # Errors
/// [`ResumeError::InvalidTime`].
pub(super) fn duration_from_seconds(seconds: f64) -> Result<Duration, ResumeError> {
    Duration::try_from_secs_f64(seconds).map_err(|_| ResumeError::InvalidTime(seconds.to_string()))
}
