//! Follows the memory that the process may still use, and says what the traffic threads must do about it.
//!
//! The kernel kills a process that exceeds the limit of its cgroup, and then no pod gets an answer. The cost of a connection
//! depends on the kernel and on what its client does: with the socket accounting of cgroup v2, an idle connection costs 4.1 KiB and
//! one with unread bytes 8.2 KiB. Therefore the threads follow the figures of the cgroup itself.
//!
//! The agent's program reads the cgroup files ([`MemoryGauge`]). This module knows no files.

use std::fmt::Debug;

/// Below this much free memory, a client with several connections gets no further ones. Its next connections are guests.
const LOW: u64 = 3 << 20;
/// Below this much free memory, the thread also takes connections back from the client with the most connections.
const SCARCE: u64 = 2 << 20;
/// Below this much free memory, the thread accepts nothing from clients that are at their share.
const NONE: u64 = 1 << 20;

/// The state of the memory that clients can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryLevel {
    /// There is room for further connections.
    #[default]
    Enough,
    /// Only clients with few connections may keep further ones.
    Low,
    /// In addition, the largest client gives connections back, and its idle ones end.
    Scarce,
    /// In addition, the threads accept no connections of clients that are at their share.
    Exhausted,
}

impl MemoryLevel {
    /// Returns the level at which `room` bytes are free.
    pub fn of(room: u64) -> Self {
        match room {
            LOW.. => Self::Enough,
            SCARCE.. => Self::Low,
            NONE.. => Self::Scarce,
            _ => Self::Exhausted,
        }
    }
}

/// Reports how much memory is left for clients. Traffic threads call it four times a second and after each 128 accepts.
pub trait MemoryGauge: Debug + Send + Sync {
    /// Returns the current level, while `open` connections are open. If the memory has no limit, returns [`MemoryLevel::Enough`].
    fn level(&self, open: u32) -> MemoryLevel;
}

/// A gauge for a process without a memory limit.
#[derive(Debug)]
pub struct UnlimitedMemory;

impl MemoryGauge for UnlimitedMemory {
    fn level(&self, _: u32) -> MemoryLevel {
        MemoryLevel::Enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_memory_is_free_the_less_clients_get() {
        let mebibytes = [4, 3, 2, 1, 0].map(|mebibytes| MemoryLevel::of(mebibytes << 20));
        use MemoryLevel::{Enough, Exhausted, Low, Scarce};
        assert_eq!(mebibytes, [Enough, Enough, Low, Scarce, Exhausted]);
    }
}
