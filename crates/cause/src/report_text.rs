//! The texts about causes: evidence, ties with the means to decide them, exclusions, causes without a test. This module decides nothing.

use crate::cause_size_estimates;
use crate::class::CauseClass;
use crate::diagnosis_input::DiagnosisInput;
use crate::experiment::Experiment;
use crate::experiment_plans::OPTIONAL_PLANS;
use crate::experiment_stats::ExperimentStats;
use crate::observed_requests::{ExperimentObservation, ObservedOutcome};
use crate::odds::{self, CausePosterior, ObservedSign};
use crate::report::{
    CauseEvidence, CauseTie, DiagnosedCause, ExcludedCause, ExperimentRecord, UndecidedCause,
};
use crate::signs;

/// Summarises an experiment in one line.
#[must_use]
pub fn summarize_experiment(experiment: &Experiment, watched: &ExperimentObservation) -> String {
    if let Some(why) = watched.impossible_reason.as_ref().or(watched.invalid_reason.as_ref()) {
        return format!("no result: {why}");
    }
    let view = ExperimentStats::new(watched);
    let (good, all) = (view.count_where(|hit| hit.outcome == ObservedOutcome::Good), view.count());
    let times = view.response_times();
    let (p50, p99) = (times.median() * 1e3, times.quantile(0.99) * 1e3);
    let resent = if watched.silent_retry_count > 0 {
        format!(", {} requests retried", watched.silent_retry_count)
    } else {
        String::new()
    };
    let held = if experiment.variation.held_idle_connections > 0 {
        format!(", {} idle connections held open", watched.held_connections_still_open)
    } else {
        String::new()
    };
    format!(
        "{good:.0} of {all:.0} requests good, p50 {p50:.1} ms, p99 {p99:.1} ms, {} connections{resent}{held}",
        watched.opened_connection_count
    )
}

/// The least likelihood ratio of evidence that the report shows.
const SPEAKS: f64 = 2.0;

/// Describes a cause with its evidence and sizes.
#[must_use]
pub fn describe_cause(
    case: &DiagnosisInput<'_>,
    class: CauseClass,
    confidence: f64,
    readings: &[ObservedSign],
    odds: &CausePosterior,
    named: &[CauseClass],
) -> DiagnosedCause {
    let rival = odds
        .marginals
        .iter()
        .map(|(other, _)| *other)
        .find(|other| !named.contains(other))
        .unwrap_or(CauseClass::Unknown);
    let weigh = |reading: &ObservedSign| {
        let [here, there] = [class, rival].map(|class| reading.rule.chance(reading.outcome, class).max(1e-6));
        CauseEvidence {
            observation: reading.description.clone(),
            experiment_name: reading.rule.experiment_name,
            likelihood_ratio: (here / there).powf(reading.rule.weight),
        }
    };
    let mut evidence: Vec<_> =
        readings.iter().map(weigh).filter(|evidence| evidence.likelihood_ratio >= SPEAKS).collect();
    evidence.sort_by(|one, other| other.likelihood_ratio.total_cmp(&one.likelihood_ratio));
    DiagnosedCause {
        class,
        confidence,
        evidence,
        figures: cause_size_estimates::estimate_cause_figures(class, case),
    }
}

/// Returns the cause "generator", with the load engine's own report as evidence. That is an observation, so it has no likelihood
/// ratio.
#[must_use]
pub fn describe_generator_cause(tried: &[ExperimentRecord]) -> DiagnosedCause {
    let why = tried
        .iter()
        .rev()
        .find_map(|tried| tried.observation.invalid_reason.as_ref().map(|why| (why, tried.experiment.name)));
    let evidence = why.map(|(why, by)| CauseEvidence {
        observation: why.clone(),
        experiment_name: by,
        likelihood_ratio: f64::INFINITY,
    });
    DiagnosedCause {
        class: CauseClass::Generator,
        confidence: 1.0,
        evidence: evidence.into_iter().collect(),
        figures: Vec::new(),
    }
}

/// A cause remains possible if its probability is at least this share of the leading cause's.
const NEAR: f64 = 0.1;

