//! An attack as a person and a scraper see it while it runs: the view on a real terminal, lines in a pipe, metrics.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use seawall_testkit::closure_server::Server;
use seawall_testkit::waiting::wait_until_true;

/// A server that answers, and says so each time.
fn answering() -> (Server, Receiver<()>) {
    let (sender, answered) = channel();
    let server = Server::start(move |mut peer, _| {
        loop {
            peer.read_request_head()?;
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
            // Not every test asks.
            let _ = sender.send(());
        }
    });
    (server.unwrap(), answered)
}

/// A target file of this test alone.
fn targets(test: &str, server: &Server) -> String {
    let file = format!("{}/{test}.targets", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&file, format!("GET {}\n", server.url_of_path("/token"))).unwrap();
    file
}

/// As a person types it: in a pipeline of a build server there is no full-screen view.
fn attack(targets: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(["attack", "-output", "none", "-targets", targets]).args(flags);
    command.env("TERM", "xterm").env_remove("CI");
    command
}

#[test]
fn a_pipe_gets_a_line_per_second() {
    let (server, _) = answering();
    let flags = ["-rate", "100", "-duration", "10s", "--requests", "150", "--summary", "none"];
    let done = attack(&targets("line", &server), &flags).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    let lines: Vec<_> = said.lines().filter(|line| line.contains(" offered ")).collect();
    assert!(!lines.is_empty(), "{said}");
    for line in lines {
        assert!(line.starts_with("0:0") && line.contains("/0:10 offered 100/s achieved "), "{line}");
        assert!(line.contains(" lag p99 ") && line.ends_with(", no errors"), "{line}");
    }
}

/// A program that reads the summary from standard error would stumble over anything else there.
#[test]
fn nothing_but_the_summary_is_said_where_a_program_reads_it_and_nothing_at_all_when_told_so() {
    let (server, _) = answering();
    let flags = ["-output", "stdout", "-rate", "100", "--requests", "150", "--summary", "json"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(["attack", "-targets", &targets("json", &server)]).args(flags);
    let done = command.output().unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&done.stderr).unwrap();
    assert_eq!(summary["sent"], 150);

    let flags = ["-rate", "100", "--requests", "150", "--summary", "none", "--live", "none"];
    let done = attack(&targets("quiet", &server), &flags).output().unwrap();
    assert!(!String::from_utf8_lossy(&done.stderr).contains(" offered "), "{done:?}");
}

/// Nobody reads standard error: the attack must neither wait for it nor lose its end.
#[test]
fn a_full_pipe_does_not_hold_the_attack_up() {
    let (server, answered) = answering();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let flags = ["-rate", "100", "--requests", "200", "--summary", "json", "--live", "lines"];
    let mut child =
        attack(&targets("full", &server), &flags).stdout(Stdio::piped()).stderr(writer).spawn().unwrap();
    // All requests are answered while the pipe is full; what is left is to say so.
    (0..200).for_each(|_| answered.recv().unwrap());
    let drained = std::thread::spawn(move || reader.read_to_end(&mut Vec::new()).unwrap());
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    child.wait().unwrap();
    drained.join().unwrap();
    let summary: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&summary["sent"], &summary["good"]), (&200.into(), &200.into()));
}

