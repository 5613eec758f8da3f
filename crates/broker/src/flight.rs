//! One flight: from the queue over the cloud to its slot, on the control thread's runtime.
//!
//! It owns no slot. When the last holder gives the slot up, the flight leaves the queue at once and is never flown, and a
//! call that is under way ends: nobody could use what it brings.

use std::sync::{Arc, Weak};
use std::time::Duration;

use seawall_core::{Lease, Moment, Principal};

use crate::broker::Inner;
use crate::exchange::{ExchangeError, Fault, Issued};
use crate::fresh;
use crate::limiter::{Account, Ticket};
use crate::slot::{Landing, Slot};

/// Makes sure that a flight lands even if its task is lost: waiters must never wait for nothing.
pub(crate) struct Flight {
    inner: Arc<Inner>,
    slot: Weak<Slot>,
    principal: Principal,
    account: Account,
    landed: bool,
}

/// What a flight came to.
enum Outcome {
    /// The answer, and the instant before the first call: a lifetime counted from it never ends late.
    Flown(Moment, Result<Issued, ExchangeError>),
    /// Its turn did not come in time.
    GaveUp,
}

impl Flight {
    /// Takes off when its turn comes, if that is before `deadline`.
    pub(crate) fn start(inner: &Arc<Inner>, slot: &Arc<Slot>, ticket: Ticket, deadline: Moment) {
        let flight = Self {
            inner: inner.clone(),
            slot: Arc::downgrade(slot),
            account: Account::of(&slot.principal),
            principal: slot.principal.clone(),
            landed: false,
        };
        inner.runtime.spawn(flight.run(slot.landing(), ticket, deadline));
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
    async fn fly(&self, mut ticket: Ticket, deadline: Moment) -> Outcome {
        let inner = &self.inner;
        let turn = tokio::select! {
            turn = ticket.turn() => turn,
            () = inner.clock.sleep_until(deadline) => None,
        };
        let Some(_place) = turn else { return Outcome::GaveUp };
        let started = inner.clock.now();
        let result = tokio::select! {
            result = self.prove() => result,
            () = inner.clock.sleep(inner.settings.call_deadline) => {
                Err(ExchangeError::new(Fault::Upstream, "exchange", "no answer within the deadline"))
            }
        };
        Outcome::Flown(started, result)
    }

    /// Asks with the proof of one pod, or, if that cannot be had, of another: a pod whose token file is missing, or that has
    /// just gone, must not spoil what its siblings could prove. Those that come meanwhile are asked, too.
    async fn prove(&self) -> Result<Issued, ExchangeError> {
        let mut without =
            ExchangeError::new(Fault::Subject, "kubernetes token", "no pod is left to prove it");
        let mut tried = Vec::new();
        while let Some(proof) = self.slot.upgrade().and_then(|slot| slot.untried_proof(&tried)) {
            match self.inner.exchange.exchange(&self.principal, &*proof.subject).await {
                Err(error) if error.fault.is_of_the_proof() => without = error,
                result => return result,
            }
            tried.push(proof);
        }
        Err(without)
    }

    fn succeeded(&self, issued: Issued, started: Moment) {
        let inner = &self.inner;
        let Issued { credential, lifetime } = issued;
        let now = inner.clock.now();
        inner.limiter.succeeded(&self.account, now);
        self.check_life(now, lifetime);
        // At least a pause after now: an upstream whose credentials die at once must not be asked in a loop.
        let earliest = now + inner.settings.retry_first;
        let refresh_at = inner.settings.floor.refresh_at(started, lifetime, fastrand::f64()).max(earliest);
        let lease = Lease { value: credential, issued: started, expires: started + lifetime, refresh_at };
        if !lease.is_valid(now) {
            return self.failed(too_short(lifetime));
        }
        let Some(slot) = self.slot.upgrade() else { return };
        let is_renewal = slot.valid(now).is_some();
        inner.counters.succeeded(is_renewal);
        slot.succeed(lease, fresh::until(&self.principal.want, &inner.settings, started, lifetime));
        inner.log.issued(now, &self.principal, lifetime, is_renewal);
        inner.look_again(&slot, refresh_at);
    }

    fn check_life(&self, now: Moment, lifetime: Duration) {
        let inner = &self.inner;
        if !inner.settings.floor.is_reachable_with(lifetime) {
            inner.counters.below_floor();
            inner.log.short_lived(now, &self.principal, lifetime);
        }
    }

    fn failed(&self, error: ExchangeError) {
        let inner = &self.inner;
        let now = inner.clock.now();
        if error.fault == Fault::Throttled {
            inner.limiter.throttled(&self.account, now, error.retry_after);
        }
        inner.counters.failed(error.fault);
        inner.log.failed(now, &self.principal, &error);
        let Some(slot) = self.slot.upgrade() else { return };
        let wait = slot.fail(error, now, fastrand::f64());
        if let Some(lease) = slot.lease() {
            inner.look_again(&slot, (now + wait).min(lease.expires));
        }
    }

    fn gave_up(&self) {
        let Some(slot) = self.slot.upgrade() else { return };
        slot.give_up();
        if slot.lease().is_some() {
            self.inner.look_again(&slot, self.inner.clock.now() + self.inner.settings.retry_first);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.landed {
            self.failed(ExchangeError::new(Fault::Upstream, "exchange", "the call ended without a result"));
        }
    }
}

/// Said as what it is: to call it slow would send its reader to look for a slow upstream.
fn too_short(lifetime: Duration) -> ExchangeError {
    let detail = format_args!("issued for {} s: ended when it came", lifetime.as_secs());
    ExchangeError::new(Fault::ShortLived, "exchange", detail)
}
