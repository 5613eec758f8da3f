//! The cache entry of one principal: its lease, and at most one fetch in flight.
//!
//! Requests read the lease through an atomic pointer. One small lock protects the state of the fetch. The state contains the pods
//! that wait for a fetch in flight, the last failure, and the time until which the failure is cached. No task holds the lock
//! across an await.
//!
//! Only pod clients own cache entries. Fetches and waiting requests keep a [`Weak`] reference. So an entry is dropped with its
//! last pod client, even while a fetch is in flight.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Backoff, Lease, Moment, Pod};
use tokio::sync::mpsc;

use crate::credential_exchange::TokenExchange;
use crate::failure::{ExchangeError, ExchangeFault};
use crate::fetch_waiters::{FetchResultChannel, NextFetchResult};
use crate::lease_error::LeaseError;
use crate::limiter::{QueueTicket, RequesterId};
use crate::pod_limits::PodLimits;
use crate::principal::Principal;
use crate::renewal_schedule::ScheduleMessage;
use crate::settings::BrokerSettings;

/// One fetch tries the tokens of at most this many pods.
const PROOFS_TRIED: usize = 4;

/// A pod that uses the cache entry, and the source of its Kubernetes tokens.
#[derive(Debug)]
pub(crate) struct PodSubject {
    pub(crate) limits: Arc<PodLimits>,
    pub(crate) pod: Pod,
    pub(crate) tokens: Arc<dyn SubjectTokens>,
}

pub(crate) type ScheduleSender<X> =
    mpsc::UnboundedSender<ScheduleMessage<Weak<CacheEntry<X>>, <X as TokenExchange>::Principal>>;

#[derive(Debug)]
pub(crate) struct CacheEntry<X: TokenExchange> {
    pub(crate) principal: X::Principal,
    /// The id of the entry. Two successive entries of one principal have different ids.
    pub(crate) id: u64,
    /// The least remaining lifetime of the credential in a response while the cloud is available.
    pub(crate) lifetime_floor: Duration,
    notices: ScheduleSender<X>,
    lease: ArcSwapOption<Lease<X::Credential>>,
    /// The time, in nanoseconds, from which a request triggers a new fetch although the cached lease is valid.
    /// The value is `u64::MAX` if requests can use the lease until the lease expires.
    fresh_until: AtomicU64,
    used: AtomicU64,
    landings: Arc<FetchResultChannel>,
    flight: Mutex<FetchState>,
    /// The pods that use the entry. The references are weak, so the entry does not keep the tokens of a deleted pod.
    proofs: Mutex<Vec<Weak<PodSubject>>>,
}

#[derive(Debug)]
struct FetchState {
    is_fetching: bool,
    /// The pods that wait for the fetch in flight, each with the start of its wait.
    waits: Vec<(RequesterId, Moment)>,
    /// The id of the queue ticket of the fetch in flight.
    ticket: Option<u64>,
    recent_failure: Option<(ExchangeError, Moment)>,
    /// The time of the first failed call since the last success.
    failing_since: Option<Moment>,
    backoff: Backoff,
}

impl FetchState {
    /// Returns the start of this pod's wait for the fetch. If the pod does not wait yet, the function records `now` as the start.
    /// Each pod has its own start. Otherwise a pod that joins a fetch late would have less time to wait than the first pod.
    fn waits_since(&mut self, asker: RequesterId, now: Moment) -> Moment {
        if let Some((_, since)) = self.waits.iter().find(|(waiting, _)| *waiting == asker) {
            return *since;
        }
        self.waits.push((asker, now));
        now
    }
}

/// The next step for a request without a fresh lease, or for a due renewal.
pub(crate) enum FetchDecision {
    /// A lease has just arrived, so the request can use that lease.
    Cached,
    /// A fetch is in flight, and the request waits for its result. The values are the waiter, the id of the fetch's queue ticket,
    /// and the start of the pod's wait.
    Join(NextFetchResult, Option<u64>, Moment),
    /// The caller must start a fetch with this queue ticket. The waiter returns when the fetch ends.
    Start(NextFetchResult, QueueTicket),
    /// The last fetch failed a short time ago, so the request gets the cached error.
    RecentFailure(ExchangeError),
    /// A limit does not allow a new fetch.
    RefusedByLimit(LeaseError),
}

