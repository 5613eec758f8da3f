//! Maps addresses to pods. This module does no I/O and reads no clock.
//!
//! [`PodIndex`] is the snapshot writer's table; [`PodSnapshot`] is the immutable view for all readers. The snapshot writer
//! updates the index with methods such as [`PodIndex::apply_pod`], [`PodIndex::remove_pod`] and [`PodIndex::replace_pods`], and
//! creates a snapshot with [`PodIndex::build_snapshot`].
//!
//! **Which pod has an address?** The answer decides which pod gets credentials. If the answer is uncertain, the address
//! identifies no pod. The rules:
//!
//! - A pod *claims* the addresses in its status. An address identifies a pod only if exactly one live pod claims the address.
//!   If two live pods claim the address, the lookup fails with [`PodLookupError::Ambiguous`].
//! - A hostNetwork pod claims no address, because it shares the node's address with other processes on the node.
//! - A pod in a terminal phase (Succeeded or Failed) counts as gone. The kubelet reports a terminal phase after the pod's last
//!   container has ended, so the pod sends no more requests. Another pod can get the address before the API server deletes the
//!   object of the ended pod.
//! - A pod that is being deleted **keeps** its identity until it is gone. The pod needs credentials during its graceful
//!   shutdown, usually to flush data to a bucket. But the kubelet frees the pod's address before it reports the pod's end. The
//!   kubelet reports the next pod's address up to a second after the next pod started. So while the status of any pod on the
//!   node has no address, that pod could already have the address of the ending pod. During this time, the ending pod's address
//!   identifies no pod. The rule has a cost: while a pod starts, new connections of a pod that shuts down get 503 for about a
//!   second. In return, the new pod never gets the old pod's credentials. A pod without an address has this effect only for the
//!   time [`SETTING_UP`]. Otherwise one pod that never gets an address would block the address of every pod that shuts down
//!   later. The rule affects only new decisions ([`PodSnapshot::pod_at`]). The ending pod stays the last known holder of the
//!   address ([`PodSnapshot::claimant`]), and its open connections keep their identity. A connection belongs to the network
//!   namespace in which it began, so the next pod at the address does not inherit the old pod's connections.
//! - A pod that is being deleted loses its address 60 s after its deletion time ([`DELETION_LEEWAY`]), by the node's wall
//!   clock. The API server sets the deletion time to the time of the delete request plus the grace period. Without this rule,
//!   the claim of an ended pod would last as long as the API server is unreachable. If the node's clock runs ahead by more than
//!   the leeway, the agent stops serving the pod during its graceful shutdown; nothing worse happens.
//! - An address belongs to a pod sandbox. [`SandboxCondition::Absent`] means that the pod has no sandbox, or that the kubelet
//!   will create another sandbox. The address in such a status belonged to the previous sandbox. Runtimes and kubelets report
//!   such an address for a while, but another pod could already have the address. The address identifies no pod until the
//!   kubelet reports the next sandbox and its address together.
//! - A reboot ends every sandbox, but the API server still reports the statuses from before the reboot. So for an hour after
//!   the machine's start, an address counts only if the pod's status contains a time after that start
//!   ([`crate::object::PodStatus::earliest_write_time`]). The rule ends after an hour for two reasons. First, by then a working
//!   kubelet has reported all its pods. Second, a clock change or a suspended machine must not take a healthy pod's credentials
//!   away permanently.
//! - A pod without a ServiceAccount (a mirror pod) has no identity, but it claims its address like any other pod.
//!
//! **Remaining gap, which only kernel attestation closes:** when a pod ends *by itself*, its address is free before the API
//! server reports the pod's end. The gap lasts some tens of milliseconds, or as long as the API server is unreachable. In this
//! gap, the network plugin could give the same address to the next pod. Then the agent treats the next pod as the old pod until
//! the report arrives. Network plugins avoid such reuse unless their address range is exhausted. The plugin host-local first
//! assigns the rest of its range. The AWS plugin waits 30 s before it reuses an address.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use seawall_core::annotations::{Annotations, RelatedAnnotations};
use seawall_core::credential_variables::CredentialVariables;
use seawall_core::{Pod, PodAnnotations, PodUid, ServiceAccount};

