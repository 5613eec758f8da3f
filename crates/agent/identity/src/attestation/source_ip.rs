//! `source-ip` attestation: the API server says which pod of this node has which address.
//!
//! The argument is that of `static` identity (a pod cannot choose the address at which answers reach it), as long as the API
//! server's report is *current*. Addresses are reused, and a view that lags may name the last pod at an address that belongs to
//! another pod by now. So a pod is named only by a view that is proven to hold everything that had reached this machine. A pod
//! that is not known yet is worth waiting for, because the API server reports a pod's address about when its first container
//! starts.
//!
//! Does not know where the pods come from: [`PodsByAddress`] is the only part of the cluster's view that it needs.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};

use seawall_core::PodUid;
use seawall_core::attestation::{AttestFuture, AttestedAddresses, ConnectionEnds};

use super::{Attestation, AttestationVerdict, PodNetwork, RejectionReason};

/// The pods of this node by their addresses, as the API server last reported them.
pub(crate) trait PodsByAddress: Debug + Send + Sync {
    /// The only pod that has this address. Decide by it only while [`Self::is_current`].
    ///
    /// # Errors
    /// No known pod has the address, or more than one pod has it or may have it.
    fn uid_at(&self, address: IpAddr) -> Result<PodUid, AddressLookupError>;

    /// True if the view holds everything that had reached this machine shortly before. One atomic read.
    fn is_current(&self) -> bool;

    /// Waits until [`Self::is_current`].
    fn wait_until_current(&self) -> AttestFuture<'_, ()>;

    /// Waits for a view that is newer than the present one.
    fn wait_for_newer(&self) -> AttestFuture<'_, ()>;
}

/// The reason why a lookup by address names no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressLookupError {
    /// No known pod has the address.
    Absent,
    /// The API server has not listed the node's pods yet.
    PodsNotSynced,
    /// More than one pod has the address, or may have it.
    Ambiguous,
}

impl From<AddressLookupError> for RejectionReason {
    fn from(none: AddressLookupError) -> Self {
        match none {
            AddressLookupError::Absent => Self::UnknownPod,
            AddressLookupError::PodsNotSynced => Self::PodsNotSynced,
            AddressLookupError::Ambiguous => Self::Ambiguous,
        }
    }
}

/// Names pods by the source addresses of their connections.
#[derive(Debug)]
pub(crate) struct SourceIpAttestation<P>(P);

impl<P: PodsByAddress> SourceIpAttestation<P> {
    /// Creates an attestation over this view.
    pub(crate) fn new(pods: P) -> Self {
        Self(pods)
    }

    fn named(&self, peer: SocketAddr) -> Result<PodUid, RejectionReason> {
        Ok(self.0.uid_at(peer.ip().to_canonical())?)
    }
}

impl<P: PodsByAddress> Attestation for SourceIpAttestation<P> {
    fn verdict(&self, ends: &ConnectionEnds<'_>) -> AttestationVerdict {
        let ip = ends.peer.ip().to_canonical();
        // A client that has the address it connects to is on this very machine.
        if ip.is_loopback() || (ends.local)().is_some_and(|own| own.ip().to_canonical() == ip) {
            return AttestationVerdict::Rejected(RejectionReason::HostNetwork);
        }
        // A view that lags may name the last pod at an address that is another's by now.
        if !self.0.is_current() {
            return AttestationVerdict::Pending;
        }
        self.0.uid_at(ip).map_or(AttestationVerdict::Pending, AttestationVerdict::Pod)
    }

    fn guess(&self, ends: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason> {
        self.named(ends.peer)
    }

    fn attest<'a>(&'a self, ends: ConnectionEnds<'a>) -> AttestFuture<'a, Result<PodUid, RejectionReason>> {
        Box::pin(async move {
            self.0.wait_until_current().await;
            self.named(ends.peer)
        })
    }

    fn wait_for_change(&self) -> AttestFuture<'_, ()> {
        self.0.wait_for_newer()
    }

    /// True if the basis has this source address. The stored record of the pod may be from a view in which the pod did not have
    /// this address yet, or no longer. Suppose such a record were accepted and the pod lost the address before the registry is
    /// updated: this connection would then never be closed.
    fn covers(&self, basis: &AttestedAddresses, ends: &ConnectionEnds<'_>) -> bool {
        basis.addresses().contains(&ends.peer.ip().to_canonical())
    }

    fn addresses<'b>(&self, basis: &'b AttestedAddresses) -> &'b [IpAddr] {
        basis.addresses()
    }
}

