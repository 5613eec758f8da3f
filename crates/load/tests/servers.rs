//! The engine against servers that behave, and servers that do not.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use seawall_load::clock::{RunClock, SECOND, nanos};
use seawall_load::control::{ErrorBudget, RunStopReason};
use seawall_load::dns_client::DnsServers;
use seawall_load::engine::{self, InFlightLimit, ResultsOutput, RunOutcome, RunPlan};
use seawall_load::expectation::ExpectationSet;
use seawall_load::interval::IntervalStats;
use seawall_load::origin_resolution::AddressLifetime;
use seawall_load::proxy::ProxyRules;
use seawall_load::record::{ConnectionTimings, Record, RecordedConnection};
use seawall_load::record_output::SlowOutputPolicy;
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::request_failure_reason::{
    ExpectationSubject, NameFault, OutcomeClass, RequestFault, WrongAnswer,
};
use seawall_load::request_source::{RequestList, RequestReader, RequestSource};
use seawall_load::results::{Decoder, EncodeError, ResultFormat};
use seawall_load::schedule::{ArrivalModel, ArrivalSpacing, Schedule, ScheduleShard, StopCondition};
use seawall_load::sender::SaturationPolicy;
use seawall_load::stats::{AfterSchedule, LoadStats};
use seawall_load::stats_collector::NextIntervalResult;
use seawall_load::summary::Summary;
use seawall_load::target::{self, Target, TargetDefaults, TargetReader, Weight};
use seawall_load::template::TemplateReader;
use seawall_load::tls::TlsOptions;
use seawall_testkit::closure_server::{Peer, Server};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// Requests to a server whose responses must meet these conditions.
fn expecting(server: &Server, requests: u64, conditions: &[&str]) -> RunPlan {
    let target = Target {
        method: "GET".into(),
        url: server.url_of_path("/x"),
        expect: ExpectationSet::new(conditions.iter().map(|text| text.parse().unwrap()).collect()),
        ..Target::default()
    };
    let request = PreparedRequest::new(&target, &RequestFraming::default()).unwrap();
    let mut plan = some(server, requests);
    plan.session.source = RequestSource::List(RequestList::new(vec![(request, Weight::default())]).unwrap());
    plan
}

fn source(method: &str, url: &str, body: &str) -> RequestSource {
    let target =
        Target { method: method.into(), url: url.into(), body: body.as_bytes().into(), ..Target::default() };
    let request = PreparedRequest::new(&target, &RequestFraming::default()).unwrap();
    RequestSource::List(RequestList::new(vec![(request, Weight::default())]).unwrap())
}

/// A closed loop of one client and so many requests.
fn some(server: &Server, requests: u64) -> RunPlan {
    let mut plan = RunPlan::new(source("GET", &server.url_of_path("/x"), ""), ArrivalModel::Closed);
    plan.load.stop_condition = StopCondition { max_requests: requests, ..StopCondition::default() };
    plan.load.in_flight_limit.limit = 1;
    plan
}

fn open(server: &Server, rate: &str, length: Duration) -> RunPlan {
    let schedule = Schedule::constant(rate.parse().unwrap(), ArrivalSpacing::Constant);
    let mut plan = RunPlan::new(source("GET", &server.url_of_path("/x"), ""), ArrivalModel::Open(schedule));
    // No test here may depend on how fast this machine is.
    plan.load.in_flight_limit.limit = 10_000;
    plan.load.late_send_time_after_end = Duration::from_secs(10);
    plan.load.stop_condition = StopCondition { stop_time: nanos(length), ..StopCondition::default() };
    plan
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn recorded_as(format: ResultFormat, carriage: bool, plan: RunPlan) -> (RunOutcome, Vec<Record>) {
    let (outcome, _, records) = told(format, carriage, plan);
    (outcome, records)
}

fn recorded(plan: RunPlan) -> (RunOutcome, Vec<Record>) {
    recorded_as(ResultFormat::Gob, false, plan)
}

/// The same with what was told of it on the way.
fn told(
    format: ResultFormat,
    carriage: bool,
    plan: RunPlan,
) -> (RunOutcome, Vec<IntervalStats>, Vec<Record>) {
    let sink = Sink::default();
    let results = ResultsOutput {
        format,
        output: Box::new(sink.clone()),
        max_body: 1 << 20,
        cut_body_callback: None,
        write_connection_timings: carriage,
        on_slow_output: SlowOutputPolicy::Wait,
    };
    let mut running = engine::start_single_trial(plan, Some(results)).unwrap();
    let mut intervals = Vec::new();
    loop {
        match running.next_interval(Duration::from_secs(1)) {
            NextIntervalResult::Interval(interval) => intervals.push(interval.clone()),
            NextIntervalResult::Timeout => {}
            NextIntervalResult::Ended => break,
        }
    }
    let outcome = running.finish();
    let bytes = std::mem::take(&mut *sink.0.lock().unwrap());
    let mut decoder = Decoder::new(format, std::io::Cursor::new(bytes));
    let mut records = Vec::new();
    let mut record = Record::default();
    while decoder.decode(&mut record).unwrap() {
        records.push(record.clone());
    }
    records.sort_by_key(|record| record.seq);
    (outcome, intervals, records)
}

fn run(plan: RunPlan) -> RunOutcome {
    engine::start_single_trial(plan, None).unwrap().finish()
}

fn statuses(outcome: &RunOutcome) -> Vec<(u16, u64)> {
    outcome.total_stats.statuses.iter().collect()
}

#[test]
fn a_connection_is_used_again() {
    let server = Server::start_answering(OK).unwrap();
    let (outcome, records) = recorded(some(&server, 100));
    assert_eq!((statuses(&outcome), server.connection_count()), (vec![(200, 100)], 1));
    assert_eq!(
        (outcome.total_stats.sent, outcome.total_stats.completed, outcome.total_stats.bytes_in),
        (100, 100, 200)
    );
    assert!(records.iter().map(|record| record.seq).eq(0..100));
    let last = &records[99];
    assert_eq!(
        (last.code, last.method.as_str(), last.url.as_str()),
        (200, "GET", server.url_of_path("/x").as_str())
    );
    assert_eq!((last.response_body.as_slice(), last.error.as_str()), (&b"hi"[..], ""));
}

fn carriers(records: &[Record]) -> Vec<ConnectionTimings> {
    let by = |record: &Record| match record.connection {
        RecordedConnection::Timings(carrier) => carrier,
        other => panic!("{other:?}"),
    };
    records.iter().map(by).collect()
}

#[test]
fn a_record_says_which_connection_carried_its_request_if_it_is_to() {
    for format in [ResultFormat::Json, ResultFormat::Csv] {
        let server = Server::start_answering(OK).unwrap();
        let mut plan = some(&server, 7);
        plan.session.transport.max_requests_per_connection = 3;
        let (_, records) = recorded_as(format, true, plan);
        let carriers = carriers(&records);
        let told: Vec<_> =
            carriers.iter().map(|carrier| (carrier.connection_id, carrier.reuse_count)).collect();
        assert_eq!(told, [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0)], "{format:?}");
        assert!(carriers[..3].iter().all(|carrier| carrier.connect == carriers[0].connect));
        assert!(carriers.iter().all(|carrier| carrier.connect > 0 && carrier.tls.is_none()));
        for (carrier, record) in carriers.iter().zip(&records) {
            assert!(carrier.first_byte.is_some_and(|first| first <= record.latency_ns as u64), "{carrier:?}");
        }
    }
}

#[test]
fn a_record_says_for_how_long_its_connection_had_been_idle() {
    let server = Server::start_answering(OK).unwrap();
    let (_, records) = recorded_as(ResultFormat::Json, true, open(&server, "20", Duration::from_millis(150)));
    let ends: Vec<_> = records.iter().map(Record::end_unix_ns).collect();
    for (at, carrier) in carriers(&records).iter().enumerate().filter(|(_, carrier)| carrier.reuse_count > 0)
    {
        // What took longer than the distance of two had its connection for itself until then.
        let between = (records[at].due_timestamp.unix_ns() - ends[at - 1]).max(0) as u64;
        // Sent when it was due or later.
        assert!(carrier.idle + SECOND / 1000 >= between, "{carrier:?} after {between}");
    }
}

#[test]
fn a_hit_that_never_had_a_connection_says_so() {
    for format in [ResultFormat::Json, ResultFormat::Csv] {
        let (_, records) = recorded_as(format, true, towards("http://127.0.0.1:1/", 2));
        assert_eq!(
            [0, 1].map(|at: usize| records[at].connection),
            [RecordedConnection::None; 2],
            "{format:?}"
        );
    }
}