use crate::object::{PodObject, SandboxCondition};
use crate::related_objects::{RelatedObject, RelatedObjectKind};
use crate::token_request::TokenCache;

mod object_cache;

use object_cache::{FetchTicket, ObjectCache};

/// The time for which a pod still counts as live after its deletion time. The API server accepts the tokens of a deleted pod
/// for the same time. Source: kubernetes, pkg/serviceaccount/claims.go, `jwt.DefaultLeeway`.
pub const DELETION_LEEWAY: Duration = Duration::from_secs(60);

/// The time during which a pod without an address in its status could already have the address of an ending pod. The time
/// starts with the first snapshot that shows the pod without an address.
///
/// A kubelet starts to create a pod's sandbox as soon as it learns of the pod. The creation takes seconds, or tens of seconds
/// on a node where many pods start at once. A pod that has no sandbox after [`SETTING_UP`] waits for something else, such as a
/// volume, a network plugin or free resources. Such a pod does not wait for the ending pod's address. If the pod gets this
/// address later, only the remaining gap in the module documentation applies. The kubelet reports the end of a pod before it
/// can create the next sandbox. Since 1.27, it stops the sandbox and then sets the terminal phase (pkg/kubelet/kubelet.go,
/// `SyncTerminatingPod`). The agent measures [`SETTING_UP`] by the wall clock, like deletion times.
const SETTING_UP: Duration = Duration::from_secs(60);

/// One pod of this node, as readers see it. A record is immutable; each change creates a new record.
#[derive(Clone, Debug)]
pub struct PodRecord {
    /// The pod's UID, name and ServiceAccount.
    pub pod: Pod,
    /// The pod's own addresses, canonical and sorted. The list omits the node's addresses.
    pub addresses: Box<[IpAddr]>,
    /// True if the pod shares the node's network, so that its address does not identify the pod.
    pub uses_host_network: bool,
    /// The variables with which the pod's containers find credentials without the agent. A pod's containers keep their variables, so these never change.
    pub credential_variables: CredentialVariables,
    /// The time at which the first of the pod's running containers started, as the kubelet reports it, in seconds since 1970. Kubernetes
    /// has no smaller unit here, and the agent stores this for each pod.
    pub(crate) running_since_seconds: Option<NonZeroU32>,
    /// True if a client has asked the API server to delete the pod.
    pub is_terminating: bool,
    /// The selected annotations of the pod, its ServiceAccount and its namespace.
    pub annotations: PodAnnotations,
    /// The pod's cached tokens. A new record of the pod shares the tokens. The agent drops the tokens when the pod is gone.
    pub(crate) token_cache: Arc<TokenCache>,
}

/// Returns the seconds since 1970, or `None` for a time before. A time after 2106 counts as 2106.
fn seconds_since_epoch(time: SystemTime) -> Option<NonZeroU32> {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    NonZeroU32::new(u32::try_from(seconds).unwrap_or(u32::MAX))
}

impl PodRecord {
    /// Returns the time at which the first of the pod's running containers started, or `None` if none runs.
    pub fn running_since(&self) -> Option<SystemTime> {
        let seconds = self.running_since_seconds?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.get().into()))
    }

    fn tells_the_same_as(&self, other: &Self) -> bool {
        self.pod == other.pod
            && self.addresses == other.addresses
            && self.uses_host_network == other.uses_host_network
            && self.is_terminating == other.is_terminating
            && self.running_since_seconds == other.running_since_seconds
            && self.annotations == other.annotations
    }
}

/// The reason why a lookup by address finds no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodLookupError {
    /// No live pod of this node has the address. A later snapshot can contain a pod with the address.
    #[error("no pod of this node has this address")]
    Absent,
    /// Only one pod claims the address, and it has no ServiceAccount. Only static pods have none.
    #[error("the pod at this address is a static pod, which has no ServiceAccount")]
    NoServiceAccount,
    /// More than one live pod may have the address.
    #[error("more than one pod of this node may have this address")]
    Ambiguous,
}

/// Holds the known pods of this node at one moment. The snapshot uses sorted slices, because maps would be three times as large
/// and most pod events create a new snapshot.
#[derive(Debug, Default)]
pub struct PodSnapshot {
    version: u64,
    complete: bool,
    /// The live pods with an identity, sorted by UID.
    pods: Box<[Arc<PodRecord>]>,
    /// The claimed addresses, sorted. Each address occurs once.
    claims: Box<[(IpAddr, Claim)]>,
}

