//! `report` of intervals as a user meets it: one generator's or several's, beside other things, cut, and in every type.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use seawall_load::clock::RunClock;
use seawall_load::record::{Zone, ZonedTimestamp};
use seawall_load::results::rfc3339::Rfc3339;
use seawall_testkit::closure_server::Server;
use serde_json::Value;

/// Runs the tool in a directory, with words as a shell would split them.
fn seawall(words: &str, place: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(words.split_whitespace()).current_dir(place).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command says on standard output; it must have succeeded.
fn said(words: &str, place: &Path) -> String {
    let output = seawall(words, place);
    assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What a command that is refused says on standard error.
fn refused(words: &str, place: &Path) -> String {
    let output = seawall(words, place);
    assert_eq!(output.status.code(), Some(1), "{words}: {}", text(&output.stdout));
    text(&output.stderr)
}

fn json(words: &str, place: &Path) -> Value {
    serde_json::from_str(&said(words, place)).unwrap()
}

/// The data of the page.
fn page(words: &str, place: &Path) -> Value {
    let page = said(words, place);
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let data = &page[start..page[start..].find("</script>").unwrap() + start];
    serde_json::from_str(data).unwrap()
}

/// A directory of this test alone, and a server to attack from it with `-targets=targets`: one answer in five is 503.
fn scene() -> (tempfile::TempDir, Server) {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(|mut peer, _| {
        for number in 0.. {
            peer.read_request_head()?;
            let status = if number % 5 == 0 { "503 Busy" } else { "200 OK" };
            peer.send(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nhi").as_bytes())?;
        }
        Ok(())
    })
    .unwrap();
    std::fs::write(place.path().join("targets"), format!("GET {}\n", server.url_of_path("/"))).unwrap();
    (place, server)
}

const ATTACK: &str = "attack -targets=targets -output=none -live=none -summary=json --interval=50ms";

/// Attacks, and gives the summary; whether this machine could keep up is nothing to us.
fn attack(flags: &str, place: &Path) -> Value {
    serde_json::from_slice(&seawall(&format!("{ATTACK} {flags}"), place).stdout).unwrap()
}

/// Every figure of the attack's own summary but two that intervals cannot have: lookups made before the run, and the most in
/// flight, which is kept for each thread.
#[test]
fn a_report_of_intervals_says_what_the_attack_said_of_itself() {
    let (place, _server) = scene();
    let place = place.path();
    for load in ["-rate=200 -duration=500ms --warm-up=100ms", "--concurrency=2 --requests=60"] {
        let summary = attack(&format!("{load} --timeseries=run"), place);
        let report = json("report -type=json run", place);
        for (key, figure) in summary.as_object().unwrap() {
            match key.as_str() {
                "phases" => {
                    let but_lookup = |value: &Value| {
                        let mut phases = value.as_object().unwrap().clone();
                        phases.remove("lookup");
                        phases
                    };
                    assert_eq!(but_lookup(figure), but_lookup(&report["phases"]));
                }
                "config" | "host" => assert_eq!(*figure, report["generators"][0][key], "{key}"),
                "kind" => assert_eq!(report[key], "report"),
                "in_flight_peak" | "machine" => {}
                _ => assert_eq!(*figure, report[key], "{key} of {load}"),
            }
        }
        for kind in ["text", "summary"] {
            let report = said(&format!("report -type={kind} run"), place);
            let counts = ["offered", "sent", "good"].map(|key| summary[key].to_string()).join(", ");
            let line = report.lines().find(|line| line.starts_with("Requests ")).unwrap();
            assert_eq!(line.rsplit_once(']').unwrap().1.trim(), counts, "{report}");
        }
    }
}

#[test]
fn shards_of_two_generators_are_one_run() {
    let (place, _server) = scene();
    let place = place.path();
    let start = RunClock::start().unix_ns(2_000_000_000);
    let start = Rfc3339::new(ZonedTimestamp::from_unix_ns(start, Zone::Utc)).unwrap().to_string();
    let summaries = std::thread::scope(|scope| {
        let one = |shard: &'static str, file: &'static str| {
            let flags =
                format!("-rate=100 -duration=500ms --start-at={start} --shard={shard} --timeseries={file}");
            scope.spawn(move || attack(&flags, place))
        };
        [one("1/2", "a"), one("2/2", "b")].map(|generator| generator.join().unwrap())
    });
    let sum = |key: &str| summaries.iter().map(|summary| summary[key].as_u64().unwrap()).sum::<u64>();
    let report = json("report -type=json -buckets=[0,1h] a b", place);
    for key in ["offered", "sent", "good", "bytes_in", "connections"] {
        assert_eq!(report[key], sum(key), "{key}");
    }
    assert_eq!((&report["offered"], &report["duration_seconds"]), (&50.into(), &0.5.into()));
    assert_eq!(report["generators"].as_array().unwrap().len(), 2);
    let half = seawall("report -type=json b", place);
    let told: Value = serde_json::from_slice(&half.stdout).unwrap();
    assert_eq!((half.status.code(), &told["offered"]), (Some(1), &summaries[1]["offered"]));
    assert_eq!(
        text(&half.stderr),
        "seawall: shard 1/2 is missing besides b: the report covers the given shards only\n"
    );
    // On a busy machine not all are sent before the schedule is over.
    let timed = sum("sent");
    assert_eq!(report["buckets"]["0"], timed);
    assert!(said("report -type=hist[0,1h] a b", place).contains(&format!("{timed}  100.00%")));
    let plotted = said("report -type=hdrplot a b", place);
    assert!(plotted.lines().last().unwrap().contains(&format!(" {timed} ")), "{plotted}");
    let data = page("report -type=html a b", place);
    let [run] = &data["runs"].as_array().unwrap()[..] else { panic!("{}", data["runs"]) };
    assert_eq!((&run["figures"]["requests"], &run["figures"]["offered"]), (&50.into(), &100.0.into()));
    assert_eq!(data["subtitle"], format!("Started {start}. 2 generators"));
    let rates = panel(&data, "Rate over time");
    let good = rates["lines"].as_array().unwrap().iter().find(|line| line["name"] == "good").unwrap();
    let drawn: f64 = good["points"].as_array().unwrap().iter().filter_map(|point| point[1].as_f64()).sum();
    assert!(drawn > 0.0, "{rates}");
}

/// Both were added up, to twice the run or to one that nobody made.
#[test]
fn a_shard_that_is_there_twice_and_another_plan_are_refused_and_both_files_named() {
    const WHOLE: &str = "\"shard\":\"1/1\"";
    const HALF: (&str, &str) = (WHOLE, "\"shard\":\"2/2\"");
    let (place, _server) = scene();
    let place = place.path();
    attack("-rate=100 -duration=100ms --timeseries=run", place);
    let whole = std::fs::read_to_string(place.join("run")).unwrap();
    let written = |name: &str, changes: &[(&str, &str)]| {
        let changed = changes.iter().fold(whole.clone(), |text, (old, new)| {
            assert!(text.contains(old), "{old}: {text}");
            text.replacen(old, new, 1)
        });
        std::fs::write(place.join(name), changed).unwrap();
    };
    written("half", &[(WHOLE, "\"shard\":\"1/2\"")]);
    written("copy", &[]);
    written(
        "other-half",
        &[HALF, ("\"max_in_flight\":", "\"max_in_flight\":1"), ("\"threads\":", "\"threads\":1")],
    );
    written("quarter", &[(WHOLE, "\"shard\":\"3/4\"")]);
    written("slower", &[HALF, ("hold 100/s", "hold 77/s")]);
    written("warm", &[HALF, ("\"warm_up_seconds\":0", "\"warm_up_seconds\":1")]);
    written("named", &[HALF, ("\"name\":\"\"", "\"name\":\"x\"")]);
    let plan = "begin at the same instant but have different plans: ";
    for (files, expected) in [
        ("run run", "run is given twice".to_owned()),
        ("run copy", "run is shard 1/1 of the run and copy is shard 1/1: the shards overlap".to_owned()),
        ("run half", "run is shard 1/1 of the run and half is shard 1/2: the shards overlap".to_owned()),
        ("other-half half quarter", "half is shard 1/2 of the run and quarter is shard 3/4".to_owned()),
        ("half slower", format!("half and slower {plan}stages is [")),
        ("half warm", format!("half and warm {plan}warm_up_seconds is 0 and 1\n")),
        ("half named", format!("half and named {plan}name is \"\" and \"x\"\n")),
    ] {
        for kind in ["json", "html"] {
            let said = refused(&format!("report -type={kind} {files}"), place);
            assert!(said.contains(&expected), "{files}: {said}");
        }
    }
    said("report -type=json half other-half", place);
}

#[test]
fn generators_of_a_closed_loop_add_up_undivided() {
    let (place, _server) = scene();
    let place = place.path();
    attack("--concurrency=1 -duration=50ms --timeseries=one", place);
    std::fs::copy(place.join("one"), place.join("other")).unwrap();
    let [one, both] = ["one", "one other"].map(|files| json(&format!("report -type=json {files}"), place));
    assert_eq!(both["sent"], 2 * one["sent"].as_u64().unwrap());
}

/// It said that intervals do not hold when a request was due, and advised a log of lags, where there are none.
#[test]
fn of_a_closed_loop_it_is_said_that_nothing_was_due() {
    let (place, _server) = scene();
    let place = place.path();
    attack("--concurrency=1 --requests=50 --timeseries=one", place);
    let data = page("report -type=html one", place);
    let left_out = data["charts"]["leftOut"].as_array().unwrap();
    let why =
        |name: &str| left_out.iter().find(|one| one["name"].as_str().unwrap().starts_with(name)).unwrap();
    for name in ["Rate over time: offered", "Send lag of the generator"] {
        assert!(why(name)["why"].as_str().unwrap().starts_with("A closed loop"), "{left_out:?}");
    }
}

/// A chart of a page's data.
fn panel<'a>(data: &'a Value, name: &str) -> &'a Value {
    data["charts"]["panels"].as_array().unwrap().iter().find(|panel| panel["name"] == name).unwrap()
}

/// What is left out of a page, and whether nothing on it is empty.
fn left_out(data: &Value) -> Vec<&str> {
    for panel in data["charts"]["panels"].as_array().unwrap() {
        let lines = panel["lines"].as_array().unwrap();
        let is_seen =
            |line: &Value| line["points"].as_array().unwrap().iter().any(|point| point[1].is_number());
        assert!(!lines.is_empty() && lines.iter().all(is_seen), "{panel}");
    }
    let names = data["charts"]["leftOut"].as_array().unwrap();
    names.iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn a_page_of_intervals_leaves_out_the_offered_rate_over_time_and_no_error() {
    let (place, _server) = scene();
    let place = place.path();
    for file in ["one", "other"] {
        attack(&format!("-rate=200 -duration=500ms --timeseries={file}"), place);
    }
    let data = page("report -type=html one", place);
    assert_eq!(left_out(&data), ["Rate over time: offered"]);
    assert!(data["note"].is_null(), "{}", data["note"]);
    let errors: Vec<_> =
        data["runs"][0]["errors"].as_array().unwrap().iter().map(|error| &error[0]).collect();
    assert_eq!(errors, ["status 503"]);
    let data = page("report -type=html one other", place);
    assert_eq!(left_out(&data), ["Offered rate over time"]);
    assert!(data["charts"]["leftOut"][0]["why"].as_str().unwrap().starts_with("Intervals do not contain"));
}

#[test]
fn runs_of_different_starts_are_compared_and_not_added_up() {
    let (place, _server) = scene();
    let place = place.path();
    for file in ["before", "after"] {
        attack(&format!("-name=same -rate=100 -duration=200ms --timeseries={file}"), place);
    }
    let said = refused("report -type=text before after", place);
    assert!(
        said.contains("before begins at ") && said.contains("after at ") && said.contains("--start-at"),
        "{said}"
    );
    let data = page("report -type=html before after", place);
    let names: Vec<_> = data["runs"].as_array().unwrap().iter().map(|run| &run["name"]).collect();
    assert_eq!(names, ["same", "same #2"]);
}

#[test]
fn what_needs_single_results_names_the_file_and_itself() {
    let (place, _server) = scene();
    let place = place.path();
    attack("-rate=100 -duration=100ms --timeseries=run --hdr=log", place);
    let results = ["-targets=targets -rate=100 -duration=100ms -live=none -summary=none -output=results"];
    assert!(seawall(&format!("attack {}", results[0]), place).status.code().is_some_and(|code| code != 1));
    for (words, expected) in [
        (
            "encode -to=csv run",
            "run contains intervals, but `seawall encode` needs results of single requests",
        ),
        ("plot run", "run contains intervals, but `seawall plot` needs results of single requests"),
        (
            "report -type=text -every=1s run",
            "run contains intervals, but -every needs results of single requests from a running attack",
        ),
        (
            "report -type=json results run",
            "run contains intervals, but results contains results: give inputs of one kind",
        ),
        (
            "report -type=html run log",
            "run contains intervals, but log contains an HDR log: give inputs of one kind",
        ),
    ] {
        let said = refused(words, place);
        assert!(said.contains(expected), "{words}: {said}");
    }
}

/// Such files were results of which nothing could be read, and the report of nothing had status 0.
#[test]
fn what_is_nearly_a_file_of_intervals_is_named_for_what_it_is() {
    let (place, _server) = scene();
    let place = place.path();
    let summary = seawall(&format!("{ATTACK} -rate=100 -duration=100ms --timeseries=run"), place).stdout;
    let whole = std::fs::read_to_string(place.join("run")).unwrap();
    let (_, headless) = whole.split_once('\n').unwrap();
    let last = whole.lines().last().unwrap();
    let added_up = said("report -type=json run", place);
    for (name, held) in [
        ("empty", ""),
        ("headless", headless),
        ("end", last),
        ("summary", &text(&summary)),
        ("added-up", &added_up),
    ] {
        std::fs::write(place.join(name), held).unwrap();
    }
    let holds_a_summary =
        "contains a summary: `seawall report` reads results and files of `attack --timeseries`";
    for (words, expected) in [
        ("-type=text headless", "headless: line 1 does not describe the run".to_owned()),
        ("-type=html end", "end: line 1 does not describe the run".to_owned()),
        ("-type=text empty run", "seawall: empty is empty\n".to_owned()),
        ("-type=text summary", "summary contains a summary, not records: add --output -".to_owned()),
        ("-type=html run added-up", format!("added-up {holds_a_summary}")),
    ] {
        let said = refused(&format!("report {words}"), place);
        assert!(said.contains(&expected), "{words}: {said}");
    }
}

/// Writes a copy with other lines, and reports it.
fn altered(lines: &[String], place: &Path) -> Output {
    let file: PathBuf = place.join("altered");
    std::fs::write(file, lines.concat()).unwrap();
    seawall("report -type=json altered", place)
}

#[test]
fn a_file_that_is_cut_or_damaged_is_named_and_what_stands_before_the_break_is_reported() {
    let (place, _server) = scene();
    let place = place.path();
    attack("-rate=100 -duration=1s --timeseries=run", place);
    let whole = std::fs::read_to_string(place.join("run")).unwrap();
    let lines: Vec<_> = whole.split_inclusive('\n').map(str::to_owned).collect();
    let last = lines.len();
    assert!(last > 4, "{whole}");
    let cut_at = |line: usize, by: &str| [&lines[..line], &[by.to_owned()]].concat();
    let kept = |output: &Output| {
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["offered"].as_u64().unwrap()
    };
    for (lines, expected) in [
        (
            cut_at(last - 1, ""),
            format!("altered: line {last} is missing: the last line must describe the end of the run"),
        ),
        (
            cut_at(3, &lines[3][..40]),
            "altered: line 4 is neither an interval nor the end of the run".to_owned(),
        ),
        (
            cut_at(3, "{\"start_seconds\":1,\"end_seconds\":2}\n"),
            "altered: line 4 is neither an interval".to_owned(),
        ),
        (
            cut_at(3, &lines[2]),
            "altered: line 4 does not continue the line before it: expected an interval from ".to_owned(),
        ),
        (
            [&lines[..], &["\n".to_owned()], &lines[..]].concat(),
            format!("altered: line {} comes after the end of the run", last + 2),
        ),
    ] {
        let output = altered(&lines, place);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.contains(&expected) && said.contains("the report includes the records before this point"),
            "{said}"
        );
        assert!((1..=100).contains(&kept(&output)), "{}", text(&output.stdout));
    }
    for (first, expected) in [
        (lines[0].replace("\"version\":1,", "\"version\":2,"), "altered: unknown version 2: expected 1"),
        ("{\"kind\":\"find\",\"version\":1}\n".to_owned(), "altered: line 1 does not describe the run"),
    ] {
        let output = altered(&[&[first], &lines[1..]].concat(), place);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
    let output = altered(&lines[..1], place);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "nothing was measured");
}

/// An interval like another, but with the same number in every counter, and without times.
fn forged(line: &str, from: u64, count: u64) -> String {
    const TIME: &str = "a time";
    let seconds = |nanos: u64| format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    let mut interval: Value = serde_json::from_str(line).unwrap();
    let stats = interval["stats"].as_object_mut().unwrap();
    for (key, figure) in stats {
        match figure {
            // No float holds it exactly.
            _ if key.ends_with("_seconds") => *figure = TIME.into(),
            Value::Number(_) => *figure = count.into(),
            Value::Object(parts) if parts.contains_key("hdr") => *figure = Value::Null,
            Value::Object(parts) => parts.retain(|_, part| part.is_number()),
            _ => {}
        }
        let parts = figure.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut);
        parts.for_each(|part| *part = count.into());
    }
    let stats = interval["stats"].to_string().replace(&format!("\"{TIME}\""), &seconds(count));
    let [start, end] = [from, from + 1].map(seconds);
    format!("{{\"start_seconds\":{start},\"end_seconds\":{end},\"stats\":{stats}}}\n")
}

