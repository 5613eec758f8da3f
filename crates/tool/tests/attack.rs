//! `seawall attack` as it is typed: the field's commands, files, exit codes, signals.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use seawall_load::clock::RunClock;
use seawall_load::interval::{IntervalStats, merge};
use seawall_load::record::{Zone, ZonedTimestamp};
use seawall_load::request_failure_reason::OutcomeClass;
use seawall_load::results::rfc3339::Rfc3339;
use seawall_testkit::closure_server::Server;
use serde_json::Value;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// Runs the tool with words as a shell would split them, and this on standard input.
fn seawall(words: &str, input: &[u8]) -> Output {
    fed(start(words), input)
}

/// What a child says that has this on standard input; one that refuses its flags may be gone before it is there.
fn fed(mut child: Child, input: &[u8]) -> Output {
    let fed = child.stdin.take().unwrap().write_all(input);
    assert!(fed.is_ok() || fed.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe));
    child.wait_with_output().unwrap()
}

fn start(words: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(words.split_whitespace()).env_remove("HTTP_PROXY").env_remove("http_proxy");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn get(server: &Server) -> Vec<u8> {
    format!("GET {}\n", server.url_of_path("/")).into_bytes()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn summary(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A server that answers everything and writes down what it was asked.
fn witness() -> (Server, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let server = Server::start(move |mut peer, _| {
        loop {
            let head = peer.read_request_head()?;
            seen.lock().unwrap().push(head);
            peer.send(OK.as_bytes())?;
        }
    });
    (server.unwrap(), heads)
}

#[test]
fn the_fields_command_works_with_the_programs_name_replaced() {
    let (server, heads) = witness();
    let mut attack = Command::new(env!("CARGO_BIN_EXE_seawall"))
        .args(["attack", "-header", "Metadata-Flavor: Google", "-rate", "100", "-duration=500ms"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    attack.stdin.take().unwrap().write_all(&get(&server)).unwrap();
    let results = attack.wait_with_output().unwrap();
    assert!(results.status.success(), "{}", text(&results.stderr));
    let report = seawall("report -type=text", &results.stdout);
    assert!(text(&report.stdout).starts_with("Requests      [total, rate, throughput]         50, "));
    assert!(text(&report.stdout).contains("\nSuccess       [ratio]                           100.00%\n"));
    let heads = heads.lock().unwrap();
    assert!(heads.iter().all(|head| head.contains("\r\nMetadata-Flavor: Google\r\n")), "{heads:?}");
}

/// What was dropped or shed was subtracted from a smaller number.
#[test]
fn a_run_without_a_summary_warns_of_no_more_than_was_not_sent() {
    let server = Server::start_answering(OK).unwrap();
    let closed = "attack -rate=0 -max-workers=1 --requests=10 --deadline=0s -output=none";
    let output = seawall(&format!("{closed} --summary=none"), &get(&server));
    // Of the generator, which may be short of CPU, it may say that hits were late.
    let warned = |output: &Output| {
        ["panicked", "requests of the schedule"].iter().any(|words| text(&output.stderr).contains(words))
    };
    assert!(!warned(&output), "{}", text(&output.stderr));
    let output = seawall(&format!("{closed} --summary=json"), &get(&server));
    let summary = summary(&output);
    assert_eq!(
        (&summary["offered"], &summary["sent"], &summary["not_sent"]),
        (&10.into(), &0.into(), &10.into())
    );
    let late = "attack -rate=1 -max-workers=1 --on-saturation=drop -duration=1000000001ns -timeout=1500ms";
    let silent = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let output = seawall(&format!("{late} -output=none --summary=none"), &get(&silent));
    assert!(!warned(&output), "{}", text(&output.stderr));
}

#[test]
fn a_warm_up_longer_than_the_profile_measured_nothing_and_said_nothing() {
    let server = Server::start_answering(OK).unwrap();
    let words = "attack --warm-up=1s --output=none --stages=hold,10/s,for,100ms";
    let words: Vec<String> = words.split(' ').map(|word| word.replace(',', " ")).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may have refused before it read this.
    let _ = child.stdin.take().unwrap().write_all(&get(&server));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = "seawall: --warm-up must be shorter than --stages\n";
    assert_eq!(text(&output.stderr), said);
}

#[test]
fn a_bad_line_is_named_and_nothing_is_sent() {
    let (server, heads) = witness();
    let input = format!("GET {}\n\nGOT\n", server.url_of_path("/"));
    let output = seawall("attack -duration=1s", input.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "seawall: stdin:3: bad target \"GOT\": expected METHOD URL\n");
    assert_eq!(heads.lock().unwrap().len(), 0);
}

#[test]
fn every_mistake_in_the_flags_is_said_at_once() {
    let output = seawall("attack -rate=0 --requests 0 -header nonsense -key x -laddr 192.0.2.1", b"");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    for part in ["-max-workers", "--requests", "\"nonsense\"", "-cert", "cannot send from 192.0.2.1"] {
        assert!(said.contains(part), "{said}");
    }
}

/// `--concurrency` silently won. With a rate it bounds the requests in flight now, as oha's `-c` does beside `-q`.
#[test]
fn flags_that_contradict_each_other_are_refused() {
    for contradiction in ["-max-workers=4 --concurrency=4", "-rate=50 --stages=x", "--data=a --body=b"] {
        let output = seawall(&format!("attack {contradiction} -duration=1s"), b"");
        assert_eq!(output.status.code(), Some(2), "{contradiction}");
        assert!(text(&output.stderr).contains("cannot be used with"), "{}", text(&output.stderr));
    }
    for closed in ["--concurrency=4", "-rate=0 -max-workers=4"] {
        let output = seawall(&format!("attack {closed} --arrivals=poisson --on-saturation=drop"), b"");
        assert_eq!(output.status.code(), Some(1), "{closed}");
        let said = text(&output.stderr);
        assert!(said.contains("--arrivals") && said.contains("--on-saturation"), "{said}");
    }
}

#[test]
fn a_shard_that_is_none_and_one_that_nobody_joins_are_refused() {
    for (flags, code, said) in [
        ("--shard=4/3", 2, "\"4/3\" is not a shard"),
        ("--shard=1/3", 1, "--shard with a rate needs the same --start-at"),
        ("--shard=1/3 --concurrency=4", 1, "a closed loop has no fixed total: add --requests or -lazy"),
        ("--interval=49ms", 2, "an interval of 49ms is too short: expected at least 50ms"),
        ("--start-at=tomorrow", 2, "\"tomorrow\" is not an instant"),
        ("--start-at=2001-01-01T00:00:00Z", 1, "--start-at: the start time is"),
    ] {
        let output =
            seawall(&format!("attack {flags} -duration=1s -output=none"), b"GET http://127.0.0.1:9/");
        assert_eq!(output.status.code(), Some(code), "{flags}");
        assert!(text(&output.stderr).contains(said), "{flags}: {}", text(&output.stderr));
    }
}

#[test]
fn a_run_as_json_says_what_it_was_where_and_when() {
    let (server, _) = witness();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let words = format!(
        "attack -rate=100 -duration=300ms -name=n -output=none -summary=json -live=none --interval=50ms --timeseries={path}"
    );
    let output = seawall(&words, &get(&server));
    let summary = summary(&output);
    let lines = std::fs::read_to_string(path).unwrap();
    let (about, intervals) = lines.split_once('\n').unwrap();
    let about: Value = serde_json::from_str(about).unwrap();
    assert_eq!((&about["kind"], &summary["kind"]), (&"timeseries".into(), &"attack".into()));
    for field in ["version", "start", "config", "host"] {
        assert!(!about[field].is_null() && about[field] == summary[field], "{field} of {about}");
    }
    assert_eq!(about.as_object().unwrap().len(), 5);
    assert_eq!(about["config"]["stages"][0]["shape"], "hold 100/s");
    assert!(seawall_load::results::rfc3339::parse(about["start"].as_str().unwrap()).is_some());
    let (intervals, end) = intervals.trim_end().rsplit_once('\n').unwrap();
    let end: Value = serde_json::from_str(end).unwrap();
    assert_eq!(
        (&end["offered"], &end["duration_seconds"]),
        (&30.into(), &summary["duration_seconds"]),
        "{end}"
    );
    assert_eq!(
        (&end["elapsed_seconds"], &end["findings"]),
        (&summary["elapsed_seconds"], &summary["findings"]),
        "{end}"
    );
    let intervals = intervals.lines().map(|line| serde_json::from_str::<IntervalStats>(line).unwrap());
    let merged = merge(vec![intervals.collect()]).unwrap();
    let mut whole = IntervalStats::default();
    merged.iter().for_each(|interval| whole.append_next_interval(interval).unwrap());
    assert_eq!((whole.stats.sent, whole.stats.good_count()), (30, 30));
    assert_eq!(
        whole.stats.times_of_class(OutcomeClass::Good).response_time.max() as f64 / 1e9,
        summary["response_time"]["max_seconds"].as_f64().unwrap()
    );
}

#[test]
fn two_generators_send_one_run_between_them() {
    let (server, _) = witness();
    let start = RunClock::start().unix_ns(1_500_000_000);
    let start = Rfc3339::new(ZonedTimestamp::from_unix_ns(start, Zone::Utc)).unwrap();
    let files = tempfile::tempdir().unwrap();
    let parts = ["1/2", "2/2"].map(|shard| {
        let file = files.path().join(shard.replace('/', "-")).to_str().unwrap().to_owned();
        let words = format!(
            "attack -rate=100 -duration=500ms --shard={shard} --start-at={start} -output={file} -live=none -summary=none"
        );
        let targets = get(&server);
        (file, std::thread::spawn(move || seawall(&words, &targets)))
    });
    let files = parts.map(|(file, generator)| {
        let output = generator.join().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        file
    });
    let report = seawall(&format!("report -type=json {} {}", files[0], files[1]), b"");
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&report["requests"], &report["duration"]), (&50.into(), &490_000_000.into()), "{report}");
}

#[test]
fn the_flags_before_the_command_are_vegetas() {
    let (server, heads) = witness();
    let output = seawall("-cpus=1 attack -rate=50 -duration=100ms -output=none -live=none", &get(&server));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(heads.lock().unwrap().len(), 5);
    let refused = seawall("-profile cpu attack -rate=1 -duration=1s", b"");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("perf record"), "{}", text(&refused.stderr));
}

#[test]
fn of_a_flag_given_twice_the_last_counts_and_headers_add_up() {
    let (server, heads) = witness();
    let words = "attack -rate=7 -rate=50 -duration=9s -duration=100ms -header=A:1 -header=B:2 -output=none -live=none";
    assert!(seawall(words, &get(&server)).status.success());
    let heads = heads.lock().unwrap();
    assert_eq!(heads.len(), 5);
    assert!(heads[0].contains("A: 1") && heads[0].contains("B: 2"), "{}", heads[0]);
}

#[test]
fn a_closed_loop_sends_its_requests_and_no_more() {
    let (server, heads) = witness();
    let words = "attack --requests 200 --concurrency 8 -output=none --summary=json -live=none";
    let output = seawall(words, &get(&server));
    let summary = summary(&output);
    assert_eq!(
        (&summary["model"], &summary["sent"], &summary["good"]),
        (&"closed".into(), &200.into(), &200.into())
    );
    let quantile = |key| summary["response_time"][key].as_f64().unwrap();
    assert!(quantile("p99_seconds") >= quantile("p50_seconds"));
    for key in ["offered_rate", "achieved_rate", "goodput", "generator_verdict", "send_lag", "service_time"] {
        assert!(!summary[key].is_null(), "{key}");
    }
    assert_eq!(heads.lock().unwrap().len(), 200);
    // Of two threads one may have sent all before the other is there.
    let words =
        "attack -rate=0 -max-workers=3 -requests=50 --threads=1 -output=none -summary=json -live=none";
    assert_eq!(self::summary(&seawall(words, &get(&server)))["in_flight_peak"], 3);
}

#[test]
fn results_say_what_carried_them_only_if_they_are_to_and_reports_read_both() {
    let server = Server::start_answering(OK).unwrap();
    let words = "attack --requests 3 --concurrency 1 --requests-per-connection 2 -live=none --summary=none";
    for (flags, columns) in [("-to=csv", 12), ("-to=csv --connection-timings", 18)] {
        let output = seawall(&format!("{words} {flags}"), &get(&server));
        let lines = text(&output.stdout);
        assert!(lines.lines().all(|line| line.split(',').count() == columns), "{flags}: {lines}");
        let report = seawall("report -type=json", &output.stdout);
        assert_eq!(summary(&report)["requests"], 3, "{flags}");
        let json = seawall("encode -to=json", &output.stdout);
        let told: Vec<_> = text(&json.stdout)
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["connection"]["connection_id"].as_u64())
            .collect();
        let expected = if columns == 18 { [Some(1), Some(1), Some(2)] } else { [None; 3] };
        assert_eq!(told, expected, "{flags}");
    }
    let refused = seawall(&format!("{words} --connection-timings -to=gob"), b"");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("-to=json or -to=csv"), "{}", text(&refused.stderr));
}

