//! The broker's client for one pod. The client serves only the pod's own principals.
//!
//! [`PodLeaseClient`] ensures that a pod gets only its own credentials. The agent creates one client for each attested pod. The
//! client builds every principal from that pod's own ServiceAccount and entitlement, so no request can name another pod's
//! principal.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Lease, Moment, Pod};

use crate::broker::Broker;
use crate::broker_state::BrokerState;
use crate::cache_entry::{CacheEntry, PodSubject};
use crate::credential_exchange::{EntitlementOf, RequestOf, TokenExchange};
use crate::debug_view::PrincipalView;
use crate::fetch_waiters::FetchResultChannel;
use crate::lease_error::LeaseError;
use crate::lease_lookup::LeaseRequester;
use crate::limiter::CallOwner;
use crate::principal::Principal;

/// The description of a pod for which the broker gets credentials.
#[derive(Debug)]
pub struct PodCredentialsSpec<E> {
    /// The pod.
    pub pod: Pod,
    /// The credentials that the pod is allowed to get from the cloud.
    pub entitlement: E,
    /// The source of the pod's Kubernetes tokens.
    pub subject_tokens: Arc<dyn SubjectTokens>,
}

/// One pod's client for its credentials. When the last client that uses a principal is dropped, the broker drops the principal's
/// lease.
#[derive(Debug)]
pub struct PodLeaseClient<X: TokenExchange> {
    shared: Arc<BrokerState<X>>,
    entitlement: EntitlementOf<X>,
    subject: Arc<PodSubject>,
    entries: ArcSwap<Vec<Arc<CacheEntry<X>>>>,
    /// The lock for writers of `entries`. Readers never wait.
    writer: Mutex<()>,
}

/// The progress of fetches that replace the credentials that a pod has.
#[derive(Clone, Debug, Default)]
pub struct RefetchProgress {
    /// The number of fetches that have begun.
    pub begun: usize,
    /// The number of fetches that brought a credential.
    pub fetched: usize,
    /// The error of the last fetch that failed.
    pub last_error: Option<LeaseError>,
}

impl RefetchProgress {
    fn record_end(&mut self, result: Result<(), LeaseError>) {
        match result {
            Ok(()) => self.fetched += 1,
            // The pod is not to get this credential any more, or has asked for too many others. Neither comes from the cloud.
            Err(LeaseError::NotEntitled(_) | LeaseError::TooManyNewCredentials { .. }) => self.begun -= 1,
            Err(error) => self.last_error = Some(error),
        }
    }
}

/// A watch on one credential. The watch reports each new lease of the credential.
#[derive(Debug)]
pub struct LeaseWatch(Option<WatchPosition>);

#[derive(Debug)]
struct WatchPosition {
    landings: Arc<FetchResultChannel>,
    /// The number of fetched leases at the last check.
    seen: u64,
}

