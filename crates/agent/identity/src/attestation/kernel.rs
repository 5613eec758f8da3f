//! `kernel` attestation: the kernel noted of a connection whose it is, before it left the client.
//!
//! Two witnesses must agree. The API server says which pod has the source address; the kernel, asked under that pod's own cgroup and the
//! connection's two ends, says that a process of this very pod began it. One alone is not enough: an address is used again before the
//! API server tells, and a pod may make a network namespace of its own in which any address is its own, so that its notes hold any ends it
//! likes. But it writes notes under its own cgroup and nobody else's. So whoever has an address that was another's is not
//! taken for that pod, however late the API server tells of it, and no view needs to be proven current.
//!
//! Pods on the node's own network have no address. Their notes are kept under the node, whose ends the kernel keeps apart, and only sockets in
//! the node's own network namespace write there: then the kernel's word names the pod, and the API server must know it as one that shares that
//! network.
//!
//! What is not noted is nobody's: evicted from a full table, not captured, sent past the kernel's sockets. That a note is the only one at
//! these ends says nothing, because a flood of notes can evict the true one.
//!
//! Refuses to know how the kernel is asked ([`ConnectionRecords`]) and where the pods come from ([`PodsByAddress`]).

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};

use seawall_core::PodUid;
use seawall_core::attestation::{AttestFuture, AttestedAddresses, ConnectionEnds};

use super::{
    AddressLookupError, Attestation, AttestationVerdict, PodNetwork, PodsByAddress, RejectionReason,
};

/// The two ends of a connection, as the one who accepted it sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketPair {
    /// The other end.
    pub(crate) peer: SocketAddr,
    /// This end.
    pub(crate) local: SocketAddr,
}

/// Under whom a note is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOwner<'a> {
    /// A pod with a network of its own.
    Pod(&'a PodUid),
    /// The node's own network.
    Node,
}

/// What the kernel noted of connections that are being made.
pub(crate) trait ConnectionRecords: Debug + Send + Sync {
    /// The pod that began this connection, if a note of it is kept under this owner.
    fn find(&self, owner: RecordOwner<'_>, pair: SocketPair) -> Option<PodUid>;

    /// Forgets the note, which is good for one connection.
    fn forget(&self, owner: RecordOwner<'_>, pair: SocketPair);

    /// Told once of each connection from a pod's address of which nothing fitting was noted, to be counted.
    fn count_missed(&self) {}
}

/// The cluster's view, where pods on the node's network count, too.
pub(crate) trait PodLookup: PodsByAddress {
    /// The pod that alone claims an address, also while it is withheld because another may have been given it: that is what the kernel
    /// tells better.
    fn claimant_at(&self, address: IpAddr) -> Option<PodUid>;

    /// Whether this is a live pod on the node's network.
    fn is_host_network(&self, uid: &PodUid) -> bool;
}

/// Names pods by source address and the kernel's note together.
#[derive(Debug)]
pub(crate) struct KernelAttestation<P, N> {
    pods: P,
    notes: N,
}

impl<P: PodLookup, N: ConnectionRecords> KernelAttestation<P, N> {
    /// By this view and these notes.
    pub(crate) fn new(pods: P, notes: N) -> Self {
        Self { pods, notes }
    }

    fn named(&self, ends: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason> {
        let pair = connection_endpoints(ends).ok_or(RejectionReason::NoConnectionRecord)?;
        if is_from_node(pair) {
            let uid = self.notes.find(RecordOwner::Node, pair).ok_or(RejectionReason::HostNetwork)?;
            return if self.pods.is_host_network(&uid) { Ok(uid) } else { Err(RejectionReason::UnknownPod) };
        }
        let uid = self.claimant(pair)?;
        let noted = self.notes.find(RecordOwner::Pod(&uid), pair);
        noted.filter(|noted| *noted == uid).ok_or(RejectionReason::NoConnectionRecord)
    }

    fn claimant(&self, pair: SocketPair) -> Result<PodUid, RejectionReason> {
        let ip = pair.peer.ip();
        match self.pods.claimant_at(ip) {
            Some(uid) => Ok(uid),
            // Whoever is named there after all came between the two questions.
            None => Err(self.pods.uid_at(ip).err().unwrap_or(AddressLookupError::Absent).into()),
        }
    }
}

/// Both ends without the forms that IPv4 has in IPv6; nothing for a connection that has ended.
pub(crate) fn connection_endpoints(ends: &ConnectionEnds<'_>) -> Option<SocketPair> {
    let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    Some(SocketPair { peer: canonical(ends.peer), local: canonical((ends.local)()?) })
}

/// Whoever has the address that it connects to is on this very machine.
pub(crate) fn is_from_node(pair: SocketPair) -> bool {
    pair.peer.ip().is_loopback() || pair.peer.ip() == pair.local.ip()
}

impl<P: PodLookup, N: ConnectionRecords> Attestation for KernelAttestation<P, N> {
    /// Nothing noted at the node's own address is somebody outside of every pod. Elsewhere it may be the next pod at an address, of which
    /// the API server has not told.
    fn verdict(&self, ends: &ConnectionEnds<'_>) -> AttestationVerdict {
        match self.named(ends) {
            Ok(uid) => AttestationVerdict::Pod(uid),
            Err(RejectionReason::HostNetwork) => AttestationVerdict::Rejected(RejectionReason::HostNetwork),
            Err(reason) => {
                if reason == RejectionReason::NoConnectionRecord {
                    self.notes.count_missed();
                }
                AttestationVerdict::Pending
            }
        }
    }

    fn guess(&self, ends: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason> {
        self.named(ends)
    }

    fn attest<'a>(&'a self, ends: ConnectionEnds<'a>) -> AttestFuture<'a, Result<PodUid, RejectionReason>> {
        Box::pin(async move { self.named(&ends) })
    }

    fn wait_for_change(&self) -> AttestFuture<'_, ()> {
        self.pods.wait_for_newer()
    }

    fn discard_evidence(&self, uid: &PodUid, ends: &ConnectionEnds<'_>) {
        if let Some(pair) = connection_endpoints(ends) {
            self.notes
                .forget(if is_from_node(pair) { RecordOwner::Node } else { RecordOwner::Pod(uid) }, pair);
        }
    }

    /// A pod on the node's network rests on none of its addresses, and no other pod on that network.
    fn covers(&self, basis: &AttestedAddresses, ends: &ConnectionEnds<'_>) -> bool {
        let is_the_nodes = connection_endpoints(ends).is_some_and(is_from_node);
        if is_the_nodes {
            basis.addresses().is_empty()
        } else {
            basis.addresses().contains(&ends.peer.ip().to_canonical())
        }
    }

    fn addresses<'b>(&self, basis: &'b AttestedAddresses) -> &'b [IpAddr] {
        basis.addresses()
    }
}

impl<P: PodLookup, N: ConnectionRecords> KernelAttestation<P, N> {
    /// The addresses that this pod alone claims; none for one on the node's network.
    pub(crate) fn attested_addresses(&self, pod: &PodNetwork<'_>) -> Option<AttestedAddresses> {
        let own = pod.addresses.iter().copied().filter(|ip| !pod.host_network && (pod.claims)(*ip));
        Some(AttestedAddresses::of(own))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use super::*;

    /// A view: who claims which address, and who is on the node's network.
    #[derive(Debug, Default)]
    struct View {
        claims: HashMap<IpAddr, &'static str>,
        on_node: Vec<&'static str>,
    }

    impl PodsByAddress for View {
        fn uid_at(&self, address: IpAddr) -> Result<PodUid, AddressLookupError> {
            self.claimant_at(address).ok_or(AddressLookupError::Absent)
        }

        /// No answer of this way may depend on it.
        fn is_current(&self) -> bool {
            false
        }

        fn wait_until_current(&self) -> AttestFuture<'_, ()> {
            Box::pin(std::future::pending())
        }

        fn wait_for_newer(&self) -> AttestFuture<'_, ()> {
            Box::pin(std::future::pending())
        }
    }

