//! The check `ports`: the rate at which connections can be opened, and the resource that limits this rate.
//!
//! A connection needs a local port that no other connection from the same address to the same destination uses. The side that closes first
//! keeps the port in TIME_WAIT for a minute. So the number of ports in the range limits the new connections per minute to one destination.
//! Two further limits are conntrack's table on the node and the cloud's address translation.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use seawall_probe::file_reader::{HostFiles, ProbeError, ProbeResult, read_parsed};
use seawall_probe::generator::TIME_WAIT_SECONDS;
use seawall_probe::net::{PORT_RANGE_PATH, parse_number, parse_port_range, parse_time_wait_count};
use seawall_probe::sockets::{TcpSocket, TcpSockets, TcpState};

use crate::check::{CheckContext, DoctorCheck};
use crate::finding::{DoctorFinding, DoctorStatus};

const RANGE: &str = "ports.range";
const USE: &str = "ports.use";
const WAITING: &str = "ports.time-wait";
const CONNTRACK: &str = "ports.conntrack";
const NAT: &str = "ports.nat";

pub(crate) const CHECK: DoctorCheck = DoctorCheck {
    id: "ports",
    about: "the connection rates that exhaust ephemeral ports, TIME_WAIT sockets, the conntrack table and NAT ports; the ports in use to one destination",
    finding_ids: &[RANGE, USE, WAITING, CONNTRACK, NAT],
    examine,
};

fn examine(site: &CheckContext) -> Vec<DoctorFinding> {
    let look = PortSnapshot::take(site.files);
    vec![range(&look), used(&look), waiting(&look), conntrack(&look), nat(&look)]
}

/// The state of this network namespace.
struct PortSnapshot {
    ports: ProbeResult<Ports>,
    sockets: ProbeResult<TcpSockets>,
    /// `tcp_tw_reuse`: 0 never, 1 always, 2 on loopback (`Documentation/networking/ip-sysctl.rst`).
    reuse: ProbeResult<u64>,
    time_wait: ProbeResult<u64>,
    most_time_wait: ProbeResult<u64>,
    tracked: ProbeResult<ConntrackTable>,
}

/// The ephemeral ports.
struct Ports {
    range: RangeInclusive<u16>,
    /// The ports of the range that are reserved.
    reserved: u64,
}

/// The table of tracked connections.
struct ConntrackTable {
    count: u64,
    most: u64,
    /// The seconds for which a closed connection stays in the table.
    closed_for: u64,
}

impl PortSnapshot {
    fn take(files: &dyn HostFiles) -> Self {
        let setting = |name: &str| read_parsed(files, &format!("/proc/sys/net/ipv4/{name}"), parse_number);
        Self {
            ports: Ports::read(files),
            sockets: TcpSockets::read(files),
            reuse: setting("tcp_tw_reuse"),
            time_wait: read_parsed(files, "/proc/net/sockstat", parse_time_wait_count),
            most_time_wait: setting("tcp_max_tw_buckets"),
            tracked: ConntrackTable::read(files),
        }
    }
}

impl Ports {
    fn read(files: &dyn HostFiles) -> ProbeResult<Self> {
        let range = read_parsed(files, PORT_RANGE_PATH, parse_port_range)?;
        let path = "/proc/sys/net/ipv4/ip_local_reserved_ports";
        let reserved = match read_parsed(files, path, |text| reserved(text, &range)) {
            Err(ProbeError::Missing(_)) => 0,
            reserved => reserved?,
        };
        Ok(Self { range, reserved })
    }

    fn usable(&self) -> u64 {
        (self.range.len() as u64).saturating_sub(self.reserved)
    }

    /// Returns the sustainable new connections per second to one destination, if each leaves its port in TIME_WAIT.
    fn lasting(&self) -> f64 {
        self.usable() as f64 / TIME_WAIT_SECONDS
    }
}

/// Returns the number of ports of a range in a list such as `8080,9000-9010`. The kernel sorts the list and merges overlaps.
fn reserved(list: &str, range: &RangeInclusive<u16>) -> Option<u64> {
    let mut count = 0;
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        let (first, last) = (first.max(*range.start()), last.min(*range.end()));
        count += (first..=last).len() as u64;
    }
    Some(count)
}

