//! Trials one after the other on the connections of one session.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::Cursor;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use seawall_load::clock::{Nanos, RunClock, SECOND};
use seawall_load::completed_request::CompletedRequest;
use seawall_load::control::Control;
use seawall_load::engine::{LoadSession, LoadSpec, LoadTrial, RunOutcome, RunPlan, TrialStartError};
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::request_failure_reason::RequestFault;
use seawall_load::request_source::{RequestList, RequestReader, RequestSource};
use seawall_load::schedule::{
    self, ArrivalModel, ArrivalSpacing, NextArrival, Schedule, ScheduleShard, StopCondition,
};
use seawall_load::stats_collector::NextIntervalResult;
use seawall_load::target::{self, Target, TargetDefaults, TargetReader, Weight};
use seawall_load::tls::TlsOptions;
use seawall_testkit::closure_server::Server;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn list(urls: &[String]) -> RequestSource {
    let request = |url: &String| {
        let target = Target { method: "GET".into(), url: url.clone(), ..Target::default() };
        (PreparedRequest::new(&target, &RequestFraming::default()).unwrap(), Weight::default())
    };
    RequestSource::List(RequestList::new(urls.iter().map(request).collect()).unwrap())
}

/// Of two threads.
fn open(source: RequestSource) -> LoadSession {
    let mut plan = RunPlan::new(source, ArrivalModel::Closed);
    plan.session.max_threads = 2;
    LoadSession::open(plan.split().0).unwrap()
}

/// So many hits by so many clients.
fn closed(hits: u64, clients: usize) -> LoadSpec {
    LoadSpec {
        stop_condition: StopCondition { max_requests: hits, ..StopCondition::default() },
        ..LoadSpec::new(ArrivalModel::Closed, clients)
    }
}

/// So many hits, of which nothing that takes long is the generator's fault.
fn paced(hits: u64, rate: &str) -> LoadSpec {
    let schedule = Schedule::constant(rate.parse().unwrap(), ArrivalSpacing::Constant);
    let until = StopCondition { max_requests: hits, ..StopCondition::default() };
    LoadSpec {
        stop_condition: until,
        late_send_time_after_end: Duration::from_secs(10),
        ..LoadSpec::new(ArrivalModel::Open(schedule), 64)
    }
}

fn run(session: &mut LoadSession, load: &LoadSpec) -> RunOutcome {
    session.start_trial(load, None).unwrap().finish()
}

fn until(happens: impl Fn() -> bool) {
    let clock = RunClock::start();
    while !happens() {
        assert!(clock.now() < 20 * SECOND, "it never happens");
        std::thread::yield_now();
    }
}

#[test]
fn every_trial_begins_anew_on_what_the_ones_before_have_opened() {
    let server = Server::start_answering(OK).unwrap();
    let mut session = open(list(&[server.url_of_path("/")]));
    let mut began = 0;
    for load in [closed(10, 1), paced(20, "2000"), closed(10, 1)] {
        let outcome = run(&mut session, &load);
        assert_eq!(
            (outcome.total_stats.good_count(), outcome.unsent_at_end(), outcome.stop_reason),
            (load.stop_condition.max_requests, 0, None)
        );
        assert!(outcome.began_unix_ns > began, "each has a beginning of its own");
        began = outcome.began_unix_ns;
        assert!(outcome.elapsed_after_warm_up < 10 * SECOND, "time counts from there");
    }
    assert_eq!(session.total_stats().good_count(), 40);
    assert!(
        run(&mut session, &closed(10, 1)).total_stats.connections <= 1,
        "connections are where they were"
    );
}

#[test]
fn a_trial_of_fewer_clients_than_threads_has_a_part_for_each_client() {
    let server = Server::start_answering(OK).unwrap();
    let mut session = open(list(&[server.url_of_path("/")]));
    let threads = |clients| {
        let outcome = run(&mut session, &closed(10, clients));
        assert_eq!(outcome.total_stats.good_count(), 10);
        outcome.threads
    };
    assert_eq!([1, 2, 3].map(threads), [1, 2, 2]);
}

