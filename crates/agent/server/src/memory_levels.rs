//! Defines levels of free memory. With less free memory, the traffic threads limit the clients' connections more.
//!
//! The kernel kills a process that exceeds the limit of its cgroup, and then no pod gets an answer. The memory cost of a
//! connection varies. In the accounting of cgroup v2, an idle connection costs 4.1 KiB, and a connection with unread bytes costs
//! 8.2 KiB. Therefore the gauge computes the level from the memory use that the cgroup reports.
//!
//! The agent's program reads the cgroup files ([`MemoryGauge`]). This module reads no files.

use std::fmt::Debug;

/// The number of free bytes below which each new connection of a client with several connections is a guest.
/// A guest is a connection that ends after one answer.
const LOW: u64 = 3 << 20;
/// The number of free bytes below which the thread also ends connections of the client with the most connections.
const SCARCE: u64 = 2 << 20;
/// The number of free bytes below which each new connection of any client is a guest.
const NONE: u64 = 1 << 20;

/// The state of the memory that clients can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryLevel {
    /// The free memory is large enough for more connections.
    #[default]
    Enough,
    /// Only clients with few connections may keep new connections open.
    FreeMemoryLow,
    /// The limit of `FreeMemoryLow` applies. The thread also ends connections of the client with the most connections.
    /// The thread ends idle connections at once, and other connections after an answer.
    Scarce,
    /// The limits of `Scarce` apply. In addition, each new connection of any client is a guest.
    Exhausted,
}

impl MemoryLevel {
    /// Returns the level for `room` free bytes.
    pub fn from_free_bytes(room: u64) -> Self {
        match room {
            LOW.. => Self::Enough,
            SCARCE.. => Self::FreeMemoryLow,
            NONE.. => Self::Scarce,
            _ => Self::Exhausted,
        }
    }
}

/// Reports how much memory is left for clients. Each traffic thread reads the gauge four times per second. It also reads the
/// gauge after every 128 accepted connections and every 256 KiB of answers.
pub trait MemoryGauge: Debug + Send + Sync {
    /// Returns the current level. `open` is the number of open connections. Without a memory limit, returns
    /// [`MemoryLevel::Enough`].
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
