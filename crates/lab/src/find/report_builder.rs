//! Builds a [`FindReport`] from the results of a search and an inquiry, and describes the reasons of each trial in words.

use std::time::Duration;

use seawall_cause::class::CauseClass;
use seawall_cause::report as cause;
use seawall_search::evidence::Proportion;
use seawall_search::limit_posterior::Bracket;
use seawall_search::observation::{BlockCounts, TrialDetails, mean_latency};
use seawall_search::report::{self, SearchReport};
use seawall_search::search::RateSearch;
use seawall_search::trial_spec::TrialPurpose;
use seawall_search::trial_verdict;

use super::find_report::{
    self, FIND_VERSION, FindDocumentKind, FindOutcome, FindReport, FindStopReason, GeneratorCapacity,
    ReportedLimit, ReportedTrial, ReportedVerdict,
};
use super::plan::FindPlan;

/// Builds the report of a run that was stopped before its first trial.
pub(super) fn unstarted_report(plan: &FindPlan, generator: GeneratorCapacity, took: Duration) -> FindReport {
    let report = RateSearch::new(plan.goal, plan.profile, plan.bounds(None)).report();
    let answer = search_report(plan, &report, Some(FindStopReason::Signal));
    FindReport { generator_capacity: generator, duration_seconds: took.as_secs_f64(), ..answer }
}

/// Builds the report of a search, without the cause.
pub(crate) fn search_report(
    plan: &FindPlan,
    report: &SearchReport,
    cut: Option<FindStopReason>,
) -> FindReport {
    let contradiction = contradiction(report).filter(|_| outcome(report, cut) == FindOutcome::Found);
    let outcome = if contradiction.is_some() { FindOutcome::Undecided } else { outcome(report, cut) };
    let is_inconclusive = outcome == FindOutcome::Undecided && contradiction.is_none();
    let undecided_reason = contradiction.or_else(|| is_inconclusive.then(|| NO_AGREEMENT.to_owned()));
    let is_between = !matches!(
        outcome,
        FindOutcome::NoLimitFound
            | FindOutcome::GeneratorLimited
            | FindOutcome::UnstableBaseline
            | FindOutcome::TargetDied
    );
    let limit = |limit: &report::LimitEstimate| self::limit(limit, report, is_between);
    FindReport {
        kind: FindDocumentKind::Find,
        version: FIND_VERSION,
        outcome,
        stop_reason: cut,
        undecided_reason,
        not_run: cut
            .filter(|cut| *cut == FindStopReason::Budget)
            .map(|_| TRIALS.to_owned())
            .into_iter()
            .collect(),
        config: plan.config(),
        generator_capacity: GeneratorCapacity::default(),
        breaking_rate: limit(&report.cliff),
        latency_breaking_rate: report.knee.map(|knee| limit(&kept(knee, report))).unwrap_or_default(),
        failure_mode: report.failure_mode.map(Into::into),
        goodput: report.overload_goodput.filter(|_| report.cliff.lowest_bad.is_some()),
        burst_requests: report.burst_allowance,
        quota_exhaustion: report.quota_exhaustion.map(|found| find_report::ReportedQuotaExhaustion {
            after_requests: found.requests_before,
            goodput_after_exhaustion: found.goodput,
        }),
        untested_burst: report.unexcluded_burst.filter(|held| held.duration >= HELD).map(|held| {
            find_report::ReportedUnexcludedBurst {
                rate: held.rate,
                held_seconds: held.duration.as_secs_f64(),
                requests: held.requests,
            }
        }),
        closed_loop: None,
        recovery: find_report::ReportedRecovery {
            time_seconds: report.recovery.time_to_recover.map(|calm| calm.as_secs_f64()),
            is_recovered: report.recovery.holds_after_overload,
            queue_seconds: report.recovery.queue_seconds,
        },
        cause: None,
        other_causes: Vec::new(),
        ambiguous_causes: Vec::new(),
        excluded_causes: Vec::new(),
        undecided_causes: Vec::new(),
        experiments: Vec::new(),
        target_lost_during: None,
        server_metrics: Vec::new(),
        trials: report.trials.iter().map(build_reported_trial).collect(),
        budget_log: Vec::new(),
        duration_seconds: report.took.as_secs_f64(),
    }
}

