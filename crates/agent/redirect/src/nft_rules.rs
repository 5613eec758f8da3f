//! Generates netfilter rules: drop rules that complement the eBPF programs, and rules that replace the programs.
//!
//! The rules are text for the program `nft`. Operators can read the rules before they load them, and a node can load them at boot
//! without Seawall. `nft` loads the rules as one transaction, which replaces the old rules. [`crate::netfilter`] loads the same drop
//! rules without `nft`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use seawall_core::PodUid;
use seawall_core::endpoint::{DNS_PORT, METADATA_PORT, MetadataEndpoint};

use crate::cgroup_pods::find_pod_cgroup;
use crate::cgroup_tree::PodsParentCgroup;
use crate::error::Error;
use crate::target::AgentAddress;

/// The table that contains all Seawall rules, for IPv4 and IPv6.
const TABLE: &str = "inet seawall";

/// Returns the drop rules for the node's own network namespace. They complement the eBPF programs.
///
/// The rules drop forwarded packets to metadata addresses, except DNS. These packets have bypassed `connect`: they are raw packets
/// (containers have CAP_NET_RAW by default), or packets of pods with a separate kernel (gVisor, Kata). The rules run at the hook
/// prerouting, so they do not drop packets that the node itself sends.
#[must_use]
pub fn format_drop_rules() -> String {
    // The first chain runs before connection tracking and every address translation. The second one drops what a translation, such as
    // that of a Service whose endpoint is a metadata address, has led there.
    table(
        &(drop_chain("drop_rules", "prerouting", "raw") + &drop_chain("drop_forwarded", "forward", "filter")),
    )
}

/// The cgroups by which rules match the packets of pods on the node's network. Rules cannot match cgroups of v1.
#[derive(Clone, Copy, Debug)]
pub struct HostNetworkMatch<'a> {
    /// The parent cgroup of the node's pods.
    pub site: &'a PodsParentCgroup,
    /// The agent's own pod, whose packets stay unchanged. Otherwise the agent's requests to the real server would come back to it.
    pub agent_pod_uid: Option<&'a PodUid>,
}

/// Returns rules that translate metadata addresses to the agent's address. They replace the eBPF programs.
///
/// The packets of most pods pass the hook prerouting, where the rules match them by address and port. Drop rules then drop all other
/// forwarded packets to metadata addresses, except DNS.
///
/// HostNetwork pods send from the node itself. Without `host_network`, the rules leave their packets alone, as those of the node's
/// processes. With it, the rules match their packets by the cgroup of the socket.
///
/// # Errors
/// The agent has no address or no port, or its pod has no cgroup.
pub fn format_dnat_rules(
    agent: &AgentAddress,
    host_network: Option<HostNetworkMatch<'_>>,
) -> Result<String, Error> {
    let rules = rules(agent);
    if rules.is_empty() {
        return Err(Error::IncompleteAgentAddress);
    }
    let Some(HostNetworkMatch { site, agent_pod_uid }) = host_network else {
        return Ok(translated(&rules, None, None));
    };
    let own = agent_pod_uid.map(|pod| match find_pod_cgroup(site, pod)? {
        Some((group, _)) => Ok(sockets_of(site, &group)),
        None => Err(Error::NoPodCgroup(pod.clone())),
    });
    let pods = sockets_of(site, site.kubepods_directory());
    Ok(translated(&rules, Some(&pods), own.transpose()?.as_deref()))
}

fn sockets_of(site: &PodsParentCgroup, of: &Path) -> String {
    let (level, below_root) = site.cgroup_depth_and_path(of);
    socket_of(level, &group(site.has_cgroup_v1(), &below_root.display().to_string()))
}

/// Returns a match for packets from sockets that were created in this cgroup.
fn socket_of(level: u32, path: &str) -> String {
    format!("socket cgroupv2 level {level} \"{path}\"")
}

