//! Parses the files that describe the cgroups of a process: cgroup v1, v2, and both at once.
//!
//! The crate does no I/O. It turns text into values, and no text causes a panic. Other crates read the files: `probe` for the
//! machine of the load generator, `lab` for the target of a load, and the agent for its own limits.
//!
//! Formats: Linux `cgroups(7)`, `proc_pid_mountinfo(5)`, `Documentation/admin-guide/cgroup-v2.rst`,
//! `Documentation/admin-guide/cgroup-v1/memory.rst`, `Documentation/scheduler/sched-bwc.rst`.

use std::borrow::Cow;
use std::time::Duration;

/// The version of a cgroup. The files of the two versions differ in names and units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// Version 1: one hierarchy per controller.
    V1,
    /// Version 2: one hierarchy for all controllers.
    V2,
}

/// The directory of a cgroup to which a process belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessCgroup {
    /// The version of the cgroup.
    pub version: CgroupVersion,
    /// The directory with the cgroup's files.
    pub directory: String,
    /// The length of the mount point, which is the first part of `directory`. The process sees no directory above the mount
    /// point.
    mount: usize,
}

/// The maximum number of directories that [`ProcessCgroup::directory_and_ancestors`] returns. This limits the number of reads. Real cgroups
/// are nested less deeply.
const DEEPEST: usize = 16;

impl ProcessCgroup {
    /// Finds the cgroup of a process for one controller. `memberships` is the text of `/proc/PID/cgroup`, and `mounts` is the
    /// text of `/proc/PID/mountinfo`. If the controller is mounted in version 1, this function returns the cgroup in the
    /// controller's hierarchy. Otherwise the function returns the cgroup of version 2.
    #[must_use]
    pub fn find(memberships: &str, mounts: &str, controller: &str) -> Option<Self> {
        Self::find_v1(memberships, mounts, controller).or_else(|| Self::find_v2(memberships, mounts))
    }

    fn find_v1(memberships: &str, mounts: &str, controller: &str) -> Option<Self> {
        let has = |list: &str| list.split(',').any(|name| name == controller);
        let path = memberships.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            has(controllers).then_some(path)
        })?;
        let mounts = mounts.lines().filter_map(Mount::parse);
        Self::below(
            CgroupVersion::V1,
            path,
            mounts.filter(|mount| mount.kind == "cgroup" && has(mount.options)),
        )
    }

    /// Finds the cgroup of a process in the hierarchy of version 2. A machine with version 1 can have this hierarchy, too.
    #[must_use]
    pub fn find_v2(memberships: &str, mounts: &str) -> Option<Self> {
        let path = memberships.lines().find_map(|line| line.strip_prefix("0::"))?;
        let mounts = mounts.lines().filter_map(Mount::parse);
        Self::below(CgroupVersion::V2, path, mounts.filter(|mount| mount.kind == "cgroup2"))
    }

    /// Returns the directory of `path` below the mount that shows the largest part of the tree.
    /// A mount can show only a part of the tree, for example only the part of a container. In that case, `path` begins with the
    /// mount's root.
    fn below<'a>(
        version: CgroupVersion,
        path: &str,
        mounts: impl Iterator<Item = Mount<'a>>,
    ) -> Option<Self> {
        let candidates = mounts.filter_map(|mount| {
            let rest = match &*mount.root {
                "/" => path,
                root => path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'))?,
            };
            let directory = format!("{}{}", mount.point, rest.trim_end_matches('/'));
            Some((mount.root.len(), Self { version, directory, mount: mount.point.len() }))
        });
        candidates.min_by_key(|(root, _)| *root).map(|(_, home)| home)
    }

    /// Returns the directories of the cgroup and its ancestors, innermost first. The limits of all these cgroups apply to the
    /// process.
    pub fn directory_and_ancestors(&self) -> impl Iterator<Item = &str> {
        let visible = |directory: &&str| directory.len() >= self.mount;
        std::iter::successors(Some(self.directory.as_str()), outward).take_while(visible).take(DEEPEST)
    }
}

fn outward<'a>(directory: &&'a str) -> Option<&'a str> {
    directory.rsplit_once('/').map(|(outer, _)| outer)
}

