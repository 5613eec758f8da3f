//! What Kubernetes says about this node: its pods, their ServiceAccounts, and tokens that prove a pod is that pod.
//!
//! The only part of the agent that speaks to the API server, through `kube`. It refuses to know clouds, HTTP requests of pods, or
//! policy; it tells who is there. The agent starts one [`ClusterClient`], which asks, gives its [`WatchThread`] a thread of its own, gives
//! traffic threads a [`NodePods`] handle (an atomic pointer to an immutable [`PodSnapshot`]), and follows the snapshots
//! ([`NodePods::newer_than`]) to prefetch and to let go.
//!
//! **An API server that is away is a state.** Starting asks nobody. The last snapshot stays, its age grows and can be read
//! ([`NodePods::staleness`]), and each watch comes back by itself.
//!
//! **Which ServiceAccounts.** Only those that this node's pods use are kept. One metadata-only watch over all namespaces
//! tells changes (one connection for the node; a watch per namespace would be one TLS connection for each), but it starts
//! from "now" without listing: a cluster with ten thousand ServiceAccounts would otherwise cost each node their transfer.
//! Those in use are read one by one, a few hundred bytes each. The price is `get, list, watch` on ServiceAccounts, which
//! hold no secrets.
//!
//! **Namespaces** are read in the same way, if a cloud selects a key on them, and not otherwise: then nothing is asked about
//! them, no third watch runs, and no permission is needed. `deploy/rbac.yaml` grants `get, list, watch` on them, for the
//! clouds that do.
//!
//! **Which annotations.** Those whose keys it is told ([`ClusterConfig::selections`]). What they mean is the clouds' to say.

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

/// The part that asks the API server: tokens, events, the node's taint. Ends, with its task, when dropped.
#[derive(Debug)]
pub struct ClusterClient {
    pods: NodePods,
    reporter: EventReporter,
    link: Arc<TimedKubeClient>,
    node: NodeName,
    taint: Option<String>,
    token_lifetime: Duration,
    /// Aborts what it holds when it is dropped.
    _tasks: JoinSet<()>,
}

impl ClusterClient {
    /// Reads the credentials, and gives the part that asks, on the runtime that this is called on (the agent's control
    /// thread), and the part that hears, which is still to be given a thread. Asks nobody and waits for nobody: an API
    /// server that is away is found out, and waited for, by the watches.
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
            token_lifetime: config.token_lifetime,
            _tasks: tasks,
        };
        Ok((cluster, hearing))
    }

    /// What traffic threads need: who is there.
    pub fn pods(&self) -> NodePods {
        self.pods.clone()
    }

    /// A handle that gives this pod's tokens and no other's. All handles of a pod share what has been asked for.
    pub fn tokens_for(&self, record: &PodRecord) -> Arc<dyn SubjectTokens> {
        Arc::new(PodTokens {
            pod: record.pod.clone(),
            cache: record.tokens.clone(),
            link: self.link.clone(),
            lifetime: self.token_lifetime,
        })
    }

    /// Reports refusals as events on pods.
    pub fn event_reporter(&self) -> EventReporter {
        self.reporter.clone()
    }

    /// How the watches are doing, for readiness and the admin port: that of pods, of ServiceAccounts, and of namespaces if
    /// somebody asks about them.
    pub fn health(&self) -> Vec<WatchHealth> {
        self.pods.shared.health(self.link.clock.now())
    }

    /// Takes the configured taint off this node, trying until it is off. Call it once ready. Does nothing without one.
    pub async fn remove_startup_taint(&self) {
        if let Some(taint) = &self.taint {
            startup_taint::remove_with_retries(&self.link, self.node.as_str(), taint).await;
        }
    }
}

/// The pods of this node, as last told. Cheap to clone; usable from any thread and runtime.
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

    /// Whether the view holds everything that had reached this machine shortly before. Decide who is at an address only if
    /// so. One atomic read; if not, the thread that hears is asked to catch up.
    pub fn is_current(&self) -> bool {
        self.shared.pod_watch.freshness.is_fresh_at(self.clock.now())
    }

    /// Waits until [`Self::is_current`]. Put a limit around it: a machine may be short of CPU for long.
    pub async fn wait_until_current(&self) {
        self.shared.pod_watch.freshness.wait_until_fresh(&self.clock).await;
    }

    /// Waits for a view that is newer than `version`. Put a limit around it: there may be nothing new for hours.
    pub async fn newer_than(&self, version: u64) -> Arc<PodSnapshot> {
        let mut versions = self.shared.versions.subscribe();
        // Fails only if the sender is gone, and we hold it.
        let _ = versions.wait_for(|seen| *seen > version).await;
        self.snapshot()
    }

    /// Time since the API server last said anything about this node's pods; `None` before it first did.
    pub fn staleness(&self) -> Option<Duration> {
        self.shared.pod_watch.age(self.clock.now())
    }
}

/// The agent's, named here and handed on: it signs with ring already, and its program is smaller by it.
fn provider() -> Arc<CryptoProvider> {
    rustls::crypto::ring::default_provider().into()
}
