//! The only module that asks the system for the time.
//!
//! Everything that waits or compares instants takes a [`Clock`]. Tests take a manual one, move it by hand,
//! and a day passes in a second. The system clock is `CLOCK_BOOTTIME` (Linux `clock_gettime(2)`): it counts
//! the time a machine was suspended, so a lease that expired in a paused virtual machine is expired.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Add;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

/// A point on the monotonic clock, nanosecond resolution. Comparable only within one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// A moment from nanoseconds since the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to here; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment moved back, not before the clock's origin.
    pub fn before(self, span: Duration) -> Self {
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

/// Tells the time and wakes sleepers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(ManualClock),
}

/// Sleeping is cut into pieces of this length, because the runtime's timer stands still while the machine is
/// suspended and [`Clock::now`] does not.
const LONGEST_NAP: Duration = Duration::from_secs(20);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that moves only by [`ManualClock::advance`].
    pub fn manual() -> (Self, ManualClock) {
        let hand = ManualClock::default();
        (Self(Source::Manual(hand.clone())), hand)
    }

    /// Now, on the monotonic clock.
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::System => system_now(),
            Source::Manual(hand) => hand.now(),
        }
    }

    /// Now, as people and clouds write it. For comparing with instants that a cloud stated, nothing else.
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            #[expect(clippy::disallowed_methods, reason = "the one place that may ask")]
            Source::System => SystemTime::now(),
            Source::Manual(hand) => SystemTime::UNIX_EPOCH + MANUAL_EPOCH + hand.now().since(Moment(0)),
        }
    }

    /// Returns once `deadline` has been reached on this clock.
    pub async fn sleep_until(&self, deadline: Moment) {
        match &self.0 {
            Source::System => loop {
                let left = deadline.since(system_now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LONGEST_NAP)).await;
            },
            Source::Manual(hand) => hand.sleep_until(deadline).await,
        }
    }

    /// Returns after `span` on this clock.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now() + span).await;
    }
}

fn system_now() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Moment(seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0)))
}

/// The CPU time that all threads of this process have used so far (`clock_gettime(2)`).
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Where a manual clock's wall time starts: 2026-01-01T00:00:00Z.
const MANUAL_EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// The hand of a manual clock.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Mutex<Manual>>);

#[derive(Debug, Default)]
struct Manual {
    now: u64,
    sleepers: BinaryHeap<Reverse<Sleeper>>,
}

#[derive(Debug)]
struct Sleeper {
    at: u64,
    wake: oneshot::Sender<()>,
}

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Sleeper {}
impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl ManualClock {
    /// Moves the clock and wakes everyone whose deadline has come.
    pub fn advance(&self, span: Duration) {
        let mut manual = self.lock();
        manual.now = manual.now.saturating_add(nanos(span));
        while manual.sleepers.peek().is_some_and(|next| next.0.at <= manual.now) {
            if let Some(Reverse(sleeper)) = manual.sleepers.pop() {
                // A sleeper that went away is not an error.
                let _ = sleeper.wake.send(());
            }
        }
    }

    /// When the next sleeper wants to wake, if anyone sleeps.
    pub fn next_deadline(&self) -> Option<Moment> {
        let mut manual = self.lock();
        while manual.sleepers.peek().is_some_and(|next| next.0.wake.is_closed()) {
            manual.sleepers.pop();
        }
        manual.sleepers.peek().map(|next| Moment(next.0.at))
    }

    fn now(&self) -> Moment {
        Moment(self.lock().now)
    }

    async fn sleep_until(&self, deadline: Moment) {
        let woken = {
            let mut manual = self.lock();
            if deadline.0 <= manual.now {
                return;
            }
            let (wake, woken) = oneshot::channel();
            manual.sleepers.push(Reverse(Sleeper { at: deadline.0, wake }));
            woken
        };
        // The sender lives in this clock, which outlives the call; a closed channel would be a lost clock.
        let _ = woken.await;
    }

    /// A lock, because a test's thread and the sleeper's thread both write; never held across an await.
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
        assert_eq!(Moment(5).before(Duration::from_secs(1)), Moment(0));
        assert_eq!(Moment(5).since(Moment(9)), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_manual_clock_wakes_exactly_those_whose_time_has_come() {
        let (clock, hand) = Clock::manual();
        let early = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(Duration::from_secs(1)).await }
        });
        let late = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(Duration::from_secs(86_400)).await }
        });
        while hand.lock().sleepers.len() < 2 {
            tokio::task::yield_now().await;
        }
        hand.advance(Duration::from_secs(1));
        early.await.unwrap();
        assert!(!late.is_finished());
        hand.advance(Duration::from_secs(86_399));
        late.await.unwrap();
    }
}
