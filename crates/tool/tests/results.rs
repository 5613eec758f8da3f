//! `report`, `encode` and `plot` as a user meets them: several inputs, broken inputs, live pipes, hostile texts.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use seawall_testkit::closure_server::Server;

fn seawall(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A directory of this test alone.
fn scratch(name: &str) -> PathBuf {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&place).unwrap();
    place
}

fn results(attack: &str, first_ms: u32, step_ms: u32, count: u32) -> String {
    let line = |i: u32| {
        let at = first_ms + i * step_ms;
        format!(
            "{{\"attack\":\"{attack}\",\"seq\":{i},\"code\":200,\"timestamp\":\"2025-01-02T03:04:{:02}.{:03}Z\",\
             \"latency\":1000000,\"method\":\"GET\",\"url\":\"http://127.0.0.1/\"}}\n",
            at / 1000,
            at % 1000
        )
    };
    (0..count).map(line).collect()
}

fn sequence(encoded: &Output) -> Vec<String> {
    let field = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        format!("{}{}", fields[7], fields[8])
    };
    text(&encoded.stdout).lines().map(field).collect()
}

#[test]
fn several_inputs_of_different_formats_become_one_in_time_order() {
    let place = scratch("merge");
    let (a, b) = (place.join("a.json"), place.join("b.gob"));
    std::fs::write(&a, results("a", 0, 20, 3)).unwrap();
    let b_source = place.join("b.json");
    std::fs::write(&b_source, results("b", 10, 25, 3)).unwrap();
    let encoded = seawall(&["encode", "-to=gob", "-output"]).arg(&b).arg(&b_source).output().unwrap();
    assert!(encoded.status.success());
    let merged = seawall(&["encode", "-to=csv"]).arg(&a).arg(&b).output().unwrap();
    assert!(merged.status.success());
    assert_eq!(sequence(&merged), ["a0", "b0", "a1", "b1", "a2", "b2"]);
}

#[test]
fn a_damaged_input_is_named_and_the_rest_is_reported() {
    let place = scratch("damaged");
    let (good, bad) = (place.join("good.json"), place.join("bad.json"));
    std::fs::write(&good, results("good", 0, 10, 5)).unwrap();
    std::fs::write(&bad, results("bad", 0, 10, 3) + "{\"code\":\"what\"}\n" + &results("bad", 0, 10, 9))
        .unwrap();
    let done = seawall(&["report", "-type=text"]).arg(&bad).arg(&good).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stdout).contains("[total, rate, throughput]         8, "), "{}", text(&done.stdout));
    let complaint = text(&done.stderr);
    assert!(complaint.contains("bad.json: damaged JSON"), "{complaint}");
    assert!(complaint.contains("at line 4, after 3 records"), "{complaint}");
}

#[test]
fn nothing_readable_is_an_error_and_no_report() {
    for (input, expected) in [("", "the input is empty"), ("hello\n", "not results in gob, JSON or CSV")] {
        let mut child = piped(&["report"]);
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(1));
        assert_eq!(text(&done.stdout), "");
        assert!(text(&done.stderr).contains(expected), "{}", text(&done.stderr));
    }
}

/// An existing report must survive a typing mistake.
#[test]
fn a_bad_flag_does_not_empty_the_output() {
    let place = scratch("kept");
    let (input, output) = (place.join("in.json"), place.join("kept.txt"));
    std::fs::write(&input, results("a", 0, 10, 2)).unwrap();
    std::fs::write(&output, "precious").unwrap();
    for flags in [["-type=tezt", "-output"], ["-type=hist[1,x]", "-output"], ["-buckets=1ms", "-output"]] {
        let done = seawall(&["report"]).args(flags).arg(&output).arg(&input).output().unwrap();
        assert!(!done.status.success());
        assert_eq!(std::fs::read_to_string(&output).unwrap(), "precious", "{flags:?}");
    }
}

