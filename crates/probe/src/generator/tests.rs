//! Tests of runs on fake machines.

use proptest::prelude::*;

use super::*;
use crate::file_reader::fake::Texts;
use crate::finding::FindingGrade;

const RUN: RunActivity = RunActivity {
    sending_duration: Duration::from_secs(10),
    has_unsent_requests: false,
    opened_connection_count: 64,
    socket_failures: 0,
    in_flight_peak: 64,
    busy_poll_times: Vec::new(),
};

/// Returns a quiet machine with all files.
fn quiet() -> Texts {
    let texts = Texts::new(&[
        ("/proc/self/cgroup", "0::/pod\n"),
        ("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("/sys/fs/cgroup/pod/cpu.max", "50000 100000\n"),
        ("/sys/fs/cgroup/pod/memory.max", "104857600\n"),
        ("/sys/fs/cgroup/pod/memory.current", "10485760\n"),
        ("/sys/fs/cgroup/pod/memory.stat", "inactive_file 0\n"),
        ("/sys/fs/cgroup/pod/cpu.pressure", "some avg10=0.00 total=0\n"),
        ("/sys/fs/cgroup/pod/memory.pressure", "some avg10=0.00 total=0\n"),
        ("/proc/net/sockstat", "TCP: inuse 1 orphan 0 tw 0 alloc 178 mem 822\n"),
        ("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
        (
            "/proc/self/limits",
            "Max open files            20000                20000                files     \n",
        ),
        ("/proc/sys/net/netfilter/nf_conntrack_count", "10\n"),
        ("/proc/sys/net/netfilter/nf_conntrack_max", "1000\n"),
        ("/sys/class/net/ens5/statistics/rx_bytes", "0\n"),
        ("/sys/class/net/ens5/statistics/tx_bytes", "0\n"),
        ("/sys/class/net/ens5/speed", "1000\n"),
        ("/sys/class/net/ens5/device", ""),
        ("/proc/self/fd", "64 bytes for as many files, as Linux 6.2 has it ................"),
    ]);
    throttled(&texts, 0, 0);
    sender(&texts, 0, 0);
    softnet(&texts, 0);
    tcp(&texts, 0);
    texts
}

fn throttled(texts: &Texts, periods: u32, throttled: u32) {
    let text =
        format!("nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {}\n", throttled * 1000);
    texts.set("/sys/fs/cgroup/pod/cpu.stat", &text);
}

/// Sets the sender's milliseconds on a CPU and in the run queue.
fn sender(texts: &Texts, on_cpu: u64, waited: u64) {
    let stat = format!("7 (sender 0) S 1 1 1 0 -1 0 0 0 0 0 {} 0 0 0 20 0 3 0 692290", on_cpu / 10);
    texts.set("/proc/self/task/7/stat", &stat);
    let sched = format!("{} {} 9\n", 1 + on_cpu * 1_000_000, waited * 1_000_000);
    texts.set("/proc/self/task/7/schedstat", &sched);
}

fn softnet(texts: &Texts, dropped: u32) {
    texts.set("/proc/net/softnet_stat", &format!("00e28d6e {dropped:08x} 00000001 00000000\n"));
}

fn tcp(texts: &Texts, retransmits: u32) {
    let names = "ListenOverflows ListenDrops TCPTimeouts TCPSynRetrans";
    texts.set("/proc/net/netstat", &format!("TcpExt: {names}\nTcpExt: 0 0 0 0\n"));
    texts.set("/proc/net/snmp", &format!("Tcp: RetransSegs\nTcp: {retransmits}\n"));
}

/// Returns the findings of a run of ten seconds; `change` alters the machine before its end.
fn after(run: &RunActivity, change: impl Fn(&Texts)) -> Vec<MachineFinding> {
    let texts = quiet();
    let mut watch = GeneratorMonitor::start(&texts, "sender ", Duration::from_secs(100));
    change(&texts);
    watch.sample(Duration::from_secs(110));
    // The threads have ended by the end of the run.
    texts.remove("/proc/self/task/7/stat");
    texts.remove("/proc/self/task/7/schedstat");
    watch.finish(Duration::from_secs(110), run)
}

/// Returns the findings that are not ok.
fn bad(run: &RunActivity, change: impl Fn(&Texts)) -> Vec<(&'static str, FindingGrade)> {
    let findings = after(run, change);
    let bad = findings.iter().filter(|finding| finding.grade != FindingGrade::Ok);
    bad.map(|finding| (finding.id, finding.grade)).collect()
}

fn text(findings: &[MachineFinding], id: &str) -> String {
    findings.iter().find(|finding| finding.id == id).unwrap().text.clone()
}

#[test]
fn a_quiet_machine_is_ok() {
    assert_eq!(bad(&RUN, |_| {}), []);
    assert_eq!(after(&RUN, |_| {}).len(), 13);
}

/// Regression: a saturated thread that had kept its schedule so far was only `Degraded`.
#[test]
fn a_saturated_thread_is_the_limit_of_any_run() {
    assert_eq!(bad(&RUN, |texts| sender(texts, 8_000, 0)), []);
    assert_eq!(bad(&RUN, |texts| sender(texts, 8_500, 0)), [("thread-cpu", FindingGrade::Degraded)]);
    assert_eq!(bad(&RUN, |texts| sender(texts, 9_500, 0)), [("thread-cpu", FindingGrade::Invalid)]);
    let findings = after(&RUN, |texts| sender(texts, 9_500, 0));
    let expected =
        "thread \"sender 0\" used 95 % of a core: use more --threads on more cores, or more generators";
    assert_eq!(text(&findings, "thread-cpu"), expected);
}

#[test]
fn a_thread_that_waits_for_a_cpu_whenever_it_does_not_run_is_saturated() {
    let starved = |texts: &Texts| sender(texts, 500, 9_000);
    let queued = ("run-queue-wait", FindingGrade::Degraded);
    assert_eq!(bad(&RUN, starved), [("thread-cpu", FindingGrade::Invalid), queued]);
    let findings = after(&RUN, starved);
    let expected = "thread \"sender 0\" used 5 % of a core and waited for a core 90 % of the time: ";
    assert!(text(&findings, "thread-cpu").starts_with(expected), "{findings:?}");
}

#[test]
fn a_sender_that_was_busy_for_half_of_a_run_answers_for_what_was_not_sent() {
    let missing = RunActivity { has_unsent_requests: true, ..RUN };
    let busy = |texts: &Texts| sender(texts, 2_000, 4_000);
    let queued = ("run-queue-wait", FindingGrade::Degraded);
    assert_eq!(bad(&missing, busy), [("thread-cpu", FindingGrade::Invalid), queued]);
    assert_eq!(bad(&RUN, busy), [queued]);
    assert_eq!(bad(&missing, |texts| sender(texts, 4_000, 0)), [], "the target did not let it send");
}

#[test]
fn what_a_thread_spins_away_is_not_held_against_it() {
    let spinning = RunActivity { busy_poll_times: vec![Duration::from_secs(6)], ..RUN };
    assert_eq!(bad(&spinning, |texts| sender(texts, 10_000, 0)), []);
    let spinning = RunActivity { busy_poll_times: vec![Duration::from_millis(500)], ..spinning };
    assert_eq!(bad(&spinning, |texts| sender(texts, 10_000, 0)), [("thread-cpu", FindingGrade::Invalid)]);
}

/// Regression: the mean of their busy polling, 40 %, made both threads look idle.
#[test]
fn what_a_thread_spins_away_excuses_no_other() {
    let run = |busy_poll: [u64; 2]| RunActivity {
        busy_poll_times: busy_poll.map(Duration::from_secs).to_vec(),
        ..RUN
    };
    assert_eq!(bad(&run([0, 8]), |texts| sender(texts, 9_500, 0)), [("thread-cpu", FindingGrade::Invalid)]);
    assert_eq!(bad(&run([8, 0]), |texts| sender(texts, 9_500, 0)), []);
}

#[test]
fn waiting_for_a_cpu_colours_a_run_from_a_twentieth_on() {
    assert_eq!(bad(&RUN, |texts| sender(texts, 100, 500)), []);
    assert_eq!(bad(&RUN, |texts| sender(texts, 100, 600)), [("run-queue-wait", FindingGrade::Degraded)]);
}

#[test]
fn a_used_up_quota_colours_a_run_and_from_one_percent_on_limits_it() {
    assert_eq!(bad(&RUN, |texts| throttled(texts, 100, 0)), []);
    assert_eq!(bad(&RUN, |texts| throttled(texts, 100, 1)), [("cpu-throttling", FindingGrade::Degraded)]);
    assert_eq!(bad(&RUN, |texts| throttled(texts, 100, 2)), [("cpu-throttling", FindingGrade::Invalid)]);
    let findings = after(&RUN, |texts| throttled(texts, 100, 2));
    let expected = "the CPU quota of 0.5 cores (/sys/fs/cgroup/pod) stopped the generator in 2 of 100 periods, \
                    for 2 ms: raise or remove the CPU limit";
    assert_eq!(text(&findings, "cpu-throttling"), expected);
}

#[test]
fn a_busy_machine_is_no_fault_of_a_generator_that_got_its_cpu() {
    let busy = |texts: &Texts| {
        texts.set("/sys/fs/cgroup/pod/cpu.pressure", "some avg10=99.00 total=9000000\n");
    };
    assert_eq!(bad(&RUN, busy), [("cpu-pressure", FindingGrade::Info)]);
    let uncounted = |texts: &Texts| {
        busy(texts);
        texts.remove("/proc/self/task/7/schedstat");
    };
    assert_eq!(
        bad(&RUN, uncounted),
        [("run-queue-wait", FindingGrade::Unknown), ("cpu-pressure", FindingGrade::Degraded)]
    );
}

#[test]
fn waiting_for_memory_colours_a_run() {
    let short = |texts: &Texts| {
        texts.set("/sys/fs/cgroup/pod/memory.pressure", "some avg10=0.00 total=1100000\n");
    };
    assert_eq!(bad(&RUN, short), [("memory-pressure", FindingGrade::Degraded)]);
}

#[test]
fn files_in_the_page_cache_are_not_memory_in_use() {
    let full = |texts: &Texts| texts.set("/sys/fs/cgroup/pod/memory.current", "104857600\n");
    assert_eq!(bad(&RUN, full), [("memory", FindingGrade::Info)]);
    let cached = |texts: &Texts| {
        full(texts);
        texts.set("/sys/fs/cgroup/pod/memory.stat", "inactive_file 94371840\n");
    };
    assert_eq!(bad(&RUN, cached), []);
}

#[test]
fn sockets_that_were_missing_limit_a_run() {
    let run = |no_socket| RunActivity { opened_connection_count: 1000, socket_failures: no_socket, ..RUN };
    assert_eq!(bad(&run(5), |_| {}), [("sockets", FindingGrade::Degraded)]);
    assert_eq!(bad(&run(50), |_| {}), [("sockets", FindingGrade::Invalid)]);
}

#[test]
fn a_full_table_of_open_files_is_noted() {
    assert_eq!(
        bad(&RunActivity { in_flight_peak: 19_936, ..RUN }, |_| {}),
        [("open-files", FindingGrade::Info)]
    );
}

/// At 470 new connections per second, the 28,232 ports of the default range last for a minute.
#[test]
fn a_rate_of_connections_that_a_longer_run_could_not_keep_is_noted() {
    let waiting = |count: u32| {
        move |texts: &Texts| {
            let text = format!("TCP: inuse 1 orphan 0 tw {count} alloc 178 mem 822\n");
            texts.set("/proc/net/sockstat", &text);
        }
    };
    let at = |rate: u64| RunActivity { opened_connection_count: rate * 10, ..RUN };
    assert_eq!(bad(&at(470), waiting(4_700)), []);
    assert_eq!(bad(&at(471), waiting(4_710)), [("ports", FindingGrade::Info)]);
    assert_eq!(bad(&at(471), waiting(0)), [], "the other side closes first");
    let short = RunActivity { opened_connection_count: 4, sending_duration: Duration::from_millis(3), ..RUN };
    assert_eq!(bad(&short, waiting(4)), [], "four connections were a rate of 1300 per second");
}

#[test]
fn a_full_connection_table_colours_a_run() {
    let tracked = |count: &'static str| {
        move |texts: &Texts| texts.set("/proc/sys/net/netfilter/nf_conntrack_count", count)
    };
    assert_eq!(bad(&RUN, tracked("800\n")), []);
    assert_eq!(bad(&RUN, tracked("900\n")), [("conntrack", FindingGrade::Info)]);
    assert_eq!(bad(&RUN, tracked("1000\n")), [("conntrack", FindingGrade::Degraded)]);
}

#[test]
fn a_dropped_packet_is_ours_only_if_something_was_sent_again() {
    assert_eq!(bad(&RUN, |texts| softnet(texts, 9)), [("packet-backlog", FindingGrade::Info)]);
    let ours = |texts: &Texts| {
        softnet(texts, 9);
        tcp(texts, 2);
    };
    assert_eq!(bad(&RUN, ours), [("packet-backlog", FindingGrade::Degraded), ("tcp", FindingGrade::Info)]);
}

#[test]
fn a_link_at_its_speed_colours_a_run() {
    let sent = |texts: &Texts| texts.set("/sys/class/net/ens5/statistics/tx_bytes", "1100000000\n");
    assert_eq!(bad(&RUN, sent), [("bandwidth", FindingGrade::Degraded)]);
    let virtually = |texts: &Texts| {
        sent(texts);
        texts.remove("/sys/class/net/ens5/device");
    };
    assert_eq!(bad(&RUN, virtually), [("bandwidth", FindingGrade::Unknown)]);
}

#[test]
fn what_cannot_be_read_is_unknown_and_never_ok() {
    let nothing = Texts::default();
    let findings =
        GeneratorMonitor::start(&nothing, "sender ", Duration::ZERO).finish(Duration::from_secs(1), &RUN);
    let untested = findings.iter().filter(|finding| finding.grade == FindingGrade::Unknown);
    assert_eq!(untested.count(), findings.len() - 1, "all but what the run itself knows");
    let expected =
        "could not be tested: /proc/sys/net/netfilter/nf_conntrack_count does not exist on this machine";
    assert_eq!(text(&findings, "conntrack"), expected);
}

/// Mostly unexpected texts, and some that are nearly valid.
const ODD: &str = "[ -~\n\t]{0,80}|some total=[0-9]{1,30}|[0-9]{1,30} ?[0-9]{1,30}|TcpExt: .{0,20}\n";

proptest! {
    /// Every check has a finding, whatever the files contain before and after.
    #[test]
    fn no_text_is_too_odd(texts in prop::collection::vec((0usize..32, ODD), 0..16)) {
        let run = RunActivity { sending_duration: Duration::MAX, opened_connection_count: u64::MAX, socket_failures: u64::MAX, ..RUN };
        let machine = quiet();
        let paths = machine.paths();
        let mut watch = GeneratorMonitor::start(&machine, "sender ", Duration::MAX);
        for (place, text) in &texts {
            machine.set(&paths[place % paths.len()], text);
        }
        watch.sample(Duration::ZERO);
        prop_assert_eq!(watch.finish(Duration::MAX, &run).len(), 13);
    }
}
