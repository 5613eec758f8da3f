//! A snapshot of all values that are compared before and after a run.

use std::time::Duration;

use crate::file_reader::{HostFiles, ProbeError, ProbeResult, read_parsed};
use crate::net::{
    PORT_RANGE_PATH, Softnet, TcpStackCounters, parse_link_speed, parse_number, parse_port_count,
    parse_time_wait_count,
};
use crate::proc::{OpenFileLimits, parse_pressure_total};
use seawall_cgroup::{
    CgroupVersion, CpuQuota, ProcessCgroup, Throttling, parse_memory_limit, parse_reclaimable_bytes,
};

/// The state of the machine at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineSnapshot {
    /// The time of the snapshot, on a monotonic clock.
    pub at: Duration,
    /// The control groups of this process with a CPU quota, innermost first.
    pub quotas: ProbeResult<Vec<CgroupQuota>>,
    /// The control groups of this process with a memory limit, innermost first.
    pub memory: ProbeResult<Vec<CgroupMemoryUsage>>,
    /// The time that tasks waited for a CPU.
    pub cpu_pressure: ProbeResult<Pressure>,
    /// The time that tasks waited for memory.
    pub memory_pressure: ProbeResult<Pressure>,
    /// The dropped packets and exhausted receive budgets before the network stack.
    pub softnet: ProbeResult<Softnet>,
    /// The TCP error counters.
    pub tcp: ProbeResult<TcpStackCounters>,
    /// The sockets in TIME_WAIT.
    pub time_wait_count: ProbeResult<u64>,
    /// The ephemeral ports for connections from one address to one destination.
    pub ephemeral_port_count: ProbeResult<u64>,
    /// The limits of open files.
    pub open_file_limits: ProbeResult<OpenFileLimits>,
    /// The tracked connections.
    pub conntrack: ProbeResult<Conntrack>,
    /// The network links.
    pub links: ProbeResult<Vec<NetworkLink>>,
}

/// A control group with a CPU quota.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupQuota {
    /// The directory of the group.
    pub directory: String,
    /// The quota in cores.
    pub cores: f64,
    /// The throttling counters of the group.
    pub throttling: Throttling,
}

/// A control group with a memory limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMemoryUsage {
    /// The directory of the group.
    pub directory: String,
    /// The bytes in use, without reclaimable file pages.
    pub used: u64,
    /// The limit in bytes.
    pub limit: u64,
}

/// The time that tasks were delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// The time in which at least one task was delayed.
    pub stalled: Duration,
    /// True if the tasks are those of the whole machine rather than of this process's group.
    pub is_whole_machine: bool,
}

/// The tracked connections of this network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conntrack {
    /// The current number.
    pub count: u64,
    /// The limit.
    pub max: u64,
}

/// A network link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkLink {
    /// The name of the link.
    pub name: String,
    /// The received bytes.
    pub received_bytes: u64,
    /// The sent bytes.
    pub sent_bytes: u64,
    /// The speed in bits per second in each direction, if the device reports one. The speed of a virtual link (a pod's `eth0`) has no
    /// meaning.
    pub bits_per_second: Option<u64>,
}

/// The most links that are read. Further links are those of a node's pods, whose traffic also goes through one of the first links.
const MOST_LINKS: usize = 64;

impl MachineSnapshot {
    /// Reads all values: about thirty small files in about a millisecond.
    #[must_use]
    pub fn take(files: &dyn HostFiles, at: Duration) -> Self {
        let groups = Groups::of(files, OWN);
        Self {
            at,
            quotas: groups.quotas(files),
            memory: groups.memory(files),
            cpu_pressure: groups.pressure(files, "cpu"),
            memory_pressure: groups.pressure(files, "memory"),
            softnet: read_parsed(files, "/proc/net/softnet_stat", Softnet::parse),
            tcp: tcp(files),
            time_wait_count: read_parsed(files, "/proc/net/sockstat", parse_time_wait_count),
            ephemeral_port_count: read_parsed(files, PORT_RANGE_PATH, parse_port_count),
            open_file_limits: read_parsed(files, "/proc/self/limits", OpenFileLimits::parse),
            conntrack: conntrack(files),
            links: links(files),
        }
    }
}

/// Returns the control groups of another process with a CPU quota, innermost first.
///
/// # Errors
/// The groups are unreadable or not visible to this process.
pub fn quotas(files: &dyn HostFiles, process: u32) -> ProbeResult<Vec<CgroupQuota>> {
    let own = format!("/proc/{process}/cgroup");
    // In a cgroup namespace, paths of groups outside it start with `/..` (cgroup_namespaces(7)).
    if read_parsed(files, &own, |text| Some(text.contains("/..")))? {
        return Err(ProbeError::NotApplicable(
            "the mounted cgroup file system does not show the control group of the process",
        ));
    }
    Groups::of(files, &own).quotas(files)
}