/// A message that names neither the file nor the flag sends the reader looking for both.
#[test]
fn complaints_did_not_say_what_they_were_about() {
    let place = scratch("complaints");
    let (input, noise) = (place.join("in.json"), place.join("noise.bin"));
    std::fs::write(&input, results("a", 0, 10, 2)).unwrap();
    std::fs::write(&noise, [0x91, 0x02, 0xfe, 0x17].repeat(40)).unwrap();
    let (directory, input, noise) =
        (place.to_str().unwrap(), input.to_str().unwrap(), noise.to_str().unwrap());
    for (args, expected) in [
        (&["report", directory][..], &[directory, "directory"][..]),
        (&["plot", directory], &[directory, "directory"]),
        (&["encode", directory], &[directory, "directory"]),
        (&["report", noise], &[noise, "not results in gob, JSON or CSV"]),
        (&["plot", noise], &[noise, "not results in gob, JSON or CSV"]),
        (&["plot", "-threshold=foo", input], &["'foo'", "--threshold", "a whole number"]),
        (&["report", "-type=hist[foo]", input], &["-type=hist[foo]", "\"foo\" is not a duration"]),
        (&["report", "-type=hist", input], &["-type=hist", "[0,1ms,10ms]"]),
    ] {
        let done = seawall(args).output().unwrap();
        assert!(!done.status.success(), "{args:?}");
        let said = text(&done.stderr);
        assert!(expected.iter().all(|part| said.contains(part)), "{args:?}: {said}");
    }
}

/// A device takes bytes and cannot be cut to a length.
#[test]
fn a_report_into_dev_null_could_not_be_written() {
    let input = scratch("device").join("in.json");
    std::fs::write(&input, results("a", 0, 10, 2)).unwrap();
    for command in ["report", "plot", "encode"] {
        let done = seawall(&[command, "-output=/dev/null"]).arg(&input).output().unwrap();
        assert!(done.status.success(), "{command}: {}", text(&done.stderr));
    }
}

