//! `seawall pod` as a program: orders on its standard input, lines on its standard output.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rustix::process::{Pid, Signal, kill_process};
use seawall_cause::experiment::{self, Experiment, Variation};
use seawall_fleet::protocol::{BeginTrial, ControlCommand, MAX_LOG_BYTES_PER_SECOND, PodCommand, PodReport};
use seawall_lab::remote_tasks::find_tasks::{
    BlockList, ExperimentPartResult, SearchTask, SearchTaskResult as Found,
};
use seawall_lab::remote_tasks::load::LoadPartResult;
use seawall_load::clock::{RunClock, SECOND};
use seawall_load::control::RunStopReason;
use seawall_load::interval::{IntervalStats, merge};
use seawall_load::stats::LoadStats;
use seawall_search::observation::{BlockCounts, sum};
use seawall_search::trial_spec::{StopRule, TrialPurpose, TrialSpec};
use seawall_testkit::closure_server::Server;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

type Line = PodReport<IntervalStats, LoadPartResult>;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// A server that answers everything and writes down which hit asked.
fn witness() -> (Server, Arc<Mutex<Vec<u64>>>) {
    let hits = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&hits);
    let server = Server::start(move |mut peer, _| {
        loop {
            let head = peer.read_request_head()?;
            let hit = head.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
            seen.lock().unwrap().push(hit);
            peer.send(OK)?;
        }
    });
    (server.unwrap(), hits)
}

/// A pod, and whoever says that he is there while it lives.
struct Pod {
    child: Child,
    orders: Arc<Mutex<Option<ChildStdin>>>,
    lines: Receiver<String>,
}

impl Pod {
    /// The pod with this number of so many, whose user typed these words.
    fn start(arguments: &[&str], index: u64, of: u64, files: &TempDir) -> Self {
        let place = files.path().join(format!("arguments-{index}"));
        std::fs::write(&place, serde_json::to_vec(arguments).unwrap()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
        command.args(["pod", "--heartbeat", "3s", "--pods", &of.to_string(), "--arguments"]).arg(place);
        command
            .env("JOB_COMPLETION_INDEX", index.to_string())
            .env_remove("HTTP_PROXY")
            .env_remove("http_proxy");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let orders = Arc::new(Mutex::new(child.stdin.take()));
        let pod = Self { child, orders, lines };
        pod.is_there();
        pod
    }

    /// Says so until the pod or its input is gone.
    fn is_there(&self) {
        let orders = Arc::clone(&self.orders);
        thread::spawn(move || {
            while orders
                .lock()
                .unwrap()
                .as_mut()
                .is_some_and(|orders| orders.write_all(b"{\"ping\":1}\n").is_ok())
            {
                thread::park_timeout(Duration::from_millis(100));
            }
        });
    }

    fn order<W: Serialize>(&self, order: &PodCommand<W>) {
        let line = serde_json::to_string(order).unwrap() + "\n";
        self.orders.lock().unwrap().as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// The shard of a load that begins then.
    fn begin(&self, at: i64, shard: (u64, u64)) {
        self.order(&PodCommand::Begin(BeginTrial { trial: 1, at, shard, work: () }));
    }

    /// What follows is nothing that a load asks for.
    fn obey(&self, order: &PodCommand<()>) {
        self.order(order);
    }

    /// The next line that is no pong, of a load.
    fn next(&self) -> Option<Line> {
        self.next_of()
    }

    /// The next line that is no pong.
    fn next_of<P: DeserializeOwned, R: DeserializeOwned>(&self) -> Option<PodReport<P, R>> {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(60)).ok()?;
            let told = serde_json::from_str(&line).unwrap();
            if let PodReport::Part { .. } = &told {
                assert!(line.len() <= MAX_LOG_BYTES_PER_SECOND, "{} bytes", line.len());
            }
            if !matches!(told, PodReport::Pong(_)) {
                return Some(told);
            }
        }
    }

    fn is_ready(&self, connections: usize) {
        let told = self.next().unwrap();
        let PodReport::Ready(ready) = told else { panic!("{told:?}") };
        assert_eq!(ready.connections, connections);
    }

