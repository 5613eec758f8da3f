//! What is known of the cluster, as metrics.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use seawall_cluster::Cluster;

use super::write::gauge;

/// Writes what is known of the cluster at each scrape.
#[derive(Debug)]
pub struct ClusterCollector(pub Arc<Cluster>);

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