fn piped(args: &[&str]) -> Child {
    seawall(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Reads reports until one counts this many requests.
fn wait_for(stdout: &mut impl BufRead, requests: &str) {
    let mut line = String::new();
    while !line.contains(&format!("throughput]         {requests},")) {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "ended before it counted {requests} requests");
    }
}

#[test]
fn every_reports_what_has_come_so_far_and_then_the_end() {
    let mut child = piped(&["report", "-type=text", "-every=5ms"]);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdin.write_all(results("a", 0, 10, 3).as_bytes()).unwrap();
    wait_for(&mut stdout, "3");
    stdin.write_all(results("a", 30, 10, 2).as_bytes()).unwrap();
    wait_for(&mut stdout, "5");
    drop(stdin);
    std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_first_interrupt_waits_for_the_pipe_and_the_second_reports_at_once() {
    let mut child = piped(&["report", "-type=text", "-every=5ms"]);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdin.write_all(results("a", 0, 10, 3).as_bytes()).unwrap();
    wait_for(&mut stdout, "3");
    interrupt(&child);
    // Still reading: results that come after the interrupt are counted.
    stdin.write_all(results("a", 30, 10, 1).as_bytes()).unwrap();
    wait_for(&mut stdout, "4");
    interrupt(&child);
    std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    assert!(child.wait().unwrap().success());
    drop(stdin);
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn the_page_loads_nothing_and_hostile_texts_stay_texts() {
    let place = scratch("page");
    let input = place.join("hostile.json");
    let hostile = "</script><script>alert(1)</script>{{data}}{{script}}";
    let line = results("a", 0, 10, 1).replace("\"method\"", &format!("\"error\":\"{hostile}\",\"method\""));
    std::fs::write(&input, line + &results("a", 10, 10, 50)).unwrap();
    let done = seawall(&["plot", "-title", hostile]).arg(&input).output().unwrap();
    assert!(done.status.success());
    let page = text(&done.stdout);
    assert_eq!(page.matches("</script>").count(), 2, "a text ended a script");
    for outward in
        ["src=", "@import", "fetch(", "EventSource", "XMLHttpRequest", "<link rel=\"stylesheet\"", "url(http"]
    {
        assert!(!page.contains(outward), "{outward}");
    }
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let data = &page[start..page[start..].find("</script>").unwrap() + start];
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["runs"][0]["figures"]["requests"], 51);
    assert_eq!(data["runs"][0]["errors"][0][0], hostile);
    assert_eq!(data["title"], hostile);
}

/// A closed loop at 113,000/s was shown as 25 times worse than a run at 1,000/s.
#[test]
fn runs_of_other_loads_are_said_to_be_that() {
    let place = scratch("loads");
    let input = place.join("in.json");
    std::fs::write(&input, results("a", 0, 10, 60) + &results("b", 5, 10, 60) + &results("c", 5, 20, 60))
        .unwrap();
    let done = seawall(&["plot"]).arg(&input).output().unwrap();
    let page = text(&done.stdout);
    assert!(page.contains("\"otherLoad\":[false,false,true]"), "{}", text(&done.stderr));
    assert!(page.contains("so changes are not judged"));
}

#[test]
fn two_attacks_are_two_runs_and_an_svg_is_one_picture() {
    let place = scratch("svg");
    let (input, output) = (place.join("two.json"), place.join("two.svg"));
    std::fs::write(&input, results("before & after", 0, 10, 60) + &results("<b>", 5, 10, 60)).unwrap();
    let done = seawall(&["plot", "-output"]).arg(&output).arg(&input).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    let picture = std::fs::read_to_string(&output).unwrap();
    assert!(picture.starts_with("<svg ") && picture.trim_end().ends_with("</svg>"));
    assert_eq!(picture.matches("before &amp; after").count(), 8);
    assert_eq!(picture.matches("&lt;b&gt;").count(), 8);
    assert!(!picture.contains("NaN") && !picture.contains("inf"), "a number got lost");
}

/// A name that ends in .png held a page, and one that ends in .SVG too.
#[test]
fn the_outputs_name_says_what_is_drawn_or_is_refused() {
    let place = scratch("names");
    let input = place.join("in.json");
    std::fs::write(&input, results("a", 0, 10, 60)).unwrap();
    for (name, begins) in [("x.html", "<!doctype html>"), ("x.SVG", "<svg "), ("plain", "<!doctype html>")] {
        let output = place.join(name);
        let done = seawall(&["plot", "-output"]).arg(&output).arg(&input).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
        assert!(std::fs::read_to_string(&output).unwrap().starts_with(begins), "{name}");
    }
    let output = place.join("x.png");
    std::fs::write(&output, "precious").unwrap();
    let done = seawall(&["plot", "-output"]).arg(&output).arg(&input).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("expected .html or .svg"), "{}", text(&done.stderr));
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "precious");
    let done = seawall(&["plot", "-format=svg", "-output"]).arg(&output).arg(&input).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
}

/// A line through one point has no length.
#[test]
fn a_run_of_one_request_was_invisible_in_a_picture() {
    let input = scratch("one-request").join("in.json");
    std::fs::write(&input, results("a", 0, 10, 1)).unwrap();
    let done = seawall(&["plot", "-format=svg"]).arg(&input).output().unwrap();
    // The largest and three quantiles, four rates and what was in flight.
    assert_eq!(text(&done.stdout).matches("<circle ").count(), 9, "{}", text(&done.stdout));
}

#[test]
fn runs_of_one_name_could_not_be_told_apart() {
    let place = scratch("one-name");
    let (long, input) = ("x".repeat(40), place.join("in.json"));
    std::fs::write(&input, results(&long, 0, 10, 60)).unwrap();
    let summary = seawall(&["report", "-type=summary"]).args([&input, &input, &input]).output().unwrap();
    let summary = text(&summary.stdout);
    let names: std::collections::HashSet<_> =
        summary.lines().filter(|line| line.starts_with("=== ")).collect();
    assert_eq!(names.len(), 3, "{summary}");
    let picture = seawall(&["plot", "-format=svg"]).args([&input, &input]).output().unwrap();
    assert_eq!(text(&picture.stdout).matches("json) #2</text>").count(), 8, "{}", text(&picture.stdout));
}

