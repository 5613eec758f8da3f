//! Decides when to read the configuration file again. The watcher calls `stat` once per second.
//!
//! The watcher intentionally polls instead of using inotify:
//! - When a mounted ConfigMap changes, the kubelet swaps a link next to the file. Other tools rename a new file over the old
//!   file, or write into the old file. The path can contain links to other folders. An inotify watcher must watch all these links
//!   and folders, and follow their changes. `stat` resolves links by itself.
//! - The kernel limits the number of inotify instances per user (`max_user_instances` is 128), and other programs on the node can
//!   use up these instances. On some file systems, inotify reports no changes.
//! - A `stat` is one system call of a few microseconds, on a thread that wakes four times a second anyway.
//!
//! The agent reads the file only after two successive `stat` calls returned the same stamp. Therefore the agent ignores a
//! half-written file, and reports no mistake. A change takes effect after one to two seconds. When the agent reads the file, the
//! last write is at least one second old. One second is longer than the resolution of file systems' clocks, so every later write
//! changes the stamp.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The interval between two checks.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The identity of a file's version: device, inode, times and size. The value is `None` if the file does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp(Option<[i64; 7]>);

impl FileStamp {
    /// Returns the current stamp of the file at `path`. Follows all links.
    pub(super) fn at(path: &Path) -> Self {
        let told = std::fs::metadata(path).ok();
        Self(told.map(|told| {
            let id = |number: u64| number.cast_signed();
            [
                id(told.dev()),
                id(told.ino()),
                id(told.size()),
                told.mtime(),
                told.mtime_nsec(),
                told.ctime(),
                told.ctime_nsec(),
            ]
        }))
    }
}

/// The stamps from earlier checks.
#[derive(Debug, Default)]
pub(super) struct FileWatcher {
    /// The stamp of the file when the agent last read the file.
    read: Option<FileStamp>,
    last: Option<FileStamp>,
}

impl FileWatcher {
    /// True if the agent must read the file. `now` is the current stamp of the file.
    pub(super) fn should_read(&mut self, now: FileStamp) -> bool {
        let is_settled = self.last.replace(now) == Some(now);
        is_settled && self.read.replace(now) != Some(now)
    }

    /// Forgets all stamps. The agent then reads the file again as soon as two checks return the same stamp.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(number: i64) -> FileStamp {
        FileStamp(Some([number; 7]))
    }

    #[test]
    fn what_is_still_being_written_is_not_read() {
        let mut looks = FileWatcher::default();
        let found: Vec<_> =
            [1, 1, 1, 2, 3, 3, 3, 1, 2, 2].map(|number| looks.should_read(seen(number))).into();
        assert_eq!(found, [false, true, false, false, false, true, false, false, false, true]);
    }

    #[test]
    fn a_file_that_is_missing_for_a_moment_is_as_it_was() {
        let mut looks = FileWatcher::default();
        let (there, gone) = (seen(1), FileStamp(None));
        assert_eq!(
            [there, there, gone, there, there].map(|now| looks.should_read(now)),
            [false, true, false, false, false]
        );
        assert_eq!(
            [gone, gone].map(|now| looks.should_read(now)),
            [false, true],
            "a file that stays missing is read, and the read fails"
        );
        looks.reset();
        assert_eq!([gone, gone, gone].map(|now| looks.should_read(now)), [false, true, false]);
    }

    #[test]
    fn every_way_of_changing_a_file_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, at(name)).unwrap();
        // A kubelet mounts a ConfigMap like this: the file is a link through the link `..data` to a folder, and an update replaces
        // `..data`.
        for version in ["v1", "v2"] {
            std::fs::create_dir(at(version)).unwrap();
            write(&format!("{version}/agent.yaml"), "same");
        }
        link("v1", "..data");
        link("..data/agent.yaml", "agent.yaml");
        let mut before = FileStamp::at(&at("agent.yaml"));
        let mut is_changed = || {
            let now = FileStamp::at(&at("agent.yaml"));
            std::mem::replace(&mut before, now) != now
        };
        assert!(!is_changed());
        link("v2", "..tmp");
        std::fs::rename(at("..tmp"), at("..data")).unwrap();
        assert!(is_changed());
        write("agent.yaml", "longer than before");
        assert!(is_changed());
        write("new", "renamed");
        std::fs::rename(at("new"), at("agent.yaml")).unwrap();
        assert!(is_changed());
        std::fs::remove_file(at("agent.yaml")).unwrap();
        assert!(is_changed() && !is_changed());
    }
}