/// Sums of forged counters ended a debug build, and began again at zero in a release.
#[test]
fn counters_that_nobody_counted_are_refused_and_sums_of_the_largest_end_where_counters_do() {
    const MOST: u64 = 1 << 53;
    let (place, _server) = scene();
    let place = place.path();
    attack("-rate=100 -duration=200ms --timeseries=run", place);
    let whole = std::fs::read_to_string(place.join("run")).unwrap();
    let lines: Vec<_> = whole.split_inclusive('\n').map(str::to_owned).collect();
    // On a busy machine, the first interval can end before the first response.
    let counted = lines.iter().find(|line| line.contains("\"200\":")).unwrap();
    for count in [MOST + 1, u64::MAX] {
        let output = altered(&[lines[0].clone(), forged(counted, 0, 5), forged(counted, 1, count)], place);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("altered: line 3 has a count of {count}")), "{said}");
        assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["sent"], 5);
    }
    let mut many = vec![lines[0].clone()];
    many.extend((0..2100).map(|from| forged(counted, from, MOST)));
    many.push(lines.last().unwrap().clone());
    let output = altered(&many, place);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for figure in ["sent", "good", "bytes_in", "in_flight_peak"] {
        let expected = if figure == "in_flight_peak" { MOST } else { u64::MAX };
        assert_eq!(report[figure], expected, "{figure}");
    }
    let halves = ["1/2", "2/2"];
    for (half, file) in halves.iter().zip(["one", "other"]) {
        many[0] = lines[0].replace("\"shard\":\"1/1\"", &format!("\"shard\":\"{half}\""));
        std::fs::write(place.join(file), many.concat()).unwrap();
    }
    for kind in ["summary", "hist[0,1ms]", "hdrplot", "html"] {
        said(&format!("report -type={kind} one other"), place);
    }
}

