//! Who is at the other end of a connection, decided once when it is accepted.
//!
//! That is asked of the way of attestation that the configuration names, which says a UID; the pod with it is the
//! [`PodRegistry`]'s. Whoever is nobody is refused whatever it asks. The answer can also be "not known yet"
//! ([`Client::Unsettled`]): then a request may wait a moment ([`Callers::settled`]) before it is refused. So may one of a pod of
//! which a cloud has not decided yet what it may have, if it is that cloud that it asks.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::attestation::{Attestation, AttestationVerdict, RejectionReason};
use arc_swap::ArcSwapOption;
use seawall_clouds::pod::{PodClient, PodEntry};
use seawall_core::PodUid;
use seawall_core::attestation::{AttestFuture, ConnectionEnds};
use seawall_core::cloud::CloudName;
use seawall_http::Refusal;
use seawall_server::client::ClientResolver;

use super::pod_registry::PodRegistry;

/// The source address of the probe under way, if any. Written where the agent asks itself, read when a connection is accepted.
pub type ProbeAddress = Arc<ArcSwapOption<SocketAddr>>;

/// Whom to ask, shared by the traffic threads.
#[derive(Debug)]
pub struct PodResolver {
    way: ResolverMode,
    probe: ProbeAddress,
}

#[derive(Debug)]
enum ResolverMode {
    Attestation(Arc<dyn Attestation>, Arc<PodRegistry>),
    /// Nobody: everybody is served alike.
    Nobody,
}

/// 403 and not 503: in `static` identity nothing changes by trying again, and SDKs would retry a 503.
const UNKNOWN_CALLER: Refusal = Refusal::new(
    403,
    "unknown_caller",
    "No pod is known at this source address, so nothing is answered to it.",
);

const UNKNOWN_POD: Refusal = Refusal::new(
    503,
    "unknown_pod",
    "The cluster has not yet told of a pod at this source address; try again shortly.",
);

const NOT_LISTED: Refusal = Refusal::new(
    503,
    "not_listed",
    "The API server has not yet been heard, so no pod of this node is known; try again shortly.",
);

const LAGGING: Refusal = Refusal::new(
    503,
    "lagging",
    "The agent has not yet applied what the API server told it, so nobody is answered; try again shortly.",
);

const NOT_NOTED: Refusal = Refusal::new(
    503,
    "not_noted",
    "The kernel has no word that fits the pod at this source address; connect again shortly.",
);

const AMBIGUOUS: Refusal = Refusal::new(
    503,
    "ambiguous_address",
    "More than one live pod has this source address, so nobody is answered at it; try again shortly.",
);

const HOST_NETWORK: Refusal = Refusal::new(
    403,
    "host_network",
    "This request comes from the node's own network, where pods cannot be told apart by their addresses.",
);

/// What somebody is told who is nobody.
fn refusal(reason: RejectionReason) -> Refusal {
    match reason {
        RejectionReason::UnknownAddress => UNKNOWN_CALLER,
        RejectionReason::HostNetwork => HOST_NETWORK,
        RejectionReason::UnknownPod => UNKNOWN_POD,
        RejectionReason::NotListed => NOT_LISTED,
        RejectionReason::Ambiguous => AMBIGUOUS,
        RejectionReason::StaleView => LAGGING,
        RejectionReason::NoConnectionRecord => NOT_NOTED,
    }
}

impl PodResolver {
    /// Those whom attestation names, as far as they are in the roster.
    pub(crate) fn attested(by: Arc<dyn Attestation>, roster: Arc<PodRegistry>, probe: ProbeAddress) -> Self {
        Self { way: ResolverMode::Attestation(by, roster), probe }
    }

    /// `anyone`: every address is served; only `conceal` may be configured so.
    pub fn anyone(probe: ProbeAddress) -> Self {
        Self { way: ResolverMode::Nobody, probe }
    }

