//! One principal's place: its lease, and at most one call in the air for it.
//!
//! Readers take the lease from an atomic pointer. Everything else happens under one small lock that no await crosses:
//! who may start a flight, what the last one came to, until when its failure is remembered.
//!
//! Only holders own slots. Flights and requests that wait keep a [`Weak`] one, so that a slot ends with its last holder,
//! whatever is under way for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Backoff, Lease, Moment, Pod};
use tokio::sync::mpsc;

use crate::exchange::TokenExchange;
use crate::failure::{ExchangeError, ExchangeFault};
use crate::fetch_results::{FetchResults, FetchWaiter};
use crate::lease_error::LeaseError;
use crate::limiter::{QueueTicket, RequesterId};
use crate::principal::Principal;
use crate::renewal_schedule::ScheduleMessage;
use crate::settings::BrokerSettings;

/// Pods whose proof is tried in one flight.
const PROOFS_TRIED: usize = 4;

/// A pod that uses the slot, and the proof with which a call for it can be made.
#[derive(Debug)]
pub(crate) struct PodSubject {
    pub(crate) requester: RequesterId,
    pub(crate) pod: Pod,
    pub(crate) tokens: Arc<dyn SubjectTokens>,
}

/// The schedule's ear.
pub(crate) type ScheduleSender<X> =
    mpsc::UnboundedSender<ScheduleMessage<Weak<CacheEntry<X>>, <X as TokenExchange>::Principal>>;

#[derive(Debug)]
pub(crate) struct CacheEntry<X: TokenExchange> {
    pub(crate) principal: X::Principal,
    /// Tells slots apart, also those of one principal that came and went.
    pub(crate) id: u64,
    /// The least life of an answer while the cloud answers.
    pub(crate) floor: Duration,
    notices: ScheduleSender<X>,
    lease: ArcSwapOption<Lease<X::Credential>>,
    /// Until when the lease is answered with from memory, while it is valid.
    fresh_until: AtomicU64,
    used: AtomicU64,
    landings: Arc<FetchResults>,
    flight: Mutex<FetchState>,
    /// Weak: a slot must not keep a pod's proof alive after the pod.
    proofs: Mutex<Vec<Weak<PodSubject>>>,
}

#[derive(Debug)]
struct FetchState {
    is_fetching: bool,
    /// Of the flight in the air: which pods wait for it, and each since when. As many as share the principal.
    waits: Vec<(RequesterId, Moment)>,
    /// Of the flight in the air: where it stood in the queue.
    ticket: Option<u64>,
    recent_failure: Option<(ExchangeError, Moment)>,
    /// When the first call failed since one succeeded.
    failing_since: Option<Moment>,
    backoff: Backoff,
}

impl FetchState {
    /// Since when this pod waits for the flight: each for itself, or one that shares its account would spend its patience.
    fn waits_since(&mut self, asker: RequesterId, now: Moment) -> Moment {
        if let Some((_, since)) = self.waits.iter().find(|(waiting, _)| *waiting == asker) {
            return *since;
        }
        self.waits.push((asker, now));
        now
    }
}

