//! Renews leases ahead of their floor, and drops leases that pods no longer use. Implements the schedule's handler.

use std::sync::{Arc, Weak};

use seawall_core::Moment;

use crate::broker_state::BrokerState;
use crate::cache_entry::{CacheEntry, FetchDecision};
use crate::exchange::TokenExchange;
use crate::fetch::FetchTask;
use crate::lease_error::LeaseError;
use crate::limiter::{CallOwner, CallReason, QueueTicket, RequesterId};
use crate::principal::Principal;
use crate::renewal_schedule::RenewalHandler;

/// The broker as the renewal schedule uses it. Weak, so that the schedule ends with the broker.
pub(crate) struct Renewals<X: TokenExchange>(pub(crate) Weak<BrokerState<X>>);

impl<X: TokenExchange> RenewalHandler<Weak<CacheEntry<X>>, X::Principal> for Renewals<X> {
    fn on_due(&self, slot: &Weak<CacheEntry<X>>) {
        if let (Some(shared), Some(slot)) = (self.0.upgrade(), slot.upgrade()) {
            shared.renew(&slot);
        }
    }

    fn on_removed(&self, principal: &X::Principal) {
        if let Some(shared) = self.0.upgrade() {
            shared.forget(principal);
        }
    }
}

impl<X: TokenExchange> BrokerState<X> {
    /// Renews a due lease, or drops it at once if no pod asked for it during a whole lifetime. A lease that is kept without renewal
    /// would sooner or later be served below the floor. An SDK asks at least once a lifetime.
    fn renew(self: &Arc<Self>, slot: &Arc<CacheEntry<X>>) {
        let now = self.clock.now();
        let Some(lease) = slot.lease() else { return };
        let life = lease.expires.since(lease.issued);
        if !lease.is_valid(now) || now.since(slot.last_used()) >= life {
            return slot.drop_lease();
        }
        let urgent_at = self.settings.floor.urgent_at(lease.refresh_at, lease.expires);
        match slot.join_or_start(now, None, || self.renewal(slot, urgent_at, now)) {
            // What has not had its turn by its end is let go, and that is looked at again.
            FetchDecision::Start(_, ticket) => FetchTask::start(self, slot, ticket, lease.expires),
            FetchDecision::Cached | FetchDecision::Join(..) => {}
            FetchDecision::RecentFailure(_) | FetchDecision::Refused(_) => {
                self.schedule_renewal(slot, (now + self.settings.retry_first).min(lease.expires));
            }
        }
    }

    /// Queues a renewal, charged to the pod with the shortest queue. One pod's storm must not delay a lease that it shares with
    /// others.
    fn renewal(
        &self,
        slot: &CacheEntry<X>,
        urgent_at: Moment,
        now: Moment,
    ) -> Result<QueueTicket, LeaseError> {
        let holders: Vec<RequesterId> = slot.requesters();
        let holder = self.limiter.least_queued(&holders).ok_or(LeaseError::TimedOut)?;
        let party = CallOwner { requester: holder, throttle_key: slot.principal.throttle_key() };
        self.limiter.enqueue(party, CallReason::Renewal { urgent_at }, now).map_err(|_| LeaseError::TimedOut)
    }
}
