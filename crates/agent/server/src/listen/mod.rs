//! Binds the traffic listeners. Each address gets several sockets, called *shards*, which are spread over the traffic threads.
//!
//! The kernel chooses the shard of a new connection by the client's address ([`mod@shard_program`]). If a client opens connections
//! faster than the thread accepts them, the client fills only the backlog of its shard. Connections of other clients wait in
//! other shards, and the thread accepts from its shards in turn. With a single backlog, all clients would wait behind that
//! client. The kernel's choice also puts all connections of a client on one thread.
//!
//! Two clients share a shard if the last bits of their addresses are equal. Each address has up to 256 shards, one for each value of the last
//! byte of a client's address, so pods of one node rarely share a shard. If two clients share a shard, each client still has a separate share
//! of connections, turns and memory. A client that overloads its shard moves to a shard of its own ([`mod@reserve_shards`]).
//!
//! One additional shard takes the connections whose source address equals the listener's address. The agent's readiness request
//! and the pods on the node's network use this source address. All other pods have different addresses and cannot fill this
//! shard, so they cannot make the agent appear unready.

pub mod known_client_shards;
mod port_reservation;
mod reserve_shards;
mod shard_program;
pub mod shards;

use std::cmp::Ordering;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use nix::libc;
use nix::setsockopt_impl;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SetStruct;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};

use self::port_reservation::PortGuard;
use self::shard_program::{ShardProgram, attach, lane_of_address};

/// The maximum number of connections that wait in one shard while the rate of accepts is unknown.
const BACKLOG: i32 = 256;

/// The maximum number of connections that wait in one shard with a throttle. The kernel also limits this number to `net.core.somaxconn`,
/// by default 4096.
const MAX_BACKLOG: i32 = 4096;

/// The number of seconds for which the kernel withholds a connection from `accept` until the client sends a byte.
/// During this time, the connection costs the agent no CPU time and no memory. A pod without CPU time may need seconds for its
/// first byte, so the agent does not treat a silent client as an attacker.
const DEFERRED_SECONDS: u32 = 3;

/// The same for an overloaded shard. A full backlog drops requests of connections that their clients see as open. Such a client's kernel repeats
/// the request after 0.2, 0.6, 1.4, 3.1, 6.3, 13 and 26 s (Linux). The agent's kernel looks at a connection that it withholds after 1, 3, 7, 15 and
/// 31 s. With 3 s, it can hand over a connection at 7 s, 6 s before the request. A hundred of these took all places of guests at once. With 15 s,
/// that still happened in two runs of nine.
const OVERLOADED_DEFERRED_SECONDS: u32 = 31;

/// The socket option that delays `accept` until the client has sent a byte (tcp(7), TCP_DEFER_ACCEPT). The value is in seconds.
#[derive(Clone, Copy, Debug)]
struct DeferAccept;

setsockopt_impl!(DeferAccept, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, u32, SetStruct<'_, u32>);

/// The time after which the kernel drops unacknowledged bytes of an answer.
/// This time equals `connection_table::WRITE_TIMEOUT`. After that timeout, the agent ends a connection whose client reads
/// nothing.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// The sizes in bytes of a connection's socket buffers in the kernel.
/// The kernel doubles these sizes for its bookkeeping (socket(7)). The buffers count toward the agent's memory (cgroup v2). With
/// the kernel's default sizes, a buffer grows to several MiB if a client sends many bytes or does not read. An answer fits into
/// the send buffer. A request head fits into the receive buffer, except for the longest heads, which arrive in pieces.
const RECEIVE_BUFFER: usize = 4 * 1024;
const SEND_BUFFER: usize = 8 * 1024;

/// The largest amount of kernel memory for a connection's unread answers.
pub const MAX_SEND_BUFFER_BYTES: usize = 2 * SEND_BUFFER;

/// One of the sockets of a listener.
#[derive(Debug)]
pub struct ListenerShard {
    /// The listening socket.
    pub(crate) socket: TcpListener,
    /// The number of the listener, which identifies the bound address.
    pub(crate) listener_index: usize,
    /// The number of the socket among the sockets of its address.
    number: usize,
    kind: ShardKind,
    /// The program that assigns the connections of the address to its shards. `None` if the kernel does not run it.
    program: Option<Arc<ShardProgram>>,
    /// Keeps other processes from binding the port until the last shard of the address is dropped.
    _seal: Option<Arc<PortGuard>>,
}

/// The clients whose connections a shard has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShardKind {
    /// Clients with certain last bits of their addresses.
    Usual,
    /// Connections from the listener's own address.
    OwnAddress,
    /// None, or one that has overloaded its usual shard.
    Reserve,
}

