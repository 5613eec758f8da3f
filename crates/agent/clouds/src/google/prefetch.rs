//! Prefetches a pod's first Google credential: an access token with the default scopes.

use std::sync::{Arc, Weak};

use seawall_broker::google::{CredentialRequestRef, GooglePodLeaseClient};
use seawall_core::kubernetes_events::PodEventRecorder;
use seawall_protocols::google::MetadataTree;

use super::refusals;
use crate::{kubernetes_events, prefetch};

/// A job that fetches a pod's first credential.
#[derive(Debug)]
pub(super) struct GooglePrefetchJob {
    tree: Arc<MetadataTree>,
    /// The pod's credentials. The reference is weak, so the queue drops the job if the pod is deleted before the job runs.
    holder: Weak<GooglePodLeaseClient>,
    complainer: PodEventRecorder,
}

impl GooglePrefetchJob {
    pub(super) fn new(
        tree: &Arc<MetadataTree>,
        holder: &Arc<GooglePodLeaseClient>,
        complainer: &PodEventRecorder,
    ) -> Self {
        Self { tree: tree.clone(), holder: Arc::downgrade(holder), complainer: complainer.clone() }
    }
}

impl prefetch::FirstFetchJob for GooglePrefetchJob {
    fn is_gone(&self) -> bool {
        self.holder.strong_count() == 0
    }

    async fn fetch(self) {
        let Some(holder) = self.holder.upgrade() else { return };
        let want = CredentialRequestRef::AccessToken { scopes: self.tree.default_scopes() };
        if let Err(unavailable) = holder.lease(want).await {
            kubernetes_events::report_lease_error(
                &self.complainer,
                &unavailable,
                &refusals::REFUSALS.for_lease_error(&unavailable),
            );
        }
    }
}
