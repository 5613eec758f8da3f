use seawall_probe::file_reader::fake::Texts;

use super::*;
use crate::finding::test_helpers;

const NAMES: &str =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

/// Sets TCP's counters: accepted and dropped connections, sent and retransmitted segments.
fn count(texts: &Texts, accepted: u64, dropped: u64, sent: u64, again: u64) {
    let netstat =
        format!("TcpExt: ListenOverflows ListenDrops TCPReqQFullDrop\nTcpExt: {dropped} {dropped} 0\n");
    let snmp = format!("Tcp: PassiveOpens OutSegs RetransSegs\nTcp: {accepted} {sent} {again}\n");
    texts.set("/proc/net/netstat", &netstat);
    texts.set("/proc/net/snmp", &snmp);
}

/// Adds a listener at port 8080 with this many waiting connections.
fn wait_at_listener(texts: &Texts, waiting: u32) {
    let line =
        format!("0: 00000000:1F90 00000000:0000 0A 00000000:{waiting:08X} 00:00000000 00000000 0 0 7 1 0\n");
    texts.set("/proc/net/tcp", &[NAMES, &line].concat());
}

/// Adds a process with this many open files.
fn open_files(texts: &Texts, number: u32, open: u32, limit: u32) {
    (0..open).for_each(|at| texts.set(&format!("/proc/{number}/fd/{at}"), ""));
    let limits = format!("Limit  Soft Limit  Hard Limit  Units\nMax open files  {limit}  1048576  files\n");
    texts.set(&format!("/proc/{number}/limits"), &limits);
    texts.set(&format!("/proc/{number}/comm"), "shop\n");
}

fn healthy() -> Texts {
    let texts = Texts::new(&[
        ("/proc/sys/net/core/somaxconn", "4096\n"),
        ("/proc/net/softnet_stat", "00e28d6e 00000003 00000001 00000000\n"),
        ("/proc/sys/fs/file-nr", "638\t0\t2466170\n"),
    ]);
    count(&texts, 100_000, 9, 5_000_000, 12_000);
    wait_at_listener(&texts, 0);
    open_files(&texts, 7, 20, 100);
    texts
}

fn found(texts: &Texts, happens: impl Fn(&Texts)) -> Vec<DoctorFinding> {
    let wait = |time: Duration| {
        happens(texts);
        time
    };
    examine(&CheckContext { sleep: &wait, ..CheckContext::for_test(texts) })
}

fn complaints(happens: impl Fn(&Texts)) -> Vec<(&'static str, DoctorStatus)> {
    test_helpers::complaints(found(&healthy(), happens))
}

/// Returns the complaints about a state from before the check.
fn complaints_of(plant: impl Fn(&Texts)) -> Vec<(&'static str, DoctorStatus)> {
    let texts = healthy();
    plant(&texts);
    test_helpers::complaints(found(&texts, |_| ()))
}

#[test]
fn a_server_that_loses_next_to_nothing_has_no_fault() {
    assert_eq!(complaints(|texts| count(texts, 100_900, 9, 5_100_000, 12_100)), []);
}

#[test]
fn connections_that_are_dropped_while_it_is_watched_are_a_fault_and_many_of_earlier_are_warned_of() {
    assert_eq!(
        complaints(|texts| count(texts, 100_900, 10, 5_100_000, 12_000)),
        [(LISTEN, DoctorStatus::Error)]
    );
    assert_eq!(
        complaints_of(|texts| count(texts, 100_000, 200, 5_000_000, 12_000)),
        [(LISTEN, DoctorStatus::Warning)]
    );
    assert_eq!(complaints_of(|texts| count(texts, 100_000, 90, 5_000_000, 12_000)), []);
}

#[test]
fn a_listener_at_which_connections_wait_whenever_it_is_looked_at_is_found_and_one_that_catches_up_is_not() {
    assert_eq!(complaints_of(|texts| wait_at_listener(texts, 5)), [(BACKLOG, DoctorStatus::Warning)]);
    assert_eq!(complaints_of(|texts| wait_at_listener(texts, 4096)), [(BACKLOG, DoctorStatus::Error)]);
    assert_eq!(complaints(|texts| wait_at_listener(texts, 50)), [], "none waited at first");
}

#[test]
fn a_short_backlog_for_everybody_is_warned_of_where_anybody_listens() {
    let shorten = |texts: &Texts| {
        texts.set("/proc/sys/net/core/somaxconn", "128\n");
    };
    assert_eq!(complaints_of(shorten), [(BACKLOG, DoctorStatus::Warning)]);
    let without_listener = |texts: &Texts| {
        shorten(texts);
        texts.set("/proc/net/tcp", NAMES);
    };
    assert_eq!(complaints_of(without_listener), []);
}