#[test]
fn the_summary_has_the_figures_of_variants_and_the_answers_that_were_kept() {
    let server =
        Server::start_answering("HTTP/1.1 404 Not Found\r\nX-Why: gone\r\nContent-Length: 2\r\n\r\nno")
            .unwrap();
    let target = |variant: &str| {
        format!(
            "{{\"method\":\"GET\",\"url\":\"{}\",\"variant\":{{\"name\":\"{variant}\"}}}}\n",
            server.url_of_path("/")
        )
    };
    let words = "attack --requests 4 --concurrency 1 -format=json -output=none --summary=json -live=none";
    let input = target("a") + &target("b");
    let told = summary(&seawall(&format!("{words} --sample-responses 1"), input.as_bytes()));
    assert_eq!((&told["variants"]["a"]["completed"], &told["variants"]["b"]["good"]), (&2.into(), &0.into()));
    let samples = told["sample_responses"].as_array().unwrap();
    assert_eq!((samples.len(), &samples[0]["status"], &samples[0]["body"]), (1, &404.into(), &"no".into()));
    assert!(samples[0]["head"].as_str().unwrap().contains("X-Why: gone\r\n"));
    let untold = summary(&seawall(words, input.as_bytes()));
    assert!(untold.get("sample_responses").is_none());
}

