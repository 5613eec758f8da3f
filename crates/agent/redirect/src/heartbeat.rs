//! Writes the agent's heartbeat, by which the eBPF programs notice that an agent hangs or is stopped.
//!
//! The kernel closes the listener of a dead agent. It does not close the listener of a process that is stopped or that hangs, so
//! pods' connections would wait in its backlog. Therefore each agent writes the time into the map `beats` while all its traffic
//! threads run. The programs refuse connects to an agent that has not written for 3 s (`SILENCE` in `ebpf/capture.bpf.c`).

use std::fmt;
use std::time::Duration;

use aya::maps::{Array, HashMap, Map, MapData, MapError};
use rustix::time::{ClockId, clock_gettime};

use crate::error::Error;
use crate::pins::{HEARTBEATS_MAP, LISTENERS_MAP, Pins};

/// The open map with the time of each agent's last heartbeat (beat), by listener slot.
pub(crate) struct HeartbeatMap(Array<MapData, u64>);

impl fmt::Debug for HeartbeatMap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BeatMap").finish_non_exhaustive()
    }
}

impl HeartbeatMap {
    pub(crate) fn open(pins: &Pins) -> Result<Self, Error> {
        Array::try_from(Map::Array(pins.open_map(HEARTBEATS_MAP)?))
            .map(Self)
            .map_err(Error::for_map(HEARTBEATS_MAP))
    }

    /// Writes the present time into a slot. The programs compare it with `bpf_ktime_get_coarse_ns`, which reads the same clock.
    pub(crate) fn write_heartbeat(&mut self, listener_slot: u16) -> Result<(), Error> {
        let now = clock_gettime(ClockId::Monotonic);
        let nanoseconds = u64::try_from(now.tv_sec).unwrap_or_default() * 1_000_000_000
            + u64::try_from(now.tv_nsec).unwrap_or_default();
        self.0.set(u32::from(listener_slot), nanoseconds, 0).map_err(Error::for_map(HEARTBEATS_MAP))
    }
}

/// The heartbeat of an agent, for its listener slot.
#[derive(Debug)]
pub struct AgentHeartbeat {
    listener_slot: u16,
    /// The cookie of the agent's listener.
    listener: u64,
    listeners: HashMap<MapData, u32, u64>,
    beats: HeartbeatMap,
}

impl AgentHeartbeat {
    /// The time between two beats. The programs refuse connects to an agent that has missed six beats (3 s).
    pub const INTERVAL: Duration = Duration::from_millis(500);

    /// Opens the pinned maps and beats once. The calling agent must own the slot ([`crate::TargetMap::register_listener`]).
    ///
    /// # Errors
    /// The redirect is not attached, this process is not allowed to open the maps, or no listener is in the slot.
    pub fn open(pins: &Pins, listener_slot: u16) -> Result<Self, Error> {
        // A read of a map of sockets returns the socket's cookie, which has eight bytes.
        let listeners = Map::HashMap(pins.open_map(LISTENERS_MAP)?);
        let listeners = HashMap::try_from(listeners).map_err(Error::for_map(LISTENERS_MAP))?;
        let listener = listeners.get(&u32::from(listener_slot), 0).map_err(Error::for_map(LISTENERS_MAP))?;
        let mut heartbeat = Self { listener_slot, listener, listeners, beats: HeartbeatMap::open(pins)? };
        heartbeat.beat()?;
        Ok(heartbeat)
    }

    /// Tells the programs that the agent serves. Returns false, and writes nothing, after the agent's listener has closed: the slot
    /// can then belong to another agent. Takes two system calls on open maps, a read and a write.
    ///
    /// # Errors
    /// The kernel refuses to read or to write.
    pub fn beat(&mut self) -> Result<bool, Error> {
        match self.listeners.get(&u32::from(self.listener_slot), 0) {
            Ok(listener) if listener == self.listener => {
                self.beats.write_heartbeat(self.listener_slot).map(|()| true)
            }
            Ok(_) | Err(MapError::KeyNotFound) => Ok(false),
            Err(error) => Err(Error::for_map(LISTENERS_MAP)(error)),
        }
    }
}
