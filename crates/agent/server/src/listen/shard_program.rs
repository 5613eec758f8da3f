//! The BPF program by which the kernel assigns each new connection of an address to a shard, and its throttle of overloaded shards.
//!
//! # Clients with a shard of their own
//! Some clients have a reserve shard ([`mod@super::reserve_shards`]). For them the program returns this shard instead of the one of
//! their address.
//!
//! # Throttle
//! The throttle drops a part of the new connections of an overloaded shard in the kernel, so that the shard's backlog never fills up.
//! A full backlog is unfair among the clients of one shard. A client that was just answered connects again at once, and takes the
//! place that its previous connection left. The kernel dropped the SYN of other clients, so they try again only after a second,
//! and find the backlog full. A full backlog also drops requests of connections whose SYN had a place.
//!
//! For an overloaded shard, the throttle extends the program ([`lane_of_address`]): it sends a part of the SYNs to a socket that drops
//! them. Packets of connections that have already begun do not pass the program. A secret hash of the client's port decides, and every
//! four seconds other ports are admitted. A client keeps its port when it tries again, so it is admitted after a few tries, whenever
//! it tries.
//!
//! The throttle needs no privilege. A filter on the listener itself (SO_ATTACH_FILTER) would need CAP_NET_ADMIN
//! (docs/decisions/overload.md). `crate::admission` decides how large the part is.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::libc;
use nix::setsockopt_impl;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{AttachReusePortCbpf, SetStruct};
use seawall_core::{Moment, clock};
use socket2::Socket;

/// The time for which the same ports are admitted. In a simulation, clients had more equal chances with 4 s than with 2 s or 8 s.
const PORTS_ADMITTED_FOR: Duration = Duration::from_secs(4);

/// The number of values of a port's hash.
const HASHES: u32 = 1 << 16;

/// The golden ratio of [`HASHES`]. Multiples of it are spread evenly, both for ports that follow each other and for periods.
const GOLDEN: u32 = 40_503;

/// The offset at which the network header begins for load instructions (SKF_NET_OFF in linux/filter.h).
pub(super) const NETWORK: u32 = 0u32.wrapping_sub(0x10_0000);

