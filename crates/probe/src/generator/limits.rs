//! Judges whether the generator reached a configured limit.

use super::cpu::check_pressure;
use super::{RunActivity, percent, seconds};
use crate::finding::{CheckDefinition, FindingGrade, MachineFinding};
use crate::snapshot::{CgroupMemoryUsage, Conntrack, MachineSnapshot};

/// The limit of memory pressure, as for the CPU. A generator that waits for memory is delayed, whichever program uses the memory.
const MEMORY_PRESSURE: CheckDefinition =
    CheckDefinition { id: "memory-pressure", unit: "% of the run", limit: 10.0 };

/// Judges how long tasks waited for memory.
pub(super) fn check_memory_pressure(before: &MachineSnapshot, after: &MachineSnapshot) -> MachineFinding {
    let (earlier, later) = (&before.memory_pressure, &after.memory_pressure);
    check_pressure(&MEMORY_PRESSURE, "memory", FindingGrade::Degraded, earlier, later, seconds(before, after))
}

/// The percentage above which a limit is near enough for a remark. A limit that was not reached did no harm.
const NEARLY: f64 = 80.0;

const MEMORY: CheckDefinition = CheckDefinition { id: "memory", unit: "% of the limit", limit: NEARLY };

/// Judges the control group whose memory is nearest to its limit. Its effect on the run shows as memory pressure.
pub(super) fn check_cgroup_memory_limit(after: &MachineSnapshot) -> MachineFinding {
    let groups = match &after.memory {
        Ok(groups) => groups,
        Err(why) => return MEMORY.unknown_finding(why),
    };
    let share = |memory: &CgroupMemoryUsage| percent(memory.used as f64, memory.limit as f64);
    let Some(memory) = groups.iter().max_by(|one, other| share(one).total_cmp(&share(other))) else {
        return MEMORY.finding(FindingGrade::Ok, 0.0, "no memory limit applies to the generator".to_owned());
    };
    let share = share(memory);
    let (grade, advice) = info_if(share > NEARLY, ": raise the memory limit");
    let [used, limit] = [memory.used, memory.limit].map(|bytes| bytes >> 20);
    let text = format!("{used} of {limit} MiB of memory are in use ({}){advice}", memory.directory);
    MEMORY.finding(grade, share, text)
}

const OPEN_FILES: CheckDefinition = CheckDefinition { id: "open-files", unit: "% of the limit", limit: 95.0 };

/// Judges open files against their limit. The engine stays below the limit because requests wait for free descriptors, so nothing failed.
pub(super) fn check_open_files(after: &MachineSnapshot, most: u64) -> MachineFinding {
    let limit = match &after.open_file_limits {
        Ok(limits) => limits.soft,
        Err(why) => return OPEN_FILES.unknown_finding(why),
    };
    let share = percent(most as f64, limit as f64);
    let (grade, advice) = info_if(
        share > OPEN_FILES.limit,
        ": further requests waited for a free file descriptor; raise the limit as root before the run: prlimit --pid $$ --nofile=1048576",
    );
    OPEN_FILES.finding(grade, share, format!("up to {most} of {limit} files were open{advice}"))
}

/// The check of sockets that this machine could not open. A request without a socket never reached the target, so one is too
/// many. From 1 % on, as for unsent requests, the results are not the target's.
pub const SOCKETS_CHECK: CheckDefinition =
    CheckDefinition { id: "sockets", unit: "% of connections", limit: 0.0 };
const SOCKETS_LIMITED: f64 = 1.0;

/// Judges the connections that failed on this machine.
pub(super) fn check_socket_failures(run: &RunActivity) -> MachineFinding {
    let share = percent(
        run.socket_failures as f64,
        run.opened_connection_count.saturating_add(run.socket_failures) as f64,
    );
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
    SOCKETS_CHECK.finding(grade, share, text)
}

/// The seconds for which a port stays taken after the local side closed first (`TCP_TIMEWAIT_LEN`, Linux `include/net/tcp.h`).
pub const TIME_WAIT_SECONDS: f64 = 60.0;

const PORTS: CheckDefinition = CheckDefinition { id: "ports", unit: "ports", limit: 0.0 };

/// Judges whether a longer run would exhaust the ports. Ports that were missing in this run are in [`check_socket_failures`].
pub(super) fn check_projected_port_use(
    before: &MachineSnapshot,
    after: &MachineSnapshot,
    run: &RunActivity,
) -> MachineFinding {
    let (ports, waiting) =
        match (&after.ephemeral_port_count, &before.time_wait_count, &after.time_wait_count) {
            (Ok(ports), Ok(before), Ok(after)) => (*ports, after.saturating_sub(*before)),
            (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return PORTS.unknown_finding(why),
        };
    // Connections that a short run opens at its start are not opened again and again.
    let rate = run.opened_connection_count as f64 / run.sending_duration.as_secs_f64().max(1.0);
    // If few of many connections are in TIME_WAIT, the other side closes them or they stay open.
    let held = waiting.saturating_mul(2) >= run.opened_connection_count;
    let projected = if held { rate * TIME_WAIT_SECONDS } else { waiting as f64 };
    let (grade, advice) = info_if(
        projected > ports as f64,
        ": a longer run to one destination exhausts these ports, so keep connections alive or add -laddr addresses",
    );
    let text = format!(
        "{rate:.0} new connections/s need {projected:.0} ports, and one source address has {ports} ports to one \
         destination{advice}"
    );
    CheckDefinition { limit: ports as f64, ..PORTS }.finding(grade, projected, text)
}

const CONNTRACK: CheckDefinition = CheckDefinition { id: "conntrack", unit: "% of the limit", limit: NEARLY };
/// The percentage to which the kernel clears a full table after it has dropped packets (`nf_conntrack_max95`, Linux
/// `net/netfilter/nf_conntrack_core.c`).
const CONNTRACK_FULL: f64 = 95.0;

/// Judges the tracked connections against the size of the table.
pub(super) fn check_conntrack(before: &MachineSnapshot, after: &MachineSnapshot) -> MachineFinding {
    let (before, after) = match (&before.conntrack, &after.conntrack) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(why), _) | (_, Err(why)) => return CONNTRACK.unknown_finding(why),
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
