//! `isolate` from several processes, which do what pods do.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use seawall_testkit::closure_server::{Peer, Server};
use serde_json::Value;
use tempfile::TempDir;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn seawall(words: &str, place: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.arg("isolate").args(words.split_whitespace()).current_dir(place).stdin(Stdio::null());
    command.env_remove("HTTP_PROXY").env_remove("http_proxy");
    command
}

fn run(words: &str, place: &Path) -> Output {
    seawall(words, place).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(place: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(place.join("a.json")).unwrap()).unwrap()
}

/// Answers after 20 ms, on the path /slow after twice as much, and counts requests of /b and of others.
#[expect(clippy::disallowed_methods, reason = "the time that the planted server takes")]
fn planted() -> (Server, Arc<[AtomicU64; 2]>) {
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let counted = Arc::clone(&counts);
    let play = move |mut peer: Peer, _| -> io::Result<()> {
        loop {
            let head = peer.read_request_head()?;
            counted[usize::from(head.starts_with("GET /b"))].fetch_add(1, Ordering::SeqCst);
            let takes = if head.starts_with("GET /slow") { 40 } else { 20 };
            std::thread::sleep(Duration::from_millis(takes));
            peer.send(OK)?;
        }
    };
    (Server::start(play).unwrap(), counts)
}

#[test]
fn equal_ways_are_not_told_apart_and_each_process_sends_each_equally_often() {
    let ((server, counts), room) = (planted(), TempDir::new().unwrap());
    let (a, b) = (server.url_of_path("/a"), server.url_of_path("/b"));
    let words = format!("--a {a} --b {b} --rate 60/s --budget 35s --on processes --pods 3 --json a.json");
    run(&words, room.path());
    let json = json(room.path());
    assert!(
        json["variants"][0]["verdict"] != "slower" && json["variants"][0]["verdict"] != "faster",
        "{json}"
    );
    let [a, b] = [0, 1].map(|way| counts[way].load(Ordering::SeqCst));
    // In each segment, of which there is time for three, a process may have begun a round that it did not end.
    assert!(a > 100 && a.abs_diff(b) <= 3 * 3, "{a} {b}");
}

#[test]
fn a_way_that_is_slower_is_found_by_processes_interleaved_and_in_blocks() {
    let ((server, _), room) = (planted(), TempDir::new().unwrap());
    let ways = |design: &str| {
        format!("variants:\n- {{name: slow, url: \"{}\", design: {design}}}\n", server.url_of_path("/slow"))
    };
    for design in ["interleaved", "blocks"] {
        std::fs::write(room.path().join("ways.yaml"), ways(design)).unwrap();
        let url = server.url_of_path("/");
        let words = format!(
            "{url} --experiment ways.yaml --rate 60/s --budget 60s --on processes --pods 3 --json a.json"
        );
        let output = run(&words, room.path());
        let json = json(room.path());
        // A machine that was busy all the time says so, and blames nobody.
        let word = json["variants"][0]["verdict"].as_str().unwrap();
        assert!(matches!(word, "slower" | "invalid" | "undecided"), "{word}: {}", text(&output.stderr));
        assert!(!json["time_buckets"].as_array().unwrap().is_empty(), "{json}");
    }
}

#[test]
fn a_process_that_is_killed_is_named_and_the_others_go_on_or_everything_ends() {
    for (more, outcome) in [("", None), ("--on-pod-loss abort", Some("failed"))] {
        let ((server, _), room) = (planted(), TempDir::new().unwrap());
        let (a, b) = (server.url_of_path("/a"), server.url_of_path("/b"));
        let words =
            format!("--a {a} --b {b} --rate 60/s --budget 35s --on processes --pods 3 --json a.json {more}");
        let mut child =
            seawall(&words, room.path()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("2 variants at") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
        }
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let children = std::fs::read_to_string(children).unwrap();
        let killed: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(killed).unwrap(), Signal::KILL).unwrap();
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        child.wait().unwrap();
        let (json, name) = (json(room.path()), format!("process {killed}: lost: ended by signal 9"));
        assert!(rest.contains(&name), "{rest}");
        assert!(json["generator_warnings"].to_string().contains(&name), "{json}");
        match outcome {
            Some(outcome) => assert_eq!(json["outcome"], outcome, "{json}"),
            None => assert_ne!(json["outcome"], "failed", "{json}"),
        }
    }
}

#[test]
fn what_pods_cannot_do_is_said_before_any_load_and_names_are_looked_up_by_them() {
    let ((server, counts), room) = (planted(), TempDir::new().unwrap());
    let url = server.url_of_path("/");
    for (words, part) in [
        (
            format!("{url} --factors keep-alive --capacity --on processes"),
            "--capacity does not work with --on",
        ),
        (
            format!("{url} --factors keep-alive --rate 20/s --on processes --pods 31"),
            "--rate must be at least 31/s from 31 pods",
        ),
        (
            "http://nobody.invalid/ --factors keep-alive --on processes --pods 2".to_owned(),
            "found no address for",
        ),
    ] {
        let output = run(&words, room.path());
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(part), "{words}: {said}");
    }
    assert_eq!(counts[0].load(Ordering::SeqCst), 0);
    let words = "http://nobody.invalid/ --factors name,keep-alive --on kubernetes --image x --dry-run";
    let output = run(words, room.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("kind: Job"));
}
