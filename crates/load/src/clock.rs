//! The engine's clock: nanoseconds since the run began, and what the wall showed then.
//!
//! The one place in this crate that may ask for the time. `core::Clock` is not used here because its instants survive
//! a suspended machine and go through an enum: a load generator asks some hundred thousand times per second and wants
//! the bare vDSO call (`CLOCK_MONOTONIC`, Linux `clock_gettime(2)`). Tests of schedules and rules pass plain numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds since the run began.
pub type Nanos = u64;

/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// A duration as nanoseconds; 584 years and more are all the same.
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
    /// A clock that shows zero now.
    #[must_use]
    pub fn start() -> Self {
        Self::starting_in(Duration::ZERO)
    }

    /// A clock that shows zero until `delay` from now, and then goes.
    #[must_use]
    pub fn starting_in(delay: Duration) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the wall is read once, to date the results")]
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + delay;
        Self {
            monotonic_origin: monotonic() + nanos(delay),
            unix_origin: i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX),
        }
    }

    /// A clock that shows zero until this instant, in nanoseconds since the Unix epoch as the wall shows them now, and then
    /// goes; how late it is, if that was less than `notice` from now.
    pub(crate) fn starting_at(unix_ns: i64, notice: Duration) -> Result<Self, Duration> {
        let soonest = Self::starting_in(notice);
        let Ok(rest) = u64::try_from(unix_ns.saturating_sub(soonest.unix_origin)) else {
            return Err(Duration::from_nanos(soonest.unix_origin.abs_diff(unix_ns)));
        };
        let monotonic_origin = soonest.monotonic_origin.saturating_add(rest);
        Ok(Self { monotonic_origin, unix_origin: unix_ns })
    }

    /// Whether the start is still to come.
    pub(crate) fn is_before_start(&self) -> bool {
        monotonic() < self.monotonic_origin
    }

    /// Time since the start.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        monotonic().saturating_sub(self.monotonic_origin)
    }

    /// What the wall shows at `at`, in nanoseconds since the Unix epoch, steps of the wall clock since then ignored.
    #[must_use]
    pub fn unix_ns(&self, at: Nanos) -> i64 {
        self.unix_origin.saturating_add(i64::try_from(at).unwrap_or(i64::MAX))
    }

    /// `at` on the kernel's monotonic clock, for timers.
    pub(crate) fn timespec(&self, at: Nanos) -> Timespec {
        let instant = self.monotonic_origin.saturating_add(at);
        let part = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        Timespec { tv_sec: part(instant / SECOND), tv_nsec: part(instant % SECOND) }
    }
}

#[inline]
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * SECOND + time.tv_nsec.unsigned_abs()
}
