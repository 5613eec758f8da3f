//! What an attack says about the machine that it ran on. Nothing here asks how busy that machine is.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use seawall_testkit::closure_server::Server;

/// Runs a command with targets on standard input.
fn run(mut command: Command, targets: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(targets.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn seawall(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(args);
    command
}

#[test]
fn every_check_of_the_machine_is_in_the_json_summary() {
    let server = Server::start_answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    let attack = seawall(&["attack", "-rate=50", "-duration=2s", "-output=none", "-summary=json"]);
    let done = run(attack, &format!("GET {}\n", server.url_of_path("/")));
    let summary: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let checks = summary["machine"].as_array().unwrap();
    let status = |id| &checks.iter().find(|check| check["id"] == id).unwrap()["status"];
    assert_eq!(checks.len(), 13);
    // The engine's threads were found and watched, whatever they are called.
    assert_ne!(status("thread-cpu"), "unknown", "{checks:?}");
    assert_eq!(status("sockets"), "ok");
    assert!(summary["sent"].as_u64().is_some(), "the run's own figures are beside them");
    // The exit code agrees with the verdict, whichever it is on this machine.
    let limited = summary["generator_verdict"] == "generator-limited";
    assert_eq!(done.status.code(), Some(if limited { 4 } else { 0 }), "{summary}");
}

/// A control group with a CPU quota, removed in the end.
struct Held(PathBuf);

impl Held {
    /// None where this machine lets nobody make one (not root, or no CPU controller to be had).
    fn to(cores: &str) -> Option<Self> {
        let name = format!("seawall-test-{}", std::process::id());
        let kinds =
            [("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", ""), ("/sys/fs/cgroup", "cpu.max", " 100000")];
        kinds.into_iter().find_map(|(root, file, period)| {
            let directory = Path::new(root).join(&name);
            std::fs::create_dir(&directory).ok()?;
            let held = Self(directory);
            // A directory that is no group has no such file.
            let mut quota = OpenOptions::new().write(true).open(held.0.join(file)).ok()?;
            write!(quota, "{cores}{period}").ok().map(|()| held)
        })
    }

    /// The same command, run inside.
    fn inside(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.0.display());
        shell.args(["-c", &script]).arg(command.get_program()).args(command.get_args());
        shell
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// With few in flight the bound excused what was not sent, and the lag was that of nobody.
#[test]
#[expect(clippy::print_stderr, reason = "what was not tested must be said")]
fn a_generator_held_to_little_cpu_says_so_whatever_may_be_in_flight() {
    let Some(held) = Held::to("5000") else {
        eprintln!("no control group with a CPU quota can be made here: not tested");
        return;
    };
    let server = Server::start_answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    for workers in ["1", "10", "1000"] {
        let attack = seawall(&[
            "attack",
            "-rate=20000",
            "-duration=1s",
            "-output=none",
            "-live=none",
            "-max-workers",
            workers,
        ]);
        let done = run(held.inside(&attack), &format!("GET {}\n", server.url_of_path("/")));
        let said = String::from_utf8_lossy(&done.stdout);
        assert_eq!(done.status.code(), Some(4), "{workers}: {said}");
        assert!(
            said.lines().nth(1).is_some_and(|line| line.starts_with("GENERATOR LIMITED")),
            "{workers}: {said}"
        );
    }
}

#[test]
fn too_few_open_files_are_said_before_anything_is_sent_with_the_command_that_helps() {
    refused(200, "-rate=0 -max-workers=5000", "--nofile=5064");
}

/// It sent nothing, said nothing and never ended.
#[test]
fn a_limit_of_open_files_that_leaves_room_for_no_connection_is_refused() {
    refused(60, "-rate=10", "--nofile=65");
}

fn refused(files: u32, flags: &str, advice: &str) {
    let mut shell = Command::new("sh");
    let script = format!("ulimit -n {files}; exec \"$0\" attack {flags} -duration=1s -output=none");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_seawall")]);
    let done = run(shell, "GET http://127.0.0.1:9/\n");
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains(&format!("the limit is {files}")), "{said}");
    assert!(said.contains("prlimit --pid $$") && said.contains(advice), "{said}");
}