#[test]
fn an_exact_rate_makes_exactly_its_hits() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = open(&server, "1000", Duration::from_millis(500));
    plan.session.max_threads = 2;
    let (outcome, records) = recorded(plan);
    assert_eq!((outcome.scheduled_count, outcome.total_stats.sent, records.len()), (Some(500), 500, 500));
    let began = records[0].due_timestamp.unix_ns();
    for record in &records {
        assert_eq!(
            record.due_timestamp.unix_ns() - began,
            i128::from(record.seq) * 1_000_000,
            "due to the nanosecond"
        );
    }
    assert_eq!(outcome.total_stats.send_lag.count(), 500);
}

#[test]
fn the_offered_rate_is_the_one_that_was_asked_for() {
    let server = Server::start_answering(OK).unwrap();
    for (spacing, hits) in [(ArrivalSpacing::Constant, 5), (ArrivalSpacing::Burst(3), 6)] {
        let mut plan = open(&server, "50", Duration::from_millis(100));
        let ArrivalModel::Open(schedule) = &mut plan.load.arrivals else { unreachable!("an open loop") };
        *schedule = Schedule::constant("50".parse().unwrap(), spacing);
        let outcome = run(plan);
        assert_eq!(
            (outcome.scheduled_count, outcome.counted_duration, outcome.unsent_at_end()),
            (Some(hits), SECOND / 10, 0)
        );
    }
    let mut plan = open(&server, "50", Duration::from_secs(1));
    plan.load.stop_condition = StopCondition { max_requests: 4, ..StopCondition::default() };
    let outcome = run(plan);
    assert_eq!((outcome.scheduled_count, outcome.counted_duration), (Some(4), 4 * SECOND / 50));
}

/// It was 0.60: three hits in 5 s. The test has a hundredth of the time.
#[test]
fn a_rate_below_one_hit_in_the_time_of_the_run_is_offered_as_it_was_asked_for() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = open(&server, "50", Duration::from_millis(50));
    plan.load.stop_condition.max_requests = u64::MAX;
    let summary = Summary::new(&run(plan));
    assert_eq!((summary.offered, summary.offered_rate), (3, 50.0));
}

/// It was 0.00: all answers came after a schedule of 20 ns.
#[test]
fn a_schedule_that_is_over_before_the_answers_come_has_the_rate_of_the_whole_run() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = open(&server, "1000000000", Duration::MAX);
    plan.load.stop_condition.max_requests = 20;
    let outcome = run(plan);
    let summary = Summary::new(&outcome);
    let rate = 20.0 / (outcome.elapsed_after_warm_up as f64 / SECOND as f64);
    assert!(outcome.total_stats.after_schedule.completed > 0, "{:?}", outcome.total_stats.after_schedule);
    assert_eq!((summary.good, summary.achieved_rate, summary.goodput), (20, rate, rate));
}

#[test]
fn the_wait_for_the_last_answers_was_part_of_the_schedule_of_an_aborted_run() {
    let silent = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let mut plan = open(&silent, "100", Duration::MAX);
    plan.load.stop_condition.max_requests = 10;
    let running = engine::start_single_trial(plan, None).unwrap();
    let control = running.control();
    while control.elapsed() < SECOND / 5 || control.in_flight() < 10 {
        std::thread::yield_now();
    }
    control.abort();
    let outcome = running.finish();
    assert_eq!(
        (outcome.scheduled_count, outcome.counted_duration, outcome.unsent_at_end()),
        (Some(10), SECOND / 10, 0)
    );
    assert_eq!(outcome.total_stats.after_schedule, AfterSchedule { completed: 10, good: 0 });
}

/// It went on sending, with nobody to stop it.
#[test]
fn a_run_that_is_dropped_is_aborted_and_leaves_nothing_behind() {
    let (sender, closed) = channel();
    let silent = Server::start(move |mut peer, _| {
        peer.wait_for_close()?;
        // The test has ended if nobody hears it.
        let _ = sender.send(());
        Ok(())
    })
    .unwrap();
    let mut plan = open(&silent, "100", Duration::MAX);
    plan.load.stop_condition.max_requests = 5;
    let sink = Sink::default();
    let output: Box<dyn Write + Send> = Box::new(sink.clone());
    let results = ResultsOutput {
        format: ResultFormat::Csv,
        output,
        max_body: 0,
        cut_body_callback: None,
        write_connection_timings: false,
        on_slow_output: SlowOutputPolicy::Wait,
    };
    let running = engine::start_single_trial(plan, Some(results)).unwrap();
    while running.control().in_flight() < 5 {
        std::thread::yield_now();
    }
    drop(running);
    assert_eq!(sink.0.lock().unwrap().iter().filter(|byte| **byte == b'\n').count(), 5);
    (0..5).for_each(|_| closed.recv().unwrap());
}

/// A closed loop seemed slower than it was by as much as its caller was busy.
#[test]
fn a_run_ends_with_its_last_answer_and_not_when_somebody_asks() {
    let (sender, closed) = channel();
    let server = Server::start(move |mut peer, _| {
        while peer.read_request_head().is_ok() {
            peer.send(OK.as_bytes())?;
        }
        // The test has ended if nobody hears it.
        let _ = sender.send(());
        Ok(())
    })
    .unwrap();
    let running = engine::start_single_trial(some(&server, 20), None).unwrap();
    closed.recv().unwrap();
    let seen = running.control().elapsed();
    while running.control().elapsed() < seen + SECOND / 5 {
        std::thread::yield_now();
    }
    let outcome = running.finish();
    assert!(outcome.elapsed_after_warm_up <= seen, "{} of {seen}", outcome.elapsed_after_warm_up);
    assert_eq!(outcome.counted_duration, outcome.elapsed_after_warm_up);
}

/// A server of 20/s that was offered 40/s for 5 s was said to be good for 40/s.
#[test]
fn what_a_slow_server_answers_after_the_schedule_is_in_no_rate() {
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().unwrap();
    let opened = Arc::clone(&gate);
    let server = Server::start(move |mut peer, _| {
        peer.read_request_head()?;
        drop(opened.read().unwrap());
        peer.send(OK.as_bytes())
    })
    .unwrap();
    let running = engine::start_single_trial(open(&server, "100", Duration::from_millis(100)), None).unwrap();
    let control = running.control();
    while control.elapsed() < SECOND / 5 {
        std::thread::yield_now();
    }
    drop(closed);
    let outcome = running.finish();
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.after_schedule),
        (10, AfterSchedule { completed: 10, good: 10 })
    );
    let summary = Summary::new(&outcome);
    assert_eq!((summary.offered_rate, summary.achieved_rate, summary.goodput), (100.0, 0.0, 0.0));
    let closed = run(some(&Server::start_answering(OK).unwrap(), 20));
    assert_eq!(
        (closed.total_stats.ended_after_send_count(), closed.total_stats.after_schedule),
        (20, AfterSchedule::default())
    );
}

#[test]
fn the_time_after_the_last_hit_was_part_of_the_schedule_of_poisson_arrivals() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = open(&server, "1000", Duration::from_secs(60));
    plan.load.arrivals =
        ArrivalModel::Open(Schedule::constant("1000".parse().unwrap(), ArrivalSpacing::Poisson(1)));
    plan.load.stop_condition.max_requests = 20;
    let outcome = run(plan);
    assert_eq!((outcome.scheduled_count, outcome.unsent_at_end()), (Some(20), 0));
    assert!(outcome.counted_duration < SECOND, "{}", outcome.counted_duration);
}

/// Targets that are read during the run: `/0`, `/1` and so on.
fn lazy(server: &Server, targets: u64) -> RequestSource {
    let file: String =
        (0..targets).map(|k| format!("GET {}\n", server.url_of_path(&format!("/{k}")))).collect();
    let input = Box::new(std::io::Cursor::new(file));
    let reader = TargetReader::new("t", input, target::TargetFormat::Http, TargetDefaults::default());
    RequestSource::Lazy(RequestReader::new(reader, RequestFraming::default(), None))
}

#[test]
fn hits_that_would_have_been_due_after_the_last_target_were_blamed_on_the_generator() {
    let server = Server::start(|mut peer, _| {
        loop {
            peer.read_request_head()?;
            let_pass(Duration::from_millis(200));
            peer.send(OK.as_bytes())?;
        }
    });
    let server = server.unwrap();
    for (threads, spacing) in
        [(1, ArrivalSpacing::Constant), (3, ArrivalSpacing::Constant), (2, ArrivalSpacing::Burst(50))]
    {
        let mut plan = open(&server, "1000", Duration::from_secs(60));
        plan.load.arrivals = ArrivalModel::Open(Schedule::constant("1000".parse().unwrap(), spacing));
        plan.session.source = lazy(&server, 20);
        plan.session.max_threads = threads;
        let outcome = run(plan);
        assert_eq!(
            (outcome.scheduled_count, outcome.total_stats.sent, outcome.counted_duration),
            (Some(20), 20, SECOND / 50),
            "{threads} threads, {spacing:?}"
        );
    }
}

