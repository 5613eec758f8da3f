//! `redirect print`: writes netfilter rules to the terminal or into a file.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Context;
use lexopt::Error;
use seawall_core::PodUid;
use seawall_redirect::{self as redirect, AgentAddress, nft_rules};

use super::node_paths::NodePaths;
use crate::cli::flags::Flags;

/// The set of netfilter rules to print.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RuleSet {
    Net,
    Translation { places: NodePaths, agent: AgentAddress, own: Option<PodUid> },
    Removal,
}

impl RuleSet {
    pub(super) fn of(what: &str, flags: &Flags) -> Result<Self, Error> {
        Ok(match what {
            "net" => Self::Net,
            "translation" => Self::Translation {
                agent: agent(flags)?,
                own: flags.one("own", "a UID")?.map(|uid: String| PodUid(uid.into())),
                places: NodePaths::of(flags),
            },
            _ => Self::Removal,
        })
    }

    pub(super) fn text(&self) -> Result<String, redirect::Error> {
        match self {
            Self::Net => Ok(nft_rules::safety_net()),
            Self::Translation { places, agent, own } => translation(places, agent, own.as_ref()),
            Self::Removal => Ok(nft_rules::cleanup_rules()),
        }
    }
}

/// Returns the agent's addresses and ports, to which the node's connections go.
fn agent(flags: &Flags) -> Result<AgentAddress, Error> {
    let (metadata, containers) = (flags.one("metadata", "a port")?, flags.one("containers", "a port")?);
    let mut agent = AgentAddress { metadata, containers, ..AgentAddress::default() };
    for address in flags.all("node", "an address of the node's")? {
        let twice = match address {
            IpAddr::V4(address) => agent.v4.replace(address).is_some(),
            IpAddr::V6(address) => agent.v6.replace(address).is_some(),
        };
        if twice {
            return Err(Error::Custom(format!("--node: a second address of one family: {address}").into()));
        }
    }
    Ok(agent)
}

pub(super) fn print_or_write(rules: &str, into: Option<&Path>) -> anyhow::Result<String> {
    let Some(file) = into else { return Ok(rules.to_owned()) };
    std::fs::write(file, rules).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(format!("written: {}\n", file.display()))
}

/// Returns the DNAT rules, for nodes that may have no control groups of version 2 in which to find pods.
fn translation(
    places: &NodePaths,
    agent: &AgentAddress,
    own: Option<&PodUid>,
) -> Result<String, redirect::Error> {
    let site = match places.site() {
        Err(redirect::Error::NotCgroup2 { .. }) => None,
        found => Some(found?),
    };
    nft_rules::dnat_rules(agent, site.as_ref(), own)
}
