//! The page of a running search, in a real browser and by hand: it shows what is known so far and what is being done, its button ends the search, and
//! when that is over it is the report.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use seawall_testkit::browser::Browser;
use seawall_testkit::fault_server_process::{FaultServerProcess, request_live_page};
use seawall_testkit::waiting::wait_until_some;
use serde_json::Value;
use tempfile::TempDir;

/// A server of a plant.
fn planted(plant: &str) -> FaultServerProcess {
    FaultServerProcess::start(env!("CARGO_BIN_EXE_seawall"), plant).unwrap()
}

/// Any machine has the better of it for a while.
const WIDE: &str = "pool,workers=64,service=1ms";

/// Breaks at 50 a second, or lower where the machine has no time for it.
const SLOW: &str = "pool,workers=1,service=20ms";

/// A search with a page, in a directory of its own; dropping it ends it.
struct Search {
    child: Child,
    said: BufReader<ChildStderr>,
    url: String,
    place: TempDir,
}

impl Search {
    /// With words as a shell would split them.
    fn start(words: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
        command.args(words.split_whitespace()).args(["--live-page", "127.0.0.1:0"]);
        command.args(["--json", "run.json", "--html", "run.html"]).current_dir(place.path());
        command.env_remove("HTTP_PROXY").env_remove("http_proxy").stdin(Stdio::null());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let line = heard(&mut said, "page: ");
        let url = line.strip_prefix("page: ").unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, said, url, place }
    }

    /// An exchange with its page, whatever the path.
    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        request_live_page(&self.url, method, path, body).unwrap()
    }

    /// The exit code, and the files.
    fn end(mut self) -> (Option<i32>, Value, String) {
        self.said.read_to_end(&mut Vec::new()).unwrap();
        let code = self.child.wait().unwrap().code();
        let read = |name: &str| std::fs::read_to_string(self.place.path().join(name)).unwrap();
        (code, serde_json::from_str(&read("run.json")).unwrap(), read("run.html"))
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next line with these words in it.
fn heard(said: &mut impl BufRead, wanted: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended without saying {wanted:?}");
        if line.contains(wanted) {
            return line.trim_end().to_owned();
        }
    }
}

/// What an open page is told at the end.
fn last_event(heard: &str) -> Value {
    let (_, event) = heard.rsplit_once("event: end\ndata: ").unwrap_or_else(|| panic!("{heard}"));
    serde_json::from_str(event.split_once("\n\n").unwrap().0).unwrap()
}

/// What a page draws with its script is in it.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn stop_on_the_page_of_find_ends_it_with_what_a_signals_end_writes_and_the_page_has_the_report() {
    let server = planted(WIDE);
    let mut search = Search::start(&format!("find {}", server.url));
    heard(&mut search.said, "measuring the generator");
    let page = search.ask("GET", "/", "");
    assert!(page.contains("connect-src 'self'") && data(&page)["live"]["state"] == "running", "{page}");
    let refused = search.ask("POST", "/control", "rate 5/s");
    assert!(refused.starts_with("HTTP/1.1 422 ") && refused.contains("expected stop"), "{refused}");
    // On a machine without a moment to spare there may be no other trial.
    heard(&mut search.said, "baseline");
    let known = wait_until_some("a trial", || {
        let known = data(&search.ask("GET", "/", ""));
        known["tables"].as_array().filter(|tables| !tables.is_empty()).map(|_| known.clone())
    });
    assert!(known["live"]["doing"].as_str().unwrap().contains("/s"), "{}", known["live"]);
    assert!(!known["title"].as_str().unwrap().contains("INTERRUPTED"), "it goes on: {}", known["title"]);
    let saved = search.ask("GET", "/report.html", "");
    assert!(saved.contains("Saved during the run") && data(&saved)["live"].is_null());

    assert!(search.ask("POST", "/control", "stop").starts_with("HTTP/1.1 200 "));
    // Until the program ends: nobody closes it here.
    let told = last_event(&search.ask("GET", "/events", ""));
    let (code, run, html) = search.end();
    assert_eq!((&run["outcome"], &run["stop_reason"]), (&"interrupted".into(), &"signal".into()));
    assert_eq!(code, Some(8), "nobody sent a signal");
    assert_eq!((&told["live"]["state"], told["live"]["file"].as_str()), (&"over".into(), Some(&*html)));
    assert_eq!((&told["tables"], &told["title"]), (&data(&html)["tables"], &data(&html)["title"]));
    assert!(!html.contains("token=") && !html.contains("connect-src") && !html.contains("EventSource"));
}