/// Returns the causes that these experiments cannot tell apart, with a way to tell them apart.
#[must_use]
pub fn find_ties(case: &DiagnosisInput<'_>, odds: &CausePosterior, named: &[CauseClass]) -> Vec<CauseTie> {
    let leading = odds.leading_class();
    let mut ties: Vec<CauseTie> = known_ties(case)
        .into_iter()
        .filter(|tie| tie.between.iter().any(|class| named.contains(class)))
        .collect();
    let p = odds.probability(leading);
    for (class, other) in odds.marginals.iter().skip(1) {
        let said = ties.iter().any(|tie| tie.between.contains(class) && tie.between.contains(&leading));
        if *other > NEAR * p
            && !named.contains(class)
            && *class != CauseClass::Unknown
            && !said
            && leading != CauseClass::Unknown
        {
            ties.push(CauseTie { between: vec![leading, *class], how_to_tell: tell(leading, *class) });
        }
    }
    ties
}

/// The longest stall, in seconds, that a CPU quota can cause. One thread stops for less than the period of 100 ms; many threads can stop
/// slightly longer.
const QUOTA: f64 = 0.15;

/// Returns the ties that no experiment from the client's side can decide (causes-study.md, section 4).
fn known_ties(case: &DiagnosisInput<'_>) -> Vec<CauseTie> {
    use CauseClass::{CfsThrottling, ConcurrencyCap, CpuSaturation, DelayingLimiter, Pauses, PoolSaturation};
    let places = case.in_flight_at_limit();
    let tie = |between: &[CauseClass], tell: &str| CauseTie {
        between: between.to_vec(),
        how_to_tell: tell.to_owned(),
    };
    let mut ties = Vec::new();
    if places < 1.35 {
        ties.push(tie(&[CpuSaturation, PoolSaturation], "look at the server's CPU under load (--server-cgroup or top): about 100 % of one core means that this core is the limit; otherwise, add a second worker and search again"));
    } else {
        ties.push(tie(&[PoolSaturation, CpuSaturation], "look at the server's CPU under load (--server-cgroup): if cores are idle, the worker pool is the limit; in that case, add one worker and search again"));
    }
    if (0.001..QUOTA).contains(&signs::median_stall_seconds(case)) {
        ties.push(tie(&[Pauses, CfsThrottling], "read nr_throttled in the server's cpu.stat under load (--server-cgroup): it rises only if a CPU quota stops the server"));
    }
    if (0.4..1.5).contains(&places) {
        ties.push(tie(&[DelayingLimiter, CpuSaturation], "look for a limit that delays requests in the proxy's configuration; if the server is idle under load, this limiter is the cause and not the server's worker"));
    }
    if case
        .strongest_overload()
        .is_some_and(|over| over.stats.share_where(|hit| hit.outcome.is_bad_response()) > 0.05)
    {
        ties.push(tie(&[PoolSaturation, ConcurrencyCap], "look at the server's queue length and its concurrency limit: a pool with a short queue looks like a slightly higher concurrency cap to clients"));
    }
    ties
}

/// Returns a text on how to tell two causes apart.
fn tell(one: CauseClass, other: CauseClass) -> String {
    let has = |class| one == class || other == class;
    let what = match () {
        () if has(CauseClass::HangingLimiter) && has(CauseClass::ConnectionCap) => {
            "count the server's connections under load (ss -tn): the same number at every rate means a connection cap"
        }
        () if has(CauseClass::RateLimiter) && has(CauseClass::ConcurrencyCap) => {
            "make responses slower (a larger document) and search again: slower responses lower the limit of a concurrency cap, but not the limit of a rate limiter"
        }
        () if has(CauseClass::Bandwidth) => {
            "request a smaller document and search again: if bandwidth is the limit, more requests pass"
        }
        () if has(CauseClass::DelayingLimiter) => {
            "look for a rate limit that delays requests in the proxy in front of the server; with such a limit, the server is idle under load"
        }
        () if has(CauseClass::CfsThrottling) => {
            "read nr_throttled in the server's cpu.stat under load (--server-cgroup): it rises only if a CPU quota stops the server"
        }
        () if has(CauseClass::CpuSaturation) && has(CauseClass::PoolSaturation) => {
            "look at the server's CPU under load (--server-cgroup): if cores are idle, the pool is the limit"
        }
        () if has(CauseClass::Pauses) => {
            "look at the server's garbage collection log, and read the server's CPU use every 100 ms"
        }
        () if has(CauseClass::UnevenBalancing) => {
            "send requests directly to each server behind the load balancer"
        }
        () if has(CauseClass::KeepAliveRace) => {
            "compare the server's idle timeout and its maximum of requests per connection with the settings of its clients"
        }
        () if has(CauseClass::ChurnCost) || has(CauseClass::Dns) => "search again with keep-alive",
        () => "look at the server's own metrics under load, or search again without other load on the target",
    };
    what.to_owned()
}

