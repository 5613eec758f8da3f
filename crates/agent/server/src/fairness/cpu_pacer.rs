//! Prevents request storms from using up the CPU quota. The thread passes the current time and the used CPU time to the pacer.
//!
//! If a process has used up its quota, the kernel stops the process until the quota's period ends, for up to 100 ms. During that
//! time all clients wait, even clients with few requests (Linux, Documentation/scheduler/sched-bwc.rst). Therefore a thread paces
//! its work while several clients are active: the thread serves connections only while the process has used less than [`PART`] of
//! the CPU time that the quota has granted. While only one client is active, the thread does not pace its work, because no other
//! client would gain from it.

use std::time::Duration;

use seawall_core::Moment;

/// The fraction of the quota that request storms may use. The rest is for clients with few requests, for renewals and for the
/// admin port.
const PART: f64 = 0.85;

/// The pacer saves at most the unused CPU time of this period. The process can use the saved CPU time at once.
/// This period is much shorter than the quota's period (100 ms), so the process stays below the quota in each period.
const BURST: Duration = Duration::from_millis(5);

/// The longest pause. If a CPU debt needs a longer pause, the pacer cancels the rest of the debt.
/// Therefore clients wait at most this long, even if another thread used the whole quota.
const LONGEST: Duration = Duration::from_millis(20);

/// Computes the pauses between the rounds of one thread.
#[derive(Debug)]
pub(crate) struct CpuPacer {
    /// The number of CPU seconds that the pacer grants per second.
    rate: f64,
    /// The number of CPU seconds that the process can still use. A negative value is a debt.
    credit: f64,
    last: Option<(Moment, Duration)>,
}

impl CpuPacer {
    /// Returns a pacer for a CPU quota of `cores` cores.
    pub(crate) fn new(cores: f64) -> Self {
        Self { rate: (cores * PART).max(0.001), credit: 0.0, last: None }
    }

    /// Returns the pause that the thread must make before the next round. `used` is the CPU time that the process has used so far.
    pub(crate) fn next_pause(&mut self, now: Moment, used: Duration) -> Duration {
        let (then, before) = self.last.replace((now, used)).unwrap_or((now, used));
        let earned = now.since(then).as_secs_f64() * self.rate;
        let spent = used.saturating_sub(before).as_secs_f64();
        let most = BURST.as_secs_f64() * self.rate;
        let least = -LONGEST.as_secs_f64() * self.rate;
        self.credit = (self.credit + earned - spent).clamp(least, most);
        Duration::from_secs_f64((-self.credit / self.rate).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a thread that computes whenever it may, in rounds of 2 ms. Returns the CPU time that it used in each second.
    fn used_in_a_second(cores: f64) -> Vec<f64> {
        let mut pace = CpuPacer::new(cores);
        let (mut now, mut cpu) = (Duration::ZERO, Duration::ZERO);
        let mut in_period = vec![0.0; 11];
        while now < Duration::from_secs(1) {
            let at = Moment::from_nanos(u64::try_from(now.as_nanos()).unwrap());
            now += pace.next_pause(at, cpu);
            let round = Duration::from_millis(2);
            in_period[(now.as_millis() / 100).min(10) as usize] += round.as_secs_f64();
            now += round;
            cpu += round;
        }
        in_period.pop();
        in_period
    }

    #[test]
    fn no_period_uses_up_its_quota_and_little_of_it_is_wasted() {
        for cores in [0.25, 0.5, 0.8] {
            let quota = cores * 0.1;
            for used in used_in_a_second(cores) {
                assert!(used < quota, "{used} of {quota}");
                assert!(used > quota * 0.6, "{used} of {quota}");
            }
        }
    }

    #[test]
    fn a_round_within_the_quota_begins_at_once() {
        let mut pace = CpuPacer::new(0.5);
        for step in 1..100 {
            let now = Moment::from_nanos(step * 10_000_000);
            assert_eq!(pace.next_pause(now, Duration::from_millis(step)), Duration::ZERO);
        }
    }

    #[test]
    fn a_rest_is_bounded_whoever_used_the_quota_up() {
        let mut pace = CpuPacer::new(0.03);
        pace.next_pause(Moment::from_nanos(0), Duration::ZERO);
        assert!(pace.next_pause(Moment::from_nanos(1), Duration::from_secs(9)) <= LONGEST);
    }
}