fn translated(rules: &[String], socket_of_pods: Option<&str>, own: Option<&str>) -> String {
    let mut chains = chain("pods", "nat hook prerouting priority dstnat - 1", rules);
    if let Some(socket) = socket_of_pods {
        let passed = own.map(|own| format!("{own} accept"));
        let of_pods = rules.iter().map(|rule| format!("{socket} {rule}"));
        // The priority is a number, because nft 1.0.6 rejects the name `dstnat` on this hook.
        chains += &chain(
            "hostpods",
            "nat hook output priority -101",
            &passed.into_iter().chain(of_pods).collect::<Vec<_>>(),
        );
    }
    // The drop chain runs after the translation. If it ran earlier, it would drop packets that the translation must change.
    chains += &drop_chain("drop_rules", "prerouting", "dstnat + 50");
    table(&chains)
}

/// Returns rules that remove all Seawall rules. If there are no Seawall rules, the returned rules change nothing.
#[must_use]
pub fn format_cleanup_rules() -> String {
    // Add the table first, because nft treats the deletion of a missing table as an error.
    format!("add table {TABLE}\ndelete table {TABLE}\n")
}

/// Loads rules with the program `nft`.
///
/// # Errors
/// The program is not installed, or it rejects the rules.
pub fn load_rules(rules: &str) -> Result<(), Error> {
    let started = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let child = started.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoNft,
        _ => Error::for_system_call("run", "nft")(error),
    })?;
    let output = feed(child, rules).map_err(Error::for_system_call("run", "nft"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(Error::NftRulesRejected { said: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
        }
    }
}

fn feed(mut child: Child, rules: &str) -> io::Result<std::process::Output> {
    if let Some(mut stdin) = child.stdin.take() {
        // If the write fails, `nft` has ended early, and its standard error contains the reason.
        let _ = stdin.write_all(rules.as_bytes());
    }
    child.wait_with_output()
}

fn table(chains: &str) -> String {
    format!("{}table {TABLE} {{\n{chains}}}\n", format_cleanup_rules())
}

fn chain(name: &str, hook: &str, rules: &[String]) -> String {
    let mut text = format!("  chain {name} {{\n    type {hook}; policy accept;\n");
    for rule in rules {
        let _ = writeln!(text, "    {rule}");
    }
    text + "  }\n"
}

/// Accepts what the node sends to itself. Where a metadata address is the node's own, the node's processes reach it over `lo`, and no
/// packet of another network does.
const OWN_PACKETS: &str = "iif \"lo\" accept";

fn drop_chain(name: &str, hook: &str, priority: &str) -> String {
    let addresses = MetadataEndpoint::ALL.iter().flat_map(|endpoint| endpoint.addresses());
    let rules = addresses.flat_map(|address| {
        let to =
            format!("{} daddr {address}", if address.is_ipv4() { Family::Four } else { Family::Six }.word());
        // The rules accept DNS and drop everything else. One rule that drops all ports except DNS would not match later fragments,
        // because such fragments have no port.
        let dns = |protocol| format!("{to} {protocol} dport {DNS_PORT} accept");
        [dns("tcp"), dns("udp"), format!("{to} counter drop")]
    });
    let rules: Vec<_> = std::iter::once(OWN_PACKETS.to_owned()).chain(rules).collect();
    chain(name, &format!("filter hook {hook} priority {priority}"), &rules)
}

/// Returns one rule for each endpoint and address family of the agent.
fn rules(agent: &AgentAddress) -> Vec<String> {
    let ports = [
        (MetadataEndpoint::Metadata, agent.metadata_port),
        (MetadataEndpoint::ContainerCredentials, agent.container_credentials_port),
    ];
    let mut rules = Vec::new();
    for (endpoint, port) in ports.into_iter().filter_map(|(endpoint, port)| Some((endpoint, port?))) {
        for (family, address) in
            [(Family::Four, agent.v4.map(IpAddr::V4)), (Family::Six, agent.v6.map(IpAddr::V6))]
        {
            rules.extend(address.map(|address| rule(family, endpoint, address, port)));
        }
    }
    rules
}

fn rule(family: Family, endpoint: MetadataEndpoint, agent: IpAddr, port: NonZeroU16) -> String {
    let addresses = family.of(endpoint.addresses()).collect::<Vec<_>>().join(", ");
    let word = family.word();
    let agent = match agent {
        IpAddr::V4(agent) => agent.to_string(),
        IpAddr::V6(agent) => format!("[{agent}]"),
    };
    format!("{word} daddr {{ {addresses} }} tcp dport {METADATA_PORT} dnat {word} to {agent}:{port}")
}

/// Returns the path of a cgroup in the form that `nft` needs.
///
/// `nft` looks up the path below `/sys/fs/cgroup`. On a node with cgroup v1 and v2, the v2 tree is in `/sys/fs/cgroup/unified`. The
/// level counts from the root of the v2 tree.
fn group(beside_version_one: bool, below_root: &str) -> String {
    if beside_version_one { format!("unified/{below_root}") } else { below_root.to_owned() }
}

#[derive(Clone, Copy)]
enum Family {
    Four,
    Six,
}

impl Family {
    const fn word(self) -> &'static str {
        match self {
            Self::Four => "ip",
            Self::Six => "ip6",
        }
    }

    fn of(self, addresses: &[IpAddr]) -> impl Iterator<Item = String> {
        let wanted = matches!(self, Self::Four);
        addresses.iter().filter(move |address| address.is_ipv4() == wanted).map(IpAddr::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> AgentAddress {
        let port = NonZeroU16::new;
        AgentAddress {
            v4: "10.0.0.1".parse().ok(),
            v6: "fd00::1".parse().ok(),
            metadata_port: port(8988),
            container_credentials_port: port(8987),
            ..AgentAddress::default()
        }
    }

    #[test]
    fn the_net_drops_all_but_dns_to_every_address() {
        let rules = format_drop_rules();
        for endpoint in MetadataEndpoint::ALL {
            for address in endpoint.addresses() {
                assert_eq!(
                    rules.matches(&format!("daddr {address} tcp dport 53 accept\n")).count(),
                    2,
                    "{address} in {rules}"
                );
                assert_eq!(
                    rules.matches(&format!("daddr {address} udp dport 53 accept\n")).count(),
                    2,
                    "{address} in {rules}"
                );
                assert_eq!(
                    rules.matches(&format!("daddr {address} counter drop\n")).count(),
                    2,
                    "{address} in {rules}"
                );
            }
        }
    }

    #[test]
    fn each_endpoint_is_translated_to_its_port_in_each_family() {
        let rules = rules(&agent());
        assert_eq!(
            rules,
            [
                "ip daddr { 169.254.169.254 } tcp dport 80 dnat ip to 10.0.0.1:8988",
                "ip6 daddr { fd20:ce::254, fd00:ec2::254 } tcp dport 80 dnat ip6 to [fd00::1]:8988",
                "ip daddr { 169.254.170.23 } tcp dport 80 dnat ip to 10.0.0.1:8987",
                "ip6 daddr { fd00:ec2::23 } tcp dport 80 dnat ip6 to [fd00::1]:8987",
            ]
        );
    }

    #[test]
    fn what_the_agent_does_not_have_is_not_translated_and_dropped_by_the_drop_rules() {
        let agent = AgentAddress { v6: None, container_credentials_port: None, ..agent() };
        let rules = translated(&rules(&agent), Some(&socket_of(1, "kubepods")), None);
        assert_eq!(rules.matches("dnat").count(), 2, "{rules}");
        for address in ["fd20:ce::254", "fd00:ec2::254", "fd00:ec2::23", "169.254.170.23"] {
            assert!(rules.contains(&format!("daddr {address} counter drop")), "{rules}");
        }
    }

    #[test]
    fn pods_on_the_nodes_network_are_told_by_their_group() {
        let path = group(true, "kubelet/kubepods");
        let rules = translated(&rules(&agent()), Some(&socket_of(2, &path)), None);
        assert_eq!(
            rules.matches("socket cgroupv2 level 2 \"unified/kubelet/kubepods\" ip").count(),
            4,
            "{rules}"
        );
        assert_eq!(group(false, "kubepods.slice"), "kubepods.slice");
    }

    #[test]
    fn without_groups_to_tell_them_by_pods_are_translated_by_what_they_send_alone() {
        let rules = format_dnat_rules(&agent(), None).unwrap();
        assert_eq!(rules.matches("dnat ip").count(), 4, "{rules}");
        assert!(!rules.contains("cgroupv2") && rules.contains("chain drop_rules"), "{rules}");
    }

    #[test]
    fn rules_replace_what_was_there() {
        assert!(format_drop_rules().starts_with(&format_cleanup_rules()));
    }
}
