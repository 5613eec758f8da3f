//! Tests of the output and the exit codes, with experiments on simulated paths.

use std::time::Duration;

use clap::Parser;
use seawall_isolate::cell::CellStatsByVariant;
use seawall_isolate::segment::{Segment, SegmentTimes, VariantOrder};
use seawall_isolate::simulated::path::{Effect, NOISY, Noise, QUIET, SimulatedPath};
use seawall_isolate::study::StudyConfig;
use seawall_lab::find::compare::RunComparisonError;
use seawall_lab::find::find_report::{FindOutcome as End, FindStopReason as Ended, ReportedResponseTimes};
use seawall_lab::find::plan::FindPlan as Search;
use seawall_lab::isolate::failure_counts::{FailureCount, RequestCounts};
use seawall_lab::isolate::isolate_report::{
    ConfidenceInterval, IsolateOutcome, IsolateReport, VariantVerdict,
};
use seawall_lab::isolate::variant_capacity::{CapacityPlan, CapacitySearches};
use seawall_lab::isolate::variant_setup::VariantLabel;
use seawall_lab::isolate::{
    IsolatePlan, IsolateStopReason, SegmentResult, VariantRunner, empty_report, isolate,
};
use seawall_load::input_files::InputFiles;
use seawall_load::stats::LatencyHistogram;
use seawall_search::goal::SearchGoal;
use seawall_search::simulated::target_specs::SimulatedClass;

use super::args::IsolateArgs;
use super::{code, page, plan, screen};
use crate::exit;
use crate::find::tests::{field, plan as search, searched};
use crate::live_search_page::{SearchPageReport, SearchStatus};

/// A simulated path, cut after so many segments.
struct Simulated(SimulatedPath, usize, Option<IsolateStopReason>);

/// A simulated path whose generator was the limit in the last segment before the cut.
struct Stumbling(Simulated);

impl VariantRunner for Stumbling {
    fn carry_out(&mut self, segment: &Segment, rate: f64) -> SegmentResult {
        let limits = if self.0.1 == 2 { vec!["it was late".to_owned()] } else { Vec::new() };
        SegmentResult { generator_limits: limits, ..self.0.carry_out(segment, rate) }
    }
}

impl VariantRunner for Simulated {
    fn carry_out(&mut self, segment: &Segment, _: f64) -> SegmentResult {
        self.1 = self.1.saturating_sub(1);
        let cut = self.2.clone().filter(|_| self.1 == 0);
        let cells = self.0.carry_out(segment);
        SegmentResult {
            response_times: times(&cells),
            counts: counts(&cells),
            cells,
            took: segment.duration(),
            stop_reason: cut,
            ..SegmentResult::default()
        }
    }
}

/// Returns the middle times of the time buckets, by variant, in place of all times.
fn times(cells: &[CellStatsByVariant]) -> Vec<LatencyHistogram> {
    let mut all = vec![LatencyHistogram::default(); cells.first().map_or(0, Vec::len)];
    for (way, slot) in cells.iter().flat_map(|cell| cell.iter().enumerate()) {
        if let Some(middle) = slot.and_then(|slot| slot.interquartile_geometric_mean) {
            all[way].record((middle * 1e9) as u64);
        }
    }
    all
}

/// Returns the request counts of the time buckets, by variant.
fn counts(cells: &[CellStatsByVariant]) -> Vec<RequestCounts> {
    let mut all = vec![RequestCounts::default(); cells.first().map_or(0, Vec::len)];
    for (way, slot) in cells.iter().flat_map(|cell| cell.iter().enumerate()) {
        let Some(slot) = slot else { continue };
        all[way].requests += slot.requests as u64;
        all[way].failed += slot.failed as u64;
    }
    all
}

/// Runs an experiment with variants that take this much more time (a logarithm) and have this share of failures.
fn experiment(
    noise: Noise,
    rate: f64,
    ways: &[(&str, f64, f64)],
    cut: Option<(usize, IsolateStopReason)>,
) -> IsolateReport {
    beside(Effect::default(), noise, rate, ways, cut)
}