/// A line of `/proc/self/mountinfo`.
struct Mount<'a> {
    root: Cow<'a, str>,
    point: Cow<'a, str>,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        // The line has a variable number of optional fields in the middle. A dash ends these fields.
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        Some(Self { root: unescaped(root), point: unescaped(point), kind, options })
    }
}

/// Decodes the escapes of mountinfo. The kernel writes a space, tab, newline or backslash as a backslash and three octal digits.
fn unescaped(field: &str) -> Cow<'_, str> {
    if !field.contains('\\') {
        return Cow::Borrowed(field);
    }
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    Cow::Owned(escapes.iter().fold(field.to_owned(), |text, (escape, plain)| text.replace(escape, plain)))
}

/// The CPU throttling of a cgroup, which happens when the cgroup has used up its CPU quota. Both versions report the throttling
/// in `cpu.stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttling {
    /// The number of periods in which a task of the cgroup ran.
    pub periods: u64,
    /// The number of periods in which the cgroup was throttled.
    pub throttled_periods: u64,
    /// The time for which the cgroup was throttled, summed over all CPUs.
    pub throttled_time: Duration,
}

impl Throttling {
    /// Reads `cpu.stat`. Returns `None` for a cgroup that cannot have a quota: the root of version 2, and a cgroup without the
    /// CPU controller.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let stopped = field(text, "throttled_usec")
            .map(Duration::from_micros)
            .or_else(|| field(text, "throttled_time").map(Duration::from_nanos))?;
        Some(Self {
            periods: field(text, "nr_periods")?,
            throttled_periods: field(text, "nr_throttled")?,
            throttled_time: stopped,
        })
    }
}

/// Reads the CPU time of a cgroup and its descendants, from version 2's `cpu.stat` or version 1's `cpuacct.usage`.
#[must_use]
pub fn parse_cpu_time(text: &str) -> Option<Duration> {
    let two = field(text, "usage_usec").map(Duration::from_micros);
    two.or_else(|| text.trim().parse().ok().map(Duration::from_nanos))
}

/// A CPU quota, in cores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CpuQuota {
    /// The cgroup has no quota.
    Unlimited,
    /// The quota in cores, such as 0.1 for Kubernetes' `100m`.
    Cores(f64),
}

impl CpuQuota {
    /// Reads version 2's `cpu.max`: the quota (or `max`) and the period.
    #[must_use]
    pub fn parse_v2(text: &str) -> Option<Self> {
        let (quota, period) = text.trim().split_once(' ')?;
        if quota == "max" { Some(Self::Unlimited) } else { Self::of(quota, period) }
    }

    /// Reads version 1's `cpu.cfs_quota_us` (-1 for no quota) and `cpu.cfs_period_us`.
    #[must_use]
    pub fn parse_v1(quota: &str, period: &str) -> Option<Self> {
        if quota.trim() == "-1" { Some(Self::Unlimited) } else { Self::of(quota, period) }
    }

    fn of(quota: &str, period: &str) -> Option<Self> {
        let (quota, period): (u32, u32) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
        (period > 0).then(|| Self::Cores(f64::from(quota) / f64::from(period)))
    }
}

/// The smallest value of `memory.limit_in_bytes` that means "no limit". For a cgroup without a limit, version 1 reports the
/// largest multiple of the page size that fits into 63 bits.
const NO_LIMIT: u64 = 1 << 62;

/// Reads a memory limit in bytes: `memory.max` or `memory.limit_in_bytes`.
///
/// The outer `None` means that the text is not a limit. The inner `None` means that there is no limit.
#[must_use]
pub fn parse_memory_limit(text: &str) -> Option<Option<u64>> {
    match text.trim() {
        "max" => Some(None),
        number => number.parse().ok().map(|limit| Some(limit).filter(|limit| *limit < NO_LIMIT)),
    }
}

/// Reads from `memory.stat` the size of the cached file pages that the kernel can reclaim at any moment. The kubelet also
/// subtracts these bytes from a pod's memory use (`inactive_file`; in version 1 `total_inactive_file`, which includes the
/// cgroup's descendants).
#[must_use]
pub fn parse_reclaimable_bytes(text: &str) -> Option<u64> {
    field(text, "total_inactive_file").or_else(|| field(text, "inactive_file"))
}

