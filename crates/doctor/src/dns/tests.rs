use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use seawall_probe::file_reader::fake::Texts;

use super::*;
use crate::finding::test_helpers::{fix, measured, reason};

/// The server's response to a question for a name and a type (1 A, 28 AAAA).
type Reply = fn(&str, u8) -> Said;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    /// An address of the requested type.
    Address,
    NoSuchName,
    Failure,
    Refusal,
    Cut,
    Nothing,
}

/// Returns a server on loopback with this reply until the tests end. With `over_tcp`, it also responds over TCP, with several
/// questions per connection.
fn server(reply: Reply, over_tcp: bool) -> SocketAddr {
    let (socket, listener) = both_at_one_port();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let question = &buffer[..length];
            let (name, kind) = read(question);
            if let Some(message) = written(question, reply(&name, kind)) {
                socket.send_to(&message, peer).unwrap();
            }
        }
    });
    if over_tcp {
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
                    stream.read_exact(&mut question).unwrap();
                    let message = written(&question, Said::Address).unwrap();
                    stream
                        .write_all(&[&(message.len() as u16).to_be_bytes(), &message[..]].concat())
                        .unwrap();
                }
            }
        });
    }
    address
}

/// Binds one port for UDP and TCP. A port that is free for UDP may be in use for TCP, so it tries several.
fn both_at_one_port() -> (UdpSocket, TcpListener) {
    let mut tries = (0..100).map(|_| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let listener = TcpListener::bind(socket.local_addr().unwrap()).ok()?;
        Some((socket, listener))
    });
    tries.find_map(|both| both).unwrap()
}

/// Reads the name and the type of a question.
fn read(question: &[u8]) -> (String, u8) {
    let (mut at, mut labels) = (12, Vec::new());
    while question[at] != 0 {
        let end = at + 1 + usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..end]).into_owned());
        at = end;
    }
    (labels.join("."), question[at + 2])
}

fn written(question: &[u8], said: Said) -> Option<Vec<u8>> {
    let mut message = question.to_vec();
    (message[2], message[3]) = (0x81, 0x80);
    match said {
        Said::Nothing => return None,
        Said::NoSuchName => message[3] = 0x83,
        Said::Failure => message[3] = 0x82,
        Said::Refusal => message[3] = 0x85,
        Said::Cut => message[2] = 0x83,
        Said::Address => {
            let (_, kind) = read(question);
            let length = if kind == 1 { 4 } else { 16 };
            message[7] = 1;
            message.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 1, 0, length]);
            message.extend(std::iter::repeat_n(1, usize::from(length)));
        }
    }
    Some(message)
}

/// Returns the real time, because sockets wait in real time. No test depends on its length.
fn now() -> Duration {
    static CLOCK: OnceLock<seawall_core::Clock> = OnceLock::new();
    let clock = CLOCK.get_or_init(seawall_core::Clock::system);
    Duration::from_nanos(clock.now().as_nanos())
}

/// Long limits for busy machines, for tests in which every question is answered.
const LONG: DnsTimeouts = DnsTimeouts { all: Duration::from_secs(60), each: Duration::from_secs(60) };

/// Short limits for tests that wait for a missing response.
const SHORT: DnsTimeouts = DnsTimeouts { all: Duration::from_secs(60), each: Duration::from_secs(1) };

const POD: &str = "search shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n";

/// Returns a pod's configuration with this server.
fn pod(server: SocketAddr) -> ResolverConfig {
    ResolverConfig { servers: vec![server], ..ResolverConfig::parse(POD, "") }
}

fn looked_up(config: &ResolverConfig, name: &str) -> DoctorFinding {
    judge_lookup(config, name, &look_up(config, name, LONG, &now))
}

/// Only names outside the search domains exist.
fn foreign(name: &str, _: u8) -> Said {
    if name.ends_with("cluster.local") { Said::NoSuchName } else { Said::Address }
}

#[test]
fn ndots_of_five_is_warned_of_and_of_one_is_not() {
    let found = search(&ResolverConfig::parse(POD, ""));
    assert_eq!((found.status, measured(&found, "questions")), (DoctorStatus::Warning, 8.0));
    assert!(found.text.contains("takes 8 questions"), "{}", found.text);
    for healthy in ["search a b c\noptions ndots:1\n", "nameserver 10.0.0.2\n", "search a\noptions ndots:2\n"]
    {
        let found = search(&ResolverConfig::parse(healthy, ""));
        assert_eq!((found.status, measured(&found, "questions")), (DoctorStatus::Ok, 2.0), "{healthy}");
    }
}

