//! Provides the Kubernetes view of this node: its pods, their ServiceAccounts, and tokens that prove a pod's identity.
//!
//! No other crate of the agent sends requests to the API server. This crate sends them through the crate `kube`. This crate
//! knows which pod has which address. It contains no code for clouds, for the HTTP requests of pods, or for policy. The agent
//! starts one [`ClusterClient`], which sends requests, and runs the [`WatchThread`] on a separate thread. The traffic threads,
//! which serve the pods' requests, get a [`NodePods`] handle: an atomic pointer to an immutable [`PodSnapshot`]. The agent
//! waits for each new snapshot ([`NodePods::wait_for_newer`]). The agent then prefetches credentials for new pods and drops the
//! credentials of pods that are gone.
//!
//! **An unreachable API server is a normal state.** The client starts without sending a request. During an outage, readers keep
//! the last snapshot, the age of the data grows ([`NodePods::time_since_last_message`]), and each watch retries until it works
//! again.
//!
//! **Which ServiceAccounts.** The agent keeps only the ServiceAccounts that this node's pods use. One metadata-only watch over
//! all namespaces reports changes, because separate watches would need a TLS connection for each namespace. The watch starts
//! without a list and reports only later changes. A list would transfer all ServiceAccounts of the cluster to each node; a
//! large cluster has 10,000. The agent fetches each ServiceAccount in use with a separate request, whose response has a few
//! hundred bytes. For the watch and these requests, the agent needs the permissions `get, list, watch` on all ServiceAccounts.
//! ServiceAccounts contain no secrets.
//!
//! **Which namespaces.** The agent watches and fetches namespaces in the same way, but only if a configured cloud selects
//! annotation keys of namespaces. Otherwise the agent reads no namespaces and needs no permission for them. `deploy/rbac.yaml`
//! grants `get, list, watch` on namespaces for the clouds that select such keys.
//!
//! **Which annotations.** Each configured cloud selects the annotation keys that it reads ([`ClusterConfig::annotation_keys`]).
//! The agent keeps no other annotations. The crate `clouds` defines the meaning of these annotations.

mod cluster_view;
mod config;
#[cfg(test)]
mod fake_api_server;
mod index;
mod kubernetes_events;
mod object;
mod paged_list;
mod pod_security;
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
use seawall_kube::{KubeConnector, TimedKubeClient};
use tokio::task::JoinSet;

pub use config::{ClusterConfig, NodeName};
pub use index::{DELETION_LEEWAY, PodLookupError, PodRecord, PodSnapshot};
pub use kubernetes_events::EventReporter;
pub use pod_security::{NamespaceListError, namespaces_without_baseline};
pub use seawall_kube::{ClientConfigError, ClientConfigSource, KubeTimeouts};
pub use uninstall::{UninstallError, Uninstaller};
pub use watch_health::WatchHealth;
pub use watch_thread::{WatchThread, WatchThreadError};

use cluster_view::ClusterView;
use related_objects::SelectedAnnotationKeys;
use token_request::PodTokenSource;

/// Sends the agent's requests for tokens, events and the node's taint. Dropping the client ends the task that posts events.
#[derive(Debug)]
pub struct ClusterClient {
    pods: NodePods,
    reporter: EventReporter,
    link: Arc<TimedKubeClient>,
    node: NodeName,
    taint: Option<String>,
    pod_token_lifetime: Duration,
    /// Holds the task that posts events. Dropping the set aborts the task.
    _tasks: JoinSet<()>,
}