/// A server that is too slow for the load sees a part of it only; the page showed that part as all, and all of it as good.
#[test]
fn hits_that_were_never_sent_are_requests_of_the_page() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let silent = Server::start(|mut peer, _| {
        peer.read_request_head()?;
        peer.wait_for_close()
    })
    .unwrap();
    std::fs::write(place.join("targets"), format!("GET {}\n", silent.url_of_path("/"))).unwrap();
    let summary = attack("-rate=100 -duration=200ms -max-workers=1 -timeout=1s --timeseries=run", place);
    assert_eq!((&summary["offered"], &summary["not_sent"]), (&20.into(), &19.into()));
    let data = page("report -type=html run", place);
    let [run] = &data["runs"].as_array().unwrap()[..] else { panic!("{}", data["runs"]) };
    assert_eq!((&run["figures"]["requests"], &run["figures"]["timed"]), (&20.into(), &1.into()));
    assert_eq!((&run["figures"]["success"], &run["codes"]), (&0.0.into(), &serde_json::json!([[0, 20]])));
    let unsent = serde_json::json!(["requests of the schedule that were not sent before its end", 19]);
    assert_eq!(run["errors"][0], unsent, "{}", run["errors"]);

    // Nor are they gone where another generator's file is cut.
    let whole = std::fs::read_to_string(place.join("run")).unwrap();
    let [first, second] = ["1/2", "2/2"].map(|half| whole.replacen("\"1/1\"", &format!("\"{half}\""), 1));
    std::fs::write(place.join("first"), first).unwrap();
    let lines: Vec<_> = second.split_inclusive('\n').collect();
    std::fs::write(place.join("cut"), lines[..lines.len() - 1].concat()).unwrap();
    for files in ["first cut", "cut first"] {
        let output = seawall(&format!("report -type=json {files}"), place);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (output.status.code(), &report["offered"], &report["not_sent"]),
            (Some(1), &21.into(), &19.into())
        );
    }
}