#[derive(Clone, Debug)]
enum Claim {
    One(Arc<PodRecord>),
    /// Only one pod claims the address. The pod is being deleted, and another pod could already have the address.
    MaybeReassigned(Arc<PodRecord>),
    /// Only one pod claims the address, and this pod has no identity.
    PodWithoutIdentity,
    Many,
}

impl PodSnapshot {
    /// Returns a number that grows with every snapshot; [`crate::NodePods::wait_for_newer`] waits for a larger number.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// True if the API server has listed the node's pods at least once. Before that, the node can have pods that the snapshot
    /// lacks.
    pub fn has_complete_pod_list(&self) -> bool {
        self.complete
    }

    /// Returns the only pod that has `address`. IPv4-mapped IPv6 addresses count as IPv4.
    ///
    /// # Errors
    /// No known pod has the address, or more than one pod may have the address.
    pub fn pod_at(&self, address: IpAddr) -> Result<&Arc<PodRecord>, PodLookupError> {
        match self.claim(address) {
            Some(Claim::One(record)) => Ok(record),
            Some(Claim::MaybeReassigned(_) | Claim::Many) => Err(PodLookupError::Ambiguous),
            Some(Claim::PodWithoutIdentity) => Err(PodLookupError::NoServiceAccount),
            None => Err(PodLookupError::Absent),
        }
    }

    /// Returns the only known pod that claims `address`, even if another pod could already have the address. Use the result to
    /// keep an earlier decision for that pod, not to make a new decision.
    pub fn claimant(&self, address: IpAddr) -> Option<&Arc<PodRecord>> {
        match self.claim(address) {
            Some(Claim::One(record) | Claim::MaybeReassigned(record)) => Some(record),
            Some(Claim::PodWithoutIdentity | Claim::Many) | None => None,
        }
    }

    /// Returns the live pod with this UID. The function also finds hostNetwork pods.
    pub fn pod_by_uid(&self, uid: &str) -> Option<&Arc<PodRecord>> {
        let at = self.pods.binary_search_by(|record| (*record.pod.uid.0).cmp(uid)).ok()?;
        self.pods.get(at)
    }

    /// Returns all live pods with an identity, sorted by UID.
    pub fn pods(&self) -> impl ExactSizeIterator<Item = &Arc<PodRecord>> {
        self.pods.iter()
    }

    /// Returns the number of pods on the node's network, by namespace. Static pods without a ServiceAccount do not count.
    pub fn host_network_pods_by_namespace(&self) -> BTreeMap<Arc<str>, usize> {
        let mut counts = BTreeMap::new();
        for record in self.pods().filter(|record| record.uses_host_network) {
            *counts.entry(record.pod.service_account.namespace.clone()).or_default() += 1;
        }
        counts
    }

    fn claim(&self, address: IpAddr) -> Option<&Claim> {
        let address = address.to_canonical();
        let at = self.claims.binary_search_by_key(&address, |(claimed, _)| *claimed).ok()?;
        self.claims.get(at).map(|(_, claim)| claim)
    }
}

/// A request to fetch one ServiceAccount or namespace.
#[derive(Clone, Debug)]
pub(crate) struct ObjectFetch {
    pub(crate) object: RelatedObject,
    pub(crate) ticket: FetchTicket,
}

/// The snapshot writer's table of this node's pods, with their ServiceAccounts and namespaces.
#[derive(Debug, Default)]
pub(crate) struct PodIndex {
    version: u64,
    complete: bool,
    pods: HashMap<Arc<str>, Entry>,
    /// Maps the UID of each pod that is being deleted to the pod's end: the deletion time plus [`DELETION_LEEWAY`].
    ends: HashMap<Arc<str>, SystemTime>,
    /// Maps the UID of each pod without an address to the time of the first snapshot that showed this state.
    setting_up: HashMap<Arc<str>, SystemTime>,
    /// The time of the machine's start; `None` if the start is more than an hour ago.
    boot: Option<SystemTime>,
    accounts: ObjectCache<ServiceAccount>,
    namespaces: Namespaces,
}