#[test]
fn the_summary_counts_errors_and_tells_targets_apart() {
    let place = scratch("summary");
    let input = place.join("in.json");
    let other = results("a", 20, 10, 2)
        .replace("\"code\":200", "\"code\":503,\"error\":\"503 Busy\"")
        .replace("/\"", "/b\"");
    std::fs::write(&input, results("a", 0, 10, 2) + &other).unwrap();
    let done = seawall(&["report", "-type=summary"]).arg(&input).output().unwrap();
    let summary = text(&done.stdout);
    assert!(summary.contains("50.000%"), "{summary}");
    // A bar of half of the requests was as long as one of all.
    let bars: Vec<_> = summary.lines().map(|line| line.matches('#').count()).filter(|bar| *bar > 0).collect();
    assert_eq!(bars, [20, 20], "{summary}");
    assert!(summary.contains("2  503 Busy"), "{summary}");
    assert!(summary.contains("GET http://127.0.0.1/b"), "{summary}");
    assert!(summary.contains("too few responses"), "{summary}");
}

/// A run of which most was never sent read as one that was all good.
#[test]
fn what_results_do_not_hold_is_said_where_figures_are_explained_and_only_there() {
    let input = scratch("unsent").join("in.json");
    std::fs::write(&input, results("a", 0, 10, 2)).unwrap();
    let note = "were never sent and are missing here, so the schedule can be longer than shown";
    for (words, notes) in [
        (&["report", "-type=summary"][..], 1),
        (&["report", "-type=html"], 1),
        (&["plot"], 1),
        (&["report", "-type=text"], 0),
        (&["report", "-type=json"], 0),
        (&["report", "-type=hist[0,1ms]"], 0),
        (&["report", "-type=hdrplot"], 0),
    ] {
        let done = seawall(words).arg(&input).output().unwrap();
        assert_eq!(text(&done.stdout).matches(note).count(), notes, "{words:?}");
    }
}

#[test]
fn hdr_logs_add_up_and_take_no_other_kind_of_report() {
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../load/tests/golden/python.hlog");
    let done = seawall(&["report", "-type=text", log, log]).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("(no tag)   4000    "), "{}", text(&done.stdout));
    let done = seawall(&["report", "-type=hdrplot", log]).output().unwrap();
    assert!(text(&done.stdout).contains("14.057471     0.500000"), "{}", text(&done.stdout));
    let done = seawall(&["report", "-type=json", log]).output().unwrap();
    assert!(text(&done.stderr).contains("contains only times"));
}

/// `plot` left the named log aside and waited for results on standard input.
#[test]
fn a_picture_of_hdr_logs_alone_is_refused_without_reading_standard_input() {
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../load/tests/golden/python.hlog");
    for command in [&["plot", log][..], &["report", "-type=html", log]] {
        // Results that must not be drawn instead.
        let mut child = piped(command);
        let _ = child.stdin.take().unwrap().write_all(results("a", 0, 10, 3).as_bytes());
        let done = child.wait_with_output().unwrap();
        assert_eq!((done.status.code(), text(&done.stdout)), (Some(1), String::new()), "{command:?}");
        assert!(text(&done.stderr).contains("or give the results of the run, too"), "{command:?}");
    }
}

#[test]
fn an_hdr_log_beside_results_adds_the_generators_lag_to_the_page() {
    let place = scratch("lag");
    let (input, log) = (place.join("in.json"), place.join("run.hlog"));
    std::fs::write(&input, results("a", 0, 10, 300)).unwrap();
    let source = include_str!("../../load/tests/golden/python.hlog");
    let blob = source.rsplit(',').next().unwrap();
    let header = "#[BaseTime: 1735787040.000 (seconds since epoch)]";
    std::fs::write(&log, format!("{header}\nTag=lag,1.5,1,1,{blob}\nTag=lag,999,1,1,{blob}")).unwrap();
    let done = seawall(&["plot"]).arg(&input).arg(&log).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(
        text(&done.stderr).contains("1 intervals belong to none of the runs in the results"),
        "{}",
        text(&done.stderr)
    );
    let page = text(&done.stdout);
    let lags = page.split("\"name\":\"lag\"").nth(1).unwrap();
    let lags = lags.split_once("\"points\":[").unwrap().1.split_once("]]").unwrap().0;
    assert_eq!(lags.matches('[').count(), 1, "{lags}");
    assert!(page.contains("Log this time with attack --hdr FILE"), "where lag comes from is not said");
    let done = seawall(&["report", "-type=text"]).arg(&input).arg(&log).output().unwrap();
    assert!(
        text(&done.stderr).contains("HDR logs together with results need -type=html"),
        "{}",
        text(&done.stderr)
    );
}

