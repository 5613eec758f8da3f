//! The agent as a process: started, read, signalled, and never left behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "a failed test shows what the agent said")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::waiting::wait_until_some;

/// A running agent. Dropping it kills it, and fails the test if the agent ever panicked.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    log: Arc<Log>,
    reader: Option<JoinHandle<()>>,
    /// The addresses of the listeners for pods.
    pub listener_addresses: Vec<SocketAddr>,
    /// The address of the admin port.
    pub admin_address: SocketAddr,
}

/// Before it has said where.
const NOWHERE: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0));

/// The lines that the agent has logged so far, and whether reading can stop.
#[derive(Debug, Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    is_enough: AtomicBool,
}

/// The agent's program with these arguments, as cargo built it for the test; SEAWALL_AGENT names another build of it, to
/// measure.
pub fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("SEAWALL_AGENT").unwrap_or(program.into()));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub fn run(program: &str, args: &[&str]) -> Output {
    command(program, args).output().unwrap()
}

impl Agent {
    /// Starts it and returns when it serves. Tries again where it found a free port, and a connection of a test beside this one took the
    /// port before the agent had all of its sockets there.
    pub fn start(program: &str, config: &Path) -> Self {
        let takes_free_port = std::fs::read_to_string(config).is_ok_and(|text| text.contains(":0\""));
        let mut tries = if takes_free_port { 3 } else { 1 };
        loop {
            tries -= 1;
            let mut child = command(program, &["--config", config.to_str().unwrap()]);
            match Self::try_until_serving(child.stderr(Stdio::piped()).spawn().unwrap()) {
                Ok(agent) => return agent,
                Err(log) => {
                    assert!(tries > 0 && log.contains("Address already in use"), "it ended: {log}");
                }
            }
        }
    }

    /// Takes over a process that is the agent, or becomes it.
    pub fn wait_until_serving(child: Child) -> Self {
        let started = Self::try_until_serving(child);
        assert!(started.is_ok(), "it ended: {}", started.unwrap_err());
        started.unwrap()
    }

    /// Returns the agent when it serves, or its log if it ends before.
    fn try_until_serving(mut child: Child) -> Result<Self, String> {
        let log = Arc::new(Log::default());
        let stderr = child.stderr.take().unwrap();
        let reader = std::thread::spawn({
            let log = log.clone();
            move || collect(stderr, &log)
        });
        let mut agent =
            Self { child, log, reader: Some(reader), listener_addresses: Vec::new(), admin_address: NOWHERE };
        let line = wait_until_some("the agent to serve or to end", || {
            let has_ended = agent.child.try_wait().unwrap().is_some();
            agent.log_lines_with_message("serving").pop().map(Some).or_else(|| has_ended.then_some(None))
        });
        let Some(line) = line else {
            // All that it said.
            let _ = agent.reader.take().map(JoinHandle::join);
            return Err(agent.log());
        };
        agent.find(&line);
        Ok(agent)
    }

    /// Takes over a process that has said in `log` that it serves, and whose log is the test's to read or not.
    pub fn adopt_running(child: Child, log: &str) -> Self {
        let log =
            Arc::new(Log { lines: Mutex::new(log.lines().map(str::to_owned).collect()), ..Log::default() });
        let mut agent =
            Self { child, log, reader: None, listener_addresses: Vec::new(), admin_address: NOWHERE };
        let line = agent.log_lines_with_message("serving").pop().unwrap();
        agent.find(&line);
        agent
    }

    /// Reads the addresses from the log line in which the agent reports that it serves.
    fn find(&mut self, serving: &Value) {
        let fields = &serving["fields"];
        self.admin_address = fields["admin"].as_str().unwrap().parse().unwrap();
        // An IPv6 address has brackets of its own.
        let list = fields["listeners"].as_str().unwrap();
        let listeners = list.strip_prefix('[').unwrap().strip_suffix(']').unwrap().split(", ");
        self.listener_addresses = listeners.map(|address| address.parse().unwrap()).collect();
    }

    /// The first listener.
    pub fn first_listener_address(&self) -> SocketAddr {
        self.listener_addresses[0]
    }

    /// Everything it wrote so far.
    pub fn log(&self) -> String {
        self.log.lines.lock().unwrap().join("\n")
    }

    /// The log lines with this message.
    pub fn log_lines_with_message(&self, message: &str) -> Vec<Value> {
        let log = self.log.lines.lock().unwrap();
        let lines = log.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["fields"]["message"] == message).collect()
    }

    /// Closes the reading end of its log after the next line, which `make_it_write` brings about.
    pub fn close_log_pipe(&mut self, make_it_write: impl FnOnce()) {
        self.log.is_enough.store(true, Ordering::Relaxed);
        make_it_write();
        self.reader.take().unwrap().join().unwrap();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        wait_until_some("the agent to end", || self.child.try_wait().unwrap())
    }

    /// SIGTERM, and the exit that must follow.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_for_exit()
    }

    /// Resident memory, in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.proc_status_kib("VmRSS")
    }

    /// A figure of `/proc/PID/status`, in KiB.
    pub fn proc_status_kib(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The name and the `status` of each of its threads.
    pub fn thread_names_and_statuses(&self) -> Vec<(String, String)> {
        let tasks = std::fs::read_dir(self.proc("task")).unwrap();
        // A thread may end between being listed and being read.
        let read = |task: PathBuf| Some((read(&task.join("comm"))?, read(&task.join("status"))?));
        tasks.filter_map(|task| read(task.unwrap().path())).collect()
    }

    fn proc(&self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.child.id()).into()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.reader.take().map(JoinHandle::join);
        let log = self.log.lines.lock().map(|lines| lines.join("\n")).unwrap_or_default();
        if std::thread::panicking() {
            let last: Vec<_> = log.lines().rev().take(30).collect();
            eprintln!("the agent's last lines, the last one first:\n{}", last.join("\n"));
        } else {
            assert!(!log.contains("panicked at"), "the agent panicked: {log}");
        }
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn collect(stderr: ChildStderr, log: &Log) {
    // Until the process ends; then what it wrote last has been read, too.
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        log.lines.lock().unwrap().push(line);
        if log.is_enough.load(Ordering::Relaxed) {
            return;
        }
    }
}
