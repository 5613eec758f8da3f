//! Experiments on servers of this process, of which one way is slower than the others.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seawall_isolate::segment::{SegmentTimes, VariantOrder};
use seawall_isolate::study::StudyConfig;
use seawall_lab::find;
use seawall_lab::find::compare;
use seawall_lab::find::find_report::{
    ConnectionPolicy, FindOutcome as End, FindStopReason, ReportedArrivals,
};
use seawall_lab::find::progress::NoopWatcher;
use seawall_lab::isolate::isolate_report::{
    IsolateOutcome, IsolateReport, ReportedStopReason, VariantVerdict,
};
use seawall_lab::isolate::local_runner::LocalVariantRunner;
use seawall_lab::isolate::variant_capacity::{CapacityPlan, CapacitySearches, VariantCapacity};
use seawall_lab::isolate::variant_setup::{VariantLabel, VariantRequests};
use seawall_lab::isolate::{IsolatePlan, isolate};
use seawall_lab::rig::LocalDriver;
use seawall_load::clock::{RunClock, SECOND};
use seawall_load::plan::TransportOptions;
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::target::Target;
use seawall_load::variant::Variant;
use seawall_search::goal::SearchGoal;
use seawall_search::search_profile::Profile;
use seawall_search::target::SearchTarget as _;
use seawall_testkit::closure_server::{Peer, Server};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const REFUSED: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";

/// Answers after 20 ms, on the path /slow after half as much again, and on /hung never.
#[expect(clippy::disallowed_methods, reason = "the time that the planted server takes")]
fn planted() -> Server {
    let play = |mut peer: Peer, _| -> io::Result<()> {
        loop {
            let head = peer.read_request_head()?;
            if head.starts_with("GET /hung") {
                peer.wait_for_close()?;
                return Ok(());
            }
            let takes = if head.starts_with("GET /slow") { 30 } else { 20 };
            std::thread::sleep(Duration::from_millis(takes));
            peer.send(OK)?;
        }
    };
    Server::start(play).unwrap()
}

/// A way to a path, by connections of its own.
fn way(server: &Server, name: &str, path: &str) -> (VariantLabel, VariantRequests) {
    let variant = Variant {
        name: name.to_owned(),
        address: None,
        server_name: None,
        protocol: None,
        keep_alive: None,
        insecure: false,
        proxies: None,
    };
    let url = server.url_of_path(path);
    let target = Target { method: "GET".into(), url, variant: Some(Arc::new(variant)), ..Target::default() };
    let requests = vec![PreparedRequest::new(&target, &RequestFraming::default()).unwrap()];
    (
        VariantLabel { name: name.to_owned(), description: path.to_owned() },
        VariantRequests { requests, separate_transport: None },
    )
}

/// Answers at once; on the path /limited no more often than so many times a second, and without room for bursts.
fn limited(rate: f64) -> Server {
    let clock = RunClock::start();
    let bucket = Mutex::new((rate / 20.0, 0));
    let has_token = move || {
        let mut bucket = bucket.lock().unwrap();
        let now = clock.now();
        let gained = (now - bucket.1) as f64 / SECOND as f64 * rate;
        *bucket = ((bucket.0 + gained).min(rate / 20.0), now);
        let has = bucket.0 >= 1.0;
        bucket.0 -= f64::from(u8::from(has));
        has
    };
    let play = move |mut peer: Peer, _| -> io::Result<()> {
        loop {
            let is_limited = peer.read_request_head()?.starts_with("GET /limited");
            peer.send(if is_limited && !has_token() { REFUSED } else { OK })?;
        }
    };
    Server::start(play).unwrap()
}

/// Short cells: what is planted is ten times what they need.
fn plan(designs: &[VariantOrder], names: Vec<VariantLabel>) -> IsolatePlan {
    let milliseconds = Duration::from_millis;
    let times = SegmentTimes {
        segment_duration: milliseconds(1500),
        cell: milliseconds(300),
        block: milliseconds(150),
        settle: milliseconds(50),
        idle_before_settle: Duration::ZERO,
    };
    let asked = StudyConfig {
        designs: designs.to_vec(),
        rate: 200.0,
        margin: 0.2,
        until_p99: false,
        budget: Duration::from_secs(30),
        times,
        seed: 1,
    };
    IsolatePlan { config: asked, variants: names, target: "http://test/".to_owned() }
}

