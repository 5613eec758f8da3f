//! Manages the pins: files in a BPF file system that keep links and maps while no Seawall process has them open.
//!
//! The directory `seawall/v3/` of the file system contains maps by name, and links by hook, program version and cgroup. `v3` is the
//! version of the layout, which is the format of the maps. Programs of another layout have a separate directory and separate maps.
//! Therefore no program reads a map in a format that it does not know.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aya::maps::{MapData, MapError};
use aya::programs::links::PinnedLink;
use rustix::fs::{AtFlags, CWD, FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, statfs, utimensat};
use rustix::io::Errno;

use crate::attach_points::Hook;
use crate::error::Error;
use crate::target;

/// The sizes in bytes of a key (the connection) and a value (its owner) in the map [`CONNECTIONS_MAP`].
pub(crate) const CONNECTIONS_KEY_BYTES: usize = 48;
pub(crate) const CONNECTIONS_VALUE_BYTES: usize = 24;

pub(crate) const TARGET_MAP: &str = "target";
pub(crate) const CONNECTIONS_MAP: &str = "callers";
pub(crate) const COUNTS_MAP: &str = "counts";
pub(crate) const LISTENERS_MAP: &str = "listeners";
pub(crate) const HEARTBEATS_MAP: &str = "beats";
pub(crate) const PASSED_NETNS_MAP: &str = "passed_netns";
pub(crate) const PROXIES_MAP: &str = "proxies";
const WAITERS: &str = "waiters";
const HINTS: &str = "hints";
const MINE: &str = "mine";

/// The size in bytes of an entry of the map [`WAITERS`], which names a pod's record: a lock, a count, the connection and its socket's
/// cookie.
const PLACE: usize = 8 + CONNECTIONS_KEY_BYTES + 8;

/// The names of the maps, and the sizes of their keys and values in bytes.
pub(crate) const MAP_LAYOUTS: [(&str, usize, usize); 10] = [
    (TARGET_MAP, 4, target::TARGET_BYTES),
    (CONNECTIONS_MAP, CONNECTIONS_KEY_BYTES, CONNECTIONS_VALUE_BYTES),
    (COUNTS_MAP, 4, 8),
    (WAITERS, 4, PLACE),
    (HINTS, 4, 4),
    (LISTENERS_MAP, 4, 8),
    (HEARTBEATS_MAP, 4, 8),
    (PASSED_NETNS_MAP, 4, 8),
    (PROXIES_MAP, 8, 4),
    (MINE, 4, CONNECTIONS_KEY_BYTES + CONNECTIONS_VALUE_BYTES),
];

/// The magic number of a BPF file system: `BPF_FS_MAGIC` in Linux's `include/uapi/linux/magic.h`.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

const FAMILY: &str = "seawall";
const LAYOUT: &str = "v3";

/// The location of the pins.
#[derive(Clone, Debug)]
pub struct Pins {
    bpffs: PathBuf,
}

/// A lock on the pins. While a process holds the lock, no other process attaches or detaches the redirect or changes the target.
#[derive(Debug)]
pub(crate) struct PinLock(#[expect(dead_code, reason = "keeps the lock until it is dropped")] File);

/// The longest time for which an operator's command or a starting agent waits for the lock.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// The time between two attempts to take the lock.
const TRY_AGAIN: Duration = Duration::from_millis(20);

impl PinLock {
    #[expect(clippy::disallowed_methods, reason = "the kernel offers no wait for a lock with a timeout")]
    fn take(directory: &Path, patience: Duration) -> Result<Self, Error> {
        let doing = "lock";
        let file = File::open(directory).map_err(Error::for_system_call(doing, directory))?;
        let mut tries = patience.as_millis() / TRY_AGAIN.as_millis();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::WOULDBLOCK) if tries > 0 => {
                    tries -= 1;
                    std::thread::sleep(TRY_AGAIN);
                }
                Err(Errno::WOULDBLOCK) => return Err(Error::PinsLocked { path: directory.to_owned() }),
                Err(error) => return Err(Error::for_system_call(doing, directory)(error.into())),
            }
        }
    }
}