#[test]
fn a_dropped_hit_used_up_its_target_only_when_results_were_recorded() {
    let server = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let plan = |threads| {
        let mut plan = open(&server, "1000", Duration::from_secs(60));
        plan.session.source = lazy(&server, 50);
        plan.load.in_flight_limit = InFlightLimit { limit: 2, on_saturation: SaturationPolicy::Drop };
        plan.session.transport.timeout = Some(Duration::from_millis(200));
        plan.session.max_threads = threads;
        plan
    };
    for threads in [1, 2] {
        let outcome = run(plan(threads));
        let ended = outcome.total_stats.sent + outcome.total_stats.fault_count(RequestFault::Dropped);
        assert_eq!(
            (outcome.scheduled_count, ended, outcome.total_stats.completed),
            (Some(50), 50, 50),
            "{threads} threads"
        );
        let (outcome, records) = recorded(plan(threads));
        assert_eq!(
            (outcome.scheduled_count, outcome.total_stats.completed, records.len()),
            (Some(50), 50, 50),
            "{threads} threads"
        );
        for record in records {
            assert_eq!(record.url, server.url_of_path(&format!("/{}", record.seq)));
        }
    }
}

#[test]
fn a_shed_hit_left_its_target_to_the_next() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = open(&server, "1000", Duration::from_secs(60));
    plan.session.source = lazy(&server, 20);
    plan.session.transport.deadline = Some(Duration::ZERO);
    let outcome = run(plan);
    assert_eq!(
        (
            outcome.scheduled_count,
            outcome.total_stats.fault_count(RequestFault::DeadlineBeforeSend),
            outcome.total_stats.sent
        ),
        (Some(20), 20, 0)
    );
}

#[test]
fn a_client_that_waited_kept_half_of_a_closed_loops_requests_to_itself() {
    const HITS: usize = 30;
    let answered = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&answered);
    // The first client gets its first answer when the other has had all of its.
    let server = Server::start(move |mut peer, number| {
        loop {
            peer.read_request_head()?;
            while number == 0 && counter.load(Ordering::SeqCst) < HITS - 1 {
                std::thread::yield_now();
            }
            counter.fetch_add(1, Ordering::SeqCst);
            peer.send(OK.as_bytes())?;
        }
    });
    let server = server.unwrap();
    let mut plan = some(&server, HITS as u64);
    (plan.session.max_threads, plan.load.in_flight_limit.limit) = (2, 2);
    plan.session.transport.timeout = Some(Duration::from_secs(5));
    let (outcome, records) = recorded(plan);
    let timed_out = outcome.total_stats.fault_count(RequestFault::Timeout);
    // So that the server's thread ends, too.
    answered.store(HITS, Ordering::SeqCst);
    assert_eq!((outcome.threads, outcome.total_stats.good_count(), timed_out), (2, HITS as u64, 0));
    assert!(records.iter().map(|record| record.seq).eq(0..HITS as u64));
}

#[test]
fn hits_that_were_handed_out_while_the_run_was_being_drained_had_not_been_offered() {
    let server = Server::start_answering(OK).unwrap();
    for _ in 0..60 {
        let mut plan = open(&server, "100000", Duration::from_secs(60));
        (plan.session.max_threads, plan.load.in_flight_limit.on_saturation) = (2, SaturationPolicy::Drop);
        plan.load.in_flight_limit.limit = 2;
        let running = engine::start_single_trial(plan, None).unwrap();
        let control = running.control();
        while control.elapsed() < SECOND / 200 {
            std::thread::yield_now();
        }
        control.drain();
        let outcome = running.finish();
        assert!(
            outcome.scheduled_count >= Some(outcome.total_stats.completed),
            "{:?} {}",
            outcome.scheduled_count,
            outcome.total_stats.completed
        );
    }
}

#[test]
fn a_head_in_single_bytes_chunks_with_trailers_and_interim_answers_are_understood() {
    let server = Server::start(|mut peer, _| {
        loop {
            peer.read_request_head()?;
            peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")?;
            peer.send_byte_by_byte(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
            )?;
        }
    });
    let server = server.unwrap();
    let (outcome, records) = recorded(some(&server, 3));
    assert_eq!((statuses(&outcome), server.connection_count()), (vec![(200, 3)], 1));
    assert!(records.iter().all(|record| record.response_body == b"abc" && record.bytes_in == 3));
}

#[test]
fn an_early_close_is_a_failure_with_its_time_and_never_an_answer() {
    let server = Server::start(|mut peer, _| peer.read_request_head().map(|_| ())).unwrap();
    let (outcome, records) = recorded(some(&server, 4));
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.fault_count(RequestFault::ClosedEarly)),
        (0, 4)
    );
    assert_eq!(outcome.total_stats.times_of_class(OutcomeClass::Failed).response_time.count(), 4);
    assert_eq!(outcome.total_stats.times_of_class(OutcomeClass::Good).response_time.count(), 0);
    assert!(records.iter().all(|record| record.code == 0 && record.error == "EOF before the response"));
}

#[test]
fn a_race_lost_against_a_closing_server_is_retried_once_on_a_new_connection() {
    // Answers one request and closes upon the second, as if its idle timer had fired just then.
    let server = Server::start(|mut peer, _| {
        peer.read_request_head()?;
        peer.send(OK.as_bytes())?;
        peer.read_request_head().map(|_| ())
    });
    let server = server.unwrap();
    let outcome = run(some(&server, 5));
    assert_eq!((statuses(&outcome), outcome.total_stats.retried), (vec![(200, 5)], 4));
    let mut plan = some(&server, 4);
    plan.session.transport.retries_enabled = false;
    let outcome = run(plan);
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.retried),
        (2, 0),
        "nobody wants to hear of it again"
    );
    let posting = Server::start(|mut peer, _| {
        peer.read_request_head()?;
        peer.read_body(1)?;
        peer.send(OK.as_bytes())?;
        peer.read_request_head().map(|_| ())
    });
    let posting = posting.unwrap();
    let mut plan = some(&posting, 2);
    plan.session.source = source("POST", &posting.url_of_path("/"), "x");
    let outcome = run(plan);
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.fault_count(RequestFault::ClosedEarly)),
        (1, 1),
        "a POST is not repeated"
    );
}

#[test]
fn a_reset_within_a_body_and_a_short_body_are_failures() {
    let server = Server::start(|mut peer, number| {
        peer.read_request_head()?;
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")?;
        if number == 0 { peer.reset() } else { Ok(()) }
    });
    let outcome = run(some(&server.unwrap(), 2));
    assert_eq!(outcome.total_stats.good_count(), 0);
    let reset = RequestFault::ConnectionIoError(std::io::ErrorKind::ConnectionReset);
    // A reset may overtake the bytes before it; then it is a reset before the first byte, which is broken, too.
    assert_eq!(
        (outcome.total_stats.fault_count(reset), outcome.total_stats.fault_count(RequestFault::Truncated)),
        (1, 1)
    );
}

#[test]
fn a_half_closed_connection_brings_its_answer_and_is_not_used_again() {
    let server = Server::start(|mut peer, _| {
        peer.read_request_head()?;
        peer.send(OK.as_bytes())?;
        peer.half_close_and_wait()
    });
    let server = server.unwrap();
    let outcome = run(some(&server, 3));
    assert_eq!((statuses(&outcome), server.connection_count()), (vec![(200, 3)], 3));
}

#[test]
fn a_connection_that_switched_protocols_is_not_used_again() {
    let server = Server::start_answering("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n").unwrap();
    let outcome = run(some(&server, 3));
    assert_eq!((statuses(&outcome), server.connection_count()), (vec![(101, 3)], 3));
}

#[test]
fn bytes_beyond_the_stated_length_cost_the_connection_not_the_answer() {
    let server = Server::start_answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi, there").unwrap();
    let outcome = run(some(&server, 3));
    assert_eq!((statuses(&outcome), server.connection_count()), (vec![(200, 3)], 3));
}

/// The server took the head of the second request for a part of the first one's body.
#[test]
fn a_connection_answered_before_it_took_the_whole_request_was_used_again() {
    let server = Server::start(|mut peer, _| {
        peer.read_request_head()?;
        peer.send(OK.as_bytes())?;
        peer.wait_for_close()
    });
    let server = server.unwrap();
    let mut plan = some(&server, 3);
    plan.session.source = source("POST", &server.url_of_path("/"), &"x".repeat(20 << 20));
    let outcome = run(plan);
    assert_eq!((statuses(&outcome), server.connection_count()), (vec![(200, 3)], 3));
}

