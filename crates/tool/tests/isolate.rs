//! `isolate` as it is typed: what is refused before any load, and an experiment on a server of which one path is slower.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use seawall_testkit::closure_server::{Peer, Server};
use serde_json::Value;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// Runs the tool in a directory, with words as a shell would split them.
fn seawall(words: &str, place: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(words.split_whitespace()).current_dir(place);
    command.env_remove("HTTP_PROXY").env_remove("http_proxy").stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_cannot_be_compared_is_named_before_any_load() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let play = move |mut peer: Peer, _| -> io::Result<()> {
        loop {
            peer.read_request_head()?;
            counted.fetch_add(1, Ordering::SeqCst);
            peer.send(OK)?;
        }
    };
    let server = Server::start(play).unwrap();
    let url = server.url_of_path("/");
    let room = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(room.path().join(name), text).unwrap();
    let fifo = room.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    file("empty.yaml", "variants: []\n");
    file(
        "bad.yaml",
        "variants:\n- {name: a, address: nowhere}\n- {name: b, connections: 2, design: interleaved}\n",
    );
    file(
        "tls.yaml",
        "variants:\n- {name: a, insecure: true}\n- {name: b, server-name: x}\n- {name: c, proxy: none}\n",
    );
    file("same.yaml", "variants:\n- {name: reference, keep-alive: false}\n");
    file("body.yaml", "variants:\n- {name: x, body: 10}\n");
    for (words, parts) in [
        (url.clone(), &["nothing to compare"][..]),
        (format!("{url} --experiment none.yaml"), &["cannot read none.yaml"]),
        // The one has no end, the other nobody writes to.
        (format!("{url} --experiment /dev/zero"), &["cannot read /dev/zero: is a device"]),
        (format!("{url} --experiment fifo"), &["cannot read fifo: is a FIFO"]),
        (
            format!("{url} --experiment empty.yaml"),
            &["empty.yaml", "variants: found [], expected from 1 to 30 variants"],
        ),
        (format!("{url} --experiment bad.yaml"), &["variants[0].address", "variants[1].design"]),
        (format!("{url} --experiment same.yaml"), &["variants[0].name: found \"reference\""]),
        (format!("{url} --experiment body.yaml"), &["x: body: a GET request has no body"]),
        (
            format!("{url} --factors proxy=http://nobody.invalid"),
            &["found no address for the proxy nobody.invalid:80"],
        ),
        (
            format!("{url} --factors connect-to=nobody.invalid:80"),
            &["found no address for nobody.invalid:80"],
        ),
        (format!("{url} --factors connect-to=127.0.0.1:1"), &["cannot reach", "no load was sent"]),
        (
            format!("{url} --factors name,body=1"),
            &["--factors name: 127.0.0.1 is an address", "--factors body=1: a GET request has no body"],
        ),
        (
            format!("{url} --factors keep-alive --budget 5s -timeout=0"),
            &["--budget must be at least 25s", "-timeout=0"],
        ),
        (format!("{url} --a {url} --b {url}"), &["give either --a and --b, or a URL or -targets"]),
        (format!("--a {url} --b {url} --factors keep-alive"), &["give either --a and --b, or --factors"]),
        (format!("{url} --factors keep-alive --json x --html x"), &["two different files"]),
        (format!("{url} --factors keep-alive --json x --html ./x"), &["two different files"]),
        (
            format!("{url} --factors keep-alive --slo errors<1% --max-rate 900/s"),
            &["--slo needs --capacity", "--max-rate needs --capacity"],
        ),
        (
            format!("{url} --factors keep-alive --capacity --slo mean<1s --max-rate 100/s --budget 60s"),
            &[
                "--budget must be at least 75s with --capacity",
                "--max-rate must be at least --rate",
                "--slo: ",
            ],
        ),
        (format!("{url} --factors proxy=none"), &["around the proxy: the reference uses no proxy"]),
        (
            format!("{url} --experiment tls.yaml"),
            &[
                "a: insecure needs an https:// URL",
                "b: server-name needs an https:// URL",
                "c: the reference uses no proxy",
            ],
        ),
    ] {
        let output = seawall(&format!("isolate {words}"), room.path());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}: {said}");
        parts.iter().for_each(|part| assert!(said.contains(part), "{words}: {part}: {said}"));
    }
    assert!(asked.load(Ordering::SeqCst) <= 2, "one request tries a way, and that is all");
    for value in [
        "--margin 1%",
        "--factors nane",
        "--factors connections=0",
        "--factors source=x",
        "--factors proxy=ftp://x",
    ] {
        let output = seawall(&format!("isolate {url} {value}"), room.path());
        assert_eq!(output.status.code(), Some(2), "{value}: {}", text(&output.stderr));
    }
}