#[derive(Debug)]
enum Namespaces {
    /// No cloud selects annotation keys of namespaces. All pods share this value. It has no annotations, and the code treats it
    /// as already read.
    NotWatched(RelatedAnnotations),
    Watched(ObjectCache<Arc<str>>),
}

impl Default for Namespaces {
    fn default() -> Self {
        Self::NotWatched(RelatedAnnotations::of_object(Annotations::default()))
    }
}

#[derive(Debug)]
struct Entry {
    occupant: AddressHolder,
    /// True if the pod needs its own address but its status has no address for its present or next sandbox.
    lacks_address: bool,
    /// True if the pod's status may describe a sandbox from before the machine's start.
    is_from_before: bool,
}

#[derive(Debug)]
enum AddressHolder {
    Pod(Arc<PodRecord>),
    PodWithoutIdentity(Box<[IpAddr]>),
}

impl Namespaces {
    fn reading(&mut self, name: &Arc<str>) -> RelatedAnnotations {
        match self {
            Self::NotWatched(told) => told.clone(),
            Self::Watched(all) => all.get_or_request(name.clone()).1,
        }
    }

    fn asked(&mut self) -> Option<&mut ObjectCache<Arc<str>>> {
        match self {
            Self::NotWatched(_) => None,
            Self::Watched(all) => Some(all),
        }
    }
}

impl PodIndex {
    /// Creates an empty index that also requests namespaces.
    pub(crate) fn tracking_namespaces() -> Self {
        Self { namespaces: Namespaces::Watched(ObjectCache::default()), ..Self::default() }
    }

    /// Replaces all pods of this node with the given pods.
    pub(crate) fn replace_pods(&mut self, pods: Vec<PodObject>) {
        let present: HashSet<String> = pods.iter().map(|pod| pod.metadata.uid.clone()).collect();
        self.pods.retain(|uid, _| present.contains(uid.as_ref()));
        self.ends.retain(|uid, _| present.contains(uid.as_ref()));
        pods.into_iter().for_each(|pod| self.apply_pod(&pod));
        self.complete = true;
    }

    /// Applies a new or changed pod of this node.
    pub(crate) fn apply_pod(&mut self, pod: &PodObject) {
        if pod.metadata.uid.is_empty() {
            return;
        }
        if is_terminal(&pod.status.phase) {
            self.remove_pod(pod);
            return;
        }
        let addresses = match pod.status.sandbox {
            SandboxCondition::Absent => Box::default(),
            SandboxCondition::Unknown | SandboxCondition::Ready(_) => {
                pod.status.addresses().into_boxed_slice()
            }
        };
        let ends = pod.metadata.deletion_timestamp.map(|end| end.0 + DELETION_LEEWAY);
        // A pod that is being deleted can lack an address too, because the kubelet may still be creating its sandbox.
        let lacks_address = addresses.is_empty() && !pod.spec.host_network;
        // A status without any time does not come from a kubelet, and the index cannot know the status's age.
        let told = pod.status.earliest_write_time().filter(|_| !pod.spec.host_network);
        let is_from_before = told.zip(self.boot).is_some_and(|(told, boot)| told < boot);
        let occupant = if pod.spec.service_account_name.is_empty() {
            AddressHolder::PodWithoutIdentity(if pod.spec.host_network { Box::default() } else { addresses })
        } else {
            AddressHolder::Pod(self.record(pod, addresses))
        };
        let uid = match &occupant {
            AddressHolder::Pod(record) => record.pod.uid.0.clone(),
            AddressHolder::PodWithoutIdentity(_) => pod.metadata.uid.as_str().into(),
        };
        match ends {
            Some(end) => self.ends.insert(uid.clone(), end),
            None => self.ends.remove(&uid),
        };
        self.pods.insert(uid, Entry { occupant, lacks_address, is_from_before });
    }

    /// Removes a pod that is gone.
    pub(crate) fn remove_pod(&mut self, pod: &PodObject) {
        self.pods.remove(pod.metadata.uid.as_str());
        self.ends.remove(pod.metadata.uid.as_str());
    }

