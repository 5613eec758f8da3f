//! Computes how much of the memory limit is left for clients. It reads the files of the cgroup with the smallest limit.
//!
//! The agent opens the files at the start, before it gives up its privileges, and reads them while it serves. On cgroup version 1,
//! the kernel counts the memory of sockets separately, and the agent adds this number. The number is zero unless an administrator
//! has limited the memory of sockets.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use seawall_cgroup::{
    CgroupVersion, MemoryEvents, ProcessCgroup, parse_memory_limit, parse_reclaimable_bytes,
};
use seawall_core::{Clock, Moment};
use seawall_server::memory_levels::{MemoryGauge, MemoryLevel};

use super::detected_cpu_and_memory::read_file_or_none;

/// The time in nanoseconds for which the agent reuses the values of `memory.stat`.
/// A read is expensive, because the kernel adds up the counters of all CPUs.
const STATISTICS: u64 = 250_000_000;

/// The minimum number of bytes that the agent counts for the socket buffers of each open connection.
/// If a client sends many requests and reads no answer, the kernel charges one page for each direction (measured on kernel 6.18).
/// The kernel charges these pages only after the accept. It charges the page of received bytes even if the agent gets no CPU
/// time. Therefore the agent counts both pages when it accepts the connection. When an earlier version counted only one page,
/// thousands of such clients used 27.7 MB under a limit of 25 MiB and a CPU quota of 30m.
const SOCKET_BUFFERS: u64 = 8192;

/// The time in nanoseconds for which memory counts as low after the kernel had to reclaim pages.
const AFTER_RECLAIM: u64 = 1_000_000_000;

/// The memory of the agent's cgroup.
#[derive(Debug)]
pub(crate) struct CgroupMemory {
    limit: u64,
    used: File,
    /// The file with the memory of socket buffers in cgroup version 1. In this version, `used` does not include this memory.
    sockets: Option<File>,
    statistics: File,
    /// The file that counts how often the memory use reached the limit. The cgroup version determines the file's format.
    events: Option<(File, CgroupVersion)>,
    /// The number of bytes that clients can make the agent use without a new connection.
    /// These bytes are for buffers, requests to the real server, and long polls.
    promised: u64,
    clock: Clock,
    /// The number of bytes in file pages that the kernel can reclaim at once.
    /// `socket_bytes` is the number of bytes in socket buffers that `used` includes. `read_at` is the time at which the agent
    /// read both numbers.
    reclaimable: AtomicU64,
    socket_bytes: AtomicU64,
    read_at: AtomicU64,
    /// The number of times that the memory use reached the limit. `reached_at` is the last time at which this number grew.
    reached: AtomicU64,
    reached_at: AtomicU64,
}

impl CgroupMemory {
    /// Opens the files of this process's cgroup. Returns `None` if there is no memory limit or a file cannot be read. In that case, only
    /// the caps of [`super::client_caps()`] apply.
    pub(crate) fn open(promised: u64, clock: &Clock) -> Option<Self> {
        let home = ProcessCgroup::find(
            &read_file_or_none("/proc/self/cgroup")?,
            &read_file_or_none("/proc/self/mountinfo")?,
            "memory",
        )?;
        let version = home.version;
        let (limits, used, events) = match version {
            CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.failcnt"),
            CgroupVersion::V2 => ("memory.max", "memory.current", "memory.events"),
        };
        let limit = |level: &str| parse_memory_limit(&read_file_or_none(&format!("{level}/{limits}"))?)?;
        let (limit, level) =
            home.directory_and_ancestors().filter_map(|level| Some((limit(level)?, level))).min()?;
        let file = |name: &str| File::open(format!("{level}/{name}")).ok();
        let is_version_1 = matches!(version, CgroupVersion::V1);
        let memory = Self {
            limit,
            used: file(used)?,
            sockets: is_version_1.then(|| file("memory.kmem.tcp.usage_in_bytes")).flatten(),
            statistics: file("memory.stat")?,
            events: file(events).map(|file| (file, version)),
            promised,
            clock: clock.clone(),
            reclaimable: AtomicU64::new(0),
            socket_bytes: AtomicU64::new(0),
            read_at: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            reached_at: AtomicU64::new(0),
        };
        number(&text(&memory.used, &mut [0; 64])?)?;
        memory.reached.store(memory.times_reached().unwrap_or_default(), Ordering::Relaxed);
        Some(memory)
    }

