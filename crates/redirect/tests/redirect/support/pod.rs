//! A process in a pod's group and network: a Python one (`pod.py`), which is asked line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) struct Process {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Joins the group before anything else runs, then the network. (`ip netns exec` would mount another /sys.)
    pub(crate) fn start(network: &str, group: &Path) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redirect/support/pod.py");
        let mut child = Command::new("sh")
            .args(["-c", "echo 0 > \"$0/cgroup.procs\" && exec nsenter \"--net=/run/netns/$1\" /usr/bin/python3 \"$2\""])
            .arg(group)
            .args([network, script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (ask, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut process = Self { child, ask, answers: BufReader::new(answers) };
        assert_eq!(process.answer(), "ready");
        process
    }

    /// Begins something; what came of it is in [`Self::answer`].
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.ask, "{line}").unwrap();
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        assert!(self.answers.read_line(&mut line).unwrap() > 0, "the process in the pod has ended");
        let line = line.trim_end();
        line.strip_prefix("ok ").or_else(|| line.strip_prefix("error ")).unwrap_or(line).to_owned()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    /// What is answered at an address on port 80 by a plain connect, or the error's name.
    pub(crate) fn get(&mut self, address: &str) -> String {
        self.ask(&format!("ask connect {address} 80"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
