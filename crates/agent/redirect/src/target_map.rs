//! Writes the target of captured connections. The target is the only setting that changes while the programs stay attached.
//!
//! A new agent listens on its own port before it writes the target. After this write, the programs send no new connection to the
//! old agent. The programs redirect no connection to a dead agent's port, even if another process listens on that port. The
//! programs look up the agent's own listening socket in a map, and the kernel removes a closed socket from this map. Each method
//! that changes a field holds the lock of [`Pins`] and keeps the other fields, so two agents do not undo each other's changes.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData, MapError};

use crate::cgroup_tree::PodsParentCgroup;
use crate::connection_owners::{ConnectionMap, ConnectionOwner};
use crate::error::Error;
use crate::heartbeat::HeartbeatMap;
use crate::pins::{LISTENERS_MAP, LOCK_TIMEOUT, Pins, TARGET_MAP};
use crate::target::{AgentAddress, RedirectTarget, TARGET_BYTES};

/// The only key of the target map.
const ONLY: u32 = 0;

/// The maximum number of agents at once (`listeners` in `ebpf/capture.bpf.c`): an agent, its successor, and spare slots for
/// manual work.
const SEATS: u16 = 16;

/// The flag that makes an insert fail if the entry exists: `BPF_NOEXIST` in Linux's `include/uapi/linux/bpf.h`.
const UNLESS_TAKEN: u64 = 1;

/// The time for which a serving agent waits for the lock of [`Pins`].
///
/// The agent's control thread must not wait for another process. The thread tries again at its next check.
const NOW: Duration = Duration::ZERO;

/// The time limit for this process to connect to itself.
const MEETING: Duration = Duration::from_secs(5);

/// The open maps of the target and of the agents' listeners.
#[derive(Debug)]
pub struct TargetMap {
    pins: Pins,
    site: PodsParentCgroup,
    map: HashMap<MapData, u32, [u8; TARGET_BYTES]>,
    listeners: HashMap<MapData, u32, u64>,
    beats: HeartbeatMap,
}

impl TargetMap {
    /// Opens the pinned maps.
    ///
    /// # Errors
    /// The redirect is not attached, or this process is not allowed to open the maps.
    pub fn open(pins: &Pins, site: &PodsParentCgroup) -> Result<Self, Error> {
        let map = HashMap::try_from(Map::HashMap(pins.open_map(TARGET_MAP)?))
            .map_err(Error::for_map(TARGET_MAP))?;
        // A write to a map of sockets takes a file descriptor, and a read returns a cookie. Both values have eight bytes.
        let listeners = Map::HashMap(pins.open_map(LISTENERS_MAP)?);
        let listeners = HashMap::try_from(listeners).map_err(Error::for_map(LISTENERS_MAP))?;
        let beats = HeartbeatMap::open(pins)?;
        Ok(Self { pins: pins.clone(), site: site.clone(), map, listeners, beats })
    }

    /// Returns the current target, or `None` before the first agent.
    ///
    /// # Errors
    /// The kernel refuses to read.
    pub fn target(&self) -> Result<Option<RedirectTarget>, Error> {
        match self.map.get(&ONLY, 0) {
            Ok(bytes) => Ok(Some(RedirectTarget::decode(&bytes))),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(Error::for_map(TARGET_MAP)(error)),
        }
    }

    /// Registers one of an agent's listening sockets and returns its slot. The programs see the socket as long as it listens.
    ///
    /// This also writes the slot's first beat, so the beat of an earlier agent in this slot does not count. Keep the
    /// [`crate::AgentHeartbeat`] going from then on: 3 s after the last beat the programs refuse pods' connects to this agent.
    ///
    /// # Errors
    /// The kernel refuses the socket, or all slots are taken.
    pub fn register_listener(&mut self, listener: &impl AsFd) -> Result<u16, Error> {
        let listener = u64::try_from(listener.as_fd().as_raw_fd()).unwrap_or(u64::MAX);
        let _turn = self.pins.lock(LOCK_TIMEOUT)?;
        // Never reuse the slot of the current target, even if its agent is dead. Otherwise the programs would mistake the new
        // listener for the dead agent's listener.
        let told = self.target()?.map(|target| target.agent).filter(|agent| somewhere(*agent).is_ok());
        for seat in (0..SEATS).filter(|seat| told.is_none_or(|agent| agent.listener_slot != *seat)) {
            match self.listeners.insert(u32::from(seat), listener, UNLESS_TAKEN) {
                Ok(()) => {
                    self.beats.write_heartbeat(seat)?;
                    return Ok(seat);
                }
                Err(error) => {
                    if !is_taken(&error) {
                        return Err(Error::for_map(LISTENERS_MAP)(error));
                    }
                }
            }
        }
        Err(Error::TooManyAgents { agents: SEATS })
    }

    /// True if the agent still listens. Another process's listener does not count.
    ///
    /// # Errors
    /// The kernel refuses to read.
    pub fn is_listening(&self, agent: AgentAddress) -> Result<bool, Error> {
        match self.listeners.get(&u32::from(agent.listener_slot), 0) {
            Ok(_) => Ok(true),
            Err(MapError::KeyNotFound) => Ok(false),
            Err(error) => Err(Error::for_map(LISTENERS_MAP)(error)),
        }
    }

