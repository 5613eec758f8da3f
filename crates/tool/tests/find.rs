//! `find` as it is typed: what is refused before anything is sent, and what two runs come to.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "a test that cannot be held here says so")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use seawall_testkit::fault_server_process::FaultServerProcess;
use serde_json::Value;

/// A server of a plant.
fn planted(plant: &str) -> FaultServerProcess {
    FaultServerProcess::start(env!("CARGO_BIN_EXE_seawall"), plant).unwrap()
}

/// Runs the tool in a directory, with words as a shell would split them.
fn seawall(words: &str, place: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command
        .args(words.split_whitespace())
        .current_dir(place)
        .env_remove("HTTP_PROXY")
        .env_remove("http_proxy");
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command that is refused says on standard error.
fn refused(words: &str) -> String {
    let output = seawall(words, tempfile::tempdir().unwrap().path());
    assert_eq!(output.status.code(), Some(1), "{words}: {}", text(&output.stdout));
    text(&output.stderr)
}

const URL: &str = "http://127.0.0.1:9/";

#[test]
fn options_that_contradict_each_other_are_named_all_at_once() {
    let said = refused(&format!("find {URL} --quick --thorough --budget 5s -targets=x -timeout=0"));
    for part in
        ["--quick and --thorough", "--budget must be at least 20s", "a URL and -targets", "-timeout=0"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    for (words, part) in [
        ("http://a/ --json x --html x", "two different files"),
        ("http://a/ --json x --html ./x", "two different files"),
        ("http://a/ --json - --html -", "two different files"),
        ("http://a/ --max-rate 100/h", "--max-rate must be at least 1/s"),
        ("http://a/ --closed-loop --max-rate 5", "use --max-clients"),
        ("http://a/ --closed-loop --arrivals poisson", "--arrivals poisson does not apply"),
        ("http://a/ --closed-loop --resume a.json", "--resume cannot continue a run with --closed-loop"),
        ("http://a/ --max-clients 5", "--max-clients needs --closed-loop"),
        ("http://a/ -redirects=-2", "-redirects must be"),
        ("http://a/ -header nonsense", "nonsense"),
    ] {
        let said = refused(&format!("find {words}"));
        assert!(said.contains(part), "{words}: {said}");
    }
}

/// Some sixty flags were taken and did nothing.
#[test]
fn a_comparison_takes_no_other_flag() {
    for words in [
        "http://a/",
        "--quick",
        "--json c.json",
        "--closed-loop",
        "--insecure",
        "--seed 7",
        "--timeout 5s",
        "--header a:b",
        "--arrivals poisson",
        "--redirects 3",
        "--targets x",
        "--live-page 127.0.0.1:0",
    ] {
        let output = seawall(&format!("find {words} --compare a.json b.json"), Path::new("."));
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(text(&output.stderr).contains("--compare <BEFORE> <AFTER>' cannot be used with"), "{words}");
    }
}

#[test]
fn a_goal_that_no_search_can_look_for_is_refused_with_the_reason() {
    for (slo, part) in [
        ("mean<1s", "cannot search for the limit of mean < 1s"),
        ("p99<1s,p50<1s", "a search takes only one latency objective"),
        ("errors<0%", "between 0 and 1"),
        ("max<1s", "a percentile up to p99.99"),
    ] {
        let said = refused(&format!("find {URL} --slo {slo}"));
        assert!(said.contains(part), "{slo}: {said}");
    }
    let output = seawall(&format!("find {URL} --slo p98<1s"), Path::new("."));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is not an objective"));
}

#[test]
fn targets_files_and_rates_that_are_none_are_refused() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("cut.json"), "{\"kind\":\"find\",\"version\":1,").unwrap();
    std::fs::write(place.path().join("later.json"), "{\"kind\":\"find\",\"version\":2}").unwrap();
    std::fs::write(place.path().join("isolate.json"), "{\"kind\":\"isolate\",\"version\":1}").unwrap();
    for (words, part) in [
        ("find ftp://a/", "ftp"),
        ("find -targets=missing", "cannot read missing"),
        ("find http://a/ --resume missing.json", "cannot read missing.json"),
        ("find http://a/ --resume cut.json", "not a document of find --json"),
        ("find http://a/ --resume later.json", "version 2; this program reads version 1"),
        ("find http://a/ --resume isolate.json", "\"kind\" is \"isolate\", expected \"find\""),
        ("find --compare isolate.json isolate.json", "\"kind\" is \"isolate\", expected \"find\""),
        ("find http://a/ --json nowhere/run.json", "cannot write nowhere/run.json"),
        ("find --compare cut.json later.json", "cut.json"),
        (
            "find http://a/ --server-metrics https://a/metrics",
            "--server-metrics: https://a/metrics: expected an http:// URL",
        ),
        ("find http://a/ --server-cgroup missing", "--server-cgroup: missing does not exist on this machine"),
        ("find http://a/ --server-cgroup .", "--server-cgroup: . has no control group files"),
        ("find", "no targets"),
    ] {
        let output = seawall(words, place.path());
        assert_eq!(output.status.code(), Some(1), "{words}");
        let said = text(&output.stderr);
        assert!(said.contains(part), "{words}: {said}");
    }
    assert_eq!(seawall("find http://a/ --max-rate 0", place.path()).status.code(), Some(2));
}

