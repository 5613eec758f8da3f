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

use crate::exchange::Exchange;
use crate::failure::{ExchangeError, Fault};
use crate::fetch_results::{Landing, Landings};
use crate::limiter::{HolderId, Ticket};
use crate::principal::Principal;
use crate::renewal_schedule::Notice;
use crate::settings::Settings;
use crate::unavailable::Unavailable;

/// Pods whose proof is tried in one flight.
const PROOFS_TRIED: usize = 4;

/// A pod that uses the slot, and the proof with which a call for it can be made.
#[derive(Debug)]
pub(crate) struct Proof {
    pub(crate) holder: HolderId,
    pub(crate) pod: Pod,
    pub(crate) subject: Arc<dyn SubjectTokens>,
}

/// The schedule's ear.
pub(crate) type Notices<X> = mpsc::UnboundedSender<Notice<Weak<Slot<X>>, <X as Exchange>::Principal>>;

#[derive(Debug)]
pub(crate) struct Slot<X: Exchange> {
    pub(crate) principal: X::Principal,
    /// Tells slots apart, also those of one principal that came and went.
    pub(crate) number: u64,
    /// The least life of an answer while the cloud answers.
    pub(crate) floor: Duration,
    notices: Notices<X>,
    lease: ArcSwapOption<Lease<X::Credential>>,
    /// Until when the lease is answered with from memory, while it is valid.
    fresh_until: AtomicU64,
    used: AtomicU64,
    landings: Arc<Landings>,
    flight: Mutex<Flight>,
    /// Weak: a slot must not keep a pod's proof alive after the pod.
    proofs: Mutex<Vec<Weak<Proof>>>,
}

#[derive(Debug)]
struct Flight {
    in_air: bool,
    /// Of the flight in the air: which pods wait for it, and each since when. As many as share the principal.
    waits: Vec<(HolderId, Moment)>,
    /// Of the flight in the air: where it stood in the queue.
    ticket: Option<u64>,
    remembered: Option<(ExchangeError, Moment)>,
    /// When the first call failed since one succeeded.
    failing_since: Option<Moment>,
    backoff: Backoff,
}

impl Flight {
    /// Since when this pod waits for the flight: each for itself, or one that shares its account would spend its patience.
    fn waits_since(&mut self, asker: HolderId, now: Moment) -> Moment {
        if let Some((_, since)) = self.waits.iter().find(|(waiting, _)| *waiting == asker) {
            return *since;
        }
        self.waits.push((asker, now));
        now
    }
}

/// What a request that found no lease does next.
pub(crate) enum Boarding {
    /// Take the lease: it came just now.
    Held,
    /// Wait for a flight that is under way, and that had this ticket.
    Join(Landing, Option<u64>, Moment),
    /// Start one, and wait for it.
    Start(Landing, Ticket),
    /// The last failure is too recent.
    Remembered(ExchangeError),
    /// Not allowed to start one.
    Refused(Unavailable),
}

impl<X: Exchange> Slot<X> {
    pub(crate) fn new(
        principal: X::Principal,
        number: u64,
        notices: Notices<X>,
        settings: &Settings,
        now: Moment,
    ) -> Self {
        Self {
            floor: principal.least_life(settings.floor),
            principal,
            number,
            notices,
            lease: ArcSwapOption::empty(),
            fresh_until: AtomicU64::new(u64::MAX),
            used: AtomicU64::new(now.as_nanos()),
            landings: Arc::default(),
            flight: Mutex::new(Flight {
                in_air: false,
                waits: Vec::new(),
                ticket: None,
                remembered: None,
                failing_since: None,
                backoff: Backoff::doubling(settings.retry_first, settings.retry_ceiling),
            }),
            proofs: Mutex::default(),
        }
    }

    /// The lease, if it is to be answered with from memory; notes the use. No lock, no allocation.
    pub(crate) fn held(&self, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        self.used.store(now.as_nanos(), Ordering::Relaxed);
        // Read before the lease and written after it: a new lease's time is never taken for an older lease's.
        if now.as_nanos() >= self.fresh_until.load(Ordering::Acquire) {
            return None;
        }
        self.valid(now)
    }

    /// The lease while it is valid, however little it has left.
    pub(crate) fn valid(&self, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        self.lease.load_full().filter(|lease| lease.is_valid(now))
    }

    /// The lease as it is, without noting a use.
    pub(crate) fn lease(&self) -> Option<Arc<Lease<X::Credential>>> {
        self.lease.load_full()
    }

    /// When it was last asked for.
    pub(crate) fn used(&self) -> Moment {
        Moment::from_nanos(self.used.load(Ordering::Relaxed))
    }

    /// Joins or starts a flight, for a request of this pod or to renew. `start` is asked only before a start.
    pub(crate) fn board(
        &self,
        now: Moment,
        asker: Option<HolderId>,
        start: impl FnOnce() -> Result<Ticket, Unavailable>,
    ) -> Boarding {
        let mut flight = self.flight();
        // A flight may have landed since the caller looked; without this, the second of two threads calls again.
        if asker.is_some() && self.held(now).is_some() {
            return Boarding::Held;
        }
        let landing = self.landing();
        if flight.in_air {
            let since = asker.map_or(now, |asker| flight.waits_since(asker, now));
            return Boarding::Join(landing, flight.ticket, since);
        }
        if let Some((error, until)) = &flight.remembered
            && now < *until
        {
            return Boarding::Remembered(error.clone());
        }
        match start() {
            Ok(ticket) => {
                flight.in_air = true;
                flight.waits = asker.map(|asker| (asker, now)).into_iter().collect();
                flight.ticket = Some(ticket.id);
                Boarding::Start(landing, ticket)
            }
            Err(unavailable) => Boarding::Refused(unavailable),
        }
    }