/// Refused connections are answers too: what `attack -hdr` logs is what its results hold, and a page takes both.
#[test]
fn what_an_attack_logs_is_what_its_results_hold() {
    let place = scratch("attack");
    let (output, log) = (place.join("out.gob"), place.join("run.hlog"));
    let server = Server::start_answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    let flags = ["attack", "-rate=100", "-duration=500ms", "-output"];
    let mut attack =
        seawall(&flags).arg(&output).arg("-hdr").arg(&log).stdin(Stdio::piped()).spawn().unwrap();
    attack.stdin.take().unwrap().write_all(format!("GET {}", server.url_of_path("/")).as_bytes()).unwrap();
    assert!(attack.wait().unwrap().success());
    let logged = seawall(&["report", "-type=text"]).arg(&log).output().unwrap();
    let logged = text(&logged.stdout);
    assert!(logged.lines().any(|line| line.starts_with("response   50 ")), "{logged}");
    assert!(logged.lines().any(|line| line.starts_with("lag        50 ")), "{logged}");
    let page = seawall(&["plot"]).arg(&output).arg(&log).output().unwrap();
    assert!(page.status.success(), "{}", text(&page.stderr));
    assert!(text(&page.stdout).contains("\"requests\":50,"));
}

/// A named pipe that another thread fills; whoever opens it twice finds nothing the second time.
fn pipe_of(place: &std::path::Path, content: Vec<u8>) -> (PathBuf, std::thread::JoinHandle<()>) {
    let pipe = place.join("pipe");
    let _ = std::fs::remove_file(&pipe);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let filled = pipe.clone();
    // The reader may have had enough before all is written.
    (pipe, std::thread::spawn(move || drop(std::fs::write(filled, content))))
}

#[test]
fn a_named_pipe_was_empty_when_it_was_read_a_second_time() {
    let place = scratch("named-pipe");
    let source = place.join("in.json");
    // More than any buffer holds.
    std::fs::write(&source, results("a", 0, 1, 5000)).unwrap();
    for format in ["gob", "json", "csv"] {
        let encoded = seawall(&["encode", "-to", format]).arg(&source).output().unwrap().stdout;
        for (command, expected) in [
            (&["report", "-type=text"][..], "throughput]         5000,"),
            (&["report", "-type=html"], "\"requests\":5000,"),
            (&["plot"], "\"requests\":5000,"),
        ] {
            let (pipe, writer) = pipe_of(&place, encoded.clone());
            let done = seawall(command).arg(&pipe).output().unwrap();
            assert!(done.status.success(), "{format} {command:?}: {}", text(&done.stderr));
            assert!(text(&done.stdout).contains(expected), "{format} {command:?}");
            writer.join().unwrap();
        }
        let mut child = piped(&["report", "-type=text", "/dev/stdin"]);
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(&encoded));
        let done = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(text(&done.stdout).contains("throughput]         5000,"), "{}", text(&done.stderr));
    }
}

#[test]
fn an_hdr_log_is_read_from_a_pipe_too() {
    let log = include_bytes!("../../load/tests/golden/python.hlog");
    let (pipe, writer) = pipe_of(&scratch("piped-log"), log.to_vec());
    let done = seawall(&["report", "-type=text"]).arg(&pipe).output().unwrap();
    writer.join().unwrap();
    assert!(text(&done.stdout).contains("(no tag)   2000    "), "{}", text(&done.stderr));
    let mut child = piped(&["report", "-type=text"]);
    child.stdin.take().unwrap().write_all(log).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(text(&done.stdout).contains("(no tag)   2000    "), "{}", text(&done.stderr));
}
