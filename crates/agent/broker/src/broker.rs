//! One cloud's broker, as the agent has it.

use std::sync::{Arc, Weak};

use seawall_core::{Clock, Floor};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::cache_entry::Slot;
use crate::counters::Counters;
use crate::debug_view::PrincipalView;
use crate::exchange::Exchange;
use crate::renew::Renewals;
use crate::renewal_schedule::{self, Notice};
use crate::settings::Settings;
use crate::shared::Shared;

/// The broker of one cloud, with a floor, a limiter and counters of its own; cheap to clone. Its renewals end with its last
/// clone and last [`Holder`](crate::Holder).
#[derive(Debug)]
pub struct Broker<X: Exchange>(Arc<Shared<X>>);

/// Where the schedule hears of slots.
type Heard<X> = mpsc::UnboundedReceiver<Notice<Weak<Slot<X>>, <X as Exchange>::Principal>>;

impl<X: Exchange> Clone for Broker<X> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<X: Exchange> Broker<X> {
    /// What its parts have in common.
    pub(crate) fn shared(&self) -> Arc<Shared<X>> {
        self.0.clone()
    }

    /// A broker whose calls and renewals run on `runtime`.
    pub fn start(settings: Settings, clock: Clock, exchange: Arc<X>, runtime: Handle) -> Self {
        let (sender, notices) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(settings, clock.clone(), exchange, runtime, sender));
        shared.runtime.spawn(shared.limiter.dispatch(clock));
        Self::renewing(shared, notices)
    }

    /// The broker of the same cloud that is asked in another way from now on. It holds nothing of what this one does: a credential is
    /// right for the way in which it was asked for. The pace that the cloud was found to stand is theirs together, or a change of
    /// the way would be a burst of calls; so is what is counted.
    pub fn succeeded_by(&self, exchange: Arc<X>) -> Self {
        let (sender, notices) = mpsc::unbounded_channel();
        Self::renewing(Arc::new(self.0.succeeded(exchange, sender)), notices)
    }

    fn renewing(shared: Arc<Shared<X>>, notices: Heard<X>) -> Self {
        let renewals = Renewals(Arc::downgrade(&shared));
        shared.runtime.spawn(renewal_schedule::run(renewals, shared.clock.clone(), notices));
        Self(shared)
    }

    pub(crate) fn is_made_of(&self, shared: &Arc<Shared<X>>) -> bool {
        Arc::ptr_eq(&self.0, shared)
    }

    /// The least life that answers carry while the cloud answers, and that at which renewal starts.
    pub fn floor(&self) -> Floor {
        self.0.settings.floor
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Chains of upstream calls that may start per second right now.
    pub fn upstream_rate(&self) -> f64 {
        self.0.limiter.per_second()
    }

    /// Every principal in use. Each is copied as it is come to: a list of all would leave a hole of its size in the heap at each scrape.
    pub fn principals(&self) -> impl ExactSizeIterator<Item = PrincipalView<X::Principal>> {
        self.0.in_use().into_iter().map(|slot| PrincipalView::of(&slot))
    }
}