fn carried_out(designs: &[VariantOrder], ways: Vec<(VariantLabel, VariantRequests)>) -> IsolateReport {
    let (names, mut ways): (Vec<_>, Vec<_>) = ways.into_iter().unzip();
    for (way, design) in ways[1..].iter_mut().zip(designs) {
        way.separate_transport =
            (*design == VariantOrder::OneVariantPerBlock).then(TransportOptions::default);
    }
    let mut bench =
        LocalVariantRunner::new(ways, TransportOptions::default(), RequestFraming::default(), 1).unwrap();
    isolate(&mut bench, &plan(designs, names), &mut |_, _| ())
}

/// What is said of a way: never what is wrong; that the machine was the limit only where it says so.
fn is_said(answer: &IsolateReport, at: usize, word: VariantVerdict) -> bool {
    let said = answer.variants[at].verdict;
    assert!(
        matches!(said, VariantVerdict::Invalid | VariantVerdict::Undecided) || said == word,
        "{answer:?}"
    );
    said == word
}

#[test]
fn the_way_that_is_slower_is_blamed_and_the_other_is_not_whether_interleaved_or_in_blocks() {
    for design in [VariantOrder::Interleaved, VariantOrder::OneVariantPerBlock] {
        let server = planted();
        let ways =
            vec![way(&server, "here", "/"), way(&server, "same", "/same"), way(&server, "slow", "/slow")];
        let answer = carried_out(&[design, design], ways);
        let said = [is_said(&answer, 0, VariantVerdict::Equal), is_said(&answer, 1, VariantVerdict::Slower)];
        if said == [true, true] {
            assert_eq!(answer.outcome, IsolateOutcome::Decided);
            let gain = answer.variants[1].time_saved_ratio.unwrap();
            assert!((-0.8..-0.2).contains(&gain.estimate), "half as much again: {gain:?}");
            assert!(answer.duration_seconds < 30.0);
        }
        assert!(answer.reference.responses > 0 && answer.time_buckets.len() >= 30, "{answer:?}");
    }
}

#[test]
fn what_was_measured_before_it_was_stopped_is_told() {
    let server = planted();
    let (names, ways) = [way(&server, "here", "/"), way(&server, "same", "/same")].into_iter().unzip();
    let mut bench =
        LocalVariantRunner::new(ways, TransportOptions::default(), RequestFraming::default(), 1).unwrap();
    let stop = bench.stop_switch();
    let answer = isolate(&mut bench, &plan(&[VariantOrder::Interleaved], names), &mut |_, _| stop.stop());
    assert_eq!(
        (answer.outcome, answer.stop_reason, answer.stop_detail.as_deref()),
        (IsolateOutcome::Interrupted, Some(ReportedStopReason::Signal), Some("stopped on request"))
    );
    assert!(!answer.time_buckets.is_empty(), "the first segment");
    assert!(answer.duration_seconds < 20.0 && answer.reference.responses > 0, "{answer:?}");
}

/// One connection has as much to carry as all of the reference's have, or it is not they that are compared.
#[test]
fn in_blocks_each_way_has_the_whole_rate_in_its_turn() {
    let server = planted();
    let ways = vec![way(&server, "here", "/"), way(&server, "one connection", "/same")];
    let (names, mut ways): (Vec<_>, Vec<_>) = ways.into_iter().unzip();
    ways[1].separate_transport = Some(TransportOptions {
        max_connections: 16,
        max_idle_connections: 16,
        ..TransportOptions::default()
    });
    let mut bench =
        LocalVariantRunner::new(ways, TransportOptions::default(), RequestFraming::default(), 1).unwrap();
    let stop = bench.stop_switch();
    let answer =
        isolate(&mut bench, &plan(&[VariantOrder::OneVariantPerBlock], names), &mut |_, _| stop.stop());
    let of = |way| answer.time_buckets.iter().filter(move |row| row.variant == way).map(|row| row.requests);
    assert!(of(0).eq(of(1)) && of(0).all(|requests| requests == 30), "200/s for 150 ms: {answer:?}");
    assert!(of(0).count() >= 1, "{answer:?}");
}

