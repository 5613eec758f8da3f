use std::fmt::Write as _;

use seawall_probe::file_reader::fake::Texts;

use super::*;
use crate::finding::test_helpers::{self, reason};

const NAMES: &str =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

/// Returns a machine with Linux's defaults and no connections.
fn healthy() -> Texts {
    Texts::new(&[
        (PORT_RANGE_PATH, "32768\t60999\n"),
        ("/proc/sys/net/ipv4/ip_local_reserved_ports", "\n"),
        ("/proc/sys/net/ipv4/tcp_tw_reuse", "2\n"),
        ("/proc/sys/net/ipv4/tcp_max_tw_buckets", "262144\n"),
        ("/proc/net/sockstat", "sockets: used 15\nTCP: inuse 1 orphan 0 tw 40 alloc 178 mem 822\n"),
        ("/proc/net/tcp", NAMES),
        ("/proc/sys/net/netfilter/nf_conntrack_count", "900\n"),
        ("/proc/sys/net/netfilter/nf_conntrack_max", "262144\n"),
        ("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait", "120\n"),
    ])
}

/// Returns a line of the socket table: a port of 10.0.0.1, a destination and a state.
fn line(port: u16, to: &str, state: u8) -> String {
    let to: SocketAddr = to.parse().unwrap();
    let IpAddr::V4(ip) = to.ip() else { panic!("IPv4 alone") };
    let [from, ip] = [[10, 0, 0, 1], ip.octets()].map(u32::from_ne_bytes);
    format!(
        "0: {from:08X}:{port:04X} {ip:08X}:{:04X} {state:02X} 00000000:00000000 00:00000000 00000000 0 0 7 1 0\n",
        to.port()
    )
}

/// Returns this many connections from different ports.
fn connections(count: u16, to: &str, state: u8) -> String {
    (0..count).fold(String::new(), |mut lines, at| {
        let _ = write!(lines, "{}", line(32768 + at, to, state));
        lines
    })
}

fn found(texts: &Texts) -> Vec<DoctorFinding> {
    examine(&CheckContext::for_test(texts))
}

/// Returns the findings that are not ok.
fn complaints(texts: &Texts) -> Vec<(&'static str, DoctorStatus)> {
    test_helpers::complaints(found(texts))
}

fn with(path: &str, text: &str) -> Texts {
    let texts = healthy();
    texts.set(path, text);
    texts
}

fn sockets(lines: &str) -> Texts {
    with("/proc/net/tcp", &[NAMES, lines].concat())
}

const ESTABLISHED: u8 = 1;
const CLOSED: u8 = 6;
const LISTEN: u8 = 10;

#[test]
fn a_machine_as_linux_sets_it_up_has_no_fault() {
    assert_eq!(complaints(&healthy()), []);
    let range = &found(&healthy())[0];
    assert!(
        range.text.contains("28232 ports") && range.text.contains("471 new connections/s"),
        "{}",
        range.text
    );
}

#[test]
fn a_narrow_range_is_warned_of_and_a_wider_one_is_not() {
    assert_eq!(complaints(&with(PORT_RANGE_PATH, "40000\t41023\n")), [(RANGE, DoctorStatus::Warning)]);
    assert_eq!(complaints(&with(PORT_RANGE_PATH, "1024\t65535\n")), []);
}

#[test]
fn ports_that_are_reserved_are_not_counted_and_those_outside_the_range_do_not_matter() {
    let path = "/proc/sys/net/ipv4/ip_local_reserved_ports";
    assert_eq!(complaints(&with(path, "33000-50000,60000\n")), [(RANGE, DoctorStatus::Warning)]);
    assert_eq!(complaints(&with(path, "8080,30000-32767\n")), []);
    assert_eq!(reserved("1000-33000,60999-61010", &(32768..=60999)), Some(234));
}

/// Regression: this was only a warning, as for a narrow range.
#[test]
fn a_range_of_which_every_port_is_reserved_is_a_fault() {
    let path = "/proc/sys/net/ipv4/ip_local_reserved_ports";
    let all = with(path, "32768-60999\n");
    assert_eq!(complaints(&all), [(RANGE, DoctorStatus::Error)]);
    assert!(
        found(&all)[0].text.contains("can use 0 ports") && reason(&found(&all)[0]).contains("EADDRNOTAVAIL")
    );
    assert_eq!(complaints(&with(path, "32768-60998\n")), [(RANGE, DoctorStatus::Warning)]);
}

