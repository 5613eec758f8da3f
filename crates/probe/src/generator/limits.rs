//! Did the generator run into a limit that somebody set?

use super::cpu::stalls;
use super::{Run, percent, seconds};
use crate::finding::{Check, Finding, Grade};
use crate::snapshot::{Conntrack, Memory, Snapshot};

/// As for the CPU; a generator that waits for memory is held up, whoever took it.
const MEMORY_PRESSURE: Check = Check { id: "memory-pressure", unit: "% of the run", limit: 10.0 };

/// How long anything waited for memory.
pub(super) fn memory_pressure(before: &Snapshot, after: &Snapshot) -> Finding {
    let (earlier, later) = (&before.memory_pressure, &after.memory_pressure);
    stalls(&MEMORY_PRESSURE, "memory", Grade::Degraded, earlier, later, seconds(before, after))
}

/// Above this a limit is near enough to be worth a word; what is short of it has done no harm.
const NEARLY: f64 = 80.0;

const MEMORY: Check = Check { id: "memory", unit: "% of the limit", limit: NEARLY };

/// The group whose memory is nearest to its limit. What that did to the run shows as memory pressure.
pub(super) fn memory(after: &Snapshot) -> Finding {
    let groups = match &after.memory {
        Ok(groups) => groups,
        Err(why) => return MEMORY.untested(why),
    };
    let share = |memory: &Memory| percent(memory.used as f64, memory.limit as f64);
    let Some(memory) = groups.iter().max_by(|one, other| share(one).total_cmp(&share(other))) else {
        return MEMORY.finding(Grade::Fine, 0.0, "no memory limit holds here".to_owned());
    };
    let share = share(memory);
    let (grade, advice) = noted(share > NEARLY, ": raise the memory limit");
    let [used, limit] = [memory.used, memory.limit].map(|bytes| bytes >> 20);
    let text = format!("{used} of {limit} MiB of memory are in use ({}){advice}", memory.directory);
    MEMORY.finding(grade, share, text)
}

const OPEN_FILES: Check = Check { id: "open-files", unit: "% of the limit", limit: 95.0 };

/// Open files against their limit. The engine stays below it by making requests wait for room, so a full table has
/// refused nothing.
pub(super) fn open_files(after: &Snapshot, most: u64) -> Finding {
    let limit = match &after.open_files {
        Ok(limits) => limits.soft,
        Err(why) => return OPEN_FILES.untested(why),
    };
    let share = percent(most as f64, limit as f64);
    let (grade, advice) = noted(
        share > OPEN_FILES.limit,
        ": what was due beyond waited; raise it before the run, as root: prlimit --pid $$ --nofile=1048576",
    );
    OPEN_FILES.finding(grade, share, format!("up to {most} of {limit} files were open{advice}"))
}

/// A socket that was not to be had is a request that the target never saw: any is one too many, and from 1 % on (as for
/// hits that are not sent) the figures are not the target's.
pub const SOCKETS: Check = Check { id: "sockets", unit: "% of connections", limit: 0.0 };
const SOCKETS_LIMITED: f64 = 1.0;

/// Connections that failed on this side of the wire.
pub(super) fn sockets(run: &Run) -> Finding {
    let share = percent(run.no_socket as f64, run.connections.saturating_add(run.no_socket) as f64);
    let grade = match run.no_socket {
        0 => Grade::Fine,
        _ if share <= SOCKETS_LIMITED => Grade::Degraded,
        _ => Grade::Invalid,
    };
    let advice = match grade {
        Grade::Fine => "",
        _ => ": out of ports or files, so keep connections alive, add -laddr addresses or raise ulimit -n",
    };
    let text = format!("{} connections found no socket on this machine{advice}", run.no_socket);
    SOCKETS.finding(grade, share, text)
}

/// A port stays taken so long after the side that has it closed first (`TCP_TIMEWAIT_LEN`, Linux `include/net/tcp.h`).
pub const TIME_WAIT: f64 = 60.0;

const PORTS: Check = Check { id: "ports", unit: "ports", limit: 0.0 };

/// Whether this rate of new connections can be kept up for longer than TIME_WAIT lasts. Ports that were missing in this
/// run are [`sockets`].
pub(super) fn ports(before: &Snapshot, after: &Snapshot, run: &Run) -> Finding {
    let (ports, waiting) = match (&after.ports, &before.time_wait, &after.time_wait) {
        (Ok(ports), Ok(before), Ok(after)) => (*ports, after.saturating_sub(*before)),
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return PORTS.untested(why),
    };
    // What is opened at the start of a short run is not opened again and again.
    let rate = run.connections as f64 / run.sending.as_secs_f64().max(1.0);
    // Few in TIME_WAIT after many connections: the other side closes, or they were kept open.
    let held = waiting.saturating_mul(2) >= run.connections;
    let projected = if held { rate * TIME_WAIT } else { waiting as f64 };
    let (grade, advice) = noted(
        projected > ports as f64,
        ": longer runs to one destination run out of them, so keep connections alive or add -laddr addresses",
    );
    let text = format!(
        "{rate:.0} new connections per second take {projected:.0} ports, {ports} there are from one address to one \
         destination{advice}"
    );
    Check { limit: ports as f64, ..PORTS }.finding(grade, projected, text)
}

const CONNTRACK: Check = Check { id: "conntrack", unit: "% of the limit", limit: NEARLY };
/// A table that was full, and dropped packets, is cleared down to 95 % by the kernel (`nf_conntrack_max95`, Linux
/// `net/netfilter/nf_conntrack_core.c`).
const CONNTRACK_FULL: f64 = 95.0;

/// Tracked connections against the size of the table.
pub(super) fn conntrack(before: &Snapshot, after: &Snapshot) -> Finding {
    let (before, after) = match (&before.conntrack, &after.conntrack) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(why), _) | (_, Err(why)) => return CONNTRACK.untested(why),
    };
    let Conntrack { count, max } = *if before.count > after.count { before } else { after };
    let share = percent(count as f64, max as f64);
    let (grade, advice) = match share {
        share if share > CONNTRACK_FULL => (Grade::Degraded, ": raise net.netfilter.nf_conntrack_max"),
        share => noted(share > CONNTRACK.limit, ": raise net.netfilter.nf_conntrack_max before sending more"),
    };
    CONNTRACK.finding(grade, share, format!("{count} of {max} connections are tracked{advice}"))
}

fn noted(is_worth_it: bool, advice: &'static str) -> (Grade, &'static str) {
    if is_worth_it { (Grade::Noted, advice) } else { (Grade::Fine, "") }
}