/// The counters of memory shortages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    /// The number of times that the cgroup reached its memory limit. Each time, the kernel had to reclaim pages before it could
    /// grant more memory.
    pub limit_hits: u64,
    /// The number of processes that the OOM killer ended. `None` if the kernel does not count these processes (version 1 before
    /// Linux 4.13).
    pub oom_kills: Option<u64>,
}

impl MemoryEvents {
    /// Reads version 2's `memory.events`.
    #[must_use]
    pub fn parse_v2(text: &str) -> Option<Self> {
        Some(Self { limit_hits: field(text, "max")?, oom_kills: field(text, "oom_kill") })
    }

    /// Reads version 1's `memory.failcnt` and `memory.oom_control`.
    #[must_use]
    pub fn parse_v1(failures: &str, control: &str) -> Option<Self> {
        Some(Self { limit_hits: failures.trim().parse().ok()?, oom_kills: field(control, "oom_kill") })
    }
}

/// Reads `pids.max`: the maximum number of processes and threads of a cgroup.
///
/// The outer `None` means that the text is not a limit. The inner `None` means that there is no limit.
#[must_use]
pub fn parse_processes_limit(text: &str) -> Option<Option<u64>> {
    match text.trim() {
        "max" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// Returns the value of `name` in a text whose lines contain a name and a value.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "\
        27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 master:2 - cgroup cgroup rw,cpu,cpuacct\n\
        34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const HYBRID_SELF: &str =
        "4:memory:/user.slice\n2:cpu,cpuacct:/user.slice/a b\n0::/user.slice/session-2.scope\n";

    fn directory(memberships: &str, mounts: &str, controller: &str) -> String {
        ProcessCgroup::find(memberships, mounts, controller).unwrap().directory
    }

    #[test]
    fn version_two_has_one_path() {
        let home = ProcessCgroup::find("0::/kubepods.slice/pod7/c1\n", V2, "cpu").unwrap();
        assert_eq!(home.version, CgroupVersion::V2);
        let levels: Vec<_> = home.directory_and_ancestors().collect();
        let top = "/sys/fs/cgroup";
        let expected = ["/kubepods.slice/pod7/c1", "/kubepods.slice/pod7", "/kubepods.slice", ""];
        assert_eq!(levels, expected.map(|rest| format!("{top}{rest}")));
    }

    #[test]
    fn a_container_with_its_own_namespace_is_at_the_root() {
        let home = ProcessCgroup::find("0::/\n", V2, "memory").unwrap();
        assert_eq!(home.directory_and_ancestors().collect::<Vec<_>>(), ["/sys/fs/cgroup"]);
    }

    #[test]
    fn a_controller_of_version_one_wins_on_a_hybrid_machine() {
        assert_eq!(directory(HYBRID_SELF, HYBRID, "cpu"), "/sys/fs/cgroup/cpu,cpuacct/user.slice/a b");
        assert_eq!(directory(HYBRID_SELF, HYBRID, "memory"), "/sys/fs/cgroup/memory/user.slice");
        let two = ProcessCgroup::find_v2(HYBRID_SELF, HYBRID).unwrap();
        assert_eq!(two.directory, "/sys/fs/cgroup/unified/user.slice/session-2.scope");
        assert_eq!(two.directory_and_ancestors().count(), 3);
    }

    #[test]
    fn cpuset_is_not_cpu() {
        let mounts = "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
        assert_eq!(ProcessCgroup::find("3:cpuset:/x\n", mounts, "cpu"), None);
    }

    /// In a version 1 container without a cgroup namespace, the path is the host's, and the mount shows only the container's
    /// part.
    #[test]
    fn a_mount_that_shows_a_part_of_the_tree_is_taken_off_the_path() {
        let mounts = "50 49 0:29 /docker/4f\\040x /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        assert_eq!(directory("1:cpu:/docker/4f x/inner\n", mounts, "cpu"), "/sys/fs/cgroup/cpu/inner");
        assert_eq!(directory("1:cpu:/docker/4f x\n", mounts, "cpu"), "/sys/fs/cgroup/cpu");
        assert_eq!(ProcessCgroup::find("1:cpu:/docker/4f xy\n", mounts, "cpu"), None, "another container");
    }

    #[test]
    fn no_group_is_found_where_there_is_none() {
        assert_eq!(ProcessCgroup::find("", "", "cpu"), None);
        assert_eq!(ProcessCgroup::find("0::/\n", "", "cpu"), None);
        assert_eq!(ProcessCgroup::find("nonsense\n0::/\n", "also nonsense - \n", "cpu"), None);
    }

    #[test]
    fn throttling_is_in_microseconds_or_nanoseconds() {
        let two =
            "usage_usec 9945\nuser_usec 1\nnr_periods 40\nnr_throttled 3\nthrottled_usec 1500\nnr_bursts 0\n";
        let one = "nr_periods 40\nnr_throttled 3\nthrottled_time 1500000\nnr_bursts 0\nburst_time 0\n";
        let expected =
            Throttling { periods: 40, throttled_periods: 3, throttled_time: Duration::from_micros(1500) };
        assert_eq!(Throttling::parse(two), Some(expected));
        assert_eq!(Throttling::parse(one), Some(expected));
        assert_eq!(Throttling::parse("usage_usec 9945\nuser_usec 1\n"), None, "the root of version 2");
    }

    #[test]
    fn a_quota_is_a_number_of_cores() {
        assert_eq!(CpuQuota::parse_v2("max 100000\n"), Some(CpuQuota::Unlimited));
        assert_eq!(CpuQuota::parse_v2("10000 100000\n"), Some(CpuQuota::Cores(0.1)));
        assert_eq!(CpuQuota::parse_v2("10000\n"), None);
        assert_eq!(CpuQuota::parse_v1("-1\n", "100000\n"), Some(CpuQuota::Unlimited));
        assert_eq!(CpuQuota::parse_v1("150000\n", "100000\n"), Some(CpuQuota::Cores(1.5)));
        assert_eq!(CpuQuota::parse_v1("1\n", "0\n"), None);
    }

    #[test]
    fn memory_without_a_limit_is_said_in_two_ways() {
        assert_eq!(parse_memory_limit("max\n"), Some(None));
        assert_eq!(parse_memory_limit("9223372036854771712\n"), Some(None));
        assert_eq!(parse_memory_limit("26214400\n"), Some(Some(26_214_400)));
        assert_eq!(parse_memory_limit("\n"), None);
    }

    #[test]
    fn reclaimable_memory_counts_the_children() {
        assert_eq!(
            parse_reclaimable_bytes("inactive_file 24576\ntotal_inactive_file 3412013056\n"),
            Some(3_412_013_056)
        );
        assert_eq!(parse_reclaimable_bytes("anon 1\ninactive_file 24576\n"), Some(24_576));
    }

    #[test]
    fn cpu_time_is_in_microseconds_or_nanoseconds() {
        let two = "usage_usec 2871693\nuser_usec 2000000\nsystem_usec 871693\nnr_periods 40\n";
        assert_eq!(parse_cpu_time(two), Some(Duration::from_micros(2_871_693)));
        assert_eq!(parse_cpu_time("2871693000\n"), Some(Duration::from_micros(2_871_693)));
        assert_eq!(parse_cpu_time("nr_periods 40\n"), None, "version 1's cpu.stat has no CPU time");
    }

    #[test]
    fn memory_that_ran_out_is_counted_in_both_versions() {
        let expected = MemoryEvents { limit_hits: 41, oom_kills: Some(1) };
        let two = "low 0\nhigh 0\nmax 41\noom 3\noom_kill 1\noom_group_kill 0\n";
        assert_eq!(MemoryEvents::parse_v2(two), Some(expected));
        let control = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
        assert_eq!(MemoryEvents::parse_v1("41\n", control), Some(expected));
        assert_eq!(MemoryEvents::parse_v1("41\n", "under_oom 0\n").unwrap().oom_kills, None);
        assert_eq!(MemoryEvents::parse_v2("low 0\n"), None);
        assert_eq!(MemoryEvents::parse_v1("\n", control), None);
    }

    #[test]
    fn processes_may_be_unlimited() {
        assert_eq!(parse_processes_limit("max\n"), Some(None));
        assert_eq!(parse_processes_limit("110\n"), Some(Some(110)));
        assert_eq!(parse_processes_limit("-1\n"), None);
    }
}
