//! Parses threads, limits and pressure in `/proc` (Linux `proc_pid_stat(5)`, `proc_pid_limits(5)`,
//! `Documentation/scheduler/sched-stats.rst`, `Documentation/accounting/psi.rst`).

use std::time::Duration;

/// The length of a tick in `/proc/*/stat`. USER_HZ is 100 on every architecture of Rust, independent of the kernel's HZ
/// (`include/asm-generic/param.h`).
const TICK: Duration = Duration::from_millis(10);

/// A thread in `/proc/self/task/*/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadStat {
    /// The name, at most 15 bytes.
    pub name: String,
    /// The CPU time in user and kernel mode, in steps of 10 ms.
    pub cpu_time: Duration,
}

impl ThreadStat {
    /// Parses the line. A name may contain spaces and parentheses, so the last parenthesis ends it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (start, rest) = text.rsplit_once(')')?;
        let (_, name) = start.split_once('(')?;
        // The times are fields 14 and 15. The remaining text starts with field 3, the state.
        let mut times = rest.split_ascii_whitespace().skip(11).map(str::parse::<u32>);
        let (user, system) = (times.next()?.ok()?, times.next()?.ok()?);
        Some(Self { name: name.to_owned(), cpu_time: TICK * user + TICK * system })
    }
}

/// A thread in `/proc/self/task/*/schedstat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedStat {
    /// The time on a CPU.
    pub on_cpu_time: Duration,
    /// The time in which the thread was ready but waited for a CPU.
    pub waited: Duration,
}

impl SchedStat {
    /// Parses the line: nanoseconds on a CPU, nanoseconds in the run queue, times on a CPU.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
        let (on_cpu, waited) = (fields.next()?.ok()?, fields.next()?.ok()?);
        Some(Self { on_cpu_time: Duration::from_nanos(on_cpu), waited: Duration::from_nanos(waited) })
    }
}

/// The limits of open files; [`u64::MAX`] means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFileLimits {
    /// The current limit.
    pub soft: u64,
    /// The limit up to which the program may raise the current one.
    pub hard: u64,
}

impl OpenFileLimits {
    /// Parses `/proc/self/limits`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let mut limits = line.split_ascii_whitespace().map(|limit| match limit {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        });
        Some(Self { soft: limits.next()??, hard: limits.next()?? })
    }
}

/// Returns whether processes of other users are hidden: `/proc` is mounted with `hidepid=2` (Linux
/// `Documentation/filesystems/proc.rst`), and this process lacks CAP_SYS_PTRACE. The arguments are the texts of
/// `/proc/self/mountinfo` and `/proc/self/status`.
#[must_use]
pub fn hides_processes(mounts: &str, status: &str) -> bool {
    let is_proc = |line: &&str| line.split(' ').nth(4) == Some("/proc");
    // The last mount at a path hides the earlier ones.
    let options = mounts.lines().rfind(is_proc).and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
    let hides = options.split(',').any(|option| {
        ["hidepid=2", "hidepid=invisible", "hidepid=4", "hidepid=ptraceable"].contains(&option)
    });
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let may_look = capabilities
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set >> SYS_PTRACE & 1 == 1);
    hides && !may_look
}

/// The number of the capability (`include/uapi/linux/capability.h`).
const SYS_PTRACE: u32 = 19;

/// Returns the time in which at least one task was delayed, since the start of the machine or group: the `total` of the `some`
/// line.
///
/// The averages on that line are not used, because earlier load affects them in a short run.
#[must_use]
pub fn parse_pressure_total(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_ascii_whitespace().find_map(|field| field.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "31425 (sender 0) R 31422 31422 30584 0 -1 4194304 98 0 0 0 417 83 0 0 20 0 3 0 692290 3133440 \
                        358 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn a_thread_has_a_name_and_cpu_time() {
        let cpu_time = Duration::from_secs(5);
        assert_eq!(ThreadStat::parse(STAT), Some(ThreadStat { name: "sender 0".into(), cpu_time }));
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = STAT.replace("sender 0", "a) R 1 (b");
        assert_eq!(ThreadStat::parse(&stat).unwrap().name, "a) R 1 (b");
        assert_eq!(ThreadStat::parse(&stat).unwrap().cpu_time, Duration::from_secs(5));
    }

    #[test]
    fn a_line_that_is_cut_is_no_thread() {
        for length in 0..STAT.find(" 83 ").unwrap() {
            assert_eq!(ThreadStat::parse(&STAT[..length]), None);
        }
    }

    #[test]
    fn schedstat_is_in_nanoseconds() {
        let stat = SchedStat::parse("161831 3182069 2\n").unwrap();
        assert_eq!((stat.on_cpu_time.as_nanos(), stat.waited.as_nanos()), (161_831, 3_182_069));
        assert_eq!(SchedStat::parse(""), None);
        assert_eq!(SchedStat::parse("-1 0 0"), None);
    }

    #[test]
    fn open_files_may_be_unlimited() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             96365                96365                processes \n\
                      Max open files            1024                 unlimited            files     \n";
        assert_eq!(OpenFileLimits::parse(limits), Some(OpenFileLimits { soft: 1024, hard: u64::MAX }));
        assert_eq!(OpenFileLimits::parse("Max processes 1 1\n"), None);
    }

    #[test]
    fn processes_are_hidden_by_the_mount_unless_this_one_may_look_at_all() {
        let mount = |options: &str| {
            format!(
                "30 23 0:26 / /sys rw - sysfs sysfs rw\n40 23 0:5 / /proc rw,nosuid - proc proc {options}\n"
            )
        };
        let (none, root) = ("Name:\tx\nCapEff:\t0000000000000000\n", "CapEff:\t000001ffffffffff\n");
        for hidden in ["rw,hidepid=2", "rw,gid=7,hidepid=invisible", "rw,hidepid=ptraceable"] {
            assert!(
                hides_processes(&mount(hidden), none) && !hides_processes(&mount(hidden), root),
                "{hidden}"
            );
        }
        for shown in ["rw", "rw,hidepid=1", "rw,hidepid=noaccess"] {
            assert!(!hides_processes(&mount(shown), none), "{shown}");
        }
        assert!(!hides_processes("", none));
    }

    #[test]
    fn pressure_is_the_total_of_some() {
        let text = "some avg10=25.09 avg60=47.21 avg300=72.56 total=2981943302\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse_pressure_total(text), Some(Duration::from_micros(2_981_943_302)));
        assert_eq!(parse_pressure_total("full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"), None);
        assert_eq!(parse_pressure_total(""), None, "what a kernel with psi=0 says");
    }
}
