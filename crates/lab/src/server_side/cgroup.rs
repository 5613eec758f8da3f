//! The control group of a target on this machine, as its files describe it at one instant.
//!
//! Version 2 has one directory for all files. Version 1 has one directory per controller, and the user names each of them. A
//! missing file is not an error, because a controller may be off. [`super::judge`] interprets the figures.

use std::time::Duration;

use seawall_cgroup::{
    CpuQuota, MemoryEvents, Throttling, parse_cpu_time, parse_memory_limit, parse_processes_limit,
};

use seawall_probe::file_reader::{HostFiles, ProbeError, ProbeResult, read_parsed};
use seawall_probe::net::parse_number;
use seawall_probe::proc::parse_pressure_total;

/// A control group, given by the directories of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCgroup {
    directories: Vec<String>,
}

/// The reason why a control group cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CgroupError {
    /// The path is not a directory, or this process may not read it.
    #[error("{0}")]
    Unread(ProbeError),
    /// The directory has none of the files.
    #[error(
        "{0} has no control group files: give the directory of the control group itself (cgroup v1: one directory per controller)"
    )]
    NotACgroupDirectory(String),
}

/// The state of a control group at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupSnapshot {
    /// The CPU quota of the group.
    pub quota: ProbeResult<CpuQuota>,
    /// The throttling by the quota.
    pub throttling: ProbeResult<Throttling>,
    /// The used CPU time.
    pub cpu_time: ProbeResult<Duration>,
    /// The time in which at least one task of the group waited for a CPU.
    pub cpu_wait_time: ProbeResult<Duration>,
    /// The memory of the group in bytes, including file pages.
    pub memory: ProbeResult<u64>,
    /// The memory limit in bytes.
    pub memory_limit: ProbeResult<Option<u64>>,
    /// The number of times that the group reached its memory limit, and the number of processes that the OOM killer ended.
    pub memory_events: ProbeResult<MemoryEvents>,
    /// The number of processes and threads.
    pub task_count: ProbeResult<u64>,
    /// The maximum number of processes and threads; none if there is no limit.
    pub processes_limit: ProbeResult<Option<u64>>,
}

impl ServerCgroup {
    /// Opens a control group with these directories.
    ///
    /// # Errors
    /// A directory does not exist, or has none of the files of a control group.
    pub fn open_directories(files: &dyn HostFiles, directories: &[String]) -> Result<Self, CgroupError> {
        let directories: Vec<_> =
            directories.iter().map(|path| path.trim_end_matches('/').to_owned()).collect();
        for directory in &directories {
            let names = files.names(directory);
            let names = names.map_err(|error| CgroupError::Unread(ProbeError::new(directory, &error)))?;
            if !names.iter().any(|name| name == "cgroup.procs") {
                return Err(CgroupError::NotACgroupDirectory(directory.clone()));
            }
        }
        Ok(Self { directories })
    }

    /// Reads the files of the group: about ten files, in some tens of microseconds.
    #[must_use]
    pub fn read(&self, files: &dyn HostFiles) -> CgroupSnapshot {
        let look = GroupReader { files, directories: &self.directories };
        CgroupSnapshot {
            quota: look.quota(),
            throttling: look.throttling(),
            // Version 1 also has a cpu.stat, but without the CPU time.
            cpu_time: or(look.first("cpuacct.usage", parse_cpu_time), || {
                look.first("cpu.stat", parse_cpu_time)
            }),
            cpu_wait_time: look.first("cpu.pressure", parse_pressure_total),
            memory: or(look.first("memory.current", parse_number), || {
                look.first("memory.usage_in_bytes", parse_number)
            }),
            memory_limit: or(look.first("memory.max", parse_memory_limit), || {
                look.first("memory.limit_in_bytes", parse_memory_limit)
            }),
            memory_events: look.memory_events(),
            task_count: look.first("pids.current", parse_number),
            processes_limit: look.first("pids.max", parse_processes_limit),
        }
    }
}

