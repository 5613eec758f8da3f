//! Whole runs on simulated targets and a clock that is moved by hand.

use std::sync::LazyLock;
use std::time::Duration;

use seawall_cause::class::CauseClass as Cause;
use seawall_cause::experiment::Experiment;
use seawall_cause::report;
use seawall_cause::subject::ExperimentTarget;
use seawall_cause::watched::{ExperimentObservation, ObservedOutcome, ObservedRequest};
use seawall_search::closed;
use seawall_search::goal::{LatencyGoal, SearchGoal};
use seawall_search::offer::TrialSpec;
use seawall_search::profile::Profile;
use seawall_search::seen::TrialObservation;
use seawall_search::simulated::plants::{SimulatedClass, SimulatedTargetSpec};
use seawall_search::simulated::servers::{ServiceDistribution, SimulatedWorkers};
use seawall_search::simulated::target::{self as simulated, SimulatedTarget};
use seawall_search::target::SearchTarget as Offered;

use super::answer::{
    self, ConnectionPolicy, FindConfig, FindOutcome, FindReport, FindStopReason, ReportedArrivals,
    ReportedLimit, RequestFingerprint,
};
use super::compare::{ComparisonVerdict, RunComparisonError, compare, differences};
use super::plan::{FindPlan, TargetInfo};
use super::progress::{BudgetStatus, FindStep, FindWatcher, NoopWatcher};
use super::resume::ResumeError;
use super::{empty_report, find, has_nothing_left, read, resume, told};
use crate::ground::{Calibration, TargetDriver};

/// A simulated target that counts what is asked of it.
pub(super) struct Field {
    target: SimulatedTarget,
    most: Option<f64>,
    offers: usize,
    clients: u32,
    /// How many offers there had been when its connections were closed.
    hung_up: Option<usize>,
    /// What is seen of every experiment.
    watched: ExperimentObservation,
}

