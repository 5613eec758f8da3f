//! Pods that are processes of this machine, over pipes: what a load from many pods does, tried out without a cluster.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use seawall_load::clock::RunClock;

use crate::wire::{Event, Hand, Wire};

/// Lines on their way to a process that does not read: of heartbeats a minute's.
const WAITING: usize = 64;

/// What a process is told its place by: the variable that Kubernetes sets in pods of an Indexed Job.
pub const INDEX: &str = "JOB_COMPLETION_INDEX";

/// Starts so many processes of a program, each told its place by [`INDEX`]. Their standard error is ours.
///
/// # Errors
/// The system refuses.
pub fn start(program: &OsStr, arguments: &[&OsStr], many: usize) -> io::Result<Wire> {
    let clock = RunClock::start();
    let (sender, events) = channel();
    let mut hand = Processes { lines: Vec::new(), children: Arc::default() };
    for place in 0..many {
        let mut command = Command::new(program);
        command.args(arguments).env(INDEX, place.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        hand.children.lock().unwrap_or_else(PoisonError::into_inner).push(Some(child));
        let Some((input, output)) = pipes else { continue };
        let (line, lines) = sync_channel(WAITING);
        hand.lines.push(line);
        thread::Builder::new().name("fleet-orders".into()).spawn(move || give(input, &lines))?;
        let (sender, children) = (sender.clone(), Arc::clone(&hand.children));
        let hear = move || hear(place, output, clock, &sender, &children);
        thread::Builder::new().name("fleet-reports".into()).spawn(hear)?;
    }
    let children = hand.children.lock().unwrap_or_else(PoisonError::into_inner);
    let names = children.iter().map(|child| name(child.as_ref())).collect();
    drop(children);
    Ok(Wire { names, clock, hand: Arc::new(hand), events })
}

fn name(child: Option<&Child>) -> String {
    child.map_or_else(String::new, |child| format!("process {}", child.id()))
}

type Children = Arc<Mutex<Vec<Option<Child>>>>;

/// Ends them when it is dropped.
struct Processes {
    lines: Vec<SyncSender<String>>,
    children: Children,
}

impl Hand for Processes {
    fn tell(&self, pod: usize, line: &str) {
        if let Some(lines) = self.lines.get(pod) {
            // Nobody reads there: it is gone, or as good as that, and said to be when nothing comes from it.
            let _ = lines.try_send(line.to_owned());
        }
    }

    fn end(&self) {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        for child in children.iter_mut().flatten() {
            // It has ended already.
            let _ = child.kill();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.end();
    }
}

fn give(mut input: ChildStdin, lines: &Receiver<String>) {
    for line in lines {
        if writeln!(input, "{line}").and_then(|()| input.flush()).is_err() {
            return;
        }
    }
}

fn hear(pod: usize, output: ChildStdout, clock: RunClock, events: &Sender<Event>, children: &Children) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if events.send(Event::Line { pod, at: clock.now(), line }).is_err() {
            return;
        }
    }
    let child = children.lock().unwrap_or_else(PoisonError::into_inner).get_mut(pod).and_then(Option::take);
    let why = match child.map(|mut child| child.wait()) {
        Some(Ok(status)) => words(status),
        Some(Err(error)) => error.to_string(),
        None => "ended".into(),
    };
    // Nobody listens any more.
    let _ = events.send(Event::Gone { pod, why, at: clock.now() });
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
        let wire = start(OsStr::new("/bin/sh"), &words, 2).unwrap();
        (0..2).for_each(|pod| wire.hand.tell(pod, "there and back"));
        let mut told = [Vec::new(), Vec::new()];
        for event in wire.events.iter() {
            match event {
                Event::Line { pod, line, .. } => told[pod].push(line),
                Event::Gone { pod, why, .. } => told[pod].push(why),
                Event::Away { .. } => panic!("nothing is away"),
            }
        }
        assert_eq!(told[0], ["0", "there and back", "ended with exit code 3"]);
        assert_eq!(told[1][0], "1");
    }

    #[test]
    fn processes_end_with_whoever_started_them() {
        let wire = start(OsStr::new("/bin/sh"), &["-c", "read line"].map(OsStr::new), 1).unwrap();
        let Wire { hand, events, .. } = wire;
        hand.end();
        let Ok(Event::Gone { why, .. }) = events.recv_timeout(Duration::from_secs(60)) else {
            panic!("gone")
        };
        assert_eq!(why, "ended by signal 9");
    }
}
