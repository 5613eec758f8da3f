//! One cloud's broker: the type that the agent starts and asks.

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

/// The broker of one cloud, with its own floor, limiter and counters. Cheap to clone. Its renewals end when the last clone and the
/// last [`PodLeaseClient`](crate::PodLeaseClient) are dropped.
#[derive(Debug)]
pub struct Broker<X: TokenExchange>(Arc<BrokerState<X>>);

/// The channel on which the renewal schedule receives messages about cache entries.
type ScheduleReceiver<X> =
    mpsc::UnboundedReceiver<ScheduleMessage<Weak<CacheEntry<X>>, <X as TokenExchange>::Principal>>;

impl<X: TokenExchange> Clone for Broker<X> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<X: TokenExchange> Broker<X> {
    /// The state that the broker's parts share.
    pub(crate) fn state(&self) -> Arc<BrokerState<X>> {
        self.0.clone()
    }

    /// Starts a broker whose calls and renewals run on `runtime`.
    pub fn start(settings: BrokerSettings, clock: Clock, exchange: Arc<X>, runtime: Handle) -> Self {
        let (sender, notices) = mpsc::unbounded_channel();
        let shared = Arc::new(BrokerState::new(settings, clock.clone(), exchange, runtime, sender));
        shared.runtime.spawn(shared.limiter.dispatch(clock));
        Self::renewing(shared, notices)
    }

    /// Returns a broker for the same cloud that uses another exchange from now on. It starts with an empty cache: a credential is
    /// right only for the exchange that issued it. Both brokers share the limiter, so that a change of the exchange does not cause
    /// a burst of calls. They share the counters, too.
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

    /// The least remaining life of responses while the cloud responds, and the remaining life at which renewal starts.
    pub fn floor(&self) -> Floor {
        self.0.settings.floor
    }

    /// The counters of this broker.
    pub fn counters(&self) -> &BrokerCounters {
        &self.0.counters
    }

    /// The number of upstream call chains that may start per second right now.
    pub fn upstream_rate(&self) -> f64 {
        self.0.limiter.per_second()
    }

    /// Returns every principal in use. Copies each view on iteration: one list of all copies would leave a hole of its size in the
    /// heap at each scrape.
    pub fn principals(&self) -> impl ExactSizeIterator<Item = PrincipalView<X::Principal>> {
        self.0.live_entries().into_iter().map(|slot| PrincipalView::of(&slot))
    }
}
