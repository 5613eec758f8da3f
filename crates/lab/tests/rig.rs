//! Searches and experiments on real servers on loopback. What is asserted holds however slow the machine is: where it was the limit
//! the rig says so.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use seawall_cause::experiment::{self, Experiment, Variation};
use seawall_cause::experiment_target::ExperimentTarget;
use seawall_cause::observed_requests::{ExperimentObservation, ObservedOutcome};
use seawall_lab::rig::{LocalDriver, SessionConfig};
use seawall_lab::target_driver::TargetDriver;
use seawall_load::clock::{RunClock, SECOND};
use seawall_load::expectation::ExpectationSet;
use seawall_load::plan::TransportOptions;
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::request_source::RequestList;
use seawall_load::schedule::ArrivalSpacing;
use seawall_load::target::{Target as Asked, Weight};
use seawall_load::tls::TlsOptions;
use seawall_search::goal::SearchGoal;
use seawall_search::observation::sum;
use seawall_search::report::SearchOutcome;
use seawall_search::search::{RateBounds, RateSearch};
use seawall_search::search_profile::Profile;
use seawall_search::target::{SearchTarget, search};
use seawall_search::trial_spec::{StopRule, TrialPurpose, TrialSpec};
use seawall_search::trial_verdict::TrialCriteria;
use seawall_testkit::closure_server::{Peer, Server};
use seawall_testkit::tls::self_signed_server_config;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const WRONG: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"error\":\"busy\"}";
const REFUSED: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";

fn kit(method: &str, url: &str) -> SessionConfig {
    expecting(method, url, &[])
}

fn expecting(method: &str, url: &str, conditions: &[&str]) -> SessionConfig {
    let expect = ExpectationSet::new(conditions.iter().map(|text| text.parse().unwrap()).collect());
    let asked = Asked { method: method.into(), url: url.into(), expect, ..Asked::default() };
    let request = PreparedRequest::new(&asked, &RequestFraming::default()).unwrap();
    let list = RequestList::new(vec![(request, Weight::default())]).unwrap();
    let travel = TransportOptions { timeout: Some(Duration::from_secs(5)), ..TransportOptions::default() };
    SessionConfig {
        request_list: list,
        transport: travel,
        request_framing: RequestFraming::default(),
        max_sender_threads: 1,
        max_busy_poll: Some(Duration::ZERO),
    }
}

fn rig(server: &Server) -> LocalDriver {
    LocalDriver::new(kit("GET", &server.url_of_path("/")), ArrivalSpacing::Constant, None).unwrap()
}

/// One that ends at its end, or when it does damage.
fn offer(rate: f64, most: Duration) -> TrialSpec {
    let standard = TrialCriteria {
        goal: SearchGoal::ERRORS_ONLY,
        growth_tolerance: 0.03,
        settle: 0.3,
        min_settled_seconds_for_good: 1.0,
        service_time: 0.0,
        baseline_slowest: 0.0,
    };
    let drain = Duration::from_millis(200);
    let rule = StopRule::FullDurationUnlessBad(standard);
    TrialSpec {
        purpose: TrialPurpose::NarrowBracket,
        rate,
        min_duration: most,
        max_duration: most,
        rule,
        in_flight_cap: 50.0,
        drain,
    }
}

fn experiment(load: experiment::ExperimentLoad, variation: Variation) -> Experiment {
    Experiment { name: "test", load, variation, in_flight_cap: 500, drain: Duration::from_millis(500) }
}

/// So many requests, ten clients at a time.
fn clients(requests: u64) -> experiment::ExperimentLoad {
    experiment::ExperimentLoad::Clients { clients: 10, lasts: Duration::from_secs(20), requests }
}

fn how(watched: &ExperimentObservation, how: ObservedOutcome) -> usize {
    watched.requests.iter().filter(|hit| hit.outcome == how).count()
}

