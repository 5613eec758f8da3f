//! What one pod may ask for: its own principals and nothing else.
//!
//! The type is the barrier. A holder is made for an attested pod; it builds every principal from that pod's own
//! ServiceAccount and entitlement, so no request, however it is spelled, names anybody else's.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Gcra, Lease, Moment, Pod};

use crate::broker::Broker;
use crate::cache_entry::{Proof, Slot};
use crate::debug_view::PrincipalView;
use crate::exchange::{EntitlementOf, Exchange, WantOf};
use crate::fetch_results::Landings;
use crate::limiter::Party;
use crate::lookup::Asker;
use crate::principal::Principal;
use crate::shared::Shared;
use crate::unavailable::Unavailable;

/// How often one credential is waited for by who catches up, each time for [`crate::Settings::wait`]: longer than a call may take.
const CATCHING_UP: u32 = 8;

/// A pod that may hold credentials.
#[derive(Debug)]
pub struct HolderSpec<E> {
    /// The pod.
    pub pod: Pod,
    /// What it may have of the cloud.
    pub entitlement: E,
    /// Its Kubernetes token.
    pub subject: Arc<dyn SubjectTokens>,
}

/// One pod's way to its credentials. Dropping the last holder of a principal drops its lease.
#[derive(Debug)]
pub struct Holder<X: Exchange> {
    shared: Arc<Shared<X>>,
    entitlement: EntitlementOf<X>,
    proof: Arc<Proof>,
    slots: ArcSwap<Vec<Arc<Slot<X>>>>,
    /// Taken by writers of `slots`; readers never wait.
    writer: Mutex<()>,
    misses: Gcra,
}

/// Tells when a credential has changed.
#[derive(Debug)]
pub struct Changes(Option<Watched>);

#[derive(Debug)]
struct Watched {
    landings: Arc<Landings>,
    /// Leases that had come when last looked.
    seen: u64,
}

