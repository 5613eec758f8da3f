//! `source-ip` attestation: the API server says which pod of this node has which address.
//!
//! The argument is that of `static` identity (a pod cannot choose the address it is answered at), as far as what the API server
//! told is *current*: addresses are used again, and a view that lags may name the last pod at an address that is another's by
//! now. So nobody is named but by a view that is proven to hold all that had reached this machine. What is not known yet
//! can be waited for, because the API server tells of a pod's address about when its first container starts.
//!
//! Refuses to know where the pods come from: [`Pods`] is the cluster's view through the one window that this needs.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};

use seawall_core::PodUid;
use seawall_core::attestation::{Basis, Ends, Wait};

use super::{Attestation, Reason, Sighting, Verdict};

/// The pods of this node by their addresses, as last told.
pub(crate) trait Pods: Debug + Send + Sync {
    /// The pod that alone has an address. Decides something only while [`Self::is_current`].
    ///
    /// # Errors
    /// Nobody is named when nobody, or more than one, has it.
    fn uid_at(&self, address: IpAddr) -> Result<PodUid, NoPod>;

    /// Whether the view holds everything that had reached this machine shortly before. One atomic read.
    fn is_current(&self) -> bool;

    /// Waits until that is so.
    fn current(&self) -> Wait<'_, ()>;

    /// Waits for a view that is newer than that of this moment.
    fn newer(&self) -> Wait<'_, ()>;
}

/// Why no pod is named for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPod {
    /// No pod that has been told of has it.
    Absent,
    /// The pods of this node have not been told at all.
    NotListed,
    /// More than one has it, or may have.
    Ambiguous,
}

impl From<NoPod> for Reason {
    fn from(none: NoPod) -> Self {
        match none {
            NoPod::Absent => Self::Untold,
            NoPod::NotListed => Self::NotListed,
            NoPod::Ambiguous => Self::Ambiguous,
        }
    }
}

/// Names pods by the addresses that connections come from.
#[derive(Debug)]
pub(crate) struct SourceIp<P>(P);

impl<P: Pods> SourceIp<P> {
    /// By this view.
    pub(crate) fn new(pods: P) -> Self {
        Self(pods)
    }

    fn named(&self, peer: SocketAddr) -> Result<PodUid, Reason> {
        Ok(self.0.uid_at(peer.ip().to_canonical())?)
    }
}

impl<P: Pods> Attestation for SourceIp<P> {
    fn verdict(&self, ends: &Ends<'_>) -> Verdict {
        let ip = ends.peer.ip().to_canonical();
        // Whoever has the address that it connects to is on this very machine.
        if ip.is_loopback() || (ends.local)().is_some_and(|own| own.ip().to_canonical() == ip) {
            return Verdict::Nobody(Reason::HostNetwork);
        }
        // A view that lags may name the last pod at an address that is another's by now.
        if !self.0.is_current() {
            return Verdict::NotYet;
        }
        self.0.uid_at(ip).map_or(Verdict::NotYet, Verdict::Pod)
    }

    fn likely(&self, ends: &Ends<'_>) -> Result<PodUid, Reason> {
        self.named(ends.peer)
    }

    fn proven<'a>(&'a self, ends: Ends<'a>) -> Wait<'a, Result<PodUid, Reason>> {
        Box::pin(async move {
            self.0.current().await;
            self.named(ends.peer)
        })
    }

    fn change(&self) -> Wait<'_, ()> {
        self.0.newer()
    }

    /// What is kept of the pod may be from a view in which this address was not yet, or no longer, its own. If that were let
    /// pass, and the pod lost the address before whoever keeps pods looks again, nobody would end this connection.
    fn rests_on(&self, basis: &Basis, ends: &Ends<'_>) -> bool {
        basis.addresses().contains(&ends.peer.ip().to_canonical())
    }

    fn addresses<'b>(&self, basis: &'b Basis) -> &'b [IpAddr] {
        basis.addresses()
    }
}

impl<P: Pods> SourceIp<P> {
    /// The addresses that this pod alone claims; nothing for a pod on the node's own network, which no address tells apart.
    ///
    /// Not only those at which it would be named now: while another pod waits for an address, a pod that shuts down is not named
    /// on new connections, which is decided where they are accepted; those that it has were decided by views in which the
    /// address was its own, and end with it or when somebody else claims the address.
    pub(crate) fn basis(&self, pod: &Sighting<'_>) -> Option<Basis> {
        let own = || pod.addresses.iter().copied().filter(|ip| (pod.claims)(*ip));
        (!pod.host_network).then(|| Basis::of(own()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A view with one pod.
    #[derive(Debug)]
    struct View {
        pod: Mutex<Result<&'static str, NoPod>>,
        is_current: bool,
    }

    const OWN: &str = "10.4.0.7";

    impl Pods for View {
        fn uid_at(&self, address: IpAddr) -> Result<PodUid, NoPod> {
            assert!(!matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()), "canonical");
            let uid = (*self.pod.lock().unwrap())?;
            if address == ip(OWN) { Ok(PodUid(uid.into())) } else { Err(NoPod::Absent) }
        }

        fn is_current(&self) -> bool {
            self.is_current
        }

        /// What is told until then: that the pod is gone.
        fn current(&self) -> Wait<'_, ()> {
            Box::pin(async { *self.pod.lock().unwrap() = Err(NoPod::Absent) })
        }

        fn newer(&self) -> Wait<'_, ()> {
            Box::pin(std::future::pending())
        }
    }

