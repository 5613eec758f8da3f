//! Writes Prometheus metrics at each scrape. Other crates count the values.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Creates a collector that calls `write` at each scrape.
pub fn collector_from_fn(
    write: impl Fn(&mut DescriptorEncoder<'_>) -> fmt::Result + Send + Sync + 'static,
) -> Box<dyn Collector> {
    Box::new(Scrape(write))
}

struct Scrape<F>(F);

impl<F> fmt::Debug for Scrape<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl<F: Fn(&mut DescriptorEncoder<'_>) -> fmt::Result + Send + Sync + 'static> Collector for Scrape<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)(&mut encoder)
    }
}

/// Writes a family of counters with one sample for each set of labels.
pub fn write_counter_family<L: EncodeLabelSet>(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
    let mut samples = samples.into_iter();
    samples.try_for_each(|(labels, count)| ConstCounter::new(count).encode(family.encode_family(&labels)?))
}

/// Writes a family of gauges with one sample for each set of labels. Without samples, the function writes nothing.
pub fn write_gauge_family<L: EncodeLabelSet>(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (L, f64)>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let mut family = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
    samples.try_for_each(|(labels, value)| ConstGauge::new(value).encode(family.encode_family(&labels)?))
}

/// Writes one counter without labels.
pub fn write_counter(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    ConstCounter::new(value).encode(out.encode_descriptor(name, help, None, MetricType::Counter)?)
}

/// Writes one gauge without labels.
pub fn write_gauge(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    ConstGauge::new(value).encode(out.encode_descriptor(name, help, None, MetricType::Gauge)?)
}
