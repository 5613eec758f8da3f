//! The first command that someone types who knows another tool: the examples of vegeta's, oha's, hey's and ab's own documents with the
//! program's name replaced, with counts and durations scaled down. Each either does what it does there or names the right spelling.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use seawall_testkit::closure_server::Server;
use serde_json::Value;

/// A request as a server sees it.
#[derive(Debug, Clone)]
struct Seen {
    head: String,
    body: String,
    connection: usize,
}

/// A server that answers everything, and what it was asked.
struct Witness {
    server: Server,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Witness {
    fn start() -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        let server = Server::start(move |mut peer, connection| {
            loop {
                let head = peer.read_request_head()?;
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                let body = peer.read_body(length.map_or(0, |length| length.trim().parse().unwrap()))?;
                let body = String::from_utf8(body).unwrap();
                let has_body = !head.starts_with("HEAD ");
                kept.lock().unwrap().push(Seen { head, body, connection });
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
                    if has_body { "hi" } else { "" }
                );
                peer.send(answer.as_bytes())?;
            }
        });
        Self { server: server.unwrap(), seen }
    }

    fn address(&self) -> String {
        self.server.address().to_string()
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// Runs a line of shell in which `seawall` is the program under test, in a directory of its own.
fn shell(line: &str, input: &[u8], directory: &std::path::Path) -> Output {
    let program = env!("CARGO_BIN_EXE_seawall");
    let mut child = Command::new("sh")
        .args(["-c", &format!("seawall() {{ {program} \"$@\"; }}\n{line}")])
        .current_dir(directory)
        .env_remove("HTTP_PROXY")
        .env_remove("http_proxy")
        .env_remove("CI")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What became of a line in which `URL` is the server's URL and `HOST` its address.
fn typed(line: &str) -> (Output, Vec<Seen>) {
    let (witness, directory) = (Witness::start(), tempfile::tempdir().unwrap());
    std::fs::write(directory.path().join("file.txt"), "from a file").unwrap();
    let line = line.replace("URL", &witness.server.url_of_path("/")).replace("HOST", &witness.address());
    let output = shell(&line, b"", directory.path());
    (output, witness.seen())
}

/// The requests of a command that is to succeed.
fn sent(line: &str) -> Vec<Seen> {
    let (output, seen) = typed(line);
    // 4: this machine was too busy to judge the target, and has sent everything all the same.
    assert!(
        matches!(output.status.code(), Some(0 | 4)),
        "{line}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    seen
}

/// What is said of a command that is refused.
fn refused(line: &str) -> String {
    let (output, seen) = typed(line);
    assert_eq!((output.status.code(), seen.len()), (Some(2), 0), "{line}: {}", text(&output.stderr));
    text(&output.stderr)
}

fn starts(seen: &[Seen], start: &str) -> bool {
    !seen.is_empty() && seen.iter().all(|seen| seen.head.starts_with(start))
}

/// tsenart/vegeta, README.md: usage manual, and attack's json format.
#[test]
fn vegetas_examples_do_what_they_do_there() {
    let first = "echo 'GET URL' | seawall attack -duration=200ms | tee results.bin | seawall report";
    let seen = sent(&format!(
        "{first} | grep 'Requests  ' && seawall report -type=json results.bin > metrics.json && cat results.bin | seawall plot > \
         plot.html && cat results.bin | seawall report -type=\"hist[0,100ms,200ms,300ms]\" | grep Bucket && test -s \
         metrics.json && test -s plot.html"
    ));
    assert!(starts(&seen, "GET / ") && seen.len() == 10, "{} of 50/s for 200 ms", seen.len());
    let (output, seen) = typed(
        "printf '{\"method\":\"GET\",\"url\":\"URL\",\"body\":\"UHVuY2gh\",\"header\":{\"Content-Type\":[\"text/plain\"]}}\\n' | seawall \
         attack -format=json -rate=100 -duration=50ms | seawall encode",
    );
    let records = text(&output.stdout);
    let first: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    assert_eq!((&first["code"], records.lines().count()), (&200.into(), 5));
    assert!(
        seen.iter()
            .all(|seen| seen.body == "Punch!" && seen.head.contains("\r\nContent-Type: text/plain\r\n"))
    );
}

/// hatoo/oha, README.md: usage, comparison, tips, burst feature, dynamic URL feature.
#[test]
fn ohas_examples_do_what_they_do_there_or_name_the_spelling() {
    let seen = sent("seawall attack --no-tui -n 20 URL");
    assert!(starts(&seen, "GET / ") && seen.len() == 20, "{}", seen.len());
    let seen = sent("seawall attack -n 5 -c 2 -q 100 --latency-correction --disable-keepalive URL");
    assert_eq!(seen.len(), 5);
    let connections: BTreeSet<_> = seen.iter().map(|seen| seen.connection).collect();
    assert_eq!(connections.len(), 5, "{seen:?}");
    let seen = sent("seawall attack -n 4 -c 2 -m PUT -d '{\"a\":1}' -H 'foo: bar' -T application/json URL");
    assert!(starts(&seen, "PUT / ") && seen.len() == 4, "{seen:?}");
    let head = "\r\nContent-Type: application/json\r\n";
    assert!(seen.iter().all(|seen| seen.body == "{\"a\":1}"
        && seen.head.contains("\r\nfoo: bar\r\n")
        && seen.head.contains(head)));
    let seen = sent("seawall attack -n 10 --burst-delay 50ms --burst-rate 4 URL");
    assert_eq!(seen.len(), 10);
    assert!(refused("seawall attack --rand-regex-url 'URL[a-z][a-z][0-9]'").contains("--template"));
}

/// rakyll/hey, README.md: the examples in its usage.
#[test]
fn heys_examples_do_what_they_do_there_or_name_the_spelling() {
    assert_eq!(sent("seawall attack -n 200 -c 50 URL").len(), 200);
    let seen = sent("seawall attack -z 100ms -c 2 URL");
    assert!(starts(&seen, "GET / "));
    let seen = sent(
        "seawall attack -n 5 -H 'Accept: text/html' -H 'Content-Type: application/xml' -m POST -D ./file.txt URL",
    );
    assert!(starts(&seen, "POST / ") && seen.len() == 5);
    assert!(
        seen.iter().all(|seen| seen.body == "from a file" && seen.head.contains("\r\nAccept: text/html\r\n"))
    );
    let seen =
        sent("seawall attack -n 6 -c 1 -disable-keepalive -disable-compression -disable-redirects URL");
    assert_eq!(seen.last().unwrap().connection, 5);
    let said = refused("seawall attack -n 6 -t 20 URL");
    assert!(said.contains("--timeout 20s"), "{said}");
    assert!(refused("seawall attack -n 6 -o csv URL").contains("--to csv"));
}

/// ab's manual has a synopsis alone: the commands that its users type.
#[test]
fn abs_commands_do_what_they_do_there_or_name_the_spelling() {
    assert_eq!(sent("seawall attack -n 100 -c 10 URL").len(), 100);
    let seen = sent("seawall attack -k -n 10 -c 1 URL");
    assert_eq!((seen.len(), seen.last().unwrap().connection), (10, 0));
    let seen = sent("seawall attack -p file.txt -T text/plain -n 10 -c 2 URL");
    assert!(starts(&seen, "POST / ") && seen.iter().all(|seen| seen.body == "from a file"));
    let seen = sent("seawall attack -H 'Accept-Encoding: gzip' -n 10 -c 2 HOST/");
    assert!(seen.iter().all(|seen| seen.head.contains("\r\nAccept-Encoding: gzip\r\n")) && seen.len() == 10);
    assert!(refused("seawall attack -t 10 -c 5 URL").contains("-z 10s"));
}

/// `wrk -d30s` would have sent the body "30s".
#[test]
fn options_of_wrk_and_k6_are_never_taken_for_something_else() {
    for (line, said) in [
        ("seawall attack -t12 -c400 -d30s URL", "write -z 30s"),
        ("seawall attack -c400 -d30s URL", "write -z 30s"),
        ("seawall attack -t2 -c4 URL", "wrk's is --threads"),
        ("seawall attack -c400 -T5s URL", "--timeout 5s"),
        ("seawall attack -c400 -s post.lua URL", "wrk's -s SCRIPT"),
        ("seawall attack --vus 10 --duration 30s URL", "--concurrency N (-c N)"),
        ("seawall attack --iterations 100 URL", "--requests N (-n N)"),
        ("seawall attack -u 10 -i 100 URL", "k6's -u N is -c N"),
        ("seawall attack -n 1 -o json=a.json URL", "--to json"),
        ("seawall find -d 30s URL", "write -z 30s"),
        ("seawall attack -t12 -c400 -d30s URL", "The whole line: seawall attack -c 400 -z 30s http://"),
        ("seawall attack run script.js", "seawall attack URL"),
        ("seawall attack run -", "seawall attack URL"),
        ("seawall attack run --vus 10 --duration 30s script.js", "seawall attack -c 10 -z 30s URL"),
        ("seawall run script.js", "seawall attack URL"),
        ("seawall run --vus 10 --duration 30s script.js", "seawall attack -c 10 -z 30s URL"),
        ("seawall -t12 -c400 -d30s URL", "Write: seawall attack -c 400 -z 30s http://"),
        ("seawall -n 1 URL", "Write: seawall attack -n 1 http://"),
        ("seawall -z 10s URL", "Write: seawall attack -z 10s http://"),
        ("seawall --no-tui -n 20 URL", "Write: seawall attack --no-tui -n 20 http://"),
        ("seawall -H 'Accept: text/html' URL", "Write: seawall attack -H 'Accept: text/html' http://"),
        ("seawall -t 10 -c 5 URL", "ab's is -z (-z 10s)"),
        ("seawall -t 10 -c 5 URL", "Write: seawall attack -t 10 -c 5 http://"),
        ("seawall URL", "Write: seawall attack http://"),
    ] {
        let told = refused(line);
        assert!(told.contains(said), "{line}: {told}");
    }
    let (output, seen) = typed("seawall attack -n 1 --connections 400 URL");
    assert_eq!((output.status.code(), seen.len()), (Some(1), 0));
    assert!(text(&output.stderr).contains("-c N"), "{}", text(&output.stderr));
}

/// `compare` was said to be close to `completions`.
#[test]
fn a_comparison_of_two_runs_is_a_flag_of_find() {
    let told = refused("seawall compare before.json after.json");
    assert!(told.contains("seawall find --compare BEFORE.json AFTER.json"), "{told}");
}

/// The same flags are another load in hey and in ab.
#[test]
fn a_flag_that_another_tool_reads_otherwise_is_noted_on_standard_error() {
    let (output, seen) = typed("seawall attack -n 4 -c 2 -q 100 --live none URL");
    assert_eq!(seen.len(), 4);
    let said = text(&output.stderr);
    assert!(said.contains("note: -q 100 is the rate of all 2 clients") && said.contains("-q 200"), "{said}");
    let (output, _) = typed("seawall attack -n 4 -c 2 --rate 100 --live none URL");
    assert!(!text(&output.stderr).contains("note:"), "{}", text(&output.stderr));
}

#[test]
fn a_url_gets_a_summary_on_standard_output_and_records_only_where_they_are_asked_for() {
    let (output, _) = typed("seawall attack -n 3 -c 1 --live none HOST");
    let shown = text(&output.stdout);
    assert!(shown.starts_with("Load          [what was sent]"), "{shown}");
    assert!(shown.contains("closed loop of 1, 3 requests") && shown.contains("200:3"), "{shown}");
    let (output, seen) = typed("seawall attack -n 3 --output - URL | seawall report");
    assert!(text(&output.stdout).contains("200:3") && seen.len() == 3, "{output:?}");
    let (output, _) = typed("seawall attack -n 3 -o a.gob URL > /dev/null && seawall report a.gob");
    assert!(text(&output.stdout).contains("200:3"), "{output:?}");
}

/// It said that the encoding is unknown.
#[test]
fn a_report_of_a_summary_names_the_flag_that_is_missing() {
    let (output, _) = typed("seawall attack -n 3 --live none URL | seawall report");
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("add --output - to the attack"), "{}", text(&output.stderr));
}

/// Two of several URLs, with a rate of their own; the other half of a rule that hey has: the run ends at the first bound.
#[test]
fn several_urls_take_turns_and_the_first_bound_ends_the_run() {
    let seen = sent("seawall attack -q 100 -n 4 -z 10s HOST/a HOST/b");
    let paths: Vec<_> = seen.iter().map(|seen| seen.head.split(' ').nth(1).unwrap().to_owned()).collect();
    assert_eq!((seen.len(), paths.iter().filter(|path| *path == "/a").count()), (4, 2));
    let seen = sent("seawall attack --rps 100 -n 10000000 -z 50ms URL");
    assert!((1..=5).contains(&seen.len()), "{}", seen.len());
}

#[test]
fn a_run_without_a_bound_is_told_before_it_begins() {
    let witness = Witness::start();
    let mut child = Command::new(env!("CARGO_BIN_EXE_seawall"))
        .args(["attack", &witness.address()])
        .env_remove("http_proxy")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let said = format!("seawall: GET http://{}, open loop at 50/s, for 10", witness.address());
    assert!(line.starts_with(&said) && line.contains("defaults"), "{line}");
}

#[test]
fn what_is_awaited_and_what_is_no_url_is_said() {
    let (output, _) = typed("seawall attack file.txt -n 1");
    assert!(text(&output.stderr).contains("write --targets file.txt"), "{}", text(&output.stderr));
    let (output, _) = typed("echo '{\"method\":\"GET\",\"url\":\"URL\"}' | seawall attack -duration=1s");
    assert!(text(&output.stderr).contains("JSON targets need --format json"), "{}", text(&output.stderr));
}

#[test]
fn errors_name_the_fact_and_the_next_step() {
    let plain = Server::start(|mut peer, _| {
        peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")?;
        peer.wait_for_close()
    });
    let plain = plain.unwrap();
    let (output, _) = typed(&format!("seawall attack -n 1 -c 1 https://{}/", plain.address()));
    let told = text(&output.stdout);
    assert!(told.contains("the server answered without TLS; try http://"), "{told}");
    for (line, said) in [
        ("seawall attack -n 1 -c 1 --h2c URL", "the server answered in HTTP/1; leave out --h2c"),
        ("seawall attack -n 1 -c 1 --unix-socket ./none URL", "there is no socket at ./none"),
        ("seawall attack -n 1 -c 1 --unix-socket ./none URL", "no Unix socket at the path of --unix-socket"),
        ("seawall attack -n 1 http://", "http://"),
    ] {
        let (output, _) = typed(line);
        let told = text(&output.stdout) + &text(&output.stderr);
        assert!(told.contains(said), "{line}: {told}");
    }
}

#[test]
fn help_has_topics_and_completions_for_three_shells() {
    let shown = |line: &str| text(&typed(line).0.stdout);
    let listed = shown("seawall help");
    for topic in ["targets", "stages", "json", "exit-codes", "vegeta", "steering", "kubernetes", "templates"]
    {
        assert!(listed.contains(&format!("  {topic} ")), "{topic}");
        assert!(!shown(&format!("seawall help {topic}")).is_empty(), "{topic}");
    }
    assert!(shown("seawall help attack").contains("\nLoad:\n"));
    assert!(shown("seawall help emulate server").contains("--fault"));
    assert_eq!(typed("seawall help nonsense").0.status.code(), Some(1));
    let bash = "seawall completions bash > c && bash -c '. ./c; COMP_WORDS=(seawall attack --conc); COMP_CWORD=2; _seawall; echo \
                \"$COMPREPLY\"; COMP_WORDS=(seawall help exi); _seawall; echo \"$COMPREPLY\"'";
    assert_eq!(shown(bash), "--concurrency\nexit-codes\n");
    for shell in ["bash", "zsh", "fish"] {
        assert!(shown(&format!("seawall completions {shell}")).contains("concurrency"), "{shell}");
    }
}