struct GroupReader<'a> {
    files: &'a dyn HostFiles,
    directories: &'a [String],
}

impl GroupReader<'_> {
    /// Returns the value in the first directory that has the file.
    fn first<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> ProbeResult<T> {
        let mut why = ProbeError::Missing(name.to_owned());
        for directory in self.directories {
            match read_parsed(self.files, &format!("{directory}/{name}"), &parse) {
                Err(ProbeError::Missing(_)) => {}
                Err(other) => why = other,
                Ok(value) => return Ok(value),
            }
        }
        Err(why)
    }

    fn text(&self, name: &str) -> ProbeResult<String> {
        self.first(name, |text| Some(text.to_owned()))
    }

    fn quota(&self) -> ProbeResult<CpuQuota> {
        or(self.first("cpu.max", CpuQuota::parse_v2), || {
            let period = self.text("cpu.cfs_period_us")?;
            self.first("cpu.cfs_quota_us", |quota| CpuQuota::parse_v1(quota, &period))
        })
    }

    /// Returns the throttling counters. The root group of version 2 and groups without the controller have neither a quota nor
    /// counters.
    fn throttling(&self) -> ProbeResult<Throttling> {
        self.quota()?;
        self.first("cpu.stat", Throttling::parse)
    }

    fn memory_events(&self) -> ProbeResult<MemoryEvents> {
        or(self.first("memory.events", MemoryEvents::parse_v2), || {
            let control = self.text("memory.oom_control")?;
            self.first("memory.failcnt", |failures| MemoryEvents::parse_v1(failures, &control))
        })
    }
}

