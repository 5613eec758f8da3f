//! The inquiry chooses the experiments. It starts with base, near and over. Then it runs the experiment with the most expected information
//! per second, harmless ones first. After each overload, it checks that the target has recovered.
//!
//! The caller asks for a step with [`Inquiry::next_step`], carries it out and records the result. [`Inquiry::report`] gives the current
//! result at any time.

use std::time::Duration;

use crate::cause_size_estimates::{self, MAX_RATIO_FOR_SINGLE_IDLE_TIMEOUT};
use crate::class::CauseClass;
use crate::diagnosis_input::DiagnosisInput;
use crate::experiment::{Experiment, ExperimentLoad};
use crate::experiment_plans::{self, ExperimentPlan, OPTIONAL_PLANS};
use crate::experiment_stats::ExperimentStats;
use crate::observed_requests::{ExperimentObservation, ObservedOutcome};
use crate::odds::{self, CausePosterior, ObservedSign, RULES};
use crate::report::{DiagnosisReport, ExperimentRecord};
use crate::report_text::{self, TargetCondition};
use crate::signs;

/// The results of the search that the inquiry starts from.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchFindings {
    /// The rate at which the target breaks, in requests per second.
    pub limit_rate: f64,
    /// The mean response time at very low load, in seconds.
    pub service_time: f64,
    /// The time limit for a response, in seconds.
    pub timeout: f64,
    /// The share of requests that fail at any rate, if the search found such failures; otherwise 0.
    pub failure_share_at_any_rate: f64,
    /// True if connections are reused.
    pub keep_alive: bool,
    /// True if requests use TLS.
    pub tls: bool,
    /// True if the target is a host name rather than an address.
    pub target_is_name: bool,
    /// The most requests in any second: `--max-rate`.
    pub max_rate: Option<f64>,
    /// The highest rate that the generator can send, in requests per second.
    pub generator_max_rate: Option<f64>,
    /// The time limit of the inquiry, including pauses. Base, near and over run even if the time is over.
    pub time_budget: Duration,
}

/// The next step of an inquiry.
#[derive(Debug, Clone, PartialEq)]
pub enum InquiryStep {
    /// Run this experiment.
    RunExperiment(Experiment),
    /// Send nothing for this time.
    Pause(Duration),
    /// The inquiry has finished; its report is complete.
    Finished,
}

/// The number of consecutive invalid experiments that ends the inquiry, at a load that the generator has not sent before.
const INVALID: usize = 3;
/// The number of consecutive invalid experiments that ends the inquiry, at a load that the generator has sent before. Then
/// something disturbs single experiments.
const DISTURBED: usize = 6;
/// The least expected information, in bits per second of load, of an experiment that is worth running.
const WORTH: f64 = 0.1;
/// The weight of the signs in the choice of the next experiment. Less than 1 keeps the inquiry from becoming sure too early.
const TRUST: f64 = 0.7;
/// The most bisections of the idle time. From 0.1 ms and 0.6 s, with geometric means, they narrow the time to within a seventh.
const HALVINGS: usize = 6;
/// The overhead of an experiment beside its load, in seconds.
const BESIDE: f64 = 0.6;

/// The recovery of the target from an overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecoveryState {
    /// The target works, as far as the inquiry knows.
    Recovered,
    /// The last experiment was an overload: a recovery check must follow.
    CheckNeeded,
    /// The target has not recovered: a pause must follow.
    PauseNeeded,
}

/// An inquiry in progress. The caller asks it for steps and records their results.
#[derive(Debug, Clone)]
pub struct Inquiry {
    known: SearchFindings,
    report: DiagnosisReport,
    /// True if the inquiry has finished.
    is_over: bool,
    pending: Option<InquiryStep>,
    /// The seconds spent so far.
    spent: f64,
    /// The number of consecutive invalid experiments.
    invalid: usize,
    recovery: RecoveryState,
    /// The number of failed recovery checks.
    degraded: usize,
    /// True if the base experiment was repeated.
    repeated: bool,
    /// The experiment that runs after the current pause.
    put_off: Option<Experiment>,
}

