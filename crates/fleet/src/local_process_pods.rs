//! Pods as local processes over pipes, which test a load from many pods without a cluster.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use seawall_load::clock::RunClock;

use crate::pod_channel::{CommandSender, PodChannel, WireEvent};
use crate::protocol::INDEX_VARIABLE;

/// The most lines for a process that does not read them: one minute of heartbeats.
const WAITING: usize = 64;

/// The longest line of a process, in bytes.
const LONGEST_LINE: u64 = 64 << 20;

/// The most events that wait for the controller.
const EVENTS: usize = 1024;

/// Starts this many processes of a program. Each gets its index in [`INDEX_VARIABLE`], and their standard error is that of this process.
///
/// # Errors
/// The system cannot start a process.
pub fn start(program: &OsStr, arguments: &[&OsStr], many: usize) -> io::Result<(PodChannel, Arc<Processes>)> {
    let clock = RunClock::start();
    let (events, hear) = sync_channel(EVENTS);
    let words = std::iter::once(program).chain(arguments.iter().copied()).map(OsStr::to_owned).collect();
    let (lines, children, events) = (Mutex::default(), Arc::default(), Mutex::new(events));
    let hand = Arc::new(Processes { words, clock, lines, children, events });
    let names = hand.start_more(many)?;
    Ok((PodChannel { names, clock, command_sender: hand.clone(), event_receiver: hear }, hand))
}

fn name(child: Option<&Child>) -> String {
    child.map_or_else(String::new, |child| format!("process {}", child.id()))
}

type Children = Arc<Mutex<Vec<Option<Child>>>>;

/// A set of processes that end when this value is dropped.
pub struct Processes {
    /// The program and its arguments.
    words: Vec<OsString>,
    clock: RunClock,
    lines: Mutex<Vec<SyncSender<String>>>,
    children: Children,
    events: Mutex<SyncSender<WireEvent>>,
}

impl Processes {
    /// Starts further processes and returns their names.
    ///
    /// # Errors
    /// The system cannot start a process.
    pub fn start_more(&self, many: usize) -> io::Result<Vec<String>> {
        (0..many).map(|_| self.one_more()).collect()
    }

    fn one_more(&self) -> io::Result<String> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let pod = lines.len();
        let mut words = self.words.iter();
        let mut command = Command::new(words.next().map_or(OsStr::new(""), OsString::as_os_str));
        command.args(words).env(INDEX_VARIABLE, pod.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A process group of its own keeps the terminal's signals away from the pods.
        command.process_group(0);
        let mut child = command.spawn()?;
        let name = name(Some(&child));
        let pipes = child.stdin.take().zip(child.stdout.take());
        self.children.lock().unwrap_or_else(PoisonError::into_inner).push(Some(child));
        let (line, waiting) = sync_channel(WAITING);
        lines.push(line);
        let Some((input, output)) = pipes else { return Ok(name) };
        thread::Builder::new().name("fleet-orders".into()).spawn(move || give(input, &waiting))?;
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (clock, children) = (self.clock, Arc::clone(&self.children));
        let hear = move || hear(pod, output, clock, &events, &children);
        thread::Builder::new().name("fleet-reports".into()).spawn(hear)?;
        Ok(name)
    }
}

impl CommandSender for Processes {
    fn send(&self, pod: usize, line: &str) {
        if let Some(lines) = self.lines.lock().unwrap_or_else(PoisonError::into_inner).get(pod) {
            // The process does not read. It has ended or hangs, and the reader of its output reports that.
            let _ = lines.try_send(line.to_owned());
        }
    }

