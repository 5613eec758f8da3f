//! From Kubernetes objects to "which pod is this?": pure, no I/O, no clock.
//!
//! [`PodIndex`] is the writer's table; [`PodSnapshot`] is the immutable view that every reader holds. One writer calls
//! [`PodIndex::apply_pod`], [`PodIndex::remove_pod`], [`PodIndex::replace_pods`] and the like, then [`PodIndex::snapshot`].
//!
//! **Who is at an address?** An answer hands out credentials, so the rule errs towards nobody:
//!
//! - An address names a pod only if exactly one live pod claims it. Two live claims are [`PodLookupError::Ambiguous`].
//! - A hostNetwork pod claims none: its traffic carries the node's address, as everybody else's on the node does.
//! - A pod in a terminal phase is gone. The kubelet reports Succeeded or Failed after the last container ended, so
//!   nobody can be calling, and the address is free for the next pod before the object disappears.
//! - A pod that is being deleted **keeps** its identity until it is gone, because graceful shutdown needs credentials
//!   (flushing to a bucket is the usual case). But the kubelet frees its address before the API server knows, and reports
//!   the next pod's address up to a second after that pod started. So while any pod of the node has no address yet, it
//!   may be the one that has this one, and the dying pod's address names nobody: a second of 503 while a pod starts, on
//!   new connections of a pod that shuts down, instead of the old pod's credentials for the new pod. A pod counts as such
//!   for [`SETTING_UP`], so that one that is stuck does not keep the address from every pod that shuts down after it. And
//!   only new decisions are withheld ([`PodSnapshot::pod_at`]); the address is still the dying pod's as far as anybody knows
//!   ([`PodSnapshot::claimant`]), and what was decided stands: a connection is kept by the network namespace that it began in,
//!   so whoever has the address next has none of it.
//! - The same grace ends by the wall clock, [`DELETION_LEEWAY`] after the deletion time (which the API server sets to
//!   the request plus the grace period): a pod that we were not told is gone, because the API server is away, does
//!   not answer for its address for ever. A node's clock that runs ahead by more than the leeway cuts graceful shutdown
//!   short, and nothing else.
//! - An address is that of a sandbox. Where the status says that there is none, or that another is to be made
//!   ([`Sandbox::Absent`]), the address beside it was the last one's: runtimes and kubelets keep it for a while, and it may be
//!   another pod's by now. It names nobody, until the kubelet tells of the next sandbox and its address in one.
//! - A reboot ends every sandbox, and what the API server then knows was written before it. So for an hour after the machine's
//!   start an address counts only if its status tells of something that came after that start
//!   ([`crate::object::PodStatus::written_after`]). For an hour, because by then every kubelet that starts pods has told of all
//!   of them, and because a clock that was set, or a machine that was halted from outside, must not cost a healthy pod its
//!   credentials for good.
//! - A pod without ServiceAccount (a mirror pod) has no identity to give, but it occupies its address like any other.
//!
//! **What is left, and only kernel attestation closes:** a pod that ends *by itself* frees its address some tens of
//! milliseconds before its status says so, and for as long as the API server is away. If the network plugin gives that very
//! address to the next pod at once, which plugins avoid (host-local goes round its range, the AWS plugin waits 30 s)
//! and exhausted ranges force, that pod is taken for the old one until the status arrives.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use seawall_core::annotations::{Annotations, RelatedAnnotations};
use seawall_core::{Pod, PodAnnotations, PodUid, ServiceAccount};

use crate::object::{PodObject, Sandbox};
use crate::related_objects::{RelatedKind, RelatedObject};
use crate::token_request::TokenCache;

mod object_cache;

use object_cache::{FetchTicket, ObjectCache};

/// How long after its deletion time a pod still counts as live. The API server itself accepts the tokens of a deleted pod
/// that long. Source: kubernetes, pkg/serviceaccount/claims.go, `jwt.DefaultLeeway`.
pub const DELETION_LEEWAY: Duration = Duration::from_secs(60);

/// How long after it was first told of, a pod without an address counts as one that may have just been given somebody's.
///
/// A kubelet sets out to make a pod's sandbox as soon as it hears of it; that takes seconds, on a node where many start at
/// once tens of them. One that has none after this long waits for something else (a volume, a network plugin, a place),
/// and has no more to do with a pod that ends at this moment than any other. When it does get its sandbox, what keeps it
/// from being taken for the last pod at its address is what keeps every pod from that whose predecessor ended by itself: the
/// kubelet tells of an end before it can have made the next sandbox (pkg/kubelet/kubelet.go, `SyncTerminatingPod`: stop the
/// sandbox, then set the terminal phase, since 1.27). By the wall clock, as ends are.
const SETTING_UP: Duration = Duration::from_secs(60);

