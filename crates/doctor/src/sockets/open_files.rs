//! Judges the open files of each readable process, and of the machine, against their limits.

use seawall_probe::file_reader::{HostFiles, ProbeError, ProbeResult, read_parsed};
use seawall_probe::proc::{OpenFileLimits, hides_processes};

use super::FILES;
use crate::finding::{DoctorFinding, DoctorStatus};

/// The most processes that the check reads, so that it ends on a crowded node.
const MOST: usize = 4096;

/// Above this share, the next burst reaches the limit.
const NEARLY: f64 = 80.0;
/// Above this share, the rest is needed for logs and lookups.
const FULL: f64 = 95.0;

/// The open files of a process or of the machine.
struct DescriptorUse {
    whose: String,
    open: u64,
    limit: u64,
}

impl DescriptorUse {
    fn share(&self) -> f64 {
        self.open as f64 * 100.0 / self.limit.max(1) as f64
    }
}

/// Judges the process, or the machine, that is nearest to its limit.
pub(super) fn judge(files: &dyn HostFiles) -> DoctorFinding {
    let fix = "look at ls /proc/PID/fd | wc -l and /proc/PID/limits as root, or as the user of the process";
    let (seen, unseen) = match processes(files) {
        Ok(found) => found,
        Err(why) => return DoctorFinding::unknown(FILES, &why, fix),
    };
    let hides = may_hide_processes(files);
    let count = seen.len();
    let Some(worst) =
        seen.into_iter().chain(machine(files)).max_by(|one, other| one.share().total_cmp(&other.share()))
    else {
        return DoctorFinding::unknown(
            FILES,
            &ProbeError::NotApplicable("this user cannot read the open files of any process"),
            fix,
        );
    };
    let others = match (unseen, hides) {
        (0, false) => String::new(),
        (0, true) => "; processes of other users are hidden (hidepid)".to_owned(),
        (1, _) => "; the check could not read the open files of 1 other process".to_owned(),
        _ => format!("; the check could not read the open files of {unseen} other processes"),
    };
    let text = format!(
        "{} has {} of {} files open and is nearest to its limit among {count} {} and the machine{others}",
        worst.whose,
        worst.open,
        worst.limit,
        if count == 1 { "process" } else { "processes" }
    );
    let found = DoctorFinding::ok(FILES, text)
        .with_measurement("open", worst.open as f64, "files")
        .with_measurement("share", worst.share(), "%")
        .with_measurement("unseen", unseen as f64, "processes");
    let status = match worst.share() {
        share if share >= FULL => DoctorStatus::Error,
        share if share >= NEARLY => DoctorStatus::Warning,
        _ if unseen > 0 || hides => {
            return found.with_status(DoctorStatus::Unknown, "a hidden process may be at its limit", fix);
        }
        _ => return found,
    };
    found.with_status(
        status,
        "at the limit, opening a connection or a file fails (EMFILE): accept fails, and connections wait or are dropped",
        "raise the limit (LimitNOFILE= of the service or container runtime, ulimit -n), or find connections that are never closed (ls -l /proc/PID/fd)",
    )
}

/// Returns the open files of the readable processes, and the number of unreadable ones.
fn processes(files: &dyn HostFiles) -> ProbeResult<(Vec<DescriptorUse>, usize)> {
    let names = files.names("/proc").map_err(|error| ProbeError::new("/proc", &error))?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let (mut seen, mut unseen) = (Vec::new(), numbers.len().saturating_sub(MOST));
    for number in numbers.into_iter().take(MOST) {
        match process(files, number) {
            Ok(used) => seen.push(used),
            // The process has just ended.
            Err(ProbeError::Missing(_)) => {}
            Err(_) if is_without_files(files, number) => {}
            Err(_) => unseen += 1,
        }
    }
    Ok((seen, unseen))
}

/// Returns whether the process is a kernel thread or a zombie. Neither has open files, and neither has a memory line in its
/// status (`task_mem`, Linux `fs/proc/task_mmu.c`).
fn is_without_files(files: &dyn HostFiles, number: u32) -> bool {
    files.read(&format!("/proc/{number}/status")).is_ok_and(|status| !status.contains("\nVmSize:"))
}

/// Returns whether the system may hide whole processes.
pub(crate) fn may_hide_processes(files: &dyn HostFiles) -> bool {
    let [mounts, status] =
        ["mountinfo", "status"].map(|name| files.read(&format!("/proc/self/{name}")).unwrap_or_default());
    hides_processes(&mounts, &status)
}

fn process(files: &dyn HostFiles, number: u32) -> ProbeResult<DescriptorUse> {
    let path = |name: &str| format!("/proc/{number}/{name}");
    let limit = read_parsed(files, &path("limits"), OpenFileLimits::parse)?.soft;
    let name = files.read(&path("comm")).unwrap_or_default();
    Ok(DescriptorUse {
        whose: format!("{} (process {number})", name.trim_end()),
        open: open(files, &path("fd"))?,
        limit,
    })
}

/// Returns the number of open files, which is the size of the directory since Linux 6.2 (`Documentation/filesystems/proc.rst`).
fn open(files: &dyn HostFiles, directory: &str) -> ProbeResult<u64> {
    let unread = |error| ProbeError::new(directory, &error);
    let names = files.names(directory).map_err(unread)?.len() as u64;
    Ok(names.max(files.size(directory).map_err(unread)?))
}

/// Returns the open files of the machine. `file-nr` has the open files, a zero, and the limit
/// (`Documentation/admin-guide/sysctl/fs.rst`).
fn machine(files: &dyn HostFiles) -> Option<DescriptorUse> {
    let text = files.read("/proc/sys/fs/file-nr").ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    let (open, limit) = (numbers.next()?.ok()?, numbers.nth(1)?.ok()?);
    Some(DescriptorUse { whose: "the machine".to_owned(), open, limit })
}
