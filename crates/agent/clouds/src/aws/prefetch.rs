//! A pod's first credentials of AWS's: those of its one role.

use std::sync::{Arc, Weak};

use seawall_broker::aws::Holder;
use seawall_core::events::Complainer;

use super::refusals;
use crate::{pod_events, prefetch};

/// First credentials to be fetched.
#[derive(Debug)]
pub(super) struct First {
    /// Weak: a pod that is gone before its turn is let go.
    holder: Weak<Holder>,
    complainer: Complainer,
}

impl First {
    pub(super) fn new(holder: &Arc<Holder>, complainer: &Complainer) -> Self {
        Self { holder: Arc::downgrade(holder), complainer: complainer.clone() }
    }
}

impl prefetch::First for First {
    fn is_gone(&self) -> bool {
        self.holder.strong_count() == 0
    }

    async fn fetch(self) {
        let Some(holder) = self.holder.upgrade() else { return };
        if let Err(unavailable) = holder.lease(()).await {
            pod_events::unavailable(&self.complainer, &unavailable, &refusals::WORDS.of(&unavailable));
        }
    }
}