#[test]
fn a_name_that_is_searched_takes_eight_questions_and_with_a_dot_behind_it_two() {
    let config = pod(server(foreign, false));
    let found = looked_up(&config, "db.example.com");
    assert_eq!(
        (found.status, measured(&found, "questions"), measured(&found, "rounds")),
        (DoctorStatus::Warning, 8.0, 4.0)
    );
    assert!(fix(&found).contains("with a final dot"), "{found:?}");
    let found = looked_up(&config, "db.example.com.");
    assert_eq!((found.status, measured(&found, "questions")), (DoctorStatus::Ok, 2.0), "{}", found.text);
}

#[test]
fn a_name_of_the_cluster_that_the_first_domain_completes_takes_two() {
    let config = pod(server(
        |name, _| if name == "cart.shop.svc.cluster.local" { Said::Address } else { Said::NoSuchName },
        false,
    ));
    let found = looked_up(&config, "cart");
    assert_eq!((found.status, measured(&found, "questions")), (DoctorStatus::Ok, 2.0), "{}", found.text);
}

#[test]
fn a_server_that_drops_one_of_two_questions_is_a_fault_of_the_lookup() {
    let drops_six: Reply = |_, kind| if kind == 28 { Said::Nothing } else { Said::Address };
    let found = {
        let config = pod(server(drops_six, false));
        judge_lookup(&config, "db.example.com.", &look_up(&config, "db.example.com.", SHORT, &now))
    };
    assert_eq!(found.status, DoctorStatus::Error);
    assert!(reason(&found).starts_with("1 question got no response"), "{found:?}");
}

#[test]
fn an_answer_that_is_cut_is_asked_for_over_tcp_and_must_come() {
    let cut: Reply = |_, kind| if kind == 1 { Said::Cut } else { Said::Address };
    let found = looked_up(&pod(server(cut, true)), "db.example.com.");
    assert_eq!(
        (found.status, measured(&found, "over-tcp"), measured(&found, "questions")),
        (DoctorStatus::Warning, 1.0, 3.0),
        "{}",
        found.text
    );
    let found = looked_up(&pod(server(cut, false)), "db.example.com.");
    assert_eq!(found.status, DoctorStatus::Error);
    assert!(reason(&found).contains("TCP gave no response"), "{found:?}");
}

#[test]
fn a_server_that_fails_is_a_fault_of_the_lookup() {
    let found = looked_up(&pod(server(|_, _| Said::Failure, false)), "db.example.com.");
    assert_eq!(found.status, DoctorStatus::Error);
    assert!(reason(&found).contains("SERVFAIL"), "{found:?}");
}

/// Returns an address without a server.
fn nobody() -> SocketAddr {
    let (socket, _) = both_at_one_port();
    socket.local_addr().unwrap()
}

/// Regression: this was an error, and the name had no address.
#[test]
fn a_lookup_goes_on_to_the_next_server_after_one_that_fails_refuses_or_cannot_be_asked() {
    let good = server(|_, _| Said::Address, false);
    for first in [server(|_, _| Said::Failure, false), server(|_, _| Said::Refusal, false), nobody()] {
        let config = ResolverConfig { servers: vec![first, good], ..ResolverConfig::parse("", "") };
        let found = looked_up(&config, "db.example.com");
        assert_eq!((found.status, measured(&found, "questions")), (DoctorStatus::Warning, 4.0), "{found:?}");
        assert!(
            found.text.contains("found 2 addresses")
                && reason(&found).contains("and then asked the next server"),
            "{found:?}"
        );
    }
    // If one server truncates a response and TCP fails, the next server is asked over TCP only.
    let (cut, over_tcp) = (server(|_, _| Said::Cut, false), server(|_, _| Said::Nothing, true));
    let config = ResolverConfig { servers: vec![cut, over_tcp], ..ResolverConfig::parse("", "") };
    let found = looked_up(&config, "db.example.com");
    assert_eq!((found.status, measured(&found, "questions")), (DoctorStatus::Warning, 6.0), "{found:?}");
    // NXDOMAIN is an answer.
    let config = ResolverConfig {
        servers: vec![server(|_, _| Said::NoSuchName, false), good],
        ..ResolverConfig::parse("", "")
    };
    assert_eq!(looked_up(&config, "db.example.com").status, DoctorStatus::Error);
    let failing = server(|_, _| Said::Failure, false);
    let config =
        ResolverConfig { servers: vec![failing, failing, failing, good], ..ResolverConfig::parse("", "") };
    let found = looked_up(&config, "db.example.com");
    assert_eq!(
        (found.status, measured(&found, "questions")),
        (DoctorStatus::Error, 6.0),
        "the fourth is not asked"
    );
}

