//! What the programs counted since they were first attached (`counts` in `ebpf/capture.bpf.c`).

use std::fmt;

use aya::maps::{Map, MapData, PerCpuArray};

use crate::error::Error;
use crate::pins::{COUNTS, Pins};

/// Slots of each program.
const SLOTS: u32 = 8;

/// Connects of one family of sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectCounts {
    /// To a metadata address, sent to the agent.
    pub captured: u64,
    /// Straight to the agent's own address.
    pub direct: u64,
    /// An agent's own, let pass to the real server.
    pub exempt: u64,
    /// Refused: no agent is there that answers this address.
    pub no_agent: u64,
    /// Refused: it is not known which pod asks, or there was no memory to write it down.
    pub no_pod: u64,
    /// Refused: a port of a metadata address that is not 80, such as 443.
    pub no_service: u64,
}

impl ConnectCounts {
    /// All that were refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.no_agent + self.no_pod + self.no_service
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedirectCounts {
    /// Of IPv4 sockets.
    pub connect4: ConnectCounts,
    /// Of IPv6 sockets.
    pub connect6: ConnectCounts,
    /// Connections that were written down for the agent.
    pub recorded: u64,
    /// Of these, those that ended before the agent took them.
    pub ended: u64,
    /// Connections that could not be written down: nobody's.
    pub lost: u64,
}

impl RedirectCounts {
    /// Reads them once.
    ///
    /// # Errors
    /// Nothing is attached, or this process may not read it.
    pub fn read(pins: &Pins) -> Result<Self, Error> {
        CounterMap::open(pins)?.read()
    }
}

/// Where the programs count, held open: for who gives up the right to open it.
pub struct CounterMap {
    map: PerCpuArray<MapData, u64>,
}

impl fmt::Debug for CounterMap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Counters").finish_non_exhaustive()
    }
}

impl CounterMap {
    /// Opens what is pinned.
    ///
    /// # Errors
    /// Nothing is attached, or this process may not open it.
    pub fn open(pins: &Pins) -> Result<Self, Error> {
        let map = PerCpuArray::try_from(Map::PerCpuArray(pins.map(COUNTS)?)).map_err(Error::map(COUNTS))?;
        Ok(Self { map })
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// The kernel refuses to read.
    pub fn read(&self) -> Result<RedirectCounts, Error> {
        Ok(RedirectCounts {
            connect4: self.connects(0)?,
            connect6: self.connects(SLOTS)?,
            recorded: self.slot(2 * SLOTS)?,
            ended: self.slot(2 * SLOTS + 1)?,
            lost: self.slot(2 * SLOTS + 2)?,
        })
    }

    fn connects(&self, first: u32) -> Result<ConnectCounts, Error> {
        Ok(ConnectCounts {
            captured: self.slot(first)?,
            direct: self.slot(first + 1)?,
            exempt: self.slot(first + 2)?,
            no_agent: self.slot(first + 3)?,
            no_pod: self.slot(first + 4)?,
            no_service: self.slot(first + 5)?,
        })
    }

    /// Each processor counts for itself, so that none waits for another.
    fn slot(&self, slot: u32) -> Result<u64, Error> {
        Ok(self.map.get(&slot, 0).map_err(Error::map(COUNTS))?.iter().sum())
    }
}
