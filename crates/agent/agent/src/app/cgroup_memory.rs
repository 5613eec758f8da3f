//! Reads how much of the memory limit is left for clients, from the files of the cgroup that has the smallest limit.
//!
//! The agent opens the files at the start, before it gives up its privileges, and reads them while it serves. On cgroup version 1,
//! the kernel counts the memory of sockets separately, and the agent adds that figure. It is zero unless an administrator has
//! limited the memory of sockets.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use seawall_cgroup::{CgroupVersion, MemoryEvents, ProcessCgroup, memory_limit, reclaimable};
use seawall_core::{Clock, Moment};
use seawall_server::memory::{MemoryGauge, MemoryLevel};

use super::machine_limits::read;

/// The time in nanoseconds for which a read figure of reclaimable pages is used. The kernel adds up all CPUs for each read.
const STATISTICS: u64 = 250_000_000;

/// The time in nanoseconds for which memory counts as low after the kernel had to reclaim pages.
const AFTER_RECLAIM: u64 = 1_000_000_000;

/// The memory of the agent's cgroup.
#[derive(Debug)]
pub(crate) struct CgroupMemory {
    limit: u64,
    /// The files whose figures together are the used memory.
    used: Vec<File>,
    statistics: File,
    /// The file that counts how often the memory reached the limit, with the version that gives its format.
    events: Option<(File, CgroupVersion)>,
    /// The bytes that clients may still make the agent use without a new connection: buffers, requests to the real server, long
    /// polls.
    promised: u64,
    clock: Clock,
    /// The pages that the kernel can reclaim at once, in bytes, and the time at which they were read.
    reclaimable: AtomicU64,
    read_at: AtomicU64,
    /// The number of times that the memory reached the limit, and the last time at which that number grew.
    reached: AtomicU64,
    reached_at: AtomicU64,
}

impl CgroupMemory {
    /// Opens the files of this process's cgroup. Returns `None` if there is no memory limit or a file cannot be read.
    /// Then the caps of [`super::resource_limits`] alone apply.
    pub(crate) fn open(promised: u64, clock: &Clock) -> Option<Self> {
        let home =
            ProcessCgroup::find(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?, "memory")?;
        let version = home.version;
        let (limits, used, events): (_, &[&str], _) = match version {
            CgroupVersion::V1 => (
                "memory.limit_in_bytes",
                &["memory.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes"],
                "memory.failcnt",
            ),
            CgroupVersion::V2 => ("memory.max", &["memory.current"], "memory.events"),
        };
        let limit = |level: &str| memory_limit(&read(&format!("{level}/{limits}"))?)?;
        let (limit, level) = home.ancestors().filter_map(|level| Some((limit(level)?, level))).min()?;
        let file = |name: &str| File::open(format!("{level}/{name}")).ok();
        let (main, further) = used.split_first()?;
        let memory = Self {
            limit,
            used: [file(main)?].into_iter().chain(further.iter().filter_map(|name| file(name))).collect(),
            statistics: file("memory.stat")?,
            events: file(events).map(|file| (file, version)),
            promised,
            clock: clock.clone(),
            reclaimable: AtomicU64::new(0),
            read_at: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            reached_at: AtomicU64::new(0),
        };
        memory.used()?;
        memory.reached.store(memory.times_reached().unwrap_or_default(), Ordering::Relaxed);
        Some(memory)
    }

    fn used(&self) -> Option<u64> {
        self.used.iter().map(|file| number(&text(file, &mut [0; 64])?)).sum()
    }

    /// Returns the bytes of file pages that the kernel reclaims first. They are not in the way of clients.
    fn reclaimable(&self, now: Moment) -> u64 {
        if now.as_nanos().saturating_sub(self.read_at.load(Ordering::Relaxed)) >= STATISTICS {
            self.read_at.store(now.as_nanos(), Ordering::Relaxed);
            let read = text(&self.statistics, &mut [0; 8192]).and_then(|text| reclaimable(&text));
            self.reclaimable.store(read.unwrap_or_default(), Ordering::Relaxed);
        }
        self.reclaimable.load(Ordering::Relaxed)
    }

    fn times_reached(&self) -> Option<u64> {
        let (file, version) = self.events.as_ref()?;
        let text = text(file, &mut [0; 512])?;
        match version {
            CgroupVersion::V1 => number(&text),
            CgroupVersion::V2 => Some(MemoryEvents::parse_v2(&text)?.limit_hits),
        }
    }

    /// True if the kernel had to reclaim memory within the last second.
    fn was_reached(&self, now: Moment) -> bool {
        let times = self.times_reached().unwrap_or_default();
        let is_reached = self.reached.swap(times, Ordering::Relaxed) < times;
        if is_reached {
            self.reached_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        let since = now.as_nanos().saturating_sub(self.reached_at.load(Ordering::Relaxed));
        is_reached || (self.reached_at.load(Ordering::Relaxed) > 0 && since < AFTER_RECLAIM)
    }

    /// Returns the level at which `used` bytes are used, of which the kernel can reclaim `reclaimable`.
    fn level_of(&self, used: u64, reclaimable: u64) -> MemoryLevel {
        let used = used.saturating_sub(reclaimable);
        MemoryLevel::of(self.limit.saturating_sub(used).saturating_sub(self.promised))
    }
}

impl MemoryGauge for CgroupMemory {
    fn level(&self) -> MemoryLevel {
        // A file that cannot be read any more must not stop the agent from serving. `limits.connections` still holds.
        let Some(used) = self.used() else { return MemoryLevel::Low };
        let now = self.clock.now();
        let level = self.level_of(used, self.reclaimable(now));
        if self.was_reached(now) { level.max(MemoryLevel::Low) } else { level }
    }
}

fn text(file: impl AsFd, room: &mut [u8]) -> Option<String> {
    let read = rustix::io::pread(file, &mut *room, 0).ok()?;
    Some(String::from_utf8_lossy(room.get(..read)?).into_owned())
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}