fn shard_kind(number: usize, lanes: usize) -> ShardKind {
    match number.cmp(&lanes) {
        Ordering::Less => ShardKind::Usual,
        Ordering::Equal => ShardKind::OwnAddress,
        Ordering::Greater => ShardKind::Reserve,
    }
}

/// The shards of each thread, and their bound addresses.
#[derive(Debug)]
pub struct Listeners {
    /// The shards, by thread number.
    pub shards_by_thread: Vec<Vec<ListenerShard>>,
    /// The bound addresses with their ports, by listener number. `None` for an additional address that the agent leaves out.
    pub addresses: Vec<Option<SocketAddr>>,
}

/// An address to listen on, and a second port that the agent takes while another process has the first.
///
/// In an upgrade, the next agent starts while the agent before still listens. With two ports, both can listen, and a network policy can
/// name the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The address with its first port.
    pub address: SocketAddr,
    /// The second port. If it is `None`, the agent does not start while another process has the first port.
    pub second_port: Option<u16>,
    /// True for another address of the listener before, such as the node's IPv6 address. It gets the same port as that listener. The
    /// agent leaves it out if this machine cannot bind it: Kubernetes also lists addresses that only a load balancer knows.
    pub is_additional: bool,
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self { address, second_port: None, is_additional: false }
    }
}

impl Listeners {
    /// Returns a socket of the first listener with this port.
    pub fn socket_on_port(&self, port: u16) -> Option<&TcpListener> {
        let lanes = || self.shards_by_thread.iter().flatten();
        let listener = self.addresses.iter().position(|address| address.map(|at| at.port()) == Some(port))?;
        lanes().find(|lane| lane.listener_index == listener).map(|lane| &lane.socket)
    }

    /// Returns the addresses at which the agent listens.
    pub fn bound_addresses(&self) -> Vec<SocketAddr> {
        self.addresses.iter().copied().flatten().collect()
    }
}

/// The maximum number of reserve shards per address. More clients than this rarely overload an agent at once, and each shard takes 4 KiB.
const MOST_RESERVE_SHARDS: usize = 16;

/// Returns the number of shards per address: `lanes` shards, one for connections from the node itself, and then the reserve shards. If
/// `lanes` is 1, a single socket takes all connections.
fn shards_per_address(lanes: usize) -> usize {
    if lanes > 1 { lanes + 1 + (lanes / 4).min(MOST_RESERVE_SHARDS) } else { 1 }
}

/// Returns the number of sockets per address: one for each shard, and one that drops connections.
pub fn sockets_per_address(lanes: usize) -> usize {
    shards_per_address(lanes) + usize::from(lanes > 1)
}

/// Binds [`sockets_per_address`] sockets to each address. `lanes` is a power of two and at least the number of threads.
///
/// # Errors
/// An address cannot be bound: it is in use, it does not belong to this machine, or the bind is not permitted.
pub fn bind(
    addresses: &[impl Into<ListenAddress> + Copy],
    threads: usize,
    lanes: usize,
) -> anyhow::Result<Listeners> {
    let mut of_thread: Vec<Vec<ListenerShard>> = (0..threads).map(|_| Vec::new()).collect();
    let mut bound = Vec::new();
    let wanted: Vec<ListenAddress> = addresses.iter().map(|address| (*address).into()).collect();
    for group in wanted.chunk_by(|_, next| next.is_additional) {
        let guarded = guard_group(group);
        bound.extend(guarded.with_context(|| failed_text(group))?);
    }
    let lanes = lanes.max(threads);
    for (listener, address) in bound.iter().enumerate() {
        let Some(address) = *address else { continue };
        let failed = || format!("cannot listen on {address}");
        let sockets =
            (0..shards_per_address(lanes)).map(|_| open(address, lanes > 1)).collect::<Result<Vec<_>, _>>();
        let sockets = sockets.with_context(failed)?;
        let program = match &*sockets {
            [first, _, ..] if deal_by_address(first, lanes) => shard_program(address, lanes),
            _ => None,
        };
        let seal = (lanes > 1).then(|| sealed(address)).flatten();
        for (lane, socket) in sockets.into_iter().enumerate() {
            of_thread[lane % threads].push(ListenerShard {
                socket,
                listener_index: listener,
                number: lane,
                kind: shard_kind(lane, lanes),
                program: program.clone(),
                _seal: seal.clone(),
            });
        }
    }
    Ok(Listeners { shards_by_thread: of_thread, addresses: bound })
}

