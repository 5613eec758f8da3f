use std::cell::Cell;

use seawall_probe::file_reader::fake::Texts;

use super::*;
use crate::finding::test_helpers::{self, reason};
use crate::http_client::fake::{Servers, answer, status};

/// Recorded pages of Envoy 1.40: one after some requests, and one with a single worker, narrow limits and a silent client.
mod envoy {
    macro_rules! page {
        ($name:literal) => {
            include_str!(concat!("envoy-1.40/", $name))
        };
    }
    pub(super) const INFO: &str = page!("healthy/server_info.json");
    pub(super) const STATS: &str = page!("healthy/stats.txt");
    pub(super) const CLUSTERS: &str = page!("healthy/clusters.json");
    pub(super) const OVERLOADED: [&str; 3] = [
        page!("overloaded/server_info.json"),
        page!("overloaded/stats.txt"),
        page!("overloaded/clusters.json"),
    ];
}

/// The pages of an Envoy: its information, its counters in both samples, its clusters.
#[derive(Clone)]
struct Says {
    info: String,
    before: String,
    after: String,
    clusters: String,
}

fn healthy() -> Says {
    let [info, stats, clusters] = [envoy::INFO, envoy::STATS, envoy::CLUSTERS].map(str::to_owned);
    Says { info, before: stats.clone(), after: stats, clusters }
}

impl Says {
    /// Adds these lines to the counters of the second sample or of both.
    fn counts(mut self, lines: &str, is_growing: bool) -> Self {
        if !is_growing {
            self.before = [&self.before, "\n", lines, "\n"].concat();
        }
        self.after = [&self.after, "\n", lines, "\n"].concat();
        self
    }

    fn about(mut self, from: &str, to: &str) -> Self {
        assert!(self.info.contains(from), "{from}");
        self.info = self.info.replace(from, to);
        self
    }
}

/// Returns a machine with eight cores.
fn machine() -> Texts {
    Texts::new(&[(
        "/proc/stat",
        "cpu  1 2\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\ncpu4 1\ncpu5 1\ncpu6 1\ncpu7 1\nintr 5\n",
    )])
}

fn serve<'a>(servers: &Servers<'a>, says: &'a Says, looks: &'a Cell<u32>) {
    servers.serve("127.0.0.1:15000", |request| {
        if request.target == "/server_info" {
            return answer(&says.info);
        }
        if request.target.starts_with("/clusters") {
            return answer(&says.clusters);
        }
        looks.set(looks.get() + 1);
        answer(if looks.get() == 1 { &says.before } else { &says.after })
    });
}

fn found(says: &Says) -> Vec<DoctorFinding> {
    found_on(&machine(), says)
}

fn found_on(machine: &Texts, says: &Says) -> Vec<DoctorFinding> {
    let looks = Cell::new(0);
    let servers = Servers::default();
    serve(&servers, says, &looks);
    examine(&CheckContext { http_fetcher: &servers, ..CheckContext::for_test(machine) })
}

