//! Defines levels of free memory. The less memory is free, the more the traffic threads limit the clients' connections.
//!
//! The kernel kills a process that exceeds the limit of its cgroup, and then no pod gets an answer. A connection has no fixed cost: with
//! the socket accounting of cgroup v2, an idle connection costs 4.1 KiB and a connection with unread bytes 8.2 KiB. Therefore the level
//! comes from the cgroup's own figures.
//!
//! The agent's program reads the cgroup files ([`MemoryGauge`]). This module knows no files.

use std::fmt::Debug;

/// Below this much free memory, each further connection of a client with several connections is a guest: it ends after one answer.
const LOW: u64 = 3 << 20;
/// Below this much free memory, the thread also ends connections of the client with the most connections.
const SCARCE: u64 = 2 << 20;
/// Below this much free memory, each new connection of any client is a guest.
const NONE: u64 = 1 << 20;

/// The state of the memory that clients can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryLevel {
    /// There is room for further connections.
    #[default]
    Enough,
    /// Only clients with few connections may keep further ones.
    FreeMemoryLow,
    /// In addition, the thread ends connections of the client with the most connections: idle ones at once, others after an answer.
    Scarce,
    /// In addition, no client may keep further connections: each new connection is a guest.
    Exhausted,
}

impl MemoryLevel {
    /// Returns the level at which `room` bytes are free.
    pub fn from_free_bytes(room: u64) -> Self {
        match room {
            LOW.. => Self::Enough,
            SCARCE.. => Self::FreeMemoryLow,
            NONE.. => Self::Scarce,
            _ => Self::Exhausted,
        }
    }
}

/// Reports how much memory is left for clients. Each traffic thread asks four times a second, and after each 128 accepts or 256 KiB of
/// answers.
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
        let mebibytes = [4, 3, 2, 1, 0].map(|mebibytes| MemoryLevel::from_free_bytes(mebibytes << 20));
        use MemoryLevel::{Enough, Exhausted, FreeMemoryLow, Scarce};
        assert_eq!(mebibytes, [Enough, Enough, FreeMemoryLow, Scarce, Exhausted]);
    }
}