#[test]
fn connections_are_replaced_at_the_age_that_was_asked_for() {
    for (flag, connections) in
        [("--connection-age=1ns", 5), ("--connection-age 0", 5), ("-connection-age=1h", 1), ("", 1)]
    {
        let server = Server::start_answering(OK).unwrap();
        let words =
            format!("attack --requests 5 --concurrency 1 -output=none -summary=json -live=none {flag}");
        let output = seawall(&words, &get(&server));
        assert_eq!(summary(&output)["good"], 5, "{flag}: {}", text(&output.stderr));
        assert_eq!(server.connection_count(), connections, "{flag}");
    }
}

#[test]
fn connections_come_from_the_addresses_that_were_asked_for_in_turn() {
    for flags in ["-laddr 127.0.0.2 -laddr 127.0.0.3", "--laddr=127.0.0.2,127.0.0.3"] {
        let callers = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&callers);
        let server = Server::start(move |mut peer, _| {
            seen.lock().unwrap().push(peer.address()?.ip().to_string());
            peer.read_request_head()?;
            peer.send(OK.as_bytes())
        });
        let words =
            format!("attack --requests 4 --concurrency 1 -keepalive=false -to=csv -live=none {flags}");
        let output = seawall(&words, &get(&server.unwrap()));
        assert_eq!(text(&output.stdout).lines().count(), 4, "{flags}: {}", text(&output.stderr));
        assert_eq!(*callers.lock().unwrap(), ["127.0.0.2", "127.0.0.3", "127.0.0.2", "127.0.0.3"], "{flags}");
    }
}