/// Adds an Envoy process with these workers, in a group with this quota (as `cpu.max`).
fn runs(machine: &Texts, process: u32, workers: u32, quota: &str) {
    let set = |name: &str, text: &str| machine.set(&format!("/proc/{process}/{name}"), text);
    set("cmdline", "/usr/local/bin/envoy\0-c\0envoy.yaml\0");
    set("cgroup", &format!("0::/pod{process}\n"));
    (0..workers).for_each(|at| set(&format!("task/{at}/comm"), &format!("wrk:worker_{at}\n")));
    listens(machine, "self", 77);
    listens(machine, &process.to_string(), 77);
    machine.set("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    machine.set(&format!("/sys/fs/cgroup/pod{process}/cpu.max"), quota);
    machine.set(
        &format!("/sys/fs/cgroup/pod{process}/cpu.stat"),
        "nr_periods 4\nnr_throttled 0\nthrottled_usec 0\n",
    );
}

/// Adds a listener at Envoy's port in the network namespace of a process, with this inode.
fn listens(machine: &Texts, process: &str, inode: u32) {
    let lines = format!(
        "  sl  local_address rem_address   st\n\
         0: 0100007F:3A98 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 {inode} 1 0\n\
         1: 0100007F:3A98 0100007F:9999 01 00000000:00000000 00:00000000 00000000 0 0 99 1 0\n"
    );
    machine.set(&format!("/proc/{process}/net/tcp"), &lines);
}

/// Returns the findings that are not ok.
fn complaints(says: &Says) -> Vec<(&'static str, DoctorStatus)> {
    test_helpers::complaints(found(says))
}

fn text(says: &Says, id: &str) -> String {
    test_helpers::finding_named(id, found(says)).text
}

#[test]
fn an_envoy_that_carries_its_requests_has_no_fault() {
    assert_eq!(complaints(&healthy()), []);
    let first = text(&healthy(), ENVOY);
    assert_eq!(first, "Envoy 1.40.0 of Istio 1.24.1 at 127.0.0.1:15000, LIVE, up for 3s");
    assert_eq!(found(&healthy()).len(), CHECK.finding_ids.len());
}

#[test]
fn one_worker_and_narrow_limits_are_found_in_what_envoy_itself_said() {
    let [info, stats, clusters] = envoy::OVERLOADED.map(str::to_owned);
    let says = Says { info, before: stats.clone(), after: stats, clusters };
    let expected = [WORKERS, PENDING, BREAKERS, PROTOCOL, ANNOTATIONS].map(|id| (id, DoctorStatus::Warning));
    assert_eq!(complaints(&says), expected);
    let pending = text(&says, PENDING);
    assert!(
        pending.contains("18 of 24 requests to the worst cluster, outbound|80||store.shop.svc.cluster.local"),
        "{pending}"
    );
}

#[test]
fn nobody_at_the_usual_ports_is_one_finding_and_no_complaint() {
    let (servers, machine) = (Servers::default(), machine());
    let found = examine(&CheckContext { http_fetcher: &servers, ..CheckContext::for_test(&machine) });
    let told: Vec<_> =
        found.iter().map(|finding| (finding.id, finding.status, finding.text.as_str())).collect();
    assert_eq!(
        told,
        [(
            ENVOY,
            DoctorStatus::Ok,
            "no sidecar: no program listens at 127.0.0.1:15000 nor at 127.0.0.1:9901"
        )]
    );
    assert_eq!(servers.asked.borrow().len(), 2);
}

#[test]
fn who_answers_something_else_is_told_and_nothing_is_said_of_it() {
    let machine = machine();
    let others: [fn() -> Result<FetchResponse, FetchError>; 5] = [
        || answer("<html>"),
        || answer(r#"{"version": 7}"#),
        || status(404),
        || Err(FetchError::InvalidResponse("it does not begin with HTTP".to_owned())),
        || Err(FetchError::Timeout(EACH)),
    ];
    for other in others {
        let servers = Servers::default();
        servers.serve("127.0.0.1:9901", move |_| other());
        let found = examine(&CheckContext { http_fetcher: &servers, ..CheckContext::for_test(&machine) });
        assert_eq!((found.len(), found[0].status), (1, DoctorStatus::Unknown));
        assert!(reason(&found[0]).contains("127.0.0.1:9901"), "{:?}", found[0]);
    }
}

#[test]
fn an_envoy_that_is_named_is_asked_alone_and_must_be_there() {
    let (servers, machine) = (Servers::default(), machine());
    let place = HttpUrl::of_url("http://10.0.0.1:8001/admin").unwrap();
    let site = CheckContext {
        http_fetcher: &servers,
        envoy_admin: Some(&place),
        ..CheckContext::for_test(&machine)
    };
    assert_eq!(examine(&site)[0].status, DoctorStatus::Unknown);
    assert_eq!(*servers.asked.borrow(), ["GET 10.0.0.1:8001 /admin/server_info"]);
    servers.serve("10.0.0.1:8001", |request| match request.target {
        "/admin/server_info" => answer(envoy::INFO),
        target if target.starts_with("/admin/clusters") => answer(envoy::CLUSTERS),
        _ => answer(envoy::STATS),
    });
    assert!(examine(&site).iter().all(|finding| finding.status == DoctorStatus::Ok));
}

#[test]
fn one_worker_for_several_cores_is_warned_of_and_for_one_core_is_not() {
    let plain = healthy().about("ISTIO_VERSION", "OTHER");
    let with = |workers: u32, limit: &str| {
        let says = healthy().about("\"concurrency\": 2", &format!("\"concurrency\": {workers}"));
        let says = says.about("\"concurrency: 2\\n\"", &format!("\"concurrency: {workers}\\n\""));
        complaints(&says.about("proxyCPULimit\": \"2\"", &format!("proxyCPULimit\": \"{limit}\"")))
    };
    assert_eq!(complaints(&plain), []);
    assert_eq!(with(1, "1"), []);
    assert_eq!(with(1, "1000m"), []);
    assert_eq!(with(1, "4"), [(WORKERS, DoctorStatus::Warning)]);
    assert_eq!(with(2, "4"), [(WORKERS, DoctorStatus::Warning)]);
    assert_eq!(with(4, "3500m"), []);
    assert_eq!(with(8, "2"), [(WORKERS, DoctorStatus::Warning)]);
}

/// Regression: the check warned about one worker in a group of one core and advised more workers than that core can run.
#[test]
fn one_worker_is_judged_by_the_quota_of_envoys_own_group_and_unknown_where_that_is_not_seen() {
    let plain = healthy().about("ISTIO_VERSION", "OTHER");
    let one = plain.clone().about("\"concurrency\": 2,", "\"concurrency\": 1,");
    let status_of =
        |machine: &Texts, says: &Says| test_helpers::finding_named(WORKERS, found_on(machine, says)).status;
    let with = |quota: &str| {
        let machine = machine();
        runs(&machine, 7, 1, quota);
        machine
    };
    assert_eq!(status_of(&with("100000 100000\n"), &one), DoctorStatus::Ok);
    assert_eq!(status_of(&with("50000 100000\n"), &one), DoctorStatus::Ok);
    assert_eq!(status_of(&with("400000 100000\n"), &one), DoctorStatus::Warning);
    assert_eq!(status_of(&with("max 100000\n"), &one), DoctorStatus::Warning);
    // This is another Envoy, because its number of workers differs.
    assert_eq!(status_of(&with("100000 100000\n"), &plain), DoctorStatus::Ok);
    let two = with("400000 100000\n");
    runs(&two, 8, 1, "100000 100000\n");
    for machine in [machine(), two] {
        let found = test_helpers::finding_named(WORKERS, found_on(&machine, &one));
        assert_eq!(found.status, DoctorStatus::Unknown, "{found:?}");
        assert!(test_helpers::fix(&found).contains("if the limit is above one core"), "{found:?}");
    }
    // One of the two Envoys is in another network namespace, so it is another one.
    let elsewhere = with("400000 100000\n");
    runs(&elsewhere, 8, 1, "100000 100000\n");
    listens(&elsewhere, "7", 78);
    assert_eq!(status_of(&elsewhere, &one), DoctorStatus::Ok);
    let single = Texts::new(&[("/proc/stat", "cpu  1 2\ncpu0 1\nintr 5\n")]);
    assert_eq!(status_of(&single, &one), DoctorStatus::Ok);
}

#[test]
fn a_worker_that_did_not_come_back_to_its_work_is_warned_of() {
    let late = healthy().counts("server.worker_1.watchdog_miss: 3", false);
    assert_eq!(complaints(&late), [(WORKERS, DoctorStatus::Warning)]);
    assert!(text(&late, WORKERS).contains("3 times"));
    assert_eq!(complaints(&healthy().counts("server.worker_1.watchdog_miss: 0", false)), []);
}

/// The workers of one listener are compared.
#[test]
fn a_worker_that_has_nearly_all_connections_is_warned_of_and_a_fair_draw_is_not() {
    let lines = |first: u32, second: u32| {
        let line =
            |worker, count| format!("listener.[__]_15006.worker_{worker}.downstream_cx_active: {count}\n");
        complaints(&healthy().counts(&[line(0, first), line(1, second)].concat(), false))
    };
    assert_eq!(lines(64, 0), [(SPREAD, DoctorStatus::Warning)]);
    for (first, second) in [(40, 24), (7, 0), (2, 1), (32, 32)] {
        assert_eq!(lines(first, second), [], "{first} and {second}");
    }
}

/// A few refused requests since the start are accepted.
#[test]
fn requests_that_are_refused_are_a_fault_while_they_are_and_a_warning_by_their_share_afterwards() {
    let lines = "cluster.a.b.upstream_rq_total: 10000\ncluster.a.b.upstream_rq_pending_overflow: 50";
    assert_eq!(complaints(&healthy().counts(lines, true)), [(PENDING, DoctorStatus::Error)]);
    assert_eq!(complaints(&healthy().counts(lines, false)), [(PENDING, DoctorStatus::Warning)]);
    let few = "cluster.a.b.upstream_rq_total: 100000\ncluster.a.b.upstream_rq_pending_overflow: 50";
    assert_eq!(complaints(&healthy().counts(few, false)), []);
}

/// A busy cluster with a few failures must not hide a cluster that fails always or fails now.
#[test]
fn the_cluster_that_is_named_is_the_one_that_loses_now_or_else_the_largest_share() {
    let busy = "cluster.busy.upstream_rq_total: 10000000\ncluster.busy.upstream_rq_pending_overflow: 500\n";
    let small = "cluster.small.upstream_rq_total: 5\ncluster.small.upstream_rq_pending_overflow: 20\n";
    let both = healthy().counts(&[busy, small].concat(), false);
    assert_eq!(complaints(&both), [(PENDING, DoctorStatus::Warning)]);
    assert!(
        text(&both, PENDING).contains("20 of 25 requests to the worst cluster, small"),
        "{}",
        text(&both, PENDING)
    );
    let now = both.counts("cluster.busy.upstream_rq_pending_overflow: 501", true);
    assert_eq!(complaints(&now), [(PENDING, DoctorStatus::Error)]);
    assert!(text(&now, PENDING).contains("the worst cluster, busy"), "{}", text(&now, PENDING));
}

#[test]
fn a_breaker_that_is_open_or_cuts_is_a_fault_one_that_did_or_is_near_its_limit_a_warning() {
    let open = |name: &str| {
        complaints(&healthy().counts(&format!("cluster.a.circuit_breakers.high.{name}: 1"), false))
    };
    assert_eq!(open("rq_open"), [(BREAKERS, DoctorStatus::Error)]);
    // All allowed connections are open, which alone does no harm.
    assert_eq!(open("cx_open"), []);
    let retries = "cluster.a.upstream_rq_retry_overflow: 4";
    assert_eq!(complaints(&healthy().counts(retries, true)), [(BREAKERS, DoctorStatus::Error)]);
    assert_eq!(complaints(&healthy().counts(retries, false)), [(BREAKERS, DoctorStatus::Warning)]);
    let limited = |most: u32| {
        let clusters =
            envoy::CLUSTERS.replace("\"max_connections\": 1024", &format!("\"max_connections\": {most}"));
        complaints(&Says { clusters, ..healthy() })
    };
    assert_eq!(limited(15), [(BREAKERS, DoctorStatus::Warning)]);
    assert_eq!(limited(16), []);
}

/// Regression: one of five thousand clusters was named as if it were the only one.
#[test]
fn of_many_clusters_with_an_open_breaker_one_is_named_and_the_others_are_counted() {
    let open = |count: u32| {
        let lines = (0..count).map(|at| format!("cluster.c{at}.circuit_breakers.default.rq_open: 1\n"));
        test_helpers::finding_named(BREAKERS, found(&healthy().counts(&lines.collect::<String>(), false)))
    };
    let (one, two, many) = (open(1), open(2), open(5000));
    assert!(
        one.text.starts_with("these circuit breakers of c0 are open now: default.rq_open"),
        "{}",
        one.text
    );
    assert!(!one.text.contains("other cluster"), "{}", one.text);
    assert!(two.text.contains("; so are circuit breakers of 1 other cluster"), "{}", two.text);
    assert!(
        many.text.contains("default.rq_open; so are circuit breakers of 4999 other clusters"),
        "{}",
        many.text
    );
    assert_eq!(test_helpers::measured(&many, "open"), 5000.0);
}

/// Long names with spaces, but without a long word, must be cut, too.
#[test]
fn names_that_envoy_tells_are_bounded_wherever_they_are_told() {
    let long = "ab ".repeat(20_000);
    let lines = format!(
        "cluster.{long}.circuit_breakers.default.rq_open: 1\ncluster.{long}.circuit_breakers.{long}_open: 1\n\
         cluster.{long}.upstream_rq_pending_overflow: 1\ncluster.{long}.upstream_cx_connect_fail: 1\n\
         cluster.{long}.upstream_cx_overflow: 1\nlistener.{long}.worker_0.downstream_cx_active: 99"
    );
    let says = healthy()
        .counts(&lines, true)
        .about("LIVE", &long)
        .about("1.24.1", &long)
        .about("\"3s\"", &format!("\"{long}\""));
    let says = says.about("sidecar.istio.io/proxyCPULimit", &format!("sidecar.istio.io/{long}"));
    let clusters = envoy::CLUSTERS.replace("\"name\": \"", &format!("\"name\": \"{long}"));
    let found = found(&Says { clusters, ..says });
    let longest = found.iter().map(|finding| finding.text.len()).max().unwrap();
    assert!(longest < 1500, "{longest}");
    let told = found.iter().filter(|finding| finding.text.contains(&"ab ".repeat(79)));
    let told: Vec<_> = told.map(|finding| finding.id).collect();
    assert_eq!(told, [ENVOY, SPREAD, PENDING, BREAKERS, CONNECTIONS, ANNOTATIONS]);
}

#[test]
fn limits_that_cannot_be_read_leave_the_breakers_unknown_unless_one_is_open() {
    for clusters in ["", "[]", "{\"cluster_statuses\": 3}", "not found"] {
        let says = Says { clusters: clusters.to_owned(), ..healthy() };
        assert_eq!(complaints(&says), [(BREAKERS, DoctorStatus::Unknown)], "{clusters}");
    }
    let open = "cluster.a.circuit_breakers.default.rq_pending_open: 1";
    let says = Says { clusters: String::new(), ..healthy() }.counts(open, false);
    assert_eq!(complaints(&says), [(BREAKERS, DoctorStatus::Error)]);
    // An Envoy without clusters is ok.
    assert_eq!(complaints(&Says { clusters: "{}".to_owned(), ..healthy() }), []);
}

#[test]
fn connections_that_fail_or_serve_a_request_each_are_told() {
    let counts = |connections: u32, failed: u32, requests: u32, is_growing| {
        let lines = format!(
            "cluster.a.upstream_cx_total: {connections}\ncluster.a.upstream_cx_connect_fail: {failed}\ncluster.a.upstream_rq_total: {requests}"
        );
        complaints(&healthy().counts(&lines, is_growing))
    };
    assert_eq!(counts(5000, 5, 50_000, true), [(CONNECTIONS, DoctorStatus::Error)]);
    assert_eq!(counts(5000, 5, 50_000, false), [(CONNECTIONS, DoctorStatus::Warning)]);
    assert_eq!(counts(5000, 4, 50_000, false), []);
    assert_eq!(counts(900, 0, 1000, false), [(CONNECTIONS, DoctorStatus::Warning)]);
    assert_eq!(counts(400, 0, 1000, false), []);
    assert_eq!(counts(90, 0, 90, false), []);
}

#[test]
fn connections_that_wait_for_a_protocol_in_vain_are_a_fault_while_they_do() {
    let line = "listener.0.0.0.0_15006.downstream_pre_cx_timeout: 3";
    assert_eq!(complaints(&healthy().counts(line, true)), [(PROTOCOL, DoctorStatus::Error)]);
    assert_eq!(complaints(&healthy().counts(line, false)), [(PROTOCOL, DoctorStatus::Warning)]);
    assert!(text(&healthy(), PROTOCOL).starts_with(
        "Envoy uses HTTP/1.1 to 1 cluster and HTTP/2 to 0; Envoy detected the protocol of 12 connections"
    ));
}

#[test]
fn an_annotation_that_asks_for_other_workers_or_less_than_a_core_is_warned_of() {
    let asked = healthy().about("\"concurrency: 2\\n\"", "\"concurrency: 4\\n\"");
    assert_eq!(complaints(&asked), [(ANNOTATIONS, DoctorStatus::Warning)]);
    let limit = healthy().about("proxyCPULimit\": \"2\"", "proxyCPULimit\": \"100m\"");
    assert_eq!(complaints(&limit), [(WORKERS, DoctorStatus::Warning), (ANNOTATIONS, DoctorStatus::Warning)]);
    let none =
        healthy().about("sidecar.istio.io/proxyCPULimit", "other").about("proxy.istio.io/config", "more");
    assert_eq!(complaints(&none), []);
    assert_eq!(text(&none, ANNOTATIONS), "the pod has no annotations for its sidecar");
}

/// Regression: the finding showed a tracing token as the start of a value.
#[test]
fn of_annotations_no_value_is_told_but_of_those_that_are_looked_at_and_as_what_they_are() {
    let secret = "SECRETabcdef0123456789";
    let config =
        format!(r#"{{\"tracing\":{{\"lightstep\":{{\"accessToken\":\"{secret}\"}}}},\"concurrency\":2}}"#);
    let plain = healthy().about("\"concurrency: 2\\n\"", &format!("\"{config}\""));
    let odd = plain.clone().about(
        "Limit\": \"2\"",
        &format!(
            "Limit\": \"{secret}\", \"proxy.istio.io/{secret}\": 3, \
        \"sidecar.istio.io/proxyMemory\": \"128Mi\", \"sidecar.istio.io/proxyMemoryLimit\": \"{secret}\", \
        \"sidecar.istio.io/userVolume\": \"{secret}\", \"other.io/{secret}\": \"{secret}\""
        ),
    );
    for says in [&plain, &odd] {
        let all = format!("{:?}", found(says));
        assert!(!all.contains("SECRET") && !all.contains("accessToken"), "{all}");
    }
    assert_eq!(
        text(&plain, ANNOTATIONS),
        "proxy.istio.io/config: concurrency 2, sidecar.istio.io/proxyCPULimit: 2 cores"
    );
    let told = text(&odd, ANNOTATIONS);
    let rest = "sidecar.istio.io/proxyCPULimit, sidecar.istio.io/proxyMemory: 134217728 bytes, sidecar.istio.io/proxyMemoryLimit, \
                sidecar.istio.io/userVolume";
    assert_eq!(told, format!("proxy.istio.io/config: concurrency 2, {rest}"));
}

/// The file is for sidecars whose metadata lacks the annotations.
#[test]
fn annotations_are_read_of_the_pods_file_too() {
    let machine = machine();
    machine.set(ANNOTATED, "a=\"b\"\nproxy.istio.io/config=\"concurrency: 4\\n\"\nbroken\nc=d\n");
    let says = |info: &str| {
        let servers = Servers::default();
        let info = info.to_owned();
        servers.serve("127.0.0.1:15000", move |request| match request.target {
            "/server_info" => answer(&info),
            target if target.starts_with("/clusters") => answer(envoy::CLUSTERS),
            _ => answer(envoy::STATS),
        });
        let found = examine(&CheckContext { http_fetcher: &servers, ..CheckContext::for_test(&machine) });
        test_helpers::finding_named(ANNOTATIONS, found).status
    };
    assert_eq!(says(&envoy::INFO.replace("\"ANNOTATIONS\"", "\"OTHER\"")), DoctorStatus::Warning);
    assert_eq!(says(envoy::INFO), DoctorStatus::Ok);
}

#[test]
fn an_envoy_that_is_not_live_is_warned_of() {
    assert_eq!(complaints(&healthy().about("LIVE", "DRAINING")), [(ENVOY, DoctorStatus::Warning)]);
}

#[test]
fn counters_that_cannot_be_read_leave_all_that_follows_of_them_unknown() {
    let says = Says { before: "<html>".to_owned(), after: "<html>".to_owned(), ..healthy() };
    let expected = [SPREAD, PENDING, BREAKERS, CONNECTIONS, PROTOCOL].map(|id| (id, DoctorStatus::Unknown));
    assert_eq!(complaints(&says), expected);
    let long = Says { after: "a: 1\n".repeat(MOST / 5 + 1), ..healthy() };
    assert!(complaints(&long).contains(&(PENDING, DoctorStatus::Unknown)));
}

#[test]
fn no_bytes_make_it_panic() {
    let pieces = [
        "cluster.",
        ".",
        "listener.x.worker_",
        "listener..worker_1.downstream_cx_active: 18446744073709551615\n",
        "server.worker_0.watchdog_miss: 18446744073709551615\n",
        "cluster.a.upstream_cx_total: -1\n",
        ": \n",
        "\0",
        "é: 3\n",
        "cluster..circuit_breakers.: 1\n",
        "cluster.a.upstream_rq_pending_overflow: 18446744073709551615\n",
    ];
    for one in pieces {
        for other in pieces {
            found(&healthy().counts(&[one, other, one].concat(), true));
            found(&Says { info: [one, other].concat(), ..healthy() });
            found(&Says { clusters: [one, other].concat(), ..healthy() });
        }
    }
}

#[test]
fn it_ends_within_five_seconds_however_slow_envoy_is() {
    for slow in [Duration::from_millis(1), Duration::from_millis(699), Duration::from_secs(9)] {
        let (says, looks, machine) = (healthy(), Cell::new(0), machine());
        let servers = Servers::default();
        serve(&servers, &says, &looks);
        servers.slow.set(slow);
        let waited = Cell::new(Duration::ZERO);
        let wait = |time| {
            waited.set(waited.get() + time);
            time
        };
        examine(&CheckContext { http_fetcher: &servers, sleep: &wait, ..CheckContext::for_test(&machine) });
        assert!(servers.passed.get() + waited.get() <= Duration::from_secs(5), "{slow:?}");
    }
}