/// One pod of this node, as readers see it. Never changes; a change is a new record.
#[derive(Clone, Debug)]
pub struct PodRecord {
    /// Who it is.
    pub pod: Pod,
    /// Its own addresses, canonical and sorted; those of the node are left out.
    pub addresses: Box<[IpAddr]>,
    /// Whether it shares the node's network, so that its address tells nothing.
    pub host_network: bool,
    /// Whether its deletion has been asked for.
    pub terminating: bool,
    /// What is told of it: its selected annotations, and those of what it belongs to.
    pub annotations: PodAnnotations,
    /// Dies with the pod, survives the record.
    pub(crate) tokens: Arc<TokenCache>,
}

impl PodRecord {
    fn tells_the_same_as(&self, other: &Self) -> bool {
        self.pod == other.pod
            && self.addresses == other.addresses
            && self.host_network == other.host_network
            && self.terminating == other.terminating
            && self.annotations == other.annotations
    }
}

/// Why no pod is named for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodLookupError {
    /// No live pod of this node has it, or the pod has no identity. It may be one that is not known *yet*.
    #[error("no pod of this node has this address")]
    Absent,
    /// More than one live pod has it, or may have it.
    #[error("more than one pod of this node may have this address")]
    Ambiguous,
}

/// Everything known about this node at one moment. Sorted slices: there is one after each event, and a map of the same is
/// three times as large.
#[derive(Debug, Default)]
pub struct PodSnapshot {
    version: u64,
    complete: bool,
    /// By UID.
    pods: Box<[Arc<PodRecord>]>,
    /// By address, each once.
    claims: Box<[(IpAddr, Claim)]>,
}

#[derive(Clone, Debug)]
enum Claim {
    One(Arc<PodRecord>),
    /// One that is being deleted, and another pod may have the address by now.
    Withheld(Arc<PodRecord>),
    /// One, and it has no identity to give.
    Nameless,
    Many,
}

impl PodSnapshot {
    /// Grows with every snapshot; what `newer_than` waits on.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether the node's pods have been listed at least once. Before that, an absent pod means nothing.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The pod that alone has `address`. IPv4-mapped IPv6 addresses count as IPv4.
    ///
    /// # Errors
    /// Nobody is named when nobody, or more than one, has it.
    pub fn pod_at(&self, address: IpAddr) -> Result<&Arc<PodRecord>, PodLookupError> {
        match self.claim(address) {
            Some(Claim::One(record)) => Ok(record),
            Some(Claim::Withheld(_) | Claim::Many) => Err(PodLookupError::Ambiguous),
            Some(Claim::Nameless) | None => Err(PodLookupError::Absent),
        }
    }

    /// The pod that alone claims `address`, though somebody may have it by now who has not been told of: good for keeping what
    /// was decided for that pod, not for deciding.
    pub fn claimant(&self, address: IpAddr) -> Option<&Arc<PodRecord>> {
        match self.claim(address) {
            Some(Claim::One(record) | Claim::Withheld(record)) => Some(record),
            Some(Claim::Nameless | Claim::Many) | None => None,
        }
    }

    /// The live pod with this UID, hostNetwork pods included.
    pub fn by_uid(&self, uid: &str) -> Option<&Arc<PodRecord>> {
        let at = self.pods.binary_search_by(|record| (*record.pod.uid.0).cmp(uid)).ok()?;
        self.pods.get(at)
    }

    /// Every live pod with an identity, in the order of their UIDs.
    pub fn pods(&self) -> impl ExactSizeIterator<Item = &Arc<PodRecord>> {
        self.pods.iter()
    }

    fn claim(&self, address: IpAddr) -> Option<&Claim> {
        let address = address.to_canonical();
        let at = self.claims.binary_search_by_key(&address, |(claimed, _)| *claimed).ok()?;
        self.claims.get(at).map(|(_, claim)| claim)
    }
}

/// An object to be read.
#[derive(Clone, Debug)]
pub(crate) struct ObjectFetch {
    pub(crate) object: RelatedObject,
    pub(crate) ticket: FetchTicket,
}

