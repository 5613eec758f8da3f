//! One limit for everything that goes to a cloud.
//!
//! Chains of upstream calls start at most at a rate, which halves when the cloud throttles and grows by one with each
//! success: the rule that lets many senders share an unknown capacity (Chiu and Jain, 1989). First fetches and renewals
//! have lanes of their own, and renewals go half as fast and take half of the places, so that a pod that has nothing
//! yet never queues behind credentials that are still good.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall_core::{Clock, Moment};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Throttled to this rate at the lowest: a call every two seconds still finds out that the cloud is well again.
const LEAST_PER_SECOND: f64 = 0.5;

/// A burst of calls that are all throttled together is one sign, not many.
const ONE_SIGN: Duration = Duration::from_secs(1);

/// Why a chain of calls is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// A pod waits for it.
    First,
    /// It replaces a credential that is still good.
    Renewal,
}

#[derive(Debug)]
pub(crate) struct Limiter {
    clock: Clock,
    most_per_second: f64,
    pace: Mutex<Pace>,
    first: Arc<Semaphore>,
    renewal: Arc<Semaphore>,
}

#[derive(Debug)]
struct Pace {
    per_second: f64,
    next_first: Moment,
    next_renewal: Moment,
    halved: Option<Moment>,
}

impl Limiter {
    pub(crate) fn new(clock: Clock, per_second: f64, at_once: usize) -> Self {
        let start = Moment::from_nanos(0);
        Self {
            clock,
            most_per_second: per_second.max(LEAST_PER_SECOND),
            pace: Mutex::new(Pace {
                per_second: per_second.max(LEAST_PER_SECOND),
                next_first: start,
                next_renewal: start,
                halved: None,
            }),
            first: Arc::new(Semaphore::new(at_once.max(1))),
            renewal: Arc::new(Semaphore::new((at_once / 2).max(1))),
        }
    }

    /// Waits for the turn and a place; the place is given back when the permit is dropped.
    pub(crate) async fn turn(&self, lane: Lane) -> Option<OwnedSemaphorePermit> {
        let at = self.pace().reserve(lane, self.clock.now());
        self.clock.sleep_until(at).await;
        let places = match lane {
            Lane::First => &self.first,
            Lane::Renewal => &self.renewal,
        };
        // Never closed; without a permit the call would still be paced.
        places.clone().acquire_owned().await.ok()
    }

    /// The upstream answered.
    pub(crate) fn succeeded(&self) {
        let most = self.most_per_second;
        let mut pace = self.pace();
        pace.per_second = (pace.per_second + 1.0).min(most);
    }

    /// The upstream asked for less.
    pub(crate) fn throttled(&self) {
        let now = self.clock.now();
        let mut pace = self.pace();
        if pace.halved.is_none_or(|last| now.since(last) >= ONE_SIGN) {
            pace.per_second = (pace.per_second / 2.0).max(LEAST_PER_SECOND);
            pace.halved = Some(now);
        }
    }

    /// Chains that may start per second right now.
    pub(crate) fn per_second(&self) -> f64 {
        self.pace().per_second
    }

    /// A lock, because flights of all principals pace each other; held for a few instructions.
    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pace {
    fn reserve(&mut self, lane: Lane, now: Moment) -> Moment {
        let (next, share) = match lane {
            Lane::First => (&mut self.next_first, 1.0),
            Lane::Renewal => (&mut self.next_renewal, 0.5),
        };
        let at = now.max(*next);
        *next = at + Duration::from_secs_f64(1.0 / (self.per_second * share));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_once_per_sign_and_grows_with_success() {
        let (clock, hand) = Clock::manual();
        let limiter = Limiter::new(clock, 100.0, 4);
        for _ in 0..10 {
            limiter.throttled();
        }
        assert_eq!(limiter.per_second(), 50.0);
        hand.advance(ONE_SIGN);
        limiter.throttled();
        assert_eq!(limiter.per_second(), 25.0);
        for _ in 0..200 {
            limiter.succeeded();
        }
        assert_eq!(limiter.per_second(), 100.0);
        for _ in 0..40 {
            hand.advance(ONE_SIGN);
            limiter.throttled();
        }
        assert_eq!(limiter.per_second(), LEAST_PER_SECOND);
    }

    #[test]
    fn a_first_fetch_never_queues_behind_renewals() {
        let (clock, _hand) = Clock::manual();
        let limiter = Limiter::new(clock.clone(), 10.0, 4);
        let now = clock.now();
        for _ in 0..1000 {
            limiter.pace().reserve(Lane::Renewal, now);
        }
        assert_eq!(limiter.pace().reserve(Lane::First, now), now);
        assert_eq!(limiter.pace().reserve(Lane::First, now), now + Duration::from_millis(100));
    }
}