/// The tried names are those observed with glibc 2.36.
#[test]
fn a_search_ends_where_glibc_ends_it_and_the_name_is_tried_as_it_is() {
    let tried = |reply: Reply, text: &str, name: &str| {
        let config =
            ResolverConfig { servers: vec![server(reply, false)], ..ResolverConfig::parse(text, "") };
        let patience = if text.contains("timeout") { SHORT } else { LONG };
        let looked = look_up(&config, name, patience, &now).unwrap_or_else(|why| panic!("{why}"));
        looked.rounds.into_iter().map(|round| round.name).collect::<Vec<_>>()
    };
    let few = "search b c\noptions ndots:5\n";
    assert_eq!(tried(|_, _| Said::Failure, few, "a"), ["a.b", "a.c", "a"]);
    assert_eq!(tried(|_, _| Said::Refusal, few, "a"), ["a.b", "a"]);
    assert_eq!(tried(|_, _| Said::Nothing, &[few, "options timeout:1\n"].concat(), "a").len(), 1);
    let long = format!("search b {} c\noptions ndots:5\n", "x".repeat(64));
    assert_eq!(tried(|_, _| Said::NoSuchName, &long, "a"), ["a.b", "a"]);
    let early = long.replace("ndots:5", "ndots:0");
    assert_eq!(tried(|_, _| Said::NoSuchName, &early, "a"), ["a", "a.b"]);
    assert_eq!(tried(|_, _| Said::Refusal, "search b c\noptions ndots:0\n", "a"), ["a", "a.b"]);
}

#[test]
fn a_name_that_has_its_addresses_after_a_search_domain_that_fails_is_no_fault() {
    let fails: Reply = |name, _| if name.ends_with("cluster.local") { Said::Failure } else { Said::Address };
    let found = looked_up(&pod(server(fails, false)), "db.example.com");
    assert_eq!((found.status, measured(&found, "rounds")), (DoctorStatus::Warning, 4.0), "{found:?}");
    assert!(fix(&found).contains("(db.example.com.)"), "{found:?}");
}

#[test]
fn with_use_vc_both_questions_go_over_one_connection() {
    let silent_over_udp = server(|_, _| Said::Nothing, true);
    let config = ResolverConfig { over_tcp: true, ..pod(silent_over_udp) };
    let found = looked_up(&config, "db.example.com.");
    assert_eq!((found.status, measured(&found, "questions")), (DoctorStatus::Ok, 2.0), "{found:?}");
    let servers = servers(&config, &polled(&config, USUAL, LONG, &now));
    assert_eq!((measured(&servers, "asked"), measured(&servers, "answered")), (10.0, 10.0), "{servers:?}");
    let refused = ResolverConfig { over_tcp: true, ..pod(nobody()) };
    assert!(reason(&looked_up(&refused, "db.example.com.")).contains("connection refused"));
}

#[test]
fn with_rotate_each_name_begins_with_the_next_server_and_any_silent_one_is_a_fault() {
    let (good, silent) = (server(|_, _| Said::NoSuchName, false), server(|_, _| Said::Nothing, false));
    let config =
        ResolverConfig { servers: vec![good, silent], rotates: true, ..ResolverConfig::parse(POD, "") };
    let looked = look_up(&config, "db.example.com", SHORT, &now).unwrap_or_else(|why| panic!("{why}"));
    let answered: Vec<_> = looked.rounds.iter().map(|round| round.exchanges[0].answered_count).collect();
    assert_eq!(answered, [2, 0]);
    let found = servers(&config, &polled(&config, USUAL, SHORT, &now));
    assert_eq!(found.status, DoctorStatus::Error);
    assert!(reason(&found).contains("options rotate"), "{found:?}");
}

