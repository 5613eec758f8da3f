//! Records the failures and the age of each watch. The age is the time since the API server last sent anything on the watch.
//!
//! A watch writes these values; other threads read them. On a node without changes, a healthy watch receives a bookmark about
//! once a minute. So its age varies between 0 and a little over 60 s. A larger age means that the watch receives nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use seawall_core::Moment;

use crate::view_freshness::ViewFreshness;

/// The activity and the failures of one watch.
#[derive(Debug)]
pub(crate) struct WatchState {
    kind: &'static str,
    /// The time of the last activity, in nanoseconds since the machine's start; 0 means never.
    heard: AtomicU64,
    lists: AtomicU64,
    failures: AtomicU64,
    trouble: ArcSwapOption<String>,
    pub(crate) freshness: Arc<ViewFreshness>,
}

/// The health of one watch.
#[derive(Clone, Debug)]
pub struct WatchHealth {
    /// The kind of the watched objects, such as `pods`.
    pub kind: &'static str,
    /// The time since the last event, bookmark or list; `None` if none of these has arrived yet.
    pub time_since_activity: Option<Duration>,
    /// The number of times that the watch has started. The watch starts again when it has lost its position.
    pub start_count: u64,
    /// The number of failed attempts.
    pub failure_count: u64,
    /// The last failure; `None` while the watch works.
    pub current_failure: Option<Arc<String>>,
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

    /// Records that the API server sent something. Returns `true` if the watch was interrupted until now.
    pub(crate) fn record_activity(&self, now: Moment) -> bool {
        self.heard.store(now.as_nanos().max(1), Ordering::Relaxed);
        self.trouble.load().is_some() && self.trouble.swap(None).is_some()
    }

    /// Records that the watch starts with a new list or position.
    pub(crate) fn record_start(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a failed attempt. Returns `true` if the watch worked before this attempt.
    pub(crate) fn record_failure(&self, why: &impl ToString) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.trouble.swap(Some(Arc::new(why.to_string()))).is_none()
    }

    /// Returns the time since the last activity; `None` before the first activity.
    pub(crate) fn time_since_activity(&self, now: Moment) -> Option<Duration> {
        match self.heard.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(now.since(Moment::from_nanos(nanos))),
        }
    }

    pub(crate) fn health(&self, now: Moment) -> WatchHealth {
        WatchHealth {
            kind: self.kind,
            time_since_activity: self.time_since_activity(now),
            start_count: self.lists.load(Ordering::Relaxed),
            failure_count: self.failures.load(Ordering::Relaxed),
            current_failure: self.trouble.load_full(),
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
        assert_eq!(pulse.time_since_activity(clock.now()), None);
        hand.advance(Duration::from_secs(5));
        let _ = pulse.record_activity(clock.now());
        hand.advance(Duration::from_secs(7));
        assert_eq!(pulse.time_since_activity(clock.now()), Some(Duration::from_secs(7)));
    }

    #[test]
    fn trouble_ends_with_the_next_sign_and_is_counted() {
        let pulse = WatchState::new("pods");
        assert!(pulse.record_failure(&"connection refused"));
        assert!(!pulse.record_failure(&"connection refused"));
        let health = pulse.health(Moment::from_nanos(9));
        assert_eq!(health.current_failure.unwrap().as_str(), "connection refused");
        assert!(pulse.record_activity(Moment::from_nanos(9)));
        assert!(!pulse.record_activity(Moment::from_nanos(9)));
        let health = pulse.health(Moment::from_nanos(9));
        assert!(health.current_failure.is_none());
        assert_eq!(health.failure_count, 2);
    }
}
