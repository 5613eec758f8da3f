//! A served pod: its identity, its counters in the server, and its entitlements.
//!
//! The `identity` crate replaces the entitlements, and the dialects read them with one atomic read. This module stores the
//! pod's [`AttestedAddresses`] without interpreting them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use seawall_core::Pod;
use seawall_core::attestation::{AttestFuture, AttestedAddresses};
use seawall_core::cloud::CloudName;
use seawall_core::credential_variables::CredentialVariables;
use seawall_server::connection_client::{ClientId, ServedPod};
use seawall_server::connection_permits::PermitCounter;
use seawall_server::route::MetadataRoute;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::entitlements::Entitlements;

/// A client of the agent's server: a pod, or a client that is not a known pod.
pub type PodOrUnknownClient = seawall_server::connection_client::Client<PodEntry>;
/// The outcome of a request in a dialect that serves pods.
pub type PodHandlerOutcome = seawall_server::handler::HandlerOutcome<PodEntry>;
/// The dialects that a listener speaks to pods.
pub type PodDialects = seawall_server::handler::ListenerDialects<PodEntry>;

/// A pod's record in the agent. All connections of the pod share this record.
#[derive(Debug)]
pub struct PodEntry {
    /// The id of the pod in the server.
    pub id: ClientId,
    /// The pod's names.
    pub pod: Pod,
    /// The IP addresses by which the agent attested this pod. This field never changes: `identity` creates a new entry if the
    /// pod's addresses change.
    pub attested_addresses: AttestedAddresses,
    /// The variables with which the pod's containers find credentials without the agent, for `/debug/pods` alone.
    pub credential_variables: CredentialVariables,
    /// True if the pod is on the node's network, for `/debug/pods` alone.
    pub uses_host_network: bool,
    entitlements: ArcSwap<Entitlements>,
    /// Wakes the tasks that wait for new entitlements. A channel instead of this field would be larger than all other fields
    /// together.
    replaced: Notify,
    /// Counts the pod's open connections.
    /// When `identity` removes or replaces this entry, `identity` closes the counter. A closed counter ends the pod's
    /// connections.
    pub connection_counter: Arc<PermitCounter>,
    /// Counts the pod's waiting long polls.
    pub long_poll_counter: Arc<PermitCounter>,
    /// Counts the pod's credential fetches.
    pub fetch_counters: FetchCounters,
}

impl PodEntry {
    /// Creates the entry of a pod with these entitlements and no connections.
    pub fn new(pod: Pod, basis: AttestedAddresses, entitlements: Entitlements) -> Self {
        Self {
            id: ClientId::new_unique(),
            pod,
            attested_addresses: basis,
            credential_variables: CredentialVariables::default(),
            uses_host_network: false,
            entitlements: ArcSwap::from_pointee(entitlements),
            replaced: Notify::new(),
            connection_counter: Arc::default(),
            long_poll_counter: Arc::default(),
            fetch_counters: FetchCounters::default(),
        }
    }

    /// The same entry with these facts about the pod.
    #[must_use]
    pub fn with_pod_facts(self, credential_variables: CredentialVariables, uses_host_network: bool) -> Self {
        Self { credential_variables, uses_host_network, ..self }
    }

    /// Returns the pod's current entitlements with one atomic read.
    pub fn entitlements(&self) -> Guard<Arc<Entitlements>> {
        self.entitlements.load()
    }

    /// Replaces the entitlements and wakes every task that waits for a change.
    pub fn replace_entitlements(&self, entitlements: Entitlements) {
        self.entitlements.store(Arc::new(entitlements));
        self.replaced.notify_waiters();
    }

    /// Waits until the pod's entitlement to this cloud is decided. This wait has no time limit.
    pub async fn wait_until_decided(&self, cloud: CloudName) {
        loop {
            let change = self.next_entitlements_change();
            if !self.entitlements().is_pending_for_cloud(cloud) {
                return;
            }
            change.await;
        }
    }

    /// Records that the real metadata server gave this pod the node's credentials. The first time, the log names the pod.
    ///
    /// Operators find the workloads that need the node's identity by this line, also those whose pods end within minutes.
    pub(crate) fn record_node_credentials(&self, cloud: CloudName) {
        let counter = self.fetch_counters.for_cloud(cloud);
        if !counter.got_node_credentials.swap(true, Ordering::Relaxed) {
            tracing::info!(
                cloud = cloud.as_str(), pod = %self.pod.name, service_account = %self.pod.service_account,
                "a pod got the node's credentials"
            );
        }
    }

    /// Returns a future for the next change of the entitlements. The future also notices a change between this call and its first
    /// poll.
    pub fn next_entitlements_change(&self) -> Notified<'_> {
        self.replaced.notified()
    }
}