impl Pins {
    /// Returns the pins below the mount point of a BPF file system, `/sys/fs/bpf` on most nodes.
    ///
    /// # Errors
    /// The path is not on a BPF file system.
    pub fn at(bpffs: &Path) -> Result<Self, Error> {
        let found =
            statfs(bpffs).map_err(io::Error::from).map_err(Error::for_system_call("inspect", bpffs))?;
        let magic = u64::try_from(found.f_type).unwrap_or_default() & 0xffff_ffff;
        match magic {
            BPF_FS_MAGIC => Ok(Self { bpffs: bpffs.to_owned() }),
            _ => Err(Error::NoBpffs { path: bpffs.to_owned() }),
        }
    }

    /// Returns the directory of this layout's pins.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.bpffs.join(FAMILY).join(LAYOUT)
    }

    /// Takes the lock that processes hold while they change the pins. Waits at most for `patience`.
    ///
    /// The lock is on the mount point, because the files below it are created and deleted.
    pub(crate) fn lock(&self, patience: Duration) -> Result<PinLock, Error> {
        PinLock::take(&self.bpffs, patience)
    }

    pub(crate) fn create_directory(&self) -> Result<(), Error> {
        let directory = self.directory();
        fs::create_dir_all(&directory).map_err(Error::for_system_call("create", directory))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// Opens a pinned map and checks the sizes of its keys and values, because the loader does not check them.
    pub(crate) fn open_map(&self, name: &'static str) -> Result<MapData, Error> {
        let path = self.path(name);
        let map = MapData::from_pin(&path).map_err(|error| match error {
            MapError::SyscallError(error) if error.io_error.kind() == io::ErrorKind::NotFound => {
                Error::NotAttached { path }
            }
            error => Error::for_map(name)(error),
        })?;
        check(name, &map)?;
        Ok(map)
    }

    /// Checks the layout of every pinned map.
    pub(crate) fn check_maps(&self) -> Result<(), Error> {
        for (name, ..) in MAP_LAYOUTS {
            match self.open_map(name) {
                Ok(_) | Err(Error::NotAttached { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the pinned links of a hook, for all program versions.
    pub(crate) fn links_of_hook(&self, hook: Hook) -> Result<Vec<LinkPin>, Error> {
        let names = names(&self.directory())?;
        Ok(names.iter().filter_map(|name| LinkPin::parse(name)).filter(|pin| pin.hook == hook).collect())
    }

    /// Returns the hooks that have a pinned link, of any version and cgroup.
    pub(crate) fn hooks_with_links(&self) -> Result<Vec<Hook>, Error> {
        let names = names(&self.directory())?;
        let linked: Vec<_> =
            names.iter().filter_map(|name| LinkPin::parse(name)).map(|pin| pin.hook).collect();
        Ok(Hook::ALL.into_iter().filter(|hook| linked.contains(hook)).collect())
    }

    /// Returns the number of pinned links, of every version and layout.
    pub(crate) fn link_count(&self) -> Result<usize, Error> {
        let mut count = 0;
        for layout in self.other_layouts()?.iter().map(String::as_str).chain([LAYOUT]) {
            let names = names(&self.bpffs.join(FAMILY).join(layout))?;
            count += names.iter().filter(|name| LinkPin::parse(name).is_some()).count();
        }
        Ok(count)
    }

    /// Returns the directory names of other layouts.
    pub(crate) fn other_layouts(&self) -> Result<Vec<String>, Error> {
        let mut names = names(&self.bpffs.join(FAMILY))?;
        names.retain(|name| name != LAYOUT);
        Ok(names)
    }

    /// Returns the directory names of older layouts. Their programs can still serve an agent of the version before.
    pub(crate) fn older_layouts(&self) -> Result<Vec<String>, Error> {
        let mut names = self.other_layouts()?;
        names.retain(|name| layout_number(name) < layout_number(LAYOUT));
        Ok(names)
    }

    /// Removes the pins of all layouts that are not older: a process of a newer version created them.
    pub(crate) fn remove_newer_layouts(&self) -> Result<bool, Error> {
        let older = self.older_layouts()?;
        let mut newer = self.other_layouts()?;
        newer.retain(|name| !older.contains(name));
        newer.iter().try_for_each(|layout| self.remove_layout(layout))?;
        Ok(!newer.is_empty())
    }

    /// Removes the links of the connect programs in all older layouts. The other programs of these layouts stay attached.
    pub(crate) fn detach_older_connect_programs(&self) -> Result<(), Error> {
        for layout in self.older_layouts()? {
            let directory = self.bpffs.join(FAMILY).join(layout);
            for name in names(&directory)?.iter().filter(|name| name.starts_with("connect")) {
                unlink(&directory.join(name))?;
            }
        }
        Ok(())
    }

    /// Removes all pins of older layouts, and their directories.
    pub(crate) fn remove_older_layouts(&self) -> Result<(), Error> {
        for layout in self.older_layouts()? {
            let directory = self.bpffs.join(FAMILY).join(layout);
            for name in names(&directory)? {
                unlink(&directory.join(name))?;
            }
            gone(fs::remove_dir(&directory), "remove", directory)?;
        }
        Ok(())
    }

    /// Returns the time of the oldest pinned map of all layouts, or `None` if none is pinned. Programs come and go with their version, and
    /// maps stay for as long as the redirect is attached.
    pub(crate) fn oldest_map(&self) -> Result<Option<SystemTime>, Error> {
        let mut oldest: Option<SystemTime> = None;
        for layout in self.other_layouts()?.iter().map(String::as_str).chain([LAYOUT]) {
            let path = self.path_in_layout(layout, TARGET_MAP);
            match fs::metadata(&path).and_then(|pin| pin.modified()) {
                Ok(time) => oldest = Some(oldest.map_or(time, |oldest| oldest.min(time))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::for_system_call("inspect", path)(error)),
            }
        }
        Ok(oldest)
    }

    /// Gives this layout's map the time of the oldest layout's. The others are removed once an agent of this version is the target.
    pub(crate) fn inherit_time(&self) -> Result<(), Error> {
        self.oldest_map()?.map_or(Ok(()), |time| self.set_time(time))
    }

    /// Sets the time since which the redirect is attached to now.
    pub(crate) fn restart_time(&self) -> Result<(), Error> {
        self.set_modified(Timespec { tv_sec: 0, tv_nsec: UTIME_NOW })
    }

    fn set_time(&self, time: SystemTime) -> Result<(), Error> {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.set_modified(Timespec {
            tv_sec: since.as_secs().try_into().unwrap_or_default(),
            tv_nsec: since.subsec_nanos().into(),
        })
    }

    fn set_modified(&self, time: Timespec) -> Result<(), Error> {
        let path = self.path(TARGET_MAP);
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &path, &times, AtFlags::empty())
            .map_err(|error| Error::for_system_call("set the time of", path)(error.into()))
    }

    /// Returns the path of a pin in another layout.
    pub(crate) fn path_in_layout(&self, layout: &str, name: &str) -> PathBuf {
        self.bpffs.join(FAMILY).join(layout).join(name)
    }

    /// Removes all pins of a layout. Removes the links of the connect programs first, so that no connection is captured without a record.
    pub(crate) fn remove_layout(&self, layout: &str) -> Result<(), Error> {
        let directory = self.bpffs.join(FAMILY).join(layout);
        let mut names = names(&directory)?;
        names.sort_by_key(|name| !name.starts_with("connect"));
        for name in names {
            unpin(&directory.join(name))?;
        }
        gone(fs::remove_dir(&directory), "remove", directory)
    }

    /// Removes the maps' pins if this layout has no pinned link. [`mod@crate::attach`] calls this function after a failed attempt.
    pub(crate) fn remove_unused_maps(&self) -> Result<(), Error> {
        for hook in Hook::ALL {
            if !self.links_of_hook(hook)?.is_empty() {
                return Ok(());
            }
        }
        self.remove_layout(LAYOUT)?;
        if self.other_layouts()?.is_empty() { self.remove_all() } else { Ok(()) }
    }

    /// Removes all pins of every layout.
    pub(crate) fn remove_all(&self) -> Result<(), Error> {
        let family = self.bpffs.join(FAMILY);
        for layout in names(&family)? {
            self.remove_layout(&layout)?;
        }
        gone(fs::remove_dir(&family), "remove", family)
    }
}

/// Removes a pin, if it exists. Holds the pinned object open during the removal.
///
/// The kernel detaches a link when the link's last holder releases it. If the last holder is a process, the kernel detaches the
/// link at once. If the last holder is a pin, the kernel detaches the link later.
pub(crate) fn unpin(path: &Path) -> Result<(), Error> {
    let held = PinnedLink::from_pin(path);
    gone(fs::remove_file(path), "unpin", path)?;
    drop(held);
    Ok(())
}

/// Removes a pin, if it exists, without opening the pinned object.
///
/// A serving agent must not open a pin: its seccomp filter ends a process that does. The kernel may detach the link a moment later.
fn unlink(path: &Path) -> Result<(), Error> {
    gone(fs::remove_file(path), "unpin", path)
}

/// Returns the number in the name of a layout. An unknown name counts as newer than all layouts.
fn layout_number(name: &str) -> u32 {
    name.strip_prefix('v').and_then(|number| number.parse().ok()).unwrap_or(u32::MAX)
}

/// Treats the error of a missing file as success.
fn gone(result: io::Result<()>, doing: &'static str, path: impl Into<PathBuf>) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::for_system_call(doing, path)(error))
        }
        _ => Ok(()),
    }
}

fn check(name: &'static str, map: &MapData) -> Result<(), Error> {
    let info = map.info().map_err(Error::for_map(name))?;
    let found = format!("{}+{}", info.key_size(), info.value_size());
    let wanted = MAP_LAYOUTS.iter().find(|(map, ..)| *map == name);
    let wanted = wanted.map(|(_, key, value)| format!("{key}+{value}")).unwrap_or_default();
    if found == wanted { Ok(()) } else { Err(Error::MapLayoutMismatch { map: name, found, wanted }) }
}

/// Returns the names in a directory, or an empty list if the directory does not exist.
fn names(directory: &Path) -> Result<Vec<String>, Error> {
    let doing = "list";
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::for_system_call(doing, directory)(error)),
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    let mut names =
        names.collect::<io::Result<Vec<_>>>().map_err(Error::for_system_call(doing, directory))?;
    names.sort();
    Ok(names)
}

/// The name of a pinned link: `HOOK-VERSION-CGROUP`. The name contains no dot, because a BPF file system reserves names with a dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkPin {
    pub(crate) hook: Hook,
    pub(crate) version: String,
    pub(crate) cgroup_id: u64,
}

