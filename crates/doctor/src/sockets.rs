//! The check `sockets`: where the machine loses connections and packets before a program sees them, and which processes run out of open
//! files.
//!
//! The TCP counters are of this network namespace since its start; the packet backlogs are of the whole machine. A counter that grows
//! during the check does harm now. Otherwise the check judges the share since the start.

mod open_files;
#[cfg(test)]
mod tests;

use std::time::Duration;

use seawall_probe::MachineSnapshot;
use seawall_probe::file_reader::{HostFiles, ProbeResult, read_parsed};
use seawall_probe::net::{counter, parse_number};
use seawall_probe::sockets::{TcpSocket, TcpSockets, TcpState};

pub(crate) use self::open_files::may_hide_processes;
use crate::check::{CheckContext, DoctorCheck};
use crate::finding::{DoctorFinding, DoctorStatus};

const LISTEN: &str = "sockets.listen";
const BACKLOG: &str = "sockets.backlog";
const RETRANSMITS: &str = "sockets.retransmits";
const FILES: &str = "sockets.files";
const SOFTNET: &str = "sockets.softnet";

pub(crate) const CHECK: DoctorCheck = DoctorCheck {
    id: "sockets",
    about: "connections that listeners drop or that wait for accept, retransmitted segments, open files against their limits, packets dropped because of a full CPU backlog",
    finding_ids: &[LISTEN, BACKLOG, RETRANSMITS, FILES, SOFTNET],
    examine,
};

/// The pause between two samples. A cause that drops connections now does so again within a second.
const WINDOW: Duration = Duration::from_secs(1);

fn examine(site: &CheckContext) -> Vec<DoctorFinding> {
    let before = SocketSnapshot::take(site.files, Duration::ZERO);
    let span = (site.sleep)(WINDOW);
    let after = SocketSnapshot::take(site.files, span);
    let somaxconn = read_parsed(site.files, "/proc/sys/net/core/somaxconn", parse_number);
    vec![
        listen(&before, &after),
        backlog(&before, &after, &somaxconn),
        retransmits(&before, &after),
        open_files::judge(site.files),
        softnet(&before, &after),
    ]
}

/// The state of the machine at one instant.
struct SocketSnapshot {
    counts: ProbeResult<TcpCounters>,
    sockets: ProbeResult<TcpSockets>,
    machine: MachineSnapshot,
}

/// TCP's counters since the namespace began (`Documentation/networking/snmp_counter.rst`).
#[derive(Clone, Copy, Default)]
struct TcpCounters {
    /// The accepted connections.
    accepted: u64,
    /// The connections that listeners dropped for any reason.
    dropped: u64,
    /// The connections dropped because the accept queue was full.
    overflowed: u64,
    /// The connections dropped because too many were half open, without SYN cookies.
    half_open: u64,
    /// The sent segments without retransmits (`tcpOutSegs`, RFC 4022; `__tcp_transmit_skb`, Linux `net/ipv4/tcp_output.c`).
    sent: u64,
    /// The retransmitted segments.
    again: u64,
}

impl SocketSnapshot {
    fn take(files: &dyn HostFiles, at: Duration) -> Self {
        Self {
            counts: TcpCounters::read(files),
            sockets: TcpSockets::read(files),
            machine: MachineSnapshot::take(files, at),
        }
    }
}

impl TcpCounters {
    fn read(files: &dyn HostFiles) -> ProbeResult<Self> {
        let snmp = read_parsed(files, "/proc/net/snmp", |text| Some(text.to_owned()))?;
        read_parsed(files, "/proc/net/netstat", |netstat| Self::parse(netstat, &snmp))
    }

