//! The facts in a control group's files about a window: the used part of its quota, the throttling, and the exhausted resources.

use seawall_cause::class::CauseClass;
use seawall_cgroup::{CpuQuota, Throttling};

use super::Fact;
use crate::server_side::cgroup::CgroupSnapshot;
use seawall_probe::file_reader::ProbeResult;

/// The least number of quota periods for a share.
const FEWEST_PERIODS: u64 = 5;

/// The distance from a whole number of cores up to which a group counts as always busy. The load begins and ends within the
/// window.
const NEAR_A_CORE: f64 = 0.08;

/// Returns the facts about a window of `span` seconds.
pub(super) fn facts(
    begin: &CgroupSnapshot,
    end: &CgroupSnapshot,
    span: f64,
    untested: &mut Vec<String>,
) -> Vec<Fact> {
    let change = GroupDiff { begin, end, span };
    let cpu = [change.throttled(), change.cores(), change.waited()];
    let rest = [change.memory_events(), change.killed(), change.memory(), change.processes()];
    untested.extend(end.cpu_time.as_ref().err().map(|why| format!("control group's CPU: {why}")));
    cpu.into_iter().chain(rest).flatten().collect()
}

struct GroupDiff<'a> {
    begin: &'a CgroupSnapshot,
    end: &'a CgroupSnapshot,
    span: f64,
}

impl GroupDiff<'_> {
    /// Returns the quota in cores, if there is one.
    fn quota(&self) -> Option<f64> {
        match self.end.quota {
            Ok(CpuQuota::Cores(cores)) => Some(cores),
            _ => None,
        }
    }

    /// Returns the number of periods, the number of throttled periods, and the seconds of throttling.
    fn stops(&self) -> Option<(u64, u64, f64)> {
        let (begin, end) = both(&self.begin.throttling, &self.end.throttling)?;
        let Throttling { periods, throttled_periods: throttled, throttled_time: stopped } = begin;
        let stopped = end.throttled_time.checked_sub(*stopped)?.as_secs_f64();
        Some((end.periods.checked_sub(*periods)?, end.throttled_periods.checked_sub(*throttled)?, stopped))
    }

    /// Returns the share of throttled periods; none with too few periods.
    fn share(&self) -> Option<f64> {
        let (periods, throttled, _) = self.stops()?;
        (periods >= FEWEST_PERIODS).then(|| throttled as f64 / periods as f64)
    }

    fn throttled(&self) -> Option<Fact> {
        let Some(cores) = self.quota() else {
            let none = matches!(self.end.quota, Ok(CpuQuota::Unlimited));
            // A parent group may still have a quota.
            return none.then(|| {
                Fact::new(
                    "the control group has no CPU quota of its own".to_owned(),
                    &[(CauseClass::CfsThrottling, 0.3)],
                )
            });
        };
        let (periods, throttled, stopped) = self.stops()?;
        let Some(share) = self.share() else {
            let says = format!(
                "the control group was almost idle: it ran in only {periods} quota periods (its quota is {cores:.2} cores)"
            );
            return Some(Fact::new(
                says,
                &[(CauseClass::CfsThrottling, 0.1), (CauseClass::CpuSaturation, 0.1)],
            ));
        };
        let says = format!(
            "the quota of {cores:.2} cores throttled the control group in {throttled} of {periods} periods ({stopped:.1} s summed over CPUs)"
        );
        // If most periods use up the quota, the quota limits the CPU.
        let speaks_for: &[(CauseClass, f64)] = match share {
            0.9.. => &[(CauseClass::CfsThrottling, 30.0), (CauseClass::CpuSaturation, 0.3)],
            0.5.. => &[(CauseClass::CfsThrottling, 10.0), (CauseClass::CpuSaturation, 0.3)],
            0.1.. => &[(CauseClass::CfsThrottling, 3.0)],
            0.0 => &[(CauseClass::CfsThrottling, 0.05)],
            _ => &[(CauseClass::CfsThrottling, 0.5)],
        };
        Some(Fact::new(says, speaks_for))
    }

    fn cores(&self) -> Option<Fact> {
        let (begin, end) = both(&self.begin.cpu_time, &self.end.cpu_time)?;
        let used = end.checked_sub(*begin)?.as_secs_f64() / self.span;
        if let Some(quota) = self.quota() {
            let says = format!("the control group used {used:.2} of its {quota:.2} cores");
            let idle = used < quota / 2.0;
            return Some(Fact::new(
                says,
                if idle {
                    &[(CauseClass::CpuSaturation, 0.2), (CauseClass::CfsThrottling, 0.3)]
                } else {
                    &[]
                },
            ));
        }
        Some(Fact::new(format!("the control group used {used:.2} cores"), core_usage_likelihood_ratios(used)))
    }

    /// Returns the fact about tasks that waited for a CPU. The kernel also counts the waits of throttled tasks, so there is no
    /// fact with throttling.
    fn waited(&self) -> Option<Fact> {
        if self.share().is_some_and(|share| share >= 0.1) {
            return None;
        }
        let (begin, end) = both(&self.begin.cpu_wait_time, &self.end.cpu_wait_time)?;
        let share = (end.checked_sub(*begin)?.as_secs_f64() / self.span).min(1.0);
        let speaks_for: &[(CauseClass, f64)] = match share {
            0.5.. => &[(CauseClass::CpuSaturation, 3.0)],
            ..0.05 => &[(CauseClass::CpuSaturation, 0.5)],
            _ => return None,
        };
        Some(Fact::new(
            format!("a task of the control group waited for a CPU during {:.0} % of the time", 100.0 * share),
            speaks_for,
        ))
    }

    fn memory_events(&self) -> Option<Fact> {
        let (begin, end) = both(&self.begin.memory_events, &self.end.memory_events)?;
        let times = end.limit_hits.checked_sub(begin.limit_hits).filter(|times| *times > 0)?;
        let says = format!(
            "the control group reached its memory limit {times} times and waited while the kernel reclaimed pages"
        );
        Some(Fact::new(says, &[(CauseClass::Pauses, 3.0)]))
    }

    fn killed(&self) -> Option<Fact> {
        let (begin, end) = both(&self.begin.memory_events, &self.end.memory_events)?;
        let times = end.oom_kills?.checked_sub(begin.oom_kills?).filter(|times| *times > 0)?;
        Some(Fact::new(
            format!("the kernel killed {times} processes of the control group because of its memory limit"),
            &[],
        ))
    }

    fn memory(&self) -> Option<Fact> {
        let (memory, limit) = (*self.end.memory.as_ref().ok()?, (*self.end.memory_limit.as_ref().ok()?)?);
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let near = memory as f64 >= 0.9 * limit as f64;
        near.then(|| {
            let (memory, limit) = (mebibytes(memory), mebibytes(limit));
            Fact::new(
                format!(
                    "the control group holds {memory:.1} of {limit:.1} MiB of memory (file pages included)"
                ),
                &[],
            )
        })
    }

    fn processes(&self) -> Option<Fact> {
        let (processes, limit) =
            (*self.end.task_count.as_ref().ok()?, (*self.end.processes_limit.as_ref().ok()?)?);
        (processes >= limit).then(|| {
            let says = format!("the control group has {processes} processes and threads, which is its limit");
            Fact::new(says, &[(CauseClass::ConcurrencyCap, 5.0), (CauseClass::PoolSaturation, 5.0)])
        })
    }
}