/// The maximum length of a stored User-Agent, in bytes. An SDK's name is at the beginning.
const AGENT: usize = 128;

/// The counters of a pod's credential fetches, by cloud.
#[derive(Debug, Default)]
pub struct FetchCounters([CloudFetchCounter; CloudName::ALL.len()]);

/// The number of a pod's credential fetches from one cloud, and the User-Agent of the last recorded fetch.
#[derive(Debug, Default)]
pub struct CloudFetchCounter {
    /// The number of fetches.
    pub count: AtomicU32,
    /// True if the next fetch should record its User-Agent.
    pub wants_user_agent: AtomicBool,
    /// True if the real metadata server gave the pod the node's credentials (`conceal`, `realServer`).
    pub got_node_credentials: AtomicBool,
    /// The recorded User-Agent. The value is empty if the client sends no User-Agent.
    user_agent: Mutex<Option<Box<[u8]>>>,
}

impl FetchCounters {
    /// Adds one fetch. If two threads count at the same time, one of the two fetches can be missing in the count, which is
    /// harmless.
    ///
    /// An atomic addition would prevent this error. But an atomic addition would cost each request more than all other work of
    /// these counters.
    pub fn record_fetch(&self, cloud: CloudName) {
        let own = &self.0[cloud as usize];
        own.count.store(own.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Records the User-Agent of this request head, if [`CloudFetchCounter::wants_user_agent`] is set for the cloud.
    pub fn record_user_agent(&self, cloud: CloudName, head: &[u8]) {
        let own = &self.0[cloud as usize];
        if own.wants_user_agent.load(Ordering::Relaxed) {
            own.note(head);
        }
    }

    /// Returns the counter of one cloud.
    pub fn for_cloud(&self, cloud: CloudName) -> &CloudFetchCounter {
        &self.0[cloud as usize]
    }
}

impl CloudFetchCounter {
    fn note(&self, head: &[u8]) {
        let agent = user_agent(head).unwrap_or_default();
        *self.user_agent.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(agent[..agent.len().min(AGENT)].into());
        self.wants_user_agent.store(false, Ordering::Relaxed);
    }

    /// Takes the recorded User-Agent, or returns `None` if no request has recorded one since the last call.
    pub fn take_user_agent(&self) -> Option<Box<[u8]>> {
        self.user_agent.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Returns the value of the `User-Agent` header in a valid request head.
fn user_agent(head: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"user-agent:";
    let lines = head.split(|byte| *byte == b'\n');
    let value = |line: &'_ [u8]| line.get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME));
    lines.into_iter().find(|line| value(line)).map(|line| line[NAME.len()..].trim_ascii())
}

impl ServedPod for PodEntry {
    fn id(&self) -> ClientId {
        self.id
    }

    fn connections(&self) -> &Arc<PermitCounter> {
        &self.connection_counter
    }

    fn long_polls(&self) -> &Arc<PermitCounter> {
        &self.long_poll_counter
    }

    fn wait_for_entitlements(&self, cloud: CloudName) -> AttestFuture<'_, ()> {
        Box::pin(Self::wait_until_decided(self, cloud))
    }

    fn record_fetch(&self, route: &MetadataRoute, head: Option<&[u8]>) {
        let Some(cloud) = route.cloud_name() else { return };
        self.fetch_counters.record_fetch(cloud);
        if let Some(head) = head {
            self.fetch_counters.record_user_agent(cloud, head);
        }
    }

    fn record_pending_fetch(&self, route: &MetadataRoute, head: &[u8]) {
        if let Some(cloud) = route.cloud_name() {
            self.fetch_counters.record_user_agent(cloud, head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(agent: &str) -> String {
        format!("GET / HTTP/1.1\r\nHost: a\r\nuser-AGENT:  {agent}\r\n\r\n")
    }

    #[test]
    fn who_asks_is_read_once_it_is_wanted_and_bounded() {
        let (fetches, cloud) = (FetchCounters::default(), CloudName::ALL[0]);
        let (own, head) = (fetches.for_cloud(cloud), head(&"x".repeat(500)));
        fetches.record_user_agent(cloud, head.as_bytes());
        assert!(own.take_user_agent().is_none(), "no User-Agent is recorded unless it is wanted");
        own.wants_user_agent.store(true, Ordering::Relaxed);
        fetches.record_user_agent(cloud, head.as_bytes());
        assert_eq!(own.take_user_agent().map(|agent| agent.len()), Some(AGENT));
        assert!(!own.wants_user_agent.load(Ordering::Relaxed), "only one request records its User-Agent");
    }

    /// Each pod's entry contains one counter per cloud, so counters must stay small.
    #[test]
    fn a_pods_counts_are_small() {
        assert!(size_of::<CloudFetchCounter>() <= 40, "{}", size_of::<CloudFetchCounter>());
    }
}