impl<P: PodsByAddress> SourceIpAttestation<P> {
    /// The addresses that this pod alone claims; `None` for a pod on the node's own network, which no address identifies.
    ///
    /// Includes addresses that do not name the pod now. While another pod waits for an address, a pod that shuts down is not named on
    /// new connections; [`Attestation::verdict`] decides that. Its open connections were decided by views in which it had the address
    /// alone. They end with the pod, or when another pod claims the address.
    pub(crate) fn attested_addresses(&self, pod: &PodNetwork<'_>) -> Option<AttestedAddresses> {
        let own = || pod.addresses.iter().copied().filter(|ip| (pod.claims)(*ip));
        (!pod.host_network).then(|| AttestedAddresses::of(own()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A view with one pod.
    #[derive(Debug)]
    struct View {
        pod: Mutex<Result<&'static str, AddressLookupError>>,
        is_current: bool,
    }

    const OWN: &str = "10.4.0.7";

    impl PodsByAddress for View {
        fn uid_at(&self, address: IpAddr) -> Result<PodUid, AddressLookupError> {
            assert!(!matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()), "canonical");
            let uid = (*self.pod.lock().unwrap())?;
            if address == ip(OWN) { Ok(PodUid(uid.into())) } else { Err(AddressLookupError::Absent) }
        }

        fn is_current(&self) -> bool {
            self.is_current
        }

        /// Simulates the view until then: the pod is gone.
        fn wait_until_current(&self) -> AttestFuture<'_, ()> {
            Box::pin(async { *self.pod.lock().unwrap() = Err(AddressLookupError::Absent) })
        }

        fn wait_for_newer(&self) -> AttestFuture<'_, ()> {
            Box::pin(std::future::pending())
        }
    }

    fn view(pod: Result<&'static str, AddressLookupError>, is_current: bool) -> SourceIpAttestation<View> {
        SourceIpAttestation::new(View { pod: Mutex::new(pod), is_current })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn from(text: &str) -> ConnectionEnds<'static> {
        ConnectionEnds { peer: SocketAddr::new(ip(text), 40_000), local: &|| None }
    }

    fn verdict(pods: &SourceIpAttestation<View>, from: &str, to: &str) -> AttestationVerdict {
        let local = || Some(SocketAddr::new(ip(to), 80));
        pods.verdict(&ConnectionEnds { local: &local, ..self::from(from) })
    }

    fn uid(text: &str) -> PodUid {
        PodUid(text.into())
    }

    #[test]
    fn a_current_view_names_the_pod_and_nobody_else() {
        let pods = view(Ok("u1"), true);
        for own in [OWN, "::ffff:10.4.0.7"] {
            assert_eq!(verdict(&pods, own, "169.254.169.254"), AttestationVerdict::Pod(uid("u1")), "{own}");
        }
        assert_eq!(verdict(&pods, "10.4.0.8", "169.254.169.254"), AttestationVerdict::Pending);
    }

    #[test]
    fn a_view_that_lags_decides_nothing_and_still_tells_whose_shares_it_takes() {
        let pods = view(Ok("u1"), false);
        assert_eq!(verdict(&pods, OWN, "169.254.169.254"), AttestationVerdict::Pending);
        assert_eq!(pods.guess(&from(OWN)), Ok(uid("u1")));
    }

    #[test]
    fn the_nodes_own_network_is_nobody_whatever_the_view_says() {
        for is_current in [true, false] {
            let pods = view(Ok("u1"), is_current);
            for (from, to) in
                [("127.0.0.9", "127.0.0.1"), ("::1", "::1"), (OWN, OWN), ("::ffff:10.4.0.7", OWN)]
            {
                assert_eq!(
                    verdict(&pods, from, to),
                    AttestationVerdict::Rejected(RejectionReason::HostNetwork),
                    "{from} {to}"
                );
            }
        }
    }

    #[test]
    fn each_doubt_has_its_reason() {
        for (none, reason) in [
            (AddressLookupError::Absent, RejectionReason::UnknownPod),
            (AddressLookupError::PodsNotSynced, RejectionReason::PodsNotSynced),
            (AddressLookupError::Ambiguous, RejectionReason::Ambiguous),
        ] {
            let pods = view(Err(none), true);
            assert_eq!(verdict(&pods, OWN, "169.254.169.254"), AttestationVerdict::Pending);
            assert_eq!(pods.guess(&from(OWN)), Err(reason));
        }
    }

    #[test]
    fn what_is_proven_is_what_was_told_until_the_proof() {
        let pods = view(Ok("u1"), false);
        let mut proven = pods.attest(from(OWN));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let said = proven.as_mut().poll(&mut context);
        assert_eq!(
            said,
            std::task::Poll::Ready(Err(RejectionReason::UnknownPod)),
            "not the pod of the view before"
        );
    }

    #[test]
    fn a_pod_rests_on_the_addresses_that_it_alone_claims() {
        let pods = view(Ok("u1"), true);
        let addresses = [ip(OWN), ip("fd00::7")];
        let seen = |host_network, claims: &dyn Fn(IpAddr) -> bool| {
            pods.attested_addresses(&PodNetwork { addresses: &addresses, host_network, claims })
        };
        let both = seen(false, &|_| true).unwrap();
        let one = seen(false, &|claimed| claimed == ip(OWN)).unwrap();
        assert_eq!((pods.addresses(&both), pods.addresses(&one)), (&addresses[..], &addresses[..1]));
        assert_ne!(both, one, "when it loses one, what was decided is decided anew");
        assert!(rests_on(&pods, &one, OWN) && rests_on(&pods, &one, "::ffff:10.4.0.7"));
        assert!(!rests_on(&pods, &one, "fd00::7") && rests_on(&pods, &both, "fd00::7"));
        assert_eq!(seen(true, &|_| true), None, "no address tells it apart");
    }

    fn rests_on(pods: &SourceIpAttestation<View>, basis: &AttestedAddresses, address: &str) -> bool {
        pods.covers(basis, &from(address))
    }
}