    fn view(pod: Result<&'static str, NoPod>, is_current: bool) -> SourceIp<View> {
        SourceIp::new(View { pod: Mutex::new(pod), is_current })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn from(text: &str) -> Ends<'static> {
        Ends { peer: SocketAddr::new(ip(text), 40_000), local: &|| None }
    }

    fn verdict(pods: &SourceIp<View>, from: &str, to: &str) -> Verdict {
        let local = || Some(SocketAddr::new(ip(to), 80));
        pods.verdict(&Ends { local: &local, ..self::from(from) })
    }

    fn uid(text: &str) -> PodUid {
        PodUid(text.into())
    }

    #[test]
    fn a_current_view_names_the_pod_and_nobody_else() {
        let pods = view(Ok("u1"), true);
        for own in [OWN, "::ffff:10.4.0.7"] {
            assert_eq!(verdict(&pods, own, "169.254.169.254"), Verdict::Pod(uid("u1")), "{own}");
        }
        assert_eq!(verdict(&pods, "10.4.0.8", "169.254.169.254"), Verdict::NotYet);
    }

    #[test]
    fn a_view_that_lags_decides_nothing_and_still_tells_whose_shares_it_takes() {
        let pods = view(Ok("u1"), false);
        assert_eq!(verdict(&pods, OWN, "169.254.169.254"), Verdict::NotYet);
        assert_eq!(pods.likely(&from(OWN)), Ok(uid("u1")));
    }

    #[test]
    fn the_nodes_own_network_is_nobody_whatever_the_view_says() {
        for is_current in [true, false] {
            let pods = view(Ok("u1"), is_current);
            for (from, to) in
                [("127.0.0.9", "127.0.0.1"), ("::1", "::1"), (OWN, OWN), ("::ffff:10.4.0.7", OWN)]
            {
                assert_eq!(verdict(&pods, from, to), Verdict::Nobody(Reason::HostNetwork), "{from} {to}");
            }
        }
    }

    #[test]
    fn each_doubt_has_its_reason() {
        for (none, reason) in [
            (NoPod::Absent, Reason::Untold),
            (NoPod::NotListed, Reason::NotListed),
            (NoPod::Ambiguous, Reason::Ambiguous),
        ] {
            let pods = view(Err(none), true);
            assert_eq!(verdict(&pods, OWN, "169.254.169.254"), Verdict::NotYet);
            assert_eq!(pods.likely(&from(OWN)), Err(reason));
        }
    }

    #[test]
    fn what_is_proven_is_what_was_told_until_the_proof() {
        let pods = view(Ok("u1"), false);
        let mut proven = pods.proven(from(OWN));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let said = proven.as_mut().poll(&mut context);
        assert_eq!(said, std::task::Poll::Ready(Err(Reason::Untold)), "not the pod of the view before");
    }

    #[test]
    fn a_pod_rests_on_the_addresses_that_it_alone_claims() {
        let pods = view(Ok("u1"), true);
        let addresses = [ip(OWN), ip("fd00::7")];
        let seen = |host_network, claims: &dyn Fn(IpAddr) -> bool| {
            pods.basis(&Sighting { addresses: &addresses, host_network, claims })
        };
        let both = seen(false, &|_| true).unwrap();
        let one = seen(false, &|claimed| claimed == ip(OWN)).unwrap();
        assert_eq!((pods.addresses(&both), pods.addresses(&one)), (&addresses[..], &addresses[..1]));
        assert_ne!(both, one, "when it loses one, what was decided is decided anew");
        assert!(rests_on(&pods, &one, OWN) && rests_on(&pods, &one, "::ffff:10.4.0.7"));
        assert!(!rests_on(&pods, &one, "fd00::7") && rests_on(&pods, &both, "fd00::7"));
        assert_eq!(seen(true, &|_| true), None, "no address tells it apart");
    }

    fn rests_on(pods: &SourceIp<View>, basis: &Basis, address: &str) -> bool {
        pods.rests_on(basis, &from(address))
    }
}