/// A run as it is written, with this cliff.
fn run(lower: f64, estimate: f64, upper: f64) -> String {
    format!(
        r#"{{"kind":"find","version":1,"outcome":"found","stop_reason":null,
        "config":{{"target":"http://a/","target_count":1,"slo":{{"max_error_ratio":0.001,"latency":null}},"effort":"quick","arrivals":"constant",
            "max_rate":null,"connections":{{"keep_alive":true,"max_connections":null,"requests_per_connection":null,"protocol":"http/1.1"}},
            "timeout_seconds":30.0}},
        "generator_capacity":{{"max_rate":null,"method":""}},
        "breaking_rate":{{"lower":{lower},"upper":{upper},"estimate":{estimate},
            "highest_good_rate":{lower},"held_seconds":2.0,"lowest_bad_rate":{upper}}},
        "latency_breaking_rate":{{"lower":null,"upper":null,"estimate":null,
            "highest_good_rate":null,"held_seconds":null,"lowest_bad_rate":null}},
        "failure_mode":"queueing","goodput":100.0,"burst_requests":null,"quota_exhaustion":null,"untested_burst":null,
        "recovery":{{"time_seconds":null,"is_recovered":true}},"cause":null,"other_causes":[],"ambiguous_causes":[],
        "excluded_causes":[],"undecided_causes":[],"experiments":[],"trials":[],"budget_log":[],"duration_seconds":60.0}}"#
    )
}

#[test]
fn two_runs_are_a_gate_by_the_exit_code_and_by_the_first_word() {
    let place = tempfile::tempdir().unwrap();
    let put = |name: &str, run: String| std::fs::write(place.path().join(name), run).unwrap();
    put("before", run(980.0, 1000.0, 1020.0));
    put("same", run(985.0, 1005.0, 1025.0));
    put("better", run(1180.0, 1200.0, 1220.0));
    put("worse", run(880.0, 900.0, 920.0));
    put("vague", run(700.0, 950.0, 1300.0));
    put("interrupted", run(980.0, 1000.0, 1020.0).replace("\"found\"", "\"interrupted\""));
    put("other", run(980.0, 1000.0, 1020.0).replace("\"constant\"", "\"poisson\""));
    for (after, code, word) in [
        ("same", 0, "the same within 10 %"),
        ("better", 0, "better"),
        ("worse", 3, "worse"),
        ("vague", 8, "undecided"),
    ] {
        let output = seawall(&format!("find --compare before {after}"), place.path());
        assert_eq!(output.status.code(), Some(code), "{after}: {}", text(&output.stderr));
        let said = text(&output.stdout);
        assert!(said.starts_with(word) && said.contains("980 to 1,020 /s") && said.contains('%'), "{said}");
    }
    for (after, part) in
        [("interrupted", "found neither a breaking rate"), ("other", "the runs differ in --arrivals")]
    {
        let output = seawall(&format!("find --compare before {after}"), place.path());
        assert_eq!(output.status.code(), Some(1), "{after}");
        assert!(text(&output.stderr).contains(part), "{after}: {}", text(&output.stderr));
    }
}