/// A server that answers when the gate is open.
fn gated(gate: &Arc<RwLock<()>>) -> Server {
    let gate = Arc::clone(gate);
    let server = Server::start(move |mut peer, _| {
        loop {
            peer.read_request_head()?;
            drop(gate.read().unwrap());
            peer.send(OK)?;
        }
    });
    server.unwrap()
}

/// A trial on a server whose gate is closed.
fn with_five_unanswered(session: &mut LoadSession) -> LoadTrial<'_> {
    let trial = session.start_trial(&paced(5, "1000"), None).unwrap();
    until(|| trial.control().in_flight() == 5);
    trial
}

#[test]
fn what_a_trial_left_unanswered_is_in_its_figures_and_not_in_the_next_ones() {
    let gate = Arc::new(RwLock::new(()));
    let server = gated(&gate);
    let mut session = open(list(&[server.url_of_path("/")]));
    let closed_gate = gate.write().unwrap();
    let trial = with_five_unanswered(&mut session);
    trial.control().abort();
    let first = trial.finish();
    let boundary = first.unfinished_requests();
    assert_eq!((boundary.aborted, boundary.backlog, boundary.ended_after_schedule.completed), (5, 0, 5));
    drop(closed_gate);
    let second = run(&mut session, &paced(7, "1000"));
    assert_eq!((second.total_stats.completed, second.total_stats.good_count()), (7, 7));
    assert_eq!(second.unfinished_requests().aborted, 0);
    assert_eq!(
        (session.total_stats().completed, session.total_stats().fault_count(RequestFault::Aborted)),
        (12, 5)
    );
}

/// Hits that nobody was left to send were blamed on the generator.
#[test]
fn a_rate_that_is_changed_after_the_last_hit_makes_no_more_of_them() {
    let server = Server::start_answering(OK).unwrap();
    let mut session = open(list(&[server.url_of_path("/")]));
    let until_end = StopCondition { stop_time: 3600 * SECOND, ..StopCondition::default() };
    let trial =
        session.start_trial(&LoadSpec { stop_condition: until_end, ..paced(1, "1/1h") }, None).unwrap();
    until(|| trial.control().has_stopped_sending());
    assert!(!trial.control().set_rate("1000".parse().unwrap()), "the next would be due at the end");
    let outcome = trial.finish();
    assert_eq!(
        (outcome.scheduled_count, outcome.unsent_at_end(), outcome.total_stats.good_count()),
        (Some(1), 0, 1)
    );
}

#[test]
fn late_answers_are_waited_for_as_long_as_the_load_says() {
    let gate = Arc::new(RwLock::new(()));
    let server = gated(&gate);
    let mut session = open(list(&[server.url_of_path("/")]));
    let _closed = gate.write().unwrap();
    let load = LoadSpec { drain_timeout: Some(Duration::from_millis(100)), ..paced(5, "1000") };
    let outcome = run(&mut session, &load);
    assert_eq!(
        (outcome.unfinished_requests().aborted, outcome.stop_reason, outcome.scheduled_count),
        (5, None, Some(5))
    );
    assert!(outcome.elapsed_after_warm_up < 20 * SECOND, "not for the timeout of a request");
}

#[test]
fn a_trial_that_is_dropped_is_aborted_and_its_threads_are_free_for_the_next() {
    let gate = Arc::new(RwLock::new(()));
    let server = gated(&gate);
    let mut session = open(list(&[server.url_of_path("/")]));
    let closed_gate = gate.write().unwrap();
    let trial = with_five_unanswered(&mut session);
    drop(trial);
    assert_eq!(session.total_stats().fault_count(RequestFault::Aborted), 5);
    drop(closed_gate);
    assert_eq!(run(&mut session, &closed(10, 2)).total_stats.good_count(), 10);
}