/// Returns the value in one version's file, or in the other version's file if the first file does not exist. A file with an
/// unknown format is an error.
fn or<T>(one: ProbeResult<T>, other: impl FnOnce() -> ProbeResult<T>) -> ProbeResult<T> {
    match one {
        Err(ProbeError::Missing(name)) => other().map_err(|why| match why {
            ProbeError::Missing(_) => ProbeError::Missing(name),
            why => why,
        }),
        one => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_probe::file_reader::fake::Texts;

    fn opened(texts: &Texts, directories: &[&str]) -> Result<CgroupSnapshot, CgroupError> {
        let directories: Vec<_> = directories.iter().map(|path| (*path).to_owned()).collect();
        ServerCgroup::open_directories(texts, &directories).map(|group| group.read(texts))
    }

    #[test]
    fn a_group_of_version_two_is_one_directory() {
        let texts = Texts::new(&[
            ("/g/cgroup.procs", "1\n"),
            ("/g/cpu.max", "10000 100000\n"),
            ("/g/cpu.stat", "usage_usec 300000\nnr_periods 30\nnr_throttled 28\nthrottled_usec 9000000\n"),
            ("/g/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n"),
            ("/g/memory.current", "900\n"),
            ("/g/memory.max", "1000\n"),
            ("/g/memory.events", "low 0\nhigh 0\nmax 4\noom 1\noom_kill 1\n"),
            ("/g/pids.current", "7\n"),
            ("/g/pids.max", "max\n"),
        ]);
        let levels = opened(&texts, &["/g/"]).unwrap();
        let throttling =
            Throttling { periods: 30, throttled_periods: 28, throttled_time: Duration::from_secs(9) };
        let expected = CgroupSnapshot {
            quota: Ok(CpuQuota::Cores(0.1)),
            throttling: Ok(throttling),
            cpu_time: Ok(Duration::from_millis(300)),
            cpu_wait_time: Ok(Duration::from_micros(12)),
            memory: Ok(900),
            memory_limit: Ok(Some(1000)),
            memory_events: Ok(MemoryEvents { limit_hits: 4, oom_kills: Some(1) }),
            task_count: Ok(7),
            processes_limit: Ok(None),
        };
        assert_eq!(levels, expected);
    }

    #[test]
    fn a_group_of_version_one_is_a_directory_for_each_controller() {
        let texts = Texts::new(&[
            ("/cpu/g/cgroup.procs", ""),
            ("/cpu/g/cpu.cfs_quota_us", "50000\n"),
            ("/cpu/g/cpu.cfs_period_us", "100000\n"),
            ("/cpu/g/cpu.stat", "nr_periods 4\nnr_throttled 1\nthrottled_time 1000\n"),
            ("/cpuacct/g/cgroup.procs", ""),
            ("/cpuacct/g/cpuacct.usage", "5000\n"),
            ("/memory/g/cgroup.procs", ""),
            ("/memory/g/memory.usage_in_bytes", "900\n"),
            ("/memory/g/memory.limit_in_bytes", "1000\n"),
            ("/memory/g/memory.failcnt", "3\n"),
            ("/memory/g/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ]);
        let levels = opened(&texts, &["/cpu/g", "/cpuacct/g", "/memory/g"]).unwrap();
        assert_eq!((levels.quota, levels.cpu_time), (Ok(CpuQuota::Cores(0.5)), Ok(Duration::from_micros(5))));
        assert_eq!((levels.memory, levels.memory_limit), (Ok(900), Ok(Some(1000))));
        assert_eq!(levels.memory_events, Ok(MemoryEvents { limit_hits: 3, oom_kills: Some(2) }));
        assert_eq!(levels.task_count, Err(ProbeError::Missing("pids.current".into())));
    }

    #[test]
    fn a_directory_that_is_no_groups_is_refused_before_there_is_any_load() {
        let texts = Texts::new(&[("/etc/hosts", "")]);
        assert_eq!(opened(&texts, &["/etc"]), Err(CgroupError::NotACgroupDirectory("/etc".into())));
        assert_eq!(opened(&texts, &["/gone"]), Err(CgroupError::Unread(ProbeError::Missing("/gone".into()))));
    }

    #[test]
    fn a_file_in_another_form_is_said_to_be_so() {
        let texts = Texts::new(&[("/g/cgroup.procs", ""), ("/g/memory.current", "many\n")]);
        assert_eq!(
            opened(&texts, &["/g"]).unwrap().memory,
            Err(ProbeError::Malformed("/g/memory.current".into()))
        );
    }

    /// Reads the group that the tests run in: every existing file must have a known format.
    #[test]
    fn the_files_of_this_machines_groups_are_in_the_form_that_is_known() {
        let files = seawall_probe::LocalFiles;
        let text = |path| files.read(path).unwrap();
        let (memberships, mounts) = (text("/proc/self/cgroup"), text("/proc/self/mountinfo"));
        let homes = ["cpu", "cpuacct", "memory", "pids"]
            .map(|controller| seawall_cgroup::ProcessCgroup::find(&memberships, &mounts, controller));
        let directories: Vec<_> = homes.into_iter().flatten().map(|home| home.directory).collect();
        let Ok(group) = ServerCgroup::open_directories(&files, &directories) else { return };
        let CgroupSnapshot {
            quota,
            throttling,
            cpu_time: cpu,
            cpu_wait_time: waited,
            memory,
            memory_limit,
            memory_events,
            task_count: processes,
            processes_limit,
        } = group.read(&files);
        let failures =
            [quota.err(), throttling.err(), cpu.err(), waited.err(), memory.err(), memory_limit.err()];
        let failures =
            failures.into_iter().chain([memory_events.err(), processes.err(), processes_limit.err()]);
        let malformed = failures.flatten().filter(|why| matches!(why, ProbeError::Malformed(_)));
        assert_eq!(malformed.collect::<Vec<_>>(), []);
    }

    #[test]
    fn a_group_without_the_cpu_controller_has_no_throttling_and_no_fault() {
        let texts = Texts::new(&[("/g/cgroup.procs", ""), ("/g/cpu.stat", "usage_usec 5\nuser_usec 1\n")]);
        let levels = opened(&texts, &["/g"]).unwrap();
        assert_eq!(levels.throttling, Err(ProbeError::Missing("cpu.max".into())));
        assert_eq!(levels.cpu_time, Ok(Duration::from_micros(5)));
    }
}