impl<X: TokenExchange> CacheEntry<X> {
    pub(crate) fn new(
        principal: X::Principal,
        id: u64,
        notices: ScheduleSender<X>,
        settings: &BrokerSettings,
        now: Moment,
    ) -> Self {
        Self {
            lifetime_floor: principal.min_lifetime(settings.lifetime_floor),
            principal,
            id,
            notices,
            lease: ArcSwapOption::empty(),
            fresh_until: AtomicU64::new(u64::MAX),
            used: AtomicU64::new(now.as_nanos()),
            landings: Arc::default(),
            flight: Mutex::new(FetchState {
                is_fetching: false,
                waits: Vec::new(),
                ticket: None,
                recent_failure: None,
                failing_since: None,
                backoff: Backoff::doubling(settings.first_retry_delay, settings.max_retry_delay),
            }),
            proofs: Mutex::default(),
        }
    }

    /// Returns the lease if it is fresh enough for a response, and records the use. This function takes no lock and allocates no
    /// memory.
    pub(crate) fn fresh_lease(&self, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        self.used.store(now.as_nanos(), Ordering::Relaxed);
        // This function reads `fresh_until` before the lease, and `complete_fetch` writes `fresh_until` after the lease. So this
        // function never applies the `fresh_until` of a new lease to an older lease.
        if now.as_nanos() >= self.fresh_until.load(Ordering::Acquire) {
            return None;
        }
        self.valid_lease(now)
    }

    /// Returns the lease if it is valid, whatever its remaining lifetime.
    pub(crate) fn valid_lease(&self, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        self.lease.load_full().filter(|lease| lease.is_valid(now))
    }

    /// Returns the lease even if it has expired. This function does not record a use.
    pub(crate) fn lease(&self) -> Option<Arc<Lease<X::Credential>>> {
        self.lease.load_full()
    }

    /// Returns the time of the last request for this entry.
    pub(crate) fn last_used(&self) -> Moment {
        Moment::from_nanos(self.used.load(Ordering::Relaxed))
    }

    /// Joins the fetch in flight, or starts a fetch. If `asker` is `None`, the fetch is a renewal; otherwise a request of this
    /// pod waits for it. This function calls `start` only if no fetch is in flight and no failure is cached.
    pub(crate) fn join_or_start_fetch(
        &self,
        now: Moment,
        asker: Option<RequesterId>,
        start: impl FnOnce() -> Result<QueueTicket, LeaseError>,
    ) -> FetchDecision {
        let mut flight = self.fetch_state();
        // A fetch may have ended since the caller looked for a lease. Without this check, two threads that found no lease could
        // make two calls.
        if asker.is_some() && self.fresh_lease(now).is_some() {
            return FetchDecision::Cached;
        }
        let landing = self.result_waiter();
        if flight.is_fetching {
            let since = asker.map_or(now, |asker| flight.waits_since(asker, now));
            return FetchDecision::Join(landing, flight.ticket, since);
        }
        if let Some((error, until)) = &flight.recent_failure
            && now < *until
        {
            return FetchDecision::RecentFailure(error.clone());
        }
        match start() {
            Ok(ticket) => {
                flight.is_fetching = true;
                flight.waits = asker.map(|asker| (asker, now)).into_iter().collect();
                flight.ticket = Some(ticket.id);
                FetchDecision::Start(landing, ticket)
            }
            Err(unavailable) => FetchDecision::RefusedByLimit(unavailable),
        }
    }

    /// Returns a waiter for the result of the fetch in flight, or `None` if there is no such fetch.
    pub(crate) fn in_flight_waiter(&self) -> Option<NextFetchResult> {
        self.fetch_state().is_fetching.then(|| self.result_waiter())
    }

    /// Returns a waiter for the next fetch result.
    pub(crate) fn result_waiter(&self) -> NextFetchResult {
        NextFetchResult::for_next_result(&self.landings)
    }

    /// Stores the fetched lease and ends the fetch. Until `fresh_until`, requests get this lease without a new fetch.
    pub(crate) fn complete_fetch(&self, lease: Lease<X::Credential>, fresh_until: Moment) {
        let mut flight = self.fetch_state();
        self.lease.store(Some(Arc::new(lease)));
        self.fresh_until.store(fresh_until.as_nanos(), Ordering::Release);
        flight.recent_failure = None;
        flight.failing_since = None;
        flight.backoff.reset();
        self.finish_fetch(&mut flight, true, None);
    }

    /// Ends the fetch with a failure, and caches the failure. Returns the pause before the next renewal attempt.
    ///
    /// Pauses after throttling do not grow, because the limiter already slows down throttled accounts. During a longer pause,
    /// other calls would use up the account's reduced rate, and the renewal would come late.
    pub(crate) fn fail_fetch(&self, error: ExchangeError, now: Moment, draw: f64) -> Duration {
        let mut flight = self.fetch_state();
        let memory = error.fault.negative_cache_ttl().max(error.retry_after.unwrap_or_default());
        let wait = match error.fault {
            ExchangeFault::Throttled => memory,
            _ => flight.backoff.next_delay(draw).max(memory),
        };
        let memory = if error.fault.grows_negative_cache_ttl() { wait } else { memory };
        flight.recent_failure = Some((error.clone(), now + memory));
        flight.failing_since.get_or_insert(now);
        self.allow_stale();
        self.finish_fetch(&mut flight, false, Some(error));
        wait
    }

