//! One cloud's broker, as the agent has it.

use std::sync::Arc;

use seawall_core::{Clock, Floor};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::counters::Counters;
use crate::exchange::{EntitlementOf, Exchange};
use crate::holder::{Holder, HolderSpec};
use crate::renew::Renewals;
use crate::schedule;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::view::PrincipalView;

/// The broker of one cloud, with a floor, a limiter and counters of its own; cheap to clone. Its renewals end with its last
/// clone and last [`Holder`].
#[derive(Debug)]
pub struct Broker<X: Exchange>(Arc<Shared<X>>);

impl<X: Exchange> Clone for Broker<X> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<X: Exchange> Broker<X> {
    /// A broker whose calls and renewals run on `runtime`.
    pub fn start(settings: Settings, clock: Clock, exchange: Arc<X>, runtime: Handle) -> Self {
        let (sender, notices) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(settings, clock.clone(), exchange, runtime, sender));
        shared.runtime.spawn(shared.limiter.dispatch(clock.clone()));
        shared.runtime.spawn(schedule::run(Renewals(Arc::downgrade(&shared)), clock, notices));
        Self(shared)
    }

    /// One pod's way to its credentials.
    pub fn holder(&self, spec: HolderSpec<EntitlementOf<X>>) -> Arc<Holder<X>> {
        Arc::new(Holder::new(self.0.clone(), spec))
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
