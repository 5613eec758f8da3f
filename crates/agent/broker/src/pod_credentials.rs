//! What one pod may ask for: its own principals and nothing else.
//!
//! The type is the barrier. A holder is made for an attested pod; it builds every principal from that pod's own
//! ServiceAccount and entitlement, so no request, however it is spelled, names anybody else's.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Gcra, Lease, Moment, Pod};

use crate::broker::Broker;
use crate::broker_state::BrokerState;
use crate::cache_entry::{CacheEntry, PodSubject};
use crate::debug_view::PrincipalView;
use crate::exchange::{EntitlementOf, RequestOf, TokenExchange};
use crate::fetch_results::FetchResults;
use crate::lease_error::LeaseError;
use crate::limiter::CallOwner;
use crate::lookup::LeaseRequester;
use crate::principal::Principal;

/// How often one credential is waited for by who catches up, each time for [`crate::BrokerSettings::max_wait`]: longer than a call may take.
const CATCHING_UP: u32 = 8;

/// A pod that may hold credentials.
#[derive(Debug)]
pub struct PodCredentialsSpec<E> {
    /// The pod.
    pub pod: Pod,
    /// What it may have of the cloud.
    pub entitlement: E,
    /// Its Kubernetes token.
    pub subject_tokens: Arc<dyn SubjectTokens>,
}

/// One pod's way to its credentials. Dropping the last holder of a principal drops its lease.
#[derive(Debug)]
pub struct PodLeaseClient<X: TokenExchange> {
    shared: Arc<BrokerState<X>>,
    entitlement: EntitlementOf<X>,
    subject: Arc<PodSubject>,
    entries: ArcSwap<Vec<Arc<CacheEntry<X>>>>,
    /// Taken by writers of `slots`; readers never wait.
    writer: Mutex<()>,
    misses: Gcra,
}

/// Tells when a credential has changed.
#[derive(Debug)]
pub struct LeaseWatch(Option<WatchPosition>);

#[derive(Debug)]
struct WatchPosition {
    landings: Arc<FetchResults>,
    /// Leases that had come when last looked.
    seen: u64,
}

impl LeaseWatch {
    /// Returns when there is a lease that was not there before; never, if nothing can change. A renewal that fails
    /// changes nothing.
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

/// Here, because a holder asks its broker: the other way round the two files would need each other.
impl<X: TokenExchange> Broker<X> {
    /// One pod's way to its credentials.
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

    /// What this pod asked for and still may have in memory: its own slots, so listing every pod's is linear in what there is.
    pub fn principals(&self) -> Vec<PrincipalView<X::Principal>> {
        let own = |slot: &Arc<CacheEntry<X>>| PrincipalView::of(slot);
        self.entries.load().iter().map(own).collect()
    }

    /// A valid lease from memory. No lock, no I/O, no allocation.
    pub fn cached_lease(&self, want: RequestOf<'_, X>, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        let slots = self.entries.load();
        let slot = slots.iter().find(|slot| slot.principal.is_for(want))?;
        self.shared.hand_out(slot, now)
    }

    /// What is in memory, without noting a use or that anybody was answered with it: for operators to look at.
    pub fn peek(&self, want: RequestOf<'_, X>) -> Option<Arc<Lease<X::Credential>>> {
        self.entries.load().iter().find(|slot| slot.principal.is_for(want))?.lease()
    }

    /// A valid lease, fetched if need be. Any number of callers share one upstream call, and it outlives them.
    ///
    /// # Errors
    /// Why there is none, now or after [`crate::BrokerSettings::max_wait`].
    pub async fn lease(&self, want: RequestOf<'_, X>) -> Result<Arc<Lease<X::Credential>>, LeaseError> {
        self.lease_received_after(want, self.shared.now()).await
    }

    /// As [`PodLeaseClient::lease`], for a request that came at `came`, on the broker's clock, and has waited since.
    ///
    /// # Errors
    /// Why there is none, now or [`crate::BrokerSettings::max_wait`] after `came`.
    pub async fn lease_received_after(
        &self,
        want: RequestOf<'_, X>,
        came: Moment,
    ) -> Result<Arc<Lease<X::Credential>>, LeaseError> {
        let (slot, is_new) = self.find_or_create_entry(want)?;
        // A new slot's first call was paid for with the slot.
        let may_miss = || if is_new { Ok(()) } else { self.may_miss() };
        let asker = self.requester(&slot.principal);
        self.shared.lease(slot, asker, came, may_miss).await
    }

    /// Whether credentials come to it from this broker.
    pub fn is_from(&self, broker: &Broker<X>) -> bool {
        broker.is_backed_by(&self.shared)
    }

    /// Fetches what another holder of the same pod holds, so that this one can take its place. Each once, and waits until it is there
    /// or cannot be had; how long that may take in all is the caller's to bound.
    pub async fn refetch_all_from(&self, before: &Self) {
        let held = before.principals().into_iter().filter(|view| view.times.is_some());
        for principal in held.map(|view| view.principal) {
            for _ in 0..CATCHING_UP {
                // Slow is a call that is still under way.
                if !matches!(self.lease(principal.request()).await, Err(LeaseError::TimedOut)) {
                    break;
                }
            }
        }
    }

    /// Watches one credential. What has never been asked for is watched from its first [`PodLeaseClient::lease`] on.
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
            self.shared.counters.misses_refused();
            LeaseError::RateLimited { retry_after }
        })
    }

    fn find(&self, want: RequestOf<'_, X>) -> Option<Arc<CacheEntry<X>>> {
        self.entries.load().iter().find(|slot| slot.principal.is_for(want)).cloned()
    }

    /// This pod's slot for `want`, and whether it was made just now: from the broker's, which pods of one
    /// ServiceAccount share.
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
        // Making room for an invention costs a permit, or a pod could churn through everybody's memory for free.
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

    /// What is to go for one more: those unused longest. Never one whose call is under way: a pod that invents faster than the
    /// cloud answers would throw away every answer before it comes.
    fn entries_to_evict(&self, slots: &[Arc<CacheEntry<X>>]) -> Result<Vec<Arc<CacheEntry<X>>>, LeaseError> {
        let settings = &self.shared.settings;
        let over = (slots.len() + 1).saturating_sub(settings.principals_per_pod.max(1));
        let mut idle: Vec<_> = slots.iter().filter(|slot| over > 0 && !slot.is_fetching()).cloned().collect();
        if idle.len() < over {
            self.shared.counters.misses_refused();
            return Err(LeaseError::RateLimited { retry_after: settings.retry_first });
        }
        idle.sort_by_key(|slot| slot.last_used());
        idle.truncate(over);
        Ok(idle)
    }
}
