//! The times that the CPU quota stopped this process between two readings.

use std::time::Duration;

use seawall_probe::file_reader::HostFiles;
use seawall_probe::snapshot::{CgroupQuota, quotas};

/// The CPU quotas of a process, as last read.
pub struct QuotaWatch<F> {
    files: F,
    process: u32,
    last: Vec<CgroupQuota>,
}

impl<F: HostFiles> QuotaWatch<F> {
    /// Watches the quotas of the process with this number from now on. Without a readable quota, it never reports anything.
    #[must_use]
    pub fn watch(files: F, process: u32) -> Self {
        let last = quotas(&files, process).unwrap_or_default();
        Self { files, process, last }
    }

    /// Returns the cores that the process may use; none without a quota.
    #[must_use]
    pub fn cores(&self) -> Option<f64> {
        self.last.iter().map(|level| level.cores).reduce(f64::min)
    }

    /// Describes the throttling since the last reading; none if there was no throttling.
    pub fn describe_throttling(&mut self) -> Option<String> {
        let now = quotas(&self.files, self.process).ok()?;
        let before = std::mem::replace(&mut self.last, now);
        let levels = self.last.iter().filter_map(|level| {
            let before = before.iter().find(|known| known.directory == level.directory)?;
            let [was, is] = [before, level].map(|level| level.throttling);
            let periods = is.throttled_periods.saturating_sub(was.throttled_periods);
            let stopped = is.throttled_time.saturating_sub(was.throttled_time);
            (periods > 0).then_some((stopped, periods, is.periods.saturating_sub(was.periods), level.cores))
        });
        let (stopped, throttled, periods, cores) = levels.max_by_key(|(stopped, ..)| *stopped)?;
        Some(said(stopped, (throttled, periods), cores))
    }
}

fn said(stopped: Duration, (throttled, periods): (u64, u64), cores: f64) -> String {
    format!(
        "the CPU quota of {cores} cores stopped the generator for {stopped:.1?} in {throttled} of {periods} periods"
    )
}

#[cfg(test)]
mod tests {
    use seawall_probe::file_reader::fake::Texts;

    use super::*;

    const STAT: &str = "/sys/fs/cgroup/cpu.stat";

    fn machine() -> Texts {
        Texts::new(&[
            ("/proc/7/cgroup", "0::/\n"),
            ("/proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("/sys/fs/cgroup", ""),
            ("/sys/fs/cgroup/cpu.max", "50000 100000\n"),
            (STAT, "nr_periods 10\nnr_throttled 2\nthrottled_usec 5000\n"),
        ])
    }

    #[test]
    fn who_was_stopped_by_a_quota_says_for_how_long_since_the_last_look() {
        let texts = machine();
        let mut quota = QuotaWatch::watch(&texts, 7);
        assert_eq!((quota.cores(), quota.describe_throttling()), (Some(0.5), None));
        texts.set(STAT, "nr_periods 20\nnr_throttled 5\nthrottled_usec 65000\n");
        let said = "the CPU quota of 0.5 cores stopped the generator for 60.0ms in 3 of 10 periods";
        assert_eq!(quota.describe_throttling().as_deref(), Some(said));
        assert_eq!(quota.describe_throttling(), None);
    }

    #[test]
    fn without_a_quota_nothing_is_said() {
        let texts = machine();
        texts.set("/sys/fs/cgroup/cpu.max", "max 100000\n");
        let mut quota = QuotaWatch::watch(&texts, 7);
        assert_eq!((quota.cores(), quota.describe_throttling()), (None, None));
    }
}
