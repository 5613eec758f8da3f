//! Scans all pods at an interval, on the control thread. For each cloud, a gauge counts the pods that the last scan reported.
//!
//! Each scanner decides which pods to report (`excessive_fetch`, `stale_credentials`).

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use seawall_clouds::pod::PodEntry;
use seawall_core::Clock;
use seawall_core::cloud::CloudName;
use seawall_identity::pod_resolver::PodResolver;

/// A periodic check of all pods.
pub trait PodScanner {
    /// The time between two scans.
    const INTERVAL: Duration;

    /// Scans all current pods once.
    fn scan(&mut self, pods: &[Arc<PodEntry>]);
}

/// Scans the pods at each interval, forever.
pub async fn run<L: PodScanner>(mut looker: L, callers: Arc<PodResolver>, clock: Clock) {
    loop {
        clock.sleep(L::INTERVAL).await;
        looker.scan(&callers.pods());
    }
}

/// A gauge of the pods that the last scan reported, for each cloud.
#[derive(Clone, Debug, Default)]
pub struct ReportedPodsGauge(Family<[(&'static str, &'static str); 1], Gauge>);

impl ReportedPodsGauge {
    /// Registers the gauge under this name, with 0 for each cloud.
    pub fn new_registered(registry: &mut Registry, (name, help): (&str, &str)) -> Self {
        let found = Self::default();
        CloudName::ALL.iter().for_each(|cloud| found.set(*cloud, 0));
        registry.register(name, help, found.0.clone());
        found
    }

    /// Sets the number of reported pods for a cloud.
    pub fn set(&self, cloud: CloudName, pods: usize) {
        self.of_cloud(cloud).set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    fn of_cloud(&self, cloud: CloudName) -> Gauge {
        self.0.get_or_create_owned(&[("cloud", cloud.as_str())])
    }

    /// Returns the number of reported pods of a cloud.
    #[cfg(test)]
    pub(crate) fn reported_pod_count(&self, cloud: CloudName) -> usize {
        usize::try_from(self.of_cloud(cloud).get()).unwrap_or_default()
    }
}