/// A target that was improved so much that nothing broke it any more failed its pipeline.
#[test]
fn a_cap_that_was_held_is_better_than_a_cliff_below_it_and_a_cliff_below_it_is_worse() {
    let place = tempfile::tempdir().unwrap();
    let put = |name: &str, run: String| std::fs::write(place.path().join(name), run).unwrap();
    let capped = |held: f64| {
        let run = run(held, held, held).replace("\"found\"", "\"no-limit-found\"");
        let (begin, rest) = run.split_once("\"breaking_rate\":").unwrap();
        let (_, end) = rest.split_once('}').unwrap();
        let cliff = format!(
            r#"{{"lower":null,"upper":null,"estimate":null,"highest_good_rate":{held},"held_seconds":8.0,"lowest_bad_rate":null}}"#
        );
        format!("{begin}\"breaking_rate\":{cliff}{end}")
    };
    put("capped", capped(1000.0));
    put("slow", run(780.0, 800.0, 820.0));
    put("near", run(930.0, 952.0, 975.0));
    put("beyond", run(1180.0, 1200.0, 1220.0));
    put("elsewhere", run(780.0, 800.0, 820.0).replace("http://a/", "http://b/"));
    for (before, after, code, begins, part) in [
        ("slow", "capped", 0, "better: breaking rate: at least +", "at least 1,000 /s"),
        ("capped", "slow", 3, "worse: breaking rate: at most -", "780 to 820 /s"),
        ("near", "capped", 0, "not worse: breaking rate: at least ", "at least 1,000 /s"),
        ("capped", "near", 8, "undecided: ", " at most"),
        ("beyond", "capped", 8, "undecided: ", "1,180 to 1,220 /s"),
        ("capped", "capped", 0, "not worse: both sustained 1,000/s; ", "neither run found a limit"),
        ("slow", "elsewhere", 0, "the same", "target differs: http://a/ before, http://b/ after"),
    ] {
        let output = seawall(&format!("find --compare {before} {after}"), place.path());
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{before} {after}: {said}{}", text(&output.stderr));
        assert!(said.starts_with(begins) && said.contains(part), "{before} {after}: {said}");
    }
}

#[test]
fn a_number_of_clients_that_is_none_is_told_what_is_expected() {
    for number in ["0", "-1", "many"] {
        let output = seawall(&format!("find {URL} --closed-loop --max-clients {number}"), Path::new("."));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("expected a whole number from 1 to 4294967295"), "{said}");
    }
}

/// A run through a Unix socket went on over TCP, at whoever listened there.
#[test]
fn a_run_is_not_continued_another_way_nor_with_other_requests() {
    let place = tempfile::tempdir().unwrap();
    let put = |name: &str, via: &str, requests: &str| {
        let sent = format!(
            r#""request_fingerprint":{{"via":{via},"certificate_digest":null,"requests_digest":"{requests}","settings":""}}"#
        );
        let timeout = "\"timeout_seconds\":30.0";
        let run = run(980.0, 1000.0, 1020.0).replace(timeout, &format!("{timeout},{sent}"));
        std::fs::write(place.path().join(name), run).unwrap();
    };
    put("socket", "\"at ng/sock\"", "");
    put("other", "null", "12345678");
    for (words, part) in [
        (
            "--resume socket",
            "the earlier run connected at ng/sock, but this run would connect directly to the target",
        ),
        (
            "--resume socket --unix-socket elsewhere",
            "connected at ng/sock, but this run would connect at elsewhere",
        ),
        ("--resume socket --connect-to a:80:127.0.0.1:9", "this run would connect at 127.0.0.1:9"),
        ("--resume other --header X:y", "a different set of requests (targets, --header"),
    ] {
        let output = seawall(&format!("find http://a/ {words}"), place.path());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}: {said}");
        assert!(said.contains(part), "{words}: {said}");
    }
}