/// It was in no total.
#[test]
fn a_trial_that_was_heard_to_its_end_and_dropped_is_in_the_total_of_its_session() {
    let server = Server::start_answering(OK).unwrap();
    let mut session = open(list(&[server.url_of_path("/")]));
    let mut trial = session.start_trial(&closed(10, 2), None).unwrap();
    while !matches!(trial.next_interval(Duration::from_secs(20)), NextIntervalResult::Ended) {}
    drop(trial);
    assert_eq!(session.total_stats().good_count(), 10);
    run(&mut session, &closed(5, 1));
    assert_eq!(session.total_stats().good_count(), 15, "one that was summed up counts once");
}

#[test]
fn a_session_that_is_dropped_closes_its_connections() {
    let ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ended);
    let server = Server::start(move |mut peer, _| {
        let closed = peer.wait_for_close();
        end.store(true, Ordering::SeqCst);
        closed
    });
    let server = server.unwrap();
    let mut session = open(list(&[server.url_of_path("/")]));
    assert_eq!(session.warm(1).unwrap(), 1);
    drop(session);
    until(|| ended.load(Ordering::SeqCst));
}

#[test]
fn warming_opens_what_is_lacking_to_so_many_connections_of_each_origin() {
    let servers = [(); 2].map(|()| Server::start_answering(OK).unwrap());
    let mut session = open(list(&servers.each_ref().map(|server| server.url_of_path("/"))));
    assert_eq!([3, 3, 8, 5].map(|each| session.warm(each).unwrap()), [6, 6, 16, 16]);
    until(|| servers.each_ref().map(Server::connection_count) == [8, 8]);
    let outcome = run(&mut session, &closed(100, 8));
    assert_eq!((outcome.total_stats.good_count(), outcome.total_stats.connections), (100, 0));
}

/// Threads forget routes that carry nothing once there are 2,048, and looked for the forgotten ones at the next beginning.
#[test]
fn a_trial_begins_after_one_whose_redirects_led_to_more_places_than_are_remembered() {
    const PLACES: usize = 2100;
    let server = Server::start(move |mut peer, _| {
        for place in 0.. {
            peer.read_request_head()?;
            let elsewhere = format!(
                "HTTP/1.1 302 Found\r\nLocation: http://127.1.{}.{}:1/\r\nContent-Length: 0\r\n\r\n",
                place / 256,
                place % 256
            );
            peer.send(if place < PLACES { elsewhere.as_bytes() } else { OK })?;
        }
        Ok(())
    });
    let server = server.unwrap();
    let mut plan = RunPlan::new(list(&[server.url_of_path("/")]), ArrivalModel::Closed);
    plan.session.max_threads = 1;
    plan.session.transport.max_connections = 1;
    let mut session = LoadSession::open(plan.split().0).unwrap();
    let first = run(&mut session, &closed(PLACES as u64, 1));
    assert_eq!(
        (first.total_stats.completed, first.total_stats.redirects),
        (PLACES as u64, PLACES as u64),
        "nobody listens there"
    );
    assert_eq!(session.warm(1).unwrap(), 1, "of the list alone");
    assert_eq!(run(&mut session, &closed(10, 1)).total_stats.good_count(), 10);
}

#[test]
fn warming_goes_on_to_the_next_address_and_ends_where_nobody_listens() {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let server = Server::start_answering(OK).unwrap();
    let by_name = format!("http://localhost:{}/", server.address().port());
    let mut session = open(list(&[format!("http://{nobody}/"), by_name, "http://[::1]:1/".to_owned()]));
    assert_eq!(session.warm(4).unwrap(), 4);
    until(|| server.connection_count() == 4);
}

