//! One attack, and everything that shows its figures: offered, achieved and good mean the same everywhere.
//!
//! How fast this machine is does not matter: whatever was measured, all must say it.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use seawall_load::interval::IntervalStats;
use seawall_load::interval_row::{LiveRowBuilder, RunStatus};
use seawall_testkit::closure_server::Server;
use serde_json::Value;

const HITS: u64 = 300;
const SECONDS: f64 = 3.0;

/// More is offered than three workers can send while a fifth of the requests is never answered, and of the answers one in
/// three is bad.
const ATTACK: &str = "attack -targets=targets -rate=100 -duration=3s -max-workers=3 --on-saturation=drop -timeout=300ms \
    -output=results --timeseries=intervals --live=lines --summary=json";

/// A server that is a little too slow, and tells of each request.
fn overloaded() -> (Server, Receiver<()>) {
    let (sender, asked) = channel();
    let number = Arc::new(AtomicU64::new(0));
    let server = Server::start(move |mut peer, _| {
        loop {
            peer.read_request_head()?;
            // Nobody may listen any more.
            let _ = sender.send(());
            let status = match number.fetch_add(1, Ordering::Relaxed) {
                silent if silent % 5 == 4 => return peer.wait_for_close(),
                bad if bad % 3 == 2 => "503 Busy",
                _ => "200 OK",
            };
            peer.send(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nhi").as_bytes())?;
        }
    });
    (server.unwrap(), asked)
}

/// A pipe that takes the beginning of a summary and no more until it is read: whoever writes one is done with everything
/// else, and is still there.
fn narrow() -> (std::io::PipeReader, std::io::PipeWriter, u64) {
    const PAGE: usize = 4096;
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b' '; PAGE]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    reader.read_exact(&mut [0; PAGE]).unwrap();
    let filled = rustix::io::ioctl_fionread(&reader).unwrap();
    (reader, writer, filled)
}

fn seawall(words: &str, place: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(words.split_whitespace()).current_dir(place).stdin(Stdio::null());
    command
}

fn said(words: &str, place: &Path) -> String {
    let output = seawall(words, place).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(words: &str, place: &Path) -> Value {
    serde_json::from_str(&said(words, place)).unwrap()
}

/// The figures of the only run on a page.
fn page(words: &str, place: &Path) -> Value {
    let page = said(words, place);
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let data = &page[start..page[start..].find("</script>").unwrap() + start];
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["runs"].as_array().unwrap().len(), 1);
    data["runs"][0].clone()
}

/// What a run came to, whoever says so.
#[derive(Debug, PartialEq)]
struct Figures {
    /// Hits, those that came to an end while the schedule went on, those of them that were good.
    counts: [u64; 3],
    /// What came after the schedule, and what of it was good.
    after: [u64; 2],
}

impl Figures {
    /// Of an object with rates under these names.
    fn of(told: &Value, names: [&str; 3]) -> Self {
        let per_second = names.map(|name| told[name].as_f64().unwrap());
        // A page has other names than a document.
        let late = told.get("after_schedule").unwrap_or(&told["afterSchedule"]);
        let after = ["completed", "good"].map(|name| late[name].as_u64().unwrap());
        Self { counts: per_second.map(|rate| counted(rate * SECONDS)), after }
    }
}

/// A number of requests that came out of a rate.
fn counted(number: f64) -> u64 {
    assert!((number - number.round()).abs() < 1e-6, "{number}");
    number.round() as u64
}

/// Runs the attack to where it has shown all there is to show, asks for its metrics, and lets it end. Gives the metrics, the
/// summary and the lines.
fn attacked(place: &Path, asked: &Receiver<()>) -> (String, Value, Vec<String>) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (mut reader, writer, filled) = narrow();
    let mut command = seawall(&format!("{ATTACK} -prometheus-addr={address}"), place);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    let mut running = Running(child);
    while rustix::io::ioctl_fionread(&reader).unwrap() == filled {
        assert!(running.0.try_wait().unwrap().is_none(), "it has ended without a summary");
        // Only so that nobody is kept busy by asking.
        let _ = asked.recv_timeout(Duration::from_millis(100));
    }
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let (mut metrics, mut summary, mut lines) = (String::new(), String::new(), String::new());
    stream.read_to_string(&mut metrics).unwrap();
    reader.read_to_string(&mut summary).unwrap();
    running.0.stderr.take().unwrap().read_to_string(&mut lines).unwrap();
    let lines = lines.lines().filter(|line| line.contains(" achieved ")).map(str::to_owned).collect();
    (metrics, serde_json::from_str(summary.trim_start()).unwrap(), lines)
}

