//! Flights and renewals: everything that happens on the control thread's runtime.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use seawall_core::{Clock, Lease, Moment, Principal};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::counters::Counters;
use crate::credential::Credential;
use crate::exchange::{Exchange, ExchangeError, Fault, Issued};
use crate::holder::{Holder, HolderSpec};
use crate::limiter::{Lane, Limiter};
use crate::log::Log;
use crate::schedule::{self, Notice, Watcher};
use crate::settings::Settings;
use crate::slot::{Boarding, Slot};
use crate::unavailable::Unavailable;
use crate::view::PrincipalView;

/// The broker; cheap to clone. Its renewals end with its last clone and last [`Holder`].
#[derive(Clone, Debug)]
pub struct Broker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    clock: Clock,
    exchange: Arc<dyn Exchange>,
    runtime: Handle,
    limiter: Arc<Limiter>,
    counters: Counters,
    log: Log,
    schedule: mpsc::UnboundedSender<Notice>,
    /// Slots made so far: the number of the next.
    made: AtomicU64,
    /// Every principal that some holder uses. Weak: holders own the slots.
    slots: Mutex<HashMap<Principal, Weak<Slot>>>,
}

impl Broker {
    /// A broker whose calls and renewals run on `runtime`.
    pub fn start(settings: Settings, clock: Clock, exchange: Arc<dyn Exchange>, runtime: Handle) -> Self {
        let (schedule, notices) = mpsc::unbounded_channel();
        let limiter = Limiter::new(settings.calls_per_second, settings.calls_at_once);
        runtime.spawn(limiter.dispatch(clock.clone()));
        let inner = Inner {
            settings,
            clock: clock.clone(),
            exchange,
            runtime,
            limiter,
            counters: Counters::default(),
            log: Log::default(),
            schedule,
            made: AtomicU64::new(0),
            slots: Mutex::default(),
        };
        let inner = Arc::new(inner);
        inner.runtime.spawn(schedule::run(Renewals(Arc::downgrade(&inner)), clock, notices));
        Self(inner)
    }

    /// One pod's way to its credentials.
    pub fn holder(&self, spec: HolderSpec) -> Arc<Holder> {
        Arc::new(Holder::new(self.clone(), spec))
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Chains of upstream calls that may start per second right now.
    pub fn upstream_rate(&self) -> f64 {
        self.0.limiter.per_second()
    }

    /// Every principal in use.
    pub fn principals(&self) -> Vec<PrincipalView> {
        let slots: Vec<_> = self.slots().values().filter_map(Weak::upgrade).collect();
        slots.iter().map(|slot| PrincipalView::of(slot)).collect()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// The slot of a principal, shared by everybody who is equal in every field.
    pub(crate) fn slot(&self, principal: Principal) -> Arc<Slot> {
        let mut slots = self.slots();
        if let Some(slot) = slots.get(&principal).and_then(Weak::upgrade) {
            return slot;
        }
        let number = self.0.made.fetch_add(1, Ordering::Relaxed);
        let notices = self.0.schedule.clone();
        let slot = Arc::new(Slot::new(principal.clone(), number, notices, &self.0.settings, self.now()));
        slots.insert(principal, Arc::downgrade(&slot));
        slot
    }

    /// The slot's lease, fetched if need be.
    pub(crate) async fn lease(
        &self,
        slot: &Arc<Slot>,
        may_start: impl FnOnce() -> Result<(), Unavailable>,
    ) -> Result<Arc<Lease<Credential>>, Unavailable> {
        let now = self.now();
        if let Some(lease) = self.hand_out(slot, now) {
            return Ok(lease);
        }
        let landing = match slot.board(now, Lane::First, may_start) {
            Boarding::Held => return self.hand_out(slot, now).ok_or(Unavailable::Slow),
            Boarding::Remembered(error) => return Err(Unavailable::Failed(error)),
            Boarding::Refused(unavailable) => return Err(unavailable),
            Boarding::Join(landing) => {
                self.0.counters.coalesced();
                landing
            }
            Boarding::Start(landing) => {
                self.0.clone().spawn_flight(slot.clone(), Lane::First);
                landing
            }
        };
        tokio::select! {
            landed = landing.wait() => landed.map_err(Unavailable::Failed)?,
            () = self.0.clock.sleep(self.0.settings.wait) => return Err(Unavailable::Slow),
        }
        self.hand_out(slot, self.now()).ok_or(Unavailable::Slow)
    }

    /// A valid lease about to be answered with.
    pub(crate) fn hand_out(&self, slot: &Slot, now: Moment) -> Option<Arc<Lease<Credential>>> {
        let lease = slot.held(now)?;
        self.0.counters.handed_out(lease.remaining(now), &self.0.settings.floor);
        Some(lease)
    }

    /// A lock, because every thread may meet a new principal; never taken for one that its holder knows.
    fn slots(&self) -> MutexGuard<'_, HashMap<Principal, Weak<Slot>>> {
        self.0.slots()
    }
}

/// Makes sure that a flight lands even if its task is lost: waiters must never wait for nothing.
struct Airborne {
    inner: Arc<Inner>,
    slot: Arc<Slot>,
    landed: bool,
}

impl Airborne {
    async fn land(mut self, lane: Lane) {
        let (started, result) = self.inner.fly(&self.slot, lane).await;
        self.landed = true;
        match result {
            Ok(issued) => self.inner.succeeded(&self.slot, issued, started, lane),
            Err(error) => self.inner.failed(&self.slot, error),
        }
    }
}

impl Drop for Airborne {
    fn drop(&mut self) {
        if !self.landed {
            let error = ExchangeError::new(Fault::Upstream, "exchange", "the call ended without a result");
            self.inner.failed(&self.slot, error);
        }
    }
}

/// What the schedule may do to the broker. Weak, so that the schedule ends with the broker.
struct Renewals(Weak<Inner>);

impl Watcher for Renewals {
    fn due(&self, slot: &Weak<Slot>) {
        if let (Some(inner), Some(slot)) = (self.0.upgrade(), slot.upgrade()) {
            inner.due(&slot);
        }
    }

