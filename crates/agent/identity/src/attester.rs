//! Who names pods: the one way of attestation that is at work, over what the cluster tells.
//!
//! Here the ways of attestation, which know neither the API server nor the kernel's interfaces, meet who does: the cluster's view of
//! pods and the redirect's notes. Decides nothing.

use std::net::IpAddr;
use std::sync::Arc;

use crate::attestation::{AllPods, Attestation, Kernel, NoPod, Sighting, SourceIp};
use seawall_core::PodUid;
use seawall_core::attestation::{Basis, Wait};

use super::redirect::Noted;

/// The way of attestation that is at work over what the cluster tells. A closed set: one variant for each.
#[derive(Debug)]
pub(crate) enum Attester {
    /// `source-ip`.
    SourceIp(Arc<SourceIp<Told>>),
    /// `kernel`.
    Kernel(Arc<Kernel<Told, Noted>>),
}

impl Attester {
    /// By the addresses of the pods that are told of.
    pub(crate) fn by_source_ip(pods: seawall_cluster::Pods) -> Self {
        Self::SourceIp(Arc::new(SourceIp::new(Told(pods))))
    }

    /// By the same, and by what the kernel noted.
    pub(crate) fn by_notes(pods: seawall_cluster::Pods, noted: Noted) -> Self {
        Self::Kernel(Arc::new(Kernel::new(Told(pods), noted)))
    }

    /// What it rests on, in one view, that this pod is told from others; nothing for a pod that cannot be.
    pub(crate) fn basis(&self, pod: &Sighting<'_>) -> Option<Basis> {
        match self {
            Self::SourceIp(way) => way.basis(pod),
            Self::Kernel(way) => way.basis(pod),
        }
    }

    /// The same, as connections ask it.
    pub(crate) fn attestation(&self) -> Arc<dyn Attestation> {
        match self {
            Self::SourceIp(way) => way.clone(),
            Self::Kernel(way) => way.clone(),
        }
    }
}

/// What `cluster` was told, as attestation asks for it. Each answer is of the latest snapshot.
#[derive(Debug)]
pub(crate) struct Told(seawall_cluster::Pods);

impl crate::attestation::Pods for Told {
    fn uid_at(&self, address: IpAddr) -> Result<PodUid, NoPod> {
        let snapshot = self.0.snapshot();
        let named = snapshot.pod_at(address).map(|record| record.pod.uid.clone());
        named.map_err(|none| match none {
            seawall_cluster::NoPod::Ambiguous => NoPod::Ambiguous,
            seawall_cluster::NoPod::Absent if snapshot.is_complete() => NoPod::Absent,
            seawall_cluster::NoPod::Absent => NoPod::NotListed,
        })
    }

    fn is_current(&self) -> bool {
        self.0.is_current()
    }

    fn current(&self) -> Wait<'_, ()> {
        Box::pin(self.0.current())
    }

    fn newer(&self) -> Wait<'_, ()> {
        let version = self.0.snapshot().version();
        Box::pin(async move {
            self.0.newer_than(version).await;
        })
    }
}

impl AllPods for Told {
    fn claimant_at(&self, address: IpAddr) -> Option<PodUid> {
        self.0.snapshot().claimant(address).map(|record| record.pod.uid.clone())
    }

    fn shares_the_nodes_network(&self, uid: &PodUid) -> bool {
        self.0.snapshot().by_uid(&uid.0).is_some_and(|record| record.host_network)
    }
}
