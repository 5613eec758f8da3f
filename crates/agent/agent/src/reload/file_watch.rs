//! Decides when to read the configuration file again, by a `stat` once a second.
//!
//! The watcher polls instead of using inotify, on purpose:
//! - A ConfigMap that is mounted as a folder changes by swapping a link beside the file. Other tools rename a file over it or write
//!   into it, and the path may lead over links into other folders. An inotify watcher must watch all of these and follow their
//!   changes; `stat` follows them by itself.
//! - Watches count against a number per user that the node's other agents use up (`max_user_instances` is 128), and some file systems
//!   report nothing.
//! - A `stat` is one system call of some microseconds, beside a thread that wakes four times a second anyway.
//!
//! The agent reads a file only after two successive `stat` calls found it the same. So it neither applies a half-written file nor
//! reports it as a mistake. A change takes effect after one to two seconds, and the file was last changed at least a second ago,
//! which is more than the granularity of file systems' clocks. So no later write can look the same.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The interval between two checks.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The identity of a file's version: device and inode, times and size. `None` if there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp(Option<[i64; 7]>);

impl FileStamp {
    /// Returns the stamp of the file at `path` now, over all links.
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

/// The stamps of earlier checks.
#[derive(Debug, Default)]
pub(super) struct FileWatcher {
    /// The stamp with which the file was last read.
    read: Option<FileStamp>,
    last: Option<FileStamp>,
}

impl FileWatcher {
    /// True if the file is to be read, given its current stamp.
    pub(super) fn should_read(&mut self, now: FileStamp) -> bool {
        let is_settled = self.last.replace(now) == Some(now);
        is_settled && self.read.replace(now) != Some(now)
    }

    /// Forgets all stamps, so the file is read again once two checks find it the same.
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
            "and one that stays away is read, and cannot be"
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
        // As a kubelet mounts a ConfigMap: a link in the folder goes over a link that is swapped.
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
