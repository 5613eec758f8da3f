//! Keeps every other process away from the addresses at which this one listens.
//!
//! The shards of an address share it by SO_REUSEPORT. The kernel lets any process of the same user join such a group on request. So a
//! pod on the node's network that runs as the agent's user (root, mostly) would take other pods' connections and answer them. The
//! guard therefore binds one more socket there, which takes no connection and shares with no other socket once it is bound. A later
//! bind collides with it.
//!
//! The kernel looks for collisions only where its short cut does not apply: it remembers of a port that the latest socket was willing
//! to share. The guard ends that memory: it binds for a moment a socket that does not share, to the same port of another address,
//! where nothing collides (net/ipv4/inet_connection_sock.c, `sk_reuseport_match` and `inet_csk_update_fastreuse`). At the end the
//! guard tests that all this holds.
//!
//! `[::]` also covers IPv4, so no other address exists beside it. There the guard cannot keep other processes out. Used by `listen`
//! only.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// The number of other addresses that are tried, because another process may be at one of them.
const TRIES: usize = 8;

/// Keeps other processes out of an address for as long as the guard lives. The shards are not affected.
#[derive(Debug)]
pub(super) struct PortGuard {
    _bound: Socket,
}

impl PortGuard {
    /// Guards the address. Call it after the last shard has begun to listen.
    ///
    /// # Errors
    /// The address cannot be guarded (`[::]`; `0.0.0.0` where there is no IPv6), or this kernel lets other processes in nevertheless.
    pub(super) fn of(address: SocketAddr) -> io::Result<Self> {
        let bound = socket(address)?;
        bound.set_reuse_address(true)?;
        bound.set_reuse_port(true)?;
        bound.bind(&address.into())?;
        // From here on it shares with nobody.
        bound.set_reuse_address(false)?;
        bound.set_reuse_port(false)?;
        end_short_cut(address)?;
        is_closed(address)?;
        Ok(Self { _bound: bound })
    }
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(address.ip().is_loopback())?;
    }
    Ok(socket)
}

fn end_short_cut(address: SocketAddr) -> io::Result<()> {
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for _ in 0..TRIES {
        let Some(beside) = beside(address.ip()) else { break };
        let beside = SocketAddr::new(beside, address.port());
        result = socket(beside).and_then(|socket| socket.bind(&beside.into()));
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Returns an address of this machine at which a bind does not collide with a listener at this address.
/// Any address of 127.0.0.0/8 is one. It is drawn at random, so that no process can occupy it beforehand.
fn beside(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V6(ip) if ip.is_unspecified() => None,
        IpAddr::V4(ip) if ip.is_unspecified() => Some(Ipv6Addr::LOCALHOST.into()),
        _ => {
            let [a, b, c, ..] = RandomState::new().hash_one(ip).to_ne_bytes();
            Some(Ipv4Addr::new(127, a, b, c.clamp(1, 254)).into())
        }
    }
}

/// Checks that a bind as another process of this user would make it fails.
fn is_closed(address: SocketAddr) -> io::Result<()> {
    let other = socket(address)?;
    other.set_reuse_address(true)?;
    other.set_reuse_port(true)?;
    match other.bind(&address.into()) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::Error::other("the kernel lets other processes share the port")),
    }
}
