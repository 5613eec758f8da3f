//! Whose a connection is: what the programs wrote down when it began.
//!
//! Asked at accept, and forgotten when that is decided: addresses and ports are then good for one connection. An entry that is not
//! there (evicted, or never written) is nobody's, and nothing may be concluded from another one that is: a pod can make as many
//! as it likes, under its own [`ConnectionOwner`] alone.

use std::net::SocketAddr;

use aya::maps::{HashMap, Map, MapData, MapError};

use crate::error::Error;
use crate::net::octets;
use crate::pins::{CONNECTIONS, CONNECTIONS_KEY as KEY, CONNECTIONS_VALUE as VALUE, Pins};
use crate::target::part;

/// Under whom a connection is looked up. In a network namespace that a pod makes for itself it may use any addresses, another
/// pod's and the agent's among them, so addresses and ports alone prove nothing. This is what it cannot choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionOwner {
    /// A socket in the node's own network namespace, where the kernel lets no two have the same ends: for connections that come
    /// from the node's own addresses.
    Node,
    /// The pod with this group: the one that has the source address, as the cluster tells.
    Pod(u64),
}

/// Who connected, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectingSocket {
    /// The id of the pod's group ([`crate::PodCgroups`]).
    pub pod: u64,
    /// The cookie of the socket's network namespace.
    pub netns: u64,
    /// The client socket's cookie.
    pub socket: u64,
}

/// Connections that wait to be accepted. One for each thread. To open it takes the pins' owner (root) and no capability on a newer kernel (6.18 was
/// tried), nor does using it; on an older one where unprivileged use is off each call takes CAP_BPF.
#[derive(Debug)]
pub struct ConnectionMap {
    map: HashMap<MapData, [u8; KEY], [u8; VALUE]>,
}

impl ConnectionMap {
    /// Opens what is pinned.
    ///
    /// # Errors
    /// Nothing is attached, or this process may not open it.
    pub fn open(pins: &Pins) -> Result<Self, Error> {
        let map =
            HashMap::try_from(Map::LruHashMap(pins.map(CONNECTIONS)?)).map_err(Error::map(CONNECTIONS))?;
        Ok(Self { map })
    }

    /// Whose connection this is; `None` is nobody. About 1 µs.
    ///
    /// # Errors
    /// The kernel refuses to read, which is no statement about the caller.
    pub fn find(
        &self,
        owner: ConnectionOwner,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<Option<ConnectingSocket>, Error> {
        match self.map.get(&key(owner, peer, local), 0) {
            Ok(value) => Ok(Some(ConnectingSocket::decode(&value))),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(Error::map(CONNECTIONS)(error)),
        }
    }

    /// Forgets it; one that has gone with its client already is no error. About 1 µs.
    ///
    /// # Errors
    /// The kernel refuses to write.
    pub fn forget(
        &mut self,
        owner: ConnectionOwner,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<(), Error> {
        match self.map.remove(&key(owner, peer, local)) {
            Err(error) if !is_missing(&error) => Err(Error::map(CONNECTIONS)(error)),
            _ => Ok(()),
        }
    }

    /// Whose connection this is, which is forgotten with it; `None` is nobody.
    ///
    /// Between the two calls another connection may come to the same entry, if the first client has gone and another of the same owner took
    /// its port: then the dead connection is taken for that pod's, which nobody reads answers from, and the living one is nobody's.
    ///
    /// # Errors
    /// The kernel refuses to read, which is no statement about the caller.
    pub fn take(
        &mut self,
        owner: ConnectionOwner,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<Option<ConnectingSocket>, Error> {
        let caller = self.find(owner, peer, local)?;
        if caller.is_some() {
            // If its client ended in between, it took it along. It was true when it was read.
            self.forget(owner, peer, local)?;
        }
        Ok(caller)
    }

    /// How many wait to be accepted. Reads all of them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.map.keys().filter(Result::is_ok).count()
    }
}

fn is_missing(error: &MapError) -> bool {
    match error {
        MapError::KeyNotFound | MapError::ElementNotFound => true,
        MapError::SyscallError(error) => error.io_error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// `struct connection` in `ebpf/capture.bpf.c`.
fn key(owner: ConnectionOwner, peer: SocketAddr, local: SocketAddr) -> [u8; KEY] {
    let owner = match owner {
        ConnectionOwner::Node => 0,
        ConnectionOwner::Pod(group) => group,
    };
    let mut key = [0; KEY];
    key[0..8].copy_from_slice(&owner.to_ne_bytes());
    key[8..24].copy_from_slice(&octets(peer.ip()));
    key[24..40].copy_from_slice(&octets(local.ip()));
    key[40..42].copy_from_slice(&peer.port().to_be_bytes());
    key[42..44].copy_from_slice(&local.port().to_be_bytes());
    key
}

impl ConnectingSocket {
    fn decode(bytes: &[u8; VALUE]) -> Self {
        let id = |at| u64::from_ne_bytes(part(bytes, at));
        Self { pod: id(0), netns: id(8), socket: id(16) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_listener_for_both_families_finds_what_ipv4_clients_wrote() {
        let plain = key(ConnectionOwner::Pod(7), at("10.0.0.2:4000"), at("10.0.0.1:8080"));
        let mapped = key(ConnectionOwner::Pod(7), at("[::ffff:10.0.0.2]:4000"), at("[::ffff:10.0.0.1]:8080"));
        assert_eq!(plain, mapped);
    }

    #[test]
    fn each_part_of_a_connection_tells_it_from_others() {
        let (peer, local) = (at("10.0.0.2:4000"), at("10.0.0.1:8080"));
        let one = key(ConnectionOwner::Pod(7), peer, local);
        for other in [
            key(ConnectionOwner::Node, peer, local),
            key(ConnectionOwner::Pod(8), peer, local),
            key(ConnectionOwner::Pod(7), at("10.0.0.3:4000"), local),
            key(ConnectionOwner::Pod(7), at("10.0.0.2:4001"), local),
            key(ConnectionOwner::Pod(7), peer, at("10.0.0.4:8080")),
            key(ConnectionOwner::Pod(7), peer, at("10.0.0.1:8081")),
            key(ConnectionOwner::Pod(7), local, peer),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn ports_are_in_network_order_behind_the_addresses() {
        let key = key(ConnectionOwner::Node, at("10.0.0.2:258"), at("10.0.0.1:772"));
        assert_eq!(key[20..24], [10, 0, 0, 2]);
        assert_eq!(key[40..], [1, 2, 3, 4, 0, 0, 0, 0]);
    }
}
