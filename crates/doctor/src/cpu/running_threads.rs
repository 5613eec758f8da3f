//! The number of threads that the processes of this control group run at once.
//!
//! Three kinds of processes state their number: a Go program by GOMAXPROCS in its environment; nginx by its workers, each a process with
//! one thread; Envoy by its named worker threads (`wrk:worker_N`, Envoy `source/server/worker_impl.cc`). For other processes, the number of
//! all threads is an upper bound. Processes of other groups have other quotas and do not count.

use std::collections::HashMap;
use std::io::{self, ErrorKind};

use seawall_probe::file_reader::{HostFiles, ProbeError};

use crate::finding::shortened;
use crate::sockets::may_hide_processes;

/// The most processes that the check reads, so that it ends on a crowded node.
const MOST: usize = 4096;

/// A number of threads that may run at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParallelThreads {
    /// A process, or several processes that belong together.
    pub(super) process_description: String,
    pub(super) threads: u64,
    pub(super) source: ThreadCountSource,
}

/// The source of a thread count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadCountSource {
    /// The process is configured for this number.
    Stated,
    /// The number of all threads of the process, most of which may sleep.
    Counted,
    /// The number of all threads; the setting is unreadable for this reason, so the process may start more.
    SettingUnreadable(&'static str),
}

impl ThreadCountSource {
    pub(super) fn setting_unreadable_reason(self) -> Option<&'static str> {
        if let Self::SettingUnreadable(why) = self { Some(why) } else { None }
    }
}

/// The processes of this group.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CgroupProcesses {
    Seen {
        parallel: Vec<ParallelThreads>,
        /// The number of processes whose group is not visible.
        unshown: usize,
        /// True if the system may hide whole processes.
        hides: bool,
    },
    Unseen(ProbeError),
}

impl CgroupProcesses {
    pub(super) fn read(files: &dyn HostFiles) -> Self {
        let group = "/proc/self/cgroup";
        let seen = files.read(group).map_err(|error| ProbeError::new(group, &error));
        let names = files.names("/proc").map_err(|error| ProbeError::new("/proc", &error));
        match (seen, names) {
            (Ok(group), Ok(names)) => joined(files, &group, &names),
            (Err(why), _) | (_, Err(why)) => Self::Unseen(why),
        }
    }
}

fn joined(files: &dyn HostFiles, group: &str, names: &[String]) -> CgroupProcesses {
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let (mut crowd, mut nginx, mut unshown) = (Vec::new(), 0, numbers.len().saturating_sub(MOST));
    for number in numbers.into_iter().take(MOST) {
        match files.read(&format!("/proc/{number}/cgroup")) {
            Ok(own) if own == group => {}
            // A process that has just ended runs no threads.
            Err(error) if error.kind() != ErrorKind::NotFound => {
                unshown += 1;
                continue;
            }
            _ => continue,
        }
        let command = files.read(&format!("/proc/{number}/cmdline")).unwrap_or_default();
        if command.starts_with("nginx: worker process") {
            nginx += 1;
        } else {
            crowd.extend(parallel(files, number, &command));
        }
    }
    let workers = ParallelThreads {
        process_description: format!("nginx with {nginx} workers"),
        threads: nginx,
        source: ThreadCountSource::Stated,
    };
    crowd.extend((nginx > 0).then_some(workers));
    CgroupProcesses::Seen { parallel: crowd, unshown, hides: may_hide_processes(files) }
}

/// Returns the Envoy processes on this machine, each with its number of workers.
pub(crate) fn envoys(files: &dyn HostFiles) -> Vec<(u32, u64)> {
    let names = files.names("/proc").unwrap_or_default();
    let numbers = names.iter().filter_map(|name| name.parse().ok()).take(MOST);
    let envoy = |number: u32| {
        let command = files.read(&format!("/proc/{number}/cmdline")).ok()?;
        Some((number, envoy_workers(files, number, program(&command)?)?))
    };
    numbers.filter_map(envoy).collect()
}

/// Returns the name of the program without its directory.
fn program(command: &str) -> Option<&str> {
    command.split('\0').next().and_then(|path| path.rsplit('/').next()).filter(|name| !name.is_empty())
}

/// Reads one process; none if its threads cannot be counted.
fn parallel(files: &dyn HostFiles, number: u32, command: &str) -> Option<ParallelThreads> {
    let program = shortened(program(command)?);
    let status = files.read(&format!("/proc/{number}/status")).ok()?;
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok())?;
    if let Some(workers) = envoy_workers(files, number, &program) {
        let what = format!("{program} (process {number}, counted by worker threads)");
        return Some(ParallelThreads {
            process_description: what,
            threads: workers,
            source: ThreadCountSource::Stated,
        });
    }
    let (stated, word) = gomaxprocs(files.read(&format!("/proc/{number}/environ")), threads);
    // No more threads can run than exist, unless a Go program starts more later.
    Some(ParallelThreads {
        process_description: format!("{program} (process {number})"),
        threads: stated.unwrap_or(threads),
        source: word,
    })
}

/// Returns the thread count that a process's environment sets, and its source.
fn gomaxprocs(environment: io::Result<String>, threads: u64) -> (Option<u64>, ThreadCountSource) {
    let environment = match environment {
        Ok(environment) => environment,
        // A Go program has more than one thread from its start (`runtime.main` starts `sysmon`).
        Err(error) if error.kind() != ErrorKind::NotFound && threads > 1 => {
            return (
                None,
                ThreadCountSource::SettingUnreadable(
                    "this user cannot read the environment of the process, which may set GOMAXPROCS",
                ),
            );
        }
        Err(_) => return (None, ThreadCountSource::Counted),
    };
    let set: HashMap<_, _> = environment.split('\0').filter_map(|entry| entry.split_once('=')).collect();
    match set.get("GOMAXPROCS").filter(|value| !value.is_empty()).map(|value| value.parse::<i32>()) {
        None => (None, ThreadCountSource::Counted),
        Some(Ok(threads @ 1..)) => (Some(u64::from(threads.unsigned_abs())), ThreadCountSource::Stated),
        // `schedinit` in Go's `runtime/proc.go` reads a 32-bit number and ignores any other value.
        Some(_) => (
            None,
            ThreadCountSource::SettingUnreadable(
                "its GOMAXPROCS is not a number that Go accepts, so Go ignores it",
            ),
        ),
    }
}

fn envoy_workers(files: &dyn HostFiles, number: u32, program: &str) -> Option<u64> {
    if !program.contains("envoy") {
        return None;
    }
    let tasks = format!("/proc/{number}/task");
    let names = files.names(&tasks).ok()?.into_iter();
    let threads = names.filter_map(|task| files.read(&format!("{tasks}/{task}/comm")).ok());
    Some(threads.filter(|name| name.starts_with("wrk:worker_")).count() as u64).filter(|workers| *workers > 0)
}
