//! The only module that reads the system's time.
//!
//! All code that waits or compares times takes a [`Clock`]. Tests use a manual clock and advance it, so a test can simulate a day
//! within a second. The system clock is `CLOCK_BOOTTIME` (Linux `clock_gettime(2)`), which also counts the time while the machine
//! is suspended. A lease that expires during a suspension therefore counts as expired.

use std::collections::BTreeMap;
use std::ops::Add;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, SystemTime};

#[cfg(feature = "sleep")]
mod sleep;

/// A point on the monotonic clock, in nanoseconds. Do not compare moments of different processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Returns the moment at this number of nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns this moment minus `span`, or the clock's origin if the result would precede it.
    pub fn saturating_sub_duration(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The source of the time. The clock also wakes sleeping tasks. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(ManualClock),
}

impl Clock {
    /// Returns the clock of this machine.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// Returns a clock that advances only by [`ManualClock::advance`].
    pub fn manual() -> (Self, ManualClock) {
        let hand = ManualClock::default();
        (Self(Source::Manual(hand.clone())), hand)
    }

    /// Returns the current moment on the monotonic clock.
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::System => system_now(),
            Source::Manual(hand) => hand.now(),
        }
    }

    /// Returns the wall time. Use it only for comparison with times that a cloud stated.
    pub fn wall_time(&self) -> SystemTime {
        match &self.0 {
            #[expect(clippy::disallowed_methods, reason = "the only place that reads the wall time")]
            Source::System => SystemTime::now(),
            Source::Manual(hand) => SystemTime::UNIX_EPOCH + MANUAL_EPOCH + hand.now().since(Moment(0)),
        }
    }
}

fn system_now() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Moment(seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0)))
}

/// Returns the CPU time that all threads of this process have used so far (`clock_gettime(2)`).
pub fn process_cpu_time() -> Duration {
    cpu_time(rustix::time::ClockId::ProcessCPUTime)
}

/// Returns the CPU time that the calling thread has used so far (`clock_gettime(2)`).
pub fn thread_cpu_time() -> Duration {
    cpu_time(rustix::time::ClockId::ThreadCPUTime)
}

fn cpu_time(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The wall time at which a manual clock starts: 2026-01-01T00:00:00Z.
const MANUAL_EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// The handle that advances a manual clock.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Mutex<Manual>>);

#[derive(Debug, Default)]
struct Manual {
    now: u64,
    /// The sleepers by deadline. The second number of the key distinguishes sleepers with the same deadline.
    sleepers: BTreeMap<(u64, u64), Waker>,
    /// The number of sleeps so far.
    #[cfg(feature = "sleep")]
    slept: u64,
}

impl ManualClock {
    /// Advances the clock and wakes every sleeper whose deadline has passed.
    pub fn advance(&self, span: Duration) {
        let mut manual = self.lock();
        manual.now = manual.now.saturating_add(nanos(span));
        let reached = (manual.now, u64::MAX);
        let later = manual.sleepers.split_off(&reached);
        let woken = std::mem::replace(&mut manual.sleepers, later);
        drop(manual);
        woken.into_values().for_each(Waker::wake);
    }

    /// Returns the earliest deadline of all sleepers, or `None` without sleepers.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.lock().sleepers.keys().next().map(|&(at, _)| Moment(at))
    }

    fn now(&self) -> Moment {
        Moment(self.lock().now)
    }

    /// Locks the state, because the thread of the test and the threads of sleepers write it. No code holds the lock across an
    /// await.
    fn lock(&self) -> MutexGuard<'_, Manual> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_clock_never_goes_back() {
        let clock = Clock::system();
        let first = clock.now();
        assert!(clock.now() >= first);
    }

    #[test]
    fn a_moment_is_never_before_the_origin() {
        assert_eq!(Moment(5).saturating_sub_duration(Duration::from_secs(1)), Moment(0));
        assert_eq!(Moment(5).since(Moment(9)), Duration::ZERO);
    }
}
