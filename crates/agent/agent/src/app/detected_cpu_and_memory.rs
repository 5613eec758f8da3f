//! Detects the memory limit and the CPU limit of this process when the agent starts.
//!
//! `client_caps` computes the caps for clients from the memory limit. The server's `cpu_pacer` keeps the CPU use below the CPU
//! quota. The container's cgroup and each of its ancestors can have a limit; the smallest limit applies. If the agent cannot read
//! a limit, it assumes that there is no limit. A laptop has no limit, and with a guessed limit the agent would refuse clients for
//! no reason.

use std::fs::File;
use std::io::Read;

use seawall_cgroup::{CgroupVersion, CpuQuota, ProcessCgroup, parse_memory_limit};

/// The maximum number of bytes that the agent reads from one file of `/proc` or of a cgroup. Real files are shorter: on a node with thousands of
/// mounts, `mountinfo` has about 1 MiB.
const LONGEST: u64 = 4 << 20;

/// The limits of this process, as far as the agent can detect them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DetectedLimits {
    /// The memory in bytes above which the kernel kills the process.
    pub(crate) memory_limit: Option<u64>,
    /// The CPU quota as a number of cores. For example, the Kubernetes limit `500m` is 0.5.
    pub(crate) cpu_quota_cores: Option<f64>,
}

impl DetectedLimits {
    /// Detects the limits of this process.
    pub(crate) fn detect() -> Self {
        Self::of(&read_file_or_none)
    }

    fn of(read: &dyn Fn(&str) -> Option<String>) -> Self {
        let texts = read("/proc/self/cgroup").zip(read("/proc/self/mountinfo"));
        let home = |controller| {
            texts.as_ref().and_then(|(own, mounts)| ProcessCgroup::find(own, mounts, controller))
        };
        let memory = home("memory").and_then(|home| {
            let name = match home.version {
                CgroupVersion::V1 => "memory.limit_in_bytes",
                CgroupVersion::V2 => "memory.max",
            };
            home.directory_and_ancestors()
                .filter_map(|level| parse_memory_limit(&read(&format!("{level}/{name}"))?)?)
                .min()
        });
        let cores = home("cpu").and_then(|home| {
            home.directory_and_ancestors()
                .filter_map(|level| cores(read, home.version, level))
                .reduce(f64::min)
        });
        Self { memory_limit: memory, cpu_quota_cores: cores }
    }
}

fn cores(read: &dyn Fn(&str) -> Option<String>, version: CgroupVersion, level: &str) -> Option<f64> {
    let file = |name: &str| read(&format!("{level}/{name}"));
    let quota = match version {
        CgroupVersion::V1 => CpuQuota::parse_v1(&file("cpu.cfs_quota_us")?, &file("cpu.cfs_period_us")?),
        CgroupVersion::V2 => CpuQuota::parse_v2(&file("cpu.max")?),
    };
    match quota? {
        CpuQuota::Cores(cores) => Some(cores),
        CpuQuota::Unlimited => None,
    }
}

/// Returns the text of a file, or `None` if the agent cannot read the file.
pub(crate) fn read_file_or_none(path: &str) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> DetectedLimits {
        DetectedLimits::of(&|path| {
            files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_least_limit_of_all_groups_around_counts() {
        let found = machine(&[
            ("/proc/self/cgroup", "0::/pod7/c1\n"),
            ("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("/sys/fs/cgroup/pod7/c1/memory.max", "max\n"),
            ("/sys/fs/cgroup/pod7/memory.max", "26214400\n"),
            ("/sys/fs/cgroup/pod7/c1/cpu.max", "50000 100000\n"),
            ("/sys/fs/cgroup/pod7/cpu.max", "200000 100000\n"),
        ]);
        assert_eq!(found, DetectedLimits { memory_limit: Some(26_214_400), cpu_quota_cores: Some(0.5) });
    }

    #[test]
    fn version_one_is_read_by_controller() {
        let found = machine(&[
            ("/proc/self/cgroup", "4:memory:/a\n1:cpu,cpuacct:/b\n0::/\n"),
            (
                "/proc/self/mountinfo",
                "31 30 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                 32 30 0:28 / /cg/memory rw - cgroup cgroup rw,memory\n",
            ),
            ("/cg/memory/a/memory.limit_in_bytes", "26214400\n"),
            ("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/cg/cpu/b/cpu.cfs_quota_us", "3000\n"),
            ("/cg/cpu/b/cpu.cfs_period_us", "100000\n"),
            ("/cg/cpu/cpu.cfs_quota_us", "-1\n"),
            ("/cg/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(found, DetectedLimits { memory_limit: Some(26_214_400), cpu_quota_cores: Some(0.03) });
    }

    #[test]
    fn what_cannot_be_read_is_no_limit() {
        assert_eq!(machine(&[]), DetectedLimits::default());
        assert_eq!(
            machine(&[("/proc/self/cgroup", "nonsense"), ("/proc/self/mountinfo", "")]),
            DetectedLimits::default()
        );
    }
}