    fn pod_count(&self) -> usize {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn kill_all(&self) {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        for child in children.iter_mut().flatten() {
            // The process has already ended.
            let _ = child.kill();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill_all();
    }
}

fn give(mut input: ChildStdin, lines: &Receiver<String>) {
    for line in lines {
        if writeln!(input, "{line}").and_then(|()| input.flush()).is_err() {
            return;
        }
    }
}

fn hear(
    pod: usize,
    output: ChildStdout,
    clock: RunClock,
    events: &SyncSender<WireEvent>,
    children: &Children,
) {
    let mut output = BufReader::new(output);
    while let Some(line) = next_line(&mut output) {
        if events.send(WireEvent::Line { pod, at: clock.now(), line }).is_err() {
            return;
        }
    }
    let child = children.lock().unwrap_or_else(PoisonError::into_inner).get_mut(pod).and_then(Option::take);
    // A process that has closed its output and lives reports nothing more. It is no longer in the table, so it must be ended here. The exit
    // code of a process that is ending stays the same.
    let ended = child.map(|mut child| child.kill().and_then(|()| child.wait()));
    let why = match ended {
        Some(Ok(status)) => words(status),
        Some(Err(error)) => error.to_string(),
        None => "ended".into(),
    };
    // No receiver is left.
    let _ = events.send(WireEvent::Ended { pod, why, at: clock.now() });
}

/// Returns the next line; none at the end, where one is longer than any report, or is no text.
fn next_line(output: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let length = output.take(LONGEST_LINE).read_until(b'\n', &mut line).ok()?;
    let is_whole = line.pop_if(|last| *last == b'\n').is_some() || (length as u64) < LONGEST_LINE;
    String::from_utf8(line).ok().filter(|_| length > 0 && is_whole)
}

fn words(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("ended by signal {signal}"),
        (None, Some(code)) => format!("ended with exit code {code}"),
        (None, None) => "ended".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_go_there_and_back_and_an_end_is_told_last() {
        let words = ["-c", "echo $JOB_COMPLETION_INDEX; read line; echo \"$line\"; exit 3"].map(OsStr::new);
        let (wire, processes) = start(OsStr::new("/bin/sh"), &words, 1).unwrap();
        assert_eq!((processes.start_more(1).unwrap().len(), processes.pod_count()), (1, 2));
        (0..2).for_each(|pod| wire.command_sender.send(pod, "there and back"));
        let mut told = [Vec::new(), Vec::new()];
        for event in wire.event_receiver.iter().take(6) {
            match event {
                WireEvent::Line { pod, line, .. } => told[pod].push(line),
                WireEvent::Ended { pod, why, .. } => told[pod].push(why),
                WireEvent::Unreachable { .. } => panic!("nothing is away"),
            }
        }
        assert_eq!(told[0], ["0", "there and back", "ended with exit code 3"]);
        assert_eq!(told[1][0], "1");
    }

    /// Regression: the caller waited for such a process, and nothing could end it.
    #[test]
    fn a_process_that_closes_its_output_and_lives_is_ended() {
        let words = ["-c", "exec >&-; read line"].map(OsStr::new);
        let (wire, _processes) = start(OsStr::new("/bin/sh"), &words, 1).unwrap();
        let Ok(WireEvent::Ended { why, .. }) = wire.event_receiver.recv_timeout(Duration::from_secs(60))
        else {
            panic!("gone")
        };
        assert_eq!(why, "ended by signal 9");
    }

    #[test]
    fn a_line_longer_than_any_report_ends_the_output() {
        let mut endless = BufReader::new(io::repeat(b'x'));
        assert_eq!(next_line(&mut endless), None);
        let mut lines: &[u8] = b"a\n\nb";
        let read: Vec<_> = std::iter::from_fn(|| next_line(&mut lines)).collect();
        assert_eq!(read, ["a", "", "b"]);
    }

    #[test]
    fn processes_end_with_whoever_started_them() {
        let (wire, _) = start(OsStr::new("/bin/sh"), &["-c", "read line"].map(OsStr::new), 1).unwrap();
        let PodChannel { command_sender: hand, event_receiver: events, .. } = wire;
        hand.kill_all();
        let Ok(WireEvent::Ended { why, .. }) = events.recv_timeout(Duration::from_secs(60)) else {
            panic!("gone")
        };
        assert_eq!(why, "ended by signal 9");
    }
}
