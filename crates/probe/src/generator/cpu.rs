//! Judges whether the generator had enough CPU.

use std::time::Duration;

use super::{RunActivity, percent, seconds};
use crate::file_reader::{ProbeError, ProbeResult};
use crate::finding::{CheckDefinition, FindingGrade, MachineFinding};
use crate::snapshot::{CgroupQuota, MachineSnapshot, Pressure};
use crate::threads::ThreadUsage;

const CPU: CheckDefinition = CheckDefinition { id: "thread-cpu", unit: "% of a core", limit: 80.0 };
/// The percentage of a core above which a thread limits the load. locust warns at 90 % of a core (`locust/runners.py`). From 80 % on, four
/// requests wait for a busy thread on average (M/M/1).
const CPU_LIMITED: f64 = 90.0;
/// The percentage of a core above which a thread explains unsent requests. If the target is too slow for the in-flight limit, a sender is
/// mostly idle. A sender that was busy, or waiting for a CPU, half of the time had no time for those requests.
const CPU_LIMITED_MISSING: f64 = 50.0;

/// Judges the CPU time of the busiest sending thread, without busy polling. The time that the thread waited for a CPU counts as used,
/// because a used-up quota or a busy core saturates a thread, too.
pub(super) fn check_thread_cpu(senders: &ProbeResult<Vec<ThreadUsage>>, run: &RunActivity) -> MachineFinding {
    let senders = match senders {
        Ok(senders) => senders,
        Err(why) => return CPU.unknown_finding(why),
    };
    let used = |sender: &ThreadUsage| sender.on_cpu_time.saturating_sub(busy_poll(sender, run));
    let (share, sender) = most(senders, |sender| used(sender) + sender.waited.unwrap_or_default());
    let limited = if run.has_unsent_requests { CPU_LIMITED_MISSING } else { CPU_LIMITED };
    let grade = match share {
        share if share > limited => FindingGrade::Invalid,
        share if share > CPU.limit => FindingGrade::Degraded,
        _ => FindingGrade::Ok,
    };
    let advice = match grade {
        FindingGrade::Ok => "",
        _ => ": use more --threads on more cores, or more generators",
    };
    let used = sender.map_or(0.0, |sender| share_of(sender, used(sender)));
    let name = name(sender);
    let waited = if share > used {
        format!(" and waited for a core {:.0} % of the time", share - used)
    } else {
        String::new()
    };
    CPU.finding(grade, share, format!("thread {name:?} used {used:.0} % of a core{waited}{advice}"))
}

/// Returns the CPU time that this thread spent on busy polling. Busy polling of other threads does not count.
fn busy_poll(sender: &ThreadUsage, run: &RunActivity) -> Duration {
    let number = sender.name.rsplit(' ').next().and_then(|number| number.parse::<usize>().ok());
    number.and_then(|number| run.busy_poll_times.get(number)).copied().unwrap_or_default()
}

/// Returns the thread with the largest share of its time, and the share in percent.
fn most(threads: &[ThreadUsage], time: impl Fn(&ThreadUsage) -> Duration) -> (f64, Option<&ThreadUsage>) {
    let shares = threads.iter().map(|thread| (share_of(thread, time(thread)), Some(thread)));
    shares.max_by(|(one, _), (other, _)| one.total_cmp(other)).unwrap_or_default()
}

fn share_of(thread: &ThreadUsage, time: Duration) -> f64 {
    percent(time.as_secs_f64(), thread.span.as_secs_f64())
}

fn name(thread: Option<&ThreadUsage>) -> &str {
    thread.map_or("", |thread| &thread.name)
}

/// The limit of the wait for a CPU: a waiting thread sends and reads late. fortio also warns from 5 % on (of sleeps with a negative
/// duration).
const QUEUE: CheckDefinition = CheckDefinition { id: "run-queue-wait", unit: "% of the run", limit: 5.0 };

/// Judges the longest wait of a sending thread for a CPU.
pub(super) fn check_cpu_queueing(senders: &ProbeResult<Vec<ThreadUsage>>) -> MachineFinding {
    let senders = match senders {
        Ok(senders) => senders,
        Err(why) => return QUEUE.unknown_finding(why),
    };
    if senders.iter().any(|sender| sender.waited.is_none()) {
        return QUEUE.unknown_finding(&ProbeError::NotApplicable(
            "this kernel does not count how long threads wait for a CPU",
        ));
    }
    let (share, sender) = most(senders, |sender| sender.waited.unwrap_or_default());
    let name = name(sender);
    let (grade, advice) = match share > QUEUE.limit {
        true => (
            FindingGrade::Degraded,
            ": reserve cores for the generator, or reduce other load on this machine",
        ),
        false => (FindingGrade::Ok, ""),
    };
    let text = format!("thread {name:?} waited {share:.1} % of the run for a CPU{advice}");
    QUEUE.finding(grade, share, text)
}

