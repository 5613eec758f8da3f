//! Implements the `kernel` attestation: the kernel records which pod opens a connection, before the connection's first packet.
//!
//! Two sources must name the same pod. The API server says which pod has the source address. The kernel's record says that a
//! process of the same pod opened the connection. The agent looks up the record by that pod's cgroup and the connection's two
//! ends.
//!
//! Neither source alone is enough:
//!
//! - A new pod can get the address of an earlier pod before the API server reports the new pod.
//! - A pod can create a network namespace in which it uses any address. Then the records of that pod's connections can contain
//!   any address.
//!
//! But the kernel stores the records of a pod's connections only under the pod's own cgroup. Suppose that the API server still
//! names the previous owner of an address. Then the agent finds no record under the previous owner's cgroup, and assigns the
//! connection to no pod. So, unlike `source-ip`, this strategy needs no proof that the view of pods is current.
//!
//! Pods on the node's own network share the node's address. The kernel stores the records of their connections under the node,
//! and each record names the pod. The redirect's eBPF programs write such records only for sockets in the node's own network
//! namespace. In one namespace, two connections never have the same two ends at the same time, so a record names the pod of
//! exactly one connection. In addition, the API server must list this pod as a hostNetwork pod.
//!
//! A trusted proxy (`identity.trustedProxies`, such as Istio's ztunnel) opens connections in the network namespaces of the pods that
//! it serves. If the pod at the address has no record, and a trusted proxy has one with the same two ends, the agent identifies
//! the pod as `source-ip` does, with that strategy's limits.
//!
//! A source address in `identity.egressRanges` is unknown to the API server. There, the node's routes name the pod ([`EgressAddresses`]),
//! and the kernel's record must name the same pod.
//!
//! If a connection has no record, the agent assigns the connection to no pod. A record can be missing for three reasons: a full
//! table evicted the record, the redirect did not capture the connection, or the client did not use a socket of the kernel. A
//! record under another pod's cgroup proves nothing, even if it is the only record with these two ends. A flood of records can
//! have evicted the true record.
//!
//! This module does not know how the agent reads the kernel's records ([`ConnectionRecords`]) or where the pods come from
//! ([`PodAddressClaims`]).

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};

use seawall_core::PodUid;
use seawall_core::attestation::{AttestFuture, AttestedAddresses, ConnectionEnds};

use super::{
    AddressLookupError, Attestation, AttestationVerdict, ConnectionRecords, EgressAddresses,
    PodAddressClaims, PodNetwork, RecordOwner, RejectionReason, SocketPair,
};

/// Identifies the pod of a connection by the source address and the kernel's record.
#[derive(Debug)]
pub(crate) struct KernelAttestation<P, N> {
    pods: P,
    records: N,
    /// The source addresses that the API server does not report; `None` if there are none.
    egress: Option<EgressAddresses>,
}

impl<P: PodAddressClaims, N: ConnectionRecords> KernelAttestation<P, N> {
    /// Creates the attestation from the pods that the API server reports and the kernel's records.
    pub(crate) fn new(pods: P, records: N, egress: Option<EgressAddresses>) -> Self {
        Self { pods, records, egress }
    }