#[test]
fn objectives_and_spent_errors_are_exit_codes() {
    let fine = Server::start_answering(OK).unwrap();
    let broken = Server::start_answering("HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n").unwrap();
    let code = |words: &str, server: &Server| {
        let words = format!("attack --requests 300 --concurrency 2 -output=none -live=none {words}");
        seawall(&words, &get(server)).status.code()
    };
    // A machine too slow for this test says so with another code.
    let or_limited =
        |code: Option<i32>, expected| assert!(code == Some(expected) || code == Some(4), "{code:?}");
    or_limited(code("-slo errors<1%,p99<20s", &fine), 0);
    or_limited(code("-slo max<1ns", &fine), 3);
    or_limited(code("-slo errors<1%", &broken), 3);
    or_limited(code("-slo errors<1% -slo p99<20s", &broken), 3);
    or_limited(code("-slo max<1ns -slo errors<1%", &fine), 3);
    or_limited(code("-max-errors 5", &broken), 3);
    or_limited(code("-max-errors 5%", &broken), 3);
}

/// A server that has an error in the body of each fifth answer, with status 200.
fn often_wrong() -> Server {
    let server = Server::start(|mut peer, number| {
        for number in number.. {
            peer.read_request_head()?;
            let body = if number % 5 == 4 { r#"{"error":"down"}"# } else { r#"{"status": "ok"}"# };
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
        }
        Ok(())
    });
    server.unwrap()
}

/// 100 of 100 such answers were good, and the exit code was 0.
#[test]
fn wrong_answers_are_errors_that_miss_an_objective_with_a_reason_of_one_line() {
    let server = often_wrong();
    let words = "attack -rate=200 --requests 100 --max-workers=1 -slo errors<1% -output=none -live=none";
    let good = seawall(&format!("{words} --summary=json"), &get(&server));
    assert_eq!(summary(&good)["good"], 100, "nobody asked");
    let output =
        seawall(&format!("{words} --summary=json --expect status=2xx --expect body!~error"), &get(&server));
    let summary = summary(&output);
    assert_eq!((&summary["good"], &summary["failures"]["wrong-answer"]), (&80.into(), &20.into()));
    assert_eq!(summary["wrong_answers"], serde_json::json!({ "body contains \"error\"": 20 }));
    assert_eq!(summary["response_time_by_class"]["wrong-answer"]["count"], 20);
    assert_eq!(summary["status_codes"], serde_json::json!({ "200": 100 }), "what the server sent");
    if output.status.code() != Some(4) {
        assert_eq!(output.status.code(), Some(3));
        let said = "seawall: missed errors < 1 %: 20 %; 20 wrong answers, most often because body contains \"error\"\n";
        assert!(text(&output.stderr).ends_with(said), "{}", text(&output.stderr));
    }
    let shown = seawall(&format!("{words} --expect json:/status=ok"), &get(&server));
    let line = "  wrong-answer: json:/status is not \"ok\": 20\n";
    assert!(text(&shown.stdout).contains(line), "{}", text(&shown.stdout));
}

/// The gate on wrong answers alone, and the list that a pipeline reads.
#[test]
fn the_json_summary_lists_each_objective_with_limit_figure_and_verdict() {
    let server = often_wrong();
    let words = "attack -rate=200 --requests 100 --max-workers=1 -output=none -live=none --summary=json --expect body!~error";
    let output =
        seawall(&format!("{words} --slo errors<50%,wrong-answers<=0,p50<20s,p90<20s"), &get(&server));
    let summary = summary(&output);
    let listed = summary["objectives"].as_array().unwrap();
    let of = |at: usize| {
        ["objective", "limit_ratio", "limit_seconds", "measured_ratio", "measured_seconds"]
            .map(|key| listed[at][key].clone())
    };
    let null = Value::Null;
    assert_eq!((&listed[0]["objective"], &listed[0]["limit_ratio"]), (&"errors < 50 %".into(), &0.5.into()));
    assert!((listed[0]["measured_ratio"].as_f64().unwrap() - 0.2).abs() < 1e-9);
    assert_eq!(of(1), ["wrong-answers <= 0 %".into(), 0.0.into(), null.clone(), 0.2.into(), null.clone()]);
    assert_eq!(of(3), ["p90 < 20s".into(), null.clone(), 20.0.into(), null.clone(), null]);
    assert!(listed[2]["measured_seconds"].as_f64().unwrap() < 20.0);
    if output.status.code() != Some(4) {
        assert_eq!(output.status.code(), Some(3));
        let verdicts: Vec<_> = listed.iter().map(|one| one["verdict"].as_str().unwrap()).collect();
        assert_eq!(verdicts, ["passed", "missed", "passed", "missed"]);
        let why = listed[3]["reason"].as_str().unwrap();
        assert!(why.starts_with("missed only because 20 of 100 requests had no good response"), "{why}");
    }
}

/// A gate that could not fail stood open.
#[test]
fn an_objective_on_wrong_answers_without_a_condition_is_refused() {
    let server = often_wrong();
    let words = "attack -rate=200 --requests 5 -output=none -live=none --slo wrong-answers<=0";
    let refused = |output: &Output| {
        let said = text(&output.stderr);
        output.status.code() == Some(1) && said.contains("--slo wrong-answers needs a condition on responses")
    };
    let without = seawall(words, &get(&server));
    assert!(refused(&without), "{without:?}");
    assert!(!refused(&seawall(&format!("{words} --expect body!~error"), &get(&server))));
    let own = format!("# expect=body!~error\n{}", text(&get(&server)));
    assert!(!refused(&seawall(words, own.as_bytes())));
    // A gRPC call can fail without a condition.
    let grpc = seawall(&format!("{words} -h2c -timeout 1s"), &get(&server));
    assert!(text(&grpc.stderr).contains("only a failed gRPC call is a wrong answer"), "{grpc:?}");
}

/// It ran to its end with no word before the summary.
#[test]
fn a_closed_port_is_named_after_the_first_second() {
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = seawall(
        "attack -rate=100 -duration=1100ms -output=none -live=none --summary=json",
        format!("GET http://{dead}/\n").as_bytes(),
    );
    let said = text(&output.stderr);
    let example = format!("such as GET http://{dead}/: connect: connection refused");
    assert!(said.contains("seawall: no connection so far; ") && said.contains(&example), "{said}");
    let summary = summary(&output);
    assert_eq!(
        (&summary["response_time"]["count"], &summary["sent"]),
        (&0.into(), &0.into()),
        "no response, no time"
    );
}

#[test]
fn results_of_every_format_say_which_condition_failed() {
    let server = often_wrong();
    for format in ["gob", "json", "csv"] {
        let words =
            format!("attack --requests 5 --concurrency 1 -live=none --to={format} --expect json:/status=ok");
        let results = seawall(&words, &get(&server));
        let report = text(&seawall("report -type=text", &results.stdout).stdout);
        assert!(report.contains("wrong-answer: json:/status is not \"ok\""), "{format}: {report}");
        assert!(report.contains("80.00%"), "{format}: {report}");
    }
}

#[test]
fn a_condition_that_is_none_is_refused_wherever_it_stands() {
    let server = Server::start_answering(OK).unwrap();
    let output = seawall("attack --requests 1 --output=none --expect status=404", &get(&server));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("a status outside 200 to 399 is always an error"),
        "{}",
        text(&output.stderr)
    );
    let targets = format!("# expect=size<3\n{}", text(&get(&server)));
    let output = seawall("attack --requests 1 --output=none", targets.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).starts_with("seawall: stdin:1: bad condition: \"size<3\""),
        "{}",
        text(&output.stderr)
    );
}