#[test]
fn in_a_real_browser_the_page_of_find_changes_with_its_trials_and_becomes_the_report() {
    let server = planted(SLOW);
    let search = Search::start(&format!("find {} --no-cause --budget 20s", server.url));
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Browser::open(profile.path(), (1200, 1000), &search.url);
    let rows = "document.querySelectorAll('.card.wide table tr').length";
    browser.wait_for_expression("document.querySelector('.steer').textContent.startsWith('Running')");
    let count = |value: Value| value.as_u64().unwrap();
    let some = count(browser.wait_for_expression(&format!("{rows} > 1 && {rows}")));
    browser.evaluate("window.before = true");
    browser.wait_for_expression(&format!("{rows} > {some}"));
    browser.wait_for_expression("document.querySelectorAll('.plot svg').length > 3");
    assert_eq!(browser.evaluate("window.before"), true, "without being loaded again");

    browser
        .wait_for_expression("document.querySelector('.steer').textContent.startsWith('The run has ended')");
    assert_eq!(browser.evaluate("document.querySelector('.steer button').hidden"), true);
    let saved = "new Promise(done => { const real = URL.createObjectURL; \
                 URL.createObjectURL = blob => { blob.text().then(done); return real(blob); }; \
                 document.querySelectorAll('.steer button')[1].click(); })";
    let file = browser.evaluate(saved).as_str().unwrap().to_owned();
    let title = browser.evaluate("document.querySelector('h1').textContent");
    let (_, run, html) = search.end();
    assert_eq!((file == html, &title), (true, &data(&html)["title"]));
    let shown = browser.evaluate(rows).as_u64().unwrap();
    assert!(shown > run["trials"].as_array().unwrap().len() as u64, "a head, and a row for each");
}

#[test]
fn stop_on_the_page_of_isolate_ends_it_with_what_a_signals_end_writes_and_the_page_has_the_report() {
    let server = planted(WIDE);
    let mut search =
        Search::start(&format!("isolate {} --factors keep-alive --until-p99 --rate 40/s", server.url));
    let page = search.ask("GET", "/", "");
    assert!(page.contains("connect-src 'self'") && page.contains("Nothing is decided yet"), "{page}");
    assert_eq!(data(&page)["live"]["state"], "running");
    assert!(search.ask("POST", "/control", "pause").contains("expected stop"));
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Browser::open(profile.path(), (1200, 1000), &search.url);
    browser.wait_for_expression("document.querySelector('.steer').textContent.startsWith('Running')");
    heard(&mut search.said, "decided");
    browser.wait_for_expression("document.querySelector('.steer').textContent.includes(' decided')");
    browser.wait_for_expression("document.querySelectorAll('section table tr').length > 3");
    assert!(search.ask("GET", "/report.html", "").contains("Saved during the run"));

    browser.click("document.querySelector('.steer button')");
    // Until the program ends: nobody closes it here.
    let told = last_event(&search.ask("GET", "/events", ""));
    let (code, run, html) = search.end();
    assert_eq!((&run["outcome"], &run["stop_reason"]), (&"interrupted".into(), &"signal".into()));
    assert_eq!(run["stop_detail"], "stopped on request");
    assert_eq!(code, Some(8), "nobody sent a signal");
    assert_eq!((&told["live"]["state"], told["live"]["file"].as_str()), (&"over".into(), Some(&*html)));
    assert!(!html.contains("token=") && !html.contains("<script") && !html.contains("connect-src"));
    browser
        .wait_for_expression("document.querySelector('.steer').textContent.startsWith('The run has ended')");
    let texts = browser
        .evaluate("[...document.querySelectorAll('main > div > *')].map(part => part.textContent).join('')");
    assert!(texts.as_str().unwrap().contains("stopped on request"), "{texts}");
}

fn refused(words: &str, place: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(words.split_whitespace()).current_dir(place);
    let Output { status, stderr, .. } = command.stdin(Stdio::null()).output().unwrap();
    assert!(matches!(status.code(), Some(1 | 2)), "{words}");
    String::from_utf8(stderr).unwrap()
}

#[test]
fn a_page_of_what_sends_nothing_or_for_others_is_refused() {
    let place = tempfile::tempdir().unwrap();
    for (words, why) in [
        ("find http://127.0.0.1:9/ --live-page 0.0.0.0:0", "other machines can reach"),
        (
            "isolate http://127.0.0.1:9/ --factors keep-alive --live-page 0.0.0.0:0",
            "other machines can reach",
        ),
    ] {
        let said = refused(words, place.path());
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_page_of_a_run_that_has_nothing_left_to_do_is_refused() {
    let (server, place) = (planted(WIDE), tempfile::tempdir().unwrap());
    let words = format!("find {} --max-rate 5 --no-cause --json run.json", server.url);
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(words.split_whitespace()).current_dir(place.path()).stdin(Stdio::null());
    command.output().unwrap();
    let again =
        format!("find {} --max-rate 5 --no-cause --resume run.json --live-page 127.0.0.1:0", server.url);
    let said = refused(&again, place.path());
    assert!(
        said.contains("the run of --resume is complete") && said.contains("use --html to write its page"),
        "{said}"
    );
}