/// A program that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The sum of a metric over the series whose labels hold this.
fn sum(metrics: &str, name: &str, label: &str) -> u64 {
    let lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// The number that follows a word of a line.
fn after(line: &str, word: &str) -> f64 {
    let rest = line.split_once(&format!("{word} ")).unwrap().1;
    let digits = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap();
    digits.parse().unwrap()
}

/// What the summary says, with what must be found again elsewhere.
struct Said {
    figures: Figures,
    /// Good answers, those after the schedule included.
    good: u64,
    /// Answers with 200 and with 503, and hits without any.
    codes: [u64; 3],
}

impl Said {
    fn of(summary: &Value) -> Self {
        let of_status = |status: &str| summary["status_codes"][status].as_u64().unwrap_or(0);
        let failures = summary["failures"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        Self {
            figures: Figures::of(summary, ["offered_rate", "achieved_rate", "goodput"]),
            good: summary["good"].as_u64().unwrap(),
            codes: [of_status("200"), of_status("503"), failures],
        }
    }

    /// There is something to be told apart, and it adds up.
    fn holds_together(&self) {
        let Figures { counts: [offered, achieved, good], after: [_, late_good] } = self.figures;
        assert!(offered == HITS && offered > achieved && achieved > good && good > 0, "{:?}", self.figures);
        assert_eq!((good + late_good, self.codes[0]), (self.good, self.good));
        assert_eq!(self.codes.iter().sum::<u64>(), HITS, "all hits came to an end");
    }

    fn is_in_metrics(&self, metrics: &str) {
        let answers = |status: &str| sum(metrics, "request_seconds_count", &format!("status=\"{status}\""));
        let [good, bad, failures] = self.codes;
        assert_eq!((answers("200"), answers("503")), (good, bad), "{metrics}");
        assert_eq!(sum(metrics, "request_fail_count", "status=\"0\""), failures, "{metrics}");
        let no_connection = sum(metrics, "request_fail_count", "message=\"no-connection\"");
        let ended = self.figures.counts[1] + self.figures.after[0];
        assert_eq!(good + bad + answers("0") - no_connection, ended, "{metrics}");
    }

    fn is_in_reports(&self, place: &Path) {
        let [good, bad, failures] = self.codes;
        let report = json("report -type=json results", place);
        assert_eq!((&report["requests"], &report["status_codes"]["0"]), (&HITS.into(), &failures.into()));
        assert_eq!(counted(report["success"].as_f64().unwrap() * HITS as f64), self.good);
        let report = said("report -type=text results", place);
        let codes = format!("0:{failures}  200:{good}  503:{bad}");
        assert!(report.contains(&codes) && report.contains(&format!(" {HITS}, ")), "{report}");
        let report = said("report -type=summary results", place);
        for (word, count) in ["offered ", "achieved ", "good "].into_iter().zip(self.figures.counts) {
            let line = report.lines().find(|line| line.trim_start().starts_with(word)).unwrap();
            assert!(line.contains(&format!(" {:.2}/s ", count as f64 / SECONDS)), "{line}");
        }
        let report = json("report -type=json intervals", place);
        assert_eq!(Figures::of(&report, ["offered_rate", "achieved_rate", "goodput"]), self.figures);
    }

    fn is_in_pages(&self, place: &Path) {
        for words in ["plot results", "report -type=html results", "report -type=html intervals"] {
            let run = page(words, place);
            let figures = Figures::of(&run["figures"], ["offered", "achieved", "good"]);
            assert_eq!((&figures, &run["figures"]["requests"]), (&self.figures, &HITS.into()), "{words}");
            let [good, bad, failures] = self.codes;
            assert_eq!(run["codes"], serde_json::json!([[0, failures], [200, good], [503, bad]]), "{words}");
        }
    }
}

/// Every line of the live view is a second of the intervals.
fn is_in_lines(lines: &[String], place: &Path) {
    let mut meter = LiveRowBuilder::default();
    let intervals = std::fs::read_to_string(place.join("intervals")).unwrap();
    let intervals = intervals.lines().filter_map(|line| serde_json::from_str::<IntervalStats>(line).ok());
    let rows: Vec<_> = intervals
        .filter_map(|interval| meter.add_interval(&interval, RunStatus::default(), |_| None))
        .collect();
    assert!(!rows.is_empty() && lines.len() == rows.len(), "{lines:?}");
    for (line, row) in lines.iter().zip(&rows) {
        let shown = [after(line, "achieved"), after(line, "good")];
        assert!(
            (shown[0] - row.achieved_rate).abs() <= 0.5 && (shown[1] - row.goodput).abs() <= 0.5,
            "{line}"
        );
        assert_eq!(after(line, "errors"), row.total_failed() as f64, "{line}");
    }
    for line in lines {
        assert_eq!(after(line, "offered"), HITS as f64 / SECONDS, "{line}");
    }
}

#[test]
fn offered_achieved_and_good_are_one_thing_wherever_they_are_shown() {
    let place = tempfile::tempdir().unwrap();
    let (server, asked) = overloaded();
    std::fs::write(place.path().join("targets"), format!("GET {}\n", server.url_of_path("/"))).unwrap();
    let (metrics, summary, lines) = attacked(place.path(), &asked);
    let said = Said::of(&summary);
    said.holds_together();
    said.is_in_metrics(&metrics);
    said.is_in_reports(place.path());
    said.is_in_pages(place.path());
    is_in_lines(&lines, place.path());
}
