//! Identifies the client of a connection once, when the server accepts the connection.
//!
//! The configured attestation strategy returns a UID, and the resolver finds the pod with that UID in the [`PodRegistry`]. If
//! the strategy rejects the client, the agent refuses every request on that connection. If the client is not identified yet
//! ([`seawall_server::connection_client::Client::Unidentified`]), a request waits for a short time
//! ([`ClientResolver::wait_for_pod`]) before the agent refuses the request. A request also waits while the pod's entitlements
//! at the requested cloud are undecided.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::attestation::{Attestation, AttestationVerdict, RejectionReason};
use arc_swap::ArcSwapOption;
use seawall_clouds::pod::{PodEntry, PodOrUnknownClient};
use seawall_core::PodUid;
use seawall_core::attestation::{AttestFuture, ConnectionEnds};
use seawall_core::cloud::CloudName;
use seawall_http::Refusal;
use seawall_server::connection_client::ClientResolver;

use super::pod_registry::PodRegistry;

/// The source address of the readiness probe, which is a request that the agent sends to itself. The value is `None` while no
/// probe runs. The probe writes the address, and the resolver compares it with the source address of each connection.
pub type SelfProbeSourceAddress = Arc<ArcSwapOption<SocketAddr>>;

/// Finds the pod of each connection. The traffic threads share one resolver.
#[derive(Debug)]
pub struct PodResolver {
    way: ResolverMode,
    probe: SelfProbeSourceAddress,
}

#[derive(Debug)]
enum ResolverMode {
    IdentifyPods(Arc<dyn Attestation>, Arc<PodRegistry>),
    /// Identifies no pods: all clients get the same responses.
    Anyone,
}

/// The refusal for a source address that the identity file lacks. The status is 403, because SDKs retry after a 503, and no
/// retry can succeed: the agent reads the file only at its start.
const UNKNOWN_CLIENT: Refusal = Refusal::new(
    403,
    "unknown_client",
    "The agent knows no pod with this source address, so it refuses the request.",
);

const UNKNOWN_POD: Refusal = Refusal::new(
    503,
    "unknown_pod",
    "The agent does not know the pod at this source address yet; try again shortly.",
);

const PODS_NOT_SYNCED: Refusal = Refusal::new(
    503,
    "pods_not_synced",
    "The agent has not yet received this node's pods from the API server; try again shortly.",
);

const POD_VIEW_STALE: Refusal = Refusal::new(
    503,
    "pod_view_stale",
    "The agent has not yet applied the latest changes from the API server; try again shortly.",
);

const NO_CONNECTION_RECORD: Refusal = Refusal::new(
    503,
    "no_connection_record",
    "The kernel has no connection record that matches the pod at this source address; connect again shortly.",
);

const NO_ROUTE_TO_POD: Refusal = Refusal::new(
    503,
    "no_route_to_pod",
    "This source address is in identity.egressRanges, and the node's route to it leads into no pod's network namespace, so the agent cannot identify the pod. An operator must take the pods' ordinary addresses out of these ranges.",
);

const AMBIGUOUS: Refusal = Refusal::new(
    503,
    "ambiguous_address",
    "More than one live pod has this source address, so the agent cannot identify the pod that sent the request; try again shortly.",
);

const HOST_NETWORK: Refusal = Refusal::new(
    403,
    "host_network",
    "This request comes from the node's own network, where pods share one address, so the agent cannot identify the pod.",
);

/// The status is 403, because a static pod never gets a ServiceAccount, so no retry can succeed.
const STATIC_POD: Refusal = Refusal::new(
    403,
    "static_pod",
    "This is a static pod: the kubelet runs it from a file, so it has no ServiceAccount and no identity in the cluster. A static pod on the \
     node's network reaches the real metadata server if hostNetworkPods is node.",
);

