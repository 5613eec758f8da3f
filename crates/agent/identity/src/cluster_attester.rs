//! Who names pods: the one way of attestation that is at work, over what the cluster tells.
//!
//! Here the ways of attestation, which know neither the API server nor the kernel's interfaces, meet who does: the cluster's view of
//! pods and the redirect's notes. Decides nothing.

use std::net::IpAddr;
use std::sync::Arc;

use crate::attestation::{
    AddressLookupError, Attestation, KernelAttestation, PodLookup, PodNetwork, SourceIpAttestation,
};
use seawall_core::PodUid;
use seawall_core::attestation::{AttestFuture, AttestedAddresses};

use super::redirect::KernelRecords;

/// The way of attestation that is at work over what the cluster tells. A closed set: one variant for each.
#[derive(Debug)]
pub(crate) enum ClusterAttester {
    /// `source-ip`.
    SourceIp(Arc<SourceIpAttestation<AttesterPodView>>),
    /// `kernel`.
    Kernel(Arc<KernelAttestation<AttesterPodView, KernelRecords>>),
}

impl ClusterAttester {
    /// By the addresses of the pods that are told of.
    pub(crate) fn by_source_ip(pods: seawall_cluster::NodePods) -> Self {
        Self::SourceIp(Arc::new(SourceIpAttestation::new(AttesterPodView(pods))))
    }

    /// By the same, and by what the kernel noted.
    pub(crate) fn by_kernel_records(pods: seawall_cluster::NodePods, noted: KernelRecords) -> Self {
        Self::Kernel(Arc::new(KernelAttestation::new(AttesterPodView(pods), noted)))
    }

    /// What it rests on, in one view, that this pod is told from others; nothing for a pod that cannot be.
    pub(crate) fn attested_addresses(&self, pod: &PodNetwork<'_>) -> Option<AttestedAddresses> {
        match self {
            Self::SourceIp(way) => way.attested_addresses(pod),
            Self::Kernel(way) => way.attested_addresses(pod),
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
pub(crate) struct AttesterPodView(seawall_cluster::NodePods);

impl crate::attestation::PodsByAddress for AttesterPodView {
    fn uid_at(&self, address: IpAddr) -> Result<PodUid, AddressLookupError> {
        let snapshot = self.0.snapshot();
        let named = snapshot.pod_at(address).map(|record| record.pod.uid.clone());
        named.map_err(|none| match none {
            seawall_cluster::PodLookupError::Ambiguous => AddressLookupError::Ambiguous,
            seawall_cluster::PodLookupError::Absent if snapshot.is_complete() => AddressLookupError::Absent,
            seawall_cluster::PodLookupError::Absent => AddressLookupError::NotListed,
        })
    }

    fn is_current(&self) -> bool {
        self.0.is_current()
    }

    fn wait_until_current(&self) -> AttestFuture<'_, ()> {
        Box::pin(self.0.wait_until_current())
    }

    fn wait_for_newer(&self) -> AttestFuture<'_, ()> {
        let version = self.0.snapshot().version();
        Box::pin(async move {
            self.0.newer_than(version).await;
        })
    }
}

impl PodLookup for AttesterPodView {
    fn claimant_at(&self, address: IpAddr) -> Option<PodUid> {
        self.0.snapshot().claimant(address).map(|record| record.pod.uid.clone())
    }

    fn is_host_network(&self, uid: &PodUid) -> bool {
        self.0.snapshot().by_uid(&uid.0).is_some_and(|record| record.host_network)
    }
}
