//! Judges whether this machine lost or delayed packets.

use super::{percent, seconds};
use crate::file_reader::ProbeError;
use crate::finding::{CheckDefinition, FindingGrade, MachineFinding};
use crate::net::{Softnet, TcpStackCounters};
use crate::snapshot::{MachineSnapshot, NetworkLink};

const BACKLOG: CheckDefinition = CheckDefinition { id: "packet-backlog", unit: "packets", limit: 0.0 };

/// Judges the packets that this machine dropped before its network stack saw them. The counters are of the whole machine. If this namespace
/// has no retransmits, the dropped packets belonged to other programs.
pub(super) fn check_packet_backlog(before: &MachineSnapshot, after: &MachineSnapshot) -> MachineFinding {
    let (earlier, later) = match (&before.softnet, &after.softnet) {
        (Ok(earlier), Ok(later)) => (earlier, later),
        (Err(why), _) | (_, Err(why)) => return BACKLOG.unknown_finding(why),
    };
    let Softnet { dropped, squeezed } = Softnet {
        dropped: later.dropped.saturating_sub(earlier.dropped),
        squeezed: later.squeezed.saturating_sub(earlier.squeezed),
    };
    let none_was_ours = during(before, after).is_ok_and(|tcp| tcp.retransmits == 0);
    let (grade, advice) = match dropped {
        0 => (FindingGrade::Ok, ""),
        _ if none_was_ours => {
            (FindingGrade::Info, "; no segment was retransmitted in this network namespace")
        }
        _ => (
            FindingGrade::Degraded,
            ": raise net.core.netdev_max_backlog, or spread interrupts over more CPUs",
        ),
    };
    let text = format!(
        "this machine dropped {dropped} packets because of a full CPU backlog and ended {squeezed} receive rounds early (time_squeeze){advice}"
    );
    BACKLOG.finding(grade, dropped as f64, text)
}

/// Returns the TCP counters of the run.
fn during(before: &MachineSnapshot, after: &MachineSnapshot) -> Result<TcpStackCounters, ProbeError> {
    let (before, after) = (before.tcp.as_ref(), after.tcp.as_ref());
    let (before, after) = (before.map_err(ProbeError::clone)?, after.map_err(ProbeError::clone)?);
    Ok(TcpStackCounters {
        listen_drops_of_any_cause: after
            .listen_drops_of_any_cause
            .saturating_sub(before.listen_drops_of_any_cause),
        listen_overflows: after.listen_overflows.saturating_sub(before.listen_overflows),
        syn_retransmits: after.syn_retransmits.saturating_sub(before.syn_retransmits),
        timeouts: after.timeouts.saturating_sub(before.timeouts),
        retransmits: after.retransmits.saturating_sub(before.retransmits),
    })
}

const TCP: CheckDefinition = CheckDefinition { id: "tcp", unit: "segments", limit: 0.0 };

/// Reports TCP's retransmits and drops, which are never the generator's fault: the network or the target lost the packets, and a listener
/// in this namespace belongs to a target.
pub(super) fn check_tcp(before: &MachineSnapshot, after: &MachineSnapshot) -> MachineFinding {
    let tcp = match during(before, after) {
        Ok(tcp) => tcp,
        Err(why) => return TCP.unknown_finding(&why),
    };
    let grade = if tcp == TcpStackCounters::default() { FindingGrade::Ok } else { FindingGrade::Info };
    let TcpStackCounters {
        listen_drops_of_any_cause: listen_drops,
        listen_overflows,
        syn_retransmits,
        timeouts,
        retransmits,
    } = tcp;
    let text = format!(
        "in this network namespace {retransmits} segments were retransmitted ({syn_retransmits} of them SYN), \
         {timeouts} retransmit timers fired, and listeners dropped {listen_drops} connections ({listen_overflows} \
         because the accept queue was full)"
    );
    TCP.finding(grade, retransmits as f64, text)
}

/// The limit of a link's use. Queues before a link grow without bound near its full speed, and a fifth stays free for bursts within a
/// second.
const BANDWIDTH: CheckDefinition = CheckDefinition { id: "bandwidth", unit: "% of the link", limit: 80.0 };

/// The bits per second below which a virtual link without a speed needs no remark.
const QUIET: f64 = 1e6;

/// Judges the link that is nearest to its speed.
pub(super) fn check_bandwidth(before: &MachineSnapshot, after: &MachineSnapshot) -> MachineFinding {
    let (earlier, later) = match (&before.links, &after.links) {
        (Ok(earlier), Ok(later)) => (earlier, later),
        (Err(why), _) | (_, Err(why)) => return BANDWIDTH.unknown_finding(why),
    };
    let carried: Vec<_> = later
        .iter()
        .filter_map(|link| Some((link, bits(earlier.iter().find(|other| other.name == link.name)?, link))))
        .map(|(link, bits)| (link, bits / seconds(before, after).max(f64::MIN_POSITIVE)))
        .filter(|(_, rate)| *rate >= QUIET)
        .collect();
    let shares = carried
        .iter()
        .filter_map(|&(link, rate)| Some((percent(rate, link.bits_per_second? as f64), link, rate)));
    match shares.max_by(|(one, ..), (other, ..)| one.total_cmp(other)) {
        Some((share, link, rate)) => busiest(share, link, rate),
        None if carried.is_empty() => BANDWIDTH.finding(
            FindingGrade::Ok,
            0.0,
            "only the loopback interface carried the load".to_owned(),
        ),
        None => BANDWIDTH.unknown_finding(&ProbeError::NotApplicable(
            "the link that carried the load is virtual and reports no speed",
        )),
    }
}

/// Returns the bits in the direction with more traffic. A counter that went backwards belongs to a new link.
fn bits(before: &NetworkLink, after: &NetworkLink) -> f64 {
    let sent = after.sent_bytes.saturating_sub(before.sent_bytes);
    let received = after.received_bytes.saturating_sub(before.received_bytes);
    sent.max(received) as f64 * 8.0
}

fn busiest(share: f64, link: &NetworkLink, rate: f64) -> MachineFinding {
    let (grade, advice) = match share > BANDWIDTH.limit {
        true => (FindingGrade::Degraded, ": use more generators, or smaller responses"),
        false => (FindingGrade::Ok, ""),
    };
    let text = format!("{} carried {:.0} Mbit/s, {share:.0} % of its speed{advice}", link.name, rate / 1e6);
    BANDWIDTH.finding(grade, share, text)
}
