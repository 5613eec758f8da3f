//! What the traffic threads count, and how it is written for Prometheus. What others count is written beside them.
//!
//! Each traffic thread owns one [`Traffic`] and adds to it with relaxed atomics: no lock, no allocation, no
//! formatting on a request's way. Labels come from closed sets ([`Route`], [`CLASSES`]), never from a path, an address
//! or a name that a pod chose: an open set would be a memory leak that a pod can drive. The library's own histogram
//! takes a lock per observation, so the buckets here are plain counters that only the scrape turns into a histogram.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::connection_table::Cap;
use super::route;
use super::route::Route;

const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// The class of a status as an index into [`CLASSES`].
fn class(status: u16) -> usize {
    usize::from(status / 100).clamp(2, 5) - 2
}

/// Upper bounds of the latency buckets, in microseconds: a warm answer takes tens of them, an upstream call up
/// to five million.
const BOUNDS_MICROS: [u64; 16] = [
    25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
    2_500_000, 10_000_000,
];

/// Adds to a counter of which the caller's thread is the only writer: a read and a write, where an addition that others could
/// interrupt costs twenty times as much.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// Why connections ended early or never began.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused_at_cap: AtomicU64,
    pub(crate) evicted_idle: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) ended_with_pod: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
}

/// One traffic thread's counters.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// By route, and there by class of status. A handful, so that looking for one costs less than hashing it.
    requests: Box<[(&'static Route, [AtomicU64; CLASSES.len()])]>,
    warm: AtomicU64,
    held: [AtomicU64; 2],
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    total_micros: AtomicU64,
    pub(crate) connections: Connections,
}

impl Traffic {
    /// Counts answers of these routes, and of those that are no cloud's.
    pub(crate) fn new(routes: &[&'static Route]) -> Self {
        let no_clouds = [&route::PROBE, &route::REFUSED];
        let all = routes.iter().copied().chain(no_clouds);
        Self { requests: all.map(|route| (route, Default::default())).collect(), ..Self::default() }
    }

    /// Counts one answer.
    pub(crate) fn answered(&self, route: &'static Route, status: u16, took: Duration) {
        let counted = self.requests.iter().find(|(known, _)| known.is(route));
        debug_assert!(counted.is_some(), "{route:?} is in no room's list");
        if let Some((_, classes)) = counted {
            add(&classes[class(status)], 1);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS_MICROS.len());
        add(&self.buckets[bucket], 1);
        add(&self.total_micros, micros);
    }

    /// Counts a request that waited until it was known who asks.
    pub(crate) fn held_and_settled(&self) {
        add(&self.held[0], 1);
    }

    /// Counts a request that waited for that in vain.
    pub(crate) fn held_in_vain(&self) {
        add(&self.held[1], 1);
    }

    /// Counts one credential that was answered from memory.
    pub(crate) fn warm(&self) {
        add(&self.warm, 1);
    }
}

/// Reads a counter of all threads together.
fn sum(threads: &[Arc<Traffic>], read: impl Fn(&Traffic) -> &AtomicU64) -> u64 {
    threads.iter().map(|thread| read(thread).load(Ordering::Relaxed)).sum()
}

/// Writes all threads' counters at each scrape.
#[derive(Debug)]
pub(crate) struct TrafficCollector {
    threads: Vec<Arc<Traffic>>,
    open: Arc<Cap>,
    long_polls: Arc<Cap>,
}

impl Collector for TrafficCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.requests(&mut encoder)?;
        self.latency(&mut encoder)?;
        self.held(&mut encoder)?;
        let warm = sum(&self.threads, |t| &t.warm);
        counter(&mut encoder, "seawall_warm_answers", "Credentials answered from memory", warm)?;
        self.connections(&mut encoder)
    }
}

