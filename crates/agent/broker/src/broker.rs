//! One cloud's broker, as the agent has it.

use std::sync::{Arc, Weak};

use seawall_core::{Clock, Floor};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::broker_state::BrokerState;
use crate::cache_entry::CacheEntry;
use crate::counters::BrokerCounters;
use crate::debug_view::PrincipalView;
use crate::exchange::TokenExchange;
use crate::renew::Renewals;
use crate::renewal_schedule::{self, ScheduleMessage};
use crate::settings::BrokerSettings;

/// The broker of one cloud, with a floor, a limiter and counters of its own; cheap to clone. Its renewals end with its last
/// clone and last [`PodLeaseClient`](crate::PodLeaseClient).
#[derive(Debug)]
pub struct Broker<X: TokenExchange>(Arc<BrokerState<X>>);

/// Where the schedule hears of slots.
type ScheduleReceiver<X> =
    mpsc::UnboundedReceiver<ScheduleMessage<Weak<CacheEntry<X>>, <X as TokenExchange>::Principal>>;

impl<X: TokenExchange> Clone for Broker<X> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<X: TokenExchange> Broker<X> {
    /// What its parts have in common.
    pub(crate) fn state(&self) -> Arc<BrokerState<X>> {
        self.0.clone()
    }

    /// A broker whose calls and renewals run on `runtime`.
    pub fn start(settings: BrokerSettings, clock: Clock, exchange: Arc<X>, runtime: Handle) -> Self {
        let (sender, notices) = mpsc::unbounded_channel();
        let shared = Arc::new(BrokerState::new(settings, clock.clone(), exchange, runtime, sender));
        shared.runtime.spawn(shared.limiter.dispatch(clock));
        Self::renewing(shared, notices)
    }

    /// The broker of the same cloud that is asked in another way from now on. It holds nothing of what this one does: a credential is
    /// right for the way in which it was asked for. The pace that the cloud was found to stand is theirs together, or a change of
    /// the way would be a burst of calls; so is what is counted.
    pub fn with_exchange(&self, exchange: Arc<X>) -> Self {
        let (sender, notices) = mpsc::unbounded_channel();
        Self::renewing(Arc::new(self.0.with_exchange(exchange, sender)), notices)
    }

    fn renewing(shared: Arc<BrokerState<X>>, notices: ScheduleReceiver<X>) -> Self {
        let renewals = Renewals(Arc::downgrade(&shared));
        shared.runtime.spawn(renewal_schedule::run(renewals, shared.clock.clone(), notices));
        Self(shared)
    }

    pub(crate) fn is_backed_by(&self, shared: &Arc<BrokerState<X>>) -> bool {
        Arc::ptr_eq(&self.0, shared)
    }

    /// The least life that answers carry while the cloud answers, and that at which renewal starts.
    pub fn floor(&self) -> Floor {
        self.0.settings.floor
    }

    /// What happened so far.
    pub fn counters(&self) -> &BrokerCounters {
        &self.0.counters
    }

    /// Chains of upstream calls that may start per second right now.
    pub fn upstream_rate(&self) -> f64 {
        self.0.limiter.per_second()
    }

    /// Every principal in use. Each is copied as it is come to: a list of all would leave a hole of its size in the heap at each scrape.
    pub fn principals(&self) -> impl ExactSizeIterator<Item = PrincipalView<X::Principal>> {
        self.0.live_entries().into_iter().map(|slot| PrincipalView::of(&slot))
    }
}
