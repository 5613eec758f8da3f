//! Reads the counters of the eBPF programs (`counts` in `ebpf/capture.bpf.c`). The counters start when the programs are first attached.

use std::fmt;

use aya::maps::{Map, MapData, PerCpuArray};

use crate::error::Error;
use crate::pins::{COUNTS_MAP, Pins};

/// The number of counter slots per program.
const SLOTS: u32 = 8;

/// The first slot of the connect programs' further counters, which use slots of the program `sockops` (`MORE` in `ebpf/capture.bpf.c`).
const MORE: u32 = 2 * SLOTS + 3;

/// The number of further counters per connect program.
const MORE_SLOTS: u32 = 2;

/// The counts of `connect` calls for one socket address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectCounts {
    /// The number of connects to a metadata address that the programs redirected to the agent.
    pub captured: u64,
    /// The number of connects directly to the agent's own address.
    pub to_agent_address: u64,
    /// The number of an agent's own connects, which the programs let through to the real server.
    pub from_agent: u64,
    /// The number of connects of pods on the node's network, which the programs let through to the real server
    /// ([`crate::HostNetworkPods::Node`]).
    pub node_network: u64,
    /// The number of connects that were refused because no live agent serves this address.
    pub no_agent: u64,
    /// The number of connects that were refused because the pod is unknown, or because the kernel has no memory for the record.
    pub unidentified_pod: u64,
    /// The number of connects that were refused because their port is not 80, for example port 443.
    pub unsupported_port: u64,
    /// The number of connects that were refused because 512 connections of the pod wait for accept.
    pub too_many_waiting: u64,
    /// The number of connects that were refused because the agent has sent no heartbeat for 3 s ([`crate::AgentHeartbeat`]).
    pub unresponsive_agent: u64,
    /// The number of connects that were refused because the agent has no address of the metadata address's family.
    pub no_family: u64,
}

impl ConnectCounts {
    /// Returns the sum of all refused connects.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.no_agent
            + self.unidentified_pod
            + self.unsupported_port
            + self.too_many_waiting
            + self.unresponsive_agent
            + self.no_family
    }
}

/// The values of all counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedirectCounts {
    /// The counts for IPv4 sockets.
    pub connect4: ConnectCounts,
    /// The counts for IPv6 sockets.
    pub connect6: ConnectCounts,
    /// The number of connections that the programs recorded for the agent.
    pub recorded: u64,
    /// The number of recorded connections that ended before the agent accepted them.
    pub closed_early: u64,
    /// The number of connections that the programs did not record: the kernel refused to store the record, or the pod's share of
    /// records was taken between the connect and its first packet. The agent finds no owner for such a connection.
    pub unrecorded: u64,
}

impl RedirectCounts {
    /// Opens the counters and reads them once.
    ///
    /// # Errors
    /// The redirect is not attached, or this process is not allowed to read the counters.
    pub fn read(pins: &Pins) -> Result<Self, Error> {
        CounterMap::open(pins)?.read()
    }
}

/// The open map of counters.
/// Since Linux 6.0, a process that has opened the map can still read it after it has dropped its capabilities.
pub struct CounterMap {
    map: PerCpuArray<MapData, u64>,
}

impl fmt::Debug for CounterMap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CounterMap").finish_non_exhaustive()
    }
}

impl CounterMap {
    /// Opens the pinned map.
    ///
    /// # Errors
    /// The redirect is not attached, or this process is not allowed to open the map.
    pub fn open(pins: &Pins) -> Result<Self, Error> {
        let map = PerCpuArray::try_from(Map::PerCpuArray(pins.open_map(COUNTS_MAP)?))
            .map_err(Error::for_map(COUNTS_MAP))?;
        Ok(Self { map })
    }

    /// Reads the current values of the counters.
    ///
    /// # Errors
    /// The kernel refuses to read the map.
    pub fn read(&self) -> Result<RedirectCounts, Error> {
        Ok(RedirectCounts {
            connect4: self.connects(0, MORE)?,
            connect6: self.connects(SLOTS, MORE + MORE_SLOTS)?,
            recorded: self.slot(2 * SLOTS)?,
            closed_early: self.slot(2 * SLOTS + 1)?,
            unrecorded: self.slot(2 * SLOTS + 2)?,
        })
    }

    fn connects(&self, first: u32, more: u32) -> Result<ConnectCounts, Error> {
        Ok(ConnectCounts {
            captured: self.slot(first)?,
            to_agent_address: self.slot(first + 1)?,
            from_agent: self.slot(first + 2)?,
            no_agent: self.slot(first + 3)?,
            unidentified_pod: self.slot(first + 4)?,
            unsupported_port: self.slot(first + 5)?,
            too_many_waiting: self.slot(first + 6)?,
            unresponsive_agent: self.slot(first + 7)?,
            node_network: self.slot(more)?,
            no_family: self.slot(more + 1)?,
        })
    }

    /// Sums a slot over all CPUs. Each CPU has a separate counter, so that no CPU waits for another CPU.
    fn slot(&self, slot: u32) -> Result<u64, Error> {
        Ok(self.map.get(&slot, 0).map_err(Error::for_map(COUNTS_MAP))?.iter().sum())
    }
}