impl ConntrackTable {
    fn read(files: &dyn HostFiles) -> ProbeResult<Self> {
        let read = |name: &str| {
            read_parsed(files, &format!("/proc/sys/net/netfilter/nf_conntrack_{name}"), parse_number)
        };
        Ok(Self { count: read("count")?, most: read("max")?, closed_for: read("tcp_timeout_time_wait")? })
    }
}

/// The kernel's default range (32768 to 60999, `net/ipv4/af_inet.c`) less a tenth.
const USUAL: u64 = 25_400;

/// Judges the size of the port range.
fn range(look: &PortSnapshot) -> DoctorFinding {
    let ports = match &look.ports {
        Ok(ports) => ports,
        Err(why) => {
            return DoctorFinding::unknown(
                RANGE,
                why,
                "look at sysctl net.ipv4.ip_local_port_range in this network namespace",
            );
        }
    };
    let (usable, rate) = (ports.usable(), ports.lasting());
    let (first, last) = (ports.range.start(), ports.range.end());
    let text = format!(
        "connections from one address to one destination can use {usable} ports ({first} to {last}, {} reserved): \
         enough for {rate:.0} new connections/s if this machine closes the connections",
        ports.reserved
    );
    let found = DoctorFinding::ok(RANGE, text)
        .with_measurement("usable", usable as f64, "ports")
        .with_measurement("lasting", rate, "/s");
    if usable >= USUAL {
        return found;
    }
    if usable == 0 {
        return found.with_status(
            DoctorStatus::Error,
            "no ephemeral port is left: each new connection fails (EADDRNOTAVAIL)",
            WIDER,
        );
    }
    let reason = format!(
        "the range has fewer ports than the kernel's default (28232): above {rate:.0} new connections/s to one destination, new connections fail (EADDRNOTAVAIL)"
    );
    found.with_status(DoctorStatus::Warning, reason, WIDER)
}

const WIDER: &str = "widen the range: sysctl -w net.ipv4.ip_local_port_range='16384 65535' (a safe sysctl of a pod's \
     securityContext), and reserve only the ports of listeners in net.ipv4.ip_local_reserved_ports";

/// The connections from one address to one destination.
#[derive(Clone, Copy, Default)]
struct PortUse {
    ports: u64,
    /// The connections of these that are in TIME_WAIT.
    waiting: u64,
}

/// Returns the pair of addresses that uses the most ports of the range. Sockets on a listener's port do not count, because they
/// were accepted and use no ephemeral port.
fn busiest(
    sockets: &TcpSockets,
    counts: impl Fn(&TcpSocket) -> bool,
) -> Option<((IpAddr, SocketAddr), PortUse)> {
    let is_listener = |socket: &&TcpSocket| socket.state == TcpState::Listen;
    let listening: HashSet<u16> =
        sockets.all.iter().filter(is_listener).map(|socket| socket.local.port()).collect();
    let mut taken: HashMap<_, PortUse> = HashMap::new();
    for socket in sockets.all.iter().filter(|socket| !is_listener(socket) && counts(socket)) {
        if !listening.contains(&socket.local.port()) && socket.remote.port() != 0 {
            let entry = taken.entry((socket.local.ip(), socket.remote)).or_default();
            entry.ports += 1;
            entry.waiting += u64::from(socket.state == TcpState::TimeWait);
        }
    }
    taken.into_iter().max_by_key(|(way, taken)| (taken.ports, *way))
}

/// Above this share, a new connection takes longer to find a port: `connect` tries the ports of one parity first (`__inet_hash_connect`,
/// Linux
/// `net/ipv4/inet_hashtables.c`), and all of those may be in use.
const HALF: f64 = 50.0;
/// Above this share, one burst uses up the other ports.
const NEARLY_ALL: f64 = 90.0;

