//! The counters of a broker. The counters are atomics. Every thread writes them, and each scrape reads them.

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
    /// The least remaining lifetime in nanoseconds. The value is `u64::MAX` until the first response.
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
    pub(crate) fn record_succeeded(&self, is_renewal: bool) {
        let counter = if is_renewal { &self.renewals } else { &self.initial };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_failed(&self, fault: ExchangeFault) {
        self.failures[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Records the remaining lifetime of a lease that a response contains.
    /// This function runs for each response, and all traffic threads share the counters. To avoid contention, the function writes
    /// only if the minimum falls or if the lifetime is below the floor.
    pub(crate) fn record_response(&self, remaining: Duration, floor: Duration) {
        let nanos = u64::try_from(remaining.as_nanos()).unwrap_or(u64::MAX);
        if nanos < self.least_remaining.load(Ordering::Relaxed) {
            self.least_remaining.fetch_min(nanos, Ordering::Relaxed);
        }
        if remaining < floor {
            self.responses_below_floor.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn record_coalesced(&self) {
        self.coalesced.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_issued_below_twice_floor(&self) {
        self.issued_below_floor.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_lifetime_reduced(&self) {
        self.lifetime_reductions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_refused_by_own_limit(&self) {
        self.rate_limited.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of fetches for each result.
    /// A success counts as `renewal` if a valid lease was cached, and otherwise as `initial`. A failure counts under the name of
    /// its fault.
    pub fn fetches_by_result(&self) -> Vec<(&'static str, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut rows = vec![("initial", read(&self.initial)), ("renewal", read(&self.renewals))];
        rows.extend(
            ExchangeFault::ALL.iter().map(|fault| (fault.name(), read(&self.failures[*fault as usize]))),
        );
        rows
    }

    /// Returns the number of requests that joined a call in flight instead of starting a new call.
    pub fn coalesced_total(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    /// Returns the number of credentials that the broker evicted because a pod requested too many different credentials.
    pub fn evicted_total(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns the number of requests for new credentials that the broker refused because of a pod's rate limit or queue limit.
    pub fn refused_by_pod_limit_total(&self) -> u64 {
        self.rate_limited.load(Ordering::Relaxed)
    }

    /// Returns the least remaining lifetime in any response since the start, or `None` before the first response.
    pub fn min_response_lifetime(&self) -> Option<Duration> {
        let nanos = self.least_remaining.load(Ordering::Relaxed);
        (nanos != u64::MAX).then(|| Duration::from_nanos(nanos))
    }

    /// Returns the number of responses with a remaining lifetime below the floor.
    /// The cause is either a long outage of the cloud, or a cloud that issues credentials with a lifetime below twice the floor.
    pub fn responses_below_floor_total(&self) -> u64 {
        self.responses_below_floor.load(Ordering::Relaxed)
    }

    /// Returns the number of times that a cloud refused a requested lifetime and then granted a shorter lifetime.
    pub fn lifetime_reductions_total(&self) -> u64 {
        self.lifetime_reductions.load(Ordering::Relaxed)
    }

    /// Returns the number of issued credentials whose lifetime was below twice the floor. Renewal cannot keep such credentials
    /// above the floor.
    pub fn issued_below_twice_floor_total(&self) -> u64 {
        self.issued_below_floor.load(Ordering::Relaxed)
    }
}
