//! One fetch of a credential. A fetch waits in the queue, calls the cloud and stores the result. It runs on the control thread's
//! runtime.
//!
//! A fetch does not own the cache entry. When the last pod client drops the entry, a queued fetch leaves the queue and makes no
//! call. If the call is already in flight, the fetch cancels the call, because no pod could use the result.

use std::sync::{Arc, Weak};
use std::time::Duration;

use seawall_core::{Lease, Moment};

use crate::broker_state::BrokerState;
use crate::cache_entry::CacheEntry;
use crate::credential_exchange::{IssuedCredential, TokenExchange};
use crate::failure::{ExchangeError, ExchangeFault};
use crate::fetch_waiters::NextFetchResult;
use crate::limiter::QueueTicket;
use crate::principal::Principal;
use crate::throttle_key::ThrottledAccountOrWorkload;

/// One fetch. It publishes a result even if its task is dropped. Otherwise requests would wait for a result that never comes.
pub(crate) struct FetchTask<X: TokenExchange> {
    shared: Arc<BrokerState<X>>,
    slot: Weak<CacheEntry<X>>,
    principal: X::Principal,
    account: ThrottledAccountOrWorkload,
    landed: bool,
}

enum Outcome<C> {
    /// The start of the first call, and the result. The lease counts the lifetime from this start, so the lease never outlives
    /// the credential.
    Completed(Moment, Result<IssuedCredential<C>, ExchangeError>),
    /// The fetch got no permit before its deadline.
    GaveUp,
}

impl<X: TokenExchange> FetchTask<X> {
    /// Starts a task that waits for its turn in the queue and then makes the call. The task gives up if it gets no turn before
    /// `deadline`.
    pub(crate) fn spawn_queued(
        shared: &Arc<BrokerState<X>>,
        slot: &Arc<CacheEntry<X>>,
        ticket: QueueTicket,
        deadline: Moment,
    ) {
        let flight = Self {
            shared: shared.clone(),
            slot: Arc::downgrade(slot),
            account: slot.principal.throttle_key(),
            principal: slot.principal.clone(),
            landed: false,
        };
        shared.runtime.spawn(flight.run(slot.result_waiter(), ticket, deadline));
    }

    async fn run(mut self, landing: NextFetchResult, ticket: QueueTicket, deadline: Moment) {
        let outcome = tokio::select! {
            // `biased` makes the task check first whether the entry was dropped. So no call starts for an entry that was dropped
            // just before the call's turn.
            biased;
            () = landing.wait_for_drop() => None,
            outcome = self.fly(ticket, deadline) => Some(outcome),
        };
        self.landed = true;
        match outcome {
            None => {}
            Some(Outcome::GaveUp) => self.gave_up(),
            Some(Outcome::Completed(started, Ok(issued))) => self.succeeded(issued, started),
            Some(Outcome::Completed(_, Err(error))) => self.failed(error),
        }
    }

    /// Waits for a permit, at most until `deadline`, and then calls the cloud.
    async fn fly(&self, mut ticket: QueueTicket, deadline: Moment) -> Outcome<X::Credential> {
        let shared = &*self.shared;
        let turn = tokio::select! {
            turn = ticket.wait_for_permit() => turn,
            () = shared.clock.sleep_until(deadline) => None,
        };
        let Some(_place) = turn else { return Outcome::GaveUp };
        let started = shared.clock.now();
        let result = tokio::select! {
            result = self.exchange_token() => result,
            () = shared.clock.sleep(shared.settings.call_deadline) => {
                Err(ExchangeError::new(ExchangeFault::Unavailable, "exchange", "the cloud did not answer within the deadline"))
            }
        };
        Outcome::Completed(started, result)
    }

    /// Calls the cloud with the token of one pod. If that token is missing or rejected, the fetch tries another pod's token.
    /// So one deleted pod, or one pod without a token file, does not make the fetch fail for the other pods. The fetch also tries
    /// the tokens of pods that join the cache entry in the meantime.
    async fn exchange_token(&self) -> Result<IssuedCredential<X::Credential>, ExchangeError> {
        let mut without = ExchangeError::new(
            ExchangeFault::PodTokenUnavailable,
            "kubernetes token",
            "no pod with a usable token is left",
        );
        let mut tried = Vec::new();
        while let Some(proof) = self.slot.upgrade().and_then(|slot| slot.untried_subject(&tried)) {
            match self.shared.exchange.issue(&self.principal, &*proof.tokens).await {
                Err(error) if error.fault.is_token_error() => without = error,
                result => return result,
            }
            tried.push(proof);
        }
        Err(without)
    }

