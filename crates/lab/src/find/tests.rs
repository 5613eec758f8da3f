//! Tests of whole runs on simulated targets with a manual clock.

use std::sync::LazyLock;
use std::time::Duration;

use seawall_cause::class::CauseClass as Cause;
use seawall_cause::experiment::Experiment;
use seawall_cause::experiment_target::ExperimentTarget;
use seawall_cause::observed_requests::{ExperimentObservation, ObservedOutcome, ObservedRequest};
use seawall_cause::report;
use seawall_search::closed_loop;
use seawall_search::goal::{LatencyGoal, SearchGoal};
use seawall_search::observation::TrialObservation;
use seawall_search::report::SearchReport;
use seawall_search::search_profile::Profile;
use seawall_search::simulated::servers::{ServiceDistribution, SimulatedWorkers};
use seawall_search::simulated::target::{self as simulated, SimulatedTarget};
use seawall_search::simulated::target_specs::{SimulatedClass, SimulatedTargetSpec};
use seawall_search::target::SearchTarget as Offered;
use seawall_search::trial_spec::TrialSpec;
use seawall_search::trial_verdict::TrialVerdict;

use super::compare::{ComparisonVerdict, RunComparisonError, compare, differences};
use super::find_report::{
    self, ConnectionPolicy, FindConfig, FindOutcome, FindReport, FindStopReason, ReportedArrivals,
    ReportedLimit, ReportedVerdict, RequestFingerprint,
};
use super::plan::{FindPlan, TargetInfo};
use super::progress::{BudgetStatus, FindStep, FindWatcher, NoopWatcher};
use super::resume::ResumeError;
use super::{empty_report, find, has_nothing_left, is_broken_twice, read_report, report_builder, resume};
use crate::target_driver::{Calibration, TargetDriver};

/// A simulated target that counts its trials.
pub(super) struct Field {
    target: SimulatedTarget,
    most: Option<f64>,
    offers: usize,
    clients: u32,
    /// The number of trials at the time when the connections were closed.
    hung_up: Option<usize>,
    /// The observation that every experiment returns.
    watched: ExperimentObservation,
}

impl Field {
    pub(super) fn of(plant: &SimulatedTargetSpec, goal: &SearchGoal) -> Self {
        let watched = ExperimentObservation {
            impossible_reason: Some("it is simulated".to_owned()),
            ..ExperimentObservation::default()
        };
        Self {
            target: plant.build_target(goal, 1),
            most: None,
            offers: 0,
            clients: 10_000,
            hung_up: None,
            watched,
        }
    }
}

impl Offered for Field {
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation {
        self.offers += 1;
        self.target.carry_out(offer)
    }

    fn rest(&mut self, time: Duration) -> bool {
        self.target.rest(time)
    }
}

impl closed_loop::ClosedTarget for Field {
    fn carry_out(&mut self, offer: &closed_loop::ClosedTrialSpec) -> TrialObservation {
        self.offers += 1;
        closed_loop::ClosedTarget::carry_out(&mut self.target, offer)
    }

    fn rest(&mut self, time: Duration) -> bool {
        closed_loop::ClosedTarget::rest(&mut self.target, time)
    }
}

impl ExperimentTarget for Field {
    fn run_experiment(&mut self, _: &Experiment) -> ExperimentObservation {
        self.watched.clone()
    }

    fn pause(&mut self, time: Duration) -> bool {
        self.target.rest(time)
    }
}

impl TargetDriver for Field {
    fn close_connections(&mut self) {
        self.hung_up = Some(self.offers);
    }

    fn max_clients(&self) -> u32 {
        self.clients
    }

    fn calibrate(&mut self) -> Calibration {
        let took = Duration::from_secs(1);
        Calibration { max_rate: self.most, explanation: "it was told".to_owned(), took, interrupted: false }
    }
}

pub(super) fn plan() -> FindPlan {
    let late = LatencyGoal { max_late_share: 0.01, latency_limit: Duration::from_millis(250) };
    FindPlan {
        goal: SearchGoal { latency_goal: Some(late), ..SearchGoal::ERRORS_ONLY },
        profile: Profile::QUICK,
        max_rate: None,
        budget: None,
        looks_for_cause: false,
        target_info: TargetInfo {
            url: "http://127.0.0.1:8080/".to_owned(),
            count: 1,
            uses_tls: false,
            has_host_name: false,
        },
        arrivals: ReportedArrivals::Constant,
        connections: ConnectionPolicy {
            keep_alive: true,
            max_connections: None,
            requests_per_connection: None,
            protocol: "http/1.1".to_owned(),
        },
        timeout: Some(Duration::from_secs(30)),
        fingerprint: None,
    }
}

pub(super) fn queue() -> SimulatedTargetSpec {
    SimulatedTargetSpec::draw(SimulatedClass::QueueExponential, 7)
}

fn run(field: &mut Field, plan: &FindPlan) -> FindReport {
    find(field, plan, None, &mut NoopWatcher).unwrap()
}

/// Returns the report of one search, which is computed once because it takes seconds without optimisation.
fn found() -> FindReport {
    let cause = find_report::ReportedCause {
        name: "unknown".to_owned(),
        score: 0.25,
        evidence: Vec::new(),
        estimates: Vec::new(),
    };
    FindReport { cause: Some(cause), ..searched() }
}

pub(super) fn searched() -> FindReport {
    static FOUND: LazyLock<FindReport> =
        LazyLock::new(|| run(&mut Field::of(&queue(), &plan().goal), &plan()));
    FOUND.clone()
}