    fn named(&self, ends: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason> {
        let pair = canonical_socket_pair(ends).ok_or(RejectionReason::NoConnectionRecord)?;
        if is_from_node(pair) {
            let uid = self.records.find(RecordOwner::Node, pair).ok_or(RejectionReason::HostNetwork)?;
            return match self.pods.is_host_network(&uid) {
                true => Ok(uid),
                false if is_config_hash(&uid) => Err(RejectionReason::NoServiceAccount),
                false => Err(RejectionReason::UnknownPod),
            };
        }
        let uid = match self.egress_of(pair.peer.ip()) {
            // Only to divide capacity and to explain refusals. `attest` reads the routes.
            Some(egress) => egress.last_owner(pair.peer.ip())?.uid,
            None => self.claimant(pair)?,
        };
        self.with_record(&uid, pair)
    }

    /// Returns the pod if the connection has a record under it.
    fn with_record(&self, uid: &PodUid, pair: SocketPair) -> Result<PodUid, RejectionReason> {
        let owner = self.records.find(RecordOwner::Pod(uid), pair);
        owner.filter(|owner| owner == uid).ok_or(RejectionReason::NoConnectionRecord)
    }

    /// Returns the lookup and the ends of this connection if it comes from an address that the API server does not report.
    fn egress_connection(&self, ends: &ConnectionEnds<'_>) -> Option<(&EgressAddresses, SocketPair)> {
        let pair = canonical_socket_pair(ends).filter(|pair| !is_from_node(*pair))?;
        Some((self.egress_of(pair.peer.ip())?, pair))
    }

    /// Names the pod of a connection that a trusted proxy opened in the pod's network namespace. Returns `None` if no trusted proxy
    /// opened it.
    ///
    /// The record says only that the proxy made the connection, so the pod rests on its address alone. Therefore this function asks
    /// for the only pod *at* the address, as `source-ip` does, and the caller must prove that the view is current. A proxy's record
    /// from the node's own network namespace is under the node, so it never counts here. A proxy's pod that the API server has not
    /// reported is not in the list, so its records count for nobody.
    fn named_through_proxy(&self, ends: &ConnectionEnds<'_>) -> Option<Result<PodUid, RejectionReason>> {
        let pair = canonical_socket_pair(ends).filter(|pair| !is_from_node(*pair))?;
        // Such an address needs the route as a second witness, whoever opened the connection.
        if self.egress_of(pair.peer.ip()).is_some() {
            return None;
        }
        let opened = |proxy: &PodUid| {
            self.records.find(RecordOwner::Pod(proxy), pair).is_some_and(|owner| owner == *proxy)
        };
        let proxies = self.pods.trusted_proxies();
        proxies.iter().any(opened).then(|| self.pods.uid_at(pair.peer.ip()).map_err(Into::into))
    }

    fn claimant(&self, pair: SocketPair) -> Result<PodUid, RejectionReason> {
        let ip = pair.peer.ip();
        match self.pods.claimant_at(ip) {
            Some(uid) => Ok(uid),
            // If `uid_at` returns a pod here, the pod appeared between the two lookups. The pod counts as unknown until the
            // next attempt.
            None => Err(self.pods.uid_at(ip).err().unwrap_or(AddressLookupError::Absent).into()),
        }
    }

    /// Returns the lookup for this source address if the API server does not report it.
    fn egress_of(&self, address: IpAddr) -> Option<&EgressAddresses> {
        self.egress.as_ref().filter(|egress| egress.contain(address))
    }
}

/// True if the cgroup of this name belongs to a static pod. The kubelet names it by a hash of the pod's file: 32 hexadecimal digits,
/// while the API server's UIDs have hyphens (kubernetes, pkg/kubelet/config/common.go, `applyDefaults`).
///
/// The name comes from the cgroup, which the kubelet chooses, and not from an annotation, which a tenant can write.
fn is_config_hash(uid: &PodUid) -> bool {
    uid.0.len() == 32 && uid.0.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns both ends, with IPv4-mapped IPv6 addresses converted to IPv4. Returns `None` if the connection has ended.
pub(crate) fn canonical_socket_pair(ends: &ConnectionEnds<'_>) -> Option<SocketPair> {
    let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    Some(SocketPair { peer: canonical(ends.peer), local: canonical((ends.read_local_address)()?) })
}

/// True if the client runs on this machine. The client's address is then a loopback address, or it equals the address of the
/// listener.
pub(crate) fn is_from_node(pair: SocketPair) -> bool {
    pair.peer.ip().is_loopback() || pair.peer.ip() == pair.local.ip()
}

impl<P: PodAddressClaims, N: ConnectionRecords> Attestation for KernelAttestation<P, N> {
    /// Returns the pod if the API server and the kernel's record name the same pod.
    ///
    /// A connection from an address that the API server does not report is pending until [`Self::attest`] has read the routes.
    ///
    /// The agent rejects a connection from the node's own address if the connection has no record, because the client is not in
    /// a pod, or if the record is a static pod's. Every other connection without a pod is pending, because the client can be a new pod that the API server has not
    /// reported yet.
    fn verdict(&self, ends: &ConnectionEnds<'_>) -> AttestationVerdict {
        if self.egress_connection(ends).is_some() {
            return AttestationVerdict::Pending;
        }
        match self.named(ends) {
            Ok(uid) => AttestationVerdict::Pod(uid),
            Err(reason @ RejectionReason::HostNetwork) => AttestationVerdict::Rejected(reason),
            // The cgroup's name proves this. A static pod with an address of its own stays pending, because the address can
            // already belong to a new pod that the API server has not reported.
            Err(reason @ RejectionReason::NoServiceAccount)
                if canonical_socket_pair(ends).is_some_and(is_from_node) =>
            {
                AttestationVerdict::Rejected(reason)
            }
            Err(RejectionReason::NoConnectionRecord) => {
                // The proof must be older than the lookup. Otherwise the lookup could find the last pod at the address, and the proof
                // could be about the view after it.
                let is_current = self.pods.is_current();
                match self.named_through_proxy(ends) {
                    Some(Ok(uid)) if is_current => AttestationVerdict::Pod(uid),
                    Some(_) => AttestationVerdict::Pending,
                    None => {
                        self.records.count_missed();
                        AttestationVerdict::Pending
                    }
                }
            }
            Err(_) => AttestationVerdict::Pending,
        }
    }

    fn guess(&self, ends: &ConnectionEnds<'_>) -> Result<PodUid, RejectionReason> {
        self.named(ends).or_else(|reason| match reason {
            RejectionReason::NoConnectionRecord => self.named_through_proxy(ends).unwrap_or(Err(reason)),
            _ => Err(reason),
        })
    }

    fn attest<'a>(&'a self, ends: ConnectionEnds<'a>) -> AttestFuture<'a, Result<PodUid, RejectionReason>> {
        Box::pin(async move {
            if let Some((egress, pair)) = self.egress_connection(&ends) {
                let owner = egress.owner(pair).await?;
                return self.with_record(&owner.uid, pair);
            }
            let named = self.named(&ends);
            if named != Err(RejectionReason::NoConnectionRecord) || self.named_through_proxy(&ends).is_none()
            {
                return named;
            }
            self.pods.wait_until_current().await;
            // Read the address again: only this lookup is in a view that is proven current.
            self.named_through_proxy(&ends).unwrap_or(named)
        })
    }

    fn wait_for_change(&self) -> AttestFuture<'_, ()> {
        let newer = self.pods.wait_for_newer();
        let Some(egress) = &self.egress else { return newer };
        Box::pin(async move {
            tokio::select! {
                () = newer => {}
                () = egress.wait_before_retry() => {}
            }
        })
    }

    fn discard_evidence(&self, uid: &PodUid, ends: &ConnectionEnds<'_>) {
        let Some(pair) = canonical_socket_pair(ends) else { return };
        if is_from_node(pair) {
            return self.records.forget(RecordOwner::Node, pair);
        }
        self.records.forget(RecordOwner::Pod(uid), pair);
        for proxy in self.pods.trusted_proxies() {
            self.records.forget(RecordOwner::Pod(&proxy), pair);
        }
    }

    /// True if the basis contains the connection's source address, or, for an address that the API server does not report, the pod's
    /// address that led to the same namespace. For a connection from the node's network, the basis must be empty, because no address
    /// identifies the connection's pod.
    fn covers(&self, basis: &AttestedAddresses, ends: &ConnectionEnds<'_>) -> bool {
        let Some(pair) = canonical_socket_pair(ends) else { return false };
        if is_from_node(pair) {
            return basis.addresses().is_empty();
        }
        let peer = pair.peer.ip();
        let address =
            self.egress_of(peer).map(|egress| egress.last_owner(peer).map(|owner| owner.own_address));
        address.unwrap_or(Ok(peer)).is_ok_and(|address| basis.addresses().contains(&address))
    }

    fn addresses<'b>(&self, basis: &'b AttestedAddresses) -> &'b [IpAddr] {
        basis.addresses()
    }
}

