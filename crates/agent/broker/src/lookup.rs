//! How a request gets a lease: from memory, from the flight under way, or from one that is started for it.

use std::sync::Arc;

use seawall_core::{Lease, Moment};

use crate::cache_entry::{Boarding, Slot};
use crate::exchange::Exchange;
use crate::failure::{ExchangeError, Fault};
use crate::fetch::Flight;
use crate::fetch_results::Landing;
use crate::limiter::{Lane, Party, Refused, Ticket};
use crate::shared::Shared;
use crate::unavailable::Unavailable;

/// Which pod asks.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) party: Party,
    /// Whether it holds nothing at all.
    pub(crate) holds_nothing: bool,
}

impl<X: Exchange> Shared<X> {
    /// Whether a request may start a call for something new. Asked before anything is made for it.
    pub(crate) fn may_start(&self, asker: &Asker) -> Result<(), Unavailable> {
        self.limiter.may_queue(&asker.party, self.now()).map_err(|refused| self.unavailable(refused))
    }

    /// The slot's lease, fetched if need be, for a request that came at `came`; or why there is none in time. Of a lease that
    /// is valid and not to be answered with from memory any more a new one is fetched; if that cannot be had in time, it
    /// is the answer.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        slot: Arc<Slot<X>>,
        asker: Asker,
        came: Moment,
        may_miss: impl FnOnce() -> Result<(), Unavailable>,
    ) -> Result<Arc<Lease<X::Credential>>, Unavailable> {
        let now = self.now();
        if let Some(lease) = self.hand_out(&slot, now) {
            return Ok(lease);
        }
        let (landing, since) = match self.board(&slot, &asker, now, may_miss) {
            Ok(boarded) => boarded,
            Err(unavailable) => return self.hand_out_older(&slot, now).ok_or(unavailable),
        };
        let deadline = came.min(since) + self.settings.wait;
        // A request that waits must not keep a slot which its holder has given up.
        let slot = Arc::downgrade(&{ slot });
        let landed = tokio::select! {
            landed = landing.wait() => Some(landed),
            () = self.clock.sleep_until(deadline) => None,
        };
        let slot = slot.upgrade().ok_or(Unavailable::Slow)?;
        if landed.is_none() {
            slot.make_do();
        }
        let reason = landed.and_then(Result::err).map_or(Unavailable::Slow, Unavailable::Failed);
        self.hand_out_older(&slot, self.now()).ok_or(reason)
    }

    /// Joins the flight that is under way, or starts one; and since when the pod waits for it.
    fn board(
        self: &Arc<Self>,
        slot: &Arc<Slot<X>>,
        asker: &Asker,
        now: Moment,
        may_miss: impl FnOnce() -> Result<(), Unavailable>,
    ) -> Result<(Landing, Moment), Unavailable> {
        let start = || {
            // To have a new one for what is held is no miss: it is bounded by what may be held.
            if slot.valid(now).is_none() {
                may_miss()?;
            }
            self.ticket(asker, now)
        };
        match slot.board(now, Some(asker.party.holder), start) {
            // Landed just now: there is nothing to wait for.
            Boarding::Held => Err(Unavailable::Slow),
            Boarding::Remembered(error) => Err(Unavailable::Failed(error)),
            Boarding::Refused(unavailable) => Err(unavailable),
            Boarding::Join(landing, ticket, since) => {
                self.counters.coalesced();
                if let Some(ticket) = ticket {
                    self.limiter.lift(ticket, &asker.party, asker.holds_nothing);
                }
                Ok((landing, since))
            }
            Boarding::Start(landing, ticket) => {
                Flight::start(self, slot, ticket, now + self.settings.queue_deadline);
                Ok((landing, now))
            }
        }
    }

    fn ticket(&self, asker: &Asker, now: Moment) -> Result<Ticket, Unavailable> {
        let lane = Lane::Waited { holds_nothing: asker.holds_nothing };
        let ticket = self.limiter.queue(asker.party.clone(), lane, now);
        ticket.map_err(|refused| self.unavailable(refused))
    }

    fn unavailable(&self, refused: Refused) -> Unavailable {
        match refused {
            Refused::Full => {
                self.counters.misses_refused();
                Unavailable::TooMany { retry_after: self.settings.retry_first }
            }
            Refused::Throttled(until) => {
                let detail = "the cloud has asked for fewer requests of this account";
                let error = ExchangeError::new(Fault::Throttled, "limiter", detail);
                let retry_after = Some(until.since(self.now()));
                Unavailable::Failed(ExchangeError { retry_after, ..error })
            }
        }
    }

    /// A lease from memory about to be answered with.
    pub(crate) fn hand_out(&self, slot: &Slot<X>, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        let lease = slot.held(now)?;
        self.counters.handed_out(lease.remaining(now), slot.floor);
        Some(lease)
    }

    /// The same, however little life it has left.
    fn hand_out_older(&self, slot: &Slot<X>, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        let lease = slot.valid(now)?;
        self.counters.handed_out(lease.remaining(now), slot.floor);
        Some(lease)
    }
}