impl LeaseWatch {
    /// Waits until a new lease arrives. A failed renewal does not end the wait. If the pod has not requested the credential, or
    /// if the credential's cache entry is dropped, the wait never ends.
    pub async fn changed(&mut self) {
        if let Some(WatchPosition { landings, seen }) = &mut self.0
            && let Ok(leases) = landings.wait_for_lease(*seen).await
        {
            *seen = leases;
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// This method is in this file because this file uses the file `broker`, and two files must not use each other.
impl<X: TokenExchange> Broker<X> {
    /// Returns a new client for one pod's credentials.
    pub fn new_pod_client(&self, spec: PodCredentialsSpec<EntitlementOf<X>>) -> Arc<PodLeaseClient<X>> {
        Arc::new(PodLeaseClient::new(self.shared_state(), spec))
    }
}

impl<X: TokenExchange> PodLeaseClient<X> {
    fn new(shared: Arc<BrokerState<X>>, spec: PodCredentialsSpec<EntitlementOf<X>>) -> Self {
        let BrokerState { settings, limiter, .. } = &*shared;
        let limits =
            shared.pod_limits.of_pod(&spec.pod.uid, shared.now(), settings, limiter, || shared.next_id());
        let subject = Arc::new(PodSubject { limits, pod: spec.pod, tokens: spec.subject_tokens });
        Self {
            shared,
            entitlement: spec.entitlement,
            subject,
            entries: ArcSwap::default(),
            writer: Mutex::default(),
        }
    }

    /// Returns the pod of this client.
    pub fn pod(&self) -> &Pod {
        &self.subject.pod
    }

    /// Returns the cached principals that this pod requested.
    /// The function reads only the pod's own cache entries, so the time to list all pods is proportional to the number of pods.
    pub fn principals(&self) -> Vec<PrincipalView<X::Principal>> {
        let own = |slot: &Arc<CacheEntry<X>>| PrincipalView::from_cache_entry(slot);
        self.entries.load().iter().map(own).collect()
    }

    /// Returns a cached lease that is fresh enough for a response. This function takes no lock, does no I/O and allocates no
    /// memory.
    pub fn cached_lease(&self, want: RequestOf<'_, X>, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        let slots = self.entries.load();
        let slot = slots.iter().find(|slot| slot.principal.matches_request(want))?;
        self.shared.lease_for_response(slot, now)
    }

    /// Returns the cached lease for operators' views. This function records no use and counts no response.
    pub fn peek(&self, want: RequestOf<'_, X>) -> Option<Arc<Lease<X::Credential>>> {
        self.entries.load().iter().find(|slot| slot.principal.matches_request(want))?.lease()
    }

    /// Returns a valid lease, and fetches a lease if necessary.
    /// All requests for the same principal share one upstream call, which continues even if the requests end.
    ///
    /// # Errors
    /// The error is the reason why there is no lease. The error comes at once, or after
    /// [`crate::BrokerSettings::max_request_wait`].
    pub async fn lease(&self, want: RequestOf<'_, X>) -> Result<Arc<Lease<X::Credential>>, LeaseError> {
        self.lease_for_request_at(want, self.shared.now()).await
    }

    /// Returns a lease like [`PodLeaseClient::lease`], for a request that arrived at `came` on the broker's clock.
    ///
    /// # Errors
    /// The error is the reason why there is no lease. The error comes at once, or [`crate::BrokerSettings::max_request_wait`]
    /// after `came`.
    pub async fn lease_for_request_at(
        &self,
        want: RequestOf<'_, X>,
        came: Moment,
    ) -> Result<Arc<Lease<X::Credential>>, LeaseError> {
        let (slot, is_new) = self.find_or_create_entry(want)?;
        // `find_or_create_entry` has already counted a new entry as a miss.
        let may_miss = || if is_new { Ok(()) } else { self.may_miss() };
        let asker = self.requester(&slot.principal);
        self.shared.get_or_fetch_lease(slot, asker, came, may_miss).await
    }

    /// True if this client gets its credentials from `broker`.
    pub fn uses_broker(&self, broker: &Broker<X>) -> bool {
        broker.is_backed_by_state(&self.shared)
    }

    /// Fetches each valid credential of `before`, an older client of the same pod, so that this client can replace `before`.
    /// For each credential, this method starts one fetch and waits until the fetch ends. This wait can be longer than the wait of
    /// a pod's request ([`crate::BrokerSettings::max_request_wait`]). The caller must limit the total time. Until then, `progress`
    /// tells how far the fetches are.
    pub async fn refetch_leases_of_previous_client(&self, before: &Self, progress: &Mutex<RefetchProgress>) {
        let held = before.principals().into_iter().filter(|view| view.lease_times.is_some());
        let mut held: Vec<_> = held.collect();
        held.sort_by_key(|view| std::cmp::Reverse(view.last_used));
        for principal in held.into_iter().map(|view| view.principal) {
            // In a full room, a further fetch would only evict a credential that was used later.
            let is_shared = || {
                X::Principal::of(&self.pod().service_account, &self.entitlement, principal.request())
                    .is_ok_and(|principal| self.shared.is_free_to_share(&principal))
            };
            if !self.shared.has_room_for_pod(self.entries.load().len()) && !is_shared() {
                continue;
            }
            let progress = || progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress().begun += 1;
            let result = self.fetch_until_end(principal.request()).await;
            progress().record_end(result);
        }
    }

    /// Fetches a lease like [`PodLeaseClient::lease`], but waits until the fetch has ended.
    async fn fetch_until_end(&self, want: RequestOf<'_, X>) -> Result<(), LeaseError> {
        let result = self.lease(want).await.map(drop);
        if !matches!(result, Err(LeaseError::TimedOut)) {
            return result;
        }
        if let Some(waiter) = self.find(want).and_then(|slot| slot.in_flight_waiter()) {
            waiter.wait().await.map_err(LeaseError::Failed)?;
        }
        // The wait also ends without an error if the fetch was given up.
        self.peek(want).map(drop).ok_or(LeaseError::TimedOut)
    }

    /// Watches one credential. If the pod has not requested the credential with [`PodLeaseClient::lease`] before, the watch
    /// reports nothing.
    pub fn watch_lease(&self, want: RequestOf<'_, X>) -> LeaseWatch {
        let watched = |slot: Arc<CacheEntry<X>>| {
            let landings = slot.fetch_result_channel();
            let seen = landings.lease_count();
            WatchPosition { landings, seen }
        };
        LeaseWatch(self.find(want).map(watched))
    }

    fn may_miss(&self) -> Result<(), LeaseError> {
        self.subject.limits.misses.take(self.shared.now()).map_err(|retry_after| {
            self.shared.counters.record_refused_by_own_limit();
            LeaseError::TooManyNewCredentials { retry_after }
        })
    }

    fn find(&self, want: RequestOf<'_, X>) -> Option<Arc<CacheEntry<X>>> {
        self.entries.load().iter().find(|slot| slot.principal.matches_request(want)).cloned()
    }

    /// Returns this pod's cache entry for `want`, and whether the entry is new for the pod.
    /// The entry comes from the broker, so pods with the same principal share it.
    fn find_or_create_entry(&self, want: RequestOf<'_, X>) -> Result<(Arc<CacheEntry<X>>, bool), LeaseError> {
        if let Some(slot) = self.find(want) {
            return Ok((slot, false));
        }
        let principal = X::Principal::of(&self.pod().service_account, &self.entitlement, want)?;
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = self.find(want) {
            return Ok((slot, false));
        }
        self.shared.check_may_queue(&self.requester(&principal))?;
        let mut slots: Vec<_> = self.entries.load().iter().cloned().collect();
        let evicted = self.entries_to_evict(&slots, &principal)?;
        // A new entry counts as a miss, even if it evicts another entry. Otherwise a pod could create and evict entries without
        // limit, and occupy the memory that all pods share.
        self.may_miss()?;
        for slot in evicted {
            slots.retain(|other| !Arc::ptr_eq(other, &slot));
            slot.remove_subject(&self.subject);
            self.shared.counters.record_evicted();
        }
        let slot = self.shared.cache_entry(principal);
        slot.add_subject(&self.subject);
        slots.push(slot.clone());
        self.entries.store(Arc::new(slots));
        Ok((slot, true))
    }

    fn requester(&self, principal: &X::Principal) -> LeaseRequester {
        let party = CallOwner {
            requester_id: self.subject.limits.requester_id,
            throttle_key: principal.throttle_key(),
        };
        let holds_nothing = self.entries.load().iter().all(|slot| slot.lease().is_none());
        LeaseRequester { call_owner: party, has_no_lease: holds_nothing }
    }

    /// Returns the least recently used cache entries, which the caller evicts to make room for one new entry.
    /// The result contains no entry with a fetch in flight. Otherwise a pod that requests new principals faster than the cloud
    /// responds would discard every response.
    ///
    /// If the room that all pods share is full, the pod gives up entries until one of them is freed, and keeps at least the guaranteed
    /// number with the new one. An entry that other pods use is not freed. A principal that other pods use takes no room.
    fn entries_to_evict(
        &self,
        slots: &[Arc<CacheEntry<X>>],
        wanted: &X::Principal,
    ) -> Result<Vec<Arc<CacheEntry<X>>>, LeaseError> {
        let settings = &self.shared.settings;
        let over = (slots.len() + 1).saturating_sub(settings.principals_per_pod.max(1));
        let is_full = !self.shared.has_room_for_pod(slots.len()) && !self.shared.is_free_to_share(wanted);
        let mut idle: Vec<_> = slots.iter().filter(|slot| !slot.is_fetching()).cloned().collect();
        idle.sort_by_key(|slot| slot.last_used());
        let spare = (slots.len() + 1).saturating_sub(settings.guaranteed_principals_per_pod.max(1));
        let freed = idle.iter().position(|slot| slot.has_one_pod()).map_or(spare, |place| place + 1);
        let paid = freed.min(spare).min(idle.len().max(1));
        let count = if is_full { over.max(paid) } else { over };
        if idle.len() < count {
            self.shared.counters.record_refused_by_own_limit();
            return Err(LeaseError::TooManyNewCredentials { retry_after: settings.first_retry_delay });
        }
        idle.truncate(count);
        Ok(idle)
    }
}