/// The entry in `not_run` for a search that ran out of time.
const TRIALS: &str = "further trials of the search";

/// Adds the experiment that an inquiry had no time left for.
pub(super) fn add_not_run(answer: &mut FindReport, experiment: Option<&str>) {
    let first = experiment.map(|name| format!("the experiment \"{name}\" and all later experiments"));
    answer.not_run.push(first.unwrap_or_else(|| "all experiments that look for the cause".to_owned()));
}

/// The reason why a run without a limit is undecided if no trial contradicts another one.
const NO_AGREEMENT: &str = "the trials do not show between which tested rates the limit lies; continue with --resume, or start again with --thorough for longer trials";

/// Returns why the bracket is no answer, in words: a rate below it was bad, or its end was never offered.
fn contradiction(report: &SearchReport) -> Option<String> {
    let bracket = report.cliff.bracket?;
    Some(match report.contradiction()? {
        report::BracketContradiction::BadBelow(rate) => format!(
            "a trial at {rate:.3}/s was bad, below the interval of {:.3} to {:.3}/s: continue with --resume, which repeats this trial",
            bracket.lower, bracket.upper
        ),
        report::BracketContradiction::EndsAboveHighestOffered(offered) => format!(
            "the interval ends at {:.3}/s, but the highest rate of a trial was {offered:.3}/s",
            bracket.upper
        ),
    })
}

/// Returns true if the search ended with a bracket that its own trials contradict.
pub(super) fn is_contradicted(report: &SearchReport) -> bool {
    outcome(report, None) == FindOutcome::Found && contradiction(report).is_some()
}

/// Returns true if there is a limit whose cause can be looked for.
pub(super) fn is_found(report: &SearchReport) -> bool {
    matches!(outcome(report, None), FindOutcome::Found | FindOutcome::Metastable)
        && contradiction(report).is_none()
}

/// Returns the outcome. A search without time left has found the limit if it lies between two tested rates.
fn outcome(report: &SearchReport, cut: Option<FindStopReason>) -> FindOutcome {
    match report.outcome {
        Some(report::SearchOutcome::Found) => FindOutcome::Found,
        Some(report::SearchOutcome::Metastable) => FindOutcome::Metastable,
        Some(report::SearchOutcome::NoLimitFound) => FindOutcome::NoLimitFound,
        Some(report::SearchOutcome::GeneratorLimited) => FindOutcome::GeneratorLimited,
        Some(report::SearchOutcome::GoalUnreachable) => FindOutcome::UnstableBaseline,
        Some(report::SearchOutcome::TargetDied) => FindOutcome::TargetDied,
        None if report.cliff.is_bracketed() => FindOutcome::Found,
        None if cut == Some(FindStopReason::Inconclusive) => FindOutcome::Undecided,
        Some(report::SearchOutcome::Interrupted) | None => FindOutcome::Interrupted,
    }
}

/// Returns the reason why a finished search ended early.
pub(super) fn stop_reason(search: &RateSearch) -> Option<FindStopReason> {
    match search.report().outcome {
        Some(report::SearchOutcome::Interrupted) => Some(FindStopReason::Signal),
        None => Some(FindStopReason::Inconclusive),
        Some(_) => None,
    }
}

/// Returns the reported limit. It has a bracket only if the search offered rates on both sides of the limit; otherwise only the
/// tested rates are known.
fn limit(limit: &report::LimitEstimate, report: &SearchReport, is_between: bool) -> ReportedLimit {
    let bracket = limit.bracket.filter(|_| is_between && limit.lowest_bad.is_some());
    let at = |of: fn(Bracket) -> f64| bracket.map(of);
    let held = report.trials.iter().filter(|trial| {
        Some(trial.spec.rate) == limit.highest_good && trial.verdict != trial_verdict::TrialVerdict::Bad
    });
    ReportedLimit {
        lower: at(|bracket| bracket.lower),
        upper: at(|bracket| bracket.upper),
        estimate: at(|bracket| bracket.estimate),
        highest_good_rate: limit.highest_good,
        held_seconds: held.map(|held| build_reported_trial(held).sending_seconds()).reduce(f64::max),
        lowest_bad_rate: limit.lowest_bad,
    }
}