/// Judges the busiest pair's share of the port range.
fn used(look: &PortSnapshot) -> DoctorFinding {
    let look_at = "look at the sockets of the process: ss -tan state time-wait, ss -tan";
    let (ports, sockets) = match (&look.ports, &look.sockets) {
        (Ok(ports), Ok(sockets)) => (ports, sockets),
        (Err(why), _) | (_, Err(why)) => return DoctorFinding::unknown(USE, why, look_at),
    };
    let busiest = busiest(sockets, |socket| ports.range.contains(&socket.local.port()));
    let Some(((from, to), PortUse { ports: taken, waiting })) = busiest else {
        let found = DoctorFinding::ok(USE, "no outgoing connection uses a port of the range".to_owned());
        return found.with_measurement("taken", 0.0, "ports").with_measurement("share", 0.0, "%");
    };
    let (share, at_least) =
        (percent(taken, ports.usable()), if sockets.is_truncated { "at least " } else { "" });
    let text = format!(
        "the busiest pair, {from} to {to}, uses {at_least}{taken} of {} ports ({share:.0} %); {waiting} of them are in TIME_WAIT",
        ports.usable()
    );
    let found = DoctorFinding::ok(USE, text)
        .with_measurement("taken", taken as f64, "ports")
        .with_measurement("share", share, "%")
        .with_measurement("time-wait", waiting as f64, "ports");
    let status = match share {
        share if share >= NEARLY_ALL => DoctorStatus::Error,
        share if share >= HALF => DoctorStatus::Warning,
        _ => return found,
    };
    let (reason, fix) = advice(look, ports, waiting * 2 >= taken, from.is_loopback());
    found.with_status(status, reason, fix)
}

/// Returns the consequence of a further rise, and the fix. If most connections are closed, the fix is keep-alive. Otherwise it is
/// more destinations, addresses or ports.
fn advice(
    look: &PortSnapshot,
    ports: &Ports,
    mostly_waiting: bool,
    is_loopback: bool,
) -> (String, &'static str) {
    if !mostly_waiting {
        let reason = "most of these connections are open at the same time: when all ports are in use, new connections fail (EADDRNOTAVAIL); when more than half are in use, each new connection takes longer to find a free port";
        return (
            reason.to_owned(),
            "share connections (a pool with a limit, HTTP/2), add destinations or source addresses, or widen net.ipv4.ip_local_port_range",
        );
    }
    let is_reused = match look.reuse {
        Ok(1) => true,
        Ok(2) => is_loopback,
        _ => false,
    };
    let ends = if is_reused {
        "the kernel reuses ports in TIME_WAIT after a second".to_owned()
    } else {
        format!(
            "this machine closes the connections, so the ports last for {:.0} new connections/s",
            ports.lasting()
        )
    };
    (
        format!(
            "{ends}; when more than half of the ports are in use, each new connection takes longer to find a free port"
        ),
        "keep connections alive: use a pool with as many idle connections as concurrent calls (Go: \
         MaxIdleConnsPerHost, 2 by default); otherwise set net.ipv4.tcp_tw_reuse=1, or add destinations or source \
         addresses",
    )
}

/// Above this share, the next burst reaches the limit. The generator's own tables use the same share.
const NEARLY: f64 = 80.0;

/// Judges the sockets in TIME_WAIT against their limit.
fn waiting(look: &PortSnapshot) -> DoctorFinding {
    let (count, most) = match (&look.time_wait, &look.most_time_wait) {
        (Ok(count), Ok(most)) => (*count, *most),
        (Err(why), _) | (_, Err(why)) => {
            return DoctorFinding::unknown(
                WAITING,
                why,
                "look at /proc/net/sockstat and sysctl net.ipv4.tcp_max_tw_buckets",
            );
        }
    };
    let reuse = match look.reuse {
        Ok(0) => "the kernel reuses their ports only after a minute",
        Ok(1) => "the kernel reuses their ports after a second if both sides send timestamps",
        Ok(2) => "the kernel reuses their ports after a second on loopback only",
        _ => "it is unknown when the kernel reuses their ports",
    };
    let text = format!("{count} of at most {most} sockets are in TIME_WAIT; {reuse}");
    let share = percent(count, most);
    let found = DoctorFinding::ok(WAITING, text)
        .with_measurement("time-wait", count as f64, "sockets")
        .with_measurement("share", share, "%");
    let status = match share {
        share if share >= 100.0 => DoctorStatus::Error,
        share if share >= NEARLY => DoctorStatus::Warning,
        _ => return found,
    };
    found.with_status(
        status,
        "above the limit, sockets skip TIME_WAIT: a late segment can reach or reset the next connection on that port",
        "keep connections alive; otherwise raise net.ipv4.tcp_max_tw_buckets",
    )
}

