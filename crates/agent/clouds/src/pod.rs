//! A pod that is served: who it is, what the server counts of it, and what it may have.
//!
//! What it may have is replaced by whoever keeps pods (`identity`) and read by the dialects, by one atomic read. Refuses to know how
//! somebody is told to be this pod: here stands only its [`Basis`], unread.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use seawall_core::Pod;
use seawall_core::attestation::{Basis, Wait};
use seawall_core::cloud::CloudName;
use seawall_server::client::{ClientId, ServedPod};
use seawall_server::connection_counter::Cap;
use seawall_server::route::Route;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::entitlements::Entitlements;

/// The server's types, of clients that are these pods.
pub type Client = seawall_server::client::Client<PodCaller>;
/// What became of a request.
pub type Step = seawall_server::handler::Step<PodCaller>;
/// What a listener speaks.
pub type Dialects = seawall_server::handler::Dialects<PodCaller>;

/// A pod as connections know it.
#[derive(Debug)]
pub struct PodCaller {
    /// By this the server knows it.
    pub id: ClientId,
    /// Its names.
    pub pod: Pod,
    /// What it rests on that somebody is this pod. Never changes: one that rests on something else is another caller.
    pub basis: Basis,
    entitlements: ArcSwap<Entitlements>,
    /// Tells long polls that they were replaced. No channel: one of those is larger than all else here.
    replaced: Notify,
    /// Closed when the pod no longer has all of its basis.
    pub connections: Arc<Cap>,
    /// Its long polls that wait.
    pub long_polls: Arc<Cap>,
    /// How often it fetched credentials.
    pub fetches: Fetches,
}

impl PodCaller {
    /// A pod that has this, and nobody connected yet.
    pub fn new(pod: Pod, basis: Basis, entitlements: Entitlements) -> Self {
        Self {
            id: ClientId::unique(),
            pod,
            basis,
            entitlements: ArcSwap::from_pointee(entitlements),
            replaced: Notify::new(),
            connections: Arc::default(),
            long_polls: Arc::default(),
            fetches: Fetches::default(),
        }
    }

    /// What it may have now: one atomic read.
    pub fn entitlements(&self) -> Guard<Arc<Entitlements>> {
        self.entitlements.load()
    }

    /// Gives it others and wakes whoever waits for a change.
    pub fn replace(&self, entitlements: Entitlements) {
        self.entitlements.store(Arc::new(entitlements));
        self.replaced.notify_waiters();
    }

    /// Returns once it is decided what it may have of this cloud.
    pub async fn decided(&self, cloud: CloudName) {
        loop {
            let change = self.change();
            if !self.entitlements().is_pending(cloud) {
                return;
            }
            change.await;
        }
    }

    /// The next change of what it may have after this call, whether or not it is being waited for by then.
    pub fn change(&self) -> Notified<'_> {
        self.replaced.notified()
    }
}

/// Longest User-Agent that is looked at; what tells an SDK stands at its beginning.
const AGENT: usize = 128;

/// How often a pod fetched credentials of each cloud.
#[derive(Debug, Default)]
pub struct Fetches([OfCloud; CloudName::ALL.len()]);

/// How often a pod fetched credentials of one cloud, and who asked last.
#[derive(Debug, Default)]
pub struct OfCloud {
    /// How often.
    pub count: AtomicU32,
    /// Whether it is to be noted who asks.
    pub is_asked: AtomicBool,
    /// Empty if it sends none.
    agent: Mutex<Option<Box<[u8]>>>,
}

impl Fetches {
    /// One more. Threads that count at once may lose one, which does no harm; an addition that others cannot interrupt would cost each
    /// request more than all else here.
    pub fn count(&self, cloud: CloudName) {
        let own = &self.0[cloud as usize];
        own.count.store(own.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Notes, where that is wanted, who asks by this head.
    pub fn note(&self, cloud: CloudName, head: &[u8]) {
        let own = &self.0[cloud as usize];
        if own.is_asked.load(Ordering::Relaxed) {
            own.note(head);
        }
    }

    /// Those of one cloud.
    pub fn of(&self, cloud: CloudName) -> &OfCloud {
        &self.0[cloud as usize]
    }
}

impl OfCloud {
    fn note(&self, head: &[u8]) {
        let agent = user_agent(head).unwrap_or_default();
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(agent[..agent.len().min(AGENT)].into());
        self.is_asked.store(false, Ordering::Relaxed);
    }

    /// Who asked, if that was wanted and somebody did since.
    pub fn take_agent(&self) -> Option<Box<[u8]>> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The value of that header in a head that was found to be one.
fn user_agent(head: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"user-agent:";
    let lines = head.split(|byte| *byte == b'\n');
    let value = |line: &'_ [u8]| line.get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME));
    lines.into_iter().find(|line| value(line)).map(|line| line[NAME.len()..].trim_ascii())
}

impl ServedPod for PodCaller {
    fn id(&self) -> ClientId {
        self.id
    }

    fn connections(&self) -> &Arc<Cap> {
        &self.connections
    }

    fn long_polls(&self) -> &Arc<Cap> {
        &self.long_polls
    }

    fn decided(&self, cloud: CloudName) -> Wait<'_, ()> {
        Box::pin(Self::decided(self, cloud))
    }

    fn fetched(&self, route: &Route, head: Option<&[u8]>) {
        let Some(cloud) = route.whose() else { return };
        self.fetches.count(cloud);
        if let Some(head) = head {
            self.fetches.note(cloud, head);
        }
    }

    fn noted(&self, route: &Route, head: &[u8]) {
        if let Some(cloud) = route.whose() {
            self.fetches.note(cloud, head);
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
        let (fetches, cloud) = (Fetches::default(), CloudName::ALL[0]);
        let (own, head) = (fetches.of(cloud), head(&"x".repeat(500)));
        fetches.note(cloud, head.as_bytes());
        assert!(own.take_agent().is_none(), "nothing is kept of the many");
        own.is_asked.store(true, Ordering::Relaxed);
        fetches.note(cloud, head.as_bytes());
        assert_eq!(own.take_agent().map(|agent| agent.len()), Some(AGENT));
        assert!(!own.is_asked.load(Ordering::Relaxed), "once");
    }

    /// There is one in each pod's record.
    #[test]
    fn a_pods_counts_are_small() {
        assert!(size_of::<OfCloud>() <= 40, "{}", size_of::<OfCloud>());
    }
}