/// The least time for which a target must sustain a rate. A rate that the ramp only passed does not count, even with few late
/// responses.
const HELD: Duration = Duration::from_secs(1);

/// Returns the knee with the highest rate at which a trial was good in every respect.
fn kept(knee: report::LimitEstimate, report: &SearchReport) -> report::LimitEstimate {
    let share = report.goal.max_late_share();
    let is_good = |trial: &&report::RateTrial| {
        trial.verdict == trial_verdict::TrialVerdict::Good
            && trial.weight > 0.1
            && trial.evidence.late.value() <= share
            && knee.lowest_bad.is_none_or(|bad| trial.spec.rate < bad)
    };
    let good = report.trials.iter().filter(is_good).map(|trial| trial.spec.rate).reduce(f64::max);
    report::LimitEstimate { highest_good: good, ..knee }
}

/// Returns the mean response time of the baseline, in seconds.
pub(super) fn baseline_response_time(report: &SearchReport) -> Option<f64> {
    let baseline = report.trials.iter().rfind(|trial| trial.spec.purpose == TrialPurpose::Baseline)?;
    mean_latency(&baseline.seen.blocks)
}

/// Returns the highest rate of a valid trial; none if no request ever had a good response.
pub(super) fn highest_offered_rate(report: &SearchReport) -> Option<f64> {
    let believed =
        || report.trials.iter().filter(|trial| trial.verdict != trial_verdict::TrialVerdict::Invalid);
    let answered = |trial: &report::RateTrial| trial.seen.blocks.iter().any(|block| block.good > 0);
    believed().any(answered).then(|| believed().map(|trial| trial.spec.rate).reduce(f64::max)).flatten()
}

/// Returns the share of requests that fails at any rate; 0 if errors begin at some rate or never occur.
pub(super) fn load_independent_error_share(report: &SearchReport) -> f64 {
    if report.outcome != Some(report::SearchOutcome::GoalUnreachable) {
        return 0.0;
    }
    let counting =
        || report.trials.iter().filter(|trial| trial.weight > 0.1).map(|trial| trial.evidence.errors);
    let (count, of) =
        counting().fold((0.0, 0.0), |(count, of), share| (count + share.count, of + share.total));
    if of > 0.0 { count / of } else { 0.0 }
}

/// Returns a trial as the report has it.
pub(super) fn build_reported_trial(trial: &report::RateTrial) -> ReportedTrial {
    let evidence = &trial.evidence;
    ReportedTrial {
        purpose: purpose_name(trial.spec.purpose).to_owned(),
        rate: trial.spec.rate,
        clients: None,
        start_seconds: trial.began.as_secs_f64(),
        duration_seconds: trial.seen.took.as_secs_f64(),
        verdict: trial.verdict.into(),
        reason: why(trial),
        failure_mode: trial.failure_mode.map(Into::into),
        weight: trial.weight,
        goodput: evidence.goodput,
        error_ratio: evidence.errors.value(),
        top_failure: top_failure(&trial.seen.details),
        response_seconds: response_times(&trial.seen.details),
        late_ratio: (evidence.late.total > 0.0).then(|| evidence.late.value()),
        invalid_reason: trial.seen.invalid_reason.clone(),
        generator_delay: trial.seen.generator_delay_description.clone(),
        port_exhaustions: trial.seen.requests_without_port,
        is_target_down: trial.seen.target_is_down,
        is_interrupted: trial.seen.interrupted,
        blocks: trial.seen.blocks.iter().map(build_reported_block).collect(),
    }
}

