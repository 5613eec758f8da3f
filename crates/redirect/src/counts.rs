//! What the programs counted since they were first attached (`counts` in `ebpf/capture.bpf.c`).

use aya::maps::{Map, MapData, PerCpuArray};

use crate::error::Error;
use crate::pins::{COUNTS, Pins};

/// Slots of each program.
const SLOTS: u32 = 8;

/// Connects of one family of sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connects {
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

impl Connects {
    /// All that were refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.no_agent + self.no_pod + self.no_service
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of IPv4 sockets.
    pub connect4: Connects,
    /// Of IPv6 sockets.
    pub connect6: Connects,
    /// Connections that were written down for the agent.
    pub noted: u64,
    /// Of these, those that ended before the agent took them.
    pub ended: u64,
    /// Connections that could not be written down: nobody's.
    pub lost: u64,
}

impl Counts {
    /// Reads them.
    ///
    /// # Errors
    /// Nothing is attached, or this process may not read it.
    pub fn read(pins: &Pins) -> Result<Self, Error> {
        let map = PerCpuArray::try_from(Map::PerCpuArray(pins.map(COUNTS)?)).map_err(Error::map(COUNTS))?;
        let slot = |at| sum(&map, at);
        let connects = |first: u32| -> Result<Connects, Error> {
            Ok(Connects {
                captured: slot(first)?,
                direct: slot(first + 1)?,
                exempt: slot(first + 2)?,
                no_agent: slot(first + 3)?,
                no_pod: slot(first + 4)?,
                no_service: slot(first + 5)?,
            })
        };
        Ok(Self {
            connect4: connects(0)?,
            connect6: connects(SLOTS)?,
            noted: slot(2 * SLOTS)?,
            ended: slot(2 * SLOTS + 1)?,
            lost: slot(2 * SLOTS + 2)?,
        })
    }
}

/// Each processor counts for itself, so that none waits for another.
fn sum(map: &PerCpuArray<MapData, u64>, slot: u32) -> Result<u64, Error> {
    Ok(map.get(&slot, 0).map_err(Error::map(COUNTS))?.iter().sum())
}