/// A server whose every request is handled by this, which says what is answered.
fn answering(handle: impl Fn(&str, IpAddr) -> &'static [u8] + Send + Sync + 'static) -> Server {
    let play = move |mut peer: Peer, _| -> io::Result<()> {
        let from = peer.address()?.ip();
        loop {
            let head = peer.read_request_head()?;
            peer.send(handle(&head, from))?;
        }
    };
    Server::start(play).unwrap()
}

/// A bucket that fills at so many tokens a second, holds a twentieth of that, and refuses without one.
fn limited(rate: f64) -> Server {
    limited_with(rate, REFUSED)
}

fn limited_with(rate: f64, refusal: &'static [u8]) -> Server {
    let clock = RunClock::start();
    let bucket = Mutex::new((rate / 20.0, 0));
    answering(move |_, _| {
        let mut bucket = bucket.lock().unwrap();
        let now = clock.now();
        let gained = (now - bucket.1) as f64 / SECOND as f64 * rate;
        *bucket = ((bucket.0 + gained).min(rate / 20.0), now);
        if bucket.0 < 1.0 {
            return refusal;
        }
        bucket.0 -= 1.0;
        OK
    })
}

/// Workers that take 10 ms for each request; who finds none free waits.
#[expect(clippy::disallowed_methods, reason = "the time that the planted server takes")]
fn pooled(workers: usize) -> Server {
    let free = (Mutex::new(workers), Condvar::new());
    answering(move |_, _| {
        let mut idle = free.1.wait_while(free.0.lock().unwrap(), |idle| *idle == 0).unwrap();
        *idle -= 1;
        drop(idle);
        std::thread::sleep(Duration::from_millis(10));
        *free.0.lock().unwrap() += 1;
        free.1.notify_one();
        OK
    })
}

#[test]
fn an_offer_has_its_blocks_and_what_was_sent_in_them_is_the_rate() {
    let server = Server::start_answering(OK).unwrap();
    let mut rig = rig(&server);
    for rate in [220.000_000_000_000_03, 30.0] {
        let seen = rig.carry_out(&offer(rate, Duration::from_secs(1)));
        let (blocks, sent) = (&seen.blocks, sum(&seen.blocks, |block| block.sent));
        assert!(seen.invalid_reason.is_some() || (blocks.len(), sent) == (15, rate.round()), "{seen:?}");
        let known = sum(blocks, |block| block.ended_count()) + f64::from(blocks.last().unwrap().in_flight);
        assert_eq!(known, sent, "all of it ended or is in flight");
        assert_eq!(sum(blocks, |block| block.errors), 0.0);
        assert!(!seen.interrupted && seen.took >= Duration::from_secs(1));
    }
    assert!(server.connection_count() < 250, "the second offer found the connections of the first");
}

/// Every trial began with the first target: of 10,000 targets 6,799 were never requested, and a cache hid the limit.
#[test]
fn a_trial_goes_on_in_the_list_of_targets_where_the_one_before_it_ended() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let server = answering(move |head, _| {
        log.lock().unwrap().push(head.split(' ').nth(1).unwrap_or_default().to_owned());
        OK
    });
    let target = |number: usize| {
        let url = server.url_of_path(&format!("/{number}"));
        let asked = Asked { method: "GET".into(), url, ..Asked::default() };
        (PreparedRequest::new(&asked, &RequestFraming::default()).unwrap(), Weight::default())
    };
    let list = RequestList::new((0..1_000).map(target).collect()).unwrap();
    let kit = SessionConfig { request_list: list, ..kit("GET", &server.url_of_path("/")) };
    let mut rig = LocalDriver::new(kit, ArrivalSpacing::Constant, None).unwrap();
    for _ in 0..2 {
        rig.carry_out(&offer(100.0, Duration::from_millis(500)));
    }
    rig.run_experiment(&experiment(clients(100), Variation::NONE));
    let seen = seen.lock().unwrap();
    let distinct: BTreeSet<_> = seen.iter().collect();
    assert!(seen.len() > 150 && distinct.len() == seen.len(), "{} of {}", distinct.len(), seen.len());
}

