//! Binds the traffic listeners, one socket per address and traffic thread, and makes room for what they accept.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn` (4096 by default).
const BACKLOG: i32 = 4096;

/// How long an answer may stay without acknowledgement, or its reader without room for it, before the kernel gives it up.
/// The same as `connections::WRITE_TIMEOUT`, which counts a client's progress.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Descriptors that are no client's connection: listeners, upstream and admin connections, runtimes, log.
const OTHER_DESCRIPTORS: u64 = 256;

/// The listeners of each thread, and the addresses they are bound to.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) of_thread: Vec<Vec<TcpListener>>,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Binds every address once per thread.
///
/// # Errors
/// The first address that cannot be bound, with the reason: in use, not this machine's, not permitted.
pub(crate) fn bind(addresses: &[SocketAddr], threads: usize) -> anyhow::Result<Listeners> {
    let mut of_thread: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
    let mut bound = Vec::new();
    for address in addresses {
        let mut address = guard(*address).with_context(|| format!("cannot listen on {address}"))?;
        for listeners in &mut of_thread {
            let listener =
                open(address, threads > 1).with_context(|| format!("cannot listen on {address}"))?;
            address = listener.local_addr()?;
            listeners.push(listener);
        }
        bound.push(address);
    }
    Ok(Listeners { of_thread, addresses: bound })
}

/// Makes room for this many connections: raises the soft limit on descriptors as far as the hard one allows. The soft
/// one is 1,024 wherever nobody thought of it (systemd explains in systemd.exec(5): for programs that use select(2),
/// which this one does not); a lower hard limit is the operator's word, and is told.
///
/// # Errors
/// The kernel refuses what it should allow.
pub(crate) fn make_room(connections: u32) -> anyhow::Result<()> {
    let wanted = u64::from(connections) + OTHER_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    // None is no limit.
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let current = limit.maximum.map_or(wanted, |most| most.min(wanted));
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit })
        .context("cannot raise the limit on open files")?;
    if current < wanted {
        tracing::warn!(wanted, limit = current, "the hard limit on open files is below limits.connections");
    }
    Ok(())
}

/// Makes sure that nobody listens here already. SO_REUSEPORT would let a second agent of the same user bind the
/// same address in silence and take every other connection; an ordinary bind is refused instead. Gives the address
/// with its port decided.
fn guard(address: SocketAddr) -> io::Result<SocketAddr> {
    open(address, false)?.local_addr()
}

fn open(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Accepted sockets inherit it: an answer is one write and must not wait for the last one's acknowledgement.
    socket.set_tcp_nodelay(true)?;
    // This, too, for sockets that are closed already: an answer to a pod that died before it acknowledged it must not be sent
    // to its address until the next pod is there. A pod on this node acknowledges within microseconds.
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn every_thread_listens_on_the_same_port() {
        let listeners = bind(&[any()], 2).unwrap();
        let ports: Vec<u16> = listeners.of_thread.iter().map(|l| l[0].local_addr().unwrap().port()).collect();
        assert_eq!(ports, [listeners.addresses[0].port(); 2]);
    }

    #[test]
    fn a_second_agent_cannot_share_the_port_in_silence() {
        let first = bind(&[any()], 2).unwrap();
        let error = bind(&first.addresses, 2).unwrap_err();
        assert!(format!("{error:#}").contains("in use"), "{error:#}");
    }
}
