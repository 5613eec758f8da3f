//! Parses the TCP sockets of this network namespace from `/proc/net/tcp` and `tcp6`.
//!
//! Format: Linux `proc_pid_net(5)`, `Documentation/networking/proc_net_tcp.rst`, `net/ipv4/tcp_ipv4.c` (`get_tcp4_sock`). An address is
//! written in groups of four bytes, each as a number in the machine's byte order. A port is a plain hexadecimal number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::file_reader::{HostFiles, ProbeError, ProbeResult, read_parsed};

/// The state of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpState {
    /// The socket listens (10).
    Listen,
    /// The socket is closed, and its port stays taken for a minute (6).
    TimeWait,
    /// Another state of `include/net/tcp_states.h`.
    Other,
}

/// One socket. An IPv4-mapped IPv6 address is given as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSocket {
    /// The local address.
    pub local: SocketAddr,
    /// The remote address; all zeros without a peer.
    pub remote: SocketAddr,
    /// The state.
    pub state: TcpState,
    /// The connections that wait for accept at a listener; the unread bytes of other sockets.
    pub receive_queue: u32,
}

impl TcpSocket {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
        let state = match u8::from_str_radix(fields.next()?, 16).ok()? {
            10 => TcpState::Listen,
            6 => TcpState::TimeWait,
            _ => TcpState::Other,
        };
        let (_, waiting) = fields.next()?.split_once(':')?;
        Some(Self { local, remote, state, receive_queue: u32::from_str_radix(waiting, 16).ok()? })
    }
}

fn address(field: &str) -> Option<SocketAddr> {
    let (ip, port) = field.split_once(':')?;
    let group = |at: usize| Some(u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(group(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&group(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// The sockets of both tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpSockets {
    /// The sockets in any order.
    pub all: Vec<TcpSocket>,
    /// True if a table was too long to read, so that sockets are missing.
    pub is_truncated: bool,
}

impl TcpSockets {
    /// Reads both tables; a machine without IPv6 has only one.
    ///
    /// # Errors
    /// A table is unreadable or has an unexpected format.
    pub fn read(files: &dyn HostFiles) -> ProbeResult<Self> {
        let mut sockets = read_parsed(files, "/proc/net/tcp", Self::parse)?;
        match read_parsed(files, "/proc/net/tcp6", Self::parse) {
            Ok(mut six) => {
                sockets.all.append(&mut six.all);
                sockets.is_truncated |= six.is_truncated;
            }
            Err(ProbeError::Missing(_)) => {}
            Err(why) => return Err(why),
        }
        Ok(sockets)
    }

    /// Parses one table. An incomplete last line means that the table was cut.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (mut lines, is_cut) = (text.lines(), !text.ends_with('\n'));
        lines.next().filter(|names| names.trim_start().starts_with("sl"))?;
        if is_cut {
            lines.next_back();
        }
        Some(Self { all: lines.map(TcpSocket::parse).collect::<Option<_>>()?, is_truncated: is_cut })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
    const LISTENER: &str = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 1683 1 0 100 0 0 10 0\n";
    const WAITING: &str =
        "   1: 0100007F:8000 0200007F:01BB 06 00000000:00000000 03:00000C4F 00000000     0        0 0 3 0\n";
    const SIX: &str = "   0: 0000000000000000FFFF00000100007F:C350 00000000000000000000000001000000:0050 01 00000000:00000000 00:00000000 00000000     0        0 77 1 0\n";

    /// The table is from a little-endian machine, like all supported ones.
    #[test]
    fn a_table_of_sockets_is_read() {
        let table = TcpSockets::parse(&[NAMES, LISTENER, WAITING].concat()).unwrap();
        let expected = [
            ("127.0.0.1:8080", "0.0.0.0:0", TcpState::Listen, 3),
            ("127.0.0.1:32768", "127.0.0.2:443", TcpState::TimeWait, 0),
        ];
        let found: Vec<_> = table
            .all
            .iter()
            .map(|socket| (socket.local, socket.remote, socket.state, socket.receive_queue))
            .collect();
        assert_eq!(
            found,
            expected.map(|(local, remote, state, waiting)| (
                local.parse().unwrap(),
                remote.parse().unwrap(),
                state,
                waiting
            ))
        );
        assert!(!table.is_truncated);
    }

    #[test]
    fn an_ipv4_address_in_ipv6s_form_is_ipv4s() {
        let table = TcpSockets::parse(&[NAMES, SIX].concat()).unwrap();
        assert_eq!(table.all[0].local, "127.0.0.1:50000".parse().unwrap());
        assert_eq!(table.all[0].remote, "[::1]:80".parse().unwrap());
    }

    #[test]
    fn a_table_that_was_cut_says_so() {
        let whole = [NAMES, LISTENER, WAITING].concat();
        let cut = TcpSockets::parse(&whole[..whole.len() - 20]).unwrap();
        assert_eq!((cut.all.len(), cut.is_truncated), (1, true));
    }

    #[test]
    fn what_is_no_table_is_not_taken_for_an_empty_one() {
        assert_eq!(TcpSockets::parse(""), None);
        assert_eq!(TcpSockets::parse("nonsense\n"), None);
        assert_eq!(TcpSockets::parse(&[NAMES, "0: x y z\n"].concat()), None);
        assert_eq!(TcpSockets::parse(NAMES), Some(TcpSockets::default()));
    }

    proptest! {
        #[test]
        fn no_table_is_too_strange(text in any::<String>()) {
            let _ = TcpSockets::parse(&[NAMES, &text].concat());
        }
    }
}
