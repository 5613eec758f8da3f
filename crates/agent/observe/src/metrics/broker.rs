//! What the clouds' brokers count, written for Prometheus at each scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use seawall_clouds::CloudsInForce;
use seawall_clouds::broker_stats::Figures;
use seawall_core::Clock;

/// Registers what the clouds in force count, those of each time. Counts go on from one configuration to the next.
pub fn register(clouds: &Arc<CloudsInForce>, registry: &mut Registry, clock: &Clock) {
    let (in_force, clock) = (clouds.clone(), clock.clone());
    let figures = move || in_force.now().brokers().map(|broker| broker.figures(&clock)).collect();
    registry.register_collector(Box::new(BrokerCollector(Box::new(figures))));
    clouds.register(registry);
}

/// Writes the figures of all brokers: each family once, however many clouds there are.
struct BrokerCollector(Box<dyn Fn() -> Vec<Figures> + Send + Sync>);

impl fmt::Debug for BrokerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrokerCollector")
    }
}

impl Collector for BrokerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = (self.0)();
        let out = &mut encoder;
        calls(out, &all)?;
        counts(out, &all)?;
        gauges(out, "seawall_upstream_rate", "Upstream chains that may start per second", &all, |figures| {
            Some(figures.upstream_rate)
        })?;
        gauges(out, "seawall_principals", "Principals in use", &all, |figures| {
            Some(figures.principals as f64)
        })?;
        gauges(out, "seawall_leases", "Credentials held", &all, |figures| Some(figures.lives.len() as f64))?;
        // Nothing held has no least life; an absent sample says so, a zero would look like an expired one.
        let help = "Least remaining life of any credential held";
        gauges(out, "seawall_least_remaining_life_seconds", help, &all, |figures| {
            figures.lives.iter().copied().reduce(f64::min)
        })?;
        let help = "Least remaining life that any answer carried since the start";
        gauges(out, "seawall_least_life_handed_out_seconds", help, &all, |figures| figures.least_handed_out)
    }
}

fn calls(out: &mut DescriptorEncoder<'_>, all: &[Figures]) -> Result<(), fmt::Error> {
    let help = "Chains of upstream calls by what they came to";
    let mut family = out.encode_descriptor("seawall_upstream_calls", help, None, MetricType::Counter)?;
    for figures in all {
        for (outcome, count) in &figures.calls {
            let labels = [("cloud", figures.cloud), ("outcome", outcome)];
            ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn counts(out: &mut DescriptorEncoder<'_>, all: &[Figures]) -> Result<(), fmt::Error> {
    let Some(first) = all.first() else { return Ok(()) };
    for (place, (name, help, _)) in first.counts.iter().enumerate() {
        let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
        for figures in all {
            let (_, _, count) = figures.counts[place];
            ConstCounter::new(count).encode(family.encode_family(&[("cloud", figures.cloud)])?)?;
        }
    }
    Ok(())
}

fn gauges(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    all: &[Figures],
    read: impl Fn(&Figures) -> Option<f64>,
) -> Result<(), fmt::Error> {
    let samples: Vec<_> = all.iter().filter_map(|figures| Some((figures.cloud, read(figures)?))).collect();
    if samples.is_empty() {
        return Ok(());
    }
    let mut family = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (cloud, value) in samples {
        ConstGauge::new(value).encode(family.encode_family(&[("cloud", cloud)])?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use seawall_clouds::testing::{BOTH_BROKERED, World};

    use super::*;

    #[tokio::test]
    async fn each_family_of_figures_is_written_once_with_a_sample_of_each_cloud() {
        let mut registry = Registry::default();
        let world = World::of(BOTH_BROKERED);
        register(&world.in_force(), &mut registry, &world.clock);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let mut families: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let count = families.len();
        families.sort_unstable();
        families.dedup();
        assert!(count >= 9 && families.len() == count, "{text}");
        for sample in [r#"seawall_leases{cloud="google"} 0"#, r#"seawall_leases{cloud="aws"} 0"#] {
            assert!(text.contains(sample), "{text}");
        }
    }
}
