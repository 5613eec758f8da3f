//! Connects the configured attestation strategy with the pods that the API server reports.
//!
//! The attestation strategies contain no code for the API server or for the kernel's interfaces. This module gives them the
//! reported pods and the connection records that the redirect's eBPF programs write.

use std::net::IpAddr;
use std::sync::Arc;

use crate::attestation::{
    AddressLookupError, Attestation, EgressAddresses, KernelAttestation, PodAddressClaims, PodNetwork,
    SourceIpAttestation,
};
use seawall_core::attestation::{AttestFuture, AttestedAddresses};
use seawall_core::{PodUid, ServiceAccount};

use super::redirected_connections::KernelRecords;

/// Holds the configured attestation strategy and the pods that the API server reports.
#[derive(Debug)]
pub(crate) enum ClusterAttester {
    /// The `source-ip` strategy.
    SourceIp(Arc<SourceIpAttestation<AttesterPodView>>),
    /// The `kernel` strategy.
    Kernel(Arc<KernelAttestation<AttesterPodView, KernelRecords>>),
}

impl ClusterAttester {
    /// Creates a `source-ip` attester: it identifies pods by the addresses that the API server reports.
    pub(crate) fn by_source_ip(pods: seawall_cluster::NodePods) -> Self {
        Self::SourceIp(Arc::new(SourceIpAttestation::new(AttesterPodView::new(pods, Arc::default()))))
    }

    /// Creates a `kernel` attester: it identifies pods by their reported addresses and by the kernel's records of connections.
    /// `egress` finds the pods of source addresses that the API server does not report.
    pub(crate) fn by_kernel_records(
        pods: AttesterPodView,
        records: KernelRecords,
        egress: Option<EgressAddresses>,
    ) -> Self {
        Self::Kernel(Arc::new(KernelAttestation::new(pods, records, egress)))
    }

    /// Returns the addresses by which the strategy identifies this pod, or `None` if the strategy cannot identify the pod.
    pub(crate) fn attested_addresses(&self, pod: &PodNetwork<'_>) -> Option<AttestedAddresses> {
        match self {
            Self::SourceIp(way) => way.attested_addresses(pod),
            Self::Kernel(way) => way.attested_addresses(pod),
        }
    }

    /// Returns the strategy as a shared trait object, with which the [pod resolver](super::pod_resolver) identifies pods.
    pub(crate) fn attestation(&self) -> Arc<dyn Attestation> {
        match self {
            Self::SourceIp(way) => way.clone(),
            Self::Kernel(way) => way.clone(),
        }
    }
}

/// Looks up pods that the API server reports, for attestation. Each lookup reads the latest snapshot.
#[derive(Clone, Debug)]
pub(crate) struct AttesterPodView {
    pods: seawall_cluster::NodePods,
    trusted_proxies: Arc<[ServiceAccount]>,
}

impl AttesterPodView {
    /// Creates the view. `trusted_proxies` are the ServiceAccounts of proxies that connect for other pods.
    pub(crate) fn new(pods: seawall_cluster::NodePods, trusted_proxies: Arc<[ServiceAccount]>) -> Self {
        Self { pods, trusted_proxies }
    }
}

impl crate::attestation::PodsByAddress for AttesterPodView {
    fn uid_at(&self, address: IpAddr) -> Result<PodUid, AddressLookupError> {
        let snapshot = self.pods.snapshot();
        let named = snapshot.pod_at(address).map(|record| record.pod.uid.clone());
        named.map_err(|none| match none {
            seawall_cluster::PodLookupError::Ambiguous => AddressLookupError::Ambiguous,
            seawall_cluster::PodLookupError::NoServiceAccount => AddressLookupError::NoServiceAccount,
            seawall_cluster::PodLookupError::Absent if snapshot.has_complete_pod_list() => {
                AddressLookupError::Absent
            }
            seawall_cluster::PodLookupError::Absent => AddressLookupError::PodsNotSynced,
        })
    }

    fn is_current(&self) -> bool {
        self.pods.is_current()
    }

    fn wait_until_current(&self) -> AttestFuture<'_, ()> {
        Box::pin(self.pods.wait_until_current())
    }

    fn wait_for_newer(&self) -> AttestFuture<'_, ()> {
        let version = self.pods.snapshot().version();
        Box::pin(async move {
            self.pods.wait_for_newer(version).await;
        })
    }
}

impl PodAddressClaims for AttesterPodView {
    fn claimant_at(&self, address: IpAddr) -> Option<PodUid> {
        self.pods.snapshot().claimant(address).map(|record| record.pod.uid.clone())
    }

    fn version(&self) -> u64 {
        self.pods.snapshot().version()
    }

    fn claimed_addresses(&self) -> Vec<IpAddr> {
        let snapshot = self.pods.snapshot();
        let own = snapshot.pods().filter(|record| !record.uses_host_network);
        let addresses = own.flat_map(|record| record.addresses.iter().copied());
        addresses.filter(|address| snapshot.claimant(*address).is_some()).collect()
    }

    fn trusted_proxies(&self) -> Vec<PodUid> {
        pods_of_service_accounts(&self.pods, &self.trusted_proxies)
    }

    fn is_host_network(&self, uid: &PodUid) -> bool {
        self.pods.snapshot().pod_by_uid(&uid.0).is_some_and(|record| record.uses_host_network)
    }
}

/// Returns the live pods of these ServiceAccounts on this node.
pub(crate) fn pods_of_service_accounts(
    pods: &seawall_cluster::NodePods,
    accounts: &[ServiceAccount],
) -> Vec<PodUid> {
    if accounts.is_empty() {
        return Vec::new();
    }
    let snapshot = pods.snapshot();
    let of_accounts = snapshot.pods().filter(|record| accounts.contains(&record.pod.service_account));
    of_accounts.map(|record| record.pod.uid.clone()).collect()
}