    /// Returns the old record if its content is unchanged. Otherwise returns a new record that shares the old strings and tokens.
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
            uses_host_network: pod.spec.host_network,
            credential_variables: pod.spec.containers.variables,
            running_since_seconds: pod.status.running_since().and_then(seconds_since_epoch),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            annotations: PodAnnotations {
                own_annotations: pod_annotations(pod, old.as_deref()),
                service_account: of_account,
                namespace: of_namespace,
            },
            token_cache: old.as_ref().map_or_else(Arc::default, |old| old.token_cache.clone()),
        };
        match old {
            Some(old) if old.tells_the_same_as(&fresh) => old,
            _ => Arc::new(fresh),
        }
    }

    /// Applies a watch event about any ServiceAccount or namespace of the cluster. Returns `true` if the event changes the
    /// record of a pod of this node.
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

    /// Applies the result of a fetch if the fetch's ticket is still valid. Returns `true` if the result changes the record of a
    /// pod of this node.
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
                RelatedObjectKind::ServiceAccount => fresh.annotations.service_account = told.clone(),
                RelatedObjectKind::Namespace => fresh.annotations.namespace = told.clone(),
            }
            *record = Arc::new(fresh);
        }
    }

    /// Requests a fetch of each known object of this kind, because the new watch does not report changes from before its start.
    pub(crate) fn refetch_objects(&mut self, kind: RelatedObjectKind) {
        match kind {
            RelatedObjectKind::ServiceAccount => self.accounts.refetch_all(),
            RelatedObjectKind::Namespace => {
                self.namespaces.asked().into_iter().for_each(ObjectCache::refetch_all);
            }
        }
    }

    /// Returns the objects to fetch now, each only once.
    pub(crate) fn take_related_object_fetches(&mut self) -> Vec<ObjectFetch> {
        let accounts = self.accounts.take_fetches();
        let accounts =
            accounts.map(|(key, ticket)| ObjectFetch { object: RelatedObject::ServiceAccount(key), ticket });
        let namespaces = self.namespaces.asked().into_iter().flat_map(ObjectCache::take_fetches);
        let namespaces =
            namespaces.map(|(key, ticket)| ObjectFetch { object: RelatedObject::Namespace(key), ticket });
        accounts.chain(namespaces).collect()
    }

    /// Sets the time of the machine's start. The index then ignores addresses in statuses that were written before that time.
    /// `None` turns this check off, because the start is long ago. Returns `true` if the call turns the check on or off.
    pub(crate) fn set_boot_time(&mut self, boot: Option<SystemTime>) -> bool {
        let is_another = self.boot.is_some() != boot.is_some();
        self.boot = boot;
        is_another
    }

    /// Creates the next snapshot for the time `now`, without pods that have ended. Forgets ServiceAccounts and namespaces that
    /// no pod uses.
    pub(crate) fn build_snapshot(&mut self, now: SystemTime) -> PodSnapshot {
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

    /// Returns the addresses that this pod claims, according to its status.
    fn claims<'e>(&self, entry: &'e Entry) -> &'e [IpAddr] {
        match &entry.occupant {
            _ if self.is_stale(entry) => &[],
            AddressHolder::Pod(record) if record.uses_host_network => &[],
            AddressHolder::Pod(record) => &record.addresses,
            AddressHolder::PodWithoutIdentity(claims) => claims,
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

    /// Returns the next time at which the last snapshot becomes outdated without an event. At that time, a pod that is being
    /// deleted reaches its end, or [`SETTING_UP`] ends for a pod without an address.
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
            AddressHolder::PodWithoutIdentity(_) => None,
        }
    }

    /// Returns the pod's claim on its addresses. `is_withheld` means that the pod is being deleted and another pod may have its
    /// address.
    fn claim(&self, is_withheld: bool) -> Claim {
        match self.record() {
            None => Claim::PodWithoutIdentity,
            Some(record) if is_withheld => Claim::MaybeReassigned(record.clone()),
            Some(record) => Claim::One(record.clone()),
        }
    }
}

/// Returns the pod's own annotations. Reuses the annotations of the last record if they are equal, so that a status change
/// copies no annotations.
fn pod_annotations(pod: &PodObject, old: Option<&PodRecord>) -> Annotations {
    let new = &pod.metadata.annotations;
    old.map(|old| &old.annotations.own_annotations).filter(|old| *old == new).unwrap_or(new).clone()
}

/// True if no container of the pod will run again (Kubernetes API reference, PodPhase).
fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

#[cfg(test)]
mod tests;
