//! The Kubernetes view of this node: its pods, their ServiceAccounts, and tokens that prove a pod's identity.
//!
//! The only part of the agent that speaks to the API server, through `kube`. It does not know clouds, pods' HTTP requests or
//! policy; it says which pod is at an address. The agent starts one [`ClusterClient`], which sends requests. The agent gives its
//! [`WatchThread`] a thread of its own and its traffic threads a [`NodePods`] handle (an atomic pointer to an immutable
//! [`PodSnapshot`]). It follows the snapshots ([`NodePods::newer_than`]) to prefetch credentials and to drop them.
//!
//! **An unreachable API server is a normal state.** Starting sends no request. The last snapshot stays, its age grows and can be
//! read ([`NodePods::staleness`]), and each watch recovers by itself.
//!
//! **Which ServiceAccounts.** Only ServiceAccounts that this node's pods use are kept. One metadata-only watch over all
//! namespaces reports changes (one connection for the node; a watch per namespace would be one TLS connection for each), but it
//! starts from "now" without listing: a cluster with ten thousand ServiceAccounts would otherwise cost each node their
//! transfer. ServiceAccounts in use are read one by one, a few hundred bytes each. The price is `get, list, watch` on
//! ServiceAccounts, which hold no secrets.
//!
//! **Namespaces** are read in the same way, but only if a cloud selects a key on them. Otherwise the agent reads no namespaces,
//! runs no third watch and needs no permission for them. `deploy/rbac.yaml` grants `get, list, watch` on them, for the clouds
//! that select such keys.
//!
//! **Which annotations.** Only annotations whose keys the configuration names ([`ClusterConfig::selections`]). The cloud crates
//! define their meaning.

mod config;
mod events;
#[cfg(test)]
mod fake;
mod index;
mod latest_snapshot;
mod object;
mod related_objects;
mod snapshot_writer;
mod startup_taint;
#[cfg(feature = "testing")]
pub mod testing;
mod token_request;
mod uninstall;
mod view_freshness;
mod watch;
mod watch_health;
mod watch_thread;

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use seawall_core::Clock;
use seawall_core::pod::SubjectTokens;
use seawall_kube::{Connector, TimedKubeClient};
use tokio::task::JoinSet;

pub use config::{ClusterConfig, NodeName};
pub use events::EventReporter;
pub use index::{DELETION_LEEWAY, PodLookupError, PodRecord, PodSnapshot};
pub use seawall_kube::{KubeAccess, KubeAccessError, KubeTimeouts};
pub use uninstall::{UninstallError, Uninstaller};
pub use watch_health::WatchHealth;
pub use watch_thread::{WatchThread, WatchThreadError};

use latest_snapshot::ClusterView;
use related_objects::SelectedKeys;
use token_request::PodTokens;

/// Sends requests to the API server: for tokens, events and the node's taint. Its task ends when it is dropped.
#[derive(Debug)]
pub struct ClusterClient {
    pods: NodePods,
    reporter: EventReporter,
    link: Arc<TimedKubeClient>,
    node: NodeName,
    taint: Option<String>,
    pod_token_lifetime: Duration,
    /// The event poster. Dropping the set aborts it.
    _tasks: JoinSet<()>,
}

impl ClusterClient {
    /// Reads the credentials and creates the client and the watch thread. The client runs on the runtime of this call (the agent's
    /// control thread); the watch thread still needs a thread. Sends no request and waits for no server: the watches notice that
    /// an API server is unreachable, and wait for it.
    ///
    /// # Errors
    /// The kubeconfig or the in-cluster files cannot be read.
    pub async fn start(config: ClusterConfig, clock: Clock) -> Result<(Self, WatchThread), KubeAccessError> {
        let connector = Connector::read(config.access.clone(), provider())?;
        let client = connector.client(&config.timeouts, clock.clone())?;
        let link = TimedKubeClient { client, clock: clock.clone(), timeouts: config.timeouts };
        let shared = Arc::new(ClusterView::new(&SelectedKeys::of(&config.selections)));
        let (reporter, poster) = EventReporter::new(link.clone(), config.node.as_str().to_owned());
        let mut tasks = JoinSet::new();
        tasks.spawn(poster);
        let hearing = WatchThread::new(connector, &config, &shared, &clock);
        let cluster = Self {
            pods: NodePods { shared, clock },
            reporter,
            link: Arc::new(link),
            node: config.node,
            taint: config.startup_taint,
            pod_token_lifetime: config.pod_token_lifetime,
            _tasks: tasks,
        };
        Ok((cluster, hearing))
    }

    /// The handle through which traffic threads look up this node's pods.
    pub fn pods(&self) -> NodePods {
        self.pods.clone()
    }

    /// Returns a handle that gives the tokens of this pod only. All handles of a pod share its cached tokens.
    pub fn tokens_for(&self, record: &PodRecord) -> Arc<dyn SubjectTokens> {
        Arc::new(PodTokens {
            pod: record.pod.clone(),
            cache: record.tokens.clone(),
            link: self.link.clone(),
            lifetime: self.pod_token_lifetime,
        })
    }

    /// Returns the reporter that posts refusals as events on pods.
    pub fn event_reporter(&self) -> EventReporter {
        self.reporter.clone()
    }

    /// Returns the health of each watch, for readiness and the admin port. The watches are pods, ServiceAccounts, and namespaces
    /// if a cloud selects keys on them.
    pub fn health(&self) -> Vec<WatchHealth> {
        self.pods.shared.health(self.link.clock.now())
    }

    /// Removes the configured taint from this node and retries until it is gone. Call it once ready. Does nothing without a taint.
    pub async fn remove_startup_taint(&self) {
        if let Some(taint) = &self.taint {
            startup_taint::remove_with_retries(&self.link, self.node.as_str(), taint).await;
        }
    }
}

/// The pods of this node, as the API server last reported them. Cheap to clone; usable from any thread and runtime.
#[derive(Clone, Debug)]
pub struct NodePods {
    shared: Arc<ClusterView>,
    clock: Clock,
}

impl NodePods {
    /// The present view: one atomic read.
    pub fn snapshot(&self) -> Arc<PodSnapshot> {
        self.shared.snapshot.load_full()
    }

    /// True if the view holds everything that had reached this machine shortly before. Identify a pod by its address only if so.
    /// Costs one atomic read; if `false`, it asks the watch thread to catch up.
    pub fn is_current(&self) -> bool {
        self.shared.pod_watch.freshness.is_fresh_at(self.clock.now())
    }

    /// Waits until [`Self::is_current`]. Set a timeout: a machine may be short of CPU for long.
    pub async fn wait_until_current(&self) {
        self.shared.pod_watch.freshness.wait_until_fresh(&self.clock).await;
    }

    /// Waits for a view that is newer than `version`. Set a timeout: there may be no change for hours.
    pub async fn newer_than(&self, version: u64) -> Arc<PodSnapshot> {
        let mut versions = self.shared.versions.subscribe();
        // Fails only if the sender is gone, and we hold it.
        let _ = versions.wait_for(|seen| *seen > version).await;
        self.snapshot()
    }

    /// Time since the API server last sent anything about this node's pods; `None` before the first message.
    pub fn staleness(&self) -> Option<Duration> {
        self.shared.pod_watch.age(self.clock.now())
    }
}

/// The agent's TLS provider, passed on explicitly. The agent already signs with ring, and one provider makes its program smaller.
fn provider() -> Arc<CryptoProvider> {
    rustls::crypto::ring::default_provider().into()
}
