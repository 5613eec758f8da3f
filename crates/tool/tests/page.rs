//! The page of a running attack, in a real browser and by hand: it draws, its buttons steer, a reload loses nothing, and when the
//! run is over it is the report.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use seawall_testkit::browser::Browser;
use seawall_testkit::closure_server::Server;
use seawall_testkit::fault_server_process::request_live_page;
use seawall_testkit::waiting::wait_until_some;
use serde_json::Value;

fn answering() -> Server {
    let server = Server::start(|mut peer, _| {
        loop {
            peer.read_request_head()?;
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
    });
    server.unwrap()
}

/// An attack with a page; dropping it ends it.
struct Attack {
    child: Child,
    said: BufReader<ChildStderr>,
    url: String,
}

impl Attack {
    fn start(test: &str, server: &Server, flags: &[&str]) -> Self {
        let targets = format!("{}/page-{test}.targets", env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(&targets, format!("GET {}\n", server.url_of_path("/<b>token</b>"))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
        command
            .args(["attack", "-output", "none", "--live-page", "127.0.0.1:0", "-targets", &targets])
            .args(flags);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let url = line.strip_prefix("page: ").unwrap_or_else(|| panic!("{line}")).trim_end().to_owned();
        Self { child, said, url }
    }

    /// Waits for a line that it says.
    fn hears(&mut self, wanted: &str) {
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it ended without saying {wanted:?}");
            if line.contains(wanted) {
                return;
            }
        }
    }

    /// An exchange with its page, whatever the path.
    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        request_live_page(&self.url, method, path, body).unwrap()
    }

    fn end(mut self) -> ExitStatus {
        self.said.read_to_end(&mut Vec::new()).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a chart has a line with more points than that.
fn has_drawn(name: &str, points: usize) -> String {
    format!(
        "[...document.querySelectorAll('.card')].some(card => card.querySelector('h2')?.textContent.startsWith('{name}') \
         && [...card.querySelectorAll('.plot path')].some(path => path.getAttribute('d').split(/[ML]/).length > {points} + 1))"
    )
}

fn button(name: &str) -> String {
    format!("document.querySelector('.steer button[aria-label=\"{name}\"]')")
}

#[test]
fn in_a_real_browser_the_page_draws_steers_survives_a_reload_and_becomes_the_report() {
    let server = answering();
    let mut attack =
        Attack::start("browser", &server, &["-rate", "100", "-duration", "1h", "--live", "lines"]);
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Browser::open(profile.path(), (1200, 1000), &attack.url);

    let charts =
        ["Response time by percentile", "Rate over time", "In flight over time", "Send lag of the generator"];
    for name in charts {
        browser.wait_for_expression(&has_drawn(name, 3));
    }
    assert!(
        browser
            .evaluate("document.querySelector('.when').textContent")
            .as_str()
            .unwrap()
            .contains("/<b>token</b>")
    );
    assert_eq!(browser.evaluate("document.querySelectorAll('.when b').length"), 0);
    browser.move_pointer_to("document.querySelector('.plot')");
    browser.wait_for_expression("document.querySelector('.tip td.n')");

    browser.click(&button("A tenth more rate"));
    attack.hears("offered 110/s");
    browser.click("document.querySelector('.steer input')");
    browser.evaluate("document.querySelector('.steer input').select()");
    browser.type_text("300");
    browser.click("document.querySelector('.steer form button[type=submit]')");
    attack.hears("offered 300/s");
    browser.wait_for_expression("document.querySelector('.now b').textContent === '300 /s'");

    let before =
        browser.wait_for_expression("document.querySelector('.tiles b').textContent.replace(/\\D/g, '')");
    browser.evaluate("window.before = true");
    browser.reload();
    browser.wait_for_expression("!window.before && document.querySelector('.tiles b')");
    // At once, before anything new is heard: it is all in the page itself.
    browser.wait_for_expression(&has_drawn("Rate over time", 4));
    let count = |text: Value| text.as_str().unwrap().parse::<u64>().unwrap();
    let after =
        browser.wait_for_expression("document.querySelector('.tiles b').textContent.replace(/\\D/g, '')");
    assert!(count(after) >= count(before));

    browser.click(&button("Pause the schedule; requests that are already due are still sent"));
    browser.wait_for_expression("document.querySelector('.steer').textContent.startsWith('Paused')");
    attack.hears("offered 0/s");
    browser.click(&button("Resume sending"));
    browser.wait_for_expression("document.querySelector('.steer').textContent.startsWith('Running')");
    browser.click(&button("Stop sending and wait for responses"));
    assert_eq!(attack.end().code(), Some(0));

    browser
        .wait_for_expression("document.querySelector('.steer').textContent.startsWith('The run has ended')");
    assert_eq!(
        browser.evaluate(&format!(
            "{}.hidden",
            button("Pause the schedule; requests that are already due are still sent")
        )),
        true
    );
    browser.wait_for_expression(&has_drawn("Rate over time", 4));
    // The program is gone; the page has the file.
    let saved = "new Promise(done => { const real = URL.createObjectURL; \
                 URL.createObjectURL = blob => { blob.text().then(done); return real(blob); }; SAVE.click(); })";
    let save = button("Save this report as one file that works offline");
    let file = browser.evaluate(&saved.replace("SAVE", &save)).as_str().unwrap().to_owned();
    let path = profile.path().join("saved.html");
    std::fs::write(&path, &file).unwrap();
    drop(browser);

    let mut browser = Browser::open(profile.path(), (500, 900), &format!("file://{}", path.display()));
    browser.wait_for_expression(&has_drawn("Rate over time", 4));
    assert_eq!(browser.evaluate("document.querySelector('.steer')"), Value::Null);
    assert_eq!(
        browser.evaluate("document.documentElement.scrollWidth <= innerWidth"),
        true,
        "a narrow window"
    );
    assert!(!file.contains("token=") && !file.contains("connect-src") && !file.contains("EventSource"));
}

#[test]
fn a_page_that_is_not_open_holds_up_no_end_and_buttons_speak_the_language_of_the_socket() {
    let server = answering();
    let mut attack = Attack::start("ask", &server, &["-rate", "100", "-duration", "1h"]);
    let answer = attack.ask("POST", "/control", "rate 250/s");
    assert!(
        answer.starts_with("HTTP/1.1 200 ")
            && answer.contains("ok running ")
            && answer.contains("rate=250/s")
    );
    let answer = attack.ask("POST", "/control", "faster");
    assert!(
        answer.starts_with("HTTP/1.1 422 ") && answer.contains("error: \"faster\" is not a command"),
        "{answer}"
    );
    attack.hears("offered 250/s");
    let report = attack.ask("GET", "/report.html", "");
    assert!(report.contains("content-disposition: attachment; filename=\"seawall-report.html\""), "{report}");
    assert!(report.contains("Saved during the attack") && !report.contains("\"live\""));
    assert!(attack.ask("POST", "/control", "stop").contains("ok ending "));
    assert_eq!(attack.end().code(), Some(0));
}

/// What an open page is told at the end, in the middle of which it may have been told the same.
fn last_event(heard: &str) -> Value {
    let (_, event) = heard.rsplit_once("event: end\ndata: ").unwrap_or_else(|| panic!("{heard}"));
    serde_json::from_str(event.split_once("\n\n").unwrap().0).unwrap()
}

#[test]
fn at_the_end_the_page_says_what_report_says_of_the_intervals() {
    let server = answering();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("run.intervals").to_str().unwrap().to_owned();
    let flags = [
        "-rate",
        "200",
        "-duration",
        "2300ms",
        "--warm-up",
        "300ms",
        "--interval",
        "100ms",
        "--timeseries",
        &file,
    ];
    let attack = Attack::start("end", &server, &flags);
    // Until the program ends: nobody closes it here.
    let told = last_event(&attack.ask("GET", "/events", ""));
    assert_eq!(told["live"]["state"], "over");
    assert!(matches!(attack.end().code(), Some(0 | 4)));
    let report =
        Command::new(env!("CARGO_BIN_EXE_seawall")).args(["report", "-type=html", &file]).output().unwrap();
    let data = |page: &str| -> Value {
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    };
    let report = data(std::str::from_utf8(&report.stdout).unwrap());
    let saved = data(told["live"]["file"].as_str().unwrap());
    for page in [&told, &saved] {
        for key in ["figures", "codes", "errors"] {
            assert_eq!(page["runs"][0][key], report["runs"][0][key], "{key}");
        }
        assert_eq!(page["charts"]["panels"][0], report["charts"]["panels"][0], "the curve");
    }
    assert!(saved["live"].is_null());
}

/// The figures of a run that goes on took what is in flight for failed.
#[test]
fn what_waits_for_an_answer_has_not_failed() {
    let server = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let attack = Attack::start("silent", &server, &["-rate", "100", "-duration", "1h", "-timeout", "0"]);
    let told = wait_until_some("a second", || {
        let page = attack.ask("GET", "/", "");
        let (_, rest) = page.split_once("id=\"data\">")?;
        let data: Value = serde_json::from_str(rest.split_once("</script>")?.0).ok()?;
        data["runs"][0].is_object().then_some(data)
    });
    let (run, live) = (&told["runs"][0], &told["live"]);
    assert!(run["figures"]["requests"].as_u64().unwrap() > 0, "{run}");
    assert_eq!((&run["figures"]["success"], &run["errors"]), (&Value::Null, &serde_json::json!([])), "{run}");
    assert_eq!((&live["state"], &live["last"]["p99"]), (&"running".into(), &Value::Null), "{live}");
    assert_eq!(run["figures"]["offered"], 100.0);
}

#[test]
fn an_address_that_others_reach_is_refused_before_anything_is_sent() {
    let done = Command::new(env!("CARGO_BIN_EXE_seawall"))
        .args(["attack", "--live-page", "0.0.0.0:0", "-targets", "/dev/null"])
        .output()
        .unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(said.contains("other machines can reach") && said.contains("127.0.0.1:0"), "{said}");
}

/// The second run's column, which is the point of the table, was cut off on a phone.
#[test]
fn two_runs_side_by_side_fit_on_a_phone() {
    let place = tempfile::tempdir().unwrap();
    let run = |name: &str, latency: u64| {
        let record = |second: u64| {
            format!(
                "{{\"attack\":\"\",\"seq\":{second},\"code\":200,\"timestamp\":\"2027-01-01T00:00:{second:02}Z\",\"latency\":{latency},\
                 \"bytes_out\":0,\"bytes_in\":1234567,\"error\":\"\",\"body\":null,\"method\":\"GET\",\"url\":\"http://shop.test/\",\"headers\":null}}\n"
            )
        };
        let path = place.path().join(name);
        std::fs::write(&path, (0..40).map(record).collect::<String>()).unwrap();
        path
    };
    let (before, after) =
        (run("before-the-change.json", 12_345_678), run("after-the-change.json", 23_456_789));
    let report = Command::new(env!("CARGO_BIN_EXE_seawall"))
        .args(["report", "-type=html"])
        .args([before, after])
        .output()
        .unwrap();
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    let page = String::from_utf8(report.stdout).unwrap().replace('&', "&amp;").replace('"', "&quot;");
    let phone = place.path().join("phone.html");
    // Chromium has no window of 390 pixels, but a frame of that width.
    std::fs::write(
        &phone,
        format!("<!doctype html><iframe width=390 height=844 srcdoc=\"{page}\"></iframe>"),
    )
    .unwrap();
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Browser::open(profile.path(), (600, 900), &format!("file://{}", phone.display()));
    browser.wait_for_expression("frames[0] && frames[0].document.querySelectorAll('.runs td').length > 20");
    let page = "frames[0].document";
    assert_eq!(
        browser.evaluate(&format!("{page}.documentElement.scrollWidth <= 390")),
        true,
        "the page itself"
    );
    let cut = format!(
        "(() => {{ const box = {page}.querySelector('.runs').getBoundingClientRect(); return [...{page}.querySelectorAll('.runs \
         td:last-child')].filter(cell => cell.getBoundingClientRect().right > box.right + 1).length; }})()"
    );
    assert_eq!(browser.evaluate(&cut), 0, "cells of the last run that are cut off");
}
