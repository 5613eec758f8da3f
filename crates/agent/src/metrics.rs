//! What the agent counts, and how it is written for Prometheus.
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
use seawall_broker::google::{Broker, WantRef};
use seawall_cluster::Cluster;
use seawall_core::Clock;

use crate::connections::Cap;
use crate::identity::Who;
use crate::log::Log;

/// What was asked, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Route {
    /// An access token.
    Token,
    /// An identity token.
    Identity,
    /// Anything else of the metadata tree.
    Tree,
    /// A request passed on to the real metadata server.
    Forward,
    /// The agent's own readiness request.
    Probe,
    /// Refused before it was known what was asked.
    Refused,
}

impl Route {
    /// The route of a credential.
    pub(crate) fn of(want: WantRef<'_>) -> Self {
        match want {
            WantRef::AccessToken { .. } => Self::Token,
            WantRef::IdToken { .. } => Self::Identity,
        }
    }

    const ALL: [Self; 6] =
        [Self::Token, Self::Identity, Self::Tree, Self::Forward, Self::Probe, Self::Refused];

    fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Identity => "identity",
            Self::Tree => "tree",
            Self::Forward => "forward",
            Self::Probe => "probe",
            Self::Refused => "refused",
        }
    }
}

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
    requests: [[AtomicU64; CLASSES.len()]; Route::ALL.len()],
    warm: AtomicU64,
    held: [AtomicU64; 2],
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    total_micros: AtomicU64,
    pub(crate) connections: Connections,
}