#[test]
fn a_run_says_where_a_target_breaks_and_by_which_trials() {
    let plant = queue();
    let answer = run(&mut Field::of(&plant, &plan().goal), &FindPlan { looks_for_cause: true, ..plan() });
    assert_eq!((answer.outcome, answer.stop_reason), (FindOutcome::Found, None));
    let bracket = answer.breaking_rate.lower.unwrap()..answer.breaking_rate.upper.unwrap();
    assert!(bracket.contains(&plant.capacity), "{bracket:?} without {}", plant.capacity);
    assert!(answer.breaking_rate.highest_good_rate.unwrap() < answer.breaking_rate.lowest_bad_rate.unwrap());
    assert!(answer.cause.is_some() && answer.trials.len() > 5);
}

#[test]
fn an_answer_is_the_same_after_it_was_written_and_read() {
    let answer = found();
    let read = read_report::parse(answer.to_json().unwrap().as_bytes()).unwrap();
    assert!(read == answer && read.to_json().unwrap() == answer.to_json().unwrap());
}

#[test]
fn a_run_that_was_written_before_a_target_could_be_asked_is_read() {
    let text = found().to_json().unwrap().replacen("\"server_metrics\":[],", "", 1);
    assert_eq!(read_report::parse(text.as_bytes()).unwrap(), found());
}

#[test]
fn what_no_run_has_written_is_refused() {
    let text = found().to_json().unwrap();
    let change = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        read_report::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string()
    };
    for (from, to, why) in [
        ("\"version\":1", "\"version\":2", "version 2"),
        ("\"outcome\":\"found\"", "\"outcome\":\"lost\"", "unknown variant"),
        ("\"effort\":\"quick\"", "\"effort\":\"slow\"", "unknown effort"),
        ("\"rate\":20.0", "\"rate\":-20.0", "the rate, a time or a count of a trial"),
        ("\"max_error_ratio\":0.001", "\"max_error_ratio\":7", "between 0 and 1"),
        ("\"trials\"", "\"more\":1,\"trials\"", "unknown field"),
        (
            "\"server_metrics\":[]",
            "\"server_metrics\":[{\"start_seconds\":-1,\"end_seconds\":1,\"phase\":\"\",\"facts\":[],\"unavailable\":[]}]",
            "an entry of \"server_metrics\"",
        ),
        ("\"name\":\"unknown\"", "\"name\":\"gremlins\"", "unknown class"),
    ] {
        let said = change(from, to);
        assert!(said.contains(why), "{from}: {said}");
    }
    assert!(
        read_report::parse(b"{").is_err()
            && read_report::parse(b"").is_err()
            && read_report::parse(b"[1]").is_err()
    );
}

#[test]
fn a_document_that_is_not_of_kind_find_is_refused_before_anything_else_of_it_is_read() {
    let text = found().to_json().unwrap();
    assert!(text.starts_with("{\"kind\":\"find\",\"version\":1,\"outcome\":"), "{}", &text[..60]);
    for (from, to, why) in [
        ("\"kind\":\"find\"", "\"kind\":\"isolate\"", "\"kind\" is \"isolate\", expected \"find\""),
        ("\"kind\":\"find\",", "", "\"kind\" is missing, expected \"find\""),
    ] {
        let said = read_report::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    }
    let said =
        read_report::parse(b"{\"kind\":\"attack\",\"version\":7,\"offered\":1}").unwrap_err().to_string();
    assert!(said.contains("\"kind\" is \"attack\""), "{said}");
}

#[test]
fn everything_together_stays_within_the_budget() {
    for seconds in [20, 45] {
        for class in [SimulatedClass::QueueExponential, SimulatedClass::Limiter, SimulatedClass::Metastable] {
            let budget = Duration::from_secs(seconds);
            let plan = FindPlan { budget: Some(budget), looks_for_cause: true, ..plan() };
            let answer = run(&mut Field::of(&SimulatedTargetSpec::draw(class, 7), &plan.goal), &plan);
            assert!(
                answer.duration_seconds <= budget.as_secs_f64(),
                "{class:?}: {} of {seconds} s",
                answer.duration_seconds
            );
        }
    }
}

#[test]
fn a_run_that_ran_out_of_time_says_so_and_is_continued() {
    let plan = FindPlan { budget: Some(Duration::from_secs(20)), ..plan() };
    let mut field = Field::of(&queue(), &plan.goal);
    let first = run(&mut field, &plan);
    assert_eq!(first.stop_reason, Some(FindStopReason::Budget));
    let second =
        find(&mut field, &FindPlan { budget: None, ..plan.clone() }, Some(&first), &mut NoopWatcher).unwrap();
    assert_eq!((second.outcome, second.stop_reason), (FindOutcome::Found, None));
    assert!(second.duration_seconds > first.duration_seconds && second.trials.len() > first.trials.len());
    assert_eq!(second.trials[0].blocks, first.trials[0].blocks);
    // The second report also leads to the same place after it was written and read.
    let written = read_report::parse(second.to_json().unwrap().as_bytes()).unwrap();
    let offers = field.offers;
    let third =
        find(&mut field, &FindPlan { budget: None, ..plan }, Some(&written), &mut NoopWatcher).unwrap();
    assert_eq!(
        (third.outcome, field.offers),
        (FindOutcome::Found, offers),
        "there was nothing more to offer"
    );
}

