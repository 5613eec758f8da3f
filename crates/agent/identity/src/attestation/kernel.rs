//! `kernel` attestation: the kernel recorded which pod began a connection, before the connection left the client.
//!
//! Two witnesses must agree. The API server says which pod has the source address. The kernel's record, looked up under that
//! pod's own cgroup and the connection's two ends, says that a process of this very pod began the connection. One witness is
//! not enough. An address is reused before the API server reports it. And a pod may make a network namespace of its own in which
//! it can use any address, so that its records hold any ends it likes. But a pod writes records under its own cgroup only. So a
//! pod whose address was another pod's is not taken for that pod, however late the API server reports the change, and no view
//! needs to be proven current.
//!
//! Pods on the node's own network have no address of their own. Their records are kept under the node, whose ends the kernel
//! keeps apart, and only sockets in the node's own network namespace write there. Then the kernel's record names the pod, and
//! the API server must know it as a pod on that network.
//!
//! A connection without a record belongs to no pod: the record was evicted from a full table, the connection was not captured,
//! or it bypassed the kernel's sockets. A record that is the only one for its ends proves nothing, because a flood of records can
//! evict the true one.
//!
//! Does not know how the kernel is read ([`ConnectionRecords`]) and where the pods come from ([`PodsByAddress`]).

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};

use seawall_core::PodUid;
use seawall_core::attestation::{AttestFuture, AttestedAddresses, ConnectionEnds};

use super::{
    AddressLookupError, Attestation, AttestationVerdict, PodNetwork, PodsByAddress, RejectionReason,
};

/// The two ends of a connection, as the accepting side sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketPair {
    /// The address and port of the client.
    pub(crate) peer: SocketAddr,
    /// The address and port of this agent.
    pub(crate) local: SocketAddr,
}

/// The owner under which a record is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOwner<'a> {
    /// A pod with a network of its own.
    Pod(&'a PodUid),
    /// The node's own network.
    Node,
}

