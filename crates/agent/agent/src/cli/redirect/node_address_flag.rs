//! Reads the flags with the node's addresses and the agents' ports.

use std::net::IpAddr;
use std::num::NonZeroU16;

use lexopt::Error;
use seawall_identity::node_addresses::{NODE_ADDRESSES_FORMAT_HINT, NodeAddresses};
use seawall_redirect::find_ipv4_address;
use seawall_redirect::netfilter::AgentPorts;

use crate::cli::flag_parser::Flags;

/// The flag with the node's addresses.
pub(super) const NODE_ADDRESS: &str = "node-address=*";

/// The flag that adds the node's IPv4 address if the others contain none.
pub(super) const FIND_IPV4: &str = "find-ipv4";

/// The flag with the agents' fixed ports.
pub(super) const AGENT_PORTS: &str = "agent-ports=";

/// The agents' ports, as the flags give them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentPortFlags {
    /// The ports, and the addresses of the flags.
    pub(super) given: AgentPorts,
    /// True if agents also listen at the node's IPv4 address, which Kubernetes does not report.
    pub(super) finds_ipv4: bool,
}

impl AgentPortFlags {
    /// Reads the flags. Without ports, the rules have no exceptions.
    ///
    /// # Errors
    /// A port is invalid, or there are ports without an address.
    pub(super) fn read(flags: &Flags) -> Result<Self, Error> {
        let name = AGENT_PORTS.trim_end_matches('=');
        let wanted = "ports such as 8988,8986";
        let Some(text) = flags.value::<String>(name, wanted)? else { return Ok(Self::default()) };
        let port = |port: &str| port.parse::<NonZeroU16>().map(NonZeroU16::get).ok();
        let ports: Option<Vec<u16>> = text.split(',').map(port).collect();
        let ports = ports.ok_or_else(|| flags.invalid_value_error(name, wanted))?;
        let addresses = node_addresses(flags)?;
        if addresses.is_empty() {
            return Err(Error::Custom(
                format!("--{name} needs --node-address: expected the node's address at which agents listen")
                    .into(),
            ));
        }
        Ok(Self { given: AgentPorts { addresses, ports }, finds_ipv4: flags.has(FIND_IPV4) })
    }

    /// Returns the ports with the addresses that the node has now.
    pub(super) fn now(&self) -> AgentPorts {
        let mut ports = self.given.clone();
        if self.finds_ipv4 && !ports.addresses.iter().any(IpAddr::is_ipv4) {
            ports.addresses.extend(find_ipv4_address().map(IpAddr::V4));
        }
        ports
    }
}

/// Returns the node's addresses, each once, in the order of the command line. The value of a flag can be a list.
///
/// # Errors
/// A value is not a list of addresses.
pub(super) fn node_addresses(flags: &Flags) -> Result<Vec<IpAddr>, Error> {
    let name = NODE_ADDRESS.trim_end_matches("=*");
    let lists = flags.values::<NodeAddresses>(name, NODE_ADDRESSES_FORMAT_HINT)?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in lists.iter().flat_map(NodeAddresses::iter) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}