/// Its thread answered too late, and all of its connections counted none.
#[test]
fn warming_counts_what_stands_beside_a_server_that_lets_connections_wait() {
    let silent = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let server = Server::start_answering(OK).unwrap();
    // A handshake that nobody answers, as long as its step may take.
    let source = list(&[format!("https://{}/", silent.address()), server.url_of_path("/")]);
    let mut plan = RunPlan::new(source, ArrivalModel::Closed);
    plan.session.max_threads = 2;
    plan.session.transport.timeout = Some(Duration::from_secs(1));
    plan.session.transport.tls = Some(TlsOptions::default().config().unwrap());
    let mut session = LoadSession::open(plan.split().0).unwrap();
    assert_eq!(session.warm(4).unwrap(), 4, "those that are still being opened do not stand");
}

#[test]
fn a_connection_that_the_server_ends_between_two_trials_costs_no_hit() {
    let ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ended);
    let server = Server::start(move |mut peer, number| {
        loop {
            peer.read_request_head()?;
            peer.send(OK)?;
            if number == 0 {
                drop(peer);
                end.store(true, Ordering::SeqCst);
                return Ok(());
            }
        }
    });
    let server = server.unwrap();
    let mut session = open(list(&[server.url_of_path("/")]));
    run(&mut session, &closed(1, 1));
    until(|| ended.load(Ordering::SeqCst));
    assert_eq!(session.warm(1).unwrap(), 1, "it is replaced");
    let outcome = run(&mut session, &closed(5, 1));
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.connections, outcome.total_stats.retried),
        (5, 0, 0)
    );
}

/// The outcome of a trial, and the hits of all of its intervals, each of which has those that ended in it.
fn with_hits(session: &mut LoadSession, load: &LoadSpec) -> (RunOutcome, Vec<CompletedRequest>) {
    let mut trial = session.start_trial(load, None).unwrap();
    let mut hits = Vec::new();
    while !matches!(trial.next_interval(Duration::from_secs(20)), NextIntervalResult::Ended) {
        let interval = trial.last_interval();
        let own = interval.stats.completed_requests.clone();
        assert!(load.report_each_request || own.is_empty(), "only who asks for hits gets them");
        assert_eq!(own.len() as u64, if load.report_each_request { interval.stats.completed } else { 0 });
        assert!(own.iter().all(|fate| fate.due <= fate.end && fate.end <= interval.to));
        hits.extend(own);
    }
    (trial.finish(), hits)
}

