//! A pod's client to the broker. It serves only the pod's own principals.
//!
//! This type separates the pods. The agent creates a client for an attested pod. The client builds every principal from that pod's
//! own ServiceAccount and entitlement. So no request can name another pod's principal.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Gcra, Lease, Moment, Pod};

use crate::broker::Broker;
use crate::broker_state::BrokerState;
use crate::cache_entry::{CacheEntry, PodSubject};
use crate::credential_exchange::{EntitlementOf, RequestOf, TokenExchange};
use crate::debug_view::PrincipalView;
use crate::fetch_waiters::FetchResults;
use crate::lease_error::LeaseError;
use crate::lease_lookup::LeaseRequester;
use crate::limiter::CallOwner;
use crate::principal::Principal;

/// The maximum number of waits for one credential in [`PodLeaseClient::refetch_all_from`].
/// Each wait takes up to [`crate::BrokerSettings::max_wait`]. Together they exceed the longest duration of a call.
const CATCHING_UP: u32 = 8;

/// The description of a pod that may get credentials.
#[derive(Debug)]
pub struct PodCredentialsSpec<E> {
    /// The pod.
    pub pod: Pod,
    /// The credentials that the pod may get from the cloud.
    pub entitlement: E,
    /// The source of the pod's Kubernetes tokens.
    pub subject_tokens: Arc<dyn SubjectTokens>,
}

/// One pod's client for its credentials. When the last client of a principal is dropped, the broker drops the lease.
#[derive(Debug)]
pub struct PodLeaseClient<X: TokenExchange> {
    shared: Arc<BrokerState<X>>,
    entitlement: EntitlementOf<X>,
    subject: Arc<PodSubject>,
    entries: ArcSwap<Vec<Arc<CacheEntry<X>>>>,
    /// The lock for writers of `entries`. Readers never wait.
    writer: Mutex<()>,
    misses: Gcra,
}

/// A watch on one credential. It reports each change of the credential.
#[derive(Debug)]
pub struct LeaseWatch(Option<WatchPosition>);

#[derive(Debug)]
struct WatchPosition {
    landings: Arc<FetchResults>,
    /// The number of leases at the last check.
    seen: u64,
}

impl LeaseWatch {
    /// Returns when a new lease has arrived. Never returns if the credential cannot change. A failed renewal is not a change.
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

/// This block is in this file because a pod client uses its broker's state. In the broker's file it would create a cycle between
/// the files.
impl<X: TokenExchange> Broker<X> {
    /// Returns a new client for one pod's credentials.
    pub fn pod_credentials(&self, spec: PodCredentialsSpec<EntitlementOf<X>>) -> Arc<PodLeaseClient<X>> {
        Arc::new(PodLeaseClient::new(self.state(), spec))
    }
}

impl<X: TokenExchange> PodLeaseClient<X> {
    fn new(shared: Arc<BrokerState<X>>, spec: PodCredentialsSpec<EntitlementOf<X>>) -> Self {
        let settings = &shared.settings;
        let misses = Gcra::new(settings.misses_per_second, settings.misses_at_once);
        let subject =
            Arc::new(PodSubject { requester: shared.next_id(), pod: spec.pod, tokens: spec.subject_tokens });
        Self {
            shared,
            entitlement: spec.entitlement,
            subject,
            entries: ArcSwap::default(),
            writer: Mutex::default(),
            misses,
        }
    }

    /// The pod.
    pub fn pod(&self) -> &Pod {
        &self.subject.pod
    }

    /// Returns the cached principals that this pod requested.
    /// It reads only the pod's own cache entries, so a listing of all pods takes linear time.
    pub fn principals(&self) -> Vec<PrincipalView<X::Principal>> {
        let own = |slot: &Arc<CacheEntry<X>>| PrincipalView::of(slot);
        self.entries.load().iter().map(own).collect()
    }

    /// Returns a valid cached lease. It takes no lock, does no I/O and allocates no memory.
    pub fn cached_lease(&self, want: RequestOf<'_, X>, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        let slots = self.entries.load();
        let slot = slots.iter().find(|slot| slot.principal.is_for(want))?;
        self.shared.hand_out(slot, now)
    }

    /// Returns the cached lease for operators' views. It neither records a use nor counts a response.
    pub fn peek(&self, want: RequestOf<'_, X>) -> Option<Arc<Lease<X::Credential>>> {
        self.entries.load().iter().find(|slot| slot.principal.is_for(want))?.lease()
    }

    /// Returns a valid lease, and fetches one if necessary. Any number of requests share one upstream call. The call continues even
    /// if the requests end.
    ///
    /// # Errors
    /// The reason why there is no lease, either now or after [`crate::BrokerSettings::max_wait`].
    pub async fn lease(&self, want: RequestOf<'_, X>) -> Result<Arc<Lease<X::Credential>>, LeaseError> {
        self.lease_received_after(want, self.shared.now()).await
    }