    /// Waits for the next landing.
    pub(crate) fn landing(&self) -> Landing {
        Landing::next(&self.landings)
    }

    /// Ends the flight with a lease, to be answered with from memory until `fresh_until`.
    pub(crate) fn succeed(&self, lease: Lease<X::Credential>, fresh_until: Moment) {
        let mut flight = self.flight();
        self.lease.store(Some(Arc::new(lease)));
        self.fresh_until.store(fresh_until.as_nanos(), Ordering::Release);
        flight.remembered = None;
        flight.failing_since = None;
        flight.backoff.reset();
        self.land(&mut flight, true, None);
    }

    /// Ends the flight with a failure, which is remembered; how long to wait before a renewal is tried again.
    ///
    /// Throttled renewals are not spaced out ever more: whoever asked for less is paced by the limiter, and a renewal that
    /// waited for its own back-off beside would lose its turns to calls that did not.
    pub(crate) fn fail(&self, error: ExchangeError, now: Moment, draw: f64) -> Duration {
        let mut flight = self.flight();
        let memory = error.fault.memory().max(error.retry_after.unwrap_or_default());
        let wait = match error.fault {
            Fault::Throttled => memory,
            _ => flight.backoff.next(draw).max(memory),
        };
        let memory = if error.fault.is_asked_ever_less() { wait } else { memory };
        flight.remembered = Some((error.clone(), now + memory));
        flight.failing_since.get_or_insert(now);
        self.make_do_with_it();
        self.land(&mut flight, false, Some(error));
        wait
    }

    /// Ends a flight that never flew. Nothing is remembered: nobody was asked.
    pub(crate) fn give_up(&self) {
        let mut flight = self.flight();
        self.make_do_with_it();
        self.land(&mut flight, false, None);
    }

    /// A flight takes longer than a request waits: until it lands, what there is is answered with at once.
    pub(crate) fn make_do(&self) {
        let flight = self.flight();
        if flight.in_air {
            self.make_do_with_it();
        }
    }

    /// Answers with the lease there is, while it is valid, until another comes.
    fn make_do_with_it(&self) {
        self.fresh_until.store(u64::MAX, Ordering::Release);
    }

    fn land(&self, flight: &mut Flight, is_lease: bool, error: Option<ExchangeError>) {
        flight.in_air = false;
        flight.waits = Vec::new();
        flight.ticket = None;
        self.landings.land(is_lease, error);
    }

    /// Drops the lease, so that its text does not outlive its use.
    pub(crate) fn drop_lease(&self) {
        self.lease.store(None);
    }

    /// Tells of every flight that lands.
    pub(crate) fn landings(&self) -> Arc<Landings> {
        self.landings.clone()
    }

    /// Lets calls for this principal be made with a pod's proof while that pod lives.
    pub(crate) fn add_proof(&self, proof: &Arc<Proof>) {
        let mut proofs = self.proofs();
        proofs.retain(|known| known.strong_count() > 0);
        if !proofs.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(proof))) {
            proofs.push(Arc::downgrade(proof));
            drop(proofs);
            // What failed for want of a proof may be had with this one.
            let mut flight = self.flight();
            if flight.remembered.as_ref().is_some_and(|(error, _)| error.fault.is_of_the_proof()) {
                flight.remembered = None;
            }
        }
    }

    /// A pod has given it up; it is not asked to prove it any more.
    pub(crate) fn remove_proof(&self, proof: &Arc<Proof>) {
        self.proofs().retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(proof)));
    }

    /// A proof of a pod that lives and was not tried: the youngest, whose token has longest to live. A few at most.
    pub(crate) fn untried_proof(&self, tried: &[Arc<Proof>]) -> Option<Arc<Proof>> {
        let is_untried = |proof: &Arc<Proof>| !tried.iter().any(|other| Arc::ptr_eq(other, proof));
        let proofs = self.proofs();
        let mut alive = proofs.iter().rev().filter_map(Weak::upgrade);
        alive.find(is_untried).filter(|_| tried.len() < PROOFS_TRIED)
    }

    /// The holders that use it.
    pub(crate) fn holders(&self) -> Vec<HolderId> {
        self.proofs().iter().filter_map(Weak::upgrade).map(|proof| proof.holder).collect()
    }

    /// Whether a flight is under way.
    pub(crate) fn is_in_air(&self) -> bool {
        self.flight().in_air
    }

    /// Whether a call is in the air, the failure that is remembered, and since when all have failed.
    pub(crate) fn state(&self) -> (bool, Option<ExchangeError>, Option<Moment>) {
        let flight = self.flight();
        let failure = flight.remembered.as_ref().map(|(error, _)| error.clone());
        (flight.in_air, failure, flight.failing_since)
    }

    fn flight(&self) -> MutexGuard<'_, Flight> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn proofs(&self) -> MutexGuard<'_, Vec<Weak<Proof>>> {
        self.proofs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<X: Exchange> Drop for Slot<X> {
    fn drop(&mut self) {
        self.landings.close();
        // Without a receiver the broker is gone, too.
        let _ = self.notices.send(Notice::Gone(self.number, self.principal.clone()));
    }
}
