//! A load from many pods, which are processes of this machine here (`--on processes`): what the whole is, and what becomes of it when one of them is lost,
//! stands still, or whoever orders them is gone. Their way is that of `--on kubernetes`, without a cluster.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use seawall_testkit::browser::Browser;
use seawall_testkit::closure_server::Server;
use seawall_testkit::waiting::wait_until_some;
use serde_json::Value;

/// A server that writes down which hit asked, of targets of which each has its number.
fn witness() -> (Server, Arc<Mutex<Vec<u64>>>) {
    let hits = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&hits);
    let server = Server::start(move |mut peer, _| {
        loop {
            let head = peer.read_request_head()?;
            let hit = head.split(['/', ' ']).nth(2).unwrap_or_default().parse().unwrap_or(u64::MAX);
            seen.lock().unwrap().push(hit);
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
    });
    (server.unwrap(), hits)
}

/// A load of three processes unless the flags say otherwise, of which each hit says its number.
fn command(test: &str, server: &Server, flags: &[&str]) -> Command {
    let targets = format!("{}/many-{test}.targets", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&targets, format!("GET {}\n", server.url_of_path("/{{seq}}"))).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(["attack", "-template", "-targets", &targets, "--on", "processes"]);
    command.args(if flags.contains(&"--pods") { &[][..] } else { &["--pods", "3"] }).args(flags);
    command.stdin(Stdio::null()).env_remove("HTTP_PROXY").env_remove("http_proxy");
    command
}

/// What a pod says that had no time to begin.
const UNFIT: &str = "cannot start the load at that instant";

/// One that is over, of which all pods have begun.
fn over(mut command: impl FnMut() -> Command) -> Output {
    std::iter::repeat_with(|| command().output().unwrap())
        .find(|output| !text(&output.stderr).contains(UNFIT))
        .unwrap()
}

/// The summary of one that is over, and its exit code.
fn done(test: &str, server: &Server, flags: &[&str], hits: &Mutex<Vec<u64>>) -> (Value, i32, String) {
    let output = over(|| {
        hits.lock().unwrap().clear();
        let mut command = command(test, server, flags);
        command.args(["-output", "none", "--summary", "json", "--live", "none"]);
        command
    });
    (summary(&output), output.status.code().unwrap(), text(&output.stderr))
}

