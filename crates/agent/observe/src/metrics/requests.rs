//! Writes the traffic threads' counters as Prometheus metrics at each scrape.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use seawall_server::connection_permits::PermitCounter;
use seawall_server::thread_metrics::{
    ACCEPT_WAIT_BOUNDS_MILLIS, ConnectionMetrics, LATENCY_BOUNDS_MICROS, STATUS_CLASS_LABELS, ThreadMetrics,
};

use super::write::{write_counter, write_counter_family, write_gauge};

/// Sums one counter over all threads.
fn sum(threads: &[Arc<ThreadMetrics>], read: impl Fn(&ThreadMetrics) -> &AtomicU64) -> u64 {
    threads.iter().map(|thread| read(thread).load(Ordering::Relaxed)).sum()
}

/// The counters of all traffic threads.
#[derive(Debug)]
pub struct RequestMetrics {
    threads: Vec<Arc<ThreadMetrics>>,
    open: Arc<PermitCounter>,
    long_polls: Arc<PermitCounter>,
}

impl RequestMetrics {
    /// Creates the metrics of these threads.
    /// `open` counts the threads' connections; `long_polls` counts the threads' requests that wait for a change.
    pub fn new(
        threads: Vec<Arc<ThreadMetrics>>,
        open: Arc<PermitCounter>,
        long_polls: Arc<PermitCounter>,
    ) -> Self {
        Self { threads, open, long_polls }
    }

    /// Writes the request and connection metrics.
    ///
    /// # Errors
    /// The encoder fails.
    pub fn write(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all = &self.threads;
        let routes = all.first().map(|thread| &thread.requests[..]).unwrap_or_default();
        let requests = routes.iter().enumerate().flat_map(|(place, (route, _))| {
            STATUS_CLASS_LABELS.iter().enumerate().map(move |(i, class)| {
                let labels = [("cloud", route.cloud_label()), ("route", route.name()), ("status", *class)];
                (labels, sum(all, |t| &t.requests[place].1[i]))
            })
        });
        let help = "Answered requests, by cloud, route and status class";
        write_counter_family(out, "seawall_requests", help, requests)?;
        self.latency(out)?;
        let help = "Requests that waited for the identification of their pod, by outcome";
        let held = ["identified", "not_identified"].into_iter().enumerate();
        let held =
            held.map(|(i, outcome)| ([("outcome", outcome)], sum(all, |t| &t.identity_waits_by_outcome[i])));
        write_counter_family(out, "seawall_identity_waits", help, held)?;
        write_counter(
            out,
            "seawall_credential_cache_hits",
            "Credential responses from the cache",
            sum(all, |t| &t.cache_hits),
        )?;
        self.accept_wait(out)?;
        self.connections(out)
    }

    fn accept_wait(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let bounds =
            ACCEPT_WAIT_BOUNDS_MILLIS.iter().map(|millis| Duration::from_millis(*millis).as_secs_f64());
        let buckets: Vec<_> = bounds
            .chain([f64::INFINITY])
            .enumerate()
            .map(|(i, bound)| (bound, sum(&self.threads, |t| &t.accept_wait_buckets[i])))
            .collect();
        let count = buckets.iter().map(|(_, n)| n).sum();
        let total = Duration::from_millis(sum(&self.threads, |t| &t.total_accept_wait_millis)).as_secs_f64();
        let help = "Seconds that requests of new connections waited until the agent accepted the connection (measured for one connection in 16)";
        let mut family =
            encoder.encode_descriptor("seawall_accept_wait_seconds", help, None, MetricType::Histogram)?;
        family.encode_histogram::<NoLabelSet>(total, count, &buckets, None)
    }

    fn latency(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut buckets = Vec::with_capacity(LATENCY_BOUNDS_MICROS.len() + 1);
        let bounds = LATENCY_BOUNDS_MICROS.iter().map(|micros| Duration::from_micros(*micros).as_secs_f64());
        for (i, bound) in bounds.chain([f64::INFINITY]).enumerate() {
            buckets.push((bound, sum(&self.threads, |t| &t.latency_buckets[i])));
        }
        let count = buckets.iter().map(|(_, n)| n).sum();
        let total = Duration::from_micros(sum(&self.threads, |t| &t.total_latency_micros)).as_secs_f64();
        let help = "Seconds from the last byte of a request to the first byte of its response";
        let mut family = encoder.encode_descriptor(
            "seawall_request_duration_seconds",
            help,
            None,
            MetricType::Histogram,
        )?;
        family.encode_histogram::<NoLabelSet>(total, count, &buckets, None)
    }

    fn connections(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all = &self.threads;
        let count =
            |read: fn(&ConnectionMetrics) -> &AtomicU64| sum(all, |thread| read(&thread.connection_metrics));
        let rows = [
            ("seawall_connections_accepted", "Connections accepted", count(|counts| &counts.accepted)),
            (
                "seawall_connections_rejected",
                "Connections rejected because their pod was deleted",
                count(|c| &c.rejected_pod_deleted),
            ),
            (
                "seawall_connections_guests",
                "Connections closed after one response, because their client had reached its limit of connections",
                count(|counts| &counts.guest_connections),
            ),
            (
                "seawall_connections_reset_unacknowledged",
                "Connections that the agent had ended and then reset, because the client had not closed its side in time",
                count(|counts| &counts.reset_unacknowledged),
            ),
            (
                "seawall_connections_evicted_idle",
                "Idle connections closed because memory or file descriptors ran low",
                count(|counts| &counts.evicted_idle),
            ),
            (
                "seawall_connections_timed_out",
                "Connections closed because they were too slow or idle",
                count(|counts| &counts.timed_out),
            ),
            (
                "seawall_connections_closed_pod_deleted",
                "Connections closed because their pod was deleted",
                count(|c| &c.closed_pod_deleted),
            ),
            (
                "seawall_connections_accept_errors",
                "Failed attempts to accept a connection",
                count(|counts| &counts.accept_errors),
            ),
        ];
        for (name, help, value) in rows {
            write_counter(encoder, name, help, value)?;
        }
        write_gauge(
            encoder,
            "seawall_connections_open",
            "Connections open",
            f64::from(self.open.open_count()),
        )?;
        let help = "Requests that wait for a change (long polls)";
        write_gauge(encoder, "seawall_long_polls_open", help, f64::from(self.long_polls.open_count()))
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;
    use seawall_core::cloud::CloudName;
    use seawall_server::route::{self, MetadataRoute};

    use super::*;
    use crate::metrics::write::collector_from_fn;

    static TOKEN: MetadataRoute = MetadataRoute::with_credential(CloudName::Google, "token");

    #[test]
    fn counts_become_prometheus_lines() {
        let [one, two] = [&TOKEN; 2].map(|route| Arc::new(ThreadMetrics::new(&[route])));
        one.record_response(&TOKEN, 200, Duration::from_micros(30));
        two.record_response(&TOKEN, 200, Duration::from_secs(60));
        two.record_response(&route::REFUSED, 403, Duration::from_micros(1));
        two.record_cache_hit();
        let mut registry = Registry::default();
        let requests = RequestMetrics::new(vec![one, two], Arc::default(), Arc::default());
        registry.register_collector(collector_from_fn(move |out| requests.write(out)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"seawall_requests_total{cloud="google",route="token",status="2xx"} 2"#,
            r#"seawall_requests_total{cloud="none",route="refused",status="4xx"} 1"#,
            r#"seawall_request_duration_seconds_bucket{le="0.00005"} 2"#,
            r#"seawall_request_duration_seconds_bucket{le="+Inf"} 3"#,
            "seawall_credential_cache_hits_total 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