#[test]
fn damage_ends_an_offer_and_what_is_outstanding_is_closed_without_being_an_error() {
    let closed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&closed);
    let server = Server::start(move |mut peer, _| {
        peer.read_request_head()?;
        let ended = peer.wait_for_close();
        count.fetch_add(1, Ordering::SeqCst);
        ended
    });
    let server = server.unwrap();
    let mut rig = rig(&server);
    let seen = rig.carry_out(&offer(200.0, Duration::from_secs(8)));
    assert_eq!((sum(&seen.blocks, |block| block.errors), sum(&seen.blocks, |block| block.good)), (0.0, 0.0));
    assert!(seen.blocks.len() < 8 * 15, "it hung from the first request on");
    assert!(seen.blocks.last().unwrap().in_flight > 50);
    let clock = RunClock::start();
    while closed.load(Ordering::SeqCst) < server.connection_count() && clock.now() < 20 * SECOND {
        std::thread::yield_now();
    }
    assert_eq!(closed.load(Ordering::SeqCst), server.connection_count(), "while the rig lives on");
}

/// Short enough for a test; brackets are as wide as that makes them.
const SHORT: Profile = Profile {
    name: "short",
    cliff_stop_bracket_width: 0.2,
    cliff_budget: Duration::from_secs(10),
    max_trial_duration: Duration::from_secs(2),
    confirm_duration: Duration::from_secs(1),
    recovery_duration: Duration::from_secs(2),
    ..Profile::QUICK
};

/// Whether the bracket, or else the tested rates, hold the limit; or the machine was the limit, and that was said.
fn holds(profile: Profile, server: &Server, limit: f64) -> Result<(), String> {
    holds_by(&mut rig(server), profile, limit)
}

fn holds_by(rig: &mut LocalDriver, profile: Profile, limit: f64) -> Result<(), String> {
    let bounds = RateBounds { first_rate: 40.0, max_rate: Some(2000.0), generator_max_rate: None };
    let mut searching = RateSearch::new(SearchGoal::ERRORS_ONLY, profile, bounds);
    search(&mut searching, rig);
    let report = searching.report();
    let doubted = report.trials.iter().filter(|trial| trial.seen.invalid_reason.is_some()).count();
    let cliff = report.cliff;
    let within =
        |bracket: seawall_search::limit_posterior::Bracket| bracket.lower <= limit && limit <= bracket.upper;
    let tested = || {
        cliff.highest_good.unwrap_or(0.0) <= 1.05 * limit
            && cliff.lowest_bad.is_none_or(|bad| bad >= 0.95 * limit)
    };
    let right = cliff.bracket.map_or_else(tested, within);
    let trials = report.trials.iter();
    let told: Vec<_> = trials.map(|trial| (trial.spec.purpose, trial.spec.rate, trial.verdict)).collect();
    let excused = doubted > 0 || report.outcome == Some(SearchOutcome::GeneratorLimited);
    let text = format!("{:?} {cliff:?} {doubted} invalid {told:?}", report.outcome);
    if right || excused { Ok(()) } else { Err(text) }
}

#[test]
fn the_rate_of_a_limiter_is_found() {
    assert_eq!(holds(SHORT, &limited(300.0), 300.0), Ok(()));
}

/// A server that gives up with status 200 bore any rate.
#[test]
fn the_rate_at_which_wrong_answers_begin_is_found() {
    let server = limited_with(300.0, WRONG);
    let kit = expecting("GET", &server.url_of_path("/"), &["body!~error"]);
    let mut rig = LocalDriver::new(kit, ArrivalSpacing::Constant, None).unwrap();
    let seen = rig.carry_out(&offer(450.0, Duration::from_secs(1)));
    assert!(seen.invalid_reason.is_some() || sum(&seen.blocks, |block| block.errors) > 0.0, "{seen:?}");
    assert_eq!(holds_by(&mut rig, SHORT, 300.0), Ok(()));
}