impl Inquiry {
    /// Creates an inquiry that has run no experiment.
    #[must_use]
    pub fn new(known: SearchFindings) -> Self {
        Self {
            known,
            report: DiagnosisReport::default(),
            is_over: false,
            pending: None,
            spent: 0.0,
            invalid: 0,
            recovery: RecoveryState::Recovered,
            degraded: 0,
            repeated: false,
            put_off: None,
        }
    }

    /// Returns the results of the search.
    #[must_use]
    pub fn search_findings(&self) -> &SearchFindings {
        &self.known
    }

    /// Returns the next step. The result stays the same until the caller records that step.
    pub fn next_step(&mut self) -> InquiryStep {
        if self.is_over {
            return InquiryStep::Finished;
        }
        if self.pending.is_none() {
            self.pending = self.plan();
        }
        match &self.pending {
            Some(step) => step.clone(),
            None => {
                self.end();
                InquiryStep::Finished
            }
        }
    }

    /// Records the result of an experiment. An impossible experiment is recorded, too, so that the inquiry does not choose it again.
    pub fn record_experiment(&mut self, experiment: &Experiment, watched: ExperimentObservation) {
        self.pending = None;
        let (interrupted, invalid) = (watched.interrupted, watched.invalid_reason.is_some());
        let ran = watched.impossible_reason.is_none();
        let least = if ran { load_seconds(experiment) } else { 0.0 };
        self.spent += least.max(watched.took.as_secs_f64());
        let says = report_text::summarize_experiment(experiment, &watched);
        self.report.experiments.push(ExperimentRecord {
            experiment: experiment.clone(),
            observation: watched,
            summary: says,
        });
        self.count_invalid(experiment, invalid);
        // An invalid experiment has sent its load, too.
        if ran && overloads(experiment, &self.known) {
            self.recovery = RecoveryState::CheckNeeded;
        } else if ran && !invalid {
            self.recovery = RecoveryState::Recovered;
        }
        if experiment.name == "recovery check" && ran && !invalid {
            self.learn_recovery_check();
        } else if ran && !invalid && self.is_deserted() {
            self.recovery = RecoveryState::CheckNeeded;
        }
        self.conclude();
        // Without base, no experiment has a reference. Without a recovery check, the state of the target is unknown.
        let blind = !ran && matches!(experiment.name, "half the limit" | "recovery check");
        if interrupted || blind || self.invalid >= self.most_invalid() {
            self.end();
        }
    }

    /// Returns the number of consecutive invalid experiments that ends the inquiry.
    fn most_invalid(&self) -> usize {
        let Some((last, before)) = self.report.experiments.split_last() else { return INVALID };
        let most = experiment_plans::max_requests_per_second(&last.experiment.load);
        let valid = before.iter().filter(|tried| is_valid(tried));
        let sent = valid.map(|tried| experiment_plans::max_requests_per_second(&tried.experiment.load));
        if sent.fold(0.0, f64::max) >= most { DISTURBED } else { INVALID }
    }

    /// Counts consecutive invalid experiments. A valid recovery check between two invalid overloads does not reset the count.
    fn count_invalid(&mut self, experiment: &Experiment, invalid: bool) {
        if invalid {
            self.invalid += 1;
        } else if experiment.name != "recovery check" {
            self.invalid = 0;
        }
    }

    /// Records a pause; `goes_on` is false if the user interrupted it.
    pub fn record_pause(&mut self, time: Duration, goes_on: bool) {
        self.spent += time.as_secs_f64();
        self.pending = self.put_off.take().map(InquiryStep::RunExperiment);
        if self.pending.is_none() {
            self.recovery = RecoveryState::CheckNeeded;
        }
        if !goes_on {
            self.end();
        }
    }

    /// Returns the current result.
    #[must_use]
    pub fn report(&self) -> &DiagnosisReport {
        &self.report
    }