/// Regression: the message always said 5 s, even for errors without a wait.
#[test]
fn what_a_lost_question_costs_is_the_timeout_that_is_set_and_nothing_where_the_system_refuses_at_once() {
    let (good, silent) = (server(|_, _| Said::Address, false), server(|_, _| Said::Nothing, false));
    let why = |all: &[SocketAddr]| {
        let config =
            ResolverConfig { servers: all.to_vec(), ..ResolverConfig::parse("options timeout:2\n", "") };
        reason(&servers(&config, &polled(&config, USUAL, SHORT, &now))).to_owned()
    };
    assert!(why(&[silent, good]).contains("waits 2 s"), "{}", why(&[silent, good]));
    assert!(why(&[good, silent]).contains("timeout, 2 s"), "{}", why(&[good, silent]));
    let cut = server(|_, _| Said::Cut, false);
    for all in [[good, nobody()], [good, cut]] {
        let why = why(&all);
        assert!(why.contains("continues with the next") && !why.contains(" s "), "{why}");
    }
}

#[test]
fn a_name_without_an_address_and_one_that_fits_no_question_are_told_apart() {
    let config = pod(server(|_, _| Said::NoSuchName, false));
    assert_eq!(looked_up(&config, "db.example.com").status, DoctorStatus::Error);
    let found = looked_up(&config, "db..example.com");
    assert_eq!(found.status, DoctorStatus::Unknown);
    assert!(reason(&found).contains("too long for a DNS query"), "{found:?}");
}

#[test]
fn a_first_server_that_is_silent_is_a_fault_a_later_one_a_warning_and_two_that_answer_are_neither() {
    let (good, silent) = (server(|_, _| Said::Address, false), server(|_, _| Said::Nothing, false));
    let finding_of = |all: &[SocketAddr]| {
        let config = ResolverConfig { servers: all.to_vec(), ..ResolverConfig::parse("", "") };
        servers(&config, &polled(&config, USUAL, SHORT, &now))
    };
    assert_eq!(finding_of(&[silent, good]).status, DoctorStatus::Error);
    assert_eq!(finding_of(&[good, silent]).status, DoctorStatus::Warning);
    let found = finding_of(&[good, good]);
    assert_eq!(measured(&found, "answered"), measured(&found, "asked"), "{}", found.text);
}

/// Regression: the check counted the question over TCP but not its response, so it warned about a server without losses.
#[test]
fn a_server_whose_answers_are_cut_and_come_over_tcp_has_lost_nothing() {
    let found = |over_tcp| {
        let config = pod(server(|_, _| Said::Cut, over_tcp));
        servers(&config, &polled(&config, USUAL, LONG, &now))
    };
    let whole = found(true);
    assert_eq!((measured(&whole, "asked"), measured(&whole, "answered")), (20.0, 20.0), "{}", whole.text);
    assert!(whole.reason.is_none_or(|why| !why.contains("lost")));
    let cut = found(false);
    assert_eq!(cut.status, DoctorStatus::Warning);
    assert_eq!((measured(&cut, "asked"), measured(&cut, "answered")), (8.0, 4.0), "{}", cut.text);
}

/// Regression: failures counted as answers, so a server with only failures was ok.
#[test]
fn a_server_that_fails_at_everything_is_a_fault_unless_another_does_not_and_fine_where_it_knows_a_search_domain()
 {
    let good = server(|_, _| Said::Address, false);
    let (broken, at_home) = (server(|_, _| Said::Failure, false), server(outside_fails, false));
    let found = |all: &[SocketAddr], text: &str| {
        let config = ResolverConfig { servers: all.to_vec(), ..ResolverConfig::parse(text, "") };
        servers(&config, &polled(&config, USUAL, LONG, &now))
    };
    let failing = found(&[broken], POD);
    assert_eq!(failing.status, DoctorStatus::Error);
    assert!(reason(&failing).contains("127.0.0.1 responded to every question with SERVFAIL"), "{failing:?}");
    assert_eq!(found(&[broken, good], POD).status, DoctorStatus::Warning);
    assert_eq!(found(&[at_home], POD).status, DoctorStatus::Ok);
    assert_eq!(found(&[at_home], "").status, DoctorStatus::Error);
}

/// Behaves like a cluster's resolver without access to the internet.
fn outside_fails(name: &str, _: u8) -> Said {
    if name.ends_with("cluster.local") { Said::NoSuchName } else { Said::Failure }
}

