//! How old is what we know? Measured, for each watch: the time since the API server last said anything on it.
//!
//! Written by a watch, read by everybody. A healthy watch of a quiet node is heard about once a minute (bookmarks), so
//! its age swings between 0 and a little over 60 s; more than that is trouble.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use seawall_core::Moment;

use crate::view_freshness::ViewFreshness;

/// The life signs of one watch.
#[derive(Debug)]
pub(crate) struct WatchState {
    kind: &'static str,
    /// Nanoseconds of the last sign; 0 is never (the clock's origin is the machine's start).
    heard: AtomicU64,
    lists: AtomicU64,
    failures: AtomicU64,
    trouble: ArcSwapOption<String>,
    pub(crate) freshness: Arc<ViewFreshness>,
}

/// How one watch is doing.
#[derive(Clone, Debug)]
pub struct WatchHealth {
    /// What is watched.
    pub kind: &'static str,
    /// Time since the last event, bookmark or list; `None` before the first.
    pub age: Option<Duration>,
    /// How often the watch had to begin anew, the first time included. Grows when positions expire.
    pub lists: u64,
    /// How many tries have failed.
    pub failures: u64,
    /// Why it is not running at this moment, if it is not.
    pub trouble: Option<Arc<String>>,
}

impl WatchState {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self {
            kind,
            heard: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            trouble: ArcSwapOption::empty(),
            freshness: Arc::default(),
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// The API server said something. Returns whether that ends a trouble.
    pub(crate) fn record_activity(&self, now: Moment) -> bool {
        self.heard.store(now.as_nanos().max(1), Ordering::Relaxed);
        self.trouble.load().is_some() && self.trouble.swap(None).is_some()
    }

    /// The watch begins anew.
    pub(crate) fn record_list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    /// A try failed. Returns whether that begins a trouble.
    pub(crate) fn record_failure(&self, why: &impl ToString) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.trouble.swap(Some(Arc::new(why.to_string()))).is_none()
    }

    /// Time since the last sign of life.
    pub(crate) fn age(&self, now: Moment) -> Option<Duration> {
        match self.heard.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(now.since(Moment::from_nanos(nanos))),
        }
    }

    pub(crate) fn health(&self, now: Moment) -> WatchHealth {
        WatchHealth {
            kind: self.kind,
            age: self.age(now),
            lists: self.lists.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            trouble: self.trouble.load_full(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_core::Clock;

    #[test]
    fn age_is_measured_from_the_last_sign_and_unknown_before_the_first() {
        let (clock, hand) = Clock::manual();
        let pulse = WatchState::new("pods");
        assert_eq!(pulse.age(clock.now()), None);
        hand.advance(Duration::from_secs(5));
        let _ = pulse.record_activity(clock.now());
        hand.advance(Duration::from_secs(7));
        assert_eq!(pulse.age(clock.now()), Some(Duration::from_secs(7)));
    }

    #[test]
    fn trouble_ends_with_the_next_sign_and_is_counted() {
        let pulse = WatchState::new("pods");
        assert!(pulse.record_failure(&"connection refused"));
        assert!(!pulse.record_failure(&"connection refused"));
        let health = pulse.health(Moment::from_nanos(9));
        assert_eq!(health.trouble.unwrap().as_str(), "connection refused");
        assert!(pulse.record_activity(Moment::from_nanos(9)));
        assert!(!pulse.record_activity(Moment::from_nanos(9)));
        let health = pulse.health(Moment::from_nanos(9));
        assert!(health.trouble.is_none());
        assert_eq!(health.failures, 2);
    }
}