/// The writer's table.
#[derive(Debug, Default)]
pub(crate) struct PodIndex {
    version: u64,
    complete: bool,
    pods: HashMap<Arc<str>, Entry>,
    /// When a pod's deletion time, with leeway, has passed, for those whose deletion was asked for.
    ends: HashMap<Arc<str>, SystemTime>,
    /// Since which snapshot a pod has no address, for those that have none.
    setting_up: HashMap<Arc<str>, SystemTime>,
    /// When the machine started, unless that is long ago.
    boot: Option<SystemTime>,
    accounts: ObjectCache<ServiceAccount>,
    namespaces: Namespaces,
}

#[derive(Debug)]
enum Namespaces {
    /// Nobody asks about them, so that nothing of them is unknown: what each pod is told of its own, one for all.
    Unasked(RelatedAnnotations),
    Asked(ObjectCache<Arc<str>>),
}

impl Default for Namespaces {
    fn default() -> Self {
        Self::Unasked(RelatedAnnotations::read(Annotations::default()))
    }
}

#[derive(Debug)]
struct Entry {
    occupant: AddressHolder,
    /// Whether it is to get an address of its own and none was reported for the sandbox that it has or will have.
    lacks_address: bool,
    /// Whether what is known of it may be of a sandbox that the machine's start has ended.
    is_from_before: bool,
}

#[derive(Debug)]
enum AddressHolder {
    Pod(Arc<PodRecord>),
    Nameless(Box<[IpAddr]>),
}

impl Namespaces {
    fn reading(&mut self, name: &Arc<str>) -> RelatedAnnotations {
        match self {
            Self::Unasked(told) => told.clone(),
            Self::Asked(all) => all.get_or_request(name.clone()).1,
        }
    }

    fn asked(&mut self) -> Option<&mut ObjectCache<Arc<str>>> {
        match self {
            Self::Unasked(_) => None,
            Self::Asked(all) => Some(all),
        }
    }
}

impl PodIndex {
    /// As the default, and about namespaces it asks, too.
    pub(crate) fn with_namespaces() -> Self {
        Self { namespaces: Namespaces::Asked(ObjectCache::default()), ..Self::default() }
    }

    /// The pods of this node are exactly these.
    pub(crate) fn replace_pods(&mut self, pods: Vec<PodObject>) {
        let present: HashSet<String> = pods.iter().map(|pod| pod.metadata.uid.clone()).collect();
        self.pods.retain(|uid, _| present.contains(uid.as_ref()));
        self.ends.retain(|uid, _| present.contains(uid.as_ref()));
        pods.into_iter().for_each(|pod| self.apply_pod(&pod));
        self.complete = true;
    }

    /// A pod of this node is new or changed.
    pub(crate) fn apply_pod(&mut self, pod: &PodObject) {
        if pod.metadata.uid.is_empty() {
            return;
        }
        if is_terminal(&pod.status.phase) {
            self.remove_pod(pod);
            return;
        }
        let addresses = match pod.status.sandbox {
            Sandbox::Absent => Box::default(),
            Sandbox::Unknown | Sandbox::Ready(_) => pod.status.addresses().into_boxed_slice(),
        };
        let ends = pod.metadata.deletion_timestamp.map(|end| end.0 + DELETION_LEEWAY);
        // Whether or not it is being deleted: its sandbox may have been under way.
        let lacks_address = addresses.is_empty() && !pod.spec.host_network;
        // A status that tells of no time at all is no kubelet's, and there is nothing to judge it by.
        let told = pod.status.written_after().filter(|_| !pod.spec.host_network);
        let is_from_before = told.zip(self.boot).is_some_and(|(told, boot)| told < boot);
        let occupant = if pod.spec.service_account_name.is_empty() {
            AddressHolder::Nameless(if pod.spec.host_network { Box::default() } else { addresses })
        } else {
            AddressHolder::Pod(self.record(pod, addresses))
        };
        let uid = match &occupant {
            AddressHolder::Pod(record) => record.pod.uid.0.clone(),
            AddressHolder::Nameless(_) => pod.metadata.uid.as_str().into(),
        };
        match ends {
            Some(end) => self.ends.insert(uid.clone(), end),
            None => self.ends.remove(&uid),
        };
        self.pods.insert(uid, Entry { occupant, lacks_address, is_from_before });
    }

    /// A pod is gone.
    pub(crate) fn remove_pod(&mut self, pod: &PodObject) {
        self.pods.remove(pod.metadata.uid.as_str());
        self.ends.remove(pod.metadata.uid.as_str());
    }

