use seawall_probe::file_reader::fake::Texts;

use super::*;
use crate::finding::test_helpers::{self, reason};

const STAT: &str = "/sys/fs/cgroup/pod7/cpu.stat";
const QUOTA: &str = "/sys/fs/cgroup/pod7/cpu.max";
const STALLS: &str = "/sys/fs/cgroup/pod7/cpu.pressure";

/// Returns a pod with a quota of two cores that was never used up.
fn healthy() -> Texts {
    Texts::new(&[
        ("/proc/self/cgroup", "0::/pod7\n"),
        ("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        (QUOTA, "200000 100000\n"),
        (STAT, &stat(1000, 0)),
        (STALLS, "some avg10=0.00 total=1000\n"),
    ])
}

fn stat(periods: u64, throttled: u64) -> String {
    format!(
        "usage_usec 5\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {}\n",
        throttled * 50_000
    )
}

/// Returns the findings if `happens` changes the files during the check.
fn found(texts: &Texts, happens: impl Fn(&Texts)) -> Vec<DoctorFinding> {
    let wait = |time: Duration| {
        happens(texts);
        time
    };
    examine(&CheckContext { sleep: &wait, ..CheckContext::for_test(texts) })
}

fn complaints(texts: &Texts, happens: impl Fn(&Texts)) -> Vec<(&'static str, DoctorStatus)> {
    test_helpers::complaints(found(texts, happens))
}

fn nothing(_: &Texts) {}

/// Adds a process to the pod.
fn start(texts: &Texts, number: u32, command: &str, threads: u64, environment: &str) {
    let set = |name: &str, text: &str| texts.set(&format!("/proc/{number}/{name}"), text);
    set("cgroup", "0::/pod7\n");
    set("cmdline", command);
    set("status", &format!("Name:\tx\nThreads:\t{threads}\nCpus_allowed:\t3\n"));
    set("environ", environment);
}

#[test]
fn a_pod_whose_quota_is_never_used_up_has_no_fault() {
    assert_eq!(complaints(&healthy(), |texts| texts.set(STAT, &stat(1020, 0))), []);
}

#[test]
fn a_quota_that_stops_the_group_while_it_is_watched_is_a_fault_or_a_warning_by_how_often() {
    let texts = healthy();
    assert_eq!(
        complaints(&texts, |texts| texts.set(STAT, &stat(1020, 10))),
        [(THROTTLING, DoctorStatus::Error)]
    );
    let texts = healthy();
    assert_eq!(
        complaints(&texts, |texts| texts.set(STAT, &stat(1020, 1))),
        [(THROTTLING, DoctorStatus::Warning)]
    );
    let texts = healthy();
    let text = found(&texts, |texts| texts.set(STAT, &stat(1020, 10)))[0].text.clone();
    assert!(
        text.contains("2 cores") && text.contains("10 of 20 periods") && text.contains("for 0.50 s"),
        "{text}"
    );
}

#[test]
fn a_group_that_is_idle_now_and_was_stopped_often_is_warned_of_and_one_that_was_seldom_is_not() {
    let texts = healthy();
    texts.set(STAT, &stat(1000, 400));
    assert_eq!(complaints(&texts, nothing), [(THROTTLING, DoctorStatus::Warning)]);
    texts.set(STAT, &stat(1000, 40));
    assert_eq!(complaints(&texts, nothing), []);
}

#[test]
fn a_quota_around_the_group_counts_and_in_version_one_too() {
    let texts = Texts::new(&[
        ("/proc/self/cgroup", "2:cpu,cpuacct:/pod/c\n"),
        ("/proc/self/mountinfo", "32 31 0:29 / /c rw - cgroup cgroup rw,cpu,cpuacct\n"),
        ("/c/pod/c/cpu.cfs_quota_us", "-1\n"),
        ("/c/pod/c/cpu.cfs_period_us", "100000\n"),
        ("/c/pod/cpu.cfs_quota_us", "50000\n"),
        ("/c/pod/cpu.cfs_period_us", "100000\n"),
        ("/c/pod/cpu.stat", "nr_periods 4\nnr_throttled 0\nthrottled_time 0\n"),
        ("/proc/pressure/cpu", "some avg10=0.00 total=12\n"),
    ]);
    assert_eq!(complaints(&texts, nothing), []);
    let stops = |texts: &Texts| {
        texts.set("/c/pod/cpu.stat", "nr_periods 24\nnr_throttled 20\nthrottled_time 9000000\n");
    };
    assert_eq!(complaints(&texts, stops), [(THROTTLING, DoctorStatus::Error)]);
}

#[test]
fn more_threads_at_once_than_the_quota_has_cores_are_warned_of() {
    for (wrong, right) in [("GOMAXPROCS=16", "GOMAXPROCS=2"), ("A=1\0GOMAXPROCS=3\0", "A=1\0GOMAXPROCS=1\0")]
    {
        let texts = healthy();
        start(&texts, 7, "/usr/bin/shop\0--serve\0", 20, wrong);
        assert_eq!(complaints(&texts, nothing), [(WORKERS, DoctorStatus::Warning)], "{wrong}");
        start(&texts, 7, "/usr/bin/shop\0--serve\0", 20, right);
        assert_eq!(complaints(&texts, nothing), [], "{right}");
    }
}

#[test]
fn nginx_workers_are_counted_together() {
    let texts = healthy();
    start(&texts, 1, "nginx: master process nginx -g daemon off;", 1, "");
    for number in 10..12 {
        start(&texts, number, "nginx: worker process", 1, "");
    }
    assert_eq!(complaints(&texts, nothing), []);
    start(&texts, 12, "nginx: worker process", 1, "");
    assert_eq!(complaints(&texts, nothing), [(WORKERS, DoctorStatus::Warning)]);
    let finding = &found(&texts, nothing)[1];
    assert!(finding.text.starts_with("nginx with 3 workers runs up to 3 threads"), "{}", finding.text);
    assert!(reason(finding).contains("in 67 ms"));
}

/// Envoy has other threads besides its workers.
#[test]
fn envoys_workers_are_its_threads_of_that_name() {
    let workers = |count: u32| {
        let texts = healthy();
        start(&texts, 9, "/usr/local/bin/envoy\0-c\0envoy.yaml\0", 40, "");
        for at in 0..count {
            texts.set(&format!("/proc/9/task/{}/comm", 100 + at), &format!("wrk:worker_{at}\n"));
        }
        texts.set("/proc/9/task/9/comm", "envoy\n");
        complaints(&texts, nothing)
    };
    assert_eq!(workers(2), []);
    assert_eq!(workers(8), [(WORKERS, DoctorStatus::Warning)]);
}

#[test]
fn threads_of_which_nobody_says_how_many_run_at_once_are_neither_ok_nor_blamed() {
    let texts = healthy();
    start(&texts, 7, "java\0-jar\0shop.jar\0", 60, "A=1");
    assert_eq!(complaints(&texts, nothing), [(WORKERS, DoctorStatus::Unknown)]);
    start(&texts, 7, "java\0-jar\0shop.jar\0", 2, "A=1");
    assert_eq!(complaints(&texts, nothing), []);
}

/// Regression: an unreadable setting counted as not set, and the finding was ok.
#[test]
fn a_process_whose_gomaxprocs_is_unknown_is_not_ok_unless_it_has_one_thread() {
    let texts = healthy();
    start(&texts, 7, "/usr/bin/shop", 2, "");
    start(&texts, 8, "/usr/bin/shop", 2, "");
    assert_eq!(complaints(&texts, nothing), []);
    texts.refuse("/proc/7/environ");
    texts.refuse("/proc/8/environ");
    assert_eq!(complaints(&texts, nothing), [(WORKERS, DoctorStatus::Unknown)]);
    let why = reason(&found(&texts, nothing)[1]).to_owned();
    assert!(
        why.contains("which may set GOMAXPROCS; the check cannot read the settings of 1 more processes"),
        "{why}"
    );
    for number in [7, 8] {
        texts.set(&format!("/proc/{number}/status"), "Name:\tx\nThreads:\t1\n");
    }
    assert_eq!(complaints(&texts, nothing), [], "no program of Go's has one");
    start(&texts, 9, "shop", 9, "GOMAXPROCS=9");
    assert_eq!(complaints(&texts, nothing), [(WORKERS, DoctorStatus::Warning)], "wrong for sure");
}

/// Go reads a 32-bit number. For any other value it uses all cores.
#[test]
fn a_gomaxprocs_that_go_does_not_take_is_not_taken_for_fine() {
    for odd in ["99999999999999999999", "4294967296", "0", "-1", "two"] {
        let texts = healthy();
        start(&texts, 7, "shop", 2, &format!("GOMAXPROCS={odd}"));
        assert_eq!(complaints(&texts, nothing), [(WORKERS, DoctorStatus::Unknown)], "{odd}");
    }
    let texts = healthy();
    start(&texts, 7, "shop", 2, "GOMAXPROCS=\0GOMAXPROC=9");
    assert_eq!(complaints(&texts, nothing), []);
}

#[test]
fn processes_that_are_not_shown_leave_it_unknown_whether_all_fit() {
    let texts = healthy();
    start(&texts, 7, "shop", 2, "");
    texts.refuse("/proc/8/cgroup");
    assert_eq!(complaints(&texts, nothing), [(WORKERS, DoctorStatus::Unknown)]);
    texts.remove("/proc/8/cgroup");
    assert_eq!(complaints(&texts, nothing), []);
    let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 23 0:5 / /proc rw - proc proc rw,hidepid=invisible\n";
    texts.set("/proc/self/mountinfo", mounts);
    assert_eq!(complaints(&texts, nothing), [(WORKERS, DoctorStatus::Unknown)]);
    texts.set("/proc/self/status", "CapEff:\t000001ffffffffff\n");
    assert_eq!(complaints(&texts, nothing), []);
}

#[test]
fn processes_of_other_groups_and_groups_without_a_quota_are_not_judged_by_threads() {
    let texts = healthy();
    start(&texts, 7, "shop", 60, "GOMAXPROCS=60");
    texts.set("/proc/7/cgroup", "0::/pod8\n");
    assert_eq!(complaints(&texts, nothing), []);
    texts.set("/proc/7/cgroup", "0::/pod7\n");
    texts.set(QUOTA, "max 100000\n");
    assert_eq!(complaints(&texts, nothing), []);
}

#[test]
fn a_tenth_of_the_time_spent_waiting_for_a_cpu_is_as_much_as_is_borne() {
    let waits = |micros: u64| {
        let texts = healthy();
        complaints(&texts, |texts| texts.set(STALLS, &format!("some avg10=0.00 total={}\n", 1000 + micros)))
    };
    assert_eq!(waits(190_000), []);
    assert_eq!(waits(210_000), [(PRESSURE, DoctorStatus::Warning)]);
}
