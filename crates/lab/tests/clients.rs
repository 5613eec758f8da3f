//! Clients that wait for their answers, on real servers on loopback: who is counted, and never how fast.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use seawall_lab::rig::{LocalDriver, SessionConfig};
use seawall_lab::target_driver::TargetDriver;
use seawall_load::plan::TransportOptions;
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::request_source::RequestList;
use seawall_load::schedule::ArrivalSpacing;
use seawall_load::target::{Target as Asked, Weight};
use seawall_search::closed_loop::{ClosedCriteria, ClosedStopRule, ClosedTarget, ClosedTrialSpec};
use seawall_search::goal::SearchGoal;
use seawall_search::observation::{BlockCounts, TrialObservation, sum};
use seawall_search::trial_spec::TrialPurpose;
use seawall_testkit::closure_server::Server;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const REFUSED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

fn rig(server: &Server, bound: Option<Duration>) -> LocalDriver {
    let asked = Asked { method: "GET".into(), url: server.url_of_path("/"), ..Asked::default() };
    let request = PreparedRequest::new(&asked, &RequestFraming::default()).unwrap();
    let list = RequestList::new(vec![(request, Weight::default())]).unwrap();
    let travel = TransportOptions { timeout: Some(Duration::from_secs(5)), ..TransportOptions::default() };
    let kit = SessionConfig {
        request_list: list,
        transport: travel,
        request_framing: RequestFraming::default(),
        max_sender_threads: 2,
        max_busy_poll: Some(Duration::ZERO),
    };
    LocalDriver::new(kit, ArrivalSpacing::Constant, bound).unwrap()
}

fn offer(clients: u32, most: Duration) -> ClosedTrialSpec {
    let standard = ClosedCriteria { goal: SearchGoal::ERRORS_ONLY, settle: 0.3, service_time: 0.001 };
    ClosedTrialSpec {
        purpose: TrialPurpose::NarrowBracket,
        clients,
        pause_after_failure: Duration::from_millis(1),
        min_duration: most,
        max_duration: most,
        rule: ClosedStopRule::FullDurationUnlessBad,
        criteria: standard,
        drain: Duration::from_millis(300),
    }
}

fn errors(seen: &TrialObservation) -> f64 {
    sum(&seen.blocks, |block| block.errors)
}

/// A server that knows how many requests it had at once at most; with fewer places than that it refuses.
fn counting(places: usize) -> (Server, Arc<AtomicUsize>) {
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let told = Arc::clone(&most);
    let server = Server::start(move |mut peer, _| {
        loop {
            peer.read_request_head()?;
            let inside = now.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(inside, Ordering::SeqCst);
            let sent = peer.send(if inside > places { REFUSED } else { OK });
            now.fetch_sub(1, Ordering::SeqCst);
            sent?;
        }
    });
    (server.unwrap(), told)
}

#[test]
fn so_many_clients_are_busy_on_as_many_connections_and_never_more() {
    let (server, inside) = counting(usize::MAX);
    let mut rig = rig(&server, None);
    assert!(rig.max_clients() > 7);
    for clients in [1, 7] {
        let seen = rig.carry_out(&offer(clients, Duration::from_secs(1)));
        assert_eq!((seen.blocks.len(), errors(&seen), seen.interrupted), (15, 0.0, false));
        assert!(seen.blocks.iter().all(|block| block.in_flight == clients), "{seen:?}");
        let (sent, ended) =
            (sum(&seen.blocks, |block| block.sent), sum(&seen.blocks, BlockCounts::ended_count));
        assert_eq!(sent, ended + f64::from(clients), "each has sent again whenever it was answered");
        assert!(ended > f64::from(clients) && inside.load(Ordering::SeqCst) <= clients as usize, "{ended}");
    }
    assert!((7..=8).contains(&server.connection_count()), "one connection for each client, and kept");
}

/// Holds every request until so many are there, so that all of them must have been sent before any was answered.
#[test]
fn all_clients_begin_at_once() {
    const CLIENTS: usize = 40;
    let gate = (Mutex::new(0), Condvar::new());
    let server = Server::start(move |mut peer, _| {
        loop {
            peer.read_request_head()?;
            let mut come = gate.0.lock().unwrap();
            *come += 1;
            gate.1.notify_all();
            drop(gate.1.wait_while(come, |come| *come < CLIENTS).unwrap());
            peer.send(OK)?;
        }
    });
    let seen = rig(server.as_ref().unwrap(), None).carry_out(&offer(CLIENTS as u32, Duration::from_secs(1)));
    assert!(sum(&seen.blocks, |block| block.good) >= CLIENTS as f64, "{seen:?}");
}

#[test]
fn a_target_that_refuses_is_asked_no_longer_than_it_takes_to_know_it() {
    let (server, _) = counting(0);
    let seen = rig(&server, None).carry_out(&offer(4, Duration::from_secs(60)));
    assert!(seen.blocks.len() < 60 * 15 && errors(&seen) > 50.0, "{} blocks", seen.blocks.len());
    assert_eq!(sum(&seen.blocks, |block| block.good), 0.0);
}

#[test]
fn clients_that_get_no_answer_are_late_and_are_closed_without_being_errors() {
    let server = Server::start(|mut peer, _| {
        peer.read_request_head()?;
        peer.wait_for_close()
    });
    let server = server.unwrap();
    let mut rig = rig(&server, Some(Duration::from_millis(100)));
    let offer = ClosedTrialSpec { min_duration: Duration::from_secs(1), ..offer(9, Duration::from_secs(60)) };
    let seen = rig.carry_out(&offer);
    let late = sum(&seen.blocks, |block| block.late);
    assert_eq!((late, errors(&seen), sum(&seen.blocks, BlockCounts::ended_count)), (9.0, 0.0, 0.0));
    assert!(seen.blocks.len() < 4 * 15, "that most of them hang is enough to know");
}

#[test]
fn who_stops_it_ends_the_clients_and_none_asks_after_that() {
    let (server, inside) = counting(usize::MAX);
    let mut rig = rig(&server, None);
    let stop = rig.stop_switch();
    let stopper = std::thread::spawn(move || {
        while inside.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        stop.stop();
    });
    assert!(rig.carry_out(&offer(3, Duration::from_secs(3600))).interrupted);
    stopper.join().unwrap();
    let connections = server.connection_count();
    let seen = rig.carry_out(&offer(3, Duration::from_secs(3600)));
    assert!(
        seen.interrupted
            && seen.blocks.is_empty()
            && !ClosedTarget::rest(&mut rig, Duration::from_secs(3600))
    );
    assert_eq!(server.connection_count(), connections);
}