    /// Ends a fetch that made no call. The function caches no failure, because the cloud did not refuse a call.
    pub(crate) fn abandon_fetch(&self) {
        let mut flight = self.fetch_state();
        self.allow_stale();
        self.finish_fetch(&mut flight, false, None);
    }

    /// If a fetch is in flight, lets requests use the current lease until the fetch succeeds. Call this function when a request
    /// has waited for the fetch until the request's deadline.
    pub(crate) fn allow_stale_while_fetching(&self) {
        let flight = self.fetch_state();
        if flight.is_fetching {
            self.allow_stale();
        }
    }

    /// Lets requests use the current lease without a new fetch, until the next lease arrives or the current lease expires.
    fn allow_stale(&self) {
        self.fresh_until.store(u64::MAX, Ordering::Release);
    }

    fn finish_fetch(&self, flight: &mut FetchState, is_lease: bool, error: Option<ExchangeError>) {
        flight.is_fetching = false;
        flight.waits = Vec::new();
        flight.ticket = None;
        self.landings.publish(is_lease, error);
    }

    /// Drops the lease, so that the secret does not stay in memory without use.
    pub(crate) fn drop_lease(&self) {
        self.lease.store(None);
    }

    pub(crate) fn fetch_result_channel(&self) -> Arc<FetchResultChannel> {
        self.landings.clone()
    }

    /// Adds a pod. While the pod exists, calls for this principal can use the pod's Kubernetes tokens.
    pub(crate) fn add_subject(&self, proof: &Arc<PodSubject>) {
        let mut proofs = self.subjects();
        proofs.retain(|known| known.strong_count() > 0);
        if !proofs.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(proof))) {
            proofs.push(Arc::downgrade(proof));
            drop(proofs);
            // A call that failed for lack of a token may succeed with this pod's token, so a cached token error no longer
            // applies.
            let mut flight = self.fetch_state();
            if flight.recent_failure.as_ref().is_some_and(|(error, _)| error.fault.is_token_error()) {
                flight.recent_failure = None;
            }
        }
    }

    /// Removes a pod whose client dropped the entry. Later calls for this principal do not use that pod's tokens.
    pub(crate) fn remove_subject(&self, proof: &Arc<PodSubject>) {
        self.subjects().retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(proof)));
    }

    /// Returns the newest pod that is not in `tried`, or `None` if no such pod is left or `tried` has [`PROOFS_TRIED`] pods.
    /// The newest pod comes first, because its token usually has the longest remaining lifetime.
    pub(crate) fn untried_subject(&self, tried: &[Arc<PodSubject>]) -> Option<Arc<PodSubject>> {
        let is_untried = |proof: &Arc<PodSubject>| !tried.iter().any(|other| Arc::ptr_eq(other, proof));
        let proofs = self.subjects();
        let mut alive = proofs.iter().rev().filter_map(Weak::upgrade);
        alive.find(is_untried).filter(|_| tried.len() < PROOFS_TRIED)
    }

    /// Returns the ids of the pods that use the entry.
    pub(crate) fn pod_ids(&self) -> Vec<RequesterId> {
        self.subjects().iter().filter_map(Weak::upgrade).map(|proof| proof.limits.requester_id).collect()
    }

    /// True if only one pod uses the entry.
    pub(crate) fn has_one_pod(&self) -> bool {
        self.subjects().iter().filter(|proof| proof.strong_count() > 0).count() <= 1
    }

    pub(crate) fn is_fetching(&self) -> bool {
        self.fetch_state().is_fetching
    }

    /// Returns whether a fetch is in flight, the last failure, and the time since which all calls have failed.
    pub(crate) fn fetch_status(&self) -> (bool, Option<ExchangeError>, Option<Moment>) {
        let flight = self.fetch_state();
        let failure = flight.recent_failure.as_ref().map(|(error, _)| error.clone());
        (flight.is_fetching, failure, flight.failing_since)
    }

    fn fetch_state(&self) -> MutexGuard<'_, FetchState> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subjects(&self) -> MutexGuard<'_, Vec<Weak<PodSubject>>> {
        self.proofs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<X: TokenExchange> Drop for CacheEntry<X> {
    fn drop(&mut self) {
        self.landings.close();
        // Sending fails only after the runtime has ended, when the schedule no longer runs.
        let _ = self.notices.send(ScheduleMessage::Removed(self.id, self.principal.clone()));
    }
}
