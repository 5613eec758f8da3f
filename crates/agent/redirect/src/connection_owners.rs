//! Finds the owner of a connection in the records of the eBPF programs, which write a record when the connection begins.
//!
//! The agent looks up the record of a connection when it accepts the connection, and deletes the record when it has identified the
//! client. Therefore no later connection with the same addresses and ports can use that record. A connection has no owner if the
//! map has no record of it, because the record was evicted or never written. A pod can have at most 512 records, all under its own
//! [`ConnectionOwner`]. The programs refuse the pod's next connect until one of these records is deleted.

use std::net::SocketAddr;

use aya::maps::{HashMap, Map, MapData, MapError};

use crate::ebpf_addresses::ipv6_mapped_octets;
use crate::error::Error;
use crate::pins::{CONNECTIONS_KEY_BYTES as KEY, CONNECTIONS_MAP, CONNECTIONS_VALUE_BYTES as VALUE, Pins};
use crate::target::bytes_at;

/// The part of the lookup key that a pod cannot choose.
///
/// A pod can create a network namespace and use any address in it, even an address of another pod or of the agent. Therefore
/// addresses and ports alone prove nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionOwner {
    /// A socket in the node's own network namespace, for connections from the node's own addresses.
    ///
    /// Within one network namespace, the kernel never gives two sockets the same addresses and ports.
    Node,
    /// The pod with this cgroup. According to the cluster, this pod has the source address.
    Pod(u64),
}

/// The client socket, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectingSocket {
    /// The id of the pod's cgroup ([`crate::PodCgroups`]).
    pub pod_cgroup_id: u64,
    /// The cookie of the socket's network namespace.
    pub netns_cookie: u64,
    /// The client socket's cookie.
    pub socket_cookie: u64,
}

/// The map of connections that wait for accept. Each thread opens the map for itself.
///
/// Only the owner of the pins (root) can open the map. On a newer kernel (tested: 6.18), a process needs no capability to open or
/// use the map. On an older kernel with unprivileged BPF disabled, each call needs CAP_BPF.
#[derive(Debug)]
pub struct ConnectionMap {
    map: HashMap<MapData, [u8; KEY], [u8; VALUE]>,
}

impl ConnectionMap {
    /// Opens the pinned map.
    ///
    /// # Errors
    /// The redirect is not attached, or this process is not allowed to open the map.
    pub fn open(pins: &Pins) -> Result<Self, Error> {
        let map = HashMap::try_from(Map::LruHashMap(pins.open_map(CONNECTIONS_MAP)?))
            .map_err(Error::for_map(CONNECTIONS_MAP))?;
        Ok(Self { map })
    }

    /// Returns the socket that opened this connection, or `None` if there is no record. Takes about 1 µs.
    ///
    /// # Errors
    /// The kernel refuses to read the map. This error says nothing about the client.
    pub fn find(
        &self,
        owner: ConnectionOwner,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<Option<ConnectingSocket>, Error> {
        match self.map.get(&key(owner, peer, local), 0) {
            Ok(value) => Ok(Some(ConnectingSocket::decode(&value))),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(Error::for_map(CONNECTIONS_MAP)(error)),
        }
    }

    /// Deletes a connection's record. A record that is already deleted is not an error. Takes about 1 µs.
    ///
    /// # Errors
    /// The kernel refuses to change the map.
    pub fn forget(
        &mut self,
        owner: ConnectionOwner,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<(), Error> {
        match self.map.remove(&key(owner, peer, local)) {
            Err(error) if !is_missing(&error) => Err(Error::for_map(CONNECTIONS_MAP)(error)),
            _ => Ok(()),
        }
    }

    /// Returns the socket that opened this connection and deletes its record. Returns `None` if there is no record.
    ///
    /// Between lookup and deletion, the client's socket can close, and another socket of the same owner can reuse its port. Then
    /// the deletion removes the record of the new connection, and the new connection has no owner. The old connection still counts
    /// as the pod's, but no client reads its responses.
    ///
    /// # Errors
    /// The kernel refuses to read the map. This error says nothing about the client.
    pub fn take(
        &mut self,
        owner: ConnectionOwner,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<Option<ConnectingSocket>, Error> {
        let caller = self.find(owner, peer, local)?;
        if caller.is_some() {
            // If the client's socket closed meanwhile, the kernel has already deleted the record. The record was correct when it
            // was read.
            self.forget(owner, peer, local)?;
        }
        Ok(caller)
    }

    /// Returns the number of connections that wait for accept. Reads all records.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
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

/// Builds the lookup key: `struct connection` in `ebpf/capture.bpf.c`.
fn key(owner: ConnectionOwner, peer: SocketAddr, local: SocketAddr) -> [u8; KEY] {
    let owner = match owner {
        ConnectionOwner::Node => 0,
        ConnectionOwner::Pod(group) => group,
    };
    let mut key = [0; KEY];
    key[0..8].copy_from_slice(&owner.to_ne_bytes());
    key[8..24].copy_from_slice(&ipv6_mapped_octets(peer.ip()));
    key[24..40].copy_from_slice(&ipv6_mapped_octets(local.ip()));
    key[40..42].copy_from_slice(&peer.port().to_be_bytes());
    key[42..44].copy_from_slice(&local.port().to_be_bytes());
    key
}

impl ConnectingSocket {
    fn decode(bytes: &[u8; VALUE]) -> Self {
        let id = |at| u64::from_ne_bytes(bytes_at(bytes, at));
        Self { pod_cgroup_id: id(0), netns_cookie: id(8), socket_cookie: id(16) }
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
