//! Gets a lease for a request: from the cache, from the fetch in flight, or from a new fetch.

use std::sync::Arc;

use seawall_core::{Lease, Moment};

use crate::broker_state::BrokerState;
use crate::cache_entry::{CacheEntry, FetchDecision};
use crate::credential_exchange::TokenExchange;
use crate::failure::{ExchangeError, ExchangeFault};
use crate::fetch::FetchTask;
use crate::fetch_waiters::NextFetchResult;
use crate::lease_error::LeaseError;
use crate::limiter::{CallOwner, CallReason, QueueRefusal, QueueTicket};

#[derive(Debug)]
pub(crate) struct LeaseRequester {
    pub(crate) call_owner: CallOwner,
    /// True if the pod has no lease at all.
    pub(crate) has_no_lease: bool,
}

impl<X: TokenExchange> BrokerState<X> {
    /// Checks whether the limiter accepts a call for a new credential. The caller runs this check before it creates a cache
    /// entry.
    pub(crate) fn check_may_queue(&self, asker: &LeaseRequester) -> Result<(), LeaseError> {
        self.limiter
            .check_may_queue(&asker.call_owner, self.now())
            .map_err(|refused| self.unavailable(refused))
    }

    /// Returns the cache entry's lease for a request that arrived at `came`, and fetches a lease if necessary.
    /// If the cached lease is valid but not fresh enough, the function fetches a new lease. If that fetch fails or is late, the
    /// request gets the old lease. The error states why the request gets no lease.
    pub(crate) async fn get_or_fetch_lease(
        self: &Arc<Self>,
        slot: Arc<CacheEntry<X>>,
        asker: LeaseRequester,
        came: Moment,
        may_miss: impl FnOnce() -> Result<(), LeaseError>,
    ) -> Result<Arc<Lease<X::Credential>>, LeaseError> {
        let now = self.now();
        if let Some(lease) = self.lease_for_response(&slot, now) {
            return Ok(lease);
        }
        let (landing, since) = match self.join_or_start(&slot, &asker, now, may_miss) {
            Ok(boarded) => boarded,
            Err(unavailable) => return self.hand_out_older(&slot, now).ok_or(unavailable),
        };
        let deadline = came.min(since) + self.settings.max_request_wait;
        // A waiting request must not keep an entry alive after all pod clients have dropped the entry.
        let slot = Arc::downgrade(&{ slot });
        let landed = tokio::select! {
            landed = landing.wait() => Some(landed),
            () = self.clock.sleep_until(deadline) => None,
        };
        let slot = slot.upgrade().ok_or(LeaseError::TimedOut)?;
        if landed.is_none() {
            slot.allow_stale_while_fetching();
        }
        let reason = landed.and_then(Result::err).map_or(LeaseError::TimedOut, LeaseError::Failed);
        self.hand_out_older(&slot, self.now()).ok_or(reason)
    }

    /// Joins the fetch in flight or starts a fetch. Returns a waiter for the fetch, and the start of the pod's wait.
    fn join_or_start(
        self: &Arc<Self>,
        slot: &Arc<CacheEntry<X>>,
        asker: &LeaseRequester,
        now: Moment,
        may_miss: impl FnOnce() -> Result<(), LeaseError>,
    ) -> Result<(NextFetchResult, Moment), LeaseError> {
        let start = || {
            // A pod has a rate limit for cache misses. A refresh of a valid lease does not count as a miss, because a pod has a
            // limited number of leases to refresh.
            if slot.valid_lease(now).is_none() {
                may_miss()?;
            }
            self.ticket(asker, now)
        };
        match slot.join_or_start_fetch(now, Some(asker.call_owner.requester_id), start) {
            // A lease has just arrived. The caller finds that lease and ignores this error.
            FetchDecision::Cached => Err(LeaseError::TimedOut),
            FetchDecision::RecentFailure(error) => Err(LeaseError::Failed(error)),
            FetchDecision::RefusedByLimit(unavailable) => Err(unavailable),
            FetchDecision::Join(landing, ticket, since) => {
                self.counters.record_coalesced();
                if let Some(ticket) = ticket {
                    self.limiter.raise_priority(ticket, &asker.call_owner, asker.has_no_lease);
                }
                Ok((landing, since))
            }
            FetchDecision::Start(landing, ticket) => {
                FetchTask::spawn_queued(self, slot, ticket, now + self.settings.queue_deadline);
                Ok((landing, now))
            }
        }
    }

    fn ticket(&self, asker: &LeaseRequester, now: Moment) -> Result<QueueTicket, LeaseError> {
        let lane = CallReason::Request { holds_nothing: asker.has_no_lease };
        let ticket = self.limiter.enqueue(asker.call_owner.clone(), lane, now);
        ticket.map_err(|refused| self.unavailable(refused))
    }

    fn unavailable(&self, refused: QueueRefusal) -> LeaseError {
        match refused {
            QueueRefusal::Full => {
                self.counters.record_refused_by_own_limit();
                LeaseError::TooManyNewCredentials { retry_after: self.settings.first_retry_delay }
            }
            QueueRefusal::Throttled(until) => {
                let detail = "the cloud limits the requests of this account";
                let error = ExchangeError::new(ExchangeFault::Throttled, "limiter", detail);
                let retry_after = Some(until.since(self.now()));
                LeaseError::Failed(ExchangeError { retry_after, ..error })
            }
        }
    }

    /// Returns the lease if it is fresh enough for a response, and counts the response.
    pub(crate) fn lease_for_response(
        &self,
        slot: &CacheEntry<X>,
        now: Moment,
    ) -> Option<Arc<Lease<X::Credential>>> {
        let lease = slot.fresh_lease(now)?;
        self.counters.record_response(lease.remaining(now), slot.lifetime_floor);
        Some(lease)
    }

    /// Returns the lease if it is valid, whatever its remaining lifetime, and counts the response.
    fn hand_out_older(&self, slot: &CacheEntry<X>, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        let lease = slot.valid_lease(now)?;
        self.counters.record_response(lease.remaining(now), slot.lifetime_floor);
        Some(lease)
    }
}