#[test]
fn a_way_that_leaves_requests_unanswered_ends_the_experiment_and_is_named() {
    let server = planted();
    let ways = vec![way(&server, "here", "/"), way(&server, "hung", "/hung")];
    let (names, ways): (Vec<_>, Vec<_>) = ways.into_iter().unzip();
    let mut bench =
        LocalVariantRunner::new(ways, TransportOptions::default(), RequestFraming::default(), 1).unwrap();
    let mut plan = plan(&[VariantOrder::Interleaved], names);
    plan.config.times.segment_duration = Duration::from_secs(18);
    let answer = isolate(&mut bench, &plan, &mut |_, _| ());
    assert_eq!(
        (answer.outcome, answer.stop_reason),
        (IsolateOutcome::Overloaded, Some(ReportedStopReason::Overloaded)),
        "{answer:?}"
    );
    let hung = answer.overloaded_variant().unwrap();
    assert_eq!((hung.stats.name.as_str(), hung.stats.responses), ("hung", 0));
    assert!(
        hung.verdict.is_difference() || hung.time_saved_ratio.is_none(),
        "no time of answers that there are none of: {hung:?}"
    );
    assert!(hung.stats.all_failed() && hung.stats.failures.is_empty());
    let (cut, all) = (answer.stop_detail.as_ref().unwrap(), hung.stats.requests);
    assert!(
        cut.starts_with(&format!(
            "\"hung\" gave no response to {all} of {all} requests; \"here\" gave no response to "
        )),
        "{cut}"
    );
}

/// Short enough for a test; brackets are as wide as that makes them.
const SHORT: Profile = Profile {
    name: "short",
    cliff_stop_bracket_width: 0.2,
    cliff_budget: Duration::from_secs(12),
    max_trial_duration: Duration::from_secs(2),
    confirm_duration: Duration::from_secs(1),
    recovery_duration: Duration::from_secs(2),
    ..Profile::QUICK
};

/// The search of a way that may be offered so much.
fn search(ways: usize, most: f64) -> CapacityPlan {
    let connections = ConnectionPolicy {
        keep_alive: true,
        max_connections: None,
        requests_per_connection: None,
        protocol: "http/1.1".to_owned(),
    };
    let plan = find::plan::FindPlan {
        goal: SearchGoal::ERRORS_ONLY,
        profile: SHORT,
        max_rate: Some(most),
        budget: None,
        looks_for_cause: false,
        target_info: find::plan::TargetInfo {
            url: "http://test/".to_owned(),
            count: 1,
            uses_tls: false,
            has_host_name: false,
        },
        arrivals: ReportedArrivals::Constant,
        connections,
        timeout: None,
        fingerprint: None,
    };
    CapacityPlan { plans: vec![plan; ways], whole_run_budget: Duration::from_secs(60), searches_all: true }
}