    impl PodLookup for View {
        fn claimant_at(&self, address: IpAddr) -> Option<PodUid> {
            self.claims.get(&address).map(|uid| self::uid(uid))
        }

        fn is_host_network(&self, uid: &PodUid) -> bool {
            self.on_node.iter().any(|known| *known == &*uid.0)
        }
    }

    /// Notes by whom they are kept under ("" is the node), of one pair of ends each.
    #[derive(Debug, Default)]
    struct Table(Mutex<Vec<(&'static str, SocketPair, &'static str)>>);

    impl ConnectionRecords for Table {
        fn find(&self, owner: RecordOwner<'_>, pair: SocketPair) -> Option<PodUid> {
            let table = self.0.lock().unwrap();
            let note = table.iter().find(|(under, of, _)| is(owner, under) && *of == pair);
            note.map(|(_, _, pod)| uid(pod))
        }

        fn forget(&self, owner: RecordOwner<'_>, pair: SocketPair) {
            self.0.lock().unwrap().retain(|(under, of, _)| !(is(owner, under) && *of == pair));
        }
    }

    fn is(owner: RecordOwner<'_>, under: &str) -> bool {
        match owner {
            RecordOwner::Node => under.is_empty(),
            RecordOwner::Pod(uid) => &*uid.0 == under,
        }
    }

    const NODE: &str = "10.4.0.1:8988";
    const CART: &str = "10.4.0.7:40000";

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn uid(text: &str) -> PodUid {
        PodUid(text.into())
    }