impl Traffic {
    /// Counts one answer.
    pub(crate) fn answered(&self, route: Route, status: u16, took: Duration) {
        self.requests[route as usize][class(status)].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS_MICROS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.total_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts a request that waited until it was known who asks.
    pub(crate) fn held_and_settled(&self) {
        self.held[0].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that waited for that in vain.
    pub(crate) fn held_in_vain(&self) {
        self.held[1].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one credential that was answered from memory.
    pub(crate) fn warm(&self) {
        self.warm.fetch_add(1, Ordering::Relaxed);
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
        let help = "Requests answered, by what was asked and by class of status";
        let mut family = encoder.encode_descriptor("seawall_requests", help, None, MetricType::Counter)?;
        for route in Route::ALL {
            for (i, class) in CLASSES.iter().enumerate() {
                let labels = [("route", route.name()), ("status", class)];
                let count = sum(&self.threads, |t| &t.requests[route as usize][i]);
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
            ("accepted", "Connections accepted", sum(all, |t| &t.connections.accepted)),
            ("refused_at_cap", "Connections refused because a cap was reached", {
                sum(all, |t| &t.connections.refused_at_cap)
            }),
            (
                "evicted_idle",
                "Idle connections closed to make room",
                sum(all, |t| &t.connections.evicted_idle),
            ),
            (
                "timed_out",
                "Connections closed for being too slow or idle",
                sum(all, |t| &t.connections.timed_out),
            ),
            (
                "ended_with_pod",
                "Connections closed because their pod was gone",
                sum(all, |t| &t.connections.ended_with_pod),
            ),
            ("accept_errors", "Failed accepts", sum(all, |t| &t.connections.accept_errors)),
        ];
        for (name, help, value) in rows {
            counter(encoder, &format!("seawall_connections_{name}"), help, value)?;
        }
        gauge(encoder, "seawall_connections_open", "Connections open", f64::from(self.open.open()))?;
        let help = "Requests that wait for a change";
        gauge(encoder, "seawall_long_polls_open", help, f64::from(self.long_polls.open()))
    }
}

/// Writes the broker's counters at each scrape.
#[derive(Debug)]
pub(crate) struct BrokerCollector {
    broker: Broker,
    clock: Clock,
}

impl BrokerCollector {
    /// Of this broker, whose leases live by `clock`.
    pub(crate) fn new(broker: Broker, clock: Clock) -> Self {
        Self { broker, clock }
    }
}

impl Collector for BrokerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let out = &mut encoder;
        let counters = self.broker.counters();
        let help = "Chains of upstream calls by what they came to";
        let mut family = out.encode_descriptor("seawall_upstream_calls", help, None, MetricType::Counter)?;
        for (outcome, count) in counters.calls() {
            ConstCounter::new(count).encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        counter(
            out,
            "seawall_coalesced",
            "Requests that shared another's upstream call",
            counters.coalesced_total(),
        )?;
        counter(
            out,
            "seawall_evicted",
            "Credentials dropped for a pod's newer ones",
            counters.evicted_total(),
        )?;
        counter(
            out,
            "seawall_misses_refused",
            "Misses refused, asked too fast",
            counters.misses_refused_total(),
        )?;
        let below = counters.below_floor_total();
        counter(out, "seawall_below_floor", "Credentials issued too short-lived for the floor", below)?;
        let breaches = counters.floor_breaches_total();
        counter(out, "seawall_floor_breaches", "Answers with less life than the floor", breaches)?;
        if let Some(least) = counters.least_remaining() {
            let help = "Least remaining life that any answer carried since the start";
            let mut family = out.encode_descriptor(
                "seawall_least_life_handed_out_seconds",
                help,
                None,
                MetricType::Gauge,
            )?;
            ConstGauge::new(least.as_secs_f64()).encode(family.encode_family(&[("cloud", "google")])?)?;
        }
        gauge(
            out,
            "seawall_upstream_rate",
            "Upstream chains that may start per second",
            self.broker.upstream_rate(),
        )?;
        self.leases(out)
    }
}

impl BrokerCollector {
    fn leases(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = self.clock.now();
        let principals = self.broker.principals();
        let lives: Vec<f64> =
            principals.iter().filter_map(|view| Some(view.remaining(now)?.as_secs_f64())).collect();
        gauge(out, "seawall_principals", "Principals in use", principals.len() as f64)?;
        gauge(out, "seawall_leases", "Credentials held", lives.len() as f64)?;
        let least = lives.into_iter().reduce(f64::min);
        let help = "Least remaining life of any credential held";
        // Nothing held has no least life; an absent sample says so, a zero would look like an expired one.
        least.map_or(Ok(()), |least| gauge(out, "seawall_least_remaining_life_seconds", help, least))
    }
}

/// Writes whether credentials can be kept above the floor.
#[derive(Debug)]
pub(crate) struct FloorCollector(pub(crate) Arc<Who>, pub(crate) Option<Broker>);

impl Collector for FloorCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(broker) = &self.1 else { return Ok(()) };
        let is_reachable = self.0.meets_the_floor() && broker.counters().below_floor_total() == 0;
        let help = "1 while configuration and upstream let credentials be kept above the floor";
        gauge(&mut encoder, "seawall_floor_reachable", help, f64::from(u8::from(is_reachable)))
    }
}

/// Writes what is known of the cluster at each scrape.
#[derive(Debug)]
pub(crate) struct ClusterCollector(pub(crate) Arc<Cluster>);

impl Collector for ClusterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let out = &mut encoder;
        let pods = self.0.pods();
        gauge(out, "seawall_pods", "Live pods of this node", pods.snapshot().pods().len() as f64)?;
        if let Some(age) = pods.staleness() {
            let help = "Seconds since the API server last said anything about this node's pods";
            gauge(out, "seawall_cluster_staleness_seconds", help, age.as_secs_f64())?;
        }
        let health = self.0.health();
        let help = "Failed tries of a watch";
        let mut family = out.encode_descriptor("seawall_watch_failures", help, None, MetricType::Counter)?;
        for watch in &health {
            ConstCounter::new(watch.failures).encode(family.encode_family(&[("watch", watch.kind)])?)?;
        }
        let help = "Times that a watch began anew with a list";
        let mut family = out.encode_descriptor("seawall_watch_lists", help, None, MetricType::Counter)?;
        for watch in &health {
            ConstCounter::new(watch.lists).encode(family.encode_family(&[("watch", watch.kind)])?)?;
        }
        let (posted, lost) = self.0.reporter().tally();
        let help = "Events about refused pods";
        let mut family = out.encode_descriptor("seawall_events", help, None, MetricType::Counter)?;
        for (outcome, count) in [("posted", posted), ("lost", lost)] {
            ConstCounter::new(count).encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        Ok(())
    }
}

/// Writes how much of the log was lost.
#[derive(Debug)]
pub(crate) struct LogCollector(pub(crate) Log);

impl Collector for LogCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Log lines that were dropped because nobody read the log";
        counter(&mut encoder, "seawall_log_lines_lost", help, self.0.lost())
    }
}

/// Writes one counter without labels.
fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), fmt::Error> {
    let metric = ConstCounter::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}

/// Writes one gauge without labels.
fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> Result<(), fmt::Error> {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn counts_become_prometheus_lines() {
        let (one, two) = (Arc::new(Traffic::default()), Arc::new(Traffic::default()));
        one.answered(Route::Token, 200, Duration::from_micros(30));
        two.answered(Route::Token, 200, Duration::from_secs(60));
        two.answered(Route::Refused, 403, Duration::from_micros(1));
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
            r#"seawall_requests_total{route="token",status="2xx"} 2"#,
            r#"seawall_requests_total{route="refused",status="4xx"} 1"#,
            r#"seawall_request_duration_seconds_bucket{le="0.00005"} 2"#,
            r#"seawall_request_duration_seconds_bucket{le="+Inf"} 3"#,
            "seawall_warm_answers_total 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
