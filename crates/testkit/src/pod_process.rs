//! A process in a pod's group and network: a Python one (`pod.py`), which is asked line by line.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One that runs; ends when dropped.
#[derive(Debug)]
pub struct PodProcess {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// A command that joins the group before anything else runs. (`ip netns exec` would mount another /sys.)
pub fn command_in_cgroup(group: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo 0 > \"$0/cgroup.procs\" && exec \"$@\""]).arg(group).args(words);
    command
}

impl PodProcess {
    /// Starts the process in this control group and network namespace; without a name, in the network of this process.
    pub fn start(network: Option<&str>, group: &Path) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/pod.py");
        let network = network.map(|name| format!("--net=/run/netns/{name}"));
        let enter = network.iter().flat_map(|network| ["nsenter", network]);
        let words: Vec<_> = enter.chain(["/usr/bin/python3", script]).collect();
        Self::from_command(command_in_cgroup(group, &words))
    }

    /// Starts the process with this command, and waits until it is ready.
    pub fn from_command(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (ask, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut process = Self { child, ask, answers: BufReader::new(answers) };
        assert_eq!(process.read_answer(), "ready");
        process
    }

    /// Sends a line that starts an action; [`Self::read_answer`] returns its result.
    pub fn send_line(&mut self, line: &str) {
        writeln!(self.ask, "{line}").unwrap();
    }

    /// Returns the result of the last action, or the name of its error.
    pub fn read_answer(&mut self) -> String {
        let mut line = String::new();
        assert!(self.answers.read_line(&mut line).unwrap() > 0, "the process in the pod has ended");
        let line = line.trim_end();
        line.strip_prefix("ok ").or_else(|| line.strip_prefix("error ")).unwrap_or(line).to_owned()
    }

    /// Sends a line and returns its result.
    pub fn ask(&mut self, line: &str) -> String {
        self.send_line(line);
        self.read_answer()
    }

    /// Fetches from this address on port 80 over a plain connection; returns the response or the name of the error.
    pub fn fetch_from_server(&mut self, address: &str) -> String {
        self.ask(&format!("ask connect {address} 80"))
    }
}

impl Drop for PodProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
