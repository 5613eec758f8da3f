//! Defines the addresses in the configuration and their defaults.

use std::net::SocketAddr;

pub(super) const ADDRESS_FORMAT_HINT: &str = "an address and port such as 127.0.0.1:8988";
pub(super) const LISTEN_ADDRESS_FORMAT_HINT: &str = "an address and port such as 127.0.0.1:8988 or node:0";

/// The placeholder for the node's addresses in `listen`. With this placeholder, all nodes can use the same file.
pub(super) const NODE_ADDRESS_PLACEHOLDER: &str = "node";

/// The default port of the admin address.
pub(super) const ADMIN_PORT: u16 = 8989;

/// Returns the loopback address with this port.
pub(super) fn loopback_address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
