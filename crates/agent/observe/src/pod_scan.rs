//! Looks at all pods now and then, on the control thread, and a gauge of those that were found at the last one, for each cloud.
//! What is looked for is the looker's (`excessive_fetch`, `stale_credentials`).

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use seawall_clouds::pod::PodEntry;
use seawall_core::Clock;
use seawall_core::cloud::CloudName;
use seawall_identity::pod_resolver::PodResolver;

/// Who looks at all pods.
pub trait PodScanner {
    /// Between two looks.
    const INTERVAL: Duration;

    /// One look at all pods that there are.
    fn scan(&mut self, pods: &[Arc<PodEntry>]);
}

/// Looks for ever.
pub async fn run<L: PodScanner>(mut looker: L, callers: Arc<PodResolver>, clock: Clock) {
    loop {
        clock.sleep(L::INTERVAL).await;
        looker.scan(&callers.pods());
    }
}

/// How many pods were found at the last look, of each cloud: a gauge.
#[derive(Clone, Debug, Default)]
pub struct PodCountGauge(Family<[(&'static str, &'static str); 1], Gauge>);

impl PodCountGauge {
    /// None yet, shown under a name.
    pub fn registered(registry: &mut Registry, (name, help): (&str, &str)) -> Self {
        let found = Self::default();
        CloudName::ALL.iter().for_each(|cloud| found.set(*cloud, 0));
        registry.register(name, help, found.0.clone());
        found
    }

    /// So many now.
    pub fn set(&self, cloud: CloudName, pods: usize) {
        self.of_cloud(cloud).set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    fn of_cloud(&self, cloud: CloudName) -> Gauge {
        self.0.get_or_create_owned(&[("cloud", cloud.as_str())])
    }

    /// How many they are.
    #[cfg(test)]
    pub(crate) fn of(&self, cloud: CloudName) -> usize {
        usize::try_from(self.of_cloud(cloud).get()).unwrap_or_default()
    }
}