#[test]
#[ignore = "takes a minute and more"]
fn a_quick_search_finds_a_limiter_and_a_pool() {
    assert_eq!(holds(Profile::QUICK, &limited(300.0), 300.0), Ok(()));
    // Ten milliseconds of sleep are some more.
    assert_eq!(holds(Profile::QUICK, &pooled(4), 390.0), Ok(()));
}

#[test]
fn an_observer_is_told_of_every_block_while_the_offer_goes_on() {
    let server = pooled(8);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let observer = move |_: &TrialSpec, blocks: &[_]| tell.lock().unwrap().push(blocks.len());
    let seen =
        rig(&server).with_block_observer(Box::new(observer)).carry_out(&offer(50.0, Duration::from_secs(1)));
    let told = told.lock().unwrap();
    assert!(told.is_sorted() && told.last() == Some(&seen.blocks.len()), "{told:?}");
}

/// A server that never answers, and the requests that it has got.
fn silent() -> (Server, Arc<AtomicUsize>) {
    let got = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&got);
    let server = Server::start(move |mut peer, _| {
        peer.read_request_head()?;
        count.fetch_add(1, Ordering::SeqCst);
        peer.wait_for_close()
    });
    (server.unwrap(), got)
}

#[test]
fn who_stops_it_ends_the_load_and_nothing_is_sent_after_that() {
    let (server, got) = silent();
    let mut rig = rig(&server);
    let (stop, seen_by) = (rig.stop_switch(), Arc::clone(&got));
    let stopper = std::thread::spawn(move || {
        while seen_by.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        stop.stop();
    });
    let endless = TrialSpec { in_flight_cap: 1e9, ..offer(20.0, Duration::from_secs(3600)) };
    assert!(rig.carry_out(&endless).interrupted);
    stopper.join().unwrap();
    let connections = server.connection_count();
    assert!(rig.carry_out(&endless).interrupted && !rig.rest(Duration::from_secs(3600)));
    let bursts = experiment::ExperimentLoad::Bursts {
        size: 5,
        times: 1,
        every: Duration::from_secs(1),
        quiet: Duration::from_secs(3600),
    };
    assert!(
        rig.run_experiment(&experiment(bursts, Variation::NONE)).interrupted
            && !rig.pause(Duration::from_secs(3600))
    );
    assert!(rig.calibrate().interrupted);
    assert_eq!(server.connection_count(), connections);
}

#[test]
fn connections_are_held_beside_a_load_and_those_that_stand_are_counted() {
    let server = Server::start_answering(OK).unwrap();
    let mut rig = rig(&server);
    let watched = rig
        .run_experiment(&experiment(clients(50), Variation { held_idle_connections: 20, ..Variation::NONE }));
    assert_eq!(
        (watched.held_connections_still_open, how(&watched, ObservedOutcome::Good)),
        (20, 50),
        "{:?}",
        watched.invalid_reason
    );
    assert!(server.connection_count() > 20);
    // One that lets nobody in.
    let server = Server::start(|_, _| Ok(())).unwrap();
    let load = experiment::ExperimentLoad::Rate {
        rate: 20.0,
        lasts: Duration::from_millis(500),
        spacing: experiment::RequestSpacing::Constant,
    };
    let watched = self::rig(&server)
        .run_experiment(&experiment(load, Variation { held_idle_connections: 20, ..Variation::NONE }));
    assert!(
        watched.held_connections_still_open < 20 && how(&watched, ObservedOutcome::Good) == 0,
        "some were closed before the load was over"
    );
}

