//! One flight: from the queue over the cloud to its slot, on the control thread's runtime.
//!
//! It owns no slot. When the last holder gives the slot up, the flight leaves the queue at once and is never flown, and a
//! call that is under way ends: nobody could use what it brings.

use std::sync::{Arc, Weak};
use std::time::Duration;

use seawall_core::{Lease, Moment};

use crate::cache_entry::Slot;
use crate::exchange::{Exchange, Issued};
use crate::failure::{ExchangeError, Fault};
use crate::fetch_results::Landing;
use crate::limiter::Ticket;
use crate::principal::Principal;
use crate::shared::Shared;
use crate::throttle_key::Account;

/// Makes sure that a flight lands even if its task is lost: waiters must never wait for nothing.
pub(crate) struct Flight<X: Exchange> {
    shared: Arc<Shared<X>>,
    slot: Weak<Slot<X>>,
    principal: X::Principal,
    account: Account,
    landed: bool,
}

/// What a flight came to.
enum Outcome<C> {
    /// The answer, and the instant before the first call: a lifetime counted from it never ends late.
    Flown(Moment, Result<Issued<C>, ExchangeError>),
    /// Its turn did not come in time.
    GaveUp,
}

impl<X: Exchange> Flight<X> {
    /// Takes off when its turn comes, if that is before `deadline`.
    pub(crate) fn start(shared: &Arc<Shared<X>>, slot: &Arc<Slot<X>>, ticket: Ticket, deadline: Moment) {
        let flight = Self {
            shared: shared.clone(),
            slot: Arc::downgrade(slot),
            account: slot.principal.account(),
            principal: slot.principal.clone(),
            landed: false,
        };
        shared.runtime.spawn(flight.run(slot.landing(), ticket, deadline));
    }

    async fn run(mut self, landing: Landing, ticket: Ticket, deadline: Moment) {
        let outcome = tokio::select! {
            // First, so that a slot which goes just when its turn comes is not flown.
            biased;
            () = landing.slot_is_gone() => None,
            outcome = self.fly(ticket, deadline) => Some(outcome),
        };
        self.landed = true;
        match outcome {
            None => {}
            Some(Outcome::GaveUp) => self.gave_up(),
            Some(Outcome::Flown(started, Ok(issued))) => self.succeeded(issued, started),
            Some(Outcome::Flown(_, Err(error))) => self.failed(error),
        }
    }

    /// One chain of upstream calls, in its turn and within its deadline.
    async fn fly(&self, mut ticket: Ticket, deadline: Moment) -> Outcome<X::Credential> {
        let shared = &*self.shared;
        let turn = tokio::select! {
            turn = ticket.turn() => turn,
            () = shared.clock.sleep_until(deadline) => None,
        };
        let Some(_place) = turn else { return Outcome::GaveUp };
        let started = shared.clock.now();
        let result = tokio::select! {
            result = self.prove() => result,
            () = shared.clock.sleep(shared.settings.call_deadline) => {
                Err(ExchangeError::new(Fault::Upstream, "exchange", "no answer within the deadline"))
            }
        };
        Outcome::Flown(started, result)
    }

    /// Asks with the proof of one pod, or, if that cannot be had, of another: a pod whose token file is missing, or that has
    /// just gone, must not spoil what its siblings could prove. Those that come meanwhile are asked, too.
    async fn prove(&self) -> Result<Issued<X::Credential>, ExchangeError> {
        let mut without =
            ExchangeError::new(Fault::Subject, "kubernetes token", "no pod is left to prove it");
        let mut tried = Vec::new();
        while let Some(proof) = self.slot.upgrade().and_then(|slot| slot.untried_proof(&tried)) {
            match self.shared.exchange.issue(&self.principal, &*proof.subject).await {
                Err(error) if error.fault.is_of_the_proof() => without = error,
                result => return result,
            }
            tried.push(proof);
        }
        Err(without)
    }

    fn succeeded(&self, issued: Issued<X::Credential>, started: Moment) {
        let shared = &*self.shared;
        let Issued { credential, lifetime, cut_from } = issued;
        let now = shared.clock.now();
        shared.limiter.succeeded(&self.account, now);
        if let Some(asked) = cut_from {
            shared.counters.cut();
            shared.log.cut(now, &self.principal, asked, lifetime);
        }
        self.check_life(now, lifetime);
        // At least a pause after now: an upstream whose credentials die at once must not be asked in a loop.
        let earliest = now + shared.settings.retry_first;
        let refresh_at = shared.settings.floor.refresh_at(started, lifetime, fastrand::f64()).max(earliest);
        let lease = Lease { value: credential, issued: started, expires: started + lifetime, refresh_at };
        if !lease.is_valid(now) {
            return self.failed(too_short(lifetime));
        }
        let Some(slot) = self.slot.upgrade() else { return };
        let is_renewal = slot.valid(now).is_some();
        shared.counters.succeeded(is_renewal);
        let shared_for = self.principal.shared_for(lifetime);
        slot.succeed(lease, shared_for.map_or(Moment::from_nanos(u64::MAX), |span| started + span));
        shared.log.issued(now, &self.principal, lifetime, is_renewal);
        shared.look_again(&slot, refresh_at);
    }

    fn check_life(&self, now: Moment, lifetime: Duration) {
        let shared = &*self.shared;
        if !shared.settings.floor.is_reachable_with(lifetime) {
            shared.counters.below_floor();
            shared.log.short_lived(now, &self.principal, lifetime);
        }
    }

    fn failed(&self, error: ExchangeError) {
        let shared = &*self.shared;
        let now = shared.clock.now();
        if error.fault == Fault::Throttled {
            shared.limiter.throttled(&self.account, now, error.retry_after);
        }
        shared.counters.failed(error.fault);
        shared.log.failed(now, &self.principal, &error);
        let Some(slot) = self.slot.upgrade() else { return };
        let wait = slot.fail(error, now, fastrand::f64());
        if let Some(lease) = slot.lease() {
            let at = now + wait;
            let last = last_try(&lease, slot.floor).filter(|last| (now..at).contains(last));
            shared.look_again(&slot, last.unwrap_or(at).min(lease.expires));
        }
    }

    fn gave_up(&self) {
        let Some(slot) = self.slot.upgrade() else { return };
        slot.give_up();
        if slot.lease().is_some() {
            self.shared.look_again(&slot, self.shared.clock.now() + self.shared.settings.retry_first);
        }
    }
}

impl<X: Exchange> Drop for Flight<X> {
    fn drop(&mut self) {
        if !self.landed {
            self.failed(ExchangeError::new(Fault::Upstream, "exchange", "the call ended without a result"));
        }
    }
}

/// How long before the floor a renewal that fails is tried whatever its pause: as long as a call may take, and as much again.
const LAST_TRY: Duration = Duration::from_secs(10);

/// When that is. Pauses grow to a minute, and an outage that was over within the margin would else be seen in that minute.
/// What cannot be kept above its floor anyway has none.
fn last_try<C>(lease: &Lease<C>, floor: Duration) -> Option<Moment> {
    let could_be_kept = lease.expires.since(lease.issued) / 2 >= floor;
    could_be_kept.then(|| lease.expires.before(floor + LAST_TRY))
}

/// Said as what it is: to call it slow would send its reader to look for a slow upstream.
fn too_short(lifetime: Duration) -> ExchangeError {
    let detail = format_args!("issued for {} s: ended when it came", lifetime.as_secs());
    ExchangeError::new(Fault::ShortLived, "exchange", detail)
}