#[test]
fn the_help_lists_every_class_and_every_code() {
    let topics = ["help search", "help exit-codes"].map(|words| text(&seawall(words, Path::new(".")).stdout));
    let said = topics.concat();
    let classes = ["rate-limiter", "hanging-limiter", "connection-cap", "generator", "unknown"];
    let words =
        said.split_whitespace().map(|word| word.trim_end_matches([',', ';', ':'])).collect::<Vec<_>>();
    assert!(classes.iter().all(|class| words.contains(class)), "{said}");
    assert!(
        ["0", "1", "2", "3", "4", "5", "6", "7", "8", "11", "130"].iter().all(|code| words.contains(code)),
        "{said}"
    );
}

fn json(place: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(place.join("run.json")).unwrap()).unwrap()
}

/// A plant that any machine has the better of below the rates of these tests.
const WIDE: &str = "pool,workers=64,service=1ms";

#[test]
fn a_real_target_is_searched_up_to_the_highest_rate_and_the_run_is_written_whole() {
    let (server, place) = (planted(WIDE), tempfile::tempdir().unwrap());
    let words = format!("find {} --max-rate 100 --json run.json --html run.html", server.url);
    let output = seawall(&words, place.path());
    let run = json(place.path());
    // On a machine that had no time for the trials they say nothing, and the generator is what is told of.
    let (code, outcome, word) = match output.status.code() {
        Some(4) => (4, "generator-limited", "GENERATOR-LIMITED"),
        _ => (5, "no-limit-found", "NO LIMIT FOUND"),
    };
    assert_eq!(output.status.code(), Some(code), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!((&run["kind"], &run["version"]), (&"find".into(), &1.into()));
    assert_eq!((&run["outcome"], &run["stop_reason"]), (&outcome.into(), &Value::Null));
    let limit = &run["breaking_rate"];
    assert!(limit["upper"].is_null() && limit["lowest_bad_rate"].is_null(), "{limit}");
    let trials = run["trials"].as_array().unwrap();
    assert!(trials.len() > 1 && trials.iter().all(|trial| trial["rate"].as_f64().unwrap() <= 100.0));
    assert!(trials.iter().all(|trial| !trial["blocks"].as_array().unwrap().is_empty()), "{trials:?}");
    assert_eq!(run["server_metrics"], Value::Array(Vec::new()), "nothing was asked of its own side");
    assert!(std::fs::read_to_string(place.path().join("run.html")).unwrap().contains(word));
    assert!(text(&output.stdout).starts_with(word));
}

#[test]
fn a_signal_stops_the_load_and_what_is_known_is_written_down() {
    let (server, place) = (planted(WIDE), tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    let words = format!("find {} --max-rate 40 --json run.json --html run.html", server.url);
    command.args(words.split_whitespace()).current_dir(place.path());
    let mut run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The first trial is under way, or about to be; on a machine without a moment to spare there may be no other.
    let mut told = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(told.by_ref().any(|line| line.unwrap().contains("measuring the generator")));
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let rest = thread::spawn(move || told.for_each(drop));
    let output = run.wait_with_output().unwrap();
    rest.join().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stdout));
    let run = json(place.path());
    assert_eq!((&run["outcome"], &run["stop_reason"]), (&"interrupted".into(), &"signal".into()));
    assert_eq!(run["trials"].as_array().unwrap().last().unwrap()["is_interrupted"], true);
    assert!(std::fs::read_to_string(place.path().join("run.html")).unwrap().contains("INTERRUPTED"));
    assert!(text(&output.stdout).starts_with("INTERRUPTED"));
}