pub(super) fn top_failure(details: &TrialDetails) -> Option<find_report::ReportedTopFailure> {
    let failure = details.most_frequent_failure.clone();
    failure.map(|(kind, ratio)| find_report::ReportedTopFailure { kind, ratio })
}

pub(super) fn response_times(details: &TrialDetails) -> Option<find_report::ReportedResponseTimes> {
    details.median_and_p99.map(|[p50, p99]| find_report::ReportedResponseTimes { p50, p99 })
}

pub(super) fn build_reported_block(block: &BlockCounts) -> find_report::ReportedBlock {
    let BlockCounts { sent, good, errors, timely, late, in_flight, latency_sum: latency, slowest } = *block;
    (sent, good, errors, timely, late, in_flight, latency, slowest)
}

/// Returns the purpose as `find --json` writes it.
#[must_use]
pub fn purpose_name(purpose: TrialPurpose) -> &'static str {
    match purpose {
        TrialPurpose::Baseline => "baseline",
        TrialPurpose::Ramp => "ramp",
        TrialPurpose::BurstDrain => "burst-drain",
        TrialPurpose::NarrowBracket => "narrow-bracket",
        TrialPurpose::Confirm => "confirm",
        TrialPurpose::RepeatAfterIdle => "repeat-after-idle",
        TrialPurpose::RecoveryProbe => "recovery-probe",
        TrialPurpose::RepeatNow => "repeat-now",
        TrialPurpose::AboveBracketAfterIdle => "after-idle",
        TrialPurpose::LatencyBreakingRate => "latency-breaking-rate",
        TrialPurpose::Recovery => "recovery",
    }
}

/// The share of failures of one kind from which the text names only that kind.
const MOSTLY: f64 = 0.95;

/// Describes the figures that led to the verdict on a trial.
fn why(trial: &report::RateTrial) -> String {
    if let Some(invalid) = &trial.seen.invalid_reason {
        return invalid.clone();
    }
    match &trial.seen.generator_delay_description {
        Some(delay) => format!("{}; {delay}, which does not change the verdict", why_by_counts(trial)),
        None => why_by_counts(trial),
    }
}

fn why_by_counts(trial: &report::RateTrial) -> String {
    let evidence = &trial.evidence;
    let errors = describe_errors(evidence.errors, &trial.seen.details);
    let flight = format!(
        "requests in flight went from {:.0} to {:.0}",
        evidence.in_flight_settled, evidence.in_flight_end
    );
    match (trial.verdict, trial.failure_mode) {
        (trial_verdict::TrialVerdict::Bad, Some(trial_verdict::FailureMode::Rejecting)) => errors,
        (trial_verdict::TrialVerdict::Bad, Some(trial_verdict::FailureMode::BoundedQueue)) => {
            format!("{errors}, {flight}")
        }
        (trial_verdict::TrialVerdict::Bad, _) => flight,
        (trial_verdict::TrialVerdict::Good, _) if evidence.errors.count > 0.0 => {
            format!("sustained, {errors}")
        }
        (trial_verdict::TrialVerdict::Good, _) => "sustained".to_owned(),
        _ => format!("{errors}, {flight}"),
    }
}

/// Describes the share of errors and the most frequent kind of failure.
pub(super) fn describe_errors(share: Proportion, beside: &TrialDetails) -> String {
    let of = match &beside.most_frequent_failure {
        Some((way, part)) if *part < MOSTLY => format!(" ({} of the errors: {way})", format_percent(*part)),
        Some((way, _)) => format!(" ({way})"),
        None => String::new(),
    };
    format!("{} errors{}", format_percent(share.value()), if share.count > 0.0 { &of } else { "" })
}

/// Formats a share in percent, with enough digits to show that it is not zero.
pub(super) fn format_percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        10.0.. => format!("{percent:.0} %"),
        0.1.. => format!("{percent:.1} %"),
        _ if percent > 0.0 => format!("{percent:.3} %"),
        _ => "0 %".to_owned(),
    }
}

