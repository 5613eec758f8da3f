//! The broker of one cloud. The agent starts one broker per cloud, and calls it.

use std::sync::{Arc, Weak};

use seawall_core::{Clock, LifetimeFloor};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::broker_state::BrokerState;
use crate::cache_entry::CacheEntry;
use crate::counters::BrokerCounters;
use crate::credential_exchange::TokenExchange;
use crate::debug_view::PrincipalView;
use crate::renew::RenewalStarter;
use crate::renewal_schedule::{self, ScheduleMessage};
use crate::settings::BrokerSettings;

/// The broker of one cloud, with its own floor, limiter and counters. Cloning is cheap.
/// The renewals end when all clones of the broker and all its [`PodLeaseClient`](crate::PodLeaseClient)s are dropped.
#[derive(Debug)]
pub struct Broker<X: TokenExchange>(Arc<BrokerState<X>>);

/// The receiving end of the channel to the renewal schedule.
type ScheduleReceiver<X> =
    mpsc::UnboundedReceiver<ScheduleMessage<Weak<CacheEntry<X>>, <X as TokenExchange>::Principal>>;

impl<X: TokenExchange> Clone for Broker<X> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<X: TokenExchange> Broker<X> {
    pub(crate) fn shared_state(&self) -> Arc<BrokerState<X>> {
        self.0.clone()
    }

    /// Starts a broker. Its calls and renewals run on `runtime`.
    pub fn start(settings: BrokerSettings, clock: Clock, exchange: Arc<X>, runtime: Handle) -> Self {
        let (sender, notices) = mpsc::unbounded_channel();
        let shared = Arc::new(BrokerState::new(settings, clock.clone(), exchange, runtime, sender));
        shared.runtime.spawn(shared.limiter.dispatch(clock));
        Self::renewing(shared, notices)
    }

    /// Returns a broker that gets its credentials from the same cloud through `exchange`.
    /// The new broker starts with an empty cache, because `exchange` can issue different credentials for an equal principal. Both
    /// brokers use the same limiter and the same counters, so the refill of the cache stays within the rate limit.
    pub fn with_exchange(&self, exchange: Arc<X>) -> Self {
        let (sender, notices) = mpsc::unbounded_channel();
        Self::renewing(Arc::new(self.0.with_exchange(exchange, sender)), notices)
    }

    fn renewing(shared: Arc<BrokerState<X>>, notices: ScheduleReceiver<X>) -> Self {
        let renewals = RenewalStarter(Arc::downgrade(&shared));
        shared.runtime.spawn(renewal_schedule::run(renewals, shared.clock.clone(), notices));
        Self(shared)
    }

    pub(crate) fn is_backed_by_state(&self, shared: &Arc<BrokerState<X>>) -> bool {
        Arc::ptr_eq(&self.0, shared)
    }

    /// Returns the least remaining lifetime of a credential in a response, and the remaining lifetime at which renewal starts.
    pub fn lifetime_floor(&self) -> LifetimeFloor {
        self.0.settings.lifetime_floor
    }

    /// Returns the counters of this broker.
    pub fn counters(&self) -> &BrokerCounters {
        &self.0.counters
    }

    /// Returns the current rate limit: the maximum number of fetches per second that start their calls to the cloud.
    pub fn upstream_rate_limit(&self) -> f64 {
        self.0.limiter.calls_per_second_limit()
    }

    /// Returns a view of every principal in use.
    /// The iterator creates one view at a time, because a list of all views would fragment the heap at each scrape of the
    /// metrics.
    pub fn principals(&self) -> impl ExactSizeIterator<Item = PrincipalView<X::Principal>> {
        self.0.live_entries().into_iter().map(|slot| PrincipalView::from_cache_entry(&slot))
    }
}
