//! Writes the state of the cluster watches as Prometheus metrics.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use seawall_cluster::ClusterClient;

use super::write::{write_counter_family, write_gauge};

/// Writes the cluster metrics.
///
/// # Errors
/// The encoder fails.
pub fn write(cluster: &ClusterClient, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (pods, health) = (cluster.pods(), cluster.health_per_watch());
    write_gauge(out, "seawall_pods", "Live pods of this node", pods.snapshot().pods().len() as f64)?;
    if let Some(age) = pods.time_since_last_message() {
        let help = "Seconds since the API server last sent anything about this node's pods";
        write_gauge(out, "seawall_cluster_staleness_seconds", help, age.as_secs_f64())?;
    }
    let failures = health.iter().map(|watch| ([("watch", watch.kind)], watch.failure_count));
    write_counter_family(out, "seawall_watch_failures", "Failures of a watch", failures)?;
    let lists = health.iter().map(|watch| ([("watch", watch.kind)], watch.start_count));
    write_counter_family(
        out,
        "seawall_watch_relists",
        "Number of times that a watch had to list all objects again",
        lists,
    )?;
    let (posted, dropped) = cluster.event_reporter().posted_and_dropped_counts();
    let events = [([("outcome", "posted")], posted), ([("outcome", "dropped")], dropped)];
    write_counter_family(
        out,
        "seawall_kubernetes_events",
        "Kubernetes events that the agent wrote, by outcome",
        events,
    )
}