fn scrape(address: SocketAddr, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /any/path HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The value of the first line that starts so.
fn value(scraped: &str, start: &str) -> Option<u64> {
    scraped.lines().find(|line| line.starts_with(start))?.rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_scraper_sees_a_running_attack() {
    let (server, answered) = answering();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let flags = ["-rate", "200", "--live", "none", "-prometheus-addr", &address.to_string()];
    let child = Running(attack(&targets("scrape", &server), &flags).stdout(Stdio::null()).spawn().unwrap());
    let url = server.url_of_path("/token");
    let labels = format!("{{method=\"GET\",url=\"{url}\",status=\"200\"}}");
    let scraped = loop {
        answered.recv().unwrap();
        let scraped = scrape(address, "*/*");
        if value(&scraped, &format!("request_seconds_count{labels}")).is_some() {
            break scraped;
        }
    };
    let count = value(&scraped, &format!("request_seconds_count{labels}")).unwrap();
    assert_eq!(value(&scraped, &format!("request_bytes_in{labels}")), Some(2 * count), "{scraped}");
    assert_eq!(value(&scraped, &format!("request_bytes_out{labels}")), Some(0));
    assert!(!scraped.contains("request_fail_count{"), "{scraped}");
    let open = scrape(address, "application/openmetrics-text; version=1.0.0");
    assert!(
        open.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0; ")
            && open.ends_with("# EOF\n")
    );
    drop(child);
}

/// A program that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A terminal with a person in front of it.
struct Desk {
    person: File,
    tty: File,
    glass: Vec<Vec<char>>,
    cursor: (usize, usize),
    unread: Vec<u8>,
}

const WIDTH: u16 = 80;
const HEIGHT: u16 = 24;

impl Desk {
    fn new() -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let tty = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        tcsetwinsize(&tty, Winsize { ws_row: HEIGHT, ws_col: WIDTH, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let glass = vec![vec![' '; usize::from(WIDTH)]; usize::from(HEIGHT)];
        Self { person: person.into(), tty: tty.into(), glass, cursor: (0, 0), unread: Vec::new() }
    }

    /// Starts an attack that this terminal controls, which is what `setsid --ctty` is for.
    fn attack(&self, targets: &str, flags: &[&str]) -> Running {
        let tty = || Stdio::from(self.tty.try_clone().unwrap());
        let attack = attack(targets, flags);
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait"])
            .arg(attack.get_program())
            .args(attack.get_args())
            .env("TERM", "xterm")
            .env_remove("CI");
        Running(command.stdin(tty()).stdout(tty()).stderr(tty()).spawn().unwrap())
    }

    fn press(&mut self, keys: &str) {
        self.person.write_all(keys.as_bytes()).unwrap();
    }

    /// Looks at the glass until a text is on it. A glass that stays still for long will never show it.
    fn wait_for(&mut self, text: &str) {
        wait_until_true(text, || self.lines().contains(text) || self.look(text));
    }

    /// Shows the next bytes, and says whether the text is there then.
    fn look(&mut self, text: &str) -> bool {
        let mut ready = [PollFd::new(&self.person, PollFlags::IN)];
        let moved = poll(&mut ready, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).unwrap();
        assert_eq!(moved, 1, "{text:?} is not in\n{}", self.lines());
        let mut bytes = [0; 4096];
        let length = self.person.read(&mut bytes).unwrap();
        self.unread.extend_from_slice(&bytes[..length]);
        self.show();
        self.lines().contains(text)
    }

    fn lines(&self) -> String {
        self.glass.iter().map(|line| line.iter().collect::<String>() + "\n").collect()
    }

    /// What the tool uses of a terminal's language: to a place, clear, the other screen, letters and lines.
    fn show(&mut self) {
        while let Some((sequence, length)) = piece(&self.unread) {
            self.unread.drain(..length);
            match sequence.strip_prefix("\x1b[") {
                Some(place) if place.ends_with('H') => {
                    let (row, column) = place.trim_end_matches('H').split_once(';').unwrap();
                    self.cursor = (row.parse::<usize>().unwrap() - 1, column.parse::<usize>().unwrap() - 1);
                }
                Some("2J" | "?1049h" | "?1049l") => {
                    self.glass.iter_mut().flatten().for_each(|cell| *cell = ' ');
                    self.cursor = (0, 0);
                }
                Some(_) => {}
                None => self.letter(sequence.chars().next().unwrap()),
            }
        }
    }

    fn letter(&mut self, letter: char) {
        match letter {
            '\r' => self.cursor.1 = 0,
            '\n' if self.cursor.0 + 1 == self.glass.len() => {
                self.glass.rotate_left(1);
                self.glass[self.cursor.0].fill(' ');
            }
            '\n' => self.cursor.0 += 1,
            letter => {
                if self.cursor.1 == usize::from(WIDTH) {
                    "\r\n".chars().for_each(|end| self.letter(end));
                }
                self.glass[self.cursor.0][self.cursor.1] = letter;
                self.cursor.1 += 1;
            }
        }
    }
}

/// The first whole letter or sequence, and its length.
fn piece(bytes: &[u8]) -> Option<(String, usize)> {
    let length = match bytes {
        [0x1b, b'[', rest @ ..] => 3 + rest.iter().position(|b| (0x40..=0x7e).contains(b))?,
        [first, ..] => first.leading_ones().max(1) as usize,
        [] => return None,
    };
    let piece = bytes.get(..length)?;
    Some((String::from_utf8_lossy(piece).into_owned(), length))
}

#[test]
fn a_person_sees_the_attack_changes_its_rate_and_stops_it() {
    let (server, _) = answering();
    let mut desk = Desk::new();
    let before = tcgetattr(&desk.tty).unwrap();
    let mut running = desk.attack(&targets("view", &server), &["-rate", "100", "-duration", "1h"]);
    desk.wait_for("achieved 100");
    desk.wait_for("Errors    none");
    desk.press("\x1b[A\x1b[A");
    desk.wait_for("open loop at 100/s, changed manually");
    desk.wait_for("offered 121");
    desk.wait_for("achieved 121");
    desk.press("q");
    desk.wait_for("Status codes  [code:count]");
    assert_eq!(running.0.wait().unwrap().code(), Some(130));
    let after = tcgetattr(&desk.tty).unwrap();
    assert_eq!((after.local_modes, after.input_modes), (before.local_modes, before.input_modes));
}

/// Ctrl-C stays a signal: the first waits for answers, the second does not.
#[test]
fn ctrl_c_drains_and_again_ends_at_once() {
    let server = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let mut desk = Desk::new();
    let before = tcgetattr(&desk.tty).unwrap();
    let mut running =
        desk.attack(&targets("ctrl_c", &server), &["-rate", "100", "--requests", "5", "-timeout", "0"]);
    desk.wait_for("in flight 5 of");
    desk.press("\x03");
    desk.wait_for("stopping: waiting for 5 responses");
    desk.press("\x03");
    desk.wait_for("aborted:5");
    assert_eq!(running.0.wait().unwrap().code(), Some(130));
    assert_eq!(tcgetattr(&desk.tty).unwrap().local_modes, before.local_modes);
}