/// It was told as a limit of 1.1/s, found, and a comparison failed for that.
#[test]
fn a_target_that_dies_during_a_search_is_the_outcome_target_died() {
    let (mut server, place) = (planted(WIDE), tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    let words = format!("find {} --max-rate 100 --json run.json", server.url);
    command.args(words.split_whitespace()).current_dir(place.path());
    let mut run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(told.by_ref().any(|line| line.unwrap().contains("ramp")));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let rest = thread::spawn(move || told.for_each(drop));
    let output = run.wait_with_output().unwrap();
    rest.join().unwrap();
    assert_eq!(output.status.code(), Some(11), "{}", text(&output.stdout));
    let run = json(place.path());
    assert_eq!((&run["outcome"], &run["cause"]), (&"target-died".into(), &Value::Null));
    let limit = &run["breaking_rate"];
    assert!(limit["upper"].is_null() && limit["lowest_bad_rate"].is_null(), "{limit}");
    assert!(text(&output.stdout).starts_with("TARGET DIED"));
}

#[test]
fn of_who_insists_with_a_second_signal_no_draft_is_left() {
    let (server, place) = (planted(WIDE), tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    let words = format!("find {} --json run.json --html run.html", server.url);
    command.args(words.split_whitespace()).current_dir(place.path()).env_remove("http_proxy");
    let mut run = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(told.by_ref().any(|line| line.unwrap().contains("measuring the generator")));
    for signal in [Signal::INT, Signal::TERM] {
        kill_process(Pid::from_child(&run), signal).unwrap();
    }
    told.for_each(drop);
    assert!(run.wait().unwrap().code() != Some(0));
    // The run may have been quicker with its files than the second signal.
    let names = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| name == "run.json" || name == "run.html"));
}