fn beside(
    reference: Effect,
    noise: Noise,
    rate: f64,
    ways: &[(&str, f64, f64)],
    cut: Option<(usize, IsolateStopReason)>,
) -> IsolateReport {
    let effect =
        |&(_, time, failing): &(&str, f64, f64)| Effect { log_time_factor: time, failing, tail: 0.0 };
    let effects = std::iter::once(reference).chain(ways.iter().map(effect)).collect();
    let names = std::iter::once("mesh").chain(ways.iter().map(|way| way.0)).collect::<Vec<_>>();
    let plan = plan_of(rate, &names);
    let (after, cut) = cut.map_or((0, None), |(after, cut)| (after, Some(cut)));
    isolate(&mut Simulated(SimulatedPath::new(noise, effects, rate, 2), after, cut), &plan, &mut |_, _| ())
}

/// Returns a plan with these variants, the reference first, at this rate: two minutes of the middle of their times.
fn plan_of(rate: f64, names: &[&str]) -> IsolatePlan {
    let asked = StudyConfig {
        designs: vec![VariantOrder::Interleaved; names.len() - 1],
        rate,
        margin: 0.05,
        until_p99: false,
        budget: Duration::from_secs(120),
        times: SegmentTimes::DEFAULT_DURATIONS,
        seed: 1,
    };
    let ways = names.iter().map(|name| VariantLabel { name: (*name).to_owned(), description: String::new() });
    IsolatePlan { config: asked, variants: ways.collect(), target: "http://a.test/".to_owned() }
}

#[test]
fn who_is_to_blame_stands_first_with_what_it_saves_and_who_is_not_is_named() {
    let ways = [("name", 0.0, 0.0), ("a <proxy>", -0.2, 0.0), ("tls", 0.1, 0.0), ("flaky", 0.0, 0.1)];
    let answer = experiment(QUIET, 400.0, &ways, None);
    let text = screen::format_report(&answer);
    let places = [
        "a <proxy>: faster by 1",
        "1. a <proxy>",
        "slower by ",
        "Not the cause (the middle half of the response times is the same within 5 %)\n  name",
    ];
    let found: Vec<_> = places.iter().map(|part| text.find(part)).collect();
    assert!(found.iter().all(Option::is_some) && found.is_sorted(), "{text}");
    assert!(text.contains("flaky      the share of failed requests is higher by "), "{text}");
    assert_eq!((answer.outcome, code(&answer, None, false)), (IsolateOutcome::Decided, exit::SUCCESS));
    let page = page::render(&answer);
    assert!(page.contains("a &lt;proxy&gt;: faster by ") && !page.contains("a <proxy>"), "names are text");
    assert!(!page.contains("<script") && !page.contains("http://www.w3.org/1999"));
}

