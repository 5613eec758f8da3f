//! Data files whose rows fill requests: what stands in a file is what the server reads.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use seawall_testkit::closure_server::Server;
use serde_json::Value;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// Pieces of which cells are made: all that CSV, URLs, JSON and templates give a meaning.
const PIECES: [&str; 22] = [
    "a", "Z", "7", " ", ",", "\"", "\"\"", "\n", "\r\n", "\t", "é", "漢", "🦀", "\\", "/", "?", "&", "%41",
    "+", "#", "{{", "}}",
];

/// A request as the server read it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenRequest {
    path: String,
    header: String,
    body: String,
}

fn recording_server() -> (Server, Arc<Mutex<Vec<SeenRequest>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let server = Server::start(move |mut peer, _| {
        loop {
            let head = peer.read_request_head()?;
            let header = |name: &str| {
                let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
                line.unwrap_or_default().to_owned()
            };
            let body = peer.read_body(header("Content-Length").parse().unwrap_or(0))?;
            seen.lock().unwrap().push(SeenRequest {
                path: head.split(' ').nth(1).unwrap_or_default().to_owned(),
                header: header("X-Row"),
                body: String::from_utf8(body).unwrap(),
            });
            peer.send(OK.as_bytes())?;
        }
    });
    (server.unwrap(), requests)
}

fn seawall(words: &str, input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(words.split_whitespace()).env_remove("HTTP_PROXY").env_remove("http_proxy");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let fed = child.stdin.take().unwrap().write_all(input);
    assert!(fed.is_ok() || fed.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe));
    child.wait_with_output().unwrap()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// RFC 4180 section 2: quotes around the field, and twice inside.
fn quoted(cell: &str) -> String {
    format!("\"{}\"", cell.replace('"', "\"\""))
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |digit: Option<u8>| char::from(digit.unwrap()).to_digit(16).unwrap() as u8;
        bytes.push(if byte == b'%' { hex(rest.next()) << 4 | hex(rest.next()) } else { byte });
    }
    String::from_utf8(bytes).unwrap()
}

/// A thousand rows of two cells each, always the same.
fn drawn_rows() -> Vec<[String; 2]> {
    // The constants of Knuth's MMIX; any generator will do that a reader can repeat.
    let mut state = 4180_u64;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut cell = || (0..draw(9)).map(|_| PIECES[draw(PIECES.len() as u64) as usize]).collect::<String>();
    (0..1000).map(|number| [format!("{number}{}", cell()), cell()]).collect()
}

#[test]
fn a_thousand_drawn_rows_of_csv_reach_the_server_byte_for_byte() {
    let rows = drawn_rows();
    let lines = rows.iter().map(|[one, two]| format!("{},{}\r\n", quoted(one), quoted(two)));
    let csv = file(&format!("id,\"the text\"\r\n{}", lines.collect::<String>()));
    let json_lines = rows.iter().map(|row| format!("{}\n", serde_json::json!({"user": {"text": row[1]}})));
    let json_lines = file(&json_lines.collect::<String>());
    let (server, seen) = recording_server();
    let (csv, json_lines) = (csv.path().display(), json_lines.path().display());
    let body = file(&format!(
        r#"{{"id":"{{{{row {csv} id}}}}","csv":"{{{{row {csv} the text}}}}","json":"{{{{row {json_lines} /user/text}}}}"}}"#
    ));
    let targets = format!(
        "POST {}/{{{{row {csv} id}}}}?q={{{{row {csv} the text}}}}\n@{}\n",
        server.url_of_path(""),
        body.path().display()
    );
    let words = "attack --template --requests 1000 --concurrency 1 --threads 1 -output=none -live=none";
    let output = seawall(words, targets.as_bytes());
    assert!(
        output.status.code().is_some_and(|code| code != 1),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), rows.len());
    for (request, [id, text]) in seen.iter().zip(&rows) {
        let (path, query) = request.path.split_once("?q=").unwrap();
        assert_eq!((percent_decoded(path), percent_decoded(query)), (format!("/{id}"), text.clone()));
        let body: Value = serde_json::from_str(&request.body).unwrap();
        assert_eq!(body, serde_json::json!({"id": id, "csv": text, "json": text}));
    }
}

/// RFC 4180 section 2, rules 5 to 7, and the rows of the report that found them broken.
#[test]
fn quoted_fields_reach_the_server_whole_in_header_url_and_body() {
    let data = file("\"aaa\",\"b,bb\"\r\nbob,\"a, b\"\r\ncy,\"q\"\"uote\"\r\n");
    let name = data.path().display();
    let (server, seen) = recording_server();
    let body = file(&format!(r#"{{"v":"{{{{row {name} 2}}}}"}}"#));
    let targets = format!(
        "POST {}?{{{{row {name} 1}}}}\nX-Row: {{{{row {name} 2}}}}\n@{}\n",
        server.url_of_path("/"),
        body.path().display()
    );
    let words = "attack --template --requests 3 --concurrency 1 --threads 1 -output=none -live=none";
    seawall(words, targets.as_bytes());
    let seen = seen.lock().unwrap();
    let row = |path: &str, header: &str, body: &str| SeenRequest {
        path: path.to_owned(),
        header: header.to_owned(),
        body: body.to_owned(),
    };
    assert_eq!(
        *seen,
        [
            row("/?aaa", "b,bb", r#"{"v":"b,bb"}"#),
            row("/?bob", "a, b", r#"{"v":"a, b"}"#),
            row("/?cy", "q\"uote", r#"{"v":"q\"uote"}"#),
        ]
    );
}

#[test]
fn a_placeholder_that_nothing_fills_is_warned_of_once() {
    let server = Server::start_answering(OK).unwrap();
    let url = server.url_of_path("/?u={{uuid}}");
    let targets = format!("GET {0}\nGET {0}\nGET {0}\n", server.url_of_path("/?u={{uuid}}"));
    let warnings = |output: &Output| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.lines()
            .filter(|line| line.contains("the target contains \"{{\""))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for flags in ["", "-lazy"] {
        let words = format!("attack {flags} --requests 3 --concurrency 1 -output=none -live=none");
        let said = warnings(&seawall(&words, targets.as_bytes()));
        assert!(said.len() == 1 && said[0].starts_with("seawall: stdin:1: "), "{said:?}");
    }
    let filled = "attack --template --requests 3 --concurrency 1 -output=none -live=none";
    assert_eq!(warnings(&seawall(filled, targets.as_bytes())), [""; 0]);
    // The plan of a comparison is made, and then refused: nothing is sent.
    let refused = format!("isolate --a {url} --b {url} --json /does/not/exist/x");
    assert_eq!(warnings(&seawall(&refused, b"")).len(), 1);
}

/// All of them counted as one target, and answers of the second as different from those of the first.
#[test]
fn answers_to_lazy_targets_have_no_first_length_to_differ_from() {
    let server = Server::start(move |mut peer, _| {
        loop {
            let body = if peer.read_request_head()?.starts_with("GET /long") { "long" } else { "s" };
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
        }
    });
    let server = server.unwrap();
    let targets =
        format!("GET {}\nGET {}\n", server.url_of_path("/long"), server.url_of_path("/short")).repeat(5);
    let words = "attack -lazy -rate=1000 -output=none -summary=json -live=none --threads 1";
    let output = seawall(words, targets.as_bytes());
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["good"], &summary["length_mismatch"]), (&10.into(), &0.into()), "{summary}");
}
