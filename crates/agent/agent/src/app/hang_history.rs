//! Records each time that the watchdog ended the agent. The record survives a restart of the container.
//!
//! An agent that hangs repeatedly serves well between two hangs, so operators easily overlook its restarts. At each hang, the
//! watchdog appends a line to a file next to the admin socket. The file is in a volume that exists as long as the pod. The next
//! agent process reads the file. The agent opens the file at the start, because it cannot open a file for writing after it has
//! dropped its privileges.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc;
use seawall_core::Clock;
use seawall_server::watchdog::HungThread;

/// The suffix of the file's name. The rest of the file's name is the whole name of the socket.
const SUFFIX: &str = ".hangs";

/// The flags to open the file.
/// The agent can be root when it opens the file. Therefore it follows no symbolic link, because a link could lead to another
/// program's file. If the file is a FIFO, the agent does not wait for the other end.
const FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// The age up to which a hang is recent. An operator should investigate a second hang within this time.
const RECENT: Duration = Duration::from_secs(600);

/// The maximum number of bytes that the agent reads from the file. A line has about 80 bytes.
const LONGEST: u64 = 64 * 1024;

/// The number of lines that the agent keeps when it starts.
const KEPT: usize = 16;

/// The hangs of the agents of this pod.
#[derive(Debug)]
pub(crate) struct HangHistory {
    /// The open file, or `None` if there is no admin socket or the agent cannot write the file.
    file: Option<File>,
    past: Vec<PastHang>,
    clock: Clock,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PastHang {
    at: SystemTime,
    thread: String,
}

impl PastHang {
    /// Parses a line: the seconds since 1970, a space, and the thread.
    fn parse(line: &str) -> Option<Self> {
        let (seconds, thread) = line.split_once(' ')?;
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))?;
        Some(Self { at, thread: thread.to_owned() })
    }

    fn line(&self) -> String {
        let seconds = self.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        format!("{seconds} {}\n", self.thread)
    }
}

impl HangHistory {
    /// Reads and opens the file next to this socket. If this fails, the agent serves without the history.
    pub(crate) fn open(socket: Option<&Path>, clock: &Clock) -> Self {
        let path = socket.map(|socket| {
            let mut name = socket.as_os_str().to_owned();
            name.push(SUFFIX);
            PathBuf::from(name)
        });
        let opened = path.as_deref().map(|path| {
            let past = past(path);
            // Replace the content with the last hangs, so that the file never grows without bound.
            let lines: String = past.iter().map(PastHang::line).collect();
            let opened = OpenOptions::new().append(true).create(true).custom_flags(FLAGS).open(path);
            let written = opened.and_then(|mut file| {
                file.set_len(0)?;
                file.write_all(lines.as_bytes()).map(|()| file)
            });
            (past, written)
        });
        let (past, file) = match opened {
            Some((past, Ok(file))) => (past, Some(file)),
            Some((past, Err(error))) => {
                tracing::warn!(%error, "cannot write the file that records hangs (the path in adminSocket with `.hangs` appended); if this agent hangs, the next agent cannot report the hang");
                (past, None)
            }
            None => (Vec::new(), None),
        };
        Self { file, past, clock: clock.clone() }
    }

    /// Appends a line. The watchdog calls this function just before it aborts the process.
    pub(crate) fn record(&self, hung: &HungThread) {
        let hang = PastHang { at: self.clock.wall_time(), thread: hung.to_string() };
        if let Some(mut file) = self.file.as_ref() {
            // The process ends next, so ignore a failure.
            let _ = file.write_all(hang.line().as_bytes());
        }
    }

    /// Returns the number of hangs in the last ten minutes.
    pub(crate) fn recent_hang_count(&self) -> usize {
        self.recent_hangs().count()
    }

    /// Returns a warning for the operator, if there was a hang in the last ten minutes.
    pub(crate) fn warning(&self) -> Option<String> {
        let last = self.recent_hangs().last()?;
        Some(format!(
            "the agent ended itself {} time(s) in the last {} minutes because a thread hung. The last hang: {}. Report this problem and attach the log of the previous container (kubectl logs --previous)",
            self.recent_hang_count(),
            RECENT.as_secs() / 60,
            last.thread
        ))
    }

    fn recent_hangs(&self) -> impl Iterator<Item = &PastHang> {
        let now = self.clock.wall_time();
        self.past.iter().filter(move |hang| now.duration_since(hang.at).unwrap_or_default() <= RECENT)
    }
}

/// Returns the last hangs that the file records. Skips lines that are not valid.
fn past(path: &Path) -> Vec<PastHang> {
    let mut text = String::new();
    let opened = OpenOptions::new().read(true).custom_flags(FLAGS).open(path);
    let read = opened.and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    let all: Vec<_> = read.map_or(Vec::new(), |_| text.lines().filter_map(PastHang::parse).collect());
    all[all.len().saturating_sub(KEPT)..].to_vec()
}

#[cfg(test)]
mod tests {
    use seawall_server::watchdog::{ThreadActivity, ThreadState};

    use super::*;

    const HUNG: HungThread = HungThread {
        number: 1,
        activity: ThreadActivity::Identify,
        kernel_state: ThreadState { letter: 'S', cpu_time: Duration::ZERO },
    };

    #[test]
    fn the_next_agent_knows_the_hangs_of_the_last_ten_minutes() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("admin.sock");
        let (clock, hand) = Clock::manual();
        let open = || HangHistory::open(Some(&socket), &clock);
        let first = open();
        assert_eq!((first.recent_hang_count(), first.warning()), (0, None));
        first.record(&HUNG);
        hand.advance(Duration::from_secs(300));
        let second = open();
        assert_eq!(second.recent_hang_count(), 1);
        second.record(&HUNG);
        let third = open();
        assert_eq!(third.recent_hang_count(), 2);
        let warning = third.warning().unwrap();
        assert!(warning.starts_with("the agent ended itself 2 time(s) in the last 10 minutes"), "{warning}");
        assert!(warning.contains("traffic-1 hangs in identify"), "{warning}");
        hand.advance(Duration::from_secs(301));
        assert_eq!(third.recent_hang_count(), 1);
        hand.advance(Duration::from_secs(300));
        assert_eq!((third.recent_hang_count(), third.warning()), (0, None));
    }

    #[test]
    fn the_file_stays_short_and_lines_of_others_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("admin.sock");
        let (clock, _hand) = Clock::manual();
        let file = directory.path().join("admin.sock.hangs");
        let many: String =
            (0..1000).map(|n| format!("{n} traffic-0 hangs\nnonsense\n99999999999999999999 x\n")).collect();
        std::fs::write(&file, many).unwrap();
        let history = HangHistory::open(Some(&socket), &clock);
        assert_eq!(history.past.len(), KEPT);
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), KEPT);
    }

    #[test]
    fn a_link_in_its_place_changes_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        std::fs::write(&other, "1 kept\n").unwrap();
        std::os::unix::fs::symlink(&other, directory.path().join("admin.sock.hangs")).unwrap();
        let (clock, _hand) = Clock::manual();
        let history = HangHistory::open(Some(&directory.path().join("admin.sock")), &clock);
        history.record(&HUNG);
        assert!(history.past.is_empty());
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "1 kept\n");
    }

    #[test]
    fn without_a_directory_for_it_the_agent_serves_without_history() {
        let (clock, _hand) = Clock::manual();
        for socket in [None, Some(Path::new("/proc/no/such/place"))] {
            let history = HangHistory::open(socket, &clock);
            history.record(&HUNG);
            assert_eq!(history.recent_hang_count(), 0);
        }
    }
}
