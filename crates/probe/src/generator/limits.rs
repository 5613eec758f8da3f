//! Did the generator run into a limit that somebody set?

use super::cpu::stalls;
use super::{RunActivity, percent, seconds};
use crate::finding::{CheckDefinition, FindingGrade, MachineFinding};
use crate::snapshot::{Conntrack, GroupMemory, MachineSnapshot};

/// As for the CPU; a generator that waits for memory is held up, whoever took it.
const MEMORY_PRESSURE: CheckDefinition =
    CheckDefinition { id: "memory-pressure", unit: "% of the run", limit: 10.0 };

/// How long anything waited for memory.
pub(super) fn memory_pressure(before: &MachineSnapshot, after: &MachineSnapshot) -> MachineFinding {
    let (earlier, later) = (&before.memory_pressure, &after.memory_pressure);
    stalls(&MEMORY_PRESSURE, "memory", FindingGrade::Degraded, earlier, later, seconds(before, after))
}

/// Above this a limit is near enough to be worth a word; what is short of it has done no harm.
const NEARLY: f64 = 80.0;

const MEMORY: CheckDefinition = CheckDefinition { id: "memory", unit: "% of the limit", limit: NEARLY };

/// The group whose memory is nearest to its limit. What that did to the run shows as memory pressure.
pub(super) fn memory(after: &MachineSnapshot) -> MachineFinding {
    let groups = match &after.memory {
        Ok(groups) => groups,
        Err(why) => return MEMORY.unknown(why),
    };
    let share = |memory: &GroupMemory| percent(memory.used as f64, memory.limit as f64);
    let Some(memory) = groups.iter().max_by(|one, other| share(one).total_cmp(&share(other))) else {
        return MEMORY.finding(FindingGrade::Ok, 0.0, "no memory limit applies".to_owned());
    };
    let share = share(memory);
    let (grade, advice) = info_if(share > NEARLY, ": raise the memory limit");
    let [used, limit] = [memory.used, memory.limit].map(|bytes| bytes >> 20);
    let text = format!("{used} of {limit} MiB of memory are in use ({}){advice}", memory.directory);
    MEMORY.finding(grade, share, text)
}

const OPEN_FILES: CheckDefinition = CheckDefinition { id: "open-files", unit: "% of the limit", limit: 95.0 };

/// Open files against their limit. The engine stays below it by making requests wait for room, so a full table has
/// refused nothing.
pub(super) fn open_files(after: &MachineSnapshot, most: u64) -> MachineFinding {
    let limit = match &after.open_files {
        Ok(limits) => limits.soft,
        Err(why) => return OPEN_FILES.unknown(why),
    };
    let share = percent(most as f64, limit as f64);
    let (grade, advice) = info_if(
        share > OPEN_FILES.limit,
        ": further requests waited; raise the limit before the run, as root: prlimit --pid $$ --nofile=1048576",
    );
    OPEN_FILES.finding(grade, share, format!("up to {most} of {limit} files were open{advice}"))
}

/// A socket that was not to be had is a request that the target never saw: any is one too many, and from 1 % on (as for
/// hits that are not sent) the figures are not the target's.
pub const SOCKETS: CheckDefinition = CheckDefinition { id: "sockets", unit: "% of connections", limit: 0.0 };
const SOCKETS_LIMITED: f64 = 1.0;

/// Connections that failed on this side of the wire.
pub(super) fn sockets(run: &RunActivity) -> MachineFinding {
    let share =
        percent(run.socket_failures as f64, run.connections.saturating_add(run.socket_failures) as f64);
    let grade = match run.socket_failures {
        0 => FindingGrade::Ok,
        _ if share <= SOCKETS_LIMITED => FindingGrade::Degraded,
        _ => FindingGrade::Invalid,
    };
    let advice = match grade {
        FindingGrade::Ok => "",
        _ => ": keep connections alive, add -laddr addresses or raise ulimit -n",
    };
    let text = format!("{} connections got no local port or file descriptor{advice}", run.socket_failures);
    SOCKETS.finding(grade, share, text)
}

/// A port stays taken so long after the side that has it closed first (`TCP_TIMEWAIT_LEN`, Linux `include/net/tcp.h`).
pub const TIME_WAIT: f64 = 60.0;

const PORTS: CheckDefinition = CheckDefinition { id: "ports", unit: "ports", limit: 0.0 };

/// Whether this rate of new connections can be kept up for longer than TIME_WAIT lasts. Ports that were missing in this
/// run are [`sockets`].
pub(super) fn ports(before: &MachineSnapshot, after: &MachineSnapshot, run: &RunActivity) -> MachineFinding {
    let (ports, waiting) = match (&after.ports, &before.time_wait, &after.time_wait) {
        (Ok(ports), Ok(before), Ok(after)) => (*ports, after.saturating_sub(*before)),
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return PORTS.unknown(why),
    };
    // What is opened at the start of a short run is not opened again and again.
    let rate = run.connections as f64 / run.sending.as_secs_f64().max(1.0);
    // Few in TIME_WAIT after many connections: the other side closes, or they were kept open.
    let held = waiting.saturating_mul(2) >= run.connections;
    let projected = if held { rate * TIME_WAIT } else { waiting as f64 };
    let (grade, advice) = info_if(
        projected > ports as f64,
        ": a longer run to one destination exhausts them, so keep connections alive or add -laddr addresses",
    );
    let text = format!(
        "{rate:.0} new connections/s need {projected:.0} ports, but one address has {ports} ports to one \
         destination{advice}"
    );
    CheckDefinition { limit: ports as f64, ..PORTS }.finding(grade, projected, text)
}

const CONNTRACK: CheckDefinition = CheckDefinition { id: "conntrack", unit: "% of the limit", limit: NEARLY };
/// A table that was full, and dropped packets, is cleared down to 95 % by the kernel (`nf_conntrack_max95`, Linux
/// `net/netfilter/nf_conntrack_core.c`).
const CONNTRACK_FULL: f64 = 95.0;

/// Tracked connections against the size of the table.
pub(super) fn conntrack(before: &MachineSnapshot, after: &MachineSnapshot) -> MachineFinding {
    let (before, after) = match (&before.conntrack, &after.conntrack) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(why), _) | (_, Err(why)) => return CONNTRACK.unknown(why),
    };
    let Conntrack { count, max } = *if before.count > after.count { before } else { after };
    let share = percent(count as f64, max as f64);
    let (grade, advice) = match share {
        share if share > CONNTRACK_FULL => (FindingGrade::Degraded, ": raise net.netfilter.nf_conntrack_max"),
        share => {
            info_if(share > CONNTRACK.limit, ": raise net.netfilter.nf_conntrack_max before sending more")
        }
    };
    CONNTRACK.finding(grade, share, format!("{count} of {max} connections are tracked{advice}"))
}

fn info_if(is_worth_it: bool, advice: &'static str) -> (FindingGrade, &'static str) {
    if is_worth_it { (FindingGrade::Info, advice) } else { (FindingGrade::Ok, "") }
}