/// What a request that found no lease does next.
pub(crate) enum FetchDecision {
    /// Take the lease: it came just now.
    Cached,
    /// Wait for a flight that is under way, and that had this ticket.
    Join(FetchWaiter, Option<u64>, Moment),
    /// Start one, and wait for it.
    Start(FetchWaiter, QueueTicket),
    /// The last failure is too recent.
    RecentFailure(ExchangeError),
    /// Not allowed to start one.
    Refused(LeaseError),
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
            floor: principal.min_lifetime(settings.floor),
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
                backoff: Backoff::doubling(settings.retry_first, settings.retry_ceiling),
            }),
            proofs: Mutex::default(),
        }
    }

    /// The lease, if it is to be answered with from memory; notes the use. No lock, no allocation.
    pub(crate) fn fresh_lease(&self, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        self.used.store(now.as_nanos(), Ordering::Relaxed);
        // Read before the lease and written after it: a new lease's time is never taken for an older lease's.
        if now.as_nanos() >= self.fresh_until.load(Ordering::Acquire) {
            return None;
        }
        self.valid_lease(now)
    }

    /// The lease while it is valid, however little it has left.
    pub(crate) fn valid_lease(&self, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        self.lease.load_full().filter(|lease| lease.is_valid(now))
    }

    /// The lease as it is, without noting a use.
    pub(crate) fn lease(&self) -> Option<Arc<Lease<X::Credential>>> {
        self.lease.load_full()
    }

    /// When it was last asked for.
    pub(crate) fn last_used(&self) -> Moment {
        Moment::from_nanos(self.used.load(Ordering::Relaxed))
    }

    /// Joins or starts a flight, for a request of this pod or to renew. `start` is asked only before a start.
    pub(crate) fn join_or_start(
        &self,
        now: Moment,
        asker: Option<RequesterId>,
        start: impl FnOnce() -> Result<QueueTicket, LeaseError>,
    ) -> FetchDecision {
        let mut flight = self.fetch_state();
        // A flight may have landed since the caller looked; without this, the second of two threads calls again.
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
            Err(unavailable) => FetchDecision::Refused(unavailable),
        }
    }

    /// Waits for the next landing.
    pub(crate) fn result_waiter(&self) -> FetchWaiter {
        FetchWaiter::next(&self.landings)
    }

    /// Ends the flight with a lease, to be answered with from memory until `fresh_until`.
    pub(crate) fn succeed(&self, lease: Lease<X::Credential>, fresh_until: Moment) {
        let mut flight = self.fetch_state();
        self.lease.store(Some(Arc::new(lease)));
        self.fresh_until.store(fresh_until.as_nanos(), Ordering::Release);
        flight.recent_failure = None;
        flight.failing_since = None;
        flight.backoff.reset();
        self.finish_fetch(&mut flight, true, None);
    }

    /// Ends the flight with a failure, which is remembered; how long to wait before a renewal is tried again.
    ///
    /// Throttled renewals are not spaced out ever more: whoever asked for less is paced by the limiter, and a renewal that
    /// waited for its own back-off beside would lose its turns to calls that did not.
    pub(crate) fn fail(&self, error: ExchangeError, now: Moment, draw: f64) -> Duration {
        let mut flight = self.fetch_state();
        let memory = error.fault.negative_cache_ttl().max(error.retry_after.unwrap_or_default());
        let wait = match error.fault {
            ExchangeFault::Throttled => memory,
            _ => flight.backoff.next(draw).max(memory),
        };
        let memory = if error.fault.uses_backoff() { wait } else { memory };
        flight.recent_failure = Some((error.clone(), now + memory));
        flight.failing_since.get_or_insert(now);
        self.allow_stale();
        self.finish_fetch(&mut flight, false, Some(error));
        wait
    }

    /// Ends a flight that never flew. Nothing is remembered: nobody was asked.
    pub(crate) fn give_up(&self) {
        let mut flight = self.fetch_state();
        self.allow_stale();
        self.finish_fetch(&mut flight, false, None);
    }

    /// A flight takes longer than a request waits: until it lands, what there is is answered with at once.
    pub(crate) fn serve_stale_now(&self) {
        let flight = self.fetch_state();
        if flight.is_fetching {
            self.allow_stale();
        }
    }

    /// Answers with the lease there is, while it is valid, until another comes.
    fn allow_stale(&self) {
        self.fresh_until.store(u64::MAX, Ordering::Release);
    }

    fn finish_fetch(&self, flight: &mut FetchState, is_lease: bool, error: Option<ExchangeError>) {
        flight.is_fetching = false;
        flight.waits = Vec::new();
        flight.ticket = None;
        self.landings.publish(is_lease, error);
    }

    /// Drops the lease, so that its text does not outlive its use.
    pub(crate) fn drop_lease(&self) {
        self.lease.store(None);
    }

    /// Tells of every flight that lands.
    pub(crate) fn results(&self) -> Arc<FetchResults> {
        self.landings.clone()
    }

    /// Lets calls for this principal be made with a pod's proof while that pod lives.
    pub(crate) fn add_subject(&self, proof: &Arc<PodSubject>) {
        let mut proofs = self.subjects();
        proofs.retain(|known| known.strong_count() > 0);
        if !proofs.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(proof))) {
            proofs.push(Arc::downgrade(proof));
            drop(proofs);
            // What failed for want of a proof may be had with this one.
            let mut flight = self.fetch_state();
            if flight.recent_failure.as_ref().is_some_and(|(error, _)| error.fault.is_token_error()) {
                flight.recent_failure = None;
            }
        }
    }

    /// A pod has given it up; it is not asked to prove it any more.
    pub(crate) fn remove_subject(&self, proof: &Arc<PodSubject>) {
        self.subjects().retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(proof)));
    }

    /// A proof of a pod that lives and was not tried: the youngest, whose token has longest to live. A few at most.
    pub(crate) fn untried_subject(&self, tried: &[Arc<PodSubject>]) -> Option<Arc<PodSubject>> {
        let is_untried = |proof: &Arc<PodSubject>| !tried.iter().any(|other| Arc::ptr_eq(other, proof));
        let proofs = self.subjects();
        let mut alive = proofs.iter().rev().filter_map(Weak::upgrade);
        alive.find(is_untried).filter(|_| tried.len() < PROOFS_TRIED)
    }

    /// The holders that use it.
    pub(crate) fn requesters(&self) -> Vec<RequesterId> {
        self.subjects().iter().filter_map(Weak::upgrade).map(|proof| proof.requester).collect()
    }

    /// Whether a flight is under way.
    pub(crate) fn is_fetching(&self) -> bool {
        self.fetch_state().is_fetching
    }

    /// Whether a call is in the air, the failure that is remembered, and since when all have failed.
    pub(crate) fn entry_status(&self) -> (bool, Option<ExchangeError>, Option<Moment>) {
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
        // Without a receiver the broker is gone, too.
        let _ = self.notices.send(ScheduleMessage::Removed(self.id, self.principal.clone()));
    }
}
