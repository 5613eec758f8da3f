//! Writes the brokers' counters and gauges as Prometheus metrics at each scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use seawall_clouds::CurrentClouds;
use seawall_clouds::broker_stats::BrokerSnapshot;
use seawall_core::Clock;

use super::write::{collector_from_fn, write_counter_family, write_gauge_family};

/// Registers the metrics of the current clouds. The counters continue across configuration changes.
pub fn register(clouds: &Arc<CurrentClouds>, registry: &mut Registry, clock: &Clock) {
    let (in_force, clock) = (clouds.clone(), clock.clone());
    registry.register_collector(collector_from_fn(move |out| {
        let all: Vec<_> = in_force.current().brokers().map(|broker| broker.snapshot(&clock)).collect();
        write(&all, out)
    }));
    clouds.register_metrics(registry);
}

/// Writes the metrics of all brokers. Each metric family is written once for all clouds.
fn write(all: &[BrokerSnapshot], out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let calls = all.iter().flat_map(|figures| {
        figures
            .fetches_by_outcome
            .iter()
            .map(|(step, count)| ([("cloud", figures.cloud), ("outcome", *step)], *count))
    });
    let help = "Credential fetches by outcome; a fetch makes one or more upstream calls";
    write_counter_family(out, "seawall_credential_fetches", help, calls)?;
    for (place, (name, help, _)) in all.first().iter().flat_map(|first| first.counters.iter().enumerate()) {
        write_counter_family(
            out,
            name,
            help,
            all.iter().map(|figures| (of(figures), figures.counters[place].2)),
        )?;
    }
    let mut gauge = |name, help, read: fn(&BrokerSnapshot) -> Option<f64>| {
        write_gauge_family(
            out,
            name,
            help,
            all.iter().filter_map(|figures| Some((of(figures), read(figures)?))),
        )
    };
    gauge(
        "seawall_upstream_rate_limit_per_second",
        "Maximum number of credential fetches that start per second; a fetch makes one or more upstream calls",
        |figures| Some(figures.allowed_fetches_per_second),
    )?;
    gauge(
        "seawall_principals",
        "Different cloud identities whose credentials pods of this node use or request",
        |figures| Some(figures.principal_count as f64),
    )?;
    gauge("seawall_cached_credentials", "Credentials in the cache", |figures| {
        Some(figures.remaining_lifetimes_seconds.len() as f64)
    })?;
    // An empty cache has no shortest lifetime. The sample is then absent, because a zero would look like an expired credential.
    gauge(
        "seawall_credential_min_remaining_seconds",
        "Shortest remaining lifetime of a credential in the cache",
        |figures| figures.remaining_lifetimes_seconds.iter().copied().reduce(f64::min),
    )?;
    let help = "Shortest remaining lifetime of the credentials in any response since the start";
    gauge("seawall_response_min_remaining_seconds", help, |figures| figures.min_response_lifetime_seconds)
}

fn of(figures: &BrokerSnapshot) -> [(&'static str, &'static str); 1] {
    [("cloud", figures.cloud)]
}

#[cfg(test)]
mod tests {
    use seawall_clouds::testing::{BOTH_CLOUDS_BROKERED_CONFIG, PodFixture};

    use super::*;

    #[tokio::test]
    async fn each_family_of_figures_is_written_once_with_a_sample_of_each_cloud() {
        let mut registry = Registry::default();
        let world = PodFixture::with_sections(BOTH_CLOUDS_BROKERED_CONFIG);
        register(&world.new_current_clouds(), &mut registry, &world.clock);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let mut families: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let count = families.len();
        families.sort_unstable();
        families.dedup();
        assert!(count >= 9 && families.len() == count, "{text}");
        for sample in [
            r#"seawall_cached_credentials{cloud="google"} 0"#,
            r#"seawall_cached_credentials{cloud="aws"} 0"#,
        ] {
            assert!(text.contains(sample), "{text}");
        }
    }
}