/// Refused connections are quick, and hits that are never sent have no latency at all.
#[test]
fn an_objective_does_not_hold_where_nothing_was_answered() {
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let words = "attack -rate=200 --requests 100 -slo p99<20s -output=none -live=none";
    let output = seawall(words, format!("GET http://{dead}/\n").as_bytes());
    assert!(matches!(output.status.code(), Some(3 | 4)), "{output:?}");
    if output.status.code() == Some(3) {
        let said = "seawall: missed p99 < 20s: not measurable: 100 of 100 requests had no good response\n";
        assert!(text(&output.stderr).ends_with(said), "{}", text(&output.stderr));
    }
    let slow = Server::start(|mut peer, _| {
        peer.read_request_head()?;
        peer.wait_for_close()
    });
    let words =
        "attack -rate=100 -duration=1s -max-workers=4 -timeout=500ms -slo p50<1h -output=none -live=none";
    assert!(matches!(seawall(words, &get(&slow.unwrap())).status.code(), Some(3 | 4)));
}

#[test]
fn templates_and_weights_make_the_requests_they_promise() {
    let (server, heads) = witness();
    let mut rows = tempfile::NamedTempFile::new().unwrap();
    rows.write_all(b"anna\nben\n").unwrap();
    let targets = format!(
        "# weight=3\nGET {}/{{{{seq}}}}/{{{{row {}}}}}\n\nGET {}\n",
        server.url_of_path(""),
        rows.path().display(),
        server.url_of_path("/plain")
    );
    let words = "attack --template --requests 8 --concurrency 1 -output=none -live=none --threads 1";
    assert!(seawall(words, targets.as_bytes()).status.code().is_some_and(|code| code != 1));
    let heads = heads.lock().unwrap();
    let paths: Vec<_> = heads.iter().map(|head| head.split(' ').nth(1).unwrap()).collect();
    assert_eq!(paths.iter().filter(|path| **path == "/plain").count(), 2);
    assert_eq!(paths.iter().filter(|path| path.ends_with("anna") || path.ends_with("ben")).count(), 6);
    assert_eq!((paths[0], paths[1]), ("/0/anna", "/1/ben"));
}