    /// The old record where it still tells the same, else a new one that shares what it can.
    fn record(&mut self, pod: &PodObject, addresses: Box<[IpAddr]>) -> Arc<PodRecord> {
        let old = self.pods.get(pod.metadata.uid.as_str()).and_then(|entry| entry.record()).cloned();
        let (service_account, of_account) = self.accounts.get_or_request(ServiceAccount {
            namespace: pod.metadata.namespace.as_str().into(),
            name: pod.spec.service_account_name.as_str().into(),
        });
        let of_namespace = self.namespaces.reading(&service_account.namespace);
        let fresh = PodRecord {
            pod: Pod {
                uid: old
                    .as_ref()
                    .map_or_else(|| PodUid(pod.metadata.uid.as_str().into()), |old| old.pod.uid.clone()),
                name: old
                    .as_ref()
                    .map_or_else(|| pod.metadata.name.as_str().into(), |old| old.pod.name.clone()),
                service_account,
            },
            addresses,
            host_network: pod.spec.host_network,
            terminating: pod.metadata.deletion_timestamp.is_some(),
            annotations: PodAnnotations {
                pod: pod_annotations(pod, old.as_deref()),
                service_account: of_account,
                namespace: of_namespace,
            },
            tokens: old.as_ref().map_or_else(Arc::default, |old| old.tokens.clone()),
        };
        match old {
            Some(old) if old.tells_the_same_as(&fresh) => old,
            _ => Arc::new(fresh),
        }
    }

    /// The watch tells of an object somewhere in the cluster. Whether that is news of a pod here.
    pub(crate) fn apply_object(&mut self, object: &RelatedObject, told: &RelatedAnnotations) -> bool {
        let is_news = match object {
            RelatedObject::ServiceAccount(key) => self.accounts.apply(key, told),
            RelatedObject::Namespace(key) => self.namespaces.asked().is_some_and(|all| all.apply(key, told)),
        };
        if is_news {
            self.tell_pods(object, told);
        }
        is_news
    }

    /// A fetch has brought an answer. Ignored if its ticket was voided. Whether that is news of a pod here.
    pub(crate) fn apply_fetched(
        &mut self,
        ObjectFetch { object, ticket }: &ObjectFetch,
        told: &RelatedAnnotations,
    ) -> bool {
        let is_news = match object {
            RelatedObject::ServiceAccount(key) => self.accounts.apply_fetched(key, ticket, told),
            RelatedObject::Namespace(key) => {
                self.namespaces.asked().is_some_and(|all| all.apply_fetched(key, ticket, told))
            }
        };
        if is_news {
            self.tell_pods(object, told);
        }
        is_news
    }

    fn tell_pods(&mut self, object: &RelatedObject, told: &RelatedAnnotations) {
        let users = self.pods.values_mut().filter_map(|entry| match &mut entry.occupant {
            AddressHolder::Pod(record) if object.applies_to(&record.pod) => Some(record),
            _ => None,
        });
        for record in users {
            let mut fresh = (**record).clone();
            match object.kind() {
                RelatedKind::ServiceAccount => fresh.annotations.service_account = told.clone(),
                RelatedKind::Namespace => fresh.annotations.namespace = told.clone(),
            }
            *record = Arc::new(fresh);
        }
    }

    /// The watch of a kind begins from now, so that all of it is read again.
    pub(crate) fn watch_started(&mut self, kind: RelatedKind) {
        match kind {
            RelatedKind::ServiceAccount => self.accounts.refetch_all(),
            RelatedKind::Namespace => self.namespaces.asked().into_iter().for_each(ObjectCache::refetch_all),
        }
    }

    /// The objects to read now. Each is handed out once.
    pub(crate) fn take_fetches(&mut self) -> Vec<ObjectFetch> {
        let accounts = self.accounts.take_fetches();
        let accounts =
            accounts.map(|(key, ticket)| ObjectFetch { object: RelatedObject::ServiceAccount(key), ticket });
        let namespaces = self.namespaces.asked().into_iter().flat_map(ObjectCache::take_fetches);
        let namespaces =
            namespaces.map(|(key, ticket)| ObjectFetch { object: RelatedObject::Namespace(key), ticket });
        accounts.chain(namespaces).collect()
    }

    /// What is applied from here on is judged by when the machine started; `None` is long ago, and judges nothing any more. Whether
    /// what was applied before is judged in another way now.
    pub(crate) fn set_boot_time(&mut self, boot: Option<SystemTime>) -> bool {
        let is_another = self.boot.is_some() != boot.is_some();
        self.boot = boot;
        is_another
    }