const THROTTLING: CheckDefinition =
    CheckDefinition { id: "cpu-throttling", unit: "% of periods", limit: 0.0 };
/// The percentage of throttled periods from which the generator is the limit. A period is 100 ms; one in a hundred changes the 99th
/// percentile.
const THROTTLING_LIMITED: f64 = 1.0;

/// Judges CPU throttling (`Documentation/scheduler/sched-bwc.rst`): after the quota is used up, all threads stop until the next period.
pub(super) fn check_throttling(before: &MachineSnapshot, after: &MachineSnapshot) -> MachineFinding {
    let (before, after) = match (&before.quotas, &after.quotas) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(why), _) | (_, Err(why)) => return THROTTLING.unknown_finding(why),
    };
    let pairs = after.iter().filter_map(|level| {
        let earlier = before.iter().find(|earlier| earlier.directory == level.directory)?;
        Some(throttled(earlier, level))
    });
    pairs
        .max_by(|one, other| one.measured.unwrap_or(0.0).total_cmp(&other.measured.unwrap_or(0.0)))
        .unwrap_or_else(|| {
            THROTTLING.finding(FindingGrade::Ok, 0.0, "no CPU quota applies to the generator".to_owned())
        })
}

fn throttled(before: &CgroupQuota, after: &CgroupQuota) -> MachineFinding {
    let CgroupQuota { directory, cores, throttling } = after;
    let periods = throttling.periods.saturating_sub(before.throttling.periods);
    let throttled = throttling.throttled_periods.saturating_sub(before.throttling.throttled_periods);
    let stopped = throttling.throttled_time.saturating_sub(before.throttling.throttled_time).as_millis();
    let share = percent(throttled as f64, periods as f64);
    let grade = match throttled {
        0 => FindingGrade::Ok,
        _ if share <= THROTTLING_LIMITED => FindingGrade::Degraded,
        _ => FindingGrade::Invalid,
    };
    let advice = if throttled > 0 { ": raise or remove the CPU limit" } else { "" };
    let text = format!(
        "the CPU quota of {cores} cores ({directory}) stopped the generator in {throttled} of {periods} periods, \
         for {stopped} ms{advice}"
    );
    THROTTLING.finding(grade, share, text)
}

/// The limit of CPU pressure ("some task waited") over the run. A tenth of the time shows in the tail of the results.
const PRESSURE: CheckDefinition = CheckDefinition { id: "cpu-pressure", unit: "% of the run", limit: 10.0 };

/// Judges how long tasks waited for a CPU. If the generator's own waits are counted and short, this finding is only `Info`.
pub(super) fn check_cpu_pressure(
    before: &MachineSnapshot,
    after: &MachineSnapshot,
    own_waits_counted: bool,
) -> MachineFinding {
    let grade = if own_waits_counted { FindingGrade::Info } else { FindingGrade::Degraded };
    check_pressure(
        &PRESSURE,
        "a CPU",
        grade,
        &before.cpu_pressure,
        &after.cpu_pressure,
        seconds(before, after),
    )
}

/// Returns the finding about one kind of pressure. `grade` is the grade above the limit.
pub(super) fn check_pressure(
    check: &CheckDefinition,
    what: &str,
    grade: FindingGrade,
    before: &ProbeResult<Pressure>,
    after: &ProbeResult<Pressure>,
    seconds: f64,
) -> MachineFinding {
    let (before, after) = match (before, after) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(why), _) | (_, Err(why)) => return check.unknown_finding(why),
    };
    let share = percent(after.stalled.saturating_sub(before.stalled).as_secs_f64(), seconds);
    let whose = if after.is_whole_machine { "on this machine" } else { "in this control group" };
    let (grade, advice) = match share > check.limit {
        true => (grade, ": another program on this machine uses the same resource"),
        false => (FindingGrade::Ok, ""),
    };
    let text = format!("a task {whose} waited for {what} during {share:.1} % of the run{advice}");
    check.finding(grade, share, text)
}
