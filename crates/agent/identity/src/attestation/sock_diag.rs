//! `sock-diag` attestation: pods with addresses of their own by these, as `source-ip` has it; pods on the node's network by the sockets that their
//! connections end at.
//!
//! A connection from an address of the node's own to the node has both ends in one network namespace, the agent's, where the kernel keeps ends unique
//! and can be asked which control group the socket at the other one was made in. A pod cannot choose that: it is the group of the task that
//! made the socket. No connection of another network namespace comes from the node's own address, because what is
//! answered to that never leaves the node. The API server must know the pod as one that shares the node's network.
//!
//! What is asked about is the moment of the question. A client that has closed its socket by then is nobody. If another's socket has the same ends by
//! then, the connection that was accepted is dead, for the kernel gives ends away only when no side holds them: what would be answered to
//! the other one is read by nobody. A socket that was handed to another process is still its maker's.
//!
//! Refuses to know how the kernel is asked ([`Sockets`]) and where the pods come from ([`NodePods`]).

use std::fmt::Debug;
use std::net::IpAddr;

use seawall_core::PodUid;
use seawall_core::attestation::{Basis, Ends, Wait};

use super::kernel::{Pair, is_the_nodes, pair};
use super::{Attestation, Pods, Reason, Sighting, SourceIp, Verdict};

/// Who made the socket at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// This pod.
    Pod(PodUid),
    /// No pod that was asked about, or the socket is gone.
    Nobody,
    /// It could not be found out at this moment.
    Unknown,
}

/// Asks the kernel about sockets in its own network namespace.
pub(crate) trait Sockets: Debug + Send + Sync {
    /// Which of these pods made the socket at `pair.peer` of this connection.
    fn maker(&self, pair: Pair, among: &dyn Fn() -> Vec<PodUid>) -> Maker;
}

/// The cluster's view, where pods on the node's network can be listed.
pub(crate) trait NodePods: Pods {
    /// The live pods on the node's network.
    fn on_the_nodes_network(&self) -> Vec<PodUid>;
}

/// Names pods by source address, and those on the node's network by their sockets.
#[derive(Debug)]
pub(crate) struct SockDiag<P, S> {
    addressed: SourceIp<P>,
    sockets: S,
}

impl<P: NodePods, S: Sockets> SockDiag<P, S> {
    /// By this view and these sockets.
    pub(crate) fn new(pods: P, sockets: S) -> Self {
        Self { addressed: SourceIp::new(pods), sockets }
    }

    fn maker(&self, pair: Pair) -> Result<PodUid, Reason> {
        match self.sockets.maker(pair, &|| self.addressed.pods().on_the_nodes_network()) {
            Maker::Pod(uid) => Ok(uid),
            Maker::Nobody => Err(Reason::HostNetwork),
            Maker::Unknown => Err(Reason::Untold),
        }
    }
}

/// The ends, where both are the node's.
fn of_the_node(ends: &Ends<'_>) -> Option<Pair> {
    pair(ends).filter(|pair| is_the_nodes(*pair))
}

impl<P: NodePods, S: Sockets> Attestation for SockDiag<P, S> {
    /// No view needs to be current to name a pod on the node's network: what the kernel tells is a UID, which is never another pod's. To
    /// name nobody it must be, for a pod may have been told of since.
    fn verdict(&self, ends: &Ends<'_>) -> Verdict {
        let Some(pair) = of_the_node(ends) else { return self.addressed.verdict(ends) };
        match self.maker(pair) {
            Ok(uid) => Verdict::Pod(uid),
            Err(reason @ Reason::HostNetwork) if self.addressed.pods().is_current() => {
                Verdict::Nobody(reason)
            }
            Err(_) => Verdict::NotYet,
        }
    }

    fn likely(&self, ends: &Ends<'_>) -> Result<PodUid, Reason> {
        of_the_node(ends).map_or_else(|| self.addressed.likely(ends), |pair| self.maker(pair))
    }

    fn proven<'a>(&'a self, ends: Ends<'a>) -> Wait<'a, Result<PodUid, Reason>> {
        let Some(pair) = of_the_node(&ends) else { return self.addressed.proven(ends) };
        Box::pin(async move {
            self.addressed.pods().current().await;
            self.maker(pair)
        })
    }

    fn change(&self) -> Wait<'_, ()> {
        self.addressed.change()
    }

    /// A pod on the node's network rests on none of its addresses, and no other pod on that network.
    fn rests_on(&self, basis: &Basis, ends: &Ends<'_>) -> bool {
        match of_the_node(ends) {
            Some(_) => basis.addresses().is_empty(),
            None => self.addressed.rests_on(basis, ends),
        }
    }

    fn addresses<'b>(&self, basis: &'b Basis) -> &'b [IpAddr] {
        basis.addresses()
    }
}