#[test]
fn each_hit_is_told_with_the_place_of_its_target() {
    let server = Server::start_answering(OK).unwrap();
    let mut session =
        open(list(&[server.url_of_path("/a"), server.url_of_path("/b"), server.url_of_path("/c")]));
    let asking = LoadSpec { report_each_request: true, ..paced(9, "1000") };
    let (_, mut hits) = with_hits(&mut session, &asking);
    hits.sort_by_key(|fate| fate.due);
    let targets: Vec<_> = hits.iter().map(|fate| fate.target_index).collect();
    assert_eq!(targets, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn each_hit_is_told_with_the_interval_in_which_it_ended_and_no_sum_keeps_it() {
    let server = Server::start_answering(OK).unwrap();
    let mut session = open(list(&[server.url_of_path("/")]));
    let asking =
        LoadSpec { report_each_request: true, interval: Duration::from_millis(50), ..paced(300, "1000") };
    let (outcome, mut hits) = with_hits(&mut session, &asking);
    assert_eq!(
        (hits.len() as u64, outcome.total_stats.good_count(), outcome.total_stats.completed_requests.len()),
        (300, 300, 0)
    );
    assert_eq!(session.total_stats().completed_requests.len(), 0);
    hits.sort_by_key(|fate| fate.due);
    let due: Vec<_> = hits.iter().map(|fate| fate.due).collect();
    assert_eq!(due, (0..300).map(|seq| seq * SECOND / 1000).collect::<Vec<_>>(), "in the time of the trial");
    assert!(
        hits.iter()
            .all(|fate| fate.is_good() && fate.response_body_bytes == 2 && fate.sent_at >= Some(fate.due))
    );
    let carried = |fate: &CompletedRequest| {
        fate.connection_timings
            .is_some_and(|carrier| carrier.connection_id > 0 && carrier.first_byte.is_some())
    };
    assert!(hits.iter().all(carried), "although nothing is recorded");
    assert!(hits.iter().any(|fate| fate.connection_timings.is_some_and(|carrier| carrier.reuse_count > 0)));
    assert!(
        hits.iter().all(|fate| fate.sent_at >= Some(fate.launch_time())),
        "the generator lag is part of that"
    );
    assert_eq!(
        hits.iter().map(|fate| fate.generator_lag).max(),
        Some(outcome.total_stats.generator_lag.max())
    );
    let (outcome, hits) = with_hits(&mut session, &paced(10, "1000"));
    assert_eq!((hits.len(), outcome.total_stats.good_count()), (0, 10));
}

#[test]
fn what_waits_for_room_has_no_lag_of_its_own() {
    let server = Server::start_answering(OK).unwrap();
    let mut session = open(list(&[server.url_of_path("/")]));
    let by_hit = LoadSpec { report_each_request: true, ..closed(20, 2) };
    let (_, hits) = with_hits(&mut session, &by_hit);
    assert!(hits.len() == 20 && hits.iter().all(|fate| fate.generator_lag == 0), "clients are never late");
    let mut crowded = LoadSpec { report_each_request: true, ..paced(200, "1000000") };
    crowded.in_flight_limit.limit = 1;
    let (outcome, hits) = with_hits(&mut session, &crowded);
    let own = hits.iter().filter(|fate| fate.generator_lag > 0).count() as u64;
    let late = hits.iter().filter(|fate| fate.sent_at > Some(fate.due)).count() as u64;
    assert!(own <= outcome.total_stats.generator_lag.count() && own < late, "{own} of {late}");
}

#[test]
fn hits_that_found_nobody_are_told_with_the_reason_and_without_a_carrier() {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let mut session = open(list(&[format!("http://{nobody}/")]));
    let (outcome, hits) =
        with_hits(&mut session, &LoadSpec { report_each_request: true, ..paced(5, "1000") });
    assert_eq!((outcome.total_stats.completed, hits.len()), (5, 5));
    let refused = Err(RequestFault::Connect(std::io::ErrorKind::ConnectionRefused));
    assert!(
        hits.iter().all(|fate| fate.outcome == refused
            && fate.sent_at.is_none()
            && fate.connection_timings.is_none())
    );
}

/// So many requests that are read during the run.
fn lazy(server: &Server, requests: usize) -> RequestSource {
    let input = Box::new(Cursor::new(format!("GET {}\n", server.url_of_path("/")).repeat(requests)));
    let reader = TargetReader::new("t", input, target::TargetFormat::Http, TargetDefaults::default());
    RequestSource::Lazy(RequestReader::new(reader, RequestFraming::default(), None))
}

#[test]
fn targets_that_are_read_during_the_run_serve_one_trial() {
    let server = Server::start_answering(OK).unwrap();
    let mut session = open(lazy(&server, 3));
    assert_eq!(run(&mut session, &closed(u64::MAX, 2)).total_stats.good_count(), 3);
    assert!(matches!(session.start_trial(&closed(1, 1), None), Err(TrialStartError::TargetsUsedUp)));
}

/// They were used up by a trial that was refused.
#[test]
fn targets_that_are_read_during_the_run_are_there_for_a_trial_after_one_that_came_too_late() {
    let server = Server::start_answering(OK).unwrap();
    let mut session = open(lazy(&server, 3));
    let late = LoadSpec { start_unix_ns: Some(1), ..closed(3, 1) };
    assert!(matches!(session.start_trial(&late, None), Err(TrialStartError::Late(_))));
    assert_eq!(run(&mut session, &closed(3, 1)).total_stats.good_count(), 3);
}

/// The most requests that were at the server at once since it was last asked.
#[derive(Default)]
struct Crowd {
    present: AtomicUsize,
    most: AtomicUsize,
    answered: AtomicUsize,
}

impl Crowd {
    /// A server that takes its time, so that clients meet there.
    fn server(self: &Arc<Self>) -> Server {
        let crowd = Arc::clone(self);
        let server = Server::start(move |mut peer, _| {
            loop {
                peer.read_request_head()?;
                let present = crowd.present.fetch_add(1, Ordering::SeqCst) + 1;
                crowd.most.fetch_max(present, Ordering::SeqCst);
                let clock = RunClock::start();
                while clock.now() < SECOND / 1000 {
                    std::thread::yield_now();
                }
                crowd.present.fetch_sub(1, Ordering::SeqCst);
                crowd.answered.fetch_add(1, Ordering::SeqCst);
                peer.send(OK)?;
            }
        });
        server.unwrap()
    }
}

#[test]
fn a_closed_loop_has_as_many_clients_as_it_is_told_and_ends_with_its_hits() {
    let crowd = Arc::new(Crowd::default());
    let server = crowd.server();
    let mut session = open(list(&[server.url_of_path("/")]));
    let trial = session.start_trial(&closed(2000, 2), None).unwrap();
    assert!(!trial.control().set_rate("10".parse().unwrap()), "it has no rate");
    assert!(trial.control().set_concurrency(8.try_into().unwrap()));
    until(|| crowd.most.load(Ordering::SeqCst) > 2);
    // The second thread has no share of it.
    assert!(trial.control().set_concurrency(1.try_into().unwrap()) && trial.control().concurrency() == 1);
    let told = trial.control().elapsed();
    until(|| trial.control().elapsed() > told + SECOND / 2 && trial.control().in_flight() <= 1);
    crowd.most.store(0, Ordering::SeqCst);
    let answered = crowd.answered.load(Ordering::SeqCst);
    let outcome = trial.finish();
    assert_eq!(outcome.total_stats.good_count(), 2000);
    assert!(answered == 2000 || crowd.most.load(Ordering::SeqCst) <= 1, "one client");
}

#[test]
fn a_client_that_was_refused_waits_before_it_asks_again() {
    let refuses: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let server = Server::start_answering(refuses).unwrap();
    let mut session = open(list(&[server.url_of_path("/")]));
    let pause = Duration::from_millis(20);
    let clock = RunClock::start();
    let outcome = run(&mut session, &LoadSpec { failure_pause: pause, ..closed(12, 2) });
    assert_eq!((outcome.total_stats.completed, outcome.total_stats.good_count()), (12, 0));
    // Two of them send six each, and wait five times between.
    assert!(clock.now() >= 5 * 20 * SECOND / 1000, "{}", clock.now());
}

#[test]
fn in_a_pause_nothing_is_sent_and_after_it_what_is_left_is() {
    for load in [closed(2000, 4), paced(2000, "2000")] {
        let crowd = Arc::new(Crowd::default());
        let server = crowd.server();
        let mut session = open(list(&[server.url_of_path("/")]));
        let trial = session.start_trial(&load, None).unwrap();
        let steer = trial.control();
        until(|| crowd.answered.load(Ordering::SeqCst) > 10);
        steer.pause();
        let told = steer.elapsed();
        let all_told = || steer.completed_and_errors().0 == crowd.answered.load(Ordering::SeqCst) as u64;
        until(|| steer.elapsed() > told + SECOND / 5 && steer.in_flight() == 0 && all_told());
        let (done, _) = steer.completed_and_errors();
        until(|| steer.elapsed() > told + SECOND / 2);
        assert_eq!((steer.completed_and_errors().0, steer.is_paused()), (done, true));
        steer.resume();
        let outcome = trial.finish();
        assert_eq!(
            (outcome.total_stats.good_count(), outcome.unsent_at_end(), outcome.stop_reason),
            (2000, 0, None)
        );
    }
}

#[test]
fn a_pause_can_be_ended_at_once_and_is_over_with_the_schedule() {
    let server = Server::start_answering(OK).unwrap();
    let mut session = open(list(&[server.url_of_path("/")]));
    let stopped = session.start_trial(&paced(u64::MAX, "1000"), None).unwrap();
    stopped.control().pause();
    stopped.control().drain();
    assert!(stopped.finish().stop_reason.is_some());
    for load in [closed(u64::MAX, 2), paced(u64::MAX, "1000")] {
        let until = StopCondition { stop_time: SECOND / 5, ..load.stop_condition };
        let trial = session.start_trial(&LoadSpec { stop_condition: until, ..load }, None).unwrap();
        trial.control().pause();
        let outcome = trial.finish();
        assert_eq!(
            (outcome.counted_duration, outcome.stop_reason, outcome.unsent_at_end()),
            (SECOND / 5, None, 0)
        );
    }
}

/// When the hits of a shard were due whose rate was changed from an instant on, of which it heard when `hears` says so.
fn dues_of(index: u64, (from, to): (Nanos, &str), hears: impl Fn(&Control) -> bool) -> Vec<Nanos> {
    let server = Server::start_answering(OK).unwrap();
    let mut session = open(list(&[server.url_of_path("/")]));
    let load = LoadSpec {
        shard: ScheduleShard::new(index, 2).unwrap(),
        report_each_request: true,
        ..paced(700, "500")
    };
    let mut trial = session.start_trial(&load, None).unwrap();
    let steer = trial.control();
    until(|| hears(&steer));
    assert!(steer.set_rate_from(from, to.parse().unwrap()));
    let mut dues = Vec::new();
    loop {
        match trial.next_interval(Duration::from_secs(1)) {
            NextIntervalResult::Interval(interval) => {
                dues.extend(interval.stats.completed_requests.iter().map(|fate| fate.due));
            }
            NextIntervalResult::Timeout => {}
            NextIntervalResult::Ended => break,
        }
    }
    assert_eq!(trial.finish().unsent_at_end(), 0);
    dues
}

#[test]
fn shards_whose_rate_changes_at_one_instant_stay_shards_of_one_schedule() {
    let schedule = Schedule::constant("500".parse().unwrap(), ArrivalSpacing::Constant);
    // Far enough ahead for whoever starts two threads on a busy machine.
    let from = SECOND;
    for to in ["2000", "250"] {
        let in_time = |steer: &Control| {
            assert_eq!(steer.lateness_if_changed_from(from), 0);
            true
        };
        let mut dues: Vec<_> = (0..2).flat_map(|index| dues_of(index, (from, to), in_time)).collect();
        dues.sort_unstable();
        let changed = schedule.with_rate_from(from, to.parse().unwrap());
        let mut cursor = schedule::ScheduleCursor::new(
            Arc::new(ArrivalModel::Open(changed)),
            paced(700, "500").stop_condition,
            0,
            1,
        );
        let expected = std::iter::from_fn(|| match cursor.next(Nanos::MAX) {
            NextArrival::Due(hit) => Some(hit.due),
            NextArrival::Later(_) | NextArrival::Over => None,
        });
        assert_eq!(dues, expected.collect::<Vec<_>>());
    }
}

#[test]
fn who_hears_too_late_that_its_rate_changes_sends_each_of_its_hits_once_all_the_same() {
    for to in ["2000", "250"] {
        let too_late = |steer: &Control| steer.lateness_if_changed_from(SECOND / 10) >= SECOND / 10;
        let dues = dues_of(1, (SECOND / 10, to), too_late);
        assert_eq!(dues.len(), 350);
    }
}