/// Returns the likelihood ratios for a number of used cores without a quota.
pub(super) fn core_usage_likelihood_ratios(cores: f64) -> &'static [(CauseClass, f64)] {
    let whole = cores.round().max(1.0);
    match (cores - whole).abs() / whole <= NEAR_A_CORE {
        // Exactly one core means one thread; several cores may be as many threads, or the whole machine.
        true if whole == 1.0 => &[(CauseClass::CpuSaturation, 8.0)],
        true => &[(CauseClass::CpuSaturation, 4.0)],
        false if cores < 0.5 => &[(CauseClass::CpuSaturation, 0.2)],
        false => &[],
    }
}

fn both<'a, T>(begin: &'a ProbeResult<T>, end: &'a ProbeResult<T>) -> Option<(&'a T, &'a T)> {
    begin.as_ref().ok().zip(end.as_ref().ok())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seawall_cgroup::MemoryEvents;

    use super::*;
    use seawall_probe::file_reader::ProbeError;

    const SPAN: f64 = 3.0;

    fn nothing() -> CgroupSnapshot {
        fn missing<T>() -> ProbeResult<T> {
            Err(ProbeError::Missing("x".into()))
        }
        CgroupSnapshot {
            quota: missing(),
            throttling: missing(),
            cpu_time: missing(),
            cpu_wait_time: missing(),
            memory: missing(),
            memory_limit: missing(),
            memory_events: missing(),
            task_count: missing(),
            processes_limit: missing(),
        }
    }

    fn told(begin: &CgroupSnapshot, end: &CgroupSnapshot) -> Vec<Fact> {
        facts(begin, end, SPAN, &mut Vec::new())
    }

    /// Returns the facts about three seconds under a quota of 0.1 cores.
    fn quota(periods: u64, throttled: u64, used: f64) -> Vec<Fact> {
        let at = |periods, throttled, used| CgroupSnapshot {
            quota: Ok(CpuQuota::Cores(0.1)),
            throttling: Ok(Throttling {
                periods,
                throttled_periods: throttled,
                throttled_time: Duration::from_secs(throttled),
            }),
            cpu_time: Ok(Duration::from_secs_f64(used)),
            ..nothing()
        };
        told(&at(100, 7, 5.0), &at(100 + periods, 7 + throttled, 5.0 + used))
    }

    fn ratio(facts: &[Fact], class: CauseClass) -> f64 {
        let ratios = facts.iter().flat_map(|fact| &fact.likelihood_ratios).filter(|(of, _)| *of == class);
        ratios.map(|(_, ratio)| *ratio).product()
    }

    #[test]
    fn a_quota_that_is_used_up_in_nearly_every_period_is_throttling() {
        let facts = quota(30, 28, 0.3);
        let says = "the quota of 0.10 cores throttled the control group in 28 of 30 periods (28.0 s summed over CPUs)";
        assert_eq!(facts[0].text, says);
        assert_eq!(facts[1].text, "the control group used 0.10 of its 0.10 cores");
        assert!(ratio(&facts, CauseClass::CfsThrottling) >= 30.0);
        assert!(ratio(&facts, CauseClass::CpuSaturation) < 1.0);
    }

    #[test]
    fn a_quota_that_is_never_used_up_is_not_the_cause() {
        assert!(ratio(&quota(30, 0, 0.03), CauseClass::CfsThrottling) < 0.05);
        assert!(ratio(&quota(2, 1, 0.001), CauseClass::CfsThrottling) < 0.2, "it hardly ran");
        assert!(ratio(&quota(30, 2, 0.2), CauseClass::CfsThrottling) < 1.0);
        let some = ratio(&quota(30, 6, 0.2), CauseClass::CfsThrottling);
        assert!((2.0..5.0).contains(&some), "{some}");
    }

    #[test]
    fn a_core_that_is_busy_all_the_time_without_a_quota_is_saturation() {
        let used = |cores: f64| {
            let at = |cpu| CgroupSnapshot {
                quota: Ok(CpuQuota::Unlimited),
                cpu_time: Ok(Duration::from_secs_f64(cpu)),
                ..nothing()
            };
            told(&at(5.0), &at(5.0 + cores * SPAN))
        };
        let facts = used(0.99);
        assert_eq!(
            facts.iter().map(|fact| &*fact.text).collect::<Vec<_>>(),
            ["the control group has no CPU quota of its own", "the control group used 0.99 cores"]
        );
        assert_eq!(ratio(&facts, CauseClass::CpuSaturation), 8.0);
        assert_eq!(ratio(&used(1.98), CauseClass::CpuSaturation), 4.0);
        assert_eq!(ratio(&used(1.5), CauseClass::CpuSaturation), 1.0);
        assert_eq!(ratio(&used(0.02), CauseClass::CpuSaturation), 0.2);
    }

    #[test]
    fn waits_for_a_cpu_count_where_the_quota_did_not_make_them() {
        let at = |throttled, waited| CgroupSnapshot {
            quota: Ok(CpuQuota::Cores(0.5)),
            throttling: Ok(Throttling {
                periods: 10 + throttled,
                throttled_periods: throttled,
                throttled_time: Duration::ZERO,
            }),
            cpu_wait_time: Ok(Duration::from_secs_f64(waited)),
            ..nothing()
        };
        let busy = told(
            &at(0, 0.0),
            &CgroupSnapshot {
                throttling: Ok(Throttling { periods: 40, ..Throttling::default() }),
                ..at(0, 2.4)
            },
        );
        assert_eq!(busy[1].text, "a task of the control group waited for a CPU during 80 % of the time");
        let stopped = told(&at(0, 0.0), &at(28, 2.4));
        assert!(!stopped.iter().any(|fact| fact.text.contains("waited")), "{stopped:?}");
    }

    #[test]
    fn what_memory_and_processes_ran_out_of_is_told() {
        let at = |reached, killed| CgroupSnapshot {
            memory: Ok(25 << 20),
            memory_limit: Ok(Some(25 << 20)),
            memory_events: Ok(MemoryEvents { limit_hits: reached, oom_kills: Some(killed) }),
            task_count: Ok(10),
            processes_limit: Ok(Some(10)),
            ..nothing()
        };
        let facts = told(&at(1, 0), &at(41, 1));
        let says: Vec<_> = facts.iter().map(|fact| &*fact.text).collect();
        let expected = [
            "the control group reached its memory limit 40 times and waited while the kernel reclaimed pages",
            "the kernel killed 1 processes of the control group because of its memory limit",
            "the control group holds 25.0 of 25.0 MiB of memory (file pages included)",
            "the control group has 10 processes and threads, which is its limit",
        ];
        assert_eq!(says, expected);
        assert_eq!(ratio(&facts, CauseClass::ConcurrencyCap), 5.0);
        assert_eq!(
            told(
                &at(1, 0),
                &CgroupSnapshot { processes_limit: Ok(None), memory_limit: Ok(None), ..at(1, 0) }
            ),
            []
        );
    }

    #[test]
    fn a_group_that_was_made_anew_in_between_is_not_compared() {
        let at = |periods, cpu| CgroupSnapshot {
            quota: Ok(CpuQuota::Cores(0.1)),
            throttling: Ok(Throttling { periods, throttled_periods: 0, throttled_time: Duration::ZERO }),
            cpu_time: Ok(Duration::from_secs(cpu)),
            ..nothing()
        };
        assert_eq!(told(&at(100, 9), &at(5, 1)), []);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let mut untested = Vec::new();
        assert_eq!(facts(&nothing(), &nothing(), SPAN, &mut untested), []);
        assert_eq!(untested, ["control group's CPU: x does not exist on this machine"]);
    }
}