    /// Sends captured connections to this agent from now on.
    ///
    /// # Errors
    /// The agent has no address or no port, or the kernel refuses to write.
    pub fn set_target(&mut self, agent: AgentAddress) -> Result<(), Error> {
        somewhere(agent)?;
        self.change(NOW, |target| RedirectTarget { agent, ..target })
    }

    /// Makes `agent` the target if `last` is still the target. Returns true if it changed the target.
    ///
    /// A process calls this function after it has found that the agent `last` is dead. If another agent has become the target
    /// meanwhile, the function does not undo that change.
    ///
    /// # Errors
    /// The agent has no address or no port, or the kernel refuses to write.
    pub fn take_over_from(&mut self, last: AgentAddress, agent: AgentAddress) -> Result<bool, Error> {
        somewhere(agent)?;
        let mut is_told = false;
        self.change(NOW, |target| {
            is_told = target.agent == last;
            if is_told { RedirectTarget { agent, ..target } } else { target }
        })?;
        Ok(is_told)
    }

    /// Allows a pod (given by its cgroup) to reach the real server. The pod must be an agent's own pod.
    ///
    /// An agent that needs the real server must call this function before the agent is ready.
    ///
    /// # Errors
    /// The kernel refuses to write.
    pub fn exempt_pod(&mut self, pod: u64) -> Result<(), Error> {
        self.change(LOCK_TIMEOUT, |target| target.with_exempt_pod(pod))?;
        self.exempt_pod_in_older_layouts(pod)
    }

    /// Exempts the pod in older layouts, too: until this agent is the target, their programs see each connect first. A layout with
    /// another format of the target stays as it is. There an agent that needs the real server is ready only once it is the target.
    fn exempt_pod_in_older_layouts(&self, pod: u64) -> Result<(), Error> {
        let _turn = self.pins.lock(LOCK_TIMEOUT)?;
        for layout in self.pins.older_layouts()? {
            let Ok(map) = MapData::from_pin(self.pins.path_in_layout(&layout, TARGET_MAP)) else { continue };
            let has_this_format =
                map.info().is_ok_and(|info| usize::try_from(info.value_size()) == Ok(TARGET_BYTES));
            if !has_this_format {
                continue;
            }
            let mut map: HashMap<MapData, u32, [u8; TARGET_BYTES]> =
                HashMap::try_from(Map::HashMap(map)).map_err(Error::for_map(TARGET_MAP))?;
            if let Ok(bytes) = map.get(&ONLY, 0) {
                let target = RedirectTarget::decode(&bytes).with_exempt_pod(pod);
                map.insert(ONLY, target.encode(), 0).map_err(Error::for_map(TARGET_MAP))?;
            }
        }
        Ok(())
    }

    /// True if programs of an older layout are attached, which an agent of the version before uses.
    ///
    /// # Errors
    /// The pins cannot be read.
    pub fn has_older_layouts(&self) -> Result<bool, Error> {
        Ok(!self.pins.older_layouts()?.is_empty())
    }

    /// Detaches the connect programs of older layouts. This layout's programs capture all connections from then on, so the target must be
    /// set. The older agent still finds the records of connections that the older programs captured.
    ///
    /// # Errors
    /// The pins are locked or cannot be removed.
    pub fn detach_older_connect_programs(&self) -> Result<(), Error> {
        let _turn = self.pins.lock(NOW)?;
        self.pins.detach_older_connect_programs()
    }

    /// Removes all pins of older layouts. Call [`Self::detach_older_connect_programs`] some time before: a process can be between its
    /// connect and its first packet, for which the older program `sockops` writes the record.
    ///
    /// # Errors
    /// The pins are locked or cannot be removed.
    pub fn remove_older_layouts(&self) -> Result<(), Error> {
        let _turn = self.pins.lock(NOW)?;
        self.pins.remove_older_layouts()
    }

    /// Detects the node's network namespace, so that hostNetwork pods can be identified.
    ///
    /// This process must run in the node's network namespace and in a pod (`own` is the pod's cgroup). It connects to itself at an
    /// address of the node, and reads the record that the programs write for this connection. Without this detection, connections
    /// from the node's own addresses have no owner.
    ///
    /// # Errors
    /// This process is not in a pod, or the node does not have this address.
    pub fn detect_node_netns(
        &mut self,
        callers: &mut ConnectionMap,
        own: u64,
        address: IpAddr,
    ) -> Result<(), Error> {
        let meeting =
            |source| Error::for_system_call("make a test connection to", address.to_string())(source);
        let listener = TcpListener::bind((address, 0)).map_err(meeting)?;
        let at = listener.local_addr().map_err(meeting)?;
        self.change(LOCK_TIMEOUT, |target| known_at(target, at))?;
        let met = meet(&listener, at).map_err(meeting);
        let cookie = met.and_then(|(_client, peer)| self.cookie(callers, own, peer, at));
        // Clear the probe port even if the attempt failed.
        self.change(LOCK_TIMEOUT, |target| RedirectTarget {
            netns_detection_port: 0,
            node_netns_cookie: cookie.as_ref().map_or(target.node_netns_cookie, |cookie| *cookie),
            ..target
        })?;
        cookie.map(drop)
    }