/// A cause with a lower probability is excluded.
const EXCLUDED: f64 = 0.01;

/// Returns the excluded causes, each with the sign that contradicts it most.
#[must_use]
pub fn list_excluded_causes(
    readings: &[ObservedSign],
    odds: &CausePosterior,
    named: &[CauseClass],
) -> Vec<ExcludedCause> {
    let leading = odds.leading_class();
    let against = |class: CauseClass| {
        let ratio = |reading: &ObservedSign| {
            let [here, there] =
                [class, leading].map(|class| reading.rule.chance(reading.outcome, class).max(1e-6));
            (here / there).powf(reading.rule.weight)
        };
        readings.iter().min_by(|one, other| ratio(one).total_cmp(&ratio(other)))
    };
    let out = odds
        .marginals
        .iter()
        .filter(|(class, p)| *p < EXCLUDED && !named.contains(class) && *class != CauseClass::Unknown);
    out.filter_map(|(class, _)| {
        Some(ExcludedCause { class: *class, reason: against(*class)?.description.clone() })
    })
    .collect()
}

/// Returns the causes without a verdict, because their experiment was impossible or was not run.
#[must_use]
pub fn list_undecided_causes(
    case: &DiagnosisInput<'_>,
    odds: &CausePosterior,
    named: &[CauseClass],
    excluded: &[ExcludedCause],
    left: TargetCondition,
) -> Vec<UndecidedCause> {
    let open = odds::competing_classes()
        .filter(|class| !named.contains(class) && excluded.iter().all(|out| out.class != *class));
    let open = open.filter(|class| *class != CauseClass::Unknown && odds.probability(*class) < NEAR);
    let mut untested: Vec<_> = open.map(|class| undecided(case, class, left)).collect();
    for (class, by) in [
        (CauseClass::Ports, "another source address"),
        (CauseClass::Bandwidth, "HEAD requests"),
        (CauseClass::Dns, "IP address instead of name"),
    ] {
        let told = untested.iter().any(|untested| untested.class == class);
        if let Some(why) = case.why_impossible(by).filter(|_| !told) {
            untested.push(UndecidedCause { class, reason: why.to_owned(), needs_higher_max_rate: false });
        }
    }
    untested
}

/// The state of the target after the inquiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetCondition {
    /// The target works as before, as far as the inquiry knows.
    Sound,
    /// The target has not recovered.
    Degraded,
    /// The target has stopped answering; the value names the last experiment with a response.
    Gone(&'static str),
}

impl TargetCondition {
    /// Returns the last experiment with a response, if the target has stopped answering.
    #[must_use]
    pub fn last_answered_experiment(self) -> Option<&'static str> {
        if let Self::Gone(since) = self { Some(since) } else { None }
    }
}

fn undecided(case: &DiagnosisInput<'_>, class: CauseClass, left: TargetCondition) -> UndecidedCause {
    let rules = odds::RULES.iter().filter(|rule| rule.class_chances.iter().any(|(under, _)| *under == class));
    let mut missing: Vec<_> = rules
        .map(|rule| rule.experiment_name)
        .filter(|by| case.times_attempted(by) == 0 && *by != "half the limit for 4 s")
        .collect();
    missing.dedup();
    let because = |reason| UndecidedCause { class, reason, needs_higher_max_rate: false };
    match left {
        TargetCondition::Sound => {}
        TargetCondition::Degraded => {
            return because("not tried: the target has not recovered from an overload".to_owned());
        }
        TargetCondition::Gone(since) => {
            return because(format!(
                "not tried: the target stopped answering during the experiment \"{since}\""
            ));
        }
    }
    let barred =
        |by: &&str| OPTIONAL_PLANS.iter().any(|plan| plan.name == *by && plan.is_ruled_out_by_max_rate(case));
    match missing.iter().find_map(|by| case.why_impossible(by)) {
        Some(why) => because(why.to_owned()),
        None if missing.iter().any(barred) => {
            let barred: Vec<_> = missing.iter().copied().filter(|by| barred(by)).collect();
            let reason =
                format!("not tried: --max-rate is too low for these experiments: {}", barred.join(", "));
            UndecidedCause { class, reason, needs_higher_max_rate: true }
        }
        None if missing.is_empty() => because("the experiments gave no clear result".to_owned()),
        None => because(format!("these experiments were not run: {}", missing.join(", "))),
    }
}
