//! `seawall-agent redirect print`: writes netfilter rules to the terminal or to a file.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Context;
use lexopt::Error;
use seawall_core::PodUid;
use seawall_redirect::{self as redirect, AgentAddress, nft_rules};

use super::host_network_flag::leaves_host_network_pods;
use super::node_paths::NodePaths;
use crate::cli::flag_parser::Flags;

/// The set of netfilter rules to print.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RuleSet {
    Drop,
    Dnat { places: NodePaths, agent: AgentAddress, captured: Option<CapturedHostNetwork> },
    Cleanup,
}

/// The capture of pods on the node's network by DNAT rules.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CapturedHostNetwork {
    /// The agent's own pod, which is not captured.
    agent_pod_uid: Option<PodUid>,
}

impl RuleSet {
    pub(super) fn parse(what: &str, flags: &Flags) -> Result<Self, Error> {
        Ok(match what {
            "drop-rules" => Self::Drop,
            "dnat-rules" => Self::Dnat {
                agent: agent(flags)?,
                captured: captured_host_network(flags)?,
                places: NodePaths::from_flags(flags),
            },
            _ => Self::Cleanup,
        })
    }

    pub(super) fn format_rules(&self) -> Result<String, redirect::Error> {
        match self {
            Self::Drop => Ok(nft_rules::format_drop_rules()),
            Self::Dnat { places, agent, captured } => dnat_rules(places, agent, captured.as_ref()),
            Self::Cleanup => Ok(nft_rules::format_cleanup_rules()),
        }
    }
}

/// Returns the agent's addresses and ports, to which the rules send connections.
fn agent(flags: &Flags) -> Result<AgentAddress, Error> {
    let (metadata, containers) =
        (flags.value("metadata-port", "a port")?, flags.value("containers-port", "a port")?);
    let mut agent = AgentAddress {
        metadata_port: metadata,
        container_credentials_port: containers,
        ..AgentAddress::default()
    };
    for address in flags.values("node-address", "an IP address of the node")? {
        let twice = match address {
            IpAddr::V4(address) => agent.v4.replace(address).is_some(),
            IpAddr::V6(address) => agent.v6.replace(address).is_some(),
        };
        if twice {
            return Err(Error::Custom(format!("--node-address: {address} is the second address of its IP family; give at most one IPv4 and one IPv6 address").into()));
        }
    }
    Ok(agent)
}

pub(super) fn write_or_return_text(rules: &str, output: Option<&Path>) -> anyhow::Result<String> {
    let Some(file) = output else { return Ok(rules.to_owned()) };
    std::fs::write(file, rules).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(format!("written: {}\n", file.display()))
}

fn captured_host_network(flags: &Flags) -> Result<Option<CapturedHostNetwork>, Error> {
    let agent_pod_uid = flags.value("agent-pod-uid", "a UID")?.map(|uid: String| PodUid(uid.into()));
    match (leaves_host_network_pods(flags)?, agent_pod_uid) {
        (false, agent_pod_uid) => Ok(Some(CapturedHostNetwork { agent_pod_uid })),
        (true, None) => Ok(None),
        (true, Some(_)) => Err(Error::Custom(
            "--agent-pod-uid works only with --host-network-pods=seawall: otherwise no rule matches pods on the node's network".into(),
        )),
    }
}

/// Returns the DNAT rules.
fn dnat_rules(
    places: &NodePaths,
    agent: &AgentAddress,
    captured: Option<&CapturedHostNetwork>,
) -> Result<String, redirect::Error> {
    let Some(captured) = captured else { return nft_rules::format_dnat_rules(agent, None) };
    let site = places.find_pods_parent_cgroup()?;
    let agent_pod_uid = captured.agent_pod_uid.as_ref();
    nft_rules::format_dnat_rules(agent, Some(nft_rules::HostNetworkMatch { site: &site, agent_pod_uid }))
}
