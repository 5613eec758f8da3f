//! Parses `/proc/net`, `/proc/sys/net` and `/sys/class/net` of this network namespace.
//!
//! Formats: Linux `proc_pid_net(5)`, `Documentation/networking/ip-sysctl.rst`, `net/core/net-procfs.c` (softnet_stat),
//! `Documentation/networking/snmp_counter.rst`.

use std::ops::RangeInclusive;

/// The counters between the network card and the stack, summed over CPUs. They are of the whole machine in every namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Softnet {
    /// The packets dropped because a CPU's backlog was full.
    pub dropped: u64,
    /// The times that a CPU used up its budget and left packets behind.
    pub squeezed: u64,
}

impl Softnet {
    /// Parses `/proc/net/softnet_stat`, which has a line of hexadecimal numbers per CPU.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut sum = None;
        for line in text.lines() {
            let mut fields =
                line.split_ascii_whitespace().skip(1).map(|field| u64::from_str_radix(field, 16));
            let (dropped, squeezed) = (fields.next()?.ok()?, fields.next()?.ok()?);
            let so_far: Self = sum.unwrap_or_default();
            sum = Some(Self {
                dropped: so_far.dropped.saturating_add(dropped),
                squeezed: so_far.squeezed.saturating_add(squeezed),
            });
        }
        sum
    }
}

/// The TCP error counters of this network namespace, for the generator and, on loopback, for the target, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpStackCounters {
    /// The connections that a listener dropped for any reason.
    pub listen_drops_of_any_cause: u64,
    /// The connections dropped because the accept queue was full.
    pub listen_overflows: u64,
    /// The retransmitted connection requests (SYN).
    pub syn_retransmits: u64,
    /// The retransmit timers that fired.
    pub timeouts: u64,
    /// The retransmitted segments, including SYN.
    pub retransmits: u64,
}

impl TcpStackCounters {
    /// Parses `/proc/net/netstat` and `/proc/net/snmp`.
    #[must_use]
    pub fn parse(netstat: &str, snmp: &str) -> Option<Self> {
        let extended = |name| counter(netstat, "TcpExt:", name);
        Some(Self {
            listen_drops_of_any_cause: extended("ListenDrops")?,
            listen_overflows: extended("ListenOverflows")?,
            syn_retransmits: extended("TCPSynRetrans")?,
            timeouts: extended("TCPTimeouts")?,
            retransmits: counter(snmp, "Tcp:", "RetransSegs")?,
        })
    }
}

/// Reads a counter of `/proc/net/netstat` or `snmp`. Both consist of pairs of lines with one prefix: the names, then the values in the same
/// order.
#[must_use]
pub fn counter(text: &str, prefix: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split_ascii_whitespace().position(|other| other == name)?;
    values.split_ascii_whitespace().nth(place)?.parse().ok()
}

/// Returns the sockets in TIME_WAIT, from `/proc/net/sockstat`.
#[must_use]
pub fn parse_time_wait_count(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == "tw")?;
    words.next()?.parse().ok()
}

/// The file with the range of ephemeral ports.
pub const PORT_RANGE_PATH: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Parses the range: its first and last port.
#[must_use]
pub fn parse_port_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut ends = text.split_ascii_whitespace().map(str::parse::<u16>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    (first <= last).then_some(first..=last)
}

/// Returns the number of ports in the range.
#[must_use]
pub fn parse_port_count(text: &str) -> Option<u64> {
    parse_port_range(text).map(|range| range.len() as u64)
}

/// Parses a file with a single number, like most files of `/proc/sys` and `/sys`.
#[must_use]
pub fn parse_number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Returns the speed of a link in bits per second, from `/sys/class/net/*/speed` in megabits. Links without a speed have -1.
#[must_use]
pub fn parse_link_speed(text: &str) -> Option<u64> {
    parse_number(text).filter(|megabits| *megabits > 0).map(|megabits| megabits.saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softnet_is_hexadecimal_and_per_cpu() {
        let text =
            "00e28d6e 00000010 00000001 00000000 00000000\n00c2d90e 00000001 0000000a 00000000 00000000\n";
        assert_eq!(Softnet::parse(text), Some(Softnet { dropped: 17, squeezed: 11 }));
        assert_eq!(Softnet::parse(""), None);
        assert_eq!(Softnet::parse("00e28d6e 0000001\n"), None);
    }

    #[test]
    fn counters_are_found_by_name_whatever_their_place() {
        let netstat = "TcpExt: TW ListenOverflows ListenDrops TCPTimeouts TCPSynRetrans New\n\
                       TcpExt: 548719 1 2 3 4 5\nIpExt: ListenDrops\nIpExt: 99\n";
        let snmp = "Ip: Forwarding RetransSegs\nIp: 1 77\nTcp: MaxConn RetransSegs InErrs\nTcp: -1 17 0\n";
        let expected = TcpStackCounters {
            listen_drops_of_any_cause: 2,
            listen_overflows: 1,
            syn_retransmits: 4,
            timeouts: 3,
            retransmits: 17,
        };
        assert_eq!(TcpStackCounters::parse(netstat, snmp), Some(expected));
        assert_eq!(TcpStackCounters::parse("TcpExt: ListenDrops\n", snmp), None, "values are missing");
        assert_eq!(TcpStackCounters::parse("", ""), None);
    }

    #[test]
    fn time_wait_is_a_word_and_a_number() {
        let text = "sockets: used 15\nTCP: inuse 1 orphan 0 tw 4711 alloc 178 mem 822\nUDP: inuse 0 mem 0\n";
        assert_eq!(parse_time_wait_count(text), Some(4711));
        assert_eq!(parse_time_wait_count("TCP: inuse 1 orphan 0 tw"), None);
    }

    #[test]
    fn the_default_range_has_28232_ports() {
        assert_eq!(parse_port_count("32768\t60999\n"), Some(28_232));
        assert_eq!(parse_port_count("0\t65535\n"), Some(65_536));
        assert_eq!(parse_port_count("60999\t32768\n"), None);
        assert_eq!(parse_port_count("32768"), None);
    }

    #[test]
    fn a_link_without_a_speed_has_none() {
        assert_eq!(parse_link_speed("10000\n"), Some(10_000_000_000));
        assert_eq!(parse_link_speed("-1\n"), None);
        assert_eq!(parse_link_speed("4294967295000000000000\n"), None);
    }
}