/// Returns the refusal for a client that is unidentified for this reason.
fn refusal(reason: RejectionReason) -> Refusal {
    match reason {
        RejectionReason::UnknownAddress => UNKNOWN_CLIENT,
        RejectionReason::HostNetwork => HOST_NETWORK,
        RejectionReason::UnknownPod => UNKNOWN_POD,
        RejectionReason::PodsNotSynced => PODS_NOT_SYNCED,
        RejectionReason::Ambiguous => AMBIGUOUS,
        RejectionReason::NoServiceAccount => STATIC_POD,
        RejectionReason::StaleView => POD_VIEW_STALE,
        RejectionReason::NoConnectionRecord => NO_CONNECTION_RECORD,
        RejectionReason::NoRouteToPod => NO_ROUTE_TO_POD,
    }
}

impl PodResolver {
    /// Creates a resolver that finds pods with this attestation and this registry.
    pub(crate) fn with_attestation(
        by: Arc<dyn Attestation>,
        roster: Arc<PodRegistry>,
        probe: SelfProbeSourceAddress,
    ) -> Self {
        Self { way: ResolverMode::IdentifyPods(by, roster), probe }
    }

    /// Creates a resolver for the `anyone` strategy: the agent serves every address. With this strategy, the configuration
    /// allows only Google's `conceal` mode.
    pub fn for_anyone(probe: SelfProbeSourceAddress) -> Self {
        Self { way: ResolverMode::Anyone, probe }
    }

    /// Returns all known pods, sorted by their addresses.
    pub fn pods(&self) -> Vec<Arc<PodEntry>> {
        let ResolverMode::IdentifyPods(by, roster) = &self.way else { return Vec::new() };
        let mut pods = roster.pods();
        pods.sort_by(|a, b| by.addresses(&a.attested_addresses).cmp(by.addresses(&b.attested_addresses)));
        pods
    }

    /// Returns a pod's addresses, for display.
    pub fn pod_addresses<'p>(&self, pod: &'p PodEntry) -> &'p [IpAddr] {
        let ResolverMode::IdentifyPods(by, _) = &self.way else { return &[] };
        by.addresses(&pod.attested_addresses)
    }

    /// Returns the pod with this UID, if its addresses cover this connection and the entitlement to this cloud is decided.
    fn find_decided(
        &self,
        uid: &PodUid,
        ends: &ConnectionEnds<'_>,
        cloud: CloudName,
    ) -> Option<Arc<PodEntry>> {
        self.find(uid, ends).filter(|pod| !pod.entitlements().is_pending_for_cloud(cloud))
    }

    /// Returns the pod with this UID, if the pod's attested addresses cover this connection. The function checks this because
    /// the registry can be slightly older than the view of pods from which attestation took the UID.
    fn find(&self, uid: &PodUid, ends: &ConnectionEnds<'_>) -> Option<Arc<PodEntry>> {
        let ResolverMode::IdentifyPods(by, roster) = &self.way else { return None };
        let caller = roster.find(uid)?;
        by.covers(&caller.attested_addresses, ends).then_some(caller)
    }
}

impl ClientResolver<PodEntry> for PodResolver {
    /// Identifies the client at the other end of a connection.
    ///
    /// The resolver recognises the readiness probe by its source address *and* port. While the probe runs, its socket owns this
    /// address and port. No other socket on this node can use them for a connection to the same listener.
    fn resolve(&self, ends: &ConnectionEnds<'_>) -> PodOrUnknownClient {
        let peer = ends.peer;
        if self.probe.load().as_deref() == Some(&SocketAddr::new(peer.ip().to_canonical(), peer.port())) {
            return PodOrUnknownClient::OwnReadinessRequest;
        }
        let ResolverMode::IdentifyPods(by, _) = &self.way else { return PodOrUnknownClient::Anyone };
        match by.verdict(ends) {
            AttestationVerdict::Pod(uid) => {
                let pod = self.find(&uid, ends);
                pod.inspect(|pod| by.discard_evidence(&pod.pod.uid, ends))
                    .map_or(PodOrUnknownClient::Unidentified, PodOrUnknownClient::Pod)
            }
            AttestationVerdict::Pending => PodOrUnknownClient::Unidentified,
            AttestationVerdict::Rejected(reason) => PodOrUnknownClient::Refused(refusal(reason)),
        }
    }

