//! Client libraries of clouds, and their programs as processes. `clients/README.md` says what a program takes and prints; each cloud
//! has its table in a file of its own.
//!
//! Shared by the tests on loopback and those on a real cluster, which differ in what the libraries meet, not in the libraries.
//! Nothing in a program's environment names the agent, unless a test says so: it finds 169.254.169.254 and
//! `metadata.google.internal` by itself, so it runs inside a network namespace, with a hosts file of its own.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

pub mod aws;
pub mod google;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::installed_test_parts::cached_test_part_path;
use crate::objects::NAMESPACE;

/// One client library.
#[derive(Clone, Copy, Debug)]
pub struct ClientLibrary {
    /// The name of the library in messages of failed tests.
    pub name: &'static str,
    /// The argument that selects the library in its program.
    word: &'static str,
    program: Program,
    /// The step that asks for the pod's credentials.
    pub credentials_step: &'static str,
    /// The steps that its users need beside a token.
    pub other_steps: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Python,
    Java,
    Node,
    Go,
    Rust,
}

/// The files that a process in the container of a pod reads to resolve host names.
#[derive(Debug)]
pub struct ResolverFiles {
    folder: PathBuf,
}

impl ResolverFiles {
    /// Writes hosts files and the address of a name server into a folder. Nobody may answer at that address: a socket of the
    /// test is bound there, so that a question is neither answered nor refused.
    pub fn new(folder: &Path) -> Self {
        let local = "127.0.0.1 localhost\n";
        // Node asks for the name with the root's dot.
        let named = format!("{local}169.254.169.254 metadata.google.internal metadata.google.internal.\n");
        for (name, text) in [("hosts", local), ("hosts-named", &named), ("resolv", "nameserver 127.0.0.1\n")]
        {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Self { folder: folder.to_owned() }
    }

    /// Writes the files that a kubelet gives to a pod of a cluster whose name server has this address. The hosts file names no metadata server.
    pub fn of_cluster(folder: &Path, name_server: IpAddr) -> Self {
        let local = "127.0.0.1 localhost\n";
        let search = format!("{NAMESPACE}.svc.cluster.local svc.cluster.local cluster.local");
        let resolv = format!("search {search}\nnameserver {name_server}\noptions ndots:5\n");
        for (name, text) in [("hosts", local), ("hosts-named", local), ("resolv", &resolv)] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Self { folder: folder.to_owned() }
    }

    /// Builds a command that runs the program of its first argument with these files, from a command for `unshare` in a pod's network.
    pub fn enclose(&self, unshare: Command) -> Command {
        self.enclose_with("hosts", unshare)
    }

    fn enclose_with(&self, hosts: &str, mut unshare: Command) -> Command {
        unshare.args(["--mount", "--", "sh", "-euc", INSIDE, "sh"]);
        unshare.arg(self.folder.join(hosts)).arg(self.folder.join("resolv"));
        unshare
    }
}

/// The place where a program runs.
#[derive(Clone, Copy)]
pub enum ProgramLocation<'p> {
    /// A network in which 169.254.169.254 is the agent. The function makes a command that runs a program there; the variables are
    /// those of a container.
    Network(&'p dyn Fn(&str) -> Command, &'p [(&'p str, &'p str)]),
    /// A pod, which has its own resolver files and variables. The function makes a command that runs a program there.
    Pod(&'p dyn Fn(&str) -> Command),
    /// This machine's network, if the test may not make one: a weaker form, in which variables name the agent.
    EnvironmentVariables(SocketAddr),
}

/// Takes the names' files, then a program. Its mounts are its own and end with it; so does a program that hangs. It finds no
/// other program: Node's library would run a gcloud to hear what the project is.
const INSIDE: &str = r#"mount --bind "$1" /etc/hosts
mount --bind "$2" /etc/resolv.conf
program=$(command -v "$3")
shift 3
exec timeout 150 env PATH=/nonexistent "$program" "$@""#;

impl ClientLibrary {
    /// Returns the first steps of a program: the search for a metadata server, if the library leaves that to its user, and the
    /// request for credentials.
    pub fn steps_up_to_credentials(&self) -> Vec<String> {
        let asks = self.other_steps.iter().filter(|step| **step == "on-gce");
        asks.chain([&self.credentials_step]).map(|step| (*step).to_owned()).collect()
    }

    /// Starts the program of the library with these steps.
    pub fn start(&self, names: &ResolverFiles, steps: &[String], place: ProgramLocation<'_>) -> LibraryRun {
        let mut command = match place {
            ProgramLocation::Network(enter, _) => names.enclose_with(self.hosts(), enter("unshare")),
            ProgramLocation::Pod(enter) => enter("/usr/bin/env"),
            ProgramLocation::EnvironmentVariables(_) => Command::new("env"),
        };
        let path = std::env::var_os("PATH").unwrap();
        command.args(self.program.words()).arg(self.word).args(steps);
        command.env_clear().env("PATH", path).env("HOME", &names.folder);
        match place {
            ProgramLocation::Network(_, variables) => command.envs(variables.iter().copied()),
            ProgramLocation::Pod(_) => &mut command,
            // The second is of google-auth for Python alone, whose ping would leave the machine.
            ProgramLocation::EnvironmentVariables(agent) => {
                command.envs(["GCE_METADATA_HOST", "GCE_METADATA_IP"].map(|name| (name, agent.to_string())))
            }
        };
        LibraryRun::of(*self, command)
    }