fn summary(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One under way; dropping it ends it.
struct Under {
    child: Child,
    said: BufReader<ChildStderr>,
    heard: String,
}

impl Under {
    fn way(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said, heard: String::new() }
    }

    /// One of which all three pods have begun, from then on. A machine that has no time for them lets one miss the instant that was agreed on, which is
    /// told as it should be, and is no matter of these tests.
    fn begun(mut command: impl FnMut() -> Command) -> Self {
        loop {
            let mut run = Self::way(command());
            let line = run.hears_either(", reports from 3 of 3 pods", UNFIT);
            if !line.contains(UNFIT) {
                return run;
            }
        }
    }

    /// The next line that holds this.
    fn hears(&mut self, wanted: &str) -> String {
        self.hears_either(wanted, wanted)
    }

    fn hears_either(&mut self, wanted: &str, other: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.said.read_line(&mut line).unwrap() > 0,
                "it ended without saying {wanted:?}: {}",
                self.heard
            );
            self.heard += &line;
            if line.contains(wanted) || line.contains(other) {
                return line.trim_end().to_owned();
            }
        }
    }

    /// Its pods, in order.
    fn pods(&self) -> Vec<Pid> {
        let own = self.child.id();
        let children =
            std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        children.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it wrote in the end, and its exit code.
    fn end(mut self) -> (String, i32, String) {
        let (mut out, mut said) = (String::new(), std::mem::take(&mut self.heard));
        self.said.read_to_string(&mut said).unwrap();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        (out, self.child.wait().unwrap().code().unwrap(), said)
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        // Before it, or they would be nobody's, and send for as long as they wait for orders.
        self.pods().into_iter().for_each(|pod| _ = kill_process(pod, Signal::KILL));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_there(pod: Pid) -> bool {
    test_kill_process(pod).is_ok()
}

const LINES: [&str; 6] = ["-output", "none", "--summary", "json", "--live", "lines"];

#[test]
fn pods_send_one_schedule_each_hit_once_and_their_figures_add_up() {
    let (server, hits) = witness();
    let (summary, code, said) = done("sums", &server, &["-rate", "100", "--requests", "200"], &hits);
    assert!(matches!(code, 0 | 4), "{said}");
    let mut hits = hits.lock().unwrap().clone();
    hits.sort_unstable();
    assert_eq!(hits, (0..200).collect::<Vec<_>>());
    let pods = summary["pods"].as_array().unwrap();
    let sum = |of: &str| pods.iter().map(|pod| pod[of].as_u64().unwrap()).sum::<u64>();
    assert_eq!((pods.len(), sum("sent"), sum("good")), (3, 200, 200));
    assert_eq!(
        (&summary["sent"], &summary["good"], &summary["offered"]),
        (&200.into(), &200.into(), &200.into())
    );
    assert!(pods.iter().all(|pod| (66..=67).contains(&pod["sent"].as_u64().unwrap())), "{pods:?}");
}

#[test]
fn a_pod_that_is_killed_is_named_with_its_share_and_the_verdict_says_that_less_was_sent() {
    let (server, _) = witness();
    let mut run = Under::begun(|| {
        let mut command = command("killed", &server, &["-rate", "60", "-duration", "6s"]);
        command.args(LINES);
        command
    });
    let lost = run.pods()[1];
    kill_process(lost, Signal::KILL).unwrap();
    let name = format!("process {}", lost.as_raw_nonzero());
    let line = run.hears(&name);
    assert!(line.contains("signal 9"), "{line}");
    run.hears("2 of 3 pods (lost: ");
    let (out, code, said) = run.end();
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 4, "{said}");
    assert_eq!(summary["generator_verdict"], "generator-limited", "{out}");
    let reasons = summary["findings"].to_string();
    assert!(
        reasons.contains("pod-lost")
            && reasons.contains(&name)
            && reasons.contains("% of the load is missing"),
        "{reasons}"
    );
    assert!(summary["sent"].as_u64() < summary["offered"].as_u64(), "{out}");
}

/// As a kubelet ends one that is evicted: it has time for its last words, which were taken for the end of its part.
#[test]
fn a_pod_that_somebody_else_has_end_tells_all_and_its_share_is_missing_from_then_on() {
    let (server, hits) = witness();
    let mut run = Under::begun(|| {
        hits.lock().unwrap().clear();
        let mut command = command("evicted", &server, &["-rate", "60", "-duration", "6s"]);
        command.args(LINES);
        command
    });
    let lost = run.pods()[1];
    kill_process(lost, Signal::TERM).unwrap();
    let name = format!("process {}", lost.as_raw_nonzero());
    run.hears("2 of 3 pods (lost: ");
    let (out, code, said) = run.end();
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &summary["generator_verdict"]), (4, &Value::from("generator-limited")), "{said}");
    let reasons = summary["findings"].to_string();
    assert!(reasons.contains("pod-lost") && reasons.contains(&name), "{reasons}");
    assert_eq!(summary["offered"], 360, "what was due is known: {out}");
    assert_eq!(
        summary["sent"].as_u64().unwrap(),
        hits.lock().unwrap().len() as u64,
        "its last words count: {out}"
    );
}