    /// What comes of a trial.
    fn told(&self) -> Tale {
        let mut tale = Tale::default();
        loop {
            match self.next().unwrap() {
                PodReport::Begun { at, .. } => tale.at = at,
                PodReport::Part { part, doubts, .. } => {
                    tale.parts.push(part);
                    tale.doubts.extend(doubts);
                }
                PodReport::Records { chunk, .. } => {
                    tale.records.extend(BASE64_STANDARD.decode(chunk).unwrap());
                }
                PodReport::Done { result, .. } => return Tale { result: Some(result), ..tale },
                other => panic!("{other:?}"),
            }
        }
    }

    /// Blocks of a work, and what it came to. `each` sees the blocks so far whenever there are more.
    fn found(&self, mut each: impl FnMut(&[BlockCounts])) -> (Vec<BlockCounts>, Found) {
        let mut blocks = Vec::new();
        loop {
            match self.next_of().unwrap() {
                PodReport::Begun { .. } => {}
                PodReport::Part { part: BlockList(more), .. } => {
                    blocks.extend(more);
                    each(&blocks);
                }
                PodReport::Done { result, .. } => return (blocks, result),
                other => panic!("{other:?}"),
            }
        }
    }

    /// It ends with this code, and tells the rest.
    fn ends(mut self) -> (Option<i32>, Vec<Line>) {
        let rest = std::iter::from_fn(|| self.next()).collect();
        (self.child.wait().unwrap().code(), rest)
    }

