//! The counters of a broker. Plain atomics, written from every thread and read at each scrape.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::failure::ExchangeFault;

/// The counters of one cloud's calls and responses, for metrics.
#[derive(Debug)]
pub struct BrokerCounters {
    initial: AtomicU64,
    renewals: AtomicU64,
    failures: [AtomicU64; ExchangeFault::ALL.len()],
    coalesced: AtomicU64,
    evicted: AtomicU64,
    rate_limited: AtomicU64,
    issued_below_floor: AtomicU64,
    lifetime_reductions: AtomicU64,
    /// The least remaining life in nanoseconds; `u64::MAX` until the first response.
    least_remaining: AtomicU64,
    responses_below_floor: AtomicU64,
}

impl Default for BrokerCounters {
    fn default() -> Self {
        Self {
            initial: AtomicU64::default(),
            renewals: AtomicU64::default(),
            failures: Default::default(),
            coalesced: AtomicU64::default(),
            evicted: AtomicU64::default(),
            rate_limited: AtomicU64::default(),
            issued_below_floor: AtomicU64::default(),
            lifetime_reductions: AtomicU64::default(),
            least_remaining: AtomicU64::new(u64::MAX),
            responses_below_floor: AtomicU64::default(),
        }
    }
}

impl BrokerCounters {
    pub(crate) fn succeeded(&self, is_renewal: bool) {
        let counter = if is_renewal { &self.renewals } else { &self.initial };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, fault: ExchangeFault) {
        self.failures[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Records the life left in a response. Runs on every request: two loads, and a write only if the value changes, because the
    /// traffic threads share these words.
    pub(crate) fn handed_out(&self, remaining: Duration, floor: Duration) {
        let nanos = u64::try_from(remaining.as_nanos()).unwrap_or(u64::MAX);
        if nanos < self.least_remaining.load(Ordering::Relaxed) {
            self.least_remaining.fetch_min(nanos, Ordering::Relaxed);
        }
        if remaining < floor {
            self.responses_below_floor.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn coalesced(&self) {
        self.coalesced.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn issued_below_floor(&self) {
        self.issued_below_floor.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lifetime_reduced(&self) {
        self.lifetime_reductions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rate_limited(&self) {
        self.rate_limited.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of upstream call chains by result: `initial`, `renewal`, and each fault.
    pub fn calls(&self) -> Vec<(&'static str, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut rows = vec![("initial", read(&self.initial)), ("renewal", read(&self.renewals))];
        rows.extend(
            ExchangeFault::ALL.iter().map(|fault| (fault.name(), read(&self.failures[*fault as usize]))),
        );
        rows
    }

    /// The number of requests that joined a call in flight instead of starting one.
    pub fn coalesced_total(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    /// Credentials dropped because a pod asked for too many different ones.
    pub fn evicted_total(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Misses refused because a pod asked too fast, or has too many waiting.
    pub fn rate_limited_total(&self) -> u64 {
        self.rate_limited.load(Ordering::Relaxed)
    }

    /// The least remaining life of any response since the start.
    pub fn least_remaining(&self) -> Option<Duration> {
        let nanos = self.least_remaining.load(Ordering::Relaxed);
        (nanos != u64::MAX).then(|| Duration::from_nanos(nanos))
    }

    /// The number of responses with less life than the floor: an outage used up the margin, or the upstream's credentials are too
    /// short.
    pub fn responses_below_floor_total(&self) -> u64 {
        self.responses_below_floor.load(Ordering::Relaxed)
    }

    /// The number of principals found to be granted shorter lifetimes than requested.
    pub fn lifetime_reductions_total(&self) -> u64 {
        self.lifetime_reductions.load(Ordering::Relaxed)
    }

    /// The number of credentials issued with a lifetime under twice the floor.
    pub fn issued_below_floor_total(&self) -> u64 {
        self.issued_below_floor.load(Ordering::Relaxed)
    }
}