/// The kernel's records of connections that are being opened.
pub(crate) trait ConnectionRecords: Debug + Send + Sync {
    /// The pod that began this connection, if a record of it is kept under this owner.
    fn find(&self, owner: RecordOwner<'_>, pair: SocketPair) -> Option<PodUid>;

    /// Forgets the record, which is valid for one connection.
    fn forget(&self, owner: RecordOwner<'_>, pair: SocketPair);

    /// Counts a connection from a pod's address without a matching record. Called once per connection.
    fn count_missed(&self) {}
}

/// The cluster's view of pods, including pods on the node's network.
pub(crate) trait PodLookup: PodsByAddress {
    /// The only pod that claims an address. Includes an address that is withheld because another pod may have it by now: the
    /// kernel's record decides that case.
    fn claimant_at(&self, address: IpAddr) -> Option<PodUid>;

    /// True if this is a live pod on the node's network.
    fn is_host_network(&self, uid: &PodUid) -> bool;
}

/// Names pods by source address and the kernel's record together.
#[derive(Debug)]
pub(crate) struct KernelAttestation<P, N> {
    pods: P,
    records: N,
}

impl<P: PodLookup, N: ConnectionRecords> KernelAttestation<P, N> {
    /// Creates an attestation over this view and these records.
    pub(crate) fn new(pods: P, records: N) -> Self {
        Self { pods, records }
    }

    fn named(&self, ends: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason> {
        let pair = connection_endpoints(ends).ok_or(RejectionReason::NoConnectionRecord)?;
        if is_from_node(pair) {
            let uid = self.records.find(RecordOwner::Node, pair).ok_or(RejectionReason::HostNetwork)?;
            return if self.pods.is_host_network(&uid) { Ok(uid) } else { Err(RejectionReason::UnknownPod) };
        }
        let uid = self.claimant(pair)?;
        let owner = self.records.find(RecordOwner::Pod(&uid), pair);
        owner.filter(|owner| *owner == uid).ok_or(RejectionReason::NoConnectionRecord)
    }

    fn claimant(&self, pair: SocketPair) -> Result<PodUid, RejectionReason> {
        let ip = pair.peer.ip();
        match self.pods.claimant_at(ip) {
            Some(uid) => Ok(uid),
            // A pod that is named here after all appeared between the two lookups.
            None => Err(self.pods.uid_at(ip).err().unwrap_or(AddressLookupError::Absent).into()),
        }
    }
}

/// Both ends in canonical form, without IPv4-mapped IPv6 addresses; `None` for a connection that has ended.
pub(crate) fn connection_endpoints(ends: &ConnectionEnds<'_>) -> Option<SocketPair> {
    let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    Some(SocketPair { peer: canonical(ends.peer), local: canonical((ends.local)()?) })
}

/// True if the client has the address that it connects to, or a loopback address: it is then on this very machine.
pub(crate) fn is_from_node(pair: SocketPair) -> bool {
    pair.peer.ip().is_loopback() || pair.peer.ip() == pair.local.ip()
}

impl<P: PodLookup, N: ConnectionRecords> Attestation for KernelAttestation<P, N> {
    /// Rejects a connection from the node's own address without a record: it comes from outside every pod. At another address, a
    /// missing record leaves the verdict pending: it may be the next pod there, which the API server has not reported yet.
    fn verdict(&self, ends: &ConnectionEnds<'_>) -> AttestationVerdict {
        match self.named(ends) {
            Ok(uid) => AttestationVerdict::Pod(uid),
            Err(RejectionReason::HostNetwork) => AttestationVerdict::Rejected(RejectionReason::HostNetwork),
            Err(reason) => {
                if reason == RejectionReason::NoConnectionRecord {
                    self.records.count_missed();
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
            self.records
                .forget(if is_from_node(pair) { RecordOwner::Node } else { RecordOwner::Pod(uid) }, pair);
        }
    }

    /// Returns true if the basis has this source address. For a connection from the node's network, the basis must be empty.
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
    /// The addresses that this pod alone claims; empty for a pod on the node's network.
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

    /// A view: which pod claims which address, and which pods are on the node's network.
    #[derive(Debug, Default)]
    struct View {
        claims: HashMap<IpAddr, &'static str>,
        on_node: Vec<&'static str>,
    }

    impl PodsByAddress for View {
        fn uid_at(&self, address: IpAddr) -> Result<PodUid, AddressLookupError> {
            self.claimant_at(address).ok_or(AddressLookupError::Absent)
        }

        /// Always `false`: no answer of kernel attestation may depend on it.
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

    /// Records by owner ("" is the node), each with one pair of ends and a pod.
    #[derive(Debug, Default)]
    struct Table(Mutex<Vec<(&'static str, SocketPair, &'static str)>>);

    impl ConnectionRecords for Table {
        fn find(&self, owner: RecordOwner<'_>, pair: SocketPair) -> Option<PodUid> {
            let table = self.0.lock().unwrap();
            let record = table.iter().find(|(under, of, _)| is(owner, under) && *of == pair);
            record.map(|(_, _, pod)| uid(pod))
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
    fn kernel(records: &[(&'static str, &str, &'static str)]) -> KernelAttestation<View, Table> {
        let claims = [(at(CART).ip(), "cart"), ("10.4.0.9".parse().unwrap(), "old")].into();
        let view = View { claims, on_node: vec!["agent"] };
        let record = |(under, peer, pod): &(&'static str, &str, &'static str)| {
            (*under, SocketPair { peer: at(peer), local: at(NODE) }, *pod)
        };
        KernelAttestation::new(view, Table(Mutex::new(records.iter().map(record).collect())))
    }

    #[test]
    fn a_pod_is_named_where_address_and_record_agree_and_nowhere_else() {
        let nobody = |reason| Err::<&str, _>((AttestationVerdict::Pending, reason));
        let stranger =
            Err((AttestationVerdict::Rejected(RejectionReason::HostNetwork), RejectionReason::HostNetwork));
        for (case, records, peer, expected) in [
            ("both say so", &[("cart", CART, "cart")][..], CART, Ok("cart")),
            ("in the form of IPv6", &[("cart", CART, "cart")], "[::ffff:10.4.0.7]:40000", Ok("cart")),
            ("no record", &[], CART, nobody(RejectionReason::NoConnectionRecord)),
            (
                "a record of another port",
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
            let kernel = kernel(records);
            let ends = from(peer);
            let said = match kernel.verdict(&ends) {
                AttestationVerdict::Pod(uid) => Ok(uid),
                other => Err((other, kernel.guess(&ends).unwrap_err())),
            };
            assert_eq!(said, expected.map(uid), "{case}");
        }
    }

    #[test]
    fn a_record_is_good_for_one_connection_and_only_its_owners_goes() {
        let kernel = kernel(&[("cart", CART, "cart"), ("evil", CART, "evil"), ("", "10.4.0.1:5", "agent")]);
        assert_eq!(kernel.verdict(&from(CART)), AttestationVerdict::Pod(uid("cart")));
        kernel.discard_evidence(&uid("cart"), &from(CART));
        assert_eq!(kernel.verdict(&from(CART)), AttestationVerdict::Pending);
        assert_eq!(kernel.records.0.lock().unwrap().len(), 2);
        kernel.discard_evidence(&uid("agent"), &from("10.4.0.1:5"));
        assert_eq!(kernel.records.0.lock().unwrap().len(), 1);
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
