//! The kernel's answer to "who owns this socket": questions and answers of sock_diag(7) as bytes. Pure.
//!
//! One socket is asked for by its two ends, and the answer has the control group that it was made in (`INET_DIAG_CGROUP_ID`, Linux 5.9). Integers
//! are the machine's own, but ports and addresses, which are the network's. Structures: Linux, `include/uapi/linux/netlink.h`,
//! `sock_diag.h` and `inet_diag.h`.

use std::net::{IpAddr, SocketAddr};

use crate::net::octets;

/// `SOCK_DIAG_BY_FAMILY`, `NLMSG_ERROR`, `NLM_F_REQUEST`.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;

/// `AF_INET`, `AF_INET6`, `IPPROTO_TCP`.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;

/// `INET_DIAG_CGROUP_ID`, and an attribute's type without its two flags (`NLA_TYPE_MASK`).
const CGROUP_ID: u16 = 21;
const TYPE_MASK: u16 = 0x3fff;

/// `TCP_LISTEN`. Where no connection has these ends the kernel gives a listener at one of them.
const LISTEN: u8 = 10;

/// Sizes of `struct nlmsghdr`, `inet_diag_sockid`, `inet_diag_req_v2` and `inet_diag_msg`, in bytes.
const HEADER: usize = 16;
const SOCKET: usize = 48;
const QUESTION: usize = HEADER + 8 + SOCKET;
const ANSWER: usize = HEADER + 4 + SOCKET + 20;

/// Where `idiag_inode` is: 0 of what is left of a socket that nobody has open, of which the kernel keeps no group (`inet_twsk_diag_fill`).
const INODE: usize = ANSWER - 4;

/// The two ends of a connection, as the one asked about has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The end of the socket that is asked about.
    pub own: SocketAddr,
    /// The other.
    pub other: SocketAddr,
}

/// Why an answer names no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nameless {
    /// No socket has these ends, or it is being closed.
    NoSocket,
    /// The kernel tells no groups: it is older than 5.9.
    NoGroup,
    /// The kernel refused (errno), as without a module that tells of TCP.
    Refused(i32),
    /// No answer to this question.
    Misfit,
}