    fn succeeded(&self, issued: IssuedCredential<X::Credential>, started: Moment) {
        let shared = &*self.shared;
        let IssuedCredential { credential, lifetime, shortened_from: cut_from } = issued;
        let now = shared.clock.now();
        shared.limiter.record_success(&self.account, now);
        if let Some(asked) = cut_from {
            shared.counters.record_lifetime_reduced();
            shared.fetch_log.log_shortened_lifetime(now, &self.principal, asked, lifetime);
        }
        self.check_life(now, lifetime);
        // The renewal starts no earlier than `first_retry_delay` (1 s) from now. Otherwise credentials that expire immediately
        // would cause a loop of calls.
        let earliest = now + shared.settings.first_retry_delay;
        let refresh_at =
            shared.settings.lifetime_floor.refresh_at(started, lifetime, fastrand::f64()).max(earliest);
        let lease = Lease { value: credential, issued: started, expires: started + lifetime, refresh_at };
        if !lease.is_valid(now) {
            return self.failed(too_short(lifetime));
        }
        let Some(slot) = self.slot.upgrade() else { return };
        let is_renewal = slot.valid_lease(now).is_some();
        shared.counters.record_succeeded(is_renewal);
        let shared_for = self.principal.max_cache_age(lifetime);
        slot.complete_fetch(lease, shared_for.map_or(Moment::from_nanos(u64::MAX), |span| started + span));
        shared.fetch_log.log_issued(now, &self.principal, lifetime, is_renewal);
        shared.schedule_renewal(&slot, refresh_at);
    }

    fn check_life(&self, now: Moment, lifetime: Duration) {
        let shared = &*self.shared;
        if !shared.settings.lifetime_floor.is_reachable_with(lifetime) {
            shared.counters.record_issued_below_twice_floor();
            shared.fetch_log.log_short_lived(now, &self.principal, lifetime);
        }
    }

    fn failed(&self, error: ExchangeError) {
        let shared = &*self.shared;
        let now = shared.clock.now();
        if error.fault == ExchangeFault::Throttled {
            shared.limiter.record_throttled(&self.account, now, error.retry_after);
        }
        shared.counters.record_failed(error.fault);
        shared.fetch_log.log_failed(now, &self.principal, &error);
        let Some(slot) = self.slot.upgrade() else { return };
        let wait = slot.fail_fetch(error, now, fastrand::f64());
        if let Some(lease) = slot.lease() {
            let at = now + wait;
            let last = last_try(&lease, slot.lifetime_floor).filter(|last| (now..at).contains(last));
            shared.schedule_renewal(&slot, last.unwrap_or(at).min(lease.expires));
        }
    }

    fn gave_up(&self) {
        let Some(slot) = self.slot.upgrade() else { return };
        slot.abandon_fetch();
        if slot.lease().is_some() {
            self.shared
                .schedule_renewal(&slot, self.shared.clock.now() + self.shared.settings.first_retry_delay);
        }
    }
}

impl<X: TokenExchange> Drop for FetchTask<X> {
    fn drop(&mut self) {
        if !self.landed {
            self.failed(ExchangeError::new(
                ExchangeFault::Unavailable,
                "exchange",
                "the call ended without a result",
            ));
        }
    }
}

/// The time from the last retry of a failed renewal to the moment at which the lease reaches its floor.
/// The last retry does not wait for the end of the pause between retries. The time is twice the deadline of a fetch's calls
/// (`call_deadline`).
const LAST_TRY: Duration = Duration::from_secs(10);

/// Returns the time of the last retry, which is [`LAST_TRY`] before the remaining lifetime reaches the floor.
/// Pauses between retries grow to a minute. Suppose that an outage ends during a pause, just before the lease reaches the floor.
/// Without the last retry, responses would be below the floor until the pause is over. A lease with a lifetime below twice the
/// floor has no last retry, because renewal cannot keep such a lease above the floor.
fn last_try<C>(lease: &Lease<C>, floor: Duration) -> Option<Moment> {
    let could_be_kept = lease.expires.since(lease.issued) / 2 >= floor;
    could_be_kept.then(|| lease.expires.saturating_sub_duration(floor + LAST_TRY))
}

/// Returns the error for a credential that had expired when it arrived.
/// The error states the short lifetime, so that operators do not suspect a slow cloud.
fn too_short(lifetime: Duration) -> ExchangeError {
    let detail = format_args!(
        "the cloud issued a credential for only {} s, and the credential had expired on arrival",
        lifetime.as_secs()
    );
    ExchangeError::new(ExchangeFault::ShortLived, "exchange", detail)
}