/// Writing failed, and the reason that stood in the socket was thrown away.
#[test]
fn a_server_that_refuses_a_long_body_and_closes_is_heard() {
    let server = Server::start(|mut peer, _| {
        peer.read_request_head()?;
        // The rest of the body is never read, so that closing resets the connection.
        peer.send(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    });
    let server = server.unwrap();
    let mut plan = some(&server, 10);
    plan.session.source = source("POST", &server.url_of_path("/"), &"x".repeat(20 << 20));
    assert_eq!(statuses(&run(plan)), [(413, 10)]);
}

/// `-max-body=-1` is all of a body up to a limit, which was kept in silence.
#[test]
fn a_body_of_which_less_is_kept_than_came_is_warned_of() {
    static LONGEST: AtomicU64 = AtomicU64::new(0);
    let server = Server::start_answering(OK).unwrap();
    for (max_body, warned) in [(2, 0), (1, 2)] {
        let results = ResultsOutput {
            format: ResultFormat::Csv,
            output: Box::new(Sink::default()),
            max_body,
            cut_body_callback: Some(|bytes| _ = LONGEST.fetch_max(bytes, Ordering::Relaxed)),
            write_connection_timings: false,
            on_slow_output: SlowOutputPolicy::Wait,
        };
        let outcome = engine::start_single_trial(some(&server, 2), Some(results)).unwrap().finish();
        assert_eq!(outcome.total_stats.good_count(), 2);
        assert_eq!(LONGEST.load(Ordering::Relaxed), warned);
    }
}

#[test]
fn some_answers_of_each_outcome_are_kept_for_a_look_and_records_stay_as_they_were_asked_for() {
    let server = Server::start(|mut peer, _| {
        for request in 0.. {
            peer.read_request_head()?;
            match request % 3 {
                0 => peer.send(OK.as_bytes())?,
                1 => peer.send(b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nlate")?,
                _ => {
                    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut")?;
                    return peer.half_close_and_wait();
                }
            }
        }
        Ok(())
    });
    let server = server.unwrap();
    let mut plan = some(&server, 12);
    plan.load.max_response_samples_per_outcome = 2;
    let sink = Sink::default();
    let output = Box::new(sink.clone());
    let results = ResultsOutput {
        format: ResultFormat::Csv,
        output,
        max_body: 1,
        cut_body_callback: None,
        write_connection_timings: false,
        on_slow_output: SlowOutputPolicy::Wait,
    };
    let outcome = engine::start_single_trial(plan, Some(results)).unwrap().finish();
    let told: Vec<_> = outcome
        .total_stats
        .response_samples
        .iter()
        .map(|sample| (sample.status, sample.fault, String::from_utf8_lossy(&sample.body).into_owned()))
        .collect();
    let three = [
        (200, None, "hi".into()),
        (503, None, "late".into()),
        (200, Some(RequestFault::Truncated), "cut".into()),
    ];
    assert_eq!(told, [three.clone(), three].concat());
    let second = outcome.total_stats.response_samples.iter().nth(1).unwrap();
    assert_eq!(second.header_lines, b"Content-Length: 4\r\nRetry-After: 7\r\n");
    let csv = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
    // One byte of "hi" and of "late".
    assert_eq!((csv.matches(",aA==,").count(), csv.matches(",bA==,").count()), (4, 4), "{csv}");
}

#[test]
fn what_is_no_http_is_a_failure() {
    let server = Server::start_answering("SSH-2.0-OpenSSH_9.2\r\n").unwrap();
    let (outcome, records) = recorded(some(&server, 1));
    assert_eq!(outcome.total_stats.good_count(), 0);
    assert!(records[0].error.starts_with("malformed HTTP response"), "{}", records[0].error);
}

#[test]
fn statuses_outside_200_to_399_are_errors_that_read_like_the_status_line() {
    let server =
        Server::start_answering("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n").unwrap();
    let (outcome, records) = recorded(some(&server, 1));
    assert_eq!(records[0].error, "429 Too Many Requests");
    assert_eq!(
        (
            outcome.total_stats.good_count(),
            outcome.total_stats.times_of_class(OutcomeClass::BadStatus).response_time.count()
        ),
        (0, 1)
    );
}

/// A head of 300,000 bytes failed with an error that did not say how many are allowed.
#[test]
fn a_head_beyond_the_limit_is_an_error_that_names_the_limit() {
    let answer = |length: usize| {
        let server = Server::start(move |mut peer, _| {
            peer.read_request_head()?;
            let value = "a".repeat(length);
            peer.send(format!("HTTP/1.1 200 OK\r\nX-Long: {value}\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
            peer.wait_for_close()
        });
        let (_, records) = recorded(some(&server.unwrap(), 1));
        (records[0].code, records[0].error.clone())
    };
    assert_eq!(answer(250_000), (200, String::new()));
    let (code, error) = answer(300_000);
    assert!(
        code == 0 && error.starts_with("the response head has more than 262144 bytes or "),
        "{code} {error}"
    );
}

/// A server answered each fifth request with an error in the body and status 200: 100 of 100 were good.
#[test]
fn a_wrong_answer_is_a_failure_with_its_reason_and_keeps_its_body() {
    let server = Server::start(|mut peer, _| {
        for number in 1.. {
            peer.read_request_head()?;
            let body = if number % 5 == 0 { r#"{"error":"db down"}"# } else { r#"{"status":"ok"}"# };
            let head =
                format!("HTTP/1.1 200 OK\r\nX-Number: {number}\r\nContent-Length: {}\r\n\r\n", body.len());
            peer.send(&[head.as_bytes(), body.as_bytes()].concat())?;
        }
        Ok(())
    });
    let server = server.unwrap();
    let mut plan = expecting(&server, 100, &["status=2xx", "json:/status=ok"]);
    plan.load.max_response_samples_per_outcome = 1;
    let (outcome, records) = recorded(plan);
    let wrong = RequestFault::WrongAnswer(WrongAnswer::Condition(ExpectationSubject::Json));
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.fault_count(wrong), server.connection_count()),
        (80, 20, 1)
    );
    assert_eq!(outcome.total_stats.times_of_class(OutcomeClass::WrongAnswer).response_time.count(), 20);
    let summary = Summary::new(&outcome);
    assert_eq!(
        summary.status_codes.iter().collect::<Vec<_>>(),
        [(&200, &100)],
        "the server sent 200 each time"
    );
    assert_eq!(
        summary.wrong_answers.into_iter().collect::<Vec<_>>(),
        [(r#"json:/status is not "ok""#.to_owned(), 20)]
    );
    assert!((summary.error_ratio - 0.2).abs() < 1e-9);
    let (right, wrong) = (&records[3], &records[4]);
    assert_eq!((right.code, right.error.as_str()), (200, ""));
    assert_eq!((wrong.code, wrong.error.as_str()), (0, r#"wrong-answer: json:/status is not "ok""#));
    assert_eq!(wrong.response_body, br#"{"error":"db down"}"#);
    assert!(wrong.response_headers.iter().any(|header| header == (b"X-Number", b"5")));
    let sample = outcome.total_stats.response_samples.iter().find(|sample| sample.fault.is_some()).unwrap();
    assert_eq!((sample.status, &*sample.body), (200, &br#"{"error":"db down"}"#[..]));
}

#[test]
fn a_condition_is_tested_across_chunks_and_on_the_answer_that_a_redirect_leads_to() {
    let server = Server::start(|mut peer, _| {
        loop {
            let request = peer.read_request_head()?;
            let answer: &[u8] = if request.starts_with("GET /x ") {
                b"HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 5\r\n\r\nwrong"
            } else {
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nal\r\n3\r\nl i\r\n6\r\ns well\r\n0\r\n\r\n"
            };
            peer.send(answer)?;
        }
    });
    let server = server.unwrap();
    let conditions = ["status=200", "body~all is well", "body!~wrong", "body=~^all.*well$", "length=11"];
    let outcome = run(expecting(&server, 5, &conditions));
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.redirects),
        (5, 5),
        "{:?}",
        outcome.total_stats.wrong_answers
    );
}

#[test]
fn a_target_without_conditions_is_not_held_to_those_of_another() {
    let server = Server::start_answering(OK).unwrap();
    let text = format!("# expect=body~bye\nGET {0}\n\nGET {0}\n", server.url_of_path("/x"));
    let reader = TargetReader::new(
        "t",
        Box::new(std::io::Cursor::new(text)),
        target::TargetFormat::Http,
        TargetDefaults::default(),
    );
    let mut plan = some(&server, 10);
    let list = RequestReader::new(reader, RequestFraming::default(), None).read_all().unwrap();
    plan.session.source = RequestSource::List(list);
    let (outcome, records) = recorded(plan);
    assert_eq!(outcome.total_stats.good_count(), 5);
    let errors: Vec<_> = records.iter().map(|record| record.error.as_str()).collect();
    assert_eq!(errors, [r#"wrong-answer: body lacks "bye""#, ""].repeat(5));
}

#[test]
fn a_reason_outside_ascii_is_in_the_error_as_vegeta_reads_it() {
    let server = Server::start_answering(b"HTTP/1.1 404 Introuv\xe9\r\nContent-Length: 0\r\n\r\n").unwrap();
    let (_, records) = recorded(some(&server, 1));
    assert_eq!(records[0].error, "404 Introuv\u{fffd}");
}

#[test]
fn a_status_that_nobody_registered_is_a_status() {
    let server = Server::start_answering("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n").unwrap();
    let (outcome, records) = recorded(some(&server, 1));
    assert_eq!(statuses(&outcome), [(999, 1)]);
    assert_eq!((records[0].code, records[0].error.as_str()), (999, "999 Odd"));
}

#[test]
fn a_head_of_many_lines_is_an_answer() {
    let cookies: String = (0..1000).map(|n| format!("Set-Cookie: c{n}={}\r\n", "x".repeat(100))).collect();
    let server = Server::start_answering(format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 2\r\n\r\nhi"));
    let (outcome, records) = recorded(some(&server.unwrap(), 1));
    assert_eq!(statuses(&outcome), [(200, 1)]);
    assert_eq!(records[0].response_headers.iter().count(), 1001);
}

#[test]
fn an_endless_body_ends_with_the_timeout_and_is_kept_in_part() {
    let server = Server::start(|mut peer, _| {
        peer.read_request_head()?;
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        loop {
            peer.send(b"5\r\nabcde\r\n")?;
        }
    });
    let server = server.unwrap();
    let mut plan = some(&server, 1);
    plan.session.transport.timeout = Some(Duration::from_millis(100));
    let (outcome, records) = recorded(plan);
    assert_eq!(outcome.total_stats.fault_count(RequestFault::Timeout), 1);
    assert!(outcome.total_stats.bytes_in > 0);
    assert_eq!((records[0].code, records[0].response_body.len()), (0, 0));
}

#[test]
fn a_timeout_is_in_the_histogram_with_the_time_it_took() {
    let server = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let mut plan = some(&server, 2);
    plan.session.transport.timeout = Some(Duration::from_millis(50));
    let outcome = run(plan);
    let times = outcome.total_stats.times_of_class(OutcomeClass::TimedOut);
    assert_eq!((times.service_time.count(), outcome.total_stats.completed), (2, 2));
    assert!(
        times.service_time.min() >= 49_900_000,
        "{} within the histogram's 0.1 %",
        times.service_time.min()
    );
}

#[test]
fn a_silent_server_holds_no_more_than_the_bound_and_the_run_ends_on_time() {
    let server = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let mut plan = open(&server, "2000", Duration::from_millis(300));
    plan.load.in_flight_limit = InFlightLimit { limit: 5, on_saturation: SaturationPolicy::Queue };
    plan.session.transport.timeout = Some(Duration::from_millis(100));
    let outcome = run(plan);
    assert_eq!(outcome.total_stats.in_flight_peak, 5);
    assert!(outcome.total_stats.sent >= 5 && outcome.total_stats.sent <= 20, "{}", outcome.total_stats.sent);
    assert_eq!(
        (outcome.scheduled_count, outcome.total_stats.completed),
        (Some(600), outcome.total_stats.sent)
    );
    assert!(outcome.elapsed_after_warm_up < SECOND, "the backlog was not sent after the end");
    assert!(
        outcome.total_stats.all_times().response_time.max()
            > outcome.total_stats.all_times().service_time.max(),
        "waiting for room is in the response time"
    );
}

#[test]
fn hits_that_find_no_room_are_counted_and_recorded_when_the_policy_is_to_drop() {
    let server = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let mut plan = open(&server, "1000", Duration::from_millis(200));
    plan.load.in_flight_limit = InFlightLimit { limit: 3, on_saturation: SaturationPolicy::Drop };
    plan.session.transport.timeout = Some(Duration::from_secs(1));
    let (outcome, records) = recorded(plan);
    assert_eq!(
        (outcome.total_stats.sent, outcome.total_stats.fault_count(RequestFault::Dropped), records.len()),
        (3, 197, 200)
    );
    assert_eq!(
        outcome.total_stats.all_times().response_time.count(),
        3,
        "what was never sent has no latency"
    );
}

#[test]
fn a_closed_loop_that_was_to_drop_dropped_for_ever() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = some(&server, 10);
    plan.load.in_flight_limit.on_saturation = SaturationPolicy::Drop;
    assert_eq!(statuses(&run(plan)), [(200, 10)]);
}

#[test]
fn a_drain_waits_for_answers_and_an_abort_does_not_and_no_result_is_lost() {
    let server = Server::start_answering(OK).unwrap();
    let plan = open(&server, "1000", Duration::from_secs(60));
    let running = engine::start_single_trial(plan, None).unwrap();
    let control = running.control();
    while control.elapsed() < SECOND / 20 {
        std::thread::yield_now();
    }
    control.drain();
    let outcome = running.finish();
    assert!(outcome.stop_reason == Some(RunStopReason::Commanded) && outcome.total_stats.sent > 0);
    assert_eq!(outcome.total_stats.completed, outcome.total_stats.sent);
    assert_eq!(statuses(&outcome), [(200, outcome.total_stats.sent)]);

    let silent = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let running = engine::start_single_trial(open(&silent, "1000", Duration::from_secs(60)), None).unwrap();
    let control = running.control();
    while control.elapsed() < SECOND / 20 {
        std::thread::yield_now();
    }
    control.drain();
    control.abort();
    let outcome = running.finish();
    assert!(outcome.total_stats.sent > 0);
    // Some may not have had their connections yet.
    assert_eq!(
        outcome.total_stats.fault_count(RequestFault::Aborted),
        outcome.total_stats.sent + outcome.total_stats.no_connection
    );
}

/// An output whose reader stands still until the other end is dropped.
struct Stuck(Receiver<()>);

impl Write for Stuck {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.recv();
        Err(std::io::ErrorKind::BrokenPipe.into())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_abort_ends_a_run_whose_results_nobody_reads() {
    let server = Server::start_answering(OK).unwrap();
    for on_slow_output in [SlowOutputPolicy::Wait, SlowOutputPolicy::Drop] {
        let (reader, stuck) = channel();
        let output = Box::new(Stuck(stuck));
        let results = ResultsOutput {
            format: ResultFormat::Csv,
            output,
            max_body: 0,
            cut_body_callback: None,
            write_connection_timings: false,
            on_slow_output,
        };
        let running =
            engine::start_single_trial(open(&server, "1000", Duration::from_secs(60)), Some(results))
                .unwrap();
        let control = running.control();
        while control.elapsed() < SECOND / 20 {
            std::thread::yield_now();
        }
        control.drain();
        control.abort();
        let outcome = running.finish();
        assert!(
            matches!(outcome.records_written, Err(EncodeError::EndedWhileOutputBlocked)),
            "{:?}",
            outcome.records_written
        );
        assert!(outcome.total_stats.sent > 0);
        drop(reader);
    }
}

/// They were all charged to the first.
#[test]
fn hits_that_are_never_sent_count_under_their_own_targets() {
    let server = Server::start_answering(OK).unwrap();
    let file = format!(
        "GET {}\n\nGET {}\n\nGET {}\n",
        server.url_of_path("/0"),
        server.url_of_path("/1"),
        server.url_of_path("/2")
    );
    let reader = TargetReader::new(
        "x",
        Box::new(std::io::Cursor::new(file)),
        target::TargetFormat::Http,
        TargetDefaults::default(),
    );
    let list = RequestReader::new(reader, RequestFraming::default(), None).read_all().unwrap();
    let mut plan = open(&server, "100", Duration::from_millis(60));
    plan.session.source = RequestSource::List(list);
    plan.session.transport.deadline = Some(Duration::ZERO);
    plan.load.collect_target_outcomes = true;
    let outcome = run(plan);
    let counts: Vec<_> =
        outcome.total_stats.outcomes.iter().map(|(target, one)| (target, one.count)).collect();
    assert_eq!(counts, [(0, 2), (1, 2), (2, 2)]);
}

#[test]
fn redirects_are_followed_counted_and_bounded() {
    let server = Server::start(|mut peer, _| {
        loop {
            let head = peer.read_request_head()?;
            if head.starts_with("GET /done ") {
                peer.send(OK.as_bytes())?;
            } else {
                let next = if head.starts_with("GET /loop") { "/loop" } else { "done" };
                let answer = format!("HTTP/1.1 302 Found\r\nLocation: {next}\r\nContent-Length: 0\r\n\r\n");
                peer.send(answer.as_bytes())?;
            }
        }
    });
    let server = server.unwrap();
    let outcome = run(some(&server, 2));
    assert_eq!(
        (statuses(&outcome), outcome.total_stats.redirects, server.connection_count()),
        (vec![(200, 2)], 2, 1)
    );
    let mut plan = some(&server, 1);
    plan.session.source = source("GET", &server.url_of_path("/loop"), "");
    plan.session.transport.max_redirects = Some(3);
    let outcome = run(plan);
    assert_eq!(
        (outcome.total_stats.fault_count(RequestFault::TooManyRedirects), outcome.total_stats.redirects),
        (1, 3)
    );
    let mut plan = some(&server, 1);
    plan.session.transport.max_redirects = None;
    assert_eq!(statuses(&run(plan)), [(302, 1)]);
}

/// They named the last URL, and vegeta's name the first.
#[test]
fn a_record_of_a_redirected_request_names_what_was_asked_for() {
    let server = Server::start(|mut peer, _| {
        for location in ["/b", "/c"] {
            peer.read_request_head()?;
            let head = format!("HTTP/1.1 303 x\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            peer.send(head.as_bytes())?;
        }
        peer.read_request_head()?;
        peer.send(OK.as_bytes())
    });
    let server = server.unwrap();
    let mut plan = some(&server, 1);
    plan.session.source = source("PUT", &server.url_of_path("/a"), "");
    let (outcome, records) = recorded(plan);
    assert_eq!((statuses(&outcome), outcome.total_stats.redirects), (vec![(200, 1)], 2));
    assert_eq!(
        (records[0].method.as_str(), records[0].url.as_str()),
        ("PUT", server.url_of_path("/a").as_str())
    );
}

#[test]
fn a_redirect_to_nowhere_is_the_answer() {
    for location in ["", "Location: \r\n"] {
        let answer = format!("HTTP/1.1 302 Found\r\n{location}Content-Length: 0\r\n\r\n");
        let outcome = run(some(&Server::start_answering(answer).unwrap(), 1));
        assert_eq!((statuses(&outcome), outcome.total_stats.redirects), (vec![(302, 1)], 0), "{location:?}");
    }
}

#[test]
fn a_refused_connection_names_the_reason() {
    let address = Server::start_answering(OK).unwrap().address();
    let mut plan = RunPlan::new(source("GET", &format!("http://{address}/"), ""), ArrivalModel::Closed);
    plan.load.stop_condition.max_requests = 2;
    let (outcome, records) = recorded(plan);
    let refused = RequestFault::Connect(std::io::ErrorKind::ConnectionRefused);
    assert_eq!((outcome.total_stats.fault_count(refused), outcome.total_stats.connections), (2, 0));
    assert_eq!(records[0].error, "connect: connection refused");
}

#[test]
fn the_warm_up_is_sent_and_not_counted() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = open(&server, "1000", Duration::from_millis(200));
    plan.load.warm_up = Duration::from_millis(100);
    let (outcome, records) = recorded(plan);
    assert_eq!(
        (outcome.scheduled_count, outcome.total_stats.sent, outcome.total_stats.completed, records.len()),
        (Some(100), 100, 100, 100)
    );
}

/// They began with the trial: a second at the bound excused hits that were not sent long after it.
#[test]
fn what_happens_in_the_warm_up_is_in_no_figure_of_what_follows() {
    let server = Server::start(|mut peer, _| {
        peer.read_request_head()?;
        peer.send(b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n")?;
        // The second is never answered.
        peer.read_request_head()?;
        peer.wait_for_close()
    });
    let server = server.unwrap();
    let mut plan = open(&server, "100", Duration::from_secs(1));
    plan.load.warm_up = Duration::from_millis(995);
    plan.load.in_flight_limit.limit = 1;
    // The last hit is sent at 0.7 s.
    plan.session.transport.timeout = Some(Duration::from_millis(350));
    let RunOutcome { total_stats: total, elapsed_after_warm_up: elapsed, scheduled_count: scheduled, .. } =
        run(plan);
    assert!(server.connection_count() > 1);
    assert_eq!((scheduled, total.completed, total.in_flight_peak), (Some(0), 0, 0));
    assert_eq!((total.redirects, total.retried, total.connections), (0, 0, 0));
    assert!(total.saturated_time <= elapsed, "{} of {elapsed}", total.saturated_time);
    assert!(total.connect.count() > 1, "the times of handshakes are of all of them");
}

#[test]
fn requests_of_the_warm_up_were_among_the_times_of_writing() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = open(&server, "1000", Duration::from_millis(200));
    plan.load.warm_up = Duration::from_millis(100);
    let outcome = run(plan);
    assert_eq!((outcome.total_stats.sent, outcome.total_stats.write.count()), (100, 100));
}

#[test]
fn a_changed_rate_takes_effect_while_running() {
    let server = Server::start_answering(OK).unwrap();
    // Unchanged it would take a minute.
    let mut plan = open(&server, "1", Duration::from_secs(3600));
    plan.load.stop_condition.max_requests = 60;
    let running = engine::start_single_trial(plan, None).unwrap();
    assert!(running.control().set_rate("1000".parse().unwrap()));
    let outcome = running.finish();
    assert_eq!((outcome.total_stats.good_count(), outcome.scheduled_count), (60, Some(60)));
    assert!(outcome.elapsed_after_warm_up < 30 * SECOND, "{}", outcome.elapsed_after_warm_up);
}

#[test]
fn connections_per_host_are_bounded_and_who_waits_is_served_in_turn() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = open(&server, "5000", Duration::from_millis(200));
    plan.session.transport.max_connections = 2;
    plan.session.max_threads = 4;
    let outcome = run(plan);
    assert_eq!((outcome.total_stats.good_count(), server.connection_count(), outcome.threads), (1000, 2, 2));
}

/// The loop slept on, and the next request ran out of its own time unsent. That it does not has a few tries: on a busy
/// machine the time that is left may be too short.
#[test]
fn a_connection_that_a_timeout_freed_is_given_to_who_waits_for_one() {
    let served = || {
        let server = Server::start(|mut peer, number| {
            peer.read_request_head()?;
            if number == 0 { peer.wait_for_close() } else { peer.send(OK.as_bytes()) }
        });
        let server = server.unwrap();
        let mut plan = open(&server, "22", Duration::from_millis(60));
        plan.session.transport.max_connections = 1;
        plan.session.transport.timeout = Some(Duration::from_millis(110));
        let outcome = run(plan);
        assert_eq!(outcome.total_stats.completed, 2);
        outcome.total_stats.good_count() == 1
    };
    assert!((0..10).any(|_| served()));
}

#[test]
fn a_run_ends_when_its_errors_are_spent() {
    let server = Server::start_answering("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut plan = open(&server, "1000", Duration::from_secs(60));
    plan.load.error_budget = Some(ErrorBudget::Share(0.5));
    let outcome = run(plan);
    assert_eq!(outcome.stop_reason, Some(RunStopReason::ErrorBudget));
    assert_eq!(outcome.total_stats.completed, outcome.total_stats.sent);
    assert!(outcome.total_stats.sent >= 100 && outcome.elapsed_after_warm_up < 30 * SECOND);
}

/// A closed loop of one client towards a URL that is not necessarily a server's own.
fn towards(url: &str, requests: u64) -> RunPlan {
    let mut plan = RunPlan::new(source("GET", url, ""), ArrivalModel::Closed);
    plan.load.stop_condition.max_requests = requests;
    plan.load.in_flight_limit.limit = 1;
    plan
}

#[test]
fn a_name_is_looked_up_as_often_as_the_user_wants() {
    let server =
        Server::start_answering("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
    let url = format!("http://localhost:{}/", server.address().port());
    for (lifetime, lookups) in [(AddressLifetime::Run, 1), (AddressLifetime::Connection, 4)] {
        let mut plan = towards(&url, 4);
        plan.session.transport.dial.address_lifetime = lifetime;
        let outcome = run(plan);
        assert_eq!(
            (outcome.total_stats.good_count(), outcome.total_stats.lookup.count()),
            (4, lookups),
            "{lifetime:?}"
        );
    }
}

/// A DNS server that answers the first question, and then none before it has got so many.
fn reluctant(questions: usize) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        // Each is two, for the kinds of addresses.
        for count in [2, 2 * questions] {
            let asked: Vec<_> = (0..count).map(|_| question(&socket)).collect();
            asked.iter().for_each(|(question, peer)| _ = socket.send_to(&loopback_for(question), peer));
        }
    });
    address
}

fn question(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 512];
    let (length, peer) = socket.recv_from(&mut buffer).unwrap();
    buffer.truncate(length);
    (buffer, peer)
}

/// 127.0.0.1 for a question of kind A, and no address of the other kind.
fn loopback_for(question: &[u8]) -> Vec<u8> {
    let is_a = question[question.len() - 3] == 1;
    let mut answer = question.to_vec();
    (answer[2], answer[3], answer[7]) = (0x81, 0x80, u8::from(is_a));
    if is_a {
        answer.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\0\x01\0\x04\x7f\0\0\x01");
    }
    answer
}

/// One thread asked, one name after the other, and all that waited shared what it got.
#[test]
fn names_are_looked_up_side_by_side_and_for_each_connection_where_that_is_asked_for() {
    let server = Server::start_answering("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let server = server.unwrap();
    let mut plan = towards(&format!("http://shop.example.:{}/", server.address().port()), 21);
    plan.load.in_flight_limit.limit = 21;
    plan.session.transport.dial.address_lifetime = AddressLifetime::Connection;
    // The one before the run serves the first connection; the others wait for each other's questions.
    plan.session.transport.dial.dns_servers = Arc::new(DnsServers::new(vec![reluctant(20)], ""));
    let outcome = run(plan);
    assert_eq!((outcome.total_stats.good_count(), outcome.total_stats.lookup.count()), (21, 21));
    assert_eq!((outcome.total_stats.connections, server.connection_count()), (21, 21));
}

#[test]
fn a_name_that_nobody_knows_is_a_failure_of_its_own() {
    let outcome = run(towards("http://does-not-exist.invalid/", 2));
    assert_eq!(outcome.total_stats.fault_count(RequestFault::Resolve(NameFault::System)), 2);
}

#[test]
fn connections_go_where_they_are_sent_and_requests_say_where_they_wanted_to() {
    let play = |mut peer: Peer, _| {
        loop {
            let head = peer.read_request_head()?;
            let asked = head.contains("\r\nHost: shop.example\r\n");
            peer.send(if asked { OK.as_bytes() } else { b"HTTP/1.1 400 x\r\nContent-Length: 0\r\n\r\n" })?;
        }
    };
    let (one, two) = (Server::start(play).unwrap(), Server::start(play).unwrap());
    let mut plan = towards("http://shop.example/", 6);
    let places = [&one, &two].map(|server| ("127.0.0.1".to_owned(), server.address().port()));
    plan.session.transport.dial.connect_to.insert(("shop.example".to_owned(), 80), places.into());
    plan.session.transport.max_requests_per_connection = 1;
    let outcome = run(plan);
    assert_eq!((outcome.total_stats.good_count(), one.connection_count(), two.connection_count()), (6, 3, 3));
}

/// An address that refuses at once, as one without a route does, was the last that was tried.
#[test]
fn an_address_without_a_route_is_passed_over() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = towards("http://shop.example/", 6);
    let places = [("255.255.255.255", 80), ("127.0.0.1", server.address().port())]
        .map(|(host, port)| (host.to_owned(), port));
    plan.session.transport.dial.connect_to.insert(("shop.example".to_owned(), 80), places.into());
    plan.session.transport.max_requests_per_connection = 1;
    assert_eq!(run(plan).total_stats.good_count(), 6);
}

/// Whatever began before this call is older than this after it.
fn let_pass(span: Duration) {
    let clock = RunClock::start();
    while clock.now() <= nanos(span) {
        std::thread::yield_now();
    }
}

/// A closed loop of one client over several URLs in turn.
fn around(urls: &[String], requests: u64) -> RunPlan {
    let request = |url: &String| {
        let target = Target { method: "GET".into(), url: url.clone(), ..Target::default() };
        (PreparedRequest::new(&target, &RequestFraming::default()).unwrap(), Weight::default())
    };
    let list = RequestList::new(urls.iter().map(request).collect()).unwrap();
    let mut plan = RunPlan::new(RequestSource::List(list), ArrivalModel::Closed);
    plan.load.stop_condition.max_requests = requests;
    plan.load.in_flight_limit.limit = 1;
    plan
}

#[test]
fn a_connection_as_old_as_it_may_become_is_replaced_and_no_request_fails() {
    for (age, connections) in [
        (Some(Duration::ZERO), 20),
        (Some(Duration::from_nanos(1)), 20),
        (Some(Duration::from_secs(3600)), 1),
        (None, 1),
    ] {
        let server = Server::start_answering(OK).unwrap();
        let mut plan = some(&server, 20);
        plan.session.transport.max_connection_age = age;
        let outcome = run(plan);
        assert_eq!(
            (statuses(&outcome), outcome.total_stats.connections, outcome.total_stats.retried),
            (vec![(200, 20)], connections, 0),
            "{age:?}"
        );
        assert_eq!(server.connection_count() as u64, connections, "{age:?}");
    }
}

const AGE: Duration = Duration::from_millis(20);

/// A connection on which the age passes before each answer.
fn slow(mut peer: Peer, _: usize) -> std::io::Result<()> {
    loop {
        peer.read_request_head()?;
        let_pass(AGE);
        peer.send(OK.as_bytes())?;
    }
}

#[test]
fn a_connection_that_came_of_age_during_its_request_is_not_used_again() {
    let server = Server::start(slow).unwrap();
    let mut plan = some(&server, 3);
    plan.session.transport.max_connection_age = Some(AGE);
    let outcome = run(plan);
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.connections, outcome.total_stats.retried),
        (3, 3, 0)
    );
    let outcome = run(some(&server, 3));
    assert_eq!((outcome.total_stats.good_count(), outcome.total_stats.connections), (3, 1), "without an age");
}

/// It used to carry one more request: only the end of a request looked at the age.
#[test]
fn a_connection_that_came_of_age_while_idle_is_not_used_again() {
    let (quick, slow) = (Server::start_answering(OK).unwrap(), Server::start(slow).unwrap());
    let mut plan = around(&[quick.url_of_path("/"), slow.url_of_path("/")], 6);
    plan.session.transport.max_connection_age = Some(AGE);
    let outcome = run(plan);
    assert_eq!((outcome.total_stats.good_count(), outcome.total_stats.retried), (6, 0));
    assert_eq!((quick.connection_count(), slow.connection_count()), (3, 3));
}

/// A server that writes down where its connections come from.
fn witness() -> (Server, Arc<Mutex<Vec<IpAddr>>>) {
    let callers = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&callers);
    let server = Server::start(move |mut peer, _| {
        seen.lock().unwrap().push(peer.address()?.ip());
        loop {
            peer.read_request_head()?;
            peer.send(OK.as_bytes())?;
        }
    });
    (server.unwrap(), callers)
}

fn loopback(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// On no machine: for documentation (RFC 5737).
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

#[test]
fn connections_come_from_the_source_addresses_in_turn_and_from_no_other() {
    let (server, callers) = witness();
    let mut plan = some(&server, 7);
    plan.session.transport.max_requests_per_connection = 1;
    plan.session.transport.source_addresses = vec![loopback(2), loopback(3)];
    let outcome = run(plan);
    assert_eq!((outcome.total_stats.good_count(), outcome.total_stats.connections), (7, 7));
    let turns = [2, 3, 2, 3, 2, 3, 2].map(loopback);
    assert_eq!(*callers.lock().unwrap(), turns);
}

#[test]
fn every_thread_sent_from_the_first_source_address() {
    let (server, callers) = witness();
    let mut plan = open(&server, "1000", Duration::from_millis(100));
    (plan.session.max_threads, plan.session.transport.max_connections) = (2, 2);
    plan.session.transport.source_addresses = vec![loopback(2), loopback(3)];
    let outcome = run(plan);
    assert_eq!((outcome.total_stats.good_count(), outcome.threads), (100, 2));
    let mut callers = callers.lock().unwrap().clone();
    callers.sort_unstable();
    assert_eq!(callers, [2, 3].map(loopback));
}

#[test]
fn a_source_address_of_another_machine_is_an_error_of_each_request_that_names_it() {
    let (server, callers) = witness();
    let mut plan = some(&server, 6);
    plan.session.transport.max_requests_per_connection = 1;
    plan.session.transport.source_addresses = vec![NOWHERE, loopback(2)];
    let (outcome, records) = recorded(plan);
    assert_eq!((outcome.total_stats.good_count(), outcome.total_stats.completed), (3, 6));
    assert_eq!(*callers.lock().unwrap(), [loopback(2); 3]);
    for record in records {
        let expected =
            if record.seq % 2 == 0 { "cannot open a socket on 192.0.2.1: address not available" } else { "" };
        assert_eq!(record.error, expected, "{}", record.seq);
    }
}

/// The system chose an address then, as if none had been asked for.
#[test]
fn a_source_address_of_the_other_family_is_passed_over_or_is_an_error() {
    let (server, callers) = witness();
    let six: IpAddr = std::net::Ipv6Addr::LOCALHOST.into();
    let mut plan = some(&server, 4);
    plan.session.transport.max_requests_per_connection = 1;
    plan.session.transport.source_addresses = vec![loopback(2), six, loopback(3)];
    assert_eq!(run(plan).total_stats.good_count(), 4);
    assert_eq!(*callers.lock().unwrap(), [2, 3, 2, 3].map(loopback));
    let mut plan = some(&server, 2);
    plan.session.transport.source_addresses = vec![six];
    let (outcome, records) = recorded(plan);
    assert_eq!((outcome.total_stats.good_count(), callers.lock().unwrap().len()), (0, 4));
    assert!(records.iter().all(|record| record.error == "cannot open a socket on ::1: unsupported"));
}

#[test]
fn of_a_host_with_addresses_of_both_families_those_are_tried_that_the_source_address_can_reach() {
    let (server, callers) = witness();
    let mut plan = towards("http://shop.example/", 4);
    let places = ["::1", "127.0.0.1"].map(|host| (host.to_owned(), server.address().port()));
    plan.session.transport.dial.connect_to.insert(("shop.example".to_owned(), 80), places.into());
    plan.session.transport.max_requests_per_connection = 1;
    plan.session.transport.source_addresses = vec![loopback(2)];
    let outcome = run(plan);
    assert_eq!(
        (outcome.total_stats.good_count(), outcome.total_stats.connections),
        (4, 4),
        "none was tried in vain"
    );
    assert_eq!(*callers.lock().unwrap(), [loopback(2); 4]);
}

#[test]
fn a_unix_socket_takes_everything() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 1024];
        for _ in 0..2 {
            assert!(std::io::Read::read(&mut stream, &mut buffer).unwrap() > 0);
            stream.write_all(OK.as_bytes()).unwrap();
        }
    });
    let mut plan = towards("http://anything/", 2);
    plan.session.transport.dial.unix_socket = Some(path);
    assert_eq!(run(plan).total_stats.good_count(), 2);
    thread.join().unwrap();
}

#[test]
fn a_proxy_gets_whole_urls_or_is_asked_for_a_tunnel() {
    let proxy = Server::start(|mut peer, _| {
        let head = peer.read_request_head()?;
        let answer = if head.starts_with("GET http://shop.example/x HTTP/1.1\r\n") {
            OK
        } else {
            "HTTP/1.1 407 x\r\n\r\n"
        };
        peer.send(answer.as_bytes())
    });
    let proxy = proxy.unwrap();
    let proxies = Arc::new(ProxyRules::for_all(&proxy.url_of_path("")).unwrap());
    for (url, good, refused) in [("http://shop.example/x", 1, 0), ("https://shop.example/", 0, 1)] {
        let style = RequestFraming { proxies: Arc::clone(&proxies), ..RequestFraming::default() };
        let target = Target { method: "GET".into(), url: url.into(), ..Target::default() };
        let request = PreparedRequest::new(&target, &style).unwrap();
        let list = RequestList::new(vec![(request, Weight::default())]).unwrap();
        let mut plan = RunPlan::new(RequestSource::List(list), ArrivalModel::Closed);
        plan.load.stop_condition.max_requests = 1;
        plan.session.framing = style;
        plan.session.transport.dial.proxies = Arc::clone(&proxies);
        plan.session.transport.tls =
            Some(TlsOptions { insecure: true, ..TlsOptions::default() }.config().unwrap());
        let outcome = run(plan);
        assert_eq!(
            (outcome.total_stats.good_count(), outcome.total_stats.fault_count(RequestFault::Proxy(0))),
            (good, refused),
            "{url}"
        );
    }
}

#[test]
fn a_template_that_fills_to_no_request_is_counted_and_never_sent() {
    let server = Server::start_answering(OK).unwrap();
    let mut rows = tempfile::NamedTempFile::new().unwrap();
    rows.write_all(b"fine\nnot\tfine\n").unwrap();
    let file = format!("GET {}/{{{{raw row {}}}}}\n", server.url_of_path(""), rows.path().display());
    let reader = TargetReader::new(
        "t",
        Box::new(std::io::Cursor::new(file)),
        target::TargetFormat::Http,
        TargetDefaults::default(),
    );
    let intake = RequestReader::new(reader, RequestFraming::default(), Some(TemplateReader::new(1)));
    let mut plan = some(&server, 10);
    plan.session.source = RequestSource::List(intake.read_all().unwrap());
    let (outcome, records) = recorded(plan);
    assert_eq!(
        (
            outcome.total_stats.good_count(),
            outcome.total_stats.fault_count(RequestFault::InvalidFilledTemplate),
            records.len()
        ),
        (5, 5, 10)
    );
    assert!(records[1].error.starts_with("the filled template"), "{:?}", records[1]);
}

#[test]
fn intervals_follow_each_other_hold_what_ended_in_them_and_add_up_to_the_run() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = open(&server, "500", Duration::from_millis(420));
    (plan.session.max_threads, plan.load.interval, plan.load.collect_target_outcomes) =
        (2, Duration::from_millis(50), true);
    let (outcome, intervals, records) = told(ResultFormat::Gob, false, plan);
    let (mut from, mut sum) = (0, LoadStats::default());
    for interval in &intervals {
        assert_eq!(interval.from, from);
        let is_last = interval.to == intervals.last().unwrap().to;
        assert!(is_last || interval.to > from && interval.to.is_multiple_of(SECOND / 20), "{}", interval.to);
        let ended = records.iter().filter(|record| {
            let end = record.end_unix_ns() - i128::from(outcome.began_unix_ns);
            i128::from(from) <= end && (end < i128::from(interval.to) || is_last)
        });
        assert_eq!(interval.stats.completed, ended.count() as u64, "from {from} to {}", interval.to);
        let read: IntervalStats = serde_json::from_str(&serde_json::to_string(interval).unwrap()).unwrap();
        assert_eq!(read, *interval);
        sum.merge(&interval.stats);
        from = interval.to;
    }
    assert!(
        intervals.len() > 2 && sum.completed == 210,
        "{} intervals of {}",
        intervals.len(),
        sum.completed
    );
    sum.in_flight_peak = outcome.total_stats.in_flight_peak;
    assert_eq!(sum, LoadStats { lookup: sum.lookup.clone(), ..outcome.total_stats });
}

/// What each hit is, of all that were sent.
fn hits(records: &[Record]) -> Vec<(u64, i128, String, u16)> {
    let hit = |record: &Record| (record.seq, record.due_timestamp.unix_ns(), record.url.clone(), record.code);
    let mut hits: Vec<_> = records.iter().map(hit).collect();
    hits.sort();
    hits
}

#[test]
fn three_generators_send_one_schedule_between_them_and_no_hit_twice() {
    let server = Server::start_answering(OK).unwrap();
    let now = RunClock::start().unix_ns(0);
    let shards =
        [(1, 1), (1, 3), (2, 3), (3, 3)].map(|(number, of)| ScheduleShard::new(number - 1, of).unwrap());
    let start_at = now + 1_000_000_000;
    let generators = shards.map(|shard| {
        let mut plan = open(&server, "500", Duration::from_millis(400));
        plan.session.source =
            around(&["/a", "/b", "/c", "/d"].map(|path| server.url_of_path(path)), 0).session.source;
        (plan.session.max_threads, plan.load.shard, plan.load.start_unix_ns) =
            (shard.shard_count() as usize, shard, Some(start_at));
        std::thread::spawn(move || recorded(plan))
    });
    let [(whole, all), thirds @ ..] = generators.map(|generator| generator.join().unwrap());
    let scheduled = thirds.each_ref().map(|(outcome, _)| outcome.scheduled_count);
    assert_eq!((whole.scheduled_count, scheduled), (Some(200), [Some(67), Some(67), Some(66)]));
    assert!(thirds.iter().all(|(outcome, _)| outcome.began_unix_ns == start_at));
    assert_eq!(whole.began_unix_ns, start_at);
    let together: Vec<_> = thirds.into_iter().flat_map(|(_, records)| records).collect();
    assert_eq!(hits(&together), hits(&all));
}

#[test]
fn three_generators_that_read_one_input_send_each_line_once() {
    let server = Server::start_answering(OK).unwrap();
    let sent = (0..3).flat_map(|index| {
        let file: String =
            (0..100).map(|line| format!("GET {}\n", server.url_of_path(&format!("/{line}")))).collect();
        let input = Box::new(std::io::Cursor::new(file));
        let reader = TargetReader::new("x", input, target::TargetFormat::Http, TargetDefaults::default());
        let mut plan = some(&server, u64::MAX);
        plan.session.source =
            RequestSource::Lazy(RequestReader::new(reader, RequestFraming::default(), None));
        (plan.session.max_threads, plan.load.in_flight_limit.limit, plan.load.shard) =
            (2, 2, ScheduleShard::new(index, 3).unwrap());
        let (outcome, records) = recorded(plan);
        assert!(outcome.input_error.is_none());
        records
    });
    let mut lines: Vec<_> = sent.map(|record| (record.seq, record.url)).collect();
    lines.sort();
    let expected: Vec<_> = (0..100).map(|line| (line, server.url_of_path(&format!("/{line}")))).collect();
    assert_eq!(lines, expected);
}

#[test]
fn a_start_that_has_passed_is_refused_and_nothing_is_sent() {
    let server = Server::start_answering(OK).unwrap();
    let mut plan = open(&server, "500", Duration::from_millis(400));
    plan.load.start_unix_ns = Some(RunClock::start().unix_ns(0) - 1_000_000_000);
    let refused = engine::start_single_trial(plan, None).err().unwrap().to_string();
    assert!(refused.starts_with("the start time is 1."), "{refused}");
    assert_eq!(server.connection_count(), 0);
}