/// Returns the highest rate at which this machine lacked ports, if that ended the search.
pub(super) fn highest_port_limited_rate(answer: &FindReport) -> Option<f64> {
    let last = answer.trials.iter().rev().find(|trial| trial.invalid_reason.is_some());
    let short =
        last.is_some_and(|last| last.port_exhaustions > 0) && answer.outcome == FindOutcome::GeneratorLimited;
    let without = answer.trials.iter().filter(|trial| trial.port_exhaustions > 0).map(|trial| trial.rate);
    without.reduce(f64::max).filter(|_| short)
}

/// Sets the generator as the cause: this machine lacked ports or could not send more.
pub(super) fn blame_generator(answer: &mut FindReport) {
    let invalid = answer.trials.iter().rev().find_map(|trial| trial.invalid_reason.clone());
    let seen = invalid.unwrap_or_else(|| answer.generator_capacity.method.clone());
    let evidence = find_report::ReportedEvidence {
        observation: seen,
        experiment: "checks of this machine".to_owned(),
        likelihood_ratio: None,
    };
    let class =
        if highest_port_limited_rate(answer).is_some() { CauseClass::Ports } else { CauseClass::Generator };
    answer.cause = Some(find_report::ReportedCause {
        name: class.slug().to_owned(),
        score: 1.0,
        evidence: vec![evidence],
        estimates: Vec::new(),
    });
}

/// Adds the results of an inquiry about missing ports, if they are the cause. Without ports, the inquiry says nothing about the
/// target.
pub(super) fn add_port_findings(answer: &mut FindReport, report: &cause::DiagnosisReport) {
    let mut asked = answer.clone();
    add_diagnosis(&mut asked, report);
    let is_ports = |class: &str| class == CauseClass::Ports.slug();
    let told = asked.cause.into_iter().chain(asked.other_causes).find(|cause| is_ports(&cause.name));
    if let (Some(cause), Some(told)) = (&mut answer.cause, told) {
        cause.evidence.extend(told.evidence);
        cause.estimates = told.estimates;
    }
    answer.undecided_causes = asked.undecided_causes.into_iter().filter(|not| is_ports(&not.name)).collect();
    answer.experiments = asked.experiments;
}

/// Adds the results of an inquiry.
pub(super) fn add_diagnosis(answer: &mut FindReport, report: &cause::DiagnosisReport) {
    let blamed = answer.outcome == FindOutcome::GeneratorLimited;
    let mut causes = report.causes.iter().map(|cause| excuse(one(cause), blamed));
    let unknown = || find_report::ReportedCause {
        name: CauseClass::Unknown.slug().to_owned(),
        score: 0.0,
        evidence: Vec::new(),
        estimates: Vec::new(),
    };
    answer.cause = Some(causes.next().unwrap_or_else(unknown));
    answer.other_causes = causes.collect();
    answer.ambiguous_causes = report.ties.iter().map(tie).collect();
    let slug = |class: CauseClass| class.slug().to_owned();
    let excluded = |out: &cause::ExcludedCause| find_report::ReportedExcludedCause {
        name: slug(out.class),
        reason: out.reason.clone(),
    };
    answer.excluded_causes = report.excluded.iter().map(excluded).collect();
    let untested = |not: &cause::UndecidedCause| find_report::ReportedUndecidedCause {
        name: slug(not.class),
        reason: not.reason.clone(),
        needs_higher_max_rate: not.needs_higher_max_rate,
    };
    answer.undecided_causes = report.undecided_causes.iter().map(untested).collect();
    answer.target_lost_during = report.last_answered_experiment.map(str::to_owned);
    answer.experiments = experiments(report);
    suspect_targets(answer);
}

/// Adds the experiments so far to the report of a running inquiry. The cause is left out because it may still change.
pub(super) fn with_experiments(answer: FindReport, report: &cause::DiagnosisReport) -> FindReport {
    FindReport { experiments: experiments(report), ..answer }
}

