//! What the broker counts. Plain atomics, written from every thread and read at each scrape.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::exchange::Fault;
use crate::limiter::Lane;

/// What happened so far; read by metrics.
#[derive(Debug, Default)]
pub struct Counters {
    first: AtomicU64,
    renewals: AtomicU64,
    failures: [AtomicU64; Fault::ALL.len()],
    coalesced: AtomicU64,
    evicted: AtomicU64,
    misses_refused: AtomicU64,
    below_floor: AtomicU64,
}

impl Counters {
    pub(crate) fn succeeded(&self, lane: Lane) {
        let counter = match lane {
            Lane::First => &self.first,
            Lane::Renewal => &self.renewals,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, fault: Fault) {
        self.failures[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn coalesced(&self) {
        self.coalesced.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn below_floor(&self) {
        self.below_floor.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn misses_refused(&self) {
        self.misses_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Chains of upstream calls by what they came to: `first`, `renewal`, and each fault.
    pub fn calls(&self) -> Vec<(&'static str, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut rows = vec![("first", read(&self.first)), ("renewal", read(&self.renewals))];
        rows.extend(Fault::ALL.iter().map(|fault| (fault.name(), read(&self.failures[*fault as usize]))));
        rows
    }

    /// Requests that waited for a call which somebody else had started.
    pub fn coalesced_total(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    /// Credentials dropped because a pod asked for too many different ones.
    pub fn evicted_total(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Misses refused because a pod asked too fast.
    pub fn misses_refused_total(&self) -> u64 {
        self.misses_refused.load(Ordering::Relaxed)
    }

    /// Credentials issued with a life too short for the floor.
    pub fn below_floor_total(&self) -> u64 {
        self.below_floor.load(Ordering::Relaxed)
    }
}