#[test]
fn segments_that_are_sent_again_are_judged_by_their_share_once_there_are_enough() {
    assert_eq!(
        complaints(|texts| count(texts, 100_000, 9, 5_010_000, 12_600)),
        [(RETRANSMITS, DoctorStatus::Error)]
    );
    assert_eq!(
        complaints(|texts| count(texts, 100_000, 9, 5_010_000, 12_200)),
        [(RETRANSMITS, DoctorStatus::Warning)]
    );
    assert_eq!(complaints(|texts| count(texts, 100_000, 9, 5_000_100, 12_009)), [], "too few to say");
    assert_eq!(
        complaints_of(|texts| count(texts, 100_000, 9, 5_000_000, 60_000)),
        [(RETRANSMITS, DoctorStatus::Warning)]
    );
}

/// Regression: with retransmits only, the finding was "38 of 0" and ok.
#[test]
fn segments_that_were_sent_again_are_counted_beside_the_others_and_many_of_few_are_warned_of() {
    let dead = |texts: &Texts| count(texts, 100_000, 9, 5_000_000, 12_038);
    assert_eq!(complaints(dead), [(RETRANSMITS, DoctorStatus::Warning)]);
    let text = test_helpers::finding_named(RETRANSMITS, found(&healthy(), dead)).text;
    assert!(text.starts_with("38 of 38 segments") && text.contains("12038 of 5012038 since"), "{text}");
    // One twentieth of all segments is one nineteenth of the others.
    assert_eq!(
        complaints(|texts| count(texts, 100_000, 9, 5_009_500, 12_499)),
        [(RETRANSMITS, DoctorStatus::Warning)]
    );
    assert_eq!(
        complaints(|texts| count(texts, 100_000, 9, 5_009_500, 12_500)),
        [(RETRANSMITS, DoctorStatus::Error)]
    );
}

#[test]
fn who_has_nearly_all_its_files_open_is_named() {
    assert_eq!(complaints_of(|texts| open_files(texts, 8, 96, 100)), [(FILES, DoctorStatus::Error)]);
    assert_eq!(complaints_of(|texts| open_files(texts, 8, 85, 100)), [(FILES, DoctorStatus::Warning)]);
    assert_eq!(complaints_of(|texts| open_files(texts, 8, 85, 200)), []);
    let texts = healthy();
    open_files(&texts, 8, 96, 100);
    let text = found(&texts, |_| ())[3].text.clone();
    assert!(text.starts_with("shop (process 8) has 96 of 100 files open"), "{text}");
}

/// Regression: another user's process at its limit was ok, because it was not visible.
#[test]
fn processes_whose_files_are_not_shown_leave_it_unknown_unless_somebody_is_seen_at_the_limit() {
    let texts = healthy();
    open_files(&texts, 8, 63, 64);
    texts.refuse("/proc/8/fd");
    texts.set("/proc/8/status", "Name:\tshop\nVmSize:\t 4 kB\n");
    let found_of = |texts: &Texts| test_helpers::finding_named(FILES, found(texts, |_| ()));
    let unseen = found_of(&texts);
    assert_eq!((unseen.status, test_helpers::measured(&unseen, "unseen")), (DoctorStatus::Unknown, 1.0));
    assert!(
        unseen.text.ends_with("; the check could not read the open files of 1 other process"),
        "{}",
        unseen.text
    );
    open_files(&texts, 9, 96, 100);
    assert_eq!(found_of(&texts).status, DoctorStatus::Error);
    let texts = healthy();
    let mounts = "31 23 0:5 / /proc rw - proc proc rw,hidepid=2\n";
    texts.set("/proc/self/mountinfo", mounts);
    assert_eq!(found_of(&texts).status, DoctorStatus::Unknown);
}

#[test]
fn threads_of_the_kernel_and_processes_that_have_ended_have_no_files_that_could_be_seen() {
    let texts = healthy();
    open_files(&texts, 8, 0, 64);
    texts.refuse("/proc/8/fd");
    texts.set("/proc/8/status", "Name:\tkthreadd\nThreads:\t1\n");
    assert_eq!(test_helpers::complaints(found(&texts, |_| ())), []);
}

#[test]
fn a_machine_that_has_nearly_all_its_files_open_is_a_fault() {
    assert_eq!(
        complaints_of(|texts| texts.set("/proc/sys/fs/file-nr", "990\t0\t1000\n")),
        [(FILES, DoctorStatus::Error)]
    );
}

#[test]
fn packets_that_are_dropped_now_are_a_fault_and_those_of_long_ago_are_not() {
    let drop_packets =
        |texts: &Texts| texts.set("/proc/net/softnet_stat", "00e28d6e 00000009 00000001 00000000\n");
    assert_eq!(complaints(drop_packets), [(SOFTNET, DoctorStatus::Error)]);
    assert_eq!(complaints_of(drop_packets), []);
}
