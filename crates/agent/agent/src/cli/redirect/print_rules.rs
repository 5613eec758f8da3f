//! `seawall-agent redirect print`: writes netfilter rules to the terminal or to a file.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Context;
use lexopt::Error;
use seawall_core::PodUid;
use seawall_redirect::{self as redirect, AgentAddress, nft_rules};

use super::node_paths::NodePaths;
use crate::cli::flag_parser::Flags;

/// The set of netfilter rules to print.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RuleSet {
    Drop,
    Dnat { places: NodePaths, agent: AgentAddress, agent_pod_uid: Option<PodUid> },
    Cleanup,
}

impl RuleSet {
    pub(super) fn parse(what: &str, flags: &Flags) -> Result<Self, Error> {
        Ok(match what {
            "drop-rules" => Self::Drop,
            "dnat-rules" => Self::Dnat {
                agent: agent(flags)?,
                agent_pod_uid: flags.value("agent-pod-uid", "a UID")?.map(|uid: String| PodUid(uid.into())),
                places: NodePaths::from_flags(flags),
            },
            _ => Self::Cleanup,
        })
    }

    pub(super) fn format_rules(&self) -> Result<String, redirect::Error> {
        match self {
            Self::Drop => Ok(nft_rules::format_drop_rules()),
            Self::Dnat { places, agent, agent_pod_uid } => dnat_rules(places, agent, agent_pod_uid.as_ref()),
            Self::Cleanup => Ok(nft_rules::format_cleanup_rules()),
        }
    }
}

/// Returns the agent's addresses and ports, to which the rules send connections.
fn agent(flags: &Flags) -> Result<AgentAddress, Error> {
    let (metadata, containers) =
        (flags.value("metadata-port", "a port")?, flags.value("containers-port", "a port")?);
    let mut agent =
        AgentAddress { metadata_port: metadata, containers_port: containers, ..AgentAddress::default() };
    for address in flags.values("node-address", "an IP address of the node")? {
        let twice = match address {
            IpAddr::V4(address) => agent.v4.replace(address).is_some(),
            IpAddr::V6(address) => agent.v6.replace(address).is_some(),
        };
        if twice {
            return Err(Error::Custom(format!("--node-address: {address} is a second address of its family; give at most one IPv4 and one IPv6 address").into()));
        }
    }
    Ok(agent)
}

pub(super) fn write_or_return_text(rules: &str, output: Option<&Path>) -> anyhow::Result<String> {
    let Some(file) = output else { return Ok(rules.to_owned()) };
    std::fs::write(file, rules).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(format!("written: {}\n", file.display()))
}

/// Returns the DNAT rules. On a node without cgroup v2, the rules cannot match hostNetwork pods.
fn dnat_rules(
    places: &NodePaths,
    agent: &AgentAddress,
    agent_pod_uid: Option<&PodUid>,
) -> Result<String, redirect::Error> {
    let site = match places.find_cgroup_tree() {
        Err(redirect::Error::NotCgroup2 { .. }) => None,
        found => Some(found?),
    };
    nft_rules::format_dnat_rules(agent, site.as_ref(), agent_pod_uid)
}