    fn parse(netstat: &str, snmp: &str) -> Option<Self> {
        let (extended, basic) =
            (|name| counter(netstat, "TcpExt:", name), |name| counter(snmp, "Tcp:", name));
        Some(Self {
            accepted: basic("PassiveOpens")?,
            dropped: extended("ListenDrops")?,
            overflowed: extended("ListenOverflows")?,
            half_open: extended("TCPReqQFullDrop")?,
            sent: basic("OutSegs")?,
            again: basic("RetransSegs")?,
        })
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            accepted: self.accepted.saturating_sub(earlier.accepted),
            dropped: self.dropped.saturating_sub(earlier.dropped),
            overflowed: self.overflowed.saturating_sub(earlier.overflowed),
            half_open: self.half_open.saturating_sub(earlier.half_open),
            sent: self.sent.saturating_sub(earlier.sent),
            again: self.again.saturating_sub(earlier.again),
        }
    }

    /// Returns the sent segments, retransmits included.
    fn all(self) -> u64 {
        self.sent.saturating_add(self.again)
    }

    /// Returns the percentage of retransmits; 0 if there are too few segments.
    fn share_again(self) -> f64 {
        if self.all() < ENOUGH && self.again < ENOUGH_AGAIN { 0.0 } else { percent(self.again, self.all()) }
    }
}

/// The default errors objective of `find`, in percent.
const LOST: f64 = 0.1;

/// Judges the connections that listeners dropped.
fn listen(before: &SocketSnapshot, after: &SocketSnapshot) -> DoctorFinding {
    let (earlier, ever) = match (&before.counts, &after.counts) {
        (Ok(earlier), Ok(later)) => (*earlier, *later),
        (Err(why), _) | (_, Err(why)) => {
            return DoctorFinding::unknown(
                LISTEN,
                why,
                "look at nstat -az TcpExtListenDrops TcpExtListenOverflows in this network namespace",
            );
        }
    };
    let now = ever.since(earlier);
    let share = percent(ever.dropped, ever.accepted.saturating_add(ever.dropped));
    let text = format!(
        "listeners dropped {} connections during this check, and {} of {} since this network namespace began ({} \
         because the accept queue was full, {} because too many were half open)",
        now.dropped,
        ever.dropped,
        ever.accepted.saturating_add(ever.dropped),
        ever.overflowed,
        ever.half_open
    );
    let found = DoctorFinding::ok(LISTEN, text)
        .with_measurement("now", now.dropped as f64, "connections")
        .with_measurement("ever", ever.dropped as f64, "connections")
        .with_measurement("share", share, "%");
    let status = match now.dropped {
        0 if share < LOST => return found,
        0 => DoctorStatus::Warning,
        _ => DoctorStatus::Error,
    };
    found.with_status(
        status,
        "a client retries a dropped connection request after 1, 3 and 7 s: a few connections are very late",
        "let the program accept faster, or give it a longer backlog in listen() and net.core.somaxconn; for half-open \
         connections, raise net.ipv4.tcp_max_syn_backlog with net.ipv4.tcp_syncookies=1",
    )
}

/// The kernel's default since Linux 5.4. The kernel limits each program's backlog to this sysctl.
const USUAL: u64 = 4096;

/// Judges the connections that wait for accept, and the size of the backlog.
fn backlog(before: &SocketSnapshot, after: &SocketSnapshot, somaxconn: &ProbeResult<u64>) -> DoctorFinding {
    let look_at = "look at ss -ltn (Recv-Q: waiting, Send-Q: backlog) in this network namespace";
    let (earlier, later, most) = match (&before.sockets, &after.sockets, somaxconn) {
        (Ok(earlier), Ok(later), Ok(most)) => (earlier, later, *most),
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => {
            return DoctorFinding::unknown(BACKLOG, why, look_at);
        }
    };
    let listeners: Vec<_> = later.all.iter().filter(|socket| socket.state == TcpState::Listen).collect();
    let Some((worst, still)) =
        listeners.iter().map(|socket| (*socket, waited(earlier, socket))).max_by_key(|(_, still)| *still)
    else {
        return DoctorFinding::ok(BACKLOG, "no program listens in this network namespace".to_owned())
            .with_measurement("waiting", 0.0, "connections");
    };
    let text = match still {
        0 => format!(
            "none of the {} listeners had connections that waited for accept both at the start and at the end of this check; a backlog has at most {most} places",
            listeners.len()
        ),
        _ => format!(
            "at {}, {still} connections waited for accept both at the start and at the end of this check; a backlog has at most {most} places",
            worst.local
        ),
    };
    let found = DoctorFinding::ok(BACKLOG, text)
        .with_measurement("waiting", f64::from(still), "connections")
        .with_measurement("somaxconn", most as f64, "connections");
    if still > 0 {
        let status = if u64::from(still) >= most { DoctorStatus::Error } else { DoctorStatus::Warning };
        return found.with_status(
            status,
            "the program accepts slower than connections arrive, or not at all: connections wait, and a full backlog drops them",
            "find out why that program is slow (cpu, its own connection limit, open files); a longer backlog helps only against bursts",
        );
    }
    if most >= USUAL {
        return found;
    }
    found.with_status(
        DoctorStatus::Warning,
        "net.core.somaxconn limits the backlog of every listener to less than the kernel's default of 4096: a burst of connections can overflow it",
        "raise net.core.somaxconn and restart the programs",
    )
}