    /// Returns the cookie of the network namespace, from the record of this process's test connection.
    /// The owner of the record is this pod or, if the namespace is already known, the node.
    fn cookie(
        &self,
        callers: &mut ConnectionMap,
        own: u64,
        peer: SocketAddr,
        at: SocketAddr,
    ) -> Result<u64, Error> {
        let known = self.target()?.map_or(0, |target| target.node_netns_cookie);
        for owner in [ConnectionOwner::Pod(own), ConnectionOwner::Node] {
            match callers.take(owner, peer, at)? {
                Some(caller) if caller.pod_cgroup_id == own => return Ok(caller.netns_cookie),
                // Only a record of this process's own pod counts.
                _ => {}
            }
        }
        if known == 0 { Err(Error::NotInPod) } else { Ok(known) }
    }

    /// Updates the target if QoS cgroups were created since the last update. Returns true if anything changed.
    ///
    /// Until the update, the programs refuse the pods of these cgroups.
    ///
    /// # Errors
    /// The kernel refuses to read or to write.
    pub fn refresh_qos_cgroups(&mut self) -> Result<bool, Error> {
        let Some(told) = self.target()? else { return Ok(false) };
        let changed = self.site.fill_cgroup_ids(told) != told;
        if changed {
            self.change(NOW, |target| target)?;
        }
        Ok(changed)
    }

    /// Removes the target, so that the programs refuse all pods. This also removes the cookie of the node's network namespace.
    ///
    /// # Errors
    /// The kernel refuses to write.
    pub fn clear_target(&mut self) -> Result<(), Error> {
        let _turn = self.pins.lock(NOW)?;
        match self.map.remove(&ONLY) {
            Err(error) if self.target()?.is_some() => Err(Error::for_map(TARGET_MAP)(error)),
            _ => Ok(()),
        }
    }

    fn change(
        &mut self,
        patience: Duration,
        change: impl FnOnce(RedirectTarget) -> RedirectTarget,
    ) -> Result<(), Error> {
        let _turn = self.pins.lock(patience)?;
        let target = self.site.fill_cgroup_ids(change(self.target()?.unwrap_or_default()));
        self.map.insert(ONLY, target.encode(), 0).map_err(Error::for_map(TARGET_MAP))
    }
}

fn is_taken(error: &MapError) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.kind() == io::ErrorKind::AlreadyExists)
}

fn somewhere(agent: AgentAddress) -> Result<(), Error> {
    let has_address = agent.v4.is_some() || agent.v6.is_some();
    let answers = agent.metadata_port.is_some() || agent.container_credentials_port.is_some();
    if has_address && answers { Ok(()) } else { Err(Error::IncompleteAgentAddress) }
}

/// Returns the target with the probe port and the probe's address, so that the programs recognise the agent's connection to itself.
///
/// If the target has no agent address of this family, the function sets the probe's address. The function sets no port for pods, so the programs still refuse all pods until the first agent is ready.
fn known_at(mut target: RedirectTarget, at: SocketAddr) -> RedirectTarget {
    target.netns_detection_port = at.port();
    match at.ip() {
        IpAddr::V4(address) => target.agent.v4 = target.agent.v4.or(Some(address)),
        IpAddr::V6(address) => target.agent.v6 = target.agent.v6.or(Some(address)),
    }
    target
}

/// Connects to the listener and accepts that connection. Returns the client and its address as the listener sees it.
///
/// The caller must keep the client open, because the kernel deletes the record when the client closes. The function fails after
/// [`MEETING`], for example if too many other clients connect to the listener.
#[expect(clippy::disallowed_methods, reason = "runs once, before the agent serves requests")]
fn meet(listener: &TcpListener, at: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    const PAUSE: Duration = Duration::from_millis(5);
    let client = TcpStream::connect_timeout(&at, MEETING)?;
    let own = client.local_addr()?;
    listener.set_nonblocking(true)?;
    for _ in 0..MEETING.as_millis() / PAUSE.as_millis() {
        match listener.accept() {
            Ok((_, peer)) if peer == own => return Ok((client, peer)),
            // Another client connected first. Drop its connection.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_meets_itself_though_strangers_come_first() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let strangers = [(); 3].map(|()| TcpStream::connect(at).unwrap());
        let (client, peer) = meet(&listener, at).unwrap();
        assert_eq!(client.local_addr().unwrap(), peer);
        drop(strangers);
    }

    /// Without its time limit, `meet` once waited for ever.
    #[test]
    fn a_process_that_does_not_come_to_itself_gives_up() {
        let (listener, elsewhere) = ["127.0.0.1:0"; 2].map(|at| TcpListener::bind(at).unwrap()).into();
        let met = meet(&listener, elsewhere.local_addr().unwrap());
        assert_eq!(met.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