setsockopt_impl!(MinTtl, libc::IPPROTO_IP, libc::IP_MINTTL, i32, SetStruct<'_, i32>);
setsockopt_impl!(MinHopCount, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, i32, SetStruct<'_, i32>);

/// The socket option that drops IPv4 packets with a lower time to live (ip(7), IP_MINTTL).
#[derive(Clone, Copy, Debug)]
struct MinTtl;

/// The socket option that drops IPv6 packets with a lower hop limit (RFC 5082; IPV6_MINHOPCOUNT in linux/in6.h).
#[derive(Clone, Copy, Debug)]
struct MinHopCount;

/// The program of the shards of one address. The threads share it, because the kernel has one program for all shards of an address.
/// A thread takes the lock at most each 20 ms, and only while one of its shards is overloaded.
#[derive(Debug)]
pub(crate) struct ShardProgram(Mutex<ProgramState>);

#[derive(Debug)]
struct ProgramState {
    /// The socket that drops each SYN. `None` after [`ShardProgram::restore`].
    dropping: Option<TcpListener>,
    /// The index of the dropping socket among the sockets of the address.
    dropping_index: u32,
    /// The program that assigns connections to shards. Its last instruction returns the shard.
    shard_program: Vec<libc::sock_filter>,
    secret: Secret,
    extensions: Extensions,
    /// The period and the extensions of the program that the kernel has now.
    attached: (u32, Extensions),
    /// True if the kernel refused the last program.
    has_failed: bool,
    /// The CPU time of the process at which a change of the throttle alone may be applied.
    next_change_at: Duration,
}

/// A change of the throttle alone waits until the process has used this multiple of the CPU time that the kernel took to compile the last
/// program. With eight overloaded shards under a CPU quota of 30m, changes each 20 ms took 10 % of the process's time.
const USED_PER_CHANGE: u32 = 50;

/// The largest CPU time that counts as that of one program. The thread can be charged for other work of the kernel, too, and the ports that
/// the throttle admits must change soon.
const MAX_COST: Duration = Duration::from_millis(1);

/// What extends the program that assigns connections to shards by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Extensions {
    /// The number of admitted port hashes, by shard. A shard that admits all ports is absent.
    admitted: BTreeMap<u32, u32>,
    /// The reserve shards of clients, by the hash of their addresses ([`Secret::hash_of_address`]).
    reserved: BTreeMap<u32, u32>,
}

impl Extensions {
    /// Sets the number of port hashes that a shard admits. A number that differs by less than a twentieth from the one before changes
    /// nothing, because the kernel compiles the program again at each change.
    fn admit(&mut self, shard: u32, ports: u32) {
        let ports = ports.max(1);
        let is_near = |before: &u32| before.abs_diff(ports) < before / 20;
        if ports >= HASHES {
            self.admitted.remove(&shard);
        } else if !self.admitted.get(&shard).is_some_and(is_near) {
            self.admitted.insert(shard, ports);
        }
    }
}

/// The parameters of the hashes of ports and of addresses. They differ in each process. Without them, a client could choose a port that
/// is admitted now, and leave the drops to the other clients of its shard.
#[derive(Clone, Copy, Debug)]
struct Secret {
    /// An odd number, so that no two ports have the same product.
    multiplier: u32,
    offset: u32,
    /// An odd number.
    address_multiplier: u32,
}

impl Secret {
    fn new() -> Self {
        // The keys of a `RandomState` come from the kernel's random numbers.
        let random = RandomState::new().hash_one(0_u8);
        Self {
            multiplier: (random as u32 & (HASHES - 1)) | 1,
            offset: (random >> 16) as u32 & (HASHES - 1),
            address_multiplier: (random >> 32) as u32 | 1,
        }
    }

    /// Returns a hash of a client's address, as the program computes it. Two IPv4 addresses never have the same hash, and two IPv6
    /// addresses only by chance. After each multiplication the upper bits change the lower ones, because a change of the highest bit
    /// would otherwise stay the same for each secret. Clients with the same hash have the same reserve shard.
    fn hash_of_address(self, address: IpAddr) -> u32 {
        match address.to_canonical() {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(address) => {
                let words = [96, 64, 32, 0].map(|shift| (address.to_bits() >> shift) as u32);
                words.into_iter().fold(0, |hash: u32, word| {
                    let hash = hash.wrapping_mul(self.address_multiplier);
                    hash ^ (hash >> 16) ^ word
                })
            }
        }
    }
}

impl ShardProgram {
    /// Adds a socket that drops each SYN to the sockets of an address. `socket` is not bound yet, and shares its port. The address
    /// already has `sockets` listening sockets, and the kernel runs `shard_program` for them.
    ///
    /// # Errors
    /// The kernel cannot drop packets by their time to live, or the socket cannot listen.
    pub(super) fn new(
        socket: Socket,
        address: SocketAddr,
        sockets: usize,
        shard_program: Vec<libc::sock_filter>,
    ) -> io::Result<Self> {
        // Linux sends a time to live of 64, and a packet of another machine has less than 255. A client that sends 255 on purpose gets
        // a connection that stays unanswered, and then the socket's backlog of one connection is full.
        const MOST: i32 = 255;
        setsockopt(&socket, MinTtl, &MOST)?;
        if address.is_ipv6() {
            setsockopt(&socket, MinHopCount, &MOST)?;
        }
        socket.bind(&address.into())?;
        socket.listen(0)?;
        Ok(Self(Mutex::new(ProgramState {
            dropping: Some(socket.into()),
            dropping_index: u32::try_from(sockets).unwrap_or(u32::MAX),
            shard_program,
            secret: Secret::new(),
            extensions: Extensions::default(),
            attached: (0, Extensions::default()),
            has_failed: false,
            next_change_at: Duration::ZERO,
        })))
    }

    /// Sets the part of new connections that a shard admits, from 0 to 1. The part takes effect at the next call of [`Self::apply_when_due`].
    pub(super) fn set_admitted_part(&self, shard: usize, part: f64) {
        let Ok(shard) = u32::try_from(shard) else { return };
        self.state().extensions.admit(shard, (part * f64::from(HASHES)) as u32);
    }

    /// Gives all new connections of a client to the reserve shard with this number, from the next call of [`Self::apply_when_due`] on.
    pub(super) fn reserve(&self, client: IpAddr, shard: usize) {
        let Ok(shard) = u32::try_from(shard) else { return };
        let mut state = self.state();
        let hash = state.secret.hash_of_address(client);
        state.extensions.reserved.insert(hash, shard);
    }

    /// Gives the new connections of a client to the shard of its address again, from the next call of [`Self::apply_when_due`] on.
    pub(super) fn end_reserve(&self, client: IpAddr) {
        let mut state = self.state();
        let hash = state.secret.hash_of_address(client);
        state.extensions.reserved.remove(&hash);
    }

    /// Passes the changes to the kernel. A change of the throttle alone waits until the process has used enough CPU
    /// time since the last change. `used` is the CPU time of the process.
    ///
    /// # Errors
    /// The kernel has no memory for the program.
    pub(super) fn apply_when_due(&self, now: Moment, used: Duration) -> io::Result<()> {
        let mut state = self.state();
        let (_, attached) = &state.attached;
        let may_wait = state.has_failed || attached.reserved == state.extensions.reserved;
        if may_wait && used < state.next_change_at {
            return Ok(());
        }
        state.apply(now)
    }

    /// Passes the changes to the kernel, if a shard is no longer throttled, or if a client was added or removed. Most calls cost nothing.
    ///
    /// # Errors
    /// The kernel has no memory for the program.
    pub(super) fn apply_members(&self, now: Moment) -> io::Result<()> {
        let mut state = self.state();
        let (_, attached) = &state.attached;
        let has_ended = |shard: &u32| !state.extensions.admitted.contains_key(shard);
        if attached.reserved == state.extensions.reserved && !attached.admitted.keys().any(has_ended) {
            return Ok(());
        }
        state.apply(now)
    }

    /// Passes the changes to the kernel at once.
    #[cfg(test)]
    pub(super) fn apply(&self, now: Moment) -> io::Result<()> {
        self.state().apply(now)
    }

    /// Restores the program without a throttle, and closes the socket that drops connections. Call this function before a shard of the
    /// address closes, because the kernel then gives the shard's index to the last socket.
    pub(super) fn restore(&self) {
        let mut state = self.state();
        if let Some(socket) = state.dropping.take() {
            // If the kernel refuses the program, it keeps the last one. The index of the socket is then invalid, so the kernel chooses
            // a shard by a hash.
            let _ = attach(&socket, state.shard_program.clone());
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ProgramState> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProgramState {
    /// Passes the changes to the kernel, if there are any or if a new period of the throttle has begun. The kernel takes 9 µs on an idle
    /// machine and more than 100 µs on a busy one.
    ///
    /// # Errors
    /// The kernel has no memory for the program.
    fn apply(&mut self, now: Moment) -> io::Result<()> {
        let period = if self.extensions.admitted.is_empty() { 0 } else { period_of(now) };
        let (then, attached) = &self.attached;
        if *then == period && *attached == self.extensions {
            return Ok(());
        }
        let Some(socket) = &self.dropping else { return Ok(()) };
        let program =
            extended(&self.shard_program, &self.extensions, self.secret, period, self.dropping_index);
        let begun = clock::thread_cpu_time();
        let result = attach(socket, program);
        if result.is_ok() {
            self.attached = (period, self.extensions.clone());
        } else if attach(socket, self.shard_program.clone()).is_ok() {
            // The program before could drop connections of shards that are no longer overloaded.
            self.attached = (0, Extensions::default());
        }
        self.has_failed = result.is_err();
        let cost = clock::thread_cpu_time().saturating_sub(begun).min(MAX_COST);
        self.next_change_at = clock::process_cpu_time() + USED_PER_CHANGE * cost;
        result
    }
}

/// Returns the number of the period that contains `now`.
fn period_of(now: Moment) -> u32 {
    (now.since(Moment::from_nanos(0)).as_millis() / PORTS_ADMITTED_FOR.as_millis()) as u32
}

/// Makes the kernel run this program for each new connection of the socket's address.
pub(super) fn attach(socket: &TcpListener, mut program: Vec<libc::sock_filter>) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    Ok(setsockopt(socket, AttachReusePortCbpf, &program)?)
}

/// Returns an instruction of classic BPF (Linux, Documentation/networking/filter.rst).
pub(super) fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Extends the program that returns the shard. A connection of a client in `reserved` goes to the client's reserve shard. A SYN of a
/// shard in `admitted` goes to the socket `dropping`, unless its port is admitted. A port is admitted if its hash is below the shard's
/// number. The hash moves in each period.
///
/// A connection from the listener's own address is neither moved nor dropped, because `shard_program` returns its shard at once.
fn extended(
    shard_program: &[libc::sock_filter],
    Extensions { admitted, reserved }: &Extensions,
    secret: Secret,
    period: u32,
    dropping: u32,
) -> Vec<libc::sock_filter> {
    const HASHED: u32 = 0;
    const SHARD: u32 = 1;
    const ADDRESS: u32 = 2;
    /// The number of TCP in the field Next Header of IPv6 (RFC 9293).
    const TCP: u32 = 6;
    /// The flags SYN and ACK of a TCP header (RFC 9293, section 3.1). The first packet has only SYN.
    const SYN_ACK: u32 = 0x12;
    const SYN: u32 = 0x02;
    use libc::{BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGT};
    use libc::{
        BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_MEM, BPF_MISC, BPF_MUL, BPF_RET, BPF_RSH, BPF_ST, BPF_TAX,
        BPF_W, BPF_X, BPF_XOR,
    };
    let Some((return_shard, choose_shard)) = shard_program.split_last() else { return Vec::new() };
    debug_assert_eq!(return_shard.code, (BPF_RET | BPF_A) as u16);
    let byte = |offset: u32| instruction(BPF_LD | BPF_B | BPF_ABS, 0, 0, NETWORK.wrapping_add(offset));
    let half = |offset: u32| instruction(BPF_LD | BPF_H | BPF_ABS, 0, 0, NETWORK.wrapping_add(offset));
    let calculate = |operator, k| instruction(BPF_ALU | operator | BPF_K, 0, 0, k);
    let if_equal = |k, jf| instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, jf, k);
    let skip = |count| instruction(BPF_JMP | BPF_JA, 0, 0, count);
    let offset = secret.offset.wrapping_add(GOLDEN.wrapping_mul(period)) % HASHES;
    let load = |value| instruction(BPF_LD | BPF_IMM, 0, 0, value);
    let word = |offset: u32| instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, NETWORK.wrapping_add(offset));
    let keep = instruction(BPF_MISC | BPF_TAX, 0, 0, 0);
    let xor_kept = instruction(BPF_ALU | BPF_XOR | BPF_X, 0, 0, 0);
    let mut program = vec![
        // IPv4 without options: the TCP header follows the 20 bytes of the IP header. Byte 0 of it begins the source port, and byte
        // 13 has the flags.
        byte(0),
        if_equal(0x45, 5),
        byte(20 + 13),
        calculate(BPF_AND, SYN_ACK),
        if_equal(SYN, 21),
        half(20),
        skip(8),
        // IPv6 without extension headers: the TCP header follows the 40 bytes of the IP header.
        calculate(BPF_RSH, 4),
        if_equal(6, 15),
        byte(6),
        if_equal(TCP, 13),
        byte(40 + 13),
        calculate(BPF_AND, SYN_ACK),
        if_equal(SYN, 12),
        half(40),
        // The hash of the port.
        calculate(BPF_MUL, secret.multiplier),
        calculate(BPF_AND, HASHES - 1),
        keep,
        calculate(BPF_RSH, 8),
        xor_kept,
        calculate(BPF_MUL, GOLDEN),
        calculate(BPF_ADD, offset),
        calculate(BPF_AND, HASHES - 1),
        skip(3),
        // Options and extension headers move the port, and no client needs them. Such packets are never admitted.
        load(HASHES - 1),
        skip(1),
        // Packets other than SYNs are always admitted.
        load(0),
        instruction(BPF_ST, 0, 0, HASHED),
    ];
    // The hash of the source address: bytes 8 to 23 of IPv6, bytes 12 to 15 of IPv4.
    program.extend([byte(0), calculate(BPF_RSH, 4), if_equal(6, 23), word(8)]);
    for offset in [12, 16, 20] {
        program.extend([
            calculate(BPF_MUL, secret.address_multiplier),
            keep,
            calculate(BPF_RSH, 16),
            xor_kept,
        ]);
        program.extend([keep, word(offset), xor_kept]);
    }
    program.extend([skip(1), word(12), instruction(BPF_ST, 0, 0, ADDRESS)]);
    program.extend(choose_shard);
    program.push(instruction(BPF_ST, 0, 0, SHARD));
    program.push(instruction(BPF_LD | BPF_MEM, 0, 0, ADDRESS));
    for (client, shard) in reserved {
        let to_shard =
            [load(*shard), instruction(BPF_ST, 0, 0, SHARD), instruction(BPF_LD | BPF_MEM, 0, 0, ADDRESS)];
        program.push(if_equal(*client, 3));
        program.extend(to_shard);
    }
    program.push(instruction(BPF_LD | BPF_MEM, 0, 0, SHARD));
    // Three instructions for each shard: with all 256 shards, the program must fit into 20 KiB as the kernel translates it, the
    // default of net.core.optmem_max before Linux 6.7.
    let mut later_shards = u32::try_from(admitted.len()).unwrap_or(u32::MAX);
    for (shard, ports) in admitted {
        later_shards -= 1;
        program.extend([if_equal(*shard, 2), load(*ports), skip(3 * later_shards + 1)]);
    }
    program.extend([
        *return_shard,
        instruction(BPF_LDX | BPF_MEM, 0, 0, HASHED),
        instruction(BPF_JMP | BPF_JGT | BPF_X, 0, 2, 0),
        instruction(BPF_LD | BPF_MEM, 0, 0, SHARD),
        *return_shard,
        instruction(BPF_RET | BPF_K, 0, 0, dropping),
    ]);
    program
}

/// Returns the BPF program that selects a shard: the last byte of the source address, modulo `lanes`.
/// If the source address equals the destination address, the program selects the additional shard, which has the number `lanes`.
/// The kernel uses the result as an index into the sockets, in the order in which they began to listen. The program is classic BPF
/// (Linux, Documentation/networking/filter.rst; socket(7), SO_ATTACH_REUSEPORT_CBPF). A listener can serve both IP families, so the
/// program reads the family from the packet.
pub(super) fn lane_of_address(lanes: usize) -> Vec<libc::sock_filter> {
    // The numbers of the instructions to which the program jumps.
    const OWN: u8 = 25;
    const LAST_BYTE_V6: u8 = 26;
    const MASK: u8 = 27;
    let lanes = u32::try_from(lanes.max(1)).unwrap_or(u32::MAX);
    let step = instruction;
    let at = |offset: u32| NETWORK.wrapping_add(offset);
    let load_byte = |offset| step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, at(offset));
    let load_word = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at(offset));
    let keep = step(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0);
    let if_kept = |jt, jf| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X, jt, jf, 0);
    let mut program = vec![
        load_byte(0),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 0, 0, 4),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 6, 4),
        // IPv4 (RFC 791, section 3.1): bytes 12 to 15 are the source address, and bytes 16 to 19 are the destination.
        load_word(12),
        keep,
        load_word(16),
        if_kept(OWN - 7, 0),
        load_byte(15),
        step(libc::BPF_JMP | libc::BPF_JA, 0, 0, u32::from(MASK - 9)),
    ];
    // IPv6 (RFC 8200, section 3): bytes 8 to 23 are the source address, and bytes 24 to 39 are the destination.
    for (word, next) in (0..4).zip([13, 17, 21, 25]) {
        let differ = if_kept(0, LAST_BYTE_V6 - next);
        program.extend([load_word(8 + 4 * word), keep, load_word(24 + 4 * word), differ]);
    }
    program.extend([
        step(libc::BPF_RET | libc::BPF_K, 0, 0, lanes),
        load_byte(23),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, lanes - 1),
        step(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
    ]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program of the opcodes that this module uses on a packet that begins with its network header.
    fn run(program: &[libc::sock_filter], packet: &[u8]) -> u32 {
        let (mut at, mut a, mut x) = (0, 0u32, 0u32);
        let mut memory = [0; 16];
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            let offset = k.wrapping_add(0x10_0000) as usize;
            let jump = |is_taken| usize::from(if is_taken { jt } else { jf });
            at += 1;
            match code {
                0x30 => a = u32::from(packet[offset]),
                0x20 => a = u32::from_be_bytes(packet[offset..offset + 4].try_into().unwrap()),
                0x07 => x = a,
                0x74 => a >>= k,
                0x54 => a &= k,
                0x24 => a = a.wrapping_mul(k),
                0x04 => a = a.wrapping_add(k),
                0xac => a ^= x,
                0x00 => a = k,
                0x28 => a = u32::from(u16::from_be_bytes(packet[offset..offset + 2].try_into().unwrap())),
                0x02 => memory[k as usize] = a,
                0x60 => a = memory[k as usize],
                0x61 => x = memory[k as usize],
                0x2d => at += jump(a > x),
                0x05 => at += k as usize,
                0x15 => at += jump(a == k),
                0x1d => at += jump(a == x),
                0x06 => return k,
                0x16 => return a,
                other => panic!("opcode {other:#x}"),
            }
        }
    }

    /// Sockets cannot show it for two addresses of IPv6, because loopback has one.
    #[test]
    fn the_lane_is_the_last_byte_of_the_source_unless_that_is_the_destination() {
        let v4 = |from: [u8; 4], to: [u8; 4]| [&[0x45; 12][..], &from, &to].concat();
        let v6 = |from: &str, to: &str| {
            let [from, to]: [std::net::Ipv6Addr; 2] = [from, to].map(|text| text.parse().unwrap());
            [&[0x60; 8][..], &from.octets(), &to.octets()].concat()
        };
        let node = "2001:db8:1:2::a:9";
        for (packet, lane) in [
            (v4([10, 1, 2, 250], [10, 1, 2, 9]), 250 % 64),
            (v4([10, 1, 3, 9], [10, 1, 2, 9]), 9),
            (v4([10, 1, 2, 9], [10, 1, 2, 9]), 64),
            (v6("2001:db8:1:2::a:8", node), 8),
            // Each word differs once.
            (v6("2001:db9:1:2::a:9", node), 9),
            (v6("2001:db8:1:3::a:9", node), 9),
            (v6("2001:db8:1:2:0:1:a:9", node), 9),
            (v6("2001:db8:1:2::b:9", node), 9),
            (v6(node, node), 64),
        ] {
            assert_eq!(run(&lane_of_address(64), &packet), lane, "{packet:?}");
        }
    }

    /// Regression: while shards were overloaded, the kernel compiled the program 50 times a second.
    #[test]
    fn a_small_change_of_the_admitted_part_does_not_change_the_program() {
        let mut extensions = Extensions::default();
        let mut programs = std::collections::BTreeSet::new();
        for step in 0..1000 {
            extensions.admit(3, 10_000 + step);
            programs.insert(extensions.admitted[&3]);
        }
        assert!((2..4).contains(&programs.len()), "{programs:?}");
        extensions.admit(3, 1);
        assert_eq!(extensions.admitted[&3], 1);
        extensions.admit(3, 2);
        assert_eq!(extensions.admitted[&3], 2);
        extensions.admit(3, HASHES);
        assert_eq!(extensions, Extensions::default());
    }

    #[test]
    fn a_change_of_the_throttle_alone_waits_for_cpu_time_and_any_other_change_does_not() {
        let address: SocketAddr = ([127, 0, 0, 1], 0).into();
        let unbound = || super::super::unbound(address, true).unwrap();
        let first = unbound();
        first.bind(&address.into()).unwrap();
        first.listen(1).unwrap();
        let address = first.local_addr().unwrap().as_socket().unwrap();
        let program = ShardProgram::new(unbound(), address, 1, lane_of_address(1)).unwrap();
        let apply = |used| {
            program.apply_when_due(Moment::from_nanos(0), used).unwrap();
            let state = program.state();
            (state.attached.1 == state.extensions, state.next_change_at)
        };
        program.set_admitted_part(0, 0.5);
        let (is_attached, next) = apply(Duration::ZERO);
        assert!(is_attached && next > Duration::ZERO);
        program.set_admitted_part(0, 0.2);
        let moment_before = next - Duration::from_nanos(1);
        assert!(!apply(moment_before).0 && apply(next).0);
        program.reserve([127, 0, 0, 3].into(), 0);
        assert!(apply(Duration::ZERO).0, "a client moves at once");
        program.set_admitted_part(0, 0.5);
        program.apply_members(Moment::from_nanos(0)).unwrap();
        assert!(!apply(Duration::ZERO).0);
        program.set_admitted_part(0, 1.0);
        assert!(!apply(Duration::ZERO).0, "a shard can leave the throttle and come back each 20 ms");
        program.apply_members(Moment::from_nanos(0)).unwrap();
        assert!(apply(Duration::ZERO).0, "otherwise the kernel would go on to drop connections");
    }

    /// Sockets cannot show it for IPv6, because loopback has one address.
    #[test]
    fn each_word_of_an_ipv6_address_decides_whether_a_client_has_a_reserve_shard() {
        let packet = |from: &str| {
            let from: std::net::Ipv6Addr = from.parse().unwrap();
            let mut head = [0; 8];
            (head[0], head[6]) = (0x60, 6);
            // A SYN (byte 13 of the TCP header).
            let mut tcp = [0; 20];
            tcp[13] = 0x02;
            [&head[..], &from.octets(), &[0xfe; 16], &tcp].concat()
        };
        let secret = Secret::new();
        let client = "2001:db8:1:2::a:9";
        let hash = secret.hash_of_address(client.parse().unwrap());
        let mut extensions =
            Extensions { reserved: BTreeMap::from([(1, 70), (hash, 71), (2, 72)]), ..Extensions::default() };
        let run = |extensions: &Extensions, from| {
            run(&extended(&lane_of_address(64), extensions, secret, 0, 99), &packet(from))
        };
        assert_eq!(run(&extensions, client), 71);
        for other in ["2001:db9:1:2::a:9", "2001:db8:1:3::a:9", "2001:db8:1:2:0:1:a:9", "2001:db8:1:2::b:9"] {
            assert_eq!(run(&extensions, other), 9, "{other}");
        }
        extensions.admitted.insert(71, 0);
        assert_eq!(run(&extensions, client), 99, "its reserve shard is throttled");
        assert_eq!(run(&extensions, "2001:db8:1:2::b:9"), 9);
    }
}