impl<P: NodePods, S: Sockets> SockDiag<P, S> {
    /// As `source-ip`, and nothing for one on the node's network.
    pub(crate) fn basis(&self, pod: &Sighting<'_>) -> Option<Basis> {
        if pod.host_network { Some(Basis::default()) } else { self.addressed.basis(pod) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::attestation::NoPod;

    /// One pod at an address, and those on the node's network by the proof that is under way.
    #[derive(Debug)]
    struct View {
        on_node: Mutex<Vec<&'static str>>,
        is_current: bool,
    }

    const CART: &str = "10.4.0.7:40000";
    const NODE: &str = "10.4.0.1:8988";

    impl Pods for View {
        fn uid_at(&self, address: IpAddr) -> Result<PodUid, NoPod> {
            if address.to_string() == "10.4.0.7" { Ok(uid("cart")) } else { Err(NoPod::Absent) }
        }

        fn is_current(&self) -> bool {
            self.is_current
        }

        /// What is told until then: another pod on the node's network.
        fn current(&self) -> Wait<'_, ()> {
            Box::pin(async { self.on_node.lock().unwrap().push("late") })
        }

        fn newer(&self) -> Wait<'_, ()> {
            Box::pin(std::future::pending())
        }
    }

    impl NodePods for View {
        fn on_the_nodes_network(&self) -> Vec<PodUid> {
            self.on_node.lock().unwrap().iter().map(|name| uid(name)).collect()
        }
    }

    /// By whom the socket was made that everybody asks about; nothing where the kernel does not answer.
    #[derive(Debug)]
    struct One(Option<&'static str>);

    impl Sockets for One {
        fn maker(&self, pair: Pair, among: &dyn Fn() -> Vec<PodUid>) -> Maker {
            assert!(pair.peer.ip().to_canonical() == pair.peer.ip(), "canonical");
            let Some(made) = self.0 else { return Maker::Unknown };
            among().into_iter().find(|pod| *pod == uid(made)).map_or(Maker::Nobody, Maker::Pod)
        }
    }

    fn uid(text: &str) -> PodUid {
        PodUid(text.into())
    }

    fn from(peer: &str) -> Ends<'static> {
        Ends { peer: peer.parse().unwrap(), local: &|| NODE.parse().ok() }
    }

    fn made_by(maker: Option<&'static str>, is_current: bool) -> SockDiag<View, One> {
        SockDiag::new(View { on_node: Mutex::new(vec!["logs"]), is_current }, One(maker))
    }

    fn proven(way: &SockDiag<View, One>, peer: &str) -> Result<PodUid, Reason> {
        let mut proven = way.proven(from(peer));
        match proven.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(said) => said,
            std::task::Poll::Pending => panic!("nothing to wait for"),
        }
    }

    #[test]
    fn a_pod_on_the_nodes_network_is_named_by_who_made_its_socket() {
        for is_current in [true, false] {
            for peer in ["10.4.0.1:5", "[::ffff:10.4.0.1]:5", "127.0.0.1:5"] {
                let way = made_by(Some("logs"), is_current);
                assert_eq!(way.verdict(&from(peer)), Verdict::Pod(uid("logs")), "{peer}");
            }
        }
    }

    #[test]
    fn what_no_pod_on_the_nodes_network_made_is_nobodys_once_the_view_is_current() {
        let nobody = Verdict::Nobody(Reason::HostNetwork);
        for other in ["a process of the node's", "cart"] {
            assert_eq!(made_by(Some(other), true).verdict(&from("10.4.0.1:5")), nobody, "{other}");
            assert_eq!(made_by(Some(other), false).verdict(&from("10.4.0.1:5")), Verdict::NotYet);
            assert_eq!(proven(&made_by(Some(other), false), "10.4.0.1:5"), Err(Reason::HostNetwork));
        }
        assert_eq!(proven(&made_by(Some("late"), false), "10.4.0.1:5"), Ok(uid("late")));
    }

    #[test]
    fn a_kernel_that_does_not_answer_decides_nothing() {
        let way = made_by(None, true);
        assert_eq!(way.verdict(&from("10.4.0.1:5")), Verdict::NotYet);
        assert_eq!(way.likely(&from("10.4.0.1:5")), Err(Reason::Untold));
    }

    #[test]
    fn a_pod_with_an_address_is_named_by_it_and_its_socket_is_not_asked_about() {
        let way = made_by(Some("logs"), true);
        assert_eq!(way.verdict(&from(CART)), Verdict::Pod(uid("cart")));
        assert_eq!(made_by(Some("logs"), false).verdict(&from(CART)), Verdict::NotYet);
        assert_eq!(proven(&way, CART), Ok(uid("cart")));
    }

    #[test]
    fn a_connection_without_an_end_here_is_decided_by_its_address() {
        let gone = Ends { peer: "10.4.0.1:5".parse().unwrap(), local: &|| None };
        assert_eq!(made_by(Some("logs"), true).verdict(&gone), Verdict::NotYet);
    }

    #[test]
    fn a_pod_on_the_nodes_network_rests_on_no_address_and_others_on_theirs() {
        let way = made_by(None, true);
        let addresses: [IpAddr; 1] = ["10.4.0.7".parse().unwrap()];
        let seen = |host_network| {
            way.basis(&Sighting { addresses: &addresses, host_network, claims: &|_| true }).unwrap()
        };
        let (own, shared) = (seen(false), seen(true));
        assert_eq!((way.addresses(&own), way.addresses(&shared)), (&addresses[..], &[][..]));
        assert!(way.rests_on(&own, &from(CART)) && !way.rests_on(&own, &from("10.4.0.1:5")));
        assert!(!way.rests_on(&shared, &from(CART)) && way.rests_on(&shared, &from("10.4.0.1:5")));
    }
}