#[test]
fn a_lazy_input_is_read_while_attacking_and_ends_the_attack() {
    let (server, heads) = witness();
    let mut attack = start("attack -lazy -rate=1000 -output=none -summary=json -live=none");
    let mut input = attack.stdin.take().unwrap();
    for number in 0..20 {
        writeln!(input, "GET {}/{number}\n", server.url_of_path("")).unwrap();
    }
    while heads.lock().unwrap().len() < 20 {
        assert!(attack.try_wait().unwrap().is_none(), "it waits for more");
        std::thread::yield_now();
    }
    drop(input);
    let output = attack.wait_with_output().unwrap();
    assert_eq!(summary(&output)["good"], 20, "{}", text(&output.stderr));
    let mut attack = start("attack -lazy -format=json -rate=1000 -output=none -live=none");
    let mut input = attack.stdin.take().unwrap();
    writeln!(input, "{{\"method\":\"GET\",\"url\":\"{}\"}}\n{{}}", server.url_of_path("/")).unwrap();
    drop(input);
    let output = attack.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("stdin:2: bad target"), "{}", text(&output.stderr));
}

#[test]
fn what_would_need_more_open_files_than_there_are_waits() {
    let silent = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let targets = get(&silent).repeat(400);
    for flags in ["-lazy", "", "-lazy -max-workers=1000"] {
        let words = format!("attack {flags} -rate=400 -duration=500ms -timeout=1s -output=none -live=none");
        let mut attack = Command::new("sh")
            .args([
                "-c",
                "ulimit -n 128 && exec \"$0\" $1 -summary=json",
                env!("CARGO_BIN_EXE_seawall"),
                &words,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It may end before it has read all.
        let _ = attack.stdin.take().unwrap().write_all(&targets);
        let output = attack.wait_with_output().unwrap();
        let failures = &summary(&output)["failures"];
        assert!(failures["timeout"].is_u64() && failures["local-resource"].is_null(), "{flags}: {failures}");
    }
}

#[test]
fn the_first_signal_drains_and_keeps_every_result() {
    let (server, heads) = witness();
    let mut attack = start("attack -rate=200 -duration=60s -to=csv -live=none");
    attack.stdin.take().unwrap().write_all(&get(&server)).unwrap();
    while heads.lock().unwrap().len() < 20 {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&attack);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = attack.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(text(&output.stdout).lines().count(), heads.lock().unwrap().len());
}

#[test]
fn the_second_signal_ends_at_once() {
    interrupted_twice("-duration=60s");
}

#[test]
fn a_run_without_an_end_was_done_although_the_second_signal_cut_it_off() {
    interrupted_twice("");
}

fn interrupted_twice(end: &str) {
    let silent = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let mut attack = start(&format!("attack -rate=100 {end} -to=csv -live=none"));
    attack.stdin.take().unwrap().write_all(&get(&silent)).unwrap();
    while silent.connection_count() < 5 {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&attack);
    let mut results = BufReader::new(attack.stdout.take().unwrap());
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut errors: BTreeMap<String, usize> = BTreeMap::new();
    let mut line = String::new();
    while results.read_line(&mut line).unwrap() > 0 {
        *errors.entry(line.split(',').nth(5).unwrap().to_owned()).or_default() += 1;
        line.clear();
    }
    let code = attack.wait().unwrap().code();
    assert!(matches!(code, Some(143 | 130)), "{code:?}: {errors:?}");
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["aborted: the run ended before the response"]);
}

#[test]
fn the_second_signal_ends_a_run_whose_results_nobody_reads() {
    // More than a pipe holds.
    let body = "x".repeat(1 << 20);
    let server =
        Server::start_answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    let server = server.unwrap();
    for policy in ["wait", "drop"] {
        let mut attack =
            start(&format!("attack -rate=100 -duration=60s -to=csv -live=none --on-slow-output={policy}"));
        attack.stdin.take().unwrap().write_all(&get(&server)).unwrap();
        let mut said = String::new();
        let mut results = BufReader::new(attack.stdout.take().unwrap());
        // The first of them is there, and so are more.
        results.fill_buf().unwrap();
        let pid = rustix::process::Pid::from_child(&attack);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert!(attack.wait().unwrap().code().is_some_and(|code| code == 143 || code == 130), "{policy}");
        attack.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("results are incomplete"), "{policy}: {said}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_attack() {
    let server = Server::start_answering(OK).unwrap();
    let mut attack = start("attack -rate=2000 -duration=60s -to=csv -live=none");
    attack.stdin.take().unwrap().write_all(&get(&server)).unwrap();
    let mut results = BufReader::new(attack.stdout.take().unwrap());
    results.read_line(&mut String::new()).unwrap();
    drop(results);
    assert!(attack.wait().unwrap().code().is_some());
}

/// Says one line to a running attack and returns its answer.
fn say(control: &UnixStream, line: &str) -> String {
    let mut control = control;
    control.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(control).read_line(&mut answer).unwrap();
    answer
}

/// An attack with these flags, and the way to steer it.
fn steered(flags: &str, server: &Server, directory: &Path) -> (Child, UnixStream) {
    let path = directory.join("control");
    let mut attack =
        start(&format!("attack -output=none --summary=json --control-socket {} {flags}", path.display()));
    attack.stdin.take().unwrap().write_all(&get(server)).unwrap();
    loop {
        // It serves only once there is an attack to steer.
        if let Ok(control) = UnixStream::connect(&path) {
            return (attack, control);
        }
        assert!(attack.try_wait().unwrap().is_none(), "it has ended");
        std::thread::yield_now();
    }
}

#[test]
fn a_running_attack_is_steered_over_its_socket_which_goes_with_it() {
    let server = Server::start_answering(OK).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (attack, control) = steered("-rate=1/1h --requests=50", &server, directory.path());
    assert!(say(&control, "status").starts_with("ok running elapsed="));
    let closed = say(&control, "concurrency 5");
    assert!(closed.starts_with("error: ") && closed.ends_with("expected rate N/UNIT\n"), "{closed}");
    assert!(say(&control, "pause").starts_with("ok paused "));
    assert!(say(&control, "rate 200/s").starts_with("ok paused "));
    assert!(say(&control, "faster").starts_with("error: \"faster\" is not a command: expected rate"));
    assert!(say(&control, "resume").starts_with("ok running "));
    let output = attack.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?} {}", output.status, summary(&output));
    // What it was to send in some two days.
    assert_eq!(summary(&output)["good"], 50);
    assert!(!directory.path().join("control").exists());
}

#[test]
fn a_closed_loop_is_steered_to_its_end_which_is_no_interruption() {
    let server = Server::start_answering(OK).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (attack, control) = steered("--concurrency=2", &server, directory.path());
    assert!(say(&control, "rate 5/s").contains("error: a closed loop has no rate: expected concurrency N"));
    let answer = say(&control, "concurrency 20");
    assert!(answer.starts_with("ok running ") && answer.contains(" concurrency=20 "), "{answer}");
    assert!(say(&control, "concurrency 999999999").contains("expected "));
    assert!(say(&control, "stop").starts_with("ok ending "));
    let output = attack.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_second_stop_does_not_wait_for_answers() {
    let silent = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (attack, control) = steered("-rate=100 -timeout=0", &silent, directory.path());
    while !say(&control, "status").contains(" connections=1") {
        std::thread::yield_now();
    }
    assert!(say(&control, "stop").starts_with("ok ending "));
    assert!(say(&control, "resume").starts_with("error: the attack is ending: expected stop or status"));
    assert!(say(&control, "stop").starts_with("ok ending "));
    // Nothing but this ends it: no answer comes, and none is too late.
    attack.wait_with_output().unwrap();
}

#[test]
fn whoever_steers_has_so_many_connections_and_so_long_a_line() {
    let server = Server::start_answering(OK).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (attack, control) = steered("-rate=1", &server, directory.path());
    let path = directory.path().join("control");
    let mut others: Vec<_> = (0..7).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert!(others.iter().all(|other| say(other, "status").starts_with("ok ")));
    let mut refused = String::new();
    UnixStream::connect(&path).unwrap().read_to_string(&mut refused).unwrap();
    assert_eq!(refused, "error: 8 clients are connected, which is the limit: disconnect one client\n");
    let long = others.pop().unwrap();
    assert_eq!(say(&long, &"x".repeat(255)).find("is not a command"), Some(7 + 257 + 1));
    assert_eq!(say(&long, &"x".repeat(256)), "error: the line is too long: expected at most 256 bytes\n");
    assert_eq!((&long).read(&mut [0]).unwrap(), 0, "and it is over");
    say(&control, "stop");
    // Valid or not: on a busy machine the generator may have been the limit.
    assert!(matches!(attack.wait_with_output().unwrap().status.code(), Some(0 | 4)));
}

#[test]
fn a_path_that_another_attack_listens_at_is_refused_before_anything_is_sent() {
    let (server, heads) = witness();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control");
    let _listener = UnixListener::bind(&path).unwrap();
    let output = seawall(&format!("attack -rate=1 --control-socket {}", path.display()), &get(&server));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("another program listens at the socket"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(heads.lock().unwrap().len(), 0);
}

/// The run ended at once, and nothing was said of what had been measured.
#[test]
fn a_disk_that_is_full_costs_the_files_and_not_what_was_measured() {
    let server = Server::start_answering(OK).unwrap();
    let load = "attack -rate=100 -duration=300ms --interval=50ms -output=none -live=none --summary=json";
    let files = "--timeseries=/dev/full --hdr=/dev/full";
    let done = seawall(&format!("{load} {files}"), &get(&server));
    assert_eq!((done.status.code(), &summary(&done)["offered"]), (Some(1), &30.into()));
    let said = text(&done.stderr);
    assert_eq!(said.matches("cannot write /dev/full: No space left").count(), 2, "each file: {said}");
}

#[test]
fn a_disk_that_fills_up_during_a_run_leaves_what_was_written_and_its_summary() {
    let server = Server::start_answering(OK).unwrap();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("run");
    // The about is in the file, and not all of forty intervals.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let load = "attack -rate=200 -duration=2s --interval=50ms -output=none -live=none --summary=json";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_seawall")]).args(load.split_whitespace());
    command.arg(format!("--timeseries={}", file.display()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let done = fed(command.spawn().unwrap(), &get(&server));
    let said = text(&done.stderr);
    assert!(said.contains(&format!("cannot write {}: File too large", file.display())), "{said}");
    assert_eq!((done.status.code(), &summary(&done)["offered"]), (Some(1), &400.into()));
    let written = std::fs::read_to_string(&file).unwrap();
    let about: Value = serde_json::from_str(written.lines().next().unwrap()).unwrap();
    assert_eq!(about["version"], 1);
}

/// The line that comes last was left out.
#[test]
fn a_summary_that_cannot_be_written_costs_no_end_of_the_intervals() {
    let server = Server::start_answering(OK).unwrap();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("run");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(["attack", "-rate=100", "-duration=100ms", "-output=none", "-live=none"]);
    command.arg(format!("--timeseries={}", file.display()));
    command.stdin(Stdio::piped()).stdout(full).stderr(Stdio::piped());
    let done = fed(command.spawn().unwrap(), &get(&server));
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("cannot write the summary: No space left"));
    let last: Value =
        serde_json::from_str(std::fs::read_to_string(&file).unwrap().lines().last().unwrap()).unwrap();
    assert_eq!(last["offered"], 10);
}