    /// Reads the statistics of the cgroup again if the last values are too old.
    fn read_statistics(&self, now: Moment) {
        if now.as_nanos().saturating_sub(self.read_at.load(Ordering::Relaxed)) < STATISTICS {
            return;
        }
        self.read_at.store(now.as_nanos(), Ordering::Relaxed);
        let Some(text) = text(&self.statistics, &mut [0; 8192]) else { return };
        self.reclaimable.store(parse_reclaimable_bytes(&text).unwrap_or_default(), Ordering::Relaxed);
        self.socket_bytes.store(socket_bytes(&text), Ordering::Relaxed);
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

    /// Returns the memory level.
    /// `used` is the number of used bytes without socket buffers. The kernel can reclaim `reclaimable` of these bytes. Socket
    /// buffers use `sockets` bytes now. The function counts at least [`SOCKET_BUFFERS`] bytes for each of the `open` connections.
    fn level_of(&self, used: u64, reclaimable: u64, sockets: u64, open: u32) -> MemoryLevel {
        let buffers = sockets.max(u64::from(open) * SOCKET_BUFFERS);
        let used = used.saturating_sub(reclaimable) + buffers;
        MemoryLevel::from_free_bytes(self.limit.saturating_sub(used).saturating_sub(self.promised))
    }
}

impl MemoryGauge for CgroupMemory {
    fn level(&self, open: u32) -> MemoryLevel {
        let now = self.clock.now();
        self.read_statistics(now);
        // If the agent can no longer read the file, it must still serve. The limit `limits.connections` still applies.
        let Some(used) = text(&self.used, &mut [0; 64]).and_then(|text| number(&text)) else {
            return MemoryLevel::FreeMemoryLow;
        };
        let inside = self.socket_bytes.load(Ordering::Relaxed);
        let beside =
            self.sockets.as_ref().and_then(|file| number(&text(file, &mut [0; 64])?)).unwrap_or_default();
        let reclaimable = self.reclaimable.load(Ordering::Relaxed);
        let level = self.level_of(used.saturating_sub(inside), reclaimable, inside + beside, open);
        if self.was_reached(now) { level.max(MemoryLevel::FreeMemoryLow) } else { level }
    }
}

/// Returns the number of bytes in socket buffers, from the text of `memory.stat`.
/// Only cgroup version 2 reports this number. There, the used memory includes these bytes.
fn socket_bytes(statistics: &str) -> u64 {
    statistics.lines().find_map(|line| number(line.strip_prefix("sock ")?)).unwrap_or_default()
}

fn text(file: impl AsFd, room: &mut [u8]) -> Option<String> {
    let read = rustix::io::pread(file, &mut *room, 0).ok()?;
    Some(String::from_utf8_lossy(room.get(..read)?).into_owned())
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(mebibytes: u64) -> CgroupMemory {
        let file = || File::open("/dev/null").unwrap();
        CgroupMemory {
            limit: mebibytes << 20,
            used: file(),
            sockets: None,
            statistics: file(),
            events: None,
            promised: 4 << 20,
            clock: Clock::manual().0,
            reclaimable: AtomicU64::new(0),
            socket_bytes: AtomicU64::new(0),
            read_at: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            reached_at: AtomicU64::new(0),
        }
    }

    /// On kernel 6.18, the agent uses 3.6 MiB without connections, and each connection adds 4.1 KiB without its buffers.
    #[test]
    fn every_open_connection_may_be_used_at_the_same_time() {
        let level = |open: u32| memory(25).level_of((3_600 << 10) + u64::from(open) * 4_200, 0, 0, open);
        assert_eq!(
            [1_200, 1_250, 1_350, 1_450].map(level),
            [MemoryLevel::Enough, MemoryLevel::FreeMemoryLow, MemoryLevel::Scarce, MemoryLevel::Exhausted]
        );
    }

    #[test]
    fn pages_that_the_kernel_can_reclaim_are_free_and_large_buffers_count_in_full() {
        let level = |reclaimable, sockets| memory(25).level_of(20 << 20, reclaimable, sockets, 10);
        assert_eq!(level(0, 0), MemoryLevel::Exhausted);
        assert_eq!(level(10 << 20, 0), MemoryLevel::Enough);
        assert_eq!(level(10 << 20, 9 << 20), MemoryLevel::FreeMemoryLow);
    }

    #[test]
    fn a_figure_that_cannot_be_read_stops_growth_and_not_service() {
        assert_eq!(memory(25).level(10), MemoryLevel::FreeMemoryLow);
    }

    #[test]
    fn socket_buffers_are_found_in_the_statistics() {
        assert_eq!(socket_bytes("anon 1\nsock 8192\nshmem 0\nsock_x 3\n"), 8192);
        assert_eq!(socket_bytes("cache 0\n"), 0);
    }
}
