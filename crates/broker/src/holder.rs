//! What one pod may ask for: its own principals and nothing else.
//!
//! The type is the barrier. A holder is made for an attested pod; it builds every principal from that pod's own
//! ServiceAccount and account, so no request, however it is spelled, names anybody else's.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Cloud, Gcra, Lease, Moment, Pod, Principal, WantRef};
use tokio::sync::watch;

use crate::broker::{Asker, Broker};
use crate::credential::Credential;
use crate::limiter::{Account, HolderId, Party};
use crate::slot::{Landed, Proof, Slot};
use crate::unavailable::Unavailable;
use crate::view::PrincipalView;

/// A pod that may hold credentials.
#[derive(Debug)]
pub struct HolderSpec {
    /// The pod.
    pub pod: Pod,
    /// The Google service account it impersonates, if any.
    pub account: Option<Arc<str>>,
    /// Its Kubernetes token.
    pub subject: Arc<dyn SubjectTokens>,
}

/// One pod's way to its credentials. Dropping the last holder of a principal drops its lease.
#[derive(Debug)]
pub struct Holder {
    broker: Broker,
    account: Option<Arc<str>>,
    proof: Arc<Proof>,
    slots: ArcSwap<Vec<Arc<Slot>>>,
    /// Taken by writers of `slots`; readers never wait.
    writer: Mutex<()>,
    misses: Gcra,
}

/// Tells when a credential has changed.
#[derive(Debug)]
pub struct Changes(Option<Watched>);

#[derive(Debug)]
struct Watched {
    landings: watch::Receiver<Landed>,
    /// Leases that had come when last looked.
    seen: u64,
}

impl Changes {
    /// Returns when there is a lease that was not there before; never, if nothing can change. A renewal that fails
    /// changes nothing.
    pub async fn changed(&mut self) {
        if let Some(Watched { landings, seen }) = &mut self.0
            && let Ok(landed) = landings.wait_for(|landed| landed.leases > *seen).await
        {
            *seen = landed.leases;
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl Holder {
    pub(crate) fn new(broker: Broker, holder: HolderId, spec: HolderSpec) -> Self {
        let settings = broker.settings();
        let misses = Gcra::new(settings.misses_per_second, settings.misses_at_once);
        let proof = Arc::new(Proof { holder, pod: spec.pod, subject: spec.subject });
        Self {
            broker,
            account: spec.account,
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
    pub fn principals(&self) -> Vec<PrincipalView> {
        let own = |slot: &Arc<Slot>| PrincipalView::with_pods(slot, vec![self.pod().clone()]);
        self.slots.load().iter().map(own).collect()
    }

    /// A valid lease from memory. No lock, no I/O, no allocation.
    pub fn held(&self, want: WantRef<'_>, now: Moment) -> Option<Arc<Lease<Credential>>> {
        let slots = self.slots.load();
        let slot = slots.iter().find(|slot| slot.principal.want.as_ref() == want)?;
        self.broker.hand_out(slot, now)
    }

    /// A valid lease, fetched if need be. Any number of callers share one upstream call, and it outlives them.
    ///
    /// # Errors
    /// Why there is none, now or after [`crate::Settings::wait`].
    pub async fn lease(&self, want: WantRef<'_>) -> Result<Arc<Lease<Credential>>, Unavailable> {
        self.lease_since(want, self.broker.now()).await
    }

    /// As [`Holder::lease`], for a request that came at `came`, on the broker's clock, and has waited since.
    ///
    /// # Errors
    /// Why there is none, now or [`crate::Settings::wait`] after `came`.
    pub async fn lease_since(
        &self,
        want: WantRef<'_>,
        came: Moment,
    ) -> Result<Arc<Lease<Credential>>, Unavailable> {
        if self.account.is_none() && matches!(want, WantRef::IdToken { .. }) {
            return Err(Unavailable::NoAccount);
        }
        let (slot, is_new) = self.slot(want)?;
        // A new slot's first call was paid for with the slot.
        let may_miss = || if is_new { Ok(()) } else { self.may_miss() };
        let asker = self.asker(&slot.principal);
        self.broker.lease(slot, asker, came, may_miss).await
    }

    /// Watches one credential. What has never been asked for is watched from its first [`Holder::lease`] on.
    pub fn changes(&self, want: WantRef<'_>) -> Changes {
        let watched = |slot: Arc<Slot>| {
            let landings = slot.watch();
            let seen = landings.borrow().leases;
            Watched { landings, seen }
        };
        Changes(self.find(want).map(watched))
    }

    fn may_miss(&self) -> Result<(), Unavailable> {
        self.misses.take(self.broker.now()).map_err(|retry_after| {
            self.broker.counters().misses_refused();
            Unavailable::TooMany { retry_after }
        })
    }

    fn find(&self, want: WantRef<'_>) -> Option<Arc<Slot>> {
        self.slots.load().iter().find(|slot| slot.principal.want.as_ref() == want).cloned()
    }

    /// This pod's slot for `want`, and whether it was made just now: from the broker's, which pods of one
    /// ServiceAccount share.
    fn slot(&self, want: WantRef<'_>) -> Result<(Arc<Slot>, bool), Unavailable> {
        if let Some(slot) = self.find(want) {
            return Ok((slot, false));
        }
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = self.find(want) {
            return Ok((slot, false));
        }
        let principal = self.principal(want);
        self.broker.may_start(&self.asker(&principal))?;
        let mut slots: Vec<_> = self.slots.load().iter().cloned().collect();
        let evicted = self.room(&slots)?;
        // Making room for an invention costs a permit, or a pod could churn through everybody's memory for free.
        self.may_miss()?;
        for slot in evicted {
            slots.retain(|other| !Arc::ptr_eq(other, &slot));
            slot.remove_proof(&self.proof);
            self.broker.counters().evicted();
        }
        let slot = self.broker.slot(principal);
        slot.add_proof(&self.proof);
        slots.push(slot.clone());
        self.slots.store(Arc::new(slots));
        Ok((slot, true))
    }

    fn asker(&self, principal: &Principal) -> Asker {
        let party = Party { holder: self.proof.holder, account: Account::of(principal) };
        let holds_nothing = self.slots.load().iter().all(|slot| slot.lease().is_none());
        Asker { party, holds_nothing }
    }

    fn principal(&self, want: WantRef<'_>) -> Principal {
        Principal {
            cloud: Cloud::Google,
            workload: self.proof.pod.service_account.clone(),
            account: self.account.clone(),
            want: want.to_want(),
        }
    }

    /// What is to go for one more: those unused longest. Never one whose call is under way: a pod that invents faster than the
    /// cloud answers would throw away every answer before it comes.
    fn room(&self, slots: &[Arc<Slot>]) -> Result<Vec<Arc<Slot>>, Unavailable> {
        let settings = self.broker.settings();
        let over = (slots.len() + 1).saturating_sub(settings.principals_per_holder.max(1));
        let mut idle: Vec<_> = slots.iter().filter(|slot| over > 0 && !slot.is_in_air()).cloned().collect();
        if idle.len() < over {
            self.broker.counters().misses_refused();
            return Err(Unavailable::TooMany { retry_after: settings.retry_first });
        }
        idle.sort_by_key(|slot| slot.used());
        idle.truncate(over);
        Ok(idle)
    }
}