    /// Go's libraries ask the address alone; whether there is a metadata server they ask the address and DNS, and believe
    /// whoever answers first. It is the address that must convince them here.
    fn hosts(&self) -> &'static str {
        if self.program == Program::Go { "hosts" } else { "hosts-named" }
    }
}

impl Program {
    /// Returns the program and its first arguments.
    fn words(self) -> Vec<OsString> {
        match self {
            Self::Python => {
                let program = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/client.py");
                vec![cached_test_part_path("python/bin/python").into(), program.into()]
            }
            // The quickest start, for a program that lives for seconds. And no figures in /tmp, in a file by the process's number: where
            // several process namespaces share /tmp, it would warn on its output that another program has that file.
            Self::Java => {
                let [mut classes, jars] = [
                    cached_test_part_path("clients/java/classes"),
                    cached_test_part_path("clients/java/jars"),
                ]
                .map(OsString::from);
                classes.push(":");
                classes.push(jars);
                classes.push("/*");
                let quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp"];
                let quick = quick.map(OsString::from);
                [&["java".into()], &quick[..], &[classes, "Client".into()]].concat()
            }
            Self::Node => vec!["node".into(), cached_test_part_path("clients/node/client.cjs").into()],
            Self::Go => vec![cached_test_part_path("clients/go/client").into()],
            Self::Rust => vec![cached_test_part_path("clients/rust/client").into()],
        }
    }
}

/// A running program. Dropping it ends it.
#[derive(Debug)]
pub struct LibraryRun {
    /// The library that the program uses.
    pub library: ClientLibrary,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The lines that the program has printed so far.
    pub printed_lines: Vec<Value>,
}

impl LibraryRun {
    fn of(library: ClientLibrary, mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { library, child, lines, printed_lines: Vec::new() }
    }

    /// Reads on to the line of this step, and returns it.
    pub fn read_until_step(&mut self, step: &str) -> Value {
        loop {
            let name = self.library.name;
            let line = self.lines.next();
            let line =
                line.unwrap_or_else(|| panic!("{name} ended before {step}: {:#?}", self.printed_lines));
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            self.printed_lines.push(line.clone());
            if line["step"] == step {
                return line;
            }
        }
    }

    /// Lets it go on from a `wait`.
    pub fn resume(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Reads all remaining lines and fails unless the program exits with status 0.
    pub fn wait_for_success(&mut self) {
        let rest = self.lines.by_ref().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        self.printed_lines.extend(rest.collect::<Vec<Value>>());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{}: {status}: {:#?}", self.library.name, self.printed_lines);
    }

    /// Returns the last line about a step, whether the step ran once or until it succeeded (`until:`).
    pub fn last_line_of_step(&self, step: &str) -> &Value {
        let of_step = |line: &&Value| line["step"].as_str().unwrap().trim_start_matches("until:") == step;
        self.printed_lines
            .iter()
            .rfind(of_step)
            .unwrap_or_else(|| panic!("no {step}: {:#?}", self.printed_lines))
    }

    /// The value that a step had in the end, or what there is instead.
    ///
    /// # Errors
    /// It had none.
    pub fn value_of_step(&self, step: &str) -> Result<&str, String> {
        self.last_line_of_step(step)["value"].as_str().ok_or_else(|| self.complaint(step))
    }

    /// Checks that the error of a step contains this sentence.
    ///
    /// # Errors
    /// The error does not contain it; the text shows what the program printed.
    pub fn check_error_contains(&self, step: &str, sentence: &str) -> Result<(), String> {
        let told =
            self.last_line_of_step(step)["error"].as_str().is_some_and(|error| error.contains(sentence));
        told.then_some(()).ok_or_else(|| self.complaint(step))
    }

    fn complaint(&self, step: &str) -> String {
        format!("{}\n{}", self.summary(), self.last_line_of_step(step))
    }

    /// One line for each try: what came of it, and when.
    pub fn summary(&self) -> String {
        let tries = self.printed_lines.iter().filter(|line| line["milliseconds"].is_u64());
        let outcome = |line: &Value| if line["error"].is_null() { "answered" } else { "refused" };
        let tries =
            tries.map(|line| format!("{} {} after {} ms", line["step"], outcome(line), line["milliseconds"]));
        format!("{}: {}", self.library.name, tries.collect::<Vec<_>>().join(", "))
    }
}

impl Drop for LibraryRun {
    fn drop(&mut self) {
        // Not SIGKILL: `timeout` hands this one on to the program.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// Starts all of these side by side, each with steps of its own.
pub fn start_all(
    libraries: &[ClientLibrary],
    names: &ResolverFiles,
    place: ProgramLocation<'_>,
    steps: impl Fn(&ClientLibrary) -> Vec<String>,
) -> Vec<LibraryRun> {
    libraries.iter().map(|library| library.start(names, &steps(library), place)).collect()
}

/// Fails with all complaints at once: a table that ends at its first row hides the others.
pub fn assert_all_ok(complaints: impl IntoIterator<Item = Result<(), String>>) {
    let complaints: Vec<_> = complaints.into_iter().filter_map(Result::err).collect();
    assert!(complaints.is_empty(), "{} of the libraries:\n{}", complaints.len(), complaints.join("\n\n"));
}
