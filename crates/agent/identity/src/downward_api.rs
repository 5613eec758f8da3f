//! Reads the data about the node and the agent's own pod that Kubernetes' downward API provides.
//!
//! All nodes share one configuration file, so environment variables provide the data that differs between nodes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;

use ipnet::IpNet;
use seawall_core::PodUid;
use seawall_redirect::find_ipv4_address;

use super::node_addresses::{NODE_ADDRESSES_FORMAT_HINT, NodeAddresses};

/// Holds the node's name, the node's addresses and the UID of the agent's own pod. A field is `None` if the agent's manifest does
/// not set the field's environment variable.
#[derive(Clone, Debug, Default)]
pub struct DownwardApi {
    /// The node's name: `spec.nodeName` of the agent's pod.
    pub node_name: Option<String>,
    /// The node's addresses: `status.hostIPs` of the agent's pod, or its `status.hostIP` if that list is empty.
    pub node_addresses: NodeAddresses,
    /// The expectation that the variable with the node's addresses does not meet, if it has another content than addresses.
    pub node_addresses_mistake: Option<String>,
    /// The node's IPv4 address by the node's own routes. It does not come from Kubernetes, which reports none in an IPv6 cluster.
    pub routed_ipv4_address: Option<Ipv4Addr>,
    /// The UID of the agent's own pod: its `metadata.uid`.
    pub own_pod_uid: Option<PodUid>,
}

impl DownwardApi {
    /// The name of the environment variable that contains the node's name.
    pub const NODE_NAME_VARIABLE: &str = "NODE_NAME";
    /// The name of the environment variable that contains all addresses of the node, separated by commas.
    pub const NODE_ADDRESSES_VARIABLE: &str = "NODE_IPS";
    /// The name of the environment variable that contains the node's first address. It counts if there is no list of all addresses:
    /// an agent that is started by hand needs only this one.
    pub const NODE_ADDRESS_VARIABLE: &str = "NODE_IP";
    /// The name of the environment variable that contains the UID of the agent's own pod.
    pub(crate) const POD_UID_VARIABLE: &str = "POD_UID";

    /// Reads the environment variables of this process, and the node's routes.
    pub fn from_env() -> Self {
        // The agent listens at the address that it found first. A reload must not ask for another one, which needs a restart.
        static ROUTED: OnceLock<Option<Ipv4Addr>> = OnceLock::new();
        Self {
            routed_ipv4_address: *ROUTED.get_or_init(find_ipv4_address),
            ..Self::from_variables(|name| std::env::var(name).ok())
        }
    }

    /// Adds the node's IPv4 address if pods ask from these ranges by IPv4 and Kubernetes reports no IPv4 address of the node. A node
    /// without one stays as it is: the redirect then refuses connections by IPv4 (`no_family`).
    pub fn with_address_for(mut self, egress_ranges: &[IpNet]) -> Self {
        let asks_by_ipv4 = egress_ranges.iter().any(|range| range.addr().is_ipv4());
        if asks_by_ipv4 && !self.node_addresses.is_empty() {
            let added = self.routed_ipv4_address.map(IpAddr::V4);
            self.node_addresses = self.node_addresses.iter().chain(added).collect();
        }
        self
    }