/// The question for a connection's socket, numbered; nothing for ends of two families, which no connection has.
#[must_use]
pub fn question(ends: Ends, number: u32) -> Option<[u8; QUESTION]> {
    let mut bytes = Vec::with_capacity(QUESTION);
    bytes.extend(u32::try_from(QUESTION).ok()?.to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    // From whom: the kernel knows.
    bytes.extend(0_u32.to_ne_bytes());
    let family = if is_ipv4(ends)? { IPV4 } else { IPV6 };
    bytes.extend([family, TCP, 0, 0]);
    // In every state, which counts for lists alone.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(ends.own.port().to_be_bytes());
    bytes.extend(ends.other.port().to_be_bytes());
    bytes.extend(address(ends.own.ip()));
    bytes.extend(address(ends.other.ip()));
    // At every interface; no cookie (`INET_DIAG_NOCOOKIE`).
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([0xff; 8]);
    bytes.try_into().ok()
}

/// The group in an answer, if it is one to this very question.
///
/// # Errors
/// Why there is none.
pub fn group(answer: &[u8], ends: Ends, number: u32) -> Result<u64, Nameless> {
    let length = part(answer, 0).map(u32::from_ne_bytes).ok_or(Nameless::Misfit)?;
    // What stands behind the message is another's.
    let answer =
        usize::try_from(length).ok().and_then(|length| answer.get(..length)).ok_or(Nameless::Misfit)?;
    let kind = part(answer, 4).map(u16::from_ne_bytes);
    if part(answer, 8).map(u32::from_ne_bytes) != Some(number) {
        return Err(Nameless::Misfit);
    }
    match kind {
        Some(BY_FAMILY) => socket(answer, ends),
        Some(ERROR) => Err(refusal(answer)),
        _ => Err(Nameless::Misfit),
    }
}

fn refusal(answer: &[u8]) -> Nameless {
    /// `ENOENT`.
    const NO_ENTRY: i32 = 2;
    match part(answer, HEADER).map(i32::from_ne_bytes).and_then(i32::checked_neg) {
        Some(NO_ENTRY) => Nameless::NoSocket,
        Some(errno @ 1..) => Nameless::Refused(errno),
        _ => Nameless::Misfit,
    }
}

fn socket(answer: &[u8], ends: Ends) -> Result<u64, Nameless> {
    let (Some([family, state]), Some(found)) = (part(answer, HEADER), found(answer)) else {
        return Err(Nameless::Misfit);
    };
    if !matches!(family, IPV4 | IPV6) {
        return Err(Nameless::Misfit);
    }
    if state == LISTEN || found != wanted(ends, family) {
        return Err(Nameless::NoSocket);
    }
    let is_open = part(answer, INODE).map(u32::from_ne_bytes) != Some(0);
    let nameless = if is_open { Nameless::NoGroup } else { Nameless::NoSocket };
    attributes(answer.get(ANSWER..).unwrap_or_default()).ok_or(nameless)
}

/// Ports and addresses of the socket that was found.
fn found(answer: &[u8]) -> Option<[u8; 36]> {
    let found = part(answer, HEADER + 4);
    answer.get(ANSWER - 1).and(found)
}

/// What they must be. A socket of IPv6 tells of its IPv4 connections by mapped addresses.
fn wanted(ends: Ends, family: u8) -> [u8; 36] {
    let write = |ip: IpAddr| if family == IPV6 { octets(ip) } else { address(ip) };
    let mut bytes = [0; 36];
    bytes[0..2].copy_from_slice(&ends.own.port().to_be_bytes());
    bytes[2..4].copy_from_slice(&ends.other.port().to_be_bytes());
    bytes[4..20].copy_from_slice(&write(ends.own.ip().to_canonical()));
    bytes[20..36].copy_from_slice(&write(ends.other.ip().to_canonical()));
    bytes
}

/// The group among attributes.
fn attributes(mut rest: &[u8]) -> Option<u64> {
    loop {
        let length = usize::from(part(rest, 0).map(u16::from_ne_bytes)?);
        let kind = part(rest, 2).map(u16::from_ne_bytes)? & TYPE_MASK;
        let value = rest.get(4..length)?;
        if kind == CGROUP_ID {
            return value.try_into().ok().map(u64::from_ne_bytes);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn is_ipv4(ends: Ends) -> Option<bool> {
    let (own, other) = (ends.own.ip().to_canonical(), ends.other.ip().to_canonical());
    (own.is_ipv4() == other.is_ipv4()).then_some(own.is_ipv4())
}

/// Four words, of which IPv4 takes the first.
fn address(ip: IpAddr) -> [u8; 16] {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: (&str, &str) = ("10.0.0.1:40000", "10.0.0.1:8988");

    fn ends((own, other): (&str, &str)) -> Ends {
        Ends { own: own.parse().unwrap(), other: other.parse().unwrap() }
    }

    /// What Linux 6.18 answered about a socket of `ENDS`, but for its numbers: attributes of shutdown, of the group, of what it pads with.
    fn answer(
        family: u8,
        state: u8,
        of: Ends,
        number: u32,
        inode: u32,
        attributes: &[(u16, &[u8])],
    ) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend(BY_FAMILY.to_ne_bytes());
        bytes.extend([0, 0]);
        bytes.extend(number.to_ne_bytes());
        bytes.extend(77_u32.to_ne_bytes());
        bytes.extend([family, state, 0, 0]);
        bytes.extend(wanted(of, family));
        bytes.extend([0; 12]);
        bytes.extend([0; 16]);
        bytes.extend(inode.to_ne_bytes());
        for (kind, value) in attributes {
            bytes.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    const ESTABLISHED: u8 = 1;

    #[test]
    fn the_group_is_read_among_other_attributes_whatever_the_sockets_family() {
        let id = 0x1234_5678_9abc_u64.to_ne_bytes();
        let attributes: [(u16, &[u8]); 3] = [(8, &[0]), (CGROUP_ID | 0x8000, &id), (14, &[])];
        for family in [IPV4, IPV6] {
            let bytes = answer(family, ESTABLISHED, ends(ENDS), 5, 9, &attributes);
            assert_eq!(group(&bytes, ends(ENDS), 5), Ok(0x1234_5678_9abc), "{family}");
        }
        let ipv6 = ends(("[fd00::1]:1", "[fd00::1]:2"));
        assert_eq!(group(&answer(IPV6, ESTABLISHED, ipv6, 5, 9, &attributes), ipv6, 5), Ok(0x1234_5678_9abc));
    }

    /// A listener at the client's port, another connection, another question's answer.
    #[test]
    fn only_the_connection_that_was_asked_for_is_told_of() {
        let attributes: [(u16, &[u8]); 1] = [(CGROUP_ID, &[1; 8])];
        let good = answer(IPV4, ESTABLISHED, ends(ENDS), 5, 9, &attributes);
        assert_eq!(group(&good, ends(ENDS), 6), Err(Nameless::Misfit));
        for other in [
            ("10.0.0.1:40001", ENDS.1),
            (ENDS.0, "10.0.0.1:8989"),
            ("10.0.0.2:40000", ENDS.1),
            (ENDS.1, ENDS.0),
        ] {
            assert_eq!(group(&good, ends(other), 5), Err(Nameless::NoSocket), "{other:?}");
        }
        let listener = answer(IPV4, LISTEN, ends(ENDS), 5, 9, &attributes);
        assert_eq!(group(&listener, ends(ENDS), 5), Err(Nameless::NoSocket));
    }

    #[test]
    fn what_the_kernel_refuses_or_does_not_tell_is_told_apart() {
        let without =
            |inode| group(&answer(IPV4, ESTABLISHED, ends(ENDS), 5, inode, &[(8, &[0])]), ends(ENDS), 5);
        assert_eq!((without(9), without(0)), (Err(Nameless::NoGroup), Err(Nameless::NoSocket)));
        let refused = |errno: i32| {
            let mut bytes = answer(IPV4, ESTABLISHED, ends(ENDS), 5, 9, &[]);
            bytes[4..6].copy_from_slice(&ERROR.to_ne_bytes());
            bytes[HEADER..HEADER + 4].copy_from_slice(&errno.to_ne_bytes());
            group(&bytes, ends(ENDS), 5)
        };
        assert_eq!(refused(-2), Err(Nameless::NoSocket));
        assert_eq!(refused(-95), Err(Nameless::Refused(95)));
        assert_eq!((refused(0), refused(i32::MIN)), (Err(Nameless::Misfit), Err(Nameless::Misfit)));
    }

    #[test]
    fn no_connection_has_ends_of_two_families() {
        assert_eq!(question(ends(("10.0.0.1:1", "[fd00::1]:2")), 1), None);
        let mapped = question(ends(("[::ffff:10.0.0.1]:1", "10.0.0.1:2")), 1);
        assert_eq!(mapped, question(ends(("10.0.0.1:1", "10.0.0.1:2")), 1));
        assert!(mapped.is_some());
    }
}