/// The group memberships of this process.
const OWN: &str = "/proc/self/cgroup";

/// The control groups of a process.
struct Groups {
    cpu: ProbeResult<ProcessCgroup>,
    memory: ProbeResult<ProcessCgroup>,
    unified: Option<ProcessCgroup>,
}

impl Groups {
    fn of(files: &dyn HostFiles, memberships: &str) -> Self {
        let text = |path| read_parsed(files, path, |text| Some(text.to_owned()));
        let texts =
            text(memberships).and_then(|memberships| Ok((memberships, text("/proc/self/mountinfo")?)));
        let home = |controller| {
            let (memberships, mounts) = texts.as_ref().map_err(ProbeError::clone)?;
            let home = ProcessCgroup::find(memberships, mounts, controller)
                .ok_or(ProbeError::NotApplicable("the file system of the control group is not mounted"))?;
            // Missing files in the directory mean that there is no limit, so the directory itself must exist.
            files.size(&home.directory).map_err(|error| ProbeError::new(&home.directory, &error))?;
            Ok(home)
        };
        let unified = texts.as_ref().ok();
        Self {
            cpu: home("cpu"),
            memory: home("memory"),
            unified: unified.and_then(|(memberships, mounts)| ProcessCgroup::find_v2(memberships, mounts)),
        }
    }

    fn quotas(&self, files: &dyn HostFiles) -> ProbeResult<Vec<CgroupQuota>> {
        let home = self.cpu.as_ref().map_err(ProbeError::clone)?;
        let levels = home.directory_and_ancestors().map(|directory| level(files, home.version, directory));
        levels.filter_map(Result::transpose).collect()
    }

    fn memory(&self, files: &dyn HostFiles) -> ProbeResult<Vec<CgroupMemoryUsage>> {
        let home = self.memory.as_ref().map_err(ProbeError::clone)?;
        let levels = home.directory_and_ancestors().map(|directory| memory(files, home.version, directory));
        levels.filter_map(Result::transpose).collect()
    }

    /// Returns the pressure of the group, or of the machine if the group has none (version 1, or the root group).
    fn pressure(&self, files: &dyn HostFiles, of: &str) -> ProbeResult<Pressure> {
        let own = self.unified.as_ref().filter(|home| home.directory_and_ancestors().nth(1).is_some());
        let own = own.and_then(|home| {
            read_parsed(files, &format!("{}/{of}.pressure", home.directory), parse_pressure_total).ok()
        });
        if let Some(stalled) = own {
            return Ok(Pressure { stalled, is_whole_machine: false });
        }
        let stalled = read_parsed(files, &format!("/proc/pressure/{of}"), parse_pressure_total)?;
        Ok(Pressure { stalled, is_whole_machine: true })
    }
}

/// Returns the quota of a group, if it has one. Missing files mean that this level cannot have a quota.
fn level(files: &dyn HostFiles, version: CgroupVersion, directory: &str) -> ProbeResult<Option<CgroupQuota>> {
    let path = |name| format!("{directory}/{name}");
    let quota = match version {
        CgroupVersion::V2 => read_parsed(files, &path("cpu.max"), CpuQuota::parse_v2),
        CgroupVersion::V1 => read_parsed(files, &path("cpu.cfs_period_us"), |text| Some(text.to_owned()))
            .and_then(|period| {
                read_parsed(files, &path("cpu.cfs_quota_us"), |quota| CpuQuota::parse_v1(quota, &period))
            }),
    };
    let cores = match quota {
        Ok(CpuQuota::Cores(cores)) => cores,
        Ok(CpuQuota::Unlimited) | Err(ProbeError::Missing(_)) => return Ok(None),
        Err(unread) => return Err(unread),
    };
    let throttling = read_parsed(files, &path("cpu.stat"), Throttling::parse)?;
    Ok(Some(CgroupQuota { directory: directory.to_owned(), cores, throttling }))
}

/// Returns the memory of a group, if it has a limit.
fn memory(
    files: &dyn HostFiles,
    version: CgroupVersion,
    directory: &str,
) -> ProbeResult<Option<CgroupMemoryUsage>> {
    let (used, limit) = match version {
        CgroupVersion::V1 => ("memory.usage_in_bytes", "memory.limit_in_bytes"),
        CgroupVersion::V2 => ("memory.current", "memory.max"),
    };
    let path = |name| format!("{directory}/{name}");
    let limit = match read_parsed(files, &path(limit), parse_memory_limit) {
        Ok(Some(limit)) => limit,
        Ok(None) | Err(ProbeError::Missing(_)) => return Ok(None),
        Err(unread) => return Err(unread),
    };
    let reclaimable = read_parsed(files, &path("memory.stat"), parse_reclaimable_bytes).unwrap_or(0);
    let used = read_parsed(files, &path(used), parse_number)?.saturating_sub(reclaimable);
    Ok(Some(CgroupMemoryUsage { directory: directory.to_owned(), used, limit }))
}