    fn from_variables(variable: impl Fn(&'static str) -> Option<String>) -> Self {
        let told = |name| variable(name).filter(|text| !text.is_empty());
        let addresses = [Self::NODE_ADDRESSES_VARIABLE, Self::NODE_ADDRESS_VARIABLE];
        let addresses = addresses.into_iter().find_map(|name| Some((name, told(name)?)));
        let (node_addresses, node_addresses_mistake) = match addresses {
            None => Default::default(),
            Some((name, text)) => parse_addresses(name, &text),
        };
        Self {
            node_name: told(Self::NODE_NAME_VARIABLE),
            node_addresses,
            node_addresses_mistake,
            routed_ipv4_address: None,
            own_pod_uid: told(Self::POD_UID_VARIABLE).map(|uid| PodUid(uid.into())),
        }
    }

    /// Returns the UID of the agent's own pod, if the agent's manifest sets the environment variable.
    pub fn own_pod(&self) -> Option<&PodUid> {
        self.own_pod_uid.as_ref()
    }

    /// Replaces missing values with placeholders. Use this function to check a configuration outside a pod, where the variables
    /// are not set.
    pub fn with_placeholders(self) -> Self {
        // This address is reserved for documentation (RFC 5737), so no node has it.
        const ANY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let has_addresses = !self.node_addresses.is_empty() || self.node_addresses_mistake.is_some();
        Self {
            node_name: self.node_name.or_else(|| Some("node".into())),
            node_addresses: if has_addresses { self.node_addresses } else { ANY.into() },
            node_addresses_mistake: self.node_addresses_mistake,
            routed_ipv4_address: self.routed_ipv4_address,
            own_pod_uid: self.own_pod_uid.or_else(|| Some(PodUid("pod".into()))),
        }
    }

    /// Returns data that contains only the node's name.
    pub fn for_node(node: &str) -> Self {
        Self { node_name: Some(node.into()), ..Self::default() }
    }
}

fn parse_addresses(name: &str, text: &str) -> (NodeAddresses, Option<String>) {
    match text.parse() {
        Ok(addresses) => (addresses, None),
        Err(_) => {
            let expected = format!(
                "{NODE_ADDRESSES_FORMAT_HINT}, in the environment variable {name}, which contains {text:?}"
            );
            (NodeAddresses::default(), Some(expected))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let read = |name: &'static str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
        };
        let downward = DownwardApi::from_variables(read);
        let addresses = downward.node_addresses.iter().map(|address| address.to_string()).collect();
        downward.node_addresses_mistake.map_or(Ok(addresses), Err)
    }

    #[test]
    fn all_addresses_count_and_one_alone_where_there_is_no_list() {
        for (variables, expected) in [
            (&[("NODE_IP", "10.0.0.1")][..], &["10.0.0.1"][..]),
            (&[("NODE_IP", "10.0.0.1"), ("NODE_IPS", "")], &["10.0.0.1"]),
            (&[("NODE_IP", "10.0.0.1"), ("NODE_IPS", "10.0.0.1,fd00::1")], &["10.0.0.1", "fd00::1"]),
            (&[("NODE_IPS", "fd00::1,10.0.0.1")], &["fd00::1", "10.0.0.1"]),
            (&[], &[]),
        ] {
            assert_eq!(addresses(variables).unwrap(), expected, "{variables:?}");
        }
    }

    #[test]
    fn the_nodes_ipv4_address_is_added_where_pods_ask_by_ipv4_and_kubernetes_reports_none() {
        let ranges = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
        let (egress, egress6) = (ranges(&["169.254.172.0/22"]), ranges(&["fd00::ac:0/118"]));
        let routed = Some(Ipv4Addr::new(10, 0, 0, 7));
        for (told, routed, ranges, expected) in [
            ("fd00::1", routed, &egress, &["fd00::1", "10.0.0.7"][..]),
            ("10.0.0.1,fd00::1", routed, &egress, &["10.0.0.1", "fd00::1"]),
            ("10.0.0.1", routed, &egress, &["10.0.0.1"]),
            ("fd00::1", None, &egress, &["fd00::1"]),
            ("fd00::1", routed, &egress6, &["fd00::1"]),
            ("fd00::1", routed, &vec![], &["fd00::1"]),
            ("", routed, &egress, &[]),
        ] {
            let node_addresses = told.parse().unwrap();
            let data = DownwardApi { node_addresses, routed_ipv4_address: routed, ..DownwardApi::default() };
            let addresses = data.with_address_for(ranges).node_addresses;
            let addresses: Vec<_> = addresses.iter().map(|address| address.to_string()).collect();
            assert_eq!(addresses, expected, "{told} {ranges:?}");
        }
    }

    /// An agent that ignored the list would leave one family of pods without an answer, and nothing would tell why.
    #[test]
    fn a_variable_without_addresses_is_a_mistake_that_names_it() {
        for (name, text) in [("NODE_IPS", "10.0.0.1,here"), ("NODE_IP", "here")] {
            let mistake = addresses(&[(name, text)]).unwrap_err();
            assert!(mistake.contains(&format!("{name}, ")) && mistake.contains(text), "{mistake}");
        }
        let both = addresses(&[("NODE_IP", "10.0.0.1"), ("NODE_IPS", "here")]);
        assert!(both.unwrap_err().contains("NODE_IPS"));
    }
}