#[test]
fn each_variation_is_what_the_server_sees() {
    let seen = Arc::new(Mutex::new((BTreeSet::new(), BTreeSet::new())));
    let see = Arc::clone(&seen);
    let server = answering(move |head, from| {
        let mut seen = see.lock().unwrap();
        seen.0.insert(head.split(' ').next().unwrap_or_default().to_owned());
        seen.1.insert(from);
        if head.starts_with("HEAD") { b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" } else { OK }
    });
    let mut rig = rig(&server);
    let mut watch = |variation| rig.run_experiment(&experiment(clients(30), variation));
    let plain = watch(Variation::NONE);
    assert!(how(&plain, ObservedOutcome::Good) == 30 && plain.opened_connection_count <= 10, "{plain:?}");
    assert!(
        plain
            .requests
            .iter()
            .all(|hit| hit.bytes == 2 && hit.carrying_connection.is_some_and(|by| by.number > 0))
    );
    let anew = watch(Variation { keep_alive: Some(false), ..Variation::NONE });
    assert_eq!((how(&anew, ObservedOutcome::Good), anew.opened_connection_count), (30, 30));
    assert!(
        anew.requests
            .iter()
            .all(|hit| hit.carrying_connection.is_some_and(|by| by.earlier_requests_on_connection == 0))
    );
    let one = watch(Variation { max_connections: Some(1), ..Variation::NONE });
    assert_eq!((how(&one, ObservedOutcome::Good), one.opened_connection_count), (30, 1));
    assert_eq!(
        how(&watch(Variation { uses_head_method: true, ..Variation::NONE }), ObservedOutcome::Good),
        30
    );
    assert_eq!(
        how(&watch(Variation { uses_another_source: true, ..Variation::NONE }), ObservedOutcome::Good),
        30
    );
    let (methods, sources) = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(methods, BTreeSet::from(["GET".to_owned(), "HEAD".to_owned()]));
    assert_eq!(sources, BTreeSet::from([1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)))));
}

#[test]
fn over_tls_hits_know_their_handshake_and_the_source_may_be_another() {
    let (config, _) = self_signed_server_config("localhost").unwrap();
    let server = Server::start_tls(config, |mut peer, _| {
        loop {
            peer.read_request_head()?;
            peer.send(OK)?;
        }
    });
    let mut kit = kit("GET", &format!("https://{}/", server.as_ref().unwrap().address()));
    kit.transport.tls =
        Some(TlsOptions { insecure: true, http2: false, ..TlsOptions::default() }.config().unwrap());
    assert!(kit.uses_tls() && !kit.has_host_name());
    let mut rig = LocalDriver::new(kit, ArrivalSpacing::Constant, None).unwrap();
    for another_source in [false, true] {
        let variation =
            Variation { uses_another_source: another_source, keep_alive: Some(false), ..Variation::NONE };
        let watched = rig.run_experiment(&experiment(clients(20), variation));
        assert_eq!(
            (how(&watched, ObservedOutcome::Good), watched.opened_connection_count),
            (20, 20),
            "{watched:?}"
        );
        let shaken = watched
            .requests
            .iter()
            .filter(|hit| hit.carrying_connection.is_some_and(|by| by.tls_handshake_seconds.is_some()));
        assert_eq!(shaken.count(), 20);
    }
}

#[test]
fn what_cannot_be_tried_is_said_in_words() {
    let server = Server::start_answering(OK).unwrap();
    let literal = Variation { skip_dns: true, ..Variation::NONE };
    let watched = rig(&server).run_experiment(&experiment(clients(3), literal.clone()));
    assert!(watched.impossible_reason.unwrap().contains("not a name") && watched.requests.is_empty());
    let mut posting =
        LocalDriver::new(kit("POST", &server.url_of_path("/")), ArrivalSpacing::Constant, None).unwrap();
    let head = Variation { uses_head_method: true, ..Variation::NONE };
    assert!(posting.run_experiment(&experiment(clients(3), head)).impossible_reason.unwrap().contains("GET"));
    let named = kit("GET", &format!("http://localhost:{}/", server.address().port()));
    assert!(named.has_host_name() && !named.uses_tls());
    let watched = LocalDriver::new(named, ArrivalSpacing::Constant, None)
        .unwrap()
        .run_experiment(&experiment(clients(3), literal));
    assert_eq!(
        (watched.impossible_reason.as_deref(), how(&watched, ObservedOutcome::Good)),
        (None, 3),
        "{watched:?}"
    );
}