    fn from(peer: &str) -> ConnectionEnds<'static> {
        ConnectionEnds { peer: at(peer), local: &|| Some(at(NODE)) }
    }

    /// "cart" is at its address, "old" at another; "agent" is on the node's network.
    fn kernel(notes: &[(&'static str, &str, &'static str)]) -> KernelAttestation<View, Table> {
        let claims = [(at(CART).ip(), "cart"), ("10.4.0.9".parse().unwrap(), "old")].into();
        let view = View { claims, on_node: vec!["agent"] };
        let note = |(under, peer, pod): &(&'static str, &str, &'static str)| {
            (*under, SocketPair { peer: at(peer), local: at(NODE) }, *pod)
        };
        KernelAttestation::new(view, Table(Mutex::new(notes.iter().map(note).collect())))
    }

    #[test]
    fn a_pod_is_named_where_address_and_note_agree_and_nowhere_else() {
        let nobody = |reason| Err::<&str, _>((AttestationVerdict::Pending, reason));
        let stranger =
            Err((AttestationVerdict::Rejected(RejectionReason::HostNetwork), RejectionReason::HostNetwork));
        for (case, notes, peer, expected) in [
            ("both say so", &[("cart", CART, "cart")][..], CART, Ok("cart")),
            ("in the form of IPv6", &[("cart", CART, "cart")], "[::ffff:10.4.0.7]:40000", Ok("cart")),
            ("nothing noted", &[], CART, nobody(RejectionReason::NoConnectionRecord)),
            (
                "noted of another port",
                &[("cart", "10.4.0.7:1", "cart")],
                CART,
                nobody(RejectionReason::NoConnectionRecord),
            ),
            (
                "another pod made the same ends its own",
                &[("evil", CART, "evil")],
                CART,
                nobody(RejectionReason::NoConnectionRecord),
            ),
            ("beside the true one", &[("evil", CART, "evil"), ("cart", CART, "cart")], CART, Ok("cart")),
            (
                "the last pod's address",
                &[("new", "10.4.0.9:5", "new")],
                "10.4.0.9:5",
                nobody(RejectionReason::NoConnectionRecord),
            ),
            (
                "an address not told of",
                &[("new", "10.4.0.8:5", "new")],
                "10.4.0.8:5",
                nobody(RejectionReason::UnknownPod),
            ),
            ("from the node's network", &[("", "10.4.0.1:5", "agent")], "10.4.0.1:5", Ok("agent")),
            ("from its loopback", &[("", "127.0.0.1:5", "agent")], "127.0.0.1:5", Ok("agent")),
            (
                "from a pod not told of",
                &[("", "10.4.0.1:5", "other")],
                "10.4.0.1:5",
                nobody(RejectionReason::UnknownPod),
            ),
            (
                "a pod with an address, on the node's network",
                &[("", "10.4.0.1:5", "cart")],
                "10.4.0.1:5",
                nobody(RejectionReason::UnknownPod),
            ),
            ("no pod", &[], "10.4.0.1:5", stranger.clone()),
            (
                "a pod that made the node's address its own",
                &[("evil", "10.4.0.1:5", "evil")],
                "10.4.0.1:5",
                stranger.clone(),
            ),
        ] {
            let kernel = kernel(notes);
            let ends = from(peer);
            let said = match kernel.verdict(&ends) {
                AttestationVerdict::Pod(uid) => Ok(uid),
                other => Err((other, kernel.guess(&ends).unwrap_err())),
            };
            assert_eq!(said, expected.map(uid), "{case}");
        }
    }

    #[test]
    fn a_note_is_good_for_one_connection_and_only_its_owners_goes() {
        let kernel = kernel(&[("cart", CART, "cart"), ("evil", CART, "evil"), ("", "10.4.0.1:5", "agent")]);
        assert_eq!(kernel.verdict(&from(CART)), AttestationVerdict::Pod(uid("cart")));
        kernel.discard_evidence(&uid("cart"), &from(CART));
        assert_eq!(kernel.verdict(&from(CART)), AttestationVerdict::Pending);
        assert_eq!(kernel.notes.0.lock().unwrap().len(), 2);
        kernel.discard_evidence(&uid("agent"), &from("10.4.0.1:5"));
        assert_eq!(kernel.notes.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_connection_that_has_no_end_here_any_more_is_nobodys() {
        let kernel = kernel(&[("cart", CART, "cart")]);
        let gone = ConnectionEnds { peer: at(CART), local: &|| None };
        assert_eq!(kernel.verdict(&gone), AttestationVerdict::Pending);
    }

    #[test]
    fn a_pod_on_the_nodes_network_rests_on_no_address_and_others_on_theirs() {
        let kernel = kernel(&[]);
        let addresses = [at(CART).ip()];
        let seen = |host_network| {
            let sighting = PodNetwork { addresses: &addresses, host_network, claims: &|_| true };
            kernel.attested_addresses(&sighting).unwrap()
        };
        let (own, shared) = (seen(false), seen(true));
        assert_eq!((kernel.addresses(&own), kernel.addresses(&shared)), (&addresses[..], &[][..]));
        assert!(kernel.covers(&own, &from(CART)) && !kernel.covers(&own, &from("10.4.0.1:5")));
        assert!(!kernel.covers(&shared, &from(CART)) && kernel.covers(&shared, &from("10.4.0.1:5")));
    }
}
