//! Says where captured connections go: the one thing that changes while the programs stay.
//!
//! An agent that takes over from another is ready on a port of its own before it writes that here, and from that write on no new connection
//! reaches the other. An agent that has died is sent nobody, whoever may listen at its port by then: the programs look for its own listener,
//! which the kernel forgets when it is closed. Every change keeps what is not its own, under the lock of [`Pins`], so two agents do not undo each other's.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData, MapError};

use crate::cgroup_tree::CgroupTree;
use crate::connection_owners::{ConnectionMap, ConnectionOwner};
use crate::error::Error;
use crate::pins::{LISTENERS, LOCK_TIMEOUT, Pins, TARGET};
use crate::target::{AgentAddress, RedirectTarget, SIZE};

/// The only entry of its map.
const ONLY: u32 = 0;

/// Agents that can live at once (`listeners` in `ebpf/capture.bpf.c`): one and its next, and more while somebody is at work.
const SEATS: u16 = 16;

/// `BPF_NOEXIST` in `include/uapi/linux/bpf.h`.
const UNLESS_TAKEN: u64 = 1;

/// What an agent that serves does is done now or at its next look: its control thread waits for no other process.
const NOW: Duration = Duration::ZERO;

/// How long this process may take to meet itself.
const MEETING: Duration = Duration::from_secs(5);

/// Writes the target.
#[derive(Debug)]
pub struct TargetMap {
    pins: Pins,
    site: CgroupTree,
    map: HashMap<MapData, u32, [u8; SIZE]>,
    listeners: HashMap<MapData, u32, u64>,
}

impl TargetMap {
    /// Opens what is pinned.
    ///
    /// # Errors
    /// Nothing is attached, or this process may not open it.
    pub fn open(pins: &Pins, site: &CgroupTree) -> Result<Self, Error> {
        let map = HashMap::try_from(Map::HashMap(pins.map(TARGET)?)).map_err(Error::map(TARGET))?;
        // A map of sockets is written with descriptors and read as cookies, as any of eight bytes is.
        let listeners = Map::HashMap(pins.map(LISTENERS)?);
        let listeners = HashMap::try_from(listeners).map_err(Error::map(LISTENERS))?;
        Ok(Self { pins: pins.clone(), site: site.clone(), map, listeners })
    }

    /// What the programs are told at this moment; nothing before the first agent.
    ///
    /// # Errors
    /// The kernel refuses to read.
    pub fn target(&self) -> Result<Option<RedirectTarget>, Error> {
        match self.map.get(&ONLY, 0) {
            Ok(bytes) => Ok(Some(RedirectTarget::decode(&bytes))),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(Error::map(TARGET)(error)),
        }
    }

    /// Has the programs know one of an agent's listening sockets, for as long as it listens: the agent's seat.
    ///
    /// # Errors
    /// The kernel refuses the socket, or so many agents live already.
    pub fn register_listener(&mut self, listener: &impl AsFd) -> Result<u16, Error> {
        let listener = u64::try_from(listener.as_fd().as_raw_fd()).unwrap_or(u64::MAX);
        let _turn = self.pins.lock(LOCK_TIMEOUT)?;
        // That of one that has died is not free as long as the programs look there for it: they would find somebody.
        let told = self.target()?.map(|target| target.agent).filter(|agent| somewhere(*agent).is_ok());
        for seat in (0..SEATS).filter(|seat| told.is_none_or(|agent| agent.listener_slot != *seat)) {
            match self.listeners.insert(u32::from(seat), listener, UNLESS_TAKEN) {
                Ok(()) => return Ok(seat),
                Err(error) => {
                    if !is_taken(&error) {
                        return Err(Error::map(LISTENERS)(error));
                    }
                }
            }
        }
        Err(Error::TooManyAgents { agents: SEATS })
    }