/// Raises the soft limit on open files to `wanted`, or to the hard limit if the hard limit is lower. Returns the resulting limit.
/// The default soft limit is 1,024, which protects programs that use select(2) (systemd.exec(5)). The agent does not use
/// select(2). If the hard limit is below `wanted`, the agent derives its connection limits from the hard limit.
///
/// # Errors
/// The kernel refuses to raise the limit, although the hard limit allows it.
pub fn raise_open_files_limit(wanted: u64) -> anyhow::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    // `None` means that there is no limit.
    let Some(current) = limit.current.filter(|current| *current < wanted) else { return Ok(wanted) };
    let raised = limit.maximum.map_or(wanted, |most| most.min(wanted)).max(current);
    setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit })
        .context("cannot raise the limit on open files")?;
    Ok(raised)
}

/// The time for which an agent with two ports waits until one of them is free. In two quick upgrades, the agent before last can still
/// end its connections.
const PORT_WAIT: Duration = Duration::from_secs(15);

/// The time between two attempts to bind a port.
const PORT_RETRY: Duration = Duration::from_millis(100);

/// The number of free ports that the agent tries if each of its addresses must have the same one.
const FREE_PORT_TRIES: usize = 8;

/// Returns the addresses of one listener with their common port. The first address must be bound; `None` stands for an additional
/// address that is left out.
fn guard_group(group: &[ListenAddress]) -> io::Result<Vec<Option<SocketAddr>>> {
    let Some((first, additional)) = group.split_first() else { return Ok(Vec::new()) };
    let is_usable = |ip: &IpAddr| {
        let bound = guard(SocketAddr::new(*ip, 0));
        let bound = bound.inspect_err(|error| {
            tracing::warn!(address = %ip, %error, "this machine cannot bind this address of the node; the agent does not listen there");
        });
        bound.is_ok()
    };
    let others = additional.iter().map(|other| other.address.ip()).filter(is_usable);
    let ips: Vec<_> = std::iter::once(first.address.ip()).chain(others).collect();
    let (port, count) = guard_either(&ips, first.address.port(), first.second_port)?;
    let bound = |wanted: &ListenAddress| {
        let ip = wanted.address.ip();
        ips.iter().take(count).any(|own| *own == ip).then(|| SocketAddr::new(ip, port))
    };
    Ok(group.iter().map(bound).collect())
}

/// Returns the first port that no other process has at these addresses, and the number of addresses that it holds for: all of them, or
/// the first alone. With a second port, waits for up to [`PORT_WAIT`]. After that, the agent does without the additional addresses, and then
/// takes a free port. Otherwise any process on the node's network could keep the node's pods without an agent for as long as it has both ports.
#[expect(
    clippy::disallowed_methods,
    reason = "runs once, before the agent serves requests; the kernel reports no free port"
)]
fn guard_either(ips: &[IpAddr], port: u16, second_port: Option<u16>) -> io::Result<(u16, usize)> {
    let Some(second_port) = second_port else { return Ok((guard_all(ips, port)?, ips.len())) };
    let ports = [port, second_port];
    for _ in 0..PORT_WAIT.as_millis() / PORT_RETRY.as_millis() {
        if let Some(port) = guard_one_of(ips, ports)? {
            return Ok((port, ips.len()));
        }
        std::thread::sleep(PORT_RETRY);
    }
    let (first, _) = ips.split_at(1);
    if let Some(port) = guard_one_of(first, ports)? {
        tracing::warn!(
            addresses = ?ips, port, second_port,
            "other processes use both ports; the agent listens only at the first of these addresses"
        );
        return Ok((port, 1));
    }
    tracing::warn!(
        addresses = ?ips, port, second_port,
        "other processes use both ports; the agent listens at a free port, which network policies do not allow"
    );
    Ok((guard_all(first, 0)?, 1))
}

