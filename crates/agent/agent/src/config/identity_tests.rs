//! Tests the section `identity` within a whole configuration, with the values that differ on each node.

use seawall_core::PodUid;

use super::*;

const NODE: &str = "listen: [\"node:0\"]\nidentity: { strategy: kernel";

fn downward() -> DownwardApi {
    let pod = Some(PodUid("5eaf".into()));
    DownwardApi {
        node_addresses: "10.0.0.1".parse().unwrap(),
        own_pod_uid: pod,
        ..DownwardApi::for_node("n1")
    }
}

fn read(text: &str, downward: &DownwardApi) -> Result<AgentConfig, String> {
    let text = format!("google: {{ mode: conceal }}\n{text} }}\n");
    AgentConfig::parse(&text, Path::new("/etc"), downward).map_err(|mistakes| mistakes.to_string())
}

#[test]
fn one_file_serves_all_nodes_because_each_agent_is_told_where_it_is() {
    let config = read(NODE, &downward()).unwrap();
    assert_eq!(config.listen[0].address.to_string(), "10.0.0.1:0");
    let IdentityConfig::Kernel(kernel) = config.identity else { panic!("{:?}", config.identity) };
    assert_eq!((kernel.cluster.node_name.as_str(), &*kernel.own_pod_uid.0), ("n1", "5eaf"));
    let usual = ("/sys/fs/bpf".into(), "/sys/fs/cgroup".into(), None);
    assert_eq!((kernel.redirect.bpffs, kernel.redirect.cgroup_root, kernel.redirect.kubepods_cgroup), usual);
}

/// The agent listened at the node's first address alone: sockets of the other family could not reach it.
#[test]
fn a_listener_of_the_node_is_at_each_of_its_addresses_with_the_same_ports_and_dialects() {
    let downward = DownwardApi { node_addresses: "10.0.0.1,fd00::1".parse().unwrap(), ..downward() };
    let listen = "listen: [{ address: \"node:8988\", secondPort: 8986, dialects: [google] }, \"127.0.0.1:1\"]\n\
                  identity: { strategy: kernel";
    let config = read(listen, &downward).unwrap();
    let listeners: Vec<_> = config
        .listen
        .iter()
        .map(|listen| (listen.address.to_string(), listen.second_port, listen.is_additional))
        .collect();
    let expected = [
        ("10.0.0.1:8988", Some(8986), false),
        ("[fd00::1]:8988", Some(8986), true),
        ("127.0.0.1:1", None, false),
    ];
    assert_eq!(listeners, expected.map(|(address, second, other)| (address.to_owned(), second, other)));
    assert!(config.listen.iter().all(|listen| listen.dialects == [DialectName::Google]));
    let twice = read("listen: [\"node:8988\", \"[fd00::1]:8988\"]\nidentity: { strategy: kernel", &downward);
    assert!(twice.unwrap_err().contains("listen[1]"));
}

#[test]
fn the_pods_groups_are_where_the_file_says() {
    let text = format!("{NODE}, redirect: {{ cgroupRoot: /host, kubepodsCgroup: a/kubepods }}");
    let IdentityConfig::Kernel(kernel) = read(&text, &downward()).unwrap().identity else { panic!("{text}") };
    assert_eq!(
        (kernel.redirect.cgroup_root, kernel.redirect.kubepods_cgroup),
        ("/host".into(), Some("a/kubepods".into()))
    );
}

#[test]
fn a_strategy_that_there_is_not_is_a_mistake() {
    let mistakes = read("identity: { strategy: sock-diag", &DownwardApi::for_node("n1")).unwrap_err();
    assert!(mistakes.contains("static, source-ip, kernel or anyone"), "{mistakes}");
}

#[test]
fn what_the_manifest_does_not_tell_is_named_all_at_once() {
    let mistakes = read(NODE, &DownwardApi::default()).unwrap_err();
    for place in ["listen[0]", "NODE_IPS", "NODE_IP", "identity.nodeName", "NODE_NAME"] {
        assert!(mistakes.contains(place), "{place} in {mistakes}");
    }
    let mistakes = read(NODE, &DownwardApi { own_pod_uid: None, ..downward() }).unwrap_err();
    assert!(mistakes.contains("identity.strategy") && mistakes.contains("POD_UID"), "{mistakes}");
}

#[test]
fn places_of_the_redirect_and_listeners_that_no_pod_can_reach_are_named() {
    let redirect = "redirect: { bpffs: bpf, cgroupRoot: \"\", kubepodsCgroup: ../x }";
    let mistakes = read(&format!("{NODE}, {redirect}"), &downward()).unwrap_err();
    for key in ["redirect.bpffs", "redirect.cgroupRoot", "redirect.kubepodsCgroup"] {
        assert!(mistakes.contains(key), "{key} in {mistakes}");
    }
    let loopback = NODE.replace("node:0", "127.0.0.1:8988");
    let mistakes = read(&loopback, &downward()).unwrap_err();
    assert!(mistakes.contains("listen: ") && mistakes.contains("pods can reach"), "{mistakes}");
}

/// On the nodes of an IPv6 cluster, Kubernetes reports no IPv4 address.
#[test]
fn with_an_egress_range_of_ipv4_an_agent_listens_at_the_nodes_ipv4_address_too() {
    let of_ipv6_cluster = DownwardApi {
        node_addresses: "fd00::1".parse().unwrap(),
        routed_ipv4_address: Some([10, 0, 0, 7].into()),
        ..downward()
    };
    let listeners = |text: &str| {
        let config = read(text, &of_ipv6_cluster)?;
        Ok::<_, String>(config.listen.iter().map(|listen| listen.address.to_string()).collect::<Vec<_>>())
    };
    let ranges = "egressRanges: [169.254.172.0/22]";
    assert_eq!(listeners(&format!("{NODE}, {ranges}")).unwrap(), ["[fd00::1]:0", "10.0.0.7:0"]);
    assert_eq!(listeners(NODE).unwrap(), ["[fd00::1]:0"]);
    let elsewhere = listeners(&format!("listen: [\"node:0\"]\nidentity: {{ strategy: source-ip, {ranges}"));
    assert!(elsewhere.unwrap_err().contains("identity.egressRanges"));
    let wrong = listeners(&format!("{NODE}, egressRanges: [169.254.172.1/22]"));
    assert!(wrong.unwrap_err().contains("identity.egressRanges[0]"));
}