#[test]
fn the_way_with_a_limiter_breaks_below_the_other_and_is_worse() {
    let server = limited(100.0);
    let (names, ways) = [way(&server, "here", "/"), way(&server, "limited", "/limited")].into_iter().unzip();
    let mut bench =
        LocalVariantRunner::new(ways, TransportOptions::default(), RequestFraming::default(), 1).unwrap();
    let mut plan = plan(&[VariantOrder::Interleaved], names);
    plan.config.budget = Duration::from_secs(5);
    let answer = isolate(&mut bench, &plan, &mut |_, _| ());
    let mut limits = CapacitySearches::new(&search(2, 800.0), &answer);
    while let Some(next) = limits.next_search() {
        let mut rig = bench.create_variant_search_driver(next.variant_index, None).unwrap();
        rig.rest(next.pause);
        let run = find::find(&mut rig, &next.plan, None, &mut NoopWatcher).unwrap();
        limits.record_finished_search(next, run);
    }
    let found = limits.finish();
    let [here, limited] = &found.variants[..] else { panic!("{answer:?} {found:?}") };
    assert_eq!((here.name.as_str(), limited.name.as_str()), ("here", "limited"));
    let offered =
        |limit: &VariantCapacity| limit.find.trials.iter().map(|trial| trial.rate).fold(0.0, f64::max);
    // A machine that was busy all the time says so, and blames nobody.
    let doubted = |limit: &VariantCapacity| {
        limit.find.outcome == End::GeneratorLimited
            || limit.find.stop_reason == Some(FindStopReason::Budget)
            || limit.find.trials.iter().any(|trial| trial.invalid_reason.is_some())
    };
    if !doubted(here) && !doubted(limited) {
        let cliff = limited.find.breaking_rate;
        let breaks = cliff.upper.or(cliff.lowest_bad_rate).unwrap();
        assert!(breaks < 200.0 && cliff.highest_good_rate.is_none_or(|good| good < 115.0), "{cliff:?}");
        let held = compare::highest_held_rate(&here.find).or(here.find.breaking_rate.highest_good_rate);
        assert!(
            held.is_some_and(|held| held > breaks),
            "{:?} {:?}",
            here.find.outcome,
            here.find.breaking_rate
        );
        assert!(found.has_lower_capacity(), "{:?}", limited.vs_reference);
    }
    assert!(offered(here) <= 800.0 && offered(limited) <= 800.0, "--max-rate");
}

#[test]
fn a_bench_that_was_stopped_ends_its_rigs_before_they_send() {
    let server = limited(100.0);
    let (names, ways): (Vec<_>, Vec<_>) = [way(&server, "here", "/")].into_iter().unzip();
    let bench =
        LocalVariantRunner::new(ways, TransportOptions::default(), RequestFraming::default(), 1).unwrap();
    bench.stop_switch().stop();
    let plan = search(1, 100.0).plans.remove(0);
    let run =
        find::find(&mut bench.create_variant_search_driver(0, None).unwrap(), &plan, None, &mut NoopWatcher)
            .unwrap();
    assert_eq!(
        (run.stop_reason, run.trials.len(), server.connection_count()),
        (Some(FindStopReason::Signal), 0, 0),
        "{names:?}"
    );
    assert!(bench.create_variant_search_driver(1, None).is_err(), "there is no such way");
}

#[test]
fn a_way_is_searched_with_its_own_requests_and_travel_and_all_the_room_that_one_alone_has() {
    let server = limited(100.0);
    let (_, mut ways): (Vec<_>, Vec<VariantRequests>) =
        (0..40).map(|at| way(&server, &format!("way {at}"), "/")).collect::<Vec<_>>().into_iter().unzip();
    ways[1].separate_transport = Some(TransportOptions {
        max_connections: 3,
        source_addresses: vec![[127, 0, 0, 2].into()],
        ..TransportOptions::default()
    });
    let bench =
        LocalVariantRunner::new(ways.clone(), TransportOptions::default(), RequestFraming::default(), 1)
            .unwrap();
    let alone = LocalVariantRunner::new(
        ways[..1].to_vec(),
        TransportOptions::default(),
        RequestFraming::default(),
        1,
    )
    .unwrap();
    let rig = |bench: &LocalVariantRunner, at: usize| bench.create_variant_search_driver(at, None).unwrap();
    let connections = |rig: &LocalDriver| rig.session_config().transport.max_connections;
    assert_eq!(connections(&rig(&bench, 0)), connections(&rig(&alone, 0)), "not a fortieth of it");
    let one = rig(&bench, 1);
    let name = one.session_config().request_list.requests()[0]
        .origin()
        .variant
        .as_ref()
        .map(|variant| variant.name.clone());
    assert_eq!((name.as_deref(), connections(&one)), (Some("way 1"), 3));
    assert_eq!(one.session_config().transport.source_addresses.len(), 1);
}
