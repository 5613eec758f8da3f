//! One principal's place: its lease, and at most one call in the air for it.
//!
//! Readers take the lease from an atomic pointer. Everything else happens under one small lock that no await crosses:
//! who may start a flight, what the last one came to, until when its failure is remembered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Backoff, Lease, Moment, Pod, Principal};
use tokio::sync::{mpsc, watch};

use crate::credential::Credential;
use crate::exchange::ExchangeError;
use crate::limiter::Lane;
use crate::schedule::Notice;
use crate::settings::Settings;
use crate::unavailable::Unavailable;

/// Pods whose proof is tried in one flight.
const PROOFS_TRIED: usize = 4;

/// A pod that uses the slot, and the proof with which a call for it can be made.
#[derive(Debug)]
pub(crate) struct Proof {
    pub(crate) pod: Pod,
    pub(crate) subject: Arc<dyn SubjectTokens>,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) principal: Principal,
    /// Tells slots apart, also those of one principal that came and went.
    pub(crate) number: u64,
    notices: mpsc::UnboundedSender<Notice>,
    lease: ArcSwapOption<Lease<Credential>>,
    used: AtomicU64,
    landed: watch::Sender<Landed>,
    flight: Mutex<Flight>,
    /// Weak: a slot must not keep a pod's proof alive after the pod.
    proofs: Mutex<Vec<Weak<Proof>>>,
}

/// What the last flight came to; `number` tells flights apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Landed {
    number: u64,
    /// How many of them brought a lease.
    pub(crate) leases: u64,
    error: Option<ExchangeError>,
}

#[derive(Debug)]
struct Flight {
    in_air: bool,
    remembered: Option<(ExchangeError, Moment)>,
    backoff: Backoff,
}

/// What a request that found no lease does next.
pub(crate) enum Boarding {
    /// Take the lease: it came just now.
    Held,
    /// Wait for a flight that is in the air.
    Join(Landing),
    /// Start one, and wait for it.
    Start(Landing),
    /// The last failure is too recent.
    Remembered(ExchangeError),
    /// Not allowed to start one.
    Refused(Unavailable),
}

/// Waits for a flight.
#[derive(Debug)]
pub(crate) struct Landing {
    receiver: watch::Receiver<Landed>,
    after: u64,
}

impl Landing {
    /// Returns when the flight has landed; its error, if it failed.
    pub(crate) async fn wait(mut self) -> Result<(), ExchangeError> {
        match self.receiver.wait_for(|landed| landed.number > self.after).await {
            Ok(landed) => landed.error.clone().map_or(Ok(()), Err),
            // The slot is gone with its last pod; nobody is left to answer.
            Err(_) => Ok(()),
        }
    }
}

impl Slot {
    pub(crate) fn new(
        principal: Principal,
        number: u64,
        notices: mpsc::UnboundedSender<Notice>,
        settings: &Settings,
        now: Moment,
    ) -> Self {
        Self {
            principal,
            number,
            notices,
            lease: ArcSwapOption::empty(),
            used: AtomicU64::new(now.as_nanos()),
            landed: watch::Sender::default(),
            flight: Mutex::new(Flight {
                in_air: false,
                remembered: None,
                backoff: Backoff::doubling(settings.retry_first, settings.retry_ceiling),
            }),
            proofs: Mutex::default(),
        }
    }

    /// The lease, if it is still valid; notes the use. No lock, no allocation.
    pub(crate) fn held(&self, now: Moment) -> Option<Arc<Lease<Credential>>> {
        self.used.store(now.as_nanos(), Ordering::Relaxed);
        self.lease.load_full().filter(|lease| lease.is_valid(now))
    }

    /// The lease as it is, without noting a use.
    pub(crate) fn lease(&self) -> Option<Arc<Lease<Credential>>> {
        self.lease.load_full()
    }

    /// When it was last asked for.
    pub(crate) fn used(&self) -> Moment {
        Moment::from_nanos(self.used.load(Ordering::Relaxed))
    }

    /// Joins or starts a flight. `may_start` is asked only before a start.
    pub(crate) fn board(
        &self,
        now: Moment,
        lane: Lane,
        may_start: impl FnOnce() -> Result<(), Unavailable>,
    ) -> Boarding {
        let mut flight = self.flight();
        // A flight may have landed since the caller looked; without this, the second of two threads calls again.
        if lane == Lane::First && self.lease().is_some_and(|lease| lease.is_valid(now)) {
            return Boarding::Held;
        }
        let receiver = self.landed.subscribe();
        let after = receiver.borrow().number;
        let landing = Landing { receiver, after };
        if flight.in_air {
            return Boarding::Join(landing);
        }
        if let Some((error, until)) = &flight.remembered
            && now < *until
        {
            return Boarding::Remembered(error.clone());
        }
        if let Err(unavailable) = may_start() {
            return Boarding::Refused(unavailable);
        }
        flight.in_air = true;
        Boarding::Start(landing)
    }

    /// Ends the flight with a lease.
    pub(crate) fn succeed(&self, lease: Lease<Credential>) {
        self.lease.store(Some(Arc::new(lease)));
        let mut flight = self.flight();
        flight.in_air = false;
        flight.remembered = None;
        flight.backoff.reset();
        self.land(None);
    }

    /// Ends the flight with a failure, which is remembered; how long to wait before a renewal is tried again.
    pub(crate) fn fail(&self, error: ExchangeError, now: Moment, draw: f64) -> Duration {
        let mut flight = self.flight();
        flight.in_air = false;
        let memory = error.fault.memory().max(error.retry_after.unwrap_or_default());
        flight.remembered = Some((error.clone(), now + memory));
        let wait = flight.backoff.next(draw).max(memory);
        self.land(Some(error));
        wait
    }

    fn land(&self, error: Option<ExchangeError>) {
        self.landed.send_modify(|landed| {
            landed.number += 1;
            landed.leases += u64::from(error.is_none());
            landed.error = error;
        });
    }

    /// Drops the lease, so that its text does not outlive its use.
    pub(crate) fn drop_lease(&self) {
        self.lease.store(None);
    }

    /// Tells of every flight that lands.
    pub(crate) fn watch(&self) -> watch::Receiver<Landed> {
        self.landed.subscribe()
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

    /// A proof of a pod that lives and was not tried: the youngest, whose token has longest to live. A few at most.
    pub(crate) fn untried_proof(&self, tried: &[Arc<Proof>]) -> Option<Arc<Proof>> {
        let is_untried = |proof: &Arc<Proof>| !tried.iter().any(|other| Arc::ptr_eq(other, proof));
        let proofs = self.proofs();
        let mut alive = proofs.iter().rev().filter_map(Weak::upgrade);
        alive.find(is_untried).filter(|_| tried.len() < PROOFS_TRIED)
    }

    /// The pods that use it.
    pub(crate) fn pods(&self) -> Vec<Pod> {
        self.proofs().iter().filter_map(Weak::upgrade).map(|proof| proof.pod.clone()).collect()
    }

    /// Whether a call is in the air, and the failure that is remembered.
    pub(crate) fn state(&self) -> (bool, Option<ExchangeError>) {
        let flight = self.flight();
        (flight.in_air, flight.remembered.as_ref().map(|(error, _)| error.clone()))
    }

    fn flight(&self) -> MutexGuard<'_, Flight> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn proofs(&self) -> MutexGuard<'_, Vec<Weak<Proof>>> {
        self.proofs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Without a receiver the broker is gone, too.
        let _ = self.notices.send(Notice::Gone(self.number, self.principal.clone()));
    }
}