    fn leaves(self) {
        self.obey(&PodCommand::Leave);
        let (code, rest) = self.ends();
        assert_eq!((code, rest.len()), (Some(0), 0), "{rest:?}");
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        *self.orders.lock().unwrap() = None;
        // It may have ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[derive(Default)]
struct Tale {
    at: i64,
    parts: Vec<IntervalStats>,
    doubts: Vec<String>,
    records: Vec<u8>,
    result: Option<LoadPartResult>,
}

/// An instant that every pod hears of before it comes, on a busy machine, too.
fn soon() -> i64 {
    RunClock::start().unix_ns(4 * SECOND)
}

/// Targets whose path is the number of the hit.
fn targets(server: &Server, files: &TempDir) -> String {
    let file = files.path().join("targets");
    std::fs::write(&file, format!("GET {}\n", server.url_of_path("/{{seq}}"))).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Words of the user, as a shell splits them.
fn attack<'a>(words: &'a str, targets: &'a str) -> Vec<&'a str> {
    ["attack", "-template", "-targets", targets].into_iter().chain(words.split_whitespace()).collect()
}

/// Pods that are ready for this, each with so many connections.
fn pods(words: &str, of: u64, connections: usize, server: &Server, files: &TempDir) -> Vec<Pod> {
    let targets = targets(server, files);
    let pods: Vec<_> = (0..of).map(|index| Pod::start(&attack(words, &targets), index, of, files)).collect();
    pods.iter().for_each(|pod| pod.is_ready(connections));
    pods
}

/// Counts of all parts, and of the totals: one is what the other says.
#[expect(clippy::type_complexity, reason = "it is only compared")]
fn counts(stats: &LoadStats) -> (u64, u64, u64, u64, u64, i128, Vec<(u16, u64)>) {
    let times = stats.all_times();
    let statuses = stats.statuses.iter().collect();
    let LoadStats { sent, completed, bytes_in, connections, .. } = *stats;
    (
        sent,
        completed,
        bytes_in,
        connections,
        times.response_time.count(),
        times.response_time.distribution().sum(),
        statuses,
    )
}

/// What all of them told as one, which is what they told one by one.
fn as_one(tales: &[Tale]) -> LoadStats {
    let merged = merge(tales.iter().map(|tale| tale.parts.clone()).collect()).unwrap();
    let (mut parts, mut totals) = (LoadStats::default(), LoadStats::default());
    merged.iter().for_each(|interval| parts.merge(&interval.stats));
    tales.iter().for_each(|tale| totals.merge(&tale.result.as_ref().unwrap().total.stats));
    assert_eq!(counts(&parts), counts(&totals));
    totals
}

fn sorted(hits: &Mutex<Vec<u64>>) -> Vec<u64> {
    let mut hits = hits.lock().unwrap().clone();
    hits.sort_unstable();
    hits
}

#[test]
fn three_pods_send_each_hit_of_one_schedule_once_and_their_figures_add_up() {
    let ((server, hits), files) = (witness(), TempDir::new().unwrap());
    let words = "-rate 300 --requests 600 -output none";
    let pods = pods(words, 3, 8, &server, &files);
    let at = soon();
    (0..3).zip(&pods).for_each(|(index, pod)| pod.begin(at, (index, 3)));
    let tales: Vec<_> = pods.iter().map(Pod::told).collect();
    assert_eq!(sorted(&hits), (0..600).collect::<Vec<_>>());
    let total = as_one(&tales);
    assert_eq!((total.sent, total.good_count()), (600, 600));
    for tale in &tales {
        let result = tale.result.as_ref().unwrap();
        assert_eq!((tale.at, result.scheduled, result.early), (at, Some(200), None));
        assert!(result.mistakes.is_empty() && !result.machine.is_empty());
    }
    pods.into_iter().for_each(Pod::leaves);
}

#[test]
fn a_rate_that_is_steered_changes_for_all_pods_at_one_instant() {
    let ((server, hits), files) = (witness(), TempDir::new().unwrap());
    let pods = pods("-rate 100 --requests 500 -output none", 2, 8, &server, &files);
    let at = soon();
    (0..2).zip(&pods).for_each(|(index, pod)| pod.begin(at, (index, 2)));
    // Ordered before the load begins: 100 hits, and then 200 in two seconds each.
    let steer = PodCommand::Steer(ControlCommand { line: "rate 200/s".into(), from: SECOND });
    pods.iter().for_each(|pod| pod.obey(&steer));
    let tales: Vec<_> = pods.iter().map(Pod::told).collect();
    assert_eq!(sorted(&hits), (0..500).collect::<Vec<_>>());
    assert_eq!(as_one(&tales).good_count(), 500);
    let late = |tale: &Tale| tale.doubts.iter().any(|doubt| doubt.contains("later than other pods"));
    assert!(!tales.iter().any(late));
}

#[test]
fn who_hears_of_a_change_too_late_says_by_how_much() {
    let ((server, _), files) = (witness(), TempDir::new().unwrap());
    let pod = &pods("-rate 20 -duration 3s -output none", 1, 8, &server, &files)[0];
    pod.begin(soon(), (0, 1));
    let mut doubts = Vec::new();
    while let Some(told) = pod.next() {
        match told {
            PodReport::Part { part, .. } if part.from == 0 => {
                pod.obey(&PodCommand::Steer(ControlCommand { line: "rate 10/s".into(), from: SECOND / 10 }));
                pod.obey(&PodCommand::Steer(ControlCommand { line: "concurrency 10".into(), from: 0 }));
            }
            PodReport::Part { doubts: more, .. } => doubts.extend(more),
            PodReport::Done { .. } => break,
            _ => {}
        }
    }
    let said = |words: &str| doubts.iter().any(|doubt| doubt.contains(words));
    assert!(said("changed its rate") && said("ms later than other pods"), "{doubts:?}");
    assert!(
        said("rejected \"concurrency 10\": the load has a rate, so it has no number of clients"),
        "{doubts:?}"
    );
}

#[test]
fn clients_of_a_closed_loop_are_shared_and_each_request_is_sent_once() {
    let ((server, hits), files) = (witness(), TempDir::new().unwrap());
    let words = "--concurrency 6 --requests 300 -output none";
    let pods = pods(words, 3, 2, &server, &files);
    let at = soon();
    (0..3).zip(&pods).for_each(|(index, pod)| pod.begin(at, (index, 3)));
    let tales: Vec<_> = pods.iter().map(Pod::told).collect();
    assert_eq!(sorted(&hits), (0..300).collect::<Vec<_>>());
    let most = |tale: &Tale| tale.result.as_ref().unwrap().total.stats.in_flight_peak;
    assert!(tales.iter().all(|tale| most(tale) <= 2));
    assert_eq!(as_one(&tales).good_count(), 300);
}

#[test]
fn a_pod_that_is_told_to_stop_tells_what_it_has_and_sends_again_when_it_is_asked_to() {
    let ((server, _), files) = (witness(), TempDir::new().unwrap());
    let pods = pods("-rate 50 -duration 1h -output none", 1, 8, &server, &files);
    for _ in 0..2 {
        pods[0].begin(soon(), (0, 1));
        // Nothing has begun when it is told so the first time.
        pods[0].obey(&PodCommand::Stop);
        let tale = pods[0].told();
        assert_eq!(tale.result.unwrap().early, Some(RunStopReason::Commanded));
    }
    pods.into_iter().for_each(Pod::leaves);
}

#[test]
fn a_pod_that_hears_nobody_gives_its_load_up_and_says_so() {
    let ((server, _), files) = (witness(), TempDir::new().unwrap());
    let mut pods = pods("-rate 50 -duration 1h -output none", 1, 8, &server, &files);
    let pod = pods.remove(0);
    pod.begin(soon(), (0, 1));
    *pod.orders.lock().unwrap() = None;
    let tale = pod.told();
    assert_eq!(tale.result.unwrap().early, Some(RunStopReason::Commanded));
    let (code, rest) = pod.ends();
    assert_eq!(code, Some(1));
    assert!(
        matches!(&rest[..], [PodReport::Failed(why)] if why == "received no heartbeat for 3 s"),
        "{rest:?}"
    );
}

#[test]
fn a_pod_that_is_terminated_tells_what_it_has_measured() {
    let ((server, _), files) = (witness(), TempDir::new().unwrap());
    let mut pods = pods("-rate 50 -duration 1h -output none", 1, 8, &server, &files);
    let pod = pods.remove(0);
    pod.begin(soon(), (0, 1));
    while !matches!(pod.next().unwrap(), PodReport::Part { .. }) {}
    kill_process(Pid::from_child(&pod.child), Signal::TERM).unwrap();
    let tale = pod.told();
    let result = tale.result.unwrap();
    assert!(result.total.stats.sent > 0 && result.early == Some(RunStopReason::Commanded));
    assert_eq!(pod.ends().0, Some(143));
}

#[test]
fn what_cannot_be_done_is_said_and_nothing_is_sent() {
    let files = TempDir::new().unwrap();
    for (words, expected) in [
        (&["attack", "-rate", "often", "-targets", "/nowhere"][..], "often"),
        (&["attack", "-targets", "/nowhere/at/all"], "cannot read /nowhere/at/all"),
        (&["attack"], "give a file of targets, because pods read commands"),
        (&["attack", "-targets", "x", "--shard", "1/2", "--start-at", "2027-01-31T12:00:00Z"], "--shard"),
        (&["report", "x"], "attack, find or isolate"),
        (&["no-such-command"], "no-such-command"),
    ] {
        let (code, rest) = Pod::start(words, 0, 1, &files).ends();
        assert_eq!(code, Some(1), "{words:?}");
        assert!(matches!(&rest[..], [PodReport::Failed(why)] if why.contains(expected)), "{rest:?}");
    }
}

#[test]
fn an_instant_that_has_passed_is_refused_and_another_may_be_named() {
    let ((server, _), files) = (witness(), TempDir::new().unwrap());
    let pods = pods("-rate 50 --requests 5 -output none", 1, 8, &server, &files);
    pods[0].begin(RunClock::start().unix_ns(0) - 5_000_000_000, (0, 1));
    let told = pods[0].next().unwrap();
    assert!(
        matches!(&told, PodReport::Failed(why) if why.contains("cannot start the load at that instant")),
        "{told:?}"
    );
    pods[0].begin(soon(), (0, 1));
    assert_eq!(pods[0].told().result.unwrap().total.stats.good_count(), 5);
}

#[test]
fn records_are_told_in_lines_or_written_to_a_file_of_each_pod() {
    let ((server, _), files) = (witness(), TempDir::new().unwrap());
    let file = files.path().join("results.csv");
    for output in ["stdout", file.to_str().unwrap()] {
        let words = format!("-rate 100 --requests 50 -to csv -output {output}");
        let pods = pods(&words, 2, 8, &server, &files);
        let at = soon();
        (0..2).zip(&pods).for_each(|(index, pod)| pod.begin(at, (index, 2)));
        for (index, pod) in pods.iter().enumerate() {
            let tale = pod.told();
            let written = files.path().join(format!("results-{index}.csv"));
            let records = if output == "stdout" { tale.records } else { std::fs::read(written).unwrap() };
            assert_eq!(String::from_utf8(records).unwrap().lines().count(), 25);
            assert_eq!(tale.result.unwrap().records, 25);
        }
    }
}

/// Two pods that search, each ready.
fn searching(server: &Server, files: &TempDir) -> Vec<Pod> {
    let targets = targets(server, files);
    let words = ["find", "-template", "-targets", &targets];
    let pods: Vec<_> = (0..2).map(|index| Pod::start(&words, index, 2, files)).collect();
    pods.iter().for_each(|pod| pod.is_ready(0));
    pods
}

/// What both do from one instant on.
fn both(pods: &[Pod], trial: u64, work: &SearchTask) {
    let at = soon();
    for (index, pod) in (0..2).zip(pods) {
        pod.order(&PodCommand::Begin(BeginTrial { trial, at, shard: (index, 2), work: work.clone() }));
    }
}

fn offer(rate: f64, most: Duration) -> SearchTask {
    SearchTask::Offer(TrialSpec {
        purpose: TrialPurpose::Ramp,
        rate,
        min_duration: Duration::from_secs(1),
        max_duration: most,
        rule: StopRule::FailingShare(2.0),
        in_flight_cap: 100.0,
        drain: Duration::from_secs(1),
    })
}

/// How often each hit was sent that was.
fn is_once(hits: &Mutex<Vec<u64>>) -> bool {
    sorted(hits).windows(2).all(|pair| pair[0] < pair[1])
}

#[test]
fn an_offer_of_two_pods_is_one_whose_blocks_add_up() {
    let ((server, hits), files) = (witness(), TempDir::new().unwrap());
    let pods = searching(&server, &files);
    both(&pods, 1, &offer(90.0, Duration::from_secs(2)));
    let told: Vec<_> = pods.iter().map(|pod| pod.found(|_| {})).collect();
    let parts: Vec<_> = told.iter().map(|(blocks, _)| &blocks[..]).collect();
    let together = BlockList::merge(&parts);
    assert_eq!((together.len(), sum(&together, |block| block.sent)), (30, 180.0), "90 a second for two");
    assert!(is_once(&hits));
    let mut sent = 0;
    for (blocks, done) in &told {
        let Found::Offer(offered) = done else { panic!("{done:?}") };
        assert!(
            offered.total.stats.good_count()
                >= u64::from(blocks.iter().map(BlockCounts::ended_count).sum::<u32>())
        );
        assert!(!offered.away && !offered.interrupted && offered.no_port == 0);
        sent += offered.total.stats.sent;
    }
    assert_eq!(sent, hits.lock().unwrap().len() as u64);
    both(&pods, 2, &SearchTask::HangUp);
    assert!(pods.iter().all(|pod| pod.found(|_| {}).1 == Found::HungUp));
    pods.into_iter().for_each(Pod::leaves);
}

#[test]
fn an_offer_ends_as_soon_as_whoever_sees_all_of_it_has_seen_enough() {
    let ((server, hits), files) = (witness(), TempDir::new().unwrap());
    let pods = searching(&server, &files);
    both(&pods, 1, &offer(60.0, Duration::from_secs(3600)));
    let told: Vec<_> = pods
        .iter()
        .map(|pod| {
            let mut is_stopped = false;
            pod.found(|blocks| {
                // A part can bring several blocks.
                if blocks.len() >= 3 && !std::mem::replace(&mut is_stopped, true) {
                    pod.obey(&PodCommand::Stop);
                }
            })
        })
        .collect();
    assert!(told.iter().all(|(blocks, _)| blocks.len() >= 3) && is_once(&hits));
}

#[test]
fn an_experiment_of_two_pods_has_each_request_of_one() {
    let ((server, hits), files) = (witness(), TempDir::new().unwrap());
    let pods = searching(&server, &files);
    let lasts = Duration::from_secs(1);
    let load =
        experiment::ExperimentLoad::Rate { rate: 80.0, lasts, spacing: experiment::RequestSpacing::Poisson };
    let (variation, drain) = (Variation::NONE, Duration::from_secs(1));
    let asked = Experiment { name: "", load, variation, in_flight_cap: 1000, drain };
    both(&pods, 3, &SearchTask::Experiment(asked));
    let parts = pods.iter().map(|pod| match pod.found(|_| {}).1 {
        Found::Experiment(tried) => tried,
        other => panic!("{other:?}"),
    });
    let whole = ExperimentPartResult::merge(parts.collect());
    assert!(is_once(&hits));
    assert_eq!(whole.requests.len(), hits.lock().unwrap().len(), "{:?}", whole.invalid_reason);
    assert!(whole.requests.len() > 20 && whole.requests[0].due == 0.0);
}