#[test]
fn what_was_interrupted_is_kept_and_the_trial_that_was_cut_is_made_anew() {
    let plan = plan();
    let mut field = Field::of(&queue(), &plan.goal);
    field.target = queue().build_target(&plan.goal, 1).interrupted_at(12.0);
    let first = run(&mut field, &plan);
    assert_eq!(
        (first.outcome, first.stop_reason, first.cause.as_ref()),
        (FindOutcome::Interrupted, Some(FindStopReason::Signal), None)
    );
    assert!(first.trials.last().unwrap().is_interrupted && first.trials.len() > 2);
    let mut field = Field::of(&queue(), &plan.goal);
    let second = find(&mut field, &plan, Some(&first), &mut NoopWatcher).unwrap();
    assert_eq!(second.outcome, FindOutcome::Found);
    assert!(second.trials.iter().all(|trial| !trial.is_interrupted));
}

#[test]
fn a_run_that_had_sent_nothing_looks_at_the_generator_again() {
    let plan = FindPlan { max_rate: Some(100.0), ..plan() };
    let mut nothing = run(&mut Field::of(&queue(), &plan.goal), &plan);
    (nothing.outcome, nothing.stop_reason) = (FindOutcome::Interrupted, Some(FindStopReason::Signal));
    nothing.trials.clear();
    let mut field = Field { most: Some(80.0), ..Field::of(&queue(), &plan.goal) };
    let answer = find(&mut field, &plan, Some(&nothing), &mut NoopWatcher).unwrap();
    assert_eq!(
        (answer.outcome, answer.generator_capacity.max_rate),
        (FindOutcome::GeneratorLimited, Some(80.0))
    );
}

#[test]
fn a_run_is_continued_as_it_was_begun_or_not_at_all() {
    let first = found();
    let refused = |plan: &FindPlan, before: &FindReport| {
        let mut field = Field::of(&queue(), &plan.goal);
        let why = find(&mut field, plan, Some(before), &mut NoopWatcher).unwrap_err();
        assert_eq!(field.offers, 0, "nothing was sent");
        why
    };
    let other = FindPlan { goal: SearchGoal::ERRORS_ONLY, ..plan() };
    assert_eq!(refused(&other, &first), ResumeError::ConfigDiffers("--slo"));
    let other = FindPlan { arrivals: ReportedArrivals::Poisson, ..plan() };
    assert_eq!(refused(&other, &first), ResumeError::ConfigDiffers("--arrivals"));
    let other =
        FindPlan { target_info: TargetInfo { url: "http://b/".to_owned(), ..plan().target_info }, ..plan() };
    assert_eq!(refused(&other, &first), ResumeError::ConfigDiffers("target"));
    let mut changed = first.clone();
    changed.trials[2].rate *= 1.5;
    assert_eq!(refused(&plan(), &changed), ResumeError::TrialDiffers(3));
    changed.trials[1].duration_seconds = -1.0;
    assert_eq!(refused(&plan(), &changed), ResumeError::InvalidTime("-1".to_owned()));
}

/// Regression: a run through a Unix socket continued over TCP, with another server.
#[test]
fn a_run_that_another_server_would_answer_or_that_sends_something_else_is_not_continued() {
    let sent = RequestFingerprint {
        via: Some("at ng/sock".to_owned()),
        certificate_digest: None,
        requests_digest: "00c0ffee".to_owned(),
        settings: "10 redirects".to_owned(),
    };
    let of = |sent: Option<RequestFingerprint>| FindReport {
        config: FindConfig { request_fingerprint: sent, ..found().config },
        ..found()
    };
    let goes_on = |now: Option<RequestFingerprint>, before: Option<RequestFingerprint>| {
        resume::restore_search(&FindPlan { fingerprint: now, ..plan() }, &of(before)).map(|_| ())
    };
    let refused = |now: RequestFingerprint| goes_on(Some(now), Some(sent.clone())).unwrap_err().to_string();
    let text = refused(RequestFingerprint { via: None, ..sent.clone() });
    assert!(
        text.starts_with(
            "the earlier run connected at ng/sock, but this run would connect directly to the target"
        ),
        "{text}"
    );
    let other = Some("01".to_owned());
    assert!(refused(RequestFingerprint { certificate_digest: other, ..sent.clone() }).contains("--cert"));
    assert!(
        refused(RequestFingerprint { requests_digest: "01".to_owned(), ..sent.clone() }).contains("--header")
    );
    assert!(refused(RequestFingerprint { settings: String::new(), ..sent.clone() }).contains("--resolvers"));
    // The same requests, and a report of an earlier version.
    assert_eq!(goes_on(Some(sent.clone()), Some(sent.clone())), Ok(()));
    assert_eq!(goes_on(Some(sent.clone()), None), Ok(()));
    let written = of(Some(sent)).to_json().unwrap();
    assert_eq!(read_report::parse(written.as_bytes()).unwrap().to_json().unwrap(), written);
    assert!(!of(None).to_json().unwrap().contains("\"request_fingerprint\":{"));
}

#[test]
fn a_cap_and_the_generator_are_no_limit_of_the_target() {
    let curious = || FindPlan { looks_for_cause: true, ..plan() };
    let capped = FindPlan { max_rate: Some(100.0), ..curious() };
    let answer = run(&mut Field::of(&queue(), &capped.goal), &capped);
    assert_eq!(
        (answer.outcome, answer.breaking_rate.lower, answer.breaking_rate.upper),
        (FindOutcome::NoLimitFound, None, None)
    );
    assert_eq!((answer.breaking_rate.highest_good_rate, answer.cause), (Some(100.0), None));
    let mut field = Field { most: Some(120.0), ..Field::of(&queue(), &plan().goal) };
    let answer = run(&mut field, &curious());
    assert_eq!(
        (answer.outcome, answer.breaking_rate.upper, answer.latency_breaking_rate.upper),
        (FindOutcome::GeneratorLimited, None, None)
    );
    let cause = answer.cause.unwrap();
    assert_eq!((cause.name.as_str(), cause.evidence[0].observation.as_str()), ("generator", "it was told"));
}

