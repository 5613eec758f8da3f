//! A pod that is served: who it is, what the server counts of it, and what it may have.
//!
//! What it may have is replaced by whoever keeps pods (`identity`) and read by the dialects, by one atomic read. Refuses to know how
//! somebody is told to be this pod: here stands only its [`AttestedAddresses`], unread.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use seawall_core::Pod;
use seawall_core::attestation::{AttestFuture, AttestedAddresses};
use seawall_core::cloud::CloudName;
use seawall_server::client::{ClientId, ServedPod};
use seawall_server::permit_counter::PermitCounter;
use seawall_server::route::MetadataRoute;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::entitlements::Entitlements;

/// The server's types, of clients that are these pods.
pub type PodClient = seawall_server::client::Client<PodEntry>;
/// What became of a request.
pub type PodHandlerOutcome = seawall_server::handler::HandlerOutcome<PodEntry>;
/// What a listener speaks.
pub type PodDialects = seawall_server::handler::ListenerDialects<PodEntry>;

/// A pod as connections know it.
#[derive(Debug)]
pub struct PodEntry {
    /// By this the server knows it.
    pub id: ClientId,
    /// Its names.
    pub pod: Pod,
    /// What it rests on that somebody is this pod. Never changes: one that rests on something else is another caller.
    pub basis: AttestedAddresses,
    entitlements: ArcSwap<Entitlements>,
    /// Tells long polls that they were replaced. No channel: one of those is larger than all else here.
    replaced: Notify,
    /// Closed when the pod no longer has all of its basis.
    pub connections: Arc<PermitCounter>,
    /// Its long polls that wait.
    pub long_polls: Arc<PermitCounter>,
    /// How often it fetched credentials.
    pub fetches: FetchCounters,
}

impl PodEntry {
    /// A pod that has this, and nobody connected yet.
    pub fn new(pod: Pod, basis: AttestedAddresses, entitlements: Entitlements) -> Self {
        Self {
            id: ClientId::unique(),
            pod,
            basis,
            entitlements: ArcSwap::from_pointee(entitlements),
            replaced: Notify::new(),
            connections: Arc::default(),
            long_polls: Arc::default(),
            fetches: FetchCounters::default(),
        }
    }

    /// What it may have now: one atomic read.
    pub fn entitlements(&self) -> Guard<Arc<Entitlements>> {
        self.entitlements.load()
    }

    /// Gives it others and wakes whoever waits for a change.
    pub fn replace_entitlements(&self, entitlements: Entitlements) {
        self.entitlements.store(Arc::new(entitlements));
        self.replaced.notify_waiters();
    }

    /// Returns once it is decided what it may have of this cloud.
    pub async fn wait_until_decided(&self, cloud: CloudName) {
        loop {
            let change = self.entitlements_changed();
            if !self.entitlements().is_pending(cloud) {
                return;
            }
            change.await;
        }
    }

    /// The next change of what it may have after this call, whether or not it is being waited for by then.
    pub fn entitlements_changed(&self) -> Notified<'_> {
        self.replaced.notified()
    }
}

/// Longest User-Agent that is looked at; what tells an SDK stands at its beginning.
const AGENT: usize = 128;

/// How often a pod fetched credentials of each cloud.
#[derive(Debug, Default)]
pub struct FetchCounters([CloudFetchCounter; CloudName::ALL.len()]);

/// How often a pod fetched credentials of one cloud, and who asked last.
#[derive(Debug, Default)]
pub struct CloudFetchCounter {
    /// How often.
    pub count: AtomicU32,
    /// Whether it is to be noted who asks.
    pub wants_user_agent: AtomicBool,
    /// Empty if it sends none.
    user_agent: Mutex<Option<Box<[u8]>>>,
}

impl FetchCounters {
    /// One more. Threads that count at once may lose one, which does no harm; an addition that others cannot interrupt would cost each
    /// request more than all else here.
    pub fn count(&self, cloud: CloudName) {
        let own = &self.0[cloud as usize];
        own.count.store(own.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Notes, where that is wanted, who asks by this head.
    pub fn record_user_agent(&self, cloud: CloudName, head: &[u8]) {
        let own = &self.0[cloud as usize];
        if own.wants_user_agent.load(Ordering::Relaxed) {
            own.note(head);
        }
    }

    /// Those of one cloud.
    pub fn of(&self, cloud: CloudName) -> &CloudFetchCounter {
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

    /// Who asked, if that was wanted and somebody did since.
    pub fn take_user_agent(&self) -> Option<Box<[u8]>> {
        self.user_agent.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The value of that header in a head that was found to be one.
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
        &self.connections
    }

    fn long_polls(&self) -> &Arc<PermitCounter> {
        &self.long_polls
    }

    fn wait_for_entitlements(&self, cloud: CloudName) -> AttestFuture<'_, ()> {
        Box::pin(Self::wait_until_decided(self, cloud))
    }

    fn record_fetch(&self, route: &MetadataRoute, head: Option<&[u8]>) {
        let Some(cloud) = route.cloud_name() else { return };
        self.fetches.count(cloud);
        if let Some(head) = head {
            self.fetches.record_user_agent(cloud, head);
        }
    }

    fn record_pending_fetch(&self, route: &MetadataRoute, head: &[u8]) {
        if let Some(cloud) = route.cloud_name() {
            self.fetches.record_user_agent(cloud, head);
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
        let (own, head) = (fetches.of(cloud), head(&"x".repeat(500)));
        fetches.record_user_agent(cloud, head.as_bytes());
        assert!(own.take_user_agent().is_none(), "nothing is kept of the many");
        own.wants_user_agent.store(true, Ordering::Relaxed);
        fetches.record_user_agent(cloud, head.as_bytes());
        assert_eq!(own.take_user_agent().map(|agent| agent.len()), Some(AGENT));
        assert!(!own.wants_user_agent.load(Ordering::Relaxed), "once");
    }

    /// There is one in each pod's record.
    #[test]
    fn a_pods_counts_are_small() {
        assert!(size_of::<CloudFetchCounter>() <= 40, "{}", size_of::<CloudFetchCounter>());
    }
}