impl LinkPin {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let hook = parts.next()?;
        let hook = Hook::ALL.into_iter().find(|known| known.name() == hook)?;
        let (version, group) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        parts.next().is_none().then_some(Self { hook, version, cgroup_id: group })
    }

    pub(crate) fn name(&self) -> String {
        format!("{}-{}-{}", self.hook.name(), self.version, self.cgroup_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_links_name_says_hook_version_and_group() {
        let pin = LinkPin { hook: Hook::Connect6, version: "00ff".to_owned(), cgroup_id: 177 };
        assert_eq!(pin.name(), "connect6-00ff-177");
        assert_eq!(LinkPin::parse("connect6-00ff-177"), Some(pin));
    }

    /// The wait once had no limit: a stopped `redirect attach` blocked the agent's control thread, and with it every renewal.
    #[test]
    fn a_process_that_holds_the_lock_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let held = PinLock::take(folder.path(), Duration::ZERO).unwrap();
        for patience in [Duration::ZERO, TRY_AGAIN * 2] {
            let error = PinLock::take(folder.path(), patience).unwrap_err();
            assert!(matches!(error, Error::PinsLocked { .. }), "{error}");
        }
        drop(held);
        assert!(PinLock::take(folder.path(), Duration::ZERO).is_ok());
    }

    #[test]
    fn names_of_maps_are_no_links() {
        for name in
            ["target", "callers", "connect4", "connect4-1", "connect4-1-x", "connect4-1-2-3", "connect5-1-2"]
        {
            assert_eq!(LinkPin::parse(name), None, "{name}");
        }
    }

    #[test]
    fn what_is_no_bpf_file_system_is_refused_by_name() {
        let error = Pins::at(Path::new("/proc")).unwrap_err();
        assert!(matches!(error, Error::NoBpffs { .. }), "{error}");
        assert!(Pins::at(Path::new("/no/such/place")).unwrap_err().to_string().contains("/no/such/place"));
    }
}