    fn case(&self) -> DiagnosisInput<'_> {
        DiagnosisInput { search_findings: &self.known, experiments: &self.report.experiments }
    }

    fn end(&mut self) {
        self.is_over = true;
        self.conclude();
    }

    fn plan(&mut self) -> Option<InquiryStep> {
        if self.known.limit_rate <= 0.0 || !self.known.limit_rate.is_finite() {
            return None;
        }
        if self.recovery == RecoveryState::PauseNeeded {
            return Some(InquiryStep::Pause(REST));
        }
        let look = self.recovery == RecoveryState::CheckNeeded;
        let next =
            if look { Some(experiment_plans::recovery_check(&self.case())) } else { self.repetition() };
        let next = next.or_else(|| self.opening()).or_else(|| self.other_ports());
        let next = next.or_else(|| {
            if self.succeeded_at_half_limit() { self.suspicion().or_else(|| self.choose()) } else { None }
        });
        let next = next.filter(|next| self.affords(next))?;
        if self.needs_pause_before(&next) {
            self.put_off = Some(next);
            return Some(InquiryStep::Pause(APART));
        }
        Some(InquiryStep::RunExperiment(next))
    }

    /// Returns whether this experiment and the last one together may exceed `--max-rate` in one second, so that a pause must
    /// separate them.
    fn needs_pause_before(&self, next: &Experiment) -> bool {
        let last = self.report.experiments.last().filter(|last| last.observation.impossible_reason.is_none());
        let crowded = |last: &ExperimentRecord| {
            [last.experiment.load.clone(), next.load.clone()].iter().any(experiment_plans::is_bursty)
        };
        self.known.max_rate.is_some() && last.is_some_and(crowded)
    }

    /// Returns the experiment from another source address, if this machine lacks ports. It runs early, because missing ports hide
    /// the target's behaviour.
    fn other_ports(&self) -> Option<Experiment> {
        let case = self.case();
        let plan = OPTIONAL_PLANS.iter().find(|plan| plan.name == "another source address")?;
        plan.experiment(&case).filter(|_| case.attempts_toward_max_times(plan.name) < plan.max_times)
    }

    /// Returns whether a request succeeded at half the limit. Without one, other experiments have no reference, and a wrong URL
    /// path looks like a concurrency cap.
    fn succeeded_at_half_limit(&self) -> bool {
        self.case().half_limit_experiment().is_some_and(|base| base.stats.good_requests().next().is_some())
    }

    fn affords(&self, next: &Experiment) -> bool {
        let opening = matches!(next.name, "half the limit" | "90 % of the limit" | "150 % of the limit");
        opening || self.spent + load_seconds(next) <= self.known.time_budget.as_secs_f64()
    }

    /// Repeats base once if it was disturbed, that is, if one client alone was far faster.
    fn repetition(&mut self) -> Option<Experiment> {
        let case = self.case();
        let alone = case.last_experiment_named("one client")?.stats.response_times();
        let disturbed =
            alone.count() >= 5 && case.half_limit_response_times().mean() > 2.0 * alone.mean() + 0.001;
        if !disturbed || self.repeated {
            return None;
        }
        self.repeated = true;
        Some(experiment_plans::half_the_limit(&self.case()))
    }

    fn opening(&self) -> Option<Experiment> {
        let case = self.case();
        let makes = [
            ("half the limit", experiment_plans::half_the_limit as fn(&DiagnosisInput<'_>) -> Experiment),
            ("90 % of the limit", experiment_plans::near_the_limit),
            ("150 % of the limit", experiment_plans::overload),
        ];
        // An invalid experiment is repeated. An impossible or empty one is not.
        let last = |name: &str| case.experiments.iter().rfind(|tried| tried.experiment.name == name);
        let due = |name: &str| last(name).is_none_or(|tried| tried.observation.invalid_reason.is_some());
        let next =
            makes.into_iter().find(|(name, _)| case.last_experiment_named(name).is_none() && due(name));
        next.map(|(_, make)| make(&case))
    }

    /// Returns an experiment that looks again for unserved connections, stalls or closed connections, if they were seen too
    /// rarely for a verdict. They may be a second cause.
    fn suspicion(&self) -> Option<Experiment> {
        let case = self.case();
        let still = case.times_attempted("half the limit for 4 s") == 0
            && signs::saw_stall_below_limit(&case)
            && !self.shown("half the limit for 4 s");
        let raced = case.times_attempted("two connections") == 0
            && signs::saw_keep_alive_race(&case)
            && !self.shown("half the limit");
        let make = |name: &str| {
            OPTIONAL_PLANS.iter().find(|plan| plan.name == name).and_then(|plan| plan.experiment(&case))
        };
        let capped = case.times_attempted("idle connections held open") == 0
            && signs::saw_hangs_only_on_new_connections(&case);
        let next = if capped { make("idle connections held open") } else { None };
        let next = next.or_else(|| if still { make("half the limit for 4 s") } else { None });
        next.or_else(|| if raced { make("two connections") } else { None }).filter(|next| self.affords(next))
    }

    /// Returns whether a sign of this experiment is already present.
    fn shown(&self, by: &str) -> bool {
        let rules = RULES.iter().filter(|rule| rule.experiment_name == by && rule.outcome_count() == 2);
        rules.filter_map(|rule| (rule.read)(&self.case())).any(|(outcome, _)| outcome == 1)
    }

    /// Returns the experiment with the most expected information per second. A harmful one is chosen only if no harmless one is
    /// worth running.
    fn choose(&self) -> Option<Experiment> {
        let case = self.case();
        let odds = CausePosterior::new(&odds::read_signs(&case), TRUST);
        let best = |harms: bool| {
            let plans = OPTIONAL_PLANS.iter().filter(|plan| {
                plan.is_harmful == harms && case.attempts_toward_max_times(plan.name) < plan.max_times
            });
            let worth = plans.filter_map(|plan| Some((self.information_per_second(plan, &odds)?, plan)));
            worth.filter(|(worth, _)| *worth > WORTH).max_by(|one, other| one.0.total_cmp(&other.0))
        };
        let plan = best(false).or_else(|| best(true)).map(|(_, plan)| plan);
        plan.and_then(|plan| plan.experiment(&case))
            .or_else(|| self.connection_cap_experiment(&odds))
            .or_else(|| self.reused_connection_experiment())
            .or_else(|| self.bisect())
    }

    /// Returns an experiment with old connections, if none ran yet. A keep-alive race shows only on old connections and can
    /// accompany any other cause.
    fn reused_connection_experiment(&self) -> Option<Experiment> {
        let case = self.case();
        let old = ["two connections", "idle connections"];
        let mut plans = OPTIONAL_PLANS
            .iter()
            .filter(|plan| old.contains(&plan.name) && case.times_attempted(plan.name) == 0);
        plans.find_map(|plan| plan.experiment(&case).filter(|next| self.affords(next)))
    }

    /// Bisects the idle time after which the target closes connections, if a keep-alive race was found.
    fn bisect(&self) -> Option<Experiment> {
        let case = self.case();
        let raced = self.report.causes.iter().any(|cause| cause.class == CauseClass::KeepAliveRace);
        let (alive, closed) = cause_size_estimates::idle_timeout_bounds(&case)?;
        let open = closed > MAX_RATIO_FOR_SINGLE_IDLE_TIMEOUT * alive
            && case.times_attempted("idle timeout") < HALVINGS;
        (raced && open)
            .then(|| experiment_plans::bursts_with_idle_between(&case, (alive * closed).sqrt()))
            .filter(|next| self.affords(next))
    }

    /// Returns the expected information of an experiment in bits per second; none if the experiment is not possible.
    fn information_per_second(&self, plan: &ExperimentPlan, odds: &CausePosterior) -> Option<f64> {
        let experiment = plan.experiment(&self.case()).filter(|experiment| self.affords(experiment))?;
        let rules = RULES.iter().filter(|rule| shows(plan.name, rule.experiment_name));
        let told: f64 = rules.map(|rule| odds.expected_information_of_sign(rule)).sum();
        // A repetition shows less than the first run.
        let again = 1.0 + self.case().times_attempted(plan.name) as f64;
        Some(told / again / (load_seconds(&experiment) + BESIDE))
    }

    /// Experiments that find the connection cap if requests hang. A cap far above a limiter shows only at a higher rate. They run last,
    /// because they are the heaviest.
    fn connection_cap_experiment(&self, odds: &CausePosterior) -> Option<Experiment> {
        let case = self.case();
        let hang = case
            .strongest_overload()
            .is_some_and(|over| over.stats.share_where(|hit| hit.outcome.hangs()) > 0.05);
        let capped = odds.leading_class() == CauseClass::ConnectionCap;
        if !(capped || odds.leading_class() == CauseClass::HangingLimiter)
            || !hang
            || case.search_findings.limit_rate > MOST_FOR_COUNT
        {
            return None;
        }
        let few = capped.then(|| experiment_plans::few_connections(&case));
        let much = [
            experiment_plans::many_new_connections(&case, false),
            experiment_plans::many_new_connections(&case, true),
        ];
        // Both rates are needed: one alone shows nothing.
        let much = much
            .into_iter()
            .flatten()
            .filter(|_| experiment_plans::many_new_connections(&case, true).is_some());
        let next = few.into_iter().chain(much).find(|next| case.times_attempted(next.name) == 0);
        next.filter(|next| self.affords(next))
    }

    /// Learns from a recovery check whether the target has recovered.
    fn learn_recovery_check(&mut self) {
        let case = self.case();
        let failed = case
            .last_experiment_named("recovery check")
            .is_some_and(|again| is_degraded(&again.stats, &case));
        if !failed {
            self.degraded = 0;
            return;
        }
        self.degraded += 1;
        self.recovery = RecoveryState::PauseNeeded;
        if self.degraded > 2 {
            // The overload would distort every further experiment.
            self.is_over = true;
        }
    }

    /// Returns whether the target was down in the last experiment but answered before.
    fn is_deserted(&self) -> bool {
        let last = self.report.experiments.last().map(|last| ExperimentStats::new(&last.observation));
        let was_there = self
            .report
            .experiments
            .iter()
            .any(|tried| ExperimentStats::new(&tried.observation).good_requests().next().is_some());
        was_there && last.is_some_and(|last| last.is_down() || last.is_down_at_end())
    }

    /// Updates the report. If the target has gone down, only earlier observations count.
    fn conclude(&mut self) {
        let gone = self.case().last_experiment_index_before_outage();
        let before = gone.map(|last| experiments_before_outage(&self.report.experiments, last));
        let case = DiagnosisInput {
            search_findings: &self.known,
            experiments: before.as_deref().unwrap_or(&self.report.experiments),
        };
        let left = match gone.and_then(|last| self.report.experiments.get(last)) {
            Some(last) => TargetCondition::Gone(last.experiment.name),
            None if self.degraded > 0 => TargetCondition::Degraded,
            None => TargetCondition::Sound,
        };
        let readings = odds::read_signs(&case);
        let odds = CausePosterior::new(&readings, 1.0);
        let causes = self.causes(&case, &readings, &odds);
        let named: Vec<_> = causes.iter().map(|cause| cause.class).collect();
        let ties = report_text::find_ties(&case, &odds, &named);
        // A cause that cannot be told from a named one is not excluded, whatever its probability: the signs cannot separate the two.
        let tied = ties.iter().flat_map(|tie| &tie.between);
        let possible: Vec<_> = named.iter().chain(tied).copied().collect();
        let excluded = report_text::list_excluded_causes(&readings, &odds, &possible);
        let untested = report_text::list_undecided_causes(&case, &odds, &named, &excluded, left);
        self.report.causes = causes;
        self.report.ties = ties;
        self.report.excluded = excluded;
        self.report.undecided_causes = untested;
        self.report.last_answered_experiment = left.last_answered_experiment();
    }

    fn causes(
        &self,
        case: &DiagnosisInput<'_>,
        readings: &[ObservedSign],
        odds: &CausePosterior,
    ) -> Vec<crate::report::DiagnosedCause> {
        // Without a valid overload there are no observations of how the target breaks.
        if self.invalid >= INVALID && case.strongest_overload().is_none() {
            return vec![report_text::describe_generator_cause(&self.report.experiments)];
        }
        let causes =
            if readings.is_empty() { vec![(CauseClass::Unknown, 1.0)] } else { odds.causes_to_report() };
        let named: Vec<_> = causes.iter().map(|(class, _)| *class).collect();
        causes
            .iter()
            .map(|(class, confidence)| {
                report_text::describe_cause(case, *class, *confidence, readings, odds, &named)
            })
            .collect()
    }
}

/// The pause after an overload from which the target has not recovered. The backlog clears in backlog / (limit - load). At most 0.7 s of
/// the rate were admitted, so 3 s is more than three times that.
const REST: Duration = Duration::from_secs(3);
/// The pause between two bursty loads, so that no second exceeds `--max-rate`.
const APART: Duration = Duration::from_secs(1);
/// The highest rate, in requests per second, for which the inquiry offers twice the "many connections" load.
const MOST_FOR_COUNT: f64 = 600.0;

/// Returns the observations before the target went down: all experiments up to the last answered one, and from that one the
/// requests that had ended by the last good response.
fn experiments_before_outage(tried: &[ExperimentRecord], last: usize) -> Vec<ExperimentRecord> {
    let mut before = tried.get(..=last).unwrap_or(tried).to_vec();
    if let Some(last) = before.last_mut() {
        let hits = &mut last.observation.requests;
        let went = hits
            .iter()
            .filter(|hit| hit.outcome == ObservedOutcome::Good)
            .map(|hit| hit.end)
            .fold(0.0, f64::max);
        hits.retain(|hit| hit.end <= went);
    }
    before
}

/// Returns whether most good responses are missing or far slower than before.
fn is_degraded(view: &ExperimentStats<'_>, case: &DiagnosisInput<'_>) -> bool {
    // Missing local ports are a fault of this machine, not of the target.
    let failed =
        view.share_where(|hit| !matches!(hit.outcome, ObservedOutcome::Good | ObservedOutcome::NoPort));
    let before = case
        .half_limit_experiment()
        .map_or(0.0, |base| base.stats.share_where(|hit| hit.outcome != ObservedOutcome::Good));
    let slow = view.response_times().median() > 4.0 * case.half_limit_response_times().quantile(0.95) + 0.05;
    failed > before + 0.3 || slow || view.is_down()
}

fn is_valid(tried: &ExperimentRecord) -> bool {
    tried.observation.invalid_reason.is_none() && tried.observation.impossible_reason.is_none()
}

fn overloads(experiment: &Experiment, known: &SearchFindings) -> bool {
    matches!(experiment.load, ExperimentLoad::Rate { rate, .. } if rate > known.limit_rate)
        || experiment.variation.held_idle_connections > 0
}

/// Returns whether an experiment shows a sign of `by`. The stronger "250 % of the limit" also shows the signs of "150 % of the
/// limit".
fn shows(plan: &str, by: &str) -> bool {
    plan == by || plan == "250 % of the limit" && by == "150 % of the limit"
}

/// Returns the duration of an experiment's load, in seconds.
#[must_use]
pub fn load_seconds(experiment: &Experiment) -> f64 {
    match experiment.load {
        ExperimentLoad::Rate { lasts, .. } | ExperimentLoad::Clients { lasts, .. } => lasts.as_secs_f64(),
        ExperimentLoad::Bursts { times, every, quiet, .. } => {
            quiet.as_secs_f64() + every.as_secs_f64() * times as f64
        }
    }
}