impl Changes {
    /// Returns when there is a lease that was not there before; never, if nothing can change. A renewal that fails
    /// changes nothing.
    pub async fn changed(&mut self) {
        if let Some(Watched { landings, seen }) = &mut self.0
            && let Ok(leases) = landings.more_leases(*seen).await
        {
            *seen = leases;
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// Here, because a holder asks its broker: the other way round the two files would need each other.
impl<X: Exchange> Broker<X> {
    /// One pod's way to its credentials.
    pub fn holder(&self, spec: HolderSpec<EntitlementOf<X>>) -> Arc<Holder<X>> {
        Arc::new(Holder::new(self.shared(), spec))
    }
}

impl<X: Exchange> Holder<X> {
    fn new(shared: Arc<Shared<X>>, spec: HolderSpec<EntitlementOf<X>>) -> Self {
        let settings = &shared.settings;
        let misses = Gcra::new(settings.misses_per_second, settings.misses_at_once);
        let proof = Arc::new(Proof { holder: shared.number(), pod: spec.pod, subject: spec.subject });
        Self {
            shared,
            entitlement: spec.entitlement,
            proof,
            slots: ArcSwap::default(),
            writer: Mutex::default(),
            misses,
        }
    }

    /// The pod.
    pub fn pod(&self) -> &Pod {
        &self.proof.pod
    }

    /// What this pod asked for and still may have in memory: its own slots, so listing every pod's is linear in what there is.
    pub fn principals(&self) -> Vec<PrincipalView<X::Principal>> {
        let own = |slot: &Arc<Slot<X>>| PrincipalView::of(slot);
        self.slots.load().iter().map(own).collect()
    }

    /// A valid lease from memory. No lock, no I/O, no allocation.
    pub fn held(&self, want: WantOf<'_, X>, now: Moment) -> Option<Arc<Lease<X::Credential>>> {
        let slots = self.slots.load();
        let slot = slots.iter().find(|slot| slot.principal.is_for(want))?;
        self.shared.hand_out(slot, now)
    }

    /// What is in memory, without noting a use or that anybody was answered with it: for operators to look at.
    pub fn peek(&self, want: WantOf<'_, X>) -> Option<Arc<Lease<X::Credential>>> {
        self.slots.load().iter().find(|slot| slot.principal.is_for(want))?.lease()
    }

    /// A valid lease, fetched if need be. Any number of callers share one upstream call, and it outlives them.
    ///
    /// # Errors
    /// Why there is none, now or after [`crate::Settings::wait`].
    pub async fn lease(&self, want: WantOf<'_, X>) -> Result<Arc<Lease<X::Credential>>, Unavailable> {
        self.lease_since(want, self.shared.now()).await
    }

    /// As [`Holder::lease`], for a request that came at `came`, on the broker's clock, and has waited since.
    ///
    /// # Errors
    /// Why there is none, now or [`crate::Settings::wait`] after `came`.
    pub async fn lease_since(
        &self,
        want: WantOf<'_, X>,
        came: Moment,
    ) -> Result<Arc<Lease<X::Credential>>, Unavailable> {
        let (slot, is_new) = self.slot(want)?;
        // A new slot's first call was paid for with the slot.
        let may_miss = || if is_new { Ok(()) } else { self.may_miss() };
        let asker = self.asker(&slot.principal);
        self.shared.lease(slot, asker, came, may_miss).await
    }

    /// Whether credentials come to it from this broker.
    pub fn is_of(&self, broker: &Broker<X>) -> bool {
        broker.is_made_of(&self.shared)
    }

    /// Fetches what another holder of the same pod holds, so that this one can take its place. Each once, and waits until it is there
    /// or cannot be had; how long that may take in all is the caller's to bound.
    pub async fn catch_up_with(&self, before: &Self) {
        let held = before.principals().into_iter().filter(|view| view.times.is_some());
        for principal in held.map(|view| view.principal) {
            for _ in 0..CATCHING_UP {
                // Slow is a call that is still under way.
                if !matches!(self.lease(principal.want()).await, Err(Unavailable::Slow)) {
                    break;
                }
            }
        }
    }

    /// Watches one credential. What has never been asked for is watched from its first [`Holder::lease`] on.
    pub fn changes(&self, want: WantOf<'_, X>) -> Changes {
        let watched = |slot: Arc<Slot<X>>| {
            let landings = slot.landings();
            let seen = landings.leases();
            Watched { landings, seen }
        };
        Changes(self.find(want).map(watched))
    }

    fn may_miss(&self) -> Result<(), Unavailable> {
        self.misses.take(self.shared.now()).map_err(|retry_after| {
            self.shared.counters.misses_refused();
            Unavailable::TooMany { retry_after }
        })
    }

    fn find(&self, want: WantOf<'_, X>) -> Option<Arc<Slot<X>>> {
        self.slots.load().iter().find(|slot| slot.principal.is_for(want)).cloned()
    }

    /// This pod's slot for `want`, and whether it was made just now: from the broker's, which pods of one
    /// ServiceAccount share.
    fn slot(&self, want: WantOf<'_, X>) -> Result<(Arc<Slot<X>>, bool), Unavailable> {
        if let Some(slot) = self.find(want) {
            return Ok((slot, false));
        }
        let principal = X::Principal::of(&self.pod().service_account, &self.entitlement, want)?;
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = self.find(want) {
            return Ok((slot, false));
        }
        self.shared.may_start(&self.asker(&principal))?;
        let mut slots: Vec<_> = self.slots.load().iter().cloned().collect();
        let evicted = self.room(&slots)?;
        // Making room for an invention costs a permit, or a pod could churn through everybody's memory for free.
        self.may_miss()?;
        for slot in evicted {
            slots.retain(|other| !Arc::ptr_eq(other, &slot));
            slot.remove_proof(&self.proof);
            self.shared.counters.evicted();
        }
        let slot = self.shared.slot(principal);
        slot.add_proof(&self.proof);
        slots.push(slot.clone());
        self.slots.store(Arc::new(slots));
        Ok((slot, true))
    }

    fn asker(&self, principal: &X::Principal) -> Asker {
        let party = Party { holder: self.proof.holder, account: principal.account() };
        let holds_nothing = self.slots.load().iter().all(|slot| slot.lease().is_none());
        Asker { party, holds_nothing }
    }

    /// What is to go for one more: those unused longest. Never one whose call is under way: a pod that invents faster than the
    /// cloud answers would throw away every answer before it comes.
    fn room(&self, slots: &[Arc<Slot<X>>]) -> Result<Vec<Arc<Slot<X>>>, Unavailable> {
        let settings = &self.shared.settings;
        let over = (slots.len() + 1).saturating_sub(settings.principals_per_holder.max(1));
        let mut idle: Vec<_> = slots.iter().filter(|slot| over > 0 && !slot.is_in_air()).cloned().collect();
        if idle.len() < over {
            self.shared.counters.misses_refused();
            return Err(Unavailable::TooMany { retry_after: settings.retry_first });
        }
        idle.sort_by_key(|slot| slot.used());
        idle.truncate(over);
        Ok(idle)
    }
}