    /// Returns a lease like [`PodLeaseClient::lease`], for a request that arrived at `came` on the broker's clock.
    ///
    /// # Errors
    /// The reason why there is no lease, either now or [`crate::BrokerSettings::max_wait`] after `came`.
    pub async fn lease_received_after(
        &self,
        want: RequestOf<'_, X>,
        came: Moment,
    ) -> Result<Arc<Lease<X::Credential>>, LeaseError> {
        let (slot, is_new) = self.find_or_create_entry(want)?;
        // The first call of a new entry was already charged when the entry was created.
        let may_miss = || if is_new { Ok(()) } else { self.may_miss() };
        let asker = self.requester(&slot.principal);
        self.shared.lease(slot, asker, came, may_miss).await
    }

    /// True if this client gets its credentials from `broker`.
    pub fn is_from(&self, broker: &Broker<X>) -> bool {
        broker.is_backed_by(&self.shared)
    }

    /// Fetches all credentials that another client of the same pod holds, so this client can replace it.
    /// It fetches each credential once, and waits until the fetch has succeeded or failed. The caller must limit the total time.
    pub async fn refetch_all_from(&self, before: &Self) {
        let held = before.principals().into_iter().filter(|view| view.times.is_some());
        for principal in held.map(|view| view.principal) {
            for _ in 0..CATCHING_UP {
                // On a timeout the call is still in flight.
                if !matches!(self.lease(principal.request()).await, Err(LeaseError::TimedOut)) {
                    break;
                }
            }
        }
    }

    /// Watches one credential. The watch works only for credentials that were requested before with [`PodLeaseClient::lease`].
    pub fn watch_lease(&self, want: RequestOf<'_, X>) -> LeaseWatch {
        let watched = |slot: Arc<CacheEntry<X>>| {
            let landings = slot.results();
            let seen = landings.lease_count();
            WatchPosition { landings, seen }
        };
        LeaseWatch(self.find(want).map(watched))
    }

    fn may_miss(&self) -> Result<(), LeaseError> {
        self.misses.take(self.shared.now()).map_err(|retry_after| {
            self.shared.counters.rate_limited();
            LeaseError::RateLimited { retry_after }
        })
    }

    fn find(&self, want: RequestOf<'_, X>) -> Option<Arc<CacheEntry<X>>> {
        self.entries.load().iter().find(|slot| slot.principal.is_for(want)).cloned()
    }

    /// Returns this pod's cache entry for `want`, and whether the entry is new for the pod.
    /// The entry comes from the broker, so pods of one ServiceAccount share it.
    fn find_or_create_entry(&self, want: RequestOf<'_, X>) -> Result<(Arc<CacheEntry<X>>, bool), LeaseError> {
        if let Some(slot) = self.find(want) {
            return Ok((slot, false));
        }
        let principal = X::Principal::of(&self.pod().service_account, &self.entitlement, want)?;
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = self.find(want) {
            return Ok((slot, false));
        }
        self.shared.may_start(&self.requester(&principal))?;
        let mut slots: Vec<_> = self.entries.load().iter().cloned().collect();
        let evicted = self.entries_to_evict(&slots)?;
        // An eviction costs a permit. Otherwise a pod could invent principals without limit and churn the memory of all pods.
        self.may_miss()?;
        for slot in evicted {
            slots.retain(|other| !Arc::ptr_eq(other, &slot));
            slot.remove_subject(&self.subject);
            self.shared.counters.evicted();
        }
        let slot = self.shared.cache_entry(principal);
        slot.add_subject(&self.subject);
        slots.push(slot.clone());
        self.entries.store(Arc::new(slots));
        Ok((slot, true))
    }

    fn requester(&self, principal: &X::Principal) -> LeaseRequester {
        let party = CallOwner { requester: self.subject.requester, throttle_key: principal.throttle_key() };
        let holds_nothing = self.entries.load().iter().all(|slot| slot.lease().is_none());
        LeaseRequester { owner: party, holds_nothing }
    }

    /// Returns the cache entries to evict for one new entry: those unused for the longest time.
    /// It never evicts an entry with a call in flight. Otherwise a pod that invents principals faster than the cloud responds would
    /// discard every response.
    fn entries_to_evict(&self, slots: &[Arc<CacheEntry<X>>]) -> Result<Vec<Arc<CacheEntry<X>>>, LeaseError> {
        let settings = &self.shared.settings;
        let over = (slots.len() + 1).saturating_sub(settings.principals_per_pod.max(1));
        let mut idle: Vec<_> = slots.iter().filter(|slot| over > 0 && !slot.is_fetching()).cloned().collect();
        if idle.len() < over {
            self.shared.counters.rate_limited();
            return Err(LeaseError::RateLimited { retry_after: settings.retry_first });
        }
        idle.sort_by_key(|slot| slot.last_used());
        idle.truncate(over);
        Ok(idle)
    }
}