impl Field {
    pub(super) fn of(plant: &SimulatedTargetSpec, goal: &SearchGoal) -> Self {
        let watched = ExperimentObservation {
            impossible: Some("it is simulated".to_owned()),
            ..ExperimentObservation::default()
        };
        Self { target: plant.target(goal, 1), most: None, offers: 0, clients: 10_000, hung_up: None, watched }
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

impl closed::ClosedTarget for Field {
    fn carry_out(&mut self, offer: &closed::ClosedTrialSpec) -> TrialObservation {
        self.offers += 1;
        closed::ClosedTarget::carry_out(&mut self.target, offer)
    }

    fn rest(&mut self, time: Duration) -> bool {
        closed::ClosedTarget::rest(&mut self.target, time)
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
    let late = LatencyGoal { share: 0.01, than: Duration::from_millis(250) };
    FindPlan {
        goal: SearchGoal { late: Some(late), ..SearchGoal::CLIFF },
        profile: Profile::QUICK,
        max_rate: None,
        budget: None,
        looks_for_cause: false,
        target: TargetInfo {
            url: "http://127.0.0.1:8080/".to_owned(),
            count: 1,
            uses_tls: false,
            has_host_name: false,
        },
        arrivals: ReportedArrivals::Even,
        connections: ConnectionPolicy {
            keep_alive: true,
            most: None,
            requests: None,
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

/// Made once: a search is some seconds of arithmetic without optimisation.
fn found() -> FindReport {
    let cause = answer::ReportedCause {
        class: "unknown".to_owned(),
        confidence: 0.25,
        evidence: Vec::new(),
        figures: Vec::new(),
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
    assert_eq!((answer.outcome, answer.cut), (FindOutcome::Found, None));
    let bracket = answer.cliff.lower.unwrap()..answer.cliff.upper.unwrap();
    assert!(bracket.contains(&plant.capacity), "{bracket:?} without {}", plant.capacity);
    assert!(answer.cliff.good.unwrap() < answer.cliff.bad.unwrap());
    assert!(answer.cause.is_some() && answer.trials.len() > 5);
}

#[test]
fn an_answer_is_the_same_after_it_was_written_and_read() {
    let answer = found();
    let read = read::parse(answer.to_json().unwrap().as_bytes()).unwrap();
    assert!(read == answer && read.to_json().unwrap() == answer.to_json().unwrap());
}

#[test]
fn a_run_that_was_written_before_a_target_could_be_asked_is_read() {
    let text = found().to_json().unwrap().replacen("\"server_side\":[],", "", 1);
    assert_eq!(read::parse(text.as_bytes()).unwrap(), found());
}

#[test]
fn what_no_run_has_written_is_refused() {
    let text = found().to_json().unwrap();
    let change = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        read::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string()
    };
    for (from, to, why) in [
        ("\"schema\":1", "\"schema\":2", "schema 2"),
        ("\"outcome\":\"found\"", "\"outcome\":\"lost\"", "unknown variant"),
        ("\"profile\":\"quick\"", "\"profile\":\"slow\"", "no such profile"),
        ("\"rate\":20.0", "\"rate\":-20.0", "a trial has a rate"),
        ("\"errors\":0.001", "\"errors\":7", "between 0 and 1"),
        ("\"trials\"", "\"more\":1,\"trials\"", "unknown field"),
        (
            "\"server_side\":[]",
            "\"server_side\":[{\"from\":-1,\"to\":1,\"during\":\"\",\"facts\":[],\"untested\":[]}]",
            "a look at",
        ),
        ("\"class\":\"unknown\"", "\"class\":\"gremlins\"", "no such class"),
    ] {
        let said = change(from, to);
        assert!(said.contains(why), "{from}: {said}");
    }
    assert!(read::parse(b"{").is_err() && read::parse(b"").is_err() && read::parse(b"[1]").is_err());
}

#[test]
fn everything_together_stays_within_the_budget() {
    for seconds in [20, 45] {
        for class in [SimulatedClass::QueueExponential, SimulatedClass::Limiter, SimulatedClass::Metastable] {
            let budget = Duration::from_secs(seconds);
            let plan = FindPlan { budget: Some(budget), looks_for_cause: true, ..plan() };
            let answer = run(&mut Field::of(&SimulatedTargetSpec::draw(class, 7), &plan.goal), &plan);
            assert!(answer.took <= budget.as_secs_f64(), "{class:?}: {} of {seconds} s", answer.took);
        }
    }
}

#[test]
fn a_run_that_ran_out_of_time_says_so_and_is_continued() {
    let plan = FindPlan { budget: Some(Duration::from_secs(20)), ..plan() };
    let mut field = Field::of(&queue(), &plan.goal);
    let first = run(&mut field, &plan);
    assert_eq!(first.cut, Some(FindStopReason::Budget));
    let second =
        find(&mut field, &FindPlan { budget: None, ..plan.clone() }, Some(&first), &mut NoopWatcher).unwrap();
    assert_eq!((second.outcome, second.cut), (FindOutcome::Found, None));
    assert!(second.took > first.took && second.trials.len() > first.trials.len());
    assert_eq!(second.trials[0].blocks, first.trials[0].blocks);
    // And that one, written down, leads to the same place.
    let written = read::parse(second.to_json().unwrap().as_bytes()).unwrap();
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
    field.target = queue().target(&plan.goal, 1).interrupted_at(12.0);
    let first = run(&mut field, &plan);
    assert_eq!(
        (first.outcome, first.cut, first.cause.as_ref()),
        (FindOutcome::Interrupted, Some(FindStopReason::Signal), None)
    );
    assert!(first.trials.last().unwrap().interrupted && first.trials.len() > 2);
    let mut field = Field::of(&queue(), &plan.goal);
    let second = find(&mut field, &plan, Some(&first), &mut NoopWatcher).unwrap();
    assert_eq!(second.outcome, FindOutcome::Found);
    assert!(second.trials.iter().all(|trial| !trial.interrupted));
}

#[test]
fn a_run_that_had_sent_nothing_looks_at_the_generator_again() {
    let plan = FindPlan { max_rate: Some(100.0), ..plan() };
    let mut nothing = run(&mut Field::of(&queue(), &plan.goal), &plan);
    (nothing.outcome, nothing.cut) = (FindOutcome::Interrupted, Some(FindStopReason::Signal));
    nothing.trials.clear();
    let mut field = Field { most: Some(80.0), ..Field::of(&queue(), &plan.goal) };
    let answer = find(&mut field, &plan, Some(&nothing), &mut NoopWatcher).unwrap();
    assert_eq!((answer.outcome, answer.generator.most), (FindOutcome::GeneratorLimited, Some(80.0)));
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
    let other = FindPlan { goal: SearchGoal::CLIFF, ..plan() };
    assert_eq!(refused(&other, &first), ResumeError::Config("--slo"));
    let other = FindPlan { arrivals: ReportedArrivals::Poisson, ..plan() };
    assert_eq!(refused(&other, &first), ResumeError::Config("--arrivals"));
    let other = FindPlan { target: TargetInfo { url: "http://b/".to_owned(), ..plan().target }, ..plan() };
    assert_eq!(refused(&other, &first), ResumeError::Config("target"));
    let mut changed = first.clone();
    changed.trials[2].rate *= 1.5;
    assert_eq!(refused(&plan(), &changed), ResumeError::Trial(3));
    changed.trials[1].took = -1.0;
    assert_eq!(refused(&plan(), &changed), ResumeError::InvalidTime("-1".to_owned()));
}

/// A run through a Unix socket went on over TCP, at whoever listened there.
#[test]
fn a_run_that_another_server_would_answer_or_that_sends_something_else_is_not_continued() {
    let sent = RequestFingerprint {
        by: Some("at ng/sock".to_owned()),
        certificate: None,
        requests: "00c0ffee".to_owned(),
        settings: "10 redirects".to_owned(),
    };
    let of = |sent: Option<RequestFingerprint>| FindReport {
        asked: FindConfig { sent, ..found().asked },
        ..found()
    };
    let goes_on = |now: Option<RequestFingerprint>, before: Option<RequestFingerprint>| {
        resume::search(&FindPlan { fingerprint: now, ..plan() }, &of(before)).map(|_| ())
    };
    let refused = |now: RequestFingerprint| goes_on(Some(now), Some(sent.clone())).unwrap_err().to_string();
    let text = refused(RequestFingerprint { by: None, ..sent.clone() });
    assert!(
        text.starts_with("its requests went at ng/sock, and these would go to the target itself"),
        "{text}"
    );
    let other = Some("01".to_owned());
    assert!(refused(RequestFingerprint { certificate: other, ..sent.clone() }).contains("--cert"));
    assert!(refused(RequestFingerprint { requests: "01".to_owned(), ..sent.clone() }).contains("--header"));
    assert!(refused(RequestFingerprint { settings: String::new(), ..sent.clone() }).contains("--resolvers"));
    // The same, and what an earlier version wrote.
    assert_eq!(goes_on(Some(sent.clone()), Some(sent.clone())), Ok(()));
    assert_eq!(goes_on(Some(sent.clone()), None), Ok(()));
    let written = of(Some(sent)).to_json().unwrap();
    assert_eq!(read::parse(written.as_bytes()).unwrap().to_json().unwrap(), written);
    assert!(!of(None).to_json().unwrap().contains("\"sent\":{"));
}

#[test]
fn a_cap_and_the_generator_are_no_limit_of_the_target() {
    let curious = || FindPlan { looks_for_cause: true, ..plan() };
    let capped = FindPlan { max_rate: Some(100.0), ..curious() };
    let answer = run(&mut Field::of(&queue(), &capped.goal), &capped);
    assert_eq!((answer.outcome, answer.cliff.lower, answer.cliff.upper), (FindOutcome::Capped, None, None));
    assert_eq!((answer.cliff.good, answer.cause), (Some(100.0), None));
    let mut field = Field { most: Some(120.0), ..Field::of(&queue(), &plan().goal) };
    let answer = run(&mut field, &curious());
    assert_eq!(
        (answer.outcome, answer.cliff.upper, answer.knee.upper),
        (FindOutcome::GeneratorLimited, None, None)
    );
    let cause = answer.cause.unwrap();
    assert_eq!((cause.class.as_str(), cause.evidence[0].seen.as_str()), ("generator", "it was told"));
}

/// Two targets in one file, of which one refuses and one delays, were called a balancer's doing.
#[test]
fn of_several_targets_the_list_is_suspected_before_a_balancer() {
    let told = |targets: usize, class| {
        let mut answer = searched();
        answer.asked.targets = targets;
        told::add_cause(&mut answer, &blamed(class));
        answer
    };
    let answer = told(2, Cause::UnevenBalancing);
    let first = &answer.cause.as_ref().unwrap().evidence[0];
    assert!(first.seen.starts_with("2 targets were given") && first.by == "the list of targets", "{first:?}");
    assert!(answer.ties[0].tell.starts_with("first search each of the 2 targets"), "{:?}", answer.ties);
    for other in [told(1, Cause::UnevenBalancing), told(2, Cause::RateLimiter)] {
        assert!(other.cause.unwrap().evidence.is_empty() && !other.ties[0].tell.contains("targets"));
    }
}

/// An inquiry that is sure of this class, and cannot tell it from another.
fn blamed(class: Cause) -> report::DiagnosisReport {
    let cause = report::DiagnosedCause { class, confidence: 0.9, evidence: Vec::new(), figures: Vec::new() };
    let tie = report::CauseTie { between: vec![class, Cause::Pauses], how_to_tell: "look at it".to_owned() };
    report::DiagnosisReport { causes: vec![cause], ties: vec![tie], ..report::DiagnosisReport::default() }
}

#[test]
fn of_an_inquiry_that_ran_out_of_time_the_experiment_is_named() {
    let mut answer = searched();
    told::add_not_run(&mut answer, Some("churn"));
    assert_eq!(answer.left_out, ["the experiment \"churn\" and what follows it"]);
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
    assert!(with.is_found() || with.took > 20.0, "{:?} after {} s", with.outcome, with.took);
    assert!(with.is_found() || !without.is_found());
}

/// Of a limit of 19,126/s that trials had found the generator was called the cause, because twice as much was beyond it.
#[test]
fn a_generator_that_an_inquiry_is_too_much_for_is_not_why_a_limit_that_was_found_is_there() {
    let mut field = Field::of(&queue(), &plan().goal);
    field.watched =
        ExperimentObservation { invalid: Some("it was late".to_owned()), ..ExperimentObservation::default() };
    let answer = run(&mut field, &FindPlan { looks_for_cause: true, ..plan() });
    let cause = answer.cause.unwrap();
    assert_eq!((answer.outcome, cause.class.as_str()), (FindOutcome::Found, "unknown"));
    assert_eq!((cause.confidence, cause.evidence[0].seen.as_str()), (0.0, "it was late"));
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
            came: Option<&answer::ReportedTrial>,
            time: BudgetStatus,
        ) {
            assert!(self.open && came.is_some() == matches!(step, FindStep::Offer(_)));
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
        fn step_finished(&mut self, _: &FindStep<'_>, _: Option<&answer::ReportedTrial>, _: BudgetStatus) {}
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
    assert!(of_search.iter().all(|so_far| so_far.cut.is_none() && so_far.cause.is_none()));
    assert_eq!(of_search.last().unwrap().cliff, whole.cliff);
    let last = told.last().unwrap();
    assert_eq!((&last.experiments, &last.cause), (&whole.experiments, &None));
    assert!(has_nothing_left(&plan, &whole).unwrap() && !has_nothing_left(&plan, &of_search[0]).unwrap());
    let nothing = empty_report(&plan);
    assert_eq!((nothing.trials.len(), nothing.cut, nothing.outcome), (0, None, FindOutcome::Interrupted));
}

#[test]
fn runs_compare_by_their_cliffs_and_only_if_the_same_was_asked() {
    let at = |lower: f64, point: f64, upper: f64| {
        let mut answer = found();
        (answer.cliff.lower, answer.cliff.point, answer.cliff.upper) =
            (Some(lower), Some(point), Some(upper));
        answer
    };
    let before = at(98.0, 100.0, 102.0);
    let change = |after: &FindReport| compare(&before, after).map(|compared| compared.change);
    assert_eq!(change(&at(78.0, 80.0, 82.0)), Ok(ComparisonVerdict::Worse));
    assert_eq!(change(&at(118.0, 120.0, 122.0)), Ok(ComparisonVerdict::Better));
    assert_eq!(change(&at(97.0, 99.0, 101.0)), Ok(ComparisonVerdict::Same));
    assert_eq!(change(&at(70.0, 95.0, 120.0)), Ok(ComparisonVerdict::CannotTell));
    let mut other = at(98.0, 100.0, 102.0);
    other.asked.arrivals = ReportedArrivals::Poisson;
    assert_eq!(change(&other), Err(RunComparisonError::Config("--arrivals")));
    let mut other = at(98.0, 100.0, 102.0);
    other.asked.connections.keep_alive = false;
    assert_eq!(change(&other), Err(RunComparisonError::Config("policy of connections")));
    let mut other = at(98.0, 100.0, 102.0);
    other.outcome = FindOutcome::Interrupted;
    assert_eq!(change(&other), Err(RunComparisonError::NotFound));
}

#[test]
fn a_run_that_was_capped_is_compared_by_what_it_held_and_by_nothing_beyond_it() {
    let of = |outcome, good: Option<f64>, rate: f64| {
        let mut answer = found();
        let cliff = ReportedLimit { good, ..ReportedLimit::default() };
        (answer.outcome, answer.cliff) = (outcome, cliff);
        answer.allowance = Some(answer::ReportedUnexcludedBurst { rate, held: 8.0, requests: 8.0 * rate });
        answer
    };
    let held = of(FindOutcome::Capped, Some(1000.0), 1000.0);
    let cliff = |lower, point, upper| {
        let bounds = ReportedLimit {
            lower: Some(lower),
            point: Some(point),
            upper: Some(upper),
            ..ReportedLimit::default()
        };
        FindReport { cliff: bounds, ..found() }
    };
    let change =
        |before: &FindReport, after: &FindReport| compare(before, after).map(|compared| compared.change);
    let (low, near, high) =
        (cliff(780.0, 800.0, 820.0), cliff(930.0, 952.0, 975.0), cliff(1190.0, 1200.0, 1210.0));
    assert_eq!(
        (change(&low, &held), change(&held, &low)),
        (Ok(ComparisonVerdict::Better), Ok(ComparisonVerdict::Worse))
    );
    assert_eq!(
        (change(&near, &held), change(&held, &near)),
        (Ok(ComparisonVerdict::NotWorse), Ok(ComparisonVerdict::CannotTell))
    );
    assert_eq!(
        (change(&high, &held), change(&held, &high)),
        (Ok(ComparisonVerdict::CannotTell), Ok(ComparisonVerdict::CannotTell))
    );
    let known = compare(&low, &held).unwrap().ratio;
    assert!(known.lower > 1.0 && known.upper == f64::INFINITY, "{known:?}");
    let known = compare(&held, &low).unwrap().ratio;
    assert!(known.lower == 0.0 && known.upper < 1.0, "{known:?}");
    // A goal of one error in a thousand is not told by fifty answers a second: what broke nothing up to the cap was held.
    let untold = of(FindOutcome::Capped, None, 1000.0);
    assert_eq!(change(&low, &untold), Ok(ComparisonVerdict::Better));
    let generator = of(FindOutcome::GeneratorLimited, Some(700.0), 700.0);
    assert_eq!(
        (change(&held, &held), change(&held, &generator)),
        (Ok(ComparisonVerdict::NotWorse), Ok(ComparisonVerdict::CannotTell))
    );
    assert_eq!(change(&generator, &held), Ok(ComparisonVerdict::NotWorse));
    assert_eq!(
        change(&held, &of(FindOutcome::GeneratorLimited, None, 700.0)),
        Err(RunComparisonError::NotFound)
    );
}

#[test]
fn another_target_is_compared_and_named() {
    let before = searched();
    assert_eq!(differences(&before, &before), Vec::<String>::new());
    let mut after = before.clone();
    (after.asked.target, after.asked.timeout) = ("http://b/".to_owned(), None);
    assert!(compare(&before, &after).is_ok());
    let named = differences(&before, &after);
    assert_eq!(named[0], "another target: http://127.0.0.1:8080/ before, http://b/ after");
    assert_eq!(named[1], "another --timeout: 30 s before, none after");
    let sent = |requests: &str, target: &str| {
        let (requests, settings) = (requests.to_owned(), "10 redirects".to_owned());
        let sent = Some(RequestFingerprint { by: None, certificate: None, requests, settings });
        FindReport { asked: FindConfig { sent, target: target.to_owned(), ..found().asked }, ..found() }
    };
    let named = differences(&sent("01", "http://a/"), &sent("02", "http://a/"));
    assert_eq!(named, ["another set of requests: 01 before, 02 after"]);
    assert_eq!(differences(&sent("01", "http://a/"), &sent("02", "http://b/")).len(), 1);
}

/// Four workers of 10 ms with 5 ms beside them: six clients keep all busy, and a hundred wait a quarter of a second.
fn pool() -> Field {
    let workers = SimulatedWorkers::new(4, ServiceDistribution::Fixed(0.01), 0.005);
    let target = SimulatedTarget::new(Box::new(workers), simulated::SimulatedArrivals::Constant, 0.25, 1);
    Field { target, ..Field::of(&queue(), &plan().goal) }
}

fn of_clients(field: &mut Field, plan: &FindPlan, most: Option<u32>) -> FindReport {
    super::closed::find(field, plan, most, &mut NoopWatcher)
}

/// Made once.
fn borne() -> FindReport {
    static BORNE: LazyLock<FindReport> = LazyLock::new(|| of_clients(&mut pool(), &plan(), None));
    BORNE.clone()
}

#[test]
fn a_run_of_clients_says_how_many_are_borne_and_what_more_of_them_do_not_raise() {
    let answer = borne();
    assert_eq!((answer.outcome, answer.cut), (FindOutcome::Found, None));
    let closed = answer.closed.unwrap();
    let (lower, upper) = closed.limit.lower.zip(closed.limit.upper).unwrap();
    assert!(lower <= 98 && 98 <= upper && upper - lower <= 14, "{closed:?}");
    assert!(closed.limit.good.unwrap() < closed.limit.bad.unwrap() && closed.limit.good_for.unwrap() > 1.0);
    let saturation = closed.saturation.unwrap();
    assert!((390.0..410.0).contains(&saturation.rate) && saturation.reached, "{saturation:?}");
    assert!((5..=7).contains(&saturation.clients), "{saturation:?}");
    // Nothing is said of rates.
    assert_eq!((answer.cliff, answer.knee), (ReportedLimit::default(), ReportedLimit::default()));
    assert_eq!((answer.cause, answer.generator.most), (None, None));
    assert!(answer.trials.iter().all(|trial| trial.clients.is_some()) && answer.trials.len() > 8);
}

#[test]
fn a_run_of_clients_is_the_same_after_it_was_written_and_is_no_run_of_rates() {
    let answer = borne();
    let text = answer.to_json().unwrap();
    assert!(read::parse(text.as_bytes()).unwrap() == answer);
    for (from, to, why) in [
        ("\"clients\":1,", "", "a trial is of a rate or of clients"),
        ("\"service\":0", "\"service\":-1", "clients have their bounds in order"),
        ("\"closed\":{\"most\":4096", "\"closed\":{\"more\":1,\"most\":4096", "unknown field"),
    ] {
        assert!(text.contains(from), "{from}");
        let said = read::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
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
    assert_eq!(compare(&clients, &clients), Err(RunComparisonError::Clients));
    for (before, after) in [(&clients, &rates), (&rates, &clients)] {
        let said = compare(before, after).unwrap_err().to_string();
        assert!(said.contains("--closed"), "{said}");
    }
}

#[test]
fn as_many_clients_as_may_be_or_can_be_kept_are_no_limit_of_the_target() {
    let endless = FindPlan { goal: SearchGoal::CLIFF, ..plan() };
    let answer = of_clients(&mut pool(), &endless, Some(32));
    let limit = answer.closed.unwrap().limit;
    assert_eq!((answer.outcome, limit.upper, limit.good), (FindOutcome::Capped, None, Some(32)));
    let answer = of_clients(&mut Field { clients: 32, ..pool() }, &endless, Some(64));
    assert_eq!((answer.outcome, answer.closed.unwrap().limit.bad), (FindOutcome::GeneratorLimited, None));
    assert!(answer.trials.iter().all(|trial| trial.clients <= Some(32)));
}

#[test]
fn a_run_of_clients_stays_within_its_budget_and_keeps_what_it_has_seen() {
    for seconds in [20, 45, 90] {
        let plan = FindPlan { budget: Some(Duration::from_secs(seconds)), ..plan() };
        let answer = of_clients(&mut pool(), &plan, None);
        assert!(answer.took <= seconds as f64 && answer.trials.len() > 3, "{} of {seconds} s", answer.took);
        let is_told = answer.cut == Some(FindStopReason::Budget) || answer.outcome == FindOutcome::Found;
        assert!(is_told, "{:?} {:?}", answer.outcome, answer.cut);
    }
    let Field { target, most, offers, clients, hung_up, watched } = pool();
    let mut field = Field { target: target.interrupted_at(6.0), most, offers, clients, hung_up, watched };
    let answer = of_clients(&mut field, &plan(), None);
    assert_eq!((answer.outcome, answer.cut), (FindOutcome::Interrupted, Some(FindStopReason::Signal)));
    assert!(answer.trials.last().unwrap().interrupted && answer.closed.unwrap().saturation.is_some());
}

/// A field to which this machine has so few ports that above a rate none is free, but from another address.
struct Short(Field, f64);

impl Offered for Short {
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation {
        let seen = self.0.carry_out(offer);
        let lack = (offer.rate > self.1).then(|| (Some("9 requests found no free port".to_owned()), 9));
        let (invalid, no_port) = lack.unwrap_or_default();
        TrialObservation { invalid, no_port, ..seen }
    }

    fn rest(&mut self, time: Duration) -> bool {
        self.0.rest(time)
    }
}

impl closed::ClosedTarget for Short {
    fn carry_out(&mut self, offer: &closed::ClosedTrialSpec) -> TrialObservation {
        closed::ClosedTarget::carry_out(&mut self.0, offer)
    }

    fn rest(&mut self, time: Duration) -> bool {
        closed::ClosedTarget::rest(&mut self.0, time)
    }
}

impl ExperimentTarget for Short {
    fn run_experiment(&mut self, experiment: &Experiment) -> ExperimentObservation {
        let how =
            if experiment.variation.another_source { ObservedOutcome::Good } else { ObservedOutcome::NoPort };
        let hit = |at: u32| {
            let due = f64::from(at) / 100.0;
            ObservedRequest {
                due,
                sent: Some(due),
                lag: 0.0,
                end: due + 0.001,
                outcome: how,
                bytes: 2,
                connection: None,
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
    let at = seen.0.iter().position(|name| name == "until it answers");
    assert!(at.is_some_and(|at| seen.0[at + 1] == "base"), "{:?}", seen.0);
    let mut alone = Field::of(&queue(), &plan().goal);
    run(&mut alone, &plan());
    assert_eq!(alone.hung_up, None, "without one they are kept");
}

/// The experiments that began, by their names.
#[derive(Default)]
struct Heard(Vec<String>);

impl FindWatcher for Heard {
    fn step_started(&mut self, step: &FindStep<'_>, _: BudgetStatus) {
        if let FindStep::Experiment(name) = step {
            self.0.push((*name).to_owned());
        }
    }

    fn step_finished(&mut self, _: &FindStep<'_>, _: Option<&answer::ReportedTrial>, _: BudgetStatus) {}
}

#[test]
fn a_machine_without_free_ports_is_the_limit_and_ports_are_the_cause() {
    let plan = FindPlan { looks_for_cause: true, ..plan() };
    let mut short = Short(Field::of(&queue(), &plan.goal), 60.0);
    let answer = find(&mut short, &plan, None, &mut NoopWatcher).unwrap();
    let cause = answer.cause.clone().unwrap();
    assert_eq!((answer.outcome, cause.class.as_str()), (FindOutcome::GeneratorLimited, "ports"));
    let by: Vec<_> = cause.evidence.iter().map(|sign| sign.by.as_str()).collect();
    assert!(
        cause.evidence[0].seen == "9 requests found no free port" && by.contains(&"another source"),
        "{by:?}"
    );
    assert!(answer.also.is_empty() && answer.excluded.is_empty(), "of the target nothing is said");
    let read = read::parse(answer.to_json().unwrap().as_bytes()).unwrap();
    assert_eq!(read.trials.iter().filter(|trial| trial.no_port == 9).count(), 3);
    let again = find(&mut short, &plan, Some(&read), &mut NoopWatcher).unwrap();
    assert_eq!(again.cause.map(|cause| cause.class), Some("ports".to_owned()), "what was read is known");
}
