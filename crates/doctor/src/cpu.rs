//! The check `cpu`: whether a CPU quota stops this group's threads, whether the thread counts fit the quota, and how long tasks wait for a
//! CPU.
//!
//! A quota is a sum of CPU time per period, which is 100 ms in Kubernetes. Threads that run at once use it up together, and then all of
//! them stop until the period ends. So a mean use of 30 % of the quota can hide stops that last most of a period.

mod running_threads;
#[cfg(test)]
mod tests;

use std::time::Duration;

use seawall_probe::MachineSnapshot;
use seawall_probe::snapshot::CgroupQuota;

pub(crate) use self::running_threads::envoys;
use self::running_threads::{CgroupProcesses, ParallelThreads, ThreadCountSource};
use crate::check::{CheckContext, DoctorCheck};
use crate::finding::{DoctorFinding, DoctorStatus, pluralize};

const THROTTLING: &str = "cpu.throttling";
const WORKERS: &str = "cpu.workers";
const PRESSURE: &str = "cpu.pressure";

pub(crate) const CHECK: DoctorCheck = DoctorCheck {
    id: "cpu",
    about: "CPU throttling of this control group during two seconds; whether its processes run more threads (GOMAXPROCS, nginx, Envoy) than its CPU quota allows; CPU pressure",
    finding_ids: &[THROTTLING, WORKERS, PRESSURE],
    examine,
};

/// Twenty periods of a Kubernetes quota.
const WINDOW: Duration = Duration::from_secs(2);

fn examine(site: &CheckContext) -> Vec<DoctorFinding> {
    let before = MachineSnapshot::take(site.files, Duration::ZERO);
    let span = (site.sleep)(WINDOW);
    let after = MachineSnapshot::take(site.files, span);
    let crowd = CgroupProcesses::read(site.files);
    vec![throttling(&before, &after), workers(&after, &crowd), pressure(&before, &after)]
}

/// The periods of one control group with running threads, and those with throttling. Both are counted in the check's window and since the
/// group began.
struct ThrottlingPeriods<'a> {
    level: &'a CgroupQuota,
    window: (u64, u64),
    ever: (u64, u64),
    stopped: Duration,
}

impl<'a> ThrottlingPeriods<'a> {
    fn between(before: &MachineSnapshot, level: &'a CgroupQuota) -> Self {
        let groups = before.quotas.as_deref().unwrap_or_default();
        let earlier =
            groups.iter().find(|group| group.directory == level.directory).unwrap_or(level).throttling;
        let later = level.throttling;
        let window = (
            later.periods.saturating_sub(earlier.periods),
            later.throttled_periods.saturating_sub(earlier.throttled_periods),
        );
        let stopped = later.throttled_time.saturating_sub(earlier.throttled_time);
        Self { level, window, ever: (later.periods, later.throttled_periods), stopped }
    }

    /// Returns the percentage of throttled periods, in the window and since the group began.
    fn shares(&self) -> (f64, f64) {
        let share = |(periods, throttled)| throttled as f64 * 100.0 / u64::max(periods, 1) as f64;
        (share(self.window), share(self.ever))
    }
}

/// The threshold of the Kubernetes community's alert `CPUThrottlingHigh` (kubernetes-mixin, `cpuThrottlingPercent`), in percent.
const OFTEN: f64 = 25.0;

/// Judges how often the quota of this group, or of a parent group, stopped its threads.
fn throttling(before: &MachineSnapshot, after: &MachineSnapshot) -> DoctorFinding {
    let groups = match &after.quotas {
        Ok(groups) => groups,
        Err(why) => {
            return DoctorFinding::unknown(
                THROTTLING,
                why,
                "look at cpu.stat of the container's control group, on the node below /sys/fs/cgroup/kubepods.slice",
            );
        }
    };
    let stops = groups.iter().map(|level| ThrottlingPeriods::between(before, level));
    let Some(worst) = stops
        .max_by(|one, other| one.shares().partial_cmp(&other.shares()).unwrap_or(std::cmp::Ordering::Equal))
    else {
        return DoctorFinding::ok(THROTTLING, "no CPU quota applies".to_owned())
            .with_measurement("window", 0.0, "%")
            .with_measurement("ever", 0.0, "%");
    };
    let (window, ever) = worst.shares();
    let text = format!(
        "a CPU quota of {} ({}) stopped the control group's threads in {} of {} periods during this check, for {:.2} s in total, and in {} of {} periods since the group began",
        pluralize(worst.level.cores, "core"),
        worst.level.directory,
        worst.window.1,
        worst.window.0,
        worst.stopped.as_secs_f64(),
        worst.ever.1,
        worst.ever.0
    );
    let found = DoctorFinding::ok(THROTTLING, text)
        .with_measurement("window", window, "%")
        .with_measurement("ever", ever, "%")
        .with_measurement("quota", worst.level.cores, "cores");
    let status = match (window, ever) {
        (window, _) if window >= OFTEN => DoctorStatus::Error,
        (window, ever) if window > 0.0 || ever >= OFTEN => DoctorStatus::Warning,
        _ => return found,
    };
    found.with_status(
        status,
        "when the control group has used up the quota of a period, all its threads stop until the next period: responses are late although the CPU is idle",
        "raise the CPU limit, or remove it and keep the CPU request; or reduce the number of threads to the cores of the quota (see cpu.workers)",
    )
}

const FEWER: &str = "set the number of threads to the cores of the quota, rounded up: GOMAXPROCS (Go before 1.25 takes all cores of \
                     the machine), Envoy's --concurrency, nginx's worker_processes, Java's -XX:ActiveProcessorCount";

