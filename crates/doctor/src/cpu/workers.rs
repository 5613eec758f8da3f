//! How many threads the processes of this control group run at once, as far as they say so.
//!
//! Said are: GOMAXPROCS in the environment of a Go program; nginx's workers, each a process of one thread with its name as command line;
//! Envoy's workers, threads that it names (`wrk:worker_N`, Envoy `source/server/worker_impl.cc`). Of others the number of all their
//! threads is a bound. Processes of other groups have other quotas, and are left out.

use std::collections::HashMap;

use seawall_probe::files::{Files, Unread};

use crate::finding::named;

/// Processes beyond this are not looked at, so that a look at a crowded node ends.
const MOST: usize = 4096;

/// What may run at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parallel {
    /// A process, or several that belong together.
    pub(super) what: String,
    pub(super) threads: u64,
    /// It is what they are set to; else all threads that there are, most of which may sleep.
    pub(super) is_stated: bool,
}

/// The processes of this group.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Crowd {
    Seen(Vec<Parallel>),
    Unseen(Unread),
}

impl Crowd {
    pub(super) fn read(files: &dyn Files) -> Self {
        let group = "/proc/self/cgroup";
        let seen = files.read(group).map_err(|error| Unread::new(group, &error));
        let names = files.names("/proc").map_err(|error| Unread::new("/proc", &error));
        match (seen, names) {
            (Ok(group), Ok(names)) => Self::Seen(joined(files, &group, &names)),
            (Err(why), _) | (_, Err(why)) => Self::Unseen(why),
        }
    }
}

fn joined(files: &dyn Files, group: &str, names: &[String]) -> Vec<Parallel> {
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let mut crowd = Vec::new();
    let mut nginx = 0;
    // One that ends while it is looked at runs nothing any more.
    for number in numbers.into_iter().take(MOST).filter(|number| is_of(files, *number, group)) {
        let read = |name: &str| files.read(&format!("/proc/{number}/{name}")).unwrap_or_default();
        let command = read("cmdline");
        if command.starts_with("nginx: worker process") {
            nginx += 1;
        } else {
            crowd.extend(parallel(files, number, &command, &read));
        }
    }
    let workers = Parallel { what: format!("nginx with {nginx} workers"), threads: nginx, is_stated: true };
    crowd.extend((nginx > 0).then_some(workers));
    crowd
}

fn is_of(files: &dyn Files, number: u32, group: &str) -> bool {
    files.read(&format!("/proc/{number}/cgroup")).is_ok_and(|own| own == group)
}

/// The processes here that are an Envoy, each with its workers.
pub(crate) fn envoys(files: &dyn Files) -> Vec<(u32, u64)> {
    let names = files.names("/proc").unwrap_or_default();
    let numbers = names.iter().filter_map(|name| name.parse().ok()).take(MOST);
    let envoy = |number: u32| {
        let command = files.read(&format!("/proc/{number}/cmdline")).ok()?;
        Some((number, envoy_workers(files, number, program(&command)?)?))
    };
    numbers.filter_map(envoy).collect()
}

/// The name of the program, without where it is.
fn program(command: &str) -> Option<&str> {
    command.split('\0').next().and_then(|path| path.rsplit('/').next()).filter(|name| !name.is_empty())
}

/// One process; none if it has no threads that can be counted.
fn parallel(
    files: &dyn Files,
    number: u32,
    command: &str,
    read: &dyn Fn(&str) -> String,
) -> Option<Parallel> {
    let program = named(program(command)?);
    let threads =
        read("status").lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok())?;
    let (what, stated) = match envoy_workers(files, number, &program) {
        Some(workers) => (format!("{program} (process {number}), by its worker threads,"), Some(workers)),
        None => (format!("{program} (process {number})"), gomaxprocs(&read("environ"))),
    };
    // No more can run than there are, unless a Go program has yet to start them.
    Some(Parallel { what, threads: stated.unwrap_or(threads), is_stated: stated.is_some() })
}

fn gomaxprocs(environment: &str) -> Option<u64> {
    let set: HashMap<_, _> = environment.split('\0').filter_map(|entry| entry.split_once('=')).collect();
    set.get("GOMAXPROCS")?.parse().ok().filter(|threads| *threads > 0)
}

fn envoy_workers(files: &dyn Files, number: u32, program: &str) -> Option<u64> {
    if !program.contains("envoy") {
        return None;
    }
    let tasks = format!("/proc/{number}/task");
    let names = files.names(&tasks).ok()?.into_iter();
    let threads = names.filter_map(|task| files.read(&format!("{tasks}/{task}/comm")).ok());
    Some(threads.filter(|name| name.starts_with("wrk:worker_")).count() as u64).filter(|workers| *workers > 0)
}
