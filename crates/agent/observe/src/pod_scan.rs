//! Looks at all pods now and then, on the control thread, and a gauge of those that were found at the last one, for each cloud.
//! What is looked for is the looker's (`excessive_fetch`, `stale_credentials`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use seawall_clouds::pod::PodCaller;
use seawall_core::Clock;
use seawall_core::cloud::CloudName;
use seawall_identity::resolver::Callers;

/// Who looks at all pods.
pub trait Looker {
    /// Between two looks.
    const EVERY: Duration;

    /// One look at all pods that there are.
    fn look_at_all(&mut self, pods: &[Arc<PodCaller>]);
}

/// Looks for ever.
pub async fn run<L: Looker>(mut looker: L, callers: Arc<Callers>, clock: Clock) {
    loop {
        clock.sleep(L::EVERY).await;
        looker.look_at_all(&callers.pods());
    }
}

/// How many pods were found at the last look, of each cloud.
#[derive(Debug, Default)]
pub struct Found([AtomicUsize; CloudName::ALL.len()]);

impl Found {
    /// So many now.
    pub fn set(&self, cloud: CloudName, pods: usize) {
        self.0[cloud as usize].store(pods, Ordering::Relaxed);
    }

    /// How many they are.
    pub fn of(&self, cloud: CloudName) -> usize {
        self.0[cloud as usize].load(Ordering::Relaxed)
    }
}

/// Writes what was found at each scrape.
#[derive(Debug)]
pub struct FoundCollector {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) found: Arc<Found>,
}

impl Collector for FoundCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(self.name, self.help, None, MetricType::Gauge)?;
        for cloud in CloudName::ALL {
            let found = i64::try_from(self.found.of(*cloud)).unwrap_or(i64::MAX);
            ConstGauge::new(found).encode(family.encode_family(&[("cloud", cloud.as_str())])?)?;
        }
        Ok(())
    }
}