/// The percentage to which the kernel clears a full table after it has dropped packets (`nf_conntrack_max95`, Linux
/// `net/netfilter/nf_conntrack_core.c`).
const CLEARED: f64 = 95.0;

/// Judges the tracked connections against the size of the table.
fn conntrack(look: &PortSnapshot) -> DoctorFinding {
    let ConntrackTable { count, most, closed_for } = match &look.tracked {
        Ok(tracked) => tracked,
        Err(why) => {
            let fix = "the node may track this pod's connections. Run on the node: sysctl \
                       net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max, dmesg ('table full'), \
                       conntrack -S (drop, insert_failed)";
            return DoctorFinding::unknown(CONNTRACK, why, fix);
        }
    };
    // `nf_conntrack_alloc` ignores a limit of 0 (Linux `net/netfilter/nf_conntrack_core.c`).
    if *most == 0 {
        let text = format!(
            "this network namespace tracks {count} connections without a limit (nf_conntrack_max is 0): only memory limits the table"
        );
        return DoctorFinding::ok(CONNTRACK, text).with_measurement("tracked", *count as f64, "connections");
    }
    let share = percent(*count, *most);
    let rate = *most as f64 / (*closed_for).max(1) as f64;
    let text = format!(
        "this network namespace tracks {count} of at most {most} connections ({share:.0} %); each stays in the table for {closed_for} s after its end, so the table is full at {rate:.0} new connections/s"
    );
    let found = DoctorFinding::ok(CONNTRACK, text)
        .with_measurement("tracked", *count as f64, "connections")
        .with_measurement("share", share, "%")
        .with_measurement("lasting", rate, "/s");
    let status = match share {
        share if share >= CLEARED => DoctorStatus::Error,
        share if share >= NEARLY => DoctorStatus::Warning,
        _ => return found,
    };
    found.with_status(
        status,
        "while the table is full, the kernel silently drops packets of new connections: clients see timeouts of 1, 3 and 7 s, on new connections only",
        "keep connections alive; raise net.netfilter.nf_conntrack_max on the node (with nf_conntrack_buckets), or lower nf_conntrack_tcp_timeout_time_wait",
    )
}

/// The smallest default number of NAT ports for a node: Azure's load balancer with at least 801 nodes (Azure, "Use SNAT for outbound
/// connections", default port allocation), and Google's Cloud NAT with dynamic allocation ("Cloud NAT: ports and addresses").
const LEAST_NAT: u64 = 32;

/// Judges the connections to one public destination, whose source address the node or the cloud translates.
fn nat(look: &PortSnapshot) -> DoctorFinding {
    let fix = "each concurrent connection to one destination uses one NAT port of the node. Google's Cloud NAT gives a \
               node 64 ports by default (32 if the allocation is dynamic; metric nat/dropped_sent_packets_count, reason \
               OUT_OF_RESOURCES). Azure's load balancer gives a node 32 to 1024 ports, depending on the number of nodes \
               (metric SNAT connection count, failed). AWS's NAT gateway gives 55000 ports to all nodes together \
               (metric ErrorPortAllocation)";
    let sockets = match &look.sockets {
        Ok(sockets) => sockets,
        Err(why) => return DoctorFinding::unknown(NAT, why, fix),
    };
    let busiest = busiest(sockets, |socket| is_public(socket.remote.ip()));
    let ports = busiest.map_or(0, |(_, taken)| taken.ports);
    let found = match busiest {
        None => DoctorFinding::ok(NAT, "no outgoing connection to a public IPv4 address".to_owned()),
        Some(((_, to), _)) => DoctorFinding::ok(
            NAT,
            format!("at most {ports} connections are open or in TIME_WAIT to one public address ({to})"),
        ),
    };
    let found = found.with_measurement("connections", ports as f64, "connections");
    if ports < LEAST_NAT {
        return found;
    }
    let reason = "some clouds give a node only 32 NAT ports; the check cannot see how many this node has";
    found.with_status(DoctorStatus::Unknown, reason, fix)
}

/// Returns whether clouds translate connections to this address: IPv4, and not reserved for private networks (RFC 6890).
fn is_public(ip: IpAddr) -> bool {
    let IpAddr::V4(ip) = ip else { return false };
    let [first, second, ..] = ip.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    let is_special = ip.is_unspecified()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_broadcast();
    !(is_special || is_shared || ip.is_private())
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}