#[test]
fn a_signal_ends_the_first_look_at_a_target_that_is_silent() {
    let (listener, place) = (TcpListener::bind("127.0.0.1:0").unwrap(), tempfile::tempdir().unwrap());
    let words = format!("find http://{}/ --json run.json", listener.local_addr().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(words.split_whitespace()).current_dir(place.path()).env_remove("http_proxy");
    let run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It has a connection, and so it is past the point from which it listens to signals.
    let held = listener.accept().unwrap();
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    let output = run.wait_with_output().unwrap();
    drop(held);
    assert_eq!(output.status.code(), Some(143), "{}{}", text(&output.stdout), text(&output.stderr));
    let run = json(place.path());
    assert_eq!((&run["stop_reason"], &run["trials"]), (&"signal".into(), &Value::Array(Vec::new())));
}

#[test]
fn a_target_that_cannot_be_reached_is_told_before_any_load() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let said = refused(&format!("find http://127.0.0.1:{}/a?key=1", free()));
    assert!(
        said.contains("cannot reach http://127.0.0.1:") && said.contains("connect: connection refused"),
        "{said}"
    );
    assert!(said.contains("no load was sent") && !said.contains("key=1"), "{said}");
    let said = refused("find http://nowhere.invalid/");
    assert!(said.contains("cannot reach http://nowhere.invalid/: lookup: "), "{said}");
    for (way, part) in [
        (format!("--proxy http://127.0.0.1:{}", free()), "http://a/ through the proxy 127.0.0.1:"),
        (format!("--connect-to a:80:127.0.0.1:{}", free()), "http://a/ at 127.0.0.1:"),
        ("--unix-socket ./missing".to_owned(), "http://a/ at ./missing: connect: "),
    ] {
        let said = refused(&format!("find http://a/ {way}"));
        assert!(said.contains(part), "{way}: {said}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    // Takes a handshake for a request; ends with the test's process.
    thread::spawn(move || {
        let mut held = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            held.push(stream);
        }
    });
    let said = refused(&format!("find {url}"));
    assert!(said.contains("cannot reach https://127.0.0.1:") && said.contains(": tls: "), "{said}");
}

#[test]
fn a_target_that_answers_everything_with_an_error_has_an_unstable_baseline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    // Ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                while lines.by_ref().any(|line| line.is_empty()) {
                    let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
                    if (&stream).write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let place = tempfile::tempdir().unwrap();
    let words = format!("find {url} --max-rate 40 --no-cause --json run.json");
    let output = seawall(&words, place.path());
    // On a machine that had no time for the trials they say nothing, and the generator is what is told of.
    let (code, outcome) = match output.status.code() {
        Some(4) => (4, "generator-limited"),
        _ => (6, "unstable-baseline"),
    };
    assert_eq!(output.status.code(), Some(code), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(json(place.path())["outcome"], outcome);
    let output = seawall(&words.replace("run.json", "-"), place.path());
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(run["kind"], "find", "nothing else is on standard output");
    assert!(text(&output.stderr).contains("errors below 0.1 %"), "what is shown: {}", text(&output.stderr));
    assert!(!place.path().join("-").exists());
}

/// It ended in a panic.
#[test]
fn an_error_that_nobody_reads_has_its_exit_code() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    let status = command.args(["find", "--slo", "p99<0", URL]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    let status = command.args(["report", "/nowhere"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

/// Runs a shell's script in a network namespace that has loopback alone, with the tool as `$0`; none where this machine lets nobody
/// make one.
fn in_a_namespace(script: &str, place: &Path) -> Option<Output> {
    let unshare = |command: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--"]).args(command).current_dir(place).stdin(Stdio::null()).output()
    };
    if !unshare(&["true"]).is_ok_and(|output| output.status.success()) {
        eprintln!("no network namespace can be made here (unshare --net is refused)");
        return None;
    }
    Some(unshare(&["sh", "-c", script, env!("CARGO_BIN_EXE_seawall")]).unwrap())
}

#[test]
fn a_search_that_runs_out_of_ports_says_so_and_blames_neither_the_target_nor_the_generator() {
    // What connections leave behind keeps its port for a minute, as it does on any way but loopback.
    let script = "set -e
        ip link set lo up
        echo 20000 20299 >/proc/sys/net/ipv4/ip_local_port_range
        echo 0 >/proc/sys/net/ipv4/tcp_tw_reuse
        $0 emulate server --listen 127.0.0.1:0 --ready-file ready --fault ports >plant &
        trap 'kill $!; wait' EXIT
        for at in $(seq 600); do test -s ready && break; sleep 0.1; done
        address=$(grep -o '127.0.0.1:[0-9]*' ready | head -n 1)
        code=0
        $0 find http://$address/ --quick --budget 60s --requests-per-connection 1 --json run.json >said || code=$?
        test $code = 4";
    let place = tempfile::tempdir().unwrap();
    let Some(output) = in_a_namespace(script, place.path()) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run: Value = serde_json::from_slice(&std::fs::read(place.path().join("run.json")).unwrap()).unwrap();
    let (cause, trials) = (&run["cause"], run["trials"].as_array().unwrap());
    assert_eq!(run["outcome"], "generator-limited");
    let why = trials.iter().filter_map(|trial| trial["invalid_reason"].as_str()).next_back().unwrap();
    if !why.contains("no free local port") {
        // A machine so busy that it could not send either has said that.
        return assert_eq!(cause["name"], "generator", "{why}");
    }
    assert!(why.contains("(the ephemeral ports 20000-20299 suffice for "), "{why}");
    assert_eq!(cause["name"], "ports", "{run}");
    let (signs, tried) = (cause["evidence"].as_array().unwrap(), run["experiments"].as_array().unwrap());
    // A machine so busy that its experiments cannot be believed says so of them.
    let doubted = tried.iter().any(|tried| tried["result"].as_str().unwrap().starts_with("no result"));
    assert!(doubted || signs.iter().any(|sign| sign["experiment"] == "another source address"), "{cause}");
}
