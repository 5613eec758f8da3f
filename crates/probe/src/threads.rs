//! Measures the CPU time and waits of threads from samples, because an ended thread has no files.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::file_reader::{HostFiles, ProbeError, ProbeResult, read_parsed};
use crate::proc::{SchedStat, ThreadStat};

/// The most threads that are tracked.
const MOST_THREADS: usize = 1024;

/// The shortest time for a share. In a shorter time, one scheduling decision matters too much.
pub const MIN_SPAN: Duration = Duration::from_millis(500);

const TASKS: &str = "/proc/self/task";

/// Tracks the threads of this process whose name starts with a prefix.
#[derive(Debug)]
pub struct ThreadTracker {
    prefix: &'static str,
    tracks: BTreeMap<String, Track>,
    unread: Option<ProbeError>,
}

/// The use of one thread between its first and last sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadUsage {
    /// The name of the thread.
    pub name: String,
    /// The time between the samples.
    pub span: Duration,
    /// The time on a CPU.
    pub on_cpu_time: Duration,
    /// The time in which the thread waited for a CPU; none if the kernel does not count it.
    pub waited: Option<Duration>,
}

#[derive(Debug, Clone)]
struct Sample {
    name: String,
    at: Duration,
    /// The CPU time in ticks of 10 ms, which every kernel reports.
    cpu: Duration,
    sched: Option<SchedStat>,
}

#[derive(Debug)]
struct Track {
    first: Sample,
    last: Sample,
}

impl ThreadTracker {
    /// Creates a tracker without samples.
    #[must_use]
    pub fn named(prefix: &'static str) -> Self {
        Self { prefix, tracks: BTreeMap::new(), unread: None }
    }

    /// Returns the prefix of the tracked names.
    #[must_use]
    pub fn prefix(&self) -> &'static str {
        self.prefix
    }

    /// Takes a sample of every running thread.
    pub fn sample(&mut self, files: &dyn HostFiles, at: Duration) {
        match files.names(TASKS) {
            Ok(ids) => ids.into_iter().take(MOST_THREADS).for_each(|id| self.follow(files, at, id)),
            Err(error) => self.unread = Some(ProbeError::new(TASKS, &error)),
        }
    }

    fn follow(&mut self, files: &dyn HostFiles, at: Duration, id: String) {
        // The thread may have ended since it was listed.
        let Ok(stat) = read_parsed(files, &format!("{TASKS}/{id}/stat"), ThreadStat::parse) else { return };
        let sched = read_parsed(files, &format!("{TASKS}/{id}/schedstat"), SchedStat::parse).ok();
        let sample = Sample { name: stat.name, at, cpu: stat.cpu_time, sched };
        if let Some(track) = self.tracks.get_mut(&id) {
            track.last = sample;
        } else if self.tracks.len() < MOST_THREADS {
            self.tracks.insert(id, Track { first: sample.clone(), last: sample });
        }
    }

    /// Returns the use of each tracked thread.
    ///
    /// # Errors
    /// No thread was seen long enough.
    pub fn usage(&self) -> ProbeResult<Vec<ThreadUsage>> {
        // A new thread gets its name slightly later, so the last name counts.
        let named = self.tracks.values().filter(|track| track.last.name.starts_with(self.prefix));
        let seen: Vec<_> = named.map(Track::thread).filter(|thread| thread.span >= MIN_SPAN).collect();
        match &self.unread {
            _ if !seen.is_empty() => Ok(seen),
            Some(unread) => Err(unread.clone()),
            None => Err(ProbeError::NotApplicable("the run was too short to watch its threads")),
        }
    }
}

impl Track {
    fn thread(&self) -> ThreadUsage {
        let Self { first, last } = self;
        let ticks = last.cpu.saturating_sub(first.cpu);
        let sched = last.counted().zip(first.sched);
        ThreadUsage {
            name: last.name.clone(),
            span: last.at.saturating_sub(first.at),
            on_cpu_time: sched
                .map_or(ticks, |(last, first)| last.on_cpu_time.saturating_sub(first.on_cpu_time)),
            waited: sched.map(|(last, first)| last.waited.saturating_sub(first.waited)),
        }
    }
}

impl Sample {
    /// Returns the scheduling statistics, if the kernel counts them. A kernel without `CONFIG_SCHED_INFO` may have the file with
    /// zeros.
    fn counted(&self) -> Option<SchedStat> {
        self.sched.filter(|sched| !sched.on_cpu_time.is_zero() || self.cpu.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_reader::fake::Texts;

    const SECOND: Duration = Duration::from_secs(1);

    fn thread(texts: &Texts, id: &str, name: &str, ticks: u32, sched: Option<&str>) {
        let stat = format!("{id} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 3 0 692290");
        texts.set(&format!("{TASKS}/{id}/stat"), &stat);
        if let Some(sched) = sched {
            texts.set(&format!("{TASKS}/{id}/schedstat"), sched);
        }
    }

    #[test]
    fn a_thread_that_has_ended_counts_until_its_last_sample() {
        let texts = Texts::default();
        let mut threads = ThreadTracker::named("sender ");
        thread(&texts, "7", "seawall", 0, Some("1000000 0 1"));
        threads.sample(&texts, SECOND);
        thread(&texts, "7", "sender 0", 150, Some("1501000000 300000000 9"));
        thread(&texts, "8", "results", 100, Some("1000000000 0 9"));
        threads.sample(&texts, SECOND * 3);
        texts.remove("/proc/self/task/7/stat");
        threads.sample(&texts, SECOND * 9);
        let expected = ThreadUsage {
            name: "sender 0".into(),
            span: SECOND * 2,
            on_cpu_time: Duration::from_millis(1500),
            waited: Some(Duration::from_millis(300)),
        };
        assert_eq!(threads.usage(), Ok(vec![expected]));
    }

    #[test]
    fn ticks_stand_in_where_the_kernel_counts_no_queue() {
        for sched in [None, Some("0 0 0")] {
            let texts = Texts::default();
            let mut threads = ThreadTracker::named("sender ");
            thread(&texts, "7", "sender 0", 5, sched);
            threads.sample(&texts, SECOND);
            thread(&texts, "7", "sender 0", 55, sched);
            threads.sample(&texts, SECOND * 2);
            let seen = threads.usage().unwrap();
            assert_eq!((seen[0].on_cpu_time, seen[0].waited), (SECOND / 2, None));
        }
    }

    #[test]
    fn nothing_is_said_of_a_run_that_was_seen_once() {
        let texts = Texts::default();
        let mut threads = ThreadTracker::named("sender ");
        threads.sample(&texts, SECOND);
        assert_eq!(threads.usage(), Err(ProbeError::Missing(TASKS.into())));
        thread(&texts, "7", "sender 0", 5, None);
        let mut threads = ThreadTracker::named("sender ");
        threads.sample(&texts, SECOND);
        assert!(matches!(threads.usage(), Err(ProbeError::NotApplicable(_))));
    }
}
