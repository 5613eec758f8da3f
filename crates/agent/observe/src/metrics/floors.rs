//! Whether each cloud's credentials can be kept above their floor, as a metric.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use seawall_identity::strategy::Who;

/// Writes whether credentials can be kept above the floor.
#[derive(Debug)]
pub struct FloorCollector(pub Arc<Who>);

impl Collector for FloorCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let floors = self.0.floors();
        if floors.is_empty() {
            return Ok(());
        }
        let help = "1 while configuration and upstream let credentials be kept above the floor";
        let mut family =
            encoder.encode_descriptor("seawall_floor_reachable", help, None, MetricType::Gauge)?;
        for (state, can_be_kept) in floors {
            let is_reachable = f64::from(u8::from(state.is_kept && can_be_kept));
            let labels = [("cloud", state.cloud.as_str())];
            ConstGauge::new(is_reachable).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