/// It waited for targets on standard input, which here never comes to its end.
#[test]
fn an_experiment_whose_ways_all_have_a_url_needs_no_targets() {
    let room = tempfile::tempdir().unwrap();
    let ways =
        "reference: {url: 'http://127.0.0.1:1/a'}\nvariants:\n- {name: b, url: 'http://127.0.0.1:1/b'}\n";
    std::fs::write(room.path().join("ways.yaml"), ways).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(["isolate", "--experiment", "ways.yaml"]).current_dir(room.path());
    let (reader, writer) = io::pipe().unwrap();
    let output = command.stdin(reader).output().unwrap();
    drop(writer);
    let said = text(&output.stderr);
    assert!(said.contains("cannot reach http://127.0.0.1:1/a") && said.contains("/b"), "{said}");
}

/// Refusals are quick: a way that answers nothing else looked like none that fails, and what it answered was not told.
#[test]
fn a_way_that_only_fails_is_told_with_what_it_answered_and_is_never_a_fast_one() {
    let play = |mut peer: Peer, _| -> io::Result<()> {
        let mut answered = 0;
        loop {
            let is_bad = peer.read_request_head()?.starts_with("GET /bad");
            answered += 1;
            // Every tenth is lost with its connection, and sent again.
            if is_bad && answered % 10 == 0 {
                return Ok(());
            }
            peer.send(if is_bad { b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n" } else { OK })?;
        }
    };
    let server = Server::start(play).unwrap();
    let room = tempfile::tempdir().unwrap();
    let (a, bad) = (server.url_of_path("/"), server.url_of_path("/bad"));
    let words = format!("isolate --a {a} --b {bad} --rate 100/s --budget 30s --json a.json --html a.html");
    let screen = text(&seawall(&words, room.path()).stdout);
    let json: Value = serde_json::from_slice(&std::fs::read(room.path().join("a.json")).unwrap()).unwrap();
    let page = std::fs::read_to_string(room.path().join("a.html")).unwrap();
    let way = &json["variants"][0];
    assert_eq!(
        (way["verdict"].as_str(), &way["time_saved_ratio"]),
        (Some("more-errors"), &Value::Null),
        "{screen}"
    );
    assert_eq!((&way["failures"][0]["reason"], &way["responses"]), (&"503".into(), &0.into()));
    assert!(way["failures"][0]["count"].as_u64() >= way["requests"].as_u64());
    assert!(screen.starts_with("b: the share of failed requests is higher by 100 %\n"), "{screen}");
    assert!(way["retried"].as_u64() > Some(0) && json["reference"]["retried"] == 0, "{way}");
    assert!(
        screen.contains("retried after a closed connection (") && page.contains("<td>retried after"),
        "{screen}"
    );
    assert!(screen.contains("Failed requests\n  b  all requests: 503 ("), "{screen}");
    assert!(page.contains("<h2>Failed requests</h2>") && page.contains("<line class=\"bar bad\""), "{page}");
}

/// Answers after 20 ms, on the path /slow after half as much again.
#[expect(clippy::disallowed_methods, reason = "the time that the planted server takes")]
fn planted() -> Server {
    let play = |mut peer: Peer, _| -> io::Result<()> {
        loop {
            let takes = if peer.read_request_head()?.starts_with("GET /slow") { 30 } else { 20 };
            std::thread::sleep(Duration::from_millis(takes));
            peer.send(OK)?;
        }
    };
    Server::start(play).unwrap()
}

#[test]
fn the_second_of_two_builds_is_told_to_be_slower_in_words_json_and_exit_code() {
    let server = planted();
    let room = tempfile::tempdir().unwrap();
    let (a, b) = (server.url_of_path("/"), server.url_of_path("/slow"));
    let words = format!("isolate --a {a} --b {b} --rate 100/s --budget 60s --json a.json --html a.html");
    let output = seawall(&words, room.path());
    let json: Value = serde_json::from_slice(&std::fs::read(room.path().join("a.json")).unwrap()).unwrap();
    let page = std::fs::read_to_string(room.path().join("a.html")).unwrap();
    let screen = text(&output.stdout);
    assert!(
        page.contains("<svg") && page.contains("</html>") && !page.contains("<script"),
        "a page without a script"
    );
    assert_eq!((&json["kind"], &json["version"]), (&"isolate".into(), &1.into()));
    assert_eq!(json["variants"][0]["name"], "b");
    let cells = json["time_buckets"].as_array().unwrap().len();
    assert!(cells >= 20 && screen.contains("99th percentile"), "{cells} rows; {screen}");
    // A machine that was busy all the time says so, and blames nobody.
    if json["outcome"] == "decided" {
        assert_eq!(
            (output.status.code(), json["variants"][0]["verdict"].as_str()),
            (Some(3), Some("slower"))
        );
        assert!(screen.starts_with("b: slower by "), "{screen}");
    } else {
        assert!(matches!(output.status.code(), Some(4 | 8)), "{screen}");
        assert!(!screen.contains("faster by"), "{screen}");
    }
}