impl<P: PodAddressClaims, N: ConnectionRecords> KernelAttestation<P, N> {
    /// Returns the addresses that only this pod claims. The result is empty for a pod on the node's network.
    pub(crate) fn attested_addresses(&self, pod: &PodNetwork<'_>) -> Option<AttestedAddresses> {
        let own = pod
            .addresses
            .iter()
            .copied()
            .filter(|ip| !pod.uses_host_network && (pod.is_only_claimant_of)(*ip));
        Some(AttestedAddresses::from_addresses(own))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use seawall_core::Clock;

    use super::super::EgressFinder;
    use super::super::view_fixture::{Routes, View, uid};
    use super::*;

    /// The records: the owner ("" is the node), the two ends and the pod.
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
    /// A hash of a static pod's file, which is the last part of its cgroup's name.
    const STATIC: &str = "0123456789abcdef0123456789abcdef";
    const CART: &str = "10.4.0.7:40000";

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn from(peer: &str) -> ConnectionEnds<'static> {
        ConnectionEnds { peer: at(peer), read_local_address: &|| Some(at(NODE)) }
    }

    /// Returns an attestation with three pods: "cart" has the address `CART`, "old" has 10.4.0.9, "agent" is on the node's
    /// network.
    fn kernel(records: &[(&'static str, &str, &'static str)]) -> KernelAttestation<View, Table> {
        let claims = [(at(CART).ip(), "cart"), ("10.4.0.9".parse().unwrap(), "old")].into();
        let view = View { claims, on_node: vec!["agent"], ..View::default() };
        let record = |(under, peer, pod): &(&'static str, &str, &'static str)| {
            (*under, SocketPair { peer: at(peer), local: at(NODE) }, *pod)
        };
        KernelAttestation::new(view, Table(Mutex::new(records.iter().map(record).collect())), None)
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
                "another pod uses the same two ends",
                &[("evil", CART, "evil")],
                CART,
                nobody(RejectionReason::NoConnectionRecord),
            ),
            (
                "a forged record beside the true one",
                &[("evil", CART, "evil"), ("cart", CART, "cart")],
                CART,
                Ok("cart"),
            ),
            (
                "the last pod's address",
                &[("new", "10.4.0.9:5", "new")],
                "10.4.0.9:5",
                nobody(RejectionReason::NoConnectionRecord),
            ),
            (
                "an address that the API server does not report",
                &[("new", "10.4.0.8:5", "new")],
                "10.4.0.8:5",
                nobody(RejectionReason::UnknownPod),
            ),
            ("from the node's network", &[("", "10.4.0.1:5", "agent")], "10.4.0.1:5", Ok("agent")),
            ("from its loopback", &[("", "127.0.0.1:5", "agent")], "127.0.0.1:5", Ok("agent")),
            (
                "a host-network pod that the API server does not report",
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
            (
                "a static pod on the node's network, by the name that the kubelet gives its cgroup",
                &[("", "10.4.0.1:5", STATIC)],
                "10.4.0.1:5",
                Err((
                    AttestationVerdict::Rejected(RejectionReason::NoServiceAccount),
                    RejectionReason::NoServiceAccount,
                )),
            ),
            (
                "a pod whose UID is as long but has hyphens",
                &[("", "10.4.0.1:5", "0123456789ab-def0123456789abcdef")],
                "10.4.0.1:5",
                nobody(RejectionReason::UnknownPod),
            ),
            (
                "a static pod's name in the record of a pod with an address",
                &[("cart", CART, STATIC)],
                CART,
                nobody(RejectionReason::NoConnectionRecord),
            ),
            ("no pod", &[], "10.4.0.1:5", stranger.clone()),
            (
                "a pod that uses the node's address",
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

    /// Returns an attestation as [`kernel`] does, in which "ztunnel" is a trusted proxy.
    fn with_proxy(
        records: &[(&'static str, &str, &'static str)],
        is_current: bool,
    ) -> KernelAttestation<View, Table> {
        let mut kernel = kernel(records);
        kernel.pods = View { proxies: vec!["ztunnel"], is_current, ..kernel.pods };
        kernel
    }

    #[tokio::test]
    async fn a_pod_behind_a_trusted_proxy_is_named_by_its_address_in_a_current_view_alone() {
        let of_proxy = [("ztunnel", CART, "ztunnel")];
        let current = with_proxy(&of_proxy, true);
        assert_eq!(current.verdict(&from(CART)), AttestationVerdict::Pod(uid("cart")));
        assert_eq!(current.attest(from(CART)).await, Ok(uid("cart")));
        let outdated = with_proxy(&of_proxy, false);
        assert_eq!(outdated.verdict(&from(CART)), AttestationVerdict::Pending);
        assert_eq!(
            outdated.guess(&from(CART)),
            Ok(uid("cart")),
            "a guess divides capacity and gives no credentials"
        );
        let waits = tokio::time::timeout(std::time::Duration::ZERO, outdated.attest(from(CART))).await;
        assert!(waits.is_err(), "it waits for the proof");
    }

    #[test]
    fn behind_a_trusted_proxy_an_address_that_may_have_changed_hands_is_nobodys() {
        let mut kernel = with_proxy(&[("ztunnel", CART, "ztunnel")], true);
        kernel.pods.reassignable = vec![at(CART).ip()];
        assert_eq!(kernel.verdict(&from(CART)), AttestationVerdict::Pending);
        assert_eq!(kernel.guess(&from(CART)), Err(RejectionReason::Ambiguous));
        // The pod's own record names it all the same.
        let mut direct = with_proxy(&[("cart", CART, "cart")], false);
        direct.pods.reassignable = vec![at(CART).ip()];
        assert_eq!(direct.verdict(&from(CART)), AttestationVerdict::Pod(uid("cart")));
    }

    #[test]
    fn only_a_trusted_proxys_own_record_outside_the_nodes_network_speaks_for_another_pod() {
        for (case, records, peer) in [
            ("a pod that is no trusted proxy", &[("evil", CART, "evil")][..], CART),
            ("the proxy's record of another port", &[("ztunnel", "10.4.0.7:1", "ztunnel")], CART),
            ("a proxy on the node's network", &[("", CART, "ztunnel")], CART),
            ("a record of another pod under the proxy's cgroup", &[("ztunnel", CART, "evil")], CART),
            (
                "an address that the API server does not report",
                &[("ztunnel", "10.4.0.8:5", "ztunnel")],
                "10.4.0.8:5",
            ),
        ] {
            let kernel = with_proxy(records, true);
            assert_eq!(kernel.verdict(&from(peer)), AttestationVerdict::Pending, "{case}");
        }
        let on_node = with_proxy(&[("ztunnel", "10.4.0.1:5", "ztunnel")], true);
        let verdict = on_node.verdict(&from("10.4.0.1:5"));
        assert_eq!(verdict, AttestationVerdict::Rejected(RejectionReason::HostNetwork), "the node's address");
    }

    #[test]
    fn the_proxys_record_is_good_for_one_connection() {
        let kernel = with_proxy(&[("ztunnel", CART, "ztunnel")], true);
        kernel.discard_evidence(&uid("cart"), &from(CART));
        assert!(kernel.records.0.lock().unwrap().is_empty());
        assert_eq!(kernel.verdict(&from(CART)), AttestationVerdict::Pending);
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
        let gone = ConnectionEnds { peer: at(CART), read_local_address: &|| None };
        assert_eq!(kernel.verdict(&gone), AttestationVerdict::Pending);
    }

    #[test]
    fn a_pod_on_the_nodes_network_rests_on_no_address_and_others_on_theirs() {
        let kernel = kernel(&[]);
        let addresses = [at(CART).ip()];
        let seen = |host_network| {
            let sighting = PodNetwork {
                addresses: &addresses,
                uses_host_network: host_network,
                is_only_claimant_of: &|_| true,
            };
            kernel.attested_addresses(&sighting).unwrap()
        };
        let (own, shared) = (seen(false), seen(true));
        assert_eq!((kernel.addresses(&own), kernel.addresses(&shared)), (&addresses[..], &[][..]));
        assert!(kernel.covers(&own, &from(CART)) && !kernel.covers(&own, &from("10.4.0.1:5")));
        assert!(!kernel.covers(&shared, &from(CART)) && kernel.covers(&shared, &from("10.4.0.1:5")));
    }

    /// The plugin's address of the pod "cart", which the API server does not report.
    const CART_EGRESS: &str = "169.254.172.7:40000";

    /// Returns the attestation of [`kernel`] on a node where the routes to "cart" lead to one namespace and those to "old" to another.
    fn with_egress(records: &[(&'static str, &str, &'static str)]) -> KernelAttestation<View, Table> {
        let routes = Routes::default();
        for (address, number) in
            [("10.4.0.7", 1), ("169.254.172.7", 1), ("10.4.0.9", 2), ("169.254.172.9", 2)]
        {
            routes.lead(address, Some(number));
        }
        let kernel = kernel(records);
        let finder = EgressFinder::new(routes, kernel.pods.clone(), Clock::manual().0);
        let egress = EgressAddresses::start(vec!["169.254.172.0/22".parse().unwrap()], finder).unwrap();
        KernelAttestation { egress: Some(egress), ..kernel }
    }

    #[tokio::test]
    async fn at_an_address_that_the_api_server_does_not_report_route_and_record_must_name_one_pod() {
        let own = [("cart", CART_EGRESS, "cart")];
        let forged = [("old", CART_EGRESS, "old")];
        let both = [("old", CART_EGRESS, "old"), ("cart", CART_EGRESS, "cart")];
        for (case, records, peer, expected) in [
            ("both say so", &own[..], CART_EGRESS, Ok("cart")),
            ("a record of another pod beside it", &both, CART_EGRESS, Ok("cart")),
            ("its record was pushed out", &forged, CART_EGRESS, Err(RejectionReason::NoConnectionRecord)),
            ("no record", &[], CART_EGRESS, Err(RejectionReason::NoConnectionRecord)),
            ("no route", &own, "169.254.172.8:40000", Err(RejectionReason::NoRouteToPod)),
            ("an address outside the ranges", &own, "169.254.176.7:40000", Err(RejectionReason::UnknownPod)),
            ("a reported address", &[("cart", CART, "cart")], CART, Ok("cart")),
        ] {
            let kernel = with_egress(records);
            let is_reported = peer == CART;
            let ends = from(peer);
            assert_eq!(
                kernel.verdict(&ends) == AttestationVerdict::Pending,
                !is_reported,
                "{case}: no routes are read on a thread that serves clients"
            );
            assert_eq!(kernel.guess(&ends).is_ok(), is_reported, "{case}: nothing is known yet");
            assert_eq!(kernel.attest(ends).await, expected.map(uid), "{case}");
            assert_eq!(kernel.guess(&from(peer)), expected.map(uid), "{case}");
        }
    }

    #[tokio::test]
    async fn an_entry_covers_the_address_that_leads_where_its_own_does() {
        let kernel = with_egress(&[("cart", CART_EGRESS, "cart")]);
        let basis = |address: &str| AttestedAddresses::from_addresses([address.parse().unwrap()]);
        let covers = |basis: &AttestedAddresses| kernel.covers(basis, &from(CART_EGRESS));
        assert!(!covers(&basis("10.4.0.7")), "the routes have not been read");
        kernel.attest(from(CART_EGRESS)).await.unwrap();
        assert!(covers(&basis("10.4.0.7")));
        assert!(!covers(&basis("10.4.0.9")) && !covers(&basis("169.254.172.7")));
        assert!(!covers(&AttestedAddresses::from_addresses([])), "a pod on the node's network");
        assert!(!kernel.covers(&basis("10.4.0.7"), &from("169.254.176.7:1")));
    }

    /// The record of a proxy rests on the address alone, which the API server must report.
    #[tokio::test]
    async fn a_trusted_proxys_record_names_no_pod_at_an_address_that_the_api_server_does_not_report() {
        let mut kernel = with_egress(&[("ztunnel", CART_EGRESS, "ztunnel")]);
        kernel.pods.proxies = vec!["ztunnel"];
        kernel.pods.is_current = true;
        // Even if it did report it.
        kernel.pods.claims.insert(at(CART_EGRESS).ip(), "cart");
        let ends = || from(CART_EGRESS);
        assert_eq!(kernel.verdict(&ends()), AttestationVerdict::Pending);
        assert_eq!(kernel.attest(ends()).await, Err(RejectionReason::NoConnectionRecord));
        assert_eq!(kernel.guess(&ends()), Err(RejectionReason::NoConnectionRecord));
    }
}
