//! The network namespaces to which the node's routes lead.

use std::net::IpAddr;
use std::process::Command;

use seawall_redirect::{PodLinks, PodNamespace, find_ipv4_address};

use crate::support::{Lab, address, ip, within};

/// Gives the node a pair of devices into a pod's network, with routes to these addresses over it.
fn connect(pod: &str, device: &str, addresses: &[&str]) {
    // As the VPC CNI does: made in the pod, and one end is moved. So devices of the node have numbers that others had before.
    assert!(ip(&format!("-n {pod} link add {device}p type veth peer name {device}")));
    assert!(ip(&format!("-n {pod} link set {device} netns node")));
    assert!(ip(&format!("-n node link set {device} up")));
    assert!(ip(&format!("-n {pod} link set {device}p up")));
    for address in addresses {
        let (family, bits) = if address.contains(':') { ("-6 ", 128) } else { ("", 32) };
        assert!(ip(&format!("-n node {family}route add {address}/{bits} dev {device}")), "{address}");
    }
}

/// A node whose pods have an own address each, and the first one another address over a pair of its own.
fn connected() -> (Lab, PodLinks) {
    let lab = Lab::new();
    connect("pod1", "own1", &["fd77::1"]);
    connect("pod2", "own2", &["fd77::2"]);
    connect("pod1", "egress1", &["169.254.172.1"]);
    (lab, within("node", || PodLinks::open().unwrap()))
}

fn namespace(links: &mut PodLinks, to: &str) -> Option<PodNamespace> {
    links.namespace_of(address(to), None).unwrap()
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn two_addresses_lead_into_one_namespace_where_they_are_one_pods() {
    let (_lab, mut links) = connected();
    connect("pod2", "egress2", &["169.254.172.2"]);
    let [one, two] = ["fd77::1", "fd77::2"].map(|own| namespace(&mut links, own).unwrap());
    assert_ne!(one, two);
    for _ in 0..2 {
        assert_eq!(namespace(&mut links, "169.254.172.1"), Some(one));
        assert_eq!(namespace(&mut links, "169.254.172.2"), Some(two));
    }
    let mut from = |local: IpAddr| links.namespace_of(address("169.254.172.1"), Some(local)).unwrap();
    assert_eq!(from(address("10.45.0.1")), Some(one));
    assert_eq!(from(address("10.45.0.77")), None, "no address of the node's");
    // What another plugin's pods have: a bridge. What is elsewhere: a gateway, the node itself, nobody.
    for elsewhere in ["10.44.0.11", "fd44::11", "169.254.169.254", "10.45.0.1", "127.0.0.1", "198.51.100.1"] {
        assert_eq!(namespace(&mut links, elsewhere), None, "{elsewhere}");
    }
}

/// The address of a pod that ended is given to the next one.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn an_address_leads_where_the_route_of_now_does() {
    let _lab = Lab::new();
    connect("pod1", "own1", &["fd77::1", "169.254.172.1"]);
    connect("pod2", "own2", &["fd77::2"]);
    let mut links = within("node", || PodLinks::open().unwrap());
    assert_eq!(namespace(&mut links, "169.254.172.1"), namespace(&mut links, "fd77::1"));
    assert!(ip("-n node link delete own1"));
    for gone in ["169.254.172.1", "fd77::1"] {
        assert_eq!(namespace(&mut links, gone), None, "{gone}");
    }
    assert!(ip("-n node route add 169.254.172.1/32 dev own2"));
    assert_eq!(namespace(&mut links, "169.254.172.1"), namespace(&mut links, "fd77::2"));
    assert!(namespace(&mut links, "fd77::2").is_some());
}

/// Devices and namespaces get the numbers of those that ended.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_number_that_is_used_again_leads_to_who_has_it_now() {
    let (_lab, mut links) = connected();
    let [one, two] = ["fd77::1", "fd77::2"].map(|own| namespace(&mut links, own).unwrap());
    assert_eq!(namespace(&mut links, "169.254.172.1"), Some(one));
    let index = |device: &str| {
        let path = format!("/sys/class/net/{device}/ifindex");
        let output = Command::new("ip").args(["netns", "exec", "node", "cat", &path]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let number = index("egress1");
    assert!(ip("-n node link delete egress1"));
    assert!(ip(&format!("-n node link add egress2 index {number} type veth peer name egress2p netns pod2")));
    assert!(ip("-n node link set egress2 up") && ip("-n pod2 link set egress2p up"));
    assert!(ip("-n node route add 169.254.172.1/32 dev egress2"));
    assert_eq!(index("egress2"), number);
    assert_eq!(namespace(&mut links, "169.254.172.1"), Some(two));
}

/// A pod with CAP_NET_ADMIN can move its end, and what the node's device leads to is then no longer the pod's namespace.
#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_pair_whose_other_end_moved_leads_to_where_it_is_now() {
    let (_lab, mut links) = connected();
    let one = namespace(&mut links, "fd77::1").unwrap();
    assert_eq!(namespace(&mut links, "169.254.172.1"), Some(one));
    assert!(ip("-n pod1 link set egress1p netns cloud"));
    assert_ne!(namespace(&mut links, "169.254.172.1"), Some(one));
    assert_ne!(namespace(&mut links, "169.254.172.1"), namespace(&mut links, "fd77::2"));
    // Into the node's own namespace, for which a pod needs no descriptor.
    assert!(ip("-n cloud link set egress1p netns node"));
    assert_eq!(namespace(&mut links, "169.254.172.1"), None);
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_route_for_a_range_makes_its_addresses_nobodys() {
    let (_lab, mut links) = connected();
    assert!(ip("-n node route add 169.254.172.0/22 dev egress1"));
    assert!(ip("-n node route add 169.254.173.1/32 nexthop dev egress1 nexthop dev up0"));
    assert!(ip("-n node route add unreachable 169.254.174.1/32"));
    assert!(namespace(&mut links, "169.254.172.1").is_some());
    for nobodys in ["169.254.172.2", "169.254.173.1", "169.254.174.1"] {
        assert_eq!(namespace(&mut links, nobodys), None, "{nobodys}");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn the_nodes_ipv4_address_is_the_one_from_which_it_would_ask_for_metadata() {
    let _lab = Lab::new();
    assert_eq!(within("node", find_ipv4_address), Some([10, 45, 0, 1].into()));
    assert!(ip("-n node route delete 169.254.169.254/32"));
    assert_eq!(within("node", find_ipv4_address), None);
    assert!(ip("-n node address add 169.254.169.254/32 dev lo"));
    assert_eq!(within("node", find_ipv4_address), None, "the metadata address itself");
}
