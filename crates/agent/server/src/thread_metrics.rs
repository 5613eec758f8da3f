//! Defines the counters of the traffic threads. The admin port exports these counters to Prometheus.
//!
//! Each traffic thread owns one [`ThreadMetrics`] and updates its counters with relaxed atomics. Therefore the metrics of a request
//! need no lock, no allocation and no formatting. Label values come from fixed sets ([`MetadataRoute`], [`STATUS_CLASS_LABELS`]),
//! never from a path, an address or a name that a pod chose. If pods could choose label values, a pod could fill the memory with
//! them. The histogram of the Prometheus library takes a lock per observation. Therefore the latency buckets are plain counters,
//! and the admin port turns them into a histogram at each scrape.

use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::route;
use super::route::MetadataRoute;
use super::tcp_info;

/// The status classes that the metrics distinguish.
pub const STATUS_CLASS_LABELS: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Returns the class of a status as an index into [`STATUS_CLASS_LABELS`].
fn class(status: u16) -> usize {
    usize::from(status / 100).clamp(2, 5) - 2
}

/// The upper bounds of the latency buckets, in microseconds.
/// An answer from memory takes tens of microseconds. An upstream call can take up to five seconds.
pub const LATENCY_BOUNDS_MICROS: [u64; 16] = [
    25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
    2_500_000, 10_000_000,
];

/// The upper bounds of the buckets of [`ThreadMetrics::accept_wait_buckets`], in milliseconds.
/// The kernel measures this wait in milliseconds.
pub const ACCEPT_WAIT_BOUNDS_MILLIS: [u64; 9] = [1, 5, 10, 25, 50, 100, 250, 500, 1_000];

/// Adds `more` to a counter that only the calling thread writes.
/// With one writer, a load and a store are enough. An atomic addition would cost twenty times as much.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// Counts connections that were accepted, refused or ended early.
#[derive(Debug, Default)]
pub struct ConnectionMetrics {
    /// The number of accepted connections.
    pub accepted: AtomicU64,
    /// The number of connections that the agent refused because their pod was deleted.
    pub rejected_pod_deleted: AtomicU64,
    /// The number of connections that ended after one answer because their client had reached its share of connections.
    pub guest_connections: AtomicU64,
    /// The number of idle connections that the agent ended because memory or file descriptors were short.
    pub evicted_idle: AtomicU64,
    /// The number of ended connections that were reset because their clients had not acknowledged the last bytes.
    pub reset_unacknowledged: AtomicU64,
    /// The number of connections that the agent ended because they were too slow or were idle for too long.
    pub timed_out: AtomicU64,
    /// The number of connections that the agent ended because their pod was deleted or lost an attested address.
    pub closed_pod_deleted: AtomicU64,
    /// The number of failed `accept` calls.
    pub accept_errors: AtomicU64,
}

/// The counters of one traffic thread.
#[derive(Debug, Default)]
pub struct ThreadMetrics {
    /// The number of requests by route and status class. A linear search of this short list costs less than a hash lookup.
    pub requests: Box<[(&'static MetadataRoute, [AtomicU64; STATUS_CLASS_LABELS.len()])]>,
    /// The number of answers with a cached credential.
    pub cache_hits: AtomicU64,
    /// The numbers of requests that had to wait for the client's identity.
    /// The first counter counts requests whose client became known. The second counter counts all other requests.
    pub identity_waits_by_outcome: [AtomicU64; 2],
    /// The numbers of answers, grouped by latency. There is one bucket per bound in [`LATENCY_BOUNDS_MICROS`], and one bucket for
    /// slower answers.
    pub latency_buckets: [AtomicU64; LATENCY_BOUNDS_MICROS.len() + 1],
    /// The sum of the latencies of all answers, in microseconds.
    pub total_latency_micros: AtomicU64,
    /// The numbers of sampled connections, grouped by the time that their first request waited in the backlog.
    /// There is one bucket per bound in [`ACCEPT_WAIT_BOUNDS_MILLIS`], and one bucket for longer waits.
    pub accept_wait_buckets: [AtomicU64; ACCEPT_WAIT_BOUNDS_MILLIS.len() + 1],
    /// The sum of the sampled waits in the backlog, in milliseconds.
    pub total_accept_wait_millis: AtomicU64,
    /// The counters of the thread's connections.
    pub connection_metrics: ConnectionMetrics,
}

impl ThreadMetrics {
    /// Returns counters for these routes, and also for the routes that belong to no cloud.
    pub fn new(routes: &[&'static MetadataRoute]) -> Self {
        let no_clouds = [&route::PROBE, &route::REFUSED, &route::REAL_SERVER];
        let all = routes.iter().copied().chain(no_clouds);
        Self { requests: all.map(|route| (route, Default::default())).collect(), ..Self::default() }
    }

    /// Counts one answer.
    pub fn record_response(&self, route: &'static MetadataRoute, status: u16, took: Duration) {
        let counted = self.requests.iter().find(|(known, _)| known.is_same(route));
        debug_assert!(counted.is_some(), "{route:?} is not in the list of routes");
        if let Some((_, classes)) = counted {
            add(&classes[class(status)], 1);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BOUNDS_MICROS
            .iter()
            .position(|bound| micros <= *bound)
            .unwrap_or(LATENCY_BOUNDS_MICROS.len());
        add(&self.latency_buckets[bucket], 1);
        add(&self.total_latency_micros, micros);
    }

    /// Records how long the first request of a newly accepted connection has waited in the backlog.
    pub(crate) fn record_accept_wait(&self, accepted: &TcpStream) {
        let Some(waited) = tcp_info::time_since_data(accepted) else { return };
        let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let bucket = ACCEPT_WAIT_BOUNDS_MILLIS.iter().position(|bound| millis <= *bound);
        add(&self.accept_wait_buckets[bucket.unwrap_or(ACCEPT_WAIT_BOUNDS_MILLIS.len())], 1);
        add(&self.total_accept_wait_millis, millis);
    }

    /// Counts a request whose client became known while the request waited for identity.
    pub fn record_identified_wait(&self) {
        add(&self.identity_waits_by_outcome[0], 1);
    }

    /// Counts a request whose client stayed unknown: the wait timed out, or too many requests were already waiting.
    pub fn record_unidentified_wait(&self) {
        add(&self.identity_waits_by_outcome[1], 1);
    }

    /// Counts an answer with a cached credential.
    pub fn record_cache_hit(&self) {
        add(&self.cache_hits, 1);
    }
}