    /// Returns the pod that probably opened the connection. Use the result to divide capacity among pods, never to give
    /// credentials.
    fn likely_pod(&self, ends: &ConnectionEnds<'_>) -> Option<Arc<PodEntry>> {
        let ResolverMode::IdentifyPods(by, _) = &self.way else { return None };
        self.find(&by.guess(ends).ok()?, ends)
    }

    /// Waits for the result of attestation. Returns the pod if attestation names the pod and the pod's entitlement to this
    /// cloud is decided.
    fn attest_pod<'a>(
        &'a self,
        ends: ConnectionEnds<'a>,
        cloud: CloudName,
    ) -> AttestFuture<'a, Option<Arc<PodEntry>>> {
        Box::pin(async move {
            let ResolverMode::IdentifyPods(by, _) = &self.way else { return std::future::pending().await };
            let uid = by.attest(ends).await.ok()?;
            self.find_decided(&uid, &ends, cloud).inspect(|pod| by.discard_evidence(&pod.pod.uid, &ends))
        })
    }

    /// Waits until the pod is identified and its entitlement to this cloud is decided, and returns the pod. This wait has no
    /// time limit.
    fn wait_for_pod<'a>(
        &'a self,
        ends: ConnectionEnds<'a>,
        cloud: CloudName,
    ) -> AttestFuture<'a, Arc<PodEntry>> {
        Box::pin(async move {
            let ResolverMode::IdentifyPods(by, roster) = &self.way else {
                return std::future::pending().await;
            };
            let mut versions = roster.subscribe_versions();
            loop {
                // Subscribe to changes of the attestation and of the registry before `attest_pod`, so that the loop misses no
                // change. The registry's writer replaces a pod's entitlements before it publishes a new version, so a new
                // version also announces new entitlements.
                let change = by.wait_for_change();
                versions.borrow_and_update();
                if let Some(pod) = self.attest_pod(ends, cloud).await {
                    return pod;
                }
                tokio::select! {
                    () = change => {}
                    // If the registry's writer has ended, `select!` disables this branch, and only a change of the attestation
                    // ends the wait.
                    Ok(()) = versions.changed() => {}
                }
            }
        })
    }

    /// Explains why the agent refuses a request at this cloud.
    fn explain_refusal(&self, ends: &ConnectionEnds<'_>, cloud: CloudName) -> Refusal {
        let ResolverMode::IdentifyPods(by, _) = &self.way else { return UNKNOWN_CLIENT };
        let find = |uid: PodUid| self.find_decided(&uid, ends, cloud).ok_or(RejectionReason::UnknownPod);
        let named = by.guess(ends).and_then(find);
        refusal(named.err().unwrap_or(RejectionReason::StaleView))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};

    use seawall_clouds::testing::{BOTH_CLOUDS_BROKERED_CONFIG, PodFixture};
    use seawall_core::annotations::{Annotations, RelatedAnnotations};
    use seawall_core::attestation::{AttestFuture, AttestedAddresses};
    use tokio::sync::watch;

    use super::*;

    /// Returns this verdict for every connection. If the verdict is pending, `attest` and `guess` name the pod `u1` once the
    /// test sends `true`.
    #[derive(Debug)]
    struct Always(AttestationVerdict, watch::Sender<bool>);

    impl Attestation for Always {
        fn verdict(&self, _: &ConnectionEnds<'_>) -> AttestationVerdict {
            self.0.clone()
        }

        fn guess(&self, _: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason> {
            let is_told = self.0 != AttestationVerdict::Pending || *self.1.borrow();
            if is_told { Ok(PodUid("u1".into())) } else { Err(RejectionReason::UnknownPod) }
        }

        fn attest<'a>(
            &'a self,
            ends: ConnectionEnds<'a>,
        ) -> AttestFuture<'a, Result<PodUid, RejectionReason>> {
            Box::pin(std::future::ready(self.guess(&ends)))
        }

        fn wait_for_change(&self) -> AttestFuture<'_, ()> {
            let mut told = self.1.subscribe();
            Box::pin(async move { told.changed().await.unwrap() })
        }

        fn covers(&self, _: &AttestedAddresses, _: &ConnectionEnds<'_>) -> bool {
            true
        }

        fn addresses<'b>(&self, _: &'b AttestedAddresses) -> &'b [IpAddr] {
            &[]
        }
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn callers(verdict: AttestationVerdict) -> (PodResolver, Arc<PodRegistry>, watch::Sender<bool>) {
        let (roster, told) = (Arc::<PodRegistry>::default(), watch::Sender::new(false));
        let by = Arc::new(Always(verdict, told.clone()));
        (PodResolver::with_attestation(by, roster.clone(), SelfProbeSourceAddress::default()), roster, told)
    }

    fn ends() -> ConnectionEnds<'static> {
        ConnectionEnds { peer: "10.4.0.7:1".parse().unwrap(), read_local_address: &|| None }
    }

    fn at(callers: &PodResolver) -> PodOrUnknownClient {
        callers.resolve(&ends())
    }

    #[test]
    fn only_what_waiting_can_change_is_said_to_pass() {
        for (reason, code, status) in [
            (RejectionReason::UnknownAddress, "unknown_client", 403),
            (RejectionReason::HostNetwork, "host_network", 403),
            (RejectionReason::NoServiceAccount, "static_pod", 403),
            (RejectionReason::UnknownPod, "unknown_pod", 503),
            (RejectionReason::PodsNotSynced, "pods_not_synced", 503),
            (RejectionReason::Ambiguous, "ambiguous_address", 503),
            (RejectionReason::StaleView, "pod_view_stale", 503),
            (RejectionReason::NoConnectionRecord, "no_connection_record", 503),
            (RejectionReason::NoRouteToPod, "no_route_to_pod", 503),
        ] {
            let caller = at(&callers(AttestationVerdict::Rejected(reason)).0);
            let PodOrUnknownClient::Refused(refusal) = &caller else { panic!("{caller:?}") };
            assert_eq!((refusal.code, refusal.status), (code, status));
            assert_eq!(caller.can_address_change_client(), status == 503);
        }
    }

    #[test]
    fn a_pod_that_is_named_is_nobody_until_the_roster_has_it() {
        let (callers, ..) = callers(AttestationVerdict::Pod(PodUid("u1".into())));
        assert!(matches!(at(&callers), PodOrUnknownClient::Unidentified));
        assert_eq!(callers.explain_refusal(&ends(), CloudName::Google).code, "unknown_pod");
    }

    #[tokio::test]
    async fn a_cloud_that_is_not_decided_holds_up_those_who_ask_it_and_nobody_else() {
        let world = PodFixture::with_sections(BOTH_CLOUDS_BROKERED_CONFIG);
        let (callers, roster, _) = callers(AttestationVerdict::Pod(world.pod().pod.uid.clone()));
        let publish = || roster.publish(Box::new([world.pod().clone()]));
        publish();
        assert!(matches!(at(&callers), PodOrUnknownClient::Pod(_)));
        assert!(callers.attest_pod(ends(), CloudName::Aws).await.is_some());
        assert_eq!(callers.explain_refusal(&ends(), CloudName::Google).code, "unknown_pod");

        let mut settled = Box::pin(callers.wait_for_pod(ends(), CloudName::Google));
        let mut context = Context::from_waker(Waker::noop());
        assert!(settled.as_mut().poll(&mut context).is_pending());
        world.pod().replace_entitlements(world.entitlements_with_service_account_annotations(
            RelatedAnnotations::of_object(Annotations::default()),
        ));
        publish();
        assert!(settled.as_mut().poll(&mut context).is_ready());
    }

    #[tokio::test]
    async fn who_waits_is_woken_by_attestation_itself_though_the_roster_stays() {
        let world = PodFixture::new();
        let (callers, roster, told) = callers(AttestationVerdict::Pending);
        roster.publish(Box::new([world.pod().clone()]));
        let mut settled = Box::pin(callers.wait_for_pod(ends(), CloudName::Google));
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        assert!(settled.as_mut().poll(&mut context).is_pending());
        told.send_replace(true);
        assert!(woken.0.load(Ordering::Relaxed) && settled.as_mut().poll(&mut context).is_ready());
    }
}