/// Compares the quota with the number of threads that may run at once.
fn workers(after: &MachineSnapshot, crowd: &CgroupProcesses) -> DoctorFinding {
    let groups = match &after.quotas {
        Ok(groups) => groups,
        Err(why) => return DoctorFinding::unknown(WORKERS, why, FEWER),
    };
    let Some(quota) = groups.iter().map(|level| level.cores).min_by(f64::total_cmp) else {
        return DoctorFinding::ok(
            WORKERS,
            "no CPU quota applies, so any number of threads is fine".to_owned(),
        );
    };
    match crowd {
        CgroupProcesses::Seen { parallel, unshown, hides } => {
            at_once(parallel, quota).unwrap_or_else(|| all_fit(parallel.len(), quota, *unshown, *hides))
        }
        CgroupProcesses::Unseen(why) => DoctorFinding::unknown(WORKERS, why, FEWER),
    }
}

/// Finds a process that runs more threads at once than the quota allows. A stated thread count goes before a counted one.
fn at_once(crowd: &[ParallelThreads], quota: f64) -> Option<DoctorFinding> {
    // A partial core still runs one thread.
    let fits = quota.ceil().max(1.0);
    let most = |is: &dyn Fn(&ParallelThreads) -> bool| {
        crowd.iter().filter(|one| is(one) && one.threads as f64 > fits).max_by_key(|one| one.threads)
    };
    if let Some(one) = most(&|one| one.source == ThreadCountSource::Stated) {
        return Some(too_many(one, quota));
    }
    if let Some(one) = most(&|_| true) {
        let why = "the check found no setting that limits how many of these threads run at once";
        return Some(untold(one, quota).with_status(DoctorStatus::Unknown, why, FEWER));
    }
    let mut unread = crowd.iter().filter_map(|one| Some((one, one.source.setting_unreadable_reason()?)));
    let (one, why) = unread.next()?;
    let others = match unread.count() {
        0 => String::new(),
        count => format!("; the check cannot read the settings of {count} more processes"),
    };
    Some(untold(one, quota).with_status(DoctorStatus::Unknown, format!("{why}{others}"), LOOK))
}

/// Returns the finding that no visible process runs too many threads.
fn all_fit(count: usize, quota: f64, unshown: usize, hides: bool) -> DoctorFinding {
    let text = format!(
        "none of the {count} processes in this control group runs more threads at once than the quota of {} allows",
        pluralize(quota, "core")
    );
    let found = DoctorFinding::ok(WORKERS, text).with_measurement("quota", quota, "cores");
    let who = match (unshown, hides) {
        (0, false) => return found,
        (0, true) => "processes of other users are hidden (hidepid)".to_owned(),
        _ => format!("this user cannot read the control group of {unshown} processes"),
    };
    found.with_status(
        DoctorStatus::Unknown,
        format!("this control group may have more processes: {who}"),
        LOOK,
    )
}

const LOOK: &str =
    "as root or as the user of the process, run: tr '\\0' '\\n' </proc/PID/environ | grep GOMAXPROCS";

/// Returns a finding about a process with an unknown thread setting.
fn untold(one: &ParallelThreads, quota: f64) -> DoctorFinding {
    let text = format!(
        "{} has {} on a quota of {}",
        one.process_description,
        pluralize(one.threads as f64, "thread"),
        pluralize(quota, "core")
    );
    DoctorFinding::ok(WORKERS, text).with_measurement("quota", quota, "cores").with_measurement(
        "threads",
        one.threads as f64,
        "threads",
    )
}

fn too_many(one: &ParallelThreads, quota: f64) -> DoctorFinding {
    let ParallelThreads { process_description: what, threads, .. } = one;
    let running = 100.0 * quota / *threads as f64;
    let text =
        format!("{what} runs up to {threads} threads at once on a quota of {}", pluralize(quota, "core"));
    let found = DoctorFinding::ok(WORKERS, text).with_measurement("quota", quota, "cores").with_measurement(
        "threads",
        *threads as f64,
        "threads",
    );
    let reason = format!(
        "when all threads are busy, they use up the quota of a 100 ms period in {running:.0} ms and stop for {:.0} ms",
        100.0 - running
    );
    found.with_status(DoctorStatus::Warning, reason, FEWER)
}

/// The threshold for waiting tasks, in percent of the time, as for the generator. Above it, the waits show in the tail of all response
/// times.
const WAITED: f64 = 10.0;

/// Judges how long tasks waited for a CPU during the check.
fn pressure(before: &MachineSnapshot, after: &MachineSnapshot) -> DoctorFinding {
    let fix = "look at /proc/pressure/cpu on the node (needs Linux 4.20 and the boot option psi=1)";
    let (earlier, later) = match (&before.cpu_pressure, &after.cpu_pressure) {
        (Ok(earlier), Ok(later)) => (earlier, later),
        (Err(why), _) | (_, Err(why)) => return DoctorFinding::unknown(PRESSURE, why, fix),
    };
    let span = after.at.saturating_sub(before.at).as_secs_f64();
    let waited = later.stalled.saturating_sub(earlier.stalled).as_secs_f64();
    let share = (waited * 100.0 / span.max(f64::MIN_POSITIVE)).min(100.0);
    let whose =
        if later.is_whole_machine { "a task on this machine" } else { "a task of this control group" };
    let text = format!("{whose} waited for a CPU during {share:.0} % of {span:.1} s");
    let found = DoctorFinding::ok(PRESSURE, text).with_measurement("waited", share, "%");
    if share <= WAITED {
        return found;
    }
    found.with_status(
        DoctorStatus::Warning,
        "a program that waits for a CPU responds late",
        "move work off this node, or raise the CPU request (it sets the share of CPU on a full node); if cpu.throttling reports a problem, raise the quota",
    )
}