    /// The next snapshot, as of `now`: without the pods whose end has passed. Forgets what nobody uses.
    pub(crate) fn snapshot(&mut self, now: SystemTime) -> PodSnapshot {
        self.version += 1;
        self.note_setting_up(now);
        let is_withheld = self.is_somebody_setting_up(now);
        let live = || self.pods.iter().filter(|(uid, _)| self.is_live(uid, now));
        let mut pods: Vec<_> = live().filter_map(|(_, entry)| entry.record()).cloned().collect();
        pods.sort_unstable_by(|a, b| a.pod.uid.0.cmp(&b.pod.uid.0));
        let mut claims = Vec::with_capacity(self.pods.len());
        for (uid, entry) in live() {
            let is_withheld = is_withheld && self.ends.contains_key(uid);
            claims.extend(self.claims(entry).iter().map(|address| (*address, entry.claim(is_withheld))));
        }
        claims.sort_unstable_by_key(|(address, _)| *address);
        claims.dedup_by(|(next, _), (address, claim)| {
            let is_same = next == address;
            if is_same {
                *claim = Claim::Many;
            }
            is_same
        });
        self.forget_unused();
        let (version, complete) = (self.version, self.complete);
        PodSnapshot { version, complete, pods: pods.into(), claims: claims.into() }
    }

    /// The addresses that a pod has to itself, as far as it knows.
    fn claims<'e>(&self, entry: &'e Entry) -> &'e [IpAddr] {
        match &entry.occupant {
            _ if self.is_stale(entry) => &[],
            AddressHolder::Pod(record) if record.host_network => &[],
            AddressHolder::Pod(record) => &record.addresses,
            AddressHolder::Nameless(claims) => claims,
        }
    }

    fn is_stale(&self, entry: &Entry) -> bool {
        entry.is_from_before && self.boot.is_some()
    }

    fn note_setting_up(&mut self, now: SystemTime) {
        let mut before = std::mem::take(&mut self.setting_up);
        let lacking = self.pods.iter().filter(|(_, entry)| entry.lacks_address || self.is_stale(entry));
        let since = lacking.map(|(uid, _)| before.remove_entry(uid).unwrap_or_else(|| (uid.clone(), now)));
        self.setting_up = since.collect();
    }

    fn is_somebody_setting_up(&self, now: SystemTime) -> bool {
        let mut recent = self.setting_up.iter().filter(|(_, since)| now < **since + SETTING_UP);
        recent.any(|(uid, _)| self.is_live(uid, now))
    }

    fn is_live(&self, uid: &str, now: SystemTime) -> bool {
        self.ends.get(uid).is_none_or(|end| now < *end)
    }

    fn forget_unused(&mut self) {
        let records = self.pods.values().filter_map(Entry::record);
        let used: HashSet<&ServiceAccount> = records.map(|record| &record.pod.service_account).collect();
        self.accounts.retain(|account| used.contains(account));
        if let Some(namespaces) = self.namespaces.asked() {
            let used: HashSet<&str> = used.iter().map(|account| &*account.namespace).collect();
            namespaces.retain(|name| used.contains(&**name));
        }
    }

    /// When something changes by time alone: a pod's end passes, or one counts as stuck. Then a new snapshot is due.
    pub(crate) fn next_change_at(&self, now: SystemTime) -> Option<SystemTime> {
        let ends = self.ends.values().copied();
        let stuck = self.setting_up.values().map(|since| *since + SETTING_UP);
        ends.chain(stuck).filter(|end| *end > now).min()
    }
}

impl Entry {
    fn record(&self) -> Option<&Arc<PodRecord>> {
        match &self.occupant {
            AddressHolder::Pod(record) => Some(record),
            AddressHolder::Nameless(_) => None,
        }
    }

    /// `is_withheld`: it ends, and somebody may have been given its address.
    fn claim(&self, is_withheld: bool) -> Claim {
        match self.record() {
            None => Claim::Nameless,
            Some(record) if is_withheld => Claim::Withheld(record.clone()),
            Some(record) => Claim::One(record.clone()),
        }
    }
}

/// A pod's own annotations: those of its last record where they are the same, so that a change of state copies none.
fn pod_annotations(pod: &PodObject, old: Option<&PodRecord>) -> Annotations {
    let new = &pod.metadata.annotations;
    old.map(|old| &old.annotations.pod).filter(|old| *old == new).unwrap_or(new).clone()
}

/// Kubernetes API reference, PodPhase: no container of the pod will run again.
fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

#[cfg(test)]
mod tests;
