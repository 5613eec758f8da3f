//! Open files against their limits: of each process that may be looked at, and of the machine.

use seawall_probe::files::{Files, Reading, Unread, parsed};
use seawall_probe::proc::OpenFiles;

use super::FILES;
use crate::finding::{Finding, Verdict};

/// Processes beyond this are not looked at, so that a look at a crowded node ends.
const MOST: usize = 4096;

/// From here on the next burst reaches the limit.
const NEARLY: f64 = 80.0;
/// Some are kept for logs and names that are looked up.
const FULL: f64 = 95.0;

/// A process, or the machine.
struct Use {
    whose: String,
    open: u64,
    limit: u64,
}

impl Use {
    fn share(&self) -> f64 {
        self.open as f64 * 100.0 / self.limit.max(1) as f64
    }
}

/// Who is nearest to its limit.
pub(super) fn judge(files: &dyn Files) -> Finding {
    let fix = "look at ls /proc/PID/fd | wc -l and /proc/PID/limits as root, or as the user of the process";
    let (seen, unseen) = match processes(files) {
        Ok(found) => found,
        Err(why) => return Finding::unknown(FILES, &why, fix),
    };
    let count = seen.len();
    let Some(worst) =
        seen.into_iter().chain(machine(files)).max_by(|one, other| one.share().total_cmp(&other.share()))
    else {
        return Finding::unknown(FILES, &Unread::Absent("no process may be looked at"), fix);
    };
    let hidden = if unseen == 0 {
        String::new()
    } else {
        format!("; {unseen} others may not be looked at by this user")
    };
    let text = format!(
        "{} has {} of {} files open, the nearest to its limit of {count} processes and the machine{hidden}",
        worst.whose, worst.open, worst.limit
    );
    let found = Finding::ok(FILES, text)
        .with("open", worst.open as f64, "files")
        .with("share", worst.share(), "%")
        .with("unseen", unseen as f64, "processes");
    let verdict = match worst.share() {
        share if share >= FULL => Verdict::Fault,
        share if share >= NEARLY => Verdict::Warning,
        // This program alone says nothing of those that serve.
        _ if count <= 1 && unseen > 0 => {
            return found.judged(
                Verdict::CannotTell,
                "the files of other users' processes are not shown",
                fix,
            );
        }
        _ => return found,
    };
    found.judged(
        verdict,
        "at the limit neither a connection nor a file can be opened (EMFILE): accept fails, and connections wait or are dropped",
        "raise the limit (LimitNOFILE= of the service or container runtime, ulimit -n), or look for connections that are never closed (ls -l /proc/PID/fd)",
    )
}

/// Processes that may be looked at, and how many may not.
fn processes(files: &dyn Files) -> Reading<(Vec<Use>, usize)> {
    let names = files.names("/proc").map_err(|error| Unread::new("/proc", &error))?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let (mut seen, mut unseen) = (Vec::new(), 0);
    for number in numbers.into_iter().take(MOST) {
        match process(files, number) {
            Ok(used) => seen.push(used),
            // It has ended in the meantime.
            Err(Unread::Missing(_)) => {}
            Err(_) => unseen += 1,
        }
    }
    Ok((seen, unseen))
}

fn process(files: &dyn Files, number: u32) -> Reading<Use> {
    let path = |name: &str| format!("/proc/{number}/{name}");
    let limit = parsed(files, &path("limits"), OpenFiles::parse)?.soft;
    let name = files.read(&path("comm")).unwrap_or_default();
    Ok(Use {
        whose: format!("{} (process {number})", name.trim_end()),
        open: open(files, &path("fd"))?,
        limit,
    })
}

/// How many names are in the directory, which its size is since Linux 6.2 (`Documentation/filesystems/proc.rst`).
fn open(files: &dyn Files, directory: &str) -> Reading<u64> {
    let unread = |error| Unread::new(directory, &error);
    let names = files.names(directory).map_err(unread)?.len() as u64;
    Ok(names.max(files.size(directory).map_err(unread)?))
}

/// Of `file-nr`: what is open, a zero, and the most (`Documentation/admin-guide/sysctl/fs.rst`).
fn machine(files: &dyn Files) -> Option<Use> {
    let text = files.read("/proc/sys/fs/file-nr").ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    let (open, limit) = (numbers.next()?.ok()?, numbers.nth(1)?.ok()?);
    Some(Use { whose: "the machine".to_owned(), open, limit })
}
