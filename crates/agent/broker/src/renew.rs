//! Renews leases before they reach their floor, and drops leases that pods no longer use. The schedule calls this code when a
//! renewal is due.

use std::sync::{Arc, Weak};

use seawall_core::Moment;

use crate::broker_state::BrokerState;
use crate::cache_entry::{CacheEntry, FetchDecision};
use crate::credential_exchange::TokenExchange;
use crate::fetch::FetchTask;
use crate::lease_error::LeaseError;
use crate::limiter::{CallOwner, CallReason, QueueTicket, RequesterId};
use crate::principal::Principal;
use crate::renewal_schedule::RenewalHandler;

/// The handler that the renewal schedule calls. Its reference to the broker is weak, so the schedule ends with the broker.
pub(crate) struct RenewalStarter<X: TokenExchange>(pub(crate) Weak<BrokerState<X>>);

impl<X: TokenExchange> RenewalHandler<Weak<CacheEntry<X>>, X::Principal> for RenewalStarter<X> {
    fn on_due(&self, slot: &Weak<CacheEntry<X>>) {
        if let (Some(shared), Some(slot)) = (self.0.upgrade(), slot.upgrade()) {
            shared.renew(&slot);
        }
    }

    fn on_removed(&self, principal: &X::Principal) {
        if let Some(shared) = self.0.upgrade() {
            shared.remove_unused_principal(principal);
        }
    }
}

impl<X: TokenExchange> BrokerState<X> {
    /// Renews a lease whose renewal is due. If the lease has expired, or if no pod used it during its whole lifetime, the
    /// function drops the lease instead. An SDK requests a credential at least once per lifetime, so a lease without requests is
    /// no longer in use. If the broker kept such a lease without renewing it, a later response could contain the lease with a
    /// remaining lifetime below the floor.
    fn renew(self: &Arc<Self>, slot: &Arc<CacheEntry<X>>) {
        let now = self.clock.now();
        let Some(lease) = slot.lease() else { return };
        let life = lease.expires.since(lease.issued);
        if !lease.is_valid(now) || now.since(slot.last_used()) >= life {
            return slot.drop_lease();
        }
        let urgent_at = self.settings.lifetime_floor.urgent_at(lease.refresh_at, lease.expires);
        match slot.join_or_start_fetch(now, None, || self.renewal(slot, urgent_at, now)) {
            // If the call gets no turn before the lease expires, the fetch ends. The schedule then calls `renew` again, which
            // drops the expired lease.
            FetchDecision::Start(_, ticket) => FetchTask::spawn_queued(self, slot, ticket, lease.expires),
            FetchDecision::Cached | FetchDecision::Join(..) => {}
            FetchDecision::RecentFailure(_) | FetchDecision::RefusedByLimit(_) => {
                self.schedule_renewal(slot, (now + self.settings.first_retry_delay).min(lease.expires));
            }
        }
    }

    /// Queues a renewal. The renewal counts toward the pod with the fewest queued calls among the pods that share the lease.
    /// So a pod with many queued calls does not delay a lease that it shares with other pods.
    fn renewal(
        &self,
        slot: &CacheEntry<X>,
        urgent_at: Moment,
        now: Moment,
    ) -> Result<QueueTicket, LeaseError> {
        let holders: Vec<RequesterId> = slot.pod_ids();
        let holder = self.limiter.requester_with_fewest_queued(&holders).ok_or(LeaseError::TimedOut)?;
        let party = CallOwner { requester_id: holder, throttle_key: slot.principal.throttle_key() };
        self.limiter.enqueue(party, CallReason::Renewal { urgent_at }, now).map_err(|_| LeaseError::TimedOut)
    }
}