/// Returns the first of these ports that no other process has at these addresses.
fn guard_one_of(ips: &[IpAddr], ports: [u16; 2]) -> io::Result<Option<u16>> {
    for port in ports {
        match guard_all(ips, port) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            result => return result.map(Some),
        }
    }
    Ok(None)
}

/// Checks that no other process listens at this port of these addresses, and returns the port. Port 0 stands for any port that is free at
/// each of the addresses.
fn guard_all(ips: &[IpAddr], port: u16) -> io::Result<u16> {
    let Some((first, others)) = ips.split_first() else { return Ok(port) };
    for _ in 0..FREE_PORT_TRIES {
        let held = open(SocketAddr::new(*first, port), false)?;
        let own = held.local_addr()?.port();
        match others.iter().try_for_each(|ip| guard(SocketAddr::new(*ip, own)).map(drop)) {
            Err(error) if port == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            result => return result.map(|()| own),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

fn failed_text(group: &[ListenAddress]) -> String {
    let addresses: Vec<_> = group.iter().map(|one| one.address.to_string()).collect();
    let second = group.first().and_then(|first| first.second_port);
    let second = second.map_or(String::new(), |port| format!(" (second port {port})"));
    format!("cannot listen on {}{second}", addresses.join(" and "))
}

/// Checks that no other process listens at the address, and returns the address with its actual port.
/// With SO_REUSEPORT, a second agent of the same user could silently bind the same address and take half of the connections.
/// Therefore this function first binds without SO_REUSEPORT. That bind fails if another process already listens at the address.
fn guard(address: SocketAddr) -> io::Result<SocketAddr> {
    open(address, false)?.local_addr()
}

/// Prevents other processes from sharing the port with the shards.
/// If the guard fails, the agent logs a warning and still serves all clients.
fn sealed(address: SocketAddr) -> Option<Arc<PortGuard>> {
    let seal = PortGuard::for_address(address).inspect_err(|error| {
        tracing::warn!(%address, %error, "cannot guard the port: another process of this user could listen on this port and take connections");
    });
    seal.ok().map(Arc::new)
}

fn open(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = unbound(address, shared)?;
    // Accepted sockets inherit all these options. The thread sends an answer with one write. With TCP_NODELAY, that write does not
    // wait for the acknowledgement of the previous write.
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    // This timeout also applies to closed sockets. A pod can die before it acknowledges an answer. Without the timeout, the
    // kernel would continue to resend the answer, even when another pod has the address. A pod on this node acknowledges within
    // microseconds.
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    defer_accept(&socket, DEFERRED_SECONDS)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn unbound(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

/// Returns the program for the sockets of an address.
/// If the kernel does not support it, the agent still serves every client, but the clients of an overloaded shard have unequal chances.
fn shard_program(address: SocketAddr, lanes: usize) -> Option<Arc<ShardProgram>> {
    let program = unbound(address, true).and_then(|socket| {
        ShardProgram::new(socket, address, shards_per_address(lanes), lane_of_address(lanes))
    });
    let program = program.inspect_err(|error| {
        tracing::warn!(%address, %error, "cannot throttle overloaded shards: some clients of a pod with thousands of clients may wait for minutes, and a pod can keep another one waiting whose address ends in the same byte");
    });
    program.ok().map(Arc::new)
}

/// Sets the number of seconds for which the kernel withholds silent connections of this listener from `accept`.
fn defer_accept(listener: &impl AsFd, seconds: u32) -> io::Result<()> {
    Ok(setsockopt(listener, DeferAccept, &seconds)?)
}

/// Makes the kernel assign each connection to a shard of an address by the connection's source address.
/// The kernel can refuse the BPF program, for example if the kernel only emulates Linux. Then the kernel assigns connections by a
/// hash of addresses and ports. In this case, the agent still serves every client, but many connections of one client can delay
/// all clients.
///
/// Returns true if the kernel has taken the program.
fn deal_by_address(listener: &TcpListener, lanes: usize) -> bool {
    attach(listener, lane_of_address(lanes))
        .inspect_err(|error| {
            tracing::warn!(
                %error,
                "cannot assign this listener's connections to threads by source address; many connections of one client can now delay all clients"
            );
        })
        .is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::IpAddr;

    use seawall_core::Moment;

    use super::*;
    use crate::tcp_info::backlog_length;

    fn any() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn every_thread_listens_on_the_same_port() {
        let listeners = bind(&[any()], 2, 8).unwrap();
        let ports =
            listeners.shards_by_thread.iter().flatten().map(|lane| lane.socket.local_addr().unwrap().port());
        assert_eq!(ports.collect::<Vec<_>>(), [listeners.bound_addresses()[0].port(); 11]);
    }

    #[test]
    fn a_second_agent_cannot_share_the_port_in_silence() {
        let first = bind(&[any()], 2, 8).unwrap();
        let error = bind(&first.bound_addresses(), 2, 8).unwrap_err();
        assert!(format!("{error:#}").contains("in use"), "{error:#}");
    }

    /// The next agent starts while the agent before still has the first port.
    #[test]
    fn an_agent_takes_its_second_port_while_another_one_has_the_first() {
        let free: Vec<_> = [(); 2].map(|()| guard(any()).unwrap()).into();
        let wanted =
            ListenAddress { address: free[0], second_port: Some(free[1].port()), is_additional: false };
        let first = bind(&[wanted], 2, 8).unwrap();
        let second = bind(&[wanted], 2, 8).unwrap();
        assert_eq!((first.bound_addresses(), second.bound_addresses()), (vec![free[0]], vec![free[1]]));
        drop(first);
        assert_eq!(bind(&[wanted], 2, 8).unwrap().bound_addresses(), free[..1]);
    }

    fn at_each(ips: &[&str], port: u16, second_port: Option<u16>) -> Vec<ListenAddress> {
        let address = |ip: &&str| SocketAddr::new(ip.parse().unwrap(), port);
        let each = ips.iter().map(address).enumerate();
        each.map(|(n, address)| ListenAddress { address, second_port, is_additional: n > 0 }).collect()
    }

    /// The redirect has one port for both IP families.
    #[test]
    fn all_addresses_of_a_listener_have_the_same_port_also_where_only_one_of_them_has_it_taken() {
        for ips in [["127.0.0.1", "::1"], ["::1", "127.0.0.1"]] {
            let free = bind(&at_each(&ips, 0, None), 2, 8).unwrap();
            let addresses = free.bound_addresses();
            assert_eq!(addresses.iter().map(|at| at.ip().to_string()).collect::<Vec<_>>(), ips);
            assert_eq!(addresses[0].port(), addresses[1].port());
            // The shards of the second address, which are opened later, do not open the first one to other processes.
            assert!(addresses.iter().all(|at| open(*at, true).is_err()), "{addresses:?}");
            let (port, second) =
                (addresses[0].port(), guard_all(&ips.map(|ip| ip.parse().unwrap()), 0).unwrap());
            drop(free);
            let _other = open(addresses[1], false).unwrap();
            let bound = bind(&at_each(&ips, port, Some(second)), 2, 8).unwrap().bound_addresses();
            assert_eq!(bound.iter().map(SocketAddr::port).collect::<Vec<_>>(), [second; 2]);
            let error = bind(&at_each(&ips, port, None), 2, 8).unwrap_err();
            assert!(format!("{error:#}").contains(&addresses[1].to_string()), "{error:#}");
        }
    }

    /// Kubernetes lists a node's external address, too, if the node has no other address of that family.
    #[test]
    fn an_additional_address_that_the_machine_does_not_have_is_left_out_and_a_first_one_is_an_error() {
        let absent = "2001:db8::1";
        let listeners = bind(&at_each(&["127.0.0.1", absent], 0, None), 2, 8).unwrap();
        assert!(listeners.addresses[0].is_some() && listeners.addresses[1].is_none());
        assert_eq!(listeners.bound_addresses().len(), 1);
        assert!(listeners.shards_by_thread.iter().flatten().all(|lane| lane.listener_index == 0));
        let error = bind(&at_each(&[absent, "127.0.0.1"], 0, None), 2, 8).unwrap_err();
        assert!(format!("{error:#}").contains(absent), "{error:#}");
    }

    #[test]
    fn nobody_of_the_same_user_can_join_the_lanes_however_willing_to_share() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            let listeners = bind(&[address.parse::<SocketAddr>().unwrap()], 2, 8).unwrap();
            let (at, port) = (listeners.bound_addresses()[0], listeners.bound_addresses()[0].port());
            let wildcard = if at.is_ipv6() { "[::]" } else { "0.0.0.0" };
            let wildcard = format!("{wildcard}:{port}").parse().unwrap();
            // This socket shares the same port at another address. It must not open this address to other processes.
            let _elsewhere = open(SocketAddr::from(([127, 0, 0, 5], port)), true);
            for joined in [at, wildcard] {
                let error = open(joined, true).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{address} {joined}");
            }
            let mut of_thread = listeners.shards_by_thread;
            of_thread[0].clear();
            assert!(open(at, true).is_err(), "{address}: the other thread's shards still listen");
            drop(of_thread);
            bind(&[at], 2, 8).unwrap();
        }
    }

    fn connect(from: IpAddr, to: IpAddr, port: u16) -> Socket {
        let socket = Socket::new(Domain::for_address(SocketAddr::new(from, 0)), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
        socket.connect(&SocketAddr::new(to, port).into()).unwrap();
        socket.send(b"G").unwrap();
        socket
    }

    /// Many connections of one client fill only that client's shard.
    #[test]
    fn a_connection_is_in_the_lane_of_its_source_address() {
        for listen in ["127.0.0.1:0", "[::]:0"] {
            let listeners = bind(&[listen.parse::<SocketAddr>().unwrap()], 2, 8).unwrap();
            let port = listeners.bound_addresses()[0].port();
            for last in 2..=40u8 {
                let from = IpAddr::from([127, 0, 0, last]);
                let _client = connect(from, [127, 0, 0, 1].into(), port);
                // Shard n is the entry n / 2 of thread n % 2.
                let lane = &listeners.shards_by_thread[usize::from(last) % 2][usize::from(last) % 8 / 2];
                assert_eq!(lane.socket.accept().unwrap().1.ip().to_canonical(), from, "{listen} {last}");
            }
        }
    }

    fn shard(listeners: &Listeners, number: usize) -> &ListenerShard {
        listeners.shards_by_thread.iter().flatten().find(|shard| shard.number == number).unwrap()
    }

    /// Begins to connect from this address. Returns at once. Loopback completes a connect that the kernel admits within the call.
    fn begin_connect(from: [u8; 4], port: u16) -> Socket {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into());
        socket
    }

    fn is_connected(socket: &Socket) -> bool {
        socket.peer_addr().is_ok()
    }

    /// A throttle that drops all but one of 65,536 ports leaves other shards alone, and connections that already wait.
    #[test]
    fn a_throttled_shard_drops_connects_and_keeps_the_connections_that_wait() {
        for listen in ["127.0.0.1:0", "[::]:0"] {
            let listeners = bind(&[listen.parse::<SocketAddr>().unwrap()], 2, 8).unwrap();
            let port = listeners.bound_addresses()[0].port();
            let throttled = shard(&listeners, 3);
            let program = throttled.program.as_ref().unwrap();
            let silent = begin_connect([127, 0, 0, 3], port);
            let waiting = begin_connect([127, 0, 0, 3], port);
            waiting.send(b"G").unwrap();
            program.set_admitted_part(3, 0.0);
            program.apply(Moment::from_nanos(0)).unwrap();
            let dropped: Vec<_> = (0..20).map(|_| begin_connect([127, 0, 0, 3], port)).collect();
            assert!(dropped.iter().filter(|socket| is_connected(socket)).count() <= 1, "{listen}");
            assert!(is_connected(&begin_connect([127, 0, 0, 4], port)), "{listen}: another shard");
            // Requests of connections that have begun do not pass the throttle.
            silent.send(b"G").unwrap();
            assert_eq!(backlog_length(&throttled.socket).unwrap(), 2, "{listen}");
            throttled.socket.accept().unwrap();
            throttled.socket.accept().unwrap();
            program.set_admitted_part(3, 1.0);
            program.apply(Moment::from_nanos(0)).unwrap();
            assert!(is_connected(&begin_connect([127, 0, 0, 3], port)), "{listen}");
        }
    }

    #[test]
    fn a_client_with_a_reserve_shard_connects_there_and_the_other_clients_of_its_shard_do_not() {
        for listen in ["127.0.0.1:0", "[::]:0"] {
            let listeners = bind(&[listen.parse::<SocketAddr>().unwrap()], 2, 8).unwrap();
            let port = listeners.bound_addresses()[0].port();
            let (usual, reserve) = (shard(&listeners, 3), shard(&listeners, 9));
            assert_eq!(
                [usual, shard(&listeners, 8), reserve].map(|shard| shard.kind),
                [ShardKind::Usual, ShardKind::OwnAddress, ShardKind::Reserve]
            );
            let program = usual.program.as_ref().unwrap();
            let (loud, other) = ([127, 0, 0, 3], [127, 0, 1, 3]);
            let connect = |from: [u8; 4]| {
                let client = begin_connect(from, port);
                client.send(b"G").unwrap();
                client
            };
            let from =
                |shard: &ListenerShard| shard.socket.accept().ok().map(|(_, peer)| peer.ip().to_canonical());
            program.reserve(loud.into(), 9);
            // Its own throttle holds in the reserve shard, and the throttle of the usual one does not.
            program.set_admitted_part(3, 0.0);
            program.apply(Moment::from_nanos(0)).unwrap();
            let _loud = connect(loud);
            assert_eq!((from(reserve), from(usual)), (Some(loud.into()), None), "{listen}");
            program.set_admitted_part(3, 1.0);
            program.set_admitted_part(9, 0.0);
            program.apply(Moment::from_nanos(0)).unwrap();
            let _other = connect(other);
            assert_eq!((from(reserve), from(usual)), (None, Some(other.into())), "{listen}");
            let dropped: Vec<_> = (0..20).map(|_| begin_connect(loud, port)).collect();
            assert!(dropped.iter().filter(|socket| is_connected(socket)).count() <= 1, "{listen}");
            program.end_reserve(loud.into());
            program.apply(Moment::from_nanos(0)).unwrap();
            let _loud = connect(loud);
            assert_eq!((from(reserve), from(usual)), (None, Some(loud.into())), "{listen}");
        }
    }

    #[test]
    fn a_throttled_shard_admits_about_the_given_part_of_the_ports_and_other_ports_later() {
        let listeners = bind(&[any()], 1, 8).unwrap();
        let port = listeners.bound_addresses()[0].port();
        let program = shard(&listeners, 3).program.as_ref().unwrap();
        program.set_admitted_part(3, 0.5);
        let admitted = |seconds: u64| {
            program.apply(Moment::from_nanos(seconds * 1_000_000_000)).unwrap();
            let clients: Vec<_> = (0..60).map(|_| begin_connect([127, 0, 0, 3], port)).collect();
            clients.iter().filter(|socket| is_connected(socket)).count()
        };
        for period in 0..3 {
            let admitted = admitted(period * 4);
            assert!((15..=45).contains(&admitted), "{admitted} of 60");
        }
    }

    /// A client can set the time to live that the dropping socket lets pass.
    #[test]
    fn a_client_with_the_highest_time_to_live_does_not_get_past_the_throttle() {
        let listeners = bind(&[any()], 1, 8).unwrap();
        let port = listeners.bound_addresses()[0].port();
        let throttled = shard(&listeners, 3);
        let program = throttled.program.as_ref().unwrap();
        program.set_admitted_part(3, 0.0);
        program.apply(Moment::from_nanos(0)).unwrap();
        let clients: Vec<_> = (0..20)
            .map(|_| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                socket.set_ttl_v4(255).unwrap();
                socket.bind(&SocketAddr::from(([127, 0, 0, 3], 0)).into()).unwrap();
                socket.set_nonblocking(true).unwrap();
                let _ = socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into());
                let _ = socket.send(b"G");
                socket
            })
            .collect();
        assert!(backlog_length(&throttled.socket).unwrap() <= 1, "{clients:?}");
    }

    /// Many hostile pods can overload all shards at once. Before Linux 6.7, the kernel takes no program above 20 KiB.
    #[test]
    fn all_shards_can_be_throttled_at_once() {
        let listeners = bind(&[any()], 1, 256).unwrap();
        let port = listeners.bound_addresses()[0].port();
        let program = shard(&listeners, 3).program.as_ref().unwrap();
        for number in 0..shards_per_address(256) {
            program.set_admitted_part(number, if number == 4 { 0.999_99 } else { 0.0 });
        }
        for number in 0..MOST_RESERVE_SHARDS {
            program.reserve([127, 0, 1, number as u8].into(), 257 + number);
        }
        program.apply(Moment::from_nanos(0)).unwrap();
        let connected =
            |last| (0..20).filter(|_| is_connected(&begin_connect([127, 0, 0, last], port))).count();
        assert!(connected(3) <= 1 && connected(255) <= 1);
        assert_eq!(connected(4), 20);
    }

    #[test]
    fn a_disabled_throttle_drops_nothing() {
        let listeners = bind(&[any()], 1, 8).unwrap();
        let port = listeners.bound_addresses()[0].port();
        let program = shard(&listeners, 3).program.as_ref().unwrap();
        program.set_admitted_part(3, 0.0);
        program.apply(Moment::from_nanos(0)).unwrap();
        program.restore();
        program.apply(Moment::from_nanos(60_000_000_000)).unwrap();
        assert!((0..20).all(|_| is_connected(&begin_connect([127, 0, 0, 3], port))));
    }

    /// The cause of connections that were closed without a response: the kernel dropped a request because the backlog was full. It is
    /// the reason why a shard's backlog must not fill up.
    #[test]
    fn a_full_backlog_drops_the_request_of_a_connection_that_its_client_sees_as_open() {
        let listeners = bind(&[any()], 1, 8).unwrap();
        let port = listeners.bound_addresses()[0].port();
        let shard = shard(&listeners, 3);
        rustix::net::listen(&shard.socket, 0).unwrap();
        let clients: Vec<_> = (0..2).map(|_| begin_connect([127, 0, 0, 3], port)).collect();
        assert!(clients.iter().all(is_connected), "the backlog was empty when the SYNs came");
        clients.iter().for_each(|client| _ = client.send(b"G").unwrap());
        assert_eq!(backlog_length(&shard.socket).unwrap(), 1);
        shard.socket.accept().unwrap();
        assert_eq!(
            shard.socket.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock,
            "the second request is lost"
        );
    }

    /// Regression: a pod whose address ended in the same byte as the node's address made 7 of 31 readiness requests fail.
    #[test]
    fn a_connection_from_the_listeners_own_address_has_a_lane_of_its_own() {
        let cases =
            [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.9"), ("[::]:0", "::1"), ("[::1]:0", "::1")];
        for (listen, own) in cases {
            let listeners = bind(&[listen.parse::<SocketAddr>().unwrap()], 2, 8).unwrap();
            let own = own.parse().unwrap();
            let _client = connect(own, own, listeners.bound_addresses()[0].port());
            let accepted = listeners.shards_by_thread[0][4].socket.accept();
            assert_eq!(accepted.unwrap().1.ip().to_canonical(), own, "{listen}");
        }
    }

    #[test]
    fn a_connection_whose_client_has_sent_nothing_waits_in_the_kernel() {
        let listeners = bind(&[any()], 1, 1).unwrap();
        let mut client = std::net::TcpStream::connect(listeners.bound_addresses()[0]).unwrap();
        let lane = &listeners.shards_by_thread[0][0].socket;
        assert_eq!(lane.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        client.write_all(b"G").unwrap();
        lane.accept().unwrap();
    }

    #[test]
    fn a_limit_on_open_files_that_is_high_enough_is_left_alone() {
        assert_eq!(raise_open_files_limit(1).unwrap(), 1);
    }
}
