//! The command on simulated targets: what it shows of each outcome, what it writes, and with which code it ends.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use seawall_cause::experiment::Experiment;
use seawall_cause::experiment_target::ExperimentTarget;
use seawall_cause::observed_requests::ExperimentObservation;
use seawall_lab::find::empty_report;
use seawall_lab::find::find_report::{
    ConnectionPolicy, FindOutcome, FindReport, FindStopReason, ReportedArrivals, ReportedCause,
    ReportedEstimate, ReportedEvidence, ReportedExcludedCause, ReportedFailureMode, ReportedQuotaExhaustion,
    ReportedTie, ReportedTopFailure, ReportedUndecidedCause, ReportedVerdict, RequestFingerprint,
    ServerSideFact, ServerSideWindow,
};
use seawall_lab::find::plan::{FindPlan, TargetInfo};
use seawall_lab::server_side::ServerSideReader;
use seawall_lab::target_driver::{Calibration, TargetDriver};
use seawall_search::closed_loop;
use seawall_search::goal::{LatencyGoal, SearchGoal};
use seawall_search::observation::TrialObservation;
use seawall_search::search_profile::Profile;
use seawall_search::simulated::servers::{
    ServiceDistribution, SimulatedOutcome, SimulatedServer, SimulatedWorkers,
};
use seawall_search::simulated::target::{self, SimulatedTarget};
use seawall_search::simulated::target_specs::{SimulatedClass, SimulatedTargetSpec};
use seawall_search::target::SearchTarget as Offered;
use seawall_search::trial_spec::TrialSpec;
use serde_json::Value;

use super::plan::FindCommandPlan;
use super::progress::FindProgress;
use super::search_setup::{SearchSetup, server_side_source};
use super::{ReportFiles, carry_out, exit_code, html_report, screen};
use crate::exit;
use crate::live_search_page::{SearchPageReport, SearchStatus};

/// A simulated target, of which experiments say nothing.
pub(crate) struct Field {
    target: SimulatedTarget,
    most: Option<f64>,
}

impl Offered for Field {
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation {
        self.target.carry_out(offer)
    }

    fn rest(&mut self, time: Duration) -> bool {
        self.target.rest(time)
    }
}

impl closed_loop::ClosedTarget for Field {
    fn carry_out(&mut self, offer: &closed_loop::ClosedTrialSpec) -> TrialObservation {
        closed_loop::ClosedTarget::carry_out(&mut self.target, offer)
    }

    fn rest(&mut self, time: Duration) -> bool {
        closed_loop::ClosedTarget::rest(&mut self.target, time)
    }
}

impl ExperimentTarget for Field {
    fn run_experiment(&mut self, _: &Experiment) -> ExperimentObservation {
        ExperimentObservation {
            impossible_reason: Some("it is simulated".to_owned()),
            ..ExperimentObservation::default()
        }
    }

    fn pause(&mut self, time: Duration) -> bool {
        self.target.rest(time)
    }
}

impl TargetDriver for Field {
    fn close_connections(&mut self) {}

    fn max_clients(&self) -> u32 {
        10_000
    }

    fn calibrate(&mut self) -> Calibration {
        let how = "it sent 900/s to itself with one thread, and no more".to_owned();
        Calibration {
            max_rate: self.most,
            explanation: how,
            took: Duration::from_secs(1),
            interrupted: false,
        }
    }
}

/// Answers nothing well.
struct Broken;