#[test]
fn a_pod_that_stands_still_is_named_and_whole_again_when_it_goes_on() {
    let (server, hits) = witness();
    let mut run = Under::begun(|| {
        hits.lock().unwrap().clear();
        let mut command = command("stopped", &server, &["-rate", "60", "--requests", "480"]);
        command.args(LINES);
        command
    });
    let still = run.pods()[0];
    kill_process(still, Signal::STOP).unwrap();
    run.hears(&format!("process {}: late", still.as_raw_nonzero()));
    kill_process(still, Signal::CONT).unwrap();
    run.hears(&format!("process {}: reports again", still.as_raw_nonzero()));
    let (out, _, said) = run.end();
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(summary["sent"], 480, "{said}");
    assert_eq!(hits.lock().unwrap().iter().collect::<BTreeSet<_>>().len(), 480);
}

#[test]
fn pods_end_when_whoever_orders_them_is_killed() {
    let (server, _) = witness();
    let run = Under::begun(|| {
        let mut command = command("orphans", &server, &["-rate", "30", "-duration", "1h"]);
        command.args(LINES);
        command
    });
    let pods = run.pods();
    assert_eq!(pods.len(), 3);
    run.signal(Signal::KILL);
    wait_until_some("no pod is left", || (!pods.iter().any(|pod| is_there(*pod))).then_some(()));
}

#[test]
fn an_interrupted_load_is_collected() {
    let (server, hits) = witness();
    let run = Under::begun(|| {
        hits.lock().unwrap().clear();
        let mut command = command("interrupted", &server, &["-rate", "60", "-duration", "1h"]);
        command.args(LINES);
        command
    });
    run.signal(Signal::INT);
    let (out, code, said) = run.end();
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 130, "{said}");
    assert_eq!(summary["sent"].as_u64().unwrap(), hits.lock().unwrap().len() as u64, "{said}");
}

