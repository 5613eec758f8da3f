//! What is renewed ahead of its floor, and what is let go: the schedule's questions, answered.

use std::sync::{Arc, Weak};

use seawall_core::Moment;

use crate::cache_entry::{Boarding, Slot};
use crate::exchange::Exchange;
use crate::fetch::Flight;
use crate::limiter::{HolderId, Lane, Party, Ticket};
use crate::principal::Principal;
use crate::renewal_schedule::Watcher;
use crate::shared::Shared;
use crate::unavailable::Unavailable;

/// What the schedule may do to the broker. Weak, so that the schedule ends with the broker.
pub(crate) struct Renewals<X: Exchange>(pub(crate) Weak<Shared<X>>);

impl<X: Exchange> Watcher<Weak<Slot<X>>, X::Principal> for Renewals<X> {
    fn due(&self, slot: &Weak<Slot<X>>) {
        if let (Some(shared), Some(slot)) = (self.0.upgrade(), slot.upgrade()) {
            shared.renew(&slot);
        }
    }

    fn gone(&self, principal: &X::Principal) {
        if let Some(shared) = self.0.upgrade() {
            shared.forget(principal);
        }
    }
}

impl<X: Exchange> Shared<X> {
    /// Renews what is due, unless nobody has asked for it during a whole life: then it is let go at once, because what is
    /// kept without being renewed would sooner or later be handed out below the floor. An SDK asks at least once a life.
    fn renew(self: &Arc<Self>, slot: &Arc<Slot<X>>) {
        let now = self.clock.now();
        let Some(lease) = slot.lease() else { return };
        let life = lease.expires.since(lease.issued);
        if !lease.is_valid(now) || now.since(slot.used()) >= life {
            return slot.drop_lease();
        }
        let urgent_at = self.settings.floor.urgent_at(lease.refresh_at, lease.expires);
        match slot.board(now, None, || self.renewal(slot, urgent_at, now)) {
            // What has not had its turn by its end is let go, and that is looked at again.
            Boarding::Start(_, ticket) => Flight::start(self, slot, ticket, lease.expires),
            Boarding::Held | Boarding::Join(..) => {}
            Boarding::Remembered(_) | Boarding::Refused(_) => {
                self.look_again(slot, (now + self.settings.retry_first).min(lease.expires));
            }
        }
    }

    /// Charged to the holder that waits for least: a storm of one pod must not delay what it shares with others.
    fn renewal(&self, slot: &Slot<X>, urgent_at: Moment, now: Moment) -> Result<Ticket, Unavailable> {
        let holders: Vec<HolderId> = slot.holders();
        let holder = self.limiter.least_queued(&holders).ok_or(Unavailable::Slow)?;
        let party = Party { holder, account: slot.principal.account() };
        self.limiter.queue(party, Lane::Renewal { urgent_at }, now).map_err(|_| Unavailable::Slow)
    }
}