/// Regression: two targets in one file, of which one refuses and one delays, had the cause "uneven balancing".
#[test]
fn of_several_targets_the_list_is_suspected_before_a_balancer() {
    let told = |targets: usize, class| {
        let mut answer = searched();
        answer.config.target_count = targets;
        report_builder::add_diagnosis(&mut answer, &blamed(class));
        answer
    };
    let answer = told(2, Cause::UnevenBalancing);
    let first = &answer.cause.as_ref().unwrap().evidence[0];
    assert!(
        first.observation.starts_with("2 targets were given") && first.experiment == "the target list",
        "{first:?}"
    );
    assert!(
        answer.ambiguous_causes[0].how_to_tell.starts_with("first search each of the 2 targets"),
        "{:?}",
        answer.ambiguous_causes
    );
    for other in [told(1, Cause::UnevenBalancing), told(2, Cause::RateLimiter)] {
        assert!(
            other.cause.unwrap().evidence.is_empty()
                && !other.ambiguous_causes[0].how_to_tell.contains("targets")
        );
    }
}

/// Returns the report of an inquiry that is sure of this class and cannot tell it from another.
fn blamed(class: Cause) -> report::DiagnosisReport {
    let cause = report::DiagnosedCause { class, confidence: 0.9, evidence: Vec::new(), figures: Vec::new() };
    let tie = report::CauseTie { between: vec![class, Cause::Pauses], how_to_tell: "look at it".to_owned() };
    report::DiagnosisReport { causes: vec![cause], ties: vec![tie], ..report::DiagnosisReport::default() }
}

#[test]
fn of_an_inquiry_that_ran_out_of_time_the_experiment_is_named() {
    let mut answer = searched();
    report_builder::add_not_run(&mut answer, Some("churn"));
    assert_eq!(answer.not_run, ["the experiment \"churn\" and all later experiments"]);
}

#[test]
fn of_a_whole_run_nothing_is_asked_anew() {
    let mut field = Field::of(&queue(), &plan().goal);
    for (before, plan) in [(searched(), plan()), (found(), FindPlan { looks_for_cause: true, ..plan() })] {
        let again = find(&mut field, &plan, Some(&before), &mut NoopWatcher).unwrap();
        assert!(again == before && field.offers == 0, "{} offers", field.offers);
    }
}

#[test]
fn where_nothing_was_found_a_third_of_the_time_for_the_cause_is_the_searchs() {
    let short = FindPlan { budget: Some(Duration::from_secs(25)), ..plan() };
    let trials = |cause| {
        run(&mut Field::of(&queue(), &short.goal), &FindPlan { looks_for_cause: cause, ..short.clone() })
    };
    let (with, without) = (trials(true), trials(false));
    assert!(
        with.is_found() || with.duration_seconds > 20.0,
        "{:?} after {} s",
        with.outcome,
        with.duration_seconds
    );
    assert!(with.is_found() || !without.is_found());
}

/// Regression: the trials found a limit of 19,126/s, but the report named the generator as the cause, because it could not send
/// twice as much.
#[test]
fn a_generator_that_an_inquiry_is_too_much_for_is_not_why_a_limit_that_was_found_is_there() {
    let mut field = Field::of(&queue(), &plan().goal);
    field.watched = ExperimentObservation {
        invalid_reason: Some("it was late".to_owned()),
        ..ExperimentObservation::default()
    };
    let answer = run(&mut field, &FindPlan { looks_for_cause: true, ..plan() });
    let cause = answer.cause.unwrap();
    assert_eq!((answer.outcome, cause.name.as_str()), (FindOutcome::Found, "unknown"));
    assert_eq!((cause.score, cause.evidence[0].observation.as_str()), (0.0, "it was late"));
}

#[test]
fn a_watcher_hears_of_every_step_before_and_after_it() {
    #[derive(Default)]
    struct Book {
        open: bool,
        offers: usize,
        spent: Duration,
    }
    impl FindWatcher for Book {
        fn step_started(&mut self, _: &FindStep<'_>, time: BudgetStatus) {
            assert!(!self.open && time.spent >= self.spent);
            self.open = true;
        }
        fn step_finished(
            &mut self,
            step: &FindStep<'_>,
            came: Option<&find_report::ReportedTrial>,
            time: BudgetStatus,
        ) {
            assert!(self.open && came.is_some() == matches!(step, FindStep::RateTrial(_)));
            (self.open, self.spent) = (false, time.spent);
            self.offers += usize::from(came.is_some());
        }
    }
    let (mut book, mut field) = (Book::default(), Field::of(&queue(), &plan().goal));
    let answer = find(&mut field, &plan(), None, &mut book).unwrap();
    assert_eq!((book.offers, answer.trials.len()), (field.offers, field.offers));
    assert!(!book.open);
}