#[test]
fn ports_that_are_nearly_all_taken_towards_one_destination_are_a_fault() {
    let nearly_all = sockets(&connections(26_000, "10.0.0.9:80", CLOSED));
    assert_eq!(complaints(&nearly_all), [(USE, DoctorStatus::Error)]);
    let used = &found(&nearly_all)[1];
    assert!(
        used.text.contains("26000 of 28232 ports (92 %)") && used.text.contains("10.0.0.1 to 10.0.0.9:80"),
        "{}",
        used.text
    );
    assert!(reason(used).contains("471 new connections/s"));
    let half = sockets(&connections(15_000, "10.0.0.9:80", CLOSED));
    assert_eq!(complaints(&half), [(USE, DoctorStatus::Warning)]);
}

#[test]
fn as_many_connections_to_many_destinations_are_no_fault() {
    let spread: String =
        (0..26).map(|at| connections(1000, &format!("10.0.0.{}:80", at + 2), CLOSED)).collect();
    assert_eq!(complaints(&sockets(&spread)), []);
}

#[test]
fn connections_that_a_listener_accepted_take_no_port() {
    let listener = line(40000, "0.0.0.0:0", LISTEN);
    let accepted = line(40000, "10.0.0.9:80", ESTABLISHED).repeat(26_000);
    assert_eq!(complaints(&sockets(&[listener, accepted].concat())), []);
}

#[test]
fn what_helps_depends_on_whether_connections_are_open_or_closed() {
    let fix = |state| {
        let found = found(&sockets(&connections(26_000, "10.0.0.9:80", state)));
        test_helpers::fix(&found[1]).to_owned()
    };
    assert!(fix(CLOSED).starts_with("keep connections alive"));
    assert!(fix(ESTABLISHED).starts_with("share connections"));
}

#[test]
fn a_table_that_was_cut_is_said_to_hold_at_least_what_was_read() {
    let mut cut = [NAMES, &connections(26_000, "10.0.0.9:80", CLOSED)].concat();
    cut.truncate(cut.len() - 30);
    assert!(found(&with("/proc/net/tcp", &cut))[1].text.contains("uses at least 25999 of"));
}

#[test]
fn a_full_house_of_time_wait_is_a_fault() {
    let path = "/proc/sys/net/ipv4/tcp_max_tw_buckets";
    assert_eq!(complaints(&with(path, "40\n")), [(WAITING, DoctorStatus::Error)]);
    assert_eq!(complaints(&with(path, "48\n")), [(WAITING, DoctorStatus::Warning)]);
    assert_eq!(complaints(&with(path, "100\n")), []);
}

#[test]
fn a_conntrack_table_is_judged_by_its_share_and_told_with_its_rate() {
    let path = "/proc/sys/net/netfilter/nf_conntrack_max";
    assert_eq!(complaints(&with(path, "910\n")), [(CONNTRACK, DoctorStatus::Error)]);
    assert_eq!(complaints(&with(path, "1100\n")), [(CONNTRACK, DoctorStatus::Warning)]);
    assert!(found(&healthy())[3].text.contains("is full at 2185 new connections/s"));
}

/// Regression: the finding said that the table is full at 0 new connections/s.
#[test]
fn a_conntrack_table_with_a_limit_of_zero_has_none_and_never_ends() {
    let unlimited = with("/proc/sys/net/netfilter/nf_conntrack_max", "0\n");
    assert_eq!(complaints(&unlimited), []);
    let text = &found(&unlimited)[3].text;
    assert!(text.contains("900 connections without a limit"), "{text}");
}

#[test]
fn a_machine_without_conntrack_is_told_to_look_at_the_node() {
    let texts = healthy();
    texts.remove("/proc/sys/net/netfilter/nf_conntrack_count");
    assert_eq!(complaints(&texts), [(CONNTRACK, DoctorStatus::Unknown)]);
    assert!(reason(&found(&texts)[3]).contains("does not exist on this machine"));
}

#[test]
fn many_connections_to_a_public_address_may_be_more_than_the_nodes_share() {
    for (count, to, expected) in [
        (40, "203.0.113.7:443", vec![(NAT, DoctorStatus::Unknown)]),
        (31, "203.0.113.7:443", vec![]),
        (400, "10.9.0.7:443", vec![]),
        (400, "100.64.3.7:443", vec![]),
        (400, "169.254.169.254:80", vec![]),
    ] {
        assert_eq!(complaints(&sockets(&connections(count, to, ESTABLISHED))), expected, "{count} to {to}");
    }
}