    /// Whether an agent still listens; nobody else can in its place.
    ///
    /// # Errors
    /// The kernel refuses to read.
    pub fn is_listening(&self, agent: AgentAddress) -> Result<bool, Error> {
        match self.listeners.get(&u32::from(agent.listener_slot), 0) {
            Ok(_) => Ok(true),
            Err(MapError::KeyNotFound) => Ok(false),
            Err(error) => Err(Error::map(LISTENERS)(error)),
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

    /// The same, if captured connections go to `last` at this moment. Whoever found that `last` is dead may have been slower than
    /// another agent that took over meanwhile, and must not undo that. Whether this one is told now.
    ///
    /// # Errors
    /// As [`Self::set_target`].
    pub fn take_over_from(&mut self, last: AgentAddress, agent: AgentAddress) -> Result<bool, Error> {
        somewhere(agent)?;
        let mut is_told = false;
        self.change(NOW, |target| {
            is_told = target.agent == last;
            if is_told { RedirectTarget { agent, ..target } } else { target }
        })?;
        Ok(is_told)
    }

    /// Lets a pod (by its group) reach the real server: an agent's own. Before it is ready, if it must ask there.
    ///
    /// # Errors
    /// The kernel refuses to write.
    pub fn exempt(&mut self, pod: u64) -> Result<(), Error> {
        self.change(LOCK_TIMEOUT, |target| target.exempting(pod))
    }

    /// Learns which network namespace is the node's, so that hostNetwork pods can be told apart: this process, which must be in the node's and
    /// in a pod (`own`, its group), connects to itself at an address of the node's, and reads what the programs wrote down.
    /// Without it, who comes from the node's own addresses is nobody.
    ///
    /// # Errors
    /// This process is in no pod, or has no such address.
    pub fn detect_node_netns(
        &mut self,
        callers: &mut ConnectionMap,
        own: u64,
        address: IpAddr,
    ) -> Result<(), Error> {
        let meeting = |source| Error::system("meet itself at", address.to_string())(source);
        let listener = TcpListener::bind((address, 0)).map_err(meeting)?;
        let at = listener.local_addr().map_err(meeting)?;
        self.change(LOCK_TIMEOUT, |target| known_at(target, at))?;
        let met = meet(&listener, at).map_err(meeting);
        let cookie = met.and_then(|(_client, peer)| self.cookie(callers, own, peer, at));
        // The port is forgotten whatever came of it.
        self.change(LOCK_TIMEOUT, |target| RedirectTarget {
            probe_port: 0,
            node_netns: cookie.as_ref().map_or(target.node_netns, |cookie| *cookie),
            ..target
        })?;
        cookie.map(drop)
    }

    /// Written under this pod, or under the node where that is known already.
    fn cookie(
        &self,
        callers: &mut ConnectionMap,
        own: u64,
        peer: SocketAddr,
        at: SocketAddr,
    ) -> Result<u64, Error> {
        let known = self.target()?.map_or(0, |target| target.node_netns);
        for owner in [ConnectionOwner::Pod(own), ConnectionOwner::Node] {
            match callers.take(owner, peer, at)? {
                Some(caller) if caller.pod == own => return Ok(caller.netns),
                // Nobody's word but our own counts.
                _ => {}
            }
        }
        if known == 0 { Err(Error::NotInPod) } else { Ok(known) }
    }

    /// Tells the programs where pods are, if that has changed: groups of classes of service that were made, or made anew, since. Until then their
    /// pods are nobody. Whether anything had changed.
    ///
    /// # Errors
    /// The kernel refuses to read or to write.
    pub fn refresh(&mut self) -> Result<bool, Error> {
        let Some(told) = self.target()? else { return Ok(false) };
        let changed = self.site.fill_target(told) != told;
        if changed {
            self.change(NOW, |target| target)?;
        }
        Ok(changed)
    }

    /// Refuses everybody, as before the first agent; what is known of the node is forgotten with it.
    ///
    /// # Errors
    /// The kernel refuses to write.
    pub fn clear_target(&mut self) -> Result<(), Error> {
        let _turn = self.pins.lock(NOW)?;
        match self.map.remove(&ONLY) {
            Err(error) if self.target()?.is_some() => Err(Error::map(TARGET)(error)),
            _ => Ok(()),
        }
    }

    fn change(
        &mut self,
        patience: Duration,
        change: impl FnOnce(RedirectTarget) -> RedirectTarget,
    ) -> Result<(), Error> {
        let _turn = self.pins.lock(patience)?;
        let target = self.site.fill_target(change(self.target()?.unwrap_or_default()));
        self.map.insert(ONLY, target.encode(), 0).map_err(Error::map(TARGET))
    }
}

fn is_taken(error: &MapError) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.kind() == io::ErrorKind::AlreadyExists)
}

fn somewhere(agent: AgentAddress) -> Result<(), Error> {
    let has_address = agent.v4.is_some() || agent.v6.is_some();
    let answers = agent.metadata.is_some() || agent.containers.is_some();
    if has_address && answers { Ok(()) } else { Err(Error::NoTarget) }
}

/// The programs know the agent by address and port. An address that is not told yet is told now, without a port that anybody is sent to.
fn known_at(mut target: RedirectTarget, at: SocketAddr) -> RedirectTarget {
    target.probe_port = at.port();
    match at.ip() {
        IpAddr::V4(address) => target.agent.v4 = target.agent.v4.or(Some(address)),
        IpAddr::V6(address) => target.agent.v6 = target.agent.v6.or(Some(address)),
    }
    target
}

/// Connects and accepts. The client, with which what was written down goes, and its address as the listener sees it.
///
/// Whether connecting takes as long as it may, or strangers keep it from being accepted: it ends after [`MEETING`].
#[expect(clippy::disallowed_methods, reason = "once, before anything is served")]
fn meet(listener: &TcpListener, at: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    const PAUSE: Duration = Duration::from_millis(5);
    let client = TcpStream::connect_timeout(&at, MEETING)?;
    let own = client.local_addr()?;
    listener.set_nonblocking(true)?;
    for _ in 0..MEETING.as_millis() / PAUSE.as_millis() {
        match listener.accept() {
            Ok((_, peer)) if peer == own => return Ok((client, peer)),
            // A stranger was faster. Its connection is nobody's here.
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

    /// It waited for ever.
    #[test]
    fn a_process_that_does_not_come_to_itself_gives_up() {
        let (listener, elsewhere) = ["127.0.0.1:0"; 2].map(|at| TcpListener::bind(at).unwrap()).into();
        let met = meet(&listener, elsewhere.local_addr().unwrap());
        assert_eq!(met.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
