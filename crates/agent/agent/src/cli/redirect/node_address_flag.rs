//! Reads the flag with the node's addresses.

use std::net::IpAddr;

use lexopt::Error;
use seawall_identity::node_addresses::{NODE_ADDRESSES_FORMAT_HINT, NodeAddresses};

use crate::cli::flag_parser::Flags;

/// The flag with the node's addresses.
pub(super) const NODE_ADDRESS: &str = "node-address=*";

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