impl SimulatedServer for Broken {
    fn serve(&mut self, at: f64, _: &mut fastrand::Rng) -> SimulatedOutcome {
        SimulatedOutcome { end: at + 0.001, is_good: false }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

fn goal() -> SearchGoal {
    SearchGoal {
        latency_goal: Some(LatencyGoal { max_late_share: 0.01, latency_limit: Duration::from_millis(250) }),
        ..SearchGoal::ERRORS_ONLY
    }
}

pub(crate) fn plan() -> FindPlan {
    let url = "http://127.0.0.1:8988/computeMetadata/v1/instance/service-accounts/default/token";
    FindPlan {
        goal: goal(),
        profile: Profile::QUICK,
        max_rate: None,
        budget: Some(Duration::from_secs(90)),
        looks_for_cause: false,
        target_info: TargetInfo { url: url.to_owned(), count: 1, uses_tls: false, has_host_name: false },
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

pub(crate) fn field(class: SimulatedClass, seed: u64) -> Field {
    Field { target: SimulatedTargetSpec::draw(class, seed).build_target(&goal(), 1), most: None }
}

/// Makes a setup without a server side.
fn site(field: Field) -> SearchSetup {
    let sight = server_side_source(ServerSideReader::new(None, None));
    SearchSetup {
        driver: Box::new(field),
        stop_now: Arc::new(|| ()),
        server_side_source: sight,
        late_after: None,
        reach_check: None,
    }
}

pub(crate) fn searched(plan: &FindPlan, field: &mut Field) -> FindReport {
    seawall_lab::find::find(field, plan, None, &mut seawall_lab::find::progress::NoopWatcher).unwrap()
}

/// With a cause, as an inquiry would tell it.
fn explained(mut answer: FindReport) -> FindReport {
    let sign = |seen: &str, by: &str, ratio| ReportedEvidence {
        observation: seen.to_owned(),
        experiment: by.to_owned(),
        likelihood_ratio: Some(ratio),
    };
    let figure = |name: &str, value, unit: &str| ReportedEstimate {
        name: name.to_owned(),
        value: Some(value),
        unit: unit.to_owned(),
    };
    answer.cause = Some(ReportedCause {
        name: "hanging-limiter".to_owned(),
        score: 0.968,
        evidence: vec![
            sign(
                "the second of two bursts of 64 admitted 2 requests, and the first 18",
                "pair of bursts",
                41.0,
            ),
            sign("what was admitted took 3 ms in overload, as at rest", "overload", 12.5),
            sign("new connections are refused nothing that old ones are given", "churn", 3.0),
            sign("a fourth, which has no place on the screen", "churn", 1.5),
        ],
        estimates: vec![figure("burst allowance", 18.0, "requests"), figure("refill", 157.0, "requests/s")],
    });
    answer.ambiguous_causes.push(ReportedTie {
        causes: vec!["hanging-limiter".to_owned(), "connection-cap".to_owned()],
        how_to_tell: "look at the descriptors of the server while it is overloaded".to_owned(),
    });
    let excluded =
        |class: &str, how: &str| ReportedExcludedCause { name: class.to_owned(), reason: how.to_owned() };
    answer.excluded_causes = vec![
        excluded("cpu-saturation", "answers did not slow down before some hung"),
        excluded("dns", "the target is an address"),
        excluded("pauses", "answers did not slow down before some hung"),
        excluded("churn-cost", "connections per request made no difference"),
    ];
    let said = |says: &str, class: Option<&str>, ratio| ServerSideFact {
        text: says.to_owned(),
        cause: class.map(str::to_owned),
        likelihood_ratio: ratio,
        is_unchanged: false,
    };
    let facts = vec![
        said("used 0.08 cores", Some("cpu-saturation"), Some(0.2)),
        said("holds 91.0 of 100.0 MiB (file pages included)", None, None),
    ];
    let phase = "150 % of the limit".to_owned();
    answer.server_metrics = vec![ServerSideWindow {
        start_seconds: 61.0,
        end_seconds: 64.5,
        phase,
        facts,
        unavailable: Vec::new(),
    }];
    let reason = "responses are too small to tell".to_owned();
    answer.undecided_causes =
        vec![ReportedUndecidedCause { name: "bandwidth".to_owned(), reason, needs_higher_max_rate: false }];
    answer
}

pub(super) fn found() -> FindReport {
    static FOUND: LazyLock<FindReport> =
        LazyLock::new(|| explained(searched(&plan(), &mut field(SimulatedClass::LimiterHanging, 12))));
    FOUND.clone()
}

/// On a terminal of the usual width.
fn shown(answer: &FindReport) -> String {
    screen::format_screen(answer, screen::MAX_COLUMNS)
}

/// A process that was killed for its memory was nowhere on the screen.
#[test]
fn a_target_that_is_gone_is_told_with_what_it_said_of_itself_last() {
    let gone = FindReport { target_lost_during: Some("150 % of the limit".to_owned()), ..found() };
    let text = shown(&gone);
    let at = text.find("target lost").unwrap();
    assert!(text[at..].contains("the target stopped answering during the experiment"), "{text}");
    assert!(text[at..].contains("server metrics: holds 91.0 of 100.0 MiB"), "{text}");
    assert!(!shown(&found()).contains("target lost"));
}

#[test]
fn the_screen_and_the_page_name_the_way_that_is_not_the_targets_own_address() {
    let mut answer = found();
    let by = Some("at ng/sock".to_owned());
    let (requests, settings) = (String::new(), String::new());
    answer.config.target = "http://a/".to_owned();
    answer.config.request_fingerprint =
        Some(RequestFingerprint { via: by, certificate_digest: None, requests_digest: requests, settings });
    assert!(shown(&answer).contains("http://a/ at ng/sock\n"), "{}", shown(&answer));
    assert!(html_report::render(&answer).unwrap().contains("http://a/ at ng/sock"));
}

/// A run of each outcome, in the order of [`FindOutcome`].
fn each() -> Vec<(&'static str, FindReport)> {
    static EACH: LazyLock<Vec<(&'static str, FindReport)>> = LazyLock::new(made);
    EACH.clone()
}

fn made() -> Vec<(&'static str, FindReport)> {
    let capped = FindPlan { max_rate: Some(100.0), ..plan() };
    let mut slow = Field { most: Some(900.0), ..field(SimulatedClass::QueueExponential, 7) };
    let mut broken = field(SimulatedClass::QueueFixed, 1);
    broken.target = SimulatedTarget::new(Box::new(Broken), target::SimulatedArrivals::Constant, 0.25, 1);
    let mut short = field(SimulatedClass::QueueExponential, 7);
    short.target = SimulatedTargetSpec::draw(SimulatedClass::QueueExponential, 7)
        .build_target(&goal(), 1)
        .interrupted_at(8.0);
    let degraded = |mut answer: FindReport| {
        (answer.outcome, answer.recovery.is_recovered) = (FindOutcome::Metastable, Some(false));
        answer
    };
    let queue = searched(&plan(), &mut field(SimulatedClass::QueueExponential, 7));
    vec![
        ("found", found()),
        ("metastable", degraded(queue)),
        ("no-limit-found", searched(&capped, &mut field(SimulatedClass::QueueExponential, 7))),
        ("generator-limited", searched(&FindPlan { looks_for_cause: true, ..plan() }, &mut slow)),
        ("unstable-baseline", searched(&plan(), &mut broken)),
        ("interrupted", searched(&plan(), &mut short)),
    ]
}

/// Answers at once, but one of thirty: that one fails at any rate, or is late above a rate.
#[derive(Default)]
struct OneOfThirty {
    late_above: Option<f64>,
    last: f64,
    served: u32,
}

impl SimulatedServer for OneOfThirty {
    fn serve(&mut self, at: f64, _: &mut fastrand::Rng) -> SimulatedOutcome {
        let often = self.late_above.is_some_and(|rate| at - self.last < 1.0 / rate);
        (self.last, self.served) = (at, self.served + 1);
        let this = self.served.is_multiple_of(30);
        let late = if this && often { 0.4 } else { 0.005 };
        SimulatedOutcome { end: at + late, is_good: !this || self.late_above.is_some() }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

fn one_of_thirty(late_above: Option<f64>) -> FindReport {
    let server = OneOfThirty { late_above, ..OneOfThirty::default() };
    let mut field = field(SimulatedClass::QueueFixed, 1);
    field.target = SimulatedTarget::new(Box::new(server), target::SimulatedArrivals::Constant, 0.25, 1);
    searched(&FindPlan { max_rate: Some(1_000.0), ..plan() }, &mut field)
}

/// The pipeline that reads the exit code must not take it for a rate that was held.
#[test]
fn what_is_never_kept_and_what_is_only_late_are_no_caps() {
    let [never, late] = [None, Some(300.0)].map(one_of_thirty);
    assert_eq!(
        (never.outcome, exit_code(&never, None)),
        (FindOutcome::UnstableBaseline, exit::UNSTABLE_BASELINE)
    );
    let line = |answer: &FindReport| screen::format_headline_target_goal(answer).0;
    assert!(
        line(&never)
            .starts_with("UNSTABLE BASELINE: the target misses the goal at every tested rate from 20/s to ")
    );
    assert_eq!((late.outcome, exit_code(&late, None)), (FindOutcome::Found, exit::SUCCESS));
    assert!(
        line(&late).starts_with("FOUND: the target does not break, but responses become late "),
        "{}",
        line(&late)
    );
    assert_eq!((late.breaking_rate.lower, late.breaking_rate.lowest_bad_rate), (None, None));
}

#[test]
fn each_outcome_fits_on_a_screen_and_says_what_was_tested() {
    for (name, answer) in each() {
        let text = shown(&answer);
        assert!(text.lines().count() <= 40, "{name}: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{name}: {text}");
        insta::assert_snapshot!(name, text);
    }
}

/// The headline was cut, and on a terminal of 60 columns every line was broken again.
#[test]
fn every_line_is_wrapped_to_the_terminal_and_the_headline_is_whole() {
    let mut wide = found();
    (wide.breaking_rate.lower, wide.breaking_rate.upper) = (Some(200.0), Some(606.0));
    for columns in [40, 60, 80] {
        for (name, answer) in each().into_iter().chain([("wide", wide.clone())]) {
            let text = screen::format_screen(&answer, columns);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns} {name}: {text}");
            assert!(text.contains("trials and") || text.contains("trial and"), "{columns} {name}: {text}");
            let (headline, _) = screen::format_headline_target_goal(&answer);
            let words = text.split_whitespace().take(headline.split_whitespace().count());
            assert!(words.eq(headline.split_whitespace()), "{columns} {name}: {text}");
        }
    }
}

#[test]
fn what_cannot_be_told_apart_is_one_of_them_and_what_fits_no_class_is_nothing_to_be_sure_of() {
    let page = html_report::render(&found()).unwrap();
    assert!(
        page.contains("hanging-limiter or connection-cap")
            && page.contains("sure that one of these is the cause")
    );
    let mut unknown = found();
    unknown.ambiguous_causes.clear();
    unknown.cause.iter_mut().for_each(|cause| (cause.name, cause.score) = ("unknown".to_owned(), 0.72));
    let (page, text) = (html_report::render(&unknown).unwrap(), shown(&unknown));
    assert!(page.contains("cause: no known cause fits") && !page.contains("72 %"));
    assert!(
        text.contains("unknown: the observations fit no known cause") && !text.contains("72 %"),
        "{text}"
    );
    // A flag decides what is said here, and not the reason's text.
    let undecided = |reason: &str, needs_higher_max_rate| ReportedUndecidedCause {
        name: "rate-limiter".to_owned(),
        reason: reason.to_owned(),
        needs_higher_max_rate,
    };
    let of = |undecided| {
        let answer = FindReport { undecided_causes: vec![undecided], ..unknown.clone() };
        shown(&answer).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = of(undecided("any sentence", true));
    assert!(text.contains("unknown: --max-rate is too low for the experiments on rate-limiter"), "{text}");
    let text =
        of(undecided("not tried: --max-rate is too low for these experiments: three bursts in a row", false));
    assert!(text.contains("unknown: the observations fit no known cause"), "{text}");
    let mut sure = found();
    sure.cause.iter_mut().for_each(|cause| cause.score = 0.9999);
    assert!(shown(&sure).contains("(99 % sure") && html_report::render(&sure).unwrap().contains("99 %"));
    assert!(!shown(&sure).contains("100 %") && !html_report::render(&sure).unwrap().contains("\"100 %\""));
}

/// One list of counters stood there for each class that it excludes, cut in its middle, and what was worth reading was not.
#[test]
fn counters_that_did_not_rise_are_listed_once_last_and_by_whole_names() {
    let mut answer = found();
    let names: Vec<_> = (0..30).map(|at| format!("envoy_cluster_upstream_counter_{at}")).collect();
    let silent = format!("counters that did not rise: {}", names.join(", "));
    let classes = ["connection-cap", "rate-limiter", "concurrency-cap"];
    let said = |class: &&str| ServerSideFact {
        text: silent.clone(),
        cause: Some((*class).to_owned()),
        likelihood_ratio: Some(0.5),
        is_unchanged: true,
    };
    answer.server_metrics[0].facts.extend(classes.iter().map(said));
    let text = shown(&answer);
    assert_eq!(text.matches("did not rise").count(), 1, "{text}");
    assert!(text.find("did not rise") > text.find("undecided"), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains(" more: against rate-limiter, concurrency-cap, connection-cap, 2 times less likely"),
        "{text}"
    );
    assert!(
        flat.contains("envoy_cluster_upstream_counter_0, ") && !text.lines().any(|line| line.trim() == "…"),
        "{text}"
    );
}

#[test]
fn what_was_held_too_briefly_to_be_told_is_not_called_untested() {
    let (_, mut answer) = each().remove(2);
    (answer.breaking_rate.highest_good_rate, answer.latency_breaking_rate.highest_good_rate) = (None, None);
    let text = shown(&answer);
    let headline = "NO LIMIT FOUND: the target did not break up to --max-rate; 100/s was sustained for 8.0 s";
    assert_eq!(screen::format_headline_target_goal(&answer).0, headline);
    assert!(text.contains("100/s for 8.0 s, too few responses") && !text.contains("no rate"), "{text}");
}

/// A report about a limiter named no status, so that a 429 had to be looked for elsewhere.
#[test]
fn the_failures_in_overload_are_named() {
    let mut answer = found();
    answer.failure_mode = Some(ReportedFailureMode::Rejecting);
    let bad = answer.trials.iter_mut().filter(|trial| trial.verdict == ReportedVerdict::Bad);
    let bad = bad.max_by(|one, other| one.error_ratio.total_cmp(&other.error_ratio)).unwrap();
    for (ratio, text) in
        [(1.0, "some are errors: status 429\n"), (0.7, "some are errors: mostly status 429\n")]
    {
        bad.top_failure = Some(ReportedTopFailure { kind: "status 429".to_owned(), ratio });
        let text = text.to_owned();
        let mut with = found();
        (with.failure_mode, with.trials) = (Some(ReportedFailureMode::Rejecting), vec![bad.clone()]);
        assert!(shown(&with).contains(&text), "{}", shown(&with));
    }
}

#[test]
fn a_run_that_has_its_limit_says_what_it_left_out_and_not_that_it_was_cut() {
    let left_out = vec!["the experiment \"churn\" and all later experiments".to_owned()];
    let answer = FindReport { stop_reason: Some(FindStopReason::Budget), not_run: left_out, ..found() };
    let text = shown(&answer);
    assert!(text.contains("left out     the experiment \"churn\"") && !text.contains("cut short"), "{text}");
    assert!(html_report::render(&answer).unwrap().contains("too little of the budget (--budget) was left"));
    let none = FindReport { outcome: FindOutcome::Interrupted, not_run: Vec::new(), ..answer };
    assert!(shown(&none).contains("cut short    too little of the budget (--budget) was left"));
}

#[test]
fn a_run_whose_trials_do_not_agree_is_undecided_and_says_why() {
    let reason = Some(
        "a trial at 13/s was bad, although this rate is below the limit's interval of 23 to 152/s".to_owned(),
    );
    let answer = FindReport { outcome: FindOutcome::Undecided, undecided_reason: reason, ..found() };
    let text = shown(&answer);
    assert!(text.starts_with("UNDECIDED: ") && !text.contains("FOUND") && !text.contains("budget"), "{text}");
    assert!(text.contains("undecided    a trial at 13/s"), "{text}");
}

#[test]
fn a_list_of_targets_that_the_trials_do_not_cover_is_named() {
    let mut answer = found();
    assert!(!shown(&answer).contains("not covered"));
    answer.config.target_count = 1_000_000;
    assert!(shown(&answer).contains("not covered  the trials sent"), "{}", shown(&answer));
}

#[test]
fn a_cause_that_this_machine_observed_has_no_probability() {
    let mut answer = found();
    answer.cause.iter_mut().for_each(|cause| (cause.name, cause.score) = ("generator".to_owned(), 1.0));
    answer.ambiguous_causes.clear();
    let text = shown(&answer);
    assert!(text.contains("generator") && !text.contains("% sure"), "{text}");
}

#[test]
fn a_screen_has_an_end_however_much_there_is_to_say() {
    let mut answer = found();
    let long = "words ".repeat(200) + &"x".repeat(500);
    answer.excluded_causes.iter_mut().for_each(|out| out.reason.clone_from(&long));
    answer.cause.iter_mut().for_each(|cause| cause.evidence[0].observation = format!("\x1b[2J{long}"));
    answer.config.target = "http://a/".to_owned() + &"y".repeat(300);
    let text = shown(&answer);
    assert!(text.lines().count() <= 40 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\x1b') && text.contains("trials and"), "{text}");
}

#[test]
fn a_ramp_and_the_generators_limit_are_never_what_the_target_can_do() {
    for (name, answer) in each() {
        let text = shown(&answer);
        let is_stated = text.lines().any(|line| line.contains("97 % interval"));
        assert_eq!(is_stated, matches!(name, "found" | "metastable"), "{name}: {text}");
    }
}

#[test]
fn what_is_used_up_is_not_called_sustained() {
    let mut answer = found();
    answer.quota_exhaustion =
        Some(ReportedQuotaExhaustion { after_requests: 3120.0, goodput_after_exhaustion: 98.4 });
    let text = shown(&answer);
    assert!(
        screen::format_headline_target_goal(&answer).0.ends_with("once its burst allowance is used up"),
        "{text}"
    );
    assert!(text.contains("the target serves only 98.4 requests/s"), "{text}");
}

#[test]
fn a_run_writes_its_files_and_ends_with_the_code_of_its_outcome() {
    let room = tempfile::tempdir().unwrap();
    let (json, html) = (room.path().join("run.json"), room.path().join("run.html"));
    let files = ReportFiles::create(Some(&json), Some(&html)).unwrap();
    let site = site(field(SimulatedClass::QueueExponential, 7));
    let capped = FindCommandPlan {
        plan: FindPlan { max_rate: Some(100.0), ..plan() },
        previous_report: None,
        closed_loop: None,
    };
    assert_eq!(carry_out(&capped, site, None, files, FindProgress::Lines).unwrap(), exit::NO_LIMIT_FOUND);
    assert_eq!(super::read_earlier_report(&json).unwrap().outcome, FindOutcome::NoLimitFound);
    assert!(std::fs::read_to_string(&html).unwrap().contains("</html>"));
}

#[test]
fn each_outcome_has_a_code_and_a_signal_comes_first() {
    let codes: Vec<_> = each().iter().map(|(_, answer)| exit_code(answer, None)).collect();
    assert_eq!(codes, [0, 7, 5, 4, 6, 8]);
    let (_, interrupted) = each().pop().unwrap();
    assert_eq!((exit_code(&interrupted, Some(2)), exit_code(&interrupted, Some(15))), (130, 143));
    assert_eq!(exit_code(&found(), Some(2)), 0, "a signal after the end is no interruption");
}

/// Returns the update that a page receives during a search.
fn event(answer: &FindReport, state: &'static str) -> Value {
    let live = SearchStatus::for_test(state);
    serde_json::from_str(&SearchPageReport::live_event(answer, live).unwrap()).unwrap()
}

#[test]
fn a_page_in_the_middle_of_a_search_says_what_is_known_and_not_how_it_ends() {
    let nothing = event(&empty_report(&plan()), "running");
    assert_eq!((&nothing["title"], &nothing["note"]), (&"So far: no limit is known".into(), &Value::Null));
    assert_eq!((&nothing["tables"], &nothing["live"]["state"]), (&serde_json::json!([]), &"running".into()));
    let title = |answer: &FindReport| event(answer, "running")["title"].as_str().unwrap().to_owned();
    let mut answer = found();
    assert!(title(&answer).starts_with("So far: the target breaks between "), "{}", title(&answer));
    answer.outcome = FindOutcome::Interrupted;
    assert!(title(&answer).starts_with("So far: the target breaks between "), "a bracket is known");
    (answer.breaking_rate.lower, answer.breaking_rate.upper) = (None, None);
    assert!(
        title(&answer).starts_with("So far: ") && title(&answer).ends_with("/s sustained"),
        "{}",
        title(&answer)
    );
    let clients = of_clients(&plan(), None);
    assert!(
        title(&clients).starts_with("So far: ") && title(&clients).ends_with(" sustained"),
        "{}",
        title(&clients)
    );
    let saved = SearchPageReport::offline_page(&answer, Some("Saved.")).unwrap();
    assert!(
        saved.contains("\"note\":\"Saved.\"")
            && !saved.contains("INTERRUPTED")
            && !saved.contains("connect-src")
    );
    let page = SearchPageReport::live_page(&answer, SearchStatus::for_test("running")).unwrap();
    assert!(page.contains("connect-src 'self'") && page.contains("EventSource"));
    assert_eq!(SearchPageReport::offline_page(&answer, None).unwrap(), html_report::render(&answer).unwrap());
}

#[test]
fn nothing_in_a_page_can_end_its_script() {
    let mut answer = found();
    answer.config.target = "</script><script>alert(1)</script>".to_owned();
    let page = html_report::render(&answer).unwrap();
    assert!(!page.contains("<script>alert"));
}

/// Four workers of 10 ms with 5 ms beside them.
fn pool() -> Field {
    let workers = SimulatedWorkers::new(4, ServiceDistribution::Fixed(0.01), 0.005);
    Field {
        target: SimulatedTarget::new(Box::new(workers), target::SimulatedArrivals::Constant, 0.25, 1),
        most: None,
    }
}

fn of_clients(plan: &FindPlan, most: Option<u32>) -> FindReport {
    seawall_lab::find::closed_loop::find(
        &mut pool(),
        plan,
        most,
        &mut seawall_lab::find::progress::NoopWatcher,
    )
}

#[test]
fn a_run_of_clients_fits_on_a_screen_and_speaks_of_clients() {
    let endless = FindPlan { goal: SearchGoal::ERRORS_ONLY, ..plan() };
    for (name, answer) in
        [("closed", of_clients(&plan(), None)), ("closed-no-limit-found", of_clients(&endless, Some(32)))]
    {
        let text = shown(&answer);
        assert!(text.lines().count() <= 40 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains("cliff") && !text.contains("knee"), "{text}");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn a_page_of_clients_has_clients_where_rates_would_be() {
    let page = html_report::render(&of_clients(&plan(), None)).unwrap();
    for words in
        ["Tested clients", "Good responses by clients", "limit, lower bound", "most good responses/s"]
    {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("offered, requests per second") && !page.contains("Offered /s"));
}

#[test]
fn a_run_of_clients_writes_its_file_and_has_the_code_of_its_outcome() {
    let room = tempfile::tempdir().unwrap();
    let json = room.path().join("run.json");
    let files = ReportFiles::create(Some(&json), None).unwrap();
    let site = site(pool());
    let plan = FindPlan { goal: SearchGoal::ERRORS_ONLY, ..plan() };
    let capped = FindCommandPlan {
        plan,
        previous_report: None,
        closed_loop: Some(super::plan::ClosedLoopOptions { max_clients: Some(8) }),
    };
    assert_eq!(carry_out(&capped, site, None, files, FindProgress::Lines).unwrap(), exit::NO_LIMIT_FOUND);
    assert_eq!(
        super::read_earlier_report(&json).unwrap().closed_loop.map(|closed| closed.max_clients),
        Some(8)
    );
}