/// Returns the number of connections that waited at a listener in both samples.
fn waited(earlier: &TcpSockets, later: &TcpSocket) -> u32 {
    let before =
        earlier.all.iter().filter(|socket| socket.state == TcpState::Listen && socket.local == later.local);
    before.map(|socket| socket.receive_queue.min(later.receive_queue)).min().unwrap_or(0)
}

/// The least number of segments for a verdict. With fewer, a share of 1 % says nothing.
const ENOUGH: u64 = 1000;
/// The number of retransmitted segments that allows a verdict with fewer segments, too.
const ENOUGH_AGAIN: u64 = 10;
/// The percentage of retransmits that slows a connection. With a loss of `p`, the window is about 1.2 / √p segments (RFC 3819 section 8,
/// after Mathis et al. 1997): 12 at 1 % and 5 at 5 %.
const SOME: f64 = 1.0;
const MANY: f64 = 5.0;

/// Judges the share of retransmitted segments.
fn retransmits(before: &SocketSnapshot, after: &SocketSnapshot) -> DoctorFinding {
    let (earlier, ever) = match (&before.counts, &after.counts) {
        (Ok(earlier), Ok(later)) => (*earlier, *later),
        (Err(why), _) | (_, Err(why)) => {
            return DoctorFinding::unknown(
                RETRANSMITS,
                why,
                "look at nstat -az TcpRetransSegs TcpOutSegs in this network namespace",
            );
        }
    };
    let now = ever.since(earlier);
    let (share_now, share_ever) = (now.share_again(), ever.share_again());
    let text = format!(
        "{} of {} segments were retransmitted during this check, and {} of {} since this network namespace began",
        now.again,
        now.all(),
        ever.again,
        ever.all()
    );
    let found = DoctorFinding::ok(RETRANSMITS, text)
        .with_measurement("now", share_now, "%")
        .with_measurement("ever", share_ever, "%");
    let status = match share_now.max(share_ever) {
        worst if worst < SOME => return found,
        _ if share_now >= MANY && now.all() >= ENOUGH => DoctorStatus::Error,
        _ => DoctorStatus::Warning,
    };
    found.with_status(
        status,
        "each retransmit adds at least 200 ms, or a second at the start of a connection: the network causes the tail of response times",
        "find out where segments are lost: sockets.softnet, ethtool -S and tc -s qdisc on the node, a policer or a full table (ports.conntrack) on the path",
    )
}

/// Judges the packets that this machine dropped before its network stack saw them.
fn softnet(before: &SocketSnapshot, after: &SocketSnapshot) -> DoctorFinding {
    let (earlier, later) = match (&before.machine.softnet, &after.machine.softnet) {
        (Ok(earlier), Ok(later)) => (earlier, later),
        (Err(why), _) | (_, Err(why)) => {
            return DoctorFinding::unknown(
                SOFTNET,
                why,
                "look at the second column of /proc/net/softnet_stat on the node",
            );
        }
    };
    let dropped = later.dropped.saturating_sub(earlier.dropped);
    let text = format!(
        "this machine dropped {dropped} packets because of a full CPU backlog during this check, and {} since its start; it ended {} receive rounds early (time_squeeze)",
        later.dropped, later.squeezed
    );
    let found = DoctorFinding::ok(SOFTNET, text)
        .with_measurement("now", dropped as f64, "packets")
        .with_measurement("ever", later.dropped as f64, "packets");
    if dropped == 0 {
        return found;
    }
    found.with_status(
        DoctorStatus::Error,
        "a CPU receives packets faster than it processes them; the senders must retransmit",
        "raise net.core.netdev_max_backlog on the node, or spread receiving over more CPUs (queues of the network card, RPS)",
    )
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}
