//! CPU throttling by the quota of a control group, from the kernel's `cpu.stat` (cgroup version 1 or 2).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The CPU throttling of a control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuThrottling {
    /// Periods in which something wanted to run.
    pub periods: u64,
    /// Periods in which the group was throttled.
    pub throttled_periods: u64,
    /// The time for which the group was throttled, added up over all CPUs.
    pub throttled_time: Duration,
}

impl CpuThrottling {
    /// Combines nested groups with the same quota, such as that of a pod and of its only container. Either group can be the one
    /// that throttles, and in some periods both do. The maximum of each figure is taken, which is rather too little than too
    /// much. Paths are below the root of the tree.
    pub(super) fn max_of_cgroups(groups: &[String]) -> Self {
        let files = groups.iter().map(|group| tree().join(group).join("cpu.stat"));
        let each = files.map(|file| {
            let text =
                fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            Self::parse(&text)
        });
        each.fold(Self::default(), |all, one| Self {
            periods: all.periods.max(one.periods),
            throttled_periods: all.throttled_periods.max(one.throttled_periods),
            throttled_time: all.throttled_time.max(one.throttled_time),
        })
    }

    /// Parses the text of `cpu.stat`: version 1 has nanoseconds, version 2 microseconds (Documentation/scheduler/sched-bwc.rst).
    fn parse(text: &str) -> Self {
        let value = |key| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
        let nanos = value("throttled_time ").map(Duration::from_nanos);
        let micros = value("throttled_usec ").map(Duration::from_micros);
        Self {
            periods: value("nr_periods ").unwrap_or(0),
            throttled_periods: value("nr_throttled ").unwrap_or(0),
            throttled_time: nanos.or(micros).unwrap_or_default(),
        }
    }
}

/// Returns the root of the tree of control groups that has the quotas.
fn tree() -> PathBuf {
    let first = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new);
    first.into_iter().find(|tree| tree.join("cpu.stat").exists()).unwrap_or(first[1]).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_read() {
        let first = "nr_periods 42\nnr_throttled 40\nthrottled_time 3500000000\nnr_bursts 0\n";
        let second = "usage_usec 9\nnr_periods 42\nnr_throttled 40\nthrottled_usec 3500000\n";
        let expected =
            CpuThrottling { periods: 42, throttled_periods: 40, throttled_time: Duration::from_millis(3500) };
        assert_eq!([first, second].map(CpuThrottling::parse), [expected; 2]);
    }
}
