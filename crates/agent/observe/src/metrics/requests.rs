//! What the traffic threads count, written for Prometheus at each scrape.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use seawall_server::connection_counter::Cap;
use seawall_server::thread_metrics::{BOUNDS_MICROS, CLASSES, Traffic};

use super::write::{counter, gauge};

/// Reads a counter of all threads together.
fn sum(threads: &[Arc<Traffic>], read: impl Fn(&Traffic) -> &AtomicU64) -> u64 {
    threads.iter().map(|thread| read(thread).load(Ordering::Relaxed)).sum()
}

/// Writes all threads' counters at each scrape.
#[derive(Debug)]
pub struct TrafficCollector {
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
    pub fn new(threads: Vec<Arc<Traffic>>, open: Arc<Cap>, long_polls: Arc<Cap>) -> Self {
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

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;
    use seawall_core::cloud::CloudName;
    use seawall_server::route::{self, Route};

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