impl TrafficCollector {
    /// Of these threads, whose connections count against `open` and whose requests that wait for a change against
    /// `long_polls`.
    pub(crate) fn new(threads: Vec<Arc<Traffic>>, open: Arc<Cap>, long_polls: Arc<Cap>) -> Self {
        Self { threads, open, long_polls }
    }

    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Requests answered, by cloud, what was asked and class of status";
        let mut family = encoder.encode_descriptor("seawall_requests", help, None, MetricType::Counter)?;
        let routes = self.threads.first().map(|thread| &thread.requests[..]).unwrap_or_default();
        for (place, (route, _)) in routes.iter().enumerate() {
            for (i, class) in CLASSES.iter().enumerate() {
                let labels = [("cloud", route.cloud()), ("route", route.name()), ("status", class)];
                let count = sum(&self.threads, |t| &t.requests[place].1[i]);
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn held(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Requests that waited until it was known which pod asks, by whether that came to be known";
        let mut family =
            encoder.encode_descriptor("seawall_held_requests", help, None, MetricType::Counter)?;
        for (i, outcome) in ["known", "unknown"].into_iter().enumerate() {
            let count = sum(&self.threads, |t| &t.held[i]);
            ConstCounter::new(count).encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        Ok(())
    }

    fn latency(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut buckets = Vec::with_capacity(BOUNDS_MICROS.len() + 1);
        let bounds = BOUNDS_MICROS.iter().map(|micros| Duration::from_micros(*micros).as_secs_f64());
        for (i, bound) in bounds.chain([f64::INFINITY]).enumerate() {
            buckets.push((bound, sum(&self.threads, |t| &t.buckets[i])));
        }
        let count = buckets.iter().map(|(_, n)| n).sum();
        let total = Duration::from_micros(sum(&self.threads, |t| &t.total_micros)).as_secs_f64();
        let help = "Seconds from a request's last byte read to its answer's first byte written";
        let mut family = encoder.encode_descriptor(
            "seawall_request_duration_seconds",
            help,
            None,
            MetricType::Histogram,
        )?;
        family.encode_histogram::<NoLabelSet>(total, count, &buckets, None)
    }

    fn connections(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = &self.threads;
        let rows: [(&str, &str, u64); 6] = [
            ("seawall_connections_accepted", "Connections accepted", sum(all, |t| &t.connections.accepted)),
            ("seawall_connections_refused_at_cap", "Connections refused because a cap was reached", {
                sum(all, |t| &t.connections.refused_at_cap)
            }),
            (
                "seawall_connections_evicted_idle",
                "Idle connections closed to make room",
                sum(all, |t| &t.connections.evicted_idle),
            ),
            (
                "seawall_connections_timed_out",
                "Connections closed for being too slow or idle",
                sum(all, |t| &t.connections.timed_out),
            ),
            (
                "seawall_connections_ended_with_pod",
                "Connections closed because their pod was gone",
                sum(all, |t| &t.connections.ended_with_pod),
            ),
            (
                "seawall_connections_accept_errors",
                "Failed accepts",
                sum(all, |t| &t.connections.accept_errors),
            ),
        ];
        for (name, help, value) in rows {
            counter(encoder, name, help, value)?;
        }
        gauge(encoder, "seawall_connections_open", "Connections open", f64::from(self.open.open()))?;
        let help = "Requests that wait for a change";
        gauge(encoder, "seawall_long_polls_open", help, f64::from(self.long_polls.open()))
    }
}

/// Writes one counter without labels.
pub(crate) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), fmt::Error> {
    let metric = ConstCounter::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}

/// Writes one gauge without labels.
pub(crate) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
) -> Result<(), fmt::Error> {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;
    use seawall_core::cloud::CloudName;

    use super::*;

    static TOKEN: Route = Route::credential(CloudName::Google, "token");

    #[test]
    fn counts_become_prometheus_lines() {
        let [one, two] = [&TOKEN; 2].map(|route| Arc::new(Traffic::new(&[route])));
        one.answered(&TOKEN, 200, Duration::from_micros(30));
        two.answered(&TOKEN, 200, Duration::from_secs(60));
        two.answered(&route::REFUSED, 403, Duration::from_micros(1));
        two.warm();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(TrafficCollector::new(
            vec![one, two],
            Arc::default(),
            Arc::default(),
        )));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"seawall_requests_total{cloud="google",route="token",status="2xx"} 2"#,
            r#"seawall_requests_total{cloud="none",route="refused",status="4xx"} 1"#,
            r#"seawall_request_duration_seconds_bucket{le="0.00005"} 2"#,
            r#"seawall_request_duration_seconds_bucket{le="+Inf"} 3"#,
            "seawall_warm_answers_total 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
