//! The engine's clock: nanoseconds since a session was opened or a trial began, and the matching time of the wall clock.
//!
//! Only this module of the crate reads the time. `core::Clock` is not used here because its instants survive a suspended machine
//! and go through an enum: a load generator reads the time some hundred thousand times per second and needs the bare vDSO call
//! (`CLOCK_MONOTONIC`, Linux `clock_gettime(2)`). Tests of schedules and rules pass plain numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds since the session was opened, or since the trial began.
pub type Nanos = u64;

/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// Converts a duration to nanoseconds; 584 years and more become the maximum.
#[must_use]
pub fn nanos(span: Duration) -> Nanos {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A clock that starts at zero. Copies show the same time.
#[derive(Debug, Clone, Copy)]
pub struct RunClock {
    monotonic_origin: u64,
    unix_origin: i64,
}

impl RunClock {
    /// Starts a clock that shows zero now.
    #[must_use]
    pub fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "reads the wall clock once, to date the results")]
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            monotonic_origin: monotonic(),
            unix_origin: i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX),
        }
    }

    /// Returns a clock that shows zero until this one shows `at`, and runs from then on.
    pub(crate) fn starting_at(&self, at: Nanos) -> Self {
        Self { monotonic_origin: self.monotonic_origin.saturating_add(at), unix_origin: self.unix_ns(at) }
    }

    /// Converts an instant of the wall clock, in nanoseconds since the Unix epoch, to this clock's time. Returns the difference
    /// as an error if the instant is before `soonest`.
    pub(crate) fn run_time_of_unix_ns(&self, unix_ns: i64, soonest: Nanos) -> Result<Nanos, Duration> {
        let before = self.unix_ns(soonest);
        match u64::try_from(unix_ns.saturating_sub(before)) {
            Ok(rest) => Ok(soonest.saturating_add(rest)),
            Err(_) => Err(Duration::from_nanos(before.abs_diff(unix_ns))),
        }
    }

    /// Returns the time since the start.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        monotonic().saturating_sub(self.monotonic_origin)
    }

    /// Returns the wall clock's time at `at`, in nanoseconds since the Unix epoch, without steps of the wall clock since the
    /// start.
    #[must_use]
    pub fn unix_ns(&self, at: Nanos) -> i64 {
        self.unix_origin.saturating_add(i64::try_from(at).unwrap_or(i64::MAX))
    }

    /// Converts a stamp of the wall clock to this clock's time. The function reads the wall clock for each stamp, so that earlier
    /// steps of that clock do not matter. A delay of this thread between its two readings makes the instant later, never earlier.
    pub(crate) fn run_time_of_kernel_stamp(&self, stamp: KernelReceiveWallTime) -> Option<Nanos> {
        let wall = clock_gettime(ClockId::Realtime);
        let now = self.now();
        now.checked_sub(KernelReceiveWallTime::new(wall.tv_sec, wall.tv_nsec)?.0.checked_sub(stamp.0)?)
    }

    /// Converts `at` to the kernel's monotonic clock, for timers.
    pub(crate) fn timespec(&self, at: Nanos) -> Timespec {
        let instant = self.monotonic_origin.saturating_add(at);
        let part = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        Timespec { tv_sec: part(instant / SECOND), tv_nsec: part(instant % SECOND) }
    }
}

/// The time when the kernel received some bytes: nanoseconds since the Unix epoch, by the wall clock, which the kernel uses for
/// stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelReceiveWallTime(pub(crate) u64);

impl KernelReceiveWallTime {
    /// Returns `None` for an instant before 1970.
    pub(crate) fn new(seconds: i64, nanos: i64) -> Option<Self> {
        let (seconds, nanos) = (u64::try_from(seconds).ok()?, u64::try_from(nanos).ok()?);
        Some(Self(seconds.checked_mul(SECOND)?.checked_add(nanos)?))
    }
}

#[inline]
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * SECOND + time.tv_nsec.unsigned_abs()
}
