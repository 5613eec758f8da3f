//! What must hold for every byte string that comes in the place of the kernel's answer about a socket. Called by the fuzz target
//! `sock_diag`, by the replay of its corpus, and by the property tests.
//!
//! Three things. A group is read of an answer to the very question alone: another number, or another end, and there is none. It is read of a
//! whole answer alone: cut anywhere, it is none. And whatever attributes stand before it, the group that was written is the one that is read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use seawall_redirect::sock_diag::{Ends, Nameless, group};

/// The question that answers of the corpus answer.
pub const NUMBER: u32 = 5;

/// Its ends, of IPv4.
pub const IPV4: Ends = ends(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));

/// And of IPv6.
pub const IPV6: Ends = ends(IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)));

/// What an input turned out to be; tests count these so that a property which nothing reaches is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// An answer with a group.
    pub group: bool,
    /// One that says why there is none.
    pub reason: bool,
}

const fn ends(ip: IpAddr) -> Ends {
    Ends { own: SocketAddr::new(ip, 40_000), other: SocketAddr::new(ip, 8988) }
}

/// Checks an input as an answer, and as attributes in one that is good.
pub fn check(input: &[u8]) -> Seen {
    let mut seen = Seen::default();
    for ends in [IPV4, IPV6] {
        match group(input, ends, NUMBER) {
            Ok(id) => {
                check_read(input, ends, id);
                seen.group = true;
            }
            Err(Nameless::Misfit) => {}
            Err(_) => seen.reason = true,
        }
        check_written(input, ends);
    }
    seen
}

fn check_read(input: &[u8], ends: Ends, id: u64) {
    assert!(input.windows(8).any(|bytes| bytes == id.to_ne_bytes()), "a group that nobody wrote");
    assert_eq!(group(input, ends, NUMBER + 1), Err(Nameless::Misfit), "another question's");
    let elsewhere = |end: SocketAddr| SocketAddr::new(end.ip(), end.port() + 1);
    for other in [
        Ends { own: elsewhere(ends.own), ..ends },
        Ends { other: elsewhere(ends.other), ..ends },
        Ends { own: ends.other, other: ends.own },
    ] {
        assert_eq!(group(input, other, NUMBER), Err(Nameless::NoSocket), "another connection's");
    }
    let length = input.first_chunk().map_or(0, |length| u32::from_ne_bytes(*length) as usize);
    for cut in 0..length {
        assert_eq!(group(&input[..cut], ends, NUMBER), Err(Nameless::Misfit), "cut at {cut}");
    }
    let more = [input, b"more"].concat();
    assert_eq!(group(&more, ends, NUMBER), Ok(id), "what stands behind it is another's");
}

/// `INET_DIAG_CGROUP_ID` (Linux, `include/uapi/linux/inet_diag.h`).
const CGROUP_ID: u16 = 21;

fn check_written(input: &[u8], ends: Ends) {
    const ID: u64 = 0x0102_0304_0506_0708;
    let mut answer = head(ends);
    for value in input.chunks(13).take(64) {
        let kind = u16::from(value[0]);
        if kind != CGROUP_ID {
            attribute(&mut answer, kind, value);
        }
    }
    attribute(&mut answer, CGROUP_ID, &ID.to_ne_bytes());
    let length = u32::try_from(answer.len()).unwrap_or(u32::MAX);
    answer[..4].copy_from_slice(&length.to_ne_bytes());
    assert_eq!(group(&answer, ends, NUMBER), Ok(ID), "to the letter");
}

/// `struct nlmsghdr` without its length and `struct inet_diag_msg` of an established connection.
fn head(ends: Ends) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(20_u16.to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend(NUMBER.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend([if ends.own.is_ipv4() { 2 } else { 10 }, 1, 0, 0]);
    bytes.extend(ends.own.port().to_be_bytes());
    bytes.extend(ends.other.port().to_be_bytes());
    for end in [ends.own, ends.other] {
        let start = bytes.len();
        match end.ip() {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
        bytes.resize(start + 16, 0);
    }
    bytes.resize(16 + 72, 1);
    bytes
}

fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend(u16::try_from(4 + value.len()).unwrap_or(u16::MAX).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}