#[test]
fn a_change_of_rate_leaves_each_hit_one_pod() {
    let (server, hits) = witness();
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("control");
    let mut run = Under::begun(|| {
        hits.lock().unwrap().clear();
        let _ = std::fs::remove_file(&socket);
        let mut command = command("rate", &server, &["-rate", "60", "--requests", "900", "--control-socket"]);
        command.arg(&socket).args(LINES);
        command
    });
    for rate in ["rate 150/s", "rate 40/s", "rate 240/s"] {
        use std::io::Write as _;
        let mut line = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        line.write_all(format!("{rate}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(line).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("ok"), "{answer}");
        run.hears(" of 3 pods");
    }
    let (out, _, said) = run.end();
    let summary: Value = serde_json::from_str(&out).unwrap();
    let mut hits = hits.lock().unwrap().clone();
    hits.sort_unstable();
    assert_eq!(hits, (0..900).collect::<Vec<_>>(), "{said}");
    assert_eq!(summary["sent"], 900);
}

#[test]
fn the_load_ends_with_a_pod_where_that_is_asked_for() {
    let (server, _) = witness();
    let run = Under::begun(|| {
        let mut command =
            command("end", &server, &["-rate", "60", "-duration", "1h", "--on-pod-loss", "abort"]);
        command.args(LINES);
        command
    });
    kill_process(run.pods()[2], Signal::KILL).unwrap();
    let (out, code, said) = run.end();
    assert_eq!(code, 4, "{said}");
    assert!(out.contains("pod-lost"), "{out}");
}

#[test]
fn what_pods_cannot_do_is_named_before_anything_is_sent() {
    let (server, hits) = witness();
    let output = command(
        "refused",
        &server,
        &["-lazy", "--sample-responses", "3", "--shard", "1/2", "--max-pods", "9"],
    )
    .output()
    .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["-lazy", "--sample-responses", "--shard", "--max-pods works with find only"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(hits.lock().unwrap().is_empty());
}

/// Records by their numbers, of what is written in any format.
fn records(file: &std::path::Path) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_seawall"))
        .args(["encode", "-to", "json"])
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let one = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let [seq, code, method, url, bytes] =
            ["seq", "code", "method", "url", "bytes_in"].map(|key| &record[key]);
        format!("{:06} {code} {method} {url} {bytes}", seq.as_u64().unwrap())
    };
    let mut all: Vec<_> = text(&output.stdout).lines().map(one).collect();
    all.sort_unstable();
    all
}

#[test]
fn records_of_pods_are_those_of_one_machine_in_each_format() {
    let (server, _) = witness();
    let place = tempfile::tempdir().unwrap();
    let (one, many) = (place.path().join("one"), place.path().join("many"));
    let load = ["-rate", "200", "--requests", "200", "--summary", "none", "--live", "none"];
    let targets = format!("{}/many-records.targets", env!("CARGO_TARGET_TMPDIR"));
    for format in ["gob", "json", "csv"] {
        let output = over(|| {
            let mut command = command("records", &server, &load);
            command.args(["-to", format, "-output"]).arg(&many);
            command
        });
        assert!(matches!(output.status.code(), Some(0 | 4)), "{}", text(&output.stderr));
        let mut alone = Command::new(env!("CARGO_BIN_EXE_seawall"));
        alone
            .args(["attack", "-template", "-targets", &targets, "-to", format])
            .args(load)
            .arg("-output")
            .arg(&one);
        assert!(matches!(alone.status().unwrap().code(), Some(0 | 4)));
        let told = records(&many);
        assert_eq!(told.len(), 200, "{format}: {}", text(&output.stderr));
        assert_eq!(told, records(&one), "{format}");
    }
}

#[test]
fn records_go_to_a_pipe_as_those_of_one_machine_do() {
    let (server, _) = witness();
    let flags = ["-rate", "200", "--requests", "100", "--live", "none"];
    let report = loop {
        let mut run =
            command("pipe", &server, &flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut report = Command::new(env!("CARGO_BIN_EXE_seawall"));
        let report =
            report.args(["report", "-type", "json"]).stdin(run.stdout.take().unwrap()).output().unwrap();
        let run = run.wait_with_output().unwrap();
        if !text(&run.stderr).contains(UNFIT) {
            break report;
        }
    };
    assert_eq!(summary(&report)["requests"], 100);
}

#[test]
fn more_records_than_pods_can_tell_are_refused_with_the_ways_out() {
    let (server, hits) = witness();
    let output = command("toomany", &server, &["-rate", "1000", "-duration", "1h"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["3600000 requests", "4 MiB per pod", "--volume", "--timeseries", "-output=none"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(hits.lock().unwrap().is_empty());
}

#[test]
fn records_that_turn_out_to_be_too_many_are_told_in_the_end() {
    let big = [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec(), vec![b'x'; 100_000]].concat();
    let server = Server::start(move |mut peer, _| {
        loop {
            peer.read_request_head()?;
            peer.send(&big)?;
        }
    });
    let flags = ["--pods", "1", "-rate", "30", "--requests", "60", "--live", "none"];
    let server = server.unwrap();
    let output = over(|| command("cut", &server, &flags));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("a pod can send 4 MiB of records") && said.contains("--volume"), "{said}");
    assert!(!output.stdout.is_empty(), "what was told is written");
}

/// The page's table of pods, as texts.
const ROWS: &str = "[...document.querySelectorAll('.pods tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))";

#[test]
fn in_a_real_browser_the_page_shows_each_pod_and_who_is_gone_and_the_saved_report_keeps_it() {
    let (server, _) = witness();
    let run = Under::begun(|| {
        let mut command =
            command("page", &server, &["-rate", "60", "-duration", "1h", "--live-page", "127.0.0.1:0"]);
        command.args(LINES);
        command
    });
    let url = run.heard.lines().find_map(|line| line.strip_prefix("page: ")).unwrap().to_owned();
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Browser::open(profile.path(), (1200, 1000), &url);
    browser.wait_for_expression(&format!("{ROWS}.length === 3 && {ROWS}.every(row => row[1] === 'running')"));
    assert_eq!(browser.evaluate("document.querySelector('.alarm')"), Value::Null);
    browser.wait_for_expression("[...document.querySelectorAll('.card h2')].some(head => head.textContent === 'Achieved rate by pod')");

    let lost = run.pods()[1];
    let name = format!("process {}", lost.as_raw_nonzero());
    kill_process(lost, Signal::KILL).unwrap();
    browser.wait_for_expression(&format!("document.querySelector('.alarm').textContent.includes('{name}')"));
    // With its problem it stands first.
    browser.wait_for_expression(&format!(
        "{ROWS}[0][0] === '{name}' && {ROWS}[0][1] === 'lost' && {ROWS}[0].at(-1).includes('signal 9')"
    ));
    browser.wait_for_expression("document.querySelector('.plot .lacking')");
    browser.click("document.querySelector('.pods th:nth-child(3) button')");
    assert_eq!(
        browser.evaluate("document.querySelector('.pods th:nth-child(3)').getAttribute('aria-sort')"),
        "descending"
    );

    browser
        .click("document.querySelector('.steer button[aria-label=\"Stop sending and wait for responses\"]')");
    browser
        .wait_for_expression("document.querySelector('.steer').textContent.startsWith('The run has ended')");
    browser.wait_for_expression(&format!("{ROWS}.filter(row => row[1] === 'finished').length === 2"));
    let saved = "new Promise(done => { const real = URL.createObjectURL; \
                 URL.createObjectURL = blob => { blob.text().then(done); return real(blob); }; \
                 document.querySelector('.steer button[aria-label^=\"Save this report\"]').click(); })";
    let file = browser.evaluate(saved).as_str().unwrap().to_owned();
    let path = profile.path().join("saved.html");
    std::fs::write(&path, &file).unwrap();
    drop(browser);
    drop(run);

    let mut browser = Browser::open(profile.path(), (500, 900), &format!("file://{}", path.display()));
    browser.wait_for_expression(&format!("{ROWS}.length === 3 && {ROWS}[0][0] === '{name}'"));
    browser
        .wait_for_expression("document.querySelector('.alarm') && document.querySelector('.plot .lacking')");
    assert_eq!(
        browser.evaluate("document.documentElement.scrollWidth <= innerWidth"),
        true,
        "a narrow window"
    );
    assert!(!file.contains("token="));
}

/// All of them: the end of the last was taken for the end of the load, and nothing was missing of it.
#[test]
fn a_load_of_which_all_pods_are_lost_is_not_valid() {
    let (server, _) = witness();
    let run = Under::begun(|| {
        let words = ["--concurrency", "3", "-duration", "20s", "--slo", "errors<1%"];
        let mut command = command("lost", &server, &words);
        command.args(LINES);
        command
    });
    for pod in run.pods() {
        kill_process(pod, Signal::KILL).unwrap();
    }
    let (out, code, said) = run.end();
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &summary["generator_verdict"]), (4, &Value::from("generator-limited")), "{said}");
    assert!(summary["findings"].to_string().contains("3 of 3 pods were lost or late"), "{out}");
}

/// A pod's share of them, which may be none, ended the load.
#[test]
fn errors_are_those_of_the_whole() {
    let (server, _) = witness();
    let nowhere = "http://127.0.0.1:1/";
    let targets = tempfile::tempdir().unwrap();
    let file = targets.path().join("targets");
    std::fs::write(
        &file,
        format!("GET {nowhere}\n{}", format!("GET {}\n", server.url_of_path("/7")).repeat(29)),
    )
    .unwrap();
    let output = over(|| {
        let words = ["-rate", "60", "--requests", "120", "--max-errors", "5"];
        let mut command = command("errors", &server, &words);
        command.args(LINES).arg("-targets").arg(&file);
        command
    });
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "four errors of five: {summary}");
    assert_eq!((&summary["offered"], &summary["good"]), (&120.into(), &116.into()), "{summary}");
}