    fn gone(&self, principal: &Principal) {
        let Some(inner) = self.0.upgrade() else { return };
        let mut slots = inner.slots();
        // The same principal may have come back as a new slot meanwhile.
        if slots.get(principal).is_some_and(|slot| slot.strong_count() == 0) {
            slots.remove(principal);
        }
    }
}

impl Inner {
    fn slots(&self) -> MutexGuard<'_, HashMap<Principal, Weak<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn_flight(self: Arc<Self>, slot: Arc<Slot>, lane: Lane) {
        let runtime = self.runtime.clone();
        runtime.spawn(Airborne { inner: self, slot, landed: false }.land(lane));
    }

    /// One chain of upstream calls, in its turn and within its deadline. The instant is from before the first call, so
    /// a lifetime counted from it never ends late.
    async fn fly(&self, slot: &Slot, lane: Lane) -> (Moment, Result<Issued, ExchangeError>) {
        let _turn = self.limiter.turn(lane, &slot.principal.workload).await;
        let started = self.clock.now();
        let result = tokio::select! {
            result = self.prove(slot) => result,
            () = self.clock.sleep(self.settings.call_deadline) => {
                Err(ExchangeError::new(Fault::Upstream, "exchange", "no answer within the deadline"))
            }
        };
        (started, result)
    }

    /// Asks with the proof of one pod, or, if that cannot be had, of another: a pod whose token file is missing, or that has
    /// just gone, must not spoil what its siblings could prove. Those that come meanwhile are asked, too.
    async fn prove(&self, slot: &Slot) -> Result<Issued, ExchangeError> {
        let mut without =
            ExchangeError::new(Fault::Subject, "kubernetes token", "no pod is left to prove it");
        let mut tried = Vec::new();
        while let Some(proof) = slot.untried_proof(&tried) {
            match self.exchange.exchange(&slot.principal, &*proof.subject).await {
                Err(error) if error.fault.is_of_the_proof() => without = error,
                result => return result,
            }
            tried.push(proof);
        }
        Err(without)
    }

    fn succeeded(&self, slot: &Arc<Slot>, issued: Issued, started: Moment, lane: Lane) {
        self.limiter.succeeded();
        self.counters.succeeded(lane);
        let Issued { credential, lifetime } = issued;
        let now = self.clock.now();
        if !self.settings.floor.is_reachable_with(lifetime) {
            self.counters.below_floor();
            self.log.short_lived(now, &slot.principal, lifetime);
        }
        // At least a pause after now: an upstream whose credentials die at once must not be asked in a loop.
        let earliest = now + self.settings.retry_first;
        let refresh_at = self.settings.floor.refresh_at(started, lifetime, fastrand::f64()).max(earliest);
        slot.succeed(Lease { value: credential, issued: started, expires: started + lifetime, refresh_at });
        self.log.issued(now, &slot.principal, lifetime, lane);
        self.look_again(slot, refresh_at);
    }

    fn failed(&self, slot: &Arc<Slot>, error: ExchangeError) {
        let now = self.clock.now();
        if error.fault == Fault::Throttled {
            self.limiter.throttled(now);
        }
        self.counters.failed(error.fault);
        self.log.failed(now, &slot.principal, &error);
        let wait = slot.fail(error, now, fastrand::f64());
        if let Some(lease) = slot.lease() {
            self.look_again(slot, (now + wait).min(lease.expires));
        }
    }

    fn look_again(&self, slot: &Arc<Slot>, at: Moment) {
        // The receiver ends only with the runtime, and then nothing is renewed any more.
        let _ = self.schedule.send(Notice::Due(at, slot.number, Arc::downgrade(slot)));
    }

    /// Renews what is due, unless nobody has asked for it during a whole life: then it is let go at once, because what is
    /// kept without being renewed would sooner or later be handed out below the floor. An SDK asks at least once a life.
    fn due(self: &Arc<Self>, slot: &Arc<Slot>) {
        let now = self.clock.now();
        let Some(lease) = slot.lease() else { return };
        let life = lease.expires.since(lease.issued);
        if !lease.is_valid(now) || now.since(slot.used()) >= life {
            return slot.drop_lease();
        }
        match slot.board(now, Lane::Renewal, || Ok(())) {
            Boarding::Start(_) => self.clone().spawn_flight(slot.clone(), Lane::Renewal),
            Boarding::Held | Boarding::Join(_) => {}
            Boarding::Remembered(_) | Boarding::Refused(_) => {
                self.look_again(slot, (now + self.settings.retry_first).min(lease.expires));
            }
        }
    }
}
