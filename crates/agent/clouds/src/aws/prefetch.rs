//! Prefetches the first credentials of a pod's AWS role. A pod has at most one role.

use std::sync::{Arc, Weak};

use seawall_broker::aws::AwsPodLeaseClient;
use seawall_core::kubernetes_events::PodEventRecorder;

use super::refusals;
use crate::{kubernetes_events, prefetch};

/// A job that fetches a pod's first credentials.
#[derive(Debug)]
pub(super) struct AwsPrefetchJob {
    /// The pod's credentials. The reference is weak, so the queue does not keep a deleted pod in memory.
    holder: Weak<AwsPodLeaseClient>,
    complainer: PodEventRecorder,
}

impl AwsPrefetchJob {
    pub(super) fn new(holder: &Arc<AwsPodLeaseClient>, complainer: &PodEventRecorder) -> Self {
        Self { holder: Arc::downgrade(holder), complainer: complainer.clone() }
    }
}

impl prefetch::FirstFetchJob for AwsPrefetchJob {
    fn is_gone(&self) -> bool {
        self.holder.strong_count() == 0
    }

    async fn fetch(self) {
        let Some(holder) = self.holder.upgrade() else { return };
        if let Err(unavailable) = holder.lease(()).await {
            kubernetes_events::report_lease_error(
                &self.complainer,
                &unavailable,
                &refusals::REFUSALS.for_lease_error(&unavailable),
            );
        }
    }
}