    /// Every known pod, in the order of addresses.
    pub fn pods(&self) -> Vec<Arc<PodEntry>> {
        let ResolverMode::Attestation(by, roster) = &self.way else { return Vec::new() };
        let mut pods = roster.pods();
        pods.sort_by(|a, b| by.addresses(&a.basis).cmp(by.addresses(&b.basis)));
        pods
    }

    /// A pod's addresses, for people.
    pub fn addresses<'p>(&self, pod: &'p PodEntry) -> &'p [IpAddr] {
        let ResolverMode::Attestation(by, _) = &self.way else { return &[] };
        by.addresses(&pod.basis)
    }

    /// The pod that attestation named, once it is decided what it may have of this cloud: another need not wait for that.
    fn find_decided(
        &self,
        uid: &PodUid,
        ends: &ConnectionEnds<'_>,
        cloud: CloudName,
    ) -> Option<Arc<PodEntry>> {
        self.find(uid, ends).filter(|pod| !pod.entitlements().is_pending(cloud))
    }

    /// The pod that attestation named. Attestation knows the latest; `follow` may be a moment behind it, and then what the
    /// roster has of the pod need not rest on what it was named by.
    fn find(&self, uid: &PodUid, ends: &ConnectionEnds<'_>) -> Option<Arc<PodEntry>> {
        let ResolverMode::Attestation(by, roster) = &self.way else { return None };
        let caller = roster.find(uid)?;
        by.covers(&caller.basis, ends).then_some(caller)
    }
}

impl ClientResolver<PodEntry> for PodResolver {
    /// Who is at the other end of a connection.
    ///
    /// The probe is recognised by address *and* port, both owned by this process's own socket while the probe lasts; no
    /// other socket on this node can have them towards the same listener.
    fn resolve(&self, ends: &ConnectionEnds<'_>) -> PodClient {
        let peer = ends.peer;
        if self.probe.load().as_deref() == Some(&SocketAddr::new(peer.ip().to_canonical(), peer.port())) {
            return PodClient::Probe;
        }
        let ResolverMode::Attestation(by, _) = &self.way else { return PodClient::Anyone };
        match by.verdict(ends) {
            AttestationVerdict::Pod(uid) => {
                let pod = self.find(&uid, ends);
                pod.inspect(|pod| by.discard_evidence(&pod.pod.uid, ends))
                    .map_or(PodClient::Unidentified, PodClient::Pod)
            }
            AttestationVerdict::Pending => PodClient::Unidentified,
            AttestationVerdict::Rejected(reason) => PodClient::Refused(refusal(reason)),
        }
    }

    /// Who is probably there. For shares, never for credentials.
    fn likely_pod(&self, ends: &ConnectionEnds<'_>) -> Option<Arc<PodEntry>> {
        let ResolverMode::Attestation(by, _) = &self.way else { return None };
        self.find(&by.guess(ends).ok()?, ends)
    }

