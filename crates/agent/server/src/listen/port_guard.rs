//! Keeps every other process away from the addresses that this one listens at.
//!
//! An address's lanes share it by SO_REUSEPORT, and the kernel lets any process of the same user into such a group, when it asks for that: a pod
//! on the node's network whose user is the agent's (root, mostly) would take other pods' connections, and answer them. So one more socket is
//! bound there, which takes no connection and shares with nobody once it is bound: whoever comes later collides with it.
//!
//! The kernel looks for collisions only where its short cut does not apply: it remembers of a port that whoever came last was willing to share.
//! A socket that shares with nobody, bound for a moment to the same port of another address, where it collides with nobody, ends that memory
//! (net/ipv4/inet_connection_sock.c, `sk_reuseport_match` and `inet_csk_update_fastreuse`). At the end it is tried whether all that holds.
//!
//! There is no other address beside `[::]`, which is IPv4's, too: there nobody is kept out. Used by `listen` only.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// Other addresses that are tried: somebody may be at one of them.
const TRIES: usize = 8;

/// What keeps others out of an address for as long as it lives, beside the lanes.
#[derive(Debug)]
pub(super) struct PortGuard {
    _bound: Socket,
}

impl PortGuard {
    /// After the last lane has begun to listen.
    ///
    /// # Errors
    /// This address cannot be sealed (`[::]`; `0.0.0.0` where there is no IPv6), or this kernel lets others in nevertheless.
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

/// An address of this machine's at which nobody collides with who listens at this one. Any of 127.0.0.0/8 is one; drawn, so that nobody sits
/// there beforehand.
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

/// Tries what another process of this user would.
fn is_closed(address: SocketAddr) -> io::Result<()> {
    let other = socket(address)?;
    other.set_reuse_address(true)?;
    other.set_reuse_port(true)?;
    match other.bind(&address.into()) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::Error::other("this kernel lets others share the port")),
    }
}
