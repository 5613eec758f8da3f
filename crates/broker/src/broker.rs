//! Who gets which slot's lease, what starts a flight, and what is renewed when.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use seawall_core::{Clock, Lease, Moment, Principal};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::counters::Counters;
use crate::credential::Credential;
use crate::exchange::{Exchange, ExchangeError, Fault};
use crate::flight::Flight;
use crate::holder::{Holder, HolderSpec};
use crate::limiter::{Account, HolderId, Lane, Limiter, Party, Refused, Ticket};
use crate::log::Log;
use crate::schedule::{self, Notice, Watcher};
use crate::settings::Settings;
use crate::slot::{Boarding, Landing, Slot};
use crate::unavailable::Unavailable;
use crate::view::PrincipalView;

/// The broker; cheap to clone. Its renewals end with its last clone and last [`Holder`].
#[derive(Clone, Debug)]
pub struct Broker(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) exchange: Arc<dyn Exchange>,
    pub(crate) runtime: Handle,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) counters: Counters,
    pub(crate) log: Log,
    schedule: mpsc::UnboundedSender<Notice>,
    /// Slots and holders made so far: the number of the next.
    made: AtomicU64,
    /// Every principal that some holder uses. Weak: holders own the slots.
    slots: Mutex<HashMap<Principal, Weak<Slot>>>,
}

impl Broker {
    /// A broker whose calls and renewals run on `runtime`.
    pub fn start(settings: Settings, clock: Clock, exchange: Arc<dyn Exchange>, runtime: Handle) -> Self {
        let (schedule, notices) = mpsc::unbounded_channel();
        let limiter = Limiter::new(&settings);
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
        Arc::new(Holder::new(self.clone(), self.number(), spec))
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
        let number = self.number();
        let notices = self.0.schedule.clone();
        let slot = Arc::new(Slot::new(principal.clone(), number, notices, &self.0.settings, self.now()));
        slots.insert(principal, Arc::downgrade(&slot));
        slot
    }

    /// Whether a request may start a call for something new. Asked before anything is made for it.
    pub(crate) fn may_start(&self, asker: &Asker) -> Result<(), Unavailable> {
        self.0.limiter.may_queue(&asker.party, self.now()).map_err(|refused| self.unavailable(refused))
    }

    /// The slot's lease, fetched if need be, for a request that came at `came`; or why there is none in time. Of a lease that is valid and not to be answered
    /// with from memory any more a new one is fetched; if that cannot be had in time, it is the answer.
    pub(crate) async fn lease(
        &self,
        slot: Arc<Slot>,
        asker: Asker,
        came: Moment,
        may_miss: impl FnOnce() -> Result<(), Unavailable>,
    ) -> Result<Arc<Lease<Credential>>, Unavailable> {
        let now = self.now();
        if let Some(lease) = self.hand_out(&slot, now) {
            return Ok(lease);
        }
        let (landing, since) = match self.board(&slot, &asker, now, may_miss) {
            Ok(boarded) => boarded,
            Err(unavailable) => return self.hand_out_older(&slot, now).ok_or(unavailable),
        };
        let deadline = came.min(since) + self.0.settings.wait;
        // A request that waits must not keep a slot which its holder has given up.
        let slot = Arc::downgrade(&{ slot });
        let landed = tokio::select! {
            landed = landing.wait() => Some(landed),
            () = self.0.clock.sleep_until(deadline) => None,
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
        &self,
        slot: &Arc<Slot>,
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
                self.0.counters.coalesced();
                if let Some(ticket) = ticket {
                    self.0.limiter.lift(ticket, &asker.party, asker.holds_nothing);
                }
                Ok((landing, since))
            }
            Boarding::Start(landing, ticket) => {
                Flight::start(&self.0, slot, ticket, now + self.0.settings.queue_deadline);
                Ok((landing, now))
            }
        }
    }

    fn ticket(&self, asker: &Asker, now: Moment) -> Result<Ticket, Unavailable> {
        let lane = Lane::Waited { holds_nothing: asker.holds_nothing };
        let ticket = self.0.limiter.queue(asker.party.clone(), lane, now);
        ticket.map_err(|refused| self.unavailable(refused))
    }

    fn unavailable(&self, refused: Refused) -> Unavailable {
        match refused {
            Refused::Full => {
                self.0.counters.misses_refused();
                Unavailable::TooMany { retry_after: self.0.settings.retry_first }
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
    pub(crate) fn hand_out(&self, slot: &Slot, now: Moment) -> Option<Arc<Lease<Credential>>> {
        let lease = slot.held(now)?;
        self.0.counters.handed_out(lease.remaining(now), slot.floor);
        Some(lease)
    }

    /// The same, however little life it has left.
    fn hand_out_older(&self, slot: &Slot, now: Moment) -> Option<Arc<Lease<Credential>>> {
        let lease = slot.valid(now)?;
        self.0.counters.handed_out(lease.remaining(now), slot.floor);
        Some(lease)
    }

    fn number(&self) -> u64 {
        self.0.made.fetch_add(1, Ordering::Relaxed)
    }

    /// A lock, because every thread may meet a new principal; never taken for one that its holder knows.
    fn slots(&self) -> MutexGuard<'_, HashMap<Principal, Weak<Slot>>> {
        self.0.slots()
    }
}

/// Which pod asks.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) party: Party,
    /// Whether it holds nothing at all.
    pub(crate) holds_nothing: bool,
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

    pub(crate) fn look_again(&self, slot: &Arc<Slot>, at: Moment) {
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
    fn renewal(&self, slot: &Slot, urgent_at: Moment, now: Moment) -> Result<Ticket, Unavailable> {
        let holders: Vec<HolderId> = slot.holders();
        let holder = self.limiter.least_queued(&holders).ok_or(Unavailable::Slow)?;
        let party = Party { holder, account: Account::of(&slot.principal) };
        self.limiter.queue(party, Lane::Renewal { urgent_at }, now).map_err(|_| Unavailable::Slow)
    }
}