impl ClusterClient {
    /// Reads the credentials, and creates the client and the [`WatchThread`]. The client runs on the runtime of the calling
    /// thread, which is the agent's control thread. The caller must start a thread that calls [`WatchThread::run`]. This
    /// function sends no request. If the API server is unreachable, the watches retry until the server responds.
    ///
    /// # Errors
    /// The kubeconfig or the in-cluster files cannot be read.
    pub async fn create_with_watch_thread(
        config: ClusterConfig,
        clock: Clock,
    ) -> Result<(Self, WatchThread), ClientConfigError> {
        let connector = KubeConnector::read(config.kube_access.clone(), provider())?;
        let client = connector.new_client(&config.timeouts, clock.clone())?;
        let link = TimedKubeClient { client, clock: clock.clone(), timeouts: config.timeouts };
        let shared = Arc::new(ClusterView::new(&SelectedAnnotationKeys::merge(&config.annotation_keys)));
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

    /// Returns the handle through which traffic threads look up this node's pods.
    pub fn pods(&self) -> NodePods {
        self.pods.clone()
    }

    /// Returns a handle that provides the tokens of this pod only. All handles of a pod share the pod's cached tokens.
    pub fn tokens_for(&self, record: &PodRecord) -> Arc<dyn SubjectTokens> {
        Arc::new(PodTokenSource {
            pod: record.pod.clone(),
            cache: record.token_cache.clone(),
            kube_client: self.link.clone(),
            lifetime: self.pod_token_lifetime,
        })
    }

    /// Returns the reporter that posts refusals as events on pods.
    pub fn event_reporter(&self) -> EventReporter {
        self.reporter.clone()
    }

    /// Returns the health of each watch, for readiness and the admin port. The agent watches pods and ServiceAccounts. It also
    /// watches namespaces if a cloud selects annotation keys of namespaces.
    pub fn health_per_watch(&self) -> Vec<WatchHealth> {
        self.pods.shared.health_per_watch(self.link.clock.now())
    }

    /// Removes the configured startup taint from this node, and retries until the taint is gone. Call this function once the
    /// agent is ready. Does nothing if no taint is configured.
    pub async fn remove_startup_taint(&self) {
        if let Some(taint) = &self.taint {
            startup_taint::remove_with_retries(&self.link, self.node.as_str(), taint).await;
        }
    }
}

/// Gives access to the pods of this node, as the API server last reported them. The handle is cheap to clone. Any thread and
/// runtime can use it.
#[derive(Clone, Debug)]
pub struct NodePods {
    shared: Arc<ClusterView>,
    clock: Clock,
}

impl NodePods {
    /// Returns the latest snapshot with one atomic read.
    pub fn snapshot(&self) -> Arc<PodSnapshot> {
        self.shared.snapshot.load_full()
    }

    /// True if the latest snapshot contains all watch data that had reached this machine shortly before the call. Identify a
    /// pod by its address only if this function returns true. The check costs one atomic read. If the result is false, the
    /// function also asks the watch thread to prove again that the snapshot is current.
    pub fn is_current(&self) -> bool {
        self.shared.pod_watch.freshness.is_fresh_at(self.clock.now())
    }

    /// Waits until [`Self::is_current`] is true. The caller must set a timeout, because the wait can be long on a machine that
    /// is short of CPU.
    pub async fn wait_until_current(&self) {
        self.shared.pod_watch.freshness.wait_until_fresh(&self.clock).await;
    }

    /// Waits for a snapshot that is newer than `version`. The wait can last hours, because a quiet node has no changes.
    pub async fn wait_for_newer(&self, version: u64) -> Arc<PodSnapshot> {
        let mut versions = self.shared.version_sender.subscribe();
        // `wait_for` fails only if the sender is dropped, and `self` holds the sender.
        let _ = versions.wait_for(|seen| *seen > version).await;
        self.snapshot()
    }

    /// Returns the time since the API server last sent a message about this node's pods; `None` before the first message.
    pub fn time_since_last_message(&self) -> Option<Duration> {
        self.shared.pod_watch.time_since_activity(self.clock.now())
    }
}

/// Returns the TLS provider of the agent, the library ring. The agent also signs with ring. A second library would only make
/// the binary larger.
fn provider() -> Arc<CryptoProvider> {
    rustls::crypto::ring::default_provider().into()
}
