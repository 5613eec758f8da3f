//! Implements the `source-ip` attestation: the API server reports which pod of this node has which address.
//!
//! A pod cannot choose the source address of its connections, because the responses would not reach it. So the address
//! identifies the pod while the API server's report is *current*. But addresses are reused, and an outdated copy of the report
//! can name the previous pod at an address that now belongs to another pod. So this strategy names a pod only after a proof
//! that the agent's copy contains every change that had reached this machine. For an unknown address, waiting helps: the API
//! server reports a pod's address at about the time when the pod's first container starts.
//!
//! This module does not know how the agent reads the report. It looks up pods through the trait [`PodsByAddress`].

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};

use seawall_core::PodUid;
use seawall_core::attestation::{AttestFuture, AttestedAddresses, ConnectionEnds};

use super::{Attestation, AttestationVerdict, PodNetwork, RejectionReason};

/// Looks up the pods of this node by their addresses, as the API server last reported them.
pub(crate) trait PodsByAddress: Debug + Send + Sync {
    /// Returns the only pod that has this address. Use the result for credentials only while [`Self::is_current`] is true.
    ///
    /// # Errors
    /// No known pod has the address, or more than one pod may have the address.
    fn uid_at(&self, address: IpAddr) -> Result<PodUid, AddressLookupError>;

    /// True if the view contains every change that had reached this machine shortly before this call. Costs one atomic read.
    fn is_current(&self) -> bool;

    /// Waits until [`Self::is_current`] is true.
    fn wait_until_current(&self) -> AttestFuture<'_, ()>;

    /// Waits for a view that is newer than the current view.
    fn wait_for_newer(&self) -> AttestFuture<'_, ()>;
}

/// The reason why a lookup by address finds no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressLookupError {
    /// No known pod has the address.
    Absent,
    /// The API server has not listed the node's pods yet.
    PodsNotSynced,
    /// More than one pod may have the address.
    Ambiguous,
    /// Only a static pod has the address, and a static pod has no ServiceAccount.
    NoServiceAccount,
}

impl From<AddressLookupError> for RejectionReason {
    fn from(none: AddressLookupError) -> Self {
        match none {
            AddressLookupError::Absent => Self::UnknownPod,
            AddressLookupError::PodsNotSynced => Self::PodsNotSynced,
            AddressLookupError::Ambiguous => Self::Ambiguous,
            AddressLookupError::NoServiceAccount => Self::NoServiceAccount,
        }
    }
}

/// Identifies pods by the source addresses of their connections.
#[derive(Debug)]
pub(crate) struct SourceIpAttestation<P>(P);

impl<P: PodsByAddress> SourceIpAttestation<P> {
    /// Creates the attestation from the pods that the API server reports.
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
        // If the connection has the same address at both ends, the client runs on this machine.
        if ip.is_loopback() || (ends.read_local_address)().is_some_and(|own| own.ip().to_canonical() == ip) {
            return AttestationVerdict::Rejected(RejectionReason::HostNetwork);
        }
        // An outdated view can name the previous pod at an address that now belongs to another pod.
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

    /// True if the basis contains this source address.
    ///
    /// The pod's registry entry can be older or newer than the view that named the pod. Then the basis of the entry can lack
    /// the address, and the agent must not assign the connection to the entry. The agent closes an entry's connections only
    /// when the basis changes, so this connection would stay open after the pod loses the address.
    fn covers(&self, basis: &AttestedAddresses, ends: &ConnectionEnds<'_>) -> bool {
        basis.addresses().contains(&ends.peer.ip().to_canonical())
    }

    fn addresses<'b>(&self, basis: &'b AttestedAddresses) -> &'b [IpAddr] {
        basis.addresses()
    }
}

impl<P: PodsByAddress> SourceIpAttestation<P> {
    /// Returns the addresses that only this pod claims. Returns `None` for a pod on the node's own network, because no address
    /// identifies such a pod.
    ///
    /// Suppose that this pod shuts down while another pod starts, and that the API server has not reported the starting pod's
    /// address yet. The result still contains the address of the pod that shuts down. The starting pod can already have this
    /// address, so [`Attestation::verdict`] names neither pod for a new connection. But connections that the agent accepted
    /// earlier belong to the pod that shuts down. These connections end when that pod ends or when another pod claims the
    /// address.
    pub(crate) fn attested_addresses(&self, pod: &PodNetwork<'_>) -> Option<AttestedAddresses> {
        let own = || pod.addresses.iter().copied().filter(|ip| (pod.is_only_claimant_of)(*ip));
        (!pod.uses_host_network).then(|| AttestedAddresses::from_addresses(own()))
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

        /// Simulates a pod that is deleted before the view becomes current.
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
        ConnectionEnds { peer: SocketAddr::new(ip(text), 40_000), read_local_address: &|| None }
    }

    fn verdict(pods: &SourceIpAttestation<View>, from: &str, to: &str) -> AttestationVerdict {
        let local = || Some(SocketAddr::new(ip(to), 80));
        pods.verdict(&ConnectionEnds { read_local_address: &local, ..self::from(from) })
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
            "the previous view's pod must not be named"
        );
    }

    #[test]
    fn a_pod_rests_on_the_addresses_that_it_alone_claims() {
        let pods = view(Ok("u1"), true);
        let addresses = [ip(OWN), ip("fd00::7")];
        let seen = |host_network, claims: &dyn Fn(IpAddr) -> bool| {
            pods.attested_addresses(&PodNetwork {
                addresses: &addresses,
                uses_host_network: host_network,
                is_only_claimant_of: claims,
            })
        };
        let both = seen(false, &|_| true).unwrap();
        let one = seen(false, &|claimed| claimed == ip(OWN)).unwrap();
        assert_eq!((pods.addresses(&both), pods.addresses(&one)), (&addresses[..], &addresses[..1]));
        assert_ne!(both, one, "a pod that loses an address gets another basis");
        assert!(rests_on(&pods, &one, OWN) && rests_on(&pods, &one, "::ffff:10.4.0.7"));
        assert!(!rests_on(&pods, &one, "fd00::7") && rests_on(&pods, &both, "fd00::7"));
        assert_eq!(seen(true, &|_| true), None, "no address identifies a pod on the node's network");
    }

    fn rests_on(pods: &SourceIpAttestation<View>, basis: &AttestedAddresses, address: &str) -> bool {
        pods.covers(basis, &from(address))
    }
}