#[test]
fn whoever_wants_to_know_in_the_middle_is_told_each_trial_and_then_each_experiment() {
    #[derive(Default)]
    struct Middle(Vec<FindReport>);
    impl FindWatcher for Middle {
        fn step_started(&mut self, _: &FindStep<'_>, _: BudgetStatus) {}
        fn step_finished(
            &mut self,
            _: &FindStep<'_>,
            _: Option<&find_report::ReportedTrial>,
            _: BudgetStatus,
        ) {
        }
        fn report_changed(&mut self, so_far: &dyn Fn() -> FindReport) {
            self.0.push(so_far());
        }
    }
    let plan = FindPlan { looks_for_cause: true, ..plan() };
    let mut watchers = (Middle::default(), Some(Middle::default()));
    let mut field = Field::of(&queue(), &plan.goal);
    let whole = find(&mut field, &plan, None, &mut watchers).unwrap();
    let (told, again) = (watchers.0.0, watchers.1.unwrap().0);
    assert_eq!(told, again);
    let of_search = &told[..whole.trials.len()];
    let counts: Vec<_> = of_search.iter().map(|so_far| so_far.trials.len()).collect();
    assert_eq!(counts, (1..=whole.trials.len()).collect::<Vec<_>>());
    assert!(of_search.iter().all(|so_far| so_far.stop_reason.is_none() && so_far.cause.is_none()));
    assert_eq!(of_search.last().unwrap().breaking_rate, whole.breaking_rate);
    let last = told.last().unwrap();
    assert_eq!((&last.experiments, &last.cause), (&whole.experiments, &None));
    assert!(has_nothing_left(&plan, &whole).unwrap() && !has_nothing_left(&plan, &of_search[0]).unwrap());
    let nothing = empty_report(&plan);
    assert_eq!(
        (nothing.trials.len(), nothing.stop_reason, nothing.outcome),
        (0, None, FindOutcome::Interrupted)
    );
}

#[test]
fn runs_compare_by_their_cliffs_and_only_if_the_same_was_asked() {
    let at = |lower: f64, point: f64, upper: f64| {
        let mut answer = found();
        (answer.breaking_rate.lower, answer.breaking_rate.estimate, answer.breaking_rate.upper) =
            (Some(lower), Some(point), Some(upper));
        answer
    };
    let before = at(98.0, 100.0, 102.0);
    let change = |after: &FindReport| compare(&before, after).map(|compared| compared.verdict);
    assert_eq!(change(&at(78.0, 80.0, 82.0)), Ok(ComparisonVerdict::Worse));
    assert_eq!(change(&at(118.0, 120.0, 122.0)), Ok(ComparisonVerdict::Better));
    assert_eq!(change(&at(97.0, 99.0, 101.0)), Ok(ComparisonVerdict::Same));
    assert_eq!(change(&at(70.0, 95.0, 120.0)), Ok(ComparisonVerdict::Undecided));
    let mut other = at(98.0, 100.0, 102.0);
    other.config.arrivals = ReportedArrivals::Poisson;
    assert_eq!(change(&other), Err(RunComparisonError::Config("--arrivals")));
    let mut other = at(98.0, 100.0, 102.0);
    other.config.connections.keep_alive = false;
    assert_eq!(change(&other), Err(RunComparisonError::Config("connection policy")));
    let mut other = at(98.0, 100.0, 102.0);
    other.outcome = FindOutcome::Interrupted;
    assert_eq!(change(&other), Err(RunComparisonError::NoRateFound));
}

#[test]
fn a_run_that_was_capped_is_compared_by_what_it_held_and_by_nothing_beyond_it() {
    let of = |outcome, good: Option<f64>, rate: f64| {
        let mut answer = found();
        let cliff = ReportedLimit { highest_good_rate: good, ..ReportedLimit::default() };
        (answer.outcome, answer.breaking_rate) = (outcome, cliff);
        answer.untested_burst =
            Some(find_report::ReportedUnexcludedBurst { rate, held_seconds: 8.0, requests: 8.0 * rate });
        answer
    };
    let held = of(FindOutcome::NoLimitFound, Some(1000.0), 1000.0);
    let cliff = |lower, point, upper| {
        let bounds = ReportedLimit {
            lower: Some(lower),
            estimate: Some(point),
            upper: Some(upper),
            ..ReportedLimit::default()
        };
        FindReport { breaking_rate: bounds, ..found() }
    };
    let change =
        |before: &FindReport, after: &FindReport| compare(before, after).map(|compared| compared.verdict);
    let (low, near, high) =
        (cliff(780.0, 800.0, 820.0), cliff(930.0, 952.0, 975.0), cliff(1190.0, 1200.0, 1210.0));
    assert_eq!(
        (change(&low, &held), change(&held, &low)),
        (Ok(ComparisonVerdict::Better), Ok(ComparisonVerdict::Worse))
    );
    assert_eq!(
        (change(&near, &held), change(&held, &near)),
        (Ok(ComparisonVerdict::NotWorse), Ok(ComparisonVerdict::Undecided))
    );
    assert_eq!(
        (change(&high, &held), change(&held, &high)),
        (Ok(ComparisonVerdict::Undecided), Ok(ComparisonVerdict::Undecided))
    );
    let known = compare(&low, &held).unwrap().ratio_interval;
    assert!(known.lower > 1.0 && known.upper == f64::INFINITY, "{known:?}");
    let known = compare(&held, &low).unwrap().ratio_interval;
    assert!(known.lower == 0.0 && known.upper < 1.0, "{known:?}");
    // Fifty responses per second cannot show one error in a thousand. So the rate that broke nothing up to the cap counts as
    // sustained.
    let untold = of(FindOutcome::NoLimitFound, None, 1000.0);
    assert_eq!(change(&low, &untold), Ok(ComparisonVerdict::Better));
    let generator = of(FindOutcome::GeneratorLimited, Some(700.0), 700.0);
    assert_eq!(
        (change(&held, &held), change(&held, &generator)),
        (Ok(ComparisonVerdict::NotWorse), Ok(ComparisonVerdict::Undecided))
    );
    assert_eq!(change(&generator, &held), Ok(ComparisonVerdict::NotWorse));
    assert_eq!(
        change(&held, &of(FindOutcome::GeneratorLimited, None, 700.0)),
        Err(RunComparisonError::NoRateFound)
    );
}

#[test]
fn another_target_is_compared_and_named() {
    let before = searched();
    assert_eq!(differences(&before, &before), Vec::<String>::new());
    let mut after = before.clone();
    (after.config.target, after.config.timeout_seconds) = ("http://b/".to_owned(), None);
    assert!(compare(&before, &after).is_ok());
    let named = differences(&before, &after);
    assert_eq!(named[0], "target differs: http://127.0.0.1:8080/ before, http://b/ after");
    assert_eq!(named[1], "--timeout differs: 30 s before, none after");
    let sent = |requests: &str, target: &str| {
        let (requests, settings) = (requests.to_owned(), "10 redirects".to_owned());
        let sent = Some(RequestFingerprint {
            via: None,
            certificate_digest: None,
            requests_digest: requests,
            settings,
        });
        FindReport {
            config: FindConfig { request_fingerprint: sent, target: target.to_owned(), ..found().config },
            ..found()
        }
    };
    let named = differences(&sent("01", "http://a/"), &sent("02", "http://a/"));
    assert_eq!(named, ["set of requests differs: 01 before, 02 after"]);
    assert_eq!(differences(&sent("01", "http://a/"), &sent("02", "http://b/")).len(), 1);
}

/// Returns a target with four workers of 10 ms and another 5 ms per request. Six clients keep all workers busy, and a hundred
/// clients wait for a quarter of a second.
fn pool() -> Field {
    let workers = SimulatedWorkers::new(4, ServiceDistribution::Fixed(0.01), 0.005);
    let target = SimulatedTarget::new(Box::new(workers), simulated::SimulatedArrivals::Constant, 0.25, 1);
    Field { target, ..Field::of(&queue(), &plan().goal) }
}

fn of_clients(field: &mut Field, plan: &FindPlan, most: Option<u32>) -> FindReport {
    super::closed_loop::find(field, plan, most, &mut NoopWatcher)
}

/// Returns the report of one search for clients, which is computed once.
fn borne() -> FindReport {
    static BORNE: LazyLock<FindReport> = LazyLock::new(|| of_clients(&mut pool(), &plan(), None));
    BORNE.clone()
}

#[test]
fn a_run_of_clients_says_how_many_are_borne_and_what_more_of_them_do_not_raise() {
    let answer = borne();
    assert_eq!((answer.outcome, answer.stop_reason), (FindOutcome::Found, None));
    let closed = answer.closed_loop.unwrap();
    let (lower, upper) = closed.client_limit.lower.zip(closed.client_limit.upper).unwrap();
    assert!(lower <= 98 && 98 <= upper && upper - lower <= 14, "{closed:?}");
    assert!(
        closed.client_limit.most_good_clients.unwrap() < closed.client_limit.fewest_bad_clients.unwrap()
            && closed.client_limit.held_seconds.unwrap() > 1.0
    );
    let saturation = closed.saturation.unwrap();
    assert!((390.0..410.0).contains(&saturation.rate) && saturation.is_confirmed, "{saturation:?}");
    assert!((5..=7).contains(&saturation.clients), "{saturation:?}");
    // The report has no rates.
    assert_eq!(
        (answer.breaking_rate, answer.latency_breaking_rate),
        (ReportedLimit::default(), ReportedLimit::default())
    );
    assert_eq!((answer.cause, answer.generator_capacity.max_rate), (None, None));
    assert!(answer.trials.iter().all(|trial| trial.clients.is_some()) && answer.trials.len() > 8);
}

#[test]
fn a_run_of_clients_is_the_same_after_it_was_written_and_is_no_run_of_rates() {
    let answer = borne();
    let text = answer.to_json().unwrap();
    assert!(read_report::parse(text.as_bytes()).unwrap() == answer);
    for (from, to, why) in [
        ("\"clients\":1,", "", "some trials have a number of clients and others do not"),
        (
            "\"service_time_seconds\":0",
            "\"service_time_seconds\":-1",
            "the lower bound of clients must not exceed",
        ),
        (
            "\"closed_loop\":{\"max_clients\":4096",
            "\"closed_loop\":{\"more\":1,\"max_clients\":4096",
            "unknown field",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let said = read_report::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
        assert!(said.contains(why), "{from}: {said}");
    }
    assert!(!searched().to_json().unwrap().contains("\"clients\""), "of rates nothing has changed");
}

#[test]
fn a_run_of_clients_is_neither_continued_nor_compared() {
    let (clients, rates) = (borne(), searched());
    let mut field = pool();
    let refused = find(&mut field, &plan(), Some(&clients), &mut NoopWatcher).unwrap_err();
    assert_eq!((refused, field.offers), (ResumeError::ClosedLoop, 0));
    assert_eq!(compare(&clients, &clients), Err(RunComparisonError::ClosedLoop));
    for (before, after) in [(&clients, &rates), (&rates, &clients)] {
        let said = compare(before, after).unwrap_err().to_string();
        assert!(said.contains("--closed-loop"), "{said}");
    }
}

#[test]
fn as_many_clients_as_may_be_or_can_be_kept_are_no_limit_of_the_target() {
    let endless = FindPlan { goal: SearchGoal::ERRORS_ONLY, ..plan() };
    let answer = of_clients(&mut pool(), &endless, Some(32));
    let limit = answer.closed_loop.unwrap().client_limit;
    assert_eq!(
        (answer.outcome, limit.upper, limit.most_good_clients),
        (FindOutcome::NoLimitFound, None, Some(32))
    );
    let answer = of_clients(&mut Field { clients: 32, ..pool() }, &endless, Some(64));
    assert_eq!(
        (answer.outcome, answer.closed_loop.unwrap().client_limit.fewest_bad_clients),
        (FindOutcome::GeneratorLimited, None)
    );
    assert!(answer.trials.iter().all(|trial| trial.clients <= Some(32)));
}

#[test]
fn a_run_of_clients_stays_within_its_budget_and_keeps_what_it_has_seen() {
    for seconds in [20, 45, 90] {
        let plan = FindPlan { budget: Some(Duration::from_secs(seconds)), ..plan() };
        let answer = of_clients(&mut pool(), &plan, None);
        assert!(
            answer.duration_seconds <= seconds as f64 && answer.trials.len() > 3,
            "{} of {seconds} s",
            answer.duration_seconds
        );
        let is_told =
            answer.stop_reason == Some(FindStopReason::Budget) || answer.outcome == FindOutcome::Found;
        assert!(is_told, "{:?} {:?}", answer.outcome, answer.stop_reason);
    }
    let Field { target, most, offers, clients, hung_up, watched } = pool();
    let mut field = Field { target: target.interrupted_at(6.0), most, offers, clients, hung_up, watched };
    let answer = of_clients(&mut field, &plan(), None);
    assert_eq!(
        (answer.outcome, answer.stop_reason),
        (FindOutcome::Interrupted, Some(FindStopReason::Signal))
    );
    assert!(answer.trials.last().unwrap().is_interrupted && answer.closed_loop.unwrap().saturation.is_some());
}

/// A target for which this machine has too few ports. Above a rate no port is free, except from another address.
struct Short(Field, f64);

impl Offered for Short {
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation {
        let seen = self.0.carry_out(offer);
        let lack = (offer.rate > self.1).then(|| (Some("9 requests found no free port".to_owned()), 9));
        let (invalid, no_port) = lack.unwrap_or_default();
        TrialObservation { invalid_reason: invalid, requests_without_port: no_port, ..seen }
    }

    fn rest(&mut self, time: Duration) -> bool {
        self.0.rest(time)
    }
}

impl closed_loop::ClosedTarget for Short {
    fn carry_out(&mut self, offer: &closed_loop::ClosedTrialSpec) -> TrialObservation {
        closed_loop::ClosedTarget::carry_out(&mut self.0, offer)
    }

    fn rest(&mut self, time: Duration) -> bool {
        closed_loop::ClosedTarget::rest(&mut self.0, time)
    }
}

impl ExperimentTarget for Short {
    fn run_experiment(&mut self, experiment: &Experiment) -> ExperimentObservation {
        let how = if experiment.variation.uses_another_source {
            ObservedOutcome::Good
        } else {
            ObservedOutcome::NoPort
        };
        let hit = |at: u32| {
            let due = f64::from(at) / 100.0;
            ObservedRequest {
                due,
                sent: Some(due),
                generator_lag: 0.0,
                end: due + 0.001,
                outcome: how,
                bytes: 2,
                carrying_connection: None,
            }
        };
        ExperimentObservation {
            requests: (0..100).map(hit).collect(),
            took: Duration::from_secs(1),
            ..ExperimentObservation::default()
        }
    }

    fn pause(&mut self, time: Duration) -> bool {
        self.0.pause(time)
    }
}

impl TargetDriver for Short {
    fn close_connections(&mut self) {
        self.0.close_connections();
    }

    fn max_clients(&self) -> u32 {
        self.0.max_clients()
    }

    fn calibrate(&mut self) -> Calibration {
        self.0.calibrate()
    }
}

#[test]
fn before_an_inquiry_all_connections_are_closed_and_the_target_has_answered() {
    let mut field = Field::of(&queue(), &plan().goal);
    let mut seen = Heard::default();
    let answer = find(&mut field, &FindPlan { looks_for_cause: true, ..plan() }, None, &mut seen).unwrap();
    assert_eq!(field.hung_up, Some(answer.trials.len()), "after the last trial");
    assert_eq!(field.offers, answer.trials.len() + 1, "and then single requests until there are answers");
    let at = seen.0.iter().position(|name| name == "waiting for a response");
    assert!(at.is_some_and(|at| seen.0[at + 1] == "half the limit"), "{:?}", seen.0);
    let mut alone = Field::of(&queue(), &plan().goal);
    run(&mut alone, &plan());
    assert_eq!(alone.hung_up, None, "without one they are kept");
}

/// The names of the experiments that began.
#[derive(Default)]
struct Heard(Vec<String>);

impl FindWatcher for Heard {
    fn step_started(&mut self, step: &FindStep<'_>, _: BudgetStatus) {
        if let FindStep::Experiment(name) = step {
            self.0.push((*name).to_owned());
        }
    }

    fn step_finished(&mut self, _: &FindStep<'_>, _: Option<&find_report::ReportedTrial>, _: BudgetStatus) {}
}

#[test]
fn a_machine_without_free_ports_is_the_limit_and_ports_are_the_cause() {
    let plan = FindPlan { looks_for_cause: true, ..plan() };
    let mut short = Short(Field::of(&queue(), &plan.goal), 60.0);
    let answer = find(&mut short, &plan, None, &mut NoopWatcher).unwrap();
    let cause = answer.cause.clone().unwrap();
    assert_eq!((answer.outcome, cause.name.as_str()), (FindOutcome::GeneratorLimited, "ports"));
    let by: Vec<_> = cause.evidence.iter().map(|sign| sign.experiment.as_str()).collect();
    assert!(
        cause.evidence[0].observation == "9 requests found no free port"
            && by.contains(&"another source address"),
        "{by:?}"
    );
    assert!(
        answer.other_causes.is_empty() && answer.excluded_causes.is_empty(),
        "of the target nothing is said"
    );
    let read = read_report::parse(answer.to_json().unwrap().as_bytes()).unwrap();
    assert_eq!(read.trials.iter().filter(|trial| trial.port_exhaustions == 9).count(), 3);
    let again = find(&mut short, &plan, Some(&read), &mut NoopWatcher).unwrap();
    assert_eq!(again.cause.map(|cause| cause.name), Some("ports".to_owned()), "what was read is known");
}

/// Regression: a continued run that this machine had disturbed sent nothing and gave no reason.
#[test]
fn a_run_that_this_machine_disturbed_goes_on_when_it_is_continued() {
    let plan = FindPlan { max_rate: Some(100.0), ..plan() };
    let mut disturbed = Short(Field::of(&queue(), &plan.goal), 60.0);
    let first = find(&mut disturbed, &plan, None, &mut NoopWatcher).unwrap();
    assert_eq!(first.outcome, FindOutcome::GeneratorLimited);
    assert_eq!(has_nothing_left(&plan, &first), Ok(false));
    let mut calm = Field::of(&queue(), &plan.goal);
    let second = find(&mut calm, &plan, Some(&first), &mut NoopWatcher).unwrap();
    assert_ne!(second.outcome, FindOutcome::GeneratorLimited);
    assert!(second.trials.len() > first.trials.len() && calm.offers > 0);
    // The trials of both parts lead to the same place.
    let written = read_report::parse(second.to_json().unwrap().as_bytes()).unwrap();
    assert!(resume::restore_search(&plan, &written).is_ok());
}

/// Regression: a target that breaks had no cause, because the trials did not agree on its limit.
#[test]
fn a_target_that_broke_twice_is_asked_for_its_cause_although_its_limit_is_not_known() {
    let bad = find_report::ReportedTrial {
        verdict: ReportedVerdict::Bad,
        weight: 1.0,
        ..found().trials[0].clone()
    };
    let of = |outcome, trials: usize, stop_reason| {
        is_broken_twice(&FindReport { outcome, stop_reason, trials: vec![bad.clone(); trials], ..found() })
    };
    assert!(of(FindOutcome::Undecided, 2, None));
    assert!(of(FindOutcome::Interrupted, 2, Some(FindStopReason::Budget)));
    assert!(!of(FindOutcome::Interrupted, 2, Some(FindStopReason::Signal)));
    assert!(!of(FindOutcome::Undecided, 1, None) && !of(FindOutcome::NoLimitFound, 2, None));
}

/// Regression: a run said "FOUND, roughly: 23,090 to 152,354/s" after a bad trial at 13,451/s, although the generator could offer
/// at most 72,876/s.
#[test]
fn a_bracket_that_its_own_trials_contradict_is_not_found() {
    let plan = plan();
    let report = resume::restore_search(&plan, &searched()).unwrap().report();
    let stated = |report: &SearchReport| {
        let answer = report_builder::search_report(&plan, report, None);
        (answer.outcome, answer.undecided_reason)
    };
    assert_eq!(stated(&report), (FindOutcome::Found, None));
    let lower = report.cliff.bracket.unwrap().lower;
    let mut contradicted = report.clone();
    let low =
        contradicted.trials.iter_mut().find(|trial| trial.weight > 0.1 && trial.spec.rate < lower).unwrap();
    low.verdict = TrialVerdict::Bad;
    let (outcome, reason) = stated(&contradicted);
    assert_eq!(outcome, FindOutcome::Undecided);
    assert!(reason.is_some_and(|reason| { reason.contains("/s was bad, below the interval of ") }));
    let mut beyond = report;
    beyond.cliff.bracket.as_mut().unwrap().upper *= 10.0;
    let (outcome, reason) = stated(&beyond);
    assert_eq!(outcome, FindOutcome::Undecided);
    assert!(reason.is_some_and(|reason| reason.contains("but the highest rate of a trial was")));
}

/// Regression: a search with all of its time ended after 82 of 240 s with "cut short by the budget".
#[test]
fn only_a_search_with_less_time_than_its_profile_is_cut_short_by_the_budget() {
    let plan = FindPlan { budget: Some(Duration::from_secs(240)), looks_for_cause: true, ..plan() };
    assert!(!plan.shortens_search(Some(Duration::from_secs(150))));
    assert!(plan.shortens_search(Some(Duration::from_secs(20))));
    assert!(!plan.shortens_search(None));
    let mut report = resume::restore_search(&plan, &searched()).unwrap().report();
    (report.outcome, report.cliff.lowest_bad) = (None, None);
    let of = |cut| report_builder::search_report(&plan, &report, Some(cut)).outcome;
    assert_eq!(of(FindStopReason::Inconclusive), FindOutcome::Undecided);
    assert_eq!(of(FindStopReason::Budget), FindOutcome::Interrupted);
}
