//! Prevents other processes from listening on the agent's traffic addresses.
//!
//! All shards bind to their address with SO_REUSEPORT. The kernel then lets any other process of the same user bind to this
//! address. Therefore a pod on the node's network that runs as the agent's user (usually root) could take other pods' connections
//! and answer them. To prevent this, the guard binds one more socket to the address. This socket accepts no connections and
//! refuses to share the address. Then every later bind to the address fails.
//!
//! For each port, the kernel stores a flag that says whether the latest socket agreed to share the port. Because of this flag,
//! the kernel can skip the check of a later bind. The guard resets the flag: it briefly binds a socket without SO_REUSEPORT to
//! the same port of another address that causes no conflict (net/ipv4/inet_connection_sock.c, `sk_reuseport_match` and
//! `inet_csk_update_fastreuse`). Finally the guard tests that a further bind fails.
//!
//! `[::]` covers all addresses, including IPv4 addresses, so no other address is left for this step. Therefore the guard cannot
//! protect `[::]`. Only `listen` uses this module.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// The number of other addresses that the guard tries. A try fails if another process already uses the port of that address.
const TRIES: usize = 8;

/// Prevents other processes from binding to an address while the guard exists. The guard does not affect the shards.
#[derive(Debug)]
pub(super) struct PortGuard {
    _bound: Socket,
}

impl PortGuard {
    /// Guards the address. Call this function after the last shard has begun to listen.
    ///
    /// # Errors
    /// The address cannot be guarded (`[::]`, or `0.0.0.0` without IPv6), or the kernel still lets other processes bind to it.
    pub(super) fn for_address(address: SocketAddr) -> io::Result<Self> {
        let bound = socket(address)?;
        bound.set_reuse_address(true)?;
        bound.set_reuse_port(true)?;
        bound.bind(&address.into())?;
        // From here on the socket does not share its address.
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

/// Returns an address of this machine at which a bind does not conflict with a listener at `ip`.
/// For most addresses `ip`, this is an address of 127.0.0.0/8. The function chooses this address at random, so no process can
/// occupy the address in advance.
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

/// Checks that a bind fails for another process of the same user.
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
