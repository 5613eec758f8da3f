//! Experiments on servers of this process, of which one way is slower than the others.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use seawall_isolate::segment::{Design, Times};
use seawall_isolate::study::Asked;
use seawall_lab::isolate::answer::{Answer, Outcome, Word};
use seawall_lab::isolate::bench::Bench;
use seawall_lab::isolate::ways::{Named, Way};
use seawall_lab::isolate::{Plan, isolate};
use seawall_load::plan::Travel;
use seawall_load::request::{Request, Style};
use seawall_load::target::Target;
use seawall_load::variant::Variant;
use seawall_testkit::server::{Peer, Server};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// Answers after 20 ms, on the path /slow after half as much again, and on /hung never.
#[expect(clippy::disallowed_methods, reason = "the time that the planted server takes")]
fn planted() -> Server {
    let play = |mut peer: Peer, _| -> io::Result<()> {
        loop {
            let head = peer.request()?;
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
fn way(server: &Server, name: &str, path: &str) -> (Named, Way) {
    let variant = Variant {
        name: name.to_owned(),
        address: None,
        server_name: None,
        protocol: None,
        keep_alive: None,
        insecure: false,
        proxies: None,
    };
    let url = server.url(path);
    let target = Target { method: "GET".into(), url, variant: Some(Arc::new(variant)), ..Target::default() };
    let requests = vec![Request::new(&target, &Style::default()).unwrap()];
    (Named { name: name.to_owned(), what: path.to_owned() }, Way { requests, apart: None })
}

/// Short cells: what is planted is ten times what they need.
fn plan(designs: &[Design], names: Vec<Named>) -> Plan {
    let milliseconds = Duration::from_millis;
    let times = Times {
        segment: milliseconds(1500),
        cell: milliseconds(300),
        block: milliseconds(150),
        settle: milliseconds(50),
    };
    let asked = Asked {
        designs: designs.to_vec(),
        rate: 200.0,
        margin: 0.2,
        tail: false,
        budget: Duration::from_secs(30),
        times,
        seed: 1,
    };
    Plan { asked, ways: names, target: "http://test/".to_owned() }
}

fn carried_out(designs: &[Design], ways: Vec<(Named, Way)>) -> Answer {
    let (names, mut ways): (Vec<_>, Vec<_>) = ways.into_iter().unzip();
    for (way, design) in ways[1..].iter_mut().zip(designs) {
        way.apart = (*design == Design::Blocks).then(Travel::default);
    }
    let mut bench = Bench::new(ways, Travel::default(), Style::default(), 1).unwrap();
    isolate(&mut bench, &plan(designs, names), &mut |_| ())
}

/// What is said of a way: never what is wrong; that the machine was the limit only where it says so.
fn is_said(answer: &Answer, at: usize, word: Word) -> bool {
    let said = answer.variants[at].verdict;
    assert!(matches!(said, Word::Invalid | Word::Undecided) || said == word, "{answer:?}");
    said == word
}

#[test]
fn the_way_that_is_slower_is_blamed_and_the_other_is_not_whether_interleaved_or_in_blocks() {
    for design in [Design::Interleaved, Design::Blocks] {
        let server = planted();
        let ways =
            vec![way(&server, "here", "/"), way(&server, "same", "/same"), way(&server, "slow", "/slow")];
        let answer = carried_out(&[design, design], ways);
        let said = [is_said(&answer, 0, Word::Equal), is_said(&answer, 1, Word::Slower)];
        if said == [true, true] {
            assert_eq!(answer.outcome, Outcome::Decided);
            let gain = answer.variants[1].gain.unwrap();
            assert!((-0.8..-0.2).contains(&gain.point), "half as much again: {gain:?}");
            assert!(answer.took < 30.0);
        }
        assert!(answer.reference.answers > 0 && answer.cells.len() >= 30, "{answer:?}");
    }
}

#[test]
fn what_was_measured_before_it_was_stopped_is_told() {
    let server = planted();
    let (names, ways) = [way(&server, "here", "/"), way(&server, "same", "/same")].into_iter().unzip();
    let mut bench = Bench::new(ways, Travel::default(), Style::default(), 1).unwrap();
    let stop = bench.stop();
    let answer = isolate(&mut bench, &plan(&[Design::Interleaved], names), &mut |_| stop.now());
    assert_eq!((answer.outcome, answer.cut.as_deref()), (Outcome::Interrupted, Some("ended by a signal")));
    assert!(!answer.cells.is_empty(), "the first segment");
    assert!(answer.took < 20.0 && answer.reference.answers > 0, "{answer:?}");
}

/// One connection has as much to carry as all of the reference's have, or it is not they that are compared.
#[test]
fn in_blocks_each_way_has_the_whole_rate_in_its_turn() {
    let server = planted();
    let ways = vec![way(&server, "here", "/"), way(&server, "one connection", "/same")];
    let (names, mut ways): (Vec<_>, Vec<_>) = ways.into_iter().unzip();
    ways[1].apart = Some(Travel { connections: 16, idle: 16, ..Travel::default() });
    let mut bench = Bench::new(ways, Travel::default(), Style::default(), 1).unwrap();
    let stop = bench.stop();
    let answer = isolate(&mut bench, &plan(&[Design::Blocks], names), &mut |_| stop.now());
    let of = |way| answer.cells.iter().filter(move |row| row.way == way).map(|row| row.requests);
    assert!(of(0).eq(of(1)) && of(0).all(|requests| requests == 30), "200/s for 150 ms: {answer:?}");
    assert!(of(0).count() >= 1, "{answer:?}");
}

#[test]
fn a_way_that_leaves_requests_unanswered_ends_the_experiment_and_is_named() {
    let server = planted();
    let ways = vec![way(&server, "here", "/"), way(&server, "hung", "/hung")];
    let (names, ways): (Vec<_>, Vec<_>) = ways.into_iter().unzip();
    let mut bench = Bench::new(ways, Travel::default(), Style::default(), 1).unwrap();
    let mut plan = plan(&[Design::Interleaved], names);
    plan.asked.times.segment = Duration::from_secs(18);
    let answer = isolate(&mut bench, &plan, &mut |_| ());
    assert_eq!(answer.outcome, Outcome::Overloaded, "{answer:?}");
    assert!(answer.cut.unwrap().contains("most of all by \"hung\""));
}