    /// Who is there, as soon as attestation can prove that: a pod of which it is decided what it may have of a cloud.
    fn attest_pod<'a>(
        &'a self,
        ends: ConnectionEnds<'a>,
        cloud: CloudName,
    ) -> AttestFuture<'a, Option<Arc<PodEntry>>> {
        Box::pin(async move {
            let ResolverMode::Attestation(by, _) = &self.way else { return std::future::pending().await };
            let uid = by.attest(ends).await.ok()?;
            self.find_decided(&uid, &ends, cloud).inspect(|pod| by.discard_evidence(&pod.pod.uid, &ends))
        })
    }

    /// Who is there, as soon as that is a pod of which it is decided what it may have of a cloud. Never ends otherwise.
    fn wait_for_pod<'a>(
        &'a self,
        ends: ConnectionEnds<'a>,
        cloud: CloudName,
    ) -> AttestFuture<'a, Arc<PodEntry>> {
        Box::pin(async move {
            let ResolverMode::Attestation(by, roster) = &self.way else {
                return std::future::pending().await;
            };
            let mut versions = roster.subscribe_versions();
            loop {
                // Both before asking, so that nothing is missed. What a pod may have is replaced before a version is told.
                let change = by.wait_for_change();
                versions.borrow_and_update();
                if let Some(pod) = self.attest_pod(ends, cloud).await {
                    return pod;
                }
                tokio::select! {
                    () = change => {}
                    // Where the roster's writer is gone, attestation alone can still say something else.
                    Ok(()) = versions.changed() => {}
                }
            }
        })
    }

    /// Why nobody is there who could be given anything of this cloud.
    fn explain_refusal(&self, ends: &ConnectionEnds<'_>, cloud: CloudName) -> Refusal {
        let ResolverMode::Attestation(by, _) = &self.way else { return UNKNOWN_CALLER };
        let find = |uid: PodUid| self.find_decided(&uid, ends, cloud).ok_or(RejectionReason::UnknownPod);
        let named = by.guess(ends).and_then(find);
        refusal(named.err().unwrap_or(RejectionReason::StaleView))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};

    use seawall_clouds::testing::{BOTH_BROKERED, PodFixture};
    use seawall_core::annotations::{Annotations, RelatedAnnotations};
    use seawall_core::attestation::{AttestFuture, AttestedAddresses};
    use tokio::sync::watch;

    use super::*;

    /// Says this of everybody, and of whom it names nobody yet, that it is `u1` once it was told.
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
        (PodResolver::attested(by, roster.clone(), ProbeAddress::default()), roster, told)
    }

    fn ends() -> ConnectionEnds<'static> {
        ConnectionEnds { peer: "10.4.0.7:1".parse().unwrap(), local: &|| None }
    }

    fn at(callers: &PodResolver) -> PodClient {
        callers.resolve(&ends())
    }

    #[test]
    fn only_what_waiting_can_change_is_said_to_pass() {
        for (reason, code, status) in [
            (RejectionReason::UnknownAddress, "unknown_caller", 403),
            (RejectionReason::HostNetwork, "host_network", 403),
            (RejectionReason::UnknownPod, "unknown_pod", 503),
            (RejectionReason::NotListed, "not_listed", 503),
            (RejectionReason::Ambiguous, "ambiguous_address", 503),
            (RejectionReason::StaleView, "lagging", 503),
            (RejectionReason::NoConnectionRecord, "not_noted", 503),
        ] {
            let caller = at(&callers(AttestationVerdict::Rejected(reason)).0);
            let PodClient::Refused(refusal) = &caller else { panic!("{caller:?}") };
            assert_eq!((refusal.code, refusal.status), (code, status));
            assert_eq!(caller.is_transient(), status == 503);
        }
    }

    #[test]
    fn a_pod_that_is_named_is_nobody_until_the_roster_has_it() {
        let (callers, ..) = callers(AttestationVerdict::Pod(PodUid("u1".into())));
        assert!(matches!(at(&callers), PodClient::Unidentified));
        assert_eq!(callers.explain_refusal(&ends(), CloudName::Google).code, "unknown_pod");
    }

    #[tokio::test]
    async fn a_cloud_that_is_not_decided_holds_up_those_who_ask_it_and_nobody_else() {
        let world = PodFixture::of(BOTH_BROKERED);
        let (callers, roster, _) = callers(AttestationVerdict::Pod(world.pod().pod.uid.clone()));
        let publish = || roster.publish(Box::new([world.pod().clone()]));
        publish();
        assert!(matches!(at(&callers), PodClient::Pod(_)));
        assert!(callers.attest_pod(ends(), CloudName::Aws).await.is_some());
        assert_eq!(callers.explain_refusal(&ends(), CloudName::Google).code, "unknown_pod");

        let mut settled = Box::pin(callers.wait_for_pod(ends(), CloudName::Google));
        let mut context = Context::from_waker(Waker::noop());
        assert!(settled.as_mut().poll(&mut context).is_pending());
        world
            .pod()
            .replace_entitlements(world.entitlements(RelatedAnnotations::read(Annotations::default())));
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