/// Letters of 4 pixels, and the time saved cut off, on a screen of 390 pixels.
#[test]
fn on_a_phone_the_first_chart_can_be_read_and_the_table_begins_with_the_time_saved() {
    let ways = [("name", 0.0, 0.0), ("a way with a name as long as a name may be", -0.2, 0.0)];
    let page = page::render(&experiment(QUIET, 400.0, &ways, None));
    let narrow = page.split("<svg class=\"ways ").find(|part| part.starts_with("narrow\"")).unwrap();
    let narrow = narrow.split("</svg>").next().unwrap();
    let width: f64 =
        narrow.split("viewBox=\"0 0 ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(width <= 360.0, "letters of 13 units are nearly 13 pixels: {width}");
    for (attribute, most) in [(" x=\"", width), (" x2=\"", width), (" cx=\"", width)] {
        let places = narrow.split(attribute).skip(1).map(|rest| rest.split('"').next().unwrap());
        let places: Vec<f64> = places.map(|place| place.parse().unwrap()).collect();
        assert!(
            !places.is_empty() && places.iter().all(|place| (0.0..=most).contains(place)),
            "{attribute}{places:?}"
        );
    }
    assert!(
        page.contains("<th>variant</th><th class=\"n\">time saved</th><th class=\"n\">responses</th>"),
        "{page}"
    );
}

#[test]
fn the_title_of_a_page_begins_with_a_capital_letter_or_a_name() {
    let title = |ways: &[(&'static str, f64, f64)]| {
        let page = page::render(&experiment(QUIET, 400.0, ways, None));
        page.split("<title>").nth(1).unwrap().split("</title>").next().unwrap().to_owned()
    };
    assert!(title(&[("name", 0.0, 0.0)]).starts_with("No variant differs: "));
    assert!(title(&[("mesh", -0.2, 0.0)]).starts_with("mesh: faster by "));
}

#[test]
fn a_page_in_the_middle_of_an_experiment_shows_what_is_known_and_is_told_whole_pages() {
    let plan = plan_of(200.0, &["mesh", "direct"]);
    let nothing = empty_report(&plan);
    assert_eq!(screen::format_headline(&nothing), "nothing is decided yet");
    let (mut told, mut paths) =
        (Vec::new(), Simulated(SimulatedPath::new(QUIET, vec![Effect::default(); 2], 200.0, 2), 0, None));
    let whole = isolate(&mut paths, &plan, &mut |_, so_far| told.push(so_far()));
    let cells: Vec<_> = told.iter().map(|so_far| so_far.time_buckets.len()).collect();
    assert!(cells.len() > 1 && cells.is_sorted(), "{cells:?}");
    assert_eq!(told.last(), Some(&whole));
    for answer in [&nothing, &told[0]] {
        let event = SearchPageReport::live_event(answer, SearchStatus::for_test("running")).unwrap();
        let event: serde_json::Value = serde_json::from_str(&event).unwrap();
        assert_eq!(
            (&event["live"]["state"], event["page"].as_str()),
            (&"running".into(), Some(&*page::render(answer)))
        );
        let open = SearchPageReport::live_page(answer, SearchStatus::for_test("running")).unwrap();
        assert!(open.contains("connect-src 'self'") && open.contains("EventSource"));
        let saved = SearchPageReport::offline_page(answer, Some("Saved <now>.")).unwrap();
        assert!(
            saved.contains("Saved &lt;now&gt;.")
                && !saved.contains("<script")
                && !saved.contains("connect-src")
        );
    }
    assert_eq!(SearchPageReport::offline_page(&whole, None).unwrap(), page::render(&whole));
}

#[test]
fn a_way_that_fails_more_and_takes_longer_is_told_with_both() {
    let ways = [("worse", 0.4, 0.1), ("flaky", 0.0, 0.1)];
    let text = screen::format_report(&experiment(QUIET, 400.0, &ways, None));
    let line = |name: &str| text.lines().find(|line| line.contains(&format!(". {name}"))).unwrap();
    assert!(
        line("worse").contains("the share of failed requests is higher by ")
            && line("worse").contains("; and good responses are slower by "),
        "{text}"
    );
    assert!(!line("flaky").contains("good responses are slower"), "{text}");
}

#[test]
fn a_share_is_told_in_percent_below_ten_times_and_without_an_interval_where_none_is_known() {
    let interval = |lower, point, upper| {
        screen::format_confidence_interval(ConfidenceInterval { lower, estimate: point, upper })
    };
    assert_eq!(interval(Some(0.031), 0.052, Some(0.074)), "5.2 % (3.1 to 7.4 %)");
    assert_eq!(interval(None, -9.99, Some(-9.0)), "-999.0 % (? to -900.0 %)");
    assert_eq!(interval(Some(120.25), 125.9, None), "125.9 × (120.2 to ? ×)");
    assert_eq!(interval(None, -125.89, None), "-125.9 ×");
    assert_eq!(
        [0.05, 0.052, 9.994, 12.0, 125.9].map(screen::format_share),
        ["5 %", "5.2 %", "999.4 %", "12 ×", "125.9 ×"]
    );
}

#[test]
fn who_hardly_answers_is_no_faster_and_what_makes_it_answer_stands_first() {
    let ways = [("slower and well", 0.3, 0.0), ("as bad", 0.0, 1.0), ("well", 0.0, 0.0)];
    let fails = Effect { failing: 1.0, ..Effect::default() };
    let answer = beside(fails, QUIET, 400.0, &ways, None);
    let ranked: Vec<_> = answer.rank_differing_variants().iter().map(|way| way.stats.name.as_str()).collect();
    assert_eq!(ranked, ["well", "slower and well"]);
    let text = screen::format_report(&answer);
    assert!(
        text.contains("1. well             the share of failed requests is lower by 100.0 % ("),
        "{text}"
    );
    assert!(
        text.contains("as bad  almost no response is good with this variant, and almost none with mesh"),
        "{text}"
    );
    assert!(
        page::render(&answer)
            .contains("almost no response is good with this variant, and almost none with mesh")
    );
}

#[test]
fn a_reference_that_only_fails_is_told_in_the_first_line_and_reasons_beyond_four_are_counted() {
    let mut answer = experiment(QUIET, 400.0, &[("b", -0.2, 0.0)], None);
    let failure = |(what, count): (&str, u64)| FailureCount { reason: what.to_owned(), count };
    answer.reference.failed = answer.reference.requests;
    answer.reference.failures =
        [("503", 1200), ("500", 9), ("502", 8), ("504", 7), ("404", 2), ("410", 1)].map(failure).to_vec();
    let text = screen::format_report(&answer);
    let told = "503 (1,200), 500 (9), 502 (8), 504 (7), other reasons (3)";
    assert!(
        text.starts_with(&format!("no request of mesh got a good response: {told}; b: faster by 1")),
        "{text}"
    );
    assert!(text.contains(&format!("Failed requests\n  mesh  all requests: {told}\n")), "{text}");
}

#[test]
fn every_line_is_broken_at_the_terminals_width_and_no_word_is_lost() {
    let ways = [
        ("name", 0.0, 0.0),
        ("a way with a name that is as long as a name of a way may be, 64", -0.2, 0.0),
        ("flaky", 0.0, 0.1),
    ];
    let mut answer = experiment(QUIET, 400.0, &ways, None);
    answer.variants[0].stats.description =
        "no more connections than these, and some more words of it".to_owned();
    let whole = screen::format_report(&answer);
    for columns in [1, 40, 53, 60, 80, 100, 300] {
        let text = screen::format_report_in_columns(&answer, columns);
        let most = columns.clamp(40, 100);
        assert!(text.lines().all(|line| line.chars().count() <= most), "{columns}: {text}");
        for word in whole.split_whitespace() {
            let is_cut = "a way with a name that is as long as a name of a way may be, 64".contains(word);
            assert!(is_cut || text.split_whitespace().any(|told| told == word), "{columns}: {word}: {text}");
        }
        assert!(columns != 80 || text.contains("\n  name  "), "{text}");
    }
}

#[test]
fn what_could_not_be_told_comes_with_the_time_that_it_would_take() {
    let answer = experiment(NOISY, 30.0, &[("dns", 0.03, 0.0)], None);
    let text = screen::format_report(&answer);
    assert!(text.contains("Undecided\n  dns") && text.contains(" more time at this rate"), "{text}");
    assert!(text.contains("too few responses per time bucket: use a higher rate"), "{text}");
    assert_eq!(code(&answer, None, false), exit::UNDECIDED);
}

#[test]
fn each_end_has_a_code_of_its_own() {
    let slower = experiment(QUIET, 400.0, &[("b", 0.2, 0.0)], None);
    assert_eq!([false, true].map(|two| code(&slower, None, two)), [exit::SUCCESS, exit::SLO_MISSED]);
    let faster = experiment(QUIET, 400.0, &[("b", -0.2, 0.0)], None);
    assert_eq!(code(&faster, None, true), exit::SUCCESS);
    let cut = |cut| experiment(NOISY, 50.0, &[("b", 0.0, 0.0)], Some((1, cut)));
    let stopped = cut(IsolateStopReason::Stopped);
    assert_eq!(
        (code(&stopped, Some(2), false), stopped.time_buckets.len()),
        (130, 10),
        "what was measured is there"
    );
    let overloaded = cut(IsolateStopReason::Overloaded(1));
    assert_eq!(code(&overloaded, None, false), exit::UNDECIDED);
    assert!(screen::format_report(&overloaded).contains("most of these are requests of \"b\""));
    // What the one answers at the rate and the other does not is no matter of the rate, and the other does not get through a gate.
    let mut hangs = overloaded;
    hangs.variants[0].stats.no_response = hangs.variants[0].stats.requests;
    assert_eq!([true, false].map(|gate| code(&hangs, None, gate)), [exit::SLO_MISSED, exit::UNDECIDED]);
    assert!(screen::format_report(&hangs).contains("b  all requests: no response at the end ("));
    assert_eq!(code(&cut(IsolateStopReason::Failed("no way".to_owned())), None, false), exit::ERROR);
}

/// A reason of any segment made the generator's what the target had left unanswered in another.
#[test]
fn who_left_requests_unanswered_is_told_by_the_segment_that_was_cut() {
    let plan = plan_of(100.0, &["a", "b"]);
    let of = |after| {
        let effects = vec![Effect::default(), Effect { log_time_factor: 0.03, ..Effect::default() }];
        let path = SimulatedPath::new(NOISY, effects, 100.0, 2);
        let mut paths = Stumbling(Simulated(path, after, Some(IsolateStopReason::Overloaded(1))));
        isolate(&mut paths, &plan, &mut |_, _| ()).outcome
    };
    assert_eq!(of(2), IsolateOutcome::Overloaded, "the first segment was late, the second cut");
}

/// An experiment whose tail was to be told ended as decided without it.
#[test]
fn where_the_tail_was_asked_for_nothing_is_decided_without_it() {
    let of = |time, failing| {
        let effects = vec![Effect::default(), Effect { log_time_factor: time, failing, tail: 0.0 }];
        let mut plan = plan_of(100.0, &["a", "b"]);
        (plan.config.until_p99, plan.config.budget) = (true, Duration::from_secs(60));
        isolate(&mut Simulated(SimulatedPath::new(QUIET, effects, 100.0, 2), 0, None), &plan, &mut |_, _| ())
    };
    let equal = of(0.0, 0.0);
    assert_eq!(
        (equal.outcome, equal.variants_with_verdict(VariantVerdict::Equal).count()),
        (IsolateOutcome::Undecided, 1)
    );
    assert_eq!([false, true].map(|two| code(&equal, None, two)), [exit::UNDECIDED; 2]);
    let text = screen::format_report(&equal);
    assert!(
        text.starts_with(
            "no variant differs: b equals the reference within 5 %; the 99th percentile is undecided"
        ),
        "{text}"
    );
    let slower = of(0.3, 0.0);
    assert_eq!([false, true].map(|two| code(&slower, None, two)), [exit::UNDECIDED, exit::SLO_MISSED]);
    assert_eq!(of(0.0, 1.0).outcome, IsolateOutcome::Decided, "who answers nothing has no tail");
}

/// Adds searches of simulated targets to a comparison, one after the other, the reference first.
fn searched_too(answer: IsolateReport, searches: &[(SimulatedClass, u64)], all: bool) -> IsolateReport {
    let plans = vec![Search { max_rate: Some(1_000.0), ..search() }; answer.variants.len() + 1];
    let mut limits = CapacitySearches::new(
        &CapacityPlan { plans, whole_run_budget: Duration::from_secs(360), searches_all: all },
        &answer,
    );
    for &(class, seed) in searches {
        let Some(next) = limits.next_search() else { break };
        let mut run = searched(&next.plan, &mut field(class, seed));
        // Simulated answers have means only.
        run.trials.iter_mut().for_each(|trial| {
            let times = trial.mean_response_seconds().zip(trial.max_response_seconds());
            trial.response_seconds = times.map(|(p50, p99)| ReportedResponseTimes { p50, p99 });
        });
        limits.record_finished_search(next, run);
    }
    limits.end("somebody ended it");
    answer.with_capacity_report(Some(limits.finish()))
}

#[test]
fn what_each_way_bears_stands_beside_the_reference_on_screen_and_page_and_in_json() {
    let ways = [("direct", -0.2, 0.0), ("same", 0.0, 0.0), ("slow", 0.1, 0.0)];
    let answer = experiment(QUIET, 400.0, &ways, None);
    let (limited, queue) = ((SimulatedClass::LimiterHanging, 12), (SimulatedClass::QueueExponential, 7));
    let answer = searched_too(answer, &[limited, queue, limited], false);
    let found = answer.capacity.as_ref().unwrap();
    let names: Vec<_> = found.variants.iter().map(|way| way.name.as_str()).collect();
    assert_eq!(names, ["mesh", "direct", "slow"], "what is the same does not matter");
    let text = screen::format_report(&answer);
    let parts = [
        "Limit of each variant (p99 below 250 ms, errors below 0.1 %)\n  mesh    FOUND: the target breaks between ",
        "\n  direct  NO LIMIT FOUND: the target did not break up to --max-rate; 1,000/s was sustained\n          compared with mesh: better: breaking rate: at least +",
        "\n  slow    FOUND: the target breaks between ",
        "\n          compared with mesh: the same within 10 %: breaking rate: ",
    ];
    let places: Vec<_> = parts.iter().map(|part| text.find(part)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{text}");
    assert!(!text.contains("--thorough") && !text.contains("--resume"), "{text}");
    let page = page::render(&answer);
    for part in ["Limit of each variant", "Response time by rate", "thin line: median", "class=\"c4 dashed\""]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script"));
    assert!(serde_json::to_string(&answer).unwrap().starts_with("{\"kind\":\"isolate\",\"version\":1,"));
    let json = serde_json::to_value(&answer).unwrap();
    let way = &json["capacity"]["variants"][2];
    assert_eq!((&way["variant"], &way["name"]), (&3.into(), &"slow".into()));
    assert!(
        way["find"]["breaking_rate"]["lower"].is_f64() && way["vs_reference"]["estimate"].is_f64(),
        "{way}"
    );
    assert!(json["capacity"]["variants"][0]["vs_reference"].is_null());
}

#[test]
fn what_was_not_searched_is_named_with_the_reason_and_without_find_nothing_is_said() {
    let answer = experiment(QUIET, 400.0, &[("same", 0.0, 0.0)], None);
    assert!(
        !screen::format_report(&answer).contains("Limit of") && !page::render(&answer).contains("Limit of")
    );
    assert!(serde_json::to_value(&answer).unwrap().get("capacity").is_none());
    let nothing = searched_too(answer, &[], false);
    let text = screen::format_report(&nothing);
    assert!(
        text.contains("not searched: the experiment found no variant that differs from the reference"),
        "{text}"
    );
    assert!(page::render(&nothing).contains("Not searched: the experiment found no variant that differs"));
    let ways = [("a", -0.3, 0.0), ("b", -0.25, 0.0), ("c", -0.2, 0.0), ("d", -0.15, 0.0)];
    let four = searched_too(experiment(QUIET, 1000.0, &ways, None), &[], false);
    let text = screen::format_report(&four);
    assert!(text.contains("\n  d     not searched: three other variants differ more"), "{text}");
    assert!(page::render(&four).contains("not searched: three other variants differ more"));
}

#[test]
fn a_build_that_breaks_at_a_lower_rate_is_let_through_by_no_pipeline_and_a_signal_comes_first() {
    let equal = || experiment(QUIET, 400.0, &[("b", 0.0, 0.0)], None);
    let (queue, limited) = ((SimulatedClass::QueueExponential, 7), (SimulatedClass::LimiterHanging, 12));
    let better = searched_too(equal(), &[limited, queue], true);
    let worse = searched_too(equal(), &[queue, limited], true);
    assert_eq!([true, false].map(|two| code(&worse, None, two)), [exit::SLO_MISSED, exit::SUCCESS]);
    assert_eq!(code(&better, None, true), exit::SUCCESS);
    assert_eq!(code(&better, Some(2), true), exit::SUCCESS, "a signal after the end is no interruption");
    for outcome in [IsolateOutcome::Overloaded, IsolateOutcome::GeneratorLimited, IsolateOutcome::Undecided] {
        let worse = IsolateReport { outcome, ..worse.clone() };
        assert_eq!(code(&worse, None, true), exit::SLO_MISSED, "however the comparison ended");
    }
    let first = |answer: &IsolateReport| screen::format_report(answer).lines().next().unwrap().to_owned();
    assert!(
        first(&worse).ends_with("b equals the reference within 5 %; b breaks at a lower rate"),
        "{}",
        first(&worse)
    );
    assert!(first(&better).ends_with("; b breaks at a higher rate"), "{}", first(&better));
    let mut died = worse.clone();
    let of_b = &mut died.capacity.as_mut().unwrap().variants[1];
    (of_b.find.outcome, of_b.vs_reference) = (End::TargetDied, Some(Err(RunComparisonError::NoRateFound)));
    assert!(first(&died).ends_with("; b stopped answering during its search"), "{}", first(&died));
    assert_eq!(code(&died, None, true), exit::SLO_MISSED, "of what it died of the other did not");
    let untold = searched_too(equal(), &[limited], true);
    assert_eq!([true, false].map(|two| code(&untold, None, two)), [exit::UNDECIDED, exit::SUCCESS]);
    let mut cut = worse;
    let run = &mut cut.capacity.as_mut().unwrap().variants[1].find;
    (run.stop_reason, run.outcome) = (Some(Ended::Signal), End::Interrupted);
    let capacity = cut.capacity.take();
    let mut cut = cut.with_capacity_report(capacity);
    assert!(screen::format_report(&cut).contains("\ncut short: a signal stopped the searches\n"));
    assert_eq!((code(&cut, Some(2), true), code(&cut, Some(15), false)), (130, 143));
    assert!(
        screen::format_report(&cut).contains("INTERRUPTED: ")
            && !screen::format_report(&cut).contains("a longer --budget")
    );
    cut.capacity.as_mut().unwrap().variants[1].find.stop_reason = Some(Ended::Budget);
    assert!(screen::format_report(&cut).contains("; use a longer --budget\n"));
}

/// Flags as they are typed.
#[derive(Parser)]
struct Typed {
    #[command(flatten)]
    args: IsolateArgs,
}

fn typed(words: &str) -> IsolateArgs {
    let words = std::iter::once("isolate").chain(words.split_whitespace());
    let Typed { args } = Typed::try_parse_from(words).unwrap();
    args.check().unwrap();
    args
}

#[test]
fn each_way_is_searched_as_it_was_compared_and_a_third_of_the_budget_is_the_comparisons() {
    let words = "http://127.0.0.1:8080/ --factors keep-alive,protocol,connections=3 --capacity --max-rate 900/s --slo p99<250ms";
    let order = plan::plan_local_run(&typed(words), 1, &InputFiles::default()).unwrap();
    let searches = order.capacity_plan.unwrap();
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    assert_eq!(
        (order.plan.config.budget, searches.whole_run_budget, searches.searches_all),
        (minutes(2), minutes(6), false)
    );
    let of = |plan: &Search| {
        let connections = &plan.connections;
        (connections.keep_alive, connections.protocol.clone(), connections.max_connections)
    };
    let expected = [
        (true, "http/1.1", None),
        (false, "http/1.1", None),
        (true, "h2c", None),
        (true, "http/1.1", Some(3)),
    ];
    let expected = expected.map(|(kept, protocol, most)| (kept, protocol.to_owned(), most));
    assert_eq!(searches.plans.iter().map(of).collect::<Vec<_>>(), expected);
    let is_asked =
        |plan: &Search| plan.goal == search().goal && plan.max_rate == Some(900.0) && !plan.looks_for_cause;
    assert!(searches.plans.iter().all(is_asked));
    let two = typed("--a http://127.0.0.1:1/ --b http://127.0.0.1:2/b --capacity");
    let searches = plan::plan_local_run(&two, 1, &InputFiles::default()).unwrap().capacity_plan.unwrap();
    let urls: Vec<_> = searches.plans.iter().map(|plan| plan.target_info.url.as_str()).collect();
    assert_eq!(urls, ["http://127.0.0.1:1/", "http://127.0.0.1:2/b"]);
    assert!(searches.searches_all && searches.plans.iter().all(|plan| plan.goal == SearchGoal::ERRORS_ONLY));
    let alone =
        plan::plan_local_run(&typed("http://127.0.0.1:1/ --factors keep-alive"), 1, &InputFiles::default())
            .unwrap();
    assert!(alone.capacity_plan.is_none() && alone.plan.config.budget == minutes(2), "as it was");
}

/// The plan of an experiment file beside these flags.
fn planned(file: &str, words: &str) -> anyhow::Result<plan::IsolateRun> {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("ways.yaml");
    std::fs::write(&path, file).unwrap();
    plan::plan_local_run(
        &typed(&format!("{words} --experiment {}", path.display())),
        1,
        &InputFiles::default(),
    )
}

/// Why a plan is none.
fn refused(plan: anyhow::Result<plan::IsolateRun>) -> String {
    match plan {
        Ok(order) => panic!("it is a plan: {:?}", order.plan),
        Err(why) => why.to_string(),
    }
}

/// A factor was applied to the flags: `keep-alive` equalled a reference without keep-alive, and was reported as not the cause.
#[test]
fn a_factor_beside_a_file_is_the_files_reference_with_one_thing_different() {
    let words = "http://127.0.0.1:1/ --factors keep-alive --capacity";
    for (file, kept) in [
        ("reference: {keep-alive: false}\nvariants: [{name: x, protocol: http2}]", [false, true, true]),
        ("variants: [{name: x, lookup: true, protocol: http2}]", [false, false, true]),
        ("variants: [{name: x, protocol: http2}]", [true, true, false]),
    ] {
        let plans = planned(file, words).unwrap().capacity_plan.unwrap().plans;
        let told: Vec<_> = plans.iter().map(|plan| plan.connections.keep_alive).collect();
        assert_eq!(told, kept, "{file}");
    }
    let file = "reference: {protocol: http2}\nvariants: [{name: x, keep-alive: false}]";
    let plans = planned(file, words).unwrap().capacity_plan.unwrap().plans;
    let told: Vec<_> = plans.iter().map(|plan| plan.connections.protocol.as_str()).collect();
    assert_eq!(told, ["h2c", "http/1.1", "h2c"], "what a file's way does not name is as the flags have it");
}

#[test]
fn a_way_that_comes_out_as_the_reference_is_refused() {
    for (file, flags) in [
        ("reference: {keep-alive: false}\nvariants: [{name: x, keep-alive: false}]", ""),
        ("variants: [{name: x, address: '127.0.0.1:1'}]", ""),
        ("variants: [{name: x, lookup: true}]", ""),
        ("variants: [{name: x, protocol: http1}]", ""),
        ("variants: [{name: x, connections: 3}]", "--max-connections 3"),
        ("variants: [{name: z, keep-alive: false}, {name: x, url: 'http://127.0.0.1:1/'}]", ""),
    ] {
        let told = refused(planned(file, &format!("http://127.0.0.1:1/ {flags}")));
        assert_eq!(told, "x: the variant does not differ from reference", "{file}");
    }
    let file = "reference: {address: '127.0.0.1:2'}\nvariants: [{name: x, keep-alive: false}]";
    let told = refused(planned(file, "http://127.0.0.1:1/ --factors connect-to=127.0.0.1:2"));
    assert!(told.starts_with("connect-to=127.0.0.1:2: the variant does not differ from"), "{told}");
    plan::plan_local_run(
        &typed("--a http://127.0.0.1:1/ --b http://127.0.0.1:1/"),
        1,
        &InputFiles::default(),
    )
    .unwrap();
}

/// A variant with its own URL requested only that URL, while the reference requested all of them.
#[test]
fn a_way_has_no_url_of_its_own_beside_targets_that_have_several() {
    let room = tempfile::tempdir().unwrap();
    let targets = |text: &str| {
        let path = room.path().join("targets");
        std::fs::write(&path, text).unwrap();
        format!("--targets {}", path.display())
    };
    let several = targets("GET http://127.0.0.1:1/x\nGET http://127.0.0.1:1/y\n");
    let file = "variants: [{name: x, url: 'http://127.0.0.1:2/'}]";
    let told = refused(planned(file, &several));
    assert!(
        told.starts_with("x: url replaces a single URL, but the targets have 2 different URLs"),
        "{told}"
    );
    let tls = refused(plan::plan_local_run(
        &typed(&format!("{several} --factors tls=https://127.0.0.1:2/")),
        1,
        &InputFiles::default(),
    ));
    assert!(tls.starts_with("TLS: url replaces a single URL"), "{tls}");
    let one = targets("GET http://127.0.0.1:1/\n\nPOST http://127.0.0.1:1/\n");
    planned(file, &one).unwrap();
}

#[test]
fn built_in_ways_are_as_many_and_their_names_as_long_as_a_files_are() {
    let told = |factors: &str| {
        let words = format!("http://127.0.0.1:1/ --budget 1h --factors {factors}");
        plan::plan_local_run(&typed(&words), 1, &InputFiles::default())
            .map(|order| order.plan.variants.len())
            .map_err(|error| error.to_string())
    };
    let factors = |most| (2..2 + most).map(|at| format!("connections={at}")).collect::<Vec<_>>().join(",");
    assert_eq!(told(&factors(30)), Ok(31));
    assert_eq!(told(&factors(31)).unwrap_err(), "31 variants: expected at most 30");
    let long = told(&format!("connect-to={}:1", "a".repeat(60))).unwrap_err();
    assert!(long.contains("at most 64 bytes"), "{long}");
}

/// The budget was spent on too few blocks for an evaluation, and the report said nothing about any variant.
#[test]
fn a_budget_without_time_for_a_first_look_is_refused_with_the_one_that_has() {
    let told = |words: &str| {
        plan::plan_local_run(&typed(&format!("http://127.0.0.1:1/ {words}")), 1, &InputFiles::default())
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(told("--factors keep-alive --budget 25s"), None, "as the flag alone has it");
    for (words, least) in [
        ("--factors connections --budget", 34),
        ("--factors keep-alive --rate 5/s --budget", 137),
        ("--factors keep-alive,connections --budget", 57),
        ("--factors keep-alive,connections --capacity --budget", 171),
    ] {
        let short = told(&format!("{words} {}s", least - 1)).unwrap();
        assert!(short.starts_with(&format!("--budget must be at least {least}s")), "{words}: {short}");
        assert_eq!(told(&format!("{words} {least}s")), None, "{words}");
    }
}