fn experiments(report: &cause::DiagnosisReport) -> Vec<find_report::ReportedExperiment> {
    let tried = |tried: &cause::ExperimentRecord| find_report::ReportedExperiment {
        name: tried.experiment.name.to_owned(),
        result: tried.summary.clone(),
    };
    report.experiments.iter().map(tried).collect()
}

/// Adds the target list as an explanation of uneven balancing. With several targets, one may refuse while another delays, which
/// looks like an uneven balancer.
fn suspect_targets(answer: &mut FindReport) {
    let (targets, uneven) = (answer.config.target_count, CauseClass::UnevenBalancing.slug());
    if targets < 2 {
        return;
    }
    let uneven_ones =
        answer.cause.iter_mut().chain(&mut answer.other_causes).filter(|cause| cause.name == uneven);
    for cause in uneven_ones {
        let seen = format!(
            "{targets} targets were given, and their limits can differ: search each target alone first"
        );
        let by = "the target list".to_owned();
        cause.evidence.insert(
            0,
            find_report::ReportedEvidence { observation: seen, experiment: by, likelihood_ratio: None },
        );
    }
    for tie in answer.ambiguous_causes.iter_mut().filter(|tie| tie.causes.iter().any(|class| class == uneven))
    {
        tie.how_to_tell =
            format!("first search each of the {targets} targets alone; then {}", tie.how_to_tell);
    }
}

/// Replaces the cause "generator" by "unknown" if the trials were valid. A limit of this machine in an experiment does not explain them.
fn excuse(cause: find_report::ReportedCause, blamed: bool) -> find_report::ReportedCause {
    if !blamed && cause.name == CauseClass::Generator.slug() {
        return find_report::ReportedCause {
            name: CauseClass::Unknown.slug().to_owned(),
            score: 0.0,
            ..cause
        };
    }
    cause
}

fn one(cause: &cause::DiagnosedCause) -> find_report::ReportedCause {
    let sign = |sign: &cause::CauseEvidence| find_report::ReportedEvidence {
        observation: sign.observation.clone(),
        experiment: sign.experiment_name.to_owned(),
        likelihood_ratio: finite(sign.likelihood_ratio),
    };
    let figure = |figure: &cause::CauseFigure| find_report::ReportedEstimate {
        name: figure.name.to_owned(),
        value: finite(figure.value),
        unit: figure.unit.to_owned(),
    };
    find_report::ReportedCause {
        name: cause.class.slug().to_owned(),
        score: finite(cause.confidence).unwrap_or(0.0),
        evidence: cause.evidence.iter().map(sign).collect(),
        estimates: cause.figures.iter().map(figure).collect(),
    }
}

fn tie(tie: &cause::CauseTie) -> find_report::ReportedTie {
    let between = tie.between.iter().map(|class| class.slug().to_owned()).collect();
    find_report::ReportedTie { causes: between, how_to_tell: tie.how_to_tell.clone() }
}

fn finite(figure: f64) -> Option<f64> {
    Some(figure).filter(|figure| figure.is_finite())
}

impl From<trial_verdict::TrialVerdict> for ReportedVerdict {
    fn from(verdict: trial_verdict::TrialVerdict) -> Self {
        match verdict {
            trial_verdict::TrialVerdict::Good => Self::Good,
            trial_verdict::TrialVerdict::Bad => Self::Bad,
            trial_verdict::TrialVerdict::Undecided => Self::Undecided,
            trial_verdict::TrialVerdict::Invalid => Self::Invalid,
        }
    }
}

impl From<trial_verdict::FailureMode> for find_report::ReportedFailureMode {
    fn from(kind: trial_verdict::FailureMode) -> Self {
        match kind {
            trial_verdict::FailureMode::Rejecting => Self::Rejecting,
            trial_verdict::FailureMode::Hanging => Self::Hanging,
            trial_verdict::FailureMode::BoundedQueue => Self::BoundedQueue,
            trial_verdict::FailureMode::Queueing => Self::Queueing,
            trial_verdict::FailureMode::Crashing => Self::Crashing,
        }
    }
}