#[test]
fn a_server_that_cannot_be_asked_is_told_with_the_systems_word() {
    let (socket, listener) = both_at_one_port();
    let nobody = socket.local_addr().unwrap();
    drop((socket, listener));
    let config = pod(nobody);
    let found = servers(&config, &polled(&config, USUAL, SHORT, &now));
    assert_eq!(found.status, DoctorStatus::Error);
    assert!(reason(&found).contains("is unreachable (connection refused)"), "{found:?}");
    let found = looked_up(&config, "db.example.com");
    assert!(reason(&found).contains("unreachable: connection refused"), "{found:?}");
}

#[test]
fn no_lookup_is_made_for_addresses_and_for_what_etc_hosts_names_and_that_is_said() {
    let texts = Texts::new(&[("/etc/resolv.conf", "options ndots:1\n"), ("/etc/hosts", "10.0.0.7 cart\n")]);
    let names = ["10.0.0.1", "::1", "localhost", "cart"].map(str::to_owned);
    let site = CheckContext { now: &now, names_to_look_up: &names, ..CheckContext::for_test(&texts) };
    let found: Vec<_> = examine(&site).into_iter().filter(|finding| finding.id == LOOKUP).collect();
    let is_said = |(finding, name): (&DoctorFinding, &String)| {
        finding.status == DoctorStatus::Ok && finding.text.starts_with(&format!("{name} needs no lookup: "))
    };
    assert!(found.len() == 4 && found.iter().zip(&names).all(is_said), "{found:?}");
}

#[test]
fn a_server_on_a_link_is_told_with_its_link() {
    let told =
        ["[fe80::1%10]:53", "[fd00::1]:53", "10.0.0.2:53"].map(|server| shown(server.parse().unwrap()));
    assert_eq!(told, ["fe80::1%10", "fd00::1", "10.0.0.2"]);
}

/// The test uses made-up durations, so that a busy machine does not make the server slow.
#[test]
fn a_server_that_takes_more_than_a_tenth_of_a_second_is_warned_of() {
    let status_of = |millis| {
        let heard = DnsExchange {
            took: Duration::from_millis(millis),
            sent_count: 2,
            answered_count: 2,
            ..DnsExchange::default()
        };
        servers(
            &ResolverConfig::parse("", ""),
            &[ServerPoll { server: "10.0.0.2:53".parse().unwrap(), heard: vec![heard; 5] }],
        )
        .status
    };
    assert_eq!((status_of(99), status_of(101)), (DoctorStatus::Ok, DoctorStatus::Warning));
}

#[test]
fn each_name_has_a_finding_and_none_if_none_is_named() {
    let texts = Texts::new(&[("/etc/resolv.conf", "options ndots:1\n")]);
    let count = |names: &[String]| {
        let site = CheckContext { now: &now, names_to_look_up: names, ..CheckContext::for_test(&texts) };
        examine(&site).iter().filter(|finding| finding.id == LOOKUP).count()
    };
    assert_eq!((count(&[]), count(&["a".into(), "b".into()])), (0, 2));
}

/// The clock of the next test in milliseconds. Only servers advance it.
static PASSED: AtomicU64 = AtomicU64::new(0);

/// Returns a server that takes this many milliseconds per response, by that clock.
fn takes<const MILLIS: u64>(_: &str, _: u8) -> Said {
    PASSED.fetch_add(MILLIS, Ordering::SeqCst);
    Said::NoSuchName
}

#[test]
fn the_check_ends_within_five_seconds_however_slow_servers_are_and_however_many_names_there_are() {
    let names: Vec<_> = (0..500).map(|at| format!("{at}.example")).collect();
    let now = || Duration::from_millis(PASSED.load(Ordering::SeqCst));
    for slow in [takes::<1>, takes::<20>, takes::<150>, takes::<399>] as [Reply; 4] {
        let config = pod(server(slow, false));
        let config = ResolverConfig { servers: vec![config.servers[0]; 5], ..config };
        let texts = Texts::new(&[]);
        let site = CheckContext { now: &now, names_to_look_up: &names, ..CheckContext::for_test(&texts) };
        let begun = now();
        assert_eq!(examined(&site, &config).len(), 2 + names.len());
        assert!(now() - begun <= Duration::from_secs(5), "{:?}", now() - begun);
    }
}