#[test]
fn what_ends_without_an_answer_says_why() {
    let (server, _) = silent();
    let mut rig = rig(&server);
    let bursts = |size| experiment::ExperimentLoad::Bursts {
        size,
        times: 1,
        every: Duration::from_secs(1),
        quiet: Duration::ZERO,
    };
    let outstanding = rig.run_experiment(&experiment(bursts(5), Variation::NONE));
    assert_eq!((how(&outstanding, ObservedOutcome::UnansweredAtEnd), outstanding.requests.len()), (5, 5));
    let impatient = Variation { timeout: Some(Duration::from_millis(50)), ..Variation::NONE };
    let timed_out = Experiment { drain: Duration::from_secs(20), ..experiment(bursts(5), impatient) };
    let timed_out = rig.run_experiment(&timed_out);
    assert_eq!(
        how(&timed_out, ObservedOutcome::TimedOut) + how(&timed_out, ObservedOutcome::ConnectTimedOut),
        5,
        "{timed_out:?}"
    );
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let mut rig =
        LocalDriver::new(kit("GET", &format!("http://{nobody}/")), ArrivalSpacing::Constant, None).unwrap();
    let refused = rig.run_experiment(&experiment(bursts(5), Variation::NONE));
    assert_eq!((how(&refused, ObservedOutcome::ConnectionRefused), refused.opened_connection_count), (5, 0));
    assert!(refused.requests.iter().all(|hit| hit.sent.is_none() && hit.carrying_connection.is_none()));
}

#[test]
fn an_experiment_ends_early_once_too_many_are_unanswered() {
    let (server, _) = silent();
    let load = experiment::ExperimentLoad::Rate {
        rate: 100.0,
        lasts: Duration::from_secs(3600),
        spacing: experiment::RequestSpacing::Poisson,
    };
    let watched =
        rig(&server).run_experiment(&Experiment { in_flight_cap: 20, ..experiment(load, Variation::NONE) });
    assert_eq!(how(&watched, ObservedOutcome::UnansweredAtEnd), watched.requests.len());
    // What a busy machine sent late is left out of more than 20; where that is most of them, nothing of it is believed.
    assert!(watched.requests.len() > 10 || watched.invalid_reason.is_some(), "{watched:?}");
}

#[test]
fn bursts_come_together_after_a_silence() {
    let server = Server::start_answering(OK).unwrap();
    let (size, quiet, every) = (20, Duration::from_millis(200), Duration::from_millis(300));
    let bursts = experiment::ExperimentLoad::Bursts { size, times: 2, every, quiet };
    let watched = rig(&server).run_experiment(&experiment(bursts, Variation::NONE));
    let due: Vec<_> = watched.requests.iter().map(|hit| (hit.due * 1e3).round()).collect();
    assert_eq!(due, [[0.0; 20], [300.0; 20]].concat());
    assert!(watched.took >= quiet + every && how(&watched, ObservedOutcome::Good) == 40);
}

#[test]
fn a_generator_is_tried_out_without_troubling_the_target() {
    let asked = Arc::new(AtomicBool::new(false));
    let ask = Arc::clone(&asked);
    let server = answering(move |_, _| {
        ask.store(true, Ordering::SeqCst);
        OK
    });
    let calibration = rig(&server).calibrate();
    assert!(calibration.max_rate.is_some_and(|most| most > 0.0), "{calibration:?}");
    assert!(calibration.explanation.contains("loopback") && !calibration.interrupted);
    assert!(!asked.load(Ordering::SeqCst) && server.connection_count() == 0);
}