fn tcp(files: &dyn HostFiles) -> ProbeResult<TcpStackCounters> {
    let snmp = read_parsed(files, "/proc/net/snmp", |text| Some(text.to_owned()))?;
    read_parsed(files, "/proc/net/netstat", |netstat| TcpStackCounters::parse(netstat, &snmp))
}

fn conntrack(files: &dyn HostFiles) -> ProbeResult<Conntrack> {
    let read =
        |name| read_parsed(files, &format!("/proc/sys/net/netfilter/nf_conntrack_{name}"), parse_number);
    Ok(Conntrack { count: read("count")?, max: read("max")? })
}

fn links(files: &dyn HostFiles) -> ProbeResult<Vec<NetworkLink>> {
    let classes = "/sys/class/net";
    let mut names = files.names(classes).map_err(|error| ProbeError::new(classes, &error))?;
    names.sort_unstable();
    Ok(names.into_iter().take(MOST_LINKS).filter_map(|name| link(files, name)).collect())
}

/// Reads one link; none if it has just gone, or if it is the loopback, which no card limits.
fn link(files: &dyn HostFiles, name: String) -> Option<NetworkLink> {
    if name == "lo" {
        return None;
    }
    let path = |rest| format!("/sys/class/net/{name}/{rest}");
    let count = |rest| read_parsed(files, &path(rest), parse_number).ok();
    let (received, sent) = (count("statistics/rx_bytes")?, count("statistics/tx_bytes")?);
    let is_device = files.size(&path("device")).is_ok();
    let speed = is_device.then(|| read_parsed(files, &path("speed"), parse_link_speed).ok()).flatten();
    Some(NetworkLink { received_bytes: received, sent_bytes: sent, bits_per_second: speed, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_reader::fake::Texts;

    fn take(texts: &Texts) -> MachineSnapshot {
        MachineSnapshot::take(texts, Duration::ZERO)
    }

    fn pod() -> Texts {
        Texts::new(&[
            ("/proc/self/cgroup", "0::/pod7/c1\n"),
            ("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("/sys/fs/cgroup/pod7/c1/cpu.max", "10000 100000\n"),
            (
                "/sys/fs/cgroup/pod7/c1/cpu.stat",
                "usage_usec 5\nnr_periods 40\nnr_throttled 3\nthrottled_usec 9\n",
            ),
            ("/sys/fs/cgroup/pod7/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/pod7/c1/memory.max", "1000\n"),
            ("/sys/fs/cgroup/pod7/c1/memory.current", "900\n"),
            ("/sys/fs/cgroup/pod7/c1/memory.stat", "anon 100\ninactive_file 700\n"),
            ("/sys/fs/cgroup/pod7/c1/cpu.pressure", "some avg10=0.00 total=12\n"),
            ("/proc/pressure/cpu", "some avg10=0.00 total=99\n"),
            ("/proc/pressure/memory", "some avg10=0.00 total=98\n"),
        ])
    }

    #[test]
    fn quotas_of_another_process_are_those_around_it_and_unknown_where_its_group_is_not_shown() {
        let texts = pod();
        texts.set("/proc/7/cgroup", "0::/pod7/c1\n");
        let cores =
            |texts: &Texts| Some(quotas(texts, 7).ok()?.iter().map(|level| level.cores).collect::<Vec<_>>());
        assert_eq!(cores(&texts), Some(vec![0.1]));
        texts.set("/proc/7/cgroup", "0::/pod7\n");
        assert_eq!(cores(&texts), Some(vec![]));
        for elsewhere in ["0::/..\n", "0::/../c2\n", "0::/nowhere\n", ""] {
            texts.set("/proc/7/cgroup", elsewhere);
            assert_eq!(cores(&texts), None, "{elsewhere}");
        }
    }

    #[test]
    fn a_pods_quota_and_memory_are_its_own() {
        let snapshot = take(&pod());
        let throttling =
            Throttling { periods: 40, throttled_periods: 3, throttled_time: Duration::from_micros(9) };
        let directory = "/sys/fs/cgroup/pod7/c1".to_owned();
        let memory = CgroupMemoryUsage { directory: directory.clone(), used: 200, limit: 1000 };
        assert_eq!(snapshot.quotas, Ok(vec![CgroupQuota { directory, cores: 0.1, throttling }]));
        assert_eq!(snapshot.memory, Ok(vec![memory]));
    }

    #[test]
    fn pressure_is_the_groups_where_it_has_one() {
        let snapshot = take(&pod());
        let pressure = |micros, whole_machine| {
            Ok(Pressure { stalled: Duration::from_micros(micros), is_whole_machine: whole_machine })
        };
        assert_eq!(snapshot.cpu_pressure, pressure(12, false));
        assert_eq!(snapshot.memory_pressure, pressure(98, true));
    }

    #[test]
    fn a_quota_around_the_group_is_found_in_version_one() {
        let texts = Texts::new(&[
            ("/proc/self/cgroup", "2:cpu,cpuacct:/pod/c\n"),
            ("/proc/self/mountinfo", "32 31 0:29 / /c rw - cgroup cgroup rw,cpu,cpuacct\n"),
            ("/c/pod/c/cpu.cfs_quota_us", "-1\n"),
            ("/c/pod/c/cpu.cfs_period_us", "100000\n"),
            ("/c/pod/cpu.cfs_quota_us", "50000\n"),
            ("/c/pod/cpu.cfs_period_us", "100000\n"),
            ("/c/pod/cpu.stat", "nr_periods 4\nnr_throttled 1\nthrottled_time 1000\n"),
        ]);
        let quotas = take(&texts).quotas.unwrap();
        assert_eq!(quotas.len(), 1);
        assert_eq!((quotas[0].directory.as_str(), quotas[0].cores), ("/c/pod", 0.5));
    }

    #[test]
    fn the_root_of_version_two_has_no_quota_and_no_limit() {
        let texts = Texts::new(&[
            ("/proc/self/cgroup", "0::/\n"),
            ("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("/sys/fs/cgroup/cpu.stat", "usage_usec 5\n"),
        ]);
        assert_eq!(take(&texts).quotas, Ok(vec![]));
        assert_eq!(take(&texts).memory, Ok(vec![]));
    }

    #[test]
    fn a_group_that_cannot_be_seen_is_not_taken_for_one_without_limits() {
        let texts = pod();
        texts.set("/proc/self/cgroup", "0::/pod8/c1\n");
        let hidden = ProbeError::Missing("/sys/fs/cgroup/pod8/c1".into());
        assert_eq!(take(&texts).quotas, Err(hidden.clone()));
        assert_eq!(take(&texts).memory, Err(hidden));
    }

    #[test]
    fn nothing_is_fine_on_a_machine_that_says_nothing() {
        let MachineSnapshot { quotas, memory, softnet, tcp, conntrack, links, .. } = take(&Texts::new(&[]));
        assert!(quotas.is_err() && memory.is_err() && softnet.is_err() && tcp.is_err());
        assert!(conntrack.is_err() && links.is_err());
    }

    #[test]
    fn a_virtual_links_speed_is_not_believed() {
        let statistics = |name: &str, device: bool| {
            let path = |rest: &str| format!("/sys/class/net/{name}/{rest}");
            let mut texts = vec![
                (path("statistics/rx_bytes"), "1\n"),
                (path("statistics/tx_bytes"), "2\n"),
                (path("speed"), "10000\n"),
            ];
            texts.extend(device.then(|| (path("device"), "")));
            texts
        };
        let texts = [statistics("lo", false), statistics("ens5", true), statistics("veth0", false)].concat();
        let texts: Vec<_> = texts.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let links = take(&Texts::new(&texts)).links.unwrap();
        let speeds: Vec<_> = links.iter().map(|link| (link.name.as_str(), link.bits_per_second)).collect();
        assert_eq!(speeds, [("ens5", Some(10_000_000_000)), ("veth0", None)]);
    }

    /// Only this test reads the files of the real machine: every existing file must have a known format.
    #[test]
    fn the_files_of_this_machine_are_in_the_form_that_is_known() {
        let MachineSnapshot {
            at: _,
            quotas,
            memory,
            cpu_pressure,
            memory_pressure,
            softnet,
            tcp,
            time_wait_count: time_wait,
            ephemeral_port_count: ports,
            open_file_limits: open_files,
            conntrack,
            links,
        } = MachineSnapshot::take(&crate::LocalFiles, Duration::ZERO);
        assert!(open_files.is_ok());
        let failures = [
            quotas.err(),
            memory.err(),
            cpu_pressure.err(),
            memory_pressure.err(),
            softnet.err(),
            tcp.err(),
            time_wait.err(),
            ports.err(),
            conntrack.err(),
            links.err(),
        ];
        let malformed = failures.into_iter().flatten().filter(|why| matches!(why, ProbeError::Malformed(_)));
        assert_eq!(malformed.collect::<Vec<_>>(), []);
    }
}
