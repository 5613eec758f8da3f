//! The state that all parts of one cloud's broker share: settings, clock, limiter, and the cache entry of each principal in use.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use seawall_core::{Clock, Moment, fair_share};
use tokio::runtime::Handle;

use crate::cache_entry::{CacheEntry, ScheduleSender};
use crate::counters::BrokerCounters;
use crate::credential_exchange::TokenExchange;
use crate::fetch_log::FetchLog;
use crate::limiter::Limiter;
use crate::pod_limits::AllPodLimits;
use crate::renewal_schedule::ScheduleMessage;
use crate::settings::BrokerSettings;

#[derive(Debug)]
pub(crate) struct BrokerState<X: TokenExchange> {
    pub(crate) settings: BrokerSettings,
    pub(crate) clock: Clock,
    pub(crate) exchange: Arc<X>,
    pub(crate) runtime: Handle,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) counters: Arc<BrokerCounters>,
    pub(crate) fetch_log: Arc<FetchLog>,
    notices: ScheduleSender<X>,
    pub(crate) pod_limits: Arc<AllPodLimits>,
    /// The number of cache entries and pods so far. This number is also the next id.
    made: Arc<AtomicU64>,
    /// The cache entries of all principals in use. The references are weak, because pod clients own the entries.
    slots: Mutex<CacheEntries<X>>,
}

type CacheEntries<X> = HashMap<<X as TokenExchange>::Principal, Weak<CacheEntry<X>>>;

impl<X: TokenExchange> BrokerState<X> {
    pub(crate) fn new(
        settings: BrokerSettings,
        clock: Clock,
        exchange: Arc<X>,
        runtime: Handle,
        notices: ScheduleSender<X>,
    ) -> Self {
        Self {
            settings,
            clock,
            exchange,
            runtime,
            limiter: Limiter::new(&settings),
            counters: Arc::default(),
            fetch_log: Arc::new(FetchLog::new(X::CLOUD)),
            notices,
            pod_limits: Arc::default(),
            made: Arc::default(),
            slots: Mutex::default(),
        }
    }

    /// Returns the state of a broker that gets its credentials from the same cloud through `exchange`.
    /// Both states share the limiter, the pods' limits and the counters. The new state has an empty cache. The ids of both states come from one
    /// sequence, because the shared limiter identifies pods by these ids.
    pub(crate) fn with_exchange(&self, exchange: Arc<X>, notices: ScheduleSender<X>) -> Self {
        Self {
            settings: self.settings,
            clock: self.clock.clone(),
            exchange,
            runtime: self.runtime.clone(),
            limiter: self.limiter.clone(),
            counters: self.counters.clone(),
            fetch_log: self.fetch_log.clone(),
            notices,
            pod_limits: self.pod_limits.clone(),
            made: self.made.clone(),
            slots: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Returns the next id of a cache entry or pod.
    pub(crate) fn next_id(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the cache entry of a principal. Pods with equal principals share the entry.
    pub(crate) fn cache_entry(&self, principal: X::Principal) -> Arc<CacheEntry<X>> {
        let mut slots = self.slots();
        if let Some(slot) = slots.get(&principal).and_then(Weak::upgrade) {
            return slot;
        }
        let number = self.next_id();
        let notices = self.notices.clone();
        let slot = Arc::new(CacheEntry::new(principal.clone(), number, notices, &self.settings, self.now()));
        slots.insert(principal, Arc::downgrade(&slot));
        slot
    }

    /// Returns the cache entries of all principals in use.
    pub(crate) fn live_entries(&self) -> Vec<Arc<CacheEntry<X>>> {
        self.slots().values().filter_map(Weak::upgrade).collect()
    }

    /// True if a pod with `own` principals may use another one that no pod uses yet, without giving up one.
    pub(crate) fn has_room_for_pod(&self, own: usize) -> bool {
        let free = self.settings.shared_principals.saturating_sub(self.slots().len());
        own < self.settings.guaranteed_principals_per_pod || fair_share::may_take(own as u64, free as u64)
    }

    /// True if a pod uses this principal, so that another pod can use it, too, without more memory.
    /// Otherwise siblings could take each other's new principals in turn, and give them up again, until each pod has all its 64 alone.
    /// Therefore there is a limit for this, too.
    pub(crate) fn is_free_to_share(&self, principal: &X::Principal) -> bool {
        let slots = self.slots();
        let most = self.settings.shared_principals + self.settings.principals_shared_beyond;
        slots.len() < most && slots.get(principal).is_some_and(|slot| slot.strong_count() > 0)
    }

    /// Removes a principal from the map if no pod client uses the principal's cache entry.
    pub(crate) fn remove_unused_principal(&self, principal: &X::Principal) {
        let mut slots = self.slots();
        // Another thread may have created a new entry for this principal since the old entry was dropped.
        if slots.get(principal).is_some_and(|slot| slot.strong_count() == 0) {
            slots.remove(principal);
        }
    }

    pub(crate) fn schedule_renewal(&self, slot: &Arc<CacheEntry<X>>, at: Moment) {
        // Sending fails only after the runtime has ended. Without the runtime, the broker cannot renew leases anyway.
        let _ = self.notices.send(ScheduleMessage::Due(at, slot.id, Arc::downgrade(slot)));
    }

    /// Locks the map of cache entries, because every thread can add a principal.
    /// A pod client takes this lock only to get a cache entry that is missing in the pod client's own list.
    fn slots(&self) -> MutexGuard<'_, CacheEntries<X>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
