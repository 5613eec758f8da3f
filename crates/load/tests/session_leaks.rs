//! What a session of many trials opens, keeps and leaves behind. Descriptors and threads are the process's, so that this
//! file holds one test that runs, and another that is too long to.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs::read_dir;
use std::io::sink;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seawall_load::clock::{RunClock, SECOND};
use seawall_load::engine::{LoadSession, LoadSpec, ResultsOutput, RunOutcome, RunPlan};
use seawall_load::record_output::SlowOutputPolicy;
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::request_source::{RequestList, RequestSource};
use seawall_load::results::ResultFormat;
use seawall_load::schedule::{ArrivalModel, ArrivalSpacing, Schedule, StopCondition};
use seawall_load::stats::LoadStats;
use seawall_load::target::{Target, Weight};
use seawall_testkit::closure_server::Server;

const CONNECTIONS: usize = 64;
const TRIALS: usize = 200;

/// Descriptors and threads of this process.
fn held() -> (usize, usize) {
    (read_dir("/proc/self/fd").unwrap().count(), read_dir("/proc/self/task").unwrap().count())
}

/// Threads that have nothing more to do end a moment later.
fn until_held(expected: (usize, usize)) {
    let clock = RunClock::start();
    while held() != expected {
        assert!(clock.now() < 20 * SECOND, "{:?} are held, not {expected:?}", held());
        std::thread::yield_now();
    }
}

/// A server, and how many requests it has answered.
fn counting() -> (Server, Arc<AtomicU64>) {
    let answered = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answered);
    let server = Server::start(move |mut peer, _| {
        loop {
            peer.read_request_head()?;
            count.fetch_add(1, Ordering::SeqCst);
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")?;
        }
    });
    (server.unwrap(), answered)
}

fn open(server: &Server) -> LoadSession {
    let target = Target { method: "GET".into(), url: server.url_of_path("/"), ..Target::default() };
    let request = PreparedRequest::new(&target, &RequestFraming::default()).unwrap();
    let source = RequestSource::List(RequestList::new(vec![(request, Weight::default())]).unwrap());
    let mut plan = RunPlan::new(source, ArrivalModel::Closed);
    plan.session.max_threads = 2;
    plan.load.in_flight_limit.limit = CONNECTIONS;
    plan.session.transport.max_connections = CONNECTIONS;
    LoadSession::open(plan.split().0).unwrap()
}

/// Closed loops and rates take turns.
fn load(trial: usize, until: impl Fn(bool) -> StopCondition) -> LoadSpec {
    let closed = trial.is_multiple_of(2);
    let rate = || Schedule::constant("4000".parse().unwrap(), ArrivalSpacing::Constant);
    let arrivals = if closed { ArrivalModel::Closed } else { ArrivalModel::Open(rate()) };
    // No test here may depend on how fast this machine is.
    let grace = Duration::from_secs(10);
    LoadSpec {
        stop_condition: until(closed),
        late_send_time_after_end: grace,
        ..LoadSpec::new(arrivals, CONNECTIONS)
    }
}

/// One trial in ten is recorded.
fn results(trial: usize) -> Option<ResultsOutput> {
    let output = Box::new(sink());
    let results = ResultsOutput {
        format: ResultFormat::Csv,
        output,
        max_body: 0,
        cut_body_callback: None,
        write_connection_timings: false,
        on_slow_output: SlowOutputPolicy::Wait,
    };
    trial.is_multiple_of(10).then_some(results)
}

/// What must be the same, added up.
fn figures(stats: &LoadStats) -> [u64; 7] {
    let LoadStats { sent, completed, bytes_in, retried, send_lag, .. } = stats;
    [
        *sent,
        *completed,
        stats.good_count(),
        *bytes_in,
        *retried,
        send_lag.count(),
        stats.all_times().response_time.count(),
    ]
}

fn sum(outcomes: &[RunOutcome]) -> [u64; 7] {
    outcomes.iter().map(|outcome| figures(&outcome.total_stats)).fold([0; 7], |mut sum, figures| {
        sum.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        sum
    })
}

fn keeps_its_connections(until: impl Fn(bool) -> StopCondition) {
    let (server, answered) = counting();
    let before = held();
    let mut session = open(&server);
    assert_eq!(session.warm(CONNECTIONS).unwrap(), CONNECTIONS);
    assert_eq!(figures(session.total_stats()), [0; 7], "a connection that is warmed is no hit's");
    // The session's threads, each with the socket that keeps the kernel stamping, its resolver, and the server's thread for each connection
    // with both of its ends.
    let warm = (before.0 + 2 * 4 + 2 * CONNECTIONS, before.1 + 2 + 1 + CONNECTIONS);
    until_held(warm);
    let run = |trial| session.start_trial(&load(trial, &until), results(trial)).unwrap().finish();
    let outcomes: Vec<_> = (0..TRIALS).map(run).collect();
    until_held(warm);
    assert_eq!(server.connection_count(), CONNECTIONS);
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.total_stats.connections == 0 && outcome.total_stats.good_count() > 0)
    );
    assert_eq!(sum(&outcomes), figures(session.total_stats()));
    assert_eq!(answered.load(Ordering::SeqCst), session.total_stats().good_count());
    drop(session);
    until_held(before);
}

#[test]
fn two_hundred_trials_on_warm_connections_open_none_and_leave_nothing_behind() {
    keeps_its_connections(|closed| StopCondition {
        max_requests: if closed { 256 } else { 80 },
        ..StopCondition::default()
    });
}

/// Takes more than 200 s: `cargo test --release -p seawall-load --test session_leaks -- --ignored`.
#[test]
#[ignore = "takes more than three minutes"]
fn two_hundred_trials_of_a_second_on_warm_connections_open_none_and_leave_nothing_behind() {
    keeps_its_connections(|_| StopCondition { stop_time: SECOND, ..StopCondition::default() });
}
