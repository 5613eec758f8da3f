//! What orders and reports travel by: attachments and logs, from the API server by the kubelet to the container and back, as kubectl has
//! them. What they promise here is what the tool's own client may rely on.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use seawall_core::Clock;
use seawall_testkit::node::Node;
use seawall_testkit::objects::{NAMESPACE, pods_path};
use seawall_testkit::waiting::{PATIENCE, wait_until_true};

use crate::pods::{echo, node};

const LINES: usize = 40;

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn a_line_to_an_attachment_comes_back_by_it_and_by_the_log_and_another_attachment_follows_one_that_broke() {
    let node = node();
    start(&node, "echo");
    let mut log = Stream::of(kubectl(&node, &["logs", "--follow", "echo"]));
    for attachment in 0..2 {
        let mut attached = Stream::of(kubectl(&node, &["attach", "--quiet", "--stdin", "echo"]));
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for number in 0..LINES {
            let (line, clock) = (format!("{attachment}.{number}"), Clock::system());
            let start = clock.now();
            attached.say(&line);
            assert_eq!(attached.next().unwrap(), line);
            here.push(clock.now().since(start));
            assert_eq!(log.next().unwrap(), line);
            there.push(clock.now().since(start));
        }
        eprintln!("there and back by the attachment {}, by the log {}", spread(here), spread(there));
        // At once, as a network does that breaks.
        drop(attached);
    }
    assert_eq!(node.pod("echo")["status"]["phase"], "Running");
}

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn a_followed_log_and_an_attachment_end_when_the_container_is_killed_and_when_the_pod_is_deleted() {
    let node = node();
    for name in ["killed", "deleted"] {
        start(&node, name);
        let mut log = Stream::of(kubectl(&node, &["logs", "--follow", name]));
        let mut attached = Stream::of(kubectl(&node, &["attach", "--quiet", "--stdin", name]));
        attached.say("there");
        assert_eq!([log.next(), attached.next()], [Some("there".to_owned()), Some("there".to_owned())]);
        let clock = Clock::system();
        let start = clock.now();
        end(&node, name);
        let told = clock.now().since(start);
        assert_eq!(attached.next(), None);
        let attached = clock.now().since(start);
        assert_eq!(log.next(), None);
        let log = clock.now().since(start);
        eprintln!("{name}: told {told:?}, the attachment's end {attached:?}, the log's {log:?}");
    }
    node.wait_until_pod_gone("deleted");
}

/// In the way that the pod is called by.
fn end(node: &Node, name: &str) {
    match name {
        "killed" => node.kill_container(name),
        _ => drop(node.api.call_expecting_success("DELETE", &format!("{}/{name}", pods_path()), None)),
    }
}

fn start(node: &Node, name: &str) {
    node.create_pod(&echo(name));
    node.wait_until_pod_running(name);
}

fn kubectl(node: &Node, words: &[&str]) -> Command {
    let mut command = node.kubectl_command();
    command.args(["--namespace", NAMESPACE]).args(words);
    command
}

/// A command whose lines are waited for, and not for ever; killed when dropped.
struct Stream {
    child: Child,
    say: ChildStdin,
    lines: Receiver<String>,
}

impl Stream {
    fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (say, said) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(said).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, say, lines }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.say, "{line}").unwrap();
    }

    /// The next line, or nothing when it has ended.
    fn next(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(_) => {
                wait_until_true("the end of what is read", || self.child.try_wait().unwrap().is_some());
                None
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The median and the longest.
fn spread(mut spans: Vec<Duration>) -> String {
    spans.sort();
    format!("{:?}, at most {:?}", spans[spans.len() / 2], spans[spans.len() - 1])
}
